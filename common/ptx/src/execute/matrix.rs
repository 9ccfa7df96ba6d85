//! ldmatrix, stmatrix and mma.sync, with the fragment layouts of the PTX ISA.

use std::ffi::{c_char, c_void};

use emulator::guest::{Exchange, Matrix, MatrixCount, Site, Thread, WarpCall, declare_matrix};

use super::frame::Frame;
use crate::isa::half::{from_bf16, from_e4m3, from_e5m2, from_f16};
use crate::step::{MatrixCopy, Mma, Narrow};

/// A lane's part of a copy of up to four matrices of 8x8 elements of 2 bytes.
#[derive(Clone, Copy)]
struct CopyOperand {
    registers: [u32; 4],
    row: usize,
    matrices: usize,
    is_transposed: bool,
    /// The shared memory of the block: its start and declared size.
    shared: (usize, usize),
}

const ROW_BYTES: usize = 16;
const OUTSIDE: &std::ffi::CStr = c"the row address that it passes is not in shared memory";
const NOWHERE: &std::ffi::CStr = c"it accesses memory that does not exist";

/// # Safety
/// Each lane's operand is a `T` that nothing else refers to.
unsafe fn operand<'a, T>(all: *const *mut c_void, lane: usize) -> &'a mut T {
    // SAFETY: the caller's.
    unsafe { &mut *(*all.add(lane)).cast::<T>() }
}

/// Returns the rows of a copy, of 32 of which the first are used, or what is wrong with them.
///
/// # Safety
/// The operands are CopyOperands; called from an execution.
unsafe fn declared_rows(
    all: *const *mut c_void,
    is_write: bool,
    at_fault: *mut u32,
) -> Result<[usize; 32], *const c_char> {
    let mut rows = [0; 32];
    // SAFETY: the caller's.
    let first = unsafe { *operand::<CopyOperand>(all, 0) };
    let count = 8 * first.matrices;
    let (start, declared) = first.shared;
    for (lane, row) in rows.iter_mut().take(count).enumerate() {
        // SAFETY: the caller's.
        *row = unsafe { operand::<CopyOperand>(all, lane) }.row;
        if row.wrapping_sub(start) > declared.wrapping_sub(ROW_BYTES) || declared < ROW_BYTES {
            // SAFETY: the emulator passes a place for the lane.
            unsafe { *at_fault = lane as u32 };
            return Err(OUTSIDE.as_ptr());
        }
    }
    let matrix = Matrix {
        rows: &rows[..count],
        row_bytes: ROW_BYTES as u32,
        element_bytes: 2,
        is_write,
        count: MatrixCount::Ldmatrix,
        distribution: 0,
    };
    // SAFETY: this is an execution.
    let is_traced = unsafe { Thread::running() }.is_traced();
    // SAFETY: likewise.
    if is_traced && !unsafe { declare_matrix(&matrix) } {
        return Err(NOWHERE.as_ptr());
    }
    Ok(rows)
}

/// Returns the row and place in it of a lane's element.
fn place(lane: usize, element: usize, is_transposed: bool) -> (usize, usize) {
    let (across, along) = (lane / 4, 2 * (lane % 4) + element);
    if is_transposed {
        (along, across)
    } else {
        (across, along)
    }
}

unsafe extern "C" fn load(all: *const *mut c_void, _: u32, at_fault: *mut u32) -> *const c_char {
    // SAFETY: the operands of this function's calls are CopyOperands.
    let rows = match unsafe { declared_rows(all, false, at_fault) } {
        Ok(rows) => rows,
        Err(reason) => return reason,
    };
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { operand::<CopyOperand>(all, lane) };
        for matrix in 0..own.matrices {
            let mut word = 0;
            for element in 0..2 {
                let (row, column) = place(lane, element, own.is_transposed);
                let from = rows[8 * matrix + row] as *const u16;
                // SAFETY: the row was found in shared memory.
                let half = unsafe { from.add(column).read_unaligned() };
                word |= u32::from(half) << (16 * element);
            }
            own.registers[matrix] = word;
        }
    }
    std::ptr::null()
}

unsafe extern "C" fn store(all: *const *mut c_void, _: u32, at_fault: *mut u32) -> *const c_char {
    // SAFETY: the operands of this function's calls are CopyOperands.
    let rows = match unsafe { declared_rows(all, true, at_fault) } {
        Ok(rows) => rows,
        Err(reason) => return reason,
    };
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { *operand::<CopyOperand>(all, lane) };
        for matrix in 0..own.matrices {
            for element in 0..2 {
                let (row, column) = place(lane, element, own.is_transposed);
                let to = rows[8 * matrix + row] as *mut u16;
                let half = (own.registers[matrix] >> (16 * element)) as u16;
                // SAFETY: the row was found in shared memory.
                unsafe { to.add(column).write_unaligned(half) };
            }
        }
    }
    std::ptr::null()
}

