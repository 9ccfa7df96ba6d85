//! Which variant gets a problem: the fastest by a model whose coefficients are fitted to measurements on one GPU (`compare
//! accept`); they serve other GPUs with their own number of multiprocessors.

use crate::problem::{Dtype, Mask, Problem};
use crate::resources::KernelFacts;
use crate::stage::{Kernel, LoadedStage, Prepared, Unsupported};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub lse: bool,
    pub batch_invariant: bool,
}

pub const TERMS: usize = 9;

/// What a launch's time is a sum of, each times a coefficient: the launch itself; blocks of the busiest multiprocessor; rounds
/// of resident blocks; millions of multiply-adds of the busiest multiprocessor, and of the longest chain of blocks; millions of
/// bytes; multiply-adds if all blocks were the mean, and if all were the longest: a kernel that balances its blocks under a
/// causal mask lies between; thousands of elements of the rows that the blocks have, however many they have room for: Q comes in,
/// O goes out, and a cluster merges its parts.
pub fn terms(
    problem: &Problem,
    kernel: &KernelFacts,
    grid: [u32; 3],
    resident: u32,
    multiprocessors: u32,
) -> [f64; TERMS] {
    let shape = &problem.shape;
    // The blocks of a cluster share the keys of as many tiles of rows.
    let parts = kernel.cluster;
    let rows_of_tile = kernel.block_m * parts as usize;
    let keys_of_tile = kernel.block_n * parts as usize;
    let tiles = grid[0] / parts;
    let clusters = u64::from(tiles) * u64::from(grid[1]) * u64::from(grid[2]);
    // Pairs fill a GPU; clusters of eight leave multiprocessors of its parts idle: 132 hold 15.
    let held = (multiprocessors - multiprocessors.min(parts.saturating_sub(2))) / parts;
    let held = u64::from(held.max(1));
    let per_multiprocessor = clusters.div_ceil(held) as f64;
    let rounds = clusters.div_ceil(held * u64::from(resident)) as f64;
    let longest = shape.seq_kv.div_ceil(keys_of_tile) as f64;
    let (mean, share) = match problem.mask {
        Mask::Full => (longest, per_multiprocessor),
        // Long blocks start first and short ones fill the last round.
        Mask::Causal => {
            let mean = mean_keys(shape.seq_q as f64, shape.seq_kv as f64, f64::from(tiles));
            let mean = (mean / keys_of_tile as f64).clamp(0.5, longest);
            (mean, clusters as f64 / held as f64)
        }
    };
    // Heads of a group may be rows of one tile.
    let rows = shape.seq_q * shape.heads_q / grid[1] as usize;
    let of_tile = (kernel.block_m * keys_of_tile * shape.head_dim) as f64 / 1e6;
    let of_rows = (rows.min(rows_of_tile) * shape.head_dim) as f64 / 1e3;
    [
        1.0,
        per_multiprocessor,
        rounds,
        longest.max(share * mean) * of_tile,
        longest.max(rounds * mean) * of_tile,
        problem.min_bytes() as f64 / 1e6,
        per_multiprocessor * mean * of_tile,
        per_multiprocessor * longest * of_tile,
        per_multiprocessor * of_rows,
    ]
}

/// Of the keys that the last row of each of so many tiles sees under a causal mask.
fn mean_keys(queries: f64, keys: f64, tiles: f64) -> f64 {
    let (rows, before) = (queries / tiles, keys - queries);
    let blind = ((-before / rows).max(0.0) as u64 as f64).min(tiles - 1.0);
    let sighted = (tiles - 1.0 - blind).max(0.0);
    (sighted * (rows * (tiles + blind) / 2.0 + before) + keys) / tiles
}

/// The coefficients of the variants that are the fastest somewhere on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub gpu: String,
    /// Times ten: 90.
    pub capability: u32,
    pub multiprocessors: u32,
    pub costs: Vec<Cost>,
}

/// Of the instances of a variant: in f16 and bf16, or in E4M3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// `stage8-overlap/overlap-lazy-64x128`.
    pub variant: String,
    /// f16 stands for bf16, too.
    pub dtype: Dtype,
    pub head_dim: usize,
    /// Blocks that a multiprocessor holds.
    pub resident: u32,
    /// Microseconds per unit of [`terms`].
    pub us: [f64; TERMS],
}

/// The element type whose coefficients an instance has: bf16 takes 0.985 to 1.022 times as long as f16 on an H200.
pub fn modelled(dtype: Dtype) -> Dtype {
    match dtype {
        Dtype::Bf16 => Dtype::F16,
        other => other,
    }
}

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
    /// By element type and head size.
    candidates: BTreeMap<(Dtype, usize), Vec<Candidate>>,
}

