//! What differs between two tables: one outer join over the key, and one judgement per verdict and
//! per figure, by the registry of metrics. For `compare diff`, for COMPARE.md, and for `accept`.
//!
//! Figures that must not be compared (another GPU, driver, compiler or state of the cache) are
//! missing, with the reason. Latencies of kernels that have not changed are the control
//! ([`Drift`]): they widen what a changed kernel must show, and are themselves never worse nor
//! better.

mod figures;
mod kernels;
mod latency;
mod verdicts;

pub use kernels::{Kernel, KernelState};

use super::best::p50;
use super::claims;
use super::drift::{Drift, cycles};
use super::former;
use crate::table::session::DeviceCompiler;
use crate::table::{Key, Kind, Place, Row, Run, Session, Source, StageMeta, Subject, Table};
use common::device::BackendKind;
use common::metric::Metric;
use common::timing::stats::Ratio;
use common::verdict::GateId;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// The way in which a figure or verdict differs, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A gate fails now, or a figure moved the wrong way.
    Worse,
    Undecided,
    /// One side has no figure, or the two must not be compared.
    Missing,
    Better,
    /// It differs, which by itself is neither good nor bad.
    Informational,
    /// No difference beyond the threshold.
    Unchanged,
}

impl Change {
    /// All changes, in the order in which pages count them.
    pub const ALL: [Change; 6] = [
        Change::Worse,
        Change::Undecided,
        Change::Missing,
        Change::Better,
        Change::Informational,
        Change::Unchanged,
    ];

    /// Returns its word in `6 worse, 84 improved`.
    pub fn word(self) -> &'static str {
        match self {
            Change::Worse => "worse",
            Change::Undecided => "undecided",
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
    /// Returns the group of a row's figures; `None` if they are not compared.
    fn of_kind(kind: &Kind) -> Option<Self> {
        match kind {
            Kind::Declared(_) | Kind::Compiled { .. } => Some(Self::Resources),
            Kind::Counters(_) => Some(Self::Counters),
            Kind::Latency(_) => Some(Self::Latency),
            Kind::Checked(_) | Kind::Case(..) => Some(Self::Errors),
            Kind::Pair { .. }
            | Kind::RandomTime(_)
            | Kind::Regret
            | Kind::PeerSession
            | Kind::PeerTime(_)
            | Kind::PeerPair { .. }
            | Kind::CandidateCase(_)
            | Kind::Profile(_)
            | Kind::Sanitized
            | Kind::Fault(_)
            | Kind::Site(_)
            | Kind::Timer(_)
            | Kind::Claim(_)
            | Kind::GivenOutput(_) => None,
        }
    }
}

/// The thing that differs.
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

/// The thing that a difference is about.
#[derive(Clone, Debug, PartialEq)]
pub enum About {
    Row(Kind),
    /// The kernels of a stage.
    Stage,
    /// The table of a GPU model.
    GpuModel,
}

/// A difference between two tables in one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub subject: Subject,
    pub about: About,
    pub what: What,
    pub group: Group,
    pub change: Change,
    pub base: Option<String>,
    pub new: Option<String>,
    /// The two values of a figure, as numbers.
    pub figures: Option<Moved>,
    /// `base / new` of a latency.
    pub ratio: Option<Ratio>,
    /// The reason, with the threshold.
    pub why: String,
    /// Whether data is missing that the new side should have: the exit code is 3.
    pub required: bool,
}

/// A figure on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub base: f64,
    pub new: f64,
}

/// A change, and what decided it.
struct Judgement {
    change: Change,
    why: String,
}

impl Judgement {
    fn new(change: Change, why: impl Into<String>) -> Self {
        Self {
            change,
            why: why.into(),
        }
    }
}

impl Difference {
    fn new(row: &Row, what: What, judgement: Judgement) -> Self {
        let group = match what {
            What::Gate(_) | What::Variant => Group::Gates,
            What::Row(group) => group,
            What::Metric(_) => Group::of_kind(&row.kind).unwrap_or(Group::Gates),
        };
        Self {
            subject: row.subject.clone(),
            about: About::Row(row.kind.clone()),
            what,
            group,
            change: judgement.change,
            base: None,
            new: None,
            figures: None,
            ratio: None,
            why: judgement.why,
            required: false,
        }
    }

