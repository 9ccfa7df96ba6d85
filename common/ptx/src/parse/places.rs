//! Source lines by `.file` and `.loc`.

use std::collections::{HashMap, HashSet};

use emulator::Place;

/// A line and column of a file, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Location {
    file: u32,
    line: u32,
    column: u32,
}

/// The lines of the instruction at hand, and how often it was inlined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    files: HashMap<u32, String>,
    current: Option<Location>,
    /// The line that each line was inlined into; the latest of a line counts.
    callers: HashMap<Location, Option<Location>>,
}

/// The most levels of inlining that are followed.
const MOST_FRAMES: usize = 256;

impl Places {
    /// Reads `.file 1 "kernel.cu"`, which may be followed by a time and a size.
    pub(crate) fn file(&mut self, text: &str) {
        let mut words = text
            .trim_start_matches(".file")
            .trim()
            .splitn(2, [' ', '\t']);
        let number = words.next().and_then(|word| word.parse().ok());
        let name = words.next().and_then(|rest| rest.split('"').nth(1));
        if let (Some(index), Some(file)) = (number, name) {
            self.files.insert(index, file.to_owned());
        }
    }

    /// Reads `.loc file line column[, function_name label[+offset], inlined_at file line column]`.
    pub(crate) fn locate(&mut self, text: &str) {
        let mut parts = text.trim_start_matches(".loc").split(',');
        let Some(own) = parts.next().and_then(location) else {
            return;
        };
        let caller = parts
            .find_map(|part| part.trim().strip_prefix("inlined_at"))
            .and_then(location);
        if own.line != 0 {
            self.callers.insert(own, caller);
            self.current = Some(own);
        }
    }

    /// Returns the lines of the instruction at hand, innermost first; none without `.loc`. A line
    /// that was inlined into itself, directly or through others, ends them.
    pub(crate) fn frames(&self) -> Vec<Place> {
        let mut frames = Vec::new();
        let mut seen = HashSet::new();
        let mut next = self.current;
        while let Some(at) = next
            && seen.len() < MOST_FRAMES
            && seen.insert(at)
        {
            if let Some(file) = self.files.get(&at.file) {
                frames.push(Place {
                    file: file.clone(),
                    line: at.line,
                });
            }
            next = self.callers.get(&at).copied().flatten();
        }
        frames
    }

    pub(crate) fn restart(&mut self) {
        self.current = None;
        self.callers.clear();
    }
}

fn location(text: &str) -> Option<Location> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    Some(Location {
        file: numbers.next()??,
        line: numbers.next()??,
        column: numbers.next()??,
    })
}

/// Drops the lines that a kernel's author has no use for: those of the toolkit's headers and of
/// CUTLASS, if there are others, and the function that only wraps an instruction in inline
/// assembly.
pub(crate) fn useful(mut frames: Vec<Place>, is_inline_assembly: bool) -> Vec<Place> {
    if is_inline_assembly && frames.len() > 1 {
        frames.remove(0);
    }
    let is_own = |place: &Place| !is_of_toolkit(&place.file) && !is_of_cutlass(&place.file);
    if frames.iter().any(is_own) {
        frames.retain(is_own);
    }
    frames
}

fn is_of_toolkit(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let is_header = name.ends_with(".hpp") || name.ends_with(".h");
    is_header && (name.starts_with("cuda_") || name.starts_with("sm_") || file.contains("/crt/"))
}

fn is_of_cutlass(file: &str) -> bool {
    file.contains("/include/cute/") || file.contains("/include/cutlass/")
}
