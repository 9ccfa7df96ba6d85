//! Refuses a plan that does not fit in memory, or that the emulator would not finish in a day.

use crate::measure::limits::size;
use crate::measure::plan::{Mode, PlannedCase};
use crate::table::Place;
use anyhow::ensure;
use common::problem::Problem;

/// Host memory of a problem, in bytes per element of Q (for Q, output and reference, in both layouts) and per element of K (for
/// K and V). Peak resident sizes of runs on 8x16x4096:1x64 and 8x16x1:4096x64 on the emulator, less that
/// of a tiny run: 36 and 56 with f16, 42 and 49 with E4M3.
const BYTES_PER_ELEMENT: [u128; 2] = [42, 56];

/// An upper bound of the scores per second of the emulator's plain build on one processor, so that only hopeless runs are refused:
/// 2.5 million were measured with wmma-qk-32x64 and swizzle-32x256-k4 on 1x8x1024x64 f16 (x86-64, 2026).
const SCORES_PER_SECOND: u128 = 4_000_000;

/// Longer runs are refused.
const MOST_SECONDS: u128 = 24 * 3600;

fn emulated(cases: &[PlannedCase]) -> u128 {
    let emulated = cases.iter().filter(|case| case.mode != Mode::Device);
    emulated.map(|case| u128::from(case.problem.scores())).sum()
}

fn bytes(problem: &Problem) -> u128 {
    let elements = |extents: [usize; 4]| {
        extents
            .iter()
            .map(|&extent| extent as u128)
            .product::<u128>()
    };
    let [query, key] = BYTES_PER_ELEMENT;
    elements(problem.shape.q_extents()) * query + elements(problem.shape.kv_extents()) * key
}

/// Refuses `cases` whose largest problem does not fit in `available` bytes, where that is known, or which would keep the
/// emulator busy for more than a day on `processors`.
pub fn check(
    cases: &[PlannedCase],
    processors: usize,
    available: Option<u128>,
) -> anyhow::Result<()> {
    let largest = cases.iter().max_by_key(|case| bytes(&case.problem));
    if let (Some(case), Some(available)) = (largest, available) {
        let needed = bytes(&case.problem);
        ensure!(
            needed <= available,
            "{} takes about {} of memory for tensors and reference, and {} are available here; give smaller shapes with --shapes, or \
             run on a machine with more",
            Place::of(&case.problem),
            size(needed),
            size(available)
        );
    }
    let scores = emulated(cases);
    let seconds = scores / (SCORES_PER_SECOND * processors.max(1) as u128);
    ensure!(
        seconds <= MOST_SECONDS,
        "the emulator would take at least {} hours for {scores} scores on {processors} processors; give smaller shapes with \
         --shapes, fewer --stages or --variants, or run on a GPU",
        seconds / 3600
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::check::Source;
    use common::inputs::Family;
    use common::problem::{Dtype, Mask, Shape};

    fn case(shape: Shape, mode: Mode) -> PlannedCase {
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let source = Source::Seeded {
            family: Family::Normal,
            seed: 0,
        };
        PlannedCase {
            subject: crate::testing::SCALAR.into(),
            source,
            problem,
            mode,
        }
    }

    const GB: u128 = 1_000_000_000;

    #[test]
    fn a_problem_that_does_not_fit_is_refused_with_the_figures() {
        let huge = [case(Shape::bhsd(1024, 1024, 4096, 64), Mode::Device)];
        let error = check(&huge, 2, Some(24 * GB)).unwrap_err().to_string();
        assert!(
            error.starts_with("1024x1024x4096x64 f16 full takes about 26938.0 GB of memory"),
            "{error}"
        );
        assert!(
            error.contains("24.0 GB are available") && error.contains("--shapes"),
            "{error}"
        );
        assert!(
            check(&huge, 2, None).is_ok(),
            "where nobody knows, nobody refuses"
        );
        // The tensors of 65535 x 65535 x 2^24 x 128 are counted, not overflowed.
        let largest = [case(
            Shape::bhsd(65_535, 65_535, 1 << 24, 128),
            Mode::Device,
        )];
        let error = check(&largest, 2, Some(24 * GB)).unwrap_err().to_string();
        assert!(error.contains(" of memory for "), "{error}");
    }

    #[test]
    fn what_the_emulator_cannot_end_is_refused_and_the_ladders_own_shapes_are_not() {
        let long = Shape::bhsd(1, 64, 131_072, 64);
        let error = check(&[case(long, Mode::Plain)], 2, None)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the emulator would take at least 38 hours for 1099511627776 scores"),
            "{error}"
        );
        assert!(check(&[case(long, Mode::Device)], 2, None).is_ok());
        let small = common::problem::of_kind(common::problem::Kind::Small);
        let named = Vec::from_iter(small.map(|named| case(named.shape, Mode::Plain)));
        assert!(check(&named, 1, Some(4 * GB)).is_ok());
    }
}
