//! The ladder as built.

use crate::table::kernels::identity;
use crate::table::session::{BuiltKernel, DeviceCompiler, KernelBuild};
use crate::table::{Claim, ProblemPlace, Row, StageMeta, Table, VariantMeta};
use common::claim;
use common::stage::{Kernel, LoadedStage};
use kernel_build::report::GpuBuild;

/// Returns the loaded stage of this id, which the ladder must have.
pub fn loaded<'a>(stages: &'a [LoadedStage], id: &str) -> &'a LoadedStage {
    stages
        .iter()
        .find(|stage| stage.info().id == id)
        .expect("it is a stage of the ladder")
}

/// Returns the rows of the build as it is now, stamped with the identity of the sources.
pub fn table(builds: &[StageMeta]) -> Table {
    let mut table = Table::default();
    table.extend(builds.iter().flat_map(Row::built).map(|row| Row {
        identity: identity(builds, &row),
        ..row
    }));
    table
}

/// Returns the stages as built, without the variants that the device refuses.
pub fn builds(stages: &[LoadedStage]) -> Vec<StageMeta> {
    stages.iter().map(build).collect()
}

fn build(stage: &LoadedStage) -> StageMeta {
    let info = stage.info();
    let (mut variants, mut refused) = (Vec::new(), Vec::new());
    for name in stage.variants() {
        let (mut runnable, mut refused_kernels) = (Vec::new(), Vec::new());
        for kernel in &stage.kernels {
            if kernel.variant != name {
                continue;
            }
            if stage.refuse(kernel).is_ok() {
                runnable.push(kernel);
            } else {
                refused_kernels.push(kernel);
            }
        }
        refused.extend(refusal(stage, name, &refused_kernels));
        if let Some(first) = runnable.first() {
            variants.push(VariantMeta {
                name: name.to_string(),
                family: first.family.clone(),
                serves: stage.attention.serves(first),
                cache: stage.attention.cache(first),
                kernels: runnable.iter().map(|kernel| built(stage, kernel)).collect(),
            });
        }
    }
    StageMeta {
        id: info.id.to_string(),
        idea: info.idea.to_string(),
        predecessor: info.predecessor.map(str::to_string),
        role: info.role,
        default_variant: stage.default_variant().to_string(),
        identity: stage.report.identity.clone(),
        claims: info.claims.iter().flat_map(claims).collect(),
        negatives: vec![],
        variants,
        refused,
    }
}

fn built(stage: &LoadedStage, kernel: &Kernel) -> KernelBuild {
    let mut built = Vec::new();
    for ptxas in stage.ptxas_entries(kernel) {
        built.push(BuiltKernel {
            ptxas,
            code: vec![],
        });
    }
    KernelBuild {
        facts: kernel.facts.clone(),
        built,
    }
}

/// Describes what `kernels` of `variant` need and the device lacks; there is nothing to describe
/// without kernels.
fn refusal(stage: &LoadedStage, variant: &str, kernels: &[&Kernel]) -> Option<(String, String)> {
    let mut available = None;
    let mut needs = Vec::new();
    for kernel in kernels {
        if let Some(shortfall) = stage.shortfall(kernel) {
            let instance = format!("{} d{}", kernel.dtype, kernel.head_dim);
            needs.push(format!("{instance} needs {}", shortfall.needed));
            available.get_or_insert(shortfall.available);
        }
    }
    let why = format!("{}; the device has {}", needs.join(", "), available?);
    Some((variant.to_string(), why))
}

/// Makes one claim per problem and metric.
fn claims(stated: &claim::Claim) -> Vec<Claim> {
    let mut claims = Vec::new();
    for place in stated.problems {
        for &metric in stated.metrics {
            claims.push(Claim {
                family: stated.family.to_string(),
                metric,
                relation: stated.relation,
                place: ProblemPlace::new(place.shape, place.dtype, place.mask),
                gpu: place.gpu.map(str::to_string),
                why: stated.why.to_string(),
            });
        }
    }
    claims
}

/// Returns the compiler of the GPU code, or the reason why there is none.
pub fn device_compiler(gpu: &GpuBuild) -> DeviceCompiler {
    match gpu {
        GpuBuild::Built(code) => DeviceCompiler::Built {
            nvcc: code.nvcc.clone(),
            flags: code.flags.clone(),
            archs: code
                .architectures
                .iter()
                .map(|arch| arch.name.clone())
                .chain(code.ptx.iter().cloned())
                .collect(),
        },
        GpuBuild::Absent { reason, remedy } => DeviceCompiler::Absent {
            reason: format!("{reason}; {remedy}"),
        },
    }
}
