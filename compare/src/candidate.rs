//! `compare candidate`: a Python callable of the user's own through the gates, timed beside the ladder and its peers. Its record
//! has it in place of the ladder, so that it is never one of our stages.

mod call;

use crate::answer::Answer;
use crate::estimate;
use crate::instrument::process::Scratch;
use crate::judge::list::joined;
use crate::judge::peers::DEFAULT;
use crate::judge::verdict::{self, Exit};
use crate::judge::{Known, best, state};
use crate::measure::builds::{StageBuild, VariantBuild};
use crate::measure::execute::Executor;
use crate::measure::machine::{self, Timestamp};
use crate::measure::meta::begin;
use crate::measure::plan::{self, Mode, Plan, PlannedTiming, Request, samples};
use crate::measure::select::{self, Chosen, Problems, family};
use crate::measure::sink::ExecuteError;
use crate::page::terminal::{WIDTH, terminal};
use crate::pages::files;
use crate::pages::show;
use crate::pages::show::Section;
use crate::peers::choose::Item;
use crate::peers::measure::Bench;
use crate::peers::pair::absent;
use crate::peers::session::{Calls, Hello, Python, SessionError};
use crate::peers::{self, METHOD};
use crate::progress::Progress as Bars;
use crate::record::files::{Unfinished, name_of};
use crate::record::meta::{
    CANDIDATE, Came, DeviceCompiler, GateScope, Measurable, StageMeta, VariantMeta,
};
use crate::record::store::read_all;
use crate::record::{Of, On, Place, Record, Row, Source, Subject};
use crate::registry::Ladder;
use crate::run::Recorder;
use anyhow::{Context, bail, ensure};
use call::Caller;
use clap::Args;
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::inputs::Family;
use common::verdict::GateId;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "\
The candidate is a Python function on torch tensors:

  def attention(q, k, v, *, causal, softmax_scale):
      ...                                       q [B, H, S, D], k and v [B, Hkv, Skv, D], float16 or bfloat16; returns a tensor
                                                like q, a new one on every call

Key heads are shared by H / Hkv query heads. The causal mask is aligned bottom-right: row i sees keys up to
i + Skv - S, and a row without keys is 0. Tensors are strided, with the last dimension dense. E4M3 (float8_e4m3fn in,
float16 out) is tried if the function has an argument `scales`: three float32 tensors [B, heads], of q, k and v, by which their
values are to be multiplied. A function raises NotImplementedError for what it does not support; that is listed and no failure.

It runs in a process of its own, on the GPU if torch sees one, else on the CPU, through the problems, inputs and gates C1 to C6
of our stages. A case is three calls: on the memory of the case before; there again with V negated, which must give the same bits
with the opposite sign; and at other addresses, which must give the same bits. On a GPU it is then timed as `compare peers` times,
beside PyTorch and our two fastest stages in the newest committed record of that GPU. The timed output is checked on values
written to the captured addresses after the capture.
The record goes to target/candidate, with COMPARE.md and report.html.

Examples:
  compare candidate mine.py:attention           everything that this machine can check
  compare candidate mine.py:attention --quick   a few small problems
  compare candidate mine.py:attention --shapes mission,1x8:2x113:203x64 --dtypes f16
  compare candidate mine.py:attention --python /opt/venv/bin/python --patience 600
  compare show --record target/candidate/20261120T183000Z-nvidia-h200 peers

Exit codes:
  0  every gate passes
  1  a gate failed, a call raised or hung, or the timed output is wrong
  2  wrong usage, or a candidate that cannot be loaded
  3  NO DATA: there is no Python with torch, or the candidate supports none of the problems
  130  interrupted; what was finished is in the record";

