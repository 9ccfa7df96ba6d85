//! `compare show --stage X`: a stage on one page, for someone who optimises it.

use super::insights::insights;
use super::{
    first_lines, gpu, ladder, list, missing, or_missing, some, standing, state, tally, us,
};
use crate::judge::best;
use crate::judge::claims::Claimed;
use crate::judge::list::{distinct, joined};
use crate::judge::state::{State, compiled};
use crate::judge::verdict::Report;
use crate::page::{Block, Cell, Table, TableRow, Text, row};
use crate::record::meta::first_place;
use crate::record::{Place, Record, Row, StageMeta, Subject};
use common::claim::Relation;
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::verdict::Verdict;

/// How many variants have a line of their own, the fastest first.
const MOST_VARIANTS: usize = 3;

/// The most lines of claims of each kind, so that the page fits a screen.
const MOST_CLAIMS: usize = 3;

/// Nothing if there is no such stage.
pub fn blocks(report: &Report<'_>, id: &str) -> Vec<Block> {
    let Some(stage) = report.known.stage(id) else {
        return vec![];
    };
    let best = best::subject(&report.known, stage);
    let record = report.known.record();
    let conclusions = record.map_or(vec![], |record| list(insights(record, &best)));
    let sections = [
        (
            "Fastest variant by problem, and its ratio to the fastest peer (*: STALE)".to_string(),
            problems(report, stage),
        ),
        (format!("Conclusions for {}", best.name()), conclusions),
        ("Targets".to_string(), targets(report, id)),
        ("Negative results".to_string(), negatives(report, id)),
    ];
    let present = sections
        .into_iter()
        .filter(|(_, blocks)| !blocks.is_empty());
    let sections =
        present.flat_map(|(title, blocks)| [vec![Block::subsection(title)], blocks].concat());
    let title = Block::section(format!("{id}: {}", stage.idea));
    let head = [title, Block::bullets(about(report, stage))];
    head.into_iter().chain(sections).collect()
}

/// The predecessor, the record that figures are of, gates, claims, and the fastest variants.
fn about(report: &Report<'_>, stage: &StageMeta) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(
        stage
            .predecessor
            .as_ref()
            .map(|before| format!("a diff of {before}")),
    );
    lines.push(match report.known.subject() {
        None => "NO DATA: there is no record".to_string(),
        Some((name, record)) => {
            let stale = match record.is_of(stage) {
                true => "",
                false => "; STALE: the kernel has changed since",
            };
            format!(
                "figures are of `{name}`, {}; variants are ranked on {}{stale}",
                gpu(&record.meta.machine.gpu),
                first_place(Some(stage))
            )
        }
    });
    let (green, all) = ladder::green(report, &stage.id);
    let of_stage = |(subject, _): &&(Subject, State)| subject.stage() == stage.id;
    let states = report.states.iter().filter(of_stage);
    let not_green = states.filter(|(_, of)| *of != State::Green);
    let not_green =
        not_green.map(|(subject, of)| format!(", {} {}", subject.name(), state(of).shown()));
    lines.push(format!(
        "gates: {green} of {all} variants green{}",
        joined(not_green, "")
    ));
    let claims = tally(claims_of(report, &stage.id));
    lines.extend((!claims.is_empty()).then(|| format!("claims: {claims}")));
    lines.extend(
        report
            .known
            .record()
            .map_or(vec![], |record| fastest(report, record, stage)),
    );
    lines
}

fn claims_of<'a>(report: &'a Report<'_>, id: &str) -> impl Iterator<Item = &'a Claimed> {
    report.claims.iter().filter(move |of| of.stage == id)
}

/// `swizzle-32x256-k4: 5.274 µs on mission f16 full, 1.77x (−43 %) over stage4, 128 registers, 25.0 % occupancy`
fn fastest(report: &Report<'_>, record: &Record, stage: &StageMeta) -> Vec<String> {
    let place = first_place(Some(stage));
    let is_there = |row: &&Row| row.subject.stage() == stage.id && row.on.problem() == Some(&place);
    let mut timed: Vec<&Row> = best::shown(record).filter(is_there).collect();
    timed.sort_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
    let line = |row: &&Row| {
        let subject = &row.subject;
        let [_, ratio, _] = ladder::times(&report.known, subject);
        let over_previous = match (ratio, &stage.predecessor) {
            (Cell::Missing(_), _) | (_, None) => None,
            (ratio, Some(before)) => {
                Some(format!("{} over {}", ratio.shown(), ladder::short(before)))
            }
        };
        let figure = |metric: Metric| Some(metric.show(compiled(record, subject, metric)?));
        let figures = [
            Some(format!("{} µs", us(best::p50(row)).shown())),
            over_previous,
            figure(Metric::Registers).map(|registers| format!("{registers} registers")),
            figure(Metric::Occupancy).map(|share| format!("{share} occupancy")),
        ];
        let figures = joined(figures.into_iter().flatten(), ", ");
        format!("{}: {figures}", subject.name())
    };
    timed.iter().take(MOST_VARIANTS).map(line).collect()
}

