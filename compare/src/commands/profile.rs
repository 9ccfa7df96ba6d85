//! `compare profile`: one launch per variant under ncu, and how its figures compare with what the
//! stages predict.

mod csv;

use crate::answer::{Answer, NoData, gpu_to};
use crate::open_run::{OpenRun, Target};
use crate::progress::Progress;
use anyhow::bail;
use clap::Args;
use common::device::cuda::HELPER_PREFIX;
use common::problem::Mask;
use common::resources::KernelFacts;
use measure::instrument::child::{self, Launches, ToolFiles, ToolRun};
use measure::instrument::find::{NCU, Tool};
use measure::instrument::process::{self, Ended};
use measure::select::{Chosen, Picked, Problems, subjects};
use pages::show::Section;
use results::judge::View;
use results::judge::list::{distinct, joined};
use results::judge::state::is_green;
use results::judge::verdict::Exit;
use results::table::ncu::{self, Chips};
use results::table::session::by_id;
use results::table::{Kind, ProblemPlace, Row, Run, Source, StageMeta, Subject};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "\
Each variant that passes its gates is launched once under ncu, with its output checked as in a run. The figures are
shown next to the emulator's counters and the stages' predictions (gate E1), and become rows of the
run. ncu's own report, with what the flags after -- add to it, stays in target/profile.

Examples:
  compare profile                               complete the newest run under target/compare
  compare profile --stages 8 --shapes long -- --set full   and every section of ncu, for ncu-ui

Exit codes:
  0  profiled and written; every prediction holds on this GPU, or is recorded as refuted
  1  written, and such a prediction does not hold; or a launch failed under ncu, and \
nothing is written
  2  wrong usage, or a run of other kernels or another GPU
  3  not measured: no GPU, no ncu, no permission to read counters, or flags that ncu refuses; \
nothing is overwritten";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProfileArgs {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub problems: Problems,
    /// Further flags of ncu, such as `--set full`
    #[arg(last = true, value_name = "FLAG")]
    pub ncu_flags: Vec<String>,
}

/// The name of ncu's own file, for its user interface.
const REPORT: &str = "profile.ncu-rep";

/// The seconds that a launch may take. Replaying one for all metrics takes about a second; a
/// profile that takes longer than this each has hung.
const SECONDS_PER_LAUNCH: u64 = 30;

const WATCHDOG_SECONDS: u64 = 120;

/// Profiles each green variant. Where a launch fails under ncu, or its output a gate, nothing is
/// written.
pub fn profile(args: &ProfileArgs) -> anyhow::Result<Answer> {
    let (mut run, ladder) = OpenRun::begin(&args.target, &args.chosen)?;
    let builds = ladder.builds()?;
    let selected = args.chosen.pick(&builds)?;
    let gpu = gpu_to(&ladder, "profile on")?;
    let chips = Chips::new(gpu.info().limits().capability);
    let dtypes = distinct(selected.iter().map(|(stage, _)| stage.first_dtype()));
    let variants = green_variants(&run.run, &selected)?;
    let profiler = Profiler {
        ncu: NCU.find().map_err(|error| NoData(error.to_string()))?,
        work: run.work("profile")?,
        flags: &args.ncu_flags,
    };
    let launches = Launches {
        variants,
        problems: args.problems.or(&["mission"], &dtypes, &[Mask::Full]),
        device: run.run.session.device,
        watchdog: WATCHDOG_SECONDS,
    };
    let profiled = without_unknown(ncu::names(chips), |names| profiler.run(&launches, names))?;
    if let Some(failure) = profiled.run.first_failure() {
        let text =
            format!("FAIL: it passes no gates under ncu, so its figures mean nothing: {failure}");
        return Ok(Answer::new(Exit::Fail, text));
    }
    check_complete(&profiled.run, &launches)?;
    let measured = profiler.read(&profiled.names, timeout(&launches))?;
    let rows = rows_of(&builds, chips, &profiled.run.rows, &measured).map_err(NoData)?;
    run.set_tools(Source::Ncu, vec![format!("ncu {}", profiler.ncu.version)]);
    run.append(rows)?;
    let absent = absent_metrics(chips, &measured);
    conclude(&run, &profiler.work.join(REPORT), absent)
}

