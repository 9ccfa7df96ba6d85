//! What a card computed, as it is kept: a digest of each experiment's results, and the results
//! themselves where the instruction is approximate.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use crate::experiment::{Experiment, digest_of_words};

/// Whatever runs experiments as a card does.
pub trait Card {
    /// Returns the card's name and driver.
    fn name(&self) -> String;

    /// Returns the words of all results.
    fn run(&mut self, experiment: &Experiment) -> Result<Vec<u64>, String>;
}

/// What is kept of one experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub experiment: String,
    pub results: String,
    pub without_payloads: String,
    pub kept: Option<Vec<u64>>,
}

impl Recorded {
    pub fn new(experiment: &Experiment, results: &[u64]) -> Self {
        Self {
            experiment: experiment.digest(),
            results: digest_of_words(results),
            without_payloads: digest_of_words(&experiment.without_payloads(results)),
            kept: experiment.tolerance.map(|_| results.to_vec()),
        }
    }
}

/// A record's key: the row and the part.
type Key = (String, String);

/// What is kept of a card.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub card: String,
    order: Vec<Key>,
    all: HashMap<Key, Recorded>,
}

fn key(experiment: &Experiment) -> Key {
    (experiment.row.clone(), experiment.part.to_owned())
}

impl Record {
    pub fn new(card: String) -> Self {
        Self {
            card,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn of(&self, experiment: &Experiment) -> Option<&Recorded> {
        self.all.get(&key(experiment))
    }

    pub fn add(&mut self, experiment: &Experiment, recorded: Recorded) {
        self.order.push(key(experiment));
        self.all.insert(key(experiment), recorded);
    }

    /// Reads a file; a missing one is empty.
    ///
    /// # Panics
    ///
    /// The file is not what `UPDATE_CARD=1` writes.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let mut record = Self::new(lines.next().unwrap_or_default().to_owned());
        for line in lines {
            let fields: Vec<&str> = line.split('\t').collect();
            let [row, part, experiment, results, without_payloads, kept] = fields[..] else {
                panic!("{}: a line has no six fields: {line}", path.display());
            };
            let recorded = Recorded {
                experiment: experiment.to_owned(),
                results: results.to_owned(),
                without_payloads: without_payloads.to_owned(),
                kept: (!kept.is_empty()).then(|| words(kept)),
            };
            let name = (row.to_owned(), part.to_owned());
            record.order.push(name.clone());
            record.all.insert(name, recorded);
        }
        record
    }
}

/// Reads results of FP32, 8 hexadecimal digits each.
fn words(kept: &str) -> Vec<u64> {
    let digits = kept.as_bytes().chunks(8);
    digits
        .map(|word| u64::from_str_radix(std::str::from_utf8(word).unwrap(), 16).unwrap())
        .collect()
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.card)?;
        for name in &self.order {
            let recorded = &self.all[name];
            write!(f, "{}\t{}\t{}\t", name.0, name.1, recorded.experiment)?;
            write!(f, "{}\t{}\t", recorded.results, recorded.without_payloads)?;
            for word in recorded.kept.iter().flatten() {
                write!(f, "{word:08x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// An experiment, by its digest, and its results on a card.
pub struct Raw {
    pub experiment: String,
    pub results: Vec<u64>,
}

/// Writes the record, all raw results and the list of differences.
pub fn write_all(folder: &Path, record: &Record, raw: &[Raw], differences: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("outputs.txt"), record.to_string()).unwrap();
    std::fs::write(folder.join("differences.txt"), differences).unwrap();
    std::fs::write(folder.join("card.txt"), &record.card).unwrap();
    let mut all = Vec::new();
    for Raw {
        experiment,
        results,
    } in raw
    {
        all.extend(experiment.bytes());
        all.extend((results.len() as u64).to_le_bytes());
        all.extend(results.iter().flat_map(|word| word.to_le_bytes()));
    }
    std::fs::write(folder.join("results.bin"), all).unwrap();
}

/// Raw results that a card left, for a card.
pub struct Replay {
    name: String,
    all: HashMap<String, Vec<u64>>,
}

impl Replay {
    /// Reads the folder that `UPDATE_CARD=folder` wrote.
    pub fn open(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join("results.bin")).unwrap();
        let mut all = HashMap::new();
        let mut rest = bytes.as_slice();
        while let Some((head, behind)) = rest.split_at_checked(24) {
            let digest = String::from_utf8(head[..16].to_vec()).unwrap();
            let count = u64::from_le_bytes(head[16..].try_into().unwrap()) as usize;
            let (body, next) = behind.split_at(8 * count);
            let words = body
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                .collect();
            all.insert(digest, words);
            rest = next;
        }
        Self {
            name: std::fs::read_to_string(folder.join("card.txt")).unwrap(),
            all,
        }
    }
}

impl Card for Replay {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&mut self, experiment: &Experiment) -> Result<Vec<u64>, String> {
        let known = self.all.get(&experiment.digest());
        known
            .cloned()
            .ok_or_else(|| "the folder has no results of this kernel and operands".to_owned())
    }
}
