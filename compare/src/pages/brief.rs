//! `compare brief`: a stage for someone who tunes it. First what follows from the figures, then the figures.

use super::insights::insights;
use super::show::Show;
use super::{
    clip, each, gpu, ladder, limit, list, noted, of, or_line, sections, some, standing, state,
    text, us, whole,
};
use crate::judge::best;
use crate::judge::claims::Claimed;
use crate::judge::list::joined;
use crate::judge::state::{State, summary};
use crate::judge::verdict::Report;
use crate::page::{Block, Document, Table, Text, row};
use crate::record::meta::Gpu;
use crate::record::tuning_cache::Entry;
use crate::record::{On, Record, Row, Source, StageMeta, Subject, TuningCache};
use common::metric::Metric;
use common::problem::{Dtype, NAMED_SHAPES};
use common::resources::multiprocessor;
use common::verdict::Verdict;
use std::collections::BTreeSet;

/// `None` if there is no such stage. `tuned` are the files of tune/.
pub fn document(report: &Report<'_>, id: &str, tuned: &[TuningCache]) -> Option<Document> {
    let stage = report.known.stage(id)?;
    let best = best::subject(&report.known, stage);
    let found = report.known.subject();
    let source = match found {
        Some((name, record)) => {
            let gpu = gpu(&record.meta.machine.gpu);
            format!("Figures are of `{name}` ({gpu}) unless stated otherwise.")
        }
        None => "NO DATA: there is no record.".to_string(),
    };
    let is_stale = found.is_some_and(|(_, record)| !record.is_of(stage));
    let stale = "STALE: the kernel has changed since; run `compare` again.";
    let head = [Some(&*source), is_stale.then_some(stale)];
    let insights = found.map_or(vec![], |(_, record)| insights(record, &best));
    let mut all = vec![
        (format!("Conclusions for {}", best.name()), list(insights)),
        ("Targets".into(), targets(report, id)),
        ("Negative results".into(), negatives(report, id)),
        ("Figures".into(), some(figures(report, stage, &best))),
    ];
    let mut section =
        |title: String, found, otherwise| all.push((title, or_line(found, otherwise)));
    section(
        "Tuned configurations (tune/)".into(),
        some(best_presets(stage, tuned)),
        "NO DATA: it was not tuned; run `compare tune` on a GPU.",
    );
    if let Some((_, record)) = found {
        let (ids, best_name) = ([stage.id.clone()], best.name());
        let show = Show {
            report,
            record,
            stages: &ids,
            only: Some(&best),
        };
        section(
            format!("Resources of {best_name}"),
            show.resources(),
            "NO DATA: no record of this kernel was built by nvcc.",
        );
        section(
            format!("Counters of {best_name}"),
            show.counters(),
            "NO DATA: the record has no counters of it.",
        );
        section(
            format!("Profile of {best_name} (ncu)"),
            show.profile(),
            "NO DATA: the record has no profile of it; `compare profile` on its GPU adds it.",
        );
        section(
            format!("Presets ({}, head_dim 64)", stage.first_dtype()),
            some(presets(record, stage)),
            "NO DATA: the record has none.",
        );
        section(
            "Limits of an SM".into(),
            some(limits(record, id)),
            "NO DATA: the record is not of a GPU, and nvcc built none of this kernel.",
        );
    }
    all.push(("Task".into(), task(stage, found.map(|(_, record)| record))));
    let head = head.into_iter().flatten().map(Block::paragraph);
    Some(Document {
        title: format!("Brief of {id}: {}", stage.idea),
        blocks: head.chain(sections(all)).collect(),
        ..Document::default()
    })
}

