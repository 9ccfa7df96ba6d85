//! `compare show`: everything that COMPARE.md leaves out, on demand.

use super::{
    by_weight, changes, claimed, each, figure, is_candidate, ladder, limit, list, missing, of,
    or_line, or_missing, per_stage, report, share, short, sides, some, state, text, times, us,
    verdict, whole, words,
};
use crate::judge::best::{self, OnProblem};
use crate::judge::claims::{Claimed, Status};
use crate::judge::diff::{Change, Difference};
use crate::judge::list::joined;
use crate::judge::missing::Missing;
use crate::judge::peers;
use crate::judge::state::{self as judged, State};
use crate::judge::verdict::Report;
use crate::page::{Block, Document, Table, Text, row};
use crate::record::meta::DeviceCompiler;
use crate::record::ncu;
use crate::record::{On, Record, Row, Source, StageMeta, Subject, VariantMeta};
use clap::ValueEnum;
use common::metric::Metric;
use common::verdict::Verdict;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Every variant, its gates and largest errors
    Gates,
    /// Device times by problem
    Latencies,
    /// What ptxas says of every instance; shared memory line by line: `compare smem`
    Resources,
    /// What the emulator counts, beside the same-preset baseline
    Counters,
    /// What ncu reads, beside the emulator
    Profile,
    /// What compute-sanitizer saw
    Sanitizer,
    /// Every candidate of the session with peers
    Peers,
    /// Every claim, with the figures that it is judged by
    Claims,
    /// What differs from the newest record that can be compared
    Changes,
    /// Fault injection and mutation testing
    SelfTest,
    /// What there is no data of, and why
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

/// `self-test` as it begins a line.
fn capital(words: &str) -> String {
    words[..1].to_uppercase() + &words[1..]
}

/// The sections asked for, or all; of the stages named, or all. What names a stage or a section has it in full.
pub fn document(report: &Report<'_>, what: &[Section], stages: &[String]) -> Document {
    let Some((name, record)) = report.known.subject() else {
        let verdict = Some(report::verdict(report));
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
        only: None,
    };
    let mut blocks = vec![Block::Bullets(report::apart(report))];
    for section in Section::value_variants()
        .iter()
        .filter(|section| what.is_empty() || what.contains(section))
    {
        let in_full = what.contains(section) || !stages.is_empty();
        blocks.push(Block::section(section.title()));
        let found = show.section(*section, in_full);
        blocks.extend(or_line(found, "NO DATA in this record."));
    }
    Document {
        marker: None,
        title: name.to_string(),
        verdict: Some(report::verdict(report)),
        blocks,
    }
}

pub struct Show<'a> {
    pub report: &'a Report<'a>,
    pub record: &'a Record,
    pub stages: &'a [String],
    /// This variant alone.
    pub only: Option<&'a Subject>,
}

