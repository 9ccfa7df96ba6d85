//! NVIDIA's tools as processes: where they are, which version, and a run with a time limit.

use crate::interrupt::interrupted;
use crate::measure::machine;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a process that runs is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Folders where CUDA installs its tools, tried after PATH.
const USUAL: [&str; 3] = [
    "/usr/local/cuda/bin",
    "/opt/cuda/bin",
    "/usr/local/cuda-13/bin",
];

/// A tool that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub path: PathBuf,
    /// The version that it prints: `2025.3.1.0`.
    pub version: String,
}

/// Where to look for a tool, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub name: &'static str,
    /// The environment variable that names it.
    pub variable: &'static str,
    /// Where scripts/cuda-toolkit puts it, below the workspace.
    pub pinned: Option<&'static str>,
}

/// CUDA's compiler, and what reads its code.
pub const NVCC: Places = Places {
    name: "nvcc",
    variable: "NVCC",
    pinned: Some(".cuda/nvidia/cu13/bin/nvcc"),
};
pub const CUOBJDUMP: Places = Places {
    name: "cuobjdump",
    variable: "CUOBJDUMP",
    pinned: Some(".cuda/nvidia/cu13/bin/cuobjdump"),
};
pub const NVDISASM: Places = Places {
    name: "nvdisasm",
    variable: "NVDISASM",
    pinned: Some(".cuda/nvidia/cu13/bin/nvdisasm"),
};

impl Places {
    /// Finds the tool and asks for its version; an error says what was tried and what to do.
    pub fn find(&self) -> Result<Tool, String> {
        let Self { name, variable, .. } = self;
        if let Some(named) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            let path = PathBuf::from(&named);
            return version(&path)
                .map(|version| Tool { path, version })
                .map_err(|why| {
                    format!(
                        "{variable} names {}, which is no working {name}: {why}",
                        named.to_string_lossy()
                    )
                });
        }
        let found = self.candidates().into_iter().find_map(|path| {
            let version = version(&path).ok()?;
            Some(Tool { path, version })
        });
        found.ok_or_else(|| {
            format!("{name} was not found; install it with CUDA, put it on PATH, or name it in {variable}")
        })
    }

    fn candidates(&self) -> Vec<PathBuf> {
        let pinned = self
            .pinned
            .and_then(|pinned| Some(machine::workspace()?.join(pinned)));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<PathBuf> = std::env::split_paths(&path)
            .map(|folder| folder.join(self.name))
            .collect();
        let usual = USUAL.iter().map(|folder| Path::new(folder).join(self.name));
        pinned
            .into_iter()
            .chain(on_path)
            .chain(usual)
            .filter(|path| path.is_file())
            .collect()
    }
}

/// The first line that a program prints for `argument`.
pub fn first_line(program: &str, argument: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .output()
        .map_err(|error| format!("{program} cannot be started ({error})"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|_| output.status.success());
    line.map(String::from)
        .ok_or_else(|| format!("{program} {argument} says nothing"))
}

/// What `--version` prints after the word "Version", or of CUDA's compilers after ", V".
fn version(path: &Path) -> Result<String, String> {
    let output = Command::new(path)
        .arg("--version")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    version_in(&text).ok_or_else(|| "it prints no version".to_string())
}

fn version_in(text: &str) -> Option<String> {
    let word = text
        .split("Version")
        .nth(1)
        .or_else(|| text.split(", V").nth(1))?
        .split_whitespace()
        .next()?;
    word.starts_with(|c: char| c.is_ascii_digit())
        .then(|| word.to_string())
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It ran into the limit and was killed, with all that it had started.
    TimedOut,
}

impl Ended {
    /// Whether it exited with 0.
    pub fn is_success(&self) -> bool {
        matches!(self, Ended::Exited(status) if status.success())
    }

    /// In words, of a limit in seconds.
    pub fn said(&self, limit: u64) -> String {
        match self {
            Ended::TimedOut => format!("not at its end after {limit} s"),
            Ended::Exited(status) => format!("it ended with {status}"),
        }
    }
}

/// Runs `command` with both output streams in the file `log`, for `limit` at most. `look` is called again and again
/// while it runs. Ctrl-C ends it, with all that it started, and is an error of that kind.
pub fn run(
    mut command: Command,
    log: &Path,
    limit: Duration,
    mut look: impl FnMut(),
) -> io::Result<Ended> {
    let (out, interrupted) = (File::create(log)?, interrupted()?);
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    // A group of its own: what the tool starts ends with it.
    let mut child = command.process_group(0).spawn()?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        if start.elapsed() > limit {
            kill_group(&mut child)?;
            return Ok(Ended::TimedOut);
        }
        if interrupted.load(Ordering::Relaxed) {
            kill_group(&mut child)?;
            return Err(io::ErrorKind::Interrupted.into());
        }
        look();
        std::thread::sleep(POLL);
    }
}

