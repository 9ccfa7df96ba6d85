//! COMPARE.md: what decides, in at most 20 KB.

use super::blocks::{Titled, bullets, first_bullets, first_items, sections};
use super::cells::{measured_ratio, noted, or_empty, ratio_cell, short_ratio, text, us_cell};
use super::words::{STANDINGS, STATES, commit, standing, state_word};
use super::{counted, ladder, self_test};
use common::device::BackendKind;
use common::metric::Metric;
use common::reference;
use common::timing::{Change, Regime};
use common::verdict::Verdict;
use document::{Block, Cell, Table, TableRow, Text, row};
use results::judge::best;
use results::judge::claims::{Claimed, Finding};
use results::judge::gaps;
use results::judge::list::{Grouped, count, distinct, grouped, tallied};
use results::judge::peers::{self, Problem, Rival};
use results::judge::regret::Regret;
use results::judge::state::{Failure, State};
use results::judge::verdict::{NOTHING, Report, counts};
use results::table::session::Progress;
use results::table::{Place, Relation, Row, Session};

/// The most lines of each kind; a command shows the rest.
const MAX_FAILURES: usize = 3;
const MAX_CLAIMS: usize = 3;
const MAX_MISSING: usize = 3;

/// The longest first sentence of why a claim is refuted; what is longer is for
/// `compare show claims`.
const MAX_CLAUSE: usize = 240;

/// Returns the page on one GPU model, and of the `others` how often ours is faster than the fastest
/// peer.
pub fn document(report: &Report<'_>, others: &[Report<'_>]) -> Vec<Block> {
    let mut blocks = vec![
        Block::title("COMPARE"),
        Block::strong(verdict(report)),
        Block::Bullets(head_lines(report, others)),
    ];
    let mut parts = vec![
        Titled::new("Next", vec![Block::bullets(next(report, others))]),
        Titled::new("Gates that fail", failures(report)),
        Titled::new("Missing data that is required", missing(report, true)),
        Titled::new(with_gpu("The ladder", report), ladder_blocks(report)),
        Titled::new(with_gpu("Against peers", report), against_peers(report)),
    ];
    for other in others {
        parts.extend(line_on_other(other));
    }
    parts.extend([
        Titled::new("Claims that do not hold", claims(report)),
        Titled::new("Not measured, and not required", missing(report, false)),
        Titled::new("Unsupported on this device", refused(report)),
        Titled::new("More", more(report)),
    ]);
    blocks.extend(sections(Block::section, parts));
    blocks
}

/// Returns how often ours is faster than the fastest peer on another GPU model, and where its report
/// is.
fn line_on_other(other: &Report<'_>) -> Option<Titled> {
    let file = file_of_other(other)?;
    let score = ladder::score(&other.view)?;
    let line = Text::default()
        .strong(score)
        .plain("; its report: ")
        .link(file.clone(), file);
    Some(Titled::new(
        with_gpu("Against peers", other),
        vec![Block::Paragraph(line)],
    ))
}

/// The beginning of the names of reports on GPU models that COMPARE.md is not about.
pub const OTHER: &str = "COMPARE-";

/// Returns the name of the report on a GPU model that COMPARE.md is not about; `None` if all of its
/// figures are of former kernels.
pub fn file_of_other(report: &Report<'_>) -> Option<String> {
    if is_wholly_stale(report) {
        return None;
    }
    let session = report.view.on_gpu()?;
    Some(format!("{OTHER}{}.md", session.machine.name))
}

fn with_gpu(title: &str, report: &Report<'_>) -> String {
    match report.view.gpu() {
        Some(gpu) => format!("{title}, {gpu}"),
        None => title.to_string(),
    }
}

fn ladder_blocks(report: &Report<'_>) -> Vec<Block> {
    match report.view.run.map(|run| run.backend) {
        Some(BackendKind::Emulated) => counted::blocks(report),
        Some(BackendKind::Cuda) | None => ladder::tables(report, Block::subsection),
    }
}

