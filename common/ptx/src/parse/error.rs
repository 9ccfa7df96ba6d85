use thiserror::Error;

/// A reason why a text is not run. Each names the line of the PTX file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    #[error("{file}:{line}: `{name}` is not implemented")]
    Unknown {
        file: String,
        line: u32,
        name: String,
    },
    #[error("{file}:{line}: {reason}")]
    Invalid {
        file: String,
        line: u32,
        reason: String,
    },
    #[error("{file} has no entry `{name}`; it has {known}")]
    NoEntry {
        file: String,
        name: String,
        known: String,
    },
}

/// A refusal without its file, which only the module knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) line: u32,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Unknown(String),
    Invalid(String),
}

impl Refusal {
    pub(crate) fn unknown(line: u32, name: impl Into<String>) -> Self {
        Self {
            line,
            what: What::Unknown(name.into()),
        }
    }

    pub(crate) fn invalid(line: u32, reason: impl Into<String>) -> Self {
        Self {
            line,
            what: What::Invalid(reason.into()),
        }
    }

    pub(crate) fn of_file(self, file: &str) -> ParseError {
        let line = self.line;
        match self.what {
            What::Unknown(name) => ParseError::Unknown {
                file: file.to_owned(),
                line,
                name,
            },
            What::Invalid(reason) => ParseError::Invalid {
                file: file.to_owned(),
                line,
                reason,
            },
        }
    }
}
