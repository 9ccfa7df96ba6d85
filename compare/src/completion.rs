//! A record that a later command adds a file to: which one, and whether it is of this build and this GPU.

use crate::judge::state::is_green;
use crate::judge::{Known, verdict};
use crate::measure::builds::StageBuild;
use crate::measure::machine;
use crate::measure::select::{Chosen, SelectError};
use crate::page::terminal::{WIDTH, terminal};
use crate::pages::show::{self, Section};
use crate::record::files::name_of;
use crate::record::store::names;
use crate::record::{Of, On, Record, Row, Source, StageMeta, StoreError};
use crate::registry::{Ladder, LadderError};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// Why a record cannot be completed. Nothing was measured or written.
#[derive(Debug, thiserror::Error)]
pub enum CompletionError {
    /// A flag names nothing.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// There is no ladder, or the record's device cannot be stood for.
    #[error(transparent)]
    Ladder(#[from] LadderError),
    #[error("there is no record in {}; run `compare` first, or name one with --record DIR", folder.display())]
    None {
        /// Where they were looked for.
        folder: PathBuf,
    },
    /// It cannot be read.
    #[error(
        "the record cannot be completed; give a folder that `compare run` wrote with --record DIR"
    )]
    Store(#[from] StoreError),
    /// It is of other kernels.
    #[error("{name} is of other versions of {}; run `compare` again with this build, then complete that record", stages.join(", "))]
    OtherBuild { name: String, stages: Vec<String> },
    /// No number without a green gate.
    #[error(
        "{name} has no variant that is green on C1-C6 and B1; fix the kernels and run `compare` again"
    )]
    NothingGreen { name: String },
    /// It is of another machine.
    #[error(
        "{name} was measured on {found}, and this is {here}; run `compare` here first, then complete that record"
    )]
    OtherGpu {
        name: String,
        found: String,
        /// The GPU that is open.
        here: String,
    },
}

/// A record to complete.
#[derive(Debug)]
pub struct Completing {
    pub folder: PathBuf,
    pub name: String,
    pub record: Record,
}

impl Completing {
    /// Opens the record in `folder`, or the newest one under target/compare, and the ladder as it was limited for that
    /// record. Words that name nothing, a record of another build and one of another GPU are refused, in this order; that
    /// there is no GPU is for the caller to say.
    pub fn begin(
        folder: Option<&Path>,
        chosen: &Chosen,
    ) -> Result<(Self, Ladder), CompletionError> {
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

    /// Opens the record in `folder`, or the newest one under target/compare, if it is of `builds`.
    fn open(folder: Option<&Path>, builds: &[StageBuild]) -> Result<Self, CompletionError> {
        let folder = match folder {
            Some(folder) => folder.to_path_buf(),
            None => newest(
                &machine::workspace()
                    .unwrap_or_default()
                    .join("target/compare"),
            )?,
        };
        let record = Record::read(&folder)?;
        let name = name_of(&folder);
        judge(&name, &record, builds)?;
        Ok(Self {
            folder,
            name,
            record,
        })
    }

    /// Refuses a GPU that the record is not of.
    fn of_gpu(&self, here: &str) -> Result<(), CompletionError> {
        match self.record.meta.gpu() {
            Some(name) if name == here => Ok(()),
            other => Err(CompletionError::OtherGpu {
                name: self.name.clone(),
                found: other.unwrap_or("no GPU").to_string(),
                here: here.to_string(),
            }),
        }
    }

    /// What a report on `stages` says of the record, as text.
    pub fn shown(&self, stages: &[StageMeta], section: Section) -> String {
        let known = Known {
            stages,
            run: Some((&self.name, &self.record)),
            committed: &[],
        };
        let document = show::document(&verdict::report(known), &[section], &[]);
        terminal(&document, WIDTH)
    }

    /// An empty folder below target/ for what a tool writes of it.
    pub fn work(&self, below: &str) -> anyhow::Result<PathBuf> {
        let work = machine::workspace()
            .unwrap_or_default()
            .join("target")
            .join(below)
            .join(&self.name);
        let _ = std::fs::remove_dir_all(&work);
        std::fs::create_dir_all(&work)
            .with_context(|| format!("cannot write {}", work.display()))?;
        Ok(work)
    }

    /// Says with which tool, and how, `source` found what it is about to add. What another version of the tool found before
    /// is no evidence beside it.
    pub fn by(&mut self, source: Source, tool: String, method: String) {
        let meta = &mut self.record.meta;
        meta.methods.insert(source, method);
        let before = meta.tools.insert(source, vec![tool]);
        if before.is_some_and(|before| before != meta.tools[&source]) {
            self.record.rows.retain(|row| row.by != source);
        }
    }

    /// Adds rows, or puts them in the place of those that they renew, and writes the record.
    pub fn append(&mut self, rows: impl IntoIterator<Item = Row>) -> Result<(), StoreError> {
        rows.into_iter().for_each(|row| self.record.append(row));
        self.record.write(&self.folder)
    }
}

/// The newest record of the ladder in `folder`: names begin with the time.
fn newest(folder: &Path) -> Result<PathBuf, CompletionError> {
    let newest = names(folder, Of::Ladder)?
        .pop()
        .ok_or_else(|| CompletionError::None {
            folder: folder.to_path_buf(),
        })?;
    Ok(folder.join(newest))
}

fn judge(name: &str, record: &Record, builds: &[StageBuild]) -> Result<(), CompletionError> {
    let name = name.to_string();
    let stages: Vec<String> = builds
        .iter()
        .filter(|build| !record.is_of(build))
        .map(|build| build.id.clone())
        .collect();
    if !stages.is_empty() {
        return Err(CompletionError::OtherBuild { name, stages });
    }
    if !record
        .rows
        .iter()
        .any(|row| row.on == On::All && is_green(record, &row.subject))
    {
        return Err(CompletionError::NothingGreen { name });
    }
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
        assert!(matches!(
            judge("a", &red, &builds()),
            Err(CompletionError::NothingGreen { .. })
        ));
        assert!(matches!(
            Completing::open(Some(Path::new("no/such")), &builds()),
            Err(CompletionError::Store(_))
        ));
    }
}
