//! Attention of sequences of lengths of their own: packed, padded, or with keys in pages.

use crate::dlpack::{self, Kind, Tensor};
use crate::{
    Call, ElementType, Launch, Object, call_memory, failed, increment_version, read_optional,
    refuse_unfit_output, softmax_scale,
};
use attention_ladder::{
    self as ladder, AttentionLadderTensor, AttentionLadderVarlenCall, CheckedVarlen,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};

/// Everything that is no tensor.
struct Options {
    max_q: i64,
    max_k: i64,
    scale: f32,
    window_left: i64,
    window_right: i64,
    softcap: f32,
}

/// The tensors of a call. Without `cu_q` queries are padded, without `cu_k` keys are padded or in
/// pages.
struct Tensors<'a, 'py> {
    qkv: [Tensor<'a, 'py>; 3],
    out: Option<Tensor<'a, 'py>>,
    cu_q: Option<Tensor<'a, 'py>>,
    cu_k: Option<Tensor<'a, 'py>>,
    seqused_k: Option<Tensor<'a, 'py>>,
    block_table: Option<Tensor<'a, 'py>>,
    sinks: Option<Tensor<'a, 'py>>,
    k_descale: Option<Tensor<'a, 'py>>,
    v_descale: Option<Tensor<'a, 'py>>,
}

impl<'a, 'py> Tensors<'a, 'py> {
    /// Reads the tensors' memory.
    fn read(objects: &Objects<'a, 'py>) -> PyResult<Self> {
        let [q, k, v] = objects.qkv;
        let qkv = [
            dlpack::read("q", q)?,
            dlpack::read("k", k)?,
            dlpack::read("v", v)?,
        ];
        let out = read_optional("out", objects.out)?;
        let mut arrays = [const { None }; ARRAY_NAMES.len()];
        for (index, name) in ARRAY_NAMES.into_iter().enumerate() {
            arrays[index] = read_optional(name, objects.arrays[index])?;
        }
        Ok(Self::new(qkv, out, arrays))
    }

    /// Reads the attributes of tensors without memory. Returns `None` if an extent is a symbol.
    fn read_fake(objects: &Objects<'a, 'py>) -> PyResult<Option<Self>> {
        let [q, k, v] = objects.qkv;
        let fake_q = dlpack::read_fake_tensor("q", q)?;
        let fake_k = dlpack::read_fake_tensor("k", k)?;
        let fake_v = dlpack::read_fake_tensor("v", v)?;
        let (Some(q_tensor), Some(k_tensor), Some(v_tensor)) = (fake_q, fake_k, fake_v) else {
            return Ok(None);
        };
        let mut arrays = [const { None }; ARRAY_NAMES.len()];
        for (index, name) in ARRAY_NAMES.into_iter().enumerate() {
            let Some(object) = objects.arrays[index] else {
                continue;
            };
            arrays[index] = dlpack::read_fake_tensor(name, object)?;
            if arrays[index].is_none() {
                return Ok(None);
            }
        }
        Ok(Some(Self::new(
            [q_tensor, k_tensor, v_tensor],
            None,
            arrays,
        )))
    }

    /// Names the arrays, which are in the order of [`ARRAY_NAMES`].
    fn new(
        qkv: [Tensor<'a, 'py>; 3],
        out: Option<Tensor<'a, 'py>>,
        arrays: [Option<Tensor<'a, 'py>>; ARRAY_NAMES.len()],
    ) -> Self {
        let [
            cu_q,
            cu_k,
            seqused_k,
            block_table,
            sinks,
            k_descale,
            v_descale,
        ] = arrays;
        Self {
            qkv,
            out,
            cu_q,
            cu_k,
            seqused_k,
            block_table,
            sinks,
            k_descale,
            v_descale,
        }
    }

    /// Returns the number of sequences.
    fn batch(&self) -> i64 {
        match &self.cu_q {
            Some(starts) => starts.shape().first().copied().unwrap_or(0) - 1,
            // No sequences are as one without rows.
            None => self.qkv[0].shape().first().copied().unwrap_or(0).max(1),
        }
    }

    /// Returns whether k and v are in E4M3 under q of 16 bits.
    fn are_keys_codes(&self) -> bool {
        let [q, k, v] = &self.qkv;
        q.kind != Kind::E4m3 && [k.kind, v.kind] == [Kind::E4m3; 2]
    }

    fn key_layout(&self) -> Layout {
        if self.block_table.is_some() {
            Layout::Pages
        } else if self.cu_k.is_some() {
            Layout::Packed
        } else {
            Layout::Padded
        }
    }
}

