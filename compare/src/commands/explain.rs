//! `compare explain`: where a row of a wrong output first goes wrong, in the emulator, beside a
//! model of each step.

use crate::answer::Answer;
use crate::case::{Case, case};
use anyhow::bail;
use clap::Args;
use common::explain::investigate;
use common::inputs::{Family, Inputs};
use common::problem::{Mask, Problem};
use measure::input::FileInput;
use measure::limits;
use measure::select::{Chosen, mask, stage};
use pages::explain::document;
use results::builds::loaded;
use results::judge::verdict::Exit;
use stages::Ladder;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Runs the variant in the emulator and compares one row with FP64, tile of keys by tile: S, the \
running maximum, P, the sum and O.
The first quantity that is off by more than its precision allows is printed with the lines that \
computed it, and hazards in the row's
blocks. If nothing is wrong here, and gate B1 of a run on a GPU fails, the source is right and \
what nvcc makes of it is not.
docs/symptoms.md leads from symptoms to causes.

Examples:
  compare explain --stage 5 --problem 'mission f16 full normal:0'
                                                a case as a failing `compare run` prints it; the \
default variant
  compare explain --stage 7 --input attention.safetensors --row 0,1,112
                                                real tensors

Exit codes:
  0  everything is as exact as its precision allows
  1  wrong, and explained
  2  wrong usage, or a file that cannot be read
  3  undecided: a gate fails and nothing in this row explains it; not measured without GCC";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The stage, by id or number
    #[arg(long, value_name = "STAGE")]
    pub stage: String,
    /// The variant [default: the stage's]
    #[arg(long, value_name = "VARIANT")]
    pub variant: Option<String>,
    /// The case, as reports print it: SHAPE DTYPE MASK FAMILY:SEED [scale=S]
    #[arg(long, value_name = "CASE", value_parser = case, required_unless_present = "input")]
    pub problem: Option<Case>,
    /// Real tensors: a safetensors file as for `run`
    #[arg(long, value_name = "FILE", conflicts_with = "problem")]
    pub input: Option<PathBuf>,
    /// The mask of --input: full or causal
    #[arg(
        long,
        value_name = "MASK",
        value_parser = mask,
        conflicts_with = "problem",
        default_value = "full"
    )]
    pub mask: Mask,
    /// Batch, query head and query row, from 0 [default: the row with the largest error]
    #[arg(long, value_name = "B,H,I", value_parser = row)]
    pub row: Option<[usize; 3]>,
}

fn row(text: &str) -> Result<[usize; 3], NotThreeNumbers> {
    let mut numbers = Vec::new();
    for number in text.split(',') {
        numbers.push(number.trim().parse().map_err(|_| NotThreeNumbers)?);
    }
    numbers.try_into().map_err(|_| NotThreeNumbers)
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("give three numbers B,H,I: batch, query head and query row, from 0")]
struct NotThreeNumbers;

/// Shows where a row of the output first leaves its reference.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let ladder = Ladder::without_gpu("rows are explained in the emulator")?;
    let builds = ladder.builds()?;
    let build = stage(&args.stage, &builds)?;
    let chosen = Chosen {
        stages: vec![build.id.clone()],
        variants: args.variant.iter().cloned().collect(),
    };
    chosen.pick(&builds)?;
    let variant = args.variant.as_ref().unwrap_or(&build.default_variant);
    let loaded = loaded(&ladder.stages, &build.id);
    let subject = read(args)?;
    let problem = subject.inputs.problem;
    let prepared = loaded.prepare(variant, &problem)?;
    let investigated = investigate(&prepared, &subject.inputs, subject.family, args.row)?;
    let [batch, head, row] = investigated.row;
    let reason = if args.row.is_none() {
        ", the row that is furthest off"
    } else {
        ""
    };
    let about = format!(
        "{}/{variant} {}, row {batch},{head},{row}{reason}",
        build.id, subject.name
    );
    let probability = prepared.kernel.probability.held(problem.dtype);
    let exit = Exit::of(investigated.is_explained(), investigated.is_red());
    Ok(Answer::page(
        exit,
        &document(about, probability, &investigated),
    ))
}

/// A case or file whose row is explained.
struct Explained {
    name: String,
    /// The family of the inputs, if they are generated.
    family: Option<Family>,
    inputs: Inputs,
}

fn read(args: &ExplainArgs) -> anyhow::Result<Explained> {
    if let Some(path) = &args.input {
        let file = FileInput::read(path)?;
        let problem = Problem::new(file.problem.shape, file.problem.dtype, args.mask)?;
        return Ok(Explained {
            name: format!("{} {} {}", problem.dtype, args.mask, path.display()),
            family: None,
            inputs: file.inputs(&problem)?,
        });
    }
    let Some(asked) = &args.problem else {
        bail!("give --problem or --input");
    };
    limits::check_problems([&asked.problem])?;
    Ok(Explained {
        name: asked.to_string(),
        family: Some(asked.family),
        inputs: Inputs::generate(&asked.problem, asked.family, asked.seed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_three_numbers() {
        assert_eq!(row("0,1,112"), Ok([0, 1, 112]));
        for malformed in ["0,1", "0,x,1", "0,1,2,3"] {
            let error = row(malformed).unwrap_err().to_string();
            assert!(error.contains("three numbers"), "{malformed}: {error}");
        }
    }
}
