//! Chooses the variant for a problem: the fastest by a model. Its coefficients are fitted to
//! measurements on one GPU (`compare accept`) and serve other GPUs with their own number of
//! multiprocessors.

use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::resources::KernelFacts;
use crate::stage::{Kernel, LoadedStage, Prepared, Unsupported};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The needs of a caller besides the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub lse: bool,
    pub batch_invariant: bool,
}

/// The blocks of a launch, or the items of blocks that stay.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    pub grid: [u32; 3],
    /// Whether a block has some of the first and some of the last rows.
    pub deals_rows: bool,
    /// The number of blocks that a multiprocessor holds.
    pub resident: u32,
}

impl Blocks {
    /// Returns the blocks of a launch, of which a multiprocessor holds so many.
    pub fn new(prepared: &Prepared<'_>, resident: u32) -> Self {
        Self {
            grid: prepared.grid,
            deals_rows: prepared.deals_rows,
            resident,
        }
    }
}

/// The number of terms of a launch's time.
pub const TERMS: usize = 9;

/// Computes the terms of a launch's time, each to be multiplied by a coefficient:
///
/// 0. The launch itself.
/// 1. Blocks of the busiest multiprocessor.
/// 2. Rounds of resident blocks that see a key.
/// 3. Millions of multiply-adds of the busiest multiprocessor.
/// 4. Millions of multiply-adds of the longest chain of blocks.
/// 5. Millions of bytes.
/// 6. Millions of multiply-adds if all blocks were the mean.
/// 7. Millions of multiply-adds if all blocks were the longest: a kernel that balances its blocks
///    under a causal mask lies between.
/// 8. Thousands of elements of the rows that the blocks have, however many they have room for: Q
///    comes in, O goes out, and a cluster merges its parts.
pub fn terms(
    problem: &Problem,
    kernel: &KernelFacts,
    blocks: Blocks,
    multiprocessors: u32,
) -> [f64; TERMS] {
    let Blocks { grid, resident, .. } = blocks;
    let Shape {
        seq_q,
        seq_kv,
        heads_q,
        head_dim,
        ..
    } = problem.shape;
    // The blocks of a cluster share the keys of as many tiles of rows.
    let parts = kernel.cluster;
    let rows_of_tile = kernel.block_m * parts as usize;
    let keys_of_tile = kernel.block_n * parts as usize;
    let tiles = grid[0] / parts;
    let clusters = u64::from(tiles) * u64::from(grid[1]) * u64::from(grid[2]);
    // Pairs fill a GPU; clusters of eight leave multiprocessors of its parts idle: 132 hold 15.
    let usable = multiprocessors - multiprocessors.min(parts.saturating_sub(2));
    let clusters_at_once = u64::from((usable / parts).max(1));
    let blind = blind_tiles(problem, tiles);
    let mut seeing_tiles = tiles - blind;
    if blocks.deals_rows {
        // Half of a block's rows may be blind: it takes as long as for all.
        seeing_tiles = tiles.min(2 * seeing_tiles);
    }
    let busy = u64::from(seeing_tiles) * u64::from(grid[1]) * u64::from(grid[2]);
    let per_multiprocessor = busy.div_ceil(clusters_at_once) as f64;
    let rounds = busy.div_ceil(clusters_at_once * u64::from(resident)) as f64;
    let longest = seq_kv.div_ceil(keys_of_tile) as f64;
    let (mean, share) = match problem.mask {
        Mask::Full => (longest, per_multiprocessor),
        // Long blocks start first and short ones fill the last round.
        Mask::Causal => {
            let keys = mean_keys(seq_q as f64, seq_kv as f64, tiles, blind);
            let mean = (keys / keys_of_tile as f64).clamp(0.5, longest);
            (mean, busy as f64 / clusters_at_once as f64)
        }
    };
    // Heads of a group may be rows of one tile.
    let rows = seq_q * heads_q / grid[1] as usize;
    let tile_products = (kernel.block_m * keys_of_tile * head_dim) as f64 / 1e6;
    let row_elements = (rows.min(rows_of_tile) * head_dim) as f64 / 1e3;
    let all_per_multiprocessor = clusters.div_ceil(clusters_at_once) as f64;
    [
        1.0,
        all_per_multiprocessor,
        rounds,
        longest.max(share * mean) * tile_products,
        longest.max(rounds * mean) * tile_products,
        problem.min_bytes() as f64 / 1e6,
        per_multiprocessor * mean * tile_products,
        per_multiprocessor * longest * tile_products,
        all_per_multiprocessor * row_elements,
    ]
}

