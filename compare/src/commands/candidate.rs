//! `compare candidate`: takes a Python callable of the user's own through the gates, and times it
//! against the ladder and its peers.

mod call;

use crate::answer::{Answer, NoData};
use crate::progress::Progress;
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::check::{self, StagedInputs};
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::inputs::Inputs;
use common::problem::Problem;
use common::reference::reference;
use common::verdict::Verdict;
use measure::instrument::process::Scratch;
use measure::interrupt::interrupted;
use measure::limits;
use measure::machine;
use measure::plan::{self, CaseFlags, PlannedCase, Request};
use measure::python;
use measure::python::bench::{Bench, Item};
use measure::python::session::{Callable, Hello, Python, SessionError};
use measure::select::at_least_one;
use measure::summary::summary;
use measure::timer::Timer;
use pages::json;
use results::judge::candidate::Candidate;
use results::judge::peers::DEFAULT;
use results::judge::{View, best};
use results::table::{Kind, ProblemPlace, Results, Row, StageMeta, Subject, Table};
use results::workspace;
use stages::Ladder;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const EXAMPLES: &str = "\
The candidate is a Python function on torch tensors:

  def attention(q, k, v, *, causal, softmax_scale):
      ...                                       q [B, H, S, D], k and v [B, Hkv, Skv, D], float16 or \
bfloat16; returns a tensor
                                                like q, a new one on every call

Key heads are shared by H / Hkv query heads. The causal mask is aligned bottom-right: row i sees
keys up to i + Skv - S, and a row without keys is 0. Tensors are strided, with the last dimension
dense. E4M3 (float8_e4m3fn in, float16 out) is tried if the function has an argument `scales`: three
float32 tensors [B, heads], of q, k and v, by which their values are to be multiplied. A function
raises NotImplementedError for what it does not support; that is listed and no failure.

It runs in a process of its own, on the GPU if torch sees one, through the problems, inputs and
gates C1 to C6 of our stages, and on a GPU is timed against PyTorch and our fastest stage. Prints
the gates, the ratios and the verdict.

Examples:
  compare candidate mine.py:attention           everything that this machine can check
  compare candidate mine.py:attention --quick   a few small problems
  compare candidate mine.py:attention --shapes mission,1x8:2x113:203x64 --dtypes f16

Exit codes:
  0  every gate passes
  1  a gate failed, a call raised or hung, or the timed output is wrong
  2  wrong usage, or a candidate that cannot be loaded
  3  not measured: there is no Python with torch, or the candidate supports none of the problems
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
    // The alias is the flag's name until 2026-11-28; it goes with the next release.
    #[arg(
        long,
        alias = "patience",
        value_name = "SECONDS",
        default_value_t = 120,
        allow_negative_numbers = true,
        value_parser = at_least_one::<u64>
    )]
    pub timeout: u64,
    /// The Python that has torch [default: PYTHON, else what scripts/python installed, else
    /// python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// Print JSON, whose fields docs/rows.md names
    #[arg(long)]
    pub json: bool,
}

/// Reads `mine.py:attention`.
fn callable(args: &CandidateArgs) -> anyhow::Result<Callable> {
    let text = &args.candidate;
    let (file, function) = text
        .rsplit_once(':')
        .filter(|(file, function)| file.ends_with(".py") && !function.is_empty())
        .with_context(|| {
            format!("expected FILE.py:FUNCTION, such as mine.py:attention, not '{text}'")
        })?;
    let path = Path::new(file)
        .canonicalize()
        .with_context(|| format!("cannot read {file}"))?;
    // The path goes to Python in JSON.
    ensure!(
        path.to_str().is_some(),
        "{} is not valid UTF-8; move it to a folder whose path is",
        path.display()
    );
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Callable {
        name: format!("{name}:{function}"),
        file: path,
        function: function.to_string(),
        timeout: Duration::from_secs(args.timeout),
    })
}

/// Checks a candidate on all cases, and times it if it is green and there is a GPU.
pub fn candidate(args: &CandidateArgs) -> anyhow::Result<Answer> {
    let callable = callable(args)?;
    let committed = Results::read(&workspace::results())?;
    let subject = Subject::from(callable.name.as_str());
    // The signals are caught before the file is loaded, which may hang.
    let interrupted = interrupted().context("cannot wait for signals")?;
    let mut python = Python::new(python::program(args.python.as_deref()), Some(callable));
    let hello = start(&mut python, args)?;
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
    if let Some(gpu) = device {
        python::check_uuid(&hello, gpu)?;
    }
    let request = Request {
        cases: args.cases.clone(),
        ..Request::default()
    };
    let backend = match hello.gpu {
        Some(_) => BackendKind::Cuda,
        None => BackendKind::Emulated,
    };
    let planned = plan::candidate(&subject, &request, backend)?;
    limits::check_cases(&planned.cases)?;
    let mut session = CandidateSession {
        args,
        python,
        exchange: Scratch::new("candidate")?,
        device,
        ladder: &ladder,
        interrupted: &interrupted,
        bars: Progress::default(),
    };
    let cases = session.check_all(&planned.cases)?;
    let mut judged = Candidate {
        device: hello.gpu.unwrap_or("the processor".to_string()),
        summary: summary(subject, Kind::PeerSession, &Vec::from_iter(&cases)),
        cases,
        timed: Table::default(),
        is_interrupted: false,
    };
    // No number without a green gate.
    if args.cases.iters != Some(0) && judged.verdict() == Verdict::Pass {
        session.time_all(&planned.timings, &committed, &mut judged)?;
    }
    judged.is_interrupted = session.is_interrupted();
    if args.json {
        return Answer::json(judged.exit(), &json::Candidate::from(&judged));
    }
    let page = pages::candidate::document(&judged);
    Ok(Answer::page(judged.exit(), &page))
}

