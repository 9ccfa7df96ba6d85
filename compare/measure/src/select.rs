//! Resolves names on the command line to stages, variants, shapes and families; an unknown name is
//! answered with the nearest known one.

use clap::Args;
use common::inputs::Family;
use common::problem::{self, Dtype, Mask, Problem, ProblemError, SHAPES, Shape};
use results::table::Subject;
use results::table::session::{StageMeta, VariantMeta};
use std::str::FromStr;

/// The stages and variants that a command works on.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Chosen {
    /// Stages, by id or number [default: all]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// Variants by name [default: depends on the command]
    #[arg(long, value_delimiter = ',', value_name = "VARIANT,..")]
    pub variants: Vec<String>,
}

/// A variant that was chosen, with its stage.
pub type Picked<'a> = (&'a StageMeta, &'a VariantMeta);

/// The problems that a command works on: every combination of the given values, with the command's
/// defaults for the rest.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct Problems {
    /// Shapes by name (`compare show`) or as BATCHxHEADSxSEQxDIM [default: depends on the command]
    #[arg(long, value_delimiter = ',', value_name = "SHAPE,..", value_parser = shape)]
    pub shapes: Vec<Shape>,
    /// Element types: f16, e4m3, bf16 [default: depends on the command]
    #[arg(long, value_delimiter = ',', value_name = "DTYPE,..", value_parser = dtype)]
    pub dtypes: Vec<Dtype>,
    /// Masks: full, causal [default: depends on the command]
    #[arg(long, value_delimiter = ',', value_name = "MASK,..", value_parser = mask)]
    pub masks: Vec<Mask>,
}

/// An unknown name, a problem that no stage supports, or flags that leave nothing to run, with the
/// remedy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct SelectError(pub String);

impl From<ProblemError> for SelectError {
    fn from(error: ProblemError) -> Self {
        Self(error.to_string())
    }
}

/// The least similarity of a name that is suggested (Jaro-Winkler; 1 is equal).
const NEAR: f64 = 0.75;

/// The most names that a message lists in full; of more it lists the nearest [`SHOWN`].
const MOST_NAMES: usize = 16;

const SHOWN: usize = 6;

/// Makes the error for `text`, which is not one of the known `names`.
pub fn unknown<'a>(
    kind: &'static str,
    text: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> SelectError {
    let known: Vec<&str> = names.into_iter().collect();
    let likeness = |name: &str| strsim::jaro_winkler(&text.to_lowercase(), name);
    let mut nearest = known.clone();
    nearest.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
    let suggestion = match nearest.first() {
        Some(name) if likeness(name) >= NEAR => format!("; did you mean '{name}'?"),
        _ => String::new(),
    };
    let listed = if known.len() <= MOST_NAMES {
        known.join(", ")
    } else {
        format!(
            "{} and {} more (`compare show`)",
            nearest[..SHOWN].join(", "),
            known.len() - SHOWN
        )
    };
    SelectError(format!(
        "there is no {kind} '{text}'{suggestion}; known: {listed}"
    ))
}

fn find<T: Copy>(
    kind: &'static str,
    word: &str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
) -> Result<T, SelectError> {
    all.iter()
        .copied()
        .find(|value| name(value) == word)
        .ok_or_else(|| unknown(kind, word, all.iter().map(name)))
}

