//! Digests that find an edited figure.
//!
//! `digests.jsonl` has a SHA-256 of each session of a table, over its line of `sessions.jsonl` and
//! its lines of the other files. Writing a table writes it anew, and reading one checks it first,
//! so that only what `accept` or `render` made of verified rows is ever written. Whoever edits a
//! row and computes the digests again is not found by it, but by a review.
//!
//! `sums.txt` has a checksum of each line. It decides nothing: it names the line where a digest is
//! not right.

use super::error::{Result, StoreError};
use super::files::{TableFile, lines as json_lines, read, to_lines};
use super::names::{self, DIGESTS, FILES, SUMS};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The version of the digests.
const FORMAT: u32 = 1;

/// The number of digits of a line's checksum.
const SUM_DIGITS: usize = 8;

/// The files of a folder of tables, by name.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    pub folder: PathBuf,
    pub files: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Format(u32),
    /// The digest of the file in `attention-ladder/choice/` that was fitted to the table.
    Choice(String),
    #[serde(untagged)]
    Session {
        session: String,
        sha256: String,
    },
}

/// The digests of a table, by session; rows without a session have the name `""`.
#[derive(Debug, Default, PartialEq)]
struct Digests {
    sessions: BTreeMap<String, String>,
    choice: Option<String>,
}

/// A line of a file, without white space around it.
struct Line<'a> {
    number: usize,
    session: String,
    text: &'a [u8],
}

/// The place where a table is not as it was written.
#[derive(Debug, PartialEq)]
struct Position {
    file: &'static str,
    line: usize,
    session: String,
    what: &'static str,
}

