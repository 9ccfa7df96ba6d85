//! `compare run`: plan, execute, record, report.

use crate::answer::{self, Answer};
use crate::estimate;
use crate::interrupt::interrupted;
use crate::judge::Known;
use crate::judge::list::distinct;
use crate::judge::verdict;
use crate::measure::builds::StageBuild;
use crate::measure::execute::{self, Executor};
use crate::measure::input::{self, FileInput};
use crate::measure::join::join;
use crate::measure::machine::{self, Timestamp};
use crate::measure::measured::{ExecuteError, Measured, Sink, SinkError};
use crate::measure::plan::{self, Mode, Plan, PlannedCase, Request};
use crate::measure::rows;
use crate::output::{self, Content, Output, canonical};

use crate::progress::Progress as Bars;
use crate::record::files::{Unfinished, write_atomically};
use crate::record::meta::{DeviceCompiler, GateScope, Measurable, Progress, Tier};
use crate::record::store::read_all;
use crate::record::{Of, On, Record, Row, Source, Subject, tuning_cache};
use crate::registry::{self, Gpus, Ladder};
use crate::tune;
use crate::{pages, render, sass};
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use common::device::BackendKind;
use common::faults;
use common::gate;
use common::limits::DeviceLimits;
use common::problem::Problem;
use common::reference::{Probability, reference};
use common::stage::LoadedStage;
use common::suppression::{Presets, suppress_each};
use common::timing::Plan as TimingPlan;
use common::verdict::GateId;
use safetensors::tensor::TensorView;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "\
Examples:
  compare                                       check everything that this machine can, write COMPARE.md
  compare --quick                               each stage's default variant on five small problems
  compare --stages stage0-scalar --shapes mission --dtypes f16
                                                one stage on one shape, both masks
  compare --shapes 1x8:2x113:203x64             batch 1, 8 query and 2 key heads, 113 queries, 203 keys, head_dim 64
  compare --families large,sink --seeds 0,1,2   hard inputs, three seeds each
  compare --device sm_89 --report l4.md         as on a device with 99 KB of shared memory a block, such as an L4
  compare --input attention.safetensors         real tensors q, k, v (and `out`, if the file has it)
  compare --full --gpus all                     every case of tier T2, shared among the GPUs of this host
  compare --json - --quiet | jq .verdict        every row as JSON on standard output
  compare --into target/compare/20261120T183000Z-nvidia-h200.partial
                                                go on with a run that was interrupted
  compare sanitize                              on a GPU, next: gate C7, without which a whole run is not accepted
  compare accept target/compare/20261120T183000Z-nvidia-h200
                                                take a record into results/ for committing

Exit codes:
  0  every gate passes (claims refuted by a committed negative record included)
  1  a correctness, hazard or resource gate failed, or a claim did without a negative record
  2  wrong usage, unreadable input or an environment that cannot run what was asked; nothing was overwritten
  3  AMBIGUOUS, or NO DATA where data was required
  130  interrupted; what was finished is in the record, and --into goes on";

/// Where kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The GPU if one can be used, else the emulator
    #[default]
    Auto,
    /// An NVIDIA GPU
    Cuda,
    /// The functional emulator; checks, never times
    Emulated,
}

/// The flags of `run`.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub request: Request,
    /// Where to run
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
    /// GPUs of this host that share the cases, a number or `all`; they are to be of one kind. Timing stays on the first
    /// [default: 1]
    #[arg(long, value_name = "N|all", conflicts_with = "input")]
    pub gpus: Option<Gpus>,
    /// Judge what a smaller device could run, by its compute capability: sm_89 for an L4. On a GPU it limits shared memory
    /// and features; kernels and clocks stay those of the GPU [default: $ATTENTION_DEVICE, else the GPU, else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// Run real tensors: a safetensors file with q, k, v [B, H, S, D] in F16, BF16 or F8_E4M3, optionally `out` (theirs or F32),
    /// and q_scale, k_scale, v_scale [B, H] in F32 for F8_E4M3
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shapes", "seeds", "families", "dtypes", "quick", "full"])]
    pub input: Option<PathBuf>,
    /// Write each case's output here as safetensors
    #[arg(long, value_name = "DIR")]
    pub save_outputs: Option<PathBuf>,
    /// Where the run's record goes [default: target/compare]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Add what is missing to a record below target/: of a run that was interrupted, or of another with the same build, GPU
    /// and driver. What it has stays
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "input"])]
    pub into: Option<PathBuf>,
    /// Where the report goes [default: COMPARE.md of the workspace]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write every row as JSON to a file, or to standard output with `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// No table and no progress; what is wrong goes to standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Timed samples per arm, unless `--iters` says otherwise.