/// Returns the names that rows have of chosen variants.
pub fn subjects(picked: &[Picked<'_>]) -> impl Iterator<Item = Subject> {
    picked
        .iter()
        .map(|(stage, variant)| stage.subject(&variant.name))
}

impl Chosen {
    /// Returns the chosen variants of `all`, in the ladder's order; everything if nothing was
    /// named. Refuses a variant that no chosen stage has, or that the device cannot run.
    pub fn pick<'a>(&self, all: &'a [StageMeta]) -> Result<Vec<Picked<'a>>, SelectError> {
        let stages = stages(&self.stages, all)?;
        self.check_device(&stages)?;
        for name in &self.variants {
            if !has_variant(&stages, name) {
                return Err(missing_variant(name, &stages, all));
            }
        }
        let mut picked = Vec::new();
        for stage in stages {
            for variant in &stage.variants {
                if self.variants.is_empty() || self.takes_by_name(&variant.name) {
                    picked.push((stage, variant));
                }
            }
        }
        Ok(picked)
    }

    /// Refuses a named variant that the device cannot run.
    fn check_device(&self, stages: &[&StageMeta]) -> Result<(), SelectError> {
        for (variant, why) in stages.iter().flat_map(|stage| &stage.refused) {
            if self.takes_by_name(variant) && !has_variant(stages, variant) {
                let reason = format!("the device cannot run {variant}: {why}");
                return Err(SelectError(reason));
            }
        }
        Ok(())
    }

    /// Returns whether a variant was asked for by its name.
    pub fn takes_by_name(&self, variant: &str) -> bool {
        self.variants.iter().any(|name| name == variant)
    }
}

fn has_variant(stages: &[&StageMeta], name: &str) -> bool {
    stages.iter().any(|stage| stage.variant(name).is_some())
}

/// Makes the error for a variant that no chosen stage has.
fn missing_variant(name: &str, stages: &[&StageMeta], all: &[StageMeta]) -> SelectError {
    if let Some(other) = all.iter().find(|stage| stage.variant(name).is_some()) {
        let stage = &other.id;
        return SelectError(format!(
            "variant '{name}' is of {stage}, which --stages leaves out; add {stage} to --stages, \
             or leave --stages out"
        ));
    }
    let names = stages
        .iter()
        .flat_map(|stage| &stage.variants)
        .map(|variant| variant.name.as_str());
    unknown("variant", name, names)
}

impl Problems {
    /// Returns every combination, by shape, dtype and mask, with these defaults for the flags that
    /// were left out.
    pub fn or(&self, shapes: &[&str], dtypes: &[Dtype], masks: &[Mask]) -> Vec<Problem> {
        let mut chosen = self.shapes.clone();
        if chosen.is_empty() {
            for name in shapes {
                chosen.push(shape(name).expect("a default is a shape"));
            }
        }
        let mut problems = Vec::new();
        for shape in chosen {
            for &dtype in or_all(&self.dtypes, dtypes) {
                for &mask in or_all(&self.masks, masks) {
                    match Problem::new(shape, dtype, mask) {
                        // A cache of E4M3 is none under queries in E4M3.
                        Err(ProblemError::CacheDtype { .. }) => {}
                        problem => problems.push(problem.expect("chosen shapes are valid")),
                    }
                }
            }
        }
        problems
    }

    /// Returns whether the mask of a problem was given, or, without `--masks`, is a usual one.
    pub fn has_usual_mask(&self, problem: &Problem) -> bool {
        if self.masks.is_empty() {
            problem.has_usual_mask()
        } else {
            self.masks.contains(&problem.mask)
        }
    }

    /// Returns whether its element type and mask are among those given.
    pub fn include(&self, problem: &Problem) -> bool {
        or_all(&self.dtypes, &Dtype::ALL).contains(&problem.dtype)
            && or_all(&self.masks, &Mask::ALL).contains(&problem.mask)
    }
}

/// Returns what was chosen, or everything if nothing was.
pub fn or_all<'a, T>(chosen: &'a [T], all: &'a [T]) -> &'a [T] {
    if chosen.is_empty() { all } else { chosen }
}

/// Returns the stages that `words` name, all if there are none, in the ladder's order.
pub fn stages<'a>(
    words: &[String],
    all: &'a [StageMeta],
) -> Result<Vec<&'a StageMeta>, SelectError> {
    for word in words {
        stage(word, all)?;
    }
    Ok(all
        .iter()
        .filter(|stage| words.is_empty() || words.iter().any(|word| is_stage(word, &stage.id)))
        .collect())
}

