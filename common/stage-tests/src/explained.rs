//! The values that kernels show of a row, beside the model of each step: nothing deviates where
//! they are right, and where they are not the line is named.

use crate::load;
use crate::tier0::{is_without, serves};
use common::check::{Target, check, failures};
use common::explain::{Investigated, investigate};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::serving::Cache;
use common::stage::{Attention, LoadedStage};
use emulator::trace::{Does, Step};
use emulator::{Place, Schedule};

/// A problem with its inputs.
struct Case {
    name: String,
    problem: Problem,
    family: Family,
    inputs: Inputs,
}

/// Returns the problems of a variant: those of every stage and, if it takes them, sequences as they
/// are served; of one that reads a cache all with K and V in such.
fn cases_of(stage: &LoadedStage, variant: &str) -> Vec<Case> {
    let mut cases = Vec::from(cases());
    if serves(stage, variant) {
        cases.extend(served_cases());
    }
    match stage.cache_of(variant) {
        None => cases,
        cache => cases
            .iter()
            .filter_map(|plain| plain.in_cache(cache))
            .collect(),
    }
}

impl Case {
    /// Returns the case with K and V in a cache; `None` where there is no such problem.
    fn in_cache(&self, cache: Option<Cache>) -> Option<Self> {
        let problem = self.problem.in_cache(cache).ok()?;
        Some(Self {
            name: format!(
                "{} {} {} {}:0",
                problem.shape, problem.dtype, problem.mask, self.family
            ),
            problem,
            family: self.family,
            inputs: Inputs::generate(&problem, self.family, 0),
        })
    }
}

/// Returns windows that begin behind the first tile, sinks, capped scores, sequences without a key,
/// pages, and rows shorter than a tile's.
fn served_cases() -> [Case; 5] {
    let served = |shape, mask| case(shape, Dtype::F16, mask, Family::Normal);
    [
        served("1x2x600x64+window=20:*", Mask::Causal),
        served(
            "3x4:2x40:300x128+packed=even:1:2+window=60:0+sinks",
            Mask::Full,
        ),
        served("2x2x70:20x64+used=even:3:1+sinks", Mask::Causal),
        served(
            "2x2x150:290x64+packed=mixed:3:1+page=64+cap=30",
            Mask::Causal,
        ),
        served("1x4:2x130:260x72", Mask::Full),
    ]
}

/// Returns problems with several tiles, ragged ends, grouped heads, and maxima that move late or lie
/// far from 0.
fn cases() -> [Case; 9] {
    [
        case("1x2x150x64", Dtype::F16, Mask::Full, Family::Normal),
        case("1x2x150x64", Dtype::F16, Mask::Causal, Family::Normal),
        case("2x4:2x70:600x64", Dtype::F16, Mask::Causal, Family::Normal),
        case("1x2x600x64", Dtype::F16, Mask::Full, Family::MixedScale),
        case("1x2x300x64", Dtype::F16, Mask::Full, Family::DeepNegative),
        case("1x1x700x64", Dtype::F16, Mask::Causal, Family::Large),
        case("1x2x300x128", Dtype::F16, Mask::Full, Family::Normal),
        case(
            "2x4:2x70:300x64",
            Dtype::E4m3,
            Mask::Causal,
            Family::RandomScales,
        ),
        case("2x4:2x70:300x64", Dtype::Bf16, Mask::Causal, Family::Large),
    ]
}

fn case(shape: &str, dtype: Dtype, mask: Mask, family: Family) -> Case {
    let extents = parse_shape(shape).expect("a shape");
    let problem = Problem::new(extents, dtype, mask).expect("a problem that every stage takes");
    Case {
        name: format!("{shape} {dtype} {mask} {family}:0"),
        problem,
        family,
        inputs: Inputs::generate(&problem, family, 0),
    }
}

