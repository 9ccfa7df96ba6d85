//! COMPARE.md: what decides, in at most 20 KB.

use super::{
    STANDINGS, STATES, commit, counted, first_lines, first_of, ladder, noted, or_empty, sections,
    self_test, text, times, us,
};
use crate::document::{Block, Cell, Table, TableRow, Text, row};
use crate::judge::best;
use crate::judge::choice::Regret;
use crate::judge::claims::Claimed;
use crate::judge::gaps;
use crate::judge::list::{count, distinct, grouped, joined, tallied};
use crate::judge::peers::{self, Problem, Rival};
use crate::judge::state::{Failure, State};
use crate::judge::verdict::{NOTHING, Report, counts};
use crate::table::session::{Gpu, Progress};
use crate::table::{Place, Relation, Row, Session};
use common::device::BackendKind;
use common::metric::Metric;
use common::reference;
use common::timing::{Change, Regime};
use common::verdict::Verdict as Judgement;

/// The most lines of each kind; a command shows the rest.
const MOST_FAILURES: usize = 8;
const MOST_CLAIMS: usize = 8;
const MOST_MISSING: usize = 5;

/// Why a claim is refuted, in its first sentence; what is longer is for `compare show claims`.
const LONGEST_CLAUSE: usize = 240;

/// Of one GPU model, and of the `others` how often ours is faster than the fastest peer.
pub fn document(report: &Report<'_>, others: &[Report<'_>]) -> Vec<Block> {
    let view = &report.view;
    let titled = |title: &str, report: &Report<'_>| match report.view.gpu() {
        Some(gpu) => format!("{title}, {gpu}"),
        None => title.to_string(),
    };
    let current = others.iter().filter(|of| !is_wholly_stale(of));
    let elsewhere = current.map(|of| {
        let score = ladder::score(&of.view).map(Block::strong);
        (titled("Against peers", of), Vec::from_iter(score))
    });
    let ladder = match view.run.map(|run| run.backend) {
        Some(BackendKind::Emulated) => counted::blocks(report),
        Some(BackendKind::Cuda) | None => ladder::tables(report, |title| Block::subsection(title)),
    };
    let before = [
        ("Next".into(), vec![Block::bullets(next(report, others))]),
        ("Gates that fail".into(), failures(report)),
        (
            "Missing data that is required".into(),
            missing(report, true),
        ),
        (titled("The ladder", report), ladder),
        (titled("Against peers", report), against_peers(report)),
    ];
    let after = [
        ("Claims that do not hold".into(), claims(report)),
        (
            "Not measured, and not required".into(),
            missing(report, false),
        ),
        ("Unsupported on this device".into(), refused(report)),
        ("More".into(), more(report)),
    ];
    let sections = sections(
        Block::section,
        before.into_iter().chain(elsewhere).chain(after),
    );
    let mut lines = summary(report);
    lines.extend(old(report, others).map(|line| labelled("old", line)));
    lines.extend(view.session().map(|session| {
        let origin = match view.run {
            Some(_) => origin(session),
            None => measured(report),
        };
        labelled("measured", origin)
    }));
    let head = vec![
        Block::title("COMPARE"),
        Block::strong(verdict(report)),
        Block::Bullets(lines),
    ];
    [head, sections].concat()
}

/// A PASS that does not hide a regression.
pub fn verdict(report: &Report<'_>) -> String {
    let worse = report
        .regressed()
        .map(|regressed| format!("; {} worse since {}", regressed.count, regressed.session));
    format!("{}{}", report.overall(), worse.unwrap_or_default())
}

/// Of a run, the problems of which a part of the rows is judged, and how large that is.
fn sampled(report: &Report<'_>) -> Option<String> {
    report.view.run?;
    let place = |row: &Row| match row.place() {
        Place::Problem(problem) => Some(problem.clone()),
        Place::Case(case) => Some(case.problem.clone()),
        _ => None,
    };
    let places = distinct(report.view.table.rows().filter_map(place));
    let parts = places.iter().filter_map(|place| {
        let (rows, all) = reference::sample(&place.problem()?)?;
        Some(format!("{place} ({rows} of {all})"))
    });
    let parts = joined(parts, ", ");
    let most = reference::MAX_FULL_SCORES >> 20;
    let line = format!(
        "a problem has more than {most} Mi scores and its FP64 reference would take minutes: {parts}"
    );
    (!parts.is_empty()).then_some(line)
}

