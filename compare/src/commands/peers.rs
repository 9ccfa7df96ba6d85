//! `compare peers`: completes a run with PyTorch's times for the same problems on the same GPU,
//! timed side by side.

mod choose;
#[cfg(test)]
mod tests;

use crate::answer::{Answer, NoData, gpu_to};
use crate::open_run::{OpenRun, Target};
use crate::progress::{Progress, say};
use anyhow::{Context, bail};
use choice::Library;
use clap::Args;
use common::metric::Metric;
use measure::instrument::process::Scratch;
use measure::python::bench::{Bench, Item, Representatives};
use measure::python::session::Python;
use measure::python::{self, check_uuid, newest, plan};
use measure::select::{Chosen, Problems, at_least_one, stages};
use measure::timer::Timer;
use pages::show::Section;
use results::judge::View;
use results::judge::peers as question;
use results::judge::verdict::Exit;
use results::table::{Claim, Place, ProblemPlace, Row, Run, Source, Subject};
use results::workspace;
use results::workspace::CHOICE;
use serde_json::json;
use stages::{library, models};
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Completes a run of `compare run` of this build on this GPU. PyTorch's scaled_dot_product_attention
by backend, and FlashAttention-3 and -4 where installed, are timed interleaved (A B B A) with ours
on the same values. Each problem is written when it has been measured. Run again with the same
packages, the chosen problems are measured again and the others stay; with other packages it starts
over.

Examples:
  compare peers                                 the named problems
  compare peers --shapes decode_8k,verify       K and V from device memory, each peer by its \
function for caches
  compare peers --shapes mission,1x8:2x512x64 --masks causal
  compare peers --shapes varlen_llm,mixed --dtypes bf16   sequences as they are served: by \
FlashAttention's functions for them, FlashInfer's wrappers and torch.nn.attention.varlen
  compare peers --dtypes e4m3                   against FP8 of cuDNN (package \
nvidia-cudnn-frontend) and FlashAttention-3

Exit codes:
  0  measured and written; every claim against a peer holds, or is recorded as refuted
  1  such a claim fails, or one of our kernels cannot be launched
  2  wrong usage, a run of another build or GPU, or a file that cannot be read or written
  3  not measured: no GPU, no Python with torch, or no peer ran; or a claim is undecided";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct PeersArgs {
    #[command(flatten)]
    pub target: Target,
    /// Stages to time: all of them on mission; on other shapes those with a claim there, and the
    /// fastest [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    #[command(flatten)]
    pub problems: Problems,
    /// Samples per arm and problem, each the mean over at least 20 ms of launches [default: 20]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = at_least_one::<usize>
    )]
    pub iters: Option<usize>,
    /// The Python that has torch [default: PYTHON, else what scripts/python installed, else
    /// python3]
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
}

/// Completes a run. Fails if a claim against a peer does without a negative; is undecided if one is
/// AMBIGUOUS, or no peer at all was timed.
pub fn peers(args: &PeersArgs) -> anyhow::Result<Answer> {
    let Measured { open_run, items } = measure(args)?;
    let view = View::alone(&open_run.run);
    let concluded = open_run.conclude(Section::Peers, is_over_peer)?;
    let is_undecided = concluded.is_undecided || !has_peer(&view);
    let exit = Exit::of(!concluded.broken.is_empty(), is_undecided);
    let mut notes = concluded.broken;
    notes.extend(missing_claimants(&view, &items));
    Ok(Answer::new(exit, concluded.text).noting(notes))
}

fn is_over_peer(claim: &Claim) -> bool {
    claim.is_of_speed() && claim.relation.base().is_none()
}

/// Returns whether any peer was timed.
fn has_peer(view: &View<'_>) -> bool {
    view.table
        .peer_times()
        .any(|row| !question::is_ours(view, row) && row.has(Metric::P50))
}

/// Names the problems that a stage claims to win and of which the run has no variant that passes that
/// takes part: the fastest of ours there belongs to another stage, and a table would show it as
/// ours.
fn missing_claimants(view: &View<'_>, items: &[Item]) -> Vec<String> {
    let mut lines = Vec::new();
    for Item { place, .. } in items {
        for stage in view.stages {
            let is_missing = stage.claims_over_peer(place)
                && Representatives::new(view, stage, place).is_empty();
            if is_missing {
                lines.push(format!(
                    "{place} is timed without {}, which claims it: the run has no variant that \
                     passes of it (`compare run --stages`)",
                    stage.id
                ));
            }
        }
    }
    lines
}

/// A run to which peers were added, and the problems that they were timed on.
struct Measured {
    open_run: OpenRun,
    items: Vec<Item>,
}

