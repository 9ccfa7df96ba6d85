//! COMPARE.md, which is also the HTML page of a run: what decides, in at most 20 KB.

use super::{
    by_weight, caveats, changes, clip, commit, counts, first_lines, first_of, gpu, is_used, ladder,
    line, of, per_stage, sections, self_test, stale, standing, tally, text, times, tone, us,
};
use crate::judge::claims::Claimed;
use crate::judge::diff::{Change, Difference};
use crate::judge::list::{distinct, grouped, joined, tallied};
use crate::judge::peers::{self, FastP, Outcome, Problem};
use crate::judge::state::{Failure, State};
use crate::judge::verdict::{Exit, Report, Since, count};
use crate::judge::{Origin, best};
use crate::page::{Block, Cell, Document, Table, Text, Tone, Verdict, row};
use crate::record::meta::{Progress, Scope};
use crate::record::{Figure, Place, Record, Row, Source};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::{Dtype, LENGTHS, Mask, parse_shape};
use common::verdict::Verdict as Judgement;

/// The most lines of each kind; a command shows the rest.
const MOST_CHANGES: usize = 12;
const MOST_FAILURES: usize = 10;
const MOST_CLAIMS: usize = 13;
const MOST_MISSING: usize = 10;

/// Fewer lengths are no curve.
const LEAST_LENGTHS: usize = 3;

pub fn document(report: &Report<'_>) -> Document {
    let subject = report.known.subject();
    let origin = subject.map(|(name, record)| Block::paragraph(origin(report, name, record)));
    let first = [Block::bullets(report.overall.actions.clone())];
    let ladder = vec![
        Block::Table(ladder::ladder(report)),
        Block::paragraph(ladder::about(report)),
    ];
    let since = report.since.as_ref();
    let changed = since.map_or(String::new(), |since| {
        format!("Changes since {}", since.name)
    });
    let tested = report.known.record().and_then(|record| {
        let rows: Vec<&Row> = record.by(Source::SelfTest).collect();
        self_test::summary(rows)
    });
    let sections = sections([
        (
            "What to do first",
            first.into_iter().chain(origin).collect(),
        ),
        ("Gates that fail", failures(report)),
        ("Missing, but required", missing(report, true)),
        ("The ladder", ladder),
        ("Against peers", beside(report)),
        ("Rate by sequence length", lengths(report)),
        (
            &changed,
            since.map_or(vec![], |since| changes_of(report, since)),
        ),
        ("Claims", claims(report)),
        ("Missing, not required", missing(report, false)),
        ("Unsupported on this device", refused(report)),
        ("Self-test", tested.into_iter().collect()),
        ("More", more(report)),
    ]);
    Document {
        title: "COMPARE".into(),
        verdict: Some(verdict(report)),
        blocks: [vec![Block::Bullets(summary(report))], sections].concat(),
        ..Document::default()
    }
}

/// A PASS that does not hide a regression.
pub fn verdict(report: &Report<'_>) -> Verdict {
    let overall = &report.overall;
    let since = report.since.as_ref();
    let regressed = since.filter(|since| since.overall.exit == Exit::Fail);
    let tone = match tone(overall.exit) {
        Tone::Good if regressed.is_some() || overall.word == "STALE" => Tone::Open,
        tone => tone,
    };
    let worse = regressed.map(|since| {
        let n = since.worse().count();
        format!("; {n} worse since {}", since.name)
    });
    Verdict {
        tone,
        word: overall.word.into(),
        why: format!("{}{}", overall.line, worse.unwrap_or_default()),
    }
}

/// Counts of gates, claims and changes, apart from each other.
pub fn summary(report: &Report<'_>) -> Vec<Text> {
    let word = |(_, state): &(_, State)| match state {
        State::Green => "green",
        State::Failed(_) => "fail",
        State::Ambiguous(_) => "undecided",
        State::NoData(_) => "without data",
        State::Stale => "stale",
        State::NotRun(_) => "not in this record",
    };
    let words: Vec<&str> = report.states.iter().map(word).collect();
    let green = words.iter().filter(|word| **word == "green").count();
    let kinds = [
        "fail",
        "undecided",
        "without data",
        "stale",
        "not in this record",
    ];
    let green = format!("{green} of {} green", super::variants(words.len()));
    let others = Some(tallied(words, &kinds)).filter(|others| !others.is_empty());
    let gates = joined([green].into_iter().chain(others), ", ");
    let claims = (!report.claims.is_empty()).then(|| format!("claims: {}", tally(&report.claims)));
    let since = report.since.as_ref().map(|since| {
        let (name, word) = (since.name, since.overall.word);
        format!("since `{name}`: {word}, {}", counts(&since.differences))
    });
    let lines = [Some(format!("gates: {gates}")), claims, since];
    lines.into_iter().flatten().map(Text::from).collect()
}

