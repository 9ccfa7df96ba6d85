//! The host code that all stages share: problems, inputs, references, gates, timing, records and
//! the two backends.

#[macro_use]
mod named;

#[cfg(feature = "emulated")]
pub mod check;
pub mod choice;
pub mod claim;
pub mod device;
pub mod e4m3;
#[cfg(feature = "emulated")]
pub mod evidence;
#[cfg(feature = "emulated")]
pub mod explain;
#[cfg(feature = "emulated")]
pub mod faults;
pub mod format;
#[cfg(feature = "emulated")]
pub mod fuzz;
#[cfg(feature = "emulated")]
pub mod gate;
pub mod image;
pub mod inputs;
pub mod limits;
pub mod maps;
pub mod metric;
pub mod params;
pub mod placement;
pub mod probability;
pub mod problem;
pub mod quantise;
pub mod reference;
pub mod resources;
pub mod sequences;
pub mod serving;
pub mod stage;
#[cfg(feature = "emulated")]
pub mod suppression;
pub mod telemetry;
#[cfg(feature = "emulated")]
pub mod tier0;
pub mod timeline;
pub mod timing;
pub mod verdict;
