//! How cases are written: thousands of them, so that each takes some 100 bytes instead of 1,600.
//!
//! Consecutive cases of one problem and reference form a group, which states what they share once. A row of a group is
//! `[variants, gates, errors]`, where `variants` and `gates` are indices into tables, and variants with the same gates
//! and errors share a row. Two things are not written: the reason of a gate that passed, which the errors imply, and
//! digits of an error beyond [`DIGITS`]. Every other reason is there in full.
//!
//! Older records list each case as an object of its own; they are read too.

use super::{Correctness, Planted, VariantSummary, null_is_nan};
use crate::check::{CaseKey, CaseResult, Outcome, Source};
use crate::device::BackendKind;
use crate::gate::{EndToEnd, Errors};
use crate::problem::{Dtype, Mask, Shape};
use crate::reference::Probability;
use crate::suppression::Synchronisation;
use crate::verdict::{GateId, GateResult, Verdict};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::collections::HashMap;

/// Significant digits of an error in a record. Gates judge it before it is rounded.
pub const DIGITS: usize = 5;

/// [`Correctness`] as written.
#[derive(Serialize, Deserialize)]
struct Written<'a> {
    schema: u32,
    variants: Cow<'a, [VariantSummary]>,
    /// Stage and variant, which rows name by index.
    #[serde(default)]
    case_variants: Vec<(String, String)>,
    /// What gates say of a case, which rows name by index.
    #[serde(default)]
    case_gates: Vec<Vec<GateResult>>,
    cases: Vec<Entry>,
    omitted_cases: usize,
    planted: Cow<'a, Planted>,
    #[serde(default)]
    synchronisation: Cow<'a, Synchronisation>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
#[allow(clippy::large_enum_variant, reason = "nearly every entry is the large one")]
enum Entry {
    Group(Group),
    /// As older records have it.
    Case(CaseResult),
}

/// Cases of one problem that are judged by one reference, by ascending index of their variants.
#[derive(Serialize, Deserialize)]
struct Group {
    backend: BackendKind,
    shape_name: String,
    shape: Shape,
    dtype: Dtype,
    mask: Mask,
    source: Source,
    /// Absent where no case was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reference: Option<Compared>,
    rows: Vec<Row>,
}

/// What cases were compared with.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Compared {
    rows: usize,
    sampled: bool,
    probability: Probability,
    #[serde(deserialize_with = "null_is_nan")]
    plain_max_abs: f64,
    /// 0 in older records, as the two below and the last of [`Numbers`].
    #[serde(default, deserialize_with = "null_is_nan")]
    plain_rms_row_rel: f64,
    #[serde(default, deserialize_with = "null_is_nan")]
    plain_rows: f64,
    #[serde(default, deserialize_with = "null_is_nan")]
    largest_score: f64,
    #[serde(deserialize_with = "null_is_nan")]
    reference_max_abs: f64,
}

/// What came of some variants.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Row {
    Checked(Vec<usize>, usize, Numbers),
    Other {
        variants: Vec<usize>,
        #[serde(flatten)]
        outcome: Outcome,
    },
}

/// The rest of [`Errors`] and of [`EndToEnd`], in the order of their fields; last `rms_row_rel`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Numbers(
    #[serde(deserialize_with = "null_is_nan")] f64,
    [usize; 4],
    #[serde(deserialize_with = "null_is_nan")] f64,
    #[serde(deserialize_with = "null_is_nan")] f64,
    [usize; 3],
    #[serde(deserialize_with = "null_is_nan")] f64,
    [usize; 4],
    Option<[usize; 4]>,
    Option<EndNumbers>,
    #[serde(default, deserialize_with = "null_is_nan")] f64,
);

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct EndNumbers(
    #[serde(deserialize_with = "null_is_nan")] f64,
    [usize; 4],
    #[serde(deserialize_with = "null_is_nan")] f64,
    f64,
    bool,
);

impl Compared {
    fn of(errors: &Errors) -> Self {
        let Errors { rows, sampled, probability, .. } = *errors;
        Self {
            rows,
            sampled,
            probability,
            plain_max_abs: rounded(errors.plain_max_abs),
            plain_rms_row_rel: rounded(errors.plain_rms_row_rel),
            plain_rows: rounded(errors.plain_rows),
            largest_score: rounded(errors.largest_score),
            reference_max_abs: rounded(errors.reference_max_abs),
        }
    }
}