impl<'a> Show<'a> {
    fn section(&self, section: Section, in_full: bool) -> Vec<Block> {
        match section {
            Section::Gates => self.gates(in_full),
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
        let is_asked = |row: &&Row| {
            self.only
                .map_or(self.takes(row.subject.stage()), |only| row.subject == *only)
        };
        record
            .by(by)
            .filter(|row| row.against.is_none())
            .filter(is_asked)
    }

    /// Variants of the stages asked for; where none is named, the best of each.
    fn is_shown(&self, subject: &Subject) -> bool {
        let stage = self.report.known.stage(subject.stage());
        !self.stages.is_empty()
            || stage.is_some_and(|stage| best::variant(&self.report.known, stage) == subject.name())
    }

    /// Said of tables that have the best variants only.
    fn only_best(&self) -> Vec<Block> {
        let said = "Best variants; `--stage STAGE` has every variant of a stage.";
        let said = self
            .stages
            .is_empty()
            .then(|| Block::paragraph(words(said)));
        said.into_iter().collect()
    }

    fn gates(&self, in_full: bool) -> Vec<Block> {
        let mut states: Vec<&(Subject, State)> = self
            .report
            .states
            .iter()
            .filter(|(subject, _)| self.takes(subject.stage()))
            .collect();
        let is_green = |of: &State| matches!(of, State::Green | State::NotRun(_));
        if !in_full {
            let (green, others): (Vec<_>, Vec<_>) =
                states.into_iter().partition(|(_, of)| is_green(of));
            let green = green
                .iter()
                .filter(|(_, of)| *of == State::Green)
                .map(|(subject, _)| subject.stage());
            let line = per_stage(&self.report.known, green)
                .map(|line| Block::paragraph(format!("Green: {line}.")));
            return self.variants(&others).into_iter().chain(line).collect();
        }
        states.sort_by_key(|(_, of)| match of {
            State::Failed(_) => 0,
            State::Green => 2,
            State::NotRun(_) => 3,
            _ => 1,
        });
        self.variants(&states)
    }

    fn variants(&self, states: &[&(Subject, State)]) -> Vec<Block> {
        let row = |(subject, of_variant): &&(Subject, State)| {
            let row = judged::summary(self.record, subject);
            let gates = judged::gates(self.record, subject);
            let with = |verdict: Verdict| judged::with(&gates, verdict);
            let said = match of_variant {
                State::NotRun(why) => why.clone(),
                _ => {
                    let verdicts = [
                        Verdict::Fail,
                        Verdict::Ambiguous,
                        Verdict::NoData,
                        Verdict::Pass,
                    ]
                    .into_iter();
                    let verdicts = verdicts.filter(|verdict| with(*verdict).next().is_some());
                    let said = |verdict| {
                        format!(
                            "{verdict} {}",
                            joined(with(verdict).map(|(gate, _)| gate), " ")
                        )
                    };
                    joined(verdicts.map(said), "; ")
                }
            };
            let why = joined(
                with(Verdict::Fail).map(|(gate, judged)| format!("{gate}: {}", judged.reason)),
                "; ",
            );
            let at = row.and_then(|row| row.note.clone()).unwrap_or_default();
            row![
                short(subject),
                state(of_variant),
                of(row, Metric::Cases),
                said,
                of(row, Metric::MaxError),
                of(row, Metric::ErrorOfBound),
                of(row, Metric::RowErrorOfBound),
                if why.is_empty() { at } else { why },
            ]
        };
        let columns = [
            "variant",
            "verdict",
            "cases",
            "gates",
            "max error",
            "error / bound",
            "row error / bound",
            "where",
        ];
        some(Table::of(columns, states.iter().map(row)))
    }

    /// The best of each stage by problem; of a stage that is named every variant.
    fn latencies(&self) -> Vec<Block> {
        let known = &self.report.known;
        if self.stages.is_empty() {
            let ids = known.stages.iter().map(|stage| ladder::short(&stage.id));
            let timed =
                |row: Option<&Row>| or_missing(row.map(|row| us(best::p50(row))), "not timed");
            let row = |(place, rows): OnProblem<'_>| {
                let times = rows.into_iter().map(timed);
                [text(place)].into_iter().chain(times).collect()
            };
            let columns = ["µs of the best variant"].into_iter().chain(ids);
            let table = Table::of(columns, best::by_problem(known).into_iter().map(row));
            return match some(table) {
                none if none.is_empty() => none,
                found => [found, self.only_best()].concat(),
            };
        }
        let row = |row: &Row| {
            let time = best::withheld(self.record, row).map_or_else(|| us(best::p50(row)), missing);
            let metrics = [Metric::P90, Metric::Std, Metric::SingleP50, Metric::SmMhz];
            let variant = row![row.subject.name(), text(&row.on), time];
            [variant, each(Some(row), metrics)].concat()
        };
        let rows = best::timed(self.record)
            .filter(|row| self.takes(row.subject.stage()))
            .map(row);
        let table = Table::of(
            [
                "variant",
                "problem",
                "p50 µs",
                "p90",
                "std",
                "one launch p50",
                "clock",
            ],
            rows,
        );
        let left_out = self
            .record
            .meta
            .left_out
            .iter()
            .filter(|scope| self.takes(&scope.stage) && scope.left_out > 0);
        let left_out = left_out.map(|scope| {
            words(&format!(
                "{}: {} of {} not timed: {}",
                scope.stage, scope.left_out, scope.of, scope.why
            ))
        });
        [some(table), self.method(Source::Gpu), list(left_out)].concat()
    }

    fn method(&self, of: Source) -> Vec<Block> {
        let tools = self
            .record
            .meta
            .tools
            .get(&of)
            .map(|tools| tools.join(", "));
        let said = joined(tools.iter().chain(self.record.meta.methods.get(&of)), ": ");
        let said = (!said.is_empty()).then(|| Block::paragraph(words(&said)));
        said.into_iter().collect()
    }

