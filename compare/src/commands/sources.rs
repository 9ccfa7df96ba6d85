//! `compare sources`, hidden: what a run's rows depend on, as hashes. `scripts/review` runs the
//! stages whose hash differs.

use crate::answer::Answer;
use results::builds::loaded;
use results::table::StageMeta;
use results::table::session::by_id;
use sha2::{Digest, Sha256};
use stages::Ladder;

/// Returns a line for the program, then one for each stage: a name and a hash.
pub fn sources() -> anyhow::Result<Answer> {
    let ladder = Ladder::without_gpu("not asked for")?;
    let builds = ladder.builds()?;
    let mut lines = format!("program {}\n", env!("COMPARE_PROGRAM"));
    for stage in &builds {
        let redundant = loaded(&ladder.stages, &stage.id).info().redundant;
        let hash = digest(&format!("{}{redundant:?}", description(stage, &builds)));
        lines += &format!("{} {hash}\n", stage.id);
    }
    Ok(Answer::pass(lines))
}

/// Returns what a stage declares and is built of, and the kernels that its claims compare it with.
fn description(stage: &StageMeta, all: &[StageMeta]) -> String {
    let mut identities = Vec::new();
    for claim in &stage.claims {
        if let Some(base) = claim.relation.base()
            && let Some(base_stage) = by_id(all, base.stage)
        {
            identities.push(base_stage.identity.as_str());
        }
    }
    format!("{stage:?}{identities:?}")
}

fn digest(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::testing::ladder;

    /// Returns the stages whose descriptions differ after `edit`.
    fn differing(edit: impl Fn(&mut [StageMeta])) -> Vec<String> {
        let before = ladder();
        let mut after = before.clone();
        edit(&mut after);
        let mut differing = Vec::new();
        for (old, new) in before.iter().zip(&after) {
            if description(old, &before) != description(new, &after) {
                differing.push(old.id.clone());
            }
        }
        differing
    }

    #[test]
    fn an_unchanged_ladder_differs_nowhere() {
        assert_eq!(differing(|_| ()), [""; 0]);
    }

    #[test]
    fn another_kernel_concerns_its_stage_and_those_that_claim_to_beat_it() {
        let later = differing(|stages| stages[1].identity = "another".into());
        assert_eq!(later, ["stage1-cpasync"]);
        let base = differing(|stages| stages[0].identity = "another".into());
        assert_eq!(base, ["stage0-scalar", "stage1-cpasync"]);
    }

    #[test]
    fn another_claim_or_refutation_concerns_its_stage() {
        let claims = differing(|stages| stages[0].claims.clear());
        assert_eq!(claims, ["stage0-scalar"]);
        let variants = differing(|stages| _ = stages[1].variants.pop());
        assert_eq!(variants, ["stage1-cpasync"]);
    }
}
