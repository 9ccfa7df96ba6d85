//! NVIDIA's tools as processes: where they are, which version, and a run with a time limit.

use crate::interrupt::interrupted;
use crate::measure::machine;
use anyhow::{Context, ensure};
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

/// One of CUDA's tools, and how to find it: by an environment variable, where scripts/cuda-toolkit puts it, on PATH, or where
/// CUDA is usually installed.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub name: &'static str,
    /// The environment variable that names it.
    pub variable: &'static str,
}

impl Places {
    pub const fn of(name: &'static str, variable: &'static str) -> Self {
        Self { name, variable }
    }
}

pub const NVCC: Places = Places::of("nvcc", "NVCC");
pub const CUOBJDUMP: Places = Places::of("cuobjdump", "CUOBJDUMP");
pub const NCU: Places = Places::of("ncu", "NCU");
pub const COMPUTE_SANITIZER: Places = Places::of("compute-sanitizer", "SANITIZER");

impl Places {
    /// Finds the tool and asks for its version; an error says what was tried and what to do.
    pub fn find(&self) -> Result<Tool, String> {
        let Self { name, variable } = self;
        let tool = |path: PathBuf| {
            let version = version(&path)?;
            Ok(Tool { path, version })
        };
        if let Some(named) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            return tool(PathBuf::from(&named)).map_err(|why: String| {
                let named = named.to_string_lossy();
                format!("{variable} names {named}, which is not a working {name}: {why}")
            });
        }
        let found = self.candidates().find_map(|path| tool(path).ok());
        found.ok_or_else(|| {
            format!("{name} was not found; install it with CUDA, put it on PATH, or name it in {variable}")
        })
    }

    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        let installed = machine::workspace().map(|root| root.join(".cuda/nvidia/cu13"));
        let pinned = installed
            .into_iter()
            .flat_map(|cuda| [cuda.join("bin"), cuda.join(self.name)]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        pinned
            .chain(on_path)
            .chain(USUAL.map(PathBuf::from))
            .map(|folder| folder.join(self.name))
            .filter(|path| path.is_file())
    }
}

/// What a program prints for `--version`.
fn output(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output =
        output.map_err(|error| format!("{} cannot be started ({error})", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line that a program prints for `--version`.
pub fn first_line(program: &str) -> Result<String, String> {
    let text = output(Path::new(program))?;
    let line = text.lines().next().map(String::from);
    line.ok_or_else(|| format!("{program} --version prints nothing"))
}

/// What `--version` prints after the word "Version", or of CUDA's compilers after ", V".
fn version(path: &Path) -> Result<String, String> {
    version_in(&output(path)?).ok_or_else(|| "it prints no version".to_string())
}

/// `2025.3.1.0` as numbers; what follows them is left out.
pub fn numbers(version: &str) -> Vec<u32> {
    let numbers = version.split('.').map_while(|part| part.parse().ok());
    numbers.collect()
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
    /// It exited.
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
            Ended::TimedOut => format!("it did not finish within {limit} s"),
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

/// A folder for temporary files, removed with its contents when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it, under the system's folder for temporary files. Its path is text: Python is told of files in JSON.
    pub fn new(label: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("compare-{label}-{}", std::process::id()));
        let shown = path.display();
        ensure!(
            path.to_str().is_some(),
            "{shown} is not valid UTF-8; set TMPDIR to a folder whose path is"
        );
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot write {shown}; set TMPDIR to a writable folder"))?;
        Ok(Self(path))
    }

    /// Where a file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, bytes).with_context(|| {
            format!(
                "cannot write {}; set TMPDIR to a writable folder",
                path.display()
            )
        })?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
        let places = Places::of("no-such-tool", "NO_SUCH_TOOL");
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