/// Returns the lines below the verdict.
fn head_lines(report: &Report<'_>, others: &[Report<'_>]) -> Vec<Text> {
    let mut lines = summary(report);
    if let Some(line) = stale_line(report, others) {
        lines.push(labelled("old", line));
    }
    if let Some(session) = report.view.session() {
        let origin = if report.view.run.is_some() {
            origin_of_run(session)
        } else {
            origin_of_table(report)
        };
        lines.push(labelled("measured", origin));
    }
    lines
}

/// Returns the verdict; a PASS does not hide a regression.
pub fn verdict(report: &Report<'_>) -> String {
    let mut verdict = report.overall().to_string();
    if let Some(regressed) = report.regressed() {
        verdict += &format!("; {} worse since {}", regressed.count, regressed.session);
    }
    verdict
}

/// Returns the problems of a run of which a part of the rows is judged, and how large that part is.
fn sampled(report: &Report<'_>) -> Option<String> {
    report.view.run?;
    let rows = report.view.table.rows();
    let places = distinct(rows.filter_map(|row| match row.place() {
        Place::Problem(place) => Some(place.clone()),
        Place::Case(case) => Some(case.problem.clone()),
        _ => None,
    }));
    let mut parts = Vec::new();
    for place in places {
        let sample = place
            .problem()
            .and_then(|problem| reference::sample_size(&problem));
        if let Some(size) = sample {
            parts.push(format!("{place} ({} of {})", size.judged, size.all));
        }
    }
    if parts.is_empty() {
        return None;
    }
    Some(format!(
        "a problem has more than {} Mi scores and its FP64 reference would take minutes: {}",
        reference::MAX_FULL_SCORES >> 20,
        parts.join(", ")
    ))
}

fn labelled(label: &str, line: String) -> Text {
    let Text(mut spans) = Text::default().strong(label);
    spans.extend(Text::from(format!(": {line}")).0);
    Text(spans)
}

/// Returns what is correct, what was claimed, what was won, and what the library chooses: each
/// counted by itself.
pub fn summary(report: &Report<'_>) -> Vec<Text> {
    let view = &report.view;
    let has_peers = view.table.peer_times().any(|row| view.is_reported(row));
    let score = if has_peers { ladder::score(view) } else { None };
    let changes = report
        .since
        .as_ref()
        .map(|since| format!("since `{}`: {}", since.session, counts(&since.changes)));
    let regret = Regret::reported(view).map(|regret| regret.to_string());
    let lines = [
        ("correct", correct(report)),
        ("speed claims", claims_that_stand(report, true)),
        ("counter claims", claims_that_stand(report, false)),
        ("rows sampled", sampled(report)),
        ("against peers", score),
        ("library choice", regret),
        ("changes", changes),
    ];
    let mut labelled_lines = Vec::new();
    for (label, line) in lines {
        labelled_lines.extend(line.map(|words| labelled(label, words)));
    }
    labelled_lines
}

fn claims_that_stand(report: &Report<'_>, is_of_speed: bool) -> Option<String> {
    // A selection says nothing about claims that it does not measure.
    let is_whole = report.view.is_whole();
    let measured = report
        .claims
        .iter()
        .filter(|claimed| is_whole || claimed.is_of_run);
    standings(measured.filter(|claimed| claimed.claim.is_of_speed() == is_of_speed))
}

/// Returns `54 of 54 variants pass every gate; self-test: …`.
fn correct(report: &Report<'_>) -> Option<String> {
    let mut passed = 0;
    let mut others = Vec::new();
    for (_, state) in &report.states {
        match state {
            State::NotRun(_) => {}
            State::Green => passed += 1,
            _ => others.push(state_word(state)),
        }
    }
    let all = passed + others.len();
    let mut parts = Vec::new();
    if all > 0 {
        let variants = count(all, "variant passes", "variants pass");
        parts.push(format!("{passed} of {variants} every gate"));
    }
    parts.push(tallied(others, &STATES));
    let self_tests = report.view.table.self_tests();
    let of_these_kernels = self_tests.filter(|row| !report.view.is_stale(row));
    if let Some(tested) = self_test::counts(of_these_kernels) {
        parts.push(format!("self-test: {tested}"));
    }
    parts.retain(|part| !part.is_empty());
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns `113 of 145 hold, 20 refuted, 8 undecided, 4 not measured`.
pub fn standings<'a>(claims: impl Iterator<Item = &'a Claimed>) -> Option<String> {
    let mut held = 0;
    let mut others = Vec::new();
    for claim in claims {
        match standing(claim) {
            "holds" => held += 1,
            word => others.push(word),
        }
    }
    let all = held + others.len();
    if all == 0 {
        return None;
    }
    let mut line = format!("{held} of {all} hold");
    if !others.is_empty() {
        line += ", ";
        line += &tallied(others, &STANDINGS);
    }
    Some(line)
}

