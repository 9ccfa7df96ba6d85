//! From loaded stages to what a record says of them.

use common::evidence::{EvidenceClaim, Relation};
use common::problem::{Dtype, Mask};
use common::record::{
    BaseTerms, BuiltKernel, ClaimTerms, DeviceCompiler, EvidenceTerms, KernelBuild, PeerClaimTerms, Refusal,
    StageBuild, VariantBuild,
};
use common::resources::{self, KernelFacts, PtxasEntry};
use common::stage::{Base, Kernel, LoadedStage, PeerClaim};
use kernel_build::report::GpuBuild;

/// The ladder as it is built, without what the device refuses.
pub fn builds(stages: &[LoadedStage]) -> Vec<StageBuild> {
    stages.iter().map(build).collect()
}

fn build(stage: &LoadedStage) -> StageBuild {
    let info = stage.info();
    let claimed = |dtype: Dtype| {
        info.claims.iter().map(move |claim| ClaimTerms {
            family: claim.family.to_string(),
            base_stage: claim.base.stage.to_string(),
            base_family: claim.base.family.to_string(),
            at_least: claim.at_least,
            dtype,
        })
    };
    let compiled: Vec<(&Kernel, KernelFacts, PtxasEntry)> = stage
        .kernels
        .iter()
        .flat_map(|kernel| {
            stage.ptxas_entries(kernel).into_iter().map(move |entry| (kernel, kernel.facts.clone(), entry))
        })
        .collect();
    let distinct = compiled.iter().map(|(kernel, facts, entry)| (kernel.variant.as_str(), facts, entry));
    let (mut variants, mut refused) = (Vec::new(), Vec::new());
    for name in stage.variants() {
        let kernels = stage.kernels.iter().filter(|kernel| kernel.variant == name);
        let (runs, not): (Vec<&Kernel>, Vec<&Kernel>) = kernels.partition(|kernel| stage.refuse(kernel).is_ok());
        refused.extend(refusal(stage, name, &not));
        if let Some(first) = runs.first() {
            let family = first.family.clone();
            let kernels = runs.iter().map(|kernel| kernel_build(stage, kernel)).collect();
            variants.push(VariantBuild { name: name.to_string(), family, kernels });
        }
    }
    StageBuild {
        id: info.id.to_string(),
        idea: info.idea.to_string(),
        predecessor: info.predecessor.map(str::to_string),
        default_variant: stage.default_variant().to_string(),
        claims: Dtype::ALL.into_iter().flat_map(claimed).collect(),
        peer_claims: info.peer_claims.iter().flat_map(peer_terms).collect(),
        evidence: info.evidence.iter().flat_map(evidence_terms).collect(),
        identity: stage.report.identity.clone(),
        host_compiler: stage.report.emulated.compiler.description.clone(),
        device_compiler: device_compiler(&stage.report.gpu),
        distinct: resources::judge_distinct(distinct),
        variants,
        refused,
    }
}

/// What the device has not for `kernels` of `variant`, each with what it needs; `None` where there are no kernels.
fn refusal(stage: &LoadedStage, variant: &str, kernels: &[&Kernel]) -> Option<Refusal> {
    let lacks = kernels.iter().filter_map(|kernel| Some((kernel, stage.device?.lacks(kernel)?)));
    let (instances, available): (Vec<String>, Vec<String>) = lacks
        .map(|(kernel, (needed, has))| (format!("{} d{} needs {needed}", kernel.dtype, kernel.head_dim), has))
        .unzip();
    let reason = format!("{}; the device has {}", instances.join(", "), available.first()?);
    Some(Refusal { variant: variant.to_string(), reason })
}

/// One entry per mask.
fn peer_terms(claim: &PeerClaim) -> impl Iterator<Item = PeerClaimTerms> {
    Mask::ALL.into_iter().map(|mask| PeerClaimTerms {
        family: claim.family.to_string(),
        shape: claim.shape.to_string(),
        mask,
        rival: claim.rival,
        at_least: claim.at_least,
        goal: claim.goal,
    })
}