/// What does not depend on the batch is chosen as if it were one sequence of so many heads, and writes log-sum-exps, wanted or not.
const INVARIANT_HEADS: usize = 32;

impl Chooser {
    /// By the model of the GPU's name, else of the nearest capability, then of the nearest number of multiprocessors. The devices of
    /// `stages` are set.
    pub fn new(stages: &[LoadedStage], models: &[Model], gpu: &Gpu) -> Self {
        let distance = |model: &&Model| {
            (
                model.gpu != gpu.name,
                model.capability.abs_diff(gpu.capability),
                model.multiprocessors.abs_diff(gpu.multiprocessors),
            )
        };
        let nearest = models.iter().min_by_key(distance);
        let mut candidates: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for cost in nearest.iter().flat_map(|model| &model.costs) {
            // A model may know stages that are not loaded, as in a test that loads a few.
            for (at, stage) in stages.iter().enumerate() {
                let is_its =
                    |name: &str| cost.variant.split_once('/') == Some((stage.info().id, name));
                for (index, kernel) in stage.kernels.iter().enumerate() {
                    let is_known = (modelled(kernel.dtype), kernel.head_dim)
                        == (cost.dtype, cost.head_dim)
                        && is_its(&kernel.variant);
                    if is_known && stage.refuse(kernel).is_ok() {
                        let instances = candidates.entry((kernel.dtype, kernel.head_dim));
                        instances.or_default().push(Candidate {
                            stage: at,
                            kernel: index,
                            resident: cost.resident,
                            us: cost.us,
                        });
                    }
                }
            }
        }
        Self {
            multiprocessors: gpu.multiprocessors,
            candidates,
        }
    }

