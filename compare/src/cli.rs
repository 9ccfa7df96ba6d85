//! The command line: what can be asked, and the help that teaches it.

use clap::{Args, Parser, Subcommand, ValueEnum};
use common::limits::DeviceLimits;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  compare                                       check everything that this machine can, write COMPARE.md
  compare --quick                               each stage's default variant on five small problems
  compare --stages stage0-scalar --shapes mission --dtypes f16
                                                one stage on one shape, both masks
  compare --shapes 1x8:2x113:203x64             batch 1, 8 query and 2 key heads, 113 queries, 203 keys, head_dim 64
  compare --families large,sink --seeds 0,1,2   hard inputs, three seeds each
  compare --device sm_89 --report l4.md         as on a device with 99 KB of shared memory a block, such as an L4
  compare --input attention.safetensors         real tensors q, k, v (and `out`, if the file has it)
  compare --json - --quiet | jq .verdict        every row as JSON on standard output
  compare sanitize                              on a GPU, next: gate C7, without which a whole run is not accepted
  compare accept target/compare/20261120T183000Z-nvidia-h200
                                                take a record into results/ for committing

Exit codes:
  0  every gate passes (claims refuted by a committed negative record included)
  1  a correctness, hazard or resource gate failed, or a claim did without a negative record
  2  wrong usage, unreadable input or an environment that cannot run what was asked; nothing was overwritten
  3  AMBIGUOUS, or NO DATA where data was required";

const TUNE_EXAMPLES: &str = "\
Every preset goes through the quick gates and the chosen problems; one that is not green has no time. The best three of
each stage and problem go to tune/<gpu>.json, beside what is there of other problems; commit it. `compare run` then
times all presets on mission with the full mask, which claims are about, and these three elsewhere. An entry whose kernel has changed
since is STALE: `run` times all presets again until it is renewed.

Examples:
  compare tune                                  all stages on every problem that tier T2 times
  compare tune --stages stage3-wmma-pv --shapes long,4x16x4096x64 --dtypes f16
                                                one stage on two shapes, both masks
  compare tune --record results/<run>           what a run has timed, where it timed all presets of a problem

Exit codes:
  0  ranked and written
  1  two presets compile to the same machine code (nothing is timed), or a gate failed (green presets are written)
  2  wrong usage, or a file that cannot be read or written
  3  NO DATA: there is no GPU that can be timed";

const PROFILE_EXAMPLES: &str = "\
Each variant is launched once under ncu, checked as in a run. The figures stand beside the emulator's counters and the
stages' predictions (gate E1), and go into the record as profile.json; `compare accept` takes it along. ncu's own file stays
in target/profile, to be opened with its user interface. Without --variants these are the record's fastest green variant of
each stage and all that its evidence claims speak of.

Examples:
  compare profile                               complete the newest record under target/compare
  compare profile --record target/compare/20261120T183000Z-nvidia-h200 --stages stage5-swizzle
  NCU=/opt/nvidia/nsight-compute/ncu compare profile --variants swizzle-32x256-k4 --shapes long --dtypes f16,e4m3

Exit codes:
  0  profiled and written
  1  written, and a prediction does not hold on this GPU; or a launch failed under ncu, and nothing is written
  2  wrong usage, or a record of other kernels or another GPU
  3  NO DATA: no GPU, no ncu, or no permission to read counters; nothing is overwritten";

const SANITIZE_EXAMPLES: &str = "\
Gate C7: memcheck, racecheck (warnings count), initcheck (shared memory too) and synccheck, one process per stage and tool,
on four small ragged problems. Every variant is launched, unless --stages or --variants narrow it; verdicts on others stay as
they are in the record. They go into it as sanitizer.json; the tools' logs stay in target/sanitize. A whole run on a GPU is
only green in the committed record with C7 of every variant, and `compare accept` refuses it without.

Examples:
  compare sanitize                              complete the newest record under target/compare
  compare sanitize --stages stage4-warpspec --limit 600
  SANITIZER=/usr/local/cuda/bin/compute-sanitizer compare sanitize --variants swizzle-32x256-k4

