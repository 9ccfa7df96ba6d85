//! `compare history`: for each GPU and stage a table, of a row per record and, if asked for, variant.

use super::{figure, or_missing, sections, speedup, us};
use crate::judge::history::{Point, Series};
use crate::judge::list::grouped;
use crate::page::{Block, Cell, Document, Table, TableRow, row};
use common::metric::Metric;

pub fn document(series: &[Series]) -> Document {
    let title = |series: &Series| format!("{} on {}: {}", series.stage, series.gpu, series.on);
    let by_title = grouped(series.iter().map(|series| (title(series), series)));
    let table = |series: Vec<&Series>| {
        let mut rows: Vec<TableRow> = Vec::new();
        for series in series {
            let mut before = None;
            for point in &series.points {
                rows.push(row(series, point, before));
                before = point.p50_us.or(before);
            }
        }
        Block::Table(Table::of(rows))
    };
    let section = |(title, series)| (title, vec![table(series)]);
    Document {
        title: "History".into(),
        blocks: sections(by_title.into_iter().map(section)),
        ..Document::default()
    }
}

/// The time that a record's name begins with; the machine that ends it is the section's.
fn stamp(record: &str) -> &str {
    record.split('-').next().unwrap_or(record)
}

fn row(series: &Series, point: &Point, before: Option<f64>) -> TableRow {
    let known =
        |found: Option<Cell>, what: &str| or_missing(found, &format!("the record has no {what}"));
    let count = |value: Option<f64>, metric: Metric| {
        known(value.map(|value| figure(metric, value)), metric.label())
    };
    let variant = series.variant.as_ref().or(point.variant.as_ref());
    let both = point.p50_us.zip(before);
    let ratio = both.map(|(now, before)| speedup(before / now));
    row! {
        "record" => stamp(&point.record),
        "commit" => &point.commit,
        "variant" => known(variant.map(Cell::from), "variant of it"),
        "p50 µs" => known(point.p50_us.map(us), "latency of it"),
        "vs before" => known(ratio, "earlier latency"),
        "regs" => count(point.registers, Metric::Registers),
        "conflicts" => count(point.conflicts, Metric::SharedReadConflicts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::history::history;
    use crate::page::terminal;
    use crate::pages::testing::{BEST, mission, record, row};
    use crate::record::Source;

    #[test]
    fn each_record_is_a_row() {
        let mut now = record();
        row(&mut now, BEST, &mission(), Source::Gpu)
            .figures
            .insert(Metric::P50, 4.0.into());
        let records = [("1".to_string(), record()), ("2".to_string(), now)];
        insta::assert_snapshot!(terminal::terminal(&document(&history(&records, None)), 120), @r##"
History

== stage0-scalar on NVIDIA H200: mission f16 full ==

| record | commit   | variant      | p50 µs |    vs before | regs | conflicts |
|--------|----------|--------------|--------|--------------|------|-----------|
| 1      | 25f6c2b1 | scalar-32x64 |  10.00 |            – |  128 | –         |
| 2      | 25f6c2b1 | scalar-32x64 |  10.00 | 1.00x (+0 %) |  128 | –         |

== stage1-mma on NVIDIA H200: mission f16 full ==

| record | commit   | variant   | p50 µs |     vs before | regs | conflicts |
|--------|----------|-----------|--------|---------------|------|-----------|
| 1      | 25f6c2b1 | mma-32x64 |  5.000 |             – |  128 | –         |
| 2      | 25f6c2b1 | mma-32x64 |  4.000 | 1.25x (−20 %) |  128 | –         |
"##);
    }
}
