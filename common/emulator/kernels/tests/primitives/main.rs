//! Every primitive of the shim on its own small kernel, against values computed another way; and
//! broken counterparts, each of which must be reported as what it is.

mod barrier;
mod builtins;
mod cluster;
mod cp_async;
mod detectors;
mod faults;
mod fp8;
mod gpu;
mod half_precision;
mod launch;
mod mbarrier;
mod named_barrier;
mod ptx;
mod reference;
mod reports;
mod schedule;
mod served_schedule;
mod shared_memory;
mod snippets;
mod suppression;
mod tma;
mod warp;
mod wgmma;
mod wmma;
