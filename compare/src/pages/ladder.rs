//! The ladder, one row per stage: for COMPARE.md and for the README.

use super::{missing, or_missing, stale, state, us};
use crate::judge::best::{self, Latency};
use crate::judge::list::{grouped, joined};
use crate::judge::peers::{self, Outcome};
use crate::judge::state::{State, compiled};
use crate::judge::verdict::Report;
use crate::judge::{Known, Origin};
use crate::page::{Block, Cell, Table, Text, row};
use crate::record::meta::first_place;
use crate::record::{Place, Row, StageMeta, Subject};
use common::metric::Metric;
use common::problem::Dtype;

pub fn ladder(report: &Report<'_>) -> Table {
    let known = &report.known;
    let first = known
        .stages
        .first()
        .map_or("first", |stage| short(&stage.id));
    let over_peer = |stage: &StageMeta| match over_fastest(known, stage, &first_place(Some(stage)))
    {
        Ok((ratio, origin)) => stale(super::times(ratio), &origin),
        Err(why) => missing(why),
    };
    let row = |stage: &StageMeta| {
        let subject = best::subject(known, stage);
        let best = match stage.first_dtype() {
            Dtype::F16 => subject.name().to_string(),
            other => format!("{} ({other})", subject.name()),
        };
        let gates = report.states.iter().find(|(other, _)| *other == subject);
        let [time, over_previous, over_first] = times(known, &subject);
        row! {
            "stage" => &stage.id,
            "best variant" => best,
            "gates" => or_missing(gates.map(|(_, of)| state(of)), "not declared"),
            "p50 µs" => time,
            "vs previous" => over_previous,
            format!("vs {first}") => over_first,
            "vs fastest peer" => over_peer(stage),
            "registers, occupancy" => resources(known, stage, &subject),
        }
    };
    Table::of(known.stages.iter().map(row))
}

/// `stage0` of `stage0-scalar`.
pub fn short(id: &str) -> &str {
    id.split_once('-').map_or(id, |(short, _)| short)
}

