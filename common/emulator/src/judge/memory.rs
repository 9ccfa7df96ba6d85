//! The global memory that a kernel may touch: an allocation table that comes with the launch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    Input,
    Output,
    /// Readable, but in constant memory, so no counter counts it: the kernel's parameters.
    Constant,
}

#[derive(Clone)]
struct Words(Arc<NameElement>);

/// Returns the name of the element at an offset.
type NameElement = dyn Fn(usize) -> String + Send + Sync;

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Words")
    }
}

/// A buffer of a launch. Bytes that are no elements are guard bands and gaps: out of bounds.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub(crate) name: String,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
    elements: Vec<u64>,
    words: Option<Words>,
    /// The start among all allocations; set by [`Memory`].
    pub(crate) base: u32,
}

impl Allocation {
    pub fn whole<T>(name: &str, start: *const T, bytes: usize, access: Access) -> Self {
        Self::with_elements(name, start, bytes, access, std::iter::once(0..bytes))
    }

    /// Describes `bytes` bytes at `start`, of which those in `elements` are elements.
    ///
    /// # Panics
    /// If a range leaves the allocation.
    pub fn with_elements<T>(
        name: &str,
        start: *const T,
        bytes: usize,
        access: Access,
        elements: impl IntoIterator<Item = Range<usize>>,
    ) -> Self {
        let mut bits = vec![0u64; bytes.div_ceil(64)];
        for range in elements {
            assert!(
                range.end <= bytes,
                "{name}: elements at {range:?} of {bytes} bytes"
            );
            let (mut at, end) = (range.start, range.end);
            while at < end {
                let next = (at / 64 * 64 + 64).min(end);
                let ones = u64::MAX >> (64 - (next - at));
                bits[at / 64] |= ones << (at % 64);
                at = next;
            }
        }
        Self {
            name: name.to_owned(),
            start: start as usize,
            bytes,
            access,
            elements: bits,
            words: None,
            base: 0,
        }
    }

    /// Adds the words for an offset: "row [0, 1, 16]", or "2 bytes past the end of row [0, 1, 16]"
    /// if it is no element.
    pub fn described_by(mut self, words: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        self.words = Some(Words(Arc::new(words)));
        self
    }

    #[inline]
    pub(crate) fn holds(&self, offset: usize, bytes: usize) -> bool {
        let shift = offset % 64;
        if bytes <= 16 && shift + bytes <= 64 {
            let wanted = (u64::MAX >> (64 - bytes.max(1))) << shift;
            return self
                .elements
                .get(offset / 64)
                .is_some_and(|elements| elements & wanted == wanted);
        }
        let (first, last) = (offset.next_multiple_of(64), (offset + bytes) / 64 * 64);
        if first >= last {
            return self.are_elements(offset..offset + bytes);
        }
        let Some(whole) = self.elements.get(first / 64..last / 64) else {
            return false;
        };
        whole.iter().all(|&word| word == u64::MAX)
            && self.are_elements(offset..first)
            && self.are_elements(last..offset + bytes)
    }

    fn are_elements(&self, mut bytes: Range<usize>) -> bool {
        bytes.all(|at| {
            let word = self.elements.get(at / 64);
            word.is_some_and(|bits| bits >> (at % 64) & 1 == 1)
        })
    }

    /// Returns the first byte of the range that is no element.
    pub(crate) fn first_outside(&self, offset: usize, bytes: usize) -> Option<usize> {
        (offset..offset + bytes).find(|&at| !self.holds(at, 1))
    }

    /// Returns the name of an offset: "k (row [0, 1, 16])".
    pub(crate) fn name_at(&self, offset: usize) -> String {
        match &self.words {
            Some(Words(words)) if self.holds(offset, 1) => {
                format!("{} ({})", self.name, words(offset))
            }
            _ => self.name.clone(),
        }
    }

