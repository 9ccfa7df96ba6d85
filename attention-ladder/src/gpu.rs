//! The GPUs of the process: their code, the variants chosen on them, and launches. All work is done in the primary context,
//! which the CUDA runtime uses. Only the first call for a problem, which loads code, may allocate GPU memory or wait.

use crate::call::Checked;
use crate::choice;
use crate::failure::{Code, Failure};
use common::choice::{self as model, Chooser, Wanted};
use common::device::cuda::{self, CudaError};
use common::limits::DeviceLimits;
use common::maps::{self, BoxRows};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::LoadedStage;
use cudarc::driver::sys::{
    self, CUfunction_attribute as FunctionAttribute, CUstreamCaptureMode as CaptureMode,
};
use cudarc::driver::{CudaContext, DriverError, result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_void};
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// More than a host has.
const MOST_GPUS: usize = 64;

struct Gpu {
    context: Arc<CudaContext>,
    capability: (u32, u32),
    stages: Vec<LoadedStage>,
    chooser: Chooser,
    /// By the stage's id.
    modules: Mutex<HashMap<&'static str, Module>>,
    plans: RwLock<Known<PlanOf, Plan>>,
}

type PlanOf = (Shape, Dtype, Mask, Wanted);

/// Per GPU. A loop that decodes has a new shape in every step.
const MOST_PLANS: usize = 4096;

/// Values of the keys asked for last, roughly, in two halves, of which the older goes when the younger is full.
struct Known<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V: Copy> Known<K, V> {
    /// At most `most`, and half of them at least.
    fn new(most: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            most,
        }
    }

    fn get(&self, key: &K) -> Option<V> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.most / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

/// Leaked, once for each variant.
fn interned(name: &str) -> &'static CStr {
    static NAMES: Mutex<BTreeMap<String, &'static CStr>> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let leaked = Box::leak(CString::new(name).expect("a name").into_boxed_c_str());
    names.insert(name.to_string(), leaked);
    leaked
}

#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

#[derive(Clone, Copy)]
struct Plan {
    function: sys::CUfunction,
    grid: [u32; 3],
    threads: u32,
    shared_bytes: u32,
    boxes: Option<BoxRows>,
    /// `stage8-overlap/overlap-lazy-64x128`.
    name: &'static CStr,
}

// SAFETY: handles of the driver, which any thread may use and which are never given back.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

/// Until it is dropped.
struct Current {
    is_pushed: bool,
}

impl Current {
    fn enter(context: &CudaContext) -> Result<Self, Failure> {
        let wanted = context.cu_ctx();
        let is_pushed = result::ctx::get_current().map_err(entering)? != Some(wanted);
        if is_pushed {
            // SAFETY: the context is retained as long as the process lives.
            let pushed = unsafe { sys::cuCtxPushCurrent_v2(wanted) };
            pushed.result().map_err(entering)?;
        }
        Ok(Self { is_pushed })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.is_pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: writes one handle; what was pushed above is on top.
            _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        }
    }
}

fn driver(doing: &'static str) -> impl Fn(DriverError) -> Failure {
    move |error| CudaError::Driver { doing, error }.into()
}

fn entering(error: DriverError) -> Failure {
    driver("entering the GPU's context")(error)
}

/// Opened by the first call that needs it.
fn gpu(device: i32) -> Result<&'static Gpu, Failure> {
    static GPUS: [OnceLock<Result<Gpu, Failure>>; MOST_GPUS] =
        [const { OnceLock::new() }; MOST_GPUS];
    let slot = usize::try_from(device)
        .ok()
        .and_then(|ordinal| Some((ordinal, GPUS.get(ordinal)?)));
    let Some((ordinal, slot)) = slot else {
        return Err(Failure::new(
            Code::Invalid,
            format!(
                "device {device} is not a number of a GPU, 0 to {}",
                MOST_GPUS - 1
            ),
        ));
    };
    slot.get_or_init(|| open(ordinal))
        .as_ref()
        .map_err(Clone::clone)
}

fn open(ordinal: usize) -> Result<Gpu, Failure> {
    let mut stages = choice::stages()?;
    // A stage without code for any architecture that was asked for is as if it were not there.
    let without = stages[0].info().id;
    stages.retain(|stage| stage.attention.artifacts().fatbin.is_some());
    if stages.is_empty() {
        let stage = without.to_string();
        return Err(CudaError::NotBuilt { stage }.into());
    }
    let before = cuda::is_present().then(|| result::ctx::get_current().ok().flatten());
    let (context, info) = cuda::attach(ordinal)?;
    // SAFETY: the context was this thread's a moment ago; none is what it is if there was none.
    let restored =
        unsafe { result::ctx::set_current(before.flatten().unwrap_or(std::ptr::null_mut())) };
    restored.map_err(entering)?;
    let limits: DeviceLimits = info.limits();
    stages
        .iter_mut()
        .for_each(|stage| stage.device = Some(limits));
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
        context,
        capability: info.compute_capability,
        stages,
        chooser,
        modules: Mutex::default(),
        plans: RwLock::new(Known::new(MOST_PLANS)),
    })
}

