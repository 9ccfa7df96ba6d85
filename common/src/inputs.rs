//! Q, K and V of a case: seeded families, rounded to storage, or real tensors. Values never depend
//! on dtype, and have the same bits on every machine: IEEE operations of this file (see
//! [`Stream`]), no libm.

use crate::e4m3::E4m3;
use crate::problem::{Dtype, Problem};
use crate::quantise;
use families::Drawn;
use rayon::prelude::*;

mod families;
mod family;

pub use families::Stream;
pub use family::{Family, Tensor};

/// Something that is wrong with real tensors.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InputError {
    #[error(
        "{tensor} has extents {found:?}, the problem needs {expected:?} \
         ([batch, heads, rows, head_dim])"
    )]
    Extents {
        tensor: Tensor,
        expected: [usize; 4],
        found: [usize; 4],
    },
    #[error("{tensor} is {found}, the problem is {expected}")]
    Dtype {
        tensor: Tensor,
        expected: Dtype,
        found: Dtype,
    },
    #[error("{what}: {found} given, the extents {extents:?} need {expected}")]
    Length {
        what: &'static str,
        extents: [usize; 4],
        expected: usize,
        found: usize,
    },
    #[error(
        "{tensor}[{}, {}, {}, {}] is {value}: inputs must be finite",
        index[0], index[1], index[2], index[3]
    )]
    NotFinite {
        tensor: Tensor,
        /// The first such element, `[b, h, s, d]`.
        index: [usize; 4],
        value: f32,
    },
    #[error("scale of {tensor}[{batch}, {head}] is {value}: scales must be positive and finite")]
    Scale {
        tensor: Tensor,
        batch: usize,
        head: usize,
        value: f32,
    },
}

/// Q, K or V in storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// `[batch, heads, rows, head_dim]`.
    pub extents: [usize; 4],
    pub dtype: Dtype,
    /// The elements, row-major, little endian.
    pub bytes: Vec<u8>,
    /// The scales `[batch, heads]` for E4M3, else none.
    pub scales: Vec<f32>,
    /// The values before rounding, dense, for gate C4; `None` for real tensors.
    pub unquantised: Option<Vec<f32>>,
}

impl Operand {
    /// Rounds values to storage. `scales` has one per batch and head for E4M3; `None` takes absmax
    /// / 448.
    ///
    /// # Panics
    ///
    /// If the number of values is not the product of the extents.
    pub fn rounded(
        extents: [usize; 4],
        dtype: Dtype,
        values: Vec<f32>,
        scales: Option<Vec<f32>>,
    ) -> Self {
        assert_eq!(
            values.len(),
            extents.iter().product::<usize>(),
            "values for {extents:?}"
        );
        let stored = match dtype {
            Dtype::F16 | Dtype::Bf16 => quantise::Quantised {
                codes: dtype.output().encode_bytes(&values),
                scales: Vec::new(),
            },
            Dtype::E4m3 => quantise::quantise(&values, extents[2] * extents[3], scales),
        };
        Self {
            extents,
            dtype,
            bytes: stored.codes,
            scales: stored.scales,
            unquantised: Some(values),
        }
    }

    /// Makes an operand of stored elements, row-major, little-endian; for E4M3 with `[batch,
    /// heads]` scales.
    pub fn from_parts(
        extents: [usize; 4],
        dtype: Dtype,
        bytes: Vec<u8>,
        scales: Vec<f32>,
    ) -> Result<Self, InputError> {
        let elements = extents.iter().product::<usize>();
        let heads_with_scales = if dtype == Dtype::E4m3 {
            extents[0] * extents[1]
        } else {
            0
        };
        for (what, expected, found) in [
            ("bytes", elements * dtype.bytes(), bytes.len()),
            ("scales", heads_with_scales, scales.len()),
        ] {
            if expected != found {
                return Err(InputError::Length {
                    what,
                    extents,
                    expected,
                    found,
                });
            }
        }
        Ok(Self {
            extents,
            dtype,
            bytes,
            scales,
            unquantised: None,
        })
    }

    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements without scale (values, or E4M3 codes), exact, dense.
    pub fn codes(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F16 | Dtype::Bf16 => self.dtype.output().decode_bytes(&self.bytes),
            Dtype::E4m3 => self
                .bytes
                .par_iter()
                .map(|&bits| E4m3::from_bits(bits).to_f32())
                .collect(),
        }
    }

    /// Returns the scale of a head: 1 but for E4M3.
    pub fn scale(&self, batch: usize, head: usize) -> f32 {
        self.scales
            .get(batch * self.extents[1] + head)
            .copied()
            .unwrap_or(1.0)
    }

    /// Returns `scale * code`, exact (f32 could not hold it), dense.
    pub fn dequantised(&self) -> Vec<f64> {
        let head_len = self.extents[2] * self.extents[3];
        self.codes()
            .into_par_iter()
            .enumerate()
            .map(|(element, code)| {
                let scale = self.scales.get(element / head_len).copied();
                f64::from(scale.unwrap_or(1.0)) * f64::from(code)
            })
            .collect()
    }

    fn check(&self, tensor: Tensor, extents: [usize; 4], dtype: Dtype) -> Result<(), InputError> {
        if self.dtype != dtype {
            return Err(InputError::Dtype {
                tensor,
                expected: dtype,
                found: self.dtype,
            });
        }
        if self.extents != extents {
            return Err(InputError::Extents {
                tensor,
                expected: extents,
                found: self.extents,
            });
        }
        for (i, &value) in self.scales.iter().enumerate() {
            if !(value.is_finite() && value > 0.0) {
                let (batch, head) = (i / extents[1], i % extents[1]);
                return Err(InputError::Scale {
                    tensor,
                    batch,
                    head,
                    value,
                });
            }
        }
        let elements = self.codes();
        let not_finite = elements
            .par_iter()
            .position_first(|value| !value.is_finite());
        match not_finite {
            Some(element) => Err(InputError::NotFinite {
                tensor,
                index: index_of(self.extents, element),
                value: elements[element],
            }),
            None => Ok(()),
        }
    }
}

