//! The Python process that times peers, and the protocol that `peers.py` describes.

use crate::tool;
use common::problem::{Mask, Problem};
use common::verdict::GateId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The program that Python runs.
pub const SCRIPT: &str = include_str!("peers.py");

/// How long Python may take for one answer. The first import of torch from a cold disk, and the first compilation of a
/// kernel by FlashAttention 4, take most of a minute.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Lines of Python's standard error that are kept to say why it ended.
const LAST_WORDS: usize = 5;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No such program.
    #[error(
        "{python} cannot be started ({source}); name a Python with PyTorch by --python or PYTHON"
    )]
    Start {
        python: String,
        source: std::io::Error,
    },
    /// The command cannot be done; the process goes on.
    #[error("{reason}")]
    Refused { reason: String },
    /// The process ended.
    #[error("Python ended while it was asked to {doing}{}", last_words(.words))]
    Died { doing: String, words: String },
    /// It does not answer.
    #[error("Python did not answer within {} s when it was asked to {doing}, and was ended", patience.as_secs_f64())]
    Silent {
        doing: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The user's file ends the process that imports it, or does not let it answer.
    #[error("{source}")]
    Load {
        /// What became of the process.
        source: Box<SessionError>,
    },
    /// It answers something else.
    #[error("Python was asked to {doing} and answered '{answer}'")]
    Garbage {
        doing: String,
        /// The start of the answer.
        answer: String,
    },
}

fn last_words(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!(": {words}")
    }
}

impl SessionError {
    /// Whether the process can be asked for something else.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, SessionError::Refused { .. })
    }
}

/// What Python has.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Hello {
    /// Packages and their versions.
    pub software: BTreeMap<String, String>,
    /// The GPU's name, where torch sees one.
    pub gpu: Option<String>,
    /// Its UUID, where this torch tells.
    pub uuid: Option<String>,
    /// Peers that can be called.
    pub peers: Vec<String>,
    /// Peers that cannot, and why.
    pub absent: BTreeMap<String, String>,
}

impl Hello {
    /// Packages with their versions, as a record names tools.
    pub fn tools(&self) -> Vec<String> {
        self.software
            .iter()
            .map(|(name, version)| format!("{name} {version}"))
            .collect()
    }
}

/// What the GPU reaches on work that does nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Reached {
    /// FLOP/s of a matrix product.
    pub matrix_flops: f64,
    /// Bytes per second of a copy, read and written.
    pub copy_bytes: f64,
}

#[derive(Deserialize)]
struct DeviceTime {
    device_us: f64,
}

/// What is ready to be timed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Prepared {
    /// Microseconds per call, roughly.
    pub device_us: f64,
    /// Why calls are not captured into a graph, if they are not.
    #[serde(default)]
    pub eager: Option<String>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Called {
    /// Why the candidate does not take the problem, if it does not.
    #[serde(default)]
    pub unsupported: Option<String>,
    /// Gates that fail, and why.
    #[serde(default)]
    pub findings: Vec<(GateId, String)>,
}

/// Single calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PeerCalls {
    /// Between two events.
    pub single_us: Vec<f64>,
    /// Of the host, for one of calls back to back: one a round.
    pub host_us: Vec<f64>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Finished {
    /// The scale of outputs that were held in E4M3.
    pub e4m3_scale: Option<f32>,
}

#[derive(Deserialize)]
struct Done {}

/// A running Python. Dropping it ends the process, and what that has started.
pub struct Session {
    child: Child,
    has_ended: bool,
    stdin: Option<ChildStdin>,
    answers: Receiver<String>,
    words: Arc<Mutex<VecDeque<String>>>,
    patience: Duration,
}

impl Session {
    /// Starts `python` with `script`, which is [`SCRIPT`] outside tests, and with FlashAttention-3 from a library.
    pub fn start(
        python: &str,
        script: &str,
        flash_attn_3: Option<&Path>,
    ) -> Result<Self, SessionError> {
        let started = Command::new(python)
            .args(["-u", "-c", script])
            .envs(flash_attn_3.map(|library| ("FLASH_ATTN_3", library)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: what it starts ends with it. Ctrl-C then reaches this process alone, which ends it; where this one
            // ends first, Python is at the end of its input and ends itself.
            .process_group(0)
            .spawn();
        let mut child = started.map_err(|source| SessionError::Start {
            python: python.to_string(),
            source,
        })?;
        let stdin = child.stdin.take();
        let (sender, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || lines(stdout).try_for_each(|line| sender.send(line)));
        }
        let words: Arc<Mutex<VecDeque<String>>> = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            let words = Arc::clone(&words);
            thread::spawn(move || lines(stderr).for_each(|line| keep_last(&words, line)));
        }
        Ok(Self {
            child,
            has_ended: false,
            stdin,
            answers,
            words,
            patience: PATIENCE,
        })
    }

    /// The same with another patience.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Answers where torch can be imported.
    pub fn begin(&mut self) -> Result<(), SessionError> {
        self.ask("begin", json!({})).map(|Done {}| ())
    }

