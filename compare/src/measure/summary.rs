//! From cases to one row per variant.

use super::distinction::tell_apart;
use super::rows;
use crate::measure::builds::StageBuild;
use crate::record::{Judged, On, Row, Subject};
use common::check::{CaseKey, CaseResult, Outcome, Source};
use common::device::BackendKind;
use common::metric::Metric;
use common::suppression::Broken;
use common::verdict::{GateId, GateResult, Verdict};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

/// A case in words: `mission f16 full normal:0`.
pub fn describe(key: &CaseKey) -> String {
    format!("{} {} {} {}", key.shape_name, key.dtype, key.mask, input(key))
}

/// Its inputs in words: `normal:0`.
pub fn input(key: &CaseKey) -> String {
    match &key.source {
        Source::Seeded { family, seed } => format!("{family}:{seed}"),
        Source::File { name } => name.clone(),
    }
}

/// What there is to sum up of a variant.
#[derive(Default)]
struct Found<'a> {
    cases: Vec<&'a CaseResult>,
    broken: Vec<&'a Broken>,
}

/// One row per variant that has a case, or that was seen to fail a gate while its synchronisation sites were tried.
pub fn summarise(stages: &[StageBuild], cases: &[CaseResult], broken: &[Broken], backend: BackendKind) -> Vec<Row> {
    let mut by_variant: HashMap<(&str, &str), Found<'_>> = HashMap::new();
    for case in cases {
        by_variant.entry((&case.key.stage, &case.key.variant)).or_default().cases.push(case);
    }
    for broken in broken {
        by_variant.entry((&broken.stage, &broken.variant)).or_default().broken.push(broken);
    }
    let variants =
        stages.iter().flat_map(|stage| stage.variants.iter().map(move |variant| (stage, variant.name.as_str())));
    let summarised = variants.filter_map(|(stage, variant)| {
        by_variant.get(&(stage.id.as_str(), variant)).map(|found| summary(stage, variant, found, backend))
    });
    summarised.collect()
}

fn summary(stage: &StageBuild, variant: &str, found: &Found<'_>, backend: BackendKind) -> Row {
    let (mut checked, mut unsupported, mut failed) = (0_usize, 0_usize, 0_usize);
    let mut row = Row::new(Subject::variant(&stage.id, variant), On::All, rows::backend(backend));
    let mut results: Vec<(Cow<'_, GateResult>, Option<&CaseKey>)> = Vec::new();
    for case in &found.cases {
        let key = &case.key;
        match &case.outcome {
            Outcome::Checked { errors, gates } => {
                checked += 1;
                results.extend(gates.iter().map(|gate| (Cow::Borrowed(gate), Some(key))));
                if is_worse(row.value(Metric::MaxError), errors.max_abs) {
                    row = row.figure(Metric::MaxError, errors.max_abs).figure(Metric::MaxRowError, errors.max_row_rel);
                    row = row.note(describe(key));
                }
                let of_bound = [
                    (Metric::ErrorOfBound, errors.max_abs / errors.c2_bound()),
                    (Metric::RowErrorOfBound, errors.max_row_rel / errors.c3_bound()),
                ];
                for (metric, value) in of_bound {
                    if is_worse(row.value(metric), value) {
                        row = row.figure(metric, value);
                    }
                }
            }
            Outcome::Unsupported { .. } => unsupported += 1,
            Outcome::Failed { reason } => {
                failed += 1;
                let result = GateResult::judge(GateId::C1, false, format!("the launch failed: {reason}"));
                results.push((Cow::Owned(result), Some(key)));
            }
        }
    }
    results.extend(found.broken.iter().map(|broken| (Cow::Borrowed(&broken.result), None)));
    row = row
        .figure(Metric::Cases, checked)
        .figure(Metric::CasesUnsupported, unsupported)
        .figure(Metric::CasesFailed, failed);
    let kernels = stage.variant(variant).map_or(&[][..], |variant| &variant.kernels);
    let tile = |key: &CaseKey| {
        let facts = kernels.iter().map(|kernel| &kernel.facts);
        let mut instance = facts.filter(|facts| (facts.dtype, facts.head_dim) == (key.dtype, key.shape.head_dim));
        instance.next().map(|facts| [facts.block_m, facts.block_n])
    };
    let gates: BTreeSet<GateId> = results.iter().map(|(result, _)| result.gate).collect();
    for gate in gates {
        row.judge(gate, fold(gate, &results, tile));
    }
    row
}

/// No number is worse than any.
fn is_worse(worst: Option<f64>, value: f64) -> bool {
    worst.is_none_or(|worst| !(value <= worst || worst.is_nan()))
}

/// Any FAIL, else any AMBIGUOUS, else any PASS, else NO DATA; with the reason of the first case that decided, and, of
/// several cases of which some fail, what tells those from the others.
fn fold(
    gate: GateId,
    results: &[(Cow<'_, GateResult>, Option<&CaseKey>)],
    tile: impl Fn(&CaseKey) -> Option<[usize; 2]>,
) -> Judged {
    let of_gate: Vec<_> = results.iter().filter(|(result, _)| result.gate == gate).collect();
    let count = |verdict: Verdict| of_gate.iter().filter(|(result, _)| result.verdict == verdict).count();
    let (passed, judged) = (count(Verdict::Pass), of_gate.len() - count(Verdict::NoData));
    let decisive = [Verdict::Fail, Verdict::Ambiguous, Verdict::Pass, Verdict::NoData]
        .into_iter()
        .find(|&verdict| count(verdict) > 0)
        .expect("the gate has results");
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
    let reason = format!("{which}{case}{}", result.reason);
    Judged::from(&GateResult { gate, verdict: decisive, reason }).cases(passed, judged)
}
