//! Plans a run: tier and flags in, a list of cases and timings out. Pure.

use crate::estimate::Work;
use crate::select::{self, Chosen, Picked, Problems, SelectError, family, or_all};
use choice::draw;
use clap::Args;
use common::check::Source;
use common::device::BackendKind;
use common::inputs::Family;
use common::problem::{
    Dtype, Kind, Mask, NamedShape, Problem, Shape, claims_problem, edge_shapes, of_kind,
    parse_shape,
};
use common::resources::KernelFacts;
use common::serving::Cache;
use common::suppression;
use results::judge::claims::comparisons;
use results::judge::list::{Grouped, distinct, grouped, joined};
use results::table::session::{KernelBuild, Relation, Selection, Tier, by_id, claims};
use results::table::{CasePlace, ProblemPlace, StageMeta, Subject, VariantMeta};
use std::collections::BTreeSet;
use std::str::FromStr;

/// The flags that a run is asked with; the tier decides whatever they leave open.
#[derive(Clone, Debug, Default, Args)]
pub struct Request {
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub cases: CaseFlags,
    /// Times all chosen variants on N random problems, on a GPU, a second or two each, instead of
    /// the tier's problems, and judges how much longer than the fastest the library's choice
    /// takes; `accept` fits the choice to them
    // The alias is the flag's name until 2026-11-28; it goes with the next release.
    #[arg(
        long,
        alias = "regret",
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = select::at_least_one::<usize>,
        conflicts_with_all = ["iters", "quick", "full"]
    )]
    pub random_problems: Option<usize>,
    /// Draws other random problems
    #[arg(
        long,
        alias = "regret-seed",
        value_name = "SEED",
        requires = "random_problems",
        default_value_t = 1
    )]
    pub random_seed: u64,
    /// Tensors of a file, which replace generated ones.
    #[arg(skip)]
    pub file: Option<GivenTensors>,
}

/// The flags that choose what is checked of each variant or candidate, and how it is timed.
#[derive(Clone, Debug, Default, Args)]
pub struct CaseFlags {
    #[command(flatten)]
    pub problems: Problems,
    /// Input seeds. With --shapes, --seeds or --families every combination of them is checked
    /// instead of the tier's cases [defaults: small,mission; 0; normal]
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
    /// Timed samples on each problem; 0 checks without timing [default: 500 where claims are
    /// judged, 100 elsewhere; 20 of a candidate, each the mean over at least 20 ms]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = whole::<usize>
    )]
    pub iters: Option<usize>,
    /// Tier T0: a few small problems and extreme logits, of a stage only on its default variant.
    /// The default, tier T1, has every variant
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Tier T2: every input family and more seeds; on a GPU, where `accept` asks for it, every
    /// small shape and mask, too
    #[arg(long)]
    pub full: bool,
}

fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| "give a whole number, 0 or more".to_string())
}

impl Request {
    /// Returns whether shapes, seeds, families or random problems were asked for, which replace the
    /// tier's cases.
    fn has_problems(&self) -> bool {
        let cases = &self.cases;
        !cases.problems.shapes.is_empty()
            || !cases.seeds.is_empty()
            || !cases.families.is_empty()
            || self.random_problems.is_some()
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
            regret: self.random_problems,
        }
    }

    /// Returns the tier that was asked for, else T1. A selection on a GPU is accepted as T2 is.
    fn tier(&self, backend: BackendKind) -> Tier {
        if self.random_problems.is_some() || self.cases.quick {
            return Tier::T0;
        }
        if self.cases.full || backend == BackendKind::Cuda && self.is_selection() {
            return Tier::T2;
        }
        Tier::T1
    }

    /// Returns whether problems were given, by flags or a file, in place of a tier's.
    fn is_selection(&self) -> bool {
        self.has_problems() || self.file.is_some()
    }
}

/// The backends and builds that a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The emulator's plain build: results only.
    Plain,
    /// Both of the emulator's builds, each under all of [`common::tier0::SCHEDULES`]: results and
    /// hazards.
    Traced,
    /// The same, but traced under the first schedule only: the order of accesses hardly depends on
    /// the schedule, and a stage's default variant is traced under all of them.
    TracedOnce,
    Device,
    /// The GPU and the emulator's plain build, to be compared (gate B1).
    Both,
}

impl Mode {
    pub fn is_on_gpu(self) -> bool {
        matches!(self, Mode::Device | Mode::Both)
    }
}

/// A variant or candidate on a problem with its inputs, to be checked.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCase {
    pub subject: Subject,
    pub source: Source,
    pub problem: Problem,
    pub mode: Mode,
    /// Whether it comes after all times: T2's many cases would keep them waiting.
    pub is_late: bool,
    /// Whether the interpreter runs it, too, on the PTX that nvcc emits (gate B2).
    pub runs_ptx: bool,
}

