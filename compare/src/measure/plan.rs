//! What a run does: tier and flags in, list of cases out. Pure.

use crate::judge::claims::compared;
use crate::judge::list::grouped;
use crate::measure::builds::{KernelBuild, StageBuild, VariantBuild, metas};
use crate::measure::select::{Chosen, Picked, Problems, SelectError, family, or_all};
use crate::record::meta::{Relation, Scope, Tier, TimingScope, by_id, claims};
use crate::record::{Claim, On, Place, Row, StageMeta, Subject};
use clap::Args;
use common::check::Source;
use common::device::BackendKind;
use common::inputs::Family;
use common::problem::{
    Dtype, LARGE_SHAPES, Mask, NAMED_SHAPES, Problem, Shape, claims_problem, edge_shapes,
};
use common::resources::KernelFacts;
use common::suppression;
use common::tier0::Case;
use common::verdict::GateId;
use std::collections::BTreeSet;

/// What a run is asked for. What it leaves open, the tier says.
#[derive(Clone, Debug, Default, Args)]
pub struct Request {
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub problems: Problems,
    /// Seeds of the inputs. Shapes, seeds and families replace the tier's cases by every combination of what is given
    /// [else: small,mission; seed 0; normal]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SEED,..",
        allow_negative_numbers = true,
        value_parser = seed
    )]
    pub seeds: Vec<u64>,
    /// Input families (`compare list`); see --seeds
    #[arg(long, value_delimiter = ',', value_name = "FAMILY,..", value_parser = family)]
    pub families: Vec<Family>,
    /// Timed samples per variant and problem; 0 checks and does not time [default: 500 where claims are judged, 100
    /// elsewhere]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = samples)]
    pub iters: Option<usize>,
    /// Tier T0: each stage's default variant on five small problems, and on extreme logits
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Tier T2: every shape, mask, family and seed (the default on a GPU)
    #[arg(long)]
    pub full: bool,
    /// On a GPU, also time each stage's default variant on 1x8xSx64 for S from 512 to 16384, f16, full mask
    #[arg(long, conflicts_with_all = ["input", "quick"])]
    pub sweep: bool,
    /// A file's tensors instead of generated ones.
    #[arg(skip)]
    pub file: Option<FileProblem>,
}

/// A number of samples, or why that is none.
pub fn samples(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| "give a whole number of samples, 0 or more".to_string())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "give a whole number, 0 or more".to_string())
}

impl Request {
    /// Whether problems were given, by their shape, inputs or seeds.
    fn has_problems(&self) -> bool {
        !(self.problems.shapes.is_empty() && self.seeds.is_empty() && self.families.is_empty())
    }

    /// The flags that narrow a run, as given.
    fn flags(&self) -> Vec<String> {
        fn words<T: ToString>(values: &[T]) -> Vec<String> {
            values.iter().map(T::to_string).collect()
        }
        let Problems {
            shapes,
            dtypes,
            masks,
        } = &self.problems;
        let lists = [
            ("--stages", self.chosen.stages.clone()),
            ("--variants", self.chosen.variants.clone()),
            (
                "--shapes",
                shapes.iter().map(|(name, _)| name.clone()).collect(),
            ),
            ("--dtypes", words(dtypes)),
            ("--masks", words(masks)),
            ("--seeds", words(&self.seeds)),
            ("--families", words(&self.families)),
            (
                "--input",
                self.file.iter().map(|file| file.name.clone()).collect(),
            ),
        ];
        let given = lists.into_iter().filter(|(_, words)| !words.is_empty());
        given
            .map(|(name, words)| format!("{name} {}", words.join(",")))
            .collect()
    }

    fn scope(&self) -> Scope {
        match self.flags() {
            flags if flags.is_empty() => Scope::Whole,
            flags => Scope::Selected { flags },
        }
    }

