//! Device time on the claims' problem, a bar per stage or per variant.

use super::svg::{Drawing, From, WIDTH, colour};
use super::{Chart, short};
use crate::comparison::{Figures, Latency, Origin, Report, Row};

/// Where bars begin; their names end here.
const LEFT: f64 = 300.0;
/// Where the longest bar ends; its number stands to the right.
const RIGHT: f64 = WIDTH - 120.0;
const TOP: f64 = 10.0;
const BAR: f64 = 24.0;

/// A bar per stage: its fastest green variant.
pub fn headlines(report: &Report) -> Option<Chart> {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.is_headline).collect();
    bars(report, "ladder", "Device time of each stage's fastest variant", &rows)
}

/// A bar per variant.
pub fn variants(report: &Report) -> Option<Chart> {
    bars(report, "variants", "Device time of every variant", &report.rows.iter().collect::<Vec<_>>())
}

fn bars(report: &Report, name: &'static str, what: &str, rows: &[&Row]) -> Option<Chart> {
    let timed: Vec<(&Row, &Figures, bool)> = rows
        .iter()
        .filter_map(|row| match &row.latency {
            Latency::Measured { figures, origin } if figures.p50.is_finite() => {
                Some((*row, figures, matches!(origin, Origin::Stale { .. })))
            }
            _ => None,
        })
        .collect();
    let most = timed.iter().map(|(_, figures, _)| figures.p50).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let mut caches: Vec<&str> = timed.iter().map(|(_, figures, _)| figures.cache).collect();
    caches.sort_unstable();
    caches.dedup();
    let mut drawing = Drawing::default();
    let bottom = TOP + BAR * timed.len() as f64;
    drawing.rule(true, [LEFT, TOP], [LEFT, bottom]);
    for (index, (row, figures, is_stale)) in timed.iter().enumerate() {
        let stage = report.stages.iter().position(|stage| stage.id == row.stage).unwrap_or(0);
        let (top, length) = (TOP + BAR * index as f64, (RIGHT - LEFT) * figures.p50 / most);
        drawing.bar(&colour(stage, *is_stale), [LEFT, top + 4.0], [length, BAR - 8.0]);
        drawing.text(From::End, false, [LEFT - 8.0, top + BAR / 2.0], &format!("{}/{}", row.stage, row.variant));
        let number = format!("{} µs{}", short(figures.p50), if *is_stale { " STALE" } else { "" });
        drawing.text(From::Start, false, [LEFT + length + 6.0, top + BAR / 2.0], &number);
    }
    let axis = "device time of one launch, p50, µs; from 0";
    drawing.text(From::Middle, true, [(LEFT + RIGHT) / 2.0, bottom + 16.0], axis);
    let numbers: Vec<String> = timed
        .iter()
        .map(|(row, figures, _)| format!("{}/{} {} µs", row.stage, row.variant, short(figures.p50)))
        .collect();
    Some(Chart {
        name,
        title: format!("{what} on mission, f16, full mask, {}; shorter is better", caches.join(" or ")),
        description: format!("Bars: {}.", numbers.join(", ")),
        height: bottom + 32.0,
        body: drawing.0,
    })
}
