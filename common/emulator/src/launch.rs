//! Launching a grid.

use std::ffi::c_void;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::fault::Fault;
use crate::layout::Layouts;
use crate::schedule::Schedule;
use crate::trace::Suppress;
use crate::worker;

/// Dynamic shared memory of the largest block: what sm_90 can opt in to.
pub const MAX_SHARED_BYTES: usize = 227 * 1024;

/// Runs one CUDA thread of a kernel; the argument is the kernel's params struct.
pub type Entry = unsafe extern "C-unwind" fn(*const c_void);

/// A kernel launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The kernel, compiled against the shim.
    pub entry: Entry,
    /// What the entry reads.
    pub params: *const c_void,
    /// gridDim.
    pub grid: [u32; 3],
    /// blockDim.
    pub block: [u32; 3],
    /// Size of the dynamic shared memory.
    pub dynamic_shared_bytes: usize,
    /// Who runs next, and how fragments lie over lanes.
    pub schedule: Schedule,
}

/// What a launch did, summed over its blocks. The same for every run with the same schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Blocks run.
    pub blocks: u64,
    /// How often a thread was resumed.
    pub switches: u64,
    /// `__syncthreads` completed, per block.
    pub barriers: u64,
    /// Warp-wide operations completed, per warp (or part of a warp that a mask names).
    pub collectives: u64,
    /// cp.async copies that no wait covered; their destinations stayed poison.
    pub unwaited_copies: u64,
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.switches += other.switches;
        self.barriers += other.barriers;
        self.collectives += other.collectives;
        self.unwaited_copies += other.unwaited_copies;
    }
}

impl Launch {
    pub(crate) fn linear_index(&self, [x, y, z]: [u32; 3]) -> u64 {
        let [grid_x, grid_y, _] = self.grid.map(u64::from);
        u64::from(x) + grid_x * (u64::from(y) + grid_y * u64::from(z))
    }

    pub(crate) fn block_index(&self, linear: u64) -> [u32; 3] {
        let [grid_x, grid_y, _] = self.grid.map(u64::from);
        // Each fits: it is below the grid's dimension.
        [linear % grid_x, linear / grid_x % grid_y, linear / (grid_x * grid_y)].map(|coordinate| coordinate as u32)
    }

    /// CUDA's own limits. Returns the number of blocks.
    pub(crate) fn check(&self) -> Result<usize, Fault> {
        let refuse = |reason: String| Err(Fault::BadLaunch { reason });
        if self.dynamic_shared_bytes > MAX_SHARED_BYTES {
            return Err(Fault::SharedTooLarge { requested: self.dynamic_shared_bytes, limit: MAX_SHARED_BYTES });
        }
        for (name, dim, limit) in
            [("grid", self.grid, [i32::MAX as u32, 65535, 65535]), ("block", self.block, [1024, 1024, 64])]
        {
            if dim.iter().zip(limit).any(|(&size, limit)| size == 0 || size > limit) {
                return refuse(format!("{name} {dim:?} is outside 1 to {limit:?}"));
            }
        }
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        if threads > 1024 {
            return refuse(format!("block {:?} has {threads} threads, above 1024", self.block));
        }
        let blocks: u64 = self.grid.iter().map(|&size| u64::from(size)).product();
        usize::try_from(blocks).map_err(|_| Fault::BadLaunch { reason: format!("{blocks} blocks are too many") })
    }

    /// `blocks`, if all are in the grid.
    pub(crate) fn check_blocks<'a>(&self, blocks: &'a [[u32; 3]]) -> Result<&'a [[u32; 3]], Fault> {
        let outside = |block: &&[u32; 3]| block.iter().zip(self.grid).any(|(&index, size)| index >= size);
        match blocks.iter().find(outside) {
            Some(block) => Err(Fault::BadLaunch { reason: format!("block {block:?} is not in grid {:?}", self.grid) }),
            None => Ok(blocks),
        }
    }
}

/// A launch that the blocks' OS threads may look at.
pub(crate) struct Shared<'a>(pub(crate) &'a Launch);

// SAFETY: the entry is code and the params are only read; that the kernel may run its blocks concurrently is part of
// `launch`'s contract, as it is of CUDA's.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    pub(crate) fn get(&self) -> &Launch {
        self.0
    }
}

/// Runs the whole grid, blocks in parallel. Returns the fault of the first faulty block in grid order: blocks behind
/// it may be skipped, blocks before it never are, so it does not depend on timing.
///
/// # Safety
/// `entry` must be a kernel compiled against this crate's shim, `params` what it expects, and everything that it
/// reaches through them valid for the accesses that the kernel makes, from several OS threads at once.
pub unsafe fn launch(launch: &Launch) -> Result<Report, Fault> {
    let blocks = launch.check()?;
    let shared = Shared(launch);
    // SAFETY: passed on.
    unsafe { run(launch, blocks, None, |linear| shared.get().block_index(linear as u64)) }
}

