//! A tensor as it lies in a kernel's memory: rows, with NaN around them and in every gap of its
//! placement. Both backends upload the same bytes; gate C6 looks at them again after the launch.
//!
//! The gap between heads is as tall as the tallest tile, so that a tile that runs past the last row
//! of a strided tensor reads NaN and never a neighbour's row, which masking would hide. Each tensor
//! has pitches of its own, so that the stride of one, used for another, leads into a gap.

use crate::format::{Format, SHARE};
use crate::inputs::{Operand, Tensor, index_of};
use crate::placement::Placement;
use crate::sequences::Relocation;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

pub use crate::placement::STRIDE_ALIGN;

/// The number of NaN rows before the first element, after the last, and between heads: no stage has
/// a taller tile (each stage's tests ask).
pub const GAP_ROWS: usize = 256;
/// The alignment in bytes of an image's base address and, where its placement has no other, of its
/// first element's offset.
pub const BASE_ALIGN: usize = 128;
/// An output element before the launch: a NaN that no arithmetic makes (CUDA's is `0x7fff`, x86's
/// `0x7e00` or `0xfe00` in f16, `0x7fc0` or `0xffc0` in bf16), so that "never written" and
/// "computed as NaN" differ.
pub const UNWRITTEN: u16 = 0xffff;
/// An element of an output's guard bands and gaps: another NaN, so that unwritten elements copied
/// there are seen.
pub const OUTPUT_GUARD: u16 = 0xffa5;
/// A byte of NaN in every dtype.
const INPUT_GUARD: u8 = 0xff;
/// The least bytes of a guard band: rows of log-sum-exps are single elements.
const LEAST_GUARD: usize = 4096;
/// The elements of a head whose rows are far apart.
const FAR_ELEMENTS: usize = 1 << 37;
/// The bytes before and after such rows: more than 32-bit arithmetic goes astray.
const FAR_GUARD: usize = 1 << 34;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Layout {
        /// Dense rows between guard bands: what timing uses.
        Packed = "packed",
        /// A row pitch of each tensor's own, NaN rows between heads, batches not a multiple of
        /// heads apart.
        Strided = "strided",
    }
}

impl Layout {
    /// Returns the placement of Q, K, V or, if `None`, the output.
    fn placement(self, tensor: Option<Tensor>, row_bytes: usize) -> Placement {
        match self {
            Layout::Packed => Placement::PACKED,
            Layout::Strided => {
                // O has 16 bits beside E4M3 too: these differ in bytes and in elements.
                let units = match tensor {
                    Some(Tensor::Q) => 1,
                    Some(Tensor::K) => 2,
                    Some(Tensor::V) => 3,
                    None => 5,
                };
                let row_gap = units * STRIDE_ALIGN;
                // One unit more than whole rows: a kernel that mixes up strides cannot land on a
                // row's start by luck.
                let head_gap = GAP_ROWS * (row_bytes + row_gap) + STRIDE_ALIGN;
                Placement {
                    gaps: [3 * STRIDE_ALIGN, head_gap, row_gap],
                    ..Placement::PACKED
                }
            }
        }
    }
}

/// A byte that should not have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The byte's offset in the image.
    pub offset: usize,
    /// The byte's place: "2 bytes past the end of row [0, 1, 16]".
    pub what: String,
}

/// The bytes of a tensor and its surroundings.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The bytes, for an address that is a multiple of [`BASE_ALIGN`].
    pub bytes: Vec<u8>,
    /// The bytes before element `[0, 0, 0, 0]`; a multiple of [`STRIDE_ALIGN`].
    pub offset: usize,
    /// The strides in elements: batch, head, row, as in `AttentionTensor`.
    pub strides: [i64; 3],
    /// `[batch, heads, rows, head_dim]`.
    pub extents: [usize; 4],
    pub element_bytes: usize,
    /// The placement of the rows.
    placement: Placement,
    /// The rows of a tensor that lies in another one's; `None` where all of `extents` do.
    places: Option<Places>,
    /// The word for the layout in reports: a [`Layout`]'s name, or "placed".
    pub layout: &'static str,
}

