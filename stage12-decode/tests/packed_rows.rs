//! Rows of a tile are the queries of all heads of a group: which row is which query's and head's, and which keys it sees.

use common::check::{Target, check, failures};
use common::inputs::Family;
use common::problem::{Dtype, Mask, Problem, Shape};
use emulator::Schedule;
use stage12_decode::Decode;

/// Judged by the gates: C8 has the log-sum-exps, which every second launch is asked for.
fn right(group: usize, extents: [usize; 4], dtype: Dtype, mask: Mask) {
    let [heads_kv, seq_q, seq_kv, head_dim] = extents;
    let shape = Shape {
        batch: 2,
        heads_q: group * heads_kv,
        heads_kv,
        seq_q,
        seq_kv,
        head_dim,
    };
    let problem = Problem::new(shape, dtype, mask).unwrap();
    let family = match dtype {
        Dtype::E4m3 => Family::RandomScales,
        _ => Family::Normal,
    };
    let stage = stage_tests::load(&Decode);
    for variant in stage.variants() {
        let target = Target::Emulated {
            schedules: &[Schedule::InOrder, Schedule::Reversed],
            traced: &[],
        };
        let failed = failures(check(&stage, variant, &problem, family, target));
        assert_eq!(failed, [], "{variant} {shape} {dtype} {mask}");
    }
}

#[test]
fn a_group_of_one_is_a_head() {
    right(1, [2, 5, 67, 64], Dtype::F16, Mask::Causal);
}

/// 69 rows: the first tile ends within a query.
#[test]
fn a_query_may_lie_in_two_tiles() {
    right(3, [2, 23, 203, 128], Dtype::E4m3, Mask::Causal);
}

/// 72 rows, of which the first 32 see no key.
#[test]
fn the_first_queries_may_see_no_key() {
    right(8, [1, 9, 5, 64], Dtype::Bf16, Mask::Causal);
}

#[test]
fn a_group_may_be_larger_than_a_tile() {
    right(71, [1, 2, 130, 128], Dtype::F16, Mask::Full);
}

/// One query over two tiles for each part of the largest cluster, and one key more.
#[test]
fn one_query_has_a_row_for_each_head() {
    right(8, [1, 1, 4097, 128], Dtype::E4m3, Mask::Causal);
    right(8, [1, 1, 4097, 128], Dtype::Bf16, Mask::Causal);
}
