//! `attention_ladder` of Python: reads PyTorch's tensors by DLPack, and launches through the C
//! interface on PyTorch's current stream. The GIL is released meanwhile: the first call for a
//! problem loads code, and a launch waits where the stream's queue is full.

mod dlpack;
mod varlen;

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

/// Four extents: batch, heads, rows and columns.
type Extents = [i64; 4];

/// Returns the extents of a tensor of rank 4.
fn extents(tensor: &Tensor<'_, '_>) -> PyResult<Extents> {
    match (tensor.shape(), tensor.dimensions()) {
        (&[batch, heads, rows, columns], 4) => Ok([batch, heads, rows, columns]),
        (_, dimensions) => Err(PyValueError::new_err(format!(
            "{} has {dimensions} dimensions: expected [batch, heads, rows, head_dim]",
            tensor.name
        ))),
    }
}

/// Returns a tensor of rank 4 as C takes it.
fn as_rank_4(tensor: &Tensor<'_, '_>) -> PyResult<AttentionLadderTensor> {
    let [_, _, _, columns] = extents(tensor)?;
    let &[batch_stride, head_stride, row_stride, element_stride] = tensor.strides() else {
        unreachable!("a tensor has as many strides as extents");
    };
    if element_stride != 1 && columns != 1 {
        return Err(PyValueError::new_err(format!(
            "the last dimension of {} has a stride of {element_stride} elements: \
             it must be contiguous",
            tensor.name
        )));
    }
    Ok(AttentionLadderTensor {
        // A tensor without elements has no place, and overlaps nothing.
        data: if tensor.is_empty() {
            null_mut()
        } else {
            tensor.data
        },
        scales: null(),
        batch_stride,
        head_stride,
        row_stride,
    })
}

/// Returns the address of a tensor's scales, `[batch, heads]`, which E4M3 has and nothing else.
fn scale_address(tensor: &Tensor<'_, '_>, scales: Option<&Tensor<'_, '_>>) -> PyResult<*const f32> {
    let is_scaled = tensor.kind == Kind::E4m3;
    match scales {
        None if !is_scaled => Ok(null()),
        Some(present) if is_scaled => {
            refuse_unfit_scales(tensor, present)?;
            Ok(present.data.cast_const().cast())
        }
        _ => {
            let name = tensor.name;
            let state = if is_scaled { "no scales" } else { "scales" };
            Err(PyValueError::new_err(format!(
                "{name} has {state}: float8_e4m3fn needs {name}_scale, float32 [batch, heads]; \
                 other types have none"
            )))
        }
    }
}

fn refuse_unfit_scales(tensor: &Tensor<'_, '_>, scales: &Tensor<'_, '_>) -> PyResult<()> {
    let [batch, heads, _, _] = extents(tensor)?;
    let is_nothing = scales.is_empty() && tensor.is_empty();
    if (scales.is_dense(&[batch, heads]) || is_nothing)
        && scales.kind == Kind::F32
        && scales.gpu == tensor.gpu
    {
        return Ok(());
    }
    let name = tensor.name;
    Err(PyValueError::new_err(format!(
        "{name}_scale must be a contiguous float32 tensor [batch, heads] = [{batch}, {heads}] \
         on the device of {name}"
    )))
}

/// Reads the softmax scale; returns 0, the default of C, for none.
fn softmax_scale(argument: Option<Object<'_, '_>>) -> PyResult<f32> {
    let Some(scale) = argument else {
        return Ok(0.0);
    };
    let is_number = scale.is_instance_of::<PyFloat>()
        || !scale.is_instance_of::<PyBool>() && !dlpack::is_tensor(scale)?;
    if is_number && let Ok(number) = scale.extract::<f32>() {
        if number == 0.0 {
            return Err(PyValueError::new_err(
                "scale = 0 is not a positive finite number",
            ));
        }
        return Ok(number);
    }
    Err(PyTypeError::new_err(format!(
        "scale is a {}: expected a number, such as float(scale), through which no gradient flows",
        scale.get_type().name()?
    )))
}

