//! `compare accept`: checks runs and merges them into the committed tables in `results/`.

use crate::answer::Answer;
use crate::progress::say;
use anyhow::{Context, bail, ensure};
use choice::Library;
use clap::Args;
use common::choice::Model;
use common::claim::Rival;
use common::device::BackendKind;
use common::limits::DEVICE_VARIABLE;
use common::metric::Metric;
use common::stage::LoadedStage;
use measure::interrupt::interrupted;
use pages::files::{self, Rendered};
use results::judge::View;
use results::judge::best::p50;
use results::judge::diff;
use results::judge::gaps;
use results::judge::list::{count, distinct, grouped, joined};
use results::judge::missing::Missing;
use results::judge::peers;
use results::judge::state::{self, unsanitized};
use results::judge::verdict::{Report, of_differences, report_of_run};
use results::table::run::Rebased;
use results::table::session::{Progress, Tier};
use results::table::{Key, Kind, Results, Run, StageMeta, Subject, Table};
use results::{builds, workspace};
use stages::NEGATIVES;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// The most bytes that one session adds to a table: people read its diff. All stages under `--full` add
/// half as many.
pub const MAX_SESSION_BYTES: usize = 2_000_000;

/// The number of the fastest variants of each problem that keep all their latency figures.
const FULL_DETAIL_RANKS: usize = 3;

/// The figures that the others keep: those by which `diff` judges them, and what the ladder shows
/// of the fastest of each stage. Power and its limit tell whether a burst counts beside sustained
/// times.
const METRICS_OF_SLOWER_VARIANTS: [Metric; 6] = [
    Metric::P50,
    Metric::P90,
    Metric::SmMhz,
    Metric::PowerW,
    Metric::PowerLimitW,
    Metric::EnergyMj,
];

const EXAMPLES: &str = "\
Merges runs into the table of their GPU model below results/: a row replaces the row of the same
key, and what the sources no longer declare goes. A whole run of tier T2 also drops the times of
former kernels that it did not take again. Of a run that was stopped after its cases, what it timed
is kept. Then it renders as `compare render` does. Refused, by name: a run whose cases are
incomplete, of another GPU model, of a smaller device, of other kernels than the sources', or of a
dirty tree; a run of tier T1 of machine code that has not passed tier T2 on a GPU of its
architecture; a gate or self-test that fails; a claim that fails and is not in its stage's
negatives.json, with the entry that is to be written there; a variant without gate C7 (`compare
sanitize`) after a full run on a GPU, in that or another run that is accepted with it; a time at or
below its floor; and a table whose rows were edited since they were accepted.

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
    /// Take no run: only fit the library's choice to the tables again, after its stages or its
    /// model have changed
    #[arg(long, conflicts_with = "runs")]
    pub refit: bool,
    /// Merge into the tables below this folder, and write no report [default: results/ of the
    /// workspace]
    #[arg(long, alias = "into", value_name = "DIR")]
    pub results: Option<PathBuf>,
}

/// Merges runs into the committed tables, and fits the library's choice to their times.
pub fn accept(args: &AcceptArgs) -> anyhow::Result<Answer> {
    let target = Target::new(args)?;
    let stages = stages::builds()?;
    let built = builds::table(&stages);
    let mut runs = Vec::new();
    for folder in &args.runs {
        runs.push(Run::read(folder, &stages).context("the run cannot be accepted")?);
    }
    if args.refit {
        ensure!(
            !Results::read(&target.folder)?.gpus.is_empty(),
            "{} has no table of a GPU to fit the library's choice to; accept a run first",
            target.folder.display()
        );
    }
    // Nobody else writes the tables between here and the end.
    let _lock = lock(&target.folder)?;
    let mut results = Results::read(&target.folder)?;
    let mut lines = Vec::new();
    for run in &runs {
        lines.extend(merge(run, &runs, &mut results, &built)?);
    }
    if args.refit {
        refresh(&mut results, &stages, &built);
    }
    for table in results.gpus.values_mut() {
        keep_fastest_peers(table);
    }
    let library = stages::library()?;
    let mut choices = Vec::new();
    let gpus: Vec<String> = results.gpus.keys().cloned().collect();
    for gpu in gpus {
        if let Some(mut choice) = refit(&mut results, &gpu, &stages, &library) {
            lines.append(&mut choice.remarks);
            choices.push(choice);
        }
    }
    let mut pages = Vec::new();
    if let Some(root) = &target.root {
        // Rendered before anything is written: a page that cannot be rendered leaves the tables as
        // they were.
        pages = render(root, &mut results, &stages, &library, choices)?;
        lines.push("commit results/ and the pages that were written with it".to_string());
    }
    // From here on the first signal waits: half of a table would be refused as an edited one.
    interrupted().context("cannot wait for signals")?;
    results.write(&target.folder).with_context(|| {
        let folder = target.folder.display();
        format!("cannot write {folder}; choose another place with --results")
    })?;
    files::write(&pages)?;
    if let Some(root) = &target.root {
        files::remove(&files::former_reports(root, &pages)?)?;
    }
    Ok(Answer::pass(lines.join("\n")))
}

