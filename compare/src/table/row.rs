//! A row: everything that one source knows about one subject at one place.

use common::device::BackendKind;
use common::metric::{Metric, Unit};
use common::problem::{Dtype, Mask, Problem, Shape, parse_shape};
use common::timing::stats::{Interval, Ratio, Summary};
use common::timing::{Regime, Rotation, SpeedOfLight, sustained};
use common::verdict::{GateId, GateResult, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A figure that was not measured is absent.
///
/// As a line of `rows.jsonl` its columns are flat: `p50`, `p50_low`, `p50_high`, `C1`, `C1_reason`, …, so that DuckDB, pandas and
/// jq read the file as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub subject: Subject,
    pub place: Place,
    pub source: Source,
    /// The other arm of an interleaved pair (A B B A).
    pub paired_with: Option<Subject>,
    /// The conditions, which must be equal before two rows are compared: `warm L2`.
    pub conditions: Option<String>,
    /// The session that measured it; empty until the row is stored.
    pub session: String,
    /// Beginning of the hash of the kernel's sources; of a pair of kernels both, as `a+b`. A row of another identity is STALE.
    pub identity: Option<String>,
    /// Beginning of the hash of the machine code that ran, or of a pair both.
    pub code: Option<String>,
    pub figures: BTreeMap<Metric, Figure>,
    pub verdicts: BTreeMap<GateId, Judged>,
    /// Where the worst figure occurred, or why there is none.
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub subject: Subject,
    pub place: Place,
    pub source: Source,
    pub paired_with: Option<Subject>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} by {}", self.subject, self.place, self.source)?;
        let mut paired_with = self.paired_with.iter();
        paired_with.try_for_each(|base| write!(f, " against {base}"))
    }
}

impl Row {
    pub fn new(subject: impl Into<Subject>, place: Place, source: Source) -> Self {
        Self {
            subject: subject.into(),
            place,
            source,
            paired_with: None,
            conditions: None,
            session: String::new(),
            identity: None,
            code: None,
            figures: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            note: None,
        }
    }

    pub fn paired_with(mut self, base: impl Into<Subject>) -> Self {
        self.paired_with = Some(base.into());
        self
    }

    pub fn conditions(mut self, state: impl Into<String>) -> Self {
        self.conditions = Some(state.into());
        self
    }

    /// Adds the regime of timing to the conditions: `warm L2, sustained`. A row without one is of the burst.
    pub fn sustained(mut self) -> Self {
        let regime = Regime::Sustained.name();
        self.conditions = Some(match self.conditions {
            Some(conditions) => format!("{conditions}, {regime}"),
            None => regime.to_string(),
        });
        self
    }

    /// Returns the regime that its times are of.
    pub fn regime(&self) -> Regime {
        let conditions = self.conditions.as_deref().unwrap_or_default();
        let last = conditions.rsplit(", ").next();
        last.and_then(|last| last.parse().ok())
            .unwrap_or(Regime::Burst)
    }

    /// Whether its times stand for a regime: their own, or both where the power is known to stay below the limit.
    pub fn counts_in(&self, regime: Regime) -> bool {
        let power = self.value(Metric::PowerW);
        let limit = self.value(Metric::PowerLimitW);
        let is_below = |(power_w, limit_w)| !sustained::reaches(power_w, limit_w);
        self.regime() == regime || power.zip(limit).is_some_and(is_below)
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    pub fn figure(mut self, metric: Metric, value: impl Into<Figure>) -> Self {
        self.figures.insert(metric, value.into());
        self
    }

    pub fn with_figures<F: Into<Figure>>(
        self,
        figures: impl IntoIterator<Item = (Metric, F)>,
    ) -> Self {
        let figures = figures.into_iter();
        figures.fold(self, |row, (metric, value)| row.figure(metric, value))
    }

    pub fn with_verdicts<'a>(self, results: impl IntoIterator<Item = &'a GateResult>) -> Self {
        results.into_iter().fold(self, Row::verdict)
    }

    /// Adds a verdict. A row has one per gate, and FAIL stays whatever is added.
    pub fn verdict(mut self, result: &GateResult) -> Self {
        self.judge(result.gate, Judged::from(result));
        self
    }