impl Numbers {
    fn of(errors: &Errors) -> Self {
        let end = errors.end_to_end.as_ref().map(|end| {
            EndNumbers(
                rounded(end.max_abs),
                end.max_abs_at,
                rounded(end.mean_abs),
                rounded(end.bad_share),
                end.meets_seeds,
            )
        });
        Self(
            rounded(errors.max_abs),
            errors.max_abs_at,
            rounded(errors.mean_abs),
            rounded(errors.max_row_rel),
            errors.max_row_rel_at,
            rounded(errors.allclose),
            errors.allclose_at,
            errors.nonzero_in_zero_row,
            end,
            rounded(errors.rms_row_rel),
        )
    }

    fn errors(self, compared: Compared) -> Errors {
        let Compared { rows, sampled, probability, .. } = compared;
        let Self(
            max_abs,
            max_abs_at,
            mean_abs,
            max_row_rel,
            max_row_rel_at,
            allclose,
            allclose_at,
            nonzero_in_zero_row,
            end,
            rms_row_rel,
        ) = self;
        let end_to_end = end.map(|EndNumbers(max_abs, max_abs_at, mean_abs, bad_share, meets_seeds)| EndToEnd {
            max_abs,
            max_abs_at,
            mean_abs,
            bad_share,
            meets_seeds,
        });
        Errors {
            rows,
            sampled,
            probability,
            max_abs,
            max_abs_at,
            mean_abs,
            max_row_rel,
            max_row_rel_at,
            rms_row_rel,
            allclose,
            allclose_at,
            nonzero_in_zero_row,
            plain_max_abs: compared.plain_max_abs,
            plain_rms_row_rel: compared.plain_rms_row_rel,
            plain_rows: compared.plain_rows,
            largest_score: compared.largest_score,
            reference_max_abs: compared.reference_max_abs,
            end_to_end,
        }
    }
}

/// `value` to [`DIGITS`] significant digits.
fn rounded(value: f64) -> f64 {
    // Powers of ten are exact up to 1e22, so that the quotient is the number nearest to its five digits. Nearly every
    // error is in this range, and a full run has 200,000 of them.
    let places = (DIGITS - 1) as f64 - value.abs().log10().floor();
    if (0.0..=22.0).contains(&places) {
        let scale = 10f64.powi(places as i32);
        return (value * scale).round() / scale;
    }
    format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value)
}

impl Group {
    fn new(key: &CaseKey) -> Self {
        let CaseKey { backend, shape_name, shape, dtype, mask, source, .. } = key.clone();
        Self { backend, shape_name, shape, dtype, mask, source, reference: None, rows: Vec::new() }
    }

    fn takes(&self, key: &CaseKey, compared: Option<Compared>) -> bool {
        (self.backend, &self.shape_name, self.shape, self.dtype, self.mask, &self.source)
            == (key.backend, &key.shape_name, key.shape, key.dtype, key.mask, &key.source)
            && (self.reference.is_none() || compared.is_none() || self.reference == compared)
    }

    fn add(&mut self, variant: usize, row: Row) {
        let same = self.rows.iter_mut().find_map(|other| match (other, &row) {
            (Row::Checked(variants, gates, numbers), Row::Checked(_, new_gates, new_numbers)) => {
                (gates == new_gates && numbers == new_numbers).then_some(variants)
            }
            (Row::Other { variants, outcome }, Row::Other { outcome: new, .. }) => (outcome == new).then_some(variants),
            _ => None,
        });
        match same {
            Some(variants) => variants.push(variant),
            None => self.rows.push(row),
        }
    }

