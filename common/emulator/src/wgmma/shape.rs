//! The operands of a product as C++ passes them, and the shape that they ask for.

use thiserror::Error;

use super::operand::{Descriptor, DescriptorError, Element, Form, ROWS};

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

    /// Returns the 16-byte chunks of the operands in shared memory.
    pub(super) fn chunks(&self) -> impl Iterator<Item = usize> {
        self.a
            .into_iter()
            .flat_map(|a| a.chunks(FORM_OF_A))
            .chain(self.b.chunks(self.form_of_b()))
    }

    pub(super) fn warp_macs(&self) -> u64 {
        (ROWS / 4 * self.columns * self.element.depth()) as u64
    }
}

fn decode(operand: char, bits: u64) -> Result<Descriptor, ShapeError> {
    Descriptor::decode(bits).map_err(|error| ShapeError::Descriptor { operand, error })
}
