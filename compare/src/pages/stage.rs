//! `compare show --stage X`: a stage on one page, for someone who optimises it.

use super::{WORDS, first_lines, first_of, ladder, or_dash, sections, some, standing, state, us};
use crate::document::{Block, Cell, Table, TableRow, row};
use crate::judge::Known;
use crate::judge::best;
use crate::judge::claims::Claimed;
use crate::judge::list::{distinct, joined, tallied};
use crate::judge::state::State;
use crate::judge::verdict::Report;
use crate::table::session::first_place;
use crate::table::{Place, Row, StageMeta, Subject};
use common::claim::Relation;
use common::problem::{Dtype, Mask};
use common::verdict::Verdict;

/// How many variants are named, the fastest first.
const MOST_VARIANTS: usize = 3;

/// The most problems and lines of claims, so that the page fits a screen.
const MOST_PROBLEMS: usize = 9;
const MOST_CLAIMS: usize = 3;

pub fn blocks(report: &Report<'_>, id: &str) -> Vec<Block> {
    let Some(stage) = report.known.stage(id) else {
        return vec![];
    };
    let parts = [
        ("Fastest variants at mission", fastest(&report.known, stage)),
        (
            "Fastest variant by problem, and its ratio to the fastest peer (*: STALE)",
            problems(report, stage),
        ),
        (
            "Claims that do not hold, and goals that are not reached",
            open_claims(report, id),
        ),
    ];
    let title = Block::section(format!("{id}: {}", stage.idea));
    let head = [title, Block::bullets(about(report, stage))];
    let sections = sections(Block::subsection, parts);
    head.into_iter().chain(sections).collect()
}

/// The predecessor, the session that figures are of, gates and claims.
fn about(report: &Report<'_>, stage: &StageMeta) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(
        stage
            .predecessor
            .as_ref()
            .map(|before| format!("compared with {before}")),
    );
    let known = &report.known;
    lines.push(match known.session() {
        None => "NO DATA: there is no table".to_string(),
        Some(session) => format!(
            "newest session `{}`, {}; variants are ranked on {}",
            session.name,
            session.machine.gpu,
            first_place(Some(stage))
        ),
    });
    let (green, all) = ladder::green(report, &stage.id);
    let of_stage = |(subject, _): &&(Subject, State)| subject.stage() == stage.id;
    let states = report.states.iter().filter(of_stage);
    let not_green = states.filter(|(_, of)| *of != State::Green);
    let not_green = not_green.map(|(subject, of)| format!(", {} {}", subject.name(), state(of)));
    lines.push(format!(
        "gates: {green} of {all} variants green{}",
        joined(not_green, "")
    ));
    let claims = tallied(claims_of(report, &stage.id).map(standing), &WORDS);
    lines.extend((!claims.is_empty()).then(|| format!("claims: {claims}")));
    lines
}

fn claims_of<'a>(report: &'a Report<'_>, id: &str) -> impl Iterator<Item = &'a Claimed> {
    report.claims.iter().filter(move |of| of.stage == id)
}

fn fastest(known: &Known<'_>, stage: &StageMeta) -> Vec<Block> {
    let place = first_place(Some(stage));
    let is_here = |row: &&Row| row.subject.stage() == stage.id && row.on.problem() == Some(&place);
    let mut rows: Vec<&Row> = best::shown(known).filter(is_here).collect();
    rows.sort_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
    let fastest = rows.iter().take(MOST_VARIANTS);
    let subjects = fastest.map(|row| row.subject.clone());
    some(ladder::variants(known, &subjects.collect::<Vec<_>>()))
}

/// Problems down; under each mask the fastest variant, its time, and its speedup over the fastest peer. An asterisk marks what is STALE.
fn problems(report: &Report<'_>, stage: &StageMeta) -> Vec<Block> {
    let known = &report.known;
    let timed = best::shown(known).filter(|row| row.subject.stage() == stage.id);
    let places = timed.filter_map(|row| row.on.problem());
    let mut problems = distinct(places.map(|place| (place.dtype, place.shape.as_str())));
    let size = |shape: &str| Place::new(shape, Dtype::F16, Mask::Full).size();
    problems.sort_by_key(|(dtype, shape)| (*dtype, size(shape)));
    let cells = |shape: &str, dtype: Dtype, mask: Mask| {
        let place = Place::new(shape, dtype, mask);
        let fastest = best::best(known, stage, &place, |_| true);
        // A mark, for a table that has to fit a terminal.
        let over_peer = ladder::over_fastest(known, stage, &place).map(|(ratio, is_stale)| {
            let mark = if is_stale { "*" } else { "" };
            Cell::Figure(format!("{ratio:.2}x{mark}"))
        });
        row! {
            format!("{mask}") => or_dash(fastest.map(|row| row.subject.name())),
            "µs" => or_dash(fastest.map(|row| us(best::p50(row)))),
            "peer" => or_dash(over_peer),
        }
    };
    let row = |(dtype, shape): (Dtype, &str)| -> TableRow {
        let title = row! { "problem" => format!("{shape} {dtype}") };
        let masks = Mask::ALL
            .into_iter()
            .flat_map(|mask| cells(shape, dtype, mask));
        title.into_iter().chain(masks).collect()
    };
    let table = |shown: &[(Dtype, &str)]| Block::Table(Table::of(shown.iter().map(|of| row(*of))));
    let how = format!("compare show --stage {} latencies", stage.id);
    first_of(&problems, MOST_PROBLEMS, table, &how)
}

/// Claims that do not hold, recorded as refuted or not, and goals that are not reached.
fn open_claims(report: &Report<'_>, id: &str) -> Vec<Block> {
    let line = |of: &Claimed| {
        let holds = of.verdict() == Some(Verdict::Pass) && !of.is_stale;
        let speedup = of.finding.pair.as_ref().map(|pair| pair.speedup);
        let goal = match of.claim.relation {
            Relation::FasterThanPeer { goal, .. } => goal,
            _ => None,
        };
        let goal = goal.filter(|goal| speedup < Some(*goal));
        let word = match goal {
            Some(goal) if holds => format!("goal {goal:.2}x"),
            _ if holds => return None,
            _ => standing(of).to_string(),
        };
        Some(format!("{word}: {}: {}", of.claim, of.finding.reason).into())
    };
    let how = format!("compare show --stage {id} claims");
    first_lines(claims_of(report, id).filter_map(line), MOST_CLAIMS, &how)
}
