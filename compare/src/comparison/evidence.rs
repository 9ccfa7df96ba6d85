//! Gate E1: what a stage predicts of its counters and resources, against what was counted. Pure.

use common::evidence::{Quantity, Relation, Source};
use common::record::{EvidenceResult, EvidenceTerms, StageBuild, VariantBuild, VariantCounters};
use common::verdict::{GateId, GateResult};

/// The figures that E1 is judged on, beside what the stages declare and what ptxas said of them.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// What the emulator counted. Its variants are the ones that the run is of.
    pub counters: &'a [VariantCounters],
}

/// Judges what `stage` predicts of families with a variant in this run, one result per quantity. NO DATA where a figure
/// is missing, and the reason of the first; FAIL where any variant is not as predicted, whatever else is missing.
pub fn judge(stage: &StageBuild, ladder: &[StageBuild], measured: Measured<'_>) -> Vec<EvidenceResult> {
    let is_counted = |variant: &&VariantBuild| measured.counters_of(stage, variant).is_some();
    let in_run = stage.evidence.iter().filter(|terms| stage.family(&terms.family).any(|v| is_counted(&v)));
    let result = |terms: &EvidenceTerms| EvidenceResult {
        stage: stage.id.clone(),
        terms: terms.clone(),
        identity: stage.identity.clone(),
        result: judge_terms(stage, ladder, terms, measured),
    };
    in_run.map(result).collect()
}

/// A variant, and what it is compared with.
type Pair<'a> = (&'a VariantBuild, Option<(&'a StageBuild, &'a VariantBuild)>);

/// What `terms` compare: every variant of the family in this run, or an error that says what is missing.
fn pairs<'a>(
    stage: &'a StageBuild,
    ladder: &'a [StageBuild],
    terms: &'a EvidenceTerms,
    measured: Measured<'_>,
) -> Result<Vec<Pair<'a>>, String> {
    let in_run = stage.family(&terms.family).filter(|variant| measured.counters_of(stage, variant).is_some());
    let Relation::Ratio { base, .. } = &terms.relation else {
        return Ok(in_run.map(|variant| (variant, None)).collect());
    };
    let base_stage = ladder.iter().find(|other| other.id == base.stage);
    let base_stage = base_stage.ok_or_else(|| format!("there is no stage {}", base.stage))?;
    let twins: Vec<Pair<'_>> = in_run
        .filter_map(|variant| Some((variant, Some((base_stage, base_stage.twin(&base.family, variant.preset())?)))))
        .collect();
    if !twins.is_empty() {
        return Ok(twins);
    }
    let default = stage.default_of(&terms.family);
    let base_default = base_stage.default_of(&base.family);
    let (Some(new), Some(old)) = (default, base_default) else {
        return Err(format!("{} has no family {}", base.stage, base.family));
    };
    Ok(vec![(new, Some((base_stage, old)))])
}

