//! The ladder: the one place where a stage is registered.

use common::stage::{Attention, LoadError, LoadedStage};

/// Every stage, in the order of the ladder.
pub static STAGES: &[&dyn Attention] = &[&stage0_scalar::Scalar, &stage5_swizzle::Swizzle];

/// Reads every stage's table and build report.
pub fn load() -> Result<Vec<LoadedStage>, LoadError> {
    STAGES.iter().map(|stage| LoadedStage::load(*stage)).collect()
}
