//! The places of one tensor's elements, in any order of batch, head and row that no two elements
//! share, and their text: `bshd/s256/b48@16`.

use std::fmt;
use std::str::FromStr;

/// The alignment in bytes of pitches and strides, as rows are read 16 bytes at a time.
pub const STRIDE_ALIGN: usize = 16;

/// The number of outer dimensions: batch, head and row.
pub const DIMENSIONS: usize = 3;

/// The places of a tensor's elements. A row of elements is contiguous. The innermost of the three
/// dimensions steps over a row and its gap, the next one over all of the innermost and its gap, and
/// so on: elements never share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    pub order: Order,
    /// The bytes after each batch, each head and each row that belong to no element; multiples of
    /// [`STRIDE_ALIGN`].
    pub gaps: [usize; DIMENSIONS],
    /// The bytes from a boundary of [`crate::image::BASE_ALIGN`] to the first element; a multiple
    /// of [`STRIDE_ALIGN`].
    pub offset: usize,
}

named! {
    /// The dimensions from the outermost to the innermost; a row's elements come last.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Order {
        Bhsd = "bhsd",
        /// PyTorch's order after `transpose(1, 2)`.
        Bshd = "bshd",
        Hbsd = "hbsd",
        Hsbd = "hsbd",
        Sbhd = "sbhd",
        Shbd = "shbd",
    }
}

impl Order {
    /// Returns indices into `[batch, head, row]`, from the outermost to the innermost.
    pub fn dimensions(self) -> [usize; DIMENSIONS] {
        match self {
            Order::Bhsd => [0, 1, 2],
            Order::Bshd => [0, 2, 1],
            Order::Hbsd => [1, 0, 2],
            Order::Hsbd => [1, 2, 0],
            Order::Sbhd => [2, 0, 1],
            Order::Shbd => [2, 1, 0],
        }
    }
}

/// The letters of batch, head and row in a placement's text.
const LETTERS: [char; DIMENSIONS] = ['b', 'h', 's'];

/// A text that is no placement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a placement: expected ORDER[/bGAP][/hGAP][/sGAP][@OFFSET] with gaps and \
     offset in bytes, multiples of {STRIDE_ALIGN}, such as bhsd or bshd/s256/b48@16"
)]
pub struct PlacementError {
    pub text: String,
}

impl Placement {
    /// Dense rows in the order of the extents.
    pub const PACKED: Self = Self {
        order: Order::Bhsd,
        gaps: [0; DIMENSIONS],
        offset: 0,
    };

    /// Returns whether kernels must take it: the contract is in `params.h`.
    pub fn is_legal(&self) -> bool {
        let [batch, head, row] = self.gaps;
        [batch, head, row, self.offset]
            .into_iter()
            .all(|bytes| bytes.is_multiple_of(STRIDE_ALIGN) && bytes < MOST_BYTES)
    }

    /// Returns the bytes from one batch, head and row to the next. `extents` are those of batch,
    /// head and row.
    pub fn strides(&self, extents: [usize; DIMENSIONS], row_bytes: usize) -> [usize; DIMENSIONS] {
        let (mut strides, mut step) = ([0; DIMENSIONS], row_bytes);
        for dimension in self.order.dimensions().into_iter().rev() {
            strides[dimension] = step + self.gaps[dimension];
            step = strides[dimension] * extents[dimension];
        }
        strides
    }

    /// Returns the bytes from the first element to behind the last gap.
    pub fn bytes(&self, extents: [usize; DIMENSIONS], row_bytes: usize) -> usize {
        let [outermost, ..] = self.order.dimensions();
        self.strides(extents, row_bytes)[outermost] * extents[outermost]
    }
}

/// The bytes that one gap stays below: more would be a tensor of gaps.
const MOST_BYTES: usize = 1 << 18;

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.order)?;
        for dimension in self.order.dimensions().into_iter().rev() {
            if self.gaps[dimension] > 0 {
                write!(f, "/{}{}", LETTERS[dimension], self.gaps[dimension])?;
            }
        }
        match self.offset {
            0 => Ok(()),
            offset => write!(f, "@{offset}"),
        }
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || PlacementError {
            text: text.to_string(),
        };
        let number = |digits: &str| digits.parse::<usize>().map_err(|_| malformed());
        let (strides, offset) = match text.split_once('@') {
            Some((strides, offset)) => (strides, number(offset)?),
            None => (text, 0),
        };
        let mut parts = strides.split('/');
        let order_name = parts.next().unwrap_or_default();
        let mut placement = Self {
            order: order_name.parse().map_err(|_| malformed())?,
            offset,
            ..Self::PACKED
        };
        for part in parts {
            let dimension = LETTERS
                .iter()
                .position(|letter| part.starts_with(*letter))
                .ok_or_else(malformed)?;
            placement.gaps[dimension] = number(&part[1..])?;
        }
        if placement.is_legal() {
            Ok(placement)
        } else {
            Err(malformed())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn strides_are_those_of_pytorch() {
        let strides = |text: &str| {
            let placement: Placement = text.parse().unwrap();
            placement.strides([2, 8, 512], 128)
        };
        assert_eq!(strides("bhsd"), [8 * 512 * 128, 512 * 128, 128]);
        assert_eq!(strides("bshd"), [8 * 512 * 128, 128, 8 * 128]);
        assert_eq!(strides("sbhd"), [8 * 128, 128, 2 * 8 * 128]);
        // Q of a tensor [B, S, 3, H, D].
        let q_of_three = strides("bshd/s2048");
        assert_eq!(q_of_three, [3 * 8 * 512 * 128, 128, 3 * 8 * 128]);
    }

    #[test]
    fn no_order_lets_rows_share_a_byte() {
        let extents = [2, 3, 5];
        for order in Order::ALL {
            let placement = Placement {
                order,
                gaps: [16, 32, 48],
                offset: 64,
            };
            let [batch, head, row] = placement.strides(extents, 64);
            let mut distinct = BTreeSet::new();
            for i in 0..2 * 3 * 5 {
                distinct.insert(i / 15 * batch + i / 5 % 3 * head + i % 5 * row);
            }
            let starts: Vec<usize> = distinct.into_iter().collect();
            assert_eq!(starts.len(), 30, "{order}");
            for pair in starts.windows(2) {
                assert!(pair[1] - pair[0] >= 64, "{order}");
            }
            assert!(starts[29] + 64 <= placement.bytes(extents, 64), "{order}");
        }
    }

    #[test]
    fn a_placement_is_read_as_it_is_written() {
        for text in ["bhsd", "bshd/s256/b48@16", "shbd/b16/h32/s48", "hsbd@112"] {
            let placement: Placement = text.parse().unwrap();
            assert_eq!(placement.to_string(), text);
        }
        for text in [
            "",
            "bhs",
            "bhsd/",
            "bhsd/x16",
            "bhsd/s8",
            "bhsd@8",
            "bhsd@",
            "bhsd/s16@-16",
            "bhsd/s17179869184",
            "bhsd/é16",
        ] {
            let error = text.parse::<Placement>().unwrap_err().to_string();
            assert!(error.contains("bshd/s256/b48@16"), "{text}: {error}");
        }
    }
}