fn labelled(label: &str, line: String) -> Text {
    let Text(spans) = Text::from(format!(": {line}"));
    let Text(label) = Text::default().strong(label);
    Text([label, spans].concat())
}

/// What is correct, what was claimed, what was won, and what the library chooses: each counted by itself.
pub fn summary(report: &Report<'_>) -> Vec<Text> {
    let of_claims = |is_of_speed: bool| {
        // A selection says nothing of claims that it does not measure.
        let claims = report.claims.iter().filter(|of| {
            let counts = report.view.is_whole() || of.is_of_run;
            counts && of.claim.is_of_speed() == is_of_speed
        });
        stood(claims)
    };
    let since = report.since.as_ref();
    let since = since.map(|since| format!("since `{}`: {}", since.session, counts(&since.changes)));
    let is_of_run = |row: &Row| report.view.is_reported(row);
    let has_peers = report.view.table.peer_times().any(is_of_run);
    let score = ladder::score(&report.view).filter(|_| has_peers);
    let lines = [
        ("correct", correct(report)),
        ("speed claims", of_claims(true)),
        ("counter claims", of_claims(false)),
        ("rows sampled", sampled(report)),
        ("against peers", score),
        (
            "library choice",
            Regret::reported(&report.view).map(|regret| regret.to_string()),
        ),
        ("changes", since),
    ];
    let lines = lines.into_iter();
    lines
        .filter_map(|(label, line)| Some(labelled(label, line?)))
        .collect()
}

/// `54 of 54 variants pass every gate; self-test: …`
fn correct(report: &Report<'_>) -> Option<String> {
    let ran = report.states.iter().map(|(_, state)| state);
    let ran = ran.filter(|state| !matches!(state, State::NotRun(_)));
    let words: Vec<&str> = ran.map(super::word).collect();
    let passed = words.iter().filter(|word| **word == "pass").count();
    let others = words.iter().filter(|word| **word != "pass");
    let others = tallied(others.copied(), &STATES);
    let others = Some(others).filter(|others| !others.is_empty());
    let tested = self_test::counts(report.view.table.self_tests());
    let passed = format!(
        "{passed} of {} every gate",
        count(words.len(), "variant passes", "variants pass")
    );
    let tested = tested.map(|tested| format!("self-test: {tested}"));
    let parts = [Some(passed).filter(|_| !words.is_empty()), others, tested];
    let line = joined(parts.into_iter().flatten(), "; ");
    (!line.is_empty()).then_some(line)
}

/// `113 of 145 hold, 20 refuted, 8 undecided, 4 not measured`
pub fn stood<'a>(claims: impl Iterator<Item = &'a Claimed>) -> Option<String> {
    let words = Vec::from_iter(claims.map(super::standing));
    let (held, others): (Vec<&str>, Vec<&str>) =
        words.iter().copied().partition(|word| *word == "holds");
    let others = tallied(others, &STANDINGS);
    let others = Some(others).filter(|others| !others.is_empty());
    let held = format!("{} of {} hold", held.len(), words.len());
    (!words.is_empty()).then(|| joined([held].into_iter().chain(others), ", "))
}

