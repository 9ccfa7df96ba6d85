//! `compare doctor`: what this machine has of what the tiers and commands need, what it goes without, and the remedy.

use crate::answer::Answer;
use crate::estimate;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::plan::{self, Request};
use crate::measure::{builds, machine};
use crate::page::terminal::{WIDTH, terminal};
use crate::page::{Block, Document, Table, row};
use crate::peers;
use crate::profile::NCU;
use crate::record::meta::{DeviceCompiler, Tier};
use crate::registry;
use crate::sanitize::COMPUTE_SANITIZER;
use crate::tool::{self, NVCC, Places, first_line};
use clap::Args;
use common::device::BackendKind;
use common::device::cuda::{CudaDevice, DeviceInfo};
use common::stage::LoadedStage;
use common::telemetry::{Conditions, Surroundings};
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Nothing is measured, built or written; it takes some seconds, most of them for Python to import torch.

Examples:
  compare doctor
  compare doctor --python /opt/venv/bin/python --flash-attn-3 _vllm_fa3_C.abi3.so

Exit codes:
  0  go: everything is here
  2  no-go: nothing can run before what is said is done
  3  go without: what is here works, and the lines name what is not, and the remedy";

/// The flags of `doctor`.
#[derive(Clone, Debug, Default, Args)]
pub struct DoctorArgs {
    /// The Python that is to have torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// FlashAttention-3 as a library of PyTorch operators; see `compare peers --help`
    #[arg(long, value_name = "FILE")]
    pub flash_attn_3: Option<PathBuf>,
}

/// What a build from nothing with its tests leaves under target/, and the toolkit, in bytes: 7.9 GB and 0.4 GB for ten stages
/// and three architectures.
const DISK_OF_A_BUILD: u128 = 10_000_000_000;

/// What the records and logs of a day of runs take, in bytes.
const DISK_OF_RUNS: u128 = 1_000_000_000;

/// The first major version of g++ whose `-fsanitize=thread` tells every access that the traced build needs.
const LEAST_GXX: u32 = 12;

/// Whether there is what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Go,
    Without,
    NoGo,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Go => "go",
            State::Without => "go without",
            State::NoGo => "no-go",
        }
    }
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    what: &'static str,
    state: State,
    /// What is here, or why it is not.
    here: String,
    /// What is gone without, and what to do.
    remedy: String,
}

impl Line {
    fn go(what: &'static str, here: impl Into<String>) -> Self {
        Line {
            state: State::Go,
            ..Line::without(what, here, "")
        }
    }

    fn without(what: &'static str, here: impl Into<String>, remedy: impl Into<String>) -> Self {
        Line {
            what,
            state: State::Without,
            here: here.into(),
            remedy: remedy.into(),
        }
    }

    fn no_go(self) -> Self {
        Line {
            state: State::NoGo,
            ..self
        }
    }

    /// What was found, or what is gone without for `why`.
    fn of(what: &'static str, found: Result<String, String>, remedy: &str) -> Self {
        match found {
            Ok(here) => Line::go(what, here),
            Err(why) => Line::without(what, why, remedy),
        }
    }
}

/// What the lines are about.
#[derive(Clone, Debug)]
struct Facts {
    /// Whether there is a source to build from.
    in_workspace: bool,
    rustc: Result<String, String>,
    cxx: Result<String, String>,
    /// Why the emulator cannot tell hazards, where it cannot.
    traced: Result<(), String>,
    nvcc: Result<String, String>,
    /// What GPU code this program has.
    gpu_code: Result<String, String>,
    gpu: Result<GpuFacts, String>,
    ncu: Result<String, String>,
    sanitizer: Result<String, String>,
    peers: Result<String, String>,
    processors: usize,
    memory: Option<u128>,
    disk: Option<u128>,
    /// Cases, and seconds that they take, or why they cannot end here.
    tiers: Vec<(Tier, usize, Result<u64, String>)>,
}

#[derive(Clone, Debug)]
struct GpuFacts {
    info: DeviceInfo,
    around: Option<Surroundings>,
    conditions: Conditions,
    /// Why counters cannot be read, where the driver says so.
    counters: Result<(), String>,
    /// Why the stages cannot run on it.
    runs: Result<(), String>,
}

/// Looks at the machine and says whether it is ready.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Answer> {
    let lines = lines(&look(args)?);
    let exit = match lines.iter().map(|line| line.state).max() {
        Some(State::NoGo) => Exit::Usage,
        Some(State::Without) => Exit::Undecided,
        _ => Exit::Pass,
    };
    Ok(Answer::new(exit, terminal(&document(&lines), WIDTH)))
}