/// The flags of `candidate`.
#[derive(Clone, Debug, Args)]
pub struct CandidateArgs {
    /// The file, and the function in it
    #[arg(value_name = "FILE.py:FUNCTION")]
    pub candidate: String,
    #[command(flatten)]
    pub problems: Problems,
    /// Seeds of the inputs
    #[arg(long, value_delimiter = ',', value_name = "SEED,..")]
    pub seeds: Vec<u64>,
    /// Input families (`compare show`)
    #[arg(long, value_delimiter = ',', value_name = "FAMILY,..", value_parser = family)]
    pub families: Vec<Family>,
    /// Tier T0: five small problems, and extreme logits
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Tier T2: every shape, mask, family and seed (the default on a GPU)
    #[arg(long)]
    pub full: bool,
    /// Samples per arm and problem, each the mean over at least 20 ms of calls; 0 checks and does not time [default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = samples)]
    pub iters: Option<usize>,
    /// Stages to time it beside [default: the two fastest]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// The record that says which of our variants are green and fastest [default: the newest committed one of this GPU]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Seconds that a call may take, compilation included, before its process is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub patience: u64,
    /// The Python that has torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// Where the record goes [default: target/candidate]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the report goes, beside the record's folder
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// No table and no progress; what is wrong goes to standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// The candidate that is asked for: its name, `mine.py:attention`, how it is called, and its identity.
fn asked(args: &CandidateArgs) -> anyhow::Result<(String, Calls, String)> {
    let text = &args.candidate;
    let parts = text
        .rsplit_once(':')
        .filter(|(file, function)| file.ends_with(".py") && !function.is_empty());
    let (file, function) = parts.with_context(|| {
        format!("expected FILE.py:FUNCTION, such as mine.py:attention, not '{text}'")
    })?;
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    let file = Path::new(file).canonicalize()?;
    // Python is told of it in JSON.
    ensure!(
        file.to_str().is_some(),
        "{} is not valid UTF-8; move it to a folder whose path is",
        file.display()
    );
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{name}:{function}");
    let digest = Sha256::digest(&bytes);
    let identity = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let calls = Calls::Candidate {
        name: Subject::variant(CANDIDATE, &name).to_string(),
        file,
        function: function.to_string(),
        patience: Duration::from_secs(args.patience),
    };
    Ok((name, calls, identity))
}

/// What takes the place of the ladder.
fn build(name: &str, identity: String, hello: &Hello) -> StageBuild {
    let variant = VariantMeta {
        name: name.to_string(),
        family: name.to_string(),
        takes_claims: vec![],
    };
    let meta = StageMeta {
        id: CANDIDATE.to_string(),
        idea: format!("{name}, a callable of the user's"),
        predecessor: None,
        default_variant: name.to_string(),
        identity,
        host_compiler: hello.tools().join(", "),
        device_compiler: DeviceCompiler::Absent {
            reason: "it is compiled elsewhere".to_string(),
        },
        claims: vec![],
        retired: vec![],
        variants: vec![variant],
        refused: vec![],
    };
    let variants = vec![VariantBuild {
        name: name.to_string(),
        family: name.to_string(),
        kernels: vec![],
    }];
    StageBuild { meta, variants }
}

/// Checks and times the candidate that `args` name, writes its record and the report, and judges it.
pub fn candidate(args: &CandidateArgs) -> anyhow::Result<Answer> {
    let (start, started) = (Instant::now(), Timestamp::now());
    let (name, calls, identity) = asked(args)?;
    let subject = Subject::variant(CANDIDATE, &name);
    // Read whether or not there is a GPU to time on: a record that cannot be read is refused, not ignored.
    let named = args.record.as_deref().map(Record::read).transpose();
    let named = named.context("--record")?;
    let program = peers::program(args.python.as_deref());
    let mut python = Python::new(program.clone(), calls);
    let hello = match python.start() {
        Ok(hello) => hello.clone(),
        Err(error @ SessionError::Load { .. }) => {
            bail!("{} cannot be loaded: {error}", args.candidate)
        }
        Err(error) => {
            return Ok(Answer::no_data(format!(
                "a candidate is called by a Python with PyTorch; run scripts/python, or name one by --python: {error}"
            )));
        }
    };
    if let Some(reason) = hello.absent.values().next() {
        bail!("{} cannot be loaded: {reason}", args.candidate);
    }
    let backend = match hello.gpu {
        Some(_) => BackendKind::Cuda,
        None => BackendKind::Cpu,
    };
    let ladder = Ladder::open()?;
    select::stages(&args.stages, &ladder.builds())?;
    // A GPU that our stages have no code for can still time the candidate.
    let opened;
    let device = match (backend, &ladder.gpu) {
        (BackendKind::Cuda, Ok(device)) => Ok(device),
        (BackendKind::Cuda, Err(_)) => {
            opened = CudaDevice::open(0).map_err(|error| error.to_string());
            opened.as_ref().map_err(String::clone)
        }
        _ => Err("torch sees none".to_string()),
    };
    if let Ok(device) = device {
        peers::check_uuid(&hello, device)?;
    }
    let build = build(&name, identity, &hello);
    let builds = std::slice::from_ref(&build);
    let plan = planned(args, builds, backend)?;
    estimate::check(&plan.cases, machine::processors(), estimate::available())?;
    let machine = machine::machine(device.clone().map(CudaDevice::info));
    let out = match &args.out {
        Some(out) => out.clone(),
        None => machine::root("--out DIR")?.join("target/candidate"),
    };
    let exchange = Scratch::new("candidate")?;
    let unfinished = Unfinished::create(&out, &format!("{}-{}", started.compact(), machine.name))?;
    let folder = unfinished.folder().to_path_buf();
    let mut record = begin(&started, &plan, builds, machine, scopes(), true);
    let caller = Caller {
        name: subject.to_string(),
        python: RefCell::new(python),
        exchange,
    };
    let callable = |staged: &_| caller.launch(staged);
    let executor = Executor {
        callable: Some(&callable),
        in_flight: 1,
        ..Executor::new(&plan, &[])
    };
    let mut recorder = Recorder::new(&folder, &plan.cases, Bars::new(args.quiet))?;
    let checked = executor.check(&mut record, &mut recorder);
    let Caller {
        python, exchange, ..
    } = caller;
    let timed = match (&checked, device) {
        (Ok(()), Ok(device)) if args.iters != Some(0) => {
            let timing = Timing {
                args,
                named: named.as_ref(),
                subject,
                program,
                ladder: &ladder,
                device,
            };
            timing.time(
                &plan.timings,
                python.into_inner(),
                exchange,
                &mut record,
                &mut recorder,
            )
        }
        _ => Ok(()),
    };
    recorder.bars.finish();
    // Gates have judged the whole of it, also where timing was interrupted after them.
    match checked.is_ok() && timed.is_ok() {
        true => record.has_ended(start.elapsed().as_secs()),
        false => record.goes_on(plan.cases.len()),
    }
    record.write(&folder)?;
    let interrupted = |folder: &Path| {
        let text = format!("interrupted; what was finished is in {}", folder.display());
        Answer::new(Exit::Interrupted, text)
    };
    if matches!(checked, Err(ExecuteError::Interrupted)) {
        return Ok(interrupted(&folder));
    }
    checked?;
    timed?;
    let folder = unfinished.finish()?;
    let answer = answer(args, &name_of(&folder), &folder, &record)?;
    Ok(match record.meta.peers {
        None => answer,
        Some(_) => interrupted(&folder),
    })
}

/// The report on `record`, written and printed.
fn answer(
    args: &CandidateArgs,
    name: &str,
    folder: &Path,
    record: &Record,
) -> anyhow::Result<Answer> {
    let report = verdict::report(Known::alone(name, record));
    let own = folder.join("COMPARE.md");
    let files = once(&own).chain(&args.report);
    let files = files.flat_map(|path| files::report(&report, folder, path));
    files::write(&files.collect::<Vec<_>>())?;
    let (mut text, notes) = files::summary(&report, args.quiet);
    if record.by(Source::Peers).next().is_some() {
        let peers = show::document(&report, &[Section::Peers], &[]);
        text += &format!("\n\n{}", terminal(&peers, WIDTH).trim_end());
    }
    let unsupported = |row: &Row| match (&row.on, &row.note) {
        (On::Case(place, _), Some(note)) if row.verdicts.is_empty() => {
            Some(format!("{place}: {note}"))
        }
        _ => None,
    };
    let rows = record.rows.iter().chain(&record.cases);
    let unsupported: BTreeSet<String> = rows.filter_map(unsupported).collect();
    if !unsupported.is_empty() {
        text += &format!("\n\nUnsupported:\n  {}", joined(unsupported, "\n  "));
    }
    Ok(Answer::new(
        report.overall.exit,
        format!("{text}\nrecord: {}", folder.display()),
    )
    .quiet(args.quiet)
    .noting(notes))
}

/// The tier's cases, all called in one way.
fn planned(
    args: &CandidateArgs,
    builds: &[StageBuild],
    backend: BackendKind,
) -> anyhow::Result<Plan> {
    let request = Request {
        chosen: Chosen {
            stages: vec![],
            variants: vec![builds[0].default_variant.clone()],
        },
        problems: args.problems.clone(),
        seeds: args.seeds.clone(),
        families: args.families.clone(),
        iters: args.iters,
        quick: args.quick,
        full: args.full,
        ..Request::default()
    };
    let mut plan = plan::plan(builds, &request, backend)?;
    let mode = match backend {
        BackendKind::Cuda => Mode::Device,
        _ => Mode::Plain,
    };
    plan.cases.iter_mut().for_each(|case| case.mode = mode);
    Ok(plan)
}

/// What can be measured of a candidate, which is not a stage.
fn scopes() -> Vec<GateScope> {
    let no = |reason: &str| Measurable::No {
        reason: reason.to_string(),
    };
    GateScope::of_run(|gate| match gate {
        GateId::C1 | GateId::C2 | GateId::C3 | GateId::C4 | GateId::C5 | GateId::C6 => {
            Measurable::Yes
        }
        GateId::C7 => no("`compare sanitize` runs only our stages"),
        GateId::B1 => no("a candidate has one backend"),
        GateId::H1 => no("hazards are judged in the emulator, on our kernels"),
        GateId::R1 => no("a candidate's machine code is not known"),
        GateId::C8 => no("a candidate returns no log-sum-exps"),
        GateId::L1 | GateId::E1 | GateId::S1 => no("a candidate claims nothing"),
    })
}

/// Times the candidate beside ours and the peers.
struct Timing<'a> {
    args: &'a CandidateArgs,
    /// What `--record` names.
    named: Option<&'a Record>,
    subject: Subject,
    program: String,
    ladder: &'a Ladder,
    device: &'a CudaDevice,
}