/// `9 figures of stage6, stage9; all 2,101 of NVIDIA H200`
fn old(report: &Report<'_>, others: &[Report<'_>]) -> Option<String> {
    let stale = gaps::stale(&report.view);
    let stages = report.view.stages.iter().map(|stage| &*stage.id);
    let stages = stages.filter(|id| stale.iter().any(|row| row.subject.stage() == *id));
    let stages = Vec::from_iter(stages.map(gaps::number));
    let own = (!stale.is_empty() && report.view.run.is_none()).then(|| {
        let figures = count(stale.len(), "figure is", "figures are");
        format!(
            "{figures} stale, of kernels that have changed since: stages {}",
            joined(stages, ", ")
        )
    });
    let others = others.iter().filter_map(|of| {
        let (stale, all) = (gaps::stale(&of.view).len(), gaps::figures(&of.view).count());
        let gpu = of.view.gpu().unwrap_or("another GPU");
        match is_wholly_stale(of) {
            true => Some(format!("everything of the {gpu}")),
            false => (stale > 0).then(|| format!("{stale} of {all} figures of the {gpu}")),
        }
    });
    let lines = joined(own.into_iter().chain(others), "; ");
    (!lines.is_empty()).then_some(lines)
}

/// Whether no kernel of ours is as it was measured on that GPU.
fn is_wholly_stale(report: &Report<'_>) -> bool {
    let view = &report.view;
    let mut timed = view.table.latencies().peekable();
    timed.peek().is_some() && timed.all(|row| view.is_stale(row))
}

/// What to do, as commands: of the verdict, of empty cells, and of other GPU models.
fn next(report: &Report<'_>, others: &[Report<'_>]) -> Vec<String> {
    let mut actions = report.overall().actions;
    actions
        .extend(ladder::gap(report).map(|how| format!("Fill the ladder's empty cells: `{how}`.")));
    let elsewhere = others.iter().filter(|of| is_wholly_stale(of));
    actions.extend(elsewhere.map(|of| {
        let gpu = of.view.gpu().unwrap_or("other GPU");
        format!("Measure everything again on an {gpu}: `compare --full`, `compare sanitize`, `compare peers`.")
    }));
    if actions.len() > 1 {
        actions.retain(|action| action != NOTHING);
    }
    actions
}

/// The GPU, and the sessions that the figures of its table are from.
fn measured(report: &Report<'_>) -> String {
    let figures = gaps::figures(&report.view).map(|row| &*row.session);
    let mut sessions = distinct(figures);
    sessions.sort_unstable();
    let day = |session: &str| match session.get(..8) {
        Some(day) if day.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}-{}-{}", &day[..4], &day[4..6], &day[6..])
        }
        _ => session.to_string(),
    };
    let days = distinct(sessions.iter().map(|session| day(session)));
    let days = match &days[..] {
        [] => String::new(),
        [day] => format!(" of {day}"),
        [first, .., last] => format!(" of {first} to {last}"),
    };
    let gpu = report.view.on_gpu().map(|session| &session.machine.gpu);
    let gpu = gpu.map_or("no GPU".to_string(), Gpu::to_string);
    format!(
        "{gpu}; {}{days}",
        count(sessions.len(), "session", "sessions")
    )
}

fn origin(session: &Session) -> String {
    let scope = match session.scope.to_string() {
        whole if whole.is_empty() => whole,
        selected => format!(" with `{selected}`"),
    };
    let cases = match session.progress {
        Progress::Complete { cases } => cases,
        Progress::Partial { finished, .. } => finished,
    };
    let backend = match session.backend {
        BackendKind::Cuda => "on the GPU",
        BackendKind::Emulated => "in the emulator, which is functional and not a timer",
    };
    let device = session.device.map_or(String::new(), |device| {
        format!(", limited to what {device} offers")
    });
    format!(
        "this run, `{}`, tier {}{scope}, {cases} cases {backend}{device}; {}; {}; {}",
        session.name,
        session.tier,
        session.machine.gpu,
        session.machine.platform,
        commit(&session.git)
    )
}

pub fn failures(report: &Report<'_>) -> Vec<Block> {
    let line = |failure: &Failure| {
        let Failure {
            gate,
            subject,
            reason,
        } = failure;
        format!("fail {gate} of {subject}: {reason}").into()
    };
    let lines = report.failures.iter().map(line);
    first_lines(lines, MOST_FAILURES, "compare show gates")
}