/// Judges the claims that ncu decides, and names its report.
fn conclude(run: &OpenRun, report: &Path, absent: Vec<String>) -> anyhow::Result<Answer> {
    let concluded = run.conclude(Section::Profile, |claim| {
        claim.metric.spec().is_judged_by_ncu
    })?;
    let exit = Exit::of(!concluded.broken.is_empty(), false);
    let text = format!("{}\nfor ncu-ui: {}", concluded.text, report.display());
    let mut notes = absent;
    notes.extend(concluded.broken);
    Ok(Answer::new(exit, text).noting(notes))
}

/// Returns the selected variants that are green in a run; refuses a run in which none is.
fn green_variants(run: &Run, selected: &[Picked<'_>]) -> anyhow::Result<Vec<Subject>> {
    let view = View::alone(run);
    let mut green = Vec::new();
    let mut red = Vec::new();
    for subject in subjects(selected) {
        if is_green(&view, &subject, view.backend()) {
            green.push(subject);
        } else {
            red.push(subject);
        }
    }
    if green.is_empty() {
        bail!(NoData(format!(
            "nothing that was selected passes its gates in {}: {}",
            run.session.name,
            joined(red, ", ")
        )));
    }
    Ok(green)
}

/// Refuses a profile that did not end well, with fewer launches than planned, or of problems that
/// no variant takes.
fn check_complete(run: &ToolRun, launches: &Launches) -> anyhow::Result<()> {
    let planned = count(launches);
    if run.ended.is_success() && run.rows.len() >= planned {
        if run.rows.iter().any(child::is_supported) {
            return Ok(());
        }
        bail!(NoData(format!(
            "{} takes none of the chosen problems; give others by --shapes",
            joined(&launches.variants, " or ")
        )));
    }
    let reason = match run.ended {
        Ended::TimedOut => run.ended.describe(timeout(launches).as_secs()),
        Ended::Exited(_) => csv::reason(&run.printed),
    };
    bail!(NoData(format!(
        "{reason}, with {} of {planned} launches; its log is {}",
        run.rows.len(),
        run.log.display()
    )))
}

fn count(launches: &Launches) -> usize {
    launches.variants.len() * launches.problems.len()
}

/// Returns the time that a profile may take.
fn timeout(launches: &Launches) -> Duration {
    Duration::from_secs(SECONDS_PER_LAUNCH * (count(launches) as u64 + 2))
}

/// A profile, and the metrics that were asked for in it.
struct Profiled {
    run: ToolRun,
    names: Vec<&'static str>,
}

/// Repeats `attempt` without the metrics that ncu reports as unknown on this GPU, until it knows
/// all that are left. Returns the last attempt.
fn without_unknown(
    mut names: Vec<&'static str>,
    mut attempt: impl FnMut(&[&str]) -> anyhow::Result<ToolRun>,
) -> anyhow::Result<Profiled> {
    loop {
        let run = attempt(&names)?;
        let unknown = csv::unknown(&run.printed, &names);
        if unknown.is_empty() || unknown.len() == names.len() {
            return Ok(Profiled { run, names });
        }
        names.retain(|name| !unknown.contains(name));
    }
}

/// Names each metric that ncu has of no launch, with the figures that are absent for it.
fn absent_metrics(chips: Chips, measured: &[csv::Launch]) -> Vec<String> {
    let mut lines = Vec::new();
    for name in ncu::names(chips) {
        if measured
            .iter()
            .any(|launch| launch.values.contains_key(name))
        {
            continue;
        }
        let figures = ncu::formulas(chips)
            .filter(|formula| formula.needs(name))
            .map(|formula| formula.metric.name());
        lines.push(format!(
            "ncu has no {name} on this GPU; absent for it: {}",
            joined(figures, ", ")
        ));
    }
    lines
}

/// ncu as it is called here.
struct Profiler<'a> {
    ncu: Tool,
    /// The folder of its files.
    work: PathBuf,
    flags: &'a [String],
}

