//! The equations of a fit: what each launch that was timed says of the coefficients of its
//! instance.

use super::{fold_of, gpu_of, launch, loaded, random_times};
use common::choice::{Blocks, TERMS, modelled, terms};
use common::metric::Metric;
use common::problem::{Dtype, Problem};
use common::resources::multiprocessor;
use common::stage::{Kernel, LoadedStage};
use results::judge::View;
use results::judge::best::{p50, shown};
use results::judge::list::{Grouped, grouped};
use results::table::{self, Row, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// A variant, with the element type and head size of its coefficients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    pub variant: Subject,
    pub dtype: Dtype,
    pub head_dim: usize,
}

impl Instance {
    pub fn new(variant: &Subject, problem: &Problem) -> Self {
        Self {
            variant: variant.clone(),
            dtype: modelled(problem.dtype),
            head_dim: problem.shape.head_dim,
        }
    }

    /// Whether the problem has the element type and head size of this instance.
    pub fn fits(&self, problem: &Problem) -> bool {
        self.dtype == modelled(problem.dtype) && self.head_dim == problem.shape.head_dim
    }
}

/// A problem, by the number of its table and its number in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProblemId {
    pub table: usize,
    pub number: usize,
}

/// The terms of a launch, and its time.
pub struct Equation {
    pub problem: ProblemId,
    pub terms: [f64; TERMS],
    pub us: f64,
    /// The time over that of the fastest variant of the problem: 1 or more.
    pub slowdown: f64,
    /// The unit that an error is measured in. The time alone would have noisy kernels faster than
    /// they are, since it makes little of what is slow.
    pub scale: f64,
}

/// The equations of an instance.
pub struct Samples {
    /// The number of blocks that a multiprocessor holds.
    pub resident: u32,
    pub equations: Vec<Equation>,
}

pub type SamplesByInstance = BTreeMap<Instance, Samples>;

/// Returns the equations of all tables of GPUs of this capability. Problems of the part `unseen`
/// are left out.
pub fn collect_samples(
    tables: &[View<'_>],
    stages: &[LoadedStage],
    capability: u32,
    unseen: Option<usize>,
) -> SamplesByInstance {
    let mut samples = SamplesByInstance::new();
    for (number, view) in tables.iter().enumerate() {
        let Some(gpu) = gpu_of(view) else {
            continue;
        };
        if gpu.capability == capability {
            let table = TableSource {
                number,
                view,
                stages,
                multiprocessors: gpu.multiprocessors,
                unseen,
            };
            table.add_to(&mut samples);
        }
    }
    samples
}

/// A table that equations are taken from.
struct TableSource<'a> {
    number: usize,
    view: &'a View<'a>,
    /// The library's: what it does not have it cannot choose.
    stages: &'a [LoadedStage],
    multiprocessors: u32,
    unseen: Option<usize>,
}

impl TableSource<'_> {
    fn add_to(&self, samples: &mut SamplesByInstance) {
        // STALE ones too: a kernel that changes by a few percent changes few choices.
        let named = shown(self.view).filter(|row| row.problem().is_some_and(|place| !place.cold));
        let rows = named.chain(random_times(&self.view.table));
        let by_place = grouped(rows.filter_map(|row| Some((row.problem()?, row))));
        let timed_at_random = self.subjects_timed_at_random();
        for (number, Grouped { key, values: times }) in by_place.into_iter().enumerate() {
            let Some(problem) = key.problem() else {
                continue;
            };
            let id = ProblemId {
                table: self.number,
                number,
            };
            self.add_problem(id, &problem, &times, &timed_at_random, samples);
        }
    }

    fn subjects_timed_at_random(&self) -> BTreeSet<&Subject> {
        random_times(&self.view.table)
            .map(|row| &row.subject)
            .collect()
    }

    fn add_problem(
        &self,
        id: ProblemId,
        problem: &Problem,
        rows: &[&Row],
        timed_at_random: &BTreeSet<&Subject>,
        samples: &mut SamplesByInstance,
    ) {
        let mut own_rows = rows.to_vec();
        own_rows.retain(|row| loaded(self.stages, &row.subject).is_some());
        let fastest = own_rows
            .iter()
            .map(|row| p50(row))
            .fold(f64::INFINITY, f64::min);
        for row in own_rows {
            // Of a stage without random problems the library may have nothing.
            let is_choosable = timed_at_random.is_empty() || timed_at_random.contains(&row.subject);
            let is_unseen = self.unseen.is_some() && fold_of(row) == self.unseen;
            if !is_choosable || is_unseen {
                continue;
            }
            let Some(prepared) = launch(self.stages, &row.subject, problem) else {
                continue;
            };
            let own_samples = samples
                .entry(Instance::new(&row.subject, problem))
                .or_insert_with(|| Samples {
                    resident: resident_blocks(self.view, &row.subject, prepared.kernel),
                    equations: vec![],
                });
            let us = p50(row);
            own_samples.equations.push(Equation {
                problem: id,
                terms: terms(
                    problem,
                    prepared.kernel,
                    Blocks::new(&prepared, own_samples.resident),
                    self.multiprocessors,
                ),
                us,
                slowdown: us / fastest,
                scale: us,
            });
        }
    }
}

/// Returns how many blocks a multiprocessor of the table's GPU holds; 1 if the table has no machine
/// code for it.
pub fn resident_blocks(view: &View<'_>, subject: &Subject, kernel: &Kernel) -> u32 {
    occupied_blocks(view, subject, kernel).map_or(1, |blocks| blocks.round().max(1.0) as u32)
}

fn occupied_blocks(view: &View<'_>, subject: &Subject, kernel: &Kernel) -> Option<f64> {
    let arch = view.table.compiled_arch()?;
    let instance = table::Instance {
        dtype: kernel.dtype,
        head_dim: kernel.head_dim,
    };
    let row = view
        .table
        .compiled_instance(subject, instance)
        .find(|compiled| compiled.arch == arch)?
        .row;
    let occupancy = row.value(Metric::Occupancy)?;
    let threads = multiprocessor(arch)?.threads;
    Some(occupancy * f64::from(threads) / f64::from(kernel.threads))
}
