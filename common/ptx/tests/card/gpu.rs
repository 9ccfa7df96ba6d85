//! Runs an experiment on a GPU.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaModule, DriverError, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use nvml_wrapper::Nvml;

use crate::experiment::{Experiment, THREADS};
use crate::record::{Card, Replay};

/// Prints past libtest, which hides the output of a test that passes.
pub fn say(text: &str) {
    let mut terminal = std::io::stderr();
    writeln!(terminal, "{text}").unwrap();
}

/// Returns the raw results that `CARD_RESULTS` names, or the first GPU of compute capability 9.0.
pub fn card() -> Option<Box<dyn Card>> {
    if let Some(folder) = std::env::var_os("CARD_RESULTS") {
        return Some(Box::new(Replay::open(&PathBuf::from(folder))));
    }
    // SAFETY: tries to load the driver's library and closes it again.
    let is_present = unsafe { sys::is_culib_present() };
    if !is_present || !CudaContext::device_count().is_ok_and(|count| count > 0) {
        return None;
    }
    let context = CudaContext::new(0).expect("a GPU and its driver");
    let capability = context.compute_capability().expect("a compute capability");
    if capability != (9, 0) {
        say("this GPU is no sm_90a: the results that are kept were compared");
        return None;
    }
    Some(Box::new(Gpu {
        context,
        stopped_by: None,
    }))
}

/// The time after which a kernel is taken for one that never ends.
const PATIENCE: Duration = Duration::from_secs(20);

struct Gpu {
    context: Arc<CudaContext>,
    /// The experiment that stopped the GPU.
    stopped_by: Option<String>,
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.stopped_by.is_some() {
            // Releasing the context would wait for a kernel that never ends.
            std::mem::forget(Arc::clone(&self.context));
        }
    }
}

impl Card for Gpu {
    fn name(&self) -> String {
        let name = self.context.name().expect("a name");
        let driver = Nvml::init()
            .and_then(|library| library.sys_driver_version())
            .unwrap_or_else(|_| "unknown".to_owned());
        format!("{name}, driver {driver}")
    }

    fn run(&mut self, experiment: &Experiment) -> Result<Vec<u64>, String> {
        if let Some(culprit) = &self.stopped_by {
            return Err(format!("not run: {culprit} stopped the GPU"));
        }
        let module = self
            .context
            .load_module(Ptx::from_src(&experiment.text))
            .map_err(|error| format!("the driver does not take the kernel: {error}"))?;
        let ran = launched(&self.context, &module, experiment);
        match ran {
            Ok(Some(results)) => Ok(results),
            Ok(None) => {
                self.stopped_by = Some(experiment.row.clone());
                std::mem::forget(module);
                Err(format!("it did not end within {} s", PATIENCE.as_secs()))
            }
            Err(error) => {
                self.stopped_by = Some(experiment.row.clone());
                std::mem::forget(module);
                Err(error.to_string())
            }
        }
    }
}

/// The results of a kernel that ended.
type Ended = Option<Vec<u64>>;

/// Runs a kernel; `None` if it does not end.
fn launched(
    context: &Arc<CudaContext>,
    module: &Arc<CudaModule>,
    experiment: &Experiment,
) -> Result<Ended, DriverError> {
    let function = module.load_function("experiment")?;
    let stream = context.default_stream();
    let sets = experiment.sets();
    let operands = stream.clone_htod(&experiment.operands)?;
    let mut results = stream.alloc_zeros::<u64>(sets * experiment.results.len())?;
    let count = sets as u32;
    let mut launch = stream.launch_builder(&function);
    launch.arg(&operands).arg(&mut results).arg(&count);
    let config = LaunchConfig {
        grid_dim: (experiment.blocks, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: the entry takes these, and stays in its sets and results.
    unsafe { launch.launch(config) }?;
    let end = stream.record_event(None)?;
    let start = Instant::now();
    while !end.try_is_complete()? {
        if start.elapsed() > PATIENCE {
            std::mem::forget((operands, results));
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    stream.clone_dtoh(&results).map(Some)
}
