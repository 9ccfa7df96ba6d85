//! `compare history`: for each GPU a row per record and stage or variant.

use super::{figure, or_missing, sections, speedup, us};
use crate::judge::history::{Point, Series};
use crate::judge::list::grouped;
use crate::page::{Block, Cell, Document, Table, TableRow, row};
use common::metric::Metric;

pub fn document(series: &[Series]) -> Document {
    let by_gpu = grouped(series.iter().map(|series| (series.gpu.as_str(), series)));
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
    let section = |(gpu, series)| (gpu, vec![table(series)]);
    Document {
        title: "History".into(),
        blocks: sections(by_gpu.into_iter().map(section)),
        ..Document::default()
    }
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
        "stage" => &series.stage,
        "record" => &point.record,
        "commit" => &point.commit,
        "variant" => known(variant.map(Cell::from), "variant of it"),
        "p50 on mission f16 full, µs" => known(point.p50_us.map(us), "latency of it"),
        "vs before" => known(ratio, "earlier latency"),
        "registers" => count(point.registers, Metric::Registers),
        "bank conflicts" => count(point.conflicts, Metric::SharedReadConflicts),
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
