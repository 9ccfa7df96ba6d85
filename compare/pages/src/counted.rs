//! What a run in the emulator knows about each stage, in the place of times: what the kernel asks
//! of shared memory, tensor cores and barriers, and how that compares with the stage before.

use super::blocks::table_block;
use super::cells::{decimals, or_dash};
use super::words::state_with_gates;
use common::metric::Metric;
use common::verdict::Verdict;
use document::{Block, Cell, Table, TableRow, row};
use results::judge::blocks;
use results::judge::state::State;
use results::judge::verdict::Report;
use results::table::{Kind, Row, StageMeta, Subject};

/// A figure of the table, which is a sum of counters.
pub struct Count {
    title: &'static str,
    parts: &'static [Metric],
}

/// The passes over shared memory, of warps and of copies.
pub const WAVEFRONTS: Count = Count {
    title: "wavefronts",
    parts: &[
        Metric::SharedReadWavefronts,
        Metric::SharedWriteWavefronts,
        Metric::AsyncWriteWavefronts,
    ],
};

/// The [`WAVEFRONTS`] that an access took beyond those that its bytes need.
pub const CONFLICTS: Count = Count {
    title: "conflicts",
    parts: &[
        Metric::SharedReadConflicts,
        Metric::SharedWriteConflicts,
        Metric::AsyncWriteConflicts,
    ],
};

/// The bytes that blocks ask of global memory, wherever these come from.
pub const GLOBAL_BYTES: Count = Count {
    title: "global bytes",
    parts: &[Metric::GlobalReadBytes, Metric::GlobalWriteBytes],
};

const COUNTS: [Count; 5] = [
    WAVEFRONTS,
    CONFLICTS,
    Count {
        title: "tensor MACs",
        parts: &[Metric::TensorMacs],
    },
    GLOBAL_BYTES,
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
    /// Returns the sum of its parts; nothing unless a row has all of them.
    pub fn value(&self, row: &Row) -> Option<f64> {
        self.parts.iter().map(|part| row.value(*part)).sum()
    }
}

/// The default variant of a stage that ran.
struct Ran<'a> {
    stage: &'a StageMeta,
    subject: Subject,
}

/// Returns a row per stage that ran, and what the figures are; of a quick run, which counts
/// nothing, the gates alone.
pub fn blocks(report: &Report<'_>) -> Vec<Block> {
    let stages = stages_that_ran(report);
    let has_counters = stages
        .iter()
        .any(|ran| counters(report, ran.stage, &ran.subject).is_some());
    let is_green = stages
        .iter()
        .all(|ran| state_of(report, &ran.subject) == Some(&State::Green));
    let mut blocks = table_block(counters_table(report, &stages, !has_counters || !is_green));
    // A table of its own, so that both fit a terminal; without nvcc there is none.
    let build_table = build_table(report, &stages);
    if build_table.columns.len() > 1 {
        blocks.push(Block::Table(build_table));
    }
    if has_counters {
        blocks.push(Block::paragraph(
            "Each stage's default variant at mission (1x8x512x64), full mask, as the emulator \
             counts it, and beside it the factor over the stage's predecessor: wavefronts and bank \
             conflicts of shared memory, tensor multiply-adds, bytes read and written in global \
             memory, barriers and waits of blocks, groups and mbarriers. Claims: those that \
             counters judge and that hold.",
        ));
    }
    blocks
}

fn stages_that_ran<'a>(report: &'a Report<'_>) -> Vec<Ran<'a>> {
    let mut ran = Vec::new();
    for stage in report.view.stages {
        if let Some(subject) = checked_variant(report, stage) {
            ran.push(Ran { stage, subject });
        }
    }
    ran
}

fn counters_table(report: &Report<'_>, ran: &[Ran<'_>], shows_gates: bool) -> Table {
    let mut rows = Vec::new();
    for Ran { stage, subject } in ran {
        let gates = if shows_gates {
            state_of(report, subject).map(state_with_gates)
        } else {
            None
        };
        let mut cells = row! { "stage" => title(stage), "gates" => or_dash(gates) };
        cells.extend(figures(report, stage, subject));
        rows.push(cells);
    }
    Table::from_rows(rows).filled()
}

