//! Tensor maps of the emulator: cuTensorMapEncodeTiled's counterpart, with its limits.

use thiserror::Error;

/// A tensor of rows, heads and batches, and the box that TMA moves at a time: `box_rows` rows of
/// one head, of `box_columns` columns each, contiguous in shared memory and swizzled by their
/// width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    pub base: usize,
    pub extents: [u64; 4],
    /// The bytes from one row, head and batch to the next.
    pub strides: [u64; 3],
    /// 64 or 128 bytes.
    pub box_columns: u32,
    pub box_rows: u32,
    /// Bytes of a box's row: 64 or 128.
    pub swizzle: u32,
    pub element_bytes: u32,
}

/// The most dimensions of a tensor.
pub const MAX_DIMENSIONS: usize = 5;

/// A tensor of up to five dimensions, innermost first, and the box that TMA moves at a time. The
/// rows of a box are contiguous in shared memory, those of the second dimension next to each other,
/// and swizzled by their width. Dimensions that a tensor does not have are of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiledMap {
    /// The address of the first element.
    pub base: usize,
    /// The elements of each dimension.
    pub extents: [u64; MAX_DIMENSIONS],
    /// The bytes from one element of each outer dimension to the next.
    pub strides: [u64; MAX_DIMENSIONS - 1],
    /// The elements of a box in each dimension.
    pub box_extents: [u32; MAX_DIMENSIONS],
    /// Bytes of a box's row: 64 or 128.
    pub swizzle: u32,
    pub element_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TensorMapError {
    #[error("a tensor map's base address is a multiple of 16, and this is {0:#x}")]
    Base(usize),
    #[error("dimension {dimension} of a tensor map has 1 to 2^32 elements, not {extent}")]
    Extent { dimension: usize, extent: u64 },
    #[error(
        "the stride of dimension {dimension} of a tensor map is a multiple of 16 bytes below \
         2^40, not {stride}"
    )]
    Stride {
        /// The dimension's number; the innermost has no stride.
        dimension: usize,
        stride: u64,
    },
    #[error("dimension {dimension} of a box has 1 to 256 elements, not {extent}")]
    Box { dimension: usize, extent: u32 },
    #[error("a row of a box is as wide as the swizzle, and {bytes} bytes are not {swizzle}")]
    Width { bytes: u64, swizzle: u32 },
    #[error("boxes are swizzled by 64 or 128 bytes, not by {0}")]
    Swizzle(u32),
    #[error("an element of a tensor map has 1, 2, 4 or 8 bytes, not {0}")]
    Element(u32),
}

/// A reason why words are no tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum DecodeError {
    #[error("its tensor map is all zeros: the variant does not ask for one of this operand")]
    Zeros,
    #[error("what it takes for a tensor map is none that was encoded for the emulator")]
    Marks,
}

/// The first and the last word of an encoded map.
const MARKS: [u64; 2] = [0x656D_756C_6D61_7003, 0x656D_756C_6D61_7004];

impl TensorMap {
    /// Returns the bytes that a kernel gets, in words.
    ///
    /// # Errors
    ///
    /// A violated limit.
    pub fn encode(&self) -> Result<[u64; 16], TensorMapError> {
        self.tiled().encode()
    }

    fn tiled(&self) -> TiledMap {
        let [columns, rows, heads, batches] = self.extents;
        let [row, head, batch] = self.strides;
        TiledMap {
            base: self.base,
            extents: [columns, rows, heads, batches, 1],
            strides: [row, head, batch, 16],
            box_extents: [self.box_columns, self.box_rows, 1, 1, 1],
            swizzle: self.swizzle,
            element_bytes: self.element_bytes,
        }
    }
}

impl TiledMap {
    /// Returns the bytes that a kernel gets, in words.
    ///
    /// # Errors
    ///
    /// A violated limit.
    pub fn encode(&self) -> Result<[u64; 16], TensorMapError> {
        self.check()?;
        let [e0, e1, e2, e3, e4] = self.extents;
        let [s1, s2, s3, s4] = self.strides;
        let [b0, b1, b2, b3, b4] = self.box_extents;
        let [first, last] = MARKS;
        Ok([
            first,
            self.base as u64,
            e0,
            e1,
            e2,
            e3,
            e4,
            s1,
            s2,
            s3,
            s4,
            pair(b0, b1),
            pair(b2, b3),
            pair(b4, self.swizzle),
            self.element_bytes.into(),
            last,
        ])
    }

    fn check(&self) -> Result<(), TensorMapError> {
        let (swizzle, element_bytes) = (self.swizzle, self.element_bytes);
        if !self.base.is_multiple_of(16) {
            return Err(TensorMapError::Base(self.base));
        }
        if !matches!(element_bytes, 1 | 2 | 4 | 8) {
            return Err(TensorMapError::Element(element_bytes));
        }
        for (dimension, extent) in self.extents.into_iter().enumerate() {
            if !(1..=1 << 32).contains(&extent) {
                return Err(TensorMapError::Extent { dimension, extent });
            }
        }
        for (dimension, stride) in (1..).zip(self.strides) {
            if !stride.is_multiple_of(16) || stride >= 1 << 40 {
                return Err(TensorMapError::Stride { dimension, stride });
            }
        }
        for (dimension, extent) in self.box_extents.into_iter().enumerate() {
            if !(1..=256).contains(&extent) {
                return Err(TensorMapError::Box { dimension, extent });
            }
        }
        if !matches!(swizzle, 64 | 128) {
            return Err(TensorMapError::Swizzle(swizzle));
        }
        let bytes = u64::from(self.box_extents[0]) * u64::from(element_bytes);
        if bytes != u64::from(swizzle) {
            return Err(TensorMapError::Width { bytes, swizzle });
        }
        Ok(())
    }