impl Profiler<'_> {
    /// Makes the launches under ncu.
    fn run(&self, launches: &Launches, names: &[&str]) -> anyhow::Result<ToolRun> {
        let mut command = Command::new(&self.ncu.path);
        command
            .args(["--clock-control", "none", "--cache-control", "all"])
            .args(["--force-overwrite", "--export"])
            .arg(self.work.join(REPORT))
            .args(["--metrics", &names.join(",")])
            .args(self.flags);
        let files = ToolFiles {
            folder: &self.work,
            label: "ncu",
        };
        let variants = &launches.variants;
        let planned = count(launches);
        let mut bars = Progress::default();
        launches.run_under(command, files, timeout(launches), |ended| {
            let finished = ended.min(planned - 1);
            let variant = &variants[finished % variants.len()];
            bars.step("profile", variant.as_str(), finished, planned);
        })
    }

    /// Reads the metrics of every launch from ncu's report, by way of a table that stays in the
    /// folder.
    fn read(&self, names: &[&str], timeout: Duration) -> anyhow::Result<Vec<csv::Launch>> {
        let table = self.work.join("raw.csv");
        let mut import = Command::new(&self.ncu.path);
        import.arg("--import").arg(self.work.join(REPORT)).args([
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
        ]);
        process::run(import, &table, timeout, || ())?;
        let text = std::fs::read_to_string(&table)?;
        let launches = csv::parse(&text, names)
            .map_err(|reason| NoData(format!("{reason}; the table is {}", table.display())))?;
        Ok(launches)
    }
}

