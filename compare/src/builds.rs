//! From loaded stages to what a record says of them.

use common::evidence::{EvidenceClaim, Relation};
use common::problem::Mask;
use common::record::{
    BaseTerms, BuiltKernel, ClaimTerms, DeviceCompiler, EvidenceTerms, KernelBuild, PeerClaimTerms, StageBuild,
    VariantBuild,
};
use common::resources::{self, KernelFacts, PtxasEntry};
use common::stage::{Base, Kernel, LoadedStage, PeerClaim};
use kernel_build::report::GpuBuild;

/// The ladder as it is built. `opt_in_bytes` is the shared memory that a block of the open device may opt in to.
pub fn builds(stages: &[LoadedStage], opt_in_bytes: Option<usize>) -> Vec<StageBuild> {
    stages.iter().map(|stage| build(stage, opt_in_bytes)).collect()
}

fn build(stage: &LoadedStage, opt_in_bytes: Option<usize>) -> StageBuild {
    let info = stage.info();
    let claims = info.claims.iter().map(|claim| ClaimTerms {
        family: claim.family.to_string(),
        base_stage: claim.base.stage.to_string(),
        base_family: claim.base.family.to_string(),
        at_least: claim.at_least,
    });
    let compiled: Vec<(&Kernel, KernelFacts, PtxasEntry)> = stage
        .kernels
        .iter()
        .flat_map(|kernel| {
            stage.ptxas_entries(kernel).into_iter().map(move |entry| (kernel, kernel.facts.clone(), entry))
        })
        .collect();
    let distinct = compiled.iter().map(|(kernel, facts, entry)| (kernel.variant.as_str(), facts, entry));
    let variants = stage.variants().into_iter().map(|name| {
        let kernels: Vec<&Kernel> = stage.kernels.iter().filter(|kernel| kernel.variant == name).collect();
        VariantBuild {
            name: name.to_string(),
            family: kernels[0].family.clone(),
            kernels: kernels.into_iter().map(|kernel| kernel_build(stage, kernel, opt_in_bytes)).collect(),
        }
    });
    StageBuild {
        id: info.id.to_string(),
        idea: info.idea.to_string(),
        predecessor: info.predecessor.map(str::to_string),
        default_variant: info.default_variant.to_string(),
        claims: claims.collect(),
        peer_claims: info.peer_claims.iter().flat_map(peer_terms).collect(),
        evidence: info.evidence.iter().flat_map(evidence_terms).collect(),
        identity: stage.report.identity.clone(),
        host_compiler: stage.report.emulated.compiler.description.clone(),
        device_compiler: device_compiler(&stage.report.gpu),
        distinct: resources::judge_distinct(distinct),
        variants: variants.collect(),
    }
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

/// One entry per quantity.
fn evidence_terms(claim: &EvidenceClaim) -> impl Iterator<Item = EvidenceTerms> {
    let owned = |base: Base| BaseTerms { stage: base.stage.to_string(), family: base.family.to_string() };
    claim.quantities.iter().map(move |&quantity| EvidenceTerms {
        family: claim.family.to_string(),
        quantity,
        relation: match claim.relation {
            Relation::Ratio { base, at_least, at_most } => Relation::Ratio { base: owned(base), at_least, at_most },
            Relation::AtLeast { bound } => Relation::AtLeast { bound },
            Relation::AtMost { bound } => Relation::AtMost { bound },
        },
        why: claim.why.to_string(),
    })
}

fn kernel_build(stage: &LoadedStage, kernel: &Kernel, opt_in_bytes: Option<usize>) -> KernelBuild {
    let facts = kernel.facts.clone();
    let built = stage.ptxas_entries(kernel).into_iter().map(|ptxas| BuiltKernel {
        occupancy: resources::occupancy_of(&facts, &ptxas),
        result: resources::judge(&facts, &ptxas, opt_in_bytes),
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
