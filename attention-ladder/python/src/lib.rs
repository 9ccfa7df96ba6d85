//! `attention_ladder` of Python: reads PyTorch's tensors by DLPack, and launches through the C interface on PyTorch's current
//! stream. The GIL is released meanwhile: the first call for a problem loads code, and a launch waits where the stream's
//! queue is full.

mod dlpack;

use attention_ladder::{self as ladder, AttentionLadderCall, AttentionLadderTensor};
use dlpack::{Kind, Tensor};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Its extents, and the tensor for C.
fn four(name: &str, tensor: &Tensor<'_>) -> PyResult<([i64; 4], AttentionLadderTensor)> {
    let (&[b, h, s, d], &[batch_stride, head_stride, row_stride, element_stride]) =
        (tensor.shape, tensor.strides)
    else {
        return Err(PyValueError::new_err(format!(
            "{name} has {} dimensions: expected [batch, heads, rows, head_dim]",
            tensor.shape.len()
        )));
    };
    if element_stride != 1 && d != 1 {
        return Err(PyValueError::new_err(format!(
            "the last dimension of {name} has a stride of {element_stride} elements: it must be contiguous"
        )));
    }
    let described = AttentionLadderTensor {
        data: tensor.data,
        scales: std::ptr::null(),
        batch_stride,
        head_stride,
        row_stride,
    };
    Ok(([b, h, s, d], described))
}

/// `[batch, heads]`; null if there are none.
fn scales_of(
    name: &str,
    tensor: &Tensor<'_>,
    scales: Option<&Bound<'_, PyAny>>,
) -> PyResult<*const f32> {
    let Some(scales) = scales else {
        return Ok(std::ptr::null());
    };
    let scales = dlpack::read(name, scales)?;
    let (batch, heads) = (tensor.shape[0], tensor.shape[1]);
    let is_dense = scales.shape == [batch, heads]
        && (heads == 1 || scales.strides[1] == 1)
        && (batch == 1 || scales.strides[0] == heads);
    if !is_dense || scales.kind != Kind::F32 || scales.gpu != tensor.gpu {
        return Err(PyValueError::new_err(format!(
            "{name}_scale must be a contiguous float32 tensor [batch, heads] = [{batch}, {heads}] on the device of {name}"
        )));
    }
    Ok(scales.data.cast_const().cast())
}

/// float32, dense, one value for each row of q.
fn lse_of(q: &Tensor<'_>, lse: &Tensor<'_>) -> PyResult<*mut f32> {
    let rows = &q.shape[..3];
    let dense = [rows[1] * rows[2], rows[2], 1];
    let is_dense =
        lse.shape == rows && (0..3).all(|i| lse.shape[i] == 1 || lse.strides[i] == dense[i]);
    if !is_dense || lse.kind != Kind::F32 || lse.gpu != q.gpu {
        return Err(PyValueError::new_err(format!(
            "lse must be a contiguous float32 tensor [batch, heads, rows] = {rows:?} on the device of q"
        )));
    }
    Ok(lse.data.cast())
}

const NO_BACKWARD: &str = "backward is not supported: call it under torch.no_grad(), or on tensors that require no gradient";

fn without_gradient(tensors: [&Bound<'_, PyAny>; 3]) -> PyResult<()> {
    static IS_GRAD_ENABLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = tensors[0].py();
    let is_enabled = IS_GRAD_ENABLED.get_or_try_init(py, || {
        PyResult::Ok(py.import("torch")?.getattr("is_grad_enabled")?.unbind())
    })?;
    if !is_enabled.bind(py).call0()?.is_truthy()? {
        return Ok(());
    }
    for tensor in tensors {
        if tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
            return Err(PyNotImplementedError::new_err(NO_BACKWARD));
        }
    }
    Ok(())
}

