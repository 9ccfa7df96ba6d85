//! The emulated backend: one launch, plain for results or traced for hazards and counters.

use super::{Execution, Staged};
use crate::image::Image;
use crate::maps::{self, BoxRows, TensorMap};
use crate::params::AttentionLaunch;
use crate::stage::Prepared;
use emulator::trace::{Access, Allocation, Memory};
use emulator::{Entry, Fault, Launch, Place, Schedule, TraceReport};
use std::ffi::c_void;

pub use emulator::trace::Selection;

/// As device allocations have (cudaMalloc: 256).
const ALIGNMENT: usize = 128;

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
        Self {
            storage,
            start,
            len: bytes.len(),
        }
    }

    fn address(&mut self) -> *mut c_void {
        self.storage[self.start..].as_mut_ptr().cast()
    }

    fn to_vec(&self) -> Vec<u8> {
        self.storage[self.start..self.start + self.len].to_vec()
    }
}

struct Buffers {
    images: [AlignedBytes; 3],
    /// Aligned, as sectors are counted.
    scales: [AlignedBytes; 3],
    output: AlignedBytes,
    lse: Option<AlignedBytes>,
    launch: AttentionLaunch,
}

impl Buffers {
    fn new(staged: &Staged, boxes: Option<BoxRows>, with_lse: bool) -> Result<Self, Fault> {
        let mut images = staged
            .inputs
            .each_ref()
            .map(|operand| AlignedBytes::copy_of(&operand.image.bytes));
        let mut output = AlignedBytes::copy_of(&staged.output.bytes);
        let mut lse = with_lse.then(|| AlignedBytes::copy_of(&staged.lse.bytes));
        let bytes_of = |scales: &[f32]| {
            scales
                .iter()
                .flat_map(|scale| scale.to_ne_bytes())
                .collect::<Vec<u8>>()
        };
        let mut scales = staged
            .inputs
            .each_ref()
            .map(|operand| AlignedBytes::copy_of(&bytes_of(&operand.scales)));
        let addresses = scales.each_mut().map(|scales| match scales.len {
            0 => std::ptr::null(),
            _ => scales.address().cast_const().cast(),
        });
        let params = staged.params(
            images.each_mut().map(AlignedBytes::address),
            addresses,
            output.address(),
            lse.as_mut()
                .map_or(std::ptr::null_mut(), AlignedBytes::address),
        );
        let launch = maps::launch(&staged.problem, params, boxes, encode)?;
        Ok(Self {
            images,
            scales,
            output,
            lse,
            launch,
        })
    }

    fn launch(
        &self,
        entry: Option<Entry>,
        prepared: &Prepared<'_>,
        schedule: Schedule,
    ) -> Result<Launch, Fault> {
        let entry = entry.ok_or_else(|| Fault::BadLaunch {
            reason: "the stage was built without its feature `emulated`; name it with -p".into(),
        })?;
        Ok(Launch {
            entry,
            params: (&raw const self.launch).cast(),
            grid: prepared.grid,
            block: [prepared.kernel.threads, 1, 1],
            cluster: prepared.kernel.cluster,
            dynamic_shared_bytes: prepared.kernel.dynamic_shared_bytes,
            schedule,
            patience: Launch::PATIENCE,
        })
    }

    fn execution(&self) -> Execution {
        Execution {
            inputs: self.images.each_ref().map(AlignedBytes::to_vec),
            output: self.output.to_vec(),
            lse: self.lse.as_ref().map(AlignedBytes::to_vec),
        }
    }

    fn memory(&self, staged: &Staged) -> Memory {
        let image = |name: &str, bytes: &AlignedBytes, image: &Image, access| {
            let words = image.clone();
            let start = bytes.storage[bytes.start..].as_ptr();
            Allocation::with_elements(name, start, bytes.len, access, image.element_ranges())
                .described_by(move |offset| words.describe(offset))
        };
        let mut table = Vec::new();
        for ((operand, bytes), scales) in staged.inputs.iter().zip(&self.images).zip(&self.scales) {
            table.push(image(operand.name, bytes, &operand.image, Access::Input));
            let (name, start) = (
                format!("the scales of {}", operand.name),
                scales.storage[scales.start..].as_ptr(),
            );
            table.push(Allocation::whole(&name, start, scales.len, Access::Input));
        }
        table.push(image("o", &self.output, &staged.output, Access::Output));
        if let Some(lse) = &self.lse {
            table.push(image("lse", lse, &staged.lse, Access::Output));
        }
        let launch = &raw const self.launch;
        table.push(Allocation::whole(
            "the parameters",
            launch,
            size_of::<AttentionLaunch>(),
            Access::Constant,
        ));
        Memory::new(table)
    }
}

fn encode(map: &TensorMap) -> Result<[u64; 16], Fault> {
    let map = emulator::TensorMap {
        base: map.base,
        extents: map.extents,
        strides: map.strides,
        box_columns: map.box_columns,
        box_rows: map.box_rows,
        swizzle: map.swizzle,
        element_bytes: map.element_bytes,
    };
    map.encode().map_err(|error| Fault::BadLaunch {
        reason: error.to_string(),
    })
}

/// The plain build, without the synchronisation at `suppress`.
pub fn execute(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    suppress: Option<&Place>,
) -> Result<Execution, Fault> {
    let buffers = Buffers::new(staged, prepared.kernel.boxes, prepared.lse)?;
    let launch = buffers.launch(prepared.kernel.emulated, prepared, schedule)?;
    // SAFETY: the entry takes AttentionLaunch, or the AttentionParams that it begins with, which outlives the call, as do the
    // buffers that it points to; each holds every address that extents and strides of `staged` allow, and is on the boundary
    // that kernels rely on. Without a barrier a kernel computes something else, but at the same addresses.
    unsafe { emulator::launch(&launch, suppress) }?;
    Ok(buffers.execution())
}

