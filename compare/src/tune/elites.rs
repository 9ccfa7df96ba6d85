//! Rankings from a record, and the file that keeps their best: pure but for reading it.

use crate::cli::RunArgs;
use crate::comparison::{is_green, summary_of, withheld};
use crate::plan::{Plan, PlannedTiming};
use common::check::Outcome;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::record::store::{StoreError, read_optional};
use common::record::{Gpu, KernelBuild, Record, SCHEMA, StageBuild, Timing, TimingScope};
use common::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// Variants that are kept of a stage on a problem.
pub const KEPT: usize = 3;

/// `tune/<gpu>.json`: the best variants of the stages on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elites {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `NVIDIA H200`.
    pub gpu: String,
    /// One per stage and problem, sorted.
    pub entries: Vec<Entry>,
}

/// The best variants of a stage on a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The stage.
    pub stage: String,
    /// The stage's identity when it was tuned. The entry holds for no other.
    pub identity: String,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// When it was tuned, UTC.
    pub tuned: String,
    /// Green variants that were timed.
    pub timed: usize,
    /// The fastest of them, at most [`KEPT`], fastest first.
    pub best: Vec<Ranked>,
}

/// A green variant and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The variant.
    pub variant: String,
    /// Median of device time, in microseconds.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// Hash of the machine code that ran, which no other variant has; absent where the driver translated PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass_sha256: Option<String>,
}

/// All variants of a stage on a problem, fastest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The stage.
    pub stage: String,
    /// Its identity.
    pub identity: String,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// What is computed.
    pub problem: Problem,
    /// Green ones.
    pub ranked: Vec<Ranked>,
    /// The others.
    pub refused: Vec<Refused>,
}

/// A variant without a place in a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The variant.
    pub variant: String,
    /// Why.
    pub reason: String,
    /// Whether a gate failed, and not only the problem does not fit.
    pub is_wrong: bool,
    /// Whether it could have had a place: without it a ranking is not of all variants.
    pub was_tried: bool,
}

/// What a file says of a stage on a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Known<'a> {
    /// These are the best.
    Fresh(&'a [Ranked]),
    /// They were, of another version of the kernel.
    Stale,
    /// Nothing.
    Absent,
}

impl Elites {
    /// A file of `gpu` without entries.
    pub fn none(gpu: &str) -> Self {
        Self { schema: SCHEMA, gpu: gpu.to_string(), entries: vec![] }
    }

    /// The file at `path`, if there is one.
    pub fn read(path: &std::path::Path) -> Result<Option<Self>, StoreError> {
        read_optional(path)
    }

    /// What is known of `stage`, as it is built now, on a problem.
    pub fn of(&self, stage: &StageBuild, problem: &Problem) -> Known<'_> {
        match self.entries.iter().find(|entry| entry.is_of(&stage.id, problem)) {
            None => Known::Absent,
            Some(entry) if entry.identity != stage.identity => Known::Stale,
            Some(entry) => Known::Fresh(&entry.best),
        }
    }

    /// Whether `variant` of `stage`, as it is built now, is among the best on any problem; `None` where nothing is known.
    fn is_kept_anywhere(&self, stage: &StageBuild, variant: &str) -> Option<bool> {
        let mut entries =
            self.entries.iter().filter(|entry| entry.stage == stage.id && entry.identity == stage.identity).peekable();
        entries.peek()?;
        Some(entries.any(|entry| entry.best.iter().any(|ranked| ranked.variant == variant)))
    }

    /// Replaces what is known of the stages and problems of `rankings`, and keeps the rest. Where no variant is green
    /// any more, nothing is known.
    pub fn merge(&mut self, rankings: &[Ranking], tuned: &str) {
        for ranking in rankings {
            let Ranking { stage, identity, shape_name, problem, ranked, .. } = ranking;
            self.entries.retain(|entry| !entry.is_of(stage, problem));
            if ranked.is_empty() {
                continue;
            }
            self.entries.push(Entry {
                stage: stage.clone(),
                identity: identity.clone(),
                shape_name: shape_name.clone(),
                shape: problem.shape,
                dtype: problem.dtype,
                mask: problem.mask,
                tuned: tuned.to_string(),
                timed: ranked.len(),
                best: ranked.iter().take(KEPT).cloned().collect(),
            });
        }
        let place =
            |entry: &Entry| (entry.stage.clone(), entry.shape_name.clone(), entry.dtype.name(), entry.mask.name());
        self.entries.sort_by_key(place);
    }
}

