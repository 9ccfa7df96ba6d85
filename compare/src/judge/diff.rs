//! What differs between two records: the one definition of "changed", for `compare diff` and for COMPARE.md. The registry of
//! metrics says when a difference counts and what it means.
//!
//! Figures that must not be compared (another GPU, driver, compiler or state of the cache) are missing, with the reason. If latency
//! was measured on both sides, it decides what occupancy and counters are worth.

use super::claims::{self, is_of_gpu};
use super::list::joined;
use super::{Known, Named, best, place, state};
use crate::record::meta::{DeviceCompiler, Gpu, Progress, Scope, by_id};
use crate::record::store::Samples;
use crate::record::{Claim, Figure, On, Place, Record, Row, Source, StageMeta, Subject};
use common::metric::{self, Better, Metric, Threshold};
use common::timing::Change as Decided;
use common::timing::stats::{Interval, Ratio};
use common::verdict::{GateId, Verdict};
use rayon::prelude::*;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How one figure or verdict changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A gate fails now, or a figure moved the wrong way.
    Worse,
    /// The evidence does not decide.
    Ambiguous,
    /// One side has no figure, or the two must not be compared.
    Missing,
    Better,
    /// It differs, which by itself is neither good nor bad.
    Differs,
    /// No difference beyond the threshold.
    Same,
}

impl Change {
    pub const ALL: [Change; 6] = [
        Change::Worse,
        Change::Ambiguous,
        Change::Missing,
        Change::Better,
        Change::Differs,
        Change::Same,
    ];

    /// As in `6 worse, 84 better`.
    pub fn word(self) -> &'static str {
        match self {
            Change::Worse => "worse",
            Change::Ambiguous => "undecided",
            Change::Missing => "not compared",
            Change::Better => "better",
            Change::Differs => "neither better nor worse",
            Change::Same => "the same",
        }
    }
}

/// The table that a difference belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Gates, claims, and whether there is a variant at all.
    Gates,
    Latency,
    Errors,
    Resources,
    Counters,
}

impl Group {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

impl Difference {
    /// Whether it is a latency of a kernel that is the same in both records: then the machine or the harness has changed.
    pub fn is_of_one_kernel(&self, base: &Record, new: &Record) -> bool {
        self.ratio.is_some() && new.has_kernel_of(base, &self.subject)
    }
}

/// One figure or verdict on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The variant or stage, or `the record`.
    pub subject: Subject,
    /// The problem, case or instance; absent for the subject as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<On>,
    /// `p50`, `gate C7`, `claim swizzle >= 1.05x over …`.
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    pub group: Group,
    pub change: Change,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// `base / new` of a latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Whether a latency was judged by raw samples, or by the intervals of both medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resampled: Option<bool>,
    /// The reason, with the threshold.
    pub why: String,
    /// Data is missing that the new record should have: the exit code is 3.
    pub required: bool,
}

impl Difference {
    fn new(
        subject: impl Into<Subject>,
        what: impl Into<String>,
        group: Group,
        change: Change,
        why: impl Into<String>,
    ) -> Self {
        Self {
            subject: subject.into(),
            on: None,
            what: what.into(),
            metric: None,
            group,
            change,
            base: None,
            new: None,
            ratio: None,
            resampled: None,
            why: why.into(),
            required: false,
        }
    }

    fn values<T: fmt::Display>(self, base: T, new: T) -> Self {
        self.optional_values(Some(base), Some(new))
    }

    fn optional_values<T: fmt::Display>(self, base: Option<T>, new: Option<T>) -> Self {
        Self {
            base: base.map(|of| of.to_string()),
            new: new.map(|of| of.to_string()),
            ..self
        }
    }

    fn on(self, on: &On) -> Self {
        Self {
            on: Some(on.clone()),
            ..self
        }
    }

    fn of(self, metric: Metric) -> Self {
        Self {
            metric: Some(metric),
            ..self
        }
    }

    fn required(self, required: bool) -> Self {
        Self { required, ..self }
    }
}

const WHOLE: &str = "the record";
const BASE_ONLY: &str = "judged in the base only";

/// What differs between two records. `threshold` is that of latencies (0.02: 2 %).
pub fn differences(base: &Record, new: &Record, threshold: f64) -> Vec<Difference> {
    let sides = Sides::of(base, new, threshold);
    let latencies = sides.latencies();
    let mut found = [
        sides.presence(),
        sides.retired(),
        sides.gates(),
        sides.claims(),
        sides.self_test(),
        sides.errors(),
        sides.figures(&latencies),
        latencies,
    ]
    .concat();
    let stages = new.meta.stages.iter().chain(&base.meta.stages);
    let ids: Vec<&str> = stages.map(|stage| stage.id.as_str()).collect();
    let place = |d: &Difference| ids.iter().position(|id| *id == d.subject.stage());
    found.sort_by_key(|d| (place(d), d.group, d.change));
    found
}

