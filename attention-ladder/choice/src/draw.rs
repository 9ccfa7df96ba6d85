//! Random problems, on which the library's choice is fitted and judged.

use common::problem::{Dtype, HEAD_DIMS, Mask, Problem, Shape};
use common::serving::Serving;

/// The most operations, where a multiply-add is two: about half a millisecond of a good kernel on
/// an H100, hundreds of times an empty launch.
const MAX_FLOPS: u64 = 250_000_000_000;

/// The most elements of Q, K and V together: the host generates, uploads and judges them.
const MAX_ELEMENTS: usize = 1 << 24;

const HEADS: [usize; 10] = [1, 2, 4, 8, 12, 16, 24, 32, 40, 64];

/// The longest seq_q and seq_kv: lengths are drawn by their logarithms.
const MAX_SEQ: f64 = 16_384.0;

const MAX_BATCH: f64 = 64.0;

/// Steele, Lea and Flood's SplitMix64: the same problems for a seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }

    /// Returns a number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an extent from 1 to `max`, uniform in the logarithm.
    fn extent(&mut self, max: f64) -> usize {
        (max + 1.0).powf(self.share()) as usize
    }

    /// Returns a sequence's length, long ones more often: most short ones take as long as an empty
    /// launch. Every other one is a power of two.
    fn length(&mut self) -> usize {
        let length = (MAX_SEQ + 1.0).powf(self.share().sqrt()) as usize;
        if self.next().is_multiple_of(2) {
            length
        } else {
            1 << (length as f64).log2().round() as u32
        }
    }

    /// Returns a problem. Half of them are in E4M3, whose kernels have times of their own; half
    /// have as many queries as keys, a quarter have few queries.
    fn problem(&mut self) -> Problem {
        let dtype = self.one_of(&[Dtype::F16, Dtype::Bf16, Dtype::E4m3, Dtype::E4m3]);
        let mask = self.one_of(&Mask::ALL);
        let heads_q = self.one_of(&HEADS);
        let group = self.one_of(&[1, 1, 4, 8, heads_q]);
        let seq_kv = self.length();
        let seq_q = match self.next() % 4 {
            0 | 1 => seq_kv,
            2 => self.length(),
            _ => self.extent(16.0),
        };
        let shape = Shape {
            batch: self.extent(MAX_BATCH),
            heads_q,
            heads_kv: if heads_q.is_multiple_of(group) {
                heads_q / group
            } else {
                heads_q
            },
            seq_q,
            seq_kv,
            head_dim: self.one_of(&HEAD_DIMS),
            serving: Serving::DENSE,
        };
        Problem::new(shape, dtype, mask).expect("these are extents of problems")
    }
}

fn fits(problem: &Problem) -> bool {
    let queries: usize = problem.shape.q_extents().iter().product();
    let keys: usize = problem.shape.kv_extents().iter().product();
    queries + 2 * keys <= MAX_ELEMENTS && problem.flops() <= MAX_FLOPS
}

/// Returns `count` different problems, each of which a GPU computes in milliseconds.
pub fn problems(seed: u64, count: usize) -> Vec<Problem> {
    let mut random = Random(seed);
    let mut problems: Vec<Problem> = Vec::new();
    while problems.len() < count {
        let mut problem = random.problem();
        // Less of the batch, not of the lengths.
        while !fits(&problem) && problem.shape.batch > 1 {
            problem.shape.batch /= 2;
        }
        if fits(&problem) && problem.flops() > 0 && !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn random_problems_are_of_every_kind_and_within_their_bounds() {
        let drawn = problems(1, 200);
        assert_eq!(drawn, problems(1, 200));
        assert_eq!(drawn[..50], problems(1, 50));
        assert_ne!(drawn[..50], problems(2, 50));
        let kinds: BTreeSet<_> = drawn
            .iter()
            .map(|problem| (problem.dtype, problem.mask, problem.shape.head_dim))
            .collect();
        assert_eq!(
            kinds.len(),
            Dtype::ALL.len() * Mask::ALL.len() * HEAD_DIMS.len()
        );
        let count = |is_counted: fn(&Shape) -> bool| {
            let shapes = drawn.iter().map(|problem| &problem.shape);
            shapes.filter(|shape| is_counted(shape)).count()
        };
        assert!(count(|shape| shape.heads_kv < shape.heads_q) > 40);
        assert!(count(|shape| shape.seq_q == shape.seq_kv) > 40);
        assert!(count(|shape| shape.seq_q * 16 < shape.seq_kv) > 40);
        assert!(count(|shape| shape.seq_kv > 4096) > 10);
        assert!(count(|shape| shape.batch > 16) > 10);
        assert_eq!(count(|shape| shape.seq_kv > 16_384 || shape.batch > 64), 0);
    }

    #[test]
    fn no_random_problem_is_more_than_a_gpu_computes_in_milliseconds() {
        for problem in problems(1, 1000) {
            assert!(problem.flops() <= MAX_FLOPS, "{problem:?}");
        }
        // Some are drawn that are more.
        let mut random = Random(1);
        let large = (0..1000).filter(|_| random.problem().flops() > MAX_FLOPS);
        assert!(large.count() > 10);
    }
}
