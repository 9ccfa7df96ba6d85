//! A row: everything that one source knows about one subject at one place.

use super::figure::Figure;
use super::kind::{Kind, Place, ProblemPlace, Source};
use super::subject::Subject;
use common::metric::{Metric, Unit};
use common::timing::{Regime, Rotation, SpeedOfLight, sustained};
use common::verdict::{GateId, GateResult, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A line of a table. A figure that was not measured is absent.
///
/// As a line of `rows.jsonl` its columns are flat: `p50`, `p50_low`, `p50_high`, `C1`, `C1_reason`,
/// …, so that DuckDB, pandas and jq read the file as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub subject: Subject,
    pub kind: Kind,
    /// The conditions, which must be equal before two rows are compared: `warm L2`.
    pub conditions: Option<String>,
    /// The session that measured it; empty until the row is stored.
    pub session: String,
    /// The beginning of the hash of the kernel's sources, or of a pair of kernels both, as `a+b`. A
    /// row of another identity is STALE.
    pub identity: Option<String>,
    /// The beginning of the hash of the machine code that ran, or of a pair both.
    pub code: Option<String>,
    pub figures: BTreeMap<Metric, Figure>,
    pub verdicts: BTreeMap<GateId, Judged>,
    /// The place of the worst figure, or the reason why there is none.
    pub note: Option<String>,
}

/// The subject and kind by which a table finds a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub subject: Subject,
    pub kind: Kind,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, source) = (self.kind.place(), self.kind.source());
        write!(f, "{} on {place} by {source}", self.subject)?;
        match self.kind.base() {
            Some(base) => write!(f, " against {base}"),
            None => Ok(()),
        }
    }
}

impl Row {
    /// Returns a row without figures and verdicts.
    pub fn new(subject: impl Into<Subject>, kind: Kind) -> Self {
        Self {
            subject: subject.into(),
            kind,
            conditions: None,
            session: String::new(),
            identity: None,
            code: None,
            figures: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            note: None,
        }
    }

    /// Sets the conditions of its times.
    pub fn conditions(mut self, state: impl Into<String>) -> Self {
        self.conditions = Some(state.into());
        self
    }

