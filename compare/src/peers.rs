//! `compare peers`: completes a record with what PyTorch takes for the same problems on the same GPU, timed side by side.

mod args;
mod choose;
mod measure;
pub mod pair;
mod session;
#[cfg(test)]
mod tests;

pub use args::{EXAMPLES, PeersArgs};

use crate::completion::{Completing, CompletionError};
use crate::judge::claims::Claimed;
use crate::judge::{self, Known, peers as question};
use crate::machine;
use crate::measure::builds::StageBuild;
use crate::measure::builds::{builds, metas};
use crate::progress::Progress;
use crate::record::store::read_all;
use crate::record::{On, Record, Row, Source, StageMeta, StoreError};
use crate::select::SelectError;
use crate::{list, registry};
use common::device::cuda::{CudaDevice, CudaError};
use common::limits::DeviceError;
use common::metric::Metric;
use common::stage::{LoadError, LoadedStage};
use common::timing::Plan;
use common::timing::stats::SampleError;
use measure::{Bench, Exchange, Python};
use session::{Hello, SessionError};
use std::path::PathBuf;

/// Samples per arm, unless `--iters` says otherwise: each is the mean over at least 20 ms of launches.
const SAMPLES: usize = 20;

/// How the figures are taken, in words, for the record.
const METHOD: &str = "two processes on one GPU, ours and a Python that calls PyTorch, of which only one launches at a \
time. Device time: a CUDA graph of N launches that rotate over the input sets, replayed for at least 20 ms and 50 launches after a \
quarter of that untimed, divided by the launches; N, sets and values are the same for all. A round takes such a chunk of every arm, there \
and back (A B C C B A), so that any two arms have two chunks mirrored around its middle; peer/ours from rounds, bootstrap \
95 % interval. Single: one eager call between two events on an idle stream. Host: the wall time until that call returns. \
Outputs of the timed graph, filled with NaN and computed once more, are judged by the same FP64 reference and bounds as ours";

