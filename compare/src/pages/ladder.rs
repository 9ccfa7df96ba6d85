//! The ladder, a row per stage: of COMPARE.md and of the README.

use super::{Sides, missing, or_missing, sides, stale, state, us};
use crate::judge::best::{self, Latency};
use crate::judge::history::of_instance;
use crate::judge::list::{grouped, joined};
use crate::judge::peers::{self, Outcome};
use crate::judge::state::State;
use crate::judge::verdict::Report;
use crate::judge::{Known, Origin};
use crate::page::{Block, Cell, Table, Text, row};
use crate::record::meta::first_place;
use crate::record::{Row, StageMeta, Subject};
use common::metric::Metric;
use common::problem::Dtype;

pub fn ladder(report: &Report<'_>) -> Table {
    let known = &report.known;
    let first = known
        .stages
        .first()
        .map_or("vs first".to_string(), |stage| {
            format!("vs {}", short(&stage.id))
        });
    let row = |stage: &StageMeta| {
        let subject = best::subject(known, stage);
        let best = match stage.first_dtype() {
            Dtype::F16 => subject.name().to_string(),
            other => format!("{} ({other})", subject.name()),
        };
        let gates = report.states.iter().find(|(other, _)| *other == subject);
        let gates = or_missing(gates.map(|(_, of)| state(of)), "not declared");
        let [time, previous, first] = times(known, &subject);
        let over_fastest = over_fastest(known, stage);
        let resources = resources(known, stage, &subject);
        row![
            &stage.id,
            best,
            gates,
            time,
            previous,
            first,
            over_fastest,
            resources
        ]
    };
    let columns = [
        "stage",
        "best variant",
        "gates",
        "p50 µs",
        "vs previous",
        &first,
        "vs fastest peer",
        "registers, occupancy",
    ];
    Table::of(columns, known.stages.iter().map(row))
}

/// `stage0` of `stage0-scalar`.
pub fn short(id: &str) -> &str {
    id.split_once('-').map_or(id, |(short, _)| short)
}

/// The time of a variant on the claims' problem in its stage's first element type, beside the best of the stage before and of the
/// first.
pub fn times(known: &Known<'_>, subject: &Subject) -> [Cell; 3] {
    let place = first_place(known.stage(subject.stage()));
    let (row, record, origin) = match best::latency(known, subject, &place) {
        Latency::Measured {
            row,
            record,
            origin,
        } => (row, record, origin),
        Latency::Withheld(why) | Latency::NoData(why) => return [(); 3].map(|()| missing(&*why)),
    };
    let [previous, first] = [0, 1].map(|of| {
        // The newest record of this kernel that has both: a later one may have been of some stages alone.
        let older = best::alike(known, record, subject, &place);
        let records = [(record, row)].into_iter().chain(older);
        let mut found = records.filter_map(|(record, row)| best::speedups(record, row)[of].take());
        match found.next() {
            Some((base, _)) if base == *subject => missing("it is the first"),
            Some((_, ratio)) => super::speedup(ratio),
            None => missing("no record has both"),
        }
    });
    [stale(us(best::p50(row)), &origin), previous, first]
}

/// Against the fastest peer on the claims' problem, in the newest session with peers that the stage was in.
fn over_fastest(known: &Known<'_>, stage: &StageMeta) -> Cell {
    let place = first_place(Some(stage));
    let found = known.sources().into_iter().find_map(|(name, record)| {
        let is_ours =
            |row: &&Row| row.subject.stage() == stage.id && row.on.problem() == Some(&place);
        let ours = peers::arms(record).find(is_ours)?;
        // The newest session that came to it, whatever it found.
        if ours.failure().is_some() {
            return Some(missing("its output beside peers was wrong"));
        }
        let Some((_, over)) = peers::fastest(record, ours, |_| true) else {
            return Some(missing("no peer was right"));
        };
        let ratio = super::times(over.value(Metric::SpeedupP50)?);
        Some(stale(ratio, &known.origin(name, record, &stage.id, true)))
    });
    or_missing(found, "not timed beside peers")
}

/// Of the newest record that has them for the kernel as it is now, so that a run without nvcc does not lose them.
fn resources(known: &Known<'_>, stage: &StageMeta, subject: &Subject) -> Cell {
    let mut sources = known
        .sources()
        .into_iter()
        .map(|(_, record)| record)
        .filter(|record| record.is_of(stage));
    let found = sources.find_map(|record| {
        let registers = of_instance(record, subject, Metric::Registers)?;
        Some((registers, of_instance(record, subject, Metric::Occupancy)))
    });
    match found {
        None => missing("no record of this kernel was built by nvcc"),
        Some((registers, Some(0.0))) => format!("{registers}, 0 blocks/SM").into(),
        Some((registers, Some(share))) => format!("{registers}, {:.0} %", 100.0 * share).into(),
        Some((registers, None)) => format!("{registers}").into(),
    }
}

