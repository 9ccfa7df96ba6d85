//! What `fuzz` prints. Commands stay on one line, however long, so that they can be copied.

use super::search::{End, Failure, Finding, Found, Search, Tally, Trial, Tried};
use crate::answer::Answer;
use common::verdict::GateResult;
use document::terminal::terminal;
use document::{Block, Cell, Table, TableRow, row};
use results::judge::list::{count, joined};
use results::judge::verdict::Exit;
use results::table::Subject;

/// Reports on the case of `--case`.
pub fn of_trial(trial: &Trial, tried: &Tried) -> Answer {
    let (exit, verdict, gates) = match tried {
        Tried::Passed(gates) => (Exit::Pass, "PASS: it passes every gate", gates.as_slice()),
        Tried::Failed(Failure { gates, .. }) => (Exit::Fail, "FAIL", gates.as_slice()),
        Tried::Unsupported(reason) => {
            let says = format!("NOT MEASURED: {trial}: Unsupported: {reason}");
            return Answer::new(Exit::Inconclusive, says);
        }
    };
    Answer::new(exit, format!("{trial}\n{}{verdict}", reasons(gates)))
}

/// Reports on a search.
pub fn of_search(search: &Search, found: &Found, backend: &str, device: &str) -> Answer {
    let verdict = verdict(search, found, device);
    let mut parts = vec![terminal(&[Block::Table(tallies(search, found))])];
    for finding in &found.findings {
        parts.push(describe(finding, backend));
    }
    parts.push(verdict.text);
    Answer::new(verdict.exit, parts.join("\n"))
}

fn tallies(search: &Search, found: &Found) -> Table {
    let numbers = search.contenders.iter().zip(&found.tallies);
    Table::from_rows(numbers.map(|(contender, tally)| -> TableRow {
        let figure = |n: usize| Cell::Figure(n.to_string());
        let failed_gates = match finding(found, &contender.subject) {
            Some(finding) => joined(finding.gates.iter().map(|result| result.gate), ", ").into(),
            None => Cell::Missing,
        };
        row! {
            "variant" => contender.subject.to_string(),
            "cases" => figure(tally.cases),
            "unsupported" => figure(tally.unsupported),
            "fails" => failed_gates,
        }
    }))
}

fn finding<'a>(found: &'a Found, subject: &Subject) -> Option<&'a Finding> {
    let mut findings = found.findings.iter();
    findings.find(|finding| finding.drawn.subject == *subject)
}

/// Describes the smallest case: its verdict, the commands that show it, and the search for it.
fn describe(finding: &Finding, backend: &str) -> String {
    let Finding {
        index,
        drawn,
        shrunk,
        gates,
        ..
    } = finding;
    let about = match (finding.is_smallest, finding.is_gpu_lost) {
        (true, _) => "nothing smaller that was tried fails so",
        (_, true) => "the GPU is lost, and no smaller case was tried",
        _ => "a smaller one may fail, too: shrinking ended early",
    };
    let tries = count(finding.tries, "smaller case", "smaller cases");
    let commands = joined(commands(shrunk, backend), "\n  ");
    format!(
        "{shrunk}\n{}  {commands}\n  drawn as case {index}: {drawn}; of {tries}: {about}\n",
        reasons(gates)
    )
}

fn reasons(gates: &[GateResult]) -> String {
    gates
        .iter()
        .map(|result| format!("  {} {}: {}\n", result.gate, result.verdict, result.reason))
        .collect()
}

/// Returns the command that runs the case again and, for a case that `explain` takes, that command.
fn commands(trial: &Trial, backend: &str) -> Vec<String> {
    let Trial { subject, case } = trial;
    let mut commands = vec![format!(
        "cargo run -p compare -- fuzz --backend {backend} --case '{trial}'"
    )];
    if let Some(explained) = case.explained() {
        let (stage, variant) = (subject.stage(), subject.name());
        commands.push(format!(
            "cargo run -p compare -- explain --stage {stage} --variant {variant} \
             --problem '{explained}'"
        ));
    }
    commands
}

struct Verdict {
    exit: Exit,
    text: String,
}

fn verdict(search: &Search, found: &Found, device: &str) -> Verdict {
    let unchecked: Vec<String> = search
        .contenders
        .iter()
        .zip(&found.tallies)
        .filter(|(_, tally)| tally.cases == 0)
        .map(|(contender, tally)| format!("{}: {}", contender.subject, why_none(tally)))
        .collect();
    let exit = match found.end {
        End::Interrupted => Exit::Interrupted,
        _ => Exit::of(!found.findings.is_empty(), !unchecked.is_empty()),
    };
    let word = match (exit, found.findings.is_empty()) {
        (Exit::Inconclusive, _) => "NOT MEASURED",
        (Exit::Pass, _) => "PASS",
        (Exit::Interrupted, true) => "INTERRUPTED",
        _ => "FAIL",
    };
    let end = match found.end {
        End::Finished => "",
        End::Interrupted => ", interrupted",
        End::GpuLost => ", ended by the loss of the GPU",
    };
    let ran = format!(
        "{} of {} {device} in {} s{end}; seed {}",
        count(found.cases(), "case", "cases"),
        count(search.contenders.len(), "variant", "variants"),
        found.elapsed.as_secs(),
        search.seed,
    );
    let failed = match found.findings.len() {
        0 => "nothing was found".to_string(),
        n => count(n, "variant fails", "variants fail"),
    };
    let without_case = match unchecked.len() {
        0 => String::new(),
        n => format!(
            ", {} without a case",
            count(n, "variant is", "variants are")
        ),
    };
    let lines = unchecked.iter().map(|line| format!("no case: {line}\n"));
    Verdict {
        exit,
        text: format!(
            "{}{word}: {failed}{without_case}: {ran}",
            lines.collect::<String>()
        ),
    }
}

fn why_none(tally: &Tally) -> String {
    match &tally.reason {
        Some(reason) => format!(
            "Unsupported in {}: {reason}",
            count(tally.unsupported, "case", "cases")
        ),
        None => "it had no turn; give more --seconds or --cases, or name fewer --stages".into(),
    }
}
