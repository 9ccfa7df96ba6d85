//! Device time against the sequence length, and over all problems: a line per stage.

use super::svg::{Drawing, From, WIDTH, colour};
use super::{Axis, Chart, STALE, legend, legend_height, short, tick, ticks};
use crate::comparison::{ByShape, Origin, Report};
use common::problem::{Dtype, Mask, Shape};

const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 330.0;

/// Time against S on (1, 8, S, 64), f16, full mask, both axes logarithmic. Absent below two lengths.
pub fn sweep(report: &Report) -> Option<Chart> {
    let is_swept = |row: &&ByShape| {
        row.shape == Shape::bhsd(1, 8, row.shape.seq_q, 64) && (row.dtype, row.mask) == (Dtype::F16, Mask::Full)
    };
    let mut rows: Vec<&ByShape> = report.by_shape.iter().filter(is_swept).collect();
    rows.sort_by_key(|row| row.shape.seq_q);
    let lengths: Vec<f64> = rows.iter().map(|row| row.shape.seq_q as f64).collect();
    let (first, last) = (*lengths.first()?, *lengths.last()?);
    if first == last {
        return None;
    }
    let across = Axis::new(vec![first, last], [LEFT + 16.0, RIGHT - 16.0]);
    let places: Vec<(f64, String)> = lengths.iter().map(|s| (across.at(*s), format!("{s:.0}"))).collect();
    lines(report, &rows, &places, "S, queries and keys (log scale)", |points| Chart {
        name: "sweep",
        title: "Device time against sequence length on (1, 8, S, 64), f16, full mask; lower is better".into(),
        description: format!("Fastest green variant of each stage, p50 in µs. {points}"),
        height: 0.0,
        body: String::new(),
    })
}

/// Time over all problems. Absent where nothing was timed.
pub fn shapes(report: &Report) -> Option<Chart> {
    let rows: Vec<&ByShape> = report.by_shape.iter().collect();
    let step = (RIGHT - LEFT) / rows.len().max(1) as f64;
    let label = |row: &ByShape| format!("{} {} {}", row.shape_name, row.dtype, row.mask);
    let places: Vec<(f64, String)> =
        rows.iter().enumerate().map(|(x, row)| (LEFT + step * (x as f64 + 0.5), label(row))).collect();
    lines(report, &rows, &places, "", |_| Chart {
        name: "shapes",
        title: "Device time of each stage's fastest variant over all problems; lower is better".into(),
        description: "p50 in µs on a log scale; the table below has the numbers.".into(),
        height: 0.0,
        body: String::new(),
    })
}

/// A line per stage through `places`; their labels are turned where `x_name` is empty, for they are long.
fn lines(
    report: &Report,
    rows: &[&ByShape],
    places: &[(f64, String)],
    x_name: &str,
    chart: impl FnOnce(&str) -> Chart,
) -> Option<Chart> {
    let times = || rows.iter().flat_map(|row| row.best.iter().flatten()).map(|(_, p50, _)| *p50);
    let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    if !(least > 0.0 && least <= most && most.is_finite()) {
        return None;
    }
    let up = Axis::new(ticks(least, most), [BOTTOM, TOP]);
    let mut drawing = Drawing::default();
    for value in &up.ticks {
        drawing.rule(false, [LEFT, up.at(*value)], [RIGHT, up.at(*value)]);
        drawing.text(From::End, true, [LEFT - 8.0, up.at(*value)], &tick(*value));
    }
    drawing.turned_text(From::Middle, true, [14.0, (TOP + BOTTOM) / 2.0], Some(-90), "device time p50, µs (log scale)");
    for (x, label) in places {
        drawing.rule(false, [*x, BOTTOM], [*x, TOP]);
        match x_name {
            "" => drawing.turned_text(From::End, true, [*x, BOTTOM + 8.0], Some(-90), label),
            _ => drawing.text(From::Middle, true, [*x, BOTTOM + 14.0], label),
        }
    }
    drawing.rule(true, [LEFT, TOP], [LEFT, BOTTOM]);
    drawing.rule(true, [LEFT, BOTTOM], [RIGHT, BOTTOM]);
    let labels = if x_name.is_empty() {
        7.0 * places.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0) as f64 + 16.0
    } else {
        drawing.text(From::Middle, true, [(LEFT + RIGHT) / 2.0, BOTTOM + 34.0], x_name);
        52.0
    };
    let (entries, points) = series(report, rows, places, &up, &mut drawing);
    legend(&mut drawing, BOTTOM + labels, &entries, true);
    let height = BOTTOM + labels + legend_height(entries.len()) + 8.0;
    Some(Chart { height, body: drawing.0, ..chart(&points) })
}

/// Draws the lines. Returns the legend's entries, and the numbers in words.
fn series(
    report: &Report,
    rows: &[&ByShape],
    places: &[(f64, String)],
    up: &Axis,
    drawing: &mut Drawing,
) -> (Vec<(usize, String)>, String) {
    let (mut entries, mut words) = (Vec::new(), Vec::new());
    for (index, stage) in report.stages.iter().enumerate() {
        let best: Vec<_> = rows.iter().map(|row| row.best.get(index).and_then(Option::as_ref)).collect();
        if best.iter().all(Option::is_none) {
            continue;
        }
        let is_stale = best.iter().flatten().any(|(_, _, origin)| matches!(origin, Origin::Stale { .. }));
        let colour = colour(index, is_stale);
        let points: Vec<Option<[f64; 2]>> =
            best.iter().zip(places).map(|(best, (x, _))| best.map(|(_, p50, _)| [*x, up.at(*p50)])).collect();
        // A gap stays a gap: no line runs over a problem without a number.
        for run in points.split(Option::is_none) {
            let run: Vec<[f64; 2]> = run.iter().flatten().copied().collect();
            if run.len() > 1 {
                drawing.series(index, &colour, &run);
            }
            run.into_iter().for_each(|at| drawing.marker(index, &colour, at));
        }
        entries.push((index, format!("{}{}", stage.id, if is_stale { STALE } else { "" })));
        let times: Vec<String> = best
            .iter()
            .zip(places)
            .filter_map(|(best, (_, label))| best.map(|(_, p50, _)| format!("{label}: {}", short(*p50))))
            .collect();
        words.push(format!("{}: {}.", stage.id, times.join(", ")));
    }
    (entries, words.join(" "))
}
