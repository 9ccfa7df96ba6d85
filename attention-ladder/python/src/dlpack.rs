//! Tensors and the current stream of PyTorch, through DLPack's table of C functions (version 1.3, `DLPackExchangeAPI`):
//! several times as fast as asking a tensor's methods one by one.

use pyo3::exceptions::{PyImportError, PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyType};
use std::ffi::c_void;

/// `kDLCUDA`.
const CUDA: i32 = 2;

/// Of the table; minor versions add to it.
const MAJOR: u32 = 1;

/// `DLTensor`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLPackExchangeAPI`.
#[repr(C)]
struct Exchange {
    major: u32,
    minor: u32,
    /// An older table, and functions that hand tensors over.
    unused: [usize; 4],
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> i32>,
    stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> i32>,
}

/// PyTorch's table, and the class whose instances it describes.
struct Torch {
    tensor: Py<PyType>,
    exchange: &'static Exchange,
    is_grad_enabled: Py<PyAny>,
    is_inference_mode_enabled: Py<PyAny>,
    /// Something that is true, where a call is not for kernels alone: a transform of torch.func, a mode, torch.jit.trace.
    interceptors: [Py<PyAny>; 4],
    forward_ad: Py<PyAny>,
}

fn torch(py: Python<'_>) -> PyResult<&Torch> {
    static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
    TORCH.get_or_try_init(py, || {
        let torch = py.import("torch")?;
        let tensor = torch.getattr("Tensor")?;
        let native = torch.getattr("_C")?;
        let capsule = tensor.getattr("__dlpack_c_exchange_api__").map_err(|_| {
            PyImportError::new_err(
                "this PyTorch has no DLPack exchange table: attention_ladder needs 2.10 or later",
            )
        })?;
        // SAFETY: a capsule of this name holds the table, which lives as long as the process; of another object this is null, with
        // an exception.
        let table = unsafe {
            ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dlpack_exchange_api".as_ptr())
                .cast::<Exchange>()
                .as_ref()
        };
        let exchange = table.ok_or_else(|| PyErr::fetch(py))?;
        if exchange.major != MAJOR {
            return Err(PyImportError::new_err(format!(
                "this PyTorch has DLPack {}.{}: attention_ladder supports version {MAJOR}",
                exchange.major, exchange.minor
            )));
        }
        Ok(Torch {
            tensor: tensor.cast_into::<PyType>()?.unbind(),
            exchange,
            is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
            is_inference_mode_enabled: torch.getattr("is_inference_mode_enabled")?.unbind(),
            interceptors: [
                native
                    .getattr("_functorch")?
                    .getattr("maybe_current_level")?
                    .unbind(),
                native.getattr("_len_torch_dispatch_stack")?.unbind(),
                native.getattr("_len_torch_function_stack")?.unbind(),
                native.getattr("_get_tracing_state")?.unbind(),
            ],
            forward_ad: py.import("torch.autograd.forward_ad")?.into_any().unbind(),
        })
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F16,
    Bf16,
    E4m3,
    F32,
    Other,
}

/// Valid as long as the tensor is not resized.
pub struct Tensor<'a, 'py> {
    /// What the caller calls it.
    pub name: &'static str,
    pub object: &'a Bound<'py, PyAny>,
    /// Of a tensor without memory, such as a fake one, null.
    pub data: *mut c_void,
    pub kind: Kind,
    /// The first four.
    shape: [i64; 4],
    strides: [i64; 4],
    dimensions: usize,
    /// `None` elsewhere than on a GPU.
    pub gpu: Option<i32>,
}

impl Tensor<'_, '_> {
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.dimensions.min(4)]
    }

    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.dimensions.min(4)]
    }

    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
}

/// Reads the tensor's memory; what has none is refused.
pub fn read<'a, 'py>(
    name: &'static str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<Tensor<'a, 'py>> {
    let py = object.py();
    let torch = torch(py)?;
    if !object.is_instance(torch.tensor.bind(py))? {
        return Err(PyTypeError::new_err(format!(
            "{name} is no torch.Tensor, but a {}",
            object.get_type().name()?
        )));
    }
    let read = describe(torch, name, object);
    let why = match read {
        Ok(read) if read.is_empty() || !read.data.is_null() => return Ok(read),
        Ok(_) => "its address is null".into(),
        Err(error) => error.value(py).to_string(),
    };
    let of = |name| {
        object
            .getattr(name)
            .map_or("?".into(), |value| value.to_string())
    };
    Err(PyNotImplementedError::new_err(format!(
        "{name} has no memory that a kernel could read ({}, {}, on {}; PyTorch: {}): pass a dense tensor on a GPU",
        of("layout"),
        of("dtype"),
        of("device"),
        why.lines().next().unwrap_or_default()
    )))
}

