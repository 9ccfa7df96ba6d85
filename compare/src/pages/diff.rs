//! `compare diff`, which is also the comment on a pull request: what to do, what is new, what is worse, what is better.

use super::{
    by_weight, changes, clip, counts, first_lines, first_of, gpu, is_candidate, ladder, line, list,
    or_missing, short, state, titled, tone, whole, words,
};
use crate::judge::diff::{Change, Difference, Group};
use crate::judge::list::joined;
use crate::judge::state::state as judged;
use crate::judge::verdict::{Overall, count};
use crate::judge::{Known, best, history};
use crate::page::{Block, Document, Table, Text, Verdict, row};
use crate::record::{Record, Subject};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// By this comment a program finds what it wrote on a pull request before.
pub const MARKER: &str = "attention-ladder: compare diff";

/// Lines of all tables of a kind.
const MOST_WORSE: usize = 15;
const MOST_BETTER: usize = 8;
const MOST_NEW: usize = 8;
const MOST_MISSING: usize = 5;

/// Two sets of records side by side.
pub struct Comparison<'a> {
    pub base: String,
    pub new: String,
    pub pairs: Vec<Pair<'a>>,
    /// Of no pair: records of the base that cannot be compared at all.
    pub missing: Vec<Difference>,
    /// Records that have no counterpart, and why.
    pub unpaired: Vec<String>,
    /// What is known of the harness on both sides.
    pub notes: Vec<String>,
    pub overall: Overall,
}

pub struct Pair<'a> {
    pub base: (&'a str, &'a Record),
    pub new: (&'a str, &'a Record),
    pub differences: Vec<Difference>,
}

impl<'a> Pair<'a> {
    fn known(&self) -> Known<'a> {
        Known::alone(self.new.0, self.new.1)
    }

    fn of(&self, change: Change) -> Vec<&Difference> {
        self.differences
            .iter()
            .filter(|difference| difference.change == change)
            .collect()
    }

    fn worse(&self) -> Vec<&Difference> {
        let mut worse = self.of(Change::Worse);
        by_weight(&mut worse, is_candidate(&self.known()));
        worse
    }
}

pub fn document(comparison: &Comparison<'_>) -> Document {
    let overall = &comparison.overall;
    let verdict = Verdict {
        tone: tone(overall.exit),
        word: overall.word.into(),
        why: why(comparison),
    };
    let mut lines = worst(comparison);
    lines.extend(overall.actions.iter().map(|action| words(action)));
    let mut blocks = vec![Block::Bullets(lines), Block::paragraph(sides(comparison))];
    let share = |most: usize| (most / comparison.pairs.len().max(1)).max(2);
    blocks.extend(required(&comparison.missing, MOST_MISSING));
    for pair in &comparison.pairs {
        if comparison.pairs.len() > 1 {
            blocks.push(Block::section(format!(
                "{} against {}",
                pair.new.0, pair.base.0
            )));
        }
        blocks.extend(required(&pair.differences, share(MOST_MISSING)));
        blocks.extend(added(pair, share(MOST_NEW)));
        blocks.extend(table("Worse", &pair.worse(), share(MOST_WORSE)));
        let caveats = super::caveats(&pair.worse(), pair.base.1, pair.new.1);
        blocks.extend(caveats.map(|caveats| Block::Paragraph(words(&caveats))));
        let mut better = pair.of(Change::Better);
        let found = better.len();
        let is_candidate = is_candidate(&pair.known());
        better.retain(|difference| is_candidate(difference));
        by_weight(&mut better, |_| true);
        blocks.extend(table(
            "Better, of best and default variants",
            &better,
            share(MOST_BETTER),
        ));
        let others = found - better.len();
        blocks.push(Block::paragraph(words(&rest(pair, others))));
    }
    let lines = |lines: &[String]| list(lines.iter().map(|line| words(line)));
    blocks.extend(titled(
        "Records without a counterpart",
        lines(&comparison.unpaired),
    ));
    blocks.extend(lines(&comparison.notes));
    Document {
        marker: Some(MARKER),
        title: String::new(),
        verdict: Some(verdict),
        blocks,
    }
}