/// The places of a tensor's rows in a tensor of other extents.
#[derive(Clone, Debug, PartialEq)]
struct Places {
    /// `[batch, heads, rows, head_dim]` of the tensor in memory.
    extents: [usize; 4],
    /// The row in memory of each row; `None` where there is none.
    rows: Arc<[Option<usize>]>,
    /// The rows that exist, as they follow each other in memory.
    in_memory: Vec<usize>,
}

/// An image whose rows lie far apart.
pub struct FarApart {
    /// The image without its bytes.
    pub image: Image,
    /// The number of bytes from its start to its end.
    pub byte_count: usize,
}

/// The layout's name of an image whose placement was given.
const PLACED: &str = "placed";

impl Image {
    /// Lays an operand out, its rows where `relocation` has them.
    pub fn of_operand(
        operand: &Operand,
        tensor: Tensor,
        layout: Layout,
        relocation: Option<&Relocation>,
    ) -> Self {
        let row_bytes = operand.extents[3] * operand.dtype.bytes();
        let placement = layout.placement(Some(tensor), row_bytes);
        Self {
            layout: layout.name(),
            ..Self::placed_operand(operand, placement, relocation)
        }
    }

    /// Lays an operand out with a placement, its rows where `relocation` has them.
    pub fn placed_operand(
        operand: &Operand,
        placement: Placement,
        relocation: Option<&Relocation>,
    ) -> Self {
        let element_bytes = operand.dtype.bytes();
        let mut image = Self::empty(operand.extents, element_bytes, placement, relocation);
        image.bytes.fill(INPUT_GUARD);
        let row_bytes = operand.extents[3] * image.element_bytes;
        for (row, dense) in operand.bytes.chunks_exact(row_bytes).enumerate() {
            if let Some(range) = image.row_range(row) {
                image.bytes[range].copy_from_slice(dense);
            }
        }
        image
    }

    /// Makes an output of either format: [`UNWRITTEN`] among [`OUTPUT_GUARD`]s.
    pub fn poisoned_output(
        extents: [usize; 4],
        layout: Layout,
        relocation: Option<&Relocation>,
    ) -> Self {
        let row_bytes = extents[3] * size_of::<u16>();
        let placement = layout.placement(None, row_bytes);
        Self {
            layout: layout.name(),
            ..Self::placed_output(extents, placement, relocation)
        }
    }

    /// Makes a poisoned output with a placement.
    pub fn placed_output(
        extents: [usize; 4],
        placement: Placement,
        relocation: Option<&Relocation>,
    ) -> Self {
        Self::empty(extents, size_of::<u16>(), placement, relocation).poisoned()
    }

    /// Makes log-sum-exps `[batch, heads, rows]`, dense f32, poisoned likewise.
    pub fn poisoned_lse([batch, heads, rows]: [usize; 3], relocation: Option<&Relocation>) -> Self {
        let places = relocation.map(|moved| moved.of_columns(1));
        let image = Self::empty(
            [batch, heads, rows, 1],
            size_of::<f32>(),
            Placement::PACKED,
            places.as_ref(),
        );
        Self {
            layout: Layout::Packed.name(),
            ..image.poisoned()
        }
    }

    fn poisoned(mut self) -> Self {
        fill_pairs(&mut self.bytes, OUTPUT_GUARD);
        for row in 0..self.rows() {
            if let Some(range) = self.row_range(row) {
                fill_pairs(&mut self.bytes[range], UNWRITTEN);
            }
        }
        self
    }

