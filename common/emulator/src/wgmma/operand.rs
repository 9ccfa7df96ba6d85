//! Matrices in shared memory as a descriptor names them (PTX ISA, "Matrix descriptor", "Canonical
//! layouts").
//!
//! A pattern is 8 rows of `span` bytes. Its bytes lie where the XOR of the swizzle puts their
//! address, after all offsets have been added.

use thiserror::Error;

/// The number of warps in a warpgroup.
pub(super) const WARPS: u32 = 4;

/// The number of rows of a product.
pub(super) const ROWS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    E4m3,
}

impl Element {
    pub(super) fn depth(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 => 32,
        }
    }
}

pub(crate) const CHUNK: usize = 16;

/// The bytes of each row that an instruction reads along K.
pub(super) const K_BYTES: usize = 32;
/// The rows of a transposed B that it reads.
const TRANSPOSED_ROWS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    start: usize,
    leading: usize,
    stride: usize,
    span: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    AlongK {
        rows: usize,
    },
    /// 16 rows that lie along N.
    AlongN {
        columns: usize,
    },
}

/// A reason why the hardware does not read what a descriptor seems to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum DescriptorError {
    #[error("its descriptor asks for swizzle mode {0}: 1 (128 bytes) or 2 (64 bytes)")]
    SwizzleMode(u64),
    #[error("its descriptor has a base offset: tiles start on a boundary of 8 rows")]
    BaseOffset,
    #[error("`{name}` of its descriptor is 0: the bytes between 8 rows and the next")]
    ZeroPitch { name: &'static str },
    #[error(
        "`{name}` of its descriptor is {bytes} bytes, not a multiple of {}: the swizzle's pattern \
         is 8 rows of {span} bytes",
        8 * .span
    )]
    Pitch {
        name: &'static str,
        bytes: usize,
        span: usize,
    },
    #[error(
        "its descriptor starts at byte {start} of shared memory, {within} bytes behind a boundary \
         of {}: a tile starts on one (8 rows of {span} bytes), and a step along K is {K_BYTES} \
         bytes within the first row",
        8 * .span
    )]
    StartAlongK {
        start: usize,
        within: usize,
        span: usize,
    },
    #[error(
        "its descriptor starts at byte {start} of shared memory, {within} bytes behind a boundary \
         of {}: a tile starts on one (8 rows of {span} bytes), and so does each step along K, of \
         {TRANSPOSED_ROWS} rows",
        8 * .span
    )]
    StartAlongN {
        start: usize,
        within: usize,
        span: usize,
    },
    #[error(
        "its descriptor reaches up to byte {end} of shared memory, of which the launch declared \
         {declared}"
    )]
    Undeclared { end: usize, declared: usize },
}

impl Descriptor {
    pub(crate) fn decode(bits: u64) -> Result<Self, DescriptorError> {
        let field = |low: u32| (bits >> low & 0x3fff) as usize * CHUNK;
        let span = match bits >> 62 {
            1 => 128,
            2 => 64,
            mode => return Err(DescriptorError::SwizzleMode(mode)),
        };
        if bits >> 49 & 7 != 0 {
            return Err(DescriptorError::BaseOffset);
        }
        Ok(Self {
            start: field(0),
            leading: field(16),
            stride: field(32),
            span,
        })
    }

    /// Refuses a descriptor whose pattern the hardware would not read as it was written, or that
    /// reaches beyond `declared` bytes.
    pub(crate) fn check(self, form: Form, declared: usize) -> Result<(), DescriptorError> {
        let Self { start, span, .. } = self;
        let within = start % (8 * span);
        match form {
            Form::AlongK { rows } => {
                if within + K_BYTES > span || !within.is_multiple_of(K_BYTES) {
                    return Err(DescriptorError::StartAlongK {
                        start,
                        within,
                        span,
                    });
                }
                if rows > 8 {
                    self.check_pitch("stride", self.stride)?;
                }
            }
            Form::AlongN { columns } => {
                if within != 0 {
                    return Err(DescriptorError::StartAlongN {
                        start,
                        within,
                        span,
                    });
                }
                self.check_pitch("stride", self.stride)?;
                if 2 * columns > span {
                    self.check_pitch("leading", self.leading)?;
                }
            }
        }
        match self.chunks(form).map(|at| at + CHUNK).max() {
            Some(end) if end > declared => Err(DescriptorError::Undeclared { end, declared }),
            _ => Ok(()),
        }
    }

    fn check_pitch(self, name: &'static str, bytes: usize) -> Result<(), DescriptorError> {
        let span = self.span;
        if bytes == 0 {
            return Err(DescriptorError::ZeroPitch { name });
        }
        if !bytes.is_multiple_of(8 * span) {
            return Err(DescriptorError::Pitch { name, bytes, span });
        }
        Ok(())
    }

    fn swizzled(self, at: usize) -> usize {
        at ^ (at >> 7 & (self.span / CHUNK - 1)) << 4
    }

    pub(crate) fn chunks(self, form: Form) -> impl Iterator<Item = usize> {
        let Self {
            start,
            leading,
            stride,
            span,
        } = self;
        let (rows, row_bytes, wrap) = match form {
            Form::AlongK { rows } => (rows, K_BYTES, K_BYTES),
            Form::AlongN { columns } => (TRANSPOSED_ROWS, 2 * columns, span),
        };
        (0..rows).flat_map(move |row| {
            let first = start + row % 8 * span + row / 8 * stride;
            (0..row_bytes)
                .step_by(CHUNK)
                .map(move |at| self.swizzled(first + at / wrap * leading + at % wrap))
        })
    }
}

