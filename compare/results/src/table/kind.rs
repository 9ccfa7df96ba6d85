//! What a row is about and how it was found.

use super::subject::Subject;
use common::device::BackendKind;
use common::problem::{Dtype, Mask, Problem, Shape, parse_shape};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// The meaning of a row. With the subject it is the key of a table.
///
/// A question about rows is a `match` without a wildcard, so that the compiler shows every question
/// to whoever adds a kind. The columns of a file are known to `columns.rs` alone.
#[derive(Clone, Debug)]
pub enum Kind {
    /// The declaration of an instance in `kernel.cu`.
    Declared(Instance),
    /// The resources and machine code of an instance for an architecture.
    Compiled { instance: Instance, arch: String },
    /// The gates of a variant over all its cases.
    Checked(BackendKind),
    /// The gates of one case. It stays with its run.
    Case(BackendKind, CasePlace),
    /// The counters of the emulator.
    Counters(ProblemPlace),
    /// The time of a variant alone on a GPU.
    Latency(ProblemPlace),
    /// The times of two variants on a GPU, interleaved (A B B A).
    Pair {
        problem: ProblemPlace,
        base: Subject,
    },
    /// A quick time on a random problem: the library's choice is fitted to them and judged by them.
    RandomTime(ProblemPlace),
    /// The cost of the library's choice over all random problems.
    Regret,
    /// A fact about a whole session with the Python process: the GPU's ceiling, a peer that is
    /// not installed, or the gates of a candidate over all its cases.
    PeerSession,
    /// The time of a peer, a candidate or one of ours, taken in turn with the others.
    PeerTime(ProblemPlace),
    /// The time of one of ours or of a candidate over that of a peer.
    PeerPair {
        problem: ProblemPlace,
        base: Subject,
    },
    /// The gates of one case of a candidate.
    CandidateCase(CasePlace),
    /// The figures of Nsight Compute.
    Profile(ProblemPlace),
    /// The findings of compute-sanitizer over all launches.
    Sanitized,
    /// A planted fault, [`CORRECT_MODEL`], or an error in the lists that the self-test reads.
    Fault(String),
    /// A kernel without one of its synchronisation sites, or with all of them: `as it is`.
    Site(String),
    /// A check of the timer: `timer: injected delay`.
    Timer(String),
    /// The verdict on a claim, from the other rows.
    Claim(String),
    /// The output that a file of `--input` brings along.
    GivenOutput(String),
}

/// The name of the self-test's row without a planted fault.
pub const CORRECT_MODEL: &str = "correct model";

/// The name of the row of [`Kind::Regret`].
pub const REGRET: &str = "regret";

impl Kind {
    /// The kind that comes before all others in a table.
    pub(super) const FIRST: Self = Self::Checked(BackendKind::Emulated);

    /// Returns the kind of a check by this name that the self-test makes of the timer.
    pub fn timer(name: &str) -> Self {
        Self::Timer(format!("{TIMER}: {name}"))
    }

    /// Returns the kind of the row that stands for all checks of the timer where there is no GPU.
    pub fn whole_timer() -> Self {
        Self::Timer(TIMER.to_string())
    }

    /// Returns whether the self-test's row of the harness by this name is one of the timer.
    pub(super) fn is_timer(name: &str) -> bool {
        name.strip_prefix(TIMER)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    }

    /// Returns where a row of this kind stands.
    pub fn place(&self) -> Place<'_> {
        match self {
            Self::Checked(_) | Self::PeerSession | Self::Sanitized => Place::All,
            Self::Declared(instance) => Place::Instance {
                instance: *instance,
                arch: None,
            },
            Self::Compiled { instance, arch } => Place::Instance {
                instance: *instance,
                arch: Some(arch),
            },
            Self::Case(_, case) | Self::CandidateCase(case) => Place::Case(case),
            Self::Counters(problem)
            | Self::Latency(problem)
            | Self::Pair { problem, .. }
            | Self::RandomTime(problem)
            | Self::PeerTime(problem)
            | Self::PeerPair { problem, .. }
            | Self::Profile(problem) => Place::Problem(problem),
            Self::Regret => Place::Named(REGRET),
            Self::Fault(name)
            | Self::Site(name)
            | Self::Timer(name)
            | Self::Claim(name)
            | Self::GivenOutput(name) => Place::Named(name),
        }
    }

    /// Returns what measures rows of this kind.
    pub fn source(&self) -> Source {
        match self {
            Self::Declared(_) => Source::Kernel,
            Self::Compiled { .. } => Source::Ptxas,
            Self::Checked(backend) | Self::Case(backend, _) => (*backend).into(),
            Self::Counters(_) => Source::Emulator,
            Self::Latency(_) | Self::Pair { .. } => Source::Gpu,
            Self::RandomTime(_) | Self::Regret => Source::Draw,
            Self::PeerSession
            | Self::PeerTime(_)
            | Self::PeerPair { .. }
            | Self::CandidateCase(_) => Source::Peers,
            Self::Profile(_) => Source::Ncu,
            Self::Sanitized => Source::ComputeSanitizer,
            Self::Fault(_) | Self::Site(_) | Self::Timer(_) => Source::SelfTest,
            Self::Claim(_) => Source::Claim,
            Self::GivenOutput(_) => Source::Input,
        }
    }

    /// The other arm of an interleaved pair.
    pub fn base(&self) -> Option<&Subject> {
        match self {
            Self::Pair { base, .. } | Self::PeerPair { base, .. } => Some(base),
            Self::Declared(_)
            | Self::Compiled { .. }
            | Self::Checked(_)
            | Self::Case(..)
            | Self::Counters(_)
            | Self::Latency(_)
            | Self::RandomTime(_)
            | Self::Regret
            | Self::PeerSession
            | Self::PeerTime(_)
            | Self::CandidateCase(_)
            | Self::Profile(_)
            | Self::Sanitized
            | Self::Fault(_)
            | Self::Site(_)
            | Self::Timer(_)
            | Self::Claim(_)
            | Self::GivenOutput(_) => None,
        }
    }

    /// The problem of what was measured on one problem as a whole. A case has its inputs too.
    pub fn problem(&self) -> Option<&ProblemPlace> {
        match self.place() {
            Place::Problem(problem) => Some(problem),
            Place::All | Place::Case(_) | Place::Instance { .. } | Place::Named(_) => None,
        }
    }

    /// Returns the element type of what one problem, case or instance is about.
    pub fn dtype(&self) -> Option<Dtype> {
        match self.place() {
            Place::Problem(problem) => Some(problem.dtype),
            Place::Case(case) => Some(case.problem.dtype),
            Place::Instance { instance, .. } => Some(instance.dtype),
            Place::All | Place::Named(_) => None,
        }
    }

    /// Returns whether it is a single case, which no table keeps.
    pub fn is_case(&self) -> bool {
        matches!(self.place(), Place::Case(_))
    }

    /// Returns whether its figures depend on sources and compilers alone, and on no GPU.
    pub fn is_of_build(&self) -> bool {
        match self.source() {
            Source::Kernel | Source::Ptxas | Source::Emulator | Source::SelfTest => true,
            Source::Gpu
            | Source::Draw
            | Source::Peers
            | Source::Ncu
            | Source::ComputeSanitizer
            | Source::Claim
            | Source::Input => false,
        }
    }

    fn order(&self) -> Order<'_> {
        Order {
            place: self.place(),
            source: self.source(),
            base: self.base(),
        }
    }
}

