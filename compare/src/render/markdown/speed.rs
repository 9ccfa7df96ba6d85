//! Time on every problem, and how far it is from what the GPU could do.

use super::super::Picture;
use super::cells::{escape, folded, microseconds, row, rule};
use super::picture;
use crate::comparison::{ByShape, Origin, Report};
use crate::render::charts::{Achieved, achieved};
use common::record::TimingScope;
use std::fmt::Write;

/// What each stage achieves of the GPU's ceiling, with the charts; nothing where nothing was timed.
pub fn overview(report: &Report, pictures: &[Picture]) -> Option<String> {
    let pictures = picture(pictures, "sweep") + &picture(pictures, "roofline");
    let table = roofline(report).unwrap_or_default();
    let out = table + &pictures;
    (!out.is_empty()).then(|| out.trim_start().to_string())
}

/// TFLOP/s on f16 problems, a row per problem.
fn roofline(report: &Report) -> Option<String> {
    let (gpu, peak, points) = achieved(report)?;
    let mut problems: Vec<&Achieved> = Vec::new();
    for point in &points {
        if !problems.iter().any(|other| other.problem == point.problem) {
            problems.push(point);
        }
    }
    let mut head = vec!["f16 problem", "FLOP/byte", "ceiling"];
    head.extend(report.stages.iter().map(|stage| stage.id.as_str()));
    let mut out = row(&head) + &rule(head.len());
    for problem in problems {
        let mut cells =
            vec![problem.problem.clone(), format!("{:.0}", problem.intensity), format!("{:.0}", problem.ceiling)];
        cells.extend((0..report.stages.len()).map(|stage| {
            let of_stage = points.iter().find(|point| (point.stage, &point.problem) == (stage, &problem.problem));
            of_stage.map_or("–".to_string(), |point| {
                let stale = if point.is_stale { " STALE" } else { "" };
                let of_peak = peak_share(report, point.tflops).map(|share| format!("; {share}")).unwrap_or_default();
                format!("{:.1} ({:.1} %{of_peak}){stale}", point.tflops, 100.0 * point.tflops / point.ceiling)
            })
        }));
        out.push_str(&row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    let _ = writeln!(
        out,
        "\nTFLOP/s of each stage's fastest green variant, and the share of the ceiling: the lower of {:.0} TFLOP/s and {:.2} TB/s \
         × FLOP per byte of Q, K, V and O ({gpu}; {}). FLOP as FlashAttention counts them, masked scores left out. What the L2 \
         cache holds does not cross device memory, so that the second bound is not strict.",
        peak.f16_flops / 1e12,
        peak.bytes / 1e12,
        peak.source
    );
    if let Some((reached, source)) = &report.matrix_peak {
        let _ = writeln!(
            out,
            "\nAfter the semicolon: the share of {:.0} TFLOP/s, the f16 matrix peak as measured ({}).",
            reached / 1e12,
            escape(source)
        );
    }
    Some(out)
}

/// The share of what a large matrix product reaches on this GPU.
fn peak_share(report: &Report, tflops: f64) -> Option<String> {
    report.matrix_peak.as_ref().map(|(reached, _)| format!("{:.1} %", 1e14 * tflops / reached))
}

/// Device time of each stage's best variant, a row per problem, and what was not timed.
pub fn by_shape(report: &Report, pictures: &[Picture]) -> Option<String> {
    let mut head = vec!["shape", "dtype", "mask"];
    head.extend(report.stages.iter().map(|stage| stage.id.as_str()));
    let mut out = row(&head) + &rule(head.len());
    for ByShape { shape_name, dtype, mask, best, .. } in &report.by_shape {
        let mut cells = vec![shape_name.clone(), dtype.to_string(), mask.to_string()];
        cells.extend(best.iter().map(|best| match best {
            Some((variant, us, Origin::Stale { .. })) => format!("{} µs ({variant}) STALE", microseconds(*us)),
            Some((variant, us, _)) => format!("{} µs ({variant})", microseconds(*us)),
            None => "–".to_string(),
        }));
        out.push_str(&row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    for (index, TimingScope { stage, left_out, of, why }) in report.timing_scopes.iter().enumerate() {
        let note = format!("{stage}: {left_out} of {of} timings (a variant on a problem) left out: {why}.");
        let _ = writeln!(out, "{}- {}", if index == 0 { "\n" } else { "" }, escape(&note));
    }
    out.push_str(&picture(pictures, "shapes"));
    let summary = format!("Each stage's fastest green variant on {} problems", report.by_shape.len());
    (!report.by_shape.is_empty()).then(|| folded(&summary, &out))
}
