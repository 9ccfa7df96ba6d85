//! `attention_ladder` of Python: reads PyTorch's tensors by DLPack, and launches through the C interface on PyTorch's current
//! stream. The GIL is released meanwhile: the first call for a problem loads code, and a launch waits where the stream's
//! queue is full.

mod dlpack;

use attention_ladder::{self as ladder, AttentionLadderCall, AttentionLadderTensor, Checked};
use dlpack::{Kind, Tensor};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyString, PyTuple};
use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null, null_mut};

type Object<'a, 'py> = &'a Bound<'py, PyAny>;

/// Its extents, and the tensor for C.
fn four(tensor: &Tensor<'_, '_>) -> PyResult<([i64; 4], AttentionLadderTensor)> {
    let name = tensor.name;
    let (&[b, h, s, d], &[batch_stride, head_stride, row_stride, element_stride], 4) =
        (tensor.shape(), tensor.strides(), tensor.dimensions())
    else {
        return Err(PyValueError::new_err(format!(
            "{name} has {} dimensions: expected [batch, heads, rows, head_dim]",
            tensor.dimensions()
        )));
    };
    if element_stride != 1 && d != 1 {
        return Err(PyValueError::new_err(format!(
            "the last dimension of {name} has a stride of {element_stride} elements: it must be contiguous"
        )));
    }
    let described = AttentionLadderTensor {
        // What has no element has no place, and overlaps nothing.
        data: if tensor.is_empty() {
            null_mut()
        } else {
            tensor.data
        },
        scales: null(),
        batch_stride,
        head_stride,
        row_stride,
    };
    Ok(([b, h, s, d], described))
}

/// `[batch, heads]`, which E4M3 has and nothing else.
fn scales_of(tensor: &Tensor<'_, '_>, scales: Option<&Tensor<'_, '_>>) -> PyResult<*const f32> {
    let (name, is_scaled) = (tensor.name, tensor.kind == Kind::E4m3);
    let scales = match scales {
        Some(scales) if is_scaled => scales,
        None if !is_scaled => return Ok(null()),
        given => {
            return Err(PyValueError::new_err(format!(
                "{name} has {}: float8_e4m3fn needs {name}_scale, float32 [batch, heads]; other types have none",
                if given.is_some() {
                    "scales"
                } else {
                    "no scales"
                }
            )));
        }
    };
    let (batch, heads) = (tensor.shape()[0], tensor.shape()[1]);
    let is_dense = scales.shape() == [batch, heads]
        && (heads == 1 || scales.strides()[1] == 1)
        && (batch == 1 || scales.strides()[0] == heads);
    if !(is_dense || scales.is_empty() && tensor.is_empty())
        || scales.kind != Kind::F32
        || scales.gpu != tensor.gpu
    {
        return Err(PyValueError::new_err(format!(
            "{name}_scale must be a contiguous float32 tensor [batch, heads] = [{batch}, {heads}] on the device of {name}"
        )));
    }
    Ok(scales.data.cast_const().cast())
}

