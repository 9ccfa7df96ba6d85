//! Which problems are measured, and with which stages. Pure.

use crate::measure::select::Problems;
use crate::python::bench::Item;
use crate::table::ProblemPlace;
use crate::table::session::{Relation, StageMeta};
use common::problem::{Dtype, Mask, SHAPES};

/// The chosen problems, each shape under its usual masks, in f16, what stages claim of other element types, and decode in all;
/// where claims are judged also with inputs from device memory. Sampled are all of `stages` on mission, and elsewhere those that claim
/// to be faster than a peer there; the others are tried.
pub fn items(problems: &Problems, stages: &[&StageMeta]) -> Vec<Item> {
    let shapes = SHAPES.iter().map(|named| named.name);
    let shapes = Vec::from_iter(shapes.filter(|name| *name != "small"));
    let mut items = Vec::new();
    for problem in problems.or(&shapes, &Dtype::ALL, &Mask::ALL) {
        let place = ProblemPlace::of(&problem);
        let is_claimed = stages.iter().any(|stage| claims(stage, &place));
        let named = problem.shape.named();
        let is_usual = named.is_none_or(|named| named.masks.contains(&problem.mask));
        let has_dtype = problem.dtype == Dtype::F16
            || problem.shape.is_decode() && stages.iter().any(|stage| stage.takes(problem.dtype))
            || !problems.dtypes.is_empty();
        let has_mask = is_usual || !problems.masks.is_empty();
        if !(is_claimed || has_dtype && has_mask) {
            continue;
        }
        let is_cold = [false, true].into_iter();
        let has_cold = problem.has_claims() && problem.dtype == Dtype::F16;
        items.extend(is_cold.filter(|cold| !cold || has_cold).map(|cold| {
            let taking = stages.iter().filter(|stage| stage.takes(problem.dtype));
            let (sampled, tried): (Vec<&StageMeta>, Vec<&StageMeta>) = taking
                .partition(|stage| !cold && (place.shape == "mission" || claims(stage, &place)));
            let ids = |of: Vec<&StageMeta>| of.iter().map(|stage| stage.id.clone()).collect();
            Item {
                place: ProblemPlace {
                    cold,
                    ..place.clone()
                },
                problem,
                stages: ids(sampled),
                tried: ids(tried),
                library: None,
            }
        }));
    }
    items
}

/// Whether the stage claims to be faster than a peer on the problem.
pub fn claims(stage: &StageMeta, place: &ProblemPlace) -> bool {
    let is_of_peer = |of: &Relation| matches!(of, Relation::FasterThanPeer { .. });
    let mut claims = stage.claims.iter();
    claims.any(|claim| is_of_peer(&claim.relation) && claim.place == *place)
}