    /// Reads the elements of an f32 image, dense; 0 for rows that do not exist.
    ///
    /// # Panics
    ///
    /// If the elements are not f32.
    pub fn floats(&self, bytes: &[u8]) -> Vec<f32> {
        assert_eq!(self.element_bytes, size_of::<f32>(), "an f32 image");
        let float = |range| {
            let stored: &[u8] = &bytes[range];
            stored.try_into().map_or(f32::NAN, f32::from_le_bytes)
        };
        (0..self.rows())
            .map(|row| self.row_range(row).map_or(0.0, float))
            .collect()
    }

    /// Reads the elements of a 16-bit image, dense; 0 for rows that do not exist.
    ///
    /// # Panics
    ///
    /// If elements do not have 16 bits, or `bytes` has another length.
    pub fn elements(&self, bytes: &[u8], format: Format) -> Vec<f32> {
        assert_eq!(self.element_bytes, 2, "an image of 16-bit elements");
        assert_eq!(bytes.len(), self.bytes.len(), "bytes of this image");
        let dim = self.extents[3];
        let mut values = vec![0.0; self.rows() * dim];
        values
            .par_chunks_exact_mut(dim)
            .with_min_len(SHARE.div_ceil(dim))
            .enumerate()
            .for_each(|(row, elements)| {
                if let Some(range) = self.row_range(row) {
                    format.decode_into(elements, &bytes[range]);
                }
            });
        values
    }

    /// Returns the image's bytes with these elements. Where `dense` is shorter, elements stay.
    pub fn with_elements(&self, dense: &[u8]) -> Vec<u8> {
        let mut filled = self.bytes.clone();
        let row_bytes = self.extents[3] * self.element_bytes;
        for (row, elements) in dense.chunks_exact(row_bytes).enumerate() {
            if let Some(range) = self.row_range(row) {
                filled[range].copy_from_slice(elements);
            }
        }
        filled
    }

    /// Returns the first byte outside of the elements that changed.
    pub fn first_violation(&self, after: &[u8]) -> Option<Violation> {
        assert_eq!(after.len(), self.bytes.len(), "bytes of this image");
        // Between the rows in memory order: the gap before each row, then what follows the last.
        let mut gap_start = 0;
        let end = after.len()..after.len();
        let rows_in_memory =
            (0..self.existing_rows()).filter_map(|place| self.row_range(self.row_at(place)));
        for row in rows_in_memory.chain([end]) {
            if let Some(offset) = first_difference(&self.bytes, after, gap_start..row.start) {
                let what = self.describe(offset);
                return Some(Violation { offset, what });
            }
            gap_start = row.end;
        }
        None
    }

    /// Returns the first byte that changed.
    pub fn first_change(&self, after: &[u8]) -> Option<Violation> {
        assert_eq!(after.len(), self.bytes.len(), "bytes of this image");
        // What a GPU found unchanged was not copied.
        if std::ptr::eq(after, self.bytes.as_slice()) {
            return None;
        }
        let offset = first_difference(&self.bytes, after, 0..after.len())?;
        let what = self
            .element_name(offset)
            .unwrap_or_else(|| self.describe(offset));
        Some(Violation { offset, what })
    }

