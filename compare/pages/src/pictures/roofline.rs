//! The main path under two roofs: the rate of a matrix product, and that of a copy times how often
//! a byte is used.

use super::bars::tick_label;
use super::canvas::{Anchor, Area, DrawError, Drawn, Look, Paint, heading, picture};
use super::labels::{Frame, Label, Labels, Side};
use crate::counted::{self, GLOBAL_BYTES};
use crate::ladder;
use common::metric::Metric;
use common::problem::Problem;
use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;
use results::judge::View;
use results::judge::best::p50;
use results::judge::verdict::Report;
use results::table::{Kind, ProblemPlace, Role, Row, StageMeta};

/// The height of the picture.
const HEIGHT: i32 = 380;

/// A kernel of the main path on a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// `5`, for stage 5.
    pub stage: String,
    pub is_large: bool,
    /// Floating-point operations per byte that the blocks ask of global memory.
    pub intensity: f64,
    pub tflops: f64,
}

/// The measured rates that bound a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofs {
    pub tflops: f64,
    pub terabytes_per_second: f64,
}

/// Returns the main path at its two problems: those kernels whose time and bytes are known.
pub fn points(report: &Report<'_>) -> Vec<Point> {
    let mut points = Vec::new();
    for stage in report.view.stages {
        if stage.role == Role::Rung {
            for place in stage.places() {
                points.extend(point(report, stage, &place));
            }
        }
    }
    points
}

fn point(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<Point> {
    let view = &report.view;
    let row = ladder::timed(report, stage, place)?;
    let first = stage.first_place();
    let counters = view
        .table
        .row(&row.subject, Kind::Counters(first.clone()))?;
    if view.is_stale(counters) {
        return None;
    }
    let problem = place.problem()?;
    let bytes = bytes_at(counters, &first.problem()?, &problem)?;
    Some(Point {
        stage: counted::number(stage).to_string(),
        is_large: *place != first,
        intensity: problem.flops() as f64 / bytes,
        tflops: ladder::rate_of(place, p50(row))? / 1e12,
    })
}

/// Returns the bytes that a kernel asks of global memory on a problem, from those that it asked on
/// another: Q and O once per row, K and V as often per tile of rows as there.
pub fn bytes_at(counters: &Row, counted_on: &Problem, problem: &Problem) -> Option<f64> {
    let query_elements: usize = counted_on.shape.q_extents().iter().product();
    let query_bytes = (query_elements * counted_on.dtype.bytes()) as f64;
    let all_bytes = GLOBAL_BYTES.value(counters)?;
    let by_row = query_bytes + counters.value(Metric::GlobalWriteBytes)?;
    let rows = problem.query_rows() as f64 / counted_on.query_rows() as f64;
    let keys = problem.shape.seq_kv as f64 / counted_on.shape.seq_kv as f64;
    Some(rows * by_row + rows * keys * (all_bytes - by_row))
}

/// Returns the roofs of the table's GPU, if they were measured.
pub fn roofs(view: &View<'_>) -> Option<Roofs> {
    Some(Roofs {
        tflops: ladder::ceiling(view, Metric::MatrixFlops)? / 1e12,
        terabytes_per_second: ladder::ceiling(view, Metric::CopyBytesPerSecond)? / 1e12,
    })
}

/// Returns the picture.
pub fn draw(report: &Report<'_>) -> Result<String, DrawError> {
    let points = points(report);
    let roofs = roofs(&report.view);
    let gpu = report.view.gpu().unwrap_or("no GPU");
    let title = format!("Main path under its roofs, {gpu}");
    let small = ladder::extents("mission");
    let large = ladder::extents("big");
    let note = format!(
        "Rings: mission {small}. Dots: big {large}. Numbers: the stage. A byte counts each time \
         that a block asks for it, and L2 has most of them: a dot may lie above the copy's roof."
    );
    picture(&title, HEIGHT, |area| {
        let below = heading(area, &title, &note)?;
        draw_chart(area, below, &points, roofs)
    })
}

/// The ranges of the axes: powers of 2 around everything that is drawn.
struct Axes {
    intensities: std::ops::Range<f64>,
    tflops: std::ops::Range<f64>,
}

impl Axes {
    fn around(points: &[Point], measured: Option<Roofs>) -> Self {
        let mut intensities: Vec<f64> = points.iter().map(|point| point.intensity).collect();
        let mut rates: Vec<f64> = points.iter().map(|point| point.tflops).collect();
        if let Some(roofs) = measured {
            intensities.push(2.0 * roofs.tflops / roofs.terabytes_per_second);
            rates.push(1.2 * roofs.tflops);
        }
        Self {
            intensities: rounded_down(&intensities, 1.5)..rounded_up(&intensities),
            tflops: rounded_down(&rates, 1.0)..rates.into_iter().fold(0.0, f64::max),
        }
    }
}

/// Returns the power of 2 below the least of these values / `room`.
fn rounded_down(values: &[f64], room: f64) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least / room).log2().floor().exp2()
}

