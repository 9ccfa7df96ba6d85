//! `compare doctor`: what this machine has of what the tiers and commands need, what it goes without, and the remedy.

use crate::answer::Answer;
use crate::estimate;
use crate::instrument::find::{self, COMPUTE_SANITIZER, NCU, NVCC, Places, first_line, numbers};
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::plan::{self, Request};
use crate::measure::{builds, machine};
use crate::page::terminal::{WIDTH, terminal};
use crate::page::{Block, Document, Table, row};
use crate::peers;
use crate::record::meta::{DeviceCompiler, Tier};
use crate::registry;
use clap::Args;
use common::device::BackendKind;
use common::device::cuda::{CudaDevice, DeviceInfo};
use common::stage::LoadedStage;
use common::telemetry::{Conditions, Surroundings};
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Nothing is measured, built or written. It takes a few seconds, mostly for Python to import torch.

Examples:
  compare doctor
  compare doctor --python /opt/venv/bin/python

Exit codes:
  0  go: everything is here
  2  no-go: nothing can run until the remedy is applied
  3  go without: what is here works; the lines name what is missing, and the remedy";

/// The flags of `doctor`.
#[derive(Clone, Debug, Default, Args)]
pub struct DoctorArgs {
    /// The Python that should have torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// What a clean build with its tests leaves under target/, and the toolkit, in bytes: 7.9 GB and 0.4 GB for ten stages
/// and three architectures.
const DISK_OF_A_BUILD: u128 = 10_000_000_000;

/// What the records and logs of a day of runs take, in bytes.
const DISK_OF_RUNS: u128 = 1_000_000_000;

/// The first major version of g++ whose `-fsanitize=thread` reports every access that the traced build needs.
const LEAST_GXX: u32 = 12;

/// Whether what is needed is here.
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
    /// What to do about it, if it is not.
    remedy: String,
}

impl Line {
    /// What was found, or why it was not.
    fn of(what: &'static str, found: Result<String, String>, remedy: impl Into<String>) -> Self {
        Line {
            what,
            state: if found.is_ok() {
                State::Go
            } else {
                State::Without
            },
            here: found.unwrap_or_else(|why| why),
            remedy: remedy.into(),
        }
    }
}

/// Looks at the machine and says whether it is ready.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<Answer> {
    let lines = look(args)?;
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

