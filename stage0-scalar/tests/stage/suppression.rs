//! A wrong list of redundant synchronisation is seen: this stage's kernels with another list.

use common::stage::{Artifacts, Attention, LoadedStage, Redundant, StageInfo};
use common::suppression::{Presets, SiteResult, suppress_each};
use stage0_scalar::{ARTIFACTS, Scalar};
use std::sync::LazyLock;

/// Its list leaves out a site that `scalar` does without, and has one that `wmma-qk` needs.
struct Mislisted;

static INFO: LazyLock<StageInfo> = LazyLock::new(|| {
    let needed = Redundant {
        family: "wmma-qk",
        site: "Q was written by all threads",
        reason: "it is not",
    };
    StageInfo {
        redundant: Box::leak(Box::new([needed])),
        ..*Scalar.info()
    }
});

impl Attention for Mislisted {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }

    fn artifacts(&self) -> &'static Artifacts {
        &ARTIFACTS
    }
}

#[test]
fn survivors_and_useless_entries_are_reported() {
    let stage = LoadedStage::load(&Mislisted).unwrap();
    let suppressed = suppress_each(&stage, Presets::OnePerFamily);
    let sites = suppressed.sites.iter();
    let wrong: Vec<&SiteResult> = sites.filter(|site| site.remedy().is_some()).collect();
    let [scalar, wmma_qk] = wrong[..] else {
        panic!("{wrong:#?}")
    };
    assert_eq!((&*scalar.family, &scalar.place), ("scalar", &wmma_qk.place));
    assert!(
        !scalar.is_killed() && scalar.listed.is_none(),
        "{scalar:#?}"
    );
    assert!(
        wmma_qk.is_killed() && wmma_qk.listed.is_some(),
        "{wmma_qk:#?}"
    );
    assert!(suppressed.errors.is_empty(), "{:#?}", suppressed.errors);
    // All others are needed: a hazard names the line that makes them so.
    assert!(
        suppressed.sites.len() >= 10
            && suppressed
                .sites
                .iter()
                .filter(|site| !site.is_killed())
                .count()
                == 1
    );
}