fn why(comparison: &Comparison<'_>) -> String {
    let all = comparison
        .pairs
        .iter()
        .flat_map(|pair| &pair.differences)
        .chain(&comparison.missing);
    match counts(all) {
        none if none.is_empty() || comparison.pairs.is_empty() => comparison.overall.line.clone(),
        counts => counts,
    }
}

/// The first of what is worse, a sentence for each kind of figure.
fn worst(comparison: &Comparison<'_>) -> Vec<Text> {
    let groups = [
        (Group::Gates, "gate or claim", "gates or claims"),
        (Group::Latency, "latency", "latencies"),
        (Group::Errors, "error", "errors"),
        (Group::Resources, "compiled figure", "compiled figures"),
        (Group::Counters, "counter", "counters"),
    ];
    let mut all: Vec<(bool, &Difference)> = Vec::new();
    for pair in &comparison.pairs {
        let is_candidate = is_candidate(&pair.known());
        let worse = pair.worse().into_iter();
        all.extend(worse.map(|difference| (is_candidate(difference), difference)));
    }
    all.sort_by_key(|(is_candidate, _)| !is_candidate);
    let sentence = |(group, one, many): (Group, &str, &str)| {
        let of: Vec<&Difference> = all
            .iter()
            .map(|(_, d)| *d)
            .filter(|difference| difference.group == group)
            .collect();
        let first = of.first()?;
        let on = first
            .on
            .as_ref()
            .map(|on| format!(" on {on}"))
            .unwrap_or_default();
        let values = match (&first.base, &first.new) {
            (Some(base), Some(new)) => format!(", {base} → {new}"),
            (None, Some(new)) => format!(", {new}"),
            _ => String::new(),
        };
        let reason = if group == Group::Gates {
            format!(": {}", clip(&first.why, 110))
        } else {
            String::new()
        };
        let ordinal = if of.len() == 1 { "" } else { "first " };
        let text = Text::default().strong(format!("{} worse", count(of.len(), one, many)));
        Some(text.plain(format!(
            ": {ordinal}{}: {}{on}{values}{reason}",
            first.subject, first.what
        )))
    };
    groups.into_iter().filter_map(sentence).collect()
}

fn sides(comparison: &Comparison<'_>) -> Text {
    let side = |(name, record): (&str, &Record)| {
        format!(
            "`{name}` ({}, tier {}, {})",
            gpu(&record.meta.machine.gpu),
            record.meta.tier,
            super::commit(&record.meta.git)
        )
    };
    match &comparison.pairs[..] {
        [pair] => words(&format!(
            "{} against {} (base).",
            side(pair.new),
            side(pair.base)
        )),
        _ => words(&format!(
            "{} against {} (base).",
            comparison.new, comparison.base
        )),
    }
}

fn required(differences: &[Difference], most: usize) -> Vec<Block> {
    let lines = (differences.iter())
        .filter(|difference| difference.required)
        .map(|d| line(format!("{}: {}: {}", d.subject, d.what, d.why), 160));
    titled(
        "Data that is missing",
        first_lines(lines, most, "compare diff --format json"),
    )
}

/// New stages by their best variant, and new variants of others.
fn added(pair: &Pair<'_>, most: usize) -> Vec<Block> {
    let (known, record) = (pair.known(), pair.new.1);
    let mut subjects: Vec<(Subject, String)> = Vec::new();
    for stage in &record.meta.stages {
        match pair.base.1.stage(&stage.id) {
            None => {
                let best = best::subject(&known, stage);
                subjects.push((
                    best,
                    format!("new stage, {}", super::variants(stage.variants.len())),
                ));
            }
            Some(before) => {
                let new = stage
                    .variants
                    .iter()
                    .filter(|variant| before.variant(&variant.name).is_none());
                subjects.extend(
                    new.map(|variant| (stage.subject(&variant.name), "new variant".into())),
                );
            }
        }
    }
    let row = |(subject, what): &(Subject, String)| {
        let stage = known.stage(subject.stage());
        let gates = stage.map(|stage| state(&judged(&known, stage, subject)));
        let [time, previous, _] = ladder::times(&known, subject);
        let registers = history::registers(record, subject).map(whole);
        row![
            short(subject),
            what,
            or_missing(gates, "not declared"),
            time,
            previous,
            or_missing(registers, "not built by nvcc"),
        ]
    };
    let table = |subjects: &[(Subject, String)]| {
        let columns = [
            "variant",
            "what",
            "gates",
            "p50 µs",
            "vs previous",
            "registers",
        ];
        Block::Table(Table::of(columns, subjects.iter().map(row)))
    };
    titled(
        "New",
        first_of(&subjects, most, table, "compare show gates latencies"),
    )
}

