//! `compare sass`: which instructions a kernel consists of, and what moved since another build.

use crate::answer::{Answer, NoData};
use crate::instrument::find::{CUOBJDUMP, Tool};
use crate::instrument::process::Scratch;
use crate::judge::list::joined;
use crate::measure::builds::{StageBuild, loaded};
use crate::measure::machine_code::{self, Function, Instruction, functions};
use crate::measure::select::{Chosen, Instances};
use crate::output;
use crate::page::terminal::{WIDTH, terminal};
use crate::page::{Block, Document};
use crate::record::files::write_atomically;
use crate::registry::Ladder;
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::metric::Metric;
use common::stage::LoadedStage;
use rayon::prelude::*;
use similar::TextDiff;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const EXAMPLES: &str = "\
Disassembles the machine code in this build with cuobjdump; needs nvcc at build time and no GPU. The main loop is the loop whose own
instructions multiply most. `compare run` keeps the counts in its record, and `compare diff` shows what changed.

Examples:
  compare sass --stages 8                       the instruction counts of each instance of stage 8
  compare sass --stages 8 --variants overlap-lazy-256x64 --dtypes f16 --head-dims 64 --loop
                                                its main loop
  compare sass --stages 8 --save base.sass      the whole listing, to compare with later
  compare sass --stages 8 --against base.sass   what changed since, and a diff of the loops

Exit codes:
  0  shown
  2  wrong usage, or a file that cannot be read or written
  3  NO DATA: built without nvcc, or cuobjdump was not found";

/// The flags of `sass`.
#[derive(Clone, Debug, Args)]
pub struct SassArgs {
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub instances: Instances,
    /// The architecture, such as sm_90a [default: the last that the stage was built for]
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Also print the main loop of each instance
    #[arg(long = "loop")]
    pub main_loop: bool,
    /// Write the listing of the one chosen stage to a file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Compare with a listing that --save wrote
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
}

/// Prints what the chosen instances consist of.
pub fn sass(args: &SassArgs) -> anyhow::Result<Answer> {
    output::check(
        &[("--save", args.save.as_deref())],
        &[("--against", args.against.as_deref())],
    )?;
    let ladder = Ladder::without_gpu("code is read, not run")?;
    let builds = ladder.builds();
    let picked = args.chosen.of(&builds)?;
    ensure!(
        picked.len() == 1 || (args.save.is_none() && args.against.is_none()),
        "--save and --against take one stage; choose it by --stages"
    );
    let mut before = None;
    if let Some(path) = &args.against {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {shown}; --save writes one"))?;
        ensure!(
            text.contains("Function : "),
            "{shown} is not a listing that --save wrote: it has no function"
        );
        before = Some(text);
    }
    let tool = CUOBJDUMP.find().map_err(NoData)?;
    let (mut lines, mut loops) = (Vec::new(), Vec::new());
    for picked in picked {
        let stage = loaded(&ladder.stages, &picked.stage.id);
        let listing = listing(stage, &tool).map_err(NoData)?;
        if let Some(path) = &args.save {
            write_atomically(path, listing.as_bytes())?;
        }
        for variant in picked.variants {
            let kernels = variant.kernels.iter();
            for kernel in kernels.filter(|kernel| args.instances.takes(kernel)) {
                let archs = || kernel.built.iter().map(|built| built.ptxas.arch.as_str());
                let Some(arch) = args.arch.as_deref().or(archs().next_back()) else {
                    continue;
                };
                let of = |text: &str| {
                    functions(text, arch)
                        .into_iter()
                        .find(|one| one.symbol == kernel.facts.symbol)
                };
                let Some(now) = of(&listing) else {
                    let built = archs().collect::<Vec<_>>().join(", ");
                    bail!(
                        "{} has no code for {arch}; it was built for {built}",
                        picked.stage.id
                    );
                };
                let name = format!(
                    "{} {} d{} {arch}",
                    variant.name, kernel.facts.dtype, kernel.facts.head_dim
                );
                match before.as_deref().map(of) {
                    None => {
                        lines.push(format!("{name}: {}", words(&now)));
                        loops.extend(args.main_loop.then(|| format!("{name}\n{}", shown(&now))));
                    }
                    Some(None) => lines.push(format!(
                        "{name}: not in the listing before; {}",
                        words(&now)
                    )),
                    Some(Some(then)) => {
                        lines.push(format!("{name}: {}", moved(&then, &now)));
                        loops.extend(differ(&then, &now).map(|text| format!("{name}\n{text}")));
                    }
                }
            }
        }
    }
    ensure!(!lines.is_empty(), args.instances.absent());
    let document = Document::of(vec![Block::bullets(lines)]);
    let text = [vec![terminal(&document, WIDTH)], loops].concat();
    Ok(Answer::pass(text.join("\n")))
}