    /// The tier: as asked, else what fits the backend.
    fn tier(&self, backend: BackendKind) -> Tier {
        match (self.quick, self.full, backend) {
            (true, ..) => Tier::T0,
            (_, true, _) | (_, _, BackendKind::Cuda) => Tier::T2,
            _ => Tier::T1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the emulator's plain build: results only.
    Plain,
    /// On both of the emulator's builds, each under all of [`common::tier0::SCHEDULES`]: results and hazards.
    Traced,
    /// The same, the traced one under the first of them: whether accesses are ordered hardly depends on the schedule, and
    /// a stage's default variant runs under all.
    TracedOnce,
    /// On the GPU.
    Device,
    /// On the GPU, and in the emulator's plain build beside it (gate B1).
    Both,
}

impl Mode {
    /// Whether a judged case says all that one run in this mode would.
    pub fn is_covered(self, case: &Row) -> bool {
        match self {
            Mode::Plain | Mode::Device => true,
            Mode::Traced | Mode::TracedOnce => case.verdicts.contains_key(&GateId::H1),
            Mode::Both => case.verdicts.contains_key(&GateId::B1),
        }
    }

    /// Traced under one schedule, where it is traced.
    fn once(self) -> Mode {
        if self == Mode::Traced {
            Mode::TracedOnce
        } else {
            self
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCase {
    pub subject: Subject,
    /// The problem by its name.
    pub place: Place,
    /// Where the inputs come from.
    pub source: Source,
    pub problem: Problem,
    pub mode: Mode,
}

impl PlannedCase {
    /// The place of its row.
    pub fn on(&self) -> On {
        On::Case(self.place.clone(), self.source.to_string())
    }
}

/// One arm to time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTiming {
    pub subject: Subject,
    /// The problem by its name.
    pub place: Place,
    pub problem: Problem,
}

/// All that a run does, stage by stage and variant by variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How much is checked.
    pub tier: Tier,
    pub backend: BackendKind,
    /// Whether flags narrowed it.
    pub scope: Scope,
    pub cases: Vec<PlannedCase>,
    /// What is timed where its cases are green; empty without a GPU.
    pub timings: Vec<PlannedTiming>,
    /// What of it was left out, by stage.
    pub timing_scopes: Vec<TimingScope>,
    /// Variants that the emulator counts on the claims' problems: those that have the one of their stage's first element type among
    /// their cases, and those that their evidence claims compare them with.
    pub counted: Vec<Subject>,
}

impl Plan {
    /// Whether the run has a case of this stage.
    pub fn has_stage(&self, id: &str) -> bool {
        self.cases.iter().any(|case| case.subject.stage() == id)
    }

    /// Stages that are not run, though claims of speed of those that are compare with them: such claims go unmeasured.
    pub fn bases_left_out<'a>(&self, all: &'a [StageBuild]) -> BTreeSet<&'a str> {
        claims(all)
            .filter(|(stage, claim)| {
                matches!(claim.relation, Relation::Faster { .. }) && self.has_stage(&stage.id)
            })
            .filter_map(|(_, claim)| Some(claim.relation.base()?.stage.as_str()))
            .filter(|base| !self.has_stage(base))
            .collect()
    }

    /// Whether what is counted is counted with E4M3 too.
    pub fn counts_e4m3(&self) -> bool {
        self.cases
            .iter()
            .any(|case| case.problem == claims_problem(Dtype::E4m3))
    }
}

/// A problem and where its inputs come from, before it meets a variant.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    place: Place,
    problem: Problem,
    source: Source,
    mode: Mode,
    /// Only for the stage's default variant.
    default_only: bool,
}

/// A problem of the ladder or of a selection.
fn problem(shape: Shape, dtype: Dtype, mask: Mask) -> Problem {
    Problem::new(shape, dtype, mask).expect("the ladder's shapes and selected ones are valid")
}

fn item(problem: Problem, family: Family, seed: u64, mode: Mode) -> Item {
    Item {
        place: Place::of(&shape_name(problem.shape), &problem),
        problem,
        source: Source::Seeded { family, seed },
        mode,
        default_only: false,
    }
}

/// `items`, of which those that `is_limited` are for default variants alone.
fn limited(mut items: Vec<Item>, is_limited: impl Fn(&Item) -> bool) -> Vec<Item> {
    for item in &mut items {
        item.default_only |= is_limited(item);
    }
    items
}

fn is_bf16(item: &Item) -> bool {
    item.problem.dtype == Dtype::Bf16
}

/// The named shape that the ladder itself is about.
pub fn named(name: &str) -> Shape {
    NAMED_SHAPES
        .iter()
        .find(|named| named.name == name)
        .expect("one of the named shapes")
        .shape
}

