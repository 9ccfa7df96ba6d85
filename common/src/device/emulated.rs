//! The emulated backend: one launch, plain for results or traced for hazards and counters.

use super::{Execution, Staged, changed};
use crate::image::Image;
use crate::maps::{self, BoxRows, TableAddresses, TensorMap};
use crate::params::AttentionServed;
use crate::sequences::Tables;
use crate::stage::Prepared;
use emulator::trace::{Access, Allocation, Memory};
use emulator::{Entry, Fault, Launch, Place, Schedule, TraceReport};
use ptx::{Invocation, Program};
use std::ffi::c_void;

pub use emulator::trace::Selection;

/// The alignment of allocations, which those of a device have too (cudaMalloc: 256).
const ALIGNMENT: usize = 128;

/// A copy of bytes at an aligned address.
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

    fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }

    /// Describes these bytes, laid out as `image`, for the traced build.
    fn allocation(&self, name: &str, image: &Image, access: Access) -> Allocation {
        let layout = image.clone();
        let start = self.storage[self.start..].as_ptr();
        let elements: Vec<_> = match access {
            Access::Output => image.element_ranges().collect(),
            Access::Input | Access::Constant => image.readable_ranges().collect(),
        };
        Allocation::with_elements(name, start, self.len, access, elements)
            .described_by(move |offset| layout.describe(offset))
    }
}

/// The buffers of one launch, and the parameters that point to them.
struct Buffers {
    images: [AlignedBytes; 3],
    /// The scales, aligned because sectors are counted.
    scales: [AlignedBytes; 3],
    output: AlignedBytes,
    lse: Option<AlignedBytes>,
    tables: [Table; 5],
    argument: AttentionServed,
}

/// An array that kernels read beside the tensors; without bytes where there is none.
struct Table {
    name: &'static str,
    bytes: AlignedBytes,
}

impl Table {
    fn new(name: &'static str, bytes: &[u8]) -> Self {
        Self {
            name,
            bytes: AlignedBytes::copy_of(bytes),
        }
    }

    /// Makes the arrays of a launch.
    fn all(staged: &Staged) -> [Self; 5] {
        let none = Tables::default();
        let tables = staged.tables.as_ref().unwrap_or(&none);
        let integers = |name, values| Self::new(name, &ne_bytes(values, i32::to_ne_bytes));
        [
            integers("the starts of queries", &tables.q_starts),
            integers("the starts of keys", &tables.kv_starts),
            integers("the numbers of used keys", &tables.kv_used),
            integers("the page table", &tables.pages),
            Self::new("the sinks", &ne_bytes(&tables.sinks, f32::to_ne_bytes)),
        ]
    }

    fn address(&mut self) -> *const c_void {
        match self.bytes.len {
            0 => std::ptr::null(),
            _ => self.bytes.address().cast_const(),
        }
    }
}

/// Returns the addresses of the arrays of [`Table::all`].
fn table_addresses(tables: &mut [Table; 5]) -> TableAddresses {
    let [q_starts, kv_starts, kv_used, pages, sinks] = tables.each_mut().map(Table::address);
    TableAddresses {
        q_starts: q_starts.cast(),
        kv_starts: kv_starts.cast(),
        kv_used: kv_used.cast(),
        pages: pages.cast(),
        sinks: sinks.cast(),
    }
}

impl Buffers {
    fn new(staged: &Staged, boxes: Option<BoxRows>, with_lse: bool) -> Result<Self, Fault> {
        let operands = staged.inputs.each_ref();
        let mut images = operands.map(|operand| AlignedBytes::copy_of(&operand.image.bytes));
        let mut scales = operands
            .map(|operand| AlignedBytes::copy_of(&ne_bytes(&operand.scales, f32::to_ne_bytes)));
        let mut output = AlignedBytes::copy_of(&staged.output.bytes);
        let mut log_sum_exps = with_lse.then(|| AlignedBytes::copy_of(&staged.lse.bytes));
        let scale_addresses = scales.each_mut().map(|bytes| match bytes.len {
            0 => std::ptr::null(),
            _ => bytes.address().cast_const().cast(),
        });
        let params = staged.params(
            images.each_mut().map(AlignedBytes::address),
            scale_addresses,
            output.address(),
            log_sum_exps
                .as_mut()
                .map_or(std::ptr::null_mut(), AlignedBytes::address),
        );
        let mut tables = Table::all(staged);
        let addresses = table_addresses(&mut tables);
        let problem = &staged.problem;
        Ok(Self {
            images,
            scales,
            output,
            lse: log_sum_exps,
            argument: AttentionServed {
                launch: maps::launch_in(staged.extents(), problem, params, boxes, encode)?,
                serving: maps::serving(problem, staged.tables.as_ref(), addresses),
            },
            tables,
        })
    }

