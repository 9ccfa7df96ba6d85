//! Data that a report does not have: what this run should have measured, and what this machine cannot.

use super::{ClaimRow, ClaimState, Row, RowState, measurable};
use common::check::Outcome;
use common::device::BackendKind;
use common::evidence::Source;
use common::record::{ClaimResult, DeviceCompiler, EvidenceResult, Measurable, Progress, Record, Scope, StageBuild};
use common::verdict::GateId;
use serde::Serialize;
use std::collections::BTreeSet;

/// Data that there is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why, and what it would take.
    pub why: String,
    /// Whether this run should have it: then the exit code is 3.
    pub required: bool,
}

/// All that is missing, and why.
pub fn missing(
    stages: &[StageBuild],
    rows: &[Row],
    claims: &[ClaimRow<ClaimResult>],
    evidence: &[ClaimRow<EvidenceResult>],
    subject: Option<(&str, &Record)>,
) -> Vec<Missing> {
    let Some((_, record)) = subject else {
        let what = "every row".to_string();
        return vec![Missing { what, why: "there is no run and no committed record".into(), required: true }];
    };
    let meta = &record.meta;
    let mut missing = Vec::new();
    for row in rows {
        if let RowState::NoData(gates) = &row.state {
            let names: Vec<String> = gates.iter().map(GateId::to_string).collect();
            let what = format!(
                "{}/{}: {}",
                row.stage,
                row.variant,
                if names.is_empty() { "every gate".into() } else { names.join(", ") }
            );
            let why = match &gates[..] {
                _ if row.checked == 0 => "no case of it ran",
                [GateId::C7] => "`compare sanitize` on its GPU completes the record",
                _ => "no case of it had this evidence",
            };
            missing.push(Missing { what, why: why.into(), required: true });
        }
    }
    if let Progress::Partial { finished, planned } = meta.progress {
        let what = format!("{} of {planned} cases", planned - finished.min(planned));
        missing.push(Missing { what, why: "the run was interrupted".into(), required: true });
    }
    missing.extend(uncovered(stages, record));
    let ran = &record.correctness.variants;
    if !ran.is_empty() && ran.iter().all(|summary| summary.checked + summary.failed == 0) {
        let why = "no variant of this run takes a problem of it".to_string();
        missing.push(Missing { what: "every case".into(), why, required: true });
    }
    let claims_measurable = measurable(meta, GateId::L1) && meta.scope == Scope::Whole;
    for claim in claims.iter().filter(|claim| claims_measurable && matches!(claim.state, ClaimState::NoData { .. })) {
        missing.push(Missing { what: claim.title(), why: "it was not timed".into(), required: true });
    }
    for claim in evidence {
        let ClaimState::NoData { reason } = &claim.state else { continue };
        // What the gate's own line says is not said again for each of its claims.
        let measured = match claim.terms.quantity.source() {
            Source::Counters | Source::Declared if !measurable(meta, GateId::E1) => continue,
            Source::Compiler if !measurable(meta, GateId::R1) => continue,
            source => source != Source::Profile,
        };
        let required = measured && meta.scope == Scope::Whole;
        missing.push(Missing { what: claim.title(), why: reason.clone(), required });
    }
    // What a later command added is not missing.
    let is_added = |gate: GateId| gate == GateId::C7 && record.sanitizer.is_some();
    for scope in meta.gates.iter().filter(|scope| !is_added(scope.gate)) {
        if let Measurable::No { reason } = &scope.measurable {
            missing.push(Missing { what: format!("gate {}", scope.gate), why: reason.clone(), required: false });
        }
    }
    if !meta.source_lines {
        let why = "the program has no debug information: build it unstripped, or `compare accept` refuses the record";
        missing.push(Missing { what: "source lines".into(), why: why.into(), required: false });
    }
    let absent: BTreeSet<&str> = stages
        .iter()
        .filter_map(|stage| match &stage.device_compiler {
            DeviceCompiler::Absent { reason } => Some(reason.as_str()),
            DeviceCompiler::Built { .. } => None,
        })
        .collect();
    let what = "registers, spills, occupancy and GPU code".to_string();
    missing.extend(absent.into_iter().map(|why| Missing { what: what.clone(), why: why.into(), required: false }));
    if meta.backend == BackendKind::Emulated {
        let what = "latency".to_string();
        missing.push(Missing {
            what,
            why: "the emulator is functional and never a timer; run on a GPU".into(),
            required: false,
        });
    }
    missing
}

/// Problems that no variant of a stage takes: every stage must take every problem.
fn uncovered(stages: &[StageBuild], record: &Record) -> Vec<Missing> {
    let mut missing = Vec::new();
    // Where passing cases were left out of a committed record, absence says nothing. Nor does it where flags chose variants.
    let chose = |flags: &[String]| flags.iter().any(|flag| flag.starts_with("--variants"));
    if record.correctness.omitted_cases > 0 || matches!(&record.meta.scope, Scope::Selected { flags } if chose(flags)) {
        return missing;
    }
    for stage in stages {
        let mut refused: BTreeSet<String> = BTreeSet::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for case in record.correctness.cases.iter().filter(|case| case.key.stage == stage.id) {
            let problem = format!("{} {} {}", case.key.shape_name, case.key.dtype, case.key.mask);
            match case.outcome {
                Outcome::Unsupported { .. } => refused.insert(problem),
                _ => taken.insert(problem),
            };
        }
        for problem in refused.difference(&taken) {
            let what = format!("{}: {problem}", stage.id);
            missing.push(Missing { what, why: "no variant takes it; every stage must".into(), required: true });
        }
    }
    missing
}
