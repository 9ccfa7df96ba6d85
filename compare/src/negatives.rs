//! Refuted claims: `negatives.json` beside each stage. A claim that is recorded there and fails is NEGATIVE, which is no error.

use crate::judge::claims::{Claimed, is_of_gpu};
use crate::table::files::{read, write_atomically};
use crate::table::{Negative, Run, StageMeta, StoreError};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "negatives.json";

/// What is recorded beside a stage; nothing if there is no file.
pub fn of_stage(root: &Path, stage: &str) -> Result<Vec<Negative>, StoreError> {
    let path = root.join(stage).join(FILE);
    match read(&path)? {
        Some(text) => serde_json::from_slice(&text).map_err(StoreError::malformed(&path)),
        None => Ok(vec![]),
    }
}

/// The refutations of each stage that loses some: those of claims that a run shows to hold.
pub fn without_kept(claims: &[Claimed], run: &Run) -> Vec<(String, Vec<Negative>)> {
    changed(run, claims, |_| None)
}

/// The same, with those claims added that fail, for a reason.
pub fn with_broken(
    claims: &[Claimed],
    run: &Run,
    reason: &str,
    gpu: Option<&str>,
) -> Vec<(String, Vec<Negative>)> {
    changed(run, claims, |claimed| {
        let measured = match &claimed.finding.pair {
            Some(pair) => {
                let (new, base) = (pair.new.name(), &pair.base);
                format!("{new} against {base}: {}", claimed.finding.reason)
            }
            None => claimed.finding.reason.clone(),
        };
        let session = claimed.session.as_deref().unwrap_or(&run.session.name);
        let is_of_gpu = is_of_gpu(&claimed.claim);
        claimed.is_broken().then(|| Negative {
            claim: claimed.claim.id(),
            gpu: gpu.filter(|_| is_of_gpu).map(String::from),
            measured: format!("{measured} ({session})"),
            why: reason.to_string(),
        })
    })
}

fn changed(
    run: &Run,
    claims: &[Claimed],
    refutation: impl Fn(&Claimed) -> Option<Negative>,
) -> Vec<(String, Vec<Negative>)> {
    let of_stage = |stage: &StageMeta| {
        let claims = || claims.iter().filter(|claimed| claimed.stage == stage.id);
        let kept = |negative: &&Negative| {
            let mut kept = claims().filter_map(Claimed::is_unexpected);
            !kept.any(|other| other == *negative)
        };
        let mut all: Vec<Negative> = stage.negatives.iter().filter(kept).cloned().collect();
        all.extend(claims().filter_map(&refutation));
        all.sort_by(|a, b| (&a.claim, &a.gpu).cmp(&(&b.claim, &b.gpu)));
        (all != stage.negatives).then(|| (stage.id.clone(), all))
    };
    run.session.stages.iter().filter_map(of_stage).collect()
}

/// Writes the refutations of these stages below `root`; a stage without any has no file.
pub fn write(root: &Path, negatives: &[(String, Vec<Negative>)]) -> Result<(), StoreError> {
    negatives.iter().try_for_each(|(stage, all)| {
        let path = root.join(stage).join(FILE);
        if all.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(StoreError::write(&path)(error))
                }
                _ => Ok(()),
            };
        }
        let mut text = serde_json::to_string_pretty(all).expect("plain data");
        text.push('\n');
        write_atomically(&path, text.as_bytes())
    })
}
