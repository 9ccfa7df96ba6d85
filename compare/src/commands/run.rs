//! `compare run`: plan, execute, record, report.

use crate::answer::{Answer, gpu_to};
use crate::progress::say;
use crate::recorder::Recorder;
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
use document::terminal;
use measure::estimate::{self, Spent, Took, Work};
use measure::execute::Executor;
use measure::input::FileInput;
use measure::instrument;
use measure::limits;
use measure::machine;
use measure::plan::{self, Plan, Request};
use measure::self_test::{Kept, SelfTest};
use measure::session::{Start, begin};
use measure::sink::ExecuteError;
use measure::summary::summarise;
use measure::timer::Timer;
use pages::{files, json, summary};
use results::judge::list::distinct;
use results::judge::regret::Regret;
use results::judge::{View, verdict};
use results::table::StageMeta;
use results::table::files::{create_folder, name_of};
use results::table::session::{Git, Machine, Progress, Tier};
use results::table::{Kind, ProblemPlace, Results, Row, Run, Source, Subject};
use results::workspace;
use stages::{Backend, Ladder};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf, absolute};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  compare                                       check every variant, and time it on a GPU; the \
run's folder has the report, on a
                                                GPU COMPARE.md too
  compare --full                                the same on every input family, and on a GPU on \
every small shape: for a table
  compare --stages 5 --shapes mission,1x8:2x113:203x64 --dtypes f16
                                                a stage on two shapes; the second has 8 query and \
2 key heads, 113 queries, 203 keys
  compare --random-problems 160 --backend cuda  on a GPU, judge the library's choice on random \
problems; accepted, fit it to them
  compare accept target/compare/20261120T183000Z-nvidia-h200
                                                copy a run into results/ for committing

Exit codes:
  0  every gate passes, and every claim that fails is recorded as refuted
  1  a correctness, hazard or resource gate failed, or a claim failed that is not recorded as \
refuted
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
    /// Judge only what a smaller device could run, given by its compute capability: sm_89 for an
    /// L4. On a GPU this limits shared memory and features; machine code and clocks stay those of
    /// the GPU [default: $ATTENTION_DEVICE, else the GPU, else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// Run real tensors from a safetensors file: q, k, v [B, H, S, D] in F16, BF16 or F8_E4M3; for
    /// F8_E4M3 also q_scale, k_scale, v_scale [B, H] in F32; optionally `out`, in the output type
    /// or F32, which is judged too
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["shapes", "seeds", "families", "dtypes", "quick", "full"]
    )]
    pub input: Option<PathBuf>,
    /// Write the run's folder below this one [default: target/compare]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON, whose fields docs/rows.md names; progress goes to standard error
    #[arg(long)]
    pub json: bool,
    /// Run the self-test (planted faults, kernels without a barrier or wait) again, although this
    /// program has passed it before
    #[arg(long)]
    pub selftest: bool,
}

/// Measures what was asked for into a folder of its own, and reports on it.
pub fn run(args: &RunArgs) -> anyhow::Result<Answer> {
    let ladder = args.backend.open()?;
    if args.request.random_problems.is_some() {
        gpu_to(&ladder, "time random problems")?;
    }
    let committed = Results::read(&workspace::results())?;
    // What cannot be read ends the run before it measures anything.
    let choice = match args.request.random_problems {
        Some(_) => Some(LibraryChoice::read(&committed)?),
        None => None,
    };
    let mut job = Job::new(args, ladder)?;
    let run = job.measure(choice)?;
    answer(args, &run, &job.folder, &committed)
}

/// Writes the report, and returns what is printed.
fn answer(args: &RunArgs, run: &Run, folder: &Path, committed: &Results) -> anyhow::Result<Answer> {
    let table = committed.of_gpu(&run.session.machine.name);
    let report = verdict::report_of_checks(run, &table);
    let places = files::write_report(&report, folder, workspace::find().as_deref())?;
    let overall = report.overall();
    if args.json {
        let object = json::Run::new(&report, &overall, folder);
        return Answer::json(overall.exit, &object);
    }
    // Tensors of the user's own are no question to the table.
    let committed_line = if args.input.is_none() {
        summary::committed(&View::committed(&run.session.stages, &table))
    } else {
        None
    };
    let page = summary::document(&report, committed_line);
    let text = terminal::render(&page, terminal::width());
    Ok(Answer::new(
        overall.exit,
        format!("{}\n{places}", text.trim_end()),
    ))
}

