//! The verdict on a comparison: one line, what to do, the exit code.

use super::{Class, Group, Metric, Pair, Reason, Row};
use crate::comparison::{Exit, Overall};
use serde::Serialize;

/// Whether the harness changed between the two sources, as far as git can tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Harness {
    /// Nothing that checks or times kernels differs.
    Same,
    /// It differs.
    Changed(HarnessChange),
    /// Nobody knows.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// What differs of the harness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HarnessChange {
    /// Files below common/ (the kernels' headers left out) and compare/, or the version of `compare`.
    pub what: Vec<String>,
}

/// Two sets of records, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The base as it was named.
    pub base: String,
    /// The new side as it was named.
    pub new: String,
    /// The threshold of latencies (0.02: 2 %).
    pub threshold: f64,
    /// Records of one GPU and backend, side by side.
    pub pairs: Vec<Pair>,
    /// Records that have no counterpart.
    pub unpaired: Vec<String>,
    /// Whether the harness changed.
    pub harness: Harness,
}

impl Difference {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.pairs.iter().flat_map(|pair| &pair.rows)
    }

    /// Stages whose kernel differs in any pair.
    fn kernels_changed(&self) -> Vec<&str> {
        let mut stages: Vec<&str> = Vec::new();
        for stage in self.pairs.iter().flat_map(|pair| &pair.kernels_changed) {
            if !stages.contains(&stage.as_str()) {
                stages.push(stage);
            }
        }
        stages
    }
}

/// How many rows of each class, in the order of [`Class`]; classes without one are left out.
fn counts<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(Class, usize)> {
    let mut counts = Class::ALL.map(|class| (class, 0));
    for row in rows {
        counts[row.class as usize].1 += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Draws the verdict. A regression fails; without one, what is undecided or missing leaves it undecided.
pub fn overall(difference: &Difference) -> Overall {
    let count = |of: &dyn Fn(&Row) -> bool| difference.rows().filter(|row| of(row)).count();
    let worse = count(&|row| row.class.is_worse());
    let better = count(&|row| row.class.is_better());
    let ambiguous = count(&|row| row.class == Class::Ambiguous);
    let required = count(&|row| row.required);
    // The gates on the gates say nothing of the kernels.
    let compared = count(&|row| row.class != Class::NoData && row.metric != Metric::GatesOnGates);
    let (exit, word) = match (worse, better) {
        (1.., 0) => (Exit::Fail, "REGRESSION"),
        (1.., _) => (Exit::Fail, "MIXED"),
        _ if compared == 0 => (Exit::Undecided, "NO DATA"),
        _ if required > 0 => (Exit::Undecided, "INCOMPLETE"),
        _ if ambiguous > 0 => (Exit::Undecided, "AMBIGUOUS"),
        (0, 1..) => (Exit::Pass, "IMPROVED"),
        (0, 0) => (Exit::Pass, "NOTHING RELEVANT"),
    };
    let tally: Vec<String> =
        counts(difference.rows()).iter().map(|(class, count)| format!("{count} {class}")).collect();
    let line = match compared + worse {
        0 => "nothing can be compared".to_string(),
        _ => tally.join(", "),
    };
    Overall { exit, word, line, actions: actions(difference, compared) }
}

fn actions(difference: &Difference, compared: usize) -> Vec<String> {
    let any = |of: &dyn Fn(&Row) -> bool| difference.rows().any(of);
    let mut actions = Vec::new();
    let mut advise = |is: bool, what: &str| {
        if is {
            actions.push(what.to_string());
        }
    };
    advise(
        any(&|row| row.class == Class::Worse && row.reason == Reason::NewlyFailing),
        "Fix what newly fails; do not merge.",
    );
    advise(any(&|row| row.required), "Find out why data is missing that the base had, or say that it is meant to be.");
    advise(
        any(&|row| row.class.is_worse() && row.group != Group::Gates),
        "Look at the regressions; take them back, or say in the change what they buy.",
    );
    advise(
        any(&|row| row.class == Class::Ambiguous),
        "Time the undecided latencies again on a quiet GPU, both sides in one session (A B B A).",
    );
    advise(
        compared == 0,
        "Run both sides on one machine with the same flags, or name records of the same GPU, driver and backend.",
    );
    let changed = difference.kernels_changed();
    match &difference.harness {
        Harness::Changed(change) if !changed.is_empty() => actions.push(format!(
            "Kernel and harness changed together ({}; {}): read the harness's change first, since it judges the kernel's.",
            changed.join(", "),
            first_of(&change.what)
        )),
        Harness::Unknown { reason } if !changed.is_empty() => {
            actions.push(format!("Whether the harness changed with the kernel is not known: {reason}."));
        }
        _ => {}
    }
    if actions.is_empty() {
        actions.push("No action needed.".to_string());
    }
    actions
}

fn first_of(what: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = what[..what.len().min(SHOWN)].join(", ");
    if what.len() > SHOWN { format!("{shown} and {} more", what.len() - SHOWN) } else { shown }
}
