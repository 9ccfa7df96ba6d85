//! `compare show`: everything that COMPARE.md leaves out.

mod gates;
mod measured;

use super::blocks::{Titled, bullets, claims_table, or_sentence, sections, table_block};
use super::cells::{or_dash, ratio_cell, us_cell};
use super::words::short_name;
use super::{ladder, report, self_test, shared};
use clap::ValueEnum;
use common::metric::Metric;
use document::{Block, Table, TableRow, Text, row};
use results::judge::claims::Claimed;
use results::judge::targets::{Target, targets};
use results::judge::verdict::Report;
use results::table::{Session, Source};

/// A part of a table or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Every variant, its gates and largest errors
    Gates,
    /// Device times by problem
    Latencies,
    /// Registers, spills, shared memory, blocks per SM and main loop of every instance
    Resources,
    /// Shared memory by buffer, as the C++ compiler lays it out
    Shared,
    /// Counters of the emulator
    Counters,
    /// Metrics of ncu
    Profile,
    /// Findings of compute-sanitizer
    Sanitizer,
    /// Every arm of the session with peers
    Peers,
    /// Every claim, with its figures
    Claims,
    /// Claims of speed in µs, and the base that a goal needs
    Targets,
    /// Fault injection and mutation testing
    SelfTest,
    /// Missing data, and why
    Missing,
}

/// The parts that are shown of stages where no part is asked for.
const PARTS_OF_STAGES: [Section; 3] = [Section::Gates, Section::Latencies, Section::Claims];

/// The question about a table or run.
#[derive(Default)]
pub struct Asked<'a> {
    pub parts: &'a [Section],
    /// The stages; none means all.
    pub stages: &'a [String],
    /// The goal of [`Section::Targets`].
    pub goal_us: Option<f64>,
    /// The rows of [`Section::Shared`].
    pub shared: Vec<TableRow>,
}

/// Returns the parts asked for, of the stages named or of all. Without parts it returns the
/// ladder's rows and [`PARTS_OF_STAGES`]; without stages either, the summary.
pub fn document(report: &Report<'_>, asked: &Asked<'_>) -> Vec<Block> {
    let verdict = Block::strong(report::verdict(report));
    let Some(session) = report.view.session() else {
        return vec![Block::title("Nothing to show"), verdict];
    };
    let show = Show {
        report,
        stages: asked.stages,
        goal_us: asked.goal_us,
        shared: &asked.shared,
    };
    let wanted = if asked.parts.is_empty() && !asked.stages.is_empty() {
        &PARTS_OF_STAGES
    } else {
        asked.parts
    };
    let mut parts = Vec::new();
    if asked.parts.is_empty() {
        parts.push(Titled::new("ladder", show.ladder_rows()));
    }
    for section in Section::value_variants() {
        if wanted.contains(section) {
            let blocks = or_sentence(show.section(*section), "Not measured.");
            parts.push(Titled::new(section_name(*section), blocks));
        }
    }
    let mut blocks = vec![
        Block::title(&title(report, session)),
        verdict,
        Block::Bullets(report::summary(report)),
    ];
    blocks.extend(sections(Block::section, parts));
    blocks
}

/// Returns the name of the run, or of the committed table, whose figures are of many sessions.
fn title(report: &Report<'_>, session: &Session) -> String {
    match report.view.gpu() {
        Some(gpu) if report.view.run.is_none() => {
            format!(
                "The committed table of {gpu}, newest session {}",
                session.name
            )
        }
        _ => session.name.clone(),
    }
}

/// Returns the name of a section, as the command line has it.
fn section_name(section: Section) -> String {
    match section.to_possible_value() {
        Some(value) => value.get_name().to_string(),
        None => String::new(),
    }
}

struct Show<'a> {
    report: &'a Report<'a>,
    stages: &'a [String],
    goal_us: Option<f64>,
    shared: &'a [TableRow],
}

const RESOURCES: [Metric; 10] = [
    Metric::Threads,
    Metric::Registers,
    Metric::SpillBytes,
    Metric::StackBytes,
    Metric::StaticSharedBytes,
    Metric::DynamicSharedBytes,
    Metric::CodeBytes,
    Metric::Occupancy,
    Metric::RegisterCap,
    Metric::SharedCapBytes,
];

