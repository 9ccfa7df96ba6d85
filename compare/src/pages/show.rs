//! `compare show`: everything that COMPARE.md leaves out.

use super::{
    each, figure, ladder, limit, list, missing, of, or_line, or_missing, report, sections, share,
    short, some, stage, standing, state, text, times, us, whole,
};
use crate::document::{Block, Document, Table, TableRow, row};
use crate::judge::best::{self, OnProblem};
use crate::judge::claims::Claimed;
use crate::judge::list::{distinct, grouped, joined};
use crate::judge::missing::Missing;
use crate::judge::peers;
use crate::judge::place;
use crate::judge::state::{self as judged, State};
use crate::judge::verdict::Report;
use crate::record::meta::DeviceCompiler;
use crate::record::ncu;
use crate::record::{self, Meta, On, Row, Source, StageMeta, Subject, VariantMeta};
use clap::ValueEnum;
use common::metric::Metric;
use common::verdict::Verdict;

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

impl Section {
    /// `Self-test`
    fn title(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| capital(value.get_name()))
    }
}

fn capital(words: &str) -> String {
    words[..1].to_uppercase() + &words[1..]
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
        (section.title(), or_line(found, "NO DATA."))
    };
    let summary = vec![Block::Bullets(report::summary(report))];
    Document {
        title: session.session.clone(),
        verdict,
        blocks: [summary, sections(asked.map(section))].concat(),
        ..Document::default()
    }
}

struct Show<'a> {
    report: &'a Report<'a>,
    table: &'a record::Table,
    stages: &'a [String],
}

impl<'a> Show<'a> {
    fn section(&self, section: Section) -> Vec<Block> {
        match section {
            Section::Gates => self.gates(),
            Section::Latencies => self.latencies(),
            Section::Resources => self.resources(),
            Section::Counters => self.counters(),
            Section::Profile => self.profile(),
            Section::Sanitizer => self.sanitizer(),
            Section::Peers => self.peers(),
            Section::Claims => self.claims(),
            Section::Changes => self.changes(),
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
        let table: &'a record::Table = self.table;
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
        let said = "Best variants only; `--stage STAGE` shows every variant of a stage.";
        match self.stages.is_empty() {
            true => vec![Block::paragraph(said)],
            false => vec![],
        }
    }

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
        let row = |(subject, of_variant): &&(Subject, State)| {
            let row = judged::summary(known, subject, known.backend());
            let gates = judged::gates(known, subject);
            let with = |verdict: Verdict| judged::with(&gates, verdict);
            let kinds = [
                Verdict::Fail,
                Verdict::Ambiguous,
                Verdict::NoData,
                Verdict::Pass,
            ];
            let said = kinds.into_iter().filter_map(|verdict| {
                let gates = joined(with(verdict).map(|(gate, _)| gate), " ");
                (!gates.is_empty()).then(|| format!("{verdict} {gates}"))
            });
            let said = match of_variant {
                State::NotRun(why) => why.clone(),
                _ => joined(said, "; "),
            };
            let why =
                with(Verdict::Fail).map(|(gate, judged)| format!("{gate}: {}", judged.reason));
            let why = Some(joined(why, "; ")).filter(|why| !why.is_empty());
            let place = row.and_then(|row| row.note.clone());
            row! {
                "variant" => short(subject),
                "verdict" => state(of_variant),
                "cases" => of(row, Metric::Cases),
                "gates" => said,
                "max error" => of(row, Metric::MaxError),
                "error / bound" => of(row, Metric::ErrorOfBound),
                "row error / bound" => of(row, Metric::RowErrorOfBound),
                "where" => why.or(place).unwrap_or_default(),
            }
        };
        some(Table::of(shown.iter().map(row)))
    }

