//! A call from C, checked: the problem, and its tensors as kernels take them.

use crate::failure::{Code, Failure};
use crate::{AttentionLadderCall, AttentionLadderTensor};
use common::choice::Wanted;
use common::image::STRIDE_ALIGN;
use common::params::AttentionTensor;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::serving::Serving;
use std::ffi::c_void;

/// The size of an element of O, f16 or bf16.
pub(crate) const OUTPUT_BYTES: usize = 2;

/// The size of an element of an [`Array`], which is its alignment.
const ARRAY_ELEMENT_BYTES: usize = 4;

pub(crate) fn invalid(message: String) -> Failure {
    Failure::new(Code::Invalid, message)
}

/// A call that no rule but the GPU's refuses, with or without addresses.
#[derive(Debug)]
pub struct Checked {
    pub(crate) problem: Problem,
    /// Q, K, V and O.
    pub(crate) tensors: [AttentionTensor; 4],
    pub(crate) lse: *mut f32,
    pub(crate) wanted: Wanted,
}

impl Checked {
    pub(crate) fn new(call: &AttentionLadderCall) -> Result<Self, Failure> {
        let problem = problem(call)?;
        Ok(Self {
            tensors: tensors(call, &problem)?,
            problem,
            lse: call.lse,
            wanted: Wanted {
                lse: !call.lse.is_null(),
                batch_invariant: call.flags & crate::ATTENTION_LADDER_BATCH_INVARIANT != 0,
            },
        })
    }

    /// Writes to memory that was allocated after the check, and so overlaps nothing.
    pub(crate) fn write_to(
        &mut self,
        o: Option<&AttentionLadderTensor>,
        lse: *mut f32,
    ) -> Result<(), Failure> {
        if let Some(output) = o {
            self.tensors[3] = tensor("o", output, self.problem.shape.q_extents(), OUTPUT_BYTES)?;
        }
        self.lse = lse;
        self.wanted.lse = !lse.is_null();
        Ok(())
    }

    /// Refuses a launch that lacks an address.
    pub(crate) fn addresses(&self) -> Result<(), Failure> {
        refuse_null(&self.tensors)?;
        let dtype = self.problem.dtype;
        let is_scaled = dtype == Dtype::E4m3;
        for (name, tensor) in ["q", "k", "v"].into_iter().zip(&self.tensors) {
            let has_scales = !tensor.scales.is_null();
            if is_scaled && !has_scales {
                return Err(invalid(format!(
                    "{name} has no scales: E4M3 needs one f32 per batch and head"
                )));
            }
            if !is_scaled && has_scales {
                return Err(invalid(format!("{name} is {dtype} and has scales")));
            }
        }
        Ok(())
    }
}

/// Refuses Q, K, V and O without an address.
pub(crate) fn refuse_null(tensors: &[AttentionTensor; 4]) -> Result<(), Failure> {
    for (name, tensor) in ["q", "k", "v", "o"].into_iter().zip(tensors) {
        if tensor.data.is_null() {
            return Err(invalid(format!("the address of {name} is null")));
        }
    }
    Ok(())
}

pub(crate) fn unsupported(message: String) -> Failure {
    Failure::new(Code::Unsupported, message)
}

pub(crate) fn mask(number: i32) -> Result<Mask, Failure> {
    match number {
        crate::ATTENTION_LADDER_FULL => Ok(Mask::Full),
        crate::ATTENTION_LADDER_CAUSAL => Ok(Mask::Causal),
        other => Err(unsupported(format!(
            "mask {other} is not supported: ATTENTION_LADDER_FULL or ATTENTION_LADDER_CAUSAL"
        ))),
    }
}