/// Fails unless the model has nothing to say of the row that is furthest off and of the first, in
/// each family, and the kernel shows every key that the row sees and every column, and marks its
/// steps. With MUTANT_VARIANT set, what is said of the first case that fails is printed instead,
/// for `scripts/explain-mutants`, which has planted a mistake: `-` for the default, a variant, or a
/// part of its name.
pub fn explained(attention: &'static dyn Attention) {
    let stage = load(attention);
    if let Ok(word) = std::env::var("MUTANT_VARIANT") {
        println!("{}", first_failure(&stage, &word));
        return;
    }
    let mut wrong = Vec::new();
    for variant in stage.family_variants() {
        for case in cases_of(&stage, variant) {
            if is_without(&stage, variant, case.problem.dtype) {
                continue;
            }
            for row in [None, Some([0, case.problem.shape.heads_q - 1, 0])] {
                let result = investigate_case(&stage, variant, &case, row);
                if result.is_explained() || result.is_red() || !shows_all(&case.problem, &result) {
                    wrong.push(format!(
                        "{variant} {}, row {:?}: {:?}",
                        case.name, result.row, result.explained.deviation
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn investigate_case(
    stage: &LoadedStage,
    variant: &str,
    case: &Case,
    row: Option<[usize; 3]>,
) -> Investigated {
    let prepared = stage
        .prepare(variant, &case.problem)
        .expect("every stage takes every problem");
    investigate(&prepared, &case.inputs, Some(case.family), row)
        .unwrap_or_else(|error| panic!("{variant} {}: {error}", case.name))
}

/// Returns whether a kernel shows every key that the row sees and every column, and marks its
/// steps.
fn shows_all(problem: &Problem, result: &Investigated) -> bool {
    let mut steps = Vec::new();
    for chain in &result.explained.chains {
        steps.extend(&chain.steps);
    }
    let [sequence, _, query] = result.row;
    let mut visible = problem.visible(problem.shape.sequences()[sequence], query);
    let end = visible.end;
    let has_keys = visible.all(|key| {
        steps
            .iter()
            .any(|step| step.scores.contains_key(&(key as i64)))
    });
    let is_whole = steps.iter().all(|step| {
        let mut columns = 0..problem.shape.head_dim as i64;
        step.max.is_some()
            && step.sum.is_some()
            && columns.all(|column| step.output.contains_key(&column))
    });
    let has_probabilities = steps.iter().any(|step| !step.probabilities.is_empty());
    if steps.is_empty() {
        return has_keys;
    }
    has_keys && is_whole && has_probabilities && marks_steps(result, end)
}

/// Returns whether a kernel marks its steps and counts the keys that the row sees, up to `end`.
fn marks_steps(result: &Investigated, end: usize) -> bool {
    let observations = &result.traced.observations;
    for step in [Step::Mask, Step::Exponential, Step::Sum] {
        let mut passed = observations.ways.iter().flatten();
        if !passed.any(|place| place.does == Does::Step(step)) {
            return false;
        }
    }
    observations
        .visible
        .iter()
        .any(|(keys, _)| *keys as usize == end)
}

/// Describes the first case that fails, as fields between tabs: the case, the gate, the quantity,
/// and then the places to look at, each with its callers.
fn first_failure(stage: &LoadedStage, word: &str) -> String {
    let variant = variant_by_word(stage, word);
    for case in cases() {
        let Some(gate) = failing_gate(stage, variant, &case) else {
            continue;
        };
        let result = investigate_case(stage, variant, &case, None);
        let mut fields = vec![
            "EXPLAINED".to_string(),
            format!("{variant} {}", case.name),
            gate,
        ];
        if let Some(hazard) = result.traced.hazards.first() {
            fields.push(format!("hazard: {}", hazard.kind.label()));
            fields.push(hazard.missing.replace(['\n', '\t'], " "));
            for side in hazard.first.iter().chain(&hazard.second) {
                fields.push(call_chain(&side.places));
            }
        } else if let Some(deviation) = &result.explained.deviation {
            fields.push(deviation.quantity.to_string());
            for look in &deviation.look {
                fields.push(call_chain(&look.places));
            }
        } else {
            fields.push("nothing".to_string());
        }
        return fields.join("\t");
    }
    format!("SURVIVES\t{variant}")
}

/// Returns the variant of this name, else one that has it as a part; the default for `-`.
fn variant_by_word<'a>(stage: &'a LoadedStage, word: &str) -> &'a str {
    let variants = stage.variants();
    let exact = variants.iter().find(|name| **name == word);
    let partial = variants
        .iter()
        .find(|name| word != "-" && name.contains(word));
    exact
        .or(partial)
        .copied()
        .unwrap_or_else(|| stage.default_variant())
}

fn call_chain(places: &[Place]) -> String {
    let words: Vec<String> = places.iter().map(Place::to_string).collect();
    words.join(" < ")
}

/// Returns the first gate that fails, if one does.
fn failing_gate(stage: &LoadedStage, variant: &str, case: &Case) -> Option<String> {
    stage.prepare(variant, &case.problem).ok()?;
    let target = Target::Emulated {
        schedules: &[Schedule::InOrder, Schedule::Reversed],
        traced: &[Schedule::InOrder],
        suppress: None,
    };
    let failed = failures(check(stage, variant, &case.problem, case.family, target));
    failed.first().map(|result| result.gate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dtype_is_explained() {
        for dtype in Dtype::ALL {
            assert!(
                cases().iter().any(|case| case.problem.dtype == dtype),
                "{dtype}"
            );
        }
    }
}
