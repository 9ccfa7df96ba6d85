//! Tensors and the current stream of PyTorch, through DLPack's table of C functions (version 1.3, `DLPackExchangeAPI`):
//! several times as fast as asking a tensor's methods one by one.

use pyo3::exceptions::{PyImportError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
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
}

fn torch(py: Python<'_>) -> PyResult<&Torch> {
    static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
    TORCH.get_or_try_init(py, || {
        let tensor = py.import("torch")?.getattr("Tensor")?;
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
                "this PyTorch speaks DLPack {}.{}: attention_ladder was made for {MAJOR}",
                exchange.major, exchange.minor
            )));
        }
        let tensor = tensor.cast_into::<PyType>()?.unbind();
        Ok(Torch { tensor, exchange })
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
pub struct Tensor<'a> {
    pub data: *mut c_void,
    pub kind: Kind,
    pub shape: &'a [i64],
    pub strides: &'a [i64],
    /// `None` elsewhere than on a GPU.
    pub gpu: Option<i32>,
}

/// `name`: what the caller calls it.
pub fn read<'a>(name: &str, tensor: &'a Bound<'_, PyAny>) -> PyResult<Tensor<'a>> {
    let py = tensor.py();
    let torch = torch(py)?;
    if !tensor.is_instance(torch.tensor.bind(py))? {
        return Err(PyTypeError::new_err(format!(
            "{name} is no torch.Tensor, but a {}",
            tensor.get_type().name()?
        )));
    }
    let describe = torch.exchange.describe.ok_or_else(|| {
        PyRuntimeError::new_err("this PyTorch does not describe tensors without taking them")
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
    if unsafe { describe(tensor.as_ptr().cast(), &mut read) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let dimensions = read.dimensions.max(0) as usize;
    let array = |start: *const i64| match dimensions {
        0 => &[][..],
        // SAFETY: the tensor, which outlives this, holds as many extents and strides as it has dimensions.
        length => unsafe { std::slice::from_raw_parts(start, length) },
    };
    Ok(Tensor {
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
        shape: array(read.shape),
        strides: array(read.strides),
        gpu: (read.device_type == CUDA).then_some(read.device_id),
    })
}

/// PyTorch's current one.
pub fn stream(py: Python<'_>, gpu: i32) -> PyResult<*mut c_void> {
    let mut stream = std::ptr::null_mut();
    let ask = torch(py)?.exchange.stream;
    let ask =
        ask.ok_or_else(|| PyRuntimeError::new_err("this PyTorch does not tell its stream"))?;
    // SAFETY: writes one handle or sets an exception.
    match unsafe { ask(CUDA, gpu, &mut stream) } {
        0 => Ok(stream),
        _ => Err(PyErr::fetch(py)),
    }
}
