//! The kernels as they are now: the identity and machine code that a row of them has.

use super::merge::{Results, Table};
use super::row::{Place, Row, Source, Subject};
use super::session::{StageMeta, by_id};
use sha2::{Digest, Sha256};

/// How many digits of a hash tell kernels apart.
const DIGITS: usize = 16;

/// What the row has if it is of the kernels of `stages`; `None` if it is of none.
pub fn identity(stages: &[StageMeta], row: &Row) -> Option<String> {
    both(row, |subject| {
        let stage = by_id(stages, subject.stage())?;
        Some(digits(&stage.identity))
    })
}

pub fn is_stale(stages: &[StageMeta], row: &Row) -> bool {
    row.identity.is_some() && row.identity != identity(stages, row)
}

impl Results {
    /// The GPU model with most rows of the kernels as they are: the one that COMPARE.md is about.
    pub fn main(&self, stages: &[StageMeta]) -> Option<&str> {
        let fresh = |table: &Table| table.rows().filter(|row| !is_stale(stages, row)).count();
        let most = self.gpus.iter().max_by_key(|(_, table)| fresh(table));
        most.map(|(name, _)| name.as_str())
    }
}

/// The machine code that the row is about, as the rows by ptxas in `built` have it; `arch` is that of the code that the GPU runs:
/// `sm_90a`. `None` where it was not built.
pub fn code(built: &Table, arch: Option<&str>, row: &Row) -> Option<String> {
    match (&row.place, row.source) {
        (Place::Instance { .. }, Source::Ptxas) => {
            let built = built.row(&row.subject, &row.place, Source::Ptxas)?;
            built.code.clone()
        }
        (Place::Problem(place), _) => {
            let shape = place.extents()?;
            both(row, |subject| {
                let mut instances =
                    built.instances(subject, Source::Ptxas, place.dtype, shape.head_dim);
                let (_, row) = instances.find(|(of, _)| *of == arch)?;
                row.code.clone()
            })
        }
        (Place::All, _) => both(row, |subject| {
            // One hash over all instances of a variant.
            let rows = built.of(subject, Source::Ptxas);
            let codes = rows.filter_map(|row| match &row.place {
                Place::Instance { arch: of, .. } if of.as_deref() == arch => row.code.as_deref(),
                _ => None,
            });
            let codes: Vec<&str> = codes.collect();
            let hash = Sha256::digest(codes.join(" "));
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            (!codes.is_empty()).then(|| digits(&hash))
        }),
        _ => None,
    }
}

impl Table {
    /// Gives rows of the same machine code the identity of the sources as they are now.
    pub fn restamp(&mut self, stages: &[StageMeta], built: &Table) {
        let arch = self.compiled_arch().map(String::from);
        self.restamp_on(arch.as_deref(), stages, built);
    }

    /// The same of rows measured on a GPU that runs code of `arch`.
    pub fn restamp_on(&mut self, arch: Option<&str>, stages: &[StageMeta], built: &Table) {
        for row in self.rows.values_mut().filter(|row| row.code.is_some()) {
            if row.code == code(built, arch, row) {
                row.identity = identity(stages, row);
            }
        }
    }
}

impl Results {
    pub fn restamp(&mut self, stages: &[StageMeta], built: &Table) {
        let tables = self.gpus.values_mut().chain([&mut self.build]);
        tables.for_each(|table| table.restamp(stages, built));
    }
}

/// What `of_one` gives for a row's subject and, after a `+`, for what it was interleaved with, if that is a kernel too.
fn both(row: &Row, of_one: impl Fn(&Subject) -> Option<String>) -> Option<String> {
    let subject = of_one(&row.subject)?;
    Some(match row.paired_with.as_ref().and_then(of_one) {
        Some(base) => format!("{subject}+{base}"),
        None => subject,
    })
}

fn digits(hash: &str) -> String {
    hash.chars().take(DIGITS).collect()
}
