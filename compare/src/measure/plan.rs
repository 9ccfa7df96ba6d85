//! What a run does: tier and flags in, a list of cases and timings out. Pure.

use crate::judge::claims::comparisons;
use crate::judge::draw;
use crate::judge::list::{distinct, grouped, joined};
use crate::measure::select::{self, Chosen, Picked, Problems, SelectError, family, or_all};
use crate::table::session::{KernelBuild, Relation, Selection, Tier, by_id, claims};
use crate::table::{CasePlace, Claim, ProblemPlace, StageMeta, Subject, VariantMeta};
use clap::Args;
use common::check::Source;
use common::device::BackendKind;
use common::inputs::Family;
use common::problem::{
    Dtype, Kind, Mask, NamedShape, Problem, Shape, claims_problem, edge_shapes, of_kind,
    parse_shape,
};
use common::suppression;
use std::collections::BTreeSet;
use std::str::FromStr;

/// What a run is asked for; the tier decides whatever the flags leave open.
#[derive(Clone, Debug, Default, Args)]
pub struct Request {
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub cases: CaseFlags,
    /// On a GPU, times all chosen variants on N random problems, at up to 4 seconds each, instead of the tier's problems, and judges how
    /// much longer than the fastest the library's choice takes; `accept` fits the choice to them
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = select::at_least_one::<usize>, conflicts_with_all = ["iters", "quick", "full"])]
    pub regret: Option<usize>,
    /// Draws other random problems
    #[arg(long, value_name = "SEED", requires = "regret", default_value_t = 1)]
    pub regret_seed: u64,
    /// A file's tensors instead of generated ones.
    #[arg(skip)]
    pub file: Option<FileProblem>,
}

/// What is checked of each variant or candidate, and how it is timed.
#[derive(Clone, Debug, Default, Args)]
pub struct CaseFlags {
    #[command(flatten)]
    pub problems: Problems,
    /// Input seeds. With --shapes, --seeds or --families every combination of them is checked instead of the tier's cases
    /// [defaults: small,mission; 0; normal]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SEED,..",
        allow_negative_numbers = true,
        value_parser = whole::<u64>
    )]
    pub seeds: Vec<u64>,
    /// Input families (`compare show`); see --seeds
    #[arg(long, value_delimiter = ',', value_name = "FAMILY,..", value_parser = family)]
    pub families: Vec<Family>,
    /// Timed samples on each problem; 0 checks without timing [default: 500 where claims are judged, 100 elsewhere; 20 of a candidate,
    /// each the mean over at least 20 ms]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<usize>)]
    pub iters: Option<usize>,
    /// Tier T0: a few small problems and extreme logits, of a stage only on its default variant. The default, tier T1, has every
    /// variant
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Tier T2: every input family and more seeds; on a GPU, where `accept` asks for it, every small shape and mask, too
    #[arg(long)]
    pub full: bool,
}

fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| "give a whole number, 0 or more".to_string())
}

impl Request {
    /// Whether shapes, seeds or families were given, which replace the tier's cases.
    fn has_problems(&self) -> bool {
        let cases = &self.cases;
        let is_tier =
            cases.problems.shapes.is_empty() && cases.seeds.is_empty() && cases.families.is_empty();
        !is_tier || self.regret.is_some()
    }

    fn selection(&self) -> Selection {
        let cases = &self.cases;
        Selection {
            stages: self.chosen.stages.clone(),
            variants: self.chosen.variants.clone(),
            shapes: cases.problems.shapes.iter().map(Shape::name).collect(),
            dtypes: cases.problems.dtypes.clone(),
            masks: cases.problems.masks.clone(),
            seeds: cases.seeds.clone(),
            families: cases.families.clone(),
            input: self.file.as_ref().map(|file| file.name.clone()),
            regret: self.regret,
        }
    }

    /// The tier that was asked for, else T1. What was selected on a GPU is accepted as T2 is.
    fn tier(&self, backend: BackendKind) -> Tier {
        match (self.cases.quick, self.cases.full) {
            _ if self.regret.is_some() => Tier::T0,
            (true, _) => Tier::T0,
            (_, true) => Tier::T2,
            _ if backend == BackendKind::Cuda && self.is_selection() => Tier::T2,
            _ => Tier::T1,
        }
    }