/// Chooses and loads what takes `call`; its name.
pub fn query(call: &Checked, device: i32) -> Result<&'static CStr, Failure> {
    let gpu = gpu(device)?;
    let _current = Current::enter(&gpu.context)?;
    Ok(gpu.plan(&call.problem, call.wanted)?.name)
}

/// Puts one launch into `stream`.
///
/// # Safety
/// The call's addresses and the stream are what [`crate::attention_ladder_launch`] says.
pub unsafe fn launch(call: &Checked, device: i32, stream: *mut c_void) -> Result<(), Failure> {
    call.addresses()?;
    let gpu = gpu(device)?;
    let _current = Current::enter(&gpu.context)?;
    let plan = gpu.plan(&call.problem, call.wanted)?;
    let params = maps::params(&call.problem, call.tensors, call.lse);
    let mut launch = maps::launch(&call.problem, params, plan.boxes, cuda::encode)
        .map_err(driver("encoding a tensor map"))?;
    let [x, y, z] = plan.grid;
    let mut arguments = [(&raw mut launch).cast::<c_void>()];
    // SAFETY: the entry takes AttentionLaunch, or AttentionParams, with which that begins, by value; the driver has copied it
    // when the call returns. The rest is what the caller promises.
    let launched = unsafe {
        result::launch_kernel(
            plan.function,
            (x, y, z),
            (plan.threads, 1, 1),
            plan.shared_bytes,
            stream.cast(),
            &mut arguments,
        )
    };
    launched.map_err(|error| {
        let name = plan.name.to_string_lossy();
        Failure::new(Code::Driver, format!("{name}: the launch failed: {error}"))
    })
}

impl Gpu {
    /// The context is current.
    fn plan(&self, problem: &Problem, wanted: Wanted) -> Result<Plan, Failure> {
        let key = (problem.shape, problem.dtype, problem.mask, wanted);
        let known = self
            .plans
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key);
        if let Some(plan) = known {
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
        let (stage, prepared) = self.chooser.choose(&self.stages, problem, wanted)?;
        let (id, kernel) = (stage.info().id, prepared.kernel);
        let no_code = |error| CudaError::NoCode {
            stage: id.to_string(),
            symbol: kernel.symbol.clone(),
            capability: self.capability,
            error,
        };
        let module = self.module(stage).map_err(no_code)?;
        let symbol = CString::new(kernel.symbol.as_str()).expect("a C identifier");
        // SAFETY: the module is loaded and the context current; the attribute is of this function, which is loaded now and not
        // by its first launch.
        let function = unsafe {
            result::module::get_function(module.0, symbol).and_then(|function| {
                let limit = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = kernel.dynamic_shared_bytes as i32;
                result::function::set_function_attribute(function, limit, bytes)?;
                sys::cuFuncLoad(function).result().map(|()| function)
            })
        };
        Ok(Plan {
            function: function.map_err(no_code)?,
            grid: prepared.grid,
            threads: kernel.threads,
            shared_bytes: kernel.dynamic_shared_bytes as u32,
            boxes: kernel.boxes,
            name: interned(&format!("{id}/{}", kernel.variant)),
        })
    }

    fn module(&self, stage: &LoadedStage) -> Result<Module, DriverError> {
        let id = stage.info().id;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&module) = modules.get(id) {
            return Ok(module);
        }
        let fatbin = stage.attention.artifacts().fatbin.unwrap_or_default();
        // SAFETY: the context is current, and the image is one that fatbinary wrote, as long as it says.
        let module = Module(unsafe { result::module::load_data(fatbin.as_ptr().cast()) }?);
        modules.insert(id, module);
        Ok(module)
    }
}

/// Lets `work` load code although a stream is being captured: it is not part of the graph.
fn relaxed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let exchange = |mode: &mut CaptureMode| {
        // SAFETY: reads and writes one value.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(mode) }
            .result()
            .map_err(driver("setting the mode of capture"))
    };
    let mut mode = CaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    exchange(&mut mode)?;
    let done = work();
    exchange(&mut mode)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once_however_often_it_is_asked_for() {
        let first = interned("stage8-overlap/overlap-64x128");
        assert_eq!(first, c"stage8-overlap/overlap-64x128");
        let again = interned(&["stage8-overlap", "overlap-64x128"].join("/"));
        assert!(std::ptr::eq(first, again));
        assert_ne!(first, interned("stage8-overlap/overlap-128x128"));
    }

    #[test]
    fn a_loop_with_a_new_shape_in_every_step_keeps_no_more_than_the_last() {
        let mut known = Known::new(8);
        for step in 0..1000_usize {
            known.insert(step, 10 * step);
            assert!(known.young.len() + known.old.len() <= 8);
            for last in step.saturating_sub(3)..=step {
                assert_eq!(known.get(&last), Some(10 * last), "{step}");
            }
        }
        assert_eq!((known.get(&0), known.get(&1000)), (None, None));
    }
}
