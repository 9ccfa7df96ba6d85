//! `compare doctor`: what commands need and this machine has, what it has not, and the command that installs it; which stages each GPU
//! runs; and whether to go on.

mod gpus;

use crate::answer::Answer;
use crate::instrument::find::{COMPUTE_SANITIZER, NCU, NVCC, ToolLocation, first_line};
use crate::judge::verdict::Exit;
use crate::measure::{builds, limits, machine};
use crate::python;
use crate::stages;
use crate::table::session::DeviceCompiler;
use clap::Args;
use common::device::cuda::{CudaDevice, CudaError};
use common::stage::LoadedStage;
use gpus::GpuStages;

const EXAMPLES: &str = "\
Nothing is measured, built or written. It takes a few seconds, mostly for Python to import torch. The last line says whether to go on;
before it each GPU has the stages that run on it, those that do not and why, and what `profile` and `sanitize` can do there. Commands use
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
    /// The Python that should have torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// Something that commands need: its name, what was found or why it was not, and what installs it.
type Need = (&'static str, Result<String, String>, &'static str);

/// By name, in the list of needs.
const LIMITS: &str = "memory, address space, threads";
const PROFILER: &str = "ncu (`profile`), with the right to read counters";
const SANITIZER: &str = "compute-sanitizer (C7)";

/// What is looked at on a machine.
struct Machine {
    needs: Vec<Need>,
    gpus: Vec<GpuStages>,
    /// How many stages there are.
    stages: usize,
}

pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Answer> {
    Ok(look(args)?.answer())
}

impl Machine {
    fn answer(&self) -> Answer {
        let (mut found, mut missing) = (String::from("found:\n"), String::new());
        for (name, what, remedy) in &self.needs {
            match what {
                Ok(what) => found += &format!("  {name}: {what}\n"),
                Err(why) => missing += &format!("  {name}: {why}. {remedy}\n"),
            }
        }
        if !missing.is_empty() {
            missing = format!("not found:\n{missing}");
        }
        let gpus = self.gpus.iter().enumerate();
        let gpus = String::from_iter(gpus.map(|(ordinal, gpu)| self.about(ordinal, gpu)));
        let unfit = self.what(LIMITS).and_then(|what| what.as_ref().err());
        let lacking = self
            .needs
            .iter()
            .filter(|(_, what, _)| what.is_err())
            .count();
        let verdict = gpus::verdict(unfit.map(String::as_str), &self.gpus, self.stages, lacking);
        let exit = match lacking {
            0 => Exit::Pass,
            _ => Exit::Inconclusive,
        };
        Answer::new(exit, format!("{found}{missing}{gpus}{verdict}"))
    }

    /// Lists what a GPU runs, and what the tools can do with that.
    fn about(&self, ordinal: usize, gpu: &GpuStages) -> String {
        let tool = |name: &str| match (self.what(name), gpu.running()) {
            (Some(Ok(_)), 0) => "nothing, since no stage runs".to_string(),
            (Some(Ok(_)), _) => "the stages that run".to_string(),
            (Some(Err(why)), _) => format!("nothing: {why}"),
            (None, _) => "nothing: it was not looked for".to_string(),
        };
        let tools = [("profile", PROFILER), ("sanitize", SANITIZER)];
        let tools = tools.map(|(command, name)| format!("{command}: {}", tool(name)));
        let lines = gpu.lines().into_iter().chain(tools);
        let lines = String::from_iter(lines.map(|line| format!("  {line}\n")));
        format!("GPU {ordinal}, {}:\n{lines}", gpu.gpu)
    }

    fn what(&self, name: &str) -> Option<&Result<String, String>> {
        let mut needs = self.needs.iter();
        needs.find_map(|(other, what, _)| (*other == name).then_some(what))
    }
}