#[inline]
pub(crate) fn half(code: u16) -> f32 {
    // A subnormal needs no case of its own: scaling by 2^112 normalises it.
    let magnitude = u32::from(code & 0x7fff) << 13;
    let scaled = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let result = if magnitude >= 0x0f80_0000 {
        magnitude | 0x7f80_0000
    } else {
        scaled
    };
    f32::from_bits(result | u32::from(code & 0x8000) << 16)
}

#[inline]
pub(crate) fn bfloat(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// Returns the value of a code. In a half's bits, its exponent and mantissa sit 7 places higher,
/// and the exponent is larger by 8.
#[inline]
pub(crate) fn e4m3(code: u8) -> f32 {
    if code & 0x7f == 0x7f {
        return f32::NAN;
    }
    let sign = u16::from(code & 0x80) << 8;
    let magnitude = u16::from(code & 0x7f) << 7;
    half(sign | magnitude) * 256.0
}

#[inline]
pub(crate) fn elements(element: Element, chunk: &[u8], mut take: impl FnMut(usize, f32)) {
    let codes = chunk
        .chunks_exact(2)
        .map(|code| u16::from_le_bytes([code[0], code[1]]))
        .enumerate();
    match element {
        Element::F16 => codes.for_each(|(index, code)| take(index, half(code))),
        Element::Bf16 => codes.for_each(|(index, code)| take(index, bfloat(code))),
        Element::E4m3 => {
            for (index, &code) in chunk.iter().enumerate() {
                take(index, e4m3(code));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(
        start: u64,
        leading: u64,
        stride: u64,
        mode: u64,
    ) -> Result<Descriptor, DescriptorError> {
        Descriptor::decode(start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62)
    }

    #[test]
    fn chunks_lie_where_the_swizzle_puts_them() {
        let k_major = descriptor(2048 + 32, 16, 1024, 1).unwrap();
        let chunks: Vec<usize> = k_major.chunks(Form::AlongK { rows: 64 }).collect();
        assert_eq!(
            chunks[..4],
            [2048 + 32, 2048 + 48, 2048 + 128 + 48, 2048 + 128 + 32],
            "row 1 swaps neighbours"
        );
        assert_eq!(
            chunks[2 * 13],
            2048 + 1024 + 5 * 128 + (7 << 4),
            "row 13: chunk 2 ^ 5"
        );
        let narrow = descriptor(512, 16, 512, 2).unwrap();
        let narrow_chunks: Vec<usize> = narrow.chunks(Form::AlongK { rows: 8 }).collect();
        assert_eq!(
            narrow_chunks[4],
            512 + 128 + 16,
            "row 2 begins the second line of 128 bytes: chunk 0 ^ 1"
        );
        let transposed = descriptor(0, 4096, 1024, 1).unwrap();
        let across: Vec<usize> = transposed.chunks(Form::AlongN { columns: 96 }).collect();
        assert_eq!(
            (across.len(), across[8], across[12 * 9 + 1]),
            (16 * 12, 4096, 1024 + 128)
        );
    }

    #[test]
    fn what_the_hardware_would_read_otherwise_is_refused() {
        let check = |start, leading, stride, form| {
            descriptor(start, leading, stride, 1)
                .unwrap()
                .check(form, 32768)
        };
        let rows = Form::AlongK { rows: 64 };
        assert_eq!(check(1024 + 96, 0, 1024, rows), Ok(()));
        assert_eq!(check(32768 - 8192, 0, 1024, rows), Ok(()), "to the end");
        let columns = Form::AlongN { columns: 128 };
        assert_eq!(check(2048, 8192, 1024, columns), Ok(()));
        for (start, leading, stride, form, words) in [
            (112, 0, 1024, rows, "112 bytes behind"),
            (0, 0, 0, rows, "is 0"),
            (
                32768 - 4096,
                0,
                1024,
                rows,
                "reaches up to byte 36864 of shared memory, of which the launch declared 32768",
            ),
            (
                2048 + 32,
                8192,
                1024,
                columns,
                "each step along K, of 16 rows",
            ),
            (2048, 0, 1024, columns, "`leading`"),
        ] {
            let reason = check(start, leading, stride, form).unwrap_err().to_string();
            assert!(reason.contains(words), "{words}: {reason}");
        }
        let one_pattern = Form::AlongN { columns: 64 };
        assert_eq!(check(2048, 0, 1024, one_pattern), Ok(()), "nothing leads");
        assert!(
            descriptor(0, 0, 0, 0)
                .unwrap_err()
                .to_string()
                .contains("swizzle mode 0")
        );
        for bit in 49..52 {
            let error = Descriptor::decode(1 << 62 | 1 << bit)
                .unwrap_err()
                .to_string();
            assert!(error.contains("base offset"), "{error}");
        }
        let farthest = Descriptor {
            start: 0x3fff0,
            leading: 0x3fff0,
            stride: 0x3fff0,
            span: 128,
        };
        assert_eq!(descriptor(0x3fff0, 0x3fff0, 0x3fff0, 1), Ok(farthest));
    }

    #[test]
    fn codes_have_their_values() {
        assert_eq!(
            [0x3c00, 0xc500, 0x0001, 0x7bff].map(half),
            [1.0, -5.0, 2f32.powi(-24), 65504.0]
        );
        assert_eq!(
            [0x3f80, 0xc0a0, 0x0001, 0x7f7f].map(bfloat),
            [
                1.0,
                -5.0,
                2f32.powi(-133),
                f32::MAX - 2f32.powi(120) + 2f32.powi(104)
            ]
        );
        assert!(half(0x7c01).is_nan() && half(0x7c00) == f32::INFINITY);
        assert_eq!(
            [0x38, 0xc4, 0x01, 0x7e].map(e4m3),
            [1.0, -3.0, 2f32.powi(-9), 448.0]
        );
        assert!(e4m3(0xff).is_nan());
    }
}
