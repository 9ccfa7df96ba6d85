//! The explanation of a row.

use super::look::Suspect;
use super::operands::{Quantity, Wrong};
use super::steps::Chain;

/// The first quantity of a row that leaves its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    pub quantity: Quantity,
    /// Indices in [`Explained::chains`] and its steps; none for the row as a whole.
    pub at: Option<[usize; 2]>,
    /// The numbers beyond their bounds.
    pub wrong: Vec<Wrong>,
    /// The number of numbers that were compared.
    pub compared: usize,
    /// The places to look at, likeliest first.
    pub look: Vec<Suspect>,
}

/// The steps that a kernel showed of a row, and its deviation from the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    pub chains: Vec<Chain>,
    pub deviation: Option<Deviation>,
    /// The number closest to its bound, where none is beyond it.
    pub closest: Option<Closest>,
}

/// The number that is right and comes closest to its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Closest {
    pub quantity: Quantity,
    /// The part of its bound that the number's difference takes.
    pub share: f64,
    /// The first key of its tile; none for the row as a whole.
    pub tile: Option<i64>,
    pub look: Vec<Suspect>,
}