/// Returns `9 figures of stage6, stage9; all 2,101 of NVIDIA H200`.
fn stale_line(report: &Report<'_>, others: &[Report<'_>]) -> Option<String> {
    let mut parts = Vec::new();
    if report.view.run.is_none() {
        parts.extend(stale_stages(report));
    }
    for other in others {
        parts.extend(stale_elsewhere(other));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn stale_stages(report: &Report<'_>) -> Option<String> {
    let stale = gaps::stale(&report.view);
    if stale.is_empty() {
        return None;
    }
    let mut stages = Vec::new();
    for stage in report.view.stages {
        if stale.iter().any(|row| row.subject.stage() == stage.id) {
            stages.push(gaps::number(&stage.id));
        }
    }
    Some(format!(
        "{} stale, of former kernels of stages {}",
        count(stale.len(), "figure is", "figures are"),
        stages.join(", ")
    ))
}

fn stale_elsewhere(other: &Report<'_>) -> Option<String> {
    let gpu = other.view.gpu().unwrap_or("another GPU");
    if is_wholly_stale(other) {
        return Some(format!("everything of the {gpu}"));
    }
    let stale = gaps::stale(&other.view).len();
    let all = gaps::figures(&other.view).count();
    (stale > 0).then(|| format!("{stale} of {all} figures of the {gpu}"))
}

/// Whether no kernel of ours is as it was measured on that GPU.
fn is_wholly_stale(report: &Report<'_>) -> bool {
    let view = &report.view;
    let mut timed = view.table.latencies().peekable();
    timed.peek().is_some() && timed.all(|row| view.is_stale(row))
}

/// Returns what to do, as commands: for the verdict, for empty cells, and for other GPU models.
fn next(report: &Report<'_>, others: &[Report<'_>]) -> Vec<String> {
    let mut actions = report.overall().actions;
    if let Some(command) = ladder::gap(report) {
        actions.push(format!("Fill the ladder's empty cells: `{command}`."));
    }
    for other in others.iter().filter(|other| is_wholly_stale(other)) {
        let gpu = other.view.gpu().unwrap_or("other GPU");
        actions.push(format!(
            "Measure everything again on an {gpu}: `compare --full`, `compare sanitize`, \
             `compare peers`."
        ));
    }
    if actions.len() > 1 {
        actions.retain(|action| action != NOTHING);
    }
    actions
}

/// Returns the GPU, and the sessions that the figures of its table are from.
fn origin_of_table(report: &Report<'_>) -> String {
    let mut sessions = distinct(gaps::figures(&report.view).map(|row| &*row.session));
    sessions.sort_unstable();
    let days = distinct(sessions.iter().map(|session| day(session)));
    let period = match &days[..] {
        [] => String::new(),
        [day] => format!(" of {day}"),
        [first, .., last] => format!(" of {first} to {last}"),
    };
    let gpu = match report.view.on_gpu() {
        Some(session) => session.machine.gpu.to_string(),
        None => "no GPU".to_string(),
    };
    let number = count(sessions.len(), "session", "sessions");
    format!("{gpu}; {number}{period}")
}

/// Returns `2026-11-21` for a session whose name begins with that day.
fn day(session: &str) -> String {
    match session.get(..8) {
        Some(day) if day.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{}-{}-{}", &day[..4], &day[4..6], &day[6..])
        }
        _ => session.to_string(),
    }
}

