//! Missing data: what the record should have, and what its machine cannot measure.

use super::Known;
use super::claims::Claimed;
use super::list::joined;
use super::state::{State, cases, is_sanitized, measurable};
use crate::record::meta::{Came, DeviceCompiler, Measurable, Progress, Scope};
use crate::record::{On, Place, Record, Row, Source, Subject};
use common::device::BackendKind;
use common::metric::{self, Metric};
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missing {
    pub what: String,
    /// The reason and, if there is one, the remedy.
    pub why: String,
    /// Whether the record should have it. If so, the exit code is 3.
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

fn optional(what: impl Into<String>, why: impl Into<String>) -> Missing {
    Missing {
        required: false,
        ..required(what, why)
    }
}

/// Everything that is missing.
pub fn missing(known: &Known<'_>, states: &[(Subject, State)], claims: &[Claimed]) -> Vec<Missing> {
    let Some(record) = known.record() else {
        let why = "there is no run and no committed record";
        return vec![required("every row", why)];
    };
    let meta = &record.meta;
    let mut missing = Vec::new();
    for (subject, state) in states {
        let State::NoData(gates) = state else {
            continue;
        };
        let names = match gates.is_empty() {
            true => "every gate".to_string(),
            false => joined(gates, ", "),
        };
        let why = match &gates[..] {
            _ if cases(record, subject).unwrap_or(0.0) == 0.0 => "none of its cases ran",
            [GateId::C7] => "`compare sanitize` on its GPU completes the record",
            _ => "none of its cases had this evidence",
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
        let left = planned - to.min(planned);
        let what = format!("{left} of {planned} problems beside peers");
        missing.push(optional(
            what,
            "timing was interrupted; `compare peers --shapes` times the rest",
        ));
    }
    missing.extend(uncovered(record));
    let summaries = record
        .by(meta.backend.into())
        .filter(|row| row.on == On::All);
    let ran = |row: &Row| {
        let metrics = [Metric::Cases, Metric::CasesFailed];
        metrics
            .into_iter()
            .any(|metric| row.value(metric) > Some(0.0))
    };
    let ran: Vec<bool> = summaries.map(ran).collect();
    if !ran.is_empty() && !ran.contains(&true) {
        missing.push(required(
            "every case",
            "no variant of this run supports any of its problems",
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
    // `compare sanitize` may have added it.
    let is_added = |gate: GateId| gate == GateId::C7 && is_sanitized(record);
    for scope in meta.gates.iter().filter(|scope| !is_added(scope.gate)) {
        if let Measurable::No { reason } = &scope.measurable {
            missing.push(optional(format!("gate {}", scope.gate), reason));
        }
    }
    if !meta.source_lines {
        let why = "the program has no debug information, so that `compare accept` refuses the record: build it unstripped";
        missing.push(optional("source lines", why));
    }
    let absent = meta
        .stages
        .iter()
        .filter_map(|stage| match &stage.device_compiler {
            DeviceCompiler::Absent { reason } => Some(reason.as_str()),
            DeviceCompiler::Built { .. } => None,
        });
    let absent: BTreeSet<&str> = absent.collect();
    let absent = absent.into_iter();
    missing.extend(absent.map(|why| optional("registers, spills, occupancy and GPU code", why)));
    let untimed = match meta.backend {
        BackendKind::Emulated => Some("the emulator is functional, not a timer; run on a GPU"),
        BackendKind::Cuda => None,
    };
    missing.extend(untimed.map(|why| optional("latency", why)));
    missing
}

fn of_claims(record: &Record, claims: &[Claimed]) -> Vec<Missing> {
    let is_whole = record.meta.scope == Scope::Whole;
    let mut missing = Vec::new();
    for claimed in claims {
        if claimed.verdict() != Some(Verdict::NoData) {
            continue;
        }
        if claimed.claim.is_of_speed() {
            let is_peer = claimed.claim.relation.base().is_none();
            if measurable(record, GateId::L1) && is_whole && !is_peer {
                missing.push(required(claimed.title(), "it was not timed"));
            }
            continue;
        }
        // A gate that cannot be measured has a line of its own.
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
            why: claimed.finding.reason.clone(),
            required: is_measured && is_whole,
        });
    }
    missing
}

/// Problems that no variant of a stage supports, although every stage must support all. It cannot be told if passing cases were not
/// recorded, or if flags selected variants.
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
        for row in record.cases.iter().chain(&record.rows) {
            if let On::Case(place, _) = &row.on
                && row.subject.stage() == stage.id
            {
                let is_refused = row.verdicts.is_empty() && row.by != Source::Input;
                let side = if is_refused { &mut refused } else { &mut taken };
                side.insert(place);
            }
        }
        missing.extend(refused.difference(&taken).map(|place| {
            let what = format!("{}: {place}", stage.id);
            required(what, "no variant supports it; every stage must")
        }));
    }
    missing
}
