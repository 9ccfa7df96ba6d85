//! Checks every stage of the attention ladder with the same gates, times it on a GPU, and writes COMPARE.md.

#![forbid(unsafe_code)]

mod answer;
mod cli;
mod commands;
mod document;
#[cfg(test)]
#[path = "tests/documents.rs"]
mod documents;
mod git;
#[cfg(test)]
#[path = "tests/git.rs"]
mod git_tests;
mod instrument;
mod interrupt;
mod judge;
mod launch;
mod measure;
mod open_run;
mod pages;
#[cfg(test)]
mod program;
mod progress;
#[cfg(test)]
mod provenance;
mod python;
#[cfg(test)]
#[path = "tests/recipes.rs"]
mod recipes;
mod recorder;
mod shared_memory;
mod stages;
mod table;
#[cfg(test)]
mod testing;

use answer::{Answer, NoData};
use anyhow::Context;
use clap::Parser;
use cli::{Cli, Command};
use commands::{
    accept, candidate, diff, doctor, explain, fuzz, peers, profile, render, run, sanitize,
    selftest, show, sources,
};
use common::device::cuda::CudaError;
use judge::verdict::Exit;
use measure::limits;
use measure::sink::ExecuteError;
use signal_hook::consts::SIGXFSZ;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let answer = answer(cli.command.unwrap_or(Command::Run(cli.run)));
    let answer = answer.or_else(|error| error.downcast::<NoData>().map(Answer::from));
    let exit = answer.and_then(|answer| {
        answer.print().context("cannot write to standard output")?;
        Ok(answer.exit)
    });
    let exit = exit.unwrap_or_else(|error| {
        progress::say(&format!("error: {error:#}"));
        exit_of(&error)
    });
    ExitCode::from(exit.code())
}

fn answer(command: Command) -> anyhow::Result<Answer> {
    use Command::{Accept, Diff, Doctor, Render, Show, Sources};
    // With a handler, a write beyond `ulimit -f` fails and does not end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    // The others launch kernels or compute references. `doctor` says what it finds.
    if !matches!(
        command,
        Accept(_) | Diff(_) | Doctor(_) | Render(_) | Show(_) | Sources
    ) {
        limits::check()?;
    }
    match command {
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Selftest(args) => selftest::selftest(&args),
        Command::Diff(args) => diff::diff(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Sanitize(args) => sanitize::sanitize(&args),
        Command::Peers(args) => peers::peers(&args),
        Command::Candidate(args) => candidate::candidate(&args),
        Command::Accept(args) => accept::accept(&args),
        Command::Render(args) => render::render(&args),
        Command::Show(args) => show::show(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Fuzz(args) => fuzz::fuzz(&args),
        Command::Sources => sources::sources(),
        Command::Launch(args) => launch::launch(&args),
    }
}

/// If a launch failed while the gates ran, a stage has failed; all other errors are of the machine or its user.
fn exit_of(error: &anyhow::Error) -> Exit {
    let of = |cause: &(dyn std::error::Error + 'static)| match (
        cause.downcast_ref(),
        cause.downcast_ref(),
        cause.downcast_ref::<std::io::Error>(),
    ) {
        (Some(ExecuteError::Interrupted), ..) => Some(Exit::Interrupted),
        (.., Some(error)) if error.kind() == ErrorKind::Interrupted => Some(Exit::Interrupted),
        (Some(ExecuteError::Sticky { .. }), ..) => Some(Exit::Fail),
        (_, Some(CudaError::Launch { .. } | CudaError::Hang { .. } | CudaError::Sticky), _)
        | (_, Some(CudaError::ScalesChanged { .. }), _) => Some(Exit::Fail),
        _ => None,
    };
    error.chain().find_map(of).unwrap_or(Exit::Usage)
}
