//! What differs between two tables: one outer join over the key, and one judgement per verdict and per figure, by the registry of
//! metrics. For `compare diff`, for COMPARE.md, and for `accept`.
//!
//! Figures that must not be compared (another GPU, driver, compiler or state of the cache) are missing, with the reason. Latencies of
//! kernels that have not changed are the control ([`Drift`]): they widen what a changed kernel must show, and are themselves never
//! worse nor better.

use super::best::{self, is_latency};
use super::claims;
use super::drift::{Drift, FEWEST, is_of_one_kernel};
use crate::table::session::{Changes, DeviceCompiler, Gpu, Moved};
use crate::table::{Figure, Key, On, Row, Run, Session, Source, StageMeta, Subject, Table};
use common::metric::{Better, LATENCY_CHANGE, Metric, Threshold};
use common::timing::Change as Decided;
use common::timing::stats::{Interval, Ratio};
use common::verdict::{GateId, Verdict};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A gate fails now, or a figure moved the wrong way.
    Worse,
    Inconclusive,
    /// One side has no figure, or the two must not be compared.
    Missing,
    Better,
    /// It differs, which by itself is neither good nor bad.
    Informational,
    /// No difference beyond the threshold.
    Unchanged,
}

impl Change {
    pub const ALL: [Change; 6] = [
        Change::Worse,
        Change::Inconclusive,
        Change::Missing,
        Change::Better,
        Change::Informational,
        Change::Unchanged,
    ];

    /// As in `6 worse, 84 improved`.
    pub fn word(self) -> &'static str {
        match self {
            Change::Worse => "worse",
            Change::Inconclusive => "inconclusive",
            Change::Missing => "not comparable",
            Change::Better => "improved",
            Change::Informational => "changed (informational)",
            Change::Unchanged => "unchanged",
        }
    }
}

/// The part of a comparison that a difference belongs to.
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
    fn name(self) -> &'static str {
        match self {
            Group::Gates => "gates",
            Group::Latency => "latency",
            Group::Errors => "errors",
            Group::Resources => "resources",
            Group::Counters => "counters",
        }
    }

    /// The group of a row's figures; `None` if they are not compared.
    fn of(row: &Row) -> Option<Self> {
        match (row.by, &row.on) {
            _ if row.against.is_some() => None,
            (Source::Ptxas | Source::Kernel, _) => Some(Group::Resources),
            (Source::Emulator, On::Problem(_)) => Some(Group::Counters),
            (Source::Gpu, On::Problem(_)) => Some(Group::Latency),
            (Source::Gpu | Source::Emulator, On::All | On::Case(..)) => Some(Group::Errors),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Gate(GateId),
    Metric(Metric),
    Row(Group),
    Variant,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Gate(gate) => write!(f, "gate {gate}"),
            What::Metric(metric) => f.write_str(metric.label()),
            What::Row(group) => f.write_str(group.name()),
            What::Variant => f.write_str("variant"),
        }
    }
}

impl Serialize for What {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The variant, stage or claim.
    pub subject: Subject,
    pub on: On,
    pub by: Source,
    pub what: What,
    pub group: Group,
    pub change: Change,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// `base / new` of a latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    /// The reason, with the threshold.
    pub why: String,
    /// Data is missing that the new side should have: the exit code is 3.
    pub required: bool,
}

impl Difference {
    fn new(row: &Row, what: What, group: Group, change: Change, why: impl Into<String>) -> Self {
        Self {
            subject: row.subject.clone(),
            on: row.on.clone(),
            by: row.by,
            what,
            group,
            change,
            base: None,
            new: None,
            ratio: None,
            why: why.into(),
            required: false,
        }
    }

    /// A stage whose kernel has changed since the new side measured it.
    pub fn outdated(stage: &str) -> Self {
        let row = Row::new(stage, On::All, Source::Kernel);
        let why = "the kernel has changed since the new side was measured; run `compare` again";
        Self::new(&row, What::Variant, Group::Gates, Change::Missing, why).required(true)
    }

    /// A GPU model whose table the new side does not have.
    pub fn gone(gpu: &str) -> Self {
        let row = Row::new(gpu, On::All, Source::Gpu);
        let why = "the new side has no table of this GPU model";
        Self::new(&row, What::Variant, Group::Gates, Change::Missing, why).required(true)
    }

