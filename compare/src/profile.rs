//! `compare profile`: one launch per variant under ncu, and how its figures compare with what the stages predict.

mod csv;

use crate::answer::{Answer, NoData};
use crate::instrument::child::{self, Launches, Made};
use crate::instrument::find::{NCU, Tool};
use crate::instrument::process::{self, Ended};
use crate::instrument::{Completing, Target};
use crate::judge::View;
use crate::judge::list::{distinct, joined};
use crate::judge::state::is_green;
use crate::judge::verdict::Exit;
use crate::measure::select::{Chosen, Problems, subjects};
use crate::pages::show::Section;
use crate::progress::Progress;
use crate::table::ncu::{self, Chips};
use crate::table::session::by_id;
use crate::table::{Claim, Kind, Row, Source, StageMeta, Subject};
use anyhow::bail;
use clap::Args;
use common::problem::Mask;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "\
Each green variant is launched once under ncu, with its output checked as in a run. The figures are shown next to the emulator's counters and
the stages' predictions (gate E1), and become rows of the run. ncu's own report, with what the flags after -- add to it, stays in
target/profile.

Examples:
  compare profile                               complete the newest run under target/compare
  compare profile --stages 8 --shapes long -- --set full   and every section of ncu, for ncu-ui

Exit codes:
  0  profiled and written; every prediction holds on this GPU, or is recorded as refuted
  1  written, and such a prediction does not hold; or a launch failed under ncu, and nothing is written
  2  wrong usage, or a run of other kernels or another GPU
  3  NO DATA: no GPU, no ncu, no permission to read counters, or flags that ncu refuses; nothing is overwritten";

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

/// ncu's own file, for its user interface.
const REPORT: &str = "profile.ncu-rep";

/// Replaying one launch for all metrics takes about a second; a profile that takes longer than this each has hung.
const SECONDS_PER_LAUNCH: u64 = 30;

const WATCHDOG_SECONDS: u64 = 120;

/// Where a launch fails under ncu, or its output a gate, nothing is written.
pub fn profile(args: &ProfileArgs) -> anyhow::Result<Answer> {
    let (mut run, ladder) = Completing::begin(&args.target, &args.chosen)?;
    let builds = ladder.builds()?;
    let selected = args.chosen.of(&builds)?;
    let gpu = ladder.gpu_to("profile on")?;
    let chips = Chips::new(gpu.info().limits().capability);
    let dtypes = distinct(selected.iter().map(|(stage, _)| stage.first_dtype()));
    let view = View::alone(&run.run);
    let (variants, red): (Vec<Subject>, Vec<Subject>) =
        subjects(&selected).partition(|subject| is_green(&view, subject, view.backend()));
    if variants.is_empty() {
        bail!(NoData(format!(
            "nothing that was selected is green in {}: {}",
            run.run.session.name,
            joined(red, ", ")
        )));
    }
    let ncu = NCU.find().map_err(NoData)?;
    let work = run.work("profile")?;
    let launches = Launches {
        variants,
        problems: args.problems.or(&["mission"], &dtypes, &[Mask::Full]),
        device: run.run.session.device,
        watchdog: WATCHDOG_SECONDS,
    };
    let (made, names) = with_known(ncu::names(chips), |names| {
        measure(&ncu, &launches, names, &args.ncu_flags, &work)
    })?;
    if let Some(red) = made.red() {
        let text = format!("FAIL: not green under ncu, so its figures mean nothing: {red}");
        return Ok(Answer::new(Exit::Fail, text));
    }
    let planned = launches.variants.len() * launches.problems.len();
    if !made.ended.is_success() || made.rows.len() < planned {
        let reason = match made.ended {
            Ended::TimedOut => made.ended.describe(limit(planned).as_secs()),
            Ended::Exited(_) => csv::reason(&made.printed),
        };
        let count = made.rows.len();
        bail!(NoData(format!(
            "{reason}, with {count} of {planned} launches; its log is {}",
            made.log.display()
        )));
    }
    let measured = figures(&ncu, &work, &names, limit(planned))?;
    let profiled = profiled(&builds, chips, &made.rows, &measured).map_err(NoData)?;
    run.set_tools(Source::Ncu, vec![format!("ncu {}", ncu.version)]);
    run.append(profiled)?;
    let is_judged = |claim: &Claim| claim.metric.spec().is_judged_by_ncu;
    let (text, refuted, _) = run.conclude(Section::Profile, is_judged)?;
    let text = format!("{text}\nfor ncu-ui: {}", work.join(REPORT).display());
    let exit = Exit::of(!refuted.is_empty(), false);
    let unknown = unknown(chips, &measured);
    Ok(Answer::new(exit, text).noting([unknown, refuted].concat()))
}

/// Repeats `attempt` without the metrics that ncu says it does not know on this GPU, until it knows
/// all that are left. Returns the last attempt, and what was asked for in it.
fn with_known(
    mut names: Vec<&'static str>,
    mut attempt: impl FnMut(&[&str]) -> anyhow::Result<Made>,
) -> anyhow::Result<(Made, Vec<&'static str>)> {
    loop {
        let made = attempt(&names)?;
        let unknown = csv::unknown(&made.printed, &names);
        if unknown.is_empty() || unknown.len() == names.len() {
            return Ok((made, names));
        }
        names.retain(|name| !unknown.contains(name));
    }
}

/// Names each metric that ncu gave of no launch, with the figures that are absent for it.
fn unknown(chips: Chips, measured: &[csv::Launch]) -> Vec<String> {
    let is_absent = |name: &&str| {
        measured
            .iter()
            .all(|launch| !launch.values.contains_key(*name))
    };
    let names = ncu::names(chips).into_iter().filter(is_absent);
    let line = |name| {
        let figures = ncu::formulas(chips).filter(|formula| formula.needs(name));
        let figures = joined(figures.map(|formula| formula.metric.name()), ", ");
        format!("ncu has no {name} on this GPU; absent for it: {figures}")
    };
    names.map(line).collect()
}

