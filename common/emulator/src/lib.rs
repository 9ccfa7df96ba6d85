//! A functional SIMT emulator that runs CUDA kernels compiled by the host C++ compiler.
//!
//! `kernel.cu` is compiled unchanged against the shim in `include/`; each CUDA thread becomes a coroutine, a block runs
//! on one OS thread, and blocks run in parallel. Warp-wide operations are a real rendezvous of their lanes, shared
//! memory starts as NaN, and a cp.async lands as late as its wait allows, so that a kernel which only works by luck
//! fails here. What it computes is what CUDA defines; what it does not model is time, weak memory and the tensor
//! cores' own rounding: WMMA products are exact and summed in FP32, in ascending k.
//!
//! The parts, from policy to mechanism:
//! - [`Schedule`] and the block's state decide who runs next and who waits for whom; pure Rust, tested without C++;
//! - the worker owns the coroutines, their pooled stacks and the block's shared memory;
//! - [`trace`] judges and counts the accesses of the traced build; pure Rust, tested without C++;
//! - the FFI module is the only door between C++ and the scheduler (`include/emulator/abi.h` is its other side).

mod async_copy;
mod block;
mod fault;
mod ffi;
mod launch;
mod layout;
mod mbarrier;
mod schedule;
mod stack;
pub mod trace;
mod warp;
mod worker;

pub use fault::{Fault, Party, Place, Waiting, Waits};
pub use launch::{Entry, Launch, MAX_SHARED_BYTES, Report, launch, launch_blocks, launch_suppressed};
pub use schedule::Schedule;
pub use trace::{Suppress, TraceReport};
