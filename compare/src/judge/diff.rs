//! What differs between two records: the one notion of "changed", for `compare diff` and for COMPARE.md. The registry of
//! metrics says when a figure differs and what that means; here it is asked.
//!
//! What cannot be compared as if it were the same (another GPU, driver, compiler, state of the cache) is missing, with the
//! reason. Where latency was measured on both sides, it has the last word on what occupancy and counters are worth.

use super::claims::{self, is_of_gpu};
use super::state;
use super::{Known, best, place};
use crate::record::meta::{DeviceCompiler, Gpu, Progress, Scope};
use crate::record::store::Samples;
use crate::record::{Figure, On, Record, Row, Source, StageMeta, Subject};
use common::metric::{self, Better, ERROR_MARGIN, Metric, Threshold};
use common::timing::Change as Decided;
use common::timing::stats::{Interval, Ratio};
use common::verdict::{GateId, Verdict};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// What became of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A gate fails now, or a figure that has a good side moved to the other.
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
    pub const ALL: [Change; 6] =
        [Change::Worse, Change::Ambiguous, Change::Missing, Change::Better, Change::Differs, Change::Same];
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Change::Worse => "WORSE",
            Change::Ambiguous => "AMBIGUOUS",
            Change::Missing => "MISSING",
            Change::Better => "BETTER",
            Change::Differs => "DIFFERS",
            Change::Same => "SAME",
        })
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
    fn new(subject: Subject, what: impl Into<String>, group: Group, change: Change, why: impl Into<String>) -> Self {
        let (on, metric, base, new, ratio, resampled) = Default::default();
        Self {
            subject,
            on,
            what: what.into(),
            metric,
            group,
            change,
            base,
            new,
            ratio,
            resampled,
            why: why.into(),
            required: false,
        }
    }

    fn values(mut self, base: impl fmt::Display, new: impl fmt::Display) -> Self {
        (self.base, self.new) = (Some(base.to_string()), Some(new.to_string()));
        self
    }

    fn on(mut self, on: &On) -> Self {
        self.on = Some(on.clone());
        self
    }

    fn of(mut self, metric: Metric) -> Self {
        self.metric = Some(metric);
        self
    }

    fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

const WHOLE: &str = "the record";

/// Two records side by side. `threshold` is the latency's (0.02: 2 %).
pub fn differences(base: &Record, new: &Record, threshold: f64) -> Vec<Difference> {
    let sides = Sides::of(base, new, threshold);
    let latencies = sides.latencies();
    let mut found = sides.presence();
    found.extend(sides.retired());
    found.extend(sides.gates());
    found.extend(sides.claims());
    found.extend(sides.self_test());
    found.extend(sides.errors());
    found.extend(sides.figures(&latencies));
    found.extend(latencies);
    let ids: Vec<&str> = new.meta.stages.iter().chain(&base.meta.stages).map(|stage| stage.id.as_str()).collect();
    found.sort_by_key(|d| (ids.iter().position(|id| *id == d.subject.stage()), d.group, d.change));
    found
}

/// Stages whose kernel is another one now than when `record` was made.
pub fn outdated(record: &Record, now: &[StageMeta]) -> Vec<Difference> {
    let is_other =
        |stage: &&StageMeta| now.iter().any(|built| built.id == stage.id && built.identity != stage.identity);
    let why = "the kernel has changed since the new record was made; run `compare` again";
    let difference = |stage: &StageMeta| {
        Difference::new(Subject::from(&*stage.id), "whole run", Group::Gates, Change::Missing, why).required()
    };
    record.meta.stages.iter().filter(is_other).map(difference).collect()
}

/// What keeps a whole record from being compared.
pub fn whole(why: impl Into<String>) -> Difference {
    Difference::new(Subject::from(WHOLE), "whole run", Group::Gates, Change::Missing, why).required()
}

