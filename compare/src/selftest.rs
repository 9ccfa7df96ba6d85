//! `compare selftest`: the gates tried on planted faults and on kernels without one of their barriers or waits, and on a
//! GPU the timer tried on itself.

use crate::answer::Answer;
use crate::judge::verdict::Exit;
use crate::measure::builds::builds;
use crate::measure::rows::fault_name;
use crate::measure::select::{self, SelectError};
use crate::registry::{Ladder, LadderError};
use clap::Args;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use common::device::Staged;
use common::device::cuda::{CudaDevice, CudaError, TimerCheck, timer_checks};
use common::faults::{self, Caught};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, NAMED_SHAPES, Problem, ProblemError};
use common::reference::ReferenceError;
use common::stage::{LoadedStage, Unsupported};
use common::suppression::{Broken, Finding, Presets, SiteResult, Synchronisation, suppress_each};
use common::timing::{Cache, Plan};
use serde_json::json;

/// The flags of `selftest`.
#[derive(Clone, Debug, Args)]
pub struct SelftestArgs {
    /// Stages whose synchronisation is left out [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Why the selftest could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    /// There is no ladder.
    #[error(transparent)]
    Ladder(#[from] LadderError),
    /// There is nothing to compare with.
    #[error("the gates have no reference: a fault of this program, not of a stage")]
    Reference(#[from] ReferenceError),
    /// The timer's problem does not exist.
    #[error("the timer cannot be tried: the problem of the claims is not one")]
    Problem(#[from] ProblemError),
    /// A stage is named that there is not.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The first stage does not take the timer's problem.
    #[error("the timer cannot be tried on {stage}; its default variant must take the problem of the claims")]
    Unsupported {
        /// The stage.
        stage: &'static str,
        /// Why.
        #[source]
        source: Unsupported,
    },
    /// The GPU failed.
    #[error("the timer cannot be tried; check the GPU with nvidia-smi and run again")]
    Timer(#[from] CudaError),
}

/// Plants every fault, leaves out every synchronisation site, and tries the timer where there is a GPU. Fails if a fault
/// survives every gate, the correct model did not, a mutant survives or a site is listed wrongly, a kernel is wrong
/// as it is, or checks of the timer do not agree.
pub fn selftest(args: &SelftestArgs) -> Result<Answer, SelftestError> {
    let Ladder { stages, gpu } = Ladder::open()?;
    let builds = builds(&stages);
    let named: Vec<&str> = select::stages(&args.stages, &builds)?.iter().map(|stage| stage.id.as_str()).collect();
    let chosen: Vec<&LoadedStage> = stages.iter().filter(|stage| named.contains(&stage.info().id)).collect();
    eprintln!("planting faults (some seconds)");
    let subjects = faults::selftest()?;
    let synchronisation = suppress_each(&chosen, Presets::All, |stage| {
        eprintln!("leaving out each synchronisation site of {} (seconds to a minute)", stage.info().id);
    });
    let timer = match gpu {
        Ok(device) => {
            eprintln!("trying the timer on {} (half a minute)", device.info().name);
            Ok(try_timer(&device, &stages)?)
        }
        Err(reason) => Err(reason),
    };
    let wrong = subjects.iter().filter(|subject| !subject.as_it_should()).count();
    let wrong = wrong + synchronisation.wrong().len() + synchronisation.broken().len();
    let wrong = wrong + timer.iter().flatten().filter(|check| !check.ok).count();
    let text = match args.json {
        true => document(&subjects, &synchronisation, &timer, wrong),
        false => text(&subjects, &synchronisation, &timer),
    };
    Ok(Answer::new(if wrong == 0 { Exit::Pass } else { Exit::Fail }, text))
}

/// The checks of the timer on the first stage's default variant and the problem of the claims.
fn try_timer(device: &CudaDevice, stages: &[LoadedStage]) -> Result<Vec<TimerCheck>, SelftestError> {
    let (Some(stage), Some(mission)) = (stages.first(), NAMED_SHAPES.iter().find(|named| named.name == "mission"))
    else {
        return Ok(Vec::new());
    };
    let problem = Problem::new(mission.shape, Dtype::F16, Mask::Full)?;
    let prepared = stage
        .prepare(stage.info().default_variant, &problem)
        .map_err(|source| SelftestError::Unsupported { stage: stage.info().id, source })?;
    let inputs = (0..2).map(|seed| Inputs::generate(&problem, Family::Normal, seed));
    let contents = inputs.map(|inputs| Staged::new(&inputs, Layout::Packed)).collect();
    let pool = device.pool(contents, Cache::Warm)?;
    Ok(timer_checks(device, stage, &prepared, &pool, &Plan::default())?)
}

fn gates(subject: &Caught) -> Vec<String> {
    subject.gates_that_failed.iter().map(ToString::to_string).collect()
}

fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header).add_rows(rows);
    table.to_string()
}

fn text(subjects: &[Caught], synchronisation: &Synchronisation, timer: &Result<Vec<TimerCheck>, String>) -> String {
    let rows = subjects.iter().map(|subject| {
        let found = match (subject.fault.is_some(), subject.as_it_should()) {
            (true, true) => "killed",
            (true, false) => "SURVIVED",
            (false, true) => "passes",
            (false, false) => "REFUSED",
        };
        [
            fault_name(subject).to_string(),
            subject.cases.to_string(),
            subject.cases_failed.to_string(),
            gates(subject).join(", "),
            found.to_string(),
        ]
    });
    let (found, planted) = killed(subjects);
    let faults = table(["fault", "cases", "cases that failed", "gates that failed", "result"], rows);
    let timer = match timer {
        Err(reason) => format!("timer: NO DATA ({reason})"),
        Ok(checks) => {
            let ok = checks.iter().filter(|check| check.ok).count();
            let word = |ok: bool| if ok { "ok" } else { "WRONG" }.to_string();
            let rows = checks
                .iter()
                .map(|check| [check.name.clone(), check.expected.clone(), check.found.clone(), word(check.ok)]);
            let checked = table(["timer", "expected", "found", "result"], rows);
            format!("{checked}\n\ntimer checks that agree: {ok} of {}", checks.len())
        }
    };
    let sites = sites(synchronisation);
    format!("{faults}\n\nplanted faults killed: {found} of {planted}\n\n{sites}\n\n{timer}\n")
}

fn sites(synchronisation: &Synchronisation) -> String {
    let suppressed = match synchronisation {
        Synchronisation::NotTried { reason } => return format!("synchronisation sites: NO DATA ({reason})"),
        Synchronisation::Tried { suppressed, .. } => suppressed,
    };
    let rows = suppressed.sites.iter().map(|site| {
        let place = format!("{} {}", site.place, site.operation);
        [site.stage.clone(), site.family.clone(), place, consequence(site)]
    });
    let table = table(["stage", "family", "synchronisation site", "without it"], rows);
    let errors = suppressed.errors.iter().map(|error| format!("WRONG: {error}\n"));
    let broken = suppressed.broken.iter().map(|Broken { stage, variant, result }| {
        format!("WRONG: {} of {stage}/{variant} fails: {}\n", result.gate, result.reason)
    });
    let errors: String = errors.chain(broken).collect();
    format!("{table}\n\n{errors}{suppressed}")
}

fn document(
    subjects: &[Caught],
    synchronisation: &Synchronisation,
    timer: &Result<Vec<TimerCheck>, String>,
    wrong: usize,
) -> String {
    let subject = |subject: &Caught| {
        json!({
            "subject": fault_name(subject),
            "planted": subject.fault.is_some(),
            "cases": subject.cases,
            "cases_failed": subject.cases_failed,
            "gates_that_failed": gates(subject),
            "as_it_should": subject.as_it_should(),
        })
    };
    let (found, planted) = killed(subjects);
    let timer = match timer {
        Ok(checks) => json!({ "status": "tried", "checks": checks }),
        Err(reason) => json!({ "status": "no_data", "reason": reason }),
    };
    let document = json!({
        "killed": found,
        "planted": planted,
        "wrong": wrong,
        "subjects": subjects.iter().map(subject).collect::<Vec<_>>(),
        "synchronisation": synchronisation,
        "timer": timer,
    });
    format!("{document:#}\n")
}

/// What happens without a synchronisation site: `H1: race: ...`, `nothing: redundant, REASON`, or what to do about it.
fn consequence(site: &SiteResult) -> String {
    let finding = match &site.finding {
        Finding::Killed { gate, what, at } => format!("{gate}: {what} ({at})"),
        Finding::Survived { cases } => format!("nothing in {cases} cases"),
    };
    match (site.remedy(), &site.listed) {
        (Some(remedy), _) => format!("WRONG: {finding}; {remedy}"),
        (None, Some(reason)) => format!("{finding}: redundant, {reason}"),
        (None, None) => finding,
    }
}

/// Faults killed, and faults planted.
fn killed(subjects: &[Caught]) -> (usize, usize) {
    let faults = subjects.iter().filter(|subject| subject.fault.is_some());
    (faults.clone().filter(|subject| subject.as_it_should()).count(), faults.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::faults::Fault;
    use common::verdict::GateId;
    use serde_json::Value;

    fn subjects() -> Vec<Caught> {
        let subject =
            |fault, cases_failed, gates_that_failed| Caught { fault, cases: 8, cases_failed, gates_that_failed };
        vec![
            subject(None, 0, vec![]),
            subject(Some(Fault::Zeros), 8, vec![GateId::C2, GateId::C3]),
            subject(Some(Fault::StaleTile), 0, vec![]),
        ]
    }

    #[test]
    fn a_fault_that_survives_is_seen() {
        let text = text(&subjects(), &Synchronisation::default(), &Err("no driver".into()));
        assert!(text.contains("planted faults killed: 1 of 2"), "{text}");
        assert!(text.contains("C2, C3") && text.contains("SURVIVED"), "{text}");
        assert!(text.ends_with("timer: NO DATA (no driver)\n"), "{text}");
    }

    #[test]
    fn checks_of_the_timer_are_rows() {
        let check =
            |name: &str, ok| TimerCheck { name: name.into(), expected: "slower".into(), found: "same".into(), ok };
        let timer = Ok(vec![check("the same arm twice", true), check("injected delay of 5 %", false)]);
        let text = text(&subjects(), &Synchronisation::default(), &timer);
        assert!(text.contains("WRONG") && text.contains("timer checks that agree: 1 of 2"), "{text}");
        let document: Value =
            serde_json::from_str(&document(&subjects(), &Synchronisation::default(), &timer, 2)).unwrap();
        assert_eq!((&document["wrong"], &document["timer"]["checks"][1]["ok"]), (&json!(2), &json!(false)));
    }

    #[test]
    fn every_synchronisation_site_is_a_row_that_says_what_to_do() {
        let tried = |suppressed| Synchronisation::Tried { presets: Presets::All, suppressed };
        let good = tried(crate::testing::suppressed());
        let text = sites(&good);
        assert!(text.contains("| H1: race: writes at stage0-scalar/kernel.cu:157"), "{text}");
        assert!(text.contains("nothing in 4 cases: redundant, scalar reads Q behind"), "{text}");
        assert!(text.ends_with("mutants killed: 1 of 1, 1 redundant by reason"), "{text}");

        let mut bad = crate::testing::suppressed();
        bad.sites[0].listed = None;
        bad.sites[1].listed = Some("it is not".into());
        bad.errors.push("an entry names nothing".into());
        let text = sites(&tried(bad));
        assert!(text.contains("| WRONG: nothing in 4 cases; its mutant survives: remove it, or list it"), "{text}");
        assert!(text.contains("WRONG: H1: race:") && text.contains("; it is needed: remove its entry"), "{text}");
        assert!(text.contains("WRONG: an entry names nothing\n"), "{text}");

        let document: Value = serde_json::from_str(&document(&subjects(), &good, &Err("x".into()), 0)).unwrap();
        assert_eq!(document["synchronisation"]["sites"][1]["finding"]["gate"], "H1");
    }
}