impl PlannedCase {
    /// Returns the problem and inputs, as a row names them.
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

/// A planned run, in the order of the ladder.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub tier: Tier,
    /// Whether its problems were given, in place of a tier's.
    pub is_selection: bool,
    pub backend: BackendKind,
    pub scope: Selection,
    pub cases: Vec<PlannedCase>,
    /// The kernels that are timed if their cases are green; none without a GPU.
    pub timings: Vec<(Problem, Subject)>,
    /// The random problems on which all variants with cases are timed quickly; none without a GPU.
    pub draws: Vec<Problem>,
    /// Variants whose counters the emulator records on the claims' problem of an element type:
    /// those that have it among their cases, and those that evidence claims on it compare them
    /// with.
    pub counted: Vec<(Subject, Dtype)>,
}

impl Plan {
    /// Returns whether a stage has cases.
    pub fn has_stage(&self, id: &str) -> bool {
        self.cases.iter().any(|case| case.subject.stage() == id)
    }

    /// Returns the work of the run, as far as it is known before.
    pub fn work(&self) -> Work {
        let mut work = Work {
            cases: self.cases.len(),
            random: self.draws.len(),
            ..Work::default()
        };
        for (problem, _) in &self.timings {
            if is_timed_at_once(problem) {
                work.small += 1;
            } else {
                work.large += 1;
            }
        }
        work
    }

    /// Returns the rounds of the run. Where nothing is timed there is one: cases go problem by
    /// problem, so that inputs and references are made once. Else each stage has a round; of given
    /// problems, since large ones take long to make, each stage on each problem, in the order of
    /// problems. Late cases come last.
    pub fn rounds(&self) -> Vec<Round<'_>> {
        if self.timings.is_empty() {
            return vec![Round {
                cases: self.cases.iter().collect(),
                timings: vec![],
            }];
        }
        let (late, early): (Vec<_>, Vec<_>) = self.cases.iter().partition(|case| case.is_late);
        let mut rounds = Vec::new();
        let by_problem = early
            .into_iter()
            .map(|case| (self.round_problem(&case.problem), case));
        for of_problem in grouped(by_problem) {
            let problem = of_problem.key;
            let by_stage = of_problem
                .values
                .into_iter()
                .map(|case| (case.subject.stage(), case));
            for Grouped {
                key: stage,
                values: cases,
            } in grouped(by_stage)
            {
                let mut timings = self.timings.clone();
                timings.retain(|(timed, subject)| {
                    self.round_problem(timed) == problem && subject.stage() == stage
                });
                rounds.push(Round { cases, timings });
            }
        }
        rounds.push(Round {
            cases: late,
            timings: vec![],
        });
        rounds
    }

    /// Returns the problem that has rounds of its own, if problems were given.
    fn round_problem(&self, problem: &Problem) -> Option<Problem> {
        self.is_selection.then_some(*problem)
    }
}

/// Returns a problem of the ladder or of a selection.
fn problem(shape: Shape, dtype: Dtype, mask: Mask) -> Problem {
    Problem::new(shape, dtype, mask).expect("the ladder's shapes and selected ones are valid")
}

/// Returns a shape of the tiers by its name.
pub fn named(name: &str) -> Shape {
    parse_shape(name).expect("a shape of the tiers")
}

/// The shapes on which both masks run in BF16, the only ones on which a run times it. BF16 kernels
/// differ from f16 kernels only in a type, so the tiers check less of them: in T2 on a GPU about
/// half of f16's cases (masks alternate from shape to shape, fewer seeds), else only default
/// variants.
const BF16_TIMED: [&str; 4] = ["mission", "long", "big", "big_wide"];
const BF16_SEEDS: u64 = 2;

/// Returns whether the tiers time this dtype on this shape.
fn is_timed(problem: &Problem) -> bool {
    problem.dtype != Dtype::Bf16 || BF16_TIMED.contains(&&*problem.shape.name())
}

/// Rows that see few keys, in more than one 16-row tile of a warp; in the causal one most rows see
/// none. One has four heads, so that the zero-head family has a head without zeros.
const SHORT_ROWS: [(&str, Mask); 3] = [
    ("1x2:1x65:7x64", Mask::Causal),
    ("1x4x65:5x64", Mask::Full),
    ("1x1x65:3x128", Mask::Full),
];

/// Heads whose K and V together exceed what a stage may keep in L2, and not a multiple of the
/// number that fits. The emulator would take minutes.
const MANY_KEYS: &str = "1x5:1x257:65536x64";

