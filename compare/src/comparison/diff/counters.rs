//! The emulator's counters. Exact for one host compiler, on any machine.

use super::latency::word_on;
use super::{Class, Metric, Reason, Row};
use crate::comparison::differing;
use common::evidence::Quantity;
use common::problem::{Dtype, Mask};
use common::record::{Record, VariantCounters};

/// Counters of what only costs: bank conflicts, and sectors of global memory. Of the other counters more may be better,
/// such as tensor operations.
pub fn is_waste(quantity: Quantity) -> bool {
    matches!(
        quantity,
        Quantity::SharedReadConflicts
            | Quantity::SharedWriteConflicts
            | Quantity::AsyncWriteConflicts
            | Quantity::GlobalReadSectors
            | Quantity::GlobalWriteSectors
    )
}

/// The counters of every variant that both sides counted: every difference is one. Waste counts unless the latency of the
/// counted problem (mission, f16, full mask) contradicts.
pub fn counters(base: &Record, new: &Record, latencies: &[Row]) -> Vec<Row> {
    let mut rows = Vec::new();
    for after in &new.evidence.counters {
        let same = |before: &&VariantCounters| (&before.stage, &before.variant) == (&after.stage, &after.variant);
        let Some(before) = base.evidence.counters.iter().find(same) else { continue };
        let none = |class, reason| Row::new(&after.stage, Some(&after.variant), Metric::Counter(None), class, reason);
        let (was, is) = match (before.counting.launch(), after.counting.launch()) {
            (Ok(was), Ok(is)) => (was, is),
            (Err(why), _) => {
                rows.push(none(Class::NoData, Reason::OneSideOnly).note(format!("base: {why}")));
                continue;
            }
            (_, Err(why)) => {
                let row = none(Class::NoData, Reason::NewlyMissing).note(format!("new: {why}"));
                rows.push(Row { required: true, ..row });
                continue;
            }
        };
        let compilers = [base, new].map(|record| compiler(record, &after.stage));
        if compilers[0] != compilers[1] {
            let note = format!("{} against {}", compilers[0], compilers[1]);
            rows.push(none(Class::NoData, Reason::OtherCompiler).note(note));
            continue;
        }
        let differing = differing(was, is);
        if differing.is_empty() {
            rows.push(none(Class::Same, Reason::Equal).note("exact"));
        }
        let is_counted = |problem: &super::Problem| {
            (problem.shape.as_str(), problem.dtype, problem.mask) == ("mission", Dtype::F16, Mask::Full)
        };
        let latency = word_on(latencies, &after.stage, &after.variant, is_counted);
        rows.extend(differing.into_iter().map(|(quantity, from, to)| {
            let (class, reason, note) = judge(quantity, to > from, latency);
            let metric = Metric::Counter(Some(quantity));
            let row = Row::new(&after.stage, Some(&after.variant), metric, class, reason);
            row.values(quantity.show(from), quantity.show(to)).note(note)
        }));
    }
    rows.extend(uncounted(base, new));
    rows
}

fn judge(quantity: Quantity, grew: bool, latency: Option<Class>) -> (Class, Reason, &'static str) {
    let opposite = if grew { Class::Faster } else { Class::Slower };
    match (is_waste(quantity), grew) {
        (false, _) => (Class::Changed, Reason::NoGoodSide, "exact; more may be better"),
        (true, _) if latency == Some(opposite) => {
            (Class::Changed, Reason::LatencyDecides, "the measured latency says the opposite")
        }
        (true, true) => (Class::Worse, Reason::CostMoved, "exact; only a cost"),
        (true, false) => (Class::Better, Reason::CostMoved, "exact; only a cost"),
    }
}

fn compiler<'a>(record: &'a Record, stage: &str) -> &'a str {
    let stage = record.meta.stages.iter().find(|build| build.id == stage);
    stage.map_or("unknown", |stage| &stage.host_compiler)
}

/// Variants that the base counted and the new record did not, though it counted others and still has them.
fn uncounted(base: &Record, new: &Record) -> Vec<Row> {
    let counted = |record: &Record, stage: &str, variant: &str| {
        record.evidence.counters.iter().any(|other| (other.stage.as_str(), other.variant.as_str()) == (stage, variant))
    };
    let mut rows = Vec::new();
    let stages = new.meta.stages.iter();
    for (stage, variant) in
        stages.flat_map(|stage| stage.variants.iter().map(move |variant| (stage.id.as_str(), variant.name.as_str())))
    {
        if counted(base, stage, variant) && !counted(new, stage, variant) && super::presence::covers(new, base) {
            let row = Row::new(stage, Some(variant), Metric::Counter(None), Class::NoData, Reason::NewlyMissing);
            rows.push(Row { required: true, ..row }.note("counted in the base only"));
        }
    }
    rows
}