const SAMPLES: usize = 500;

/// The same on problems without claims, whose figures are shown and not judged.
const SAMPLES_ELSEWHERE: usize = 100;

/// A record is written at most this often while cases run; an interrupt loses no more than this.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Nor does writing take more than one part in this many of the time: the record of a full run is large.
const WRITE_SHARE: u32 = 20;

/// Ctrl-C. What was finished is kept.
#[derive(Debug, thiserror::Error)]
#[error("interrupted with {finished} of {planned} cases kept; `compare run --into {}` with the same flags goes on", folder.display())]
pub struct Interrupted {
    folder: PathBuf,
    finished: usize,
    planned: usize,
}

/// What a run leaves for the report.
struct Finished {
    /// The folder of the record.
    pub folder: PathBuf,
    pub name: String,
    pub record: Record,
}

/// Runs what `args` ask for, writes the record and what it says, and judges it.
pub fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    let report_path = output::report_path(args.report.as_deref())?;
    let mut outputs = Output::report(&report_path);
    let is_standard_output = args
        .json
        .as_deref()
        .is_some_and(|path| path.as_os_str() == "-");
    let json = args.json.iter().filter(|_| !is_standard_output);
    outputs.extend(json.map(|path| Output {
        flag: "--json",
        path: path.clone(),
        content: Content::Json,
    }));
    output::check(&outputs, &output::input("--input", &args.input))?;
    let Finished {
        folder,
        name,
        record,
    } = measure(args)?;
    let committed = read_all(&machine::results(), Of::Ladder)?;
    // The stages of this very run: on a smaller device they are without what it refuses.
    let known = Known {
        stages: &record.meta.stages,
        run: Some((&name, &record)),
        committed: &committed,
    };
    let report = verdict::report(known);
    render::write(&render::of_run(&report, &folder, &report_path))?;
    let (text, mut notes) = render::told(&report, args.quiet);
    let text = format!(
        "{text}\nrecord: {}\nreport: {}",
        folder.display(),
        report_path.display()
    );
    if let Some(path) = &args.json {
        let json = answer::json(&pages::json::json(&report));
        if is_standard_output {
            // Standard output belongs to the document where that goes there.
            notes.extend((!args.quiet).then_some(text));
            return Ok(Answer::new(report.overall.exit, json).noting(notes));
        }
        write_atomically(path, json.as_bytes())?;
    }
    Ok(Answer::new(report.overall.exit, text)
        .quiet(args.quiet)
        .noting(notes))
}

