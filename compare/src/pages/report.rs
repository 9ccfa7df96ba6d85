//! COMPARE.md: what decides, in at most 20 KB.

use super::{
    WORDS, commit, first_lines, first_of, ladder, noted, sections, self_test, text, times, us,
};
use crate::document::{Block, Cell, Table, Text, row};
use crate::judge::best;
use crate::judge::choice::Regret;
use crate::judge::claims::Claimed;
use crate::judge::list::{count, distinct, grouped, joined, tallied};
use crate::judge::peers::{self, Problem};
use crate::judge::state::Failure;
use crate::judge::verdict::{Report, counts};
use crate::table::session::Progress;
use crate::table::{On, Row, Session, Source};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::Kind;
use common::reference;
use common::timing::Change;
use common::verdict::Verdict as Judgement;

/// The most lines of each kind; a command shows the rest.
const MOST_FAILURES: usize = 8;
const MOST_CLAIMS: usize = 6;
const MOST_MISSING: usize = 5;

/// Of one GPU model, and of the `others` how often ours is faster than the fastest peer.
pub fn document(report: &Report<'_>, others: &[Report<'_>]) -> Vec<Block> {
    let known = &report.known;
    let titled = |title: &str, report: &Report<'_>| match report.known.gpu() {
        Some(gpu) => format!("{title}, {gpu}"),
        None => title.to_string(),
    };
    let origin = known
        .session()
        .map(|session| Block::paragraph(origin(report, session)));
    let elsewhere = others.iter().map(|of| {
        let score = ladder::score(&of.known).map(Block::Paragraph);
        (titled("Against peers", of), Vec::from_iter(score))
    });
    let first = [Block::bullets(report.overall().actions)];
    // Only the committed page is beside the stages.
    let table = match known.run {
        None => ladder::linked(report),
        Some(_) => ladder::ladder(report),
    };
    let mut ladder = super::some(table);
    ladder.extend(ladder::about(report));
    let tested = self_test::summary(known.table.by(Source::SelfTest));
    let before = [
        (
            "What to do first".into(),
            first.into_iter().chain(origin).collect(),
        ),
        ("Gates that fail".into(), failures(report)),
        (
            "Missing data that is required".into(),
            missing(report, true),
        ),
        (titled("The ladder", report), ladder),
        (titled("Against peers", report), against_peers(report)),
    ];
    let after = [
        ("Claims".into(), claims(report)),
        (
            "Missing data that is optional".into(),
            missing(report, false),
        ),
        ("Unsupported on this device".into(), refused(report)),
        ("Self-test".into(), tested.into_iter().collect()),
        ("More".into(), more(report)),
    ];
    let sections = sections(
        Block::section,
        before.into_iter().chain(elsewhere).chain(after),
    );
    let head = vec![
        Block::title("COMPARE"),
        Block::strong(verdict(report)),
        Block::Bullets(summary(report)),
    ];
    [head, sections].concat()
}

/// A PASS that does not hide a regression.
pub fn verdict(report: &Report<'_>) -> String {
    let worse = report
        .regressed()
        .map(|(worse, since)| format!("; {worse} worse since {since}"));
    format!("{}{}", report.overall(), worse.unwrap_or_default())
}

/// Counts of variants, claims and changes, apart from each other.
pub fn summary(report: &Report<'_>) -> Vec<Text> {
    let states = report.states.iter().map(|(_, state)| super::word(state));
    let claims = report.claims.iter().map(super::standing);
    let claims = Some(tallied(claims, &WORDS)).filter(|claims| !claims.is_empty());
    let stale = best::timed(&report.known.table).filter(|row| report.known.is_stale(row));
    let stale = Some(stale.count()).filter(|n| *n > 0).map(|n| {
        let latencies = count(n, "latency", "latencies");
        format!("STALE, measured on kernels that have changed since: {latencies}")
    });
    let since = report.since.as_ref();
    let since = since.map(|(since, changes)| format!("since `{since}`: {}", counts(changes)));
    let regret = Regret::known(&report.known.table).map(|regret| regret.to_string());
    let lines = [
        Some(format!("variants: {}", tallied(states, &WORDS))),
        claims.map(|claims| format!("claims: {claims}")),
        sampled(report),
        regret,
        stale,
        since,
    ];
    lines.into_iter().flatten().map(Text::from).collect()
}

