//! `compare run`: plan, execute, record, report.

use crate::answer::{self, Answer};
use crate::estimate;
use crate::interrupt::interrupted;
use crate::judge::list::distinct;
use crate::judge::verdict;
use crate::judge::{Known, best};
use crate::measure::execute::Executor;
use crate::measure::input::{self, FileInput};
use crate::measure::machine::{self, Timestamp};
use crate::measure::meta::{begin, gate_scopes};
use crate::measure::plan::{self, Plan, PlannedCase, PlannedTiming, Request};
use crate::measure::rows;
use crate::measure::sink::{ExecuteError, Sink};
use crate::measure::summary::summarise;
use crate::output::{self, canonical};
use crate::pages::files;
use crate::progress::Progress as Bars;
use crate::record::StageMeta;
use crate::record::files::{Unfinished, write_atomically};
use crate::record::meta::Tier;
use crate::record::{On, Record, Results, Row, Source, Subject};
use crate::registry::Ladder;
use crate::{instrument, pages};
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
use safetensors::tensor::TensorView;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const EXAMPLES: &str = "\
Examples:
  compare                                       check everything that this machine can; on a GPU, write COMPARE.md
  compare --stages 5 --shapes mission,1x8:2x113:203x64 --dtypes f16
                                                a stage on two shapes; the second has 8 query and 2 key heads, 113 queries, 203 keys
  compare accept target/compare/20261120T183000Z-nvidia-h200
                                                copy a record into results/ for committing

Exit codes:
  0  every gate passes, and every claim that fails is refuted by a committed negative record
  1  a correctness, hazard or resource gate failed, or a claim failed without a negative record
  2  wrong usage, unreadable input, or an environment that cannot run what was asked
  3  AMBIGUOUS, or NO DATA where data is required
  130  interrupted; what finished is in the record";

/// Where kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The GPU if one can be used, else the emulator
    #[default]
    Auto,
    /// An NVIDIA GPU
    Cuda,
    /// The functional emulator: checks, never times
    Emulated,
}

/// The flags of `run`.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub request: Request,
    /// Where kernels run
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
    /// Judge only what a smaller device could run, given by its compute capability: sm_89 for an L4. On a GPU this limits
    /// shared memory and features; machine code and clocks stay those of the GPU [default: $ATTENTION_DEVICE, else the GPU,
    /// else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// Run real tensors from a safetensors file: q, k, v [B, H, S, D] in F16, BF16 or F8_E4M3; for F8_E4M3 also q_scale, k_scale,
    /// v_scale [B, H] in F32; optionally `out`, in the output type or F32, which is judged too
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shapes", "seeds", "families", "dtypes", "quick", "full"])]
    pub input: Option<PathBuf>,
    /// Write the output of each case to this folder, as safetensors
    #[arg(long, value_name = "DIR")]
    pub save_outputs: Option<PathBuf>,
    /// Write the run's record below this folder [default: target/compare]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the report to this file, too [default: on a GPU, COMPARE.md of the workspace]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write every row as JSON to a file, or to standard output with `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Print no table and no progress; failures go to standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Timed samples per arm without `--iters`.
const SAMPLES: usize = 500;

/// The same on problems without claims, whose figures are shown but not judged.
const SAMPLES_ELSEWHERE: usize = 100;

/// The record is written at most this often while cases run; a kill loses no more than this.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Writing takes at most one part in this many of the time: the record of a full run is large.
const WRITE_SHARE: u32 = 20;