    /// Returns the byte ranges of the rows that exist by batch, head and row, wherever they lie.
    pub fn element_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.rows()).filter_map(|row| self.row_range(row))
    }

    /// Returns the byte ranges that a kernel may read: all rows of the tensor in memory, those that
    /// are no sequence's included.
    pub fn readable_ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let extents = self.extents_in_memory();
        let rows = extents[0] * extents[1] * extents[2];
        (0..rows).map(|row| self.range_in_memory(row))
    }

    /// Returns `[batch, heads, rows, head_dim]` of the tensor in memory.
    pub fn extents_in_memory(&self) -> [usize; 4] {
        match &self.places {
            None => self.extents,
            Some(places) => places.extents,
        }
    }

    /// Names an offset: "row [0, 1, 16]", or "2 bytes past the end of row [0, 1, 16]".
    pub fn describe(&self, offset: usize) -> String {
        let Some(row) = self.last_row_before(offset) else {
            return self.describe_before(offset);
        };
        let end = self.row_range(row).map_or(offset, |range| range.end);
        match offset.checked_sub(end) {
            None => self.row_name(row),
            Some(past) => format!("{past} bytes past the end of {}", self.row_name(row)),
        }
    }

    /// Names an offset before the first row in memory: "6 bytes before row [0, 0, 0]".
    fn describe_before(&self, offset: usize) -> String {
        if self.existing_rows() == 0 {
            return "in a tensor without a row".to_string();
        }
        let first = self.row_at(0);
        let start = self.row_range(first).map_or(offset, |range| range.start);
        format!("{} bytes before {}", start - offset, self.row_name(first))
    }

    /// Moves rows so far apart that nearly every offset and stride takes more than 32 bits. Rows of
    /// one place in their heads share a page.
    pub fn far_apart(&self) -> FarApart {
        let [batch, heads, rows, dim] = self.extents;
        let unit = (dim * self.element_bytes).next_multiple_of(BASE_ALIGN) / self.element_bytes;
        // What int arithmetic makes of a multiple of 2^32 lies in the guard band, too.
        let row = 1 << (FAR_ELEMENTS / rows).ilog2().min(32);
        let [head, batch_stride] = [(1 << 32) + unit, (1 << 32) + heads * unit];
        let last = (batch - 1) * batch_stride + (heads - 1) * head + (rows - 1) * row;
        let strides = [batch_stride, head, row].map(|stride| stride as i64);
        let image = Self {
            bytes: vec![],
            offset: FAR_GUARD,
            strides,
            placement: Placement::PACKED,
            places: None,
            ..*self
        };
        FarApart {
            image,
            byte_count: FAR_GUARD + last * self.element_bytes + FAR_GUARD,
        }
    }

    fn empty(
        extents: [usize; 4],
        element_bytes: usize,
        placement: Placement,
        relocation: Option<&Relocation>,
    ) -> Self {
        debug_assert!(placement.is_legal(), "{placement}");
        let [batch, heads, rows, dim] = relocation.map_or(extents, |moved| moved.extents);
        let (outer, row_bytes) = ([batch, heads, rows], dim * element_bytes);
        let byte_strides = placement.strides(outer, row_bytes);
        let guard = (GAP_ROWS * byte_strides[2])
            .max(LEAST_GUARD)
            .next_multiple_of(BASE_ALIGN);
        let first_element = guard + placement.offset;
        Self {
            bytes: vec![0; first_element + placement.bytes(outer, row_bytes) + guard],
            offset: first_element,
            strides: byte_strides.map(|bytes| (bytes / element_bytes) as i64),
            extents,
            element_bytes,
            placement,
            places: relocation.map(|moved| Places::new(moved, placement)),
            layout: PLACED,
        }
    }

    fn rows(&self) -> usize {
        self.extents[0] * self.extents[1] * self.extents[2]
    }

    fn existing_rows(&self) -> usize {
        match &self.places {
            None => self.rows(),
            Some(places) => places.in_memory.len(),
        }
    }

    /// Returns the bytes of a row; `None` where there is none.
    pub(crate) fn row_range(&self, row: usize) -> Option<Range<usize>> {
        let row_in_memory = match &self.places {
            None => row,
            Some(places) => places.rows[row]?,
        };
        Some(self.range_in_memory(row_in_memory))
    }

    /// Returns the bytes of a row of the tensor in memory.
    fn range_in_memory(&self, row: usize) -> Range<usize> {
        let extents = self.extents_in_memory();
        let [b, h, s, _] = index_of(extents, row * extents[3]).map(|i| i as i64);
        let elements = b * self.strides[0] + h * self.strides[1] + s * self.strides[2];
        let start = self.offset + elements as usize * self.element_bytes;
        start..start + extents[3] * self.element_bytes
    }

    /// Returns the row that has `place` others before it in memory, of those that exist.
    fn row_at(&self, place: usize) -> usize {
        match &self.places {
            None => row_at(self.extents, self.placement, place),
            Some(places) => places.in_memory[place],
        }
    }

    /// Returns the last row in memory that begins at `offset` or before.
    fn last_row_before(&self, offset: usize) -> Option<usize> {
        let (mut low, mut high) = (0, self.existing_rows());
        while low < high {
            let middle = (low + high) / 2;
            let range = self.row_range(self.row_at(middle));
            if range.is_some_and(|bytes| bytes.start <= offset) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low.checked_sub(1).map(|place| self.row_at(place))
    }

    /// Names the element at an offset, if there is one: "element [0, 1, 16, 3]".
    fn element_name(&self, offset: usize) -> Option<String> {
        let row = self.last_row_before(offset)?;
        let range = self.row_range(row)?;
        if !range.contains(&offset) {
            return None;
        }
        let [b, h, s, _] = index_of(self.extents, row * self.extents[3]);
        let column = (offset - range.start) / self.element_bytes;
        Some(format!("element [{b}, {h}, {s}, {column}]"))
    }

    fn row_name(&self, row: usize) -> String {
        let [b, h, s, _] = index_of(self.extents, row * self.extents[3]);
        format!("row [{b}, {h}, {s}]")
    }
}