fn table(title: &str, of: &[&Difference], most: usize) -> Vec<Block> {
    titled(
        title,
        first_of(
            of,
            most,
            |of| Block::Table(changes(of)),
            "compare diff --format json",
        ),
    )
}

/// Counts, and what the latencies were judged from.
fn rest(pair: &Pair<'_>, better: usize) -> String {
    let others = pair
        .differences
        .iter()
        .filter(|d| !matches!(d.change, Change::Worse | Change::Better));
    let others = counts(others);
    let better = (better > 0).then(|| format!("{better} better of other variants"));
    let besides = joined(
        better
            .into_iter()
            .chain(Some(others).filter(|others| !others.is_empty())),
        ", ",
    );
    let mut text = if besides.is_empty() {
        String::new()
    } else {
        format!("Besides: {besides}.")
    };
    let unpaired: BTreeSet<&str> = (pair.of(Change::Missing).into_iter())
        .filter(|difference| !difference.required && difference.group == Group::Latency)
        .map(|difference| difference.why.as_str())
        .collect();
    if !unpaired.is_empty() {
        text += &format!(
            " Latencies not compared: {}.",
            clip(&joined(unpaired, "; "), 240)
        );
    }
    let judged = |from: bool| {
        pair.differences
            .iter()
            .filter(|d| d.resampled == Some(from))
            .count()
    };
    if let (raw, by_interval @ 1..) | (raw @ 1.., by_interval) = (judged(true), judged(false)) {
        let all = count(raw + by_interval, "latency was", "latencies were");
        text += &format!(
            " {all} judged, {raw} from raw samples and {by_interval} from the 95 % intervals of both medians."
        );
    }
    text.trim().to_string()
}

