//! Who takes what in stage 13: its schedule alone, for as many blocks as a GPU has, which its kernel
//! would take hours for in the emulator.

use crate::launch::launch;

/// The SMs of an H100.
const BLOCKS: usize = 132;
/// The queries of an item.
const BLOCK_M: usize = 256;

/// Returns the tiles of keys of each block under the causal mask, once each item was taken once.
fn key_tiles([batch, heads, queries, keys]: [usize; 4]) -> Vec<i32> {
    let items = batch * heads * (queries / BLOCK_M);
    let text = format!("schedule<<<{BLOCKS}, 1, 0>>>({batch}, {heads}, {queries}, {keys})");
    let mut values: Vec<i32> = launch(&text).same(BLOCKS + items);
    let taken = values.split_off(BLOCKS);
    assert_eq!(taken, vec![1; items]);
    values
}

/// Returns the work of the busiest block over the mean.
fn imbalance(key_tiles: &[i32]) -> f64 {
    let mean = f64::from(key_tiles.iter().sum::<i32>()) / key_tiles.len() as f64;
    f64::from(*key_tiles.iter().max().unwrap()) / mean
}

/// 64 heads in two sections: past their end, rounds of both would leave 1.20.
#[test]
fn blocks_are_equal_where_a_section_ends_within_a_round() {
    assert!(imbalance(&key_tiles([4, 16, 4096, 4096])) < 1.01);
}

/// Sections of 8 of 16 heads: past their end, rounds of both would leave 1.23.
#[test]
fn blocks_are_equal_over_long_sequences() {
    assert!(imbalance(&key_tiles([1, 16, 16_384, 16_384])) < 1.01);
}

/// Four heads have K and V of 32 MB, and 140 items, hardly more than blocks: in sections of their own
/// the same blocks would have the longest of each, and 1.21 times the mean.
#[test]
fn a_section_has_two_items_for_each_block() {
    assert!(imbalance(&key_tiles([1, 16, 8960, 32_768])) < 1.16);
}

#[test]
fn items_are_taken_once_where_the_last_section_has_fewer_heads() {
    key_tiles([1, 19, 16_384, 16_384]);
    key_tiles([3, 1, 512, 512]);
}