/// Runs what `args` ask for and writes the record. Nothing else is written.
fn measure(args: &RunArgs) -> anyhow::Result<Finished> {
    let start = Instant::now();
    let started = Timestamp::now();
    let mut ladder = open(args.backend)?;
    let limited = DeviceLimits::asked(args.device)?;
    ladder.limit(limited)?;
    let Ladder { stages, gpu } = &ladder;
    let device = gpu.as_ref().ok();
    let backend = if device.is_some() {
        BackendKind::Cuda
    } else {
        BackendKind::Emulated
    };
    let unheeded = unheeded(args, backend);
    let mut bars = Bars::new(args.quiet);
    if !unheeded.is_empty() {
        bars.say(&format!(
            "note: {} without effect: there is no GPU",
            unheeded.join(" and ")
        ));
    }
    let mut builds = ladder.builds();
    let file = args.input.as_deref().map(FileInput::read).transpose()?;
    let request = Request {
        file: file.as_ref().map(|file| file.problem.clone()),
        ..args.request.clone()
    };
    let mut plan = plan::plan(&builds, &request, backend)?;
    let others = match (device, args.gpus) {
        (Some(device), Some(asked)) => registry::other_gpus(device, asked)?,
        _ => Vec::new(),
    };
    estimate::check(&plan.cases, machine::processors(), estimate::available())?;
    let results = machine::results();
    let mut machine = machine::machine(match gpu {
        Ok(device) => Ok(device.info()),
        Err(reason) => Err(reason.clone()),
    });
    if let Some(device) = limited {
        machine.name += &format!("-as-{device}");
    }
    if !plan.timings.is_empty() {
        let cache = tuning_cache::read(&tune::path_of(&machine.name))?;
        if let Some(cache) = cache.filter(|cache| Some(cache.gpu.as_str()) == machine.gpu.name()) {
            tune::keep_best(
                &mut plan,
                &request,
                &builds,
                &cache,
                &format!("tune/{}.json", machine.name),
            );
        }
    }
    let left_out = plan.bases_left_out(&builds);
    if !plan.timings.is_empty() && !left_out.is_empty() {
        let names = Vec::from_iter(left_out).join(", ");
        bars.say(&format!(
            "note: claims over {names} are not measured: run it too (--stages)"
        ));
    }
    let base_name = format!("{}-{}", started.compact(), machine.name);
    let out = match args.out.as_ref().or(args.into.as_ref()) {
        Some(out) => out.clone(),
        None => machine::root("--out DIR")?.join("target/compare"),
    };
    refuse_committed(&out, &results)?;
    if let Some(path) = &args.save_outputs {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot write to {}", path.display()))?;
    }
    let gates = gate_scopes(&builds, &plan, stages.iter().all(LoadedStage::is_traced));
    let source_lines = stages.iter().all(LoadedStage::has_source_lines);
    // Of what is run, and not where a run is to be quick: a stage's code takes seconds to read.
    let is_run = |build: &&mut StageBuild| plan.tier > Tier::T0 && plan.has_stage(&build.id);
    let code = sass::read(stages, builds.iter_mut().filter(is_run));
    let mut measured = Measured::begin(&started, &plan, &builds, machine, gates, source_lines);
    match code {
        Ok(tool) => {
            let tool =
                tool.map(|tool| (Source::Ptxas, vec![format!("cuobjdump {}", tool.version)]));
            measured.record.meta.tools.extend(tool);
        }
        Err(why) => drop(
            measured
                .record
                .meta
                .methods
                .insert(Source::Ptxas, format!("machine code not read: {why}")),
        ),
    }
    measured.record.meta.device = limited;
    let mut seconds_before = 0;
    if let Some(folder) = &args.into {
        let before = Record::read(folder)?;
        if let Progress::Complete { seconds, .. } = before.meta.progress {
            seconds_before = seconds;
        }
        let name = folder.display().to_string();
        measured = join(&name, before, measured).with_context(|| format!("--into {name}"))?;
    }
    let unfinished = match &args.into {
        Some(folder) => Unfinished::resume(folder)?,
        None => Unfinished::create(&out, &base_name)?,
    };
    let (name, folder) = (unfinished.name(), unfinished.folder().to_path_buf());
    // From here on Ctrl-C leaves a record that `--into` goes on with, if one without a case.
    let interrupted = interrupted().context("cannot wait for signals")?;
    bars.say(&format!(
        "record: {} until the run has ended",
        folder.display()
    ));
    let missing = measured.missing(&plan.cases);
    let is_planned = |stage: &&LoadedStage| {
        missing
            .iter()
            .any(|case| case.subject.stage() == stage.info().id)
    };
    let planned_cases = measured.finished() + missing.len();
    measured.goes_on(planned_cases);
    measured.record.write(&folder)?;
    // Of the others nothing is new: their summaries stand, since what their self-test showed is not known here.
    let (planned, settled): (Vec<&LoadedStage>, Vec<&LoadedStage>) =
        stages.iter().partition(is_planned);
    let settled = settled.iter().map(|stage| stage.info().id.to_string());
    measured.settled = settled.collect();
    let mut done = 0;
    let synchronisation = suppress_each(&planned, Presets::OnePerFamily, |stage| {
        bars.step("self-test", stage.info().id, done, planned.len());
        done += 1;
    });
    let found = rows::self_test(faults::selftest(), &synchronisation);
    measured.record.extend(found);
    measured.broken = synchronisation.map_or(vec![], |suppressed| suppressed.broken);
    if let Some(file) = &file {
        measured.record.extend(judge_given_output(file, &plan));
    }
    measured.record.write(&folder)?;
    let mut recorder = Recorder {
        folder: &folder,
        outputs: args.save_outputs.as_deref(),
        planned: planned_cases,
        builds: &builds,
        write_after: Instant::now() + WRITE_INTERVAL,
        interrupted,
        bars,
    };
    let iters = args.request.iters.filter(|&iters| iters > 0);
    let executor = Executor {
        stages,
        builds: &builds,
        device,
        others: &others,
        file: file.as_ref(),
        callable: None,
        timing: TimingPlan {
            samples: iters.unwrap_or(SAMPLES),
            ..TimingPlan::default()
        },
        samples_elsewhere: iters.unwrap_or(SAMPLES_ELSEWHERE),
        in_flight: execute::in_flight(),
    };
    let outcome = executor.run(&plan, &mut measured, &mut recorder);
    recorder.bars.finish();
    match &outcome {
        Ok(()) => measured.has_ended(seconds_before + start.elapsed().as_secs()),
        Err(_) => measured.goes_on(planned_cases),
    }
    measured.record.write(&folder)?;
    if let Err(ExecuteError::Sink(SinkError::Interrupted)) = outcome {
        bail!(Interrupted {
            folder,
            finished: measured.finished(),
            planned: planned_cases
        });
    }
    outcome.with_context(|| {
        format!(
            "the run stopped; what was finished is in {}",
            folder.display()
        )
    })?;
    let folder = unfinished.finish()?;
    Ok(Finished {
        folder,
        name,
        record: measured.record,
    })
}