    pub(crate) fn where_outside(&self, offset: usize) -> String {
        let name = &self.name;
        if offset >= self.bytes {
            return format!("{} bytes behind the end of {name}", offset - self.bytes);
        }
        if let Some(Words(words)) = &self.words {
            return format!("{} of {name}", words(offset));
        }
        match (0..offset).rev().find(|&at| self.holds(at, 1)) {
            Some(last) => format!(
                "{} bytes behind the elements of {name} that end at byte {}",
                offset - last,
                last + 1
            ),
            None => format!("in the guard band before the first element of {name}"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(crate) allocations: Vec<Allocation>,
    pub(crate) bytes: u64,
}

pub(crate) const PAGE_BYTES: usize = 4096;

impl Memory {
    /// Returns a table of `allocations`, which must not overlap.
    ///
    /// # Panics
    /// If they do, or if they take more than 4 GiB.
    pub fn new(allocations: impl IntoIterator<Item = Allocation>) -> Self {
        let mut sorted: Vec<Allocation> = allocations.into_iter().collect();
        sorted.retain(|allocation| allocation.bytes > 0);
        sorted.sort_by_key(|allocation| allocation.start);
        let mut bytes = 0u64;
        let mut end = 0;
        for allocation in &mut sorted {
            assert!(
                allocation.start >= end,
                "{} overlaps the allocation before it",
                allocation.name
            );
            end = allocation.start + allocation.bytes;
            // Keep the address's place in its sector and page.
            let place = allocation.start % PAGE_BYTES;
            allocation.base = u32::try_from(bytes + place as u64)
                .expect("allocations of a traced launch fit in 4 GiB");
            bytes += (place + allocation.bytes).next_multiple_of(PAGE_BYTES) as u64;
        }
        assert!(
            bytes <= u64::from(u32::MAX),
            "allocations of a traced launch fit in 4 GiB"
        );
        Self {
            allocations: sorted,
            bytes,
        }
    }

    #[inline]
    pub(crate) fn find(&self, address: usize) -> Option<usize> {
        self.allocations
            .iter()
            .position(|it| address.wrapping_sub(it.start) < it.bytes)
    }

    /// Returns the place of a byte of the allocation with this name.
    pub(crate) fn place_of(&self, name: &str, offset: usize) -> Option<u32> {
        let allocation = self.allocations.iter().find(|it| it.name == name)?;
        (offset < allocation.bytes).then(|| allocation.base + offset as u32)
    }

    pub(crate) fn locate(&self, place: u32) -> Option<(&Allocation, usize)> {
        let allocation = self.allocations.iter().rev().find(|it| it.base <= place)?;
        Some((allocation, (place - allocation.base) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_guard_bands_are_told_apart() {
        let start = 0x10000 as *const u8;
        let rows = (0..3).map(|row| 64 + row * 80..64 + row * 80 + 64);
        let image = Allocation::with_elements("k", start, 400, Access::Input, rows);
        assert!(
            image.holds(64, 16)
                && image.holds(112, 16)
                && !image.holds(120, 16)
                && !image.holds(63, 1)
        );
        assert!(image.holds(144, 64) && !image.holds(144, 65) && !image.holds(396, 8));
        assert_eq!(image.first_outside(120, 16), Some(128));
        assert_eq!(
            image.where_outside(130),
            "3 bytes behind the elements of k that end at byte 128"
        );
        assert_eq!(
            image.where_outside(3),
            "in the guard band before the first element of k"
        );
    }

    #[test]
    fn an_access_is_inside_if_each_of_its_bytes_is() {
        let rows = [3..20, 60..61, 62..130, 190..192];
        let image =
            Allocation::with_elements("k", 0x10000 as *const u8, 200, Access::Input, rows.clone());
        for offset in 0..200 {
            for bytes in 1..80 {
                let mut range = offset..offset + bytes;
                let is_inside = range.all(|at| rows.iter().any(|row| row.contains(&at)));
                assert_eq!(
                    image.holds(offset, bytes),
                    is_inside,
                    "{bytes} bytes at {offset}"
                );
            }
        }
    }

    #[test]
    fn the_table_finds_addresses_and_places() {
        let at = |address: usize| address as *const u8;
        let memory = Memory::new([
            Allocation::whole("b", at(0x20040), 100, Access::Output),
            Allocation::whole("a", at(0x10000), 5000, Access::Input),
        ]);
        assert_eq!(
            memory
                .find(0x10000 + 4999)
                .map(|i| memory.allocations[i].name.as_str()),
            Some("a")
        );
        assert_eq!(
            (memory.find(0x10000 + 5000), memory.find(0x2003f)),
            (None, None)
        );
        let b = &memory.allocations[memory.find(0x20041).unwrap()];
        assert_eq!(
            b.base as usize % 64,
            0,
            "a byte keeps its place in its sector"
        );
        let (allocation, offset) = memory.locate(b.base + 7).unwrap();
        assert_eq!((allocation.name.as_str(), offset), ("b", 7));
    }
}