fn document(lines: &[Line]) -> Document {
    let row = |line: &Line| {
        row! { "what" => line.what, "" => line.state.word(), "here" => line.here.as_str() }
    };
    let table = Table::of(lines.iter().map(row));
    let of = |state: State| lines.iter().filter(move |line| line.state == state);
    let remedies = [State::NoGo, State::Without].into_iter().flat_map(of);
    let remedies = remedies.map(|line| format!("{}: {}", line.what, line.remedy));
    let verdict = match (of(State::NoGo).next(), of(State::Without).count()) {
        (Some(_), _) => "no-go".to_string(),
        (None, 0) => "go: everything is here".to_string(),
        (None, _) => format!(
            "go without {}",
            joined(of(State::Without).map(|line| line.what), ", ")
        ),
    };
    Document::of(vec![
        Block::Table(table),
        Block::bullets(remedies),
        Block::paragraph(verdict),
    ])
}

fn lines(facts: &Facts) -> Vec<Line> {
    // This program runs, so that what it was built with is only missed where there is something to build.
    let to_build = |line: Line| match line.state {
        State::Without if !facts.in_workspace => Line {
            remedy: "nothing is built here; carry a program that was built elsewhere".into(),
            ..line
        },
        _ => line,
    };
    let mut lines = vec![
        to_build(Line::of(
            "rustc",
            facts.rustc.clone(),
            "install Rust by https://rustup.rs",
        )),
        to_build(Line::of(
            "g++",
            facts.cxx.clone(),
            "install g++ 12 or later (Debian: `apt install g++`), or name it in CXX",
        )),
        Line::of(
            "hazards (H1)",
            facts
                .traced
                .clone()
                .map(|()| "the traced build is in".to_string()),
            "build with g++ 12 or later on Linux x86-64",
        ),
        Line::of(
            "nvcc",
            facts.nvcc.clone(),
            "`scripts/cuda-toolkit` installs it into .cuda/, 152 MB",
        ),
        Line::of(
            "GPU code, registers, spills (R1)",
            facts.gpu_code.clone(),
            "`scripts/cuda-toolkit`, then build again",
        ),
    ];
    match &facts.gpu {
        Err(why) => lines.push(Line::without(
            "GPU",
            why,
            "no latency (L1), no comparison of both compilers (B1), no C7, no counters, no peers; run the same program on a \
             machine with a GPU and bring the record back (docs/recipes.md)",
        )),
        Ok(gpu) => lines.extend(of_gpu(facts, gpu)),
    }
    lines.push(of_memory(facts));
    if let Some(disk) = facts.disk {
        let needed = if facts.in_workspace {
            DISK_OF_A_BUILD
        } else {
            DISK_OF_RUNS
        };
        let here = format!("{} free", estimate::size(disk));
        lines.push(if disk >= needed {
            Line::go("disk", here)
        } else {
            let remedy = format!(
                "a build with its tests takes up to {}",
                estimate::size(needed)
            );
            let line = Line::without("disk", here, remedy);
            if disk < DISK_OF_RUNS {
                line.no_go()
            } else {
                line
            }
        });
    }
    for (tier, cases, seconds) in &facts.tiers {
        let what = match tier {
            Tier::T0 => "tier T0 (--quick)",
            Tier::T1 => "tier T1 (the default here)",
            Tier::T2 => "tier T2 (--full)",
        };
        lines.push(match seconds {
            Ok(seconds) => Line::go(what, taking(*cases, *seconds, facts)),
            Err(why) => Line::without(
                what,
                why,
                "run it on a GPU, or narrow it by --stages or --shapes",
            ),
        });
    }
    lines
}

/// In the emulator more than this is more than anybody waits for: a smaller tier is named beside it.
const LONG: u64 = 3600;

/// How long a tier takes, and where: `12120 cases in the emulator, about 7 h; T1 takes about 4 min`.
fn taking(cases: usize, seconds: u64, facts: &Facts) -> String {
    let about = duration(seconds);
    if backend(&facts.gpu) != BackendKind::Emulated {
        return format!("{cases} cases, about {about}");
    }
    let here = format!("{cases} cases in the emulator, about {about}");
    let shorter = facts.tiers.iter().rev().find_map(|(tier, _, seconds)| {
        let seconds = *seconds.as_ref().ok()?;
        (seconds <= LONG).then_some((tier, seconds))
    });
    match shorter {
        Some((tier, least)) if seconds > LONG => {
            format!(
                "{here}: take it on a GPU, and here {tier:?}, about {}",
                duration(least)
            )
        }
        _ => here,
    }
}