fn problem(call: &AttentionLadderCall) -> Result<Problem, Failure> {
    let dtype = match call.dtype {
        crate::ATTENTION_LADDER_F16 => Dtype::F16,
        crate::ATTENTION_LADDER_E4M3 => Dtype::E4m3,
        crate::ATTENTION_LADDER_BF16 => Dtype::Bf16,
        other => {
            return Err(unsupported(format!(
                "dtype {other} is not supported: ATTENTION_LADDER_F16, _E4M3 or _BF16"
            )));
        }
    };
    let mask = mask(call.mask)?;
    if call.flags & !crate::ATTENTION_LADDER_BATCH_INVARIANT != 0 {
        return Err(unsupported(format!(
            "flags {} are not supported: 0 or ATTENTION_LADDER_BATCH_INVARIANT; \
             fill the call with zeros first",
            call.flags
        )));
    }
    let shape = Shape {
        batch: extent("batch", call.batch)?,
        heads_q: extent("heads_q", call.heads_q)?,
        heads_kv: extent("heads_kv", call.heads_kv)?,
        seq_q: extent("seq_q", call.seq_q)?,
        seq_kv: extent("seq_kv", call.seq_kv)?,
        head_dim: extent("head_dim", call.head_dim)?,
        serving: Serving::DENSE,
    };
    let problem = scaled_problem(shape, dtype, mask, call.softmax_scale)?;
    if !problem.is_dense() {
        return Err(unsupported(format!(
            "head_dim = {} is not supported: 64 or 128; attention_ladder_varlen takes multiples of 8 \
             up to 128",
            shape.head_dim
        )));
    }
    Ok(problem)
}

/// Returns a problem with a softmax scale as C has it: 0 for the default.
pub(crate) fn scaled_problem(
    shape: Shape,
    dtype: Dtype,
    mask: Mask,
    softmax_scale: f32,
) -> Result<Problem, Failure> {
    if softmax_scale == 0.0 {
        Ok(Problem::new(shape, dtype, mask)?)
    } else {
        Ok(Problem::with_scale(shape, dtype, mask, softmax_scale)?)
    }
}

/// Returns an extent, and refuses one below 0. [`Problem`] refuses 0, a head_dim of 0 among those
/// that no kernel supports.
fn extent(name: &str, value: i32) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| below_one(name, value))
}

/// Returns an extent, and refuses one below 1.
pub(crate) fn positive_extent(name: &str, value: i32) -> Result<usize, Failure> {
    match extent(name, value)? {
        0 => Err(below_one(name, value)),
        extent => Ok(extent),
    }
}

fn below_one(name: &str, value: i32) -> Failure {
    invalid(format!(
        "{name} is {value}: every extent of a problem is at least 1"
    ))
}

/// A dense array beside the tensors in GPU memory, of elements of 4 bytes; its address may be null.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    pub(crate) name: &'static str,
    pub(crate) address: *const c_void,
    pub(crate) count: usize,
}

impl Array {
    pub(crate) fn new<T>(name: &'static str, address: *const T, count: usize) -> Self {
        const { assert!(size_of::<T>() == ARRAY_ELEMENT_BYTES) };
        Self {
            name,
            address: address.cast(),
            count,
        }
    }

    /// Returns the arrays of a dense call: log-sum-exps and scales.
    fn of_call(call: &AttentionLadderCall, problem: &Problem) -> [Self; 4] {
        let [batch, heads_q, rows, _] = problem.shape.q_extents();
        let heads_kv = problem.shape.heads_kv;
        [
            Self::new("lse", call.lse.cast_const(), batch * heads_q * rows),
            Self::new("q's scales", call.q.scales, batch * heads_q),
            Self::new("k's scales", call.k.scales, batch * heads_kv),
            Self::new("v's scales", call.v.scales, batch * heads_kv),
        ]
    }
}

/// Reads Q, K, V and O of a dense call.
fn tensors(call: &AttentionLadderCall, problem: &Problem) -> Result<[AttentionTensor; 4], Failure> {
    Operands {
        qkvo: [&call.q, &call.k, &call.v, &call.o],
        q_extents: problem.shape.q_extents(),
        kv_extents: problem.shape.kv_extents(),
        q_bytes: problem.dtype.bytes(),
        kv_bytes: problem.kv_dtype().bytes(),
    }
    .read(&Array::of_call(call, problem))
}

/// The tensors of a call, with their extents in memory.
pub(crate) struct Operands<'a> {
    pub(crate) qkvo: [&'a AttentionLadderTensor; 4],
    pub(crate) q_extents: [usize; 4],
    pub(crate) kv_extents: [usize; 4],
    /// The size of an element of Q.
    pub(crate) q_bytes: usize,
    /// The size of an element of K and V.
    pub(crate) kv_bytes: usize,
}

