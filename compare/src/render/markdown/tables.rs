//! The large tables: the ladder, correctness, resources, device time by shape.

use super::cells::{escape, microseconds, or_dash, row, rule, speedup};
use super::state;
use crate::comparison::{ByShape, Figures, Latency, Origin, Report, Row};
use common::record::TimingScope;
use common::verdict::Verdict;
use std::fmt::Write;

/// The ladder table, as it also stands in the README.
pub fn ladder(report: &Report) -> String {
    let mut rows = vec![row(&[
        "stage",
        "variant",
        "verdict",
        "p50 µs",
        "p90",
        "mean",
        "std",
        "single p50",
        "vs previous",
        "vs stage 0",
        "max error",
        "registers",
        "shared B",
        "occupancy",
    ])];
    rows.push(rule(14));
    let mut notes: Vec<String> = Vec::new();
    for variant in &report.rows {
        rows.push(ladder_row(variant, &mut notes));
    }
    let mut out = rows.concat();
    out.push_str("\nDevice time of one launch (CUDA graph), mission (1×8×512×64), f16, full mask, warm L2; `single` is one launch \
                  between two events. Ratios are base/new of medians in one record. Registers and occupancy of the f16, head_dim \
                  64 instance. Bold: the stage's fastest green variant here, its default where none was timed.\n");
    for (index, note) in notes.iter().enumerate() {
        let _ = writeln!(out, "{}- {}", if index == 0 { "\n" } else { "" }, escape(note));
    }
    out
}

fn ladder_row(variant: &Row, notes: &mut Vec<String>) -> String {
    let mut time = vec!["–".to_string(); 7];
    match &variant.latency {
        Latency::Measured { figures, origin } => {
            let Figures { p50, p90, mean, std, single_p50, .. } = figures;
            time[..5].clone_from_slice(&[p50, p90, mean, std, single_p50].map(|us| microseconds(*us)));
            time[5] = speedup(figures.vs_previous.as_ref());
            time[6] = speedup(figures.vs_first.as_ref());
            let place = format!("{}/{}", variant.stage, variant.variant);
            match origin {
                Origin::Run => {}
                Origin::Committed { record, gpu } => {
                    push_new(
                        notes,
                        format!("Latencies of {} are from the committed record {record} ({gpu}).", variant.stage),
                    );
                }
                Origin::Stale { record, gpu, why } => {
                    time[0].push_str(" STALE");
                    push_new(notes, format!("STALE: {place} from {record} ({gpu}): {why}."));
                }
            }
        }
        Latency::Withheld { reason } => push_new(notes, format!("No latency: {reason}.")),
        Latency::NoData { .. } => {}
    }
    let resources = &variant.resources;
    let registers: Vec<String> = resources.built.iter().map(|(_, registers, _)| registers.to_string()).collect();
    let occupancy: Vec<String> = resources
        .built
        .iter()
        .map(|(_, _, occupancy)| occupancy.map_or("?".into(), |occupancy| format!("{:.0} %", occupancy.percent())))
        .collect();
    let error = variant.worst.as_ref().map_or("–".to_string(), |worst| format!("{:.1e}", worst.max_abs));
    let name = if variant.is_headline { format!("**{}**", variant.variant) } else { variant.variant.clone() };
    let mut cells = vec![variant.stage.clone(), name, state(&variant.state)];
    cells.extend(time);
    cells.extend([
        error,
        or_dash(registers.join(" / ")),
        resources.shared_bytes.to_string(),
        or_dash(occupancy.join(" / ")),
    ]);
    row(&cells.iter().map(String::as_str).collect::<Vec<_>>())
}

