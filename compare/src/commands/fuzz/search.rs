//! The search: which case comes when, what is counted, what is shrunk, and when it ends. What
//! judges a case, and what the time is, are its arguments.

use common::fuzz::{self, Answer, Case};
use common::problem::Dtype;
use common::serving::Cache;
use common::verdict::{GateId, GateResult};
use measure::sink::ExecuteError;
use results::table::Subject;
use std::fmt;
use std::time::Duration;

/// The most tries to shrink a failing case; 60 are usual.
const MOST_TRIES: usize = 400;

/// A case of a variant; its text is what --case takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub subject: Subject,
    pub case: Case,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.case)
    }
}

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Tried {
    /// All gates that judged it.
    Passed(Vec<GateResult>),
    Failed(Failure),
    Unsupported(String),
}

/// The gates that a trial fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Those that fail: at least one.
    pub gates: Vec<GateResult>,
    /// No other case runs on it in this process.
    pub is_gpu_lost: bool,
}

impl Failure {
    fn first(&self) -> GateId {
        self.gates.first().map_or(GateId::C1, |result| result.gate)
    }

    fn has(&self, gate: GateId) -> bool {
        self.gates.iter().any(|result| result.gate == gate)
    }
}

impl Tried {
    /// Makes the outcome of a launch that gates have judged.
    pub fn judged(gates: Vec<GateResult>) -> Self {
        let failed: Vec<GateResult> = gates
            .iter()
            .filter(|result| result.is_fail())
            .cloned()
            .collect();
        if failed.is_empty() {
            return Tried::Passed(gates);
        }
        Tried::Failed(Failure {
            gates: failed,
            is_gpu_lost: false,
        })
    }

    /// Makes the outcome of a launch that failed, or never ended: gate C1 has nothing to judge.
    pub fn without_output(reason: String, is_gpu_lost: bool) -> Self {
        Tried::Failed(Failure {
            gates: vec![GateResult::fail(GateId::C1, reason)],
            is_gpu_lost,
        })
    }
}

/// The part of a search that runs cases.
pub trait Judge {
    /// Judges trials; returns outcomes in their order.
    fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>>;
}

/// The part of a search that ends it.
pub trait Clock {
    fn elapsed(&self) -> Duration;
    fn is_interrupted(&self) -> bool;
}

/// The parts of a search that tests replace.
#[derive(Clone, Copy)]
pub struct Instruments<'a> {
    pub judge: &'a dyn Judge,
    pub clock: &'a dyn Clock,
    pub reporter: &'a dyn Reporter,
}

/// The part of a search that prints how far it is.
pub trait Reporter {
    /// Reports a finding, or that another tenth of the search is done.
    fn report(&self, line: &str);
}

/// A variant, and the types that are drawn for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    pub subject: Subject,
    pub dtypes: Vec<Dtype>,
    /// Whether it takes sequences as they are served.
    pub serves: bool,
    /// The type of K and V that it reads, where it is not that of Q.
    pub cache: Option<Cache>,
}

/// A search for cases that fail.
#[derive(Clone, Debug)]
pub struct Search {
    pub seed: u64,
    /// The variants, which take turns.
    pub contenders: Vec<Contender>,
    pub cases: Option<u64>,
    pub seconds: Option<u64>,
    /// Cases that are judged at once; at least 1. It changes no result.
    pub in_flight: usize,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// One for each contender.
    pub tallies: Vec<Tally>,
    pub findings: Vec<Finding>,
    pub elapsed: Duration,
    pub end: End,
}

/// The cases of a variant, counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The cases that were judged, the failing one included.
    pub cases: usize,
    pub unsupported: usize,
    /// The first reason.
    pub reason: Option<String>,
}

/// A case that fails, as it was drawn and as small as it could be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The place of the case in the sequence, from 0.
    pub index: u64,
    pub drawn: Trial,
    pub shrunk: Trial,
    /// The gates that the shrunk case fails.
    pub gates: Vec<GateResult>,
    /// Whether the GPU is lost, which ends the search: nothing else runs in this process.
    pub is_gpu_lost: bool,
    pub tries: usize,
    /// Whether nothing smaller fails the same gate.
    pub is_smallest: bool,
}

/// The reason why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All cases were tried, the time was up, or every variant had failed.
    Finished,
    Interrupted,
    GpuLost,
}

impl Found {
    /// Returns the number of cases that were judged.
    pub fn cases(&self) -> usize {
        self.tallies.iter().map(|tally| tally.cases).sum()
    }

    fn has_failed(&self, subject: &Subject) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.drawn.subject == *subject)
    }
}

impl Search {
    /// Returns the variant of a case: the same for a seed, whatever `in_flight` is; another seed
    /// begins with another variant.
    fn contender(&self, index: u64) -> usize {
        let count = self.contenders.len() as u64;
        ((self.seed % count + index) % count) as usize
    }

    fn trial(&self, index: u64) -> Trial {
        let contender = &self.contenders[self.contender(index)];
        Trial {
            subject: contender.subject.clone(),
            case: if contender.serves {
                fuzz::draw_served(self.seed, index, &contender.dtypes, contender.cache)
            } else {
                fuzz::draw(self.seed, index, &contender.dtypes)
            },
        }
    }