    fn values<T: fmt::Display>(self, base: Option<T>, new: Option<T>) -> Self {
        Self {
            base: base.map(|value| value.to_string()),
            new: new.map(|value| value.to_string()),
            ..self
        }
    }

    fn required(self, required: bool) -> Self {
        Self { required, ..self }
    }

    /// `p50 on mission f16 full`
    pub fn title(&self) -> String {
        match (&self.on, self.by) {
            (On::All, _) => self.what.to_string(),
            (On::Named(claim), Source::Claim) => format!("claim {claim}"),
            (on, _) => format!("{} on {on}", self.what),
        }
    }
}

pub struct Tables<'a> {
    pub base: &'a Table,
    pub new: &'a Table,
    /// Whether the new side was asked to have everything that the base has.
    pub covers: bool,
    /// Latencies within this share of each other are the same: 0.02.
    pub threshold: f64,
}

pub struct Comparison {
    /// In the order of the ladder; those that concern most come first within a stage.
    pub differences: Vec<Difference>,
    pub drift: Drift,
}

/// Whether the session `new` was asked to run all that `base` ran: the same selection, or a whole tier that is not smaller, on the same
/// backend.
pub fn covers(base: &Session, new: &Session) -> bool {
    let has_one_scope = (base.tier, &base.scope) == (new.tier, &new.scope);
    (has_one_scope || new.scope.is_all() && new.tier >= base.tier)
        && base.backend == new.backend
        && base.device == new.device
}

/// The table after a run is accepted: the run's rows in place of those with the same keys, without what the sources no longer declare.
pub fn accepted(run: &Run, committed: &Table) -> Table {
    let mut kept = run.clone();
    // Cases stay with the run.
    kept.table
        .retain(|row| !committed.covers(row) && !matches!(row.on, On::Case(..)));
    let mut table = committed.clone();
    table.merge(&kept.session, &kept.table);
    table.prune(&run.session.stages);
    claims::restate(&mut table, &run.session.stages);
    table
}

pub fn of_accepting(committed: &Table, accepted: &Table, stages: &[StageMeta]) -> Comparison {
    let tables = Tables {
        base: committed,
        new: accepted,
        covers: false,
        threshold: LATENCY_CHANGE,
    };
    compare(&tables, stages)
}

/// Compares two tables; `stages` give the order.
pub fn compare(tables: &Tables<'_>, stages: &[StageMeta]) -> Comparison {
    let join = Join {
        base: index(tables.base),
        new: index(tables.new),
        drift: Drift::between(tables.base, tables.new),
        tables,
    };
    let keys: BTreeSet<&Key> = join.base.keys().chain(join.new.keys()).collect();
    let (latencies, others): (Vec<&Key>, Vec<&Key>) = (keys.into_iter())
        .partition(|key| key.by == Source::Gpu && matches!(key.on, On::Problem(_)));
    let mut differences: Vec<Difference> = Vec::new();
    let mut verdicts = Latencies::default();
    for key in latencies {
        let judged = join.judge(key, &verdicts);
        for difference in judged.iter().filter(|one| one.ratio.is_some()) {
            verdicts.note(difference);
        }
        differences.extend(judged);
    }
    for key in others {
        differences.extend(join.judge(key, &verdicts));
    }
    let mut differences = furthest_case_alone(differences);
    let place = |d: &Difference| {
        let mut ids = stages.iter().map(|stage| stage.id.as_str());
        ids.position(|id| id == d.subject.stage())
    };
    differences.sort_by_key(|d| (place(d), d.group, d.change));
    Comparison {
        differences,
        drift: join.drift,
    }
}

type Index<'a> = BTreeMap<Key, &'a Row>;

fn index(table: &Table) -> Index<'_> {
    // Random problems differ from session to session.
    let rows = table.rows().filter(|row| row.by != Source::Draw);
    rows.map(|row| (row.key(), row)).collect()
}

#[derive(Default)]
struct Latencies(BTreeMap<Subject, Vec<(On, Change)>>);

impl Latencies {
    fn note(&mut self, of: &Difference) {
        let changes = self.0.entry(of.subject.clone()).or_default();
        changes.push((of.on.clone(), of.change));
    }

