//! What a run in the emulator knows of each stage, in the place of times: what the kernel asks of shared memory, tensor cores and
//! barriers, and how that compares with the stage before.

use super::{or_dash, state};
use crate::document::{Block, Cell, Table, TableRow, row};
use crate::judge::blocks;
use crate::judge::claims::Claimed;
use crate::judge::state::State;
use crate::judge::verdict::Report;
use crate::table::{Kind, ProblemPlace, Row, StageMeta, Subject};
use common::metric::Metric;
use common::verdict::Verdict;

/// A figure of the table: a sum of counters.
struct Count {
    title: &'static str,
    parts: &'static [Metric],
}

const COUNTS: [Count; 5] = [
    Count {
        title: "wavefronts",
        parts: &[
            Metric::SharedReadWavefronts,
            Metric::SharedWriteWavefronts,
            Metric::AsyncWriteWavefronts,
        ],
    },
    Count {
        title: "conflicts",
        parts: &[
            Metric::SharedReadConflicts,
            Metric::SharedWriteConflicts,
            Metric::AsyncWriteConflicts,
        ],
    },
    Count {
        title: "tensor MACs",
        parts: &[Metric::TensorMacs],
    },
    Count {
        title: "global bytes",
        parts: &[Metric::GlobalReadBytes, Metric::GlobalWriteBytes],
    },
    Count {
        title: "barriers",
        parts: &[
            Metric::BlockBarriers,
            Metric::NamedBarriers,
            Metric::MbarrierWaits,
        ],
    },
];

impl Count {
    fn value(&self, row: &Row) -> Option<f64> {
        self.parts.iter().map(|part| row.value(*part)).sum()
    }
}

/// Returns a row per stage that ran, and what the figures are of; of a quick run, which counts nothing, the gates alone.
pub fn blocks(report: &Report<'_>) -> Vec<Block> {
    let stages = report.view.stages.iter();
    let ran = stages.filter_map(|stage| Some((stage, checked_variant(report, stage)?)));
    let ran = Vec::from_iter(ran);
    let has_counters =
        (ran.iter()).any(|(stage, subject)| counters(report, stage, subject).is_some());
    let is_green = |subject: &Subject| state_of(report, subject) == Some(&State::Green);
    let shows_gates = !has_counters || !ran.iter().all(|(_, subject)| is_green(subject));
    let named = |stage: &StageMeta| {
        let name = stage.id.trim_start_matches("stage");
        row! { "stage" => name.replacen('-', " ", 1) }
    };
    let counted = ran.iter().map(|(stage, subject)| {
        let gates = state_of(report, subject).filter(|_| shows_gates);
        let gates = row! { "gates" => or_dash(gates.map(state)) };
        [named(stage), gates, figures(report, stage, subject)].concat()
    });
    let counted = Table::of(counted).filled();
    let built = ran
        .iter()
        .map(|(stage, subject)| [named(stage), build_figures(report, stage, subject)].concat());
    // A table of its own, so that both fit a terminal; without nvcc there is none.
    let built = Table::of(built).filled();
    let built = (built.columns.len() > 1).then_some(Block::Table(built));
    let about = "Each stage's default variant at mission (1x8x512x64), full mask, as the emulator counts it, and beside it the factor over \
                 the stage's predecessor: wavefronts and bank conflicts of shared memory, tensor multiply-adds, bytes read and written \
                 in global memory, barriers and waits of blocks, groups and mbarriers. Claims: those that counters judge and that hold.";
    let about = has_counters.then(|| Block::paragraph(about));
    super::some(counted)
        .into_iter()
        .chain(built)
        .chain(about)
        .collect()
}

/// The default variant of a stage if the run checked it, else the first that it did.
fn checked_variant(report: &Report<'_>, stage: &StageMeta) -> Option<Subject> {
    let is_checked = |subject: &Subject| {
        let state = state_of(report, subject);
        state.is_some_and(|state| !matches!(state, State::NotRun(_)))
    };
    let default = stage.subject(&stage.default_variant);
    let mut all = [default].into_iter().chain(stage.subjects());
    all.find(is_checked)
}

fn state_of<'a>(report: &'a Report<'_>, subject: &Subject) -> Option<&'a State> {
    let mut states = report.states.iter();
    let (_, state) = states.find(|(other, _)| other == subject)?;
    Some(state)
}

fn counters<'a>(report: &'a Report<'_>, stage: &StageMeta, subject: &Subject) -> Option<&'a Row> {
    counter_row(report, subject, stage.first_place())
}

fn counter_row<'a>(
    report: &'a Report<'_>,
    subject: &Subject,
    place: ProblemPlace,
) -> Option<&'a Row> {
    let row = report.view.table.row(subject, Kind::Counters(place))?;
    (!report.view.is_stale(row)).then_some(row)
}

