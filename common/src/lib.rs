//! What every stage shares on the host: problems, inputs, references, gates, timing, records and the two backends.

pub mod check;
pub mod claim;
pub mod device;
pub mod e4m3;
pub mod evidence;
pub mod explain;
pub mod faults;
pub mod format;
pub mod gate;
pub mod image;
pub mod inputs;
pub mod limits;
pub mod maps;
pub mod metric;
pub mod params;
pub mod problem;
pub mod quantise;
pub mod reference;
pub mod resources;
pub mod stage;
pub mod suppression;
pub mod telemetry;
pub mod tier0;
pub mod timing;
pub mod verdict;
