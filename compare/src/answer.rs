//! The result of a command: its text and its exit code.

use common::device::cuda::CudaDevice;
use document::Block;
use document::terminal;
use results::judge::verdict::Exit;
use serde::Serialize;
use stages::Ladder;
use std::io::{self, Write};

/// The text that a command prints at its end, and the code that it exits with.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub exit: Exit,
    pub text: String,
}

impl Answer {
    /// Returns an answer with this text.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self {
            exit,
            text: text.into(),
        }
    }

    /// Returns the answer of a command that succeeded.
    pub fn pass(text: impl Into<String>) -> Self {
        Self::new(Exit::Pass, text)
    }

    /// Returns an answer whose text is a page as wide as the terminal.
    pub fn page(exit: Exit, page: &[Block]) -> Self {
        Self::new(exit, terminal::render(page, terminal::width()))
    }

    /// Returns a page of which at most `max` lines are shown, with how to see the others.
    pub fn first_lines(exit: Exit, page: &[Block], max: usize, advice: &str) -> Self {
        let text = terminal::render(page, terminal::width());
        Self::new(exit, first_lines(&text, max, advice))
    }

    /// Returns one object of JSON.
    pub fn json(exit: Exit, object: &impl Serialize) -> anyhow::Result<Self> {
        Ok(Self::new(exit, serde_json::to_string_pretty(object)?))
    }

    /// Adds what is wrong below the rest of the text, a line each.
    pub fn noting(mut self, lines: Vec<String>) -> Self {
        for line in lines {
            self.text += &format!("\n{line}");
        }
        self
    }

    /// Prints to standard output. A closed pipe (`| head`) is not an error.
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

fn first_lines(text: &str, max: usize, advice: &str) -> String {
    let lines = Vec::from_iter(text.trim_end().lines());
    if lines.len() <= max {
        return text.to_string();
    }
    let shown = &lines[..max - 2];
    let hidden = lines.len() - shown.len();
    format!("{}\n\n{hidden} more lines: {advice}", shown.join("\n"))
}

/// The reason why there is no data: nothing was measured, and nothing is overwritten. It ends a
/// command like an error but is an answer.
#[derive(Debug, thiserror::Error)]
#[error("not measured: {0}")]
pub struct NoData(pub String);

/// Returns the GPU of the ladder, which a command needs to do its `work`.
pub fn gpu_to<'a>(ladder: &'a Ladder, work: &str) -> Result<&'a CudaDevice, NoData> {
    ladder
        .gpu
        .as_ref()
        .map_err(|reason| NoData(format!("there is no GPU to {work}: {reason}")))
}

impl From<NoData> for Answer {
    fn from(no_data: NoData) -> Self {
        Self::new(Exit::Inconclusive, no_data.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        let numbered = (1..=count).map(|number| format!("line {number}"));
        Vec::from_iter(numbered).join("\n")
    }

    #[test]
    fn a_long_page_ends_with_how_to_see_the_rest() {
        assert_eq!(first_lines(&lines(6), 6, "--all"), lines(6));
        let cut = format!("{}\n\n3 more lines: --all", lines(4));
        assert_eq!(first_lines(&lines(7), 6, "--all"), cut);
        assert_eq!(cut.lines().count(), 6);
    }
}
