//! Where in the sources a call is.

use super::What;

/// A line of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Relative to the root of the workspace.
    pub file: String,
    pub line: u32,
    /// The line's text, without the spaces around it.
    pub text: String,
}

/// The device sources of a kernel: paths from the root of the workspace, and text.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a>(pub &'a [(&'a str, &'a str)]);

impl Sources<'_> {
    /// Finds a call by its line, which is all that a note has: that of a file whose line of this
    /// number calls a function that is noted so. `None` if there is none, or several.
    pub fn find(&self, what: What, line: u32) -> Option<Site> {
        let mut found = None;
        let index = line.checked_sub(1)? as usize;
        for (file, source) in self.0 {
            let Some(text) = source.lines().nth(index).filter(|text| calls(text, what)) else {
                continue;
            };
            if found.is_some() {
                return None;
            }
            found = Some(Site {
                file: file.to_string(),
                line,
                text: text.trim().to_string(),
            });
        }
        found
    }

    /// Returns the line of a file, as far as it is among the sources.
    pub fn at(&self, path: &str, line: u32) -> Site {
        let file = path.trim_start_matches("./");
        let text = self
            .0
            .iter()
            .find(|(name, _)| file.ends_with(name))
            .and_then(|(_, text)| text.lines().nth(line.saturating_sub(1) as usize));
        Site {
            file: file.to_string(),
            line,
            text: text.unwrap_or_default().trim().to_string(),
        }
    }
}

/// Returns whether a line calls one of the functions: the name, not part of a longer one.
fn calls(text: &str, what: What) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    what.functions().iter().any(|function| {
        text.match_indices(function).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + function.len()..]);
            !before.ends_with(is_word) && after.starts_with(['(', '<'])
        })
    })
}