/// Everything, for programs.
pub fn json(comparison: &Comparison<'_>) -> Value {
    let pair = |pair: &Pair<'_>| json!({ "base": pair.base.0, "new": pair.new.0, "differences": pair.differences });
    json!({
        "base": comparison.base,
        "new": comparison.new,
        "verdict": super::json::overall(&comparison.overall),
        "missing": comparison.missing,
        "pairs": comparison.pairs.iter().map(pair).collect::<Vec<_>>(),
        "unpaired": comparison.unpaired,
        "harness": comparison.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::diff::differences;
    use crate::judge::verdict::of_differences;
    use crate::page::{markdown, terminal};
    use crate::pages::testing::{BEST, OTHER, instance, mission, record, row};
    use crate::record::{Figure, On, Row, Source};
    use crate::testing::{committed, newest_whole};
    use common::metric::Metric;
    use common::problem::Dtype;
    use common::verdict::{GateId, GateResult};

    fn compare<'a>(base: (&'a str, &'a Record), new: (&'a str, &'a Record)) -> Comparison<'a> {
        let differences = differences(base.1, new.1, 0.02);
        let overall = of_differences(&differences);
        let pairs = vec![Pair {
            base,
            new,
            differences,
        }];
        let (missing, unpaired) = Default::default();
        let notes = vec!["The harness is the same on both sides.".to_string()];
        Comparison {
            base: base.0.into(),
            new: new.0.into(),
            pairs,
            missing,
            unpaired,
            notes,
            overall,
        }
    }

    fn head(of: &Comparison<'_>) -> String {
        let text = markdown::markdown(&document(of));
        text.lines().take(10).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_was_planted_is_named_at_the_top() {
        let base = record();
        let mut slow = record();
        row(&mut slow, BEST, &mission(), Source::Gpu)
            .figures
            .insert(Metric::P50, (5.5, 5.4, 5.6).into());
        let mut spilled = record();
        row(&mut spilled, BEST, &instance(), Source::Ptxas)
            .figures
            .insert(Metric::SpillBytes, 128.0.into());
        let mut found = record();
        let finding = GateResult::judge(GateId::C7, false, "memcheck: invalid write of 2 bytes");
        found.append(Row::new(BEST, On::All, Source::ComputeSanitizer).verdict(&finding));
        for (new, expected) in [
            (
                &slow,
                "1 latency worse**: stage1-mma/mma-32x64: p50 on mission f16 full, 5.000 µs → 5.500 µs",
            ),
            (
                &spilled,
                "1 compiled figure worse**: stage1-mma/mma-32x64: spilled bytes on f16 d64 sm_90a, 0 → 128",
            ),
            (
                &found,
                "1 gate or claim worse**: stage1-mma/mma-32x64: gate C7, FAIL: memcheck: invalid write of 2 bytes",
            ),
        ] {
            let head = head(&compare(("1", &base), ("2", new)));
            assert!(head.contains(expected), "{head}");
        }
        let page = markdown::markdown(&document(&compare(("1", &base), ("2", &slow))));
        assert!(page.starts_with(&format!("<!-- {MARKER} -->")));
        insta::assert_snapshot!(page, @r##"
<!-- attention-ladder: compare diff -->

**REGRESSION: 1 worse, 34 the same**

- **1 latency worse**: stage1-mma/mma-32x64: p50 on mission f16 full, 5.000 µs → 5.500 µs
- Look at the regressions; take them back, or say in the change what they buy.

`2` (NVIDIA H200 (sm_90, 132 SMs, driver 580), tier T1, commit 25f6c2b1d61c) against `1` (NVIDIA H200 (sm_90, 132 SMs, driver 580), tier T1, commit 25f6c2b1d61c) (base).

## Worse

| where | what | was → is | base / new |
|---|---|---|---:|
| stage1/mma-32x64 | p50 on mission f16 full | 5.000 µs → 5.500 µs | 0.91x [0.89, 0.93] |

1 latency is of a kernel that has not changed: look at the machine and the harness.

Besides: 34 the same. 3 latencies were judged, 0 from raw samples and 3 from the 95 % intervals of both medians.

- The harness is the same on both sides.
"##);
    }

    #[test]
    fn a_latency_that_moved_as_unchanged_kernels_do_is_said_to_have() {
        let said = |p50: f64, is_changed: bool| {
            let (base, mut new) = (record(), record());
            let figure = (p50, p50 - 0.005, p50 + 0.005).into();
            row(&mut new, BEST, &mission(), Source::Gpu)
                .figures
                .insert(Metric::P50, figure);
            if is_changed {
                new.meta.stages[1].identity = "new".into();
                new.rows.retain(|row| row.by != Source::Ptxas);
            }
            markdown::markdown(&document(&compare(("1", &base), ("2", &new))))
        };
        let near = "1 latency is worse by less than 3 %: between two sessions 1 in 27";
        let same = "1 latency is of a kernel that has not changed";
        for (p50, is_changed, expected) in [
            (5.14, true, [true, false]),
            (5.14, false, [false, true]),
            (5.17, true, [false, false]),
        ] {
            let page = said(p50, is_changed);
            assert!(page.contains("p50 on mission f16 full"), "{page}");
            let found = [near, same].map(|words| page.contains(words));
            assert_eq!(found, expected, "{page}");
        }
    }

    /// The comment on a change that leaves the emulator's record as it is and commits `new` after `base`.
    fn comment<'a>(same: &'a Record, base: &'a Record, new: &'a Record) -> Comparison<'a> {
        let mut both = compare(("base-record", same), ("head", same));
        both.pairs.extend(compare(("1", base), ("2", new)).pairs);
        let all: Vec<_> = both
            .pairs
            .iter()
            .flat_map(|pair| pair.differences.clone())
            .collect();
        Comparison {
            overall: of_differences(&all),
            ..both
        }
    }

    #[test]
    fn a_comment_names_a_slow_kernel_a_spill_and_a_finding_first_and_candidates_before_controls() {
        let slow = |of: &Row, factor: f64| {
            let (
                Figure {
                    value,
                    interval: Some((low, high)),
                },
                mut row,
            ) = (of.figures[&Metric::P50], of.clone())
            else {
                panic!("a median has an interval")
            };
            row.figures.insert(
                Metric::P50,
                (factor * value, factor * low, factor * high).into(),
            );
            row
        };
        let finding = GateResult::judge(GateId::C7, false, "memcheck: invalid write of 2 bytes");
        let emulated = crate::testing::emulated();
        let newest = newest_whole().1;
        let known = Known {
            stages: &newest.meta.stages,
            run: Some(("1", &newest)),
            committed: &[],
        };
        let stage = newest.meta.stages.last().unwrap();
        let fastest = Subject::variant(&stage.id, best::variant(&known, stage));
        let on_sm_90 = On::Instance {
            dtype: Dtype::F16,
            head_dim: 64,
            arch: Some("sm_90a".into()),
        };
        for (base, best, built) in [
            (&record(), Subject::from(BEST), instance()),
            (&newest, fastest, on_sm_90),
        ] {
            let known = Known {
                stages: &base.meta.stages,
                run: Some(("1", base)),
                committed: &[],
            };
            let is_control = |subject: &Subject| {
                let stage = known.stage(subject.stage()).unwrap();
                ![&*stage.default_variant, best::variant(&known, stage)].contains(&subject.name())
            };
            let mut new = base.clone();
            // What nobody uses loses more.
            for row in best::timed(base).filter(|row| row.on == mission()) {
                if row.subject == best {
                    new.append(slow(row, 1.1));
                } else if is_control(&row.subject) {
                    new.append(slow(row, 1.2));
                }
            }
            row(&mut new, best.as_str(), &built, Source::Ptxas)
                .figures
                .insert(Metric::SpillBytes, 128.0.into());
            new.append(
                Row::new(best.as_str(), On::All, Source::ComputeSanitizer).verdict(&finding),
            );
            let of = comment(&emulated, base, &new);
            let head = head(&of);
            for expected in [
                format!("{best}: p50 on mission f16 full, "),
                format!("{best}: spilled bytes on f16 d64 sm_90a, 0 → 128"),
                format!("{best}: gate C7, "),
            ] {
                assert!(head.contains(&expected), "{expected}: {head}");
            }
            let text = terminal::terminal(&document(&of), terminal::WIDTH);
            assert!(
                text.lines().count() <= 100,
                "{}:\n{text}",
                text.lines().count()
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
            let worse = |pair: &Pair<'_>| {
                pair.worse()
                    .iter()
                    .map(|d| (d.group, is_control(&d.subject)))
                    .collect::<Vec<_>>()
            };
            let order = of
                .pairs
                .iter()
                .flat_map(worse)
                .filter(|(group, _)| *group != Group::Gates);
            let order: Vec<bool> = order.map(|(_, is_control)| is_control).collect();
            assert!(
                order.contains(&true) && order.is_sorted(),
                "candidates before controls: {order:?}"
            );
        }
        // Also where the control is of the first two records, and the candidate of the others.
        let base = record();
        let slowed = |subject: &str| {
            let mut slowed = record();
            let slow = slow(row(&mut slowed, subject, &mission(), Source::Gpu), 1.2);
            slowed.append(slow);
            slowed
        };
        let (control, candidate) = (slowed(OTHER), slowed(BEST));
        let mut both = compare(("1", &base), ("2", &control));
        both.pairs
            .extend(compare(("1", &base), ("3", &candidate)).pairs);
        let head = head(&both);
        assert!(
            head.contains(&format!("**2 latencies worse**: first {BEST}: p50")),
            "{head}"
        );
    }

    #[test]
    fn committed_records_fit_on_a_screen_or_two() {
        let records = committed();
        for pair in records.windows(2) {
            let of = compare((&pair[0].0, &pair[0].1), (&pair[1].0, &pair[1].1));
            let text = terminal::terminal(&document(&of), terminal::WIDTH);
            assert!(
                text.lines().count() <= 100,
                "{}:\n{text}",
                text.lines().count()
            );
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }
}