/// Where cases run here.
fn backend(gpu: &Result<GpuFacts, String>) -> BackendKind {
    match gpu {
        Ok(gpu) if gpu.runs.is_ok() => BackendKind::Cuda,
        _ => BackendKind::Emulated,
    }
}

fn of_gpu(facts: &Facts, gpu: &GpuFacts) -> Vec<Line> {
    let DeviceInfo {
        name,
        compute_capability: (major, minor),
        sms,
        shared_optin_bytes,
        ..
    } = &gpu.info;
    let driver = gpu
        .info
        .driver_version
        .as_deref()
        .unwrap_or("version not readable");
    let (cuda_major, cuda_minor) = gpu.info.cuda_version;
    let mut lines = vec![
        Line::go("driver", format!("{driver}, for CUDA {cuda_major}.{cuda_minor}")),
        Line::of(
            "GPU",
            gpu.runs.clone().map(|()| {
                format!("{name}, sm_{major}{minor}, {sms} SMs, {shared_optin_bytes} bytes of shared memory a block")
            }),
            "set ATTENTION_CUDA_ARCHS to what this GPU is, and build again",
        ),
    ];
    let around = gpu.around.clone().unwrap_or_default();
    let clocks = match &gpu.conditions {
        Conditions::Absent { reason } => Err(reason.clone()),
        Conditions::Read(reading) => {
            let mhz = |clock: Option<u32>| {
                clock.map_or("unknown".to_string(), |mhz| format!("{mhz} MHz"))
            };
            let held = reading
                .throttle
                .iter()
                .flatten()
                .filter(|why| *why != "gpu_idle");
            let held: Vec<&str> = held.map(String::as_str).collect();
            let text = format!(
                "SM clock {} of {}",
                mhz(reading.sm_mhz),
                mhz(around.most_sm_mhz)
            );
            if held.is_empty() {
                Ok(text)
            } else {
                Err(format!("{text}, held down by {}", held.join(", ")))
            }
        }
    };
    lines.push(Line::of(
        "clocks",
        clocks,
        "latencies are those of lower clocks; a record says them, and comparisons within one run stand",
    ));
    let alone = match (around.is_divided, around.others) {
        (Some(true), _) => Err("the GPU is divided into MIG instances".to_string()),
        (_, Some(others)) if others > 0 => Err(format!("{others} other processes are on the GPU")),
        (_, None) => Err("NVML does not say which processes are on the GPU".to_string()),
        _ => Ok("no other process, no MIG".to_string()),
    };
    lines.push(Line::of(
        "the GPU for itself",
        alone,
        "end what else runs on it, or its latencies are not to be believed",
    ));
    let counters = gpu.counters.clone().and_then(|()| facts.ncu.clone());
    lines.push(Line::of(
        "counters by ncu (`profile`)",
        counters,
        "install Nsight Compute, or name it in NCU; reading counters takes root, CAP_SYS_ADMIN, or the driver's option \
         NVreg_RestrictProfilingToAdminUsers=0",
    ));
    lines.push(Line::of(
        "compute-sanitizer (C7)",
        facts.sanitizer.clone(),
        "`scripts/cuda-toolkit` installs it, or name it in SANITIZER",
    ));
    lines.push(Line::of(
        "peers in PyTorch (`peers`)",
        facts.peers.clone(),
        "run scripts/python, or name a Python with torch by --python or PYTHON",
    ));
    lines
}

fn of_memory(facts: &Facts) -> Line {
    let Facts {
        processors, memory, ..
    } = facts;
    let here = match memory {
        Some(bytes) => format!(
            "{processors} processors, {} of memory available",
            estimate::size(*bytes)
        ),
        None => {
            format!("{processors} processors; the system does not say how much memory is available")
        }
    };
    Line::go("processors and memory", here)
}

