//! wgmma: the registers of accumulators and of A that products in flight hold.
//!
//! The emulator wants accumulators in one array. The registers of a list are copied to the list's
//! bank when the first product on them is issued, and back at the wait that covers the last.

use emulator::guest::{Product, Site};

use super::frame::Frame;
use super::slab::{Header, MOST};
use crate::step::{Op, Slot, Wgmma, WgmmaA};

/// The mark of a register that a product holds as one of A; the rest is the product's number.
const IS_FRAGMENT: u64 = 1 << 63;

pub(super) struct Flight<'a> {
    frame: &'a Frame<'a>,
}

impl<'a> Flight<'a> {
    pub(super) fn new(frame: &'a Frame<'a>) -> Self {
        Self { frame }
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "the slab is memory of this thread alone"
    )]
    fn header(&self) -> &mut Header {
        // SAFETY: an entry with products has a header in its slab, zeroed at the start; no other
        // reference to it lives while this one does.
        unsafe { &mut *self.frame.slab.header }
    }

    fn last_of(&self, bank: usize) -> u64 {
        // SAFETY: the slab has a word for each bank.
        unsafe { *self.frame.slab.bank_last.add(bank) }
    }

    fn set_last(&self, bank: usize, product: u64) {
        // SAFETY: see last_of.
        unsafe { *self.frame.slab.bank_last.add(bank) = product };
    }

    fn holder(&self, slot: Slot) -> u64 {
        let Ok(register) = usize::try_from(slot) else {
            return 0; // constants are held by nobody
        };
        // SAFETY: the slab has a word for each register.
        unsafe { *self.frame.slab.held.add(register) }
    }

    fn hold(&self, slot: Slot, holder: u64) {
        if slot >= 0 {
            // SAFETY: see holder.
            unsafe { *self.frame.slab.held.add(slot as usize) = holder };
        }
    }

    /// Returns the place in flight of a register that a product holds.
    fn place(&self, slot: Slot, is_write: bool) -> Option<usize> {
        let holder = self.holder(slot);
        if holder == 0 {
            return None;
        }
        if holder & IS_FRAGMENT != 0 {
            let product = holder & !IS_FRAGMENT;
            let is_held = is_write && product > self.header().complete;
            let fragment = &self.header().fragments[product as usize % MOST];
            return is_held.then_some(fragment.as_ptr() as usize);
        }
        let bank = holder as usize - 1;
        if self.last_of(bank) == 0 {
            return None;
        }
        let list = &self.frame.program.banks[bank];
        let index = list.registers.iter().position(|&it| it == slot)?;
        let word = list.offset as usize + index;
        Some(self.frame.slab.banks.wrapping_add(word) as usize)
    }

    /// Stops the thread if the instruction touches what a product in flight holds.
    #[inline(never)]
    pub(super) fn check(&self, op: &Op, site: Site) {
        let header = self.header();
        if header.issued == header.complete {
            return;
        }
        op.each_slot(&mut |slot, is_write| {
            let Some(address) = self.place(slot, is_write) else {
                return;
            };
            let thread = self.frame.thread;
            thread.holds(address, 4, is_write, site);
            let verb = if is_write { "writes" } else { "reads" };
            let message = format!(
                "the instruction {verb} a register that a wgmma in flight holds; wait for its \
                 group first"
            );
            thread.trap(message, site);
        });
    }

    pub(super) fn issue(&self, wgmma: &Wgmma, site: Site) {
        let frame = self.frame;
        let bank = &frame.program.banks[wgmma.bank];
        let accumulators = frame.slab.banks.wrapping_add(bank.offset as usize);
        if self.last_of(wgmma.bank) == 0 {
            self.take(wgmma.bank, accumulators, site);
        }
        let header = self.header();
        let number = header.issued + 1;
        if number - header.complete >= MOST as u64 {
            frame
                .thread
                .trap(format!("more than {MOST} products in flight"), site);
        }
        let (mut descriptor, mut fragment) = (0, std::ptr::null());
        match &wgmma.a {
            WgmmaA::Descriptor(slot) => descriptor = frame.get(*slot),
            WgmmaA::Registers(slots) => {
                let copy = &mut header.fragments[number as usize % MOST];
                for (word, &slot) in copy.iter_mut().zip(slots) {
                    *word = frame.get_u32(slot);
                    self.hold(slot, IS_FRAGMENT | number);
                }
                fragment = &raw const *copy;
            }
        }
        let product = Product {
            accumulators,
            fragment,
            a_descriptor: descriptor,
            b_descriptor: frame.get(wgmma.b),
            columns: wgmma.columns,
            element: wgmma.element,
            is_transposed_b: wgmma.is_transposed_b,
            accumulates: frame.is_set(wgmma.scale),
        };
        header.issued = number;
        self.set_last(wgmma.bank, number);
        // SAFETY: both arrays are in the thread's slab, which lives longer than the block.
        unsafe { frame.thread.wgmma(&product, site) };
    }

    /// Copies accumulators to their bank, which holds the registers from now on.
    fn take(&self, bank: usize, to: *mut f32, site: Site) {
        let frame = self.frame;
        for (index, &slot) in frame.program.banks[bank].registers.iter().enumerate() {
            if self.place(slot, true).is_some() {
                let message = "its accumulators overlap those of a product in flight: a product \
                               adds to exactly the same ones, or waits";
                frame.thread.trap(message.to_owned(), site);
            }
            // SAFETY: the bank has a word for each register of its list.
            unsafe { to.add(index).write(f32::from_bits(frame.get_u32(slot))) };
            self.hold(slot, bank as u64 + 1);
        }
    }

    pub(super) fn commit(&self, site: Site) {
        let thread = self.frame.thread;
        if !thread.suppresses(site) {
            let header = self.header();
            if header.groups - header.first_group >= MOST as u64 {
                thread.trap(format!("more than {MOST} groups in flight"), site);
            }
            header.ends[header.groups as usize % MOST] = header.issued;
            header.groups += 1;
        }
        thread.wgmma_commit(site);
    }

    pub(super) fn wait(&self, newest: u32, site: Site) {
        let frame = self.frame;
        let bytes = 4 * frame.program.bank_words as usize;
        let is_suppressed = frame.thread.suppresses(site);
        frame
            .thread
            .wgmma_wait(newest, frame.slab.banks as usize, bytes, site);
        if is_suppressed || frame.program.banks.is_empty() {
            return;
        }
        let header = self.header();
        while header.groups - header.first_group > newest.into() {
            header.complete = header.ends[header.first_group as usize % MOST];
            header.first_group += 1;
        }
        let complete = header.complete;
        for (number, bank) in frame.program.banks.iter().enumerate() {
            let last = self.last_of(number);
            if last == 0 || last > complete {
                continue;
            }
            self.set_last(number, 0);
            for (index, &slot) in bank.registers.iter().enumerate() {
                let from = frame.slab.banks.wrapping_add(bank.offset as usize + index);
                // SAFETY: the bank has a word for each register of its list.
                let value = unsafe { from.read() };
                frame.set(slot, value.to_bits().into());
            }
        }
    }
}