    /// Reads a map, or says what is wrong with it.
    pub(crate) fn decode(words: &[u64; 16]) -> Result<Self, DecodeError> {
        if words.iter().all(|&word| word == 0) {
            return Err(DecodeError::Zeros);
        }
        let &[first, base, .., last] = words;
        if [first, last] != MARKS {
            return Err(DecodeError::Marks);
        }
        let &[
            _,
            _,
            e0,
            e1,
            e2,
            e3,
            e4,
            s1,
            s2,
            s3,
            s4,
            inner,
            outer,
            fifth,
            element,
            _,
        ] = words;
        let [b0, b1, b2, b3] = [low(inner), high(inner), low(outer), high(outer)];
        Ok(Self {
            base: base as usize,
            extents: [e0, e1, e2, e3, e4],
            strides: [s1, s2, s3, s4],
            box_extents: [b0, b1, b2, b3, low(fifth)],
            swizzle: high(fifth),
            element_bytes: low(element),
        })
    }

    /// Returns the number of a box's rows.
    pub(crate) fn box_rows(&self) -> usize {
        let outer = self.box_extents[1..].iter();
        outer.map(|&extent| extent as usize).product()
    }

    pub(crate) fn box_bytes(&self) -> usize {
        self.box_rows().saturating_mul(self.swizzle as usize)
    }
}

fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: TensorMap = TensorMap {
        base: 0x1000,
        extents: [128, 77, 4, 1],
        strides: [256, 77 * 256, 4 * 77 * 256],
        box_columns: 64,
        box_rows: 128,
        swizzle: 128,
        element_bytes: 2,
    };

    #[test]
    fn a_map_is_what_was_encoded() {
        let bytes = TensorMap {
            box_columns: 64,
            swizzle: 64,
            element_bytes: 1,
            base: usize::MAX - 15,
            ..MAP
        };
        for map in [
            MAP,
            bytes,
            TensorMap {
                box_rows: 256,
                extents: [1 << 32, 1, 1, 1],
                ..MAP
            },
        ] {
            assert_eq!(TiledMap::decode(&map.encode().unwrap()), Ok(map.tiled()));
        }
    }

    const FIVE: TiledMap = TiledMap {
        base: 0x1000,
        extents: [64, 7, 5, 3, 1 << 32],
        strides: [128, 896, 4480, (1 << 40) - 16],
        box_extents: [64, 2, 3, 4, 256],
        swizzle: 128,
        element_bytes: 2,
    };

    #[test]
    fn a_map_of_five_dimensions_is_what_was_encoded() {
        assert_eq!(TiledMap::decode(&FIVE.encode().unwrap()), Ok(FIVE));
        assert_eq!(FIVE.box_bytes(), 2 * 3 * 4 * 256 * 128);
    }

    #[test]
    fn limits_of_outer_dimensions_are_named() {
        let flat = TiledMap {
            box_extents: [64, 2, 3, 0, 1],
            ..FIVE
        };
        let far = TiledMap {
            strides: [128, 896, 4480, 1 << 40],
            ..FIVE
        };
        let none = TiledMap {
            extents: [64, 7, 5, 3, 0],
            ..FIVE
        };
        for (map, reason) in [
            (flat, "dimension 3 of a box has 1 to 256 elements, not 0"),
            (
                far,
                "the stride of dimension 4 of a tensor map is a multiple of 16 bytes below 2^40, \
                 not 1099511627776",
            ),
            (
                none,
                "dimension 4 of a tensor map has 1 to 2^32 elements, not 0",
            ),
        ] {
            assert_eq!(map.encode().unwrap_err().to_string(), reason);
        }
    }

    fn assert_refused(map: TensorMap, reason: &str) {
        assert_eq!(map.encode().unwrap_err().to_string(), reason);
    }

    #[test]
    fn limits_of_the_tensor_are_named() {
        let base = TensorMap {
            base: 0x1008,
            ..MAP
        };
        let element = TensorMap {
            element_bytes: 3,
            ..MAP
        };
        assert_refused(
            base,
            "a tensor map's base address is a multiple of 16, and this is 0x1008",
        );
        assert_refused(
            element,
            "an element of a tensor map has 1, 2, 4 or 8 bytes, not 3",
        );
        for (extent, shown) in [(0, "0"), ((1 << 32) + 1, "4294967297")] {
            let reason = format!("dimension 2 of a tensor map has 1 to 2^32 elements, not {shown}");
            let map = TensorMap {
                extents: [128, 77, extent, 1],
                ..MAP
            };
            assert_refused(map, &reason);
        }
        for (strides, dimension, shown) in [
            ([8, 16, 16], 1, "8"),
            ([256, 264, 256], 2, "264"),
            ([256, 1 << 40, 256], 2, "1099511627776"),
        ] {
            let reason = format!(
                "the stride of dimension {dimension} of a tensor map is a multiple of 16 bytes \
                 below 2^40, not {shown}"
            );
            assert_refused(TensorMap { strides, ..MAP }, &reason);
        }
    }

    #[test]
    fn limits_of_the_box_are_named() {
        let with_box = |box_columns, box_rows| TensorMap {
            box_columns,
            box_rows,
            ..MAP
        };
        let narrow = TensorMap {
            swizzle: 32,
            ..with_box(16, 128)
        };
        for rows in [0, 257] {
            let reason = format!("dimension 1 of a box has 1 to 256 elements, not {rows}");
            assert_refused(with_box(64, rows), &reason);
        }
        assert_refused(
            with_box(32, 128),
            "a row of a box is as wide as the swizzle, and 64 bytes are not 128",
        );
        assert_refused(narrow, "boxes are swizzled by 64 or 128 bytes, not by 32");
    }
}
