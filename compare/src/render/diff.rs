//! `compare diff`, laid out: the verdict and what to do, what newly fails or is missing, one line per stage, then what
//! moved; the rest folded.

use super::document::Block;
use crate::comparison::diff::{
    Class, Difference, ERROR_MARGIN, Group, Harness, Line, Pair, Reason, Row, StageLine, lines, overall,
};
use serde_json::{Value, json};

/// By this line a program finds the comment that it wrote on a pull request before.
pub const STICKY: &str = "attention-ladder: compare diff";

/// A table shows this many lines; JSON has all. A comment on GitHub takes 65,536 characters.
const MOST_LINES: usize = 40;

/// So many improvements stand beside the regressions of a table; more are folded.
const MOST_BETTER: usize = 5;

/// The document.
pub fn blocks(difference: &Difference) -> Vec<Block> {
    let overall = overall(difference);
    let mut blocks = vec![
        Block::Marker(STICKY.into()),
        Block::Strong(overall.to_string()),
        Block::Bullets(overall.actions.clone()),
        Block::Text(format!("{} against {} (base)", difference.new, difference.base)),
    ];
    for pair in &difference.pairs {
        blocks.push(Block::Bullets(vec![
            format!("base: {}: {}", pair.base, pair.base_meta),
            format!("new: {}: {}", pair.new, pair.new_meta),
        ]));
        blocks.extend(of_pair(pair));
    }
    if !difference.unpaired.is_empty() {
        blocks.push(Block::Heading("Records without a counterpart".into()));
        blocks.push(Block::Bullets(difference.unpaired.clone()));
    }
    let mut words = thresholds(difference.threshold);
    words.push(harness(&difference.harness));
    blocks.push(Block::Folded("Thresholds, and what the classes mean".into(), vec![Block::Bullets(words)]));
    blocks
}

/// Everything, for programs.
pub fn json(difference: &Difference) -> Value {
    let overall = overall(difference);
    json!({
        "verdict": { "word": overall.word, "line": overall.line, "actions": overall.actions, "exit_code": overall.exit.code() },
        "difference": difference,
    })
}

/// What the classes mean, with their thresholds.
pub fn thresholds(latency: f64) -> Vec<String> {
    let percent = 100.0 * latency;
    vec![
        format!(
            "latency: FASTER or SLOWER where the 95 % interval of the medians' ratio base/new lies wholly beyond {percent:.1} % \
             and beyond the samples' noise, in time and in cycles; SAME where it lies wholly within; else AMBIGUOUS (the same \
             code measured twice in one session differs by up to 1.6 %)"
        ),
        "gates: WORSE if one fails that did not fail before".to_string(),
        format!(
            "errors: WORSE or BETTER if the largest moves by more than {:.0} % of its gate's bound, or crosses it",
            100.0 * ERROR_MARGIN
        ),
        "resources: spills and stack are WORSE; so is occupancy that falls, unless the instance is measured FASTER; registers \
         and shared memory within their caps (gate R1) are CHANGED"
            .to_string(),
        "counters: exact; more bank conflicts or global sectors are WORSE unless mission (f16, full) is measured FASTER; others \
         are CHANGED"
            .to_string(),
    ]
}

fn harness(harness: &Harness) -> String {
    match harness {
        Harness::Same => {
            "the harness (common/ without the kernels' headers, compare/) is the same on both sides".into()
        }
        Harness::Changed(change) => format!("the harness changed: {}", change.what.join(", ")),
        Harness::Unknown { reason } => format!("whether the harness changed is not known: {reason}"),
    }
}

fn of_pair(pair: &Pair) -> Vec<Block> {
    let mut blocks = Vec::new();
    let urgent = |row: &&Row| {
        row.required || matches!(row.reason, Reason::NewlyFailing | Reason::NewlyUndecided | Reason::Removed)
    };
    blocks.extend(table("Newly failing, missing or removed", pair.rows.iter().filter(urgent)));
    if !pair.stages.is_empty() {
        blocks.push(Block::Heading("Stages".into()));
        blocks.push(stages(&pair.stages));
    }
    let rest = || pair.rows.iter().filter(|row| !urgent(row));
    for (group, title) in [
        (Group::Gates, "Gates and claims"),
        (Group::Latency, "Latency"),
        (Group::Errors, "Errors"),
        (Group::Resources, "Resources"),
        (Group::Counters, "Counters"),
    ] {
        let mut moved: Vec<&Row> =
            rest().filter(|row| row.group == group && (row.class.is_worse() || row.class.is_better())).collect();
        moved.sort_by(|a, b| a.class.cmp(&b.class).then(size(b).total_cmp(&size(a))));
        let worse = moved.iter().filter(|row| row.class.is_worse()).count();
        let (open, more) = moved.split_at(moved.len().min(worse + MOST_BETTER));
        blocks.extend(table(title, open.iter().copied()));
        if !more.is_empty() {
            blocks.push(Block::Folded(folded_title(more, "more improvements"), table("", more.iter().copied())));
        }
    }
    for (class, words) in [
        (Class::Ambiguous, "undecided"),
        (Class::Changed, "changed, neither better nor worse by itself"),
        (Class::NoData, "not compared"),
    ] {
        let rows: Vec<&Row> = rest().filter(|row| row.class == class).collect();
        if !rows.is_empty() {
            blocks.push(Block::Folded(folded_title(&rows, words), table("", rows)));
        }
    }
    blocks
}

