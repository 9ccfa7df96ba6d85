//! `--json`: everything in one document, a row per stage, variant, dtype, shape, mask, inputs and backend.

use crate::comparison::Report;
use common::problem::Dtype;
use common::record::{KernelBuild, Record, StageBuild, Timing};
use serde_json::{Value, json};

/// The document. `rows` joins each case with its instance's resources and, where there is one, its latency.
pub fn document(report: &Report, name: &str, record: &Record) -> Value {
    let rows: Vec<Value> = record
        .correctness
        .cases
        .iter()
        .map(|case| {
            let mut row = serde_json::to_value(case).expect("cases hold no maps with keys that are not strings");
            let key = &case.key;
            let instance = instance(&record.meta.stages, &key.stage, &key.variant, key.dtype, key.shape.head_dim);
            row["resources"] = instance.map_or(Value::Null, |kernel| json!(kernel));
            let same = |timing: &&Timing| {
                (&timing.stage, &timing.variant, &timing.shape, timing.dtype, timing.mask)
                    == (&key.stage, &key.variant, &key.shape, key.dtype, key.mask)
            };
            let timing = record.performance.iter().flat_map(|performance| &performance.timings).find(same);
            if let Some(timing) = timing.filter(|timing| crate::comparison::withheld(record, timing).is_none()) {
                row["latency"] = json!({
                    "device_us": timing.measurement.device,
                    "single_launch_us": timing.measurement.single,
                    "cache": timing.measurement.rotation,
                    "after_timing": timing.after,
                });
            }
            row
        })
        .collect();
    let overall = &report.overall;
    json!({
        "schema": common::record::SCHEMA,
        "record": name,
        "verdict": { "word": overall.word, "line": overall.line, "actions": overall.actions, "exit_code": overall.exit.code() },
        "meta": record.meta,
        "failed_gates": report.failures,
        "changes": report.changes,
        "missing": report.missing,
        "ladder": report.rows,
        "variants": record.correctness.variants,
        "planted_faults": record.correctness.planted,
        "synchronisation": record.correctness.synchronisation,
        "claims": report.claims,
        "peer_claims": report.peer_claims,
        "peers": report.peers,
        "evidence_claims": report.evidence_claims,
        "counters": report.counters,
        "counter_deltas": report.deltas,
        "evidence": record.evidence,
        "profile": record.profile,
        "sanitizer": record.sanitizer,
        "timing_scopes": report.timing_scopes,
        "rows": rows,
    })
}

fn instance<'a>(
    stages: &'a [StageBuild],
    stage: &str,
    variant: &str,
    dtype: Dtype,
    head_dim: usize,
) -> Option<&'a KernelBuild> {
    let stage = stages.iter().find(|build| build.id == stage)?;
    let kernels = &stage.variant(variant)?.kernels;
    kernels.iter().find(|kernel| (kernel.facts.dtype, kernel.facts.head_dim) == (dtype, head_dim))
}
