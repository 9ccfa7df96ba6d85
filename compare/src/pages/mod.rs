//! What people read: each page is composed here from what [`crate::judge`] says, as one [`Document`](crate::page::Document)
//! for every format.

pub mod brief;
mod candidates;
pub mod diff;
pub mod explain;
pub mod history;
mod insights;
pub mod json;
pub mod ladder;
pub mod metrics;
pub mod report;
pub mod self_test;
pub mod show;
pub mod summary;

use self::insights::register_limit;
use crate::judge::claims::{Claimed, Status};
use crate::judge::diff::{Difference, Group, Line};
use crate::judge::list::{joined, tallied};
use crate::judge::state::State;
use crate::judge::verdict::{Exit, count, counts};
use crate::judge::{Known, Origin, best};
use crate::page::{Block, Cell, Table, Text, Tone, row};
use crate::record::meta::{Git, Gpu};
use crate::record::{Figure, Of, Record, Row, StageMeta, Subject};
use common::metric::{Metric, Unit, significant};
use common::verdict::{GateId, Verdict};
use std::collections::HashMap;
use std::fmt::Display;

pub fn tone(exit: Exit) -> Tone {
    match exit {
        Exit::Pass => Tone::Good,
        Exit::Fail => Tone::Bad,
        Exit::Usage | Exit::Undecided | Exit::Interrupted => Tone::Open,
    }
}

/// Plain words, in which what stands between backticks is code.
fn words(text: &str) -> Text {
    text.split('`')
        .enumerate()
        .fold(Text::default(), |all, (at, part)| match at % 2 {
            0 => all.plain(part),
            _ => all.code(part),
        })
}

fn text(of: impl Display) -> Cell {
    of.to_string().into()
}

fn missing(why: impl Into<String>) -> Cell {
    Cell::Missing(why.into())
}

/// A dash where there is nothing.
fn or_missing(found: Option<impl Into<Cell>>, why: &str) -> Cell {
    found.map_or_else(|| missing(why), Into::into)
}

fn noted(cell: impl Into<Cell>, note: Option<&str>) -> Cell {
    match note {
        Some(note) => cell.into().noted(note),
        None => cell.into(),
    }
}

/// A figure that no longer holds says so.
fn stale(figure: Cell, origin: &Origin) -> Cell {
    noted(figure, origin.is_stale().then_some("STALE"))
}

/// A figure with the digits and unit of its metric.
fn figure(metric: Metric, value: f64) -> Cell {
    Cell::figure(value, metric.show(value))
}

/// A number of things.
fn whole(value: f64) -> Cell {
    Cell::figure(value, Unit::Count.show(value))
}

/// The same of a row, a dash where it has none.
fn of(row: Option<&Row>, metric: Metric) -> Cell {
    let found = row.and_then(|row| row.value(metric));
    or_missing(
        found.map(|value| figure(metric, value)),
        &format!("no {metric}"),
    )
}

/// The same of several metrics.
fn each<const N: usize>(row: Option<&Row>, metrics: [Metric; N]) -> Vec<Cell> {
    metrics.map(|metric| of(row, metric)).to_vec()
}

/// What launch bounds leave to a thread of an instance.
fn limit(declared: Option<&Row>) -> Cell {
    or_missing(declared.and_then(register_limit).map(whole), "not declared")
}

/// Microseconds in a column that says so.
pub fn us(value: f64) -> Cell {
    Cell::figure(value, significant(value))
}

/// A ratio with its interval, where it has one.
fn times(of: impl Into<Figure>) -> Cell {
    let Figure { value, interval } = of.into();
    let text = match interval {
        Some((low, high)) => format!("{value:.2}x [{low:.2}, {high:.2}]"),
        None => format!("{value:.2}x"),
    };
    Cell::Figure {
        value,
        interval,
        text,
    }
}

/// Base / new of a time: `1.54x (−35 %)`.
fn speedup(ratio: f64) -> Cell {
    let percent = (100.0 / ratio - 100.0).round();
    if !percent.is_finite() {
        return times(ratio);
    }
    let sign = if percent < 0.0 { '−' } else { '+' };
    Cell::figure(ratio, format!("{ratio:.2}x ({sign}{:.0} %)", percent.abs()))
}

