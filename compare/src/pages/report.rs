//! COMPARE.md, which is also the page and the end of a run: what decides, in at most 20 KB.

use super::{
    by_weight, candidates, caveats, changes, claimed, clip, commit, counts, first_lines, first_of,
    gpu, is_candidate, ladder, line, missing, of, or_missing, per_stage, self_test, sides, stale,
    tally, text, times, titled, tone, us, words,
};
use crate::judge::claims::{Claimed, Status};
use crate::judge::diff::{Change, Difference};
use crate::judge::list::{distinct, grouped, joined, tallied};
use crate::judge::peers::{self, FastP, Outcome, Problem};
use crate::judge::state::{Failure, State};
use crate::judge::verdict::{Exit, Report, count};
use crate::judge::{Named, Origin, best};
use crate::page::{Block, Cell, Chart, Document, Table, Text, Tone, Verdict, row};
use crate::record::meta::{Progress, Scope};
use crate::record::{Figure, Record, Row, Source};
use common::device::BackendKind;
use common::metric::Metric;
use common::verdict::Verdict as Judgement;

/// Lines of each kind. The rest is behind a command.
const MOST_CHANGES: usize = 12;
const MOST_FAILURES: usize = 10;
const MOST_CLAIMS: usize = 13;
const MOST_MISSING: usize = 10;

/// Of a report, and of what committed candidates reached beside the ladder.
pub fn document(report: &Report<'_>, candidates: &[Named]) -> Document {
    let mut blocks = vec![Block::Bullets(apart(report))];
    blocks.push(Block::section("What to do first"));
    blocks.push(Block::bullets(
        report.overall.actions.iter().map(|action| words(action)),
    ));
    blocks.extend(
        report
            .known
            .subject()
            .map(|(name, record)| Block::Paragraph(origin(report, name, record))),
    );
    blocks.extend(failures(report));
    blocks.extend(required(report));
    blocks.push(Block::section("The ladder"));
    blocks.push(Block::Table(ladder::ladder(report)));
    blocks.push(Block::Paragraph(ladder::about(report)));
    blocks.extend(beside(report));
    blocks.extend(growth(report));
    // Where gates fail they have the room.
    if report.failures.is_empty() {
        blocks.extend(titled("Candidates", candidates::blocks(candidates)));
    }
    blocks.extend(since(report));
    blocks.extend(claims(report));
    blocks.extend(elsewhere(report));
    blocks.extend(refused(report));
    let self_test = report
        .known
        .record()
        .and_then(|record| self_test::summary(record.by(Source::SelfTest).collect::<Vec<_>>()));
    blocks.extend(titled("Self-test", self_test.into_iter().collect()));
    blocks.push(Block::section("The rest"));
    blocks.extend(rest(report));
    Document {
        marker: None,
        title: "COMPARE".into(),
        verdict: Some(verdict(report)),
        blocks,
    }
}

/// A PASS that hides no regression.
pub fn verdict(report: &Report<'_>) -> Verdict {
    let overall = &report.overall;
    let regressed = report
        .since
        .as_ref()
        .filter(|since| since.overall.exit == Exit::Fail);
    let (tone, why) = match regressed {
        Some(since) => {
            let tone = if overall.exit == Exit::Pass {
                Tone::Open
            } else {
                tone(overall.exit)
            };
            (
                tone,
                format!(
                    "{}; {} worse since {}",
                    overall.line,
                    since.worse().count(),
                    since.name
                ),
            )
        }
        None if overall.word == "STALE" => (Tone::Open, overall.line.clone()),
        None => (tone(overall.exit), overall.line.clone()),
    };
    Verdict {
        tone,
        word: overall.word.into(),
        why,
    }
}

