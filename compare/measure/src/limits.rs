//! What the system lets this process have. Too little is the machine's fault, never a stage's.

pub mod memory;

use self::memory::{Available, System};
use super::machine::processors;
use super::plan::{Mode, PlannedCase};
use anyhow::{Context, ensure};
use common::device::emulated::FAR_APART_BYTES;
use common::problem::Problem;
use results::table::ProblemPlace;
use std::error::Error;
use std::thread;

/// Memory of the smallest run; 0.35 GB were measured.
const LEAST_BYTES: u128 = 1 << 30;

/// Address space for the stacks of a processor's block and for what its thread allocates; 110 MB
/// were measured.
const BYTES_PER_PROCESSOR: usize = 128 << 20;

/// Host memory of a problem, in bytes per element of Q (for Q, output and reference, in both
/// layouts) and per element of K (for K and V). Peak resident sizes of runs on 8x16x4096:1x64 and
/// 8x16x1:4096x64 on the emulator, less that of a tiny run: 36 and 56 with f16, 42 and 49 with
/// E4M3.
const BYTES_PER_ELEMENT: [u128; 2] = [42, 56];

/// Refuses what would end in the middle: a failed allocation aborts the program, and a thread that
/// does not start is a panic.
pub fn check() -> anyhow::Result<()> {
    if let Some(available) = System::here().memory() {
        let remedy = "End other programs, or raise that limit.";
        enough_memory("memory", &available, LEAST_BYTES, remedy)?;
    }
    address_space(0)?;
    threads().context(
        "threads: the system does not start them. Raise `ulimit -u` or the control group's \
         pids.max, or set RAYON_NUM_THREADS=1.",
    )
}

/// Refuses a machine that lacks what a run may want.
pub fn check_runs() -> anyhow::Result<()> {
    check()?;
    address_space(processors())
}

/// Refuses cases whose largest problem does not fit in memory, and traced ones, one at a time, for
/// whose shadow there is no address space.
pub fn check_cases(cases: &[PlannedCase]) -> anyhow::Result<()> {
    let has_traced = cases
        .iter()
        .any(|case| matches!(case.mode, Mode::Traced | Mode::TracedOnce));
    if has_traced {
        address_space(1)?;
    }
    check_problems(cases.iter().map(|case| &case.problem))
}

/// Refuses problems of which the largest does not fit in memory.
pub fn check_problems<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> anyhow::Result<()> {
    fit(problems, System::here().available())
}

fn fit<'a>(
    problems: impl IntoIterator<Item = &'a Problem>,
    available: Option<Available>,
) -> anyhow::Result<()> {
    let largest = problems.into_iter().max_by_key(|problem| bytes(problem));
    let Some(problem) = largest else {
        return Ok(());
    };
    let Some(memory) = available else {
        return Ok(());
    };
    let what = format!("memory for {}", ProblemPlace::of(problem));
    let remedy = "Give a smaller shape, or run on a machine with more.";
    enough_memory(&what, &memory, bytes(problem), remedy)
}

fn enough_memory(
    what: &str,
    available: &Available,
    needed: u128,
    remedy: &str,
) -> anyhow::Result<()> {
    let limit = &available.limit;
    enough(&format!("{what}: {limit}"), available.bytes, needed, remedy)
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

/// Refuses too little address space for so many traced cases at once.
fn address_space(traced: usize) -> anyhow::Result<()> {
    let reserved = BYTES_PER_PROCESSOR * processors() + FAR_APART_BYTES * traced;
    let Some(Available { bytes, limit }) = System::here().address_space() else {
        return Ok(());
    };
    let what = format!("address space: {limit}");
    let remedy = "Raise it: `ulimit -v unlimited; ulimit -d unlimited`.";
    enough(&what, bytes, LEAST_BYTES + reserved as u128, remedy)
}

fn enough(what: &str, available: u128, needed: u128, remedy: &str) -> anyhow::Result<()> {
    let (has, needs) = (size(available), size(needed));
    ensure!(
        available >= needed,
        "{what}: {has} are available, and a run takes up to {needs}. {remedy}"
    );
    Ok(())
}

/// Starts the pool, and one thread more.
fn threads() -> anyhow::Result<()> {
    match rayon::ThreadPoolBuilder::new().build_global() {
        // Without a source it was started before.
        Err(error) if error.source().is_some() => return Err(error.into()),
        _ => {}
    }
    thread::Builder::new().spawn(|| ())?.join().ok();
    Ok(())
}

/// Shows a size: `5.7 GB`.
fn size(bytes: u128) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::problem::{Dtype, Kind, Mask, Shape, of_kind};

    /// Makes this much available memory.
    fn gigabytes(count: u128) -> Option<Available> {
        Some(Available {
            bytes: count * 1_000_000_000,
            limit: "MemAvailable".into(),
        })
    }

    fn problem(shape: Shape) -> Problem {
        Problem::new(shape, Dtype::F16, Mask::Full).unwrap()
    }

    /// Returns a problem of 27 TB.
    fn huge() -> Problem {
        problem(Shape::bhsd(1024, 1024, 4096, 64))
    }

    #[test]
    fn too_little_memory_is_refused_with_the_figures() {
        let error = enough("memory", 300 << 20, LEAST_BYTES, "End them.").unwrap_err();
        assert_eq!(
            error.to_string(),
            "memory: 0.3 GB are available, and a run takes up to 1.1 GB. End them."
        );
        assert!(enough("memory", 4 << 30, LEAST_BYTES, "").is_ok());
    }

    #[test]
    fn a_problem_that_does_not_fit_is_refused_with_the_figures() {
        let error = fit([&huge()], gigabytes(24)).unwrap_err().to_string();
        let figures = "memory for 1024x1024x4096x64 f16 full: MemAvailable: 24.0 GB are available, \
                       and a run takes up to 26938.0 GB.";
        assert!(error.starts_with(figures), "{error}");
    }

    #[test]
    fn where_the_available_memory_is_unknown_nothing_is_refused() {
        assert!(fit([&huge()], None).is_ok());
    }

    #[test]
    fn the_bytes_of_the_largest_problem_do_not_overflow() {
        let largest = problem(Shape::bhsd(65_535, 65_535, 1 << 24, 128));
        assert!(fit([&largest], gigabytes(24)).is_err());
    }

    #[test]
    fn the_small_shapes_fit_in_4_gb() {
        for named in of_kind(Kind::Small) {
            assert!(fit([&problem(named.shape)], gigabytes(4)).is_ok());
        }
    }

    #[test]
    fn the_largest_of_several_problems_must_fit() {
        let small = problem(Shape::bhsd(1, 1, 32, 64));
        assert!(fit([&small], gigabytes(24)).is_ok());
        assert!(fit([&small, &huge()], gigabytes(24)).is_err());
        assert!(fit([&huge(), &small], gigabytes(24)).is_err());
    }
}
