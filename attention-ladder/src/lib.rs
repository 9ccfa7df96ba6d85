//! Attention forward on NVIDIA GPUs, as a library for C and anything that calls C;
//! `include/attention_ladder.h` is generated from this file.
//!
//! Memory, workspace, stream and context are the caller's. A launch neither allocates nor
//! synchronises once its kernel is loaded in the context, which [`attention_ladder_query`] does; it
//! can be captured into a CUDA graph. `choice/` decides which variant of which stage is launched:
//! the fastest by a model of this GPU, else of the nearest, among those that support the problem.
//! In a context that has a part of the GPU, such as a green one, it is the same variant.
//!
//! A release build without GPU code is refused unless `ATTENTION_CUDA=off` requests one; that
//! library says so when it is called.

mod call;
mod choice;
mod context;
mod failure;
mod gpu;
mod varlen;

pub use call::Checked;
use failure::{Code, Failure};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
pub use varlen::CheckedVarlen;

/// Success.
pub const ATTENTION_LADDER_OK: i32 = 0;
/// No kernel supports this problem, writes log-sum-exps for it, or runs on this device.
pub const ATTENTION_LADDER_UNSUPPORTED: i32 = 1;
/// An argument is wrong: a null pointer, an address or stride that is not a multiple of 16 bytes
/// (lse, scales: 4 bytes), an output that overlaps an input.
pub const ATTENTION_LADDER_INVALID: i32 = 2;
/// No driver, a driver that is too old, no such GPU, or a library built without GPU code.
pub const ATTENTION_LADDER_UNAVAILABLE: i32 = 3;
/// A CUDA driver call failed.
pub const ATTENTION_LADDER_DRIVER: i32 = 4;
/// An error in the library.
pub const ATTENTION_LADDER_INTERNAL: i32 = 5;

/// Q, K and V in IEEE binary16.
pub const ATTENTION_LADDER_F16: i32 = 0;
/// Q, K and V in OCP FP8 E4M3FN with one f32 scale per batch and head: value = scale * code.
pub const ATTENTION_LADDER_E4M3: i32 = 1;
/// Q, K, V and O in bfloat16.
pub const ATTENTION_LADDER_BF16: i32 = 2;

/// Every key is visible to every query.
pub const ATTENTION_LADDER_FULL: i32 = 0;
/// Bottom-right aligned: key j is visible to query i iff j <= i + seq_kv - seq_q. A query that sees
/// no key gives 0.
pub const ATTENTION_LADDER_CAUSAL: i32 = 1;

/// Bit of `flags`: the kernel is chosen by head_dim, dtype, mask, seq_q and seq_kv alone, so that a
/// sequence gives the same bits whatever else is in the batch. Slower where the grid is much
/// smaller or larger than that of 32 heads.
pub const ATTENTION_LADDER_BATCH_INVARIANT: i32 = 1;

/// A tensor [batch, heads, rows, head_dim] in GPU memory. head_dim is contiguous, and the address
/// is a multiple of 16 bytes. Where an extent is more than 1, its stride is a positive multiple of
/// 16 bytes; that of rows is at least head_dim.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttentionLadderTensor {
    /// Address of element [0, 0, 0, 0] on the GPU; may be null for a query.
    pub data: *mut c_void,
    /// [batch, heads] scales, dense, on the GPU, for Q, K and V in E4M3; else null. Each must be
    /// positive and finite, which is not checked: give a head of zeros the scale 1, since 0 turns
    /// masked keys into NaN.
    pub scales: *const f32,
    /// Elements from [b, h, s, d] to [b + 1, h, s, d].
    pub batch_stride: i64,
    /// Elements from [b, h, s, d] to [b, h + 1, s, d].
    pub head_stride: i64,
    /// Elements from [b, h, s, d] to [b, h, s + 1, d].
    pub row_stride: i64,
}