fn push_new(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Gates and errors, a row per variant.
pub fn correctness(report: &Report) -> String {
    let mut ids: Vec<_> = report.rows.iter().flat_map(|row| row.gates.iter().map(|gate| gate.result.gate)).collect();
    ids.sort();
    ids.dedup();
    let names: Vec<String> = ids.iter().map(|id| id.to_string()).collect();
    let mut head = vec!["stage", "variant", "cases"];
    head.extend(names.iter().map(String::as_str));
    head.extend(["largest error", "worst row", "where"]);
    let mut rows = vec![row(&head), rule(head.len())];
    for variant in &report.rows {
        let mut cells = vec![variant.stage.clone(), variant.variant.clone(), variant.checked.to_string()];
        for id in &ids {
            let gate = variant.gates.iter().find(|gate| gate.result.gate == *id);
            cells.push(gate.map_or("–".to_string(), |gate| match gate.result.verdict {
                Verdict::Pass => format!("{} of {}", gate.passed, gate.of),
                other => other.to_string(),
            }));
        }
        match &variant.worst {
            Some(worst) => {
                cells.extend([format!("{:.2e}", worst.max_abs), format!("{:.2e}", worst.max_row), worst.at.clone()])
            }
            None => cells.extend(["–", "–", "–"].map(String::from)),
        }
        rows.push(row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    rows.concat()
}

/// What ptxas said, a row per instance and architecture, folded: the ladder has the summary.
pub fn resources(report: &Report) -> String {
    let mut rows = vec![
        row(&[
            "instance",
            "arch",
            "registers",
            "cap",
            "spilled B",
            "stack B",
            "shared B",
            "cap",
            "occupancy",
            "limited by",
            "R1",
        ]),
        rule(11),
    ];
    let (mut any, mut failed) = (false, 0);
    for stage in &report.stages {
        for kernel in stage.variants.iter().flat_map(|variant| &variant.kernels) {
            for built in &kernel.built {
                any = true;
                failed += usize::from(built.result.verdict == Verdict::Fail);
                let (facts, r) = (&kernel.facts, &built.ptxas.resources);
                let occupancy = built.occupancy.map_or(("?".to_string(), "?"), |occupancy| {
                    (format!("{:.0} %, {} blocks", occupancy.percent(), occupancy.blocks), occupancy.limit.label())
                });
                rows.push(row(&[
                    &facts.symbol,
                    &built.ptxas.arch,
                    &r.registers.to_string(),
                    &facts.register_cap.to_string(),
                    &(r.spill_store_bytes + r.spill_load_bytes).to_string(),
                    &r.stack_frame_bytes.to_string(),
                    &facts.dynamic_shared_bytes.to_string(),
                    &facts.shared_cap_bytes.to_string(),
                    &occupancy.0,
                    occupancy.1,
                    &built.result.verdict.to_string(),
                ]));
            }
        }
    }
    if !any {
        return "NO DATA: no GPU code was built.\n".to_string();
    }
    let summary = format!("{} compiled kernels, {failed} outside their caps", rows.len() - 2);
    format!("<details><summary>{summary}</summary>\n\n{}\n</details>\n", rows.concat())
}

/// Device time of each stage's best variant, a row per problem.
pub fn by_shape(report: &Report) -> Option<String> {
    let mut head = vec!["shape", "dtype", "mask"];
    head.extend(report.stages.iter().map(|stage| stage.id.as_str()));
    let mut rows = vec![row(&head), rule(head.len())];
    for ByShape { shape_name, dtype, mask, best } in &report.by_shape {
        let mut cells = vec![shape_name.clone(), dtype.to_string(), mask.to_string()];
        cells.extend(best.iter().map(|best| match best {
            Some((variant, us, Origin::Stale { .. })) => format!("{} µs ({variant}) STALE", microseconds(*us)),
            Some((variant, us, _)) => format!("{} µs ({variant})", microseconds(*us)),
            None => "–".to_string(),
        }));
        rows.push(row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    let notes = report.timing_scopes.iter().enumerate().map(|(index, TimingScope { stage, left_out, of, why })| {
        let note = format!("{stage}: {left_out} of {of} timings (a variant on a problem) left out: {why}.");
        format!("{}- {}\n", if index == 0 { "\n" } else { "" }, escape(&note))
    });
    (!report.by_shape.is_empty()).then(|| rows.into_iter().chain(notes).collect())
}