impl Timing<'_> {
    fn time(
        &self,
        timings: &[PlannedTiming],
        mut python: Python,
        exchange: Scratch,
        record: &mut Record,
        recorder: &mut Recorder<'_>,
    ) -> anyhow::Result<()> {
        if !state::is_green(record, &self.subject) {
            return Ok(()); // no number without a green gate
        }
        let mut peers = Python::new(self.program.clone(), Calls::Peers);
        let mut software = vec![];
        match peers.start() {
            Ok(hello) => {
                software = hello.tools();
                record.extend(peers::not_installed(hello));
            }
            Err(error) => record.append(absent(DEFAULT, On::All, error.to_string())),
        }
        record.meta.tools.insert(Source::Peers, software);
        record
            .meta
            .methods
            .insert(Source::Peers, METHOD.to_string());
        let builds = self.ladder.builds();
        let base = self.base(&builds);
        if let Err(reason) = &base {
            record.append(absent("our stages", On::All, reason));
        }
        let plan = peers::plan(self.args.iters);
        let none = record.clone();
        let bench = Bench {
            device: self.device,
            stages: &self.ladder.stages,
            builds: &builds,
            record: base.as_ref().unwrap_or(&none),
            // An empty kernel is compiled with ours.
            zero_us: self
                .device
                .zero_line(&plan)
                .map_or(0.0, |zero| zero.device.p50),
            plan,
            matrix_flops: None,
            exchange,
        };
        for (done, timing) in timings.iter().enumerate() {
            let planned = timings.len();
            if recorder.interrupted.load(Ordering::Relaxed) {
                record.meta.peers = Some(Came { to: done, planned });
                break;
            }
            let place = &timing.place;
            let took = |row: &Row| {
                matches!(&row.on, On::Case(on, _) if on == place) && !row.verdicts.is_empty()
            };
            if !record.cases.iter().any(took) {
                continue; // it does not take the problem
            }
            recorder
                .bars
                .step("timing", &place.to_string(), done, planned);
            let item = Item {
                place: place.clone(),
                problem: timing.problem,
                stages: base
                    .as_ref()
                    .map_or(vec![], |base| self.beside(base, &builds, place)),
            };
            // The candidate first: what a peer writes is right, and not there yet.
            record.extend(bench.measure(&item, &mut [&mut python, &mut peers])?);
            record.names(&place.shape, timing.problem.shape);
        }
        Ok(())
    }

    /// The record that says which of ours are right and fast here.
    fn base(&self, builds: &[StageBuild]) -> Result<Record, String> {
        self.ladder.gpu.as_ref().map_err(String::clone)?;
        let name = &self.device.info().name;
        let records: Vec<Record> = match self.named {
            Some(named) => vec![named.clone()],
            None => {
                let committed = read_all(&machine::results(), Of::Ladder);
                let committed = committed.map_err(|error| error.to_string())?;
                committed.into_iter().map(|(_, record)| record).collect()
            }
        };
        let is_of_this = |record: &Record| {
            record.meta.gpu() == Some(name) && builds.iter().any(|build| record.is_of(build))
        };
        let newest = records.into_iter().rev().find(is_of_this);
        newest.ok_or_else(|| {
            format!("no record says which of our variants are green on {name}; run `compare`, and name its record by --record")
        })
    }

    /// Stages to time it beside on a problem: those that were asked for, else the fastest there.
    fn beside(&self, base: &Record, builds: &[StageBuild], place: &Place) -> Vec<String> {
        let mut known = Vec::new();
        for build in select::stages(&self.args.stages, builds).unwrap_or_default() {
            let row = best::best(base, &build.id, place, |_| true);
            if let Some(row) = row.filter(|_| base.is_of(build)) {
                known.push((best::p50(row), build.id.clone()));
            }
        }
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        if self.args.stages.is_empty() {
            known.truncate(FASTEST);
        }
        known.into_iter().map(|(_, id)| id).collect()
    }
}

/// So many of our stages are timed beside a candidate.
const FASTEST: usize = 2;