fn origin_of_run(session: &Session) -> String {
    let mut scope = session.scope.to_string();
    if !scope.is_empty() {
        scope = format!(" with `{scope}`");
    }
    let cases = match session.progress {
        Progress::Complete { cases } => cases,
        Progress::Partial { finished, .. } => finished,
    };
    let backend = match session.backend {
        BackendKind::Cuda => "on the GPU",
        BackendKind::Emulated => "in the emulator, which is functional and not a timer",
    };
    let device = match session.device {
        Some(device) => format!(", limited to what {device} offers"),
        None => String::new(),
    };
    format!(
        "this run, `{}`, tier {}{scope}, {cases} cases {backend}{device}; {}; {}; {}",
        session.name,
        session.tier,
        session.machine.gpu,
        session.machine.platform,
        commit(&session.git)
    )
}

/// Returns the gates that fail, the first of them in full.
pub fn failures(report: &Report<'_>) -> Vec<Block> {
    let mut lines = Vec::new();
    for failure in &report.failures {
        let Failure {
            gate,
            subject,
            reason,
        } = failure;
        lines.push(format!("fail {gate} of {subject}: {reason}").into());
    }
    first_bullets(lines, MAX_FAILURES, "compare show gates")
}

/// Returns what is missing and required, or missing and not required.
pub fn missing(report: &Report<'_>, is_required: bool) -> Vec<Block> {
    let lines = report
        .missing
        .iter()
        .filter(|missing| missing.required == is_required)
        .map(|missing| missing.to_string().into());
    first_bullets(lines, MAX_MISSING, "compare show missing")
}

fn refused(report: &Report<'_>) -> Vec<Block> {
    let mut lines = Vec::new();
    for stage in report.view.stages {
        for (variant, why) in &stage.refused {
            lines.push(format!("{}/{variant}: {why}", stage.id));
        }
    }
    bullets(lines)
}

/// A column of peers: one is meant for 16-bit types, the other for FP8.
struct PeerColumn {
    title: &'static str,
    names: [&'static str; 2],
}

const PEERS: [PeerColumn; 4] = [
    PeerColumn {
        title: "FA4",
        names: ["flash-attn-4", "flash-attn-4-fp8"],
    },
    PeerColumn {
        title: "FA3",
        names: ["flash-attn-3", "flash-attn-3-fp8"],
    },
    PeerColumn {
        title: "cuDNN",
        names: ["torch-cudnn", "cudnn-fp8"],
    },
    PeerColumn {
        title: "PyTorch",
        names: [peers::DEFAULT, "torch-fp8"],
    },
];

impl PeerColumn {
    fn has(&self, row: &Row) -> bool {
        self.names.contains(&row.subject.as_str())
    }
}

/// Returns a table for each kind of problem. What was timed beside peers is of one regime: all arms
/// of a problem in turn.
fn against_peers(report: &Report<'_>) -> Vec<Block> {
    let view = &report.view;
    let mut problems = peers::problems(view);
    problems.retain(|problem| !view.is_stale(problem.ours));
    if problems.is_empty() {
        return vec![];
    }
    let mut blocks = vec![Block::paragraph(about_peers(report, &problems))];
    let mut kinds = grouped(
        problems
            .iter()
            .map(|problem| (ladder::kind(problem.place), problem)),
    );
    kinds.sort_by_key(|group| group.key);
    for Grouped { key: kind, values } in kinds {
        let Closest { shown, others } = closest(values);
        let rows = shown
            .into_iter()
            .map(|problem| beside_peers(report, problem));
        blocks.push(Block::subsection(kind.name()));
        blocks.push(Block::Table(Table::from_rows(rows).filled()));
        blocks.extend(others.map(Block::paragraph));
    }
    blocks
}

/// The most problems of a kind that a page has, unless more are not won.
const MOST_OF_A_KIND: usize = 14;

/// The problems of a kind that a page has.
struct Closest<'p> {
    shown: Vec<&'p Problem<'p>>,
    /// A line about those that are left out.
    others: Option<String>,
}