/// One value over another of the same kind, to three digits.
pub fn share(ratio: f64) -> Cell {
    Cell::figure(ratio, format!("{ratio:.3}x"))
}

fn gates(gates: &[GateId]) -> String {
    joined(gates, " ")
}

fn state(state: &State) -> Cell {
    let (tone, word) = match state {
        State::Green => (Tone::Good, "GREEN".to_string()),
        State::Failed(failed) => (Tone::Bad, format!("FAIL {}", gates(failed))),
        State::Ambiguous(open) => (Tone::Open, format!("AMBIGUOUS {}", gates(open))),
        State::NoData(lacking) => (
            Tone::Open,
            format!("NO DATA {}", gates(lacking)).trim_end().to_string(),
        ),
        State::NotRun(_) => (Tone::Neutral, "not run".to_string()),
        State::Stale => (Tone::Open, "STALE".to_string()),
    };
    Cell::Verdict(tone, word)
}

fn verdict(verdict: Verdict) -> Cell {
    let tone = match verdict {
        Verdict::Pass => Tone::Good,
        Verdict::Fail => Tone::Bad,
        Verdict::Ambiguous => Tone::Open,
        Verdict::NoData => Tone::Neutral,
    };
    Cell::Verdict(tone, verdict.to_string())
}

/// The verdict on a claim, what was measured or why nothing was, and the committed record that it is from.
fn claimed(claimed: &Claimed) -> (Cell, String, Option<&str>) {
    let open = |word: &str| Cell::Verdict(Tone::Open, word.to_string());
    match &claimed.status {
        Status::Judged { origin, finding } if origin.is_stale() => (
            open(&format!("STALE {}", finding.verdict)),
            finding.reason.clone(),
            origin.record(),
        ),
        Status::Judged { origin, finding } => (
            verdict(finding.verdict),
            finding.reason.clone(),
            origin.record(),
        ),
        Status::Negative {
            record, evidence, ..
        } => (
            Cell::Verdict(Tone::Neutral, "NEGATIVE".into()),
            evidence.clone(),
            Some(record),
        ),
        Status::UnexpectedPass { record, finding } => (
            open("PASS (unexpected)"),
            finding.reason.clone(),
            Some(record),
        ),
        Status::NoData { reason } => (verdict(Verdict::NoData), reason.clone(), None),
    }
}

/// `12 kept, 8 refuted and recorded, 2 undecided`
fn tally(claims: &[Claimed]) -> String {
    let word = |claimed: &Claimed| match &claimed.status {
        Status::Judged { origin, .. } if origin.is_stale() => "stale",
        Status::Judged { finding, .. } => match finding.verdict {
            Verdict::Fail => "failing",
            Verdict::Pass => "kept",
            Verdict::Ambiguous => "undecided",
            Verdict::NoData => "not measured",
        },
        Status::UnexpectedPass { .. } => "kept",
        Status::Negative { .. } => "refuted and recorded",
        Status::NoData { .. } => "not measured",
    };
    let words = [
        "failing",
        "kept",
        "refuted and recorded",
        "undecided",
        "stale",
        "not measured",
    ];
    tallied(claims.iter().map(word), &words)
}

/// The two sides of a session with peers, in words.
struct Sides {
    /// `The candidate`
    who: &'static str,
    ours: &'static str,
    /// The same as a column.
    column: &'static str,
    rival: &'static str,
    ratio: &'static str,
}

/// Ours beside peers, or a candidate beside both.
fn sides(record: &Record) -> Sides {
    match record.meta.of() {
        Of::Ladder => Sides {
            who: "Our fastest stage",
            ours: "ours",
            column: "our fastest",
            rival: "fastest peer",
            ratio: "its / ours",
        },
        Of::Candidate => Sides {
            who: "The candidate",
            ours: "the candidate",
            column: "candidate",
            rival: "fastest rival",
            ratio: "its / candidate's",
        },
    }
}

