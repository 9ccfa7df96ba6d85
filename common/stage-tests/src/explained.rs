//! What kernels show of a row, beside the model of each step: nothing where they are right, and where they are not the line.

use crate::load;
use crate::tier0::is_without;
use common::check::{Target, check, failures};
use common::explain::{Investigated, investigate};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, LoadedStage};
use emulator::trace::{Does, Step};
use emulator::{Place, Schedule};

/// Several tiles, ragged ends, grouped heads, maxima that move late or lie far from 0.
const CASES: [(&str, Dtype, Mask, Family); 9] = [
    ("1x2x150x64", Dtype::F16, Mask::Full, Family::Normal),
    ("1x2x150x64", Dtype::F16, Mask::Causal, Family::Normal),
    ("2x4:2x70:600x64", Dtype::F16, Mask::Causal, Family::Normal),
    ("1x2x600x64", Dtype::F16, Mask::Full, Family::MixedScale),
    ("1x2x300x64", Dtype::F16, Mask::Full, Family::DeepNegative),
    ("1x1x700x64", Dtype::F16, Mask::Causal, Family::Large),
    ("1x2x300x128", Dtype::F16, Mask::Full, Family::Normal),
    (
        "2x4:2x70:300x64",
        Dtype::E4m3,
        Mask::Causal,
        Family::RandomScales,
    ),
    ("2x4:2x70:300x64", Dtype::Bf16, Mask::Causal, Family::Large),
];

fn cases() -> impl Iterator<Item = (String, Problem, Family)> {
    CASES.into_iter().map(|(shape, dtype, mask, family)| {
        let extents = parse_shape(shape).expect("a shape");
        let problem = Problem::new(extents, dtype, mask).expect("a problem that every stage takes");
        (
            format!("{shape} {dtype} {mask} {family}:0"),
            problem,
            family,
        )
    })
}

/// Fails unless the model has nothing to say of the row that is furthest off and of the first, in each family, and the kernel
/// shows every key that the row sees and every column, and marks its steps. With MUTANT_VARIANT set, what is said of the first case that fails is
/// printed instead, for `scripts/explain-mutants`, which has planted a mistake: `-` for the default, a variant, or a part of its name.
pub fn explained(attention: &'static dyn Attention) {
    let stage = load(attention);
    if let Ok(word) = std::env::var("MUTANT_VARIANT") {
        println!("{}", failing(&stage, &word));
        return;
    }
    let mut wrong = Vec::new();
    for variant in stage.family_variants() {
        for (name, problem, family) in cases() {
            let inputs = Inputs::generate(&problem, family, 0);
            if is_without(&stage, variant, problem.dtype) {
                continue;
            }
            let prepared = stage
                .prepare(variant, &problem)
                .expect("every stage takes every problem");
            for row in [None, Some([0, problem.shape.heads_q - 1, 0])] {
                let found = investigate(&prepared, &inputs, Some(family), row);
                let found = found.unwrap_or_else(|error| panic!("{variant} {name}: {error}"));
                if found.is_explained() || found.is_red() || !shows_all(&problem, &found) {
                    let deviation = &found.explained.deviation;
                    wrong.push(format!(
                        "{variant} {name}, row {:?}: {deviation:?}",
                        found.row
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn shows_all(problem: &Problem, found: &Investigated) -> bool {
    let steps = || found.explained.chains.iter().flat_map(|chain| &chain.steps);
    let visible = problem.visible_keys(found.row[2]);
    let has_keys =
        (0..visible as i64).all(|key| steps().any(|step| step.scores.contains_key(&key)));
    let observations = &found.traced.observations;
    let is_marked = [Step::Mask, Step::Exponential, Step::Sum]
        .iter()
        .all(|step| {
            let mut passed = observations.ways.iter().flatten();
            passed.any(|passed| passed.does == Does::Step(*step))
        });
    let is_counted = observations
        .visible
        .iter()
        .any(|(keys, _)| *keys as usize == visible);
    let is_whole = steps().all(|step| {
        step.max.is_some() && step.sum.is_some() && step.output.len() == problem.shape.head_dim
    });
    has_keys
        && is_whole
        && (is_marked && is_counted || steps().count() == 0)
        && steps().any(|step| !step.probabilities.is_empty()) == (steps().count() > 0)
}

/// What is said of the first case that fails, as fields between tabs: the case, the gate, the quantity, and then the places to
/// look at, each with its callers.
fn failing(stage: &LoadedStage, word: &str) -> String {
    let variants = stage.variants();
    let named = variants.iter().find(|name| **name == word);
    let named = named.or_else(|| {
        variants
            .iter()
            .find(|name| name.contains(word) && word != "-")
    });
    let variant = named.map_or(stage.default_variant(), |name| name);
    for (name, problem, family) in cases() {
        let inputs = Inputs::generate(&problem, family, 0);
        let Some(gate) = failed(stage, variant, &problem, family) else {
            continue;
        };
        let prepared = stage.prepare(variant, &problem).expect("it was launched");
        let found = investigate(&prepared, &inputs, Some(family), None)
            .unwrap_or_else(|error| panic!("{variant} {name}: {error}"));
        let mut fields = vec!["EXPLAINED".to_string(), format!("{variant} {name}"), gate];
        let chain = |places: &[Place]| {
            let words: Vec<String> = places.iter().map(Place::to_string).collect();
            words.join(" < ")
        };
        if let Some(hazard) = found.traced.hazards.first() {
            fields.push(format!("hazard: {}", hazard.kind.label()));
            fields.push(hazard.missing.replace(['\n', '\t'], " "));
            let sides = hazard.first.iter().chain(&hazard.second);
            fields.extend(sides.map(|side| chain(&side.places)));
        } else if let Some(deviation) = &found.explained.deviation {
            fields.push(deviation.quantity.to_string());
            fields.extend(deviation.look.iter().map(|look| chain(&look.places)));
        } else {
            fields.push("nothing".to_string());
        }
        return fields.join("\t");
    }
    format!("SURVIVES\t{variant}")
}

/// The first gate that fails, if one does.
fn failed(stage: &LoadedStage, variant: &str, problem: &Problem, family: Family) -> Option<String> {
    stage.prepare(variant, problem).ok()?;
    let target = Target::Emulated {
        schedules: &[Schedule::InOrder, Schedule::Reversed],
        traced: &[Schedule::InOrder],
        suppress: None,
    };
    let failed = failures(check(stage, variant, problem, family, target));
    failed.first().map(|result| result.gate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dtype_is_explained() {
        let has = |dtype: &Dtype| CASES.iter().any(|(_, of, ..)| of == dtype);
        assert!(Dtype::ALL.iter().all(has));
    }
}
