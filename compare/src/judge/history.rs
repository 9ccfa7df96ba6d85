//! Figures over the committed records: one line per stage or variant, and per GPU.

use super::list::distinct;
use super::state::cases;
use super::{Named, best, place};
use crate::record::meta::{Git, first_place};
use crate::record::{On, Record, Source, Subject};
use common::metric::Metric;
use serde::Serialize;

/// What is followed: a stage by its best variant of each record, or one variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    pub stage: String,
    /// Absent for the stage's best.
    pub variant: Option<String>,
    /// The GPU, or the emulator: lines of two GPUs are never one line.
    pub gpu: String,
    /// What latencies and conflicts are on: the claims' problem in the first element type that the stage takes.
    pub on: String,
    /// One per record of that GPU that ran it, oldest first.
    pub points: Vec<Point>,
}

/// A series in one record. A figure that the record does not have is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub record: String,
    /// The commit that it was built from; `-dirty` where files had been changed since.
    pub commit: String,
    /// The variant that stands for the series here.
    pub variant: Option<String>,
    /// Median device time, in microseconds.
    pub p50_us: Option<f64>,
    /// Registers per thread of its instance for that type and head_dim 64 on this GPU.
    pub registers: Option<f64>,
    /// Bank conflicts of shared memory, counted by the emulator.
    pub conflicts: Option<f64>,
}

/// The history of all stages, or of every variant of `only`.
pub fn history(records: &[Named], only: Option<&str>) -> Vec<Series> {
    let stages = records.iter().flat_map(|(_, record)| &record.meta.stages);
    let mut names = distinct(stages.flat_map(|stage| {
        match only {
            None => vec![(&stage.id, None)],
            Some(id) if id == stage.id => stage
                .variants
                .iter()
                .map(|variant| (&stage.id, Some(variant.name.as_str())))
                .collect(),
            Some(_) => vec![],
        }
    }));
    // In the ladder's order; what it no longer has comes last.
    let newest = records.last().map(|(_, record)| &record.meta.stages[..]);
    let place_of = |id: &String| newest?.iter().position(|stage| stage.id == *id);
    names.sort_by_key(|&(stage, _)| place_of(stage).unwrap_or(usize::MAX));
    let mut series = Vec::new();
    for gpu in distinct(records.iter().map(|(_, record)| place(record))) {
        for &(stage, variant) in &names {
            let of_gpu = records.iter().filter(|(_, record)| place(record) == gpu);
            let ran = of_gpu.filter(|(_, record)| has_run(record, stage, variant));
            let ran: Vec<&Named> = ran.collect();
            let Some((_, newest)) = ran.last() else {
                continue;
            };
            series.push(Series {
                stage: stage.clone(),
                variant: variant.map(String::from),
                gpu: gpu.clone(),
                on: first_place(newest.stage(stage)).to_string(),
                points: ran
                    .iter()
                    .map(|named| point(named, stage, variant))
                    .collect(),
            });
        }
    }
    series
}

/// Whether a case of the variant, or of any of the stage, was judged.
fn has_run(record: &Record, id: &str, variant: Option<&str>) -> bool {
    let all = record
        .stage(id)
        .into_iter()
        .flat_map(|stage| stage.subjects());
    let mut chosen = all.filter(|subject| variant.is_none_or(|variant| variant == subject.name()));
    chosen.any(|subject| cases(record, &subject) > Some(0.0))
}

fn point((name, record): &Named, id: &str, variant: Option<&str>) -> Point {
    let stage = record.stage(id);
    let on = first_place(stage);
    let row = best::best(record, id, &on, |name| {
        variant.is_none_or(|variant| variant == name)
    });
    let fastest = row.map(|row| row.subject.name());
    let default = stage.map(|stage| stage.default_variant.as_str());
    let chosen = variant.or(fastest).or(default);
    let chosen = chosen.filter(|name| stage.is_some_and(|stage| stage.variant(name).is_some()));
    let subject = chosen.map(|name| Subject::variant(id, name));
    let of = |figure: fn(&Record, &Subject) -> Option<f64>| figure(record, subject.as_ref()?);
    Point {
        record: name.clone(),
        commit: match &record.meta.git {
            Git::Commit { sha, dirty, .. } => {
                format!("{sha:.8}{}", if *dirty { "-dirty" } else { "" })
            }
            Git::Unknown { .. } => "unknown".to_string(),
        },
        p50_us: row.map(best::p50),
        registers: of(registers),
        conflicts: of(conflicts),
        variant: chosen.map(String::from),
    }
}

/// Registers per thread of the instance of the stage's first element type and head_dim 64: for the GPU of the record, else for the
/// last architecture built.
pub fn registers(record: &Record, subject: &Subject) -> Option<f64> {
    of_instance(record, subject, Metric::Registers)
}

/// A figure of the instance of the stage's first element type and head_dim 64 as compiled for the GPU of the record, else for the last architecture built.
pub fn of_instance(record: &Record, subject: &Subject, metric: Metric) -> Option<f64> {
    let dtype = first_place(record.stage(subject.stage())).dtype;
    let built = record.instances(subject, Source::Ptxas, dtype, 64);
    let of_claims: Vec<(&str, f64)> = built
        .filter_map(|(arch, row)| Some((arch?, row.value(metric)?)))
        .collect();
    let runs = |arch: &str| record.meta.machine.gpu.runs(arch);
    of_claims
        .iter()
        .find(|(arch, _)| runs(arch))
        .or(of_claims.last())
        .map(|(_, value)| *value)
}

/// Bank conflicts of shared-memory reads, writes and cp.async.
pub fn conflicts(record: &Record, subject: &Subject) -> Option<f64> {
    let on = On::Problem(first_place(record.stage(subject.stage())));
    let row = record.row(subject, &on, Source::Emulator)?;
    let parts = [
        Metric::SharedReadConflicts,
        Metric::SharedWriteConflicts,
        Metric::AsyncWriteConflicts,
    ];
    parts.into_iter().map(|metric| row.value(metric)).sum()
}
