//! Whether what the base has is there at all.

use super::{Class, Metric, Reason, Row, summary_of};
use common::record::{Record, Scope};

/// Whether `new` set out to run all that `base` did: neither was narrowed by flags or to a smaller tier, and both ran on
/// the same backend and a device that refuses the same.
pub(super) fn covers(new: &Record, base: &Record) -> bool {
    new.meta.scope == Scope::Whole
        && new.meta.tier >= base.meta.tier
        && new.meta.backend == base.meta.backend
        && refused(new).eq(refused(base))
}

/// Variants that are gone, new, or no longer run.
pub(super) fn presence(base: &Record, new: &Record) -> Vec<Row> {
    let mut rows = Vec::new();
    for (stage, variant) in variants(base) {
        let row = |reason| Row::new(stage, Some(variant), Metric::Variant, Class::NoData, reason);
        if !variants(new).any(|other| other == (stage, variant)) {
            let required = !refused(new).any(|other| other == (stage, variant));
            let why = if required { "does not have it: removed, or renamed" } else { "is of a device that refuses it" };
            let row = row(Reason::NewlyMissing).note(format!("the new record {why}"));
            rows.push(Row { required, ..row });
        } else if summary_of(base, stage, variant).is_some()
            && summary_of(new, stage, variant).is_none()
            && covers(new, base)
        {
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