/// A run from its plan to its last row.
struct Job<'a> {
    args: &'a RunArgs,
    ladder: Ladder,
    /// The smaller device that the run is limited to.
    limits: Option<DeviceLimits>,
    builds: Vec<StageMeta>,
    file: Option<FileInput>,
    machine: Machine,
    plan: Plan,
    folder: PathBuf,
}

impl<'a> Job<'a> {
    /// Plans the run, and creates its folder.
    fn new(args: &'a RunArgs, mut ladder: Ladder) -> anyhow::Result<Self> {
        let started = machine::now();
        let limits = DeviceLimits::asked(args.device)?;
        ladder.limit(limits)?;
        let builds = ladder.builds()?;
        let file = args.input.as_deref().map(FileInput::read).transpose()?;
        let gpu = ladder.gpu.as_ref().map(CudaDevice::info);
        let machine = machine::machine(gpu.map_err(String::clone));
        let has_samples = args.request.cases.iters.is_some_and(|iters| iters > 0);
        if ladder.gpu.is_err() && has_samples {
            say("note: without a GPU --iters has no effect");
        }
        let request = Request {
            file: file.as_ref().map(|input| input.problem.clone()),
            ..args.request.clone()
        };
        let plan = plan::plan(&builds, &request, backend_of(&ladder))?;
        limits::check_cases(&plan.cases)?;
        let name = format!("{}-{}", machine::compact(started), machine.name);
        let folder = create_folder(&folder_of_runs(args)?, &name)?;
        Ok(Self {
            args,
            ladder,
            limits,
            builds,
            file,
            machine,
            plan,
            folder,
        })
    }

    fn gpu(&self) -> Option<&CudaDevice> {
        self.ladder.gpu.as_ref().ok()
    }

    fn measure(&mut self, library_choice: Option<LibraryChoice>) -> anyhow::Result<Run> {
        let mut run = self.begin();
        self.announce(&run);
        let begun = Instant::now();
        let mut recorder = Recorder::new(&self.folder, &self.plan.cases)?;
        // From here on, Ctrl-C leaves a folder that can be read.
        run.write(&self.folder)?;
        run.extend(self.judge_given_output());
        run.write(&self.folder)?;
        let device = self.ladder.stages.first().and_then(|stage| stage.device);
        let library = library_choice.map(|choice| choice.limited_to(device));
        let chosen = match &library {
            Some(choice) => choice.choices(&run, &self.plan.draws),
            None => BTreeMap::new(),
        };
        let outcome = self.execute(&mut run, chosen, &mut recorder);
        if let Some(choice) = library
            && !self.plan.draws.is_empty()
        {
            let regret = choice.regret(&run);
            run.extend(regret.iter().map(Regret::row));
        }
        match &outcome {
            Ok(()) => {
                self.complete(&mut run, recorder.spent(begun.elapsed()));
            }
            Err(_) => run.goes_on(self.plan.cases.len()),
        }
        run.write(&self.folder)?;
        outcome.with_context(|| {
            format!(
                "the run stopped after {} of {} cases; what it finished is in {}, \
                 and a run with --stages or --shapes measures the rest",
                run.cases().count(),
                self.plan.cases.len(),
                self.folder.display()
            )
        })?;
        Ok(run)
    }

    /// Begins the run, with what is known about its kernels before they are launched.
    fn begin(&mut self) -> Run {
        // Reading a stage's code takes seconds.
        let reads_code = self.plan.tier > Tier::T0;
        let reader = reads_code.then(|| self.read_machine_code());
        let mut run = begin(Start {
            name: &name_of(&self.folder),
            git: commit(),
            plan: &self.plan,
            stages: &self.ladder.stages,
            builds: &self.builds,
            machine: self.machine.clone(),
        });
        run.session.device = self.limits;
        run.session.input = self.args.input.clone();
        if let Some(tool) = reader {
            run.session.tools.insert(Source::Ptxas, vec![tool]);
        }
        run
    }

