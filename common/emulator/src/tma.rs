use std::collections::VecDeque;
use std::ops::Range;

use crate::async_copy::POISON;
use crate::judge::clocks::Agent;
use crate::site::Site;
use crate::tensor_map::{MAX_DIMENSIONS, TiledMap};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) map: TiledMap,
    pub(crate) at: [i32; MAX_DIMENSIONS],
    pub(crate) smem: *mut u8,
    pub(crate) site: Site,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Incoming {
    Box(Transfer),
    /// A store of 16 bytes by a thread of the cluster.
    Store {
        to: *mut [u8; 16],
        value: [u8; 16],
        /// Whether the thread belongs to another block than the mbarrier.
        is_remote: bool,
        site: Site,
    },
}

/// The side that bytes come from. A wait that acquires at the scope of the block says nothing of
/// what another block stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Block,
    OtherBlock,
}

impl Incoming {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Box(transfer) => transfer.bytes(),
            Self::Store { value, .. } => value.len(),
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Store {
                is_remote: true, ..
            } => Origin::OtherBlock,
            Self::Box(_) | Self::Store { .. } => Origin::Block,
        }
    }

    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Box(_) => "tma_load",
            Self::Store { .. } => "store_async",
        }
    }

    pub(crate) fn site(&self) -> Site {
        match self {
            Self::Box(transfer) => transfer.site,
            Self::Store { site, .. } => *site,
        }
    }

    /// Makes the destination poison until the bytes land.
    ///
    /// # Safety
    ///
    /// As [`Incoming::land`].
    pub(crate) unsafe fn poison(&self) {
        match self {
            // SAFETY: the caller's.
            Self::Box(transfer) => unsafe { transfer.poison() },
            // SAFETY: the caller's.
            Self::Store { to, .. } => unsafe { to.write([POISON; 16]) },
        }
    }

    /// Writes the bytes to their destination.
    ///
    /// # Safety
    ///
    /// The destination is memory that the calling OS thread may write; see [`Transfer::load`].
    pub(crate) unsafe fn land(&self) {
        match self {
            // SAFETY: the caller's.
            Self::Box(transfer) => unsafe { transfer.load() },
            // SAFETY: the caller's.
            Self::Store { to, value, .. } => unsafe { to.write(*value) },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) row: usize,
    pub(crate) offset: usize,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// The bytes that a swizzle moves together.
const CHUNK: usize = 16;

/// A row of the widest box.
#[repr(align(16))]
struct Row([u8; 128]);

impl Transfer {
    pub(crate) fn bytes(&self) -> usize {
        self.map.box_bytes()
    }

    /// Returns the parts of the box's rows that lie in the tensor, in the order of the rows.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + use<> {
        let map = self.map;
        let [column, outer @ ..] = self.at.map(i64::from);
        let columns = map.extents[0] as i64;
        let first = column.clamp(0, columns);
        let last = (column + i64::from(map.box_extents[0])).clamp(0, columns);
        let element = i64::from(map.element_bytes);
        let rows = if first < last { map.box_rows() } else { 0 };
        (0..rows).filter_map(move |row| {
            let place = place_of_row(&map, outer, row)?;
            Some(Piece {
                row,
                offset: ((first - column) * element) as usize,
                address: (map.base as i64 + place + first * element) as usize,
                bytes: ((last - first) * element) as usize,
            })
        })
    }

    /// Returns the bytes of the box that lie in the tensor, counted from its start, ascending: what a
    /// store reads.
    pub(crate) fn inside(&self) -> Vec<Range<usize>> {
        let mut starts = Vec::new();
        for piece in self.pieces() {
            let chunks = piece.offset / CHUNK..(piece.offset + piece.bytes).div_ceil(CHUNK);
            starts.extend(chunks.map(|chunk| {
                let place = self.chunk(piece.row, chunk) as usize;
                place - self.smem as usize
            }));
        }
        starts.sort_unstable();
        let mut inside: Vec<Range<usize>> = Vec::new();
        for start in starts {
            match inside.last_mut() {
                Some(last) if last.end == start => last.end += CHUNK,
                _ => inside.push(start..start + CHUNK),
            }
        }
        inside
    }

    /// Returns the place of chunk number `chunk` of a row: the swizzle goes by the address.
    fn chunk(&self, row: usize, chunk: usize) -> *mut u8 {
        let span = self.map.swizzle as usize;
        let at = self.smem.wrapping_add(row * span + chunk * CHUNK);
        let turn = (at as usize >> 7 & (span / CHUNK - 1)) << 4;
        at.wrapping_add((at as usize ^ turn).wrapping_sub(at as usize))
    }

    /// Makes the box poison until it lands.
    ///
    /// # Safety
    ///
    /// The box lies in memory that the calling OS thread may write.
    pub(crate) unsafe fn poison(&self) {
        // SAFETY: the caller's.
        unsafe { self.smem.write_bytes(POISON, self.bytes()) };
    }

    /// Copies the box from global to shared memory; what lies outside of the tensor becomes zero.
    ///
    /// # Safety
    ///
    /// As [`Transfer::poison`], and the tensor is readable where the map says so.
    pub(crate) unsafe fn load(&self) {
        let chunks = self.map.swizzle as usize / CHUNK;
        let mut pieces = self.pieces().peekable();
        for row in 0..self.map.box_rows() {
            let mut bytes = Row([0; 128]);
            if let Some(piece) = pieces.next_if(|piece| piece.row == row) {
                let to = bytes.0[piece.offset..][..piece.bytes].as_mut_ptr();
                // SAFETY: the caller vouches for the tensor.
                unsafe { to.copy_from_nonoverlapping(piece.address as *const u8, piece.bytes) };
            }
            for (chunk, from) in bytes.0.chunks_exact(CHUNK).take(chunks).enumerate() {
                // SAFETY: within the box, whose start is aligned to the swizzle's pattern.
                unsafe {
                    self.chunk(row, chunk)
                        .copy_from_nonoverlapping(from.as_ptr(), CHUNK)
                };
            }
        }
    }

    /// Copies the box from shared to global memory, as far as it lies in the tensor.
    ///
    /// # Safety
    ///
    /// As [`Transfer::poison`], and the tensor is writable where the map says so.
    pub(crate) unsafe fn store(&self) {
        let chunks = self.map.swizzle as usize / CHUNK;
        for piece in self.pieces() {
            let mut bytes = Row([0; 128]);
            for (chunk, to) in bytes.0.chunks_exact_mut(CHUNK).take(chunks).enumerate() {
                // SAFETY: within the box, whose start is aligned to the swizzle's pattern.
                unsafe {
                    to.as_mut_ptr()
                        .copy_from_nonoverlapping(self.chunk(piece.row, chunk), CHUNK)
                };
            }
            let from = bytes.0[piece.offset..][..piece.bytes].as_ptr();
            // SAFETY: the caller vouches for the tensor.
            unsafe { (piece.address as *mut u8).copy_from_nonoverlapping(from, piece.bytes) };
        }
    }
}