    fn launch(
        &self,
        entry: Option<Entry>,
        prepared: &Prepared<'_>,
        schedule: Schedule,
    ) -> Result<Launch, Fault> {
        let Some(entry_point) = entry else {
            return Err(Fault::BadLaunch {
                reason: "the stage was built without its feature `emulated`; name it with -p"
                    .into(),
            });
        };
        Ok(self.launch_of(entry_point, prepared, schedule))
    }

    fn launch_of(&self, entry: Entry, prepared: &Prepared<'_>, schedule: Schedule) -> Launch {
        Launch {
            entry,
            params: (&raw const self.argument).cast(),
            grid: blocks(prepared),
            block: [prepared.kernel.threads, 1, 1],
            cluster: prepared.kernel.cluster,
            dynamic_shared_bytes: prepared.kernel.dynamic_shared_bytes,
            schedule,
            patience: Launch::PATIENCE,
        }
    }

    /// Returns what a launch left of `staged`, which was in these buffers.
    fn execution(&self, staged: &Staged) -> Execution {
        Execution {
            changed_inputs: std::array::from_fn(|i| {
                changed(&staged.inputs[i].image.bytes, self.images[i].bytes())
            }),
            output: self.output.bytes().to_vec(),
            lse: self.lse.as_ref().map(|lse| lse.bytes().to_vec()),
        }
    }

    /// Returns every buffer that a kernel may reach, for the traced build.
    fn memory(&self, staged: &Staged) -> Memory {
        let mut table = Vec::new();
        for (i, operand) in staged.inputs.iter().enumerate() {
            let image = &operand.image;
            let scales = &self.scales[i];
            table.push(self.images[i].allocation(operand.name, image, Access::Input));
            table.push(Allocation::whole(
                &format!("the scales of {}", operand.name),
                scales.storage[scales.start..].as_ptr(),
                scales.len,
                Access::Input,
            ));
        }
        table.push(self.output.allocation("o", &staged.output, Access::Output));
        if let Some(lse) = &self.lse {
            table.push(lse.allocation("lse", &staged.lse, Access::Output));
        }
        for Table { name, bytes } in &self.tables {
            let start = bytes.storage[bytes.start..].as_ptr();
            table.push(Allocation::whole(name, start, bytes.len, Access::Input));
        }
        table.push(Allocation::whole(
            "the parameters",
            &raw const self.argument,
            size_of::<AttentionServed>(),
            Access::Constant,
        ));
        Memory::new(table)
    }
}

