//! The GPUs of the process: their code, the variants chosen on them, and launches, in the caller's
//! [`context`](crate::context). Only the first call for a problem in a context, which loads code,
//! may allocate GPU memory or wait. A variant is chosen for the whole GPU, even where a context has
//! a part of its multiprocessors: a problem has the same bits in each.

use crate::call::Checked;
use crate::choice;
use crate::context::{Current, Primary};
use crate::failure::{Code, Failure};
use crate::varlen::CheckedVarlen;
use crate::varlen::lengths::CHECK_VARIABLE;
use common::choice::{self as model, Choice, Chooser, Wanted};
use common::device::cuda::{self, CudaError, FoundGpu};
use common::limits::DeviceLimits;
use common::maps::{self, BoxRows};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::{LoadedStage, Prepared};
use cudarc::driver::sys::{
    self, CUdevice, CUfunction_attribute as FunctionAttribute, CUstream,
    CUstreamCaptureMode as CaptureMode, CUstreamCaptureStatus as CaptureStatus,
};
use cudarc::driver::{DriverError, result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_void};
use std::hash::Hash;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

/// The number of GPUs that are told apart; more than a host has.
const MAX_GPUS: usize = 64;

struct Gpu {
    device: CUdevice,
    primary: Primary,
    capability: (u32, u32),
    multiprocessors: u32,
    stages: Vec<LoadedStage>,
    chooser: Chooser,
    /// The loaded code, by the stage's id.
    libraries: Mutex<HashMap<&'static str, Library>>,
    plans: RwLock<TwoGenerationCache<PlanKey, Plan>>,
    /// The stage of calls on sequences.
    served: LoadedStage,
    /// The plans of its kernels, with any grid.
    served_plans: RwLock<HashMap<Instance, Plan>>,
    /// Whether launches on sequences judge what their arrays hold.
    is_checking_lengths: bool,
}

/// A kernel for sequences: its variant, and the element type and head size that it is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Instance {
    variant: &'static str,
    dtype: Dtype,
    head_dim: usize,
}

/// Everything that the choice of a variant depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanKey {
    shape: Shape,
    dtype: Dtype,
    mask: Mask,
    wanted: Wanted,
}

/// The number of plans that are kept per GPU. A loop that decodes has a new shape in every step.
const MAX_PLANS: usize = 4096;

/// A cache in two halves, of which the older goes when the younger is full. It keeps at least the
/// half of its capacity that was inserted last.
struct TwoGenerationCache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    capacity: usize,
}

impl<K: Eq + Hash, V: Copy> TwoGenerationCache<K, V> {
    fn new(capacity: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            capacity,
        }
    }

    fn get(&self, key: &K) -> Option<V> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

/// Returns a copy of a variant's name that lives as long as the process. Each name is leaked once.
fn leak_name(name: &str) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked = Box::leak(CString::new(name).expect("a name").into_boxed_c_str());
    names.insert(name.to_string(), leaked);
    leaked
}

/// A stage's code, which belongs to no context, like its kernels.
#[derive(Clone, Copy)]
struct Library(sys::CUlibrary);

/// A kernel and the launch for one problem.
#[derive(Clone, Copy)]
struct Plan {
    kernel: sys::CUkernel,
    grid: [u32; 3],
    threads: u32,
    shared_bytes: u32,
    boxes: Option<BoxRows>,
    /// The stage and variant: `stage13-persistent/persistent-128x128`.
    name: &'static CStr,
}

// SAFETY: handles of the driver, which any thread may use and which are never given back.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    /// Puts one launch into `stream`.
    ///
    /// # Safety
    /// `argument` points to what the kernel takes by value. The stream, and all addresses in the
    /// argument, are what [`crate::attention_ladder_launch`] says.
    unsafe fn enqueue(&self, argument: *mut c_void, stream: CUstream) -> Result<(), Failure> {
        let [x, y, z] = self.grid;
        // SAFETY: the driver takes a kernel for a function, and launches it in the stream's
        // context, or, on a default stream, in the current one. The driver has copied the argument
        // when the call returns. The rest is what the caller promises.
        let launched = unsafe {
            result::launch_kernel(
                self.kernel.cast(),
                (x, y, z),
                (self.threads, 1, 1),
                self.shared_bytes,
                stream,
                &mut [argument],
            )
        };
        launched.map_err(|error| {
            let name = self.name.to_string_lossy();
            Failure::new(Code::Driver, format!("{name}: the launch failed: {error}"))
        })
    }
}

