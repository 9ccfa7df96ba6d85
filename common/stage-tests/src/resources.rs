//! What ptxas gives every instance: a pull request shows a change in registers as a change in a snapshot, and one that goes
//! beyond the committed caps fails. `UPDATE_CAPS=1 cargo test -p STAGE resources` writes the caps anew.

use crate::{Snapshot, load};
use common::resources::{Caps, judge};
use common::stage::{Attention, LoadedStage};
use common::verdict::Verdict;
use kernel_build::report::GpuBuild;
use std::collections::BTreeMap;
use std::path::Path;

/// The snapshot holds for this compiler alone; `scripts/cuda-toolkit` pins it.
const PINNED_NVCC: &str = "13.0.88";

/// Fails unless every instance passes gate R1. Returns one line per instance and architecture.
pub fn resources(attention: &'static dyn Attention) -> Snapshot {
    let mut stage = load(attention);
    let updates = std::env::var_os("UPDATE_CAPS").is_some();
    let (nvcc, architectures) = match &stage.report.gpu {
        GpuBuild::Built(code) => (
            code.nvcc.clone(),
            code.architectures.iter().map(|arch| arch.name.as_str()),
        ),
        GpuBuild::Absent { reason, remedy } => {
            assert!(!updates, "no caps are written: {reason}; {remedy}");
            return Snapshot::NotHere(format!("{reason}; {remedy}"));
        }
    };
    if updates {
        let only = attention.artifacts().architectures;
        let names = Caps::ARCHITECTURES
            .map(|name| (only.is_empty() || only.contains(&name)).then_some(name));
        let names: Vec<&str> = names.into_iter().flatten().collect();
        assert!(
            architectures.eq(names.iter().copied()),
            "caps hold for {}: unset ATTENTION_CUDA_ARCHS",
            names.join(", ")
        );
        assert!(
            nvcc.contains(PINNED_NVCC),
            "caps hold for nvcc {PINNED_NVCC}, this is {nvcc}"
        );
        update_caps(&mut stage);
    } else {
        let caps = Caps::parse(attention.artifacts().caps).expect("the stage was loaded");
        let is_declared = |symbol: &str| stage.kernels.iter().any(|kernel| kernel.symbol == symbol);
        let stale: Vec<_> = caps.keys().filter(|symbol| !is_declared(symbol)).collect();
        assert!(
            stale.is_empty(),
            "caps.csv has lines of no instance; UPDATE_CAPS=1 takes them out: {stale:?}"
        );
    }
    let of_kernel = |kernel| {
        stage
            .ptxas_entries(kernel)
            .into_iter()
            .map(move |entry| (kernel, entry))
    };
    let entries: Vec<_> = stage.kernels.iter().flat_map(of_kernel).collect();
    let mut lines = Vec::new();
    for (kernel, entry) in &entries {
        let result = judge(&kernel.facts, entry);
        assert_eq!(
            result.verdict,
            Verdict::Pass,
            "{}: {}",
            kernel.symbol,
            result.reason
        );
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
    let mut by_code: BTreeMap<_, &str> = BTreeMap::new();
    for (kernel, entry) in &entries {
        let variant = kernel.variant.as_str();
        let known = by_code.insert((&entry.arch, &entry.sass_sha256), variant);
        assert!(
            known.is_none_or(|known| known == variant),
            "{}: {variant} and {known:?} compile to the same code: what tells them apart does nothing",
            entry.arch
        );
    }
    if !nvcc.contains(PINNED_NVCC) {
        return Snapshot::NotHere(format!(
            "the snapshot holds for nvcc {PINNED_NVCC}, this is {nvcc}"
        ));
    }
    lines.sort();
    Snapshot::Text(lines.join("\n"))
}

/// Writes the stage's `caps.csv` for what its instances take now.
fn update_caps(stage: &mut LoadedStage) {
    let mut lines = vec![Caps::HEAD.to_string()];
    for index in 0..stage.kernels.len() {
        let kernel = &stage.kernels[index];
        let caps = Caps::of(&kernel.facts, &stage.ptxas_entries(kernel));
        lines.push(format!(
            "{},{},{}",
            kernel.symbol, caps.register_cap, caps.shared_cap_bytes
        ));
        stage.kernels[index].facts.caps = Some(caps);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("common/stage-tests lies in the root");
    let path = root.join(stage.info().id).join("caps.csv");
    std::fs::write(&path, lines.join("\n") + "\n")
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
