//! A page is blocks of typed cells, composed once and then written as Markdown or terminal text.

#![forbid(unsafe_code)]

mod content;
pub mod markdown;
pub mod terminal;

pub use content::{Block, Cell, Span, Table, TableRow, Text};

#[cfg(test)]
mod tests;