/// The stages whose kernel has changed since `record` was made.
pub fn outdated(record: &Record, now: &[StageMeta]) -> Vec<Difference> {
    let is_outdated = |stage: &&StageMeta| {
        by_id(now, &stage.id).is_some_and(|built| built.identity != stage.identity)
    };
    let why = "the kernel has changed since the new record was made; run `compare` again";
    let stages = record.meta.stages.iter().filter(is_outdated);
    stages.map(|stage| whole_run(&stage.id, why)).collect()
}

/// A whole record that cannot be compared.
pub fn whole(why: impl Into<String>) -> Difference {
    whole_run(WHOLE, why)
}

fn whole_run(subject: &str, why: impl Into<String>) -> Difference {
    Difference::new(subject, "whole run", Group::Gates, Change::Missing, why).required(true)
}

/// The rows of a record that are not of pairs.
fn alone(record: &Record) -> impl Iterator<Item = &Row> {
    record.rows.iter().filter(|row| row.against.is_none())
}

type Index<'a> = BTreeMap<(&'a Subject, &'a On, Source), &'a Row>;

struct Sides<'a> {
    base: &'a Record,
    new: &'a Record,
    threshold: f64,
    old_rows: Index<'a>,
    new_rows: Index<'a>,
}

impl<'a> Sides<'a> {
    fn of(base: &'a Record, new: &'a Record, threshold: f64) -> Self {
        let index = |record: &'a Record| -> Index<'a> {
            let rows = alone(record);
            rows.map(|row| ((&row.subject, &row.on, row.by), row))
                .collect()
        };
        Self {
            base,
            new,
            threshold,
            old_rows: index(base),
            new_rows: index(new),
        }
    }

    fn has_one_backend(&self) -> bool {
        self.base.meta.backend == self.new.meta.backend
    }

    /// Whether the subject's kernel is the same on both sides.
    fn has_one_kernel(&self, subject: &Subject) -> bool {
        self.new.has_kernel_of(self.base, subject)
    }

    /// Whether both were asked to run the same.
    fn has_one_scope(&self) -> bool {
        let of = |record: &'a Record| (record.meta.tier, &record.meta.scope);
        of(self.base) == of(self.new)
    }

    /// Whether the new record was asked to run all that the base ran: the same selection, or a whole tier that is not smaller, on the
    /// same backend and a device that refuses the same variants.
    fn covers(&self) -> bool {
        let (base, new) = (&self.base.meta, &self.new.meta);
        (self.has_one_scope() || new.scope == Scope::Whole && new.tier >= base.tier)
            && self.has_one_backend()
            && refused(self.new).eq(refused(self.base))
    }

    fn presence(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (record, side) in [(self.base, "base"), (self.new, "new record")] {
            if let Progress::Partial { finished, planned } = record.meta.progress {
                found.push(whole(format!(
                    "the {side} is of a run that ended after {finished} of {planned} cases"
                )));
            }
        }
        if !self.has_one_backend() {
            let (new, base) = (place(self.new), place(self.base));
            found.push(whole(format!(
                "{new} against {base} (base): gates and latencies do not compare"
            )));
        }
        let row = |subject, change, why: &str| {
            Difference::new(subject, "variant", Group::Gates, change, why)
        };
        let [before, after]: [Vec<Subject>; 2] =
            [self.base, self.new].map(|record| record.variants().collect());
        for subject in &before {
            let is_checked = |record| state::summary(record, subject).is_some();
            let is_declared = after.contains(subject);
            let (change, why) = match () {
                () if is_declared && (is_checked(self.new) || !is_checked(self.base)) => continue,
                () if is_declared => {
                    let why = "it was checked in the base, but not in the new record";
                    (Change::Missing, why)
                }
                () if refused(self.new).any(|other| other == *subject) => {
                    let why = "the device of the new record refuses it";
                    (Change::Missing, why)
                }
                () => {
                    let why = "the new record does not declare it: removed or renamed";
                    (Change::Differs, why)
                }
            };
            found.push(row(subject, change, why).required(is_declared));
        }
        let added = after.iter().filter(|subject| !before.contains(subject));
        let why = "the base does not have it";
        found.extend(added.map(|subject| row(subject, Change::Differs, why)));
        found
    }

