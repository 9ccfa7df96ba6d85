//! What differs between two records: the one notion of "changed", for `compare diff` and for COMPARE.md. The registry of
//! metrics says when a figure differs and what that means; here it is asked.
//!
//! What cannot be compared as if it were the same (another GPU, driver, compiler, state of the cache) is missing, with the
//! reason. Where latency was measured on both sides, it has the last word on what occupancy and counters are worth.

use super::claims::{self, Finding, is_of_gpu};
use super::list::{grouped, joined};
use super::{Known, Named, best, place, state};
use crate::record::meta::{DeviceCompiler, Gpu, Progress, Scope};
use crate::record::store::Samples;
use crate::record::{Claim, Figure, On, Record, Row, Source, StageMeta, Subject};
use common::metric::{self, Better, Metric, Threshold};
use common::timing::Change as Decided;
use common::timing::stats::{Interval, Ratio};
use common::verdict::{GateId, Verdict};
use rayon::prelude::*;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What became of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A gate fails now, or a figure that is better one way moved the other.
    Worse,
    /// The evidence does not decide.
    Ambiguous,
    /// There is nothing to compare, or it must not be compared.
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

    /// `worse`, as in a count of them.
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

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_uppercase())
    }
}

/// The table that a difference belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Gates, claims, and whether a variant is there at all.
    Gates,
    Latency,
    Errors,
    Resources,
    Counters,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// One figure or verdict on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The variant or stage; `the record` for what concerns all of it.
    pub subject: Subject,
    /// Where: a problem, an instance; absent for what concerns the subject as a whole.
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
    /// `base / new` with its interval, of a latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// Of a latency that was judged: whether from raw samples, or from the intervals of both medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resampled: Option<bool>,
    /// In words, with the threshold.
    pub why: String,
    /// Missing data that there should be: the exit code is 3.
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
        self.verdicts(Some(base), Some(new))
    }

    /// What a gate or claim says on both sides, where it says something.
    fn verdicts<T: fmt::Display>(self, base: Option<T>, new: Option<T>) -> Self {
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

/// Two records side by side. `threshold` is the latency's (0.02: 2 %).
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
    let ids: Vec<&str> = new
        .meta
        .stages
        .iter()
        .chain(&base.meta.stages)
        .map(|stage| stage.id.as_str())
        .collect();
    found.sort_by_key(|d| {
        (
            ids.iter().position(|id| *id == d.subject.stage()),
            d.group,
            d.change,
        )
    });
    found
}

/// Stages whose kernel is another one now than when `record` was made.
pub fn outdated(record: &Record, now: &[StageMeta]) -> Vec<Difference> {
    let is_other = |stage: &&StageMeta| {
        now.iter()
            .any(|built| built.id == stage.id && built.identity != stage.identity)
    };
    let why = "the kernel has changed since the new record was made; run `compare` again";
    let difference = |stage: &StageMeta| {
        Difference::new(&*stage.id, "whole run", Group::Gates, Change::Missing, why).required(true)
    };
    record
        .meta
        .stages
        .iter()
        .filter(is_other)
        .map(difference)
        .collect()
}

