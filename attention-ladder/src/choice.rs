//! Which variant takes a problem on a device.

mod table;

use crate::AttentionLadderCall;
use common::problem::Problem;
use common::stage::{Attention, LoadError, LoadedStage, Prepared, Unsupported};
pub use table::ChoiceTable;

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
];

/// The files of `choice/`.
const TABLES: &[&str] = &[include_str!("../choice/nvidia-h200.json")];

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

/// What is known of GPUs.
pub fn tables() -> Vec<ChoiceTable> {
    let parse = |text: &&str| serde_json::from_str(text).expect("a test reads it");
    TABLES.iter().map(parse).collect()
}

/// What a call asks for in addition to its problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wanted {
    pub lse: bool,
    pub batch_invariant: bool,
}

impl Wanted {
    pub fn of(call: &AttentionLadderCall) -> Self {
        Self {
            lse: !call.lse.is_null(),
            batch_invariant: call.flags & crate::ATTENTION_LADDER_BATCH_INVARIANT != 0,
        }
    }
}

/// What does not depend on the batch is ranked as if it were one sequence of so many heads, and writes log-sum-exps, wanted or not.
const INVARIANT_HEADS: usize = 32;

/// The variant that takes `problem`, and writes log-sum-exps if they are wanted: on a GPU of this name the fastest at the problem
/// nearest to it, where nothing is known of such a GPU the same of another, and where that runs none of them any, the last stage's
/// first.
///
/// # Errors
/// Why the last that was tried is refused: of the earliest stage, which runs on most devices.
pub fn choose<'a>(
    stages: &'a [LoadedStage],
    tables: &[ChoiceTable],
    gpu: &str,
    problem: &Problem,
    wanted: Wanted,
) -> Result<(&'a LoadedStage, Prepared<'a>), Unsupported> {
    let mut ranked_by = *problem;
    if wanted.batch_invariant {
        (ranked_by.shape.batch, ranked_by.shape.heads_q) = (1, INVARIANT_HEADS);
    }
    let of = |own: bool| tables.iter().filter(move |table| (table.gpu == gpu) == own);
    let known = of(true)
        .chain(of(false))
        .flat_map(|table| table.nearest(&ranked_by));
    let any = stages.iter().rev().flat_map(|stage| {
        let names = std::iter::once(stage.default_variant()).chain(stage.variants());
        names.map(|variant| (stage.info().id, variant))
    });
    let mut refused = None;
    for (id, variant) in known.chain(any) {
        // `choice/` knows stages that are not in the library.
        let Some(stage) = stages.iter().find(|stage| stage.info().id == id) else {
            continue;
        };
        let prepared = stage.prepare(variant, problem);
        match prepared.and_then(|launch| {
            if wanted.lse || wanted.batch_invariant {
                launch.with_lse()
            } else {
                Ok(launch)
            }
        }) {
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
    use std::collections::BTreeSet;
    use table::{Entry, Timed};

    fn chosen(gpu: &str, device: &str, shape: Shape, dtype: Dtype) -> Result<String, Unsupported> {
        chosen_if(Wanted::default(), gpu, device, shape, dtype)
    }

    /// On a GPU of this name that is a `device`; the same with log-sum-exps.
    fn chosen_if(
        wanted: Wanted,
        gpu: &str,
        device: &str,
        shape: Shape,
        dtype: Dtype,
    ) -> Result<String, Unsupported> {
        let mut stages = stages().unwrap();
        let limits: DeviceLimits = device.parse().unwrap();
        stages
            .iter_mut()
            .for_each(|stage| stage.device = Some(limits));
        let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
        let (stage, prepared) = choose(&stages, &tables(), gpu, &problem, wanted)?;
        let wanted = Wanted {
            lse: true,
            ..wanted
        };
        let (with_lse, asked) = choose(&stages, &tables(), gpu, &problem, wanted)?;
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

    #[test]
    fn every_file_of_choice_is_in_the_library_and_knows_its_stages() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/choice");
        let on_disk = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(
            on_disk,
            TABLES.len(),
            "a file of choice/ is missing in TABLES"
        );
        for table in tables() {
            let is_linked =
                |entry: &&Entry| STAGES.iter().any(|linked| linked.info().id == entry.stage);
            let rivals = |entry: &Entry| {
                let place = (entry.shape, entry.dtype, entry.mask);
                let rivals = table.entries.iter();
                rivals.filter(move |other| (other.shape, other.dtype, other.mask) == place)
            };
            let fastest = |entry: &Entry| {
                let times = |entry: &&Entry| entry.best[0].p50_us;
                let fastest = rivals(entry).min_by(|a, b| times(a).total_cmp(&times(b)));
                fastest.unwrap().stage.clone()
            };
            // Where no stage of the library was timed, nothing is known of it, and it chooses by another problem.
            let compared = table.entries.iter();
            let compared = compared.filter(|entry| rivals(entry).any(|rival| is_linked(&rival)));
            for stage in compared.map(fastest) {
                assert!(
                    STAGES.iter().any(|linked| linked.info().id == stage),
                    "{stage} is the fastest at a problem of choice/ and not in the library"
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
                    let gpu = ("NVIDIA H200", "sm_90");
                    fastest.insert(chosen(gpu.0, gpu.1, shape, dtype).unwrap());
                    of_length.insert(chosen_if(invariant, gpu.0, gpu.1, shape, dtype).unwrap());
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

    #[test]
    fn bf16_takes_what_is_the_fastest_in_f16_of_the_variants_that_have_it() {
        let stages = stages().unwrap();
        let mut tables = tables();
        for table in &mut tables {
            table.entries.retain(|entry| entry.dtype == Dtype::F16);
        }
        let h200 = &tables[0];
        for entry in &h200.entries {
            let [f16, bf16] = [Dtype::F16, Dtype::Bf16]
                .map(|dtype| Problem::new(entry.shape, dtype, entry.mask).unwrap());
            let has_bf16 = |&(id, variant): &(&str, &str)| {
                let stage = stages.iter().find(|stage| stage.info().id == id);
                stage.is_some_and(|stage| stage.prepare(variant, &bf16).is_ok())
            };
            let fastest = h200.nearest(&f16).into_iter().find(has_bf16).unwrap();
            let (stage, prepared) =
                choose(&stages, &tables, &h200.gpu, &bf16, Wanted::default()).unwrap();
            assert_eq!((stage.info().id, &*prepared.kernel.variant), fastest);
        }
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
        let shape = Shape::bhsd(1, 8, 512, 64);
        let entry = Entry {
            stage: scalar.id.into(),
            shape,
            dtype: Dtype::F16,
            mask: Mask::Full,
            best: vec![Timed {
                variant: scalar.default_variant.into(),
                p50_us: 1.0,
            }],
        };
        let tables = [ChoiceTable {
            gpu: "GPU".into(),
            entries: vec![entry],
        }];
        let asked = |stages, dtype, with_lse| {
            let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
            let wanted = Wanted {
                lse: with_lse,
                ..Wanted::default()
            };
            choose(stages, &tables, "GPU", &problem, wanted)
                .map(|(stage, _)| stage.info().id)
                .map_err(|refusal| refusal.to_string())
        };
        let (first, later) = (Ok("stage0-scalar"), Ok("stage5-swizzle"));
        assert_eq!(asked(&stages, Dtype::F16, false), first);
        assert_eq!(asked(&stages, Dtype::F16, true), later);
        assert_eq!(asked(&stages, Dtype::Bf16, false), later);
        let refused = |dtype, with_lse| asked(&stages[..1], dtype, with_lse).unwrap_err();
        let words = refused(Dtype::F16, true);
        assert!(words.ends_with(" writes no log-sum-exps; ask for the output alone, or take a variant of another stage"), "{words}");
        let words = refused(Dtype::Bf16, true);
        assert!(
            words.ends_with(" is not compiled for bf16 with head_dim 64"),
            "{words}"
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
        let error = choose(&stages, &tables(), "NVIDIA T4", &problem, Wanted::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("needs compute capability 8.0; the device has compute capability 7.5"),
            "{error}"
        );
    }
}
