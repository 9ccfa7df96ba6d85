//! `compare candidate`: a Python callable of the user's own through the gates, timed beside the ladder and its peers. Its record
//! has it in place of the ladder, so that it is never one of our stages.

mod call;

use crate::answer::Answer;
use crate::estimate;
use crate::interrupt::interrupted;
use crate::judge::verdict::{self, Exit};
use crate::judge::{Known, best, state};
use crate::measure::builds::{StageBuild, VariantBuild};
use crate::measure::execute::Executor;
use crate::measure::machine::{self, Timestamp};
use crate::measure::measured::{ExecuteError, Measured, SinkError};
use crate::measure::plan::{self, Mode, Plan, PlannedTiming, Request, samples};
use crate::measure::rows;
use crate::measure::select::{self, Chosen, Problems, family};
use crate::output::{self, Output};
use crate::page::terminal::{WIDTH, terminal};
use crate::pages::show;
use crate::pages::show::Section;
use crate::peers::choose::Item;
use crate::peers::measure::{Bench, Calls, Exchange, Python};
use crate::peers::pair::{absent, pairs};
use crate::peers::session::{Hello, SessionError};
use crate::peers::{self, METHOD, SAMPLES};
use crate::progress::Progress as Bars;
use crate::record::files::{Unfinished, is_stream};
use crate::record::meta::{
    CANDIDATE, Came, DeviceCompiler, GateScope, Measurable, StageMeta, VariantMeta,
};
use crate::record::store::read_all;
use crate::record::{Of, On, Record, Row, Source, Subject};
use crate::registry::Ladder;
use crate::render;
use crate::run::Recorder;
use anyhow::{Context, bail};
use call::Caller;
use clap::Args;
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::inputs::Family;
use common::timing::Plan as TimingPlan;
use common::verdict::GateId;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "\
The candidate is a Python function on torch tensors:

  def attention(q, k, v, *, causal, softmax_scale):
      ...                                       q [B, H, S, D], k and v [B, Hkv, Skv, D], float16 or bfloat16: a tensor as q,
                                                new on every call

Key heads are shared by H / Hkv query heads. The causal mask is aligned bottom-right: row i sees keys up to
i + Skv - S, and a row without keys is 0. Tensors are strided, with the last dimension dense. E4M3 (float8_e4m3fn in,
float16 out) is asked of a function with an argument `scales`: three float32 tensors [B, heads], of q, k and v, which their
values are to be multiplied by. What it does not take it refuses by NotImplementedError; that is listed and no failure.

It runs in a process of its own, on the GPU if torch sees one, else on the CPU, through the problems, inputs and gates C1 to C6
of our stages. A case is three calls: on the memory of the case before; there again with V negated, which must give the same bits
with the other sign; and elsewhere, which must give the same bits. On a GPU it is then timed as `compare peers` times, beside our
two fastest stages of the newest committed record of that GPU, and PyTorch; what is timed is judged on values that are put where
those lay that it was called and captured on.
The record goes to target/candidate, with COMPARE.md and report.html.

Examples:
  compare candidate mine.py:attention           all that this machine can check
  compare candidate mine.py:attention --quick   a few small problems
  compare candidate mine.py:attention --shapes mission,1x8:2x113:203x64 --dtypes f16
  compare candidate mine.py:attention --python /opt/venv/bin/python --patience 600
  compare show --record target/candidate/20261120T183000Z-nvidia-h200 peers

Exit codes:
  0  every gate passes
  1  a gate failed, a call raised or hung, or the output of what was timed is wrong
  2  wrong usage, or a candidate that cannot be loaded
  3  NO DATA: there is no Python with torch, or the candidate takes none of the problems
  130  interrupted; what was finished is in the record";

/// The flags of `candidate`.
#[derive(Clone, Debug, Args)]
pub struct CandidateArgs {
    /// The function, and the file that it is in
    #[arg(value_name = "FILE.py:FUNCTION")]
    pub candidate: String,
    #[command(flatten)]
    pub problems: Problems,
    /// Seeds of the inputs
    #[arg(long, value_delimiter = ',', value_name = "SEED,..")]
    pub seeds: Vec<u64>,
    /// Input families (`compare list`)
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
    /// The record that says which variants of ours are green and fastest [default: the newest committed one of this GPU]
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

/// What is asked for.
struct Asked {
    /// `mine.py:attention`.
    name: String,
    file: PathBuf,
    function: String,
    identity: String,
}

impl Asked {
    fn read(text: &str) -> anyhow::Result<Self> {
        let parts = text
            .rsplit_once(':')
            .filter(|(file, function)| !file.is_empty() && !function.is_empty());
        let (file, function) = parts.with_context(|| {
            format!("expected FILE.py:FUNCTION, such as mine.py:attention, not '{text}'")
        })?;
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
        let file = Path::new(file).canonicalize()?;
        // Python is told of it in JSON, which is UTF-8.
        if file.to_str().is_none() {
            bail!(
                "{} is no UTF-8; put it into a folder whose name is",
                file.display()
            );
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: format!("{name}:{function}"),
            function: function.to_string(),
            identity: Sha256::digest(&bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            file,
        })
    }