/// 0, the default of C, for none.
fn number(scale: Option<Object<'_, '_>>) -> PyResult<f32> {
    let Some(scale) = scale else {
        return Ok(0.0);
    };
    let is_number = scale.is_instance_of::<PyFloat>()
        || !scale.is_instance_of::<PyBool>() && !dlpack::is_tensor(scale)?;
    let number = if is_number {
        scale.extract().ok()
    } else {
        None
    };
    match number {
        Some(0.0) => Err(PyValueError::new_err(
            "scale = 0 is not a positive finite number",
        )),
        Some(number) => Ok(number),
        None => Err(PyTypeError::new_err(format!(
            "scale is a {}: expected a number, such as float(scale), through which no gradient flows",
            scale.get_type().name()?
        ))),
    }
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

/// What is asked for, as far as it is no tensor.
struct Options {
    is_causal: bool,
    scale: f32,
    is_batch_invariant: bool,
}

/// A call as C takes it: tensors that belong together, whose shapes C has not judged yet.
struct Described {
    call: AttentionLadderCall,
    gpu: Option<i32>,
    /// There are no elements to write, or no keys: nothing is launched.
    is_empty: bool,
}

/// `scales`: `None`, if they are not asked for.
fn described(
    [q, k, v]: &[Tensor<'_, '_>; 3],
    out: Option<&Tensor<'_, '_>>,
    scales: Option<&[Option<Tensor<'_, '_>>; 3]>,
    options: &Options,
) -> PyResult<Described> {
    let ([batch, heads_q, seq_q, head_dim], mut q_tensor) = four(q)?;
    let ([_, heads_kv, seq_kv, _], mut k_tensor) = four(k)?;
    let (_, mut v_tensor) = four(v)?;
    let (dtype, stored, in_words) = match q.kind {
        Kind::F16 => (ladder::ATTENTION_LADDER_F16, Kind::F16, "float16"),
        Kind::Bf16 => (ladder::ATTENTION_LADDER_BF16, Kind::Bf16, "bfloat16"),
        Kind::E4m3 => (ladder::ATTENTION_LADDER_E4M3, Kind::F16, "float16"),
        Kind::F32 | Kind::Other => {
            return Err(PyNotImplementedError::new_err(format!(
                "{} is not supported: q, k and v are float16, bfloat16 or float8_e4m3fn",
                q.object.getattr(intern!(q.object.py(), "dtype"))?
            )));
        }
    };
    if k.kind != q.kind || v.kind != q.kind {
        return Err(PyTypeError::new_err("q, k and v must have one dtype"));
    }
    if k.shape() != [batch, heads_kv, seq_kv, head_dim] || v.shape() != k.shape() {
        return Err(PyValueError::new_err(format!(
            "q is {:?}, k {:?} and v {:?}: k and v must have one shape, and batch and head_dim of q",
            q.shape(),
            k.shape(),
            v.shape()
        )));
    }
    if k.gpu != q.gpu || v.gpu != q.gpu {
        return Err(PyValueError::new_err("q, k and v must be on one device"));
    }
    if heads_kv == 0 && heads_q != 0 {
        return Err(PyValueError::new_err(format!(
            "heads_kv = 0 does not divide heads_q = {heads_q}"
        )));
    }
    let mut o_tensor = AttentionLadderTensor {
        data: null_mut(),
        ..q_tensor
    };
    if let Some(out) = out {
        if out.shape() != q.shape() || out.gpu != q.gpu || out.kind != stored {
            return Err(PyValueError::new_err(format!(
                "out must be a {in_words} tensor {:?} on the device of q",
                q.shape()
            )));
        }
        (_, o_tensor) = four(out)?;
    }
    if let Some([of_q, of_k, of_v]) = scales {
        q_tensor.scales = scales_of(q, of_q.as_ref())?;
        k_tensor.scales = scales_of(k, of_k.as_ref())?;
        v_tensor.scales = scales_of(v, of_v.as_ref())?;
    }
    // C knows no empty problem: its rules are those of a problem of one. What does not fit is too large for any kernel, and refused
    // as such.
    let extent = |value: i64| i32::try_from(value.max(1)).unwrap_or(i32::MAX);
    let call = AttentionLadderCall {
        q: q_tensor,
        k: k_tensor,
        v: v_tensor,
        o: o_tensor,
        lse: null_mut(),
        dtype,
        mask: if options.is_causal {
            ladder::ATTENTION_LADDER_CAUSAL
        } else {
            ladder::ATTENTION_LADDER_FULL
        },
        batch: extent(batch),
        heads_q: extent(if heads_q == 0 { heads_kv } else { heads_q }),
        heads_kv: extent(heads_kv),
        seq_q: extent(seq_q),
        seq_kv: extent(seq_kv),
        head_dim: i32::try_from(head_dim).unwrap_or(i32::MAX),
        softmax_scale: options.scale,
        flags: if options.is_batch_invariant {
            ladder::ATTENTION_LADDER_BATCH_INVARIANT
        } else {
            0
        },
    };
    Ok(Described {
        call,
        gpu: q.gpu,
        is_empty: [batch, heads_q, seq_q, seq_kv].contains(&0),
    })
}

/// The GPU of a call, or what is missing beside the tensors' place: there may be no GPU to put them on.
fn device_of(call: &Checked, gpu: Option<i32>) -> PyResult<i32> {
    gpu.ok_or_else(|| match ladder::variant(call, 0) {
        Ok(_) => {
            PyValueError::new_err("q, k and v are not on a GPU: the kernels are for NVIDIA GPUs")
        }
        Err(code) => failed(code),
    })
}

fn read_all<'a, 'py>(
    names: [&'static str; 3],
    [a, b, c]: [Option<Object<'a, 'py>>; 3],
) -> PyResult<[Option<Tensor<'a, 'py>>; 3]> {
    let read =
        |name, object: Option<_>| object.map(|object| dlpack::read(name, object)).transpose();
    Ok([read(names[0], a)?, read(names[1], b)?, read(names[2], c)?])
}

const SCALES: [&str; 3] = ["q_scale", "k_scale", "v_scale"];

/// `name` of the package, called with `argument`.
fn allocated<'py>(
    name: &Bound<'py, PyString>,
    argument: Object<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static PACKAGE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = argument.py();
    let find = || PyResult::Ok(py.import("attention_ladder")?.unbind());
    let package = PACKAGE.get_or_try_init(py, find)?.bind(py);
    package.getattr(name)?.call1((argument,))
}

/// For when the GIL is released.
struct Launch {
    call: Checked,
    device: i32,
    stream: *mut c_void,
}

// SAFETY: addresses on a GPU and a handle of the driver, neither of which is of a thread.
unsafe impl Send for Launch {}

impl Launch {
    /// The message of a failure is this thread's.
    fn launch(self) -> Result<(), i32> {
        let (call, device, stream) = (&self.call, self.device, self.stream);
        // SAFETY: the arguments that Python passed hold the tensors, PyTorch says where their
        // elements lie, and the stream is its current one. PyTorch's allocator gives memory that
        // was freed on a stream to that stream alone, and all of it is the primary context's, which
        // green contexts share.
        unsafe { ladder::launch(call, device, stream) }
    }
}

/// The arguments of one call, as Python gives them.
struct Given<'a, 'py> {
    qkv: [Object<'a, 'py>; 3],
    out: Option<Object<'a, 'py>>,
    is_causal: bool,
    scale: Option<Object<'a, 'py>>,
    scales: [Option<Object<'a, 'py>>; 3],
    return_lse: bool,
    batch_invariant: bool,
    is_dispatched: bool,
}

/// Attention of q, k and v on the current stream: out, or the pair of it and the log-sum-exps.
/// None, and nothing is done, if the dispatcher has to take the call apart first, unless that has
/// been done. Else it is within `record`, a context manager that names it for a profiler, if there
/// is one. All arguments by position.
#[pyfunction]
#[pyo3(signature = (q, k, v, out, is_causal, scale, q_scale, k_scale, v_scale, return_lse, batch_invariant, is_dispatched, record, /))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
fn sdpa<'py>(
    q: Object<'_, 'py>,
    k: Object<'_, 'py>,
    v: Object<'_, 'py>,
    out: Option<Object<'_, 'py>>,
    is_causal: bool,
    scale: Option<Object<'_, 'py>>,
    q_scale: Option<Object<'_, 'py>>,
    k_scale: Option<Object<'_, 'py>>,
    v_scale: Option<Object<'_, 'py>>,
    return_lse: bool,
    batch_invariant: bool,
    is_dispatched: bool,
    record: Option<Object<'_, 'py>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = q.py();
    let inputs = [Some(q), Some(k), Some(v), q_scale, k_scale, v_scale];
    if !is_dispatched && !dlpack::are_plain(py, inputs, out)? {
        return Ok(None);
    }
    let given = Given {
        qkv: [q, k, v],
        out,
        is_causal,
        scale,
        scales: [q_scale, k_scale, v_scale],
        return_lse,
        batch_invariant,
        is_dispatched,
    };
    if let Some(record) = record {
        record.call_method0("__enter__")?;
    }
    let attended = attend(py, &given);
    if let Some(record) = record {
        record.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    }
    attended
}