    /// Runs the search.
    pub fn run(&self, instruments: Instruments<'_>) -> Result<Found, ExecuteError> {
        let Instruments { judge, clock, .. } = instruments;
        let mut result = Found {
            tallies: vec![Tally::default(); self.contenders.len()],
            findings: vec![],
            elapsed: Duration::ZERO,
            end: End::Finished,
        };
        let mut next = 0;
        let mut tenths = 0;
        while result.end == End::Finished && !self.is_over(next, &result, clock) {
            let chunk = self.chunk(next, &result);
            let mut trials = Vec::new();
            for index in &chunk.cases {
                trials.push(self.trial(*index));
            }
            let outcomes = judge.judge(&trials);
            for ((index, trial), tried) in chunk.cases.into_iter().zip(trials).zip(outcomes) {
                self.count(index, trial, tried?, &mut result, instruments)?;
            }
            next = chunk.end;
            let elapsed = clock.elapsed().as_secs();
            let reached = self.reached_tenths(next, elapsed);
            if reached != tenths {
                tenths = reached;
                let line = progress_line(reached, elapsed, &result);
                instruments.reporter.report(&line);
            }
            if clock.is_interrupted() {
                result.end = End::Interrupted;
            }
        }
        result.elapsed = clock.elapsed();
        Ok(result)
    }

    fn is_over(&self, next: u64, found: &Found, clock: &dyn Clock) -> bool {
        self.seconds
            .is_some_and(|seconds| clock.elapsed() >= Duration::from_secs(seconds))
            || self.cases.is_some_and(|cases| next >= cases)
            || found.findings.len() == self.contenders.len()
    }

    /// Returns the next cases of variants that have not failed.
    fn chunk(&self, next: u64, found: &Found) -> Chunk {
        let mut cases = Vec::new();
        let mut end = next;
        while cases.len() < self.in_flight && self.cases.is_none_or(|limit| end < limit) {
            let subject = &self.contenders[self.contender(end)].subject;
            if !found.has_failed(subject) {
                cases.push(end);
            }
            end += 1;
        }
        Chunk { cases, end }
    }

    /// Counts a case, and shrinks one that fails. A case that ran beside one that failed before it
    /// in the sequence does not count: with fewer processors it does not run.
    fn count(
        &self,
        index: u64,
        trial: Trial,
        tried: Tried,
        found: &mut Found,
        instruments: Instruments<'_>,
    ) -> Result<(), ExecuteError> {
        if found.has_failed(&trial.subject) || found.end == End::GpuLost {
            return Ok(());
        }
        let tally = &mut found.tallies[self.contender(index)];
        match tried {
            Tried::Unsupported(reason) => {
                tally.unsupported += 1;
                tally.reason.get_or_insert(reason);
            }
            Tried::Passed(_) => tally.cases += 1,
            Tried::Failed(failure) => {
                tally.cases += 1;
                instruments.reporter.report(&format!(
                    "case {index} fails {}: {trial}; looking for a smaller one",
                    failure.first()
                ));
                let finding = shrink(index, trial, failure, instruments)?;
                if finding.is_gpu_lost {
                    found.end = End::GpuLost;
                }
                found.findings.push(finding);
            }
        }
        Ok(())
    }

    /// Returns how many tenths of the time or of the cases are done, whichever is further.
    fn reached_tenths(&self, next: u64, elapsed: u64) -> u64 {
        let of_time = self.seconds.map_or(0, |seconds| 10 * elapsed / seconds);
        let of_cases = self.cases.map_or(0, |cases| 10 * next / cases);
        of_time.max(of_cases).min(10)
    }
}

/// The next cases of a search.
struct Chunk {
    cases: Vec<u64>,
    /// The number of the case after them.
    end: u64,
}

/// Returns how far a search is that has done so many tenths, one at least, in so many seconds.
fn progress_line(tenths: u64, elapsed: u64, found: &Found) -> String {
    let left = elapsed * (10 - tenths) / tenths;
    format!(
        "fuzz: {} cases, {} found, {elapsed} s; about {left} s to go",
        found.cases(),
        found.findings.len(),
    )
}

/// Finds the smallest case that fails the gate that `first_failure` fails first.
fn shrink(
    index: u64,
    drawn: Trial,
    first_failure: Failure,
    instruments: Instruments<'_>,
) -> Result<Finding, ExecuteError> {
    let Instruments { judge, clock, .. } = instruments;
    let gate = first_failure.first();
    let mut failure = first_failure;
    let mut error = None;
    let shrunk = fuzz::shrink(drawn.case, MOST_TRIES, |case| {
        if clock.is_interrupted() || failure.is_gpu_lost {
            return Answer::Stop;
        }
        let trial = Trial {
            subject: drawn.subject.clone(),
            case: *case,
        };
        match judge.judge(&[trial]).into_iter().next() {
            Some(Ok(Tried::Failed(smaller))) if smaller.has(gate) => {
                failure = smaller;
                Answer::Fails
            }
            Some(Err(stopped)) => {
                error = Some(stopped);
                Answer::Stop
            }
            _ => Answer::Passes,
        }
    });
    if let Some(stopped) = error {
        return Err(stopped);
    }
    Ok(Finding {
        index,
        shrunk: Trial {
            subject: drawn.subject.clone(),
            case: shrunk.case,
        },
        drawn,
        gates: failure.gates,
        is_gpu_lost: failure.is_gpu_lost,
        tries: shrunk.tries,
        is_smallest: shrunk.is_smallest,
    })
}
