//! `compare diff`, which is also the comment on a pull request: what to do, what is new, what is worse, what is better.

use super::{
    by_weight, changes, clip, counts, first_lines, first_of, is_used, ladder, line, list,
    or_missing, sections, short, state,
};
use crate::document::{Block, Document, Table, Text, Verdict, row};
use crate::judge::Known;
use crate::judge::diff::{self, Change, Difference, Group, What};
use crate::judge::list::joined;
use crate::judge::state::state as judged;
use crate::judge::verdict::{Overall, count};
use crate::record::{self, Meta, StageMeta, Subject};
use serde_json::{Value, json};

/// Marks the comment, so that a later one replaces it.
pub const MARKER: &str = "attention-ladder: compare diff";

/// The most lines of each kind in all tables together.
const MOST_WORSE: usize = 15;
const MOST_BETTER: usize = 8;
const MOST_NEW: usize = 8;
const MOST_MISSING: usize = 5;

const HOW: &str = "compare diff --format json";

/// Two sides, table by table.
pub struct Comparison {
    pub base: String,
    pub new: String,
    pub pairs: Vec<Pair>,
    /// GPU models that only one side has figures of.
    pub unpaired: Vec<String>,
    /// The session of the new side, if that is a run.
    pub run: Option<Meta>,
    /// The ladder as built now.
    pub stages: Vec<StageMeta>,
    pub overall: Overall,
}

/// One GPU model's tables.
pub struct Pair {
    pub name: String,
    pub comparison: diff::Comparison,
    pub new: record::Table,
}

impl Pair {
    fn of(&self, change: Change) -> Vec<&Difference> {
        let all = self.comparison.differences.iter();
        all.filter(|difference| difference.change == change)
            .collect()
    }
}

impl Comparison {
    fn known<'a>(&'a self, pair: &'a Pair) -> Known<'a> {
        Known {
            run: self.run.as_ref(),
            ..Known::committed(&self.stages, &pair.new)
        }
    }

    fn worse<'a>(&'a self, pair: &'a Pair) -> Vec<&'a Difference> {
        let mut worse = pair.of(Change::Worse);
        by_weight(&mut worse, is_used(&self.known(pair)));
        worse
    }
}

pub fn document(comparison: &Comparison) -> Document {
    let overall = &comparison.overall;
    let all = comparison
        .pairs
        .iter()
        .flat_map(|pair| &pair.comparison.differences);
    let verdict = Verdict {
        word: overall.word.into(),
        why: match counts(all) {
            none if none.is_empty() => overall.line.clone(),
            counts => counts,
        },
    };
    let actions = overall.actions.iter().map(Text::from);
    let mut blocks = vec![
        Block::bullets(worst(comparison).into_iter().chain(actions)),
        Block::paragraph(format!(
            "`{}` against `{}` (base).",
            comparison.new, comparison.base
        )),
    ];
    let share = |most: usize| (most / comparison.pairs.len().max(1)).max(2);
    for pair in &comparison.pairs {
        if comparison.pairs.len() > 1 {
            blocks.push(Block::section(&*pair.name));
        }
        let mut better = pair.of(Change::Better);
        let all_better = better.len();
        let is_used = is_used(&comparison.known(pair));
        better.retain(|difference| is_used(difference));
        by_weight(&mut better, |_| true);
        let others = all_better - better.len();
        blocks.extend(sections([
            (
                "Missing data",
                required(&pair.comparison.differences, share(MOST_MISSING)),
            ),
            ("New", added(comparison, pair, share(MOST_NEW))),
            ("Worse", table(&comparison.worse(pair), share(MOST_WORSE))),
            (
                "Improved: best and default variants",
                table(&better, share(MOST_BETTER)),
            ),
        ]));
        blocks.push(Block::paragraph(rest(pair, others)));
    }
    blocks.extend(list(&comparison.unpaired));
    Document {
        marker: Some(MARKER),
        verdict: Some(verdict),
        ..Document::of(blocks)
    }
}

