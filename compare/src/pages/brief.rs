//! `compare brief`: one stage for whoever tunes it. What follows from the figures first, then the figures.

use super::insights::insights;
use super::show::Show;
use super::{
    claimed, clip, each, gpu, ladder, limit, list, noted, of, or_line, some, state, text, us,
    whole, words,
};
use crate::judge::best;
use crate::judge::list::joined;
use crate::judge::state::{State, summary};
use crate::judge::verdict::Report;
use crate::page::{Block, Cell, Document, Table, Text, row};
use crate::record::meta::Gpu;
use crate::record::tuning_cache::Entry;
use crate::record::{On, Record, Row, Source, StageMeta, Subject, TuningCache};
use common::metric::Metric;
use common::problem::{Dtype, NAMED_SHAPES};
use common::resources::multiprocessor;
use std::collections::BTreeSet;

/// `None` where there is no such stage. `tuned` are the files of tune/.
pub fn document(report: &Report<'_>, id: &str, tuned: &[TuningCache]) -> Option<Document> {
    let stage = report.known.stage(id)?;
    let best = best::subject(&report.known, stage);
    let found = report.known.subject();
    let mut blocks = vec![Block::paragraph(match found {
        Some((name, record)) => words(&format!(
            "Figures of `{name}` ({}), unless said otherwise.",
            gpu(&record.meta.machine.gpu)
        )),
        None => "NO DATA: there is no record.".into(),
    })];
    let is_stale = found.is_some_and(|(_, record)| !record.is_of(stage));
    if is_stale {
        blocks.push(Block::paragraph(words(
            "STALE: the kernel has changed since; run `compare` again.",
        )));
    }
    blocks.push(Block::section(format!("What follows, for {}", best.name())));
    blocks.push(Block::bullets(
        found
            .map(|(_, record)| insights(record, &best))
            .unwrap_or_default(),
    ));
    blocks.extend(targets(report, id));
    blocks.extend(negatives(report, id));
    blocks.extend([
        Block::section("Figures"),
        Block::Table(figures(report, stage, &best)),
    ]);
    let mut sections = vec![(
        "Tuned configurations (tune/)".to_string(),
        some(best_presets(stage, tuned)),
        "NO DATA: it was not tuned; `compare tune` on a GPU.",
    )];
    if let Some((_, record)) = found {
        let (ids, best_name) = ([stage.id.clone()], best.name());
        let show = Show {
            report,
            record,
            stages: &ids,
            only: Some(&best),
        };
        sections.extend([
            (
                format!("Compiled: {best_name}"),
                show.resources(),
                "NO DATA: no record of this kernel was built by nvcc.",
            ),
            (format!("Counted: {best_name}"), show.counters(), "NO DATA: the record does not count it."),
            (
                format!("Profiled (ncu): {best_name}"),
                show.profile(),
                "NO DATA: the record has no profile of it; `compare profile` on its GPU completes it.",
            ),
            ("Presets (f16, head_dim 64)".into(), some(presets(record, stage)), "NO DATA: the record does not say."),
            (
                "Limits of an SM".into(),
                some(limits(record, id)),
                "NO DATA: no record is of a GPU, and nvcc built none of this kernel.",
            ),
        ]);
    }
    for (title, found, otherwise) in sections {
        blocks.push(Block::section(title));
        blocks.extend(or_line(found, otherwise));
    }
    blocks.extend(task(stage, found.map(|(_, record)| record)));
    Some(Document {
        title: format!("Brief of {id}: {}", stage.idea),
        blocks,
        ..Document::default()
    })
}

/// What the stage claims, with what was measured; what is kept of counters as a count.
fn targets(report: &Report<'_>, id: &str) -> Vec<Block> {
    let mut table = Table::new(["target", "verdict", "measured"]);
    let mut kept = 0;
    for claim in report.claims.iter().filter(|claim| claim.stage == id) {
        let (verdict, measured, _) = claimed(claim);
        if !claim.claim.is_of_speed() && verdict.shown().to_string() == "PASS" {
            kept += 1;
            continue;
        }
        table.push(row![text(&claim.claim), verdict, clip(&measured, 240)]);
    }
    let kept = (kept > 0).then(|| Block::paragraph(format!("{kept} claims of counters are kept.")));
    let mut blocks = vec![Block::section("Targets")];
    blocks.extend(or_line(some(table), "It claims nothing else."));
    blocks.extend(kept);
    blocks
}

fn negatives(report: &Report<'_>, id: &str) -> Vec<Block> {
    let mut lines: Vec<Text> = Vec::new();
    for (name, record) in report.known.committed {
        let Some(negative) = &record.meta.negative else {
            continue;
        };
        let of_stage: Vec<_> = negative
            .claims
            .iter()
            .filter(|claim| claim.stage == id)
            .collect();
        lines.extend(
            of_stage
                .iter()
                .map(|claim| words(&format!("{name}: {}: {}", claim.claim, claim.evidence))),
        );
        lines.extend(
            (!of_stage.is_empty()).then(|| words(&format!("{name}, why: {}", negative.reason))),
        );
    }
    let otherwise = "No committed record refutes a claim of it.";
    let title = vec![Block::section("Negative results")];
    [title, or_line(list(lines), otherwise)].concat()
}

