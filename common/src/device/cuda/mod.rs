//! A GPU through the CUDA driver: loading, launching under a watchdog, resources, and (in [`Arm`])
//! timing. Each device has one stream. Under compute-sanitizer or ncu, which slow kernels down by
//! orders of magnitude, use [`CudaDevice::execute`] with a longer [`CudaDevice::set_watchdog`].

mod arm;
mod attend;
mod error;
mod loaded;
mod measure;
mod selftest;
mod timeline;

pub use arm::{Arm, InputPool, RotatedOutput};
pub use error::{CudaError, LaunchName};
pub use measure::{Ranked, RankedArm, Timed, TimedPair};
pub use selftest::{TimerCheck, known_length, timer_checks};
pub use timeline::Noting;

use super::{Execution, Staged};
use crate::limits::DeviceLimits;
use crate::maps::{self, TableAddresses, TensorMap};
use crate::params::AttentionServed;
use crate::problem::Problem;
use crate::sequences::Tables;
use crate::stage::{Kernel, LoadedStage, Prepared};
use crate::telemetry::{Reading, Telemetry};
use cudarc::driver::sys::{
    self, CUdevice, CUdevice_attribute as Attribute, CUfunction_attribute as FunctionAttribute,
    CUmemPool_attribute as MemoryPoolAttribute, CUresult, CUtensorMapDataType as DataType,
    CUtensorMapSwizzle as MapSwizzle,
};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    DriverError, LaunchConfig, PushKernelArg, result,
};
use cudarc::nvrtc::Ptx;
use loaded::{Loaded, Recent, Untouched};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The CUDA version that this program's interface to the driver was made for.
const NEEDED_CUDA: (u32, u32) = (13, 0);

const DEFAULT_WATCHDOG: Duration = Duration::from_secs(10);

const SHARED_WITHOUT_OPT_IN: usize = 48 << 10;

const HELPERS_PTX: &str = include_str!("helpers.ptx");

/// The beginning of the names of the kernels in helpers.ptx.
pub const HELPER_PREFIX: &str = "attention_";

// SAFETY: a `repr(C)` struct of integers, floats, device addresses and tensor maps, the same in C
// and in Rust because one is generated from the other. The driver copies as many of its bytes as
// the kernel's one parameter has: all, or those that it begins with. Device addresses
// are valid there.
unsafe impl DeviceRepr for AttentionServed {}

/// The properties of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The driver's name for it: `NVIDIA H200`.
    pub name: String,
    /// The UUID that `nvidia-smi -L` prints: `GPU-` and 32 hexadecimal digits.
    pub uuid: String,
    pub compute_capability: (u32, u32),
    pub sms: u32,
    pub l2_bytes: u64,
    pub shared_optin_bytes: usize,
    pub cuda_version: (u32, u32),
    /// `580.65.06`; absent where NVML is.
    pub driver_version: Option<String>,
}

impl DeviceInfo {
    pub fn limits(&self) -> DeviceLimits {
        let (major, minor) = self.compute_capability;
        DeviceLimits {
            capability: 10 * major + minor,
            shared_opt_in_bytes: self.shared_optin_bytes,
        }
    }
}

type Modules = HashMap<usize, Arc<CudaModule>>;

/// An array that a launch may lack.
type DeviceArray<T> = Option<CudaSlice<T>>;

/// A GPU with a context and a stream. It is not `Sync`: nothing else may run on the GPU while it is
/// being timed.
pub struct CudaDevice {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    info: DeviceInfo,
    telemetry: Option<Telemetry>,
    watchdog: Duration,
    /// The loaded code, keyed by the address of its fatbin, which lives as long as the program.
    modules: RefCell<Modules>,
    helpers: RefCell<Option<Helpers>>,
    sticky: Cell<bool>,
    /// The tensors of the last launches, which the next ones may take again.
    recent: RefCell<Recent<RefCell<Loaded>>>,
    /// Whether the kernel that compares arrays was found to do so.
    compares: Cell<bool>,
    /// Whether the kernel of references was found to agree with the host.
    pub(crate) references_agree: Cell<bool>,
}

/// The kernels in helpers.ptx.
#[derive(Clone)]
struct Helpers {
    noop: CudaFunction,
    spin: CudaFunction,
    differ: CudaFunction,
}

impl Helpers {
    fn load(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let module = context.load_module(Ptx::from_src(HELPERS_PTX))?;
        Ok(Self {
            noop: module.load_function("attention_noop")?,
            spin: module.load_function("attention_spin")?,
            differ: module.load_function("attention_differ")?,
        })
    }
}

