//! wmma: which element a lane's register holds is left open by PTX, and changes with the schedule.

use std::ffi::{c_char, c_void};

use emulator::guest::{Exchange, Matrix, MatrixCount, Site, Thread, WarpCall, declare_matrix};

use super::frame::Frame;
use crate::isa::half::from_f16;
use crate::step::{Fragment, FragmentCopy, Part, Wmma};

impl Fragment {
    fn elements(self) -> usize {
        (self.rows * self.columns) as usize
    }

    fn operand(self) -> usize {
        match self.part {
            Part::A => 0,
            Part::B => 1,
            Part::Accumulator => 2,
        }
    }

    fn element_bytes(self) -> usize {
        if self.is_half { 2 } else { 4 }
    }

    /// Returns the elements that a lane has: 16 halves, of which a small fragment's repeat, or 8
    /// floats.
    fn places(self, thread: &Thread<'_>, lane: usize) -> impl Iterator<Item = usize> {
        let count = self.elements();
        let share = if self.is_half { 16 } else { 8 };
        let layout = thread.fragment_layout(self.operand(), count);
        (0..share).map(move |index| usize::from(layout[(lane * share + index) % count]))
    }
}

#[derive(Clone, Copy)]
struct CopyOperand {
    registers: [u32; 8],
    fragment: Fragment,
    start: usize,
    stride: usize,
    is_row_major: bool,
    is_write: bool,
}

impl CopyOperand {
    /// Returns the address of an element.
    fn at(&self, element: usize) -> usize {
        let columns = self.fragment.columns as usize;
        let (row, column) = (element / columns, element % columns);
        let index = if self.is_row_major {
            row * self.stride + column
        } else {
            column * self.stride + row
        };
        self.start + index * self.fragment.element_bytes()
    }

    /// Declares the matrix to the judge.
    ///
    /// # Safety
    /// Called from an execution.
    unsafe fn declare(&self) -> bool {
        let Fragment { rows, columns, .. } = self.fragment;
        let bytes = self.fragment.element_bytes();
        let (count, width) = if self.is_row_major {
            (rows as usize, columns)
        } else {
            (columns as usize, rows)
        };
        let mut starts = [0; 32];
        for (row, start) in starts.iter_mut().take(count).enumerate() {
            *start = self.start + row * self.stride * bytes;
        }
        let mut matrix = Matrix {
            rows: &starts[..count],
            row_bytes: width * bytes as u32,
            element_bytes: bytes as u32,
            is_write: self.is_write,
            count: MatrixCount::Ldmatrix,
            distribution: 0,
        };
        if self.fragment.part == Part::Accumulator {
            // 8x32x16 is computed as its transpose.
            let in_one_row = self.is_row_major == (rows != 8) || bytes == 2;
            matrix.count = if in_one_row {
                MatrixCount::Accumulator
            } else {
                MatrixCount::Transposed
            };
            matrix.distribution = self.distribution(count);
        }
        // SAFETY: the caller's.
        unsafe { declare_matrix(&matrix) }
    }

    /// Returns a number that accesses share which give each lane the same elements.
    fn distribution(&self, count: usize) -> u64 {
        let place = (self.start as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let form = (self.stride as u64) << 20 | (count as u64) << 1 | u64::from(self.is_row_major);
        (place ^ form.wrapping_mul(0xd6e8_feb8_6659_fd93)) | 1
    }
}

const NOWHERE: &std::ffi::CStr = c"it accesses memory that does not exist";

/// # Safety
/// As [`super::matrix`]'s.
unsafe fn operand<'a, T>(all: *const *mut c_void, lane: usize) -> &'a mut T {
    // SAFETY: the caller's.
    unsafe { &mut *(*all.add(lane)).cast::<T>() }
}

unsafe extern "C" fn copy(all: *const *mut c_void, _: u32, _: *mut u32) -> *const c_char {
    // SAFETY: this is an execution, and the operands of its calls are CopyOperands.
    let (thread, first) = unsafe { (Thread::running(), *operand::<CopyOperand>(all, 0)) };
    // SAFETY: likewise.
    if thread.is_traced() && !unsafe { first.declare() } {
        return NOWHERE.as_ptr();
    }
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { operand::<CopyOperand>(all, lane) };
        for (index, element) in own.fragment.places(&thread, lane).enumerate() {
            let at = own.at(element);
            // SAFETY: the kernel vouches for the matrix, or the judge or the system stops it.
            unsafe {
                if own.is_write {
                    (at as *mut u32).write_volatile(own.registers[index]);
                } else if own.fragment.is_half {
                    let half = u32::from((at as *const u16).read_volatile());
                    let (register, shift) = (index / 2, index % 2 * 16);
                    own.registers[register] &= !(0xffff << shift);
                    own.registers[register] |= half << shift;
                } else {
                    own.registers[index] = (at as *const u32).read_volatile();
                }
            }
        }
    }
    std::ptr::null()
}

