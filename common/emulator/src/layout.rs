//! WMMA fragment layouts: which element of the matrix a lane's i-th register holds.
//!
//! CUDA leaves this open; here it is a permutation drawn from the schedule. All fragments of one
//! operand and size share it, so adding two accumulators register by register works as on a GPU.

use crate::schedule::{Random, Schedule};

/// `EmulatorLayouts` of abi.h.
#[repr(C)]
pub(crate) struct Layouts {
    element: [[[u16; 512]; 3]; 3],
    leader: u32,
}

impl Layouts {
    pub(crate) fn leader(&self) -> u32 {
        self.leader
    }

    pub(crate) fn fragment(&self, operand: usize, elements: usize) -> &[u16] {
        let size = match elements {
            128 => 0,
            256 => 1,
            _ => 2,
        };
        &self.element[operand][size][..elements]
    }

    pub(crate) fn new(schedule: Schedule) -> Box<Self> {
        let mut random = Random::new(schedule.layout_seed());
        let mut layouts = Box::new(Self {
            element: [[[0; 512]; 3]; 3],
            leader: schedule.leader(),
        });
        for operand in &mut layouts.element {
            for (size, table) in [128u16, 256, 512].into_iter().zip(operand) {
                for element in 0..size {
                    table[usize::from(element)] = element;
                }
                for last in (1..usize::from(size)).rev() {
                    let other = (random.next() % (last as u64 + 1)) as usize;
                    table.swap(last, other);
                }
            }
        }
        layouts
    }
}