/// A tensor as C takes it, and its extents: batches or pages, rows, heads and columns.
struct Described {
    tensor: AttentionLadderTensor,
    extents: [i64; 4],
}

/// The meaning of a tensor's dimensions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// The rows of all sequences, heads and columns.
    Packed,
    /// Sequences, rows, heads and columns.
    Padded,
    /// Pages, rows, heads and columns.
    Pages,
}

impl Layout {
    /// Returns the rows of the longest sequence: a padded tensor's own, at least one.
    fn longest(self, rows: i64, option: i64) -> i64 {
        if self == Self::Padded {
            rows.max(1)
        } else {
            option
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Packed => "[rows of all sequences, heads, head_dim]",
            Self::Padded => "[batch, rows, heads, head_dim] without cumulative lengths",
            Self::Pages => "[pages, page_size, heads, head_dim] with block_table",
        }
    }
}

fn describe(tensor: &Tensor<'_, '_>, layout: Layout) -> PyResult<Described> {
    let is_packed = layout == Layout::Packed;
    let (extents, strides) = match (tensor.shape(), tensor.strides(), tensor.dimensions()) {
        (&[rows, heads, columns], &[row, head, column], 3) if is_packed => {
            ([1, rows, heads, columns], [0, row, head, column])
        }
        (&[batches, rows, heads, columns], &[batch, row, head, column], 4) if !is_packed => {
            ([batches, rows, heads, columns], [batch, row, head, column])
        }
        (_, _, dimensions) => {
            return Err(PyValueError::new_err(format!(
                "{} has {dimensions} dimensions: expected {}",
                tensor.name,
                layout.words()
            )));
        }
    };
    let [batch_stride, row_stride, head_stride, element_stride] = strides;
    if element_stride != 1 && extents[3] != 1 {
        return Err(PyValueError::new_err(format!(
            "the last dimension of {} has a stride of {element_stride} elements: \
             it must be contiguous",
            tensor.name
        )));
    }
    Ok(Described {
        tensor: AttentionLadderTensor {
            data: if tensor.is_empty() {
                null_mut()
            } else {
                tensor.data
            },
            scales: null(),
            batch_stride,
            head_stride,
            row_stride,
        },
        extents,
    })
}

/// Returns the address of an array, and one that nothing lies at for an array without memory: C
/// takes null for none.
fn present_address(tensor: &Tensor<'_, '_>) -> *const c_void {
    if tensor.data.is_null() {
        NonNull::<u128>::dangling().as_ptr().cast()
    } else {
        tensor.data.cast_const()
    }
}

/// Returns the address of a dense array of these extents, null if there is none.
fn array(
    tensor: Option<&Tensor<'_, '_>>,
    q: &Tensor<'_, '_>,
    kind: Kind,
    extents: &[i64],
) -> PyResult<*const c_void> {
    let Some(present) = tensor else {
        return Ok(null());
    };
    if present.is_dense(extents) && present.kind == kind && present.gpu == q.gpu {
        return Ok(present_address(present));
    }
    let dtype = if kind == Kind::I32 {
        "int32"
    } else {
        "float32"
    };
    Err(PyValueError::new_err(format!(
        "{} must be a contiguous {dtype} tensor {extents:?} on the device of q",
        present.name
    )))
}

/// A table of pages as C takes it.
struct Table {
    address: *const i32,
    stride: i64,
}

impl Table {
    fn read(table: Option<&Tensor<'_, '_>>, q: &Tensor<'_, '_>, batch: i64) -> PyResult<Self> {
        let Some(present) = table else {
            return Ok(Self {
                address: null(),
                stride: 0,
            });
        };
        if present.kind == Kind::I32
            && present.gpu == q.gpu
            && let &[sequences, entries] = present.shape()
            && let &[stride, entry_stride] = present.strides()
            && sequences == batch
            && (entries <= 1 || entry_stride == 1)
        {
            return Ok(Self {
                address: present_address(present).cast(),
                stride: if batch == 1 { entries } else { stride },
            });
        }
        Err(PyValueError::new_err(format!(
            "block_table must be an int32 tensor [{batch}, pages of a sequence] on the device of \
             q, its last dimension contiguous"
        )))
    }
}

/// A call as C takes it.
struct DescribedCall {
    call: AttentionLadderVarlenCall,
    gpu: Option<i32>,
    q_layout: Layout,
    /// Whether there are no rows or no keys: nothing is launched.
    is_empty: bool,
}

