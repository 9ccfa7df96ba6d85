//! The ladder as built.

use crate::judge::list::joined;
use crate::table::kernels::identity;
use crate::table::session::{BuiltKernel, DeviceCompiler, KernelBuild};
use crate::table::{Claim, ProblemPlace, Row, StageMeta, Table, VariantMeta};
use common::claim;
use common::limits::Shortfall;
use common::stage::{Kernel, LoadedStage};
use kernel_build::report::GpuBuild;

pub fn loaded<'a>(stages: &'a [LoadedStage], id: &str) -> &'a LoadedStage {
    stages
        .iter()
        .find(|stage| stage.info().id == id)
        .expect("it is a stage of the ladder")
}

/// The rows of the build as it is now, stamped with the identity of the sources.
pub fn table(builds: &[StageMeta]) -> Table {
    let mut table = Table::default();
    table.extend(builds.iter().flat_map(Row::built).map(|row| Row {
        identity: identity(builds, &row),
        ..row
    }));
    table
}

/// Without the variants that the device refuses.
pub fn builds(stages: &[LoadedStage]) -> Vec<StageMeta> {
    stages.iter().map(build).collect()
}

fn build(stage: &LoadedStage) -> StageMeta {
    let info = stage.info();
    let (mut variants, mut refused) = (Vec::new(), Vec::new());
    for name in stage.variants() {
        let kernels = stage.kernels.iter().filter(|kernel| kernel.variant == name);
        let (runs, not): (Vec<&Kernel>, Vec<&Kernel>) =
            kernels.partition(|kernel| stage.refuse(kernel).is_ok());
        refused.extend(refusal(stage, name, &not));
        if let Some(first) = runs.first() {
            let family = first.family.clone();
            let built = |ptxas| BuiltKernel {
                ptxas,
                code: vec![],
            };
            let kernel = |kernel: &&Kernel| KernelBuild {
                facts: kernel.facts.clone(),
                built: stage.ptxas_entries(kernel).into_iter().map(built).collect(),
            };
            let kernels = runs.iter().map(kernel).collect();
            variants.push(VariantMeta {
                name: name.to_string(),
                family,
                kernels,
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

/// Describes what `kernels` of `variant` need and the device lacks; there is nothing to describe
/// without kernels.
fn refusal(stage: &LoadedStage, variant: &str, kernels: &[&Kernel]) -> Option<(String, String)> {
    let shortfalls: Vec<_> = (kernels.iter())
        .filter_map(|kernel| Some((kernel, stage.shortfall(kernel)?)))
        .collect();
    let (_, Shortfall { available, .. }) = shortfalls.first()?;
    let needs = shortfalls.iter().map(|(kernel, Shortfall { needed, .. })| {
        format!("{} d{} needs {needed}", kernel.dtype, kernel.head_dim)
    });
    let why = format!("{}; the device has {available}", joined(needs, ", "));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::select::Chosen;
    use crate::stages::Ladder;
    use crate::table::session::by_id;

    #[test]
    fn every_claim_of_a_stage_has_words_of_its_own() {
        for stage in crate::stages::builds().unwrap() {
            let mut words = std::collections::BTreeSet::new();
            let doubled = stage
                .claims
                .iter()
                .find(|claim| !words.insert(claim.to_string()));
            assert!(doubled.is_none(), "{}: {}", stage.id, doubled.unwrap());
        }
    }

    #[test]
    fn a_limited_ladder_is_without_what_the_device_refuses_and_says_so() {
        let mut ladder = Ladder::without_gpu("as if there were none").unwrap();
        let whole = ladder.builds().unwrap();
        assert!(whole.iter().all(|stage| stage.refused.is_empty()));
        ladder.limit("sm_89".parse().ok()).unwrap();
        let limited = ladder.builds().unwrap();
        let fits = |variant: &&VariantMeta| {
            let mut kernels = variant.kernels.iter();
            kernels.all(|kernel| kernel.facts.dynamic_shared_bytes <= 99 << 10)
        };
        let mut gone = None;
        for (whole, stage) in whole.iter().zip(&limited) {
            let is_of_hopper = stage.variants.is_empty();
            assert!(stage.variants.iter().all(|of| fits(&of)), "{}", stage.id);
            let unfit = whole.variants.iter().filter(|of| is_of_hopper || !fits(of));
            let names = stage.refused.iter().map(|(variant, _)| variant);
            assert!(names.eq(unfit.map(|of| &of.name)), "{:?}", stage.refused);
            let reason = if is_of_hopper {
                " d64 needs sm_90a, "
            } else {
                " shared memory"
            };
            let mut refused = stage.refused.iter();
            assert!(
                refused.all(|(_, why)| why.contains(reason)),
                "{:?}",
                stage.refused
            );
            gone = gone.or(stage.refused.first());
            // What the evidence claims compare is there on both sides.
            for claim in stage.claims.iter().filter(|_| !is_of_hopper) {
                assert!(stage.default_of(&claim.family).is_some(), "{claim}");
                if let Some(base) = claim.relation.base() {
                    let base_stage = by_id(&limited, base.stage).expect("it is a stage");
                    assert!(base_stage.default_of(base.family).is_some(), "{base}");
                }
            }
        }
        let (gone, _) = gone.expect("some do not fit");
        let chosen = Chosen {
            variants: vec![gone.clone()],
            ..Chosen::default()
        };
        let error = chosen
            .pick(&limited)
            .expect_err("it is refused")
            .to_string();
        let says = format!("the device cannot run {gone}: f16 d64 needs ");
        assert!(error.starts_with(&says), "{error}");
    }
}
