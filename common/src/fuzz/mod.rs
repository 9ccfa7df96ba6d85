//! Random cases for the gates that every other case goes through: drawn by a seed, shrunk to the
//! smallest that fails, and written as one line that runs again.

mod draw;
mod shrink;
#[cfg(test)]
mod tests;

pub use draw::{draw, draw_served};
pub use shrink::{Answer, Shrunk, shrink};

use crate::check::{self, Checked, NoOutput, StagedInputs, Target};
use crate::device::cuda::CudaDevice;
use crate::inputs::{Family, Inputs};
use crate::placement::{Placement, PlacementError};
use crate::problem::{Dtype, Mask, Problem, ProblemError, Shape, parse_shape};
use crate::reference::{ReferenceError, reference};
use crate::stage::LoadedStage;
use crate::tier0::SCHEDULES;
use emulator::Schedule;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The number of launches that gate C5 compares on a GPU.
const GPU_LAUNCHES: usize = 3;

/// The tensors of a case in the order of its placements.
const TENSORS: [&str; 4] = ["q", "k", "v", "o"];

/// Everything that a launch depends on but for the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub problem: Problem,
    pub family: Family,
    pub seed: u64,
    /// Whether log-sum-exps are asked for where the kernel writes them.
    pub lse: bool,
    /// The placements of Q, K, V and O.
    pub placements: [Placement; 4],
}

/// A reason why a line is no case.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CaseError {
    #[error(
        "'{text}' is not a case: expected SHAPE DTYPE MASK FAMILY:SEED [scale=S] [lse] \
         [q=PLACEMENT] [k=…] [v=…] [o=…], such as \
         '2x6:2x17:203x64 f16 causal normal:7 scale=0.3 lse q=bshd/s256@16'"
    )]
    Syntax { text: String },
    #[error("there is no {what} '{word}'; known: {known}")]
    Unknown {
        what: &'static str,
        word: String,
        known: String,
    },
    #[error("family '{family}' is of another element type than {dtype}")]
    Family { family: Family, dtype: Dtype },
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
}

impl Case {
    /// Returns whether it is traced for gate H1 in the emulator, and on a GPU compared with the
    /// emulator by gate B1.
    pub fn is_small(&self) -> bool {
        work(&self.problem.shape) <= SMALL_WORK
    }

    /// Returns the case as `explain` takes it, which says nothing of where a tensor lies; `None` for
    /// tensors with a place of their own.
    pub fn explained(&self) -> Option<Self> {
        let is_packed = self.placements == [Placement::PACKED; 4];
        is_packed.then_some(Self {
            lse: false,
            ..*self
        })
    }

    /// Returns the case with the problem's default scale.
    fn with_default_scale(self) -> Self {
        let Problem {
            shape, dtype, mask, ..
        } = self.problem;
        let problem = Problem::new(shape, dtype, mask).expect("another scale is no other problem");
        Self { problem, ..self }
    }
}

/// Returns the number of scores of the tiles that small blocks compute, over all heads: what a
/// launch costs in the emulator.
fn work(shape: &Shape) -> usize {
    let rows = shape.seq_q.next_multiple_of(TILE);
    let keys = shape.seq_kv.next_multiple_of(TILE);
    shape.batch * shape.heads_q * rows * keys * shape.head_dim / HEAD_DIM
}

/// The rows and keys that blocks take at a time, about.
const TILE: usize = 64;
/// The smaller head size.
const HEAD_DIM: usize = 64;

/// The work of a case whose trace takes about a second.
const SMALL_WORK: usize = 12 * TILE * TILE;

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            shape, dtype, mask, ..
        } = self.problem;
        let (family, seed, scale) = (self.family, self.seed, self.problem.scale_option());
        write!(f, "{shape} {dtype} {mask} {family}:{seed}{scale}")?;
        if self.lse {
            f.write_str(" lse")?;
        }
        for (name, placement) in TENSORS.into_iter().zip(self.placements) {
            if placement != Placement::PACKED {
                write!(f, " {name}={placement}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = CaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || CaseError::Syntax {
            text: text.to_string(),
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [shape, dtype_name, mask_name, inputs, ref options @ ..] = words[..] else {
            return Err(syntax());
        };
        let dtype = find_named("dtype", dtype_name, Dtype::ALL, Dtype::name)?;
        let mask = find_named("mask", mask_name, Mask::ALL, Mask::name)?;
        let (family_name, seed) = inputs.split_once(':').ok_or_else(syntax)?;
        let family = find_named("family", family_name, Family::ALL, Family::name)?;
        if !Family::for_dtype(dtype).contains(&family) {
            return Err(CaseError::Family { family, dtype });
        }
        let mut case = Self {
            problem: Problem::new(parse_shape(shape)?, dtype, mask)?,
            family,
            seed: seed.parse().map_err(|_| syntax())?,
            lse: false,
            placements: [Placement::PACKED; 4],
        };
        for option in options {
            match option.split_once('=') {
                None if *option == "lse" => case.lse = true,
                Some(("scale", number)) => {
                    let scale = number.parse().map_err(|_| syntax())?;
                    case.problem = Problem::with_scale(case.problem.shape, dtype, mask, scale)?;
                }
                Some((name, placement)) => {
                    let index = TENSORS.iter().position(|tensor| *tensor == name);
                    case.placements[index.ok_or_else(syntax)?] = placement.parse()?;
                }
                None => return Err(syntax()),
            }
        }
        Ok(case)
    }
}

fn find_named<T: Copy, const N: usize>(
    what: &'static str,
    word: &str,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
) -> Result<T, CaseError> {
    all.into_iter()
        .find(|value| name(*value) == word)
        .ok_or_else(|| CaseError::Unknown {
            what,
            word: word.to_string(),
            known: all.map(name).join(", "),
        })
}

/// A reason why a case was not judged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    NoOutput(#[from] NoOutput),
    #[error("no reference: {0}")]
    Reference(#[from] ReferenceError),
}

/// Puts `case` through C1 to C6 and C8; a small one also through H1 in the emulator or, if `gpu`
/// launches it, through B1, whose bounds are for scores of the default scale.
pub fn run(
    stage: &LoadedStage,
    variant: &str,
    case: &Case,
    gpu: Option<&CudaDevice>,
) -> Result<Checked, RunError> {
    // Refused before anything is computed for it.
    let prepared = stage
        .prepare(variant, &case.problem)
        .map_err(NoOutput::from)?;
    let probability = prepared.kernel.probability;
    let inputs = Inputs::generate(&case.problem, case.family, case.seed);
    let staged = Arc::new(StagedInputs::placed(
        &inputs,
        case.family,
        &case.placements,
        case.lse,
    ));
    let traced: &[Schedule] = if case.is_small() {
        &SCHEDULES[..1]
    } else {
        &[]
    };
    let target = match gpu {
        Some(device) => Target::Cuda {
            device,
            launches: GPU_LAUNCHES,
        },
        None => Target::Emulated {
            schedules: &SCHEDULES,
            traced,
            suppress: None,
        },
    };
    let launched = check::launch(stage, variant, &staged, target)?;
    let mut checked = launched.judge(&reference(&inputs, probability)?);
    let default_scale = case.problem.default_scale();
    if gpu.is_some() && case.is_small() && case.problem.softmax_scale <= default_scale {
        let b1 = check::both_backends(stage, variant, &staged, &checked.output)?;
        checked.gates.push(b1);
    }
    Ok(checked)
}
