//! Runs every stage of the attention ladder through the same gates and writes COMPARE.md.

#![forbid(unsafe_code)]

mod accept;
mod brief;
mod cli;
mod completion;
mod diff;
mod estimate;
mod history;
mod input;
mod judge;
mod launch;
mod list;
mod machine;
mod measure;
mod output;
mod page;
mod pages;
mod peers;
mod profile;
mod progress;
#[cfg(test)]
mod recipes;
mod record;
mod registry;
mod render;
mod run;
mod sanitize;
mod select;
mod selftest;
mod show;
#[cfg(test)]
mod testing;
mod tool;
mod tune;

use anyhow::{Context, Result, bail};
use clap::Parser;
use cli::{Cli, Command, ProfileArgs, RenderArgs, RunArgs, SanitizeArgs, SelftestArgs, TuneArgs};
use common::limits::Limited;
use judge::Known;
use judge::verdict::{self, Exit};
use measure::execute::ExecuteError;
use output::{Content, Output};
use record::StageMeta;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tune::Tuned;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(args) => run(&args),
        Command::List(args) => print(list::list(&args)),
        Command::Selftest(args) => selftest(&args),
        Command::Tune(args) => tune(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Brief(args) => brief::brief(&args),
        Command::History(args) => history::history(&args),
        Command::Profile(args) => profile(&args),
        Command::Sanitize(args) => sanitize(&args),
        Command::Peers(args) => peers(&args),
        Command::Accept(args) => print(accept::accept(&args).map(|accepted| accepted.to_string())),
        Command::Render(args) => render(&args),
        Command::Show(args) => show::show(&args),
        Command::Launch(args) => {
            launch::launch(&args).map(|green| if green { Exit::Pass } else { Exit::Fail }).map_err(anyhow::Error::from)
        }
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            eprintln!("error: {error:#}");
            let executed = match (error.downcast_ref::<run::RunError>(), error.downcast_ref::<tune::TuneError>()) {
                (Some(run::RunError::Execute { source: error, .. }), _)
                | (_, Some(tune::TuneError::Execute(error))) => Some(error),
                _ => None,
            };
            let code = match executed {
                // The gates were asked, and a launch ended them: that is a failure of a stage.
                Some(ExecuteError::Lost { .. } | ExecuteError::Timing(_)) => Exit::Fail,
                _ if matches!(error.downcast_ref(), Some(peers::PeersError::Timing(_))) => Exit::Fail,
                _ => Exit::Usage,
            };
            ExitCode::from(code.code())
        }
    }
}

/// Prints text that ends in a line.
fn say(text: impl std::fmt::Display) -> std::io::Result<()> {
    page::print(&format!("{}\n", text.to_string().trim_end()))
}

fn print<E: std::error::Error + Send + Sync + 'static>(text: Result<String, E>) -> Result<Exit> {
    say(text?)?;
    Ok(Exit::Pass)
}

fn selftest(args: &SelftestArgs) -> Result<Exit> {
    let selftest = selftest::selftest(args)?;
    say(selftest.text)?;
    Ok(if selftest.escaped == 0 { Exit::Pass } else { Exit::Fail })
}

fn tune(args: &TuneArgs) -> Result<Exit> {
    output::check(&Output::text("--out", args.out.as_ref()), &[])?;
    match tune::tune(args)? {
        Tuned::NoData { reason } => {
            say(format!("NO DATA: presets are ranked by times on a GPU: {reason}"))?;
            Ok(Exit::Undecided)
        }
        Tuned::SharedCode { reasons } => {
            say(format!(
                "FAIL: two presets are one, so that the knob between them does nothing; remove one, or make it a\nconstant that \
                 the kernel uses. Nothing was ranked.\n  {}",
                reasons.join("\n  ")
            ))?;
            Ok(Exit::Fail)
        }
        Tuned::Written { text, path, skipped, failed } => {
            if !args.quiet {
                say(format!("{text}the best are in {}; commit it", path.display()))?;
            }
            skipped.iter().for_each(|line| eprintln!("not ranked: {line}"));
            failed.iter().for_each(|line| eprintln!("FAIL {line}"));
            Ok(if failed.is_empty() { Exit::Pass } else { Exit::Fail })
        }
    }
}

fn profile(args: &ProfileArgs) -> Result<Exit> {
    match profile::profile(args)? {
        profile::Outcomes::NoData { reason } => {
            say(format!("NO DATA: {reason}"))?;
            Ok(Exit::Undecided)
        }
        profile::Outcomes::Red { reason } => {
            say(format!("FAIL: not green under ncu, so that no figure means anything: {reason}"))?;
            Ok(Exit::Fail)
        }
        profile::Outcomes::Written { text, path, report, refuted } => {
            if !args.quiet {
                say(format!("{text}\nprofile: {}\nfor ncu's user interface: {}", path.display(), report.display()))?;
            }
            refuted.iter().for_each(|line| eprintln!("FAIL E1 on this GPU: {line}"));
            Ok(if refuted.is_empty() { Exit::Pass } else { Exit::Fail })
        }
    }
}

fn sanitize(args: &SanitizeArgs) -> Result<Exit> {
    match sanitize::sanitize(args)? {
        sanitize::Outcomes::NoData { reason } => {
            say(format!("NO DATA: {reason}"))?;
            Ok(Exit::Undecided)
        }
        sanitize::Outcomes::Written { text, path, logs, failed, undecided } => {
            if !args.quiet {
                say(format!("{text}\nsanitizer: {}\nlogs: {}", path.display(), logs.display()))?;
            }
            failed.iter().for_each(|line| eprintln!("FAIL C7 {line}"));
            Ok(match (failed.is_empty(), undecided) {
                (false, _) => Exit::Fail,
                (true, 0) => Exit::Pass,
                (true, _) => Exit::Undecided,
            })
        }
    }
}