fn build_table(report: &Report<'_>, ran: &[Ran<'_>]) -> Table {
    let mut rows = Vec::new();
    for Ran { stage, subject } in ran {
        let mut cells = row! { "stage" => title(stage) };
        cells.extend(build_figures(report, stage, subject));
        rows.push(cells);
    }
    Table::from_rows(rows).filled()
}

/// Returns `5 swizzle` for `stage5-swizzle`.
pub fn title(stage: &StageMeta) -> String {
    let name = stage.id.trim_start_matches("stage");
    name.replacen('-', " ", 1)
}

/// Returns `5` for `stage5-swizzle`.
pub fn number(stage: &StageMeta) -> &str {
    let name = stage.id.trim_start_matches("stage");
    name.split_once('-').map_or(name, |(number, _)| number)
}

/// Returns the default variant of a stage if the run checked it, else the first that it did.
fn checked_variant(report: &Report<'_>, stage: &StageMeta) -> Option<Subject> {
    let default = stage.subject(&stage.default_variant);
    let mut subjects = [default].into_iter().chain(stage.subjects());
    subjects.find(|subject| match state_of(report, subject) {
        None | Some(State::NotRun(_)) => false,
        Some(_) => true,
    })
}

fn state_of<'a>(report: &'a Report<'_>, subject: &Subject) -> Option<&'a State> {
    let mut states = report.states.iter();
    let (_, state) = states.find(|(other, _)| other == subject)?;
    Some(state)
}

fn counters<'a>(report: &'a Report<'_>, stage: &StageMeta, subject: &Subject) -> Option<&'a Row> {
    let table = &report.view.table;
    let row = table.row(subject, Kind::Counters(stage.first_place()))?;
    (!report.view.is_stale(row)).then_some(row)
}

/// Returns the counters of the stage's predecessor at the stage's own problem.
fn counters_before<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Option<&'a Row> {
    let before = report.view.stage(stage.predecessor.as_ref()?)?;
    let default = before.subject(&before.default_variant);
    counters(report, stage, &default)
}

fn figures(report: &Report<'_>, stage: &StageMeta, subject: &Subject) -> TableRow {
    let own = counters(report, stage, subject);
    let before = counters_before(report, stage);
    let mut cells = TableRow::new();
    for count in &COUNTS {
        cells.push((count.title.into(), count_cell(count, own, before)));
    }
    cells.push(("claims".into(), claims_cell(report, stage)));
    cells
}

fn count_cell(count: &Count, own: Option<&Row>, before: Option<&Row>) -> Cell {
    let Some(value) = own.and_then(|row| count.value(row)) else {
        return Cell::Missing;
    };
    let shown = compact(value);
    match before.and_then(|row| count.value(row)) {
        Some(base) if base > 0.0 => format!("{shown} {:.2}x", value / base).into(),
        _ => shown.into(),
    }
}

/// Returns `3 of 4`: claims that counters judge.
fn claims_cell(report: &Report<'_>, stage: &StageMeta) -> Cell {
    let mut held = 0;
    let mut judged = 0;
    for claimed in &report.claims {
        if claimed.stage != stage.id || claimed.claim.is_of_speed() {
            continue;
        }
        match claimed.finding.verdict {
            Verdict::Pass => {
                held += 1;
                judged += 1;
            }
            Verdict::Fail => judged += 1,
            Verdict::NoData | Verdict::Ambiguous => {}
        }
    }
    if judged == 0 {
        return Cell::Missing;
    }
    format!("{held} of {judged}").into()
}