fn ne_bytes<T: Copy>(values: &[T], bytes: impl Fn(T) -> [u8; 4]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

/// The items that a block of a persistent kernel takes in the emulator: enough to use each slot of
/// its rings again, and few enough that small problems have several blocks.
const ITEMS_PER_BLOCK: u64 = 3;

/// Returns the blocks of a launch: the emulator has as many multiprocessors as a persistent
/// kernel's items ask for.
pub fn blocks(prepared: &Prepared<'_>) -> [u32; 3] {
    let multiprocessors = (prepared.items() / ITEMS_PER_BLOCK).clamp(1, u64::from(u16::MAX));
    prepared.blocks(multiprocessors as u32)
}

fn encode(map: &TensorMap) -> Result<[u64; 16], Fault> {
    let emulated = emulator::TensorMap {
        base: map.base,
        extents: map.extents,
        strides: map.strides,
        box_columns: map.box_columns,
        box_rows: map.box_rows,
        swizzle: map.swizzle,
        element_bytes: map.element_bytes,
    };
    emulated.encode().map_err(|error| Fault::BadLaunch {
        reason: error.to_string(),
    })
}

/// Runs the plain build, without the synchronisation at `suppress`.
pub fn execute(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    suppress: Option<&Place>,
) -> Result<Execution, Fault> {
    let buffers = Buffers::new(staged, prepared.kernel.boxes, prepared.lse)?;
    let launch = buffers.launch(prepared.kernel.emulated, prepared, schedule)?;
    // SAFETY: the entry takes AttentionServed, or what that begins with, which
    // outlives the call, as do the buffers that it points to; each holds every address that extents
    // and strides of `staged` allow, and is on the boundary that kernels rely on. Without a barrier
    // a kernel computes something else, but at the same addresses.
    unsafe { emulator::launch(&launch, suppress) }?;
    Ok(buffers.execution(staged))
}

/// Runs a variant's PTX, as nvcc compiles its source, in the place of the plain build.
pub fn execute_ptx(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    program: &Program,
) -> Result<Execution, Fault> {
    let buffers = Buffers::new(staged, prepared.kernel.boxes, prepared.lse)?;
    let argument = (&raw const buffers.argument).cast();
    let bytes = prepared.kernel.dynamic_shared_bytes;
    // SAFETY: the entry takes AttentionServed, or what that begins with, as in `execute`.
    let invocation = unsafe { Invocation::new(program, argument, bytes) };
    let launch = invocation.launch(&buffers.launch_of(no_body, prepared, schedule));
    // SAFETY: as in `execute`.
    unsafe { emulator::launch(&launch, None) }?;
    Ok(buffers.execution(staged))
}

/// Traces a variant's PTX in the place of the traced build.
pub fn trace_ptx(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    program: &Program,
    selection: &Selection<'_>,
) -> Result<TracedExecution, Fault> {
    let buffers = Buffers::new(staged, prepared.kernel.boxes, prepared.lse)?;
    let memory = buffers.memory(staged);
    let argument = (&raw const buffers.argument).cast();
    let bytes = prepared.kernel.dynamic_shared_bytes;
    // SAFETY: as in `execute_ptx`.
    let invocation = unsafe { Invocation::new(program, argument, bytes) };
    let launch = invocation.launch(&buffers.launch_of(no_body, prepared, schedule));
    // SAFETY: as in `execute_traced`.
    let report = unsafe { emulator::trace::trace(&launch, memory, selection) }?;
    Ok(TracedExecution {
        report,
        execution: buffers.execution(staged),
    })
}

/// Stands in a launch until a program takes its place.
unsafe extern "C-unwind" fn no_body(_: *const c_void) {}

/// The most address space that [`execute_far_apart`] reserves for a case of tier 0 or a named
/// problem of claims.
pub const FAR_APART_BYTES: usize = 7 << 38;

/// Address space that takes memory only where it is touched.
struct Sparse {
    start: *mut u8,
    bytes: usize,
}

impl Sparse {
    /// Reserves `bytes` bytes and copies the elements of `from` there, laid out as in `to`.
    fn holding(from: &Image, to: &Image, bytes: usize) -> Result<Self, Fault> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
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

    /// Returns the bytes of `near`, with the elements that lie here as in `far`.
    fn gathered(&self, near: &Image, far: &Image) -> Vec<u8> {
        let mut gathered = near.bytes.clone();
        for (to, from) in near.element_ranges().zip(far.element_ranges()) {
            // SAFETY: as in `holding`; the launch is over.
            unsafe {
                gathered[to.clone()]
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(self.start.add(from.start), to.len())
            };
        }
        gathered
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no launch uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Runs the plain build on rows so far apart that their offsets take more than 32 bits
/// ([`Image::far_apart`]). The output lies as `staged` has it.
pub fn execute_far_apart(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
) -> Result<Execution, Fault> {
    let mut far = staged.clone();
    let [q, k, v] = &mut far.inputs;
    let inputs = [
        move_far_apart(&mut q.image)?,
        move_far_apart(&mut k.image)?,
        move_far_apart(&mut v.image)?,
    ];
    let output = move_far_apart(&mut far.output)?;
    let mut buffers = Buffers::new(staged, None, false)?;
    let near = &buffers.argument.launch.params;
    let params = far.params(
        inputs.each_ref().map(|memory| memory.start.cast()),
        [near.q.scales, near.k.scales, near.v.scales],
        output.start.cast(),
        std::ptr::null_mut(),
    );
    buffers.argument.launch = maps::launch(&far.problem, params, prepared.kernel.boxes, encode)?;
    let launch = buffers.launch(prepared.kernel.emulated, prepared, schedule)?;
    // SAFETY: as in `execute`; the mappings outlive the call, too.
    unsafe { emulator::launch(&launch, None) }?;
    Ok(Execution {
        changed_inputs: std::array::from_fn(|i| {
            let image = &staged.inputs[i].image;
            changed(
                &image.bytes,
                &inputs[i].gathered(image, &far.inputs[i].image),
            )
        }),
        output: output.gathered(&staged.output, &far.output),
        lse: None,
    })
}

/// Moves the elements of `image` to address space of their own, far apart, and leaves its layout
/// there in `image`.
fn move_far_apart(image: &mut Image) -> Result<Sparse, Fault> {
    let apart = image.far_apart();
    let near = std::mem::replace(image, apart.image);
    Sparse::holding(&near, image, apart.byte_count)
}

/// Runs the traced build of `prepared` on `staged`. What stops a block is among the hazards.
pub fn trace(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    selection: &Selection<'_>,
) -> Result<TraceReport, Fault> {
    Ok(execute_traced(prepared, staged, schedule, selection)?.report)
}

/// A launch of the traced build.
pub struct TracedExecution {
    pub report: TraceReport,
    /// The tensors as the blocks left them.
    pub execution: Execution,
}

/// Runs the traced build like [`trace`], and keeps the tensors.
pub fn execute_traced(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedule: Schedule,
    selection: &Selection<'_>,
) -> Result<TracedExecution, Fault> {
    let buffers = Buffers::new(staged, prepared.kernel.boxes, prepared.lse)?;
    let memory = buffers.memory(staged);
    let launch = buffers.launch(prepared.kernel.traced, prepared, schedule)?;
    // SAFETY: as in `execute`; the table holds all that the parameters point to.
    let report = unsafe { emulator::trace::trace(&launch, memory, selection) }?;
    Ok(TracedExecution {
        report,
        execution: buffers.execution(staged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Dtype, Kind, Problem, of_kind};
    use crate::tier0;

    #[test]
    fn address_space_that_the_system_refuses_is_no_memory() {
        let image = Image::poisoned_output([1, 1, 1, 64], crate::image::Layout::Packed, None);
        let apart = image.far_apart().image;
        let fault = Sparse::holding(&image, &apart, usize::MAX >> 1).err();
        assert!(matches!(fault, Some(Fault::NoMemory { .. })), "{fault:?}");
    }

    /// Returns the address space that a problem's tensors take far apart.
    fn reserved(problem: &Problem) -> usize {
        let q_extents = problem.shape.q_extents();
        let kv_extents = problem.shape.kv_extents();
        [q_extents, q_extents, kv_extents, kv_extents]
            .map(|extents| {
                let layout = crate::image::Layout::Packed;
                Image::poisoned_output(extents, layout, None)
                    .far_apart()
                    .byte_count
            })
            .iter()
            .sum()
    }

    #[test]
    fn no_case_reserves_more_than_the_limit() {
        let mut most = 0;
        for case in tier0::cases() {
            most = most.max(reserved(&case.problem));
        }
        for named in of_kind(Kind::Small) {
            let problem = Problem::new(named.shape, Dtype::F16, crate::problem::Mask::Full);
            most = most.max(reserved(&problem.unwrap()));
        }
        assert!(most <= FAR_APART_BYTES, "{most}");
        assert!(most > FAR_APART_BYTES / 2, "{most}");
    }
}