/// Makes rows of the launches with what ncu `measured`, which must be of the kernels that were
/// launched, in their order.
fn rows_of(
    ladder: &[StageMeta],
    chips: Chips,
    launched: &[Row],
    measured: &[csv::Launch],
) -> Result<Vec<Row>, String> {
    let supported: Vec<&Row> = launched
        .iter()
        .filter(|row| child::is_supported(row))
        .collect();
    let of_stages: Vec<&csv::Launch> = measured
        .iter()
        .filter(|launch| !launch.kernel.starts_with(HELPER_PREFIX))
        .collect();
    if of_stages.len() != supported.len() {
        return Err(format!(
            "ncu has {} launches, the program made {}",
            of_stages.len(),
            supported.len()
        ));
    }
    let mut rows = Vec::new();
    for (launch, read) in supported.into_iter().zip(of_stages) {
        let Some((place, facts)) = instance(ladder, launch) else {
            return Err(format!(
                "there is no instance for {} {}",
                launch.subject,
                launch.place()
            ));
        };
        if read.kernel != facts.symbol {
            return Err(format!(
                "ncu has a launch of {}, where the program launched {}",
                read.kernel, facts.symbol
            ));
        }
        let mut row = Row::profile(launch.subject.clone(), place.clone(), chips, &read.values);
        if facts.boxes.is_some() {
            row = ncu::without_unseen(row);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Returns the problem of a launch, and the kernel that was launched.
fn instance<'a>(
    ladder: &'a [StageMeta],
    launch: &'a Row,
) -> Option<(&'a ProblemPlace, &'a KernelFacts)> {
    let Kind::Case(_, case) = &launch.kind else {
        return None;
    };
    let stage = by_id(ladder, launch.subject.stage())?;
    let variant = stage.variant(launch.subject.name())?;
    let compiled = case.problem.instance()?;
    let instance = variant.instance(compiled.dtype, compiled.head_dim)?;
    Some((&case.problem, &instance.facts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::device::BackendKind;
    use results::testing::{CPASYNC, SCALAR, case, ladder};

    fn row(kernel: &str) -> csv::Launch {
        csv::Launch {
            kernel: kernel.into(),
            values: [("m".to_string(), 1.0)].into(),
        }
    }

    /// Variants that read a cache, on mission.
    #[test]
    fn a_profile_of_problems_that_no_variant_takes_is_refused() {
        let launches = Launches {
            variants: vec![SCALAR.into()],
            problems: vec![],
            device: None,
            watchdog: WATCHDOG_SECONDS,
        };
        let nothing = ToolRun {
            ended: Ended::Exited(Default::default()),
            printed: String::new(),
            log: PathBuf::new(),
            rows: vec![],
        };
        let error = check_complete(&nothing, &launches).unwrap_err().to_string();
        assert!(
            error.contains("takes none of the chosen problems"),
            "{error}"
        );
    }

    #[test]
    fn lines_of_other_kernels_and_lost_lines_are_refused() {
        let ladder = ladder();
        let launched: Vec<Row> = [SCALAR, CPASYNC]
            .map(|subject| case(subject, BackendKind::Cuda, None))
            .into();
        let join = |lines: Vec<csv::Launch>| rows_of(&ladder, Chips::Hopper, &launched, &lines);
        let good = join(vec![
            row("scalar_32x64_f16_d64"),
            row("attention_differ"),
            row("cpasync_32x64_f16_d64"),
            row("attention_differ"),
        ])
        .unwrap();
        assert_eq!(
            (good[1].subject.as_str(), &good[1].kind),
            (CPASYNC, &Kind::Profile(results::testing::mission()))
        );
        assert!(
            join(vec![row("scalar_32x64_f16_d64")])
                .unwrap_err()
                .contains("ncu has 1 launches, the program made 2")
        );
        let swapped = join(vec![
            row("cpasync_32x64_f16_d64"),
            row("scalar_32x64_f16_d64"),
        ])
        .unwrap_err();
        assert!(
            swapped.contains("where the program launched scalar_32x64_f16_d64"),
            "{swapped}"
        );
    }

    fn printed(text: &str) -> ToolRun {
        ToolRun {
            ended: Ended::TimedOut,
            printed: text.into(),
            log: "log".into(),
            rows: vec![],
        }
    }

    /// An ncu for a newer chip stops at the first name that it does not know.
    #[test]
    fn a_profile_goes_on_without_the_metrics_that_ncu_does_not_know() {
        let known = ["gpu__time_duration.sum", "dram__bytes.sum"];
        let asked = vec![known[0], "sm__old_name.sum", known[1], "sm__older_name.sum"];
        let mut tries = 0;
        let last = without_unknown(asked, |names| {
            tries += 1;
            let unknown = names.iter().find(|name| !known.contains(name));
            Ok(printed(&unknown.map_or("fine".into(), |name| {
                format!("==ERROR== Failed to find metric {name}\n")
            })))
        })
        .unwrap();
        assert_eq!((last.run.printed.as_str(), tries), ("fine", 3));
        assert_eq!(last.names, known);
    }

    #[test]
    fn an_ncu_that_knows_no_metric_at_all_is_not_asked_for_ever() {
        let error = "==ERROR== Failed to find metric dram__bytes.sum\n";
        let last = without_unknown(vec!["dram__bytes.sum"], |_| Ok(printed(error))).unwrap();
        assert_eq!((last.run.printed.as_str(), last.names.len()), (error, 1));
    }

    #[test]
    fn what_ncu_does_not_have_is_named_with_what_is_absent_for_it() {
        let absent = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum";
        let names = ncu::names(Chips::Ada).into_iter();
        let has = names.filter(|name| *name != absent);
        let launch = csv::Launch {
            kernel: "k".into(),
            values: has.map(|name| (name.to_string(), 1.0)).collect(),
        };
        let line = format!("ncu has no {absent} on this GPU; absent for it: sectors_per_read");
        assert_eq!(absent_metrics(Chips::Ada, &[launch]), [line]);
    }
}
