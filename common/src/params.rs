//! The host's side of the contract with the kernels: `params.h`, `launch.h` and
//! `served.h` of `common/cuda/attn`, through bindgen. Not edited by hand:
//! `UPDATE_BINDINGS=1 cargo test -p common --test bindings` rewrites it, and the same test finds it
//! out of date.
#![allow(
    missing_docs,
    non_upper_case_globals,
    clippy::all,
    rustdoc::broken_intra_doc_links
)]

#[doc = " Q, K, V in IEEE binary16"]
pub const AttentionDtype_ATTENTION_F16: AttentionDtype = 0;
#[doc = " Q, K, V in OCP FP8 E4M3FN, one f32 scale per batch and head: value = scale * code"]
pub const AttentionDtype_ATTENTION_E4M3: AttentionDtype = 1;
#[doc = " Q, K, V, O in bfloat16"]
pub const AttentionDtype_ATTENTION_BF16: AttentionDtype = 2;
pub type AttentionDtype = ::std::os::raw::c_uint;
pub const AttentionProbability_ATTENTION_P_E4M3: AttentionProbability = 8;
pub const AttentionProbability_ATTENTION_P_F16: AttentionProbability = 16;
pub const AttentionProbability_ATTENTION_P_BF16: AttentionProbability = 17;
pub const AttentionProbability_ATTENTION_P_F32: AttentionProbability = 32;
#[doc = " How exact P is where it meets V (gates C2 and C3): its type, or one of fewer bits where scores are exact enough for no more.\n The type's number of bits, but for bf16, which has as many as f16."]
pub type AttentionProbability = ::std::os::raw::c_uint;
#[doc = " every key is visible to every query"]
pub const AttentionMask_ATTENTION_FULL: AttentionMask = 0;
#[doc = " bottom-right aligned: key j is visible to query i iff j <= i + seq_kv - seq_q"]
pub const AttentionMask_ATTENTION_CAUSAL: AttentionMask = 1;
pub type AttentionMask = ::std::os::raw::c_uint;
#[doc = " One logical [batch, heads, rows, head_dim] tensor. head_dim is contiguous. Strides count elements; the base address\n and every stride in bytes are multiples of 16, so that a row can be read 16 bytes at a time."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AttentionTensor {
    #[doc = " address of element [0, 0, 0, 0]"]
    pub data: *mut ::std::os::raw::c_void,
    #[doc = " [batch, heads], dense; null unless the tensor is E4M3"]
    pub scales: *const f32,
    #[doc = " elements from [b, h, s, d] to [b + 1, h, s, d]"]
    pub batch_stride: i64,
    #[doc = " elements from [b, h, s, d] to [b, h + 1, s, d]"]
    pub head_stride: i64,
    #[doc = " elements from [b, h, s, d] to [b, h, s + 1, d]"]
    pub row_stride: i64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionTensor"][::std::mem::size_of::<AttentionTensor>() - 40usize];
    ["Alignment of AttentionTensor"][::std::mem::align_of::<AttentionTensor>() - 8usize];
    ["Offset of field: AttentionTensor::data"]
        [::std::mem::offset_of!(AttentionTensor, data) - 0usize];
    ["Offset of field: AttentionTensor::scales"]
        [::std::mem::offset_of!(AttentionTensor, scales) - 8usize];
    ["Offset of field: AttentionTensor::batch_stride"]
        [::std::mem::offset_of!(AttentionTensor, batch_stride) - 16usize];
    ["Offset of field: AttentionTensor::head_stride"]
        [::std::mem::offset_of!(AttentionTensor, head_stride) - 24usize];
    ["Offset of field: AttentionTensor::row_stride"]
        [::std::mem::offset_of!(AttentionTensor, row_stride) - 32usize];
};
#[doc = " Everything a kernel reads besides its tiles. Passed by value; head_dim and dtype are compiled in."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AttentionParams {
    #[doc = " [batch, heads_q, seq_q, head_dim]"]
    pub q: AttentionTensor,
    #[doc = " [batch, heads_kv, seq_kv, head_dim]"]
    pub k: AttentionTensor,
    #[doc = " [batch, heads_kv, seq_kv, head_dim]"]
    pub v: AttentionTensor,
    #[doc = " [batch, heads_q, seq_q, head_dim], bf16 if Q is, else f16"]
    pub o: AttentionTensor,
    pub batch: i32,
    pub heads_q: i32,
    #[doc = " divides heads_q; query head h reads key head h / (heads_q / heads_kv)"]
    pub heads_kv: i32,
    pub seq_q: i32,
    pub seq_kv: i32,
    #[doc = " enum AttentionMask"]
    pub mask: i32,
    #[doc = " multiplies Q.K before the softmax; default 1 / sqrt(head_dim)"]
    pub softmax_scale: f32,
    #[doc = " zero; room for window, dropout and bias without an ABI break"]
    pub reserved: [u32; 7usize],
    #[doc = " [batch, heads_q, seq_q], dense: log(sum(exp(scaled scores of a row))); null: not wanted"]
    pub lse: *mut f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionParams"][::std::mem::size_of::<AttentionParams>() - 224usize];
    ["Alignment of AttentionParams"][::std::mem::align_of::<AttentionParams>() - 8usize];
    ["Offset of field: AttentionParams::q"][::std::mem::offset_of!(AttentionParams, q) - 0usize];
    ["Offset of field: AttentionParams::k"][::std::mem::offset_of!(AttentionParams, k) - 40usize];
    ["Offset of field: AttentionParams::v"][::std::mem::offset_of!(AttentionParams, v) - 80usize];
    ["Offset of field: AttentionParams::o"][::std::mem::offset_of!(AttentionParams, o) - 120usize];
    ["Offset of field: AttentionParams::batch"]
        [::std::mem::offset_of!(AttentionParams, batch) - 160usize];
    ["Offset of field: AttentionParams::heads_q"]
        [::std::mem::offset_of!(AttentionParams, heads_q) - 164usize];
    ["Offset of field: AttentionParams::heads_kv"]
        [::std::mem::offset_of!(AttentionParams, heads_kv) - 168usize];
    ["Offset of field: AttentionParams::seq_q"]
        [::std::mem::offset_of!(AttentionParams, seq_q) - 172usize];
    ["Offset of field: AttentionParams::seq_kv"]
        [::std::mem::offset_of!(AttentionParams, seq_kv) - 176usize];
    ["Offset of field: AttentionParams::mask"]
        [::std::mem::offset_of!(AttentionParams, mask) - 180usize];
    ["Offset of field: AttentionParams::softmax_scale"]
        [::std::mem::offset_of!(AttentionParams, softmax_scale) - 184usize];
    ["Offset of field: AttentionParams::reserved"]
        [::std::mem::offset_of!(AttentionParams, reserved) - 188usize];
    ["Offset of field: AttentionParams::lse"]
        [::std::mem::offset_of!(AttentionParams, lse) - 216usize];
};
#[doc = " What one compiled entry of a stage is: written by kernel.cu as constants, exported by the emulated build, read by\n Rust for both backends."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AttentionKernel {
    #[doc = " which of the stage's code paths: \"wmma_qk\""]
    pub family: *const ::std::os::raw::c_char,
    #[doc = " the preset: \"wmma_qk_32x64\""]
    pub variant: *const ::std::os::raw::c_char,
    #[doc = " name of the entry in the fatbin"]
    pub symbol: *const ::std::os::raw::c_char,
    #[doc = " enum AttentionDtype"]
    pub dtype: i32,
    #[doc = " 64 or 128"]
    pub head_dim: i32,
    #[doc = " query rows per thread block"]
    pub block_m: i32,
    #[doc = " keys per tile"]
    pub block_n: i32,
    #[doc = " threads per block"]
    pub threads: i32,
    #[doc = " second argument of __launch_bounds__"]
    pub min_blocks: i32,
    #[doc = " size of the carved dynamic shared memory"]
    pub dynamic_shared_bytes: i32,
    #[doc = " enum AttentionProbability"]
    pub probability_dtype: i32,
    #[doc = " 1 if it writes AttentionParams::lse where that is wanted, else 0"]
    pub lse: i32,
    #[doc = " one CUDA thread on the emulator"]
    pub emulated: ::std::option::Option<unsafe extern "C" fn(params: *const AttentionParams)>,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionKernel"][::std::mem::size_of::<AttentionKernel>() - 72usize];
    ["Alignment of AttentionKernel"][::std::mem::align_of::<AttentionKernel>() - 8usize];
    ["Offset of field: AttentionKernel::family"]
        [::std::mem::offset_of!(AttentionKernel, family) - 0usize];
    ["Offset of field: AttentionKernel::variant"]
        [::std::mem::offset_of!(AttentionKernel, variant) - 8usize];
    ["Offset of field: AttentionKernel::symbol"]
        [::std::mem::offset_of!(AttentionKernel, symbol) - 16usize];
    ["Offset of field: AttentionKernel::dtype"]
        [::std::mem::offset_of!(AttentionKernel, dtype) - 24usize];
    ["Offset of field: AttentionKernel::head_dim"]
        [::std::mem::offset_of!(AttentionKernel, head_dim) - 28usize];
    ["Offset of field: AttentionKernel::block_m"]
        [::std::mem::offset_of!(AttentionKernel, block_m) - 32usize];
    ["Offset of field: AttentionKernel::block_n"]
        [::std::mem::offset_of!(AttentionKernel, block_n) - 36usize];
    ["Offset of field: AttentionKernel::threads"]
        [::std::mem::offset_of!(AttentionKernel, threads) - 40usize];
    ["Offset of field: AttentionKernel::min_blocks"]
        [::std::mem::offset_of!(AttentionKernel, min_blocks) - 44usize];
    ["Offset of field: AttentionKernel::dynamic_shared_bytes"]
        [::std::mem::offset_of!(AttentionKernel, dynamic_shared_bytes) - 48usize];
    ["Offset of field: AttentionKernel::probability_dtype"]
        [::std::mem::offset_of!(AttentionKernel, probability_dtype) - 52usize];
    ["Offset of field: AttentionKernel::lse"]
        [::std::mem::offset_of!(AttentionKernel, lse) - 56usize];
    ["Offset of field: AttentionKernel::emulated"]
        [::std::mem::offset_of!(AttentionKernel, emulated) - 64usize];
};
#[doc = " A CUtensorMap on a GPU; the emulator encodes its own. Opaque to kernels, which hand its address to TMA."]
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone)]
pub struct AttentionTensorMap {
    pub opaque: [u64; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionTensorMap"][::std::mem::size_of::<AttentionTensorMap>() - 128usize];
    ["Alignment of AttentionTensorMap"][::std::mem::align_of::<AttentionTensorMap>() - 64usize];
    ["Offset of field: AttentionTensorMap::opaque"]
        [::std::mem::offset_of!(AttentionTensorMap, opaque) - 0usize];
};
#[doc = " One box of a map is `rows` rows of one head, and of each row `box_bytes` (64 or 128) that start at a column: a box\n lies in shared memory row by row, `box_bytes` apart, its 16-byte chunks swizzled by that width. Coordinates are column,\n row, head, batch; rows past the end of the sequence, or before its start, read as zero. Those past the end are not written, and a\n store must not begin before the start."]
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone)]
pub struct AttentionLaunch {
    pub params: AttentionParams,
    #[doc = " of those that the variant does not ask for, all bytes are zero"]
    pub q: AttentionTensorMap,
    pub k: AttentionTensorMap,
    pub v: AttentionTensorMap,
    pub o: AttentionTensorMap,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionLaunch"][::std::mem::size_of::<AttentionLaunch>() - 768usize];
    ["Alignment of AttentionLaunch"][::std::mem::align_of::<AttentionLaunch>() - 64usize];
    ["Offset of field: AttentionLaunch::params"]
        [::std::mem::offset_of!(AttentionLaunch, params) - 0usize];
    ["Offset of field: AttentionLaunch::q"][::std::mem::offset_of!(AttentionLaunch, q) - 256usize];
    ["Offset of field: AttentionLaunch::k"][::std::mem::offset_of!(AttentionLaunch, k) - 384usize];
    ["Offset of field: AttentionLaunch::v"][::std::mem::offset_of!(AttentionLaunch, v) - 512usize];
    ["Offset of field: AttentionLaunch::o"][::std::mem::offset_of!(AttentionLaunch, o) - 640usize];
};
#[doc = " What the launches of one compiled entry need: written by kernel.cu as constants, read by Rust for both backends. All\n zero for an entry that takes AttentionParams alone."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AttentionMaps {
    #[doc = " rows of one box; 0: no map of this operand"]
    pub q_box_rows: i32,
    pub k_box_rows: i32,
    pub v_box_rows: i32,
    pub o_box_rows: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionMaps"][::std::mem::size_of::<AttentionMaps>() - 16usize];
    ["Alignment of AttentionMaps"][::std::mem::align_of::<AttentionMaps>() - 4usize];
    ["Offset of field: AttentionMaps::q_box_rows"]
        [::std::mem::offset_of!(AttentionMaps, q_box_rows) - 0usize];
    ["Offset of field: AttentionMaps::k_box_rows"]
        [::std::mem::offset_of!(AttentionMaps, k_box_rows) - 4usize];
    ["Offset of field: AttentionMaps::v_box_rows"]
        [::std::mem::offset_of!(AttentionMaps, v_box_rows) - 8usize];
    ["Offset of field: AttentionMaps::o_box_rows"]
        [::std::mem::offset_of!(AttentionMaps, o_box_rows) - 12usize];
};
#[doc = " Sequence b has queries_of(b) rows of Q and O, and keys_of(b) rows of K and V; AttentionParams says the most that any has, as seq_q and\n seq_kv. Key j is visible to query i iff j is among the sequence's keys and\n   i + keys_of(b) - queries_of(b) - window_left <= j <= i + keys_of(b) - queries_of(b) + window_right\n where a negative window is none, and the causal mask is a window_right of 0.\n Arrays lie on the device and may change from launch to launch: no host reads them."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct AttentionServing {
    #[doc = " [batch + 1], ascending from 0: sequence b has rows q_starts[b] to q_starts[b + 1] - 1 of a Q and an O whose only batch is 0.\n Null: it has the seq_q rows of batch b."]
    pub q_starts: *const i32,
    #[doc = " [batch + 1]: likewise of K and V. Null: it has the seq_kv rows of batch b, or pages."]
    pub kv_starts: *const i32,
    #[doc = " [batch]: keys of each sequence, the first of those that it has; null: all"]
    pub kv_used: *const i32,
    #[doc = " [batch, pages_stride]: key j of sequence b is row j % page_rows of page pages[b, j / page_rows], a batch of K and V. Entries\n behind the last key are not read. Null: no pages."]
    pub pages: *const i32,
    #[doc = " [heads_q]: a logit that takes weight from every row of the head, and has no value; null: none"]
    pub sinks: *const f32,
    #[doc = " entries of a sequence"]
    pub pages_stride: i32,
    #[doc = " a power of two of at least 16; 0: no pages"]
    pub page_rows: i32,
    #[doc = " rows of the packed Q, and of each head of the packed log-sum-exps [heads_q, total_q]"]
    pub total_q: i32,
    #[doc = " keys before a query's own that it sees; negative: all"]
    pub window_left: i32,
    #[doc = " keys after a query's own that it sees, without a causal mask; negative: all"]
    pub window_right: i32,
    #[doc = " scaled scores s become softcap * tanh(s / softcap); 0: they stay"]
    pub softcap: f32,
    #[doc = " columns of Q, K, V and O, a multiple of 8; those behind, up to what is compiled, read as zero"]
    pub head_dim: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionServing"][::std::mem::size_of::<AttentionServing>() - 72usize];
    ["Alignment of AttentionServing"][::std::mem::align_of::<AttentionServing>() - 8usize];
    ["Offset of field: AttentionServing::q_starts"]
        [::std::mem::offset_of!(AttentionServing, q_starts) - 0usize];
    ["Offset of field: AttentionServing::kv_starts"]
        [::std::mem::offset_of!(AttentionServing, kv_starts) - 8usize];
    ["Offset of field: AttentionServing::kv_used"]
        [::std::mem::offset_of!(AttentionServing, kv_used) - 16usize];
    ["Offset of field: AttentionServing::pages"]
        [::std::mem::offset_of!(AttentionServing, pages) - 24usize];
    ["Offset of field: AttentionServing::sinks"]
        [::std::mem::offset_of!(AttentionServing, sinks) - 32usize];
    ["Offset of field: AttentionServing::pages_stride"]
        [::std::mem::offset_of!(AttentionServing, pages_stride) - 40usize];
    ["Offset of field: AttentionServing::page_rows"]
        [::std::mem::offset_of!(AttentionServing, page_rows) - 44usize];
    ["Offset of field: AttentionServing::total_q"]
        [::std::mem::offset_of!(AttentionServing, total_q) - 48usize];
    ["Offset of field: AttentionServing::window_left"]
        [::std::mem::offset_of!(AttentionServing, window_left) - 52usize];
    ["Offset of field: AttentionServing::window_right"]
        [::std::mem::offset_of!(AttentionServing, window_right) - 56usize];
    ["Offset of field: AttentionServing::softcap"]
        [::std::mem::offset_of!(AttentionServing, softcap) - 60usize];
    ["Offset of field: AttentionServing::head_dim"]
        [::std::mem::offset_of!(AttentionServing, head_dim) - 64usize];
};
#[doc = " One map has boxes of page_rows rows where pages are shorter than what the variant asks for (AttentionMaps). A batch of -1 is outside of\n the tensor: its box reads as zero."]
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone)]
pub struct AttentionServed {
    pub launch: AttentionLaunch,
    pub serving: AttentionServing,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of AttentionServed"][::std::mem::size_of::<AttentionServed>() - 896usize];
    ["Alignment of AttentionServed"][::std::mem::align_of::<AttentionServed>() - 64usize];
    ["Offset of field: AttentionServed::launch"]
        [::std::mem::offset_of!(AttentionServed, launch) - 0usize];
    ["Offset of field: AttentionServed::serving"]
        [::std::mem::offset_of!(AttentionServed, serving) - 768usize];
};
