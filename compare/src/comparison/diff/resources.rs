//! What the compiler says of each instance. Exact for one version of nvcc.

use super::latency::word_on;
use super::{Class, Instance, Metric, Reason, Row};
use common::record::{BuiltKernel, DeviceCompiler, Record, StageBuild};
use common::resources::{KernelFacts, occupancy_of};

/// The resources of every instance that both sides built. Spills and stack are bad by themselves. Occupancy counts unless
/// the latency of that instance on that architecture contradicts. Registers and shared memory are means: inside their
/// caps they have no good side, and the caps are gate R1's.
pub fn resources(base: &Record, new: &Record, latencies: &[Row]) -> Vec<Row> {
    let mut rows = Vec::new();
    for after in &new.meta.stages {
        let Some(before) = base.meta.stages.iter().find(|stage| stage.id == after.id) else { continue };
        match (&before.device_compiler, &after.device_compiler) {
            (DeviceCompiler::Absent { .. }, DeviceCompiler::Absent { .. }) => {}
            (DeviceCompiler::Built { nvcc, .. }, DeviceCompiler::Built { nvcc: other, .. }) if nvcc == other => {
                rows.extend(of_stage(before, after, &|instance, variant| {
                    let is_measured = [base, new].iter().all(|record| record.meta.machine.gpu.runs(&instance.arch));
                    let of = |problem: &super::Problem| {
                        (problem.dtype, problem.head_dim) == (instance.dtype, instance.head_dim)
                    };
                    is_measured.then(|| word_on(latencies, &after.id, variant, of)).flatten()
                }));
            }
            (was, is) => {
                let words = |compiler: &DeviceCompiler| match compiler {
                    DeviceCompiler::Built { nvcc, .. } => format!("nvcc {nvcc}"),
                    DeviceCompiler::Absent { .. } => "no GPU compiler".to_string(),
                };
                let row = Row::new(
                    &after.id,
                    None,
                    Metric::Resource("resources", None),
                    Class::NoData,
                    Reason::OtherCompiler,
                );
                rows.push(row.note(format!("{} against {}", words(was), words(is))));
            }
        }
    }
    rows
}

type Word<'a> = &'a dyn Fn(&Instance, &str) -> Option<Class>;

fn of_stage(before: &StageBuild, after: &StageBuild, latency: Word<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for variant in &after.variants {
        let Some(old) = before.variant(&variant.name) else { continue };
        for kernel in &variant.kernels {
            let facts = &kernel.facts;
            let twin = old
                .kernels
                .iter()
                .find(|other| (other.facts.dtype, other.facts.head_dim) == (facts.dtype, facts.head_dim));
            for (twin, built) in twin.iter().flat_map(|twin| kernel.built.iter().map(move |built| (twin, built))) {
                let Some(was) = twin.built.iter().find(|other| other.ptxas.arch == built.ptxas.arch) else { continue };
                let instance =
                    Instance { dtype: facts.dtype, head_dim: facts.head_dim, arch: built.ptxas.arch.clone() };
                let word = latency(&instance, &variant.name);
                let figures = figures((&twin.facts, was), (facts, built), word);
                rows.extend(figures.into_iter().map(|figure| {
                    let metric = Metric::Resource(figure.what, Some(instance.clone()));
                    let row = Row::new(&after.id, Some(&variant.name), metric, figure.class, figure.reason);
                    row.values(figure.base, figure.new).note(figure.note)
                }));
            }
        }
    }
    rows
}

struct Figure {
    what: &'static str,
    class: Class,
    reason: Reason,
    base: String,
    new: String,
    note: &'static str,
}

/// What differs of one instance; one row that says so where nothing does.
fn figures(
    (old_facts, old): (&KernelFacts, &BuiltKernel),
    (new_facts, new): (&KernelFacts, &BuiltKernel),
    latency: Option<Class>,
) -> Vec<Figure> {
    let (was, is) = (&old.ptxas.resources, &new.ptxas.resources);
    let bad = |what, from: u64, to: u64| {
        let class = if to > from { Class::Worse } else { Class::Better };
        let note = "bad by itself";
        (from != to).then(|| Figure {
            what,
            class,
            reason: Reason::Spills,
            base: from.to_string(),
            new: to.to_string(),
            note,
        })
    };
    let means = |what, from: u64, to: u64| {
        let (base, new) = (from.to_string(), to.to_string());
        let note = "inside the caps it has no good side; occupancy and latency say what it is worth";
        (from != to).then_some(Figure { what, class: Class::Changed, reason: Reason::NoGoodSide, base, new, note })
    };
    let spilled = |resources: &kernel_build::report::Resources| {
        u64::from(resources.spill_store_bytes) + u64::from(resources.spill_load_bytes)
    };
    let found = [
        bad("spilled bytes", spilled(was), spilled(is)),
        bad("stack bytes", u64::from(was.stack_frame_bytes), u64::from(is.stack_frame_bytes)),
        occupancy((old_facts, old), (new_facts, new), latency),
        means("registers", u64::from(was.registers), u64::from(is.registers)),
        means("shared bytes", old_facts.dynamic_shared_bytes as u64, new_facts.dynamic_shared_bytes as u64),
    ];
    let mut figures: Vec<Figure> = found.into_iter().flatten().collect();
    if figures.is_empty() {
        let (base, new) = (format!("{} registers", was.registers), format!("{} registers", is.registers));
        let (class, reason) = (Class::Same, Reason::Equal);
        figures.push(Figure { what: "resources", class, reason, base, new, note: "exact" });
    }
    figures
}

fn occupancy(
    (old_facts, old): (&KernelFacts, &BuiltKernel),
    (new_facts, new): (&KernelFacts, &BuiltKernel),
    latency: Option<Class>,
) -> Option<Figure> {
    let (was, is) = (occupancy_of(old_facts, &old.ptxas)?, occupancy_of(new_facts, &new.ptxas)?);
    let (class, contradicted) = match was.warps.cmp(&is.warps) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => (Class::Worse, latency == Some(Class::Faster)),
        std::cmp::Ordering::Less => (Class::Better, latency == Some(Class::Slower)),
    };
    let percent = |occupancy: common::resources::Occupancy| format!("{:.0} %", occupancy.percent());
    let (class, reason, note) = match contradicted {
        true => (Class::Changed, Reason::LatencyDecides, "the measured latency says the opposite"),
        false => (class, Reason::CostMoved, "no measured latency says the opposite"),
    };
    Some(Figure { what: "occupancy", class, reason, base: percent(was), new: percent(is), note })
}