pub fn missing(report: &Report<'_>, required: bool) -> Vec<Block> {
    let of_kind = report
        .missing
        .iter()
        .filter(|missing| missing.required == required);
    let lines = of_kind.map(|missing| missing.to_string().into());
    first_lines(lines, MOST_MISSING, "compare show missing")
}

fn refused(report: &Report<'_>) -> Vec<Block> {
    let stages = report.view.stages.iter();
    let refused = stages.flat_map(|stage| {
        let refused = stage.refused.iter();
        refused.map(|(variant, why)| format!("{}/{variant}: {why}", stage.id))
    });
    super::list(refused)
}

/// The columns of peers: ours to read, and who is meant for 16-bit types and for FP8.
const PEERS: [(&str, [&str; 2]); 4] = [
    ("FA4", ["flash-attn-4", "flash-attn-4-fp8"]),
    ("FA3", ["flash-attn-3", "flash-attn-3-fp8"]),
    ("cuDNN", ["torch-cudnn", "cudnn-fp8"]),
    ("PyTorch", [peers::DEFAULT, "torch-fp8"]),
];

/// A table for each kind of problem. What was timed beside peers is of one regime: all arms of a problem in turn.
fn against_peers(report: &Report<'_>) -> Vec<Block> {
    let view = &report.view;
    let mut problems = peers::problems(view);
    problems.retain(|problem| !view.is_stale(problem.ours));
    let sessions = problems
        .iter()
        .map(|problem| format!("`{}`", problem.ours.session));
    let sessions = joined(distinct(sessions), ", ");
    let library = match report.chosen.is_empty() {
        true => "",
        false => {
            "\"library\" is what the packaged library chooses by itself, where that was timed (else the cell is empty), ours the best of all variants by hindsight. "
        }
    };
    let is_sustained = |problem: &Problem<'_>| problem.ours.regime() == Regime::Sustained;
    let sustained = match problems.iter().any(is_sustained) {
        true => {
            " A problem that is sustained is at the power limit: ours, the library's choice and the fastest peer take turns of a second, \
             and the others, which were timed in bursts alone, have no figure here."
        }
        false => "",
    };
    let about = (!problems.is_empty()).then(|| {
        Block::paragraph(format!(
            "Times in µs, of the fastest of ours (stage) and of peers timed in turn beside it (A B B A): a kernel that draws much power \
             borrows the headroom of the others, so that these are not the times of a kernel alone above.{sustained} {library}Every variant \
             and peer, with intervals and errors: `compare show peers`. Sessions {sessions}."
        ))
    });
    let mut kinds = grouped(
        problems
            .iter()
            .map(|problem| (ladder::kind(problem.place), problem)),
    );
    kinds.sort_by_key(|(kind, _)| *kind);
    let tables = kinds.into_iter().flat_map(|(kind, problems)| {
        let table = Table::of(
            problems
                .into_iter()
                .map(|problem| beside_peers(report, problem)),
        );
        [Block::subsection(kind.name()), Block::Table(table.filled())]
    });
    about.into_iter().chain(tables).collect()
}

fn beside_peers(report: &Report<'_>, problem: &Problem<'_>) -> TableRow {
    let view = &report.view;
    let (place, ours) = (problem.place, problem.ours);
    let times_of = |is: &dyn Fn(&Row) -> bool| {
        let time = peers::beside(&view.table, ours, is).map(best::p50);
        or_empty(time.map(us))
    };
    let peer = |(title, names): &(&str, [&str; 2])| {
        let cell = times_of(&|row| names.contains(&row.subject.as_str()));
        (title.to_string(), cell)
    };
    let rate = ladder::rate_of(place, best::p50(ours));
    let chosen = report.chosen.get(place);
    let stage = ladder::short(ours.subject.stage()).trim_start_matches("stage");
    let ours_time = us(best::p50(ours)).noted(stage);
    let first = row! {
        "problem" => text(place),
        "size" => ladder::extents(&place.shape),
        "regime" => or_empty(ladder::regime(ours)),
        "ours (stage)" => ours_time,
        ladder::unit(place) => or_empty(rate.map(|rate| us(rate / 1e12))),
        "library" => times_of(&|row| Some(&row.subject) == chosen),
    };
    let ratio = row! { "best peer / ours" => over_fastest(problem) };
    let peers = PEERS.iter().map(peer).collect();
    [first, peers, ratio].concat()
}