/// Gates, claims and regressions, counted apart.
pub fn apart(report: &Report<'_>) -> Vec<Text> {
    let word = |(_, state): &(_, State)| match state {
        State::Green => "green",
        State::Failed(_) => "fail",
        State::Ambiguous(_) => "undecided",
        State::NoData(_) => "without data",
        State::Stale => "stale",
        State::NotRun(_) => "not in this record",
    };
    let words_of = report.states.iter().map(word);
    let green = words_of.clone().filter(|word| *word == "green").count();
    let kinds = [
        "fail",
        "undecided",
        "without data",
        "stale",
        "not in this record",
    ];
    let of = format!("{green} of {} green", super::variants(report.states.len()));
    let others = Some(tallied(words_of, &kinds)).filter(|others| !others.is_empty());
    let mut lines = vec![format!(
        "gates: {}",
        joined([of].into_iter().chain(others), ", ")
    )];
    if !report.claims.is_empty() {
        lines.push(format!("claims: {}", tally(&report.claims)));
    }
    if let Some(since) = &report.since {
        lines.push(format!(
            "since `{}`: {}, {}",
            since.name,
            since.overall.word,
            counts(&since.differences)
        ));
    }
    lines.iter().map(|line| words(line)).collect()
}

fn origin(report: &Report<'_>, name: &str, record: &Record) -> Text {
    let meta = &record.meta;
    let kind = if report.known.run.is_some() {
        "This run, "
    } else {
        "The committed record "
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
        BackendKind::Cpu => "on the processor",
        BackendKind::Emulated => "in the emulator, which is functional and never a timer",
    };
    let device = meta.device.map_or(String::new(), |device| {
        format!(", limited to what {device} offers")
    });
    Text::from(kind).code(name).plain(format!(
        ": tier {}{scope}, {cases} cases {backend}{device}; {}; {}; {}.",
        meta.tier,
        gpu(&meta.machine.gpu),
        meta.machine.platform,
        commit(&meta.git)
    ))
}

fn failures(report: &Report<'_>) -> Vec<Block> {
    let row = |Failure {
                   subject,
                   gate,
                   reason,
               }: &Failure| {
        row![
            text(subject),
            Cell::Verdict(Tone::Bad, gate.to_string()),
            line(reason, 160)
        ]
    };
    let table = |failures: &[Failure]| {
        Block::Table(Table::of(
            ["where", "gate", "why"],
            failures.iter().map(row),
        ))
    };
    titled(
        "Gates that fail",
        first_of(&report.failures, MOST_FAILURES, table, "compare show gates"),
    )
}

fn required(report: &Report<'_>) -> Vec<Block> {
    let required = report.required().map(|of| line(of, 200));
    titled(
        "Missing that this record should have",
        first_lines(required, MOST_MISSING, "compare show missing"),
    )
}

fn elsewhere(report: &Report<'_>) -> Option<Block> {
    let lines: Vec<Text> = report
        .missing
        .iter()
        .filter(|missing| !missing.required)
        .map(|of| line(of, 200))
        .collect();
    let summary = format!("{} that a record may lack", lines.len());
    let shown = lines.iter().take(MOST_MISSING).cloned().collect();
    (!lines.is_empty()).then(|| Block::folded(summary, vec![Block::Bullets(shown)]))
}

fn refused(report: &Report<'_>) -> Option<Block> {
    let refused = report
        .known
        .stages
        .iter()
        .flat_map(|stage| stage.refused.iter().map(move |of| (stage, of)));
    let lines: Vec<String> = refused
        .map(|(stage, refusal)| format!("{}/{refusal}", stage.id))
        .collect();
    let summary = format!(
        "{} that the device cannot run",
        super::variants(lines.len())
    );
    (!lines.is_empty()).then(|| Block::folded(summary, vec![Block::bullets(lines)]))
}