    /// Metrics and claims of either record that the registry no longer has. They are reported; nothing is missing.
    fn retired(&self) -> Vec<Difference> {
        let why = "the registry of metrics does not have it: removed or renamed";
        let row =
            |subject, what| Difference::new(subject, what, Group::Gates, Change::Differs, why);
        let (mut metrics, mut claims) = (BTreeSet::new(), BTreeSet::new());
        for record in [self.base, self.new] {
            metrics.extend(record.rows.iter().flat_map(|row| row.retired.keys()));
            for stage in &record.meta.stages {
                let of_stage = stage.retired.iter().map(retired_claim);
                claims.extend(of_stage.map(|claim| (stage.id.as_str(), claim)));
            }
        }
        let metrics = metrics
            .iter()
            .map(|name| row(WHOLE, format!("metric {name}")));
        let claims = claims
            .iter()
            .map(|(stage, claim)| row(stage, format!("claim {claim}")));
        metrics.chain(claims).collect()
    }

    /// A gate that newly fails is worse whatever the backends are. Else the backends must be the same, except for R1, which judges the
    /// compiler's output.
    fn gates(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for subject in self.new.variants() {
            let [before, after] =
                [self.base, self.new].map(|record| state::gates(record, &subject));
            let was = |gate| before.get(&gate).map(|judged| judged.verdict);
            let is = |gate| after.get(&gate).map(|judged| judged.verdict);
            let row = |gate, change, why: &str| {
                let row =
                    Difference::new(&subject, format!("gate {gate}"), Group::Gates, change, why);
                row.optional_values(was(gate), is(gate))
            };
            for (&gate, judged) in &after {
                let is_comparable = self.has_one_backend() || gate == GateId::R1;
                let Some(change) = turned(was(gate), judged.verdict, is_comparable) else {
                    continue;
                };
                let is_required = change == Change::Missing && self.covers();
                found.push(row(gate, change, &judged.reason).required(is_required));
            }
            // `presence` has a row for a variant that was not run at all.
            if !after.is_empty() && self.covers() {
                let judged_before = before
                    .iter()
                    .filter(|(_, judged)| judged.verdict != Verdict::NoData);
                let lost = judged_before.filter(|(gate, _)| !after.contains_key(gate));
                found.extend(lost.map(|(&gate, _)| {
                    row(gate, Change::Missing, BASE_ONLY).required(gate != GateId::R1)
                }));
            }
        }
        found
    }

    /// The claims that both sides judged; those that hold for one GPU only if it is the same.
    fn claims(&self) -> Vec<Difference> {
        let [was, is] = [self.base, self.new].map(|record| record.meta.gpu());
        let is_comparable = |claim: &Claim| was == is || !is_of_gpu(claim);
        let row = |(stage, claim): &(&str, String), change, why: String| {
            Difference::new(*stage, format!("claim {claim}"), Group::Gates, change, why)
        };
        let key = |stage: &'a StageMeta, claim: &Claim| (stage.id.as_str(), claim.to_string());
        let mut before: BTreeMap<(&str, String), Verdict> = claims::judged(self.base)
            .map(|(stage, claim, finding)| (key(stage, claim), finding.verdict))
            .collect();
        let mut found = Vec::new();
        for (stage, claim, finding) in claims::judged(self.new) {
            let key = key(stage, claim);
            let was = before.remove(&key);
            let change = turned(was, finding.verdict, true).filter(|_| is_comparable(claim));
            let is_refuted = self.new.meta.refuted(key.0, &key.1).is_some();
            let row = match change {
                None => continue,
                Some(Change::Worse) if is_refuted => {
                    let why = format!("refuted and recorded: {}", finding.reason);
                    row(&key, Change::Differs, why)
                }
                Some(change) => row(&key, change, finding.reason),
            };
            found.push(row.optional_values(was, Some(finding.verdict)));
        }
        // A claim that was withdrawn is reported: deleting it must not hide that it fails. So is one that the new record has no
        // figures for.
        for (key, was) in &before {
            let Some(stage) = self.new.stage(key.0) else {
                continue;
            };
            let row = match stage.claims.iter().find(|claim| claim.to_string() == key.1) {
                None => row(key, Change::Differs, "no longer claimed".into()),
                Some(claim) if !is_comparable(claim) => continue,
                Some(_) => row(key, Change::Missing, BASE_ONLY.into()).required(self.covers()),
            };
            found.push(row.optional_values(Some(was), None));
        }
        found
    }

