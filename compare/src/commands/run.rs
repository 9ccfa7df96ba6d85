//! `compare run`: plan, execute, record, report.

use crate::answer::Answer;
use crate::document::terminal;
use crate::instrument;
use crate::judge::choice::{self, Regret};
use crate::judge::list::distinct;
use crate::judge::{View, verdict};
use crate::measure::estimate::{self, Planned, Took};
use crate::measure::execute::Executor;
use crate::measure::input::FileInput;
use crate::measure::limits;
use crate::measure::machine;
use crate::measure::plan::{self, Plan, Request};
use crate::measure::self_test::{Kept, SelfTest};
use crate::measure::session::begin;
use crate::measure::sink::ExecuteError;
use crate::measure::summary::summarise;
use crate::measure::timer::Timer;
use crate::pages::{files, json, summary};
use crate::progress::say;
use crate::recorder::Recorder;
use crate::stages::{self, Backend, Ladder};
use crate::table::StageMeta;
use crate::table::files::{create_folder, name_of};
use crate::table::session::{Progress, Tier};
use crate::table::{Kind, Results, Row, Run, Source};
use anyhow::{Context, ensure};
use clap::Args;
use common::choice::Model;
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::gate;
use common::limits::DeviceLimits;
use common::problem::Problem;
use common::reference::{Probability, reference};
use common::stage::LoadedStage;
use std::path::{Path, PathBuf, absolute};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  compare                                       check every variant, and time it on a GPU; the run's folder has the report, on a
                                                GPU COMPARE.md too
  compare --full                                the same on every input family, and on a GPU on every small shape: for a table
  compare --stages 5 --shapes mission,1x8:2x113:203x64 --dtypes f16
                                                a stage on two shapes; the second has 8 query and 2 key heads, 113 queries, 203 keys
  compare --random-problems 160 --backend cuda  on a GPU, judge the library's choice on random problems; accepted, fit it to them
  compare accept target/compare/20261120T183000Z-nvidia-h200
                                                copy a run into results/ for committing

Exit codes:
  0  every gate passes, and every claim that fails is recorded as refuted
  1  a correctness, hazard or resource gate failed, or a claim failed that is not recorded as refuted
  2  wrong usage, unreadable input, or an environment that cannot run what was asked
  3  undecided, or not measured where data is required
  130  interrupted; what finished is in the run";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
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
    /// Write the run's folder below this one [default: target/compare]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON, whose fields docs/rows.md names; progress goes to standard error
    #[arg(long)]
    pub json: bool,
    /// Run the self-test (planted faults, kernels without a barrier or wait) again, although this program has passed it before
    #[arg(long)]
    pub selftest: bool,
}

pub fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    let ladder = args.backend.open()?;
    if args.request.random_problems.is_some() {
        ladder.gpu_to("time random problems")?;
    }
    let committed = Results::read(&machine::results())?;
    // What cannot be read ends the run before it measures anything.
    let choice = match args.request.random_problems {
        Some(_) => Some(LibraryChoice::read(&committed)?),
        None => None,
    };
    let (folder, run) = measure(args, ladder, choice)?;
    let table = committed.of_gpu(&run.session.machine.name);
    let report = verdict::report_of_checks(&run, &table);
    let places = files::write_report(&report, &folder, machine::workspace().as_deref())?;
    let overall = report.overall();
    if args.json {
        return Answer::json(overall.exit, &json::Run::new(&report, &overall, &folder));
    }
    // Tensors of the user's own are no question to the table.
    let beside = args.input.is_none().then(|| {
        let view = View::committed(&run.session.stages, &table);
        summary::committed(&view)
    });
    let page = summary::document(&report, beside.flatten());
    let text = terminal::render(&page, terminal::width());
    let text = format!("{}\n{places}", text.trim_end());
    Ok(Answer::new(overall.exit, text))
}

