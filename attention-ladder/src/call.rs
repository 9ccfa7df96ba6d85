//! A call from C, checked: the problem, and its tensors as kernels take them.

use crate::failure::{Code, Failure};
use crate::{AttentionLadderCall, AttentionLadderTensor};
use common::choice::Wanted;
use common::image::STRIDE_ALIGN;
use common::params::AttentionTensor;
use common::problem::{Dtype, Mask, Problem, Shape};

/// Of O, f16 or bf16.
const OUTPUT_BYTES: usize = 2;

fn invalid(message: String) -> Failure {
    Failure::new(Code::Invalid, message)
}

/// What no rule but the GPU's refuses, with or without addresses.
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
        if let Some(o) = o {
            self.tensors[3] = tensor("o", o, self.problem.shape.q_extents(), OUTPUT_BYTES)?;
        }
        self.lse = lse;
        self.wanted.lse = !lse.is_null();
        Ok(())
    }

    /// Refuses a launch that lacks an address.
    pub(crate) fn addresses(&self) -> Result<(), Failure> {
        let mut named = ["q", "k", "v", "o"].into_iter().zip(&self.tensors);
        if let Some((name, _)) = named.find(|(_, tensor)| tensor.data.is_null()) {
            return Err(invalid(format!("the address of {name} is null")));
        }
        let dtype = self.problem.dtype;
        let is_scaled = dtype == Dtype::E4m3;
        let mut inputs = ["q", "k", "v"].into_iter().zip(&self.tensors);
        match inputs.find(|(_, tensor)| tensor.scales.is_null() == is_scaled) {
            Some((name, _)) if is_scaled => Err(invalid(format!(
                "{name} has no scales: E4M3 needs one f32 per batch and head"
            ))),
            Some((name, _)) => Err(invalid(format!("{name} is {dtype} and has scales"))),
            None => Ok(()),
        }
    }
}

fn problem(call: &AttentionLadderCall) -> Result<Problem, Failure> {
    let dtype = match call.dtype {
        crate::ATTENTION_LADDER_F16 => Dtype::F16,
        crate::ATTENTION_LADDER_E4M3 => Dtype::E4m3,
        crate::ATTENTION_LADDER_BF16 => Dtype::Bf16,
        other => {
            let message =
                format!("dtype {other} is not supported: ATTENTION_LADDER_F16, _E4M3 or _BF16");
            return Err(Failure::new(Code::Unsupported, message));
        }
    };
    let mask = match call.mask {
        crate::ATTENTION_LADDER_FULL => Mask::Full,
        crate::ATTENTION_LADDER_CAUSAL => Mask::Causal,
        other => {
            let message = format!(
                "mask {other} is not supported: ATTENTION_LADDER_FULL or ATTENTION_LADDER_CAUSAL"
            );
            return Err(Failure::new(Code::Unsupported, message));
        }
    };
    if call.flags & !crate::ATTENTION_LADDER_BATCH_INVARIANT != 0 {
        let message = format!(
            "flags {} are not supported: 0 or ATTENTION_LADDER_BATCH_INVARIANT; fill the call with zeros first",
            call.flags
        );
        return Err(Failure::new(Code::Unsupported, message));
    }
    let extent = |name: &str, value: i32| {
        let least = "every extent of a problem is at least 1";
        usize::try_from(value).map_err(|_| invalid(format!("{name} is {value}: {least}")))
    };
    let shape = Shape {
        batch: extent("batch", call.batch)?,
        heads_q: extent("heads_q", call.heads_q)?,
        heads_kv: extent("heads_kv", call.heads_kv)?,
        seq_q: extent("seq_q", call.seq_q)?,
        seq_kv: extent("seq_kv", call.seq_kv)?,
        head_dim: extent("head_dim", call.head_dim)?,
    };
    let problem = match call.softmax_scale {
        0.0 => Problem::new(shape, dtype, mask),
        scale => Problem::with_scale(shape, dtype, mask, scale),
    };
    Ok(problem?)
}