/// What BF16, whose kernels differ from those of f16 in a type alone, has of the tiers: T0 and T1 on default variants; of T2
/// about half of f16's cases, which is one mask of each shape, by turns, and fewer seeds; both masks of these shapes, on which
/// alone it is timed, here and by `tune`.
const BF16_TIMED: [&str; 4] = ["mission", "long", "big", "big_wide"];
const BF16_SEEDS: u64 = 2;

/// Whether T2 has the shape number `at` with this dtype and mask.
fn has_mask(dtype: Dtype, mask: Mask, shape: &str, at: usize) -> bool {
    let by_turns = (mask == Mask::Full) == at.is_multiple_of(2);
    dtype != Dtype::Bf16 || BF16_TIMED.contains(&shape) || by_turns
}

/// Whether tiers time a problem of this dtype on this shape.
fn is_timed(place: &Place) -> bool {
    place.dtype != Dtype::Bf16 || BF16_TIMED.contains(&place.shape.as_str())
}

/// T0: the cases that every stage's own tests run.
fn tier0(traced: Mode, plain: Mode) -> Vec<Item> {
    let case = |case: Case, mode: Mode| {
        let p = case.problem;
        let mode = if case.schedules.len() == 1 {
            mode.once()
        } else {
            mode
        };
        let mut item = item(p, case.family, 0, mode);
        if problem(p.shape, p.dtype, p.mask) != p {
            item.place.shape += &format!("@{}", p.softmax_scale);
        }
        item
    };
    let cases = common::tier0::cases()
        .into_iter()
        .map(|it| case(it, traced));
    let untraced = common::tier0::extremes()
        .into_iter()
        .chain(common::tier0::others());
    let all = cases.chain(untraced.map(|it| case(it, plain))).collect();
    limited(all, is_bf16)
}

fn shape_name(shape: Shape) -> String {
    let named = NAMED_SHAPES.iter().find(|named| named.shape == shape);
    named.map_or_else(|| shape.to_string(), |named| named.name.to_string())
}

/// Rows that see few keys, in more than one 16-row tile of a warp; in the causal one most see none. Four heads, so that
/// the zero-head family has one without zeros.
const SHORT_ROWS: [(Shape, Mask); 3] = [
    (
        Shape {
            heads_kv: 1,
            seq_kv: 7,
            ..Shape::bhsd(1, 2, 65, 64)
        },
        Mask::Causal,
    ),
    (
        Shape {
            seq_kv: 5,
            ..Shape::bhsd(1, 4, 65, 64)
        },
        Mask::Full,
    ),
    (
        Shape {
            seq_kv: 3,
            ..Shape::bhsd(1, 1, 65, 128)
        },
        Mask::Full,
    ),
];

/// What T2 computes on both backends where it has two: the problems of T0 and short rows, under every family. Of T0's
/// only what the emulator computes in some milliseconds.
fn beside(mode: Mode) -> Vec<Item> {
    let short = SHORT_ROWS
        .iter()
        .flat_map(|&(shape, mask)| Dtype::ALL.map(|dtype| problem(shape, dtype, mask)));
    let tier0 = common::tier0::cases().into_iter().map(|case| case.problem);
    let problems = tier0
        .filter(|problem| problem.scores() <= TRACED_SCORES)
        .chain(short);
    let each = |problem: Problem| {
        let families = Family::for_dtype(problem.dtype).into_iter();
        families.map(move |family| item(problem, family, 0, mode))
    };
    problems.flat_map(each).collect()
}

/// T1: T0, all families on `small`, those of extreme logits also on rows of 1 to 7 keys, and `mission`: one seed with
/// each dtype, and on default variants three with f16, which with `small` are the checks that the first ladders had.
fn tier1(traced: Mode, plain: Mode) -> Vec<Item> {
    let mut items = tier0(traced, plain);
    for dtype in Dtype::ALL {
        let small = problem(named("small"), dtype, Mask::Full);
        let short = problem(Shape::bhsd(1, 1, 7, 64), dtype, Mask::Causal);
        for family in Family::for_dtype(dtype) {
            let extreme = Family::EXTREME.contains(&family);
            let seeds = if extreme { 0..1 } else { 0..3 };
            items.extend(seeds.map(|seed| item(small, family, seed, plain)));
            items.extend(extreme.then(|| item(short, family, 0, plain)));
        }
    }
    let mission = |dtype, seed| item(claims_problem(dtype), Family::Normal, seed, plain);
    items.extend(Dtype::ALL.map(|dtype| mission(dtype, 0)));
    let more = vec![mission(Dtype::F16, 1), mission(Dtype::F16, 2)];
    items.extend(limited(more, |_| true));
    limited(items, is_bf16)
}