impl Ranking {
    /// Whether every variant of the stage was timed, or cannot be.
    pub fn is_whole(&self) -> bool {
        self.refused.iter().all(|refused| refused.was_tried)
    }
}

impl Entry {
    fn is_of(&self, stage: &str, problem: &Problem) -> bool {
        (self.stage.as_str(), self.shape, self.dtype, self.mask) == (stage, problem.shape, problem.dtype, problem.mask)
    }
}

/// Every variant of a stage on each problem on which `record` has a time of one of them.
pub fn of_record(record: &Record) -> Vec<PlannedTiming> {
    let mut planned: Vec<PlannedTiming> = Vec::new();
    for timed in record.performance.iter().flat_map(|performance| &performance.timings) {
        let Some(build) = record.meta.stages.iter().find(|build| build.id == timed.stage) else { continue };
        let Ok(problem) = Problem::new(timed.shape, timed.dtype, timed.mask) else { continue };
        if planned.iter().any(|known| (&known.stage, &known.problem) == (&timed.stage, &problem)) {
            continue;
        }
        planned.extend(build.variants.iter().map(|variant| PlannedTiming {
            stage: timed.stage.clone(),
            variant: variant.name.clone(),
            shape_name: timed.shape_name.clone(),
            problem,
        }));
    }
    planned
}

/// Ranks what was set out to be timed by what `record` says of it.
pub fn rank(planned: &[PlannedTiming], record: &Record) -> Vec<Ranking> {
    let mut rankings: Vec<Ranking> = Vec::new();
    for timing in planned {
        let Some(build) = record.meta.stages.iter().find(|build| build.id == timing.stage) else { continue };
        let same = |ranking: &Ranking| (&ranking.stage, &ranking.problem) == (&timing.stage, &timing.problem);
        let index = rankings.iter().position(same).unwrap_or_else(|| {
            rankings.push(Ranking {
                stage: timing.stage.clone(),
                identity: build.identity.clone(),
                shape_name: timing.shape_name.clone(),
                problem: timing.problem,
                ranked: vec![],
                refused: vec![],
            });
            rankings.len() - 1
        });
        match place(build, timing, record) {
            Ok(ranked) => rankings[index].ranked.push(ranked),
            Err(refused) => rankings[index].refused.push(refused),
        }
    }
    for ranking in &mut rankings {
        ranking.ranked.sort_by(|a, b| a.p50_us.total_cmp(&b.p50_us).then_with(|| a.variant.cmp(&b.variant)));
    }
    rankings
}

