//! Read-modify-writes. Blocks run on several threads of the system, so they are atomic there, too.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use emulator::guest::{AccessKind, Site};

use super::frame::Frame;
use crate::step::{Atomic, Update};

impl Frame<'_> {
    pub(super) fn atomic(&self, atomic: &Atomic, site: Site) {
        let access = &atomic.access;
        // Who compares again and again waits for another thread.
        let polls = matches!(atomic.update, Update::CompareAndSwap { .. });
        let address = self.accesses(access, AccessKind::Update, polls, site);
        let change = |old| self.changed(atomic, old);
        // SAFETY: the kernel vouches for the address, or the judge or the system stops it; it is on
        // a boundary of its bytes.
        let updated = unsafe { update(address, access.bytes, change) };
        if polls && updated.is_ok() {
            self.thread.progresses();
        }
        let (Ok(old) | Err(old)) = updated;
        self.set(access.slots[0], old);
    }

    /// Returns what a word becomes; `None` if it stays.
    fn changed(&self, atomic: &Atomic, old: u64) -> Option<u64> {
        let value = self.get(atomic.value);
        match atomic.update {
            Update::Exchange => Some(value),
            Update::CompareAndSwap { expected } => {
                let unused = 64 - 8 * atomic.access.bytes;
                (self.get(expected) << unused == old << unused).then_some(value)
            }
            Update::Increment => {
                let next = (old as u32).wrapping_add(1);
                Some(if old as u32 >= value as u32 {
                    0
                } else {
                    next.into()
                })
            }
            Update::Decrement => {
                let is_out = old as u32 == 0 || old as u32 > value as u32;
                let next = (old as u32).wrapping_sub(1);
                Some(if is_out { value } else { next.into() })
            }
            Update::Apply(apply) => Some(apply(old, value)),
        }
    }
}

/// Changes a word, and returns what it was; an error if it stays so.
///
/// # Safety
/// `address` is readable and writable memory, on a boundary of `bytes`.
unsafe fn update(
    address: usize,
    bytes: u32,
    change: impl Fn(u64) -> Option<u64>,
) -> Result<u64, u64> {
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            2 => AtomicU16::from_ptr(address as *mut u16)
                .fetch_update(SeqCst, SeqCst, |old| Some(change(old.into())? as u16))
                .map(u64::from)
                .map_err(u64::from),
            4 => AtomicU32::from_ptr(address as *mut u32)
                .fetch_update(SeqCst, SeqCst, |old| Some(change(old.into())? as u32))
                .map(u64::from)
                .map_err(u64::from),
            _ => AtomicU64::from_ptr(address as *mut u64).fetch_update(SeqCst, SeqCst, change),
        }
    }
}