/// Refuses tensors that do not belong together. `q`, `k` and `v` are their extents.
fn refuse_unequal_tensors(
    tensors: &Tensors<'_, '_>,
    [q_extents, k_extents, v_extents]: [[i64; 4]; 3],
) -> PyResult<()> {
    let [q, k, v] = &tensors.qkv;
    let is_one_type = k.kind == q.kind && v.kind == q.kind;
    if !is_one_type && !tensors.are_keys_codes() {
        return Err(PyTypeError::new_err(
            "q, k and v must have one dtype, but that k and v may be float8_e4m3fn",
        ));
    }
    let is_of_other_batch = tensors.key_layout() == Layout::Padded
        && !k.is_empty()
        && !q.is_empty()
        && k_extents[0] != tensors.batch();
    if k_extents[3] != q_extents[3] || v_extents != k_extents || is_of_other_batch {
        let batch = if is_of_other_batch { "batch and " } else { "" };
        return Err(PyValueError::new_err(format!(
            "q is {:?}, k {:?} and v {:?}: k and v must have one shape, and {batch}head_dim of q",
            q.shape(),
            k.shape(),
            v.shape()
        )));
    }
    if k.gpu != q.gpu || v.gpu != q.gpu {
        return Err(PyValueError::new_err("q, k and v must be on one device"));
    }
    Ok(())
}

/// Refuses keys that nothing places.
fn refuse_unplaced_keys(tensors: &Tensors<'_, '_>) -> PyResult<()> {
    let has_pages = tensors.block_table.is_some();
    if tensors.cu_k.is_none() && !has_pages && tensors.qkv[1].dimensions() == 3 {
        return Err(PyValueError::new_err(
            "cu_seqlens_k and block_table are None: one of them places the keys of a sequence",
        ));
    }
    if has_pages && tensors.seqused_k.is_none() {
        return Err(PyValueError::new_err(
            "block_table needs seqused_k, the number of keys of each sequence",
        ));
    }
    Ok(())
}

/// Describes the output: one that the call brings along, or as it will be allocated.
fn describe_output(
    tensors: &Tensors<'_, '_>,
    q: AttentionLadderTensor,
    layout: Layout,
) -> PyResult<AttentionLadderTensor> {
    let Some(out) = &tensors.out else {
        return Ok(AttentionLadderTensor {
            data: null_mut(),
            ..q
        });
    };
    let element_type = ElementType::of_inputs(&tensors.qkv[0])?;
    refuse_unfit_output(out, &tensors.qkv[0], &element_type)?;
    Ok(describe(out, layout)?.tensor)
}

fn describe_call(tensors: &Tensors<'_, '_>, options: &Options) -> PyResult<DescribedCall> {
    let [q, k, v] = &tensors.qkv;
    let key_layout = tensors.key_layout();
    let q_layout = if tensors.cu_q.is_some() {
        Layout::Packed
    } else {
        Layout::Padded
    };
    refuse_unplaced_keys(tensors)?;
    let q_described = describe(q, q_layout)?;
    let k_described = describe(k, key_layout)?;
    let v_described = describe(v, key_layout)?;
    let element_type = ElementType::of_inputs(q)?;
    let [q_extents, k_extents] = [q_described.extents, k_described.extents];
    refuse_unequal_tensors(tensors, [q_extents, k_extents, v_described.extents])?;
    let [q_batches, q_rows, heads_q, head_dim] = q_extents;
    let [pages, key_rows, heads_kv, _] = k_extents;
    let batch = tensors.batch();
    let starts = |tensor| array(tensor, q, Kind::I32, &[batch + 1]);
    let table = Table::read(tensors.block_table.as_ref(), q, batch)?;
    let with_scales = |tensor, descale: &Option<Tensor<'_, '_>>| {
        Ok::<_, PyErr>(AttentionLadderTensor {
            scales: array(descale.as_ref(), q, Kind::F32, &[batch, heads_kv])?.cast(),
            ..tensor
        })
    };
    let call = AttentionLadderVarlenCall {
        q: q_described.tensor,
        k: with_scales(k_described.tensor, &tensors.k_descale)?,
        v: with_scales(v_described.tensor, &tensors.v_descale)?,
        o: describe_output(tensors, q_described.tensor, q_layout)?,
        lse: null_mut(),
        cu_seqlens_q: starts(tensors.cu_q.as_ref())?.cast(),
        cu_seqlens_k: starts(tensors.cu_k.as_ref())?.cast(),
        seqused_k: array(tensors.seqused_k.as_ref(), q, Kind::I32, &[batch])?.cast(),
        block_table: table.address,
        sinks: array(tensors.sinks.as_ref(), q, Kind::F32, &[heads_q])?.cast(),
        dtype: element_type.dtype,
        mask: ladder::ATTENTION_LADDER_FULL,
        batch: clamped(batch),
        heads_q: clamped(heads_q),
        heads_kv: clamped(heads_kv),
        max_seqlen_q: clamped(q_layout.longest(q_rows, options.max_q)),
        max_seqlen_k: clamped(key_layout.longest(key_rows, options.max_k).max(1)),
        head_dim: clamped(head_dim),
        total_q: clamped(q_rows.max(1)),
        total_k: clamped(key_rows.max(1)),
        pages: clamped(pages.max(1)),
        page_size: clamped(key_rows),
        block_table_stride: clamped(table.stride),
        window_left: clamped(options.window_left),
        window_right: clamped(options.window_right),
        softcap: options.softcap,
        softmax_scale: options.scale,
        flags: 0,
        kv_dtype: if tensors.are_keys_codes() {
            ladder::ATTENTION_LADDER_E4M3
        } else {
            0
        },
    };
    Ok(DescribedCall {
        call,
        gpu: q.gpu,
        q_layout,
        is_empty: [q_batches, q_rows, pages, key_rows].contains(&0),
    })
}