/// Returns how many of so many tiles of rows see no key under a causal mask with more queries than
/// keys: their blocks store zeros and end.
fn blind_tiles(problem: &Problem, tiles: u32) -> u32 {
    let Shape { seq_q, seq_kv, .. } = problem.shape;
    if problem.mask == Mask::Full || seq_q <= seq_kv {
        return 0;
    }
    let share = (seq_q - seq_kv) as f64 / seq_q as f64;
    ((share * f64::from(tiles)) as u32).min(tiles - 1)
}

/// Computes the mean, over those of so many tiles of rows that see a key under a causal mask, of the
/// keys that a tile's last row sees.
fn mean_keys(queries: f64, keys: f64, tiles: u32, blind: u32) -> f64 {
    let rows = queries / f64::from(tiles);
    let before = keys - queries;
    let but_last = f64::from(tiles - 1 - blind);
    let middle = f64::from(tiles + blind) / 2.0;
    (but_last * (rows * middle + before) + keys) / (but_last + 1.0)
}

/// A line of a library's list of variants that no stage has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the library's list names {variant}, which no stage has")]
pub struct UnknownVariant {
    pub variant: String,
}

/// Leaves of each stage the variants of a library's list, one STAGE/VARIANT a line; a stage without
/// one goes.
///
/// # Errors
///
/// A line that no stage has.
pub fn retain_listed(stages: &mut Vec<LoadedStage>, list: &str) -> Result<(), UnknownVariant> {
    for line in list.lines() {
        let is_known = line.split_once('/').is_some_and(|(id, variant)| {
            let mut of_id = stages.iter().filter(|stage| stage.info().id == id);
            of_id.any(|stage| stage.family_of(variant).is_some())
        });
        if !is_known {
            return Err(UnknownVariant {
                variant: line.to_string(),
            });
        }
    }
    for stage in stages.iter_mut() {
        let id = stage.info().id;
        let variants: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_prefix(id)?.strip_prefix('/'))
            .collect();
        stage
            .kernels
            .retain(|kernel| variants.contains(&&*kernel.variant));
    }
    stages.retain(|stage| !stage.kernels.is_empty());
    Ok(())
}

/// The coefficients of the variants that are the fastest somewhere on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub gpu: String,
    /// The compute capability times ten: 90.
    pub capability: u32,
    pub multiprocessors: u32,
    pub costs: Vec<Cost>,
}

/// The coefficients of the instances of a variant: in f16 and bf16, or in E4M3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// `stage8-overlap/overlap-lazy-64x128`.
    pub variant: String,
    /// f16 stands for bf16, too.
    pub dtype: Dtype,
    pub head_dim: usize,
    /// The number of blocks that a multiprocessor holds.
    pub resident: u32,
    /// Microseconds per unit of [`terms`].
    pub us: [f64; TERMS],
}

/// Returns the element type whose coefficients an instance has: bf16 takes 0.985 to 1.022 times as
/// long as f16 on an H200.
pub fn modelled(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Bf16 => Dtype::F16,
        other => other,
    }
}

/// The properties of a GPU that a choice depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    pub name: String,
    pub capability: u32,
    pub multiprocessors: u32,
}

/// An instance that the GPU runs, by its indices, with its coefficients.
#[derive(Clone, Debug)]
struct Candidate {
    stage: usize,
    kernel: usize,
    resident: u32,
    us: [f64; TERMS],
}

/// The model of one GPU, ready for the loaded stages.
#[derive(Clone, Debug)]
pub struct Chooser {
    multiprocessors: u32,
    candidates: BTreeMap<Operands, Vec<Candidate>>,
}

/// The properties of operands for which kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Operands {
    dtype: Dtype,
    head_dim: usize,
}

/// A variant that is chosen for a problem, ready to launch.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    pub stage: &'a LoadedStage,
    pub prepared: Prepared<'a>,
}

/// The number of heads of the one sequence as which a problem is chosen that must not depend on the
/// batch. Such a choice writes log-sum-exps, wanted or not.
const INVARIANT_HEADS: usize = 32;