/// For each instance of a variant one block of rows over so many tiles of its own keys and one key more: rings are filled,
/// drained and used again, and the last tile is ragged; one instance also with maxima that rise from tile to tile, and that of
/// a default variant over [`DEEP`] tiles. The masks are those of [`common::suppression`].
fn rings(variant: &VariantBuild, mode: Mode, is_default: bool) -> Vec<Item> {
    let ring = |facts: &KernelFacts, tiles: usize, family: Family| {
        let (shape, mask) = suppression::ring(facts, facts.block_m.min(ROWS_OF_RINGS), tiles);
        item(problem(shape, facts.dtype, mask), family, 0, mode)
    };
    let of_each = variant
        .kernels
        .iter()
        .map(|kernel| ring(&kernel.facts, suppression::TILES, Family::Normal));
    let mut items = limited(of_each.collect(), is_bf16);
    let one = [Dtype::F16, Dtype::E4m3].map(|dtype| variant.claims_kernel(dtype));
    if let Some(KernelBuild { facts, .. }) = one.into_iter().flatten().next() {
        items.push(ring(facts, suppression::TILES, Family::Large));
        items.extend(is_default.then(|| ring(facts, DEEP, Family::Normal)));
    }
    items
}

/// Whether a variant is to take problems of this dtype: all of its stage take f16 and E4M3, if any does.
fn is_due(stage: &StageBuild, variant: &VariantBuild, dtype: Dtype) -> bool {
    variant.takes(dtype) || dtype != Dtype::Bf16 && stage.takes(dtype)
}

/// Tiles after which what drifts or runs out from tile to tile shows.
const DEEP: usize = 17;

/// T2: T1, small problems and every named shape under every family, five seeds on `small` and `mission`, every edge shape.
fn tier2(traced: Mode, beside_mode: Mode, plain: Mode) -> Vec<Item> {
    // The first of equal cases is kept.
    let mut items = tier0(traced, beside_mode);
    items.extend(beside(beside_mode));
    items.extend(tier1(traced, plain));
    if plain == Mode::Device {
        let many_keys = [Dtype::F16, Dtype::E4m3].map(|dtype| {
            item(
                problem(MANY_KEYS, dtype, Mask::Causal),
                Family::Normal,
                0,
                plain,
            )
        });
        items.extend(many_keys);
    }
    for dtype in Dtype::ALL {
        for mask in Mask::ALL {
            let has = |at: usize, name: &str| has_mask(dtype, mask, name, at);
            for (at, shape) in NAMED_SHAPES.iter().enumerate() {
                let seeds = match (["small", "mission"].contains(&shape.name), dtype) {
                    _ if !has(at, shape.name) => continue,
                    (true, Dtype::Bf16) => 0..BF16_SEEDS,
                    (true, _) => 0..5,
                    (false, _) => 0..1,
                };
                let problem = problem(shape.shape, dtype, mask);
                for family in Family::for_dtype(dtype) {
                    let seeded = |seed| item(problem, family, seed, plain);
                    items.extend(seeds.clone().map(seeded));
                }
            }
            let edges = edge_shapes().into_iter().enumerate();
            let edges = edges.filter(|(at, shape)| has(*at, &shape.to_string()));
            items.extend(
                edges.map(|(_, shape)| item(problem(shape, dtype, mask), Family::Normal, 0, plain)),
            );
        }
    }
    items
}

/// Heads whose K and V together are more than what a stage may keep in L2, and a number of them that is no multiple of those that
/// fit. The emulator would take minutes.
const MANY_KEYS: Shape = Shape {
    heads_kv: 1,
    seq_kv: 1 << 16,
    ..Shape::bhsd(1, 5, 257, 64)
};

/// Rows of the cases of [`rings`], which take no longer for more: a ragged block.
const ROWS_OF_RINGS: usize = 17;

