//! The sequences of a problem as it is served: their lengths, and where their rows, pages and sinks
//! lie. All are drawn from the seed of the shape's [`Serving`](crate::serving::Serving).

use crate::problem::{Mask, Problem, Shape};
use crate::serving::{Lengths, Spread, Window};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::sync::Arc;

/// The pages that belong to no sequence.
const SPARE_PAGES: usize = 2;
/// The bounds between which sinks are drawn.
const SINKS: (f32, f32) = (-2.0, 4.0);
/// The distance between them: bf16, in which libraries take them, has all of them.
const SINK_STEP: f32 = 1.0 / 64.0;

/// The numbers of queries and keys of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub queries: usize,
    pub keys: usize,
}

impl Shape {
    /// Returns the lengths of its sequences.
    pub fn sequences(&self) -> Vec<Sequence> {
        let whole = Sequence {
            queries: self.seq_q,
            keys: self.seq_kv,
        };
        let draw = match self.serving.lengths {
            Lengths::Equal => return vec![whole; self.batch],
            Lengths::Packed(draw) | Lengths::Used(draw) => draw,
        };
        let mut random = ChaCha8Rng::seed_from_u64(draw.seed.into());
        let mut sequences = Vec::with_capacity(self.batch);
        for index in 0..self.batch {
            let keys = draw.length(&mut random, index, self.seq_kv);
            let drawn_queries = draw.length(&mut random, index, self.seq_q);
            let queries = match self.serving.lengths {
                Lengths::Used(_) => self.seq_q,
                _ if draw.spread == Spread::Mixed && index % 2 == 1 => 1,
                _ if self.seq_q == self.seq_kv => keys,
                _ => drawn_queries,
            };
            sequences.push(Sequence { queries, keys });
        }
        sequences
    }
}

impl Problem {
    pub fn is_dense(&self) -> bool {
        self.shape.is_dense()
    }

    /// Returns the keys of a sequence that its query `row` sees.
    pub fn visible(&self, sequence: Sequence, row: usize) -> Range<usize> {
        let Sequence { queries, keys } = sequence;
        let Window { left, right } = self.shape.serving.window;
        let mask_end = match self.mask {
            Mask::Full => keys,
            Mask::Causal => (row + 1 + keys).saturating_sub(queries),
        };
        let window_end = right.map_or(keys, |after| {
            (row + 1 + keys + after as usize).saturating_sub(queries)
        });
        let end = mask_end.min(window_end).min(keys);
        let start = left.map_or(0, |before| {
            (row + keys).saturating_sub(queries + before as usize)
        });
        start.min(end)..end
    }

    /// Returns [`Problem::scores`] where sequences differ.
    pub(crate) fn served_scores(&self) -> u64 {
        let mut scores = 0u64;
        for sequence in self.shape.sequences() {
            for row in 0..sequence.queries {
                scores = scores.saturating_add(self.visible(sequence, row).len() as u64);
            }
        }
        scores.saturating_mul(self.shape.heads_q as u64)
    }

    /// Returns [`Problem::input_bytes`] where sequences differ: every query, and the keys that some
    /// query sees.
    pub(crate) fn served_input_bytes(&self) -> u64 {
        let mut keys = 0;
        for sequence in self.shape.sequences() {
            if let Some(last) = sequence.queries.checked_sub(1) {
                let first_key = self.visible(sequence, 0).start;
                keys += self.visible(sequence, last).end.saturating_sub(first_key);
            }
        }
        let q_row = self.shape.head_dim * self.dtype.bytes();
        let kv_row = self.shape.head_dim * self.kv_dtype().bytes();
        (self.query_rows() * q_row + 2 * keys * self.shape.heads_kv * kv_row) as u64
    }