/// Adds to `builds` what their machine code consists of, for a record; the error is why that is not known.
pub fn read<'a>(
    stages: &[LoadedStage],
    builds: impl IntoIterator<Item = &'a mut StageBuild>,
) -> Result<Option<Tool>, String> {
    let builds: Vec<&mut StageBuild> = builds.into_iter().collect();
    if builds.is_empty() {
        return Ok(None);
    }
    let tool = CUOBJDUMP.find()?;
    builds.into_par_iter().try_for_each(|build| {
        let mut kernels = build.variants.iter().flat_map(|variant| &variant.kernels);
        if kernels.any(|kernel| !kernel.built.is_empty()) {
            let listing = listing(loaded(stages, &build.id), &tool)?;
            machine_code::complete(build, &listing);
        }
        Ok::<(), String>(())
    })?;
    Ok(Some(tool))
}

/// What cuobjdump prints of the code that this program has of a stage.
pub fn listing(stage: &LoadedStage, tool: &Tool) -> Result<String, String> {
    let id = stage.info().id;
    let Some(fatbin) = stage.attention.artifacts().fatbin else {
        return Err(format!(
            "{id} was built without GPU code; install nvcc (scripts/cuda-toolkit) and build again"
        ));
    };
    let written = Scratch::new(id).and_then(|folder| Ok((folder.write("fatbin", fatbin)?, folder)));
    let (file, _folder) = written.map_err(|error| format!("{error:#}"))?;
    listing_of(tool, &file, id)
}

/// What cuobjdump prints of the code of `id` in `file`.
pub fn listing_of(tool: &Tool, file: &Path, id: &str) -> Result<String, String> {
    // It starts nvdisasm, which lies beside it.
    let folders = tool.path.parent().map(PathBuf::from).into_iter();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap_or(path);
    let output = Command::new(&tool.path)
        .arg("-sass")
        .arg(file)
        .env("PATH", path)
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", tool.path.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("no message");
        return Err(format!(
            "{} cannot read the code of {id}: {said}",
            tool.path.display()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is counted of the main loop says so in its name, which a list says once.
const IN_LOOP: &str = " in the main loop";

/// `29,808 bytes of machine code; in the main loop 190 instructions, 8 HGMMA, …`, without what does not occur.
fn words(function: &Function) -> String {
    let figures = function
        .figures()
        .into_iter()
        .filter(|(_, value)| *value != 0.0);
    let word = |(metric, value): (Metric, f64)| format!("{} {metric}", metric.show(value));
    let (of_loop, of_all): (Vec<String>, Vec<String>) =
        figures.map(word).partition(|word| word.ends_with(IN_LOOP));
    let mut words = joined(of_all, "; ");
    if !of_loop.is_empty() {
        let of_loop = of_loop.iter().map(|word| word.trim_end_matches(IN_LOOP));
        words += &format!("; in the main loop {}", joined(of_loop, ", "));
    }
    words
}

/// `HGMMA in the main loop as before (8); LDS in the main loop 0 → 14`
fn moved(then: &Function, now: &Function) -> String {
    let pairs = then.figures().into_iter().zip(now.figures());
    let pairs = pairs.filter(|((_, was), (_, is))| (*was, *is) != (0.0, 0.0));
    let word = |((metric, was), (_, is)): ((Metric, f64), (Metric, f64))| match was == is {
        true => format!("{metric} as before ({})", metric.show(is)),
        false => format!("{metric} {} → {}", metric.show(was), metric.show(is)),
    };
    joined(pairs.map(word), "; ")
}

/// The main loop, an instruction a line.
fn shown(function: &Function) -> String {
    function
        .main_loop()
        .iter()
        .map(|one| format!("  {:5x}  {}\n", one.address, one.text))
        .collect()
}

/// Both main loops as one text with the lines that went and came; nothing where the same instructions stand in the same order,
/// whatever their registers.
fn differ(then: &Function, now: &Function) -> Option<String> {
    let [before, after] = [then, now].map(Function::main_loop);
    let [old, new] =
        [&before, &after].map(|of| of.iter().map(|one| &*one.name).collect::<Vec<_>>());
    if old == new {
        return None;
    }
    let diff = TextDiff::from_slices(&old, &new);
    let line = |change: similar::Change<&str>| {
        let text =
            |of: &[&Instruction], at: Option<usize>| at.map_or("", |at| &of[at].text).to_string();
        let text = match change.new_index() {
            None => text(&before, change.old_index()),
            at => text(&after, at),
        };
        format!("{} {text}\n", change.tag())
    };
    Some(diff.iter_all_changes().map(line).collect())
}

#[cfg(test)]
mod tests;