    pub fn judge(&mut self, gate: GateId, judged: Judged) {
        let before = self.verdicts.entry(gate).or_insert_with(|| judged.clone());
        if before.verdict != Verdict::Fail {
            *before = judged;
        }
    }

    /// Whether the metric itself was measured, not only its parts.
    pub fn has(&self, metric: Metric) -> bool {
        self.figures.contains_key(&metric)
    }

    /// Takes figures that it lacks from a row about the same machine code.
    pub fn complete(&mut self, before: &Self) {
        for (metric, figure) in &before.figures {
            self.figures.entry(*metric).or_insert(*figure);
        }
    }

    /// The value of a metric; a share is computed from its parts if the row has no figure for it.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let measured = |metric| self.figures.get(&metric).map(|figure| figure.value);
        let share = |(part, whole)| {
            let (part, whole) = (measured(part)?, measured(whole)?);
            Some(if whole == 0.0 { 0.0 } else { part / whole })
        };
        measured(metric).or_else(|| metric.spec().parts.and_then(share))
    }

    /// The figure with its interval; NaN if there is none.
    pub fn estimate(&self, metric: Metric) -> Figure {
        let figure = self.figures.get(&metric).copied();
        figure.unwrap_or(f64::NAN.into())
    }

    pub fn key(&self) -> Key {
        Key {
            subject: self.subject.clone(),
            place: self.place.clone(),
            source: self.source,
            paired_with: self.paired_with.clone(),
        }
    }

    pub fn failure(&self) -> Option<&str> {
        self.failed()
            .next()
            .map(|(_, judged)| judged.reason.as_str())
    }

    pub fn failed(&self) -> impl Iterator<Item = (GateId, &Judged)> {
        self.verdicts
            .iter()
            .filter(|(_, judged)| judged.verdict == Verdict::Fail)
            .map(|(gate, judged)| (*gate, judged))
    }

    /// `C2: max error 3.1e-1 > 4.9e-4` for each gate that fails.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.failed();
        failed.map(|(gate, judged)| format!("{gate}: {}", judged.reason))
    }

    pub fn says(&self, gate: GateId) -> Option<Verdict> {
        self.verdicts.get(&gate).map(|judged| judged.verdict)
    }

    /// With the digits that a table keeps.
    pub fn rounded(mut self) -> Self {
        for (metric, figure) in &mut self.figures {
            *figure = figure.rounded(*metric);
        }
        self
    }

    /// The first figure that cannot be: a time or ratio that is not a positive number, or outside of its interval, and what is negative.
    pub fn impossible(&self) -> Option<String> {
        self.figures.iter().find_map(|(metric, figure)| {
            let is_measure = matches!(metric.spec().unit, Unit::Us | Unit::Ns | Unit::Ratio);
            let (value, (low, high)) = (figure.value, figure.ends());
            // Equal samples, and a GPU whose peaks are not known.
            let may_be_zero = !is_measure || matches!(metric, Metric::Std | Metric::FloorUs);
            let is_possible = match is_measure {
                _ if value == 0.0 => may_be_zero,
                true => 0.0 < low && low <= value && value <= high && high.is_finite(),
                // An error that is no number is a finding.
                false => value > 0.0 || value.is_nan(),
            };
            (!is_possible).then(|| {
                let interval = figure.interval.map(|(low, high)| format!(" [{low}, {high}]"));
                let must = match may_be_zero {
                    true => "0 or a positive number",
                    false => "a positive number inside its interval",
                };
                format!(
                    "{}: {} is {value}{}, which cannot be measured: it must be {must}; measure it again",
                    self.key(),
                    metric.label(),
                    interval.unwrap_or_default()
                )
            })
        })
    }

    /// Why its time cannot be on this GPU: it is not above what the arithmetic of its problem takes at the GPU's peak, or its own floor.
    pub fn too_fast(&self, gpu: &str) -> Option<String> {
        // Of a pair the least time is that of either arm.
        let least = self.value(Metric::Min).unwrap_or(f64::INFINITY);
        let us = self.value(Metric::P50)?.min(least);
        let arithmetic = |problem: Problem| {
            let no_memory = Rotation::choose(0, 0, 1);
            SpeedOfLight::roofline(&problem, gpu, &no_memory).us()
        };
        let problem = self.place.problem().and_then(ProblemPlace::problem);
        let floor = self.value(Metric::FloorUs).unwrap_or(0.0);
        let floor = problem.map_or(0.0, arithmetic).max(floor);
        (us <= floor).then(|| {
            format!(
                "{}: {us} µs, and nothing can take less than {floor:.3} µs on {gpu}; find out what was timed",
                self.key()
            )
        })
    }
}

