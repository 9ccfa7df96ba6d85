//! The charts of the ladder and of the peers.

use super::bars::{Bar, Chart, stacked};
use super::canvas::DrawError;
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
pub fn draw(report: &Report<'_>) -> Result<String, DrawError> {
    stacked("The ladder", &ladder_charts(report))
}

/// Returns how many times as long the fastest peer takes as our fastest stage, by kind of problem
/// and element type.
pub fn draw_peers(report: &Report<'_>) -> Result<String, DrawError> {
    stacked("The fastest peer's time / ours", &[peers_chart(report)])
}

/// Returns the charts of the ladder: the main path at its two problems, and the branches.
pub fn ladder_charts(report: &Report<'_>) -> [Chart; 3] {
    let gpu = report.view.gpu().unwrap_or("no GPU");
    let mut latencies = Vec::new();
    let mut rates = Vec::new();
    let mut gains = Vec::new();
    for stage in report.view.stages {
        if stage.role == Role::Rung {
            latencies.push(latency_bar(report, stage));
            rates.extend(rate_bar(report, stage));
        } else {
            gains.extend(gain_bar(report, stage));
        }
    }
    [
        Chart {
            title: format!("Main path at mission, a small grid; {gpu}"),
            note: format!(
                "µs at {}, alone; gain over the stage before (claimed)",
                ladder::extents("mission")
            ),
            bars: latencies,
            axis: "µs".into(),
            mark: None,
            has_names: true,
        },
        Chart {
            title: "Main path at big, a grid that fills the GPU".into(),
            note: note_at_large(report),
            bars: rates,
            axis: "TFLOP/s".into(),
            mark: None,
            has_names: true,
        },
        Chart {
            title: "Branches, each at its own problem".into(),
            note: "gain over the stage named (claimed), the two timed in turn; red: no gain".into(),
            bars: gains,
            axis: "times as fast".into(),
            mark: Some(1.0),
            has_names: true,
        },
    ]
}

fn note_at_large(report: &Report<'_>) -> String {
    let regime = match ladder::regime_at_large(report) {
        Some(Regime::Sustained) => "sustained",
        Some(Regime::Burst) | None => "alone",
    };
    let extents = ladder::extents("big");
    format!("TFLOP/s at {extents}, {regime}; gain over the stage before (claimed)")
}

fn latency_bar(report: &Report<'_>, stage: &StageMeta) -> Bar {
    let place = stage.first_place();
    let us = alone(&report.view, stage, &place).map(p50);
    let text = us.map_or("not measured".into(), three_digits);
    Bar {
        note: gain_note(report, stage, &place),
        ..Bar::new(counted::title(stage), us, text)
    }
}

/// Returns the bar of a stage that was timed on the large problem.
fn rate_bar(report: &Report<'_>, stage: &StageMeta) -> Option<Bar> {
    let places = stage.places();
    let place = places.last()?;
    let row = ladder::timed(report, stage, place)?;
    let tflops = rate_of(place, p50(row))? / 1e12;
    Some(Bar {
        note: gain_note(report, stage, place),
        ..Bar::new(counted::title(stage), Some(tflops), three_digits(tflops))
    })
}

fn gain_bar(report: &Report<'_>, branch: &StageMeta) -> Option<Bar> {
    let places = branch.places();
    let place = places.first()?;
    let ratio = gain(report, branch, place).ratio();
    let mut text = gain_note(report, branch, place);
    if text.is_empty() {
        text = "not measured".into();
    }
    Some(Bar {
        note: place.to_string(),
        ..Bar::new(counted::title(branch), ratio, text)
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
    let bars = groups.into_iter().map(|group| {
        let (kind, dtype) = group.key;
        peers_bar(kind, dtype, group.values)
    });
    Chart {
        title: format!(
            "Fastest peer's time / ours, {}",
            view.gpu().unwrap_or("no GPU")
        ),
        note: "geometric mean, and the range over the problems; red: level".into(),
        bars: bars.collect(),
        axis: "times as fast".into(),
        mark: Some(1.0),
        has_names: true,
    }
}

fn peers_bar(kind: Kind, dtype: Dtype, mut ratios: Vec<f64>) -> Bar {
    ratios.sort_by(f64::total_cmp);
    let range = ratios[0]..ratios[ratios.len() - 1];
    let problems = count(ratios.len(), "problem", "problems");
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (logarithms / ratios.len() as f64).exp();
    Bar {
        note: format!("{:.2}x to {:.2}x, {problems}", range.start, range.end),
        range: Some(range),
        ..Bar::new(format!("{kind} {dtype}"), Some(mean), format!("{mean:.2}x"))
    }
}
