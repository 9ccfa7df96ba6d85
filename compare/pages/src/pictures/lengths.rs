//! The rate over the length of the sequence: the stages of the main path, and peers.

use super::bars::tick_label;
use super::canvas::{
    Anchor, Area, DrawError, Drawn, Look, Paint, WIDTH, heading, heading_height, picture,
};
use super::labels::{Frame, Label, Labels, Side};
use crate::counted;
use crate::ladder;
use common::metric::Metric;
use common::problem::{Dtype, HEAD_DIMS, Mask, Shape};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use results::judge::best::p50;
use results::judge::list::distinct;
use results::judge::peers::{arms, is_ours};
use results::judge::verdict::Report;
use results::table::{ProblemPlace, Role, Row, StageMeta};

/// The height of a chart.
const HEIGHT: i32 = 290;

/// The width that the names of series have right of the last point.
const NAMES: i32 = 110;

/// A problem of a length.
#[derive(Clone, Debug, PartialEq)]
pub struct Length {
    pub place: ProblemPlace,
    pub shape: Shape,
}

/// A stage or a peer, and its rates in TFLOP/s.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub name: String,
    pub is_ours: bool,
    /// The rate at each length; none where it was not measured.
    pub rates: Vec<Option<f64>>,
}

/// The rates of a head size.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub head_dim: usize,
    pub lengths: Vec<Length>,
    pub series: Vec<Series>,
}

/// Returns what was measured in f16 under the full mask with as many keys as queries, one problem
/// for each length: of several that of most series, then the largest.
pub fn rates(report: &Report<'_>, head_dim: usize) -> Rates {
    let lengths = lengths(report, head_dim);
    let places: Vec<&ProblemPlace> = lengths.iter().map(|length| &length.place).collect();
    Rates {
        head_dim,
        series: series(report, &places),
        lengths,
    }
}

fn lengths(report: &Report<'_>, head_dim: usize) -> Vec<Length> {
    let table = &report.view.table;
    let timed = table.latencies().chain(table.peer_times());
    let mut candidates = Vec::new();
    for place in distinct(timed.filter_map(Row::problem)) {
        if let Some(length) = length(place).filter(|length| length.shape.head_dim == head_dim) {
            candidates.push((series(report, &[place]).len(), length));
        }
    }
    candidates.retain(|(measured, _)| *measured > 0);
    candidates
        .sort_by_key(|(measured, length)| (length.shape.seq_q, *measured, length.place.size()));
    let mut lengths: Vec<Length> = Vec::new();
    for (_, length) in candidates {
        match lengths.last_mut() {
            Some(last) if last.shape.seq_q == length.shape.seq_q => *last = length,
            _ => lengths.push(length),
        }
    }
    lengths
}

/// Returns a problem as one of its length, if it is dense, square and as long as a power of two.
fn length(place: &ProblemPlace) -> Option<Length> {
    let problem = place.problem()?;
    let shape = problem.shape;
    let is_plain = place.dtype == Dtype::F16 && place.mask == Mask::Full && problem.is_dense();
    let is_square = shape.seq_q == shape.seq_kv && shape.heads_q == shape.heads_kv;
    let is_length = is_plain && is_square && shape.seq_q.is_power_of_two() && !place.cold;
    is_length.then(|| Length {
        place: place.clone(),
        shape,
    })
}

/// Returns the rungs and the peers that were measured on one of the problems.
fn series(report: &Report<'_>, places: &[&ProblemPlace]) -> Vec<Series> {
    let view = &report.view;
    let mut all = Vec::new();
    for stage in view.stages.iter().filter(|stage| stage.role == Role::Rung) {
        all.push(Series {
            name: counted::title(stage),
            is_ours: true,
            rates: rates_at(places, |place| our_time(report, stage, place)),
        });
    }
    let peer_rows = view.table.peer_times().filter(|row| !is_ours(view, row));
    for peer in distinct(peer_rows.map(|row| row.subject.clone())) {
        all.push(Series {
            name: peer.to_string(),
            is_ours: false,
            rates: rates_at(places, |place| {
                let mut rows = arms(&view.table, place);
                rows.find(|row| row.subject == peer && row.failure().is_none())
            }),
        });
    }
    all.retain(|series| series.rates.iter().any(Option::is_some));
    all
}

fn rates_at<'a>(
    places: &[&ProblemPlace],
    time: impl Fn(&ProblemPlace) -> Option<&'a Row>,
) -> Vec<Option<f64>> {
    let mut rates = Vec::new();
    for place in places {
        let measured = time(place).filter(|row| row.has(Metric::P50));
        rates.push(
            measured
                .and_then(|row| ladder::rate_of(place, p50(row)))
                .map(|rate| rate / 1e12),
        );
    }
    rates
}

/// Returns the fastest time of a stage: alone, or beside peers where it was timed there only.
fn our_time<'a>(
    report: &'a Report<'_>,
    stage: &StageMeta,
    place: &ProblemPlace,
) -> Option<&'a Row> {
    let view = &report.view;
    if let Some(row) = ladder::alone(view, stage, place) {
        return Some(row);
    }
    let rows = arms(&view.table, place).filter(|row| {
        row.subject.stage() == stage.id && row.failure().is_none() && !view.is_stale(row)
    });
    rows.min_by(|a, b| p50(a).total_cmp(&p50(b)))
}