impl Operands<'_> {
    /// Reads Q, K, V and O. Refuses addresses of arrays that kernels cannot use, and an output that
    /// overlaps an input.
    pub(crate) fn read(&self, arrays: &[Array]) -> Result<[AttentionTensor; 4], Failure> {
        // A kernel that reads or writes there ends the context.
        for array in arrays {
            if !(array.address as usize).is_multiple_of(ARRAY_ELEMENT_BYTES) {
                return Err(invalid(format!(
                    "the address of {} is {:p}: it must be a multiple of {ARRAY_ELEMENT_BYTES} \
                     bytes",
                    array.name, array.address,
                )));
            }
        }
        let Self {
            qkvo: [q_call, k_call, v_call, o_call],
            q_extents,
            kv_extents,
            q_bytes,
            kv_bytes,
        } = *self;
        let q = tensor("q", q_call, q_extents, q_bytes)?;
        let k = tensor("k", k_call, kv_extents, kv_bytes)?;
        let v = tensor("v", v_call, kv_extents, kv_bytes)?;
        let o = tensor("o", o_call, q_extents, OUTPUT_BYTES)?;
        if o.data.is_null() {
            return Ok([q, k, v, o]);
        }

        let output = Rows::new(&o, q_extents, OUTPUT_BYTES);
        if output.overlap_themselves() {
            return Err(overlaps("itself"));
        }
        for (name, input, rows) in [
            ("q", &q, Rows::new(&q, q_extents, q_bytes)),
            ("k", &k, Rows::new(&k, kv_extents, kv_bytes)),
            ("v", &v, Rows::new(&v, kv_extents, kv_bytes)),
        ] {
            if !input.data.is_null() && output.overlap(&rows) {
                return Err(overlaps(name));
            }
        }
        for array in arrays {
            if !array.address.is_null() && output.overlap(&Rows::dense(array)) {
                return Err(overlaps(array.name));
            }
        }
        Ok([q, k, v, o])
    }
}

fn overlaps(name: &str) -> Failure {
    invalid(format!(
        "the output overlaps {name} in memory: it needs elements of its own"
    ))
}

/// The place of a tensor's rows in memory, in bytes.
struct Rows {
    start: i128,
    length: i128,
    steps: [Step; 3],
}

/// A dimension: its stride, and how many of them there are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    stride: i128,
    count: i128,
}

/// A part of a sum: a stride, and the least and the most of it that may be added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    stride: i128,
    least: i128,
    most: i128,
}

/// Returns the least of the sums of the terms.
fn least_sum(terms: &[Term]) -> i128 {
    terms.iter().map(|term| term.stride * term.least).sum()
}

/// Returns the largest of the sums of the terms.
fn largest_sum(terms: &[Term]) -> i128 {
    terms.iter().map(|term| term.stride * term.most).sum()
}

/// An interval, its ends excluded.
#[derive(Clone, Copy)]
struct Window {
    start: i128,
    end: i128,
}

impl Rows {
    fn new(tensor: &AttentionTensor, extents: [usize; 4], element_bytes: usize) -> Self {
        let [batch, heads, rows, columns] = extents.map(|extent| extent as i128);
        let bytes = element_bytes as i128;
        let step = |stride: i64, count| Step {
            stride: i128::from(stride) * bytes,
            count,
        };
        Self {
            start: tensor.data as usize as i128,
            length: columns * bytes,
            steps: [
                step(tensor.batch_stride, batch),
                step(tensor.head_stride, heads),
                step(tensor.row_stride, rows),
            ],
        }
    }

    /// Returns the one row of an array.
    fn dense(array: &Array) -> Self {
        Self {
            start: array.address as usize as i128,
            length: (array.count * ARRAY_ELEMENT_BYTES) as i128,
            steps: [Step {
                stride: 1,
                count: 1,
            }; 3],
        }
    }

    fn overlap_themselves(&self) -> bool {
        let mut steps = self.steps;
        steps.sort_unstable();
        let mut end = self.length;
        for Step { stride, count } in steps {
            if count > 1 && stride < end {
                return true;
            }
            end += stride * (count - 1);
        }
        false
    }