fn driver(doing: &'static str) -> impl Fn(DriverError) -> Failure {
    move |error| CudaError::Driver { doing, error }.into()
}

/// A GPU, or why it cannot be opened.
type OpenedOnce = OnceLock<Result<Gpu, Failure>>;

/// Returns a GPU, which the first call that needs it opens.
fn gpu(device: i32) -> Result<&'static Gpu, Failure> {
    static GPUS: [OpenedOnce; MAX_GPUS] = [const { OpenedOnce::new() }; MAX_GPUS];
    let ordinal = usize::try_from(device).unwrap_or(MAX_GPUS);
    let Some(slot) = GPUS.get(ordinal) else {
        let last = MAX_GPUS - 1;
        return Err(Failure::new(
            Code::Invalid,
            format!("device {device} is not a number of a GPU, 0 to {last}"),
        ));
    };
    slot.get_or_init(|| open(ordinal, choice::stages()?, choice::served()?))
        .as_ref()
        .map_err(Clone::clone)
}

fn open(
    ordinal: usize,
    mut stages: Vec<LoadedStage>,
    mut served: LoadedStage,
) -> Result<Gpu, Failure> {
    // A stage without code for any architecture that was asked for is as if it were not there.
    let first_stage = stages[0].info().id;
    stages.retain(|stage| stage.attention.artifacts().fatbin.is_some());
    if stages.is_empty() {
        let stage = first_stage.to_string();
        return Err(CudaError::NotBuilt { stage }.into());
    }
    let FoundGpu { device, info } = cuda::find(ordinal)?;
    let limits: DeviceLimits = info.limits();
    for stage in &mut stages {
        stage.device = Some(limits);
    }
    served.device = Some(limits);
    let chooser = Chooser::new(
        &stages,
        &choice::models(),
        &model::Gpu {
            name: info.name,
            capability: limits.capability,
            multiprocessors: info.sms,
        },
    );
    Ok(Gpu {
        device,
        primary: Primary::default(),
        capability: info.compute_capability,
        multiprocessors: info.sms,
        stages,
        chooser,
        libraries: Mutex::default(),
        plans: RwLock::new(TwoGenerationCache::new(MAX_PLANS)),
        served,
        served_plans: RwLock::default(),
        is_checking_lengths: std::env::var_os(CHECK_VARIABLE)
            .is_some_and(|value| !value.is_empty() && value != "0"),
    })
}

/// Chooses and loads the variant that takes `call`, and returns its name.
pub fn query(call: &Checked, device: i32) -> Result<&'static CStr, Failure> {
    gpu(device)?.query(call)
}

/// Puts one launch into `stream`.
///
/// # Safety
/// The call's addresses and the stream are what [`crate::attention_ladder_launch`] says.
pub unsafe fn launch(call: &Checked, device: i32, stream: *mut c_void) -> Result<(), Failure> {
    call.addresses()?;
    // SAFETY: what the caller promises.
    unsafe { gpu(device)?.launch(call, stream.cast()) }
}

/// Loads the kernel that takes `call`, and returns its name.
pub fn query_varlen(call: &CheckedVarlen, device: i32) -> Result<&'static CStr, Failure> {
    gpu(device)?.query_varlen(call)
}

/// Puts one launch into `stream`.
///
/// # Safety
/// The call's addresses and the stream are what [`crate::attention_ladder_varlen`] says.
pub unsafe fn launch_varlen(
    call: &CheckedVarlen,
    device: i32,
    stream: *mut c_void,
) -> Result<(), Failure> {
    call.addresses()?;
    // SAFETY: what the caller promises.
    unsafe { gpu(device)?.launch_varlen(call, stream.cast()) }
}