    /// Adds the regime of timing to the conditions: `warm L2, sustained`. A row without one is of the
    /// burst.
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
        match conditions.rsplit(", ").next() {
            Some(last) => last.parse().unwrap_or(Regime::Burst),
            None => Regime::Burst,
        }
    }

    /// Returns whether its times stand for a regime: their own, or both where the power is known to
    /// stay below the limit.
    pub fn counts_in(&self, regime: Regime) -> bool {
        if self.regime() == regime {
            return true;
        }
        match (self.value(Metric::PowerW), self.value(Metric::PowerLimitW)) {
            (Some(power_w), Some(limit_w)) => !sustained::reaches(power_w, limit_w),
            _ => false,
        }
    }

    /// Sets the note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Adds a figure.
    pub fn figure(mut self, metric: Metric, value: impl Into<Figure>) -> Self {
        self.figures.insert(metric, value.into());
        self
    }

    /// Adds figures.
    pub fn with_figures<F: Into<Figure>>(
        mut self,
        figures: impl IntoIterator<Item = (Metric, F)>,
    ) -> Self {
        for (metric, value) in figures {
            self.figures.insert(metric, value.into());
        }
        self
    }

    /// Adds the verdicts of gates.
    pub fn with_verdicts<'a>(self, results: impl IntoIterator<Item = &'a GateResult>) -> Self {
        results.into_iter().fold(self, Row::verdict)
    }

    /// Adds a verdict. A row has one per gate, and FAIL stays whatever is added.
    pub fn verdict(mut self, result: &GateResult) -> Self {
        self.judge(result.gate, Judged::from(result));
        self
    }

    /// Adds a verdict, unless the gate has failed already.
    pub fn judge(&mut self, gate: GateId, judged: Judged) {
        let before = self.verdicts.entry(gate).or_insert_with(|| judged.clone());
        if before.verdict != Verdict::Fail {
            *before = judged;
        }
    }

    /// Returns where it stands.
    pub fn place(&self) -> Place<'_> {
        self.kind.place()
    }

    /// Returns what measured it.
    pub fn source(&self) -> Source {
        self.kind.source()
    }

    /// Returns the other arm of an interleaved pair.
    pub fn base(&self) -> Option<&Subject> {
        self.kind.base()
    }

    /// Returns the problem of what was measured on one problem as a whole.
    pub fn problem(&self) -> Option<&ProblemPlace> {
        self.kind.problem()
    }

    /// Returns whether the metric itself was measured, not only its parts.
    pub fn has(&self, metric: Metric) -> bool {
        self.figures.contains_key(&metric)
    }

    /// Returns whether it is the time of a variant alone on a GPU.
    pub fn is_latency(&self) -> bool {
        matches!(self.kind, Kind::Latency(_)) && self.has(Metric::P50)
    }

    /// Returns why a claim fails, if its refutation is on record: then it is no failure.
    pub fn refutation(&self) -> Option<&str> {
        match self.kind {
            Kind::Claim(_) => self.note.as_deref(),
            _ => None,
        }
    }

    /// Takes figures that it lacks from a row about the same machine code.
    pub fn complete(&mut self, before: &Self) {
        for (metric, figure) in &before.figures {
            self.figures.entry(*metric).or_insert(*figure);
        }
    }

    /// Returns the value of a metric; a share is computed from its parts if the row has no figure
    /// for it.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        if let Some(figure) = self.figures.get(&metric) {
            return Some(figure.value);
        }
        let (metric_of_part, metric_of_whole) = metric.spec().parts?;
        let part = self.figures.get(&metric_of_part)?;
        let whole = self.figures.get(&metric_of_whole)?;
        if whole.value == 0.0 {
            return Some(0.0);
        }
        Some(part.value / whole.value)
    }

    /// Returns the figure with its interval; NaN if there is none.
    pub fn estimate(&self, metric: Metric) -> Figure {
        let figure = self.figures.get(&metric).copied();
        figure.unwrap_or(f64::NAN.into())
    }

    /// Returns the key by which a table finds it.
    pub fn key(&self) -> Key {
        Key {
            subject: self.subject.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Returns the reason of the first gate that fails.
    pub fn failure(&self) -> Option<&str> {
        self.failed()
            .next()
            .map(|(_, judged)| judged.reason.as_str())
    }

    /// Returns the gates that fail.
    pub fn failed(&self) -> impl Iterator<Item = (GateId, &Judged)> {
        self.verdicts
            .iter()
            .filter(|(_, judged)| judged.verdict == Verdict::Fail)
            .map(|(gate, judged)| (*gate, judged))
    }

    /// Returns `C2: max error 3.1e-1 > 4.9e-4` for each gate that fails.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.failed();
        failed.map(|(gate, judged)| format!("{gate}: {}", judged.reason))
    }

    /// Returns the verdict of a gate.
    pub fn says(&self, gate: GateId) -> Option<Verdict> {
        self.verdicts.get(&gate).map(|judged| judged.verdict)
    }

    /// Returns it with the digits that a table keeps.
    pub fn rounded(mut self) -> Self {
        for (metric, figure) in &mut self.figures {
            *figure = figure.rounded(*metric);
        }
        self
    }

    /// Returns the first figure that cannot be: a time or ratio that is not a positive number or
    /// outside of its interval, or anything negative.
    pub fn impossible(&self) -> Option<Impossible> {
        for (metric, figure) in &self.figures {
            let range = Range::new(*metric);
            if !range.contains(figure) {
                return Some(Impossible {
                    row: self.key().to_string(),
                    metric: *metric,
                    figure: *figure,
                    range,
                });
            }
        }
        None
    }

    /// Returns why its time cannot be on this GPU: it is not above what the arithmetic of its
    /// problem takes at the GPU's peak, or its own floor.
    pub fn too_fast(&self, gpu: &str) -> Option<TooFast> {
        // Of a pair the least time is that of either arm.
        let least = self.value(Metric::Min).unwrap_or(f64::INFINITY);
        let us = self.value(Metric::P50)?.min(least);
        let arithmetic = match self.problem().and_then(ProblemPlace::problem) {
            Some(problem) => {
                let no_memory = Rotation::choose(0, 0, 1);
                SpeedOfLight::roofline(&problem, gpu, &no_memory).us()
            }
            None => 0.0,
        };
        let floor = arithmetic.max(self.value(Metric::FloorUs).unwrap_or(0.0));
        (us <= floor).then(|| TooFast {
            row: self.key().to_string(),
            us,
            floor,
            gpu: gpu.to_string(),
        })
    }
}

/// The values that a metric can have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Range {
    /// The range of a time or ratio.
    Positive,
    /// The range of a spread of equal samples, or the floor on a GPU whose peaks are not known.
    PositiveOrZero,
    /// The range of a count. An error may be NaN, which is a finding.
    NotNegative,
}

impl Range {
    fn new(metric: Metric) -> Self {
        match (metric, metric.spec().unit) {
            (Metric::Std | Metric::FloorUs, _) => Self::PositiveOrZero,
            (_, Unit::Us | Unit::Ns | Unit::Ratio) => Self::Positive,
            _ => Self::NotNegative,
        }
    }