    fn subject(&self) -> Subject {
        Subject::variant(CANDIDATE, &self.name)
    }

    /// What stands in place of the ladder.
    fn build(&self, hello: &Hello) -> StageBuild {
        let variant = VariantMeta {
            name: self.name.clone(),
            family: self.name.clone(),
            takes_claims: vec![],
        };
        let meta = StageMeta {
            id: CANDIDATE.to_string(),
            idea: format!("{}, a callable of the user's own", self.name),
            predecessor: None,
            default_variant: self.name.clone(),
            identity: self.identity.clone(),
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
            name: self.name.clone(),
            family: self.name.clone(),
            kernels: vec![],
        }];
        StageBuild { meta, variants }
    }
}

/// Checks and times the candidate that `args` name, writes its record and what it says, and judges it.
pub fn candidate(args: &CandidateArgs) -> anyhow::Result<Answer> {
    let (start, started) = (Instant::now(), Timestamp::now());
    let report_files = args.report.iter().flat_map(|path| Output::report(path));
    output::check(&report_files.collect::<Vec<_>>(), &[])?;
    let asked = Asked::read(&args.candidate)?;
    let named = args.record.as_deref().map(named_record).transpose()?;
    let program = peers::program(args.python.as_deref());
    let calls = Calls::Candidate {
        name: asked.subject().as_str().to_string(),
        file: asked.file.clone(),
        function: asked.function.clone(),
        patience: Duration::from_secs(args.patience),
    };
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
    let device = match (backend, &ladder.gpu) {
        (BackendKind::Cuda, Err(_)) => CudaDevice::open(0)
            .map(Some)
            .map_err(|error| error.to_string()),
        _ => Ok(None),
    };
    let device = match (backend, &ladder.gpu, &device) {
        (BackendKind::Cuda, Ok(device), _) | (_, _, Ok(Some(device))) => Ok(device),
        (BackendKind::Cuda, _, Err(reason)) => Err(reason.clone()),
        _ => Err("torch sees none".to_string()),
    };
    if let Ok(device) = device {
        peers::check_uuid(&hello, device)?;
    }
    let build = asked.build(&hello);
    let builds = std::slice::from_ref(&build);
    let plan = planned(args, builds, backend)?;
    estimate::check(&plan.cases, machine::processors(), estimate::available())?;
    let machine = machine::machine(device.clone().map(CudaDevice::info));
    let out = match &args.out {
        Some(out) => out.clone(),
        None => machine::root("--out DIR")?.join("target/candidate"),
    };
    let exchange = Exchange::new()?;
    let unfinished = Unfinished::create(&out, &format!("{}-{}", started.compact(), machine.name))?;
    let folder = unfinished.folder().to_path_buf();
    let mut measured = Measured::begin(&started, &plan, builds, machine, scopes(), true);
    let caller = Caller {
        name: asked.subject().as_str().to_string(),
        python: RefCell::new(python),
        exchange,
    };
    let callable = |staged: &_| caller.launch(staged);
    let executor = Executor {
        stages: &[],
        builds,
        device: None,
        others: &[],
        file: None,
        callable: Some(&callable),
        timing: TimingPlan::default(),
        samples_elsewhere: 0,
        in_flight: 1,
    };
    let mut recorder = Recorder {
        folder: &folder,
        outputs: None,
        planned: plan.cases.len(),
        builds,
        write_after: Instant::now(),
        interrupted: interrupted().context("cannot wait for signals")?,
        bars: Bars::new(args.quiet),
    };
    let checked = executor.check(&plan, &mut measured, &mut recorder);
    let Caller {
        python, exchange, ..
    } = caller;
    let timed = match (&checked, device) {
        (Ok(()), Ok(device)) if args.iters != Some(0) => {
            let timing = Timing {
                args,
                named: named.as_ref(),
                subject: asked.subject(),
                program,
                ladder: &ladder,
                device,
            };
            timing.time(
                &plan.timings,
                python.into_inner(),
                exchange,
                &mut measured,
                &mut recorder,
            )
        }
        _ => Ok(Ended::Whole),
    };
    recorder.bars.finish();
    // Gates have judged the whole of it, also where timing was interrupted after them.
    match checked.is_ok() && timed.is_ok() {
        true => measured.has_ended(start.elapsed().as_secs()),
        false => measured.goes_on(plan.cases.len()),
    }
    measured.record.write(&folder)?;
    let interrupted =
        |folder: &Path| format!("interrupted; what was finished is in {}", folder.display());
    if matches!(checked, Err(ExecuteError::Sink(SinkError::Interrupted))) {
        return Ok(Answer::new(Exit::Interrupted, interrupted(&folder)));
    }
    checked?;
    let timed = timed?;
    let name = unfinished.name();
    let folder = unfinished.finish()?;
    let answer = answer(args, &name, &folder, &measured.record)?;
    Ok(match timed {
        Ended::Whole => answer,
        Ended::Interrupted => Answer::new(Exit::Interrupted, interrupted(&folder)),
    })
}