    /// Returns the difference of a stage whose kernel has changed since the new side measured it.
    pub fn outdated(stage: &str) -> Self {
        let why = "the kernel has changed since the new side was measured; run `compare` again";
        Self::absent(stage, About::Stage, why)
    }

    /// Returns the difference of a GPU model whose table the new side does not have.
    pub fn gone(gpu: &str) -> Self {
        let why = "the new side has no table of this GPU model";
        Self::absent(gpu, About::GpuModel, why)
    }

    fn absent(subject: &str, about: About, why: &str) -> Self {
        Self {
            subject: subject.into(),
            about,
            what: What::Variant,
            group: Group::Gates,
            change: Change::Missing,
            base: None,
            new: None,
            figures: None,
            ratio: None,
            why: why.to_string(),
            required: true,
        }
    }

    fn values(self, base: Option<String>, new: Option<String>) -> Self {
        Self { base, new, ..self }
    }

    fn figures(self, base: f64, new: Option<f64>) -> Self {
        Self {
            figures: new.map(|value| Moved { base, new: value }),
            ..self
        }
    }

    fn required(self, required: bool) -> Self {
        Self { required, ..self }
    }

    /// Returns the place of the row that differs.
    pub fn place(&self) -> Place<'_> {
        match &self.about {
            About::Row(kind) => kind.place(),
            About::Stage | About::GpuModel => Place::All,
        }
    }

    /// Returns the source of the row that differs.
    pub fn source(&self) -> Source {
        match &self.about {
            About::Row(kind) => kind.source(),
            About::Stage => Source::Kernel,
            About::GpuModel => Source::Gpu,
        }
    }

    /// Returns `p50 on mission f16 full`.
    pub fn title(&self) -> String {
        if let About::Row(Kind::Claim(claim)) = &self.about {
            return format!("claim {claim}");
        }
        match self.place() {
            Place::All => self.what.to_string(),
            place => format!("{} on {place}", self.what),
        }
    }

    /// Returns whether it is about a claim.
    pub fn is_claim(&self) -> bool {
        matches!(self.about, About::Row(Kind::Claim(_)))
    }

    /// Returns whether it is about a gate of a kernel; claims have gates of their own.
    pub fn is_gate(&self) -> bool {
        matches!(self.what, What::Gate(_)) && !self.is_claim()
    }

    /// Returns whether it is about a single case.
    fn is_case(&self) -> bool {
        matches!(self.place(), Place::Case(_))
    }
}

/// All differences between two tables.
pub struct Comparison {
    /// The differences in the order of the ladder; those that concern most come first within a
    /// stage.
    pub differences: Vec<Difference>,
    /// The variants in the order of the ladder.
    pub kernels: Vec<Kernel>,
    pub drift: Drift,
}

/// Returns whether the session `new` was asked to run all that `base` ran: the same selection, or a
/// whole tier that is not smaller, on the same backend.
pub fn covers(base: &Session, new: &Session) -> bool {
    if base.backend != new.backend || base.device != new.device {
        return false;
    }
    let has_one_scope = base.tier == new.tier && base.scope == new.scope;
    has_one_scope || new.scope.is_all() && new.tier >= base.tier
}

/// Returns the table after a run is accepted: the run's rows in place of those with the same keys,
/// without what the sources no longer declare.
pub fn accepted(run: &Run, committed: &Table) -> Table {
    let mut kept = run.clone();
    // Cases stay with the run.
    kept.table
        .retain(|row| !committed.covers(row) && !row.kind.is_case());
    let mut table = committed.clone();
    table.merge(&kept.session, &kept.table);
    former::drop_replaced(&mut table, &kept);
    refresh(&mut table, &run.session.stages);
    table
}

/// Drops what the sources no longer declare, and judges their claims again.
pub fn refresh(table: &mut Table, stages: &[StageMeta]) {
    table.prune(stages);
    claims::restate(table, stages);
}