/// Returns the exception for a failure that the library has just reported.
fn failed(code: i32) -> PyErr {
    // SAFETY: the string is this thread's, and no call comes between.
    let last_error = unsafe { CStr::from_ptr(ladder::attention_ladder_last_error()) };
    let message = last_error.to_string_lossy().into_owned();
    match code {
        ladder::ATTENTION_LADDER_UNSUPPORTED => PyNotImplementedError::new_err(message),
        ladder::ATTENTION_LADDER_INVALID => PyValueError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The options of a call: everything that is no tensor.
struct Options {
    is_causal: bool,
    scale: f32,
    is_batch_invariant: bool,
}

/// The tensors of a call.
struct Tensors<'a, 'py> {
    qkv: [Tensor<'a, 'py>; 3],
    out: Option<Tensor<'a, 'py>>,
    /// The scales of q, k and v; `None` if they are not asked for.
    scales: Option<[Option<Tensor<'a, 'py>>; 3]>,
}

/// A call as C takes it: tensors that belong together, whose shapes C has not judged yet.
struct DescribedCall {
    call: AttentionLadderCall,
    gpu: Option<i32>,
    /// Whether there are no elements to write, or no keys: nothing is launched.
    is_empty: bool,
}

/// Describes a call to C, and refuses tensors that do not belong together.
fn describe_call(tensors: &Tensors<'_, '_>, options: &Options) -> PyResult<DescribedCall> {
    let [q, k, v] = &tensors.qkv;
    let [batch, heads_q, seq_q, head_dim] = extents(q)?;
    let mut q_tensor = as_rank_4(q)?;
    let [_, heads_kv, seq_kv, _] = extents(k)?;
    let mut k_tensor = as_rank_4(k)?;
    let mut v_tensor = as_rank_4(v)?;
    let element_type = ElementType::of_inputs(q)?;
    refuse_unequal_inputs(&tensors.qkv)?;
    if heads_kv == 0 && heads_q != 0 {
        return Err(PyValueError::new_err(format!(
            "heads_kv = 0 does not divide heads_q = {heads_q}"
        )));
    }
    let mut o_tensor = AttentionLadderTensor {
        data: null_mut(),
        ..q_tensor
    };
    if let Some(out) = &tensors.out {
        refuse_unfit_output(out, q, &element_type)?;
        o_tensor = as_rank_4(out)?;
    }
    if let Some([q_scale, k_scale, v_scale]) = &tensors.scales {
        q_tensor.scales = scale_address(q, q_scale.as_ref())?;
        k_tensor.scales = scale_address(k, k_scale.as_ref())?;
        v_tensor.scales = scale_address(v, v_scale.as_ref())?;
    }
    let call = AttentionLadderCall {
        q: q_tensor,
        k: k_tensor,
        v: v_tensor,
        o: o_tensor,
        lse: null_mut(),
        dtype: element_type.dtype,
        mask: if options.is_causal {
            ladder::ATTENTION_LADDER_CAUSAL
        } else {
            ladder::ATTENTION_LADDER_FULL
        },
        batch: nonempty_extent(batch),
        heads_q: nonempty_extent(if heads_q == 0 { heads_kv } else { heads_q }),
        heads_kv: nonempty_extent(heads_kv),
        seq_q: nonempty_extent(seq_q),
        seq_kv: nonempty_extent(seq_kv),
        head_dim: i32::try_from(head_dim).unwrap_or(i32::MAX),
        softmax_scale: options.scale,
        flags: if options.is_batch_invariant {
            ladder::ATTENTION_LADDER_BATCH_INVARIANT
        } else {
            0
        },
    };
    Ok(DescribedCall {
        call,
        gpu: q.gpu,
        is_empty: [batch, heads_q, seq_q, seq_kv].contains(&0),
    })
}

/// Returns an extent for C, which knows no empty problem: its rules are those of a problem of one.
/// An extent that does not fit is too large for any kernel, and refused as such.
fn nonempty_extent(value: i64) -> i32 {
    i32::try_from(value.max(1)).unwrap_or(i32::MAX)
}

/// The type of a call's inputs, and of its output.
struct ElementType {
    dtype: i32,
    output: Kind,
    output_name: &'static str,
}

impl ElementType {
    fn of_inputs(q: &Tensor<'_, '_>) -> PyResult<Self> {
        let (dtype, output, output_name) = match q.kind {
            Kind::F16 => (ladder::ATTENTION_LADDER_F16, Kind::F16, "float16"),
            Kind::Bf16 => (ladder::ATTENTION_LADDER_BF16, Kind::Bf16, "bfloat16"),
            Kind::E4m3 => (ladder::ATTENTION_LADDER_E4M3, Kind::F16, "float16"),
            Kind::F32 | Kind::I32 | Kind::Other => {
                return Err(PyNotImplementedError::new_err(format!(
                    "{} is not supported: q, k and v are float16, bfloat16 or float8_e4m3fn",
                    q.object.getattr(intern!(q.object.py(), "dtype"))?
                )));
            }
        };
        Ok(Self {
            dtype,
            output,
            output_name,
        })
    }
}

/// Refuses inputs that differ in type, shape or device.
fn refuse_unequal_inputs([q, k, v]: &[Tensor<'_, '_>; 3]) -> PyResult<()> {
    if k.kind != q.kind || v.kind != q.kind {
        return Err(PyTypeError::new_err("q, k and v must have one dtype"));
    }
    let [batch, _, _, head_dim] = extents(q)?;
    let [batch_k, _, _, head_dim_k] = extents(k)?;
    if [batch_k, head_dim_k] != [batch, head_dim] || v.shape() != k.shape() {
        return Err(PyValueError::new_err(format!(
            "q is {:?}, k {:?} and v {:?}: \
             k and v must have one shape, and batch and head_dim of q",
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

fn refuse_unfit_output(
    out: &Tensor<'_, '_>,
    q: &Tensor<'_, '_>,
    element_type: &ElementType,
) -> PyResult<()> {
    if out.shape() == q.shape() && out.gpu == q.gpu && out.kind == element_type.output {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "out must be a {} tensor {:?} on the device of q",
        element_type.output_name,
        q.shape()
    )))
}

/// Returns the GPU of a call, or reports what is missing beside the tensors' place: there may be no
/// GPU to put them on.
fn device_of(call: &Checked, gpu: Option<i32>) -> PyResult<i32> {
    if let Some(device) = gpu {
        return Ok(device);
    }
    ladder::variant(call, 0).map_err(failed)?;
    Err(PyValueError::new_err(
        "q, k and v are not on a GPU: the kernels are for NVIDIA GPUs",
    ))
}

fn read_optional<'a, 'py>(
    name: &'static str,
    object: Option<Object<'a, 'py>>,
) -> PyResult<Option<Tensor<'a, 'py>>> {
    object
        .map(|present| dlpack::read(name, present))
        .transpose()
}

/// Calls the function `name` of the package's module of allocations with `argument`.
fn call_memory<'py>(
    name: &Bound<'py, PyString>,
    argument: Object<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static MEMORY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let py = argument.py();
    let memory = MEMORY.get_or_try_init(py, || {
        PyResult::Ok(py.import("attention_ladder._memory")?.unbind())
    })?;
    memory.bind(py).getattr(name)?.call1((argument,))
}

/// A checked call: addresses on a GPU, of no thread.
trait Call {
    /// Enqueues it on a stream; the message of a failure is this thread's.
    fn enqueue(&self, device: i32, stream: *mut c_void) -> Result<(), i32>;
}

impl Call for Checked {
    fn enqueue(&self, device: i32, stream: *mut c_void) -> Result<(), i32> {
        // SAFETY: the arguments that Python passed hold the tensors, PyTorch says where their
        // elements lie, and the stream is its current one. PyTorch's allocator gives memory that
        // was freed on a stream to that stream alone, and all of it is the primary context's, which
        // green contexts share.
        unsafe { ladder::launch(self, device, stream) }
    }
}

/// A launch that needs no GIL.
struct Launch<C> {
    call: C,
    device: i32,
    stream: *mut c_void,
}

// SAFETY: addresses on a GPU and a handle of the driver, neither of which is of a thread.
unsafe impl<C: Call> Send for Launch<C> {}

impl<C: Call> Launch<C> {
    /// Makes one on PyTorch's current stream.
    fn new(py: Python<'_>, call: C, device: i32) -> PyResult<Self> {
        Ok(Self {
            call,
            device,
            stream: dlpack::stream(py, device)?,
        })
    }

    fn launch(self, py: Python<'_>) -> PyResult<()> {
        py.detach(move || self.enqueue()).map_err(failed)
    }

    /// Enqueues it; a closure that calls this holds all of it, which is `Send`.
    fn enqueue(self) -> Result<(), i32> {
        self.call.enqueue(self.device, self.stream)
    }
}

/// The arguments of one call, as Python passes them.
struct Arguments<'a, 'py> {
    qkv: [Object<'a, 'py>; 3],
    out: Option<Object<'a, 'py>>,
    is_causal: bool,
    scale: Option<Object<'a, 'py>>,
    scales: [Option<Object<'a, 'py>>; 3],
    return_lse: bool,
    batch_invariant: bool,
    is_dispatched: bool,
}

impl<'a, 'py> Arguments<'a, 'py> {
    /// Reads the tensors' memory.
    fn read(&self) -> PyResult<Tensors<'a, 'py>> {
        let [q, k, v] = self.qkv;
        let [q_scale, k_scale, v_scale] = self.scales;
        Ok(Tensors {
            qkv: [
                dlpack::read("q", q)?,
                dlpack::read("k", k)?,
                dlpack::read("v", v)?,
            ],
            out: read_optional("out", self.out)?,
            scales: Some([
                read_optional("q_scale", q_scale)?,
                read_optional("k_scale", k_scale)?,
                read_optional("v_scale", v_scale)?,
            ]),
        })
    }
}

/// Computes attention of q, k and v on the current stream and returns out, or the pair of it and
/// the log-sum-exps. Returns None, and nothing is done, if the dispatcher has to take the call
/// apart first, unless that has been done. Else it is within `record`, a context manager that names
/// it for a profiler, if there is one. All arguments are by position.
#[pyfunction]
#[pyo3(signature = (
    q, k, v, out, is_causal, scale, q_scale, k_scale, v_scale,
    return_lse, batch_invariant, is_dispatched, record, /
))]
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
    if !is_dispatched && !dlpack::are_plain(py, &inputs, out)? {
        return Ok(None);
    }
    let arguments = Arguments {
        qkv: [q, k, v],
        out,
        is_causal,
        scale,
        scales: [q_scale, k_scale, v_scale],
        return_lse,
        batch_invariant,
        is_dispatched,
    };
    if let Some(recorder) = record {
        recorder.call_method0("__enter__")?;
    }
    let attended = attend(py, &arguments);
    if let Some(recorder) = record {
        recorder.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    }
    attended
}