fn measure(
    args: &RunArgs,
    mut ladder: Ladder,
    choice: Option<LibraryChoice>,
) -> anyhow::Result<(PathBuf, Run)> {
    let started = machine::now();
    let limited = DeviceLimits::asked(args.device)?;
    ladder.limit(limited)?;
    let mut builds = ladder.builds()?;
    let file = args.input.as_deref().map(FileInput::read).transpose()?;
    let gpu = ladder.gpu.as_ref().map(CudaDevice::info);
    let machine = machine::machine(gpu.map_err(String::clone));
    let backend = match ladder.gpu {
        Ok(_) => BackendKind::Cuda,
        Err(_) => BackendKind::Emulated,
    };
    if backend == BackendKind::Emulated && args.request.cases.iters.is_some_and(|iters| iters > 0) {
        say("note: without a GPU --iters has no effect");
    }
    let request = Request {
        file: file.as_ref().map(|file| file.problem.clone()),
        ..args.request.clone()
    };
    let plan = plan::plan(&builds, &request, backend)?;
    limits::check_cases(&plan.cases)?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => machine::root("give --out DIR")?.join("target/compare"),
    };
    refuse_committed(&out, &machine::results())?;
    let folder = create_folder(
        &out,
        &format!("{}-{}", machine::compact(started), machine.name),
    )?;
    let stages = &ladder.stages;
    // Reading a stage's code takes seconds.
    let read_by = (plan.tier > Tier::T0).then(|| read_machine_code(stages, &plan, &mut builds));
    let mut run = begin(&name_of(&folder), &plan, stages, &builds, machine);
    run.session.device = limited;
    run.session.input = args.input.clone();
    let read_by = read_by.map(|tool| (Source::Ptxas, vec![tool]));
    run.session.tools.extend(read_by);
    say(&format!("run: {}", folder.display()));
    let times = machine::workspace().map(|root| root.join("target/compare"));
    let before = times.as_deref().map(estimate::read).unwrap_or_default();
    let planned = Planned {
        cases: plan.cases.len(),
        timings: plan.timings.len(),
    };
    say(&estimate::line(&before, plan.tier, backend, planned));
    let begun = Instant::now();
    // Before a GPU works for nothing.
    if ladder.gpu.is_ok()
        && let Some(reason) = run.session.unacceptable()
    {
        say(&format!("`compare accept` will refuse this run: {reason}"));
    }
    let mut recorder = Recorder::new(&folder, &plan.cases)?;
    // From here on, Ctrl-C leaves a folder that can be read.
    run.write(&folder)?;
    let gpu = ladder.gpu.as_ref().ok();
    run.extend(
        file.iter()
            .flat_map(|file| judge_given_output(file, &plan, gpu)),
    );
    run.write(&folder)?;
    let mut executor = Executor {
        device: gpu,
        timer: gpu.map(|device| device as &dyn Timer),
        file: file.as_ref(),
        ..Executor::new(&plan, stages)
    };
    if let Some(iters) = args.request.cases.iters.filter(|&iters| iters > 0) {
        (executor.timing.samples, executor.samples_elsewhere) = (iters, iters);
    }
    let outcome = executor.run(&mut run, &mut recorder).and_then(|()| {
        // Last: figures come first, and none of them is shown of a kernel that it finds broken.
        self_test(args, &plan, stages, limited, &mut run, &mut recorder)
    });
    if !plan.draws.is_empty() {
        let device = stages.first().and_then(|stage| stage.device);
        let regret = choice.and_then(|choice| choice.regret(&run, device));
        run.extend(regret.iter().map(Regret::row));
    }
    match &outcome {
        Ok(()) => {
            let cases = run.cases().count();
            run.session.progress = Progress::Complete { cases };
            if let Some(times) = times.filter(|times| times.is_dir()) {
                let done = Planned { cases, ..planned };
                let took = Took::new(plan.tier, backend, done, begun.elapsed());
                estimate::keep(&times, took.sustained(estimate::sustained(&run)));
            }
        }
        Err(_) => run.goes_on(plan.cases.len()),
    }
    run.write(&folder)?;
    outcome.with_context(|| {
        format!(
            "the run stopped after {} of {} cases; what it finished is in {}, and a run with --stages or --shapes measures the rest",
            run.cases().count(),
            plan.cases.len(),
            folder.display()
        )
    })?;
    Ok((folder, run))
}

