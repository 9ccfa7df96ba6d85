//! A row: everything that one source knows about one subject at one place.

use common::device::BackendKind;
use common::metric::{Metric, Unit};
use common::problem::{Dtype, Mask, Problem, named_shapes};
use common::timing::stats::{Ratio, Summary};
use common::verdict::{GateId, GateResult, Verdict};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Everything that one source knows about one subject at one place. A figure that was not measured is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub subject: Subject,
    pub on: On,
    pub by: Source,
    /// The other arm of an interleaved pair (A B B A).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Subject>,
    /// The conditions, which must be equal before two rows are compared: `warm L2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Hash of a compiled instance's machine code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<Metric, Figure>,
    /// Figures whose metric the registry no longer has, under their old names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retired: BTreeMap<String, Figure>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verdicts: BTreeMap<GateId, Judged>,
    /// Where the worst figure occurred, or why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Row {
    pub fn new(subject: impl Into<Subject>, on: On, by: Source) -> Self {
        let (against, under, sass, figures, retired, verdicts, note) = Default::default();
        Self {
            subject: subject.into(),
            on,
            by,
            against,
            under,
            sass,
            figures,
            retired,
            verdicts,
            note,
        }
    }

    pub fn against(mut self, base: impl Into<Subject>) -> Self {
        self.against = Some(base.into());
        self
    }

    pub fn under(mut self, state: impl Into<String>) -> Self {
        self.under = Some(state.into());
        self
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
        let said = self.verdicts.entry(gate).or_insert_with(|| judged.clone());
        if said.verdict != Verdict::Fail {
            *said = judged;
        }
    }

    /// Whether the metric itself was measured, not only its parts.
    pub fn has(&self, metric: Metric) -> bool {
        self.figures.contains_key(&metric)
    }

    /// The value of a metric; a share is computed from its parts if the row has no figure for it.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let found = |metric| self.figures.get(&metric).map(|figure| figure.value);
        let share = |(part, whole)| {
            let (part, whole) = (found(part)?, found(whole)?);
            Some(if whole == 0.0 { 0.0 } else { part / whole })
        };
        found(metric).or_else(|| metric.parts().and_then(share))
    }

    /// The figure with its interval; NaN if there is none.
    pub fn estimate(&self, metric: Metric) -> Figure {
        let found = self.figures.get(&metric).copied();
        found.unwrap_or(f64::NAN.into())
    }

    /// Identifies the row within a record.
    pub fn key(&self) -> (&Subject, &On, Source, Option<&Subject>) {
        (&self.subject, &self.on, self.by, self.against.as_ref())
    }

    /// The reason of the first gate that fails.
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

/// Where a row's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// What `kernel.cu` declares.
    Kernel,
    Ptxas,
    Emulator,
    /// The run on a GPU.
    Gpu,
    /// The Python process: our variants and peers or a candidate, timed interleaved, and the gates of a candidate.
    Peers,
    Ncu,
    ComputeSanitizer,
    /// Planted faults, and kernels without one of their synchronisation sites.
    SelfTest,
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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::Kernel => "kernel.cu",
            Source::Ptxas => "ptxas",
            Source::Emulator => "emulator",
            Source::Gpu => "GPU",
            Source::Peers => "peers",
            Source::Ncu => "ncu",
            Source::ComputeSanitizer => "compute-sanitizer",
            Source::SelfTest => "self-test",
            Source::Input => "input",
        })
    }
}

/// The self-test's row without a planted fault.
pub const CORRECT_MODEL: &str = "correct model";

/// What the figures of a row were measured on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum On {
    /// All cases or launches of the subject.
    All,
    /// A problem: `mission f16 full`.
    Problem(Place),
    /// A problem with its inputs: `mission f16 full normal:0`.
    Case(Place, String),
    /// A compiled instance, `f16 d64 sm_90a`; without an architecture, its declaration in `kernel.cu`.
    Instance {
        dtype: Dtype,
        head_dim: usize,
        arch: Option<String>,
    },
    /// Anything else, such as a planted fault or a synchronisation site; written after `: `.
    Named(String),
}