    /// What they say of the kernel that a row is about: better or worse if all that decide agree.
    fn verdict(&self, row: &Row) -> Option<Change> {
        let is_of = |on: &On| match (&row.on, on) {
            (On::Problem(counted), On::Problem(place)) => place == counted,
            (
                On::Instance {
                    dtype, head_dim, ..
                },
                On::Problem(place),
            ) => {
                let shape = place.extents();
                place.dtype == *dtype && shape.is_some_and(|shape| shape.head_dim == *head_dim)
            }
            _ => false,
        };
        let changes = self.0.get(&row.subject)?;
        let has = |change: Change| changes.iter().any(|(on, one)| *one == change && is_of(on));
        match (has(Change::Better), has(Change::Worse)) {
            (true, false) => Some(Change::Better),
            (false, true) => Some(Change::Worse),
            _ => None,
        }
    }
}

struct Join<'a> {
    base: Index<'a>,
    new: Index<'a>,
    drift: Drift,
    tables: &'a Tables<'a>,
}

impl<'a> Join<'a> {
    fn judge(&self, key: &Key, latencies: &Latencies) -> Vec<Difference> {
        match (self.base.get(key), self.new.get(key)) {
            // The same row of the same session says nothing about a change.
            (Some(old), Some(new)) if old == new => vec![],
            (Some(old), Some(new)) => {
                let mut differences = self.verdicts(old, new);
                differences.extend(self.figures(old, new, latencies));
                differences
            }
            (None, Some(new)) => self.added(new),
            (Some(old), None) => self.lost(old),
            (None, None) => vec![],
        }
    }

    fn verdicts(&self, old: &Row, new: &Row) -> Vec<Difference> {
        let gates: BTreeSet<GateId> = (old.verdicts.keys())
            .chain(new.verdicts.keys())
            .copied()
            .collect();
        let judged = gates.into_iter().filter_map(|gate| {
            let (was, is) = (old.says(gate), new.says(gate));
            let reason = new.verdicts.get(&gate).map_or("", |judged| &judged.reason);
            let (change, why) = match (was, is) {
                (Some(Verdict::NoData), None) => return None,
                (Some(_), None) if old.by == Source::Gpu && old.on != On::All => return None,
                (Some(_), None) => (Change::Missing, "judged in the base only".to_string()),
                (_, Some(Verdict::Fail)) if is_refuted(new) && was != is => (
                    Change::Informational,
                    format!("recorded as refuted: {reason}"),
                ),
                (was, Some(is)) => (turned(was, is)?, reason.to_string()),
                (None, None) => return None,
            };
            let required = change == Change::Missing && gate != GateId::R1 && self.tables.covers;
            let row = Difference::new(new, What::Gate(gate), Group::Gates, change, why);
            Some(row.values(was, is).required(required))
        });
        judged.collect()
    }

    fn added(&self, new: &Row) -> Vec<Difference> {
        let failed = new.failed().map(|(gate, judged)| {
            let (change, why) = match is_refuted(new) {
                true => (
                    Change::Informational,
                    format!("recorded as refuted: {}", judged.reason),
                ),
                false => (Change::Worse, judged.reason.clone()),
            };
            Difference::new(new, What::Gate(gate), Group::Gates, change, why)
                .values(None, Some(Verdict::Fail))
        });
        let mut differences: Vec<Difference> = failed.collect();
        let is_variant = new.on == On::All && Group::of(new) == Some(Group::Errors);
        if is_variant && differences.is_empty() {
            let why = "the base does not have it";
            let change = Change::Informational;
            differences.push(Difference::new(
                new,
                What::Variant,
                Group::Gates,
                change,
                why,
            ));
        }
        differences
    }

