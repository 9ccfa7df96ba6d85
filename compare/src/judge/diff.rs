//! What differs between two tables: one outer join over the key, and one judgement per verdict and per figure, by the registry of
//! metrics. For `compare diff`, for COMPARE.md, and for `accept`.
//!
//! Figures that must not be compared (another GPU, driver, compiler or state of the cache) are missing, with the reason. Latencies of
//! kernels that have not changed are the control ([`Drift`]): they widen what a changed kernel must show, and are themselves never
//! worse nor better.

use super::best::{self, is_latency};
use super::drift::{Drift, FEWEST, clock, cycles, is_of_one_kernel};
use super::{blocks, claims};
use crate::table::session::DeviceCompiler;
use crate::table::{
    Key, Place, ProblemPlace, Row, Run, Session, Source, StageMeta, Subject, Table,
};
use common::metric::{Better, LATENCY_CHANGE, Metric, Spec, Threshold};
use common::timing::Change as Decided;
use common::timing::stats::{Interval, Ratio};
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeSet;
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
    /// The group of a row's figures; `None` if they are not compared.
    fn of(row: &Row) -> Option<Self> {
        match (row.source, &row.place) {
            _ if row.paired_with.is_some() => None,
            (Source::Ptxas | Source::Kernel, _) => Some(Group::Resources),
            (Source::Emulator, Place::Problem(_)) => Some(Group::Counters),
            (Source::Gpu, Place::Problem(_)) => Some(Group::Latency),
            (Source::Gpu | Source::Emulator, Place::All | Place::Case(..)) => Some(Group::Errors),
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
            What::Row(group) => f.write_str(&format!("{group:?}").to_lowercase()),
            What::Variant => f.write_str("variant"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub subject: Subject,
    pub place: Place,
    pub source: Source,
    pub what: What,
    pub group: Group,
    pub change: Change,
    pub base: Option<String>,
    pub new: Option<String>,
    /// The two values as numbers, of a figure.
    pub figures: Option<Moved>,
    /// `base / new` of a latency.
    pub ratio: Option<Ratio>,
    /// The reason, with the threshold.
    pub why: String,
    /// Data is missing that the new side should have: the exit code is 3.
    pub required: bool,
}

/// A figure on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub base: f64,
    pub new: f64,
}

impl Difference {
    fn new(row: &Row, what: What, change: Change, why: impl Into<String>) -> Self {
        let group = match what {
            What::Gate(_) | What::Variant => Group::Gates,
            What::Row(group) => group,
            What::Metric(_) => Group::of(row).unwrap_or(Group::Gates),
        };
        Self {
            subject: row.subject.clone(),
            place: row.place.clone(),
            source: row.source,
            what,
            group,
            change,
            base: None,
            new: None,
            figures: None,
            ratio: None,
            why: why.into(),
            required: false,
        }
    }

    /// A stage whose kernel has changed since the new side measured it.
    pub fn outdated(stage: &str) -> Self {
        let why = "the kernel has changed since the new side was measured; run `compare` again";
        Self::absent(stage, Source::Kernel, why)
    }

    /// A GPU model whose table the new side does not have.
    pub fn gone(gpu: &str) -> Self {
        let why = "the new side has no table of this GPU model";
        Self::absent(gpu, Source::Gpu, why)
    }

    fn absent(subject: &str, source: Source, why: &str) -> Self {
        let row = Row::new(subject, Place::All, source);
        Self::new(&row, What::Variant, Change::Missing, why).required(true)
    }

    fn values(self, base: Option<String>, new: Option<String>) -> Self {
        Self { base, new, ..self }
    }

    fn figures(self, base: f64, new: Option<f64>) -> Self {
        let figures = new.map(|new| Moved { base, new });
        Self { figures, ..self }
    }

    fn required(self, required: bool) -> Self {
        Self { required, ..self }
    }

    /// `p50 on mission f16 full`
    pub fn title(&self) -> String {
        match (&self.place, self.source) {
            (Place::All, _) => self.what.to_string(),
            (Place::Named(claim), Source::Claim) => format!("claim {claim}"),
            (place, _) => format!("{} on {place}", self.what),
        }
    }
}

pub struct Comparison {
    /// In the order of the ladder; those that concern most come first within a stage.
    pub differences: Vec<Difference>,
    /// In the order of the ladder.
    pub kernels: Vec<Kernel>,
    pub drift: Drift,
}

/// A variant, and whether it is the same on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kernel {
    pub subject: Subject,
    pub state: KernelState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelState {
    /// Its sources differ.
    Changed,
    /// Its sources differ, and its machine code does not.
    SameCode,
    /// Only the new side has it.
    New,
    /// Only the base has it.
    Gone,
    Unchanged,
}

impl KernelState {
    /// The state of a variant by its rows. An identity is of sources, a code of what nvcc made of them.
    fn between(base: &Table, new: &Table, subject: &Subject) -> Option<Self> {
        let own =
            |table: &Table| Vec::from_iter(table.about(subject).filter(is_of_kernel).cloned());
        let (old, now) = (own(base), own(new));
        if now.is_empty() {
            return (!old.is_empty()).then_some(KernelState::Gone);
        }
        if old.is_empty() {
            return Some(KernelState::New);
        }
        let pairs = now
            .iter()
            .filter_map(|row| Some((base.get(&row.key())?, row)));
        let pairs = Vec::from_iter(pairs);
        let differs = |part: fn(&Row) -> &Option<String>| {
            let view = pairs
                .iter()
                .filter(|(old, now)| part(old).is_some() && part(now).is_some());
            let found = Vec::from_iter(view.map(|(old, now)| part(old) != part(now)));
            (!found.is_empty()).then(|| found.contains(&true))
        };
        let sources = differs(|row| &row.identity).unwrap_or(false);
        let code = differs(|row| &row.code);
        Some(match (sources, code) {
            (false, _) => KernelState::Unchanged,
            (true, Some(false)) => KernelState::SameCode,
            (true, _) => KernelState::Changed,
        })
    }
}

/// Whether the row is about one variant by itself.
fn is_of_kernel(row: &&Row) -> bool {
    use Source::{Emulator, Gpu, Ptxas};
    matches!(row.source, Source::Kernel | Ptxas | Emulator | Gpu)
        && row.paired_with.is_none()
        && !row.subject.name().is_empty()
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
        .retain(|row| !committed.covers(row) && !matches!(row.place, Place::Case(..)));
    let mut table = committed.clone();
    table.merge(&kept.session, &kept.table);
    table.prune(&run.session.stages);
    claims::restate(&mut table, &run.session.stages);
    table
}

/// Compares two tables; `covers` if the new side was asked to have everything that the base has. `stages` give the order.
pub fn compare(base: &Table, new: &Table, covers: bool, stages: &[StageMeta]) -> Comparison {
    let drift = Drift::between(base, new, best::p50);
    let join = Join {
        base,
        new,
        covers,
        drift,
        drift_in_cycles: Drift::between(base, new, cycles),
    };
    let keys: BTreeSet<&Key> = base.keys().chain(new.keys()).collect();
    // Random problems differ from session to session.
    let keys = keys.into_iter().filter(|key| key.source != Source::Draw);
    let mut differences: Vec<Difference> = keys.flat_map(|key| join.judge(key)).collect();
    // Of cases only those whose errors changed; the row over all of them has the rest.
    differences.retain(|d| !matches!(d.place, Place::Case(..)) || d.change != Change::Unchanged);
    let place = |subject: &Subject| {
        let mut ids = stages.iter().map(|stage| stage.id.as_str());
        ids.position(|id| id == subject.stage())
    };
    differences.sort_by_key(|d| (place(&d.subject), d.group, d.change));
    let mut kernels = kernels(base, new, covers);
    kernels.sort_by_key(|kernel| place(&kernel.subject));
    Comparison {
        differences,
        kernels,
        drift,
    }
}

/// The variants of both sides; those that a narrower run was not asked for are not gone.
fn kernels(base: &Table, new: &Table, covers: bool) -> Vec<Kernel> {
    let rows = base.rows().chain(new.rows()).filter(is_of_kernel);
    let subjects = BTreeSet::from_iter(rows.map(|row| &row.subject));
    let kernels = subjects.into_iter().filter_map(|subject| {
        let state = KernelState::between(base, new, subject)?;
        let subject = subject.clone();
        Some(Kernel { subject, state })
    });
    kernels
        .filter(|kernel| covers || kernel.state != KernelState::Gone)
        .collect()
}

struct Join<'a> {
    base: &'a Table,
    new: &'a Table,
    covers: bool,
    drift: Drift,
    drift_in_cycles: Drift,
}

