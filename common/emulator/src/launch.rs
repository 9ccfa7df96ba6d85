use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::fault::Fault;
use crate::grid::{Launch, Report, Suppress};
use crate::layout::Layouts;
use crate::worker;

pub(crate) struct Shared<'a>(pub(crate) &'a Launch);

// SAFETY: the entry is code and the params are only read; that the kernel may run its blocks concurrently is part of
// `launch`'s contract, as it is of CUDA's.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    pub(crate) fn get(&self) -> &Launch {
        self.0
    }
}

/// Runs the whole grid, blocks in parallel. Returns the fault of the first faulty block in grid order: blocks behind it may
/// be skipped, blocks before it never are, so it does not depend on timing.
///
/// # Safety
///
/// `entry` must be a kernel compiled against this crate's shim, `params` what it expects, and everything that it reaches
/// through them valid for its accesses, from several OS threads at once.
pub unsafe fn launch(launch: &Launch) -> Result<Report, Fault> {
    let blocks = launch.check()?;
    let shared = Shared(launch);
    // SAFETY: passed on.
    unsafe {
        run(launch, blocks / launch.cluster as usize, None, |index| {
            shared.get().cluster_index(index as u64)
        })
    }
}

/// As [`launch`], with one synchronisation site suppressed: would anybody notice if the author had forgotten it?
///
/// # Safety
///
/// As [`launch`].
pub unsafe fn launch_suppressed(launch: &Launch, suppress: &Suppress) -> Result<Report, Fault> {
    let blocks = launch.check()?;
    let shared = Shared(launch);
    // SAFETY: passed on.
    unsafe {
        run(
            launch,
            blocks / launch.cluster as usize,
            Some(suppress),
            |index| shared.get().cluster_index(index as u64),
        )
    }
}

unsafe fn run(
    launch: &Launch,
    clusters: usize,
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
        let result =
            unsafe { worker::run_cluster(launch.get(), index_of(index), &layouts, suppress, None) };
        result.map_err(|fault| {
            first_fault.fetch_min(index, Ordering::Relaxed);
            (index, fault)
        })
    };
    let merge = |left: Result<Report, (usize, Fault)>, right: Result<Report, (usize, Fault)>| match (
        left, right,
    ) {
        (Ok(mut left), Ok(right)) => {
            left += right;
            Ok(left)
        }
        (Err(left), Err(right)) => Err(if left.0 <= right.0 { left } else { right }),
        (Err(fault), Ok(_)) | (Ok(_), Err(fault)) => Err(fault),
    };
    let merged = (0..clusters)
        .into_par_iter()
        .map(one)
        .reduce(|| Ok(Report::default()), merge);
    merged.map_err(|(_, fault)| fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::MAX_SHARED_BYTES;
    use crate::schedule::Schedule;
    use std::ffi::c_void;

    unsafe extern "C-unwind" fn nothing(_: *const c_void) {}

    fn launch_of(
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared_bytes: usize,
    ) -> Result<Report, Fault> {
        let schedule = Schedule::InOrder;
        let params = std::ptr::null();
        // SAFETY: the kernel does nothing.
        unsafe {
            launch(&Launch {
                entry: nothing,
                params,
                grid,
                block,
                cluster: 1,
                dynamic_shared_bytes,
                schedule,
                patience: Launch::PATIENCE,
            })
        }
    }

    #[test]
    fn limits_are_cudas() {
        assert_eq!(launch_of([2, 3, 4], [32, 2, 1], 0).unwrap().blocks, 24);
        assert_eq!(
            launch_of([1; 3], [1024, 1, 1], MAX_SHARED_BYTES)
                .unwrap()
                .switches,
            1024
        );
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
        let (params, schedule) = (std::ptr::null(), Schedule::Reversed);
        let launch = Launch {
            entry: nothing,
            params,
            grid: [4, 4, 1],
            block: [64, 1, 1],
            cluster: 1,
            dynamic_shared_bytes: 0,
            schedule,
            patience: Launch::PATIENCE,
        };
        let sample = [[0, 0, 0], [3, 3, 0]];
        assert_eq!(launch.check_blocks(&sample).unwrap(), sample);
        assert_eq!(launch.check_blocks(&[]).unwrap(), [[0; 3]; 0]);
        let outside = launch.check_blocks(&[[0, 0, 1]]);
        assert!(matches!(outside, Err(Fault::BadLaunch { .. })));
    }

    #[test]
    fn block_indices_go_through_x_first() {
        let params = std::ptr::null();
        let (grid, block) = ([2, 3, 4], [1; 3]);
        let launch = Launch {
            entry: nothing,
            params,
            grid,
            block,
            cluster: 1,
            dynamic_shared_bytes: 0,
            schedule: Schedule::InOrder,
            patience: Launch::PATIENCE,
        };
        assert_eq!(launch.block_index(0), [0, 0, 0]);
        assert_eq!(launch.block_index(1), [1, 0, 0]);
        assert_eq!(launch.block_index(2 + 2 * 3), [0, 1, 1]);
        assert!((0..24).all(|linear| launch.linear_index(launch.block_index(linear)) == linear));
    }
}