fn look(args: &DoctorArgs) -> anyhow::Result<Machine> {
    let mut stages = stages::load()?;
    let version = |places: &ToolLocation| places.find().map(|tool| tool.version);
    let limits = limits::check_runs().map(|()| "enough for a run".to_string());
    let code = match builds::device_compiler(&stages[0].report.gpu) {
        DeviceCompiler::Built { nvcc, archs, .. } => {
            Ok(format!("by nvcc {nvcc} for {}", archs.join(", ")))
        }
        DeviceCompiler::Absent { reason } => Err(reason),
    };
    let mut needs = vec![
        (LIMITS, limits.map_err(|why| format!("{why:#}")), ""),
        (
            "GPU code, registers, spills (R1)",
            code,
            "Then build again.",
        ),
    ];
    // A program that was brought here builds nothing.
    if machine::workspace().is_some() {
        let homes = kernel_build::homes_without_nvcc().into_iter();
        let remedy = "Unset it, or name a CUDA toolkit.";
        needs.extend(homes.map(|(name, why)| (name, Err(why), remedy)));
        // As build scripts find it.
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let compiler = first_line(&compiler);
        needs.push((
            "g++",
            compiler,
            "`apt install g++` (12 or later), or name it in CXX.",
        ));
        let remedy = "`scripts/cuda-toolkit` installs it into .cuda/, 152 MB.";
        needs.push(("nvcc", version(&NVCC), remedy));
    }
    let gpus = match gpus_here(&mut stages) {
        Ok(gpus) => gpus,
        Err(why) => {
            let remedy = "Without one there are no latencies (L1), no B1, C7, ncu or peers: see \"Measure on a remote GPU\" in \
                          docs/recipes.md.";
            needs.push(("GPU", Err(why.to_string()), remedy));
            return Ok(Machine {
                needs,
                gpus: vec![],
                stages: stages.len(),
            });
        }
    };
    let gpu = match &gpus[0].without_code {
        Some(why) => Err(why.clone()),
        None => Ok(gpus[0].gpu.clone()),
    };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let refused = gpus::counters_refused(
        &read("/proc/driver/nvidia/params"),
        &read("/proc/self/status"),
    );
    needs.extend([
        (
            "GPU",
            gpu,
            "Set ATTENTION_CUDA_ARCHS to what this GPU is, and build again.",
        ),
        profiler(version(&NCU), refused),
        (
            SANITIZER,
            version(&COMPUTE_SANITIZER),
            "`scripts/cuda-toolkit` installs it, or name it in SANITIZER.",
        ),
        (
            "PyTorch and peers (`peers`)",
            python::callable_peers(args.python.as_deref()),
            "`scripts/python` installs them, or name a Python with torch by --python or PYTHON.",
        ),
    ]);
    Ok(Machine {
        needs,
        gpus,
        stages: stages.len(),
    })
}

/// ncu, which is of use to those who may read counters.
fn profiler(version: Result<String, String>, refused: Option<String>) -> Need {
    match (version, refused) {
        (Ok(_), Some(why)) => (
            PROFILER,
            Err(why),
            "Run as root, or let the driver's administrator set NVreg_RestrictProfilingToAdminUsers=0.",
        ),
        (version, _) => (
            PROFILER,
            version,
            "Install Nsight Compute, or name it in NCU.",
        ),
    }
}

/// Every GPU that CUDA shows; at least one, or why there is none.
fn gpus_here(stages: &mut [LoadedStage]) -> Result<Vec<GpuStages>, CudaError> {
    let mut gpus = vec![CudaDevice::open(0)?];
    gpus.extend((1..).map_while(|ordinal| CudaDevice::open(ordinal).ok()));
    let mut ladder_on = |gpu: &CudaDevice| {
        let limits = gpu.info().limits();
        stages
            .iter_mut()
            .for_each(|stage| stage.device = Some(limits));
        GpuStages {
            gpu: machine::machine(Ok(gpu.info())).gpu.to_string(),
            stages: builds::builds(stages),
            without_code: stages::without_code(stages, limits),
        }
    };
    Ok(gpus.iter().map(&mut ladder_on).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{US, timed};

    fn machine(needs: Vec<Need>) -> Machine {
        Machine {
            needs,
            gpus: vec![],
            stages: 14,
        }
    }

    #[test]
    fn what_is_found_and_what_is_missing_is_listed_with_what_installs_it() {
        let gpu = timed(US).session.machine.gpu.to_string();
        let found: Vec<Need> = vec![("GPU", Ok(gpu), ""), ("g++", Ok("12.2.0".into()), "")];
        let complete = machine(found.clone()).answer();
        assert_eq!(complete.exit, Exit::Pass);
        insta::assert_snapshot!(complete.text, @r"
        found:
          GPU: NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04)
          g++: 12.2.0
        GO without a GPU: all 14 stages run in the emulator, and nothing is timed
        ");
        let nvcc: Need = ("nvcc", Err("nvcc was not found".into()), "Install it.");
        let incomplete = machine([found, vec![nvcc]].concat()).answer();
        assert_eq!(incomplete.exit, Exit::Inconclusive);
        let says = "\nnot found:\n  nvcc: nvcc was not found. Install it.\nGO ";
        assert!(incomplete.text.contains(says), "{}", incomplete.text);
    }

    #[test]
    fn a_machine_with_too_little_memory_is_no_go_whatever_else_it_has() {
        let why = "memory: 0.3 GB are available";
        let answer = machine(vec![(LIMITS, Err(why.into()), "")]).answer();
        assert_eq!(answer.exit, Exit::Inconclusive);
        assert!(
            answer.text.ends_with(&format!("\nNO-GO: {why}")),
            "{}",
            answer.text
        );
    }

    #[test]
    fn a_gpu_has_its_stages_and_what_the_tools_can_do() {
        let gpus = ["NVIDIA L4 (sm_89)", "another"].map(|gpu| GpuStages {
            gpu: gpu.into(),
            stages: crate::testing::ladder(),
            without_code: (gpu == "another").then(|| "it is not built for sm_75".into()),
        });
        let refused = Some("this user may not read counters".to_string());
        let needs = vec![
            profiler(Ok("2025.3".into()), refused),
            (SANITIZER, Ok("2025.3".into()), ""),
        ];
        let answer = Machine {
            gpus: gpus.into(),
            stages: 2,
            ..machine(needs)
        };
        let text = answer.answer().text;
        insta::assert_snapshot!(text, @r"
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