fn failed(code: i32) -> PyErr {
    // SAFETY: the string is this thread's, and no call comes between.
    let message = unsafe { CStr::from_ptr(ladder::attention_ladder_last_error()) };
    let message = message.to_string_lossy().into_owned();
    match code {
        ladder::ATTENTION_LADDER_UNSUPPORTED => PyNotImplementedError::new_err(message),
        ladder::ATTENTION_LADDER_INVALID => PyValueError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// With the number of its GPU.
#[allow(clippy::too_many_arguments)]
fn call(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    out: Option<&Bound<'_, PyAny>>,
    lse: Option<&Bound<'_, PyAny>>,
    is_causal: bool,
    scale: Option<f32>,
    scales: [Option<&Bound<'_, PyAny>>; 3],
) -> PyResult<(AttentionLadderCall, i32)> {
    let [of_q, of_k, of_v] = [
        dlpack::read("q", q)?,
        dlpack::read("k", k)?,
        dlpack::read("v", v)?,
    ];
    let ([batch, heads_q, seq_q, head_dim], mut q_tensor) = four("q", &of_q)?;
    let ([_, heads_kv, seq_kv, _], mut k_tensor) = four("k", &of_k)?;
    let (_, mut v_tensor) = four("v", &of_v)?;
    if of_k.kind != of_q.kind || of_v.kind != of_q.kind {
        return Err(PyTypeError::new_err("q, k and v must have one dtype"));
    }
    if of_k.shape != [batch, heads_kv, seq_kv, head_dim] || of_v.shape != of_k.shape {
        return Err(PyValueError::new_err(format!(
            "q is {:?}, k {:?} and v {:?}: k and v must have one shape, and batch and head_dim of q",
            of_q.shape, of_k.shape, of_v.shape
        )));
    }
    if of_k.gpu != of_q.gpu || of_v.gpu != of_q.gpu {
        return Err(PyValueError::new_err("q, k and v must be on one device"));
    }
    let (dtype, stored, in_words) = match of_q.kind {
        Kind::F16 => (ladder::ATTENTION_LADDER_F16, Kind::F16, "float16"),
        Kind::Bf16 => (ladder::ATTENTION_LADDER_BF16, Kind::Bf16, "bfloat16"),
        Kind::E4m3 => (ladder::ATTENTION_LADDER_E4M3, Kind::F16, "float16"),
        Kind::F32 | Kind::Other => {
            return Err(PyNotImplementedError::new_err(format!(
                "{} is not supported: q, k and v are float16, bfloat16 or float8_e4m3fn",
                q.getattr(intern!(q.py(), "dtype"))?
            )));
        }
    };
    let mut o_tensor = AttentionLadderTensor {
        data: std::ptr::null_mut(),
        ..q_tensor
    };
    if let Some(out) = out {
        let of_out = dlpack::read("out", out)?;
        if of_out.shape != of_q.shape || of_out.gpu != of_q.gpu || of_out.kind != stored {
            return Err(PyValueError::new_err(format!(
                "out must be a {in_words} tensor {:?} on the device of q",
                of_q.shape
            )));
        }
        (_, o_tensor) = four("out", &of_out)?;
    }
    let lse = match lse {
        Some(lse) => lse_of(&of_q, &dlpack::read("lse", lse)?)?,
        None => std::ptr::null_mut(),
    };
    without_gradient([q, k, v])?;
    q_tensor.scales = scales_of("q", &of_q, scales[0])?;
    k_tensor.scales = scales_of("k", &of_k, scales[1])?;
    v_tensor.scales = scales_of("v", &of_v, scales[2])?;
    if scale == Some(0.0) {
        // To C, 0 is the default.
        return Err(PyValueError::new_err(
            "scale = 0 is not a positive finite number",
        ));
    }
    // What does not fit is too large for any kernel, and refused as such.
    let extent = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
    let call = AttentionLadderCall {
        q: q_tensor,
        k: k_tensor,
        v: v_tensor,
        o: o_tensor,
        lse,
        dtype,
        mask: if is_causal {
            ladder::ATTENTION_LADDER_CAUSAL
        } else {
            ladder::ATTENTION_LADDER_FULL
        },
        batch: extent(batch),
        heads_q: extent(heads_q),
        heads_kv: extent(heads_kv),
        seq_q: extent(seq_q),
        seq_kv: extent(seq_kv),
        head_dim: extent(head_dim),
        softmax_scale: scale.unwrap_or(0.0),
        flags: 0,
    };
    if let Some(gpu) = of_q.gpu {
        return Ok((call, gpu));
    }
    // What is missing beside the tensors' place is worth more: there may be no GPU to put them on.
    // SAFETY: a query reads no address.
    match unsafe { ladder::attention_ladder_query(&call, 0) } {
        ladder::ATTENTION_LADDER_OK => Err(PyValueError::new_err(
            "q, k and v are not on a GPU: the kernels are for NVIDIA GPUs",
        )),
        code => Err(failed(code)),
    }
}

/// For when the GIL is released.
struct Launch {
    call: AttentionLadderCall,
    device: i32,
    stream: *mut c_void,
}

// SAFETY: addresses on a GPU and a handle of the driver, neither of which is of a thread.
unsafe impl Send for Launch {}

impl Launch {
    /// Its code; the message of a failure is this thread's.
    fn launch(self) -> i32 {
        let (call, device, stream) = (&self.call, self.device, self.stream);
        // SAFETY: the arguments that Python passed hold the tensors, PyTorch says where their elements lie, and the stream is
        // its current one, in the primary context. PyTorch's allocator gives memory that was freed on a stream to that stream
        // alone.
        unsafe { ladder::attention_ladder_launch(call, device, std::ptr::null_mut(), 0, stream) }
    }
}

/// Attention of q, k and v into out, and into lse if given, on the current stream. All arguments by position.
#[pyfunction]
#[pyo3(signature = (q, k, v, out, lse, is_causal, scale, q_scale, k_scale, v_scale, /))]
#[allow(clippy::too_many_arguments)]
fn launch(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    lse: Option<&Bound<'_, PyAny>>,
    is_causal: bool,
    scale: Option<f32>,
    q_scale: Option<&Bound<'_, PyAny>>,
    k_scale: Option<&Bound<'_, PyAny>>,
    v_scale: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let scales = [q_scale, k_scale, v_scale];
    let (call, device) = call(q, k, v, Some(out), lse, is_causal, scale, scales)?;
    let stream = dlpack::stream(q.py(), device)?;
    let launch = Launch {
        call,
        device,
        stream,
    };
    let code = q.py().detach(move || launch.launch());
    if code == ladder::ATTENTION_LADDER_OK {
        Ok(())
    } else {
        Err(failed(code))
    }
}

/// Stage and variant of a launch.
#[pyfunction]
#[pyo3(signature = (q, k, v, is_causal, scale, return_lse, /))]
fn variant(
    q: &Bound<'_, PyAny>,
    k: &Bound<'_, PyAny>,
    v: &Bound<'_, PyAny>,
    is_causal: bool,
    scale: Option<f32>,
    return_lse: bool,
) -> PyResult<String> {
    let (mut call, device) = call(q, k, v, None, None, is_causal, scale, [None; 3])?;
    if return_lse {
        call.lse = NonNull::dangling().as_ptr();
    }
    // SAFETY: reads no address.
    let name = unsafe { ladder::attention_ladder_variant(&call, device) };
    if name.is_null() {
        // SAFETY: as above; says the code of what has just failed.
        return Err(failed(unsafe {
            ladder::attention_ladder_query(&call, device)
        }));
    }
    // SAFETY: a string that lives as long as the process.
    Ok(unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned())
}

/// The module `attention_ladder._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NO_BACKWARD", NO_BACKWARD)?;
    module.add_function(wrap_pyfunction!(launch, module)?)?;
    module.add_function(wrap_pyfunction!(variant, module)?)
}
