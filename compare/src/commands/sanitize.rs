//! `compare sanitize`: gate C7. Each variant runs under each of compute-sanitizer's tools, in a
//! process of its own.

pub mod log;

use crate::answer::{Answer, NoData, gpu_to};
use crate::open_run::{OpenRun, Target};
use crate::progress::Progress;
use anyhow::bail;
use clap::Args;
use common::limits::DeviceLimits;
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, Verdict};
use log::{Log, Process};
use measure::instrument::child::{self, Launches, ToolFiles};
use measure::instrument::find::{COMPUTE_SANITIZER, Tool, numbers};
use measure::select::{Chosen, Picked, Problems, at_least_one};
use pages::show::Section;
use rayon::prelude::*;
use results::judge::list::joined;
use results::judge::verdict::Exit;
use results::table::measured::ToolFindings;
use results::table::{Row, Source};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "\
Gate C7: memcheck, racecheck (warnings count), initcheck (shared memory included) and synccheck, one
process per variant and tool, on small ragged problems. Verdicts on variants that --stages or
--variants leave out stay in the run. The tools' logs stay in target/sanitize. `compare accept`
refuses a full run on a GPU that lacks C7 of any variant.

What a clean result does not prove: memcheck checks the bounds of allocations, and tensors lie
between guard bands, which are C6's and H1's; racecheck checks only shared memory and the schedule
that ran, and knows no order by mbarriers (H1 judges all schedules); initcheck finds bytes that were
never written, not stale ones, and before version 2025.4 only in global memory; synccheck finds
barriers that part of a warp or block does not reach, not missing ones.

Examples:
  compare sanitize                              complete the newest run under target/compare
  compare sanitize --stages stage4-warpspec --timeout 600

Exit codes:
  0  clean
  1  a finding, or a launch that fails or hangs
  2  wrong usage, or a run of other kernels or another GPU
  3  not measured: no GPU, no compute-sanitizer (nothing is overwritten), or a check that \
exceeded --timeout";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SanitizeArgs {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub chosen: Chosen,
    /// Time limit of one process; racecheck is slow
    // The alias is the flag's name until 2026-11-28; it goes with the next release.
    #[arg(
        long,
        alias = "limit",
        value_name = "SECONDS",
        default_value_t = 120,
        allow_negative_numbers = true,
        value_parser = at_least_one::<u64>
    )]
    pub timeout: u64,
}

/// One of compute-sanitizer's tools.
#[derive(Clone, Copy)]
struct SanitizerTool {
    name: &'static str,
    options: &'static [&'static str],
}

/// The tools and their options; warnings of racecheck count.
const TOOLS: [SanitizerTool; 4] = [
    SanitizerTool {
        name: "memcheck",
        options: &[],
    },
    SanitizerTool {
        name: "racecheck",
        options: &["--racecheck-report", "all"],
    },
    SanitizerTool {
        name: "initcheck",
        options: &["--initcheck-address-space", "all"],
    },
    SanitizerTool {
        name: "synccheck",
        options: &[],
    },
];

/// The first version whose initcheck looks at shared memory.
const SHARED_INITCHECK: &[u32] = &[2025, 4];

/// The tool's exit code after a finding.
const FINDING_EXIT_CODE: &str = "9";

/// The problems: ragged ones with grouped heads and more than one tile of keys, and a single tile
/// at head_dim 128. They are few: racecheck slows a kernel down a thousandfold.
const SHAPES: [&str; 2] = ["1x2:1x33:65x64", "1x1x17x128"];

/// The time after which a launch hangs under a tool: on these problems one takes microseconds
/// without.
const WATCHDOG_SECONDS: u64 = 60;

/// Runs every variant under every tool. What no tool reaches a verdict on overwrites nothing.
pub fn sanitize(args: &SanitizeArgs) -> anyhow::Result<Answer> {
    let (mut run, ladder) = OpenRun::begin(&args.target, &args.chosen)?;
    let builds = ladder.builds()?;
    let selected = args.chosen.pick(&builds)?;
    gpu_to(&ladder, "launch on")?;
    let program = COMPUTE_SANITIZER
        .find()
        .map_err(|error| NoData(error.to_string()))?;
    let sanitizer = Sanitizer {
        work: run.work("sanitize")?,
        knows_shared: *numbers(&program.version) >= *SHARED_INITCHECK,
        program,
        timeout: args.timeout,
    };
    let version = format!("compute-sanitizer {}", sanitizer.program.version);
    run.set_tools(Source::ComputeSanitizer, vec![version]);
    let mut bars = Progress::default();
    let mut outcomes = Outcomes::default();
    let mut finished = 0;
    for batch in selected.chunks(variants_at_once()) {
        let (stage, variant) = batch[0];
        let label = stage.subject(&variant.name);
        bars.step("sanitize", label.as_str(), finished, selected.len());
        finished += batch.len();
        // The rows of a batch are written at once: an interrupt loses one batch.
        for row in sanitizer.check_batch(batch, run.run.session.device)? {
            if outcomes.add(&row) {
                run.append([row])?;
            }
        }
    }
    if !outcomes.is_any_decided {
        let first = outcomes.inconclusive.into_iter().next();
        bail!(NoData(first.unwrap_or("no variant was selected".into())));
    }
    let concluded = run.conclude(Section::Sanitizer, |_| false)?;
    let text = format!("{}\nlogs: {}", concluded.text, sanitizer.work.display());
    let has_failed = !outcomes.failed.is_empty();
    let exit = Exit::of(has_failed, !outcomes.inconclusive.is_empty());
    Ok(Answer::new(exit, text).noting(outcomes.failed))
}

/// Returns how many variants are checked at once: a process for each tool keeps a core busy, most of
/// its time before the first launch.
fn variants_at_once() -> usize {
    (rayon::current_num_threads() / TOOLS.len()).max(1)
}

