//! The order of what one block's warps do, by the emulator: `compare timeline` without a GPU, and the
//! picture of docs/ladder.md.

use crate::case::case;
use anyhow::Context;
use common::check::StagedInputs;
use common::device::Staged;
use common::inputs::Inputs;
use common::stage::{LoadedStage, Prepared};
use common::tier0::SCHEDULES;
use common::timeline::Timeline;
use common::timeline::emulated::order;
use pages::files::Rendered;
use pages::timeline::{Drawn, Times, picture};
use results::builds::loaded;
use std::path::Path;
use std::sync::Arc;

/// The picture of docs/ladder.md.
const PICTURE: &str = "docs/pictures/order.svg";

/// The stages and variants that it shows, of one warpgroup that computes, so that rows are few.
const SHOWN: [(&str, &str); 2] = [
    ("stage7-wgmma", "wgmma-64x128"),
    ("stage8-overlap", "overlap-lazy-64x128"),
];

/// The case that it shows: one block of four tiles.
const CASE: &str = "1x1x64:512x64 f16 full normal:0";

/// A launch of which one block is drawn.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    pub stage: &'a LoadedStage,
    pub prepared: &'a Prepared<'a>,
    pub staged: &'a Arc<Staged>,
    /// The block's number: x, then y, then z.
    pub block: u32,
}

impl Launch<'_> {
    /// Traces the block.
    pub fn in_order(&self) -> anyhow::Result<Drawn> {
        let attention = self.stage.attention;
        let timeline = order(
            attention,
            self.prepared,
            self.staged,
            self.block,
            SCHEDULES[0],
        )?;
        Ok(self.drawn(timeline, None))
    }

    /// Returns the block's timeline with the names of the launch.
    pub fn drawn(&self, timeline: Timeline, times: Option<Times>) -> Drawn {
        let problem = &self.staged.problem;
        Drawn {
            stage: self.stage.info().id.to_string(),
            variant: self.prepared.kernel.variant.clone(),
            problem: format!("{} {} {}", problem.shape, problem.dtype, problem.mask),
            block: self.block,
            timeline,
            times,
        }
    }
}

/// Renders the picture of docs/ladder.md, in the workspace at `root`.
pub fn render(stages: &[LoadedStage], root: &Path) -> anyhow::Result<Rendered> {
    let case = case(CASE)?;
    let generated = Inputs::generate(&case.problem, case.family, case.seed);
    let inputs = StagedInputs::new(&generated, Some(case.family));
    let mut drawn = Vec::new();
    for (id, variant) in SHOWN {
        let stage = loaded(stages, id);
        let prepared = stage.prepare(variant, &case.problem)?;
        let launch = Launch {
            stage,
            prepared: &prepared,
            staged: inputs.of_launch(1),
            block: 0,
        };
        let one = launch.in_order();
        drawn.push(one.with_context(|| format!("{PICTURE}: {id}"))?);
    }
    Ok(Rendered {
        path: root.join(PICTURE),
        text: picture(&drawn),
    })
}
