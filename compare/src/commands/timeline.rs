//! `compare timeline`: what each warp of one block does when, on a GPU in clocks, in the emulator in
//! order alone.

use crate::answer::{Answer, NoData};
use crate::case::{Case, case};
use crate::order::Launch;
use crate::progress::say;
use anyhow::{Context, bail};
use clap::Args;
use common::check::StagedInputs;
use common::device::cuda::{CudaDevice, Noting};
use common::device::emulated;
use common::inputs::Inputs;
use common::timeline::Sources;
use common::timeline::notes::{self, NotesError};
use common::timing::Plan;
use measure::instrument::noting::{NotingCode, NotingError};
use measure::limits;
use measure::select::{Chosen, SelectError};
use pages::timeline::{Drawn, Times, page, picture, trace};
use results::builds::loaded;
use results::judge::verdict::Exit;
use results::table::StageMeta;
use results::workspace;
use stages::Backend;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
On a GPU the kernel is compiled once more, with headers that note the clock before and after each \
copy, product, wait, exponential and
store of one block; nvcc does it, or code that was compiled before is in --code. The kernel must \
then compute the same bits, and what
the notes cost is printed. Without a GPU the emulator says in what order things happen, and not how \
long they take.

Written are one picture of all stages below each other (SVG), and a file for each of them that \
https://ui.perfetto.dev opens.

Examples:
  compare timeline --stages 8                   the default variant on the mission problem
  compare timeline --stages 7,8,11,13 --problem '1x8x4096x128 f16 full normal:0'
                                                below each other, on one time axis
  compare timeline --stages 3,4 --backend emulated --problem '1x1x128x64 f16 full normal:0'
                                                order alone

Exit codes:
  0  drawn
  1  a kernel that takes notes computes other bits, or fails
  2  wrong usage
  3  not measured: there is no nvcc to compile a kernel with notes";

/// The folder of pictures and of compiled code, in the workspace.
const FOLDER: &str = "target/timeline";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TimelineArgs {
    /// Stages, by id or number
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..", required = true)]
    pub stages: Vec<String>,
    /// Variants by name [default: each stage's]
    #[arg(long, value_delimiter = ',', value_name = "VARIANT,..")]
    pub variants: Vec<String>,
    /// The case, as reports print it: SHAPE DTYPE MASK FAMILY:SEED [scale=S]
    #[arg(long, value_name = "CASE", value_parser = case, default_value = "mission f16 full normal:0")]
    pub problem: Case,
    /// The block, counted in x, then y, then z
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub block: u32,
    /// Where the kernels run
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
    /// The folder of kernels that were compiled with notes [default: target/timeline]
    #[arg(long, value_name = "FOLDER")]
    pub code: Option<PathBuf>,
    /// The folder that pictures are written to [default: target/timeline]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// Draws the timelines of one block of each stage.
pub fn timeline(args: &TimelineArgs) -> anyhow::Result<Answer> {
    let ladder = args.backend.open()?;
    let builds = ladder.builds()?;
    limits::check_problems([&args.problem.problem])?;
    let inputs = StagedInputs::new(&generate(&args.problem), Some(args.problem.family));
    let staged = inputs.of_launch(1); // packed, as is timed
    let folder = folder(args)?;
    let mut drawn = Vec::new();
    for subject in subjects(args, &builds)? {
        let stage = loaded(&ladder.stages, &subject.stage);
        let prepared = stage.prepare(&subject.variant, &args.problem.problem)?;
        say(&format!("{}/{}", subject.stage, subject.variant));
        let launch = Launch {
            stage,
            prepared: &prepared,
            staged,
            block: args.block,
        };
        let timeline = match &ladder.gpu {
            Ok(device) => GpuLaunch {
                launch,
                device,
                code: args.code.clone().unwrap_or_else(folder_of_code),
            }
            .timeline(),
            Err(_) => emulated(&launch),
        };
        match timeline {
            Ok(one) => drawn.push(one),
            Err(error) if is_failure(&error) => {
                return Ok(Answer::new(Exit::Fail, format!("FAIL: {error:#}")));
            }
            Err(error) => return Err(error),
        }
    }
    let files = write(&folder, &drawn)?;
    Ok(Answer::page(Exit::Pass, &page(&drawn)).noting(files))
}

/// Returns whether a kernel has not done what it must, and not this machine or its user.
fn is_failure(error: &anyhow::Error) -> bool {
    error.downcast_ref::<OtherBits>().is_some() || error.downcast_ref::<NotesError>().is_some()
}

fn generate(case: &Case) -> Inputs {
    Inputs::generate(&case.problem, case.family, case.seed)
}

/// A variant that is drawn.
struct Subject {
    stage: String,
    variant: String,
}

/// Returns the variants that were asked for, or each stage's own.
fn subjects(args: &TimelineArgs, builds: &[StageMeta]) -> Result<Vec<Subject>, SelectError> {
    let chosen = Chosen {
        stages: args.stages.clone(),
        variants: args.variants.clone(),
    };
    let mut subjects = Vec::new();
    for (stage, variant) in chosen.pick(builds)? {
        let is_drawn = if args.variants.is_empty() {
            variant.name == stage.default_variant
        } else {
            chosen.takes_by_name(&variant.name)
        };
        if is_drawn {
            subjects.push(Subject {
                stage: stage.id.clone(),
                variant: variant.name.clone(),
            });
        }
    }
    Ok(subjects)
}

/// Returns the folder of code that takes notes, if none is named.
fn folder_of_code() -> PathBuf {
    workspace::find().unwrap_or_default().join(FOLDER)
}

/// Returns the folder of pictures: the named one, or that of the workspace.
fn folder(args: &TimelineArgs) -> anyhow::Result<PathBuf> {
    match &args.out {
        Some(folder) => Ok(folder.clone()),
        None => Ok(workspace::require("give --out DIR")?.join(FOLDER)),
    }
}

/// Returns the order of what a block does, without a GPU.
fn emulated(launch: &Launch<'_>) -> anyhow::Result<Drawn> {
    check_block(launch.block, emulated::blocks(launch.prepared))?;
    launch.in_order()
}

fn check_block(block: u32, [x, y, z]: [u32; 3]) -> Result<(), SelectError> {
    let count = x * y * z;
    if block < count {
        return Ok(());
    }
    Err(SelectError(format!(
        "--block {block}: the grid has {x} x {y} x {z} blocks; give 0 to {}",
        count.saturating_sub(1)
    )))
}

/// A launch on a GPU, by code that takes notes.
struct GpuLaunch<'a> {
    launch: Launch<'a>,
    device: &'a CudaDevice,
    /// The folder of that code.
    code: PathBuf,
}

