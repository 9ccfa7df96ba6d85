//! `compare accept`: checks runs and merges them into the committed tables in `results/`.

use crate::answer::Answer;
use crate::judge::View;
use crate::judge::best::p50;
use crate::judge::choice::{self, Library};
use crate::judge::diff;
use crate::judge::list::{count, grouped, joined};
use crate::judge::missing::Missing;
use crate::judge::peers;
use crate::judge::state::{self, unsanitized};
use crate::judge::verdict::{of_differences, report_of_run};
use crate::measure::{builds, machine};
use crate::pages::files::{self, Rendered};
use crate::progress::say;
use crate::stages::{self, NEGATIVES};
use crate::table::run::Rebased;
use crate::table::session::Progress;
use crate::table::{Key, Kind, Results, Row, Run, StageMeta, Table};
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::choice::Model;
use common::claim::Rival;
use common::device::BackendKind;
use common::limits::DEVICE_VARIABLE;
use common::metric::Metric;
use common::stage::LoadedStage;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The most bytes that one session adds to a table: people read its diff.
pub const MOST_BYTES: usize = 1_000_000;

/// How many of the fastest variants of each problem keep all their latency figures.
const LEADING: usize = 3;

/// What the others keep, by which `diff` judges them.
const OF_OTHERS: [Metric; 3] = [Metric::P50, Metric::P90, Metric::SmMhz];

const EXAMPLES: &str = "\
Merges runs into the table of their GPU model below results/: a row replaces the row of the same key, and what the sources no longer
declare goes. Then it renders as `compare render` does. Refused, by name: a run whose cases are incomplete, of another
GPU model, of a smaller device, of other kernels than the sources', or of a dirty tree; a gate or self-test that fails; a claim that
fails and is not in its stage's negatives.json, with the entry that is to be written there; a variant without gate C7 after a full run on
a GPU (`compare sanitize`); a time at or below its floor; and a table whose rows were edited since they were accepted.

Examples:
  compare accept target/compare/20261120T183000Z-nvidia-h200
  compare accept --refit

Exit codes:
  0  accepted; commit results/ and the pages that were written with it
  2  refused, with the reason, or wrong usage";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AcceptArgs {
    /// Folders that `compare run` wrote, here or on another machine
    #[arg(value_name = "RUN", required_unless_present = "refit")]
    pub runs: Vec<PathBuf>,
    /// Take no run: only fit the library's choice to the tables again, after its stages or its model have changed
    #[arg(long, conflicts_with = "runs")]
    pub refit: bool,
    /// Merge into the tables below this folder, and write no report [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
}

pub fn accept(args: &AcceptArgs) -> anyhow::Result<Answer> {
    let (root, into) = match &args.into {
        Some(into) => (None, into.clone()),
        None => {
            let root = machine::root("give --into DIR")?;
            let into = root.join("results");
            (Some(root), into)
        }
    };
    let stages = stages::builds()?;
    let built = builds::table(&stages);
    let mut results = Results::read(&into)?;
    let mut lines = Vec::new();
    for folder in &args.runs {
        let run = Run::read(folder, &stages).context("the run cannot be accepted")?;
        lines.extend(merge(&run, &mut results, &built)?);
    }
    results.gpus.values_mut().for_each(keep_fastest_peers);
    let library = stages::library()?;
    let mut choices = Vec::new();
    for gpu in results.gpus.keys().cloned().collect::<Vec<_>>() {
        if let Some((text, errors)) = refit(&mut results, &gpu, &stages, &library) {
            lines.extend(errors);
            choices.push((gpu, text));
        }
    }
    let mut pages = Vec::new();
    if let Some(root) = &root {
        for (gpu, text) in &choices {
            results.choose(gpu, text);
        }
        // Rendered before anything is written: a page that cannot be rendered leaves the tables as they were.
        let models = choices.iter().map(|(_, text)| serde_json::from_str(text));
        let models: Vec<Model> = models.collect::<Result<_, _>>()?;
        let library = Library {
            stages: &library,
            models: &models,
        };
        pages = files::committed(&results, &stages, root, library)?;
        pages.extend(choices.into_iter().map(|(gpu, text)| Rendered {
            path: root.join(stages::CHOICE).join(format!("{gpu}.json")),
            text,
        }));
        lines.push("commit results/ and the pages that were written with it".to_string());
    }
    results.write(&into).with_context(|| {
        format!(
            "cannot write {}; choose another place with --into",
            into.display()
        )
    })?;
    files::write(&pages)?;
    Ok(Answer::pass(lines.join("\n")))
}