fn look(args: &DoctorArgs) -> anyhow::Result<Vec<Line>> {
    let stages = registry::load()?;
    let builds = builds::builds(&stages);
    let gpu = CudaDevice::open(0).map_err(|error| error.to_string());
    let with_version = |places: &Places| {
        let tool = places.find()?;
        Ok(format!("{} {}", places.name, tool.version))
    };
    let mut lines = vec![
        Line::of(
            "rustc",
            first_line("rustc").and_then(recent_enough),
            "install Rust from https://rustup.rs",
        ),
        Line::of(
            "g++",
            first_line(&find::cxx()).and_then(traces),
            "install g++ 12 or later (Debian: `apt install g++`), or name it in CXX",
        ),
    ];
    let workspace = machine::workspace();
    if workspace.is_none() {
        // This program runs: without sources to build, nothing that it was built with is missing.
        for line in &mut lines {
            line.remedy = "nothing is built here; bring a program that was built elsewhere".into();
        }
    }
    let untraced = stages.iter().find(|stage| !LoadedStage::is_traced(stage));
    let compiled = builds.iter().map(|stage| match &stage.device_compiler {
        DeviceCompiler::Built { nvcc, archs, .. } => {
            Ok(format!("built by nvcc {nvcc} for {}", archs.join(", ")))
        }
        DeviceCompiler::Absent { reason } => {
            Err(format!("this program was built without: {reason}"))
        }
    });
    let compiled = compiled.collect::<Result<Vec<String>, String>>();
    lines.extend([
        Line::of(
            "hazards (H1)",
            match untraced {
                Some(stage) => Err(format!("{} has no traced build", stage.info().id)),
                None => Ok("this program has the traced build".to_string()),
            },
            "build with g++ 12 or later on Linux x86-64",
        ),
        Line::of(
            "nvcc",
            with_version(&NVCC),
            "`scripts/cuda-toolkit` installs it into .cuda/, 152 MB",
        ),
        Line::of(
            "GPU code, registers, spills (R1)",
            compiled.map(|mut each| each.swap_remove(0)),
            "`scripts/cuda-toolkit`, then build again",
        ),
    ]);
    let mut backend = BackendKind::Emulated;
    match gpu {
        Err(why) => lines.push(Line::of(
            "GPU",
            Err(why),
            "without it no latency (L1), no comparison of the two compilers (B1), no C7, no counters, no peers; run the same \
             program on a machine with a GPU and bring the record back (docs/recipes.md)",
        )),
        Ok(device) => {
            let runs = match registry::without_code(&stages, device.info().limits()) {
                Some(reason) => Err(reason),
                None => {
                    backend = BackendKind::Cuda;
                    Ok(())
                }
            };
            let (info, around) = (device.info(), device.surroundings().unwrap_or_default());
            lines.extend(of_gpu(info, runs, &around, &device.conditions()));
            lines.extend([
                Line::of(
                    "counters by ncu (`profile`)",
                    may_read_counters().and_then(|()| with_version(&NCU)),
                    "install Nsight Compute, or name it in NCU; reading counters takes root, CAP_SYS_ADMIN, or the driver's option \
                     NVreg_RestrictProfilingToAdminUsers=0",
                ),
                Line::of(
                    "compute-sanitizer (C7)",
                    with_version(&COMPUTE_SANITIZER),
                    "`scripts/cuda-toolkit` installs it, or name it in SANITIZER",
                ),
                Line::of(
                    "peers in PyTorch (`peers`)",
                    peers::found(args.python.as_deref()),
                    "run scripts/python, or name a Python with torch by --python or PYTHON",
                ),
            ]);
        }
    }
    let (processors, memory) = (machine::processors(), estimate::available());
    let available = memory.map_or("an unknown amount".to_string(), estimate::size);
    let here = format!("{processors} processors, {available} of memory available");
    lines.push(Line::of("processors and memory", Ok(here), ""));
    let folder = workspace.clone().unwrap_or_else(|| PathBuf::from("."));
    lines.extend(disk(&folder).map(|free| of_disk(free, workspace.is_some())));
    let mut tiers = Vec::new();
    for (tier, quick, full) in [
        (Tier::T0, true, false),
        (Tier::T1, false, false),
        (Tier::T2, false, true),
    ] {
        if (tier, backend) == (Tier::T1, BackendKind::Cuda) {
            continue; // the default on a GPU is T2
        }
        let request = Request {
            quick,
            full,
            ..Request::default()
        };
        let cases = plan::plan(&builds, &request, backend)?.cases;
        let seconds = estimate::check(&cases, processors, memory)
            .map(|()| estimate::seconds(tier, &cases, processors))
            .map_err(|hopeless| hopeless.to_string());
        tiers.push((tier, cases.len(), seconds));
    }
    lines.extend(of_tiers(&tiers, backend));
    Ok(lines)
}

/// The GPU, and the state that it is in.
fn of_gpu(
    info: &DeviceInfo,
    runs: Result<(), String>,
    around: &Surroundings,
    conditions: &Conditions,
) -> [Line; 4] {
    let DeviceInfo {
        name,
        compute_capability: (major, minor),
        sms,
        shared_optin_bytes,
        driver_version,
        cuda_version: (cuda_major, cuda_minor),
        ..
    } = info;
    let driver = driver_version.as_deref().unwrap_or("of an unknown version");
    let clocks = match conditions {
        Conditions::Absent { reason } => Err(reason.clone()),
        Conditions::Read(reading) => {
            let mhz = |clock: Option<u32>| {
                clock.map_or("unknown".to_string(), |mhz| format!("{mhz} MHz"))
            };
            let mut text = format!(
                "SM clock {} of {}",
                mhz(reading.sm_mhz),
                mhz(around.most_sm_mhz)
            );
            text.extend(reading.power_w.map(|power| format!(", {power:.0} W")));
            text.extend(reading.celsius.map(|celsius| format!(", {celsius} °C")));
            let held = reading.throttle.iter().flatten();
            let held = joined(held.filter(|why| *why != "gpu_idle"), ", ");
            match held.is_empty() {
                true => Ok(text),
                false => Err(format!("{text}, throttled by {held}")),
            }
        }
    };
    let alone = match (around.is_divided, around.others) {
        (Some(true), _) => Err("the GPU is divided into MIG instances".to_string()),
        (_, Some(others)) if others > 0 => Err(format!("{others} other processes are on the GPU")),
        (_, None) => Err("NVML does not report which processes are on the GPU".to_string()),
        _ => Ok("no other process, no MIG".to_string()),
    };
    [
        Line::of(
            "driver",
            Ok(format!("{driver}, for CUDA {cuda_major}.{cuda_minor}")),
            "",
        ),
        Line::of(
            "GPU",
            runs.map(|()| {
                format!("{name}, sm_{major}{minor}, {sms} SMs, {shared_optin_bytes} bytes of shared memory a block")
            }),
            "set ATTENTION_CUDA_ARCHS to what this GPU is, and build again",
        ),
        Line::of(
            "clocks",
            clocks,
            "latencies are those of lower clocks; the record says so, and comparisons within one run stand",
        ),
        Line::of(
            "the GPU for itself",
            alone,
            "end whatever else runs on it, or do not trust its latencies",
        ),
    ]
}