fn figures(report: &Report<'_>, stage: &StageMeta, best: &Subject) -> Table {
    let record = report.known.record();
    let row = |(subject, of_variant): &(Subject, State)| {
        let note = (subject == best).then_some("best");
        let [time, previous, first] = ladder::times(&report.known, subject);
        let row = record.and_then(|record| summary(record, subject));
        row![
            noted(subject.name(), note),
            state(of_variant),
            time,
            previous,
            first,
            of(row, Metric::MaxError)
        ]
    };
    let columns = [
        "variant",
        "verdict",
        "p50 µs",
        "vs previous",
        "vs first",
        "max error",
    ];
    Table::of(
        columns,
        report
            .states
            .iter()
            .filter(|(subject, _)| subject.stage() == stage.id)
            .map(row),
    )
}

fn best_presets(stage: &StageMeta, tuned: &[TuningCache]) -> Table {
    let entries = tuned
        .iter()
        .flat_map(|file| file.entries.iter().map(move |entry| (&file.gpu, entry)));
    let row = |(gpu, entry): (&String, &Entry)| {
        let best = entry
            .best
            .iter()
            .map(|ranked| format!("{} {}", ranked.variant, us(ranked.p50_us).shown()));
        let is_now = entry.identity == stage.identity;
        row![
            gpu,
            format!("{} {} {}", entry.shape_name, entry.dtype, entry.mask),
            joined(best, ", "),
            if is_now {
                "this kernel"
            } else {
                "STALE: the kernel has changed"
            },
        ]
    };
    let of_stage = entries.filter(|(_, entry)| entry.stage == stage.id);
    Table::of(["GPU", "problem", "best, p50 µs", "of"], of_stage.map(row))
}

fn presets(record: &Record, stage: &StageMeta) -> Table {
    let columns = [
        "variant",
        "query rows",
        "keys a tile",
        "threads",
        "blocks promised",
        "registers at most",
        "dynamic shared B",
    ];
    let on = On::Instance {
        dtype: Dtype::F16,
        head_dim: 64,
        arch: None,
    };
    let rows = record
        .by(Source::Kernel)
        .filter(|row| row.subject.stage() == stage.id && row.on == on);
    let row = |row: &Row| {
        let note = (row.subject.name() == stage.default_variant).then_some("default");
        let sizes = [
            Metric::TileM,
            Metric::TileN,
            Metric::Threads,
            Metric::MinBlocks,
        ];
        [
            row![noted(row.subject.name(), note)],
            each(Some(row), sizes),
            row![limit(Some(row)), of(Some(row), Metric::DynamicSharedBytes)],
        ]
        .concat()
    };
    Table::of(columns, rows.map(row))
}

/// The limits of every architecture that the stage is built for; of the record's GPU where it is built for none.
fn limits(record: &Record, id: &str) -> Table {
    let built = record
        .by(Source::Ptxas)
        .filter(|row| row.subject.stage() == id);
    let mut archs: BTreeSet<&str> = built
        .filter_map(|row| match &row.on {
            On::Instance { arch, .. } => arch.as_deref(),
            _ => None,
        })
        .collect();
    if let (true, Gpu::Present { arch, .. }) = (archs.is_empty(), &record.meta.machine.gpu) {
        archs.insert(arch);
    }
    let row = |arch: &str| {
        let sm = multiprocessor(arch)?;
        let figures = [
            sm.registers as usize,
            sm.threads as usize,
            sm.blocks as usize,
            sm.shared_bytes,
            sm.shared_opt_in_bytes,
        ];
        Some(
            [Cell::from(arch)]
                .into_iter()
                .chain(figures.map(|figure| whole(figure as f64)))
                .collect(),
        )
    };
    let columns = [
        "architecture",
        "registers",
        "threads",
        "blocks",
        "shared B",
        "shared B of one block",
    ];
    Table::of(columns, archs.into_iter().filter_map(row))
}

/// The element types that the stage's presets are built for; none where no record says.
fn dtypes(stage: &StageMeta, record: &Record) -> Vec<&'static str> {
    let has = |dtype: &Dtype| {
        record.by(Source::Kernel).any(|row| {
            row.subject.stage() == stage.id
                && matches!(row.on, On::Instance { dtype: of, .. } if of == *dtype)
        })
    };
    Dtype::ALL
        .into_iter()
        .filter(has)
        .map(Dtype::name)
        .collect()
}