/// None, and nothing is done, if a tensor has no memory and the dispatcher has not seen the call.
fn attend<'py>(py: Python<'py>, given: &Given<'_, 'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    static INCREMENT_VERSION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let options = Options {
        is_causal: given.is_causal,
        // Not before: a symbol that is converted is bound to its value.
        scale: number(given.scale)?,
        is_batch_invariant: given.batch_invariant,
    };
    let [q, k, v] = given.qkv;
    let read = || {
        let qkv = [
            dlpack::read("q", q)?,
            dlpack::read("k", k)?,
            dlpack::read("v", v)?,
        ];
        let out = given.out.map(|out| dlpack::read("out", out)).transpose()?;
        PyResult::Ok((qkv, out, read_all(SCALES, given.scales)?))
    };
    let (qkv, out, scales) = match read() {
        // What has no memory is the dispatcher's, once.
        Err(_) if !given.is_dispatched => return Ok(None),
        read => read?,
    };
    let described = described(&qkv, out.as_ref(), Some(&scales), &options)?;
    let call = ladder::check(&described.call).map_err(failed)?;
    if let Some(out) = given.out {
        let find = || {
            let native = py.import("torch")?.getattr("_C")?;
            PyResult::Ok(native.getattr("_increment_version")?.unbind())
        };
        // Backward needs to know. torch.autograd.graph.increment_version, without its Python.
        let increment_version = INCREMENT_VERSION.get_or_try_init(py, find)?;
        increment_version.bind(py).call1(((out,),))?;
    }
    let device = (!described.is_empty)
        .then(|| device_of(&call, described.gpu))
        .transpose()?;
    let is_e4m3 = qkv[0].kind == Kind::E4m3;
    write(py, given, call, is_e4m3, device).map(Some)
}