    /// What only the base has: of a variant that the new side does not know, that it is gone.
    fn lost(&self, old: &Row) -> Vec<Difference> {
        // What a narrower run was not asked for is not lost.
        if !self.tables.covers {
            return vec![];
        }
        let is_known = self.tables.new.about(&old.subject).next().is_some();
        let is_variant = old.on == On::All && Group::of(old) == Some(Group::Errors);
        let row =
            |what, group, change, why: &str| vec![Difference::new(old, what, group, change, why)];
        let missing = |what, group, why: &str, is_required: bool| {
            let rows = row(what, group, Change::Missing, why).into_iter();
            rows.map(|row| row.required(is_required && self.tables.covers))
                .collect()
        };
        match (old.by, &old.on) {
            (Source::Claim, _) => {
                let gate = match old.says(GateId::L1) {
                    Some(_) => GateId::L1,
                    None => GateId::E1,
                };
                let change = Change::Informational;
                row(What::Gate(gate), Group::Gates, change, "no longer claimed")
            }
            // Sites change with the kernels; the faults are the harness's own.
            (Source::SelfTest, _) => match old.subject.name().is_empty() {
                true => missing(
                    What::Gate(GateId::S1),
                    Group::Gates,
                    "planted in the base only",
                    true,
                ),
                false => vec![],
            },
            _ if is_variant && !is_known => {
                let why = "the new side does not declare it: removed or renamed";
                row(What::Variant, Group::Gates, Change::Informational, why)
            }
            _ if is_variant => {
                let why = "it was checked in the base, but not on the new side";
                missing(What::Variant, Group::Gates, why, true)
            }
            _ if !is_known => vec![],
            (Source::ComputeSanitizer, _) => missing(
                What::Gate(GateId::C7),
                Group::Gates,
                "judged in the base only",
                true,
            ),
            _ => match Group::of(old) {
                Some(group @ (Group::Resources | Group::Counters)) => {
                    let why = "built or counted in the base only";
                    missing(What::Row(group), group, why, self.is_built_alike(old))
                }
                Some(Group::Latency) => {
                    let why = "timed in the base only";
                    missing(What::Metric(Metric::P50), Group::Latency, why, true)
                }
                _ => vec![],
            },
        }
    }

    /// Whether the new side has a build by the same nvcc, for the same architectures.
    fn is_built_alike(&self, old: &Row) -> bool {
        let built = |session: &Session| (session.device_compiler.clone(), session.toggles.clone());
        let of_base = self.tables.base.session(old).map(built);
        let mut sessions = self.tables.new.sessions.values();
        old.by != Source::Ptxas || sessions.any(|session| Some(built(session)) == of_base)
    }

    fn figures(&self, old: &Row, new: &Row, latencies: &Latencies) -> Vec<Difference> {
        let Some(group) = Group::of(new) else {
            return vec![];
        };
        let row = |what, change, why: &str| Difference::new(new, what, group, change, why);
        if group == Group::Latency {
            return match is_latency(old) && is_latency(new) {
                true => vec![self.latency(old, new)],
                false => vec![],
            };
        }
        if let Some(why) = self.incomparable(old, new) {
            return vec![row(What::Row(group), Change::Missing, &why)];
        }
        if group == Group::Errors {
            let found = errors(old, new).into_iter();
            let is_lost = |d: &Difference| d.change == Change::Missing && self.tables.covers;
            return found
                .map(|d| Difference {
                    required: is_lost(&d),
                    ..d
                })
                .collect();
        }
        let is_compared = |metric: &&Metric| metric.spec().threshold != Threshold::NotCompared;
        let moved = (new.figures.iter()).filter_map(|(&metric, is)| {
            let was = old.figures.get(&metric)?;
            if !is_compared(&&metric) || was.value == is.value {
                return None;
            }
            let (change, why) = judge(metric, *was, *is, latencies.verdict(new));
            let values = [was, is].map(|figure| Some(metric.show(figure.value)));
            let [was, is] = values;
            Some(row(What::Metric(metric), change, &why).values(was, is))
        });
        let mut differences: Vec<Difference> = moved.collect();
        let lost = (old.figures.keys())
            .filter(is_compared)
            .filter(|metric| !new.figures.contains_key(metric));
        differences.extend(lost.map(|metric| {
            let why = format!("the new side does not have it{}", noted(new));
            row(What::Metric(*metric), Change::Missing, &why).required(self.tables.covers)
        }));
        if differences.is_empty() && new.by != Source::Kernel {
            differences.push(row(What::Row(group), Change::Unchanged, "exact"));
        }
        differences
    }

