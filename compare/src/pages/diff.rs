//! `compare diff`, which is also the comment on a pull request: what to do, what is new, what is worse, what is better.

use super::{
    by_weight, changes, clip, counts, first_lines, first_of, gpu, is_used, ladder, line, list,
    or_missing, sections, short, state, tone, whole,
};
use crate::judge::diff::{Change, Difference, Group};
use crate::judge::list::joined;
use crate::judge::state::{compiled, state as judged};
use crate::judge::verdict::{Overall, count};
use crate::judge::{Known, best};
use crate::page::{Block, Document, Table, Text, Verdict, row};
use crate::record::{Record, Subject};
use common::metric::Metric;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Marks the comment, so that a later one replaces it.
pub const MARKER: &str = "attention-ladder: compare diff";

/// The most lines of each kind in all tables together.
const MOST_WORSE: usize = 15;
const MOST_BETTER: usize = 8;
const MOST_NEW: usize = 8;
const MOST_MISSING: usize = 5;

const HOW: &str = "compare diff --format json";

/// Two sets of records side by side.
pub struct Comparison<'a> {
    pub base: String,
    pub new: String,
    pub pairs: Vec<Pair<'a>>,
    /// Records of the base that cannot be compared at all.
    pub missing: Vec<Difference>,
    /// Records without a counterpart, and why.
    pub unpaired: Vec<String>,
    /// Whether the harness changed.
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
        let all = self.differences.iter();
        all.filter(|difference| difference.change == change)
            .collect()
    }

    fn worse(&self) -> Vec<&Difference> {
        let mut worse = self.of(Change::Worse);
        by_weight(&mut worse, is_used(&self.known()));
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
    let actions = overall.actions.iter().map(Text::from);
    let mut blocks = vec![
        Block::bullets(worst(comparison).into_iter().chain(actions)),
        Block::paragraph(sides(comparison)),
    ];
    let share = |most: usize| (most / comparison.pairs.len().max(1)).max(2);
    let missing = "Missing data";
    blocks.extend(sections([(
        missing,
        required(&comparison.missing, MOST_MISSING),
    )]));
    for pair in &comparison.pairs {
        if comparison.pairs.len() > 1 {
            let (new, base) = (pair.new.0, pair.base.0);
            blocks.push(Block::section(format!("{new} against {base}")));
        }
        let worse = pair.worse();
        let caveats = super::caveats(&worse, pair.base.1, pair.new.1).map(Block::paragraph);
        let worse = table(&worse, share(MOST_WORSE)).into_iter().chain(caveats);
        let mut better = pair.of(Change::Better);
        let found = better.len();
        let is_used = is_used(&pair.known());
        better.retain(|difference| is_used(difference));
        by_weight(&mut better, |_| true);
        let others = found - better.len();
        blocks.extend(sections([
            (missing, required(&pair.differences, share(MOST_MISSING))),
            ("New", added(pair, share(MOST_NEW))),
            ("Worse", worse.collect()),
            (
                "Better: best and default variants",
                table(&better, share(MOST_BETTER)),
            ),
        ]));
        blocks.push(Block::paragraph(rest(pair, others)));
    }
    let unpaired = list(&comparison.unpaired);
    blocks.extend(sections([("Records without a counterpart", unpaired)]));
    blocks.extend(list(&comparison.notes));
    Document {
        marker: Some(MARKER),
        verdict: Some(verdict),
        ..Document::of(blocks)
    }
}

fn why(comparison: &Comparison<'_>) -> String {
    let pairs = comparison.pairs.iter().flat_map(|pair| &pair.differences);
    match counts(pairs.chain(&comparison.missing)) {
        none if none.is_empty() || comparison.pairs.is_empty() => comparison.overall.line.clone(),
        counts => counts,
    }
}

/// What is worse: a sentence for each kind of figure, with the most important one.
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
        let is_used = is_used(&pair.known());
        let worse = pair.worse().into_iter();
        all.extend(worse.map(|difference| (is_used(difference), difference)));
    }
    all.sort_by_key(|(is_used, _)| !is_used);
    let sentence = |(group, one, many): (Group, &str, &str)| {
        let of: Vec<_> = all.iter().filter(|(_, of)| of.group == group).collect();
        let (_, first) = of.first()?;
        let on: String = first.on.iter().map(|on| format!(" on {on}")).collect();
        let values = match (&first.base, &first.new) {
            (Some(base), Some(new)) => format!(", {base} → {new}"),
            (None, Some(new)) => format!(", {new}"),
            _ => String::new(),
        };
        let reason = match group {
            Group::Gates => format!(": {}", clip(&first.why, 110)),
            _ => String::new(),
        };
        let ordinal = if of.len() == 1 { "" } else { "first " };
        let text = Text::default().strong(format!("{} worse", count(of.len(), one, many)));
        let Difference { subject, what, .. } = first;
        Some(text.plain(format!(": {ordinal}{subject}: {what}{on}{values}{reason}")))
    };
    groups.into_iter().filter_map(sentence).collect()
}

fn sides(comparison: &Comparison<'_>) -> String {
    let side = |(name, record): (&str, &Record)| {
        let (gpu, tier) = (gpu(&record.meta.machine.gpu), record.meta.tier);
        format!(
            "`{name}` ({gpu}, tier {tier}, {})",
            super::commit(&record.meta.git)
        )
    };
    let (new, base) = match &comparison.pairs[..] {
        [pair] => (side(pair.new), side(pair.base)),
        _ => (comparison.new.clone(), comparison.base.clone()),
    };
    format!("{new} against {base} (base).")
}