/// Q, K and V of a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    pub problem: Problem,
    /// `[batch, heads_q, seq_q, head_dim]`.
    pub q: Operand,
    /// `[batch, heads_kv, seq_kv, head_dim]`.
    pub k: Operand,
    /// `[batch, heads_kv, seq_kv, head_dim]`.
    pub v: Operand,
}

impl Inputs {
    /// Draws Q, K and V independent of each other: same-tensor inputs hide swapped operands (P30).
    pub fn generate(problem: &Problem, family: Family, seed: u64) -> Self {
        let draw = |tensor, extents| {
            let mut drawn = families::draw(family, seed, tensor, extents);
            let dtype = problem.dtype_of(tensor);
            if dtype != problem.dtype {
                drawn = drawn.with_scales_of_cache(seed, tensor, extents);
            }
            let Drawn { values, scales } = drawn;
            Operand::rounded(extents, dtype, values, scales)
        };
        let (q_extents, kv_extents) = (problem.shape.q_extents(), problem.shape.kv_extents());
        Self {
            problem: *problem,
            q: draw(Tensor::Q, q_extents),
            k: draw(Tensor::K, kv_extents),
            v: draw(Tensor::V, kv_extents),
        }
    }

    /// Applies one scale to all heads, for libraries without scales of heads: the same codes, other
    /// values.
    pub fn with_one_scale(mut self) -> Self {
        for operand in [&mut self.q, &mut self.k, &mut self.v] {
            let largest = operand.scales.iter().copied().fold(0.0, f32::max);
            if operand.scales.iter().any(|&scale| scale != largest) {
                operand.scales.fill(largest);
                operand.unquantised = None;
            }
        }
        self
    }

    /// Makes inputs of real tensors.
    ///
    /// # Errors
    ///
    /// Wrong extents or dtype, NaN or infinity, a scale that is not positive.
    pub fn from_parts(
        problem: &Problem,
        q: Operand,
        k: Operand,
        v: Operand,
    ) -> Result<Self, InputError> {
        let inputs = Self {
            problem: *problem,
            q,
            k,
            v,
        };
        inputs.check()?;
        Ok(inputs)
    }

    /// Checks that operands fit the problem and are finite.
    pub fn check(&self) -> Result<(), InputError> {
        let q_extents = self.problem.shape.q_extents();
        let kv_extents = self.problem.shape.kv_extents();
        [
            (Tensor::Q, &self.q, q_extents),
            (Tensor::K, &self.k, kv_extents),
            (Tensor::V, &self.v, kv_extents),
        ]
        .into_par_iter()
        .map(|(tensor, operand, extents)| {
            operand.check(tensor, extents, self.problem.dtype_of(tensor))
        })
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
    }
}

impl Problem {
    /// Returns the element type of an operand.
    pub fn dtype_of(&self, tensor: Tensor) -> Dtype {
        match tensor {
            Tensor::Q => self.dtype,
            Tensor::K | Tensor::V => self.kv_dtype(),
        }
    }
}

/// Returns the indices `[b, h, s, d]` of a dense element.
pub fn index_of(extents: [usize; 4], element: usize) -> [usize; 4] {
    let [_, heads, rows, dim] = extents;
    [
        element / (heads * rows * dim),
        element / (rows * dim) % heads,
        element / dim % rows,
        element % dim,
    ]
}

#[cfg(test)]
mod tests;
