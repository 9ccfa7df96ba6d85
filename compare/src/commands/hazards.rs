//! `compare hazards`: the emulator's judge on a kernel in PTX, whoever wrote it.

mod annotations;
mod launch;
mod memory;
#[cfg(test)]
mod tests;

use crate::answer::Answer;
use crate::progress::{Progress, say};
use annotations::annotations;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use launch::{Expected, LaunchFile};
use measure::interrupt::interrupted;
use memory::{Limit, Prepared};
use ptx::case::{Case, CaseError, Failure, Finding, Verdict};
use ptx::explore::Exploration;
use ptx::memory::Bytes;
use ptx::{Hazard, Module, Program};
use results::judge::verdict::Exit;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const EXAMPLES: &str = "\
Runs an entry of a PTX module in the emulator, without a GPU, and judges every access by \
happens-before: races, missing waits and
fences, slots that are reused too early, deadlocks, reads of unset memory and out of bounds, and \
outputs that depend on the schedule.
Compile with `nvcc -ptx -lineinfo -arch=sm_90a` to see source lines.

The launch file is TOML:
  grid = [1, 1, 1]            block = 64        cluster = 1     dynamic-shared-bytes = 1024
  [[buffer]]    name = 'to'   type = 'f32'      shape = [3, 32]   output = true
  [[buffer]]    name = 'k'    type = 'f16'      shape = [24, 64]  fill = 'random:1'
  [[buffer]]    name = 'v'    type = 'f16'      shape = [24, 64]  fill = 'file:v.bin'
  [[argument]]  buffer = 'to'
  [[argument]]  map = { buffer = 'k', extents = [64, 24], strides = [128], box = [64, 8], swizzle = \
128 }
  [[argument]]  map = { buffer = 'v', extents = [64, 8, 3], strides = [128, 1024], box = [64, 4, 2], \
swizzle = 128 }
  [[argument]]  type = 'i32'  value = 3
  [[argument]]  bytes = 24    parts = [{ at = 8, buffer = 'k', offset = 64 }, { at = 16, hex = '0c00' }]
  [[expect]]    buffer = 'to' values = [16.0]   tolerance = 0.01

Examples:
  compare hazards kernel.ptx --launch launch.toml
  compare hazards kernel.ptx --launch launch.toml --suppress
                                                removes each wait, fence, arrive and barrier once
  compare hazards kernel.ptx --launch launch.toml --annotations
                                                in a workflow of GitHub: shows each at its line
  compare hazards kernel.ptx --launch launch.toml --schedules 1000
                                                and runs more orders, for flags, tickets and phases
  compare hazards kernel.ptx --launch launch.toml --memory 4GiB
                                                takes no more memory than that

The memory that a judgement takes at most is said on standard error before it begins. One that takes more than the
machine has free, or than --memory, is refused.

Exit codes:
  0  nothing was found
  1  a hazard, a deadlock, an output that differs, or a removal that nothing notices
  2  wrong usage, a file that cannot be read, a launch that is refused, or too little memory
  130  interrupted: what --suppress or --schedules found until then is printed";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HazardsArgs {
    /// The module, as nvcc -ptx or another compiler writes it
    #[arg(value_name = "PTX")]
    pub kernel: PathBuf,
    /// The launch: grid, buffers and arguments
    #[arg(long, value_name = "FILE")]
    pub launch: PathBuf,
    /// Remove each synchronisation once, and name those that nothing notices
    #[arg(long)]
    pub suppress: bool,
    /// Run up to N more orders of warps: all in which a warp gives way once, then twice, and so on
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub schedules: usize,
    /// The most memory that the judgement may take [default: what this machine has free]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    /// Print one object of JSON
    #[arg(long)]
    pub json: bool,
    /// Print each finding as a GitHub annotation, too, at its source line
    #[arg(long, conflicts_with = "json")]
    pub annotations: bool,
}

/// The findings, as `--json` prints them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Report {
    entry: String,
    /// The host memory that the judgement takes at most.
    memory_bytes: u64,
    hazards: Vec<String>,
    more_hazards: usize,
    schedules: Vec<String>,
    /// The behaviour that the kernel counts on and the PTX ISA leaves open.
    assumptions: Vec<String>,
    unexpected: Vec<String>,
    /// The orders beyond the schedules that were run; `None` if none was asked for.
    explored: Option<String>,
    is_interrupted: bool,
    synchronisation: usize,
    /// The removals that nothing notices; `None` if none was asked for.
    unnoticed: Option<Vec<String>>,
    /// The number of removals that were not made; more than 0 after Ctrl-C.
    not_removed: usize,
}