/// One attention forward call. Fill it with zeros first: later versions add fields at the end,
/// where 0 means what this version does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttentionLadderCall {
    /// [batch, heads_q, seq_q, head_dim]
    pub q: AttentionLadderTensor,
    /// [batch, heads_kv, seq_kv, head_dim]. Finite Q and K give finite results while scaled scores,
    /// and their sums on the way, are below 2^127. Scores are f32, which cannot distinguish keys
    /// whose scores differ by less than about 2^-24 of their size.
    pub k: AttentionLadderTensor,
    /// [batch, heads_kv, seq_kv, head_dim]. Where it is NaN or inf at a key that the mask hides,
    /// rows that do not see the key may be NaN, as in PyTorch: their weight is 0, and 0 * NaN is
    /// NaN. Weights of up to 1 are summed in f32 before they are normalised: bf16 values near the
    /// largest give inf where their sum over the keys exceeds f32, as in PyTorch's flash backend.
    pub v: AttentionLadderTensor,
    /// [batch, heads_q, seq_q, head_dim], bf16 where Q is, else f16. In memory of its own: one that
    /// overlaps q, k, v, scales, lse or itself is refused.
    pub o: AttentionLadderTensor,
    /// [batch, heads_q, seq_q], dense, on the GPU: log-sum-exp of each row's scaled scores, natural
    /// logarithm, -inf for a row that sees no key. Null: not wanted. For a query, any non-null
    /// address requests it.
    pub lse: *mut f32,
    /// ATTENTION_LADDER_F16, ATTENTION_LADDER_E4M3 or ATTENTION_LADDER_BF16.
    pub dtype: i32,
    /// ATTENTION_LADDER_FULL or ATTENTION_LADDER_CAUSAL.
    pub mask: i32,
    /// Number of sequences, at most 65,535; at least 1, like all extents.
    pub batch: i32,
    /// Number of query heads, at most 65,535.
    pub heads_q: i32,
    /// Key and value heads; divides heads_q: query head h reads key head h / (heads_q / heads_kv).
    pub heads_kv: i32,
    /// Query rows per head, at most 2^24.
    pub seq_q: i32,
    /// Keys per head, at most 2^24.
    pub seq_kv: i32,
    /// 64 or 128.
    pub head_dim: i32,
    /// Multiplies Q.K before the softmax; 0 means 1 / sqrt(head_dim).
    pub softmax_scale: f32,
    /// 0 or ATTENTION_LADDER_BATCH_INVARIANT.
    pub flags: i32,
}

