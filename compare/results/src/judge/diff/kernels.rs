//! The variants of two tables, and whether each is the same on both sides.

use super::Group;
use crate::table::{Row, Subject, Table};
use serde::Serialize;
use std::collections::BTreeSet;

/// A variant, and whether it is the same on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kernel {
    pub subject: Subject,
    pub state: KernelState,
}

/// The relation between the two sides of a kernel.
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

/// Returns the variants of both sides; those that a narrower run was not asked for are not gone.
pub(super) fn kernels(base: &Table, new: &Table, covers: bool) -> Vec<Kernel> {
    let rows = base.rows().chain(new.rows());
    let subjects: BTreeSet<&Subject> = rows
        .filter(|row| is_of_kernel(row))
        .map(|row| &row.subject)
        .collect();
    let mut kernels = Vec::new();
    for subject in subjects {
        let Some(state) = KernelState::between(base, new, subject) else {
            continue;
        };
        if covers || state != KernelState::Gone {
            kernels.push(Kernel {
                subject: subject.clone(),
                state,
            });
        }
    }
    kernels
}

impl KernelState {
    /// Returns the state of a variant by its rows. An identity is of sources, a code of what nvcc
    /// made of them.
    fn between(base: &Table, new: &Table, subject: &Subject) -> Option<Self> {
        let has_base = base.about(subject).any(is_of_kernel);
        let has_new = new.about(subject).any(is_of_kernel);
        match (has_base, has_new) {
            (false, false) => None,
            (true, false) => Some(Self::Gone),
            (false, true) => Some(Self::New),
            (true, true) => Some(Self::between_rows(base, new, subject)),
        }
    }

    fn between_rows(base: &Table, new: &Table, subject: &Subject) -> Self {
        let mut has_other_sources = false;
        let mut has_other_code = None;
        for now in new.about(subject).filter(|row| is_of_kernel(row)) {
            let Some(old) = base.get(&now.key()) else {
                continue;
            };
            has_other_sources |= differs(&old.identity, &now.identity) == Some(true);
            if let Some(is_other) = differs(&old.code, &now.code) {
                has_other_code = Some(has_other_code.unwrap_or(false) || is_other);
            }
        }
        if !has_other_sources {
            Self::Unchanged
        } else if has_other_code == Some(false) {
            Self::SameCode
        } else {
            Self::Changed
        }
    }
}

/// Returns whether two hashes differ, if both are known.
fn differs(old: &Option<String>, now: &Option<String>) -> Option<bool> {
    Some(old.as_ref()? != now.as_ref()?)
}

/// Returns whether the row has figures of one variant by itself.
fn is_of_kernel(row: &Row) -> bool {
    Group::of_kind(&row.kind).is_some() && !row.subject.name().is_empty()
}
