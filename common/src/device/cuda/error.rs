//! What can go wrong between the host and a GPU; the messages say what each variant and field is.

use crate::timing::stats::SampleError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchName {
    pub stage: String,
    pub variant: String,
    /// Shape, dtype and mask; empty for a kernel without a problem.
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

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CudaError {
    #[error(
        "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or run on the \
         emulator"
    )]
    NoDriver,
    #[error(
        "the NVIDIA driver supports CUDA {}.{}, this program needs {}.{}: install driver 580 or \
         later",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        needed: (u32, u32),
        found: (u32, u32),
    },
    #[error(
        "no GPU number {ordinal}: the driver sees {count} (CUDA_VISIBLE_DEVICES limits what it \
         shows)"
    )]
    NoDevice { ordinal: usize, count: usize },
    #[error(
        "{stage} holds no GPU code: it was built without nvcc; put nvcc on PATH or name it in \
         NVCC, and build again"
    )]
    NotBuilt { stage: String },
    #[error(
        "{stage}: no code of {symbol} for compute capability {major}.{minor} ({error}); add \
         sm_{major}{minor} to ATTENTION_CUDA_ARCHS and build again",
        major = capability.0,
        minor = capability.1
    )]
    NoCode {
        stage: String,
        /// The entry, or `any kernel`.
        symbol: String,
        capability: (u32, u32),
        error: DriverError,
    },
    #[error(
        "{launch} needs {needed} bytes of shared memory per block, this device has {available}"
    )]
    SharedMemory {
        launch: Box<LaunchName>,
        needed: usize,
        available: usize,
    },
    #[error("{launch}: the kernel failed: {error}")]
    Launch {
        launch: Box<LaunchName>,
        error: DriverError,
    },
    #[error("{launch}: the kernel changed the scales of {tensor}, an input")]
    ScalesChanged {
        launch: Box<LaunchName>,
        tensor: &'static str,
    },
    #[error("{launch}: the kernel wrote to memory that it was not given, a copy of {tensor}")]
    StrayWrite {
        launch: Box<LaunchName>,
        tensor: &'static str,
    },
    /// Gate C6 would pass whatever a kernel wrote.
    #[error(
        "the kernel that compares arrays says that equal ones differ, or that others do not: \
         `compare doctor` shows the driver and the GPU to report"
    )]
    Compares,
    /// The context cannot be recovered: the process must exit.
    #[error(
        "{launch}: no end after {:.1} s; a kernel that hangs takes its context with it, so this \
         process must exit",
        waited.as_secs_f64()
    )]
    Hang {
        launch: Box<LaunchName>,
        waited: Duration,
    },
    /// An earlier error left the context unusable.
    #[error("an earlier CUDA error is sticky: this context is unusable; start a new process")]
    Sticky,
    #[error("{doing}: {error}")]
    Driver {
        doing: &'static str,
        error: DriverError,
    },
    #[error(
        "an arm needs at least one set of inputs, all of one problem; got {sets} sets of \
         {problems} problems"
    )]
    Sets { sets: usize, problems: usize },
    #[error("{base} and {new} do not rotate over the same inputs; build both arms on one pool")]
    Unlike { base: String, new: String },
    #[error("{arm} was built on another GPU; measure it there")]
    Foreign { arm: String },
    /// A variable of the environment that would falsify the timing.
    #[error("{variable} is set: {remedy}")]
    Environment {
        variable: &'static str,
        remedy: &'static str,
    },
    #[error(
        "{launch}: the graph holds {kernels} kernel nodes of {nodes} nodes, {expected} kernels \
         were put in"
    )]
    GraphNodes {
        launch: Box<LaunchName>,
        expected: usize,
        kernels: usize,
        nodes: usize,
    },
    /// The clocks contradict each other.
    #[error("{launch}: the timer contradicts itself: {reason}")]
    Timer {
        launch: Box<LaunchName>,
        reason: String,
    },
    #[error("{launch}: {error}")]
    Samples {
        launch: Box<LaunchName>,
        error: SampleError,
    },
}

impl CudaError {
    /// Returns whether every later call fails or blocks, so that the process should report and
    /// exit; after a hang, without waiting for the GPU.
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

/// Returns whether "the process must be terminated and relaunched" after an error (CUDA driver API,
/// CUresult).
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
