//! Runs a kernel in the emulator and explains one row of what it computes.

use super::{Case, Explained, explain};
use crate::device::Staged;
use crate::device::emulated::{self, Selection};
use crate::gate::{self, Evidence};
use crate::image::Layout;
use crate::inputs::{Family, Inputs};
use crate::problem::Problem;
use crate::reference::{Probability, ReferenceError, reference, reference_of_rows};
use crate::stage::Prepared;
use crate::verdict::GateResult;
use emulator::trace::Watch;
use emulator::{BlockIndex, Fault, Schedule, TraceReport};

/// A reason why no row can be explained.
#[derive(Debug, thiserror::Error)]
pub enum InvestigateError {
    #[error(
        "there is no row {}; the problem has batches 0 to {}, query heads 0 to {} and \
         query rows 0 to {}",
        row.map(|index| index.to_string()).join(","),
        extents[0] - 1,
        extents[1] - 1,
        extents[2] - 1
    )]
    Row {
        /// Batch, head and query row asked for.
        row: [usize; 3],
        extents: [usize; 3],
    },
    #[error(
        "sequence {} has {queries} queries and no row {}",
        row[0],
        row.map(|index| index.to_string()).join(",")
    )]
    NoQuery {
        /// Batch, head and query row asked for.
        row: [usize; 3],
        /// The queries of its sequence.
        queries: usize,
    },
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("the emulator does not start: {0}")]
    Trace(#[from] Fault),
}

/// A row of a launch in the emulator, and what is known about it.
#[derive(Debug)]
pub struct Investigated {
    /// Batch, head and query row.
    pub row: [usize; 3],
    pub fault: Option<Fault>,
    /// C1 to C4, of the whole output or of the row asked for.
    pub gates: Vec<GateResult>,
    /// The trace of the row's blocks.
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

/// Returns the dense number of a row.
fn dense(problem: &Problem, row: [usize; 3]) -> Result<usize, InvestigateError> {
    let extents = [
        problem.shape.batch,
        problem.shape.heads_q,
        problem.shape.seq_q,
    ];
    if row
        .iter()
        .zip(extents)
        .any(|(&index, extent)| index >= extent)
    {
        return Err(InvestigateError::Row { row, extents });
    }
    let queries = problem.shape.sequences()[row[0]].queries;
    if row[2] >= queries {
        return Err(InvestigateError::NoQuery { row, queries });
    }
    Ok((row[0] * extents[1] + row[1]) * extents[2] + row[2])
}

/// Explains the row `requested`, or the one that is furthest off. `family` tells how the inputs
/// were drawn, if they were.
pub fn investigate(
    prepared: &Prepared<'_>,
    inputs: &Inputs,
    family: Option<Family>,
    requested: Option<[usize; 3]>,
) -> Result<Investigated, InvestigateError> {
    let problem = inputs.problem;
    let requested_number = requested.map(|row| dense(&problem, row)).transpose()?;
    let staged = Staged::new(inputs, Layout::Strided);
    let (output, fault) = match emulated::execute(prepared, &staged, Schedule::InOrder, None) {
        Ok(execution) => (Some(staged.values(&execution.output)), None),
        Err(fault @ Fault::NoMemory { .. }) => return Err(fault.into()),
        Err(fault) => (None, Some(fault)),
    };
    let judgement = judge(
        inputs,
        family,
        prepared.kernel.probability,
        requested_number,
        output.as_deref(),
    )?;
    let row = requested.unwrap_or(judgement.worst_row);
    let number = dense(&problem, row)?;
    let traced = trace(prepared, &staged, row, number)?;
    let head_dim = problem.shape.head_dim;
    let stored_row = output
        .as_ref()
        .map(|elements| &elements[number * head_dim..][..head_dim]);
    let case = Case {
        inputs,
        row,
        probability: prepared.kernel.probability.held(problem.dtype),
        is_shared: prepared.kernel.cluster > 1,
        output: stored_row.filter(|_| traced.hazards.is_empty()),
    };
    let explained = explain(&case, &traced.observations);
    Ok(Investigated {
        row,
        fault,
        gates: judgement.gates,
        traced,
        explained,
    })
}

/// The verdicts on an output.
struct Judgement {
    gates: Vec<GateResult>,
    worst_row: [usize; 3],
}

/// Judges the whole output, or the row that was requested. Without an output the last row of the
/// first head is the worst.
fn judge(
    inputs: &Inputs,
    family: Option<Family>,
    probability: Probability,
    requested_number: Option<usize>,
    output: Option<&[f32]>,
) -> Result<Judgement, InvestigateError> {
    let problem = &inputs.problem;
    let reference = match requested_number {
        None => reference(inputs, probability)?,
        Some(number) => reference_of_rows(inputs, probability, vec![number])?,
    };
    let Some(elements) = output else {
        return Ok(Judgement {
            gates: Vec::new(),
            worst_row: [0, 0, problem.shape.seq_q - 1],
        });
    };
    let evidence = Evidence {
        problem,
        family,
        reference: &reference,
        output: elements,
    };
    let (errors, gates) = gate::numeric_gates(&evidence);
    let worst_row = match errors.nonzero_in_zero_row {
        Some([batch, head, query, _]) => [batch, head, query],
        None => errors.max_row_rel_at,
    };
    Ok(Judgement {
        gates: gates.to_vec(),
        worst_row,
    })
}

/// Traces the blocks of the row's head and, if they do not show the row, all blocks.
fn trace(
    prepared: &Prepared<'_>,
    staged: &Staged,
    row: [usize; 3],
    number: usize,
) -> Result<TraceReport, InvestigateError> {
    let watch = Watch {
        row: row.map(|index| index as i32),
        output: staged.output.row_range(number).unwrap_or_default(),
    };
    let run = |blocks: Option<&[BlockIndex]>| {
        let selection = Selection {
            blocks,
            watch: Some(watch.clone()),
            ..Selection::default()
        };
        emulated::trace(prepared, staged, Schedule::InOrder, &selection)
    };
    // Blocks that stay take items of any head.
    if prepared.is_persistent {
        return Ok(run(None)?);
    }
    // A grid is over query heads, or over those that they read.
    let group = staged.problem.shape.heads_q as u32 / prepared.grid[1];
    let blocks_of_head: Vec<BlockIndex> = (0..prepared.grid[0])
        .map(|x| [x, row[1] as u32 / group, row[0] as u32])
        .collect();
    let report = run(Some(&blocks_of_head))?;
    // Where blocks are not numbered by head, others have the row.
    if report.observations.is_empty() && report.hazards.is_empty() {
        return Ok(run(None)?);
    }
    Ok(report)
}
