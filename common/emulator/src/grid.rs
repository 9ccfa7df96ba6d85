use std::ffi::c_void;
use std::time::Duration;

use crate::cluster::{MAX_SHARED_BYTES, MAX_TOGETHER};
use crate::extent::{BlockIndex, Extent};
use crate::fault::Fault;
use crate::schedule::Schedule;

/// The largest portable cluster.
pub const MAX_CLUSTER: u32 = 8;

pub type Entry = unsafe extern "C-unwind" fn(*const c_void);

#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub entry: Entry,
    pub params: *const c_void,
    pub grid: Extent,
    pub block: Extent,
    pub cluster: u32,
    pub dynamic_shared_bytes: usize,
    pub schedule: Schedule,
    /// The processor time that a CUDA thread may take before it waits or ends.
    pub patience: Duration,
}

impl Launch {
    /// A time that no thread needs on the slowest machine: those of the stages take less than a
    /// tenth of a second.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn linear_index(&self, [x, y, z]: BlockIndex) -> u64 {
        let [grid_x, grid_y, _] = self.grid.map(u64::from);
        let row = u64::from(y) + grid_y * u64::from(z);
        u64::from(x) + grid_x * row
    }

    pub(crate) fn block_index(&self, linear: u64) -> BlockIndex {
        let [grid_x, grid_y, _] = self.grid.map(u64::from);
        // Fits: it is below the grid's dimension.
        [
            linear % grid_x,
            linear / grid_x % grid_y,
            linear / (grid_x * grid_y),
        ]
        .map(|coordinate| coordinate as u32)
    }

    pub(crate) fn first_of_cluster(&self, [x, y, z]: BlockIndex) -> BlockIndex {
        [x - x % self.cluster, y, z]
    }

    /// Returns the number of blocks of a launch that is possible.
    pub(crate) fn check(&self) -> Result<usize, Fault> {
        if self.dynamic_shared_bytes > MAX_SHARED_BYTES {
            return Err(Fault::SharedTooLarge {
                requested: self.dynamic_shared_bytes,
                limit: MAX_SHARED_BYTES,
            });
        }
        check_extent("grid", self.grid, [i32::MAX as u32, 65535, 65535])?;
        check_extent("block", self.block, [1024, 1024, 64])?;
        self.check_cluster()?;
        let threads = volume(self.block);
        if threads > 1024 {
            let reason = format!("block {:?} has {threads} threads, above 1024", self.block);
            return Err(Fault::BadLaunch { reason });
        }
        let together = threads * u64::from(self.cluster);
        let is_too_large = together > u64::from(MAX_TOGETHER);
        if self.cluster > 1 && (is_too_large || !threads.is_multiple_of(128)) {
            let reason = format!(
                "the emulator runs clusters of whole warpgroups and up to {MAX_TOGETHER} threads, \
                 not {} blocks of {threads}",
                self.cluster
            );
            return Err(Fault::BadLaunch { reason });
        }
        let blocks = volume(self.grid);
        usize::try_from(blocks).map_err(|_| Fault::BadLaunch {
            reason: format!("{blocks} blocks are too many"),
        })
    }

    fn check_cluster(&self) -> Result<(), Fault> {
        let is_possible = (1..=MAX_CLUSTER).contains(&self.cluster);
        if is_possible && self.grid[0].is_multiple_of(self.cluster) {
            return Ok(());
        }
        let reason = format!(
            "clusters of {} blocks: 1 to {MAX_CLUSTER} are possible, and a divisor of the grid's \
             {} in x",
            self.cluster, self.grid[0]
        );
        Err(Fault::BadLaunch { reason })
    }

    /// Returns the first block of each cluster of a grid of `blocks` blocks.
    pub(crate) fn clusters(&self, blocks: u64) -> Vec<BlockIndex> {
        (0..blocks / u64::from(self.cluster))
            .map(|number| self.cluster_index(number))
            .collect()
    }

    pub(crate) fn cluster_index(&self, cluster: u64) -> BlockIndex {
        self.block_index(cluster * u64::from(self.cluster))
    }

    /// Returns the block and local number of a thread in the cluster that begins with block `[x, y,
    /// z]`.
    pub(crate) fn in_cluster(&self, [x, y, z]: BlockIndex, thread: u32) -> (BlockIndex, u32) {
        let threads = self.block.iter().product::<u32>();
        ([x + thread / threads, y, z], thread % threads)
    }

    /// Returns the clusters of `blocks`, each by its first block, if all are in the grid.
    pub(crate) fn check_blocks(&self, blocks: &[BlockIndex]) -> Result<Vec<BlockIndex>, Fault> {
        let mut clusters = Vec::new();
        for &block in blocks {
            if block
                .iter()
                .zip(self.grid)
                .any(|(&index, size)| index >= size)
            {
                return Err(Fault::BadLaunch {
                    reason: format!("block {block:?} is not in grid {:?}", self.grid),
                });
            }
            let first = self.first_of_cluster(block);
            if !clusters.contains(&first) {
                clusters.push(first);
            }
        }
        Ok(clusters)
    }
}

fn check_extent(name: &str, extent: Extent, limit: Extent) -> Result<(), Fault> {
    for (size, largest) in extent.into_iter().zip(limit) {
        if size == 0 || size > largest {
            return Err(Fault::BadLaunch {
                reason: format!("{name} {extent:?} is outside 1 to {limit:?}"),
            });
        }
    }
    Ok(())
}

pub(crate) fn volume(extent: Extent) -> u64 {
    let sizes = extent.iter().map(|&size| u64::from(size));
    sizes.fold(1, u64::saturating_mul)
}
