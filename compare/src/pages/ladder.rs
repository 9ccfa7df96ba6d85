//! The ladder, one row per stage, at two problems: for COMPARE.md and for the README.

use super::{noted, or_dash, stale, state, times, us};
use crate::document::{Block, Cell, Table, TableRow, Text, row};
use crate::judge::Known;
use crate::judge::best::{self, p50};
use crate::judge::list::{distinct, joined};
use crate::judge::peers;
use crate::judge::state::State;
use crate::judge::verdict::Report;
use crate::table::{Figure, Place, Relation, Row, Source, StageMeta, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Mask};

/// The problem of the second half of the table: a grid that fills any GPU.
const LARGE: &str = "big";

/// Of a run, what it measured.
pub fn ladder(report: &Report<'_>) -> Table {
    let (stages, run) = (report.known.stages.iter(), report.known.run);
    let stages = stages.filter(|stage| run.is_none() || !ran(report, stage).is_empty());
    let table = Table::of(stages.map(|stage| of_stage(report, stage)));
    if run.is_none() { table } else { table.filled() }
}

pub fn of_stage(report: &Report<'_>, stage: &StageMeta) -> TableRow {
    let known = &report.known;
    let mission = stage.first_place();
    let large = Place::new(LARGE, stage.first_dtype(), Mask::Full);
    let subject = shown(report, stage);
    let best = match stage.first_dtype() {
        Dtype::F16 => subject.name().to_string(),
        other => format!("{} ({other})", subject.name()),
    };
    let gates = report.states.iter().find(|(other, _)| *other == subject);
    row! {
        "stage" => &stage.id,
        "best variant at mission" => best,
        "gates" => or_dash(gates.map(|(_, of)| state(of))),
        "µs" => match best::latency(known, &subject, &mission) {
            Some(Ok(row)) => stale(us(p50(row)), known.is_stale(row)),
            _ => Cell::Missing,
        },
        "vs previous (claimed)" => gain(report, stage, &mission),
        "vs fastest peer" => or_dash(over_fastest(known, stage, &mission)),
        "µs at big (TFLOP/s)" => at_large(known, stage, &large),
        "vs previous at big (claimed)" => gain(report, stage, &large),
    }
}

/// The best variant of a stage; of a run that left it out, the first that it included.
fn shown(report: &Report<'_>, stage: &StageMeta) -> Subject {
    let ran = ran(report, stage);
    let best = best::subject(&report.known, stage);
    match ran.first() {
        Some(first) if !ran.contains(&&best) => (*first).clone(),
        _ => best,
    }
}

/// `stage0` of `stage0-scalar`.
pub fn short(id: &str) -> &str {
    id.split_once('-').map_or(id, |(short, _)| short)
}

/// The gain that a stage claims on a problem over its predecessor, else over another stage, after what was measured of it:
/// `1.57x (1.20x)`.
pub fn gain(report: &Report<'_>, stage: &StageMeta, place: &Place) -> Cell {
    let gains = report
        .claims
        .iter()
        .filter_map(|of| match &of.claim.relation {
            Relation::Faster { base, at_least } => {
                let counts =
                    of.stage == stage.id && of.claim.on == *place && base.stage != stage.id;
                counts.then_some((of, base.stage, at_least))
            }
            _ => None,
        });
    let before = stage.predecessor.as_deref();
    let Some((of, base, at_least)) = gains.min_by_key(|(_, base, _)| Some(*base) != before) else {
        return Cell::Missing;
    };
    let right = of.pair().filter(|row| row.failure().is_none());
    let measured = right.map(|row| {
        let ratio = row.value(Metric::SpeedupP50).unwrap_or(f64::NAN);
        stale(times(ratio, 2), report.known.is_stale(row))
    });
    let over = match Some(base) == before {
        true => String::new(),
        false => format!(" over {}", short(base)),
    };
    noted(or_dash(measured), Some(&format!("{at_least:.2}x{over}")))
}

/// The fastest time of a stage on the large problem, whether timed alone or against peers, its rate, and the share of a matrix product's.
fn at_large(known: &Known<'_>, stage: &StageMeta, place: &Place) -> Cell {
    let against_peers = peers::ours(known, place, |row| row.subject.stage() == stage.id);
    let alone = best::best(known, stage, place, |_| true);
    let Some(row) = best::fastest(known, against_peers.into_iter().chain(alone)) else {
        return Cell::Missing;
    };
    let rate = rate(known, row);
    noted(stale(us(p50(row)), known.is_stale(row)), rate.as_deref())
}

