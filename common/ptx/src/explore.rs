//! Orders of warps beyond the default schedules: from the order in which warps run until they wait,
//! all in which one of them gives way once, then twice, up to a bound.
//!
//! Delay-bounded scheduling: Emmi, Qadeer and Rakamarić, POPL 2011. A fault that an order of few
//! synchronisations makes is found with few delays.

use emulator::{Delays, Schedule};

use crate::case::{Case, CaseError, Failure, Finding};
use crate::execute::Election;
use crate::program::Program;

/// The most findings that are kept, each another failure.
const MOST_FINDINGS: usize = 8;

/// The findings in orders beyond the default schedules, and how many those were.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exploration {
    /// The orders that were run, the one without a delay among them.
    pub orders: usize,
    /// The most choice points of an order.
    pub choice_points: u32,
    /// All orders with at most so many delays were run; `None` if not even the one without.
    pub complete: Option<usize>,
    /// The orders among these that have more delays.
    pub more: usize,
    /// Whether it was ended early.
    pub is_interrupted: bool,
    pub findings: Vec<Finding>,
}

impl Exploration {
    /// Says how many orders were run, and which are all.
    pub fn extent(&self) -> String {
        let Self {
            orders,
            choice_points,
            complete,
            more,
            ..
        } = self;
        if self.is_all() {
            return "one order of warps is possible, and was run".to_owned();
        }
        let all = match complete {
            None => "not even the one without a delay".to_owned(),
            Some(most) => format!("all with at most {most} delays"),
        };
        let beyond = match more {
            0 => String::new(),
            _ => format!(" and {more} of those with one more"),
        };
        format!(
            "{orders} orders of warps were run, of up to {choice_points} choice points each: {all}\
             {beyond}"
        )
    }

    /// Returns whether no choice was left.
    fn is_all(&self) -> bool {
        self.choice_points == 0 && self.complete.is_some() && self.findings.is_empty()
    }

    fn add(&mut self, schedule: Schedule, failure: Failure) {
        let is_new = self.findings.iter().all(|known| known.failure != failure);
        if is_new && self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding { schedule, failure });
        }
    }
}

impl Case {
    /// Runs at most `most` orders without tracing, and compares their outputs with these. `goes_on`
    /// is asked before each, with the number of those run.
    ///
    /// # Errors
    ///
    /// A case that does not fit the kernel.
    pub fn explore(
        &self,
        program: &Program,
        expected: &[Vec<u8>],
        most: usize,
        goes_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Exploration, CaseError> {
        let mut found = Exploration::default();
        let mut level = Level::first();
        for depth in 0..=Delays::MOST {
            let mut ends = Vec::new();
            for &delays in &level.orders {
                found.is_interrupted = !goes_on(found.orders);
                if found.orders == most || found.is_interrupted {
                    found.more = ends.len();
                    return Ok(found);
                }
                let points = self.delayed(program, expected, delays, &mut found)?;
                found.orders += 1;
                ends.push(End { delays, points });
            }
            if !level.is_whole {
                found.more = ends.len();
                return Ok(found);
            }
            found.complete = Some(depth);
            level = Level::after(&ends, most - found.orders);
            if level.orders.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// Runs an order. Returns the number of its choice points; 0 if it has failed.
    fn delayed(
        &self,
        program: &Program,
        expected: &[Vec<u8>],
        delays: Delays,
        found: &mut Exploration,
    ) -> Result<u32, CaseError> {
        let schedule = Schedule::Delayed(delays);
        let ran = self.run(program, schedule, Election::Lowest, None)?;
        match ran {
            Err(fault) => {
                found.add(schedule, Failure::Stopped(fault));
                Ok(0)
            }
            Ok(ended) => {
                if let Some(failure) = self.difference(expected, &ended.outputs) {
                    found.add(schedule, failure);
                }
                found.choice_points = found.choice_points.max(ended.choice_points);
                Ok(ended.choice_points)
            }
        }
    }
}

/// An order that was run.
struct End {
    delays: Delays,
    points: u32,
}

impl End {
    /// Returns the first point at which one delay more makes another order: the last one's.
    fn first(&self) -> u32 {
        self.delays.points().last().copied().unwrap_or(0)
    }

    fn successors(&self) -> impl Iterator<Item = Delays> {
        let points = self.first()..self.points;
        points.filter_map(|point| self.delays.and(point))
    }
}

/// Orders with the same number of delays.
struct Level {
    orders: Vec<Delays>,
    /// Whether these are all.
    is_whole: bool,
}

impl Level {
    fn first() -> Self {
        Self {
            orders: vec![Delays::default()],
            is_whole: true,
        }
    }

    /// Returns the orders with one delay more than these, or so many of them, spread evenly.
    fn after(ends: &[End], room: usize) -> Self {
        let all: u64 = ends
            .iter()
            .map(|end| u64::from(end.points.saturating_sub(end.first())))
            .sum();
        let kept = (room as u64).min(all);
        let orders = ends.iter().flat_map(End::successors).zip(0u64..);
        Self {
            orders: orders
                .filter(|(_, index)| (index + 1) * kept / all > index * kept / all)
                .map(|(delays, _)| delays)
                .collect(),
            is_whole: kept == all,
        }
    }
}
