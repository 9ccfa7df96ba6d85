//! A case as reports print it: SHAPE DTYPE MASK FAMILY:SEED.

use common::inputs::Family;
use common::problem::Problem;
use measure::select::{SelectError, dtype, family, mask, shape};

/// A problem and its generated inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub problem: Problem,
    pub family: Family,
    pub seed: u64,
}

/// Parses `mission f16 full normal:0`.
pub fn case(text: &str) -> Result<Case, SelectError> {
    let malformed = || {
        SelectError("give SHAPE DTYPE MASK FAMILY:SEED, such as 'mission f16 full normal:0'".into())
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [shape_name, dtype_name, mask_name, inputs] = words[..] else {
        return Err(malformed());
    };
    let problem = Problem::new(shape(shape_name)?, dtype(dtype_name)?, mask(mask_name)?)?;
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
            "mission f16 full normal:x",
        ] {
            assert!(case_error(malformed).contains("FAMILY:SEED"), "{malformed}");
        }
    }
}
