//! Accumulators in flight: the chain of products that add to them, and what becomes of their
//! registers in between.

use std::ops::Range;

use crate::site::Site;

use super::misuse::Misuse;
use super::operand::{ROWS, WARPS};

/// Content of accumulators in flight: a signalling NaN, which no operation leaves as it is.
const POISON: u32 = 0x7fa5_5a5a;

pub(crate) const NAMED: usize = 4;

/// The registers that a lane names in a wait: `EmulatorRegisters` of emulator/wgmma.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) address: [usize; NAMED],
    pub(crate) bytes: [usize; NAMED],
}

impl Named {
    fn holds(&self, range: &Range<usize>) -> bool {
        for (&address, &bytes) in self.address.iter().zip(&self.bytes) {
            if address <= range.start && range.end <= address + bytes {
                return true;
            }
        }
        false
    }
}

/// Products on the same accumulators, and the values of these while they are in flight.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) number: u64,
    columns: usize,
    pub(super) values: Vec<f32>,
    pub(super) warps: [Holding; WARPS as usize],
}

/// The state of a warp's accumulators in a chain.
#[derive(Debug)]
pub(super) enum Holding {
    NotYet,
    Held {
        /// The array of each lane.
        lanes: Box<[*mut f32; 32]>,
        /// The number of products up to the last one on them.
        last: u64,
        issued: Site,
    },
    Released,
}

impl Chain {
    pub(super) fn new(number: u64, columns: usize) -> Self {
        Self {
            number,
            columns,
            values: vec![0.0; ROWS * columns],
            warps: [const { Holding::NotYet }; WARPS as usize],
        }
    }

    pub(super) fn is_released(&self) -> bool {
        self.warps
            .iter()
            .all(|holding| matches!(holding, Holding::Released))
    }

    pub(super) fn bytes_of(&self, array: *mut f32) -> Range<usize> {
        array_bytes(array, self.columns)
    }

    /// Moves the accumulators of a warp out of its registers, which become poison.
    ///
    /// # Safety
    ///
    /// Each lane's array has N / 2 accumulators.
    pub(super) unsafe fn take(&mut self, member: usize, arrays: &[*mut f32; 32]) {
        for (lane, &array) in arrays.iter().enumerate() {
            let mut index = 0;
            for_each_element(member, lane, self.columns, |at| {
                // SAFETY: the lane's array of N / 2 accumulators, as the caller vouches.
                let register = unsafe { &mut *array.add(index) };
                self.values[at] = *register;
                *register = f32::from_bits(POISON);
                index += 1;
            });
        }
    }

    /// Returns the accumulators to a warp if all its products are `covered` by a wait that names
    /// them.
    ///
    /// # Safety
    ///
    /// Each lane's array lives if the lane names it.
    pub(super) unsafe fn give_back(
        &mut self,
        member: usize,
        covered: u64,
        named: &[Named; 32],
    ) -> Result<(), Misuse> {
        let Holding::Held { lanes, last, .. } = &self.warps[member] else {
            return Ok(());
        };
        if *last > covered {
            return Ok(());
        }
        for (&array, registers) in lanes.iter().zip(named) {
            if !registers.holds(&self.bytes_of(array)) {
                return Ok(());
            }
        }
        for (lane, array) in lanes.iter().enumerate() {
            let mut index = 0;
            let mut touched = None;
            for_each_element(member, lane, self.columns, |at| {
                // SAFETY: the lane's array of N / 2 accumulators, which it has named just now.
                let register = unsafe { &mut *array.add(index) };
                if register.to_bits() != POISON {
                    touched.get_or_insert(index);
                }
                *register = self.values[at];
                index += 1;
            });
            if let Some(accumulator) = touched {
                let reason = format!(
                    "accumulator {accumulator} of the thread was written while products on it were \
                     in flight: nobody reads or writes it from the first wgmma to the wgmma_wait \
                     that covers the last and names it"
                );
                return Err(Misuse::of_lane(lane, reason));
            }
        }
        self.warps[member] = Holding::Released;
        Ok(())
    }
}

/// Returns the number of the chain to which a warp's arrays belong; none if they are in no flight.
pub(super) fn held_chain(
    chains: &[Chain],
    member: usize,
    arrays: &[*mut f32; 32],
    columns: usize,
) -> Result<Option<u64>, Misuse> {
    for chain in chains {
        let Holding::Held { lanes, .. } = &chain.warps[member] else {
            continue;
        };
        if **lanes == *arrays && chain.columns == columns {
            return Ok(Some(chain.number));
        }
        for (lane, (&held, &array)) in lanes.iter().zip(arrays).enumerate() {
            if overlap(&chain.bytes_of(held), &array_bytes(array, columns)) {
                let reason = format!(
                    "its accumulators overlap those of a product in flight, of {} columns: a \
                     product adds to exactly the same ones, or waits",
                    chain.columns
                );
                return Err(Misuse::of_lane(lane, reason));
            }
        }
    }
    Ok(None)
}

fn array_bytes(array: *mut f32, columns: usize) -> Range<usize> {
    array as usize..array as usize + 2 * columns
}

pub(super) fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

/// Calls `take` with the index in D of each of a lane's accumulators, in order.
fn for_each_element(member: usize, lane: usize, columns: usize, mut take: impl FnMut(usize)) {
    let first = (16 * member + lane / 4) * columns + 2 * (lane % 4);
    for eighth in (0..columns).step_by(8) {
        for row in [0, 8 * columns] {
            take(first + row + eighth);
            take(first + row + eighth + 1);
        }
    }
}
