//! The self-test of a run: planted faults, and kernels without one of their synchronisation sites.
//! It runs once per build: its rows are kept below target/compare, and the same program takes them
//! from there.

use super::sink::{ExecuteError, Sink};
use common::faults;
use common::limits::DeviceLimits;
use common::stage::LoadedStage;
use common::suppression::{Presets, Suppressed, suppress_each};
use common::verdict::Verdict;
use results::table::files::{entries, read, write_atomically};
use results::table::{Row, Run};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The self-test of a run.
pub struct SelfTest<'a> {
    /// The stages whose sites are removed.
    pub stages: Vec<&'a LoadedStage>,
    pub kept: Option<Kept>,
}

/// The part of the self-test that is about no stage.
const GATES: &str = "gates";

impl SelfTest<'_> {
    /// Adds its rows, of this run or of an earlier one of the same program. Returns how many parts
    /// were not run again.
    pub fn run(&self, run: &mut Run, sink: &mut dyn Sink) -> Result<usize, ExecuteError> {
        let total = 1 + self.stages.len();
        let mut kept_parts = 0;
        let gates = self.part(GATES, &mut kept_parts, || {
            sink.on_start("self-test", "planted faults", 0, total);
            let faults = faults::selftest();
            Row::self_test(&faults, &Suppressed::default())
        });
        run.extend(gates);
        sink.on_rows_added(run)?;
        for (done, &stage) in self.stages.iter().enumerate() {
            let id = stage.info().id;
            let sites = self.part(id, &mut kept_parts, || {
                sink.on_start("self-test", id, done + 1, total);
                let suppressed = suppress_each(stage, Presets::OnePerFamily);
                Row::self_test(&[], &suppressed)
            });
            run.extend(sites);
            sink.on_rows_added(run)?;
        }
        Ok(kept_parts)
    }

    fn part(
        &self,
        name: &str,
        kept_parts: &mut usize,
        test: impl FnOnce() -> Vec<Row>,
    ) -> Vec<Row> {
        let Some(kept) = &self.kept else {
            return test();
        };
        if let Some(rows) = kept.rows(name) {
            *kept_parts += 1;
            return rows;
        }
        let rows = test();
        kept.keep(name, &rows);
        rows
    }
}

/// The self-test's rows of one program, on one device: a file for each part. Files of other
/// programs are never read.
pub struct Kept {
    folder: PathBuf,
    /// The hash of all bytes of the program, kernels included, and the device that it was limited
    /// to.
    key: String,
    /// Whether every part is run again.
    is_afresh: bool,
}

impl Kept {
    /// Keeps rows in `folder`, for the program that is running.
    pub fn new(folder: &Path, device: Option<DeviceLimits>, is_afresh: bool) -> io::Result<Self> {
        // This is the file that runs, even if another build has replaced it since.
        let program = File::open("/proc/self/exe")?;
        Ok(Self {
            folder: folder.to_path_buf(),
            key: key(program, device)?,
            is_afresh,
        })
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.join(format!("{}-{part}.json", self.key))
    }

    fn rows(&self, part: &str) -> Option<Vec<Row>> {
        let text = read(&self.path(part)).ok().flatten()?;
        let rows: Vec<Row> = serde_json::from_slice(&text).ok()?;
        if self.is_afresh || !passes(&rows) {
            return None;
        }
        Some(rows)
    }

    /// Keeps rows that pass. A failure may be the machine's, so that the part runs again; so it
    /// does where the rows cannot be written.
    fn keep(&self, part: &str, rows: &[Row]) {
        if !passes(rows) {
            return;
        }
        for path in entries(&self.folder).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with(&self.key) && name.ends_with(".json") {
                // Another run may have removed it.
                let _ = fs::remove_file(&path);
            }
        }
        let text = serde_json::to_vec(rows).expect("rows are plain data");
        let _ = write_atomically(&self.path(part), &text);
    }
}

fn passes(rows: &[Row]) -> bool {
    for row in rows {
        for judged in row.verdicts.values() {
            if judged.verdict != Verdict::Pass {
                return false;
            }
        }
    }
    !rows.is_empty()
}

/// The number of bytes of the program that are hashed at a time.
const PIECE: usize = 1 << 20;