impl Show<'_> {
    fn section(&self, section: Section) -> Vec<Block> {
        match section {
            Section::Gates => self.gates(),
            Section::Latencies => self.measured(&[Source::Gpu], Metric::ALL),
            Section::Resources => self.measured(&[Source::Ptxas, Source::Kernel], &RESOURCES),
            Section::Shared => shared::table(self.shared.to_vec()),
            Section::Targets => self.targets(),
            Section::Counters => self.measured(&[Source::Emulator], Metric::ALL),
            Section::Profile => self.measured(&[Source::Ncu], Metric::ALL),
            Section::Sanitizer => self.measured(&[Source::ComputeSanitizer], Metric::ALL),
            Section::Peers => self.measured(&[Source::Peers], Metric::ALL),
            Section::Claims => self.claims(),
            Section::SelfTest => self.self_test(),
            Section::Missing => self.missing(),
        }
    }

    /// Returns the ladder's row of each stage that is asked for.
    fn ladder_rows(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for stage in self.report.view.stages {
            if self.stages.contains(&stage.id) {
                let row = ladder::stage_row(self.report, stage);
                blocks.push(Block::Table(Table::from_rows([row]).filled()));
            }
        }
        blocks
    }

    fn covers(&self, stage: &str) -> bool {
        self.stages.is_empty() || self.stages.iter().any(|asked| asked == stage)
    }

    fn self_test(&self) -> Vec<Block> {
        let rows = self.report.view.table.self_tests();
        self_test::blocks(rows.filter(|row| {
            let is_of_harness = row.subject.name().is_empty();
            is_of_harness || self.covers(row.subject.stage())
        }))
    }

    fn claims(&self) -> Vec<Block> {
        let claims: Vec<&Claimed> = self
            .report
            .claims
            .iter()
            .filter(|claimed| self.covers(&claimed.stage))
            .collect();
        let mut blocks = table_block(claims_table(&claims, claim_columns));
        blocks.extend(bullets(refuted(&claims)));
        blocks
    }

    fn targets(&self) -> Vec<Block> {
        let claims = self.report.claims.iter();
        let covered = claims.filter(|claimed| self.covers(&claimed.stage));
        let targets = targets(&self.report.view, covered, self.goal_us);
        if targets.is_empty() {
            return vec![Block::paragraph(
                "No claim over another stage whose base was timed.",
            )];
        }
        vec![
            Block::Table(Table::from_rows(targets.iter().map(target_row)).filled()),
            Block::paragraph(
                "Claimed: the base's time divided by what is claimed. The goal is the fastest \
                 peer's time, or `--goal`; a claim that just holds reaches it if the base takes \
                 less than what stands under `needs base <`.",
            ),
        ]
    }

    fn missing(&self) -> Vec<Block> {
        let mut rows = Vec::new();
        for missing in &self.report.missing {
            rows.push(row! {
                "what" => &missing.what,
                "why" => &missing.why,
                "required" => yes_or_no(missing.required),
            });
        }
        or_sentence(table_block(Table::from_rows(rows)), "Nothing is missing.")
    }
}

fn claim_columns(claimed: &Claimed) -> TableRow {
    let recorded = claimed
        .negative
        .as_ref()
        .map(|negative| negative.measured.as_str());
    let same_preset = claimed.finding.same_preset;
    row! {
        "recorded as refuted" => or_dash(recorded),
        "same preset" => or_dash(same_preset.map(|ratio| ratio_cell(ratio, 3))),
        "session" => claimed.session().unwrap_or("–"),
        "because" => &claimed.claim.why,
    }
}

/// Returns why each claim that is refuted is.
fn refuted(claims: &[&Claimed]) -> Vec<Text> {
    let mut lines = Vec::new();
    for claimed in claims {
        match &claimed.negative {
            Some(negative) if claimed.is_unexpected().is_none() => {
                lines.push(Text::from(format!(
                    "NEGATIVE, {}: {}: {}",
                    claimed.stage, claimed.claim, negative.why
                )));
            }
            _ => {}
        }
    }
    lines
}

fn target_row(target: &Target<'_>) -> TableRow {
    row! {
        "claim" => target.claimed.title(),
        "base" => short_name(&target.base),
        "base µs" => us_cell(target.base_us),
        "claimed µs" => us_cell(target.claimed_us()),
        "measured µs" => or_dash(target.measured_us.map(us_cell)),
        "goal µs" => or_dash(target.goal_us.map(us_cell)),
        "needs base <" => or_dash(target.needed_base_us().map(us_cell)),
        "reached as claimed" => or_dash(target.is_reached().map(yes_or_no)),
    }
}

fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "no" }
}