/// Operations of both products per second, and, of 16-bit types, their share of the rate of a matrix product on that GPU.
fn rate(known: &Known<'_>, row: &Row) -> Option<String> {
    let place = row.on.problem()?;
    let problem = place.problem()?;
    let rate = problem.flops() as f64 / (p50(row) * 1e-6);
    let ceilings = known.table.by(Source::Peers);
    let product = ceilings
        .filter_map(|row| row.value(Metric::MatrixFlops))
        .next();
    let product = product.filter(|_| place.dtype != Dtype::E4m3);
    let share = product.map(|product| format!(", {:.0} %", 100.0 * rate / product));
    Some(format!("{:.0}{}", rate / 1e12, share.unwrap_or_default()))
}

/// Our speedup over the fastest peer on a problem.
fn over_fastest(known: &Known<'_>, stage: &StageMeta, place: &Place) -> Option<Cell> {
    let ours = peers::ours(known, place, |row| row.subject.stage() == stage.id)?;
    let (_, over) = peers::fastest(&known.table, ours, |_| true)?;
    let ratio = times(over.value(Metric::SpeedupP50)?, 2);
    Some(stale(ratio, known.is_stale(ours)))
}

/// What the times of the table are, and the sessions that they are from; nothing where there is none.
pub fn about(report: &Report<'_>) -> Option<Block> {
    let known = &report.known;
    let (mut sessions, mut withheld) = (Vec::new(), Vec::new());
    for stage in known.stages {
        let subject = best::subject(known, stage);
        match best::latency(known, &subject, &stage.first_place()) {
            Some(Ok(row)) => sessions.push(format!("`{}`", row.session)),
            Some(Err(why)) => withheld.push(format!("No latency of {}: {why}.", stage.id)),
            None => {}
        }
    }
    let extents = |name: &str| {
        let shape = Place::new(name, Dtype::F16, Mask::Full).extents();
        shape.map_or(String::new(), |shape| shape.to_string())
    };
    let about = (!sessions.is_empty()).then(|| {
        format!(
            "Device time of one launch in a CUDA graph, full mask, warm L2, f16 or the type named: at mission ({}), which claims are \
             about unless they name a problem, and at big ({}), which fills the GPU. Ratios are base time / new time, interleaved (A B B \
             A) in one session; in parentheses what the stage claimed of its predecessor, or of the stage named, before it was measured. \
             TFLOP/s come with their share of the rate of an 8192 × 8192 × 8192 f16 matrix product. On an {}; sessions {}.",
            extents("mission"),
            extents(LARGE),
            known.gpu().unwrap_or("no GPU"),
            joined(distinct(sessions), ", ")
        )
    });
    let text = joined(about.into_iter().chain(withheld), " ");
    (!text.is_empty()).then(|| Block::paragraph(text))
}

/// `Our fastest stage against the fastest peer on 12 problems: 6 faster, 5 slower, 1 inconclusive; from …`
pub fn score(known: &Known<'_>) -> Option<Text> {
    let problems = peers::problems(known);
    let judged = problems.iter().filter_map(|problem| {
        let (_, over) = problem.fastest.as_ref()?;
        Some((over.estimate(Metric::SpeedupP50), problem))
    });
    let mut ratios: Vec<(Figure, &peers::Problem<'_>)> = judged.collect();
    ratios.sort_by(|(a, _), (b, _)| a.value.total_cmp(&b.value));
    let ((lowest, worst), (highest, best)) = (ratios.first()?, ratios.last()?);
    let stale = ratios.iter().filter(|(_, of)| known.is_stale(of.ours));
    let all: Vec<Figure> = ratios.iter().map(|(ratio, _)| *ratio).collect();
    let stale = match stale.count() {
        0 => String::new(),
        stale => format!(" {stale} of them are STALE: their kernels have changed since."),
    };
    let score = peers::score(&all);
    let sentence = format!("Our fastest stage against the fastest peer on {score}");
    Some(Text::default().strong(sentence).plain(format!(
        "; from {:.2}x ({}) to {:.2}x ({}).{stale}",
        lowest.value, worst.place, highest.value, best.place
    )))
}

/// The ladder, with a link to each stage for pages beside the stages.
pub fn linked(report: &Report<'_>) -> Table {
    let mut table = ladder(report);
    for (cells, stage) in table.rows.iter_mut().zip(report.known.stages) {
        let link = Text::default().link(&stage.id, format!("{}/README.md", stage.id));
        cells[0] = link.into();
    }
    table
}

/// The README's section.
pub fn readme(report: &Report<'_>) -> Vec<Block> {
    let table = Block::Table(linked(report));
    let score = score(&report.known).map(Block::Paragraph);
    let below = [about(report), score].into_iter().flatten();
    [table].into_iter().chain(below).collect()
}

/// The variants of a stage that were run.
fn ran<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Vec<&'a Subject> {
    let ran = report.states.iter().filter(|(subject, state)| {
        subject.stage() == stage.id && !matches!(state, State::NotRun(_))
    });
    ran.map(|(subject, _)| subject).collect()
}
