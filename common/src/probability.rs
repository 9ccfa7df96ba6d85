//! The type of P where it meets V.

use crate::e4m3::E4m3;
use crate::format::Format;
use crate::problem::Dtype;

named! {
    /// P's type where it meets V.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Probability {
        /// Never rounded.
        F32 = "f32",
        F16 = "f16",
        Bf16 = "bf16",
        /// E4M3, scaled by 2^8 before rounding (see [`E4M3_PROBABILITY_SCALE`]).
        E4m3 = "e4m3",
    }
}

/// The factor of P in E4M3: FP8 kernels keep `exp(s - max) * 2^8` and divide at the end, so that
/// weights down to 2^-17 of the largest survive (FlashAttention-3, `hopper/softmax.h`, `Max_offset
/// = 8`). Normalised first, weights below 2^-10 would be lost: with some thousands of keys nearly
/// all.
pub const E4M3_PROBABILITY_SCALE: f32 = 256.0;

impl Probability {
    /// Returns the type of the operands.
    pub fn of_operands(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F16 => Probability::F16,
            Dtype::E4m3 => Probability::E4m3,
            Dtype::Bf16 => Probability::Bf16,
        }
    }

    /// Returns the output's format.
    pub fn half(dtype: Dtype) -> Self {
        match dtype.output() {
            Format::F16 => Probability::F16,
            Format::Bf16 => Probability::Bf16,
        }
    }

    /// Returns the types that a kernel may declare: nothing less exact than 16 bits or the inputs,
    /// since it sets how far C2 and C3 let an output be off.
    pub fn declarable(dtype: Dtype) -> &'static [Self] {
        match dtype {
            Dtype::F16 => &[Probability::F32, Probability::F16],
            Dtype::Bf16 => &[Probability::F32, Probability::Bf16],
            Dtype::E4m3 => &[Probability::F32, Probability::F16, Probability::Bf16],
        }
    }

    /// Returns the type that P is rounded to where a kernel declares `self`: 16 bits are the
    /// output's, though a kernel may declare fewer because its scores are less exact.
    pub fn held(self, dtype: Dtype) -> Self {
        match self {
            Probability::F16 | Probability::Bf16 => Self::half(dtype),
            Probability::F32 | Probability::E4m3 => self,
        }
    }

    pub fn format(self) -> Option<Format> {
        match self {
            Probability::F16 => Some(Format::F16),
            Probability::Bf16 => Some(Format::Bf16),
            Probability::F32 | Probability::E4m3 => None,
        }
    }

    /// Rounds weights of at most 1 in place, as values.
    pub(crate) fn round(self, weights: &mut [f32]) {
        match self {
            Probability::F32 => {}
            Probability::F16 => Format::F16.round_all(weights),
            Probability::Bf16 => Format::Bf16.round_all(weights),
            Probability::E4m3 => {
                for weight in weights {
                    let code = E4m3::from_f32(*weight * E4M3_PROBABILITY_SCALE);
                    *weight = code.to_f32() / E4M3_PROBABILITY_SCALE;
                }
            }
        }
    }
}
