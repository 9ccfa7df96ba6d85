//! Data that a report does not have: what the record should have measured, and what its machine cannot.

use super::Known;
use super::claims::{Claimed, Status};
use super::list::joined;
use super::state::{State, cases, is_sanitized, measurable};
use crate::record::meta::{Came, DeviceCompiler, Measurable, Progress, Scope};
use crate::record::{Of, On, Place, Record, Row, Source, Subject};
use common::device::BackendKind;
use common::metric::{self, Metric};
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// Data that there is not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missing {
    pub what: String,
    /// Why, and what it would take.
    pub why: String,
    /// Whether the record should have it: then the exit code is 3.
    pub required: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

fn required(what: impl Into<String>, why: impl Into<String>) -> Missing {
    Missing {
        what: what.into(),
        why: why.into(),
        required: true,
    }
}

fn elsewhere(what: impl Into<String>, why: impl Into<String>) -> Missing {
    Missing {
        required: false,
        ..required(what, why)
    }
}

/// All that is missing, and why.
pub fn missing(known: &Known<'_>, states: &[(Subject, State)], claims: &[Claimed]) -> Vec<Missing> {
    let Some((_, record)) = known.subject() else {
        return vec![required(
            "every row",
            "there is no run and no committed record",
        )];
    };
    let meta = &record.meta;
    let mut missing = Vec::new();
    for (subject, state) in states {
        let State::NoData(gates) = state else {
            continue;
        };
        let names = if gates.is_empty() {
            "every gate".to_string()
        } else {
            joined(gates, ", ")
        };
        let checked = cases(record, subject).unwrap_or(0.0);

        let why = match &gates[..] {
            _ if checked == 0.0 => "no case of it ran",
            [GateId::C7] => "`compare sanitize` on its GPU completes the record",
            _ => "no case of it had this evidence",
        };
        missing.push(required(format!("{subject}: {names}"), why));
    }
    if let Progress::Partial { finished, planned } = meta.progress {
        missing.push(required(
            format!("{} of {planned} cases", planned - finished.min(planned)),
            "the run was interrupted",
        ));
    }
    if let Some(Came { to, planned }) = meta.peers {
        let remedy = match meta.of() {
            Of::Ladder => "`compare peers` goes on",
            Of::Candidate => "`compare candidate` times all of them again",
        };
        missing.push(elsewhere(
            format!(
                "{} of {planned} problems beside peers",
                planned - to.min(planned)
            ),
            format!("their timing was interrupted; {remedy}"),
        ));
    }
    missing.extend(uncovered(record));
    let mut ran = record
        .by(meta.backend.into())
        .filter(|row| row.on == On::All)
        .peekable();
    let took = |row: &Row| {
        row.value(Metric::Cases).unwrap_or(0.0) + row.value(Metric::CasesFailed).unwrap_or(0.0)
            > 0.0
    };
    if ran.peek().is_some() && !ran.any(took) {
        missing.push(required(
            "every case",
            "no variant of this run takes a problem of it",
        ));
    }
    missing.extend(of_claims(record, claims));
    let untested = record.by(Source::SelfTest).filter_map(|row| {
        let judged = row.verdicts.get(&GateId::S1)?;
        (judged.verdict == Verdict::NoData).then_some((row, judged))
    });
    missing.extend(untested.map(|(row, judged)| Missing {
        what: format!("{} of the self-test", row.on),
        why: judged.reason.clone(),
        required: measurable(record, GateId::S1),
    }));
    // What a later command added is not missing.
    let is_added = |gate: GateId| gate == GateId::C7 && is_sanitized(record);
    for scope in meta.gates.iter().filter(|scope| !is_added(scope.gate)) {
        if let Measurable::No { reason } = &scope.measurable {
            missing.push(elsewhere(format!("gate {}", scope.gate), reason));
        }
    }
    if !meta.source_lines {
        let why = "the program has no debug information: build it unstripped, or `compare accept` refuses the record";
        missing.push(elsewhere("source lines", why));
    }
    let absent: BTreeSet<&str> = (meta.stages.iter())
        .filter_map(|stage| match &stage.device_compiler {
            DeviceCompiler::Absent { reason } => Some(reason.as_str()),
            DeviceCompiler::Built { .. } => None,
        })
        .collect();
    missing.extend(
        absent
            .into_iter()
            .map(|why| elsewhere("registers, spills, occupancy and GPU code", why)),
    );
    if meta.backend == BackendKind::Cpu {
        missing.push(elsewhere("latency", "a candidate is timed on a GPU"));
    }
    if meta.backend == BackendKind::Emulated {
        missing.push(elsewhere(
            "latency",
            "the emulator is functional and never a timer; run on a GPU",
        ));
    }
    missing
}

fn of_claims(record: &Record, claims: &[Claimed]) -> Vec<Missing> {
    let is_whole = record.meta.scope == Scope::Whole;
    let mut missing = Vec::new();
    for claimed in claims {
        let Status::NoData { reason } = &claimed.status else {
            continue;
        };
        if claimed.claim.is_of_speed() {
            let is_peer = claimed.claim.relation.base().is_none();
            if measurable(record, GateId::L1) && is_whole && !is_peer {
                missing.push(required(claimed.title(), "it was not timed"));
            }
            continue;
        }
        // What the gate's own line says is not said again for each of its claims.
        let is_measured = match claimed.claim.metric.source() {
            metric::Source::Counters | metric::Source::Declared
                if !measurable(record, GateId::E1) =>
            {
                continue;
            }
            metric::Source::Compiler if !measurable(record, GateId::R1) => continue,
            source => source != metric::Source::Profile,
        };
        missing.push(Missing {
            what: claimed.title(),
            why: reason.clone(),
            required: is_measured && is_whole,
        });
    }
    missing
}

/// Problems that no variant of a stage takes: every stage must take every problem. Where passing cases were left out, or
/// flags chose variants, absence says nothing.
fn uncovered(record: &Record) -> Vec<Missing> {
    let chose = |flags: &[String]| flags.iter().any(|flag| flag.starts_with("--variants"));
    if record.cases.is_empty()
        || matches!(&record.meta.scope, Scope::Selected { flags } if chose(flags))
    {
        return Vec::new();
    }
    let mut missing = Vec::new();
    for stage in &record.meta.stages {
        let (mut refused, mut taken): (BTreeSet<&Place>, BTreeSet<&Place>) = Default::default();
        for row in record
            .cases
            .iter()
            .chain(&record.rows)
            .filter(|row| row.subject.stage() == stage.id)
        {
            let On::Case(place, _) = &row.on else {
                continue;
            };
            let is_refused = row.verdicts.is_empty() && row.by != Source::Input;
            if is_refused {
                refused.insert(place)
            } else {
                taken.insert(place)
            };
        }
        let lacking = refused.difference(&taken);
        missing.extend(lacking.map(|place| {
            required(
                format!("{}: {place}", stage.id),
                "no variant takes it; every stage must",
            )
        }));
    }
    missing
}