/// Rows and keys of `--sweep`: time against length, from what fits one wave of blocks to what fills the GPU many times.
pub const SWEEP: [usize; 6] = [512, 1024, 2048, 4096, 8192, 16384];

fn sweep_shape(seq: usize) -> Shape {
    Shape::bhsd(1, 8, seq, 64)
}

/// The problems of `--sweep`: gated like any other, and timed.
fn sweep(mode: Mode) -> Vec<Item> {
    let problem = |seq| problem(sweep_shape(seq), Dtype::F16, Mask::Full);
    let items = SWEEP.map(|seq| item(problem(seq), Family::Normal, 0, mode));
    limited(items.to_vec(), |_| true)
}

/// The traced build takes problems of at most this many scores; larger ones would take minutes.
const TRACED_SCORES: u64 = 50_000;

/// Of a tensor. The traced build watches 4 GiB of memory, guard bands included.
const TRACED_ELEMENTS: u64 = 1 << 28;

/// Every combination of what is given, and of the defaults for what is left open.
fn combinations(request: &Request, backend: BackendKind) -> Vec<Item> {
    let families = or_all(&request.families, &[Family::Normal]);
    let seeds = or_all(&request.seeds, &[0]);
    let mut items = Vec::new();
    for (place, problem) in request
        .problems
        .or(&["small", "mission"], &Dtype::ALL, &Mask::ALL)
    {
        let mode = mode_for(&problem, backend);
        let taken = Family::for_dtype(problem.dtype);
        for &family in families.iter().filter(|family| taken.contains(family)) {
            items.extend(seeds.iter().map(|&seed| Item {
                place: place.clone(),
                ..item(problem, family, seed, mode)
            }));
        }
    }
    items
}

fn mode_for(problem: &Problem, backend: BackendKind) -> Mode {
    let elements =
        |extents: [usize; 4]| extents.iter().map(|&extent| extent as u64).product::<u64>();
    let elements: u64 =
        elements(problem.shape.q_extents()).max(elements(problem.shape.kv_extents()));
    match backend {
        BackendKind::Cuda => Mode::Device,
        BackendKind::Cpu => Mode::Plain,
        BackendKind::Emulated
            if problem.scores() <= TRACED_SCORES && elements <= TRACED_ELEMENTS =>
        {
            Mode::Traced
        }
        BackendKind::Emulated => Mode::Plain,
    }
}

/// Keeps the first of equal cases. Traced ones come first, and say all that a plain one says.
fn deduplicate(items: Vec<Item>) -> Vec<Item> {
    let mut kept: Vec<Item> = Vec::new();
    for item in items {
        let same = |other: &Item| (&other.problem, &other.source) == (&item.problem, &item.source);
        match kept.iter_mut().find(|other| same(other)) {
            Some(first) => first.default_only &= item.default_only,
            None => kept.push(item),
        }
    }
    kept
}

/// A real problem: what an input file holds.
#[derive(Clone, Debug, PartialEq)]
pub struct FileProblem {
    /// The file's name, without folders.
    pub name: String,
    /// The extents of its tensors.
    pub shape: Shape,
    /// Their element type.
    pub dtype: Dtype,
}