/// One attention forward call on sequences, each with lengths of its own, which lie on the GPU: no
/// host reads them, so that a graph of launches stays valid while they change. Fill it with zeros
/// first, then set window_left and window_right, to -1 for none; later versions add fields at the
/// end, where 0 means what this version does. On GPUs of compute capability 9.0 alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AttentionLadderVarlenCall {
    /// With cu_seqlens_q [1, heads_q, total_q, head_dim], the sequences one after the other; else
    /// [batch, heads_q, max_seqlen_q, head_dim]. Its scales are null, and so are those of k and v but
    /// for kv_dtype.
    pub q: AttentionLadderTensor,
    /// With cu_seqlens_k [1, heads_kv, total_k, head_dim]; with block_table
    /// [pages, heads_kv, page_size, head_dim]; else [batch, heads_kv, max_seqlen_k, head_dim].
    pub k: AttentionLadderTensor,
    /// Like k. Rows behind a sequence's keys may hold anything.
    pub v: AttentionLadderTensor,
    /// Like q, of its type, in memory of its own: one that overlaps another array or tensor, or
    /// itself, is refused. Rows of no sequence are not written.
    pub o: AttentionLadderTensor,
    /// With cu_seqlens_q [heads_q, total_q], else [batch, heads_q, max_seqlen_q], dense, on the
    /// GPU: see AttentionLadderCall. Sinks are counted. Null: not wanted.
    pub lse: *mut f32,
    /// [batch + 1] on the GPU, ascending from 0 to at most total_q: the first row of each sequence
    /// of q and o, and the end of the last. Null: each has the max_seqlen_q rows of its batch.
    pub cu_seqlens_q: *const i32,
    /// [batch + 1] on the GPU, likewise of k and v. Null: they are padded, or in pages.
    pub cu_seqlens_k: *const i32,
    /// [batch] on the GPU: the keys of each sequence, the first of those that it has. Null: all,
    /// which are max_seqlen_k where k and v are padded or in pages.
    pub seqused_k: *const i32,
    /// [batch, block_table_stride] on the GPU: key j of sequence b is row j % page_size of page
    /// block_table[b, j / page_size]. Entries behind the last key are not read. Null: no pages.
    pub block_table: *const i32,
    /// [heads_q] on the GPU: a logit that takes weight from every row of the head, and has no
    /// value. Null: none.
    pub sinks: *const f32,
    /// ATTENTION_LADDER_F16 or ATTENTION_LADDER_BF16.
    pub dtype: i32,
    /// ATTENTION_LADDER_FULL, or ATTENTION_LADDER_CAUSAL: a window_right of 0. Aligned to the ends
    /// of each sequence's queries and keys.
    pub mask: i32,
    /// Number of sequences, at most 65,535; at least 1, like all extents.
    pub batch: i32,
    /// Number of query heads, at most 65,535.
    pub heads_q: i32,
    /// Key and value heads; divides heads_q: query head h reads key head h / (heads_q / heads_kv).
    pub heads_kv: i32,
    /// Queries of the longest sequence, at most 2^24; it bounds the number of blocks.
    pub max_seqlen_q: i32,
    /// Keys of the longest sequence, at most 2^24.
    pub max_seqlen_k: i32,
    /// A multiple of 8 up to 128.
    pub head_dim: i32,
    /// Rows of q and o; read with cu_seqlens_q alone.
    pub total_q: i32,
    /// Rows of k and v; read with cu_seqlens_k alone.
    pub total_k: i32,
    /// Pages of k and v; read with block_table alone, like the next two.
    pub pages: i32,
    /// Rows of a page: a power of two from 16 to 32,768.
    pub page_size: i32,
    /// Entries of block_table from sequence to sequence.
    pub block_table_stride: i32,
    /// Keys before a query's own that it sees; -1: all. Query i of a sequence stands at key
    /// i + keys - queries.
    pub window_left: i32,
    /// Keys behind a query's own that it sees; -1: all.
    pub window_right: i32,
    /// Scaled scores s become softcap * tanh(s / softcap); 0: they stay.
    pub softcap: f32,
    /// Multiplies Q.K before the softmax; 0 means 1 / sqrt(head_dim).
    pub softmax_scale: f32,
    /// 0.
    pub flags: i32,
    /// ATTENTION_LADDER_E4M3: k and v are in E4M3, and head_dim is a multiple of 16. Their scales
    /// are [batch, heads_kv], dense, on the GPU, one for each sequence and key head, wherever its
    /// keys lie: value = scale * code. Null: 1. With 0 k and v are of dtype, like q.
    pub kv_dtype: i32,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs `work`, keeps the message of a failure, and returns its code.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    // The driver's bindings panic where a driver lacks a function.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure::new(
            Code::Internal,
            "the library failed; standard error says where",
        ))
    });
    result.map_err(|failure| {
        let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
        LAST_ERROR.with(|last| *last.borrow_mut() = message);
        failure.code as i32
    })
}

fn code(result: Result<(), i32>) -> i32 {
    result.err().unwrap_or(ATTENTION_LADDER_OK)
}

/// Checks the call that `call` points to.
///
/// # Safety
/// `call` is null, or points to a call.
unsafe fn read(call: *const AttentionLadderCall) -> Result<Checked, Failure> {
    // SAFETY: what the caller promises.
    match unsafe { call.as_ref() } {
        Some(target) => Checked::new(target),
        None => Err(Failure::new(Code::Invalid, "call is null")),
    }
}

/// Checks the call that `call` points to.
///
/// # Safety
/// `call` is null, or points to a call.
unsafe fn read_varlen(call: *const AttentionLadderVarlenCall) -> Result<CheckedVarlen, Failure> {
    // SAFETY: what the caller promises.
    match unsafe { call.as_ref() } {
        Some(target) => CheckedVarlen::new(target),
        None => Err(Failure::new(Code::Invalid, "call is null")),
    }
}