/// What a row is about: a variant (`stage5-swizzle/swizzle-32x256-k4`), a stage, a family, a peer (`torch-cudnn`), or the
/// harness itself (`self-test`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject(String);

impl Subject {
    pub fn variant(stage: &str, variant: &str) -> Self {
        Self(format!("{stage}/{variant}"))
    }

    /// The part before the slash; all of it where there is none.
    pub fn stage(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(stage, _)| stage)
    }

    /// The part after the slash: the name of the variant or family.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Subject {
    fn from(text: &str) -> Self {
        Self(text.to_string())
    }
}

impl From<&Subject> for Subject {
    fn from(subject: &Subject) -> Self {
        subject.clone()
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// What `kernel.cu` declares.
    Kernel,
    Ptxas,
    Emulator,
    Gpu,
    /// All variants on random problems, timed quickly: what the library's choice is fitted to and judged by.
    Draw,
    /// The Python process: our variants and peers or a candidate, timed interleaved, and the gates of a candidate.
    Peers,
    Ncu,
    ComputeSanitizer,
    /// Planted faults, and kernels without one of their synchronisation sites.
    SelfTest,
    /// The verdict on a claim, from the other rows.
    Claim,
    /// The `out` of `--input`.
    Input,
}

impl From<BackendKind> for Source {
    fn from(kind: BackendKind) -> Self {
        match kind {
            BackendKind::Emulated => Source::Emulator,
            BackendKind::Cuda => Source::Gpu,
        }
    }
}

impl Source {
    /// Whether its figures depend on sources and compilers alone, and on no GPU.
    pub fn is_of_build(self) -> bool {
        matches!(
            self,
            Source::Kernel | Source::Ptxas | Source::Emulator | Source::SelfTest
        )
    }
}

impl fmt::Display for Source {
    /// As in the column `by`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The self-test's row without a planted fault.
pub const CORRECT_MODEL: &str = "correct model";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// All cases or launches of the subject.
    All,
    /// A problem: `mission f16 full`.
    Problem(ProblemPlace),
    /// A problem with its inputs: `mission f16 full normal:0`.
    Case(ProblemPlace, String),
    /// A compiled instance, `f16 d64 sm_90a`; without an architecture, its declaration in `kernel.cu`.
    Instance {
        dtype: Dtype,
        head_dim: usize,
        arch: Option<String>,
    },
    /// Anything else, such as a planted fault or a synchronisation site; written after `: `.
    Named(String),
}

/// A problem, with the name of its shape, or its extents if it has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProblemPlace {
    pub shape: String,
    pub dtype: Dtype,
    pub mask: Mask,
    /// Inputs that are in the L2 cache on other rows come from device memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold: bool,
}

impl ProblemPlace {
    pub fn new(shape: &str, dtype: Dtype, mask: Mask) -> Self {
        Self {
            shape: shape.to_string(),
            dtype,
            mask,
            cold: false,
        }
    }

    /// The shape's name or its extents, with the softmax scale if it is not the default.
    pub fn of(problem: &Problem) -> Self {
        let mut shape = problem.shape.name();
        let plain = Problem::new(problem.shape, problem.dtype, problem.mask);
        if plain != Ok(*problem) {
            shape += &format!("@{}", problem.softmax_scale);
        }
        Self::new(&shape, problem.dtype, problem.mask)
    }

    /// How much there is to multiply.
    pub fn size(&self) -> usize {
        let shape = self.extents();
        shape.map_or(0, |s| s.batch * s.heads_q * s.seq_q * s.seq_kv * s.head_dim)
    }

    pub fn extents(&self) -> Option<Shape> {
        parse_shape(&self.shape).ok()
    }