fn origin(report: &Report<'_>, name: &str, record: &Record) -> String {
    let meta = &record.meta;
    let kind = match report.known.run {
        Some(_) => "This run,",
        None => "Committed record",
    };
    let scope = match &meta.scope {
        Scope::Whole => String::new(),
        Scope::Selected { flags } => format!(", only {}", flags.join(" ")),
    };
    let cases = match meta.progress {
        Progress::Complete { cases, .. } => cases,
        Progress::Partial { finished, .. } => finished,
    };
    let backend = match meta.backend {
        BackendKind::Cuda => "on the GPU",
        BackendKind::Emulated => "in the emulator, which is functional and not a timer",
    };
    let device = meta.device.map_or(String::new(), |device| {
        format!(", limited to what {device} offers")
    });
    format!(
        "{kind} `{name}`: tier {}{scope}, {cases} cases {backend}{device}; {}; {}; {}.",
        meta.tier,
        gpu(&meta.machine.gpu),
        meta.machine.platform,
        commit(&meta.git)
    )
}

fn failures(report: &Report<'_>) -> Vec<Block> {
    let row = |failure: &Failure| {
        row! {
            "where" => text(&failure.subject),
            "gate" => Cell::Verdict(Tone::Bad, failure.gate.to_string()),
            "why" => line(&failure.reason, 160),
        }
    };
    let table = |failures: &[Failure]| Block::Table(Table::of(failures.iter().map(row)));
    first_of(&report.failures, MOST_FAILURES, table, "compare show gates")
}

fn missing(report: &Report<'_>, required: bool) -> Vec<Block> {
    let of_kind = report
        .missing
        .iter()
        .filter(|missing| missing.required == required);
    let lines = of_kind.map(|missing| line(missing, 200));
    first_lines(lines, MOST_MISSING, "compare show missing")
}

fn refused(report: &Report<'_>) -> Vec<Block> {
    let stages = report.known.stages.iter();
    let refused = stages.flat_map(|stage| {
        let refused = stage.refused.iter();
        refused.map(|refusal| format!("{}/{refusal}", stage.id))
    });
    super::list(refused)
}

/// What is won and lost against peers, in the order of the record.
pub fn beside(report: &Report<'_>) -> Vec<Block> {
    let Some(beside) = peers::beside(&report.known) else {
        return Vec::new();
    };
    let row = |problem: &Problem<'_>| {
        let found = problem.fastest.map(|(peer, over)| {
            let figure = over.estimate(Metric::SpeedupP50);
            let outcome = match coarser(problem.ours, peer) {
                Some(errors) => outcome(figure).noted(errors),
                None => outcome(figure),
            };
            let ratio = stale(times(figure), &problem.origin);
            [text(&peer.subject), us(best::p50(peer)), ratio, outcome]
        });
        let [peer, time, ratio, outcome] =
            found.unwrap_or_else(|| [(); 4].map(|()| super::missing("no peer was right")));
        row! {
            "problem" => text(&problem.place),
            "our fastest" => text(&problem.ours.subject),
            "µs" => us(best::p50(problem.ours)),
            "fastest peer" => peer,
            "µs" => time,
            "peer / ours" => ratio,
            "outcome (max errors)" => outcome,
        }
    };
    let about = ladder::score(&report.known).map(|score| {
        let whose = whose("Interleaved (A B B A)", &beside.origin);
        let fast = beside.fast.as_ref().map(|fast| fast_p(fast));
        let fast = fast.unwrap_or_default();
        let rows = beside.problems.iter();
        let is_coarser = |problem: &Problem<'_>| {
            let (peer, _) = problem.fastest?;
            coarser(problem.ours, peer)
        };
        let errors = match rows.filter_map(is_coarser).next() {
            Some(_) => " Max errors against FP64 (ours / theirs) are shown if theirs is at least 10 times ours.",
            None => "",
        };
        Block::Paragraph(score.text((whose + &fast + errors).into()))
    });
    let table = Block::Table(Table::of(beside.problems.iter().map(row)));
    about.into_iter().chain([table]).collect()
}

