//! What every stage shares on the host: problems, inputs, references, gates, timing, records and the two backends.

pub mod e4m3;
pub mod image;
pub mod inputs;
pub mod problem;
pub mod quantise;
pub mod reference;
pub mod telemetry;
pub mod timing;
pub mod verdict;
