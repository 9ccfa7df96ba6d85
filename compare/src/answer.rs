//! The result of a command: what it prints, and its exit code.

use crate::document::Block;
use crate::document::terminal;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use serde::Serialize;
use std::io::{self, Write};

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub exit: Exit,
    pub text: String,
}

impl Answer {
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            text: text.into(),
        }
    }

    pub fn pass(text: impl Into<String>) -> Self {
        Self::new(Exit::Pass, text)
    }

    pub fn page(exit: Exit, page: &[Block]) -> Self {
        Self::new(exit, terminal::render(page, terminal::width()))
    }

    /// A page of which at most `most` lines are shown, with how to see the others.
    pub fn first_lines(exit: Exit, page: &[Block], most: usize, how: &str) -> Self {
        let text = terminal::render(page, terminal::width());
        Self::new(exit, first_lines(&text, most, how))
    }

    /// One object of JSON on standard output.
    pub fn json(exit: Exit, found: &impl Serialize) -> anyhow::Result<Self> {
        Ok(Self::new(exit, serde_json::to_string_pretty(found)?))
    }

    /// With what is wrong below the rest of the text, a line each.
    pub fn noting(self, lines: Vec<String>) -> Self {
        let text = joined([self.text].into_iter().chain(lines), "\n");
        Self { text, ..self }
    }

    /// A closed pipe (`| head`) is not an error.
    pub fn print(&self) -> io::Result<()> {
        let text = self.text.trim_end();
        let end = if text.is_empty() { "" } else { "\n" };
        let mut out = io::stdout().lock();
        match write!(out, "{text}{end}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

fn first_lines(text: &str, most: usize, how: &str) -> String {
    let lines = Vec::from_iter(text.trim_end().lines());
    if lines.len() <= most {
        return text.to_string();
    }
    let shown = &lines[..most - 2];
    let hidden = lines.len() - shown.len();
    format!("{}\n\n{hidden} more lines: {how}", shown.join("\n"))
}

/// Why there is no data: nothing was measured, and nothing is overwritten. It ends a command like an error but is an answer.
#[derive(Debug, thiserror::Error)]
#[error("NO DATA: {0}")]
pub struct NoData(pub String);

impl From<NoData> for Answer {
    fn from(none: NoData) -> Self {
        Self::new(Exit::Inconclusive, none.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_page_ends_with_how_to_see_the_rest() {
        let lines = |n: usize| joined((1..=n).map(|line| format!("line {line}")), "\n");
        assert_eq!(first_lines(&lines(6), 6, "--all"), lines(6));
        let cut = format!("{}\n\n3 more lines: --all", lines(4));
        assert_eq!(first_lines(&lines(7), 6, "--all"), cut);
        assert_eq!(cut.lines().count(), 6);
    }
}
