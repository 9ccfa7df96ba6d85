//! The Python process that times peers or a candidate, and the protocol that `peers.py` describes.

use crate::instrument::process;
use crate::interrupt::is_interrupted;
use common::problem::{Dtype, Problem};
use results::judge::list::joined;
use results::judge::peers;
use results::table::Row;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The program that Python runs.
pub const SCRIPT: &str = concat!(
    include_str!("served.py"),
    include_str!("flashinfer.py"),
    include_str!("peers.py")
);

/// The time that Python may take for one answer. The first import of torch from a cold disk, and
/// the first compilation of a kernel by FlashAttention-4, take most of a minute; FlashInfer compiles
/// a wrapper's kernels in 13 CPU minutes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// The most starts of one Python. It is started anew where it ended, so that one bad backend does
/// not end the measurement.
const MAX_STARTS: usize = 3;

/// The time that Python may take to end what it has started.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The interval at which a wait for an answer looks whether it was interrupted.
const POLL: Duration = Duration::from_millis(50);

/// The number of lines of Python's standard error that are kept, to report why it ended.
const KEPT_STDERR_LINES: usize = 5;

/// A reason why a Python did not answer as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SessionError {
    /// The command failed; the process goes on.
    #[error("{0}")]
    Refused(String),
    /// The same, and that is no failure: a candidate need not support everything.
    #[error("{0}")]
    Unsupported(String),
    /// The process was not started, has ended or was killed.
    #[error("{0}")]
    Ended(String),
    /// The user's file cannot be imported.
    #[error("{0}")]
    Load(String),
    /// Ctrl-C or SIGTERM came before the answer; the process was killed.
    #[error("interrupted")]
    Interrupted,
}

impl SessionError {
    /// Returns whether the process can be asked for nothing else.
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            SessionError::Refused(_) | SessionError::Unsupported(_)
        )
    }
}

/// The first answer of a Python: what it is, and what it can call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Hello {
    pub software: BTreeMap<String, String>,
    /// The GPU's name, if torch sees one.
    pub gpu: Option<String>,
    /// The GPU's UUID, or `unknown`.
    pub uuid: String,
    pub peers: Vec<Peer>,
    /// Rows of peers that cannot be called, which say why.
    pub absent: Vec<Row>,
}

impl Hello {
    /// Returns the packages with their versions, as a run names tools.
    pub fn tools(&self) -> Vec<String> {
        self.software
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect()
    }

    /// Returns a sentence for each peer that cannot be called, with what that costs.
    pub fn missing(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for row in &self.absent {
            let peer = row.subject.as_str();
            let reason = row.note.as_deref().unwrap_or("it cannot be called");
            let cost = if peers::is_required(peer) {
                "; what is claimed over the fastest peer stays undecided without it"
            } else {
                ""
            };
            sentences.push(format!("{peer} is not timed: {reason}{cost}"));
        }
        sentences
    }
}

/// A peer, and what it takes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Peer {
    pub name: String,
    pub dtypes: Vec<Dtype>,
    /// Whether it takes equal sequences in dense tensors.
    pub dense: bool,
    /// Whether it takes those of decoding, whose keys are a cache.
    pub decodes: bool,
    /// Whether it takes sequences as they are served.
    pub serves: bool,
    /// Whether it takes K and V in E4M3 under queries of 16 bits.
    #[serde(default)]
    pub caches: bool,
}

impl Peer {
    /// Returns whether it can be called on a problem.
    pub fn takes(&self, problem: &Problem) -> bool {
        let takes_lengths = if !problem.shape.serving.is_dense() {
            self.serves
        } else if problem.shape.is_decode() {
            self.decodes
        } else {
            self.dense
        };
        let takes_cache = problem.shape.serving.cache.is_none() || self.caches;
        takes_lengths && takes_cache && self.dtypes.contains(&problem.dtype)
    }
}

/// The answer to the last question about a peer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Finished {
    /// The host's time of one of several calls back to back.
    pub host_us: Vec<f64>,
    /// The scale of outputs that were held in E4M3.
    pub e4m3_scale: Option<f32>,
    /// The set of each output that was written.
    pub sets: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
    Ok(T),
    Refused(String),
    Unsupported(String),
}