    /// Whether problems were given, by flags or a file, in place of a tier's.
    fn is_selection(&self) -> bool {
        self.has_problems() || self.file.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the emulator's plain build: results only.
    Plain,
    /// On both of the emulator's builds, each under all of [`common::tier0::SCHEDULES`]: results and hazards.
    Traced,
    /// The same, but traced under the first schedule only: the order of accesses hardly depends on the schedule, and a stage's
    /// default variant is traced under all of them.
    TracedOnce,
    Device,
    /// On the GPU and in the emulator's plain build, to be compared (gate B1).
    Both,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCase {
    pub subject: Subject,
    pub source: Source,
    pub problem: Problem,
    pub mode: Mode,
    /// Whether it comes after all times: T2's many cases would keep them waiting.
    pub is_late: bool,
}

impl PlannedCase {
    pub fn place(&self) -> CasePlace {
        CasePlace {
            problem: ProblemPlace::of(&self.problem),
            input: self.source.to_string(),
        }
    }
}

/// Cases that are checked, and what is timed right after them.
#[derive(Clone, Debug, PartialEq)]
pub struct Round<'a> {
    pub cases: Vec<&'a PlannedCase>,
    pub timings: Vec<(Problem, Subject)>,
}

/// In the order of the ladder.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub tier: Tier,
    /// Whether its problems were given, in place of a tier's.
    pub is_selection: bool,
    pub backend: BackendKind,
    pub scope: Selection,
    pub cases: Vec<PlannedCase>,
    /// What is timed if its cases are green; empty without a GPU.
    pub timings: Vec<(Problem, Subject)>,
    /// On which all variants with cases are timed quickly; empty without a GPU.
    pub draws: Vec<Problem>,
    /// Variants whose counters the emulator records on the claims' problem of an element type: those that have it among their cases,
    /// and those that evidence claims on it compare them with.
    pub counted: Vec<(Subject, Dtype)>,
}

impl Plan {
    pub fn has_stage(&self, id: &str) -> bool {
        self.cases.iter().any(|case| case.subject.stage() == id)
    }

    /// One where nothing is timed: problem by problem, so that inputs and references are made once. Else one for each stage; of given
    /// problems, since large ones take long to make, one for each stage on each problem, in the order of problems. Late cases are last.
    pub fn rounds(&self) -> Vec<Round<'_>> {
        if self.timings.is_empty() {
            return vec![Round {
                cases: self.cases.iter().collect(),
                timings: vec![],
            }];
        }
        let (late, cases): (Vec<_>, Vec<_>) = self.cases.iter().partition(|case| case.is_late);
        let place = |problem: &Problem| self.is_selection.then_some(*problem);
        let by_problem = grouped(cases.into_iter().map(|case| (place(&case.problem), case)));
        let by_stage = by_problem.into_iter().flat_map(|(problem, cases)| {
            let cases = cases.into_iter().map(|case| (case.subject.stage(), case));
            let stages = grouped(cases).into_iter();
            stages.map(move |(stage, cases)| (problem, stage, cases))
        });
        let round = |(round_problem, stage, cases)| {
            let is_of = |(problem, subject): &&(Problem, Subject)| {
                place(problem) == round_problem && subject.stage() == stage
            };
            let timings = self.timings.iter().filter(is_of).cloned().collect();
            Round { cases, timings }
        };
        let late = Round {
            cases: late,
            timings: vec![],
        };
        by_stage.map(round).chain([late]).collect()
    }
}

/// A problem of the ladder or of a selection.
fn problem(shape: Shape, dtype: Dtype, mask: Mask) -> Problem {
    Problem::new(shape, dtype, mask).expect("the ladder's shapes and selected ones are valid")
}

pub fn named(name: &str) -> Shape {
    parse_shape(name).expect("a shape of the tiers")
}

/// BF16 kernels differ from f16 kernels only in a type, so the tiers check less of them: in T2 on a GPU about half of f16's cases
/// (masks alternate from shape to shape, fewer seeds), else only default variants. Both masks run on these shapes, the only ones on
/// which a run times BF16.
const BF16_TIMED: [&str; 4] = ["mission", "long", "big", "big_wide"];
const BF16_SEEDS: u64 = 2;

/// Whether the tiers time this dtype on this shape.
fn is_timed(problem: &Problem) -> bool {
    problem.dtype != Dtype::Bf16 || BF16_TIMED.contains(&&*problem.shape.name())
}

