use std::fmt;
use std::ops::AddAssign;

/// Requests to global memory. A *request* is one access by one warp: its lanes' accesses at one
/// place of the program, each for the same time since the warp last met (`__syncwarp`,
/// `__syncthreads`, or a shuffle, vote or matrix operation of all lanes). Includes what cp.async
/// reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalTraffic {
    pub requests: u64,
    pub bytes: u64,
    /// The 32-byte sectors touched, each once per request.
    pub sectors: u64,
}

/// Requests to shared memory, which has 32 banks of 4 bytes. A request is served in passes: all
/// lanes at once up to 4 bytes each, 16 lanes at 8 bytes, 8 lanes at 16 bytes, and 8 rows of 16
/// bytes of a matrix. A pass takes one wavefront for each different 4-byte word that it wants from
/// its busiest bank; lanes that want the same word share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedTraffic {
    pub requests: u64,
    /// The bytes that the lanes asked for, shared ones counted per lane.
    pub bytes: u64,
    pub wavefronts: u64,
    /// One wavefront per pass with a lane in it: 1, 2 and 4 for a warp's access of up to 4, 8 and
    /// 16 bytes a lane, and 4 for `ldmatrix.x4`.
    pub ideal_wavefronts: u64,
}

impl SharedTraffic {
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.ideal_wavefronts
    }
}

// A counter that a stored record lacks is of something that no kernel did when it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub global_read: GlobalTraffic,
    pub global_write: GlobalTraffic,
    /// A WMMA load of a half fragment counts as ldmatrix (16x16: one `.x4`, 8x16: `.x2`, 16x32: two
    /// `.x4`), of an f32 accumulator as four accesses of 8 bytes a lane.
    pub shared_read: SharedTraffic,
    /// `store_matrix_sync` of an f32 accumulator counts as four accesses of 8 bytes a lane.
    pub shared_write: SharedTraffic,
    /// Writes by cp.async and TMA, zero fill included.
    pub shared_async_write: SharedTraffic,
    /// The bytes that cp.async reads from global memory; also in `global_read`.
    pub async_copy_bytes: u64,
    /// The bytes that TMA reads from global memory; also in `global_read`, where a box is one
    /// request.
    pub tma_read_bytes: u64,
    pub tma_write_bytes: u64,
    pub cluster_store_bytes: u64,
    pub tensor_ops: u64,
    pub tensor_macs: u64,
    /// Shuffles, each of a warp or of the part that a mask names.
    pub shuffles: u64,
    /// Votes, likewise.
    pub votes: u64,
    /// `__syncwarp`, likewise.
    pub warp_barriers: u64,
    pub barriers: u64,
    pub named_barriers: u64,
    /// Arrivals of threads, those by cp.async included.
    pub mbarrier_arrivals: u64,
    /// Satisfied waits and successful tests of threads.
    pub mbarrier_waits: u64,
    /// `exp2f` and `expf` of threads.
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
fields!(Counters: global_read global_write shared_read shared_write shared_async_write
    async_copy_bytes tma_read_bytes tma_write_bytes cluster_store_bytes tensor_ops tensor_macs
    shuffles votes warp_barriers barriers named_barriers mbarrier_arrivals mbarrier_waits exps);

impl fmt::Display for GlobalTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requests,
            bytes,
            sectors,
        } = self;
        write!(f, "{bytes} bytes, {sectors} sectors, {requests} requests")
    }
}

impl fmt::Display for SharedTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes, {} wavefronts, {} conflicts, {} requests",
            self.bytes,
            self.wavefronts,
            self.conflicts(),
            self.requests
        )
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "global read: {}", self.global_read)?;
        writeln!(f, "global written: {}", self.global_write)?;
        writeln!(f, "shared read: {}", self.shared_read)?;
        writeln!(f, "shared written: {}", self.shared_write)?;
        writeln!(f, "shared written by cp.async: {}", self.shared_async_write)?;
        self.fmt_copies(f)?;
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
        self.fmt_barriers(f)?;
        write!(f, "exponentials: {}", self.exps)
    }
}

impl Counters {
    fn fmt_copies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cp.async: {} bytes", self.async_copy_bytes)?;
        let (read, written) = (self.tma_read_bytes, self.tma_write_bytes);
        if read + written > 0 {
            writeln!(f, "TMA: {read} bytes read, {written} written")?;
        }
        let stored = self.cluster_store_bytes;
        if stored > 0 {
            writeln!(f, "stored in the cluster: {stored} bytes")?;
        }
        Ok(())
    }

    /// Prints the counts of barriers that most kernels do not have.
    fn fmt_barriers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (arrivals, waits) = (self.mbarrier_arrivals, self.mbarrier_waits);
        if self.named_barriers + arrivals + waits == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "named barriers: {}, mbarriers: {arrivals} arrivals, {waits} waits",
            self.named_barriers
        )
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub traced_blocks: u64,
    pub launch_blocks: u64,
    /// The blocks that are counted together; more than 1 in a launch of clusters.
    pub cluster: u64,
    pub sum: Counters,
    /// The counts of each traced block (or cluster), if they are the same for all. Only then do
    /// they stand for untraced blocks, and only where the problem makes those alike too: no mask,
    /// no ragged tile.
    pub per_cluster: Option<Counters>,
    /// The highest byte touched, plus one.
    pub shared_bytes_touched: u64,
}

impl Counted {
    /// Returns the counts of the whole launch: counted if all blocks were traced, else inferred
    /// from traced blocks that are alike.
    pub fn launch(&self) -> Option<Counters> {
        if self.traced_blocks == self.launch_blocks {
            return Some(self.sum);
        }
        let clusters = self.launch_blocks / self.cluster.max(1);
        self.per_cluster.map(|counters| counters.times(clusters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_alike_speak_for_the_launch() {
        let counters = Counters {
            exps: 3,
            global_read: GlobalTraffic {
                sectors: 5,
                ..Default::default()
            },
            ..Default::default()
        };
        let mut sum = counters;
        sum += counters;
        let counted = Counted {
            traced_blocks: 2,
            launch_blocks: 128,
            cluster: 1,
            sum,
            per_cluster: Some(counters),
            shared_bytes_touched: 0,
        };
        let inferred = counted.launch().unwrap();
        assert_eq!((inferred.exps, inferred.global_read.sectors), (384, 640));
        assert_eq!(
            Counted {
                per_cluster: None,
                ..counted
            }
            .launch(),
            None
        );
        assert_eq!(
            Counted {
                per_cluster: None,
                launch_blocks: 2,
                ..counted
            }
            .launch(),
            Some(sum)
        );
    }
}
