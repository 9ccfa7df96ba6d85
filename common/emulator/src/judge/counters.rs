//! What a traced launch counts. Each figure is defined where it stands; `GLOSSARY.md` explains them together.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Traffic with global memory. A *request* is one access by one warp: the accesses that its lanes make at the same place
/// of the program, each for the same time since the warp last met (`__syncwarp`, `__syncthreads`, a shuffle, vote or
/// matrix operation of all its lanes). cp.async is in here with what it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalTraffic {
    /// Requests.
    pub requests: u64,
    /// Bytes that the lanes asked for; what two lanes ask for counts twice.
    pub bytes: u64,
    /// 32-byte sectors, on 32-byte boundaries, that the requests touch; each counts once per request.
    pub sectors: u64,
}

/// Traffic with shared memory, in requests as in [`GlobalTraffic`]. It has 32 banks of 4 bytes.
///
/// A request is served in passes: all lanes at once up to 4 bytes each, 16 lanes at 8 bytes, 8 lanes at 16 bytes, and 8
/// rows of 16 bytes for a matrix. A pass takes one wavefront for each different 4-byte word that it wants from its
/// busiest bank; lanes that want the same word share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedTraffic {
    /// Requests.
    pub requests: u64,
    /// Bytes that the lanes asked for; what two lanes ask for counts twice.
    pub bytes: u64,
    /// Cycles of the banks.
    pub wavefronts: u64,
    /// One per pass with a lane in it: what the same requests would take without conflicts. 1, 2 and 4 for a warp's
    /// access of up to 4, 8 and 16 bytes a lane, and 4 for `ldmatrix.x4`.
    pub ideal_wavefronts: u64,
}

impl SharedTraffic {
    /// Bank conflicts: wavefronts beyond the ideal ones.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.ideal_wavefronts
    }
}

/// What the threads of some blocks did.
// A counter that a stored record lacks is of something that no kernel did yet when it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Reads of global memory, cp.async's and TMA's included.
    pub global_read: GlobalTraffic,
    /// Writes of global memory.
    pub global_write: GlobalTraffic,
    /// Reads of shared memory. A WMMA load of a half fragment counts as ldmatrix (16x16: one `.x4`, 8x16: `.x2`, 16x32:
    /// two `.x4`), of an f32 accumulator as four accesses of 8 bytes a lane.
    pub shared_read: SharedTraffic,
    /// Writes of shared memory; `store_matrix_sync` of an f32 accumulator counts as four accesses of 8 bytes a lane.
    pub shared_write: SharedTraffic,
    /// Writes of shared memory by cp.async and TMA, zero fill included.
    pub shared_async_write: SharedTraffic,
    /// Bytes that cp.async reads from global memory; also in `global_read`.
    pub async_copy_bytes: u64,
    /// Bytes that TMA reads from global memory; also in `global_read`, where a box is one request.
    pub tma_read_bytes: u64,
    /// Bytes that TMA writes to global memory; also in `global_write`.
    pub tma_write_bytes: u64,
    /// Bytes stored to the shared memory of blocks of the cluster, by store_async.
    pub cluster_store_bytes: u64,
    /// Matrix multiply-accumulate instructions, per warp.
    pub tensor_ops: u64,
    /// Multiply-adds in them.
    pub tensor_macs: u64,
    /// Shuffles, per warp (or part of one that a mask names).
    pub shuffles: u64,
    /// Votes, likewise.
    pub votes: u64,
    /// `__syncwarp`, likewise.
    pub warp_barriers: u64,
    /// `__syncthreads`, per block.
    pub barriers: u64,
    /// Named barriers, per warp that arrives, waiting or not.
    pub named_barriers: u64,
    /// Arrivals at mbarriers, per thread; those that cp.async makes included.
    pub mbarrier_arrivals: u64,
    /// Waits for mbarriers that were satisfied, and tests that said yes, per thread.
    pub mbarrier_waits: u64,
    /// Exponentials (`exp2f`, `expf`, `__expf`), per thread.
    pub exps: u64,
}

trait Times {
    fn times(self, factor: u64) -> Self;
}

impl Times for u64 {
    fn times(self, factor: u64) -> Self {
        self * factor
    }
}