/// Runs what `args` ask for, and writes the record and its report.
pub fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    let ladder = open(args.backend)?;
    // Without a GPU, the committed COMPARE.md knows more than this run does.
    let report_path = match (&args.report, &ladder.gpu) {
        (None, Err(_)) => None,
        (asked, _) => Some(output::report_path(asked.as_deref())?),
    };
    let json = args.json.as_deref();
    let json_file = json.filter(|path| path.as_os_str() != "-");
    output::check(
        &[("--report", report_path.as_deref()), ("--json", json_file)],
        &[("--input", args.input.as_deref())],
    )?;
    let committed = Results::read(&machine::results())?;
    let (folder, record) = measure(args, ladder, &committed)?;
    let table = committed.of_gpu(&record.meta.machine.name);
    let report = verdict::report_of_run(&record, &table);
    files::write(&files::report(&report, &folder, report_path.as_deref()))?;
    let (text, mut notes) = files::summary(&report, args.quiet);
    let place = match &report_path {
        Some(path) => path.display().to_string(),
        None => format!(
            "{}; without a GPU the workspace's COMPARE.md stays as it is",
            folder.join("COMPARE.md").display()
        ),
    };
    let text = format!("{text}\nrecord: {}\nreport: {place}", folder.display());
    if json.is_some() {
        let json = answer::json(&pages::json::json(&report));
        let Some(path) = json_file else {
            // Standard output belongs to the document.
            notes.extend((!args.quiet).then_some(text));
            return Ok(Answer::new(report.overall.exit, json).noting(notes));
        };
        write_atomically(path, json.as_bytes())?;
    }
    Ok(Answer::new(report.overall.exit, text)
        .quiet(args.quiet)
        .noting(notes))
}

/// Runs what `args` ask for and writes the record, which is returned with its folder. Nothing else is written.
fn measure(
    args: &RunArgs,
    mut ladder: Ladder,
    committed: &Results,
) -> anyhow::Result<(PathBuf, Record)> {
    let start = Instant::now();
    let started = Timestamp::now();
    let limited = DeviceLimits::asked(args.device)?;
    ladder.limit(limited)?;
    let Ladder { stages, gpu, .. } = &ladder;
    let device = gpu.as_ref().ok();
    let backend = if device.is_some() {
        BackendKind::Cuda
    } else {
        BackendKind::Emulated
    };
    let bars = Bars::new(args.quiet);
    if device.is_none() && args.request.iters.is_some_and(|iters| iters > 0) {
        bars.say("note: without a GPU --iters has no effect");
    }
    let mut builds = ladder.builds();
    let file = args.input.as_deref().map(FileInput::read).transpose()?;
    let request = Request {
        file: file.as_ref().map(|file| file.problem.clone()),
        ..args.request.clone()
    };
    let mut plan = plan::plan(&builds, &request, backend)?;
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
        let table = committed.of_gpu(&machine.name);
        let known = Known::committed(&builds, &table);
        plan.leave_out_slow(&request, |timing| known_us(&known, timing));
        let left_out = Vec::from_iter(plan.bases_left_out(&builds));
        if !left_out.is_empty() {
            bars.say(&format!(
                "note: claims over {} are not measured; add it to --stages",
                left_out.join(", ")
            ));
        }
    }
    let base_name = format!("{}-{}", started.compact(), machine.name);
    let out = match &args.out {
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
    // Only for stages that run, and not in a quick run: reading a stage's code takes seconds.
    let is_run = |build: &&mut StageMeta| plan.tier > Tier::T0 && plan.has_stage(&build.id);
    let code = instrument::cuobjdump::count_instructions(stages, builds.iter_mut().filter(is_run));
    let unfinished = Unfinished::create(&out, &base_name)?;
    let folder = unfinished.folder().to_path_buf();
    let name = unfinished.name();
    let mut record = begin(
        &name,
        &started,
        &plan,
        &builds,
        machine,
        gates,
        source_lines,
    );
    record.meta.device = limited;
    let read_by = match code {
        Ok(tool) => tool.map(|tool| format!("cuobjdump {}", tool.version)),
        Err(why) => Some(format!("machine code not read: {why}")),
    };
    let read_by = read_by.map(|tool| (Source::Ptxas, vec![tool]));
    record.meta.tools.extend(read_by);
    let is_planned = |stage: &&LoadedStage| plan.has_stage(stage.info().id);
    let planned: Vec<&LoadedStage> = stages.iter().filter(is_planned).collect();
    let planned_cases = plan.cases.len();
    bars.say(&format!(
        "record: {} (renamed when the run ends)",
        folder.display()
    ));
    let mut recorder = Recorder::new(&folder, &plan.cases, bars)?;
    recorder.outputs = args.save_outputs.as_deref();
    // From here on, Ctrl-C leaves a record.
    record.write(&folder)?;
    let mut done = 0;
    let synchronisation = suppress_each(&planned, Presets::OnePerFamily, |stage| {
        let total = planned.len();
        recorder.starts("self-test", stage.info().id, done, total);
        done += 1;
    });
    record.extend(rows::self_test(faults::selftest(), &synchronisation));
    if let Some(file) = &file {
        record.extend(judge_given_output(file, &plan));
    }
    record.write(&folder)?;
    let iters = args.request.iters.filter(|&iters| iters > 0);
    let executor = Executor {
        device,
        file: file.as_ref(),
        timing: TimingPlan {
            samples: iters.unwrap_or(SAMPLES),
            ..TimingPlan::default()
        },
        samples_elsewhere: iters.unwrap_or(SAMPLES_ELSEWHERE),
        ..Executor::new(&plan, stages)
    };
    let outcome = executor.run(&mut record, &mut recorder);
    recorder.bars.finish();
    match &outcome {
        Ok(()) => record.has_ended(start.elapsed().as_secs()),
        Err(_) => record.goes_on(planned_cases),
    }
    record.write(&folder)?;
    outcome.with_context(|| {
        format!(
            "the run stopped after {} of {planned_cases} cases; what it finished is in {}, and a run with --stages or --shapes \
             measures the rest",
            record.all_cases().count(),
            folder.display()
        )
    })?;
    Ok((unfinished.finish()?, record))
}

