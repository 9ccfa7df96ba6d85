//! `compare selftest`: tests the gates with planted faults and with kernels that lack one of their barriers or waits, and the timer
//! if there is a GPU.

use crate::answer::Answer;
use crate::judge::verdict::Exit;
use crate::measure::rows;
use crate::measure::select;
use crate::pages::self_test::blocks;
use crate::progress;
use crate::stages::Ladder;
use crate::table::{On, Row};
use anyhow::Context;
use clap::Args;
use common::device::Staged;
use common::device::cuda::{CudaDevice, timer_checks};
use common::faults;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};
use common::stage::LoadedStage;
use common::suppression::{Presets, suppress_each};
use common::timing::Plan;
use common::verdict::{GateId, Verdict};

#[derive(Clone, Debug, Args)]
pub struct SelftestArgs {
    /// Stages to mutate, by id or number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
}

/// Fails if a fault survives all gates, the correct model fails one, a mutant survives, a site is listed wrongly, a kernel is broken
/// to begin with, or a check of the timer fails.
pub fn selftest(args: &SelftestArgs) -> anyhow::Result<Answer> {
    let ladder = Ladder::open()?;
    let builds = ladder.builds();
    let named = select::stages(&args.stages, &builds)?;
    let is_named = |stage: &&LoadedStage| named.iter().any(|named| named.id == stage.info().id);
    let chosen: Vec<&LoadedStage> = ladder.stages.iter().filter(is_named).collect();
    progress::say("planting faults (a few seconds)");
    let found = faults::selftest()
        .context("the gates have no reference, which is a bug of this program, not of a stage")?;
    let sites = suppress_each(&chosen, Presets::All, |stage| {
        let id = &stage.info().id;
        progress::say(&format!(
            "removing each synchronisation site of {id} (seconds to a minute)"
        ));
    });
    let mut rows = rows::self_test(Ok(found), &sites);
    match &ladder.gpu {
        Ok(device) => {
            let name = &device.info().name;
            progress::say(&format!("checking the timer on {name} (half a minute)"));
            rows.extend(timer(device, &ladder.stages)?);
        }
        Err(reason) => rows.push(rows::not_tested(TIMER, reason)),
    }
    Ok(answer(&rows))
}

/// The row that stands for the checks of the timer without a GPU.
const TIMER: &str = "timer";

fn answer(rows: &[Row]) -> Answer {
    let wrong = rows.iter().filter(|row| row.failure().is_some()).count();
    // Only the timer may go untested: it needs a GPU.
    let is_untested = |row: &Row| {
        row.says(GateId::S1) == Some(Verdict::NoData) && row.on != On::Named(TIMER.into())
    };
    let exit = Exit::of(wrong > 0, rows.iter().any(is_untested));
    Answer::page(exit, &blocks(rows))
}

/// Checks the timer on the first stage's default variant and the claims' problem.
fn timer(device: &CudaDevice, stages: &[LoadedStage]) -> anyhow::Result<Vec<Row>> {
    let Some(stage) = stages.first() else {
        return Ok(Vec::new());
    };
    let problem = claims_problem(Dtype::F16);
    let prepared = stage.prepare(stage.info().default_variant, &problem);
    let prepared = prepared
        .context("the timer needs a default variant that takes the problem of the claims")?;
    let inputs = (0..2).map(|seed| Inputs::generate(&problem, Family::Normal, seed));
    let contents = inputs
        .map(|inputs| Staged::new(&inputs, Layout::Packed))
        .collect();
    let pool = device.pool(contents, false)?;
    let checks = timer_checks(device, stage, &prepared, &pool, &Plan::default());
    Ok(checks
        .context("check the GPU with nvidia-smi and run again")?
        .iter()
        .map(rows::timer)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::suppressed;
    use common::device::cuda::TimerCheck;
    use common::faults::{Caught, Fault};
    use common::suppression::{Broken, Suppressed};
    use common::verdict::{GateId, GateResult};

    fn faults() -> Vec<Caught> {
        let subject = |fault, cases_failed, gates_that_failed| Caught {
            fault,
            cases: 8,
            cases_failed,
            gates_that_failed,
            survived: vec![],
        };
        vec![
            subject(None, 0, vec![]),
            subject(Some(Fault::Zeros), 8, vec![GateId::C2, GateId::C3]),
            subject(Some(Fault::StaleTile), 0, vec![]),
        ]
    }

    #[test]
    fn a_fault_that_survives_is_seen() {
        let mut rows = rows::self_test(Ok(faults()), &Err("no traced build".into()));
        rows.push(rows::not_tested("timer", "no driver"));
        let Answer { exit, text, .. } = answer(&rows);
        assert_eq!(exit, Exit::Fail);
        assert!(
            text.contains("1 of 2 planted faults killed") && text.contains("failed by C2 C3"),
            "{text}"
        );
        assert!(
            text.contains("WRONG: self-test: stale tile") || text.contains("no gate fails"),
            "{text}"
        );
        assert!(
            text.contains("NO DATA")
                && text.contains("no driver")
                && text.contains("no traced build"),
            "{text}"
        );
    }

    #[test]
    fn only_the_timer_may_go_untested() {
        let exit = |what: &str| answer(&[rows::not_tested(what, "not here")]).exit;
        assert_eq!(exit(TIMER), Exit::Pass);
        assert_eq!(exit("synchronisation"), Exit::Inconclusive);
    }

    #[test]
    fn checks_of_the_timer_are_rows() {
        let check = |name: &str, ok| {
            rows::timer(&TimerCheck {
                name: name.into(),
                expected: "slower".into(),
                found: "same".into(),
                ok,
            })
        };
        let rows = [
            check("the same arm twice", true),
            check("injected delay of 5 %", false),
        ];
        let text = answer(&rows).text;
        assert!(
            text.contains("injected delay of 5 %") && text.contains("same. expected slower"),
            "{text}"
        );
    }

    #[test]
    fn every_synchronisation_site_is_a_row_that_says_what_to_do() {
        let said = |suppressed: Suppressed| answer(&rows::self_test(Ok(vec![]), &Ok(suppressed)));
        let good = said(suppressed());
        assert_eq!(good.exit, Exit::Pass);
        let words = |text: &str| {
            text.split_whitespace()
                .filter(|word| *word != "|")
                .collect::<Vec<_>>()
                .join(" ")
        };
        let text = words(&good.text);
        assert!(
            text.contains("1 of 2 mutants (kernels without one synchronisation site) killed, 1 listed as redundant, 0 surviving"),
            "{text}"
        );
        let mut bad = suppressed();
        bad.sites[0].listed = None;
        bad.sites[1].listed = Some("it is not".into());
        bad.errors.push("an entry names nothing".into());
        let result = GateResult::judge(GateId::H1, false, "race");
        bad.broken = vec![Broken {
            stage: "stage0-scalar".into(),
            variant: "scalar-32x64".into(),
            result,
        }];
        let bad = said(bad);
        let text = words(&bad.text);
        assert_eq!(
            (bad.exit, text.matches("WRONG: ").count()),
            (Exit::Fail, 4),
            "{text}"
        );
        for part in [
            "S1: FAIL",
            "an entry names nothing",
            "mutant survives: remove it",
            "it is needed: remove its entry",
            "fails H1 with all",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
