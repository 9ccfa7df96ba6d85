//! What compute-sanitizer prints, and what it means for a variant. Pure.

use crate::instrument::process::Ended;
use common::verdict::{GateId, GateResult};

/// Every line of the tool begins with this.
const MARK: &str = "=========";

/// All that one process printed, which launched one variant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Each with the place that it names first: `Invalid __global__ write of size 4 bytes at stage0_…_f16_d64+0x80 in kernel.cu:157`.
    /// The tool leaves out what is more than its limit.
    findings: Vec<String>,
    /// Errors and warnings by its summary; `None` if there is none.
    counted: Option<u64>,
    refused: Option<String>,
}

impl Log {
    pub fn parse(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            if line.starts_with("unrecognised option") {
                log.refused
                    .get_or_insert_with(|| format!("this version does not know an option: {line}"));
            }
            let Some(rest) = line.strip_prefix(MARK) else {
                continue;
            };
            let rest = rest.strip_prefix(' ').unwrap_or(rest);
            match rest.strip_prefix("    ") {
                Some(detail) => {
                    let place = detail.rsplit("at ").next();
                    let place = place.filter(|place| place.contains("+0x"));
                    if let (Some(last), Some(place)) = (log.findings.last_mut(), place)
                        && !last.contains("+0x")
                    {
                        *last += &format!(" at {place}");
                    }
                }
                None if rest.contains("not supported") || rest.starts_with("Internal") => {
                    log.refused.get_or_insert_with(|| rest.to_string());
                }
                None if rest.contains("SUMMARY: ") => {
                    log.counted = log.counted.or(Some(total(rest)))
                }
                None if is_headline(rest) => log.findings.push(rest.to_string()),
                None => {}
            }
        }
        log
    }

    /// Gate C7 of the variant, of whose `planned` launches `launched` ended; `failed` is the one that failed, by the program's own
    /// account. `limit` is in seconds.
    pub fn judge(
        &self,
        ended: &Ended,
        failed: Option<String>,
        limit: u64,
        [launched, planned]: [usize; 2],
    ) -> GateResult {
        let fail = |reason: String| GateResult::fail(GateId::C7, reason);
        let no_data = |reason: String| GateResult::no_data(GateId::C7, reason);
        let launches = format!("{launched} of {planned} launches");
        let reached = ended.describe(limit);
        match (&self.refused, self.findings.first(), self.counted) {
            (Some(reason), ..) => no_data(reason.clone()),
            (_, Some(first), _) => fail(format!("{} shown, first: {first}", self.findings.len())),
            (.., Some(count @ 1..)) => {
                fail(format!("{count} errors and warnings, none of them shown"))
            }
            _ if failed.is_some() => fail(failed.unwrap_or_default()),
            _ if *ended == Ended::TimedOut => no_data(format!("{reached}, after {launches}")),
            (.., None) => fail(format!("{reached}, without a summary")),
            _ if !ended.is_success() => fail(reached),
            _ => GateResult::judge(
                GateId::C7,
                launched == planned,
                format!("no error, no warning in {launches}"),
            ),
        }
    }
}

fn is_headline(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && text != "COMPUTE-SANITIZER"
        && !text.starts_with("Target application returned an error")
}

/// Of `ERROR SUMMARY: 121 errors` or `RACECHECK SUMMARY: 100 hazards displayed (513 errors, 2 warnings)`: errors and
/// warnings.
fn total(summary: &str) -> u64 {
    let words: Vec<&str> = summary.split([' ', '(', ',', ')']).collect();
    let counts = words
        .windows(2)
        .filter(|pair| pair[1].starts_with("error") || pair[1].starts_with("warning"));
    counts.filter_map(|pair| pair[0].parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests;