/// What is worse: a sentence for each kind of figure, with the most important one.
fn worst(comparison: &Comparison) -> Vec<Text> {
    let groups = [
        (Group::Gates, "gate or claim", "gates or claims"),
        (Group::Latency, "latency", "latencies"),
        (Group::Errors, "error", "errors"),
        (Group::Resources, "compiled figure", "compiled figures"),
        (Group::Counters, "counter", "counters"),
    ];
    let mut all: Vec<(bool, &Difference)> = Vec::new();
    for pair in &comparison.pairs {
        let is_used = is_used(&comparison.known(pair));
        let worse = comparison.worse(pair).into_iter();
        all.extend(worse.map(|difference| (is_used(difference), difference)));
    }
    all.sort_by_key(|(is_used, _)| !is_used);
    let sentence = |(group, one, many): (Group, &str, &str)| {
        let in_group: Vec<_> = all.iter().filter(|(_, of)| of.group == group).collect();
        let (_, first) = in_group.first()?;
        let values = match (&first.base, &first.new) {
            (Some(base), Some(new)) => format!(", {base} → {new}"),
            (None, Some(new)) => format!(", {new}"),
            _ => String::new(),
        };
        let reason = match group {
            Group::Gates => format!(": {}", clip(&first.why, 110)),
            _ => String::new(),
        };
        let ordinal = if in_group.len() == 1 { "" } else { "first " };
        let text = Text::default().strong(format!("{} worse", count(in_group.len(), one, many)));
        let (subject, title) = (&first.subject, first.title());
        Some(text.plain(format!(": {ordinal}{subject}: {title}{values}{reason}")))
    };
    groups.into_iter().filter_map(sentence).collect()
}

fn required(differences: &[Difference], most: usize) -> Vec<Block> {
    let required = differences.iter().filter(|difference| difference.required);
    let lines = required.map(|d| line(format!("{}: {}: {}", d.subject, d.title(), d.why), 160));
    first_lines(lines, most, HOW)
}

/// New variants.
fn added(comparison: &Comparison, pair: &Pair, most: usize) -> Vec<Block> {
    let known = comparison.known(pair);
    let new = pair.of(Change::Informational).into_iter();
    let new = new.filter(|d| d.what == What::Variant && d.new.is_none() && d.base.is_none());
    let is_there = |subject: &&Subject| pair.new.about(subject).next().is_some();
    let added: Vec<&Subject> = new.map(|d| &d.subject).filter(is_there).collect();
    let row = |subject: &&Subject| {
        let stage = known.stage(subject.stage());
        let gates = stage.map(|stage| state(&judged(&known, stage, subject)));
        let [time, previous] = ladder::times_of(&known, subject);
        row! {
            "variant" => short(subject),
            "gates" => or_missing(gates, "not declared"),
            "p50 µs" => time,
            "vs previous" => previous,
            "resources" => or_missing(ladder::resources(&known, subject), "not built by nvcc"),
        }
    };
    let table = |added: &[&Subject]| Block::Table(Table::of(added.iter().map(row)));
    first_of(&added, most, table, "compare show gates latencies")
}

fn table(of: &[&Difference], most: usize) -> Vec<Block> {
    first_of(of, most, |of| Block::Table(changes(of)), HOW)
}

/// Counts of everything else, and what the latencies of unchanged kernels say.
fn rest(pair: &Pair, better: usize) -> String {
    let others = pair.comparison.differences.iter();
    let others = others.filter(|d| !matches!(d.change, Change::Worse | Change::Better));
    let better = match better {
        0 => String::new(),
        n => format!("{n} improved of other variants"),
    };
    let also = [better, counts(others)];
    let also = joined(also.iter().filter(|words| !words.is_empty()), ", ");
    let also = (!also.is_empty()).then(|| format!("Also: {also}."));
    let drift = pair.comparison.drift;
    let drift = (drift.kernels > 0).then(|| {
        format!(
            "{} of unchanged kernels moved by {:+.1} % in the median, 95 of 100 of them within {:.1} % of that.",
            count(drift.kernels, "latency", "latencies"),
            100.0 * (1.0 / drift.shift - 1.0),
            100.0 * drift.spread
        )
    });
    joined([also, drift].into_iter().flatten(), " ")
}

/// Everything, for programs.
pub fn json(comparison: &Comparison) -> Value {
    let pair = |pair: &Pair| {
        json!({
            "table": pair.name,
            "drift": pair.comparison.drift,
            "differences": pair.comparison.differences,
        })
    };
    json!({
        "base": comparison.base,
        "new": comparison.new,
        "verdict": super::json::overall(&comparison.overall),
        "pairs": comparison.pairs.iter().map(pair).collect::<Vec<_>>(),
        "unpaired": comparison.unpaired,
    })
}
