//! Which problems are measured, and with which stages. Pure.

use crate::judge::Known;
use crate::judge::best;
use crate::measure::select::Problems;
use crate::python::bench::{Item, best_of_default_family};
use crate::table::Place;
use crate::table::session::{Claim, Relation, StageMeta};
use common::problem::{Dtype, Mask, SHAPES};

/// The chosen problems, each shape under its usual masks, in f16, what stages claim of other element types, and decode in all;
/// where claims are judged also with inputs from device memory. Sampled are all of `stages` on mission, and elsewhere those that claim
/// to be faster than a peer there. Tried are the last, and the one that is the fastest there in the run or, where it timed none, those
/// that claim to be faster than a peer anywhere.
pub fn items(problems: &Problems, stages: &[&StageMeta], known: &Known<'_>) -> Vec<Item> {
    let shapes = SHAPES.iter().map(|named| named.name);
    let shapes = Vec::from_iter(shapes.filter(|name| *name != "small"));
    let mut items = Vec::new();
    for problem in problems.or(&shapes, &Dtype::ALL, &Mask::ALL) {
        let place = Place::of(&problem);
        let claims = |stage: &StageMeta| over_peers(stage).any(|claim| claim.on == place);
        let is_claimed = stages.iter().any(|stage| claims(stage));
        let named = problem.shape.named();
        let is_usual = named.is_none_or(|named| named.masks.contains(&problem.mask));
        let has_dtype = problem.dtype == Dtype::F16
            || problem.shape.is_decode() && stages.iter().any(|stage| stage.takes(problem.dtype))
            || !problems.dtypes.is_empty();
        let has_mask = is_usual || !problems.masks.is_empty();
        if !(is_claimed || has_dtype && has_mask) {
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
        let is_mission = place.shape == "mission";
        let takes = |stage: &&&StageMeta| stage.takes(problem.dtype);
        let last = stages.iter().rfind(takes).map(|stage| &stage.id);
        let item = |is_cold: bool| {
            let taken = stages.iter().filter(takes);
            let (sampled, others): (Vec<&StageMeta>, Vec<&StageMeta>) =
                taken.partition(|stage| !is_cold && (is_mission || claims(stage)));
            let others = others.into_iter();
            let tried = others.filter(|stage| Some(&stage.id) == last || may_be_fastest(stage));
            Item {
                place: Place {
                    cold: is_cold,
                    ..place.clone()
                },
                problem,
                stages: sampled.into_iter().map(|stage| stage.id.clone()).collect(),
                tried: tried.map(|stage| stage.id.clone()).collect(),
            }
        };
        items.push(item(false));
        if problem.has_claims() && problem.dtype == Dtype::F16 {
            items.push(item(true));
        }
    }
    items
}

fn over_peers(stage: &StageMeta) -> impl Iterator<Item = &Claim> {
    stage
        .claims
        .iter()
        .filter(|claim| matches!(claim.relation, Relation::FasterThanPeer { .. }))
}
