//! What compute-sanitizer prints, and what it means for a variant. Pure.

use crate::instrument::process::Ended;
use common::verdict::{GateId, GateResult};

/// Every line of the tool begins with this.
const MARK: &str = "=========";

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its first line: `Invalid __global__ write of size 4 bytes`.
    pub what: String,
    /// The kernel that it names first, and where: `stage0_scalar_…_f16_d64+0x80 in kernel.cu:157`.
    pub at: Option<String>,
}

impl Finding {
    fn symbol(&self) -> Option<&str> {
        self.at.as_ref()?.split("+0x").next()
    }
}

/// All that one process printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In order; the tool leaves out what is more than its limit.
    pub findings: Vec<Finding>,
    /// Errors and warnings by its summary; `None` if there is none.
    pub counted: Option<u64>,
    /// Why the tool could not check anything.
    pub refused: Option<String>,
}

/// Findings that the tool prints at most. One process holds all variants of a stage, and its own limit of 100 is what one race of
/// one variant takes.
pub const PRINTED: usize = 10_000;

pub fn parse(text: &str) -> Log {
    let mut log = Log::default();
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
                if let (Some(last), Some(at)) = (log.findings.last_mut(), place(detail)) {
                    last.at.get_or_insert(at);
                }
            }
            None if rest.contains("not supported") || rest.starts_with("Internal") => {
                log.refused.get_or_insert_with(|| rest.to_string());
            }
            None if rest.contains("SUMMARY: ") => log.counted = log.counted.or(Some(total(rest))),
            None if is_headline(rest) => log.findings.push(Finding {
                what: rest.to_string(),
                at: None,
            }),
            None => {}
        }
    }
    log
}

/// `at SYMBOL+0x80 in kernel.cu:5`, without the `at`, wherever it stands in the line.
fn place(detail: &str) -> Option<String> {
    let place = detail
        .strip_prefix("at ")
        .or_else(|| Some(detail.split_once(" at ")?.1))?;
    place.contains("+0x").then(|| place.to_string())
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

/// What the same program does without the tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Without {
    NotTried,
    /// It ends, and all its outputs are right.
    Passes,
    /// It does not.
    Fails(String),
}

/// One process under one tool.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    pub log: &'a Log,
    pub ended: Ended,
    /// The launch that failed, by the program's own account.
    pub failed: Option<String>,
    pub limit: u64,
    /// What the same program does without the tool, where that was tried.
    pub without: Without,
    /// The kernels of all its launches.
    pub symbols: &'a [String],
}

impl Run<'_> {
    /// Whether the process ended in order, perhaps with findings: there is nothing to try without the tool.
    pub fn is_orderly(&self) -> bool {
        let exit =
            matches!(self.ended, Ended::Exited(status) if status.success() || self.has_findings());
        exit && self.log.counted.is_some() && self.failed.is_none()
    }

    fn has_findings(&self) -> bool {
        self.log.counted.is_some_and(|count| count > 0) || !self.log.findings.is_empty()
    }

    /// Gate C7 of a variant with these kernels, of whose `planned` launches `launched` ended.
    pub fn judge(&self, symbols: &[String], launched: usize, planned: usize) -> GateResult {
        let fail = |reason: String| GateResult::judge(GateId::C7, false, reason);
        let no_data = |reason: String| GateResult::no_data(GateId::C7, reason);
        if let Some(reason) = &self.log.refused {
            return no_data(reason.clone());
        }
        if let Some(reason) = self.found(symbols) {
            return fail(reason);
        }
        if self.log.findings.len() >= PRINTED {
            return no_data(format!(
                "the tool stopped printing at {PRINTED} findings, all of other variants; choose this one by --variants"
            ));
        }
        if !self.is_orderly() {
            let here = self.end();
            return match &self.without {
                Without::Fails(reason) => fail(format!("{here}; without the tool: {reason}")),
                _ if launched == planned => {
                    no_data(format!("another launch ended the process: {here}"))
                }
                Without::Passes if self.ended == Ended::TimedOut && self.failed.is_none() => {
                    no_data(format!(
                        "{here}, after {launched} of {planned} launches; it passes without the tool"
                    ))
                }
                Without::Passes => fail(format!("{here}; it passes without the tool")),
                Without::NotTried => no_data(here),
            };
        }
        GateResult::judge(
            GateId::C7,
            launched == planned,
            format!("no error, no warning in {launched} of {planned} launches"),
        )
    }

    /// What is found of these kernels, or of none that can be told.
    fn found(&self, symbols: &[String]) -> Option<String> {
        let Log {
            findings, counted, ..
        } = self.log;
        let has = |symbols: &[String], symbol: &str| symbols.iter().any(|known| known == symbol);
        let is_of = |finding: &&Finding| match finding.symbol() {
            Some(symbol) => has(symbols, symbol) || !has(self.symbols, symbol),
            None => true,
        };
        let own: Vec<&Finding> = findings.iter().filter(is_of).collect();
        if let Some(first) = own.first() {
            let at = first
                .at
                .as_ref()
                .map(|at| format!(" at {at}"))
                .unwrap_or_default();
            return Some(format!("{} shown, first: {}{at}", own.len(), first.what));
        }
        let count = counted.filter(|&count| count > 0 && findings.is_empty())?;
        Some(format!("{count} errors and warnings, none of them shown"))
    }

    fn end(&self) -> String {
        match (&self.failed, &self.ended) {
            (Some(failed), _) => failed.clone(),
            (None, Ended::Exited(status)) if self.log.counted.is_none() => {
                format!("it ended early ({status}), without a summary")
            }
            (None, ended) => ended.describe(self.limit),
        }
    }
}

#[cfg(test)]
mod tests;