type Index<'a> = HashMap<(&'a Subject, &'a On, Source), &'a Row>;

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
            rows.map(|row| ((&row.subject, &row.on, row.by), row)).collect()
        };
        Self { base, new, threshold, old_rows: index(base), new_rows: index(new) }
    }

    /// Whether the new record set out to run all that the base did: neither was narrowed by flags or to a smaller tier,
    /// and both ran on the same backend and a device that refuses the same.
    fn covers(&self) -> bool {
        let (base, new) = (&self.base.meta, &self.new.meta);
        new.scope == Scope::Whole
            && new.tier >= base.tier
            && new.backend == base.backend
            && refused(self.new).eq(refused(self.base))
    }

    fn presence(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for (record, side) in [(self.base, "base"), (self.new, "new record")] {
            if let Progress::Partial { finished, planned } = record.meta.progress {
                found.push(whole(format!("the {side} is of a run that ended after {finished} of {planned} cases")));
            }
        }
        if self.base.meta.backend != self.new.meta.backend {
            let (new, base) = (place(self.new), place(self.base));
            found.push(whole(format!("{new} against {base} (base): gates and latencies do not compare")));
        }
        let row = |subject, change, why: &str| Difference::new(subject, "variant", Group::Gates, change, why);
        for subject in self.base.variants() {
            if !self.new.variants().any(|other| other == subject) {
                let is_refused = refused(self.new).any(|other| other == subject);
                found.push(match is_refused {
                    true => row(subject, Change::Missing, "the new record is of a device that refuses it"),
                    false => row(subject, Change::Differs, "the new record does not declare it: removed, or renamed"),
                });
            } else if state::summary(self.base, &subject).is_some() && state::summary(self.new, &subject).is_none() {
                let why = "it was checked in the base, and not in the new record";
                found.push(row(subject, Change::Missing, why).required());
            }
        }
        for subject in self.new.variants().filter(|found| !self.base.variants().any(|other| other == *found)) {
            found.push(row(subject, Change::Differs, "the base does not have it"));
        }
        found
    }

    /// What either record measured or claimed by a metric that the registry no longer has. It is said, and nothing is missing.
    fn retired(&self) -> Vec<Difference> {
        const WHY: &str = "the registry of metrics does not have it: removed, or renamed";
        let both = || [self.base, self.new].into_iter();
        let names: BTreeSet<&str> =
            both().flat_map(|record| &record.rows).flat_map(|row| row.retired.keys().map(String::as_str)).collect();
        let claims: BTreeSet<(&str, String)> = (both().flat_map(|record| &record.meta.stages))
            .flat_map(|stage| stage.retired.iter().map(|claim| (&*stage.id, retired_claim(claim))))
            .collect();
        let metric =
            |name| Difference::new(Subject::from(WHOLE), format!("metric {name}"), Group::Gates, Change::Differs, WHY);
        let claim = |(stage, claim): (&str, String)| {
            Difference::new(Subject::from(stage), format!("claim {claim}"), Group::Gates, Change::Differs, WHY)
        };
        names.into_iter().map(metric).chain(claims.into_iter().map(claim)).collect()
    }

    /// A gate that fails now and did not fail before is worse whatever the backend; all else needs the same backend, but
    /// for R1, which is of the compiler.
    fn gates(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for subject in self.new.variants() {
            let (before, after) = (state::gates(self.base, &subject), state::gates(self.new, &subject));
            for (&gate, judged) in &after {
                let was = before.get(&gate).map(|judged| judged.verdict);
                let is_comparable = self.base.meta.backend == self.new.meta.backend || gate == GateId::R1;
                let Some(change) = turned(was, judged.verdict, is_comparable) else { continue };
                let mut row = Difference::new(
                    subject.clone(),
                    format!("gate {gate}"),
                    Group::Gates,
                    change,
                    judged.reason.clone(),
                );
                (row.base, row.new) = (was.map(|was| was.to_string()), Some(judged.verdict.to_string()));
                row.required = change == Change::Missing && self.covers();
                found.push(row);
            }
            // A variant that was not run at all has a row of its own.
            let ran = !after.is_empty() && self.covers();
            for (gate, judged) in before.iter().filter(|(gate, _)| ran && !after.contains_key(gate)) {
                if judged.verdict != Verdict::NoData {
                    let what = format!("gate {gate}");
                    let mut row = Difference::new(
                        subject.clone(),
                        what,
                        Group::Gates,
                        Change::Missing,
                        "judged in the base only",
                    );
                    (row.base, row.required) = (Some(judged.verdict.to_string()), *gate != GateId::R1);
                    found.push(row);
                }
            }
        }
        found
    }

    /// The claims that both sides judged; those of a GPU on one GPU only.
    fn claims(&self) -> Vec<Difference> {
        let gpus = [self.base, self.new].map(|record| record.meta.machine.gpu.name());
        let before: BTreeMap<(String, String), Verdict> = (claims::judged(self.base))
            .map(|(stage, claim, finding)| ((stage.id.clone(), claim.to_string()), finding.verdict))
            .collect();
        let mut found = Vec::new();
        let mut seen = Vec::new();
        for (stage, claim, finding) in claims::judged(self.new) {
            let key = (stage.id.clone(), claim.to_string());
            let was = before.get(&key).copied();
            seen.push(key.clone());
            if is_of_gpu(claim) && gpus[0] != gpus[1] {
                continue;
            }
            let Some(mut change) = turned(was, finding.verdict, true) else { continue };
            let is_refuted = self.new.meta.refuted(&key.0, &key.1).is_some();
            let mut why = finding.reason;
            if change == Change::Worse && is_refuted {
                (change, why) = (Change::Differs, format!("refuted and recorded: {why}"));
            }
            let mut row =
                Difference::new(Subject::from(&*key.0), format!("claim {}", key.1), Group::Gates, change, why);
            (row.base, row.new) = (was.map(|was| was.to_string()), Some(finding.verdict.to_string()));
            found.push(row);
        }
        // A promise that is taken back is said, lest a failed claim be mended by deleting it; so is one that the new record
        // has no figures of.
        for ((stage, claim), verdict) in before.iter().filter(|(key, _)| !seen.contains(key)) {
            let Some(stands) = self.new.stage(stage) else { continue };
            let declared = stands.claims.iter().find(|other| other.to_string() == *claim);
            let row = |change, why| {
                Difference::new(Subject::from(&**stage), format!("claim {claim}"), Group::Gates, change, why)
            };
            let row = match declared {
                None => row(Change::Differs, "no longer claimed"),
                Some(claim) if is_of_gpu(claim) && gpus[0] != gpus[1] => continue,
                Some(_) if self.covers() => row(Change::Missing, "judged in the base only").required(),
                Some(_) => row(Change::Missing, "judged in the base only"),
            };
            found.push(Difference { base: Some(verdict.to_string()), ..row });
        }
        found
    }

    /// Planted faults that survive, and synchronisation that is not as listed.
    fn self_test(&self) -> Vec<Difference> {
        let has = |record: &Record| record.by(Source::SelfTest).next().is_some();
        if !has(self.base) || !has(self.new) {
            return Vec::new();
        }
        let [was, is] = [self.base, self.new].map(|record| state::self_test(record).count());
        let change = match is.cmp(&was) {
            std::cmp::Ordering::Greater => Change::Worse,
            std::cmp::Ordering::Less => Change::Better,
            std::cmp::Ordering::Equal => Change::Same,
        };
        let names: Vec<String> = state::self_test(self.new).map(|row| format!("{}{}", row.subject, row.on)).collect();
        let row = Difference::new(Subject::from(WHOLE), SELF_TEST, Group::Gates, change, names.join("; "));
        vec![row.values(was, is)]
    }

    /// The latencies of both sides. What one side alone timed is one line a stage.
    fn latencies(&self) -> Vec<Difference> {
        let timed = |record: &'a Record| best::timed(record).count();
        if timed(self.base) == 0 && timed(self.new) == 0 {
            return Vec::new();
        }
        let stages: Vec<&StageMeta> = self.new.meta.stages.iter().collect();
        if let Some(why) = self.other_gpu() {
            let has = |stage: &&&StageMeta| {
                best::timed(self.base).chain(best::timed(self.new)).any(|row| row.subject.stage() == stage.id)
            };
            let row = |stage: &&StageMeta| {
                let row =
                    Difference::new(Subject::from(&*stage.id), "p50", Group::Latency, Change::Missing, why.clone());
                Difference { required: timed(self.base) > 0, ..row }
            };
            return stages.iter().filter(has).map(row).collect();
        }
        let samples = |record: &'a Record| -> HashMap<(&'a Subject, &'a On), &'a Samples> {
            record.samples.iter().filter(|s| s.by == Source::Gpu).map(|s| ((&s.subject, &s.on), s)).collect()
        };
        let (old_samples, new_samples) = (samples(self.base), samples(self.new));
        let pairs: Vec<(&Row, &Row)> = best::timed(self.new)
            .filter_map(|row| Some((*self.old_rows.get(&(&row.subject, &row.on, row.by))?, row)))
            .filter(|(old, _)| old.figures.contains_key(&Metric::P50))
            .collect();
        let arm = |(old, row): &(&Row, &Row)| {
            let key = (&row.subject, &row.on);
            let raw = old_samples.get(&key).zip(new_samples.get(&key));
            self.arm(old, row, raw.map(|(old, new)| (&*old.device_ns, &*new.device_ns)))
        };
        let mut found: Vec<Difference> = pairs.par_iter().map(arm).collect();
        for stage in stages {
            let alone = |here: &'a Record, there: &Index<'_>| {
                let of_stage = best::timed(here).filter(|row| row.subject.stage() == stage.id);
                of_stage
                    .filter(|row| {
                        !there
                            .get(&(&row.subject, &row.on, row.by))
                            .is_some_and(|o| o.figures.contains_key(&Metric::P50))
                    })
                    .collect::<Vec<_>>()
            };
            // A run times some variants only where it says so; a removed variant has a row of its own.
            let says_so = self.new.meta.left_out.iter().any(|scope| scope.stage == stage.id && scope.left_out > 0);
            let still = |row: &&&Row| stage.variant(row.subject.name()).is_some();
            let (gone, added) = (alone(self.base, &self.new_rows), alone(self.new, &self.old_rows));
            for (count, side, required) in
                [(gone.iter().filter(still).count(), "the base", !says_so), (added.len(), "the new record", false)]
            {
                if count > 0 {
                    let why = format!("{count} timed in {side} only");
                    let row = Difference::new(Subject::from(&*stage.id), "p50", Group::Latency, Change::Missing, why);
                    found.push(Difference { required, ..row });
                }
            }
        }
        found
    }

    /// Why no latency of the two records may be compared, if so.
    fn other_gpu(&self) -> Option<String> {
        let untimed = |side: &str, record: &Record| match (best::timed(record).next(), &record.meta.machine.gpu) {
            (Some(_), _) => None,
            (None, Gpu::Absent { .. }) => Some(format!("{side} was not timed: it ran without a GPU")),
            (None, Gpu::Present { .. }) => Some(format!("{side} was not timed")),
        };
        let gpu = |record: &Record| match &record.meta.machine.gpu {
            Gpu::Present { name, arch, driver, multiprocessors, .. } => {
                Some((format!("{name} ({arch}, {multiprocessors} SMs)"), driver.clone()))
            }
            Gpu::Absent { .. } => None,
        };
        untimed("the base", self.base).or(untimed("the new record", self.new)).or_else(|| {
            let ((was, old_driver), (is, driver)) = (gpu(self.base)?, gpu(self.new)?);
            let other_driver = || (old_driver != driver).then(|| format!("driver {old_driver} against {driver}"));
            if was != is { Some(format!("{was} against {is}")) } else { other_driver() }
        })
    }

    /// One latency on both sides, by the interval of the medians' ratio.
    fn arm(&self, old: &Row, new: &Row, raw: Option<(&[f64], &[f64])>) -> Difference {
        let row = |change, why| {
            Difference::new(new.subject.clone(), "p50", Group::Latency, change, why).on(&new.on).of(Metric::P50)
        };
        for (record, side) in [(self.base, old), (self.new, new)] {
            if let Some(why) = best::withheld(record, side) {
                return row(Change::Missing, why);
            }
        }
        if let On::Problem(place) = &new.on
            && self.base.meta.shapes.get(&place.shape) != self.new.meta.shapes.get(&place.shape)
        {
            return row(Change::Missing, format!("{} is another shape in the base", place.shape));
        }
        if old.under != new.under {
            let words = |row: &Row| row.under.clone().unwrap_or_else(|| "unknown".into());
            return row(Change::Missing, format!("{} against {}", words(old), words(new)));
        }
        let resampled = raw.and_then(|(old, new)| Ratio::of_medians(old, new).ok());
        let is_resampled = Some(resampled.is_some());
        let ratio = resampled.unwrap_or_else(|| ratio(old, new));
        let (change, mut why) = self.judge_latency(&ratio, old, new);
        if matches!(change, Change::Worse | Change::Better) && self.new.has_kernel_of(self.base, new.subject.stage()) {
            why += "; the kernel has not changed: look at the machine and the harness";
        }
        let us = |row: &Row| format!("{} us", Metric::P50.show(best::p50(row)).trim_end_matches(" us"));
        let row = row(change, why).values(us(old), us(new));
        Difference { ratio: Some(ratio), resampled: is_resampled, ..row }
    }

    fn judge_latency(&self, ratio: &Ratio, old: &Row, new: &Row) -> (Change, String) {
        let percent = 100.0 * self.threshold;
        let decided = match Decided::of(ratio, self.threshold) {
            Decided::Same => return (Change::Same, format!("within {percent:.1} %")),
            Decided::Ambiguous
                if self.new.has_kernel_of(self.base, new.subject.stage())
                    && ratio.interval.low <= 1.0
                    && ratio.interval.high >= 1.0 =>
            {
                let why = format!("the interval crosses {percent:.1} % and holds 1, and the kernel has not changed");
                return (Change::Same, why);
            }
            Decided::Ambiguous => return (Change::Ambiguous, format!("the interval crosses {percent:.1} %")),
            decided => decided,
        };
        let noise = |row: &Row| row.value(Metric::P90).map_or(0.0, |p90| (p90 - best::p50(row)) / best::p50(row));
        let noise = noise(old).max(noise(new));
        if Decided::of(ratio, self.threshold.max(noise)) != decided {
            let why = format!("beyond {percent:.1} %, but not beyond the samples' noise of {:.1} %", 100.0 * noise);
            return (Change::Ambiguous, why);
        }
        // In cycles: a clock that moved moves the time without any doing of the kernel.
        if let (Some(was), Some(is)) = (old.value(Metric::SmMhz), new.value(Metric::SmMhz)) {
            let scale = was / is;
            let interval = Interval { low: ratio.interval.low * scale, high: ratio.interval.high * scale };
            if Decided::of(&Ratio { value: ratio.value * scale, interval }, self.threshold) != decided {
                let why = format!("beyond {percent:.1} % in time and not in cycles: {was:.0} MHz against {is:.0} MHz");
                return (Change::Ambiguous, why);
            }
        }
        let change = if decided == Decided::Faster { Change::Better } else { Change::Worse };
        (change, format!("beyond {percent:.1} %"))
    }

    /// The errors of every variant that both sides checked, over the bounds of their gates: of the cases that both have,
    /// the one that moved furthest; else the largest over all cases.
    fn errors(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        let by = state::source(self.new);
        if self.base.meta.backend != self.new.meta.backend {
            return found;
        }
        let cases = |record: &'a Record| -> HashMap<(&'a Subject, &'a On), &'a Row> {
            let all = record.rows.iter().chain(&record.cases).filter(|row| matches!(row.on, On::Case(..)));
            all.map(|row| ((&row.subject, &row.on), row)).collect()
        };
        let (before, after) = (cases(self.base), cases(self.new));
        let same_cases = (self.base.meta.tier, &self.base.meta.scope) == (self.new.meta.tier, &self.new.meta.scope);
        for subject in self.new.variants() {
            let key = (&subject, &On::All, by);
            let (Some(was), Some(is)) = (self.old_rows.get(&key), self.new_rows.get(&key)) else { continue };
            for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
                let of_case = |(key, new): (&(&Subject, &On), &&Row)| {
                    Some((before.get(key)?.value(metric)?, new.value(metric)?, Some(key.1.clone())))
                };
                let shared = after.iter().filter(|((of, _), _)| **of == subject).filter_map(of_case);
                let shared: Vec<(f64, f64, Option<On>)> = shared.collect();
                // The largest of other cases is another figure.
                let as_many = same_cases && was.value(Metric::Cases) == is.value(Metric::Cases);
                let whole =
                    was.value(metric).zip(is.value(metric)).filter(|_| as_many).map(|(was, is)| (was, is, None));
                let Some((was, is, at)) = furthest(shared).or(whole) else { continue };
                let change = moved(was, is);
                let margin = format!("of the bound; margin {:.0} % of it", 100.0 * ERROR_MARGIN);
                let gate = metric.spec().gate.map_or(String::new(), |gate| format!(" ({gate})"));
                let what = format!("{metric}{gate}");
                let row = Difference::new(subject.clone(), what, Group::Errors, change, margin).of(metric);
                let row = Difference { on: at, ..row };
                found.push(row.values(metric.show(was), metric.show(is)));
            }
        }
        found
    }

    /// Every other figure that the registry compares.
    fn figures(&self, latencies: &[Difference]) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut refused: Vec<(String, Source)> = Vec::new();
        for row in self.new.rows.iter().filter(|row| row.against.is_none()) {
            let Some(old) = self.old_rows.get(&(&row.subject, &row.on, row.by)) else { continue };
            let group = match row.by {
                Source::Ptxas | Source::Kernel => Group::Resources,
                Source::Emulator if row.on.problem().is_some() => Group::Counters,
                _ => continue,
            };
            let stage = row.subject.stage().to_string();
            if let Some(why) = self.other_compiler(&stage, row.by) {
                if !refused.contains(&(stage.clone(), row.by)) {
                    found.push(Difference::new(Subject::from(&*stage), group_name(group), group, Change::Missing, why));
                    refused.push((stage, row.by));
                }
                continue;
            }
            let mut equal = true;
            for (&metric, new) in &row.figures {
                let Some(was) = old.figures.get(&metric) else { continue };
                if was.value == new.value || metric.spec().threshold == Threshold::NotCompared {
                    continue;
                }
                equal = false;
                let (change, why) = judge(metric, *was, *new, self.word(latencies, row));
                let row =
                    Difference::new(row.subject.clone(), metric.label(), group, change, why).on(&row.on).of(metric);
                found.push(row.values(metric.show(was.value), metric.show(new.value)));
            }
            let lost = old.figures.keys().filter(|metric| !row.figures.contains_key(metric));
            let lost = lost.filter(|metric| metric.spec().threshold != Threshold::NotCompared);
            let (lost, removed): (Vec<Metric>, Vec<Metric>) = lost.partition(|metric| is_measured(**metric, row.by));
            let labels =
                |metrics: &[Metric]| metrics.iter().map(|metric| metric.label()).collect::<Vec<_>>().join(", ");
            if !removed.is_empty() {
                let why = format!("{} no longer measures it: removed", row.by);
                found.push(
                    Difference::new(row.subject.clone(), labels(&removed), group, Change::Differs, why).on(&row.on),
                );
            }
            if !lost.is_empty() {
                let why = format!("the new record has no {}: {}", labels(&lost), row.note.clone().unwrap_or_default());
                found.push(
                    Difference::new(row.subject.clone(), group_name(group), group, Change::Missing, why)
                        .on(&row.on)
                        .required(),
                );
            } else if equal && removed.is_empty() && row.by != Source::Kernel {
                found.push(
                    Difference::new(row.subject.clone(), group_name(group), group, Change::Same, "exact").on(&row.on),
                );
            }
        }
        found.extend(self.uncounted());
        found
    }

    /// Variants that the base counted and the new record did not, though it has them and set out to.
    fn uncounted(&self) -> Vec<Difference> {
        let is_counted = |row: &&Row| row.on.problem().is_some() && (row.retired.is_empty() || !row.figures.is_empty());
        let counted = self.base.by(Source::Emulator).filter(is_counted);
        let is_gone = |row: &&Row| {
            let is_declared =
                self.new.stage(row.subject.stage()).is_some_and(|stage| stage.variant(row.subject.name()).is_some());
            is_declared && !self.new_rows.contains_key(&(&row.subject, &row.on, row.by))
        };
        let row = |row: &Row| {
            let why = "counted in the base only";
            Difference::new(row.subject.clone(), "counters", Group::Counters, Change::Missing, why)
                .on(&row.on)
                .required()
        };
        counted.filter(|_| self.covers()).filter(is_gone).map(row).collect()
    }

    fn other_compiler(&self, stage: &str, by: Source) -> Option<String> {
        let (old, new) = (self.base.stage(stage)?, self.new.stage(stage)?);
        let nvcc = |compiler: &DeviceCompiler| match compiler {
            DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}"),
            DeviceCompiler::Absent { .. } => "no GPU compiler".to_string(),
        };
        let (was, is) = match by {
            Source::Ptxas => (nvcc(&old.device_compiler), nvcc(&new.device_compiler)),
            Source::Emulator => (old.host_compiler.clone(), new.host_compiler.clone()),
            _ => return None,
        };
        (was != is).then(|| format!("{was} against {is}"))
    }

    /// What the latencies of both sides say of what a row is about: better (every one that decides is), worse, or neither.
    fn word(&self, latencies: &[Difference], row: &Row) -> Option<Change> {
        let is_measured = |arch: &Option<String>| {
            arch.as_ref()
                .is_some_and(|arch| [self.base, self.new].iter().all(|record| record.meta.machine.gpu.runs(arch)))
        };
        let is_of = |difference: &&Difference| {
            let Some(On::Problem(place)) = &difference.on else { return false };
            let head_dim = |name: &str| self.new.meta.shapes.get(name).map(|shape| shape.head_dim);
            difference.subject == row.subject
                && match &row.on {
                    On::Problem(counted) => place == counted,
                    On::Instance { dtype, head_dim: d, arch } => {
                        place.dtype == *dtype && head_dim(&place.shape) == Some(*d) && is_measured(arch)
                    }
                    _ => false,
                }
        };
        let changes: Vec<Change> = latencies.iter().filter(is_of).map(|difference| difference.change).collect();
        match (changes.contains(&Change::Better), changes.contains(&Change::Worse)) {
            (true, false) => Some(Change::Better),
            (false, true) => Some(Change::Worse),
            _ => None,
        }
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

pub const SELF_TEST: &str = "self-test (S1)";

fn group_name(group: Group) -> &'static str {
    match group {
        Group::Gates => "gates",
        Group::Latency => "latency",
        Group::Errors => "errors",
        Group::Resources => "resources",
        Group::Counters => "counters",
    }
}