    /// Returns the number of rows of Q and O over all heads and batches.
    pub fn query_rows(&self) -> usize {
        let queries: usize = if self.is_dense() {
            self.shape.batch * self.shape.seq_q
        } else {
            let sequences = self.shape.sequences();
            sequences.iter().map(|sequence| sequence.queries).sum()
        };
        queries * self.shape.heads_q
    }

    /// Returns the numbers of the rows of Q and O that exist, `(b * heads_q + h) * seq_q + s`,
    /// ascending.
    pub fn existing_rows(&self) -> Vec<usize> {
        let Shape { heads_q, seq_q, .. } = self.shape;
        existing(&self.shape.sequences(), heads_q, seq_q, |sequence| {
            sequence.queries
        })
    }
}

/// Returns the numbers of the rows that exist of `heads` heads with room for `rows` each.
fn existing(
    sequences: &[Sequence],
    heads: usize,
    rows: usize,
    count: impl Fn(&Sequence) -> usize,
) -> Vec<usize> {
    let mut numbers = Vec::new();
    for (batch, sequence) in sequences.iter().enumerate() {
        for head in 0..heads {
            let first = (batch * heads + head) * rows;
            numbers.extend(first..first + count(sequence));
        }
    }
    numbers
}

/// The place of a tensor's rows in a tensor of other extents.
#[derive(Clone, Debug, PartialEq)]
pub struct Relocation {
    /// `[batch, heads, rows, head_dim]` of the tensor in memory.
    pub extents: [usize; 4],
    /// The row in memory of each row of the problem, in its order; `None` where there is no such
    /// row.
    pub rows: Arc<[Option<usize>]>,
}

impl Relocation {
    /// Returns the same places in a tensor of so many columns.
    pub fn of_columns(&self, columns: usize) -> Self {
        let [batch, heads, rows, _] = self.extents;
        Self {
            extents: [batch, heads, rows, columns],
            rows: Arc::clone(&self.rows),
        }
    }

    pub fn rows_in_memory(&self) -> usize {
        self.extents[..3].iter().product()
    }
}

/// The arrays that kernels read beside the tensors, and the places of the tensors' rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// `[batch + 1]`; empty where sequences are not packed.
    pub q_starts: Vec<i32>,
    /// `[batch + 1]`; empty where K and V are not packed.
    pub kv_starts: Vec<i32>,
    /// `[batch]`; empty where all keys are used, or lengths are those of `kv_starts`.
    pub kv_used: Vec<i32>,
    /// `[batch, pages_of_sequence]`; empty without pages. Entries behind the last key are
    /// [`POISON_PAGE`].
    pub pages: Vec<i32>,
    pub pages_of_sequence: usize,
    /// `[heads_q]`; empty without sinks.
    pub sinks: Vec<f32>,
    pub q: Option<Relocation>,
    pub kv: Option<Relocation>,
}

/// An entry of a page table that no kernel may follow.
pub const POISON_PAGE: i32 = 0x5a5a_5a5a;

impl Tables {
    /// Makes the arrays of a problem; `None` for one of dense tensors.
    pub fn new(problem: &Problem) -> Option<Self> {
        if problem.is_dense() {
            return None;
        }
        let shape = &problem.shape;
        let sequences = shape.sequences();
        let is_packed = matches!(shape.serving.lengths, Lengths::Packed(_));
        let is_paged = shape.serving.page_rows.is_some();
        let is_equal = shape.serving.lengths == Lengths::Equal;
        let paging = Paging::new(shape, &sequences);
        let key_counts = || sequences.iter().map(|sequence| sequence.keys);
        Some(Self {
            q_starts: if is_packed {
                starts(sequences.iter().map(|sequence| sequence.queries))
            } else {
                Vec::new()
            },
            kv_starts: if is_packed && !is_paged {
                starts(key_counts())
            } else {
                Vec::new()
            },
            kv_used: if is_equal || is_packed && !is_paged {
                Vec::new()
            } else {
                key_counts().map(|keys| keys as i32).collect()
            },
            q: is_packed
                .then(|| packed(&sequences, shape.q_extents(), |sequence| sequence.queries)),
            kv: match &paging {
                Some(pages) => Some(pages.relocation(shape, &sequences)),
                None if is_packed => Some(packed(&sequences, shape.kv_extents(), |sequence| {
                    sequence.keys
                })),
                None if is_equal => None,
                None => Some(padded(&sequences, shape.kv_extents())),
            },
            pages_of_sequence: paging.as_ref().map_or(0, |pages| pages.of_sequence),
            pages: paging.map_or_else(Vec::new, |pages| pages.table),
            sinks: sinks(shape),
        })
    }
}