/// Checks, allocates and launches. Returns None, and nothing is done, if a tensor has no memory and
/// the dispatcher has not seen the call.
fn attend<'py>(
    py: Python<'py>,
    arguments: &Arguments<'_, 'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let options = Options {
        is_causal: arguments.is_causal,
        // Not before: a symbol that is converted is bound to its value.
        scale: softmax_scale(arguments.scale)?,
        is_batch_invariant: arguments.batch_invariant,
    };
    let tensors = match arguments.read() {
        Ok(tensors) => tensors,
        // A tensor without memory is the dispatcher's, once.
        Err(_) if !arguments.is_dispatched => return Ok(None),
        Err(error) => return Err(error),
    };
    let described = describe_call(&tensors, &options)?;
    let call = ladder::check(&described.call).map_err(failed)?;
    if let Some(out) = arguments.out {
        increment_version(out)?;
    }
    let gpu = if described.is_empty {
        None
    } else {
        Some(device_of(&call, described.gpu)?)
    };
    let is_e4m3 = tensors.qkv[0].kind == Kind::E4m3;
    let memory = Memory::allocate(py, arguments, is_e4m3)?;
    match gpu {
        Some(device) => memory.launch(py, call, device)?,
        None => memory.fill()?,
    }
    memory.into_result(py).map(Some)
}

