//! In the family `overlap-packed` rows of a block are the queries of all heads of a group: which row is which query's and head's, and
//! which keys it sees.

use common::problem::{Dtype, Mask};
use stage8_overlap::Overlap;

fn right(group: usize, extents: [usize; 4], dtype: Dtype, mask: Mask) {
    stage_tests::packed_rows(&Overlap, "overlap-packed", group, extents, dtype, mask);
}

#[test]
fn a_far_row_has_the_log_sum_exp_of_its_own_heads_scale() {
    stage_tests::packed_far_rows(&Overlap, "overlap-packed");
}

/// 195 rows: warpgroups and blocks end within a query, and the last of these is ragged.
#[test]
fn a_query_may_lie_in_two_blocks() {
    for mask in Mask::ALL {
        right(3, [2, 65, 203, 128], Dtype::E4m3, mask);
        right(3, [2, 65, 203, 64], Dtype::Bf16, mask);
    }
}

/// 320 rows, of which the first 280 see no key: five groups of 64, so that a block of two has one alone.
#[test]
fn the_first_queries_may_see_no_key() {
    right(8, [1, 40, 5, 64], Dtype::E4m3, Mask::Causal);
    right(8, [1, 40, 5, 128], Dtype::F16, Mask::Causal);
}

#[test]
fn a_group_may_be_larger_than_a_block() {
    right(142, [1, 2, 130, 128], Dtype::F16, Mask::Causal);
}

/// Over more tiles than the ring has. Of 132 rows the first and the 64th, of queries 0 and 16, see whole tiles of 128 keys, one key less
/// or one more.
#[test]
fn rows_of_a_group_see_many_keys() {
    for whole in [7 * 128 + 16, 7 * 128 + 32] {
        for seq_kv in whole - 1..=whole + 1 {
            right(4, [1, 33, seq_kv, 64], Dtype::F16, Mask::Causal);
        }
    }
    right(4, [1, 33, 1000, 128], Dtype::Bf16, Mask::Full);
}