/// Returns the problems of a kind that a page has, in their order: of too many, those that ours wins
/// by the most are left out.
fn closest<'p>(problems: Vec<&'p Problem<'p>>) -> Closest<'p> {
    let mut won: Vec<f64> = problems
        .iter()
        .filter_map(|problem| gain(problem))
        .collect();
    won.sort_unstable_by(f64::total_cmp);
    let not_won = problems.len() - won.len();
    let kept = MOST_OF_A_KIND.saturating_sub(not_won);
    let (Some(&least), Some(&most)) = (won.get(kept), won.last()) else {
        return Closest {
            shown: problems,
            others: None,
        };
    };
    let (left_out, shown): (Vec<_>, Vec<_>) = problems
        .into_iter()
        .partition(|problem| gain(problem).is_some_and(|ratio| ratio >= least));
    let line = format!(
        "Ours is faster on {} more, by {} to {}: `compare show peers`.",
        left_out.len(),
        short_ratio(least),
        short_ratio(most)
    );
    Closest {
        shown,
        others: Some(line),
    }
}

/// Returns the fastest peer's time over ours where ours is faster.
fn gain(problem: &Problem<'_>) -> Option<f64> {
    let ratio = problem.fastest.as_ref()?.over.estimate(Metric::SpeedupP50);
    (peers::outcome(ratio) == Change::Faster).then_some(ratio.value)
}

fn about_peers(report: &Report<'_>, problems: &[Problem<'_>]) -> String {
    let sessions = distinct(problems.iter().map(|problem| &problem.ours.session));
    let mut regimes = problems.iter().map(|problem| problem.ours.regime());
    let sustained = if regimes.any(|regime| regime == Regime::Sustained) {
        " Sustained: at the power limit ours, the library's choice and the fastest peer take \
         turns of a second; the others were timed in bursts alone and have no figure."
    } else {
        ""
    };
    let library = if report.chosen.is_empty() {
        ""
    } else {
        "\"library\" is the packaged library's choice, empty where that was not timed; ours is the \
         best variant by hindsight. "
    };
    format!(
        "Times in µs, of the fastest of ours (stage) and of peers in turn (A B B A). A \
         kernel that draws much power borrows headroom: these are not the times \
         above.{sustained} {library}Intervals: `compare show peers`. From {}, which the table's \
         rows name.",
        count(sessions.len(), "session", "sessions")
    )
}

fn beside_peers(report: &Report<'_>, problem: &Problem<'_>) -> TableRow {
    let place = problem.place;
    let ours = problem.ours;
    let us = best::p50(ours);
    let stage = ladder::short(ours.subject.stage()).trim_start_matches("stage");
    let rate = ladder::rate_of(place, us).map(|rate| us_cell(rate / 1e12));
    let chosen = report.chosen.get(place);
    let table = &report.view.table;
    let library = peers::beside(table, ours, |row| Some(&row.subject) == chosen);
    let mut cells = row! {
        "problem" => text(place),
        "size" => ladder::extents(&place.shape),
        "regime" => or_empty(ladder::regime(ours)),
        "ours (stage)" => us_cell(us).noted(stage),
        ladder::unit(place) => or_empty(rate),
        "library" => time_cell(library),
    };
    for column in &PEERS {
        let peer = peers::beside(table, ours, |row| column.has(row));
        cells.push((column.title.into(), time_cell(peer)));
    }
    cells.push(("best peer / ours".into(), over_fastest(problem)));
    cells
}

fn time_cell(row: Option<&Row>) -> Cell {
    or_empty(row.map(|timed| us_cell(best::p50(timed))))
}

/// Returns the fastest peer's time / ours, with its interval where that is not all above 1, and the
/// peer's name where it has no column.
fn over_fastest(problem: &Problem<'_>) -> Cell {
    let Some(Rival { time: peer, over }) = problem.fastest else {
        return Cell::Empty;
    };
    let ratio = over.estimate(Metric::SpeedupP50);
    let mut notes = Vec::new();
    let cell = match peers::outcome(ratio) {
        Change::Faster => ratio_cell(ratio.value, 2),
        outcome => {
            notes.push(peers::word(outcome));
            ratio_cell(ratio, 2)
        }
    };
    if !PEERS.iter().any(|column| column.has(peer)) {
        notes.push(peer.subject.as_str());
    }
    let note = (!notes.is_empty()).then(|| notes.join(", "));
    noted(cell, note.as_deref())
}

