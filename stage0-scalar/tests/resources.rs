//! What ptxas gives every instance, as a snapshot: a pull request shows a change in registers as a change in this file.

use common::resources::{judge, judge_distinct};
use common::stage::LoadedStage;
use common::verdict::Verdict;
use kernel_build::report::GpuBuild;
use stage0_scalar::Scalar;

/// The snapshot holds for this compiler alone; `scripts/cuda-toolkit` pins it.
const PINNED_NVCC: &str = "13.0.88";

#[test]
fn resources_are_within_their_caps_and_as_recorded() {
    let stage = LoadedStage::load(&Scalar).unwrap();
    let nvcc = match &stage.report.gpu {
        GpuBuild::Built(code) => code.nvcc.clone(),
        GpuBuild::Absent { reason, remedy } => {
            assert!(std::env::var_os("CI").is_none(), "CI must build GPU code: {reason}; {remedy}");
            println!("not checked: {reason}; {remedy}");
            return;
        }
    };
    let entries: Vec<_> = stage
        .kernels
        .iter()
        .flat_map(|kernel| {
            stage.ptxas_entries(kernel).into_iter().map(move |entry| (kernel, kernel.facts.clone(), entry))
        })
        .collect();
    let mut lines = Vec::new();
    for (kernel, facts, entry) in &entries {
        let result = judge(facts, entry, None);
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
    let distinct = judge_distinct(entries.iter().map(|(kernel, facts, entry)| (kernel.variant.as_str(), facts, entry)));
    assert_eq!(distinct.verdict, Verdict::Pass, "{}", distinct.reason);
    if nvcc.contains(PINNED_NVCC) {
        lines.sort();
        insta::assert_snapshot!(lines.join("\n"));
    } else {
        println!("snapshot not compared: it holds for nvcc {PINNED_NVCC}, this is {nvcc}");
    }
}
