//! The claims of a stage, as data, before anything is measured: that a family is faster (gate L1),
//! and the figures that show why (gate E1).

use crate::metric::Metric;
use crate::problem::{Dtype, Mask};
use std::fmt;

/// A prediction about metrics of one family on some problems.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The family, or one of its variants. A claim of speed is judged on its best variant, one of
    /// counters on every variant.
    pub family: &'static str,
    pub metrics: &'static [Metric],
    pub relation: Relation,
    /// The problems, each judged by itself.
    pub problems: &'static [Where],
    pub why: &'static str,
}

/// The prediction about a metric's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relation {
    /// `base / value >= at_least`, both timed A B B A.
    Faster {
        base: Base,
        /// The least ratio on p50, p90 and mean.
        at_least: f64,
    },
    FasterThanPeer {
        rival: Rival,
        at_least: f64,
    },
    /// `at_least * base <= value <= at_most * base`. A variant is compared with the base's of the
    /// same preset, else the families' defaults are.
    Ratio {
        base: Base,
        /// Equal to `at_most` for an exact ratio.
        at_least: f64,
        at_most: f64,
    },
    /// `value >= bound`.
    AtLeast {
        bound: f64,
    },
    /// `value <= bound`.
    AtMost {
        bound: f64,
    },
}

impl Relation {
    pub fn base(&self) -> Option<&Base> {
        match self {
            Relation::Faster { base, .. } | Relation::Ratio { base, .. } => Some(base),
            _ => None,
        }
    }

    pub const fn equal_to(base: Base) -> Self {
        Self::times(1.0, base)
    }

    /// Predicts that the metric is exactly `factor` times the base's.
    pub const fn times(factor: f64, base: Base) -> Self {
        Relation::Ratio {
            base,
            at_least: factor,
            at_most: factor,
        }
    }
}

impl Claim {
    /// Claims to be faster than `base` on mission, with f16 and, as a claim of its own, E4M3.
    pub const fn faster(family: &'static str, base: Base, at_least: f64) -> Self {
        Self {
            family,
            metrics: &[Metric::P50],
            relation: Relation::Faster { base, at_least },
            problems: BOTH,
            why: "",
        }
    }

    pub const fn faster_on(
        family: &'static str,
        base: Base,
        problems: &'static [Where],
        at_least: f64,
    ) -> Self {
        Self {
            problems,
            ..Self::faster(family, base, at_least)
        }
    }

    /// Claims that `metrics` are 0 on mission, with each element type.
    pub const fn none(family: &'static str, metrics: &'static [Metric], why: &'static str) -> Self {
        Self {
            family,
            metrics,
            relation: Relation::AtMost { bound: 0.0 },
            problems: BOTH,
            why,
        }
    }

    /// Claims that computing warpgroups neither load fragments from shared memory nor store them.
    pub const fn by_descriptor(family: &'static str) -> Self {
        Self::none(
            family,
            &[
                Metric::LoopHmma,
                Metric::LoopLdsm,
                Metric::LoopLds,
                Metric::LoopSts,
            ],
            "the warpgroups that compute touch shared memory by descriptor alone",
        )
    }

    /// Claims to be `at_least` times as fast as the fastest peer.
    pub const fn over_peers(
        family: &'static str,
        problems: &'static [Where],
        at_least: f64,
    ) -> Self {
        Self::over(family, Rival::FastestPeer, problems, at_least)
    }

    pub const fn over(
        family: &'static str,
        rival: Rival,
        problems: &'static [Where],
        at_least: f64,
    ) -> Self {
        Self {
            family,
            metrics: &[Metric::P50],
            relation: Relation::FasterThanPeer { rival, at_least },
            problems,
            why: "",
        }
    }
}

/// A problem by its shape's name, on any GPU or on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Where {
    /// `mission`.
    pub shape: &'static str,
    pub dtype: Dtype,
    pub mask: Mask,
    /// The GPU, such as `NVIDIA L4`: on others nothing is predicted.
    pub gpu: Option<&'static str>,
}

impl Where {
    pub const fn f16(shape: &'static str) -> [Self; 2] {
        Self::both_masks(shape, Dtype::F16)
    }

    pub const fn e4m3(shape: &'static str) -> [Self; 2] {
        Self::both_masks(shape, Dtype::E4m3)
    }

    pub const fn bf16(shape: &'static str) -> [Self; 2] {
        Self::both_masks(shape, Dtype::Bf16)
    }

    /// Returns the problems under one mask, in each element type.
    pub const fn each_type(shape: &'static str, mask: Mask) -> [Self; 3] {
        [
            Self::new(shape, Dtype::F16, mask),
            Self::new(shape, Dtype::E4m3, mask),
            Self::new(shape, Dtype::Bf16, mask),
        ]
    }

    const fn both_masks(shape: &'static str, dtype: Dtype) -> [Self; 2] {
        [
            Self::new(shape, dtype, Mask::Full),
            Self::new(shape, dtype, Mask::Causal),
        ]
    }

    pub const fn new(shape: &'static str, dtype: Dtype, mask: Mask) -> Self {
        Self {
            shape,
            dtype,
            mask,
            gpu: None,
        }
    }

    pub const fn on_gpu(self, gpu: &'static str) -> Self {
        Self {
            gpu: Some(gpu),
            ..self
        }
    }
}

pub const BOTH: &[Where] = &[mission(Dtype::F16), mission(Dtype::E4m3)];
pub const F16: &[Where] = &[mission(Dtype::F16)];
pub const E4M3: &[Where] = &[mission(Dtype::E4m3)];

const fn mission(dtype: Dtype) -> Where {
    Where::new("mission", dtype, Mask::Full)
}

named! {
    /// A peer that a claim is about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Rival {
        FastestPeer = "the fastest peer",
        /// The fastest right backend of PyTorch's `scaled_dot_product_attention`.
        FastestPyTorch = "the fastest of PyTorch",
        /// The FlashAttention backend of PyTorch.
        PyTorchFlash = "PyTorch's flash",
    }
}

impl Rival {
    /// Returns whether the peer of this name is one.
    pub fn is(self, peer: &str) -> bool {
        match self {
            Rival::FastestPeer => true,
            Rival::FastestPyTorch => peer.starts_with("torch-"),
            Rival::PyTorchFlash => peer == "torch-flash",
        }
    }
}

/// The family that a claim compares with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    pub stage: &'static str,
    pub family: &'static str,
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.stage, self.family)
    }
}