fn of_disk(free: u128, in_workspace: bool) -> Line {
    let needed = if in_workspace {
        DISK_OF_A_BUILD
    } else {
        DISK_OF_RUNS
    };
    let here = format!("{} free", estimate::size(free));
    let found = if free >= needed { Ok(here) } else { Err(here) };
    let remedy = format!(
        "free some: a build with its tests takes up to {}",
        estimate::size(needed)
    );
    let line = Line::of("disk", found, remedy);
    match free < DISK_OF_RUNS {
        true => Line {
            state: State::NoGo,
            ..line
        },
        false => line,
    }
}

/// What takes longer than this in the emulator, in seconds, is too long: a smaller tier is named beside it.
const LONG: u64 = 3600;

/// How long each tier takes, by its number of cases and seconds, and where: `12120 cases in the emulator, about 7 h: …`.
fn of_tiers<'a>(
    tiers: &'a [(Tier, usize, Result<u64, String>)],
    backend: BackendKind,
) -> impl Iterator<Item = Line> + 'a {
    let is_short = |(tier, _, seconds): &'a (Tier, usize, Result<u64, String>)| {
        let seconds = *seconds.as_ref().ok().filter(|seconds| **seconds <= LONG)?;
        Some(format!("here {tier:?}, about {}", duration(seconds)))
    };
    let shorter = tiers.iter().rev().find_map(is_short);
    tiers.iter().map(move |(tier, cases, seconds)| {
        let what = match tier {
            Tier::T0 => "tier T0 (--quick)",
            Tier::T1 => "tier T1 (the default here)",
            Tier::T2 => "tier T2 (--full)",
        };
        let here = seconds.clone().map(|seconds| {
            let about = duration(seconds);
            match &shorter {
                _ if backend != BackendKind::Emulated => format!("{cases} cases, about {about}"),
                Some(shorter) if seconds > LONG => format!(
                    "{cases} cases in the emulator, about {about}: run it on a GPU, and {shorter}"
                ),
                _ => format!("{cases} cases in the emulator, about {about}"),
            }
        });
        let remedy = "run it on a GPU, or narrow it by --stages or --shapes";
        Line::of(what, here, remedy)
    })
}

