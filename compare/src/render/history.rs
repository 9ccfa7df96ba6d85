//! `compare history`, laid out: per GPU a row per record of each stage or variant, and the same drawn.

use super::charts;
use super::document::Block;
use super::markdown::cells::microseconds;
use crate::comparison::history::{Point, Series};
use common::evidence::Quantity;

/// What is followed: its name, its value in a point, and the value in words.
pub struct Figure {
    /// As printed.
    pub title: &'static str,
    /// Absent where the record does not have it.
    pub value: fn(&Point) -> Option<f64>,
    show: fn(f64) -> String,
}

/// The figures, in the order of the columns and panels.
pub const FIGURES: [Figure; 3] = [
    Figure { title: "p50 on mission f16 full, µs", value: |point| point.p50_us, show: microseconds },
    Figure { title: "registers", value: |point| point.registers.map(f64::from), show: |value| format!("{value:.0}") },
    Figure {
        title: "shared-memory bank conflicts",
        value: |point| point.conflicts,
        show: |value| Quantity::SharedReadConflicts.show(value),
    },
];

/// A table per GPU.
pub fn blocks(series: &[Series]) -> Vec<Block> {
    let mut gpus: Vec<&str> = series.iter().map(|series| series.gpu.as_str()).collect();
    gpus.dedup();
    let mut head = vec!["stage", "record", "commit", "variant"];
    head.extend(FIGURES.iter().map(|figure| figure.title));
    let table = |gpu: &&str| {
        let here = series.iter().filter(|series| series.gpu == **gpu);
        let rows = here.flat_map(|series| series.points.iter().map(|point| row(series, point)));
        [Block::Heading(gpu.to_string()), Block::Table(head.clone(), rows.collect())]
    };
    gpus.iter().flat_map(table).collect()
}

fn row(series: &Series, point: &Point) -> Vec<String> {
    let variant = series.variant.clone().or(point.variant.clone()).unwrap_or_else(|| "–".into());
    let figures = FIGURES.iter().map(|figure| (figure.value)(point).map_or("NO DATA".into(), figure.show));
    [series.stage.clone(), point.record.clone(), point.commit.clone(), variant].into_iter().chain(figures).collect()
}

/// The same as a picture.
pub fn svg(series: &[Series]) -> String {
    charts::history(series).standalone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::history::history;
    use crate::render::document;
    use crate::testing::{emulated, timed};

    #[test]
    fn tables_say_what_is_not_there() {
        let records = [("1".into(), timed([32.0, 20.0, 15.0])), ("2".into(), emulated())];
        insta::assert_snapshot!(document::terminal(&blocks(&history(&records, None))));
    }
}