/// Returns the hash of a program and the device that it is limited to.
fn key(mut program: impl Read, device: Option<DeviceLimits>) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        let read = program.read(&mut piece)?;
        if read == 0 {
            break;
        }
        hash.update(&piece[..read]);
    }
    hash.update(format!("{device:?}"));
    let digest = hash.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::judge::state::tally;
    use results::testing::{emulated, row};

    /// Returns what is kept of a program, on a device that may be limited.
    fn kept(folder: &Path, program: &str, device: Option<&str>) -> Kept {
        let limits = device.map(|name| name.parse().unwrap());
        Kept {
            folder: folder.into(),
            key: key(program.as_bytes(), limits).unwrap(),
            is_afresh: false,
        }
    }

    const KILLED: &str =
        "self-test | : stale tile | self-test | S1 pass | cases 8 | cases_failed 8";

    /// A folder in which one build has kept the rows of stage 0.
    struct Folder {
        folder: tempfile::TempDir,
        first: Kept,
        rows: Vec<Row>,
    }

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let first = kept(folder.path(), "one build", None);
            assert_eq!(first.rows("stage0"), None);
            let rows = vec![row(KILLED)];
            first.keep("stage0", &rows);
            Self {
                folder,
                first,
                rows,
            }
        }

        fn kept(&self, program: &str, device: Option<&str>) -> Kept {
            kept(self.folder.path(), program, device)
        }
    }

    #[test]
    fn the_rows_of_a_part_are_known_to_the_same_program() {
        let folder = Folder::new();
        assert_eq!(folder.first.rows("stage0"), Some(folder.rows));
        assert_eq!(folder.first.rows("stage1"), None);
    }

    #[test]
    fn rows_are_not_known_to_another_program() {
        let folder = Folder::new();
        assert_eq!(folder.kept("another build", None).rows("stage0"), None);
        let longer = folder.kept("one build, one byte more", None);
        assert_eq!(longer.rows("stage0"), None);
    }

    #[test]
    fn rows_are_not_known_on_another_device() {
        let folder = Folder::new();
        let limited = folder.kept("one build", Some("sm_89"));
        assert_eq!(limited.rows("stage0"), None);
    }

    #[test]
    fn rows_are_not_known_where_every_part_is_run_again() {
        let folder = Folder::new();
        let afresh = Kept {
            is_afresh: true,
            ..folder.kept("one build", None)
        };
        assert_eq!(afresh.rows("stage0"), None);
    }

    #[test]
    fn the_rows_of_another_build_take_the_place_of_those_before() {
        let folder = Folder::new();
        let other = folder.kept("another build", None);
        other.keep("stage0", &folder.rows);
        assert_eq!(folder.first.rows("stage0"), None);
        assert_eq!(entries(folder.folder.path()).unwrap().len(), 1);
    }

    #[test]
    fn rows_that_do_not_pass_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path(), "a build", None);
        for verdict in [
            "self-test | : stale tile | self-test | S1 fail no gate fails",
            "self-test | : synchronisation | self-test | S1 no_data not here",
            "scalar | : as it is | self-test | H1 fail race",
        ] {
            kept.keep("gates", &[row(KILLED), row(verdict)]);
            assert_eq!(kept.rows("gates"), None, "{verdict}");
        }
        assert_eq!(entries(folder.path()).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn files_that_were_cut_off_or_edited_are_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept(folder.path(), "a build", None);
        kept.keep("gates", &[row(KILLED)]);
        let path = kept.path("gates");
        let whole = fs::read_to_string(&path).unwrap();
        let cut_off = whole[..whole.len() - 1].to_string();
        let edited = whole.replace("pass", "fail");
        for text in [cut_off, "[]".into(), String::new(), edited] {
            fs::write(&path, &text).unwrap();
            assert_eq!(kept.rows("gates"), None, "{text}");
        }
    }

    /// A sink that keeps the steps.
    #[derive(Default)]
    struct Log {
        steps: Vec<String>,
    }

    impl Sink for Log {
        fn on_start(&mut self, _: &'static str, label: &str, done: usize, total: usize) {
            self.steps.push(format!("{done} of {total}: {label}"));
        }

        fn on_rows_added(&mut self, _: &mut Run) -> Result<(), ExecuteError> {
            Ok(())
        }
    }

    /// The self-test of one stage.
    struct Tested {
        run: Run,
        kept_parts: usize,
        steps: Vec<String>,
    }

    impl Tested {
        fn new(stage: &LoadedStage, folder: &Path, is_afresh: bool) -> Self {
            let mut run = emulated().without(|_| true);
            let mut log = Log::default();
            let self_test = SelfTest {
                stages: vec![stage],
                kept: Some(Kept::new(folder, None, is_afresh).unwrap()),
            };
            let kept_parts = self_test.run(&mut run, &mut log).unwrap();
            Self {
                run,
                kept_parts,
                steps: log.steps,
            }
        }
    }

    #[test]
    fn a_second_run_of_a_program_has_the_rows_of_the_first_and_tests_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let stages = stages::load().unwrap();
        let first = Tested::new(&stages[2], folder.path(), false);
        assert_eq!(first.kept_parts, 0);
        assert_eq!(
            first.steps,
            ["0 of 2: planted faults", "1 of 2: stage2-simd-pv"]
        );
        let tally = tally(first.run.table.self_tests());
        assert_eq!(tally.faults, 33);
        assert_eq!(tally.faults_killed, 33);
        assert!(tally.sites > 0);
        let second = Tested::new(&stages[2], folder.path(), false);
        assert_eq!(second.run, first.run);
        assert_eq!(second.kept_parts, 2);
        assert_eq!(second.steps, [""; 0]);
        let afresh = Tested::new(&stages[2], folder.path(), true);
        assert_eq!(afresh.run, first.run);
        assert_eq!(afresh.kept_parts, 0);
        assert_eq!(afresh.steps, first.steps);
    }
}
