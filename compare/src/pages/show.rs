//! `compare show`: everything that COMPARE.md leaves out.

use super::{
    by_weight, changes, each, figure, is_used, ladder, limit, list, missing, of, or_line,
    or_missing, report, sections, share, short, some, stage, standing, state, text, times, us,
    verdict, whole,
};
use crate::judge::best::{self, OnProblem};
use crate::judge::claims::{Claimed, Refutation};
use crate::judge::diff::{Change, Difference};
use crate::judge::list::{distinct, grouped, joined};
use crate::judge::missing::Missing;
use crate::judge::peers;
use crate::judge::state::{self as judged, State};
use crate::judge::verdict::Report;
use crate::page::{Block, Document, Table, TableRow, row};
use crate::record::meta::DeviceCompiler;
use crate::record::ncu;
use crate::record::{On, Record, Row, Source, StageMeta, Subject, VariantMeta};
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
    /// Counters of the emulator, beside the same-preset baseline
    Counters,
    /// Metrics of ncu, beside the counters of the emulator
    Profile,
    /// Findings of compute-sanitizer
    Sanitizer,
    /// Every arm of the session with peers
    Peers,
    /// Every claim, with its figures
    Claims,
    /// What changed since the newest record that can be compared
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
    let Some((name, record)) = report.known.subject() else {
        return Document {
            title: "Nothing to show".into(),
            verdict,
            ..Document::default()
        };
    };
    let show = Show {
        report,
        record,
        stages,
    };
    let all = Section::value_variants().iter().copied();
    let asked = all.filter(|section| what.contains(section));
    let section = |section: Section| {
        let found = show.section(section);
        (section.title(), or_line(found, "NO DATA in this record."))
    };
    let summary = vec![Block::Bullets(report::summary(report))];
    Document {
        title: name.to_string(),
        verdict,
        blocks: [summary, sections(asked.map(section))].concat(),
        ..Document::default()
    }
}