/// A kernel that is ready to launch.
#[derive(Clone)]
struct BoundKernel {
    function: CudaFunction,
    config: LaunchConfig,
    name: LaunchName,
}

enum Argument {
    None,
    Nanoseconds(u64),
    Attention(Box<AttentionServed>),
}

struct DeviceInputs {
    /// Q, K and V, each a copy of [`Untouched`]'s.
    images: [CudaSlice<u8>; 3],
    scales: [DeviceArray<f32>; 3],
    tables: DeviceTables,
}

/// The arrays that kernels read beside the tensors; `None` for those that are empty.
struct DeviceTables {
    q_starts: DeviceArray<i32>,
    kv_starts: DeviceArray<i32>,
    kv_used: DeviceArray<i32>,
    pages: DeviceArray<i32>,
    sinks: DeviceArray<f32>,
}

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaDevice")
            .field("info", &self.info)
            .field("watchdog", &self.watchdog)
            .finish_non_exhaustive()
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        if self.sticky.get() {
            // Unloading code and releasing the context would wait for a kernel that never ends.
            std::mem::forget(Arc::clone(&self.stream));
            std::mem::forget(self.modules.take());
            std::mem::forget(self.helpers.take());
            std::mem::forget(self.recent.take());
        }
    }
}

impl CudaDevice {
    /// Opens the GPU with the number `ordinal` among those that the driver shows.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let AttachedGpu { context, mut info } = attach(ordinal)?;
        // SAFETY: this type submits everything to one stream, so nothing needs the events that
        // would order several. They would also be recorded into captured graphs.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(opening)?;
        keep_freed_memory(&context).map_err(opening)?;
        let telemetry = Telemetry::open(&info.uuid).ok();
        info.driver_version = telemetry.as_ref().and_then(Telemetry::driver_version);
        Ok(Self {
            context,
            stream,
            info,
            telemetry,
            watchdog: DEFAULT_WATCHDOG,
            modules: RefCell::default(),
            helpers: RefCell::default(),
            sticky: Cell::new(false),
            recent: RefCell::default(),
            compares: Cell::new(false),
            references_agree: Cell::new(false),
        })
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub fn conditions(&self) -> Reading {
        self.telemetry
            .as_ref()
            .map_or_else(Reading::default, Telemetry::read)
    }

    /// Sets the time before [`CudaError::Hang`]: longer under a profiler or sanitizer.
    pub fn set_watchdog(&mut self, watchdog: Duration) {
        self.watchdog = watchdog;
    }

    /// Launches a kernel once into a freshly poisoned output. Inputs that it changed are downloaded,
    /// too, for gate C6. Further launches on the same tensors do not upload them again.
    pub fn execute(
        &self,
        stage: &LoadedStage,
        prepared: &Prepared<'_>,
        staged: &Arc<Staged>,
    ) -> Result<Execution, CudaError> {
        self.check_usable()?;
        let kernel = self.bind(stage, prepared, staged)?;
        self.execute_bound(&kernel, prepared, staged)
    }

    fn execute_bound(
        &self,
        kernel: &BoundKernel,
        prepared: &Prepared<'_>,
        staged: &Arc<Staged>,
    ) -> Result<Execution, CudaError> {
        let loaded = self.load(staged)?;
        self.poison(&mut loaded.borrow_mut())?;
        let tensors = loaded.borrow();
        let lse = prepared.lse.then_some(&tensors.lse);
        let argument = self.argument(prepared, staged, &tensors.inputs, &tensors.output, lse)?;
        self.enqueue(kernel, &argument)?;
        self.finish(&kernel.name, Duration::ZERO)?;
        let found = self.changed_inputs(&kernel.name, staged, &tensors.inputs, &tensors.untouched);
        let is_untouched = matches!(&found, Ok(changed) if changed.iter().all(Option::is_none));
        if !is_untouched {
            self.recent.borrow_mut().forget();
        }
        Ok(Execution {
            changed_inputs: found?,
            output: self.download(&tensors.output)?,
            lse: lse.map(|slice| self.download(slice)).transpose()?,
        })
    }

    fn module(&self, stage: &LoadedStage) -> Result<Arc<CudaModule>, CudaError> {
        let owner = stage.info().id;
        let Some(fatbin) = stage.attention.artifacts().fatbin else {
            return Err(CudaError::NotBuilt {
                stage: owner.to_string(),
            });
        };
        self.load_module(owner, fatbin)
    }

