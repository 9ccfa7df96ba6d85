//! The result of a command: what it prints, and its exit code.

use crate::document::Block;
use crate::document::terminal::terminal;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
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
        Self::new(exit, terminal(page))
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

/// Why there is no data: nothing was measured, and nothing is overwritten. It ends a command like an error but is an answer.
#[derive(Debug, thiserror::Error)]
#[error("NO DATA: {0}")]
pub struct NoData(pub String);

impl From<NoData> for Answer {
    fn from(none: NoData) -> Self {
        Self::new(Exit::Inconclusive, none.to_string())
    }
}
