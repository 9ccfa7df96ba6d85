//! Measures an output's errors.

use super::{
    C2_OUTPUT_ULPS, C2_PLAIN_FACTOR, C2_ROWS_FACTOR, C2_ROWS_NOISE, C3_ROW, C3_ROW_BF16,
    C3_ROW_E4M3_P, C4_E4M3_BAD, C4_E4M3_BAD_SHARE, C4Tolerance, Evidence, SCORE_ROUNDING,
    SEEDS_MAX, SEEDS_MEAN, c3_floor,
};
use crate::format::Format;
use crate::reference::{Probability, row_index};
use std::borrow::Cow;

/// The errors of an output. Every gate fails NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    pub rows: usize,
    /// Whether the rows are a sample.
    pub sampled: bool,
    /// The type of P of the same-precision baseline, which the kernel declares.
    pub probability: Probability,
    pub output: Format,
    pub max_abs: f64,
    /// `[b, h, s, d]`.
    pub max_abs_at: [usize; 4],
    pub mean_abs: f64,
    /// Largest `|o - r| / max(|r|, floor)` of a row, in the 2-norm; the floor is [`c3_floor`].
    pub max_row_rel: f64,
    /// `[b, h, s]`.
    pub max_row_rel_at: [usize; 3],
    pub rms_row_rel: f64,
    /// Largest `|o - r| / (atol + rtol * |r|)` of gate C4: allclose holds up to 1.
    pub allclose: f64,
    /// `[b, h, s, d]`.
    pub allclose_at: [usize; 4],
    /// The first such element.
    pub nonzero_in_zero_row: Option<[usize; 4]>,
    pub baseline_max_abs: f64,
    pub baseline_rms_row_rel: f64,
    /// The rows in effect in that mean: the square of the sum of squared errors over the sum of
    /// their squares. Exact rows (one key, or one that wins) do not count.
    pub baseline_rows: f64,
    /// [`Reference::largest_score`](crate::reference::Reference::largest_score).
    pub largest_score: f64,
    pub reference_max_abs: f64,
    /// The errors from the values before rounding to E4M3; `None` for others and for real tensors.
    pub end_to_end: Option<EndToEnd>,
}

/// One row of an output beside its reference.
struct Row<'a> {
    index: [usize; 3],
    output: &'a [f32],
    exact: &'a [f64],
    baseline: &'a [f32],
    value_rms: f64,
}

/// The sums and the worst values of all rows so far.
struct Totals {
    max_abs: Worst<[usize; 4]>,
    allclose: Worst<[usize; 4]>,
    max_row_rel: Worst<[usize; 3]>,
    nonzero_in_zero_row: Option<[usize; 4]>,
    abs: f64,
    row_squares: f64,
    baseline_row_squares: f64,
    baseline_row_fourths: f64,
}

impl Totals {
    fn new() -> Self {
        Self {
            max_abs: Worst::new([0; 4]),
            allclose: Worst::new([0; 4]),
            max_row_rel: Worst::new([0; 3]),
            nonzero_in_zero_row: None,
            abs: 0.0,
            row_squares: 0.0,
            baseline_row_squares: 0.0,
            baseline_row_fourths: 0.0,
        }
    }

    /// Adds a row, whose norm counts as at least `floor`.
    fn add(&mut self, row: &Row<'_>, format: Format, floor: f64) {
        let [b, h, s] = row.index;
        let (mut error_square, mut norm_square) = (0.0, 0.0);
        let mut baseline_square = 0.0;
        let tolerance = C4Tolerance::new(format, row.value_rms);
        for (d, &exact) in row.exact.iter().enumerate() {
            let error = (f64::from(row.output[d]) - exact).abs();
            self.max_abs.offer(error, [b, h, s, d]);
            self.allclose
                .offer(error / tolerance.at(exact), [b, h, s, d]);
            baseline_square += (f64::from(row.baseline[d]) - exact).powi(2);
            self.abs += error;
            error_square += error * error;
            norm_square += exact * exact;
        }
        let norm = norm_square.sqrt().max(floor);
        self.max_row_rel
            .offer(error_square.sqrt() / norm, row.index);
        self.row_squares += error_square / (norm * norm);
        self.baseline_row_squares += baseline_square / (norm * norm);
        self.baseline_row_fourths += (baseline_square / (norm * norm)).powi(2);
        if norm_square == 0.0 && self.nonzero_in_zero_row.is_none() {
            // NaN is not zero; -0 is.
            let nonzero = row.output.iter().position(|&element| element != 0.0);
            self.nonzero_in_zero_row = nonzero.map(|d| [b, h, s, d]);
        }
    }
}