/// A function of the user's, in place of the peers.
#[derive(Clone, Debug)]
pub struct Callable {
    pub name: String,
    pub file: PathBuf,
    pub function: String,
    pub timeout: Duration,
}

/// A Python that is started when it is needed.
pub struct Python {
    program: String,
    pub candidate: Option<Callable>,
    process: Option<Process>,
    starts: usize,
    /// The answer of its last start.
    pub hello: Hello,
}

impl Python {
    /// Makes a Python that is not started yet.
    pub fn new(program: String, candidate: Option<Callable>) -> Self {
        Self {
            program,
            candidate,
            process: None,
            starts: 0,
            hello: Hello::default(),
        }
    }

    /// Starts Python, unless it runs, and returns what it has.
    pub fn start(&mut self) -> Result<&Hello, SessionError> {
        if self.process.is_some() {
            return Ok(&self.hello);
        }
        if self.starts == MAX_STARTS {
            return Err(SessionError::Refused(format!(
                "Python ended {MAX_STARTS} times and is not started again"
            )));
        }
        self.starts += 1;
        let mut process = Process::start(&self.program, SCRIPT)?;
        self.hello = match &self.candidate {
            None => process.ask("hello", json!({}))?,
            Some(callable) => {
                // Importing torch does not count against the candidate's time, and fails for other
                // reasons than its file.
                process.ask::<IgnoredAny>("begin", json!({}))?;
                process.timeout = callable.timeout;
                let arguments = json!({
                    "peer": callable.name,
                    "file": callable.file,
                    "function": callable.function,
                });
                match process.ask("load", arguments) {
                    Ok(hello) => hello,
                    Err(SessionError::Interrupted) => return Err(SessionError::Interrupted),
                    Err(error) => return Err(SessionError::Load(error.to_string())),
                }
            }
        };
        self.process = Some(process);
        Ok(&self.hello)
    }

    /// Asks the running Python, as `peers.py` says. A process that does not answer is killed.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        command: &str,
        arguments: Value,
    ) -> Result<T, SessionError> {
        self.ask_meanwhile(command, arguments, || ())
    }

    /// Asks it, and calls `meanwhile` between the question and the wait for the answer.
    pub fn ask_meanwhile<T: DeserializeOwned>(
        &mut self,
        command: &str,
        arguments: Value,
        meanwhile: impl FnOnce(),
    ) -> Result<T, SessionError> {
        let Some(process) = &mut self.process else {
            return Err(SessionError::Refused("Python has ended".to_string()));
        };
        let answer = process.ask_meanwhile(command, arguments, meanwhile);
        if answer.as_ref().is_err_and(SessionError::is_fatal) {
            self.process = None;
        }
        answer
    }
}

/// A running Python. Dropping it kills the process and everything that it started.
pub struct Process {
    /// The process; none once it was waited for: its number may be another's by then.
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    words: Arc<Mutex<VecDeque<String>>>,
    pub timeout: Duration,
}

impl Process {
    /// Starts `python` with `script`, which is [`SCRIPT`] outside tests.
    pub fn start(python: &str, script: &str) -> Result<Self, SessionError> {
        let started = Command::new(python)
            .args(["-u", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: Ctrl-C reaches this process alone. Python ends, with all that it
            // has started, when its input does.
            .process_group(0)
            .spawn();
        let mut child = started.map_err(|error| {
            SessionError::Ended(format!(
                "{python} cannot be started ({error}); name a Python with PyTorch by --python or \
                 PYTHON"
            ))
        })?;
        let (sender, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            reader(move || lines(stdout).try_for_each(|line| sender.send(line)))?;
        }
        let words: Arc<Mutex<VecDeque<String>>> = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            let kept_lines = Arc::clone(&words);
            reader(move || {
                for line in lines(stderr) {
                    let Ok(mut kept) = kept_lines.lock() else {
                        return;
                    };
                    if kept.len() == KEPT_STDERR_LINES {
                        kept.pop_front();
                    }
                    kept.push_back(line.trim().to_string());
                }
            })?;
        }
        Ok(Self {
            stdin: child.stdin.take(),
            child: Some(child),
            answers,
            words,
            timeout: ANSWER_TIMEOUT,
        })
    }

    /// Asks for an answer; `arguments` is an object.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        command: &str,
        arguments: Value,
    ) -> Result<T, SessionError> {
        self.ask_meanwhile(command, arguments, || ())
    }