/// The stand-in for the claims' problem in T1, in the emulator: several heads and tiles, in a
/// sixteenth of its time. Stages' default variants have that problem itself, with their first
/// element type.
const LIKE_CLAIMS: &str = "1x2x256x64";

/// The number of tiles with which drift from tile to tile, or a counter that runs out, shows.
const DEEP: usize = 17;

/// The rows of the cases of [`Cases::rings`]: one ragged block is enough.
const ROWS_OF_RINGS: usize = 17;

/// The most scores of a problem that the traced build runs; larger ones would take minutes.
const TRACED_SCORES: u64 = 50_000;

/// The largest tensor, in elements, that the traced build runs: it watches 4 GiB of memory, guard
/// bands included.
const TRACED_ELEMENTS: usize = 1 << 28;

/// The cases of one variant or candidate, collected for a tier or a selection.
struct Cases<'a> {
    request: &'a Request,
    tier: Tier,
    backend: BackendKind,
    subject: Subject,
    /// Whether it is the stage's default, or was asked for by name: it then also runs the cases
    /// that the other variants of its stage skip.
    is_default: bool,
    /// The variant, with its stage; none of a candidate.
    variant: Option<(&'a StageMeta, &'a VariantMeta)>,
    planned: Vec<PlannedCase>,
    /// Whether cases that are added from now on come after all times.
    is_late: bool,
}

impl<'a> Cases<'a> {
    fn new(
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
        cases.choose_for_ptx();
        cases
    }

    /// Adds a case unless it is not wanted or already there, with K and V in the cache that the
    /// variant reads, if it reads one. `mode` is that of the emulator, where [`Mode::Both`] stands
    /// for what a GPU is to be compared on. Traced cases must be added first: they include everything
    /// that a plain run checks.
    fn add(&mut self, plain: Problem, source: Source, mode: Mode) {
        let Some(problem) = self.as_read(plain) else {
            return;
        };
        let is_planned = self
            .planned
            .iter()
            .any(|case| case.problem == problem && case.source == source);
        if is_planned || !self.is_wanted(&problem) {
            return;
        }
        self.planned.push(PlannedCase {
            subject: self.subject.clone(),
            source,
            problem,
            mode: self.mode_here(problem.dtype, mode),
            is_late: self.is_late,
            runs_ptx: false,
        });
    }

    /// Chooses the cases that the interpreter runs, too: for each element type the largest of
    /// dense tensors and of sequences as they are served that it takes a moment for.
    fn choose_for_ptx(&mut self) {
        if self.backend != BackendKind::Emulated || self.variant.is_none() {
            return;
        }
        for dtype in Dtype::ALL {
            for is_dense in [true, false] {
                let fitting = self.planned.iter_mut().filter(|case| {
                    is_for_ptx(case)
                        && case.problem.dtype == dtype
                        && case.problem.is_dense() == is_dense
                });
                if let Some(largest) = fitting.max_by_key(|case| case.problem.scores()) {
                    largest.runs_ptx = true;
                }
            }
        }
    }

    /// Returns the mode of a case on this backend.
    fn mode_here(&self, dtype: Dtype, asked: Mode) -> Mode {
        let is_candidate = self.variant.is_none();
        match self.backend {
            BackendKind::Cuda if is_candidate || asked == Mode::Plain => Mode::Device,
            BackendKind::Cuda => Mode::Both,
            BackendKind::Emulated if is_candidate || asked == Mode::Both => Mode::Plain,
            BackendKind::Emulated => self.mode_of_variant(dtype, asked),
        }
    }

    /// Returns the emulator's mode of a variant: all are traced less than asked for, but the
    /// default ones with their first element type.
    fn mode_of_variant(&self, dtype: Dtype, asked: Mode) -> Mode {
        let is_traced = matches!(asked, Mode::Traced | Mode::TracedOnce);
        if is_traced && !self.is_traced_whole(dtype) {
            return if self.is_default {
                Mode::TracedOnce
            } else {
                Mode::Plain
            };
        }
        if asked == Mode::Traced && !self.is_default {
            return Mode::TracedOnce;
        }
        asked
    }

    /// Returns whether it is the variant's first element type, or T1 makes no difference: with
    /// another, converting differs, and nothing that orders accesses. T2 and the tests of each
    /// stage trace all alike.
    fn is_traced_whole(&self, dtype: Dtype) -> bool {
        self.tier != Tier::T1 || self.request.is_selection() || self.is_first(dtype)
    }

