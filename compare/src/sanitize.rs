//! `compare sanitize`: gate C7. Each stage's variants under each of compute-sanitizer's tools, one process per stage and
//! tool.

pub mod log;

use crate::answer::{Answer, NoData};
use crate::instrument::child::{self, Launches};
use crate::instrument::find::{COMPUTE_SANITIZER, Tool, numbers};
use crate::instrument::{Completing, Target};
use crate::judge::list::{grouped, joined};
use crate::judge::verdict::Exit;
use crate::measure::rows;
use crate::measure::select::{Chosen, Picked, Problems};
use crate::pages::show::Section;
use crate::progress::Progress;
use crate::record::StageMeta;
use crate::record::VariantMeta;
use crate::record::{Place, Row, Source, Subject};
use anyhow::bail;
use clap::Args;
use common::limits::DeviceLimits;
use common::problem::{Dtype, Mask, Problem};
use common::verdict::{GateResult, Verdict};
use log::{Run, Without};
use std::iter::zip;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Gate C7: memcheck, racecheck (warnings count), initcheck (shared memory included) and synccheck, one process per stage and tool,
on four small ragged problems. Verdicts on variants that --stages or --variants leave out stay in the record. The tools' logs stay in
target/sanitize. `compare accept` refuses a full run on a GPU that lacks C7 of any variant.

Examples:
  compare sanitize                              complete the newest record under target/compare
  compare sanitize --stages stage4-warpspec --limit 600

Exit codes:
  0  clean
  1  a finding, or a launch that fails or hangs
  2  wrong usage, or a record of other kernels or another GPU
  3  NO DATA: no GPU, no compute-sanitizer (nothing is overwritten), or a check that exceeded --limit";

