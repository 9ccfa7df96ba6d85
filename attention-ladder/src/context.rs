//! The context that a call runs in. Code and tensor maps belong to none, so a launch goes to the
//! caller's: to the stream's own context, and on a default stream to the one that is current, which
//! may be a green one or of the caller's making.

use crate::failure::Failure;
use common::device::cuda::CudaError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult, CUstream};
use std::sync::OnceLock;

/// The context of a caller that has none: the one that the CUDA runtime uses. Made by the first
/// call that needs it, and kept.
#[derive(Default)]
pub struct Primary(OnceLock<Result<Handle, DriverError>>);

#[derive(Clone, Copy)]
struct Handle(CUcontext);

// SAFETY: a handle of the driver, which any thread may use and which is never given back.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Primary {
    fn get(&self, device: CUdevice) -> Result<CUcontext, DriverError> {
        let handle = self.0.get_or_init(|| {
            let mut context = std::ptr::null_mut();
            // SAFETY: writes one handle.
            unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) }
                .result()
                .map(|()| Handle(context))
        });
        handle.map(|Handle(context)| context)
    }
}

/// A context of one GPU, current on this thread until it is dropped.
pub struct Current {
    is_pushed: bool,
}

impl Current {
    /// Stays in the current context where it is one of `device`; else enters the stream's, and for
    /// a default stream the primary one.
    pub fn enter(device: CUdevice, primary: &Primary, stream: CUstream) -> Result<Self, Failure> {
        let mut current = 0;
        // SAFETY: writes one number.
        match unsafe { sys::cuCtxGetDevice(&mut current) } {
            CUresult::CUDA_SUCCESS if current == device => return Ok(Self { is_pushed: false }),
            CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_INVALID_CONTEXT => {}
            error => return Err(entering(DriverError(error))),
        }
        let context = if is_default(stream) {
            primary.get(device)
        } else {
            context_of(stream)
        }
        .map_err(entering)?;
        // SAFETY: the primary context is retained as long as the process lives, and the caller's
        // stream keeps its own.
        let pushed = unsafe { sys::cuCtxPushCurrent_v2(context) };
        pushed.result().map_err(entering)?;
        Ok(Self { is_pushed: true })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.is_pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: writes one handle; what was pushed above is on top.
            _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}

/// Returns whether a stream is null, `CU_STREAM_LEGACY` or `CU_STREAM_PER_THREAD`: streams of
/// whatever context is current.
fn is_default(stream: CUstream) -> bool {
    (stream as usize) <= 2
}

/// Returns the primary context for a green context's stream: the launch goes to the stream's own.
fn context_of(stream: CUstream) -> Result<CUcontext, DriverError> {
    let mut context = std::ptr::null_mut();
    let mut green = std::ptr::null_mut();
    // SAFETY: writes two handles; the stream is the caller's.
    unsafe { sys::cuStreamGetCtx_v2(stream, &mut context, &mut green) }
        .result()
        .map(|()| context)
}

fn entering(error: DriverError) -> Failure {
    let doing = "entering the GPU's context";
    CudaError::Driver { doing, error }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_legacy_and_per_thread_are_default_streams() {
        for number in [0_usize, 1, 2] {
            assert!(is_default(number as CUstream), "{number}");
        }
        assert!(!is_default(3_usize as CUstream));
    }
}
