//! A tool as a process: run with a time limit, its output kept, its children ended with it.

use crate::interrupt::interrupted;
use anyhow::{Context, ensure};
use results::table::files::create_folder;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The interval at which a process is looked at.
const POLL: Duration = Duration::from_millis(100);

/// The end of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Exited(ExitStatus),
    /// The process ran into the timeout and was killed, with all that it had started.
    TimedOut,
}

impl Ended {
    /// Returns whether the process ended by itself, without an error.
    pub fn is_success(&self) -> bool {
        matches!(self, Ended::Exited(status) if status.success())
    }

    /// Describes the end; `timeout` is in seconds.
    pub fn describe(&self, timeout: u64) -> String {
        match self {
            Ended::TimedOut => format!("it did not finish within {timeout} s"),
            Ended::Exited(status) => format!("it ended with {status}"),
        }
    }
}

/// Runs `command` with both output streams in the file `log`, until the `timeout`. Calls `look`
/// again and again while it runs. Ctrl-C ends it, with all that it started, and is an error of that
/// kind.
pub fn run(
    mut command: Command,
    log: &Path,
    timeout: Duration,
    mut look: impl FnMut(),
) -> io::Result<Ended> {
    let out = File::create(log)?;
    let interrupted = interrupted()?;
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
        if start.elapsed() > timeout {
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

/// A folder for temporary files, removed with its contents when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder that nobody else has, below the system's folder for temporary files. A
    /// process number would not do for its name: processes in two pid namespaces may share both the
    /// number and that folder. Its path is text: Python is told of files in JSON.
    pub fn new(label: &str) -> anyhow::Result<Self> {
        Self::below(&std::env::temp_dir(), label)
    }

    fn below(parent: &Path, label: &str) -> anyhow::Result<Self> {
        let shown = parent.display();
        ensure!(
            parent.to_str().is_some(),
            "{shown} is not valid UTF-8; set TMPDIR to a folder whose path is"
        );
        create_folder(parent, &format!("compare-{label}"))
            .map(Self)
            .context("set TMPDIR to a writable folder")
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into the folder, and returns its path.
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

/// Ends `child`, which has a group of its own and was not waited for, and all that it started.
pub fn kill_group(child: &mut Child) -> io::Result<()> {
    // Killing a group takes a system call that the standard library does not offer; `kill` is in
    // every POSIX system.
    let kill = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .stderr(Stdio::null())
        .status();
    if !kill.is_ok_and(|status| status.success()) {
        child.kill()?;
    }
    child.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let late = run(
            shell("sleep 600 & echo $!; wait"),
            &log,
            Duration::from_millis(300),
            || (),
        )
        .unwrap();
        assert_eq!(late, Ended::TimedOut);
        let inner = std::fs::read_to_string(&log).unwrap();
        // It has been sent the signal, and dies when it is scheduled next; without it, it would
        // sleep for ten minutes.
        let path = format!("/proc/{}/stat", inner.trim());
        let state = || std::fs::read_to_string(&path).unwrap_or_default();
        let is_gone = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            state().is_empty() || state().contains(") Z ")
        });
        assert!(is_gone, "{}", state());
    }

    /// A process in another pid namespace may have our number, and share our temporary folder.
    #[test]
    fn two_scratch_folders_of_one_label_and_process_number_never_meet() {
        let shared = tempfile::tempdir().unwrap();
        let ours = Scratch::below(shared.path(), "candidate").unwrap();
        let theirs = Scratch::below(shared.path(), "candidate").unwrap();
        ours.write("out", b"ours").unwrap();
        theirs.write("out", b"theirs").unwrap();
        assert_eq!(std::fs::read(ours.path("out")).unwrap(), b"ours");
        drop(theirs);
        assert_eq!(std::fs::read(ours.path("out")).unwrap(), b"ours");
        drop(ours);
        assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_was_left_there_is_not_taken() {
        let shared = tempfile::tempdir().unwrap();
        let number = std::process::id();
        for name in ["compare-peers".into(), format!("compare-peers-{number}")] {
            let left = shared.path().join(name);
            std::fs::create_dir(&left).unwrap();
            std::fs::write(left.join("out"), "stale").unwrap();
        }
        let scratch = Scratch::below(shared.path(), "peers").unwrap();
        assert!(!scratch.path("out").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_answered_with_what_to_set() {
        let nowhere = Path::new("/proc/no/such/folder");
        let error = format!("{:#}", Scratch::below(nowhere, "peers").err().unwrap());
        let says = "set TMPDIR to a writable folder: cannot write /proc/no/such/folder: ";
        assert!(error.starts_with(says), "{error}");
    }
}