    pub fn resources(&self) -> Vec<Block> {
        let row = |row: &Row| {
            let declared = self.record.declared(row);
            let shared = declared.and_then(|declared| declared.value(Metric::DynamicSharedBytes));
            let shared =
                shared.map(|bytes| bytes + row.value(Metric::StaticSharedBytes).unwrap_or(0.0));
            row![
                short(&row.subject),
                text(&row.on),
                of(Some(row), Metric::Registers),
                limit(declared),
                of(declared, Metric::RegisterCap),
                of(Some(row), Metric::SpillBytes),
                of(Some(row), Metric::StackBytes),
                or_missing(shared.map(whole), "not declared"),
                of(declared, Metric::SharedCapBytes),
                match row.value(Metric::Occupancy) {
                    Some(0.0) => "0 blocks/SM".into(),
                    _ => of(Some(row), Metric::Occupancy),
                },
                or_missing(
                    row.verdicts
                        .values()
                        .next()
                        .map(|judged| verdict(judged.verdict)),
                    "not judged"
                ),
            ]
        };
        let columns = [
            "variant",
            "instance",
            "registers",
            "limit",
            "cap",
            "spilled B",
            "stack B",
            "shared B",
            "shared cap",
            "occupancy",
            "R1",
        ];
        some(Table::of(columns, self.rows(Source::Ptxas).map(row)))
    }

    /// The variant of the same preset in the predecessor: of the family of its default first.
    fn base(&self, subject: &Subject) -> Option<Subject> {
        let stage = self.record.stage(subject.stage())?;
        let preset = stage.variant(subject.name())?.preset();
        let before: &StageMeta = self.record.stage(stage.predecessor.as_deref()?)?;
        let family = before
            .variant(&before.default_variant)
            .map_or("", |variant| &variant.family);
        let same = |variant: &&VariantMeta| variant.preset() == preset;
        let found = before
            .family(family)
            .find(same)
            .or_else(|| before.variants.iter().find(same))?;
        Some(before.subject(&found.name))
    }

    pub fn counters(&self) -> Vec<Block> {
        let base = |row: &Row| {
            self.record
                .row(&self.base(&row.subject)?, &row.on, Source::Emulator)
        };
        let blocks = self.beside(
            Source::Emulator,
            ["value", "same-preset baseline", "value / baseline"],
            base,
        );
        [blocks, self.only_best()].concat()
    }

    pub fn profile(&self) -> Vec<Block> {
        let counted = |row: &Row| self.record.row(&row.subject, &row.on, Source::Emulator);
        let blocks = self.beside(Source::Ncu, ["ncu", "emulator", "ncu / emulator"], counted);
        let method = match blocks.is_empty() {
            true => vec![],
            false => self.method(Source::Ncu),
        };
        [blocks, self.waits(), method, self.only_best()].concat()
    }

    /// The lines of kernel.cu in which warps wait most, where ncu was asked.
    fn waits(&self) -> Vec<Block> {
        let rows = self
            .rows(Source::Ncu)
            .filter(|row| self.is_shown(&row.subject));
        let blocks = rows.filter_map(|row| {
            let (all, lines) = row.note.as_deref()?.split_once(": ")?;
            let head = format!("{} on {}: {all}, by line of kernel.cu", row.subject, row.on);
            Some([Block::paragraph(head), Block::bullets(lines.split("; "))])
        });
        blocks.flatten().collect()
    }

