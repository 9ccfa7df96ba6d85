use super::{
    C2_OUTPUT_ULPS, C2_PLAIN_FACTOR, C2_ROWS_FACTOR, C2_ROWS_NOISE, C2_STEPS, C3_ROW, C3_ROW_BF16,
    C3_ROW_E4M3_P, C4_E4M3_BAD, C4_E4M3_BAD_SHARE, Evidence, SCORE_ROUNDING, SEEDS_MAX, SEEDS_MEAN,
    c3_floor, c4_tolerance,
};
use crate::format::Format;
use crate::reference::{Probability, row_index};
use std::borrow::Cow;

/// An output against its reference. Every gate fails NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Errors {
    pub rows: usize,
    /// Whether the rows are a sample.
    pub sampled: bool,
    /// Of the same-precision baseline; as the kernel declares.
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
    /// Rows in effect in that mean: the square of the sum of squared errors over the sum of their squares. Exact rows (one
    /// key, or one that wins) do not count.
    pub baseline_rows: f64,
    /// Root mean square over rows of what one subnormal step of the output's format in each element is of the row.
    pub rms_step: f64,
    /// [`Reference::largest_score`](crate::reference::Reference::largest_score).
    pub largest_score: f64,
    pub reference_max_abs: f64,
    /// E4M3: against the values before rounding; `None` for others and for real tensors.
    pub end_to_end: Option<EndToEnd>,
}

impl Errors {
    /// Rows of the reference. An output of the wrong length measures NaN.
    ///
    /// # Panics
    ///
    /// If the reference lacks something of a row: what is not there would be off by nothing.
    pub fn measure(evidence: &Evidence<'_>) -> Self {
        let Evidence {
            problem, reference, ..
        } = *evidence;
        let dim = problem.shape.head_dim;
        let output = values(evidence);
        let floor = c3_floor(problem);
        let format = problem.dtype.output();

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
        let mut max_abs = Worst::new([0; 4]);
        let mut allclose = Worst::new([0; 4]);
        let mut max_row = Worst::new([0; 3]);
        let mut sum = 0.0;
        let (mut row_squares, mut baseline_row_squares, mut baseline_row_fourths) = (0.0, 0.0, 0.0);
        let mut step_squares = 0.0;
        let mut nonzero_in_zero_row = None;
        let baseline = reference
            .baseline
            .chunks_exact(dim)
            .zip(&reference.value_rms);
        for ((&row, exact), (baseline, &value_rms)) in reference
            .rows
            .iter()
            .zip(reference.output.chunks_exact(dim))
            .zip(baseline)
        {
            let [b, h, s] = row_index(problem, row);
            let (mut error_square, mut norm_square) = (0.0, 0.0);
            let mut baseline_square = 0.0;
            for (d, &exact) in exact.iter().enumerate() {
                let error = (f64::from(output[row * dim + d]) - exact).abs();
                max_abs.offer(error, [b, h, s, d]);
                allclose.offer(error / c4_tolerance(format, value_rms, exact), [b, h, s, d]);
                baseline_square += (f64::from(baseline[d]) - exact).powi(2);
                sum += error;
                error_square += error * error;
                norm_square += exact * exact;
            }
            let norm = norm_square.sqrt().max(floor);
            max_row.offer(error_square.sqrt() / norm, [b, h, s]);
            step_squares += dim as f64 * (format.ulp(0.0) / norm).powi(2);
            row_squares += error_square / (norm * norm);
            baseline_row_squares += baseline_square / (norm * norm);
            baseline_row_fourths += (baseline_square / (norm * norm)).powi(2);
            if norm_square == 0.0 && nonzero_in_zero_row.is_none() {
                // Written so that NaN is not zero; -0 is.
                let zero = |d: &usize| output[row * dim + d] == 0.0;
                nonzero_in_zero_row = (0..dim).find(|d| !zero(d)).map(|d| [b, h, s, d]);
            }
        }
        let (mut baseline_max_abs, mut reference_max_abs) = (Worst::new(()), Worst::new(()));
        for (&baseline, exact) in reference.baseline.iter().zip(&reference.output) {
            baseline_max_abs.offer((f64::from(baseline) - exact).abs(), ());
            reference_max_abs.offer(exact.abs(), ());
        }
        Self {
            rows: reference.rows.len(),
            sampled: reference.sampled,
            probability: reference.probability,
            output: format,
            max_abs: max_abs.value,
            max_abs_at: max_abs.at,
            mean_abs: sum / (reference.rows.len() * dim) as f64,
            max_row_rel: max_row.value,
            max_row_rel_at: max_row.at,
            rms_row_rel: (row_squares / reference.rows.len() as f64).sqrt(),
            allclose: allclose.value,
            allclose_at: allclose.at,
            nonzero_in_zero_row,
            baseline_max_abs: baseline_max_abs.value,
            baseline_rms_row_rel: (baseline_row_squares / reference.rows.len() as f64).sqrt(),
            baseline_rows: baseline_row_squares.powi(2)
                / baseline_row_fourths.max(f64::MIN_POSITIVE),
            rms_step: (step_squares / reference.rows.len() as f64).sqrt(),
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
        factor * self.baseline_rms_row_rel
            + SCORE_ROUNDING * self.largest_score
            + C2_STEPS * self.rms_step
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

#[derive(Clone, Debug, PartialEq)]
pub struct EndToEnd {
    pub max_abs: f64,
    /// `[b, h, s, d]`.
    pub max_abs_at: [usize; 4],
    pub mean_abs: f64,
    /// Elements off by more than [`C4_E4M3_BAD`].
    pub bad_share: f64,
    /// Whether max <= 0.06, mean <= 0.02 and bad share <= 1 %: the documents' figures for a linear codec.
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
        let exact = reference.unquantised.as_ref()?;
        for (&row, exact) in reference.rows.iter().zip(exact.chunks_exact(dim)) {
            let [b, h, s] = row_index(problem, row);
            for (d, &exact) in exact.iter().enumerate() {
                let error = (f64::from(output[row * dim + d]) - exact).abs();
                max_abs.offer(error, [b, h, s, d]);
                sum += error;
                bad += usize::from(
                    !matches!(error.partial_cmp(&C4_E4M3_BAD), Some(order) if order.is_le()),
                );
            }
        }
        let elements = exact.len() as f64;
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

/// NaN if it has the wrong length.
fn values<'a>(evidence: &Evidence<'a>) -> Cow<'a, [f32]> {
    let expected = evidence.problem.shape.q_extents().iter().product();
    match evidence.output.len() == expected {
        true => Cow::Borrowed(evidence.output),
        false => Cow::Owned(vec![f32::NAN; expected]),
    }
}

/// Larger, or NaN where the worst is a number.
pub fn is_worse(worst: f64, value: f64) -> bool {
    !worst.is_nan() && (value > worst || value.is_nan())
}

/// The largest value and where; the first NaN beats everything.
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
