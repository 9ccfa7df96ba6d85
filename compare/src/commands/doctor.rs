//! `compare doctor`: what commands need and this machine has, what it has not, and the command that
//! installs it; which stages each GPU runs; and whether to go on.

mod gpus;

use crate::answer::Answer;
use clap::Args;
use common::device::cuda::{CudaDevice, CudaError};
use common::stage::LoadedStage;
use gpus::GpuStages;
use measure::instrument::find::{COMPUTE_SANITIZER, NCU, NVCC, ToolLocation, first_line};
use measure::python;
use measure::{limits, machine};
use results::judge::verdict::Exit;
use results::table::session::DeviceCompiler;
use results::{builds, workspace};
use std::fmt::Display;

const EXAMPLES: &str = "\
Nothing is measured, built or written. It takes a few seconds, mostly for Python to import torch. \
The last line says whether to go on;
before it each GPU has the stages that run on it, those that do not and why, and what `profile` \
and `sanitize` can do there. Commands use
GPU 0, which CUDA_VISIBLE_DEVICES chooses.

Example:
  compare doctor --python /opt/venv/bin/python

Exit codes:
  0  everything was found
  2  wrong usage, or a build that cannot be read
  3  something was not found; what does not need it works";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// The Python that should have torch [default: PYTHON, else what scripts/python installed, else
    /// python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// Something that commands need.
#[derive(Clone)]
struct Need {
    name: &'static str,
    /// The version or place that was found.
    state: Result<String, Lacking>,
    /// The command or step that installs it.
    remedy: &'static str,
}

/// The reason why something was not found, or is of no use.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
struct Lacking(String);

impl Need {
    fn new(name: &'static str, state: Result<String, impl Display>, remedy: &'static str) -> Self {
        Self {
            name,
            state: state.map_err(|error| Lacking(error.to_string())),
            remedy,
        }
    }
}

/// The needs that answers look up by name.
const LIMITS: &str = "memory, address space, threads";
const PROFILER: &str = "ncu (`profile`), with the right to read counters";
const SANITIZER: &str = "compute-sanitizer (C7)";

/// A machine, and what it has for commands.
struct Machine {
    needs: Vec<Need>,
    gpus: Vec<GpuStages>,
    /// The number of stages of the ladder.
    stages: usize,
}

/// Reports what this machine has and lacks, and whether to go on.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Answer> {
    Ok(examine(args)?.answer())
}

impl Machine {
    fn answer(&self) -> Answer {
        let mut text = String::from("found:\n");
        let mut missing = String::new();
        let mut lacking = 0;
        for need in &self.needs {
            match &need.state {
                Ok(found) => text += &format!("  {}: {found}\n", need.name),
                Err(why) => {
                    missing += &format!("  {}: {why}. {}\n", need.name, need.remedy);
                    lacking += 1;
                }
            }
        }
        if lacking > 0 {
            text += &format!("not found:\n{missing}");
        }
        for (ordinal, gpu) in self.gpus.iter().enumerate() {
            text += &self.about(ordinal, gpu);
        }
        let unfit = self.state(LIMITS).and_then(|state| state.as_ref().err());
        let reason = unfit.map(|why| why.0.as_str());
        text += &gpus::verdict(reason, &self.gpus, self.stages, lacking);
        let exit = if lacking == 0 {
            Exit::Pass
        } else {
            Exit::Inconclusive
        };
        Answer::new(exit, text)
    }

    /// Lists what a GPU runs, and what the tools can do with that.
    fn about(&self, ordinal: usize, gpu: &GpuStages) -> String {
        let mut lines = gpu.lines();
        lines.push(format!("profile: {}", self.use_of(PROFILER, gpu)));
        lines.push(format!("sanitize: {}", self.use_of(SANITIZER, gpu)));
        format!("GPU {ordinal}, {}:\n  {}\n", gpu.gpu, lines.join("\n  "))
    }

    /// Returns what a tool can do on a GPU.
    fn use_of(&self, tool: &str, gpu: &GpuStages) -> String {
        match self.state(tool) {
            Some(Ok(_)) if gpu.running() == 0 => "nothing, since no stage runs".to_string(),
            Some(Ok(_)) => "the stages that run".to_string(),
            Some(Err(why)) => format!("nothing: {why}"),
            None => "nothing: it was not looked for".to_string(),
        }
    }