    /// Versions, the GPU and the peers.
    pub fn hello(&mut self) -> Result<Hello, SessionError> {
        self.ask("hello", json!({}))
    }

    /// The same of the one peer `name`: `function` in `file`.
    pub fn load(&mut self, name: &str, file: &Path, function: &str) -> Result<Hello, SessionError> {
        let arguments = json!({ "peer": name, "file": file, "function": function });
        self.ask("load", arguments)
    }

    /// Calls that peer once with what `peers.py` says of `call`.
    pub fn call(&mut self, arguments: Value) -> Result<Called, SessionError> {
        self.ask("call", arguments)
    }

    /// What the GPU reaches.
    pub fn ceilings(&mut self) -> Result<Reached, SessionError> {
        self.ask("ceilings", json!({}))
    }

    /// Sets the problem. `contents` are files with Q, K and V in its dtype, over which `sets` sets rotate; of E4M3 with the scale of
    /// each tensor.
    pub fn problem(
        &mut self,
        problem: &Problem,
        contents: &[[PathBuf; 3]],
        scales: &[Vec<f32>],
        sets: usize,
    ) -> Result<(), SessionError> {
        let arguments = json!({
            "q_extents": problem.shape.q_extents(),
            "kv_extents": problem.shape.kv_extents(),
            "dtype": problem.dtype,
            "causal": problem.mask == Mask::Causal,
            "scale": problem.softmax_scale,
            "contents": contents,
            "scales": scales,
            "sets": sets,
        });
        self.ask("problem", arguments).map(|Done {}| ())
    }

    /// Builds the graph of a peer.
    pub fn prepare(&mut self, peer: &str, launches: usize) -> Result<Prepared, SessionError> {
        self.ask("prepare", json!({ "peer": peer, "launches": launches }))
    }

    /// Device time of one call, in microseconds, over so many replays, after `lead_in` that are not timed.
    pub fn chunk(
        &mut self,
        peer: &str,
        lead_in: usize,
        replays: usize,
    ) -> Result<f64, SessionError> {
        let arguments = json!({ "peer": peer, "lead_in": lead_in, "replays": replays });
        self.ask("chunk", arguments)
            .map(|DeviceTime { device_us }| device_us)
    }

    /// `count` single calls, and the host's time for one.
    pub fn calls(&mut self, peer: &str, count: usize) -> Result<PeerCalls, SessionError> {
        self.ask("calls", json!({ "peer": peer, "count": count }))
    }

    /// Fills the timed outputs anew and writes them to `outputs`, dense, in the output format of the problem, one file per content.
    pub fn finish(&mut self, peer: &str, outputs: &[PathBuf]) -> Result<Finished, SessionError> {
        self.ask("finish", json!({ "peer": peer, "outputs": outputs }))
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        command: &str,
        mut arguments: Value,
    ) -> Result<T, SessionError> {
        arguments["do"] = command.into();
        let peer = arguments["peer"]
            .as_str()
            .map(|peer| format!(" {peer}"))
            .unwrap_or_default();
        let doing = format!("{command}{peer}");
        let sent = self
            .stdin
            .as_mut()
            .map(|stdin| writeln!(stdin, "{arguments}").and_then(|()| stdin.flush()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.died(doing));
        }
        let line = match self.answers.recv_timeout(self.patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let patience = self.patience;
                return Err(SessionError::Silent { doing, patience });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.died(doing)),
        };
        answer(&line).unwrap_or_else(|| {
            Err(SessionError::Garbage {
                doing,
                answer: line.chars().take(100).collect::<String>(),
            })
        })
    }

    /// Ends it with what it has started, once: the number of a process that was waited for may be another's.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let _ = tool::kill_group(&mut self.child);
        }
        self.stdin = None;
    }

    /// Python's output has ended, or it takes no more input.
    fn died(&mut self, doing: String) -> SessionError {
        // It has at most a traceback left to print.
        self.end();
        thread::sleep(Duration::from_millis(50));
        let words = self
            .words
            .lock()
            .map(|words| words.iter().cloned().collect::<Vec<_>>().join(" / "));
        SessionError::Died {
            doing,
            words: words.unwrap_or_default(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// What `line` says; `None` if it is not an answer to this command.
fn answer<T: DeserializeOwned>(line: &str) -> Option<Result<T, SessionError>> {
    let value: Value = serde_json::from_str(line).ok()?;
    match value["ok"].as_bool()? {
        true => serde_json::from_value(value).ok().map(Ok),
        false => Some(Err(SessionError::Refused {
            reason: value["error"].as_str()?.to_string(),
        })),
    }
}

fn lines(stream: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(stream)
        .split(b'\n')
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

fn keep_last(words: &Mutex<VecDeque<String>>, line: String) {
    if let Ok(mut words) = words.lock() {
        if words.len() == LAST_WORDS {
            words.pop_front();
        }
        words.push_back(line.trim().to_string());
    }
}