/// What is won and lost against peers, in the order of the record.
pub fn beside(report: &Report<'_>) -> Vec<Block> {
    let Some(beside) = peers::beside(&report.known) else {
        return Vec::new();
    };
    let row = |problem: &Problem<'_>| {
        let mut cells = row![
            text(&problem.place),
            text(&problem.ours.subject),
            us(best::p50(problem.ours))
        ];
        cells.extend(match &problem.fastest {
            Some((peer, over)) => {
                let figure = over.estimate(Metric::SpeedupP50);
                row![
                    text(&peer.subject),
                    us(best::p50(peer)),
                    stale(times(figure), &problem.origin),
                    match coarser(problem.ours, peer) {
                        Some(errors) => outcome(figure).noted(errors),
                        None => outcome(figure),
                    }
                ]
            }
            None => vec![missing("no peer was right"); 4],
        });
        cells
    };
    let sides = sides(beside.record);
    let columns = [
        "problem",
        sides.column,
        "its µs",
        sides.rival,
        "its µs",
        sides.ratio,
        "outcome (max errors, if far apart)",
    ];
    let table = Table::of(columns, beside.problems.iter().map(row));
    let mut blocks = vec![Block::section("Against peers")];
    let whose = whose("Interleaved (A B B A) in", &beside.origin);
    let fast = beside.fast.as_ref().map(|fast| fast_p(fast, sides.ours));
    let fast = fast.unwrap_or_default();
    if let Some(score) = ladder::score(&report.known) {
        blocks.push(Block::Paragraph(score.plain(whose).plain(fast)));
    }
    blocks.push(Block::Table(table));
    blocks
}

/// ` How the committed record (NVIDIA H200).`, ` STALE: …`; nothing of the run's own.
fn whose(how: &str, origin: &Origin) -> String {
    match origin {
        Origin::Run => String::new(),
        Origin::Committed { record, gpu } => {
            format!(" {how} the committed record {record} ({gpu}).")
        }
        Origin::Stale { record, gpu, why } => format!(" STALE: from {record} ({gpu}): {why}."),
    }
}

/// Device time of ours against the sequence length, and how much of the rate of a matrix product that is.
pub fn growth(report: &Report<'_>) -> Vec<Block> {
    let Some(peers::Growth { origin, rows }) = peers::growth(&report.known) else {
        return Vec::new();
    };
    let shape = rows[0].0;
    let lengths = distinct(rows.iter().map(|(shape, _)| shape.seq_kv));
    let dims = distinct(rows.iter().map(|(shape, _)| shape.head_dim));
    let at = |dim, length| {
        rows.iter()
            .find(|(shape, _)| (shape.head_dim, shape.seq_kv) == (dim, length))
            .map(|(_, row)| *row)
    };
    let share = |row: &Row| 100.0 * row.value(Metric::PeakShare).unwrap_or(f64::NAN);
    let line = |dim: &usize| {
        let cell = |length: &usize| {
            or_missing(
                at(*dim, *length)
                    .map(|row| us(best::p50(row)).noted(format!("{:.0} %", share(row)))),
                "not timed",
            )
        };
        let mut cells = row![format!("head_dim {dim}")];
        cells.extend(lengths.iter().map(cell));
        cells
    };
    let points: Vec<String> = lengths.iter().map(|length| length.to_string()).collect();
    let columns = ["µs (of the product)".to_string()]
        .into_iter()
        .chain(points.clone());
    let shares = |dim: &usize| {
        lengths
            .iter()
            .filter_map(|length| at(*dim, *length).map(share))
            .collect()
    };
    let dims_in_words = joined(dims.iter().map(|dim| format!("head_dim {dim}")), ", ");
    let chart = Chart {
        title: format!("{dims_in_words}: % of the matrix product's rate"),
        x_axis: "sequence length".into(),
        y_axis: "%".into(),
        y_end: 100.0,
        points,
        lines: dims.iter().map(shares).collect(),
    };
    let about = format!(
        "Our fastest variant alone, {} query rows in {} heads, f16, full mask: device time by sequence length, and its rate as a \
         share of what a product of 8192 × 8192 halves reached in the same session.",
        shape.batch * shape.seq_q,
        shape.heads_q
    );
    vec![
        Block::section("Growth with the sequence length"),
        Block::paragraph(about + &whose("Of", &origin)),
        Block::Table(Table::of(columns, dims.iter().map(line))),
        Block::Chart(chart),
    ]
}

