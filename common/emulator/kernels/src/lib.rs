//! One small kernel per primitive, and broken twins: what the emulator is tested on.
//!
//! The kernels are in `cu/`, the expectations in `tests/`.

use std::ffi::c_void;

/// The twin of `KernelParams` in `cu/kernel.h`: one params struct for all test kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelParams {
    /// Buffers that the kernel reads.
    pub input: [*const c_void; 3],
    /// Buffers that it writes.
    pub output: [*mut c_void; 2],
    /// Whatever else the kernel wants to know.
    pub numbers: [i32; 4],
}

macro_rules! kernels {
    ($($name:ident)*) => {
        /// The kernels, by the name they have in `cu/`.
        #[allow(missing_docs, reason = "each is described where it is written")]
        pub mod entry {
            use std::ffi::c_void;

            #[link(name = "emulator_kernels", kind = "static")]
            unsafe extern "C-unwind" {
                $(pub fn $name(params: *const c_void);)*
            }
        }
    };
}

kernels! {
    arithmetic barrier_at_two_lines barrier_missed_by_one barriers_only builtins cp_async_groups cp_async_misused
    cp_async_sizes cp_async_to_global cp_async_waited_by double_to_half e4m3_to_half exit_completes_sync_warp
    failing_assert float_to_e4m3 float_to_half fma_only half2_operations half_arithmetic half_to_float
    mask_without_the_caller masks_that_overlap partial_sync_warp read_unset reverse reverse_without_barrier
    shuffle_from_exited_lane shuffle_meets_sync_warp shuffle_of_odd_width shuffle_outside_its_mask
    shuffle_waits_for_a_lane_at_the_barrier shuffles shuffles_only sync_warp_after_exit trap_in_one_thread vector_copy
    votes warp_sum warp_waits_for_a_lane_at_the_barrier wmma_32x8_row_col wmma_8x32_col_row wmma_after_exit
    wmma_col_col wmma_col_row wmma_half_accumulator wmma_misaligned wmma_only wmma_pointers_differ wmma_registers
    wmma_row_col wmma_row_row write_shared_at
}
