//! Tier T0 of one variant: every case of [`common::tier0`] through the gates.

use common::check::{self, NoOutput, Target, check};
use common::problem::Dtype;
use common::stage::{Kernel, LoadedStage, Unsupported};
use common::tier0::{Case, cases, extremes, others, served};
use emulator::Schedule;
use rayon::prelude::*;

/// Runs every case on `variant` that the device can run, of one that reads a cache with K and V in
/// such. Returns one line per gate that failed or case that did not run; empty means green.
pub(crate) fn failures(stage: &LoadedStage, variant: &str) -> Vec<String> {
    let mut plain = cases();
    if serves(stage, variant) {
        plain.extend(served());
    }
    let plain_untraced = extremes().into_iter().chain(others());
    let cache = stage.cache_of(variant);
    let as_read = |case: Case| case.in_cache(cache);
    let traced: Vec<Case> = plain.into_iter().filter_map(as_read).collect();
    let untraced: Vec<Case> = plain_untraced.filter_map(as_read).collect();
    let traced_failures = traced
        .par_iter()
        .flat_map_iter(|case| failures_on(stage, variant, case, case.schedules));
    let untraced_failures = untraced
        .par_iter()
        .flat_map_iter(|case| failures_on(stage, variant, case, &[]));
    traced_failures.chain(untraced_failures).collect()
}

/// Returns whether a variant takes sequences as they are served.
pub(crate) fn serves(stage: &LoadedStage, variant: &str) -> bool {
    let mut kernels = stage.kernels.iter();
    kernels.any(|kernel| kernel.variant == variant && stage.attention.serves(kernel))
}

/// Returns the [`failures`] on one case, traced under these schedules.
pub(crate) fn failures_on(
    stage: &LoadedStage,
    variant: &str,
    case: &Case,
    traced: &[Schedule],
) -> Vec<String> {
    let Case {
        problem,
        family,
        schedules,
    } = *case;
    let name = format!(
        "{variant} {} {} {} {family}",
        problem.shape, problem.dtype, problem.mask
    );
    let target = Target::Emulated {
        schedules,
        traced,
        suppress: None,
    };
    match check(stage, variant, &problem, family, target) {
        Err(NoOutput::Unsupported(Unsupported::Device { .. })) => vec![],
        Err(NoOutput::Unsupported(Unsupported::Instance { .. }))
            if is_without(stage, variant, problem.dtype) =>
        {
            vec![]
        }
        outcome => check::failures(outcome)
            .into_iter()
            .map(|result| format!("{name}: {} FAIL: {}", result.gate, result.reason))
            .collect(),
    }
}

/// Returns whether `variant` may do without this dtype: one that no variant of its stage has, and
/// BF16 unless it is the default.
pub(crate) fn is_without(stage: &LoadedStage, variant: &str, dtype: Dtype) -> bool {
    let takes = |kernel: &Kernel| kernel.variant == variant && kernel.dtype == dtype;
    let is_optional = dtype == Dtype::Bf16 && variant != stage.info().default_variant;
    !stage.kernels.iter().any(takes) && (is_optional || !stage.takes(dtype))
}