/// The most address space that [`execute_far_apart`] reserves for a case of tier 0 or a named problem of claims.
pub const FAR_APART_BYTES: usize = 7 << 38;

/// Address space that takes memory only where it is touched.
struct Sparse {
    start: *mut u8,
    bytes: usize,
}

impl Sparse {
    /// `bytes` bytes with the elements of `from`, laid out as in `to`.
    fn holding(from: &Image, to: &Image, bytes: usize) -> Result<Self, Fault> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping, which aliases nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Fault::NoMemory {
                what: format!(
                    "{} GiB of address space for rows that are far apart",
                    bytes >> 30
                ),
                error: std::io::Error::last_os_error().to_string(),
            });
        }
        let this = Self {
            start: start.cast(),
            bytes,
        };
        // A row in a huge page would take 2 MiB; where the advice is not taken, it does.
        #[cfg(target_os = "linux")]
        // SAFETY: the mapping made above.
        unsafe {
            libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE)
        };
        for (near, far) in from.element_ranges().zip(to.element_ranges()) {
            // SAFETY: the mapping has all rows of `to`, and nothing else refers to it yet.
            unsafe {
                this.start
                    .add(far.start)
                    .copy_from_nonoverlapping(from.bytes[near.clone()].as_ptr(), near.len())
            };
        }
        Ok(this)
    }

    /// The bytes of `near`, with the elements that lie here as in `far`.
    fn gathered(&self, near: &Image, far: &Image) -> Vec<u8> {
        let mut bytes = near.bytes.clone();
        for (to, from) in near.element_ranges().zip(far.element_ranges()) {
            // SAFETY: as in `holding`; the launch is over.
            unsafe {
                bytes[to.clone()]
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(self.start.add(from.start), to.len())
            };
        }
        bytes
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no launch uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// On rows so far apart that their offsets take more than 32 bits ([`Image::far_apart`]). The output lies as `staged` has it.
pub fn execute_far_apart(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
) -> Result<Execution, Fault> {
    let mut far = staged.clone();
    let hold = |image: &mut Image| {
        let (apart, bytes) = image.far_apart();
        Sparse::holding(&std::mem::replace(image, apart), image, bytes)
    };
    let [q, k, v] = &mut far.inputs;
    let inputs = [
        hold(&mut q.image)?,
        hold(&mut k.image)?,
        hold(&mut v.image)?,
    ];
    let output = hold(&mut far.output)?;
    let mut buffers = Buffers::new(staged, None, false)?;
    let near = &buffers.launch.params;
    let scales = [near.q.scales, near.k.scales, near.v.scales];
    let params = far.params(
        inputs.each_ref().map(|memory| memory.start.cast()),
        scales,
        output.start.cast(),
        std::ptr::null_mut(),
    );
    buffers.launch = maps::launch(&far.problem, params, prepared.kernel.boxes, encode)?;
    let launch = buffers.launch(prepared.kernel.emulated, prepared, schedule)?;
    // SAFETY: as in `execute`; the mappings outlive the call, too.
    unsafe { emulator::launch(&launch, None) }?;
    let gathered = |i: usize| inputs[i].gathered(&staged.inputs[i].image, &far.inputs[i].image);
    let output = output.gathered(&staged.output, &far.output);
    Ok(Execution {
        inputs: [gathered(0), gathered(1), gathered(2)],
        output,
        lse: None,
    })
}

/// The traced build of `prepared` on `staged`. What stops a block is among the hazards.
pub fn trace(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    selection: &Selection<'_>,
) -> Result<TraceReport, Fault> {
    Ok(execute_traced(prepared, staged, schedule, selection)?.0)
}

/// As [`trace`], with what the blocks left.
pub fn execute_traced(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    selection: &Selection<'_>,
) -> Result<(TraceReport, Execution), Fault> {
    let buffers = Buffers::new(staged, prepared.kernel.boxes, prepared.lse)?;
    let memory = buffers.memory(staged);
    let launch = buffers.launch(prepared.kernel.traced, prepared, schedule)?;
    // SAFETY: as in `execute`; the table holds all that the parameters point to.
    let report = unsafe { emulator::trace::trace(&launch, memory, selection) }?;
    Ok((report, buffers.execution()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Dtype, Kind, Problem, of_kind};
    use crate::tier0;

    #[test]
    fn address_space_that_the_system_does_not_give_is_no_memory() {
        let image = Image::poisoned_output([1, 1, 1, 64], crate::image::Layout::Packed);
        let (apart, _) = image.far_apart();
        let fault = Sparse::holding(&image, &apart, usize::MAX >> 1).err();
        assert!(matches!(fault, Some(Fault::NoMemory { .. })), "{fault:?}");
    }

    #[test]
    fn no_case_reserves_more_than_is_said() {
        let of_tensor = |extents| {
            let layout = crate::image::Layout::Packed;
            Image::poisoned_output(extents, layout).far_apart().1
        };
        let reserved = |problem: &Problem| {
            let (q, kv) = (problem.shape.q_extents(), problem.shape.kv_extents());
            2 * of_tensor(q) + 2 * of_tensor(kv)
        };
        let named = of_kind(Kind::Small).map(|named| named.shape);
        let named =
            named.map(|shape| Problem::new(shape, Dtype::F16, crate::problem::Mask::Full).unwrap());
        let cases = tier0::cases().into_iter().map(|case| case.problem);
        let most = cases.chain(named).map(|problem| reserved(&problem)).max();
        let most = most.unwrap();
        assert!(
            most <= FAR_APART_BYTES && most > FAR_APART_BYTES / 2,
            "{most}"
        );
    }
}