fn measure(
    tool: &Tool,
    launches: &Launches,
    names: &[&str],
    flags: &[String],
    work: &Path,
) -> anyhow::Result<Made> {
    let variants = &launches.variants;
    let planned = variants.len() * launches.problems.len();
    let mut command = Command::new(&tool.path);
    command.args([
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--force-overwrite",
        "--export",
    ]);
    command
        .arg(work.join(REPORT))
        .args(["--metrics", &names.join(",")])
        .args(flags);
    let mut bars = Progress::default();
    launches.make(command, (work, "ncu"), limit(planned), |ended| {
        let finished = ended.min(planned - 1);
        let variant = &variants[finished % variants.len()];
        bars.step("profile", variant.as_str(), finished, planned);
    })
}

fn limit(launches: usize) -> Duration {
    Duration::from_secs(SECONDS_PER_LAUNCH * (launches as u64 + 2))
}

/// Reads the metrics of every launch from ncu's report, by way of a table that stays in `work`.
fn figures(
    tool: &Tool,
    work: &Path,
    names: &[&str],
    limit: Duration,
) -> anyhow::Result<Vec<csv::Launch>> {
    let table = work.join("raw.csv");
    let mut import = Command::new(&tool.path);
    import.arg("--import").arg(work.join(REPORT)).args([
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
    ]);
    process::run(import, &table, limit, || ())?;
    let launches = csv::parse(&std::fs::read_to_string(&table)?, names);
    Ok(launches.map_err(|reason| NoData(format!("{reason}; the table is {}", table.display())))?)
}

/// Rows of the launches with what ncu `measured`, which must be of the kernels that were launched, in their order.
fn profiled(
    ladder: &[StageMeta],
    chips: Chips,
    launched: &[Row],
    measured: &[csv::Launch],
) -> Result<Vec<Row>, String> {
    let launched: Vec<&Row> = launched.iter().filter(child::is_supported).collect();
    let (seen, made) = (measured.len(), launched.len());
    if seen != made {
        return Err(format!("ncu has {seen} launches, the program made {made}"));
    }
    let mut rows = Vec::new();
    for (launch, measured) in launched.into_iter().zip(measured) {
        let instance = || {
            let Kind::Case(_, case) = &launch.kind else {
                return None;
            };
            let stage = by_id(ladder, launch.subject.stage())?;
            let variant = stage.variant(launch.subject.name())?;
            let problem = &case.problem;
            let instance = variant.instance(problem.dtype, problem.extents()?.head_dim)?;
            Some((problem, &instance.facts))
        };
        let unknown = || {
            format!(
                "there is no instance for {} {}",
                launch.subject,
                launch.place()
            )
        };
        let (problem, facts) = instance().ok_or_else(unknown)?;
        if measured.kernel != facts.symbol {
            return Err(format!(
                "ncu has a launch of {}, where the program launched {}",
                measured.kernel, facts.symbol
            ));
        }
        let row = Row::profile(
            launch.subject.clone(),
            problem.clone(),
            chips,
            &measured.values,
        );
        rows.push(match facts.boxes {
            Some(_) => ncu::without_unseen(row),
            None => row,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CPASYNC, SCALAR, case, ladder};
    use common::device::BackendKind;

    fn row(kernel: &str) -> csv::Launch {
        csv::Launch {
            kernel: kernel.into(),
            values: [("m".to_string(), 1.0)].into(),
        }
    }

    #[test]
    fn lines_of_other_kernels_and_lost_lines_are_refused() {
        let ladder = ladder();
        let launched: Vec<Row> = [SCALAR, CPASYNC]
            .map(|subject| case(subject, BackendKind::Cuda, None))
            .into();
        let join = |lines: Vec<csv::Launch>| profiled(&ladder, Chips::Hopper, &launched, &lines);
        let good = join(vec![
            row("scalar_32x64_f16_d64"),
            row("cpasync_32x64_f16_d64"),
        ])
        .unwrap();
        assert_eq!(
            (good[1].subject.as_str(), &good[1].kind),
            (CPASYNC, &Kind::Profile(crate::testing::mission()))
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

    fn made(printed: &str) -> Made {
        Made {
            ended: Ended::TimedOut,
            printed: printed.into(),
            log: "log".into(),
            rows: vec![],
        }
    }

    /// As an ncu for a newer chip does, which stops at the first name that it does not know.
    #[test]
    fn a_profile_goes_on_without_the_metrics_that_ncu_does_not_know() {
        let view = ["gpu__time_duration.sum", "dram__bytes.sum"];
        let asked = vec![view[0], "sm__old_name.sum", view[1], "sm__older_name.sum"];
        let mut tries = 0;
        let (last, names) = with_known(asked, |names| {
            tries += 1;
            let unknown = names.iter().find(|name| !view.contains(name));
            Ok(made(&unknown.map_or("fine".into(), |name| {
                format!("==ERROR== Failed to find metric {name}\n")
            })))
        })
        .unwrap();
        assert_eq!((last.printed.as_str(), tries), ("fine", 3));
        assert_eq!(names, view);
    }

    #[test]
    fn an_ncu_that_knows_no_metric_at_all_is_not_asked_for_ever() {
        let error = "==ERROR== Failed to find metric dram__bytes.sum\n";
        let (last, names) = with_known(vec!["dram__bytes.sum"], |_| Ok(made(error))).unwrap();
        assert_eq!((last.printed.as_str(), names.len()), (error, 1));
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
        assert_eq!(unknown(Chips::Ada, &[launch]), [line]);
    }
}
