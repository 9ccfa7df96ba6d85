//! The large tables: the ladder, correctness, resources.

use super::cells::{escape, folded, microseconds, or_dash, row, rule, speedup};
use super::{peers, state};
use crate::comparison::{Figures, Latency, Origin, Report, Row};
use common::record::BuiltKernel;
use common::resources::Caps;
use common::verdict::Verdict;
use std::fmt::Write;

/// The ladder, a row per stage, as it also stands in the README.
pub fn ladder(report: &Report) -> String {
    let headlines: Vec<&Row> = report.rows.iter().filter(|row| row.is_headline).collect();
    let mut out = table_of(&headlines);
    out.push_str("\nEach stage's fastest green variant here, its default where none was timed. Device time of one launch (CUDA \
                  graph), mission (1×8×512×64), f16, full mask, warm L2; `single` is one launch between two events. Ratios are \
                  base/new of medians in one record. Registers and occupancy of the f16, head_dim 64 instance");
    let archs = headlines.iter().map(|row| &row.resources.built).find(|built| !built.is_empty());
    let archs: Vec<&str> = archs.into_iter().flatten().map(|(arch, ..)| arch.as_str()).collect();
    if !archs.is_empty() {
        let _ = write!(out, ", {}; `no block` where the shared memory is too small for one", archs.join(" / "));
    }
    out.push_str(".\n");
    out.push_str(&notes(&headlines, peers::headline(report)));
    out
}

/// The same for every variant, folded.
pub fn variants(report: &Report, picture: &str) -> String {
    let all: Vec<&Row> = report.rows.iter().collect();
    let mut tally: Vec<(String, usize)> = Vec::new();
    for row in &all {
        let state = state(&row.state);
        match tally.iter_mut().find(|(other, _)| *other == state) {
            Some((_, count)) => *count += 1,
            None => tally.push((state, 1)),
        }
    }
    let tally: Vec<String> = tally.into_iter().map(|(state, count)| format!("{count} {state}")).collect();
    let summary = format!("{} variants: {}", all.len(), tally.join(", "));
    folded(&summary, &format!("{}{}{picture}", table_of(&all), notes(&all, None)))
}

fn table_of(variants: &[&Row]) -> String {
    let head = [
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
    ];
    row(&head) + &rule(head.len()) + &variants.iter().map(|variant| ladder_row(variant)).collect::<String>()
}

/// Whose latencies they are, where not this run's, why there are none, and what else there is to say.
fn notes(variants: &[&Row], more: Option<String>) -> String {
    let mut of_records: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for variant in variants {
        match &variant.latency {
            Latency::Measured { origin: Origin::Committed { record, gpu }, .. } => {
                match of_records.iter_mut().find(|(name, _, _)| name == record) {
                    Some((_, _, stages)) if stages.contains(&variant.stage.as_str()) => {}
                    Some((_, _, stages)) => stages.push(&variant.stage),
                    None => of_records.push((record, gpu, vec![&variant.stage])),
                }
            }
            Latency::Measured { origin: Origin::Stale { record, gpu, why }, .. } => {
                notes.push(format!("STALE: {}/{} from {record} ({gpu}): {why}.", variant.stage, variant.variant));
            }
            Latency::Withheld { reason } => notes.push(format!("No latency: {reason}.")),
            _ => {}
        }
    }
    let of_record = |(record, gpu, stages): (&str, &str, Vec<&str>)| {
        format!("Latencies of {} are from the committed record {record} ({gpu}).", stages.join(", "))
    };
    let notes = of_records.into_iter().map(of_record).chain(notes).chain(more).enumerate();
    notes.map(|(index, note)| format!("{}- {}\n", if index == 0 { "\n" } else { "" }, escape(&note))).collect()
}

