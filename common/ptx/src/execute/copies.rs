//! cp.async, mbarriers and TMA.

use emulator::guest::{BoxCopy, Site};

use super::frame::Frame;
use crate::step::{Address, CpAsync, Op, Slot, TensorCopy, Wait};

impl Frame<'_> {
    pub(super) fn copy(&self, op: &Op, site: Site) {
        let thread = self.thread;
        match op {
            Op::CpAsync(copy) => self.cp_async(copy, site),
            Op::CpAsyncCommit => thread.cp_async_commit(site),
            Op::CpAsyncWait(newest) => thread.cp_async_wait(*newest, site),
            Op::CpAsyncWaitAll => {
                thread.cp_async_commit(site);
                thread.cp_async_wait(0, site);
            }
            Op::MbarrierInit { object, arrivals } => {
                let count = self.get_u32(*arrivals) as i32;
                thread.mbarrier_init(self.shared(*object), count, site);
            }
            Op::MbarrierArrive {
                object,
                count,
                in_cluster,
            } => self.mbarrier_arrive(*object, *count, *in_cluster, site),
            Op::MbarrierArriveExpect { object, bytes } => {
                let count = self.get_u32(*bytes) as i32;
                thread.mbarrier_arrive_expect_tx(self.shared(*object), count, site);
            }
            Op::MbarrierArriveAfterCopies(object) => {
                thread.mbarrier_arrive_after_cp_async(self.shared(*object), site);
            }
            Op::MbarrierWait {
                wait,
                to,
                object,
                parity,
            } => self.mbarrier_wait(*wait, *to, (*object, *parity), site),
            Op::StoreAsync { to, value, object } => {
                self.store_async([*to, *object], value, site);
            }
            _ => self.tma(op, site),
        }
    }

    fn cp_async(&self, copy: &CpAsync, site: Site) {
        let mut read = copy.read.map_or(copy.bytes, |slot| self.get_u32(slot));
        if copy.ignored.is_some_and(|slot| self.is_set(slot)) {
            read = 0;
        }
        let from = self.address(copy.from) as usize;
        self.thread
            .cp_async(self.shared(copy.to), from, copy.bytes, read, site);
    }

    /// Arrives as often as the count says. An arrival in another block orders what came before it,
    /// whatever scope it names.
    fn mbarrier_arrive(&self, object: Address, count: Slot, in_cluster: bool, site: Site) {
        let at = if in_cluster {
            let (rank, own) = self.in_cluster(self.address(object) as u32);
            self.in_block(own, rank, site)
        } else {
            self.shared(object)
        };
        for _ in 0..self.get_u32(count) {
            self.thread.mbarrier_arrive(at, site);
        }
    }

    fn mbarrier_wait(&self, wait: Wait, to: Slot, (object, parity): (Address, Slot), site: Site) {
        let (at, phase) = (self.shared(object), self.get_u32(parity) as i32 & 1);
        let is_over = match wait {
            Wait::Test => self.thread.mbarrier_test_wait(at, phase, site),
            Wait::Try => self.thread.mbarrier_try_wait(at, phase, site),
            Wait::TryCluster => self.thread.mbarrier_try_wait_cluster(at, phase, site),
        };
        self.set(to, is_over.into());
    }

    fn store_async(&self, [to, object]: [Address; 2], value: &[Slot], site: Site) {
        let (rank, place) = self.in_cluster(self.address(to) as u32);
        let (object_rank, object_place) = self.in_cluster(self.address(object) as u32);
        if rank != object_rank {
            let message = "st.async stores to one block and counts at an mbarrier of another";
            self.thread.trap(message.to_owned(), site);
        }
        let mut bytes = [0; 16];
        for (chunk, &slot) in bytes.chunks_exact_mut(4).zip(value) {
            chunk.copy_from_slice(&self.get_u32(slot).to_ne_bytes());
        }
        self.thread
            .store_async(rank, place, &bytes, object_place, site);
    }

    fn tma(&self, op: &Op, site: Site) {
        let thread = self.thread;
        match op {
            // SAFETY: the kernel vouches for the map, or the system stops it.
            Op::PrefetchMap(map) => unsafe {
                thread.prefetch_map(self.address(*map) as *const [u64; 16], site);
            },
            Op::TmaLoad(copy) => self.tma_load(copy, site),
            // SAFETY: see PrefetchMap.
            Op::TmaStore(copy) => unsafe { thread.tma_store(&self.box_copy(copy), site) },
            Op::TmaStoreCommit => thread.tma_store_commit(site),
            Op::TmaStoreWaitRead(newest) => thread.tma_store_wait_read(*newest, site),
            Op::TmaStoreWait(newest) => thread.tma_store_wait(*newest, site),
            _ => {}
        }
    }

    /// Loads a box to this block, or to the same place of each block that it names, whose mbarrier
    /// it counts at.
    fn tma_load(&self, copy: &TensorCopy, site: Site) {
        let load = self.box_copy(copy);
        let object = copy.object.map_or(0, |object| self.shared(object));
        let Some(blocks) = copy.blocks else {
            // SAFETY: the kernel vouches for the map, or the system stops it.
            unsafe { self.thread.tma_load(&load, object, site) };
            return;
        };
        let mask = self.get_u32(blocks) & 0xffff;
        for rank in (0..16).filter(|rank| mask >> rank & 1 == 1) {
            let there = BoxCopy {
                shared: self.in_block(load.shared, rank, site),
                ..load
            };
            // SAFETY: likewise.
            unsafe {
                self.thread
                    .tma_load(&there, self.in_block(object, rank, site), site);
            }
        }
    }

    fn box_copy(&self, copy: &TensorCopy) -> BoxCopy {
        let (_, shared) = self.in_cluster(self.address(copy.shared) as u32);
        BoxCopy {
            map: self.address(copy.map) as *const [u64; 16],
            shared,
            at: copy.at.map(|slot| self.get_u32(slot) as i32),
        }
    }
}