impl GpuLaunch<'_> {
    /// Compares the kernel's output with and without notes, times both, and reads the notes.
    fn timeline(&self) -> anyhow::Result<Drawn> {
        let Self { launch, device, .. } = self;
        let Launch {
            stage,
            prepared,
            staged,
            block,
        } = *launch;
        check_block(block, prepared.blocks(device.info().sms))?;
        let noting = device.noting(stage, prepared, staged, &self.code()?, block)?;
        let plain = device.execute(stage, prepared, staged)?;
        let times = self.times(&noting)?;
        let mhz = device.conditions().sm_mhz.map(f64::from);
        noting.clear()?;
        if noting.execute(prepared, staged)? != plain {
            bail!(OtherBits {
                stage: stage.info().id,
                variant: prepared.kernel.variant.clone(),
            });
        }
        let warps = prepared.kernel.threads.div_ceil(32) as usize;
        let sources = Sources(stage.attention.artifacts().sources);
        let timeline = notes::read(&noting.notes()?, warps, sources, mhz)
            .with_context(|| format!("{}/{}", stage.info().id, prepared.kernel.variant))?;
        Ok(launch.drawn(timeline, Some(times)))
    }

    /// Returns the machine code that takes notes.
    fn code(&self) -> anyhow::Result<Vec<u8>> {
        let Launch {
            stage, prepared, ..
        } = self.launch;
        let limits = self.device.info().limits();
        match NotingCode::new(stage, &prepared.kernel.symbol, limits).load(&self.code) {
            Err(error @ NotingError::NoCompiler { .. }) => bail!(NoData(error.to_string())),
            loaded => Ok(loaded?),
        }
    }

    /// Times the kernel without and with notes, in turns.
    fn times(&self, noting: &Noting<'_>) -> anyhow::Result<Times> {
        let Launch {
            stage,
            prepared,
            staged,
            ..
        } = self.launch;
        let pool = self.device.pool(vec![(**staged).clone()], false)?;
        let mut plain = self.device.arm(stage, prepared, &pool)?;
        let mut with_notes = noting.arm(prepared, &pool)?;
        let plan = Plan {
            samples: 100,
            budget: Duration::from_secs(3),
            ..Plan::default()
        };
        let pair = self
            .device
            .measure_pair(&mut plain, &mut with_notes, &plan)?;
        Ok(Times {
            plain_us: pair.comparison.base.p50,
            noting_us: pair.comparison.new.p50,
        })
    }
}

/// A kernel that takes notes and is not the kernel.
#[derive(Debug, thiserror::Error)]
#[error(
    "{stage}/{variant} computes other bits when it takes notes: nothing is drawn, since that is \
     another kernel"
)]
struct OtherBits {
    stage: &'static str,
    variant: String,
}

/// Writes the picture of all, and each one's trace. Returns lines that name them.
fn write(folder: &Path, drawn: &[Drawn]) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut lines = Vec::new();
    let picture_path = folder.join(format!("timeline-{}.svg", name_of_all(drawn)));
    write_file(&picture_path, &picture(drawn), &mut lines)?;
    for one in drawn {
        let path = folder.join(format!("timeline-{}.json", name(one, drawn)));
        write_file(&path, &serde_json::to_string(&trace(one))?, &mut lines)?;
    }
    Ok(lines)
}

fn write_file(path: &Path, text: &str, lines: &mut Vec<String>) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    lines.push(format!("wrote {}", path.display()));
    Ok(())
}

/// Returns the stage's id, with the variant where several of one stage are drawn.
fn name(one: &Drawn, drawn: &[Drawn]) -> String {
    let of_stage = drawn.iter().filter(|other| other.stage == one.stage);
    if of_stage.count() > 1 {
        format!("{}-{}", one.stage, one.variant)
    } else {
        one.stage.clone()
    }
}

/// Returns the id of the one stage, or the numbers of several: `stages-7-8`.
fn name_of_all(drawn: &[Drawn]) -> String {
    if let [one] = drawn {
        return one.stage.clone();
    }
    let mut numbers: Vec<&str> = Vec::new();
    for one in drawn {
        let id = one.stage.strip_prefix("stage").unwrap_or(&one.stage);
        let number = id.split_once('-').map_or(id, |(number, _)| number);
        if numbers.last() != Some(&number) {
            numbers.push(number);
        }
    }
    format!("stages-{}", numbers.join("-"))
}
