//! A process that makes launches under a profiler or a sanitizer: what it is to launch, and its
//! results, which it writes to a file, since those tools write to both standard streams.

use super::process::{self, Ended};
use anyhow::Context;
use common::limits::DeviceLimits;
use common::problem::Problem;
use results::judge::list::joined;
use results::table::{Row, Subject};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The launches of a process: every variant on every problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launches {
    pub variants: Vec<Subject>,
    pub problems: Vec<Problem>,
    pub device: Option<DeviceLimits>,
    /// The time that a launch may take, in seconds; tools slow kernels down.
    pub watchdog: u64,
}

/// A process that ran under a tool.
pub struct ToolRun {
    pub ended: Ended,
    /// The text that the process and its tool printed.
    pub printed: String,
    /// The file that has the text.
    pub log: PathBuf,
    pub rows: Vec<Row>,
}

/// The files of a process under a tool: its folder, and their name without an ending.
#[derive(Clone, Copy, Debug)]
pub struct ToolFiles<'a> {
    pub folder: &'a Path,
    pub label: &'a str,
}

impl ToolFiles<'_> {
    fn path(self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.label))
    }
}

impl Launches {
    /// Makes the launches in a process under `tool`. Calls `look` with the number of launches that
    /// have ended.
    pub fn run_under(
        &self,
        mut tool: Command,
        files: ToolFiles<'_>,
        timeout: Duration,
        mut look: impl FnMut(usize),
    ) -> anyhow::Result<ToolRun> {
        let job = files.path("job");
        let log = files.path("log");
        let done = files.path("launches");
        std::fs::write(&job, serde_json::to_vec(self)?)?;
        // Results are appended: those of an earlier try do not belong to this one.
        let _ = std::fs::remove_file(&done);
        let program = std::env::current_exe()?;
        tool.arg(program).arg("launch").args([&job, &done]);
        let ended = process::run(tool, &log, timeout, || look(results(&done).len()))?;
        let printed = std::fs::read(&log)?;
        Ok(ToolRun {
            ended,
            printed: String::from_utf8_lossy(&printed).into_owned(),
            log,
            rows: results(&done),
        })
    }
}

impl ToolRun {
    /// Describes the first launch that failed or whose output is wrong.
    pub fn first_failure(&self) -> Option<String> {
        self.rows.iter().find_map(failure)
    }
}

/// Appends the result of a launch to a file.
pub fn append_result(path: &Path, row: &Row) -> anyhow::Result<()> {
    let line = serde_json::to_string(row)? + "\n";
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Reads the results that a process has written so far, up to a line that was cut off.
fn results(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map_while(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Returns whether a launch took place: one that a variant does not support has no verdicts.
pub fn is_supported(row: &Row) -> bool {
    !row.verdicts.is_empty()
}

/// Describes what is wrong with a launch, if anything is:
/// `stage0-scalar/scalar-32x64 mission f16 full normal:0: C2: …`.
fn failure(row: &Row) -> Option<String> {
    row.failure()?;
    let failures = joined(row.failures(), "; ");
    Some(format!("{} {}: {failures}", row.subject, row.place()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::device::BackendKind;
    use common::problem::{Dtype, Mask};
    use common::verdict::GateId;
    use results::table::ProblemPlace;
    use results::testing::{SCALAR, case};

    #[test]
    fn a_job_is_read_back_as_it_was_written() {
        let place = ProblemPlace::new("1x2:1x33:65x64", Dtype::E4m3, Mask::Causal);
        let problem = place.problem().unwrap();
        let job = Launches {
            variants: vec![SCALAR.into()],
            problems: vec![problem],
            device: Some("sm_89".parse().unwrap()),
            watchdog: 60,
        };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Launches>(&text).unwrap(), job);
    }

    #[test]
    fn results_are_read_back_up_to_the_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        assert!(results(&path).is_empty());
        let result = case(SCALAR, BackendKind::Cuda, None);
        append_result(&path, &result).unwrap();
        append_result(&path, &result).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(results(&path), [result]);
    }

    #[test]
    fn what_follows_a_line_that_was_cut_off_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        std::fs::write(&path, "{\"subject\":\n").unwrap();
        append_result(&path, &case(SCALAR, BackendKind::Cuda, None)).unwrap();
        assert!(results(&path).is_empty());
    }

    #[test]
    fn a_launch_that_is_not_green_is_named_with_its_gate() {
        let red = case(SCALAR, BackendKind::Cuda, Some(GateId::C2));
        assert_eq!(
            failure(&red).as_deref(),
            Some("stage0-scalar/scalar-32x64 mission f16 full normal:0: C2: too large")
        );
        assert_eq!(failure(&case(SCALAR, BackendKind::Cuda, None)), None);
    }
}