/// Compares two tables; `covers` if the new side was asked to have everything that the base has.
/// `stages` give the order.
pub fn compare(base: &Table, new: &Table, covers: bool, stages: &[StageMeta]) -> Comparison {
    let join = Join {
        base,
        new,
        covers,
        drift: Drift::between(base, new, p50),
        drift_in_cycles: Drift::between(base, new, cycles),
    };
    let keys: BTreeSet<&Key> = base.keys().chain(new.keys()).collect();
    let mut differences = Vec::new();
    for key in keys {
        if is_compared(&key.kind) {
            differences.extend(join.judge(key));
        }
    }
    // Of cases only those whose errors changed; the row over all of them has the rest.
    differences.retain(|d| !d.is_case() || d.change != Change::Unchanged);
    let rank = |subject: &Subject| {
        let mut ids = stages.iter().map(|stage| stage.id.as_str());
        ids.position(|id| id == subject.stage())
    };
    differences.sort_by_key(|d| (rank(&d.subject), d.group, d.change));
    let mut kernels = kernels::kernels(base, new, covers);
    kernels.sort_by_key(|kernel| rank(&kernel.subject));
    Comparison {
        differences,
        kernels,
        drift: join.drift,
    }
}

/// Returns whether two sessions can have the same row: random problems differ from session to
/// session.
fn is_compared(kind: &Kind) -> bool {
    match kind {
        Kind::RandomTime(_) | Kind::Regret => false,
        Kind::Declared(_)
        | Kind::Compiled { .. }
        | Kind::Checked(_)
        | Kind::Case(..)
        | Kind::Counters(_)
        | Kind::Latency(_)
        | Kind::Pair { .. }
        | Kind::PeerSession
        | Kind::PeerTime(_)
        | Kind::PeerPair { .. }
        | Kind::CandidateCase(_)
        | Kind::Profile(_)
        | Kind::Sanitized
        | Kind::Fault(_)
        | Kind::Site(_)
        | Kind::Timer(_)
        | Kind::Claim(_)
        | Kind::GivenOutput(_) => true,
    }
}

/// Two tables, row by row.
struct Join<'a> {
    base: &'a Table,
    new: &'a Table,
    covers: bool,
    drift: Drift,
    drift_in_cycles: Drift,
}

