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
}

/// An operand as bytes in memory.
#[derive(Clone, Debug)]
pub struct StagedOperand {
    /// `q`, `k` or `v`.
    pub name: &'static str,
    /// The elements, between NaN.
    pub image: Image,
    /// `[batch, heads]` scales; empty but for E4M3.
    pub scales: Vec<f32>,
}

impl Staged {
    pub fn new(inputs: &Inputs, layout: Layout) -> Self {
        let output = Image::poisoned_output(inputs.problem.shape.q_extents(), layout);
        Self::with_images(inputs, output, |tensor, operand| {
            Image::of_operand(operand, tensor, layout)
        })
    }

    /// Stages the inputs with the placements of Q, K, V and the output.
    pub fn placed(inputs: &Inputs, placements: &[Placement; 4]) -> Self {
        let &[q, k, v, o] = placements;
        let output = Image::placed_output(inputs.problem.shape.q_extents(), o);
        Self::with_images(inputs, output, |tensor, operand| {
            let placement = match tensor {
                Tensor::Q => q,
                Tensor::K => k,
                Tensor::V => v,
            };
            Image::placed_operand(operand, placement)
        })
    }

    fn with_images(
        inputs: &Inputs,
        output: Image,
        image: impl Fn(Tensor, &Operand) -> Image,
    ) -> Self {
        let stage = |tensor: Tensor, operand: &Operand| StagedOperand {
            name: tensor.name(),
            image: image(tensor, operand),
            scales: operand.scales.clone(),
        };
        let [batch, heads, rows, _] = inputs.problem.shape.q_extents();
        Self {
            problem: inputs.problem,
            inputs: [
                stage(Tensor::Q, &inputs.q),
                stage(Tensor::K, &inputs.k),
                stage(Tensor::V, &inputs.v),
            ],
            output,
            lse: Image::poisoned_lse([batch, heads, rows]),
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

/// The bytes of all tensors after a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub inputs: [Vec<u8>; 3],
    pub output: Vec<u8>,
    pub lse: Option<Vec<u8>>,
}
