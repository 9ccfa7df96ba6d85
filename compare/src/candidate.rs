//! `compare candidate`: a Python callable of the user's own through the gates, timed against the ladder and its peers.

mod call;

use crate::answer::{Answer, NoData};
use crate::instrument::process::Scratch;
use crate::interrupt::interrupted;
use crate::judge::candidate::Candidate;
use crate::judge::peers::DEFAULT;
use crate::judge::{View, best};
use crate::measure::limits;
use crate::measure::machine;
use crate::measure::plan::{self, CaseFlags, PlannedCase, Request};
use crate::measure::select::at_least_one;
use crate::measure::summary::summary;
use crate::measure::timer::Timer;
use crate::pages::{self, json};
use crate::progress::Progress;
use crate::python;
use crate::python::bench::{Bench, Item};
use crate::python::session::{Callable, Python, SessionError};
use crate::stages::Ladder;
use crate::table::{Kind, ProblemPlace, Results, Row, StageMeta, Subject, Table};
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::check::{self, StagedInputs};
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::inputs::Inputs;
use common::problem::Problem;
use common::reference::reference;
use common::verdict::Verdict;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const EXAMPLES: &str = "\
The candidate is a Python function on torch tensors:

  def attention(q, k, v, *, causal, softmax_scale):
      ...                                       q [B, H, S, D], k and v [B, Hkv, Skv, D], float16 or bfloat16; returns a tensor
                                                like q, a new one on every call

Key heads are shared by H / Hkv query heads. The causal mask is aligned bottom-right: row i sees keys up to
i + Skv - S, and a row without keys is 0. Tensors are strided, with the last dimension dense. E4M3 (float8_e4m3fn in,
float16 out) is tried if the function has an argument `scales`: three float32 tensors [B, heads], of q, k and v, by which their
values are to be multiplied. A function raises NotImplementedError for what it does not support; that is listed and no failure.

It runs in a process of its own, on the GPU if torch sees one, through the problems, inputs and gates C1 to C6 of our stages, and on a
GPU is timed against PyTorch and our fastest stage. Prints the gates, the ratios and the verdict.

Examples:
  compare candidate mine.py:attention           everything that this machine can check
  compare candidate mine.py:attention --quick   a few small problems
  compare candidate mine.py:attention --shapes mission,1x8:2x113:203x64 --dtypes f16

Exit codes:
  0  every gate passes
  1  a gate failed, a call raised or hung, or the timed output is wrong
  2  wrong usage, or a candidate that cannot be loaded
  3  NO DATA: there is no Python with torch, or the candidate supports none of the problems
  130  interrupted; what was finished is printed";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CandidateArgs {
    /// The file, and the function in it
    #[arg(value_name = "FILE.py:FUNCTION")]
    pub candidate: String,
    #[command(flatten)]
    pub cases: CaseFlags,
    /// Seconds that a call may take, compilation included, before its process is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 120, allow_negative_numbers = true, value_parser = at_least_one::<u64>)]
    pub patience: u64,
    /// The Python that has torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// Print JSON, whose fields docs/rows.md names
    #[arg(long)]
    pub json: bool,
}

/// `mine.py:attention`.
fn named(args: &CandidateArgs) -> anyhow::Result<Callable> {
    let text = &args.candidate;
    let parts = text
        .rsplit_once(':')
        .filter(|(file, function)| file.ends_with(".py") && !function.is_empty());
    let (file, function) = parts.with_context(|| {
        format!("expected FILE.py:FUNCTION, such as mine.py:attention, not '{text}'")
    })?;
    let file = Path::new(file)
        .canonicalize()
        .with_context(|| format!("cannot read {file}"))?;
    // Python is told of it in JSON.
    ensure!(
        file.to_str().is_some(),
        "{} is not valid UTF-8; move it to a folder whose path is",
        file.display()
    );
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Ok(Callable {
        name: format!("{name}:{function}"),
        file,
        function: function.to_string(),
        patience: Duration::from_secs(args.patience),
    })
}

