//! COMPARE.md: the verdict and what to do first, then what is wrong or missing, then the ladder.

pub mod cells;
mod counters;
mod peers;
mod profile;
mod sanitizer;
mod speed;
mod tables;

pub use peers::peers;
pub use profile::profile;
pub use sanitizer::sanitizer;
pub use tables::ladder;

use super::Picture;
use crate::comparison::diff::LATENCY_CHANGE;
use crate::comparison::{
    Change, ClaimRow, ClaimState, Direction, Judgement, Missing, NCU_TOLERANCE, Report, RowState, Subject, caught,
    subject_name,
};
use cells::{escape, folded, or_dash, row, rule};
use common::device::BackendKind;
use common::gate;
use common::record::{DeviceCompiler, EvidenceResult, Git, Gpu, Planted, Scope, StageBuild};
use common::suppression::{Finding, Presets, SiteResult, Synchronisation};
use common::timing::claim::NOISE_LIMIT;
use common::verdict::{GateId, Verdict};
use std::fmt::Write;

/// The whole report: what decides, then, folded, what it is drawn from. `pictures` are its charts.
pub fn report(report: &Report, pictures: &[Picture]) -> String {
    let mut out = String::from("# COMPARE\n\n");
    let _ = writeln!(out, "**{}**\n", escape(&report.overall.to_string()));
    for action in &report.overall.actions {
        let _ = writeln!(out, "- {}", escape(action));
    }
    out.push('\n');
    if let Some(subject) = &report.subject {
        out.push_str(&origin_of(subject));
    }
    section(&mut out, "The ladder", Some(ladder(report) + &picture(pictures, "ladder")));
    section(&mut out, "Failed gates", failures(report));
    section(&mut out, "Missing that this run should have", missing(report, true));
    let refused: Vec<String> = report.refused().map(|line| format!("- {}\n", escape(&line))).collect();
    section(&mut out, "Unsupported by the device", (!refused.is_empty()).then(|| refused.concat()));
    section(&mut out, "Changes against the committed records", changes(report));
    section(&mut out, "Claims", claims(report));
    section(&mut out, "Evidence claims", evidence_claims(report));
    section(&mut out, "Evidence", evidence(report));
    section(&mut out, "Peers", Some(peers(report)));
    section(&mut out, "Not measured here", missing(report, false));
    section(&mut out, "Time and roofline", speed::overview(report, pictures));
    section(&mut out, "Device time by shape", speed::by_shape(report, pictures));
    section(&mut out, "All variants", Some(tables::variants(report, &picture(pictures, "variants"))));
    section(&mut out, "Correctness", Some(tables::correctness(report)));
    section(&mut out, "Resources", Some(tables::resources(report)));
    section(&mut out, "Counters", Some(counters::counters(report)));
    section(&mut out, "Profile", Some(profile(report)));
    section(&mut out, "compute-sanitizer", Some(sanitizer(report)));
    section(&mut out, "Gates on the gates", Some(gates_on_gates(report)));
    section(&mut out, "Thresholds", Some(folded("What each gate demands", &thresholds())));
    section(&mut out, "What was built", Some(folded("Stages, versions and compilers", &built(&report.stages))));
    out
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
    let device = meta.device.map_or(String::new(), |device| {
        format!(", limited to what {device} offers: {} bytes of shared memory a block", device.shared_opt_in_bytes)
    });
    let kind = if subject.is_run { "This run" } else { "The committed record" };
    format!(
        "{kind}, `{}`: tier {}{scope}, {} cases {backend}{device}. {gpu}; {}, {} processors. {source}.\n\n",
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

/// Regressions are open; the others are folded.
fn changes(report: &Report) -> Option<String> {
    let table = |changes: &[&Change]| {
        let line = |change: &&Change| {
            let Change { direction, place, what, from, to, against } = change;
            row(&[&direction.to_string(), place, what, from, to, against])
        };
        row(&["", "where", "what", "was", "is", "record"]) + &rule(6) + &changes.iter().map(line).collect::<String>()
    };
    let (worse, others): (Vec<_>, Vec<_>) =
        report.changes.iter().partition(|change| change.direction == Direction::Worse);
    let better = others.iter().filter(|change| change.direction == Direction::Better).count();
    let open = if worse.is_empty() { "No regression.\n".to_string() } else { table(&worse) };
    let summary = format!("{better} improvements, {} changes that are neither", others.len() - better);
    let rest = if others.is_empty() { String::new() } else { format!("\n{}", folded(&summary, &table(&others))) };
    (!report.changes.is_empty()).then(|| open + &rest)
}

fn missing(report: &Report, required: bool) -> Option<String> {
    let of_kind: Vec<&Missing> = report.missing.iter().filter(|missing| missing.required == required).collect();
    let lines = of_kind.iter().map(|missing| format!("- {}: {}\n", escape(&missing.what), escape(&missing.why)));
    (!of_kind.is_empty()).then(|| lines.collect())
}

fn claims(report: &Report) -> Option<String> {
    let mut rows = vec![row(&["claim", "verdict", "measured", "same preset"]), rule(4)];
    rows.extend(report.claims.iter().map(|claim| {
        let same = judged(&claim.state).and_then(|judged| judged.same_preset.as_ref());
        let preset = same.map_or("–".to_string(), |same| {
            let ratio = &same.comparison.ratios.p50;
            format!("{}: {:.3}x [{:.3}, {:.3}]", same.preset, ratio.value, ratio.interval.low, ratio.interval.high)
        });
        let (verdict, measured) = claim_state(&claim.state);
        row(&[&claim.title(), &verdict, &measured, &preset])
    }));
    rows.extend(report.peer_claims.iter().map(|claim| {
        let (verdict, measured) = claim_state(&claim.state);
        let goal = claim.terms.goal.map(|goal| format!(" (goal {goal:.2}x)")).unwrap_or_default();
        row(&[&(claim.title() + &goal), &verdict, &measured, "–"])
    }));
    let why = why_negative(&report.claims) + &why_negative(&report.peer_claims);
    (rows.len() > 2).then(|| rows.concat() + &why)
}

/// What the records say of the claims that they refute, once for all claims that one reason covers.
fn why_negative<J: Judgement>(claims: &[ClaimRow<J>]) -> String {
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for claim in claims {
        if let ClaimState::Negative { record, reason, .. } = &claim.state
            && !reasons.contains(&(record, reason))
        {
            reasons.push((record, reason));
        }
    }
    let line = |(record, reason): &(&str, &str)| format!("- NEGATIVE by {record}: {}\n", escape(reason));
    let lines: String = reasons.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// The judgement behind a state, where there is one.
fn judged<J>(state: &ClaimState<J>) -> Option<&J> {
    match state {
        ClaimState::Judged(judged)
        | ClaimState::UnexpectedPass { judged, .. }
        | ClaimState::Committed { judged, .. }
        | ClaimState::Stale { judged, .. } => Some(judged),
        ClaimState::Negative { .. } | ClaimState::NoData { .. } => None,
    }
}

/// The verdict on a claim, and what was measured or why nothing was.
pub fn claim_state<J: Judgement>(state: &ClaimState<J>) -> (String, String) {
    let words = |judged: &J| judged.refuted().evidence;
    match state {
        ClaimState::Judged(judged) => (judged.result().verdict.to_string(), words(judged)),
        ClaimState::Negative { record, evidence, .. } => ("NEGATIVE".to_string(), format!("{evidence} ({record})")),
        ClaimState::UnexpectedPass { record, judged } => {
            (format!("{} (unexpected)", judged.result().verdict), format!("{}; refuted by {record}", words(judged)))
        }
        ClaimState::Committed { record, gpu, judged } => {
            (judged.result().verdict.to_string(), format!("{} ({record}, {gpu})", words(judged)))
        }
        ClaimState::Stale { record, gpu, judged, why } => {
            (format!("STALE {}", judged.result().verdict), format!("{} ({record}, {gpu}: {why})", words(judged)))
        }
        ClaimState::NoData { reason } => (Verdict::NoData.to_string(), reason.clone()),
    }
}

/// What does not hold is open; what does is folded.
fn evidence_claims(report: &Report) -> Option<String> {
    let claims = &report.evidence_claims;
    let line = |claim: &ClaimRow<EvidenceResult>| {
        let (verdict, measured) = claim_state(&claim.state);
        (verdict == Verdict::Pass.label(), row(&[&claim.title(), &verdict, &measured, &claim.terms.why]))
    };
    let (hold, others): (Vec<_>, Vec<_>) = claims.iter().map(line).partition(|(holds, _)| *holds);
    let table = |rows: Vec<(bool, String)>| {
        let head = row(&["evidence claim (E1)", "verdict", "counted", "because"]) + &rule(4);
        head + &rows.into_iter().map(|(_, row)| row).collect::<String>()
    };
    let summary = format!("{} of {} evidence claims hold", hold.len(), claims.len());
    let open = if others.is_empty() { String::new() } else { table(others) + &why_negative(claims) + "\n" };
    let folded = if hold.is_empty() { format!("{summary}.\n") } else { folded(&summary, &table(hold)) };
    (!claims.is_empty()).then_some(open + &folded)
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
    // What a later command added is there after all.
    let is_added = |gate| gate == GateId::C7 && report.sanitizer.is_some();
    for absent in evidence.absent.iter().filter(|absent| !is_added(absent.gate)) {
        let _ = writeln!(out, "- {} {}: {}", absent.gate, absent.verdict, escape(&absent.reason));
    }
    (!out.is_empty()).then_some(out)
}

fn planted(planted: &Planted) -> String {
    match planted {
        Planted::NotTried { reason } => format!("NO DATA: {reason}.\n"),
        Planted::Tried { subjects } => {
            let (caught, of) = caught(subjects);
            let mut out = String::new();
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
            let wrong: Vec<&str> = subjects.iter().filter(|s| !s.as_it_should()).map(subject_name).collect();
            let wrong = if wrong.is_empty() { String::new() } else { format!("\n- WRONG: {}\n", wrong.join(", ")) };
            format!(
                "Planted faults caught: {caught} of {of}.\n{wrong}\n{}",
                folded("What each planted fault set off", &out)
            )
        }
    }
}

fn gates_on_gates(report: &Report) -> String {
    format!("{}\n{}", planted(&report.planted), synchronisation(&report.synchronisation))
}

/// The tally, what is wrong, what is redundant by reason, and then what each other site is for.
fn synchronisation(synchronisation: &Synchronisation) -> String {
    let (presets, suppressed) = match synchronisation {
        Synchronisation::NotTried { reason } => return format!("Synchronisation sites: NO DATA: {reason}.\n"),
        Synchronisation::Tried { presets, suppressed } => (presets, suppressed),
    };
    let tally = suppressed.to_string();
    let scope = match presets {
        Presets::OnePerFamily => "one preset per family, on the emulator; `compare selftest` tries all",
        Presets::All => "all presets, on the emulator",
    };
    let mut out = format!("{}{} ({scope}).\n\n", tally[..1].to_uppercase(), &tally[1..]);
    for wrong in suppressed.wrong() {
        let _ = writeln!(out, "- WRONG: {}", escape(&wrong));
    }
    let survivors = suppressed.sites.iter().filter_map(|site| Some((site, site.listed.as_ref()?)));
    for (site, reason) in survivors.filter(|(site, _)| !site.is_caught()) {
        let SiteResult { family, operation, place, purpose, .. } = site;
        let line = format!("redundant in {family}: {operation} at {place} ({purpose}): {reason}");
        let _ = writeln!(out, "- {}", escape(&line));
    }
    if suppressed.sites.is_empty() {
        return out;
    }
    let mut table = row(&["stage", "family", "site", "for", "without it"]) + &rule(5);
    for site in &suppressed.sites {
        let place = format!("{} {}", site.place, site.operation);
        table.push_str(&row(&[&site.stage, &site.family, &place, &site.purpose, &consequence(site)]));
    }
    out + "\n" + &folded("What each site is for, and what goes wrong without it", &table)
}

/// What happens without a synchronisation site: `H1: race: ...`, `nothing: redundant, REASON`, or what to do about it.
pub fn consequence(site: &SiteResult) -> String {
    let finding = match &site.finding {
        Finding::Caught { gate, what, at } => format!("{gate}: {what} ({at})"),
        Finding::Survived { cases } => format!("nothing in {cases} cases"),
    };
    match (site.remedy(), &site.listed) {
        (Some(remedy), _) => format!("WRONG: {finding}; {remedy}"),
        (None, Some(reason)) => format!("{finding}: redundant, {reason}"),
        (None, None) => finding,
    }
}

fn thresholds() -> String {
    format!(
        "- C1: no element left unwritten, none infinite\n\
         - C2: max error ≤ {} × that of a plain implementation + {} f16 ulps at the largest reference value, root mean \
         square of row errors ≤ ({} + {}/n) × its own of n effective rows + s\n\
         - C3: per row ‖o − r‖ / ‖r‖ ≤ {:.0e} (P in e4m3: {:.0e}) + s; a row without keys is exactly 0; s is what f32 scores \
         lose, 2⁻²⁴ × the largest ‖q‖‖k‖ × softmax scale\n\
         - C4: f16 allclose, atol {:.0e} × rms(V), rtol {:.0e}; e4m3 against unquantised FP64: mean ≤ {}, at most {:.0} % of errors above {}\n\
         - C5: all launches bitwise equal; C6: margins, gaps and inputs intact; C7: no error and no warning of compute-sanitizer\n\
         - B1: per row ‖gpu − emulated‖ / ‖emulated‖ ≤ {} × what correct variants measure, per dtype and family\n\
         - R1: no spills, no stack, registers and shared memory within the preset's caps, no two variants with one machine code\n\
         - L1: the 95 % interval of base/new reaches the claim on p50, p90 and mean; noise (p90 − p50) / p50 ≤ {:.0} %\n\
         - E1: the stage's own bounds, on counters that are exact; bounds and counters are of mission, f16, full mask; by ncu, \
           exact ratios within {:.0} %\n\
         {}",
        gate::C2_PLAIN_FACTOR,
        gate::C2_OUTPUT_ULPS,
        gate::C2_ROWS_FACTOR,
        gate::C2_ROWS_NOISE,
        gate::C3_ROW,
        gate::C3_ROW_E4M3_P,
        gate::C4_ATOL,
        gate::C4_RTOL,
        gate::C4_E4M3_MEAN,
        100.0 * gate::C4_E4M3_BAD_SHARE,
        gate::C4_E4M3_BAD,
        gate::B1_FACTOR,
        100.0 * NOISE_LIMIT,
        100.0 * NCU_TOLERANCE,
        super::diff::thresholds(LATENCY_CHANGE).iter().map(|line| format!("- Changed, {line}\n")).collect::<String>(),
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

/// The chart of this name on a line of its own; nothing where it has no numbers.
fn picture(pictures: &[Picture], name: &str) -> String {
    let found = pictures.iter().find(|picture| picture.chart.name == name);
    found.map_or(String::new(), |picture| format!("\n![{}]({})\n", escape(&picture.chart.title), picture.path))
}

fn section(out: &mut String, title: &str, body: Option<String>) {
    if let Some(body) = body {
        let _ = write!(out, "## {title}\n\n{body}\n");
    }
}