    /// Returns whether rows share a byte with others. It is exact, so that one buffer can hold q,
    /// k, v and o next to each other.
    fn overlap(&self, other: &Self) -> bool {
        let distance = self.start - other.start;
        let window = Window {
            start: -self.length,
            end: other.length,
        };
        let [a, b, c] = self.steps.map(Step::added);
        let [d, e, f] = other.steps.map(Step::subtracted);
        let terms = [a, b, c, d, e, f];
        if distance + largest_sum(&terms) <= window.start
            || distance + least_sum(&terms) >= window.end
        {
            return false;
        }
        reaches(distance, &merged(terms), window)
    }
}

impl Step {
    /// Returns the term of a row's place.
    fn added(self) -> Term {
        Term {
            stride: self.stride,
            least: 0,
            most: self.count - 1,
        }
    }

    /// Returns the term of a distance from a row's place.
    fn subtracted(self) -> Term {
        Term {
            stride: self.stride,
            least: 1 - self.count,
            most: 0,
        }
    }
}

/// Returns one term for each stride, the widest first.
fn merged(terms: [Term; 6]) -> Vec<Term> {
    let mut merged = terms.to_vec();
    merged.sort_unstable_by(|left, right| right.cmp(left));
    merged.dedup_by(|term, kept| {
        if term.stride != kept.stride {
            return false;
        }
        kept.least += term.least;
        kept.most += term.most;
        true
    });
    merged
}

/// Returns whether `distance` plus some sum of the terms lies within the window.
fn reaches(distance: i128, terms: &[Term], window: Window) -> bool {
    let Some((&term, narrower)) = terms.split_first() else {
        return window.start < distance && distance < window.end;
    };
    let to_start = distance + largest_sum(narrower) - window.start - 1;
    let first = -to_start.div_euclid(term.stride);
    let to_end = window.end - 1 - least_sum(narrower) - distance;
    let last = to_end.div_euclid(term.stride);
    (first.max(term.least)..=last.min(term.most))
        .any(|times| reaches(distance + times * term.stride, narrower, window))
}

/// A dimension as the caller passed it.
struct Stride<'a> {
    tensor: &'a str,
    dimension: &'a str,
    elements: i64,
    element_bytes: i64,
}

impl Stride<'_> {
    /// Returns the stride, or `dense` where there is one element: a stride between elements of
    /// which there is one says nothing, and callers leave anything there.
    fn checked(&self, extent: usize, dense: usize) -> Result<i64, Failure> {
        if extent == 1 {
            return Ok(dense as i64);
        }
        let align = STRIDE_ALIGN as i64;
        let bytes = self.elements.saturating_mul(self.element_bytes);
        if self.elements <= 0 || bytes % align != 0 {
            return Err(invalid(format!(
                "the {} stride of {} is {} elements: it must be positive and a multiple of \
                 {} elements ({align} bytes); key heads that several query heads share are \
                 not expanded, heads_kv says how many there are",
                self.dimension,
                self.tensor,
                self.elements,
                align / self.element_bytes
            )));
        }
        Ok(self.elements)
    }
}