    /// Adds figures of the machine code to the builds of stages that run. Returns the tool that
    /// read it, or why none did.
    fn read_machine_code(&mut self) -> String {
        let plan = &self.plan;
        let builds = self.builds.iter_mut();
        let running = builds.filter(|build| plan.has_stage(&build.id));
        match instrument::cuobjdump::count_instructions(&self.ladder.stages, running) {
            Ok(tool) => format!("cuobjdump {}", tool.version),
            Err(why) => format!("machine code not read: {why}"),
        }
    }

    /// Says where the run is, how long it may take, and whether it can be accepted, before a GPU
    /// works for nothing.
    fn announce(&self, run: &Run) {
        say(&format!("run: {}", self.folder.display()));
        let earlier = workspace_runs().map(|folder| estimate::read(&folder));
        say(&estimate::line(
            &earlier.unwrap_or_default(),
            self.plan.tier,
            backend_of(&self.ladder),
            self.plan.work(),
        ));
        if self.ladder.gpu.is_ok()
            && let Some(reason) = run.session.unacceptable()
        {
            say(&format!("`compare accept` will refuse this run: {reason}"));
        }
    }

    /// Executes the plan. On random problems the library's choices are `chosen`.
    fn execute(
        &self,
        run: &mut Run,
        chosen: BTreeMap<ProblemPlace, Subject>,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), ExecuteError> {
        let gpu = self.gpu();
        let mut executor = Executor {
            device: gpu,
            timer: gpu.map(|device| device as &dyn Timer),
            file: self.file.as_ref(),
            chosen,
            ..Executor::new(&self.plan, &self.ladder.stages)
        };
        if let Some(iters) = self.args.request.cases.iters.filter(|iters| *iters > 0) {
            executor.timing.samples = iters;
            executor.samples_elsewhere = iters;
        }
        executor.run(run, recorder)?;
        // Last: figures come first, and none of them is shown of a kernel that it finds broken.
        self.self_test(run, recorder)
    }

    /// Tests the gates, and of kernels on generated inputs their synchronisation; random problems
    /// follow other runs.
    fn self_test(&self, run: &mut Run, recorder: &mut Recorder<'_>) -> Result<(), ExecuteError> {
        if !self.plan.draws.is_empty() {
            return Ok(());
        }
        let stages = self
            .ladder
            .stages
            .iter()
            .filter(|stage| self.args.input.is_none() && self.plan.has_stage(stage.info().id));
        // In the workspace, which has one build for all folders of runs.
        let kept = match workspace_runs().or_else(|| self.args.out.clone()) {
            Some(runs) => Kept::new(&runs.join(KEPT), self.limits, self.args.selftest).ok(),
            None => None,
        };
        let self_test = SelfTest {
            stages: stages.collect(),
            kept,
        };
        if self_test.run(run, recorder)? > 0 {
            say("self-test: passed before by this program; --selftest runs it again");
        }
        summarise(run, &self.plan.cases);
        Ok(())
    }

    /// Notes that the run is complete, and how long it took.
    fn complete(&self, run: &mut Run, spent: Spent) {
        let cases = run.cases().count();
        run.session.progress = Progress::Complete { cases };
        match workspace_runs() {
            Some(folder) if folder.is_dir() => {
                let backend = backend_of(&self.ladder);
                let done = Work {
                    cases,
                    ..self.plan.work()
                };
                let took = Took {
                    tier: self.plan.tier,
                    backend,
                    done,
                    spent,
                };
                estimate::keep(&folder, took);
            }
            _ => {}
        }
    }

    /// Judges the file's own `out` by gates C1 to C4, as if a stage had written it; one row per
    /// planned problem.
    fn judge_given_output(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        if let Some(file) = &self.file
            && let Some(output) = &file.out
        {
            for problem in distinct(self.plan.cases.iter().map(|case| case.problem)) {
                rows.extend(judge_output(file, output, &problem, self.gpu()));
            }
        }
        rows
    }
}

