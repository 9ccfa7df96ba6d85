//! Comparisons, moves of several words, constants of a thread, and the end of patience.

use emulator::guest::{Site, Thread};

use super::frame::Frame;
use crate::step::{Combine, Compare, Constant, Slot, Special};

/// The jumps backwards that a thread may make before it waits for another one.
const MOST_JUMPS: u64 = 1 << 28;

/// The steps that are left before a loop is taken for endless.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    jumps: u64,
    switches: u64,
}

impl Patience {
    pub(super) fn new(thread: Thread<'_>) -> Self {
        Self {
            jumps: 0,
            switches: thread.switches(),
        }
    }

    #[inline]
    pub(super) fn spend(&mut self, thread: Thread<'_>, site: Site) {
        self.jumps += 1;
        if self.jumps >= MOST_JUMPS {
            self.end(thread, site);
        }
    }

    #[cold]
    fn end(&mut self, thread: Thread<'_>, site: Site) {
        let switches = thread.switches();
        if self.switches == switches {
            let message = format!(
                "a loop without end, or too much work for one thread: after {MOST_JUMPS} jumps \
                 backwards it has not waited for any other"
            );
            thread.trap(message, site);
        }
        *self = Self { jumps: 0, switches };
    }
}

impl Frame<'_> {
    pub(super) fn compare(&self, compare: &Compare) {
        let holds = (compare.relation)(self.get(compare.left), self.get(compare.right));
        let combine = |value: bool| match compare.combined {
            None => value,
            Some(combined) => {
                let other = self.is_set(combined.predicate) != combined.is_negated;
                match combined.combine {
                    Combine::And => value && other,
                    Combine::Or => value || other,
                    Combine::Xor => value != other,
                }
            }
        };
        let (result, opposite) = (combine(holds), combine(!holds));
        self.set(compare.to, result.into());
        if let Some(slot) = compare.opposite {
            self.set(slot, opposite.into());
        }
    }

    pub(super) fn pack(&self, to: Slot, parts: &[Slot], bits: u32) {
        let mut word = 0;
        for (place, &part) in parts.iter().enumerate() {
            word |= (self.get(part) & low_mask(bits)) << (place as u32 * bits);
        }
        self.set(to, word);
    }

    pub(super) fn unpack(&self, from: Slot, parts: &[Slot], bits: u32) {
        let word = self.get(from);
        for (place, &part) in parts.iter().enumerate() {
            self.set(part, word >> (place as u32 * bits) & low_mask(bits));
        }
    }

    pub(super) fn value_of(&self, constant: Constant) -> u64 {
        match constant {
            Constant::Bits(bits) => bits,
            Constant::Special(special) => self.special(special),
            Constant::Parameter(offset) => self.invocation.parameters as u64 + u64::from(offset),
            Constant::Local(offset) => self.slab.local as u64 + u64::from(offset),
            Constant::DynamicShared => self.program.static_shared_bytes.into(),
            Constant::Global(offset) => self.invocation.globals.as_ptr() as u64 + u64::from(offset),
        }
    }

    fn special(&self, special: Special) -> u64 {
        let thread = self.thread;
        let at = |extent: [u32; 3], dimension: u8| extent[usize::from(dimension)];
        let (lane, size) = (thread.lane(), thread.cluster_size());
        let first =
            |dimension: u8, value: u32, other: u32| if dimension == 0 { value } else { other };
        let dynamic = self.invocation.dynamic_shared_bytes;
        let value = match special {
            Special::Thread(dimension) => at(thread.thread_idx(), dimension),
            Special::BlockSize(dimension) => at(thread.block_dim(), dimension),
            Special::Block(dimension) => at(thread.block_idx(), dimension),
            Special::Grid(dimension) => at(thread.grid_dim(), dimension),
            Special::Lane => lane,
            Special::Warp => self.thread_in_block() / 32,
            Special::ClusterRank => thread.cluster_rank(),
            Special::ClusterSize => size,
            Special::BlockInCluster(dimension) => first(dimension, thread.cluster_rank(), 0),
            Special::ClusterExtent(dimension) => first(dimension, size, 1),
            Special::Cluster(dimension) => {
                let block = at(thread.block_idx(), dimension);
                block / first(dimension, size, 1)
            }
            Special::Clusters(dimension) => {
                at(thread.grid_dim(), dimension) / first(dimension, size, 1)
            }
            Special::LanesBelow => (1 << lane) - 1,
            Special::LanesUpTo => u32::MAX >> (31 - lane),
            Special::LanesAbove => !(u32::MAX >> (31 - lane)),
            Special::LanesFrom => !((1 << lane) - 1),
            Special::LaneBit => 1 << lane,
            Special::DynamicSharedBytes => dynamic,
            Special::TotalSharedBytes => dynamic + self.program.static_shared_bytes,
        };
        value.into()
    }

    pub(super) fn thread_in_block(&self) -> u32 {
        let [x, y, z] = self.thread.thread_idx();
        let [width, height, _] = self.thread.block_dim();
        x + width * (y + height * z)
    }

    /// A barrier that names all threads of the block by number 0 is the block's own.
    pub(super) fn named_barrier(&self, [id, threads]: [Slot; 2], waits: bool, site: Site) {
        let (number, count) = (self.get_u32(id), self.get_u32(threads));
        let all: u32 = self.thread.block_dim().iter().product();
        if number == 0 && waits && count == all {
            return self.thread.barrier(site);
        }
        if number > 15 || count == 0 || !count.is_multiple_of(32) {
            let message = format!(
                "barrier {number} of {count} threads: a block has barriers 0 to 15, and whole \
                 warps take part"
            );
            self.thread.trap(message, site);
        }
        self.thread.named_barrier(number, count, waits, site);
    }
}

fn low_mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}