#[derive(Clone, Copy)]
struct MmaOperand {
    d: [f32; 4],
    a: [u32; 4],
    b: [u32; 2],
    element: Narrow,
    depth: usize,
}

fn value(element: Narrow, bits: u32) -> f32 {
    match element {
        Narrow::F16 => from_f16(bits as u16),
        Narrow::Bf16 => from_bf16(bits as u16),
        Narrow::E4m3 => from_e4m3(bits as u8),
        Narrow::E5m2 => from_e5m2(bits as u8),
    }
}

/// Products are exact in FP32; each element of D adds them in ascending k, every sum rounded.
unsafe extern "C" fn multiply(all: *const *mut c_void, _: u32, _: *mut u32) -> *const c_char {
    let (mut a, mut b, mut d) = ([[0f32; 32]; 16], [[0f32; 8]; 32], [[0f32; 8]; 16]);
    // SAFETY: the operands of this function's calls are MmaOperands.
    let first = unsafe { *operand::<MmaOperand>(all, 0) };
    let per = match first.element {
        Narrow::F16 | Narrow::Bf16 => 2,
        Narrow::E4m3 | Narrow::E5m2 => 4,
    };
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { *operand::<MmaOperand>(all, lane) };
        let (row, start) = (lane / 4, per * (lane % 4));
        for j in 0..per {
            let shift = 32 / per * j;
            for i in 0..first.depth / (2 * per) {
                let column = start + i / 2 * (4 * per) + j;
                a[row + i % 2 * 8][column] = value(first.element, own.a[i] >> shift);
            }
            for i in 0..first.depth / (4 * per) {
                b[start + i * (4 * per) + j][row] = value(first.element, own.b[i] >> shift);
            }
        }
        for i in 0..4 {
            d[row + i / 2 * 8][2 * (lane % 4) + i % 2] = own.d[i];
        }
    }
    for (sums, left) in d.iter_mut().zip(&a) {
        for (factor, right) in left.iter().zip(&b).take(first.depth) {
            for (sum, other) in sums.iter_mut().zip(right) {
                *sum += factor * other;
            }
        }
    }
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { operand::<MmaOperand>(all, lane) };
        for i in 0..4 {
            own.d[i] = d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
        }
    }
    std::ptr::null()
}

impl Frame<'_> {
    fn copy_operand(&self, copy: &MatrixCopy, name: &str, site: Site) -> CopyOperand {
        let row = self.matrix_row(copy.address, copy.space);
        let matrices = copy.registers.len();
        // The addresses of lanes beyond the rows are ignored.
        if (self.thread.lane() as usize) < 8 * matrices {
            self.thread
                .demand_alignment(name, row as u64, ROW_BYTES as u64, site);
        }
        CopyOperand {
            registers: [0; 4],
            row,
            matrices,
            is_transposed: copy.is_transposed,
            shared: (self.thread.shared() as usize, self.thread.declared()),
        }
    }

    pub(super) fn load_matrix(&self, copy: &MatrixCopy, site: Site) {
        let mut operand = self.copy_operand(copy, "the row address of ldmatrix", site);
        let warp = WarpCall {
            name: c"ldmatrix",
            execute: load,
            kind: Exchange::MatrixCopy,
            agree: [0; 2],
            mask: u32::MAX,
            drops_exited: false,
        };
        // SAFETY: the operand is what `load` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        for (&slot, word) in copy.registers.iter().zip(operand.registers) {
            self.set(slot, word.into());
        }
    }

    pub(super) fn store_matrix(&self, copy: &MatrixCopy, site: Site) {
        let mut operand = self.copy_operand(copy, "the row address of stmatrix", site);
        for (word, &slot) in operand.registers.iter_mut().zip(&copy.registers) {
            *word = self.get_u32(slot);
        }
        let warp = WarpCall {
            name: c"stmatrix",
            execute: store,
            kind: Exchange::MatrixCopy,
            agree: [0; 2],
            mask: u32::MAX,
            drops_exited: false,
        };
        // SAFETY: the operand is what `store` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
    }

    pub(super) fn mma(&self, mma: &Mma, site: Site) {
        let mut operand = MmaOperand {
            d: mma.c.map(|slot| f32::from_bits(self.get_u32(slot))),
            a: [0; 4],
            b: [0; 2],
            element: mma.element,
            depth: mma.depth as usize,
        };
        for (word, &slot) in operand.a.iter_mut().zip(&mma.a) {
            *word = self.get_u32(slot);
        }
        for (word, &slot) in operand.b.iter_mut().zip(&mma.b) {
            *word = self.get_u32(slot);
        }
        let warp = WarpCall {
            name: c"mma.sync",
            execute: multiply,
            kind: Exchange::Mma(16 * 8 * u64::from(mma.depth)),
            agree: [0; 2],
            mask: u32::MAX,
            drops_exited: false,
        };
        // SAFETY: the operand is what `multiply` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        for (&slot, sum) in mma.d.iter().zip(operand.d) {
            self.set(slot, sum.to_bits().into());
        }
    }
}