/// Returns the bytes from a tensor's base to the row of a box that begins at `at` in the outer
/// dimensions; none if it lies outside of the tensor.
fn place_of_row(map: &TiledMap, at: [i64; MAX_DIMENSIONS - 1], row: usize) -> Option<i64> {
    let (mut place, mut rest) = (0, row);
    for (axis, (start, stride)) in at.into_iter().zip(map.strides).enumerate() {
        let box_extent = map.box_extents[axis + 1] as usize;
        let index = start + (rest % box_extent) as i64;
        if !(0..map.extents[axis + 1] as i64).contains(&index) {
            return None;
        }
        place += index * stride as i64;
        rest /= box_extent;
    }
    Some(place)
}

/// A store that may not have read shared memory yet.
pub(crate) struct Unread<'a> {
    pub(crate) store: &'a Transfer,
    pub(crate) is_committed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// The stores that may not have read shared memory yet, as far as the thread knows.
    unread: VecDeque<Transfer>,
    /// The last store of each group that may not have read shared memory yet.
    groups: VecDeque<u32>,
    /// The last store of each group that may not have written global memory yet.
    unwritten: VecDeque<u32>,
    issued: u32,
    /// The judge's agents for their reads of shared memory and for their writes of global memory.
    pub(crate) agents: Option<[Agent; 2]>,
}

