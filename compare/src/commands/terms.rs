//! `compare terms`, hidden: what the stages promise and are let off, as JSON. `scripts/review` gives
//! `compare diff` those of both sides.

use crate::answer::Answer;
use anyhow::anyhow;
use common::resources::Caps;
use results::builds::loaded;
use results::judge::terms::{StageTerms, Terms};
use results::judge::verdict::Exit;
use stages::Ladder;

/// Returns the terms of all stages.
pub fn terms() -> anyhow::Result<Answer> {
    let ladder = Ladder::without_gpu("not asked for")?;
    let mut terms = Terms::default();
    for meta in &ladder.builds()? {
        let stage = loaded(&ladder.stages, &meta.id);
        let caps = Caps::parse(stage.attention.artifacts().caps)
            .map_err(|line| anyhow!("caps.csv of {}: `{line}` is no cap", meta.id))?;
        terms
            .stages
            .push(StageTerms::new(meta, stage.info().redundant, &caps));
    }
    Answer::json(Exit::Pass, &terms)
}