    fn ask_meanwhile<T: DeserializeOwned>(
        &mut self,
        command: &str,
        mut arguments: Value,
        meanwhile: impl FnOnce(),
    ) -> Result<T, SessionError> {
        arguments["do"] = command.into();
        let doing = match arguments["peer"].as_str() {
            Some(peer) => format!("{command} {peer}"),
            None => command.to_string(),
        };
        if !self.send(&arguments) {
            return Err(self.died(&doing));
        }
        meanwhile();
        let line = self.answer(&doing)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Ok(answer)) => Ok(answer),
            Ok(Answer::Refused(error)) => Err(SessionError::Refused(error)),
            Ok(Answer::Unsupported(error)) => Err(SessionError::Unsupported(error)),
            Err(_) => {
                let start: String = line.chars().take(100).collect();
                Err(SessionError::Ended(format!(
                    "Python answered `{doing}` with '{start}'"
                )))
            }
        }
    }

    /// Writes a line to Python's standard input; returns whether it was taken.
    fn send(&mut self, line: &Value) -> bool {
        let Some(stdin) = &mut self.stdin else {
            return false;
        };
        writeln!(stdin, "{line}").is_ok() && stdin.flush().is_ok()
    }

    /// Waits for a line until the timeout, or until somebody interrupts.
    fn answer(&mut self, doing: &str) -> Result<String, SessionError> {
        let asked = Instant::now();
        loop {
            match self.answers.recv_timeout(POLL.min(self.timeout)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.died(doing)),
                Err(RecvTimeoutError::Timeout) if is_interrupted() => {
                    return Err(SessionError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if asked.elapsed() >= self.timeout => {
                    return Err(SessionError::Ended(format!(
                        "Python did not answer `{doing}` within {} s and was killed",
                        self.timeout.as_secs_f64()
                    )));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn end(&mut self) {
        self.stdin = None;
        if let Some(mut child) = self.child.take() {
            while self.answers.recv_timeout(EXIT_TIMEOUT).is_ok() {}
            let _ = process::kill_group(&mut child);
        }
    }

    /// Ends a Python whose output has ended, or that takes no more input, and reports its last
    /// words.
    fn died(&mut self, doing: &str) -> SessionError {
        // It has at most a traceback left to print.
        self.end();
        thread::sleep(Duration::from_millis(50));
        let words = match self.words.lock() {
            Ok(lines) => joined(lines.iter(), " / "),
            Err(_) => String::new(),
        };
        let colon = if words.is_empty() { "" } else { ": " };
        SessionError::Ended(format!("Python ended during `{doing}`{colon}{words}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn reader<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<(), SessionError> {
    match thread::Builder::new().spawn(read) {
        Ok(_) => Ok(()),
        Err(error) => Err(SessionError::Ended(format!(
            "no thread to read Python's output: {error}; raise `ulimit -u`"
        ))),
    }
}

fn lines(stream: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(stream)
        .split(b'\n')
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_cannot_be_called_is_named_with_what_that_costs() {
        let absent = [
            (
                "flash-attn-4",
                "ModuleNotFoundError: No module named 'cutlass.cute'",
            ),
            (
                "flashinfer",
                "ModuleNotFoundError: No module named 'flashinfer'",
            ),
        ];
        let hello = Hello {
            absent: absent
                .map(|(peer, reason)| Row::absent_peer(peer, None, reason))
                .into(),
            ..Hello::default()
        };
        assert_eq!(
            hello.missing(),
            [
                "flash-attn-4 is not timed: ModuleNotFoundError: No module named 'cutlass.cute'; what \
                 is claimed over the fastest peer stays undecided without it",
                "flashinfer is not timed: ModuleNotFoundError: No module named 'flashinfer'",
            ]
        );
    }
}