fn ladder_row(variant: &Row) -> String {
    let mut time = vec!["–".to_string(); 7];
    match &variant.latency {
        Latency::Measured { figures, origin } => {
            let Figures { p50, p90, mean, std, single_p50, .. } = figures;
            time[..5].clone_from_slice(&[p50, p90, mean, std, single_p50].map(|us| microseconds(*us)));
            time[5] = speedup(figures.vs_previous.as_ref());
            time[6] = speedup(figures.vs_first.as_ref());
            if let Origin::Stale { .. } = origin {
                time[0].push_str(" STALE");
            }
        }
        Latency::Withheld { .. } | Latency::NoData { .. } => {}
    }
    let resources = &variant.resources;
    let registers: Vec<String> = resources.built.iter().map(|(_, registers, _)| registers.to_string()).collect();
    let occupancy: Vec<String> = resources
        .built
        .iter()
        .map(|(_, _, occupancy)| match occupancy {
            None => "?".into(),
            Some(occupancy) if occupancy.blocks == 0 => "no block".into(),
            Some(occupancy) => format!("{:.0} %", occupancy.percent()),
        })
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

/// Gates and errors, a row per variant, folded.
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
    let cases: usize = report.rows.iter().map(|row| row.checked).sum();
    let worst = report.rows.iter().filter_map(|row| row.worst.as_ref()).max_by(|a, b| a.max_abs.total_cmp(&b.max_abs));
    let worst = worst.map_or(String::new(), |worst| format!("; largest error {:.2e}, on {}", worst.max_abs, worst.at));
    folded(&format!("Gates over {cases} cases of {} variants{worst}", report.rows.len()), &rows.concat())
}

/// What ptxas said, a row per instance, folded: the ladder has the summary. Where architectures differ, a figure each.
pub fn resources(report: &Report) -> String {
    let head =
        ["instance", "registers", "cap", "spilled B", "stack B", "shared B", "cap", "occupancy", "limited by", "R1"];
    let mut out = row(&head) + &rule(head.len());
    let (mut kernels, mut failed, mut archs) = (0, 0, Vec::new());
    for kernel in report.stages.iter().flat_map(|stage| &stage.variants).flat_map(|variant| &variant.kernels) {
        let (facts, built) = (&kernel.facts, &kernel.built);
        let cap = |of: fn(Caps) -> usize| facts.caps.map_or("none".to_string(), |caps| of(caps).to_string());
        if built.is_empty() {
            continue;
        }
        kernels += built.len();
        failed += built.iter().filter(|built| built.result.verdict == Verdict::Fail).count();
        let names: Vec<&str> = built.iter().map(|built| built.ptxas.arch.as_str()).collect();
        if !archs.contains(&names.join(" / ")) {
            archs.push(names.join(" / "));
        }
        let each = |figure: &dyn Fn(&BuiltKernel) -> String| either(&built.iter().map(figure).collect::<Vec<_>>());
        out.push_str(&row(&[
            &facts.symbol,
            &each(&|b| b.ptxas.resources.registers.to_string()),
            &cap(|caps| caps.register_cap as usize),
            &each(&|b| (b.ptxas.resources.spill_store_bytes + b.ptxas.resources.spill_load_bytes).to_string()),
            &each(&|b| b.ptxas.resources.stack_frame_bytes.to_string()),
            &facts.dynamic_shared_bytes.to_string(),
            &cap(|caps| caps.shared_cap_bytes),
            &each(&|b| b.occupancy.map_or("?".into(), |o| format!("{:.0} %, {} blocks", o.percent(), o.blocks))),
            &each(&|b| b.occupancy.map_or("?", |o| o.limit.label()).to_string()),
            &each(&|b| b.result.verdict.to_string()),
        ]));
    }
    if kernels == 0 {
        return "NO DATA: no GPU code was built.\n".to_string();
    }
    folded(&format!("{kernels} compiled kernels, {failed} outside their caps; figures of {}", archs.join(" or ")), &out)
}

/// One figure where all are equal, else all of them.
fn either(figures: &[String]) -> String {
    match figures {
        [first, others @ ..] if others.iter().all(|other| other == first) => first.clone(),
        all => all.join(" / "),
    }
}
