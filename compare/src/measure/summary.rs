//! From cases to one row per variant.

use super::distinction::{Case, tell_apart};

use crate::judge::state::rank;
use crate::measure::builds::StageBuild;
use crate::record::{Judged, On, Row, Subject};
use common::device::BackendKind;
use common::gate;
use common::metric::Metric;
use common::suppression::Broken;
use common::verdict::{GateId, GateResult, Verdict};
use std::collections::{BTreeSet, HashMap};

/// What is known of a variant: its cases, and how it failed with all its synchronisation in place.
#[derive(Default)]
struct Found<'a> {
    cases: Vec<&'a Case<'a>>,
    broken: Vec<&'a Broken>,
}

/// The row of each variant that has a case, or is broken.
pub fn summarise<'a>(
    stages: impl IntoIterator<Item = &'a StageBuild>,
    cases: &[Case<'_>],
    broken: &[Broken],
    backend: BackendKind,
) -> Vec<Row> {
    let mut by_variant: HashMap<Subject, Found<'_>> = HashMap::new();
    for case in cases {
        by_variant
            .entry(case.row.subject.clone())
            .or_default()
            .cases
            .push(case);
    }
    for broken in broken {
        let subject = Subject::variant(&broken.stage, &broken.variant);
        by_variant.entry(subject).or_default().broken.push(broken);
    }
    let variants = stages
        .into_iter()
        .flat_map(|stage| stage.subjects().map(move |subject| (stage, subject)));
    variants
        .filter_map(|(stage, subject)| {
            Some(summary(stage, by_variant.get(&subject)?, subject, backend))
        })
        .collect()
}

fn summary(stage: &StageBuild, found: &Found<'_>, subject: Subject, backend: BackendKind) -> Row {
    let (mut checked, mut unsupported, mut failed) = (0_usize, 0_usize, 0_usize);
    let variant = stage.variant(subject.name());
    let mut row = Row::new(subject, On::All, backend.into());
    let mut results: Vec<Judgement<'_>> = Vec::new();
    for &of in &found.cases {
        let case = of.row;
        let is_judged = !case.verdicts.is_empty();
        match (is_judged, case.value(Metric::MaxError)) {
            (true, Some(max)) => {
                checked += 1;
                if is_worse(row.value(Metric::MaxError), max) {
                    row = row.note(case.on.to_string());
                    let with = [Metric::MaxError, Metric::MaxRowError];
                    row = row.with_figures(
                        with.map(|metric| (metric, case.value(metric).unwrap_or(max))),
                    );
                }
                for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
                    if let Some(value) = case
                        .value(metric)
                        .filter(|value| is_worse(row.value(metric), *value))
                    {
                        row = row.figure(metric, value);
                    }
                }
            }
            (true, None) => failed += 1,
            (false, _) => unsupported += 1,
        }
        let said = case.verdicts.iter();
        results
            .extend(said.map(|(gate, said)| (*gate, said.verdict, said.reason.as_str(), Some(of))));
    }
    let of_broken = found.broken.iter().map(|broken| &broken.result);
    results.extend(
        of_broken.map(|result| (result.gate, result.verdict, result.reason.as_str(), None)),
    );
    row = row
        .figure(Metric::Cases, checked)
        .figure(Metric::CasesUnsupported, unsupported)
        .figure(Metric::CasesFailed, failed);
    let tile = |case: &Case<'_>| {
        let facts = &variant?
            .instance(case.place.dtype, case.shape.head_dim)?
            .facts;
        Some([facts.block_m, facts.block_n])
    };
    let gates: BTreeSet<GateId> = results.iter().map(|(gate, ..)| *gate).collect();
    for gate in gates {
        row.judge(gate, fold(gate, &results, tile));
    }
    row
}

/// What a gate said, why, and of which case.
type Judgement<'a> = (GateId, Verdict, &'a str, Option<&'a Case<'a>>);

/// No number is worse than any, and any is worse than none.
fn is_worse(worst: Option<f64>, value: f64) -> bool {
    worst.is_none_or(|worst| gate::is_worse(worst, value))
}