/// What the table is of, and whose figures they are.
pub fn about(report: &Report<'_>) -> Text {
    let known = &report.known;
    let shape = known
        .record()
        .and_then(|record| record.meta.shapes.get("mission"));
    let shape = shape.map(|shape| format!(" ({shape})")).unwrap_or_default();
    let mut about = Text::from(format!(
        "Device time of one launch in a CUDA graph: mission{shape}, f16 or the type named, full mask, warm L2. Ratios are base / new \
         of medians in one record, the newest that has both; registers and occupancy are of that type's instance of head_dim 64."
    ));
    let (mut committed, mut others) = (Vec::new(), Vec::new());
    for stage in known.stages {
        let subject = best::subject(known, stage);
        match best::latency(known, &subject, &first_place(Some(stage))) {
            Latency::Measured {
                origin: Origin::Committed { record, gpu },
                ..
            } => {
                committed.push((format!("the committed record {record} ({gpu})"), &stage.id));
            }
            Latency::Measured {
                origin: Origin::Stale { record, gpu, why },
                ..
            } => {
                others.push(format!(
                    " STALE: {} is from {record} ({gpu}): {why}.",
                    stage.id
                ));
            }
            Latency::Withheld(why) => others.push(format!(" No latency of {}: {why}.", stage.id)),
            _ => {}
        }
    }
    let mut by_record = grouped(committed);
    by_record.sort_by_key(|(_, stages)| std::cmp::Reverse(stages.len()));
    for (at, (of, stages)) in by_record.into_iter().enumerate() {
        about = about.plain(match at {
            0 => format!(" Latencies are from {of}."),
            _ => format!(" Those of {} are from {of}.", joined(stages, ", ")),
        });
    }
    others.into_iter().fold(about, Text::plain)
}

/// So many problems of an older session are named.
const LISTED: usize = 4;

