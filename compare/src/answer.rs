//! What a command came to: what it prints, and the exit code.

use crate::judge::verdict::Exit;

/// What a command came to. Where something is wrong, `notes` say what, also where the text is not wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub exit: Exit,
    /// For standard output.
    pub text: String,
    /// Lines for standard error.
    pub notes: Vec<String>,
}

impl Answer {
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into(), notes: vec![] }
    }

    pub fn pass(text: impl Into<String>) -> Self {
        Self::new(Exit::Pass, text)
    }

    /// Nothing was measured, and nothing is overwritten.
    pub fn no_data(reason: impl std::fmt::Display) -> Self {
        Self::new(Exit::Undecided, format!("NO DATA: {reason}"))
    }

    pub fn noting(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The same without its text, where that is not wanted.
    pub fn quiet(self, is_quiet: bool) -> Self {
        if is_quiet { Self { text: String::new(), ..self } } else { self }
    }
}
