//! Progress on standard error, with how long the rest will take: on a terminal one line that is written anew, else a line per tenth of
//! what there is to do.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A terminal's line is written anew at most this often.
const REDRAWN: Duration = Duration::from_millis(100);

/// Of a terminal's line, so that it does not wrap.
const WIDTH: usize = 100;

#[derive(Default)]
pub struct Progress {
    shown: (&'static str, usize),
    /// When the step that goes on began, and of which kind it is.
    step: Option<(Instant, &'static str)>,
    /// What steps of each kind took that have ended: kinds may take turns.
    spent: HashMap<&'static str, Duration>,
    drawn: Option<Instant>,
}

impl Progress {
    pub fn step(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        let now = Instant::now();
        if let Some((begun, kind)) = self.step.replace((now, kind)) {
            *self.spent.entry(kind).or_default() += now - begun;
        }
        let spent = self.spent.get(kind).copied().unwrap_or_default();
        if io::stderr().is_terminal() {
            let is_due = self.drawn.is_none_or(|drawn| now - drawn >= REDRAWN);
            if is_due {
                self.drawn = Some(now);
                let line: String = line(kind, label, done, total, spent);
                let line: String = line.chars().take(WIDTH).collect();
                // Back to the first column; what the line before had more is erased.
                let _ = write!(io::stderr(), "\r{line}\x1b[K");
            }
            return;
        }
        let reached = (kind, 10 * done / total.max(1));
        if self.shown != reached {
            self.shown = reached;
            say(&line(kind, label, done, total, spent));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// `case 601 of 5998, about 4 min left: stage5-swizzle/…`, from what the `done` steps took.
fn line(kind: &str, label: &str, done: usize, total: usize, spent: Duration) -> String {
    let left = spent.as_secs_f64() / done.max(1) as f64 * total.saturating_sub(done) as f64;
    let left = match left {
        // A guess from little, or of little.
        _ if spent < Duration::from_secs(5) || left < 5.0 => String::new(),
        left if left < 90.0 => format!(", about {left:.0} s left"),
        left => format!(", about {:.0} min left", left / 60.0),
    };
    format!("{kind} {} of {total}{left}: {label}", done + 1)
}

/// As far as it can be written: `eprintln!` panics where it cannot.
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
        let line = |done, spent| line("case", "a", done, 100, Duration::from_secs(spent));
        for (done, spent, expected) in [
            (0, 0, "case 1 of 100: a"),
            (2, 4, "case 3 of 100: a"),
            (20, 10, "case 21 of 100, about 40 s left: a"),
            (50, 300, "case 51 of 100, about 5 min left: a"),
            (99, 300, "case 100 of 100: a"),
        ] {
            assert_eq!(line(done, spent), expected);
        }
    }
}
