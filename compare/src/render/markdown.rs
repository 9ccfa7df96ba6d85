//! COMPARE.md: the verdict and what to do first, then what is wrong or missing, then the ladder.

use crate::comparison::{
    ByShape, ClaimRow, ClaimState, ERROR_GROWTH, Figures, LATENCY_CHANGE, Latency, Missing, Origin, Report, Row,
    RowState, Speedup, Subject, caught, subject_name,
};
use common::device::BackendKind;
use common::gate;
use common::record::{DeviceCompiler, Git, Gpu, Planted, Scope, StageBuild};
use common::timing::claim::NOISE_LIMIT;
use common::verdict::Verdict;
use std::fmt::Write;

/// The whole report; `plots` are the paths of its pictures, relative to it.
pub fn report(report: &Report, plots: &[String]) -> String {
    let mut out = String::from("# COMPARE\n\n");
    let _ = writeln!(out, "**{}**\n", escape(&report.overall.to_string()));
    for action in &report.overall.actions {
        let _ = writeln!(out, "- {}", escape(action));
    }
    out.push('\n');
    if let Some(subject) = &report.subject {
        out.push_str(&origin_of(subject));
    }
    section(&mut out, "Failed gates", failures(report));
    section(&mut out, "Changes against the committed records", changes(report));
    section(&mut out, "Missing that this run should have", missing(report, true));
    section(&mut out, "The ladder", Some(ladder(report)));
    section(&mut out, "Claims", claims(report));
    section(&mut out, "Correctness", Some(correctness(report)));
    section(&mut out, "Resources", Some(resources(report)));
    section(&mut out, "Device time by shape", by_shape(report));
    section(&mut out, "Evidence", evidence(report));
    section(&mut out, "Peers", Some("NO DATA: peers are not measured yet.\n".to_string()));
    let pictures: String = plots.iter().map(|path| format!("![{}]({path})\n\n", picture_title(path))).collect();
    section(&mut out, "Plots", (!pictures.is_empty()).then(|| pictures.trim_end().to_string() + "\n"));
    section(&mut out, "Gates on the gates", Some(planted(&report.planted)));
    section(&mut out, "Not measured here", missing(report, false));
    section(&mut out, "Thresholds", Some(thresholds()));
    section(&mut out, "What was built", Some(built(&report.stages)));
    out
}

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
                  64 instance.\n");
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
    let name = if variant.is_default { format!("**{}**", variant.variant) } else { variant.variant.clone() };
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

/// A short word for a row's verdict.
pub fn state(state: &RowState) -> String {
    let gates = |gates: &[common::verdict::GateId]| gates.iter().map(|g| g.to_string()).collect::<Vec<_>>().join(" ");
    match state {
        RowState::Green => "GREEN".to_string(),
        RowState::Failed(failed) => format!("FAIL {}", gates(failed)),
        RowState::Ambiguous(undecided) => format!("AMBIGUOUS {}", gates(undecided)),
        RowState::NoData(lacking) => format!("NO DATA {}", gates(lacking)).trim_end().to_string(),
        RowState::NotRun { reason } => format!("not run: {reason}"),
        RowState::Stale { .. } => "STALE".to_string(),
    }
}

fn origin_of(subject: &Subject) -> String {
    let meta = &subject.meta;
    let source = match &meta.git {
        Git::Commit { sha, dirty } => {
            format!("commit {}{}", &sha[..sha.len().min(12)], if *dirty { " with uncommitted changes" } else { "" })
        }
        Git::Unknown { reason } => format!("source unknown: {reason}"),
    };
    let gpu = match &meta.machine.gpu {
        Gpu::Present { name, arch, driver, multiprocessors, .. } => {
            format!("{name} ({arch}, {multiprocessors} multiprocessors, driver {driver})")
        }
        Gpu::Absent { reason } => format!("no GPU: {reason}"),
    };
    let backend = match meta.backend {
        BackendKind::Cuda => "on the GPU",
        BackendKind::Emulated => "in the emulator: functional, never a latency",
    };
    let scope = match &meta.scope {
        Scope::Whole => String::new(),
        Scope::Selected { flags } => format!(", only {}", flags.join(" ")),
    };
    let kind = if subject.is_run { "This run" } else { "The committed record" };
    format!(
        "{kind}, `{}`: tier {}{scope}, {} cases {backend}. {gpu}; {}, {} processors. {source}.\n\n",
        subject.name, meta.tier, subject.cases, meta.machine.platform, meta.machine.processors
    )
}

