//! The two backends: the emulator, and a GPU through the CUDA driver.

pub mod cuda;
#[cfg(feature = "emulated")]
pub mod emulated;

use crate::image::{Image, Layout};
use crate::inputs::{Inputs, Operand, Tensor};
use crate::maps;
use crate::params::{AttentionParams, AttentionTensor};
use crate::placement::Placement;
use crate::problem::Problem;
use crate::sequences::{Relocation, Tables};
use serde::{Deserialize, Serialize};
use std::ffi::c_void;

/// A place where kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    Emulated,
    Cuda,
}

/// The tensors of a launch as bytes in memory.
#[derive(Clone, Debug)]
pub struct Staged {
    pub problem: Problem,
    pub inputs: [StagedOperand; 3],
    /// O, filled with NaN.
    pub output: Image,
    /// Log-sum-exps, filled with NaN.
    pub lse: Image,
    /// The lengths, pages and sinks; `None` for dense tensors.
    pub tables: Option<Tables>,
}

/// An operand as bytes in memory.
#[derive(Clone, Debug)]
pub struct StagedOperand {
    /// `q`, `k` or `v`.
    pub name: &'static str,
    /// The elements, between NaN.
    pub image: Image,
    /// `[batch, heads]` scales, with the batches of the problem; empty but for E4M3.
    pub scales: Vec<f32>,
}

impl Staged {
    pub fn new(inputs: &Inputs, layout: Layout) -> Self {
        let extents = inputs.problem.shape.q_extents();
        Self::with_images(
            inputs,
            |moved| Image::poisoned_output(extents, layout, moved),
            |tensor, operand, moved| Image::of_operand(operand, tensor, layout, moved),
        )
    }

    /// Stages the inputs with the placements of Q, K, V and the output.
    pub fn placed(inputs: &Inputs, placements: &[Placement; 4]) -> Self {
        let &[q, k, v, o] = placements;
        let extents = inputs.problem.shape.q_extents();
        Self::with_images(
            inputs,
            |moved| Image::placed_output(extents, o, moved),
            |tensor, operand, moved| {
                let placement = match tensor {
                    Tensor::Q => q,
                    Tensor::K => k,
                    Tensor::V => v,
                };
                Image::placed_operand(operand, placement, moved)
            },
        )
    }

    /// Stages inputs with the images that `output` and `image` make where the problem's tables have
    /// their rows.
    fn with_images(
        inputs: &Inputs,
        output: impl Fn(Option<&Relocation>) -> Image,
        image: impl Fn(Tensor, &Operand, Option<&Relocation>) -> Image,
    ) -> Self {
        let tables = Tables::new(&inputs.problem);
        let (moved_q, moved_kv) = match &tables {
            Some(Tables { q, kv, .. }) => (q.as_ref(), kv.as_ref()),
            None => (None, None),
        };
        let stage = |tensor: Tensor, operand: &Operand, moved| StagedOperand {
            name: tensor.name(),
            image: image(tensor, operand, moved),
            scales: operand.scales.clone(),
        };
        let [batch, heads, rows, _] = inputs.problem.shape.q_extents();
        Self {
            problem: inputs.problem,
            inputs: [
                stage(Tensor::Q, &inputs.q, moved_q),
                stage(Tensor::K, &inputs.k, moved_kv),
                stage(Tensor::V, &inputs.v, moved_kv),
            ],
            output: output(moved_q),
            lse: Image::poisoned_lse([batch, heads, rows], moved_q),
            tables,
        }
    }

    /// Returns the output's values, dense, from its bytes after a launch.
    pub fn values(&self, after: &[u8]) -> Vec<f32> {
        self.output.elements(after, self.problem.dtype.output())
    }

    /// Makes a kernel's parameters from the addresses of the byte images, scales and log-sum-exps;
    /// null where there are none.
    pub fn params(
        &self,
        images: [*mut c_void; 3],
        scales: [*const f32; 3],
        output: *mut c_void,
        lse: *mut c_void,
    ) -> AttentionParams {
        let [q, k, v] = &self.inputs;
        let lse_data = if lse.is_null() {
            std::ptr::null_mut()
        } else {
            lse.cast::<u8>().wrapping_add(self.lse.offset).cast()
        };
        maps::params(
            &self.problem,
            [
                place(&q.image, images[0], scales[0]),
                place(&k.image, images[1], scales[1]),
                place(&v.image, images[2], scales[2]),
                place(&self.output, output, std::ptr::null()),
            ],
            lse_data,
        )
    }

    /// Returns the extents in memory of Q, K, V and the output.
    pub fn extents(&self) -> [[usize; 4]; 4] {
        let [q, k, v] = &self.inputs;
        [&q.image, &k.image, &v.image, &self.output].map(Image::extents_in_memory)
    }
}

/// Makes the parameters of a tensor from the addresses of its byte image and scales.
fn place(image: &Image, base: *mut c_void, scales: *const f32) -> AttentionTensor {
    let [batch_stride, head_stride, row_stride] = image.strides;
    AttentionTensor {
        data: base.cast::<u8>().wrapping_add(image.offset).cast(),
        scales,
        batch_stride,
        head_stride,
        row_stride,
    }
}

/// The bytes of Q, K and V where a launch changed them, which no kernel may.
pub type ChangedInputs = [Option<Vec<u8>>; 3];

/// The bytes that a launch left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub changed_inputs: ChangedInputs,
    pub output: Vec<u8>,
    pub lse: Option<Vec<u8>>,
}

/// Returns a copy of `after` unless it is what was there `before`.
pub fn changed(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    (before != after).then(|| after.to_vec())
}
