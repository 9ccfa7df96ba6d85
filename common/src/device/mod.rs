//! The two backends behind one interface: the emulator, and a GPU through the CUDA driver.

pub mod cuda;
pub mod emulated;

use crate::gate::Probe;
use crate::image::{Image, Layout};
use crate::inputs::{Inputs, Operand};
use crate::params::{AttentionParams, AttentionTensor};
use crate::problem::{Mask, Problem};
use crate::stage::{LoadedStage, Prepared, Unsupported};
use serde::{Deserialize, Serialize};

/// Where a kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// The functional emulator on this machine's processor.
    Emulated,
    /// An NVIDIA GPU.
    Cuda,
}