impl Join<'_> {
    fn judge(&self, key: &Key) -> Vec<Difference> {
        let Some(old) = self.base.get(key) else {
            return self.new.get(key).map_or(vec![], |new| self.added(new));
        };
        let Some(new) = self.new.get(key) else {
            return self.lost(old).into_iter().collect();
        };
        // The same row of the same session says nothing about a change.
        if old == new {
            return vec![];
        }
        let mut differences = self.verdicts(Some(old), new);
        differences.extend(self.figures(old, new));
        differences
    }

    /// Judges a row that only the new side has: by its verdicts, or as a new variant.
    fn added(&self, new: &Row) -> Vec<Difference> {
        let mut differences = self.verdicts(None, new);
        let is_known = self.base.about(&new.subject).next().is_some();
        if differences.is_empty() && is_over_all_cases(&new.kind) && !is_known {
            let judgement = Judgement::new(Change::Informational, "the base does not have it");
            differences.push(self.difference(new, What::Variant, judgement));
        }
        differences
    }

    /// Returns a difference. What is missing on a side that was asked for it is required.
    fn difference(&self, row: &Row, what: What, judgement: Judgement) -> Difference {
        let is_lost = judgement.change == Change::Missing && self.covers;
        Difference::new(row, what, judgement).required(is_lost)
    }

    /// Judges what only the base has: of a variant that the new side does not know, that it is
    /// gone.
    fn lost(&self, old: &Row) -> Option<Difference> {
        // What a narrower run was not asked for is not lost.
        if !self.covers {
            return None;
        }
        let is_known = self.new.about(&old.subject).next().is_some();
        let first_gate = old.verdicts.keys().next().copied().map(What::Gate);
        let missing =
            |what, why: &str| self.difference(old, what, Judgement::new(Change::Missing, why));
        let gone = |what, why: &str| {
            self.difference(old, what, Judgement::new(Change::Informational, why))
        };
        match &old.kind {
            Kind::Claim(_) => Some(gone(first_gate?, "no longer claimed")),
            Kind::Fault(_) | Kind::Timer(_) => {
                Some(missing(first_gate?, "planted in the base only"))
            }
            // Sites change with the kernels; the faults are the harness's own.
            Kind::Site(_) => None,
            Kind::Checked(_) if is_known => Some(missing(
                What::Variant,
                "it was checked in the base, but not on the new side",
            )),
            Kind::Checked(_) => {
                let why = "the new side does not declare it: removed or renamed";
                let removed = gone(What::Variant, why);
                Some(removed.values(Some("declared".into()), None))
            }
            _ if !is_known => None,
            Kind::Sanitized => Some(missing(first_gate?, "judged in the base only")),
            Kind::Declared(_) | Kind::Compiled { .. } => {
                let what = What::Row(Group::Resources);
                let lost = missing(what, "built or counted in the base only");
                Some(lost.required(self.is_built_alike(old)))
            }
            Kind::Counters(_) => {
                let what = What::Row(Group::Counters);
                let lost = missing(what, "built or counted in the base only");
                Some(lost.required(self.is_built_alike(old)))
            }
            Kind::Latency(_) => Some(missing(What::Metric(Metric::P50), "timed in the base only")),
            Kind::Case(..)
            | Kind::Pair { .. }
            | Kind::RandomTime(_)
            | Kind::Regret
            | Kind::PeerSession
            | Kind::PeerTime(_)
            | Kind::PeerPair { .. }
            | Kind::CandidateCase(_)
            | Kind::Profile(_)
            | Kind::GivenOutput(_) => None,
        }
    }

    /// Returns whether the new side has a build by the same nvcc, for the same architectures.
    fn is_built_alike(&self, old: &Row) -> bool {
        if !matches!(old.kind, Kind::Compiled { .. }) {
            return true;
        }
        let Some(base) = self.base.session(old) else {
            return false;
        };
        let mut sessions = self.new.sessions.values();
        sessions.any(|new| new.device_compiler == base.device_compiler)
    }

    /// Returns why figures of these two rows must not be compared, if so.
    fn incomparable(&self, old: &Row, new: &Row) -> Option<String> {
        let (base, now) = (self.base.session(old)?, self.new.session(new)?);
        match &new.kind {
            Kind::Compiled { .. } => unequal(nvcc(base), nvcc(now)),
            Kind::Checked(BackendKind::Emulated)
            | Kind::Case(BackendKind::Emulated, _)
            | Kind::Counters(_) => unequal(&base.host_compiler, &now.host_compiler),
            // Shown without the UUID of the card.
            Kind::Latency(_) | Kind::Pair { .. } | Kind::Case(BackendKind::Cuda, _) => {
                unequal(&base.machine.gpu, &now.machine.gpu)
            }
            Kind::Checked(BackendKind::Cuda)
            | Kind::Declared(_)
            | Kind::RandomTime(_)
            | Kind::Regret
            | Kind::PeerSession
            | Kind::PeerTime(_)
            | Kind::PeerPair { .. }
            | Kind::CandidateCase(_)
            | Kind::Profile(_)
            | Kind::Sanitized
            | Kind::Fault(_)
            | Kind::Site(_)
            | Kind::Timer(_)
            | Kind::Claim(_)
            | Kind::GivenOutput(_) => None,
        }
    }
}

fn nvcc(session: &Session) -> String {
    match &session.device_compiler {
        DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}"),
        DeviceCompiler::Absent { .. } => "no GPU compiler".to_string(),
    }
}

/// Returns whether a row is about a variant over all its cases.
fn is_over_all_cases(kind: &Kind) -> bool {
    matches!(kind, Kind::Checked(_))
}

/// Returns the reason not to compare two things that are not the same.
fn unequal<T: fmt::Display>(old: T, new: T) -> Option<String> {
    let (was, is) = (old.to_string(), new.to_string());
    (was != is).then(|| format!("{was} against {is}"))
}

#[cfg(test)]
mod tests;