#[derive(Clone, Debug, Args)]
pub struct SanitizeArgs {
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub chosen: Chosen,
    /// Time limit of one process; racecheck is slow
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
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

/// The same without the tool.
const WATCHDOG_SECONDS_WITHOUT: u64 = 10;

/// What a clean result does not say.
const BLIND_SPOTS: [&str; 5] = [
    "memcheck checks the bounds of allocations, and tensors lie between guard bands: accesses to those are C6's and H1's",
    "racecheck checks only shared memory and the schedule that ran, and knows no order by mbarriers; H1 judges all schedules",
    "initcheck finds bytes that were never written, not stale ones of an earlier tile",
    "synccheck finds barriers that only part of a warp or block reaches, not missing barriers",
    "only the problems above were launched, once each, at the sizes of one or two tiles",
];

/// What an older version's initcheck does not say.
const NO_SHARED_INITCHECK: &str = "initcheck of this version checks only global memory; that of 2025.4 and later also checks shared memory";

/// Runs what `args` select under every tool and completes the record. Without a tool that reached a verdict nothing is
/// overwritten.
pub fn sanitize(args: &SanitizeArgs) -> anyhow::Result<Answer> {
    let (mut record, ladder) = Completing::begin(&args.target, &args.chosen)?;
    let builds = ladder.builds();
    let selected = args.chosen.of(&builds)?;
    ladder.gpu_to("launch on")?;
    let tool = COMPUTE_SANITIZER.find().map_err(NoData)?;
    let problems = Problems::default().or(&SHAPES, &Dtype::ALL, &[Mask::Causal]);
    let work = record.work("sanitize")?;
    let knows_shared = *numbers(&tool.version) >= *SHARED_INITCHECK;
    let device = record.record.meta.device;
    let session = Session {
        tool: &tool,
        problems: &problems,
        device,
        work: &work,
        limit: args.limit,
    };
    let launched = problems.iter().map(Place::of);
    let blind_spots = BLIND_SPOTS
        .iter()
        .chain((!knows_shared).then_some(&NO_SHARED_INITCHECK));
    let method = format!(
        "launched on {}. Not seen: {}",
        joined(launched, ", "),
        joined(blind_spots, "; ")
    );
    let version = format!("compute-sanitizer {}", tool.version);
    record.set_tool(Source::ComputeSanitizer, vec![version, method]);
    let is_undecided = |check: &Check| check.result.verdict == Verdict::NoData;
    let mut bars = Progress::new(args.target.quiet);
    let mut checks = Vec::new();
    for (index, Picked { stage, variants }) in selected.iter().enumerate() {
        if variants.is_empty() {
            continue;
        }
        let before = checks.len();
        for (step, (name, options)) in TOOLS.iter().enumerate() {
            let (done, all) = (index * TOOLS.len() + step, selected.len() * TOOLS.len());
            bars.step("sanitize", &format!("{} under {name}", stage.id), done, all);
            let options = if *name == "initcheck" && !knows_shared {
                &[]
            } else {
                *options
            };
            checks.extend(session.check(stage, variants, name, options)?);
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
    let (text, ()) = record.conclude(Section::Sanitizer, |_| ())?;
    let text = format!("{text}\nlogs: {}", work.display());
    let exit = Exit::of(!failed.is_empty(), undecided > 0);
    Ok(Answer::new(exit, text)
        .quiet(args.target.quiet)
        .noting(failed))
}

/// One variant under one tool.
struct Check {
    subject: Subject,
    tool: &'static str,
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
    let mut rows = Vec::new();
    for (subject, checks) in grouped(checks.iter().map(|check| (&check.subject, check))) {
        let tools: Vec<(&str, &GateResult)> = checks
            .iter()
            .map(|check| (check.tool, &check.result))
            .collect();
        let launches = checks.iter().map(|check| check.launches).sum();
        rows.push(rows::sanitized(subject.clone(), &tools, launches));
    }
    rows
}

struct Session<'a> {
    tool: &'a Tool,
    problems: &'a [Problem],
    device: Option<DeviceLimits>,
    work: &'a Path,
    limit: u64,
}

impl Session<'_> {
    /// One process: `variants` of `stage` under one tool.
    fn check(
        &self,
        stage: &StageMeta,
        variants: &[&VariantMeta],
        name: &'static str,
        options: &[&str],
    ) -> anyhow::Result<Vec<Check>> {
        let (mut subjects, mut symbols) = (Vec::new(), Vec::new());
        for variant in variants {
            subjects.push(stage.subject(&variant.name));
            let kernels = variant.kernels.iter();
            let own = kernels.map(|kernel| kernel.facts.symbol.clone());
            symbols.push(own.collect::<Vec<String>>());
        }
        let mut launches = Launches {
            variants: subjects.clone(),
            problems: self.problems.to_vec(),
            device: self.device,
            watchdog: WATCHDOG_SECONDS,
        };
        let limit = Duration::from_secs(self.limit);
        let mut command = Command::new(&self.tool.path);
        command
            .args(["--tool", name, "--error-exitcode", FOUND])
            .args(["--print-limit", &log::PRINTED.to_string()])
            .args(options);
        let label = format!("{}-{name}", stage.id);
        let made = launches.make(Some(command), (self.work, &label), limit, |_| ())?;
        let log = log::parse(&made.printed);
        let mut run = Run {
            log: &log,
            failed: made.red(),
            ended: made.ended,
            limit: self.limit,
            without: Without::NotTried,
            symbols: &symbols.concat(),
        };
        if !run.is_orderly() && log.refused.is_none() {
            launches.watchdog = WATCHDOG_SECONDS_WITHOUT;
            let label = format!("{label}-without");
            let made = launches.make(None, (self.work, &label), limit, |_| ())?;
            run.without = match (made.red(), made.ended) {
                (Some(red), _) => Without::Fails(red),
                (None, ended) if ended.is_success() => Without::Passes,
                (None, ended) => Without::Fails(ended.describe(self.limit)),
            };
        }
        let mut checks = Vec::new();
        for (subject, symbols) in zip(subjects, &symbols) {
            let tried = made.rows.iter().filter(|row| row.subject == subject);
            let (supported, refused): (Vec<&Row>, Vec<&Row>) = tried.partition(child::is_supported);
            let planned = self.problems.len() - refused.len();
            if planned == 0 {
                continue; // it takes none of the problems, as on a device with too little memory
            }
            let launches = supported
                .iter()
                .filter(|row| row.failure().is_none())
                .count();
            checks.push(Check {
                subject,
                tool: name,
                launches,
                result: run.judge(symbols, launches, planned),
            });
        }
        Ok(checks)
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
            let is_later = *numbers(version) >= *SHARED_INITCHECK;
            assert_eq!(is_later, expected, "{version}");
        }
    }

    #[test]
    fn a_row_per_variant_says_the_worst_of_its_tools() {
        let check = |subject: &str, tool: &'static str, verdict| {
            let result = GateResult {
                gate: GateId::C7,
                verdict,
                reason: "planted".into(),
            };
            Check {
                subject: subject.into(),
                tool,
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
            [WMMA, SCALAR]
        );
    }
}