/// Fits the library's choice among its stages to the table of a GPU model that has random problems, and judges it by fits that do not
/// see them. Gives `attention-ladder/choice/<gpu>.json`, and lines on its errors.
fn refit(
    results: &mut Results,
    gpu: &str,
    stages: &[StageMeta],
    library: &[LoadedStage],
) -> Option<(String, Vec<String>)> {
    let mut table = results.of_gpu(gpu);
    let sessions = choice::judged(&table).map(|row| &row.session);
    let session = sessions.max()?.clone();
    say(&format!(
        "fitting the library's choice to the times of {gpu} (a minute)"
    ));
    let others = results.gpus.keys().filter(|other| *other != gpu);
    let others: Vec<Table> = others.map(|other| results.of_gpu(other)).collect();
    let view: Vec<View<'_>> = (std::iter::once(&table).chain(&others))
        .map(|table| View::committed(stages, table))
        .collect();
    let fitted = choice::fit(&view, library, None)?;
    let regret = choice::unseen_regret(&view, library);
    let residuals = fitted.residuals().map(|line| format!("{gpu}: {line}"));
    let mut lines: Vec<String> = residuals.collect();
    if let Some(regret) = regret {
        lines.push(format!("{gpu}: the library's choice takes {regret}"));
        let mut row = regret.row();
        row.session = session;
        table.append(row);
        results.put(Some(gpu), &table);
    }
    Some((fitted.file(), lines))
}

/// Merges one run into the tables, or says why it is refused. Gives what it changes.
fn merge(run: &Run, results: &mut Results, built: &Table) -> anyhow::Result<Vec<String>> {
    let session = &run.session;
    let name = &session.name;
    let folder = Some(&*session.machine.name).filter(|_| session.backend == BackendKind::Cuda);
    results.restamp(&session.stages, built);
    let committed = results.of_gpu(folder.unwrap_or_default());
    let Rebased { run, left_out } = run.on_current_sources(built);
    ensure!(
        left_out.is_empty() || run.has_evidence(),
        "{name} measured no kernel of these sources; run it again with this build"
    );
    refuse(&run, folder.and_then(|folder| results.gpus.get(folder)))?;
    let changes = judge(&run, &committed)?;
    let mut table = diff::accepted(&run, &committed);
    keep_leading(&mut table, name);
    let is_new = |row: &Row| row.session == *name;
    let bytes: usize = (table.part(is_new).files().iter())
        .map(|(_, bytes)| bytes.len())
        .sum();
    ensure!(
        bytes <= MOST_BYTES,
        "{name} adds {bytes} bytes, {MOST_BYTES} at most; narrow the run (`compare run --help`)"
    );
    results.put(folder, &table);
    let mut lines = vec![format!("accepted {name} ({} KB)", bytes.div_ceil(1000))];
    lines.extend(changes);
    if !left_out.is_empty() {
        lines.push(format!(
            "left out, measured on other kernels than the sources': {}; run them again with this build",
            joined(left_out, ", ")
        ));
    }
    Ok(lines)
}