    /// The problem, if its softmax scale is the default.
    pub fn problem(&self) -> Option<Problem> {
        Problem::new(self.extents()?, self.dtype, self.mask).ok()
    }

    /// The problem that claims are stated on.
    pub fn claims(dtype: Dtype) -> Self {
        Self::new("mission", dtype, Mask::Full)
    }
}

impl fmt::Display for ProblemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cold = if self.cold { " cold" } else { "" };
        write!(f, "{} {} {}{cold}", self.shape, self.dtype, self.mask)
    }
}

impl Place {
    pub fn claims(dtype: Dtype) -> Self {
        Place::Problem(ProblemPlace::claims(dtype))
    }

    pub fn problem(&self) -> Option<&ProblemPlace> {
        match self {
            Place::Problem(place) => Some(place),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::All => f.write_str("all"),
            Place::Problem(place) => write!(f, "{place}"),
            Place::Case(place, input) => write!(f, "{place} {input}"),
            Place::Instance {
                dtype,
                head_dim,
                arch,
            } => {
                write!(f, "{dtype} d{head_dim}")?;
                arch.iter().try_for_each(|arch| write!(f, " {arch}"))
            }
            Place::Named(words) => write!(f, ": {words}"),
        }
    }
}

/// A value, with its 95 % interval if it is an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self {
            value,
            interval: None,
        }
    }
}

impl From<(f64, f64, f64)> for Figure {
    fn from((value, low, high): (f64, f64, f64)) -> Self {
        Self {
            value,
            interval: Some((low, high)),
        }
    }
}

impl From<Ratio> for Figure {
    fn from(Ratio { value, interval }: Ratio) -> Self {
        (value, interval.low, interval.high).into()
    }
}

impl From<&Summary> for Figure {
    fn from(of: &Summary) -> Self {
        (of.p50, of.p50_interval.low, of.p50_interval.high).into()
    }
}

macro_rules! figure_from {
    ($($integer:ty),*) => {
        $(impl From<$integer> for Figure {
            fn from(value: $integer) -> Self {
                Self::from(value as f64)
            }
        })*
    };
}
figure_from!(u32, u64, usize);

impl Figure {
    /// With NaN for ends if it has no interval.
    pub fn ratio(self) -> Ratio {
        let (low, high) = self.interval.unwrap_or((f64::NAN, f64::NAN));
        let interval = Interval { low, high };
        Ratio {
            value: self.value,
            interval,
        }
    }

    /// The ends of its interval; twice the value if it has none.
    pub fn ends(self) -> (f64, f64) {
        self.interval.unwrap_or((self.value, self.value))
    }

    /// As a run keeps it: counts are whole, everything else has four digits. Intervals are rounded outwards, so that no claim
    /// holds because of digits that were not measured.
    pub fn rounded(self, metric: Metric) -> Self {
        if metric.spec().unit == Unit::Count {
            return Self {
                value: self.value.round(),
                ..self
            };
        }
        Self {
            value: four_digits(self.value),
            interval: self.interval.map(|(low, high)| (-above(-low), above(high))),
        }
    }
}

fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        value
    } else {
        format!("{value:.3e}").parse().unwrap_or(value)
    }
}

/// The smallest number with four digits that is not below `value`.
fn above(value: f64) -> f64 {
    let near = four_digits(value);
    if near >= value || !value.is_finite() {
        return near;
    }
    let step = 10_f64.powi(near.abs().log10().floor() as i32 - 3);
    four_digits(near + step)
}

/// The verdict of a gate, with its reason unless it is PASS, and with counts if it judged several cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub verdict: Verdict,
    pub passed: Option<usize>,
    pub of: Option<usize>,
    pub reason: String,
}