impl Stores {
    pub(crate) fn issue(&mut self, transfer: Transfer) -> u32 {
        self.unread.push_back(transfer);
        self.issued += 1;
        self.issued
    }

    pub(crate) fn next(&self) -> u32 {
        self.issued + 1
    }

    pub(crate) fn commit(&mut self) {
        self.groups.push_back(self.issued);
        self.unwritten.push_back(self.issued);
    }

    /// Waits until all groups but the `newest` ones have read shared memory, and calls `read` for
    /// each store. Returns the number of the last one.
    pub(crate) fn wait_read(
        &mut self,
        newest: usize,
        mut read: impl FnMut(&Transfer),
    ) -> Option<u32> {
        let covered = self.groups.len().saturating_sub(newest);
        let last = self.groups.drain(..covered).next_back()?;
        let left = (self.issued - last) as usize;
        let count = self.unread.len().saturating_sub(left);
        for store in self.unread.drain(..count) {
            read(&store);
        }
        Some(last)
    }

    /// Notes that all groups but the `newest` ones have written global memory. Returns the number of
    /// the last store among them.
    pub(crate) fn wait_written(&mut self, newest: usize) -> Option<u32> {
        let covered = self.unwritten.len().saturating_sub(newest);
        self.unwritten.drain(..covered).next_back()
    }

    /// Returns the oldest store that may not have read shared memory yet.
    pub(crate) fn unread(&self) -> Option<Unread<'_>> {
        let store = self.unread.front()?;
        let number = self.issued + 1 - self.unread.len() as u32;
        let is_committed = self.groups.back().is_some_and(|&last| number <= last);
        Some(Unread {
            store,
            is_committed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a box of 8 rows of 64 halves at the start of a tensor with so many columns and rows.
    fn boxed(columns: u64, rows: u64) -> Transfer {
        Transfer {
            map: TiledMap {
                base: 4096,
                extents: [columns, rows, 1, 1, 1],
                strides: [256, 4096, 4096, 4096],
                box_extents: [64, 8, 1, 1, 1],
                swizzle: 128,
                element_bytes: 2,
            },
            at: [0; MAX_DIMENSIONS],
            smem: std::ptr::without_provenance_mut(1024),
            site: Site::new(c"kernel.cu", 1),
        }
    }

    /// Returns where each part begins and ends.
    fn bounds(transfer: &Transfer) -> Vec<[usize; 2]> {
        let parts = transfer.inside();
        parts.iter().map(|part| [part.start, part.end]).collect()
    }

    #[test]
    fn a_box_within_its_tensor_is_read_whole() {
        assert_eq!(bounds(&boxed(64, 8)), [[0, 1024]]);
    }

    /// Of each row the first four chunks, which the swizzle moves by the row's number.
    #[test]
    fn columns_behind_the_tensor_are_not_read() {
        let mut expected = Vec::new();
        for row in 0..8 {
            let first = row * 128 + if row < 4 { 0 } else { 64 };
            expected.push([first, first + 64]);
        }
        assert_eq!(bounds(&boxed(32, 8)), expected);
    }

    #[test]
    fn rows_behind_the_tensor_are_not_read() {
        assert_eq!(bounds(&boxed(64, 3)), [[0, 3 * 128]]);
        assert_eq!(bounds(&boxed(64, 0)), [[0; 2]; 0]);
    }
}
