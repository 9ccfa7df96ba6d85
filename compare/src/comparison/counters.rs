//! What the variants count on the claims' problem, and how that differs from what they are a diff of.

use common::evidence::{Counters, Counting, Quantity, Relation};
use common::record::{Record, StageBuild, VariantBuild};
use serde::Serialize;

/// What a variant counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterRow {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// Whether quick runs use it.
    pub is_default: bool,
    /// Counted on another version of the kernel.
    pub is_stale: bool,
    /// What came of it.
    pub counting: Counting,
}

/// How a variant's counters differ from those of what it is compared with, at the same preset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Delta {
    /// `stage1-cpasync/cpasync-32x64`.
    pub place: String,
    /// `stage0-scalar/wmma-qk-32x64`.
    pub base: String,
    /// Whether the variant is its stage's default.
    pub is_default: bool,
    /// The counters that differ, with the base's value and the variant's; empty where all are equal.
    pub differing: Vec<(Quantity, f64, f64)>,
}

/// The counters of `record`, a row per variant of the ladder that it counted.
pub fn rows(stages: &[StageBuild], record: &Record) -> Vec<CounterRow> {
    let row = |stage: &StageBuild, variant: &VariantBuild| {
        let of_record = record.evidence.counters.iter();
        let counters = of_record.rev().find(|c| (&c.stage, &c.variant) == (&stage.id, &variant.name))?;
        Some(CounterRow {
            stage: stage.id.clone(),
            variant: variant.name.clone(),
            is_default: variant.name == stage.default_variant,
            is_stale: counters.identity != stage.identity,
            counting: counters.counting.clone(),
        })
    };
    stages.iter().flat_map(|stage| stage.variants.iter().filter_map(move |variant| row(stage, variant))).collect()
}

/// Each counted variant beside its twins: the variants of the same preset in the families that its family's claims
/// compare it with, or in the predecessor's default family where it claims nothing.
pub fn deltas(stages: &[StageBuild], rows: &[CounterRow]) -> Vec<Delta> {
    let launch = |stage: &StageBuild, variant: &VariantBuild| {
        let row = rows.iter().find(|row| (&row.stage, &row.variant) == (&stage.id, &variant.name))?;
        row.counting.launch().ok()
    };
    let mut deltas = Vec::new();
    for stage in stages {
        for variant in &stage.variants {
            let Some(new) = launch(stage, variant) else { continue };
            for (base_id, family) in bases(stages, stage, &variant.family) {
                let Some(base_stage) = stages.iter().find(|other| other.id == base_id) else { continue };
                let Some(twin) = base_stage.twin(family, variant.preset()) else { continue };
                let Some(old) = launch(base_stage, twin) else { continue };
                deltas.push(Delta {
                    place: format!("{}/{}", stage.id, variant.name),
                    base: format!("{base_id}/{}", twin.name),
                    is_default: variant.name == stage.default_variant,
                    differing: differing(old, new),
                });
            }
        }
    }
    deltas
}

/// What a family is compared with, each once: (stage, family).
fn bases<'a>(stages: &'a [StageBuild], stage: &'a StageBuild, family: &str) -> Vec<(&'a str, &'a str)> {
    let speed = stage.claims.iter().filter(|terms| terms.family == family);
    let speed = speed.map(|terms| (terms.base_stage.as_str(), terms.base_family.as_str()));
    let evidence = stage.evidence.iter().filter(|terms| terms.family == family);
    let evidence = evidence.filter_map(|terms| match &terms.relation {
        Relation::Ratio { base, .. } => Some((base.stage.as_str(), base.family.as_str())),
        _ => None,
    });
    let mut bases = Vec::new();
    for base in speed.chain(evidence) {
        if !bases.contains(&base) {
            bases.push(base);
        }
    }
    if bases.is_empty() {
        let before = stages.iter().find(|other| Some(&other.id) == stage.predecessor.as_ref());
        let default = before.and_then(|before| Some((before, before.variant(&before.default_variant)?)));
        bases.extend(default.map(|(before, variant)| (before.id.as_str(), variant.family.as_str())));
    }
    bases
}

/// The counters that differ; shares of them are left out.
pub fn differing(old: &Counters, new: &Counters) -> Vec<(Quantity, f64, f64)> {
    let counts = Quantity::all_counted().filter(|quantity| !quantity.is_share());
    counts
        .filter_map(|quantity| Some((quantity, quantity.counted(old)?, quantity.counted(new)?)))
        .filter(|(_, old, new)| old != new)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counted, emulated, ladder};

    #[test]
    fn a_variant_stands_beside_the_twin_that_its_claim_names() {
        let record = emulated();
        let rows = rows(&ladder(), &record);
        assert_eq!(rows.len(), 3);
        let deltas = deltas(&ladder(), &rows);
        let pairs: Vec<_> = deltas.iter().map(|delta| (delta.place.as_str(), delta.base.as_str())).collect();
        assert_eq!(
            pairs,
            [
                ("stage0-scalar/wmma-qk-32x64", "stage0-scalar/scalar-32x64"),
                ("stage1-cpasync/cpasync-32x64", "stage0-scalar/wmma-qk-32x64")
            ]
        );
    }

    #[test]
    fn a_family_without_claims_stands_beside_the_predecessors_default_family() {
        let mut ladder = ladder();
        ladder[1].claims.clear();
        ladder[1].evidence.clear();
        assert_eq!(bases(&ladder, &ladder[1], "cpasync"), [("stage0-scalar", "wmma-qk")]);
        assert_eq!(bases(&ladder, &ladder[0], "scalar"), [], "the first stage's control has nothing before it");
    }

    #[test]
    fn only_what_differs_is_said_and_shares_are_not() {
        let launch = |bytes, conflicts| *counted("s", "v", bytes, conflicts).counting.launch().unwrap();
        assert_eq!(differing(&launch(10, 3), &launch(10, 3)), []);
        let differing = differing(&launch(10, 3), &launch(10, 0));
        assert_eq!(
            differing,
            [(Quantity::SharedReadWavefronts, 99.0, 96.0), (Quantity::SharedReadConflicts, 3.0, 0.0)]
        );
    }

    #[test]
    fn counters_of_another_version_of_the_kernel_are_stale() {
        let mut changed = ladder();
        changed[1].identity = "changed".into();
        let stale: Vec<bool> = rows(&changed, &emulated()).iter().map(|row| row.is_stale).collect();
        assert_eq!(stale, [false, false, true]);
    }
}