/// Checks a call of Rust's: returns it if a kernel could take it on some GPU, with or without
/// addresses, else the code of the failure.
pub fn check(call: &AttentionLadderCall) -> Result<Checked, i32> {
    guarded(|| Checked::new(call))
}

/// Lets a call that is checked write to memory that was allocated since: an output, unless it has
/// one, and log-sum-exps, unless they are null.
pub fn write_to(
    call: &mut Checked,
    o: Option<&AttentionLadderTensor>,
    lse: *mut f32,
) -> Result<(), i32> {
    guarded(|| call.write_to(o, lse))
}

/// Does what [`attention_ladder_launch`] does, for a call that is checked.
///
/// # Safety
/// Its rules are those of [`attention_ladder_launch`].
pub unsafe fn launch(call: &Checked, device: i32, stream: *mut c_void) -> Result<(), i32> {
    // SAFETY: what the caller promises.
    guarded(|| unsafe { gpu::launch(call, device, stream) })
}

/// Does what [`attention_ladder_variant`] does, for a call that is checked.
pub fn variant(call: &Checked, device: i32) -> Result<&'static CStr, i32> {
    guarded(|| gpu::query(call, device))
}

/// Does what [`check`] does, for a call on sequences.
pub fn check_varlen(call: &AttentionLadderVarlenCall) -> Result<CheckedVarlen, i32> {
    guarded(|| CheckedVarlen::new(call))
}

/// Lets a call that is checked write to an output and to log-sum-exps, unless they are null, that
/// were allocated since.
pub fn write_varlen_to(
    call: &mut CheckedVarlen,
    o: &AttentionLadderTensor,
    lse: *mut f32,
) -> Result<(), i32> {
    guarded(|| call.write_to(o, lse))
}

/// Does what [`attention_ladder_varlen`] does, for a call that is checked.
///
/// # Safety
/// Its rules are those of [`attention_ladder_varlen`].
pub unsafe fn launch_varlen(
    call: &CheckedVarlen,
    device: i32,
    stream: *mut c_void,
) -> Result<(), i32> {
    // SAFETY: what the caller promises.
    guarded(|| unsafe { gpu::launch_varlen(call, device, stream) })
}

/// Returns the stage and variant that a launch of `call` uses.
pub fn varlen_variant(call: &CheckedVarlen, device: i32) -> Result<&'static CStr, i32> {
    guarded(|| gpu::query_varlen(call, device))
}

/// Returns ATTENTION_LADDER_OK if `call` can be launched on GPU number `device` of the driver (from
/// 0), else the reason. Loads the kernel in the context that attention_ladder_launch uses for a
/// default stream, so that a launch of the same problem there allocates nothing. Addresses may be
/// null.
///
/// # Safety
/// `call` is null, or points to a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn attention_ladder_query(
    call: *const AttentionLadderCall,
    device: i32,
) -> i32 {
    code(guarded(|| {
        // SAFETY: what the caller promises.
        let checked = unsafe { read(call) }?;
        gpu::query(&checked, device).map(drop)
    }))
}

/// Returns the stage and variant that a launch of `call` uses, such as
/// "stage13-persistent/persistent-128x128"; null if there is none, for the reason that
/// attention_ladder_last_error returns. The string lives as long as the process.
///
/// # Safety
/// `call` is null, or points to a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn attention_ladder_variant(
    call: *const AttentionLadderCall,
    device: i32,
) -> *const c_char {
    let name = guarded(|| {
        // SAFETY: what the caller promises.
        let checked = unsafe { read(call) }?;
        gpu::query(&checked, device)
    });
    name.map_or(std::ptr::null(), CStr::as_ptr)
}

