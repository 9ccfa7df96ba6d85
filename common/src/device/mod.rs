//! The two backends behind one interface: the emulator, and a GPU through the CUDA driver.

pub mod cuda;
#[cfg(feature = "emulated")]
pub mod emulated;

use crate::image::{Image, Layout};
use crate::inputs::{Inputs, Operand, Tensor};
use crate::maps;
use crate::params::{AttentionParams, AttentionTensor};
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use std::ffi::c_void;

/// Where a kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// The functional emulator on this machine's processor.
    Emulated,
    /// An NVIDIA GPU.
    Cuda,
    /// The host's processor, by a candidate.
    Cpu,
}

/// The host side of one launch: every tensor as the bytes that the device will see, guard bands and gaps included.
#[derive(Clone, Debug)]
pub struct Staged {
    /// What is computed.
    pub problem: Problem,
    /// Q, K and V.
    pub inputs: [StagedOperand; 3],
    /// O, filled with NaN.
    pub output: Image,
    /// Log-sum-exps, filled with NaN, for launches that write them.
    pub lse: Image,
}

/// One input tensor and its scales.
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
    /// Lays `inputs` and a poisoned output out.
    pub fn new(inputs: &Inputs, layout: Layout) -> Self {
        let operand = |name, tensor, operand: &Operand| StagedOperand {
            name,
            image: Image::of_operand(operand, tensor, layout),
            scales: operand.scales.clone(),
        };
        Self {
            problem: inputs.problem,
            inputs: [
                operand("q", Tensor::Q, &inputs.q),
                operand("k", Tensor::K, &inputs.k),
                operand("v", Tensor::V, &inputs.v),
            ],
            output: Image::poisoned_output(inputs.problem.shape.q_extents(), layout),
            lse: {
                let [batch, heads, rows, _] = inputs.problem.shape.q_extents();
                Image::poisoned_lse([batch, heads, rows])
            },
        }
    }

    /// The output's values in `after`, its bytes after a launch, dense.
    pub fn values(&self, after: &[u8]) -> Vec<f32> {
        self.output.elements(after, self.problem.dtype.output())
    }

    /// The kernel's parameters, given where the device holds the byte images and the scales (null where there are none), and
    /// the image of the log-sum-exps (null where they are not wanted).
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

/// What a launch left behind: every buffer's bytes, guard bands and gaps included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Q, K and V as they are after the launch.
    pub inputs: [Vec<u8>; 3],
    /// O; [`Staged::output`] says how to read it.
    pub output: Vec<u8>,
    /// Log-sum-exps, where the launch wrote them; [`Staged::lse`] says how to read them.
    pub lse: Option<Vec<u8>>,
}
