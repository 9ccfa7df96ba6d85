//! Which problems are measured, and with which stages. Pure.

use crate::judge::Known;
use crate::judge::best;
use crate::measure::select::Problems;
use crate::python::bench::{Item, best_of_default_family};
use crate::table::Place;
use crate::table::session::{Claim, Relation, StageMeta};
use common::problem::{Dtype, Kind, Mask, of_kind};

/// Of the large grids; the others by `--shapes`.
const LARGE: [&str; 4] = ["big", "big_wide", "long_16k", "long_16k_wide"];

/// The chosen problems, each shape under its usual masks, in f16, what stages claim of other element types, and decode in all:
/// of the stages that take them all of `stages` on mission; on the other shapes those that claim to be faster than a peer there, the
/// one that is the fastest there in the run or, where it timed none, those that claim to be faster than a peer anywhere, and the last;
/// of these, where none has a claim there, the fastest in a trial.
/// Where claims are judged also with inputs from device memory.
pub fn items(problems: &Problems, stages: &[&StageMeta], known: &Known<'_>) -> Vec<Item> {
    let of = |kind| of_kind(kind).map(|named| named.name);
    let shapes = of(Kind::Small).filter(|name| *name != "small").chain(LARGE);
    let shapes = shapes.chain(of(Kind::Everyday)).chain(of(Kind::Decode));
    let mut items = Vec::new();
    for problem in problems.or(&Vec::from_iter(shapes), &Dtype::ALL, &Mask::ALL) {
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
        let item = |is_cold| Item {
            place: Place {
                cold: is_cold,
                ..place.clone()
            },
            problem,
            stages: chosen(stages, problem.dtype, |stage| {
                is_mission && !is_cold || claims(stage) || may_be_fastest(stage)
            }),
            trial: is_cold || fastest.is_none() && !is_mission && !is_claimed,
        };
        items.push(item(false));
        if problem.has_claims() && problem.dtype == Dtype::F16 {
            items.push(item(true));
        }
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
