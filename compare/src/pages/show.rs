//! `compare show`: everything that COMPARE.md leaves out, on demand.

use super::{
    by_weight, changes, claimed, figure, is_candidate, missing, of, report, short, state, times, us, verdict, words,
};
use crate::judge::claims::Status;
use crate::judge::diff::{Change, Difference};
use crate::judge::state::{self as judged, State};
use crate::judge::verdict::Report;
use crate::judge::{best, peers};
use crate::page::{Block, Cell, Digits, Document, Table, Text};
use crate::record::meta::DeviceCompiler;
use crate::record::ncu;
use crate::record::{On, Record, Row, Source, StageMeta, Subject, VariantMeta};
use clap::ValueEnum;
use common::metric::Metric;
use common::verdict::Verdict;
use std::fmt;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Section {
    /// Every variant, its gates and largest errors
    Gates,
    /// Device times by problem
    Latencies,
    /// What ptxas says of every instance
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
        let name = self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default();
        name[..1].to_uppercase() + &name[1..]
    }
}

/// The sections asked for, or all; of the stages named, or all. What names a stage or a section has it in full.
pub fn document(report: &Report<'_>, what: &[Section], stages: &[String]) -> Document {
    let Some((name, record)) = report.known.subject() else {
        let verdict = Some(report::verdict(report));
        return Document { title: "Nothing to show".into(), verdict, ..Document::default() };
    };
    let show = Show { report, record, stages };
    let mut blocks = vec![Block::Bullets(report::apart(report))];
    for section in Section::value_variants().iter().filter(|section| what.is_empty() || what.contains(section)) {
        let in_full = what.contains(section) || !stages.is_empty();
        blocks.push(Block::section(section.title()));
        let found = show.section(*section, in_full);
        let nothing = || vec![Block::paragraph("NO DATA in this record.")];
        blocks.extend(if found.is_empty() { nothing() } else { found });
    }
    Document { marker: None, title: name.to_string(), verdict: Some(report::verdict(report)), blocks }
}

struct Show<'a> {
    report: &'a Report<'a>,
    record: &'a Record,
    stages: &'a [String],
}

/// A table as blocks; none where it has no rows.
fn some(table: Table) -> Vec<Block> {
    if table.rows.is_empty() { vec![] } else { vec![Block::Table(table)] }
}

fn text(of: impl fmt::Display) -> Cell {
    of.to_string().into()
}