impl Gpu {
    fn query(&self, call: &Checked) -> Result<&'static CStr, Failure> {
        let _current = Current::enter(self.device, &self.primary, null_mut())?;
        Ok(self.plan(&call.problem, call.wanted)?.name)
    }

    /// Puts one launch into `stream`.
    ///
    /// # Safety
    /// Its rules are those of [`launch`].
    unsafe fn launch(&self, call: &Checked, stream: CUstream) -> Result<(), Failure> {
        let _current = Current::enter(self.device, &self.primary, stream)?;
        let plan = self.plan(&call.problem, call.wanted)?;
        let params = maps::params(&call.problem, call.tensors, call.lse);
        let mut argument = maps::launch(&call.problem, params, plan.boxes, cuda::encode)
            .map_err(driver("encoding a tensor map"))?;
        // SAFETY: the entry takes AttentionLaunch, or AttentionParams, with which that begins; the
        // rest is what the caller promises.
        unsafe { plan.enqueue((&raw mut argument).cast(), stream) }
    }

    fn query_varlen(&self, call: &CheckedVarlen) -> Result<&'static CStr, Failure> {
        let _current = Current::enter(self.device, &self.primary, null_mut())?;
        Ok(self.served_plan(call.problem())?.name)
    }

    /// Puts one launch into `stream`.
    ///
    /// # Safety
    /// Its rules are those of [`launch_varlen`].
    unsafe fn launch_varlen(&self, call: &CheckedVarlen, stream: CUstream) -> Result<(), Failure> {
        let _current = Current::enter(self.device, &self.primary, stream)?;
        if self.is_checking_lengths {
            refuse_capture(stream)?;
            call.check_lengths(|address, count| copy_numbers(address, count, stream))?;
        }
        let plan = self.served_plan(call.problem())?;
        let mut argument = call
            .argument(plan.boxes, cuda::encode)
            .map_err(driver("encoding a tensor map"))?;
        // SAFETY: the entry takes AttentionServed; the rest is what the caller promises.
        unsafe { plan.enqueue((&raw mut argument).cast(), stream) }
    }

    /// Returns the plan for a problem of sequences. A context is current.
    fn served_plan(&self, problem: &Problem) -> Result<Plan, Failure> {
        let variant = choice::served_variant(problem);
        let prepared = self.served.prepare(variant, problem)?;
        let key = Instance {
            variant,
            dtype: problem.dtype,
            head_dim: problem.shape.compiled_head_dim(),
        };
        let cached = self
            .served_plans
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .copied();
        let grid = prepared.blocks(self.multiprocessors);
        if let Some(plan) = cached {
            return Ok(Plan { grid, ..plan });
        }
        let plan = relaxed(|| self.load_plan(&self.served, &prepared))?;
        self.served_plans
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, plan);
        Ok(plan)
    }

    /// Returns the plan for a problem, which the first call makes. A context is current.
    fn plan(&self, problem: &Problem, wanted: Wanted) -> Result<Plan, Failure> {
        let key = PlanKey {
            shape: problem.shape,
            dtype: problem.dtype,
            mask: problem.mask,
            wanted,
        };
        let cached = self
            .plans
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key);
        if let Some(plan) = cached {
            return Ok(plan);
        }
        let plan = relaxed(|| self.new_plan(problem, wanted))?;
        self.plans
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, plan);
        Ok(plan)
    }

    fn new_plan(&self, problem: &Problem, wanted: Wanted) -> Result<Plan, Failure> {
        let Choice { stage, prepared } = self.chooser.choose(&self.stages, problem, wanted)?;
        self.load_plan(stage, &prepared)
    }

    fn load_plan(&self, stage: &LoadedStage, prepared: &Prepared<'_>) -> Result<Plan, Failure> {
        let id = stage.info().id;
        if stage.attention.artifacts().fatbin.is_none() {
            let not_built = CudaError::NotBuilt {
                stage: id.to_string(),
            };
            return Err(not_built.into());
        }
        let kernel = prepared.kernel;
        let no_code = |error| CudaError::NoCode {
            stage: id.to_string(),
            symbol: kernel.symbol.clone(),
            capability: self.capability,
            error,
        };
        let library = self.library(stage).map_err(no_code)?;
        let symbol = CString::new(kernel.symbol.as_str()).expect("a C identifier");
        let code = self.load(library, &symbol, kernel.dynamic_shared_bytes as i32);
        Ok(Plan {
            kernel: code.map_err(no_code)?,
            grid: prepared.blocks(self.multiprocessors),
            threads: kernel.threads,
            shared_bytes: kernel.dynamic_shared_bytes as u32,
            boxes: kernel.boxes,
            name: leak_name(&format!("{id}/{}", kernel.variant)),
        })
    }

    fn library(&self, stage: &LoadedStage) -> Result<Library, DriverError> {
        let id = stage.info().id;
        let mut libraries = self
            .libraries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(&library) = libraries.get(id) {
            return Ok(library);
        }
        let fatbin = stage.attention.artifacts().fatbin.unwrap_or_default();
        let mut handle = null_mut();
        // SAFETY: the image is one that fatbinary wrote, as long as it says; no options are given.
        let loaded = unsafe {
            sys::cuLibraryLoadData(
                &mut handle,
                fatbin.as_ptr().cast(),
                null_mut(),
                null_mut(),
                0,
                null_mut(),
                null_mut(),
                0,
            )
        };
        loaded.result()?;
        libraries.insert(id, Library(handle));
        Ok(Library(handle))
    }

    /// Returns a kernel with as much shared memory as its launches need, in each context of the
    /// GPU; in the current one it is loaded now, and not by its first launch.
    fn load(
        &self,
        library: Library,
        symbol: &CStr,
        shared_bytes: i32,
    ) -> Result<sys::CUkernel, DriverError> {
        let limit = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let mut kernel = null_mut();
        let mut function = null_mut();
        // SAFETY: the library is loaded, the kernel is of it and the function of the kernel; each
        // call writes one handle.
        unsafe {
            sys::cuLibraryGetKernel(&mut kernel, library.0, symbol.as_ptr()).result()?;
            sys::cuKernelSetAttribute(limit, shared_bytes, kernel, self.device).result()?;
            sys::cuKernelGetFunction(&mut function, kernel).result()?;
            sys::cuFuncLoad(function).result()?;
        }
        Ok(kernel)
    }
}

