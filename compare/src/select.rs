//! From words on the command line to stages, variants, shapes and families; a word that names nothing is answered with
//! the nearest one that does.

use crate::measure::builds::StageBuild;
use crate::record::meta::Refusal;
use common::inputs::Family;
use common::problem::{self, Dtype, Mask, Problem, ProblemError, Shape, named_shapes};

/// A word that names nothing, or a problem that does not exist.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// Nothing of this name.
    #[error("there is no {kind} '{text}'{}; known: {known}", suggestion.as_ref().map(|name| format!("; did you mean '{name}'?")).unwrap_or_default())]
    Unknown {
        /// What was looked for: `stage`.
        kind: &'static str,
        /// The word as given.
        text: String,
        /// The nearest name, where one is near.
        suggestion: Option<String>,
        /// All names, or the nearest of many.
        known: String,
    },
    /// A variant of a stage that was not chosen.
    #[error(
        "variant '{variant}' is of {stage}, which --stages leaves out; add {stage} to --stages, or leave --stages out"
    )]
    OtherStage {
        /// The variant.
        variant: String,
        /// Its stage.
        stage: String,
    },
    /// A type that attention kernels know and these do not.
    #[error("BF16 is not supported yet; known: f16, e4m3")]
    Bf16,
    /// A shape that no stage takes.
    #[error("--shapes {text}")]
    Shape {
        /// The word as given.
        text: String,
        /// Why.
        #[source]
        source: ProblemError,
    },
    /// The device cannot run a variant that was asked for by name.
    #[error("the device cannot run {0}")]
    Refused(Refusal),
    /// Nothing is left to run.
    #[error("no case is left to run: {reason}")]
    Nothing {
        /// Which flags exclude each other.
        reason: String,
    },
}

/// Two names are near when they agree at least this much (Jaro-Winkler; 1 is equal).
const NEAR: f64 = 0.75;

/// So many names a message lists; of more, the nearest [`SHOWN`].
const MOST_NAMES: usize = 16;

/// Names that stand for many.
const SHOWN: usize = 6;

/// The error for `text` that is none of `known`.
pub fn unknown<'a>(kind: &'static str, text: &str, known: impl IntoIterator<Item = &'a str>) -> SelectError {
    let known: Vec<&str> = known.into_iter().collect();
    let likeness = |name: &str| strsim::jaro_winkler(&text.to_lowercase(), name);
    let mut nearest = known.clone();
    nearest.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
    let suggestion = nearest.first().filter(|name| likeness(name) >= NEAR).map(|name| name.to_string());
    let known = match known.len() {
        0..=MOST_NAMES => known.join(", "),
        all => format!("{} and {} more (`compare list`)", nearest[..SHOWN].join(", "), all - SHOWN),
    };
    SelectError::Unknown { kind, text: text.to_string(), suggestion, known }
}

fn pick<T: Copy>(kind: &'static str, words: &[String], all: &[(&str, T)]) -> Result<Vec<T>, SelectError> {
    words
        .iter()
        .map(|word| {
            let found = all.iter().find(|(name, _)| name == word).map(|(_, value)| *value);
            found.ok_or_else(|| unknown(kind, word, all.iter().map(|(name, _)| *name)))
        })
        .collect()
}

/// The stages that `words` name, all if there are none, in the ladder's order.
pub fn stages<'a>(words: &[String], all: &'a [StageBuild]) -> Result<Vec<&'a StageBuild>, SelectError> {
    words.iter().try_for_each(|word| stage(word, all).map(drop))?;
    Ok(all.iter().filter(|stage| words.is_empty() || words.iter().any(|word| is_stage(word, &stage.id))).collect())
}

/// The stage that `word` names, by id or by number: `stage5-swizzle`, `5`.
pub fn stage<'a>(word: &str, all: &'a [StageBuild]) -> Result<&'a StageBuild, SelectError> {
    let found = all.iter().find(|stage| is_stage(word, &stage.id));
    found.ok_or_else(|| unknown("stage", word, all.iter().map(|stage| stage.id.as_str())))
}

/// Whether `word` names the stage `id`, by id or by number.
pub fn is_stage(word: &str, id: &str) -> bool {
    id == word || id.starts_with(&format!("stage{word}-"))
}

/// Refuses a variant that none of `stages`, the chosen ones of `all`, has, or none that the device can run.
pub fn variants(words: &[String], stages: &[&StageBuild], all: &[StageBuild]) -> Result<(), SelectError> {
    let has = |name: &str| stages.iter().any(|stage| stage.variant(name).is_some());
    let mut refused = stages.iter().flat_map(|stage| &stage.refused);
    if let Some(refusal) = refused.find(|refusal| words.contains(&refusal.variant) && !has(&refusal.variant)) {
        return Err(SelectError::Refused(refusal.clone()));
    }
    for variant in words.iter().filter(|word| !has(word)) {
        if let Some(other) = all.iter().find(|stage| stage.variant(variant).is_some()) {
            return Err(SelectError::OtherStage { variant: variant.clone(), stage: other.id.clone() });
        }
    }
    let names = stages.iter().flat_map(|stage| &stage.variants).map(|variant| (variant.name.as_str(), ()));
    pick("variant", words, &names.collect::<Vec<_>>()).map(|_| ())
}