/// Of a run, the problems of which a part of the rows is judged, and how large that is.
fn sampled(report: &Report<'_>) -> Option<String> {
    report.known.run?;
    let place = |row: &'_ Row| match &row.on {
        On::Case(place, _) | On::Problem(place) => Some(place.clone()),
        _ => None,
    };
    let places = distinct(report.known.table.rows().filter_map(place));
    let parts = places.iter().filter_map(|place| {
        let (rows, all) = reference::sample(&place.problem()?)?;
        Some(format!("{place} ({rows} of {all})"))
    });
    let parts = joined(parts, ", ");
    let most = reference::MAX_FULL_SCORES >> 20;
    let line = format!(
        "rows sampled, since a problem has more than {most} Mi scores and its FP64 reference would take minutes: {parts}"
    );
    (!parts.is_empty()).then_some(line)
}

fn origin(report: &Report<'_>, session: &Session) -> String {
    let kind = match report.known.run {
        Some(_) => "This run",
        None => "The newest session of the committed table",
    };
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
        "{kind}: `{}`, tier {}{scope}, {cases} cases {backend}{device}; {}; {}; {}.",
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
        format!("FAIL {gate} of {subject}: {reason}").into()
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
    let stages = report.known.stages.iter();
    let refused = stages.flat_map(|stage| {
        let refused = stage.refused.iter();
        refused.map(|(variant, why)| format!("{}/{variant}: {why}", stage.id))
    });
    super::list(refused)
}

/// A table for each kind of problem.
fn against_peers(report: &Report<'_>) -> Vec<Block> {
    let known = &report.known;
    let problems = peers::problems(known);
    let row = |problem: &Problem<'_>| {
        let fastest = problem.fastest.map(|(peer, over)| {
            let ratio = over.estimate(Metric::SpeedupP50);
            let (ratio, open) = match peers::outcome(ratio) {
                // All of its interval is above 1.
                Change::Faster => (times(ratio.value, 2), None),
                other => (times(ratio, 2), Some(peers::word(other))),
            };
            let stale = known.is_stale(problem.ours).then_some("STALE");
            let notes = joined(open.into_iter().chain(stale), ", ");
            let ratio = noted(ratio, Some(&*notes).filter(|notes| !notes.is_empty()));
            [text(&peer.subject), us(best::p50(peer)), ratio]
        });
        let [peer, time, ratio] = fastest.unwrap_or([const { Cell::Missing }; 3]);
        row! {
            "problem" => text(problem.place),
            "our fastest" => ladder::short(problem.ours.subject.stage()),
            "µs" => us(best::p50(problem.ours)),
            "fastest peer" => peer,
            "µs" => time,
            "peer / ours" => ratio,
        }
    };
    let about = ladder::score(known).map(|score| {
        let sessions = problems.iter().map(|problem| format!("`{}`", problem.ours.session));
        let sessions = joined(distinct(sessions), ", ");
        let rest = format!(
            "Interleaved (A B B A) in sessions {sessions}. Every variant and peer, with intervals and errors: `compare show peers`."
        );
        [Block::Paragraph(score), Block::paragraph(rest)]
    });
    let mut kinds = grouped(problems.iter().map(|problem| (kind(problem), problem)));
    kinds.sort_by_key(|(kind, _)| *kind);
    let tables = kinds.into_iter().flat_map(|(kind, problems)| {
        let table = Table::of(problems.into_iter().map(row));
        [Block::subsection(kind.name()), Block::Table(table)]
    });
    about.into_iter().flatten().chain(tables).collect()
}

pub fn kind(problem: &Problem<'_>) -> Kind {
    let shape = problem.place.extents();
    let named = shape.and_then(|shape| shape.named());
    named.map_or(Kind::Other, |named| named.kind)
}

/// Claims that do not hold. Why the refuted ones failed is long.
fn claims(report: &Report<'_>) -> Vec<Block> {
    let holds = [Some(Judgement::Pass), Some(Judgement::NoData)];
    let open = report.claims.iter().rev();
    let mut open: Vec<&Claimed> = open
        .filter(|claim| !holds.contains(&claim.verdict()))
        .collect();
    // Failures, then the newest stages: reviewers know the others.
    open.sort_by_key(|claim| claim.verdict() != Some(Judgement::Fail));
    let table = |open: &[&Claimed]| Block::Table(super::claims(open, |_| vec![]));
    let how = "compare show claims";
    let why = format!("Each with its figures, and why a NEGATIVE one failed: `{how}`.");
    let why = (!report.claims.is_empty()).then(|| Block::paragraph(why));
    let mut blocks = first_of(&open, MOST_CLAIMS, table, how);
    blocks.extend(why);
    blocks
}

fn more(report: &Report<'_>) -> Vec<Block> {
    let stage = report.known.stages.last();
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
