//! `compare show`: everything that COMPARE.md leaves out.

use super::{
    cells, claims, each, ladder, list, measured, or_line, or_missing, refuted, report, sections,
    share, short, some, stage, state, text, times, us,
};
use crate::document::{Block, Document, Table, TableRow, row};
use crate::judge::best::{self, OnProblem};
use crate::judge::claims::Claimed;
use crate::judge::list::{distinct, grouped, joined};
use crate::judge::missing::Missing;
use crate::judge::peers;
use crate::judge::place;
use crate::judge::state::{State, summary};
use crate::judge::verdict::{Report, shell_word};
use crate::table::session::DeviceCompiler;
use crate::table::{self, On, Row, Session, Source, StageMeta, Subject};
use clap::ValueEnum;
use common::metric::Metric;

/// A part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Every variant, its gates and largest errors
    Gates,
    /// Device times by problem
    Latencies,
    /// Registers, spills, shared memory and occupancy of every instance; for its layout: `compare smem`
    Resources,
    /// Counters of the emulator, against the same-preset baseline
    Counters,
    /// Metrics of ncu, against the counters of the emulator
    Profile,
    /// Findings of compute-sanitizer
    Sanitizer,
    /// Every arm of the session with peers
    Peers,
    /// Every claim, with its figures
    Claims,
    /// What is worse than in the session before
    Changes,
    /// Fault injection and mutation testing
    SelfTest,
    /// Missing data, and why
    Missing,
    /// Compilers, flags and tools
    Built,
    /// What each gate demands, and when a figure has changed
    Thresholds,
}

/// The parts asked for, of the stages named or of all. Without parts each of the stages on a page; without stages either, the summary.
pub fn document(report: &Report<'_>, what: &[Section], stages: &[String]) -> Document {
    if what.is_empty() && !stages.is_empty() {
        let pages = stages.iter().flat_map(|id| stage::blocks(report, id));
        return Document::of(pages.collect());
    }
    let verdict = Some(report::verdict(report));
    let Some(session) = report.known.session() else {
        return Document {
            title: "Nothing to show".into(),
            verdict,
            ..Document::default()
        };
    };
    let show = Show {
        report,
        table: &report.known.table,
        stages,
    };
    let all = Section::value_variants().iter().copied();
    let asked = all.filter(|section| what.contains(section));
    let section = |section: Section| {
        let found = show.section(section);
        let name = section.to_possible_value();
        let title = name.map_or(String::new(), |name| name.get_name().to_string());
        (title, or_line(found, "NO DATA."))
    };
    let summary = vec![Block::Bullets(report::summary(report))];
    Document {
        title: session.name.clone(),
        verdict,
        blocks: [summary, sections(asked.map(section))].concat(),
        ..Document::default()
    }
}

struct Show<'a> {
    report: &'a Report<'a>,
    table: &'a table::Table,
    stages: &'a [String],
}

impl<'a> Show<'a> {
    fn section(&self, section: Section) -> Vec<Block> {
        match section {
            Section::Gates => self.gates(),
            Section::Latencies => self.latencies(),
            Section::Resources => self.resources(),
            Section::Counters => {
                let about =
                    "In parentheses: the figure over that of the same preset of the stage before.";
                let base = |row: &Row| self.table.row(&self.base(&row.subject)?, &row.on, row.by);
                self.on_problems(Source::Emulator, about, base)
            }
            Section::Profile => {
                let about = "In parentheses: the figure over what the emulator counts.";
                let counted = |row: &Row| self.table.row(&row.subject, &row.on, Source::Emulator);
                self.on_problems(Source::Ncu, about, counted)
            }
            Section::Sanitizer => {
                let found = measured(self.rows(Source::ComputeSanitizer));
                [some(found), self.tools(Source::ComputeSanitizer)].concat()
            }
            Section::Peers => self.peers(),
            Section::Claims => self.claims(),
            Section::Changes => {
                let since = self.report.since.as_ref();
                since.map_or(vec![], report::changes_of)
            }
            Section::SelfTest => self.self_test(),
            Section::Missing => self.missing(),
            Section::Built => self.built(),
            Section::Thresholds => super::metrics::thresholds(),
        }
    }

    fn covers(&self, stage: &str) -> bool {
        self.stages.is_empty() || self.stages.iter().any(|asked| asked == stage)
    }

