//! The command line: the commands, and the help that teaches them.

use clap::{Parser, Subcommand};

/// Checks every stage of the attention ladder with the same gates, times it on a GPU, and reports
/// on it.
#[derive(Debug, Parser)]
#[command(
    name = "compare",
    version,
    about,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// What to do; `run` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of `run`.
    #[command(flatten)]
    pub run: super::run::RunArgs,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one per process")]
pub enum Command {
    /// Check the stages, time them if there is a GPU, and write the run's rows and its report (the
    /// default)
    Run(super::run::RunArgs),
    /// List what this machine has of compilers, GPU, tools and peers, and what installs the rest
    Doctor(super::doctor::DoctorArgs),
    /// Plant faults, remove each barrier and wait from the kernels, and show that a gate kills
    /// every mutant
    Selftest(super::selftest::SelftestArgs),
    /// Compare runs, tables or git revisions: what is faster, slower, uses more registers or shared
    /// memory, or is wrong
    Diff(super::diff::DiffArgs),
    /// Show what can be asked for (stages, variants, shapes, input families, gates), a stage, or
    /// parts of a table or run
    Show(super::show::ShowArgs),
    /// Add Nsight Compute (ncu) metrics of each variant's launch to a run
    Profile(super::profile::ProfileArgs),
    /// Add compute-sanitizer's findings on each variant to a run (gate C7)
    Sanitize(super::sanitize::SanitizeArgs),
    /// Add timings of PyTorch and other libraries to a run: same problems, same GPU, interleaved
    /// with ours
    Peers(super::peers::PeersArgs),
    /// Check a Python callable of your own with the same gates, and time it against the ladder and
    /// PyTorch
    Candidate(super::candidate::CandidateArgs),
    /// Show where a wrong output row first goes wrong (tile, quantity, source line); needs no GPU
    Explain(super::explain::ExplainArgs),
    /// Put random problems, layouts and inputs through the gates, and shrink what fails to the
    /// smallest case
    Fuzz(super::fuzz::FuzzArgs),
    /// Judge a kernel in PTX, whoever wrote it: races, missing waits and fences, deadlocks; needs no
    /// GPU
    Hazards(super::hazards::HazardsArgs),
    /// Draw what each warp of one block does when: copies, products, exponentials, waits and what
    /// ended them
    Timeline(super::timeline::TimelineArgs),
    /// Check runs, and merge them into the table of their GPU model in results/ for committing
    Accept(super::accept::AcceptArgs),
    /// Render COMPARE.md and the generated parts of other pages from the committed tables, without
    /// running anything
    Render(super::render::RenderArgs),
    /// Print hashes of the program and of each stage, by which `scripts/review` chooses what to run
    #[command(hide = true)]
    Sources,
    /// Print what the stages promise and are let off, which `diff --terms` compares
    #[command(hide = true)]
    Terms,
    /// Launch each variant once, checked but not timed: what runs under a profiler or a sanitizer
    #[command(hide = true)]
    Launch(super::launch::LaunchArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_is_the_default_and_takes_the_same_flags() {
        let bare = Cli::parse_from(["compare", "--stages", "a,b", "--seeds", "0,7"]);
        assert!(bare.command.is_none());
        assert_eq!(
            (bare.run.request.chosen.stages, bare.run.request.cases.seeds),
            (vec!["a".into(), "b".into()], vec![0, 7])
        );
        let Some(Command::Run(run)) = Cli::parse_from(["compare", "run", "--quick"]).command else {
            panic!("run")
        };
        assert!(run.request.cases.quick);
    }

    #[test]
    fn contradictions_are_refused() {
        for bad in [
            vec!["compare", "--quick", "--full"],
            vec!["compare", "--input", "x", "--shapes", "small"],
            vec!["compare", "--seeds", "x"],
            vec!["compare", "--backend", "gpu"],
            vec![
                "compare",
                "explain",
                "--stage=0",
                "--mask=causal",
                "--problem=small f16 full normal:0",
            ],
            vec!["compare", "fuzz", "--case=x", "--seed=1"],
            vec!["compare", "accept"],
        ] {
            let error = Cli::try_parse_from(&bad).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn a_number_that_cannot_be_is_answered_with_what_can() {
        for (arguments, message) in [
            (
                &["--iters", "-1"][..],
                "'-1' for '--iters <N>': give a whole number, 0 or more",
            ),
            (
                &["run", "--iters", "-1"],
                "'-1' for '--iters <N>': give a whole number, 0 or more",
            ),
            (
                &["--seeds", "-1"],
                "'-1' for '--seeds <SEED,..>': give a whole number, 0 or more",
            ),
            (
                &["--random-problems", "-1"],
                "'-1' for '--random-problems <N>': give a whole number, 1 or more",
            ),
            (
                &["peers", "--iters", "0"],
                "'0' for '--iters <N>': give a whole number, 1 or more",
            ),
            (
                &["sanitize", "--timeout", "0"],
                "'0' for '--timeout <SECONDS>': give a whole number, 1 or more",
            ),
            (
                &["candidate", "a:b", "--timeout", "-1"],
                "'-1' for '--timeout <SECONDS>': give a whole number, 1 or more",
            ),
        ] {
            let error = Cli::try_parse_from(["compare"].iter().chain(arguments)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    fn the_word_of_old_for_the_results_of_accept_is_taken() {
        for flag in ["--results", "--into"] {
            let cli = Cli::parse_from(["compare", "accept", "RUN", flag, "tables"]);
            let Some(Command::Accept(args)) = cli.command else {
                panic!("accept")
            };
            assert_eq!(args.results, Some("tables".into()));
        }
    }

    /// They were called so until 2026-11-28.
    #[test]
    fn flags_are_taken_by_their_former_names() {
        let regret = ["compare", "--regret", "3", "--regret-seed", "7"];
        let random = Cli::parse_from(regret).run.request;
        assert_eq!(random.random_problems, Some(3));
        assert_eq!(random.random_seed, 7);
        let patience = ["compare", "candidate", "a:b", "--patience", "9"];
        let Some(Command::Candidate(candidate)) = Cli::parse_from(patience).command else {
            panic!("a candidate")
        };
        assert_eq!(candidate.timeout, 9);
        let limit = ["compare", "sanitize", "--limit", "8"];
        let Some(Command::Sanitize(sanitize)) = Cli::parse_from(limit).command else {
            panic!("sanitize")
        };
        assert_eq!(sanitize.timeout, 8);
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("--random-problems") && !help.contains("--regret"));
    }

    #[test]
    fn the_help_shows_examples_and_exit_codes() {
        let mut program = Cli::command();
        let help = program.render_long_help().to_string();
        for part in ["compare accept", "selftest", "1x8:2x113:203x64"] {
            assert!(help.contains(part), "{part}");
        }
        for command in program.get_subcommands_mut() {
            if command.is_hide_set() || command.get_name() == "help" {
                continue;
            }
            let text = command.render_long_help().to_string();
            assert!(text.contains("\nExample"), "{text}");
            assert!(text.contains("\nExit codes:"), "{text}");
        }
    }
}