/// Returns the power of 2 above the largest of these values.
fn rounded_up(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(0.0, f64::max);
    largest.log2().ceil().exp2()
}

type Logarithmic = LogCoord<f64>;
type Plot<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Logarithmic, Logarithmic>>;

fn draw_chart(area: &Area<'_>, top: i32, points: &[Point], measured: Option<Roofs>) -> Drawn {
    if points.is_empty() {
        return Look::BODY.write(
            area,
            "Nothing was measured on these kernels.",
            (0, top + 20),
        );
    }
    let axes = Axes::around(points, measured);
    let mut chart = ChartBuilder::on(area)
        .margin_top(top)
        .margin_right(12)
        .y_label_area_size(52)
        .x_label_area_size(36)
        .build_cartesian_2d(
            axes.intensities.log_scale().base(2.0),
            axes.tflops.log_scale().base(2.0),
        )?;
    chart
        .configure_mesh()
        .set_all_tick_mark_size(3)
        .axis_style(Paint::Faint.color())
        .bold_line_style(Paint::Faint.color().mix(0.2))
        .light_line_style(TRANSPARENT)
        .label_style(Look::NOTE.style())
        .axis_desc_style(Look::NOTE.style())
        .x_label_formatter(&|value| tick_label(*value))
        .y_label_formatter(&|value| tick_label(*value))
        .x_desc("FLOP per byte asked of global memory")
        .y_desc("TFLOP/s")
        .draw()?;
    let plot = chart.plotting_area();
    if let Some(roofs) = measured {
        draw_roofs(plot, roofs)?;
    }
    draw_points(area, plot, points, measured)
}

fn draw_roofs(plot: &Plot<'_>, roofs: Roofs) -> Drawn {
    let (intensities, rates) = (plot.get_x_range(), plot.get_y_range());
    let ridge = roofs.tflops / roofs.terabytes_per_second;
    let start = intensities
        .start
        .max(rates.start / roofs.terabytes_per_second);
    let ends = [start, ridge, intensities.end];
    let line = ends.map(|x| (x, roofs.tflops.min(x * roofs.terabytes_per_second)));
    plot.draw(&PathElement::new(
        line.to_vec(),
        Paint::Amber.color().stroke_width(2),
    ))
}

/// Draws the points and the labels of these and of the roofs.
fn draw_points(
    area: &Area<'_>,
    plot: &Plot<'_>,
    points: &[Point],
    measured: Option<Roofs>,
) -> Drawn {
    let (across, down) = plot.get_pixel_range();
    let mut labels = Labels::within(Frame {
        left: across.start,
        top: down.start,
        right: across.end,
        bottom: down.end,
    });
    let mut dots = Vec::new();
    for point in points {
        let at = plot.map_coordinate(&(point.intensity, point.tflops));
        labels.avoid(Frame::around(at, 4));
        let dot = if point.is_large {
            Circle::new(at, 4, Paint::Blue.color().filled())
        } else {
            Circle::new(at, 4, Paint::Violet.color().stroke_width(2))
        };
        area.draw(&dot)?;
        dots.push((at, point));
    }
    if let Some(roofs) = measured {
        label_roofs(area, plot, &mut labels, roofs)?;
    }
    for (side, is_large, paint) in [
        (Side::Right, true, Paint::Blue),
        (Side::Left, false, Paint::Violet),
    ] {
        let mut own = Vec::new();
        for (at, point) in &dots {
            if point.is_large == is_large {
                own.push(Label {
                    look: Look::BODY.painted(paint),
                    text: point.stage.clone(),
                    point: *at,
                });
            }
        }
        labels.put_all(area, side, own)?;
    }
    Ok(())
}

fn label_roofs(area: &Area<'_>, plot: &Plot<'_>, labels: &mut Labels, roofs: Roofs) -> Drawn {
    let look = Look::NOTE.painted(Paint::Amber);
    let Roofs {
        tflops,
        terabytes_per_second,
    } = roofs;
    let right = plot.map_coordinate(&(plot.get_x_range().end, tflops));
    let product = format!("matrix product, {tflops:.0} TFLOP/s");
    let above = (right.0, right.1 - 9);
    labels.avoid(Frame::of_text(look.at(Anchor::End), &product, above));
    look.at(Anchor::End).write(area, &product, above)?;
    let ridge = tflops / terabytes_per_second;
    let middle = (plot.get_x_range().start * ridge).sqrt();
    let label = Label {
        look,
        text: format!("copy, {terabytes_per_second:.2} TB/s"),
        point: plot.map_coordinate(&(middle, middle * terabytes_per_second)),
    };
    labels.put(area, Side::Right, &label)
}
