//! A case as reports print it: SHAPE DTYPE MASK FAMILY:SEED [scale=S].

use common::inputs::Family;
use common::problem::Problem;
use measure::select::{SelectError, dtype, family, mask, shape};
use std::fmt;

/// A problem and its generated inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub problem: Problem,
    pub family: Family,
    pub seed: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            shape, dtype, mask, ..
        } = self.problem;
        let (name, scale) = (shape.name(), self.problem.scale_option());
        let (family, seed) = (self.family, self.seed);
        write!(f, "{name} {dtype} {mask} {family}:{seed}{scale}")
    }
}

/// Parses `mission f16 full normal:0`, or the same with the softmax scale behind it: `scale=0.5`.
pub fn case(text: &str) -> Result<Case, SelectError> {
    let malformed = || {
        SelectError(
            "give SHAPE DTYPE MASK FAMILY:SEED [scale=S], such as 'mission f16 full normal:0'"
                .into(),
        )
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [shape_name, dtype_name, mask_name, inputs, ref options @ ..] = words[..] else {
        return Err(malformed());
    };
    let mut problem = Problem::new(shape(shape_name)?, dtype(dtype_name)?, mask(mask_name)?)?;
    match options {
        [] => (),
        [option] => {
            let number = option.strip_prefix("scale=").ok_or_else(malformed)?;
            let scale = number.parse().map_err(|_| malformed())?;
            problem = Problem::with_scale(problem.shape, problem.dtype, problem.mask, scale)?;
        }
        _ => return Err(malformed()),
    }
    let (family_name, seed_text) = inputs.split_once(':').ok_or_else(malformed)?;
    let seed = seed_text.parse().map_err(|_| malformed())?;
    let family = family(family_name)?;
    if !Family::for_dtype(problem.dtype).contains(&family) {
        return Err(SelectError(format!(
            "family '{family}' is of another element type than {dtype_name}"
        )));
    }
    Ok(Case {
        problem,
        family,
        seed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::problem::{Dtype, Mask};

    #[test]
    fn a_case_is_named_as_reports_name_it() {
        let mission = shape("mission").unwrap();
        let expected = Case {
            problem: Problem::new(mission, Dtype::E4m3, Mask::Causal).unwrap(),
            family: Family::Sink,
            seed: 7,
        };
        assert_eq!(case("mission e4m3 causal sink:7").unwrap(), expected);
    }

    #[test]
    fn a_scale_that_is_not_the_default_is_a_part_of_the_name() {
        let text = "1x2x1:58x128+window=0:*+sinks bf16 full all-negative:199 scale=0.5";
        let scaled = case(text).unwrap();
        assert_eq!(scaled.problem.softmax_scale, 0.5);
        assert_eq!(scaled.to_string(), text);
        let default = "1x2x64x64 f16 full normal:0";
        assert_eq!(case(default).unwrap().to_string(), default);
    }

    fn case_error(text: &str) -> String {
        case(text).unwrap_err().to_string()
    }

    #[test]
    fn a_word_that_is_no_name_is_answered_with_the_nearest() {
        assert!(case_error("mision f16 full normal:0").contains("did you mean 'mission'?"));
        assert!(case_error("mission f61 full normal:0").contains("there is no dtype 'f61'"));
        assert!(case_error("mission f16 full norml:0").contains("did you mean 'normal'?"));
    }

    #[test]
    fn a_family_of_another_element_type_is_refused() {
        assert_eq!(
            case_error("mission f16 full wide-range:0"),
            "family 'wide-range' is of another element type than f16"
        );
    }

    #[test]
    fn a_case_that_is_malformed_is_answered_with_its_form() {
        for malformed in [
            "mission f16 full",
            "mission f16 full 0",
            "mission f16 full normal:0 x",
            "mission f16 full normal:0 scale=x",
            "mission f16 full normal:0 scale=1 x",
            "mission f16 full normal:x",
        ] {
            assert!(case_error(malformed).contains("FAMILY:SEED"), "{malformed}");
        }
    }
}
