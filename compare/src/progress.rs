//! Progress on standard error: a line per tenth of what there is to do.

pub struct Progress {
    is_quiet: bool,
    shown: (&'static str, usize),
}

impl Progress {
    pub fn new(is_quiet: bool) -> Self {
        Self {
            is_quiet,
            shown: ("", 0),
        }
    }

    /// A step of `kind` starts; `done` of `total` are finished.
    pub fn step(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        let reached = (kind, 10 * done / total.max(1));
        if self.shown != reached {
            self.shown = reached;
            self.say(&format!("{kind} {} of {total}: {label}", done + 1));
        }
    }

    pub fn say(&self, line: &str) {
        if !self.is_quiet {
            eprintln!("{line}");
        }
    }
}
