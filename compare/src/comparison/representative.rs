//! The figures that stand for a variant: of its f16, head_dim 64 instance, on the record's own GPU.

use common::evidence::Quantity;
use common::problem::Dtype;
use common::record::{BuiltKernel, KernelBuild, Record, VariantBuild};

/// The f16 instance of the claims' problem, else the first.
pub fn instance(variant: &VariantBuild) -> Option<&KernelBuild> {
    variant.claims_kernel(Dtype::F16).or(variant.kernels.first())
}

/// That instance as built for the record's own GPU; for the last architecture where it has none.
pub fn built_for<'a>(record: &Record, variant: &'a VariantBuild) -> Option<&'a BuiltKernel> {
    let built = &instance(variant)?.built;
    built.iter().find(|built| record.meta.machine.gpu.runs(&built.ptxas.arch)).or(built.last())
}

/// Bank conflicts of shared-memory reads, writes and cp.async together, where the record counted the variant.
pub fn conflicts(record: &Record, stage: &str, variant: &str) -> Option<f64> {
    let mut counters = record.evidence.counters.iter();
    let counters = counters.find(|c| (c.stage.as_str(), c.variant.as_str()) == (stage, variant))?;
    let launch = counters.counting.launch().ok()?;
    let kinds = [Quantity::SharedReadConflicts, Quantity::SharedWriteConflicts, Quantity::AsyncWriteConflicts];
    Some(kinds.iter().filter_map(|quantity| quantity.counted(launch)).sum())
}