fn task(stage: &StageMeta, record: Option<&Record>) -> [Block; 3] {
    let id = &stage.id;
    let types = match record.map(|record| dtypes(stage, record)) {
        Some(types) if !types.is_empty() => joined(types, ", "),
        _ => "element types that no record names".to_string(),
    };
    let shapes = joined(
        NAMED_SHAPES
            .iter()
            .map(|named| format!("{} {}", named.name, named.shape)),
        ", ",
    );
    let before = match &stage.predecessor {
        Some(before) => format!("It is a diff of {before}: one idea, everything else as it is."),
        None => "It is the control: every other stage is a diff of the one before.".to_string(),
    };
    let lines = [
        format!(
            "Fused attention forward in `{id}/kernel.cu`: {types}, head_dim 64 and 128, full and causal masks, any length. \
             Claims are stated on mission, full mask."
        ),
        format!("Shapes, batch x heads x length x head_dim: {shapes}."),
        before,
        format!(
            "Check a change: `cargo run -p compare -- --stages {id} --quick`, then without `--quick`; rank its presets \
             with `compare tune --stages {id}` on a GPU."
        ),
    ];
    let gates = Text::from("What each gate demands: ")
        .link("docs/rows.md", "docs/rows.md")
        .plain(".");
    [
        Block::section("Task"),
        Block::bullets(lines.iter().map(|line| words(line))),
        Block::Paragraph(gates),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::page::markdown;
    use crate::pages::testing::record;

    #[test]
    fn conclusions_come_before_figures() {
        let records = [("1".to_string(), record())];
        let report = verdict::report(Known {
            stages: &records[0].1.meta.stages,
            run: None,
            committed: &records,
        });
        insta::assert_snapshot!(markdown::markdown(&document(&report, "stage1-mma", &[]).unwrap()), @r##"
# Brief of stage1-mma: one idea

Figures of `1` (NVIDIA H200 (sm_90, 132 SMs, driver 580)), unless said otherwise.

## What follows, for mma-32x64

- Bank conflicts are 25 % of the wavefronts of shared-memory reads (rule: above 5 %): pad or swizzle what is read.
- 128 blocks for 132 SMs (rule: fewer than one each): the rest idles; smaller tiles, or split keys.

## Targets

| target | verdict | measured |
|---|---|---|
| mma >= 1.50x over stage0-scalar scalar | PASS | p50 2.000x [1.990, 2.010], p90 2.000x [1.990, 2.010], mean 2.000x [1.990, 2.010], claim 1.50x |

## Negative results

No committed record refutes a claim of it.

## Figures

| variant | verdict | p50 µs | vs previous | vs first | max error |
|---|---|---:|---:|---:|---:|
| mma-32x64 (best) | GREEN | 5.000 | 2.00x (−50 %) | 2.00x (−50 %) | 1.0e-3 |
| mma-64x64 | GREEN | 6.000 | 1.67x (−40 %) | 1.67x (−40 %) | 1.0e-3 |

## Tuned configurations (tune/)

NO DATA: it was not tuned; `compare tune` on a GPU.

## Compiled: mma-32x64

| variant | instance | registers | limit | cap | spilled B | stack B | shared B | shared cap | occupancy | R1 |
|---|---|---:|---|---|---:|---|---|---|---:|---|
| stage1/mma-32x64 | f16 d64 sm_90a | 128 | – | – | 0 | – | – | – | 25.0 % | PASS |

## Counted: mma-32x64

| variant | problem | figure | value | same-preset baseline | value / baseline |
|---|---|---|---:|---:|---:|
| mma-32x64 | mission f16 full | shared-load wavefronts | 49,152 | 49,152 | 1.000x |
| mma-32x64 | mission f16 full | shared-load bank conflicts | 12,288 | 12,288 | 1.000x |
| mma-32x64 | mission f16 full | blocks of the launch | 128 | 128 | 1.000x |

## Profiled (ncu): mma-32x64

NO DATA: the record has no profile of it; `compare profile` on its GPU completes it.

## Presets (f16, head_dim 64)

NO DATA: the record does not say.

## Limits of an SM

| architecture | registers | threads | blocks | shared B | shared B of one block |
|---|---:|---:|---:|---:|---:|
| sm_90a | 65,536 | 2,048 | 32 | 233,472 | 232,448 |

## Task

- Fused attention forward in `stage1-mma/kernel.cu`: element types that no record names, head_dim 64 and 128, full and causal masks, any length. Claims are stated on mission, full mask.
- Shapes, batch x heads x length x head_dim: small 1x1x32x64, mission 1x8x512x64, mission_b2 2x8x512x64, stretch 4x16x512x64, long 1x8x2048x64, wide 1x8x512x128.
- It is a diff of stage0-scalar: one idea, everything else as it is.
- Check a change: `cargo run -p compare -- --stages stage1-mma --quick`, then without `--quick`; rank its presets with `compare tune --stages stage1-mma` on a GPU.

What each gate demands: [docs/rows.md](docs/rows.md).
"##);
        assert!(document(&report, "stage9", &[]).is_none());
    }

    #[test]
    fn the_task_names_the_element_types_of_the_stage() {
        let mut record = record();
        for (subject, dtype) in [
            ("stage1-mma/mma-32x64", Dtype::Bf16),
            ("stage1-mma/mma-32x64", Dtype::F16),
            ("stage0-scalar/scalar", Dtype::E4m3),
        ] {
            let on = On::Instance {
                dtype,
                head_dim: 64,
                arch: None,
            };
            record.append(Row::new(subject, on, Source::Kernel));
        }
        let stage = &record.meta.stages[1];
        assert_eq!(
            (stage.id.as_str(), dtypes(stage, &record)),
            ("stage1-mma", vec!["f16", "bf16"])
        );
    }
}