/// Q, K, V and O; refuses addresses of log-sum-exps and scales that kernels cannot use.
fn tensors(call: &AttentionLadderCall, problem: &Problem) -> Result<[AttentionTensor; 4], Failure> {
    let (of_q, of_kv) = (problem.shape.q_extents(), problem.shape.kv_extents());
    let bytes = problem.dtype.bytes();
    let of_floats = [
        ("lse", call.lse.cast_const()),
        ("q's scales", call.q.scales),
        ("k's scales", call.k.scales),
        ("v's scales", call.v.scales),
    ];
    // A kernel that reads or writes there ends the context.
    if let Some(&(name, address)) = of_floats.iter().find(|(_, address)| !address.is_aligned()) {
        return Err(invalid(format!(
            "the address of {name} is {address:p}: it must be a multiple of {} bytes",
            align_of::<f32>()
        )));
    }
    let tensors = [
        tensor("q", &call.q, of_q, bytes)?,
        tensor("k", &call.k, of_kv, bytes)?,
        tensor("v", &call.v, of_kv, bytes)?,
        tensor("o", &call.o, of_q, OUTPUT_BYTES)?,
    ];
    if call.o.data.is_null() {
        return Ok(tensors);
    }
    let o = Rows::new(&tensors[3], of_q, OUTPUT_BYTES);
    let overlaps = |name: &str| {
        let message = format!("the output overlaps {name} in memory: it needs elements of its own");
        invalid(message)
    };
    if o.overlap_themselves() {
        return Err(overlaps("itself"));
    }
    for (name, tensor, extents) in [
        ("q", &tensors[0], of_q),
        ("k", &tensors[1], of_kv),
        ("v", &tensors[2], of_kv),
    ] {
        if !tensor.data.is_null() && o.overlap(&Rows::new(tensor, extents, bytes)) {
            return Err(overlaps(name));
        }
    }
    let [batch, heads_q, rows, _] = of_q;
    let of_scales = [heads_q, of_kv[1], of_kv[1]].map(|heads| batch * heads);
    let counts = std::iter::once(batch * heads_q * rows).chain(of_scales);
    for ((name, address), count) in of_floats.into_iter().zip(counts) {
        if !address.is_null() && o.overlap(&Rows::dense(address, count)) {
            return Err(overlaps(name));
        }
    }
    Ok(tensors)
}

/// Where a tensor's rows lie, in bytes.
struct Rows {
    start: i128,
    length: i128,
    /// Stride, and how many there are.
    steps: [(i128, i128); 3],
}

/// Of a sum: a stride, and from how many of it to how many.
type Term = (i128, i128, i128);

fn extremes(terms: impl IntoIterator<Item = Term>) -> (i128, i128) {
    terms
        .into_iter()
        .fold((0, 0), |(least, most), (stride, from, to)| {
            (least + stride * from, most + stride * to)
        })
}

impl Rows {
    fn new(tensor: &AttentionTensor, extents: [usize; 4], element_bytes: usize) -> Self {
        let strides = [tensor.batch_stride, tensor.head_stride, tensor.row_stride];
        let in_bytes = |stride: i64| i128::from(stride) * element_bytes as i128;
        Self {
            start: tensor.data as usize as i128,
            length: in_bytes(extents[3] as i64),
            steps: [0, 1, 2].map(|i| (in_bytes(strides[i]), extents[i] as i128)),
        }
    }

    /// One row of floats.
    fn dense(address: *const f32, floats: usize) -> Self {
        Self {
            start: address as usize as i128,
            length: (floats * size_of::<f32>()) as i128,
            steps: [(1, 1); 3],
        }
    }

    fn terms(&self, sign: i128) -> impl Iterator<Item = Term> {
        let terms = self.steps.iter();
        terms.map(move |&(stride, count)| {
            let far = sign * (count - 1);
            (stride, far.min(0), far.max(0))
        })
    }