/// Tells backward that a tensor is written: torch.autograd.graph.increment_version, without its
/// Python.
fn increment_version(tensor: Object<'_, '_>) -> PyResult<()> {
    static INCREMENT_VERSION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = tensor.py();
    let function = INCREMENT_VERSION.get_or_try_init(py, || {
        let native = py.import("torch")?.getattr("_C")?;
        PyResult::Ok(native.getattr("_increment_version")?.unbind())
    })?;
    function.bind(py).call1(((tensor,),))?;
    Ok(())
}

/// The tensors that a call writes to.
struct Memory<'py> {
    out: Bound<'py, PyAny>,
    is_out_new: bool,
    lse: Option<Bound<'py, PyAny>>,
}

impl<'py> Memory<'py> {
    /// Allocates the tensors that the arguments do not bring along. A call that is refused has
    /// allocated nothing.
    fn allocate(py: Python<'py>, arguments: &Arguments<'_, 'py>, is_e4m3: bool) -> PyResult<Self> {
        let [q, ..] = arguments.qkv;
        let out = match arguments.out {
            Some(out) => out.clone(),
            None if is_e4m3 => call_memory(intern!(py, "empty_out"), q)?,
            // Without `empty_out`, which would ask for the type again.
            None => call_memory(intern!(py, "empty_like"), q)?,
        };
        let lse = if arguments.return_lse {
            Some(call_memory(intern!(py, "empty_lse"), q)?)
        } else {
            None
        };
        Ok(Self {
            out,
            is_out_new: arguments.out.is_none(),
            lse,
        })
    }