    /// Planted faults and mutants that survive unexpectedly, and faults that are no longer planted.
    fn self_test(&self) -> Vec<Difference> {
        let both = [self.base, self.new];
        let [Some(_), now] = both.map(|record| record.by(Source::SelfTest).next()) else {
            return Vec::new();
        };
        let row = |change, why| Difference::new(WHOLE, SELF_TEST, Group::Gates, change, why);
        if now.is_none() {
            let why = "the base has a self-test, the new record has none";
            return vec![row(Change::Missing, why.to_string()).required(self.covers())];
        }
        let wrong = both.map(|record| -> BTreeSet<String> {
            let found = state::self_test(record);
            found
                .map(|row| format!("{}{}", row.subject, row.on))
                .collect()
        });
        let [was, is] = &wrong;
        let change = match (is.difference(was).next(), was.difference(is).next()) {
            (Some(_), _) => Change::Worse,
            (None, Some(_)) => Change::Better,
            (None, None) => Change::Same,
        };
        // Sites change with the kernels; the faults are the harness's own.
        let is_lost = |row: &&Row| {
            row.subject.name().is_empty()
                && !row.figures.is_empty()
                && !self.new_rows.contains_key(&(&row.subject, &row.on, row.by))
        };
        let faults = self.base.by(Source::SelfTest);
        let lost: Vec<&On> = faults.filter(is_lost).map(|row| &row.on).collect();
        let lost = (!lost.is_empty()).then(|| {
            let why = format!("planted in the base only: {}", joined(lost, "; "));
            row(Change::Missing, why).required(true)
        });
        let found = row(change, joined(is, "; ")).values(was.len(), is.len());
        std::iter::once(found).chain(lost).collect()
    }