/// The beginning of the names of [`Kind::Timer`].
const TIMER: &str = "timer";

/// The parts of a kind in the order of the lines of a table: another order would rewrite them all.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Order<'a> {
    place: Place<'a>,
    source: Source,
    base: Option<&'a Subject>,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// The instrument that measured a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The declarations of `kernel.cu`.
    Kernel,
    Ptxas,
    Emulator,
    Gpu,
    /// A GPU, quickly, on random problems.
    Draw,
    /// The Python process, with our variants, peers and candidates.
    Peers,
    Ncu,
    ComputeSanitizer,
    /// Planted faults, and kernels without one of their synchronisation sites.
    SelfTest,
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

impl fmt::Display for Source {
    /// Writes it as in the column `by`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The place of a row, as pages show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place<'a> {
    /// All cases or launches of the subject.
    All,
    /// A problem: `mission f16 full`.
    Problem(&'a ProblemPlace),
    /// A problem with its inputs: `mission f16 full normal:0`.
    Case(&'a CasePlace),
    /// An instance, `f16 d64 sm_90a`; without an architecture, its declaration in `kernel.cu`.
    Instance {
        instance: Instance,
        arch: Option<&'a str>,
    },
    /// Anything else, such as a planted fault or a synchronisation site; written after `: `.
    Named(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::All => f.write_str("all"),
            Place::Problem(problem) => problem.fmt(f),
            Place::Case(case) => case.fmt(f),
            Place::Instance {
                instance,
                arch: Some(arch),
            } => write!(f, "{instance} {arch}"),
            Place::Instance {
                instance,
                arch: None,
            } => instance.fmt(f),
            Place::Named(name) => write!(f, ": {name}"),
        }
    }
}

/// A problem, with the name of its shape, or its extents if it has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProblemPlace {
    pub shape: String,
    pub dtype: Dtype,
    pub mask: Mask,
    /// Whether inputs that are in the L2 cache on other rows come from device memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold: bool,
}

impl ProblemPlace {
    /// Returns the place of a problem with warm caches.
    pub fn new(shape: &str, dtype: Dtype, mask: Mask) -> Self {
        Self {
            shape: shape.to_string(),
            dtype,
            mask,
            cold: false,
        }
    }

    /// Names a problem by its shape, with the softmax scale if it is not the default.
    pub fn of(problem: &Problem) -> Self {
        let mut shape = problem.shape.name();
        if !problem.has_default_scale() {
            shape += &format!("@{}", problem.softmax_scale);
        }
        Self::new(&shape, problem.dtype, problem.mask)
    }

    /// Returns how much there is to multiply.
    pub fn size(&self) -> usize {
        let shape = self.extents();
        shape.map_or(0, |s| s.batch * s.heads_q * s.seq_q * s.seq_kv * s.head_dim)
    }

    /// Returns the extents of the shape, if its text is one.
    pub fn extents(&self) -> Option<Shape> {
        parse_shape(&self.shape).ok()
    }

    /// Returns the problem, if its softmax scale is the default.
    pub fn problem(&self) -> Option<Problem> {
        Problem::new(self.extents()?, self.dtype, self.mask).ok()
    }

    /// Returns whether K and V are in E4M3 under queries of halves.
    pub fn has_cache_of_codes(&self) -> bool {
        self.extents()
            .is_some_and(|shape| shape.serving.cache.is_some())
    }

    /// Returns the instance of a kernel that runs it.
    pub fn instance(&self) -> Option<Instance> {
        Some(Instance {
            dtype: self.dtype,
            head_dim: self.extents()?.compiled_head_dim(),
        })
    }

    /// Returns the problem that claims are stated on.
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

/// A problem with its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CasePlace {
    pub problem: ProblemPlace,
    /// A family with its seed, `normal:0`, or the name of a file.
    pub input: String,
}

impl fmt::Display for CasePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.problem, self.input)
    }
}

/// The element type and head size that one kernel of a variant is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instance {
    pub dtype: Dtype,
    pub head_dim: usize,
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} d{}", self.dtype, self.head_dim)
    }
}
