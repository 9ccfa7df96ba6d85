//! The calls within a kernel that lead to an operation, from the frames on its thread's stack.

use std::ops::Range;
use std::sync::LazyLock;

use crate::source;

unsafe extern "C" {
    safe fn emulator_kernels_start() -> *const u8;
    safe fn emulator_kernels_end() -> *const u8;
}

/// The code of this program.
struct Code {
    start: usize,
    kernels: Range<usize>,
}

static CODE: LazyLock<Code> = LazyLock::new(|| Code {
    start: source::image().start,
    kernels: kernels(),
});

fn kernels() -> Range<usize> {
    emulator_kernels_start() as usize..emulator_kernels_end() as usize
}

/// Returns whether an instruction is a kernel's. Takes no lock: signal handlers ask.
pub(crate) fn is_of_kernels(code: usize) -> bool {
    kernels().contains(&code)
}

/// `EmulatorFrame` of abi.h, as x86-64 and AArch64 lay it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    caller: *const Frame,
    returns_to: usize,
}

/// Addresses to which calls return, the innermost first, up to the entry of the kernel. Of deeper
/// calls the outermost are missing. A kernel that is not among the compiled ones, of a test, is one
/// call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Calls {
    /// In the program's image; 0 behind the last.
    offsets: [u32; Self::MOST],
}

impl Calls {
    /// All of them are compared at each access.
    const MOST: usize = 12;

    /// Returns the calls that lead to the caller of the owner of `frame`.
    ///
    /// # Safety
    /// `frame` is the frame of a running function, and functions of kernels that have called it keep
    /// their frame pointers.
    #[inline]
    pub(crate) unsafe fn of(frame: *const Frame) -> Self {
        // SAFETY: passed on.
        unsafe { Self::within(&CODE, frame) }
    }

    /// # Safety
    /// As [`Calls::of`].
    #[inline]
    unsafe fn within(code: &Code, mut frame: *const Frame) -> Self {
        let mut calls = Self::default();
        for (depth, offset) in calls.offsets.iter_mut().enumerate() {
            // SAFETY: a frame of the caller's promise: the first one, or that of a kernel's function.
            let Frame { caller, returns_to } = unsafe { *frame };
            let is_of_kernels = code.kernels.contains(&returns_to);
            if is_of_kernels || depth == 0 {
                *offset = returns_to.wrapping_sub(code.start) as u32;
            }
            if !is_of_kernels {
                break;
            }
            frame = caller;
        }
        calls
    }

    /// Returns a call that nothing is known to have called.
    pub(crate) fn one(returns_to: usize) -> Self {
        let mut calls = Self::default();
        calls.offsets[0] = returns_to.wrapping_sub(CODE.start) as u32;
        calls
    }

    pub(crate) fn addresses(&self) -> Vec<usize> {
        let called = self.offsets.iter().take_while(|&&offset| offset != 0);
        called.map(|&offset| CODE.start + offset as usize).collect()
    }

    /// Returns a number by which few calls are equal.
    #[inline]
    pub(crate) fn spread(&self) -> usize {
        let mut spread = 0_u64;
        for &offset in self.offsets.iter().take_while(|&&offset| offset != 0) {
            spread =
                (spread.rotate_left(5) ^ u64::from(offset)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        (spread >> 40) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, Code, Frame};
    use std::ptr;

    const CODE: Code = Code {
        start: 0x1000,
        kernels: 0x2000..0x3000,
    };

    /// Frames on a stack, of which the first is the hook's. The owner of the last was called from
    /// outside of kernels, and its caller's frame pointer is none.
    fn offsets(returns: &[usize]) -> Vec<u32> {
        let outside = 0x1500;
        let mut frames = vec![
            Frame {
                caller: ptr::dangling(),
                returns_to: outside,
            };
            returns.len() + 1
        ];
        for (index, &returns_to) in returns.iter().enumerate() {
            let caller: *const Frame = &raw const frames[index + 1];
            frames[index] = Frame { caller, returns_to };
        }
        // SAFETY: each frame but the last leads to another one.
        let calls = unsafe { Calls::within(&CODE, &raw const frames[0]) };
        calls
            .offsets
            .into_iter()
            .filter(|&offset| offset != 0)
            .collect()
    }

    #[test]
    fn an_entrys_own_access_is_one_call() {
        assert_eq!(offsets(&[0x2010]), [0x1010]);
    }

    #[test]
    fn calls_are_innermost_first_up_to_the_entry() {
        assert_eq!(offsets(&[0x2010, 0x2fff, 0x2000]), [0x1010, 0x1fff, 0x1000]);
    }

    #[test]
    fn an_access_outside_of_kernels_is_one_call() {
        assert_eq!(offsets(&[]), [0x500]);
        assert_eq!(offsets(&[0x3000, 0x2000]), [0x2000]);
    }

    #[test]
    fn of_deeper_calls_the_outermost_are_missing() {
        let deep: Vec<usize> = (0..20).map(|call| 0x2100 + call).collect();
        let kept: Vec<u32> = (0..Calls::MOST as u32).map(|call| 0x1100 + call).collect();
        assert_eq!(offsets(&deep), kept);
    }
}