    /// Why figures of these two rows must not be compared, if so.
    fn incomparable(&self, old: &Row, new: &Row) -> Option<String> {
        let (base, now) = (
            self.tables.base.session(old)?,
            self.tables.new.session(new)?,
        );
        let nvcc = |session: &Session| match &session.device_compiler {
            DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}"),
            DeviceCompiler::Absent { .. } => "no GPU compiler".to_string(),
        };
        let gpu = |session: &Session| match &session.machine.gpu {
            Gpu::Present {
                name,
                arch,
                multiprocessors,
                driver,
                ..
            } => format!("{name} ({arch}, {multiprocessors} SMs), driver {driver}"),
            Gpu::Absent { .. } => "no GPU".to_string(),
        };
        match new.by {
            Source::Ptxas => unequal(nvcc(base), nvcc(now)),
            Source::Emulator => unequal(&base.host_compiler, &now.host_compiler),
            Source::Gpu if new.on != On::All => unequal(gpu(base), gpu(now)),
            _ => None,
        }
    }

    /// One latency on both sides, by the interval of the ratio of the medians.
    fn latency(&self, old: &Row, new: &Row) -> Difference {
        let metric = Metric::P50;
        let row = |change, why: String| {
            Difference::new(new, What::Metric(metric), Group::Latency, change, why)
                .required(change == Change::Missing && self.tables.covers)
        };
        if let Some(why) = self.incomparable(old, new) {
            return row(Change::Missing, why);
        }
        let [was, is] = [old, new].map(|row| row.under.as_deref().unwrap_or("unknown"));
        if let Some(why) = unequal(was, is) {
            return row(Change::Missing, why);
        }
        let failing = failing(self.tables.base, old).or_else(|| failing(self.tables.new, new));
        if let Some(why) = failing {
            return row(Change::Missing, why);
        }
        let ratio = ratio(old, new);
        let (change, why) = self.judge_latency(&ratio, old, new);
        let [was, is] = [old, new].map(|row| Some(metric.show(best::p50(row))));
        Difference {
            ratio: Some(ratio),
            ..row(change, why).values(was, is)
        }
    }

    fn judge_latency(&self, ratio: &Ratio, old: &Row, new: &Row) -> (Change, String) {
        let Drift {
            kernels,
            shift,
            spread,
        } = self.drift;
        if is_of_one_kernel(old, new) {
            let why = "the kernel has not changed: what moved is the machine or the harness";
            return (Change::Unchanged, why.into());
        }
        let limit = self.tables.threshold.max(spread);
        let margin = match kernels {
            _ if limit > spread => format!("{:.1} %", 100.0 * limit),
            n if n < FEWEST => format!(
                "{:.1} %, as far as kernels move between sessions",
                100.0 * limit
            ),
            n => format!(
                "{:.1} %, as far as 95 of 100 of {n} unchanged kernels moved",
                100.0 * limit
            ),
        };
        let scaled = |scale: f64| Ratio {
            value: ratio.value * scale,
            interval: Interval {
                low: ratio.interval.low * scale,
                high: ratio.interval.high * scale,
            },
        };
        // What the session adds to all kernels is not this kernel's.
        let relative = scaled(1.0 / shift);
        let decided = Decided::of(&relative, limit);
        let noise = [old, new].map(|row| {
            let p50 = best::p50(row);
            row.value(Metric::P90).map_or(0.0, |p90| (p90 - p50) / p50)
        });
        let noise = noise[0].max(noise[1]);
        // In cycles: a change of the clock is not the kernel's.
        let clocks = old.value(Metric::SmMhz).zip(new.value(Metric::SmMhz));
        let in_cycles = scaled(clocks.map_or(1.0, |(was, is)| was / is) / shift);
        let beyond = |change| (change, format!("beyond {margin}"));
        match decided {
            Decided::Same => (Change::Unchanged, format!("within {margin}")),
            Decided::Ambiguous => (
                Change::Inconclusive,
                format!("the interval crosses {margin}"),
            ),
            _ if Decided::of(&relative, limit.max(noise)) != decided => {
                let noise = 100.0 * noise;
                let why =
                    format!("beyond {margin}, but not beyond the samples' noise of {noise:.1} %");
                (Change::Inconclusive, why)
            }
            _ if Decided::of(&in_cycles, limit) != decided => {
                let (was, is) = clocks.unwrap_or_default();
                let why = format!(
                    "beyond {margin} in time, but not in cycles: {was:.0} MHz against {is:.0} MHz"
                );
                (Change::Inconclusive, why)
            }
            Decided::Faster => beyond(Change::Better),
            Decided::Slower => beyond(Change::Worse),
        }
    }
}

/// Why a latency says nothing, if its kernel is wrong.
fn failing(table: &Table, row: &Row) -> Option<String> {
    let summary = table.row(&row.subject, &On::All, Source::Gpu);
    let summary = summary.filter(|summary| summary.identity == row.identity);
    let mut failed = summary.into_iter().chain([row]).flat_map(Row::failed);
    let (gate, _) = failed.next()?;
    Some(format!("{} fails {gate}", row.subject))
}

fn noted(row: &Row) -> String {
    row.note.iter().map(|note| format!(": {note}")).collect()
}