    /// Loads code once. Errors name `owner`.
    fn load_module(
        &self,
        owner: &str,
        fatbin: &'static [u8],
    ) -> Result<Arc<CudaModule>, CudaError> {
        let key = fatbin.as_ptr() as usize;
        if let Some(module) = self.modules.borrow().get(&key) {
            return Ok(Arc::clone(module));
        }
        let module = self
            .context
            .load_module(Ptx::from_binary(fatbin.to_vec()))
            .map_err(|error| self.no_code(owner, "any kernel", error))?;
        self.modules.borrow_mut().insert(key, Arc::clone(&module));
        Ok(module)
    }

    fn no_code(&self, stage: &str, symbol: &str, error: DriverError) -> CudaError {
        let capability = self.info.compute_capability;
        self.failed(CudaError::NoCode {
            stage: stage.to_string(),
            symbol: symbol.to_string(),
            capability,
            error,
        })
    }

    /// Returns a kernel's function with as much dynamic shared memory as its launches need.
    fn function(
        &self,
        module: &Arc<CudaModule>,
        kernel: &Kernel,
        name: &LaunchName,
    ) -> Result<CudaFunction, CudaError> {
        let function = module
            .load_function(&kernel.symbol)
            .map_err(|error| self.no_code(&name.stage, &kernel.symbol, error))?;
        let attributes = |error| self.driver_error("setting a kernel's shared memory", error);
        let fixed = function.shared_size_bytes().map_err(attributes)?.max(0) as usize;
        let (dynamic, available) = (kernel.dynamic_shared_bytes, self.info.shared_optin_bytes);
        if fixed + dynamic > available {
            return Err(CudaError::SharedMemory {
                launch: Box::new(name.clone()),
                needed: fixed + dynamic,
                available,
            });
        }
        if fixed + dynamic > SHARED_WITHOUT_OPT_IN {
            let limit = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function
                .set_attribute(limit, dynamic as i32)
                .map_err(attributes)?;
        }
        Ok(function)
    }

    fn bind(
        &self,
        stage: &LoadedStage,
        prepared: &Prepared<'_>,
        staged: &Staged,
    ) -> Result<BoundKernel, CudaError> {
        self.bind_in(&self.module(stage)?, stage, prepared, staged)
    }

