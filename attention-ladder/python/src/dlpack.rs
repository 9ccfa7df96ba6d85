//! Tensors and the current stream of PyTorch, through DLPack's table of C functions (version 1.3,
//! `DLPackExchangeAPI`): several times as fast as asking a tensor's methods one by one.

use pyo3::exceptions::{PyImportError, PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyType};
use std::ffi::c_void;

/// The device type `kDLCUDA`.
const CUDA: i32 = 2;

/// The major version of the table; minor versions add to it.
const MAJOR: u32 = 1;

/// The struct `DLTensor`.
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

/// The struct `DLPackExchangeAPI`.
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
    /// Functions that return something true where a call is not for kernels alone: within a
    /// transform of torch.func, a mode, torch.jit.trace.
    interceptors: [Py<PyAny>; 4],
    forward_ad: Py<PyAny>,
}

fn torch(py: Python<'_>) -> PyResult<&Torch> {
    static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
    TORCH.get_or_try_init(py, || Torch::load(py))
}

impl Torch {
    fn load(py: Python<'_>) -> PyResult<Self> {
        let module = py.import("torch")?;
        let tensor = module.getattr("Tensor")?;
        let native = module.getattr("_C")?;
        let functorch = native.getattr("_functorch")?;
        let forward_ad = py.import("torch.autograd.forward_ad")?;
        Ok(Self {
            exchange: exchange_of(&tensor)?,
            tensor: tensor.cast_into::<PyType>()?.unbind(),
            is_grad_enabled: module.getattr("is_grad_enabled")?.unbind(),
            is_inference_mode_enabled: module.getattr("is_inference_mode_enabled")?.unbind(),
            interceptors: [
                functorch.getattr("maybe_current_level")?.unbind(),
                native.getattr("_len_torch_dispatch_stack")?.unbind(),
                native.getattr("_len_torch_function_stack")?.unbind(),
                native.getattr("_get_tracing_state")?.unbind(),
            ],
            forward_ad: forward_ad.into_any().unbind(),
        })
    }

    /// Returns whether something takes calls apart before kernels see them.
    fn is_intercepting(&self, py: Python<'_>) -> PyResult<bool> {
        for interceptor in &self.interceptors {
            if interceptor.bind(py).call0()?.is_truthy()? {
                return Ok(true);
            }
        }
        let forward_ad = self.forward_ad.bind(py);
        let level: i64 = forward_ad
            .getattr(intern!(py, "_current_level"))?
            .extract()?;
        Ok(level >= 0)
    }

    /// Returns whether a write to `out` is an error of PyTorch's: it is outside of inference mode.
    fn is_locked(&self, py: Python<'_>, out: &Bound<'_, PyAny>) -> PyResult<bool> {
        if !out.call_method0(intern!(py, "is_inference"))?.is_truthy()? {
            return Ok(false);
        }
        let is_inference_mode_enabled = self.is_inference_mode_enabled.bind(py);
        Ok(!is_inference_mode_enabled.call0()?.is_truthy()?)
    }
}

/// Returns the table that PyTorch's class of tensors holds.
fn exchange_of(tensor: &Bound<'_, PyAny>) -> PyResult<&'static Exchange> {
    let capsule = tensor.getattr("__dlpack_c_exchange_api__").map_err(|_| {
        PyImportError::new_err(
            "this PyTorch has no DLPack exchange table: attention_ladder needs 2.10 or later",
        )
    })?;
    // SAFETY: a capsule of this name holds the table, which lives as long as the process; of
    // another object this is null, with an exception.
    let table = unsafe {
        ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dlpack_exchange_api".as_ptr())
            .cast::<Exchange>()
            .as_ref()
    };
    let exchange = table.ok_or_else(|| PyErr::fetch(tensor.py()))?;
    if exchange.major != MAJOR {
        return Err(PyImportError::new_err(format!(
            "this PyTorch has DLPack {}.{}: attention_ladder supports version {MAJOR}",
            exchange.major, exchange.minor
        )));
    }
    Ok(exchange)
}

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F16,
    Bf16,
    E4m3,
    F32,
    I32,
    Other,
}

/// A tensor's description, valid as long as the tensor is not resized.
pub struct Tensor<'a, 'py> {
    /// The caller's name for it.
    pub name: &'static str,
    pub object: &'a Bound<'py, PyAny>,
    /// The address of the first element; null if a tensor has no memory, such as a fake one.
    pub data: *mut c_void,
    pub kind: Kind,
    /// The first four extents.
    shape: [i64; 4],
    /// The first four strides.
    strides: [i64; 4],
    dimensions: usize,
    /// The number of its GPU; `None` elsewhere.
    pub gpu: Option<i32>,
}

impl Tensor<'_, '_> {
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.dimensions.min(4)]
    }

    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.dimensions.min(4)]
    }

    /// Returns whether it has these extents and its elements lie one behind the other, row by row. The
    /// stride of a dimension of one element is never used.
    pub fn is_dense(&self, extents: &[i64]) -> bool {
        let mut expected = 1;
        let dimensions = extents.iter().zip(self.strides());
        self.shape() == extents
            && dimensions.rev().all(|(&extent, &stride)| {
                let is_in_place = extent == 1 || stride == expected;
                expected *= extent;
                is_in_place
            })
    }

    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
}

/// Reads where a tensor's memory is; one that has none is refused.
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
    let reason = match describe(torch, name, object) {
        Ok(tensor) if tensor.is_empty() || !tensor.data.is_null() => return Ok(tensor),
        Ok(_) => "its address is null".into(),
        Err(error) => error.value(py).to_string(),
    };
    Err(PyNotImplementedError::new_err(format!(
        "{name} has no memory that a kernel could read ({}, {}, on {}; PyTorch: {}): \
         pass a dense tensor on a GPU",
        shown_attribute(object, "layout"),
        shown_attribute(object, "dtype"),
        shown_attribute(object, "device"),
        reason.lines().next().unwrap_or_default()
    )))
}

