//! Summarises the cases of each variant in one row.

use super::plan::PlannedCase;
use crate::judge::state::rank;
use crate::table::{Judged, On, Row, Run, Source, Subject};
use common::gate;
use common::metric::Metric;
use common::verdict::{GateId, Verdict};
use std::collections::{BTreeMap, HashMap};

/// Updates the summary row of each variant from its cases, and from the self-test if that found it broken. A variant has one once
/// all cases `planned` for it have been run or one of them fails: an interrupted run leaves whole variants.
pub fn summarise(run: &mut Run, planned: &[PlannedCase]) {
    let mut awaited: HashMap<&Subject, usize> = HashMap::new();
    for case in planned {
        *awaited.entry(&case.subject).or_default() += 1;
    }
    let mut by_variant: HashMap<&Subject, Vec<&Row>> = HashMap::new();
    for row in run.cases().chain(run.table.by(Source::SelfTest)) {
        by_variant.entry(&row.subject).or_default().push(row);
    }
    let by = run.session.backend.into();
    let summarised = |subject| {
        let rows = by_variant.get(&subject)?;
        let cases = rows.iter().filter(|row| is_case(row)).count();
        let is_whole = cases >= awaited.get(&subject).copied().unwrap_or(0);
        let is_red = rows.iter().any(|row| row.failure().is_some());
        (is_whole || is_red).then(|| summary(subject, by, rows))
    };
    let rows: Vec<Row> = run.variants().filter_map(summarised).collect();
    run.extend(rows);
}

pub fn summary(subject: Subject, by: Source, rows: &[&Row]) -> Row {
    let mut row = Row::new(subject, On::All, by);
    let (mut checked, mut unsupported, mut failed) = (0_usize, 0_usize, 0_usize);
    for case in rows.iter().filter(|row| is_case(row)) {
        match case.value(Metric::MaxError) {
            None if case.verdicts.is_empty() => unsupported += 1,
            None => failed += 1,
            Some(max) => {
                checked += 1;
                if is_worse(&row, Metric::MaxError, max) {
                    let figures = [Metric::MaxError, Metric::MaxRowError]
                        .map(|metric| (metric, case.value(metric).unwrap_or(max)));
                    row = row.note(case.on.to_string()).with_figures(figures);
                }
                for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
                    if let Some(value) = case.value(metric)
                        && is_worse(&row, metric, value)
                    {
                        row = row.figure(metric, value);
                    }
                }
            }
        }
    }
    row = row
        .figure(Metric::Cases, checked)
        .figure(Metric::CasesUnsupported, unsupported)
        .figure(Metric::CasesFailed, failed);
    let mut by_gate: BTreeMap<GateId, Vec<(&Row, &Judged)>> = BTreeMap::new();
    for of in rows {
        for (gate, judged) in &of.verdicts {
            by_gate.entry(*gate).or_default().push((of, judged));
        }
    }
    for (gate, said) in by_gate {
        row.judge(gate, fold(&said));
    }
    row
}

fn is_case(row: &Row) -> bool {
    matches!(row.on, On::Case(..))
}

/// NaN is worse than any error, and any error is worse than none.
fn is_worse(row: &Row, metric: Metric, error: f64) -> bool {
    row.value(metric)
        .is_none_or(|worst| gate::is_worse(worst, error))
}

