//! A functional SIMT emulator that runs CUDA kernels compiled by the host C++ compiler.
//!
//! `kernel.cu` is compiled unchanged against the shim in `include/`; each CUDA thread becomes a
//! coroutine, a block runs on one OS thread, and blocks run in parallel. Warp-wide operations are a
//! real rendezvous of their lanes, shared memory starts as NaN, and a cp.async or a box of TMA
//! lands as late as its wait allows (or, under one schedule, a box at once), so that a kernel which
//! only works by luck fails here. Not modelled: time, weak memory, and how tensor cores round FP16
//! products, which are exact and summed in FP32, in ascending k. Products of E4M3 codes are added
//! up in as few bits as on Hopper.
//!
//! The layers, each of which knows only those above it in this list:
//!
//! - plain data: the blocks of a cluster, faults, the launch (`grid`), places of the program
//!   (`source`, `calls`, `site`);
//! - the judge of the traced build's accesses: clocks, order, shadow memory, hazards, counters;
//!   tested without C++;
//! - [`Schedule`] and the block's state (`warp`, `mbarrier`, `tma`, `wgmma`, `registers`, `block`)
//!   decide who runs next and who waits for whom; tested without C++;
//! - a running block as its threads see it (`run`), what stops it from outside (`crash`), and the
//!   worker that owns their coroutines, their pooled stacks and the block's shared memory;
//! - [`launch()`] runs a grid of the plain build, [`trace`] one of the traced build;
//! - the FFI module, by which C++ comes in (`include/emulator/abi.h` is its other side).

mod async_copy;
mod block;
mod calls;
mod cluster;
mod crash;
mod extent;
mod fault;
mod ffi;
pub mod footprint;
mod grid;
pub mod guest;
mod heap;
mod intern;
mod judge;
mod launch;
mod layout;
mod mbarrier;
mod registers;
mod run;
mod schedule;
mod site;
mod source;
mod stack;
mod tensor_map;
mod tma;
pub mod trace;
mod warp;
mod wgmma;
mod worker;

pub use cluster::MAX_SHARED_BYTES;
pub use extent::BlockIndex;
pub use fault::{Fault, Party, Place, Waiting, Waits};
pub use grid::{Entry, Launch, MAX_CLUSTER};
pub use launch::{launch, launch_counted};
pub use schedule::{Delays, Schedule};
pub use tensor_map::{MAX_DIMENSIONS, TensorMap, TensorMapError, TiledMap};
pub use trace::TraceReport;