/// Rows that see few keys, in more than one 16-row tile of a warp; in the causal one most rows see none. Four heads, so that the
/// zero-head family has a head without zeros.
const SHORT_ROWS: [(&str, Mask); 3] = [
    ("1x2:1x65:7x64", Mask::Causal),
    ("1x4x65:5x64", Mask::Full),
    ("1x1x65:3x128", Mask::Full),
];

/// Heads whose K and V together exceed what a stage may keep in L2, and not a multiple of the number that fits. It would take the
/// emulator minutes.
const MANY_KEYS: &str = "1x5:1x257:65536x64";

/// What stands for the claims' problem in T1, in the emulator: several heads and tiles, in a sixteenth of its time. Stages' default
/// variants have that problem itself, with their first element type.
const LIKE_CLAIMS: &str = "1x2x256x64";

/// Enough tiles for drift from tile to tile, or a counter that runs out, to show.
const DEEP: usize = 17;

/// Rows of the cases of [`Cases::rings`]: one ragged block is enough.
const ROWS_OF_RINGS: usize = 17;

/// The traced build runs problems of at most this many scores; larger ones would take minutes.
const TRACED_SCORES: u64 = 50_000;

/// The largest tensor, in elements, that the traced build runs: it watches 4 GiB of memory, guard bands included.
const TRACED_ELEMENTS: usize = 1 << 28;

/// The cases of one variant or candidate, collected for a tier or a selection.
struct Cases<'a> {
    request: &'a Request,
    tier: Tier,
    backend: BackendKind,
    subject: Subject,
    /// Whether it is the stage's default, or was asked for by name: it then also runs the cases that the other variants of its
    /// stage skip.
    is_default: bool,
    /// A candidate is none.
    variant: Option<(&'a StageMeta, &'a VariantMeta)>,
    planned: Vec<PlannedCase>,
    /// Whether cases that are added from now on come after all times.
    is_late: bool,
}

impl<'a> Cases<'a> {
    fn of(
        request: &'a Request,
        backend: BackendKind,
        subject: Subject,
        is_default: bool,
        variant: Option<(&'a StageMeta, &'a VariantMeta)>,
    ) -> Self {
        let mut cases = Self {
            request,
            tier: request.tier(backend),
            backend,
            subject,
            is_default,
            variant,
            planned: vec![],
            is_late: false,
        };
        match (&request.file, cases.tier) {
            (Some(file), _) => cases.file(file),
            _ if request.has_problems() => cases.selection(),
            (_, Tier::T0) if !is_default => {}
            (_, Tier::T0) => cases.tier0(),
            (_, Tier::T1) => cases.tier1(),
            (_, Tier::T2) => cases.tier2(),
        }
        cases
    }

    /// Adds a case unless it is not wanted or already there. `mode` is that of the emulator, where [`Mode::Both`] stands for what a
    /// GPU is to be compared on. Traced cases must be added first: they include everything that a plain run checks.
    fn add(&mut self, problem: Problem, source: Source, mode: Mode) {
        let is_equal = |case: &PlannedCase| case.problem == problem && case.source == source;
        if !self.is_wanted(&problem) || self.planned.iter().any(is_equal) {
            return;
        }
        let mode = match (self.backend, mode) {
            (BackendKind::Cuda, _) if self.variant.is_none() => Mode::Device,
            (BackendKind::Cuda, Mode::Plain) => Mode::Device,
            (BackendKind::Cuda, _) => Mode::Both,
            (_, Mode::Both) => Mode::Plain,
            _ if self.variant.is_none() => Mode::Plain,
            (_, Mode::Traced | Mode::TracedOnce) if !self.is_traced_whole(problem.dtype) => {
                match self.is_default {
                    true => Mode::TracedOnce,
                    false => Mode::Plain,
                }
            }
            (_, Mode::Traced) if !self.is_default => Mode::TracedOnce,
            (_, mode) => mode,
        };
        self.planned.push(PlannedCase {
            subject: self.subject.clone(),
            source,
            problem,
            mode,
            is_late: self.is_late,
        });
    }

    /// Whether it is the variant's first element type, or T1 makes no difference: with another, converting differs, and nothing that
    /// orders accesses. T2 and the tests of each stage trace all alike.
    fn is_traced_whole(&self, dtype: Dtype) -> bool {
        self.tier != Tier::T1 || self.request.is_selection() || self.is_first(dtype)
    }

