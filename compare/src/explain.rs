//! `compare explain`: where a row of a wrong output first goes wrong, in the emulator, beside a model of each step.

use crate::answer::Answer;
use crate::judge::verdict::Exit;
use crate::measure::builds::loaded;
use crate::measure::input::FileInput;
use crate::measure::select::{Chosen, SelectError, dtype, family, mask, shape, stage, unknown};
use crate::pages::explain::{Finding, document};
use crate::stages::Ladder;
use crate::table::Place;
use anyhow::bail;
use clap::Args;
use common::device::emulated::TraceError;
use common::explain::{InvestigateError, investigate};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
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
pub struct ExplainArgs {
    /// The stage, by id or number
    #[arg(long, value_name = "STAGE")]
    pub stage: String,
    /// The variant [default: the stage's]
    #[arg(long, value_name = "VARIANT")]
    pub variant: Option<String>,
    /// The case, as reports print it: SHAPE [DTYPE] [MASK] [FAMILY:SEED] [else: the first type that the stage supports, full, normal:0]
    #[arg(long, value_name = "CASE", value_parser = case, required_unless_present = "input")]
    pub problem: Option<Named>,
    /// Real tensors: a safetensors file as for `run`
    #[arg(long, value_name = "FILE", conflicts_with = "problem")]
    pub input: Option<PathBuf>,
    /// The mask of --input: full or causal
    #[arg(long, value_name = "MASK", value_parser = mask, requires = "input", default_value = "full")]
    pub mask: Mask,
    /// Batch, query head and query row, from 0 [default: the row with the largest error]
    #[arg(long, value_name = "B,H,I", value_parser = row)]
    pub row: Option<[usize; 3]>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    shape: Shape,
    /// The stage's first, if none.
    dtype: Option<Dtype>,
    mask: Mask,
    family: Family,
    seed: u64,
}

impl Named {
    /// Its name, as reports print it, and inputs, of the element type `first` if it names none.
    fn read(&self, first: Dtype) -> anyhow::Result<(String, Inputs)> {
        let Self {
            shape,
            mask,
            family,
            seed,
            ..
        } = self;
        let dtype = self.dtype.unwrap_or(first);
        let problem = Problem::new(*shape, dtype, *mask)?;
        let name = format!("{} {family}:{seed}", Place::of(&problem));
        Ok((name, Inputs::generate(&problem, *family, *seed)))
    }
}

/// `mission f16 full normal:0`, of which all but the shape may be left out.
fn case(text: &str) -> Result<Named, SelectError> {
    let mut words = text.split_whitespace();
    let mut named = Named {
        shape: shape(words.next().unwrap_or_default())?,
        dtype: None,
        mask: Mask::Full,
        family: Family::Normal,
        seed: 0,
    };
    for word in words {
        if let Some((name, number)) = word.split_once(':') {
            named.family = family(name)?;
            named.seed = number
                .parse()
                .map_err(|_| unknown("seed", number, ["0", "1"]))?;
        } else if let Ok(found) = mask(word) {
            named.mask = found;
        } else {
            named.dtype = Some(dtype(word)?);
        }
    }
    Ok(named)
}

fn row(text: &str) -> Result<[usize; 3], String> {
    let numbers: Vec<usize> = text
        .split(',')
        .map(|number| number.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|_| "give batch, query head and query row as B,H,I, from 0".to_string())?;
    numbers
        .try_into()
        .map_err(|_| "give three numbers: batch, query head and query row, as 0,3,17".into())
}

pub fn explain(args: &ExplainArgs) -> anyhow::Result<Answer> {
    let ladder = Ladder::without_gpu("rows are explained in the emulator")?;
    let builds = ladder.builds();
    let build = stage(&args.stage, &builds)?;
    let chosen = Chosen {
        stages: vec![build.id.clone()],
        variants: args.variant.iter().cloned().collect(),
    };
    chosen.of(&builds)?;
    let variant = args.variant.as_ref().unwrap_or(&build.default_variant);
    let loaded = loaded(&ladder.stages, &build.id);
    let (name, family, inputs) = read(args, build.first_dtype())?;
    let problem = inputs.problem;
    let prepared = loaded.prepare(variant, &problem)?;
    let found = match investigate(&prepared, &inputs, family, args.row) {
        Err(InvestigateError::Trace(error @ TraceError::NoTracedBuild)) => {
            return Ok(Answer::no_data(error));
        }
        found => found?,
    };
    let document = document(&Finding {
        subject: format!("{}/{variant}", build.id),
        case: name,
        is_given: args.row.is_some(),
        probability: prepared.kernel.probability.held(problem.dtype),
        found: &found,
    });
    let exit = Exit::of(found.is_explained(), found.is_red());
    Ok(Answer::page(exit, &document))
}

/// The case's name, the family of its inputs, and the inputs.
fn read(args: &ExplainArgs, first: Dtype) -> anyhow::Result<(String, Option<Family>, Inputs)> {
    match (&args.problem, &args.input) {
        (_, Some(path)) => {
            let file = FileInput::read(path)?;
            let problem = Problem::new(file.problem.shape, file.problem.dtype, args.mask)?;
            let inputs = file.inputs(&problem)?;
            let name = format!("{} {} {}", problem.dtype, args.mask, path.display());
            Ok((name, None, inputs))
        }
        (Some(case), None) => {
            let (name, inputs) = case.read(first)?;
            Ok((name, Some(case.family), inputs))
        }
        (None, None) => bail!("give --problem or --input"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_named_as_reports_name_it() {
        let named = case("mission e4m3 causal sink:7").unwrap();
        assert_eq!((named.family, named.seed), (Family::Sink, 7));
        let read = |text: &str, first| case(text).unwrap().read(first).unwrap();
        let (name, inputs) = read("mission e4m3 causal sink:7", Dtype::F16);
        assert_eq!(name, "mission e4m3 causal sink:7");
        assert_eq!(inputs.problem.dtype, Dtype::E4m3);
        for first in [Dtype::F16, Dtype::E4m3] {
            let (name, inputs) = read("1x2x17x64", first);
            assert_eq!(name, format!("1x2x17x64 {first} full normal:0"));
            assert_eq!(inputs.problem.dtype, first);
        }
        let error = |text: &str| case(text).unwrap_err().to_string();
        assert!(error("mision").contains("did you mean 'mission'?"));
        assert!(error("mission f61").contains("there is no dtype 'f61'"));
        assert!(error("mission norml:0").contains("did you mean 'normal'?"));
        assert!(error("mission normal:x").contains("there is no seed 'x'"));
    }

    #[test]
    fn a_row_is_three_numbers() {
        assert_eq!(row("0,1,112"), Ok([0, 1, 112]));
        assert!(row("0,1").unwrap_err().contains("three numbers"));
        assert!(row("0,x,1").unwrap_err().contains("B,H,I"));
    }
}
