//! A page is blocks of typed cells, composed once and then written as Markdown or terminal text.

mod content;
pub mod markdown;
pub mod terminal;

pub(crate) use content::row;
pub use content::{Block, Cell, Span, Table, TableRow, Text};

use std::io::{self, Write};

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