/// The record in the folder that `--record` names, with that name. It is read whether or not there is a GPU to time on: one that
/// cannot be read is no wish that can be passed over.
fn named_record(folder: &Path) -> anyhow::Result<(String, Record)> {
    let record = Record::read(folder).context("--record")?;
    Ok((folder.display().to_string(), record))
}

/// The report on `record`, written and printed.
fn answer(
    args: &CandidateArgs,
    name: &str,
    folder: &Path,
    record: &Record,
) -> anyhow::Result<Answer> {
    let report = verdict::report(Known::alone(name, record));
    let path = args
        .report
        .clone()
        .unwrap_or_else(|| folder.join("COMPARE.md"));
    let mut files = render::of_run(&report, folder, &path);
    if is_stream(&path) {
        files.extend(render::of_run(&report, folder, &folder.join("COMPARE.md")));
    }
    render::write(&files)?;
    let (mut text, notes) = render::told(&report, args.quiet);
    if record.by(Source::Peers).next().is_some() {
        text += &format!(
            "\n\n{}",
            terminal(&show::document(&report, &[Section::Peers], &[]), WIDTH).trim_end()
        );
    }
    let unsupported = unsupported(record);
    if !unsupported.is_empty() {
        text += &format!("\n\nUnsupported:\n  {}", unsupported.join("\n  "));
    }
    Ok(Answer::new(
        report.overall.exit,
        format!("{text}\nrecord: {}", folder.display()),
    )
    .quiet(args.quiet)
    .noting(notes))
}

