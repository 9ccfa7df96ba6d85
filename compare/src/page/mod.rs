//! A report as one document of typed cells: composed once, then written as Markdown, HTML, JSON or for a terminal. Only
//! [`Cell::shown`] turns figures into text; no format is made from another.

mod document;
pub mod html;
pub mod markdown;
pub mod terminal;

pub(crate) use document::row;
pub use document::{Block, Cell, Chart, Document, Span, Table, Text, Tone, Verdict};

use std::io::{self, Write};

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