/// Returns the first row of each of these lengths, and the end of the last.
fn starts(lengths: impl Iterator<Item = usize>) -> Vec<i32> {
    let mut starts = vec![0];
    let mut end = 0;
    for length in lengths {
        end += length as i32;
        starts.push(end);
    }
    starts
}

/// Draws the sinks of a shape; none if it has none.
pub fn sinks(shape: &Shape) -> Vec<f32> {
    if !shape.serving.sinks {
        return Vec::new();
    }
    let mut random = ChaCha8Rng::seed_from_u64(shape.heads_q as u64);
    let (least, most) = SINKS;
    let steps = ((most - least) / SINK_STEP) as u64;
    let draw = |_| least + SINK_STEP * (random.next_u64() % steps) as f32;
    (0..shape.heads_q).map(draw).collect()
}

/// Places rows one sequence after the other, each head with the rows of all of them.
fn packed(
    sequences: &[Sequence],
    [_, heads, room, dim]: [usize; 4],
    count: impl Fn(&Sequence) -> usize,
) -> Relocation {
    let total: usize = sequences.iter().map(&count).sum();
    let mut rows = Vec::with_capacity(sequences.len() * heads * room);
    let mut start = 0;
    for sequence in sequences {
        for head in 0..heads {
            let places = (0..room).map(|row| head * total + start + row);
            let existing = places.take(count(sequence)).map(Some);
            rows.extend(existing.chain(std::iter::repeat_n(None, room - count(sequence))));
        }
        start += count(sequence);
    }
    Relocation {
        // A tensor without a row is none.
        extents: [1, heads, total.max(1), dim],
        rows: rows.into(),
    }
}

/// Leaves rows where they are, but for those behind the keys of a sequence, which do not exist.
fn padded(sequences: &[Sequence], extents: [usize; 4]) -> Relocation {
    let [_, heads, room, _] = extents;
    let mut rows = vec![None; sequences.len() * heads * room];
    for row in existing(sequences, heads, room, |sequence| sequence.keys) {
        rows[row] = Some(row);
    }
    Relocation {
        extents,
        rows: rows.into(),
    }
}

/// A page table, whose pages lie in any order.
struct Paging {
    page_rows: usize,
    of_sequence: usize,
    count: usize,
    table: Vec<i32>,
}

impl Paging {
    fn new(shape: &Shape, sequences: &[Sequence]) -> Option<Self> {
        let page_rows = usize::from(shape.serving.page_rows?);
        let pages_of = |sequence: &Sequence| sequence.keys.div_ceil(page_rows);
        let count = sequences.iter().map(pages_of).sum::<usize>() + SPARE_PAGES;
        let mut order: Vec<i32> = (0..count as i32).collect();
        let mut random = ChaCha8Rng::seed_from_u64(count as u64);
        for last in (1..count).rev() {
            order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
        }
        let mut free = order.into_iter();
        let of_sequence = shape.seq_kv.div_ceil(page_rows);
        let mut table = Vec::with_capacity(sequences.len() * of_sequence);
        for sequence in sequences {
            table.extend(free.by_ref().take(pages_of(sequence)));
            table.resize(table.len() + of_sequence - pages_of(sequence), POISON_PAGE);
        }
        Some(Self {
            page_rows,
            of_sequence,
            count,
            table,
        })
    }