    fn rows(&self, by: Source) -> impl Iterator<Item = &'a Row> {
        let table: &'a table::Table = self.table;
        let rows = table.by(by).filter(|row| row.against.is_none());
        rows.filter(|row| self.covers(row.subject.stage()))
    }

    /// Variants of the stages named; if none is named, the best of each.
    fn is_shown(&self, subject: &Subject) -> bool {
        let known = &self.report.known;
        let is_best = |stage| best::variant(known, stage) == subject.name();
        !self.stages.is_empty() || known.stage(subject.stage()).is_some_and(is_best)
    }

    /// A note below tables of best variants.
    fn only_best(&self) -> Vec<Block> {
        let note = "Best variants only; `--stage STAGE` shows every variant of a stage.";
        match self.stages.is_empty() {
            true => vec![Block::paragraph(note)],
            false => vec![],
        }
    }

    /// Failures first.
    fn gates(&self) -> Vec<Block> {
        let known = &self.report.known;
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
            let row = summary(known, subject, known.backend());
            let failures = self.report.failures.iter();
            let failures = failures.filter(|failure| failure.subject == *subject);
            let failures = failures.map(|failure| format!("{}: {}", failure.gate, failure.reason));
            let place = row.and_then(|row| row.note.clone());
            let place = match of {
                State::NotRun(why) => why.clone(),
                State::Failed(_) => joined(failures, "; "),
                _ => place.unwrap_or_default(),
            };
            let metrics = [
                Metric::Cases,
                Metric::MaxError,
                Metric::ErrorOfBound,
                Metric::RowErrorOfBound,
            ];
            [
                row! { "variant" => short(subject), "verdict" => state(of) },
                each(row, &metrics, None),
                row! { "where" => place },
            ]
            .concat()
        };
        some(Table::of(shown.iter().map(row)))
    }

    /// Problems down, the best variant of each stage across; for stages that are named, every variant.
    fn latencies(&self) -> Vec<Block> {
        let known = &self.report.known;
        if self.stages.is_empty() {
            let row = |(place, rows): &OnProblem<'_>| -> TableRow {
                let cell = |(stage, row): (&StageMeta, &Option<&Row>)| {
                    let time = row.map(|row| us(best::p50(row)));
                    let title = ladder::short(&stage.id).to_string();
                    (title, or_missing(time, "not timed"))
                };
                let title = row! { "µs of the best variant" => text(place) };
                let times = known.stages.iter().zip(rows).map(cell);
                title.into_iter().chain(times).collect()
            };
            let table = Table::of(best::by_problem(known).iter().map(row)).filled();
            return match table.rows.is_empty() {
                true => vec![],
                false => [some(table), self.only_best()].concat(),
            };
        }
        let metrics = [
            Metric::P50,
            Metric::P90,
            Metric::SingleP50,
            Metric::SmMhz,
            Metric::PowerW,
        ];
        let timed = best::shown(known).filter(|row| self.covers(row.subject.stage()));
        let row = |row: &Row| {
            let [problem, variant] = [text(&row.on), row.subject.name().into()];
            let title = row! { "problem" => problem, "variant" => variant };
            [title, each(Some(row), &metrics, None)].concat()
        };
        let table = Table::of(by_problem(timed).into_iter().map(row)).filled();
        some(table)
    }

    /// The tools that measured.
    fn tools(&self, by: Source) -> Vec<Block> {
        let sessions = self.table.sessions.values().chain(self.report.known.run);
        let tools = sessions.filter_map(|session| session.tools.get(&by));
        list(distinct(tools.map(|tools| tools.join(", "))))
    }

    /// What nvcc made of each instance, and what kernel.cu declares of it.
    fn resources(&self) -> Vec<Block> {
        let compiled = [
            Metric::Registers,
            Metric::SpillBytes,
            Metric::StackBytes,
            Metric::StaticSharedBytes,
            Metric::Occupancy,
        ];
        let declared = [
            Metric::DynamicSharedBytes,
            Metric::RegisterCap,
            Metric::SharedCapBytes,
        ];
        let row = |row: &Row| {
            [
                row! { "variant" => short(&row.subject), "instance" => text(&row.on) },
                each(Some(row), &compiled, None),
                each(self.table.declared(row), &declared, None),
            ]
            .concat()
        };
        let rows = self.rows(Source::Ptxas);
        let rows = rows.filter(|row| self.is_shown(&row.subject));
        let table = Table::of(rows.map(row));
        match table.rows.is_empty() {
            true => vec![],
            false => [some(table), self.only_best()].concat(),
        }
    }

    /// The same preset of the predecessor's default family.
    fn base(&self, subject: &Subject) -> Option<Subject> {
        let known = &self.report.known;
        let stage = known.stage(subject.stage())?;
        let before = known.stage(stage.predecessor.as_deref()?)?;
        let family = &before.variant(&before.default_variant)?.family;
        let preset = stage.variant(subject.name())?.preset();
        Some(before.subject(&before.same_preset(family, preset)?.name))
    }

    /// The figures of one source on problems.
    fn on_problems(
        &self,
        by: Source,
        about: &str,
        base: impl Fn(&Row) -> Option<&'a Row>,
    ) -> Vec<Block> {
        let rows = self.rows(by).filter(|row| row.on.problem().is_some());
        let rows = rows.filter(|row| self.is_shown(&row.subject));
        let table = Table::of(rows.map(|row| cells(row, base(row)))).filled();
        match table.rows.is_empty() {
            true => vec![],
            false => [
                vec![Block::paragraph(about), Block::Table(table)],
                self.tools(by),
                self.only_best(),
            ]
            .concat(),
        }
    }

    fn peers(&self) -> Vec<Block> {
        let known = &self.report.known;
        let problems = peers::problems(known);
        let place = |arm: &Row| {
            let mut problems = problems.iter();
            problems.position(|problem| problem.ours.on == arm.on)
        };
        let metrics = [
            Metric::P50,
            Metric::SingleP50,
            Metric::HostP50,
            Metric::MaxError,
        ];
        let row = |arm: &Row| {
            let over =
                place(arm).and_then(|at| peers::over(known, problems[at].ours, &arm.subject));
            let over = over.map(|over| times(over.estimate(Metric::SpeedupP50)));
            [
                row! { "problem" => text(&arm.on), "arm" => short(&arm.subject) },
                each(Some(arm), &metrics, None),
                row! { "peer / ours" => or_missing(over, "no pair") },
            ]
            .concat()
        };
        let mut arms: Vec<&Row> = peers::arms(known).collect();
        // Those without a peer come last.
        arms.sort_by_key(|arm| place(arm).unwrap_or(usize::MAX));
        let note = |arm: &&Row| {
            let note = arm.failures().next().or_else(|| arm.note.clone())?;
            Some(format!("{}, {}: {note}", arm.on, arm.subject))
        };
        let notes = list(arms.iter().filter_map(note));
        let table = some(Table::of(by_problem(arms).into_iter().map(row)));
        let ceiling = self.table.row(&"ceiling".into(), &On::All, Source::Peers);
        let ceiling = some(measured(ceiling));
        [table, notes, ceiling, self.tools(Source::Peers)].concat()
    }

    fn claims(&self) -> Vec<Block> {
        let all = self.report.claims.iter();
        let all: Vec<&Claimed> = all.filter(|of| self.covers(&of.stage)).collect();
        let more = |of: &Claimed| {
            let pair = of.finding.pair.as_ref();
            let same = pair.and_then(|pair| pair.same_preset);
            let recorded = of
                .negative
                .as_ref()
                .map(|negative| negative.measured.as_str());
            row! {
                "recorded as refuted" => or_missing(recorded, "not refuted"),
                "same preset" => or_missing(same.map(share), "no such pair"),
                "session" => of.session.as_deref().unwrap_or("–"),
                "because" => &of.claim.why,
            }
        };
        [some(claims(&all, more)), list(refuted(&all))].concat()
    }

    fn self_test(&self) -> Vec<Block> {
        let is_site = |row: &Row| !row.subject.name().is_empty();
        let rows = self.table.by(Source::SelfTest);
        let rows = rows.filter(|row| !is_site(row) || self.covers(row.subject.stage()));
        super::self_test::blocks(rows.collect::<Vec<_>>())
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

    fn built(&self) -> Vec<Block> {
        let stage = |stage: &StageMeta| {
            row! {
                "stage" => &stage.id,
                "idea" => &stage.idea,
                "identity" => format!("{:.12}", stage.identity),
            }
        };
        let stages = self.report.known.stages.iter();
        let stages = stages.filter(|stage| self.covers(&stage.id)).map(stage);
        let session = |session: &Session| {
            row! {
                "session" => &session.name,
                "command" => joined(session.command.iter().map(|word| shell_word(word)), " "),
                "source" => super::commit(&session.git),
                "on" => place(session),
                "compilers" => match &session.device_compiler {
                    DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}, {}", session.host_compiler),
                    DeviceCompiler::Absent { .. } => session.host_compiler.clone(),
                },
            }
        };
        let sessions = self.table.sessions.values().map(session);
        [some(Table::of(stages)), some(Table::of(sessions))].concat()
    }
}

/// By problem, in the order of first occurrence, and of each the fastest first.
fn by_problem<'a>(timed: impl IntoIterator<Item = &'a Row>) -> Vec<&'a Row> {
    let groups = grouped(timed.into_iter().map(|row| (&row.on, row))).into_iter();
    let sorted = groups.flat_map(|(_, mut rows)| {
        rows.sort_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
        rows
    });
    sorted.collect()
}