    fn overlap_themselves(&self) -> bool {
        let mut from_narrow = self.steps;
        from_narrow.sort_unstable();
        let mut end = self.length;
        from_narrow.iter().any(|&(stride, count)| {
            let overlaps = count > 1 && stride < end;
            end += stride * (count - 1);
            overlaps
        })
    }

    /// Exact, so that one buffer can hold q, k, v and o next to each other.
    fn overlap(&self, other: &Self) -> bool {
        let distance = self.start - other.start;
        let window = (-self.length, other.length);
        let (least, most) = extremes(self.terms(1).chain(other.terms(-1)));
        if distance + most <= window.0 || distance + least >= window.1 {
            return false;
        }
        let mut terms: Vec<Term> = self.terms(1).chain(other.terms(-1)).collect();
        terms.sort_unstable_by(|a, b| b.cmp(a));
        terms.dedup_by(|term, kept| {
            let is_same = term.0 == kept.0;
            if is_same {
                (kept.1, kept.2) = (kept.1 + term.1, kept.2 + term.2);
            }
            is_same
        });
        reaches(distance, &terms, window)
    }
}

/// Whether `distance` plus some sum of the terms lies within the window, its ends excluded.
fn reaches(distance: i128, terms: &[Term], window: (i128, i128)) -> bool {
    let Some((&(stride, from, to), narrower)) = terms.split_first() else {
        return window.0 < distance && distance < window.1;
    };
    let (least, most) = extremes(narrower.iter().copied());
    let first = -(distance + most - window.0 - 1).div_euclid(stride);
    let last = (window.1 - 1 - least - distance).div_euclid(stride);
    (first.max(from)..=last.min(to))
        .any(|times| reaches(distance + times * stride, narrower, window))
}