    /// Binds a stage's kernel as `module` has it.
    fn bind_in(
        &self,
        module: &Arc<CudaModule>,
        stage: &LoadedStage,
        prepared: &Prepared<'_>,
        staged: &Staged,
    ) -> Result<BoundKernel, CudaError> {
        let Problem {
            shape, dtype, mask, ..
        } = staged.problem;
        let name = LaunchName {
            stage: stage.info().id.to_string(),
            variant: prepared.kernel.variant.clone(),
            problem: format!("{shape} {dtype} {mask}"),
        };
        let [x, y, z] = prepared.blocks(self.info.sms);
        let config = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (prepared.kernel.threads, 1, 1),
            shared_mem_bytes: prepared.kernel.dynamic_shared_bytes as u32,
        };
        Ok(BoundKernel {
            function: self.function(module, prepared.kernel, &name)?,
            config,
            name,
        })
    }

    fn helpers(&self) -> Result<Helpers, CudaError> {
        if let Some(helpers) = &*self.helpers.borrow() {
            return Ok(helpers.clone());
        }
        let helpers = Helpers::load(&self.context)
            .map_err(|error| self.driver_error("translating the helper kernels", error))?;
        Ok(self.helpers.borrow_mut().insert(helpers).clone())
    }

    fn upload<T: DeviceRepr>(&self, host: &[T]) -> Result<CudaSlice<T>, CudaError> {
        self.stream
            .clone_htod(host)
            .map_err(|error| self.driver_error("copying to the GPU", error))
    }

    /// Copies to the host. Kernels before it must have been waited for: this call has no watchdog.
    fn download<T: DeviceRepr + Clone + Default>(
        &self,
        device: &CudaSlice<T>,
    ) -> Result<Vec<T>, CudaError> {
        let mut host = vec![T::default(); device.len()];
        let copied = self
            .stream
            .memcpy_dtoh(device, &mut host)
            .and_then(|()| self.stream.synchronize());
        copied.map_err(|error| self.driver_error("copying from the GPU", error))?;
        Ok(host)
    }

    /// Makes a set of inputs for kernels to read.
    fn copy_inputs(
        &self,
        staged: &Staged,
        untouched: &Untouched,
    ) -> Result<DeviceInputs, CudaError> {
        let [q, k, v] = &staged.inputs;
        let [q_image, k_image, v_image] = &untouched.inputs;
        Ok(DeviceInputs {
            images: [
                self.copy_of(q_image)?,
                self.copy_of(k_image)?,
                self.copy_of(v_image)?,
            ],
            scales: [
                self.upload_some(&q.scales)?,
                self.upload_some(&k.scales)?,
                self.upload_some(&v.scales)?,
            ],
            tables: self.upload_tables(staged)?,
        })
    }

    fn upload_tables(&self, staged: &Staged) -> Result<DeviceTables, CudaError> {
        let none = Tables::default();
        let tables = staged.tables.as_ref().unwrap_or(&none);
        Ok(DeviceTables {
            q_starts: self.upload_some(&tables.q_starts)?,
            kv_starts: self.upload_some(&tables.kv_starts)?,
            kv_used: self.upload_some(&tables.kv_used)?,
            pages: self.upload_some(&tables.pages)?,
            sinks: self.upload_some(&tables.sinks)?,
        })
    }

    fn upload_some<T: DeviceRepr>(&self, host: &[T]) -> Result<DeviceArray<T>, CudaError> {
        if host.is_empty() {
            return Ok(None);
        }
        self.upload(host).map(Some)
    }

    fn table_addresses(&self, tables: &DeviceTables) -> TableAddresses {
        TableAddresses {
            q_starts: self.address_of(tables.q_starts.as_ref()),
            kv_starts: self.address_of(tables.kv_starts.as_ref()),
            kv_used: self.address_of(tables.kv_used.as_ref()),
            pages: self.address_of(tables.pages.as_ref()),
            sinks: self.address_of(tables.sinks.as_ref()),
        }
    }

    fn address_of<T>(&self, slice: Option<&CudaSlice<T>>) -> *const T {
        match slice {
            Some(array) => self.address(array).cast_const().cast(),
            None => std::ptr::null(),
        }
    }

    /// Returns what a launch of an attention kernel takes.
    fn argument(
        &self,
        prepared: &Prepared<'_>,
        staged: &Staged,
        inputs: &DeviceInputs,
        output: &CudaSlice<u8>,
        lse: Option<&CudaSlice<u8>>,
    ) -> Result<Argument, CudaError> {
        let image = |i: usize| self.address(&inputs.images[i]);
        let scales = |i: usize| match &inputs.scales[i] {
            Some(slice) => self.address(slice) as *const f32,
            None => std::ptr::null(),
        };
        let params = staged.params(
            [image(0), image(1), image(2)],
            [scales(0), scales(1), scales(2)],
            self.address(output),
            lse.map_or(std::ptr::null_mut(), |slice| self.address(slice)),
        );
        let (problem, boxes) = (&staged.problem, prepared.kernel.boxes);
        let launch = maps::launch_in(staged.extents(), problem, params, boxes, |map| {
            encode(map).map_err(|error| self.driver_error("encoding a tensor map", error))
        })?;
        let addresses = self.table_addresses(&inputs.tables);
        let serving = maps::serving(problem, staged.tables.as_ref(), addresses);
        Ok(Argument::Attention(Box::new(AttentionServed {
            launch,
            serving,
        })))
    }

    fn address<T>(&self, slice: &CudaSlice<T>) -> *mut c_void {
        // There is one stream and event tracking is off, so the guard does nothing.
        let (address, _guard) = slice.device_ptr(&self.stream);
        address as usize as *mut c_void
    }

    fn enqueue(&self, kernel: &BoundKernel, argument: &Argument) -> Result<(), CudaError> {
        let mut launch = self.stream.launch_builder(&kernel.function);
        match argument {
            Argument::None => &mut launch,
            Argument::Nanoseconds(duration) => launch.arg(duration),
            Argument::Attention(attention) => launch.arg(&**attention),
        };
        // SAFETY: the function takes exactly this argument: the helpers' PTX declares none or one
        // u64, and every entry of a stage takes AttentionServed, or what it begins with, by value.
        // Its addresses are allocations that the caller keeps until the stream has been waited
        // for. What a kernel does within is checked by the gates (guard bands around every tensor,
        // inputs compared afterwards, compute-sanitizer).
        let launched = unsafe { launch.launch(kernel.config) };
        launched
            .map(drop)
            .map_err(|error| self.launch_error(&kernel.name, error))
    }

    /// Waits until the stream is idle, for `expected` plus the watchdog's time.
    fn finish(&self, name: &LaunchName, expected: Duration) -> Result<(), CudaError> {
        let event = self
            .stream
            .record_event(None)
            .map_err(|error| self.launch_error(name, error))?;
        self.wait(&event, name, expected)
    }

    /// Waits for an event by polling: a blocking wait could never return.
    fn wait(
        &self,
        event: &CudaEvent,
        name: &LaunchName,
        expected: Duration,
    ) -> Result<(), CudaError> {
        let allowance = self.watchdog + expected;
        match poll(expected, allowance, || event.try_is_complete()) {
            Ok(None) => Ok(()),
            Ok(Some(waited)) => Err(self.failed(CudaError::Hang {
                launch: Box::new(name.clone()),
                waited,
            })),
            Err(error) => Err(self.launch_error(name, error)),
        }
    }

    fn check_usable(&self) -> Result<(), CudaError> {
        if self.sticky.get() {
            Err(CudaError::Sticky)
        } else {
            Ok(())
        }
    }

    fn failed(&self, error: CudaError) -> CudaError {
        self.sticky.set(self.sticky.get() || error.is_fatal());
        error
    }

    fn driver_error(&self, doing: &'static str, error: DriverError) -> CudaError {
        self.failed(CudaError::Driver { doing, error })
    }

    fn launch_error(&self, name: &LaunchName, error: DriverError) -> CudaError {
        self.failed(CudaError::Launch {
            launch: Box::new(name.clone()),
            error,
        })
    }
}

