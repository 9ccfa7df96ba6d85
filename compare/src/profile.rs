//! `compare profile`: one launch per variant under ncu, and what it says of the figures that the stages predict.

mod csv;

use crate::cli::ProfileArgs;
use crate::completion::{Completing, UnderToolError};
use crate::judge::{self, Known, best, claims};
use crate::launch::{self, Named, results};
use crate::measure::builds::StageBuild;
use crate::measure::builds::builds;
use crate::measure::rows;
use crate::page;
use crate::pages::show::{self, Section};
use crate::progress::Progress;
use crate::record::ncu;
use crate::record::{Place, Row, Source, StageMeta, Subject};
use crate::select::{self, SelectError};
use crate::tool::{Ended, Places, Tool};
use crate::{list, machine, registry};
use common::check::{CaseResult, Outcome};
use common::limits::DeviceLimits;
use common::problem::{Dtype, Mask};
use common::verdict::Verdict;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where ncu is.
const NCU: Places = Places {
    name: "ncu",
    variable: "NCU",
    pinned: Some(".cuda/nvidia/cu13/bin/ncu"),
    usual: &["/usr/local/cuda/bin", "/opt/cuda/bin", "/usr/local/cuda-13/bin"],
};

/// How it is run, in words.
const METHOD: &str = "one launch per variant after its output has passed the gates; the kernel is replayed for each group of \
                      metrics with caches flushed before each pass; no clock is set";

/// Replaying one launch for all metrics takes about a second; a profile that takes longer than this each has hung.
const SECONDS_PER_LAUNCH: u64 = 30;

/// A launch under ncu may take this long.
const WATCHDOG_SECONDS: u64 = 120;

/// What came of it.
pub enum Outcomes {
    /// Nothing was measured, and nothing is overwritten.
    NoData {
        /// Why, and what to do.
        reason: String,
    },
    /// A kernel failed under ncu, or its output did there; nothing is overwritten.
    Red {
        /// Which, and how.
        reason: String,
    },
    /// Measured and written.
    Written {
        /// The tables.
        text: String,
        /// The file of the record.
        path: PathBuf,
        /// ncu's own file.
        report: PathBuf,
        /// Predictions that do not hold on this GPU.
        refuted: Vec<String>,
    },
}

/// Profiles what `args` select and completes the record.
pub fn profile(args: &ProfileArgs) -> Result<Outcomes, UnderToolError> {
    let mut stages = registry::load()?;
    let whole = builds(&stages);
    let problems = problems(args)?;
    select::variants(&args.variants, &select::stages(&args.stages, &whole)?, &whole)?;
    let mut record = Completing::open(args.record.as_deref(), &whole)?;
    let gpu = list::gpu(&stages);
    let device = record.record.meta.device;
    registry::limit(&mut stages, gpu.as_ref().ok(), device)?;
    let ladder = builds(&stages);
    let selected = select::stages(&args.stages, &ladder)?;
    let (places, red) = places(&selected, &ladder, &args.variants, &record);
    if places.is_empty() {
        let reason = format!("none of what was selected is green in {}: {}", record.name, red.join(", "));
        return Ok(Outcomes::NoData { reason });
    }
    let gpu = match gpu {
        Ok(device) => device.info().name.clone(),
        Err(reason) => return Ok(Outcomes::NoData { reason: format!("there is no GPU to profile on: {reason}") }),
    };
    record.of_gpu(&gpu)?;
    let ncu = match NCU.find() {
        Ok(tool) => tool,
        Err(reason) => return Ok(Outcomes::NoData { reason }),
    };
    let work = machine::workspace().unwrap_or_default().join("target/profile").join(&record.name);
    let found = match measure(&ncu, &places, (&problems, device), &ladder, &work, args.quiet)? {
        Ok(found) => found,
        Err(outcome) => return Ok(outcome),
    };
    for (name, problem) in &problems {
        record.record.names(name, problem.shape);
    }
    record.record.meta.tools.insert(Source::Ncu, vec![format!("ncu {}", ncu.version)]);
    record.record.meta.methods.insert(Source::Ncu, METHOD.to_string());
    record.append(found)?;
    let stages: Vec<StageMeta> = selected.iter().map(|stage| stage.meta.clone()).collect();
    let refuted = stages.iter().flat_map(|stage| stage.claims.iter().map(move |claim| (stage, claim)));
    let refuted = refuted.filter(|(_, claim)| claim.metric.is_judged_by_ncu()).filter_map(|(stage, claim)| {
        let finding = claims::evidence(&record.record, stage, claim, Source::Ncu)?;
        (finding.verdict == Verdict::Fail).then(|| format!("{}: {claim}: {}", stage.id, finding.reason))
    });
    let refuted = refuted.collect();
    let stages: Vec<StageMeta> = ladder.iter().map(|build| build.meta.clone()).collect();
    let known = Known { stages: &stages, run: Some((&record.name, &record.record)), committed: &[] };
    let document = show::document(&judge::verdict::report(known), &[Section::Profile], &[]);
    let text = page::terminal::terminal(&document, page::terminal::WIDTH, "compare show profile");
    Ok(Outcomes::Written { text, path: record.folder.clone(), report: work.join("profile.ncu-rep"), refuted })
}