/// The claims of the stage with their figures; claims of counters that are kept as a count.
fn targets(report: &Report<'_>, id: &str) -> Vec<Block> {
    let claims = report.claims.iter().filter(|of| of.stage == id);
    let is_kept = |of: &&Claimed| {
        let is_current = !of.origin.is_stale();
        !of.claim.is_of_speed() && is_current && of.verdict() == Some(Verdict::Pass)
    };
    let (kept, others): (Vec<&Claimed>, Vec<&Claimed>) = claims.partition(is_kept);
    let row = |of: &Claimed| {
        row! {
            "target" => text(&of.claim),
            "verdict" => standing(of).0,
            "measured" => clip(&of.finding.reason, 240),
        }
    };
    let table = some(Table::of(others.into_iter().map(row)));
    let kept = match kept.len() {
        0 => None,
        n => Some(Block::paragraph(format!(
            "{n} claims of counters are kept."
        ))),
    };
    let table = or_line(table, "It makes no other claims.");
    table.into_iter().chain(kept).collect()
}

fn negatives(report: &Report<'_>, id: &str) -> Vec<Block> {
    let mut lines: Vec<String> = Vec::new();
    for (name, record) in report.known.committed {
        let Some(negative) = &record.meta.negative else {
            continue;
        };
        let of_stage = negative.claims.iter().filter(|claim| claim.stage == id);
        let before = lines.len();
        lines.extend(of_stage.map(|of| format!("{name}: {}: {}", of.claim, of.evidence)));
        if lines.len() > before {
            lines.push(format!("{name}, why: {}", negative.reason));
        }
    }
    or_line(list(lines), "No committed record refutes a claim of it.")
}

fn figures(report: &Report<'_>, stage: &StageMeta, best: &Subject) -> Table {
    let record = report.known.record();
    let row = |(subject, of_variant): &(Subject, State)| {
        let [time, previous, first] = ladder::times(&report.known, subject);
        let row = record.and_then(|record| summary(record, subject));
        row! {
            "variant" => noted(subject.name(), (subject == best).then_some("best")),
            "verdict" => state(of_variant),
            "p50 µs" => time,
            "vs previous" => previous,
            "vs first" => first,
            "max error" => of(row, Metric::MaxError),
        }
    };
    let states = report.states.iter();
    Table::of(
        states
            .filter(|(subject, _)| subject.stage() == stage.id)
            .map(row),
    )
}

fn best_presets(stage: &StageMeta, tuned: &[TuningCache]) -> Table {
    let row = |gpu: &String, entry: &Entry| {
        let best = entry.best.iter();
        let best = best.map(|ranked| format!("{} {}", ranked.variant, us(ranked.p50_us).shown()));
        let is_now = entry.identity == stage.identity;
        row! {
            "GPU" => gpu,
            "problem" => format!("{} {} {}", entry.shape_name, entry.dtype, entry.mask),
            "best, p50 µs" => joined(best, ", "),
            "of" => if is_now { "this kernel" } else { "STALE: the kernel has changed" },
        }
    };
    Table::of(tuned.iter().flat_map(|file| {
        let of_stage = file.entries.iter().filter(|entry| entry.stage == stage.id);
        of_stage.map(|entry| row(&file.gpu, entry))
    }))
}

fn presets(record: &Record, stage: &StageMeta) -> Table {
    let on = On::Instance {
        dtype: stage.first_dtype(),
        head_dim: 64,
        arch: None,
    };
    let is_of = |row: &&Row| row.subject.stage() == stage.id && row.on == on;
    let row = |row: &Row| {
        let name = row.subject.name();
        let note = (name == stage.default_variant).then_some("default");
        let metrics = [
            Metric::TileM,
            Metric::TileN,
            Metric::Threads,
            Metric::MinBlocks,
            Metric::DynamicSharedBytes,
        ];
        [
            row! { "variant" => noted(name, note) },
            each(Some(row), metrics),
            row! { "registers at most" => limit(Some(row)) },
        ]
        .concat()
    };
    Table::of(record.by(Source::Kernel).filter(is_of).map(row))
}

/// The limits of every architecture that the stage is built for; if it is built for none, of the record's GPU.
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
        Some(row! {
            "architecture" => arch,
            "registers" => whole(sm.registers.into()),
            "threads" => whole(sm.threads.into()),
            "blocks" => whole(sm.blocks.into()),
            "shared B" => whole(sm.shared_bytes as f64),
            "shared B per block" => whole(sm.shared_opt_in_bytes as f64),
        })
    };
    Table::of(archs.into_iter().filter_map(row))
}

