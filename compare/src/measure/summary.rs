//! From cases to one row per variant.

use super::distinction::tell_apart;
use super::rows;
use crate::measure::builds::StageBuild;
use crate::record::{Judged, On, Row, Subject};
use common::check::CaseKey;
use common::device::BackendKind;
use common::metric::Metric;
use common::suppression::Broken;
use common::verdict::{GateId, GateResult, Verdict};
use std::collections::{BTreeSet, HashMap};

/// A case in words: `mission f16 full normal:0`.
pub fn describe(key: &CaseKey) -> String {
    format!("{} {} {} {}", key.shape_name, key.dtype, key.mask, rows::input(key))
}

/// What there is to sum up of a variant.
#[derive(Default)]
struct Found<'a> {
    cases: Vec<(&'a CaseKey, &'a Row)>,
    broken: Vec<&'a Broken>,
}

/// One row per variant of `stages` that has a case, or that was seen to fail a gate while its synchronisation sites were
/// tried.
pub fn summarise<'a>(
    stages: impl IntoIterator<Item = &'a StageBuild>,
    cases: &[(CaseKey, &Row)],
    broken: &[Broken],
    backend: BackendKind,
) -> Vec<Row> {
    let mut by_variant: HashMap<(&str, &str), Found<'_>> = HashMap::new();
    for (key, row) in cases {
        by_variant.entry((&key.stage, &key.variant)).or_default().cases.push((key, row));
    }
    for broken in broken {
        by_variant.entry((&broken.stage, &broken.variant)).or_default().broken.push(broken);
    }
    let variants =
        stages.into_iter().flat_map(|stage| stage.variants.iter().map(move |variant| (stage, variant.name.as_str())));
    let summarised = variants.filter_map(|(stage, variant)| {
        by_variant.get(&(stage.id.as_str(), variant)).map(|found| summary(stage, variant, found, backend))
    });
    summarised.collect()
}

fn summary(stage: &StageBuild, variant: &str, found: &Found<'_>, backend: BackendKind) -> Row {
    let (mut checked, mut unsupported, mut failed) = (0_usize, 0_usize, 0_usize);
    let mut row = Row::new(Subject::variant(&stage.id, variant), On::All, rows::backend(backend));
    let mut results: Vec<Judgement<'_>> = Vec::new();
    for &(key, case) in &found.cases {
        let is_judged = !case.verdicts.is_empty();
        match (is_judged, case.value(Metric::MaxError)) {
            (true, Some(max)) => {
                checked += 1;
                if is_worse(row.value(Metric::MaxError), max) {
                    row = row.note(describe(key));
                    let with = [Metric::MaxError, Metric::MaxRowError];
                    row =
                        with.into_iter().fold(row, |row, metric| row.figure(metric, case.value(metric).unwrap_or(max)));
                }
                for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
                    if let Some(value) = case.value(metric).filter(|value| is_worse(row.value(metric), *value)) {
                        row = row.figure(metric, value);
                    }
                }
            }
            (true, None) => failed += 1,
            (false, _) => unsupported += 1,
        }
        let said = case.verdicts.iter();
        results.extend(said.map(|(gate, said)| (*gate, said.verdict, said.reason.as_str(), Some(key))));
    }
    let of_broken = found.broken.iter().map(|broken| &broken.result);
    results.extend(of_broken.map(|result| (result.gate, result.verdict, result.reason.as_str(), None)));
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
    let gates: BTreeSet<GateId> = results.iter().map(|(gate, ..)| *gate).collect();
    for gate in gates {
        row.judge(gate, fold(gate, &results, tile));
    }
    row
}

/// What a gate said, why, and of which case.
type Judgement<'a> = (GateId, Verdict, &'a str, Option<&'a CaseKey>);

/// No number is worse than any.
fn is_worse(worst: Option<f64>, value: f64) -> bool {
    worst.is_none_or(|worst| !(value <= worst || worst.is_nan()))
}

