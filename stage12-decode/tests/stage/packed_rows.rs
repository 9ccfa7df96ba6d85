//! Rows of a tile are the queries of all heads of a group: which row is which query's and head's,
//! and which keys it sees.

use common::problem::{Dtype, Mask};
use stage12_decode::Decode;

fn right(group: usize, extents: [usize; 4], dtype: Dtype, mask: Mask) {
    stage_tests::packed_rows(&Decode, "decode", group, extents, dtype, mask);
}

#[test]
fn a_far_row_has_the_log_sum_exp_of_its_own_heads_scale() {
    stage_tests::packed_far_rows(&Decode, "decode");
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