Exit codes:
  0  clean
  1  a finding, or a launch that fails or hangs
  2  wrong usage, or a record of other kernels or another GPU
  3  NO DATA: no GPU, no compute-sanitizer (nothing is overwritten), or a check that ran into --limit";

/// Runs every stage of the attention ladder through the same gates and writes COMPARE.md.
#[derive(Debug, Parser)]
#[command(name = "compare", version, about, after_help = EXAMPLES, args_conflicts_with_subcommands = true, max_term_width = 110)]
pub struct Cli {
    /// What to do; `run` if left out.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one per process")]
pub enum Command {
    /// Check the stages, time them where there is a GPU, write a record and COMPARE.md (the default)
    #[command(after_help = EXAMPLES)]
    Run(RunArgs),
    /// Show stages, variants, claims, shapes, input families, and what this machine can measure
    List(ListArgs),
    /// Plant faults, leave out each barrier and wait of the kernels, and show that the gates notice
    Selftest(SelftestArgs),
    /// Gate, time and rank all presets on a GPU; keep the best in tune/, where `run` looks
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(TuneArgs),
    /// Compare two records, folders of records or git revisions, and say what got faster, slower, fatter or wrong
    #[command(after_help = crate::diff::EXAMPLES)]
    Diff(crate::diff::DiffArgs),
    /// Show what a record says: gates, latencies, resources, counters, peers, changes
    #[command(after_help = crate::show::EXAMPLES)]
    Show(crate::show::ShowArgs),
    /// Show how latency, registers and bank conflicts went over the committed records
    #[command(after_help = crate::history::EXAMPLES)]
    History(crate::history::HistoryArgs),
    /// Write what there is to know before optimising a stage, as Markdown
    #[command(after_help = crate::brief::EXAMPLES)]
    Brief(crate::brief::BriefArgs),
    /// Complete a record with what ncu reads of its variants' launches
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(ProfileArgs),
    /// Complete a record with what compute-sanitizer finds in its variants (gate C7)
    #[command(after_help = SANITIZE_EXAMPLES)]
    Sanitize(SanitizeArgs),
    /// Complete a record with what PyTorch takes for the same problems on the same GPU, timed side by side
    #[command(after_help = crate::peers::EXAMPLES)]
    Peers(crate::peers::PeersArgs),
    /// Check a record and copy it into results/ for committing. A whole run on a GPU needs gate C7 (`compare sanitize`)
    Accept(AcceptArgs),
    /// Render COMPARE.md, report.html and the README's ladder from the committed records alone, without a run
    Render(RenderArgs),
    /// Launch each variant once, checked and not timed: what runs under a profiler or a sanitizer
    #[command(hide = true)]
    Launch(LaunchArgs),
}

/// Where kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The GPU if one can be used, else the emulator
    #[default]
    Auto,
    /// An NVIDIA GPU
    Cuda,
    /// The functional emulator; checks, never times
    Emulated,
}