/// Allocates what `given` does not bring along and fills it: by a launch, or without a device by
/// itself, since there are no elements or no keys.
fn write<'py>(
    py: Python<'py>,
    given: &Given<'_, 'py>,
    mut call: Checked,
    is_e4m3: bool,
    device: Option<i32>,
) -> PyResult<Bound<'py, PyAny>> {
    let [q, ..] = given.qkv;
    // Not before: a call that is refused allocates nothing.
    let result = match given.out {
        Some(out) => out.clone(),
        None if is_e4m3 => allocated(intern!(py, "_empty_out"), q)?,
        // Without `_empty_out`, which would ask for the type again.
        None => allocated(intern!(py, "_empty_like"), q)?,
    };
    let lse = given
        .return_lse
        .then(|| allocated(intern!(py, "_empty_lse"), q))
        .transpose()?;
    if let Some(device) = device {
        let new_output = match given.out {
            Some(_) => None,
            None => Some(four(&dlpack::read("out", &result)?)?.1),
        };
        let new_lse = match &lse {
            Some(lse) => dlpack::read("lse", lse)?.data.cast(),
            None => null_mut(),
        };
        ladder::write_to(&mut call, new_output.as_ref(), new_lse).map_err(failed)?;
        let launch = Launch {
            stream: dlpack::stream(py, device)?,
            call,
            device,
        };
        py.detach(move || launch.launch()).map_err(failed)?;
    } else {
        result.call_method0("zero_")?;
        if let Some(lse) = &lse {
            lse.call_method1("fill_", (f32::NEG_INFINITY,))?;
        }
    }
    Ok(match lse {
        Some(lse) => PyTuple::new(py, [result, lse])?.into_any(),
        None => result,
    })
}

/// Refuses what a launch on tensors like these would refuse, as far as their shapes are no symbols.
#[pyfunction]
#[pyo3(signature = (q, k, v, is_causal, scale, q_scale, k_scale, v_scale, batch_invariant, /))]
#[allow(clippy::too_many_arguments)]
fn check(
    q: Object<'_, '_>,
    k: Object<'_, '_>,
    v: Object<'_, '_>,
    is_causal: bool,
    scale: Option<Object<'_, '_>>,
    q_scale: Option<Object<'_, '_>>,
    k_scale: Option<Object<'_, '_>>,
    v_scale: Option<Object<'_, '_>>,
    batch_invariant: bool,
) -> PyResult<()> {
    let mut scales = [None, None, None];
    for ((place, name), scale) in scales
        .iter_mut()
        .zip(SCALES)
        .zip([q_scale, k_scale, v_scale])
    {
        let Some(scale) = scale else { continue };
        *place = dlpack::imagine(name, scale)?;
        if place.is_none() {
            return Ok(());
        }
    }
    let qkv = (
        dlpack::imagine("q", q)?,
        dlpack::imagine("k", k)?,
        dlpack::imagine("v", v)?,
    );
    if let (Some(q), Some(k), Some(v)) = qkv {
        let options = Options {
            is_causal,
            scale: number(scale)?,
            is_batch_invariant: batch_invariant,
        };
        let described = described(&[q, k, v], None, Some(&scales), &options)?;
        ladder::check(&described.call).map_err(failed)?;
    }
    Ok(())
}

/// Stage and variant of a launch.
#[pyfunction]
#[pyo3(signature = (q, k, v, is_causal, scale, return_lse, batch_invariant, /))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
fn variant(
    q: Object<'_, '_>,
    k: Object<'_, '_>,
    v: Object<'_, '_>,
    is_causal: bool,
    scale: Option<Object<'_, '_>>,
    return_lse: bool,
    batch_invariant: bool,
) -> PyResult<String> {
    let options = Options {
        is_causal,
        scale: number(scale)?,
        is_batch_invariant: batch_invariant,
    };
    let qkv = [
        dlpack::read("q", q)?,
        dlpack::read("k", k)?,
        dlpack::read("v", v)?,
    ];
    let mut described = described(&qkv, None, None, &options)?;
    if return_lse {
        described.call.lse = NonNull::dangling().as_ptr();
    }
    let call = ladder::check(&described.call).map_err(failed)?;
    let device = device_of(&call, described.gpu)?;
    let name = ladder::variant(&call, device).map_err(failed)?;
    Ok(name.to_string_lossy().into_owned())
}

/// The module `attention_ladder._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(sdpa, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(variant, module)?)
}