    /// Returns whether it is the first element type of the variant; a candidate has none before
    /// others.
    fn is_first(&self, dtype: Dtype) -> bool {
        let Some((_, variant)) = self.variant else {
            return true;
        };
        let first = Dtype::ALL.into_iter().find(|other| variant.takes(*other));
        first == Some(dtype)
    }

    /// Returns a problem of a tier with K and V in the cache that the variant reads, if it reads one;
    /// `None` where there is no such problem. What was given stays as it is.
    fn as_read(&self, problem: Problem) -> Option<Problem> {
        if self.request.has_problems() || self.request.file.is_some() {
            return Some(problem);
        }
        match self.variant.and_then(|(_, variant)| variant.cache) {
            None => Some(problem),
            cache => problem.in_cache(cache).ok(),
        }
    }

    fn is_wanted(&self, problem: &Problem) -> bool {
        if !self.request.cases.problems.include(problem) {
            return false;
        }
        match self.variant {
            Some((stage, variant)) => {
                is_due(stage, variant, problem.dtype) && variant.takes_shape(&problem.shape)
            }
            None => problem.is_dense(),
        }
    }

    fn seeded(&mut self, problem: Problem, family: Family, seed: u64, mode: Mode) {
        self.add(problem, Source::Seeded { family, seed }, mode);
    }

    /// Returns whether T0 and T1 check this dtype only on the stage's default variant, which this
    /// is not.
    fn is_left_to_default_variant(&self, dtype: Dtype) -> bool {
        dtype == Dtype::Bf16 && !self.is_default
    }

    /// Returns whether it is T2 on a GPU; in the emulator most of its problems would take hours.
    fn is_of_every_shape(&self) -> bool {
        (self.tier, self.backend) == (Tier::T2, BackendKind::Cuda)
    }

    /// Adds T0: the cases that the tests of every stage run.
    fn tier0(&mut self) {
        for case in common::tier0::cases() {
            let mode = match case.schedules.len() {
                1 => Mode::TracedOnce,
                _ => Mode::Traced,
            };
            if self.is_of_every_shape() || !self.is_left_to_default_variant(case.problem.dtype) {
                self.seeded(case.problem, case.family, 0, mode);
            }
        }
        let mode = if self.is_of_every_shape() {
            Mode::Both
        } else {
            Mode::Plain
        };
        let extremes = common::tier0::extremes().into_iter();
        for case in extremes.chain(common::tier0::others()) {
            if !self.is_left_to_default_variant(case.problem.dtype) {
                self.seeded(case.problem, case.family, 0, mode);
            }
        }
    }

    /// Adds T0's cases of sequences as they are served.
    fn served(&mut self) {
        for case in common::tier0::served() {
            let is_of_every_schedule = case.schedules.len() > 1;
            let mode = if self.is_of_every_shape() {
                Mode::Both
            } else if is_of_every_schedule {
                Mode::TracedOnce
            } else {
                Mode::Plain
            };
            self.seeded(case.problem, case.family, 0, mode);
        }
    }

    /// Adds T1: T0, rings, and the claims' problem; where the emulator would take long for that,
    /// one that is like it.
    fn tier1(&mut self) {
        self.tier0();
        self.served();
        self.rings();
        for dtype in Dtype::ALL {
            if self.is_left_to_default_variant(dtype) {
                continue;
            }
            let claims = claims_problem(dtype);
            self.seeded(
                problem(named(LIKE_CLAIMS), dtype, Mask::Full),
                Family::Normal,
                0,
                Mode::Plain,
            );
            // Gate C4 judges a variant of E4M3 alone on this problem only.
            let is_due = self.is_first(dtype) && (self.is_default || dtype == Dtype::E4m3);
            if is_due || self.backend == BackendKind::Cuda {
                self.seeded(claims, Family::Normal, 0, Mode::Plain);
            }
        }
    }