fn required(differences: &[Difference], most: usize) -> Vec<Block> {
    let required = differences.iter().filter(|difference| difference.required);
    let lines = required.map(|d| line(format!("{}: {}: {}", d.subject, d.what, d.why), 160));
    first_lines(lines, most, HOW)
}

/// The best variants of new stages, and new variants of others.
fn added(pair: &Pair<'_>, most: usize) -> Vec<Block> {
    let (known, record) = (pair.known(), pair.new.1);
    let mut added: Vec<(Subject, String)> = Vec::new();
    for stage in &record.meta.stages {
        let Some(before) = pair.base.1.stage(&stage.id) else {
            let what = format!("new stage, {}", super::variants(stage.variants.len()));
            added.push((best::subject(&known, stage), what));
            continue;
        };
        let is_new = |subject: &Subject| before.variant(subject.name()).is_none();
        let new = stage.subjects().filter(is_new);
        added.extend(new.map(|subject| (subject, "new variant".into())));
    }
    let row = |(subject, what): &(Subject, String)| {
        let stage = known.stage(subject.stage());
        let gates = stage.map(|stage| state(&judged(&known, stage, subject)));
        let [time, previous, _] = ladder::times(&known, subject);
        let registers = compiled(record, subject, Metric::Registers).map(whole);
        row! {
            "variant" => short(subject),
            "what" => what,
            "gates" => or_missing(gates, "not declared"),
            "p50 µs" => time,
            "vs previous" => previous,
            "registers" => or_missing(registers, "not built by nvcc"),
        }
    };
    let table = |added: &[(Subject, String)]| Block::Table(Table::of(added.iter().map(row)));
    first_of(&added, most, table, "compare show gates latencies")
}

fn table(of: &[&Difference], most: usize) -> Vec<Block> {
    first_of(of, most, |of| Block::Table(changes(of)), HOW)
}

/// Counts of everything else, and what latencies were judged by.
fn rest(pair: &Pair<'_>, better: usize) -> String {
    let others = pair.differences.iter();
    let others = others.filter(|d| !matches!(d.change, Change::Worse | Change::Better));
    let better = match better {
        0 => String::new(),
        n => format!("{n} better of other variants"),
    };
    let also = [better, counts(others)];
    let also = joined(also.iter().filter(|words| !words.is_empty()), ", ");
    let also = (!also.is_empty()).then(|| format!("Also: {also}."));
    let unpaired = pair.of(Change::Missing).into_iter();
    let unpaired = unpaired.filter(|of| !of.required && of.group == Group::Latency);
    let unpaired: BTreeSet<&str> = unpaired.map(|of| of.why.as_str()).collect();
    let unpaired = (!unpaired.is_empty()).then(|| {
        format!(
            "Latencies not compared: {}.",
            clip(&joined(unpaired, "; "), 240)
        )
    });
    let judged = |from: bool| {
        let all = pair.differences.iter();
        all.filter(|d| d.resampled == Some(from)).count()
    };
    let (raw, by_interval) = (judged(true), judged(false));
    let judged = (raw + by_interval > 0).then(|| {
        let all = count(raw + by_interval, "latency was", "latencies were");
        format!(
            "{all} judged, {raw} by raw samples and {by_interval} by the 95 % intervals of both medians."
        )
    });
    joined([also, unpaired, judged].into_iter().flatten(), " ")
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
- Look at the regressions: undo them, or state in the change what they buy.

`2` (NVIDIA H200 (sm_90, 132 SMs, driver 580), tier T1, commit 25f6c2b1d61c) against `1` (NVIDIA H200 (sm_90, 132 SMs, driver 580), tier T1, commit 25f6c2b1d61c) (base).

## Worse

| where | what | was → is | base / new |
|---|---|---|---:|
| stage1/mma-32x64 | p50 on mission f16 full | 5.000 µs → 5.500 µs | 0.91x [0.89, 0.93] |

1 latency is of a kernel that has not changed: look at the machine and the harness.

Also: 34 the same. 3 latencies were judged, 0 by raw samples and 3 by the 95 % intervals of both medians.

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
        let near =
            "1 latency is worse by less than 3 %, which may be noise: between sessions 1 in 27";
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

    #[test]
    fn counters_of_a_variant_that_say_the_same_share_a_row() {
        let counted = |wavefronts: u32, macs: u32| {
            let mut record = record();
            let row = row(&mut record, BEST, &mission(), Source::Emulator);
            row.figures
                .insert(Metric::SharedReadWavefronts, wavefronts.into());
            row.figures.insert(Metric::TensorMacs, macs.into());
            record
        };
        let (base, new) = (counted(8, 64), counted(16, 32));
        let found = differences(&base, &new, 0.02);
        let of_best = found.iter().filter(|of| of.subject.as_str() == BEST);
        let moved: Vec<_> = of_best.filter(|of| of.change != Change::Same).collect();
        let table = changes(&moved);
        let shown = |column: usize| table.rows[0][column].shown().to_string();
        assert_eq!((moved.len(), table.rows.len()), (2, 1));
        let what =
            "shared-load wavefronts (mission f16 full); tensor multiply-adds (mission f16 full)";
        assert_eq!([shown(1), shown(2)], [what, "8; 64 → 16; 32"]);
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