fn refused(record: &Record) -> impl Iterator<Item = Subject> {
    let stages = record.meta.stages.iter();
    stages.flat_map(|stage| stage.refused.iter().map(|refusal| Subject::variant(&stage.id, &refusal.variant)))
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
    let figure = |row: &Row| row.figures.get(&Metric::P50).copied().unwrap_or(Figure::from(f64::NAN));
    let (old, new) = (figure(old), figure(new));
    let ends = |figure: Figure| figure.interval.unwrap_or((figure.value, figure.value));
    let ((from_low, from_high), (to_low, to_high)) = (ends(old), ends(new));
    Ratio { value: old.value / new.value, interval: Interval { low: from_low / to_high, high: from_high / to_low } }
}

/// Of cases with an error before and now, the one that moved furthest up; down where none moved up.
fn furthest(cases: Vec<(f64, f64, Option<On>)>) -> Option<(f64, f64, Option<On>)> {
    // No number is the worst, and any number is better than none.
    let moved = |(was, is, _): &(f64, f64, Option<On>)| match is - was {
        moved if !moved.is_nan() => moved,
        _ if was.is_nan() && !is.is_nan() => f64::NEG_INFINITY,
        _ => f64::INFINITY,
    };
    let up = cases.iter().max_by(|a, b| moved(a).total_cmp(&moved(b)))?;
    let down = cases.iter().min_by(|a, b| moved(a).total_cmp(&moved(b)))?;
    Some(if moved(up) <= ERROR_MARGIN && moved(down) < -ERROR_MARGIN { down.clone() } else { up.clone() })
}