/// Starts the Python that has the candidate.
fn start(python: &mut Python, args: &CandidateArgs) -> anyhow::Result<Hello> {
    match python.start() {
        Ok(hello) => Ok(hello.clone()),
        Err(SessionError::Interrupted) => bail!(io::Error::from(io::ErrorKind::Interrupted)),
        Err(error @ SessionError::Load(_)) => {
            bail!("{} cannot be loaded: {error}", args.candidate)
        }
        Err(error) => bail!(NoData(format!(
            "a candidate is called by a Python with PyTorch; run scripts/python, or name one by \
             --python: {error}"
        ))),
    }
}

/// A candidate that is being checked and timed.
struct CandidateSession<'a> {
    args: &'a CandidateArgs,
    python: Python,
    exchange: Scratch,
    device: Option<&'a CudaDevice>,
    ladder: &'a Ladder,
    interrupted: &'a AtomicBool,
    bars: Progress,
}

impl CandidateSession<'_> {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Checks the candidate on each case, until an interrupt.
    fn check_all(&mut self, planned: &[PlannedCase]) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (done, case) in planned.iter().enumerate() {
            if self.is_interrupted() {
                break;
            }
            let place = case.place().to_string();
            self.bars.step("case", &place, done, planned.len());
            let row = self.check(case)?;
            // A call that was interrupted decides nothing.
            if self.is_interrupted() {
                break;
            }
            rows.push(row);
        }
        Ok(rows)
    }

    fn check(&mut self, case: &PlannedCase) -> anyhow::Result<Row> {
        let check::Source::Seeded { family, seed } = case.source else {
            bail!("{} is of no generated inputs", case.place());
        };
        let inputs = Inputs::generate(&case.problem, family, seed);
        let staged = Arc::new(StagedInputs::new(&inputs, Some(family)));
        let row = Row::new(&case.subject, Kind::CandidateCase(case.place()));
        let launched = match call::launch(&mut self.python, &self.exchange, &staged) {
            Ok(launched) => launched,
            Err(no_output) => return Ok(row.outcome(&Err(no_output))),
        };
        let reference = match self.device {
            Some(device) => device.reference(&inputs, launched.probability)?,
            None => reference(&inputs, launched.probability)?,
        };
        Ok(row.outcome(&Ok(launched.judge(&reference))))
    }

    /// Times the candidate beside ours and PyTorch on the problems that it supports, until an
    /// interrupt.
    fn time_all(
        &mut self,
        timings: &[Problem],
        committed: &Results,
        judged: &mut Candidate,
    ) -> anyhow::Result<()> {
        let Some(device) = self.device else {
            return Ok(());
        };
        let mut supported = timings.to_vec();
        supported.retain(|problem| is_supported(&judged.cases, problem));
        let builds = self.ladder.builds()?;
        let mut peers = Python::new(python::program(self.args.python.as_deref()), None);
        match peers.start() {
            Ok(hello) => judged.timed.extend(hello.absent.clone()),
            Err(error) => judged.add(Row::absent_peer(DEFAULT, None, error.to_string())),
        }
        let table = ours(committed, self.ladder, &builds).unwrap_or_else(|reason| {
            judged.add(Row::absent_peer("our stages", None, reason));
            Table::default()
        });
        let plan = python::plan(self.args.cases.iters);
        let bench = Bench {
            device,
            stages: &self.ladder.stages,
            view: View::committed(&builds, &table),
            // An empty kernel is compiled with ours.
            zero_us: device.zero_us(&plan).unwrap_or(0.0),
            plan,
            exchange: &self.exchange,
        };
        for (done, problem) in supported.iter().enumerate() {
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            let place = ProblemPlace::of(problem);
            self.bars
                .step("timing", &place.to_string(), done, supported.len());
            let item = Item {
                place,
                problem: *problem,
                stages: vec![],
                tried: builds.iter().map(|stage| stage.id.clone()).collect(),
                library: None,
            };
            let rows = bench.measure(&item, &mut [&mut self.python, &mut peers])?;
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            for row in rows {
                judged.add(row);
            }
        }
        Ok(())
    }
}

/// Returns whether a case of the problem was judged.
fn is_supported(cases: &[Row], problem: &Problem) -> bool {
    let expected = ProblemPlace::of(problem);
    cases.iter().any(|row| {
        matches!(&row.kind, Kind::CandidateCase(case) if case.problem == expected)
            && !row.verdicts.is_empty()
    })
}

/// Returns the part of the committed table of this GPU that knows which of ours are right and fast.
fn ours(committed: &Results, ladder: &Ladder, stages: &[StageMeta]) -> Result<Table, String> {
    let info = ladder.gpu.as_ref().map_err(String::clone)?.info();
    let all = committed.of_gpu(&machine::machine(Ok(info)).name);
    let view = View::committed(stages, &all);
    let current = all.part(|row| !view.is_stale(row));
    if best::shown(&View::committed(stages, &current))
        .next()
        .is_none()
    {
        return Err(format!(
            "no table says which of our variants pass on {}; run `compare`, and \
             `compare accept` the run",
            info.name
        ));
    }
    Ok(current)
}
