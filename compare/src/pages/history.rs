//! `compare history`: per GPU a row per record of each stage or variant.

use super::{figure, or_missing, speedup, us};
use crate::judge::history::{Point, Series};
use crate::page::{Block, Cell, Document, Table, row};
use common::metric::Metric;

pub fn document(series: &[Series]) -> Document {
    let mut gpus: Vec<&str> = series.iter().map(|series| series.gpu.as_str()).collect();
    gpus.dedup();
    let mut blocks = Vec::new();
    for gpu in gpus {
        let mut table = Table::new([
            "stage",
            "record",
            "commit",
            "variant",
            "p50 on mission f16 full, µs",
            "vs before",
            "registers",
            "bank conflicts",
        ]);
        for series in series.iter().filter(|series| series.gpu == gpu) {
            let mut before = None;
            for point in &series.points {
                table.push(row(series, point, before));
                before = point.p50_us.or(before);
            }
        }
        blocks.extend([Block::section(gpu), Block::Table(table)]);
    }
    Document {
        title: "History".into(),
        blocks,
        ..Document::default()
    }
}

fn row(series: &Series, point: &Point, before: Option<f64>) -> Vec<Cell> {
    let known =
        |found: Option<Cell>, what: &str| or_missing(found, &format!("the record has no {what}"));
    let count = |value: Option<f64>, metric: Metric| {
        known(value.map(|value| figure(metric, value)), metric.label())
    };
    let variant = series.variant.as_ref().or(point.variant.as_ref());
    let ratio = point
        .p50_us
        .zip(before)
        .map(|(now, before)| speedup(before / now));
    row![
        &series.stage,
        &point.record,
        &point.commit,
        known(variant.map(Cell::from), "variant of it"),
        known(point.p50_us.map(us), "latency of it"),
        known(ratio, "earlier latency"),
        count(point.registers, Metric::Registers),
        count(point.conflicts, Metric::SharedReadConflicts),
    ]
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

== NVIDIA H200 ==

| stage         | record | commit   | variant      |   p50 on mission f16 |     vs before | registers | bank conflicts |
|               |        |          |              |             full, µs |               |           |                |
|---------------|--------|----------|--------------|----------------------|---------------|-----------|----------------|
| stage0-scalar | 1      | 25f6c2b1 | scalar-32x64 |                10.00 |             – |       128 | –              |
| stage0-scalar | 2      | 25f6c2b1 | scalar-32x64 |                10.00 |  1.00x (+0 %) |       128 | –              |
| stage1-mma    | 1      | 25f6c2b1 | mma-32x64    |                5.000 |             – |       128 | –              |
| stage1-mma    | 2      | 25f6c2b1 | mma-32x64    |                4.000 | 1.25x (−20 %) |       128 | –              |
"##);
    }
}