fn failures(report: &Report) -> Option<String> {
    let mut rows = vec![row(&["where", "gate", "why"]), rule(3)];
    rows.extend(
        report
            .failures
            .iter()
            .map(|failure| row(&[&failure.place, &failure.result.gate.to_string(), &failure.result.reason])),
    );
    (!report.failures.is_empty()).then(|| rows.concat())
}

fn changes(report: &Report) -> Option<String> {
    let mut rows = vec![row(&["", "where", "what", "was", "is", "record"]), rule(6)];
    rows.extend(report.changes.iter().map(|change| {
        row(&[&change.direction.to_string(), &change.place, &change.what, &change.from, &change.to, &change.against])
    }));
    (!report.changes.is_empty()).then(|| rows.concat())
}

fn missing(report: &Report, required: bool) -> Option<String> {
    let of_kind: Vec<&Missing> = report.missing.iter().filter(|missing| missing.required == required).collect();
    let lines = of_kind.iter().map(|missing| format!("- {}: {}\n", escape(&missing.what), escape(&missing.why)));
    (!of_kind.is_empty()).then(|| lines.collect())
}

fn claims(report: &Report) -> Option<String> {
    let mut rows = vec![row(&["claim", "verdict", "measured", "same preset"]), rule(4)];
    rows.extend(report.claims.iter().map(claim_row));
    (!report.claims.is_empty()).then(|| rows.concat())
}

fn claim_row(claim: &ClaimRow) -> String {
    let judged = |result: &common::record::ClaimResult| {
        let preset = result.same_preset.as_ref().map_or("–".to_string(), |same| {
            let ratio = &same.comparison.ratios.p50;
            format!("{}: {:.3}x [{:.3}, {:.3}]", same.preset, ratio.value, ratio.interval.low, ratio.interval.high)
        });
        (format!("{} against {}: {}", result.variant, result.base_variant, result.result.reason), preset)
    };
    let (verdict, (measured, preset)) = match &claim.state {
        ClaimState::Judged(result) => (result.result.verdict.to_string(), judged(result)),
        ClaimState::Negative { record, reason, evidence } => {
            ("NEGATIVE".to_string(), (format!("{evidence}. {reason} ({record})"), "–".to_string()))
        }
        ClaimState::UnexpectedPass { record, result } => {
            let (measured, preset) = judged(result);
            (format!("{} (unexpected)", result.result.verdict), (format!("{measured}; refuted by {record}"), preset))
        }
        ClaimState::Committed { record, gpu, result } => {
            let (measured, preset) = judged(result);
            (result.result.verdict.to_string(), (format!("{measured} ({record}, {gpu})"), preset))
        }
        ClaimState::Stale { record, gpu, result, why } => {
            let (measured, preset) = judged(result);
            (format!("STALE {}", result.result.verdict), (format!("{measured} ({record}, {gpu}: {why})"), preset))
        }
        ClaimState::NoData { reason } => (Verdict::NoData.to_string(), (reason.clone(), "–".to_string())),
    };
    row(&[&claim.title(), &verdict, &measured, &preset])
}