/// The plan of a run.
pub fn plan(
    all: &[StageBuild],
    request: &Request,
    backend: BackendKind,
) -> Result<Plan, SelectError> {
    let picked = request.chosen.of(all)?;
    let file = request.file.as_ref();
    let dtypes = or_all(&request.problems.dtypes, &Dtype::ALL);
    // A file does not say under which mask its `out` was computed; the full one is the usual case.
    let masks = or_all(
        &request.problems.masks,
        if file.is_some() {
            &[Mask::Full]
        } else {
            &Mask::ALL
        },
    );
    let tier = request.tier(backend);
    let (traced, beside, plain) = match backend {
        BackendKind::Emulated => (Mode::Traced, Mode::Plain, Mode::Plain),
        BackendKind::Cpu => (Mode::Plain, Mode::Plain, Mode::Plain),
        BackendKind::Cuda => (Mode::Both, Mode::Both, Mode::Device),
    };
    let combined = request.has_problems();
    let mut items = match (file, tier) {
        (Some(file), _) => from_file(file, masks, backend),
        _ if combined => combinations(request, backend),
        (_, Tier::T0) => limited(tier0(traced, plain), |_| true),
        (_, Tier::T1) => tier1(traced, plain),
        (_, Tier::T2) => tier2(traced, beside, plain),
    };
    if request.sweep && backend == BackendKind::Cuda {
        items.extend(sweep(plain));
    }
    let chosen =
        |problem: &Problem| dtypes.contains(&problem.dtype) && masks.contains(&problem.mask);
    items.retain(|item| chosen(&item.problem) || file.is_some());
    let items = deduplicate(items);
    let has_rings = file.is_none() && !combined && tier != Tier::T0;
    let has_dtype = picked
        .iter()
        .any(|picked| dtypes.iter().any(|&dtype| picked.stage.takes(dtype)));
    let mut cases = Vec::new();
    let mut timings = Vec::new();
    for Picked { stage, variants } in picked {
        for variant in variants {
            // A variant that was asked for by name runs in every tier.
            let asked = request.chosen.takes_by_name(&variant.name);
            let is_default = variant.name == stage.default_variant;
            let takes = |item: &&Item| {
                (!item.default_only || is_default || asked)
                    && is_due(stage, variant, item.problem.dtype)
            };
            let rings = if has_rings {
                rings(variant, traced.once(), is_default)
            } else {
                vec![]
            };
            let of_variant: Vec<PlannedCase> = (items.iter().filter(takes))
                .chain(
                    rings
                        .iter()
                        .filter(|item| chosen(&item.problem) && !items.contains(item))
                        .filter(takes),
                )
                .map(|item| PlannedCase {
                    subject: stage.subject(&variant.name),
                    place: item.place.clone(),
                    source: item.source.clone(),
                    problem: item.problem,
                    mode: match is_default || asked {
                        true => item.mode,
                        false => item.mode.once(),
                    },
                })
                .collect();
            if backend == BackendKind::Cuda
                && request.iters != Some(0)
                && !of_variant.is_empty()
                && file.is_none()
            {
                timings.extend(timed(tier, combined, request.sweep, &of_variant));
                if tier == Tier::T2 && !combined {
                    timings.extend(claimed(all, stage, variant, chosen));
                }
            }
            cases.extend(of_variant);
        }
    }
    if cases.is_empty() {
        let reason = match request.flags() {
            _ if !has_dtype => {
                let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
                format!("no stage of those chosen has {}", names.join(" or "))
            }
            flags if flags.is_empty() => "no stage has a variant".to_string(),
            flags => format!("{} exclude each other", flags.join(" ")),
        };
        return Err(SelectError::Nothing { reason });
    }
    let counted = counted(all, &cases);
    Ok(Plan {
        tier,
        backend,
        scope: request.scope(),
        cases,
        timings,
        timing_scopes: vec![],
        counted,
    })
}

/// The plan of `compare tune`: for every chosen variant the cases of T0, and each chosen problem, on which it is timed.
/// Where no shape was chosen these are the problems that T2 times.
pub fn tune(all: &[StageBuild], chosen: &Chosen, problems: &Problems) -> Result<Plan, SelectError> {
    let mut request = Request {
        chosen: chosen.clone(),
        problems: problems.clone(),
        ..Request::default()
    };
    if problems.shapes.is_empty() {
        let timed = NAMED_SHAPES.iter().filter(|named| named.name != "small");
        request.problems.shapes = timed
            .map(|named| (named.name.to_string(), named.shape))
            .collect();
    }
    let mut tuned = plan(all, &request, BackendKind::Cuda)?;
    if problems.shapes.is_empty() && problems.dtypes.is_empty() {
        tuned.cases.retain(|case| is_timed(&case.place));
        tuned.timings.retain(|timing| is_timed(&timing.place));
    }
    let variants: BTreeSet<String> = tuned
        .cases
        .iter()
        .map(|case| case.subject.name().to_string())
        .collect();
    request.chosen.variants = variants.into_iter().collect();
    request.problems.shapes = vec![];
    request.quick = true;
    let quick = plan(all, &request, BackendKind::Cuda)?;
    let more: Vec<PlannedCase> = quick
        .cases
        .into_iter()
        .filter(|case| !tuned.cases.contains(case))
        .collect();
    tuned.cases.extend(more);
    Ok(tuned)
}