    /// The figures of one source on problems, beside another row's; without those that are 0 in both.
    fn beside(
        &self,
        by: Source,
        columns: [&str; 3],
        other: impl Fn(&Row) -> Option<&'a Row>,
    ) -> Vec<Block> {
        let none = "nothing to compare with";
        let figures = |row: &'a Row| {
            let other = other(row);
            let beside = row.figures.iter().map(move |(&metric, found)| {
                let was = other.and_then(|other| other.value(metric));
                (row, metric, found.value, was)
            });
            beside.filter(|(.., value, was)| *value != 0.0 || was.unwrap_or(0.0) != 0.0)
        };
        let row = |(row, metric, value, was): (&Row, Metric, f64, Option<f64>)| {
            let formula = ncu::formula(metric).filter(|formula| {
                by == Source::Ncu && was.is_none() && !formula.meaning.is_empty()
            });
            let ratio = was.filter(|was| *was != 0.0).map(|was| share(value / was));
            row![
                row.subject.name(),
                text(&row.on),
                match formula {
                    Some(formula) => text(metric).noted(formula.meaning),
                    None => text(metric),
                },
                figure(metric, value),
                or_missing(was.map(|was| figure(metric, was)), none),
                or_missing(ratio, none),
            ]
        };
        let rows = self
            .rows(by)
            .filter(|row| row.on.problem().is_some() && self.is_shown(&row.subject));
        some(Table::of(
            ["variant", "problem", "figure"].into_iter().chain(columns),
            rows.flat_map(figures).map(row),
        ))
    }

    fn sanitizer(&self) -> Vec<Block> {
        let rows = self.rows(Source::ComputeSanitizer).flat_map(|row| {
            row.verdicts.values().map(move |judged| {
                row![
                    short(&row.subject),
                    verdict(judged.verdict),
                    format!(
                        "{} of {}",
                        judged.passed.unwrap_or(0),
                        judged.of.unwrap_or(0)
                    ),
                    of(Some(row), Metric::Cases),
                    &judged.reason,
                ]
            })
        });
        let table = Table::of(["variant", "C7", "tools passed", "launches", "why"], rows);
        [some(table), self.method(Source::ComputeSanitizer)].concat()
    }

    fn peers(&self) -> Vec<Block> {
        let Some(found) = peers::beside(&self.report.known) else {
            return Vec::new();
        };
        let row = |candidate: &Row| {
            let problem = found
                .problems
                .iter()
                .find(|problem| problem.ours.on == candidate.on);
            let over = problem
                .and_then(|problem| peers::over(found.record, problem.ours, &candidate.subject));
            let ratio = over.and_then(|over| over.figures.get(&Metric::SpeedupP50));

            let metrics = [
                Metric::P50,
                Metric::SingleP50,
                Metric::HostP50,
                Metric::MaxError,
            ];
            let failed = candidate.failures().next();
            let note = failed.or_else(|| candidate.note.clone());
            [
                row![text(&candidate.on), text(&candidate.subject)],
                each(Some(candidate), metrics),
                row![
                    or_missing(ratio.map(|ratio| times(*ratio)), "no pair"),
                    note.unwrap_or_default()
                ],
            ]
            .concat()
        };
        let columns = [
            "problem",
            "candidate",
            "p50",
            "one launch",
            "host call",
            "max error",
            sides(found.record).ratio,
            "note",
        ];
        let table = Table::of(columns, peers::arms(found.record).map(row));
        let ceiling = found.record.row(&"ceiling".into(), &On::All, Source::Peers);
        let ceiling = ceiling.map(|row| {
            let figures = [Metric::MatrixFlops, Metric::CopyBytesPerSecond];
            let said = figures.map(|metric| format!("{metric} {}", of(Some(row), metric).shown()));
            Block::paragraph(format!(
                "Reached in the same session: {} (FLOP/s), {} (B/s).",
                said[0], said[1]
            ))
        });
        let score = report::beside(self.report).into_iter().skip(1).take(1);
        score
            .chain(some(table))
            .chain(ceiling)
            .chain(self.method(Source::Peers))
            .collect()
    }

    fn claims(&self) -> Vec<Block> {
        let row = |of: &Claimed| {
            let (verdict, measured, record) = claimed(of);
            let finding = match &of.status {
                Status::Judged { finding, .. } | Status::UnexpectedPass { finding, .. } => {
                    Some(finding)
                }
                _ => None,
            };
            let same = finding.and_then(|finding| finding.pair.as_ref()?.same_preset);
            let same = same.map(share);
            let record = record.unwrap_or("this run");
            row![
                of.title(),
                verdict,
                measured,
                or_missing(same, "no such pair"),
                record,
                &of.claim.why
            ]
        };
        let columns = [
            "claim",
            "verdict",
            "measured",
            "same preset",
            "record",
            "because",
        ];
        some(Table::of(
            columns,
            self.report
                .claims
                .iter()
                .filter(|of| self.takes(&of.stage))
                .map(row),
        ))
    }

    fn changes(&self) -> Vec<Block> {
        let Some(since) = &self.report.since else {
            return Vec::new();
        };
        let mut blocks = vec![Block::paragraph(format!(
            "Since {}: {}",
            since.name, since.overall
        ))];
        let differing = Change::ALL.into_iter().filter(|of| *of != Change::Same);
        for change in differing {
            let of_kind = since
                .differences
                .iter()
                .filter(|d| d.change == change && self.takes(d.subject.stage()));
            let mut of_kind: Vec<&Difference> = of_kind.collect();
            by_weight(&mut of_kind, is_candidate(&self.report.known));
            if !of_kind.is_empty() {
                blocks.push(Block::Heading {
                    level: 3,
                    text: capital(change.word()).into(),
                });
                blocks.push(Block::Table(changes(&of_kind)));
            }
        }
        blocks
    }

    fn self_test(&self) -> Vec<Block> {
        let is_site = |row: &Row| !row.subject.name().is_empty();
        let rows = self
            .record
            .by(Source::SelfTest)
            .filter(|row| !is_site(row) || self.takes(row.subject.stage()));
        super::self_test::blocks(rows.collect::<Vec<_>>())
    }

    fn missing(&self) -> Vec<Block> {
        let row = |missing: &Missing| {
            row![
                &missing.what,
                words(&missing.why),
                if missing.required { "yes" } else { "no" }
            ]
        };
        let table = Table::of(
            ["what", "why", "required"],
            self.report.missing.iter().map(row),
        );
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
            row![
                &stage.id,
                &stage.idea,
                format!("{:.12}", stage.identity),
                compiler,
                &stage.host_compiler
            ]
        };
        let stages = meta.stages.iter().filter(|stage| self.takes(&stage.id));
        let table = Table::of(
            ["stage", "idea", "identity", "GPU compiler", "host compiler"],
            stages.map(row),
        );
        let toggles = joined(
            meta.toggles
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
            ", ",
        );
        let mut lines = vec![Text::from("command: ").code(meta.command.join(" "))];
        lines.push(
            format!(
                "started {}, compare {}, {}",
                meta.started,
                meta.tool_version,
                super::commit(&meta.git)
            )
            .into(),
        );
        lines.extend((!toggles.is_empty()).then(|| format!("set: {toggles}").into()));
        lines.extend(
            meta.tools
                .iter()
                .map(|(source, tools)| format!("{source}: {}", tools.join(", ")).into()),
        );
        [some(table), vec![Block::Bullets(lines)]].concat()
    }
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

