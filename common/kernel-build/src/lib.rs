//! Build-script library: nvcc to fatbin and resource report, host C++ to emulated kernel.
//!
//! Without features the crate is only [`report`], the types that a build writes and `common` reads
//! at run time. With the feature `build` it is what a stage's build script calls:
//! `fn main() { kernel_build::stage(); }`.
//!
//! Environment read by [`stage`], each of which reruns the build script when it changes:
//!
//! | variable | meaning | unset |
//! |---|---|---|
//! | `ATTENTION_CHECK` | anything: compile no kernel (see below) | |
//! | `ATTENTION_CUDA` | `auto`, `off` or `require` GPU code | `auto` |
//! | `ATTENTION_CUDA_ARCHS` | architectures of GPU code | `sm_89,sm_90a,compute_89`; in a release build `compute_80` for `compute_89` |
//! | `NVCC` | the nvcc to use, a path or a name on `PATH`; not there is an error | |
//! | `CUDA_HOME`, then `CUDA_PATH` | toolkits whose `bin/nvcc` is used; not there is a warning | |
//! | `NVCC_CCBIN` | nvcc's host compiler (read by nvcc) | `g++` |
//! | `CXX` and kin | the emulated build's compiler (read by the `cc` crate) | `c++` |
//!
//! `ATTENTION_CHECK` is for `cargo check`, Clippy and editors: what is built so does not link.
//! `ATTENTION_CUDA=auto` compiles GPU code where nvcc is found; with `require` it is an error that
//! nvcc is missing. Of the architectures, `sm_*` items become machine code and `compute_*` items
//! become PTX.
//!
//! After these `PATH` is searched, then the workspace's `.cuda/`, which `scripts/cuda-toolkit`
//! makes. `PATH` itself does not rerun the build script: it differs between a shell and an editor,
//! and every change would rebuild all stages.
//! `NVCC_PREPEND_FLAGS` and `NVCC_APPEND_FLAGS` are removed from nvcc's environment: flags that no
//! record names would let two builds differ under one identity. For the same reason `CXXFLAGS` and
//! its kin, flags in `CXX` and what `RUSTFLAGS` says of the processor are kept from the emulated
//! build, with a warning of cargo.
#![forbid(unsafe_code)]

pub mod report;
pub mod testing;

mod depfile;
mod emulated;
mod error;
mod gpu;
mod host;
mod identity;
mod parallel;
mod ptxas;
mod sass;
mod stage;
mod toolkit;

pub use emulated::{TRACED_FLAGS, gather};
pub use error::BuildError;
pub use host::host_build;
pub use stage::{build_stage, stage, stage_for, test_kernels, warn_without_gpu_code};
pub use toolkit::homes_without_nvcc;
