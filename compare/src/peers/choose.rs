//! Which problems are measured, and with which stages. Pure.

use crate::judge::Known;
use crate::judge::best;
use crate::measure::select::Problems;
use crate::python::bench::{Item, best_of_default_family};
use crate::table::Place;
use crate::table::session::{Claim, Relation, StageMeta};
use common::problem::{Dtype, LENGTHS, Mask};

/// The shapes that are measured under both masks unless `--shapes` says otherwise.
const SHAPES: [&str; 9] = [
    "mission",
    "mission_b2",
    "stretch",
    "long",
    "wide",
    "big",
    "big_wide",
    "long_16k",
    "long_16k_wide",
];

/// The chosen problems, f16 and what stages claim of other dtypes: of the stages that take them all of `stages` on mission; on the
/// other shapes those that claim to be faster than a peer there, the one that is the fastest there in the run or, where it timed
/// none, those that claim to be faster than a peer anywhere, and the last. By default, those of [`LENGTHS`] under the full mask.
pub fn items(problems: &Problems, stages: &[&StageMeta], known: &Known<'_>) -> Vec<Item> {
    let mut all = problems.or(&SHAPES, &Dtype::ALL, &Mask::ALL);
    if problems.shapes.is_empty() {
        let lengths = LENGTHS.as_flattened();
        let lengths: Vec<&str> = (lengths.iter().copied())
            .filter(|name| !SHAPES.contains(name))
            .collect();
        all.extend(problems.or(&lengths, &Dtype::ALL, &[Mask::Full]));
    }
    let mut items = Vec::new();
    for problem in all {
        let place = Place::of(&problem);
        let claims = |stage: &StageMeta| over_peers(stage).any(|claim| claim.on == place);
        let is_asked_for = problem.dtype == Dtype::F16 || !problems.dtypes.is_empty();
        if !is_asked_for && !stages.iter().any(|stage| claims(stage)) {
            continue;
        }
        let best = |stage: &&StageMeta| best_of_default_family(known, stage, &place);
        let fastest =
            (stages.iter().filter_map(best)).min_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
        let fastest = fastest.map(|row| row.subject.stage());
        let may_be_fastest = |stage: &StageMeta| match fastest {
            Some(fastest) => fastest == stage.id,
            None => over_peers(stage).any(|claim| claim.on.dtype == problem.dtype),
        };
        let stages = chosen(stages, problem.dtype, |stage| {
            place.shape == "mission" || claims(stage) || may_be_fastest(stage)
        });
        items.push(Item {
            place,
            problem,
            stages,
        });
    }
    items
}

/// The ids of the stages that take this element type and are `wanted`, and of the last that takes it.
fn chosen(stages: &[&StageMeta], dtype: Dtype, wanted: impl Fn(&StageMeta) -> bool) -> Vec<String> {
    let takes = |stage: &&&StageMeta| stage.takes(dtype);
    let last = stages.iter().rfind(takes).map(|stage| &stage.id);
    let taken = stages.iter().filter(takes);
    taken
        .filter(|stage| Some(&stage.id) == last || wanted(stage))
        .map(|stage| stage.id.clone())
        .collect()
}

fn over_peers(stage: &StageMeta) -> impl Iterator<Item = &Claim> {
    stage
        .claims
        .iter()
        .filter(|claim| matches!(claim.relation, Relation::FasterThanPeer { .. }))
}
