//! The resources of every instance: a pull request shows a change in registers as a change in a
//! snapshot, and one that goes beyond the committed caps fails. `UPDATE_CAPS=1 cargo test -p STAGE
//! resources` writes the caps anew.

use crate::{Snapshot, load};
use common::resources::{Caps, PtxasEntry, judge};
use common::stage::{Attention, Kernel, LoadedStage};
use common::verdict::Verdict;
use kernel_build::report::{GpuBuild, GpuCode};
use std::collections::BTreeMap;
use std::path::Path;

/// The snapshot holds for this compiler alone; `scripts/cuda-toolkit` pins it.
const PINNED_NVCC: &str = "13.0.88";

/// An instance for one architecture.
type Entry<'a> = (&'a Kernel, PtxasEntry);

/// Fails unless every instance passes gate R1. Returns one line per instance and architecture.
pub fn resources(attention: &'static dyn Attention) -> Snapshot {
    let mut stage = load(attention);
    let is_update = std::env::var_os("UPDATE_CAPS").is_some();
    let nvcc = match &stage.report.gpu {
        GpuBuild::Built(code) => {
            if is_update {
                refuse_other_builds(attention, code);
            }
            code.nvcc.clone()
        }
        GpuBuild::Absent { reason, remedy } => {
            assert!(!is_update, "no caps are written: {reason}; {remedy}");
            return Snapshot::NotHere(format!("{reason}; {remedy}"));
        }
    };
    if is_update {
        update_caps(&mut stage);
    } else {
        refuse_stale_caps(&stage);
    }

    let mut entries = Vec::new();
    for kernel in &stage.kernels {
        for entry in stage.ptxas_entries(kernel) {
            entries.push((kernel, entry));
        }
    }
    refuse_excess(&entries);
    refuse_equal_code(&entries);
    if !nvcc.contains(PINNED_NVCC) {
        return Snapshot::NotHere(format!(
            "the snapshot holds for nvcc {PINNED_NVCC}, this is {nvcc}"
        ));
    }
    let mut lines: Vec<String> = entries.iter().map(line).collect();
    lines.sort();
    Snapshot::Text(lines.join("\n"))
}

/// Fails where caps would be written from other compilers or architectures than those they are for.
fn refuse_other_builds(attention: &'static dyn Attention, code: &GpuCode) {
    let only = attention.artifacts().architectures;
    let mut names = Caps::ARCHITECTURES.to_vec();
    names.retain(|name| only.is_empty() || only.contains(name));
    let architectures = code.architectures.iter().map(|arch| arch.name.as_str());
    assert!(
        architectures.eq(names.iter().copied()),
        "caps hold for {}: unset ATTENTION_CUDA_ARCHS",
        names.join(", ")
    );
    assert!(
        code.nvcc.contains(PINNED_NVCC),
        "caps hold for nvcc {PINNED_NVCC}, this is {}",
        code.nvcc
    );
}

fn refuse_stale_caps(stage: &LoadedStage) {
    let caps = Caps::parse(stage.attention.artifacts().caps).expect("the stage was loaded");
    let mut stale: Vec<_> = caps.keys().collect();
    stale.retain(|symbol| !stage.kernels.iter().any(|kernel| kernel.symbol == **symbol));
    assert!(
        stale.is_empty(),
        "caps.csv has lines of no instance; UPDATE_CAPS=1 takes them out: {stale:?}"
    );
}

/// Fails where an instance takes more than its caps allow.
fn refuse_excess(entries: &[Entry<'_>]) {
    for (kernel, entry) in entries {
        let result = judge(&kernel.facts, entry);
        assert_eq!(
            result.verdict,
            Verdict::Pass,
            "{}: {}",
            kernel.symbol,
            result.reason
        );
    }
}

/// Fails where two variants have the same machine code.
fn refuse_equal_code(entries: &[Entry<'_>]) {
    let mut variants: BTreeMap<_, &str> = BTreeMap::new();
    for (kernel, entry) in entries {
        let variant = kernel.variant.as_str();
        let other = variants.insert((&entry.arch, &entry.sass_sha256), variant);
        assert!(
            other.is_none_or(|name| name == variant),
            "{}: {variant} and {other:?} compile to the same code: \
             what tells them apart does nothing",
            entry.arch
        );
    }
}

fn line((kernel, entry): &Entry<'_>) -> String {
    let resources = &entry.resources;
    format!(
        "{:7} {:38} {:3} registers {:6} B shared {} B stack {} B spilled",
        entry.arch,
        kernel.symbol,
        resources.registers,
        kernel.dynamic_shared_bytes + resources.static_shared_bytes as usize,
        resources.stack_frame_bytes,
        resources.spill_store_bytes + resources.spill_load_bytes,
    )
}

/// Writes the stage's `caps.csv` for what its instances take now.
fn update_caps(stage: &mut LoadedStage) {
    let mut lines = vec![Caps::HEAD.to_string()];
    for index in 0..stage.kernels.len() {
        let kernel = &stage.kernels[index];
        let caps = Caps::with_headroom(&kernel.facts, &stage.ptxas_entries(kernel));
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
