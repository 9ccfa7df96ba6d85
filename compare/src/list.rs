//! `compare list`: what there is to run, and what this machine can measure.

use crate::answer::Answer;
use crate::measure::builds::{KernelBuild, StageBuild, VariantBuild};
use crate::record::meta::DeviceCompiler;
use crate::registry::Ladder;
use clap::Args;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use common::inputs::Family;
use common::limits::DeviceLimits;
use common::problem::{Dtype, Shape, named_shapes};
use common::verdict::GateId;
use serde_json::{Value, json};

/// The flags of `list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Leave out what a smaller device could not run: sm_89 [default: $ATTENTION_DEVICE, else the GPU, else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The gates and their rules, in short; ARCHITECTURE.md has them in full.
const GATES: [(GateId, &str); 12] = [
    (GateId::C1, "finite and complete: no poison left, no infinity"),
    (GateId::C2, "as accurate as the precision allows: against FP64 and a plain implementation"),
    (GateId::C3, "every row right, relative to the row's size"),
    (GateId::C4, "end to end: allclose for f16, error bounds against unquantised inputs for e4m3"),
    (GateId::C5, "deterministic: repeats and schedules agree bit for bit"),
    (GateId::C6, "stays in its buffers, leaves its inputs alone"),
    (GateId::C7, "clean under compute-sanitizer"),
    (GateId::B1, "both backends agree: every row on a GPU against the emulator's"),
    (GateId::H1, "no hazard on the emulator"),
    (GateId::R1, "within its registers and shared memory, no spill, no stack"),
    (GateId::L1, "faster, as claimed: paired device time"),
    (GateId::E1, "for the stated reason: counters"),
];

/// What can be measured here, or why not.
struct Measurable {
    what: &'static str,
    here: Result<String, String>,
}

/// Stages, variants, claims, shapes, families and gates, as text or JSON.
pub fn list(args: &ListArgs) -> anyhow::Result<Answer> {
    let mut ladder = Ladder::open()?;
    ladder.limit(DeviceLimits::asked(args.device)?)?;
    let builds = ladder.builds();
    let counters = match ladder.stages.iter().find(|stage| !stage.is_traced()) {
        None => Ok("the emulator".to_string()),
        Some(stage) => Err(format!("{} has no traced build; g++ 12 or later makes one", stage.info().id)),
    };
    let here = measurable(&builds, ladder.gpu.map(|device| device.info().name.clone()), counters);
    Ok(Answer::pass(if args.json { pretty(&document(&builds, &here)) } else { text(&builds, &here) }))
}

fn measurable(stages: &[StageBuild], gpu: Result<String, String>, counters: Result<String, String>) -> Vec<Measurable> {
    let compiled = stages.iter().map(|stage| match &stage.device_compiler {
        DeviceCompiler::Built { nvcc, archs, .. } => Ok(format!("{nvcc} for {}", archs.join(", "))),
        DeviceCompiler::Absent { reason } => Err(format!("{}: {reason}", stage.id)),
    });
    let compiled = compiled.reduce(|known, next| known.and_then(|known| next.map(|_| known)));
    let correctness = gpu.clone().unwrap_or_else(|_| "on the emulator".to_string());
    vec![
        Measurable { what: "correctness (C1-C6)", here: Ok(correctness) },
        Measurable {
            what: "registers, spills, occupancy (R1)",
            here: compiled.unwrap_or_else(|| Err("there is no stage".to_string())),
        },
        Measurable { what: "latency (L1), the emulator beside the GPU (B1)", here: gpu },
        Measurable { what: "counters (E1)", here: counters },
    ]
}

fn gate_rows() -> impl Iterator<Item = (String, &'static str)> {
    GATES.iter().map(|(gate, rule)| (gate.to_string(), *rule))
}

