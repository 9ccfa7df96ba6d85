//! Progress on standard error: a line per tenth of what there is to do.

use std::io::{self, Write};

#[derive(Default)]
pub struct Progress {
    shown: (&'static str, usize),
}

impl Progress {
    pub fn step(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        let reached = (kind, 10 * done / total.max(1));
        if self.shown != reached {
            self.shown = reached;
            say(&format!("{kind} {} of {total}: {label}", done + 1));
        }
    }
}

/// As far as it can be written: `eprintln!` panics where it cannot.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
