//! What is measured: problems, and which of our variants stand for their stages. Pure.

use crate::judge::best;
use crate::judge::state::is_green;
use crate::measure::builds::StageBuild;
use crate::measure::select::Problems;
use crate::record::meta::{Claim, Relation};
use crate::record::{Place, Record, Subject};
use common::problem::{Dtype, Mask, Problem};

/// The shapes that are measured unless `--shapes` says otherwise.
const SHAPES: [&str; 7] = ["mission", "mission_b2", "stretch", "long", "wide", "big", "big_wide"];

/// One problem, and the stages that are timed beside the peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The shape's name.
    pub shape_name: String,
    /// What is computed.
    pub problem: Problem,
    /// Ids of stages.
    pub stages: Vec<String>,
}

/// The chosen problems: all of `stages` on mission; on the other shapes those that claim to be faster than a peer there, and
/// the last.
pub fn items(problems: &Problems, stages: &[&StageBuild]) -> Vec<Item> {
    let item = |(shape_name, problem): (String, Problem)| {
        let place = Place::of(&shape_name, &problem);
        let claims = |stage: &StageBuild| {
            let over_peer = |claim: &&Claim| matches!(claim.relation, Relation::FasterThanPeer { .. });
            stage.meta.claims.iter().filter(over_peer).any(|claim| claim.on == place)
        };
        let takes = |(index, stage): &(usize, &&StageBuild)| {
            shape_name == "mission" || index + 1 == stages.len() || claims(stage)
        };
        let stages = stages.iter().enumerate().filter(takes).map(|(_, stage)| stage.id.clone()).collect();
        Item { shape_name, problem, stages }
    };
    problems.or(&SHAPES, &[Dtype::F16], &Mask::ALL).into_iter().map(item).collect()
}

/// Why no peer can be asked for this problem, if so.
pub fn unsupported(problem: &Problem) -> Option<&'static str> {
    let differ = problem.shape.seq_q != problem.shape.seq_kv;
    (problem.mask == Mask::Causal && differ).then_some(
        "PyTorch aligns a causal mask top-left, this project bottom-right: they differ unless seq_q = seq_kv",
    )
}

/// Variants of `stage`, of its default's family, that may stand for it on `problem`: the best where the record timed the
/// problem, else all that are green in the record, of which the caller takes the fastest.
pub fn candidates(record: &Record, stage: &StageBuild, shape_name: &str, problem: &Problem) -> Vec<String> {
    let family = stage.variant(&stage.default_variant).map(|variant| variant.family.as_str());
    let of_family = |name: &str| stage.variant(name).map(|variant| variant.family.as_str()) == family;
    match best::best(record, &stage.id, &Place::of(shape_name, problem), of_family) {
        Some(fastest) => vec![fastest.subject.name().to_string()],
        None => {
            let names = stage.variants.iter().map(|variant| &variant.name).filter(|name| of_family(name));
            names.filter(|name| is_green(record, &Subject::variant(&stage.id, name))).cloned().collect()
        }
    }
}
