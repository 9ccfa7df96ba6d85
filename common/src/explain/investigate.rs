//! From a launch to an explained row.

use super::{Case, Explained, explain};
use crate::device::Staged;
use crate::device::emulated::{self, Selection};
use crate::gate::{self, Evidence};
use crate::image::Layout;
use crate::inputs::{Family, Inputs};
use crate::problem::Problem;
use crate::reference::{ReferenceError, reference, reference_of_rows};
use crate::stage::Prepared;
use crate::verdict::GateResult;
use emulator::trace::Watch;
use emulator::{Fault, Schedule, TraceReport};

#[derive(Debug, thiserror::Error)]
pub enum InvestigateError {
    #[error(
        "there is no row {}; the problem has batches 0 to {}, query heads 0 to {} and query rows 0 to {}",
        row.map(|index| index.to_string()).join(","), extents[0] - 1, extents[1] - 1, extents[2] - 1
    )]
    Row {
        /// Batch, head and query row asked for.
        row: [usize; 3],
        extents: [usize; 3],
    },
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("the emulator does not start: {0}")]
    Trace(#[from] Fault),
}

#[derive(Debug)]
pub struct Investigated {
    /// Batch, head and query row.
    pub row: [usize; 3],
    pub fault: Option<Fault>,
    /// C1 to C4, of the whole output or of the row asked for.
    pub gates: Vec<GateResult>,
    /// Trace of the row's blocks.
    pub traced: TraceReport,
    pub explained: Explained,
}

impl Investigated {
    pub fn is_explained(&self) -> bool {
        self.explained.deviation.is_some() || self.is_stopped()
    }

    pub fn is_stopped(&self) -> bool {
        self.fault.is_some() || !self.traced.hazards.is_empty()
    }

    pub fn is_red(&self) -> bool {
        self.gates.iter().any(GateResult::is_fail)
    }
}

fn dense(problem: &Problem, row: [usize; 3]) -> Result<usize, InvestigateError> {
    let shape = problem.shape;
    let extents = [shape.batch, shape.heads_q, shape.seq_q];
    if row.iter().zip(extents).any(|(&at, extent)| at >= extent) {
        return Err(InvestigateError::Row { row, extents });
    }
    Ok((row[0] * extents[1] + row[1]) * extents[2] + row[2])
}

/// The row given, or the one that is furthest off. `family`: how the inputs were drawn, if they were.
pub fn investigate(
    prepared: &Prepared<'_>,
    inputs: &Inputs,
    family: Option<Family>,
    given: Option<[usize; 3]>,
) -> Result<Investigated, InvestigateError> {
    let (problem, probability) = (inputs.problem, prepared.kernel.probability);
    let number = given.map(|row| dense(&problem, row)).transpose()?;
    let staged = Staged::new(inputs, Layout::Strided);
    let (output, fault) = match emulated::execute(prepared, &staged, Schedule::InOrder, None) {
        Ok(execution) => (Some(staged.values(&execution.output)), None),
        Err(fault @ Fault::NoMemory { .. }) => return Err(fault.into()),
        Err(fault) => (None, Some(fault)),
    };
    let reference = match number {
        None => reference(inputs, probability)?,
        Some(number) => reference_of_rows(inputs, probability, vec![number])?,
    };
    let (mut worst, mut gates) = ([0, 0, problem.shape.seq_q - 1], Vec::new());
    if let Some(output) = &output {
        let evidence = Evidence {
            problem: &problem,
            family,
            reference: &reference,
            output,
        };
        let (errors, numeric) = gate::numeric_gates(&evidence);
        let nonzero = errors.nonzero_in_zero_row.map(|[b, h, s, _]| [b, h, s]);
        worst = nonzero.unwrap_or(errors.max_row_rel_at);
        gates = numeric.to_vec();
    }
    let row = given.unwrap_or(worst);
    let traced = trace(prepared, &staged, row)?;
    let start = dense(&problem, row)? * problem.shape.head_dim;
    let of_row = output
        .as_ref()
        .map(|all| &all[start..start + problem.shape.head_dim]);
    let case = Case {
        inputs,
        row,
        probability: probability.held(problem.dtype),
        is_shared: prepared.kernel.cluster > 1,
        output: of_row.filter(|_| traced.hazards.is_empty()),
    };
    let explained = explain(&case, &traced.observations);
    Ok(Investigated {
        row,
        fault,
        gates,
        traced,
        explained,
    })
}

/// Of the blocks of the row's head.
fn trace(
    prepared: &Prepared<'_>,
    staged: &Staged,
    row: [usize; 3],
) -> Result<TraceReport, InvestigateError> {
    let number = dense(&staged.problem, row)?;
    let watch = Watch {
        row: row.map(|index| index as i32),
        output: staged
            .output
            .element_ranges()
            .nth(number)
            .unwrap_or_default(),
    };
    let run = |blocks: Option<&[[u32; 3]]>| {
        let selection = Selection {
            blocks,
            suppress: None,
            watch: Some(watch.clone()),
        };
        emulated::trace(prepared, staged, Schedule::InOrder, &selection)
    };
    // A grid is over query heads, or over those that they read.
    let group = staged.problem.shape.heads_q as u32 / prepared.grid[1];
    let of_head: Vec<[u32; 3]> = (0..prepared.grid[0])
        .map(|x| [x, row[1] as u32 / group, row[0] as u32])
        .collect();
    let report = run(Some(&of_head))?;
    // Where blocks are not numbered by head, others have the row.
    if !report.observations.is_empty() || !report.hazards.is_empty() {
        return Ok(report);
    }
    Ok(run(None)?)
}