    /// A candidate has none before others.
    fn is_first(&self, dtype: Dtype) -> bool {
        let takes = |variant: &VariantMeta| Dtype::ALL.into_iter().find(|of| variant.takes(*of));
        self.variant
            .is_none_or(|(_, variant)| takes(variant) == Some(dtype))
    }

    fn is_wanted(&self, problem: &Problem) -> bool {
        let is_due = |(stage, variant)| is_due(stage, variant, problem.dtype);
        self.request.cases.problems.include(problem) && self.variant.is_none_or(is_due)
    }

    fn seeded(&mut self, problem: Problem, family: Family, seed: u64, mode: Mode) {
        self.add(problem, Source::Seeded { family, seed }, mode);
    }

    /// Whether T0 and T1 check this dtype only on the stage's default variant, which this is not.
    fn leaves(&self, dtype: Dtype) -> bool {
        dtype == Dtype::Bf16 && !self.is_default
    }

    /// T2 on a GPU; in the emulator most of its problems would take hours.
    fn is_of_every_shape(&self) -> bool {
        (self.tier, self.backend) == (Tier::T2, BackendKind::Cuda)
    }

    /// T0: the cases that the tests of every stage run.
    fn tier0(&mut self) {
        for case in common::tier0::cases() {
            let mode = match case.schedules.len() {
                1 => Mode::TracedOnce,
                _ => Mode::Traced,
            };
            if self.is_of_every_shape() || !self.leaves(case.problem.dtype) {
                self.seeded(case.problem, case.family, 0, mode);
            }
        }
        let mode = match self.is_of_every_shape() {
            true => Mode::Both,
            false => Mode::Plain,
        };
        let untraced = common::tier0::extremes().into_iter();
        for case in untraced.chain(common::tier0::others()) {
            if !self.leaves(case.problem.dtype) {
                self.seeded(case.problem, case.family, 0, mode);
            }
        }
    }

    /// T1: T0, rings, and the claims' problem; where the emulator would take long for that, one that is like it.
    fn tier1(&mut self) {
        self.tier0();
        self.rings();
        for dtype in Dtype::ALL {
            if self.leaves(dtype) {
                continue;
            }
            let claims = claims_problem(dtype);
            self.seeded(
                problem(named(LIKE_CLAIMS), dtype, Mask::Full),
                Family::Normal,
                0,
                Mode::Plain,
            );
            // Gate C4 judges what takes only E4M3 there alone.
            let is_due = self.is_first(dtype) && (self.is_default || dtype == Dtype::E4m3);
            if is_due || self.backend == BackendKind::Cuda {
                self.seeded(claims, Family::Normal, 0, Mode::Plain);
            }
        }
    }

    /// What T2 adds to T1 on every backend: all families on `small`, those with extreme logits also on rows of 1 to 7 keys; the
    /// claims' problem with each dtype, three seeds of f16 on default variants.
    fn families(&mut self) {
        for dtype in Dtype::ALL {
            if self.leaves(dtype) {
                continue;
            }
            let small = problem(named("small"), dtype, Mask::Full);
            let short = problem(Shape::bhsd(1, 1, 7, 64), dtype, Mask::Causal);
            for family in Family::for_dtype(dtype) {
                let is_extreme = Family::EXTREME.contains(&family);
                for seed in 0..if is_extreme { 1 } else { 3 } {
                    self.seeded(small, family, seed, Mode::Plain);
                }
                if is_extreme {
                    self.seeded(short, family, 0, Mode::Plain);
                }
            }
            let is_first = self.is_default && dtype == Dtype::F16;
            for seed in 0..if is_first { 3 } else { 1 } {
                self.seeded(claims_problem(dtype), Family::Normal, seed, Mode::Plain);
            }
        }
    }

