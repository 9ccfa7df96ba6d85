//! Draws cases: every extent, ratio, type, mask, scale, family and placement that a kernel must take, the awkward ones often.

use super::{Case, work};
use crate::image::GAP_ROWS;
use crate::inputs::Family;
use crate::placement::{DIMENSIONS, Order, Placement, STRIDE_ALIGN};
use crate::problem::{Dtype, HEAD_DIMS, Mask, Problem, Shape};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The largest [`Case::work`] that is drawn: a second or two in the emulator.
pub const MOST_WORK: usize = 1 << 20;

/// Bytes of one tensor with its guard bands: host memory is copied for every launch.
const MOST_BYTES: usize = 1 << 24;

/// What tiles and boxes have of rows and keys.
const TILES: [usize; 9] = [8, 16, 32, 64, 80, 96, 128, 256, 512];

const BATCHES: [usize; 6] = [1, 1, 1, 2, 3, 5];
const HEADS_KV: [usize; 6] = [1, 1, 1, 2, 3, 5];
/// Query heads of a key head.
const GROUPS: [usize; 9] = [1, 1, 1, 2, 3, 4, 5, 7, 8];
/// The longest sequence, but for what has one head and few queries.
const MOST_ROWS: f64 = 700.0;
const MOST_KEYS: f64 = 2_100.0;
/// Beside the default, between which softmax scales are drawn by their logarithms.
const SCALES: (f64, f64) = (0.01, 1.0);
/// At the default scale their scores are as large as f32 holds them to what gates C4, C8 and B1 allow.
const LARGE_LOGITS: [Family; 5] = [
    Family::Large,
    Family::DeepNegative,
    Family::Huge,
    Family::MixedScale,
    Family::Colossal,
];
/// What it costs to read a case again is a seed of a few digits.
const SEEDS: u64 = 1_000;

/// Case `index` of `seed`, of one of `dtypes`; it depends on nothing else.
pub fn draw(seed: u64, index: u64, dtypes: &[Dtype]) -> Case {
    let mut random = Random::new(seed, index);
    let dtype = random.one_of(dtypes);
    let mask = random.one_of(&Mask::ALL);
    let shape = random.shape();
    let shape = random.fitted(shape);
    let family = random.one_of(&Family::for_dtype(dtype));
    let scale = random.scale(shape.head_dim, family);
    let problem = Problem::with_scale(shape, dtype, mask, scale);
    let mut case = Case {
        problem: problem.expect("these are extents of problems"),
        family,
        seed: random.below(SEEDS),
        lse: random.is_one_in(2),
        placements: [Placement::PACKED; 4],
    };
    case.placements = random.placements(&case.problem);
    case
}

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

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn shape(&mut self) -> Shape {
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
            head_dim: self.one_of(&HEAD_DIMS),
        }
    }

    /// 1; few; some tiles, or one row more or less; or any.
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

    /// Every other one is the default, of families with [`LARGE_LOGITS`] the largest.
    fn scale(&mut self, head_dim: usize, family: Family) -> f32 {
        let (least, most) = SCALES;
        let default = 1.0 / (head_dim as f32).sqrt();
        let scale = match self.below(8) {
            0..=3 => default,
            // Of µP.
            4 => 1.0 / head_dim as f32,
            5 => 1.0,
            // Few digits, which are read back exactly.
            _ => ((least * (most / least).powf(self.share())) as f32 * 1024.0).round() / 1024.0,
        };
        match LARGE_LOGITS.contains(&family) {
            true => scale.min(default),
            false => scale,
        }
    }

    /// Halves batch, heads or the longer length, whichever comes, until the emulator computes it in a second or two.
    fn fitted(&mut self, mut shape: Shape) -> Shape {
        while work(&shape) > MOST_WORK {
            let half = |extent: usize| extent.div_ceil(2);
            match self.below(3) {
                0 => shape.batch = half(shape.batch),
                1 => {
                    let group = shape.heads_q / shape.heads_kv;
                    shape.heads_kv = half(shape.heads_kv);
                    shape.heads_q = shape.heads_kv * group;
                }
                _ if shape.seq_q > shape.seq_kv => shape.seq_q = half(shape.seq_q),
                _ if shape.seq_q < shape.seq_kv => shape.seq_kv = half(shape.seq_kv),
                _ => {
                    shape.seq_q = half(shape.seq_q);
                    shape.seq_kv = shape.seq_q;
                }
            }
        }
        shape
    }

    /// All packed, all as PyTorch has them after a transpose, parts of one tensor, or each as it likes.
    fn placements(&mut self, problem: &Problem) -> [Placement; 4] {
        let bshd = Placement {
            order: Order::Bshd,
            ..Placement::PACKED
        };
        let placements = match self.below(6) {
            0 => [Placement::PACKED; 4],
            1 => [bshd; 4],
            2 => {
                let [q, k, v] = of_one_tensor(problem);
                [q, k, v, bshd]
            }
            _ => [(); 4].map(|()| self.placement(problem)),
        };
        let [q, kv] = [problem.shape.q_extents(), problem.shape.kv_extents()];
        let bytes = problem.dtype.bytes();
        let tensors = [(q, bytes), (kv, bytes), (kv, bytes), (q, 2)];
        let mut fitting = placements;
        for (placement, (extents, element_bytes)) in fitting.iter_mut().zip(tensors) {
            if bytes_with_guards(placement, extents, element_bytes) > MOST_BYTES {
                *placement = Placement::PACKED;
            }
        }
        fitting
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
        // As tall as the tallest tile, so that one that runs past the last row reads NaN.
        if self.is_one_in(4) {
            placement.order = Order::Bhsd;
            let row = 2 * problem.shape.head_dim + placement.gaps[2];
            placement.gaps[1] = GAP_ROWS * row + STRIDE_ALIGN;
        }
        placement
    }

    /// Often none; one unit; up to some rows.
    fn gap(&mut self) -> usize {
        let units = match self.below(4) {
            0 | 1 => 0,
            2 => 1 + self.below(8),
            _ => 1 + self.below(40),
        };
        units as usize * STRIDE_ALIGN
    }
}

/// Q, K and V as they lie in one tensor of `[batch, rows, all heads, head_dim]`.
fn of_one_tensor(problem: &Problem) -> [Placement; 3] {
    let shape = &problem.shape;
    let row = shape.head_dim * problem.dtype.bytes();
    let all = (shape.heads_q + 2 * shape.heads_kv) * row;
    [
        (shape.heads_q, 0),
        (shape.heads_kv, shape.heads_q),
        (shape.heads_kv, shape.heads_q + shape.heads_kv),
    ]
    .map(|(heads, before)| Placement {
        order: Order::Bshd,
        gaps: [0, 0, all - heads * row],
        offset: before * row,
    })
}

/// As an image has them.
fn bytes_with_guards(placement: &Placement, extents: [usize; 4], element_bytes: usize) -> usize {
    let [batch, heads, rows, dim] = extents;
    let (outer, row) = ([batch, heads, rows], dim * element_bytes);
    placement.bytes(outer, row) + 2 * GAP_ROWS * placement.strides(outer, row)[2]
}