/// An error as a share of its bound, before and now.
fn moved(was: f64, is: f64) -> Change {
    let crosses = was <= 1.0 && is > 1.0;
    if is.is_nan() || crosses || is - was > ERROR_MARGIN {
        Change::Worse
    } else if was.is_nan() || was - is > ERROR_MARGIN {
        Change::Better
    } else {
        Change::Same
    }
}

/// A figure that differs, by the policy of its metric.
fn judge(metric: Metric, was: Figure, is: Figure, latency: Option<Change>) -> (Change, String) {
    let spec = metric.spec();
    let is_better = match spec.better {
        Better::Informational => return (Change::Differs, spec.because.to_string()),
        Better::Lower => is.value < was.value,
        Better::Higher => is.value > was.value,
    };
    let opposite = if is_better { Change::Worse } else { Change::Better };
    match spec.threshold {
        Threshold::ExactUnlessLatency if latency == Some(opposite) => {
            (Change::Differs, "the measured latency says the opposite".into())
        }
        _ if is_better => (Change::Better, spec.because.to_string()),
        _ => (Change::Worse, spec.because.to_string()),
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
    let mut lines: Vec<Line> = Vec::new();
    for difference in differences {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
        let what = match (&difference.on, difference.group) {
            (Some(on), Group::Latency) => format!("{} on {on}", difference.what),
            (Some(on), _) => format!("{} ({on})", difference.what),
            (None, _) => difference.what.clone(),
        };
        let line = Line { what, base: value(&difference.base), new: value(&difference.new), first: difference.clone() };
        let shares = |other: &&mut Line| {
            let key = |d: &Difference| (d.subject.clone(), d.group, d.change, d.why.clone());
            matches!(difference.group, Group::Resources | Group::Counters) && key(&other.first) == key(difference)
        };
        match lines.iter_mut().find(shares) {
            Some(other) => {
                for (text, more) in
                    [(&mut other.what, line.what), (&mut other.base, line.base), (&mut other.new, line.new)]
                {
                    *text += "; ";
                    *text += &more;
                }
            }
            None => lines.push(line),
        }
    }
    lines
}

/// The newest committed record that the subject of a report can be compared with, and what differs: of the same GPU where
/// it was timed, else of the same backend. A committed record that stands in for a run is compared with those before it.
pub fn since<'a>(known: &Known<'a>) -> Option<(&'a str, &'a Record, Vec<Difference>)> {
    let (name, record) = known.subject()?;
    if record.meta.device.is_some() {
        return None;
    }
    let is_like = |other: &Record| {
        other.meta.backend == record.meta.backend
            && other.meta.machine.gpu.name() == record.meta.machine.gpu.name()
            && other.rows.iter().any(|row| row.on == On::All)
    };
    let earlier = known.committed.iter().take_while(|(other, _)| other.as_str() != name);
    let (base_name, base) = earlier.filter(|(_, other)| is_like(other)).last()?;
    Some((base_name, base, differences(base, record, common::metric::LATENCY_CHANGE)))
}

#[cfg(test)]
mod tests;
