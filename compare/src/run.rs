//! `compare run`: plan, execute, record, report.

use crate::cli::{Backend, RunArgs};
use crate::estimate::{self, Hopeless};
use crate::input::{FileError, FileInput};
use crate::machine::{self, NoWorkspace, Timestamp};
use crate::measure::builds::StageBuild;
use crate::measure::builds::{builds, metas};
use crate::measure::execute::{ExecuteError, Executor, Measured, Sink, SinkError};
use crate::measure::plan::{self, Mode, Plan};
use crate::measure::rows;
use crate::measure::summary::describe;
use crate::output::canonical;
use crate::progress::Progress as Bars;
use crate::record::files::{Unfinished, write_atomically};
use crate::record::meta::{DeviceCompiler, GateScope, Machine, Measurable, Progress};
use crate::record::store::SCHEMA;
use crate::record::{Meta, On, Record, Row, Source, StoreError, Subject};
use crate::select::SelectError;
use crate::tune::{self, Elites};
use crate::{list, registry};
use common::check::CaseResult;
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::faults;
use common::gate;
use common::limits::{DeviceError, DeviceLimits};
use common::metric::Metric;
use common::problem::Problem;
use common::reference::{Probability, reference};
use common::stage::{LoadError, LoadedStage};
use common::suppression::{Presets, Synchronisation, suppress_each};
use common::timing::Plan as TimingPlan;
use common::verdict::GateId;
use half::f16;
use safetensors::tensor::{Dtype as StoredDtype, TensorView};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timed samples per arm, unless `--iters` says otherwise.
const SAMPLES: usize = 500;

/// The same on problems without claims, whose figures are shown and not judged.
const SAMPLES_ELSEWHERE: usize = 100;

/// Cases that are judged together, per processor: with more than one, no processor waits long for the slowest case.
const IN_FLIGHT_PER_PROCESSOR: usize = 2;

