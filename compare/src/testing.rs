//! Literal stages, records and a fake runner for the tests of this crate.

use common::problem::Dtype;
use common::record::{ClaimTerms, DeviceCompiler, KernelBuild, StageBuild, VariantBuild};
use common::reference::Probability;
use common::resources::{self, KernelFacts};

/// A ladder of two stages: two variants and a claim in the first, one of each in the second. Built without nvcc.
pub fn ladder() -> Vec<StageBuild> {
    vec![
        stage(
            "stage0-scalar",
            "tiled online softmax, scalar P·V",
            None,
            &[("scalar", "scalar-32x64"), ("wmma-qk", "wmma-qk-32x64")],
            "wmma-qk-32x64",
            ("wmma-qk", "stage0-scalar", "scalar", 1.5),
        ),
        stage(
            "stage1-cpasync",
            "K and V copied one tile ahead",
            Some("stage0-scalar"),
            &[("cpasync", "cpasync-32x64")],
            "cpasync-32x64",
            ("cpasync", "stage0-scalar", "wmma-qk", 1.1),
        ),
    ]
}

fn stage(
    id: &str,
    idea: &str,
    predecessor: Option<&str>,
    variants: &[(&str, &str)],
    default_variant: &str,
    claim: (&str, &str, &str, f64),
) -> StageBuild {
    let (family, base_stage, base_family, at_least) = claim;
    let reason = "nvcc was not found; run scripts/get-cuda.sh or set CUDA_HOME".to_string();
    StageBuild {
        id: id.into(),
        idea: idea.into(),
        predecessor: predecessor.map(Into::into),
        default_variant: default_variant.into(),
        claims: vec![ClaimTerms {
            family: family.into(),
            base_stage: base_stage.into(),
            base_family: base_family.into(),
            at_least,
        }],
        identity: format!("{id}-identity"),
        host_compiler: "g++ (GCC) 12.2.0".into(),
        device_compiler: DeviceCompiler::Absent { reason },
        distinct: resources::judge_distinct([]),
        variants: variants.iter().map(|(family, name)| variant(family, name)).collect(),
    }
}

fn variant(family: &str, name: &str) -> VariantBuild {
    let kernel = |dtype: Dtype| KernelBuild {
        facts: KernelFacts {
            symbol: format!("{}_{dtype}_d64", name.replace('-', "_")),
            dtype,
            head_dim: 64,
            block_m: 32,
            block_n: 64,
            threads: 128,
            min_blocks: 2,
            dynamic_shared_bytes: 37_376,
            register_cap: 128,
            shared_cap_bytes: 48 * 1024,
            probability: Probability::F32,
        },
        built: vec![],
    };
    VariantBuild { name: name.into(), family: family.into(), kernels: Dtype::ALL.map(kernel).into() }
}