/// Returns the picture: a chart for each head size that was measured.
pub fn draw(report: &Report<'_>) -> Result<String, DrawError> {
    let mut charts = HEAD_DIMS.map(|head_dim| rates(report, head_dim)).to_vec();
    charts.retain(|rates| !rates.lengths.is_empty());
    let note = format!(
        "{}, f16, full mask. Thick and blue: the main path, alone, or beside peers where it was \
         timed there only. Thin: peers. Below each length batch x heads.",
        report.view.gpu().unwrap_or("no GPU")
    );
    let top = heading_height(&note, WIDTH as i32);
    let height = top + HEIGHT * charts.len() as i32;
    picture("TFLOP/s over the length of the sequence", height, |area| {
        heading(area, "TFLOP/s over the length of the sequence", &note)?;
        for (index, rates) in charts.iter().enumerate() {
            draw_chart(area, rates, top + HEIGHT * index as i32)?;
        }
        Ok(())
    })
}

type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Returns the place of a length on its axis.
fn x_of(length: &Length) -> f64 {
    (length.shape.seq_q as f64).log2()
}

fn draw_chart(area: &Area<'_>, rates: &Rates, top: i32) -> Drawn {
    let part = area.clone().shrink((0, top), (WIDTH as i32, HEIGHT));
    let title = format!("head_dim {}", rates.head_dim);
    Look::NAME.write(&part, &title, (0, 10))?;
    let all = rates
        .series
        .iter()
        .flat_map(|series| series.rates.iter().flatten());
    let largest = all.copied().fold(f64::MIN_POSITIVE, f64::max);
    let (first, last) = (
        x_of(&rates.lengths[0]),
        x_of(&rates.lengths[rates.lengths.len() - 1]),
    );
    let mut chart = ChartBuilder::on(&part)
        .margin_top(24)
        .margin_right(NAMES)
        .y_label_area_size(46)
        .x_label_area_size(46)
        .build_cartesian_2d(first - 0.3..last + 0.3, 0.0..1.05 * largest)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .set_all_tick_mark_size(3)
        .axis_style(Paint::Faint.color())
        .bold_line_style(Paint::Faint.color().mix(0.2))
        .light_line_style(TRANSPARENT)
        .x_labels(0)
        .y_labels(6)
        .label_style(Look::NOTE.style())
        .axis_desc_style(Look::NOTE.style())
        .y_label_formatter(&|value| tick_label(*value))
        .x_desc("sequence length")
        .y_desc("TFLOP/s")
        .draw()?;
    draw_lengths(area, chart.plotting_area(), &rates.lengths)?;
    draw_series(area, chart.plotting_area(), rates)
}

/// Writes the lengths below the axis, with batch and heads below each.
fn draw_lengths(area: &Area<'_>, plot: &Plot<'_>, lengths: &[Length]) -> Drawn {
    for length in lengths {
        let (x, y) = plot.map_coordinate(&(x_of(length), 0.0));
        let shape = length.shape;
        let look = Look::NOTE.at(Anchor::Middle);
        area.draw(&PathElement::new(
            vec![(x, y), (x, y + 3)],
            Paint::Faint.color(),
        ))?;
        look.painted(Paint::Ink)
            .write(area, &shape.seq_q.to_string(), (x, y + 10))?;
        look.write(
            area,
            &format!("{}x{}", shape.batch, shape.heads_q),
            (x, y + 22),
        )?;
    }
    Ok(())
}

const PEERS: [Paint; 5] = [
    Paint::Red,
    Paint::Green,
    Paint::Amber,
    Paint::Violet,
    Paint::Cyan,
];

fn draw_series(area: &Area<'_>, plot: &Plot<'_>, rates: &Rates) -> Drawn {
    let (across, down) = plot.get_pixel_range();
    let mut labels = Labels::within(Frame {
        left: across.start,
        top: down.start - 10,
        right: WIDTH as i32,
        bottom: down.end,
    });
    let mut ends = Vec::new();
    let mut peers = 0;
    for series in &rates.series {
        let paint = if series.is_ours {
            Paint::Blue
        } else {
            peers += 1;
            PEERS[(peers - 1) % PEERS.len()]
        };
        let measured = rates.lengths.iter().zip(&series.rates);
        let line: Vec<(f64, f64)> = measured
            .filter_map(|(length, rate)| Some((x_of(length), (*rate)?)))
            .collect();
        let stroke = if series.is_ours { 2 } else { 1 };
        plot.draw(&PathElement::new(
            line.clone(),
            paint.color().stroke_width(stroke),
        ))?;
        for point in &line {
            let at = plot.map_coordinate(point);
            area.draw(&Circle::new(at, 2, paint.color().filled()))?;
            labels.avoid(Frame::around(at, 2));
        }
        avoid_line(&mut labels, plot, &line);
        if let Some(last) = line.last() {
            ends.push(Label {
                look: Look::NOTE.painted(paint),
                text: series.name.clone(),
                point: plot.map_coordinate(last),
            });
        }
    }
    labels.put_all(area, Side::Right, ends)
}

/// Keeps labels off a line.
fn avoid_line(labels: &mut Labels, plot: &Plot<'_>, line: &[(f64, f64)]) {
    const PIECES: i32 = 24;
    for ends in line.windows(2) {
        let (from, to) = (plot.map_coordinate(&ends[0]), plot.map_coordinate(&ends[1]));
        for piece in 1..PIECES {
            let x = from.0 + (to.0 - from.0) * piece / PIECES;
            let y = from.1 + (to.1 - from.1) * piece / PIECES;
            labels.avoid(Frame::around((x, y), 2));
        }
    }
}