/// Returns the claims of speed that do not hold, then others: what was claimed, and what was
/// measured.
fn claims(report: &Report<'_>) -> Vec<Block> {
    let command = "compare show claims";
    let mut open: Vec<&Claimed> = report
        .claims
        .iter()
        .rev()
        .filter(|claimed| is_open(report, claimed))
        .collect();
    // Failures, then the newest stages: reviewers know the others.
    open.sort_by_key(|claimed| claimed.verdict() != Some(Verdict::Fail));
    let mut blocks = first_items(&open, MAX_CLAIMS, open_claims_table, command);
    if !report.claims.is_empty() {
        blocks.push(Block::paragraph(format!(
            "Each claim with its figures, and why a refuted one failed: `{command}`."
        )));
    }
    blocks
}

fn is_open(report: &Report<'_>, claimed: &Claimed) -> bool {
    let is_settled = matches!(claimed.verdict(), Some(Verdict::Pass | Verdict::NoData));
    let is_measured = report.view.is_whole() || claimed.is_of_run;
    !is_settled && !claimed.is_stale && is_measured
}

fn open_claims_table(open: &[&Claimed]) -> Block {
    Block::Table(Table::from_rows(open.iter().map(|claimed| claim_row(claimed))).filled())
}

fn claim_row(claimed: &Claimed) -> TableRow {
    let base_name = base_of(claimed);
    let is_undecided = base_name.is_some() && claimed.verdict() == Some(Verdict::Ambiguous);
    let why = match recorded_reason(claimed) {
        Some(reason) => Some(reason.to_string()),
        None => is_undecided.then(|| undecided_reason(&claimed.finding)),
    };
    let mut cells = match base_name {
        Some(base) => row! {
            "claim" => speed_title(claimed, &base),
            "claimed" => format!("{:.2}x", ladder::at_least(claimed)),
            "measured" => measured_ratio(claimed),
        },
        None => row! {
            "claim" => claimed.title(),
            "claimed" => String::new(),
            "measured" => &claimed.finding.reason,
        },
    };
    cells.extend(row! {
        "verdict" => standing(claimed),
        "why" => or_empty(why),
    });
    cells
}

/// Returns why a claim of speed is undecided.
fn undecided_reason(finding: &Finding) -> String {
    if finding.absent.is_empty() {
        "with its noise the interval spans the claim".to_string()
    } else {
        format!("not timed beside {}", finding.absent.join(" and "))
    }
}

/// Returns the first sentence of why a claim is refuted, as its stage has it on record, if it is
/// short.
fn recorded_reason(claimed: &Claimed) -> Option<&str> {
    let negative = claimed.negative.as_ref()?;
    let sentence = negative.why.split(". ").next()?;
    (sentence.len() <= MAX_CLAUSE).then_some(sentence)
}

/// Returns what a claim of speed is over.
fn base_of(claimed: &Claimed) -> Option<String> {
    match &claimed.claim.relation {
        Relation::Faster { base, .. } => {
            Some(format!("{} {}", ladder::short(base.stage), base.family))
        }
        Relation::FasterThanPeer { rival, .. } => Some(rival.to_string()),
        _ => None,
    }
}

fn speed_title(claimed: &Claimed, base: &str) -> String {
    let stage = ladder::short(&claimed.stage);
    let claim = &claimed.claim;
    format!("{stage} {} over {base} on {}", claim.family, claim.place)
}

fn more(report: &Report<'_>) -> Vec<Block> {
    let stage = report.view.stages.last().map_or("STAGE", |stage| &stage.id);
    let commands = format!(
        "`compare show --stage {stage}` shows a stage, \
         `compare show gates latencies peers` parts of the table; \
         `compare show` lists all parts."
    );
    let pages = Text::from("Terms are in ")
        .link("docs/glossary.md", "docs/glossary.md")
        .plain(", rows, metrics and gates in ")
        .link("docs/rows.md", "docs/rows.md")
        .plain(".");
    vec![Block::paragraph(commands), Block::Paragraph(pages)]
}