/// Whether what differs concerns what people use: the best or default variant of a stage, or all of it.
fn is_candidate<'a>(known: &Known<'a>) -> impl Fn(&Difference) -> bool + use<'a> {
    let used = |stage: &'a StageMeta| {
        let used = [stage.default_variant.as_str(), best::variant(known, stage)];
        (stage.id.as_str(), used)
    };
    let used: HashMap<&str, [&str; 2]> = known.stages.iter().map(used).collect();
    move |difference| {
        let (stage, name) = (difference.subject.stage(), difference.subject.name());
        name.is_empty() || used.get(stage).is_none_or(|used| used.contains(&name))
    }
}

/// Gates before figures, candidates before others, far before near.
fn by_weight(differences: &mut [&Difference], is_candidate: impl Fn(&Difference) -> bool) {
    let moved = |d: &Difference| d.ratio.map_or(0.0, |ratio| ratio.value.ln().abs());
    differences.sort_by(|a, b| {
        let key = |d: &Difference| (d.group != Group::Gates, !is_candidate(d), d.group);
        key(a).cmp(&key(b)).then(moved(b).total_cmp(&moved(a)))
    });
}

/// How far, as a share, a latency moves between two sessions without its kernel: 1 of 100 moves further. Measured on 1,668 latencies
/// of kernels that pairs of committed records of H200s have unchanged, of which 3.7 % moved by more than 2 % and 0.5 % by more than 4 %.
const BETWEEN_SESSIONS: f64 = 0.03;

/// What to bear in mind of latencies that are worse. One that moved without its kernel says something of the machine or of the harness,
/// and so may one that moved no further than such do.
fn caveats(worse: &[&Difference], base: &Record, new: &Record) -> Option<String> {
    let latencies = worse.iter().filter_map(|difference| {
        let ratio = difference.ratio?;
        Some((new.has_kernel_of(base, &difference.subject), ratio.value))
    });
    let (same, changed): (Vec<_>, Vec<_>) = latencies.partition(|(is_same, _)| *is_same);
    let near = changed
        .iter()
        .filter(|(_, ratio)| (ratio - 1.0).abs() < BETWEEN_SESSIONS)
        .count();
    let unchanged = (!same.is_empty()).then(|| {
        let of = count(
            same.len(),
            "latency is of a kernel that has",
            "latencies are of kernels that have",
        );
        format!("{of} not changed: look at the machine and the harness.")
    });
    let little = (near > 0).then(|| {
        let moved = count(near, "latency is", "latencies are");
        format!(
            "{moved} worse by less than {:.0} %: between two sessions 1 in 27 kernels that have not changed moves by more than 2 %, 1 in \
             100 by more than 3 %. `scripts/review --latency` times both kernels in turns.",
            100.0 * BETWEEN_SESSIONS
        )
    });
    let caveats: Vec<String> = unchanged.into_iter().chain(little).collect();
    (!caveats.is_empty()).then(|| caveats.join(" "))
}

/// Differences as a table: where, what, and how far; the reason where there are no values.
fn changes(differences: &[&Difference]) -> Table {
    let row = |of: Line| {
        let Difference {
            subject,
            base,
            new,
            why,
            group,
            ratio: moved,
            ..
        } = &of.first;
        let values = Cell::change(&of.base, &of.new);
        let why = || line(why, 110);
        let values = match (base, new) {
            (Some(_), Some(_)) if *group != Group::Gates => values,
            (_, Some(_)) => values.noted(why()),
            _ => why().into(),
        };
        row![
            short(subject),
            clip(&of.what, 160),
            values,
            or_missing(moved.map(times), "no latency")
        ]
    };
    let lines = crate::judge::diff::lines(differences.iter().copied());
    Table::of(
        ["where", "what", "was → is", "base / new"],
        lines.into_iter().map(row),
    )
}

/// `stage5/swizzle-32x64`: a stage's number says which it is.
fn short(subject: &Subject) -> String {
    match (subject.stage().split_once('-'), subject.name()) {
        (Some((stage, _)), name) if !name.is_empty() => format!("{stage}/{name}"),
        _ => subject.to_string(),
    }
}