fn peers(args: &peers::PeersArgs) -> Result<Exit> {
    let report_path = report_path(args.report.as_deref())?;
    output::check(&report_outputs(&report_path), &[])?;
    match peers::peers(args)? {
        peers::Measured::NoData { reason } => {
            say(format!("NO DATA: peers are timed on a GPU by a Python with PyTorch: {reason}"))?;
            Ok(Exit::Undecided)
        }
        peers::Measured::Written { folder, name, record, failed, undecided } => {
            let (stages, committed) = (ladder()?, committed()?);
            let report = verdict::report(Known { stages: &stages, run: Some((&name, &record)), committed: &committed });
            render::write(&render::of_run(&report, &folder, &report_path))?;
            if !args.quiet {
                let document = pages::show::document(&report, &[pages::show::Section::Peers], &[]);
                say(page::terminal::terminal(&document, page::terminal::WIDTH, "compare show peers"))?;
                say(format!("record: {}\nreport: {}", folder.display(), report_path.display()))?;
            }
            failed.iter().for_each(|claim| eprintln!("FAIL {claim}"));
            Ok(match (failed.is_empty(), undecided) {
                (false, _) => Exit::Fail,
                (true, true) => Exit::Undecided,
                (true, false) => Exit::Pass,
            })
        }
    }
}

/// The ladder as it is built now.
fn ladder() -> Result<Vec<StageMeta>> {
    Ok(measure::builds::metas(&measure::builds::builds(&registry::load()?)))
}

/// The committed records of the workspace.
fn committed() -> Result<Vec<judge::Named>> {
    Ok(record::store::read_all(&machine::results())?)
}

fn run(args: &RunArgs) -> Result<Exit> {
    let report_path = report_path(args.report.as_deref())?;
    let mut outputs = report_outputs(&report_path);
    let json = args.json.iter().filter(|path| path.as_os_str() != "-");
    outputs.extend(json.map(|path| Output { flag: "--json", path: path.clone(), content: Content::Json }));
    let input: Vec<_> = args.input.iter().map(|path| ("--input", path.as_path())).collect();
    output::check(&outputs, &input)?;
    let run::Finished { folder, name, record } = run::run(args)?;
    let committed = committed()?;
    // The stages of this very run: on a smaller device they are without what it refuses.
    let known = Known { stages: &record.meta.stages, run: Some((&name, &record)), committed: &committed };
    let report = verdict::report(known);
    render::write(&render::of_run(&report, &folder, &report_path))?;
    if let Some(json) = &args.json {
        let text = serde_json::to_string_pretty(&pages::json::json(&report))? + "\n";
        if json.as_os_str() == "-" {
            say(text)?;
        } else {
            record::files::write_atomically(json, text.as_bytes())?;
        }
    }
    let terminal = |document: &page::Document| {
        page::terminal::terminal(document, page::terminal::WIDTH, "compare show").trim_end().to_string()
    };
    if let (true, Some(reproach)) = (args.quiet, pages::summary::reproach(&report)) {
        eprintln!("{}", terminal(&reproach));
    }
    if !args.quiet {
        let text = terminal(&pages::summary::document(&report));
        let summary = format!("{text}\nrecord: {}\nreport: {}", folder.display(), report_path.display());
        // Standard output belongs to the document where that goes there.
        match args.json.as_deref().is_some_and(|path| path.as_os_str() == "-") {
            true => eprintln!("{summary}"),
            false => say(summary)?,
        }
    }
    Ok(report.overall.exit)
}

/// Where the report goes: as asked, else COMPARE.md of the workspace.
fn report_path(asked: Option<&Path>) -> Result<PathBuf> {
    match asked {
        Some(path) => Ok(path.to_path_buf()),
        None => Ok(machine::root("--report FILE")?.join("COMPARE.md")),
    }
}

/// The file that goes where `path` says, by the flag that says it.
fn report_outputs(path: &Path) -> Vec<Output> {
    vec![Output { flag: "--report", path: path.to_path_buf(), content: Content::Report }]
}

/// COMPARE.md and the README's ladder from the committed records alone.
fn render(args: &RenderArgs) -> Result<Exit> {
    let results = match &args.results {
        Some(results) => results.clone(),
        None => machine::root("--results DIR and --report FILE")?.join("results"),
    };
    let report_path = report_path(args.report.as_deref())?;
    if !args.check {
        output::check(&report_outputs(&report_path), &[])?;
    }
    let committed = record::store::read_all(&results)?;
    if committed.is_empty() {
        bail!(
            "there is no record in {}, so that everything would be 'not run'; name the folder with --results, or commit a record \
             with `compare accept`",
            results.display()
        );
    }
    committed.iter().try_for_each(|(name, record)| Limited::refuse(name, record.meta.device))?;
    let stages = ladder()?;
    let report = verdict::report(Known { stages: &stages, run: None, committed: &committed });
    let mut files = vec![render::compare_md(&report, &report_path)];
    if args.report.is_none() {
        let path = machine::root("--report FILE")?.join("README.md");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.push(render::Rendered { text: render::readme(&text, &report)?, path });
    }
    if !args.check {
        render::write(&files)?;
        return Ok(Exit::Pass);
    }
    let stale: Vec<String> = files
        .iter()
        .filter(|file| std::fs::read_to_string(&file.path).ok().as_deref() != Some(&file.text))
        .map(|file| file.path.display().to_string())
        .collect();
    if stale.is_empty() {
        say(format!("up to date with {} committed records", committed.len()))?;
        return Ok(Exit::Pass);
    }
    say(format!("not what the committed records say: {}; run `compare render`", stale.join(", ")))?;
    Ok(Exit::Fail)
}