/// What the committed table of this GPU says that a timing takes on the kernel as it is now, in microseconds.
fn known_us(known: &Known<'_>, timing: &PlannedTiming) -> Option<f64> {
    let row = best::time(&known.table, &timing.subject, &timing.place)?;
    (!known.is_stale(row)).then(|| best::p50(row))
}

/// Refuses to write a record among the committed ones.
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

/// The ladder, with the GPU if the backend wants one.
fn open(backend: Backend) -> anyhow::Result<Ladder> {
    if backend == Backend::Emulated {
        return Ladder::without_gpu("not asked for: --backend emulated");
    }
    match Ladder::open()? {
        Ladder {
            gpu: Err(reason), ..
        } if backend == Backend::Cuda => bail!("--backend cuda: {reason}"),
        ladder => Ok(ladder),
    }
}

/// Judges the file's own `out` by gates C1 to C4, as if a stage had written it; one row per planned problem.
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
    folder: &'a Path,
    /// Where outputs are saved, if anywhere.
    outputs: Option<&'a Path>,
    planned: &'a [PlannedCase],
    write_after: Instant,
    pub interrupted: Arc<AtomicBool>,
    pub bars: Bars,
}

impl<'a> Recorder<'a> {
    /// For a record in `folder` that will have the `planned` cases. From here on, Ctrl-C ends the run instead of the process.
    pub fn new(folder: &'a Path, planned: &'a [PlannedCase], bars: Bars) -> anyhow::Result<Self> {
        Ok(Self {
            folder,
            outputs: None,
            planned,
            write_after: Instant::now() + WRITE_INTERVAL,
            interrupted: interrupted().context("cannot wait for signals")?,
            bars,
        })
    }
}

impl Sink for Recorder<'_> {
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.bars.step(kind, label, done, total);
    }

    fn output(&mut self, case: &PlannedCase, output: &[f32]) -> Result<(), ExecuteError> {
        let Some(folder) = self.outputs else {
            return Ok(());
        };
        let is_kept = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name = format!("{} {}.safetensors", case.subject, case.on());
        let path = folder.join(name.replace(|c| !is_kept(c), "-"));
        let format = case.problem.dtype.output();
        let bytes = format.encode_bytes(output);
        let extents = case.problem.shape.q_extents().to_vec();
        let file = TensorView::new(input::stored(format), extents, &bytes)
            .and_then(|view| safetensors::serialize([("out", view)], None));
        let written = match file {
            Ok(file) => write_atomically(&path, &file).map_err(Into::into),
            Err(error) => Err(error.into()),
        };
        written.map_err(|source| ExecuteError::Unwritable {
            what: format!("the output {}", path.display()),
            source,
        })
    }

    fn grown(&mut self, record: &mut Record) -> Result<(), ExecuteError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(ExecuteError::Interrupted); // the run writes the record before it ends
        }
        let start = Instant::now();
        if start < self.write_after {
            return Ok(());
        }
        record.goes_on(self.planned.len());
        summarise(record, self.planned);
        let written = record
            .write(self.folder)
            .map_err(|error| ExecuteError::Unwritable {
                what: format!("the record {}", self.folder.display()),
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
}
