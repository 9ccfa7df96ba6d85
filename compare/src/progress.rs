//! Progress on standard error: a bar on a terminal, a line per tenth in a log.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

pub struct Progress {
    shown: Shown,
    kind: &'static str,
    bar: ProgressBar,
}

enum Shown {
    Nothing,
    Lines { tenths: usize },
    Bar,
}

impl Progress {
    /// Shows nothing if `quiet`, a bar on a terminal, a few lines elsewhere.
    pub fn new(quiet: bool) -> Self {
        let shown = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (_, true) => Shown::Bar,
            _ => Shown::Lines { tenths: 0 },
        };
        Self {
            shown,
            kind: "",
            bar: ProgressBar::hidden(),
        }
    }

    /// A step of `kind` starts; `done` of `total` are finished.
    pub fn step(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        let is_new = self.kind != kind;
        self.kind = kind;
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Bar => {
                if is_new {
                    self.bar.finish_and_clear();
                    self.bar = bar(kind, total);
                }
                self.bar.set_position(done as u64);
                self.bar.set_message(label.to_string());
            }
            Shown::Lines { tenths } => {
                let reached = 10 * done / total.max(1);
                if is_new || reached > *tenths {
                    eprintln!("{kind} {} of {total}: {label}", done + 1);
                    *tenths = reached;
                }
            }
        }
    }

    pub fn say(&self, line: &str) {
        if !matches!(self.shown, Shown::Nothing) {
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }

    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn bar(kind: &'static str, total: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{prefix:>9} [{bar:30}] {pos}/{len}, {eta} left  {wide_msg}");
    bar.set_style(style.expect("the template is valid").progress_chars("=> "));
    bar.set_prefix(kind);
    bar.enable_steady_tick(std::time::Duration::from_millis(250));
    bar
}
