//! `compare launch`, hidden: one plain launch per variant and problem, checked and not timed. It is what runs under a
//! profiler or a sanitizer, so it makes no other launch, and it says what it did in a file, since those tools write to
//! both standard streams.

use crate::answer::Answer;
use crate::judge::list::{distinct, joined};
use crate::judge::verdict::Exit;
use crate::measure::rows;
use crate::measure::select::{self, Named, Problems, SelectError};
use crate::record::{On, Row, Source, Subject};
use crate::registry::Ladder;
use crate::tool::{self, Ended};
use anyhow::Context;
use clap::Args;
use common::check::{Outcome, buffers};
use common::device::Staged;
use common::device::cuda::{CudaDevice, CudaError};
use common::gate::{self, Evidence};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::limits::DeviceLimits;
use common::reference::{Probability, Reference, reference};
use common::stage::{LoadedStage, Prepared};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The flags of `launch`, which other commands run under a tool.
#[derive(Clone, Debug, Args)]
pub struct LaunchArgs {
    /// Stages and variants, in the order of the launches: stage0-scalar/wmma-qk-32x64
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "STAGE/VARIANT,..",
        required = true
    )]
    pub places: Vec<String>,
    #[command(flatten)]
    pub problems: Problems,
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

/// What a process of this program is to launch: every variant on every problem.
pub struct Launches<'a> {
    pub places: &'a [Subject],
    /// All the combinations of their shapes, dtypes and masks.
    pub problems: &'a [Named],
    pub device: Option<DeviceLimits>,
    /// How long a launch may take, in seconds.
    pub watchdog: u64,
}

/// What came of such a process.
pub struct Made {
    pub ended: Ended,
    /// What the process, or the tool that it ran under, printed, and where that is.
    pub printed: String,
    pub log: PathBuf,
    /// Of each launch that ended.
    pub rows: Vec<Row>,
}

impl Launches<'_> {
    /// Makes them under `tool`, or by a process of their own. Files are called `label` in `work`; `look` is told how many launches
    /// have ended.
    pub fn make(
        &self,
        tool: Option<Command>,
        (work, label): (&Path, &str),
        limit: Duration,
        mut look: impl FnMut(usize),
    ) -> anyhow::Result<Made> {
        let [log, done] = ["log", "launches"].map(|kind| work.join(format!("{label}.{kind}")));
        let program = std::env::current_exe()?;
        let mut command = match tool {
            Some(mut tool) => {
                tool.arg(program);
                tool
            }
            None => Command::new(program),
        };
        command.args(self.words()).arg("--results").arg(&done);
        let ended = tool::run(command, &log, limit, || look(results(&done).len()))?;
        Ok(Made {
            ended,
            printed: String::from_utf8_lossy(&std::fs::read(&log)?).into_owned(),
            log,
            rows: results(&done),
        })
    }

    fn words(&self) -> Vec<String> {
        let each_once =
            |word: &dyn Fn(&Named) -> String| joined(distinct(self.problems.iter().map(word)), ",");
        let mut words = vec![
            "launch".to_string(),
            format!("--places={}", joined(self.places, ",")),
            format!("--shapes={}", each_once(&|(place, _)| place.shape.clone())),
            format!(
                "--dtypes={}",
                each_once(&|(place, _)| place.dtype.to_string())
            ),
            format!(
                "--masks={}",
                each_once(&|(place, _)| place.mask.to_string())
            ),
            format!("--watchdog={}", self.watchdog),
        ];
        words.extend(self.device.map(|device| format!("--device={device}")));
        words
    }
}

impl Made {
    /// The first launch that failed or whose output is wrong.
    pub fn red(&self) -> Option<String> {
        self.rows.iter().find_map(failure)
    }
}