    /// The latencies of both sides, and per stage how many only one side timed.
    fn latencies(&self) -> Vec<Difference> {
        let row = |stage: &StageMeta, why| {
            Difference::new(&*stage.id, "p50", Group::Latency, Change::Missing, why)
        };
        let stages = &self.new.meta.stages;
        if let Some(why) = self.other_gpu() {
            let is_timed = |stage: &&StageMeta| {
                let mut records = [self.base, self.new].into_iter();
                records.any(|record| timed_of(record, stage).next().is_some())
            };
            let is_required = super::is_timed(self.base);
            let line = |stage| row(stage, why.clone()).required(is_required);
            return stages.iter().filter(is_timed).map(line).collect();
        }
        let timed_in = |rows: &Index<'a>, row: &Row| {
            let found = rows.get(&(&row.subject, &row.on, row.by)).copied();
            found.filter(|other| other.has(Metric::P50))
        };
        let pairs: Vec<(&Row, &Row)> = best::timed(self.new)
            .filter_map(|row| Some((timed_in(&self.old_rows, row)?, row)))
            .collect();
        let latency = |(old, row): &(&Row, &Row)| {
            let samples = |record: &'a Record| record.samples(&row.subject, &row.on, row.by);
            self.latency(old, row, samples(self.base).zip(samples(self.new)))
        };
        let mut found: Vec<Difference> = pairs.par_iter().map(latency).collect();
        for stage in stages {
            // A run may time some variants only, if it records that. A removed variant has a row of its own.
            let mut left_out = self.new.meta.left_out.iter();
            let says_so = left_out.any(|scope| scope.stage == stage.id && scope.left_out > 0);
            let is_declared = |row: &&Row| stage.variant(row.subject.name()).is_some();
            let is_gone = |row: &&Row| timed_in(&self.new_rows, row).is_none();
            let is_added = |row: &&Row| timed_in(&self.old_rows, row).is_none();
            let gone = timed_of(self.base, stage)
                .filter(is_gone)
                .filter(is_declared);
            let added = timed_of(self.new, stage).filter(is_added);
            for (count, side, is_required) in [
                (gone.count(), "the base", !says_so),
                (added.count(), "the new record", false),
            ] {
                let why = format!("{count} timed in {side} only");
                found.extend((count > 0).then(|| row(stage, why).required(is_required)));
            }
        }
        found
    }

    /// Why the latencies of the two records must not be compared, if so.
    fn other_gpu(&self) -> Option<String> {
        let untimed = |side: &str, record: &Record| match (
            best::timed(record).next(),
            &record.meta.machine.gpu,
        ) {
            (Some(_), _) => None,
            (None, Gpu::Absent { .. }) => {
                Some(format!("{side} was not timed: it ran without a GPU"))
            }
            (None, Gpu::Present { .. }) => Some(format!("{side} was not timed")),
        };
        let gpu = |record: &Record| match &record.meta.machine.gpu {
            Gpu::Present {
                name,
                arch,
                driver,
                multiprocessors,
                ..
            } => Some((
                format!("{name} ({arch}, {multiprocessors} SMs)"),
                driver.clone(),
            )),
            Gpu::Absent { .. } => None,
        };
        untimed("the base", self.base)
            .or(untimed("the new record", self.new))
            .or_else(|| {
                let ((was, old_driver), (is, driver)) = (gpu(self.base)?, gpu(self.new)?);
                let other_driver = || Some(format!("driver {}", against(old_driver, driver)?));
                against(was, is).or_else(other_driver)
            })
    }

    /// One latency on both sides, judged by the interval of the ratio of the medians.
    fn latency(&self, old: &Row, new: &Row, raw: Option<(&Samples, &Samples)>) -> Difference {
        let row = |change, why| {
            Difference::new(&new.subject, "p50", Group::Latency, change, why)
                .on(&new.on)
                .of(Metric::P50)
        };
        if let Some(why) = best::withheld(self.base, old).or_else(|| best::withheld(self.new, new))
        {
            return row(Change::Missing, why);
        }
        if let On::Problem(place) = &new.on
            && self.base.meta.shapes.get(&place.shape) != self.new.meta.shapes.get(&place.shape)
        {
            let why = format!("{} is another shape in the base", place.shape);
            return row(Change::Missing, why);
        }
        let [was, is] = [old, new].map(|row| row.under.as_deref().unwrap_or("unknown"));
        if let Some(why) = against(was, is) {
            return row(Change::Missing, why);
        }
        let resampled =
            raw.and_then(|(old, new)| Ratio::of_medians(&old.device_ns, &new.device_ns).ok());
        let is_resampled = Some(resampled.is_some());
        let ratio = resampled.unwrap_or_else(|| ratio(old, new));
        let (change, mut why) = self.judge_latency(&ratio, old, new);
        if matches!(change, Change::Worse | Change::Better) && self.has_one_kernel(&new.subject) {
            why += "; the kernel has not changed: look at the machine and the harness";
        }
        let [was, is] = [old, new].map(|row| Metric::P50.show(best::p50(row)));
        Difference {
            ratio: Some(ratio),
            resampled: is_resampled,
            ..row(change, why).values(was, is)
        }
    }

    fn judge_latency(&self, ratio: &Ratio, old: &Row, new: &Row) -> (Change, String) {
        let margin = format!("{:.1} %", 100.0 * self.threshold);
        let decided = Decided::of(ratio, self.threshold);
        let Ratio { value, interval } = ratio;
        let holds_one = interval.low <= 1.0 && interval.high >= 1.0;
        let noise = [old, new].map(|row| {
            let p50 = best::p50(row);
            row.value(Metric::P90).map_or(0.0, |p90| (p90 - p50) / p50)
        });
        let noise = noise[0].max(noise[1]);
        // In cycles: a change of the clock is not the kernel's.
        let clocks = old.value(Metric::SmMhz).zip(new.value(Metric::SmMhz));
        let scale = clocks.map_or(1.0, |(was, is)| was / is);
        let in_cycles = Ratio {
            value: value * scale,
            interval: Interval {
                low: interval.low * scale,
                high: interval.high * scale,
            },
        };
        let beyond = |change| (change, format!("beyond {margin}"));
        match decided {
            Decided::Same => (Change::Same, format!("within {margin}")),
            Decided::Ambiguous if holds_one && self.has_one_kernel(&new.subject) => {
                let why = format!(
                    "the interval crosses {margin} and contains 1, and the kernel has not changed"
                );
                (Change::Same, why)
            }
            Decided::Ambiguous => (Change::Ambiguous, format!("the interval crosses {margin}")),
            _ if Decided::of(ratio, self.threshold.max(noise)) != decided => {
                let noise = 100.0 * noise;
                let why =
                    format!("beyond {margin}, but not beyond the samples' noise of {noise:.1} %");
                (Change::Ambiguous, why)
            }
            _ if Decided::of(&in_cycles, self.threshold) != decided => {
                let (was, is) = clocks.unwrap_or_default();
                let why = format!(
                    "beyond {margin} in time, but not in cycles: {was:.0} MHz against {is:.0} MHz"
                );
                (Change::Ambiguous, why)
            }
            Decided::Faster => beyond(Change::Better),
            Decided::Slower => beyond(Change::Worse),
        }
    }

    /// Errors as shares of their gates' bounds, of every variant that both sides checked: of the cases that both have, the one that
    /// moved furthest; else the largest of all cases.
    fn errors(&self) -> Vec<Difference> {
        if !self.has_one_backend() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let cases = |record: &'a Record| -> BTreeMap<(&'a Subject, &'a On), &'a Row> {
            let all = record.rows.iter().chain(&record.cases);
            let cases = all.filter(|row| matches!(row.on, On::Case(..)));
            cases.map(|row| ((&row.subject, &row.on), row)).collect()
        };
        let (before, after) = (cases(self.base), cases(self.new));
        for subject in self.new.variants() {
            let both = [self.base, self.new].map(|record| state::summary(record, &subject));
            let [Some(was), Some(is)] = both else {
                continue;
            };
            // The largest error of other cases would be another figure.
            let as_many =
                self.has_one_scope() && was.value(Metric::Cases) == is.value(Metric::Cases);
            for &metric in Metric::ALL {
                let Threshold::Absolute(margin) = metric.spec().threshold else {
                    continue;
                };
                let both = |old: &Row, new: &Row| old.value(metric).zip(new.value(metric));
                let of_variant = after.iter().filter(|((of, _), _)| **of == subject);
                let shared = of_variant
                    .filter_map(|(key, new)| Some((both(before.get(key)?, new)?, Some(key.1))));
                let whole = both(was, is).filter(|_| as_many).map(|both| (both, None));
                let Some(((was, is), on)) = furthest(shared.collect(), margin).or(whole) else {
                    continue;
                };
                let gate = metric
                    .spec()
                    .gate
                    .into_iter()
                    .map(|gate| format!(" ({gate})"));
                let what = format!("{metric}{}", gate.collect::<String>());
                let why = format!("share of the bound; margin {:.0} % of it", 100.0 * margin);
                let change = moved(was, is, margin);
                let row = Difference::new(&subject, what, Group::Errors, change, why);
                let row = row.of(metric).values(metric.show(was), metric.show(is));
                found.push(Difference {
                    on: on.cloned(),
                    ..row
                });
            }
        }
        found
    }

    /// Every other figure that the registry compares.
    fn figures(&self, latencies: &[Difference]) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut refused = BTreeSet::new();
        let is_compared = |metric: &Metric| metric.spec().threshold != Threshold::NotCompared;
        for new in alone(self.new) {
            let old = self.old_rows.get(&(&new.subject, &new.on, new.by));
            let Some((old, group)) = old.zip(group(new)) else {
                continue;
            };
            let stage = new.subject.stage();
            if let Some(why) = self.other_compiler(stage, new.by) {
                let is_new = refused.insert((stage, new.by));
                let missing = || Difference::new(stage, group.name(), group, Change::Missing, why);
                found.extend(is_new.then(missing));
                continue;
            }
            let row = |what, change, why| {
                Difference::new(&new.subject, what, group, change, why).on(&new.on)
            };
            let moved = new.figures.iter().filter_map(|(metric, is)| {
                let was = old.figures.get(metric)?;
                if !is_compared(metric) || was.value == is.value {
                    return None;
                }
                let (change, why) = judge(*metric, *was, *is, self.word(latencies, new));
                let row = row(metric.to_string(), change, why).of(*metric);
                Some(row.values(metric.show(was.value), metric.show(is.value)))
            });
            let moved: Vec<Difference> = moved.collect();
            let is_absent =
                |metric: &&Metric| is_compared(metric) && !new.figures.contains_key(metric);
            let absent = old.figures.keys().filter(is_absent);
            let (lost, removed): (Vec<&Metric>, Vec<&Metric>) =
                absent.partition(|metric| is_measured(**metric, new.by));
            let is_equal = moved.is_empty() && removed.is_empty();
            found.extend(moved);
            if !removed.is_empty() {
                let why = format!("{} no longer measures it: removed", new.by);
                found.push(row(joined(removed, ", "), Change::Differs, why));
            }
            if !lost.is_empty() {
                let note = new.note.as_deref().unwrap_or("");
                let why = format!("the new record has no {}: {note}", joined(lost, ", "));
                found.push(row(group.name(), Change::Missing, why).required(true));
            } else if is_equal && new.by != Source::Kernel {
                found.push(row(group.name(), Change::Same, "exact".into()));
            }
        }
        found.extend(self.lost());
        found
    }

    /// What the base counted or built of a variant, and cases of it, that the new record lacks although it was asked to have them.
    fn lost(&self) -> Vec<Difference> {
        // Built for other architectures, the code differs by intent. Another nvcc, or none, has a line for the whole stage.
        let has_one_build = self.base.meta.toggles == self.new.meta.toggles;
        let is_built_alike =
            |stage: &str| has_one_build && self.other_compiler(stage, Source::Ptxas).is_none();
        let is_gone = |row: &&Row| {
            let is_counted = row.retired.is_empty() || !row.figures.is_empty();
            let stage = self.new.stage(row.subject.stage());
            is_counted
                && stage.is_some_and(|stage| stage.variant(row.subject.name()).is_some())
                && !self.new_rows.contains_key(&(&row.subject, &row.on, row.by))
                && (row.by != Source::Ptxas || is_built_alike(row.subject.stage()))
        };
        let row = |row: &Row| {
            let group = group(row)?;
            let why = match group {
                Group::Counters => "counted in the base only",
                _ => "built in the base only",
            };
            let lost = Difference::new(&row.subject, group.name(), group, Change::Missing, why);
            Some(lost.on(&row.on))
        };
        let fewer = self.new.variants().filter_map(|subject| {
            let [was, is] = [self.base, self.new].map(|record| state::cases(record, &subject));
            let (was, is) = was.zip(is).filter(|(was, is)| is < was)?;
            let why = "it ran fewer than in the base";
            let row = Difference::new(&subject, "cases", Group::Gates, Change::Missing, why);
            Some(row.values(was, is))
        });
        let lost = alone(self.base)
            .filter(is_gone)
            .filter_map(row)
            .chain(fewer);
        let lost = lost.filter(|_| self.covers());
        lost.map(|difference| difference.required(true)).collect()
    }

    fn other_compiler(&self, stage: &str, by: Source) -> Option<String> {
        let (old, new) = (self.base.stage(stage)?, self.new.stage(stage)?);
        let nvcc = |compiler: &DeviceCompiler| match compiler {
            DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}"),
            DeviceCompiler::Absent { .. } => "no GPU compiler".to_string(),
        };
        match by {
            Source::Ptxas => against(nvcc(&old.device_compiler), nvcc(&new.device_compiler)),
            Source::Emulator => against(&old.host_compiler, &new.host_compiler),
            _ => None,
        }
    }

    /// What the latencies of both sides say of the row's kernel: better or worse if all that decide agree.
    fn word(&self, latencies: &[Difference], row: &Row) -> Option<Change> {
        let ran = |arch: &str| {
            let mut records = [self.base, self.new].into_iter();
            records.all(|record| record.meta.machine.gpu.runs(arch))
        };
        let is_of = |place: &Place| match &row.on {
            On::Problem(counted) => place == counted,
            On::Instance {
                dtype,
                head_dim,
                arch: Some(arch),
            } => {
                let shape = self.new.meta.shapes.get(&place.shape);
                place.dtype == *dtype
                    && shape.is_some_and(|shape| shape.head_dim == *head_dim)
                    && ran(arch)
            }
            _ => false,
        };
        let says = |change: Change| {
            latencies.iter().any(|difference| {
                let place = difference.on.as_ref().and_then(On::problem);
                difference.change == change
                    && difference.subject == row.subject
                    && place.is_some_and(is_of)
            })
        };
        match (says(Change::Better), says(Change::Worse)) {
            (true, false) => Some(Change::Better),
            (false, true) => Some(Change::Worse),
            _ => None,
        }
    }
}

