//! `compare explain`: where a row of a wrong output first goes wrong, in the emulator, beside a model of each step.

use crate::answer::Answer;
use crate::judge::verdict::Exit;
use crate::measure::builds::loaded;
use crate::measure::input::FileInput;
use crate::measure::limits;
use crate::measure::select::{Chosen, SelectError, dtype, family, mask, shape, stage};
use crate::pages::explain::document;
use crate::stages::Ladder;
use crate::table::ProblemPlace;
use anyhow::bail;
use clap::Args;
use common::explain::investigate;
use common::inputs::{Family, Inputs};
use common::problem::{Mask, Problem};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Runs the variant in the emulator and compares one row with FP64, tile of keys by tile: S, the running maximum, P, the sum and O.
The first quantity that is off by more than its precision allows is printed with the lines that computed it, and hazards in the row's
blocks. If nothing is wrong here, and gate B1 of a run on a GPU fails, the source is right and what nvcc makes of it is not.
docs/symptoms.md leads from symptoms to causes.

Examples:
  compare explain --stage 5 --problem 'mission f16 full normal:0'
                                                a case as a failing `compare run` prints it; the default variant
  compare explain --stage 7 --input attention.safetensors --row 0,1,112
                                                real tensors

Exit codes:
  0  everything is as exact as its precision allows
  1  wrong, and explained
  2  wrong usage, or a file that cannot be read
  3  inconclusive: a gate fails and nothing in this row explains it; NO DATA without GCC";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The stage, by id or number
    #[arg(long, value_name = "STAGE")]
    pub stage: String,
    /// The variant [default: the stage's]
    #[arg(long, value_name = "VARIANT")]
    pub variant: Option<String>,
    /// The case, as reports print it: SHAPE DTYPE MASK FAMILY:SEED
    #[arg(long, value_name = "CASE", value_parser = case, required_unless_present = "input")]
    pub problem: Option<Case>,
    /// Real tensors: a safetensors file as for `run`
    #[arg(long, value_name = "FILE", conflicts_with = "problem")]
    pub input: Option<PathBuf>,
    /// The mask of --input: full or causal
    #[arg(long, value_name = "MASK", value_parser = mask, conflicts_with = "problem", default_value = "full")]
    pub mask: Mask,
    /// Batch, query head and query row, from 0 [default: the row with the largest error]
    #[arg(long, value_name = "B,H,I", value_parser = row)]
    pub row: Option<[usize; 3]>,
}

pub type Case = (Problem, Family, u64);

/// `mission f16 full normal:0`.
fn case(text: &str) -> Result<Case, SelectError> {
    let says = "give SHAPE DTYPE MASK FAMILY:SEED, such as 'mission f16 full normal:0'";
    let malformed = || SelectError(says.into());
    let words: Vec<&str> = text.split_whitespace().collect();
    let [shape_name, dtype_name, mask_name, inputs] = words[..] else {
        return Err(malformed());
    };
    let problem = Problem::new(shape(shape_name)?, dtype(dtype_name)?, mask(mask_name)?)?;
    let (name, seed) = inputs.split_once(':').ok_or_else(malformed)?;
    let seed = seed.parse().map_err(|_| malformed())?;
    let family = family(name)?;
    if !Family::for_dtype(problem.dtype).contains(&family) {
        let says = format!("family '{family}' is of another element type than {dtype_name}");
        return Err(SelectError(says));
    }
    Ok((problem, family, seed))
}

fn row(text: &str) -> Result<[usize; 3], String> {
    let numbers = text.split(',').map(|number| number.trim().parse());
    let numbers: Option<Vec<usize>> = numbers.collect::<Result<_, _>>().ok();
    let three = numbers.and_then(|numbers| numbers.try_into().ok());
    three.ok_or("give three numbers B,H,I: batch, query head and query row, from 0".to_string())
}

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
    let (name, family, inputs) = read(args)?;
    let problem = inputs.problem;
    let prepared = loaded.prepare(variant, &problem)?;
    let found = investigate(&prepared, &inputs, family, args.row)?;
    let chosen = match args.row {
        Some(_) => "",
        None => ", the row that is furthest off",
    };
    let [b, h, s] = found.row;
    let about = format!("{}/{variant} {name}, row {b},{h},{s}{chosen}", build.id);
    let probability = prepared.kernel.probability.held(problem.dtype);
    let exit = Exit::of(found.is_explained(), found.is_red());
    Ok(Answer::page(exit, &document(about, probability, &found)))
}

/// The case's name, the family of its inputs, and the inputs.
fn read(args: &ExplainArgs) -> anyhow::Result<(String, Option<Family>, Inputs)> {
    match (&args.problem, &args.input) {
        (_, Some(path)) => {
            let file = FileInput::read(path)?;
            let problem = Problem::new(file.problem.shape, file.problem.dtype, args.mask)?;
            let inputs = file.inputs(&problem)?;
            let name = format!("{} {} {}", problem.dtype, args.mask, path.display());
            Ok((name, None, inputs))
        }
        (Some((problem, family, seed)), None) => {
            let name = format!("{} {family}:{seed}", ProblemPlace::of(problem));
            limits::check_problems([problem])?;
            let inputs = Inputs::generate(problem, *family, *seed);
            Ok((name, Some(*family), inputs))
        }
        (None, None) => bail!("give --problem or --input"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::problem::Dtype;

    #[test]
    fn a_case_is_named_as_reports_name_it() {
        let mission = Problem::new(shape("mission").unwrap(), Dtype::E4m3, Mask::Causal);
        let named = (mission.unwrap(), Family::Sink, 7);
        assert_eq!(case("mission e4m3 causal sink:7").unwrap(), named);
        let error = |text: &str| case(text).unwrap_err().to_string();
        assert!(error("mision f16 full normal:0").contains("did you mean 'mission'?"));
        assert!(error("mission f61 full normal:0").contains("there is no dtype 'f61'"));
        assert!(error("mission f16 full norml:0").contains("did you mean 'normal'?"));
        assert!(error("mission f16 full normal:x").contains("FAMILY:SEED"));
        let says = "family 'wide-range' is of another element type than f16";
        assert_eq!(error("mission f16 full wide-range:0"), says);
        for malformed in [
            "mission f16 full",
            "mission f16 full 0",
            "mission f16 full normal:0 x",
        ] {
            assert!(error(malformed).contains("FAMILY:SEED"));
        }
    }

    #[test]
    fn a_row_is_three_numbers() {
        assert_eq!(row("0,1,112"), Ok([0, 1, 112]));
        assert!(row("0,1").unwrap_err().contains("three numbers"));
        assert!(row("0,x,1").unwrap_err().contains("three numbers"));
    }
}
