//! What a reviewer reads before any table: what is worse, what is better, and what was checked at
//! all.

use super::kernels::changed_kernels;
use super::{Comparison, shown};
use crate::words::short_name;
use common::verdict::{GateId, Verdict};
use document::Text;
use results::judge::diff::{Change, Difference, Group, What};
use results::judge::list::{Grouped, count, distinct, grouped, joined};
use results::judge::verdict::NOTHING;

/// The most gates and figures that are named.
const MAX_NAMED: usize = 4;

/// The groups in which something can be worse or better, in the order of the tables.
const GROUPS: [Group; 5] = [
    Group::Gates,
    Group::Latency,
    Group::Resources,
    Group::Counters,
    Group::Errors,
];

/// Returns which gates and figures are worse, each with its first place; `None` if nothing is.
pub fn worse_line(comparison: &Comparison) -> Option<Text> {
    line("Worse:", changed(comparison, Change::Worse))
}

/// Returns which gates and figures are better, each with its first place; `None` if nothing is.
pub fn improved_line(comparison: &Comparison) -> Option<Text> {
    line("Improved:", changed(comparison, Change::Better))
}

/// Returns what is worse among these, as [`worse_line`] does.
pub fn worse(differences: &[Difference]) -> Option<Text> {
    line("Worse:", of_change(differences, Change::Worse))
}

fn changed(comparison: &Comparison, change: Change) -> Vec<&Difference> {
    let pairs = comparison.pairs.iter();
    pairs
        .flat_map(|(_, pair)| of_change(&pair.differences, change))
        .collect()
}

/// Returns what has changed so, group by group.
fn of_change(differences: &[Difference], change: Change) -> Vec<&Difference> {
    let mut changed = Vec::new();
    for group in GROUPS {
        let mut of_group = shown(differences, group);
        of_group.retain(|difference| difference.change == change);
        changed.extend(of_group);
    }
    changed
}

fn line(label: &str, differences: Vec<&Difference>) -> Option<Text> {
    let by_name = grouped(differences.into_iter().map(|one| (name(one), one)));
    if by_name.is_empty() {
        return None;
    }
    let mut named = Vec::new();
    for Grouped { key, values } in by_name.iter().take(MAX_NAMED) {
        named.push(entry(key, values));
    }
    let more = match by_name.len() - named.len() {
        0 => String::new(),
        hidden => format!("; and {hidden} more"),
    };
    let text = format!(" {}{more}.", joined(named, "; "));
    Some(Text::default().strong(label).plain(text))
}

/// Returns what differs, without its place.
fn name(difference: &Difference) -> String {
    match difference.what {
        _ if difference.is_claim() => difference.title(),
        What::Row(_) | What::Variant => difference.title(),
        What::Gate(gate) => format!("{} ({})", difference.what, subject_of(gate)),
        What::Metric(_) => difference.what.to_string(),
    }
}

/// Returns what a gate judges, in a word or two.
fn subject_of(gate: GateId) -> &'static str {
    match gate {
        GateId::C1 => "whole output, finite",
        GateId::C2 => "accuracy",
        GateId::C3 => "every row right",
        GateId::C4 => "accuracy end to end",
        GateId::C5 => "same bits each time",
        GateId::C6 => "stays in its buffers",
        GateId::C7 => "compute-sanitizer",
        GateId::C8 => "log-sum-exps",
        GateId::B1 => "GPU as the emulator",
        GateId::B2 => "nvcc's code as g++'s",
        GateId::H1 => "races, missing waits",
        GateId::R1 => "registers and shared memory",
        GateId::L1 => "claimed speed",
        GateId::E1 => "claimed counters",
        GateId::S1 => "planted faults",
    }
}

