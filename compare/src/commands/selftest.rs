//! `compare selftest`: tests the gates with planted faults and with kernels that lack one of their
//! barriers or waits, and the timer if there is a GPU.

use crate::answer::Answer;
use crate::progress;
use anyhow::Context;
use clap::Args;
use common::device::Staged;
use common::device::cuda::{CudaDevice, TimerCheck, timer_checks};
use common::faults;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};
use common::stage::LoadedStage;
use common::suppression::{Presets, Suppressed, suppress_each};
use common::timing::Plan;
use common::verdict::{GateId, Verdict};
use document::Block;
use measure::interrupt::{interrupted, is_interrupted};
use measure::select;
use pages::self_test::blocks;
use results::judge::verdict::Exit;
use results::table::{Kind, Row};
use stages::Ladder;

const EXAMPLES: &str = "\
Faults are planted in a model of attention, and each synchronisation site is removed from each \
kernel in the emulator. On a GPU the
timer is checked, too.

Example:
  compare selftest --stages 4,5

Exit codes:
  0  a gate kills every planted fault and, unless the stage lists the site as redundant, every \
mutant
  1  one survives, a site is listed wrongly, or the timer is wrong
  2  wrong usage, or an environment that cannot run what was asked
  3  not measured: a stage's kernels cannot be mutated here
  130  interrupted: prints what it has tested; a second Ctrl-C ends it at once";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SelftestArgs {
    /// Stages to mutate, by id or number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
}

/// Tests the gates and the timer. The answer fails if a fault survives all gates, the correct model
/// fails one, a mutant survives, a site is listed wrongly, a kernel is broken to begin with, or a
/// check of the timer fails.
pub fn selftest(args: &SelftestArgs) -> anyhow::Result<Answer> {
    let ladder = Ladder::open()?;
    let builds = ladder.builds()?;
    let named = select::stages(&args.stages, &builds)?;
    let mut chosen: Vec<&LoadedStage> = ladder.stages.iter().collect();
    chosen.retain(|stage| named.iter().any(|build| build.id == stage.info().id));
    interrupted().context("cannot wait for signals")?;
    progress::say("planting faults (a few seconds)");
    let faults = faults::selftest();
    let (mut sites, mut untested) = (Suppressed::default(), Vec::new());
    for stage in chosen {
        let id = stage.info().id;
        if is_interrupted() {
            untested.push(id);
            continue;
        }
        progress::say(&format!(
            "removing each synchronisation site of {id} (seconds to a minute)"
        ));
        sites.add(suppress_each(stage, Presets::All));
    }
    let mut rows = Row::self_test(&faults, &sites);
    match &ladder.gpu {
        Ok(_) if is_interrupted() => untested.push("the timer"),
        Ok(device) => {
            let name = &device.info().name;
            progress::say(&format!("checking the timer on {name} (half a minute)"));
            rows.extend(check_timer(device, &ladder.stages)?);
        }
        Err(reason) => rows.push(Row::untested_timer(reason)),
    }
    Ok(answer(&rows, &untested))
}

/// Returns the answer to the rows; `untested` is what an interruption has left out.
fn answer(rows: &[Row], untested: &[&str]) -> Answer {
    let has_failed = rows.iter().any(|row| row.failure().is_some());
    let mut page = blocks(rows);
    if !untested.is_empty() {
        page.push(Block::paragraph(format!(
            "Interrupted: not tested are {}.",
            untested.join(", ")
        )));
    }
    let exit = match Exit::of(has_failed, rows.iter().any(is_untested)) {
        Exit::Fail => Exit::Fail,
        _ if !untested.is_empty() => Exit::Interrupted,
        other => other,
    };
    Answer::page(exit, &page)
}

/// Whether nothing was tested. Only the timer may go untested: it needs a GPU.
fn is_untested(row: &Row) -> bool {
    row.says(GateId::S1) == Some(Verdict::NoData) && !matches!(row.kind, Kind::Timer(_))
}

/// Checks the timer on the first stage's default variant and the claims' problem.
fn check_timer(device: &CudaDevice, stages: &[LoadedStage]) -> anyhow::Result<Vec<Row>> {
    let stage = &stages[0];
    let problem = claims_problem(Dtype::F16);
    let prepared = stage
        .prepare(stage.info().default_variant, &problem)
        .context("the timer needs a default variant that supports the problem of the claims")?;
    let mut contents = Vec::new();
    for seed in 0..2 {
        let inputs = Inputs::generate(&problem, Family::Normal, seed);
        contents.push(Staged::new(&inputs, Layout::Packed));
    }
    let pool = device.pool(contents, false)?;
    let checks = timer_checks(device, stage, &prepared, &pool, &Plan::default())
        .context("check the GPU with nvidia-smi and run again")?;
    Ok(checks.iter().map(timer_row).collect())
}

fn timer_row(check: &TimerCheck) -> Row {
    Row::timer_check(&check.name, check.ok, &check.expected).note(&check.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::testing::row;

    fn exit(words: &str) -> Exit {
        answer(&[row(words)], &[]).exit
    }

    #[test]
    fn a_fault_that_is_killed_passes() {
        let killed = "self-test | : stale tile | self-test | S1 pass | cases 8 | cases_failed 8";
        assert_eq!(exit(killed), Exit::Pass);
    }

    #[test]
    fn a_fault_that_survives_fails() {
        let survivor = "self-test | : stale tile | self-test | S1 fail no gate fails";
        assert_eq!(exit(survivor), Exit::Fail);
    }

    #[test]
    fn a_kernel_that_is_broken_to_begin_with_fails() {
        let broken = "scalar | : as it is | self-test | H1 fail race";
        assert_eq!(exit(broken), Exit::Fail);
    }

    #[test]
    fn an_interruption_names_what_was_not_tested_and_hides_no_failure() {
        let killed =
            row("self-test | : stale tile | self-test | S1 pass | cases 8 | cases_failed 8");
        let interrupted = answer(&[killed], &["stage7-wgmma", "the timer"]);
        assert_eq!(interrupted.exit, Exit::Interrupted);
        let words = "Interrupted: not tested are stage7-wgmma, the timer.";
        assert!(interrupted.text.contains(words), "{}", interrupted.text);
        let survivor = row("self-test | : stale tile | self-test | S1 fail no gate fails");
        assert_eq!(answer(&[survivor], &["stage7-wgmma"]).exit, Exit::Fail);
    }

    #[test]
    fn only_the_timer_may_go_untested() {
        let timer = "self-test | : timer | self-test | S1 no_data not here";
        assert_eq!(exit(timer), Exit::Pass);
        let sites = "self-test | : synchronisation | self-test | S1 no_data not here";
        assert_eq!(exit(sites), Exit::Inconclusive);
    }
}