impl<'a> Show<'a> {
    fn section(&self, section: Section, in_full: bool) -> Vec<Block> {
        match section {
            Section::Gates => self.gates(in_full),
            Section::Latencies => self.latencies(),
            Section::Resources => some(self.resources()),
            Section::Counters => self.counters(),
            Section::Profile => self.profile(),
            Section::Sanitizer => self.sanitizer(),
            Section::Peers => self.peers(),
            Section::Claims => some(self.claims()),
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
        record.by(by).filter(|row| row.against.is_none() && self.takes(row.subject.stage()))
    }

    /// Variants of the stages asked for; where none is named, the best of each.
    fn is_shown(&self, subject: &Subject) -> bool {
        let stage = self.report.known.stage(subject.stage());
        !self.stages.is_empty() || stage.is_some_and(|stage| best::variant(&self.report.known, stage) == subject.name())
    }

    /// Said of tables that have the best variants only.
    fn only_best(&self) -> Option<Block> {
        let words = "Best variants; `--stage STAGE` has every variant of a stage.";
        self.stages.is_empty().then(|| Block::paragraph(super::words(words)))
    }

    fn gates(&self, in_full: bool) -> Vec<Block> {
        let mut states: Vec<&(Subject, State)> =
            self.report.states.iter().filter(|(subject, _)| self.takes(subject.stage())).collect();
        let is_green = |of: &State| matches!(of, State::Green | State::NotRun(_));
        if !in_full {
            let (green, others): (Vec<_>, Vec<_>) = states.into_iter().partition(|(_, of)| is_green(of));
            let stages = self.report.known.stages.iter().filter_map(|stage| {
                let n = green.iter().filter(|(subject, of)| subject.stage() == stage.id && *of == State::Green).count();
                (n > 0).then(|| format!("{} {n}", stage.id))
            });
            let line = stages.collect::<Vec<_>>().join(", ");
            let line = (!line.is_empty()).then(|| Block::paragraph(format!("Green: {line}.")));
            return some(self.variants(&others)).into_iter().chain(line).collect();
        }
        states.sort_by_key(|(_, of)| match of {
            State::Failed(_) => 0,
            State::Green => 2,
            State::NotRun(_) => 3,
            _ => 1,
        });
        some(self.variants(&states))
    }

    fn variants(&self, states: &[&(Subject, State)]) -> Table {
        let mut table = Table::new([
            "variant",
            "verdict",
            "cases",
            "gates",
            "max error",
            "error / bound",
            "row error / bound",
            "where",
        ]);
        for (subject, of_variant) in states {
            let row = judged::summary(self.record, subject);
            let gates = judged::gates(self.record, subject);
            let with = |verdict: Verdict| {
                let names = gates.iter().filter(|(_, judged)| judged.verdict == verdict).map(|(gate, _)| *gate);
                super::gates(&names.collect::<Vec<_>>())
            };
            let verdicts = [Verdict::Fail, Verdict::Ambiguous, Verdict::NoData, Verdict::Pass];
            let said = verdicts.map(|verdict| (verdict, with(verdict))).into_iter();
            let said = said.filter(|(_, gates)| !gates.is_empty()).map(|(verdict, gates)| format!("{verdict} {gates}"));
            let mut said: Vec<String> = said.collect();
            if let State::NotRun(why) = of_variant {
                said = vec![why.clone()];
            }
            let failed = gates.iter().filter(|(_, judged)| judged.verdict == Verdict::Fail);
            let why: Vec<String> = failed.map(|(gate, judged)| format!("{gate}: {}", judged.reason)).collect();
            let at = row.and_then(|row| row.note.clone()).unwrap_or_default();
            table.push(vec![
                text(short(subject)),
                state(of_variant),
                of(row, Metric::Cases),
                said.join("; ").into(),
                of(row, Metric::MaxError),
                of(row, Metric::ErrorOfBound),
                of(row, Metric::RowErrorOfBound),
                if why.is_empty() { at.into() } else { why.join("; ").into() },
            ]);
        }
        table
    }

    /// The best of each stage by problem; of a stage that is named every variant.
    fn latencies(&self) -> Vec<Block> {
        let known = &self.report.known;
        if self.stages.is_empty() {
            let Some((_, _, places)) = best::by_problem(known) else { return Vec::new() };
            let ids = known.stages.iter().map(|stage| super::ladder::short(&stage.id).to_string());
            let mut table = Table::new(["µs of the best variant".to_string()].into_iter().chain(ids));
            for (place, rows) in places {
                let cell = |row: Option<&Row>| row.map_or_else(|| missing("not timed"), |row| us(best::p50(row)));
                table.push([text(place)].into_iter().chain(rows.into_iter().map(cell)).collect());
            }
            return some(table).into_iter().chain(self.only_best()).collect();
        }
        let mut table = Table::new(["variant", "problem", "p50 µs", "p90", "std", "one launch p50", "clock"]);
        for row in best::timed(self.record).filter(|row| self.takes(row.subject.stage())) {
            let time = match best::withheld(self.record, row) {
                Some(why) => missing(why),
                None => us(best::p50(row)),
            };
            let others =
                [Metric::P90, Metric::Std, Metric::SingleP50, Metric::SmMhz].map(|metric| of(Some(row), metric));
            table.push([text(row.subject.name()), text(&row.on), time].into_iter().chain(others).collect());
        }
        let left_out = self.record.meta.left_out.iter().filter(|scope| self.takes(&scope.stage) && scope.left_out > 0);
        let left_out = left_out.map(|scope| {
            words(&format!("{}: {} of {} not timed: {}", scope.stage, scope.left_out, scope.of, scope.why))
        });
        let left_out: Vec<Text> = left_out.collect();
        let left_out = (!left_out.is_empty()).then_some(Block::Bullets(left_out));
        some(table).into_iter().chain(self.method(Source::Gpu)).chain(left_out).collect()
    }

    fn method(&self, of: Source) -> Option<Block> {
        let tools = self.record.meta.tools.get(&of).map(|tools| tools.join(", "));
        let parts: Vec<String> = tools.into_iter().chain(self.record.meta.methods.get(&of).cloned()).collect();
        (!parts.is_empty()).then(|| Block::paragraph(words(&parts.join(": "))))
    }

    fn resources(&self) -> Table {
        let columns = [
            "variant",
            "instance",
            "registers",
            "cap",
            "spilled B",
            "stack B",
            "shared B",
            "shared cap",
            "occupancy",
            "R1",
        ];
        let mut table = Table::new(columns);
        for row in self.rows(Source::Ptxas) {
            let On::Instance { dtype, head_dim, .. } = &row.on else { continue };
            let declared = On::Instance { dtype: *dtype, head_dim: *head_dim, arch: None };
            let declared = self.record.row(&row.subject, &declared, Source::Kernel);
            let shared = declared.and_then(|row| row.value(Metric::DynamicSharedBytes));
            let all_shared = shared.map(|shared| shared + row.value(Metric::StaticSharedBytes).unwrap_or(0.0));
            let r1 = row.verdicts.iter().next();
            table.push(vec![
                text(short(&row.subject)),
                text(&row.on),
                of(Some(row), Metric::Registers),
                of(declared, Metric::RegisterCap),
                of(Some(row), Metric::SpillBytes),
                of(Some(row), Metric::StackBytes),
                all_shared.map_or_else(|| missing("not declared"), |bytes| Cell::Count(bytes as u64)),
                of(declared, Metric::SharedCapBytes),
                match row.value(Metric::Occupancy) {
                    Some(0.0) => "0 blocks/SM".into(),
                    _ => of(Some(row), Metric::Occupancy),
                },
                r1.map_or_else(|| missing("not judged"), |(_, judged)| verdict(judged.verdict)),
            ]);
        }
        table
    }

    /// The variant of the same preset in the predecessor: of the family of its default first.
    fn base(&self, subject: &Subject) -> Option<Subject> {
        let stage = self.record.stage(subject.stage())?;
        let preset = stage.variant(subject.name())?.preset();
        let before: &StageMeta = self.record.stage(stage.predecessor.as_deref()?)?;
        let family = before.variant(&before.default_variant).map_or("", |variant| &variant.family);
        let same = |variant: &&VariantMeta| variant.preset() == preset;
        let found = before.family(family).find(same).or_else(|| before.variants.iter().find(same))?;
        Some(Subject::variant(&before.id, &found.name))
    }

    fn counters(&self) -> Vec<Block> {
        let base = |row: &Row| self.record.row(&self.base(&row.subject)?, &row.on, Source::Emulator);
        let blocks = self.beside(Source::Emulator, ["value", "same-preset baseline", "value / baseline"], base);
        blocks.into_iter().chain(self.only_best()).collect()
    }

    fn profile(&self) -> Vec<Block> {
        let counted = |row: &Row| self.record.row(&row.subject, &row.on, Source::Emulator);
        let blocks = self.beside(Source::Ncu, ["ncu", "emulator", "ncu / emulator"], counted);
        blocks.into_iter().chain(self.method(Source::Ncu)).chain(self.only_best()).collect()
    }

    /// The figures of one source on problems, beside another row's; without those that are 0 in both.
    fn beside(&self, by: Source, columns: [&str; 3], other: impl Fn(&Row) -> Option<&'a Row>) -> Vec<Block> {
        let mut table = Table::new(["variant", "problem", "figure"].into_iter().chain(columns));
        let none = || missing("nothing to compare with");
        for row in self.rows(by).filter(|row| row.on.problem().is_some() && self.is_shown(&row.subject)) {
            let other = other(row);
            for (&metric, found) in &row.figures {
                let was = other.and_then(|other| other.value(metric));
                if found.value == 0.0 && was.unwrap_or(0.0) == 0.0 {
                    continue;
                }
                let ratio =
                    was.filter(|was| *was != 0.0).map(|was| Cell::number(found.value / was, Digits::Fixed(3), "x"));
                let name = match ncu::formula(metric).filter(|_| by == Source::Ncu && was.is_none()) {
                    Some(formula) if !formula.meaning.is_empty() => text(metric).noted(formula.meaning),
                    _ => text(metric),
                };
                let mut cells = vec![text(row.subject.name()), text(&row.on), name, figure(metric, found.value)];
                cells.extend([was.map_or_else(none, |was| figure(metric, was)), ratio.unwrap_or_else(none)]);
                table.push(cells);
            }
        }
        some(table)
    }

    fn sanitizer(&self) -> Vec<Block> {
        let mut table = Table::new(["variant", "C7", "tools passed", "launches", "why"]);
        for row in self.rows(Source::ComputeSanitizer) {
            for judged in row.verdicts.values() {
                table.push(vec![
                    text(short(&row.subject)),
                    verdict(judged.verdict),
                    format!("{} of {}", judged.passed.unwrap_or(0), judged.of.unwrap_or(0)).into(),
                    of(Some(row), Metric::Cases),
                    judged.reason.as_str().into(),
                ]);
            }
        }
        some(table).into_iter().chain(self.method(Source::ComputeSanitizer)).collect()
    }

    fn peers(&self) -> Vec<Block> {
        let Some(found) = peers::beside(&self.report.known) else { return Vec::new() };
        let mut table =
            Table::new(["problem", "candidate", "p50", "one launch", "host call", "max error", "its / ours", "note"]);
        for arm in peers::arms(found.record) {
            let ours = found.problems.iter().find(|problem| problem.ours.on == arm.on).map(|problem| problem.ours);
            let over = ours.and_then(|ours| peers::over(found.record, ours, &arm.subject));
            let ratio = over.and_then(|over| over.figures.get(&Metric::SpeedupP50));
            let failed = arm.failed().next().map(|(gate, judged)| format!("{gate}: {}", judged.reason));
            let figures = [Metric::P50, Metric::SingleP50, Metric::HostP50, Metric::MaxError];
            let mut cells = vec![text(&arm.on), text(&arm.subject)];
            cells.extend(figures.map(|metric| of(Some(arm), metric)));
            cells.push(ratio.map_or_else(|| missing("no pair"), |ratio| times(*ratio)));
            cells.push(failed.or_else(|| arm.note.clone()).unwrap_or_default().into());
            table.push(cells);
        }
        let ceiling = found.record.row(&"ceiling".into(), &On::All, Source::Peers);
        let ceiling = ceiling.map(|row| {
            let figures = [Metric::MatrixFlops, Metric::CopyBytesPerSecond];
            let said = figures.map(|metric| format!("{metric} {}", of(Some(row), metric).shown()));
            Block::paragraph(format!("Reached in the same session: {} (FLOP/s), {} (B/s).", said[0], said[1]))
        });
        let mut blocks = report::beside(self.report).into_iter().skip(1).take(1).collect::<Vec<_>>();
        blocks.extend(some(table));
        blocks.extend(ceiling);
        blocks.extend(self.method(Source::Peers));
        blocks
    }

    fn claims(&self) -> Table {
        let mut table = Table::new(["claim", "verdict", "measured", "same preset", "record", "because"]);
        for of in self.report.claims.iter().filter(|of| self.takes(&of.stage)) {
            let (verdict, measured, record) = claimed(of);
            let same = match &of.status {
                Status::Judged { finding, .. } | Status::UnexpectedPass { finding, .. } => {
                    finding.pair.as_ref().and_then(|pair| pair.same_preset)
                }
                _ => None,
            };
            let same = same.map_or_else(|| missing("no such pair"), |same| Cell::number(same, Digits::Fixed(3), "x"));
            let record = record.map_or("this run", |record| record);
            table.push(vec![
                text(of.title()),
                verdict,
                measured.into(),
                same,
                record.into(),
                of.claim.why.as_str().into(),
            ]);
        }
        table
    }

    fn changes(&self) -> Vec<Block> {
        let Some(since) = &self.report.since else { return Vec::new() };
        let mut blocks = vec![Block::paragraph(format!("Since {}: {}", since.name, since.overall))];
        let kinds = [
            (Change::Worse, "Worse"),
            (Change::Ambiguous, "Undecided"),
            (Change::Missing, "Not compared"),
            (Change::Better, "Better"),
            (Change::Differs, "Neither better nor worse"),
        ];
        for (change, title) in kinds {
            let of_kind = since.differences.iter().filter(|d| d.change == change && self.takes(d.subject.stage()));
            let mut of_kind: Vec<&Difference> = of_kind.collect();
            by_weight(&mut of_kind, |difference| is_candidate(&self.report.known, difference));
            if !of_kind.is_empty() {
                blocks.push(Block::Heading { level: 3, text: title.into() });
                blocks.push(Block::Table(changes(&of_kind)));
            }
        }
        blocks
    }

    fn self_test(&self) -> Vec<Block> {
        let mut table = Table::new(["where", "what", "S1", "outcome"]);
        for row in self.record.by(Source::SelfTest) {
            let is_site = !row.subject.name().is_empty();
            if is_site && !self.takes(row.subject.stage()) {
                continue;
            }
            let failed = row.failure();
            let judged = if failed.is_some() { Verdict::Fail } else { Verdict::Pass };
            let note = row.note.clone().unwrap_or_default();
            let outcome = failed.map_or(note.clone(), |reason| format!("{note}. {reason}"));
            let what = row.on.to_string().trim_start_matches(": ").to_string();
            table.push(vec![text(short(&row.subject)), what.into(), verdict(judged), words(&outcome).into()]);
        }
        report::self_test(self.report).map(Block::Paragraph).into_iter().chain(some(table)).collect()
    }

    fn missing(&self) -> Vec<Block> {
        let mut table = Table::new(["what", "why", "required"]);
        for missing in &self.report.missing {
            let required = if missing.required { "yes" } else { "no" };
            table.push(vec![missing.what.as_str().into(), words(&missing.why).into(), required.into()]);
        }
        if table.rows.is_empty() { vec![Block::paragraph("Nothing is missing.")] } else { some(table) }
    }

    fn built(&self) -> Vec<Block> {
        let meta = &self.record.meta;
        let mut table = Table::new(["stage", "idea", "identity", "GPU compiler", "host compiler"]);
        for stage in meta.stages.iter().filter(|stage| self.takes(&stage.id)) {
            let compiler = match &stage.device_compiler {
                DeviceCompiler::Built { nvcc, archs, .. } => format!("nvcc {nvcc}: {}", archs.join(", ")),
                DeviceCompiler::Absent { reason } => format!("none: {reason}"),
            };
            let identity = format!("{:.12}", stage.identity);
            table.push(vec![
                stage.id.as_str().into(),
                stage.idea.as_str().into(),
                identity.into(),
                compiler.into(),
                stage.host_compiler.as_str().into(),
            ]);
        }
        let toggles: Vec<String> = meta.toggles.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut lines = vec![Text::from("command: ").code(meta.command.join(" "))];
        lines.push(
            format!("started {}, compare {}, {}", meta.started, meta.tool_version, super::commit(&meta.git)).into(),
        );
        lines.extend((!toggles.is_empty()).then(|| format!("set: {}", toggles.join(", ")).into()));
        lines.extend(meta.tools.iter().map(|(source, tools)| format!("{source}: {}", tools.join(", ")).into()));
        let mut blocks = some(table);
        blocks.push(Block::Bullets(lines));
        blocks
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
        let report = verdict::report(Known { stages: &records[0].1.meta.stages, run: None, committed: &records });
        let page = |what: &[Section], stages: &[String]| terminal(&document(&report, what, stages), 140, "");
        let gates = page(&[Section::Gates], &[]);
        let place = |name: &str| gates.find(name).unwrap_or_else(|| panic!("{name}: {gates}"));
        assert!(place("stage1/mma-64x64") < place("stage0/scalar-32x64"), "{gates}");
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

stage1-mma is faster than the fastest peer on 1 of 2 problems and slower on 1: from 0.80x (long f16 full) to 1.50x (mission f16 full).
Interleaved (A B B A) in the committed record 1 (NVIDIA H200). Against PyTorch's default, over the 2 f16 problems of the session, stage1-mma
is right and faster on 1, more than 1.5 times as fast on 0, more than 2 times as fast on 0 (fast_p of KernelBench).

| problem          | candidate            |      p50 | one launch | host call | max error |         its / ours | note |
|------------------|----------------------|----------|------------|-----------|-----------|--------------------|------|
| mission f16 full | stage1-mma/mma-32x64 | 5.000 µs | –          | –         | –         |                  – |      |
| mission f16 full | torch-default        | 7.500 µs | –          | –         | –         | 1.50x [1.49, 1.51] |      |
| long f16 full    | stage1-mma/mma-32x64 | 30.00 µs | –          | –         | –         |                  – |      |
| long f16 full    | torch-default        | 24.00 µs | –          | –         | –         | 0.80x [0.79, 0.81] |      |
"##);
    }

    #[test]
    fn every_section_of_a_committed_record_has_something() {
        let records = committed();
        let stages = &records.last().unwrap().1.meta.stages;
        let report = verdict::report(Known { stages, run: None, committed: &records });
        for &section in Section::value_variants() {
            let page = terminal(&document(&report, &[section], &["stage5-swizzle".into()]), WIDTH, "");
            assert!(!page.contains("NO DATA in this record"), "{section:?}: {page}");
            assert!(page.lines().all(|line| line.chars().count() <= WIDTH.into()), "{page}");
        }
    }
}