    /// Adds what T2 has beyond T1 on every backend: all families on `small`, those with extreme
    /// logits also on rows of 1 to 7 keys; the claims' problem with each dtype, three seeds of f16
    /// on default variants.
    fn families(&mut self) {
        for dtype in Dtype::ALL {
            if self.is_left_to_default_variant(dtype) {
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

    /// Adds, for each instance of a variant, one block of rows over several of its own key tiles
    /// and one more key: rings are filled, drained and reused, and the last tile is ragged. One
    /// instance also runs with maxima that rise from tile to tile, and on a default variant over
    /// [`DEEP`] tiles. T1 traces that with rising maxima alone, and all of a default variant.
    fn rings(&mut self) {
        let Some((_, variant)) = self.variant else {
            return;
        };
        for KernelBuild { facts, .. } in &variant.kernels {
            self.ring(facts, suppression::TILES, Family::Normal);
        }
        let claims_kernel = variant
            .claims_kernel(Dtype::F16)
            .or_else(|| variant.claims_kernel(Dtype::E4m3));
        if let Some(KernelBuild { facts, .. }) = claims_kernel {
            self.ring(facts, suppression::TILES, Family::Large);
            if self.is_default {
                self.ring(facts, DEEP, Family::Normal);
            }
        }
    }

    fn ring(&mut self, facts: &KernelFacts, tiles: usize, family: Family) {
        if self.is_left_to_default_variant(facts.dtype) {
            return;
        }
        let rows = facts.block_m.min(ROWS_OF_RINGS);
        let (shape, mask) = suppression::ring(facts, rows, tiles);
        let is_plain = self.tier == Tier::T1 && !self.is_default && family == Family::Normal;
        let mode = if is_plain {
            Mode::Plain
        } else {
            Mode::TracedOnce
        };
        self.seeded(problem(shape, facts.dtype, mask), family, 0, mode);
    }

    /// Adds T2: T1 and all families on small problems. On a GPU also T0's problems and short rows
    /// under every family, on both backends; every named shape under every family, five seeds on
    /// `small` and `mission`; every edge shape.
    fn tier2(&mut self) {
        self.tier1();
        if !self.is_of_every_shape() {
            return self.families();
        }
        self.is_late = true;
        self.on_both_backends();
        self.families();
        for dtype in [Dtype::F16, Dtype::E4m3] {
            let many_keys = problem(named(MANY_KEYS), dtype, Mask::Causal);
            self.seeded(many_keys, Family::Normal, 0, Mode::Plain);
        }
        for dtype in Dtype::ALL {
            for mask in Mask::ALL {
                self.small_shapes(dtype, mask);
                self.edge_shapes(dtype, mask);
            }
        }
    }

    /// Adds T0's problems, as far as the emulator computes them in milliseconds, and short rows,
    /// under every family.
    fn on_both_backends(&mut self) {
        let mut problems = Vec::new();
        for case in common::tier0::cases() {
            if case.problem.scores() <= TRACED_SCORES {
                problems.push(case.problem);
            }
        }
        for (shape, mask) in SHORT_ROWS {
            problems.extend(Dtype::ALL.map(|dtype| problem(named(shape), dtype, mask)));
        }
        for problem in problems {
            for family in Family::for_dtype(problem.dtype) {
                self.seeded(problem, family, 0, Mode::Both);
            }
        }
    }

    fn small_shapes(&mut self, dtype: Dtype, mask: Mask) {
        for (index, &NamedShape { name, shape, .. }) in of_kind(Kind::Small).enumerate() {
            if !is_in_tier2(dtype, mask, index, name) {
                continue;
            }
            let seeds = match dtype {
                _ if !["small", "mission"].contains(&name) => 1,
                Dtype::Bf16 => BF16_SEEDS,
                _ => 5,
            };
            for family in Family::for_dtype(dtype) {
                for seed in 0..seeds {
                    self.seeded(problem(shape, dtype, mask), family, seed, Mode::Plain);
                }
            }
        }
    }

    fn edge_shapes(&mut self, dtype: Dtype, mask: Mask) {
        for (index, shape) in edge_shapes().into_iter().enumerate() {
            if is_in_tier2(dtype, mask, index, &shape.to_string()) {
                self.seeded(problem(shape, dtype, mask), Family::Normal, 0, Mode::Plain);
            }
        }
    }

    /// Adds every combination of what was given, with defaults for the rest. The default masks of a
    /// named shape are those that it is usually computed with.
    fn selection(&mut self) {
        let CaseFlags {
            problems,
            families,
            seeds,
            ..
        } = &self.request.cases;
        // Random problems follow, so a case or two of each instance is enough.
        let shapes = match self.request.random_problems {
            Some(_) => ["small", "1x8:2x113:203x128"],
            None => ["small", "mission"],
        };
        for problem in problems.or(&shapes, &Dtype::ALL, &Mask::ALL) {
            if !problems.has_usual_mask(&problem) {
                continue;
            }
            let families_of_dtype = Family::for_dtype(problem.dtype);
            for &family in or_all(families, &[Family::Normal]) {
                if !families_of_dtype.contains(&family) {
                    continue;
                }
                for &seed in or_all(seeds, &[0]) {
                    self.seeded(problem, family, seed, self.mode_for(&problem));
                }
            }
        }
    }

    /// Adds the tensors of a file, which does not name the mask that its `out` was computed with;
    /// full is the usual one.
    fn file(&mut self, file: &GivenTensors) {
        let masks = &self.request.cases.problems.masks;
        for &mask in or_all(masks, &[Mask::Full]) {
            let problem = problem(file.shape, file.dtype, mask);
            let source = Source::File {
                name: file.name.clone(),
            };
            let mode = self.mode_for(&problem);
            self.add(problem, source, mode);
        }
    }

    /// Returns the mode of a selected problem: it is traced unless that would take minutes.
    fn mode_for(&self, problem: &Problem) -> Mode {
        let query_elements: usize = problem.shape.q_extents().iter().product();
        let key_elements: usize = problem.shape.kv_extents().iter().product();
        let elements = query_elements.max(key_elements);
        // The scores of a huge problem with a window are counted row by row.
        let is_small = elements <= TRACED_ELEMENTS && problem.scores() <= TRACED_SCORES;
        match self.backend {
            BackendKind::Emulated if is_small => Mode::Traced,
            _ => Mode::Plain,
        }
    }

    /// Returns the element types of which the claims' problem is among its cases, or is in its tier
    /// but too long for the emulator to compute whole: counting takes a few of its blocks.
    fn counted(&self) -> Vec<(Subject, Dtype)> {
        let is_whole = self.tier > Tier::T0 && !self.request.is_selection();
        let mut counted = Vec::new();
        for dtype in Dtype::ALL {
            let claims = claims_problem(dtype);
            let is_case = self.planned.iter().any(|case| case.problem == claims);
            if is_case || is_whole && self.is_wanted(&claims) {
                counted.push((self.subject.clone(), dtype));
            }
        }
        counted
    }

    /// Returns the problems that it is timed on: the claims' problem, every named shape but the
    /// smallest in T2, and whatever was selected.
    fn timings(&self) -> Vec<Problem> {
        if !self.is_to_be_timed() {
            return vec![];
        }
        let request = self.request;
        let problems = self.planned.iter().map(|case| case.problem);
        distinct(problems.filter(|problem| request.has_problems() || self.is_timed(problem)))
    }

    /// Returns whether it has cases and the flags ask for its times.
    fn is_to_be_timed(&self) -> bool {
        let request = self.request;
        let is_excluded = request.cases.iters == Some(0)
            || request.random_problems.is_some()
            || request.file.is_some();
        self.backend == BackendKind::Cuda && !is_excluded && !self.planned.is_empty()
    }

    /// Returns whether its tier times it on a problem.
    fn is_timed(&self, problem: &Problem) -> bool {
        let is_named = is_small(problem) && problem.shape != named("small");
        let is_in_tier = problem.has_claims() || self.tier == Tier::T2 && is_named;
        is_in_tier && is_timed(problem)
    }
}

/// The most scores of a problem that the interpreter of PTX runs: it takes a second for ten times as
/// many.
const PTX_SCORES: u64 = 25_000;

/// Returns whether the interpreter may run a case: a small one of ordinary values.
fn is_for_ptx(case: &PlannedCase) -> bool {
    let family = case.source.family();
    let is_ordinary = matches!(family, Some(Family::Normal | Family::RandomScales));
    is_ordinary && case.problem.scores() <= PTX_SCORES
}

/// Returns whether T2 has a shape with this element type and mask. Of BF16 the masks alternate from
/// shape to shape.
fn is_in_tier2(dtype: Dtype, mask: Mask, index: usize, name: &str) -> bool {
    if dtype != Dtype::Bf16 || BF16_TIMED.contains(&name) {
        return true;
    }
    let is_even = index.is_multiple_of(2);
    is_even == (mask == Mask::Full)
}

/// The tensors of a file, as a plan knows them.
#[derive(Clone, Debug, PartialEq)]
pub struct GivenTensors {
    pub name: String,
    pub shape: Shape,
    pub dtype: Dtype,
}

/// Plans a run of the variants that were chosen among `all`. Refuses flags that leave no case.
pub fn plan(
    all: &[StageMeta],
    request: &Request,
    backend: BackendKind,
) -> Result<Plan, SelectError> {
    let picked = request.chosen.pick(all)?;
    let tier = request.tier(backend);
    let mut cases = Vec::new();
    let mut timings = Vec::new();
    let mut asked = Vec::new();
    for &(stage, variant) in &picked {
        let is_default =
            variant.name == stage.default_variant || request.chosen.takes_by_name(&variant.name);
        let subject = stage.subject(&variant.name);
        let own = Cases::new(
            request,
            backend,
            subject.clone(),
            is_default,
            Some((stage, variant)),
        );
        let mut timed = own.timings();
        // Claims about other problems than the claims' own would take the default tier six minutes
        // on an H100.
        if own.is_to_be_timed() && tier == Tier::T2 && !request.has_problems() {
            let mut claimed = claimed(all, stage, variant, &request.cases.problems);
            claimed.retain(|problem| !is_small(problem));
            timed.extend(claimed);
            if is_default {
                timed.extend(shown(stage, &request.cases.problems));
            }
            timed = distinct(timed);
        }
        timings.extend(timed.into_iter().map(|problem| (problem, subject.clone())));
        asked.extend(own.counted());
        cases.extend(own.planned);
    }
    if cases.is_empty() {
        return Err(why_nothing(all, request, &picked));
    }
    let draws = match request.random_problems {
        Some(count) if backend == BackendKind::Cuda => draw::problems(request.random_seed, count),
        _ => vec![],
    };
    Ok(Plan {
        tier,
        is_selection: request.is_selection(),
        backend,
        draws,
        scope: request.selection(),
        counted: counted(all, asked),
        cases,
        timings,
    })
}

/// Returns the reason why no case is left to run.
fn why_nothing(all: &[StageMeta], request: &Request, picked: &[Picked<'_>]) -> SelectError {
    let mut shapes = request.cases.problems.shapes.iter();
    let is_refused = |shape: &&Shape| {
        let mut variants = picked.iter().map(|(_, variant)| variant);
        !variants.any(|variant| variant.takes_shape(shape))
    };
    if let Some(shape) = shapes.find(is_refused) {
        return none_takes(all, picked, shape);
    }
    let dtypes = or_all(&request.cases.problems.dtypes, &Dtype::ALL);
    let has_dtype = picked
        .iter()
        .any(|(stage, _)| dtypes.iter().any(|&dtype| stage.takes(dtype)));
    if has_dtype {
        return nothing_left(&request.selection());
    }
    let stages = match select::stages(&request.chosen.stages, all) {
        Ok(stages) => stages,
        Err(error) => return error,
    };
    for stage in stages {
        if !stage.variants.is_empty() {
            continue;
        }
        if let Some((variant, why)) = stage.refused.first() {
            return SelectError(format!(
                "no case is left to run: the device cannot run {variant}: {why}"
            ));
        }
    }
    let names = joined(dtypes.iter().map(|dtype| dtype.name()), " or ");
    SelectError(format!(
        "no case is left to run: no chosen stage has {names}"
    ))
}

/// Returns the refusal of a shape that no chosen variant takes, and the variants or stages that do.
fn none_takes(all: &[StageMeta], picked: &[Picked<'_>], shape: &Shape) -> SelectError {
    let takes = |variant: &VariantMeta| variant.takes_shape(shape);
    let name = shape.name();
    let Some(cache) = shape.serving.cache.map(Cache::name) else {
        if picked.iter().any(|(_, variant)| variant.cache.is_none()) {
            return none_serves(all, shape);
        }
        return SelectError(format!(
            "no case is left to run: the chosen variants read K and V in a cache alone, and {name} \
             has none; choose others"
        ));
    };
    if picked.iter().any(|(_, variant)| variant.serves) {
        let variants = all.iter().flat_map(|stage| &stage.variants);
        let taking = variants.filter(|variant| takes(variant));
        return SelectError(format!(
            "no case is left to run: no chosen variant reads K and V in {cache}, as {name} has \
             them; --variants {} takes it",
            joined(taking.map(|variant| variant.name.as_str()), " or ")
        ));
    }
    none_serves(all, shape)
}

/// Returns the refusal of a shape that is not dense, and the stages that take it.
fn none_serves(all: &[StageMeta], shape: &Shape) -> SelectError {
    let takes = |variant: &VariantMeta| variant.takes_shape(shape);
    let taking = all.iter().filter(|stage| stage.variants.iter().any(takes));
    SelectError(format!(
        "no case is left to run: the chosen stages take dense tensors with a head_dim of 64 or 128 \
         alone, not {}; --stages {} takes it",
        shape.name(),
        joined(taking.map(|stage| stage.id.as_str()), " or ")
    ))
}

fn nothing_left(selection: &Selection) -> SelectError {
    SelectError(format!(
        "no case matches all of {selection}; drop one of these flags"
    ))
}

/// The cases of a candidate, and the problems that it is timed on.
pub struct CandidatePlan {
    pub cases: Vec<PlannedCase>,
    pub timings: Vec<Problem>,
}

/// Plans the cases and timings of a candidate: those of a default variant, all called in one way,
/// without those that look at its instances.
pub fn candidate(
    subject: &Subject,
    request: &Request,
    backend: BackendKind,
) -> Result<CandidatePlan, SelectError> {
    let cases = Cases::new(request, backend, subject.clone(), true, None);
    if cases.planned.is_empty() {
        return Err(nothing_left(&request.selection()));
    }
    Ok(CandidatePlan {
        timings: cases.timings(),
        cases: cases.planned,
    })
}

/// Returns whether a variant is given problems of this dtype: f16 and E4M3 if any variant of its
/// stage takes them, so that one that does not is seen to refuse.
fn is_due(stage: &StageMeta, variant: &VariantMeta, dtype: Dtype) -> bool {
    variant.takes(dtype) || dtype != Dtype::Bf16 && stage.takes(dtype)
}

/// Returns [`Plan::counted`], in the order of the ladder. BF16 is left out: it moves, multiplies
/// and waits as f16 does.
fn counted(all: &[StageMeta], asked: Vec<(Subject, Dtype)>) -> Vec<(Subject, Dtype)> {
    let mut wanted: BTreeSet<(Subject, Dtype)> = BTreeSet::new();
    for (subject, dtype) in asked {
        let Some(stage) = by_id(all, subject.stage()) else {
            continue;
        };
        if !is_counted(stage, subject.name(), dtype) {
            continue;
        }
        for base in bases(all, stage, subject.name(), dtype) {
            wanted.insert((base, dtype));
        }
        wanted.insert((subject, dtype));
    }
    let mut counted = Vec::new();
    for subject in all.iter().flat_map(StageMeta::subjects) {
        for dtype in Dtype::ALL {
            let counter = (subject.clone(), dtype);
            if wanted.contains(&counter) {
                counted.push(counter);
            }
        }
    }
    counted
}

/// Returns the variants that claims of counters compare a variant with.
fn bases(all: &[StageMeta], stage: &StageMeta, name: &str, dtype: Dtype) -> Vec<Subject> {
    let mut bases = Vec::new();
    for claim in &stage.claims {
        if claim.is_of_speed() || claim.place.dtype != dtype {
            continue;
        }
        for pair in comparisons(all, stage, claim).unwrap_or_default() {
            if let Some(base) = pair.base
                && pair.new.variant.name == name
            {
                bases.push(base.subject());
            }
        }
    }
    bases
}

/// Returns whether a variant is counted with an element type by itself. With its stage's second one
/// only the default and the first variant of its family are: presets share the code that the type
/// changes, and counting all would take as long again.
fn is_counted(stage: &StageMeta, name: &str, dtype: Dtype) -> bool {
    let Some(variant) = stage.variant(name) else {
        return false;
    };
    if variant.claims_kernel(dtype).is_none() {
        return false;
    }
    let is_first = stage.first_dtype() == dtype;
    let represents_family = stage.default_of(&variant.family) == Some(variant)
        || stage.family(&variant.family).next() == Some(variant);
    is_first || dtype == Dtype::E4m3 && represents_family
}

/// Returns the problems on which `variant` is one side of a speed claim. Where they are no cases,
/// the timed outputs are gated on a sample of their rows.
fn claimed(
    all: &[StageMeta],
    stage: &StageMeta,
    variant: &VariantMeta,
    chosen: &Problems,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (claiming, claim) in claims(all) {
        let Relation::Faster { base, .. } = &claim.relation else {
            continue;
        };
        let is_new = claiming.id == stage.id && variant.is_of(&claim.family);
        let is_base = base.stage == stage.id && variant.is_of(base.family);
        let extents = claim.place.extents();
        let is_named = extents.is_some_and(|shape| shape.named().is_some());
        if (is_new || is_base) && is_named {
            problems.extend(claim.place.problem());
        }
    }
    problems.retain(|problem| chosen.include(problem));
    distinct(problems)
}

/// Returns the problems at which the ladder's tables show a stage.
fn shown(stage: &StageMeta, chosen: &Problems) -> Vec<Problem> {
    let mut problems: Vec<Problem> = stage
        .places()
        .iter()
        .filter_map(ProblemPlace::problem)
        .collect();
    problems.retain(|problem| chosen.include(problem));
    problems
}

/// The operations above which a kernel may reach the power limit of a GPU, which takes seconds to
/// time.
const SMALL_FLOPS: u64 = 10_000_000_000;

/// The bytes above which it takes as long as the timing to make a problem and judge its outputs.
const SMALL_BYTES: u64 = 1 << 25;

/// Returns whether a kernel is timed on the problem in less than a second.
pub fn is_timed_at_once(problem: &Problem) -> bool {
    problem.flops() <= SMALL_FLOPS && problem.min_bytes() <= SMALL_BYTES
}

/// Returns whether T2 has the problem among its cases on a GPU.
fn is_small(problem: &Problem) -> bool {
    let shape = problem.shape.named();
    shape.is_some_and(|named| named.kind == Kind::Small)
}

#[cfg(test)]
mod tests;