/// The removals of a kernel's synchronisation, each made once.
#[derive(Default)]
struct Removals {
    unnoticed: Vec<String>,
    not_made: usize,
}

impl Report {
    fn exit(&self) -> Exit {
        if self.not_removed > 0 || self.is_interrupted {
            return Exit::Interrupted;
        }
        let lists = [&self.hazards, &self.schedules, &self.unexpected];
        let is_unnoticed = self.unnoticed.iter().any(|sites| !sites.is_empty());
        let is_red = lists.iter().any(|list| !list.is_empty());
        Exit::of(is_red || is_unnoticed, false)
    }

    /// Returns what was found beside hazards.
    fn without_a_line(&self) -> Vec<String> {
        let mut lines = self.schedules.clone();
        lines.extend(self.unexpected.iter().cloned());
        for site in self.unnoticed.iter().flatten() {
            lines.push(format!("nothing notices that {site} is removed"));
        }
        lines
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        lines.extend(self.hazards.iter().cloned());
        if self.more_hazards > 0 {
            lines.push(format!("{} more hazards", self.more_hazards));
        }
        lines.extend(self.without_a_line());
        if self.not_removed > 0 {
            lines.push(format!(
                "interrupted: {} of {} removals were not made",
                self.not_removed, self.synchronisation
            ));
        }
        if lines.is_empty() {
            lines.push(format!(
                "{}: no hazard, and the outputs of three schedules are equal; {} places \
                 synchronise",
                self.entry, self.synchronisation
            ));
        }
        lines.extend(self.explored.iter().cloned());
        lines.extend(self.assumptions.iter().cloned());
        lines.join("\n")
    }
}

/// Judges a kernel.
pub fn hazards(args: &HazardsArgs) -> anyhow::Result<Answer> {
    let (program, launch_file) = read(args)?;
    let launch = launch_file
        .case(program.cluster())
        .with_context(|| args.launch.display().to_string())?;
    let limit = Limit::of(args.memory);
    let mut prepared = Prepared::new(&program, launch, args.schedules, limit);
    loop {
        let Prepared { case, needs } = &prepared;
        needs
            .check()
            .with_context(|| args.launch.display().to_string())?;
        say(&needs.line());
        let expected = &launch_file.expected;
        let answer =
            needs.with_workers(|| judged(args, &program, expected, case, needs.bytes()))?;
        let is_short = answer
            .as_ref()
            .is_err_and(|error| matches!(error.downcast_ref(), Some(CaseError::Outgrown(_))));
        match prepared.with_more(&program) {
            Some(more) if is_short => prepared = more,
            _ => return answer.map_err(|error| named(error, &args.launch)),
        }
    }
}

/// Judges a kernel whose memory was found to do.
fn judged(
    args: &HazardsArgs,
    program: &Program,
    expected: &[Expected],
    case: &Case,
    memory: Bytes,
) -> anyhow::Result<Answer> {
    let verdict = case.judge(program, None)?;
    let mut report = Report {
        entry: program.name().to_owned(),
        memory_bytes: memory.0,
        hazards: verdict.hazards.iter().map(ToString::to_string).collect(),
        more_hazards: verdict.more_hazards,
        schedules: findings(&verdict),
        assumptions: assumptions(&verdict),
        unexpected: unexpected(program, expected, case, &verdict)?,
        explored: None,
        is_interrupted: false,
        synchronisation: verdict.sync_sites.len(),
        unnoticed: None,
        not_removed: 0,
    };
    let is_more_asked = args.suppress || args.schedules > 0;
    if !verdict.is_green() || !is_more_asked {
        return answer(args, &report, &verdict.hazards);
    }
    let interrupted = interrupted().context("cannot wait for signals")?;
    if args.schedules > 0 {
        let explored = explore(program, case, &verdict, args.schedules, &interrupted)?;
        report.schedules.extend(explored.findings.iter().map(line));
        report.explored = Some(explored.extent());
        report.is_interrupted = explored.is_interrupted;
    }
    if args.suppress {
        let removals = remove_each(program, case, &verdict, &interrupted)?;
        report.unnoticed = Some(removals.unnoticed);
        report.not_removed = removals.not_made;
    }
    answer(args, &report, &verdict.hazards)
}

fn answer(args: &HazardsArgs, report: &Report, hazards: &[Hazard]) -> anyhow::Result<Answer> {
    if args.json {
        return Answer::json(report.exit(), report);
    }
    let answer = Answer::new(report.exit(), report.text());
    if !args.annotations {
        return Ok(answer);
    }
    let root = std::env::current_dir().context("there is no current folder")?;
    let others = report.without_a_line();
    Ok(answer.noting(annotations(hazards, &others, &args.kernel, &root)))
}