macro_rules! fields {
    ($type:ident: $($field:ident)*) => {
        impl AddAssign for $type {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl Times for $type {
            fn times(self, factor: u64) -> Self {
                Self { $($field: self.$field.times(factor),)* }
            }
        }
    };
}

fields!(GlobalTraffic: requests bytes sectors);
fields!(SharedTraffic: requests bytes wavefronts ideal_wavefronts);
fields!(Counters: global_read global_write shared_read shared_write shared_async_write async_copy_bytes tma_read_bytes
    tma_write_bytes cluster_store_bytes tensor_ops
    tensor_macs shuffles votes warp_barriers barriers named_barriers mbarrier_arrivals mbarrier_waits exps);

impl fmt::Display for Counters {
    /// One line each, for snapshots that a reviewer reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, it) in [("read", &self.global_read), ("written", &self.global_write)] {
            let GlobalTraffic {
                requests,
                bytes,
                sectors,
            } = it;
            writeln!(
                f,
                "global {name}: {bytes} bytes, {sectors} sectors, {requests} requests"
            )?;
        }
        for (name, it) in [
            ("read", &self.shared_read),
            ("written", &self.shared_write),
            ("written by cp.async", &self.shared_async_write),
        ] {
            let SharedTraffic {
                requests,
                bytes,
                wavefronts,
                ..
            } = it;
            let conflicts = it.conflicts();
            writeln!(
                f,
                "shared {name}: {bytes} bytes, {wavefronts} wavefronts, {conflicts} conflicts, {requests} requests"
            )?;
        }
        writeln!(f, "cp.async: {} bytes", self.async_copy_bytes)?;
        let (read, written) = (self.tma_read_bytes, self.tma_write_bytes);
        if read + written > 0 {
            writeln!(f, "TMA: {read} bytes read, {written} written")?;
        }
        if self.cluster_store_bytes > 0 {
            writeln!(
                f,
                "stored in the cluster: {} bytes",
                self.cluster_store_bytes
            )?;
        }
        writeln!(
            f,
            "tensor cores: {} operations, {} multiply-adds",
            self.tensor_ops, self.tensor_macs
        )?;
        writeln!(f, "shuffles: {}, votes: {}", self.shuffles, self.votes)?;
        writeln!(
            f,
            "__syncthreads: {}, __syncwarp: {}",
            self.barriers, self.warp_barriers
        )?;
        let Self {
            named_barriers,
            mbarrier_arrivals,
            mbarrier_waits,
            ..
        } = self;
        if named_barriers + mbarrier_arrivals + mbarrier_waits > 0 {
            // Most kernels have none.
            writeln!(
                f,
                "named barriers: {named_barriers}, mbarriers: {mbarrier_arrivals} arrivals, {mbarrier_waits} waits"
            )?;
        }
        write!(f, "exponentials: {}", self.exps)
    }
}

/// Counters, and of what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Blocks traced.
    pub traced_blocks: u64,
    /// Blocks of the launch.
    pub launch_blocks: u64,
    /// Blocks that run together and are counted together; more than 1 in a launch of clusters.
    pub cluster: u64,
    /// Summed over the traced blocks.
    pub sum: Counters,
    /// What each of the traced blocks (or clusters) counted, if that is the same for all. Only then do they stand for blocks that
    /// were not traced, and only where the problem makes those alike too: no mask, no ragged tile.
    pub each: Option<Counters>,
    /// Highest byte of shared memory that any of them touched, plus one.
    pub shared_bytes_touched: u64,
}

impl Counted {
    /// Counters of the whole launch: counted if all blocks were traced, else inferred from traced blocks that are alike.
    pub fn launch(&self) -> Option<Counters> {
        if self.traced_blocks == self.launch_blocks {
            return Some(self.sum);
        }
        self.each
            .map(|each| each.times(self.launch_blocks / self.cluster.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_alike_speak_for_the_launch() {
        let each = Counters {
            exps: 3,
            global_read: GlobalTraffic {
                sectors: 5,
                ..Default::default()
            },
            ..Default::default()
        };
        let mut sum = each;
        sum += each;
        let counted = Counted {
            traced_blocks: 2,
            launch_blocks: 128,
            cluster: 1,
            sum,
            each: Some(each),
            shared_bytes_touched: 0,
        };
        let launch = counted.launch().unwrap();
        assert_eq!((launch.exps, launch.global_read.sectors), (384, 640));
        assert_eq!(
            Counted {
                each: None,
                ..counted
            }
            .launch(),
            None
        );
        assert_eq!(
            Counted {
                each: None,
                launch_blocks: 2,
                ..counted
            }
            .launch(),
            Some(sum)
        );
    }
}
