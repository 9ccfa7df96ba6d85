//! From cases to one summary per variant.

use super::distinction::tell_apart;
use common::check::{CaseKey, CaseResult, Outcome, Source};
use common::record::{Correctness, GateSummary, StageBuild, VariantSummary, WorstError};
use common::suppression::Broken;
use common::verdict::{GateId, GateResult, Verdict};
use std::borrow::Cow;
use std::collections::HashMap;

/// A case in words: `mission f16 full normal:0`.
pub fn describe(key: &CaseKey) -> String {
    let source = match &key.source {
        Source::Seeded { family, seed } => format!("{family}:{seed}"),
        Source::File { name } => name.clone(),
    };
    format!("{} {} {} {source}", key.shape_name, key.dtype, key.mask)
}

/// What there is to sum up of a variant.
#[derive(Default)]
struct Found<'a> {
    cases: Vec<&'a CaseResult>,
    broken: Vec<&'a Broken>,
}

/// One summary per variant that has a case, or that was seen to fail a gate while its synchronisation sites were tried; in
/// the order of the ladder.
pub fn summarise(stages: &[StageBuild], correctness: &Correctness) -> Vec<VariantSummary> {
    let mut by_variant: HashMap<(&str, &str), Found<'_>> = HashMap::new();
    for case in &correctness.cases {
        by_variant.entry((&case.key.stage, &case.key.variant)).or_default().cases.push(case);
    }
    for broken in correctness.synchronisation.broken() {
        by_variant.entry((&broken.stage, &broken.variant)).or_default().broken.push(broken);
    }
    let variants =
        stages.iter().flat_map(|stage| stage.variants.iter().map(move |variant| (stage, variant.name.as_str())));
    let summarised = variants.filter_map(|(stage, variant)| {
        by_variant.get(&(stage.id.as_str(), variant)).map(|found| summary(stage, variant, found))
    });
    summarised.collect()
}

fn summary(stage: &StageBuild, variant: &str, found: &Found<'_>) -> VariantSummary {
    let mut summary = VariantSummary {
        stage: stage.id.clone(),
        variant: variant.to_string(),
        identity: stage.identity.clone(),
        checked: 0,
        unsupported: 0,
        failed: 0,
        gates: Vec::new(),
        worst: None,
    };
    let mut results: Vec<(Cow<'_, GateResult>, Option<&CaseKey>)> = Vec::new();
    for case in &found.cases {
        let key = &case.key;
        match &case.outcome {
            Outcome::Checked { errors, gates } => {
                summary.checked += 1;
                results.extend(gates.iter().map(|gate| (Cow::Borrowed(gate), Some(key))));
                // Written so that NaN is worse than any number.
                let worse = summary
                    .worst
                    .as_ref()
                    .is_none_or(|worst| !(errors.max_abs <= worst.max_abs || worst.max_abs.is_nan()));
                if worse {
                    let at = describe(key);
                    summary.worst = Some(WorstError { max_abs: errors.max_abs, max_row: errors.max_row_rel, at });
                }
            }
            Outcome::Unsupported { .. } => summary.unsupported += 1,
            Outcome::Failed { reason } => {
                summary.failed += 1;
                let result = GateResult::judge(GateId::C1, false, format!("the launch failed: {reason}"));
                results.push((Cow::Owned(result), Some(key)));
            }
        }
    }
    results.extend(found.broken.iter().map(|broken| (Cow::Borrowed(&broken.result), None)));
    let mut ids: Vec<GateId> = results.iter().map(|(result, _)| result.gate).collect();
    ids.sort();
    ids.dedup();
    let kernels = stage.variant(variant).map_or(&[][..], |variant| &variant.kernels);
    let tile = |key: &CaseKey| {
        let facts = kernels.iter().map(|kernel| &kernel.facts);
        let mut instance = facts.filter(|facts| (facts.dtype, facts.head_dim) == (key.dtype, key.shape.head_dim));
        instance.next().map(|facts| [facts.block_m, facts.block_n])
    };
    summary.gates = ids.into_iter().map(|gate| fold(gate, &results, tile)).collect();
    summary
}

/// Any FAIL, else any AMBIGUOUS, else any PASS, else NO DATA; with the reason of the first case that decided, and, of
/// several cases of which some fail, what tells those from the others.
fn fold(
    gate: GateId,
    results: &[(Cow<'_, GateResult>, Option<&CaseKey>)],
    tile: impl Fn(&CaseKey) -> Option<[usize; 2]>,
) -> GateSummary {
    let of_gate: Vec<_> = results.iter().filter(|(result, _)| result.gate == gate).collect();
    let count = |verdict: Verdict| of_gate.iter().filter(|(result, _)| result.verdict == verdict).count();
    let judged = of_gate.len() - count(Verdict::NoData);
    let passed = count(Verdict::Pass);
    let decisive = [Verdict::Fail, Verdict::Ambiguous, Verdict::Pass, Verdict::NoData]
        .into_iter()
        .find(|&verdict| count(verdict) > 0)
        .expect("the gate has results");
    let reason = if decisive == Verdict::Pass {
        format!("{passed} of {judged} cases")
    } else {
        let (result, key) = of_gate.iter().find(|(result, _)| result.verdict == decisive).expect("counted above");
        let case = key.map(|key| format!("{}: ", describe(key))).unwrap_or_default();
        let cases = |verdict: Verdict| -> Vec<&CaseKey> {
            of_gate.iter().filter(|(result, _)| result.verdict == verdict).filter_map(|(_, key)| *key).collect()
        };
        let (failing, passing) = (cases(Verdict::Fail), cases(Verdict::Pass));
        let which = match failing.is_empty() || failing.len() + passing.len() == 1 {
            true => String::new(),
            false => format!("{}; first ", tell_apart(&failing, &passing, tile)),
        };
        format!("{which}{case}{}", result.reason)
    };
    GateSummary { result: GateResult { gate, verdict: decisive, reason }, passed, of: judged }
}

/// Whether a variant's numbers may be believed, so that its time may be shown: no correctness gate fails or wavers,
/// and all have evidence but C4, which has nothing to say about some problems, and B1, which judges those of a tier.
pub fn is_green(summary: &VariantSummary) -> bool {
    let verdict = |gate: GateId| summary.gates.iter().find(|g| g.result.gate == gate).map(|g| g.result.verdict);
    let needed = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6];
    summary.failed == 0
        && verdict(GateId::H1) != Some(Verdict::Fail)
        && needed.into_iter().all(|gate| verdict(gate) == Some(Verdict::Pass))
        && [GateId::C4, GateId::B1]
            .into_iter()
            .all(|gate| matches!(verdict(gate), None | Some(Verdict::Pass | Verdict::NoData)))
}