fn judge_terms(stage: &StageBuild, ladder: &[StageBuild], terms: &EvidenceTerms, measured: Measured<'_>) -> GateResult {
    let no_data = |reason: String| GateResult::no_data(GateId::E1, reason);
    let pairs = match pairs(stage, ladder, terms, measured) {
        Ok(pairs) => pairs,
        Err(reason) => return no_data(reason),
    };
    let (mut holds, mut breaks, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (variant, base) in &pairs {
        match compare(stage, variant, *base, terms, measured) {
            Err(reason) => missing.push(reason),
            Ok(comparisons) => {
                for (holds_here, words) in comparisons {
                    if holds_here { holds.push(words) } else { breaks.push(words) }
                }
            }
        }
    }
    if !breaks.is_empty() {
        return GateResult::judge(GateId::E1, false, breaks.join("; "));
    }
    match (missing.into_iter().next(), holds.split_first()) {
        (Some(reason), _) => no_data(reason),
        (None, Some((first, []))) => GateResult::judge(GateId::E1, true, first.clone()),
        (None, Some((first, others))) => {
            GateResult::judge(GateId::E1, true, format!("{first}; {} more as predicted", others.len()))
        }
        (None, None) => no_data(format!("{} was not compiled for the same architecture as its base", terms.family)),
    }
}

/// Whether a variant is as predicted, in words, for each architecture that both sides were compiled for.
fn compare(
    stage: &StageBuild,
    variant: &VariantBuild,
    base: Option<(&StageBuild, &VariantBuild)>,
    terms: &EvidenceTerms,
    measured: Measured<'_>,
) -> Result<Vec<(bool, String)>, String> {
    let quantity = terms.quantity;
    let show = |arch: &Option<String>, name: &str, value: f64| {
        let arch = arch.as_ref().map(|arch| format!(" ({arch})")).unwrap_or_default();
        format!("{name}{arch} {}", quantity.show(value))
    };
    let values = measured.values(stage, variant, quantity)?;
    let Some((base_stage, base)) = base else {
        let judge = |(arch, value): &(_, f64)| (terms.relation.holds(*value, None), show(arch, &variant.name, *value));
        return Ok(values.iter().map(judge).collect());
    };
    let bases = measured.values(base_stage, base, quantity)?;
    let judge = |(arch, value): &(Option<String>, f64)| {
        let (_, old) = bases.iter().find(|(other, _)| other == arch)?;
        let ratio = if *old == 0.0 { String::new() } else { format!(" = {:.3}x", value / old) };
        let words = format!("{} / {}{ratio}", show(arch, &variant.name, *value), show(arch, &base.name, *old));
        Some((terms.relation.holds(*value, Some(*old)), words))
    };
    Ok(values.iter().filter_map(judge).collect())
}

impl Measured<'_> {
    fn counters_of(&self, stage: &StageBuild, variant: &VariantBuild) -> Option<&VariantCounters> {
        self.counters.iter().find(|counters| (&counters.stage, &counters.variant) == (&stage.id, &variant.name))
    }

    /// The values of a quantity, each with the architecture where it depends on one; or why there is none.
    fn values(
        &self,
        stage: &StageBuild,
        variant: &VariantBuild,
        quantity: Quantity,
    ) -> Result<Vec<(Option<String>, f64)>, String> {
        let place = format!("{}/{}", stage.id, variant.name);
        let lacks = |what: &str| format!("{place}: {what}");
        let kernel = || variant.claims_kernel().ok_or_else(|| lacks("it has no instance for f16 and head_dim 64"));
        match quantity.source() {
            Source::Counters => {
                let counters = self.counters_of(stage, variant).ok_or_else(|| lacks("not counted in this run"))?;
                let launch = counters.counting.launch().map_err(lacks)?;
                Ok(quantity.counted(launch).map(|value| (None, value)).into_iter().collect())
            }
            Source::Declared => Ok(vec![(None, kernel()?.facts.dynamic_shared_bytes as f64)]),
            Source::Compiler => {
                let built = &kernel()?.built;
                let values: Vec<_> = built
                    .iter()
                    .filter_map(|built| {
                        let value = match quantity {
                            Quantity::Occupancy => built.occupancy?.percent() / 100.0,
                            _ => f64::from(built.ptxas.resources.registers),
                        };
                        Some((Some(built.ptxas.arch.clone()), value))
                    })
                    .collect();
                if values.is_empty() { Err(lacks("no GPU code was built")) } else { Ok(values) }
            }
            Source::Profile => Err(lacks("ncu's counters are not part of this run")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counted, ladder};
    use common::evidence::Counting;
    use common::record::BaseTerms;
    use common::verdict::Verdict;

    const STAGE: &str = "stage1-cpasync";
    const NEW: &str = "cpasync-32x64";
    const BASE: &str = "wmma-qk-32x64";

    fn ratio(at_least: f64, at_most: f64) -> Relation<BaseTerms> {
        let base = BaseTerms { stage: "stage0-scalar".into(), family: "wmma-qk".into() };
        Relation::Ratio { base, at_least, at_most }
    }

    /// Stage 1 of the literal ladder with one claim, judged on `counters`.
    fn judged(quantity: Quantity, relation: Relation<BaseTerms>, counters: &[VariantCounters]) -> GateResult {
        let mut ladder = ladder();
        ladder[1].evidence =
            vec![EvidenceTerms { family: "cpasync".into(), quantity, relation, why: "planted".into() }];
        let results = judge(&ladder[1], &ladder, Measured { counters });
        assert_eq!(results.len(), 1, "{results:?}");
        assert_eq!((results[0].stage.as_str(), results[0].result.gate), (STAGE, GateId::E1));
        results[0].result.clone()
    }

    /// Both sides read 1,000 bytes; of the new one's 96 + `conflicts` wavefronts, `conflicts` are too many.
    fn both(conflicts: u64) -> Vec<VariantCounters> {
        vec![counted("stage0-scalar", BASE, 1000, 20), counted(STAGE, NEW, 1000, conflicts)]
    }

    #[test]
    fn true_claims_pass_and_false_ones_fail_with_the_numbers() {
        let counters = both(4);
        let table = [
            (
                Quantity::GlobalReadBytes,
                ratio(1.0, 1.0),
                Verdict::Pass,
                "cpasync-32x64 1,000 / wmma-qk-32x64 1,000 = 1.000x",
            ),
            (Quantity::GlobalReadBytes, ratio(2.0, 2.0), Verdict::Fail, "= 1.000x"),
            (Quantity::SharedReadConflicts, ratio(0.0, 0.5), Verdict::Pass, "4 / wmma-qk-32x64 20 = 0.200x"),
            (Quantity::SharedReadConflicts, ratio(0.0, 0.1), Verdict::Fail, "= 0.200x"),
            (Quantity::TensorMacs, ratio(1.0, 1.0), Verdict::Pass, "cpasync-32x64 0 / wmma-qk-32x64 0"),
            (Quantity::SharedReadConflictShare, Relation::AtMost { bound: 0.05 }, Verdict::Pass, "cpasync-32x64 4.0 %"),
            (Quantity::SharedReadConflictShare, Relation::AtMost { bound: 0.03 }, Verdict::Fail, "4.0 %"),
            (Quantity::GlobalReadBytes, Relation::AtLeast { bound: 1001.0 }, Verdict::Fail, "1,000"),
            (Quantity::DynamicSharedBytes, Relation::AtMost { bound: 40_000.0 }, Verdict::Pass, "37,376"),
            (Quantity::DynamicSharedBytes, Relation::AtMost { bound: 30_000.0 }, Verdict::Fail, "37,376"),
        ];
        for (quantity, relation, verdict, part) in table {
            let result = judged(quantity, relation.clone(), &counters);
            assert_eq!(result.verdict, verdict, "{quantity} {relation:?}: {}", result.reason);
            assert!(result.reason.contains(part), "{quantity} {relation:?}: {}", result.reason);
        }
    }

    #[test]
    fn what_was_not_counted_is_no_data_with_its_reason() {
        let mut without_base = both(4);
        without_base.remove(0);
        let mut untraced = both(4);
        untraced[1].counting = Counting::NotCounted { reason: "no traced build".into() };
        let table = [
            (Quantity::GlobalReadBytes, &without_base, "stage0-scalar/wmma-qk-32x64: not counted in this run"),
            (Quantity::GlobalReadBytes, &untraced, "stage1-cpasync/cpasync-32x64: no traced build"),
            (Quantity::Registers, &both(4), "no GPU code was built"),
            (Quantity::BarrierStallShare, &both(4), "ncu"),
        ];
        for (quantity, counters, part) in table {
            let result = judged(quantity, ratio(1.0, 1.0), counters);
            assert_eq!(result.verdict, Verdict::NoData, "{quantity}: {}", result.reason);
            assert!(result.reason.contains(part), "{quantity}: {}", result.reason);
        }
        let ladder = ladder();
        let measured = Measured { counters: &both(4)[..1] };
        assert_eq!(judge(&ladder[1], &ladder, measured), [], "no variant of the stage is in the run");
    }

    #[test]
    fn each_variant_meets_its_twin_and_one_that_breaks_the_claim_is_enough() {
        let mut ladder = ladder();
        let renamed = |variant: &VariantBuild, name: &str| VariantBuild { name: name.into(), ..variant.clone() };
        let (base, new) = (ladder[0].variants[1].clone(), ladder[1].variants[0].clone());
        ladder[0].variants.push(renamed(&base, "wmma-qk-64x64"));
        ladder[1].variants.extend([renamed(&new, "cpasync-64x64"), renamed(&new, "cpasync-16x64")]);
        ladder[1].evidence.truncate(1);
        let mut counters = both(4);
        counters.push(counted("stage0-scalar", "wmma-qk-64x64", 700, 0));
        counters.push(counted(STAGE, "cpasync-64x64", 700, 0));
        // It has no twin, so nothing is said of it.
        counters.push(counted(STAGE, "cpasync-16x64", 9, 9));
        let judge_now = |counters: &[VariantCounters], ladder: &[StageBuild]| {
            judge(&ladder[1], ladder, Measured { counters })[0].result.clone()
        };
        let result = judge_now(&counters, &ladder);
        assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
        assert!(result.reason.contains("; 1 more as predicted"), "{}", result.reason);
        counters[3] = counted(STAGE, "cpasync-64x64", 701, 0);
        let result = judge_now(&counters, &ladder);
        assert_eq!(result.verdict, Verdict::Fail);
        assert!(!result.reason.contains(NEW), "only what breaks it is named: {}", result.reason);

        // Without any twin the defaults stand for their families.
        ladder[1].variants.truncate(1);
        ladder[1].variants[0].name = "cpasync-96x64".into();
        ladder[1].default_variant = "cpasync-96x64".into();
        counters[1].variant = "cpasync-96x64".into();
        let result = judge_now(&counters, &ladder);
        assert_eq!(result.verdict, Verdict::Pass, "{}", result.reason);
        assert!(result.reason.starts_with("cpasync-96x64 1,000 / wmma-qk-32x64 1,000"), "{}", result.reason);
    }
}