fn outcome(ratio: Figure) -> Cell {
    match peers::outcome(ratio) {
        Outcome::Won => Cell::Verdict(Tone::Good, "won".into()),
        Outcome::Lost => Cell::Verdict(Tone::Bad, "lost".into()),
        Outcome::Undecided => Cell::Verdict(Tone::Open, "undecided".into()),
    }
}

/// The largest errors against FP64 of ours and theirs, where theirs is ten times ours: in the same precision they differ by up to 4.
fn coarser(ours: &Row, theirs: &Row) -> Option<Text> {
    let error = |row: &Row| row.value(Metric::MaxError).unwrap_or(f64::NAN);
    let shown = |row: &Row| of(Some(row), Metric::MaxError).shown();
    let text = || shown(ours).plain(" / ").text(shown(theirs));
    (error(theirs) >= 10.0 * error(ours)).then(text)
}

/// KernelBench's fast_p, in words.
fn fast_p(fast: &FastP, ours: &str) -> String {
    let words = fast.faster.iter().map(|(p, n)| match p {
        1.0 => format!("faster on {n}"),
        p => format!("more than {p} times as fast on {n}"),
    });
    let words = joined(words, ", ");
    format!(
        " Against PyTorch's default, over the {} f16 problems of the session, {ours} is right and {words} (fast_p of KernelBench).",
        fast.of
    )
}

fn since(report: &Report<'_>) -> Vec<Block> {
    let Some(since) = &report.since else {
        return Vec::new();
    };
    let mut worse: Vec<&Difference> = since.worse().collect();
    by_weight(&mut worse, is_candidate(&report.known));
    let shown = &worse[..worse.len().min(MOST_CHANGES)];
    let hidden = worse.len() - shown.len();
    let rest = counts(
        since
            .differences
            .iter()
            .filter(|d| d.change != Change::Worse),
    );
    let more = if hidden > 0 {
        format!("{hidden} more worse, ")
    } else {
        String::new()
    };
    let (lines, order) = if shown.is_empty() {
        (Block::paragraph("Nothing is worse."), String::new())
    } else {
        let caveats = report
            .known
            .record()
            .and_then(|record| caveats(&worse, &since.record, record))
            .map(|caveats| format!("{caveats} "))
            .unwrap_or_default();
        (
            Block::Table(changes(shown)),
            format!("Best and default variants stand first. {caveats}"),
        )
    };
    let rest = words(&format!(
        "{order}Besides: {more}{rest}. `compare show changes` lists them; `compare diff BASE NEW` judges any two records."
    ));
    vec![
        Block::section(format!("What changed since {}", since.name)),
        lines,
        Block::Paragraph(rest),
    ]
}

