//! `tune/<gpu>.json`: the fastest variants of each stage and problem, as `compare tune` keeps them.

use super::error::StoreError;
use super::files::read;
use super::meta::StageMeta;
use common::problem::{Dtype, Mask, Problem, Shape};
use serde::{Deserialize, Serialize};

/// Variants that are kept of a stage on a problem.
pub const KEPT: usize = 3;

/// The version of the file.
const SCHEMA: u32 = 1;

/// `tune/<gpu>.json`: the best variants of the stages on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningCache {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `NVIDIA H200`.
    pub gpu: String,
    /// One per stage and problem, sorted.
    pub entries: Vec<Entry>,
}

/// The best variants of a stage on a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The stage.
    pub stage: String,
    /// The stage's identity when it was tuned. The entry holds for no other.
    pub identity: String,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// When it was tuned, UTC.
    pub tuned: String,
    /// Green variants that were timed.
    pub timed: usize,
    /// The fastest of them, at most [`KEPT`], fastest first.
    pub best: Vec<Ranked>,
}

/// A green variant and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The variant.
    pub variant: String,
    /// Median of device time, in microseconds.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// Hash of the machine code that ran, which no other variant has; absent where the driver translated PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass_sha256: Option<String>,
}

/// What a file says of a stage on a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Known<'a> {
    /// These are the best.
    Fresh(&'a [Ranked]),
    /// They were, of another version of the kernel.
    Stale,
    /// Nothing.
    Absent,
}

impl TuningCache {
    /// A file of `gpu` without entries.
    pub fn none(gpu: &str) -> Self {
        Self {
            schema: SCHEMA,
            gpu: gpu.to_string(),
            entries: vec![],
        }
    }

    /// The file at `path`, if there is one.
    pub fn read(path: &std::path::Path) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = read(path)? else {
            return Ok(None);
        };
        let malformed = |source: serde_json::Error| StoreError::Malformed {
            path: path.to_path_buf(),
            line: source.line(),
            source,
        };
        let cache: Self = serde_json::from_slice(&bytes).map_err(malformed)?;
        match cache.schema {
            SCHEMA => Ok(Some(cache)),
            found => Err(StoreError::Schema {
                path: path.to_path_buf(),
                found: Some(found.into()),
                reads: SCHEMA,
            }),
        }
    }

    /// What is known of `stage`, as it is built now, on a problem.
    pub fn of(&self, stage: &StageMeta, problem: &Problem) -> Known<'_> {
        match self
            .entries
            .iter()
            .find(|entry| entry.is_of(&stage.id, problem))
        {
            None => Known::Absent,
            Some(entry) if entry.identity != stage.identity => Known::Stale,
            Some(entry) => Known::Fresh(&entry.best),
        }
    }

    /// Whether `variant` of `stage`, as it is built now, is among the best on any problem; `None` where nothing is known.
    pub fn is_kept_anywhere(&self, stage: &StageMeta, variant: &str) -> Option<bool> {
        let mut entries = self
            .entries
            .iter()
            .filter(|entry| entry.stage == stage.id && entry.identity == stage.identity)
            .peekable();
        entries.peek()?;
        Some(entries.any(|entry| entry.best.iter().any(|ranked| ranked.variant == variant)))
    }

    /// Replaces what is known of a stage on a problem by the first of all that are `ranked`. Where no variant is green any
    /// more, nothing is known.
    pub fn put(&mut self, ranked: &Entry, tuned: &str) {
        let mut entry = Entry {
            tuned: tuned.to_string(),
            timed: ranked.best.len(),
            ..ranked.clone()
        };
        entry.best.truncate(KEPT);
        let key = |entry: &Entry| (entry.stage.clone(), entry.shape, entry.dtype, entry.mask);
        self.entries.retain(|other| key(other) != key(&entry));
        if !entry.best.is_empty() {
            self.entries.push(entry);
        }
        let place = |entry: &Entry| {
            (
                entry.stage.clone(),
                entry.shape_name.clone(),
                entry.dtype.name(),
                entry.mask.name(),
            )
        };
        self.entries.sort_by_key(place);
    }
}

impl Entry {
    /// Whether it is of a stage on a problem.
    pub fn is_of(&self, stage: &str, problem: &Problem) -> bool {
        (self.stage.as_str(), self.shape, self.dtype, self.mask)
            == (stage, problem.shape, problem.dtype, problem.mask)
    }
}