    /// The variant that supports `problem`, with log-sum-exps if wanted: the fastest by the model, else the last stage's first.
    /// Errors: why the earliest stage, which runs on most devices, refuses it.
    pub fn choose<'a>(
        &self,
        stages: &'a [LoadedStage],
        problem: &Problem,
        wanted: Wanted,
    ) -> Result<(&'a LoadedStage, Prepared<'a>), Unsupported> {
        let writes_lse = wanted.lse || wanted.batch_invariant;
        let mut chosen_by = *problem;
        if wanted.batch_invariant {
            chosen_by.shape.batch = 1;
            chosen_by.shape.heads_q = INVARIANT_HEADS;
            chosen_by.shape.heads_kv = INVARIANT_HEADS;
        }
        let mut best: Option<(f64, &LoadedStage, &Kernel)> = None;
        let instances = self
            .candidates
            .get(&(problem.dtype, problem.shape.head_dim));
        for candidate in instances.into_iter().flatten() {
            let stage = &stages[candidate.stage];
            let kernel = &stage.kernels[candidate.kernel];
            if writes_lse && !kernel.lse || stage.attention.accepts(kernel, problem).is_err() {
                continue;
            }
            let grid = stage.attention.grid(kernel, &chosen_by);
            let terms = terms(
                &chosen_by,
                kernel,
                grid,
                candidate.resident,
                self.multiprocessors,
            );
            let us = terms
                .iter()
                .zip(&candidate.us)
                .map(|(term, us)| term * us)
                .sum();
            if best.is_none_or(|(least, ..)| us < least) {
                best = Some((us, stage, kernel));
            }
        }
        let lse = |prepared: Prepared<'a>| match writes_lse {
            true => prepared.with_lse(),
            false => Ok(prepared),
        };
        if let Some((_, stage, kernel)) = best {
            return Ok((stage, lse(stage.launch(kernel, problem)?)?));
        }
        let mut refused = None;
        for stage in stages.iter().rev() {
            let names = std::iter::once(stage.default_variant()).chain(stage.variants());
            for variant in names {
                match stage.prepare(variant, problem).and_then(lse) {
                    Ok(prepared) => return Ok((stage, prepared)),
                    Err(reason) => refused = Some(reason),
                }
            }
        }
        Err(refused.expect("every stage has a default variant"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Shape;
    use crate::reference::Probability;

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

    /// In tiles of 64 rows and 128 keys, of 8,192 multiply-adds times head_dim.
    fn of(shape: Shape, mask: Mask, grid: [u32; 3], cluster: u32, resident: u32) -> [f64; TERMS] {
        let problem = Problem::new(shape, Dtype::F16, mask).unwrap();
        let kernel = kernel(64 / cluster as usize, 128, cluster);
        let mut terms = terms(&problem, &kernel, grid, resident, 132);
        for at in [3, 4, 6, 7] {
            terms[at] = (terms[at] * 1e12 / 8192.0 / 64.0).round() / 1e6;
        }
        terms
    }

    #[test]
    fn a_launch_is_rounds_of_blocks_and_each_a_chain_of_tiles() {
        let mission = Shape::bhsd(1, 8, 512, 64);
        assert_eq!(
            of(mission, Mask::Full, [8, 8, 1], 1, 1)[..5],
            [1.0, 1.0, 1.0, 4.0, 4.0]
        );
        // 512 blocks, of which an SM gets four and holds three.
        let stretch = Shape::bhsd(4, 16, 512, 64);
        assert_eq!(
            of(stretch, Mask::Full, [8, 16, 4], 1, 3)[..5],
            [1.0, 4.0, 2.0, 16.0, 8.0]
        );
        assert_eq!(
            of(mission, Mask::Full, [16, 8, 1], 2, 1)[..5],
            [1.0, 1.0, 1.0, 2.0, 2.0]
        );
        // 66 pairs fill 132 multiprocessors, and of three tiles of keys one of them has two.
        let pairs = Shape {
            seq_kv: 384,
            ..Shape::bhsd(1, 66, 64, 64)
        };
        assert_eq!(
            of(pairs, Mask::Full, [2, 66, 1], 2, 1)[..5],
            [1.0, 1.0, 1.0, 2.0, 2.0]
        );
        // Of a causal mask the longest block, or the mean of many: (1 + .. + 32) / 32 * 64 keys.
        let long = Shape::bhsd(1, 8, 2048, 64);
        let causal = of(long, Mask::Causal, [32, 8, 1], 1, 1);
        assert_eq!(causal[3..5], [256.0 / 132.0 * 8.25, 2.0 * 8.25]);
        assert_eq!(of(mission, Mask::Causal, [8, 8, 1], 1, 1)[3..5], [4.0, 4.0]);
        // All of an SM's blocks, were each the mean or the longest.
        assert_eq!(of(long, Mask::Causal, [32, 8, 1], 1, 3)[6..8], [16.5, 32.0]);
        assert_eq!(of(long, Mask::Causal, [64, 8, 1], 2, 1)[6..8], [16.5, 32.0]);
        // A block takes half of a tile's time, though hardly any row sees a key.
        let blind = Shape {
            seq_kv: 64,
            ..Shape::bhsd(1, 8, 1024, 64)
        };
        assert_eq!(of(blind, Mask::Causal, [16, 8, 1], 1, 1)[6..8], [0.5, 1.0]);
        assert_eq!(
            of(mission, Mask::Full, [8, 8, 1], 1, 1)[5],
            4.0 * 8.0 * 512.0 * 128.0 / 1e6
        );
    }

    #[test]
    fn clusters_of_eight_do_not_fill_a_gpu_and_rows_are_those_that_a_tile_has() {
        let of = |queries, heads_q, grid: [u32; 3]| {
            let shape = Shape {
                heads_q,
                heads_kv: grid[1] as usize,
                seq_q: queries,
                batch: grid[2] as usize,
                ..Shape::bhsd(1, 1, 512, 64)
            };
            let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
            let terms = terms(&problem, &kernel(8, 64, 8), grid, 1, 132);
            [terms[1], terms[2], terms[8]]
        };
        let elements = |rows: f64| rows * 64.0 / 1e3;
        assert_eq!(of(10, 1, [8, 1, 15]), [1.0, 1.0, elements(10.0)]);
        assert_eq!(of(10, 1, [8, 1, 16]), [2.0, 2.0, 2.0 * elements(10.0)]);
        // Four heads of a group in one tile, and more rows than one tile has room for.
        assert_eq!(of(10, 8, [8, 2, 1]), [1.0, 1.0, elements(40.0)]);
        assert_eq!(of(20, 8, [16, 2, 1]), [1.0, 1.0, elements(64.0)]);
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
        for (queries, keys, rows) in [
            (512, 512, 64),
            (512, 8192, 64),
            (1024, 256, 64),
            (64, 1, 64),
        ] {
            let tiles = queries / rows;
            let seen = |tile: usize| ((tile + 1) * rows + keys).saturating_sub(queries).min(keys);
            let counted = (0..tiles).map(seen).sum::<usize>() as f64 / tiles as f64;
            let [queries, keys, tiles] = [queries, keys, tiles].map(|of| of as f64);
            assert_eq!(mean_keys(queries, keys, tiles), counted, "{queries} {keys}");
        }
    }
}