/// ` How in record … (NVIDIA H200).`, unless it is the run's own.
fn whose(how: &str, origin: &Origin) -> String {
    let cited = origin.cited();
    cited.map_or(String::new(), |record| format!(" {how} in {record}."))
}

/// The rates of ours and of the fastest peer by sequence length, f16 under the full mask, where both head sizes were timed.
fn lengths(report: &Report<'_>) -> Vec<Block> {
    let Some(beside) = peers::beside(&report.known) else {
        return Vec::new();
    };
    let rates = |name: &str| -> Option<[f64; 2]> {
        let place = Place::new(name, Dtype::F16, Mask::Full);
        let mut problems = beside.problems.iter();
        let problem =
            problems.find(|problem| problem.place == place && !problem.origin.is_stale())?;
        let (peer, _) = problem.fastest?;
        let flops = place.problem()?.flops() as f64;
        Some([problem.ours, peer].map(|row| flops / best::p50(row) * 1e-6))
    };
    let of_length = |[narrow, wide]: [&str; 2]| {
        let (shape, [ours, peer], [ours_wide, peer_wide]) =
            (parse_shape(narrow).ok()?.1, rates(narrow)?, rates(wide)?);
        Some((shape.seq_kv, [ours, peer, ours_wide, peer_wide]))
    };
    let timed: Vec<(usize, [f64; 4])> = LENGTHS.into_iter().filter_map(of_length).collect();
    if timed.len() < LEAST_LENGTHS {
        return Vec::new();
    }
    let line = |line: usize| {
        let rates = timed.iter().map(|(_, rates)| format!("{:.0}", rates[line]));
        format!("\n  line [{}]", joined(rates, ", "))
    };
    let diagram = format!(
        "xychart-beta\n  title \"TFLOP/s: head_dim 64 ours, fastest peer; head_dim 128 ours, fastest peer\"\n  x-axis \"sequence length\" \
         [{}]\n  y-axis \"TFLOP/s\"{}",
        joined(timed.iter().map(|(seq, _)| format!("\"{seq}\"")), ", "),
        (0..4).map(line).collect::<String>()
    );
    let about = "16,384 query rows in 16 heads, f16, full mask.";
    vec![Block::paragraph(about), Block::Diagram(diagram)]
}

fn outcome(ratio: Figure) -> Cell {
    match peers::outcome(ratio) {
        Outcome::Won => Cell::Verdict(Tone::Good, "won".into()),
        Outcome::Lost => Cell::Verdict(Tone::Bad, "lost".into()),
        Outcome::Undecided => Cell::Verdict(Tone::Open, "undecided".into()),
    }
}

/// Our and their largest error against FP64, if theirs is ten times ours: in the same precision they differ by up to 4 times.
fn coarser(ours: &Row, theirs: &Row) -> Option<Text> {
    let error = |row: &Row| row.value(Metric::MaxError).unwrap_or(f64::NAN);
    let shown = |row: &Row| of(Some(row), Metric::MaxError).shown();
    let text = || shown(ours).plain(" / ").text(shown(theirs));
    (error(theirs) >= 10.0 * error(ours)).then(text)
}

/// KernelBench's fast_p, in words.
fn fast_p(fast: &FastP) -> String {
    let words = fast.faster.iter().map(|(p, n)| match p {
        1.0 => format!("faster on {n}"),
        p => format!("more than {p} times as fast on {n}"),
    });
    format!(
        " Of the {} f16 problems of that session, ours is right and, against PyTorch's default, {} (fast_p of KernelBench).",
        fast.of,
        joined(words, ", ")
    )
}