/// Returns the launches of a variant: of all problems with K and V of the type that it reads.
fn launches((stage, variant): Picked<'_>, device: Option<DeviceLimits>) -> Launches {
    let problems = Problems::default().or(&SHAPES, &Dtype::ALL, &[Mask::Causal]);
    Launches {
        variants: vec![stage.subject(&variant.name)],
        problems: problems
            .into_iter()
            .filter_map(|problem| problem.in_cache(variant.cache).ok())
            .collect(),
        device,
        watchdog: WATCHDOG_SECONDS,
    }
}

/// The outcomes of the variants that were checked.
#[derive(Default)]
struct Outcomes {
    /// A line for each variant of which a tool has found something.
    failed: Vec<String>,
    /// A line for each variant on which some tool reached no verdict.
    inconclusive: Vec<String>,
    is_any_decided: bool,
}

impl Outcomes {
    /// Adds the row of a variant. Returns whether it is kept: some tool has reached a verdict.
    fn add(&mut self, row: &Row) -> bool {
        let judged = &row.verdicts[&GateId::C7];
        let line = format!("C7 {} {}", row.subject, judged.reason);
        match judged.verdict {
            Verdict::Fail => self.failed.push(format!("FAIL {line}")),
            Verdict::NoData => self.inconclusive.push(line),
            _ => {}
        }
        let is_decided = judged.verdict != Verdict::NoData || judged.passed != Some(0);
        self.is_any_decided |= is_decided;
        is_decided
    }
}

/// compute-sanitizer as it is called here.
struct Sanitizer {
    program: Tool,
    /// Whether its initcheck looks at shared memory.
    knows_shared: bool,
    /// The folder of its logs.
    work: PathBuf,
    /// The time that one process may take, in seconds.
    timeout: u64,
}

impl Sanitizer {
    /// Checks some variants at once. Returns no row of a variant that supports none of the problems,
    /// as on a device with too little memory.
    fn check_batch(
        &self,
        batch: &[Picked<'_>],
        device: Option<DeviceLimits>,
    ) -> anyhow::Result<Vec<Row>> {
        let rows: anyhow::Result<Vec<Option<Row>>> = batch
            .par_iter()
            .map(|&(stage, variant)| {
                let checks = self.check_all(&launches((stage, variant), device))?;
                let subject = stage.subject(&variant.name);
                Ok((!checks.is_empty()).then(|| Row::sanitized(subject, &checks)))
            })
            .collect();
        Ok(rows?.into_iter().flatten().collect())
    }

    /// Runs all tools at once. Returns no check of a tool under which the variant supports none of
    /// the problems.
    fn check_all(&self, launches: &Launches) -> anyhow::Result<Vec<ToolFindings>> {
        TOOLS
            .into_par_iter()
            .filter_map(|tool| self.check(launches, tool).transpose())
            .collect()
    }

    /// Runs one tool; returns nothing if the variant supports none of the problems.
    fn check(
        &self,
        launches: &Launches,
        tool: SanitizerTool,
    ) -> anyhow::Result<Option<ToolFindings>> {
        let SanitizerTool { name, options } = tool;
        let mut command = Command::new(&self.program.path);
        command.args(["--tool", name, "--error-exitcode", FINDING_EXIT_CODE]);
        if name != "initcheck" || self.knows_shared {
            command.args(options);
        }
        let variants = joined(&launches.variants, "").replace('/', "-");
        let files = ToolFiles {
            folder: &self.work,
            label: &format!("{variants}-{name}"),
        };
        let timeout = Duration::from_secs(self.timeout);
        let tool_run = launches.run_under(command, files, timeout, |_| ())?;
        let mut planned = launches.problems.len();
        let mut launched = 0;
        for row in &tool_run.rows {
            if !child::is_supported(row) {
                planned -= 1;
            } else if row.failure().is_none() {
                launched += 1;
            }
        }
        if planned == 0 {
            return Ok(None);
        }
        let result = Log::parse(&tool_run.printed).judge(&Process {
            ended: &tool_run.ended,
            failure: tool_run.first_failure(),
            timeout: self.timeout,
            launched,
            planned,
        });
        Ok(Some(ToolFindings {
            tool: name,
            launched,
            result,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::problem::Problem;
    use common::serving::Cache;
    use results::table::VariantMeta;

    /// Returns the problems of a variant that reads K and V in a cache, or of Q's type.
    fn problems_of(cache: Option<Cache>) -> Vec<Problem> {
        let ladder = results::testing::ladder();
        let stage = &ladder[0];
        let variant = VariantMeta {
            cache,
            ..stage.variants[0].clone()
        };
        launches((stage, &variant), None).problems
    }

    #[test]
    fn a_variant_is_launched_on_two_shapes_of_each_element_type() {
        let problems = problems_of(None);
        assert_eq!(problems.len(), 6);
        assert!(problems.iter().all(|problem| problem.is_dense()));
    }

    /// E4M3 of Q has no cache of another type.
    #[test]
    fn a_variant_that_reads_a_cache_is_launched_on_problems_that_have_one() {
        let problems = problems_of(Some(Cache::E4m3));
        assert_eq!(problems.len(), 4);
        for problem in problems {
            assert_eq!(problem.shape.serving.cache, Some(Cache::E4m3));
        }
    }

    #[test]
    fn versions_are_compared_by_number() {
        let table = [
            ("2025.4.0.0", true),
            ("2025.3.1.0", false),
            ("2025.10", true),
            ("2026.4.0.0", true),
            ("?", false),
        ];
        for (version, expected) in table {
            let is_later = *numbers(version) >= *SHARED_INITCHECK;
            assert_eq!(is_later, expected, "{version}");
        }
    }
}