/// The library's choice: what it chooses among, and what it knows of GPUs' times.
struct LibraryChoice {
    stages: Vec<LoadedStage>,
    models: Vec<Model>,
}

impl LibraryChoice {
    /// Reads it from the workspace, and refuses a model that is not what was fitted to its table; outside of the workspace it knows
    /// nothing.
    fn read(committed: &Results) -> anyhow::Result<Self> {
        let models = match machine::workspace() {
            Some(root) => {
                let folder = root.join(stages::CHOICE);
                committed.verify_choices(&folder)?;
                stages::models(&folder)?
            }
            None => vec![],
        };
        Ok(Self {
            stages: stages::library()?,
            models,
        })
    }

    /// Judges it on the random problems of a run on `device`.
    fn regret(mut self, run: &Run, device: Option<DeviceLimits>) -> Option<Regret> {
        for stage in &mut self.stages {
            stage.device = device;
        }
        choice::regret(&View::alone(run), &self.stages, &self.models)
    }
}

/// Adds figures of the machine code to the builds of stages that run, and names the tool that read it, or why none did.
fn read_machine_code(stages: &[LoadedStage], plan: &Plan, builds: &mut [StageMeta]) -> String {
    let is_run = |build: &&mut StageMeta| plan.has_stage(&build.id);
    match instrument::cuobjdump::count_instructions(stages, builds.iter_mut().filter(is_run)) {
        Ok(tool) => format!("cuobjdump {}", tool.version),
        Err(why) => format!("machine code not read: {why}"),
    }
}

/// Tests the gates, and of kernels on generated inputs their synchronisation; random problems follow other runs.
fn self_test(
    args: &RunArgs,
    plan: &Plan,
    stages: &[LoadedStage],
    device: Option<DeviceLimits>,
    run: &mut Run,
    recorder: &mut Recorder<'_>,
) -> Result<(), ExecuteError> {
    if !plan.draws.is_empty() {
        return Ok(());
    }
    let is_due = |stage: &&LoadedStage| args.input.is_none() && plan.has_stage(stage.info().id);
    // In the workspace, which has one build for all folders of runs.
    let root = machine::workspace().map(|root| root.join("target/compare"));
    let folder = root.or(args.out.clone()).map(|root| root.join(KEPT));
    let kept = folder.and_then(|folder| Kept::new(&folder, device, args.selftest).ok());
    let tested = SelfTest {
        stages: stages.iter().filter(is_due).collect(),
        kept,
    };
    if tested.run(run, recorder)? > 0 {
        say("self-test: passed before by this program; --selftest runs it again");
    }
    summarise(run, &plan.cases);
    Ok(())
}

/// Where self-tests are kept, below a folder of runs; whatever lists those skips it.
const KEPT: &str = ".self-test";

fn refuse_committed(out: &Path, results: &Path) -> anyhow::Result<()> {
    ensure!(
        !absolute(out)?.starts_with(absolute(results)?),
        "{}: that is where committed tables are; run elsewhere, then `compare accept` the run",
        out.display()
    );
    Ok(())
}

/// Judges the file's own `out` by gates C1 to C4, as if a stage had written it; one row per planned problem.
fn judge_given_output(file: &FileInput, plan: &Plan, gpu: Option<&CudaDevice>) -> Vec<Row> {
    let Some(out) = &file.out else {
        return Vec::new();
    };
    let problems = distinct(plan.cases.iter().map(|case| case.problem));
    let judge = |problem: &Problem| {
        let inputs = file.inputs(problem).ok()?;
        let p = Probability::half(problem.dtype);
        let reference = match gpu {
            Some(device) => device.reference(&inputs, p),
            None => reference(&inputs, p),
        };
        // What has no reference here ends the run at its first case.
        let reference = reference.ok()?;
        let evidence = gate::Evidence {
            problem,
            family: None,
            reference: &reference,
            output: out,
        };
        let (errors, gates) = gate::numeric_gates(&evidence);
        let kind = Kind::GivenOutput(format!("out, {} mask", problem.mask));
        let row = Row::new(&*file.problem.name, kind);
        Some(row.judged(&errors, &gates))
    };
    problems.iter().filter_map(judge).collect()
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