/// Problems that it does not take, each with its own words.
fn unsupported(record: &Record) -> Vec<String> {
    let mut lines = BTreeSet::new();
    for row in record.rows.iter().chain(&record.cases) {
        if let (On::Case(place, _), true, Some(note)) =
            (&row.on, row.verdicts.is_empty(), &row.note)
        {
            lines.insert(format!("{place}: {note}"));
        }
    }
    lines.into_iter().collect()
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

/// What can be known of what is no stage.
fn scopes() -> Vec<GateScope> {
    let no = |reason: &str| Measurable::No {
        reason: reason.to_string(),
    };
    GateScope::of_run(|gate| match gate {
        GateId::C1 | GateId::C2 | GateId::C3 | GateId::C4 | GateId::C5 | GateId::C6 => {
            Measurable::Yes
        }
        GateId::C7 => no("`compare sanitize` runs our stages alone"),
        GateId::B1 => no("a candidate has one backend"),
        GateId::H1 => no("hazards are judged in the emulator's build of our kernels"),
        GateId::R1 => no("what a candidate compiles to is not known"),
        GateId::C8 => no("a candidate returns no log-sum-exps"),
        GateId::L1 | GateId::E1 | GateId::S1 => no("a candidate claims nothing"),
    })
}

/// How the timing ended.
enum Ended {
    Whole,
    /// Between two problems.
    Interrupted,
}

/// Times the candidate beside ours and the peers.
struct Timing<'a> {
    args: &'a CandidateArgs,
    /// What `--record` names.
    named: Option<&'a (String, Record)>,
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
        exchange: Exchange,
        measured: &mut Measured,
        recorder: &mut Recorder<'_>,
    ) -> anyhow::Result<Ended> {
        if !state::is_green(&measured.record, &self.subject) {
            return Ok(Ended::Whole); // no number without a green gate
        }
        let mut peers = Python::new(self.program.clone(), Calls::Peers { flash_attn_3: None });
        let (software, missing) = match peers.start() {
            Ok(hello) => (hello.tools(), hello.absent.clone()),
            Err(error) => (
                vec![],
                [("torch-default".to_string(), error.to_string())].into(),
            ),
        };
        let record = &mut measured.record;
        record.meta.tools.insert(Source::Peers, software);
        record
            .meta
            .methods
            .insert(Source::Peers, METHOD.to_string());
        missing
            .iter()
            .for_each(|(peer, reason)| record.append(absent(peer, On::All, reason)));
        let builds = self.ladder.builds();
        let base = self.base(&builds);
        if let Err(reason) = &base {
            record.append(absent("our stages", On::All, reason));
        }
        let plan = TimingPlan {
            samples: self.args.iters.unwrap_or(SAMPLES),
            ..TimingPlan::default()
        };
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
            exchange,
        };
        for (done, timing) in timings.iter().enumerate() {
            if recorder.interrupted.load(Ordering::Relaxed) {
                let planned = timings.len();
                measured.record.meta.peers = Some(Came { to: done, planned });
                return Ok(Ended::Interrupted);
            }
            let place = &timing.place;
            let took = |row: &Row| {
                matches!(&row.on, On::Case(on, _) if on == place) && !row.verdicts.is_empty()
            };
            if !measured.record.cases.iter().any(took) {
                continue; // it does not take the problem
            }
            recorder
                .bars
                .step("timing", &place.to_string(), done, timings.len());
            let item = Item {
                place: place.clone(),
                problem: timing.problem,
                stages: base
                    .as_ref()
                    .map_or(vec![], |base| self.beside(base, &builds, timing)),
            };
            // The candidate first: what a peer writes is right, and not there yet.
            let mut timed = bench.measure(&item, &mut [&mut python, &mut peers])?;
            measured.record.names(&place.shape, timing.problem.shape);
            let (mine, theirs): (Vec<_>, Vec<_>) = timed
                .theirs
                .drain(..)
                .partition(|arm| arm.subject == self.subject);
            for mut mine in mine {
                let least = mine.device_us.iter().copied().fold(f64::INFINITY, f64::min);
                mine.judged
                    .gates
                    .extend(timed.speed_of_light.impossible(least));
                let mine = [mine];
                for rival in timed.ours.iter().chain(&theirs) {
                    let pairs = pairs(rival, &mine, place, &timed.speed_of_light)?;
                    pairs
                        .into_iter()
                        .for_each(|row| measured.record.append(row));
                }
                timed.ours.extend(mine);
            }
            for arm in timed.ours.iter().chain(&theirs) {
                measured.record.append(arm.row(place, timed.cache)?);
            }
            for row in timed.absent() {
                let is_mine = row.subject == self.subject;
                let reason = row.note.clone().unwrap_or_default();
                measured.record.append(match is_mine {
                    true => row.verdict(&rows::not_launched(&reason)),
                    false => row,
                });
            }
        }
        Ok(Ended::Whole)
    }

    /// The record that says which of ours are right and fast here.
    fn base(&self, builds: &[StageBuild]) -> Result<Record, String> {
        if let Err(reason) = &self.ladder.gpu {
            return Err(reason.clone());
        }
        let name = &self.device.info().name;
        let records = match self.named {
            Some(named) => Ok(vec![named.clone()]),
            None => read_all(&machine::results(), Of::Ladder),
        };
        let mut records = records
            .map_err(|error| error.to_string())?
            .into_iter()
            .rev();
        let is_of_this = |record: &Record| {
            record.meta.gpu() == Some(name) && builds.iter().any(|build| record.is_of(build))
        };
        let found = records.find(|(_, record)| is_of_this(record));
        found.map(|(_, record)| record).ok_or_else(|| {
            format!("no record says which of our variants are green on {name}; run `compare`, and name it by --record")
        })
    }

    /// Stages to time it beside on a problem: those that were asked for, else the fastest there.
    fn beside(&self, base: &Record, builds: &[StageBuild], timing: &PlannedTiming) -> Vec<String> {
        let asked = select::stages(&self.args.stages, builds).unwrap_or_default();
        let mut known: Vec<(f64, &StageBuild)> = asked
            .into_iter()
            .filter(|build| base.is_of(build))
            .filter_map(|build| {
                let row = best::best(base, &build.id, &timing.place, |_| true)?;
                Some((best::p50(row), build))
            })
            .collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        let most = if self.args.stages.is_empty() {
            FASTEST
        } else {
            known.len()
        };
        known
            .into_iter()
            .take(most)
            .map(|(_, build)| build.id.clone())
            .collect()
    }
}

/// So many of our stages are timed beside a candidate.
const FASTEST: usize = 2;
