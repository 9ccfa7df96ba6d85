//! What can go wrong between the host and a GPU, each with what was expected and what to do.

use crate::timing::stats::SampleError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use std::fmt;
use std::time::Duration;

/// Which launch an error belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchName {
    /// The stage's id, or what stands for one.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// Shape, dtype and mask; empty for a kernel that takes no problem.
    pub problem: String,
}

impl fmt::Display for LaunchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stage, self.variant)?;
        if self.problem.is_empty() {
            Ok(())
        } else {
            write!(f, " on {}", self.problem)
        }
    }
}

/// Why the GPU backend could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// The driver's library is not installed.
    #[error(
        "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or run on the emulator"
    )]
    NoDriver,
    /// The driver is older than the interface that this program uses.
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, this program needs {}.{}: install driver 580 or later",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        /// CUDA version that is needed: major, minor.
        needed: (u32, u32),
        /// CUDA version that the driver supports.
        found: (u32, u32),
    },
    /// There is no such GPU.
    #[error(
        "no GPU number {ordinal}: the driver sees {count} (CUDA_VISIBLE_DEVICES limits what it shows)"
    )]
    NoDevice {
        /// The number asked for, from 0.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The stage was built without nvcc.
    #[error(
        "{stage} holds no GPU code: it was built without nvcc; put nvcc on PATH or name it in NVCC, and build again"
    )]
    NotBuilt {
        /// The stage.
        stage: String,
    },
    /// The stage's GPU code holds nothing for this device, or not this entry.
    #[error("{stage}: no code of {symbol} for compute capability {}.{} ({error}); build for this architecture", capability.0, capability.1)]
    NoCode {
        /// The stage.
        stage: String,
        /// The entry, or `any kernel`.
        symbol: String,
        /// What the device is.
        capability: (u32, u32),
        /// What the driver said.
        error: DriverError,
    },
    /// The kernel asks for more shared memory than a block can have.
    #[error(
        "{launch} needs {needed} bytes of shared memory per block, this device has {available}"
    )]
    SharedMemory {
        /// The launch.
        launch: Box<LaunchName>,
        /// Static and dynamic bytes of one block.
        needed: usize,
        /// The device's opt-in limit.
        available: usize,
    },
    /// The launch was refused, or the kernel died.
    #[error("{launch}: the kernel failed: {error}")]
    Launch {
        /// The launch.
        launch: Box<LaunchName>,
        /// What the driver said.
        error: DriverError,
    },
    /// The kernel wrote into the scales of an E4M3 input.
    #[error("{launch}: the kernel changed the scales of {tensor}, an input")]
    ScalesChanged {
        /// The launch.
        launch: Box<LaunchName>,
        /// `q`, `k` or `v`.
        tensor: &'static str,
    },
    /// The kernel did not end. The context cannot be recovered: the process must exit.
    #[error("{launch}: no end after {:.1} s; a kernel that hangs takes its context with it, so this process must exit", waited.as_secs_f64())]
    Hang {
        /// The launch.
        launch: Box<LaunchName>,
        /// How long the host waited.
        waited: Duration,
    },
    /// An earlier error left the context unusable.
    #[error("an earlier CUDA error is sticky: this context is unusable; start a new process")]
    Sticky,
    /// A call of the driver failed.
    #[error("{doing}: {error}")]
    Driver {
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        error: DriverError,
    },
    /// Timing was asked for without inputs, or with inputs of several problems.
    #[error(
        "an arm needs at least one set of inputs, all of one problem; got {sets} sets of {problems} problems"
    )]
    Sets {
        /// Sets given.
        sets: usize,
        /// Different problems among them.
        problems: usize,
    },
    /// Two arms that do not work on the same inputs were to be compared.
    #[error("{base} and {new} do not rotate over the same inputs; build both arms on one pool")]
    Unlike {
        /// One arm.
        base: String,
        /// The other.
        new: String,
    },
    /// An arm was given to another device than the one that built it.
    #[error("{arm} was built on another GPU; measure it there")]
    Foreign {
        /// The arm.
        arm: String,
    },
    /// The environment would falsify the timing.
    #[error("{variable} is set: {remedy}")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// What it does and what to do.
        remedy: &'static str,
    },
    /// The graph does not hold what was put into it.
    #[error(
        "{launch}: the graph holds {kernels} kernel nodes of {nodes} nodes, {expected} kernels were put in"
    )]
    GraphNodes {
        /// The launch.
        launch: Box<LaunchName>,
        /// Kernels put in.
        expected: usize,
        /// Kernel nodes found.
        kernels: usize,
        /// Nodes found.
        nodes: usize,
    },
    /// The clocks contradict each other: no figure can be trusted.
    #[error("{launch}: the timer contradicts itself: {reason}")]
    Timer {
        /// The launch.
        launch: Box<LaunchName>,
        /// Which two figures.
        reason: String,
    },
    /// The samples cannot be summarised.
    #[error("{launch}: {error}")]
    Samples {
        /// The launch.
        launch: Box<LaunchName>,
        /// Why.
        error: SampleError,
    },
}

