//! A kernel's launch argument: parameters and, for TMA, tensor maps of Q, K, V and O, which the
//! driver encodes for a GPU and the emulator for itself.

use crate::params::{
    AttentionLaunch, AttentionMaps, AttentionMask_ATTENTION_CAUSAL, AttentionMask_ATTENTION_FULL,
    AttentionParams, AttentionServing, AttentionTensor, AttentionTensorMap,
};
use crate::problem::{Mask, Problem, Shape};
use crate::sequences::Tables;
use crate::serving::Serving;

/// The bytes of an element of O.
const OUTPUT_BYTES: usize = 2;

/// The bytes of a wavefront of shared memory; a box's row and its swizzle are as wide, or as a row
/// if that is shorter.
const MAX_BOX_BYTES: usize = 128;

/// The rows of each operand's box; 0 without a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxRows {
    pub q: u32,
    pub k: u32,
    pub v: u32,
    pub o: u32,
}

impl BoxRows {
    /// Reads what `kernel.cu` declares; `None` for an entry that takes parameters alone.
    pub fn read(maps: &AttentionMaps) -> Option<Self> {
        let boxes = Self {
            q: maps.q_box_rows.max(0) as u32,
            k: maps.k_box_rows.max(0) as u32,
            v: maps.v_box_rows.max(0) as u32,
            o: maps.o_box_rows.max(0) as u32,
        };
        if boxes == Self::default() {
            None
        } else {
            Some(boxes)
        }
    }
}

/// A tensor of rows, heads and batches, and the box that TMA moves at a time: `box_rows` rows of
/// one head, of `box_columns` columns each, swizzled by their width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of the first element.
    pub base: usize,
    /// The numbers of columns, rows, heads, batches.
    pub extents: [u64; 4],
    /// The bytes from row to row, head to head, batch to batch.
    pub strides: [u64; 3],
    /// The columns of a box: 64 or 128 bytes.
    pub box_columns: u32,
    pub box_rows: u32,
    /// The bytes of a box's row, by which it is swizzled: 64 or 128.
    pub swizzle: u32,
    pub element_bytes: u32,
}

impl TensorMap {
    /// Makes a map in which batch, head and row are dimensions of their own: rows past the end of a
    /// sequence are outside of the tensor.
    /// `compiled_head_dim`: the columns of the kernel's tiles.
    fn new(
        tensor: &AttentionTensor,
        extents: [usize; 4],
        element_bytes: usize,
        box_rows: u32,
        compiled_head_dim: usize,
    ) -> Self {
        let [batches, heads, rows, columns] = extents.map(|extent| extent as u64);
        let bytes = |elements: i64| elements.unsigned_abs() * element_bytes as u64;
        // Of 96 columns of one byte each a box has 128: it is swizzled by no other width.
        let box_columns =
            (MAX_BOX_BYTES / element_bytes).min(compiled_head_dim.next_power_of_two()) as u32;
        Self {
            base: tensor.data as usize,
            extents: [columns, rows, heads, batches],
            strides: [tensor.row_stride, tensor.head_stride, tensor.batch_stride].map(bytes),
            box_columns,
            box_rows,
            swizzle: box_columns * element_bytes as u32,
            element_bytes: element_bytes as u32,
        }
    }
}

pub fn params(
    problem: &Problem,
    [q, k, v, o]: [AttentionTensor; 4],
    lse: *mut f32,
) -> AttentionParams {
    let Shape {
        batch,
        heads_q,
        heads_kv,
        seq_q,
        seq_kv,
        ..
    } = problem.shape;
    AttentionParams {
        q,
        k,
        v,
        o,
        batch: batch as i32,
        heads_q: heads_q as i32,
        heads_kv: heads_kv as i32,
        seq_q: seq_q as i32,
        seq_kv: seq_kv as i32,
        mask: match problem.mask {
            Mask::Full => AttentionMask_ATTENTION_FULL as i32,
            Mask::Causal => AttentionMask_ATTENTION_CAUSAL as i32,
        },
        softmax_scale: problem.softmax_scale,
        reserved: [0; 7],
        lse,
    }
}

/// Makes the launch argument of a problem in dense tensors. `encode` makes the opaque bytes of a
/// map.
///
/// # Errors
///
/// The first error of `encode`.
pub fn launch<E>(
    problem: &Problem,
    params: AttentionParams,
    boxes: Option<BoxRows>,
    encode: impl Fn(&TensorMap) -> Result<[u64; 16], E>,
) -> Result<AttentionLaunch, E> {
    let q_extents = problem.shape.q_extents();
    let kv_extents = problem.shape.kv_extents();
    let extents = [q_extents, kv_extents, kv_extents, q_extents];
    launch_in(extents, problem, params, boxes, encode)
}

/// Makes a launch argument, with Q, K, V and O of these extents in memory.
///
/// # Errors
///
/// The first error of `encode`.
pub fn launch_in<E>(
    [q, k, v, o]: [[usize; 4]; 4],
    problem: &Problem,
    params: AttentionParams,
    boxes: Option<BoxRows>,
    encode: impl Fn(&TensorMap) -> Result<[u64; 16], E>,
) -> Result<AttentionLaunch, E> {
    let head_dim = problem.shape.compiled_head_dim();
    let map = |tensor: &AttentionTensor, extents, element_bytes, rows: u32| {
        let opaque = if rows == 0 {
            [0; 16]
        } else {
            encode(&TensorMap::new(
                tensor,
                extents,
                element_bytes,
                rows,
                head_dim,
            ))?
        };
        Ok(AttentionTensorMap { opaque })
    };
    let bytes = problem.dtype.bytes();
    let kv_bytes = problem.kv_dtype().bytes();
    let rows = boxes.unwrap_or_default();
    // A box has the rows of one page.
    let page_rows = problem.shape.serving.page_rows.map_or(u32::MAX, u32::from);
    Ok(AttentionLaunch {
        q: map(&params.q, q, bytes, rows.q)?,
        k: map(&params.k, k, kv_bytes, rows.k.min(page_rows))?,
        v: map(&params.v, v, kv_bytes, rows.v.min(page_rows))?,
        o: map(&params.o, o, OUTPUT_BYTES, rows.o)?,
        params,
    })
}

