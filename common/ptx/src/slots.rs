//! The registers that an instruction names.

use crate::step::{Address, Op, Slot, Update, WgmmaA};

impl Op {
    /// Calls `visit` with each operand; true for one that is written.
    pub(crate) fn each_slot(&self, visit: &mut impl FnMut(Slot, bool)) {
        match self {
            Self::One(_, to, a) | Self::Exponential(_, to, a) => {
                visit(*a, false);
                visit(*to, true);
            }
            Self::Two(_, to, from) => {
                read(from, visit);
                visit(*to, true);
            }
            Self::Three(_, to, from) => {
                read(from, visit);
                visit(*to, true);
            }
            Self::Four(_, to, from) => {
                read(from, visit);
                visit(*to, true);
            }
            Self::Pack { to, parts, .. } => {
                read(parts, visit);
                visit(*to, true);
            }
            Self::Unpack { from, parts, .. } => {
                visit(*from, false);
                write(parts, visit);
            }
            Self::Compare(compare) => {
                read(&[compare.left, compare.right], visit);
                visit(compare.to, true);
            }
            Self::Load(access) => {
                of_address(&access.address, visit);
                write(&access.slots, visit);
            }
            Self::Store(access) => {
                of_address(&access.address, visit);
                read(&access.slots, visit);
            }
            Self::Atomic(atomic) => {
                of_address(&atomic.access.address, visit);
                visit(atomic.value, false);
                if let Update::CompareAndSwap { expected } = atomic.update {
                    visit(expected, false);
                }
                write(&atomic.access.slots, visit);
            }
            _ => self.each_slot_of_warp(visit),
        }
    }

    /// Visits the operands of instructions of a warp. Those that can hold neither accumulators nor
    /// registers of A (addresses of copies, masks) are left out.
    fn each_slot_of_warp(&self, visit: &mut impl FnMut(Slot, bool)) {
        match self {
            Self::Shuffle(shuffle) => {
                visit(shuffle.value, false);
                visit(shuffle.to, true);
            }
            Self::Redux { to, value, .. } => {
                visit(*value, false);
                visit(*to, true);
            }
            Self::LoadMatrix(copy) => write(&copy.registers, visit),
            Self::StoreMatrix(copy) => read(&copy.registers, visit),
            Self::Mma(mma) => {
                read(&mma.a, visit);
                read(&mma.b, visit);
                read(&mma.c, visit);
                write(&mma.d, visit);
            }
            Self::LoadFragment(copy) => write(&copy.registers, visit),
            Self::StoreFragment(copy) => read(&copy.registers, visit),
            Self::Wmma(wmma) => {
                read(&wmma.a, visit);
                read(&wmma.b, visit);
                read(&wmma.c, visit);
                write(&wmma.d, visit);
            }
            Self::StoreAsync { value, .. } => read(value, visit),
            // A product on accumulators of another one is judged when it is issued.
            Self::Wgmma(wgmma) => {
                if let WgmmaA::Registers(slots) = &wgmma.a {
                    read(slots, visit);
                }
            }
            _ => {}
        }
    }
}

fn read(slots: &[Slot], visit: &mut impl FnMut(Slot, bool)) {
    for &slot in slots {
        visit(slot, false);
    }
}

fn write(slots: &[Slot], visit: &mut impl FnMut(Slot, bool)) {
    for &slot in slots {
        visit(slot, true);
    }
}

fn of_address(address: &Address, visit: &mut impl FnMut(Slot, bool)) {
    visit(address.base, false);
}
