//! The tensor maps of a launch: what TMA is told of Q, K, V and O. The driver encodes them for a GPU, the emulator for
//! itself; both from the same description.

use crate::device::Staged;
use crate::image::Image;
use crate::params::{
    AttentionLaunch, AttentionMaps, AttentionParams, AttentionTensor, AttentionTensorMap,
};
use emulator::TensorMap;

/// Bytes of a row of one box, and the width of its swizzle: what a wavefront of shared memory holds, or a row if that is
/// shorter.
const MAX_BOX_BYTES: usize = 128;

/// Rows of one box of each operand; 0 where the kernel asks for no map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxRows {
    /// Of Q.
    pub q: u32,
    /// Of K.
    pub k: u32,
    /// Of V.
    pub v: u32,
    /// Of O.
    pub o: u32,
}

impl BoxRows {
    /// What `kernel.cu` declares; `None` for an entry that takes parameters alone.
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

/// The map of one tensor. Batch, head and row are dimensions of their own, so that rows past the end of a sequence are outside
/// of the tensor and never those of the next head.
fn map_of(tensor: &AttentionTensor, image: &Image, box_rows: u32) -> TensorMap {
    let [batches, heads, rows, columns] = image.extents.map(|extent| extent as u64);
    let bytes = |elements: i64| elements.unsigned_abs() * image.element_bytes as u64;
    let box_columns = (MAX_BOX_BYTES / image.element_bytes).min(columns as usize) as u32;
    TensorMap {
        base: tensor.data as usize,
        extents: [columns, rows, heads, batches],
        strides: [tensor.row_stride, tensor.head_stride, tensor.batch_stride].map(bytes),
        box_columns,
        box_rows,
        swizzle: box_columns * image.element_bytes as u32,
        element_bytes: image.element_bytes as u32,
    }
}

/// What a kernel is launched with. `encode` makes the opaque bytes of one map; its error ends the launch.
pub fn launch<E>(
    staged: &Staged,
    params: AttentionParams,
    boxes: Option<BoxRows>,
    encode: impl Fn(&TensorMap) -> Result<[u64; 16], E>,
) -> Result<AttentionLaunch, E> {
    let map = |tensor: &AttentionTensor, image: &Image, rows: u32| {
        let opaque = if rows == 0 {
            [0; 16]
        } else {
            encode(&map_of(tensor, image, rows))?
        };
        Ok(AttentionTensorMap { opaque })
    };
    let [q, k, v] = &staged.inputs;
    let rows = boxes.unwrap_or_default();
    Ok(AttentionLaunch {
        q: map(&params.q, &q.image, rows.q)?,
        k: map(&params.k, &k.image, rows.k)?,
        v: map(&params.v, &v.image, rows.v)?,
        o: map(&params.o, &staged.output, rows.o)?,
        params,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Dtype, Mask, Problem, Shape};

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
            let launch = launch(&staged, params, Some(boxes), |map| {
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
                "O is f16 whatever the inputs are"
            );
        }
    }
}
