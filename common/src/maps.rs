//! A kernel's launch argument: parameters and, for TMA, tensor maps of Q, K, V and O, which the
//! driver encodes for a GPU and the emulator for itself.

use crate::params::{
    AttentionLaunch, AttentionMaps, AttentionMask_ATTENTION_CAUSAL, AttentionMask_ATTENTION_FULL,
    AttentionParams, AttentionTensor, AttentionTensorMap,
};
use crate::problem::{Mask, Problem, Shape};

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
    fn new(
        tensor: &AttentionTensor,
        extents: [usize; 4],
        element_bytes: usize,
        box_rows: u32,
    ) -> Self {
        let [batches, heads, rows, columns] = extents.map(|extent| extent as u64);
        let bytes = |elements: i64| elements.unsigned_abs() * element_bytes as u64;
        let box_columns = (MAX_BOX_BYTES / element_bytes).min(columns as usize) as u32;
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

/// Makes a launch argument. `encode` makes the opaque bytes of a map.
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
    let map = |tensor: &AttentionTensor, extents, element_bytes, rows: u32| {
        let opaque = if rows == 0 {
            [0; 16]
        } else {
            encode(&TensorMap::new(tensor, extents, element_bytes, rows))?
        };
        Ok(AttentionTensorMap { opaque })
    };
    let q_extents = problem.shape.q_extents();
    let kv_extents = problem.shape.kv_extents();
    let bytes = problem.dtype.bytes();
    let rows = boxes.unwrap_or_default();
    Ok(AttentionLaunch {
        q: map(&params.q, q_extents, bytes, rows.q)?,
        k: map(&params.k, kv_extents, bytes, rows.k)?,
        v: map(&params.v, kv_extents, bytes, rows.v)?,
        o: map(&params.o, q_extents, OUTPUT_BYTES, rows.o)?,
        params,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Staged;
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::Dtype;

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