#[derive(Clone, Copy)]
struct MultiplyOperand {
    d: [u32; 8],
    a: [u32; 8],
    b: [u32; 8],
    shape: [u32; 3],
}

/// The fragments of a product.
fn fragments([rows, columns, depth]: [u32; 3]) -> [Fragment; 3] {
    let fragment = |part, of_rows, of_columns, is_half| Fragment {
        part,
        rows: of_rows,
        columns: of_columns,
        is_half,
    };
    [
        fragment(Part::A, rows, depth, true),
        fragment(Part::B, depth, columns, true),
        fragment(Part::Accumulator, rows, columns, false),
    ]
}

/// Products are exact in FP32; each element of D adds them in ascending k, every sum rounded.
unsafe extern "C" fn multiply(all: *const *mut c_void, _: u32, _: *mut u32) -> *const c_char {
    // SAFETY: this is an execution, and the operands of its calls are MultiplyOperands.
    let (thread, first) = unsafe { (Thread::running(), *operand::<MultiplyOperand>(all, 0)) };
    let [of_a, of_b, of_d] = fragments(first.shape);
    let (mut a, mut b, mut d) = ([0f32; 512], [0f32; 512], [0f32; 256]);
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { *operand::<MultiplyOperand>(all, lane) };
        let half = |words: &[u32; 8], index: usize| {
            from_f16((words[index / 2] >> (index % 2 * 16)) as u16)
        };
        for (index, element) in of_a.places(&thread, lane).enumerate() {
            a[element] = half(&own.a, index);
        }
        for (index, element) in of_b.places(&thread, lane).enumerate() {
            b[element] = half(&own.b, index);
        }
        for (index, element) in of_d.places(&thread, lane).enumerate() {
            d[element] = f32::from_bits(own.d[index]);
        }
    }
    let [_, columns, depth] = first.shape.map(|size| size as usize);
    let sums = &mut d[..of_d.elements()];
    for (row, row_sums) in sums.chunks_exact_mut(columns).enumerate() {
        for k in 0..depth {
            let left = a[row * depth + k];
            for (sum, right) in row_sums.iter_mut().zip(&b[k * columns..]) {
                *sum += left * right;
            }
        }
    }
    for lane in 0..32 {
        // SAFETY: likewise.
        let own = unsafe { operand::<MultiplyOperand>(all, lane) };
        for (index, element) in of_d.places(&thread, lane).enumerate() {
            own.d[index] = d[element].to_bits();
        }
    }
    std::ptr::null()
}

impl Frame<'_> {
    fn words(&self, slots: &[i32]) -> [u32; 8] {
        let mut words = [0; 8];
        for (word, &slot) in words.iter_mut().zip(slots) {
            *word = self.get_u32(slot);
        }
        words
    }

    fn copy_fragment(&self, call: &FragmentCopy, is_write: bool, site: Site) -> [u32; 8] {
        let start = self.matrix_row(call.address, call.space);
        let stride = self.get_u32(call.stride) as usize;
        let bytes = stride as u64 * call.fragment.element_bytes() as u64;
        self.thread
            .demand_alignment("the pointer of wmma", start as u64, 32, site);
        self.thread
            .demand_alignment("the stride in bytes of wmma", bytes, 16, site);
        let mut operand = CopyOperand {
            registers: self.words(&call.registers),
            fragment: call.fragment,
            start,
            stride,
            is_row_major: call.is_row_major,
            is_write,
        };
        let warp = WarpCall {
            name: if is_write {
                c"wmma.store"
            } else {
                c"wmma.load"
            },
            execute: copy,
            kind: Exchange::MatrixCopy,
            agree: [
                start as u64,
                (stride as u64) << 1 | u64::from(call.is_row_major),
            ],
            mask: u32::MAX,
            drops_exited: false,
        };
        // SAFETY: the operand is what `copy` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        operand.registers
    }

    pub(super) fn load_fragment(&self, call: &FragmentCopy, site: Site) {
        let words = self.copy_fragment(call, false, site);
        for (&slot, word) in call.registers.iter().zip(words) {
            self.set(slot, word.into());
        }
    }

    pub(super) fn store_fragment(&self, call: &FragmentCopy, site: Site) {
        self.copy_fragment(call, true, site);
    }

    pub(super) fn wmma(&self, call: &Wmma, site: Site) {
        let mut operand = MultiplyOperand {
            d: self.words(&call.c),
            a: self.words(&call.a),
            b: self.words(&call.b),
            shape: call.shape,
        };
        let macs = call.shape.iter().map(|&size| u64::from(size)).product();
        let warp = WarpCall {
            name: c"wmma.mma",
            execute: multiply,
            kind: Exchange::Mma(macs),
            agree: [0; 2],
            mask: u32::MAX,
            drops_exited: false,
        };
        // SAFETY: the operand is what `multiply` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        for (&slot, word) in call.d.iter().zip(operand.d) {
            self.set(slot, word.into());
        }
    }
}