fn tensor(
    name: &str,
    tensor: &AttentionLadderTensor,
    [batch, heads, rows, columns]: [usize; 4],
    element_bytes: usize,
) -> Result<AttentionTensor, Failure> {
    let align = STRIDE_ALIGN as i64;
    if !(tensor.data as usize).is_multiple_of(STRIDE_ALIGN) {
        return Err(invalid(format!(
            "the address of {name} is {:p}: it must be a multiple of {align} bytes",
            tensor.data
        )));
    }
    // A stride between elements of which there is one says nothing: callers leave anything there.
    let stride = |dimension: &str, stride: i64, extent: usize, dense: usize| {
        if extent == 1 {
            return Ok(dense as i64);
        }
        let in_bytes = stride.saturating_mul(element_bytes as i64);
        if stride <= 0 || in_bytes % align != 0 {
            return Err(invalid(format!(
                "the {dimension} stride of {name} is {stride} elements: it must be positive and a multiple of {} elements \
                 ({align} bytes); key heads that several query heads share are not expanded, heads_kv says how many there are",
                align / element_bytes as i64
            )));
        }
        Ok(stride)
    };
    let row_stride = stride("row", tensor.row_stride, rows, columns)?;
    let head_stride = stride("head", tensor.head_stride, heads, rows * columns)?;
    let batch_stride = stride("batch", tensor.batch_stride, batch, heads * rows * columns)?;
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
            lse: std::ptr::null_mut(),
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

    fn refusal(change: impl FnOnce(&mut AttentionLadderCall)) -> (Code, String) {
        let mut call = call();
        change(&mut call);
        let checked = Checked::new(&call).and_then(|checked| checked.addresses());
        let failure = checked.unwrap_err();
        (failure.code, failure.message)
    }

    #[test]
    fn wrong_calls_are_told_what_is_expected() {
        let expect = |(code, message): (Code, String), expected: Code, words: &str| {
            assert!(
                code == expected && message.contains(words),
                "{code:?}: {message}"
            );
        };
        let (unsupported, invalid) = (Code::Unsupported, Code::Invalid);
        expect(
            refusal(|c| c.dtype = 3),
            unsupported,
            "dtype 3 is not supported",
        );
        expect(
            refusal(|c| c.mask = 2),
            unsupported,
            "mask 2 is not supported",
        );
        expect(
            refusal(|c| c.flags = 2),
            unsupported,
            "flags 2 are not supported",
        );
        expect(
            refusal(|c| c.head_dim = 96),
            unsupported,
            "head_dim = 96 is not supported",
        );
        expect(
            refusal(|c| c.lse = 66 as *mut f32),
            invalid,
            "address of lse is 0x42: it must be a multiple of 4 bytes",
        );
        expect(
            refusal(|c| c.k.scales = 65 as *const f32),
            invalid,
            "address of k's scales is 0x41: it must be a multiple of 4 bytes",
        );
        expect(
            refusal(|c| c.heads_kv = 3),
            invalid,
            "does not divide heads_q = 8",
        );
        expect(refusal(|c| c.seq_q = 0), invalid, "seq_q is 0");
        expect(refusal(|c| c.seq_q = -1), invalid, "seq_q is -1");
        expect(
            refusal(|c| c.softmax_scale = -1.0),
            invalid,
            "softmax_scale = -1",
        );
        expect(
            refusal(|c| c.k.data = 8 as *mut _),
            invalid,
            "address of k is 0x8",
        );
        expect(
            refusal(|c| c.k.data = std::ptr::null_mut()),
            invalid,
            "address of k is null",
        );
        expect(
            refusal(|c| c.o.data = std::ptr::null_mut()),
            invalid,
            "address of o is null",
        );
        expect(
            refusal(|c| c.v.row_stride = 68),
            invalid,
            "the row stride of v is 68 elements",
        );
        expect(
            refusal(|c| c.v.row_stride = 32),
            invalid,
            "less than the 64 of a row",
        );
        expect(
            refusal(|c| c.k.head_stride = 0),
            invalid,
            "are not expanded",
        );
        expect(
            refusal(|c| c.dtype = crate::ATTENTION_LADDER_E4M3),
            invalid,
            "q has no scales",
        );
        expect(
            refusal(|c| c.q.scales = 16 as *const f32),
            invalid,
            "q is f16 and has scales",
        );
        // Bytes, not elements.
        let codes = |c: &mut AttentionLadderCall| {
            c.dtype = crate::ATTENTION_LADDER_E4M3;
            c.q.row_stride = 72;
        };
        expect(
            refusal(codes),
            invalid,
            "the row stride of q is 72 elements: it must be positive and a multiple of 16",
        );
        let scaled_bf16 = |c: &mut AttentionLadderCall| {
            c.dtype = crate::ATTENTION_LADDER_BF16;
            c.v.scales = 16 as *const f32;
        };
        expect(refusal(scaled_bf16), invalid, "v is bf16 and has scales");
    }

    #[test]
    fn a_batch_larger_than_any_grid_is_unsupported() {
        let (code, message) = refusal(|c| c.batch = 65_536);
        assert_eq!(code, Code::Unsupported, "{message}");
    }

    #[test]
    fn an_output_shares_no_byte_with_an_input_or_itself() {
        let shared = |change: fn(&mut AttentionLadderCall)| refusal(change).1;
        let at = |c: &mut AttentionLadderCall, address: usize| c.o.data = address as *mut _;
        assert!(shared(|c| c.o = c.q).contains("the output overlaps q in memory"));
        assert!(shared(|c| c.o.row_stride = 32 * 1024).contains("the output overlaps itself"));
        assert!(shared(|c| c.o.head_stride = 64).contains("the output overlaps itself"));
        // What ends where O starts or starts where O ends, and 16 bytes of it in O: of two batches, in codes, half as wide as O,
        // whose rows lie 16 bytes apart.
        let dense = |heads: i64, rows: i64, row_stride: i64| AttentionLadderTensor {
            batch_stride: heads * rows * row_stride,
            head_stride: rows * row_stride,
            row_stride,
            ..call().q
        };
        let (start, end) = (1 << 20, (1 << 20) + 2 * 8 * 32 * 72 * 2 - 16);
        for (name, bytes) in [
            ("q", 2 * 8 * 32 * 64),
            ("k", 2 * 4 * 48 * 64),
            ("v", 2 * 4 * 48 * 64),
            ("lse", 2 * 8 * 32 * 4),
            ("q's scales", 2 * 8 * 4),
            ("k's scales", 2 * 4 * 4),
            ("v's scales", 2 * 4 * 4),
        ] {
            for (address, is_shared) in [
                (start - bytes, false),
                (start - bytes + 16, true),
                (end - 16, true),
                (end, false),
            ] {
                let mut call = AttentionLadderCall {
                    q: dense(8, 32, 64),
                    k: dense(4, 48, 64),
                    v: dense(4, 48, 64),
                    o: AttentionLadderTensor {
                        data: start as *mut _,
                        ..dense(8, 32, 72)
                    },
                    dtype: crate::ATTENTION_LADDER_E4M3,
                    batch: 2,
                    heads_kv: 4,
                    seq_q: 32,
                    seq_kv: 48,
                    ..call()
                };
                let at = address as *mut f32;
                match name {
                    "q" => call.q.data = at.cast(),
                    "k" => call.k.data = at.cast(),
                    "v" => call.v.data = at.cast(),
                    "lse" => call.lse = at,
                    "q's scales" => call.q.scales = at,
                    "k's scales" => call.k.scales = at,
                    _ => call.v.scales = at,
                }
                let checked = Checked::new(&call);
                let says = format!("the output overlaps {name} in memory");
                let is_refused = checked.is_err_and(|failure| failure.message.contains(&says));
                assert_eq!(is_refused, is_shared, "{name} at {address}");
            }
        }
        // Rows [q, k, v, o] of 512 positions and 8 heads in one buffer, and o as [heads, rows] where q is [rows, heads].
        let packed = |place: usize| AttentionLadderTensor {
            data: (256 + place * 8 * 64 * 2) as *mut _,
            batch_stride: 4 * 8 * 512 * 64,
            head_stride: 64,
            row_stride: 4 * 8 * 64,
            ..call().q
        };
        let mut call = AttentionLadderCall {
            q: packed(0),
            k: packed(1),
            v: packed(2),
            o: packed(3),
            batch: 3,
            ..call()
        };
        for batch in [1, 3] {
            Checked::new(&AttentionLadderCall { batch, ..call }).unwrap();
        }
        at(&mut call, 256 + 2 * 8 * 64 * 2 + 7 * 64 * 2);
        let failure = Checked::new(&call).unwrap_err();
        assert!(
            failure.message.contains("the output overlaps v"),
            "{failure:?}"
        );
        call.o = AttentionLadderTensor {
            head_stride: 512 * 64,
            row_stride: 64,
            ..packed(0)
        };
        let failure = Checked::new(&call).unwrap_err();
        assert!(
            failure.message.contains("the output overlaps q"),
            "{failure:?}"
        );
    }

    #[test]
    fn mask_and_scale_are_those_of_the_call() {
        let problem = |mask, softmax_scale| {
            let call = AttentionLadderCall {
                mask,
                softmax_scale,
                ..call()
            };
            let problem = Checked::new(&call).unwrap().problem;
            (problem.mask, problem.softmax_scale)
        };
        let full = problem(crate::ATTENTION_LADDER_FULL, 0.0);
        assert_eq!(full, (Mask::Full, 0.125));
        let causal = problem(crate::ATTENTION_LADDER_CAUSAL, 0.5);
        assert_eq!(causal, (Mask::Causal, 0.5));
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
                data: std::ptr::null_mut(),
                ..whole.q
            },
            lse: std::ptr::null_mut(),
            ..whole
        })
        .unwrap();
        checked.write_to(Some(&whole.o), whole.lse).unwrap();
        let expected = format!("{:?}", Checked::new(&whole).unwrap());
        assert_eq!(format!("{checked:?}"), expected);
        checked.write_to(None, std::ptr::null_mut()).unwrap();
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