/// What keeps a whole record from being compared.
pub fn whole(why: impl Into<String>) -> Difference {
    Difference::new(WHOLE, "whole run", Group::Gates, Change::Missing, why).required(true)
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
            let rows = record.rows.iter().filter(|row| row.against.is_none());
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

    /// Whether both set out to run the same.
    fn has_one_scope(&self) -> bool {
        let of = |record: &'a Record| (record.meta.tier, &record.meta.scope);
        of(self.base) == of(self.new)
    }

    /// Whether the new record set out to run all that the base did: the same selection, or a whole tier that is no smaller;
    /// and both ran on the same backend and a device that refuses the same.
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
            let (change, why) = if is_declared && is_checked(self.new) {
                continue;
            } else if is_declared && is_checked(self.base) {
                let why = "it was checked in the base, and not in the new record";
                (Change::Missing, why)
            } else if is_declared {
                continue;
            } else if refused(self.new).any(|other| other == *subject) {
                let why = "the new record is of a device that refuses it";
                (Change::Missing, why)
            } else {
                let why = "the new record does not declare it: removed, or renamed";
                (Change::Differs, why)
            };
            found.push(row(subject, change, why).required(is_declared));
        }
        let added = after.iter().filter(|subject| !before.contains(subject));
        found.extend(
            added.map(|subject| row(subject, Change::Differs, "the base does not have it")),
        );
        found
    }

    /// What either record measured or claimed by a metric that the registry no longer has. It is said, and nothing is missing.
    fn retired(&self) -> Vec<Difference> {
        let why = "the registry of metrics does not have it: removed, or renamed";
        let row =
            |subject, what| Difference::new(subject, what, Group::Gates, Change::Differs, why);
        let (mut metrics, mut claims) = (BTreeSet::new(), BTreeSet::new());
        for record in [self.base, self.new] {
            metrics.extend(record.rows.iter().flat_map(|row| row.retired.keys()));
            let of_stage = |stage: &'a StageMeta| {
                stage
                    .retired
                    .iter()
                    .map(|claim| (stage.id.as_str(), retired_claim(claim)))
            };
            claims.extend(record.meta.stages.iter().flat_map(of_stage));
        }
        let metrics = metrics
            .into_iter()
            .map(|name| row(WHOLE, format!("metric {name}")));
        metrics
            .chain(
                claims
                    .into_iter()
                    .map(|(stage, claim)| row(stage, format!("claim {claim}"))),
            )
            .collect()
    }

    /// A gate that fails now and did not fail before is worse whatever the backend; all else needs the same backend, but
    /// for R1, which is of the compiler.
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
                row.verdicts(was(gate), is(gate))
            };
            for (&gate, judged) in &after {
                let is_comparable = self.has_one_backend() || gate == GateId::R1;
                let Some(change) = turned(was(gate), judged.verdict, is_comparable) else {
                    continue;
                };
                let is_required = change == Change::Missing && self.covers();
                found.push(row(gate, change, &judged.reason).required(is_required));
            }
            // A variant that was not run at all has a row of its own.
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

    /// The claims that both sides judged; those of a GPU on one GPU only.
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
        for (
            stage,
            claim,
            Finding {
                verdict, reason, ..
            },
        ) in claims::judged(self.new)
        {
            let key = key(stage, claim);
            let was = before.remove(&key);
            let Some(change) = turned(was, verdict, true).filter(|_| is_comparable(claim)) else {
                continue;
            };
            let is_refuted =
                change == Change::Worse && self.new.meta.refuted(key.0, &key.1).is_some();
            let row = match is_refuted {
                true => row(
                    &key,
                    Change::Differs,
                    format!("refuted and recorded: {reason}"),
                ),
                false => row(&key, change, reason),
            };
            found.push(row.verdicts(was, Some(verdict)));
        }
        // A claim that is taken back is said, lest one that fails be settled by deleting it; so is one that the new record
        // has no figures of.
        for (key, was) in &before {
            let Some(stage) = self.new.stage(key.0) else {
                continue;
            };
            let row = match stage.claims.iter().find(|claim| claim.to_string() == key.1) {
                None => row(key, Change::Differs, "no longer claimed".into()),
                Some(claim) if !is_comparable(claim) => continue,
                Some(_) => row(key, Change::Missing, BASE_ONLY.into()).required(self.covers()),
            };
            found.push(row.verdicts(Some(was), None));
        }
        found
    }

    /// Planted faults that survive, and synchronisation that is not as listed; and faults that are planted no more.
    fn self_test(&self) -> Vec<Difference> {
        let both = [self.base, self.new];
        let [Some(_), now] = both.map(|record| record.by(Source::SelfTest).next()) else {
            return Vec::new();
        };
        let row = |change, why| Difference::new(WHOLE, SELF_TEST, Group::Gates, change, why);
        if now.is_none() {
            let why = "the gates were not tested: the base has a self-test, the new record none";
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
        // Sites come and go with their kernels; the faults are the harness's own.
        let is_lost = |row: &&Row| {
            row.subject.name().is_empty()
                && !row.figures.is_empty()
                && !self.new_rows.contains_key(&(&row.subject, &row.on, row.by))
        };
        let lost: Vec<&On> = self
            .base
            .by(Source::SelfTest)
            .filter(is_lost)
            .map(|row| &row.on)
            .collect();
        let lost = (!lost.is_empty()).then(|| {
            let why = format!("planted in the base only: {}", joined(lost, "; "));
            row(Change::Missing, why).required(true)
        });
        let found = row(change, joined(is, "; ")).values(was.len(), is.len());
        std::iter::once(found).chain(lost).collect()
    }

    /// The latencies of both sides. What one side alone timed is one line a stage.
    fn latencies(&self) -> Vec<Difference> {
        let row = |stage: &StageMeta, why| {
            Difference::new(&*stage.id, "p50", Group::Latency, Change::Missing, why)
        };
        let stages = self.new.meta.stages.iter();
        if let Some(why) = self.other_gpu() {
            let is_timed = |record, stage| timed_of(record, stage).next().is_some();
            let of_either =
                stages.filter(|stage| is_timed(self.base, stage) || is_timed(self.new, stage));
            let is_required = super::is_timed(self.base);
            return of_either
                .map(|stage| row(stage, why.clone()).required(is_required))
                .collect();
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
            // A run times some variants only where it says so; a removed variant has a row of its own.
            let says_so = self
                .new
                .meta
                .left_out
                .iter()
                .any(|scope| scope.stage == stage.id && scope.left_out > 0);
            let gone =
                timed_of(self.base, stage).filter(|row| timed_in(&self.new_rows, row).is_none());
            let gone = gone
                .filter(|row| stage.variant(row.subject.name()).is_some())
                .count();
            let added = timed_of(self.new, stage)
                .filter(|row| timed_in(&self.old_rows, row).is_none())
                .count();
            for (count, side, is_required) in [
                (gone, "the base", !says_so),
                (added, "the new record", false),
            ] {
                let line =
                    || row(stage, format!("{count} timed in {side} only")).required(is_required);
                found.extend((count > 0).then(line));
            }
        }
        found
    }

    /// Why no latency of the two records may be compared, if so.
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

    /// One latency on both sides, by the interval of the medians' ratio.
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
            return row(
                Change::Missing,
                format!("{} is another shape in the base", place.shape),
            );
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
        let percent = 100.0 * self.threshold;
        let decided = Decided::of(ratio, self.threshold);
        let holds_one = ratio.interval.low <= 1.0 && ratio.interval.high >= 1.0;
        match decided {
            Decided::Same => return (Change::Same, format!("within {percent:.1} %")),
            Decided::Ambiguous if holds_one && self.has_one_kernel(&new.subject) => {
                let why = format!(
                    "the interval crosses {percent:.1} % and holds 1, and the kernel has not changed"
                );
                return (Change::Same, why);
            }
            Decided::Ambiguous => {
                return (
                    Change::Ambiguous,
                    format!("the interval crosses {percent:.1} %"),
                );
            }
            Decided::Faster | Decided::Slower => {}
        }
        let noise = |row: &Row| {
            row.value(Metric::P90)
                .map_or(0.0, |p90| (p90 - best::p50(row)) / best::p50(row))
        };
        let noise = noise(old).max(noise(new));
        if Decided::of(ratio, self.threshold.max(noise)) != decided {
            let why = format!(
                "beyond {percent:.1} %, but not beyond the samples' noise of {:.1} %",
                100.0 * noise
            );
            return (Change::Ambiguous, why);
        }
        // In cycles: a clock that moved moves the time without any doing of the kernel.
        if let (Some(was), Some(is)) = (old.value(Metric::SmMhz), new.value(Metric::SmMhz)) {
            let scale = was / is;
            let interval = Interval {
                low: ratio.interval.low * scale,
                high: ratio.interval.high * scale,
            };
            if Decided::of(
                &Ratio {
                    value: ratio.value * scale,
                    interval,
                },
                self.threshold,
            ) != decided
            {
                let why = format!(
                    "beyond {percent:.1} % in time and not in cycles: {was:.0} MHz against {is:.0} MHz"
                );
                return (Change::Ambiguous, why);
            }
        }
        let change = if decided == Decided::Faster {
            Change::Better
        } else {
            Change::Worse
        };
        (change, format!("beyond {percent:.1} %"))
    }

    /// The errors of every variant that both sides checked, over the bounds of their gates: of the cases that both have,
    /// the one that moved furthest; else the largest over all cases.
    fn errors(&self) -> Vec<Difference> {
        if !self.has_one_backend() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let cases = |record: &'a Record| -> BTreeMap<(&'a Subject, &'a On), &'a Row> {
            let all = record
                .rows
                .iter()
                .chain(&record.cases)
                .filter(|row| matches!(row.on, On::Case(..)));
            all.map(|row| ((&row.subject, &row.on), row)).collect()
        };
        let (before, after) = (cases(self.base), cases(self.new));
        for subject in self.new.variants() {
            let both = [self.base, self.new].map(|record| state::summary(record, &subject));
            let [Some(was), Some(is)] = both else {
                continue;
            };
            // The largest of other cases is another figure.
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
                    .map_or(String::new(), |gate| format!(" ({gate})"));
                let why = format!("of the bound; margin {:.0} % of it", 100.0 * margin);
                let change = moved(was, is, margin);
                let row = Difference::new(
                    &subject,
                    format!("{metric}{gate}"),
                    Group::Errors,
                    change,
                    why,
                );
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
        for new in self.new.rows.iter().filter(|row| row.against.is_none()) {
            let Some(old) = self.old_rows.get(&(&new.subject, &new.on, new.by)) else {
                continue;
            };
            let Some(group) = group(new) else {
                continue;
            };
            let stage = new.subject.stage();
            if let Some(why) = self.other_compiler(stage, new.by) {
                if refused.insert((stage, new.by)) {
                    found.push(Difference::new(
                        stage,
                        group.to_string(),
                        group,
                        Change::Missing,
                        why,
                    ));
                }
                continue;
            }
            let row = |what, change, why| {
                Difference::new(&new.subject, what, group, change, why).on(&new.on)
            };
            let both = new
                .figures
                .iter()
                .filter_map(|(metric, is)| Some((*metric, old.figures.get(metric)?, is)));
            let moved =
                both.filter(|(metric, was, is)| is_compared(metric) && was.value != is.value);
            let moved = moved.map(|(metric, was, is)| {
                let (change, why) = judge(metric, *was, *is, self.word(latencies, new));
                let row = row(metric.to_string(), change, why).of(metric);
                row.values(metric.show(was.value), metric.show(is.value))
            });
            let moved: Vec<Difference> = moved.collect();
            let absent = old
                .figures
                .keys()
                .filter(|metric| is_compared(metric) && !new.figures.contains_key(metric));
            let (lost, removed): (Vec<&Metric>, Vec<&Metric>) =
                absent.partition(|metric| is_measured(**metric, new.by));
            let is_equal = moved.is_empty() && removed.is_empty();
            found.extend(moved);
            if !removed.is_empty() {
                let why = format!("{} no longer measures it: removed", new.by);
                found.push(row(joined(removed, ", "), Change::Differs, why));
            }
            if !lost.is_empty() {
                let why = format!(
                    "the new record has no {}: {}",
                    joined(lost, ", "),
                    new.note.as_deref().unwrap_or("")
                );
                found.push(row(group.to_string(), Change::Missing, why).required(true));
            } else if is_equal && new.by != Source::Kernel {
                found.push(row(group.to_string(), Change::Same, "exact".into()));
            }
        }
        found.extend(self.lost());
        found
    }

    /// What the base counted or built of variants and the new record did not, though it has them and set out to; and cases that
    /// it did not run of them.
    fn lost(&self) -> Vec<Difference> {
        // Built for other architectures on purpose there is other code. Without nvcc, or with another, a line says so for the whole
        // stage.
        let has_one_build = self.base.meta.toggles == self.new.meta.toggles;
        let is_built_alike =
            |stage: &str| has_one_build && self.other_compiler(stage, Source::Ptxas).is_none();
        let is_gone = |row: &&Row| {
            let is_counted = row.retired.is_empty() || !row.figures.is_empty();
            let stage = self.new.stage(row.subject.stage());
            let is_declared =
                stage.is_some_and(|stage| stage.variant(row.subject.name()).is_some());
            is_counted
                && is_declared
                && !self.new_rows.contains_key(&(&row.subject, &row.on, row.by))
                && (row.by != Source::Ptxas || is_built_alike(row.subject.stage()))
        };
        let missing = |subject: &Subject, what: &str, group: Group, why: &str| {
            Difference::new(subject, what, group, Change::Missing, why).required(true)
        };
        let row = |row: &Row| {
            let group = group(row)?;
            let why = match group {
                Group::Counters => "counted in the base only",
                _ => "built in the base only",
            };
            Some(missing(&row.subject, &group.to_string(), group, why).on(&row.on))
        };
        let rows = self.base.rows.iter().filter(|row| row.against.is_none());
        let fewer = self.new.variants().filter_map(|subject| {
            let [was, is] = [self.base, self.new].map(|record| state::cases(record, &subject));
            let (was, is) = was.zip(is).filter(|(was, is)| is < was)?;
            let row = missing(
                &subject,
                "cases",
                Group::Gates,
                "it ran fewer than in the base",
            );
            Some(row.values(was, is))
        });
        let lost = rows.filter(is_gone).filter_map(row).chain(fewer);
        lost.filter(|_| self.covers()).collect()
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

    /// What the latencies of both sides say of what a row is about: better (every one that decides is), worse, or neither.
    fn word(&self, latencies: &[Difference], row: &Row) -> Option<Change> {
        let ran = |arch: &str| {
            [self.base, self.new]
                .iter()
                .all(|record| record.meta.machine.gpu.runs(arch))
        };
        let is_of = |difference: &&Difference| {
            let Some(On::Problem(place)) = &difference.on else {
                return false;
            };
            let head_dim = self
                .new
                .meta
                .shapes
                .get(&place.shape)
                .map(|shape| shape.head_dim);
            difference.subject == row.subject
                && match &row.on {
                    On::Problem(counted) => place == counted,
                    On::Instance {
                        dtype,
                        head_dim: d,
                        arch: Some(arch),
                    } => place.dtype == *dtype && head_dim == Some(*d) && ran(arch),
                    _ => false,
                }
        };
        let changes: Vec<Change> = latencies
            .iter()
            .filter(is_of)
            .map(|difference| difference.change)
            .collect();
        match (
            changes.contains(&Change::Better),
            changes.contains(&Change::Worse),
        ) {
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

/// The table of what is compiled or counted.
fn group(row: &Row) -> Option<Group> {
    match row.by {
        Source::Ptxas | Source::Kernel => Some(Group::Resources),
        Source::Emulator => row.on.problem().map(|_| Group::Counters),
        _ => None,
    }
}

/// Whether the sources still have `by` measure `metric`.
fn is_measured(metric: Metric, by: Source) -> bool {
    match by {
        Source::Emulator => Metric::all_counted().any(|counted| counted == metric),
        Source::Ptxas => metric.source() == metric::Source::Compiler,
        _ => true,
    }
}

/// `wmma-qk: votes`, of a claim as it was written.
fn retired_claim(claim: &serde_json::Value) -> String {
    let word = |key: &str| claim[key].as_str().unwrap_or("?").to_string();
    format!("{}: {}", word("family"), word("metric"))
}

/// What cannot be compared as if it were the same.
fn against<T: fmt::Display + PartialEq>(was: T, is: T) -> Option<String> {
    (was != is).then(|| format!("{was} against {is}"))
}

pub const SELF_TEST: &str = "self-test (S1)";

fn refused(record: &Record) -> impl Iterator<Item = Subject> {
    let stages = record.meta.stages.iter();
    stages.flat_map(|stage| {
        stage
            .refused
            .iter()
            .map(|refusal| stage.subject(&refusal.variant))
    })
}

/// What a verdict turned into; `None` where there is nothing to say.
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

/// Of the medians' intervals.
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

/// An error before and now, and its case.
type Moved<'a> = ((f64, f64), Option<&'a On>);

/// Of cases with an error before and now, the one that moved furthest up; down where none moved up.
fn furthest(cases: Vec<Moved<'_>>, margin: f64) -> Option<Moved<'_>> {
    // No number is the worst, and any number is better than none.
    let moved = |((was, is), _): &Moved<'_>| match is - was {
        moved if !moved.is_nan() => moved,
        _ if was.is_nan() && !is.is_nan() => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    };
    let by_moved = |a: &Moved<'_>, b: &Moved<'_>| moved(a).total_cmp(&moved(b));
    let up = cases.iter().copied().max_by(by_moved)?;
    let down = cases.iter().copied().min_by(by_moved)?;
    Some(if moved(&up) <= margin && moved(&down) < -margin {
        down
    } else {
        up
    })
}

/// An error as a share of its bound, before and now.
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

/// A figure that differs, by the policy of its metric.
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

/// One line for several differences of a subject that say the same of resources or counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub first: Difference,
    /// `registers (f16 d64 sm_89); registers (f16 d64 sm_90a)`.
    pub what: String,
    pub base: String,
    pub new: String,
}

/// Differences as lines of a table.
pub fn lines<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> Vec<Line> {
    let key = |(at, difference): (usize, &'a Difference)| {
        let Difference {
            subject,
            group,
            change,
            why,
            ..
        } = difference;
        let alone = (!matches!(group, Group::Resources | Group::Counters)).then_some(at);
        ((alone, subject, group, change, why), difference)
    };
    let line = |(_, all): (_, Vec<&Difference>)| {
        let what = all.iter().map(
            |Difference {
                 what, on, group, ..
             }| match (on, group) {
                (Some(on), Group::Latency) => format!("{what} on {on}"),
                (Some(on), _) => format!("{what} ({on})"),
                (None, _) => what.clone(),
            },
        );
        let values = |of: fn(&Difference) -> &Option<String>| {
            joined(
                all.iter()
                    .map(|difference| of(difference).as_deref().unwrap_or("–")),
                "; ",
            )
        };
        let (base, new) = (
            values(|difference| &difference.base),
            values(|difference| &difference.new),
        );
        Line {
            first: all[0].clone(),
            what: joined(what, "; "),
            base,
            new,
        }
    };
    grouped(differences.into_iter().enumerate().map(key))
        .into_iter()
        .map(line)
        .collect()
}

/// The newest committed record that the subject of a report can be compared with, and what differs: of the same GPU where
/// it was timed, else of the same backend; one of some stages with what those before it say of the others. A committed record
/// that stands in for a run is compared with those before it.
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
    let earlier = known
        .committed
        .iter()
        .take_while(|(other, _)| other.as_str() != name);
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