fn correctness(report: &Report) -> String {
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

fn resources(report: &Report) -> String {
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
    let mut any = false;
    for stage in &report.stages {
        for kernel in stage.variants.iter().flat_map(|variant| &variant.kernels) {
            for built in &kernel.built {
                any = true;
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
    if any { rows.concat() } else { "NO DATA: no GPU code was built.\n".to_string() }
}

fn by_shape(report: &Report) -> Option<String> {
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
    (!report.by_shape.is_empty()).then(|| rows.concat())
}

fn evidence(report: &Report) -> Option<String> {
    let evidence = report.evidence.as_ref()?;
    let mut out = String::new();
    if !evidence.rows.is_empty() {
        out.push_str(&row(&["stage", "variant", "source", "what", "value", "verdict", "why"]));
        out.push_str(&rule(7));
        for e in &evidence.rows {
            let verdict = e.result.verdict.to_string();
            out.push_str(&row(&[&e.stage, &e.variant, &e.source, &e.what, &e.value, &verdict, &e.result.reason]));
        }
        out.push('\n');
    }
    for absent in &evidence.absent {
        let _ = writeln!(out, "- {} {}: {}", absent.gate, absent.verdict, escape(&absent.reason));
    }
    (!out.is_empty()).then_some(out)
}

fn planted(planted: &Planted) -> String {
    match planted {
        Planted::NotTried { reason } => format!("NO DATA: {reason}.\n"),
        Planted::Tried { subjects } => {
            let (caught, of) = caught(subjects);
            let mut out = format!("Planted faults caught: {caught} of {of}.\n\n");
            out.push_str(&row(&["planted", "cases", "cases failed", "gates that failed", "as it should"]));
            out.push_str(&rule(5));
            for subject in subjects {
                let gates: Vec<String> = subject.gates_that_failed.iter().map(|gate| gate.to_string()).collect();
                out.push_str(&row(&[
                    subject_name(subject),
                    &subject.cases.to_string(),
                    &subject.cases_failed.to_string(),
                    &or_dash(gates.join(" ")),
                    if subject.as_it_should() { "yes" } else { "NO" },
                ]));
            }
            out
        }
    }
}

fn thresholds() -> String {
    format!(
        "- C1: no element left unwritten, none infinite\n\
         - C2: max error ≤ {} × that of a plain implementation + {} f16 ulps at the largest reference value\n\
         - C3: per row ‖o − r‖ / ‖r‖ ≤ {:.0e} (P in e4m3: {:.0e}); a row without keys is exactly 0\n\
         - C4: f16 allclose, atol {:.0e}, rtol {:.0e}; e4m3 against unquantised FP64: mean ≤ {}, at most {:.0} % of errors above {}\n\
         - C5: all launches bitwise equal; C6: margins, gaps and inputs intact\n\
         - R1: no spills, no stack, registers and shared memory within the preset's caps, no two variants with one machine code\n\
         - L1: the 95 % interval of base/new reaches the claim on p50, p90 and mean; noise (p90 − p50) / p50 ≤ {:.0} %\n\
         - A change against a committed record: p50 by more than {:.0} % with separate intervals, or an error {ERROR_GROWTH} times as large\n",
        gate::C2_PLAIN_FACTOR,
        gate::C2_OUTPUT_ULPS,
        gate::C3_ROW,
        gate::C3_ROW_E4M3_P,
        gate::C4_ATOL,
        gate::C4_RTOL,
        gate::C4_E4M3_MEAN,
        100.0 * gate::C4_E4M3_BAD_SHARE,
        gate::C4_E4M3_BAD,
        100.0 * NOISE_LIMIT,
        100.0 * LATENCY_CHANGE,
    )
}

fn built(stages: &[StageBuild]) -> String {
    let mut rows = vec![row(&["stage", "idea", "identity", "GPU compiler", "host compiler"]), rule(5)];
    rows.extend(stages.iter().map(|stage| {
        let compiler = match &stage.device_compiler {
            DeviceCompiler::Built { nvcc, archs, .. } => format!("nvcc {nvcc}: {}", archs.join(", ")),
            DeviceCompiler::Absent { reason } => format!("none: {reason}"),
        };
        let identity = &stage.identity[..stage.identity.len().min(12)];
        row(&[&stage.id, &stage.idea, identity, &compiler, &stage.host_compiler])
    }));
    rows.concat()
}

fn picture_title(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path).trim_end_matches(".svg")
}

fn section(out: &mut String, title: &str, body: Option<String>) {
    if let Some(body) = body {
        let _ = write!(out, "## {title}\n\n{body}\n");
    }
}

fn row(cells: &[&str]) -> String {
    let escaped: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    format!("| {} |\n", escaped.join(" | "))
}

fn rule(columns: usize) -> String {
    format!("|{}\n", "---|".repeat(columns))
}

/// Pipes end a cell and line breaks end a row.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "–".to_string() } else { text }
}

fn speedup(speedup: Option<&Speedup>) -> String {
    speedup
        .map_or("–".to_string(), |speedup| format!("{:.2}x (−{:.0} %)", speedup.ratio, speedup.reduction_percent()))
}

/// Three digits after the point below 10, two below 100, one above.
fn microseconds(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 100.0 => format!("{us:.2}"),
        us => format!("{us:.1}"),
    }
}
