use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::fault::{Fault, Place};
use crate::grid::Launch;
use crate::layout::Layouts;
use crate::worker;

pub(crate) struct Shared<'a>(pub(crate) &'a Launch);

// SAFETY: the entry is code and the params are only read; that the kernel may run its blocks
// concurrently is part of `launch`'s contract, as it is of CUDA's.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    pub(crate) fn get(&self) -> &Launch {
        self.0
    }
}

/// Runs the whole grid, blocks in parallel, without the synchronisation at `suppress`: what if the
/// author had forgotten it? Returns the fault of the first faulty block in grid order: blocks
/// behind it may be skipped, blocks before it never are, so it does not depend on timing.
///
/// # Safety
///
/// `entry` must be a kernel compiled against this crate's shim, `params` what it expects, and
/// everything that it reaches through them valid for its accesses, from several OS threads at once.
pub unsafe fn launch(launch: &Launch, suppress: Option<&Place>) -> Result<(), Fault> {
    // SAFETY: passed on.
    unsafe { launch_counted(launch, suppress) }.map(|_| ())
}

/// Runs the grid as [`launch()`] does. Returns the most choice points of a block or cluster
/// ([`crate::Delays`]).
///
/// # Safety
///
/// As [`launch()`].
pub unsafe fn launch_counted(launch: &Launch, suppress: Option<&Place>) -> Result<u32, Fault> {
    let clusters = launch.check()? / launch.cluster as usize;
    let layouts = Layouts::new(launch.schedule);
    let first_fault = AtomicUsize::new(usize::MAX);
    let choice_points = AtomicU32::new(0);
    let shared = Shared(launch);
    let faults = (0..clusters).into_par_iter().filter_map(|index| {
        if index > first_fault.load(Ordering::Relaxed) {
            return None;
        }
        let first = shared.get().cluster_index(index as u64);
        // SAFETY: passed on.
        let result = unsafe { worker::run_cluster(shared.get(), first, &layouts, suppress, None) };
        let fault = match result {
            Err(fault) => fault,
            Ok(points) => {
                choice_points.fetch_max(points, Ordering::Relaxed);
                return None;
            }
        };
        first_fault.fetch_min(index, Ordering::Relaxed);
        Some((index, fault))
    });
    match faults.min_by_key(|(index, _)| *index) {
        Some((_, fault)) => Err(fault),
        None => Ok(choice_points.into_inner()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::MAX_SHARED_BYTES;
    use crate::schedule::Schedule;
    use std::ffi::c_void;

    unsafe extern "C-unwind" fn nothing(_: *const c_void) {}

    const LAUNCH: Launch = Launch {
        entry: nothing,
        params: std::ptr::null(),
        grid: [1; 3],
        block: [1; 3],
        cluster: 1,
        dynamic_shared_bytes: 0,
        schedule: Schedule::InOrder,
        patience: Launch::PATIENCE,
    };

    fn launch_of(
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: usize,
    ) -> Result<(), Fault> {
        let case = Launch {
            grid,
            block,
            dynamic_shared_bytes,
            ..LAUNCH
        };
        // SAFETY: the kernel does nothing.
        unsafe { launch(&case, None) }
    }

    #[test]
    fn limits_are_cudas() {
        launch_of([2, 3, 4], [32, 2, 1], 0).unwrap();
        launch_of([1; 3], [1024, 1, 1], MAX_SHARED_BYTES).unwrap();
        for (grid, block) in [
            ([1, 0, 1], [32, 1, 1]),
            ([1; 3], [32, 64, 1]),
            ([1; 3], [1, 1, 65]),
        ] {
            assert!(
                matches!(launch_of(grid, block, 0), Err(Fault::BadLaunch { .. })),
                "{grid:?} {block:?}"
            );
        }
        assert_eq!(
            launch_of([1; 3], [32, 1, 1], MAX_SHARED_BYTES + 1)
                .unwrap_err()
                .to_string(),
            "the launch asks for 232449 bytes of dynamic shared memory; a block can have 232448"
        );
    }

    #[test]
    fn a_sample_of_blocks_must_lie_in_the_grid() {
        let square = Launch {
            grid: [4, 4, 1],
            ..LAUNCH
        };
        let sample = [[0, 0, 0], [3, 3, 0]];
        assert_eq!(square.check_blocks(&sample).unwrap(), sample);
        assert_eq!(square.check_blocks(&[]).unwrap(), [[0; 3]; 0]);
        let outside = square.check_blocks(&[[0, 0, 1]]);
        assert!(matches!(outside, Err(Fault::BadLaunch { .. })));
    }

    #[test]
    fn block_indices_go_through_x_first() {
        let box_shaped = Launch {
            grid: [2, 3, 4],
            ..LAUNCH
        };
        assert_eq!(box_shaped.block_index(0), [0, 0, 0]);
        assert_eq!(box_shaped.block_index(1), [1, 0, 0]);
        assert_eq!(box_shaped.block_index(2 + 2 * 3), [0, 1, 1]);
        assert!(
            (0..24).all(|linear| box_shaped.linear_index(box_shaped.block_index(linear)) == linear)
        );
    }
}
