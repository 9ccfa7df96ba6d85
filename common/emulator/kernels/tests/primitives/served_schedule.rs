//! Who takes what in stage 14: its schedule alone, for as many blocks as a GPU has, of sequences of
//! unequal lengths.

use crate::launch::launch;

/// The SMs of an H100.
const BLOCKS: usize = 132;

/// Queries and keys.
type Lengths = (i32, i32);

/// Sequences as a server has them, under the causal mask.
struct Batch {
    sequences: Vec<Lengths>,
    heads_q: usize,
    heads_kv: usize,
    /// Keys before a query's own that it sees; negative: all.
    window_left: i32,
}

impl Batch {
    fn new(sequences: &[Lengths]) -> Self {
        Self {
            sequences: sequences.to_vec(),
            heads_q: 32,
            heads_kv: 8,
            window_left: -1,
        }
    }

    /// Returns the products of each block, once each row of each head was taken once.
    fn products(&self) -> Vec<i32> {
        let Self {
            heads_q, heads_kv, ..
        } = self;
        let count = self.sequences.len();
        let queries = starts(self.sequences.iter().map(|&(queries, _)| queries));
        let keys = starts(self.sequences.iter().map(|&(_, keys)| keys));
        let rows = heads_q * queries[count] as usize;
        let window = self.window_left;
        let numbers = format!("{count}, {heads_q}, {heads_kv}, {window}");
        let mut values: Vec<i32> =
            launch(&format!("served_schedule<<<{BLOCKS}, 32, 0>>>({numbers})"))
                .input(0, &queries)
                .input(1, &keys)
                .same(BLOCKS + rows);
        let taken = values.split_off(BLOCKS);
        assert_eq!(taken, vec![1; rows]);
        values
    }
}

/// Returns where each begins that lies behind the others, and where the last ends.
fn starts(lengths: impl Iterator<Item = i32>) -> Vec<i32> {
    let mut starts = vec![0];
    for length in lengths {
        starts.push(starts[starts.len() - 1] + length);
    }
    starts
}

/// Returns the work of the busiest block over the mean.
fn imbalance(products: &[i32]) -> f64 {
    let mean = f64::from(products.iter().sum::<i32>()) / products.len() as f64;
    f64::from(*products.iter().max().unwrap()) / mean
}

/// Chunks of prompts, whose last tiles of rows are partial, beside sequences that decode.
fn chunks_and_decode() -> Vec<Lengths> {
    let mut sequences = Vec::new();
    for index in 0..16 {
        sequences.push((64 + index * 397 % 449, 512 + index * 1543 % 3585));
        sequences.push((1, 64 + index * 2539 % 4033));
    }
    sequences
}

/// By their tiles of keys alone, tiles with rows for one warpgroup would stand among those for two,
/// and the busiest block would have 1.08 times the mean.
#[test]
fn blocks_are_equal_where_chunks_of_prompts_lie_beside_sequences_that_decode() {
    let products = Batch::new(&chunks_and_decode()).products();
    assert!(imbalance(&products) < 1.03, "{}", imbalance(&products));
}

/// Tiles of 32 queries of four heads each: tiles of 128 queries of one head would take a third more
/// products.
#[test]
fn tiles_have_rows_of_all_heads_that_read_the_same_keys() {
    let products = Batch::new(&[(200, 200); 8]).products();
    // Tiles that end at queries 32 to 128 see one tile of keys, those to 200 two, the last with
    // rows for one warpgroup.
    let of_key_head = 2 * (4 + 2 * 2) + 2;
    assert_eq!(products.iter().sum::<i32>(), 8 * 8 * of_key_head);
}

#[test]
fn rows_are_taken_once_where_sequences_are_empty_or_short() {
    Batch::new(&[
        (0, 0),
        (1, 1),
        (0, 70),
        (5, 300),
        (3, 0),
        (129, 129),
        (16, 16),
    ])
    .products();
}

#[test]
fn rows_are_taken_once_of_more_sequences_than_lanes() {
    let sequences: Vec<Lengths> = (0..70).map(|index| (index * 7 % 90, 100 + index)).collect();
    Batch::new(&sequences).products();
}

#[test]
fn rows_are_taken_once_under_a_window() {
    Batch {
        window_left: 127,
        ..Batch::new(&[(700, 900), (33, 1000), (1, 600), (480, 480)])
    }
    .products();
}

/// Neither a group of three heads nor a single one makes a power of two.
#[test]
fn rows_are_taken_once_of_groups_of_any_size() {
    for (heads_q, heads_kv) in [(6, 2), (3, 3), (12, 2), (16, 1)] {
        Batch {
            heads_q,
            heads_kv,
            ..Batch::new(&[(300, 300), (40, 260), (1, 513)])
        }
        .products();
    }
}
