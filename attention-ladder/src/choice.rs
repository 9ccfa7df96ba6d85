//! The stages of the library, and what is known of their times.

use common::choice::Model;
use common::stage::{Attention, LoadError, LoadedStage};

/// The stages whose code is in the library, in the order of the ladder.
pub static STAGES: &[&dyn Attention] = &[
    &stage5_swizzle::Swizzle,
    &stage6_tma::Tma,
    &stage7_wgmma::Wgmma,
    &stage8_overlap::Overlap,
    &stage9_cluster::Cluster,
    &stage10_fp8::Fp8,
    &stage11_spread::Spread,
    &stage12_decode::Decode,
    &stage13_shares::Shares,
];

/// The files of `choice/`.
const MODELS: &[&str] = &[
    include_str!("../choice/nvidia-h100-80gb-hbm3.json"),
    include_str!("../choice/nvidia-h200.json"),
];

/// A release needs GPU code: nvcc was not found, and nobody asked for a build without it.
#[cfg(not(debug_assertions))]
const _: () = {
    let wanted = match option_env!("ATTENTION_CUDA") {
        Some(mode) => !matches!(mode.as_bytes(), b"off"),
        None => true,
    };
    assert!(
        !wanted || stage5_swizzle::ARTIFACTS.fatbin.is_some(),
        "attention-ladder has no GPU code: nvcc was not found. Install it with scripts/cuda-toolkit or name it in NVCC; \
         ATTENTION_CUDA=off builds a library that says so when it is called"
    );
};

pub fn stages() -> Result<Vec<LoadedStage>, LoadError> {
    STAGES
        .iter()
        .map(|&stage| LoadedStage::load(stage))
        .collect()
}