/// `Our fastest stage is ahead of the fastest peer on 6 of 12 problems, behind on 5 and undecided on 1, …`
pub fn score(known: &Known<'_>) -> Option<Text> {
    let beside = peers::beside(known)?;
    let mut ratios: Vec<(f64, String)> = Vec::new();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for problem in &beside.problems {
        let Some((_, over)) = &problem.fastest else {
            continue;
        };
        let ratio = *over.figures.get(&Metric::SpeedupP50)?;
        ratios.push((ratio.value, problem.place.to_string()));
        outcomes.push(peers::outcome(ratio));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((worst, lowest), (best, highest)) = (ratios.first()?, ratios.last()?);
    let on = |of: Outcome| outcomes.iter().filter(|outcome| **outcome == of).count();
    let stale = if beside.origin.is_stale() {
        "STALE: "
    } else {
        ""
    };
    let (won, of, lost) = (on(Outcome::Won), ratios.len(), on(Outcome::Lost));
    let rest = match on(Outcome::Undecided) {
        0 => format!(" and behind on {lost}"),
        open => format!(", behind on {lost} and undecided on {open}"),
    };
    let Sides { who, rival, .. } = sides(beside.record);
    let score = Text::from(stale)
        .strong(format!(
            "{who} is ahead of the {rival} on {won} of {of} problems{rest}"
        ))
        .plain(format!(
            ": from {worst:.2}x ({lowest}) to {best:.2}x ({highest})."
        ));
    let older = beside
        .older()
        .map(|problem| (problem.origin.clone(), &problem.place));
    let others = known.sources().into_iter().map(|(_, record)| record);
    let score = peers::without(beside.record, others).fold(score, |score, without| {
        score.plain(format!(" The newest session was timed {without}."))
    });
    let lacking = grouped(older).into_iter().filter_map(|(origin, places)| {
        let places = match places.len() {
            0..=LISTED => joined(places, ", "),
            many => format!("{many} of them"),
        };
        match origin {
            Origin::Run => None,
            Origin::Committed { record, gpu } => {
                Some(format!("{places}: these are from {record} ({gpu})"))
            }
            Origin::Stale { record, gpu, why } => Some(format!(
                "{places}: these are STALE, from {record} ({gpu}): {why}"
            )),
        }
    });
    let lacking: Vec<String> = lacking.collect();
    Some(match lacking.is_empty() {
        true => score,
        false => score.plain(format!(
            " The newest session lacks {}.",
            lacking.join("; it lacks ")
        )),
    })
}

/// What stands between the README's markers.
pub fn readme(report: &Report<'_>) -> Vec<Block> {
    let mut blocks = vec![
        Block::Table(ladder(report)),
        Block::Paragraph(about(report)),
    ];
    blocks.extend(score(&report.known).map(Block::Paragraph));
    blocks
}

/// How many variants of a stage are green, and of how many that the record includes.
pub fn green(report: &Report<'_>, stage: &str) -> (usize, usize) {
    let of_stage = report
        .states
        .iter()
        .filter(|(subject, _)| subject.stage() == stage);
    let ran = of_stage.filter(|(_, state)| !matches!(state, State::NotRun(_)));
    ran.fold((0, 0), |(green, all), (_, state)| {
        (green + usize::from(*state == State::Green), all + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::report;
    use crate::record::{On, Record, Source};
    use crate::testing::{CPASYNC, US, timed};
    use common::verdict::{GateId, GateResult};

    #[test]
    fn an_older_ratio_does_not_hide_a_wrong_output_beside_peers() {
        let session = || timed(US).peers("mission", 10.0, &[("torch-default", 20.0, true)]);
        let over_of = |newest: Record| {
            let stages = newest.meta.stages.clone();
            let known = Known {
                stages: &stages,
                run: Some(("run", &newest)),
                committed: &[("older".to_string(), session())],
            };
            over_fastest(&known, &stages[1]).shown().to_string()
        };
        assert_eq!(over_of(session()), "2.00x");
        let mut wrong = session();
        wrong
            .row_mut(CPASYNC, &On::claims(Dtype::F16), Source::Peers)
            .judge(
                GateId::C2,
                (&GateResult::judge(GateId::C2, false, "off")).into(),
            );
        assert_eq!(over_of(wrong), "–");
    }

    #[test]
    fn a_record_of_one_stage_leaves_the_ratios_to_an_older_one_of_its_kernel_and_gpu() {
        let whole = || timed(US);
        let stages = whole().meta.stages;
        let ratios_of = |older: Record| {
            let newest = whole().without(|row| row.subject.stage() == stages[0].id);
            let known = Known {
                stages: &stages,
                run: None,
                committed: &[("older".to_string(), older), ("newest".to_string(), newest)],
            };
            times(&known, &CPASYNC.into()).map(|cell| cell.shown().to_string())
        };
        let [time, previous, first] = ratios_of(whole());
        assert_eq!([&time, &previous], ["15.01", "1.33x (−25 %)"]);
        assert_eq!(first, previous);
        assert_eq!(ratios_of(whole().on_gpu("another"))[1], "–");
        let other_kernel = whole().changed(|meta| meta.stages[1].identity = "other".into());
        assert_eq!(ratios_of(other_kernel)[1], "–");
    }

    #[test]
    fn many_problems_of_an_older_session_are_counted() {
        let session = |shapes: &[&str]| {
            let on = |record: Record, shape: &&str| {
                record.peers(shape, 10.0, &[("torch-default", 20.0, true)])
            };
            shapes.iter().fold(timed(US), on)
        };
        let all = ["mission", "long", "wide", "big", "stretch", "big_wide"];
        let committed = [
            ("oldest".to_string(), session(&["mission_b2"])),
            ("older".to_string(), session(&all)),
            ("newest".to_string(), session(&all[..1])),
        ];
        let stages = committed[0].1.meta.stages.clone();
        let known = Known {
            stages: &stages,
            run: None,
            committed: &committed,
        };
        let said = score(&known).unwrap().to_string();
        assert!(
            said.contains(
                "The newest session lacks 5 of them: these are from older (NVIDIA H200); it lacks mission_b2 f16 full: these are from oldest"
            ),
            "{said}"
        );
    }

    #[test]
    fn what_is_undecided_is_neither_won_nor_lost() {
        let score_of = |times: &[(&str, f64)]| {
            let on = |record: Record, &(shape, us): &(&str, f64)| {
                record.peers(shape, 10.0, &[("torch-default", us, true)])
            };
            let record = times.iter().fold(timed(US), on);
            let stages = record.meta.stages.clone();
            let known = Known {
                stages: &stages,
                run: Some(("run", &record)),
                committed: &[],
            };
            score(&report(known).known).unwrap().to_string()
        };
        let found = score_of(&[("mission", 20.0), ("long", 10.0), ("wide", 5.0)]);
        let expected = "is ahead of the fastest peer on 1 of 3 problems, behind on 1 and undecided on 1: from 0.50x";
        assert!(found.contains(expected), "{found}");
        let found = score_of(&[("mission", 20.0), ("wide", 5.0)]);
        assert!(
            found.contains("on 1 of 2 problems and behind on 1: from"),
            "{found}"
        );
    }
}