impl Join<'_> {
    fn judge(&self, key: &Key) -> Vec<Difference> {
        let is_new = |row: &Row| self.base.about(&row.subject).next().is_none();
        match (self.base.get(key), self.new.get(key)) {
            // The same row of the same session says nothing about a change.
            (old, new) if old == new => vec![],
            (Some(old), None) => self.lost(old).into_iter().collect(),
            (old, Some(new)) => {
                let mut found = self.verdicts(old, new);
                match old {
                    Some(old) => found.extend(self.figures(old, new)),
                    None if found.is_empty() && is_variant(new) && is_new(new) => {
                        let why = "the base does not have it";
                        found.push(self.difference(new, What::Variant, Change::Informational, why));
                    }
                    None => {}
                }
                found
            }
            (None, None) => vec![],
        }
    }

    /// What is missing on a side that was asked for it is required.
    fn difference(
        &self,
        row: &Row,
        what: What,
        change: Change,
        why: impl Into<String>,
    ) -> Difference {
        let is_lost = change == Change::Missing && self.covers;
        Difference::new(row, what, change, why).required(is_lost)
    }

    fn verdicts(&self, old: Option<&Row>, new: &Row) -> Vec<Difference> {
        let rows = old.into_iter().chain([new]);
        let gates: BTreeSet<GateId> = rows.flat_map(|row| row.verdicts.keys().copied()).collect();
        let is_timed = new.source == Source::Gpu && new.place != Place::All;
        let judged = gates.into_iter().filter_map(|gate| {
            let (was, is) = (old.and_then(|old| old.says(gate)), new.says(gate));
            let reason = new.verdicts.get(&gate).map_or("", |judged| &judged.reason);
            let (change, why) = match (was, is) {
                (None | Some(Verdict::NoData), None) => return None,
                (_, None) if is_timed => return None,
                (_, None) => (Change::Missing, "judged in the base only".into()),
                // A claim with a note is recorded as refuted.
                (_, Some(Verdict::Fail))
                    if was != is && new.source == Source::Claim && new.note.is_some() =>
                {
                    (
                        Change::Informational,
                        format!("recorded as refuted: {reason}"),
                    )
                }
                (was, Some(is)) => (turned(was, is)?, reason.into()),
            };
            let judged = self.difference(new, What::Gate(gate), change, why);
            let is_required = judged.required && gate != GateId::R1;
            let [was, is] = [was, is].map(|verdict| verdict.map(|verdict| verdict.to_string()));
            Some(judged.values(was, is).required(is_required))
        });
        judged.collect()
    }

    /// What only the base has: of a variant that the new side does not know, that it is gone.
    fn lost(&self, old: &Row) -> Option<Difference> {
        // What a narrower run was not asked for is not lost.
        if !self.covers {
            return None;
        }
        let is_known = self.new.about(&old.subject).next().is_some();
        let gate = || Some(What::Gate(*old.verdicts.keys().next()?));
        let missing = |what, why| Some(self.difference(old, what, Change::Missing, why));
        let gone = |what, why| Some(self.difference(old, what, Change::Informational, why));
        match (old.source, Group::of(old)) {
            (Source::Claim, _) => gone(gate()?, "no longer claimed"),
            // Sites change with the kernels; the faults are the harness's own.
            (Source::SelfTest, _) if !old.subject.name().is_empty() => None,
            (Source::SelfTest, _) => missing(gate()?, "planted in the base only"),
            _ if is_variant(old) && is_known => missing(
                What::Variant,
                "it was checked in the base, but not on the new side",
            ),
            _ if is_variant(old) => {
                let why = "the new side does not declare it: removed or renamed";
                Some(gone(What::Variant, why)?.values(Some("declared".into()), None))
            }
            _ if !is_known => None,
            (Source::ComputeSanitizer, _) => missing(gate()?, "judged in the base only"),
            (_, Some(group @ (Group::Resources | Group::Counters))) => {
                let lost = missing(What::Row(group), "built or counted in the base only");
                lost.map(|lost| lost.required(self.is_built_alike(old)))
            }
            (_, Some(Group::Latency)) => {
                missing(What::Metric(Metric::P50), "timed in the base only")
            }
            _ => None,
        }
    }

    /// Whether the new side has a build by the same nvcc, for the same architectures.
    fn is_built_alike(&self, old: &Row) -> bool {
        let of_base = self
            .base
            .session(old)
            .map(|session| &session.device_compiler);
        let mut sessions = self.new.sessions.values();
        old.source != Source::Ptxas
            || sessions.any(|session| Some(&session.device_compiler) == of_base)
    }

    fn figures(&self, old: &Row, new: &Row) -> Vec<Difference> {
        let Some(group) = Group::of(new) else {
            return vec![];
        };
        if group == Group::Latency {
            return vec![self.latency(old, new)];
        }
        if let Some(why) = self.incomparable(old, new) {
            return vec![Difference::new(new, What::Row(group), Change::Missing, why)];
        }
        if let [Some(was), Some(is)] = [old, new].map(|row| row.value(Metric::Cases))
            && group == Group::Errors
            && was != is
        {
            // The largest error of other cases would be another figure.
            let (change, why) = match is < was {
                true => (Change::Missing, "it ran fewer than in the base"),
                false => (Change::Informational, "it ran more than in the base"),
            };
            let cases = self.difference(new, What::Metric(Metric::Cases), change, why);
            return vec![cases.values(Some(was.to_string()), Some(is.to_string()))];
        }
        let figures = old.figures.iter();
        let mut found: Vec<Difference> = figures
            .filter_map(|(metric, was)| self.figure(*metric, was.value, new))
            .collect();
        if found.is_empty() && group != Group::Errors && new.source != Source::Kernel {
            found.push(self.difference(new, What::Row(group), Change::Unchanged, "exact"));
        }
        found
    }

    /// One figure that the base has, by the registry; `None` if it is not compared, or is exactly the same.
    fn figure(&self, metric: Metric, was: f64, new: &Row) -> Option<Difference> {
        let Spec {
            threshold,
            better,
            because,
            ..
        } = metric.spec();
        let what = What::Metric(metric);
        let is = new.figures.get(&metric).map(|figure| figure.value);
        let (change, why) = match (threshold, is) {
            (Threshold::NotCompared | Threshold::Interval(_), _) => return None,
            (Threshold::Absolute(_), None) => return None,
            (_, None) => {
                let note: String = new.note.iter().map(|note| format!(": {note}")).collect();
                let why = format!("the new side does not have it{note}");
                return Some(self.difference(new, what, Change::Missing, why));
            }
            (Threshold::Absolute(margin), Some(is)) => {
                let why = format!("share of the bound; margin {:.0} % of it", 100.0 * margin);
                (moved(was, is, margin), why)
            }
            (_, Some(is)) if was == is => return None,
            (_, Some(is)) => {
                let change = match better {
                    Better::Informational => Change::Informational,
                    Better::Lower if is < was => Change::Better,
                    Better::Higher if is > was => Change::Better,
                    Better::Lower | Better::Higher => Change::Worse,
                };
                let opposite = match change {
                    Change::Better => Some(Change::Worse),
                    Change::Worse => Some(Change::Better),
                    _ => None,
                };
                let yields = threshold == Threshold::ExactUnlessLatency && opposite.is_some();
                match yields && self.timed(new) == opposite {
                    true => (
                        Change::Informational,
                        "the measured latency says the opposite".into(),
                    ),
                    false => (change, because.into()),
                }
            }
        };
        let shown = |table: &Table, value: f64| {
            let blocks = (metric == Metric::Occupancy).then(|| blocks::per_sm(table, new, value));
            let blocks = blocks.flatten().map(|blocks| format!(" ({blocks} per SM)"));
            metric.show(value) + &blocks.unwrap_or_default()
        };
        let values = (shown(self.base, was), is.map(|is| shown(self.new, is)));
        Some(
            self.difference(new, what, change, why)
                .values(Some(values.0), values.1)
                .figures(was, is),
        )
    }

    /// What latencies say of the kernel that a row is about: better or worse if all that decide agree.
    fn timed(&self, row: &Row) -> Option<Change> {
        let is_of = |place: &ProblemPlace| match &row.place {
            Place::Problem(counted) => place == counted,
            Place::Instance {
                dtype, head_dim, ..
            } => {
                let shape = place.extents();
                place.dtype == *dtype && shape.is_some_and(|shape| shape.head_dim == *head_dim)
            }
            _ => false,
        };
        let latencies = self
            .new
            .of(&row.subject, Source::Gpu)
            .filter(|new| is_latency(new));
        let latencies = latencies.filter(|new| new.place.problem().is_some_and(is_of));
        let changes: Vec<Change> = latencies
            .filter_map(|new| {
                let old = self.base.get(&new.key())?;
                is_latency(old).then(|| self.latency(old, new).change)
            })
            .collect();
        let has = |change| changes.contains(&change);
        match (has(Change::Better), has(Change::Worse)) {
            (true, false) => Some(Change::Better),
            (false, true) => Some(Change::Worse),
            _ => None,
        }
    }

    /// Why figures of these two rows must not be compared, if so.
    fn incomparable(&self, old: &Row, new: &Row) -> Option<String> {
        let (base, now) = (self.base.session(old)?, self.new.session(new)?);
        let nvcc = |session: &Session| match &session.device_compiler {
            DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}"),
            DeviceCompiler::Absent { .. } => "no GPU compiler".to_string(),
        };
        // Without the UUID of the card.
        let gpu = |session: &Session| session.machine.gpu.to_string();
        match new.source {
            Source::Ptxas => unequal(nvcc(base), nvcc(now)),
            Source::Emulator => unequal(&base.host_compiler, &now.host_compiler),
            Source::Gpu if new.place != Place::All => unequal(gpu(base), gpu(now)),
            _ => None,
        }
    }

    /// One latency on both sides, by the interval of the ratio of the medians.
    fn latency(&self, old: &Row, new: &Row) -> Difference {
        let metric = Metric::P50;
        let row = |change, why: String| self.difference(new, What::Metric(metric), change, why);
        let [was, is] = [old, new].map(|row| row.conditions.as_deref().unwrap_or("unknown"));
        let why = (self.incomparable(old, new))
            .or_else(|| unequal(was, is))
            .or_else(|| failing(self.base, old))
            .or_else(|| failing(self.new, new));
        if let Some(why) = why {
            return row(Change::Missing, why);
        }
        let ratio = ratio(old, new);
        let (change, why) = self.judge_latency(&ratio, old, new);
        let [was, is] = [old, new].map(best::p50);
        Difference {
            ratio: Some(ratio),
            ..row(change, why)
                .values(Some(metric.show(was)), Some(metric.show(is)))
                .figures(was, Some(is))
        }
    }

    fn judge_latency(&self, ratio: &Ratio, old: &Row, new: &Row) -> (Change, String) {
        let Drift {
            kernels,
            shift,
            spread,
        } = self.drift;
        if old.session == new.session && best::p50(old) != best::p50(new) {
            let why = "one session has two times of it: it was edited, or measured again under the same name";
            return (Change::Inconclusive, why.into());
        }
        if is_of_one_kernel(old, new) {
            let why = "the kernel has not changed: what moved is the machine or the harness";
            return (Change::Unchanged, why.into());
        }
        let limit = LATENCY_CHANGE.max(spread);
        let margin = match kernels {
            _ if limit > spread => format!("{:.1} %", 100.0 * limit),
            n if n < FEWEST => format!(
                "{:.1} %, the usual variation between sessions",
                100.0 * limit
            ),
            n => format!(
                "{:.1} %, as far as 95 of 100 of {n} unchanged kernels moved",
                100.0 * limit
            ),
        };
        // What the session adds to all kernels is not this kernel's.
        let relative = scaled(ratio, 1.0 / shift);
        let decided = Decided::of(&relative, limit);
        let noise = [old, new].map(|row| {
            let p50 = best::p50(row);
            row.value(Metric::P90).map_or(0.0, |p90| (p90 - p50) / p50)
        });
        let noise = noise[0].max(noise[1]);
        let in_cycles = self.in_cycles(ratio, old, new);
        let clocks = [old, new].map(|row| clock(row).unwrap_or_default());
        let clocks = format!("{:.0} MHz against {:.0} MHz", clocks[0], clocks[1]);
        let beyond = |change| (change, format!("beyond {margin}"));
        match decided {
            Decided::Same => match in_cycles {
                // Without unchanged kernels nothing else shows what a faster clock hides.
                Some(moved @ (Decided::Faster | Decided::Slower)) if kernels < FEWEST => {
                    let word = format!("{moved:?}").to_lowercase();
                    let why = format!("within {margin} in time, but {word} in cycles: {clocks}");
                    (Change::Inconclusive, why)
                }
                _ => (Change::Unchanged, format!("within {margin}")),
            },
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
            _ if in_cycles.is_some_and(|in_cycles| in_cycles != decided) => {
                let why = format!("beyond {margin} in time, but not in cycles: {clocks}");
                (Change::Inconclusive, why)
            }
            Decided::Faster => beyond(Change::Better),
            Decided::Slower => beyond(Change::Worse),
        }
    }

    /// Judges a latency in cycles: a change of the clock is not the kernel's. What unchanged kernels moved by in time contains that
    /// change already, so that here they are compared in cycles, too. `None` where a clock is not known, or theirs are not.
    fn in_cycles(&self, ratio: &Ratio, old: &Row, new: &Row) -> Option<Decided> {
        let (was, is) = clock(old).zip(clock(new))?;
        let Drift {
            kernels,
            shift,
            spread,
        } = self.drift_in_cycles;
        if kernels < FEWEST && self.drift.kernels >= FEWEST {
            return None;
        }
        let limit = LATENCY_CHANGE.max(spread);
        Some(Decided::of(&scaled(ratio, was / is / shift), limit))
    }
}

fn scaled(ratio: &Ratio, scale: f64) -> Ratio {
    Ratio {
        value: ratio.value * scale,
        interval: Interval {
            low: ratio.interval.low * scale,
            high: ratio.interval.high * scale,
        },
    }
}

/// Why a latency says nothing, if its kernel is wrong.
fn failing(table: &Table, row: &Row) -> Option<String> {
    let summary = table.row(&row.subject, &Place::All, Source::Gpu);
    let summary = summary.filter(|summary| summary.identity == row.identity);
    let mut failed = summary.into_iter().chain([row]).flat_map(Row::failed);
    let (gate, _) = failed.next()?;
    Some(format!("{} fails {gate}", row.subject))
}

/// Whether the row is of a variant over all its cases.
fn is_variant(row: &Row) -> bool {
    row.place == Place::All && Group::of(row) == Some(Group::Errors)
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

#[cfg(test)]
mod tests;
