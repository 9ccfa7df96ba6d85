//! `compare sanitize`: gate C7. Each stage's variants under each of compute-sanitizer's tools, one process per stage and
//! tool.

pub mod log;

use crate::answer::{Answer, NoData};
use crate::completion::Completing;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::launch::{self, Launches, Made};
use crate::measure::builds::{StageBuild, VariantBuild, metas};
use crate::measure::rows;
use crate::measure::select::{Chosen, Named, Picked, Problems};
use crate::pages::show::Section;
use crate::progress::Progress;
use crate::record::{Row, Source, Subject};
use crate::tool::{Ended, Places, Tool};
use anyhow::bail;
use clap::Args;
use common::limits::DeviceLimits;
use common::problem::{Dtype, Mask};
use common::verdict::{GateResult, Verdict};
use log::{Run, Without};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Gate C7: memcheck, racecheck (warnings count), initcheck (shared memory too) and synccheck, one process per stage and tool,
on four small ragged problems. Every variant is launched, unless --stages or --variants narrow it; verdicts on others stay as
they are in the record. They go into it as rows of its rows.jsonl; the tools' logs stay in target/sanitize. A full run on a GPU is
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

/// The flags of `sanitize`.
#[derive(Clone, Debug, Args)]
pub struct SanitizeArgs {
    /// The record to complete: a folder that `compare run` wrote [default: the newest under target/compare]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub chosen: Chosen,
    /// How long one process may take; racecheck is slow
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub limit: u64,
    /// No table and no progress; errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where compute-sanitizer is. The pinned one comes first: the one of CUDA 13.0 does not look at uninitialised shared
/// memory.
pub const COMPUTE_SANITIZER: Places = Places {
    name: "compute-sanitizer",
    variable: "SANITIZER",
    pinned: Some(".cuda/nvidia/cu13/compute-sanitizer/compute-sanitizer"),
};

/// The tools and their options; warnings of racecheck count.
const TOOLS: [(&str, &[&str]); 4] = [
    ("memcheck", &[]),
    ("racecheck", &["--racecheck-report", "all"]),
    ("initcheck", &["--initcheck-address-space", "all"]),
    ("synccheck", &[]),
];

/// The first version whose initcheck looks at shared memory.
const SHARED_INITCHECK: [u32; 2] = [2025, 4];

/// What a finding makes the tool exit with.
const FOUND: &str = "9";

/// Ragged, grouped heads, more than one tile of keys; and a single tile at head_dim 128. Few launches: racecheck slows a
/// kernel down a thousandfold.
const SHAPES: [&str; 2] = ["1x2:1x33:65x64", "1x1x17x128"];

/// A launch that takes longer under a tool hangs: on these problems one takes microseconds without.
const WATCHDOG_SECONDS: u64 = 60;

/// The same without the tool.
const WATCHDOG_SECONDS_WITHOUT: u64 = 10;

/// What a clean result does not say.
const BLIND_SPOTS: [&str; 5] = [
    "memcheck sees the ends of allocations, and a tensor lies between guard bands: accesses into those are C6's and H1's",
    "racecheck sees shared memory alone, the schedule that ran, and not what mbarriers order; H1 judges all schedules",
    "initcheck knows bytes that were never written, not those of an earlier tile that should have been written again",
    "synccheck sees barriers that are reached by part of a warp or block, not barriers that are missing",
    "only the problems above were launched, once each, at the sizes of one or two tiles",
];

/// What an older version's initcheck does not say.
const NO_SHARED_INITCHECK: &str = "initcheck of this version looks at global memory alone; 2025.4 and later look at shared memory";

/// Runs what `args` select under every tool and completes the record. Without a tool that reached a verdict nothing is
/// overwritten.
pub fn sanitize(args: &SanitizeArgs) -> anyhow::Result<Answer> {
    let (mut record, ladder) = Completing::begin(args.record.as_deref(), &args.chosen)?;
    let builds = ladder.builds();
    let selected = args.chosen.of(&builds)?;
    ladder.gpu_to("launch on")?;
    let tool = COMPUTE_SANITIZER.find().map_err(NoData)?;
    let problems = Problems::default().or(&SHAPES, &Dtype::ALL, &[Mask::Causal]);
    let work = record.work("sanitize")?;
    let knows_shared = is_at_least(&tool.version, SHARED_INITCHECK);
    let device = record.record.meta.device;
    let session = Session {
        tool: &tool,
        problems: &problems,
        device,
        work: &work,
        limit: args.limit,
    };
    let launched = problems.iter().map(|(place, _)| place);
    let blind_spots = BLIND_SPOTS
        .iter()
        .chain((!knows_shared).then_some(&NO_SHARED_INITCHECK));
    let method = format!(
        "launched on {}. Not seen: {}",
        joined(launched, ", "),
        joined(blind_spots, "; ")
    );
    let version = format!("compute-sanitizer {}", tool.version);
    record.by(Source::ComputeSanitizer, version, method);
    let is_undecided = |check: &Check| check.result.verdict == Verdict::NoData;
    let mut bars = Progress::new(args.quiet);
    let mut checks = Vec::new();
    for (index, Picked { stage, variants }) in selected.iter().enumerate() {
        let before = checks.len();
        for (step, (name, options)) in TOOLS.iter().enumerate() {
            let (done, all) = (index * TOOLS.len() + step, selected.len() * TOOLS.len());
            bars.step("sanitize", &format!("{} under {name}", stage.id), done, all);
            if !variants.is_empty() {
                let options = if *name == "initcheck" && !knows_shared {
                    &[]
                } else {
                    *options
                };
                checks.extend(session.check(stage, variants, name, options)?);
            }
        }
        // Stage by stage: an interrupt loses one, and a tool that says nothing overwrites nothing.
        let of_stage = &checks[before..];
        if !of_stage.iter().all(is_undecided) {
            record.append(found(of_stage))?;
        }
    }
    bars.finish();
    let with = |verdict: Verdict| {
        checks
            .iter()
            .filter(move |check| check.result.verdict == verdict)
    };
    let failed: Vec<String> = with(Verdict::Fail)
        .map(|check| format!("FAIL C7 {check}"))
        .collect();
    let undecided = with(Verdict::NoData).count();
    if undecided == checks.len() {
        bail!(NoData(checks.first().map_or(
            "no variant was selected".to_string(),
            Check::to_string
        )));
    }
    let text = record.shown(&metas(&builds), Section::Sanitizer);
    let text = format!(
        "{text}\nsanitizer: {}\nlogs: {}",
        record.folder.display(),
        work.display()
    );
    let exit = Exit::of(!failed.is_empty(), undecided > 0);
    Ok(Answer::new(exit, text).quiet(args.quiet).noting(failed))
}

/// One variant under one tool.
struct Check {
    subject: Subject,
    tool: String,
    /// Launches that ended.
    launches: usize,
    result: GateResult,
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.subject, self.tool, self.result.reason)
    }
}