/// Returns an attribute as Python shows it; `?` if there is none.
fn shown_attribute(object: &Bound<'_, PyAny>, name: &str) -> String {
    match object.getattr(name) {
        Ok(value) => value.to_string(),
        Err(_) => "?".to_string(),
    }
}

fn describe<'a, 'py>(
    torch: &Torch,
    name: &'static str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<Tensor<'a, 'py>> {
    let Some(describe) = torch.exchange.describe else {
        return Err(lacks_function("dltensor_from_py_object_no_sync"));
    };
    let mut description = DlTensor {
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
    if unsafe { describe(object.as_ptr().cast(), &mut description) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    let dimensions = description.dimensions.max(0) as usize;
    let first = description.data.cast::<u8>();
    Ok(Tensor {
        name,
        object,
        data: first.wrapping_add(description.byte_offset as usize).cast(),
        kind: match (description.code, description.bits, description.lanes) {
            (2, 16, 1) => Kind::F16,
            (4, 16, 1) => Kind::Bf16,
            (10, 8, 1) => Kind::E4m3,
            (2, 32, 1) => Kind::F32,
            (0, 32, 1) => Kind::I32,
            _ => Kind::Other,
        },
        // SAFETY: the tensor holds as many extents and strides as it has dimensions.
        shape: unsafe { first_four(description.shape, dimensions) },
        // SAFETY: as above.
        strides: unsafe { first_four(description.strides, dimensions) },
        dimensions,
        gpu: (description.device_type == CUDA).then_some(description.device_id),
    })
}

/// Returns the first four of `count` numbers, and zeros for those that are missing.
///
/// # Safety
/// `start` points to `count` numbers.
unsafe fn first_four(start: *const i64, count: usize) -> [i64; 4] {
    let mut numbers = [0; 4];
    for (index, number) in numbers.iter_mut().enumerate().take(count) {
        // SAFETY: the index is less than the count.
        *number = unsafe { *start.add(index) };
    }
    numbers
}

fn lacks_function(name: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "this PyTorch has no {name} in its DLPack table: attention_ladder needs 2.10 or later"
    ))
}

/// The first four of a tuple of integers, and how many there are.
struct Integers {
    first: [i64; 4],
    count: usize,
}

/// Reads a tuple; returns `None` if one of its items is a symbol.
fn integers(values: &Bound<'_, PyAny>) -> PyResult<Option<Integers>> {
    let mut integers = Integers {
        first: [0; 4],
        count: 0,
    };
    for value in values.try_iter()? {
        // A symbol converted to an integer would be bound to it.
        let Ok(integer) = value?.cast_into::<PyInt>() else {
            return Ok(None);
        };
        if let Some(slot) = integers.first.get_mut(integers.count) {
            *slot = integer.extract()?;
        }
        integers.count += 1;
    }
    Ok(Some(integers))
}

/// Reads the attributes of a fake tensor, or of one on the device "meta". Returns `None` if an
/// extent is a symbol.
pub fn read_fake_tensor<'a, 'py>(
    name: &'static str,
    object: &'a Bound<'py, PyAny>,
) -> PyResult<Option<Tensor<'a, 'py>>> {
    let shape = integers(&object.getattr("shape")?)?;
    let strides = integers(&object.call_method0("stride")?)?;
    let (Some(shape_integers), Some(stride_integers)) = (shape, strides) else {
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
            "torch.int32" => Kind::I32,
            _ => Kind::Other,
        },
        shape: shape_integers.first,
        strides: stride_integers.first,
        dimensions: shape_integers.count,
        gpu: is_gpu.then_some(device.getattr("index")?.extract().unwrap_or(0)),
    }))
}

pub fn is_tensor(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_instance(torch(object.py())?.tensor.bind(object.py()))
}

/// A tensor that a call may leave out.
type OptionalTensor<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// Returns whether PyTorch's dispatcher would do nothing with a call but pass its tensors to a
/// kernel, as far as they do not tell by their memory: no transform, mode, subclass, gradient,
/// tangent or lazy negation.
pub fn are_plain<'py>(
    py: Python<'py>,
    inputs: &[OptionalTensor<'_, 'py>],
    out: OptionalTensor<'_, 'py>,
) -> PyResult<bool> {
    let torch = torch(py)?;
    if torch.is_intercepting(py)? {
        return Ok(false);
    }
    let is_grad_enabled = torch.is_grad_enabled.bind(py).call0()?.is_truthy()?;
    for tensor in inputs.iter().copied().chain([out]).flatten() {
        if !tensor.get_type().is(torch.tensor.bind(py))
            || tensor.call_method0(intern!(py, "is_neg"))?.is_truthy()?
            || is_grad_enabled && tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()?
        {
            return Ok(false);
        }
    }
    match out {
        Some(tensor) => Ok(!torch.is_locked(py, tensor)?),
        None => Ok(true),
    }
}

/// Returns PyTorch's current stream on a GPU.
pub fn stream(py: Python<'_>, gpu: i32) -> PyResult<*mut c_void> {
    let Some(current_stream) = torch(py)?.exchange.stream else {
        return Err(lacks_function("current_work_stream"));
    };
    let mut stream = std::ptr::null_mut();
    // SAFETY: writes one handle or sets an exception.
    let status = unsafe { current_stream(CUDA, gpu, &mut stream) };
    if status != 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(stream)
}