/// `32 s`, `4 min`, `17 h`.
fn duration(seconds: u64) -> String {
    match seconds {
        0..90 => format!("{seconds} s"),
        90..5400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

fn look(args: &DoctorArgs) -> anyhow::Result<Facts> {
    let stages = registry::load()?;
    let builds = builds::builds(&stages);
    let device = CudaDevice::open(0).map_err(|error| error.to_string());
    let gpu = device.map(|device| GpuFacts {
        info: device.info().clone(),
        around: device.surroundings(),
        conditions: device.conditions(),
        counters: may_read_counters(),
        runs: registry::without_code(&stages, device.info().limits()).map_or(Ok(()), Err),
    });
    let backend = backend(&gpu);
    let compiled = builds.iter().map(|stage| match &stage.device_compiler {
        DeviceCompiler::Built { nvcc, archs, .. } => {
            Ok(format!("built by nvcc {nvcc} for {}", archs.join(", ")))
        }
        DeviceCompiler::Absent { reason } => {
            Err(format!("this program was built without: {reason}"))
        }
    });
    let gpu_code = compiled.reduce(|known, next| known.and_then(|known| next.map(|_| known)));
    let untraced = stages.iter().find(|stage| !LoadedStage::is_traced(stage));
    let workspace = machine::workspace();
    let folder = workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    let (processors, memory) = (machine::processors(), estimate::available());
    let tiers = [
        (Tier::T0, true, false),
        (Tier::T1, false, false),
        (Tier::T2, false, true),
    ];
    let tiers = tiers
        .into_iter()
        .filter(|(tier, ..)| (*tier, backend) != (Tier::T1, BackendKind::Cuda));
    let tiers = tiers.map(|(tier, quick, full)| {
        let plan = plan::plan(
            &builds,
            &Request {
                quick,
                full,
                ..Request::default()
            },
            backend,
        )?;
        let seconds = estimate::check(&plan.cases, processors, memory)
            .map(|()| estimate::seconds(tier, &plan.cases, processors))
            .map_err(|hopeless| hopeless.to_string());
        Ok((tier, plan.cases.len(), seconds))
    });
    let with_version = |places: &Places| {
        places
            .find()
            .map(|tool| format!("{} {}", places.name, tool.version))
    };
    Ok(Facts {
        in_workspace: workspace.is_some(),
        rustc: first_line("rustc", "--version").and_then(recent_enough),
        cxx: first_line(&tool::cxx(), "--version").and_then(traces),
        traced: untraced.map_or(Ok(()), |stage| {
            Err(format!("{} has no traced build", stage.info().id))
        }),
        nvcc: with_version(&NVCC),
        gpu_code: gpu_code.unwrap_or_else(|| Err("there is no stage".into())),
        peers: match &gpu {
            Ok(_) => peers::found(args.python.as_deref(), args.flash_attn_3.as_deref()),
            Err(_) => Err("not asked for without a GPU".into()),
        },
        gpu,
        ncu: with_version(&NCU),
        sanitizer: with_version(&COMPUTE_SANITIZER),
        processors,
        memory,
        disk: disk(&folder),
        tiers: tiers.collect::<anyhow::Result<_>>()?,
    })
}

/// A rustc that builds the workspace.
fn recent_enough(version: String) -> Result<String, String> {
    let least = env!("CARGO_PKG_RUST_VERSION");
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    if parts(number) >= parts(least) {
        Ok(version)
    } else {
        Err(format!("{version}, and {least} or later is needed"))
    }
}

/// `1.88.0` as numbers; what follows them is left out.
fn parts(version: &str) -> Vec<u32> {
    let numbers = version.split('.').map_while(|part| part.parse().ok());
    numbers.collect()
}

/// A host compiler; an old g++ is said to be one.
fn traces(version: String) -> Result<String, String> {
    let is_gnu = version.contains("g++") || version.contains("gcc") || version.starts_with("c++ ");
    let number = version.split_whitespace().next_back().unwrap_or_default();
    match parts(number).first() {
        Some(&major) if is_gnu && major < LEAST_GXX => {
            Err(format!("{version}, and {LEAST_GXX} or later is needed"))
        }
        _ => Ok(version),
    }
}

/// Whether the driver lets this process read counters. Where it does not say, ncu will.
fn may_read_counters() -> Result<(), String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    counters(
        &read("/proc/driver/nvidia/params"),
        &read("/proc/self/status"),
    )
}

/// CAP_SYS_ADMIN, of linux/capability.h.
const SYS_ADMIN: u64 = 1 << 21;

fn counters(driver: &str, process: &str) -> Result<(), String> {
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_string())
    };
    let is_restricted = field(driver, "RmProfilingAdminOnly:").as_deref() == Some("1");
    let capabilities = field(process, "CapEff:").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
    if is_restricted && capabilities.is_some_and(|has| has & SYS_ADMIN == 0) {
        return Err("the driver lets administrators alone read counters".to_string());
    }
    Ok(())
}