fn describe<'a, 'py>(
    torch: &Torch,
    name: &'static str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<Tensor<'a, 'py>> {
    let describe = torch.exchange.describe.ok_or_else(|| {
        PyRuntimeError::new_err("this PyTorch has no dltensor_from_py_object_no_sync in its DLPack table: attention_ladder needs 2.10 or later")
    })?;
    let mut read = DlTensor {
        data: std::ptr::null_mut(),
        device_type: 0,
        device_id: 0,
        dimensions: 0,
        code: 0,
        bits: 0,
        lanes: 0,
        shape: std::ptr::null(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    // SAFETY: the object is a tensor, and the function fills in the struct or sets an exception.
    if unsafe { describe(object.as_ptr().cast(), &mut read) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    let dimensions = read.dimensions.max(0) as usize;
    let four = |start: *const i64| {
        let mut four = [0; 4];
        for (i, value) in four.iter_mut().enumerate().take(dimensions) {
            // SAFETY: the tensor holds as many extents and strides as it has dimensions.
            *value = unsafe { *start.add(i) };
        }
        four
    };
    Ok(Tensor {
        name,
        object,
        data: read
            .data
            .cast::<u8>()
            .wrapping_add(read.byte_offset as usize)
            .cast(),
        kind: match (read.code, read.bits, read.lanes) {
            (2, 16, 1) => Kind::F16,
            (4, 16, 1) => Kind::Bf16,
            (10, 8, 1) => Kind::E4m3,
            (2, 32, 1) => Kind::F32,
            _ => Kind::Other,
        },
        shape: four(read.shape),
        strides: four(read.strides),
        dimensions,
        gpu: (read.device_type == CUDA).then_some(read.device_id),
    })
}

/// Reads what a fake tensor, or one on the device "meta", says of itself. `None`: an extent is a symbol.
pub fn imagine<'a, 'py>(
    name: &'static str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<Option<Tensor<'a, 'py>>> {
    let four = |values: Bound<'py, PyAny>| -> PyResult<Option<([i64; 4], usize)>> {
        let (mut four, mut dimensions) = ([0; 4], 0);
        for value in values.try_iter()? {
            // A symbol converted to an integer would be bound to it.
            let Ok(value) = value?.cast_into::<PyInt>() else {
                return Ok(None);
            };
            if let Some(place) = four.get_mut(dimensions) {
                *place = value.extract()?;
            }
            dimensions += 1;
        }
        Ok(Some((four, dimensions)))
    };
    let shape = four(object.getattr("shape")?)?;
    let strides = four(object.call_method0("stride")?)?;
    let (Some((shape, dimensions)), Some((strides, _))) = (shape, strides) else {
        return Ok(None);
    };
    let device = object.getattr("device")?;
    let is_gpu = device.getattr("type")?.extract::<String>()? == "cuda";
    Ok(Some(Tensor {
        name,
        object,
        data: std::ptr::null_mut(),
        kind: match &*object.getattr("dtype")?.to_string() {
            "torch.float16" => Kind::F16,
            "torch.bfloat16" => Kind::Bf16,
            "torch.float8_e4m3fn" => Kind::E4m3,
            "torch.float32" => Kind::F32,
            _ => Kind::Other,
        },
        shape,
        strides,
        dimensions,
        gpu: is_gpu.then_some(device.getattr("index")?.extract().unwrap_or(0)),
    }))
}

pub fn is_tensor(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_instance(torch(object.py())?.tensor.bind(object.py()))
}

/// Whether PyTorch's dispatcher would do nothing with a call but give its tensors to a kernel, as far as they do not tell by what they
/// hold: no transform, mode, subclass, gradient, tangent or lazy negation.
pub fn are_plain<'py>(
    py: Python<'py>,
    inputs: [Option<&Bound<'py, PyAny>>; 6],
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<bool> {
    let torch = torch(py)?;
    for interceptor in &torch.interceptors {
        if interceptor.bind(py).call0()?.is_truthy()? {
            return Ok(false);
        }
    }
    let level = torch
        .forward_ad
        .bind(py)
        .getattr(intern!(py, "_current_level"))?;
    if level.extract::<i64>()? >= 0 {
        return Ok(false);
    }
    let is_grad_enabled = torch.is_grad_enabled.bind(py).call0()?.is_truthy()?;
    for tensor in inputs.into_iter().chain([out]).flatten() {
        if !tensor.get_type().is(torch.tensor.bind(py))
            || tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?
            || is_grad_enabled && tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()?
        {
            return Ok(false);
        }
    }
    let Some(out) = out else { return Ok(true) };
    // A write to it outside of inference mode is an error of PyTorch's.
    let is_locked = out.call_method0(intern!(py, "is_inference"))?.is_truthy()?
        && !torch
            .is_inference_mode_enabled
            .bind(py)
            .call0()?
            .is_truthy()?;
    Ok(!is_locked)
}

/// PyTorch's current one.
pub fn stream(py: Python<'_>, gpu: i32) -> PyResult<*mut c_void> {
    let mut stream = std::ptr::null_mut();
    let ask = torch(py)?.exchange.stream;
    let ask =
        ask.ok_or_else(|| PyRuntimeError::new_err("this PyTorch has no current_work_stream in its DLPack table: attention_ladder needs 2.10 or later"))?;
    // SAFETY: writes one handle or sets an exception.
    match unsafe { ask(CUDA, gpu, &mut stream) } {
        0 => Ok(stream),
        _ => Err(PyErr::fetch(py)),
    }
}
