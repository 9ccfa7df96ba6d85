//! In the family `overlap-packed` rows of a block are the queries of all heads of a group: which
//! row is which query's and head's, and which keys it sees.

use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use stage8_overlap::Overlap;

fn right(group: usize, extents: [usize; 4], dtype: Dtype, mask: Mask) {
    stage_tests::packed_rows(&Overlap, "overlap-packed", group, extents, dtype, mask);
}

#[test]
fn rows_are_right_where_blocks_meet() {
    stage_tests::packed_blocks(&Overlap, "overlap-packed");
}

/// Over more tiles than the ring has. Of 132 rows the first and the 64th, of queries 0 and 16, see
/// whole tiles of 128 keys, one key less or one more.
#[test]
fn rows_of_a_group_see_many_keys() {
    for whole in [7 * 128 + 16, 7 * 128 + 32] {
        for seq_kv in whole - 1..=whole + 1 {
            right(4, [1, 33, seq_kv, 64], Dtype::F16, Mask::Causal);
        }
    }
    right(4, [1, 33, 1000, 128], Dtype::Bf16, Mask::Full);
}

/// Eight blocks of 32 queries each see 32, 64, … 256 keys: four of them one tile of 128, four of
/// them two.
#[test]
fn a_block_reads_no_key_that_its_last_query_does_not_see() {
    let stage = stage_tests::load(&Overlap);
    let shape = Shape {
        heads_kv: 1,
        ..Shape::bhsd(1, 4, 256, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let prepared = stage.prepare("overlap-packed-128x128", &problem).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let counted = count(&prepared, &Staged::new(&inputs, Layout::Packed)).unwrap();
    let tile = 128 * 64 * Dtype::F16.bytes() as u64;
    assert_eq!(counted.counters.tma_read_bytes, 2 * 12 * tile);
}
