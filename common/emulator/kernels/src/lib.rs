//! One small kernel per primitive, and broken counterparts: what the emulator is tested on.
//!
//! The kernels are in `cu/`, the expectations in `tests/`.

use std::ffi::c_void;

/// `KernelParams` in `cu/kernel.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelParams {
    pub input: [*const c_void; 3],
    pub output: [*mut c_void; 2],
    pub numbers: [i32; 4],
}

include!(concat!(env!("OUT_DIR"), "/gpu.rs"));

macro_rules! kernels {
    ($($name:ident)*) => {
        mod entry {
            use std::ffi::c_void;

            #[link(name = "emulator_kernels", kind = "static")]
            unsafe extern "C-unwind" {
                $(pub fn $name(params: *const c_void);)*
            }
        }

        mod traced {
            use std::ffi::c_void;

            #[link(name = "emulator_kernels_traced", kind = "static")]
            unsafe extern "C-unwind" {
                $(
                    #[link_name = concat!("traced_", stringify!($name))]
                    pub fn $name(params: *const c_void);
                )*
            }
        }

        /// Plain and traced entry, by name.
        pub const KERNELS: &[(&str, [emulator::Entry; 2])] =
            &[$((stringify!($name), [entry::$name, traced::$name])),*];
    };
}

kernels! {
    accumulate_registers arithmetic barrier_at_two_lines barrier_in_one_branch barrier_missed_by_one blocks_hand_over
    blocks_overlap builtins cluster_barrier_missed cluster_exchange cluster_of_one
    copied_by_a_producer copied_one_ahead copy_from_far copy_source_overwritten copy_without cp_async_groups cp_async_misused
    cp_async_of_each_size cp_async_to_global divides e4m3_to_half elect_one
    exit_completes_sync_warp failing_assert far_from_any_memory float_to_half global_within_block
    groups_of_ones_own half_to_float lanes_then_ldmatrix lanes_then_matrix
    ldmatrix_and_mma ldmatrix_misused ldmatrix_x2 ldmatrix_x2_trans ldmatrix_x4 ldmatrix_x4_trans loops_for_ever
    mask_without_the_caller masks_that_overlap matrix_in_place matrix_then_lanes mbarrier_misused mbarrier_phases
    mbarrier_ring mma_m16n8k16_bf16_f32 mma_m16n8k16_f16_f32 mma_m16n8k32_e4m3_f32 named_barrier_by_half_a_warp
    named_barrier_of_each_pair named_barrier_of_too_many named_barrier_of_two_counts named_barrier_that_is_not_there named_barrier_twice named_barriers_differ
    named_barriers_hand_over named_barriers_of_pairs partial_sync_warp phase_that_a_waiter_misses read_uninitialised
    reverse reverse_without_barrier ring ring_by_stores ring_without_free_slots roles_with_flags
    roles_with_unequal_barriers
    row_by_named_barrier row_of_input rows_one_too_many shuffle_from_exited_lane shuffle_meets_sync_warp
    shuffle_of_odd_width shuffle_outside_its_mask shuffle_waits_for_a_lane_at_the_barrier shuffles
    snippet_bytes snippet_copy_16 snippet_copy_48 snippet_copy_variable snippet_half snippet_half2 snippet_local_array
    snippet_scalar snippet_set snippet_struct snippet_twice snippet_vector snippet_vector_braces snippet_vector_chosen
    snippet_vector_made snippet_vector_member store_before_copies_arrive sum_of_registers sync_warp_after_exit tile_copied_by_one_warp
    tiles_by_helpers tma_box tma_expects tma_misused tma_refill tma_ring tma_store_box tma_store_tiles
    trap_in_one_thread variables_of_the_program vector_at vector_copy votes warp_ping_pong warp_sum warp_waits_for_a_lane_at_the_barrier
    wmma_32x8_row_col wmma_8x32_col_row wmma_after_exit wmma_col_col wmma_col_row wmma_half_accumulator
    wmma_misaligned wmma_pointers_differ wmma_registers wmma_row_col wmma_row_row wmma_stores
    words_read_again_and_again write_shared_at
    registers_misused stmatrix_then_lanes wgmma_attention wgmma_misused wgmma_of_boxes wgmma_ring
    bfloat16_to_float float_to_bfloat16 wgmma_bf16_64 wgmma_bf16_slabs wgmma_bf16_narrow wgmma_bf16_trans_96 wgmma_bf16_registers wgmma_bf16_registers_trans
    registers_change_hands stmatrix_x4 wgmma_e4m3_128 wgmma_e4m3_192 wgmma_e4m3_64 wgmma_e4m3_narrow
    wgmma_e4m3_registers wgmma_e4m3_registers_128 wgmma_e4m3_slabs wgmma_f16_128 wgmma_f16_192 wgmma_f16_64
    wgmma_f16_96 wgmma_f16_narrow wgmma_f16_narrow_slabs wgmma_f16_registers wgmma_f16_registers_trans
    wgmma_f16_registers_trans_128 wgmma_f16_slabs wgmma_f16_trans_128 wgmma_f16_trans_192 wgmma_f16_trans_64
    wgmma_f16_trans_96 wgmma_f16_trans_narrow wgmma_two_groups
}