/// The latencies of a stage.
fn timed_of<'a>(record: &'a Record, stage: &StageMeta) -> impl Iterator<Item = &'a Row> {
    best::timed(record).filter(|row| row.subject.stage() == stage.id)
}

/// The group of what is compiled or counted.
fn group(row: &Row) -> Option<Group> {
    match row.by {
        Source::Ptxas | Source::Kernel => Some(Group::Resources),
        Source::Emulator => row.on.problem().map(|_| Group::Counters),
        _ => None,
    }
}

/// Whether `by` still measures `metric`.
fn is_measured(metric: Metric, by: Source) -> bool {
    match by {
        Source::Emulator => Metric::all_counted().any(|counted| counted == metric),
        Source::Ptxas => metric.source() == metric::Source::Compiler,
        _ => true,
    }
}

/// `wmma-qk: votes`
fn retired_claim(claim: &serde_json::Value) -> String {
    let word = |key: &str| claim[key].as_str().unwrap_or("?").to_string();
    format!("{}: {}", word("family"), word("metric"))
}

/// The reason not to compare two things that are not the same.
fn against<T: fmt::Display + PartialEq>(was: T, is: T) -> Option<String> {
    (was != is).then(|| format!("{was} against {is}"))
}

pub const SELF_TEST: &str = "self-test (S1)";

