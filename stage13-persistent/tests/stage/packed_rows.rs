//! In the family `packed` a tile has rows of several query heads, 16 for each warp: which row is which query's and head's, and
//! which keys it sees.

use common::problem::{Dtype, Mask, Problem, Shape};
use stage13_persistent::Persistent;

fn right(group: usize, extents: [usize; 4], dtype: Dtype, mask: Mask) {
    stage_tests::packed_rows(&Persistent, "packed", group, extents, dtype, mask);
}

/// A tile has as many heads as the largest power of two that divides the group, and no more than warps.
#[test]
fn a_tile_has_rows_of_as_many_heads_as_divide_the_group() {
    let stage = stage_tests::load(&Persistent);
    for (group, heads, tiles) in [
        (1, 1, 3),
        (2, 2, 5),
        (4, 4, 10),
        (6, 2, 5),
        (7, 1, 3),
        (16, 8, 19),
    ] {
        let shape = Shape {
            heads_kv: 2,
            ..Shape::bhsd(3, 2 * group, 300, 128)
        };
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let grid = stage.prepare("packed-128x128", &problem).unwrap().grid;
        assert_eq!(
            grid,
            [tiles, 2 * group as u32 / heads, 3],
            "a group of {group}"
        );
    }
}

#[test]
fn rows_are_right_where_items_meet() {
    for (group, extents, dtype, masks) in [
        // A group of one is a head.
        (1, [2, 5, 67, 64], Dtype::F16, &[Mask::Causal][..]),
        // 65 queries of three heads one by one, and of two at a time: items end within a warp's rows.
        (3, [2, 65, 203, 128], Dtype::F16, &Mask::ALL),
        (6, [1, 65, 203, 64], Dtype::Bf16, &Mask::ALL),
        // The first 35 queries see no key.
        (8, [1, 40, 5, 64], Dtype::Bf16, &[Mask::Causal]),
        (8, [1, 40, 5, 128], Dtype::F16, &[Mask::Causal]),
        // Groups that are larger than a tile.
        (72, [1, 2, 130, 128], Dtype::F16, &[Mask::Causal]),
    ] {
        for &mask in masks {
            right(group, extents, dtype, mask);
        }
    }
}

/// Over several tiles of keys, whose exponentials are under earlier maxima.
#[test]
fn rows_of_a_group_see_many_keys() {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        right(4, [2, 33, 1000, 64], dtype, Mask::Causal);
        right(4, [1, 33, 1000, 128], dtype, Mask::Full);
    }
}