/// A record is written at most this often while cases run; an interrupt loses no more than this.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// Nor does writing take more than one part in this many of the time: the record of a full run is large.
const WRITE_SHARE: u32 = 20;

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A flag names nothing.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The input file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A stage is broken.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device that was asked for cannot stand for this one.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A GPU was asked for.
    #[error("--backend cuda: {reason}")]
    NoGpu {
        /// Why there is none.
        reason: String,
    },
    /// Nobody said where the record goes.
    #[error(transparent)]
    NoWorkspace(#[from] NoWorkspace),
    /// A record becomes a committed one by `compare accept`, which judges it.
    #[error("--out {}: that is where committed records are; run elsewhere, then `compare accept` the record", path.display())]
    Committed {
        /// The path as given.
        path: PathBuf,
    },
    /// It cannot fit or end.
    #[error(transparent)]
    Hopeless(#[from] Hopeless),
    /// A file cannot be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A place for output cannot be written.
    #[error("cannot write to {}", path.display())]
    Unwritable {
        /// The path as given.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The run itself failed.
    #[error("the run stopped; what was finished is in {}", folder.display())]
    Execute {
        /// The unfinished record.
        folder: PathBuf,
        /// What happened.
        #[source]
        source: ExecuteError,
    },
}

/// What a run leaves for the report.
pub struct Finished {
    /// The folder of the record.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
    /// The record.
    pub record: Record,
}

/// Runs what `args` ask for and writes the record. Nothing else is written.
pub fn run(args: &RunArgs) -> Result<Finished, RunError> {
    let start = Instant::now();
    let started = Timestamp::now();
    let mut stages = registry::load()?;
    let gpu = open_gpu(args.backend, &stages)?;
    let device = gpu.as_ref().ok();
    let limited = DeviceLimits::asked(args.device)?;
    registry::limit(&mut stages, device, limited)?;
    let backend = if device.is_some() { BackendKind::Cuda } else { BackendKind::Emulated };
    let unheeded = unheeded(args, backend);
    let mut bars = Bars::new(args.quiet);
    if !unheeded.is_empty() {
        bars.say(&format!("note: {} without effect: nothing is timed without a GPU", unheeded.join(" and ")));
    }
    let builds = builds(&stages);
    let file = args.input.as_deref().map(FileInput::read).transpose()?;
    let mut plan = plan::plan(&builds, args, backend, file.as_ref().map(|file| &file.problem))?;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    estimate::check(&plan.cases, processors, estimate::available())?;
    let results = machine::results();
    let mut machine = machine::machine(match &gpu {
        Ok(device) => Ok(device.info()),
        Err(reason) => Err(reason.clone()),
    });
    if let Some(device) = limited {
        machine.name += &format!("-as-{device}");
    }
    if !plan.timings.is_empty() {
        let elites = Elites::read(&tune::path_of(&machine.name))?;
        if let Some(elites) = elites.filter(|elites| Some(elites.gpu.as_str()) == machine.gpu.name()) {
            tune::keep_elites(&mut plan, args, &builds, &elites, &format!("tune/{}.json", machine.name));
        }
    }
    let base_name = format!("{}-{}", started.compact(), machine.name);
    let out = match &args.out {
        Some(out) => out.clone(),
        None => machine::root("--out DIR")?.join("target/compare"),
    };
    refuse_committed(&out, &results)?;
    if let Some(path) = &args.save_outputs {
        std::fs::create_dir_all(path).map_err(|source| RunError::Unwritable { path: path.clone(), source })?;
    }
    let unfinished = Unfinished::create(&out, &base_name)?;
    let (name, folder) = (unfinished.name(), unfinished.folder().to_path_buf());
    bars.say(&format!("record: {} until the run has ended", folder.display()));
    let gates = gate_scopes(&builds, &plan, stages.iter().all(LoadedStage::is_traced));
    let source_lines = stages.iter().all(LoadedStage::has_source_lines);
    let mut measured = Measured::new(new_record(&started, &plan, &builds, machine, gates, source_lines));
    measured.record.meta.device = limited;
    let planned: Vec<&LoadedStage> =
        stages.iter().filter(|stage| plan.cases.iter().any(|case| case.key.stage == stage.info().id)).collect();
    let mut done = 0;
    let synchronisation = suppress_each(&planned, Presets::OnePerFamily, |stage| {
        bars.step("self-test", stage.info().id, done, planned.len());
        done += 1;
    });
    self_test(&mut measured, synchronisation);
    if let Some(file) = &file {
        judge_given_output(file, &plan).into_iter().for_each(|row| measured.record.append(row));
    }
    measured.record.write(&folder)?;
    let mut recorder = Recorder {
        folder: &folder,
        outputs: args.save_outputs.as_deref(),
        planned: plan.cases.len(),
        builds: &builds,
        write_after: Instant::now() + WRITE_INTERVAL,
        bars,
    };
    let iters = args.iters.filter(|&iters| iters > 0);
    let executor = Executor {
        stages: &stages,
        builds: &builds,
        device,
        file: file.as_ref(),
        timing: TimingPlan { samples: iters.unwrap_or(SAMPLES), ..TimingPlan::default() },
        samples_elsewhere: iters.unwrap_or(SAMPLES_ELSEWHERE),
        in_flight: in_flight(),
    };
    let outcome = executor.run(&plan, &mut measured, &mut recorder);
    recorder.bars.finish();
    let cases = measured.cases.len();
    measured.record.meta.progress = match &outcome {
        Ok(()) => Progress::Complete { cases, seconds: start.elapsed().as_secs() },
        Err(_) => Progress::Partial { finished: cases, planned: plan.cases.len() },
    };
    measured.record.write(&folder)?;
    outcome.map_err(|source| RunError::Execute { folder: folder.clone(), source })?;
    let folder = unfinished.finish()?;
    Ok(Finished { folder, name, record: measured.record })
}

/// What the gates make of planted faults and of kernels without one of their synchronisation sites (gate S1).
fn self_test(measured: &mut Measured, synchronisation: Synchronisation) {
    let record = &mut measured.record;
    match faults::selftest() {
        Ok(subjects) => subjects.iter().map(rows::planted).for_each(|row| record.append(row)),
        Err(error) => record.append(rows::not_tested("planted faults", &error.to_string())),
    }
    match synchronisation {
        Synchronisation::NotTried { reason } => record.append(rows::not_tested("synchronisation", &reason)),
        Synchronisation::Tried { suppressed, .. } => {
            suppressed.sites.iter().map(rows::site).for_each(|row| record.append(row));
            suppressed.errors.iter().map(|error| rows::wrong_list(error)).for_each(|row| record.append(row));
            measured.broken = suppressed.broken;
        }
    }
}

/// Flags that say how to time, where nothing is timed. `--iters 0` asks for just that.
fn unheeded(args: &RunArgs, backend: BackendKind) -> Vec<&'static str> {
    let flags = [("--sweep", args.sweep), ("--iters", args.iters.is_some_and(|iters| iters > 0))];
    let given = flags.into_iter().filter(|(_, is_given)| *is_given && backend == BackendKind::Emulated);
    given.map(|(flag, _)| flag).collect()
}

/// Refuses to make a record where committed ones are.
fn refuse_committed(out: &Path, results: &Path) -> Result<(), RunError> {
    let path = || out.to_path_buf();
    let canonical = |of: &Path| canonical(of).map_err(|source| RunError::Unwritable { path: path(), source });
    match canonical(out)?.starts_with(canonical(results)?) {
        true => Err(RunError::Committed { path: path() }),
        false => Ok(()),
    }
}

/// Cases that may wait to be judged together.
pub fn in_flight() -> usize {
    IN_FLIGHT_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// A record of what `plan` sets out to do, with what was built, before any of it is done.
pub fn new_record(
    started: &Timestamp,
    plan: &Plan,
    builds: &[StageBuild],
    machine: Machine,
    gates: Vec<GateScope>,
    source_lines: bool,
) -> Record {
    let mut record = Record::new(Meta {
        schema: SCHEMA,
        started: started.iso(),
        progress: Progress::Partial { finished: 0, planned: plan.cases.len() },
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        command: machine::command_line(),
        git: machine::git(),
        machine,
        tier: plan.tier,
        backend: plan.backend,
        scope: plan.scope.clone(),
        device: None,
        toggles: machine::toggles(),
        source_lines,
        gates,
        tools: Default::default(),
        methods: Default::default(),
        left_out: vec![],
        shapes: Default::default(),
        stages: metas(builds),
        negative: None,
    });
    builds.iter().flat_map(rows::built).for_each(|row| record.append(row));
    record
}

/// The GPU, or why there is none; an error only if one was asked for.
fn open_gpu(backend: Backend, stages: &[LoadedStage]) -> Result<Result<CudaDevice, String>, RunError> {
    if backend == Backend::Emulated {
        return Ok(Err("not asked for: --backend emulated".to_string()));
    }
    match (list::gpu(stages), backend) {
        (Err(reason), Backend::Cuda) => Err(RunError::NoGpu { reason }),
        (opened, _) => Ok(opened),
    }
}

/// What this machine, backend and tier can measure.
fn gate_scopes(builds: &[StageBuild], plan: &Plan, traced: bool) -> Vec<GateScope> {
    let no = |reason: &str| Measurable::No { reason: reason.to_string() };
    let compiled = builds.iter().find_map(|build| match &build.device_compiler {
        DeviceCompiler::Absent { reason } => Some(reason.clone()),
        DeviceCompiler::Built { .. } => None,
    });
    let scope = |gate: GateId| match gate {
        GateId::C1 | GateId::C2 | GateId::C3 | GateId::C4 | GateId::C5 | GateId::C6 => Measurable::Yes,
        GateId::C7 => {
            no("compute-sanitizer takes a command of its own: `compare sanitize` completes this record on a GPU")
        }
        GateId::B1 if plan.backend == BackendKind::Emulated => {
            no("one backend alone: a run on a GPU compares its outputs with the emulator's")
        }
        GateId::B1 if !plan.cases.iter().any(|case| case.mode == Mode::Both) => {
            no("no case of this run is computed on both backends; those of a tier are")
        }
        GateId::B1 => Measurable::Yes,
        GateId::H1 if plan.backend == BackendKind::Cuda => {
            no("hazards are judged by the emulator: run with --backend emulated")
        }
        GateId::H1 if !traced => no("the C++ compiler has no traced build; g++ 12 or later has"),
        GateId::H1 if !plan.cases.iter().any(|case| matches!(case.mode, Mode::Traced | Mode::TracedOnce)) => {
            no("no problem is small enough to be traced")
        }
        GateId::H1 => Measurable::Yes,
        GateId::R1 => compiled.clone().map_or(Measurable::Yes, |reason| Measurable::No { reason }),
        GateId::L1 if plan.timings.is_empty() => no("latency is measured on a GPU, and not with --iters 0"),
        GateId::L1 => Measurable::Yes,
        GateId::E1
            if !builds
                .iter()
                .any(|stage| stage.claims.iter().any(|claim| !claim.is_of_speed()) && plan.has_stage(&stage.id)) =>
        {
            no("no stage of this run states evidence claims")
        }
        GateId::E1 if plan.counted.is_empty() => {
            no("its claims are about mission, full mask, which is not in this run with f16")
        }
        GateId::E1 if !traced => no("the C++ compiler has no traced build, which counts; g++ 12 or later has"),
        GateId::E1 | GateId::S1 => Measurable::Yes,
    };
    use GateId::{B1, C1, C2, C3, C4, C5, C6, C7, E1, H1, L1, R1};
    [C1, C2, C3, C4, C5, C6, C7, B1, H1, R1, L1, E1].map(|gate| GateScope { gate, measurable: scope(gate) }).to_vec()
}

/// The file's own `out` under gates C1 to C4, as if it were a stage's output; one row per planned problem.
fn judge_given_output(file: &FileInput, plan: &Plan) -> Vec<Row> {
    let Some(out) = &file.out else { return Vec::new() };
    let mut problems: Vec<Problem> = Vec::new();
    for case in &plan.cases {
        if !problems.contains(&case.problem) {
            problems.push(case.problem);
        }
    }
    let judge = |problem: &Problem| {
        let inputs = file.inputs(problem).ok()?;
        let reference = reference(&inputs, Probability::F16).ok()?;
        let evidence = gate::Evidence { problem, family: None, reference: &reference, output: out };
        let (errors, gates) = gate::numeric_gates(&evidence);
        let on = On::Named(format!("out, {} mask", problem.mask));
        let row = Row::new(Subject::from(&*file.problem.name), on, Source::Input);
        Some(gates.iter().fold(row.figure(Metric::MaxError, errors.max_abs), |row, result| row.verdict(result)))
    };
    problems.iter().filter_map(judge).collect()
}

/// Writes the record as it grows, saves outputs, and shows progress.
struct Recorder<'a> {
    folder: &'a Path,
    outputs: Option<&'a Path>,
    planned: usize,
    builds: &'a [StageBuild],
    write_after: Instant,
    bars: Bars,
}

impl Sink for Recorder<'_> {
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.bars.step(kind, label, done, total);
    }

    fn output(&mut self, result: &CaseResult, output: &[f16]) -> Result<(), SinkError> {
        let Some(folder) = self.outputs else { return Ok(()) };
        let key = &result.key;
        let words = format!("{}/{} {}", key.stage, key.variant, describe(key));
        let name: String =
            words.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
        let path = folder.join(format!("{name}.safetensors"));
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| SinkError {
            what: format!("the output {} cannot be written", path.display()),
            source,
        };
        let bytes: Vec<u8> = output.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(StoredDtype::F16, key.shape.q_extents().to_vec(), &bytes)
            .map_err(|error| failed(error.to_string().into()))?;
        let file = safetensors::serialize([("out", view)], None).map_err(|error| failed(error.to_string().into()))?;
        write_atomically(&path, &file).map_err(|error| failed(error.into()))
    }

    fn grown(&mut self, measured: &mut Measured) -> Result<(), SinkError> {
        let start = Instant::now();
        if start < self.write_after {
            return Ok(());
        }
        let finished = measured.cases.len();
        measured.record.meta.progress = Progress::Partial { finished, planned: self.planned };
        measured.summarise(self.builds);
        let written = measured.record.write(self.folder).map_err(|error| SinkError {
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
    fn flags_about_timing_have_no_effect_without_a_gpu() {
        let args = |sweep, iters| RunArgs { sweep, iters, ..RunArgs::default() };
        assert_eq!(unheeded(&args(true, Some(7)), BackendKind::Emulated), ["--sweep", "--iters"]);
        for (args, backend) in [
            (args(false, None), BackendKind::Emulated),
            (args(false, Some(0)), BackendKind::Emulated),
            (args(true, Some(7)), BackendKind::Cuda),
        ] {
            assert_eq!(unheeded(&args, backend), [""; 0]);
        }
    }
}