impl Places {
    fn new(moved: &Relocation, placement: Placement) -> Self {
        let mut row_of_place = vec![None; moved.rows_in_memory()];
        for (row, place) in moved.rows.iter().enumerate() {
            if let &Some(row_in_memory) = place {
                row_of_place[row_in_memory] = Some(row);
            }
        }
        let places = 0..row_of_place.len();
        let in_memory = places
            .filter_map(|place| row_of_place[row_at(moved.extents, placement, place)])
            .collect();
        Self {
            extents: moved.extents,
            rows: Arc::clone(&moved.rows),
            in_memory,
        }
    }
}

/// Returns the row of a whole tensor that has `place` others before it in memory.
fn row_at(extents: [usize; 4], placement: Placement, place: usize) -> usize {
    let [batch, heads, rows, _] = extents;
    let (mut index, mut rest) = ([0; 3], place);
    for dimension in placement.order.dimensions().into_iter().rev() {
        let extent = [batch, heads, rows][dimension];
        index[dimension] = rest % extent;
        rest /= extent;
    }
    (index[0] * heads + index[1]) * rows + index[2]
}

fn fill_pairs(bytes: &mut [u8], code: u16) {
    for pair in bytes.chunks_exact_mut(2) {
        pair.copy_from_slice(&code.to_le_bytes());
    }
}