    /// For each instance of a variant, one block of rows over several of its own key tiles and one more key: rings are filled,
    /// drained and reused, and the last tile is ragged. One instance also runs with maxima that rise from tile to tile, and on a
    /// default variant over [`DEEP`] tiles. T1 traces that with rising maxima alone, and all of a default variant.
    fn rings(&mut self) {
        let Some((_, variant)) = self.variant else {
            return;
        };
        let claims = [Dtype::F16, Dtype::E4m3].map(|dtype| variant.claims_kernel(dtype));
        let one = claims.into_iter().flatten().next();
        let rings = (variant.kernels.iter())
            .map(|kernel| (kernel, suppression::TILES, Family::Normal))
            .chain(one.map(|kernel| (kernel, suppression::TILES, Family::Large)))
            .chain(one.map(|kernel| (kernel, DEEP, Family::Normal)));
        for (KernelBuild { facts, .. }, tiles, family) in rings {
            if !(self.leaves(facts.dtype) || tiles == DEEP && !self.is_default) {
                let rows = facts.block_m.min(ROWS_OF_RINGS);
                let (shape, mask) = suppression::ring(facts, rows, tiles);
                let problem = problem(shape, facts.dtype, mask);
                let is_plain =
                    self.tier == Tier::T1 && !self.is_default && family == Family::Normal;
                let mode = if is_plain {
                    Mode::Plain
                } else {
                    Mode::TracedOnce
                };
                self.seeded(problem, family, 0, mode);
            }
        }
    }

    /// T2: T1 and all families on small problems. On a GPU also T0's problems and short rows under every family, on both backends;
    /// every named shape under every family, five seeds on `small` and `mission`; every edge shape.
    fn tier2(&mut self) {
        self.tier1();
        if !self.is_of_every_shape() {
            return self.families();
        }
        self.is_late = true;
        let short = SHORT_ROWS
            .iter()
            .flat_map(|&(shape, mask)| Dtype::ALL.map(|dtype| problem(named(shape), dtype, mask)));
        let of_tier0 = common::tier0::cases().into_iter().map(|case| case.problem);
        // Only what the emulator computes in milliseconds.
        let of_tier0 = of_tier0.filter(|problem| problem.scores() <= TRACED_SCORES);
        for problem in of_tier0.chain(short) {
            for family in Family::for_dtype(problem.dtype) {
                self.seeded(problem, family, 0, Mode::Both);
            }
        }
        self.families();
        for dtype in [Dtype::F16, Dtype::E4m3] {
            let many_keys = problem(named(MANY_KEYS), dtype, Mask::Causal);
            self.seeded(many_keys, Family::Normal, 0, Mode::Plain);
        }
        for (dtype, mask) in Dtype::ALL
            .into_iter()
            .flat_map(|dtype| Mask::ALL.map(|mask| (dtype, mask)))
        {
            let is_bf16 = dtype == Dtype::Bf16;
            let has = |at: usize, name: &str| {
                let alternates = (mask == Mask::Full) == at.is_multiple_of(2);
                !is_bf16 || BF16_TIMED.contains(&name) || alternates
            };
            for (at, &NamedShape { name, shape, .. }) in of_kind(Kind::Small).enumerate() {
                if !has(at, name) {
                    continue;
                }
                let seeds = match (["small", "mission"].contains(&name), is_bf16) {
                    (true, true) => BF16_SEEDS,
                    (true, false) => 5,
                    (false, _) => 1,
                };
                for family in Family::for_dtype(dtype) {
                    for seed in 0..seeds {
                        self.seeded(problem(shape, dtype, mask), family, seed, Mode::Plain);
                    }
                }
            }
            for (at, shape) in edge_shapes().into_iter().enumerate() {
                if has(at, &shape.to_string()) {
                    self.seeded(problem(shape, dtype, mask), Family::Normal, 0, Mode::Plain);
                }
            }
        }
    }

    /// Every combination of what was given, with defaults for the rest.
    fn selection(&mut self) {
        let CaseFlags {
            problems,
            families,
            seeds,
            ..
        } = &self.request.cases;
        // Random problems follow: a case or two of each instance.
        let shapes = match self.request.regret {
            Some(_) => ["small", "1x8:2x113:203x128"],
            None => ["small", "mission"],
        };
        for problem in problems.or(&shapes, &Dtype::ALL, &Mask::ALL) {
            let taken = Family::for_dtype(problem.dtype);
            let families = or_all(families, &[Family::Normal]).iter();
            for &family in families.filter(|family| taken.contains(family)) {
                for &seed in or_all(seeds, &[0]) {
                    self.seeded(problem, family, seed, self.mode_for(&problem));
                }
            }
        }
    }

    /// A file does not say which mask its `out` was computed with; full is the usual one.
    fn file(&mut self, file: &FileProblem) {
        for &mask in or_all(&self.request.cases.problems.masks, &[Mask::Full]) {
            let problem = problem(file.shape, file.dtype, mask);
            let name = file.name.clone();
            self.add(problem, Source::File { name }, self.mode_for(&problem));
        }
    }