pub fn candidate(args: &CandidateArgs) -> anyhow::Result<Answer> {
    let named = named(args)?;
    let committed = Results::read(&machine::results())?;
    let subject = Subject::from(named.name.as_str());
    // Before the file is loaded, which may hang.
    let interrupted = interrupted().context("cannot wait for signals")?;
    let mut python = Python::new(python::program(args.python.as_deref()), Some(named));
    let hello = match python.start() {
        Ok(hello) => hello.clone(),
        Err(SessionError::Interrupted) => bail!(io::Error::from(io::ErrorKind::Interrupted)),
        Err(error @ SessionError::Load(_)) => {
            bail!("{} cannot be loaded: {error}", args.candidate)
        }
        Err(error) => bail!(NoData(format!(
            "a candidate is called by a Python with PyTorch; run scripts/python, or name one by --python: {error}"
        ))),
    };
    let ladder = Ladder::open()?;
    // A GPU that our stages have no code for can still time the candidate.
    let opened;
    let device = match (&hello.gpu, &ladder.gpu) {
        (Some(_), Ok(device)) => Some(device),
        (Some(_), Err(_)) => {
            opened = CudaDevice::open(0);
            opened.as_ref().ok()
        }
        (None, _) => None,
    };
    if let Some(device) = device {
        python::check_uuid(&hello, device)?;
    }
    let request = Request {
        cases: args.cases.clone(),
        ..Request::default()
    };
    let backend = match hello.gpu {
        Some(_) => BackendKind::Cuda,
        None => BackendKind::Emulated,
    };
    let (planned, timings) = plan::candidate(&subject, &request, backend)?;
    limits::check_cases(&planned)?;
    let exchange = Scratch::new("candidate")?;
    let mut bars = Progress::default();
    let mut cases = Vec::new();
    for (done, case) in planned.iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        bars.step("case", &case.place().to_string(), done, planned.len());
        let row = check(case, &mut python, &exchange, device)?;
        // A call that was interrupted says nothing.
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        cases.push(row);
    }
    let mut judged = Candidate {
        device: hello.gpu.unwrap_or("the processor".to_string()),
        summary: summary(subject, Kind::PeerSession, &Vec::from_iter(&cases)),
        cases,
        timed: Table::default(),
        is_interrupted: false,
    };
    let is_timed = args.cases.iters != Some(0) && judged.verdict() == Verdict::Pass;
    // No number without a green gate.
    if let (true, Some(device)) = (is_timed, device) {
        let is_supported = |problem: &&Problem| {
            judged.cases.iter().any(|row| {
                matches!(&row.kind, Kind::CandidateCase(case) if case.problem == ProblemPlace::of(problem))
                    && !row.verdicts.is_empty()
            })
        };
        let timings: Vec<&Problem> = timings.iter().filter(is_supported).collect();
        let builds = ladder.builds()?;
        let mut peers = Python::new(python::program(args.python.as_deref()), None);
        match peers.start() {
            Ok(hello) => judged.timed.extend(hello.absent.clone()),
            Err(error) => judged.add(Row::absent_peer(DEFAULT, None, error.to_string())),
        }
        let table = ours(&committed, &ladder, &builds).unwrap_or_else(|reason| {
            judged.add(Row::absent_peer("our stages", None, reason));
            Table::default()
        });
        let plan = python::plan(args.cases.iters);
        let bench = Bench {
            device,
            stages: &ladder.stages,
            view: View::committed(&builds, &table),
            // An empty kernel is compiled with ours.
            zero_us: device.zero_us(&plan).unwrap_or(0.0),
            plan,
            exchange,
        };
        for (done, &problem) in timings.iter().enumerate() {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            let place = ProblemPlace::of(problem);
            bars.step("timing", &place.to_string(), done, timings.len());
            let item = Item {
                place,
                problem: *problem,
                stages: vec![],
                tried: builds.iter().map(|stage| stage.id.clone()).collect(),
                library: None,
            };
            let rows = bench.measure(&item, &mut [&mut python, &mut peers])?;
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            rows.into_iter().for_each(|row| judged.add(row));
        }
    }
    judged.is_interrupted = interrupted.load(Ordering::Relaxed);
    if args.json {
        return Answer::json(judged.exit(), &json::Candidate::from(&judged));
    }
    let page = pages::candidate::document(&judged);
    Ok(Answer::page(judged.exit(), &page))
}

fn check(
    case: &PlannedCase,
    python: &mut Python,
    exchange: &Scratch,
    device: Option<&CudaDevice>,
) -> anyhow::Result<Row> {
    let check::Source::Seeded { family, seed } = case.source else {
        bail!("{} is of no generated inputs", case.place());
    };
    let inputs = Inputs::generate(&case.problem, family, seed);
    let staged = Arc::new(StagedInputs::new(&inputs, Some(family)));
    let outcome = match call::launch(python, exchange, &staged) {
        Ok(launched) => {
            let reference = match device {
                Some(device) => device.reference(&inputs, launched.probability),
                None => reference(&inputs, launched.probability),
            }?;
            Ok(launched.judge(&reference))
        }
        Err(none) => Err(none),
    };
    let row = Row::new(&case.subject, Kind::CandidateCase(case.place()));
    Ok(row.outcome(&outcome))
}

/// What the committed table of this GPU says of which of ours are right and fast.
fn ours(committed: &Results, ladder: &Ladder, stages: &[StageMeta]) -> Result<Table, String> {
    let info = ladder.gpu.as_ref().map_err(String::clone)?.info();
    let table = committed.of_gpu(&machine::machine(Ok(info)).name);
    let view = View::committed(stages, &table);
    let table = table.part(|row| !view.is_stale(row));
    let is_known = best::shown(&View::committed(stages, &table))
        .next()
        .is_some();
    let none = || {
        format!(
            "no table says which of our variants are green on {}; run `compare`, and `compare accept` the run",
            info.name
        )
    };
    is_known.then_some(table).ok_or_else(none)
}