/// Returns where this differs, and how far at the first place.
fn entry(name: &str, differences: &[&Difference]) -> String {
    let Some(first) = differences.first() else {
        return name.to_string();
    };
    let was = first.base.as_deref().unwrap_or("–");
    let is = first.new.as_deref().unwrap_or("–");
    let subject = short_name(&first.subject);
    if let What::Gate(_) = first.what {
        let kernels = distinct(differences.iter().map(|one| &one.subject)).len();
        let others = match kernels {
            0 | 1 => String::new(),
            _ => format!(" and {}", count(kernels - 1, "more kernel", "more kernels")),
        };
        return format!("{name} {was} → {is} ({subject}{others})");
    }
    let others = match differences.len() {
        1 => String::new(),
        number => format!(", and {} more figures", number - 1),
    };
    let factor = first.figures.map(|moved| factor(moved.base, moved.new));
    let place = first.title();
    format!(
        "{name} {was} → {is}{} ({subject}{}{others})",
        factor.unwrap_or_default(),
        place.strip_prefix(name).unwrap_or_default(),
    )
}

/// Returns how far a figure moved, in percent or as a factor; nothing from 0 on.
fn factor(base: f64, new: f64) -> String {
    let ratio = new / base;
    if base <= 0.0 || !ratio.is_finite() {
        String::new()
    } else if ratio < 2.0 {
        format!(", {:+.1} %", 100.0 * (ratio - 1.0))
    } else {
        format!(", {ratio:.1} times")
    }
}

/// Returns the actions of the verdict. Of kernels that have changed and were not timed, equal gates and
/// counters do not show that nothing is to be done.
pub fn actions(comparison: &Comparison) -> Vec<String> {
    let actions = &comparison.overall.actions;
    if *actions == [NOTHING] && times_of_changed(comparison) == Some(0) {
        return vec![
            "Time it on a GPU before you call it as fast as before: `scripts/review BASE --latency`."
                .to_string(),
        ];
    }
    actions.clone()
}

/// Returns how many gates were judged, and whether kernels that have changed were timed. Nothing else
/// on the page tells a time that stood still from one that nobody took.
pub fn checked_line(comparison: &Comparison) -> Text {
    let line = gates_judged(comparison);
    let text = Text::default().strong("Checked:").plain(line);
    match times_of_changed(comparison) {
        None => text.plain("."),
        Some(0) => text
            .plain("; ")
            .strong("no changed kernel was timed")
            .plain("."),
        Some(number) => text.plain(format!(
            "; {} of changed kernels.",
            count(number, "time", "times")
        )),
    }
}

/// Returns `12 verdicts of gates, none fails; 3 not measured (gate B1, gate C7)`.
fn gates_judged(comparison: &Comparison) -> String {
    let (mut judged, mut failing) = (0, 0);
    let mut open = Vec::new();
    for difference in all_differences(comparison) {
        if !difference.is_gate() {
            continue;
        }
        let verdict = difference.new.as_deref().map(str::parse);
        match verdict {
            Some(Ok(Verdict::Pass)) => judged += 1,
            Some(Ok(Verdict::Fail)) => {
                judged += 1;
                failing += 1;
            }
            Some(_) => open.push(difference.what),
            None => {}
        }
    }
    let verdicts = count(judged, "verdict", "verdicts");
    let line = match failing {
        0 => format!(" {verdicts} of gates, none fails"),
        _ => format!(" {verdicts} of gates, {failing} fail"),
    };
    if open.is_empty() {
        return line;
    }
    let unmeasured = open.len();
    open.sort_by_key(ToString::to_string);
    let gates = joined(distinct(open), ", ");
    format!("{line}; {unmeasured} not measured ({gates})")
}

/// Returns how many times of changed kernels both sides have; `None` if no kernel has changed.
fn times_of_changed(comparison: &Comparison) -> Option<usize> {
    let changed = changed_kernels(comparison);
    let times = all_differences(comparison).filter(|difference| {
        difference.group == Group::Latency
            && difference.change != Change::Missing
            && changed.contains(&&difference.subject)
    });
    (!changed.is_empty()).then(|| times.count())
}

fn all_differences(comparison: &Comparison) -> impl Iterator<Item = &Difference> {
    comparison
        .pairs
        .iter()
        .flat_map(|(_, pair)| &pair.differences)
}
