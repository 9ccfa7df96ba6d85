//! The stages of the library, and the models of their times.

use common::choice::{Model, retain_listed};
use common::problem::{Mask, Problem};
use common::stage::{Attention, LoadError, LoadedStage};

/// The stages whose code is in the library, in the order of the ladder.
pub static STAGES: &[&dyn Attention] = &[
    &stage3_wmma_pv::WmmaPv,
    &stage4_warpspec::WarpSpec,
    &stage5_swizzle::Swizzle,
    &stage7_wgmma::Wgmma,
    &stage9_cluster::Cluster,
    &stage10_fp8::Fp8,
    &stage11_spread::Spread,
    &stage12_decode::Decode,
    &stage13_persistent::Persistent,
];

/// The variants that the library chooses among, one STAGE/VARIANT a line. Few suffice: over 1,536
/// random problems on an H200 what it chooses among these 20 takes 1.015 times as long as the
/// fastest variant of all stages on average, and 1.353 times at worst.
pub const VARIANTS: &str = include_str!("../choice/variants.txt");

/// The rows of a tile of `served-64x128`, 16 for each query head or all of one.
const DECODE_ROWS: usize = 64;

/// The most rows, of all heads and sequences, that the small tile is for: larger ones are fewer than
/// SMs. On an H200 it takes 7.9 µs at mission, where tiles of 192 rows take 12.9, and 22.8 at long
/// under the causal mask, where they take 30.5; at stretch, of twice as many rows, 21.5 and 19.4.
const FEW_ROWS: usize = 1 << 14;

/// The head_dim up to which tiles of 128 keys leave registers for three warpgroups.
const NARROW_HEAD_DIM: usize = 64;

/// The most keys of a window that pays with tiles of 64 of them.
const NARROW_WINDOW: u32 = 512;

/// Returns the variant of stage 14 for sequences. Where the queries of all heads that read the same
/// keys fit into 64 rows, the smaller tile has half of the products and more keys on their way; few
/// rows fill more SMs with it. All else goes to three warpgroups, which hide exponentials better
/// than two in turns. Keys in E4M3 have two variants: the same small tile, and one for all else.
pub fn served_variant(problem: &Problem) -> &'static str {
    let shape = &problem.shape;
    let group = shape.heads_q / shape.heads_kv;
    let is_decode = matches!(group, 1 | 2 | 4) && shape.seq_q * group <= DECODE_ROWS;
    let is_small = shape.batch * shape.heads_q * shape.seq_q <= FEW_ROWS;
    let has_small_tile = is_decode || is_small;
    if shape.serving.cache.is_some() {
        return if has_small_tile {
            "cached-64x128"
        } else {
            "cached-128x128"
        };
    }
    if has_small_tile {
        "served-64x128"
    } else if shape.head_dim <= NARROW_HEAD_DIM && !has_narrow_window(problem) {
        "served-128x128"
    } else {
        "served-192x64"
    }
}

/// Whether each query sees at most [`NARROW_WINDOW`] keys.
fn has_narrow_window(problem: &Problem) -> bool {
    let window = problem.shape.serving.window;
    let behind = match problem.mask {
        Mask::Causal => Some(0),
        Mask::Full => window.right,
    };
    match (window.left, behind) {
        (Some(left), Some(right)) => left.saturating_add(right) < NARROW_WINDOW,
        _ => false,
    }
}

/// The files of `choice/`.
const MODELS: &[&str] = &[
    include_str!("../choice/nvidia-h100-80gb-hbm3.json"),
    include_str!("../choice/nvidia-h200.json"),
];

/// A release needs GPU code: nvcc was not found, and nobody asked for a build without it.
#[cfg(not(debug_assertions))]
const _: () = {
    let is_wanted = match option_env!("ATTENTION_CUDA") {
        Some(mode) => !matches!(mode.as_bytes(), b"off"),
        None => true,
    };
    assert!(
        !is_wanted || stage5_swizzle::ARTIFACTS.fatbin.is_some(),
        "attention-ladder has no GPU code: nvcc was not found. \
         Install it with scripts/cuda-toolkit or name it in NVCC; \
         ATTENTION_CUDA=off builds a library that says so when it is called"
    );
};