/// The flags of `run`.
#[derive(Clone, Debug, Default, Args)]
pub struct RunArgs {
    /// Stages to run, by id or number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// Variants to run [default: all that the tier has]
    #[arg(long, value_delimiter = ',', value_name = "VARIANT,..")]
    pub variants: Vec<String>,
    /// Shapes by name (`compare list`) or as BATCHxHEADSxSEQxDIM. With --seeds and --families it replaces the tier's
    /// cases by every combination of what is given [else: small,mission; seed 0; normal]
    #[arg(long, value_delimiter = ',', value_name = "SHAPE,..")]
    pub shapes: Vec<String>,
    /// Element types: f16, e4m3 [default: both]
    #[arg(long, value_delimiter = ',', value_name = "DTYPE,..")]
    pub dtypes: Vec<String>,
    /// Masks: full, causal [default: both; full with --input]
    #[arg(long, value_delimiter = ',', value_name = "MASK,..")]
    pub masks: Vec<String>,
    /// Seeds of the inputs; see --shapes
    #[arg(long, value_delimiter = ',', value_name = "SEED,..", allow_negative_numbers = true)]
    pub seeds: Vec<u64>,
    /// Input families (`compare list`); see --shapes
    #[arg(long, value_delimiter = ',', value_name = "FAMILY,..")]
    pub families: Vec<String>,
    /// Timed samples per variant and problem; 0 checks and does not time [default: 500 where claims are judged, 100
    /// elsewhere]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = samples)]
    pub iters: Option<usize>,
    /// Where to run
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
    /// Judge what a smaller device could run, by its compute capability: sm_89 for an L4. On a GPU it limits shared memory
    /// and features; kernels and clocks stay those of the GPU [default: $ATTENTION_DEVICE, else the GPU, else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// Tier T0: each stage's default variant on five small problems, and on extreme logits
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Tier T2: every shape, mask, family and seed (the default on a GPU)
    #[arg(long)]
    pub full: bool,
    /// On a GPU, also time each stage's default variant on 1x8xSx64 for S from 512 to 16384, f16, full mask
    #[arg(long, conflicts_with_all = ["input", "quick"])]
    pub sweep: bool,
    /// Run real tensors: a safetensors file with q, k, v [B, H, S, D] in F16 or F8_E4M3, optionally `out` (F16 or F32),
    /// and q_scale, k_scale, v_scale [B, H] in F32 for F8_E4M3
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shapes", "seeds", "families", "dtypes", "quick", "full"])]
    pub input: Option<PathBuf>,
    /// Write each case's output here as safetensors
    #[arg(long, value_name = "DIR")]
    pub save_outputs: Option<PathBuf>,
    /// Where the run's record goes [default: target/compare]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the report goes [default: COMPARE.md of the workspace; report.html and compare-plots/ go beside it]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write every row as JSON to a file, or to standard output with `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// No table and no progress; what is wrong goes to standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// The flags of `list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Leave out what a smaller device could not run: sm_89 [default: $ATTENTION_DEVICE, else the GPU, else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

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

/// The flags of `tune`.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    /// Stages to tune [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// Shapes by name (`compare list`) or as BATCHxHEADSxSEQxDIM [default: all named ones but small]
    #[arg(long, value_delimiter = ',', value_name = "SHAPE,..")]
    pub shapes: Vec<String>,
    /// Element types: f16, e4m3 [default: both]
    #[arg(long, value_delimiter = ',', value_name = "DTYPE,..")]
    pub dtypes: Vec<String>,
    /// Masks: full, causal [default: both]
    #[arg(long, value_delimiter = ',', value_name = "MASK,..")]
    pub masks: Vec<String>,
    /// Timed samples per preset and problem [default: 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub iters: Option<usize>,
    /// Rank what a record of `compare run` timed, without a GPU, instead of measuring
    #[arg(long, value_name = "DIR", conflicts_with_all = ["stages", "shapes", "dtypes", "masks", "iters"])]
    pub record: Option<PathBuf>,
    /// The file to merge the best into [default: tune/<gpu>.json of the workspace]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// No table and no progress; errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// Parses a number of samples.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 sample is needed".to_string()),
        Ok(count) => Ok(count),
        Err(_) => Err("give a whole number of samples, 1 or more".to_string()),
    }
}

fn samples(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number of samples, 0 or more".to_string())
}

/// The flags of `accept`.
#[derive(Clone, Debug, Args)]
pub struct AcceptArgs {
    /// The record: a folder that `compare run` wrote, here or on another machine
    #[arg(value_name = "DIR")]
    pub record: PathBuf,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// The record refutes the claims that fail in it; say why. Wrong results, hazards and broken caps stay refused
    #[arg(long, value_name = "REASON")]
    pub negative: Option<String>,
}

