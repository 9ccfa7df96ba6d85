//! Figures over the committed records: one line per stage or variant, and per GPU.

use super::Committed;
use super::latency::{best, is_mission, withheld};
use super::representative::{built_for, conflicts};
use common::device::BackendKind;
use common::problem::Dtype;
use common::record::{Git, Record, StageBuild, Timing};
use serde::Serialize;

/// What is followed: a stage by its fastest green variant of each record, or one variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The stage.
    pub stage: String,
    /// The variant; absent for the stage's best.
    pub variant: Option<String>,
    /// The GPU, or the emulator: lines of two GPUs are never one line.
    pub gpu: String,
    /// One per record of that GPU, oldest first.
    pub points: Vec<Point>,
}

/// A series in one record. A figure that the record does not have is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The record's position among all committed ones.
    pub index: usize,
    /// The record.
    pub record: String,
    /// The commit that it was built from; `-dirty` where files had been changed since.
    pub commit: String,
    /// The variant that stands for the series here.
    pub variant: Option<String>,
    /// Median device time on mission, f16, full mask, in microseconds.
    pub p50_us: Option<f64>,
    /// Registers per thread of its f16, head_dim 64 instance on this GPU.
    pub registers: Option<u32>,
    /// Bank conflicts of shared memory on mission, f16, full mask, counted by the emulator.
    pub conflicts: Option<f64>,
}

impl Series {
    /// `stage5-swizzle`, or where variants are followed `swizzle-32x64`.
    pub fn followed(&self) -> &str {
        self.variant.as_ref().unwrap_or(&self.stage)
    }
}

/// The history of all stages, or of every variant of `only`.
pub fn history(committed: &[Committed], only: Option<&str>) -> Vec<Series> {
    let mut names: Vec<(String, Option<String>)> = Vec::new();
    for stage in committed.iter().flat_map(|(_, record)| &record.meta.stages) {
        let followed: Vec<_> = match only {
            None => vec![(stage.id.clone(), None)],
            Some(id) if id == stage.id => {
                stage.variants.iter().map(|variant| (stage.id.clone(), Some(variant.name.clone()))).collect()
            }
            Some(_) => vec![],
        };
        for name in followed {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let mut gpus: Vec<&str> = Vec::new();
    for (_, record) in committed {
        if !gpus.contains(&place(record)) {
            gpus.push(place(record));
        }
    }
    let mut series = Vec::new();
    for gpu in gpus {
        for (stage, variant) in &names {
            let points = committed.iter().enumerate().filter(|(_, (_, record))| place(record) == gpu);
            let points = points.map(|(index, committed)| point(index, committed, stage, variant.as_deref())).collect();
            series.push(Series { stage: stage.clone(), variant: variant.clone(), gpu: gpu.to_string(), points });
        }
    }
    series
}

fn place(record: &Record) -> &str {
    match record.meta.backend {
        BackendKind::Cuda => record.meta.machine.gpu.name().unwrap_or("an unknown GPU"),
        BackendKind::Emulated => "the emulator",
    }
}

fn point(index: usize, (name, record): &Committed, stage: &str, variant: Option<&str>) -> Point {
    let build = record.meta.stages.iter().find(|build| build.id == stage);
    let timing = match variant {
        None => best(record, stage, |_| true),
        Some(variant) => timing_of(record, stage, variant),
    };
    let of = |build: &StageBuild| timing.map_or(build.default_variant.clone(), |timing| timing.variant.clone());
    let chosen = variant.map(String::from).or_else(|| build.map(of));
    let built = build.and_then(|build| built_for(record, build.variant(chosen.as_deref()?)?));
    let commit = match &record.meta.git {
        Git::Commit { sha, dirty } => format!("{sha:.8}{}", if *dirty { "-dirty" } else { "" }),
        Git::Unknown { .. } => "unknown".to_string(),
    };
    Point {
        index,
        record: name.clone(),
        commit,
        p50_us: timing.map(|timing| timing.measurement.device.p50),
        registers: built.map(|built| built.ptxas.resources.registers),
        conflicts: chosen.as_deref().and_then(|variant| conflicts(record, stage, variant)),
        variant: chosen.filter(|chosen| build.is_some_and(|build| build.variant(chosen).is_some())),
    }
}

fn timing_of<'a>(record: &'a Record, stage: &str, variant: &str) -> Option<&'a Timing> {
    let timings = record.performance.iter().flat_map(|performance| &performance.timings);
    timings
        .filter(|timing| {
            (timing.stage.as_str(), timing.variant.as_str()) == (stage, variant) && is_mission(timing, Dtype::F16)
        })
        .find(|timing| withheld(record, timing).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{built, emulated, timed};
    use common::record::Gpu;

    fn elsewhere(mut record: Record) -> Record {
        let Gpu::Present { name, .. } = &mut record.meta.machine.gpu else { panic!("literal") };
        *name = "NVIDIA L4".into();
        record
    }

    #[test]
    fn each_gpu_has_lines_of_its_own_and_gaps_stay_gaps() {
        let records = [
            ("1".to_string(), timed([32.0, 20.0, 15.0])),
            ("2".to_string(), elsewhere(timed([90.0, 80.0, 70.0]))),
            ("3".to_string(), emulated()),
            ("4".to_string(), built(timed([32.0, 19.0, 14.0]), 96, 0)),
        ];
        let rows: Vec<String> = history(&records, None)
            .iter()
            .flat_map(|series| {
                series.points.iter().map(|point| {
                    let Point { record, variant, p50_us, registers, conflicts, .. } = point;
                    let p50 = p50_us.map(|us| us.round());
                    format!("{} {} {record} {variant:?} {p50:?} {registers:?} {conflicts:?}", series.gpu, series.stage)
                })
            })
            .collect();
        insta::assert_snapshot!(rows.join("\n"));
        let variants = history(&records, Some("stage0-scalar"));
        let names: Vec<&str> = variants.iter().take(2).map(Series::followed).collect();
        assert_eq!(names, ["scalar-32x64", "wmma-qk-32x64"]);
        assert_eq!(variants.len(), 6, "two variants on three machines");
        assert_eq!(history(&[], None), []);
    }
}
