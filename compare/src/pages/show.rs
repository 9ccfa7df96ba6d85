//! `compare show`: everything that COMPARE.md leaves out.

use super::columns::main_loop;
use super::{
    cells, claims, each, list, or_dash, or_line, report, sections, short, some, state, times, us,
};
use crate::document::{Block, Cell, Table, TableRow, Text, row};
use crate::judge::best;
use crate::judge::blocks;
use crate::judge::claims::Claimed;
use crate::judge::list::{distinct, grouped, joined};
use crate::judge::missing::Missing;
use crate::judge::state::{State, summary};
use crate::judge::targets::{Target, targets};
use crate::judge::verdict::Report;
use crate::table::{Row, Source, Subject};
use clap::ValueEnum;
use common::metric::Metric;

/// A part of a run.
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

/// What is shown of stages where no part is asked for.
const OF_STAGES: [Section; 3] = [Section::Gates, Section::Latencies, Section::Claims];

/// What is asked of a table or run.
#[derive(Default)]
pub struct Asked<'a> {
    pub parts: &'a [Section],
    /// None means all.
    pub stages: &'a [String],
    /// The goal of [`Section::Targets`].
    pub goal_us: Option<f64>,
    /// The rows of [`Section::Shared`].
    pub shared: Vec<TableRow>,
}