pub fn models() -> Vec<Model> {
    let parse = |text: &&str| serde_json::from_str(text).expect("a test reads it");
    MODELS.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::choice::{Chooser, Cost, Gpu, TERMS, Wanted};
    use common::limits::DeviceLimits;
    use common::problem::{Dtype, Mask, Problem, Shape, parse_shape};
    use common::stage::Unsupported;
    use std::collections::BTreeSet;

    const H200: Device<'_> = Device("NVIDIA H200", "sm_90", 132);

    /// A name, its architecture and number of multiprocessors.
    #[derive(Clone, Copy)]
    struct Device<'a>(&'a str, &'a str, u32);

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
                name: self.0.into(),
                capability: self.1.parse::<DeviceLimits>().unwrap().capability,
                multiprocessors: self.2,
            }
        }

        fn stages(self) -> Vec<LoadedStage> {
            let mut stages = stages().unwrap();
            let limits = self.1.parse().ok();
            stages.iter_mut().for_each(|stage| stage.device = limits);
            stages
        }

        fn chosen(self, problem: &Problem, wanted: Wanted) -> Result<String, Unsupported> {
            let stages = self.stages();
            let chooser = Chooser::new(&stages, &models(), &self.gpu());
            let (stage, prepared) = chooser.choose(&stages, problem, wanted)?;
            let wanted = Wanted {
                lse: true,
                ..wanted
            };
            let (with_lse, asked) = chooser.choose(&stages, problem, wanted)?;
            assert!(asked.lse);
            if prepared.kernel.lse {
                assert_eq!(
                    (with_lse.info().id, &asked.kernel.variant),
                    (stage.info().id, &prepared.kernel.variant),
                    "what writes log-sum-exps is taken for both"
                );
            }
            Ok(format!("{}/{}", stage.info().id, prepared.kernel.variant))
        }

        /// The variant for the mission shape.
        fn chosen_by(self, models: &[Model], dtype: Dtype) -> String {
            let stages = self.stages();
            let chooser = Chooser::new(&stages, models, &self.gpu());
            let chosen = chooser.choose(&stages, &mission(dtype), Wanted::default());
            chosen.unwrap().1.kernel.variant.clone()
        }

        fn of(self, shape: &str, dtype: Dtype, mask: Mask) -> String {
            let problem = Problem::new(parse_shape(shape).unwrap(), dtype, mask).unwrap();
            self.chosen(&problem, Wanted::default()).unwrap()
        }
    }

    #[test]
    fn every_file_of_choice_is_in_the_library_small_and_knows_its_stages() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/choice");
        let on_disk = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(
            on_disk,
            MODELS.len(),
            "a file of choice/ is missing in MODELS"
        );
        let stages = stages().unwrap();
        for (text, model) in MODELS.iter().zip(models()) {
            assert!(text.len() <= 12_000, "{}: {} bytes", model.gpu, text.len());
            for Cost { variant, .. } in &model.costs {
                let (id, name) = variant.split_once('/').unwrap();
                let stage = stages.iter().find(|stage| stage.info().id == id);
                let is_linked = stage.is_some_and(|stage| stage.family_of(name).is_some());
                assert!(is_linked, "{}: {variant} is not in the library", model.gpu);
            }
            let costs = model.costs.iter();
            let sizes: BTreeSet<_> = costs.map(|cost| (cost.dtype, cost.head_dim)).collect();
            assert_eq!(sizes.len(), 4, "{}: {sizes:?}", model.gpu);
        }
    }

    /// What `choice/` chose wrongly when it was a list of a few problems, of which the nearest decided: all but mission on an H100.
    #[test]
    fn a_problem_that_was_never_timed_is_chosen_for_by_its_own_blocks() {
        let of = |shape, dtype, mask| H200.of(shape, dtype, mask);
        assert!(of("mission", Dtype::F16, Mask::Full).starts_with("stage9-cluster/"));
        // One-warpgroup blocks that share keys are for grids that do not fill the GPU.
        for shape in ["1x32x1024x128", "1x8x2048x128"] {
            let name = of(shape, Dtype::F16, Mask::Full);
            assert!(!name.starts_with("stage9-"), "{shape}: {name}");
        }
        // Half of the warpgroups of 256 rows would have none.
        let bert = of("32x16x128x64", Dtype::F16, Mask::Full);
        assert!(!bert.contains("256x64"), "{bert}");
        // 96 blocks of 192 rows leave a quarter of the GPU idle.
        let chunk = of("1x32:8x512:8192x128", Dtype::Bf16, Mask::Causal);
        assert!(
            !chunk.contains("256x64") && !chunk.starts_with("stage9-"),
            "{chunk}"
        );
    }

    #[test]
    fn another_gpu_is_chosen_for_by_its_own_number_of_multiprocessors() {
        // 128 blocks of 32 rows: one round of 132 multiprocessors, four of 32.
        let of = |multiprocessors| {
            Device("another", "sm_90", multiprocessors).of("mission", Dtype::F16, Mask::Full)
        };
        assert_eq!(of(132), H200.of("mission", Dtype::F16, Mask::Full));
        assert_ne!(of(132), of(32));
        // The nearest capability, then the nearest size.
        let models = [
            ("H200", 90, 132, "swizzle-64x64"),
            ("small", 90, 60, "swizzle-128x64"),
            ("L4", 89, 58, "swizzle-32x128-k4"),
        ]
        .map(|(gpu, capability, multiprocessors, variant)| {
            let cost = cost(&format!("stage5-swizzle/{variant}"), 1.0);
            model(gpu, capability, multiprocessors, vec![cost])
        });
        let chosen = |device: Device<'_>| device.chosen_by(&models, Dtype::F16);
        assert_eq!(chosen(Device("H200", "sm_90", 60)), "swizzle-64x64");
        assert_eq!(chosen(Device("H20", "sm_90", 78)), "swizzle-128x64");
        assert_eq!(chosen(Device("A100", "sm_80", 108)), "swizzle-32x128-k4");
    }

    #[test]
    fn batch_and_heads_choose_nothing_where_a_batch_is_to_change_no_bit() {
        let invariant = Wanted {
            batch_invariant: true,
            ..Wanted::default()
        };
        let (mut fastest, mut by_length) = (BTreeSet::new(), BTreeSet::new());
        let sizes = Dtype::ALL
            .iter()
            .flat_map(|&dtype| [(dtype, 64), (dtype, 128)]);
        for (dtype, head_dim) in sizes {
            for seq in [17, 512, 2048, 4096] {
                let mut of_length = BTreeSet::new();
                for (batch, heads_q, heads_kv) in [(1, 1, 1), (1, 32, 8), (32, 8, 8), (64, 64, 1)] {
                    let shape = Shape {
                        batch,
                        heads_q,
                        heads_kv,
                        ..Shape::bhsd(1, 1, seq, head_dim)
                    };
                    let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
                    fastest.insert(H200.chosen(&problem, Wanted::default()).unwrap());
                    of_length.insert(H200.chosen(&problem, invariant).unwrap());
                }
                assert_eq!(
                    of_length.len(),
                    1,
                    "{dtype} {seq}x{head_dim}: {of_length:?}"
                );
                by_length.append(&mut of_length);
            }
        }
        assert!(by_length.len() > 1 && fastest.len() > by_length.len());
    }

    /// Costs of one term each.
    fn models_of(costs: [(&str, usize, f64, u32); 2]) -> [Model; 1] {
        let costs = costs.map(|(variant, term, each, resident)| {
            let mut us = [0.0; TERMS];
            us[term] = each;
            Cost {
                us,
                resident,
                ..cost(&format!("stage5-swizzle/{variant}"), 0.0)
            }
        });
        [model("GPU", 90, 4, costs.into())]
    }

    #[test]
    fn key_heads_choose_nothing_where_a_batch_is_to_change_no_bit() {
        // Megabytes against 6 µs: 4.3 with one key head, 8.4 with 32.
        let models = models_of([("swizzle-64x64", 5, 1.0, 1), ("swizzle-128x64", 0, 6.0, 1)]);
        let device = Device("GPU", "sm_90", 4);
        let stages = device.stages();
        let chooser = Chooser::new(&stages, &models, &device.gpu());
        let chosen = |batch_invariant| {
            [1, 32].map(|heads_kv| {
                let shape = Shape {
                    heads_kv,
                    ..Shape::bhsd(1, 32, 512, 64)
                };
                let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
                let wanted = Wanted {
                    batch_invariant,
                    ..Wanted::default()
                };
                let (_, prepared) = chooser.choose(&stages, &problem, wanted).unwrap();
                prepared.kernel.variant.clone()
            })
        };
        assert_eq!(chosen(false), ["swizzle-64x64", "swizzle-128x64"]);
        assert_eq!(chosen(true), ["swizzle-128x64"; 2]);
    }

    #[test]
    fn blocks_that_a_multiprocessor_holds_together_are_one_round() {
        // Of 64 blocks four multiprocessors have 16 rounds, or 4 with four resident; of 32 they have 8.
        let chosen = |resident| {
            let models = models_of([
                ("swizzle-128x64", 2, 1.0, 1),
                ("swizzle-64x64", 2, 1.0, resident),
            ]);
            Device("GPU", "sm_90", 4).chosen_by(&models, Dtype::F16)
        };
        assert_eq!([1, 4].map(chosen), ["swizzle-128x64", "swizzle-64x64"]);
    }

    #[test]
    fn bf16_takes_what_is_the_fastest_in_f16_of_the_variants_that_have_it() {
        for shape in ["mission", "wide", "long", "big", "1x32:8x512:8192x128"] {
            let [f16, bf16] =
                [Dtype::F16, Dtype::Bf16].map(|dtype| H200.of(shape, dtype, Mask::Full));
            assert_eq!(f16, bf16, "{shape}");
        }
        // What has no bf16 is passed over.
        let costs = [("swizzle-64x64", 1.0), ("swizzle-128x64", 2.0)]
            .map(|(variant, us)| cost(&format!("stage5-swizzle/{variant}"), us));
        let models = [model(H200.0, 90, 132, costs.into())];
        let chosen = [Dtype::F16, Dtype::Bf16].map(|dtype| H200.chosen_by(&models, dtype));
        assert_eq!(chosen, ["swizzle-64x64", "swizzle-128x64"]);
    }

    #[test]
    fn what_is_fastest_and_lacks_what_is_asked_for_is_passed_over_or_refused_in_the_words_of_compare()
     {
        let load = |stage| LoadedStage::load(stage).unwrap();
        let stages = [
            load(&stage0_scalar::Scalar as &dyn Attention),
            load(&stage5_swizzle::Swizzle),
        ];
        let scalar = stage0_scalar::Scalar.info();
        let costs = vec![cost(
            &format!("{}/{}", scalar.id, scalar.default_variant),
            1.0,
        )];
        let models = [model("GPU", 90, 132, costs)];
        let asked = |stages: &[LoadedStage], dtype, wanted: Wanted| {
            let chooser = Chooser::new(stages, &models, &Device("GPU", "sm_90", 132).gpu());
            let chosen = chooser.choose(stages, &mission(dtype), wanted);
            chosen
                .map(|(stage, _)| stage.info().id)
                .map_err(|refusal| refusal.to_string())
        };
        let (first, later) = (Ok("stage0-scalar"), Ok("stage5-swizzle"));
        let plain = Wanted::default();
        let with_lse = Wanted { lse: true, ..plain };
        // With log-sum-exps or without, the kernel is the same.
        let invariant = Wanted {
            batch_invariant: true,
            ..plain
        };
        assert_eq!(asked(&stages, Dtype::F16, plain), first);
        assert_eq!(asked(&stages, Dtype::F16, with_lse), later);
        assert_eq!(asked(&stages, Dtype::F16, invariant), later);
        assert_eq!(asked(&stages, Dtype::Bf16, plain), later);
        asked(&stages[..1], Dtype::F16, invariant).unwrap_err();
        let refused = |dtype| asked(&stages[..1], dtype, with_lse).unwrap_err();
        let words = refused(Dtype::F16);
        assert!(words.ends_with(" writes no log-sum-exps; ask for the output alone, or take a variant of another stage"), "{words}");
        let words = refused(Dtype::Bf16);
        assert!(
            words.ends_with(" is not compiled for bf16 with head_dim 64"),
            "{words}"
        );
    }

    #[test]
    fn every_device_from_ampere_on_has_a_variant_for_every_problem() {
        for device in ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"] {
            for dtype in Dtype::ALL {
                for shape in ["1x1x1x128", "7x32x5000x64"] {
                    let name = Device("another", device, 58).of(shape, dtype, Mask::Full);
                    assert!(
                        device == "sm_90" || name.starts_with("stage5-"),
                        "{device}: {name}"
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
        stages.iter_mut().for_each(|stage| stage.device = Some(old));
        let gpu = Gpu {
            capability: 75,
            ..Device("NVIDIA T4", "sm_80", 40).gpu()
        };
        let chooser = Chooser::new(&stages, &models(), &gpu);
        let chosen = chooser.choose(&stages, &mission(Dtype::F16), Wanted::default());
        let error = chosen.unwrap_err().to_string();
        assert!(
            error.ends_with("needs compute capability 8.0; the device has compute capability 7.5"),
            "{error}"
        );
    }
}
