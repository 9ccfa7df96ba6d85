//! An interpreter of PTX: a second front end of the emulator.
//!
//! [`Module::parse`] reads what nvcc or another compiler emits; [`Module::entry`] decodes one entry
//! to a [`Program`]; an [`Invocation`] of it makes a launch of the emulator, plain or traced.

pub mod case;
mod decode;
mod execute;
pub mod explore;
pub mod instructions;
mod isa;
pub mod memory;
pub mod number;
mod parse;
mod program;
mod slots;
mod step;

// What a verdict names.
pub use emulator::Place;
pub use emulator::trace::{Hazard, HazardAccess, HazardKind};
pub use execute::{Election, Invocation};
pub use isa::Fidelity;
pub use parse::error::ParseError;
pub use parse::{Entry, Module, Parameter};
pub use program::Program;