/// Waits until no other `accept` works on a folder of tables, and lets others wait while the handle
/// is open.
fn lock(folder: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot lock {}", folder.display());
    fs::create_dir_all(folder).with_context(|| {
        let name = folder.display();
        format!("cannot write {name}; choose another place with --results")
    })?;
    let handle = File::open(folder).with_context(cannot)?;
    match handle.try_lock() {
        Ok(()) => return Ok(handle),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    say(&format!(
        "another `compare accept` works on {}: waiting for its end",
        folder.display()
    ));
    handle.lock().with_context(cannot)?;
    Ok(handle)
}

/// The folder of tables that runs are merged into.
struct Target {
    folder: PathBuf,
    /// The workspace whose pages are written.
    root: Option<PathBuf>,
}

impl Target {
    fn new(args: &AcceptArgs) -> anyhow::Result<Self> {
        if let Some(folder) = &args.results {
            return Ok(Self {
                folder: folder.clone(),
                root: None,
            });
        }
        let root = workspace::require("give --results DIR")?;
        Ok(Self {
            folder: root.join("results"),
            root: Some(root),
        })
    }
}

/// The library's choice for a GPU model.
struct Choice {
    gpu: String,
    /// The text of `attention-ladder/choice/<gpu>.json`.
    text: String,
    /// Lines on its errors and its regret.
    remarks: Vec<String>,
}

/// Returns the pages of the workspace, and the files of the choices.
fn render(
    root: &Path,
    results: &mut Results,
    stages: &[StageMeta],
    library: &[LoadedStage],
    choices: Vec<Choice>,
) -> anyhow::Result<Vec<Rendered>> {
    let mut models: Vec<Model> = Vec::new();
    for choice in &choices {
        results.choose(&choice.gpu, &choice.text);
        models.push(serde_json::from_str(&choice.text)?);
    }
    let fitted_library = Library {
        stages: library,
        models: &models,
    };
    let mut pages = files::committed(results, stages, root, fitted_library)?;
    for choice in choices {
        pages.push(Rendered {
            path: root
                .join(workspace::CHOICE)
                .join(format!("{}.json", choice.gpu)),
            text: choice.text,
        });
    }
    Ok(pages)
}

/// Fits the library's choice among its stages to the table of a GPU model that has random problems,
/// and judges it by fits that do not see them. The regret becomes a row of the table.
fn refit(
    results: &mut Results,
    gpu: &str,
    stages: &[StageMeta],
    library: &[LoadedStage],
) -> Option<Choice> {
    let mut table = results.of_gpu(gpu);
    let sessions = choice::judged_times(&table, library).map(|row| &row.session);
    let session = sessions.max()?.clone();
    say(&format!(
        "fitting the library's choice to the times of {gpu} (a minute)"
    ));
    let mut others = Vec::new();
    for other in results.gpus.keys() {
        if other != gpu {
            others.push(results.of_gpu(other));
        }
    }
    let mut views = vec![View::committed(stages, &table)];
    for other in &others {
        views.push(View::committed(stages, other));
    }
    let fitted = choice::fit(&views, library, None)?;
    let unseen_regret = choice::unseen_regret(&views, library);
    let mut remarks = Vec::new();
    for line in fitted.residuals() {
        remarks.push(format!("{gpu}: {line}"));
    }
    if let Some(regret) = unseen_regret {
        remarks.push(format!("{gpu}: the library's choice takes {regret}"));
        let mut row = regret.row();
        row.session = session;
        table.append(row);
        results.put(Some(gpu), &table);
    }
    Some(Choice {
        gpu: gpu.to_string(),
        text: fitted.file(),
        remarks,
    })
}

/// Brings the tables up to the sources: rows of the same machine code are theirs, and what they no
/// longer declare goes.
fn refresh(results: &mut Results, stages: &[StageMeta], built: &Table) {
    results.restamp(stages, built);
    for gpu in results.gpus.keys().cloned().collect::<Vec<_>>() {
        let mut table = results.of_gpu(&gpu);
        diff::refresh(&mut table, stages);
        results.put(Some(&gpu), &table);
    }
}

/// Merges one run into the tables, or reports why it is refused. Returns what it changes. `runs` are
/// all that are accepted with it, of which another may have its variants' gate C7.
fn merge(
    measured: &Run,
    runs: &[Run],
    results: &mut Results,
    built: &Table,
) -> anyhow::Result<Vec<String>> {
    let run = under_free_name(measured, results);
    let session = &run.session;
    let name = &session.name;
    let folder = match session.backend {
        BackendKind::Cuda => Some(&*session.machine.name),
        BackendKind::Emulated => None,
    };
    results.restamp(&session.stages, built);
    let committed = results.of_gpu(folder.unwrap_or_default());
    let Rebased {
        run: current,
        left_out,
    } = run.on_current_sources(built);
    ensure!(
        left_out.is_empty() || current.has_evidence(),
        "{name} measured no kernel of these sources; run it again with this build"
    );
    refuse_unacceptable(&current)?;
    refuse_untested_code(&current, results)?;
    refuse_other_gpu(&current, folder.and_then(|gpu| results.gpus.get(gpu)))?;
    let changes = judge(&current, runs, &committed)?;
    let mut table = diff::accepted(&current, &committed);
    keep_leading(&mut table, name);
    let bytes = bytes_of_session(&table, name);
    ensure!(
        bytes <= MAX_SESSION_BYTES,
        "{name} adds {bytes} bytes, {MAX_SESSION_BYTES} at most; \
         narrow the run (`compare run --help`)"
    );
    results.put(folder, &table);
    let mut lines = vec![format!("accepted {name} ({} KB)", bytes.div_ceil(1000))];
    lines.extend(changes);
    if !left_out.is_empty() {
        lines.push(format!(
            "left out, measured on other kernels than the sources': {}; \
             run them again with this build",
            joined(left_out, ", ")
        ));
    }
    Ok(lines)
}

/// Returns the run, under a name that no other run of the tables has: two GPUs of a machine begin
/// runs in the same second.
fn under_free_name(run: &Run, results: &Results) -> Run {
    let mut named = run.clone();
    let mut number = 1;
    while results.has_other_run(&named.session) {
        number += 1;
        named.rename(&format!("{}-{number}", run.session.name));
    }
    named
}

fn bytes_of_session(table: &Table, session: &str) -> usize {
    let added = table.part(|row| row.session == *session);
    added.files().iter().map(|file| file.bytes.len()).sum()
}

/// Refuses a run that is no evidence about these sources, whatever it measured.
fn refuse_unacceptable(run: &Run) -> anyhow::Result<()> {
    let session = &run.session;
    let name = &session.name;
    if let Progress::Partial { finished, planned } = session.progress {
        ensure!(
            finished >= planned,
            "{name} was interrupted after {finished} of {planned} cases; \
             run the stages that are missing again (`--stages`)"
        );
    }
    if let Some(device) = session.device {
        bail!(
            "{name} is limited to what {device} offers and is not kept: \
             run without --device and {DEVICE_VARIABLE}"
        );
    }
    match session.unacceptable() {
        Some(reason) => bail!(reason),
        None => Ok(()),
    }
}

/// Refuses a run of tier T1 on a GPU of which a variant's machine code has not passed the cases that
/// a table's gates stand for, those of tier T2, on any GPU of the architecture.
fn refuse_untested_code(run: &Run, results: &Results) -> anyhow::Result<()> {
    let session = &run.session;
    if session.backend != BackendKind::Cuda || session.tier != Tier::T1 {
        return Ok(());
    }
    let arch = session.machine.gpu.arch();
    let untested: BTreeSet<&str> = run
        .table
        .rows()
        .filter(|row| row.kind == Kind::Checked(BackendKind::Cuda))
        .filter(|row| !results.has_passed_all_cases(row, arch))
        .map(|row| row.subject.stage())
        .collect();
    ensure!(
        untested.is_empty(),
        "{} is of tier T1, a part of the cases that a table's gates stand for, and no table has all \
         of them for the same machine code on a GPU of its architecture; accept a run of \
         `compare --full --iters 0 --stages {}` before it",
        session.name,
        joined(untested, ",")
    );
    Ok(())
}

/// Refuses a run on another GPU model than that of the table.
fn refuse_other_gpu(run: &Run, table: Option<&Table>) -> anyhow::Result<()> {
    let session = &run.session;
    let mut sessions = table.into_iter().flat_map(Table::sessions_on_gpu);
    match sessions.find(|other| other.gpu() != session.gpu()) {
        Some(other) => bail!(
            "{} was measured on {}, and the table is of {}",
            session.name,
            session.machine.gpu,
            other.machine.gpu
        ),
        None => Ok(()),
    }
}

/// Refuses a run that fails or lacks something. Returns what it changes in a table that is there.
fn judge(run: &Run, runs: &[Run], committed: &Table) -> anyhow::Result<Vec<String>> {
    let report = report_of_run(run, committed);
    refuse_failures(run, &report)?;
    refuse_unsanitized(run, runs, &report)?;
    refuse_failed_self_test(run)?;
    refuse_missing(run, &report)?;
    refuse_failed_claims(run, &report)?;
    let mut lines: Vec<String> = untimed(run, &report).into_iter().collect();
    if let Some(since) = &report.since {
        lines.push(of_differences(&since.changes).to_string());
        lines.extend(pages::diff::worse(&since.changes).map(|text| text.to_string()));
    }
    Ok(lines)
}

fn refuse_failures(run: &Run, report: &Report<'_>) -> anyhow::Result<()> {
    let failures = report
        .failures
        .iter()
        .map(|failure| format!("{} {}: {}", failure.subject, failure.gate, failure.reason));
    refuse_if_any(
        failures,
        &format!(
            "{} has failed gates, which cannot be waived; fix the kernels and run again",
            run.session.name
        ),
    )
}

fn refuse_unsanitized(run: &Run, runs: &[Run], report: &Report<'_>) -> anyhow::Result<()> {
    let mut lacking = unsanitized(&report.view);
    lacking.retain(|subject| !runs.iter().any(|other| has_sanitized(other, run, subject)));
    if let Some(first) = lacking.first() {
        bail!(
            "{} has no gate C7 for {}, first {first}; \
             complete it on its GPU with `compare sanitize`, then accept it",
            run.session.name,
            count(lacking.len(), "variant", "variants")
        );
    }
    Ok(())
}

/// Returns whether `other` has gate C7 of the machine code that `run` checked, on the same GPU model;
/// if it failed there, `other` is refused.
fn has_sanitized(other: &Run, run: &Run, subject: &Subject) -> bool {
    let findings = other.table.row(subject, Kind::Sanitized);
    let gates = run.table.checked(subject, BackendKind::Cuda);
    other.session.gpu() == run.session.gpu()
        && findings.zip(gates).is_some_and(|(sanitized, checked)| {
            sanitized.code.is_some() && sanitized.code == checked.code
        })
}

fn refuse_failed_self_test(run: &Run) -> anyhow::Result<()> {
    let wrong = state::self_test(&run.table).map(|row| {
        let reason = row.failure().unwrap_or_default();
        format!("{}: {reason}", row.key())
    });
    refuse_if_any(
        wrong,
        &format!(
            "the self-test of {} fails; fix it (`compare selftest`) and run again",
            run.session.name
        ),
    )
}

/// Refuses a run that lacks what it should have measured. Of one that was stopped after its cases,
/// the pairs that it timed are kept: the table says of the claims about others that nobody measured
/// them.
fn refuse_missing(run: &Run, report: &Report<'_>) -> anyhow::Result<()> {
    let lacking = report
        .required()
        .filter(|missing| !(is_stopped(run) && missing.is_timing));
    refuse_if_any(
        lacking.map(Missing::to_string),
        &format!(
            "{} lacks what it should have measured; run again what is missing",
            run.session.name
        ),
    )
}

fn is_stopped(run: &Run) -> bool {
    matches!(run.session.progress, Progress::Partial { .. })
}

/// Returns how many claims a stopped run did not come to, and the command that measures them.
fn untimed(run: &Run, report: &Report<'_>) -> Option<String> {
    let lacking = report.required().filter(|missing| missing.is_timing);
    let stages: Vec<&str> = lacking
        .filter_map(|missing| missing.stage.as_deref())
        .collect();
    let first = stages.first()?;
    is_stopped(run).then(|| {
        format!(
            "{} was stopped before it timed {}, first of {first}: `compare --full --stages {}` \
             measures them",
            run.session.name,
            count(stages.len(), "claim", "claims"),
            joined(distinct(stages.iter().copied().map(gaps::number)), ",")
        )
    })
}

/// Refuses claims that fail and are not on record, with the entry that would record each.
fn refuse_failed_claims(run: &Run, report: &Report<'_>) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    for claim in report.claims.iter().filter(|claim| claim.is_broken()) {
        let refutation = claim.refutation(report.view.gpu());
        let entry = serde_json::to_string_pretty(&refutation).expect("plain data");
        entries.push(format!(
            "{}, in {}/{NEGATIVES}:\n{entry}",
            claim.title(),
            claim.stage
        ));
    }
    refuse_if_any(
        entries.into_iter(),
        &format!(
            "{} has failed claims; improve the kernels, or record why they fail, \
             and accept it again",
            run.session.name
        ),
    )
}

