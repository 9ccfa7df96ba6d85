//! The committed tables: `results/<gpu>/` has one for each GPU model, `results/build/` the one of
//! what depends on sources and compilers alone. `accept` merges sessions into them; git is their
//! history.

use super::digest::{Texts, of_choice, verify_choice};
use super::error::Result;
use super::files::{TableFile, entries, is_run, read, write_atomically};
use super::kind::Kind;
use super::merge::Table;
use super::names::{DIGESTS, ROWS};
use super::row::Row;
use super::session::{Session, StageMeta};
use common::device::BackendKind;
use std::collections::BTreeMap;
use std::path::Path;

/// The folder of the table of the build.
pub const BUILD: &str = "build";

/// The committed tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    pub build: Table,
    /// The tables of GPU models, by the name of their folder: `nvidia-h200`.
    pub gpus: BTreeMap<String, Table>,
    /// The digests of the choices that were fitted to the tables, by the same names.
    choices: BTreeMap<String, String>,
}

impl Results {
    /// Reads the tables below `folder`, each of which is as `accept` wrote it; none if there is no
    /// such folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut results = Self::default();
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_table = [ROWS, DIGESTS].iter().any(|file| path.join(file).is_file());
            if is_table && !is_run(&path) && !name.starts_with('.') {
                let texts = Texts::read(&path)?;
                results.add(&name, &texts)?;
                results.verify(&name, &texts)?;
                results.table_mut(&name).verify_one_gpu(&path)?;
            }
        }
        Ok(results)
    }

    /// Reads a folder's table.
    pub fn add(&mut self, folder: &str, texts: &Texts) -> Result<()> {
        *self.table_mut(folder) = Table::parsed(texts)?;
        Ok(())
    }

    /// Refuses a folder whose files are not as `accept` wrote them.
    pub fn verify(&mut self, folder: &str, texts: &Texts) -> Result<()> {
        if let Some(choice) = texts.verify()? {
            self.choices.insert(folder.to_string(), choice);
        }
        Ok(())
    }

    /// Keeps the digest of the choice that was fitted to a table.
    pub fn choose(&mut self, gpu: &str, text: &str) {
        self.choices
            .insert(gpu.to_string(), of_choice(text.as_bytes()));
    }

    /// Refuses a choice in `folder` that is not what was fitted to its table.
    pub fn verify_choices(&self, folder: &Path) -> Result<()> {
        for gpu in self.gpus.keys() {
            let path = folder.join(format!("{gpu}.json"));
            let text = read(&path)?;
            let written = self.choices.get(gpu).map(String::as_str);
            verify_choice(&path, text.as_deref(), written)?;
        }
        Ok(())
    }

    /// Returns whether both have the same rows of the same sessions, but for random problems, which
    /// are not compared.
    pub fn has_rows_of(&self, other: &Self) -> bool {
        self.without_random_problems() == other.without_random_problems()
    }

    fn without_random_problems(&self) -> Self {
        let mut compared = self.clone();
        compared.choices.clear();
        for table in compared.tables_mut() {
            table.retain(|row| !matches!(row.kind, Kind::RandomTime(_) | Kind::Regret));
        }
        compared
    }

    /// Returns the table of a folder, to be changed.
    pub fn table_mut(&mut self, folder: &str) -> &mut Table {
        match folder {
            BUILD => &mut self.build,
            gpu => self.gpus.entry(gpu.to_string()).or_default(),
        }
    }

    fn tables_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.gpus.values_mut().chain([&mut self.build])
    }

    /// Returns whether no table has rows.
    pub fn is_empty(&self) -> bool {
        self.build.is_empty() && self.gpus.is_empty()
    }

    /// Returns everything that is known of one GPU model's figures, and of the build.
    pub fn of_gpu(&self, name: &str) -> Table {
        let mut table = self.build.clone();
        if let Some(gpu) = self.gpus.get(name) {
            table.join(gpu.clone());
        }
        table
    }

    /// Returns whether another run's session has this name.
    pub fn has_other_run(&self, session: &Session) -> bool {
        let mut tables = self.gpus.values().chain([&self.build]);
        tables.any(|table| {
            table
                .sessions
                .get(&session.name)
                .is_some_and(|other| !other.is_same_run(session))
        })
    }

    /// Returns whether the machine code of a variant's gates has passed all cases of tier T2 on a GPU
    /// of this architecture (`sm_90`).
    pub fn has_passed_all_cases(&self, gates: &Row, arch: Option<&str>) -> bool {
        self.gpus.values().any(|table| {
            let Some(full) = table.checked(&gates.subject, BackendKind::Cuda) else {
                return false;
            };
            full.code.is_some()
                && full.code == gates.code
                && full.failure().is_none()
                && table.session(full).is_some_and(|session| {
                    !session.has_fewer_cases() && session.machine.gpu.arch() == arch
                })
        })
    }

    /// Gives rows of the same machine code the identity of the sources as they are now.
    pub fn restamp(&mut self, stages: &[StageMeta], built: &Table) {
        for table in self.tables_mut() {
            table.restamp(stages, built);
        }
    }

    /// Splits a table of one GPU model into the part of the build and that of the GPU, and keeps
    /// both.
    pub fn put(&mut self, gpu: Option<&str>, table: &Table) {
        self.build = table.part(|row| row.kind.is_of_build());
        if let Some(name) = gpu {
            let measured = table.part(|row| !row.kind.is_of_build());
            self.gpus.insert(name.to_string(), measured);
        }
    }

    /// Returns the files of all tables, with their paths below `results/`.
    pub fn files(&self) -> Vec<TableFile> {
        let mut files = Vec::new();
        let build = std::iter::once((BUILD, &self.build));
        let gpus = self.gpus.iter().map(|(name, table)| (name.as_str(), table));
        for (folder, table) in build.chain(gpus) {
            if table.is_empty() {
                continue;
            }
            let written = table.files();
            let mut texts = Texts::at(folder.as_ref());
            for file in &written {
                texts.files.insert(file.path.clone(), file.bytes.clone());
            }
            let choice = self.choices.get(folder).map(String::as_str);
            let digested = texts.digested(choice);
            for file in written.into_iter().chain(digested) {
                let path = format!("{folder}/{}", file.path);
                files.push(TableFile::new(path, file.bytes));
            }
        }
        files
    }

    /// Writes all files below a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for file in self.files() {
            write_atomically(&folder.join(file.path), &file.bytes)?;
        }
        Ok(())
    }
}