    fn state(&self, name: &str) -> Option<&Result<String, Lacking>> {
        let need = self.needs.iter().find(|need| need.name == name)?;
        Some(&need.state)
    }
}

/// Looks for everything that commands need.
fn examine(args: &DoctorArgs) -> anyhow::Result<Machine> {
    let mut stages = stages::load()?;
    let mut needs = vec![limits_need(), device_code_need(&stages)];
    // A program that was brought here builds nothing.
    if workspace::find().is_some() {
        needs.extend(build_needs());
    }
    let gpus = match gpus_here(&mut stages) {
        Ok(gpus) => {
            needs.extend(gpu_needs(args, &gpus[0]));
            gpus
        }
        Err(why) => {
            needs.push(Need::new(
                "GPU",
                Err(why),
                "Without one there are no latencies (L1), no B1, C7, ncu or peers: \
                 see \"Measure on a remote GPU\" in docs/recipes.md.",
            ));
            vec![]
        }
    };
    Ok(Machine {
        needs,
        gpus,
        stages: stages.len(),
    })
}

fn limits_need() -> Need {
    let state = match limits::check_runs() {
        Ok(()) => Ok("enough for a run".to_string()),
        Err(why) => Err(format!("{why:#}")),
    };
    Need::new(LIMITS, state, "")
}

fn device_code_need(stages: &[LoadedStage]) -> Need {
    let state = match builds::device_compiler(&stages[0].report.gpu) {
        DeviceCompiler::Built { nvcc, archs, .. } => {
            Ok(format!("by nvcc {nvcc} for {}", archs.join(", ")))
        }
        DeviceCompiler::Absent { reason } => Err(reason),
    };
    Need::new(
        "GPU code, registers, spills (R1)",
        state,
        "Then build again.",
    )
}

