//! Opens a record that a later command completes, and checks that it is of this build and GPU.

use crate::judge::state::is_green;
use crate::judge::{Known, verdict};
use crate::measure::builds::StageBuild;
use crate::measure::machine;
use crate::measure::select::Chosen;
use crate::page::terminal::{WIDTH, terminal};
use crate::pages::show::{self, Section};
use crate::record::files::name_of;
use crate::record::store::names;
use crate::record::{Of, On, Record, Row, Source, StageMeta, StoreError};
use crate::registry::Ladder;
use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};

/// A record to complete.
#[derive(Debug)]
pub struct Completing {
    pub folder: PathBuf,
    pub name: String,
    pub record: Record,
}

impl Completing {
    /// Opens the record in `folder`, or the newest one under target/compare, and the ladder with that record's device limits.
    /// Unknown names, a record of another build, and one of another GPU are refused, in this order; reporting a missing GPU is up
    /// to the caller.
    pub fn begin(folder: Option<&Path>, chosen: &Chosen) -> anyhow::Result<(Self, Ladder)> {
        let mut ladder = Ladder::open()?;
        let builds = ladder.builds();
        chosen.of(&builds)?;
        let completing = Self::open(folder, &builds)?;
        if let Ok(gpu) = &ladder.gpu {
            completing.of_gpu(&gpu.info().name)?;
        }
        ladder.limit(completing.record.meta.device)?;
        Ok((completing, ladder))
    }

    /// Opens the record in `folder`, or the newest one under target/compare, and checks that it is of `builds`.
    fn open(folder: Option<&Path>, builds: &[StageBuild]) -> anyhow::Result<Self> {
        let folder = match folder {
            Some(folder) => folder.to_path_buf(),
            None => newest(&below_target("compare"))?,
        };
        let record = Record::read(&folder).context(
            "the record cannot be completed; name a folder that `compare run` wrote with --record DIR",
        )?;
        let name = name_of(&folder);
        judge(&name, &record, builds)?;
        Ok(Self {
            folder,
            name,
            record,
        })
    }

    /// Refuses a GPU other than the record's.
    fn of_gpu(&self, here: &str) -> anyhow::Result<()> {
        let found = self.record.meta.gpu().unwrap_or("no GPU");
        ensure!(
            found == here,
            "{} was measured on {found}, and this is {here}; run `compare` here first, then complete that record",
            self.name
        );
        Ok(())
    }

    /// A section of the report on the record, as text.
    pub fn shown(&self, stages: &[StageMeta], section: Section) -> String {
        let known = Known {
            stages,
            run: Some((&self.name, &self.record)),
            committed: &[],
        };
        let document = show::document(&verdict::report(known), &[section], &[]);
        terminal(&document, WIDTH)
    }

    /// An empty folder below target/ for the files of a tool.
    pub fn work(&self, below: &str) -> anyhow::Result<PathBuf> {
        let work = below_target(below).join(&self.name);
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(&work)
            .with_context(|| format!("cannot write {}", work.display()))?;
        Ok(work)
    }

    /// Notes the tool and method of `source`, and drops what another version of the tool found before.
    pub fn by(&mut self, source: Source, tool: String, method: String) {
        let meta = &mut self.record.meta;
        meta.methods.insert(source, method);
        let before = meta.tools.insert(source, vec![tool]);
        if before.is_some_and(|before| before != meta.tools[&source]) {
            self.record.rows.retain(|row| row.by != source);
        }
    }

    /// Adds or replaces rows, and writes the record.
    pub fn append(&mut self, rows: impl IntoIterator<Item = Row>) -> Result<(), StoreError> {
        rows.into_iter().for_each(|row| self.record.append(row));
        self.record.write(&self.folder)
    }
}

fn below_target(folder: &str) -> PathBuf {
    let workspace = machine::workspace().unwrap_or_default();
    workspace.join("target").join(folder)
}

/// The newest record of the ladder in `folder`: names begin with the time.
fn newest(folder: &Path) -> anyhow::Result<PathBuf> {
    let newest = names(folder, Of::Ladder)?.pop().with_context(|| {
        format!(
            "there is no record in {}; run `compare` first, or name one with --record DIR",
            folder.display()
        )
    })?;
    Ok(folder.join(newest))
}

fn judge(name: &str, record: &Record, builds: &[StageBuild]) -> anyhow::Result<()> {
    let others: Vec<&str> = (builds.iter().filter(|build| !record.is_of(build)))
        .map(|build| build.id.as_str())
        .collect();
    ensure!(
        others.is_empty(),
        "{name} is of other versions of {}; run `compare` again with this build, then complete that record",
        others.join(", ")
    );
    ensure!(
        (record.rows.iter()).any(|row| row.on == On::All && is_green(record, &row.subject)),
        "{name} has no variant that is green on C1-C6 and B1; fix the kernels and run `compare` again"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CPASYNC, GPU, US, VARIANTS, builds, candidate, timed};
    use common::verdict::GateId;

    fn written(record: &Record, names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        names
            .iter()
            .for_each(|name| record.write(&folder.path().join(name)).unwrap());
        folder
    }

    #[test]
    fn the_newest_record_is_taken() {
        let names = [
            "20261120T000000Z-b",
            "20261121T000000Z-a",
            ".20261122T000000Z-c.1.tmp",
            "20261123T000000Z-d.partial",
        ];
        let folder = written(&timed(US), &names);
        std::fs::create_dir(folder.path().join("29991121T000000Z-not-a-record")).unwrap();
        let of_candidate = folder.path().join("29991122T000000Z-candidate");
        candidate().write(&of_candidate).unwrap();
        assert_eq!(newest(folder.path()).unwrap(), folder.path().join(names[1]));
        let missing = newest(&folder.path().join("nowhere"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("run `compare` first"), "{missing}");
    }

    #[test]
    fn a_record_of_this_build_and_gpu_is_opened() {
        let folder = written(&timed(US), &["a"]);
        let opened = Completing::open(Some(&folder.path().join("a")), &builds()).unwrap();
        assert_eq!(opened.name, "a");
        opened.of_gpu(GPU).unwrap();
        let other = opened.of_gpu("NVIDIA L4").unwrap_err().to_string();
        assert!(
            other.contains("measured on NVIDIA H200, and this is NVIDIA L4"),
            "{other}"
        );
    }

    #[test]
    fn other_kernels_and_red_records_are_refused() {
        let mut changed = builds();
        changed[1].meta.identity = "another".into();
        let record = timed(US);
        let error = judge("a", &record, &changed).unwrap_err().to_string();
        assert!(
            error.contains("other versions of stage1-cpasync; run `compare` again"),
            "{error}"
        );
        let two = VARIANTS[..2].iter().fold(record, |record, subject| {
            record.failing(subject, GateId::C2)
        });
        assert!(judge("a", &two, &builds()).is_ok(), "one is green");
        let red = two.failing(CPASYNC, GateId::C2);
        let error = judge("a", &red, &builds()).unwrap_err().to_string();
        assert!(error.contains("no variant that is green"), "{error}");
        let error = Completing::open(Some(Path::new("no/such")), &builds()).unwrap_err();
        assert!(error.to_string().contains("with --record DIR"), "{error}");
    }
}
