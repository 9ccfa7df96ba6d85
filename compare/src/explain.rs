//! `compare explain`: where a row of a wrong output first goes wrong, in the emulator, beside a model of each step.

use crate::answer::{Answer, Format};
use crate::judge::verdict::Exit;
use crate::measure::builds::loaded;
use crate::measure::input::FileInput;
use crate::measure::select::{Chosen, SelectError, dtype, family, mask, shape, stage, unknown};
use crate::output;
use crate::pages::explain::{Finding, Gpu, document};
use crate::record::Place;
use crate::record::files::write_atomically;
use crate::registry::Ladder;
use anyhow::bail;
use clap::Args;
use common::device::emulated::TraceError;
use common::explain::{Chain, InvestigateError, Step, dense, investigate};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use safetensors::tensor::{Dtype as Stored, TensorView};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Runs the variant in the emulator and compares one row with FP64, tile of keys by tile: S, the running maximum, P, the sum and O.
The first quantity that is off by more than its precision allows is printed with the lines that computed it, and hazards in the row's
blocks. If there is a GPU, its output is compared with the emulator's, which tells a miscompiled kernel from a wrong one.
docs/symptoms.md leads from symptoms to causes.

Examples:
  compare explain --stage 5 --problem 'mission f16 full normal:0'
                                                a case as a failing `compare run` prints it; the default variant
  compare explain --stage 7 --input attention.safetensors --row 0,1,112 --dump row.safetensors
                                                real tensors; S, P, maximum, sum and O of each tile go to a file

Exit codes:
  0  everything is as exact as its precision allows
  1  wrong, and explained
  2  wrong usage, or a file that cannot be read or written
  3  undecided: a gate fails and nothing in this row explains it; NO DATA without GCC";

/// The flags of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The stage, by id or number
    #[arg(long, value_name = "STAGE")]
    pub stage: String,
    /// The variant [default: the stage's]
    #[arg(long, value_name = "VARIANT")]
    pub variant: Option<String>,
    /// The case, as reports print it: SHAPE [DTYPE] [MASK] [FAMILY:SEED] [else: the first type that the stage takes, full, normal:0]
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
    /// Write S, P, maximum, sum and O of each tile as safetensors
    #[arg(long, value_name = "FILE")]
    pub dump: Option<PathBuf>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// A case as reports name it.
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

/// Explains a row.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<Answer> {
    output::check(
        &[("--dump", args.dump.as_deref())],
        &[("--input", args.input.as_deref())],
    )?;
    let ladder = Ladder::open()?;
    let builds = ladder.builds();
    let build = stage(&args.stage, &builds)?;
    let variant = match &args.variant {
        None => build.default_variant.clone(),
        Some(name) => {
            let chosen = Chosen {
                stages: vec![build.id.clone()],
                variants: vec![name.clone()],
            };
            chosen.of(&builds)?;
            name.clone()
        }
    };
    let loaded = loaded(&ladder.stages, &build.id);
    let (name, family, inputs) = read(args, build.first_dtype())?;
    let problem = inputs.problem;
    let prepared = loaded.prepare(&variant, &problem)?;
    let found = match investigate(&prepared, &inputs, family, args.row) {
        Err(InvestigateError::Trace(error @ TraceError::NoTracedBuild)) => {
            return Ok(Answer::no_data(error));
        }
        found => found?,
    };
    let dim = problem.shape.head_dim;
    if let Some(path) = &args.dump {
        write_atomically(path, &dump(&found.explained.chains, dim)?)?;
    }
    let gpu = match (&ladder.gpu, &found.output) {
        (Ok(device), Some(output)) => {
            let staged = &found.staged;
            let execution = device.execute(loaded, &prepared, staged)?;
            let there = staged.values(&execution.output);
            let row = dense(&problem, found.row)?;
            let name = &device.info().name;
            Some(Gpu::beside(name, (&problem, family), row, [&there, output]))
        }
        _ => None,
    };
    let document = document(&Finding {
        subject: format!("{}/{variant}", build.id),
        case: name,
        is_given: args.row.is_some(),
        probability: prepared.kernel.probability.held(problem.dtype),
        found: &found,
        gpu: gpu.as_ref(),
    });
    let is_miscompiled = gpu.is_some_and(|gpu| gpu.is_wrong());
    let exit = Exit::of(found.is_explained() || is_miscompiled, found.is_red());
    Ok(Answer::new(exit, args.format.print(&document, &document)))
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

/// Of each warp S and P [tiles, keys], O [tiles, columns], maximum and sum [tiles], and which keys [tiles, keys]; NaN, or -1, where
/// a tile has none.
fn dump(chains: &[Chain], dim: usize) -> anyhow::Result<Vec<u8>> {
    let mut tensors: Vec<(String, Stored, Vec<usize>, Vec<u8>)> = Vec::new();
    for Chain { block, warp, steps } in chains {
        let [x, y, z] = block;
        let mut add = |what: &str, stored: Stored, width: Option<usize>, bytes: Vec<u8>| {
            let name = format!("block{x}.{y}.{z}.warp{warp}.{what}");
            let shape = [steps.len()].into_iter().chain(width).collect();
            tensors.push((name, stored, shape, bytes));
        };
        let most = steps.iter().map(|step| step.scores.len()).max();
        let keys = most.unwrap_or(0);
        let key = |step: &Step, at: usize| step.scores.keys().nth(at).copied();
        let numbers = steps
            .iter()
            .flat_map(|step| (0..keys).map(move |at| key(step, at)))
            .flat_map(|key| key.unwrap_or(-1).to_le_bytes());
        add("keys", Stored::I64, Some(keys), numbers.collect());
        type Figure<'a> = &'a dyn Fn(&Step, usize) -> Option<f64>;
        let figures: [(&str, Option<usize>, Figure<'_>); 5] = [
            ("S", Some(keys), &|step, at| {
                Some(step.scores.get(&key(step, at)?)?.any())
            }),
            ("P", Some(keys), &|step, at| {
                Some(step.probabilities.get(&key(step, at)?)?.any())
            }),
            ("maximum", None, &|step, _| Some(step.max.as_ref()?.any())),
            ("sum", None, &|step, _| step.row_sum()),
            ("O", Some(dim), &|step, at| {
                Some(step.output.get(&(at as i64))?.sum())
            }),
        ];
        for (what, width, figure) in figures {
            let columns = 0..width.unwrap_or(1);
            let bytes = steps
                .iter()
                .flat_map(|step| columns.clone().map(move |at| figure(step, at)))
                .flat_map(|value| (value.unwrap_or(f64::NAN) as f32).to_le_bytes());
            add(what, Stored::F32, width, bytes.collect());
        }
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes);
        view.map(|view| (name.as_str(), view))
    });
    let views = views.collect::<Result<Vec<_>, _>>()?;
    Ok(safetensors::serialize(views, None)?)
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