/// Returns a number for C. One that does not fit is too large for any kernel, and refused as such.
fn clamped(value: i64) -> i32 {
    value.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

impl Call for CheckedVarlen {
    fn enqueue(&self, device: i32, stream: *mut c_void) -> Result<(), i32> {
        // SAFETY: as for `sdpa`: the arguments hold the tensors, whose memory is the current
        // stream's. Lengths and pages are what the caller put there.
        unsafe { ladder::launch_varlen(self, device, stream) }
    }
}

/// The arrays of a call, in the order of [`Objects::arrays`].
const ARRAY_NAMES: [&str; 7] = [
    "cu_seqlens_q",
    "cu_seqlens_k",
    "seqused_k",
    "block_table",
    "sinks",
    "k_descale",
    "v_descale",
];

/// The tensors of a call, as Python passes them.
struct Objects<'a, 'py> {
    qkv: [Object<'a, 'py>; 3],
    out: Option<Object<'a, 'py>>,
    arrays: [Option<Object<'a, 'py>>; ARRAY_NAMES.len()],
    return_lse: bool,
}

impl<'py> Objects<'_, 'py> {
    /// Returns out, or allocates it like q.
    fn output(&self) -> PyResult<Bound<'py, PyAny>> {
        match self.out {
            Some(out) => Ok(out.clone()),
            None => {
                let [q, ..] = self.qkv;
                call_memory(intern!(q.py(), "empty_like"), q)
            }
        }
    }

    fn new_lse(&self) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.return_lse {
            return Ok(None);
        }
        let [q, ..] = self.qkv;
        call_memory(intern!(q.py(), "empty_varlen_lse"), q).map(Some)
    }

    /// Allocates the results and launches.
    fn launched(
        &self,
        mut call: CheckedVarlen,
        device: i32,
        layout: Layout,
    ) -> PyResult<Bound<'py, PyAny>> {
        let out = self.output()?;
        let py = out.py();
        let lse = self.new_lse()?;
        let lse_address = match &lse {
            Some(tensor) => dlpack::read("lse", tensor)?.data.cast(),
            None => null_mut(),
        };
        let output = describe(&dlpack::read("out", &out)?, layout)?.tensor;
        ladder::write_varlen_to(&mut call, &output, lse_address).map_err(failed)?;
        Launch::new(py, call, device)?.launch(py)?;
        result(out, lse)
    }

    /// Returns the results where there are no rows or no keys, without a launch.
    fn filled(&self) -> PyResult<Bound<'py, PyAny>> {
        let out = self.output()?;
        let [_, _, _, _, sinks, ..] = self.arrays;
        out.call_method0("zero_")?;
        let lse = self.new_lse()?;
        match (&lse, sinks) {
            (Some(tensor), Some(logits)) => {
                tensor.call_method1("copy_", (logits.call_method1("unsqueeze", (1,))?,))?;
            }
            (Some(tensor), None) => {
                tensor.call_method1("fill_", (f32::NEG_INFINITY,))?;
            }
            (None, _) => {}
        }
        result(out, lse)
    }
}