/// Refuses with a line for each thing that is wrong.
fn refuse_if_any(wrong: impl Iterator<Item = String>, why: &str) -> anyhow::Result<()> {
    let lines: String = wrong.map(|line| format!("\n  {line}")).collect();
    ensure!(lines.is_empty(), "{why}:{lines}");
    Ok(())
}

/// Reduces the session's latencies that are not among the fastest of their problem to
/// [`METRICS_OF_SLOWER_VARIANTS`].
fn keep_leading(table: &mut Table, session: &str) {
    let mut latencies = Vec::new();
    for row in table.rows() {
        if row.is_latency() && row.session == session {
            latencies.push((row.kind.clone(), row.clone()));
        }
    }
    for mut group in grouped(latencies) {
        group.values.sort_by(|a, b| p50(a).total_cmp(&p50(b)));
        for mut row in group.values.into_iter().skip(FULL_DETAIL_RANKS) {
            row.figures
                .retain(|metric, _| METRICS_OF_SLOWER_VARIANTS.contains(metric));
            table.append(row);
        }
    }
}

/// Keeps, of the ratios of ours to peers, those to the fastest that a claim may name.
fn keep_fastest_peers(table: &mut Table) {
    let mut kept: BTreeSet<Key> = BTreeSet::new();
    for row in table.peer_times() {
        for rival in Rival::ALL {
            if let Some(peer) = peers::fastest(table, row, |peer| rival.is(peer.as_str())) {
                kept.insert(peer.over.key());
            }
        }
    }
    table.retain(|row| !matches!(row.kind, Kind::PeerPair { .. }) || kept.contains(&row.key()));
}

#[cfg(test)]
mod tests;