/// The parts asked for, of the stages named or of all. Without parts [`OF_STAGES`]; without stages either, the summary.
pub fn document(report: &Report<'_>, asked: &Asked<'_>) -> Vec<Block> {
    let stages = asked.stages;
    let what = match asked.parts {
        [] if !stages.is_empty() => &OF_STAGES,
        what => what,
    };
    let verdict = Block::strong(report::verdict(report));
    let Some(session) = report.view.session() else {
        return vec![Block::title("Nothing to show"), verdict];
    };
    let show = Show {
        report,
        stages,
        goal_us: asked.goal_us,
        shared: &asked.shared,
    };
    let all = Section::value_variants().iter().copied();
    let asked = all.filter(|section| what.contains(section));
    let section = |section: Section| {
        let found = show.section(section);
        let name = section.to_possible_value();
        let title = name.map_or(String::new(), |name| name.get_name().to_string());
        (title, or_line(found, "NO DATA."))
    };
    let title = Block::title(&session.name);
    let head = vec![title, verdict, Block::Bullets(report::summary(report))];
    [head, sections(Block::section, asked.map(section))].concat()
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
        let all = Metric::ALL;
        match section {
            Section::Gates => self.gates(),
            Section::Latencies => self.measured(&[Source::Gpu], all),
            Section::Resources => self.measured(&[Source::Ptxas, Source::Kernel], &RESOURCES),
            Section::Shared => super::shared::table(self.shared.to_vec()),
            Section::Targets => self.targets(),
            Section::Counters => self.measured(&[Source::Emulator], all),
            Section::Profile => self.measured(&[Source::Ncu], all),
            Section::Sanitizer => self.measured(&[Source::ComputeSanitizer], all),
            Section::Peers => self.measured(&[Source::Peers], all),
            Section::Claims => self.claims(),
            Section::SelfTest => {
                let tested = self.report.view.table.self_tests();
                let tested = tested.filter(|row| {
                    row.subject.name().is_empty() || self.covers(row.subject.stage())
                });
                super::self_test::blocks(tested)
            }
            Section::Missing => self.missing(),
        }
    }

    fn covers(&self, stage: &str) -> bool {
        self.stages.is_empty() || self.stages.iter().any(|asked| asked == stage)
    }

    /// The figures of these sources, place by place, the fastest first; of kernels, where no stage is named, those of the best variants.
    fn measured(&self, source: &[Source], metrics: &[Metric]) -> Vec<Block> {
        let view = &self.report.view;
        let is_best = |row: &Row| {
            let stage = view.stage(row.subject.stage());
            stage.is_some_and(|stage| best::subject(view, stage) == row.subject)
        };
        let is_shown = |row: &&Row| match row.source() {
            Source::Peers => true,
            Source::ComputeSanitizer => self.covers(row.subject.stage()),
            Source::Gpu if best::withheld(view, row).is_some() || !row.is_latency() => false,
            Source::Emulator if row.problem().is_none() => false,
            _ if self.stages.is_empty() => is_best(row),
            _ => self.covers(row.subject.stage()),
        };
        let rows = view
            .table
            .rows()
            .filter(|row| source.contains(&row.source()));
        let by_place = grouped(rows.filter(is_shown).map(|row| (row.place(), row))).into_iter();
        let rows = by_place.flat_map(|(_, mut rows)| {
            rows.sort_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
            rows
        });
        let build_cells = |row: &Row| {
            let occupancy = row.value(Metric::Occupancy);
            let blocks = occupancy.and_then(|of| blocks::per_sm(&view.table, row, of));
            row! {
                "blocks per SM" => or_dash(blocks.map(|blocks| Cell::Figure(blocks.to_string()))),
                "main loop" => or_dash(main_loop(row)),
            }
        };
        let row = |row: &Row| match row.source() {
            Source::Ptxas | Source::Kernel => [cells(row, metrics), build_cells(row)].concat(),
            _ => cells(row, metrics),
        };
        let table = Table::of(rows.map(row)).filled();
        if table.rows.is_empty() {
            return vec![];
        }
        let sessions = view.table.sessions.values().chain(view.run);
        let tools = sessions.filter_map(|session| session.tools.get(&source[0]));
        let tools = distinct(tools.map(|tools| tools.join(", ")));
        let has_all = matches!(source[0], Source::Peers | Source::ComputeSanitizer);
        let best = (!has_all && self.stages.is_empty())
            .then(|| "Best variants only; `--stage STAGE` shows every variant of a stage.".into());
        [some(table), list(best.into_iter().chain(tools))].concat()
    }

    fn gates(&self) -> Vec<Block> {
        let view = &self.report.view;
        let states = self.report.states.iter();
        let states = states.filter(|(subject, _)| self.covers(subject.stage()));
        let rank = |of: &State| match of {
            State::Failed(_) => 0,
            State::Green => 2,
            State::NotRun(_) => 3,
            _ => 1,
        };
        let mut shown: Vec<&(Subject, State)> = states.collect();
        shown.sort_by_key(|(_, of)| rank(of));
        let row = |(subject, of): &&(Subject, State)| {
            let row = summary(view, subject, view.backend());
            let failures = self.report.failures.iter();
            let failures = failures.filter(|failure| failure.subject == *subject);
            let failures = failures.map(|failure| format!("{}: {}", failure.gate, failure.reason));
            let place = row.and_then(|row| row.note.clone());
            let place = match of {
                State::NotRun(why) => why.clone(),
                State::Failed(_) => joined(failures, "; "),
                _ => place.unwrap_or_default(),
            };
            // A largest error alone says little: inputs of the family wide-range have outputs of 1e10.
            let metrics = [
                Metric::Cases,
                Metric::ErrorOfBound,
                Metric::RowErrorOfBound,
                Metric::MaxError,
            ];
            [
                row! { "variant" => short(subject), "verdict" => state(of) },
                each(row, &metrics),
                row! { "where" => place },
            ]
            .concat()
        };
        some(Table::of(shown.iter().map(row)))
    }

    fn claims(&self) -> Vec<Block> {
        let all = self.report.claims.iter();
        let all: Vec<&Claimed> = all.filter(|of| self.covers(&of.stage)).collect();
        let more = |of: &Claimed| {
            let same = of.finding.same_preset;
            let recorded = of
                .negative
                .as_ref()
                .map(|negative| negative.measured.as_str());
            row! {
                "recorded as refuted" => or_dash(recorded),
                "same preset" => or_dash(same.map(|ratio| times(ratio, 3))),
                "session" => of.session().unwrap_or("–"),
                "because" => &of.claim.why,
            }
        };
        [some(claims(&all, more)), list(refuted(&all))].concat()
    }

    fn targets(&self) -> Vec<Block> {
        let view = &self.report.view;
        let claims = self.report.claims.iter();
        let claims = claims.filter(|claimed| self.covers(&claimed.stage));
        let row = |target: &Target<'_>| {
            let reached = target.is_reached();
            row! {
                "claim" => target.claimed.title(),
                "base" => short(&target.base),
                "base µs" => us(target.base_us),
                "claimed µs" => us(target.claimed_us()),
                "measured µs" => or_dash(target.measured_us.map(us)),
                "goal µs" => or_dash(target.goal_us.map(us)),
                "needs base <" => or_dash(target.needed_base_us().map(us)),
                "reached as claimed" => or_dash(reached.map(|is| if is { "yes" } else { "no" })),
            }
        };
        let targets = targets(view, claims, self.goal_us);
        let about = "Claimed: the base's time divided by what is claimed. The goal is the fastest peer's time, or `--goal`; a claim that \
                     just holds reaches it if the base takes less than what stands under `needs base <`.";
        let about = (!targets.is_empty()).then(|| Block::paragraph(about));
        let table = Table::of(targets.iter().map(row)).filled();
        let shown = some(table).into_iter().chain(about).collect();
        or_line(shown, "No claim over another stage whose base was timed.")
    }

    fn missing(&self) -> Vec<Block> {
        let row = |missing: &Missing| {
            row! {
                "what" => &missing.what,
                "why" => &missing.why,
                "required" => if missing.required { "yes" } else { "no" },
            }
        };
        let table = Table::of(self.report.missing.iter().map(row));
        or_line(some(table), "Nothing is missing.")
    }
}

/// Why each claim that is refuted is.
fn refuted(claims: &[&Claimed]) -> Vec<Text> {
    claims
        .iter()
        .filter(|of| of.is_unexpected().is_none())
        .filter_map(|of| {
            let why = &of.negative.as_ref()?.why;
            Some(Text::from(format!(
                "NEGATIVE, {}: {}: {why}",
                of.stage, of.claim
            )))
        })
        .collect()
}