/// Whether the row is of a claim that is recorded as refuted.
fn is_refuted(row: &Row) -> bool {
    row.by == Source::Claim && row.note.is_some()
}

/// Errors as shares of their gates' bounds, of a case or over as many cases.
fn errors(old: &Row, new: &Row) -> Vec<Difference> {
    let cases = |row: &Row| row.value(Metric::Cases);
    let mut differences = Vec::new();
    if let Some((was, is)) = cases(old).zip(cases(new))
        && was != is
    {
        // The largest error of other cases would be another figure.
        let what = What::Metric(Metric::Cases);
        let (change, why) = match is < was {
            true => (Change::Missing, "it ran fewer than in the base"),
            false => (Change::Informational, "it ran more than in the base"),
        };
        let row = Difference::new(new, what, Group::Errors, change, why);
        return vec![row.values(Some(was), Some(is))];
    }
    for &metric in Metric::ALL {
        let Threshold::Absolute(margin) = metric.spec().threshold else {
            continue;
        };
        let Some((was, is)) = old.value(metric).zip(new.value(metric)) else {
            continue;
        };
        let why = format!("share of the bound; margin {:.0} % of it", 100.0 * margin);
        let change = moved(was, is, margin);
        let row = Difference::new(new, What::Metric(metric), Group::Errors, change, why);
        differences.push(row.values(Some(metric.show(was)), Some(metric.show(is))));
    }
    differences
}

/// Of a variant's cases only those whose errors changed; the row over all of them has the rest.
fn furthest_case_alone(differences: Vec<Difference>) -> Vec<Difference> {
    let is_quiet = |d: &Difference| matches!(d.on, On::Case(..)) && d.change == Change::Unchanged;
    differences.into_iter().filter(|d| !is_quiet(d)).collect()
}

/// The reason not to compare two things that are not the same.
fn unequal<T: fmt::Display + PartialEq>(was: T, is: T) -> Option<String> {
    (was != is).then(|| format!("{was} against {is}"))
}

/// How a verdict changed; `None` if that says nothing.
fn turned(was: Option<Verdict>, is: Verdict) -> Option<Change> {
    match (was, is) {
        (Some(Verdict::Fail), Verdict::Fail) => Some(Change::Unchanged),
        (_, Verdict::Fail) => Some(Change::Worse),
        (Some(Verdict::Fail), Verdict::Pass) => Some(Change::Better),
        (Some(Verdict::Pass), Verdict::Ambiguous) => Some(Change::Inconclusive),
        (Some(Verdict::Pass | Verdict::Fail), Verdict::NoData) => Some(Change::Missing),
        (Some(was), is) if was == is => Some(Change::Unchanged),
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

/// How an error changed, given as a share of its bound.
fn moved(was: f64, is: f64, margin: f64) -> Change {
    let crosses = was <= 1.0 && is > 1.0;
    if is.is_nan() || crosses || is - was > margin {
        Change::Worse
    } else if was.is_nan() || was - is > margin {
        Change::Better
    } else {
        Change::Unchanged
    }
}

fn judge(metric: Metric, was: Figure, is: Figure, latency: Option<Change>) -> (Change, String) {
    let spec = metric.spec();
    let change = match spec.better {
        Better::Informational => Change::Informational,
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
            Change::Informational,
            "the measured latency says the opposite".into(),
        ),
        _ => (change, spec.because.into()),
    }
}

impl From<&Difference> for Moved {
    fn from(difference: &Difference) -> Self {
        let why = &difference.why;
        let ratio = difference.ratio.as_ref();
        Self {
            subject: difference.subject.clone(),
            metric: difference.title(),
            base: difference.base.clone().unwrap_or_default(),
            new: difference.new.clone().unwrap_or_default(),
            why: ratio.map_or(why.clone(), |ratio| format!("{:.2}x; {why}", ratio.value)),
        }
    }
}

/// The most lines of what is worse that a session keeps.
const KEPT: usize = 40;

impl Comparison {
    /// What a session keeps of what it changed.
    pub fn changes(&self, since: &str) -> Changes {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for difference in &self.differences {
            *counts
                .entry(difference.change.word().to_string())
                .or_default() += 1;
        }
        let worse = (self.differences.iter()).filter(|d| d.change == Change::Worse);
        let worse = worse.take(KEPT).map(Moved::from);
        Changes {
            since: since.to_string(),
            counts,
            worse: worse.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
