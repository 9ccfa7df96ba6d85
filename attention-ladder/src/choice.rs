//! Which variant takes a problem on a device.

use common::problem::Problem;
use common::stage::{Attention, LoadError, LoadedStage, Prepared, Unsupported};
use common::tuning::TuningCache;

/// The stages whose code is in the library, in the order of the ladder.
pub static STAGES: &[&dyn Attention] = &[
    &stage5_swizzle::Swizzle,
    &stage6_tma::Tma,
    &stage7_wgmma::Wgmma,
    &stage8_overlap::Overlap,
    &stage9_cluster::Cluster,
];

/// The files of `tune/`.
const TUNED: &[&str] = &[include_str!("../../tune/nvidia-h200.json")];

/// What a release must have is GPU code: nvcc was not found, and nobody asked for a build without it.
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

/// The stages, read.
pub fn stages() -> Result<Vec<LoadedStage>, LoadError> {
    STAGES
        .iter()
        .map(|&stage| LoadedStage::load(stage))
        .collect()
}

/// What is known of GPUs.
pub fn tuned() -> Vec<TuningCache> {
    let parse = |text: &&str| serde_json::from_str(text).expect("a test reads it");
    TUNED.iter().map(parse).collect()
}

/// The variant that takes `problem`: on a GPU of this name the fastest at the problem nearest to it, where nothing is known of
/// such a GPU the same of another, and where that runs none of them any, the last stage's first.
///
/// # Errors
/// Why the last that was tried is refused: of the earliest stage, which runs on most devices.
pub fn choose<'a>(
    stages: &'a [LoadedStage],
    tuned: &[TuningCache],
    gpu: &str,
    problem: &Problem,
) -> Result<(&'a LoadedStage, Prepared<'a>), Unsupported> {
    let of = |own: bool| tuned.iter().filter(move |cache| (cache.gpu == gpu) == own);
    let known = of(true)
        .chain(of(false))
        .flat_map(|cache| cache.nearest(problem));
    let any = stages.iter().rev().flat_map(|stage| {
        let names = std::iter::once(stage.default_variant()).chain(stage.variants());
        names.map(|variant| (stage.info().id, variant))
    });
    let mut refused = None;
    for (id, variant) in known.chain(any) {
        // `tune/` knows stages that are not in the library.
        let Some(stage) = stages.iter().find(|stage| stage.info().id == id) else {
            continue;
        };
        match stage.prepare(variant, problem) {
            Ok(prepared) => return Ok((stage, prepared)),
            Err(reason) => refused = Some(reason),
        }
    }
    Err(refused.expect("every stage has a default variant"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::limits::DeviceLimits;
    use common::problem::{Dtype, Mask, Shape};

    /// What is chosen on a GPU of this name that is a `device`.
    fn chosen(gpu: &str, device: &str, shape: Shape, dtype: Dtype) -> Result<String, Unsupported> {
        let mut stages = stages().unwrap();
        let limits: DeviceLimits = device.parse().unwrap();
        stages
            .iter_mut()
            .for_each(|stage| stage.device = Some(limits));
        let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
        let (stage, prepared) = choose(&stages, &tuned(), gpu, &problem)?;
        Ok(format!("{}/{}", stage.info().id, prepared.kernel.variant))
    }

    #[test]
    fn every_file_of_tune_is_in_the_library_and_knows_its_stages() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tune");
        let on_disk = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(on_disk, TUNED.len(), "a file of tune/ is missing in TUNED");
        for cache in tuned() {
            assert_eq!(cache.schema, common::tuning::SCHEMA);
            let fastest = |entry: &common::tuning::Entry| {
                let same = |other: &&common::tuning::Entry| {
                    (other.shape, other.dtype, other.mask) == (entry.shape, entry.dtype, entry.mask)
                };
                let rivals = cache.entries.iter().filter(same);
                rivals
                    .min_by(|a, b| a.best[0].p50_us.total_cmp(&b.best[0].p50_us))
                    .unwrap()
                    .stage
                    .clone()
            };
            for stage in cache.entries.iter().map(fastest) {
                assert!(
                    STAGES.iter().any(|linked| linked.info().id == stage),
                    "{stage} is the fastest at a problem of tune/ and not in the library"
                );
            }
        }
    }

    #[test]
    fn the_fastest_of_the_problem_is_taken_and_elsewhere_of_the_nearest() {
        let mission = Shape::bhsd(1, 8, 512, 64);
        let ragged = Shape::bhsd(1, 8, 499, 64);
        let best = chosen("NVIDIA H200", "sm_90", mission, Dtype::F16).unwrap();
        assert_eq!(
            chosen("NVIDIA H200", "sm_90", ragged, Dtype::F16).unwrap(),
            best
        );
        assert_eq!(
            chosen("NVIDIA H100 80GB HBM3", "sm_90", mission, Dtype::F16).unwrap(),
            best
        );
    }

    #[test]
    fn every_device_from_ampere_on_has_a_variant_for_every_problem() {
        for device in ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"] {
            for dtype in Dtype::ALL {
                for shape in [Shape::bhsd(1, 1, 1, 128), Shape::bhsd(7, 32, 5000, 64)] {
                    let name = chosen("another", device, shape, dtype).unwrap();
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
        let problem = Problem::new(Shape::bhsd(1, 8, 512, 64), Dtype::F16, Mask::Full).unwrap();
        let error = choose(&stages, &tuned(), "NVIDIA T4", &problem)
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("needs compute capability 8.0; the device has compute capability 7.5"),
            "{error}"
        );
    }
}