/// Refuses a run that is no evidence about these sources, whatever it measured.
fn refuse(run: &Run, of_gpu: Option<&Table>) -> anyhow::Result<()> {
    let session = &run.session;
    let name = &session.name;
    if let Progress::Partial { finished, planned } = session.progress {
        ensure!(
            finished >= planned,
            "{name} was interrupted after {finished} of {planned} cases; run the stages that are missing again (`--stages`)"
        );
    }
    if let Some(device) = session.device {
        bail!(
            "{name} is limited to what {device} offers and is not kept: run without --device and {DEVICE_VARIABLE}"
        );
    }
    if let Some(reason) = session.unacceptable() {
        bail!(reason);
    }
    let mut timed = of_gpu.iter().flat_map(|table| table.sessions_on_gpu());
    if let Some(other) = timed.find(|other| other.gpu() != session.gpu()) {
        bail!(
            "{name} was measured on {}, and the table is of {}",
            session.machine.gpu,
            other.machine.gpu
        );
    }
    Ok(())
}

/// Refuses a run that fails or lacks something. Gives what it changes in a table that is there.
fn judge(run: &Run, committed: &Table) -> anyhow::Result<Option<String>> {
    let name = &run.session.name;
    let report = report_of_run(run, committed);
    let failures = report.failures.iter();
    let failures = failures.map(|f| format!("{} {}: {}", f.subject, f.gate, f.reason));
    none(
        failures,
        &format!("{name} has failed gates, which cannot be waived; fix the kernels and run again"),
    )?;
    let lacking = unsanitized(&report.view);
    if let Some(first) = lacking.first() {
        bail!(
            "{name} has no gate C7 for {}, first {first}; complete it on its GPU with `compare sanitize`, then accept it",
            count(lacking.len(), "variant", "variants")
        );
    }
    let wrong = state::self_test(&run.table).map(|row| {
        let reason = row.failure().unwrap_or_default();
        format!("{}: {reason}", row.key())
    });
    none(
        wrong,
        &format!("the self-test of {name} fails; fix it (`compare selftest`) and run again"),
    )?;
    none(
        report.required().map(Missing::to_string),
        &format!("{name} lacks what it should have measured; run again what is missing"),
    )?;
    let broken = report.claims.iter().filter(|claim| claim.is_broken());
    let broken = broken.map(|claim| {
        let entry = claim.refutation(report.view.gpu());
        let entry = serde_json::to_string_pretty(&entry).expect("plain data");
        format!(
            "{}, in {}/{NEGATIVES}:\n{entry}",
            claim.title(),
            claim.stage
        )
    });
    none(
        broken,
        &format!(
            "{name} has failed claims; improve the kernels, or record why they fail, and accept it again"
        ),
    )?;
    let changes = report.since.map(|since| of_differences(&since.changes));
    Ok(changes.map(|changes| changes.to_string()))
}

fn none(wrong: impl Iterator<Item = String>, why: &str) -> anyhow::Result<()> {
    let lines: String = wrong.map(|line| format!("\n  {line}")).collect();
    ensure!(lines.is_empty(), "{why}:{lines}");
    Ok(())
}

/// Reduces the session's latencies that are not among the fastest of their problem to [`OF_OTHERS`].
fn keep_leading(table: &mut Table, session: &str) {
    let is_new = |row: &&Row| row.is_latency() && row.session == session;
    let latencies = table.rows().filter(is_new).cloned();
    let by_problem: Vec<_> = latencies.map(|row| (row.kind.clone(), row)).collect();
    for (_, mut rows) in grouped(by_problem) {
        rows.sort_by(|a, b| p50(a).total_cmp(&p50(b)));
        for mut row in rows.into_iter().skip(LEADING) {
            row.figures.retain(|metric, _| OF_OTHERS.contains(metric));
            table.append(row);
        }
    }
}

/// Of the ratios of ours to peers, keeps those to the fastest that a claim may name.
fn keep_fastest_peers(table: &mut Table) {
    let fastest =
        |row| Rival::ALL.map(|rival| peers::fastest(table, row, |peer| rival.is(peer.as_str())));
    let ratios = table.peer_times().flat_map(fastest).flatten();
    let kept: BTreeSet<Key> = ratios.map(|rival| rival.over.key()).collect();
    table.retain(|row| !matches!(row.kind, Kind::PeerPair { .. }) || kept.contains(&row.key()));
}

#[cfg(test)]
mod tests;
