//! Runs an experiment on a GPU.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys};
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
    Some(Box::new(Gpu { context }))
}

struct Gpu {
    context: Arc<CudaContext>,
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
        launched(&self.context, experiment).map_err(|error| error.to_string())
    }
}

fn launched(context: &Arc<CudaContext>, experiment: &Experiment) -> Result<Vec<u64>, DriverError> {
    let module = context.load_module(Ptx::from_src(&experiment.text))?;
    let function = module.load_function("experiment")?;
    let stream: Arc<CudaStream> = context.default_stream();
    let sets = experiment.sets();
    let operands = stream.clone_htod(&experiment.operands)?;
    let mut results = stream.alloc_zeros::<u64>(sets * experiment.results.len())?;
    let count = sets as u32;
    let mut launch = stream.launch_builder(&function);
    launch.arg(&operands).arg(&mut results).arg(&count);
    let config = LaunchConfig {
        grid_dim: (1, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: the entry takes these, and stays in its sets and results.
    unsafe { launch.launch(config) }?;
    stream.synchronize()?;
    stream.clone_dtoh(&results)
}
