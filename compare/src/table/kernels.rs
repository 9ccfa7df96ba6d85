//! The kernels as they are now: the identity and machine code that a row of them has.

use super::merge::{Results, Table};
use super::row::{On, Row, Source, Subject};
use super::session::{StageMeta, by_id};
use common::problem::Dtype;
use sha2::{Digest, Sha256};

/// How many digits of a hash tell kernels apart.
const DIGITS: usize = 16;

/// The kernels of `stages`, whose machine code for `arch` the rows by ptxas in `built` have.
pub struct Kernels<'a> {
    pub stages: &'a [StageMeta],
    pub built: &'a Table,
    /// The architecture of the code that the GPU runs: `sm_90a`.
    pub arch: Option<&'a str>,
}

impl Kernels<'_> {
    /// What the row has if it is of these kernels; `None` if it is of none.
    pub fn identity(&self, row: &Row) -> Option<String> {
        let of_stage = |subject: &Subject| {
            let stage = by_id(self.stages, subject.stage())?;
            Some(digits(&stage.identity))
        };
        both(row, of_stage)
    }

    /// The machine code that the row is about; `None` where it was not built.
    pub fn code(&self, row: &Row) -> Option<String> {
        match (&row.on, row.by) {
            (On::Instance { .. }, Source::Ptxas) => {
                let built = self.built.row(&row.subject, &row.on, Source::Ptxas)?;
                built.code.clone()
            }
            (On::All, _) => both(row, |subject| self.all_of(subject)),
            (On::Problem(place), _) => {
                let shape = place.extents()?;
                both(row, |subject| {
                    self.instance(subject, place.dtype, shape.head_dim)
                })
            }
            _ => None,
        }
    }

    fn instance(&self, subject: &Subject, dtype: Dtype, head_dim: usize) -> Option<String> {
        let mut instances = self
            .built
            .instances(subject, Source::Ptxas, dtype, head_dim);
        let (_, row) = instances.find(|(arch, _)| arch.is_some() && *arch == self.arch)?;
        row.code.clone()
    }

    /// One hash over all instances of a variant.
    fn all_of(&self, subject: &Subject) -> Option<String> {
        let rows = self.built.of(subject, Source::Ptxas);
        let codes = rows.filter_map(|row| match &row.on {
            On::Instance { arch, .. } if arch.as_deref() == self.arch => row.code.as_deref(),
            _ => None,
        });
        let codes: Vec<&str> = codes.collect();
        (!codes.is_empty()).then(|| {
            let hash = Sha256::digest(codes.join(" "));
            digits(
                &hash
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>(),
            )
        })
    }
}

impl Table {
    /// Gives rows of the same machine code the identity of the sources as they are now. Returns how many.
    pub fn restamp(&mut self, now: &Kernels<'_>) -> usize {
        let mut stamped = 0;
        for row in self.rows.values_mut() {
            let identity = now.identity(row);
            if row.identity != identity && row.code.is_some() && row.code == now.code(row) {
                row.identity = identity;
                stamped += 1;
            }
        }
        stamped
    }
}

impl Results {
    /// Gives rows of the same machine code the identity of the sources as they are now. Returns how many.
    pub fn restamp(&mut self, stages: &[StageMeta], built: &Table) -> usize {
        let tables = self.gpus.values_mut().chain([&mut self.build]);
        let stamped = tables.map(|table| {
            let arch = table.compiled_arch().map(String::from);
            table.restamp(&Kernels {
                stages,
                built,
                arch: arch.as_deref(),
            })
        });
        stamped.sum()
    }
}

/// What `of_one` gives for a row's subject and, after a `+`, for what it was interleaved with, if that is a kernel too.
fn both(row: &Row, of_one: impl Fn(&Subject) -> Option<String>) -> Option<String> {
    let subject = of_one(&row.subject)?;
    Some(match row.against.as_ref().and_then(of_one) {
        Some(base) => format!("{subject}+{base}"),
        None => subject,
    })
}

fn digits(hash: &str) -> String {
    hash.chars().take(DIGITS).collect()
}
