//! The kernels as they are now: the identity and machine code that a row of them has.

use super::kind::Kind;
use super::merge::Table;
use super::row::Row;
use super::session::{StageMeta, by_id};
use super::subject::Subject;
use sha2::{Digest, Sha256};

/// The number of digits of a hash that tell kernels apart.
const DIGITS: usize = 16;

/// Returns the identity of a row of the kernels of `stages`; `None` if it is of none.
pub fn identity(stages: &[StageMeta], row: &Row) -> Option<String> {
    of_arms(row, |subject| {
        let stage = by_id(stages, subject.stage())?;
        Some(digits(&stage.identity))
    })
}

/// Returns whether a kernel that the row is about has changed since it was measured.
pub fn is_stale(stages: &[StageMeta], row: &Row) -> bool {
    row.identity.is_some() && row.identity != identity(stages, row)
}

/// Returns the machine code that the row is about, as the compiled rows in `built` have it; `arch`
/// is that of the code that the GPU runs: `sm_90a`. `None` where it was not built.
pub fn code(built: &Table, arch: Option<&str>, row: &Row) -> Option<String> {
    match &row.kind {
        Kind::Compiled { .. } => built.get(&row.key())?.code.clone(),
        Kind::Counters(problem)
        | Kind::Latency(problem)
        | Kind::Pair { problem, .. }
        | Kind::RandomTime(problem)
        | Kind::PeerTime(problem)
        | Kind::PeerPair { problem, .. }
        | Kind::Profile(problem) => {
            let instance = problem.instance()?;
            of_arms(row, |subject| {
                let mut of_archs = built.compiled_instance(subject, instance);
                let on_gpu = of_archs.find(|compiled| Some(compiled.arch) == arch)?;
                on_gpu.row.code.clone()
            })
        }
        Kind::Checked(_) | Kind::PeerSession | Kind::Sanitized => {
            of_arms(row, |subject| code_of_all_instances(built, arch, subject))
        }
        Kind::Declared(_)
        | Kind::Case(..)
        | Kind::CandidateCase(_)
        | Kind::Regret
        | Kind::Fault(_)
        | Kind::Site(_)
        | Kind::Timer(_)
        | Kind::Claim(_)
        | Kind::GivenOutput(_) => None,
    }
}

/// Returns one hash over all instances of a variant.
fn code_of_all_instances(built: &Table, arch: Option<&str>, subject: &Subject) -> Option<String> {
    let mut codes = Vec::new();
    for compiled in built.compiled(subject) {
        if Some(compiled.arch) == arch {
            codes.extend(compiled.row.code.as_deref());
        }
    }
    if codes.is_empty() {
        return None;
    }
    let sha256 = Sha256::digest(codes.join(" "));
    let hexadecimal: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(digits(&hexadecimal))
}

impl Table {
    /// Gives rows of the same machine code the identity of the sources as they are now.
    pub fn restamp(&mut self, stages: &[StageMeta], built: &Table) {
        let arch = self.compiled_arch().map(String::from);
        self.restamp_on(arch.as_deref(), stages, built);
    }

    /// Does the same to rows measured on a GPU that runs code of `arch`.
    pub fn restamp_on(&mut self, arch: Option<&str>, stages: &[StageMeta], built: &Table) {
        for row in self.rows_mut().filter(|row| row.code.is_some()) {
            if row.code == code(built, arch, row) {
                row.identity = identity(stages, row);
            }
        }
    }
}

/// Returns what `of_kernel` returns for a row's subject and, after a `+`, for what it was
/// interleaved with, if that is a kernel too.
fn of_arms(row: &Row, of_kernel: impl Fn(&Subject) -> Option<String>) -> Option<String> {
    let subject = of_kernel(&row.subject)?;
    Some(match row.base().and_then(of_kernel) {
        Some(base) => format!("{subject}+{base}"),
        None => subject,
    })
}

fn digits(hash: &str) -> String {
    hash.chars().take(DIGITS).collect()
}
