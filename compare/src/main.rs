//! Checks every stage of the attention ladder with the same gates, times it on a GPU, and writes
//! COMPARE.md.

#![forbid(unsafe_code)]

mod answer;
mod case;
mod commands;
#[cfg(test)]
#[path = "tests/documents.rs"]
mod documents;
mod git;
#[cfg(test)]
#[path = "tests/git.rs"]
mod git_tests;
mod open_run;
mod order;
#[cfg(test)]
mod program;
mod progress;
#[cfg(test)]
mod provenance;
#[cfg(test)]
#[path = "tests/recipes.rs"]
mod recipes;
mod recorder;
mod shared_memory;
#[cfg(test)]
mod testing;

use answer::{Answer, NoData};
use anyhow::Context;
use clap::Parser;
use commands::cli::{Cli, Command};
use common::device::cuda::CudaError;
use measure::sink::ExecuteError;
use results::judge::verdict::Exit;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let exit = match print_answer(cli.command.unwrap_or(Command::Run(cli.run))) {
        Ok(exit) => exit,
        Err(error) => {
            progress::say(&format!("error: {error:#}"));
            exit_of(&error)
        }
    };
    ExitCode::from(exit.code())
}

/// Runs a command, and prints its answer.
fn print_answer(command: Command) -> anyhow::Result<Exit> {
    let answer = match commands::answer(command) {
        Ok(answer) => answer,
        Err(error) => Answer::from(error.downcast::<NoData>()?),
    };
    answer.print().context("cannot write to standard output")?;
    Ok(answer.exit)
}

/// Returns the exit code of an error. If a launch failed while the gates ran, a stage has failed;
/// all other errors concern the machine or its user.
fn exit_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::Usage)
}

fn exit_of_cause(cause: &(dyn Error + 'static)) -> Option<Exit> {
    if let Some(error) = cause.downcast_ref::<ExecuteError>() {
        return match error {
            ExecuteError::Interrupted => Some(Exit::Interrupted),
            ExecuteError::Sticky { .. } => Some(Exit::Fail),
            _ => None,
        };
    }
    if let Some(error) = cause.downcast_ref::<CudaError>() {
        return match error {
            CudaError::Launch { .. }
            | CudaError::Hang { .. }
            | CudaError::Sticky
            | CudaError::ScalesChanged { .. } => Some(Exit::Fail),
            _ => None,
        };
    }
    match cause.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == ErrorKind::Interrupted => Some(Exit::Interrupted),
        _ => None,
    }
}