/// Any FAIL, else any AMBIGUOUS, else any PASS, else NO DATA; with the reason of the first case that decided, and, of
/// several cases of which some fail, what tells those from the others.
fn fold(gate: GateId, results: &[Judgement<'_>], tile: impl Fn(&CaseKey) -> Option<[usize; 2]>) -> Judged {
    let of_gate: Vec<_> = results.iter().filter(|(other, ..)| *other == gate).collect();
    let count = |wanted: Verdict| of_gate.iter().filter(|(_, verdict, ..)| *verdict == wanted).count();
    let (passed, judged) = (count(Verdict::Pass), of_gate.len() - count(Verdict::NoData));
    let decisive = Verdict::WORST_FIRST.into_iter().find(|&verdict| count(verdict) > 0).expect("the gate has results");
    let (.., reason, key) = of_gate.iter().find(|(_, verdict, ..)| *verdict == decisive).expect("counted above");
    let case = key.map(|key| format!("{}: ", describe(key))).unwrap_or_default();
    let cases = |wanted: Verdict| -> Vec<&CaseKey> {
        of_gate.iter().filter(|(_, verdict, ..)| *verdict == wanted).filter_map(|(.., key)| *key).collect()
    };
    let (failing, passing) = (cases(Verdict::Fail), cases(Verdict::Pass));
    let which = match failing.is_empty() || failing.len() + passing.len() == 1 {
        true => String::new(),
        false => format!("{}; first ", tell_apart(&failing, &passing, tile)),
    };
    let reason = format!("{which}{case}{reason}");
    Judged::from(&GateResult { gate, verdict: decisive, reason }).cases(passed, judged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SCALAR, WMMA, builds, case};
    use common::check::Source;
    use common::check::{CaseResult, Outcome};
    use common::inputs::Family;
    use common::problem::Mask;

    fn summed(cases: &[CaseResult], broken: &[Broken], backend: BackendKind) -> Vec<Row> {
        let rows: Vec<Row> = cases.iter().map(rows::case).collect();
        let keyed: Vec<(CaseKey, &Row)> = cases.iter().map(|case| case.key.clone()).zip(&rows).collect();
        summarise(&builds(), &keyed, broken, backend)
    }

    /// The row of `wmma-qk-32x64` over cases of seeds 0, 1, ….
    fn of(cases: Vec<CaseResult>, broken: &[Broken]) -> Row {
        let numbered = cases.into_iter().zip(0..).map(|(mut case, seed)| {
            case.key.source = Source::Seeded { family: Family::Normal, seed };
            case
        });
        let mut rows = summed(&numbered.collect::<Vec<_>>(), broken, BackendKind::Emulated);
        assert_eq!((rows.len(), rows[0].subject.as_str()), (1, WMMA));
        rows.remove(0)
    }

    fn green() -> CaseResult {
        case(WMMA, BackendKind::Emulated, None)
    }

    /// A case that checked one gate.
    fn said(verdict: Verdict) -> CaseResult {
        let mut case = green();
        let Outcome::Checked { gates, .. } = &mut case.outcome else { unreachable!() };
        *gates = vec![GateResult { gate: GateId::C5, verdict, reason: verdict.to_string() }];
        case
    }

    #[test]
    fn any_fail_else_any_ambiguous_else_any_pass_else_no_data() {
        use Verdict::{Ambiguous, Fail, NoData, Pass};
        let table: [(&[Verdict], Verdict, [usize; 2], &str); 7] = [
            (&[Pass], Pass, [1, 1], ""),
            (&[NoData, NoData], NoData, [0, 0], "mission f16 full normal:0: NO DATA"),
            (&[NoData, Pass, Pass], Pass, [2, 2], ""),
            (&[Pass, Ambiguous, NoData], Ambiguous, [1, 2], "mission f16 full normal:1: AMBIGUOUS"),
            (&[Fail], Fail, [0, 1], "mission f16 full normal:0: FAIL"),
            (&[Ambiguous, Fail, Pass], Fail, [1, 3], "fails in 1 of 2 cases; first mission f16 full normal:1: FAIL"),
            (&[Fail, Fail], Fail, [0, 2], "fails in 2 of 2 cases; first mission f16 full normal:0: FAIL"),
        ];
        for (verdicts, expected, [passed, judged], reason) in table {
            let row = of(verdicts.iter().map(|verdict| said(*verdict)).collect(), &[]);
            let found = &row.verdicts[&GateId::C5];
            assert_eq!((found.verdict, found.passed, found.of), (expected, Some(passed), Some(judged)), "{verdicts:?}");
            assert_eq!(found.reason, reason, "{verdicts:?}");
        }
        // What the failing cases share is said.
        let mut causal = case(WMMA, BackendKind::Emulated, Some(GateId::C2));
        causal.key.mask = Mask::Causal;
        let reason = of(vec![green(), causal, green()], &[]).verdicts[&GateId::C2].reason.clone();
        assert!(
            reason.starts_with("fails in 1 of 3 cases: exactly those with causal mask; first mission f16 causal"),
            "{reason}"
        );
    }

    #[test]
    fn the_worst_error_is_the_largest_and_no_number_is_larger_than_any() {
        const NAN: f64 = f64::NAN;
        for (errors, seed) in [
            ([1.0, 3.0, 2.0], 1),
            ([3.0, 1.0, 2.0], 0),
            ([1.0, NAN, 2.0], 1),
            ([NAN, 1.0, 2.0], 0),
            ([1.0, 2.0, NAN], 2),
            ([1.0, NAN, f64::INFINITY], 1),
        ] {
            let with = |max: f64| {
                let mut case = green();
                let Outcome::Checked { errors, .. } = &mut case.outcome else { unreachable!() };
                (errors.max_abs, errors.max_row_rel) = (max, max);
                case
            };
            let row = of(errors.map(with).into(), &[]);
            for metric in [Metric::MaxError, Metric::ErrorOfBound, Metric::RowErrorOfBound] {
                let found = row.value(metric).unwrap();
                assert_eq!(found.is_nan(), errors[seed].is_nan(), "{errors:?} {metric}: {found}");
            }
            assert!(errors[seed].is_nan() || row.value(Metric::MaxError) == Some(errors[seed]));
            assert_eq!(row.note, Some(format!("mission f16 full normal:{seed}")), "{errors:?}");
        }
    }

    #[test]
    fn cases_are_counted_by_how_they_ended_and_hazards_elsewhere_count() {
        let mut lost = green();
        lost.outcome = Outcome::Failed { reason: "deadlock at kernel.cu:88".into() };
        let mut unsupported = green();
        unsupported.outcome = Outcome::Unsupported { reason: "too long".into() };
        let row = of(vec![green(), lost, unsupported, green()], &[]);
        let counts = [Metric::Cases, Metric::CasesFailed, Metric::CasesUnsupported].map(|metric| row.value(metric));
        assert_eq!(counts, [2.0, 1.0, 1.0].map(Some));
        let c1 = &row.verdicts[&GateId::C1];
        assert!(
            c1.verdict == Verdict::Fail && c1.reason.ends_with("the launch failed: deadlock at kernel.cu:88"),
            "{c1:?}"
        );

        let hazard = GateResult::judge(GateId::H1, false, "race in block [0, 0, 0]");
        let broken = Broken { stage: "stage0-scalar".into(), variant: "wmma-qk-32x64".into(), result: hazard };
        for cases in [vec![], vec![green()]] {
            let row = of(cases, std::slice::from_ref(&broken));
            assert_eq!(row.verdicts[&GateId::H1].reason, "race in block [0, 0, 0]");
        }
        let both = [case(SCALAR, BackendKind::Cuda, None), case(WMMA, BackendKind::Cuda, None)];
        let rows = summed(&both, &[], BackendKind::Cuda);
        assert_eq!(
            rows.iter().map(|row| (row.subject.as_str(), row.by)).collect::<Vec<_>>(),
            [(SCALAR, crate::record::Source::Gpu), (WMMA, crate::record::Source::Gpu),]
        );
    }
}