/// Checks a tensor's address and strides.
pub(crate) fn tensor(
    name: &str,
    tensor: &AttentionLadderTensor,
    [batch, heads, rows, columns]: [usize; 4],
    element_bytes: usize,
) -> Result<AttentionTensor, Failure> {
    if !(tensor.data as usize).is_multiple_of(STRIDE_ALIGN) {
        return Err(invalid(format!(
            "the address of {name} is {:p}: it must be a multiple of {STRIDE_ALIGN} bytes",
            tensor.data
        )));
    }
    let stride = |dimension, elements| Stride {
        tensor: name,
        dimension,
        elements,
        element_bytes: element_bytes as i64,
    };
    let row_stride = stride("row", tensor.row_stride).checked(rows, columns)?;
    let head_stride = stride("head", tensor.head_stride).checked(heads, rows * columns)?;
    let batch_stride =
        stride("batch", tensor.batch_stride).checked(batch, heads * rows * columns)?;
    if row_stride < columns as i64 {
        return Err(invalid(format!(
            "the row stride of {name} is {row_stride} elements, less than the {columns} of a row"
        )));
    }
    Ok(AttentionTensor {
        data: tensor.data,
        scales: tensor.scales,
        batch_stride,
        head_stride,
        row_stride,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    fn call() -> AttentionLadderCall {
        let tensor = AttentionLadderTensor {
            data: 256 as *mut _,
            scales: std::ptr::null(),
            batch_stride: 8 * 512 * 64,
            head_stride: 512 * 64,
            row_stride: 64,
        };
        AttentionLadderCall {
            q: tensor,
            k: tensor,
            v: tensor,
            o: AttentionLadderTensor {
                data: (1 << 20) as *mut _,
                ..tensor
            },
            lse: null_mut(),
            dtype: crate::ATTENTION_LADDER_F16,
            mask: crate::ATTENTION_LADDER_FULL,
            batch: 1,
            heads_q: 8,
            heads_kv: 8,
            seq_q: 512,
            seq_kv: 512,
            head_dim: 64,
            softmax_scale: 0.0,
            flags: 0,
        }
    }

    fn refusal(change: impl FnOnce(&mut AttentionLadderCall)) -> Failure {
        let mut call = call();
        change(&mut call);
        match Checked::new(&call) {
            Ok(checked) => checked.addresses().unwrap_err(),
            Err(failure) => failure,
        }
    }

    fn expect_unsupported(change: impl FnOnce(&mut AttentionLadderCall), words: &str) {
        expect_refusal(change, Code::Unsupported, words);
    }

    fn expect_invalid(change: impl FnOnce(&mut AttentionLadderCall), words: &str) {
        expect_refusal(change, Code::Invalid, words);
    }

    fn expect_refusal(change: impl FnOnce(&mut AttentionLadderCall), code: Code, words: &str) {
        let failure = refusal(change);
        assert_eq!(failure.code, code, "{failure:?}");
        assert!(failure.message.contains(words), "{failure:?}");
    }

    #[test]
    fn numbers_without_a_meaning_are_unsupported() {
        expect_unsupported(|c| c.dtype = 3, "dtype 3 is not supported");
        expect_unsupported(|c| c.mask = 2, "mask 2 is not supported");
        expect_unsupported(|c| c.flags = 2, "flags 2 are not supported");
        expect_unsupported(|c| c.head_dim = 96, "head_dim = 96 is not supported");
        expect_unsupported(|c| c.head_dim = 0, "head_dim = 0 is not supported");
    }

    #[test]
    fn extents_and_scales_that_are_no_problem_are_invalid() {
        expect_invalid(|c| c.heads_kv = 3, "does not divide heads_q = 8");
        expect_invalid(|c| c.seq_q = 0, "seq_q is 0");
        expect_invalid(|c| c.seq_q = -1, "seq_q is -1");
        expect_invalid(|c| c.softmax_scale = -1.0, "softmax_scale = -1");
    }

    #[test]
    fn addresses_are_aligned_and_not_null() {
        expect_invalid(
            |c| c.lse = 66 as *mut f32,
            "address of lse is 0x42: it must be a multiple of 4 bytes",
        );
        expect_invalid(
            |c| c.k.scales = 65 as *const f32,
            "address of k's scales is 0x41: it must be a multiple of 4 bytes",
        );
        expect_invalid(|c| c.k.data = 8 as *mut _, "address of k is 0x8");
        expect_invalid(|c| c.k.data = null_mut(), "address of k is null");
        expect_invalid(|c| c.o.data = null_mut(), "address of o is null");
    }

    #[test]
    fn strides_are_multiples_of_bytes_and_hold_a_row() {
        expect_invalid(
            |c| c.v.row_stride = 68,
            "the row stride of v is 68 elements",
        );
        expect_invalid(|c| c.v.row_stride = 32, "less than the 64 of a row");
        expect_invalid(|c| c.k.head_stride = 0, "are not expanded");
        // Bytes, not elements.
        expect_invalid(
            |c| {
                c.dtype = crate::ATTENTION_LADDER_E4M3;
                c.q.row_stride = 72;
            },
            "the row stride of q is 72 elements: it must be positive and a multiple of 16",
        );
    }

    #[test]
    fn scales_belong_to_e4m3_alone() {
        expect_invalid(
            |c| c.dtype = crate::ATTENTION_LADDER_E4M3,
            "q has no scales",
        );
        expect_invalid(|c| c.q.scales = 16 as *const f32, "q is f16 and has scales");
        expect_invalid(
            |c| {
                c.dtype = crate::ATTENTION_LADDER_BF16;
                c.v.scales = 16 as *const f32;
            },
            "v is bf16 and has scales",
        );
    }

    #[test]
    fn a_batch_larger_than_any_grid_is_unsupported() {
        let failure = refusal(|c| c.batch = 65_536);
        assert_eq!(failure.code, Code::Unsupported, "{failure:?}");
    }

    #[test]
    fn an_output_shares_no_byte_with_q_or_itself() {
        expect_invalid(|c| c.o = c.q, "the output overlaps q in memory");
        expect_invalid(|c| c.o.row_stride = 32 * 1024, "the output overlaps itself");
        expect_invalid(|c| c.o.head_stride = 64, "the output overlaps itself");
    }

    fn dense(heads: i64, rows: i64, row_stride: i64) -> AttentionLadderTensor {
        AttentionLadderTensor {
            batch_stride: heads * rows * row_stride,
            head_stride: rows * row_stride,
            row_stride,
            ..call().q
        }
    }

    /// Returns a call of two batches, in codes half as wide as O, whose rows lie 16 bytes apart.
    fn call_with_gaps(output_address: usize) -> AttentionLadderCall {
        AttentionLadderCall {
            q: dense(8, 32, 64),
            k: dense(4, 48, 64),
            v: dense(4, 48, 64),
            o: AttentionLadderTensor {
                data: output_address as *mut _,
                ..dense(8, 32, 72)
            },
            dtype: crate::ATTENTION_LADDER_E4M3,
            batch: 2,
            heads_kv: 4,
            seq_q: 32,
            seq_kv: 48,
            ..call()
        }
    }

    fn place(call: &mut AttentionLadderCall, name: &str, address: usize) {
        let pointer = address as *mut f32;
        match name {
            "q" => call.q.data = pointer.cast(),
            "k" => call.k.data = pointer.cast(),
            "v" => call.v.data = pointer.cast(),
            "lse" => call.lse = pointer,
            "q's scales" => call.q.scales = pointer,
            "k's scales" => call.k.scales = pointer,
            "v's scales" => call.v.scales = pointer,
            _ => panic!("{name}"),
        }
    }

    #[test]
    fn an_output_may_touch_other_memory_and_not_overlap_it() {
        let start = 1 << 20;
        let end = start + 2 * 8 * 32 * 72 * 2 - 16;
        for (name, bytes) in [
            ("q", 2 * 8 * 32 * 64),
            ("k", 2 * 4 * 48 * 64),
            ("v", 2 * 4 * 48 * 64),
            ("lse", 2 * 8 * 32 * 4),
            ("q's scales", 2 * 8 * 4),
            ("k's scales", 2 * 4 * 4),
            ("v's scales", 2 * 4 * 4),
        ] {
            // Memory that ends where O starts or starts where O ends, and 16 bytes of it in O.
            for (address, is_shared) in [
                (start - bytes, false),
                (start - bytes + 16, true),
                (end - 16, true),
                (end, false),
            ] {
                let mut call = call_with_gaps(start);
                place(&mut call, name, address);
                let expected = format!("the output overlaps {name} in memory");
                let is_refused =
                    Checked::new(&call).is_err_and(|failure| failure.message.contains(&expected));
                assert_eq!(is_refused, is_shared, "{name} at {address}");
            }
        }
    }

    /// Returns a tensor of rows [q, k, v, o] of 512 positions and 8 heads in one buffer.
    fn packed(position: usize) -> AttentionLadderTensor {
        AttentionLadderTensor {
            data: (256 + position * 8 * 64 * 2) as *mut _,
            batch_stride: 4 * 8 * 512 * 64,
            head_stride: 64,
            row_stride: 4 * 8 * 64,
            ..call().q
        }
    }

    fn packed_call() -> AttentionLadderCall {
        AttentionLadderCall {
            q: packed(0),
            k: packed(1),
            v: packed(2),
            o: packed(3),
            batch: 3,
            ..call()
        }
    }

    #[test]
    fn one_buffer_may_hold_inputs_and_output_side_by_side() {
        for batch in [1, 3] {
            let call = AttentionLadderCall {
                batch,
                ..packed_call()
            };
            Checked::new(&call).unwrap();
        }
    }

    #[test]
    fn an_output_between_the_inputs_of_one_buffer_is_refused() {
        let mut in_v = packed_call();
        in_v.o.data = (256 + 2 * 8 * 64 * 2 + 7 * 64 * 2) as *mut _;
        expect_overlap(&in_v, "v");
        // O is [heads, rows] where q is [rows, heads].
        let mut transposed = packed_call();
        transposed.o = AttentionLadderTensor {
            head_stride: 512 * 64,
            row_stride: 64,
            ..packed(0)
        };
        expect_overlap(&transposed, "q");
    }

    fn expect_overlap(call: &AttentionLadderCall, name: &str) {
        let failure = Checked::new(call).unwrap_err();
        let expected = format!("the output overlaps {name} in memory");
        assert!(failure.message.contains(&expected), "{failure:?}");
    }

    #[test]
    fn mask_and_scale_are_those_of_the_call() {
        let checked_problem = |mask, softmax_scale| {
            let masked_call = AttentionLadderCall {
                mask,
                softmax_scale,
                ..call()
            };
            Checked::new(&masked_call).unwrap().problem
        };
        let full = checked_problem(crate::ATTENTION_LADDER_FULL, 0.0);
        assert_eq!((full.mask, full.softmax_scale), (Mask::Full, 0.125));
        let causal = checked_problem(crate::ATTENTION_LADDER_CAUSAL, 0.5);
        assert_eq!((causal.mask, causal.softmax_scale), (Mask::Causal, 0.5));
    }

    #[test]
    fn every_dtype_is_read_and_log_sum_exps_are_taken() {
        let dtypes = [
            crate::ATTENTION_LADDER_F16,
            crate::ATTENTION_LADDER_E4M3,
            crate::ATTENTION_LADDER_BF16,
        ];
        for (code, dtype) in dtypes.into_iter().zip(Dtype::ALL) {
            let call = AttentionLadderCall {
                dtype: code,
                lse: 64 as *mut f32,
                ..call()
            };
            let checked = Checked::new(&call).unwrap();
            assert_eq!(checked.problem.dtype, dtype);
            assert!(checked.wanted.lse && !checked.wanted.batch_invariant);
        }
        let invariant = AttentionLadderCall {
            flags: crate::ATTENTION_LADDER_BATCH_INVARIANT,
            ..call()
        };
        let wanted = Checked::new(&invariant).unwrap().wanted;
        assert!(!wanted.lse && wanted.batch_invariant);
    }

    #[test]
    fn memory_that_is_given_after_the_check_is_taken_as_if_it_had_been_there() {
        let mut whole = AttentionLadderCall {
            lse: 64 as *mut f32,
            ..call()
        };
        (whole.o.head_stride, whole.o.row_stride) = (64, 8 * 64);
        let mut checked = Checked::new(&AttentionLadderCall {
            o: AttentionLadderTensor {
                data: null_mut(),
                ..whole.q
            },
            lse: null_mut(),
            ..whole
        })
        .unwrap();
        checked.write_to(Some(&whole.o), whole.lse).unwrap();
        let expected = format!("{:?}", Checked::new(&whole).unwrap());
        assert_eq!(format!("{checked:?}"), expected);
        checked.write_to(None, null_mut()).unwrap();
        assert_eq!(checked.tensors[3].data, whole.o.data);
        assert!(checked.lse.is_null() && !checked.wanted.lse);
        whole.o.data = 8 as *mut _;
        let failure = checked.write_to(Some(&whole.o), whole.lse).unwrap_err();
        assert!(failure.message.contains("address of o"), "{failure:?}");
    }

    #[test]
    fn a_stride_over_one_element_says_nothing() {
        let mut call = AttentionLadderCall {
            heads_q: 1,
            heads_kv: 1,
            seq_q: 1,
            ..call()
        };
        (call.q.row_stride, call.k.head_stride, call.k.batch_stride) = (7, 7, 7);
        let [q, k, ..] = Checked::new(&call).unwrap().tensors;
        assert_eq!(q.row_stride, 64);
        assert_eq!([k.head_stride, k.batch_stride], [512 * 64; 2]);
        call.k.row_stride = 7;
        let failure = Checked::new(&call).unwrap_err();
        assert!(failure.message.contains("row stride of k"), "{failure:?}");
    }
}