impl Texts {
    /// Returns no files yet, of this folder.
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            files: BTreeMap::new(),
        }
    }

    /// Reads what a folder has of a table's files.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut texts = Self::at(folder);
        for file in names::ALL {
            if let Some(text) = read(&texts.path(file))? {
                texts.files.insert(file.to_string(), text);
            }
        }
        Ok(texts)
    }

    /// Returns the text of a file; nothing if it is absent.
    pub fn file(&self, name: &str) -> &[u8] {
        self.files.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the path of a file of the folder.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Returns whether `accept` wrote digests of the table.
    pub fn has_digests(&self) -> bool {
        self.files.contains_key(DIGESTS)
    }

    /// Returns `digests.jsonl` and `sums.txt` of these files; `choice` is the digest of the choice
    /// that was fitted to them.
    pub fn digested(&self, choice: Option<&str>) -> [TableFile; 2] {
        let mut entries = vec![Entry::Format(FORMAT)];
        if let Some(sha256) = choice {
            entries.push(Entry::Choice(sha256.to_string()));
        }
        for (session, sha256) in self.digests() {
            entries.push(Entry::Session { session, sha256 });
        }
        let digests = to_lines(entries);
        let mut sums = String::new();
        for file in FILES {
            sums += file;
            sums.push('\n');
            for line in lines(self.file(file)) {
                sums += &sum(line.text);
                sums.push('\n');
            }
        }
        [
            TableFile::new(DIGESTS, digests),
            TableFile::new(SUMS, sums.into_bytes()),
        ]
    }

    /// Refuses a table that is not as `accept` wrote it. Returns the digest of its choice, if it
    /// has one.
    pub fn verify(&self) -> Result<Option<String>> {
        if !self.has_digests() {
            return Err(StoreError::NoDigests {
                path: self.folder.clone(),
            });
        }
        let written = self.written()?;
        let computed = self.digests();
        let sessions = computed.keys().chain(written.sessions.keys());
        let changed: BTreeSet<&String> = sessions
            .filter(|name| computed.get(*name) != written.sessions.get(*name))
            .collect();
        let Some(first) = changed.first() else {
            return Ok(written.choice);
        };
        let Position {
            file,
            line,
            session,
            what,
        } = self
            .edited(&changed)
            .or_else(|| self.missing(first))
            .unwrap_or_else(|| self.entry(first));
        Err(StoreError::Edited {
            path: self.path(file),
            line,
            session,
            what,
            sessions: changed.len(),
        })
    }

    /// Reads `digests.jsonl`.
    fn written(&self) -> Result<Digests> {
        let path = self.path(DIGESTS);
        let mut digests = Digests::default();
        let mut format = None;
        for entry in json_lines(self.file(DIGESTS), &path)? {
            match entry {
                Entry::Format(version) => format = Some(version),
                Entry::Choice(sha256) => digests.choice = Some(sha256),
                Entry::Session { session, sha256 } => {
                    digests.sessions.insert(session, sha256);
                }
            }
        }
        match format {
            Some(FORMAT) => Ok(digests),
            _ => Err(StoreError::Format { path }),
        }
    }

    /// Computes the digest of each session: over its lines, in the order of the files, and of their
    /// bytes within a file.
    fn digests(&self) -> BTreeMap<String, String> {
        let mut sessions = BTreeMap::<String, Vec<_>>::new();
        for file in FILES {
            let mut lines = lines(self.file(file));
            lines.sort_by_key(|line| line.text);
            for line in lines {
                sessions.entry(line.session).or_default().push(line.text);
            }
        }
        let mut digests = BTreeMap::new();
        for (session, texts) in sessions {
            digests.insert(session, hash(&texts));
        }
        digests
    }

    /// Returns the first line of these sessions that was not written.
    fn edited(&self, sessions: &BTreeSet<&String>) -> Option<Position> {
        let written = self.sums();
        for file in FILES {
            let Some(listed) = written.get(file) else {
                continue;
            };
            let sums: BTreeSet<&str> = listed.iter().copied().collect();
            for line in lines(self.file(file)) {
                if sessions.contains(&line.session) && !sums.contains(&*sum(line.text)) {
                    return Some(Position {
                        file,
                        line: line.number,
                        session: line.session,
                        what: "was changed or added after `compare accept` wrote it",
                    });
                }
            }
        }
        None
    }

    /// Returns where the first line was that was written and is gone; `session` has lost one.
    fn missing(&self, session: &str) -> Option<Position> {
        let written = self.sums();
        for file in FILES {
            let Some(sums) = written.get(file) else {
                continue;
            };
            let lines = lines(self.file(file));
            let present: BTreeSet<String> = lines.iter().map(|line| sum(line.text)).collect();
            if let Some(index) = sums.iter().position(|sum| !present.contains(*sum)) {
                return Some(Position {
                    file,
                    line: index + 1,
                    session: session.to_string(),
                    what: "was taken out after `compare accept` wrote it",
                });
            }
        }
        None
    }

    /// Returns the session's own line of `digests.jsonl`, where nothing else tells.
    fn entry(&self, session: &str) -> Position {
        let lines = lines(self.file(DIGESTS));
        let own = lines.iter().find(|line| line.session == session);
        Position {
            file: DIGESTS,
            line: own.or(lines.last()).map_or(1, |line| line.number),
            session: session.to_string(),
            what: match own {
                Some(_) => "is not the digest of the session's rows",
                None => "is the last, and none is the digest of the session",
            },
        }
    }

    /// Reads the checksums of each file from `sums.txt`, in its order.
    fn sums(&self) -> BTreeMap<&str, Sums<'_>> {
        let text = std::str::from_utf8(self.file(SUMS)).unwrap_or_default();
        let mut sums: BTreeMap<&str, Sums<'_>> = BTreeMap::new();
        let mut file = "";
        for line in text.lines() {
            if FILES.contains(&line) {
                file = line;
            } else {
                sums.entry(file).or_default().push(line);
            }
        }
        sums
    }
}

type Sums<'a> = Vec<&'a str>;

/// Returns the lines that are not empty, with their sessions.
fn lines(text: &[u8]) -> Vec<Line<'_>> {
    #[derive(Default, Deserialize)]
    struct Named {
        #[serde(default)]
        session: String,
    }
    let mut lines = Vec::new();
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            continue;
        }
        // A line that is no JSON is refused by whoever reads it.
        let named: Named = serde_json::from_slice(trimmed).unwrap_or_default();
        lines.push(Line {
            number,
            session: named.session,
            text: trimmed,
        });
    }
    lines
}

fn sum(line: &[u8]) -> String {
    let mut digits = hash(&[line]);
    digits.truncate(SUM_DIGITS);
    digits
}

/// Computes the SHA-256 of these lines, in hexadecimal digits.
fn hash(lines: &[&[u8]]) -> String {
    let mut sha256 = Sha256::new();
    for line in lines {
        sha256.update(line);
        sha256.update(b"\n");
    }
    hexadecimal(&sha256.finalize())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computes the digest of a file of choice.
pub fn of_choice(text: &[u8]) -> String {
    hexadecimal(&Sha256::digest(text))
}

/// Refuses a choice that is not what `accept` fitted to the table.
pub fn verify_choice(path: &Path, text: Option<&[u8]>, written: Option<&str>) -> Result<()> {
    let computed = text.map(of_choice);
    if computed.as_deref() != written {
        return Err(StoreError::Choice {
            path: path.to_path_buf(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