/// Why peers could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// A flag names nothing.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// A stage is broken.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device that the record is limited to cannot stand for this one.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file cannot be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no record that could be completed.
    #[error(transparent)]
    Completion(#[from] CompletionError),
    /// Python sees another GPU than this process.
    #[error("Python's first GPU is {theirs}, ours is {ours}; set CUDA_VISIBLE_DEVICES to one of them")]
    TwoGpus {
        /// Python's.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// Tensors cannot be handed over.
    #[error("cannot write {}; set TMPDIR to a folder that can be written", path.display())]
    Exchange {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Ours could not be timed.
    #[error("timing failed")]
    Timing(#[from] CudaError),
    /// Samples make no sense.
    #[error("timing failed")]
    Samples(#[from] SampleError),
    /// Python could not be asked.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What came of it.
pub enum Measured {
    /// Nothing can be measured here.
    NoData {
        /// Why, and what to do.
        reason: String,
    },
    /// Measured and written.
    Written {
        /// The record's folder.
        folder: PathBuf,
        /// Its name, and what is in it now.
        name: String,
        record: Box<Record>,
        /// Claims against peers that fail without a negative record.
        failed: Vec<String>,
        /// Whether a claim is undecided, or no peer at all was timed.
        undecided: bool,
    },
}

/// Measures what `args` choose and writes `peers.json` into the record.
pub fn peers(args: &PeersArgs) -> Result<Measured, PeersError> {
    let mut stages = registry::load()?;
    // Wrong words and wrong records are refused before a missing GPU is.
    let items = choose::items(args, &builds(&stages))?;
    let mut completing = Completing::open(args.record.as_deref(), &builds(&stages))?;
    let device = match list::gpu(&stages) {
        Ok(device) => device,
        Err(reason) => return Ok(Measured::NoData { reason: format!("there is no GPU to time on: {reason}") }),
    };
    completing.of_gpu(&device.info().name)?;
    let mut python = Python::new(program(args));
    let hello = match python.start() {
        Ok(hello) => hello.expect("it was not running"),
        Err(error) => return Ok(Measured::NoData { reason: error.to_string() }),
    };
    check_uuid(&hello, &device)?;
    registry::limit(&mut stages, Some(&device), completing.record.meta.device)?;
    let builds = builds(&stages);
    let meta = &mut completing.record.meta;
    let software = hello.software.iter().map(|(name, version)| format!("{name} {version}"));
    meta.tools.insert(Source::Peers, software.collect());
    meta.methods.insert(Source::Peers, METHOD.to_string());
    // What another session measured is not put beside this one's.
    completing.record.rows.retain(|row| row.by != Source::Peers);
    let ceiling = Row::new("ceiling", On::All, Source::Peers);
    let ceiling = match python.ask(session::Session::ceilings) {
        Ok(reached) => ceiling
            .figure(Metric::MatrixFlops, reached.matrix_flops)
            .figure(Metric::CopyBytesPerSecond, reached.copy_bytes),
        Err(error) => ceiling.note(error.to_string()),
    };
    completing.append([ceiling])?;
    let mut bars = Progress::new(args.quiet);
    let timed = completing.record.clone();
    let bench = bench(&device, &stages, &builds, &timed, args.iters.unwrap_or(SAMPLES), hello)?;
    for (done, item) in items.iter().enumerate() {
        let label = format!("{} {} {}", item.shape_name, item.problem.dtype, item.problem.mask);
        bars.step("problem", &label, done, items.len());
        let rows = bench.measure(item, &mut python)?;
        completing.record.names(&item.shape_name, item.problem.shape);
        // An interrupt loses the problem that is being measured, no more.
        completing.append(rows)?;
    }
    bars.finish();
    let Completing { name, record, folder } = completing;
    let committed = read_all(&machine::results())?;
    let stages: Vec<StageMeta> = metas(&builds);
    let known = Known { stages: &stages, run: Some((&name, &record)), committed: &committed };
    let report = judge::verdict::report(known);
    let of_peers = || {
        report.claims.iter().filter(|claimed| claimed.claim.is_of_speed() && claimed.claim.relation.base().is_none())
    };
    let failed = of_peers().filter(|claimed| claimed.is_broken()).map(Claimed::title).collect();
    let is_timed = |row: &Row| !question::is_ours(&record, row) && row.figures.contains_key(&Metric::P50);
    let undecided = !question::arms(&record).any(is_timed) || of_peers().any(Claimed::is_ambiguous);
    Ok(Measured::Written { folder, failed, undecided, name: name.clone(), record: Box::new(record.clone()) })
}

fn bench<'a>(
    device: &'a CudaDevice,
    stages: &'a [LoadedStage],
    builds: &'a [StageBuild],
    record: &'a Record,
    samples: usize,
    hello: Hello,
) -> Result<Bench<'a>, PeersError> {
    let plan = Plan { samples, ..Plan::default() };
    Ok(Bench {
        device,
        stages,
        builds,
        record,
        zero_us: device.zero_line(&plan)?.device.p50,
        plan,
        exchange: Exchange::new()?,
        absent: hello.absent.into_iter().collect(),
        peers: hello.peers,
    })
}

/// `--python`, else PYTHON, else `python3`.
fn program(args: &PeersArgs) -> String {
    let named = args.python.clone().or_else(|| std::env::var("PYTHON").ok().filter(|name| !name.is_empty()));
    named.unwrap_or_else(|| "python3".to_string())
}

/// Both processes must be on one GPU. A torch that does not tell the UUID tells the name.
fn check_uuid(hello: &Hello, device: &CudaDevice) -> Result<(), PeersError> {
    let bare = |uuid: &str| uuid.trim_start_matches("GPU-").to_lowercase();
    let info = device.info();
    let same = match &hello.uuid {
        Some(uuid) => bare(uuid) == bare(&info.uuid),
        None => hello.gpu == info.name,
    };
    if same {
        return Ok(());
    }
    let theirs = hello.uuid.clone().unwrap_or_else(|| hello.gpu.clone());
    Err(PeersError::TwoGpus { theirs, ours: info.uuid.clone() })
}