fn changes_of(report: &Report<'_>, since: &Since<'_>) -> Vec<Block> {
    let mut worse: Vec<&Difference> = since.worse().collect();
    by_weight(&mut worse, is_used(&report.known));
    let shown = &worse[..worse.len().min(MOST_CHANGES)];
    let hidden = match worse.len() - shown.len() {
        0 => None,
        hidden => Some(format!("{hidden} more worse")),
    };
    let others = since
        .differences
        .iter()
        .filter(|of| of.change != Change::Worse);
    let others = joined(hidden.into_iter().chain([counts(others)]), ", ");
    let rest = format!(
        "Also: {others}. `compare show changes` lists all; `compare diff BASE NEW` compares any two records."
    );
    if shown.is_empty() {
        return ["Nothing is worse.", &rest].map(Block::paragraph).into();
    }
    let record = report.known.record();
    let caveats = record.and_then(|record| caveats(&worse, &since.record, record));
    let order = "Worse, best and default variants first.".to_string();
    let about = [Some(order), caveats, Some(rest)];
    vec![
        Block::Table(changes(shown)),
        Block::paragraph(joined(about.into_iter().flatten(), " ")),
    ]
}

/// Claims that are not simply kept; those that are as counts.
fn claims(report: &Report<'_>) -> Vec<Block> {
    let is_kept = |of: &&Claimed| of.verdict() == Some(Judgement::Pass);
    let (kept, mut others): (Vec<&Claimed>, Vec<&Claimed>) =
        report.claims.iter().partition(is_kept);
    // Failures, then the newest stages: reviewers know the others.
    others.reverse();
    others.sort_by_key(|of| of.verdict() != Some(Judgement::Fail));
    let is_unmeasured = |of: &&Claimed| of.verdict() == Some(Judgement::NoData);
    let (unmeasured, open): (Vec<&Claimed>, Vec<&Claimed>) =
        others.into_iter().partition(is_unmeasured);
    let row = |of: &&Claimed| {
        row! {
            "claim" => of.title(),
            "verdict" => standing(of).0,
            "measured" => clip(&of.finding.reason, 180),
        }
    };
    let table = |claims: &[&Claimed]| Block::Table(Table::of(claims.iter().map(row)));
    let is_negative = |of: &&&Claimed| of.is_unexpected().is_none();
    let negative = open
        .iter()
        .filter(is_negative)
        .filter_map(|of| of.refuted.as_ref());
    let negative = distinct(negative).into_iter().map(|by| {
        let why = format!("NEGATIVE in record `{}`: {}", by.record, by.reason);
        line(why, 600)
    });
    let by_reason = grouped(unmeasured.into_iter().map(|of| (&of.finding.reason, of)));
    let unmeasured = by_reason.into_iter().map(|(why, claims)| {
        let claims = count(claims.len(), "claim", "claims");
        line(format!("NO DATA for {claims}: {why}"), 300)
    });
    let (stale, kept): (Vec<&Claimed>, Vec<&Claimed>) =
        kept.into_iter().partition(|of| of.origin.is_stale());
    let kept = [("Kept", kept), ("STALE: kept by another version", stale)];
    let kept = kept.into_iter().filter_map(|(title, claims)| {
        let stages = per_stage(&report.known, claims.iter().map(|of| &*of.stage))?;
        Some(format!("{title}: {stages} (`compare show claims`).").into())
    });
    let lines = super::list(negative.chain(unmeasured).chain(kept));
    [
        first_of(&open, MOST_CLAIMS, table, "compare show claims"),
        lines,
    ]
    .concat()
}

