//! The emulated backend: one launch on this machine's processor, plain for results or traced for hazards and counters.

use super::{Execution, Staged};
use crate::image::Image;
use crate::params::AttentionParams;
use crate::stage::Prepared;
use emulator::trace::{Access, Allocation, Memory, TraceOptions};
use emulator::{Entry, Fault, Launch, Report, Schedule, Suppress, TraceReport};
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

/// The buffers of one launch.
struct Buffers {
    images: [AlignedBytes; 3],
    /// Aligned too: how many sectors they lie in is counted.
    scales: [AlignedBytes; 3],
    output: AlignedBytes,
    params: AttentionParams,
}

impl Buffers {
    fn new(staged: &Staged) -> Self {
        let mut images = staged.inputs.each_ref().map(|operand| AlignedBytes::copy_of(&operand.image.bytes));
        let mut output = AlignedBytes::copy_of(&staged.output.bytes);
        let bytes_of = |scales: &[f32]| scales.iter().flat_map(|scale| scale.to_ne_bytes()).collect::<Vec<u8>>();
        let mut scales = staged.inputs.each_ref().map(|operand| AlignedBytes::copy_of(&bytes_of(&operand.scales)));
        let addresses = scales.each_mut().map(|scales| match scales.len {
            0 => std::ptr::null(),
            _ => scales.address().cast_const().cast(),
        });
        let params = staged.params(images.each_mut().map(AlignedBytes::address), addresses, output.address());
        Self { images, scales, output, params }
    }

    fn launch(&self, entry: Entry, prepared: &Prepared<'_>, schedule: Schedule) -> Launch {
        Launch {
            entry,
            params: (&raw const self.params).cast(),
            grid: prepared.grid,
            block: [prepared.kernel.threads, 1, 1],
            dynamic_shared_bytes: prepared.kernel.dynamic_shared_bytes,
            schedule,
        }
    }

    /// What the kernel may touch: rows, scales and parameters, and neither margins nor gaps.
    fn memory(&self, staged: &Staged) -> Memory {
        let image = |name: &str, bytes: &AlignedBytes, image: &Image, access| {
            let words = image.clone();
            let start = bytes.storage[bytes.start..].as_ptr();
            Allocation::with_elements(name, start, bytes.len, access, image.element_ranges())
                .described_by(move |offset| words.describe_outside(offset))
        };
        let mut table = Vec::new();
        for ((operand, bytes), scales) in staged.inputs.iter().zip(&self.images).zip(&self.scales) {
            table.push(image(operand.name, bytes, &operand.image, Access::Input));
            let (name, start) = (format!("the scales of {}", operand.name), scales.storage[scales.start..].as_ptr());
            table.push(Allocation::whole(&name, start, scales.len, Access::Input));
        }
        table.push(image("o", &self.output, &staged.output, Access::Output));
        let params = &raw const self.params;
        table.push(Allocation::whole("the parameters", params, size_of::<AttentionParams>(), Access::Constant));
        Memory::new(table)
    }
}

/// Runs `prepared` on `staged` under `schedule`. Errors: the fault that stopped the launch, with block, thread and line.
pub fn execute(prepared: &Prepared<'_>, staged: &Staged, schedule: Schedule) -> Result<(Execution, Report), Fault> {
    execute_suppressed(prepared, staged, schedule, None)
}

/// As [`execute`], but one synchronisation site does nothing: what the gates must notice.
pub fn execute_suppressed(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    suppress: Option<&Suppress>,
) -> Result<(Execution, Report), Fault> {
    let buffers = Buffers::new(staged);
    let launch = buffers.launch(prepared.kernel.emulated, prepared, schedule);
    // SAFETY: the entry takes AttentionParams, which outlives the call, as do the buffers that it points to; each holds
    // every address that extents and strides of `staged` allow, and is on the boundary that kernels rely on. Without a
    // barrier a kernel computes something else, but at the same addresses.
    let report = unsafe {
        match suppress {
            None => emulator::launch(&launch),
            Some(suppress) => emulator::launch_suppressed(&launch, suppress),
        }
    }?;
    let inputs = buffers.images.each_ref().map(AlignedBytes::to_vec);
    Ok((Execution { inputs, output: buffers.output.to_vec() }, report))
}

/// What a traced run may leave out.
#[derive(Clone, Debug, Default)]
pub struct Selection<'a> {
    /// Blocks of the grid; all where there is none.
    pub blocks: Option<&'a [[u32; 3]]>,
    /// A synchronisation site that does nothing.
    pub suppress: Option<Suppress>,
}

/// Runs the traced build of `prepared` on `staged`: hazards and counters. `None` where there is no traced build, since
/// the C++ compiler can't make it. Errors: a launch that is refused; what stops a block is among the hazards.
pub fn trace(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    selection: &Selection<'_>,
) -> Result<Option<TraceReport>, Fault> {
    let Some(entry) = prepared.kernel.traced else { return Ok(None) };
    let buffers = Buffers::new(staged);
    let memory = buffers.memory(staged);
    let options = TraceOptions { memory, blocks: selection.blocks, suppress: selection.suppress.clone(), log: false };
    // SAFETY: as in `execute`; the table holds all that the parameters point to.
    unsafe { emulator::trace::trace(&buffers.launch(entry, prepared, schedule), &options) }.map(Some)
}