| variant          | verdict | cases | gates                        | max error | error / bound | row error / bound | where                |
|------------------|---------|-------|------------------------------|-----------|---------------|-------------------|----------------------|
| stage1/mma-64x64 | FAIL C2 |    40 | FAIL C2; PASS C1 C3 C5 C6 H1 |    1.0e-3 |        40.0 % | –                 | C2: max error 3e-1 > |
|                  |         |       | R1                           |           |               |                   | 4e-4                 |
| stage1/mma-32x64 | GREEN   |    40 | PASS C1 C2 C3 C5 C6 H1 R1    |    1.0e-3 |        40.0 % | –                 | mission f16 full     |
|                  |         |       |                              |           |               |                   | normal:0             |

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

Our fastest stage is ahead of the fastest peer on 1 of 2 problems and behind on 1: from 0.80x (long f16 full) to 1.50x (mission f16 full).
Interleaved (A B B A) in the committed record 1 (NVIDIA H200). Against PyTorch's default, over the 2 f16 problems of the session, ours is
right and faster on 1, more than 1.5 times as fast on 0, more than 2 times as fast on 0 (fast_p of KernelBench).

| problem          | candidate            |      p50 | one launch | host call | max error |         its / ours | note |
|------------------|----------------------|----------|------------|-----------|-----------|--------------------|------|
| mission f16 full | stage1-mma/mma-32x64 | 5.000 µs | –          | –         |    1.0e-4 |                  – |      |
| mission f16 full | torch-default        | 7.500 µs | –          | –         |    2.0e-2 | 1.50x [1.49, 1.51] |      |
| long f16 full    | stage1-mma/mma-32x64 | 30.00 µs | –          | –         |    1.0e-4 |                  – |      |
| long f16 full    | torch-default        | 24.00 µs | –          | –         |    2.0e-4 | 0.80x [0.79, 0.81] |      |
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