/// The flags of `render`.
#[derive(Clone, Debug, Args)]
pub struct RenderArgs {
    /// Write nothing; exit with 1 if COMPARE.md, report.html, the charts or the README's ladder are not what the records
    /// say
    #[arg(long)]
    pub check: bool,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Where the report goes [default: COMPARE.md of the workspace]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// The flags of `profile`.
#[derive(Clone, Debug, Args)]
pub struct ProfileArgs {
    /// The record to complete: a folder that `compare run` wrote [default: the newest under target/compare]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Stages to profile [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// Variants to profile [default: see below]
    #[arg(long, value_delimiter = ',', value_name = "VARIANT,..")]
    pub variants: Vec<String>,
    /// Shapes by name (`compare list`) or as BATCHxHEADSxSEQxDIM [default: mission]
    #[arg(long, value_delimiter = ',', value_name = "SHAPE,..")]
    pub shapes: Vec<String>,
    /// Element types: f16, e4m3 [default: f16]
    #[arg(long, value_delimiter = ',', value_name = "DTYPE,..")]
    pub dtypes: Vec<String>,
    /// Masks: full, causal [default: full]
    #[arg(long, value_delimiter = ',', value_name = "MASK,..")]
    pub masks: Vec<String>,
    /// No table and no progress; errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// The flags of `sanitize`.
#[derive(Clone, Debug, Args)]
pub struct SanitizeArgs {
    /// The record to complete: a folder that `compare run` wrote [default: the newest under target/compare]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Stages to launch [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// Variants to launch [default: all]
    #[arg(long, value_delimiter = ',', value_name = "VARIANT,..")]
    pub variants: Vec<String>,
    /// How long one process may take; racecheck is slow
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub limit: u64,
    /// No table and no progress; errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// The flags of `launch`, which other commands run under a tool.
#[derive(Clone, Debug, Args)]
pub struct LaunchArgs {
    /// Stages and variants, in the order of the launches: stage0-scalar/wmma-qk-32x64
    #[arg(long, value_delimiter = ',', value_name = "STAGE/VARIANT,..", required = true)]
    pub places: Vec<String>,
    /// Shapes by name or as BATCHxHEADSxSEQxDIM
    #[arg(long, value_delimiter = ',', value_name = "SHAPE,..", required = true)]
    pub shapes: Vec<String>,
    /// Element types
    #[arg(long, value_delimiter = ',', value_name = "DTYPE,..", required = true)]
    pub dtypes: Vec<String>,
    /// Masks
    #[arg(long, value_delimiter = ',', value_name = "MASK,..", required = true)]
    pub masks: Vec<String>,
    /// The smaller device that the record is limited to
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// How long a launch may take; tools slow kernels down
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub watchdog: u64,
    /// The file that each launch's result is appended to, as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub results: PathBuf,
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
        let bare = Cli::parse_from(["compare", "--stages", "a,b", "--seeds", "0,7", "--json", "-"]);
        assert!(bare.command.is_none());
        assert_eq!((bare.run.stages, bare.run.seeds), (vec!["a".into(), "b".into()], vec![0, 7]));
        let Some(Command::Run(run)) = Cli::parse_from(["compare", "run", "--quick"]).command else { panic!("run") };
        assert!(run.quick);
    }

    #[test]
    fn contradictions_are_refused() {
        for bad in [
            vec!["compare", "--quick", "--full"],
            vec!["compare", "--input", "x", "--shapes", "small"],
            vec!["compare", "--seeds", "x"],
            vec!["compare", "--backend", "gpu"],
            vec!["compare", "accept"],
        ] {
            let error = Cli::try_parse_from(&bad).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn a_negative_number_is_answered_as_one() {
        for (arguments, says) in [
            (["compare", "--iters", "-1"].as_slice(), "invalid value '-1' for '--iters <N>': give a whole number"),
            (&["compare", "tune", "--iters", "-1"], "invalid value '-1' for '--iters <N>': give a whole number"),
            (&["compare", "--seeds", "-1"], "invalid value '-1' for '--seeds"),
        ] {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn the_help_shows_examples_and_exit_codes() {
        let help = Cli::command().render_long_help().to_string();
        for part in ["Examples:", "Exit codes:", "compare accept", "--save-outputs", "1x8:2x113:203x64"] {
            assert!(help.contains(part), "{part}");
        }
    }
}