/// Any FAIL, else any AMBIGUOUS, else any PASS, else NO DATA; with the reason of the first case that decided, and, of
/// several cases of which some fail, what tells those from the others.
fn fold(
    gate: GateId,
    results: &[Judgement<'_>],
    tile: impl Fn(&Case<'_>) -> Option<[usize; 2]>,
) -> Judged {
    let of_gate: Vec<_> = results
        .iter()
        .filter(|(other, ..)| *other == gate)
        .collect();
    let count = |wanted: Verdict| {
        of_gate
            .iter()
            .filter(|(_, verdict, ..)| *verdict == wanted)
            .count()
    };
    let (passed, judged) = (count(Verdict::Pass), of_gate.len() - count(Verdict::NoData));
    let (_, decisive, reason, case) = of_gate
        .iter()
        .min_by_key(|(_, verdict, ..)| rank(*verdict))
        .expect("the gate has results");
    let at = case
        .map(|case| format!("{}: ", case.row.on))
        .unwrap_or_default();
    let cases = |wanted: Verdict| -> Vec<&Case<'_>> {
        of_gate
            .iter()
            .filter(|(_, verdict, ..)| *verdict == wanted)
            .filter_map(|(.., case)| *case)
            .collect()
    };
    let (failing, passing) = (cases(Verdict::Fail), cases(Verdict::Pass));
    let which = match failing.is_empty() || failing.len() + passing.len() == 1 {
        true => String::new(),
        false => format!("{}; first ", tell_apart(&failing, &passing, tile)),
    };
    let reason = format!("{which}{at}{reason}");
    Judged::from(&GateResult {
        gate,
        verdict: *decisive,
        reason,
    })
    .cases(passed, judged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Place, Source};
    use crate::testing::{SCALAR, WMMA, builds, case};
    use common::check::{NoOutput, Outcome};
    use common::problem::{Dtype, Mask};
    use common::stage::Unsupported;

    fn summed(cases: &[Row], broken: &[Broken], backend: BackendKind) -> Vec<Row> {
        let meta = crate::testing::meta(vec![]);
        let cases: Vec<Case<'_>> = cases
            .iter()
            .filter_map(|row| Case::of(row, &meta))
            .collect();
        summarise(&builds(), &cases, broken, backend)
    }

    /// The row of `wmma-qk-32x64` over cases of seeds 0, 1, ….
    fn of(cases: Vec<Row>, broken: &[Broken]) -> Row {
        let numbered = cases.into_iter().zip(0..).map(|(mut row, seed)| {
            let On::Case(_, input) = &mut row.on else {
                unreachable!()
            };
            *input = format!("normal:{seed}");
            row
        });
        let mut rows = summed(&numbered.collect::<Vec<_>>(), broken, BackendKind::Emulated);
        assert_eq!((rows.len(), rows[0].subject.as_str()), (1, WMMA));
        rows.remove(0)
    }

    fn green() -> Row {
        case(WMMA, Source::Emulator, None)
    }

    /// A case that came to another end.
    fn ended(outcome: &Outcome) -> Row {
        crate::measure::rows::of_outcome(Row::new(WMMA, green().on, Source::Emulator), outcome)
    }

    /// A case that checked one gate.
    fn said(verdict: Verdict) -> Row {
        let Row { verdicts, .. } = Row::new(WMMA, On::All, Source::Emulator).verdict(&GateResult {
            gate: GateId::C5,
            verdict,
            reason: verdict.to_string(),
        });
        Row {
            verdicts,
            ..green()
        }
    }

    #[test]
    fn any_fail_else_any_ambiguous_else_any_pass_else_no_data() {
        use Verdict::{Ambiguous, Fail, NoData, Pass};
        let table: [(&[Verdict], Verdict, [usize; 2], &str); 7] = [
            (&[Pass], Pass, [1, 1], ""),
            (
                &[NoData, NoData],
                NoData,
                [0, 0],
                "mission f16 full normal:0: NO DATA",
            ),
            (&[NoData, Pass, Pass], Pass, [2, 2], ""),
            (
                &[Pass, Ambiguous, NoData],
                Ambiguous,
                [1, 2],
                "mission f16 full normal:1: AMBIGUOUS",
            ),
            (&[Fail], Fail, [0, 1], "mission f16 full normal:0: FAIL"),
            (
                &[Ambiguous, Fail, Pass],
                Fail,
                [1, 3],
                "fails in 1 of 2 cases; first mission f16 full normal:1: FAIL",
            ),
            (
                &[Fail, Fail],
                Fail,
                [0, 2],
                "fails in 2 of 2 cases; first mission f16 full normal:0: FAIL",
            ),
        ];
        for (verdicts, expected, [passed, judged], reason) in table {
            let row = of(verdicts.iter().map(|verdict| said(*verdict)).collect(), &[]);
            let found = &row.verdicts[&GateId::C5];
            assert_eq!(
                (found.verdict, found.passed, found.of),
                (expected, Some(passed), Some(judged)),
                "{verdicts:?}"
            );
            assert_eq!(found.reason, reason, "{verdicts:?}");
        }
        // What the failing cases share is said.
        let mut causal = case(WMMA, Source::Emulator, Some(GateId::C2));
        causal.on = On::Case(
            Place::new("mission", Dtype::F16, Mask::Causal),
            String::new(),
        );
        let reason = of(vec![green(), causal, green()], &[]).verdicts[&GateId::C2]
            .reason
            .clone();
        assert!(
            reason.starts_with(
                "fails in 1 of 3 cases: exactly those with causal mask; first mission f16 causal"
            ),
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
                let metrics = [
                    Metric::MaxError,
                    Metric::MaxRowError,
                    Metric::ErrorOfBound,
                    Metric::RowErrorOfBound,
                ];
                metrics
                    .into_iter()
                    .fold(green(), |row, metric| row.figure(metric, max))
            };
            let row = of(errors.map(with).into(), &[]);
            for metric in [
                Metric::MaxError,
                Metric::ErrorOfBound,
                Metric::RowErrorOfBound,
            ] {
                let found = row.value(metric).unwrap();
                assert_eq!(
                    found.is_nan(),
                    errors[seed].is_nan(),
                    "{errors:?} {metric}: {found}"
                );
            }
            assert!(errors[seed].is_nan() || row.value(Metric::MaxError) == Some(errors[seed]));
            assert_eq!(
                row.note,
                Some(format!("mission f16 full normal:{seed}")),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn cases_are_counted_by_how_they_ended_and_hazards_elsewhere_count() {
        let lost = ended(&Err(NoOutput::Failed {
            reason: "deadlock at kernel.cu:88".into(),
            fatal: false,
        }));
        let reason = "too long".into();
        let unsupported = ended(&Err(Unsupported::ByItself { reason }.into()));
        let row = of(vec![green(), lost, unsupported, green()], &[]);
        let counts = [Metric::Cases, Metric::CasesFailed, Metric::CasesUnsupported]
            .map(|metric| row.value(metric));
        assert_eq!(counts, [2.0, 1.0, 1.0].map(Some));
        let c1 = &row.verdicts[&GateId::C1];
        assert!(
            c1.verdict == Verdict::Fail
                && c1
                    .reason
                    .ends_with("the launch failed: deadlock at kernel.cu:88"),
            "{c1:?}"
        );

        let hazard = GateResult::judge(GateId::H1, false, "race in block [0, 0, 0]");
        let broken = Broken {
            stage: "stage0-scalar".into(),
            variant: "wmma-qk-32x64".into(),
            result: hazard,
        };
        for cases in [vec![], vec![green()]] {
            let row = of(cases, std::slice::from_ref(&broken));
            assert_eq!(row.verdicts[&GateId::H1].reason, "race in block [0, 0, 0]");
        }
        let both = [
            case(SCALAR, Source::Gpu, None),
            case(WMMA, Source::Gpu, None),
        ];
        let rows = summed(&both, &[], BackendKind::Cuda);
        assert_eq!(
            rows.iter()
                .map(|row| (row.subject.as_str(), row.by))
                .collect::<Vec<_>>(),
            [(SCALAR, Source::Gpu), (WMMA, Source::Gpu)]
        );
    }
}
