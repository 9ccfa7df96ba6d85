//! The charts of the ladder and of the peers.

use super::svg::{Chart, Line, Mark, Unit, picture};
use crate::cells::three_digits;
use crate::counted;
use crate::ladder::{self, alone, gain, kind, rate_of};
use common::metric::Metric;
use common::problem::{Dtype, Kind};
use common::timing::Regime;
use results::judge::best::p50;
use results::judge::list::{count, grouped};
use results::judge::peers;
use results::judge::verdict::Report;
use results::table::{ProblemPlace, Role, StageMeta};

/// Returns the main path at its two problems, and the gain of each branch at its own.
pub fn ladder(report: &Report<'_>) -> String {
    picture("The ladder", &ladder_charts(report))
}

/// Returns how many times as long the fastest peer takes as our fastest stage, by kind of problem
/// and element type.
pub fn against_peers(report: &Report<'_>) -> String {
    picture("The fastest peer's time / ours", &[peers_chart(report)])
}

/// Returns the charts of the ladder: the main path at its two problems, and the branches.
pub fn ladder_charts(report: &Report<'_>) -> [Chart; 3] {
    let gpu = report.view.gpu().unwrap_or("no GPU");
    let mut latencies = Vec::new();
    let mut rates = Vec::new();
    let mut gains = Vec::new();
    for stage in report.view.stages {
        if stage.role == Role::Rung {
            latencies.push(latency_line(report, stage));
            rates.extend(rate_line(report, stage));
        } else {
            gains.extend(gain_line(report, stage));
        }
    }
    [
        Chart {
            title: format!("Main path at mission, a small grid; {gpu}"),
            note: "µs at 1x8x512x64, alone; gain over the stage before (claimed)",
            lines: latencies,
            unit: Unit::Microseconds,
            mark: None,
        },
        Chart {
            title: "Main path at big, a grid that fills the GPU".into(),
            note: note_at_large(report),
            lines: rates,
            unit: Unit::Tflops,
            mark: None,
        },
        Chart {
            title: "Branches, each at its own problem".into(),
            note: "gain over the stage named (claimed), the two timed in turn",
            lines: gains,
            unit: Unit::Ratio,
            mark: Some(Mark {
                value: 1.0,
                text: "1.00x: no gain",
            }),
        },
    ]
}

fn note_at_large(report: &Report<'_>) -> &'static str {
    match ladder::regime_at_large(report) {
        Some(Regime::Sustained) => "TFLOP/s at 4x16x4096x64, sustained; gain over the one before",
        Some(Regime::Burst) | None => "TFLOP/s at 4x16x4096x64, alone; gain over the stage before",
    }
}

fn latency_line(report: &Report<'_>, stage: &StageMeta) -> Line {
    let place = stage.first_place();
    let us = alone(&report.view, stage, &place).map(p50);
    Line {
        name: counted::title(stage),
        value: us,
        text: match us {
            Some(time) => format!("{} µs", three_digits(time)),
            None => "not measured".into(),
        },
        note: gain_note(report, stage, &place),
    }
}

/// Returns the line of a stage that was timed on the large problem.
fn rate_line(report: &Report<'_>, stage: &StageMeta) -> Option<Line> {
    let places = ladder::places(stage);
    let place = places.last()?;
    let row = ladder::timed(report, stage, place)?;
    let tflops = rate_of(place, p50(row))? / 1e12;
    Some(Line {
        name: counted::title(stage),
        value: Some(tflops),
        text: format!("{tflops:.0} TFLOP/s"),
        note: gain_note(report, stage, place),
    })
}

fn gain_line(report: &Report<'_>, branch: &StageMeta) -> Option<Line> {
    let places = ladder::places(branch);
    let place = places.first()?;
    Some(Line {
        name: counted::title(branch),
        value: gain(report, branch, place).ratio(),
        text: place.to_string(),
        note: gain_note(report, branch, place),
    })
}

fn gain_note(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> String {
    gain(report, stage, place).cell().shown().to_string()
}

/// Returns the chart of the peers' times over ours.
pub fn peers_chart(report: &Report<'_>) -> Chart {
    let view = &report.view;
    let mut ratios = Vec::new();
    for problem in peers::problems(view) {
        if view.is_stale(problem.ours) {
            continue;
        }
        let Some(rival) = problem.fastest else {
            continue;
        };
        if let Some(ratio) = rival.over.value(Metric::SpeedupP50) {
            let kind = kind(problem.place);
            ratios.push(((kind, problem.place.dtype), ratio));
        }
    }
    let mut groups = grouped(ratios);
    groups.sort_by_key(|group| group.key.0);
    let lines = groups.into_iter().map(|group| {
        let (kind, dtype) = group.key;
        peers_line(kind, dtype, group.values)
    });
    Chart {
        title: format!(
            "Fastest peer's time / ours, {}",
            view.gpu().unwrap_or("no GPU")
        ),
        note: "geometric mean, and the range over the problems",
        lines: lines.collect(),
        unit: Unit::Ratio,
        mark: Some(Mark {
            value: 1.0,
            text: "1.00x: level",
        }),
    }
}

fn peers_line(kind: Kind, dtype: Dtype, mut ratios: Vec<f64>) -> Line {
    ratios.sort_by(f64::total_cmp);
    let least = ratios[0];
    let largest = ratios[ratios.len() - 1];
    let problems = count(ratios.len(), "problem", "problems");
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (logarithms / ratios.len() as f64).exp();
    Line {
        name: format!("{kind} {dtype}"),
        value: Some(mean),
        text: format!("{mean:.2}x"),
        note: format!("{least:.2}x to {largest:.2}x on {problems}"),
    }
}