/// The fastest peer's time / ours, with its interval where that is not all above 1, and the peer's name where it has no column.
fn over_fastest(problem: &Problem<'_>) -> Cell {
    let Some(Rival { time: peer, over }) = problem.fastest else {
        return Cell::Empty;
    };
    let ratio = over.estimate(Metric::SpeedupP50);
    let (ratio, open) = match peers::outcome(ratio) {
        Change::Faster => (times(ratio.value, 2), None),
        other => (times(ratio, 2), Some(peers::word(other))),
    };
    let mut columns = PEERS.iter().flat_map(|(_, names)| names);
    let has_column = columns.any(|name| *name == peer.subject.as_str());
    let name = (!has_column).then_some(peer.subject.as_str());
    let notes = joined(open.into_iter().chain(name), ", ");
    noted(ratio, Some(&*notes).filter(|notes| !notes.is_empty()))
}

/// Claims of speed that do not hold, then others: what was claimed, and what was measured.
fn claims(report: &Report<'_>) -> Vec<Block> {
    let holds = [Some(Judgement::Pass), Some(Judgement::NoData)];
    let open = report.claims.iter().rev();
    let open = open.filter(|of| !holds.contains(&of.verdict()) && !of.is_stale);
    let mut open: Vec<&Claimed> = open
        .filter(|of| report.view.is_whole() || of.is_of_run)
        .collect();
    // Failures, then the newest stages: reviewers know the others.
    open.sort_by_key(|claim| claim.verdict() != Some(Judgement::Fail));
    let table =
        |open: &[&Claimed]| Block::Table(Table::of(open.iter().map(|of| claim(of))).filled());
    let how = "compare show claims";
    let mut blocks = first_of(&open, MOST_CLAIMS, table, how);
    let why = format!("Each claim with its figures, and why a refuted one failed: `{how}`.");
    blocks.extend((!report.claims.is_empty()).then(|| Block::paragraph(why)));
    blocks
}

fn claim(of: &Claimed) -> TableRow {
    let claim = &of.claim;
    let (what, claimed, measured) = match &claim.relation {
        Relation::Faster { .. } | Relation::FasterThanPeer { .. } => {
            let over = match &claim.relation {
                Relation::Faster { base, .. } => {
                    format!("{} {}", ladder::short(base.stage), base.family)
                }
                Relation::FasterThanPeer { rival, .. } => rival.to_string(),
                _ => unreachable!("a claim of speed is over somebody"),
            };
            let what = format!(
                "{} {} over {over} on {}",
                ladder::short(&of.stage),
                claim.family,
                claim.place
            );
            (
                what,
                format!("{:.2}x", ladder::at_least(of)),
                super::measured(of),
            )
        }
        _ => (of.title(), String::new(), of.finding.reason.clone().into()),
    };
    let why = of.negative.as_ref();
    let why = why.and_then(|negative| negative.why.split(". ").next());
    let why = why.filter(|why| why.len() <= LONGEST_CLAUSE);
    row! {
        "claim" => what,
        "claimed" => claimed,
        "measured" => measured,
        "verdict" => super::standing(of),
        "why" => or_empty(why),
    }
}

fn more(report: &Report<'_>) -> Vec<Block> {
    let stage = report.view.stages.last();
    let stage = stage.map_or("STAGE", |stage| &stage.id);
    let line = format!(
        "`compare show --stage {stage}` shows a stage, `compare show gates latencies peers` parts of the table; \
         `compare show` lists all parts."
    );
    let text = Text::from("Terms are in ").link("docs/glossary.md", "docs/glossary.md");
    let text = text
        .plain(", rows, metrics and gates in ")
        .link("docs/rows.md", "docs/rows.md")
        .plain(".");
    vec![Block::paragraph(line), Block::Paragraph(text)]
}
