//! `compare doctor`: what commands need and this machine has, what it has not, and the command that installs it.

use crate::answer::Answer;
use crate::instrument::find::{COMPUTE_SANITIZER, NCU, NVCC, Places, first_line};
use crate::judge::verdict::Exit;
use crate::measure::{builds, limits, machine};
use crate::python;
use crate::stages;
use crate::table::session::DeviceCompiler;
use clap::Args;
use common::device::cuda::CudaDevice;

const EXAMPLES: &str = "\
Nothing is measured, built or written. It takes a few seconds, mostly for Python to import torch.

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

pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Answer> {
    Ok(answer(look(args)?))
}

fn answer(needs: Vec<Need>) -> Answer {
    let (mut found, mut missing) = (String::from("found:\n"), String::new());
    for (name, what, remedy) in needs {
        match what {
            Ok(what) => found += &format!("  {name}: {what}\n"),
            Err(why) => missing += &format!("  {name}: {why}. {remedy}\n"),
        }
    }
    match missing.is_empty() {
        true => Answer::pass(found + "everything was found"),
        false => Answer::new(Exit::Inconclusive, format!("{found}not found:\n{missing}")),
    }
}

fn look(args: &DoctorArgs) -> anyhow::Result<Vec<Need>> {
    let stages = stages::load()?;
    let version = |places: &Places| places.find().map(|tool| tool.version);
    let limits = limits::check_runs().map(|()| "enough for a run".to_string());
    let code = match builds::device_compiler(&stages[0].report.gpu) {
        DeviceCompiler::Built { nvcc, archs, .. } => {
            Ok(format!("by nvcc {nvcc} for {}", archs.join(", ")))
        }
        DeviceCompiler::Absent { reason } => Err(reason),
    };
    let mut needs = vec![
        (
            "memory, address space, threads",
            limits.map_err(|why| format!("{why:#}")),
            "",
        ),
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
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(why) => {
            let remedy = "Without one there are no latencies (L1), no B1, C7, ncu or peers: see \"Measure on a remote GPU\" in \
                          docs/recipes.md.";
            needs.push(("GPU", Err(why.to_string()), remedy));
            return Ok(needs);
        }
    };
    let gpu = match stages::without_code(&stages, device.info().limits()) {
        Some(why) => Err(why),
        None => Ok(machine::machine(Ok(device.info())).gpu.to_string()),
    };
    needs.extend([
        (
            "GPU",
            gpu,
            "Set ATTENTION_CUDA_ARCHS to what this GPU is, and build again.",
        ),
        (
            "ncu (`profile`), with the right to read counters",
            version(&NCU),
            "Install Nsight Compute, or name it in NCU.",
        ),
        (
            "compute-sanitizer (C7)",
            version(&COMPUTE_SANITIZER),
            "`scripts/cuda-toolkit` installs it, or name it in SANITIZER.",
        ),
        (
            "PyTorch and peers (`peers`)",
            python::found(args.python.as_deref()),
            "`scripts/python` installs them, or name a Python with torch by --python or PYTHON.",
        ),
    ]);
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{US, timed};

    #[test]
    fn what_is_found_and_what_is_missing_is_listed_with_what_installs_it() {
        let gpu = timed(US).session.machine.gpu.to_string();
        let found: Vec<Need> = vec![("GPU", Ok(gpu), ""), ("g++", Ok("12.2.0".into()), "")];
        let complete = answer(found.clone());
        assert_eq!(complete.exit, Exit::Pass);
        insta::assert_snapshot!(complete.text, @r"
        found:
          GPU: NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04)
          g++: 12.2.0
        everything was found
        ");
        let nvcc: Need = ("nvcc", Err("nvcc was not found".into()), "Install it.");
        let incomplete = answer([found, vec![nvcc]].concat());
        assert_eq!(incomplete.exit, Exit::Inconclusive);
        let says = "\nnot found:\n  nvcc: nvcc was not found. Install it.\n";
        assert!(incomplete.text.ends_with(says), "{}", incomplete.text);
    }
}