/// Runs orders beyond the default schedules. It ends early when the flag is set.
fn explore(
    program: &Program,
    case: &Case,
    verdict: &Verdict,
    most: usize,
    interrupted: &AtomicBool,
) -> anyhow::Result<Exploration> {
    let mut progress = Progress::default();
    let mut goes_on = |run: usize| {
        progress.step("order", "of warps", run.min(most - 1), most);
        !interrupted.load(Ordering::Relaxed)
    };
    Ok(case.explore(program, &verdict.outputs, most, &mut goes_on)?)
}

fn read(args: &HazardsArgs) -> anyhow::Result<(Program, LaunchFile)> {
    let text = read_text(&args.kernel)?;
    let launch_text = read_text(&args.launch)?;
    let launch_file = LaunchFile::parse(&args.launch, &launch_text)?;
    let module = Module::parse(&args.kernel.display().to_string(), &text)?;
    let name = match (&launch_file.entry, module.entries()) {
        (Some(name), _) => name.clone(),
        (None, [only]) => only.name.clone(),
        (None, entries) => bail!(
            "{} has {} entries; name one by `entry` in {}",
            args.kernel.display(),
            entries.len(),
            args.launch.display()
        ),
    };
    Ok((module.entry(&name)?, launch_file))
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns an error that names the launch file, where the launch is what is refused.
fn named(error: anyhow::Error, path: &Path) -> anyhow::Error {
    let remedy = match error.downcast_ref() {
        Some(CaseError::Outgrown(_)) => {
            ": let its loops go round fewer times, or raise the limit by --memory"
        }
        Some(CaseError::NoMemory(_)) => ": let fewer blocks run at once by a lower --memory",
        Some(_) => "",
        None => return error,
    };
    anyhow!("{}: {error}{remedy}", path.display())
}

fn findings(verdict: &Verdict) -> Vec<String> {
    verdict.findings.iter().map(line).collect()
}

fn line(found: &Finding) -> String {
    format!("schedule {:?}: {}", found.schedule, words(&found.failure))
}

fn words(failure: &Failure) -> String {
    match failure {
        Failure::Stopped(fault) => fault.to_string(),
        Failure::Differs { buffer, byte } => {
            format!("`{buffer}` differs from the first schedule's at byte {byte}")
        }
    }
}

fn assumptions(verdict: &Verdict) -> Vec<String> {
    let cut_short = verdict.is_cut_short.then(|| {
        "the judge stopped where it might remember no more of a block's accesses: there may be \
         more hazards behind that"
            .to_owned()
    });
    let elections = verdict.election.iter().map(|failure| {
        format!(
            "the kernel counts on elect.sync to elect the lowest lane, which the PTX ISA leaves \
             open: if it elects the highest, {}",
            words(failure)
        )
    });
    cut_short.into_iter().chain(elections).collect()
}

/// Compares outputs with what the launch file expects. A line names the first element that differs,
/// and the place that stored it last.
fn unexpected(
    program: &Program,
    expected: &[Expected],
    case: &Case,
    verdict: &Verdict,
) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    let outputs = case.buffers.iter().filter(|buffer| buffer.is_output);
    for (buffer, bytes) in outputs.zip(&verdict.outputs) {
        for wanted in expected.iter().filter(|it| it.buffer == buffer.name) {
            let element = buffer.element;
            let Some(index) = wanted.first_difference(element, bytes) else {
                continue;
            };
            let byte = index * element.bytes();
            let found = element.number(&bytes[byte..byte + element.bytes()]);
            let stored = match case.last_store(program, &buffer.name, byte)? {
                Some(place) => format!("it was last stored at {place}"),
                None => "no thread has stored it".to_owned(),
            };
            lines.push(format!(
                "element {index} of `{}` is {found}, beyond {} of {}, which is expected: {stored}",
                buffer.name,
                wanted.tolerance,
                wanted.value(index)
            ));
        }
    }
    Ok(lines)
}

/// Removes each synchronisation once, and names those whose removal changes nothing. It ends early
/// when the flag is set.
fn remove_each(
    program: &Program,
    case: &Case,
    verdict: &Verdict,
    interrupted: &AtomicBool,
) -> anyhow::Result<Removals> {
    let mut removals = Removals::default();
    let mut progress = Progress::default();
    let total = verdict.sync_sites.len();
    for (index, site) in verdict.sync_sites.iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            removals.not_made = total - index;
            break;
        }
        let label = format!("{} at {}", site.operation, site.place);
        progress.step("removal", &label, index, total);
        let without = case.judge(program, Some(&site.place))?;
        if without.is_green() && without.outputs == verdict.outputs {
            removals.unnoticed.push(label);
        }
    }
    Ok(removals)
}
