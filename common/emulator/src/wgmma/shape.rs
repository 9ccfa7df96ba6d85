//! The operands of a product as C++ passes them, and the shape that they ask for.

use std::ops::Range;

use thiserror::Error;

use super::operand::{CHUNK, Descriptor, DescriptorError, Element, Form, K_BYTES, ROWS};

/// `EmulatorWgmma` of emulator/wgmma.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) d: *mut f32,
    pub(crate) a: *const [u32; 4],
    pub(crate) a_descriptor: u64,
    pub(crate) b_descriptor: u64,
    pub(crate) columns: u32,
    /// `EmulatorElement`.
    pub(crate) element: u32,
    pub(crate) transposed_b: u32,
    pub(crate) accumulate: u32,
}

impl Operands {
    /// Returns whether two lanes ask for the same product.
    pub(super) fn agree_with(&self, other: &Self) -> bool {
        self.a.is_null() == other.a.is_null()
            && self.a_descriptor == other.a_descriptor
            && self.b_descriptor == other.b_descriptor
            && self.columns == other.columns
            && self.transposed_b == other.transposed_b
            && self.accumulate == other.accumulate
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ShapeError {
    #[error("{operand}: {error}")]
    Descriptor {
        operand: char,
        error: DescriptorError,
    },
    #[error("element {0} is none of `EmulatorElement`")]
    Element(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The descriptor of A; none if A is in registers.
    pub(super) a: Option<Descriptor>,
    pub(super) b: Descriptor,
    pub(super) element: Element,
    pub(super) columns: usize,
    pub(super) along_n: bool,
    pub(super) accumulate: bool,
}

const FORM_OF_A: Form = Form::AlongK { rows: ROWS };

impl Shape {
    pub(super) fn new(operands: &Operands) -> Result<Self, ShapeError> {
        let mut a = None;
        if operands.a.is_null() {
            a = Some(decode('A', operands.a_descriptor)?);
        }
        let b = decode('B', operands.b_descriptor)?;
        let element = match operands.element {
            0 => Element::F16,
            1 => Element::E4m3,
            2 => Element::Bf16,
            other => return Err(ShapeError::Element(other)),
        };
        Ok(Self {
            a,
            b,
            element,
            columns: operands.columns as usize,
            along_n: operands.transposed_b != 0,
            accumulate: operands.accumulate != 0,
        })
    }

    fn form_of_b(&self) -> Form {
        let columns = self.columns;
        if self.along_n {
            Form::AlongN { columns }
        } else {
            Form::AlongK { rows: columns }
        }
    }

    /// Refuses operands that the hardware would read otherwise, or beyond `declared` bytes.
    pub(super) fn check(&self, declared: usize) -> Result<(), ShapeError> {
        if let Some(a) = self.a {
            a.check(FORM_OF_A, declared)
                .map_err(|error| ShapeError::Descriptor {
                    operand: 'A',
                    error,
                })?;
        }
        self.b
            .check(self.form_of_b(), declared)
            .map_err(|error| ShapeError::Descriptor {
                operand: 'B',
                error,
            })
    }

    /// Returns the 16-byte chunks of B and of these rows of A, as far as they are in shared memory.
    pub(super) fn chunks(&self, rows_of_a: Range<usize>) -> impl Iterator<Item = usize> {
        const ROW: usize = K_BYTES / CHUNK;
        self.a
            .into_iter()
            .flat_map(move |a| {
                let chunks = a.chunks(FORM_OF_A);
                chunks
                    .skip(rows_of_a.start * ROW)
                    .take(rows_of_a.len() * ROW)
            })
            .chain(self.b.chunks(self.form_of_b()))
    }

    /// Returns where a part of B is, which is always in shared memory.
    pub(super) fn part_of_b(&self) -> usize {
        self.b.chunks(self.form_of_b()).next().unwrap_or_default()
    }

    pub(super) fn warp_macs(&self) -> u64 {
        (ROWS / 4 * self.columns * self.element.depth()) as u64
    }
}

fn decode(operand: char, bits: u64) -> Result<Descriptor, ShapeError> {
    Descriptor::decode(bits).map_err(|error| ShapeError::Descriptor { operand, error })
}
