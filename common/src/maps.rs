//! A kernel's launch argument: parameters and, for TMA, tensor maps of Q, K, V and O, which the driver encodes for a GPU and
//! the emulator for itself.

use crate::params::{
    AttentionLaunch, AttentionMaps, AttentionMask_ATTENTION_CAUSAL, AttentionMask_ATTENTION_FULL,
    AttentionParams, AttentionTensor, AttentionTensorMap,
};
use crate::problem::{Mask, Problem};

const OUTPUT_BYTES: usize = 2;

/// What a wavefront of shared memory holds; a box's row and its swizzle are as wide, or as a row if that is shorter.
const MAX_BOX_BYTES: usize = 128;

/// Rows of each operand's box; 0 without a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxRows {
    pub q: u32,
    pub k: u32,
    pub v: u32,
    pub o: u32,
}

impl BoxRows {
    /// As `kernel.cu` declares; `None` for an entry that takes parameters alone.
    pub fn read(maps: &AttentionMaps) -> Option<Self> {
        let rows = |rows: i32| rows.max(0) as u32;
        let read = Self {
            q: rows(maps.q_box_rows),
            k: rows(maps.k_box_rows),
            v: rows(maps.v_box_rows),
            o: rows(maps.o_box_rows),
        };
        (read.q + read.k + read.v + read.o > 0).then_some(read)
    }
}

/// A tensor of rows, heads and batches, and the box that TMA moves at a time: `box_rows` rows of one head, of `box_columns`
/// columns each, swizzled by their width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Address of the first element.
    pub base: usize,
    /// Columns, rows, heads, batches.
    pub extents: [u64; 4],
    /// Bytes from row to row, head to head, batch to batch.
    pub strides: [u64; 3],
    /// Columns of a box: 64 or 128 bytes.
    pub box_columns: u32,
    pub box_rows: u32,
    /// Bytes of a box's row, by which it is swizzled: 64 or 128.
    pub swizzle: u32,
    pub element_bytes: u32,
}

impl TensorMap {
    /// Batch, head and row are dimensions of their own: rows past the end of a sequence are outside of the tensor.
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
    let shape = &problem.shape;
    AttentionParams {
        q,
        k,
        v,
        o,
        batch: shape.batch as i32,
        heads_q: shape.heads_q as i32,
        heads_kv: shape.heads_kv as i32,
        seq_q: shape.seq_q as i32,
        seq_kv: shape.seq_kv as i32,
        mask: match problem.mask {
            Mask::Full => AttentionMask_ATTENTION_FULL as i32,
            Mask::Causal => AttentionMask_ATTENTION_CAUSAL as i32,
        },
        softmax_scale: problem.softmax_scale,
        reserved: [0; 7],
        lse,
    }
}

/// `encode` makes the opaque bytes of a map; its error ends the launch.
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
    let (of_q, of_kv) = (problem.shape.q_extents(), problem.shape.kv_extents());
    let (bytes, rows) = (problem.dtype.bytes(), boxes.unwrap_or_default());
    Ok(AttentionLaunch {
        q: map(&params.q, of_q, bytes, rows.q)?,
        k: map(&params.k, of_kv, bytes, rows.k)?,
        v: map(&params.v, of_kv, bytes, rows.v)?,
        o: map(&params.o, of_q, OUTPUT_BYTES, rows.o)?,
        params,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Staged;
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Dtype, Shape};

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
            let seen = std::cell::RefCell::new(Vec::new());
            let launch = launch(&problem, params, Some(boxes), |map| {
                seen.borrow_mut().push(*map);
                Ok::<_, ()>([7; 16])
            });
            let launch = launch.unwrap();
            assert_eq!(
                (launch.q.opaque, launch.k.opaque),
                ([0; 16], [7; 16]),
                "no map of Q was asked for"
            );
            let [k, v, o] = seen.into_inner().try_into().unwrap();
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