    fn relocation(&self, shape: &Shape, sequences: &[Sequence]) -> Relocation {
        let [_, heads, room, dim] = shape.kv_extents();
        let mut rows = vec![None; sequences.len() * heads * room];
        for row in existing(sequences, heads, room, |sequence| sequence.keys) {
            let (batch, head, key) = (row / (heads * room), row / room % heads, row % room);
            let page = self.table[batch * self.of_sequence + key / self.page_rows] as usize;
            rows[row] = Some((page * heads + head) * self.page_rows + key % self.page_rows);
        }
        Relocation {
            extents: [self.count, heads, self.page_rows, dim],
            rows: rows.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Dtype, parse_shape};

    fn problem(text: &str, mask: Mask) -> Problem {
        Problem::new(parse_shape(text).unwrap(), Dtype::F16, mask).unwrap()
    }

    #[test]
    fn lengths_reach_the_longest_none_and_one() {
        let sequences = parse_shape("6x2x100x64+packed=even:0:1")
            .unwrap()
            .sequences();
        assert_eq!([0, 1, 2].map(|index| sequences[index].keys), [100, 0, 1]);
        assert!(sequences.iter().all(|each| each.queries == each.keys));
    }

    #[test]
    fn every_second_mixed_sequence_has_one_query() {
        let shape = parse_shape("4x2x64:300x64+packed=mixed:5:1").unwrap();
        let queries: Vec<usize> = shape.sequences().iter().map(|each| each.queries).collect();
        assert_eq!([queries[0], queries[1], queries[3]], [64, 1, 1]);
    }

    #[test]
    fn a_window_counts_from_a_querys_own_key() {
        let problem = problem("1x1x4:10x64+window=2:1", Mask::Full);
        let sequence = Sequence {
            queries: 4,
            keys: 10,
        };
        let seen = [0, 3].map(|row| problem.visible(sequence, row));
        assert_eq!(seen, [4..8, 7..10]);
    }

    #[test]
    fn a_causal_window_ends_at_the_querys_own_key() {
        let problem = problem("1x1x4:10x64+window=2:*", Mask::Causal);
        let sequence = Sequence {
            queries: 4,
            keys: 10,
        };
        assert_eq!(problem.visible(sequence, 1), 5..8);
    }

    #[test]
    fn a_row_before_the_first_key_sees_none() {
        let problem = problem("1x1x5:2x64+window=1:0", Mask::Full);
        let sequence = Sequence {
            queries: 5,
            keys: 2,
        };
        let seen = [0, 2, 3, 4].map(|row| problem.visible(sequence, row));
        assert_eq!(seen, [0..0, 0..0, 0..1, 0..2]);
    }

    #[test]
    fn pages_belong_to_one_sequence_each() {
        let problem = problem("5x2x33:100x64+packed=even:0:2+page=16", Mask::Full);
        let tables = Tables::new(&problem).unwrap();
        let kv = tables.kv.unwrap();
        let mut places: Vec<usize> = kv.rows.iter().flatten().copied().collect();
        let existing = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), existing);
        let keys: usize = problem.shape.sequences().iter().map(|each| each.keys).sum();
        assert_eq!(existing, 2 * keys);
        assert!(tables.pages.contains(&POISON_PAGE));
        assert_eq!(tables.kv_used.len(), 5);
        assert!(tables.kv_starts.is_empty());
    }

    #[test]
    fn packed_rows_follow_each_other_in_each_head() {
        let problem = problem("3x2x7x64+packed=even:0:2", Mask::Full);
        let tables = Tables::new(&problem).unwrap();
        let total = *tables.q_starts.last().unwrap() as usize;
        let q = tables.q.unwrap();
        assert_eq!(q.extents, [1, 2, total, 64]);
        // Row 0 of head 1 of the third sequence.
        assert_eq!(q.rows[(2 * 2 + 1) * 7], Some(total + 7));
    }
}
