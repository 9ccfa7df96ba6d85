//! Attention of sequences that lie one after the other, or whose keys lie in pages.

use crate::dlpack::{self, Kind, Tensor};
use crate::{ElementType, Object, call_package, failed, read_optional, softmax_scale};
use attention_ladder::{
    self as ladder, AttentionLadderTensor, AttentionLadderVarlenCall, CheckedVarlen,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// Everything that is no tensor.
struct Options {
    max_q: i64,
    max_k: i64,
    scale: f32,
    window_left: i64,
    window_right: i64,
    softcap: f32,
}

/// The tensors of a call.
struct Tensors<'a, 'py> {
    qkv: [Tensor<'a, 'py>; 3],
    cu_q: Tensor<'a, 'py>,
    cu_k: Option<Tensor<'a, 'py>>,
    seqused_k: Option<Tensor<'a, 'py>>,
    block_table: Option<Tensor<'a, 'py>>,
    sinks: Option<Tensor<'a, 'py>>,
}

impl<'a, 'py> Tensors<'a, 'py> {
    /// Reads the tensors' memory.
    fn read(
        [q, k, v]: [Object<'a, 'py>; 3],
        cu_q: Object<'a, 'py>,
        [cu_k, seqused_k, block_table, sinks]: [Option<Object<'a, 'py>>; 4],
    ) -> PyResult<Self> {
        Ok(Self {
            qkv: [
                dlpack::read("q", q)?,
                dlpack::read("k", k)?,
                dlpack::read("v", v)?,
            ],
            cu_q: dlpack::read("cu_seqlens_q", cu_q)?,
            cu_k: read_optional("cu_seqlens_k", cu_k)?,
            seqused_k: read_optional("seqused_k", seqused_k)?,
            block_table: read_optional("block_table", block_table)?,
            sinks: read_optional("sinks", sinks)?,
        })
    }
}

/// A tensor as C takes it, and its extents: batches or pages, rows, heads and columns.
struct Described {
    tensor: AttentionLadderTensor,
    extents: [i64; 4],
}

/// Describes [rows, heads, columns], or with pages [pages, rows, heads, columns].
fn describe(tensor: &Tensor<'_, '_>, has_pages: bool) -> PyResult<Described> {
    let (extents, strides) = match (tensor.shape(), tensor.strides(), tensor.dimensions()) {
        (&[rows, heads, columns], &[row, head, column], 3) if !has_pages => {
            ([1, rows, heads, columns], [0, row, head, column])
        }
        (&[pages, rows, heads, columns], &[page, row, head, column], 4) if has_pages => {
            ([pages, rows, heads, columns], [page, row, head, column])
        }
        (_, _, dimensions) => {
            let expected = if has_pages {
                "[pages, page_size, heads, head_dim] with block_table"
            } else {
                "[rows of all sequences, heads, head_dim]"
            };
            return Err(PyValueError::new_err(format!(
                "{} has {dimensions} dimensions: expected {expected}",
                tensor.name
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

/// Returns the address of a dense array of `count` elements, null if there is none.
fn array(
    tensor: Option<&Tensor<'_, '_>>,
    q: &Tensor<'_, '_>,
    kind: Kind,
    count: i64,
) -> PyResult<*const c_void> {
    let Some(present) = tensor else {
        return Ok(null());
    };
    let is_dense = present.shape() == [count] && (count == 1 || present.strides() == [1]);
    if is_dense && present.kind == kind && present.gpu == q.gpu {
        return Ok(present.data.cast_const());
    }
    let dtype = if kind == Kind::I32 {
        "int32"
    } else {
        "float32"
    };
    Err(PyValueError::new_err(format!(
        "{} must be a contiguous {dtype} tensor [{count}] on the device of q",
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
                address: present.data.cast_const().cast(),
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
    /// Whether there are no rows or no keys: nothing is launched.
    is_empty: bool,
}

fn describe_call(tensors: &Tensors<'_, '_>, options: &Options) -> PyResult<DescribedCall> {
    let [q, k, v] = &tensors.qkv;
    let has_pages = tensors.block_table.is_some();
    let q_described = describe(q, false)?;
    let k_described = describe(k, has_pages)?;
    let v_described = describe(v, has_pages)?;
    let element_type = ElementType::of_inputs(q)?;
    if k.kind != q.kind || v.kind != q.kind {
        return Err(PyTypeError::new_err("q, k and v must have one dtype"));
    }
    let [_, total_q, heads_q, head_dim] = q_described.extents;
    let [pages, key_rows, heads_kv, head_dim_k] = k_described.extents;
    if head_dim_k != head_dim || v_described.extents != k_described.extents {
        return Err(PyValueError::new_err(format!(
            "q is {:?}, k {:?} and v {:?}: k and v must have one shape, and head_dim of q",
            q.shape(),
            k.shape(),
            v.shape()
        )));
    }
    if k.gpu != q.gpu || v.gpu != q.gpu {
        return Err(PyValueError::new_err("q, k and v must be on one device"));
    }
    if tensors.cu_k.is_none() && !has_pages {
        return Err(PyValueError::new_err(
            "cu_seqlens_k and block_table are None: one of them places the keys of a sequence",
        ));
    }
    if has_pages && tensors.seqused_k.is_none() {
        return Err(PyValueError::new_err(
            "block_table needs seqused_k, the number of keys of each sequence",
        ));
    }
    let batch = tensors.cu_q.shape().first().copied().unwrap_or(0) - 1;
    let starts = |tensor| array(tensor, q, Kind::I32, batch + 1);
    let table = Table::read(tensors.block_table.as_ref(), q, batch)?;
    let call = AttentionLadderVarlenCall {
        q: q_described.tensor,
        k: k_described.tensor,
        v: v_described.tensor,
        o: AttentionLadderTensor {
            data: null_mut(),
            ..q_described.tensor
        },
        lse: null_mut(),
        cu_seqlens_q: starts(Some(&tensors.cu_q))?.cast(),
        cu_seqlens_k: starts(tensors.cu_k.as_ref())?.cast(),
        seqused_k: array(tensors.seqused_k.as_ref(), q, Kind::I32, batch)?.cast(),
        block_table: table.address,
        sinks: array(tensors.sinks.as_ref(), q, Kind::F32, heads_q)?.cast(),
        dtype: element_type.dtype,
        mask: ladder::ATTENTION_LADDER_FULL,
        batch: clamped(batch),
        heads_q: clamped(heads_q),
        heads_kv: clamped(heads_kv),
        max_seqlen_q: clamped(options.max_q),
        max_seqlen_k: clamped(options.max_k.max(1)),
        head_dim: clamped(head_dim),
        total_q: clamped(total_q.max(1)),
        total_k: clamped(key_rows.max(1)),
        pages: clamped(pages.max(1)),
        page_size: clamped(key_rows),
        block_table_stride: clamped(table.stride),
        window_left: clamped(options.window_left),
        window_right: clamped(options.window_right),
        softcap: options.softcap,
        softmax_scale: options.scale,
        flags: 0,
    };
    Ok(DescribedCall {
        call,
        gpu: q.gpu,
        is_empty: [total_q, pages, key_rows].contains(&0),
    })
}

/// Returns a number for C. One that does not fit is too large for any kernel, and refused as such.
fn clamped(value: i64) -> i32 {
    value.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// A launch that needs no GIL.
struct Launch {
    call: CheckedVarlen,
    device: i32,
    stream: *mut c_void,
}

// SAFETY: addresses on a GPU and a handle of the driver, neither of which is of a thread.
unsafe impl Send for Launch {}

impl Launch {
    fn launch(self) -> Result<(), i32> {
        // SAFETY: as for `sdpa`: the arguments hold the tensors, whose memory is the current
        // stream's. Lengths and pages are what the caller put there.
        unsafe { ladder::launch_varlen(&self.call, self.device, self.stream) }
    }
}

/// Computes attention of packed sequences on the current stream and returns out, or the pair of it
/// and the log-sum-exps. Returns None, and nothing is done, if the dispatcher has to take the call
/// apart first, unless that has been done. All arguments are by position.
#[pyfunction]
#[pyo3(signature = (
    q, k, v, cu_q, cu_k, max_q, max_k, scale, window_left, window_right, seqused_k, block_table,
    sinks, softcap, return_lse, is_dispatched, /
))]
#[allow(clippy::too_many_arguments)]
pub fn varlen<'py>(
    q: Object<'_, 'py>,
    k: Object<'_, 'py>,
    v: Object<'_, 'py>,
    cu_q: Object<'_, 'py>,
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
    return_lse: bool,
    is_dispatched: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = q.py();
    let inputs = [
        Some(q),
        Some(k),
        Some(v),
        Some(cu_q),
        cu_k,
        seqused_k,
        block_table,
        sinks,
    ];
    if !is_dispatched && !dlpack::are_plain(py, &inputs, None)? {
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
    let arrays = [cu_k, seqused_k, block_table, sinks];
    let tensors = match Tensors::read([q, k, v], cu_q, arrays) {
        Ok(tensors) => tensors,
        // A tensor without memory is the dispatcher's, once.
        Err(_) if !is_dispatched => return Ok(None),
        Err(error) => return Err(error),
    };
    let described = describe_call(&tensors, &options)?;
    let call = ladder::check_varlen(&described.call).map_err(failed)?;
    if described.is_empty {
        return filled(q, sinks, return_lse).map(Some);
    }
    let Some(device) = described.gpu else {
        ladder::varlen_variant(&call, 0).map_err(failed)?;
        return Err(PyValueError::new_err(
            "q, k and v are not on a GPU: the kernels are for NVIDIA GPUs",
        ));
    };
    launched(q, call, device, return_lse).map(Some)
}

/// Allocates the results and launches.
fn launched<'py>(
    q: Object<'_, 'py>,
    mut call: CheckedVarlen,
    device: i32,
    return_lse: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = q.py();
    let out = call_package(intern!(py, "_empty_like"), q)?;
    let lse = new_lse(q, return_lse)?;
    let lse_address = match &lse {
        Some(tensor) => dlpack::read("lse", tensor)?.data.cast(),
        None => null_mut(),
    };
    let output = describe(&dlpack::read("out", &out)?, false)?.tensor;
    ladder::write_varlen_to(&mut call, &output, lse_address).map_err(failed)?;
    let launch = Launch {
        stream: dlpack::stream(py, device)?,
        call,
        device,
    };
    py.detach(move || launch.launch()).map_err(failed)?;
    result(out, lse)
}

/// Returns the results where there are no rows or no keys, without a launch.
fn filled<'py>(
    q: Object<'_, 'py>,
    sinks: Option<Object<'_, 'py>>,
    return_lse: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let out = call_package(intern!(q.py(), "_empty_like"), q)?;
    out.call_method0("zero_")?;
    let lse = new_lse(q, return_lse)?;
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

fn new_lse<'py>(q: Object<'_, 'py>, return_lse: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !return_lse {
        return Ok(None);
    }
    call_package(intern!(q.py(), "_empty_varlen_lse"), q).map(Some)
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