/// `32 s`, `4 min`, `17 h`.
fn duration(seconds: u64) -> String {
    match seconds {
        0..90 => format!("{seconds} s"),
        90..5400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

/// A rustc that builds the workspace.
fn recent_enough(version: String) -> Result<String, String> {
    let least = env!("CARGO_PKG_RUST_VERSION");
    let number = version.split_whitespace().nth(1).unwrap_or_default();
    match numbers(number) >= numbers(least) {
        true => Ok(version),
        false => Err(format!("{version}; {least} or later is needed")),
    }
}

/// A host compiler; an old g++ is refused.
fn traces(version: String) -> Result<String, String> {
    let is_gnu = version.contains("g++") || version.contains("gcc") || version.starts_with("c++ ");
    let number = version.split_whitespace().next_back().unwrap_or_default();
    match numbers(number).first() {
        Some(&major) if is_gnu && major < LEAST_GXX => {
            Err(format!("{version}; {LEAST_GXX} or later is needed"))
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
        return Err("the driver lets only administrators read counters".to_string());
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

    /// What is said of an H200 in a state that `change` makes of the best.
    fn h200(
        change: impl FnOnce(&mut Result<(), String>, &mut Surroundings, &mut Reading),
    ) -> Vec<Line> {
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
        let mut reading = Reading {
            sm_mhz: Some(1980),
            power_w: Some(76.4),
            celsius: Some(31),
            throttle: Some(vec!["gpu_idle".into()]),
        };
        let mut around = Surroundings {
            is_divided: Some(false),
            others: Some(0),
            most_sm_mhz: Some(1980),
        };
        let mut runs = Ok(());
        change(&mut runs, &mut around, &mut reading);
        of_gpu(&info, runs, &around, &Conditions::Read(reading)).into()
    }

    /// All that is said, in one line: the table's cells are wrapped.
    fn words(lines: &[Line]) -> String {
        let text = terminal(&document(lines), 200);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_machine_with_everything_is_go() {
        let text = words(&h200(|_, _, _| ()));
        for part in [
            "go: everything is here",
            "NVIDIA H200, sm_90, 132 SMs",
            "580.65.06, for CUDA 13.0",
            "SM clock 1980 MHz of 1980 MHz, 76 W, 31 °C",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_missing_is_gone_without_and_the_remedy_is_named() {
        type Change = fn(&mut Result<(), String>, &mut Surroundings, &mut Reading);
        let cases: [(Change, &str, &str); 4] = [
            (
                |runs, _, _| *runs = Err("sm_75 has no code".into()),
                "sm_75 has no code",
                "ATTENTION_CUDA_ARCHS",
            ),
            (
                |_, _, reading| reading.throttle = Some(vec!["sw_power_cap".into()]),
                "throttled by sw_power_cap",
                "lower clocks",
            ),
            (
                |_, around, _| around.is_divided = Some(true),
                "MIG instances",
                "end whatever else",
            ),
            (
                |_, around, _| around.others = Some(2),
                "2 other processes",
                "end whatever else",
            ),
        ];
        for (change, what, remedy) in cases {
            let lines = h200(change);
            assert!(lines.iter().any(|line| line.state == State::Without));
            let text = words(&lines);
            assert!(text.contains(what) && text.contains(remedy), "{text}");
            assert!(text.contains("go without"), "{text}");
        }
        let missing = Line::of("nvcc", Err("nvcc was not found".into()), "install it");
        let text = words(&[missing]);
        assert!(
            text.contains("| nvcc | go without | nvcc was not found |"),
            "{text}"
        );
        assert!(
            text.ends_with("- nvcc: install it go without nvcc"),
            "{text}"
        );
    }

    #[test]
    fn without_disk_nothing_runs() {
        let line = of_disk(5_000_000_000, true);
        assert_eq!(line.state, State::Without);
        assert!(line.remedy.contains("takes up to 10.0 GB"), "{line:?}");
        assert_eq!(of_disk(5_000_000_000, false).state, State::Go);
        let line = of_disk(1000, false);
        assert_eq!(line.state, State::NoGo);
        assert!(words(&[line]).ends_with(" no-go"));
    }

    #[test]
    fn a_tier_in_the_emulator_says_so_and_a_long_one_names_a_smaller() {
        let of = |least: u64, backend| -> Vec<String> {
            let tiers = [
                (Tier::T0, 260, Ok(32)),
                (Tier::T1, 4730, Ok(least)),
                (Tier::T2, 12_120, Ok(25_000)),
            ];
            let lines = of_tiers(&tiers, backend);
            lines.map(|line| line.here).collect()
        };
        assert_eq!(of(240, BackendKind::Cuda)[2], "12120 cases, about 7 h");
        assert_eq!(
            of(240, BackendKind::Emulated),
            [
                "260 cases in the emulator, about 32 s",
                "4730 cases in the emulator, about 4 min",
                "12120 cases in the emulator, about 7 h: run it on a GPU, and here T1, about 4 min",
            ]
        );
        let long = of(3601, BackendKind::Emulated);
        assert!(long[2].ends_with("and here T0, about 32 s"));
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