fn problems(args: &ProfileArgs) -> Result<Vec<Named>, SelectError> {
    let mission = ["mission".to_string()];
    let shapes = select::shapes(if args.shapes.is_empty() { &mission } else { &args.shapes })?;
    let (mut dtypes, mut masks) = (select::dtypes(&args.dtypes)?, select::masks(&args.masks)?);
    if dtypes.is_empty() {
        dtypes.push(Dtype::F16);
    }
    if masks.is_empty() {
        masks.push(Mask::Full);
    }
    Ok(launch::problems(&shapes, &dtypes, &masks))
}

/// What is launched, and what is left out because it is not green in the record. Without a choice of variants these are
/// the fastest green one of each stage, and all that an evidence claim speaks of.
fn places(
    selected: &[&StageBuild],
    ladder: &[StageBuild],
    variants: &[String],
    record: &Completing,
) -> (Vec<String>, Vec<String>) {
    let stages: Vec<StageMeta> = ladder.iter().map(|build| build.meta.clone()).collect();
    let known = Known { stages: &stages, run: Some((&record.name, &record.record)), committed: &[] };
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for stage in stages.iter().filter(|stage| selected.iter().any(|selected| selected.id == stage.id)) {
        if variants.is_empty() {
            wanted.push((&stage.id, best::variant(&known, stage)));
            wanted.extend(named_by_claims(stage, &stages));
        }
        let named = stage.variants.iter().filter(|variant| variants.contains(&variant.name));
        wanted.extend(named.map(|variant| (stage.id.as_str(), variant.name.as_str())));
    }
    let all =
        ladder.iter().flat_map(|stage| stage.variants.iter().map(|variant| (stage.id.as_str(), variant.name.as_str())));
    let (green, red): (Vec<_>, Vec<_>) =
        all.filter(|place| wanted.contains(place)).partition(|(stage, variant)| record.is_green(stage, variant));
    let words =
        |places: Vec<(&str, &str)>| places.into_iter().map(|(stage, variant)| format!("{stage}/{variant}")).collect();
    (words(green), words(red))
}

/// The variants that ncu must look at to judge what `stage` predicts.
fn named_by_claims<'a>(stage: &'a StageMeta, stages: &'a [StageMeta]) -> Vec<(&'a str, &'a str)> {
    let mut names = Vec::new();
    for claim in stage.claims.iter().filter(|claim| claim.metric.is_judged_by_ncu()) {
        for (variant, base) in claims::compared(stages, stage, claim).unwrap_or_default() {
            names.push((stage.id.as_str(), variant.name.as_str()));
            names.extend(base.map(|(stage, variant)| (stage.id.as_str(), variant.name.as_str())));
        }
    }
    names
}

/// Runs this program under ncu and reads what it measured; the outer error is of the machine, the inner one an outcome.
fn measure(
    tool: &Tool,
    places: &[String],
    (problems, device): (&[Named], Option<DeviceLimits>),
    ladder: &[StageBuild],
    work: &Path,
    quiet: bool,
) -> Result<Result<Vec<Row>, Outcomes>, UnderToolError> {
    let no_data = |reason: String| Ok(Err(Outcomes::NoData { reason }));
    let _ = std::fs::remove_dir_all(work);
    std::fs::create_dir_all(work)?;
    let (report, log, done) = (work.join("profile.ncu-rep"), work.join("ncu.log"), work.join("launches"));
    let planned = places.len() * problems.len();
    let mut command = Command::new(&tool.path);
    command.args(["--clock-control", "none", "--cache-control", "all", "--force-overwrite", "--export"]).arg(&report);
    command.args(["--metrics", &ncu::names().join(",")]);
    command.arg(std::env::current_exe()?).args(launch::arguments(places, problems, device, WATCHDOG_SECONDS, &done));
    let mut bars = Progress::new(quiet);
    let limit = Duration::from_secs(SECONDS_PER_LAUNCH * (planned as u64 + 2));
    let ended = crate::tool::run(command, &log, limit, || {
        let finished = results(&done).len().min(planned - 1);
        bars.step("profile", places.get(finished % places.len()).map_or("", String::as_str), finished, planned);
    })?;
    bars.finish();
    let launched = results(&done);
    if let Some(reason) = launched.iter().find_map(launch::failure) {
        return Ok(Err(Outcomes::Red { reason }));
    }
    let printed = std::fs::read_to_string(&log).unwrap_or_default();
    if ended == Ended::TimedOut {
        let reason =
            format!("ncu was ended after {} s, with {} of {planned} launches", limit.as_secs(), launched.len());
        return no_data(reason);
    }
    if !ended.is_success() || launched.len() < planned {
        return no_data(format!("{}; its log is {}", csv::reason(&printed), log.display()));
    }
    let table = work.join("profile.csv");
    let mut import = Command::new(&tool.path);
    import.arg("--import").arg(&report).args(["--csv", "--page", "raw", "--print-units", "base"]);
    crate::tool::run(import, &table, limit, || ())?;
    let text = std::fs::read_to_string(&table)?;
    match csv::parse(&text, &ncu::names())
        .map_err(|error| error.to_string())
        .and_then(|rows| joined(ladder, launched, rows))
    {
        Ok(launches) => Ok(Ok(launches)),
        Err(reason) => no_data(format!("{reason}; the table is {}", table.display())),
    }
}