/// Returns what nvcc made of the first element type at the claims' head size, by the last
/// architecture that it was asked for.
fn build_figures(report: &Report<'_>, stage: &StageMeta, subject: &Subject) -> TableRow {
    let table = &report.view.table;
    let first_instance = stage.first_place().instance();
    let built = table
        .compiled(subject)
        .filter(|compiled| Some(compiled.instance) == first_instance)
        .map(|compiled| compiled.row)
        .filter(|row| row.has(Metric::Occupancy))
        .last();
    let figure = |metric: Metric| {
        let value = built?.value(metric)?;
        Some(metric.show(value))
    };
    let blocks = built.and_then(|row| blocks::per_sm(table, row, row.value(Metric::Occupancy)?));
    row! {
        "registers" => or_dash(figure(Metric::Registers)),
        "blocks per SM" => or_dash(blocks.map(|number| number.to_string())),
        "instructions in the main loop" => or_dash(figure(Metric::LoopInstructions)),
    }
}

/// Returns three digits: `692k`, `17.8M`.
fn compact(value: f64) -> String {
    let (scaled, unit) = if value >= 999.5e6 {
        (value / 1e9, "G")
    } else if value >= 999.5e3 {
        (value / 1e6, "M")
    } else if value >= 1e3 {
        (value / 1e3, "k")
    } else {
        return format!("{value:.0}");
    };
    format!("{scaled:.*}{unit}", decimals(scaled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::verdict::{GateId, Verdict};
    use document::terminal::terminal;
    use results::judge::{View, verdict};
    use results::table::Run;
    use results::table::session::Tier;
    use results::testing::{CPASYNC, IN_EMULATOR, WMMA, counters, emulated, row};

    fn page(run: &Run) -> String {
        terminal(&blocks(&verdict::report(View::alone(run))))
    }

    #[test]
    fn a_run_in_the_emulator_shows_what_it_counted_over_the_stage_before() {
        let mut run = emulated();
        for (subject, metric, count) in [
            (WMMA, Metric::SharedReadWavefronts, 692_224.0),
            (WMMA, Metric::SharedWriteWavefronts, 299_008.0),
            (WMMA, Metric::AsyncWriteWavefronts, 0.0),
            (WMMA, Metric::SharedReadConflicts, 0.0),
            (WMMA, Metric::SharedWriteConflicts, 131_072.0),
            (WMMA, Metric::AsyncWriteConflicts, 0.0),
            (CPASYNC, Metric::SharedReadWavefronts, 300_000.0),
            (CPASYNC, Metric::SharedWriteWavefronts, 99_008.0),
            (CPASYNC, Metric::AsyncWriteWavefronts, 131_072.0),
            (CPASYNC, Metric::SharedReadConflicts, 0.0),
            (CPASYNC, Metric::SharedWriteConflicts, 0.0),
            (CPASYNC, Metric::AsyncWriteConflicts, 0.0),
        ] {
            run = run.with_figure(subject, counters(), metric, count);
        }
        let page = page(&run);
        for line in [
            "| stage     | wavefronts | conflicts | claims |",
            "| 0 scalar  | 991k       | 131k      | 1 of 1 |",
            "| 1 cpasync | 530k 0.53x | 0 0.00x   | 1 of 1 |",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn what_is_not_counted_has_no_column() {
        let quick = page(&emulated().without_counters().of_tier(Tier::T0));
        assert!(quick.contains("gates"), "{quick}");
        assert!(!quick.contains("wavefronts"), "{quick}");
    }

    #[test]
    fn a_failure_has_a_column() {
        let red = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
        let failed = page(&red).to_lowercase();
        assert!(failed.contains("fail c3"), "{failed}");
    }

    #[test]
    fn what_nvcc_made_is_a_table_of_its_own() {
        let compiled = "cpasync | f16 d64 sm_90a | ptxas | registers 120 | occupancy 0.25 | \
                        loop_instructions 357";
        let run = emulated()
            .with_row(row("cpasync | f16 d64 | kernel | threads 128"))
            .with_row(row(compiled));
        let built = page(&run);
        let line = "| 1 cpasync | 120       | 4             | 357                           |";
        assert!(built.contains(line), "{built}");
        assert!(!page(&emulated()).contains("registers"));
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