/// Refuses to read lengths while a graph is recorded: there is nothing to read yet.
fn refuse_capture(stream: CUstream) -> Result<(), Failure> {
    let mut status = CaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is the caller's; writes one value.
    unsafe { sys::cuStreamIsCapturing(stream, &mut status) }
        .result()
        .map_err(driver("asking whether the stream is being captured"))?;
    if status == CaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        return Ok(());
    }
    Err(Failure::new(
        Code::Invalid,
        format!(
            "{CHECK_VARIABLE} is set, and the stream is being captured into a CUDA graph, where \
             lengths cannot be read: unset it before the process starts, or call without a capture"
        ),
    ))
}

/// Copies numbers from the GPU, once the stream has written them.
fn copy_numbers(address: *const i32, count: usize, stream: CUstream) -> Result<Vec<i32>, Failure> {
    let mut numbers = vec![0; count];
    if count == 0 {
        return Ok(numbers);
    }
    // SAFETY: the call's arrays are as long as it says, and the copy has ended when the stream has.
    unsafe {
        let bytes = size_of_val(&*numbers);
        sys::cuMemcpyDtoHAsync_v2(numbers.as_mut_ptr().cast(), address as u64, bytes, stream)
            .result()
            .map_err(driver("copying lengths to the host"))?;
        sys::cuStreamSynchronize(stream)
            .result()
            .map_err(driver("waiting for lengths"))?;
    }
    Ok(numbers)
}

/// Lets `work` load code although a stream is being captured: it is not part of the graph.
fn relaxed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut mode = CaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange_capture_mode(&mut mode)?;
    let result = work();
    exchange_capture_mode(&mut mode)?;
    result
}

/// Sets the thread's mode of capture, and writes the mode before to `mode`.
fn exchange_capture_mode(mode: &mut CaptureMode) -> Result<(), Failure> {
    // SAFETY: reads and writes one value.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(mode) }
        .result()
        .map_err(driver("setting the mode of capture"))
}

#[cfg(test)]
mod tests;