/// A row per variant over its tools.
fn found(checks: &[Check]) -> Vec<Row> {
    let mut by_variant: BTreeMap<&Subject, Vec<&Check>> = BTreeMap::new();
    for check in checks {
        by_variant.entry(&check.subject).or_default().push(check);
    }
    let row = |(subject, checks): (&Subject, Vec<&Check>)| {
        let tools: Vec<(&str, &GateResult)> = checks
            .iter()
            .map(|check| (&*check.tool, &check.result))
            .collect();
        rows::sanitized(
            subject.clone(),
            &tools,
            checks.iter().map(|check| check.launches).sum(),
        )
    };
    by_variant.into_iter().map(row).collect()
}

/// Whether a version like `2025.3.1.0` is this one or later; one that cannot be read is not.
fn is_at_least(version: &str, [major, minor]: [u32; 2]) -> bool {
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}

/// What all processes share.
struct Session<'a> {
    tool: &'a Tool,
    problems: &'a [Named],
    device: Option<DeviceLimits>,
    work: &'a Path,
    limit: u64,
}

impl Session<'_> {
    /// One process: `variants` of `stage` under one tool.
    fn check(
        &self,
        stage: &StageBuild,
        variants: &[&VariantBuild],
        name: &str,
        options: &[&str],
    ) -> anyhow::Result<Vec<Check>> {
        let subject = |variant: &VariantBuild| stage.subject(&variant.name);
        let places: Vec<Subject> = variants.iter().map(|variant| subject(variant)).collect();
        let mut command = Command::new(&self.tool.path);
        command
            .args(["--tool", name, "--error-exitcode", FOUND])
            .args(["--print-limit", &log::PRINTED.to_string()])
            .args(options);
        let label = format!("{}-{name}", stage.id);
        let made = self.make(Some(command), &places, &label, WATCHDOG_SECONDS)?;
        let log = log::parse(&made.printed);
        let symbols = |variant: &VariantBuild| -> Vec<String> {
            let kernels = variant.kernels.iter();
            kernels.map(|kernel| kernel.facts.symbol.clone()).collect()
        };
        let all: Vec<String> = variants
            .iter()
            .flat_map(|variant| symbols(variant))
            .collect();
        let mut run = Run {
            log: &log,
            failed: made.red(),
            ended: made.ended,
            limit: self.limit,
            without: Without::NotTried,
            symbols: &all,
        };
        if !run.is_orderly() && log.refused.is_none() {
            run.without = self.without(&places, &format!("{label}-without"))?;
        }
        // A variant that takes none of the problems, as on a device with too little memory, has nothing to be judged on.
        let check = |variant: &&VariantBuild| {
            let subject = subject(variant);
            let tried = made.rows.iter().filter(|row| row.subject == subject);
            let (taken, refused): (Vec<&Row>, Vec<&Row>) = tried.partition(launch::is_taken);
            let launches = taken.iter().filter(|row| row.failure().is_none()).count();
            let planned = self.problems.len() - refused.len();
            let result = (planned > 0).then(|| run.judge(&symbols(variant), launches, planned))?;
            Some(Check {
                subject,
                tool: name.to_string(),
                launches,
                result,
            })
        };
        Ok(variants.iter().filter_map(check).collect())
    }

    /// The same launches as a plain process.
    fn without(&self, places: &[Subject], label: &str) -> anyhow::Result<Without> {
        let made = self.make(None, places, label, WATCHDOG_SECONDS_WITHOUT)?;
        let failed = made.red().or(match made.ended {
            Ended::Exited(status) if status.success() => None,
            ended => Some(ended.said(self.limit)),
        });
        Ok(failed.map_or(Without::Passes, Without::Fails))
    }

    fn make(
        &self,
        tool: Option<Command>,
        places: &[Subject],
        label: &str,
        watchdog: u64,
    ) -> anyhow::Result<Made> {
        let launches = Launches {
            places,
            problems: self.problems,
            device: self.device,
            watchdog,
        };
        launches.make(
            tool,
            (self.work, label),
            Duration::from_secs(self.limit),
            |_| (),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SCALAR, WMMA};
    use common::metric::Metric;
    use common::verdict::GateId;

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
            assert_eq!(
                is_at_least(version, SHARED_INITCHECK),
                expected,
                "{version}"
            );
        }
    }

    #[test]
    fn a_row_per_variant_says_the_worst_of_its_tools() {
        let check = |subject: &str, tool: &str, verdict| {
            let result = GateResult {
                gate: GateId::C7,
                verdict,
                reason: "planted".into(),
            };
            Check {
                subject: subject.into(),
                tool: tool.into(),
                launches: 2,
                result,
            }
        };
        use Verdict::{Fail, NoData, Pass};
        let said = |verdicts: [Verdict; 2]| {
            let tools = ["memcheck", "racecheck"].into_iter().zip(verdicts);
            let rows = found(
                &tools
                    .map(|(tool, verdict)| check(WMMA, tool, verdict))
                    .collect::<Vec<_>>(),
            );
            assert_eq!((rows.len(), rows[0].value(Metric::Cases)), (1, Some(4.0)));
            let judged = rows[0].verdicts[&GateId::C7].clone();
            (judged.verdict, judged.reason, judged.passed, judged.of)
        };
        for (verdicts, verdict, reason, passed) in [
            ([Pass, Pass], Pass, "", 2),
            ([NoData, Pass], NoData, "memcheck: planted", 1),
            ([NoData, Fail], Fail, "racecheck: planted", 0),
            ([Fail, Fail], Fail, "memcheck: planted", 0),
        ] {
            assert_eq!(
                said(verdicts),
                (verdict, reason.to_string(), Some(passed), Some(2)),
                "{verdicts:?}"
            );
        }
        let both = [
            check(WMMA, "memcheck", Pass),
            check(SCALAR, "memcheck", Pass),
        ];
        assert_eq!(
            found(&both)
                .iter()
                .map(|row| row.subject.as_str())
                .collect::<Vec<_>>(),
            [SCALAR, WMMA]
        );
    }
}