    /// A selected problem is traced unless that would take minutes.
    fn mode_for(&self, problem: &Problem) -> Mode {
        let extents = [problem.shape.q_extents(), problem.shape.kv_extents()];
        let is_watched = |of: &[usize; 4]| of.iter().product::<usize>() <= TRACED_ELEMENTS;
        let is_small = problem.scores() <= TRACED_SCORES && extents.iter().all(is_watched);
        match self.backend {
            BackendKind::Emulated if is_small => Mode::Traced,
            _ => Mode::Plain,
        }
    }

    /// The element types of which the claims' problem is among its cases, or is in its tier but too long for the emulator to compute
    /// whole: counting takes a few of its blocks.
    fn counted(&self) -> impl Iterator<Item = (Subject, Dtype)> {
        let is_whole = self.tier > Tier::T0 && !self.request.is_selection();
        let has = move |dtype: Dtype| {
            let claims = claims_problem(dtype);
            self.planned.iter().any(|case| case.problem == claims)
                || is_whole && self.is_wanted(&claims)
        };
        let counted = Dtype::ALL.into_iter().filter(move |&dtype| has(dtype));
        counted.map(move |dtype| (self.subject.clone(), dtype))
    }

    /// What is timed of it: the claims' problem, every named shape but the smallest in T2, and whatever was selected.
    fn timings(&self) -> Vec<Problem> {
        let request = self.request;
        if self.backend == BackendKind::Emulated
            || request.cases.iters == Some(0)
            || request.regret.is_some()
            || request.file.is_some()
        {
            return vec![];
        }
        let is_wanted = |problem: &Problem| {
            let is_named = is_small(problem) && problem.shape != named("small");
            let of_tier = problem.has_claims() || self.tier == Tier::T2 && is_named;
            request.has_problems() || of_tier && is_timed(problem)
        };
        distinct(
            self.planned
                .iter()
                .map(|case| case.problem)
                .filter(is_wanted),
        )
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FileProblem {
    pub name: String,
    pub shape: Shape,
    pub dtype: Dtype,
}

pub fn plan(
    all: &[StageMeta],
    request: &Request,
    backend: BackendKind,
) -> Result<Plan, SelectError> {
    let picked = request.chosen.of(all)?;
    let tier = request.tier(backend);
    let (mut cases, mut timings, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    for &(stage, variant) in &picked {
        let is_default =
            variant.name == stage.default_variant || request.chosen.takes_by_name(&variant.name);
        let subject = stage.subject(&variant.name);
        let of_variant = Some((stage, variant));
        let of_variant = Cases::of(request, backend, subject.clone(), is_default, of_variant);
        let mut timed = of_variant.timings();
        // Of the default, claims about other problems than the claims' own take six minutes on an H100.
        if !timed.is_empty() && tier == Tier::T2 && !request.has_problems() {
            let claimed = claimed(all, stage, variant, &request.cases.problems);
            timed.extend(claimed.into_iter().filter(|problem| !is_small(problem)));
        }
        timings.extend(timed.into_iter().map(|problem| (problem, subject.clone())));
        wanted.extend(of_variant.counted());
        cases.extend(of_variant.planned);
    }
    if cases.is_empty() {
        let dtypes = or_all(&request.cases.problems.dtypes, &Dtype::ALL);
        let has_dtype = |(stage, _): &Picked<'_>| dtypes.iter().any(|&of| stage.takes(of));
        if picked.iter().any(has_dtype) {
            return Err(nothing_left(&request.selection()));
        }
        let mut stages = select::stages(&request.chosen.stages, all)?;
        stages.retain(|stage| stage.variants.is_empty());
        if let Some((variant, why)) = stages.iter().flat_map(|stage| &stage.refused).next() {
            return Err(SelectError(format!(
                "no case is left to run: the device cannot run {variant}: {why}"
            )));
        }
        let names = joined(dtypes.iter().map(|dtype| dtype.name()), " or ");
        return Err(SelectError(format!(
            "no case is left to run: no chosen stage has {names}"
        )));
    }
    let draws = request.regret.filter(|_| backend == BackendKind::Cuda);
    Ok(Plan {
        tier,
        is_selection: request.is_selection(),
        backend,
        draws: draws.map_or(vec![], |count| draw::problems(request.regret_seed, count)),
        scope: request.selection(),
        counted: counted(all, wanted),
        cases,
        timings,
    })
}

fn nothing_left(selection: &Selection) -> SelectError {
    SelectError(format!(
        "no case is left to run: {selection} exclude each other"
    ))
}

/// The cases and timings of a candidate: those of a default variant, all called in one way, without those that look at its
/// instances.
pub fn candidate(
    subject: &Subject,
    request: &Request,
    backend: BackendKind,
) -> Result<(Vec<PlannedCase>, Vec<Problem>), SelectError> {
    let cases = Cases::of(request, backend, subject.clone(), true, None);
    match cases.planned.is_empty() {
        true => Err(nothing_left(&request.selection())),
        false => {
            let timings = cases.timings();
            Ok((cases.planned, timings))
        }
    }
}

/// Whether a variant is given problems of this dtype: f16 and E4M3 if any variant of its stage takes them, so that one that
/// does not is seen to refuse.
fn is_due(stage: &StageMeta, variant: &VariantMeta, dtype: Dtype) -> bool {
    variant.takes(dtype) || dtype != Dtype::Bf16 && stage.takes(dtype)
}

/// [`Plan::counted`], in the order of the ladder. BF16 is not: it moves, multiplies and waits as f16 does.
fn counted(all: &[StageMeta], asked: Vec<(Subject, Dtype)>) -> Vec<(Subject, Dtype)> {
    let mut wanted: BTreeSet<(Subject, Dtype)> = BTreeSet::new();
    for (subject, dtype) in asked {
        let name = subject.name();
        let stage = by_id(all, subject.stage());
        let Some(stage) = stage.filter(|stage| is_counted(stage, name, dtype)) else {
            continue;
        };
        wanted.insert((subject.clone(), dtype));
        let is_evidence = |claim: &&Claim| !claim.is_of_speed() && claim.place.dtype == dtype;
        let evidence = stage.claims.iter().filter(is_evidence);
        let pairs = evidence.filter_map(|claim| comparisons(all, stage, claim).ok());
        let own = pairs.flatten().filter(|pair| pair.new.variant.name == name);
        let bases = own.filter_map(|pair| pair.base);
        wanted.extend(bases.map(|base| (base.subject(), dtype)));
    }
    let of_ladder = all.iter().flat_map(StageMeta::subjects);
    let each = of_ladder.flat_map(|subject| Dtype::ALL.map(|dtype| (subject.clone(), dtype)));
    each.filter(|one| wanted.contains(one)).collect()
}

/// Whether a variant is counted with an element type by itself. With its stage's second one only the default and the first variant of
/// its family are: presets share the code that the type changes, and counting all would take as long again.
fn is_counted(stage: &StageMeta, name: &str, dtype: Dtype) -> bool {
    let is_one = |variant: &VariantMeta| {
        let standing = [
            stage.default_of(&variant.family),
            stage.family(&variant.family).next(),
        ];
        let is_first = stage.first_dtype() == dtype;
        variant.claims_kernel(dtype).is_some()
            && (is_first || dtype == Dtype::E4m3 && standing.contains(&Some(variant)))
    };
    stage.variant(name).is_some_and(is_one)
}

/// The problems on which `variant` is one side of a speed claim; where they are no cases, the timed outputs are gated on a sample of
/// their rows.
fn claimed(
    all: &[StageMeta],
    stage: &StageMeta,
    variant: &VariantMeta,
    chosen: &Problems,
) -> Vec<Problem> {
    let is_ours = |id: &str, family: &str| id == stage.id && variant.is_of(family);
    let is_side = |(other, claim): &(&StageMeta, &Claim)| match &claim.relation {
        Relation::Faster { base, .. } => {
            is_ours(&other.id, &claim.family) || is_ours(base.stage, base.family)
        }
        _ => false,
    };
    let is_named = |place: &&ProblemPlace| {
        let shape = place.extents();
        shape.is_some_and(|shape| shape.named().is_some())
    };
    let places = claims(all).filter(is_side).map(|(_, claim)| &claim.place);
    let problems = places.filter(is_named).filter_map(ProblemPlace::problem);
    distinct(problems.filter(|problem| chosen.include(problem)))
}

/// Whether T2 has it among its cases on a GPU.
fn is_small(problem: &Problem) -> bool {
    let named = problem.shape.named();
    named.is_some_and(|named| named.kind == Kind::Small)
}

#[cfg(test)]
mod tests;
