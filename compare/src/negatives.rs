//! Refuted claims: `negatives.json` beside each stage. A claim that is recorded there and fails is NEGATIVE, which is no error.

use crate::judge::claims::{Claimed, is_of_gpu};
use crate::table::files::{read, write_atomically};
use crate::table::{Negative, StageMeta, StoreError};
use std::fs;
use std::path::{Path, PathBuf};

fn file(root: &Path, stage: &str) -> PathBuf {
    root.join(stage).join("negatives.json")
}

/// What is recorded beside a stage; nothing if there is no file.
pub fn of_stage(root: &Path, stage: &str) -> Result<Vec<Negative>, StoreError> {
    let path = file(root, stage);
    match read(&path)? {
        Some(text) => serde_json::from_slice(&text).map_err(StoreError::malformed(&path)),
        None => Ok(vec![]),
    }
}

/// Takes the refutations of claims back that hold now and, for a reason, records the claims that fail.
pub fn settle(
    stages: &mut [StageMeta],
    claims: &[Claimed],
    reason: Option<&str>,
    gpu: Option<&str>,
) {
    for stage in stages {
        let claims = || claims.iter().filter(|claimed| claimed.stage == stage.id);
        let refuted: Vec<Negative> = claims()
            .filter(|claimed| claimed.is_broken())
            .filter_map(|claimed| {
                let mut measured = claimed.finding.reason.clone();
                if let Some(pair) = claimed.pair()
                    && let Some(base) = &pair.against
                {
                    measured = format!("{} against {base}: {measured}", pair.subject.name());
                }
                let session = claimed.session().unwrap_or_default();
                let is_of_gpu = is_of_gpu(&claimed.claim);
                Some(Negative {
                    claim: claimed.claim.id(),
                    gpu: gpu.filter(|_| is_of_gpu).map(String::from),
                    measured: format!("{measured} ({session})"),
                    why: reason?.to_string(),
                })
            })
            .collect();
        let held: Vec<&Negative> = claims().filter_map(Claimed::is_unexpected).collect();
        stage.negatives.retain(|negative| !held.contains(&negative));
        stage.negatives.extend(refuted);
        let by_claim = |of: &Negative| (of.claim.clone(), of.gpu.clone());
        stage.negatives.sort_by_key(by_claim);
    }
}

/// Writes the refutations that have changed below `root`; a stage without any has no file.
pub fn write(root: &Path, stages: &[StageMeta]) -> Result<(), StoreError> {
    for StageMeta { id, negatives, .. } in stages {
        let path = file(root, id);
        if of_stage(root, id)? == *negatives {
            continue;
        }
        if negatives.is_empty() {
            fs::remove_file(&path).map_err(StoreError::write(&path))?;
            continue;
        }
        let mut text = serde_json::to_string_pretty(negatives).expect("plain data");
        text.push('\n');
        write_atomically(&path, text.as_bytes())?;
    }
    Ok(())
}