/// Returns the stage that `word` names, by id or by number: `stage5-swizzle`, `5`.
pub fn stage<'a>(word: &str, all: &'a [StageMeta]) -> Result<&'a StageMeta, SelectError> {
    let named = all.iter().find(|stage| is_stage(word, &stage.id));
    named.ok_or_else(|| {
        let ids = all.iter().map(|stage| stage.id.as_str());
        unknown("stage", word, ids)
    })
}

fn is_stage(word: &str, id: &str) -> bool {
    id == word || id.starts_with(&format!("stage{word}-"))
}

/// Returns the element type that `word` names.
pub fn dtype(word: &str) -> Result<Dtype, SelectError> {
    find("dtype", word, &Dtype::ALL, |dtype| dtype.name())
}

/// Returns the mask that `word` names.
pub fn mask(word: &str) -> Result<Mask, SelectError> {
    find("mask", word, &Mask::ALL, |mask| mask.name())
}

/// Returns the input family that `word` names.
pub fn family(word: &str) -> Result<Family, SelectError> {
    find("family", word, &Family::ALL, |family| family.name())
}

/// Returns the shape that `word` names or spells out, if a stage can take it.
pub fn shape(word: &str) -> Result<Shape, SelectError> {
    let shape = match problem::parse_shape(word) {
        // A word that does not begin with a digit was meant as a name.
        Err(ProblemError::Syntax { .. }) if !word.starts_with(|c: char| c.is_ascii_digit()) => {
            return Err(unknown(
                "shape",
                word,
                SHAPES.iter().map(|named| named.name),
            ));
        }
        parsed => parsed?,
    };
    Problem::new(shape, Dtype::F16, Mask::Full)?;
    Ok(shape)
}