/// Loads the tables of the library's stages, of each its [`VARIANTS`].
pub fn stages() -> Result<Vec<LoadedStage>, LoadError> {
    let mut stages = STAGES
        .iter()
        .map(|&stage| LoadedStage::load(stage))
        .collect::<Result<Vec<_>, _>>()?;
    retain_listed(&mut stages, VARIANTS).expect("a test reads the list");
    Ok(stages)
}

/// Loads the table of the stage that takes sequences; no model chooses it.
pub fn served() -> Result<LoadedStage, LoadError> {
    LoadedStage::load(&stage14_served::Served)
}

/// Reads the models of the GPUs that were measured.
pub fn models() -> Vec<Model> {
    MODELS
        .iter()
        .map(|text| serde_json::from_str(text).expect("a test reads it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::choice::{Choice, Chooser, Cost, Gpu, TERMS, Wanted};
    use common::limits::DeviceLimits;
    use common::problem::{Dtype, Mask, Problem, Shape, parse_shape};
    use common::serving::Cache;
    use common::stage::Unsupported;
    use std::collections::BTreeSet;

    const H200: Device<'_> = Device {
        name: "NVIDIA H200",
        architecture: "sm_90",
        multiprocessors: 132,
    };

    #[derive(Clone, Copy)]
    struct Device<'a> {
        name: &'a str,
        architecture: &'a str,
        multiprocessors: u32,
    }

    fn device<'a>(name: &'a str, architecture: &'a str, multiprocessors: u32) -> Device<'a> {
        Device {
            name,
            architecture,
            multiprocessors,
        }
    }

    fn cost(variant: &str, us: f64) -> Cost {
        Cost {
            variant: variant.into(),
            dtype: Dtype::F16,
            head_dim: 64,
            resident: 1,
            us: [us; TERMS],
        }
    }

    fn model(gpu: &str, capability: u32, multiprocessors: u32, costs: Vec<Cost>) -> Model {
        Model {
            gpu: gpu.into(),
            capability,
            multiprocessors,
            costs,
        }
    }

    fn mission(dtype: Dtype) -> Problem {
        Problem::new(Shape::bhsd(1, 8, 512, 64), dtype, Mask::Full).unwrap()
    }

    impl Device<'_> {
        fn gpu(self) -> Gpu {
            Gpu {
                name: self.name.into(),
                capability: self
                    .architecture
                    .parse::<DeviceLimits>()
                    .unwrap()
                    .capability,
                multiprocessors: self.multiprocessors,
            }
        }

        fn stages(self) -> Vec<LoadedStage> {
            let mut stages = stages().unwrap();
            for stage in &mut stages {
                stage.device = self.architecture.parse().ok();
            }
            stages
        }

        fn choose(self, problem: &Problem, wanted: Wanted) -> Result<String, Unsupported> {
            let stages = self.stages();
            let chooser = Chooser::new(&stages, &models(), &self.gpu());
            let Choice { stage, prepared } = chooser.choose(&stages, problem, wanted)?;
            let wanted_with_lse = Wanted {
                lse: true,
                ..wanted
            };
            let with_lse = chooser.choose(&stages, problem, wanted_with_lse)?;
            assert!(with_lse.prepared.lse);
            if prepared.kernel.lse {
                assert_eq!(
                    (with_lse.stage.info().id, &with_lse.prepared.kernel.variant),
                    (stage.info().id, &prepared.kernel.variant),
                    "a variant that writes log-sum-exps is taken for both"
                );
            }
            Ok(format!("{}/{}", stage.info().id, prepared.kernel.variant))
        }

        /// Returns the variant for the mission shape.
        fn choose_by(self, models: &[Model], dtype: Dtype) -> String {
            let stages = self.stages();
            let chooser = Chooser::new(&stages, models, &self.gpu());
            let choice = chooser
                .choose(&stages, &mission(dtype), Wanted::default())
                .unwrap();
            choice.prepared.kernel.variant.clone()
        }

        fn choose_for(self, shape: &str, dtype: Dtype, mask: Mask) -> String {
            let problem = Problem::new(parse_shape(shape).unwrap(), dtype, mask).unwrap();
            self.choose(&problem, Wanted::default()).unwrap()
        }
    }

    fn variant_of(extents: &str) -> &'static str {
        let shape = parse_shape(extents).unwrap();
        served_variant(&Problem::new(shape, Dtype::Bf16, Mask::Causal).unwrap())
    }

    #[test]
    fn decode_of_a_group_in_one_small_tile_has_the_small_tile() {
        assert_eq!(
            variant_of("8x32:8x1:500x128+packed=even:1:1"),
            "served-64x128"
        );
        assert_eq!(
            variant_of("8x8:8x64:500x64+packed=even:1:1"),
            "served-64x128"
        );
    }

    /// Eight heads would read their keys twice, three would leave rows of a tile empty.
    #[test]
    fn other_groups_and_longer_queries_have_a_large_tile() {
        assert_eq!(
            variant_of("800x64:8x1:500x64+packed=even:1:1"),
            "served-128x128"
        );
        assert_eq!(
            variant_of("2000x24:8x1:500x64+packed=even:1:1"),
            "served-128x128"
        );
        assert_eq!(
            variant_of("80x32:8x17:500x128+packed=even:1:1"),
            "served-192x64"
        );
    }

    #[test]
    fn keys_in_e4m3_have_a_variant_that_reads_them() {
        let of_decode = variant_of("8x32:8x1:500x128+packed=even:1:1+page=64+cache=e4m3");
        assert_eq!(of_decode, "cached-64x128");
        let of_prompts = variant_of("80x32:8x500x128+packed=even:1:1+cache=e4m3");
        assert_eq!(of_prompts, "cached-128x128");
        let stage = served().unwrap();
        for variant in [of_decode, of_prompts] {
            assert_eq!(stage.cache_of(variant), Some(Cache::E4m3), "{variant}");
        }
    }

    #[test]
    fn few_rows_have_the_small_tile() {
        for few in ["1x8x512x64", "1x8x2048x64", "1x8x512x128"] {
            assert_eq!(variant_of(few), "served-64x128", "{few}");
        }
        assert_eq!(variant_of("1x8x2056x64"), "served-128x128");
        assert_eq!(variant_of("4x16x512x64"), "served-128x128");
    }

    #[test]
    fn wide_heads_and_narrow_windows_have_tiles_of_64_keys() {
        assert_eq!(variant_of("16x16x729x72"), "served-192x64");
        assert_eq!(variant_of("1x32:8x4096x128"), "served-192x64");
        assert_eq!(variant_of("1x64:8x4096x64+window=127:*"), "served-192x64");
        assert_eq!(variant_of("1x64:8x4096x64+window=511:*"), "served-192x64");
    }

    #[test]
    fn narrow_heads_have_tiles_of_128_keys() {
        assert_eq!(variant_of("1x64:8x4096x64"), "served-128x128");
        assert_eq!(variant_of("1x64:8x4096x64+window=512:*"), "served-128x128");
        assert_eq!(variant_of("1x64:8x4096x40"), "served-128x128");
    }

    #[test]
    fn every_file_of_choice_is_in_the_library_small_and_knows_its_stages() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/choice");
        let models_on_disk = std::fs::read_dir(folder)
            .unwrap()
            .filter(|entry| {
                let path = entry.as_ref().unwrap().path();
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .count();
        assert_eq!(
            models_on_disk,
            MODELS.len(),
            "a file of choice/ is missing in MODELS"
        );
        let stages = stages().unwrap();
        for (text, model) in MODELS.iter().zip(models()) {
            assert!(text.len() <= 12_000, "{}: {} bytes", model.gpu, text.len());
            for Cost { variant, .. } in &model.costs {
                let (id, name) = variant.split_once('/').unwrap();
                let stage = stages.iter().find(|stage| stage.info().id == id);
                let is_linked = stage.is_some_and(|linked| linked.family_of(name).is_some());
                assert!(is_linked, "{}: {variant} is not in the library", model.gpu);
            }
            let mut sizes = BTreeSet::new();
            for cost in &model.costs {
                sizes.insert((cost.dtype, cost.head_dim));
            }
            assert_eq!(sizes.len(), 4, "{}: {sizes:?}", model.gpu);
        }
    }

    /// The problems for which `choice/` chose wrongly when it was a list of a few problems, of
    /// which the nearest decided: all but mission on an H100.
    #[test]
    fn a_problem_that_was_never_timed_is_chosen_for_by_its_own_blocks() {
        let mission = H200.choose_for("mission", Dtype::F16, Mask::Full);
        assert!(mission.starts_with("stage9-cluster/"), "{mission}");
        // One-warpgroup blocks that share keys are for grids that do not fill the GPU.
        for shape in ["1x32x1024x128", "1x8x2048x128"] {
            let name = H200.choose_for(shape, Dtype::F16, Mask::Full);
            assert!(!name.starts_with("stage9-"), "{shape}: {name}");
        }
        // Half of the warpgroups of 256 rows would have none.
        let bert = H200.choose_for("32x16x128x64", Dtype::F16, Mask::Full);
        assert!(!bert.contains("256x64"), "{bert}");
        // 96 blocks of 192 rows leave a quarter of the GPU idle.
        let chunk = H200.choose_for("1x32:8x512:8192x128", Dtype::Bf16, Mask::Causal);
        assert!(
            !chunk.contains("256x64") && !chunk.starts_with("stage9-"),
            "{chunk}"
        );
    }

    #[test]
    fn another_gpu_is_chosen_for_by_its_own_number_of_multiprocessors() {
        // 128 blocks of 32 rows: one round of 132 multiprocessors, four of 32.
        let choose = |multiprocessors| {
            let another = device("another", "sm_90", multiprocessors);
            another.choose_for("mission", Dtype::F16, Mask::Full)
        };
        let known = H200.choose_for("mission", Dtype::F16, Mask::Full);
        assert_eq!(choose(132), known);
        assert_ne!(choose(132), choose(32));
    }

    #[test]
    fn another_gpu_is_chosen_for_by_the_nearest_capability_then_size() {
        let h200 = vec![cost("stage5-swizzle/swizzle-64x64", 1.0)];
        let small = vec![cost("stage5-swizzle/swizzle-128x64", 1.0)];
        let l4 = vec![cost("stage5-swizzle/swizzle-32x128-k4", 1.0)];
        let models = [
            model("H200", 90, 132, h200),
            model("small", 90, 60, small),
            model("L4", 89, 58, l4),
        ];
        for (device, expected) in [
            (device("H200", "sm_90", 60), "swizzle-64x64"),
            (device("H20", "sm_90", 78), "swizzle-128x64"),
            (device("A100", "sm_80", 108), "swizzle-32x128-k4"),
        ] {
            let variant = device.choose_by(&models, Dtype::F16);
            assert_eq!(variant, expected, "{}", device.name);
        }
    }

    #[test]
    fn batch_and_heads_choose_nothing_where_a_batch_is_to_change_no_bit() {
        let invariant = Wanted {
            batch_invariant: true,
            ..Wanted::default()
        };
        let mut fastest = BTreeSet::new();
        let mut invariant_by_length = BTreeSet::new();
        for dtype in Dtype::ALL {
            for head_dim in [64, 128] {
                for seq in [17, 512, 2048, 4096] {
                    let mut names = BTreeSet::new();
                    for problem in problems_of_length(dtype, head_dim, seq) {
                        fastest.insert(H200.choose(&problem, Wanted::default()).unwrap());
                        names.insert(H200.choose(&problem, invariant).unwrap());
                    }
                    assert_eq!(names.len(), 1, "{dtype} {seq}x{head_dim}: {names:?}");
                    invariant_by_length.append(&mut names);
                }
            }
        }
        assert!(invariant_by_length.len() > 1);
        assert!(fastest.len() > invariant_by_length.len());
    }

    /// Returns problems that differ in their batch and heads alone.
    fn problems_of_length(dtype: Dtype, head_dim: usize, seq: usize) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (batch, heads_q, heads_kv) in [(1, 1, 1), (1, 32, 8), (32, 8, 8), (64, 64, 1)] {
            let shape = Shape {
                batch,
                heads_q,
                heads_kv,
                ..Shape::bhsd(1, 1, seq, head_dim)
            };
            problems.push(Problem::new(shape, dtype, Mask::Full).unwrap());
        }
        problems
    }

    /// Returns the cost of a variant of stage 5 that has one term.
    fn cost_of_term(variant: &str, term: usize, us_each: f64, resident: u32) -> Cost {
        let mut us = [0.0; TERMS];
        us[term] = us_each;
        Cost {
            us,
            resident,
            ..cost(&format!("stage5-swizzle/{variant}"), 0.0)
        }
    }

    #[test]
    fn key_heads_choose_nothing_where_a_batch_is_to_change_no_bit() {
        // Megabytes against 6 µs: 4.3 with one key head, 8.4 with 32.
        let costs = vec![
            cost_of_term("swizzle-64x64", 5, 1.0, 1),
            cost_of_term("swizzle-128x64", 0, 6.0, 1),
        ];
        let models = [model("GPU", 90, 4, costs)];
        let gpu = device("GPU", "sm_90", 4);
        let stages = gpu.stages();
        let chooser = Chooser::new(&stages, &models, &gpu.gpu());
        for (batch_invariant, heads_kv, expected) in [
            (false, 1, "swizzle-64x64"),
            (false, 32, "swizzle-128x64"),
            (true, 1, "swizzle-128x64"),
            (true, 32, "swizzle-128x64"),
        ] {
            let shape = Shape {
                heads_kv,
                ..Shape::bhsd(1, 32, 512, 64)
            };
            let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
            let wanted = Wanted {
                batch_invariant,
                ..Wanted::default()
            };
            let choice = chooser.choose(&stages, &problem, wanted).unwrap();
            assert_eq!(
                choice.prepared.kernel.variant, expected,
                "{heads_kv}, invariant: {batch_invariant}"
            );
        }
    }

    #[test]
    fn blocks_that_a_multiprocessor_holds_together_are_one_round() {
        // Of 64 blocks four multiprocessors have 16 rounds, or 4 with four resident; of 32 they
        // have 8.
        for (resident, expected) in [(1, "swizzle-128x64"), (4, "swizzle-64x64")] {
            let costs = vec![
                cost_of_term("swizzle-128x64", 2, 1.0, 1),
                cost_of_term("swizzle-64x64", 2, 1.0, resident),
            ];
            let models = [model("GPU", 90, 4, costs)];
            let variant = device("GPU", "sm_90", 4).choose_by(&models, Dtype::F16);
            assert_eq!(variant, expected, "{resident}");
        }
    }

    #[test]
    fn bf16_takes_what_is_the_fastest_in_f16_of_the_variants_that_have_it() {
        for shape in ["mission", "wide", "long", "big", "1x32:8x512:8192x128"] {
            let f16 = H200.choose_for(shape, Dtype::F16, Mask::Full);
            let bf16 = H200.choose_for(shape, Dtype::Bf16, Mask::Full);
            assert_eq!(f16, bf16, "{shape}");
        }
        // A variant that has no bf16 is passed over.
        let costs = vec![
            cost("stage5-swizzle/swizzle-64x64", 1.0),
            cost("stage5-swizzle/swizzle-128x64", 2.0),
        ];
        let models = [model(H200.name, 90, 132, costs)];
        assert_eq!(H200.choose_by(&models, Dtype::F16), "swizzle-64x64");
        assert_eq!(H200.choose_by(&models, Dtype::Bf16), "swizzle-128x64");
    }

    /// Chooses among `stages` by a model in which stage 0 is the fastest; returns the stage's id.
    fn choose_scalar_first(
        stages: &[&'static dyn Attention],
        dtype: Dtype,
        wanted: Wanted,
    ) -> Result<&'static str, String> {
        let scalar = stage0_scalar::Scalar.info();
        let variant = format!("{}/{}", scalar.id, scalar.default_variant);
        let models = [model("GPU", 90, 132, vec![cost(&variant, 1.0)])];
        let loaded: Vec<LoadedStage> = stages
            .iter()
            .map(|&stage| LoadedStage::load(stage).unwrap())
            .collect();
        let gpu = device("GPU", "sm_90", 132).gpu();
        let chooser = Chooser::new(&loaded, &models, &gpu);
        match chooser.choose(&loaded, &mission(dtype), wanted) {
            Ok(choice) => Ok(choice.stage.info().id),
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    const PLAIN: Wanted = Wanted {
        lse: false,
        batch_invariant: false,
    };
    const WITH_LSE: Wanted = Wanted { lse: true, ..PLAIN };
    const INVARIANT: Wanted = Wanted {
        batch_invariant: true,
        ..PLAIN
    };

    #[test]
    fn the_fastest_is_passed_over_where_it_lacks_what_is_asked_for() {
        let stages: [&dyn Attention; 2] = [&stage0_scalar::Scalar, &stage5_swizzle::Swizzle];
        for (dtype, wanted, expected) in [
            (Dtype::F16, PLAIN, "stage0-scalar"),
            (Dtype::F16, WITH_LSE, "stage5-swizzle"),
            // With log-sum-exps or without, the kernel is the same.
            (Dtype::F16, INVARIANT, "stage5-swizzle"),
            (Dtype::Bf16, PLAIN, "stage5-swizzle"),
        ] {
            assert_eq!(
                choose_scalar_first(&stages, dtype, wanted),
                Ok(expected),
                "{dtype} {wanted:?}"
            );
        }
    }

    #[test]
    fn the_only_stage_is_refused_where_it_lacks_what_is_asked_for() {
        let stages: [&dyn Attention; 1] = [&stage0_scalar::Scalar];
        choose_scalar_first(&stages, Dtype::F16, INVARIANT).unwrap_err();
        for (dtype, expected) in [
            (
                Dtype::F16,
                " writes no log-sum-exps; \
                 ask for the output alone, or take a variant of another stage",
            ),
            (Dtype::Bf16, " is not compiled for bf16 with head_dim 64"),
        ] {
            let refusal = choose_scalar_first(&stages, dtype, WITH_LSE).unwrap_err();
            assert!(refusal.ends_with(expected), "{refusal}");
        }
    }

    #[test]
    fn every_device_from_ampere_on_has_a_variant_for_every_problem() {
        for architecture in ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"] {
            let another = device("another", architecture, 58);
            for dtype in Dtype::ALL {
                for shape in ["1x1x1x128", "7x32x5000x64"] {
                    let name = another.choose_for(shape, dtype, Mask::Full);
                    assert!(
                        architecture == "sm_90" || name.starts_with("stage5-"),
                        "{architecture}: {name}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_device_that_runs_nothing_is_told_in_the_words_of_compare() {
        let mut stages = stages().unwrap();
        let old = DeviceLimits {
            capability: 75,
            shared_opt_in_bytes: 64 << 10,
        };
        for stage in &mut stages {
            stage.device = Some(old);
        }
        let gpu = Gpu {
            capability: 75,
            ..device("NVIDIA T4", "sm_80", 40).gpu()
        };
        let chooser = Chooser::new(&stages, &models(), &gpu);
        let choice = chooser.choose(&stages, &mission(Dtype::F16), PLAIN);
        let error = choice.unwrap_err().to_string();
        assert!(
            error.ends_with("needs compute capability 8.0; the device has compute capability 7.5"),
            "{error}"
        );
    }
}
