//! The commands, one file each. None imports another, and nothing outside of this folder can import
//! one: what two of them share lies beside it, or in a crate below.

mod accept;
mod candidate;
pub mod cli;
mod diff;
mod doctor;
mod explain;
mod fuzz;
mod hazards;
mod launch;
mod peers;
mod profile;
mod render;
mod run;
mod sanitize;
mod selftest;
mod show;
mod sources;
mod terms;
mod timeline;

use crate::answer::Answer;
use cli::Command;
use measure::limits;
use signal_hook::consts::SIGXFSZ;
use std::sync::Arc;

/// Runs a command.
pub fn answer(command: Command) -> anyhow::Result<Answer> {
    // With a handler, a write beyond `ulimit -f` fails and does not end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    if needs_memory(&command) {
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
        Command::Hazards(args) => hazards::hazards(&args),
        Command::Timeline(args) => timeline::timeline(&args),
        Command::Sources => sources::sources(),
        Command::Terms => terms::terms(),
        Command::Launch(args) => launch::launch(&args),
    }
}

/// Whether a command launches kernels or computes references. `doctor` reports the limits itself.
fn needs_memory(command: &Command) -> bool {
    use Command::{Accept, Diff, Doctor, Render, Show, Sources, Terms};
    !matches!(
        command,
        Accept(_) | Diff(_) | Doctor(_) | Render(_) | Show(_) | Sources | Terms
    )
}