/// As [`launch`], for some blocks of the grid only.
///
/// # Safety
/// As [`launch`].
pub unsafe fn launch_blocks(launch: &Launch, blocks: &[[u32; 3]]) -> Result<Report, Fault> {
    launch.check()?;
    let blocks = launch.check_blocks(blocks)?;
    // SAFETY: passed on.
    unsafe { run(launch, blocks.len(), None, |index| blocks[index]) }
}

/// As [`launch`], but one synchronisation site does nothing: would anybody notice if the author had forgotten it?
///
/// # Safety
/// As [`launch`].
pub unsafe fn launch_suppressed(launch: &Launch, suppress: &Suppress) -> Result<Report, Fault> {
    let blocks = launch.check()?;
    let shared = Shared(launch);
    // SAFETY: passed on.
    unsafe { run(launch, blocks, Some(suppress), |linear| shared.get().block_index(linear as u64)) }
}

unsafe fn run(
    launch: &Launch,
    blocks: usize,
    suppress: Option<&Suppress>,
    index_of: impl Fn(usize) -> [u32; 3] + Sync,
) -> Result<Report, Fault> {
    let layouts = Layouts::new(launch.schedule);
    let first_fault = AtomicUsize::new(usize::MAX);
    let launch = Shared(launch);
    let index_of = &index_of;
    let one = |index: usize| {
        if index > first_fault.load(Ordering::Relaxed) {
            return Ok(Report::default());
        }
        // SAFETY: passed on.
        let result = unsafe { worker::run_block(launch.get(), index_of(index), &layouts, suppress, None) };
        result.map_err(|fault| {
            first_fault.fetch_min(index, Ordering::Relaxed);
            (index, fault)
        })
    };
    let merge = |left: Result<Report, (usize, Fault)>, right: Result<Report, (usize, Fault)>| match (left, right) {
        (Ok(mut left), Ok(right)) => {
            left += right;
            Ok(left)
        }
        (Err(left), Err(right)) => Err(if left.0 <= right.0 { left } else { right }),
        (Err(fault), Ok(_)) | (Ok(_), Err(fault)) => Err(fault),
    };
    let merged = (0..blocks).into_par_iter().map(one).reduce(|| Ok(Report::default()), merge);
    merged.map_err(|(_, fault)| fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C-unwind" fn nothing(_: *const c_void) {}

    fn launch_of(grid: [u32; 3], block: [u32; 3], dynamic_shared_bytes: usize) -> Result<Report, Fault> {
        let schedule = Schedule::InOrder;
        let params = std::ptr::null();
        // SAFETY: the kernel does nothing.
        unsafe { launch(&Launch { entry: nothing, params, grid, block, dynamic_shared_bytes, schedule }) }
    }

    #[test]
    fn limits_are_cudas() {
        assert_eq!(launch_of([2, 3, 4], [32, 2, 1], 0).unwrap().blocks, 24);
        assert_eq!(launch_of([1; 3], [1024, 1, 1], MAX_SHARED_BYTES).unwrap().switches, 1024);
        for (grid, block) in [([1, 0, 1], [32, 1, 1]), ([1; 3], [32, 64, 1]), ([1; 3], [1, 1, 65])] {
            assert!(matches!(launch_of(grid, block, 0), Err(Fault::BadLaunch { .. })), "{grid:?} {block:?}");
        }
        assert_eq!(
            launch_of([1; 3], [32, 1, 1], MAX_SHARED_BYTES + 1).unwrap_err().to_string(),
            "the launch asks for 232449 bytes of dynamic shared memory; a block can have 232448"
        );
    }

    #[test]
    fn a_sample_of_blocks_must_lie_in_the_grid() {
        let (params, schedule) = (std::ptr::null(), Schedule::Reversed);
        let launch =
            Launch { entry: nothing, params, grid: [4, 4, 1], block: [64, 1, 1], dynamic_shared_bytes: 0, schedule };
        // SAFETY: the kernel does nothing.
        let run = |blocks: &[[u32; 3]]| unsafe { launch_blocks(&launch, blocks) };
        assert_eq!(run(&[[0, 0, 0], [3, 3, 0]]).unwrap().switches, 128);
        assert_eq!(run(&[]).unwrap(), Report::default());
        assert!(matches!(run(&[[0, 0, 1]]), Err(Fault::BadLaunch { .. })));
    }

    #[test]
    fn block_indices_go_through_x_first() {
        let params = std::ptr::null();
        let (grid, block) = ([2, 3, 4], [1; 3]);
        let launch =
            Launch { entry: nothing, params, grid, block, dynamic_shared_bytes: 0, schedule: Schedule::InOrder };
        assert_eq!(launch.block_index(0), [0, 0, 0]);
        assert_eq!(launch.block_index(1), [1, 0, 0]);
        assert_eq!(launch.block_index(2 + 2 * 3), [0, 1, 1]);
        assert!((0..24).all(|linear| launch.linear_index(launch.block_index(linear)) == linear));
    }
}
