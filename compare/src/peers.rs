//! `compare peers`: completes a run with what PyTorch takes for the same problems on the same GPU, timed side by side.

mod choose;
#[cfg(test)]
mod tests;

use crate::answer::{Answer, NoData};
use crate::instrument::process::Scratch;
use crate::instrument::{Completing, Target};
use crate::judge::View;
use crate::judge::choice::{self, Library};
use crate::judge::peers as question;
use crate::judge::verdict::Exit;
use crate::measure::machine;
use crate::measure::select::{Chosen, Problems, at_least_one, stages};
use crate::measure::timer::Timer;
use crate::pages::show::Section;
use crate::progress::Progress;
use crate::python::bench::{Bench, Item, stand_ins};
use crate::python::session::Python;
use crate::python::{self, check_uuid, plan};
use crate::stages::{CHOICE, library, models};
use crate::table::{Claim, Place, ProblemPlace, Row, Run, Source, Subject};
use anyhow::{Context, bail};
use clap::Args;
use common::metric::Metric;
use serde_json::json;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Completes a run of `compare run` of this build on this GPU. PyTorch's scaled_dot_product_attention by backend, and FlashAttention-3
and -4 where installed, are timed interleaved (A B B A) with ours on the same values. Each problem is written when it has been
measured. Run again with the same packages, the chosen problems are measured again and the others stay; with other packages it starts
over.

Examples:
  compare peers                                 the named problems
  compare peers --shapes decode_8k,verify       K and V from device memory, each peer by its function for caches
  compare peers --shapes mission,1x8:2x512x64 --masks causal
  compare peers --dtypes e4m3                   against FP8 of cuDNN (package nvidia-cudnn-frontend) and FlashAttention-3

Exit codes:
  0  measured and written; every claim against a peer holds, or is recorded as refuted
  1  such a claim fails, or one of our kernels cannot be launched
  2  wrong usage, a run of another build or GPU, or a file that cannot be read or written
  3  NO DATA: no GPU, no Python with torch, or no peer ran; or a claim is AMBIGUOUS";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct PeersArgs {
    #[command(flatten)]
    pub target: Target,
    /// Stages to time: all of them on mission; on other shapes those with a claim there, and the fastest [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    #[command(flatten)]
    pub problems: Problems,
    /// Samples per arm and problem, each the mean over at least 20 ms of launches [default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one::<usize>)]
    pub iters: Option<usize>,
    /// The Python that has torch [default: PYTHON, else what scripts/python installed, else python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// Fails if a claim against a peer does without a negative; inconclusive if one is AMBIGUOUS, or no peer at all was timed.
pub fn peers(args: &PeersArgs) -> anyhow::Result<Answer> {
    let (completing, items) = measure(args)?;
    let view = View::alone(&completing.run);
    let lacking = lacking(&view, &items);
    let is_over_peer = |claim: &Claim| claim.is_of_speed() && claim.relation.base().is_none();
    let (text, failed, is_ambiguous) = completing.conclude(Section::Peers, is_over_peer)?;
    let is_inconclusive = is_ambiguous || !has_peer(&view);
    let exit = Exit::of(!failed.is_empty(), is_inconclusive);
    let wrong = failed.into_iter().chain(lacking).collect();
    Ok(Answer::new(exit, text).noting(wrong))
}

/// Whether any peer was timed.
fn has_peer(view: &View<'_>) -> bool {
    let is_timed = |row: &Row| !question::is_ours(view, row) && row.has(Metric::P50);
    view.table.peer_times().any(is_timed)
}

/// The problems that a stage claims to win and of which the run has no green variant that takes part: the fastest of ours there is
/// another's, and a table would show it as ours.
fn lacking(view: &View<'_>, items: &[Item]) -> Vec<String> {
    let mut lines = Vec::new();
    for item in items {
        let claiming = view
            .stages
            .iter()
            .filter(|stage| choose::claims(stage, &item.place));
        for stage in claiming.filter(|stage| stand_ins(view, stage, &item.place).is_empty()) {
            lines.push(format!(
                "{} was timed without {}, which claims it: the run has no green variant of it (`compare run --stages`)",
                item.place, stage.id
            ));
        }
    }
    lines
}

fn measure(args: &PeersArgs) -> anyhow::Result<(Completing, Vec<Item>)> {
    let chosen = Chosen {
        stages: args.stages.clone(),
        variants: vec![],
    };
    let (mut completing, ladder) = Completing::begin(&args.target, &chosen)?;
    let device = ladder.gpu_to("time peers on")?;

    let mut python = Python::new(python::program(args.python.as_deref()), None);
    let hello = match python.start() {
        Ok(hello) => hello.clone(),
        Err(error) => bail!(NoData(format!(
            "peers are timed by a Python with PyTorch on a GPU: {error}"
        ))),
    };
    check_uuid(&hello, device)?;
    let builds = ladder.builds()?;
    let mut items = choose::items(&args.problems, &stages(&args.stages, &builds)?);
    let library = library_choice(&View::alone(&completing.run), &items)?;
    for item in &mut items {
        item.library = library.get(&item.place).cloned();
    }
    completing.set_tools(Source::Peers, hello.tools());
    begin_session(&mut completing.run, &items);
    completing.append(hello.absent)?;
    let ceiling: Row = match python.ask("ceilings", json!({})) {
        Ok(ceiling) => ceiling,
        Err(error) => Row::absent_peer("ceiling", None, error.to_string()),
    };
    completing.append([ceiling])?;
    let mut bars = Progress::default();
    let timed = completing.run.clone();
    let plan = plan(args.iters);
    let failed = "the peers could not be timed";
    let bench = Bench {
        device,
        stages: &ladder.stages,
        view: View::alone(&timed),
        zero_us: device.zero_us(&plan).context(failed)?,
        plan,
        exchange: Scratch::new("peers")?,
    };
    for (done, item) in items.iter().enumerate() {
        bars.step("problem", &item.place.to_string(), done, items.len());
        let rows = bench.measure(item, &mut [&mut python]).context(failed)?;
        // An interrupt loses the problem that is being measured, no more.
        completing.append(rows)?;
    }
    completing.append([])?;
    Ok((completing, items))
}

/// What the packaged library chooses on each problem; nothing outside of the workspace.
fn library_choice(
    view: &View<'_>,
    items: &[Item],
) -> anyhow::Result<BTreeMap<ProblemPlace, Subject>> {
    let folder = machine::workspace().map(|root| root.join(CHOICE));
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        return Ok(BTreeMap::new());
    };
    let library = Library {
        stages: &library()?,
        models: &models(&folder)?,
    };
    let places = items.iter().map(|item| &item.place);
    Ok(choice::choose(view, library, places))
}

/// Drops what a session on `items` measures again: these problems, and what is measured once a session.
fn begin_session(run: &mut Run, items: &[Item]) {
    let is_again = |row: &Row| {
        let mut places = items.iter().map(|item| &item.place);
        row.place() == Place::All || places.any(|place| row.problem() == Some(place))
    };
    (run.table).retain(|row| row.source() != Source::Peers || !is_again(row));
}