impl Errors {
    /// Measures the rows of the reference. An output of the wrong length measures NaN.
    ///
    /// # Panics
    ///
    /// If the reference lacks something of a row: what is not there would be off by nothing.
    pub fn measure(evidence: &Evidence<'_>) -> Self {
        let Evidence {
            problem, reference, ..
        } = *evidence;
        let dim = problem.shape.head_dim;
        let rows = reference.rows.len();
        assert_eq!(
            [
                reference.output.len(),
                reference.baseline.len(),
                reference.value_rms.len() * dim
            ],
            [rows * dim; 3],
            "a reference has output, baseline and size of V for each of its {rows} rows"
        );
        let output = values(evidence);
        let format = problem.dtype.output();
        let mut totals = Totals::new();
        for (number, &dense_row) in reference.rows.iter().enumerate() {
            let row = Row {
                index: row_index(problem, dense_row),
                output: &output[dense_row * dim..][..dim],
                exact: &reference.output[number * dim..][..dim],
                baseline: &reference.baseline[number * dim..][..dim],
                value_rms: reference.value_rms[number],
            };
            totals.add(&row, format, c3_floor(problem));
        }
        let mut baseline_max_abs = Worst::new(());
        let mut reference_max_abs = Worst::new(());
        for (&baseline, exact) in reference.baseline.iter().zip(&reference.output) {
            baseline_max_abs.offer((f64::from(baseline) - exact).abs(), ());
            reference_max_abs.offer(exact.abs(), ());
        }
        let rms = |squares: f64| (squares / rows as f64).sqrt();
        let baseline_row_fourths = totals.baseline_row_fourths.max(f64::MIN_POSITIVE);
        Self {
            rows,
            sampled: reference.sampled,
            probability: reference.probability,
            output: format,
            max_abs: totals.max_abs.value,
            max_abs_at: totals.max_abs.at,
            mean_abs: totals.abs / (rows * dim) as f64,
            max_row_rel: totals.max_row_rel.value,
            max_row_rel_at: totals.max_row_rel.at,
            rms_row_rel: rms(totals.row_squares),
            allclose: totals.allclose.value,
            allclose_at: totals.allclose.at,
            nonzero_in_zero_row: totals.nonzero_in_zero_row,
            baseline_max_abs: baseline_max_abs.value,
            baseline_rms_row_rel: rms(totals.baseline_row_squares),
            baseline_rows: totals.baseline_row_squares.powi(2) / baseline_row_fourths,
            largest_score: reference.largest_score,
            reference_max_abs: reference_max_abs.value,
            end_to_end: EndToEnd::measure(evidence),
        }
    }

    pub fn c2_bound(&self) -> f64 {
        C2_PLAIN_FACTOR * self.baseline_max_abs
            + C2_OUTPUT_ULPS * self.output.ulp(self.reference_max_abs)
    }

    pub fn c2_rows_bound(&self) -> f64 {
        let factor = C2_ROWS_FACTOR + C2_ROWS_NOISE / self.baseline_rows.max(1.0);
        factor * self.baseline_rms_row_rel + SCORE_ROUNDING * self.largest_score
    }

    pub fn c3_bound(&self) -> f64 {
        let bound = match (self.probability, self.output) {
            (Probability::E4m3, _) => C3_ROW_E4M3_P,
            (Probability::Bf16, _) | (_, Format::Bf16) => C3_ROW_BF16,
            (Probability::F32 | Probability::F16, Format::F16) => C3_ROW,
        };
        bound + SCORE_ROUNDING * self.largest_score
    }
}

/// The errors of an E4M3 output from the values before rounding.
#[derive(Clone, Debug, PartialEq)]
pub struct EndToEnd {
    pub max_abs: f64,
    /// `[b, h, s, d]`.
    pub max_abs_at: [usize; 4],
    pub mean_abs: f64,
    /// The share of elements that are off by more than [`C4_E4M3_BAD`].
    pub bad_share: f64,
    /// Whether max <= 0.06, mean <= 0.02 and bad share <= 1 %: the documents' figures for a linear
    /// codec.
    pub meets_seeds: bool,
}

impl EndToEnd {
    fn measure(evidence: &Evidence<'_>) -> Option<Self> {
        let Evidence {
            problem, reference, ..
        } = *evidence;
        let dim = problem.shape.head_dim;
        let output = values(evidence);
        let mut max_abs = Worst::new([0; 4]);
        let (mut sum, mut bad) = (0.0, 0usize);
        let unquantised = reference.unquantised.as_ref()?;
        let exact_rows = unquantised.chunks_exact(dim);
        for (&row, exact_row) in reference.rows.iter().zip(exact_rows) {
            let [b, h, s] = row_index(problem, row);
            for (d, &exact) in exact_row.iter().enumerate() {
                let error = (f64::from(output[row * dim + d]) - exact).abs();
                max_abs.offer(error, [b, h, s, d]);
                sum += error;
                // NaN is bad.
                if error > C4_E4M3_BAD || error.is_nan() {
                    bad += 1;
                }
            }
        }
        let elements = unquantised.len() as f64;
        let (mean_abs, bad_share) = (sum / elements, bad as f64 / elements);
        Some(Self {
            max_abs: max_abs.value,
            max_abs_at: max_abs.at,
            mean_abs,
            bad_share,
            meets_seeds: max_abs.value <= SEEDS_MAX
                && mean_abs <= SEEDS_MEAN
                && bad_share <= C4_E4M3_BAD_SHARE,
        })
    }
}

/// Returns the output, or NaN if it has the wrong length.
fn values<'a>(evidence: &Evidence<'a>) -> Cow<'a, [f32]> {
    let expected = evidence.problem.shape.q_extents().iter().product();
    if evidence.output.len() == expected {
        Cow::Borrowed(evidence.output)
    } else {
        Cow::Owned(vec![f32::NAN; expected])
    }
}

/// Returns whether a value is larger than the worst, or NaN where the worst is a number.
pub fn is_worse(worst: f64, value: f64) -> bool {
    !worst.is_nan() && (value > worst || value.is_nan())
}

/// The largest value and its place; the first NaN beats everything.
pub(super) struct Worst<At> {
    pub value: f64,
    pub at: At,
}

impl<At> Worst<At> {
    pub fn new(at: At) -> Self {
        Self { value: 0.0, at }
    }

    pub fn offer(&mut self, value: f64, at: At) {
        if is_worse(self.value, value) {
            *self = Self { value, at };
        }
    }
}