/// A problem, with the name of its shape, or its extents if it has none. The extents behind names are in the record's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub shape: String,
    pub dtype: Dtype,
    pub mask: Mask,
}

impl Place {
    pub fn new(shape: &str, dtype: Dtype, mask: Mask) -> Self {
        Self {
            shape: shape.to_string(),
            dtype,
            mask,
        }
    }

    pub fn of(shape_name: &str, problem: &Problem) -> Self {
        Self::new(shape_name, problem.dtype, problem.mask)
    }

    /// The problem, if its shape is one of the named ones.
    pub fn problem(&self) -> Option<Problem> {
        let named = named_shapes().find(|named| named.name == self.shape)?;
        Problem::new(named.shape, self.dtype, self.mask).ok()
    }

    /// The problem that claims are stated on.
    pub fn claims(dtype: Dtype) -> Self {
        Self::new("mission", dtype, Mask::Full)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.shape, self.dtype, self.mask)
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match On::deserialize(deserializer)? {
            On::Problem(place) => Ok(place),
            other => Err(serde::de::Error::custom(format!(
                "'{other}' is not a problem"
            ))),
        }
    }
}

impl On {
    /// The problem that claims are stated on.
    pub fn claims(dtype: Dtype) -> Self {
        On::Problem(Place::claims(dtype))
    }

    pub fn problem(&self) -> Option<&Place> {
        match self {
            On::Problem(place) => Some(place),
            _ => None,
        }
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            On::All => f.write_str("all"),
            On::Problem(place) => write!(f, "{place}"),
            On::Case(place, input) => write!(f, "{place} {input}"),
            On::Instance {
                dtype,
                head_dim,
                arch,
            } => {
                write!(f, "{dtype} d{head_dim}")?;
                arch.iter().try_for_each(|arch| write!(f, " {arch}"))
            }
            On::Named(words) => write!(f, ": {words}"),
        }
    }
}

impl std::str::FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let head_dim = |word: &str| word.strip_prefix('d')?.parse().ok();
        let instance = |dtype: &str, dim, arch: Option<&str>| {
            Some(On::Instance {
                dtype: dtype.parse().ok()?,
                head_dim: head_dim(dim)?,
                arch: arch.map(String::from),
            })
        };
        let place = |shape, dtype: &str, mask: &str| {
            Some(Place::new(shape, dtype.parse().ok()?, mask.parse().ok()?))
        };
        let on = match text.splitn(4, ' ').collect::<Vec<_>>()[..] {
            [":", ..] => text
                .strip_prefix(": ")
                .map(|words| On::Named(words.to_string())),
            ["all"] => Some(On::All),
            [dtype, dim] => instance(dtype, dim, None),
            [dtype, dim, arch] if head_dim(dim).is_some() => instance(dtype, dim, Some(arch)),
            [shape, dtype, mask] => place(shape, dtype, mask).map(On::Problem),
            [shape, dtype, mask, input] => {
                place(shape, dtype, mask).map(|place| On::Case(place, input.to_string()))
            }
            _ => None,
        };
        on.ok_or_else(|| format!("'{text}' is not a problem, case, instance or `: words`"))
    }
}

impl Serialize for On {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for On {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A value, with its 95 % interval if it is an estimate: `5.274`, or `[5.274, 5.272, 5.276]`. JSON has no NaN, so null stands
/// for it.
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

/// The median.
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
    /// The ends of its interval; twice the value if it has none.
    pub fn ends(self) -> (f64, f64) {
        self.interval.unwrap_or((self.value, self.value))
    }

    /// As a record keeps it: counts are whole, everything else has four digits. Intervals are rounded outwards, so that no claim
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

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A whole number is written as one: 216, not 216.0.
        let number = |value: f64| match value {
            whole if whole.fract() == 0.0 && whole.abs() < 9e15 => serde_json::json!(whole as i64),
            other => serde_json::json!(other),
        };
        match self.interval {
            None => number(self.value).serialize(serializer),
            Some((low, high)) => [self.value, low, high].map(number).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Value(f64),
            Interval([Option<f64>; 3]),
        }
        let nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
        Ok(match Option::<Written>::deserialize(deserializer)? {
            None => f64::NAN.into(),
            Some(Written::Value(value)) => value.into(),
            Some(Written::Interval([value, low, high])) => (nan(value), nan(low), nan(high)).into(),
        })
    }
}

