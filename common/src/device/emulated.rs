//! The emulated backend: one launch on this machine's processor.

use super::{Execution, Staged};
use crate::stage::Prepared;
use emulator::{Fault, Launch, Report, Schedule};
use std::ffi::c_void;

/// Images start on a 128-byte boundary, as device allocations do (cudaMalloc: 256 bytes).
const ALIGNMENT: usize = 128;

/// Bytes on a 128-byte boundary.
struct AlignedBytes {
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    fn copy_of(bytes: &[u8]) -> Self {
        let mut storage = vec![0; bytes.len() + ALIGNMENT];
        let start = storage.as_ptr().align_offset(ALIGNMENT);
        storage[start..start + bytes.len()].copy_from_slice(bytes);
        Self { storage, start, len: bytes.len() }
    }

    fn address(&mut self) -> *mut c_void {
        self.storage[self.start..].as_mut_ptr().cast()
    }

    fn to_vec(&self) -> Vec<u8> {
        self.storage[self.start..self.start + self.len].to_vec()
    }
}

/// Runs `prepared` on `staged` under `schedule`. Errors: the fault that stopped the launch, with block, thread and line.
pub fn execute(prepared: &Prepared<'_>, staged: &Staged, schedule: Schedule) -> Result<(Execution, Report), Fault> {
    let mut images = staged.inputs.each_ref().map(|operand| AlignedBytes::copy_of(&operand.image.bytes));
    let mut output = AlignedBytes::copy_of(&staged.output.bytes);
    let scales = staged.inputs.each_ref().map(|operand| match operand.scales.as_slice() {
        [] => std::ptr::null(),
        scales => scales.as_ptr(),
    });
    let params = staged.params(images.each_mut().map(AlignedBytes::address), scales, output.address());
    let launch = Launch {
        entry: prepared.kernel.emulated,
        params: (&raw const params).cast(),
        grid: prepared.grid,
        block: [prepared.kernel.threads, 1, 1],
        dynamic_shared_bytes: prepared.kernel.dynamic_shared_bytes,
        schedule,
    };
    // SAFETY: the entry takes AttentionParams, which outlives the call, as do the buffers that it points to; each holds
    // every address that extents and strides of `staged` allow, and is on the boundary that kernels rely on.
    let report = unsafe { emulator::launch(&launch) }?;
    Ok((Execution { inputs: images.each_ref().map(AlignedBytes::to_vec), output: output.to_vec() }, report))
}