/// Returns the first offset within `range` at which the bytes differ.
fn first_difference(before: &[u8], after: &[u8], mut range: Range<usize>) -> Option<usize> {
    // Comparing slices is fast, and most ranges are equal.
    if before[range.clone()] == after[range.clone()] {
        return None;
    }
    range.find(|&offset| before[offset] != after[offset])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Staged;
    use crate::inputs::{Family, Inputs};
    use crate::placement::Order;
    use crate::problem::{Dtype, Mask, Problem, parse_shape};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn elements_go_where_they_are_read_and_nowhere_else() {
        let extents = [2, 1, 3, 64];
        for format in Format::ALL {
            let dense: Vec<f32> = (0..2 * 3 * 64)
                .map(|i| format.round(i as f32 / 3.0))
                .collect();
            let encoded = format.encode_bytes(&dense);
            for layout in Layout::ALL {
                let image = Image::poisoned_output(extents, layout, None);
                let written = image.with_elements(&encoded);
                assert_eq!(image.elements(&written, format), dense);
                assert_eq!(image.first_violation(&written), None);
                assert_eq!(image.with_elements(&[]), image.bytes);
            }
        }
    }

    fn operand(extents: [usize; 4], dtype: Dtype) -> Operand {
        let len = extents.iter().product::<usize>();
        let values = (0..len).map(|i| (i % 997) as f32 - 500.0).collect();
        Operand::rounded(extents, dtype, values, None)
    }

    fn extents() -> impl Strategy<Value = [usize; 4]> {
        (
            1..3usize,
            1..4usize,
            1..40usize,
            prop_oneof![Just(64usize), Just(128)],
        )
            .prop_map(|(b, h, s, d)| [b, h, s, d])
    }

    fn placements() -> impl Strategy<Value = Placement> {
        let units = || prop_oneof![Just(0usize), 1..20usize];
        let layouts = Layout::ALL.map(|layout| layout.placement(Some(Tensor::K), 128));
        let of_layouts = prop::sample::select(layouts.to_vec());
        let orders = prop::sample::select(&Order::ALL[..]);
        let parts = (orders, units(), units(), units(), 0..20usize);
        let others = parts.prop_map(|(order, batch, head, row, offset)| Placement {
            order,
            gaps: [batch, head, row].map(|gap| gap * STRIDE_ALIGN),
            offset: offset * STRIDE_ALIGN,
        });
        prop_oneof![of_layouts, others]
    }

    proptest! {
        #[test]
        fn every_element_is_where_the_strides_say(
            extents in extents(),
            dtype in prop::sample::select(&Dtype::ALL[..]),
            placement in placements(),
        ) {
            let source = operand(extents, dtype);
            let image = Image::placed_operand(&source, placement, None);
            prop_assert_eq!(image.offset % BASE_ALIGN, placement.offset % BASE_ALIGN);
            for stride in image.strides {
                prop_assert_eq!(stride as usize * image.element_bytes % STRIDE_ALIGN, 0);
            }
            let mut is_element = vec![false; image.bytes.len()];
            for (i, stored) in source.bytes.chunks(dtype.bytes()).enumerate() {
                let [b, h, s, d] = index_of(extents, i).map(|index| index as i64);
                let [batch, head, row] = image.strides;
                let element = (b * batch + h * head + s * row + d) as usize;
                let start = image.offset + element * image.element_bytes;
                prop_assert_eq!(&image.bytes[start..start + stored.len()], stored);
                is_element[start..start + stored.len()].fill(true);
            }
            for (offset, &byte) in image.bytes.iter().enumerate() {
                prop_assert!(is_element[offset] || byte == 0xff, "{}", offset);
            }
            if dtype != Dtype::E4m3 {
                prop_assert_eq!(image.elements(&image.bytes, dtype.output()), source.codes());
            }
        }

        #[test]
        fn any_single_byte_outside_is_seen(
            extents in extents(),
            placement in placements(),
            index: prop::sample::Index,
        ) {
            let image = Image::placed_output(extents, placement, None);
            let changed = index.index(image.bytes.len());
            let is_inside = image.element_ranges().any(|row| row.contains(&changed));
            let mut after = image.bytes.clone();
            after[changed] ^= 1;
            let violation = image.first_violation(&after).map(|violation| violation.offset);
            prop_assert_eq!(violation, (!is_inside).then_some(changed));
            let change = image.first_change(&after).map(|change| change.offset);
            prop_assert_eq!(change, Some(changed));
        }
    }

    #[test]
    fn a_tile_past_the_last_row_meets_only_nan() {
        for dtype in Dtype::ALL {
            let image = Image::of_operand(
                &operand([2, 2, 17, 64], dtype),
                Tensor::V,
                Layout::Strided,
                None,
            );
            let pitch = image.strides[2] as usize * image.element_bytes;
            for head in 0..4 {
                let last_row = image.row_range(head * 17 + 16).unwrap();
                let gap = &image.bytes[last_row.end..last_row.end + GAP_ROWS * pitch];
                assert!(gap.iter().all(|&byte| byte == 0xff), "head {head}");
            }
        }
    }

    #[test]
    fn no_two_tensors_share_a_stride() {
        for case in crate::tier0::cases() {
            let inputs = Inputs::generate(&case.problem, case.family, 0);
            let staged = Staged::new(&inputs, Layout::Strided);
            let [q, k, v] = &staged.inputs;
            let tensors = [&q.image, &k.image, &v.image, &staged.output];
            for dimension in 0..3 {
                let strides = tensors.map(|image| image.strides[dimension]);
                let distinct = BTreeSet::from(strides).len();
                assert_eq!(distinct, 4, "{:?}: stride {dimension}", case.problem);
            }
            // No stride leads to where another tensor's row starts.
            for [batch, head, row] in tensors.map(|image| image.strides) {
                assert!(batch % head != 0 && head % row != 0, "{:?}", case.problem);
            }
        }
    }

    #[test]
    fn rows_far_apart_are_disjoint_aligned_and_beyond_32_bits() {
        for (extents, dtype) in [
            ([2, 6, 17, 64], Dtype::F16),
            ([1, 1, 203, 128], Dtype::E4m3),
        ] {
            let packed =
                Image::of_operand(&operand(extents, dtype), Tensor::Q, Layout::Packed, None);
            let FarApart {
                image: far,
                byte_count,
            } = packed.far_apart();
            let mut rows: Vec<Range<usize>> = far.element_ranges().collect();
            for row in &rows {
                assert_eq!(row.start % STRIDE_ALIGN, 0, "{extents:?}");
                assert!(row.end + FAR_GUARD / 2 <= byte_count, "{extents:?}");
            }
            rows.sort_by_key(|row| row.start);
            for pair in rows.windows(2) {
                assert!(pair[0].end <= pair[1].start, "{extents:?}");
            }
            let last_element = (rows[rows.len() - 1].start - far.offset) / far.element_bytes;
            assert!(last_element > 1 << 36, "{extents:?}");
            // Batch and head alone are too far for 32 bits; a row, within the 32 of the smallest
            // tile.
            assert!(far.strides[..2].iter().all(|stride| *stride > 1 << 32));
            assert!(32 * far.strides[2] >= 1 << 32);
        }
    }

    #[test]
    fn poison_is_nan_and_differs_from_its_guard_bands() {
        assert_eq!(Image::poisoned_lse([1, 2, 3], None).offset, LEAST_GUARD);
        let image = Image::poisoned_output([1, 2, 3, 64], Layout::Strided, None);
        for format in Format::ALL {
            let [unwritten, guard] = [UNWRITTEN, OUTPUT_GUARD].map(|code| format.decode(code));
            assert!(unwritten.is_nan() && guard.is_nan());
            assert_ne!(unwritten.to_bits(), guard.to_bits());
            for element in image.elements(&image.bytes, format) {
                assert_eq!(element.to_bits(), unwritten.to_bits());
            }
        }
        assert!(image.bytes.chunks(2).all(|pair| matches!(
            u16::from_le_bytes([pair[0], pair[1]]),
            UNWRITTEN | OUTPUT_GUARD
        )));
    }

    #[test]
    fn a_row_is_named_by_its_indices_in_every_order() {
        for order in Order::ALL {
            let placement = Placement {
                order,
                gaps: [16; 3],
                offset: 48,
            };
            let image = Image::placed_output([2, 3, 5, 64], placement, None);
            let row_end = image.row_range(3 * 5 + 5 + 2).unwrap().end;
            let past_end = "3 bytes past the end of row [1, 1, 2]";
            assert_eq!(image.describe(row_end + 3), past_end, "{order}");
            let mut after = image.bytes.clone();
            after[row_end - 1] ^= 1;
            assert_eq!(image.first_violation(&after), None, "{order}");
            let change = image.first_change(&after).unwrap();
            assert_eq!(change.what, "element [1, 1, 2, 63]", "{order}");
        }
    }

    fn small_output() -> Image {
        Image::poisoned_output([1, 2, 3, 64], Layout::Strided, None)
    }

    #[test]
    fn offsets_are_named_by_the_nearest_row() {
        let image = small_output();
        let row_end = image.row_range(4).unwrap().end;
        assert_eq!(
            image.describe(image.offset - 6),
            "6 bytes before row [0, 0, 0]"
        );
        assert_eq!(image.describe(row_end - 1), "row [0, 1, 1]");
        assert_eq!(
            image.describe(row_end),
            "0 bytes past the end of row [0, 1, 1]"
        );
    }

    #[test]
    fn an_untouched_image_has_no_violation() {
        let image = small_output();
        assert_eq!(image.first_violation(&image.bytes), None);
    }

    #[test]
    fn the_first_violation_is_named() {
        let image = small_output();
        let mut after = image.bytes.clone();
        after[image.row_range(4).unwrap().end + 2] = 0;
        let past_end = "2 bytes past the end of row [0, 1, 1]";
        assert_eq!(image.first_violation(&after).unwrap().what, past_end);
        assert_eq!(image.first_change(&after).unwrap().what, past_end);

        after[image.offset - 6] = 0;
        let earlier = image.first_violation(&after).unwrap();
        assert_eq!(earlier.what, "6 bytes before row [0, 0, 0]");
    }

    #[test]
    fn a_changed_element_is_named() {
        let image = small_output();
        let mut after = image.bytes.clone();
        after[image.row_range(3).unwrap().start + 10] = 0;
        let change = image.first_change(&after).unwrap();
        assert_eq!(change.what, "element [0, 1, 0, 5]");
    }

    /// Returns the images of K and O of a problem as it is served.
    fn served_images(extents: &str) -> Staged {
        let shape = parse_shape(extents).unwrap();
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 1);
        Staged::new(&inputs, Layout::Strided)
    }

    #[test]
    fn rows_behind_a_sequence_hold_nan() {
        let staged = served_images("3x2x9:70x64+used=even:5:2");
        let k = &staged.inputs[1].image;
        let readable = k.readable_ranges().count();
        let existing = k.element_ranges().count();
        assert_eq!(readable, 3 * 2 * 70);
        assert!(existing < readable);
        let nan = k
            .readable_ranges()
            .filter(|row| k.bytes[row.clone()].iter().all(|&b| b == 0xff));
        assert_eq!(nan.count(), readable - existing);
    }

    #[test]
    fn a_write_to_a_page_that_no_sequence_has_is_seen() {
        let staged = served_images("3x2x9:70x64+packed=even:5:2+page=16");
        let k = &staged.inputs[1].image;
        let elements: BTreeSet<usize> = k.element_ranges().map(|row| row.start).collect();
        let mut rows = k.readable_ranges();
        let spare = rows.find(|row| !elements.contains(&row.start)).unwrap();
        let mut after = k.bytes.clone();
        after[spare.start + 2] ^= 1;
        assert_eq!(k.first_violation(&after).unwrap().offset, spare.start + 2);
    }

    #[test]
    fn packed_outputs_have_rows_of_sequences_alone() {
        let staged = served_images("3x2x9x64+packed=even:0:2");
        let o = &staged.output;
        assert_eq!(o.element_ranges().count(), o.readable_ranges().count());
        let encoded = Format::F16.encode_bytes(&vec![1.0; 3 * 2 * 9 * 64]);
        let written = o.with_elements(&encoded);
        assert_eq!(o.first_violation(&written), None);
        let values = o.elements(&written, Format::F16);
        // The second sequence has no row.
        assert_eq!(values[2 * 9 * 64..4 * 9 * 64], vec![0.0; 2 * 9 * 64]);
        assert_eq!(values[..64], vec![1.0; 64]);
    }
}