/// The verdict of one gate over all rows: FAIL if any fails, else AMBIGUOUS if any is, else PASS if any passes, else NO DATA; with
/// the reason of the first that decides and, if only some cases fail, how many.
fn fold(said: &[(&Row, &Judged)]) -> Judged {
    let (
        row,
        Judged {
            verdict, reason, ..
        },
    ) = said
        .iter()
        .min_by_key(|(_, judged)| rank(judged.verdict))
        .expect("the gate has results");
    let with = |verdict: Verdict| {
        said.iter()
            .filter(move |(_, judged)| judged.verdict == verdict)
    };
    let cases = |verdict: Verdict| -> Vec<&Row> {
        let rows = with(verdict).map(|(row, _)| *row);
        rows.filter(|row| is_case(row)).collect()
    };
    let (failing, passing) = (cases(Verdict::Fail), cases(Verdict::Pass));
    let which = match failing.is_empty() || failing.len() + passing.len() == 1 {
        true => String::new(),
        false => format!(
            "fails in {} of {} cases; first ",
            failing.len(),
            failing.len() + passing.len()
        ),
    };
    let reason = match (verdict, is_case(row)) {
        (Verdict::Pass, _) => String::new(),
        (_, true) => format!("{which}{}: {reason}", row.on),
        (_, false) => format!("{which}{reason}"),
    };
    Judged {
        verdict: *verdict,
        passed: Some(passing.len()),
        of: Some(said.len() - with(Verdict::NoData).count()),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::Mode;
    use crate::table::{Place, Source as By};
    use crate::testing::{SCALAR, WMMA, case};
    use common::check::{NoOutput, Outcome, Source};
    use common::device::BackendKind;
    use common::inputs::Family;
    use common::problem::{Dtype, Mask};
    use common::stage::Unsupported;
    use common::suppression::Broken;
    use common::verdict::GateResult;

    fn summed(rows: &[Row], backend: BackendKind) -> Vec<Row> {
        let mut run = Run::new(crate::testing::session(crate::testing::ladder()));
        run.session.backend = backend;
        run.extend(rows.iter().cloned());
        summarise(&mut run, &[]);
        let rows = run.table.rows().filter(|row| row.on == On::All);
        rows.cloned().collect()
    }

    /// The row of `wmma-qk-32x64` over cases of seeds 0, 1, ….
    fn of(cases: Vec<Row>) -> Row {
        let numbered = cases.into_iter().zip(0..).map(|(mut row, seed)| {
            if let On::Case(_, input) = &mut row.on {
                *input = format!("normal:{seed}");
            }
            row
        });
        let mut rows = summed(&numbered.collect::<Vec<_>>(), BackendKind::Emulated);
        assert_eq!((rows.len(), rows[0].subject.as_str()), (1, WMMA));
        rows.remove(0)
    }

    fn green() -> Row {
        case(WMMA, By::Emulator, None)
    }

    /// A case that came to another end.
    fn ended(outcome: &Outcome) -> Row {
        crate::measure::rows::of_outcome(Row::new(WMMA, green().on, By::Emulator), outcome)
    }

    /// A case that checked one gate.
    fn said(verdict: Verdict) -> Row {
        let Row { verdicts, .. } = Row::new(WMMA, On::All, By::Emulator).verdict(&GateResult {
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
            let row = of(verdicts.iter().map(|verdict| said(*verdict)).collect());
            let found = &row.verdicts[&GateId::C5];
            assert_eq!(
                (found.verdict, found.passed, found.of),
                (expected, Some(passed), Some(judged)),
                "{verdicts:?}"
            );
            assert_eq!(found.reason, reason, "{verdicts:?}");
        }
        let mut causal = case(WMMA, By::Emulator, Some(GateId::C2));
        causal.on = On::Case(
            Place::new("mission", Dtype::F16, Mask::Causal),
            String::new(),
        );
        let reason = of(vec![green(), causal, green()]).verdicts[&GateId::C2]
            .reason
            .clone();
        assert!(
            reason.starts_with("fails in 1 of 3 cases; first mission f16 causal"),
            "{reason}"
        );
    }

    #[test]
    fn a_variant_is_summed_up_once_all_of_its_cases_have_run_or_one_is_red() {
        let planned = |row: &Row| {
            let On::Case(place, _) = &row.on else {
                unreachable!("it is a case")
            };
            PlannedCase {
                subject: row.subject.clone(),
                source: Source::Seeded {
                    family: Family::Normal,
                    seed: 0,
                },
                problem: place.problem().unwrap(),
                mode: Mode::Plain,
            }
        };
        let both = [&green(), &case(SCALAR, By::Emulator, None)].map(planned);
        let summed = |cases: Vec<Row>, planned: &[PlannedCase]| -> Vec<String> {
            let mut run = Run::new(crate::testing::session(crate::testing::ladder()));
            run.extend(cases);
            summarise(&mut run, planned);
            let rows = run.table.rows().filter(|row| row.on == On::All);
            rows.map(|row| row.subject.to_string()).collect()
        };
        let red = || case(WMMA, By::Emulator, Some(GateId::C2));
        assert_eq!(summed(vec![green()], &both), [WMMA]);
        let twice = [both[0].clone(), both[0].clone(), both[1].clone()];
        assert_eq!(summed(vec![green()], &twice), [""; 0]);
        assert_eq!(summed(vec![red()], &twice), [WMMA]);
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
            let row = of(errors.map(with).into());
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
        let row = of(vec![green(), lost, unsupported, green()]);
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
        for mut rows in [vec![], vec![green()]] {
            rows.push(crate::measure::rows::broken(&broken));
            let row = of(rows);
            assert_eq!(row.verdicts[&GateId::H1].reason, "race in block [0, 0, 0]");
        }
        let both = [case(SCALAR, By::Gpu, None), case(WMMA, By::Gpu, None)];
        let rows = summed(&both, BackendKind::Cuda);
        assert_eq!(
            rows.iter()
                .map(|row| (row.subject.as_str(), row.by))
                .collect::<Vec<_>>(),
            [(SCALAR, By::Gpu), (WMMA, By::Gpu)]
        );
    }
}