impl CudaError {
    /// Whether the error is sticky: every later call on this device fails or blocks, so the process should report and
    /// exit. After a hang it must exit without waiting for the GPU.
    pub fn is_fatal(&self) -> bool {
        match self {
            CudaError::Hang { .. } | CudaError::Sticky => true,
            CudaError::Launch { error, .. }
            | CudaError::Driver { error, .. }
            | CudaError::NoCode { error, .. } => is_sticky(error.0),
            _ => false,
        }
    }
}

/// Errors after which the driver says "the process must be terminated and relaunched" (CUDA driver API, CUresult).
fn is_sticky(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Box<LaunchName> {
        Box::new(LaunchName {
            stage: "stage0-scalar".to_string(),
            variant: "wmma-qk-32x64".to_string(),
            problem: "1x8x512x64 f16 full".to_string(),
        })
    }

    #[test]
    fn a_hang_names_the_launch_and_is_fatal() {
        let hang = CudaError::Hang {
            launch: launch(),
            waited: Duration::from_secs(10),
        };
        assert!(hang.is_fatal());
        let text = hang.to_string();
        assert!(
            text.starts_with(
                "stage0-scalar/wmma-qk-32x64 on 1x8x512x64 f16 full: no end after 10.0 s"
            ),
            "{text}"
        );
    }

    #[test]
    fn sticky_errors_are_fatal_wherever_they_come_up_and_others_are_not() {
        for (code, fatal) in [
            (CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, true),
            (CUresult::CUDA_ERROR_INVALID_VALUE, false),
        ] {
            let error = DriverError(code);
            let (stage, symbol) = ("stage0-scalar".to_string(), "any kernel".to_string());
            assert_eq!(
                CudaError::Launch {
                    launch: launch(),
                    error
                }
                .is_fatal(),
                fatal,
                "{code:?}"
            );
            assert_eq!(
                CudaError::Driver {
                    doing: "copying",
                    error
                }
                .is_fatal(),
                fatal,
                "{code:?}"
            );
            assert_eq!(
                CudaError::NoCode {
                    stage,
                    symbol,
                    capability: (9, 0),
                    error
                }
                .is_fatal(),
                fatal,
                "{code:?}"
            );
        }
        assert!(!CudaError::NoDriver.is_fatal());
        assert!(
            !CudaError::NotBuilt {
                stage: "stage0-scalar".to_string()
            }
            .is_fatal()
        );
    }

    #[test]
    fn an_old_driver_is_told_both_versions() {
        let text = CudaError::DriverTooOld {
            needed: (13, 0),
            found: (12, 4),
        }
        .to_string();
        assert!(
            text.contains("supports CUDA 12.4") && text.contains("needs 13.0"),
            "{text}"
        );
    }
}