/// Flags about GPUs and timing, where there is no GPU. `--iters 0` asks for just that.
fn unheeded(args: &RunArgs, backend: BackendKind) -> Vec<&'static str> {
    let flags = [
        ("--sweep", args.request.sweep),
        ("--iters", args.request.iters.is_some_and(|iters| iters > 0)),
        ("--gpus", args.gpus.is_some()),
    ];
    let given = flags
        .into_iter()
        .filter(|(_, is_given)| *is_given && backend == BackendKind::Emulated);
    given.map(|(flag, _)| flag).collect()
}

/// Refuses to make a record where committed ones are.
fn refuse_committed(out: &Path, results: &Path) -> anyhow::Result<()> {
    let canonical =
        |of: &Path| canonical(of).with_context(|| format!("cannot write to {}", out.display()));
    ensure!(
        !canonical(out)?.starts_with(canonical(results)?),
        "{}: that is where committed records are; run elsewhere, then `compare accept` the record",
        out.display()
    );
    Ok(())
}

/// The ladder, with the GPU where one is wanted.
fn open(backend: Backend) -> anyhow::Result<Ladder> {
    if backend == Backend::Emulated {
        return Ok(Ladder::without_gpu("not asked for: --backend emulated")?);
    }
    match Ladder::open()? {
        Ladder {
            gpu: Err(reason), ..
        } if backend == Backend::Cuda => bail!("--backend cuda: {reason}"),
        ladder => Ok(ladder),
    }
}

/// What this machine, backend and tier can measure.
fn gate_scopes(builds: &[StageBuild], plan: &Plan, traced: bool) -> Vec<GateScope> {
    let not_compiled = builds
        .iter()
        .find_map(|build| match &build.device_compiler {
            DeviceCompiler::Absent { reason } => Some(reason.as_str()),
            DeviceCompiler::Built { .. } => None,
        });
    let ran = || builds.iter().filter(|stage| plan.has_stage(&stage.id));
    let mut kernels = ran()
        .flat_map(|stage| &stage.variants)
        .flat_map(|variant| &variant.kernels);
    let writes_lse = kernels.any(|kernel| kernel.facts.lse);
    let has_evidence = ran().any(|stage| stage.claims.iter().any(|claim| !claim.is_of_speed()));
    let has = |modes: &[Mode]| plan.cases.iter().any(|case| modes.contains(&case.mode));
    // What a gate needs, and what is said where that is missing.
    let needs = |gate: GateId| match gate {
        GateId::C1
        | GateId::C2
        | GateId::C3
        | GateId::C4
        | GateId::C5
        | GateId::C6
        | GateId::S1 => {
            vec![]
        }
        GateId::C7 => vec![(
            false,
            "compute-sanitizer takes a command of its own: `compare sanitize` completes this record on a GPU",
        )],
        GateId::C8 => vec![(writes_lse, "no kernel of this run writes log-sum-exps")],
        GateId::B1 => vec![
            (
                plan.backend != BackendKind::Emulated,
                "one backend alone: a run on a GPU compares its outputs with the emulator's",
            ),
            (
                has(&[Mode::Both]),
                "no case of this run is computed on both backends; those of a tier are",
            ),
        ],
        GateId::H1 => vec![
            (
                plan.backend != BackendKind::Cuda,
                "hazards are judged by the emulator: run with --backend emulated",
            ),
            (
                traced,
                "the C++ compiler has no traced build; g++ 12 or later has",
            ),
            (
                has(&[Mode::Traced, Mode::TracedOnce]),
                "no problem is small enough to be traced",
            ),
        ],
        GateId::R1 => vec![(not_compiled.is_none(), not_compiled.unwrap_or_default())],
        GateId::L1 => vec![(
            !plan.timings.is_empty(),
            "latency is measured on a GPU, and not with --iters 0",
        )],
        GateId::E1 => vec![
            (has_evidence, "no stage of this run states evidence claims"),
            (
                !plan.counted.is_empty(),
                "its claims are about mission, full mask, which is not in this run with f16",
            ),
            (
                traced,
                "the C++ compiler has no traced build, which counts; g++ 12 or later has",
            ),
        ],
    };
    GateScope::of_run(|gate| {
        let unmet = needs(gate).into_iter().find(|(is_met, _)| !is_met);
        unmet.map_or(Measurable::Yes, |(_, reason)| Measurable::No {
            reason: reason.to_string(),
        })
    })
}