/// The instances' values of one fact, each once, in their order.
fn distinct<T: PartialEq + ToString>(variant: &VariantBuild, fact: impl Fn(&KernelBuild) -> T) -> String {
    let mut values: Vec<T> = Vec::new();
    for value in variant.kernels.iter().map(fact) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// `sm_80: 96-112`: the fewest and the most registers of a variant's instances, per architecture; empty without nvcc.
fn registers(variant: &VariantBuild) -> Vec<(String, u32, u32)> {
    let mut ranges: Vec<(String, u32, u32)> = Vec::new();
    for built in variant.kernels.iter().flat_map(|kernel| &kernel.built) {
        let (arch, count) = (&built.ptxas.arch, built.ptxas.resources.registers);
        match ranges.iter_mut().find(|(name, ..)| name == arch) {
            Some((_, least, most)) => (*least, *most) = ((*least).min(count), (*most).max(count)),
            None => ranges.push((arch.clone(), count, count)),
        }
    }
    ranges
}

fn registers_text(variant: &VariantBuild) -> String {
    let range = |(arch, least, most): (String, u32, u32)| {
        if least == most { format!("{arch}: {least}") } else { format!("{arch}: {least}-{most}") }
    };
    let ranges: Vec<String> = registers(variant).into_iter().map(range).collect();
    if ranges.is_empty() { "NO DATA".to_string() } else { ranges.join(", ") }
}

fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header).add_rows(rows);
    table.to_string()
}

fn text(stages: &[StageBuild], here: &[Measurable]) -> String {
    let mut parts = Vec::new();
    for stage in stages {
        let mut lines = vec![format!("{}: {}", stage.id, stage.idea)];
        lines.extend(stage.predecessor.iter().map(|id| format!("  builds on {id}")));
        lines.extend(stage.claims.iter().map(|claim| match claim.is_of_speed() {
            true => format!("  claims {claim}"),
            false => format!("  predicts {claim}: {}", claim.why),
        }));
        let rows = stage.variants.iter().map(|variant| {
            let default = if variant.name == stage.default_variant { " (default)" } else { "" };
            [
                format!("{}{default}", variant.name),
                distinct(variant, |k| format!("{}x{}", k.facts.block_m, k.facts.block_n)),
                distinct(variant, |k| k.facts.threads),
                distinct(variant, |k| k.facts.dynamic_shared_bytes),
                registers_text(variant),
                distinct(variant, |k| k.facts.dtype),
                distinct(variant, |k| k.facts.head_dim),
            ]
        });
        let header = ["variant", "tile", "threads", "dynamic shared bytes", "registers", "dtypes", "head dims"];
        lines.push(table(header, rows));
        lines.extend(stage.refused.iter().map(|refusal| format!("unsupported: {refusal}")));
        parts.push(lines.join("\n"));
    }
    let shape = |name: &str, s: &Shape| {
        let extents = [s.batch, s.heads_q, s.heads_kv, s.seq_q, s.seq_kv, s.head_dim].map(|n| n.to_string());
        let [batch, heads_q, heads_kv, seq_q, seq_kv, head_dim] = extents;
        [name.to_string(), batch, heads_q, heads_kv, seq_q, seq_kv, head_dim]
    };
    let header = ["shape", "batch", "query heads", "key heads", "queries", "keys", "head dim"];
    parts.push(table(header, named_shapes().map(|named| shape(named.name, &named.shape))));
    let dtypes = |family: &Family| {
        let takes = Dtype::ALL.into_iter().filter(|&dtype| Family::for_dtype(dtype).contains(family));
        takes.map(Dtype::name).collect::<Vec<_>>().join(", ")
    };
    parts.push(table(["family", "dtypes"], Family::ALL.iter().map(|family| [family.to_string(), dtypes(family)])));
    parts.push(table(["gate", "rule"], gate_rows().map(|(gate, rule)| [gate, rule.to_string()])));
    let here = here.iter().map(|measurable| {
        let (word, why) = match &measurable.here {
            Ok(with) => ("yes", with),
            Err(reason) => ("no", reason),
        };
        [measurable.what.to_string(), word.to_string(), why.clone()]
    });
    parts.push(table(["on this machine", "", "with, or why not"], here));
    parts.join("\n\n") + "\n"
}