/// Computes attention of sequences on the current stream and returns out, or the pair of it and the
/// log-sum-exps. Returns None, and nothing is done, if the dispatcher has to take the call apart
/// first, unless that has been done. All arguments are by position.
#[pyfunction]
#[pyo3(signature = (
    q, k, v, out, cu_q, cu_k, max_q, max_k, scale, window_left, window_right, seqused_k,
    block_table, sinks, softcap, k_descale, v_descale, return_lse, is_dispatched, /
))]
#[allow(clippy::too_many_arguments)]
pub fn varlen<'py>(
    q: Object<'_, 'py>,
    k: Object<'_, 'py>,
    v: Object<'_, 'py>,
    out: Option<Object<'_, 'py>>,
    cu_q: Option<Object<'_, 'py>>,
    cu_k: Option<Object<'_, 'py>>,
    max_q: i64,
    max_k: i64,
    scale: Option<Object<'_, 'py>>,
    window_left: i64,
    window_right: i64,
    seqused_k: Option<Object<'_, 'py>>,
    block_table: Option<Object<'_, 'py>>,
    sinks: Option<Object<'_, 'py>>,
    softcap: f32,
    k_descale: Option<Object<'_, 'py>>,
    v_descale: Option<Object<'_, 'py>>,
    return_lse: bool,
    is_dispatched: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let arrays = [
        cu_q,
        cu_k,
        seqused_k,
        block_table,
        sinks,
        k_descale,
        v_descale,
    ];
    let objects = Objects {
        qkv: [q, k, v],
        out,
        arrays,
        return_lse,
    };
    let mut inputs = vec![Some(q), Some(k), Some(v)];
    inputs.extend(arrays);
    if !is_dispatched && !dlpack::are_plain(q.py(), &inputs, out)? {
        return Ok(None);
    }
    let options = Options {
        max_q,
        max_k,
        scale: softmax_scale(scale)?,
        window_left,
        window_right,
        softcap,
    };
    let tensors = match Tensors::read(&objects) {
        Ok(tensors) => tensors,
        // A tensor without memory is the dispatcher's, once.
        Err(_) if !is_dispatched => return Ok(None),
        Err(error) => return Err(error),
    };
    attend(&objects, &tensors, &options).map(Some)
}

/// Checks, allocates and launches.
fn attend<'py>(
    objects: &Objects<'_, 'py>,
    tensors: &Tensors<'_, 'py>,
    options: &Options,
) -> PyResult<Bound<'py, PyAny>> {
    let described = describe_call(tensors, options)?;
    let call = ladder::check_varlen(&described.call).map_err(failed)?;
    if let Some(out) = objects.out {
        increment_version(out)?;
    }
    if described.is_empty {
        return objects.filled();
    }
    let Some(device) = described.gpu else {
        ladder::varlen_variant(&call, 0).map_err(failed)?;
        return Err(PyValueError::new_err(
            "q, k and v are not on a GPU: the kernels are for NVIDIA GPUs",
        ));
    };
    objects.launched(call, device, described.q_layout)
}

/// Refuses what a launch on tensors like these would refuse, as far as their shapes are no symbols.
#[pyfunction]
#[pyo3(signature = (
    q, k, v, cu_q, cu_k, max_q, max_k, scale, window_left, window_right, seqused_k, block_table,
    sinks, softcap, k_descale, v_descale, /
))]
#[allow(clippy::too_many_arguments)]
pub fn check_varlen<'py>(
    q: Object<'_, 'py>,
    k: Object<'_, 'py>,
    v: Object<'_, 'py>,
    cu_q: Option<Object<'_, 'py>>,
    cu_k: Option<Object<'_, 'py>>,
    max_q: i64,
    max_k: i64,
    scale: Option<Object<'_, 'py>>,
    window_left: i64,
    window_right: i64,
    seqused_k: Option<Object<'_, 'py>>,
    block_table: Option<Object<'_, 'py>>,
    sinks: Option<Object<'_, 'py>>,
    softcap: f32,
    k_descale: Option<Object<'_, 'py>>,
    v_descale: Option<Object<'_, 'py>>,
) -> PyResult<()> {
    let objects = Objects {
        qkv: [q, k, v],
        out: None,
        arrays: [
            cu_q,
            cu_k,
            seqused_k,
            block_table,
            sinks,
            k_descale,
            v_descale,
        ],
        return_lse: false,
    };
    let Some(tensors) = Tensors::read_fake(&objects)? else {
        return Ok(());
    };
    let options = Options {
        max_q,
        max_k,
        scale: softmax_scale(scale)?,
        window_left,
        window_right,
        softcap,
    };
    let described = describe_call(&tensors, &options)?;
    ladder::check_varlen(&described.call).map_err(failed)?;
    Ok(())
}

fn result<'py>(
    out: Bound<'py, PyAny>,
    lse: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match lse {
        Some(tensor) => Ok(PyTuple::new(out.py(), [out.clone(), tensor])?.into_any()),
        None => Ok(out),
    }
}