/// The variants of the claims' problem in the first element type of their stage, and the bases of their evidence claims, in the order
/// of the ladder.
fn counted(all: &[StageBuild], cases: &[PlannedCase]) -> Vec<Subject> {
    let stages = metas(all);
    let mut wanted: Vec<Subject> = Vec::new();
    for PlannedCase {
        subject, problem, ..
    } in cases
    {
        let Some(stage) = by_id(&stages, subject.stage()) else {
            continue;
        };
        let dtype = stage.first_dtype();
        let variant = stage
            .variant(subject.name())
            .filter(|variant| variant.takes_claims.contains(&dtype));
        let Some(variant) = variant.filter(|_| *problem == claims_problem(dtype)) else {
            continue;
        };
        wanted.push(subject.clone());
        let evidence = stage.claims.iter().filter(|claim| !claim.is_of_speed());
        let pairs = evidence
            .filter_map(|claim| compared(&stages, stage, claim).ok())
            .flatten();
        let bases = pairs
            .filter(|(other, _)| other.name == variant.name)
            .filter_map(|(_, base)| base);
        wanted.extend(bases.map(|(stage, variant)| stage.subject(&variant.name)));
    }
    stages
        .iter()
        .flat_map(StageMeta::subjects)
        .filter(|subject| wanted.contains(subject))
        .collect()
}

fn from_file(file: &FileProblem, masks: &[Mask], backend: BackendKind) -> Vec<Item> {
    let of_mask = |&mask: &Mask| {
        let problem = problem(file.shape, file.dtype, mask);
        Item {
            place: Place::of(&file.shape.to_string(), &problem),
            source: Source::File {
                name: file.name.clone(),
            },
            ..item(problem, Family::Normal, 0, mode_for(&problem, backend))
        }
    };
    masks.iter().map(of_mask).collect()
}

/// What is timed of a variant: the claims' problems, in T2 every named shape but the smallest, and whatever was selected.
fn timed(tier: Tier, combined: bool, swept: bool, cases: &[PlannedCase]) -> Vec<PlannedTiming> {
    let is_wanted = |case: &&PlannedCase| {
        let PlannedCase { place, problem, .. } = case;
        let named =
            place.shape != "small" && NAMED_SHAPES.iter().any(|named| named.name == place.shape);
        let swept = swept
            && SWEEP.iter().any(|&seq| sweep_shape(seq) == problem.shape)
            && (place.dtype, place.mask) == (Dtype::F16, Mask::Full);
        let of_tier = problem.has_claims() || tier == Tier::T2 && named;
        combined || swept || of_tier && is_timed(place)
    };
    let wanted = cases.iter().filter(is_wanted);
    once_each(wanted.map(|case| PlannedTiming {
        subject: case.subject.clone(),
        place: case.place.clone(),
        problem: case.problem,
    }))
}

/// The first of each problem.
fn once_each(timings: impl Iterator<Item = PlannedTiming>) -> Vec<PlannedTiming> {
    let by_problem = grouped(timings.map(|timing| (timing.problem, timing)));
    let first = |(_, alike): (Problem, Vec<PlannedTiming>)| alike.into_iter().next();
    by_problem.into_iter().filter_map(first).collect()
}

/// The large problems on which `variant` is one side of a claim of speed. No tier runs them; what is timed is gated on a
/// sample of its rows.
fn claimed(
    all: &[StageBuild],
    stage: &StageBuild,
    variant: &VariantBuild,
    chosen: impl Fn(&Problem) -> bool,
) -> Vec<PlannedTiming> {
    let ours = (stage.id.as_str(), variant.family.as_str());
    let is_side = |(other, claim): &(&StageMeta, &Claim)| {
        let base = claim.relation.base();
        let base = base.map(|base| (base.stage.as_str(), base.family.as_str()));
        let sides = [Some((other.id.as_str(), claim.family.as_str())), base];
        matches!(claim.relation, Relation::Faster { .. }) && sides.contains(&Some(ours))
    };
    let is_large = |place: &&Place| LARGE_SHAPES.iter().any(|named| named.name == place.shape);
    let places = claims(all).filter(is_side).map(|(_, claim)| &claim.on);
    once_each(places.filter(is_large).filter_map(|place| {
        Some(PlannedTiming {
            subject: stage.subject(&variant.name),
            place: place.clone(),
            problem: place.problem().filter(&chosen)?,
        })
    }))
}

#[cfg(test)]
mod tests;
