//! The subject of a row.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The thing that a row is about: a variant (`stage5-swizzle/swizzle-32x256-k4`), a stage, a
/// family, a peer (`torch-cudnn`), or the harness itself (`self-test`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject(String);

impl Subject {
    /// Returns the subject of a variant of a stage.
    pub fn variant(stage: &str, variant: &str) -> Self {
        Self(format!("{stage}/{variant}"))
    }

    /// Returns the part before the slash; all of it where there is none.
    pub fn stage(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(stage, _)| stage)
    }

    /// Returns the part after the slash: the name of the variant or family.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    /// Returns it as rows name it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Subject {
    fn from(text: &str) -> Self {
        Self(text.to_string())
    }
}

impl From<&Subject> for Subject {
    fn from(subject: &Subject) -> Self {
        subject.clone()
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