/// Opens a run, times the chosen problems, and writes each when it has been measured.
fn measure(args: &PeersArgs) -> anyhow::Result<Measured> {
    let chosen = Chosen {
        stages: args.stages.clone(),
        variants: vec![],
    };
    let (mut open_run, ladder) = OpenRun::begin(&args.target, &chosen)?;
    let device = gpu_to(&ladder, "time peers on")?;
    let mut python = Python::new(python::program(args.python.as_deref()), None);
    let hello = match python.start() {
        Ok(hello) => hello.clone(),
        Err(error) => bail!(NoData(format!(
            "peers are timed by a Python with PyTorch on a GPU: {error}"
        ))),
    };
    check_uuid(&hello, device)?;
    for sentence in newest::outdated(&hello.software)
        .into_iter()
        .chain(hello.missing())
    {
        say(&format!("warning: {sentence}"));
    }
    let builds = ladder.builds()?;
    let asked = choose::items(&args.problems, &stages(&args.stages, &builds)?);
    let view = View::alone(&open_run.run);
    let mut items = with_ours(&view, asked)?;
    for line in missing_claimants(&view, &items) {
        say(&format!("warning: {line}"));
    }
    let choices = library_choices(&view, &items)?;
    for item in &mut items {
        item.library = choices.get(&item.place).cloned();
    }
    open_run.set_tools(Source::Peers, hello.tools());
    begin_session(&mut open_run.run, &items);
    open_run.append(hello.absent)?;
    open_run.append([ceilings(&mut python)])?;
    let timed = open_run.run.clone();
    let plan = plan(args.iters);
    let exchange = Scratch::new("peers")?;
    let bench = Bench {
        device,
        stages: &ladder.stages,
        view: View::alone(&timed),
        zero_us: device.zero_us(&plan).context(CANNOT_TIME)?,
        plan,
        exchange: &exchange,
    };
    let mut progress = Progress::default();
    for (done, item) in items.iter().enumerate() {
        progress.step("problem", &item.place.to_string(), done, items.len());
        let rows = bench
            .measure(item, &mut [&mut python])
            .context(CANNOT_TIME)?;
        // An interrupt loses the problem that is being measured, no more.
        open_run.append(rows)?;
    }
    open_run.append([])?;
    Ok(Measured { open_run, items })
}

const CANNOT_TIME: &str = "the peers could not be timed";

/// Leaves out the problems on which nothing of ours can be timed, and says so; they would cost half
/// a minute each, and a table has no use for peers alone.
fn with_ours(view: &View<'_>, items: Vec<Item>) -> anyhow::Result<Vec<Item>> {
    let (ours, others): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| {
        let mut stages = view.stages.iter();
        stages.any(|stage| !Representatives::new(view, stage, &item.place).is_empty())
    });
    let left_out: Vec<String> = others.iter().map(|item| item.place.to_string()).collect();
    if ours.is_empty() {
        bail!(NoData(format!(
            "the run has no variant that passes on {}; check one first (`compare run --stages`)",
            left_out.join(", ")
        )));
    }
    if !left_out.is_empty() {
        say(&format!(
            "warning: left out, since no variant of the run passes there: {}",
            left_out.join(", ")
        ));
    }
    Ok(ours)
}

/// Measures what the GPU could do at most; a failure is noted in the row.
fn ceilings(python: &mut Python) -> Row {
    python
        .ask("ceilings", json!({}))
        .unwrap_or_else(|error| Row::absent_peer("ceiling", None, error.to_string()))
}

/// Returns what the packaged library chooses on each problem; nothing outside of the workspace.
fn library_choices(
    view: &View<'_>,
    items: &[Item],
) -> anyhow::Result<BTreeMap<ProblemPlace, Subject>> {
    let Some(root) = workspace::find() else {
        return Ok(BTreeMap::new());
    };
    let folder = root.join(CHOICE);
    if !folder.is_dir() {
        return Ok(BTreeMap::new());
    }
    let packaged = Library {
        stages: &library()?,
        models: &models(&folder)?,
    };
    let places = items.iter().map(|item| &item.place);
    Ok(choice::choose(view, packaged, places))
}

/// Drops what a session on `items` measures again: these problems, and what is measured once a
/// session.
fn begin_session(run: &mut Run, items: &[Item]) {
    run.table.retain(|row| {
        let is_measured_again = match row.problem() {
            Some(place) => items.iter().any(|item| item.place == *place),
            None => row.place() == Place::All,
        };
        row.source() != Source::Peers || !is_measured_again
    });
}
