//! Chooses which problems are measured, and with which stages. Pure.

use common::problem::{Dtype, Mask, Problem, SHAPES};
use measure::python::bench::Item;
use measure::select::Problems;
use results::table::ProblemPlace;
use results::table::session::StageMeta;

/// Returns the chosen problems: each shape under its usual masks, in f16, in other element types
/// where stages claim something, and decode in all; where claims are judged also with inputs from
/// device memory.
pub fn items(problems: &Problems, stages: &[&StageMeta]) -> Vec<Item> {
    let shapes: Vec<&str> = SHAPES
        .iter()
        .map(|named| named.name)
        .filter(|name| *name != "small")
        .collect();
    let mut items = Vec::new();
    for problem in problems.or(&shapes, &Dtype::ALL, &Mask::ALL) {
        if !is_chosen(problems, stages, &problem) {
            continue;
        }
        items.push(item(&problem, stages, false));
        if problem.has_claims() && problem.dtype == Dtype::F16 {
            items.push(item(&problem, stages, true));
        }
    }
    items
}

/// Returns whether a problem is claimed, or has a usual or asked-for element type and mask. That of
/// sequences as they are served is asked for or claimed.
fn is_chosen(problems: &Problems, stages: &[&StageMeta], problem: &Problem) -> bool {
    let place = ProblemPlace::of(problem);
    if stages.iter().any(|stage| stage.claims_over_peer(&place)) {
        return true;
    }
    let has_dtype = problem.dtype == Dtype::F16 && problem.is_dense()
        || problem.shape.is_decode() && stages.iter().any(|stage| stage.takes(problem.dtype))
        || !problems.dtypes.is_empty();
    has_dtype && problems.has_usual_mask(problem)
}

/// Makes the item of a problem. All `stages` are sampled on mission, and elsewhere those that claim
/// to be faster than a peer there; the others are tried, as are all with inputs from device memory.
fn item(problem: &Problem, stages: &[&StageMeta], is_cold: bool) -> Item {
    let place = ProblemPlace {
        cold: is_cold,
        ..ProblemPlace::of(problem)
    };
    let mut item = Item {
        problem: *problem,
        stages: vec![],
        tried: vec![],
        library: None,
        place,
    };
    for stage in stages.iter().filter(|stage| stage.takes(problem.dtype)) {
        let is_sampled =
            !is_cold && (item.place.shape == "mission" || stage.claims_over_peer(&item.place));
        let ids = if is_sampled {
            &mut item.stages
        } else {
            &mut item.tried
        };
        ids.push(stage.id.clone());
    }
    item
}