/// Writes to `bytes` how much GPU memory a launch of `call` needs in addition to its tensors: 0 in
/// this version.
///
/// # Safety
/// `call` is null, or points to a call; `bytes` is null, or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn attention_ladder_workspace(
    call: *const AttentionLadderCall,
    device: i32,
    bytes: *mut usize,
) -> i32 {
    code(guarded(|| {
        // SAFETY: what the caller promises.
        let (checked, answer) = unsafe { (read(call)?, bytes.as_mut()) };
        let Some(needed_bytes) = answer else {
            return Err(Failure::new(Code::Invalid, "bytes is null"));
        };
        gpu::query(&checked, device)?;
        *needed_bytes = 0;
        Ok(())
    }))
}

/// Enqueues one launch of `call` on `stream`, a CUstream or cudaStream_t of GPU number `device`, in
/// the stream's own context. Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are streams of the
/// context that is current on this thread, a green one or one of the caller's making too; where
/// none of that GPU is current, of its primary context, the one that the CUDA runtime uses. The
/// thread's contexts are left as they are. `workspace` has as many bytes as
/// attention_ladder_workspace says; null for 0.
///
/// # Safety
/// `call` is null, or points to a call whose addresses are GPU memory that extents and strides stay
/// within, until the launch has finished, and that the context can access. `stream` is a stream of
/// that GPU, which lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn attention_ladder_launch(
    call: *const AttentionLadderCall,
    device: i32,
    workspace: *mut c_void,
    workspace_bytes: usize,
    stream: *mut c_void,
) -> i32 {
    let _ = (workspace, workspace_bytes);
    // SAFETY: what the caller promises.
    code(guarded(|| unsafe {
        gpu::launch(&read(call)?, device, stream)
    }))
}

/// Returns ATTENTION_LADDER_OK if `call` can be launched on GPU number `device` of the driver, else
/// the reason, and loads its kernel: see attention_ladder_query. Addresses may be null.
///
/// # Safety
/// `call` is null, or points to a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn attention_ladder_varlen_query(
    call: *const AttentionLadderVarlenCall,
    device: i32,
) -> i32 {
    code(guarded(|| {
        // SAFETY: what the caller promises.
        let checked = unsafe { read_varlen(call) }?;
        gpu::query_varlen(&checked, device).map(drop)
    }))
}

/// Enqueues one launch of `call` on `stream`, like attention_ladder_launch: in the same context,
/// without an allocation, a wait or a workspace.
///
/// Starts, lengths and pages lie on the GPU, and no launch looks at them: wrong ones are read as
/// they are, and can fault, but nothing is written outside of o and lse. Where the environment
/// variable ATTENTION_LADDER_CHECK is set, and not to 0, when a GPU is first used, each launch first
/// copies them to the host, waits, and refuses the first wrong number by name; it refuses a stream
/// that is being captured.
///
/// # Safety
/// `call` is null, or points to a call whose addresses are GPU memory that extents and strides stay
/// within, until the launch has finished, and that the context can access; so do the lengths and
/// pages that its arrays hold. `stream` is a stream of that GPU, which lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn attention_ladder_varlen(
    call: *const AttentionLadderVarlenCall,
    device: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: what the caller promises.
    code(guarded(|| unsafe {
        gpu::launch_varlen(&read_varlen(call)?, device, stream)
    }))
}

/// Returns why the last failed call on this thread failed, as a sentence; empty if none has. Valid
/// until the next failure on the thread.
#[unsafe(no_mangle)]
pub extern "C" fn attention_ladder_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// Returns the library's version, "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn attention_ladder_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: the string is this thread's, and no call comes between.
        let message = unsafe { CStr::from_ptr(attention_ladder_last_error()) };
        message.to_string_lossy().into_owned()
    }

    #[test]
    fn a_failure_is_a_code_and_a_message_even_where_the_library_panics() {
        assert_eq!(code(guarded(|| Ok(()))), ATTENTION_LADDER_OK);
        let refused = guarded::<()>(|| Err(Failure::new(Code::Invalid, "a\0b")));
        assert_eq!(code(refused), ATTENTION_LADDER_INVALID);
        assert_eq!(last_error(), "a b");
        let panicked = guarded::<()>(|| panic!("a driver lacks a function"));
        assert_eq!(code(panicked), ATTENTION_LADDER_INTERNAL);
        let message = last_error();
        assert!(message.starts_with("the library failed"), "{message}");
    }
}