impl Chooser {
    /// Makes a chooser by the model of the GPU's name, else of the nearest capability, then of the
    /// nearest number of multiprocessors. The devices of `stages` are set.
    pub fn new(stages: &[LoadedStage], models: &[Model], gpu: &Gpu) -> Self {
        let nearest = models.iter().min_by_key(|model| {
            (
                model.gpu != gpu.name,
                model.capability.abs_diff(gpu.capability),
                model.multiprocessors.abs_diff(gpu.multiprocessors),
            )
        });
        let mut candidates: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for cost in nearest.iter().flat_map(|model| &model.costs) {
            // A model may know stages that are not loaded, as in a test that loads a few.
            for (stage_index, stage) in stages.iter().enumerate() {
                for (kernel_index, kernel) in stage.kernels.iter().enumerate() {
                    if !cost.covers(stage, kernel) || stage.refuse(kernel).is_err() {
                        continue;
                    }
                    let instances = candidates.entry(Operands {
                        dtype: kernel.dtype,
                        head_dim: kernel.head_dim,
                    });
                    instances.or_default().push(Candidate {
                        stage: stage_index,
                        kernel: kernel_index,
                        resident: cost.resident,
                        us: cost.us,
                    });
                }
            }
        }
        Self {
            multiprocessors: gpu.multiprocessors,
            candidates,
        }
    }

    /// Chooses the variant that supports `problem`, with log-sum-exps if wanted: the fastest by the
    /// model, else the last stage's first.
    ///
    /// # Errors
    ///
    /// The reason why the earliest stage, which runs on most devices, refuses it.
    pub fn choose<'a>(
        &self,
        stages: &'a [LoadedStage],
        problem: &Problem,
        wanted: Wanted,
    ) -> Result<Choice<'a>, Unsupported> {
        let writes_lse = wanted.lse || wanted.batch_invariant;
        if let Some((stage, kernel)) = self.fastest(stages, problem, wanted) {
            let prepared = stage.launch(kernel, problem)?;
            return Ok(Choice {
                stage,
                prepared: with_lse_if(writes_lse, prepared)?,
            });
        }
        let mut refusal = None;
        for stage in stages.iter().rev() {
            let names = std::iter::once(stage.default_variant()).chain(stage.variants());
            for variant in names {
                let outcome = stage
                    .prepare(variant, problem)
                    .and_then(|prepared| with_lse_if(writes_lse, prepared));
                match outcome {
                    Ok(prepared) => return Ok(Choice { stage, prepared }),
                    Err(reason) => refusal = Some(reason),
                }
            }
        }
        Err(refusal.expect("every stage has a default variant"))
    }

    /// Returns the candidate that takes the least time by the model, if one supports the problem.
    fn fastest<'a>(
        &self,
        stages: &'a [LoadedStage],
        problem: &Problem,
        wanted: Wanted,
    ) -> Option<(&'a LoadedStage, &'a Kernel)> {
        let mut modelled_problem = *problem;
        if wanted.batch_invariant {
            modelled_problem.shape.batch = 1;
            modelled_problem.shape.heads_q = INVARIANT_HEADS;
            modelled_problem.shape.heads_kv = INVARIANT_HEADS;
        }
        let needs_lse = wanted.lse || wanted.batch_invariant;
        let mut fastest = None;
        let mut least_us = f64::INFINITY;
        let instances = self.candidates.get(&Operands {
            dtype: problem.dtype,
            head_dim: problem.shape.head_dim,
        })?;
        for candidate in instances {
            let stage = &stages[candidate.stage];
            let kernel = &stage.kernels[candidate.kernel];
            if needs_lse && !kernel.lse || stage.attention.accepts(kernel, problem).is_err() {
                continue;
            }
            let blocks = Blocks {
                grid: stage.attention.grid(kernel, &modelled_problem),
                deals_rows: stage.attention.deals_rows(kernel),
                resident: candidate.resident,
            };
            let us = self.time_us(candidate, kernel, &modelled_problem, blocks);
            if fastest.is_none() || us < least_us {
                fastest = Some((stage, kernel));
                least_us = us;
            }
        }
        fastest
    }

    fn time_us(
        &self,
        candidate: &Candidate,
        kernel: &Kernel,
        problem: &Problem,
        blocks: Blocks,
    ) -> f64 {
        let launch_terms = terms(problem, kernel, blocks, self.multiprocessors);
        let costs = launch_terms.iter().zip(&candidate.us);
        costs.map(|(term, us)| term * us).sum()
    }
}

impl Cost {
    /// Returns whether these are the coefficients of an instance.
    fn covers(&self, stage: &LoadedStage, kernel: &Kernel) -> bool {
        self.variant.split_once('/') == Some((stage.info().id, &*kernel.variant))
            && (self.dtype, self.head_dim) == (modelled(kernel.dtype), kernel.head_dim)
    }
}