/// The element types that the record has instances of the stage for.
fn dtypes(stage: &StageMeta, record: &Record) -> Vec<&'static str> {
    let has = |dtype: &Dtype| {
        record.by(Source::Kernel).any(|row| {
            row.subject.stage() == stage.id
                && matches!(row.on, On::Instance { dtype: of, .. } if of == *dtype)
        })
    };
    let all = Dtype::ALL.into_iter().filter(has);
    all.map(Dtype::name).collect()
}

fn task(stage: &StageMeta, record: Option<&Record>) -> Vec<Block> {
    let id = &stage.id;
    let types = match record.map(|record| dtypes(stage, record)) {
        Some(types) if !types.is_empty() => joined(types, ", "),
        _ => "element types that no record names".to_string(),
    };
    let shapes = NAMED_SHAPES.iter();
    let shapes = joined(
        shapes.map(|named| format!("{} {}", named.name, named.shape)),
        ", ",
    );
    let before = match &stage.predecessor {
        Some(before) => format!("It is a diff of {before}: one idea, everything else unchanged."),
        None => "It is the baseline: every other stage is a diff of its predecessor.".to_string(),
    };
    let lines = [
        format!(
            "Fused attention forward in `{id}/kernel.cu`: {types}, head_dim 64 and 128, full and causal masks, any length. \
             Claims are stated on mission, full mask."
        ),
        format!("Shapes, batch x heads x length x head_dim: {shapes}."),
        before,
        format!(
            "Check a change with `cargo run -p compare -- --stages {id} --quick`, then without `--quick`; rank its presets \
             with `compare tune --stages {id}` on a GPU."
        ),
    ];
    let gates = Text::from("What each gate demands: ").link("docs/rows.md");
    vec![Block::bullets(lines), Block::Paragraph(gates.plain("."))]
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

Figures are of `1` (NVIDIA H200 (sm_90, 132 SMs, driver 580)) unless stated otherwise.

## Conclusions for mma-32x64

- Bank conflicts are 25 % of the wavefronts of shared-memory reads (rule: above 5 %): pad or swizzle the tile.
- 128 blocks for 132 SMs (rule: fewer than one each): the others idle; use smaller tiles or split-KV.

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

NO DATA: it was not tuned; run `compare tune` on a GPU.

## Resources of mma-32x64

| variant | instance | registers | limit | cap | spilled B | stack B | shared B | shared cap | occupancy | R1 |
|---|---|---:|---|---|---:|---|---|---|---:|---|
| stage1/mma-32x64 | f16 d64 sm_90a | 128 | – | – | 0 | – | – | – | 25.0 % | PASS |

## Counters of mma-32x64

| variant | problem | figure | value | same-preset baseline | value / baseline |
|---|---|---|---:|---:|---:|
| mma-32x64 | mission f16 full | shared-load wavefronts | 49,152 | 49,152 | 1.000x |
| mma-32x64 | mission f16 full | shared-load bank conflicts | 12,288 | 12,288 | 1.000x |
| mma-32x64 | mission f16 full | blocks of the launch | 128 | 128 | 1.000x |

## Profile of mma-32x64 (ncu)

NO DATA: the record has no profile of it; `compare profile` on its GPU adds it.

## Presets (f16, head_dim 64)

NO DATA: the record has none.

## Limits of an SM

| architecture | registers | threads | blocks | shared B | shared B per block |
|---|---:|---:|---:|---:|---:|
| sm_90a | 65,536 | 2,048 | 32 | 233,472 | 232,448 |

## Task

- Fused attention forward in `stage1-mma/kernel.cu`: element types that no record names, head_dim 64 and 128, full and causal masks, any length. Claims are stated on mission, full mask.
- Shapes, batch x heads x length x head_dim: small 1x1x32x64, mission 1x8x512x64, mission_b2 2x8x512x64, stretch 4x16x512x64, long 1x8x2048x64, wide 1x8x512x128.
- It is a diff of stage0-scalar: one idea, everything else unchanged.
- Check a change with `cargo run -p compare -- --stages stage1-mma --quick`, then without `--quick`; rank its presets with `compare tune --stages stage1-mma` on a GPU.

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