/// The file's own `out` under gates C1 to C4, as if it were a stage's output; one row per planned problem.
fn judge_given_output(file: &FileInput, plan: &Plan) -> Vec<Row> {
    let Some(out) = &file.out else {
        return Vec::new();
    };
    let problems = distinct(plan.cases.iter().map(|case| case.problem));
    let judge = |problem: &Problem| {
        let inputs = file.inputs(problem).ok()?;
        let reference = reference(&inputs, Probability::half(problem.dtype)).ok()?;
        let evidence = gate::Evidence {
            problem,
            family: None,
            reference: &reference,
            output: out,
        };
        let (errors, gates) = gate::numeric_gates(&evidence);
        let on = On::Named(format!("out, {} mask", problem.mask));
        let row = Row::new(Subject::from(&*file.problem.name), on, Source::Input);
        Some(rows::judged(row, &errors, &gates))
    };
    problems.iter().filter_map(judge).collect()
}

/// Writes the record as it grows, saves outputs, and shows progress.
pub struct Recorder<'a> {
    pub folder: &'a Path,
    pub outputs: Option<&'a Path>,
    pub planned: usize,
    pub builds: &'a [StageBuild],
    pub write_after: Instant,
    pub interrupted: Arc<AtomicBool>,
    pub bars: Bars,
}

impl Sink for Recorder<'_> {
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.bars.step(kind, label, done, total);
    }

    fn output(&mut self, case: &PlannedCase, output: &[f32]) -> Result<(), SinkError> {
        let Some(folder) = self.outputs else {
            return Ok(());
        };
        let words = format!("{} {}", case.subject, case.on());
        let name: String = words
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let path = folder.join(format!("{name}.safetensors"));
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| SinkError::Unwritable {
            what: format!("the output {} cannot be written", path.display()),
            source,
        };
        let format = case.problem.dtype.output();
        let bytes = format.encode_bytes(output);
        let view = TensorView::new(
            input::stored(format),
            case.problem.shape.q_extents().to_vec(),
            &bytes,
        )
        .map_err(|error| failed(error.to_string().into()))?;
        let file = safetensors::serialize([("out", view)], None)
            .map_err(|error| failed(error.to_string().into()))?;
        write_atomically(&path, &file).map_err(|error| failed(error.into()))
    }

    fn grown(&mut self, measured: &mut Measured) -> Result<(), SinkError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(SinkError::Interrupted); // the run writes the record before it ends
        }
        let start = Instant::now();
        if start < self.write_after {
            return Ok(());
        }
        measured.goes_on(self.planned);
        measured.summarise(self.builds);
        let written = measured
            .record
            .write(self.folder)
            .map_err(|error| SinkError::Unwritable {
                what: format!("the record {} cannot be written", self.folder.display()),
                source: error.into(),
            });
        self.write_after = Instant::now() + WRITE_INTERVAL.max(WRITE_SHARE * start.elapsed());
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_nowhere_into_committed_records() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        for (out, is_refused) in [
            ("results", true),
            ("results/below/it", true),
            ("./results", true),
            ("results-of-mine", false),
            ("target", false),
        ] {
            let outcome = refuse_committed(&folder.path().join(out), &results);
            assert_eq!(outcome.is_err(), is_refused, "{out}");
        }
    }

    #[test]
    fn flags_about_gpus_and_timing_have_no_effect_without_a_gpu() {
        let args = |sweep, iters| RunArgs {
            gpus: Some(Gpus::All).filter(|_| sweep),
            request: Request {
                sweep,
                iters,
                ..Request::default()
            },
            ..RunArgs::default()
        };
        assert_eq!(
            unheeded(&args(true, Some(7)), BackendKind::Emulated),
            ["--sweep", "--iters", "--gpus"]
        );
        for (args, backend) in [
            (args(false, None), BackendKind::Emulated),
            (args(false, Some(0)), BackendKind::Emulated),
            (args(true, Some(7)), BackendKind::Cuda),
        ] {
            assert_eq!(unheeded(&args, backend), [""; 0]);
        }
    }
}
