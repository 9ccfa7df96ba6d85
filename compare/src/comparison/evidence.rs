//! Gate E1: what a stage predicts of its counters and resources, against what was counted. Pure.

use super::figures::{Figure, judging};
use common::evidence::{Counting, Quantity, Relation, Source};
use common::problem::Dtype;
use common::record::{BaseTerms, EvidenceResult, EvidenceTerms, Profiled, StageBuild, VariantBuild, VariantCounters};
use common::verdict::{GateId, GateResult, Verdict};

/// On the GPU an exact ratio may be off by this much: hardware counters see retries that no definition has, and ncu adds
/// them up over passes. The plan of the ladder allows ncu 10 % where the emulator must be exact.
pub const NCU_TOLERANCE: f64 = 0.1;

/// The figures that E1 is judged on, beside what the stages declare and what ptxas said of them. Its variants are the
/// ones that the run is of.
#[derive(Clone, Copy, Debug)]
pub enum Measured<'a> {
    /// What the emulator counted.
    Emulator(&'a [VariantCounters]),
    /// What ncu read of launches of the claims' problem. Claims about what it does not measure are left out.
    Ncu(&'a [Profiled]),
}

/// The emulator's judgement and ncu's as one: what either refutes is refuted.
pub fn both(counted: &EvidenceResult, ncu: Option<&EvidenceResult>) -> EvidenceResult {
    let Some(EvidenceResult { result: ncu, .. }) = ncu else { return counted.clone() };
    let (here, there) = (counted.result.verdict, ncu.verdict);
    let result = match (here, there) {
        (Verdict::NoData, Verdict::NoData) => counted.result.clone(),
        (Verdict::NoData, _) => GateResult { reason: format!("ncu: {}", ncu.reason), ..ncu.clone() },
        _ => GateResult {
            gate: GateId::E1,
            verdict: if there == Verdict::Fail { Verdict::Fail } else { here },
            reason: format!("{}; ncu {there}: {}", counted.result.reason, ncu.reason),
        },
    };
    EvidenceResult { result, ..counted.clone() }
}

/// The variants that ncu must look at to judge what `stage` predicts: stage and variant, each once.
pub fn named<'a>(stage: &'a StageBuild, ladder: &'a [StageBuild]) -> Vec<(&'a str, &'a str)> {
    let mut names = Vec::new();
    for terms in stage.evidence.iter().filter(|terms| judging(terms.quantity).is_some()) {
        for (variant, base) in pairs(stage, ladder, terms).unwrap_or_default() {
            names.push((stage.id.as_str(), variant.name.as_str()));
            names.extend(base.map(|(stage, variant)| (stage.id.as_str(), variant.name.as_str())));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Judges what `stage` predicts of families with a variant in this run, one result per quantity. NO DATA where a figure
/// is missing, and the reason of the first; FAIL where any variant is not as predicted, whatever else is missing.
pub fn judge(stage: &StageBuild, ladder: &[StageBuild], measured: Measured<'_>) -> Vec<EvidenceResult> {
    let is_judged = |terms: &&EvidenceTerms| {
        measured.measures(terms.quantity)
            && stage.family(&terms.family).any(|variant| measured.has(stage, variant, terms.dtype))
    };
    let in_run = stage.evidence.iter().filter(is_judged);
    let result = |terms: &EvidenceTerms| EvidenceResult {
        stage: stage.id.clone(),
        terms: terms.clone(),
        identity: stage.identity.clone(),
        result: judge_terms(stage, ladder, terms, measured),
    };
    in_run.map(result).collect()
}

/// A variant, and what it is compared with.
pub type Pair<'a> = (&'a VariantBuild, Option<(&'a StageBuild, &'a VariantBuild)>);

/// What `terms` compare over all variants of the family, whatever a run has of them, or an error that says what is
/// missing: one preset is never compared with another because its own or its twin's was left out.
pub fn pairs<'a>(
    stage: &'a StageBuild,
    ladder: &'a [StageBuild],
    terms: &'a EvidenceTerms,
) -> Result<Vec<Pair<'a>>, String> {
    let Relation::Ratio { base, .. } = &terms.relation else {
        return Ok(stage.family(&terms.family).map(|variant| (variant, None)).collect());
    };
    let base_stage = ladder.iter().find(|other| other.id == base.stage);
    let base_stage = base_stage.ok_or_else(|| format!("there is no stage {}", base.stage))?;
    let twins: Vec<Pair<'_>> = stage
        .family(&terms.family)
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
    let in_run = |variant: &VariantBuild| measured.has(stage, variant, terms.dtype);
    let pairs = match pairs(stage, ladder, terms) {
        Ok(pairs) => pairs.into_iter().filter(|(variant, _)| in_run(variant)).collect::<Vec<_>>(),
        Err(reason) => return no_data(reason),
    };
    if pairs.is_empty() {
        return no_data(format!("no variant of {} in this run is one that the claim compares", terms.family));
    }
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
    let relation = measured.relation(terms);
    let values = measured.values(stage, variant, terms)?;
    let Some((base_stage, base)) = base else {
        let judge = |(arch, value): &(_, f64)| (relation.holds(*value, None), show(arch, &variant.name, *value));
        return Ok(values.iter().map(judge).collect());
    };
    let bases = measured.values(base_stage, base, terms)?;
    let judge = |(arch, value): &(Option<String>, f64)| {
        let (_, old) = bases.iter().find(|(other, _)| other == arch)?;
        let ratio = if *old == 0.0 { String::new() } else { format!(" = {:.3}x", value / old) };
        let words = format!("{} / {}{ratio}", show(arch, &variant.name, *value), show(arch, &base.name, *old));
        Some((relation.holds(*value, Some(*old)), words))
    };
    Ok(values.iter().filter_map(judge).collect())
}