struct Show<'a> {
    report: &'a Report<'a>,
    record: &'a Record,
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

    fn takes(&self, stage: &str) -> bool {
        self.stages.is_empty() || self.stages.iter().any(|asked| asked == stage)
    }

    fn rows(&self, by: Source) -> impl Iterator<Item = &'a Row> {
        let record: &'a Record = self.record;
        let rows = record.by(by).filter(|row| row.against.is_none());
        rows.filter(|row| self.takes(row.subject.stage()))
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
        let states = self.report.states.iter();
        let states = states.filter(|(subject, _)| self.takes(subject.stage()));
        let rank = |of: &State| match of {
            State::Failed(_) => 0,
            State::Green => 2,
            State::NotRun(_) => 3,
            _ => 1,
        };
        let mut shown: Vec<&(Subject, State)> = states.collect();
        shown.sort_by_key(|(_, of)| rank(of));
        let row = |(subject, of_variant): &&(Subject, State)| {
            let row = judged::summary(self.record, subject);
            let gates = judged::gates(self.record, subject);
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
            let withheld = best::withheld(self.record, row);
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
        let timed = best::timed(self.record).filter(|row| self.takes(row.subject.stage()));
        let left_out = self.record.meta.left_out.iter();
        let left_out = left_out.filter(|scope| self.takes(&scope.stage) && scope.left_out > 0);
        let left_out = left_out.map(|scope| {
            let (stage, n, all, why) = (&scope.stage, scope.left_out, scope.of, &scope.why);
            format!("{stage}: {n} of {all} not timed: {why}")
        });
        let table = some(Table::of(by_problem(timed).into_iter().map(row)));
        [table, self.method(Source::Gpu), list(left_out)].concat()
    }

    /// The tools that measured, and how.
    fn method(&self, of: Source) -> Vec<Block> {
        let meta = &self.record.meta;
        let tools = meta.tools.get(&of).map(|tools| tools.join(", "));
        let said = joined(tools.iter().chain(meta.methods.get(&of)), ": ");
        match said.is_empty() {
            true => vec![],
            false => vec![Block::paragraph(said)],
        }
    }

    fn resources(&self) -> Vec<Block> {
        let row = |row: &Row| {
            let declared = self.record.declared(row);
            let dynamic = declared.and_then(|declared| declared.value(Metric::DynamicSharedBytes));
            let fixed = row.value(Metric::StaticSharedBytes).unwrap_or(0.0);
            let shared = dynamic.map(|dynamic| whole(dynamic + fixed));
            let occupancy = match row.value(Metric::Occupancy) {
                Some(0.0) => "0 blocks/SM".into(),
                _ => of(Some(row), Metric::Occupancy),
            };
            let judged = row.verdicts.values().next();
            let judged = judged.map(|judged| verdict(judged.verdict));
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
        let stage = self.record.stage(subject.stage())?;
        let preset = stage.variant(subject.name())?.preset();
        let before: &StageMeta = self.record.stage(stage.predecessor.as_deref()?)?;
        let default = before.variant(&before.default_variant);
        let family = default.map_or("", |variant| &variant.family);
        let same = |variant: &&VariantMeta| variant.preset() == preset;
        let found = before.family(family).find(same);
        let found = found.or_else(|| before.variants.iter().find(same))?;
        Some(before.subject(&found.name))
    }

    fn counters(&self) -> Vec<Block> {
        let by = Source::Emulator;
        let base = |row: &Row| self.record.row(&self.base(&row.subject)?, &row.on, by);
        let titles = ["value", "same-preset baseline", "value / baseline"];
        [self.beside(by, titles, base), self.only_best()].concat()
    }

    fn profile(&self) -> Vec<Block> {
        let counted = |row: &Row| self.record.row(&row.subject, &row.on, Source::Emulator);
        let titles = ["ncu", "emulator", "ncu / emulator"];
        let blocks = self.beside(Source::Ncu, titles, counted);
        let method = match blocks.is_empty() {
            true => vec![],
            false => self.method(Source::Ncu),
        };
        [blocks, method, self.only_best()].concat()
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
                    "C7" => verdict(judged.verdict),
                    "tools passed" => format!("{passed} of {all}"),
                    "launches" => of(Some(row), Metric::Cases),
                    "why" => &judged.reason,
                }
            })
        });
        [some(Table::of(rows)), self.method(by)].concat()
    }

    fn peers(&self) -> Vec<Block> {
        let Some(found) = peers::beside(&self.report.known) else {
            return Vec::new();
        };
        let time =
            |arm: &Row, metric: Metric| or_missing(arm.value(metric).map(us), "it was not timed");
        let place = |arm: &Row| {
            let mut problems = found.problems.iter();
            problems.position(|problem| problem.ours.on == arm.on)
        };
        let row = |arm: &Row| {
            let problem = place(arm).map(|at| &found.problems[at]);
            let over = problem.and_then(|of| peers::over(found.record, of.ours, &arm.subject));
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
        let mut arms: Vec<&Row> = peers::arms(found.record).collect();
        // Those without a peer come last.
        arms.sort_by_key(|arm| place(arm).unwrap_or(usize::MAX));
        let note = |arm: &&Row| {
            let note = arm.failures().next().or_else(|| arm.note.clone())?;
            Some(format!("{}, {}: {note}", arm.on, arm.subject))
        };
        let notes = list(arms.iter().filter_map(note));
        let table = some(Table::of(by_problem(arms).into_iter().map(row)));
        let ceiling = found.record.row(&"ceiling".into(), &On::All, Source::Peers);
        let ceiling = ceiling.map(|row| {
            let figures = [Metric::MatrixFlops, Metric::CopyBytesPerSecond];
            let [flops, copy] =
                figures.map(|metric| format!("{metric} {}", of(Some(row), metric).shown()));
            Block::paragraph(format!(
                "Reached in the same session: {flops} (FLOP/s), {copy} (B/s)."
            ))
        });
        let ceiling = ceiling.into_iter().collect();
        let mut about = report::beside(self.report);
        about.truncate(1);
        [about, table, notes, ceiling, self.method(Source::Peers)].concat()
    }

    fn claims(&self) -> Vec<Block> {
        let row = |of: &Claimed| {
            let pair = of.finding.pair.as_ref().filter(|_| of.refuted.is_none());
            let same = pair.and_then(|pair| pair.same_preset);
            let refuted = of.refuted.as_ref().map(|by| by.record.as_str());
            row! {
                "claim" => of.claim.to_string(),
                "verdict" => standing(of).0,
                "measured" => &of.finding.reason,
                "same preset" => or_missing(same.map(share), "no such pair"),
                "record" => refuted.or(of.origin.record()).unwrap_or("this run"),
                "because" => &of.claim.why,
            }
        };
        let claims = self.report.claims.iter().filter(|of| self.takes(&of.stage));
        let by_stage = grouped(claims.map(|of| (&of.stage, row(of))));
        let table = |(stage, rows)| [Block::subsection(stage), Block::Table(Table::of(rows))];
        let tables = by_stage.into_iter().flat_map(table);
        let refuted = self.report.claims.iter().filter(|of| self.takes(&of.stage));
        let negatives = distinct(refuted.filter_map(|of| of.refuted.as_ref()));
        let reason = |by: &Refutation| format!("NEGATIVE in record `{}`: {}", by.record, by.reason);
        tables
            .chain(list(negatives.into_iter().map(reason)))
            .collect()
    }

    fn changes(&self) -> Vec<Block> {
        let Some(since) = &self.report.since else {
            return Vec::new();
        };
        let mut blocks = vec![Block::paragraph(format!(
            "Since {}: {}",
            since.name, since.overall
        ))];
        for change in Change::ALL.into_iter().filter(|of| *of != Change::Same) {
            let is_of = |d: &&Difference| d.change == change && self.takes(d.subject.stage());
            let mut of_kind: Vec<&Difference> = since.differences.iter().filter(is_of).collect();
            by_weight(&mut of_kind, is_used(&self.report.known));
            if !of_kind.is_empty() {
                blocks.push(Block::subsection(capital(change.word())));
                blocks.push(Block::Table(changes(&of_kind)));
            }
        }
        blocks
    }

    fn self_test(&self) -> Vec<Block> {
        let is_site = |row: &Row| !row.subject.name().is_empty();
        let rows = self.record.by(Source::SelfTest);
        let rows = rows.filter(|row| !is_site(row) || self.takes(row.subject.stage()));
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
        let meta = &self.record.meta;
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
        let stages = meta.stages.iter().filter(|stage| self.takes(&stage.id));
        let table = some(Table::of(stages.map(row)));
        let toggles = meta
            .toggles
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let toggles = Some(joined(toggles, ", ")).filter(|toggles| !toggles.is_empty());
        let lines = [
            format!("command: `{}`", meta.command.join(" ")),
            format!(
                "started {}, compare {}, {}",
                meta.started,
                meta.tool_version,
                super::commit(&meta.git)
            ),
        ];
        let set = toggles.map(|toggles| format!("set: {toggles}"));
        let tools = meta.tools.iter();
        let tools = tools.map(|(source, tools)| format!("{source}: {}", tools.join(", ")));
        let lines = lines.into_iter().chain(set).chain(tools);
        [table, list(lines)].concat()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::page::terminal::{WIDTH, terminal};
    use crate::pages::testing::{OTHER, record, row};
    use crate::testing::committed;
    use common::verdict::{GateId, GateResult};

    #[test]
    fn what_is_asked_for_is_shown_and_failures_first() {
        let mut record = record();
        let fails = GateResult::judge(GateId::C2, false, "max error 3e-1 > 4e-4");
        row(&mut record, OTHER, &On::All, Source::Gpu).judge(GateId::C2, (&fails).into());
        let records = [("1".to_string(), record)];
        let report = verdict::report(Known {
            stages: &records[0].1.meta.stages,
            run: None,
            committed: &records,
        });
        let page =
            |what: &[Section], stages: &[String]| terminal(&document(&report, what, stages), 140);
        let gates = page(&[Section::Gates], &[]);
        let place = |name: &str| {
            gates
                .find(name)
                .unwrap_or_else(|| panic!("{name}: {gates}"))
        };
        assert!(
            place("stage1/mma-64x64") < place("stage0/scalar-32x64"),
            "{gates}"
        );
        insta::assert_snapshot!(page(&[Section::Gates, Section::Peers, Section::Counters], &["stage1-mma".into()]), @r##"
1

FAIL: 1 gate fails, first C2 of stage1-mma/mma-64x64

- gates: 2 of 3 variants green, 1 fail
- claims: 1 kept

== Gates ==

In all rows: cases: 40; max error: 1.0e-3; error / bound: 40.0 %; row error / bound: –

| variant          | verdict | gates                           | where                     |
|------------------|---------|---------------------------------|---------------------------|
| stage1/mma-64x64 | FAIL C2 | FAIL C2; PASS C1 C3 C5 C6 H1 R1 | C2: max error 3e-1 > 4e-4 |
| stage1/mma-32x64 | GREEN   | PASS C1 C2 C3 C5 C6 H1 R1       | mission f16 full normal:0 |

== Counters ==

| variant   | problem          | figure                     |  value | same-preset baseline | value / baseline |
|-----------|------------------|----------------------------|--------|----------------------|------------------|
| mma-32x64 | mission f16 full | shared-load wavefronts     | 49,152 |               49,152 |           1.000x |
| mma-32x64 | mission f16 full | shared-load bank conflicts | 12,288 |               12,288 |           1.000x |
| mma-32x64 | mission f16 full | blocks of the launch       |    128 |                  128 |           1.000x |
| mma-64x64 | mission f16 full | shared-load wavefronts     | 49,152 |                    – |                – |
| mma-64x64 | mission f16 full | shared-load bank conflicts | 12,288 |                    – |                – |
| mma-64x64 | mission f16 full | blocks of the launch       |    128 |                    – |                – |

== Peers ==

Our fastest stage is faster than the fastest peer on 1 of 2 problems and slower on 1: from 0.80x (long f16 full) to 1.50x (mission f16
full). Interleaved (A B B A) in record 1 (NVIDIA H200). Of the 2 f16 problems of that session, ours is right and, against PyTorch's default,
faster on 1, more than 1.5 times as fast on 0, more than 2 times as fast on 0 (fast_p of KernelBench). Max errors against FP64 (ours /
theirs) are shown if theirs is at least 10 times ours.

| problem          | arm              | p50 µs | single µs | host µs | max error |        peer / ours |
|------------------|------------------|--------|-----------|---------|-----------|--------------------|
| mission f16 full | stage1/mma-32x64 |  5.000 | –         | –       |    1.0e-4 |                  – |
| mission f16 full | torch-default    |  7.500 | –         | –       |    2.0e-2 | 1.50x [1.49, 1.51] |
| long f16 full    | torch-default    |  24.00 | –         | –       |    2.0e-4 | 0.80x [0.79, 0.81] |
| long f16 full    | stage1/mma-32x64 |  30.00 | –         | –       |    1.0e-4 |                  – |
"##);
    }

    #[test]
    fn every_section_of_a_committed_record_has_something() {
        let records = committed();
        let newest = &records.last().unwrap().1;
        let report = verdict::report(Known {
            stages: &newest.meta.stages,
            run: None,
            committed: &records,
        });
        // A record may be of some stages alone.
        let stage = newest
            .rows
            .iter()
            .find(|row| row.on == On::All && row.by == Source::Gpu)
            .unwrap()
            .subject
            .stage();
        for &section in Section::value_variants() {
            let page = terminal(&document(&report, &[section], &[stage.into()]), WIDTH);
            assert!(
                !page.contains("NO DATA in this record"),
                "{section:?}: {page}"
            );
            assert!(
                page.lines()
                    .all(|line| line.chars().count() <= WIDTH.into()),
                "{page}"
            );
        }
    }
}