/// The latency of a variant on the claims' problem in its stage's first element type, and the speedups over the best variant of the
/// previous stage and of the first.
pub fn times(known: &Known<'_>, subject: &Subject) -> [Cell; 3] {
    let place = first_place(known.stage(subject.stage()));
    let (row, record, origin) = match best::latency(known, subject, &place) {
        Latency::Measured {
            row,
            record,
            origin,
        } => (row, record, origin),
        Latency::Withheld(why) => return [(); 3].map(|()| missing(&*why)),
        Latency::NoData => return [(); 3].map(|()| missing("no record has its latency")),
    };
    let [previous, first] = [0, 1].map(|of| {
        // The newest record of this kernel that has both: later ones may be of some stages only.
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

/// Our speedup over the fastest peer on a problem, in the newest session that included the stage, whatever that found; else why there
/// is none.
pub fn over_fastest(
    known: &Known<'_>,
    stage: &StageMeta,
    place: &Place,
) -> Result<(f64, Origin), &'static str> {
    let is_ours = |row: &&Row| row.subject.stage() == stage.id && row.on.problem() == Some(place);
    let mut sources = known.sources().into_iter();
    let session = sources.find_map(|(name, record)| {
        let ours = peers::arms(record).find(is_ours)?;
        Some((name, record, ours))
    });
    let (name, record, ours) = session.ok_or("not timed beside peers")?;
    if ours.failure().is_some() {
        return Err("its output beside peers was wrong");
    }
    let (_, over) = peers::fastest(record, ours, |_| true).ok_or("no peer was right")?;
    let origin = known.origin(name, record, &stage.id, true);
    Ok((
        over.value(Metric::SpeedupP50)
            .ok_or("no ratio was formed")?,
        origin,
    ))
}

/// From the newest record that has them for the kernel as it is now: a run without nvcc has none.
fn resources(known: &Known<'_>, stage: &StageMeta, subject: &Subject) -> Cell {
    let mut records = known.records().filter(|record| record.is_of(stage));
    let found = records.find_map(|record| {
        let registers = compiled(record, subject, Metric::Registers)?;
        let occupancy = match compiled(record, subject, Metric::Occupancy) {
            Some(0.0) => ", 0 blocks/SM".to_string(),
            Some(share) => format!(", {:.0} %", 100.0 * share),
            None => String::new(),
        };
        Some(format!("{registers}{occupancy}"))
    });
    or_missing(found, "no record of this kernel was built by nvcc")
}

/// What the table shows, and the records that its latencies are from.
pub fn about(report: &Report<'_>) -> String {
    let known = &report.known;
    let shape = known
        .record()
        .and_then(|record| record.meta.shapes.get("mission"));
    let shape = shape.map_or(String::new(), |shape| format!(" ({shape})"));
    let about = format!(
        "Device time of one launch in a CUDA graph on mission{shape}, full mask, warm L2, in f16 or the type named. Speedups are base / \
         new of medians in the newest record that has both. Registers and occupancy are those of the instance for that type and head_dim 64."
    );
    let (mut cited, mut withheld) = (Vec::new(), Vec::new());
    for stage in known.stages {
        let subject = best::subject(known, stage);
        match best::latency(known, &subject, &first_place(Some(stage))) {
            Latency::Measured { origin, .. } => {
                cited.extend(origin.cited().map(|record| (record, &stage.id)));
            }
            Latency::Withheld(why) => withheld.push(format!("No latency of {}: {why}.", stage.id)),
            Latency::NoData => {}
        }
    }
    let mut cited = grouped(cited);
    cited.sort_by_key(|(_, stages)| std::cmp::Reverse(stages.len()));
    let cited = cited
        .into_iter()
        .enumerate()
        .map(|(at, (record, stages))| match at {
            0 => format!("Latencies are from {record}."),
            _ => format!("Those of {} are from {record}.", joined(stages, ", ")),
        });
    joined([about].into_iter().chain(cited).chain(withheld), " ")
}

/// The most problems of an older session that are named.
const LISTED: usize = 4;

/// `Our fastest stage is faster than the fastest peer on 6 of 12 problems, slower on 5 and undecided on 1: …`
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
    let (won, of, lost) = (on(Outcome::Won), ratios.len(), on(Outcome::Lost));
    let rest = match on(Outcome::Undecided) {
        0 => format!(" and slower on {lost}"),
        open => format!(", slower on {lost} and undecided on {open}"),
    };
    let stale = if beside.origin.is_stale() {
        "STALE: "
    } else {
        ""
    };
    let score = Text::from(stale)
        .strong(format!(
            "Our fastest stage is faster than the fastest peer on {won} of {of} problems{rest}"
        ))
        .plain(format!(
            ": from {worst:.2}x ({lowest}) to {best:.2}x ({highest})."
        ));
    let older = beside
        .older()
        .map(|problem| (problem.origin.cited(), &problem.place));
    let older = grouped(older).into_iter().filter_map(|(record, places)| {
        let places = match places.len() {
            0..=LISTED => joined(places, ", "),
            many => format!("{many} problems"),
        };
        Some(format!("{places} from {}", record?))
    });
    let older = Some(joined(older, "; ")).filter(|older| !older.is_empty());
    let older = older.map(|older| format!(" Not in the newest session: {older}."));
    Some(score.text(older.unwrap_or_default().into()))
}

/// The README's section.
pub fn readme(report: &Report<'_>) -> Vec<Block> {
    let table = Block::Table(ladder(report));
    let score = score(&report.known).map(Block::Paragraph);
    let about = [table, Block::paragraph(about(report))];
    about.into_iter().chain(score).collect()
}

/// How many variants of a stage are green, and how many the record includes.
pub fn green(report: &Report<'_>, stage: &str) -> (usize, usize) {
    let states = report.states.iter();
    let of_stage = states.filter(|(subject, _)| subject.stage() == stage);
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
            let place = Place::claims(Dtype::F16);
            let found = over_fastest(&known, &stages[1], &place);
            found.map(|(ratio, _)| ratio)
        };
        assert_eq!(over_of(session()), Ok(2.0));
        let mut wrong = session();
        wrong
            .row_mut(CPASYNC, &On::claims(Dtype::F16), Source::Peers)
            .judge(
                GateId::C2,
                (&GateResult::judge(GateId::C2, false, "off")).into(),
            );
        assert_eq!(over_of(wrong), Err("its output beside peers was wrong"));
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
                "Not in the newest session: 5 problems from record older (NVIDIA H200); mission_b2 f16 full from record oldest (NVIDIA H200)."
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
        let expected = "is faster than the fastest peer on 1 of 3 problems, slower on 1 and undecided on 1: from 0.50x";
        assert!(found.contains(expected), "{found}");
        let found = score_of(&[("mission", 20.0), ("wide", 5.0)]);
        assert!(
            found.contains("on 1 of 2 problems and slower on 1: from"),
            "{found}"
        );
    }
}