impl<'a> Measured<'a> {
    /// Whether the run has figures of a variant with `dtype`.
    fn has(&self, stage: &StageBuild, variant: &VariantBuild, dtype: Dtype) -> bool {
        match self {
            Measured::Emulator(_) => self.counting_of(stage, variant, dtype).is_some(),
            Measured::Ncu(_) => self.profiled(stage, variant, dtype).is_some(),
        }
    }

    /// Whether a quantity is looked at: the emulator's judgement says of each that it has none of.
    fn measures(&self, quantity: Quantity) -> bool {
        matches!(self, Measured::Emulator(_)) || judging(quantity).is_some()
    }

    fn counting_of(&self, stage: &StageBuild, variant: &VariantBuild, dtype: Dtype) -> Option<&'a Counting> {
        let Measured::Emulator(counters) = self else { return None };
        counters.iter().find(|other| (&other.stage, &other.variant) == (&stage.id, &variant.name))?.with(dtype)
    }

    fn profiled(&self, stage: &StageBuild, variant: &VariantBuild, dtype: Dtype) -> Option<&'a Profiled> {
        let Measured::Ncu(launches) = self else { return None };
        let is_of =
            |launch: &&Profiled| (&launch.stage, &launch.variant, launch.dtype) == (&stage.id, &variant.name, dtype);
        launches.iter().find(is_of)
    }

    /// What is demanded: as predicted, but for [`NCU_TOLERANCE`] on a ratio that was predicted exactly.
    fn relation(&self, terms: &EvidenceTerms) -> Relation<BaseTerms> {
        match (self, terms.relation.clone()) {
            (Measured::Ncu(_), Relation::Ratio { base, at_least, at_most }) if at_least == at_most => {
                let (at_least, at_most) = (at_least * (1.0 - NCU_TOLERANCE), at_most * (1.0 + NCU_TOLERANCE));
                Relation::Ratio { base, at_least, at_most }
            }
            (_, relation) => relation,
        }
    }

    fn read_by_ncu(
        &self,
        stage: &StageBuild,
        variant: &VariantBuild,
        dtype: Dtype,
        figure: &Figure,
    ) -> Result<f64, String> {
        let place = format!("{}/{}", stage.id, variant.name);
        let launch = self.profiled(stage, variant, dtype).ok_or_else(|| format!("{place}: not launched under ncu"))?;
        figure.value(&launch.metrics).ok_or_else(|| format!("{place}: ncu has no value for {}", figure.label))
    }

    /// The values of a quantity, each with the architecture where it depends on one; or why there is none.
    fn values(
        &self,
        stage: &StageBuild,
        variant: &VariantBuild,
        terms: &EvidenceTerms,
    ) -> Result<Vec<(Option<String>, f64)>, String> {
        let &EvidenceTerms { quantity, dtype, .. } = terms;
        if let (Measured::Ncu(_), Some(figure)) = (self, judging(quantity)) {
            return Ok(vec![(None, self.read_by_ncu(stage, variant, dtype, figure)?)]);
        }
        let place = format!("{}/{}", stage.id, variant.name);
        let lacks = |what: &str| format!("{place}: {what}");
        let none = || lacks(&format!("it has no instance for {dtype} and head_dim 64"));
        let kernel = || variant.claims_kernel(dtype).ok_or_else(none);
        match quantity.source() {
            Source::Counters => {
                let counting =
                    self.counting_of(stage, variant, dtype).ok_or_else(|| lacks("not counted in this run"))?;
                let launch = counting.launch().map_err(lacks)?;
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
            Source::Profile | Source::Gpu => {
                Err(lacks("only ncu measures it; `compare profile` on a GPU completes this record"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{counted, ladder, profiled};
    use common::evidence::Counting;

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
        ladder[1].evidence = vec![EvidenceTerms {
            family: "cpasync".into(),
            quantity,
            relation,
            dtype: Dtype::F16,
            why: "planted".into(),
        }];
        let results = judge(&ladder[1], &ladder, Measured::Emulator(counters));
        assert_eq!(results.len(), 1, "{results:?}");
        assert_eq!((results[0].stage.as_str(), results[0].result.gate), (STAGE, GateId::E1));
        results[0].result.clone()
    }

    /// Both sides read 1,000 bytes; of the new one's 96 + `conflicts` wavefronts, `conflicts` are too many.
    fn conflicting(conflicts: u64) -> Vec<VariantCounters> {
        vec![counted("stage0-scalar", BASE, 1000, 20), counted(STAGE, NEW, 1000, conflicts)]
    }

    #[test]
    fn true_claims_pass_and_false_ones_fail_with_the_numbers() {
        let counters = conflicting(4);
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
        let mut without_base = conflicting(4);
        without_base.remove(0);
        let mut untraced = conflicting(4);
        untraced[1].counting = Counting::NotCounted { reason: "no traced build".into() };
        let table = [
            (Quantity::GlobalReadBytes, &without_base, "stage0-scalar/wmma-qk-32x64: not counted in this run"),
            (Quantity::GlobalReadBytes, &untraced, "stage1-cpasync/cpasync-32x64: no traced build"),
            (Quantity::Registers, &conflicting(4), "no GPU code was built"),
            (Quantity::BarrierStallShare, &conflicting(4), "ncu"),
        ];
        for (quantity, counters, part) in table {
            let result = judged(quantity, ratio(1.0, 1.0), counters);
            assert_eq!(result.verdict, Verdict::NoData, "{quantity}: {}", result.reason);
            assert!(result.reason.contains(part), "{quantity}: {}", result.reason);
        }
        let ladder = ladder();
        let measured = Measured::Emulator(&conflicting(4)[..1]);
        assert_eq!(judge(&ladder[1], &ladder, measured), [], "no variant of the stage is in the run");
    }

    #[test]
    fn claims_with_e4m3_are_judged_on_what_was_counted_with_it() {
        let mut ladder = ladder();
        let relation = Relation::AtMost { bound: 0.0 };
        let terms = |dtype| EvidenceTerms {
            family: "cpasync".into(),
            quantity: Quantity::SharedReadConflicts,
            relation: relation.clone(),
            dtype,
            why: "planted".into(),
        };
        ladder[1].evidence = Dtype::ALL.map(terms).into();
        let mut counters = conflicting(0);
        let verdicts = |counters: &[VariantCounters]| -> Vec<(Dtype, Verdict)> {
            let judged = judge(&ladder[1], &ladder, Measured::Emulator(counters));
            judged.into_iter().map(|judged| (judged.terms.dtype, judged.result.verdict)).collect()
        };
        assert_eq!(verdicts(&counters), [(Dtype::F16, Verdict::Pass)], "not counted with e4m3");
        counters[1].e4m3 = Some(conflicting(7)[1].counting.clone());
        assert_eq!(verdicts(&counters), [(Dtype::F16, Verdict::Pass), (Dtype::E4m3, Verdict::Fail)]);
    }

    #[test]
    fn each_variant_meets_its_twin_and_one_that_breaks_the_claim_is_enough() {
        let mut ladder = ladder();
        let renamed = |variant: &VariantBuild, name: &str| VariantBuild { name: name.into(), ..variant.clone() };
        let (base, new) = (ladder[0].variants[1].clone(), ladder[1].variants[0].clone());
        ladder[0].variants.push(renamed(&base, "wmma-qk-64x64"));
        ladder[1].variants.extend([renamed(&new, "cpasync-64x64"), renamed(&new, "cpasync-16x64")]);
        ladder[1].evidence.truncate(1);
        let mut counters = conflicting(4);
        counters.push(counted("stage0-scalar", "wmma-qk-64x64", 700, 0));
        counters.push(counted(STAGE, "cpasync-64x64", 700, 0));
        // It has no twin, so nothing is said of it.
        counters.push(counted(STAGE, "cpasync-16x64", 9, 9));
        let judge_now = |counters: &[VariantCounters], ladder: &[StageBuild]| {
            judge(&ladder[1], ladder, Measured::Emulator(counters))[0].result.clone()
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

    /// A family whose default has no twin, and of which a run has the default alone, or another variant alone.
    #[test]
    fn a_run_of_one_variant_compares_no_preset_with_another() {
        let mut ladder = ladder();
        let only = ladder[1].variants[0].clone();
        ladder[1].variants.push(VariantBuild { name: "cpasync-96x64".into(), ..only });
        ladder[1].default_variant = "cpasync-96x64".into();
        ladder[1].evidence.truncate(1);
        let base = counted("stage0-scalar", BASE, 1000, 0);
        for (variant, bytes, verdict) in
            [("cpasync-96x64", 700, Verdict::NoData), (NEW, 1000, Verdict::Pass), (NEW, 999, Verdict::Fail)]
        {
            let counters = [base.clone(), counted(STAGE, variant, bytes, 0)];
            let result = &judge(&ladder[1], &ladder, Measured::Emulator(&counters))[0].result;
            assert_eq!(result.verdict, verdict, "{variant} {bytes}: {}", result.reason);
        }
    }

    const SHARE: Quantity = Quantity::BarrierStallShare;

    /// Both sides under ncu: global bytes of the new one beside 1,000, and its barrier stalls beside 10 % of all cycles.
    fn profiles(bytes: f64, stalls: f64) -> Vec<Profiled> {
        let one = |stage: &str, variant: &str, bytes: f64, stalls: f64| {
            profiled(stage, variant, &[("loaded", bytes), ("copied", 0.0), ("barrier", stalls), ("latency", 10.0)])
        };
        vec![one("stage0-scalar", BASE, 1000.0, 1.0), one(STAGE, NEW, bytes, stalls)]
    }

    fn judged_by_ncu(quantity: Quantity, relation: Relation<BaseTerms>, launches: &[Profiled]) -> Vec<GateResult> {
        let mut ladder = ladder();
        let terms =
            EvidenceTerms { family: "cpasync".into(), quantity, relation, dtype: Dtype::F16, why: "planted".into() };
        ladder[1].evidence = vec![terms];
        judge(&ladder[1], &ladder, Measured::Ncu(launches)).into_iter().map(|judged| judged.result).collect()
    }

    #[test]
    fn ncu_may_be_a_little_off_an_exact_ratio_and_off_nothing_else() {
        let table = [
            (Quantity::GlobalReadBytes, ratio(1.0, 1.0), profiles(1099.0, 1.0), Verdict::Pass, "= 1.099x"),
            (Quantity::GlobalReadBytes, ratio(1.0, 1.0), profiles(1101.0, 1.0), Verdict::Fail, "= 1.101x"),
            (
                Quantity::GlobalReadBytes,
                Relation::AtMost { bound: 1000.0 },
                profiles(1001.0, 1.0),
                Verdict::Fail,
                "1,001",
            ),
            (SHARE, ratio(0.0, 0.8), profiles(1000.0, 0.8), Verdict::Pass, "8.0 % / wmma-qk-32x64 10.0 % = 0.800x"),
            (SHARE, ratio(0.0, 0.8), profiles(1000.0, 0.84), Verdict::Fail, "= 0.840x"),
        ];
        for (quantity, relation, launches, verdict, part) in table {
            let [result] = &judged_by_ncu(quantity, relation.clone(), &launches)[..] else { panic!("{quantity}") };
            assert_eq!(result.verdict, verdict, "{quantity} {relation:?}: {}", result.reason);
            assert!(result.reason.contains(part), "{quantity} {relation:?}: {}", result.reason);
        }
    }

    #[test]
    fn ncu_says_nothing_of_what_it_does_not_measure() {
        assert_eq!(judged_by_ncu(Quantity::Exps, ratio(1.0, 1.0), &profiles(1000.0, 1.0)), []);
        assert_eq!(judged_by_ncu(SHARE, ratio(1.0, 1.0), &profiles(1000.0, 1.0)[..1]), [], "not launched");
        let mut launches = profiles(1000.0, 1.0);
        launches[0].metrics.clear();
        let result = &judged_by_ncu(SHARE, ratio(1.0, 1.0), &launches)[0];
        assert_eq!(result.verdict, Verdict::NoData);
        assert!(
            result.reason.contains("wmma-qk-32x64: ncu has no value for barrier stalls' share"),
            "{}",
            result.reason
        );
        let result = &judged_by_ncu(SHARE, ratio(1.0, 1.0), &launches[1..])[0];
        assert!(result.reason.contains("stage0-scalar/wmma-qk-32x64: not launched under ncu"), "{}", result.reason);
    }

    #[test]
    fn what_either_instrument_refutes_is_refuted() {
        use Verdict::{Fail, NoData, Pass};
        let of = |verdict: Verdict, reason: &str| EvidenceResult {
            stage: STAGE.into(),
            terms: ladder()[1].evidence[0].clone(),
            identity: "i".into(),
            result: GateResult { gate: GateId::E1, verdict, reason: reason.into() },
        };
        let table = [
            (Pass, Some(Pass), Pass, "e; ncu PASS: n"),
            (Pass, Some(Fail), Fail, "e; ncu FAIL: n"),
            (Fail, Some(Pass), Fail, "e; ncu PASS: n"),
            (Pass, Some(NoData), Pass, "e; ncu NO DATA: n"),
            (Pass, None, Pass, "e"),
            (NoData, Some(Pass), Pass, "ncu: n"),
            (NoData, Some(Fail), Fail, "ncu: n"),
            (NoData, Some(NoData), NoData, "e"),
        ];
        for (emulator, ncu, verdict, reason) in table {
            let ncu = ncu.map(|verdict| of(verdict, "n"));
            let result = both(&of(emulator, "e"), ncu.as_ref()).result;
            assert_eq!((result.verdict, result.reason.as_str()), (verdict, reason), "{emulator} {ncu:?}");
        }
    }
}