/// The variants that the record's device refuses.
fn refused(record: &Record) -> impl Iterator<Item = Subject> {
    let of_stage = |stage: &StageMeta| {
        let refused = stage.refused.iter();
        let subjects = refused.map(|refusal| stage.subject(&refusal.variant));
        subjects.collect::<Vec<_>>()
    };
    record.meta.stages.iter().flat_map(of_stage)
}

/// How a verdict changed; `None` if that says nothing.
fn turned(was: Option<Verdict>, is: Verdict, is_comparable: bool) -> Option<Change> {
    match (was, is) {
        (Some(Verdict::Fail), Verdict::Fail) => Some(Change::Same),
        (_, Verdict::Fail) => Some(Change::Worse),
        _ if !is_comparable => None,
        (Some(Verdict::Fail), Verdict::Pass) => Some(Change::Better),
        (Some(Verdict::Pass), Verdict::Ambiguous) => Some(Change::Ambiguous),
        (Some(Verdict::Pass | Verdict::Fail), Verdict::NoData) => Some(Change::Missing),
        (Some(was), is) if was == is => Some(Change::Same),
        _ => None,
    }
}

/// The ratio of two medians, by their intervals.
fn ratio(old: &Row, new: &Row) -> Ratio {
    let [old, new] = [old, new].map(|row| row.estimate(Metric::P50));
    let ((from_low, from_high), (to_low, to_high)) = (old.ends(), new.ends());
    Ratio {
        value: old.value / new.value,
        interval: Interval {
            low: from_low / to_high,
            high: from_high / to_low,
        },
    }
}

