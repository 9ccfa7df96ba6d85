use std::ffi::c_void;
use std::time::Duration;

use crate::cluster::{MAX_SHARED_BYTES, MAX_TOGETHER};
use crate::fault::Fault;
use crate::schedule::Schedule;

/// The largest portable cluster.
pub const MAX_CLUSTER: u32 = 8;

pub type Entry = unsafe extern "C-unwind" fn(*const c_void);

#[derive(Clone, Copy, Debug)]
pub struct Launch {
    pub entry: Entry,
    pub params: *const c_void,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: u32,
    pub dynamic_shared_bytes: usize,
    pub schedule: Schedule,
    /// Processor time that a CUDA thread may take before it waits or ends.
    pub patience: Duration,
}

impl Launch {
    /// More than any thread needs on the slowest machine: those of the stages take less than a tenth of a second.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn linear_index(&self, [x, y, z]: [u32; 3]) -> u64 {
        let [grid_x, grid_y, _] = self.grid.map(u64::from);
        u64::from(x) + grid_x * (u64::from(y) + grid_y * u64::from(z))
    }

    pub(crate) fn block_index(&self, linear: u64) -> [u32; 3] {
        let [grid_x, grid_y, _] = self.grid.map(u64::from);
        // Fits: it is below the grid's dimension.
        [
            linear % grid_x,
            linear / grid_x % grid_y,
            linear / (grid_x * grid_y),
        ]
        .map(|coordinate| coordinate as u32)
    }

    pub(crate) fn first_of_cluster(&self, [x, y, z]: [u32; 3]) -> [u32; 3] {
        [x - x % self.cluster, y, z]
    }

    pub(crate) fn check(&self) -> Result<usize, Fault> {
        let refuse = |reason: String| Err(Fault::BadLaunch { reason });
        if self.dynamic_shared_bytes > MAX_SHARED_BYTES {
            return Err(Fault::SharedTooLarge {
                requested: self.dynamic_shared_bytes,
                limit: MAX_SHARED_BYTES,
            });
        }
        for (name, dim, limit) in [
            ("grid", self.grid, [i32::MAX as u32, 65535, 65535]),
            ("block", self.block, [1024, 1024, 64]),
        ] {
            if dim
                .iter()
                .zip(limit)
                .any(|(&size, limit)| size == 0 || size > limit)
            {
                return refuse(format!("{name} {dim:?} is outside 1 to {limit:?}"));
            }
        }
        if self.cluster == 0
            || self.cluster > MAX_CLUSTER
            || !self.grid[0].is_multiple_of(self.cluster)
        {
            return refuse(format!(
                "clusters of {} blocks: 1 to {MAX_CLUSTER} are possible, and a divisor of the grid's {} in x",
                self.cluster, self.grid[0]
            ));
        }
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        if threads > 1024 {
            return refuse(format!(
                "block {:?} has {threads} threads, above 1024",
                self.block
            ));
        }
        let together = threads * u64::from(self.cluster);
        if self.cluster > 1 && (together > u64::from(MAX_TOGETHER) || !threads.is_multiple_of(128))
        {
            return refuse(format!(
                "the emulator runs clusters of whole warpgroups and up to {MAX_TOGETHER} threads, not {} blocks of {threads}",
                self.cluster
            ));
        }
        let blocks: u64 = self.grid.iter().map(|&size| u64::from(size)).product();
        usize::try_from(blocks).map_err(|_| Fault::BadLaunch {
            reason: format!("{blocks} blocks are too many"),
        })
    }

    pub(crate) fn cluster_index(&self, cluster: u64) -> [u32; 3] {
        self.block_index(cluster * u64::from(self.cluster))
    }

    /// The block and local number of a thread in the cluster that begins with block `first`.
    pub(crate) fn in_cluster(&self, [x, y, z]: [u32; 3], thread: u32) -> ([u32; 3], u32) {
        let threads = self.block.iter().product::<u32>();
        ([x + thread / threads, y, z], thread % threads)
    }

    /// The clusters of `blocks`, each by its first block, if all are in the grid.
    pub(crate) fn check_blocks(&self, blocks: &[[u32; 3]]) -> Result<Vec<[u32; 3]>, Fault> {
        let outside = |block: &&[u32; 3]| {
            block
                .iter()
                .zip(self.grid)
                .any(|(&index, size)| index >= size)
        };
        match blocks.iter().find(outside) {
            Some(block) => Err(Fault::BadLaunch {
                reason: format!("block {block:?} is not in grid {:?}", self.grid),
            }),
            None => {
                let mut clusters = Vec::new();
                for first in blocks.iter().map(|&block| self.first_of_cluster(block)) {
                    if !clusters.contains(&first) {
                        clusters.push(first);
                    }
                }
                Ok(clusters)
            }
        }
    }
}