/// Reads a whole number that is not 0.
pub fn at_least_one<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, String> {
    match text.parse() {
        Ok(number) if number != N::default() => Ok(number),
        _ => Err("give a whole number, 1 or more".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Request;
    use crate::testing::{parsed, request};
    use results::judge::list::joined;
    use results::table::ProblemPlace;
    use results::table::session::by_id;
    use results::testing::ladder;
    use stages::Ladder;

    /// Returns the variants that a request chooses.
    fn picked(request: Request) -> String {
        let ladder = ladder();
        joined(subjects(&request.chosen.pick(&ladder).unwrap()), ", ")
    }

    /// Returns the reason why a request chooses nothing.
    fn refusal(request: Request) -> String {
        request.chosen.pick(&ladder()).unwrap_err().to_string()
    }

    /// The real stages on any device, and on one of sm_89.
    struct LimitedLadder {
        whole: Vec<StageMeta>,
        limited: Vec<StageMeta>,
    }

    impl LimitedLadder {
        fn new() -> Self {
            let mut ladder = Ladder::without_gpu("as if there were none").unwrap();
            let whole = ladder.builds().unwrap();
            ladder.limit("sm_89".parse().ok()).unwrap();
            let limited = ladder.builds().unwrap();
            Self { whole, limited }
        }
    }

    /// Returns whether a stage has no variant that the device runs: it is one for Hopper.
    fn is_for_hopper(limited: &StageMeta) -> bool {
        limited.variants.is_empty()
    }

    /// Returns whether a variant needs no more shared memory than a device of sm_89 has.
    fn fits(variant: &VariantMeta) -> bool {
        let mut kernels = variant.kernels.iter();
        kernels.all(|kernel| kernel.facts.dynamic_shared_bytes <= 99 << 10)
    }

    #[test]
    fn a_ladder_without_limits_refuses_nothing() {
        for stage in LimitedLadder::new().whole {
            assert!(stage.refused.is_empty(), "{}", stage.id);
        }
    }

    #[test]
    fn a_limited_ladder_is_without_what_the_device_refuses_and_says_so() {
        let ladder = LimitedLadder::new();
        for (whole, stage) in ladder.whole.iter().zip(&ladder.limited) {
            assert!(stage.variants.iter().all(fits), "{}", stage.id);
            let mut expected = Vec::new();
            for variant in &whole.variants {
                if is_for_hopper(stage) || !fits(variant) {
                    expected.push(&variant.name);
                }
            }
            let refused: Vec<&String> = stage.refused.iter().map(|(name, _)| name).collect();
            assert_eq!(refused, expected, "{}", stage.id);
            let reason = if is_for_hopper(stage) {
                " d64 needs sm_90a, "
            } else {
                " shared memory"
            };
            for (variant, why) in &stage.refused {
                assert!(why.contains(reason), "{variant}: {why}");
            }
        }
    }

    #[test]
    fn a_limited_ladder_has_both_sides_of_what_evidence_claims_compare() {
        let limited = LimitedLadder::new().limited;
        for stage in &limited {
            if is_for_hopper(stage) {
                continue;
            }
            for claim in &stage.claims {
                assert!(stage.default_of(&claim.family).is_some(), "{claim}");
                if let Some(base) = claim.relation.base() {
                    let base_stage = by_id(&limited, base.stage).expect("it is a stage");
                    assert!(base_stage.default_of(base.family).is_some(), "{base}");
                }
            }
        }
    }

    #[test]
    fn a_variant_that_the_device_cannot_run_is_answered_with_the_reason() {
        let limited = LimitedLadder::new().limited;
        let first = limited.iter().find_map(|stage| stage.refused.first());
        let (refused, _) = first.expect("some do not fit");
        let chosen = request().variants([refused.as_str()]).chosen;
        let error = chosen.pick(&limited).unwrap_err().to_string();
        let start = format!("the device cannot run {refused}: f16 d64 needs ");
        assert!(error.starts_with(&start), "{error}");
    }

    const ALL: &str = "stage0-scalar/scalar-32x64, stage0-scalar/wmma-qk-32x64, \
                       stage1-cpasync/cpasync-32x64";

    #[test]
    fn everything_is_chosen_if_nothing_is_named() {
        assert_eq!(picked(request().quick()), ALL);
    }

    #[test]
    fn stages_are_chosen_in_the_order_of_the_ladder() {
        let backwards = request().stages(["stage1-cpasync", "stage0-scalar"]);
        assert_eq!(picked(backwards), ALL);
    }

    #[test]
    fn a_stage_is_chosen_by_its_number() {
        let by_number = request().stages(["1"]);
        assert_eq!(picked(by_number), "stage1-cpasync/cpasync-32x64");
    }

    #[test]
    fn a_stage_that_is_named_twice_is_chosen_once() {
        let twice = request().stages(["1", "stage1-cpasync"]);
        assert_eq!(picked(twice), "stage1-cpasync/cpasync-32x64");
    }

    #[test]
    fn a_variant_is_chosen_by_its_name() {
        let by_name = request().variants(["wmma-qk-32x64"]);
        assert_eq!(picked(by_name), "stage0-scalar/wmma-qk-32x64");
    }

    #[test]
    fn a_variant_of_a_chosen_stage_is_chosen() {
        let of_stage = request().stages(["1"]).variants(["cpasync-32x64"]);
        assert_eq!(picked(of_stage), "stage1-cpasync/cpasync-32x64");
    }

    #[test]
    fn an_unknown_stage_is_answered_with_the_nearest() {
        assert_eq!(
            refusal(request().stages(["stage0-scaler"])),
            "there is no stage 'stage0-scaler'; did you mean 'stage0-scalar'?; known: \
             stage0-scalar, stage1-cpasync"
        );
        assert_eq!(
            refusal(request().stages(["stage1"])),
            "there is no stage 'stage1'; did you mean 'stage1-cpasync'?; known: \
             stage0-scalar, stage1-cpasync"
        );
    }

    #[test]
    fn an_unknown_stage_that_is_like_none_is_answered_with_the_known_ones() {
        assert_eq!(
            refusal(request().stages(["7"])),
            "there is no stage '7'; known: stage0-scalar, stage1-cpasync"
        );
    }

    #[test]
    fn a_stage_without_a_name_is_answered_with_the_known_ones() {
        assert_eq!(
            refusal(parsed(&["--stages="])),
            "there is no stage ''; known: stage0-scalar, stage1-cpasync"
        );
    }

    #[test]
    fn a_variant_that_no_stage_has_is_answered_with_the_nearest() {
        assert_eq!(
            refusal(request().variants(["wmma-qk-32x46"])),
            "there is no variant 'wmma-qk-32x46'; did you mean 'wmma-qk-32x64'?; known: \
             scalar-32x64, wmma-qk-32x64, cpasync-32x64"
        );
    }

    #[test]
    fn a_variant_that_no_chosen_stage_has_is_answered_with_what_to_do() {
        assert_eq!(
            refusal(request().stages(["0"]).variants(["cpasync-32x64"])),
            "variant 'cpasync-32x64' is of stage1-cpasync, which --stages leaves out; add \
             stage1-cpasync to --stages, or leave --stages out"
        );
    }

    #[test]
    fn an_unknown_type_mask_shape_or_family_is_answered_with_the_nearest() {
        let no_dtype = |word: &str| dtype(word).unwrap_err().to_string();
        assert_eq!(
            no_dtype("bfloat16"),
            "there is no dtype 'bfloat16'; known: f16, e4m3, bf16"
        );
        assert_eq!(
            no_dtype("fp16"),
            "there is no dtype 'fp16'; did you mean 'f16'?; known: f16, e4m3, bf16"
        );
        assert_eq!(
            mask("zzz").unwrap_err().to_string(),
            "there is no mask 'zzz'; known: full, causal"
        );
        assert_eq!(mask("causal"), Ok(Mask::Causal));
        let nearest = [shape("mision").err(), family("outlier").err()].map(Option::unwrap);
        assert!(
            nearest[0].0.contains("mean 'mission'") && nearest[1].0.contains("mean 'outliers'")
        );
    }

    #[test]
    fn problems_are_every_combination_in_order() {
        let chosen = |problems: Problems| -> Vec<String> {
            let all = problems.or(&["small", "1x1x17x128"], &Dtype::ALL, &[Mask::Causal]);
            all.iter()
                .map(|problem| ProblemPlace::of(problem).to_string())
                .collect()
        };
        let all = [
            "small f16 causal",
            "small e4m3 causal",
            "small bf16 causal",
            "1x1x17x128 f16 causal",
            "1x1x17x128 e4m3 causal",
            "1x1x17x128 bf16 causal",
        ];
        assert_eq!(chosen(Problems::default()), all);
        let shapes = vec![shape("mission").unwrap()];
        assert_eq!(
            chosen(Problems {
                shapes,
                dtypes: vec![Dtype::F16],
                masks: vec![Mask::Full]
            }),
            ["mission f16 full"]
        );
    }

    #[test]
    fn of_many_names_the_nearest_are_shown() {
        let names: Vec<String> = (0..37).map(|n| format!("variant-{n}")).collect();
        let text = unknown("variant", "variant-36x", names.iter().map(String::as_str)).to_string();
        assert!(
            text.contains("did you mean 'variant-36'?")
                && text.ends_with(" and 31 more (`compare show`)"),
            "{text}"
        );
        assert_eq!(text.matches(", ").count(), 5, "{text}");
    }

    #[test]
    fn shapes_that_no_stage_takes_are_refused_with_the_rule() {
        let cause = |word: &str| shape(word).unwrap_err().to_string();
        assert!(cause("1x8x512x36").contains("head_dim = 36"));
        assert!(cause("1x8:3x512x64").contains("heads_kv = 3 does not divide heads_q = 8"));
        assert!(cause("1x8x0x64").contains("seq_q is 0"));
        assert!(cause("1x8x512").contains("expected BATCHxHEADSxSEQxDIM"));
    }
}
