//! `compare sanitize`: gate C7. Each variant under each of compute-sanitizer's tools, in a process of its own.

pub mod log;

use crate::answer::{Answer, NoData};
use crate::instrument::child::{self, Launches};
use crate::instrument::find::{COMPUTE_SANITIZER, Tool, numbers};
use crate::instrument::{Completing, Target};
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::select::{Chosen, Problems, at_least_one, subjects};
use crate::pages::show::Section;
use crate::progress::Progress;
use crate::table::measured::ToolFindings;
use crate::table::{Row, Source};
use anyhow::bail;
use clap::Args;
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, Verdict};
use log::Log;
use rayon::prelude::*;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const EXAMPLES: &str = "\
Gate C7: memcheck, racecheck (warnings count), initcheck (shared memory included) and synccheck, one process per variant and
tool, on small ragged problems. Verdicts on variants that --stages or --variants leave out stay in the run. The tools' logs stay in
target/sanitize. `compare accept` refuses a full run on a GPU that lacks C7 of any variant.

What a clean result does not prove: memcheck checks the bounds of allocations, and tensors lie between guard bands, which are C6's and
H1's; racecheck checks only shared memory and the schedule that ran, and knows no order by mbarriers (H1 judges all schedules);
initcheck finds bytes that were never written, not stale ones, and before version 2025.4 only in global memory; synccheck finds
barriers that part of a warp or block does not reach, not missing ones.

Examples:
  compare sanitize                              complete the newest run under target/compare
  compare sanitize --stages stage4-warpspec --limit 600

Exit codes:
  0  clean
  1  a finding, or a launch that fails or hangs
  2  wrong usage, or a run of other kernels or another GPU
  3  NO DATA: no GPU, no compute-sanitizer (nothing is overwritten), or a check that exceeded --limit";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SanitizeArgs {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub chosen: Chosen,
    /// Time limit of one process; racecheck is slow
    #[arg(long, value_name = "SECONDS", default_value_t = 120, allow_negative_numbers = true, value_parser = at_least_one::<u64>)]
    pub limit: u64,
}

/// The tools and their options; warnings of racecheck count.
const TOOLS: [(&str, &[&str]); 4] = [
    ("memcheck", &[]),
    ("racecheck", &["--racecheck-report", "all"]),
    ("initcheck", &["--initcheck-address-space", "all"]),
    ("synccheck", &[]),
];

/// The first version whose initcheck looks at shared memory.
const SHARED_INITCHECK: &[u32] = &[2025, 4];

/// The tool's exit code after a finding.
const FOUND: &str = "9";

/// Ragged, grouped heads, more than one tile of keys; and a single tile at head_dim 128. Few launches: racecheck slows a
/// kernel down a thousandfold.
const SHAPES: [&str; 2] = ["1x2:1x33:65x64", "1x1x17x128"];

/// A launch that takes longer under a tool hangs: on these problems one takes microseconds without.
const WATCHDOG_SECONDS: u64 = 60;

/// What no tool reaches a verdict on overwrites nothing.
pub fn sanitize(args: &SanitizeArgs) -> anyhow::Result<Answer> {
    let (mut run, ladder) = Completing::begin(&args.target, &args.chosen)?;
    let builds = ladder.builds()?;
    let selected = args.chosen.of(&builds)?;
    let subjects = Vec::from_iter(subjects(&selected));
    ladder.gpu_to("launch on")?;
    let tool = COMPUTE_SANITIZER.find().map_err(NoData)?;
    let problems = Problems::default().or(&SHAPES, &Dtype::ALL, &[Mask::Causal]);
    let work = run.work("sanitize")?;
    let knows_shared = *numbers(&tool.version) >= *SHARED_INITCHECK;
    let version = format!("compute-sanitizer {}", tool.version);
    run.set_tools(Source::ComputeSanitizer, vec![version]);
    let mut bars = Progress::default();
    let (mut failed, mut inconclusive, mut is_any_decided) = (Vec::new(), Vec::new(), false);
    for (index, subject) in subjects.iter().enumerate() {
        bars.step("sanitize", subject.as_str(), index, subjects.len());
        let launches = Launches {
            variants: vec![subject.clone()],
            problems: problems.clone(),
            device: run.run.session.device,
            watchdog: WATCHDOG_SECONDS,
        };
        let conditions = |(name, options): (&'static str, &'static [&'static str])| {
            let options = if name == "initcheck" && !knows_shared {
                &[]
            } else {
                options
            };
            check(&launches, &tool, (name, options), &work, args.limit)
        };
        let checks = TOOLS.into_par_iter();
        let checks = checks.filter_map(|tool| conditions(tool).transpose());
        let checks: Vec<ToolFindings> = checks.collect::<anyhow::Result<_>>()?;
        if checks.is_empty() {
            continue; // it supports none of the problems, as on a device with too little memory
        }
        let row = Row::sanitized(subject.clone(), &checks);
        let judged = &row.verdicts[&GateId::C7];
        let line = format!("C7 {subject} {}", judged.reason);
        match judged.verdict {
            Verdict::Fail => failed.push(format!("FAIL {line}")),
            Verdict::NoData => inconclusive.push(line),
            _ => {}
        }
        // One by one: an interrupt loses one.
        if judged.verdict != Verdict::NoData || judged.passed != Some(0) {
            is_any_decided = true;
            run.append([row])?;
        }
    }
    if !is_any_decided {
        let first = inconclusive.into_iter().next();
        bail!(NoData(first.unwrap_or("no variant was selected".into())));
    }
    let (text, ..) = run.conclude(Section::Sanitizer, |_| false)?;
    let text = format!("{text}\nlogs: {}", work.display());
    let exit = Exit::of(!failed.is_empty(), !inconclusive.is_empty());
    Ok(Answer::new(exit, text).noting(failed))
}

/// What a tool says, unless the variant supports none of the problems.
fn check(
    launches: &Launches,
    tool: &Tool,
    (name, options): (&'static str, &[&str]),
    work: &Path,
    limit: u64,
) -> anyhow::Result<Option<ToolFindings>> {
    let mut command = Command::new(&tool.path);
    command
        .args(["--tool", name, "--error-exitcode", FOUND])
        .args(options);
    let label = format!(
        "{}-{name}",
        joined(&launches.variants, "").replace('/', "-")
    );
    let made = launches.make(command, (work, &label), Duration::from_secs(limit), |_| ())?;
    let (supported, refused): (Vec<&Row>, Vec<&Row>) =
        made.rows.iter().partition(child::is_supported);
    let planned = launches.problems.len() - refused.len();
    let launched = (supported.iter()).filter(|row| row.failure().is_none());
    let launched = launched.count();
    let log = Log::parse(&made.printed);
    let result = log.judge(&made.ended, made.red(), limit, [launched, planned]);
    Ok((planned > 0).then_some(ToolFindings {
        tool: name,
        launched,
        result,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
