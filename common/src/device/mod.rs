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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    Emulated,
    Cuda,
}

#[derive(Clone, Debug)]
pub struct Staged {
    pub problem: Problem,
    pub inputs: [StagedOperand; 3],
    /// O, filled with NaN.
    pub output: Image,
    /// Log-sum-exps, filled with NaN.
    pub lse: Image,
}

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
        let image = |tensor, operand: &Operand| Image::of_operand(operand, tensor, layout);
        let output = Image::poisoned_output(inputs.problem.shape.q_extents(), layout);
        Self::of_images(inputs, image, output)
    }

    /// Of Q, K, V and the output.
    pub fn placed(inputs: &Inputs, placements: &[Placement; 4]) -> Self {
        let &[q, k, v, o] = placements;
        let image = |tensor, operand: &Operand| {
            let placement = match tensor {
                Tensor::Q => q,
                Tensor::K => k,
                Tensor::V => v,
            };
            Image::placed_operand(operand, placement)
        };
        let output = Image::placed_output(inputs.problem.shape.q_extents(), o);
        Self::of_images(inputs, image, output)
    }

    fn of_images(
        inputs: &Inputs,
        image: impl Fn(Tensor, &Operand) -> Image,
        output: Image,
    ) -> Self {
        let operand = |tensor: Tensor, operand: &Operand| StagedOperand {
            name: tensor.name(),
            image: image(tensor, operand),
            scales: operand.scales.clone(),
        };
        Self {
            problem: inputs.problem,
            inputs: [
                operand(Tensor::Q, &inputs.q),
                operand(Tensor::K, &inputs.k),
                operand(Tensor::V, &inputs.v),
            ],
            output,
            lse: {
                let [batch, heads, rows, _] = inputs.problem.shape.q_extents();
                Image::poisoned_lse([batch, heads, rows])
            },
        }
    }

    /// The output's values in its bytes after a launch, dense.
    pub fn values(&self, after: &[u8]) -> Vec<f32> {
        self.output.elements(after, self.problem.dtype.output())
    }

    /// Addresses of the byte images, scales and log-sum-exps, null where there are none.
    pub fn params(
        &self,
        images: [*mut c_void; 3],
        scales: [*const f32; 3],
        output: *mut c_void,
        lse: *mut c_void,
    ) -> AttentionParams {
        let tensor = |image: &Image, base: *mut c_void, scales: *const f32| AttentionTensor {
            data: base.cast::<u8>().wrapping_add(image.offset).cast(),
            scales,
            batch_stride: image.strides[0],
            head_stride: image.strides[1],
            row_stride: image.strides[2],
        };
        let [q, k, v] = &self.inputs;
        maps::params(
            &self.problem,
            [
                tensor(&q.image, images[0], scales[0]),
                tensor(&k.image, images[1], scales[1]),
                tensor(&v.image, images[2], scales[2]),
                tensor(&self.output, output, std::ptr::null()),
            ],
            match lse.is_null() {
                true => std::ptr::null_mut(),
                false => lse.cast::<u8>().wrapping_add(self.lse.offset).cast(),
            },
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    pub inputs: [Vec<u8>; 3],
    pub output: Vec<u8>,
    pub lse: Option<Vec<u8>>,
}
