//! What is measured: problems, and which of our variants stand for their stages. Pure.

use crate::judge::Known;
use crate::judge::best;
use crate::judge::state::is_green;
use crate::measure::builds::{StageBuild, VariantBuild};
use crate::measure::select::Problems;
use crate::record::meta::{Claim, Relation};
use crate::record::{Place, Row, Source, Subject};
use common::problem::{Dtype, LENGTHS, Mask, Problem};

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

/// One problem, and the stages that are timed beside the peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub place: Place,
    pub problem: Problem,
    /// Ids of stages.
    pub stages: Vec<String>,
}

/// The chosen problems, f16 and what stages claim of other dtypes: of the stages that take them all of `stages` on mission; on the
/// other shapes those that claim to be faster than a peer there, the one that is the fastest there in the record or, where it timed
/// none, those that claim to be faster than a peer anywhere, and the last. By default, those of [`LENGTHS`] under the full mask.
pub fn items(problems: &Problems, stages: &[&StageBuild], known: &Known<'_>) -> Vec<Item> {
    let mut all = problems.or(&SHAPES, &Dtype::ALL, &Mask::ALL);
    if problems.shapes.is_empty() {
        let lengths = LENGTHS.as_flattened();
        let lengths: Vec<&str> = (lengths.iter().copied())
            .filter(|name| !SHAPES.contains(name))
            .collect();
        all.extend(problems.or(&lengths, &Dtype::ALL, &[Mask::Full]));
    }
    let mut items = Vec::new();
    for (place, problem) in all {
        let claims = |stage: &StageBuild| over_peers(stage).any(|claim| claim.on == place);
        let is_asked_for = problem.dtype == Dtype::F16 || !problems.dtypes.is_empty();
        if !is_asked_for && !stages.iter().any(|stage| claims(stage)) {
            continue;
        }
        let best = |stage: &&StageBuild| best_of_default_family(known, stage, &place);
        let fastest =
            (stages.iter().filter_map(best)).min_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
        let fastest = fastest.map(|row| row.subject.stage());
        let may_be_fastest = |stage: &StageBuild| match fastest {
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

fn best_of_default_family<'a>(
    known: &'a Known<'_>,
    stage: &StageBuild,
    place: &Place,
) -> Option<&'a Row> {
    best::best(known, &stage.meta, place, |name| {
        of_default_family(stage, name)
    })
}

fn of_default_family(stage: &StageBuild, name: &str) -> bool {
    let family = |name: &str| Some(stage.variant(name)?.family.as_str());
    family(name) == family(&stage.default_variant)
}

/// The ids of the stages that take this element type and are `wanted`, and of the last that takes it.
fn chosen(
    stages: &[&StageBuild],
    dtype: Dtype,
    wanted: impl Fn(&StageBuild) -> bool,
) -> Vec<String> {
    let takes = |stage: &&&StageBuild| stage.takes(dtype);
    let last = stages.iter().rfind(takes).map(|stage| &stage.id);
    let taken = stages.iter().filter(takes);
    taken
        .filter(|stage| Some(&stage.id) == last || wanted(stage))
        .map(|stage| stage.id.clone())
        .collect()
}

fn over_peers(stage: &StageBuild) -> impl Iterator<Item = &Claim> {
    stage
        .meta
        .claims
        .iter()
        .filter(|claim| matches!(claim.relation, Relation::FasterThanPeer { .. }))
}

/// Whether the peer of this name computes with operands of this type: FP8 is in the names of those that do. A candidate says so
/// itself.
pub fn takes(peer: &str, dtype: Dtype) -> bool {
    is_candidate(peer) || peer.ends_with("-fp8") == (dtype == Dtype::E4m3)
}

/// What takes the place of a stage in the subject of a candidate.
pub const CANDIDATE: &str = "candidate";

/// Whether this is not a peer but a callable of the user's.
pub fn is_candidate(peer: &str) -> bool {
    Subject::from(peer).stage() == CANDIDATE
}

/// Why no peer can be asked for this problem, if so.
pub fn unsupported(problem: &Problem) -> Option<&'static str> {
    let differ = problem.shape.seq_q != problem.shape.seq_kv;
    (problem.mask == Mask::Causal && differ).then_some(
        "PyTorch aligns a causal mask top-left, this project bottom-right: they differ unless seq_q = seq_kv",
    )
}

/// Variants of `stage`, of its default's family, that may stand for it on a problem: the best where the record timed the
/// problem, else all that are green in the record, of which the caller takes the fastest.
pub fn candidates(known: &Known<'_>, stage: &StageBuild, place: &Place) -> Vec<String> {
    if let Some(fastest) = best_of_default_family(known, stage, place) {
        return vec![fastest.subject.name().to_string()];
    }
    let is_one = |variant: &&VariantBuild| {
        variant.takes(place.dtype)
            && of_default_family(stage, &variant.name)
            && is_green(known, &stage.subject(&variant.name), Source::Gpu)
    };
    let variants = stage.variants.iter().filter(is_one);
    variants.map(|variant| variant.name.clone()).collect()
}