/// The addresses of the arrays of [`Tables`]; null for those that are empty.
#[derive(Clone, Copy, Debug)]
pub struct TableAddresses {
    pub q_starts: *const i32,
    pub kv_starts: *const i32,
    pub kv_used: *const i32,
    pub pages: *const i32,
    pub sinks: *const f32,
}

impl TableAddresses {
    /// The addresses for dense tensors.
    pub const NONE: Self = Self {
        q_starts: std::ptr::null(),
        kv_starts: std::ptr::null(),
        kv_used: std::ptr::null(),
        pages: std::ptr::null(),
        sinks: std::ptr::null(),
    };
}

/// Makes what a kernel gets beside its launch argument.
pub fn serving(
    problem: &Problem,
    tables: Option<&Tables>,
    addresses: TableAddresses,
) -> AttentionServing {
    let Serving {
        window,
        softcap,
        page_rows,
        ..
    } = problem.shape.serving;
    // No key is that far away.
    let bound = |keys: Option<u32>| keys.map_or(-1, |most| most.min(MAX_WINDOW) as i32);
    let total_q = tables.and_then(|arrays| arrays.q_starts.last().copied());
    AttentionServing {
        q_starts: addresses.q_starts,
        kv_starts: addresses.kv_starts,
        kv_used: addresses.kv_used,
        pages: addresses.pages,
        sinks: addresses.sinks,
        pages_stride: tables.map_or(0, |arrays| arrays.pages_of_sequence as i32),
        page_rows: page_rows.map_or(0, i32::from),
        total_q: total_q.unwrap_or_default(),
        window_left: bound(window.left),
        window_right: bound(window.right),
        softcap: softcap.map_or(0.0, f32::from),
        head_dim: problem.shape.head_dim as i32,
    }
}

/// The widest window: sequences are no longer, and sums of it and a row fit 32 bits.
const MAX_WINDOW: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Staged;
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Dtype, parse_shape};

    #[test]
    fn a_cache_has_maps_of_bytes_whose_boxes_are_64_or_128_wide() {
        for (head_dim, columns) in [(64, 64), (80, 128), (96, 128), (128, 128)] {
            let shape = parse_shape(&format!("1x2x40x{head_dim}+cache=e4m3")).unwrap();
            let problem = Problem::new(shape, Dtype::Bf16, Mask::Full).unwrap();
            let staged = Staged::new(
                &Inputs::generate(&problem, Family::Normal, 1),
                Layout::Packed,
            );
            let base = 0x1000 as *mut std::ffi::c_void;
            let scales = [std::ptr::null(), 0x2000 as *const f32, 0x3000 as *const f32];
            let params = staged.params([base; 3], scales, base, std::ptr::null_mut());
            let boxes = BoxRows {
                q: 16,
                k: 128,
                v: 128,
                o: 16,
            };
            let encoded = std::cell::RefCell::new(Vec::new());
            launch(&problem, params, Some(boxes), |map| {
                encoded.borrow_mut().push(*map);
                Ok::<_, ()>([7; 16])
            })
            .unwrap();
            let [q, k, v, o] = encoded.into_inner().try_into().unwrap();
            assert_eq!(
                [q, o].map(|map| (map.element_bytes, map.swizzle)),
                [(2, 128); 2]
            );
            for map in [k, v] {
                assert_eq!((map.element_bytes, map.box_columns), (1, columns));
                assert_eq!((map.swizzle, map.strides[0]), (columns, head_dim));
            }
        }
    }

    #[test]
    fn maps_have_the_extents_and_strides_of_the_images() {
        for dtype in Dtype::ALL {
            let problem = Problem::new(Shape::bhsd(1, 8, 512, 64), dtype, Mask::Full).unwrap();
            let staged = Staged::new(
                &Inputs::generate(&problem, Family::Normal, 1),
                Layout::Packed,
            );
            let base = 0x1000 as *mut std::ffi::c_void;
            let params =
                staged.params([base; 3], [std::ptr::null(); 3], base, std::ptr::null_mut());
            let boxes = BoxRows {
                q: 0,
                k: 128,
                v: 64,
                o: 64,
            };
            let encoded = std::cell::RefCell::new(Vec::new());
            let argument = launch(&problem, params, Some(boxes), |map| {
                encoded.borrow_mut().push(*map);
                Ok::<_, ()>([7; 16])
            })
            .unwrap();
            assert_eq!(argument.q.opaque, [0; 16], "no map of Q was asked for");
            assert_eq!(argument.k.opaque, [7; 16]);
            let [k, v, o] = encoded.into_inner().try_into().unwrap();
            assert_eq!(
                (k.extents, k.box_columns, k.box_rows),
                ([64, 512, 8, 1], 64, 128)
            );
            assert_eq!(
                k.strides,
                [64, 512 * 64, 8 * 512 * 64].map(|elements| elements * dtype.bytes() as u64)
            );
            assert_eq!((v.box_rows, v.swizzle), (64, 64 * dtype.bytes() as u32));
            assert_eq!(
                (o.element_bytes, o.swizzle),
                (2, 128),
                "O has 16 bits whatever the inputs have"
            );
        }
    }
}