impl From<&GateResult> for Judged {
    fn from(result: &GateResult) -> Self {
        let reason = if result.verdict == Verdict::Pass {
            String::new()
        } else {
            result.reason.clone()
        };
        Self {
            verdict: result.verdict,
            passed: None,
            of: None,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_rounded_outwards() {
        let rounded = |value| Figure::from(value).rounded(Metric::SpeedupP50);
        assert_eq!(
            rounded((1.4998, 1.4996, 1.5002)),
            Figure::from((1.5, 1.499, 1.501))
        );
        assert_eq!(
            rounded((5.2744, 5.2744, 5.2744)),
            Figure::from((5.274, 5.274, 5.275))
        );
        assert_eq!(
            rounded((0.92949, 0.929, 0.93)),
            Figure::from((0.9295, 0.929, 0.93))
        );
        assert_eq!(Figure::from(8.4).rounded(Metric::Cases).value, 8.0);
        let nan = rounded((f64::NAN, f64::NAN, f64::NAN));
        assert!(
            nan.interval
                .is_some_and(|(low, high)| low.is_nan() && high.is_nan())
        );
    }

    #[test]
    fn a_row_without_a_regime_is_of_the_burst() {
        let row =
            |conditions: &str| Row::new("s/v", Place::All, Source::Gpu).conditions(conditions);
        let none = Row::new("s/v", Place::All, Source::Gpu);
        assert_eq!(none.regime(), Regime::Burst);
        for conditions in ["warm L2", "cold caches", "not sustained"] {
            assert_eq!(row(conditions).regime(), Regime::Burst, "{conditions}");
        }
        let sustained = row("warm L2").sustained();
        assert_eq!(sustained.conditions.as_deref(), Some("warm L2, sustained"));
        assert_eq!(sustained.regime(), Regime::Sustained);
        let alone = none.sustained();
        assert_eq!(alone.conditions.as_deref(), Some("sustained"));
        assert_eq!(alone.regime(), Regime::Sustained);
    }

    #[test]
    fn a_burst_counts_as_sustained_where_its_power_is_known_to_stay_below_the_limit() {
        let burst =
            |power_w: f64| Row::new("s/v", Place::All, Source::Gpu).figure(Metric::PowerW, power_w);
        let limited = |power_w| burst(power_w).figure(Metric::PowerLimitW, 700.0);
        let counts = |row: &Row| [Regime::Burst, Regime::Sustained].map(|of| row.counts_in(of));
        assert_eq!(counts(&limited(629.0)), [true, true]);
        assert_eq!(counts(&limited(630.0)), [true, false]);
        assert_eq!(
            counts(&burst(100.0)),
            [true, false],
            "the limit is not known"
        );
        assert_eq!(counts(&limited(697.0).sustained()), [false, true]);
    }

    #[test]
    fn a_time_is_finite_with_its_interval() {
        let timed = |us: Figure| Row::new("s/v", Place::All, Source::Gpu).figure(Metric::P50, us);
        assert_eq!(timed((5.0, 4.0, 6.0).into()).impossible(), None);
        for us in [f64::INFINITY.into(), (5.0, 4.0, f64::INFINITY).into()] {
            assert!(timed(us).impossible().is_some(), "{us:?}");
        }
    }

    #[test]
    fn what_a_figure_must_be_is_said_of_a_time_and_of_a_count() {
        let says = |metric, value: f64| {
            let row = Row::new("s/v", Place::All, Source::Gpu).figure(metric, value);
            let words = row.impossible()?;
            let (_, must) = words.split_once("it must be ")?;
            Some(must.trim_end_matches("; measure it again").to_string())
        };
        let zero = Some("0 or a positive number".to_string());
        assert_eq!(says(Metric::SpillBytes, -8.0), zero);
        assert_eq!(says(Metric::Std, -1.0), zero);
        let time = Some("a positive number inside its interval".to_string());
        assert_eq!(says(Metric::P50, -8.0), time);
        assert_eq!(
            [Metric::SpillBytes, Metric::Std].map(|of| says(of, 0.0)),
            [None, None]
        );
    }

    #[test]
    fn a_failure_stays() {
        let pass = GateResult::judge(GateId::H1, true, "clean");
        let fail = GateResult::judge(GateId::H1, false, "race");
        let row = Row::new("s/v", Place::All, Source::Emulator)
            .verdict(&fail)
            .verdict(&pass);
        assert_eq!(
            row.failed()
                .map(|(gate, judged)| (gate, judged.reason.as_str()))
                .collect::<Vec<_>>(),
            [(GateId::H1, "race")]
        );
    }
}
