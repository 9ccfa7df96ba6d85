//! What ptxas gives every instance: a pull request shows a change in registers as a change in a snapshot.

use crate::{Snapshot, load};
use common::resources::{judge, judge_distinct};
use common::stage::Attention;
use common::verdict::Verdict;
use kernel_build::report::GpuBuild;

/// The snapshot holds for this compiler alone; `scripts/cuda-toolkit` pins it.
const PINNED_NVCC: &str = "13.0.88";

/// Fails unless every instance passes gate R1. Returns one line per instance and architecture.
pub fn resources(attention: &'static dyn Attention) -> Snapshot {
    let stage = load(attention);
    let nvcc = match &stage.report.gpu {
        GpuBuild::Built(code) => &code.nvcc,
        GpuBuild::Absent { reason, remedy } => {
            assert!(std::env::var_os("CI").is_none(), "CI must build GPU code: {reason}; {remedy}");
            return Snapshot::NotHere(format!("{reason}; {remedy}"));
        }
    };
    let of_kernel = |kernel| stage.ptxas_entries(kernel).into_iter().map(move |entry| (kernel, entry));
    let entries: Vec<_> = stage.kernels.iter().flat_map(of_kernel).collect();
    let mut lines = Vec::new();
    for (kernel, entry) in &entries {
        let result = judge(&kernel.facts, entry, None);
        assert_eq!(result.verdict, Verdict::Pass, "{}: {}", kernel.symbol, result.reason);
        let r = &entry.resources;
        lines.push(format!(
            "{:7} {:38} {:3} registers {:6} B shared {} B stack {} B spilled",
            entry.arch,
            kernel.symbol,
            r.registers,
            kernel.dynamic_shared_bytes + r.static_shared_bytes as usize,
            r.stack_frame_bytes,
            r.spill_store_bytes + r.spill_load_bytes,
        ));
    }
    let distinct =
        judge_distinct(entries.iter().map(|(kernel, entry)| (kernel.variant.as_str(), &kernel.facts, entry)));
    assert_eq!(distinct.verdict, Verdict::Pass, "{}", distinct.reason);
    if !nvcc.contains(PINNED_NVCC) {
        return Snapshot::NotHere(format!("it holds for nvcc {PINNED_NVCC}, this is {nvcc}"));
    }
    lines.sort();
    Snapshot::Text(lines.join("\n"))
}