    fn contains(self, figure: &Figure) -> bool {
        let value = figure.value;
        if value == 0.0 {
            return self != Self::Positive;
        }
        match self {
            Self::NotNegative => value > 0.0 || value.is_nan(),
            Self::Positive | Self::PositiveOrZero => {
                let (low, high) = figure.ends();
                0.0 < low && low <= value && value <= high && high.is_finite()
            }
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Positive => "a positive number inside its interval",
            Self::PositiveOrZero | Self::NotNegative => "0 or a positive number",
        })
    }
}

/// A figure that cannot be measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{row}: {} is {}{}, which cannot be measured: it must be {range}; measure it again",
    metric.label(),
    figure.value,
    shown_interval(figure)
)]
pub struct Impossible {
    row: String,
    metric: Metric,
    figure: Figure,
    range: Range,
}

fn shown_interval(figure: &Figure) -> String {
    figure
        .interval
        .map(|(low, high)| format!(" [{low}, {high}]"))
        .unwrap_or_default()
}

/// A time that no kernel can have on its GPU.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{row}: {us} µs, and nothing can take less than {floor:.3} µs on {gpu}; find out what was timed"
)]
pub struct TooFast {
    row: String,
    us: f64,
    floor: f64,
    gpu: String,
}

/// The verdict of a gate, with its reason unless it is PASS, and with counts if it judged several
/// cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub verdict: Verdict,
    pub passed: Option<usize>,
    pub of: Option<usize>,
    pub reason: String,
}

impl Judged {
    /// Returns a verdict that counts no cases.
    pub fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            passed: None,
            of: None,
            reason: reason.into(),
        }
    }
}

impl From<&GateResult> for Judged {
    fn from(result: &GateResult) -> Self {
        let reason = match result.verdict {
            Verdict::Pass => "",
            Verdict::Fail | Verdict::NoData | Verdict::Ambiguous => &result.reason,
        };
        Self::new(result.verdict, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::device::BackendKind;

    fn checked() -> Row {
        Row::new("s/v", Kind::Checked(BackendKind::Cuda))
    }

    #[test]
    fn a_row_without_a_regime_is_of_the_burst() {
        assert_eq!(checked().regime(), Regime::Burst);
        for conditions in ["warm L2", "cold caches", "not sustained"] {
            let row = checked().conditions(conditions);
            assert_eq!(row.regime(), Regime::Burst, "{conditions}");
        }
        let sustained = checked().conditions("warm L2").sustained();
        assert_eq!(sustained.conditions.as_deref(), Some("warm L2, sustained"));
        assert_eq!(sustained.regime(), Regime::Sustained);
        let alone = checked().sustained();
        assert_eq!(alone.conditions.as_deref(), Some("sustained"));
        assert_eq!(alone.regime(), Regime::Sustained);
    }

    #[test]
    fn a_burst_counts_as_sustained_where_its_power_is_known_to_stay_below_the_limit() {
        let burst = |power_w: f64| checked().figure(Metric::PowerW, power_w);
        let limited = |power_w| burst(power_w).figure(Metric::PowerLimitW, 700.0);
        let counts =
            |row: &Row| [Regime::Burst, Regime::Sustained].map(|regime| row.counts_in(regime));
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
        let timed = |us: Figure| checked().figure(Metric::P50, us);
        assert_eq!(timed((5.0, 4.0, 6.0).into()).impossible(), None);
        for us in [f64::INFINITY.into(), (5.0, 4.0, f64::INFINITY).into()] {
            assert!(timed(us).impossible().is_some(), "{us:?}");
        }
    }

    #[test]
    fn what_a_figure_must_be_is_said_of_a_time_and_of_a_count() {
        fn required(metric: Metric, value: f64) -> Option<String> {
            let words = checked().figure(metric, value).impossible()?.to_string();
            let (_, range) = words.split_once("it must be ")?;
            Some(range.trim_end_matches("; measure it again").to_string())
        }
        let zero = Some("0 or a positive number".to_string());
        assert_eq!(required(Metric::SpillBytes, -8.0), zero);
        assert_eq!(required(Metric::Std, -1.0), zero);
        let time = Some("a positive number inside its interval".to_string());
        assert_eq!(required(Metric::P50, -8.0), time);
        assert_eq!(
            [Metric::SpillBytes, Metric::Std].map(|metric| required(metric, 0.0)),
            [None, None]
        );
    }

    #[test]
    fn a_failure_stays() {
        let pass = GateResult::judge(GateId::H1, true, "clean");
        let fail = GateResult::judge(GateId::H1, false, "race");
        let row = checked().verdict(&fail).verdict(&pass);
        assert_eq!(
            row.failed()
                .map(|(gate, judged)| (gate, judged.reason.as_str()))
                .collect::<Vec<_>>(),
            [(GateId::H1, "race")]
        );
    }
}
