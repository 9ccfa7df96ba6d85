//! `compare selftest`: tests the gates with planted faults and with kernels that lack one of their barriers or waits, and the timer
//! if there is a GPU.

use crate::answer::Answer;
use crate::judge::verdict::Exit;
use crate::measure::select;
use crate::pages::self_test::blocks;
use crate::progress;
use crate::stages::Ladder;
use crate::table::{Kind, Row};
use anyhow::Context;
use clap::Args;
use common::device::Staged;
use common::device::cuda::{CudaDevice, TimerCheck, timer_checks};
use common::faults;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};
use common::stage::LoadedStage;
use common::suppression::{Presets, suppress_each};
use common::timing::Plan;
use common::verdict::{GateId, Verdict};

const EXAMPLES: &str = "\
Faults are planted in a model of attention, and each synchronisation site is removed from each kernel in the emulator. On a GPU the
timer is checked, too.

Example:
  compare selftest --stages 4,5

Exit codes:
  0  a gate kills every planted fault and, unless the stage lists the site as redundant, every mutant
  1  one survives, a site is listed wrongly, or the timer is wrong
  2  wrong usage, or an environment that cannot run what was asked
  3  NO DATA: a stage's kernels cannot be mutated here";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SelftestArgs {
    /// Stages to mutate, by id or number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
}

/// Fails if a fault survives all gates, the correct model fails one, a mutant survives, a site is listed wrongly, a kernel is broken
/// to begin with, or a check of the timer fails.
pub fn selftest(args: &SelftestArgs) -> anyhow::Result<Answer> {
    let ladder = Ladder::open()?;
    let builds = ladder.builds()?;
    let named = select::stages(&args.stages, &builds)?;
    let is_named = |stage: &&LoadedStage| named.iter().any(|named| named.id == stage.info().id);
    let chosen: Vec<&LoadedStage> = ladder.stages.iter().filter(is_named).collect();
    progress::say("planting faults (a few seconds)");
    let found = faults::selftest();
    let sites = suppress_each(&chosen, Presets::All, |stage| {
        let id = &stage.info().id;
        progress::say(&format!(
            "removing each synchronisation site of {id} (seconds to a minute)"
        ));
    });
    let mut rows = Row::self_test(&found, &sites);
    match &ladder.gpu {
        Ok(device) => {
            let name = &device.info().name;
            progress::say(&format!("checking the timer on {name} (half a minute)"));
            rows.extend(timer(device, &ladder.stages)?);
        }
        Err(reason) => rows.push(Row::untested_timer(reason)),
    }
    Ok(answer(&rows))
}

fn answer(rows: &[Row]) -> Answer {
    let wrong = rows.iter().filter(|row| row.failure().is_some()).count();
    // Only the timer may go untested: it needs a GPU.
    let is_untested = |row: &Row| {
        row.says(GateId::S1) == Some(Verdict::NoData) && !matches!(row.kind, Kind::Timer(_))
    };
    let exit = Exit::of(wrong > 0, rows.iter().any(is_untested));
    Answer::page(exit, &blocks(rows))
}

/// Checks the timer on the first stage's default variant and the claims' problem.
fn timer(device: &CudaDevice, stages: &[LoadedStage]) -> anyhow::Result<Vec<Row>> {
    let stage = &stages[0];
    let problem = claims_problem(Dtype::F16);
    let prepared = stage.prepare(stage.info().default_variant, &problem);
    let prepared = prepared
        .context("the timer needs a default variant that supports the problem of the claims")?;
    let inputs = (0..2).map(|seed| Inputs::generate(&problem, Family::Normal, seed));
    let contents = inputs
        .map(|inputs| Staged::new(&inputs, Layout::Packed))
        .collect();
    let pool = device.pool(contents, false)?;
    let checks = timer_checks(device, stage, &prepared, &pool, &Plan::default());
    Ok(checks
        .context("check the GPU with nvidia-smi and run again")?
        .iter()
        .map(timer_row)
        .collect())
}

fn timer_row(check: &TimerCheck) -> Row {
    Row::timer_check(&check.name, check.ok, &check.expected).note(&check.found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::row;

    #[test]
    fn what_survives_fails_and_only_the_timer_may_go_untested() {
        for (found, exit) in [
            (
                "self-test | : stale tile | self-test | S1 pass | cases 8 | cases_failed 8",
                Exit::Pass,
            ),
            (
                "self-test | : stale tile | self-test | S1 fail no gate fails",
                Exit::Fail,
            ),
            ("scalar | : as it is | self-test | H1 fail race", Exit::Fail),
            (
                "self-test | : timer | self-test | S1 no_data not here",
                Exit::Pass,
            ),
            (
                "self-test | : synchronisation | self-test | S1 no_data not here",
                Exit::Inconclusive,
            ),
        ] {
            assert_eq!(answer(&[row(found)]).exit, exit, "{found}");
        }
    }
}
