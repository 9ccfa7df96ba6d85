//! Loads, stores and conversions of addresses.

use emulator::guest::{AccessKind, Site};

use super::frame::Frame;
use crate::step::{Access, Address, Op, Space};

/// The bits of an address in the cluster's shared memory that count within a block. Those above are
/// the block's rank plus 1, or 0 for the thread's own.
const BLOCK_BITS: u32 = 24;

/// The most bytes that one instruction stores: 8 elements of 8.
const MAX_STORED_BYTES: usize = 64;

/// An address resolved to this program's memory.
#[derive(Clone, Copy)]
struct Resolved {
    address: usize,
    is_judged: bool,
}

impl Frame<'_> {
    /// Returns where bytes of shared memory are in this program.
    pub(super) fn shared(&self, address: Address) -> usize {
        self.shared_byte(self.address(address) as u32)
    }

    pub(super) fn shared_byte(&self, offset: u32) -> usize {
        (self.thread.shared() as usize).wrapping_add(offset as usize)
    }

    /// Splits an address of the cluster's shared memory into rank and place in this block.
    pub(super) fn in_cluster(&self, address: u32) -> (u32, usize) {
        let rank = match address >> BLOCK_BITS {
            0 => self.thread.cluster_rank(),
            above => above - 1,
        };
        (rank, self.shared_byte(address & ((1 << BLOCK_BITS) - 1)))
    }

    /// Returns where the same place of this block's shared memory is in block `rank`.
    pub(super) fn in_block(&self, own: usize, rank: u32, site: Site) -> usize {
        let Some(start) = self.thread.shared_of(rank) else {
            let size = self.thread.cluster_size();
            let message = format!("the shared memory of block {rank} of a cluster of {size}");
            self.thread.trap(message, site);
        };
        start as usize + own.wrapping_sub(self.thread.shared() as usize)
    }

    pub(super) fn matrix_row(&self, address: Address, space: Space) -> usize {
        match space {
            Space::Shared => self.shared(address),
            _ => self.address(address) as usize,
        }
    }

    fn resolve(&self, access: &Access, site: Site) -> Resolved {
        let raw = self.address(access.address);
        let (address, is_judged) = match access.space {
            Space::Shared => (self.shared_byte(raw as u32), true),
            Space::Global => (raw as usize, true),
            Space::Private => (raw as usize, false),
            Space::Generic => (raw as usize, !self.slab.is_local(raw as usize)),
            Space::Cluster => {
                let (rank, own) = self.in_cluster(raw as u32);
                if rank != self.thread.cluster_rank() {
                    let message = "a load or store in another block's shared memory is not \
                                   implemented; st.async is";
                    self.thread.trap(message.to_owned(), site);
                }
                (own, true)
            }
        };
        Resolved { address, is_judged }
    }

    /// Checks an access and tells the judge of it.
    #[inline]
    pub(super) fn accesses(
        &self,
        access: &Access,
        kind: AccessKind,
        polls: bool,
        site: Site,
    ) -> usize {
        let Resolved { address, is_judged } = self.resolve(access, site);
        let bytes = access.bytes as usize * access.slots.len();
        if is_judged && let Some(order) = access.order {
            // What would end behind the last address ends there, where no buffer is.
            let touched = address..address.saturating_add(bytes);
            self.thread.strong(touched, kind, order, polls, site);
        } else if is_judged && self.is_traced {
            self.tell(access, kind, address, site);
        }
        self.thread.touches(site);
        if !address.is_multiple_of(bytes) {
            self.thread
                .demand_alignment("the address", address as u64, bytes as u64, site);
        }
        if access.space == Space::Shared {
            let offset = address - self.thread.shared() as usize;
            if offset + bytes > self.thread.declared() {
                self.beyond_shared(offset, site);
            }
        }
        address
    }

    /// Tells the judge of a weak access.
    fn tell(&self, access: &Access, kind: AccessKind, address: usize, site: Site) {
        let element = access.bytes as usize;
        let bytes = element * access.slots.len();
        if kind == AccessKind::Read {
            self.thread.access(address, bytes, false, site);
            return;
        }
        let mut value = [0; MAX_STORED_BYTES];
        for (part, &slot) in value.chunks_mut(element).zip(&access.slots) {
            part.copy_from_slice(&self.get(slot).to_ne_bytes()[..element]);
        }
        self.thread.stores(address, &value[..bytes], site);
    }

    #[cold]
    fn beyond_shared(&self, offset: usize, site: Site) -> ! {
        let access = format!(
            "byte {offset} of shared memory, of which the launch declared {}",
            self.thread.declared()
        );
        self.thread.out_of_bounds(access, site)
    }

    pub(super) fn load(&self, access: &Access, site: Site) {
        let start = self.accesses(access, AccessKind::Read, true, site);
        for (index, &slot) in access.slots.iter().enumerate() {
            let at = start + index * access.bytes as usize;
            // SAFETY: the kernel vouches for the address, or the judge or the system stops it.
            let value = unsafe { read(at, access.bytes, access.is_signed) };
            self.set(slot, value);
        }
    }

    pub(super) fn store(&self, access: &Access, site: Site) {
        let start = self.accesses(access, AccessKind::Write, false, site);
        for (index, &slot) in access.slots.iter().enumerate() {
            let at = start + index * access.bytes as usize;
            // SAFETY: see load.
            unsafe { write(at, access.bytes, self.get(slot)) };
        }
    }

    pub(super) fn convert(&self, op: &Op, site: Site) {
        let start = self.thread.shared() as u64;
        match *op {
            Op::ToShared { to, from } => {
                let offset = self.get(from).wrapping_sub(start);
                self.set(to, offset & u64::from(u32::MAX));
            }
            Op::FromShared { to, from } => {
                self.set(to, start + (self.get(from) & u64::from(u32::MAX)));
            }
            Op::IsShared { to, from } => {
                let offset = self.get(from).wrapping_sub(start);
                self.set(to, (offset < self.thread.declared() as u64).into());
            }
            Op::MapToRank { to, from, rank } => {
                let number = self.get_u32(rank);
                if self.thread.shared_of(number).is_none() {
                    let size = self.thread.cluster_size();
                    let message = format!("mapa to block {number} of a cluster of {size}");
                    self.thread.trap(message, site);
                }
                let own = self.get(from) & ((1 << BLOCK_BITS) - 1);
                self.set(to, u64::from(number + 1) << BLOCK_BITS | own);
            }
            _ => {}
        }
    }
}

/// # Safety
/// `address` is readable memory, on a boundary of `bytes`.
#[inline]
unsafe fn read(address: usize, bytes: u32, is_signed: bool) -> u64 {
    // SAFETY: the caller's.
    unsafe {
        match (bytes, is_signed) {
            (1, false) => (address as *const u8).read_volatile().into(),
            (1, true) => (address as *const i8).read_volatile() as i64 as u64,
            (2, false) => (address as *const u16).read_volatile().into(),
            (2, true) => (address as *const i16).read_volatile() as i64 as u64,
            (4, false) => (address as *const u32).read_volatile().into(),
            (4, true) => (address as *const i32).read_volatile() as i64 as u64,
            _ => (address as *const u64).read_volatile(),
        }
    }
}

/// # Safety
/// `address` is writable memory, on a boundary of `bytes`.
#[inline]
unsafe fn write(address: usize, bytes: u32, value: u64) {
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            1 => (address as *mut u8).write_volatile(value as u8),
            2 => (address as *mut u16).write_volatile(value as u16),
            4 => (address as *mut u32).write_volatile(value as u32),
            _ => (address as *mut u64).write_volatile(value),
        }
    }
}
