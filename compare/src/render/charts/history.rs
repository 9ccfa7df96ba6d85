//! Figures over the committed records: a panel per figure, a line per stage or variant and GPU.

use super::svg::{Drawing, From, WIDTH, colour};
use super::{Chart, LEGEND_LINE, tick};
use crate::comparison::history::{Point, Series};
use crate::render::history::FIGURES;
use std::collections::BTreeMap;

const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
/// Height of a panel's title.
const TITLE: f64 = 34.0;
/// Height of what is drawn in a panel.
const PANEL: f64 = 200.0;
/// Height of the records' names, which are turned: `01234567-dirty`.
const NAMES: f64 = 128.0;
/// A name takes this much of the axis.
const NAME_STEP: f64 = 16.0;

/// The history as a picture, linear from 0. The same records give the same bytes.
pub fn history(series: &[Series]) -> Chart {
    let records: BTreeMap<usize, &str> = series
        .iter()
        .flat_map(|series| series.points.iter().map(|point| (point.index, point.commit.as_str())))
        .collect();
    let count = records.last_key_value().map_or(1, |(last, _)| last + 1);
    let across = |index: usize| LEFT + (RIGHT - LEFT) * (index as f64 + 0.5) / count as f64;
    let mut drawing = Drawing::default();
    let mut top = 0.0;
    for figure in &FIGURES {
        drawing.text(From::Start, false, [LEFT, top + TITLE / 2.0], figure.title);
        top += TITLE;
        panel(&mut drawing, top, series, figure.value, &across);
        top += PANEL;
    }
    // Not every name has room where there are many.
    let every = (NAME_STEP * count as f64 / (RIGHT - LEFT)).ceil().max(1.0) as usize;
    for (index, commit) in records.into_iter().filter(|(index, _)| index % every == 0) {
        drawing.turned_text(From::End, true, [across(index), top + 8.0], Some(-90), commit);
    }
    top += NAMES;
    top += legend(&mut drawing, top, series);
    Chart {
        name: "history",
        title: "Device time, registers and bank conflicts over the committed records; lower is better".into(),
        description: format!("{} lines over {count} records, oldest first.", series.len()),
        height: top + 8.0,
        body: drawing.0,
    }
}

fn panel(
    drawing: &mut Drawing,
    top: f64,
    series: &[Series],
    value: fn(&Point) -> Option<f64>,
    across: &dyn Fn(usize) -> f64,
) {
    let most = series.iter().flat_map(|series| &series.points).filter_map(value).fold(0.0, f64::max);
    let step = step(most);
    let ticks = (most / step).ceil().max(1.0);
    let up = |value: f64| top + PANEL * (1.0 - value / (ticks * step));
    for at in 0..=ticks as u32 {
        let value = step * f64::from(at);
        drawing.rule(at == 0, [LEFT, up(value)], [RIGHT, up(value)]);
        drawing.text(From::End, true, [LEFT - 8.0, up(value)], &tick(value));
    }
    for (index, one) in series.iter().enumerate() {
        let points: Vec<Option<[f64; 2]>> =
            one.points.iter().map(|point| Some([across(point.index), up(value(point)?)])).collect();
        // A gap stays a gap: no line runs over a record without a number.
        for run in points.split(Option::is_none) {
            let run: Vec<[f64; 2]> = run.iter().flatten().copied().collect();
            if run.len() > 1 {
                drawing.series(index, &colour(index, false), &run);
            }
            run.into_iter().for_each(|at| drawing.marker(index, &colour(index, false), at));
        }
    }
}

/// The distance of ticks, 1, 2 or 5 times a power of ten, of which at most five reach `most`.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| 5.0 * step >= most).unwrap_or(10.0 * power)
}

/// Two columns: a line may be named `mma-padded-32x256-k4, NVIDIA H200`. Returns its height.
fn legend(drawing: &mut Drawing, top: f64, series: &[Series]) -> f64 {
    let has_points =
        |series: &Series| FIGURES.iter().any(|figure| series.points.iter().any(|p| (figure.value)(p).is_some()));
    let drawn: Vec<(usize, &Series)> = series.iter().enumerate().filter(|(_, series)| has_points(series)).collect();
    for (place, (index, one)) in drawn.iter().enumerate() {
        let x = 20.0 + (WIDTH - 20.0) / 2.0 * (place % 2) as f64;
        let y = top + LEGEND_LINE * ((place / 2) as f64 + 0.5);
        drawing.series(*index, &colour(*index, false), &[[x, y], [x + 30.0, y]]);
        drawing.marker(*index, &colour(*index, false), [x + 15.0, y]);
        drawing.text(From::Start, false, [x + 38.0, y], &format!("{}, {}", one.followed(), one.gpu));
    }
    LEGEND_LINE * drawn.len().div_ceil(2) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!([0.0, 5.3, 33.0, 128.0, 255.0, 1e6].map(step), [1.0, 2.0, 10.0, 50.0, 100.0, 200_000.0]);
    }
}