/// Returns the row of an output that the user gave; none where it has no reference here, which ends
/// the run at its first case.
fn judge_output(
    file: &FileInput,
    output: &[f32],
    problem: &Problem,
    gpu: Option<&CudaDevice>,
) -> Option<Row> {
    let inputs = file.inputs(problem).ok()?;
    let probability = Probability::half(problem.dtype);
    let reference = match gpu {
        Some(device) => device.reference(&inputs, probability),
        None => reference(&inputs, probability),
    };
    let evidence = gate::Evidence {
        problem,
        family: None,
        reference: &reference.ok()?,
        output,
    };
    let (errors, gates) = gate::numeric_gates(&evidence);
    let kind = Kind::GivenOutput(format!("out, {} mask", problem.mask));
    let row = Row::new(&*file.problem.name, kind);
    Some(row.judged(&errors, &gates))
}

fn backend_of(ladder: &Ladder) -> BackendKind {
    match ladder.gpu {
        Ok(_) => BackendKind::Cuda,
        Err(_) => BackendKind::Emulated,
    }
}

/// Returns the folder of runs of the workspace.
fn workspace_runs() -> Option<PathBuf> {
    Some(workspace::find()?.join("target/compare"))
}

/// Returns the folder that the run's folder is created in.
fn folder_of_runs(args: &RunArgs) -> anyhow::Result<PathBuf> {
    let folder = match &args.out {
        Some(out) => out.clone(),
        None => workspace::require("give --out DIR")?.join("target/compare"),
    };
    refuse_committed(&folder, &workspace::results())?;
    Ok(folder)
}

/// Returns the commit that the program was built of, as its build script saw it.
fn commit() -> Git {
    match (
        option_env!("COMPARE_GIT_SHA"),
        option_env!("COMPARE_GIT_DIRTY"),
    ) {
        (Some(sha), Some(dirty)) => Git::Commit {
            sha: sha.to_string(),
            dirty: dirty == "true",
        },
        _ => Git::Unknown {
            reason: option_env!("COMPARE_GIT_UNKNOWN")
                .unwrap_or("it was built outside a git checkout")
                .to_string(),
        },
    }
}

/// The library's choice: the stages that it chooses among, and the models of GPUs' times.
struct LibraryChoice {
    stages: Vec<LoadedStage>,
    models: Vec<Model>,
}

impl LibraryChoice {
    /// Reads it from the workspace, and refuses a model that is not what was fitted to its table;
    /// outside of the workspace it has no model.
    fn read(committed: &Results) -> anyhow::Result<Self> {
        let models = match workspace::find() {
            Some(root) => {
                let folder = root.join(workspace::CHOICE);
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

    /// Returns the choice on a device.
    fn limited_to(mut self, device: Option<DeviceLimits>) -> Self {
        for stage in &mut self.stages {
            stage.device = device;
        }
        self
    }

    /// Returns what is chosen on each of these problems, on the GPU of a run.
    fn choices(&self, run: &Run, problems: &[Problem]) -> BTreeMap<ProblemPlace, Subject> {
        let library = choice::Library {
            stages: &self.stages,
            models: &self.models,
        };
        let places: Vec<_> = problems.iter().map(ProblemPlace::of).collect();
        choice::choose(&View::alone(run), library, places.iter())
    }

    /// Judges the choice on the random problems of a run.
    fn regret(&self, run: &Run) -> Option<Regret> {
        choice::regret(&View::alone(run), &self.stages, &self.models)
    }
}

/// The folder of self-tests that passed, below a folder of runs; whatever lists those skips it.
const KEPT: &str = ".self-test";

fn refuse_committed(out: &Path, results: &Path) -> anyhow::Result<()> {
    ensure!(
        !absolute(out)?.starts_with(absolute(results)?),
        "{}: that is where committed tables are; run elsewhere, then `compare accept` the run",
        out.display()
    );
    Ok(())
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