/// Launches what `args` name, problem by problem and variant by variant, and appends each result to the file as a row. Fails
/// unless every launch that the stages take ended and passed its gates.
pub fn launch(args: &LaunchArgs) -> anyhow::Result<Answer> {
    let mut ladder = Ladder::open()?;
    ladder.limit(args.device)?;
    let places = places(&args.places, &ladder.stages)?;
    let mut device = ladder.gpu.map_err(anyhow::Error::msg)?;
    device.set_watchdog(Duration::from_secs(args.watchdog));
    let mut exit = Exit::Pass;
    for (place, problem) in &args.problems.or(&[], &[], &[]) {
        let inputs = Inputs::generate(problem, Family::Normal, 0);
        let staged = Staged::new(&inputs, Layout::Packed);
        let mut references: HashMap<Probability, Reference> = HashMap::new();
        for (stage, variant) in &places {
            let outcome = match stage.prepare(variant, problem) {
                Err(unsupported) => Outcome::Unsupported {
                    reason: unsupported.to_string(),
                },
                Ok(prepared) => {
                    let reference = match references.entry(prepared.kernel.probability) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(place) => {
                            place.insert(reference(&inputs, prepared.kernel.probability)?)
                        }
                    };
                    once(&device, stage, &prepared, &staged, reference).unwrap_or_else(|error| {
                        Outcome::Failed {
                            reason: error.to_string(),
                        }
                    })
                }
            };
            let on = On::Case(place.clone(), format!("{}:0", Family::Normal));
            let row = Row::new(Subject::variant(stage.info().id, variant), on, Source::Gpu);
            let row = rows::of_outcome(row, &outcome);
            append(&args.results, &row)?;
            if row.failure().is_some() {
                exit = Exit::Fail;
            }
            if matches!(outcome, Outcome::Failed { .. }) {
                return Ok(Answer::new(exit, ""));
            }
        }
    }
    Ok(Answer::new(exit, ""))
}

/// The stages and variants that words like `stage0-scalar/wmma-qk-32x64` name.
fn places<'a>(
    words: &'a [String],
    stages: &'a [LoadedStage],
) -> Result<Vec<(&'a LoadedStage, &'a str)>, SelectError> {
    let place = |word: &'a String| {
        let (id, variant) = word.split_once('/').unwrap_or((word, ""));
        let stage = stages.iter().find(|stage| stage.info().id == id);
        let stage = stage.ok_or_else(|| {
            select::unknown("stage", id, stages.iter().map(|stage| stage.info().id))
        })?;
        let known = stage.variants();
        match known.contains(&variant) {
            true => Ok((stage, variant)),
            false => Err(select::unknown("variant", variant, known)),
        }
    };
    words.iter().map(place).collect()
}

/// One launch with packed tensors, as it is timed and counted, and the gates on its output and its buffers.
fn once(
    device: &CudaDevice,
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    staged: &Staged,
    reference: &Reference,
) -> Result<Outcome, CudaError> {
    let execution = device.execute(stage, prepared, staged)?;
    let output = staged.values(&execution.output);
    let evidence = Evidence {
        problem: &staged.problem,
        family: Some(Family::Normal),
        reference,
        output: &output,
    };
    let (errors, numeric) = gate::numeric_gates(&evidence);
    let mut gates = numeric.to_vec();
    gates.push(gate::c6(&buffers(staged, &execution).collect::<Vec<_>>()));
    Ok(Outcome::Checked { errors, gates })
}

fn append(path: &Path, row: &Row) -> anyhow::Result<()> {
    let line = serde_json::to_string(row)? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// What a launch process wrote so far; nothing where it wrote nothing. A line that was cut off ends the list.
fn results(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map_while(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Whether the variant took the problem.
pub fn is_taken(row: &&Row) -> bool {
    !row.verdicts.is_empty()
}

/// What is wrong with a launch, if anything is: `stage0-scalar/scalar-32x64 mission f16 full normal:0: C2: …`.
fn failure(row: &Row) -> Option<String> {
    row.failure()?;
    Some(format!(
        "{} {}: {}",
        row.subject,
        row.on,
        joined(row.failures(), "; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SCALAR, case};
    use common::verdict::GateId;

    #[test]
    fn what_does_not_exist_is_answered_with_the_nearest() {
        let stages = crate::registry::load().unwrap();
        let message = |word: &str| {
            places(&[word.to_string()], &stages)
                .unwrap_err()
                .to_string()
        };
        assert!(message("stage0-scaler/wmma-qk-32x64").contains("did you mean 'stage0-scalar'"));
        assert!(message("stage0-scalar/wmma-qk-32x46").contains("did you mean 'wmma-qk-32x64'"));
        assert!(message("stage0-scalar").contains("there is no variant ''"));
    }

    #[test]
    fn results_are_read_back_up_to_the_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        assert!(results(&path).is_empty());
        let result = case(SCALAR, Source::Gpu, None);
        append(&path, &result).unwrap();
        append(&path, &result).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(results(&path), [result]);
    }

    #[test]
    fn a_launch_that_is_not_green_is_named_with_its_gate() {
        let red = case(SCALAR, Source::Gpu, Some(GateId::C2));
        assert_eq!(
            failure(&red).as_deref(),
            Some("stage0-scalar/scalar-32x64 mission f16 full normal:0: C2: too large")
        );
        assert_eq!(failure(&case(SCALAR, Source::Gpu, None)), None);
    }
}
