//! `compare doctor`: what commands need and this machine has, what it has not, and the command that installs it.

use crate::answer::Answer;
use crate::document::{Block, Document, Table, row};
use crate::instrument::find::{self, COMPUTE_SANITIZER, NCU, NVCC, Places, first_line};
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::builds;
use crate::measure::limits;
use crate::measure::machine;
use crate::python;
use crate::stages;
use crate::table::StageMeta;
use crate::table::session::DeviceCompiler;
use clap::Args;
use common::device::cuda::{CudaDevice, DeviceInfo};
use common::stage::LoadedStage;

pub const EXAMPLES: &str = "\
Nothing is measured, built or written. It takes a few seconds, mostly for Python to import torch.

Example:
  compare doctor --python /opt/venv/bin/python

Exit codes:
  0  everything was found
  2  wrong usage, or a build that cannot be read
  3  something was not found; what does not need it works";

#[derive(Clone, Debug, Default, Args)]
pub struct DoctorArgs {
    /// The Python that should have torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// Something that commands need: its name, what was found or why it was not, and what installs it.
type Need = (&'static str, Result<String, String>, &'static str);

pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Answer> {
    let needs = look(args)?;
    let exit = match needs.iter().all(|(_, found, _)| found.is_ok()) {
        true => Exit::Pass,
        false => Exit::Inconclusive,
    };
    Ok(Answer::page(exit, &document(&needs)))
}

fn document(needs: &[Need]) -> Document {
    let found = needs.iter().filter_map(|(name, found, _)| {
        let found = found.as_ref().ok()?;
        Some(row! { "found" => *name, "" => found.as_str() })
    });
    let mut blocks = vec![Block::Table(Table::of(found))];
    let missing = needs.iter().filter_map(|(name, found, remedy)| {
        let why = found.as_ref().err()?;
        Some((*name, format!("{name}: {why}. {remedy}")))
    });
    let (names, lines): (Vec<&str>, Vec<String>) = missing.unzip();
    match lines.is_empty() {
        true => blocks.push(Block::paragraph("everything was found")),
        false => blocks.extend([
            Block::bullets(lines),
            Block::paragraph(format!("not found: {}", joined(names, ", "))),
        ]),
    }
    Document::of(blocks)
}

fn look(args: &DoctorArgs) -> anyhow::Result<Vec<Need>> {
    let mut stages = stages::load()?;
    let untraced = stages.iter().find(|stage| !LoadedStage::is_traced(stage));
    let traced = match untraced {
        Some(stage) => Err(format!("{} has no traced build", stage.info().id)),
        None => Ok("in this program".to_string()),
    };
    let with_version = |places: &Places| {
        let tool = places.find()?;
        Ok(format!("{} {}", places.name, tool.version))
    };
    let mut needs =
        Vec::from(limits::of_runs().map(|limited| (limited.name, limited.found, limited.remedy)));
    needs.extend([
        (
            "traced build for hazards (H1)",
            traced,
            "Build with g++ 12 or later on Linux x86-64.",
        ),
        (
            "GPU code, registers, spills (R1)",
            compiled(&builds::builds(&stages)),
            "`scripts/cuda-toolkit`, then build again.",
        ),
    ]);
    // A program that was brought here builds nothing.
    if machine::workspace().is_some() {
        let homes = kernel_build::homes_without_nvcc().into_iter();
        needs
            .extend(homes.map(|(name, why)| (name, Err(why), "Unset it, or name a CUDA toolkit.")));
        needs.extend([
            (
                "g++",
                first_line(&find::cxx()),
                "`apt install g++` (12 or later), or name it in CXX.",
            ),
            (
                "nvcc",
                with_version(&NVCC),
                "`scripts/cuda-toolkit` installs it into .cuda/, 152 MB.",
            ),
        ]);
    }
    let device = match CudaDevice::open(0) {
        Ok(device) => device,
        Err(why) => {
            needs.push((
                "GPU",
                Err(why.to_string()),
                "Without one there are no latencies (L1), no B1, C7, ncu or peers: see \"Measure on a remote GPU\" in docs/recipes.md.",
            ));
            return Ok(needs);
        }
    };
    let limits = device.info().limits();
    let without_code = stages::without_code(&stages, limits);
    stages
        .iter_mut()
        .for_each(|stage| stage.device = Some(limits));
    needs.extend(of_gpu(
        device.info(),
        without_code.map_or(Ok(()), Err),
        &builds::builds(&stages),
    ));
    needs.extend([
        (
            "counters by ncu (`profile`)",
            with_version(&NCU).map(|ncu| ncu + ", which needs the right to read counters"),
            "Install Nsight Compute, or name it in NCU.",
        ),
        (
            "compute-sanitizer (C7)",
            with_version(&COMPUTE_SANITIZER),
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

/// What nvcc built of this program.
fn compiled(builds: &[StageMeta]) -> Result<String, String> {
    let mut compiled = String::new();
    for stage in builds {
        compiled = match &stage.device_compiler {
            DeviceCompiler::Built { nvcc, archs, .. } => {
                format!("built by nvcc {nvcc} for {}", archs.join(", "))
            }
            DeviceCompiler::Absent { reason } => {
                return Err(format!("this program was built without it: {reason}"));
            }
        };
    }
    Ok(compiled)
}

/// The GPU, and the stages that it runs. `builds` are without what it cannot run.
fn of_gpu(info: &DeviceInfo, code: Result<(), String>, builds: &[StageMeta]) -> [Need; 2] {
    let DeviceInfo {
        name,
        compute_capability: (major, minor),
        sms,
        driver_version,
        cuda_version: (cuda_major, cuda_minor),
        ..
    } = info;
    let driver = driver_version.as_deref().unwrap_or("of an unknown version");
    let gpu = format!(
        "{name}, sm_{major}{minor}, {sms} SMs, driver {driver} for CUDA {cuda_major}.{cuda_minor}"
    );
    let (runs, not): (Vec<&StageMeta>, Vec<&StageMeta>) =
        builds.iter().partition(|stage| !stage.variants.is_empty());
    let ids = |stages: &[&StageMeta]| joined(stages.iter().map(|stage| &stage.id), ", ");
    let stages = match not.first().and_then(|stage| stage.refused.first()) {
        None => format!("all {}", runs.len()),
        Some(refusal) => format!("{}; not {}, first {refusal}", ids(&runs), ids(&not)),
    };
    [
        (
            "GPU",
            code.map(|()| gpu),
            "Set ATTENTION_CUDA_ARCHS to what this GPU is, and build again.",
        ),
        ("stages that this GPU runs", Ok(stages), ""),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::session::Refusal;
    use crate::testing;

    /// What is said of an H200 with this code and these stages.
    fn h200(code: Result<(), String>, builds: &[StageMeta]) -> Vec<Need> {
        let info = DeviceInfo {
            name: "NVIDIA H200".into(),
            uuid: "GPU-0".into(),
            compute_capability: (9, 0),
            sms: 132,
            l2_bytes: 60 << 20,
            shared_optin_bytes: 232_448,
            cuda_version: (13, 0),
            driver_version: Some("580.65.06".into()),
        };
        of_gpu(&info, code, builds).into()
    }

    /// All that is said, in one line: the table's cells are wrapped.
    fn words(needs: &[Need]) -> String {
        let text = crate::document::terminal::terminal(&document(needs), 200);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_machine_with_everything_lacks_nothing() {
        let text = words(&h200(Ok(()), &testing::ladder()));
        for part in [
            "everything was found",
            "NVIDIA H200, sm_90, 132 SMs",
            "580.65.06 for CUDA 13.0",
            "| stages that this GPU runs | all 2 |",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_stage_that_the_gpu_cannot_run_is_named() {
        let mut builds = testing::ladder();
        builds[1].variants.clear();
        builds[1].refused.push(Refusal {
            variant: "cpasync-32x64".into(),
            reason: "needs sm_90a".into(),
        });
        let text = words(&h200(Ok(()), &builds));
        let says =
            "| stage0-scalar; not stage1-cpasync, first cpasync-32x64: needs sm_90a | everything";
        assert!(text.contains(says), "{text}");
    }

    #[test]
    fn what_is_missing_is_named_with_what_installs_it() {
        let text = words(&h200(Err("sm_75 has no code".into()), &testing::ladder()));
        assert!(
            text.contains("GPU: sm_75 has no code. Set ATTENTION_CUDA_ARCHS")
                && text.ends_with("not found: GPU"),
            "{text}"
        );
        let missing = ("nvcc", Err("nvcc was not found".into()), "Install it.");
        let text = words(&[missing]);
        assert!(
            text.ends_with("- nvcc: nvcc was not found. Install it. not found: nvcc"),
            "{text}"
        );
    }

    #[test]
    fn this_machine_gets_an_answer() {
        let answer = doctor(&DoctorArgs {
            python: Some("no-such-python".into()),
        });
        let text = answer.unwrap().text;
        assert!(text.contains("g++") && text.contains("GPU"), "{text}");
    }
}
