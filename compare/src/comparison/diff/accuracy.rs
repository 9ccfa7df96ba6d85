//! Errors against the reference, judged by the bounds of the gates that judge them.

use super::{Class, Metric, Reason, Row, summary_of};
use common::check::{CaseResult, Outcome};
use common::gate;
use common::record::{Record, StageBuild, VariantSummary};
use common::reference::Probability;
use common::verdict::GateId;
use std::collections::HashMap;

/// An error that moved by less than this share of its gate's bound has not changed: kernels that differ in the order of
/// their additions differ by a few percent of it.
pub const ERROR_MARGIN: f64 = 0.1;

/// The largest errors of every variant that both sides checked on the same backend and the same set of cases.
pub fn errors(base: &Record, new: &Record) -> Vec<Row> {
    let mut rows = Vec::new();
    let (before, after) = (by_key(base), by_key(new));
    for is in &new.correctness.variants {
        let Some(was) = summary_of(base, &is.stage, &is.variant) else { continue };
        let row = |gate, class, reason| Row::new(&is.stage, Some(&is.variant), Metric::Error(gate), class, reason);
        if base.meta.backend != new.meta.backend {
            let note = "another backend adds in another order";
            rows.push(row(GateId::C2, Class::NoData, Reason::OtherBackend).note(note));
            continue;
        }
        let shared: Vec<Case<'_>> = after
            .get(&(&*is.stage, &*is.variant))
            .into_iter()
            .flatten()
            .filter_map(|(key, case)| {
                let old = before.get(&(&*is.stage, &*is.variant))?.get(key)?;
                Case::of(old, case)
            })
            .collect();
        let same_cases = (base.meta.tier, &base.meta.scope) == (new.meta.tier, &new.meta.scope);
        if !shared.is_empty() {
            rows.extend(of_cases(&shared, &row));
        } else if same_cases {
            rows.extend(of_summaries(was, is, c3_bound(&new.meta.stages, is), &row));
        } else {
            let note = format!("tier {} against {}: other cases", base.meta.tier, new.meta.tier);
            rows.push(row(GateId::C2, Class::NoData, Reason::OtherCases).note(note));
        }
    }
    rows
}

type Cases<'a> = HashMap<(&'a str, &'a str), HashMap<String, &'a CaseResult>>;

fn by_key(record: &Record) -> Cases<'_> {
    let mut cases: Cases<'_> = HashMap::new();
    for case in &record.correctness.cases {
        let of_variant = cases.entry((&case.key.stage, &case.key.variant)).or_default();
        of_variant.insert(format!("{} {}", case.key.shape, crate::comparison::describe(&case.key)), case);
    }
    cases
}

/// One case on both sides.
struct Case<'a> {
    at: &'a CaseResult,
    errors: [(GateId, f64, f64, f64); 2],
}

impl<'a> Case<'a> {
    fn of(old: &CaseResult, case: &'a CaseResult) -> Option<Self> {
        let (Outcome::Checked { errors: was, .. }, Outcome::Checked { errors: is, .. }) = (&old.outcome, &case.outcome)
        else {
            return None;
        };
        let errors = [
            (GateId::C2, was.max_abs, is.max_abs, is.c2_bound()),
            (GateId::C3, was.max_row_rel, is.max_row_rel, is.c3_bound()),
        ];
        Some(Self { at: case, errors })
    }

    /// How far error `which` moved, as a share of its bound; no number is the worst, and any number better than none.
    fn moved(&self, which: usize) -> f64 {
        let (_, was, is, bound) = self.errors[which];
        match (is - was) / bound {
            moved if !moved.is_nan() => moved,
            _ if was.is_nan() && !is.is_nan() => f64::NEG_INFINITY,
            _ => f64::INFINITY,
        }
    }
}

/// Of the cases that both sides have, the one whose error moved furthest up; down where none moved up.
fn of_cases(cases: &[Case<'_>], row: &dyn Fn(GateId, Class, Reason) -> Row) -> Vec<Row> {
    let mut rows = Vec::new();
    for which in [0, 1] {
        let by = |a: &&Case<'_>, b: &&Case<'_>| a.moved(which).total_cmp(&b.moved(which));
        let (Some(up), Some(down)) = (cases.iter().max_by(by), cases.iter().min_by(by)) else { continue };
        let case = if up.moved(which) <= ERROR_MARGIN && down.moved(which) < -ERROR_MARGIN { down } else { up };
        let (gate, was, is, bound) = case.errors[which];
        let (class, reason) = judge(was, is, bound);
        let at = crate::comparison::describe(&case.at.key);
        let note = format!("of bound {bound:.1e} at {at}; margin {:.0} % of it", 100.0 * ERROR_MARGIN);
        rows.push(row(gate, class, reason).values(format!("{was:.2e}"), format!("{is:.2e}")).note(note));
    }
    rows
}

fn judge(was: f64, is: f64, bound: f64) -> (Class, Reason) {
    let crosses = was <= bound && is > bound;
    if is.is_nan() || crosses || (is - was) / bound > ERROR_MARGIN {
        (Class::Worse, Reason::BeyondMargin)
    } else if was.is_nan() || (was - is) / bound > ERROR_MARGIN {
        (Class::Better, Reason::BeyondMargin)
    } else {
        (Class::Same, Reason::WithinMargin)
    }
}

/// Where the cases were left out of a committed record: the row error at the largest error, whose bound is a constant.
/// C2's bound depends on the case and is not in the record; its gate's verdict is.
fn of_summaries(
    was: &VariantSummary,
    is: &VariantSummary,
    bound: f64,
    row: &dyn Fn(GateId, Class, Reason) -> Row,
) -> Vec<Row> {
    let (Some(old), Some(new)) = (&was.worst, &is.worst) else { return Vec::new() };
    let (class, reason) = judge(old.max_row, new.max_row, bound);
    let note = format!(
        "of bound {bound:.1e} at {}; single cases are not in both records, and the margin is {:.0} % of the bound",
        new.at,
        100.0 * ERROR_MARGIN
    );
    vec![
        row(GateId::C3, class, reason)
            .values(format!("{:.2e}", old.max_row), format!("{:.2e}", new.max_row))
            .note(note),
    ]
}

/// The tighter of the bounds that the variant's instances have.
fn c3_bound(stages: &[StageBuild], summary: &VariantSummary) -> f64 {
    let variant = stages.iter().find(|stage| stage.id == summary.stage).and_then(|s| s.variant(&summary.variant));
    let declared = variant.into_iter().flat_map(|variant| &variant.kernels).map(|kernel| kernel.facts.probability);
    let all_e4m3 = declared.clone().count() > 0 && declared.into_iter().all(|p| p == Probability::E4m3);
    if all_e4m3 { gate::C3_ROW_E4M3_P } else { gate::C3_ROW }
}