/// What `command` prints, which stays in the file `log` below `work`; the error has its first line that is about one.
pub fn printed(
    command: Command,
    work: &Path,
    log: &str,
    limit: Duration,
) -> Result<String, String> {
    let (name, log) = (
        command.get_program().to_string_lossy().into_owned(),
        work.join(log),
    );
    let ended = run(command, &log, limit, || ())
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    let printed = std::fs::read_to_string(&log).unwrap_or_default();
    if ended.is_success() {
        return Ok(printed);
    }
    let said = printed
        .lines()
        .find(|line| line.contains("error"))
        .unwrap_or("nothing said");
    Err(format!(
        "{name} failed: {said}; its log is {}",
        log.display()
    ))
}

/// The host's C++ compiler, as build scripts find it.
pub fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

/// Ends `child`, which has a group of its own and was not waited for, and all that it started.
pub fn kill_group(child: &mut Child) -> io::Result<()> {
    // Killing a group takes a system call that the standard library does not offer; `kill` is in every POSIX system.
    let killed = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .stderr(Stdio::null())
        .status();
    if !killed.is_ok_and(|status| status.success()) {
        child.kill()?;
    }
    child.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_tools_print_them() {
        let ncu = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\nVersion \
                   2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!(version_in(ncu).as_deref(), Some("2025.3.1.0"));
        let cuobjdump = "cuobjdump: NVIDIA (R) Cuda compiler\nCuda compilation tools, release 13.2, V13.2.51\nBuild cuda_13.2\n";
        assert_eq!(version_in(cuobjdump).as_deref(), Some("13.2.51"));
        assert_eq!(version_in("Version unknown"), None);
        assert_eq!(version_in("usage: ls"), None);
    }

    #[test]
    fn a_tool_that_is_not_there_is_answered_with_what_to_do() {
        let places = Places {
            name: "no-such-tool",
            variable: "NO_SUCH_TOOL",
            pinned: None,
        };
        let reason = places.find().unwrap_err();
        assert!(
            reason.contains("no-such-tool was not found") && reason.contains("NO_SUCH_TOOL"),
            "{reason}"
        );
    }

    #[test]
    fn output_is_kept_and_a_process_that_takes_too_long_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let ended = run(
            shell("echo out; echo err >&2; exit 3"),
            &log,
            Duration::from_secs(60),
            || (),
        )
        .unwrap();
        assert!(matches!(ended, Ended::Exited(status) if status.code() == Some(3)));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "out\nerr\n");
        // The inner process holds the log open; it would outlive a plain kill of the outer one.
        let ended = run(
            shell("sleep 600 & echo $!; wait"),
            &log,
            Duration::from_millis(300),
            || (),
        )
        .unwrap();
        assert_eq!(ended, Ended::TimedOut);
        let inner = std::fs::read_to_string(&log).unwrap();
        // It has been sent the signal, and dies when it is scheduled next; without it, it would sleep for ten minutes.
        let state =
            || std::fs::read_to_string(format!("/proc/{}/stat", inner.trim())).unwrap_or_default();
        let is_gone = || state().is_empty() || state().contains(") Z ");
        let gone = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            is_gone()
        });
        assert!(gone, "{}", state());
    }
}