fn document(stages: &[StageBuild], here: &[Measurable]) -> Value {
    let kernel = |kernel: &KernelBuild| {
        let facts = &kernel.facts;
        let built = kernel
            .built
            .iter()
            .map(|built| json!({ "arch": built.ptxas.arch, "registers": built.ptxas.resources.registers }));
        json!({
            "dtype": facts.dtype.name(),
            "head_dim": facts.head_dim,
            "tile": [facts.block_m, facts.block_n],
            "threads": facts.threads,
            "dynamic_shared_bytes": facts.dynamic_shared_bytes,
            "built": built.collect::<Vec<_>>(),
        })
    };
    let variant = |stage: &StageBuild, variant: &VariantBuild| {
        json!({
            "name": variant.name,
            "family": variant.family,
            "default": variant.name == stage.default_variant,
            "kernels": variant.kernels.iter().map(kernel).collect::<Vec<_>>(),
        })
    };
    let stage = |stage: &StageBuild| {
        json!({
            "id": stage.id,
            "idea": stage.idea,
            "predecessor": stage.predecessor,
            "claims": stage.claims,
            "variants": stage.variants.iter().map(|v| variant(stage, v)).collect::<Vec<_>>(),
            "refused": stage.refused,
        })
    };
    let families = Family::ALL.iter().map(|family| {
        let dtypes = Dtype::ALL.into_iter().filter(|&dtype| Family::for_dtype(dtype).contains(family));
        json!({ "name": family.name(), "dtypes": dtypes.map(Dtype::name).collect::<Vec<_>>() })
    });
    let here = here.iter().map(|measurable| match &measurable.here {
        Ok(with) => json!({ "what": measurable.what, "status": "yes", "with": with }),
        Err(reason) => json!({ "what": measurable.what, "status": "no", "reason": reason }),
    });
    json!({
        "stages": stages.iter().map(stage).collect::<Vec<_>>(),
        "shapes": named_shapes().map(|named| json!({ "name": named.name, "extents": named.shape })).collect::<Vec<_>>(),
        "families": families.collect::<Vec<_>>(),
        "gates": gate_rows().map(|(gate, rule)| json!({ "gate": gate, "rule": rule })).collect::<Vec<_>>(),
        "machine": here.collect::<Vec<_>>(),
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::builds;

    #[test]
    fn the_text_names_all_that_can_be_asked_for() {
        let text = text(&builds(), &measurable(&builds(), Err("no driver".into()), Ok("the emulator".into())));
        for part in [
            "stage1-cpasync: K and V copied one tile ahead\n  builds on stage0-scalar\n",
            "  claims cpasync >= 1.10x over stage0-scalar wmma-qk",
            "  predicts cpasync: global bytes read as in stage0-scalar wmma-qk: the same tiles are read",
            "wmma-qk-32x64 (default)",
            "32x64",
            "37376",
            "f16, e4m3",
            "| C1 ",
            "on the emulator",
            "no driver",
            "nvcc was not found",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        for named in named_shapes() {
            assert!(text.contains(named.name), "{}", named.name);
        }
        for family in Family::ALL {
            assert!(text.contains(family.name()), "{family}");
        }
    }

    #[test]
    fn the_json_says_the_same() {
        let document =
            document(&builds(), &measurable(&builds(), Ok("NVIDIA H200".into()), Err("no traced build".into())));
        assert_eq!(document["stages"][0]["variants"][1]["default"], true);
        assert_eq!(document["stages"][0]["variants"][0]["kernels"][0]["tile"], json!([32, 64]));
        assert_eq!(document["shapes"][1]["extents"]["seq_kv"], 512);
        assert_eq!(document["machine"][2]["with"], "NVIDIA H200");
        assert_eq!(document["machine"][1]["status"], "no");
        assert_eq!(document["machine"][3]["reason"], "no traced build");
        assert_eq!(document["stages"][1]["claims"][1]["metric"], "global_read_bytes");
        assert_eq!(document["gates"].as_array().map(Vec::len), Some(GATES.len()));
    }

    #[test]
    fn the_real_ladder_can_be_listed() {
        let text = list(&ListArgs { json: false, device: None }).unwrap().text;
        assert!(crate::registry::STAGES.iter().all(|stage| text.contains(stage.info().id)));
        assert!(serde_json::from_str::<Value>(&list(&ListArgs { json: true, device: None }).unwrap().text).is_ok());
    }
}
