//! What of an operand a warp reads.

/// The part of A, in shared memory, that each warp of a warpgroup reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperandRule {
    /// All of it: the PTX ISA gives no warp a part of its own.
    #[default]
    Whole,
    /// The 16 rows of its accumulators. FlashAttention-3 counts on it where a warp writes its rows
    /// of P and meets no other warp before the product
    /// (`hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp`, `arrive_on_P_write_barrier`).
    OwnRows,
}