/// At most `most` characters, cut at a word.
fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some((end, _)) => {
            let head = &text[..end];
            format!(
                "{} …",
                head.rsplit_once(' ')
                    .map_or(head, |(head, _)| head)
                    .trim_end_matches([',', ';'])
            )
        }
    }
}

/// A section where there is anything in it.
fn titled(title: &str, blocks: Vec<Block>) -> Vec<Block> {
    let title = (!blocks.is_empty()).then(|| Block::section(title));
    title.into_iter().chain(blocks).collect()
}

/// Plain words of a line, cut at the end.
fn line(of: impl Display, most: usize) -> Text {
    words(&clip(&of.to_string(), most))
}

/// What was found, or a line that says why there is nothing.
fn or_line(found: Vec<Block>, otherwise: &str) -> Vec<Block> {
    if found.is_empty() {
        vec![Block::paragraph(words(otherwise))]
    } else {
        found
    }
}

/// Lines as blocks; none where there are none.
pub fn list<T: Into<Text>>(lines: impl IntoIterator<Item = T>) -> Vec<Block> {
    let lines: Vec<Text> = lines.into_iter().map(T::into).collect();
    if lines.is_empty() {
        vec![]
    } else {
        vec![Block::Bullets(lines)]
    }
}

/// A table as blocks; none where it has no rows.
pub fn some(table: Table) -> Vec<Block> {
    if table.rows.is_empty() {
        vec![]
    } else {
        vec![Block::Table(table)]
    }
}

/// The same of lines.
fn first_lines(lines: impl IntoIterator<Item = Text>, most: usize, how: &str) -> Vec<Block> {
    let lines: Vec<Text> = lines.into_iter().collect();
    first_of(&lines, most, |lines| Block::Bullets(lines.to_vec()), how)
}

/// The first `most` items as a table or list, and a line on how to see the others.
fn first_of<T>(items: &[T], most: usize, lay_out: impl Fn(&[T]) -> Block, how: &str) -> Vec<Block> {
    if items.is_empty() {
        return Vec::new();
    }
    let hidden = items.len().saturating_sub(most);
    let more = (hidden > 0).then(|| Block::paragraph(words(&format!("{hidden} more: `{how}`."))));
    [lay_out(&items[..items.len() - hidden])]
        .into_iter()
        .chain(more)
        .collect()
}

/// `stage0-scalar 2, stage1-cpasync 3`, of stages in the order of the ladder; none where there are none.
fn per_stage<'a>(
    known: &Known<'_>,
    stages: impl Iterator<Item = &'a str> + Clone,
) -> Option<String> {
    let counts = known.stages.iter().map(|stage| {
        (
            &stage.id,
            stages.clone().filter(|id| *id == stage.id).count(),
        )
    });
    let words = joined(
        counts
            .filter(|(_, n)| *n > 0)
            .map(|(id, n)| format!("{id} {n}")),
        ", ",
    );
    (!words.is_empty()).then_some(words)
}

fn commit(git: &Git) -> String {
    match git {
        Git::Commit { sha, dirty, .. } => {
            format!(
                "commit {sha:.12}{}",
                if *dirty {
                    " with uncommitted changes"
                } else {
                    ""
                }
            )
        }
        Git::Unknown { reason } => format!("source unknown: {reason}"),
    }
}

fn gpu(gpu: &Gpu) -> String {
    match gpu {
        Gpu::Present {
            name,
            arch,
            driver,
            multiprocessors,
            ..
        } => {
            format!("{name} ({arch}, {multiprocessors} SMs, driver {driver})")
        }
        Gpu::Absent { reason } => format!("no GPU ({reason})"),
    }
}

fn variants(n: usize) -> String {
    count(n, "variant", "variants")
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speedup_says_what_it_takes_off_the_time() {
        for (ratio, expected) in [
            (1.54, "1.54x (−35 %)"),
            (0.8, "0.80x (+25 %)"),
            (1.001, "1.00x (+0 %)"),
            (0.0, "0.00x"),
            (f64::NAN, "NaNx"),
        ] {
            assert_eq!(speedup(ratio).shown().to_string(), expected);
        }
    }
}
