//! A call on sequences of lengths of their own from C, checked: the problem of the longest, and the
//! argument of its launch.

use crate::call::{
    Array, OUTPUT_BYTES, Operands, invalid, mask, positive_extent, refuse_null, scaled_problem,
    tensor, unsupported,
};
use crate::failure::Failure;
use crate::{AttentionLadderTensor, AttentionLadderVarlenCall};
use common::maps::{self, BoxRows, TensorMap};
use common::params::{AttentionServed, AttentionServing, AttentionTensor};
use common::problem::{Dtype, Problem, Shape};
use common::serving::{Cache, LEAST_PAGE_ROWS, Serving};
use lengths::{Bounds, Lengths};

pub(crate) mod lengths;

/// The most rows of a page.
const MOST_PAGE_ROWS: i32 = 1 << 15;

/// A call that no rule but the GPU's refuses, with or without addresses.
#[derive(Debug)]
pub struct CheckedVarlen {
    problem: Problem,
    extents: Extents,
    /// Q, K, V and O.
    tensors: [AttentionTensor; 4],
    lse: *mut f32,
    serving: AttentionServing,
}

/// The extents of the tensors in memory.
#[derive(Clone, Copy, Debug)]
struct Extents {
    q: [usize; 4],
    kv: [usize; 4],
}