/// Problems down; under each mask the fastest variant, its time, and its speedup over the fastest peer. An asterisk marks what is STALE.
fn problems(report: &Report<'_>, stage: &StageMeta) -> Vec<Block> {
    let Some(record) = report.known.record() else {
        return vec![];
    };
    let timed = best::shown(record).filter(|row| row.subject.stage() == stage.id);
    let places = timed.filter_map(|row| row.on.problem());
    let mut problems = distinct(places.map(|place| (place.dtype, place.shape.as_str())));
    let size = |shape: &str| {
        let shape = record.meta.shape(shape);
        shape.map_or(0, |s| s.batch * s.heads_q * s.seq_q * s.seq_kv * s.head_dim)
    };
    problems.sort_by_key(|(dtype, shape)| (*dtype, size(shape)));
    let cells = |shape: &str, dtype: Dtype, mask: Mask| {
        let place = Place::new(shape, dtype, mask);
        let fastest = best::best(record, &stage.id, &place, |_| true);
        let over_peer = match ladder::over_fastest(&report.known, stage, &place) {
            // A mark, for a table that has to fit a terminal.
            Ok((ratio, origin)) => {
                let mark = if origin.is_stale() { "*" } else { "" };
                Cell::figure(ratio, format!("{ratio:.2}x{mark}"))
            }
            Err(why) => missing(why),
        };
        row! {
            format!("{mask}") => or_missing(fastest.map(|row| row.subject.name()), "not timed"),
            "µs" => or_missing(fastest.map(|row| us(best::p50(row))), "not timed"),
            "peer" => over_peer,
        }
    };
    let row = |(dtype, shape): (Dtype, &str)| -> TableRow {
        let title = row! { "problem" => format!("{shape} {dtype}") };
        let masks = Mask::ALL
            .into_iter()
            .flat_map(|mask| cells(shape, dtype, mask));
        title.into_iter().chain(masks).collect()
    };
    some(Table::of(problems.into_iter().map(row)))
}

/// Claims that are neither kept nor refuted, and goals that are not reached; then a command that shows the others.
fn targets(report: &Report<'_>, id: &str) -> Vec<Block> {
    let line = |of: &Claimed| {
        let (cell, _) = standing(of);
        let speedup = of
            .finding
            .pair
            .as_ref()
            .map(|pair| (pair.speedup, pair.interval));
        let measured = match speedup {
            Some((value, (low, high))) => format!("{value:.2}x [{low:.2}, {high:.2}]"),
            None => of.finding.reason.clone(),
        };
        let is_kept = of.verdict() == Some(Verdict::Pass) && !of.origin.is_stale();
        let goal = match of.claim.relation {
            Relation::FasterThanPeer { goal, .. } if is_kept => {
                goal.filter(|goal| speedup.is_some_and(|(value, _)| value < *goal))
            }
            _ => None,
        };
        match goal {
            Some(goal) => Some(format!("goal {goal:.2}x: {}: {measured}", of.claim)),
            None if is_kept || of.refuted.is_some() => None,
            None => Some(format!("{}: {}: {measured}", cell.shown(), of.claim)),
        }
    };
    let lines = claims_of(report, id).filter_map(line).map(Text::from);
    first_lines(lines, MOST_CLAIMS, &in_full(id))
}

/// Claims that a committed record refutes, with its evidence.
fn negatives(report: &Report<'_>, id: &str) -> Vec<Block> {
    let refuted = claims_of(report, id).filter(|of| of.refuted.is_some());
    let line = |of: &Claimed| Text::from(format!("{}: {}", of.claim, of.finding.reason));
    first_lines(refuted.map(line), MOST_CLAIMS, &in_full(id))
}

fn in_full(id: &str) -> String {
    format!("compare show --stage {id} claims")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::page::Document;
    use crate::page::terminal::{WIDTH, terminal};
    use crate::pages::testing::record;
    use crate::testing::committed;

    #[test]
    fn a_stage_has_its_figures_conclusions_targets_and_negatives() {
        let records = [("1".to_string(), record())];
        let report = verdict::report(Known {
            stages: &records[0].1.meta.stages,
            run: None,
            committed: &records,
        });
        insta::assert_snapshot!(terminal(&Document::of(blocks(&report, "stage1-mma")), WIDTH), @r##"
== stage1-mma: one idea ==

- a diff of stage0-scalar
- figures are of 1, NVIDIA H200 (sm_90, 132 SMs, driver 580); variants are ranked on mission f16
  full
- gates: 2 of 2 variants green
- claims: 1 kept
- mma-32x64: 5.000 µs, 2.00x (−50 %) over stage0, 128 registers, 25.0 % occupancy
- mma-64x64: 6.000 µs, 1.67x (−40 %) over stage0, 128 registers, 25.0 % occupancy

-- Fastest variant by problem, and its ratio to the fastest peer (*: STALE) --

| problem     | full      |    µs |  peer | causal | µs | peer |
|-------------|-----------|-------|-------|--------|----|------|
| mission f16 | mma-32x64 | 5.000 | 1.50x | –      | –  | –    |

-- Conclusions for mma-32x64 --

- Bank conflicts are 25 % of the wavefronts of shared-memory reads (rule: above 5 %): pad or swizzle
  the tile.
- 128 blocks for 132 SMs (rule: fewer than one each): the others idle; use smaller tiles or
  split-KV.
"##);
        assert!(blocks(&report, "stage9").is_empty());
    }

    #[test]
    fn every_stage_of_the_committed_records_fits_a_screen() {
        let records = committed();
        let report = verdict::report(Known {
            stages: &records.last().unwrap().1.meta.stages,
            run: None,
            committed: &records,
        });
        for stage in report.known.stages {
            let text = terminal(&Document::of(blocks(&report, &stage.id)), WIDTH);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(text.lines().count() <= 60 && widest <= Some(100), "{text}");
        }
    }
}