    /// Problems down, the best variant of each stage across; for stages that are named, every variant.
    fn latencies(&self) -> Vec<Block> {
        let known = &self.report.known;
        if self.stages.is_empty() {
            let problems = best::by_problem(known);
            let is_timed = |at: &usize| problems.iter().any(|(_, rows)| rows[*at].is_some());
            let timed: Vec<usize> = (0..known.stages.len()).filter(is_timed).collect();
            let row = |(place, rows): &OnProblem<'_>| -> TableRow {
                let cell = |at: &usize| {
                    let time = rows[*at].map(|row| us(best::p50(row)));
                    let title = ladder::short(&known.stages[*at].id).to_string();
                    (title, or_missing(time, "not timed"))
                };
                let title = row! { "µs of the best variant" => text(place) };
                title.into_iter().chain(timed.iter().map(cell)).collect()
            };
            let table = some(Table::of(problems.iter().map(row)));
            return match table.is_empty() {
                true => table,
                false => [table, self.only_best()].concat(),
            };
        }
        let row = |row: &Row| {
            let withheld = best::withheld(known, row);
            let time = withheld.map_or_else(|| us(best::p50(row)), missing);
            let variant = row! {
                "problem" => text(&row.on),
                "variant" => row.subject.name(),
                "p50 µs" => time,
            };
            let metrics = [
                Metric::P90,
                Metric::SingleP50,
                Metric::SmMhz,
                Metric::PowerW,
            ];
            [variant, each(Some(row), metrics)].concat()
        };
        let timed = best::timed(self.table).filter(|row| self.covers(row.subject.stage()));
        let left_out = known.run.iter().flat_map(|run| &run.left_out);
        let left_out = left_out.filter(|(stage, _)| self.covers(stage));
        let left_out = left_out.map(|(stage, n)| {
            format!(
                "{stage}: {n} timings left out: where no claims are judged, variants of which three faster ones are known were not \
                 timed; --all-variants times them"
            )
        });
        let table = some(Table::of(by_problem(timed).into_iter().map(row)));
        [table, list(left_out)].concat()
    }

    /// The tools that measured.
    fn tools(&self, by: Source) -> Vec<Block> {
        let sessions = self.table.sessions.values().chain(self.report.known.run);
        let tools = sessions.filter_map(|session| session.tools.get(&by));
        let tools = distinct(tools.map(|tools| tools.join(", ")));
        list(tools)
    }

    fn resources(&self) -> Vec<Block> {
        let row = |row: &Row| {
            let declared = self.table.declared(row);
            let dynamic = declared.and_then(|declared| declared.value(Metric::DynamicSharedBytes));
            let fixed = row.value(Metric::StaticSharedBytes).unwrap_or(0.0);
            let shared = dynamic.map(|dynamic| whole(dynamic + fixed));
            let occupancy = match row.value(Metric::Occupancy) {
                Some(0.0) => "0 blocks/SM".into(),
                _ => of(Some(row), Metric::Occupancy),
            };
            let judged = row.verdicts.values().next();
            let judged = judged.map(|judged| text(judged.verdict));
            row! {
                "variant" => short(&row.subject),
                "instance" => text(&row.on),
                "registers" => of(Some(row), Metric::Registers),
                "limit" => limit(declared),
                "cap" => of(declared, Metric::RegisterCap),
                "spilled B" => of(Some(row), Metric::SpillBytes),
                "stack B" => of(Some(row), Metric::StackBytes),
                "shared B" => or_missing(shared, "not declared"),
                "shared cap" => of(declared, Metric::SharedCapBytes),
                "occupancy" => occupancy,
                "R1" => or_missing(judged, "not judged"),
            }
        };
        some(Table::of(self.rows(Source::Ptxas).map(row)))
    }

    /// The same-preset variant of the predecessor, in the family of its default if that has one.
    fn base(&self, subject: &Subject) -> Option<Subject> {
        let known = &self.report.known;
        let stage = known.stage(subject.stage())?;
        let preset = stage.variant(subject.name())?.preset();
        let before: &StageMeta = known.stage(stage.predecessor.as_deref()?)?;
        let default = before.variant(&before.default_variant);
        let family = default.map_or("", |variant| &variant.family);
        let same = |variant: &&VariantMeta| variant.preset() == preset;
        let found = before.family(family).find(same);
        let found = found.or_else(|| before.variants.iter().find(same))?;
        Some(before.subject(&found.name))
    }

    fn counters(&self) -> Vec<Block> {
        let by = Source::Emulator;
        let base = |row: &Row| self.table.row(&self.base(&row.subject)?, &row.on, by);
        let titles = ["value", "same-preset baseline", "value / baseline"];
        [self.beside(by, titles, base), self.only_best()].concat()
    }

    fn profile(&self) -> Vec<Block> {
        let counted = |row: &Row| self.table.row(&row.subject, &row.on, Source::Emulator);
        let titles = ["ncu", "emulator", "ncu / emulator"];
        let blocks = self.beside(Source::Ncu, titles, counted);
        let tools = match blocks.is_empty() {
            true => vec![],
            false => self.tools(Source::Ncu),
        };
        [blocks, tools, self.only_best()].concat()
    }

    /// The figures of one source on problems beside those of another row, without those that are 0 in both.
    fn beside(
        &self,
        by: Source,
        [value, base, ratio]: [&str; 3],
        other: impl Fn(&Row) -> Option<&'a Row>,
    ) -> Vec<Block> {
        let none = "nothing to compare with";
        let mut rows: Vec<TableRow> = Vec::new();
        let of_problems = self.rows(by).filter(|row| row.on.problem().is_some());
        for row in of_problems.filter(|row| self.is_shown(&row.subject)) {
            let other = other(row);
            for (&metric, is) in &row.figures {
                let (is, was) = (is.value, other.and_then(|other| other.value(metric)));
                if is == 0.0 && was.unwrap_or(0.0) == 0.0 {
                    continue;
                }
                let formula = ncu::formula(metric).filter(|formula| {
                    by == Source::Ncu && was.is_none() && !formula.meaning.is_empty()
                });
                let over = was.filter(|was| *was != 0.0).map(|was| share(is / was));
                rows.push(row! {
                    "variant" => row.subject.name(),
                    "problem" => text(&row.on),
                    "figure" => super::noted(text(metric), formula.map(|formula| formula.meaning)),
                    value => figure(metric, is),
                    base => or_missing(was.map(|was| figure(metric, was)), none),
                    ratio => or_missing(over, none),
                });
            }
        }
        some(Table::of(rows))
    }

    fn sanitizer(&self) -> Vec<Block> {
        let by = Source::ComputeSanitizer;
        let rows = self.rows(by).flat_map(|row| {
            row.verdicts.values().map(move |judged| {
                let (passed, all) = (judged.passed.unwrap_or(0), judged.of.unwrap_or(0));
                row! {
                    "variant" => short(&row.subject),
                    "C7" => text(judged.verdict),
                    "tools passed" => format!("{passed} of {all}"),
                    "launches" => of(Some(row), Metric::Cases),
                    "why" => &judged.reason,
                }
            })
        });
        [some(Table::of(rows)), self.tools(by)].concat()
    }

    fn peers(&self) -> Vec<Block> {
        let known = &self.report.known;
        let problems = peers::problems(known);
        let time =
            |arm: &Row, metric: Metric| or_missing(arm.value(metric).map(us), "it was not timed");
        let place = |arm: &Row| {
            problems
                .iter()
                .position(|problem| problem.ours.on == arm.on)
        };
        let row = |arm: &Row| {
            let problem = place(arm).map(|at| &problems[at]);
            let over = problem.and_then(|of| peers::over(known, of.ours, &arm.subject));
            let over = over.and_then(|over| over.figures.get(&Metric::SpeedupP50));
            row! {
                "problem" => text(&arm.on),
                "arm" => short(&arm.subject),
                "p50 µs" => time(arm, Metric::P50),
                "single µs" => time(arm, Metric::SingleP50),
                "host µs" => time(arm, Metric::HostP50),
                "max error" => of(Some(arm), Metric::MaxError),
                "peer / ours" => or_missing(over.map(|over| times(*over)), "no pair"),
            }
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
        let ceiling = ceiling.map(|row| {
            let figures = [Metric::MatrixFlops, Metric::CopyBytesPerSecond];
            let [flops, copy] =
                figures.map(|metric| format!("{metric} {}", of(Some(row), metric).shown()));
            Block::paragraph(format!(
                "Reached by that GPU: {flops} (FLOP/s), {copy} (B/s)."
            ))
        });
        let ceiling = ceiling.into_iter().collect();
        let mut about = report::beside(self.report);
        about.truncate(1);
        [about, table, notes, ceiling, self.tools(Source::Peers)].concat()
    }

    fn claims(&self) -> Vec<Block> {
        let row = |of: &Claimed| {
            let pair = of.finding.pair.as_ref();
            let same = pair.and_then(|pair| pair.same_preset);
            row! {
                "claim" => of.claim.to_string(),
                "verdict" => standing(of).0,
                "measured" => &of.finding.reason,
                "same preset" => or_missing(same.map(share), "no such pair"),
                "session" => of.session.as_deref().unwrap_or("–"),
                "because" => &of.claim.why,
            }
        };
        let claims = || {
            self.report
                .claims
                .iter()
                .filter(|of| self.covers(&of.stage))
        };
        let by_stage = grouped(claims().map(|of| (&of.stage, row(of))));
        let table = |(stage, rows)| [Block::subsection(stage), Block::Table(Table::of(rows))];
        let tables = by_stage.into_iter().flat_map(table);
        let negatives = grouped(claims().filter_map(|of| {
            let negative = of.negative.as_ref()?;
            Some((
                &negative.why,
                format!("{}: {}", of.title(), negative.measured),
            ))
        }));
        let negatives = negatives.into_iter().flat_map(|(why, lines)| {
            let head = Block::paragraph(format!("NEGATIVE: {why}"));
            [vec![head], list(lines)].concat()
        });
        tables.chain(negatives).collect()
    }

    fn changes(&self) -> Vec<Block> {
        self.report
            .since
            .as_ref()
            .map_or(vec![], report::changes_of)
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
        let known = &self.report.known;
        let row = |stage: &StageMeta| {
            let compiler = match &stage.device_compiler {
                DeviceCompiler::Built { nvcc, archs, .. } => {
                    format!("nvcc {nvcc}: {}", archs.join(", "))
                }
                DeviceCompiler::Absent { reason } => format!("none: {reason}"),
            };
            row! {
                "stage" => &stage.id,
                "idea" => &stage.idea,
                "identity" => format!("{:.12}", stage.identity),
                "GPU compiler" => compiler,
                "host compiler" => &stage.host_compiler,
            }
        };
        let stages = known.stages.iter().filter(|stage| self.covers(&stage.id));
        let table = some(Table::of(stages.map(row)));
        let session = |session: &Meta| {
            row! {
                "session" => &session.session,
                "command" => session.command.join(" "),
                "source" => super::commit(&session.git),
                "on" => place(session),
                "compilers" => match &session.device_compiler {
                    DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}, {}", session.host_compiler),
                    DeviceCompiler::Absent { .. } => session.host_compiler.clone(),
                },
            }
        };
        let sessions = some(Table::of(self.table.sessions.values().map(session)));
        [table, sessions].concat()
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