impl CheckedVarlen {
    pub(crate) fn new(call: &AttentionLadderVarlenCall) -> Result<Self, Failure> {
        let problem = problem(call)?;
        let serving = serving(call)?;
        let extents = Extents::new(call, &problem.shape)?;
        refuse_scales(call, problem.shape.serving.cache)?;
        let operands = Operands {
            qkvo: [&call.q, &call.k, &call.v, &call.o],
            q_extents: extents.q,
            kv_extents: extents.kv,
            q_bytes: problem.dtype.bytes(),
            kv_bytes: problem.kv_dtype().bytes(),
        };
        Ok(Self {
            tensors: operands.read(&arrays(call, &extents))?,
            problem,
            extents,
            lse: call.lse,
            serving,
        })
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Writes to memory that was allocated after the check, and so overlaps nothing.
    pub(crate) fn write_to(
        &mut self,
        o: &AttentionLadderTensor,
        lse: *mut f32,
    ) -> Result<(), Failure> {
        self.tensors[3] = tensor("o", o, self.extents.q, OUTPUT_BYTES)?;
        self.lse = lse;
        Ok(())
    }

    /// Refuses a launch that lacks an address.
    pub(crate) fn addresses(&self) -> Result<(), Failure> {
        refuse_null(&self.tensors)
    }

    /// Refuses starts, lengths and pages that the call's documentation rules out, and names the
    /// first. `copy` copies that many numbers from an address on the GPU.
    pub(crate) fn check_lengths(
        &self,
        mut copy: impl FnMut(*const i32, usize) -> Result<Vec<i32>, Failure>,
    ) -> Result<(), Failure> {
        let serving = &self.serving;
        let bounds = self.bounds();
        let mut array = |address: *const i32, count: usize| {
            if address.is_null() {
                Ok(None)
            } else {
                copy(address, count).map(Some)
            }
        };
        let lengths = Lengths {
            q_starts: array(serving.q_starts, bounds.batch + 1)?,
            kv_starts: array(serving.kv_starts, bounds.batch + 1)?,
            kv_used: array(serving.kv_used, bounds.batch)?,
        };
        lengths.check(&bounds)?;
        if serving.pages.is_null() {
            return Ok(());
        }
        for sequence in 0..bounds.batch {
            let first = serving.pages.wrapping_add(sequence * bounds.table_entries);
            let entries = copy(first, lengths.pages_of(&bounds, sequence))?;
            lengths::check_pages(&bounds, sequence, &entries)?;
        }
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        let shape = &self.problem.shape;
        let [pages, _, kv_rows, _] = self.extents.kv;
        let [_, _, q_rows, _] = self.extents.q;
        Bounds {
            batch: shape.batch,
            max_seqlen_q: shape.seq_q,
            max_seqlen_k: shape.seq_kv,
            total_q: q_rows,
            total_k: kv_rows,
            pages,
            page_rows: self.serving.page_rows as usize,
            table_entries: self.serving.pages_stride as usize,
        }
    }

    /// Makes the launch argument. `encode` makes the opaque bytes of a map.
    pub(crate) fn argument<E>(
        &self,
        boxes: Option<BoxRows>,
        encode: impl Fn(&TensorMap) -> Result<[u64; 16], E>,
    ) -> Result<AttentionServed, E> {
        let Extents { q, kv } = self.extents;
        let params = maps::params(&self.problem, self.tensors, self.lse);
        Ok(AttentionServed {
            launch: maps::launch_in([q, kv, kv, q], &self.problem, params, boxes, encode)?,
            serving: self.serving,
        })
    }
}

/// Returns the problem in which every sequence is as long as the longest.
fn problem(call: &AttentionLadderVarlenCall) -> Result<Problem, Failure> {
    let dtype = match call.dtype {
        crate::ATTENTION_LADDER_F16 => Dtype::F16,
        crate::ATTENTION_LADDER_BF16 => Dtype::Bf16,
        crate::ATTENTION_LADDER_E4M3 => {
            return Err(unsupported(
                "E4M3 is not supported for queries of sequences of lengths of their own: \
                 ATTENTION_LADDER_F16 or ATTENTION_LADDER_BF16, and kv_dtype says that k and v are \
                 in E4M3"
                    .to_string(),
            ));
        }
        other => {
            return Err(unsupported(format!(
                "dtype {other} is not supported: ATTENTION_LADDER_F16 or ATTENTION_LADDER_BF16"
            )));
        }
    };
    let mask = mask(call.mask)?;
    if call.flags != 0 {
        return Err(unsupported(format!(
            "flags {} are not supported: 0; fill the call with zeros first",
            call.flags
        )));
    }
    let shape = Shape {
        batch: positive_extent("batch", call.batch)?,
        heads_q: positive_extent("heads_q", call.heads_q)?,
        heads_kv: positive_extent("heads_kv", call.heads_kv)?,
        seq_q: positive_extent("max_seqlen_q", call.max_seqlen_q)?,
        seq_kv: positive_extent("max_seqlen_k", call.max_seqlen_k)?,
        head_dim: positive_extent("head_dim", call.head_dim)?,
        serving: Serving {
            page_rows: page_rows(call)?,
            cache: cache(call.kv_dtype)?,
            ..Serving::DENSE
        },
    };
    scaled_problem(shape, dtype, mask, call.softmax_scale)
}

/// Returns the type of K and V, if it is not that of Q.
fn cache(kv_dtype: i32) -> Result<Option<Cache>, Failure> {
    match kv_dtype {
        0 => Ok(None),
        crate::ATTENTION_LADDER_E4M3 => Ok(Some(Cache::E4m3)),
        other => Err(unsupported(format!(
            "kv_dtype {other} is not supported: 0, for that of q, or ATTENTION_LADDER_E4M3"
        ))),
    }
}

/// Returns the rows of a page, if there are pages.
fn page_rows(call: &AttentionLadderVarlenCall) -> Result<Option<u16>, Failure> {
    if call.block_table.is_null() {
        return Ok(None);
    }
    if !call.cu_seqlens_k.is_null() {
        return Err(invalid(
            "both cu_seqlens_k and block_table are not null: \
             keys lie one after the other or in pages"
                .to_string(),
        ));
    }
    let rows = call.page_size;
    let is_within = rows >= LEAST_PAGE_ROWS as i32 && rows <= MOST_PAGE_ROWS;
    if !is_within || !(rows as u32).is_power_of_two() {
        return Err(unsupported(format!(
            "page_size = {rows} is not supported: \
             a power of two from {LEAST_PAGE_ROWS} to {MOST_PAGE_ROWS}"
        )));
    }
    let entries = positive_extent("block_table_stride", call.block_table_stride)?;
    let is_used_whole = call.seqused_k.is_null();
    if is_used_whole && (entries * rows as usize) < call.max_seqlen_k.max(0) as usize {
        return Err(invalid(format!(
            "block_table has {entries} pages of {rows} rows a sequence, \
             less than max_seqlen_k = {}, and seqused_k is null",
            call.max_seqlen_k
        )));
    }
    Ok(Some(rows as u16))
}

fn serving(call: &AttentionLadderVarlenCall) -> Result<AttentionServing, Failure> {
    for (name, width) in [
        ("window_left", call.window_left),
        ("window_right", call.window_right),
    ] {
        if width < -1 {
            return Err(invalid(format!(
                "{name} is {width}: a number of keys, or -1 for all"
            )));
        }
    }
    if !call.softcap.is_finite() || call.softcap < 0.0 {
        return Err(invalid(format!(
            "softcap = {} is neither a positive finite number nor 0, for none",
            call.softcap
        )));
    }
    let has_pages = !call.block_table.is_null();
    Ok(AttentionServing {
        q_starts: call.cu_seqlens_q,
        kv_starts: call.cu_seqlens_k,
        kv_used: call.seqused_k,
        pages: call.block_table,
        sinks: call.sinks,
        pages_stride: if has_pages {
            call.block_table_stride
        } else {
            0
        },
        page_rows: if has_pages { call.page_size } else { 0 },
        total_q: if call.cu_seqlens_q.is_null() {
            0
        } else {
            call.total_q
        },
        window_left: call.window_left,
        window_right: call.window_right,
        softcap: call.softcap,
        head_dim: call.head_dim,
    })
}

impl Extents {
    fn new(call: &AttentionLadderVarlenCall, shape: &Shape) -> Result<Self, Failure> {
        let q = if call.cu_seqlens_q.is_null() {
            shape.q_extents()
        } else {
            let rows = positive_extent("total_q", call.total_q)?;
            [1, shape.heads_q, rows, shape.head_dim]
        };
        let kv = if !call.block_table.is_null() {
            let pages = positive_extent("pages", call.pages)?;
            let rows = positive_extent("page_size", call.page_size)?;
            [pages, shape.heads_kv, rows, shape.head_dim]
        } else if !call.cu_seqlens_k.is_null() {
            let rows = positive_extent("total_k", call.total_k)?;
            [1, shape.heads_kv, rows, shape.head_dim]
        } else {
            shape.kv_extents()
        };
        Ok(Self { q, kv })
    }
}

/// Refuses scales of tensors that are not in E4M3.
fn refuse_scales(call: &AttentionLadderVarlenCall, cache: Option<Cache>) -> Result<(), Failure> {
    let is_cached = cache.is_some();
    for (name, tensor, is_scaled) in [
        ("q", &call.q, false),
        ("k", &call.k, is_cached),
        ("v", &call.v, is_cached),
    ] {
        if !is_scaled && !tensor.scales.is_null() {
            return Err(invalid(format!("{name} is not E4M3 and has scales")));
        }
    }
    Ok(())
}

/// Returns the arrays beside the tensors.
fn arrays(call: &AttentionLadderVarlenCall, extents: &Extents) -> [Array; 8] {
    let [batches, heads_q, rows, _] = extents.q;
    let batch = call.batch as usize;
    let scales = batch * call.heads_kv.max(0) as usize;
    let table_entries = batch * call.block_table_stride.max(0) as usize;
    [
        Array::new("lse", call.lse.cast_const(), batches * heads_q * rows),
        Array::new("cu_seqlens_q", call.cu_seqlens_q, batch + 1),
        Array::new("cu_seqlens_k", call.cu_seqlens_k, batch + 1),
        Array::new("seqused_k", call.seqused_k, batch),
        Array::new("block_table", call.block_table, table_entries),
        Array::new("sinks", call.sinks, heads_q),
        Array::new("k's scales", call.k.scales, scales),
        Array::new("v's scales", call.v.scales, scales),
    ]
}

#[cfg(test)]
pub(crate) mod tests;