    fn launch(&self, py: Python<'py>, mut call: Checked, device: i32) -> PyResult<()> {
        let new_output = if self.is_out_new {
            Some(as_rank_4(&dlpack::read("out", &self.out)?)?)
        } else {
            None
        };
        let new_lse = match &self.lse {
            Some(lse) => dlpack::read("lse", lse)?.data.cast(),
            None => null_mut(),
        };
        ladder::write_to(&mut call, new_output.as_ref(), new_lse).map_err(failed)?;
        Launch::new(py, call, device)?.launch(py)
    }

    /// Fills the tensors without a launch, since there are no elements or no keys.
    fn fill(&self) -> PyResult<()> {
        self.out.call_method0("zero_")?;
        if let Some(lse) = &self.lse {
            lse.call_method1("fill_", (f32::NEG_INFINITY,))?;
        }
        Ok(())
    }

    fn into_result(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.lse {
            Some(lse) => Ok(PyTuple::new(py, [self.out, lse])?.into_any()),
            None => Ok(self.out),
        }
    }
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
    for (index, (name, argument)) in [
        ("q_scale", q_scale),
        ("k_scale", k_scale),
        ("v_scale", v_scale),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(object) = argument else { continue };
        scales[index] = dlpack::read_fake_tensor(name, object)?;
        if scales[index].is_none() {
            return Ok(());
        }
    }
    let fake_q = dlpack::read_fake_tensor("q", q)?;
    let fake_k = dlpack::read_fake_tensor("k", k)?;
    let fake_v = dlpack::read_fake_tensor("v", v)?;
    let (Some(q_tensor), Some(k_tensor), Some(v_tensor)) = (fake_q, fake_k, fake_v) else {
        return Ok(());
    };
    let options = Options {
        is_causal,
        scale: softmax_scale(scale)?,
        is_batch_invariant: batch_invariant,
    };
    let tensors = Tensors {
        qkv: [q_tensor, k_tensor, v_tensor],
        out: None,
        scales: Some(scales),
    };
    let described = describe_call(&tensors, &options)?;
    ladder::check(&described.call).map_err(failed)?;
    Ok(())
}

/// Returns the stage and variant of a launch.
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
        scale: softmax_scale(scale)?,
        is_batch_invariant: batch_invariant,
    };
    let tensors = Tensors {
        qkv: [
            dlpack::read("q", q)?,
            dlpack::read("k", k)?,
            dlpack::read("v", v)?,
        ],
        out: None,
        scales: None,
    };
    let mut described = describe_call(&tensors, &options)?;
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
    module.add_function(wrap_pyfunction!(variant, module)?)?;
    module.add_function(wrap_pyfunction!(varlen::varlen, module)?)?;
    module.add_function(wrap_pyfunction!(varlen::check_varlen, module)?)
}
