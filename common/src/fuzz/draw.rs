//! Draws cases: every extent, ratio, type, mask, scale, family and placement that a kernel must
//! take, the awkward ones often.

use super::{Case, work};
use crate::image::GAP_ROWS;
use crate::inputs::Family;
use crate::placement::{DIMENSIONS, Order, Placement, STRIDE_ALIGN};
use crate::problem::{Dtype, HEAD_DIMS, Mask, Problem, Shape};
use crate::serving::{Cache, Draw, Lengths, Serving, Spread, Window};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The largest [`work`](super::work) that is drawn: a second or two in the emulator.
pub const MOST_WORK: usize = 1 << 20;

/// The most bytes of one tensor with its guard bands: host memory is copied for every launch.
const MOST_BYTES: usize = 1 << 24;

/// The rows and keys of tiles and boxes.
const TILES: [usize; 9] = [8, 16, 32, 64, 80, 96, 128, 256, 512];

const BATCHES: [usize; 6] = [1, 1, 1, 2, 3, 5];
const HEADS_KV: [usize; 6] = [1, 1, 1, 2, 3, 5];
/// The numbers of query heads of a key head.
const GROUPS: [usize; 9] = [1, 1, 1, 2, 3, 4, 5, 7, 8];
/// The longest sequence, but for what has one head and few queries.
const MOST_ROWS: f64 = 700.0;
const MOST_KEYS: f64 = 2_100.0;
/// The bounds between which softmax scales other than the usual ones are drawn by their logarithms.
const SCALES: (f64, f64) = (0.01, 1.0);
/// The families whose scores at the default scale are as large as f32 holds them to what gates C4,
/// C8 and B1 allow.
const LARGE_LOGITS: [Family; 5] = [
    Family::Large,
    Family::DeepNegative,
    Family::Huge,
    Family::MixedScale,
    Family::Colossal,
];
/// The number of seeds of inputs: a few digits, so that a case is easy to read.
const SEEDS: u64 = 1_000;

/// Draws case `index` of `seed`, of one of `dtypes`; it depends on nothing else.
pub fn draw(seed: u64, index: u64, dtypes: &[Dtype]) -> Case {
    draw_of_sizes(seed, index, dtypes, &HEAD_DIMS, None)
}

/// Draws a case with one of `head_dims`, in E4M3 one that kernels are compiled for, and with K and V
/// in `cache` where Q is not in E4M3.
fn draw_of_sizes(
    seed: u64,
    index: u64,
    dtypes: &[Dtype],
    head_dims: &[usize],
    cache: Option<Cache>,
) -> Case {
    let mut random = Random::new(seed, index);
    let dtype = random.one_of(dtypes);
    let mask = random.one_of(&Mask::ALL);
    let mut shape = random.shape(if dtype == Dtype::E4m3 {
        &HEAD_DIMS
    } else {
        head_dims
    });
    random.shrink_to_most_work(&mut shape);
    if dtype != Dtype::E4m3 {
        shape.serving.cache = cache;
    }
    let family = random.one_of(&Family::for_dtype(dtype));
    let softmax_scale = random.scale(shape.head_dim, family);
    let mut case = Case {
        problem: Problem::with_scale(shape, dtype, mask, softmax_scale)
            .expect("these are extents of problems"),
        family,
        seed: random.below(SEEDS),
        lse: random.is_one_in(2),
        placements: [Placement::PACKED; 4],
    };
    case.placements = random.placements(&case.problem);
    case
}

/// Draws a case of sequences as they are served, three times in four, of any head_dim; of E4M3 one
/// of dense tensors. With a `cache` it draws all of f16 and bf16 with K and V in such.
pub fn draw_served(seed: u64, index: u64, dtypes: &[Dtype], cache: Option<Cache>) -> Case {
    let head_dims = match cache {
        None => &SERVED_HEAD_DIMS[..],
        Some(Cache::E4m3) => &CACHED_HEAD_DIMS,
    };
    let mut case = draw_of_sizes(seed, index, dtypes, head_dims, cache);
    let mut random = Random::new(seed ^ SERVED, index);
    if case.problem.dtype != Dtype::E4m3 && !random.is_one_in(4) {
        case.problem.shape.serving = Serving {
            cache,
            ..random.serving(&case.problem.shape, case.family)
        };
    }
    case
}

