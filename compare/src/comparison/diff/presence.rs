//! Whether what the base has is there at all.

use super::{Class, Metric, Reason, Row, summary_of};
use common::device::BackendKind;
use common::record::{Progress, Record, Scope, StageBuild};

/// Whether `new` set out to run all that `base` did: neither was narrowed by flags or to a smaller tier, and both ran on
/// the same backend and a device that refuses the same.
pub(super) fn covers(new: &Record, base: &Record) -> bool {
    new.meta.scope == Scope::Whole
        && new.meta.tier >= base.meta.tier
        && new.meta.backend == base.meta.backend
        && refused(new).eq(refused(base))
}

/// A row for the whole record, without which the comparison is incomplete.
fn whole_run(stage: &str, reason: Reason, note: impl Into<String>) -> Row {
    let row = Row::new(stage, None, Metric::Run, Class::NoData, reason).note(note);
    Row { required: true, ..row }
}

/// Stages whose kernel is another one now than when `record` was made.
pub fn outdated(record: &Record, now: &[StageBuild]) -> Vec<Row> {
    let is_other =
        |stage: &&StageBuild| now.iter().any(|built| built.id == stage.id && built.identity != stage.identity);
    let row = |stage: &StageBuild| {
        whole_run(
            &stage.id,
            Reason::OtherKernel,
            "the kernel has changed since the new record was made; run `compare` again",
        )
    };
    record.meta.stages.iter().filter(is_other).map(row).collect()
}

/// Runs that did not end or that have nothing to say of each other, and variants that are gone, new, or no longer run.
pub(super) fn presence(base: &Record, new: &Record) -> Vec<Row> {
    let mut rows = Vec::new();
    for (record, side) in [(base, "base"), (new, "new record")] {
        if let Progress::Partial { finished, planned } = record.meta.progress {
            let note = format!("the {side} is of a run that ended after {finished} of {planned} cases");
            rows.push(whole_run("", Reason::Unfinished, note));
        }
    }
    if base.meta.backend != new.meta.backend {
        let place = |record: &Record| match record.meta.backend {
            BackendKind::Emulated => "the emulator",
            BackendKind::Cuda => "a GPU",
        };
        let note = format!("{} against {} (base): gates and latencies do not compare", place(new), place(base));
        rows.push(whole_run("", Reason::OtherBackend, note));
    }
    for (stage, variant) in variants(base) {
        let row = |reason| Row::new(stage, Some(variant), Metric::Variant, Class::NoData, reason);
        if !variants(new).any(|other| other == (stage, variant)) {
            rows.push(match refused(new).any(|other| other == (stage, variant)) {
                true => row(Reason::NewlyMissing).note("the new record is of a device that refuses it"),
                false => Row { class: Class::Changed, ..row(Reason::Removed) }
                    .note("the new record does not declare it: removed, or renamed"),
            });
        } else if summary_of(base, stage, variant).is_some() && summary_of(new, stage, variant).is_none() {
            let row = row(Reason::NewlyMissing).note("it was checked in the base, and not in the new record");
            rows.push(Row { required: true, ..row });
        }
    }
    for (stage, variant) in variants(new).filter(|found| !variants(base).any(|other| other == *found)) {
        let row = Row::new(stage, Some(variant), Metric::Variant, Class::Changed, Reason::OneSideOnly);
        rows.push(row.note("the base does not have it"));
    }
    rows
}

fn refused(record: &Record) -> impl Iterator<Item = (&str, &str)> {
    record
        .meta
        .stages
        .iter()
        .flat_map(|stage| stage.refused.iter().map(move |refusal| (stage.id.as_str(), refusal.variant.as_str())))
}

fn variants(record: &Record) -> impl Iterator<Item = (&str, &str)> {
    record
        .meta
        .stages
        .iter()
        .flat_map(|stage| stage.variants.iter().map(move |variant| (stage.id.as_str(), variant.name.as_str())))
}