/// An error before and now, and the case.
type Moved<'a> = ((f64, f64), Option<&'a On>);

/// The case whose error grew most; if none grew, the one whose error shrank most.
fn furthest(cases: Vec<Moved<'_>>, margin: f64) -> Option<Moved<'_>> {
    // NaN is worse than any number.
    let moved = |((was, is), _): &Moved<'_>| match is - was {
        moved if !moved.is_nan() => moved,
        _ if was.is_nan() && !is.is_nan() => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    };
    let by_moved = |a: &Moved<'_>, b: &Moved<'_>| moved(a).total_cmp(&moved(b));
    let up = cases.iter().copied().max_by(by_moved)?;
    let down = cases.iter().copied().min_by(by_moved)?;
    let has_shrunk = moved(&up) <= margin && moved(&down) < -margin;
    Some(if has_shrunk { down } else { up })
}

/// How an error changed, given as a share of its bound.
fn moved(was: f64, is: f64, margin: f64) -> Change {
    let crosses = was <= 1.0 && is > 1.0;
    if is.is_nan() || crosses || is - was > margin {
        Change::Worse
    } else if was.is_nan() || was - is > margin {
        Change::Better
    } else {
        Change::Same
    }
}

/// What a figure that differs means, by its metric.
fn judge(metric: Metric, was: Figure, is: Figure, latency: Option<Change>) -> (Change, String) {
    let spec = metric.spec();
    let change = match spec.better {
        Better::Informational => Change::Differs,
        Better::Lower if is.value < was.value => Change::Better,
        Better::Higher if is.value > was.value => Change::Better,
        Better::Lower | Better::Higher => Change::Worse,
    };
    let is_contradicted = matches!(
        (change, latency),
        (Change::Better, Some(Change::Worse)) | (Change::Worse, Some(Change::Better))
    );
    match spec.threshold {
        Threshold::ExactUnlessLatency if is_contradicted => (
            Change::Differs,
            "the measured latency says the opposite".into(),
        ),
        _ => (change, spec.because.into()),
    }
}

/// The newest older record that the subject of a report can be compared with (same backend, same GPU if there is one), and what
/// differs. A record of some stages is completed by the records before it.
pub fn since<'a>(known: &Known<'a>) -> Option<(&'a str, Cow<'a, Record>, Vec<Difference>)> {
    let (name, record) = known.subject()?;
    if record.meta.device.is_some() {
        return None;
    }
    let is_like = |other: &Record| {
        other.meta.backend == record.meta.backend
            && other.meta.gpu() == record.meta.gpu()
            && other.rows.iter().any(|row| row.on == On::All)
    };
    let committed = known.committed.iter();
    let earlier = committed.take_while(|(other, _)| other.as_str() != name);
    let together = |before: Option<(&'a str, Cow<'a, Record>)>, (name, next): &'a Named| {
        let next = match &before {
            Some((_, older)) if next.is_of_stages() => Cow::Owned(next.clone().on_top_of(older)),
            _ => Cow::Borrowed(next),
        };
        Some((name.as_str(), next))
    };
    let alike = earlier.filter(|(_, other)| is_like(other));
    let (base_name, base) = alike.fold(None, together)?;
    let found = differences(&base, record, common::metric::LATENCY_CHANGE);
    Some((base_name, base, found))
}

#[cfg(test)]
mod tests;