/// Sets the numbers of [`draw_served`] apart from those of [`draw`].
const SERVED: u64 = 0x5e7_5e7;
/// The head sizes of served cases: those that are compiled as often as all others.
const SERVED_HEAD_DIMS: [usize; 12] = [64, 128, 64, 128, 64, 128, 8, 40, 72, 80, 96, 120];
/// Those of caches, whose rows are whole units of 16 bytes.
const CACHED_HEAD_DIMS: [usize; 9] = [64, 128, 64, 128, 16, 48, 80, 96, 112];
/// The rows of pages.
const PAGES: [u16; 5] = [16, 32, 64, 128, 256];
/// The bounds of scaled scores.
const CAPS: [u16; 4] = [1, 15, 30, 50];
/// The seeds of lengths.
const LENGTH_SEEDS: u64 = 100;

struct Random(ChaCha8Rng);

impl Random {
    fn new(seed: u64, index: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut random = ChaCha8Rng::from_seed(key);
        random.set_stream(index);
        Self(random)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn is_one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn shape(&mut self, head_dims: &[usize]) -> Shape {
        let heads_kv = self.one_of(&HEADS_KV);
        let seq_kv = self.length(MOST_KEYS);
        let seq_q = match self.below(6) {
            0 | 1 => seq_kv.min(MOST_ROWS as usize),
            2 => 1 + self.below(4) as usize,
            _ => self.length(MOST_ROWS),
        };
        Shape {
            batch: self.one_of(&BATCHES),
            heads_q: heads_kv * self.one_of(&GROUPS),
            heads_kv,
            seq_q,
            seq_kv,
            head_dim: self.one_of(head_dims),
            serving: Serving::DENSE,
        }
    }

    /// Returns 1; few; some tiles, or one row more or less; or any length.
    fn length(&mut self, most: f64) -> usize {
        let length = match self.below(8) {
            0 => 1,
            1 => 2 + self.below(20) as usize,
            2..=4 => {
                let whole = self.one_of(&TILES) * (1 + self.below(3) as usize);
                whole + self.one_of(&[0, 1, 1, 2]) - 1
            }
            _ => most.powf(self.share()) as usize,
        };
        length.clamp(1, most as usize)
    }

    /// Returns lengths, a window, sinks, a cap and pages, each in part of the cases.
    fn serving(&mut self, shape: &Shape, family: Family) -> Serving {
        let lengths_draw = Draw {
            spread: self.one_of(&Spread::ALL),
            least: self.one_of(&[0, 0, 1, 20]),
            seed: self.below(LENGTH_SEEDS) as u8,
        };
        let lengths = match self.below(4) {
            0 => Lengths::Equal,
            1 => Lengths::Used(lengths_draw),
            _ => Lengths::Packed(lengths_draw),
        };
        let window = Window {
            left: self.bound(shape),
            right: self.bound(shape),
        };
        // Scores that are all far beyond a cap are the same, and far below a sink they vanish: f32
        // holds no weight below 2^-126, where outputs in bf16 still have bits.
        let is_large = LARGE_LOGITS.contains(&family);
        let is_capped = self.is_one_in(4) && !is_large;
        let has_sinks = self.is_one_in(3) && !is_large;
        Serving {
            lengths,
            window,
            sinks: has_sinks,
            softcap: is_capped.then(|| self.one_of(&CAPS)),
            page_rows: self.is_one_in(3).then(|| self.one_of(&PAGES)),
            cache: None,
        }
    }

    /// Returns one side of a window: often none, else up to the longer sequence.
    fn bound(&mut self, shape: &Shape) -> Option<u32> {
        if !self.is_one_in(3) {
            return None;
        }
        let longest = shape.seq_q.max(shape.seq_kv) as f64;
        Some(longest.powf(self.share()) as u32 - 1)
    }

    /// Returns a softmax scale. Every other one is the default, which families with
    /// [`LARGE_LOGITS`] do not exceed.
    fn scale(&mut self, head_dim: usize, family: Family) -> f32 {
        let (least, most) = SCALES;
        let default = 1.0 / (head_dim as f32).sqrt();
        let scale = match self.below(8) {
            0..=3 => default,
            // The scale of µP.
            4 => 1.0 / head_dim as f32,
            5 => 1.0,
            // Few digits, which are read back exactly.
            _ => ((least * (most / least).powf(self.share())) as f32 * 1024.0).round() / 1024.0,
        };
        if LARGE_LOGITS.contains(&family) {
            scale.min(default)
        } else {
            scale
        }
    }

    /// Halves batch, heads or the longer length, at random, until the emulator computes it in a
    /// second or two.
    fn shrink_to_most_work(&mut self, shape: &mut Shape) {
        while work(shape) > MOST_WORK {
            match self.below(3) {
                0 => shape.batch = shape.batch.div_ceil(2),
                1 => {
                    let group = shape.heads_q / shape.heads_kv;
                    shape.heads_kv = shape.heads_kv.div_ceil(2);
                    shape.heads_q = shape.heads_kv * group;
                }
                _ if shape.seq_q > shape.seq_kv => shape.seq_q = shape.seq_q.div_ceil(2),
                _ if shape.seq_q < shape.seq_kv => shape.seq_kv = shape.seq_kv.div_ceil(2),
                _ => {
                    shape.seq_q = shape.seq_q.div_ceil(2);
                    shape.seq_kv = shape.seq_q;
                }
            }
        }
    }

    /// Returns placements: all packed, all as PyTorch has them after a transpose, parts of one
    /// tensor, or each drawn on its own.
    fn placements(&mut self, problem: &Problem) -> [Placement; 4] {
        let bshd = Placement {
            order: Order::Bshd,
            ..Placement::PACKED
        };
        let mut placements = match self.below(6) {
            0 => [Placement::PACKED; 4],
            1 => [bshd; 4],
            2 => {
                let [q, k, v] = parts_of_one_tensor(problem);
                [q, k, v, bshd]
            }
            _ => [(); 4].map(|()| self.placement(problem)),
        };
        let q_extents = problem.shape.q_extents();
        let kv_extents = problem.shape.kv_extents();
        let kv_bytes = problem.kv_dtype().bytes();
        let tensors = [
            (q_extents, problem.dtype.bytes()),
            (kv_extents, kv_bytes),
            (kv_extents, kv_bytes),
            (q_extents, 2),
        ];
        for (placement, (extents, element_bytes)) in placements.iter_mut().zip(tensors) {
            if bytes_with_guards(placement, extents, element_bytes) > MOST_BYTES {
                *placement = Placement::PACKED;
            }
        }
        placements
    }

    fn placement(&mut self, problem: &Problem) -> Placement {
        let order = match self.below(4) {
            0 => Order::Bhsd,
            _ => self.one_of(&Order::ALL),
        };
        let mut placement = Placement {
            order,
            gaps: [(); DIMENSIONS].map(|()| self.gap()),
            offset: self.gap(),
        };
        // A gap as tall as the tallest tile, so that one that runs past the last row reads NaN.
        if self.is_one_in(4) {
            placement.order = Order::Bhsd;
            let row = 2 * problem.shape.head_dim + placement.gaps[2];
            placement.gaps[1] = GAP_ROWS * row + STRIDE_ALIGN;
        }
        placement
    }

    /// Returns the bytes of a gap: often none; one unit; up to some rows.
    fn gap(&mut self) -> usize {
        let units = match self.below(4) {
            0 | 1 => 0,
            2 => 1 + self.below(8),
            _ => 1 + self.below(40),
        };
        units as usize * STRIDE_ALIGN
    }
}

/// Returns the placements of Q, K and V in one tensor of `[batch, rows, all heads, head_dim]`: each
/// as if all had its elements.
fn parts_of_one_tensor(problem: &Problem) -> [Placement; 3] {
    let Shape {
        heads_q,
        heads_kv,
        head_dim,
        ..
    } = problem.shape;
    let all_heads = heads_q + 2 * heads_kv;
    let part = |dtype: Dtype, heads: usize, heads_before: usize| Placement {
        order: Order::Bshd,
        gaps: [0, 0, (all_heads - heads) * head_dim * dtype.bytes()],
        offset: heads_before * head_dim * dtype.bytes(),
    };
    let kv_dtype = problem.kv_dtype();
    [
        part(problem.dtype, heads_q, 0),
        part(kv_dtype, heads_kv, heads_q),
        part(kv_dtype, heads_kv, heads_q + heads_kv),
    ]
}

/// Returns the bytes that an image of a tensor has.
fn bytes_with_guards(placement: &Placement, extents: [usize; 4], element_bytes: usize) -> usize {
    let [batch, heads, rows, dim] = extents;
    let (outer, row) = ([batch, heads, rows], dim * element_bytes);
    placement.bytes(outer, row) + 2 * GAP_ROWS * placement.strides(outer, row)[2]
}
