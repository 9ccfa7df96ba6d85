//! The tests that every stage runs: `cargo test -p stage0-scalar`. A stage's `tests/stage.rs` is
//! one line and the modules of its own tests (in `tests/stage/`), so that a stage has one test
//! program; the snapshots beside it are the stage's own:
//!
//! ```text
//! stage_tests::tests!(stage0_scalar::Scalar);
//! ```

#![forbid(unsafe_code)]

mod counters;
mod explained;
mod far;
mod found;
mod late;
mod packed;
mod resources;
mod scale;
mod suppression;
mod tier0;
mod warpgroups;

pub use counters::counters;
pub use explained::explained;
pub use far::{far_log_sum_exps, far_maxima};
pub use found::found_case;
pub use insta;
pub use late::late_warps;
pub use packed::{packed_blocks, packed_far_rows, packed_rows};
pub use resources::resources;
pub use scale::largest_scale;
pub use suppression::synchronisation;
pub use warpgroups::{
    groups_of_heads, lazy_maxima, rows_of_blocks, shared_registers, work_of_blocks,
};

use common::image::GAP_ROWS;
use common::limits::DeviceLimits;
use common::resources::ARCHITECTURES;
use common::stage::{Attention, LoadedStage};
use std::collections::BTreeSet;

/// The text that a test compares with its snapshot, unless the snapshot was made with another
/// compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Snapshot {
    Text(String),
    /// The reason why it cannot be compared here.
    NotHere(String),
}

/// Declares the tests of a stage, given its unit struct. They and their snapshots belong to the
/// crate that calls this.
#[macro_export]
macro_rules! tests {
    ($stage:path) => {
        #[test]
        fn every_variant_is_green_on_tier_0() {
            $crate::tier_0(&$stage);
        }

        #[test]
        fn a_warp_that_comes_late_is_waited_for() {
            $crate::late_warps(&$stage);
        }

        #[test]
        fn every_synchronisation_site_is_needed_or_listed() {
            $crate::synchronisation(&$stage);
        }

        #[test]
        fn every_device_has_a_default_and_claimed_families_share_a_preset() {
            $crate::devices(&$stage);
        }

        #[test]
        fn resources_are_within_their_caps_and_as_recorded() {
            $crate::assert_recorded!($crate::resources(&$stage));
        }

        #[test]
        fn nothing_of_a_right_row_leaves_what_its_precision_allows() {
            $crate::explained(&$stage);
        }

        #[test]
        fn far_maxima_are_subtracted_exactly() {
            $crate::far_maxima(&$stage);
        }

        #[test]
        fn far_log_sum_exps_are_those_of_the_scores() {
            $crate::far_log_sum_exps(&$stage);
        }

        #[test]
        fn counters_are_as_recorded() {
            $crate::assert_recorded!($crate::counters(&$stage));
        }
    };
}

/// Compares a [`Snapshot`] with the one of the crate and test that call this.
#[macro_export]
macro_rules! assert_recorded {
    ($snapshot:expr) => {
        match $snapshot {
            $crate::Snapshot::Text(text) => $crate::insta::assert_snapshot!(text),
            $crate::Snapshot::NotHere(reason) => $crate::not_checked(&reason),
        }
    };
}

/// Prints why a test has nothing to check here. With CI set it fails instead.
pub fn not_checked(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "not checked: {reason}");
    println!("not checked: {reason}");
}

/// Fails unless every variant is green on every case of tier T0: gates C1 to C6, C8 where it writes
/// log-sum-exps, and H1; and unless no tile is taller than what lies between the heads of the
/// tensors that are checked.
pub fn tier_0(attention: &'static dyn Attention) {
    let stage = load(attention);
    for kernel in &stage.kernels {
        let tallest = kernel.block_m.max(kernel.block_n);
        assert!(
            tallest <= GAP_ROWS,
            "{}: a tile of {tallest} rows may reach the next head, which masking would hide: see \
             image::GAP_ROWS",
            kernel.variant
        );
    }
    let mut failures = Vec::new();
    for variant in stage.variants() {
        failures.extend(tier0::failures(&stage, variant));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Fails unless every known device can run the stage's default there for every dtype and head size,
/// and of two families that a claim compares one preset that both have. A device without the
/// stage's instructions runs nothing of it.
pub fn devices(attention: &'static dyn Attention) {
    let mut stage = load(attention);
    let info = attention.info();
    for (arch, _) in ARCHITECTURES {
        let device: DeviceLimits = arch.parse().expect("it is in the table");
        stage.device = Some(device);
        let only = attention.artifacts().architectures;
        if !only.is_empty() && !only.iter().any(|name| device.is(name)) {
            let mut kernels = stage.kernels.iter();
            assert!(
                kernels.all(|kernel| stage.refuse(kernel).is_err()),
                "{arch} has not the instructions"
            );
            continue;
        }
        assert!(
            runs(&stage, stage.default_variant()),
            "{arch}: the default {} does not fit",
            stage.default_variant()
        );
        for claim in info.claims {
            let Some(base) = claim.relation.base() else {
                continue;
            };
            // A claim may also name variants; then it compares those.
            let variants = stage.variants();
            if base.stage != info.id
                || variants.contains(&claim.family)
                || variants.contains(&base.family)
            {
                continue;
            }
            assert!(
                !presets(&stage, claim.family).is_disjoint(&presets(&stage, base.family)),
                "{arch}: no preset of both {} and {} fits, which a claim compares",
                claim.family,
                base.family
            );
        }
    }
}

/// Returns whether the device can run all kernels of a variant.
fn runs(stage: &LoadedStage, variant: &str) -> bool {
    stage
        .kernels
        .iter()
        .filter(|kernel| kernel.variant == variant)
        .all(|kernel| stage.refuse(kernel).is_ok())
}

/// Returns the presets of a family that the device can run, each as the end of a variant's name.
fn presets<'a>(stage: &'a LoadedStage, family: &str) -> BTreeSet<&'a str> {
    let mut presets = BTreeSet::new();
    for kernel in &stage.kernels {
        if kernel.family == family && runs(stage, &kernel.variant) {
            presets.insert(kernel.variant.trim_start_matches(family));
        }
    }
    presets
}

/// Loads the stage as it is built, limited to the device that the environment asks for.
pub fn load(attention: &'static dyn Attention) -> LoadedStage {
    let mut stage = LoadedStage::load(attention).unwrap_or_else(|error| panic!("{error}"));
    stage.device = DeviceLimits::asked(None).unwrap_or_else(|error| panic!("{error}"));
    stage
}
