//! What compute-sanitizer prints, and what it means for a variant. Pure.

use common::verdict::{GateId, GateResult};
use measure::instrument::process::Ended;

/// The beginning of every line of the tool.
const MARK: &str = "=========";

/// The text of one process, which launched one variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Each finding with the place that it names first: `Invalid __global__ write of size 4 bytes
    /// at stage0_…_f16_d64+0x80 in kernel.cu:157`. The tool leaves out what is more than its limit.
    findings: Vec<String>,
    /// The number of errors and warnings by the tool's summary, if it printed one.
    counted: Option<u64>,
    refused: Option<String>,
}

/// A process under the tool, by the account of this program.
pub struct Process<'a> {
    pub ended: &'a Ended,
    /// The launch that failed.
    pub failure: Option<String>,
    /// The time that the process was given, in seconds.
    pub timeout: u64,
    /// The number of launches that ended.
    pub launched: usize,
    pub planned: usize,
}

impl Log {
    /// Reads what compute-sanitizer printed.
    pub fn parse(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            if line.starts_with("unrecognised option") {
                log.refuse(format!("this version does not know an option: {line}"));
            }
            if let Some(rest) = line.strip_prefix(MARK) {
                log.read(rest.strip_prefix(' ').unwrap_or(rest));
            }
        }
        log
    }

    /// Reads a line of the tool, without its mark.
    fn read(&mut self, line: &str) {
        if let Some(detail) = line.strip_prefix("    ") {
            self.read_place(detail);
        } else if line.contains("not supported") || line.starts_with("Internal") {
            self.refuse(line.to_string());
        } else if line.contains("SUMMARY: ") {
            self.counted = self.counted.or(Some(total(line)));
        } else if is_headline(line) {
            self.findings.push(line.to_string());
        }
    }

    /// Adds the place that a detail names to the last finding, unless that has one.
    fn read_place(&mut self, detail: &str) {
        let Some(place) = detail.rsplit("at ").next() else {
            return;
        };
        let Some(finding) = self.findings.last_mut() else {
            return;
        };
        if place.contains("+0x") && !finding.contains("+0x") {
            *finding += &format!(" at {place}");
        }
    }

    fn refuse(&mut self, reason: String) {
        self.refused.get_or_insert(reason);
    }

    /// Judges gate C7 of the variant that the process launched.
    pub fn judge(&self, process: &Process<'_>) -> GateResult {
        let Process {
            launched, planned, ..
        } = process;
        let fail = |reason: String| GateResult::fail(GateId::C7, reason);
        let launches = format!("{launched} of {planned} launches");
        let end = process.ended.describe(process.timeout);
        if let Some(reason) = &self.refused {
            return GateResult::no_data(GateId::C7, reason.clone());
        }
        if let Some(first) = self.findings.first() {
            return fail(format!("{} shown, first: {first}", self.findings.len()));
        }
        if let Some(count @ 1..) = self.counted {
            return fail(format!("{count} errors and warnings, none of them shown"));
        }
        if let Some(failure) = &process.failure {
            return fail(failure.clone());
        }
        if *process.ended == Ended::TimedOut {
            return GateResult::no_data(GateId::C7, format!("{end}, after {launches}"));
        }
        if self.counted.is_none() {
            return fail(format!("{end}, without a summary"));
        }
        if !process.ended.is_success() {
            return fail(end);
        }
        GateResult::judge(
            GateId::C7,
            launched == planned,
            format!("no error, no warning in {launches}"),
        )
    }
}

fn is_headline(line: &str) -> bool {
    let text = line.trim();
    !text.is_empty()
        && text != "COMPUTE-SANITIZER"
        && !text.starts_with("Target application returned an error")
}

/// Adds up the errors and warnings of `ERROR SUMMARY: 121 errors` or
/// `RACECHECK SUMMARY: 100 hazards displayed (513 errors, 2 warnings)`.
fn total(summary: &str) -> u64 {
    let words: Vec<&str> = summary.split([' ', '(', ',', ')']).collect();
    let mut total = 0;
    for pair in words.windows(2) {
        if pair[1].starts_with("error") || pair[1].starts_with("warning") {
            total += pair[0].parse::<u64>().unwrap_or(0);
        }
    }
    total
}

#[cfg(test)]
mod tests;