    /// Its cases, in the order in which they ran.
    fn cases(self, names: &[(String, String)], gates: &[Vec<GateResult>]) -> Result<Vec<CaseResult>, String> {
        let mut cases: Vec<(usize, CaseResult)> = Vec::new();
        for row in self.rows {
            let (variants, outcome) = match row {
                Row::Other { variants, outcome } => (variants, outcome),
                Row::Checked(variants, index, numbers) => {
                    let compared = self.reference.ok_or("errors of cases without what they were compared with")?;
                    let gates = gates.get(index).ok_or(format!("gates {index} of {}", gates.len()))?.clone();
                    (variants, Outcome::Checked { errors: numbers.errors(compared), gates })
                }
            };
            for index in variants {
                let (stage, variant) = names.get(index).ok_or(format!("variant {index} of {}", names.len()))?.clone();
                let (shape_name, source) = (self.shape_name.clone(), self.source.clone());
                let Self { backend, shape, dtype, mask, .. } = self;
                let key = CaseKey { stage, variant, backend, shape_name, shape, dtype, mask, source };
                cases.push((index, CaseResult { key, outcome: outcome.clone() }));
            }
        }
        cases.sort_by_key(|(index, _)| *index);
        Ok(cases.into_iter().map(|(_, case)| case).collect())
    }
}

/// The two tables, while they grow.
#[derive(Default)]
struct Tables<'a> {
    variants: HashMap<(&'a str, &'a str), usize>,
    gates: HashMap<Vec<(GateId, Verdict, &'a str)>, usize>,
}

impl<'a> Tables<'a> {
    fn variant(&mut self, key: &'a CaseKey) -> usize {
        let next = self.variants.len();
        *self.variants.entry((&key.stage, &key.variant)).or_insert(next)
    }

    fn gates(&mut self, gates: &'a [GateResult]) -> usize {
        let next = self.gates.len();
        let reason = |gate: &'a GateResult| if gate.verdict == Verdict::Pass { "" } else { gate.reason.as_str() };
        let key = gates.iter().map(|gate| (gate.gate, gate.verdict, reason(gate))).collect();
        *self.gates.entry(key).or_insert(next)
    }

    fn variants_in_order(&self) -> Vec<(String, String)> {
        let mut names: Vec<_> = self.variants.iter().collect();
        names.sort_by_key(|(_, index)| **index);
        names.into_iter().map(|((stage, variant), _)| (stage.to_string(), variant.to_string())).collect()
    }

    fn gates_in_order(&self) -> Vec<Vec<GateResult>> {
        let mut lists: Vec<_> = self.gates.iter().collect();
        lists.sort_by_key(|(_, index)| **index);
        let result =
            |&(gate, verdict, reason): &(GateId, Verdict, &str)| GateResult { gate, verdict, reason: reason.into() };
        lists.into_iter().map(|(list, _)| list.iter().map(result).collect()).collect()
    }
}

fn groups<'a>(cases: &'a [CaseResult], tables: &mut Tables<'a>) -> Vec<Entry> {
    let mut groups: Vec<Group> = Vec::new();
    let mut last = 0;
    for CaseResult { key, outcome } in cases {
        let variant = tables.variant(key);
        let (compared, row) = match outcome {
            Outcome::Checked { errors, gates } => {
                (Some(Compared::of(errors)), Row::Checked(vec![variant], tables.gates(gates), Numbers::of(errors)))
            }
            other => (None, Row::Other { variants: vec![variant], outcome: other.clone() }),
        };
        // Rows are put in order by variant when they are read.
        if groups.last().is_none_or(|group| !group.takes(key, compared) || variant <= last) {
            groups.push(Group::new(key));
        }
        if let Some(group) = groups.last_mut() {
            group.reference = group.reference.or(compared);
            group.add(variant, row);
        }
        last = variant;
    }
    groups.into_iter().map(Entry::Group).collect()
}

impl Serialize for Correctness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tables = Tables::default();
        let cases = groups(&self.cases, &mut tables);
        let written = Written {
            schema: self.schema,
            variants: Cow::Borrowed(&self.variants),
            case_variants: tables.variants_in_order(),
            case_gates: tables.gates_in_order(),
            cases,
            omitted_cases: self.omitted_cases,
            planted: Cow::Borrowed(&self.planted),
            synchronisation: Cow::Borrowed(&self.synchronisation),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Correctness {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut cases = Vec::new();
        for entry in written.cases {
            match entry {
                Entry::Case(case) => cases.push(case),
                Entry::Group(group) => {
                    cases.extend(group.cases(&written.case_variants, &written.case_gates).map_err(de::Error::custom)?)
                }
            }
        }
        Ok(Self {
            schema: written.schema,
            variants: written.variants.into_owned(),
            cases,
            omitted_cases: written.omitted_cases,
            planted: written.planted.into_owned(),
            synchronisation: written.synchronisation.into_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