/// `28 not compared: other-gpu 6, one-side-only 22`.
fn folded_title(rows: &[&Row], words: &str) -> String {
    let mut reasons: Vec<(Reason, usize)> = Vec::new();
    for row in rows {
        match reasons.iter_mut().find(|(reason, _)| *reason == row.reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((row.reason, 1)),
        }
    }
    let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    format!("{} {words}: {}", rows.len(), reasons.join(", "))
}

/// How far a latency moved; rows without one keep their order.
fn size(row: &Row) -> f64 {
    row.ratio.map_or(0.0, |ratio| ratio.value.ln().abs())
}

/// Rows as a table; a reason that all share stands below it.
fn table<'a>(title: &str, rows: impl IntoIterator<Item = &'a Row>) -> Vec<Block> {
    let lines = lines(rows);
    let Some(first) = lines.first().map(|line| (line.row.reason, line.row.note.clone())) else { return Vec::new() };
    let is_shared = lines.iter().all(|line| (line.row.reason, &line.row.note) == (first.0, &first.1));
    let has_ratio = lines.iter().any(|line| line.row.ratio.is_some());
    let cells = |line: &Line| {
        let row = &line.row;
        let mut cells =
            vec![row.class.to_string(), row.place(), line.what.clone(), line.base.clone(), line.new.clone()];
        cells.extend(has_ratio.then(|| ratio(row)));
        if !is_shared {
            cells.extend([row.reason.to_string(), row.note.clone()]);
        }
        cells
    };
    let mut head = vec!["class", "where", "what", "base", "new"];
    head.extend(has_ratio.then_some("base/new"));
    if !is_shared {
        head.extend(["reason", "why"]);
    }
    let mut blocks = Vec::new();
    if !title.is_empty() {
        blocks.push(Block::Heading(title.to_string()));
    }
    blocks.push(Block::Table(head, lines.iter().take(MOST_LINES).map(cells).collect()));
    if lines.len() > MOST_LINES {
        blocks.push(Block::Text(format!("{} more lines are in the JSON.", lines.len() - MOST_LINES)));
    }
    if is_shared {
        blocks.push(Block::Text(format!("{}: {}", first.0, first.1)));
    }
    blocks
}

/// `1.045x [1.044, 1.046]`.
fn ratio(row: &Row) -> String {
    row.ratio.map_or("–".to_string(), |ratio| {
        format!("{:.3}x [{:.3}, {:.3}]", ratio.value, ratio.interval.low, ratio.interval.high)
    })
}

fn stages(stages: &[StageLine]) -> Block {
    let cells = |line: &StageLine| {
        let latency = line.latency.as_ref();
        let time = latency.map_or("–".to_string(), |row| {
            format!("{} → {}", row.base.as_deref().unwrap_or("–"), row.new.as_deref().unwrap_or("–"))
        });
        vec![
            line.stage.clone(),
            line.variant.to_string(),
            time,
            latency.map_or("–".to_string(), ratio),
            latency.map_or("NO DATA".to_string(), |row| row.class.to_string()),
            line.registers.to_string(),
            line.spills.to_string(),
            line.shared.to_string(),
            line.conflicts.to_string(),
            line.error.to_string(),
            line.counts.iter().map(|(class, count)| format!("{count} {class}")).collect::<Vec<_>>().join(", "),
        ]
    };
    Block::Table(
        vec![
            "stage",
            "best on mission",
            "p50",
            "base/new",
            "latency",
            "registers",
            "spills",
            "shared B",
            "bank conflicts",
            "max error",
            "all variants",
        ],
        stages.iter().map(cells).collect(),
    )
}
