//! Evidence claims: why a stage says that it is faster, as figures that anyone can check (gate E1).
//!
//! A stage states them as data beside its claims of speed, before anything is measured. All figures are of the claims'
//! problems: the mission shape, full mask, f16 and E4M3.

mod count;

pub use count::{Counting, count};
pub use emulator::trace::Counters;

pub use crate::metric::{Metric as Quantity, Source};

use crate::problem::Dtype;
use crate::stage::Base;
use serde::{Deserialize, Serialize};

/// Figures of one family of variants that must come out as predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EvidenceClaim {
    /// The family of this stage's variants that it speaks of: `cpasync`. Every one of them is judged.
    pub family: &'static str,
    /// What is looked at. Each is judged by itself.
    pub quantities: &'static [Quantity],
    /// What is predicted of each.
    pub relation: Relation<Base>,
    /// With which element types; each is judged by itself, E4M3 on the family's default and first variants.
    pub dtypes: &'static [Dtype],
    /// Why it must be so, as a phrase: `the same tiles are read, only earlier`.
    pub why: &'static str,
}

/// What is predicted of a quantity. `B` names the base: [`Base`] in a stage, owned strings in a record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "relation", rename_all = "snake_case")]
pub enum Relation<B> {
    /// `at_least * base <= value <= at_most * base`: for 0 both ends demand 0. Each variant is compared with the base
    /// variant of the same preset, which is what follows the family in its name; where no variant of the family has
    /// such a twin, the default variants of both families are compared (the stage's default, else the first).
    Ratio {
        /// What it is compared with.
        base: B,
        /// Lower end; equal to `at_most` for an exact ratio.
        at_least: f64,
        /// Upper end.
        at_most: f64,
    },
    /// `value >= bound`.
    AtLeast {
        /// The bound, in the quantity's unit.
        bound: f64,
    },
    /// `value <= bound`.
    AtMost {
        /// The bound, in the quantity's unit.
        bound: f64,
    },
}

impl<B> Relation<B> {
    /// The quantity does not change.
    pub const fn equal_to(base: B) -> Self {
        Relation::Ratio { base, at_least: 1.0, at_most: 1.0 }
    }

    /// The quantity is exactly `factor` times that of the base.
    pub const fn times(factor: f64, base: B) -> Self {
        Relation::Ratio { base, at_least: factor, at_most: factor }
    }

    /// Whether `value` is as predicted, beside the base's `base` where there is one. NaN never is, nor is a ratio
    /// without a base.
    pub fn holds(&self, value: f64, base: Option<f64>) -> bool {
        match self {
            Relation::Ratio { at_least, at_most, .. } => {
                base.is_some_and(|base| at_least * base <= value && value <= at_most * base)
            }
            Relation::AtLeast { bound } => value >= *bound,
            Relation::AtMost { bound } => value <= *bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Base = Base { stage: "stage0-scalar", family: "wmma-qk" };

    #[test]
    fn relations_hold_on_their_ends_and_not_beyond() {
        let halved = Relation::Ratio { base: BASE, at_least: 0.4, at_most: 0.5 };
        let table = [
            (Relation::equal_to(BASE), 7.0, Some(7.0), true),
            (Relation::equal_to(BASE), 8.0, Some(7.0), false),
            (Relation::equal_to(BASE), 6.0, Some(7.0), false),
            (Relation::equal_to(BASE), 0.0, Some(0.0), true),
            (Relation::equal_to(BASE), 1.0, Some(0.0), false),
            (Relation::equal_to(BASE), 7.0, None, false),
            (Relation::equal_to(BASE), f64::NAN, Some(f64::NAN), false),
            (Relation::times(2.0, BASE), 14.0, Some(7.0), true),
            (halved, 50.0, Some(100.0), true),
            (halved, 40.0, Some(100.0), true),
            (halved, 51.0, Some(100.0), false),
            (halved, 39.0, Some(100.0), false),
            (Relation::AtMost { bound: 0.05 }, 0.05, None, true),
            (Relation::AtMost { bound: 0.05 }, 0.051, None, false),
            (Relation::AtMost { bound: 0.05 }, f64::NAN, None, false),
            (Relation::AtLeast { bound: 3.0 }, 3.0, None, true),
            (Relation::AtLeast { bound: 3.0 }, 2.0, None, false),
            (Relation::AtLeast { bound: 3.0 }, f64::NAN, None, false),
        ];
        for (relation, value, base, expected) in table {
            assert_eq!(relation.holds(value, base), expected, "{relation:?}, {value}, {base:?}");
        }
    }
}