/// Free bytes where `folder` is, as `df` tells.
fn disk(folder: &Path) -> Option<u128> {
    let output = std::process::Command::new("df")
        .arg("-Pk")
        .arg(folder)
        .output();
    free(&String::from_utf8_lossy(&output.ok()?.stdout))
}

fn free(df: &str) -> Option<u128> {
    let kilobytes: u128 = df.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::telemetry::Reading;

    /// A machine with everything.
    fn complete() -> Facts {
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
        let reading = Reading {
            sm_mhz: Some(1980),
            throttle: Some(vec!["gpu_idle".into()]),
            ..Reading::default()
        };
        let around = Surroundings {
            is_divided: Some(false),
            others: Some(0),
            most_sm_mhz: Some(1980),
        };
        Facts {
            in_workspace: true,
            rustc: Ok("rustc 1.95.0".into()),
            cxx: Ok("g++ 14.2.0".into()),
            traced: Ok(()),
            nvcc: Ok("nvcc 13.2.51".into()),
            gpu_code: Ok("built by nvcc 13.2.51 for sm_90a".into()),
            gpu: Ok(GpuFacts {
                info,
                around: Some(around),
                conditions: Conditions::Read(reading),
                counters: Ok(()),
                runs: Ok(()),
            }),
            ncu: Ok("ncu 2025.3.1.0".into()),
            sanitizer: Ok("compute-sanitizer 2026.1".into()),
            peers: Ok("torch 2.11.0: torch-cudnn".into()),
            processors: 16,
            memory: Some(120_000_000_000),
            disk: Some(64_000_000_000),
            tiers: vec![(Tier::T2, 45_677, Ok(700))],
        }
    }

    fn answer(facts: &Facts) -> (Option<State>, String) {
        let lines = lines(facts);
        let worst = lines.iter().map(|line| line.state).max();
        (worst, terminal(&document(&lines), 200))
    }

    /// The machine with one thing changed.
    fn with(change: impl FnOnce(&mut Facts)) -> (Option<State>, String) {
        let mut facts = complete();
        change(&mut facts);
        answer(&facts)
    }

    fn gpu(facts: &mut Facts) -> &mut GpuFacts {
        facts.gpu.as_mut().unwrap()
    }

    #[test]
    fn a_machine_with_everything_is_go() {
        let (worst, text) = answer(&complete());
        assert_eq!(worst, Some(State::Go), "{text}");
        for part in [
            "go: everything is here",
            "NVIDIA H200, sm_90, 132 SMs",
            "580.65.06, for CUDA 13.0",
            "SM clock 1980 MHz of 1980 MHz",
            "45677 cases, about 12 min",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_missing_is_gone_without_and_the_remedy_is_named() {
        type Change = fn(&mut Facts);
        let cases: [(Change, &str, &str); 12] = [
            (
                |f| f.traced = Err("stage0 has no traced build".into()),
                "hazards (H1)",
                "build with g++ 12",
            ),
            (
                |f| f.nvcc = Err("nvcc was not found".into()),
                "nvcc",
                "scripts/cuda-toolkit",
            ),
            (
                |f| f.gpu_code = Err("without nvcc".into()),
                "GPU code",
                "then build again",
            ),
            (
                |f| f.gpu = Err("no driver".into()),
                "no driver",
                "bring the record back",
            ),
            (
                |f| gpu(f).runs = Err("sm_75 has no code".into()),
                "sm_75 has no code",
                "ATTENTION_CUDA_ARCHS",
            ),
            (
                |f| match &mut gpu(f).conditions {
                    Conditions::Read(reading) => {
                        reading.throttle = Some(vec!["sw_power_cap".into()])
                    }
                    Conditions::Absent { .. } => unreachable!(),
                },
                "held down by sw_power_cap",
                "lower clocks",
            ),
            (
                |f| gpu(f).around.as_mut().unwrap().is_divided = Some(true),
                "MIG instances",
                "end what else",
            ),
            (
                |f| gpu(f).around.as_mut().unwrap().others = Some(2),
                "2 other processes",
                "end what else",
            ),
            (
                |f| gpu(f).counters = Err("administrators alone".into()),
                "counters by ncu",
                "CAP_SYS_ADMIN",
            ),
            (
                |f| f.sanitizer = Err("not found".into()),
                "compute-sanitizer (C7)",
                "SANITIZER",
            ),
            (
                |f| f.peers = Err("No module named 'torch'".into()),
                "peers in PyTorch",
                "--python",
            ),
            (
                |f| f.disk = Some(5_000_000_000),
                "disk",
                "takes up to 10.0 GB",
            ),
        ];
        for (change, what, remedy) in cases {
            let (worst, text) = with(change);
            assert_eq!(worst, Some(State::Without), "{what}\n{text}");
            // The table's cells are wrapped; the remedies are not.
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_said = what.split(": ").all(|part| words.contains(part));
            assert!(is_said && words.contains(remedy), "{what}\n{text}");
            assert!(words.contains("go without"), "{text}");
        }
    }

    #[test]
    fn without_a_compiler_nothing_is_built_and_without_disk_nothing_runs() {
        for (in_workspace, remedy) in [(true, "rustup.rs"), (false, "carry a program")] {
            let (worst, text) = with(|facts| {
                facts.in_workspace = in_workspace;
                facts.rustc = Err("rustc cannot be started".into());
            });
            assert_eq!(worst, Some(State::Without));
            assert!(text.contains(remedy), "{text}");
        }
        let (worst, text) = with(|facts| facts.disk = Some(1000));
        assert_eq!(worst, Some(State::NoGo));
        assert!(text.trim_end().ends_with("no-go"), "{text}");
    }

    #[test]
    fn a_tier_in_the_emulator_says_so_and_a_long_one_names_a_smaller() {
        let tiers = |least: u64| {
            vec![
                (Tier::T0, 260, Ok(32)),
                (Tier::T1, 4730, Ok(least)),
                (Tier::T2, 12_120, Ok(25_000)),
            ]
        };
        let words = |facts: &Facts| {
            let lines = lines(facts);
            lines[lines.len() - 3..]
                .iter()
                .map(|line| line.here.clone())
                .collect::<Vec<_>>()
        };
        let mut facts = complete();
        facts.tiers = tiers(240);
        assert_eq!(words(&facts)[2], "12120 cases, about 7 h", "on a GPU");
        facts.gpu = Err("no driver".into());
        assert_eq!(
            words(&facts),
            [
                "260 cases in the emulator, about 32 s",
                "4730 cases in the emulator, about 4 min",
                "12120 cases in the emulator, about 7 h: take it on a GPU, and here T1, about 4 min",
            ]
        );
        facts.tiers = tiers(3601);
        assert!(words(&facts)[2].ends_with("and here T0, about 32 s"));
        facts.gpu = complete().gpu;
        gpu(&mut facts).runs = Err("sm_75 has no code".into());
        assert!(
            words(&facts)[0].contains("in the emulator"),
            "beside a GPU without code"
        );
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(recent_enough("rustc 1.100.0 (abc 2027-01-01)".into()).is_ok());
        assert!(
            recent_enough("rustc 1.9.0 (abc)".into())
                .unwrap_err()
                .contains("1.88")
        );
        assert!(traces("g++ (Debian 12.2.0-14) 12.2.0".into()).is_ok());
        assert!(
            traces("c++ (Ubuntu 9.4.0) 9.4.0".into())
                .unwrap_err()
                .contains("12 or later")
        );
        assert!(traces("Debian clang version 9.0.1".into()).is_ok());
    }

    #[test]
    fn the_right_to_read_counters_is_the_drivers_or_the_processs() {
        let (restricted, open) = ("RmProfilingAdminOnly: 1\n", "RmProfilingAdminOnly: 0\n");
        let (user, admin) = ("CapEff:\t0000000000000000\n", "CapEff:\t0000000000200000\n");
        assert!(counters(restricted, user).is_err());
        assert_eq!(counters(restricted, admin), Ok(()));
        assert_eq!(counters(open, user), Ok(()));
        assert_eq!(counters("", ""), Ok(()), "where nobody says, ncu will");
    }

    #[test]
    fn free_space_is_read_as_posix_writes_it() {
        let df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 263174212 1 44040192 55% /\n";
        assert_eq!(free(df), Some(44_040_192 * 1024));
        assert_eq!(free("df: no such file\n"), None);
    }

    #[test]
    fn this_machine_gets_an_answer() {
        let args = DoctorArgs {
            python: Some("no-such-python".into()),
            ..DoctorArgs::default()
        };
        let answer = doctor(&args).unwrap();
        assert!(
            answer.text.contains("rustc") && answer.text.contains("tier T0"),
            "{}",
            answer.text
        );
    }
}