/// The verdict of a gate, with its reason unless it is PASS, and with counts if it judged several cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    #[serde(rename = "is")]
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
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
    fn a_row_is_one_line_that_reads_back() {
        let mut row = Row::new(
            "stage5-swizzle/swizzle-32x256-k4",
            On::Problem(Place::claims(Dtype::F16)),
            Source::Gpu,
        )
        .under("warm L2")
        .figure(Metric::P50, (5.2741, 5.2722, 5.2758))
        .figure(Metric::Samples, 500_usize)
        .verdict(&GateResult::judge(GateId::C1, false, "NaN left"));
        for (metric, figure) in &mut row.figures {
            *figure = figure.rounded(*metric);
        }
        let line = serde_json::to_string(&row).unwrap();
        insta::assert_snapshot!(line, @r#"{"subject":"stage5-swizzle/swizzle-32x256-k4","on":"mission f16 full","by":"gpu","under":"warm L2","figures":{"p50":[5.274,5.272,5.276],"samples":500},"verdicts":{"C1":{"is":"fail","reason":"NaN left"}}}"#);
        assert_eq!(serde_json::from_str::<Row>(&line).unwrap(), row);
        assert!(serde_json::from_str::<Row>(&line.replace("\"by\"", "\"bye\"")).is_err());
    }

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
        let nan = rounded((f64::NAN, f64::NAN, f64::NAN));
        assert!(
            nan.interval
                .is_some_and(|(low, high)| low.is_nan() && high.is_nan())
        );
    }

    #[test]
    fn every_place_reads_back() {
        let instance = |arch: Option<&str>| On::Instance {
            dtype: Dtype::E4m3,
            head_dim: 128,
            arch: arch.map(String::from),
        };
        let place = || Place::new("1x2:1x113:203x64", Dtype::F16, Mask::Causal);
        let words = "kernel.cu:166 __syncthreads: \"tile read\"".to_string();
        let places = [
            (On::All, "all"),
            (On::Problem(place()), "1x2:1x113:203x64 f16 causal"),
            (
                On::Case(place(), "normal:3".into()),
                "1x2:1x113:203x64 f16 causal normal:3",
            ),
            (
                On::Case(place(), "a b.safetensors".into()),
                "1x2:1x113:203x64 f16 causal a b.safetensors",
            ),
            (instance(None), "e4m3 d128"),
            (instance(Some("sm_90a")), "e4m3 d128 sm_90a"),
            (On::Named(words.clone()), &format!(": {words}")),
        ];
        for (on, text) in places {
            assert_eq!(on.to_string(), text);
            assert_eq!(text.parse::<On>().as_ref(), Ok(&on));
        }
        for wrong in [
            "",
            "mission",
            "mission f16",
            "mission f32 full",
            "f16 d64 sm_89 sm_90a",
        ] {
            assert!(wrong.parse::<On>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_failure_stays_and_no_number_is_no_number() {
        let pass = GateResult::judge(GateId::H1, true, "clean");
        let fail = GateResult::judge(GateId::H1, false, "race");
        let row = Row::new("s/v", On::All, Source::Emulator)
            .verdict(&fail)
            .verdict(&pass);
        assert_eq!(
            row.failed()
                .map(|(gate, judged)| (gate, judged.reason.as_str()))
                .collect::<Vec<_>>(),
            [(GateId::H1, "race")]
        );
        let nan = Row::new("s/v", On::All, Source::Emulator).figure(Metric::MaxError, f64::NAN);
        let read: Row = serde_json::from_str(&serde_json::to_string(&nan).unwrap()).unwrap();
        assert!(read.value(Metric::MaxError).unwrap().is_nan());
    }
}