/// What is not kept in full; what is as counts.
pub fn claims(report: &Report<'_>) -> Vec<Block> {
    if report.claims.is_empty() {
        return Vec::new();
    }
    // Whether a claim is kept, and by another version of the kernel.
    let kept_by = |of: &&Claimed| match &of.status {
        Status::Judged { origin, finding } if finding.verdict == Judgement::Pass => {
            Some(origin.is_stale())
        }
        _ => None,
    };
    let all = || report.claims.iter();
    // Those that fail first, then those of the newest stages: a reviewer knows the others.
    let mut others: Vec<&Claimed> = all().rev().filter(|of| kept_by(of).is_none()).collect();
    let fails = |of: &Claimed| matches!(&of.status, Status::Judged { finding, .. } if finding.verdict == Judgement::Fail);
    others.sort_by_key(|of| !fails(of));
    let (mut rows, mut unmeasured, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    for of in others {
        match &of.status {
            Status::NoData { reason } => {
                unmeasured.push((reason, of));
                continue;
            }
            Status::Negative { record, reason, .. } => reasons.push((record, reason)),
            _ => {}
        }
        let (verdict, measured, _) = claimed(of);
        rows.push(row![of.title(), verdict, clip(&measured, 180)]);
    }
    let table = |rows: &[Vec<Cell>]| {
        Block::Table(Table::of(["claim", "verdict", "measured"], rows.to_vec()))
    };
    let mut blocks = vec![Block::section("Claims")];
    blocks.extend(first_of(&rows, MOST_CLAIMS, table, "compare show claims"));
    let negative = distinct(reasons).into_iter().map(|(record, reason)| {
        let why = format!("NEGATIVE (refuted, and recorded so) by {record}: {reason}");
        line(why, 600)
    });
    let unmeasured = grouped(unmeasured).into_iter().map(|(why, claims)| {
        let claims = count(claims.len(), "claim", "claims");
        line(format!("NO DATA for {claims}: {why}"), 300)
    });
    let kept = [
        (false, "Kept"),
        (true, "STALE, and kept by another version"),
    ]
    .map(|(stale, title)| {
        let claims = all().filter(|of| kept_by(of) == Some(stale));
        let stages = per_stage(&report.known, claims.map(|of| &*of.stage))?;
        Some(words(&format!(
            "{title}: {stages} (`compare show claims`)."
        )))
    });
    blocks.push(Block::Bullets(
        negative
            .chain(unmeasured)
            .chain(kept.into_iter().flatten())
            .collect(),
    ));
    blocks
}

fn rest(report: &Report<'_>) -> [Block; 2] {
    let stage = report
        .known
        .stages
        .last()
        .map_or("STAGE", |stage| &stage.id);
    let of_stage = format!("--stage {stage}");
    let commands = [
        (&*of_stage, "all of one stage"),
        ("gates", "every variant, its gates and largest errors"),
        (
            "latencies peers",
            "device times by problem, and every peer beside them",
        ),
        (
            "resources counters profile",
            "what ptxas, the emulator and ncu say of each variant",
        ),
        ("claims changes", "with the figures that they are judged by"),
        (
            "self-test sanitizer",
            "what the gates kill, and what compute-sanitizer saw",
        ),
        (
            "built thresholds",
            "compilers and flags, and what each gate demands",
        ),
    ];
    let line = |(flags, what)| {
        Text::default()
            .code(format!("compare show {flags}"))
            .plain(format!(": {what}"))
    };
    let text = Text::from("Words are explained in ").link("docs/glossary.md", "docs/glossary.md");
    let text = text
        .plain(", rows, metrics and gates in ")
        .link("docs/rows.md", "docs/rows.md")
        .plain(".");
    [Block::bullets(commands.map(line)), Block::Paragraph(text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, Named, verdict};
    use crate::page::{markdown, terminal};
    use crate::pages::testing::{BEST, OTHER, mission, record, row};
    use crate::record::{On, StageMeta, Subject};
    use crate::testing::{MINE, candidate, committed};
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
        insta::assert_snapshot!(markdown::markdown(&document(&of(stages, &records), &[])), @r##"
# COMPARE

**PASS: 3 variants are green; 2 worse since 1**

- gates: 3 of 3 variants green
- claims: 1 kept
- since `1`: REGRESSION, 2 worse, 33 the same

## What to do first

- Look at 2 regressions since 1.

The committed record `2`: tier T1, 120 cases on the GPU; NVIDIA H200 (sm_90, 132 SMs, driver 580); linux x86_64; commit 25f6c2b1d61c.

## The ladder

| stage | best variant | gates | p50 µs | vs previous | vs stage0 | vs fastest peer | registers, occupancy |
|---|---|---|---:|---:|---:|---:|---|
| stage0-scalar | scalar-32x64 | GREEN | 10.00 | – | – | – | 128, 25 % |
| stage1-mma | mma-32x64 | GREEN | 5.500 | 1.82x (−45 %) | 1.82x (−45 %) | 1.50x | 128, 25 % |

Device time of one launch in a CUDA graph: mission (1x8x512x64), f16 or the type named, full mask, warm L2. Ratios are base / new of medians in one record, the newest that has both; registers and occupancy are of that type's instance of head_dim 64. Latencies are from the committed record 2 (NVIDIA H200).

## Against peers

**Our fastest stage is ahead of the fastest peer on 1 of 2 problems and behind on 1**: from 0.80x (long f16 full) to 1.50x (mission f16 full). Interleaved (A B B A) in the committed record 2 (NVIDIA H200). Against PyTorch's default, over the 2 f16 problems of the session, ours is right and faster on 1, more than 1.5 times as fast on 0, more than 2 times as fast on 0 (fast_p of KernelBench).

| problem | our fastest | its µs | fastest peer | its µs | its / ours | outcome (max errors, if far apart) |
|---|---|---:|---|---:|---:|---|
| mission f16 full | stage1-mma/mma-32x64 | 5.000 | torch-default | 7.500 | 1.50x [1.49, 1.51] | won (1.0e-4 / 2.0e-2) |
| long f16 full | stage1-mma/mma-32x64 | 30.00 | torch-default | 24.00 | 0.80x [0.79, 0.81] | lost |

## What changed since 1

| where | what | was → is | base / new |
|---|---|---|---:|
| stage1/mma-32x64 | p50 on mission f16 full | 5.000 µs → 5.500 µs | 0.91x [0.91, 0.91] |
| stage1/mma-64x64 | p50 on mission f16 full | 6.000 µs → 7.000 µs | 0.86x [0.86, 0.86] |

Best and default variants stand first. 2 latencies are of kernels that have not changed: look at the machine and the harness. Besides: 33 the same. `compare show changes` lists them; `compare diff BASE NEW` judges any two records.

## Claims

- Kept: stage1-mma 1 (`compare show claims`).

<details><summary>1 that a record may lack</summary>

- registers, spills, occupancy and GPU code: nvcc was not found

</details>

## Self-test

Fault injection and mutation testing (S1): 1 of 1 planted faults are killed by a gate.

## The rest

- `compare show --stage stage1-mma`: all of one stage
- `compare show gates`: every variant, its gates and largest errors
- `compare show latencies peers`: device times by problem, and every peer beside them
- `compare show resources counters profile`: what ptxas, the emulator and ncu say of each variant
- `compare show claims changes`: with the figures that they are judged by
- `compare show self-test sanitizer`: what the gates kill, and what compute-sanitizer saw
- `compare show built thresholds`: compilers and flags, and what each gate demands

Words are explained in [docs/glossary.md](docs/glossary.md), rows, metrics and gates in [docs/rows.md](docs/rows.md).
"##);
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
            let text = markdown::markdown(&document(&report, &many_candidates()));
            let (bytes, lines) = (text.len(), text.lines().count());
            assert!(
                bytes <= 20 * 1024 && lines <= 200,
                "{} stages: {bytes} bytes, {lines} lines",
                stages.len()
            );
            let text = terminal::terminal(&document(&report, &many_candidates()), terminal::WIDTH);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }

    #[test]
    fn without_a_record_it_says_so() {
        let stages = record().meta.stages;
        let text = markdown::markdown(&document(&of(&stages, &[]), &[]));
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
        let text = markdown::markdown(&document(&of(&stages, &records), &many_candidates()));
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

    /// More than are shown, each with more problems than are.
    fn many_candidates() -> Vec<Named> {
        let named = |of: usize| {
            let mut record = candidate().on_gpu(&format!("NVIDIA H20{of}"));
            for shape in ["long", "stretch", "wide", "big", "big_wide"] {
                let rivals = [
                    ("stage8-overlap/overlap-lazy-128x128", 8.0, true),
                    ("torch-default", 16.0, true),
                ];
                record = record.beside(MINE, shape, 10.0, &rivals);
            }
            (format!("20261122T23173{of}Z-nvidia-h20{of}"), record)
        };
        (0..6).map(named).collect()
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