/// The figures of an arm, or why it has none.
fn place(build: &StageBuild, timing: &PlannedTiming, record: &Record) -> Result<Ranked, Refused> {
    let refused =
        |reason: String, is_wrong: bool| Refused { variant: timing.variant.clone(), reason, is_wrong, was_tried: true };
    let problem = &timing.problem;
    let kernels = build.variant(&timing.variant).into_iter().flat_map(|variant| &variant.kernels);
    let kernel = kernels
        .clone()
        .find(|kernel| (kernel.facts.dtype, kernel.facts.head_dim) == (problem.dtype, problem.shape.head_dim));
    let over_cap = kernel.into_iter().flat_map(|kernel| &kernel.built).find(|b| b.result.verdict == Verdict::Fail);
    if let Some(built) = over_cap {
        return Err(refused(format!("R1: {}", built.result.reason), true));
    }
    let summary = summary_of(record, &timing.stage, &timing.variant);
    if let Some(summary) = summary.filter(|summary| !is_green(summary)) {
        let failed = summary.gates.iter().filter(|gate| gate.result.verdict == Verdict::Fail);
        let failed: Vec<String> = failed.map(|gate| format!("{}: {}", gate.result.gate, gate.result.reason)).collect();
        let is_wrong = !failed.is_empty();
        return Err(refused(if is_wrong { failed.join("; ") } else { "not green on C1-C6".into() }, is_wrong));
    }
    let timings = record.performance.iter().flat_map(|performance| &performance.timings);
    let is_it = |found: &&Timing| {
        (&found.stage, &found.variant, &found.shape, found.dtype, found.mask)
            == (&timing.stage, &timing.variant, &problem.shape, problem.dtype, problem.mask)
    };
    let Some(timed) = timings.rev().find(is_it) else {
        let unsupported = unsupported(timing, record);
        let was_tried = unsupported.is_some();
        let reason = unsupported.unwrap_or_else(|| "it was not timed".into());
        return Err(Refused { was_tried, ..refused(reason, false) });
    };
    if let Some(reason) = withheld(record, timed) {
        return Err(refused(reason, true));
    }
    let device = &timed.measurement.device;
    Ok(Ranked {
        variant: timing.variant.clone(),
        p50_us: device.p50,
        p90_us: device.p90,
        sass_sha256: kernel.and_then(|kernel| machine_code(kernel, &record.meta.machine.gpu)),
    })
}

/// Why the preset does not take the problem, if that is so.
fn unsupported(timing: &PlannedTiming, record: &Record) -> Option<String> {
    record.correctness.cases.iter().find_map(|case| {
        let key = (&case.key.stage, &case.key.variant, &case.key.shape, case.key.dtype, case.key.mask);
        let problem = &timing.problem;
        let is_it = key == (&timing.stage, &timing.variant, &problem.shape, problem.dtype, problem.mask);
        match &case.outcome {
            Outcome::Unsupported { reason } if is_it => Some(reason.clone()),
            _ => None,
        }
    })
}

/// The hash of the machine code that `gpu` runs.
fn machine_code(kernel: &KernelBuild, gpu: &Gpu) -> Option<String> {
    let built = kernel.built.iter().find(|built| gpu.runs(&built.ptxas.arch))?;
    Some(built.ptxas.sass_sha256.clone())
}

/// Takes out of `plan` what need not be timed: beside the problems of the claims, variants that `elites`, read from `file`,
/// does not keep for the problem, or, where it does not know the problem, for any. What it knows of another version of
/// the kernel stays, as does what `args` name. Says so in [`Plan::timing_scopes`].
pub fn keep_elites(plan: &mut Plan, args: &RunArgs, stages: &[StageBuild], elites: &Elites, file: &str) {
    if !args.shapes.is_empty() || !args.variants.is_empty() {
        return;
    }
    for stage in stages {
        let of = plan.timings.iter().filter(|timing| timing.stage == stage.id).count();
        let mut is_stale = false;
        plan.timings.retain(|timing| {
            if timing.stage != stage.id || timing.problem.has_claims() {
                return true; // claims are judged among all
            }
            match elites.of(stage, &timing.problem) {
                Known::Fresh(best) => best.iter().any(|ranked| ranked.variant == timing.variant),
                Known::Absent => elites.is_kept_anywhere(stage, &timing.variant).unwrap_or(true),
                Known::Stale => {
                    is_stale = true;
                    true
                }
            }
        });
        let left_out = of - plan.timings.iter().filter(|timing| timing.stage == stage.id).count();
        let why = match (left_out, is_stale) {
            (0, false) => continue,
            (_, false) => format!("beside the problems of the claims, only the best variants in {file} were timed"),
            (_, true) => format!(
                "entries of {file} are STALE, the kernel has changed since: all variants were timed on their problems; run \
                 `compare tune --stages {}`",
                stage.id
            ),
        };
        plan.timing_scopes.push(TimingScope { stage: stage.id.clone(), left_out, of, why });
    }
}