fn more(report: &Report<'_>) -> Vec<Block> {
    let stage = report.known.stages.last();
    let stage = stage.map_or("STAGE", |stage| &stage.id);
    let of_stage = format!("--stage {stage}");
    let commands = [
        (&*of_stage, "all of one stage"),
        ("gates", "every variant, its gates and largest errors"),
        (
            "latencies peers",
            "device times by problem, and those of every peer",
        ),
        (
            "resources counters profile",
            "registers, occupancy, counters and ncu's metrics of each variant",
        ),
        ("claims changes", "every claim and change with its figures"),
        (
            "self-test sanitizer",
            "faults and mutants, and the findings of compute-sanitizer",
        ),
        (
            "built thresholds",
            "compilers, flags, and what each gate demands",
        ),
    ];
    let line = |(flags, what)| format!("`compare show {flags}`: {what}");
    let text = Text::from("Terms are in ").link("docs/glossary.md");
    let text = text
        .plain(", rows, metrics and gates in ")
        .link("docs/rows.md")
        .plain(".");
    vec![Block::bullets(commands.map(line)), Block::Paragraph(text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, Named, verdict};
    use crate::page::{markdown, terminal};
    use crate::pages::testing::{BEST, OTHER, mission, record, row};
    use crate::record::{On, Record, StageMeta, Subject};
    use crate::testing::committed;
    use common::verdict::{GateId, GateResult};

    fn of<'a>(stages: &'a [StageMeta], records: &'a [Named]) -> Report<'a> {
        verdict::report(Known {
            stages,
            run: None,
            committed: records,
        })
    }

    #[test]
    fn what_decides_stands_first() {
        let mut now = record();
        for (variant, us) in [(BEST, 5.5), (OTHER, 7.0)] {
            row(&mut now, variant, &mission(), Source::Gpu)
                .figures
                .insert(Metric::P50, (us, us, us).into());
        }
        let records = [("1".to_string(), record()), ("2".to_string(), now)];
        let stages = &records[1].1.meta.stages;
        insta::assert_snapshot!(markdown::markdown(&document(&of(stages, &records))), @r##"
# COMPARE

**PASS: 3 variants are green; 2 worse since 1**

- gates: 3 of 3 variants green
- claims: 1 kept
- since `1`: REGRESSION, 2 worse, 33 the same

## What to do first

- Look at the machine and the harness: what is worse since 1 is of kernels that have not changed.

Committed record `2`: tier T1, 120 cases on the GPU; NVIDIA H200 (sm_90, 132 SMs, driver 580); linux x86_64; commit 25f6c2b1d61c.

## The ladder

| stage | best variant | gates | p50 µs | vs previous | vs stage0 | vs fastest peer | registers, occupancy |
|---|---|---|---:|---:|---:|---:|---|
| stage0-scalar | scalar-32x64 | GREEN | 10.00 | – | – | – | 128, 25 % |
| stage1-mma | mma-32x64 | GREEN | 5.500 | 1.82x (−45 %) | 1.82x (−45 %) | 1.50x | 128, 25 % |

Device time of one launch in a CUDA graph on mission (1x8x512x64), full mask, warm L2, in f16 or the type named. Speedups are base / new of medians in the newest record that has both. Registers and occupancy are those of the instance for that type and head_dim 64. Latencies are from record `2` (NVIDIA H200).

## Against peers

**Our fastest stage is faster than the fastest peer on 1 of 2 problems and slower on 1**: from 0.80x (long f16 full) to 1.50x (mission f16 full). Interleaved (A B B A) in record `2` (NVIDIA H200). Of the 2 f16 problems of that session, ours is right and, against PyTorch's default, faster on 1, more than 1.5 times as fast on 0, more than 2 times as fast on 0 (fast_p of KernelBench). Max errors against FP64 (ours / theirs) are shown if theirs is at least 10 times ours.

| problem | our fastest | µs | fastest peer | µs | peer / ours | outcome (max errors) |
|---|---|---:|---|---:|---:|---|
| mission f16 full | stage1-mma/mma-32x64 | 5.000 | torch-default | 7.500 | 1.50x [1.49, 1.51] | won (1.0e-4 / 2.0e-2) |
| long f16 full | stage1-mma/mma-32x64 | 30.00 | torch-default | 24.00 | 0.80x [0.79, 0.81] | lost |

## Changes since 1

| where | what | was → is | base / new |
|---|---|---|---:|
| stage1/mma-32x64 | p50 on mission f16 full | 5.000 µs → 5.500 µs | 0.91x [0.91, 0.91] |
| stage1/mma-64x64 | p50 on mission f16 full | 6.000 µs → 7.000 µs | 0.86x [0.86, 0.86] |

Worse, best and default variants first. 2 latencies are of kernels that have not changed: look at the machine and the harness. Also: 33 the same. `compare show changes` lists all; `compare diff BASE NEW` compares any two records.

## Claims

- Kept: stage1-mma 1 (`compare show claims`).

## Missing, not required

- registers, spills, occupancy and GPU code: nvcc was not found

## Self-test

Fault injection and mutation testing (S1): 1 of 1 planted faults killed.

## More

- `compare show --stage stage1-mma`: all of one stage
- `compare show gates`: every variant, its gates and largest errors
- `compare show latencies peers`: device times by problem, and those of every peer
- `compare show resources counters profile`: registers, occupancy, counters and ncu's metrics of each variant
- `compare show claims changes`: every claim and change with its figures
- `compare show self-test sanitizer`: faults and mutants, and the findings of compute-sanitizer
- `compare show built thresholds`: compilers, flags, and what each gate demands

Terms are in [docs/glossary.md](docs/glossary.md), rows, metrics and gates in [docs/rows.md](docs/rows.md).
"##);
    }

    #[test]
    fn a_regression_is_laid_to_the_kernel_only_if_that_has_changed() {
        let mut now = record();
        row(&mut now, BEST, &mission(), Source::Gpu)
            .figures
            .insert(Metric::P50, (5.5, 5.5, 5.5).into());
        let advice = |now: Record| {
            let records = [("1".to_string(), record()), ("2".to_string(), now)];
            let stages = &records[1].1.meta.stages;
            markdown::markdown(&document(&of(stages, &records)))
        };
        let same = advice(now.clone());
        assert!(
            same.contains("- Look at the machine and the harness: "),
            "{same}"
        );
        let changed = advice(now.changed(|meta| meta.stages[1].identity = "changed".into()));
        assert!(
            changed.contains("- Look at the 1 regression since 1."),
            "{changed}"
        );
    }

    #[test]
    fn a_pull_request_can_carry_it() {
        let mut records = committed();
        for more in 0..2 {
            if more == 1 {
                records.iter_mut().for_each(|(_, record)| repeat(record));
            }
            let stages = records.last().unwrap().1.meta.stages.clone();
            let report = of(&stages, &records);
            assert!(ladder::ladder(&report).columns.len() <= 8);
            let text = markdown::markdown(&document(&report));
            let (bytes, lines) = (text.len(), text.lines().count());
            assert!(
                bytes <= 20 * 1024 && lines <= 200,
                "{} stages: {bytes} bytes, {lines} lines",
                stages.len()
            );
            let text = terminal::terminal(&document(&report), terminal::WIDTH);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }

    #[test]
    fn without_a_record_it_says_so() {
        let stages = record().meta.stages;
        let text = markdown::markdown(&document(&of(&stages, &[])));
        assert!(text.starts_with("# COMPARE\n\n**INCOMPLETE: "), "{text}");
        assert!(text.contains("| stage1-mma | mma-32x64 |"), "{text}");
    }

    #[test]
    fn it_stays_small_where_everything_fails() {
        let mut records = committed();
        let fails = GateResult::judge(GateId::C2, false, "max error 3e-1 > 4e-4 ".repeat(20));
        let (_, last) = records.last_mut().unwrap();
        repeat(last);
        last.rows
            .iter_mut()
            .filter(|row| row.on == On::All)
            .for_each(|row| row.judge(GateId::C2, (&fails).into()));
        last.meta.progress = Progress::Partial {
            finished: 1,
            planned: 2,
        };
        last.meta.negative = None;
        let stages = records.last().unwrap().1.meta.stages.clone();
        let text = markdown::markdown(&document(&of(&stages, &records)));
        let (bytes, lines) = (text.len(), text.lines().count());
        assert!(
            bytes <= 20 * 1024 && lines <= 200,
            "{bytes} bytes, {lines} lines:\n{text}"
        );
        assert!(
            text.lines().nth(2).unwrap().starts_with("**FAIL: "),
            "{text}"
        );
    }

    /// Three stages more, which are the last three again.
    fn repeat(record: &mut Record) {
        let last: Vec<StageMeta> = record
            .meta
            .stages
            .iter()
            .rev()
            .take(3)
            .rev()
            .cloned()
            .collect();
        for stage in last {
            let renamed = |subject: &Subject| match subject.stage() == stage.id {
                true => Subject::variant(&format!("{}-again", stage.id), subject.name()),
                false => subject.clone(),
            };
            let rows: Vec<_> = record
                .rows
                .iter()
                .filter(|row| row.subject.stage() == stage.id)
                .cloned()
                .collect();
            for mut row in rows {
                row.subject = renamed(&row.subject);
                row.against = row.against.as_ref().map(renamed);
                record.append(row);
            }
            record.meta.stages.push(StageMeta {
                id: format!("{}-again", stage.id),
                ..stage
            });
        }
    }
}
