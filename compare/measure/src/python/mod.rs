//! A Python with PyTorch as a second process: its protocol, and problems timed in it and here,
//! interleaved.

mod arm;
pub mod bench;
pub mod newest;
pub mod pair;
pub mod session;
mod turns;

use anyhow::ensure;
use common::device::cuda::CudaDevice;
use common::timing::Plan;
use results::judge::list::joined;
use results::workspace;
use session::{Hello, Python, SessionError};

/// Samples per arm, unless `--iters` says otherwise: each is the mean over at least 20 ms of
/// launches.
const SAMPLES: usize = 20;

/// Returns the plan of timing beside PyTorch.
pub fn plan(samples: Option<usize>) -> Plan {
    Plan {
        samples: samples.unwrap_or(SAMPLES),
        ..Plan::default()
    }
}

/// Returns the Python of `--python`, else PYTHON, else the one that `scripts/python` installs, else
/// `python3`.
pub fn program(named: Option<&str>) -> String {
    if let Some(name) = named {
        return name.to_string();
    }
    if let Ok(name) = std::env::var("PYTHON")
        && !name.is_empty()
    {
        return name;
    }
    if let Some(root) = workspace::find() {
        let installed = root.join(".python/bin/python");
        if installed.is_file() {
            return installed.display().to_string();
        }
    }
    "python3".to_string()
}

/// Names the peers that a Python can call, or why there are none.
pub fn callable_peers(name: Option<&str>) -> Result<String, SessionError> {
    let mut python = Python::new(program(name), None);
    let hello = python.start()?;
    let torch = match hello.software.get("torch") {
        Some(version) => version,
        None => "?",
    };
    let peers = joined(hello.peers.iter().map(|peer| &peer.name), ", ");
    let mut description = format!("torch {torch}: {peers}");
    if !hello.absent.is_empty() {
        let absent = joined(hello.absent.iter().map(|row| &row.subject), ", ");
        description += &format!("; not {absent}");
        if let Some(command) = newest::installation(&hello.software) {
            description += &format!(" ({command})");
        }
    }
    Ok(description)
}

/// Refuses a Python on another GPU than this process.
pub fn check_uuid(Hello { uuid, .. }: &Hello, device: &CudaDevice) -> anyhow::Result<()> {
    let bare = |id: &str| id.trim_start_matches("GPU-").to_lowercase();
    let ours = &device.info().uuid;
    ensure!(
        bare(uuid) == bare(ours),
        "Python's first GPU is {uuid}, ours is {ours}; set CUDA_VISIBLE_DEVICES to one of them"
    );
    Ok(())
}