fn is_unsupported(result: &CaseResult) -> bool {
    matches!(result.outcome, Outcome::Unsupported { .. })
}

/// Puts ncu's lines beside the launches that they are of: as many, in the same order, of the same kernels.
fn joined(ladder: &[StageBuild], launched: Vec<CaseResult>, lines: Vec<csv::Launch>) -> Result<Vec<Row>, String> {
    let launched: Vec<CaseResult> = launched.into_iter().filter(|result| !is_unsupported(result)).collect();
    if launched.len() != lines.len() {
        return Err(format!("ncu has {} launches, the program made {}", lines.len(), launched.len()));
    }
    let join = |(CaseResult { key, .. }, line): (CaseResult, csv::Launch)| {
        let symbol = launch::instance(ladder, &key).unwrap_or_default();
        if line.kernel != symbol {
            return Err(format!("ncu has a launch of {}, where the program launched {symbol}", line.kernel));
        }
        let subject = Subject::variant(&key.stage, &key.variant);
        Ok(rows::profiled(subject, Place::new(&key.shape_name, key.dtype, key.mask), &line.values))
    };
    launched.into_iter().zip(lines).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::testing::{CPASYNC, SCALAR, US, VARIANTS, builds, case, timed};
    use common::device::BackendKind;
    use common::verdict::GateId;

    fn completing(record: Record) -> Completing {
        Completing { folder: PathBuf::new(), name: "a".into(), record }
    }

    fn row(kernel: &str) -> csv::Launch {
        csv::Launch { kernel: kernel.into(), values: [("m".to_string(), 1.0)].into() }
    }

    #[test]
    fn headlines_and_what_claims_speak_of_are_profiled_if_they_are_green() {
        let ladder = builds();
        let selected: Vec<&StageBuild> = ladder.iter().collect();
        let record = timed(US);
        let all = VARIANTS;
        let (green, red) = places(&selected, &ladder, &[], &completing(record.clone()));
        assert_eq!((green.as_slice(), red.len()), (&all.map(String::from)[..], 0));
        let (green, _) = places(&selected[1..], &ladder, &["cpasync-32x64".into()], &completing(record.clone()));
        assert_eq!(green, all[2..]);
        let record = record.failing(SCALAR, GateId::C1);
        let (green, red) = places(&selected, &ladder, &[], &completing(record));
        assert_eq!((green.as_slice(), red), (&all.map(String::from)[1..], vec![all[0].to_string()]));
    }

    #[test]
    fn lines_of_other_kernels_and_lost_lines_are_refused() {
        let ladder = builds();
        let launched = vec![case(SCALAR, BackendKind::Cuda, None), case(CPASYNC, BackendKind::Cuda, None)];
        let join = |rows: Vec<csv::Launch>| joined(&ladder, launched.clone(), rows);
        let good = join(vec![row("scalar_32x64_f16_d64"), row("cpasync_32x64_f16_d64")]).unwrap();
        assert_eq!(
            (good[1].subject.as_str(), &good[1].on, good[1].by),
            (CPASYNC, &crate::testing::mission(), Source::Ncu)
        );
        assert!(
            join(vec![row("scalar_32x64_f16_d64")]).unwrap_err().contains("ncu has 1 launches, the program made 2")
        );
        let swapped = join(vec![row("cpasync_32x64_f16_d64"), row("scalar_32x64_f16_d64")]).unwrap_err();
        assert!(swapped.contains("where the program launched scalar_32x64_f16_d64"), "{swapped}");
    }
}
