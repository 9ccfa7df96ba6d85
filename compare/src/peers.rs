//! `compare peers`: completes a record with what PyTorch takes for the same problems on the same GPU, timed side by side.

mod args;
pub mod choose;
pub mod measure;
pub mod pair;
pub mod session;
#[cfg(test)]
mod tests;

pub use args::{EXAMPLES, PeersArgs};

use crate::answer::Answer;
use crate::completion::{Completing, CompletionError};
use crate::judge::claims::Claimed;
use crate::judge::verdict::Exit;
use crate::judge::{self, Known, peers as question};
use crate::measure::builds::{StageBuild, builds};
use crate::measure::machine;
use crate::measure::select::{Chosen, Problems};
use crate::output::{self, Output};
use crate::pages::show::Section;
use crate::progress::Progress;
use crate::record::meta::Came;
use crate::record::store::read_all;
use crate::record::{Of, On, Record, Row, Source, StoreError};
use crate::registry::{self, Ladder};
use crate::render;
use choose::Item;
use common::device::cuda::CudaDevice;
use common::metric::Metric;
use common::timing::Plan;
use common::timing::stats::SampleError;
use measure::{Bench, BenchError, Calls, Exchange, Python};
use pair::absent;
use session::Hello;
use std::path::Path;

/// Samples per arm, unless `--iters` says otherwise: each is the mean over at least 20 ms of launches.
pub const SAMPLES: usize = 20;

/// How the figures are taken, in words, for the record.
pub const METHOD: &str = "two processes on one GPU, ours and a Python that calls PyTorch, of which only one launches at a \
time. Device time: a CUDA graph of N launches that rotate over the input sets, replayed for at least 20 ms and 50 launches after a \
quarter of that untimed, divided by the launches; N, sets and values are the same for all. A round takes such a chunk of every arm, there \
and back (A B C C B A), so that any two arms have two chunks mirrored around its middle; where it is open who is faster, up to 4 \
times as many rounds; peer/ours from rounds, bootstrap \
95 % interval. Single: one eager call between two events on an idle stream. Host: the wall time until a call returns; of a peer or \
candidate of 20 calls from Python back to back, whose queue starts empty and does not fill, of ours of a launch on an idle stream. \
Outputs of the timed graph, filled with NaN and computed once more from other values at the same addresses, are judged by the same FP64 reference and bounds as ours";