/// The dtypes that `words` name.
pub fn dtypes(words: &[String]) -> Result<Vec<Dtype>, SelectError> {
    if words.iter().any(|word| ["bf16", "bfloat16"].contains(&word.to_lowercase().as_str())) {
        return Err(SelectError::Bf16);
    }
    pick("dtype", words, &Dtype::ALL.map(|dtype| (dtype.name(), dtype)))
}

/// The masks that `words` name.
pub fn masks(words: &[String]) -> Result<Vec<Mask>, SelectError> {
    pick("mask", words, &Mask::ALL.map(|mask| (mask.name(), mask)))
}

/// The families that `words` name.
pub fn families(words: &[String]) -> Result<Vec<Family>, SelectError> {
    let all: Vec<(&str, Family)> = Family::ALL.iter().map(|family| (family.name(), *family)).collect();
    pick("family", words, &all)
}

/// The shapes that `words` name or spell out, each one that a stage can take.
pub fn shapes(words: &[String]) -> Result<Vec<(String, Shape)>, SelectError> {
    words.iter().map(|word| shape(word)).collect()
}

fn shape(word: &str) -> Result<(String, Shape), SelectError> {
    let invalid = |source| SelectError::Shape { text: word.to_string(), source };
    let (name, shape) = match problem::parse_shape(word) {
        // A word without a digit in front was meant as a name.
        Err(ProblemError::Syntax { .. }) if !word.starts_with(|c: char| c.is_ascii_digit()) => {
            return Err(unknown("shape", word, named_shapes().map(|named| named.name)));
        }
        parsed => parsed.map_err(invalid)?,
    };
    Problem::new(shape, Dtype::F16, Mask::Full).map_err(invalid)?;
    Ok((name, shape))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::builds;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn names_are_found_in_the_order_of_the_builds() {
        let all = builds();
        let ids = |list: &[&str]| {
            stages(&words(list), &all).unwrap().iter().map(|stage| stage.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[]), ["stage0-scalar", "stage1-cpasync"]);
        assert_eq!(ids(&["stage1-cpasync", "stage0-scalar"]), ["stage0-scalar", "stage1-cpasync"]);
        assert_eq!((ids(&["1"]), ids(&["1", "stage0-scalar"]).len()), (vec!["stage1-cpasync".to_string()], 2));
        assert_eq!(families(&words(&["large", "sink"])).unwrap(), [Family::Large, Family::Sink]);
    }

    #[test]
    fn one_stage_is_named_by_id_or_number() {
        let all = builds();
        for word in ["stage1-cpasync", "1"] {
            assert_eq!(stage(word, &all).unwrap().id, "stage1-cpasync", "{word}");
        }
        for word in ["7", "", "stage1"] {
            assert!(matches!(stage(word, &all), Err(SelectError::Unknown { .. })), "{word}");
        }
    }

    #[test]
    fn what_does_not_exist_is_answered_with_the_nearest() {
        let all = builds();
        let chosen = stages(&[], &all).unwrap();
        let message = |error: SelectError| error.to_string();
        assert_eq!(
            message(stages(&words(&["stage0-scaler"]), &all).unwrap_err()),
            "there is no stage 'stage0-scaler'; did you mean 'stage0-scalar'?; known: stage0-scalar, stage1-cpasync"
        );
        let unknown_variant = variants(&words(&["wmma-qk-32x46"]), &chosen, &all).unwrap_err();
        assert!(message(unknown_variant).contains("mean 'wmma-qk-32x64'"));
        let first = stages(&words(&["0"]), &all).unwrap();
        assert_eq!(
            message(variants(&words(&["cpasync-32x64"]), &first, &all).unwrap_err()),
            "variant 'cpasync-32x64' is of stage1-cpasync, which --stages leaves out; add stage1-cpasync to --stages, or leave \
             --stages out"
        );
        for word in ["bf16", "BFloat16"] {
            assert_eq!(message(dtypes(&words(&[word])).unwrap_err()), "BF16 is not supported yet; known: f16, e4m3");
        }
        assert!(message(shapes(&words(&["mision"])).unwrap_err()).contains("mean 'mission'"));
        assert!(message(families(&words(&["outlier"])).unwrap_err()).contains("mean 'outliers'"));
        assert!(message(dtypes(&words(&["fp16"])).unwrap_err()).contains("mean 'f16'"));
        assert!(!message(masks(&words(&["zzz"])).unwrap_err()).contains("did you mean"));
    }

    #[test]
    fn of_many_names_the_nearest_are_shown() {
        let names: Vec<String> = (0..37).map(|n| format!("variant-{n}")).collect();
        let text = unknown("variant", "variant-36x", names.iter().map(String::as_str)).to_string();
        assert!(
            text.contains("did you mean 'variant-36'?") && text.ends_with(" and 31 more (`compare list`)"),
            "{text}"
        );
        assert_eq!(text.matches(", ").count(), 5, "{text}");
    }

    #[test]
    fn shapes_that_no_stage_takes_are_refused_with_the_rule() {
        let cause = |word: &str| match shapes(&words(&[word])).unwrap_err() {
            SelectError::Shape { source, .. } => source.to_string(),
            other => panic!("{other}"),
        };
        assert!(cause("1x8x512x96").contains("head_dim = 96"));
        assert!(cause("1x8:3x512x64").contains("heads_kv = 3 does not divide heads_q = 8"));
        assert!(cause("1x8x0x64").contains("seq_q is 0"));
        assert!(cause("1x8x512").contains("expected BATCHxHEADSxSEQxDIM"));
    }
}
