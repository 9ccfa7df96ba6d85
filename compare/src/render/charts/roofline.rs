//! What the stages make of the GPU: operations per second against operations per byte, below its published ceilings.

use super::svg::{Drawing, From, WIDTH, colour};
use super::{Axis, Chart, STALE, legend, legend_height, short, tick, ticks};
use crate::comparison::{Origin, Report};
use common::problem::{Dtype, Mask, Problem};
use common::timing::roofline::{Peak, peak};

const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 330.0;

/// A stage's fastest variant on an f16 problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Achieved {
    /// Index in the ladder.
    pub stage: usize,
    /// `mission full`.
    pub problem: String,
    /// Operations per byte that must cross device memory: Q, K, V and O once.
    pub intensity: f64,
    /// 1e12 operations per second.
    pub tflops: f64,
    /// The lower of the GPU's two ceilings at this intensity, 1e12 operations per second.
    pub ceiling: f64,
    /// Whether the number no longer holds.
    pub is_stale: bool,
}

/// What was achieved on f16 problems, and the GPU's peaks; `None` where nothing was timed or the GPU is not in the table.
pub fn achieved(report: &Report) -> Option<(String, &'static Peak, Vec<Achieved>)> {
    let gpu =
        report.by_shape.iter().flat_map(|row| row.best.iter().flatten()).find_map(|(_, _, origin)| match origin {
            Origin::Run => report.subject.as_ref()?.meta.machine.gpu.name().map(str::to_string),
            Origin::Committed { gpu, .. } | Origin::Stale { gpu, .. } => Some(gpu.clone()),
        })?;
    let peak = peak(&gpu)?;
    let mut points = Vec::new();
    for row in report.by_shape.iter().filter(|row| row.dtype == Dtype::F16) {
        let Ok(problem) = Problem::new(row.shape, row.dtype, row.mask) else { continue };
        let flops = problem.flops() as f64;
        let intensity = flops / problem.min_bytes() as f64;
        let ceiling = peak.f16_flops.min(peak.bytes * intensity) / 1e12;
        for (stage, best) in row.best.iter().enumerate() {
            let Some((_, us, origin)) = best else { continue };
            points.push(Achieved {
                stage,
                problem: format!("{} {}", row.shape_name, row.mask),
                intensity,
                tflops: flops / us / 1e6,
                ceiling,
                is_stale: matches!(origin, Origin::Stale { .. }),
            });
        }
    }
    (!points.is_empty()).then_some((gpu, peak, points))
}

/// A point per stage on mission and long, both masks.
pub fn roofline(report: &Report) -> Option<Chart> {
    let (gpu, peak, mut points) = achieved(report)?;
    let shown = ["mission", "long"].map(|name| Mask::ALL.map(|mask| format!("{name} {mask}")));
    points.retain(|point| shown.as_flattened().contains(&point.problem));
    let least = points.iter().map(|point| point.tflops).fold(f64::INFINITY, f64::min);
    let [low, high] = [f64::min, f64::max].map(|pick| points.iter().map(|point| point.intensity).reduce(pick));
    let (low, high) = (low?, high?);
    let top = peak.f16_flops / 1e12;
    let across = Axis::new(ticks((low / 2.0).min(50.0), high * 2.0), [LEFT, RIGHT]);
    let up = Axis::new(ticks(least, top * 1.2), [BOTTOM, TOP]);
    let mut drawing = Drawing::default();
    axes(&mut drawing, &across, &up);
    ceilings(&mut drawing, &across, &up, peak);
    let mut problems: Vec<(&str, f64)> = points.iter().map(|point| (point.problem.as_str(), point.intensity)).collect();
    problems.dedup();
    for (problem, intensity) in problems {
        drawing.turned_text(From::Start, true, [across.at(intensity) + 14.0, BOTTOM - 6.0], Some(-90), problem);
    }
    for point in &points {
        let at = [across.at(point.intensity), up.at(point.tflops)];
        drawing.marker(point.stage, &colour(point.stage, point.is_stale), at);
    }
    let mut entries = Vec::new();
    for (index, stage) in report.stages.iter().enumerate() {
        if let Some(point) = points.iter().find(|point| point.stage == index) {
            entries.push((index, format!("{}{}", stage.id, if point.is_stale { STALE } else { "" })));
        }
    }
    legend(&mut drawing, BOTTOM + 52.0, &entries, false);
    let words: Vec<String> = points
        .iter()
        .map(|point| format!("{} on {} {} TFLOP/s", report.stages[point.stage].id, point.problem, short(point.tflops)))
        .collect();
    Some(Chart {
        name: "roofline",
        title: format!("Roofline of {gpu}, f16: what each stage's fastest variant achieves; higher is better"),
        description: format!("Ceilings: {}. {}.", peak.source, words.join(", ")),
        height: BOTTOM + 60.0 + legend_height(entries.len()),
        body: drawing.0,
    })
}

fn axes(drawing: &mut Drawing, across: &Axis, up: &Axis) {
    for value in &up.ticks {
        drawing.rule(false, [LEFT, up.at(*value)], [RIGHT, up.at(*value)]);
        drawing.text(From::End, true, [LEFT - 8.0, up.at(*value)], &tick(*value));
    }
    for value in &across.ticks {
        drawing.rule(false, [across.at(*value), BOTTOM], [across.at(*value), TOP]);
        drawing.text(From::Middle, true, [across.at(*value), BOTTOM + 14.0], &tick(*value));
    }
    drawing.rule(true, [LEFT, TOP], [LEFT, BOTTOM]);
    drawing.rule(true, [LEFT, BOTTOM], [RIGHT, BOTTOM]);
    drawing.turned_text(From::Middle, true, [14.0, (TOP + BOTTOM) / 2.0], Some(-90), "TFLOP/s (log scale)");
    let name = "FLOP per byte of Q, K, V and O (log scale)";
    drawing.text(From::Middle, true, [(LEFT + RIGHT) / 2.0, BOTTOM + 34.0], name);
}

/// Memory's slope up to the tensor cores' roof, each with its figure.
fn ceilings(drawing: &mut Drawing, across: &Axis, up: &Axis, peak: &Peak) {
    let (roof, ridge) = (peak.f16_flops / 1e12, peak.f16_flops / peak.bytes);
    let [left, right] = [across.ticks[0], across.ticks[across.ticks.len() - 1]];
    let ridge = ridge.clamp(left, right);
    let slope = |intensity: f64| peak.bytes * intensity / 1e12;
    // Where the slope enters the chart, from its left or from below.
    let start = left.max(up.ticks[0] / slope(1.0));
    if start < ridge {
        let [from, to] = [start, ridge].map(|x| [across.at(x), up.at(slope(x))]);
        drawing.rule(true, from, to);
        let middle = (start * ridge).sqrt();
        let label = format!("{:.2} TB/s of device memory", peak.bytes / 1e12);
        drawing.text(From::Start, true, [across.at(middle) + 12.0, up.at(slope(middle)) + 8.0], &label);
    }
    drawing.rule(true, [across.at(ridge), up.at(roof)], [RIGHT, up.at(roof)]);
    let label = format!("{roof:.0} TFLOP/s of the tensor cores");
    drawing.text(From::End, true, [RIGHT - 4.0, up.at(roof) + 14.0], &label);
}