fn with_lse_if(is_wanted: bool, prepared: Prepared<'_>) -> Result<Prepared<'_>, Unsupported> {
    if is_wanted {
        prepared.with_lse()
    } else {
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probability::Probability;

    fn kernel(block_m: usize, block_n: usize, cluster: u32) -> KernelFacts {
        KernelFacts {
            symbol: String::new(),
            dtype: Dtype::F16,
            head_dim: 64,
            block_m,
            block_n,
            threads: 128,
            min_blocks: 1,
            dynamic_shared_bytes: 0,
            boxes: None,
            cluster,
            caps: None,
            probability: Probability::F16,
            lse: true,
        }
    }

    /// Computes the terms in tiles of 64 rows and 128 keys, of 8,192 multiply-adds times head_dim.
    fn terms_in_tiles(
        shape: Shape,
        mask: Mask,
        grid: [u32; 3],
        cluster: u32,
        resident: u32,
    ) -> [f64; TERMS] {
        let problem = Problem::new(shape, Dtype::F16, mask).unwrap();
        let facts = kernel(64 / cluster as usize, 128, cluster);
        let blocks = Blocks {
            grid,
            deals_rows: false,
            resident,
        };
        let mut in_tiles = terms(&problem, &facts, blocks, 132);
        for index in [3, 4, 6, 7] {
            in_tiles[index] = (in_tiles[index] * 1e12 / 8192.0 / 64.0).round() / 1e6;
        }
        in_tiles
    }

    const MISSION: Shape = Shape::bhsd(1, 8, 512, 64);
    const LONG: Shape = Shape::bhsd(1, 8, 2048, 64);

    #[test]
    fn a_launch_is_rounds_of_blocks_and_each_a_chain_of_tiles() {
        let mission = terms_in_tiles(MISSION, Mask::Full, [8, 8, 1], 1, 1);
        assert_eq!(mission[..5], [1.0, 1.0, 1.0, 4.0, 4.0]);
        assert_eq!(mission[5], 4.0 * 8.0 * 512.0 * 128.0 / 1e6);
    }

    #[test]
    fn a_multiprocessor_that_gets_four_blocks_and_holds_three_runs_two_rounds() {
        let stretch = Shape::bhsd(4, 16, 512, 64);
        let blocks_512 = terms_in_tiles(stretch, Mask::Full, [8, 16, 4], 1, 3);
        assert_eq!(blocks_512[..5], [1.0, 4.0, 2.0, 16.0, 8.0]);
    }

    #[test]
    fn the_blocks_of_a_pair_share_the_keys_of_two_tiles() {
        let mission = terms_in_tiles(MISSION, Mask::Full, [16, 8, 1], 2, 1);
        assert_eq!(mission[..5], [1.0, 1.0, 1.0, 2.0, 2.0]);
        // 66 pairs fill 132 multiprocessors, and of three tiles of keys one of them has two.
        let pairs = Shape {
            seq_kv: 384,
            ..Shape::bhsd(1, 66, 64, 64)
        };
        let filled = terms_in_tiles(pairs, Mask::Full, [2, 66, 1], 2, 1);
        assert_eq!(filled[..5], [1.0, 1.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn under_a_causal_mask_the_longest_block_counts_or_the_mean_of_many() {
        // The mean: (1 + .. + 32) / 32 * 64 keys.
        let long = terms_in_tiles(LONG, Mask::Causal, [32, 8, 1], 1, 1);
        assert_eq!(long[3..5], [256.0 / 132.0 * 8.25, 2.0 * 8.25]);
        let mission = terms_in_tiles(MISSION, Mask::Causal, [8, 8, 1], 1, 1);
        assert_eq!(mission[3..5], [4.0, 4.0]);
    }

    #[test]
    fn all_blocks_of_a_multiprocessor_count_as_the_mean_and_as_the_longest() {
        let resident_3 = terms_in_tiles(LONG, Mask::Causal, [32, 8, 1], 1, 3);
        assert_eq!(resident_3[6..8], [16.5, 32.0]);
        let pairs = terms_in_tiles(LONG, Mask::Causal, [64, 8, 1], 2, 1);
        assert_eq!(pairs[6..8], [16.5, 32.0]);
    }

    #[test]
    fn a_block_takes_half_of_a_tiles_time_though_hardly_any_row_sees_a_key() {
        let blind = Shape {
            seq_kv: 64,
            ..Shape::bhsd(1, 8, 1024, 64)
        };
        let terms = terms_in_tiles(blind, Mask::Causal, [16, 8, 1], 1, 1);
        assert_eq!(terms[6..8], [0.5, 1.0]);
    }

    /// Computes blocks, rounds and elements of rows in clusters of eight with tiles of 64 rows.
    fn terms_in_clusters_of_eight(queries: usize, heads_q: usize, grid: [u32; 3]) -> [f64; 3] {
        let shape = Shape {
            heads_q,
            heads_kv: grid[1] as usize,
            seq_q: queries,
            batch: grid[2] as usize,
            ..Shape::bhsd(1, 1, 512, 64)
        };
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let blocks = Blocks {
            grid,
            deals_rows: false,
            resident: 1,
        };
        let all = terms(&problem, &kernel(8, 64, 8), blocks, 132);
        [all[1], all[2], all[8]]
    }

    fn elements(rows: f64) -> f64 {
        rows * 64.0 / 1e3
    }

    #[test]
    fn clusters_of_eight_do_not_fill_a_gpu() {
        assert_eq!(
            terms_in_clusters_of_eight(10, 1, [8, 1, 15]),
            [1.0, 1.0, elements(10.0)]
        );
        assert_eq!(
            terms_in_clusters_of_eight(10, 1, [8, 1, 16]),
            [2.0, 2.0, 2.0 * elements(10.0)]
        );
    }

    #[test]
    fn rows_are_those_that_a_tile_has() {
        // Four heads of a group in one tile, and more rows than one tile has room for.
        assert_eq!(
            terms_in_clusters_of_eight(10, 8, [8, 2, 1]),
            [1.0, 1.0, elements(40.0)]
        );
        assert_eq!(
            terms_in_clusters_of_eight(20, 8, [16, 2, 1]),
            [1.0, 1.0, elements(64.0)]
        );
    }

    #[test]
    fn a_file_of_other_terms_is_refused() {
        let cost = |us: &str| {
            let json = format!(
                r#"{{"variant":"s/v","dtype":"f16","head_dim":64,"resident":1,"us":[{us}]}}"#
            );
            serde_json::from_str::<Cost>(&json).map(|cost| cost.us)
        };
        let coefficients = |count| vec!["0.5"; count].join(",");
        assert_eq!(cost(&coefficients(TERMS)).unwrap(), [0.5; TERMS]);
        for wrong in [&coefficients(TERMS - 1), &coefficients(TERMS + 1), "null"] {
            cost(wrong).unwrap_err();
        }
    }

    #[test]
    fn the_keys_of_causal_tiles_are_counted_without_a_loop() {
        let rows = 64;
        for (queries, keys) in [(512usize, 512), (512, 8192), (1024, 256), (64, 1)] {
            let tiles = queries / rows;
            let visible: Vec<usize> = (1..=tiles)
                .map(|tile| (tile * rows + keys).saturating_sub(queries).min(keys))
                .filter(|keys_of_tile| *keys_of_tile > 0)
                .collect();
            let shape = Shape {
                seq_kv: keys,
                ..Shape::bhsd(1, 8, queries, 64)
            };
            let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
            let blind = blind_tiles(&problem, tiles as u32);
            assert_eq!(blind as usize, tiles - visible.len(), "{queries} {keys}");
            assert_eq!(
                mean_keys(queries as f64, keys as f64, tiles as u32, blind),
                visible.iter().sum::<usize>() as f64 / visible.len() as f64,
                "{queries} {keys}"
            );
        }
    }

    /// They cost their blocks and rows, but no round and no product.
    #[test]
    fn tiles_that_see_no_key_are_in_no_round() {
        let shape = Shape {
            seq_kv: 256,
            ..Shape::bhsd(1, 33, 1024, 64)
        };
        let causal = terms_in_tiles(shape, Mask::Causal, [16, 33, 1], 1, 1);
        assert_eq!(causal[1..3], [4.0, 1.0], "132 of 528 blocks see a key");
        // They see 64, 128, 192 and 256 keys.
        assert_eq!(causal[6..8], [1.25, 2.0]);
        assert_eq!(causal[8], 4.0 * 64.0 * 64.0 / 1e3);
    }

    #[test]
    fn where_rows_are_dealt_twice_as_many_blocks_see_a_key() {
        let rounds = |keys, deals_rows| {
            let shape = Shape {
                seq_kv: keys,
                ..Shape::bhsd(1, 33, 1024, 64)
            };
            let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
            let blocks = Blocks {
                grid: [16, 33, 1],
                deals_rows,
                resident: 1,
            };
            terms(&problem, &kernel(64, 128, 1), blocks, 132)[2]
        };
        // Of 132 blocks a round, those of a quarter of the rows see a key, or of half.
        assert_eq!([rounds(256, false), rounds(256, true)], [1.0, 2.0]);
        assert_eq!([rounds(768, false), rounds(768, true)], [3.0, 4.0]);
    }
}