/// Polls until the answer is yes, with [`pause`]s. Returns how long it waited if it gave up after
/// `allowance`.
fn poll<E>(
    expected: Duration,
    allowance: Duration,
    mut is_done: impl FnMut() -> Result<bool, E>,
) -> Result<Option<Duration>, E> {
    let start = Instant::now();
    while !is_done()? {
        let waited = start.elapsed();
        if waited > allowance {
            return Ok(Some(waited));
        }
        match pause(waited, expected) {
            Some(duration) => std::thread::sleep(duration),
            None => std::hint::spin_loop(),
        }
    }
    Ok(None)
}

/// Returns how long to sleep: not at all while the work is `expected` to run, as a virtual machine
/// may oversleep by milliseconds.
fn pause(waited: Duration, expected: Duration) -> Option<Duration> {
    let is_late = waited > expected.max(Duration::from_millis(20));
    is_late.then_some(Duration::from_micros(200))
}

/// Lets the driver's pool keep what is freed, or every launch of thousands would map its buffers
/// anew.
fn keep_freed_memory(context: &CudaContext) -> Result<(), DriverError> {
    if !context.has_async_alloc() {
        return Ok(()); // there is no pool
    }
    let mut threshold = u64::MAX;
    let value = (&raw mut threshold).cast::<c_void>();
    // SAFETY: the context belongs to this device; the attribute is one 64-bit number, which is read
    // before the call returns.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device())?;
        result::mem_pool::set_attribute(
            pool,
            MemoryPoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            value,
        )
    }
}

/// Encodes a map as TMA reads it.
pub fn encode(map: &TensorMap) -> Result<[u64; 16], DriverError> {
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    // TMA moves elements as they are, whatever type they have.
    let kind = match map.element_bytes {
        1 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        2 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        _ => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
    };
    let swizzle = match map.swizzle {
        64 => MapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        _ => MapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let (box_extents, element_strides) = ([map.box_columns, map.box_rows, 1, 1], [1; 4]);
    // SAFETY: the arrays have as many elements as the rank of 4 asks for (strides one less), and
    // live through the call; the address is only noted.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            kind,
            4,
            map.base as *mut c_void,
            map.extents.as_ptr(),
            map.strides.as_ptr(),
            box_extents.as_ptr(),
            element_strides.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, // zeros
        )
    };
    result.result().map(|()| encoded.opaque)
}

pub fn is_present() -> bool {
    // SAFETY: tries to load the driver's library and closes it again.
    unsafe { sys::is_culib_present() }
}

/// A GPU with the process's primary context on it.
pub struct AttachedGpu {
    pub context: Arc<CudaContext>,
    pub info: DeviceInfo,
}