/// Looks for the compilers, as build scripts find them.
fn build_needs() -> Vec<Need> {
    let mut needs = Vec::new();
    for (variable, why) in kernel_build::homes_without_nvcc() {
        let remedy = "Unset it, or name a CUDA toolkit.";
        needs.push(Need::new(variable, Err(why), remedy));
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    needs.push(Need::new(
        "g++",
        first_line(&compiler).map_err(|error| error.to_string()),
        "`apt install g++` (12 or later), or name it in CXX.",
    ));
    needs.push(Need::new(
        "nvcc",
        version(&NVCC),
        "`scripts/cuda-toolkit` installs it into .cuda/, 152 MB.",
    ));
    needs
}

fn version(places: &ToolLocation) -> Result<String, String> {
    match places.find() {
        Ok(tool) => Ok(tool.version),
        Err(error) => Err(error.to_string()),
    }
}

/// Looks for what commands need on the first GPU.
fn gpu_needs(args: &DoctorArgs, gpu: &GpuStages) -> Vec<Need> {
    let state = match &gpu.without_code {
        Some(why) => Err(why.clone()),
        None => Ok(gpu.gpu.clone()),
    };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let refused = gpus::counters_refused(
        &read("/proc/driver/nvidia/params"),
        &read("/proc/self/status"),
    );
    vec![
        Need::new(
            "GPU",
            state,
            "Set ATTENTION_CUDA_ARCHS to what this GPU is, and build again.",
        ),
        profiler_need(version(&NCU), refused),
        Need::new(
            SANITIZER,
            version(&COMPUTE_SANITIZER),
            "`scripts/cuda-toolkit` installs it, or name it in SANITIZER.",
        ),
        Need::new(
            "PyTorch and peers (`peers`)",
            python::callable_peers(args.python.as_deref()).map_err(|error| error.to_string()),
            "`scripts/python` installs them, \
             or name a Python with torch by --python or PYTHON.",
        ),
    ]
}

/// Returns the need of ncu, which is of use to those who may read counters.
fn profiler_need(version: Result<String, String>, refused: Option<String>) -> Need {
    match (version, refused) {
        (Ok(_), Some(why)) => Need::new(
            PROFILER,
            Err(why),
            "Run as root, or let the driver's administrator set \
             NVreg_RestrictProfilingToAdminUsers=0.",
        ),
        (state, _) => Need::new(
            PROFILER,
            state,
            "Install Nsight Compute, or name it in NCU.",
        ),
    }
}

/// Returns every GPU that CUDA shows; at least one, or the reason why there is none.
fn gpus_here(stages: &mut [LoadedStage]) -> Result<Vec<GpuStages>, CudaError> {
    let mut devices = vec![CudaDevice::open(0)?];
    devices.extend((1..).map_while(|ordinal| CudaDevice::open(ordinal).ok()));
    let mut gpus = Vec::new();
    for device in &devices {
        let limits = device.info().limits();
        for stage in stages.iter_mut() {
            stage.device = Some(limits);
        }
        gpus.push(GpuStages {
            gpu: machine::machine(Ok(device.info())).gpu.to_string(),
            stages: builds::builds(stages),
            without_code: stages::without_code(stages, limits),
        });
    }
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::testing::{US, timed};

    fn present(name: &'static str, state: &str) -> Need {
        Need::new(name, Ok::<_, String>(state.into()), "")
    }

    fn missing(name: &'static str, why: &str, remedy: &'static str) -> Need {
        Need::new(name, Err(why), remedy)
    }

    fn machine(needs: Vec<Need>) -> Machine {
        Machine {
            needs,
            gpus: vec![],
            stages: 14,
        }
    }

    #[test]
    fn what_is_found_is_listed() {
        let gpu = timed(US).session.machine.gpu.to_string();
        let complete = machine(vec![present("GPU", &gpu), present("g++", "12.2.0")]).answer();
        assert_eq!(complete.exit, Exit::Pass);
        insta::assert_snapshot!(complete.text, @r"
        found:
          GPU: NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04)
          g++: 12.2.0
        GO without a GPU: all 14 stages run in the emulator, and nothing is timed
        ");
    }

    #[test]
    fn what_is_missing_is_listed_with_what_installs_it() {
        let nvcc = missing("nvcc", "nvcc was not found", "Install it.");
        let incomplete = machine(vec![present("g++", "12.2.0"), nvcc]).answer();
        assert_eq!(incomplete.exit, Exit::Inconclusive);
        let part = "\nnot found:\n  nvcc: nvcc was not found. Install it.\nGO ";
        assert!(incomplete.text.contains(part), "{}", incomplete.text);
    }

    #[test]
    fn a_machine_with_too_little_memory_is_no_go_whatever_else_it_has() {
        let why = "memory: 0.3 GB are available";
        let answer = machine(vec![missing(LIMITS, why, "")]).answer();
        assert_eq!(answer.exit, Exit::Inconclusive);
        let end = format!("\nNO-GO: {why}");
        assert!(answer.text.ends_with(&end), "{}", answer.text);
    }

    fn gpu(name: &str, without_code: Option<&str>) -> GpuStages {
        GpuStages {
            gpu: name.into(),
            stages: results::testing::ladder(),
            without_code: without_code.map(String::from),
        }
    }

    #[test]
    fn a_gpu_has_its_stages_and_what_the_tools_can_do() {
        let refused = Some("this user may not read counters".to_string());
        let answer = Machine {
            needs: vec![
                profiler_need(Ok("2025.3".into()), refused),
                present(SANITIZER, "2025.3"),
            ],
            gpus: vec![
                gpu("NVIDIA L4 (sm_89)", None),
                gpu("another", Some("it is not built for sm_75")),
            ],
            stages: 2,
        };
        insta::assert_snapshot!(answer.answer().text, @r"
        found:
          compute-sanitizer (C7): 2025.3
        not found:
          ncu (`profile`), with the right to read counters: this user may not read counters. Run as root, or let the driver's administrator set NVreg_RestrictProfilingToAdminUsers=0.
        GPU 0, NVIDIA L4 (sm_89):
          runs: stage0-scalar, stage1-cpasync
          profile: nothing: this user may not read counters
          sanitize: the stages that run
        GPU 1, another:
          runs: nothing; it is not built for sm_75
          profile: nothing: this user may not read counters
          sanitize: nothing, since no stage runs
        GO: all 2 stages run on NVIDIA L4 (sm_89); 1 thing is missing above
        ");
    }
}