fn figures(report: &Report<'_>, stage: &StageMeta, subject: &Subject) -> TableRow {
    let own = counters(report, stage, subject);
    let base = stage.predecessor.as_ref().and_then(|id| {
        let before = report.view.stage(id)?;
        let default = before.subject(&before.default_variant);
        counter_row(report, &default, stage.first_place())
    });
    let cell = |count: &Count| {
        let value = own.and_then(|row| count.value(row));
        let before = base
            .and_then(|row| count.value(row))
            .filter(|before| *before > 0.0);
        let shown = value.map(|value| match before {
            Some(before) => format!("{} {:.2}x", compact(value), value / before),
            None => compact(value),
        });
        (count.title.to_string(), or_dash(shown))
    };
    let claims = ("claims".to_string(), claims_cell(report, stage));
    COUNTS.iter().map(cell).chain([claims]).collect()
}

/// `3 of 4`: claims that counters judge.
fn claims_cell(report: &Report<'_>, stage: &StageMeta) -> Cell {
    let is_judged = |claimed: &&Claimed| {
        let decided = [Verdict::Pass, Verdict::Fail].contains(&claimed.finding.verdict);
        claimed.stage == stage.id && !claimed.claim.is_of_speed() && decided
    };
    let judged = Vec::from_iter(report.claims.iter().filter(is_judged));
    if judged.is_empty() {
        return Cell::Missing;
    }
    let holds = |claimed: &&&Claimed| claimed.finding.verdict == Verdict::Pass;
    let held = judged.iter().filter(holds).count();
    format!("{held} of {}", judged.len()).into()
}

/// What nvcc made of the first element type at the claims' head size, by the last architecture that it was asked for.
fn build_figures(report: &Report<'_>, stage: &StageMeta, subject: &Subject) -> TableRow {
    let place = stage.first_place();
    let table = &report.view.table;
    let built = table
        .compiled(subject)
        .filter(|compiled| Some(compiled.instance) == place.instance())
        .map(|compiled| compiled.row)
        .filter(|row| row.has(Metric::Occupancy))
        .last();
    let figure = |metric: Metric| built.and_then(|row| Some(metric.show(row.value(metric)?)));
    let per_sm = built.and_then(|row| blocks::per_sm(table, row, row.value(Metric::Occupancy)?));
    row! {
        "registers" => or_dash(figure(Metric::Registers)),
        "blocks per SM" => or_dash(per_sm.map(|blocks| blocks.to_string())),
    "instructions in the main loop" => or_dash(figure(Metric::LoopInstructions)),
    }
}

/// Three digits: `692k`, `17.8M`.
fn compact(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 999.5e6 => (v / 1e9, "G"),
        v if v >= 999.5e3 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => return format!("{v:.0}"),
    };
    let decimals = match scaled {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::terminal::terminal;
    use crate::judge::{View, verdict};
    use crate::testing::scenario;

    fn page(words: &str) -> String {
        let run = scenario::run(words);
        terminal(&blocks(&verdict::report(View::alone(&run))))
    }

    #[test]
    fn a_run_in_the_emulator_shows_what_it_counted_over_the_stage_before() {
        let page = page(
            "emulated; wmma mission emulator: shared_read_wavefronts 692224 | shared_write_wavefronts 299008 | \
             async_write_wavefronts 0 | shared_read_conflicts 0 | shared_write_conflicts 131072 | async_write_conflicts 0; \
             cpasync mission emulator: shared_read_wavefronts 300000 | shared_write_wavefronts 99008 | \
             async_write_wavefronts 131072 | shared_read_conflicts 0 | shared_write_conflicts 0 | async_write_conflicts 0",
        );
        for says in [
            "| stage     | wavefronts | conflicts | claims |",
            "| 0 scalar  | 991k       | 131k      | 1 of 1 |",
            "| 1 cpasync | 530k 0.53x | 0 0.00x   | 1 of 1 |",
        ] {
            assert!(page.contains(says), "{says}: {page}");
        }
    }

    #[test]
    fn what_is_not_counted_has_no_column_and_a_failure_has_one() {
        let quick = page("emulated; - mission; tier 0");
        assert!(
            quick.contains("gates") && !quick.contains("wavefronts"),
            "{quick}"
        );
        let failed = page("emulated; wmma all: C3 fail").to_lowercase();
        assert!(failed.contains("fail c3"), "{failed}");
    }

    #[test]
    fn what_nvcc_made_is_a_table_of_its_own() {
        let built = page(
            "emulated; + cpasync | f16 d64 | kernel | threads 128; \
             + cpasync | f16 d64 sm_90a | ptxas | registers 120 | occupancy 0.25 | loop_instructions 357",
        );
        let says = "| 1 cpasync | 120       | 4             | 357                           |";
        assert!(built.contains(says), "{built}");
        assert!(!page("emulated").contains("registers"));
    }

    #[test]
    fn a_number_has_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (999.0, "999"),
            (1152.0, "1.15k"),
            (692_224.0, "692k"),
            (999_600.0, "1.00M"),
            (17_825_792.0, "17.8M"),
            (268_435_456.0, "268M"),
            (1.5e9, "1.50G"),
        ] {
            assert_eq!(compact(value), expected);
        }
    }
}