/// Takes the primary context on GPU number `ordinal`, current on this thread afterwards.
pub fn attach(ordinal: usize) -> Result<AttachedGpu, CudaError> {
    let info = find(ordinal)?.info;
    let context = CudaContext::new(ordinal).map_err(opening)?;
    Ok(AttachedGpu { context, info })
}

/// A GPU without a context.
pub struct FoundGpu {
    pub device: CUdevice,
    pub info: DeviceInfo,
}

/// Finds GPU number `ordinal`. Makes no context, and needs none.
pub fn find(ordinal: usize) -> Result<FoundGpu, CudaError> {
    if !is_present() {
        return Err(CudaError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: writes one integer; the function exists in every driver and needs no initialisation.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    code.result().map_err(|error| CudaError::Driver {
        doing: "asking for the driver's version",
        error,
    })?;
    let supported_cuda = decode_version(version);
    if supported_cuda < NEEDED_CUDA {
        return Err(CudaError::DriverTooOld {
            needed: NEEDED_CUDA,
            found: supported_cuda,
        });
    }
    let count = match CudaContext::device_count() {
        Ok(count) => count.max(0) as usize,
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
        Err(error) => {
            return Err(CudaError::Driver {
                doing: "initialising the driver",
                error,
            });
        }
    };
    if ordinal >= count {
        return Err(CudaError::NoDevice { ordinal, count });
    }
    let device = result::device::get(ordinal as i32).map_err(opening)?;
    let info = device_info(device, supported_cuda).map_err(opening)?;
    Ok(FoundGpu { device, info })
}

fn opening(error: DriverError) -> CudaError {
    CudaError::Driver {
        doing: "opening the GPU",
        error,
    }
}

/// Decodes a version of CUDA: 13000 is 13.0.
fn decode_version(code: i32) -> (u32, u32) {
    let number = code.max(0) as u32;
    (number / 1000, number % 1000 / 10)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn device_info(device: CUdevice, cuda_version: (u32, u32)) -> Result<DeviceInfo, DriverError> {
    let get = |attribute| {
        // SAFETY: the driver gave this number to a GPU, and writes one integer.
        let value = unsafe { result::device::get_attribute(device, attribute) }?;
        Ok(value.max(0) as u32)
    };
    let uuid = result::device::get_uuid(device)?;
    Ok(DeviceInfo {
        name: result::device::get_name(device)?,
        uuid: uuid_text(uuid.bytes.map(|byte| byte as u8)),
        compute_capability: (
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        sms: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_bytes: u64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        shared_optin_bytes: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
            as usize,
        cuda_version,
        driver_version: None,
    })
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_decoded() {
        assert_eq!(decode_version(13000), (13, 0));
        assert_eq!(decode_version(12080), (12, 8));
        assert!(decode_version(12090) < NEEDED_CUDA);
        assert!(decode_version(13010) >= NEEDED_CUDA);
    }

    #[test]
    fn uuids_look_like_nvidia_smi() {
        let bytes = std::array::from_fn(|i| 0x11 * i as u8);
        assert_eq!(uuid_text(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_device_that_cannot_be_is_a_typed_error() {
        // Without a driver NoDriver; with one, a number that no machine has.
        let error = CudaDevice::open(usize::MAX).unwrap_err();
        assert!(!error.is_fatal());
        assert!(!error.to_string().contains('\n'), "{error}");
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_wait_ends_with_the_event() {
        let mut polls = 0;
        let waited = poll(Duration::ZERO, LONG, || {
            polls += 1;
            Ok::<_, ()>(polls == 3)
        });
        assert_eq!((waited, polls), (Ok(None), 3));
    }

    #[test]
    fn a_wait_ends_with_the_events_error() {
        let waited = poll(Duration::ZERO, LONG, || Err("lost"));
        assert_eq!(waited, Err("lost"));
    }

    #[test]
    fn a_wait_ends_with_the_watchdog() {
        let allowance = Duration::from_millis(30);
        let waited = poll(Duration::ZERO, allowance, || Ok::<_, ()>(false))
            .unwrap()
            .expect("the event never happens");
        assert!(waited > allowance && waited < LONG, "{waited:?}");
    }

    #[test]
    fn a_wait_sleeps_only_once_it_is_longer_than_expected() {
        let sleeps = |waited_ms, expected_ms| {
            let waited = Duration::from_millis(waited_ms);
            pause(waited, Duration::from_millis(expected_ms)).is_some()
        };
        assert!(!sleeps(20, 0) && sleeps(21, 0));
        assert!(!sleeps(42, 42) && sleeps(43, 42));
    }
}