/// Why peers could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// A file cannot be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no record that could be completed.
    #[error(transparent)]
    Completion(#[from] CompletionError),
    /// Python sees another GPU than this process.
    #[error(
        "Python's first GPU is {theirs}, ours is {ours}; set CUDA_VISIBLE_DEVICES to one of them"
    )]
    TwoGpus {
        /// Python's.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// Nothing more could be measured.
    #[error("the peers could not be timed")]
    Bench(#[from] BenchError),
    #[error("the peers could not be timed")]
    Samples(#[from] SampleError),
}

/// Measures what `args` choose, completes the record, and renders the report on it. Fails if a claim against a peer does
/// without a negative record; undecided if one is AMBIGUOUS, or no peer at all was timed.
pub fn peers(args: &PeersArgs) -> anyhow::Result<Answer> {
    let report_path = output::report_path(args.report.as_deref())?;
    output::check(&Output::report(&report_path), &[])?;
    let completing = match measure(args)? {
        Ok(completing) => completing,
        Err(reason) => {
            return Ok(Answer::no_data(format!(
                "peers are timed on a GPU by a Python with PyTorch: {reason}"
            )));
        }
    };
    let Completing {
        name,
        record,
        folder,
    } = &completing;
    let (stages, committed) = (
        registry::metas()?,
        read_all(&machine::results(), Of::Ladder)?,
    );
    let report = judge::verdict::report(Known {
        stages: &stages,
        run: Some((name, record)),
        committed: &committed,
    });
    render::write(&render::of_run(&report, folder, &report_path))?;
    let of_peers = || {
        report.claims.iter().filter(|claimed| {
            claimed.claim.is_of_speed() && claimed.claim.relation.base().is_none()
        })
    };
    let failed = of_peers().filter(|claimed| claimed.is_broken());
    let failed: Vec<String> = failed
        .map(|claimed| format!("FAIL {}", claimed.title()))
        .collect();
    let is_timed = |row: &Row| !question::is_ours(record, row) && row.has(Metric::P50);
    let is_undecided =
        !question::arms(record).any(is_timed) || of_peers().any(Claimed::is_ambiguous);
    let exit = Exit::of(!failed.is_empty(), is_undecided);
    let text = completing.shown(&stages, Section::Peers);
    let text = format!(
        "{text}\nrecord: {}\nreport: {}",
        folder.display(),
        report_path.display()
    );
    Ok(Answer::new(exit, text).quiet(args.quiet).noting(failed))
}

/// Measures into the record; the inner error is why nothing can be measured here.
fn measure(args: &PeersArgs) -> Result<Result<Completing, String>, PeersError> {
    let chosen = Chosen {
        stages: args.stages.clone(),
        variants: vec![],
    };
    let (mut completing, Ladder { stages, gpu }) =
        Completing::begin(args.record.as_deref(), &chosen)?;
    let device = match gpu {
        Ok(device) => device,
        Err(reason) => return Ok(Err(format!("there is no GPU to time on: {reason}"))),
    };
    let flash_attn_3 = args.flash_attn_3.clone();
    let mut python = Python::new(
        program(args.python.as_deref()),
        Calls::Peers { flash_attn_3 },
    );
    let hello = match python.start() {
        Ok(hello) => hello.clone(),
        Err(error) => return Ok(Err(error.to_string())),
    };
    check_uuid(&hello, &device)?;
    let builds = builds(&stages);
    let chosen: Vec<&StageBuild> = chosen
        .of(&builds)
        .map_err(CompletionError::from)?
        .into_iter()
        .map(|picked| picked.stage)
        .collect();
    let mut items = choose::items(&args.problems, &chosen, &completing.record);
    // Where problems are chosen, only those are measured.
    let growth = if args.problems == Problems::default() {
        choose::growth(&chosen)
    } else {
        vec![]
    };
    let planned = items.len() + growth.len();
    begin_session(
        &mut completing.record,
        hello.tools(),
        &items,
        !growth.is_empty(),
    );
    items.retain(|item| !has(&completing.record, item));
    let before = planned - items.len() - growth.len();
    let ceiling = Row::new("ceiling", On::All, Source::Peers);
    let ceiling = match python.ask(session::Session::ceilings) {
        Ok(reached) => ceiling
            .figure(Metric::MatrixFlops, reached.matrix_flops)
            .figure(Metric::CopyBytesPerSecond, reached.copy_bytes),
        Err(error) => ceiling.note(error.to_string()),
    };
    let came = |to| Some(Came { to, planned });
    completing.record.meta.peers = came(before);
    let matrix_flops = ceiling.value(Metric::MatrixFlops);
    let missing = hello
        .absent
        .iter()
        .map(|(peer, reason)| absent(peer, On::All, reason));
    completing.append(missing.chain([ceiling]))?;
    let mut bars = Progress::new(args.quiet);
    let timed = completing.record.clone();
    let plan = Plan {
        samples: args.iters.unwrap_or(SAMPLES),
        ..Plan::default()
    };
    let zero_line = device.zero_line(&plan).map_err(BenchError::from)?;
    let bench = Bench {
        device: &device,
        stages: &stages,
        builds: &builds,
        record: &timed,
        zero_us: zero_line.device.p50,
        plan,
        exchange: Exchange::new()?,
    };
    for (done, item) in items.iter().enumerate() {
        let done = before + done;
        bars.step(
            "problem",
            &item.place.to_string(),
            done,
            planned - growth.len(),
        );
        let rows = bench.measure(item, &mut [&mut python])?.rows()?;
        completing
            .record
            .names(&item.place.shape, item.problem.shape);
        // An interrupt loses the problem that is being measured, no more.
        completing.record.meta.peers = came(done + 1);
        completing.append(rows)?;
    }
    for (done, item) in growth.iter().enumerate() {
        bars.step("growth", &item.place.shape, done, growth.len());
        let row = matrix_flops
            .map(|flops| bench.alone(item, flops))
            .transpose()?
            .flatten();
        completing.record.meta.peers = came(before + items.len() + done + 1);
        completing.append(row)?;
    }
    completing.record.meta.peers = None;
    completing.append([])?;
    bars.finish();
    Ok(Ok(completing))
}

/// Makes `record` ready for a session with `tools` that measures `items`, and the growth if `grows`. Beside what it measures stays
/// what one with the same tools and method has: of an interrupted one every problem, of one that ended those that are not measured
/// again. What is measured once a session is measured anew, and nothing is put beside it that other tools or another method measured.
fn begin_session(record: &mut Record, tools: Vec<String>, items: &[Item], grows: bool) {
    let meta = &mut record.meta;
    let is_alike = meta.tools.get(&Source::Peers) == Some(&tools)
        && meta
            .methods
            .get(&Source::Peers)
            .is_some_and(|of| of == METHOD);
    let is_interrupted = meta.peers.is_some();
    meta.tools.insert(Source::Peers, tools);
    meta.methods.insert(Source::Peers, METHOD.to_string());
    let is_again = |row: &Row| match row.has(Metric::PeakShare) {
        true => grows,
        false => {
            !is_interrupted
                && items
                    .iter()
                    .any(|item| row.on.problem() == Some(&item.place))
        }
    };
    let stays = |row: &Row| is_alike && row.on != On::All && !is_again(row);
    record
        .rows
        .retain(|row| row.by != Source::Peers || stays(row));
}

/// Whether the session has timed a problem.
fn has(record: &Record, item: &Item) -> bool {
    question::arms(record).any(|row| row.on.problem() == Some(&item.place))
}

/// `--python`, else PYTHON, else the one that `scripts/python` installs, else `python3`.
pub fn program(named: Option<&str>) -> String {
    let asked = || std::env::var("PYTHON").ok().filter(|name| !name.is_empty());
    let installed = || {
        let path = machine::workspace()?.join(".python/bin/python");
        path.is_file().then(|| path.display().to_string())
    };
    let named = named.map(String::from).or_else(asked).or_else(installed);
    named.unwrap_or_else(|| "python3".to_string())
}

/// Which peers a Python can call, in words, or why none.
pub fn found(python: Option<&str>, flash_attn_3: Option<&Path>) -> Result<String, String> {
    let flash_attn_3 = flash_attn_3.map(Path::to_path_buf);
    let mut python = Python::new(program(python), Calls::Peers { flash_attn_3 });
    let hello = python.start().map_err(|error| error.to_string())?;
    let absent = match hello.absent.keys().cloned().collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        absent => format!("; not {}", absent.join(", ")),
    };
    let torch = hello
        .software
        .get("torch")
        .map_or("unknown", |version| version);
    Ok(format!("torch {torch}: {}{absent}", hello.peers.join(", ")))
}

/// Both processes must be on one GPU. A torch that does not tell the UUID tells the name.
pub fn check_uuid(hello: &Hello, device: &CudaDevice) -> Result<(), PeersError> {
    let bare = |uuid: &str| uuid.trim_start_matches("GPU-").to_lowercase();
    let info = device.info();
    let same = match &hello.uuid {
        Some(uuid) => bare(uuid) == bare(&info.uuid),
        None => hello.gpu.as_ref() == Some(&info.name),
    };
    if same {
        return Ok(());
    }
    let theirs = hello.uuid.clone().or(hello.gpu.clone()).unwrap_or_default();
    Err(PeersError::TwoGpus {
        theirs,
        ours: info.uuid.clone(),
    })
}