/// One entry per element type and quantity.
fn evidence_terms(claim: &EvidenceClaim) -> impl Iterator<Item = EvidenceTerms> {
    let owned = |base: Base| BaseTerms { stage: base.stage.to_string(), family: base.family.to_string() };
    let each = claim.dtypes.iter().flat_map(|&dtype| claim.quantities.iter().map(move |&quantity| (dtype, quantity)));
    each.map(move |(dtype, quantity)| EvidenceTerms {
        family: claim.family.to_string(),
        quantity,
        relation: match claim.relation {
            Relation::Ratio { base, at_least, at_most } => Relation::Ratio { base: owned(base), at_least, at_most },
            Relation::AtLeast { bound } => Relation::AtLeast { bound },
            Relation::AtMost { bound } => Relation::AtMost { bound },
        },
        dtype,
        why: claim.why.to_string(),
    })
}

fn kernel_build(stage: &LoadedStage, kernel: &Kernel) -> KernelBuild {
    let facts = kernel.facts.clone();
    let built = stage.ptxas_entries(kernel).into_iter().map(|ptxas| BuiltKernel {
        occupancy: resources::occupancy_of(&facts, &ptxas),
        result: resources::judge(&facts, &ptxas),
        ptxas,
    });
    KernelBuild { built: built.collect(), facts }
}

fn device_compiler(gpu: &GpuBuild) -> DeviceCompiler {
    match gpu {
        GpuBuild::Built(code) => DeviceCompiler::Built {
            nvcc: code.nvcc.clone(),
            flags: code.flags.clone(),
            archs: code.architectures.iter().map(|arch| arch.name.clone()).chain(code.ptx.iter().cloned()).collect(),
        },
        GpuBuild::Absent { reason, remedy } => DeviceCompiler::Absent { reason: format!("{reason}; {remedy}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{registry, select};

    #[test]
    fn a_limited_ladder_is_without_what_the_device_refuses_and_says_so() {
        let mut stages = registry::load().unwrap();
        let whole = builds(&stages);
        assert!(whole.iter().all(|stage| stage.refused.is_empty()));
        registry::limit(&mut stages, None, "sm_89".parse().ok()).unwrap();
        let limited = builds(&stages);
        let limited_of = |id: &str| limited.iter().find(|stage| stage.id == id);
        for (whole, limited) in whole.iter().zip(&limited) {
            let largest = |variant: &VariantBuild| variant.kernels.iter().map(|k| k.facts.dynamic_shared_bytes).max();
            assert!(limited.variants.iter().all(|variant| largest(variant) <= Some(99 << 10)), "{}", limited.id);
            let refused = whole.variants.iter().filter(|variant| largest(variant) > Some(99 << 10));
            let named = limited.refused.iter().map(|refusal| &refusal.variant);
            assert!(named.eq(refused.map(|variant| &variant.name)), "{}: {:?}", limited.id, limited.refused);
            // What the evidence claims compare is there on both sides.
            for terms in &limited.evidence {
                assert!(limited.default_of(&terms.family).is_some(), "{}: {}", limited.id, terms.family);
                let Relation::Ratio { base, .. } = &terms.relation else { continue };
                let base_stage = limited_of(&base.stage).expect("it is a stage");
                assert!(base_stage.default_of(&base.family).is_some(), "{}: {}", base.stage, base.family);
            }
        }
        let gone = whole.iter().flat_map(|stage| stage.variants.iter().map(move |variant| (stage, variant)));
        let has = |id: &str, name: &str| limited_of(id).is_some_and(|stage| stage.variant(name).is_some());
        let (_, gone) =
            gone.into_iter().find(|(stage, variant)| !has(&stage.id, &variant.name)).expect("some do not fit");
        let error = select::variants(std::slice::from_ref(&gone.name), &limited.iter().collect::<Vec<_>>(), &limited)
            .unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("the device cannot run {}: f16 d64 needs ", gone.name)),
            "{error}"
        );
    }
}
