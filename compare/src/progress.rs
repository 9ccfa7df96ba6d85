//! Progress on standard error, with how long the rest will take: on a terminal one line that is
//! written anew, else a line per tenth of what there is to do.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The least time between two drawings of a terminal's line.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The most characters of a terminal's line, so that it does not wrap.
const WIDTH: usize = 100;

/// The least time that an estimate is made from.
const MIN_SPENT: Duration = Duration::from_secs(5);

/// The least seconds left that are shown.
const MIN_LEFT: f64 = 5.0;

/// The progress of a command, as lines or as a bar on a terminal.
#[derive(Default)]
pub struct Progress {
    /// The last tenth that a line was written for.
    shown: Option<Tenth>,
    /// The step that goes on.
    step: Option<Step>,
    /// The time that steps of each kind took that have ended: kinds may take turns.
    spent: HashMap<&'static str, Duration>,
    drawn: Option<Instant>,
}

#[derive(PartialEq)]
struct Tenth {
    kind: &'static str,
    number: usize,
}

struct Step {
    kind: &'static str,
    begun: Instant,
}

impl Progress {
    /// Begins a step, of which `done` of `total` like it have ended.
    pub fn step(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        let now = Instant::now();
        if let Some(ended) = self.step.replace(Step { kind, begun: now }) {
            *self.spent.entry(ended.kind).or_default() += now - ended.begun;
        }
        let spent = self.spent.get(kind).copied().unwrap_or_default();
        if io::stderr().is_terminal() {
            if self
                .drawn
                .is_none_or(|drawn| now - drawn >= REDRAW_INTERVAL)
            {
                self.drawn = Some(now);
                draw(&line(kind, label, done, total, spent));
            }
            return;
        }
        let reached = Some(Tenth {
            kind,
            number: 10 * done / total.max(1),
        });
        if self.shown != reached {
            self.shown = reached;
            say(&line(kind, label, done, total, spent));
        }
    }

    /// Returns the time of the steps of a kind so far.
    pub fn spent(&self, kind: &str) -> Duration {
        let ended = self.spent.get(kind).copied().unwrap_or_default();
        match &self.step {
            Some(step) if step.kind == kind => ended + step.begun.elapsed(),
            _ => ended,
        }
    }
}

/// Draws the terminal's line: back to the first column, and what the line before had more is
/// erased.
fn draw(line: &str) {
    let cut: String = line.chars().take(WIDTH).collect();
    let _ = write!(io::stderr(), "\r{cut}\x1b[K");
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Returns `case 601 of 5998, about 4 min left: stage5-swizzle/…`, from what the `done` steps took.
fn line(kind: &str, label: &str, done: usize, total: usize, spent: Duration) -> String {
    let left = spent.as_secs_f64() / done.max(1) as f64 * total.saturating_sub(done) as f64;
    // From little, or about little, it would be a guess.
    let estimate = if spent < MIN_SPENT || left < MIN_LEFT {
        String::new()
    } else if left < 90.0 {
        format!(", about {left:.0} s left")
    } else {
        format!(", about {:.0} min left", left / 60.0)
    };
    format!("{kind} {} of {total}{estimate}: {label}", done + 1)
}

/// Writes a line to standard error, as far as it can be written: `eprintln!` panics where it
/// cannot.
pub fn say(line: &str) {
    let erase = if io::stderr().is_terminal() {
        "\r\x1b[K"
    } else {
        ""
    };
    let _ = writeln!(io::stderr(), "{erase}{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_estimated_from_what_was_done_once_that_says_something() {
        for (done, spent, expected) in [
            (0, 0, "case 1 of 100: a"),
            (2, 4, "case 3 of 100: a"),
            (20, 10, "case 21 of 100, about 40 s left: a"),
            (50, 300, "case 51 of 100, about 5 min left: a"),
            (99, 300, "case 100 of 100: a"),
        ] {
            let spent_time = Duration::from_secs(spent);
            assert_eq!(line("case", "a", done, 100, spent_time), expected);
        }
    }
}
