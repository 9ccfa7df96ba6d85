//! In the family `packed` rows of a block are the queries of all heads of a group: which row is
//! which query's and head's, and which keys it sees.

use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use stage11_spread::Spread;

fn right(group: usize, extents: [usize; 4], dtype: Dtype, mask: Mask) {
    stage_tests::packed_rows(&Spread, "packed", group, extents, dtype, mask);
}

#[test]
fn a_far_row_has_the_log_sum_exp_of_its_own_heads_scale() {
    stage_tests::packed_far_rows(&Spread, "packed");
}

#[test]
fn rows_are_right_where_blocks_meet() {
    stage_tests::packed_blocks(&Spread, "packed");
}

/// Over several tiles for each part of the keys, whose exponentials are under earlier maxima.
#[test]
fn rows_of_a_group_see_many_keys() {
    for dtype in Dtype::ALL {
        right(4, [2, 33, 1000, 64], dtype, Mask::Causal);
        right(4, [1, 33, 1000, 128], dtype, Mask::Full);
    }
}

/// The first and the 64th of 132 rows, of queries 0 and 16, see a tile of 64 or 128 keys, one key
/// less or one more.
#[test]
fn the_first_row_of_a_warpgroup_may_see_whole_tiles() {
    for whole in [64 + 16, 64 + 32, 128 + 16, 128 + 32] {
        for seq_kv in whole - 1..=whole + 1 {
            right(4, [1, 33, seq_kv, 64], Dtype::F16, Mask::Causal);
        }
    }
}

/// The keys of a key head are read once for so many rows, whatever heads these are of.
#[test]
fn a_block_has_rows_of_all_heads_of_a_group() {
    let stage = stage_tests::load(&Spread);
    let shape = Shape {
        heads_kv: 2,
        seq_kv: 300,
        ..Shape::bhsd(3, 8, 33, 128)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    let grid = |variant| stage.prepare(variant, &problem).unwrap().grid;
    assert_eq!(grid("spread-128x64-k2"), [1, 8, 3]);
    assert_eq!(grid("packed-128x64-k2"), [2, 2, 3]);
}

/// Four blocks of 32 queries each see 32, 64, 96 and 128 keys: 1, 1, 2 and 2 tiles of 64.
#[test]
fn a_block_reads_no_key_that_its_last_query_does_not_see() {
    let stage = stage_tests::load(&Spread);
    let shape = Shape {
        heads_kv: 1,
        ..Shape::bhsd(1, 4, 128, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let prepared = stage.prepare("packed-128x64-k2", &problem).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let counted = count(&prepared, &Staged::new(&inputs, Layout::Packed)).unwrap();
    let tile = 64 * 64 * Dtype::F16.bytes() as u64;
    assert_eq!(counted.counters.tma_read_bytes, 2 * 6 * tile);
}
