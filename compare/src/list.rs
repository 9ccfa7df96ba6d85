//! `compare list`: stages, variants, claims, shapes, input families and gates.

use crate::answer::{Answer, json};
use crate::judge::list::{distinct, grouped, joined};
use crate::judge::verdict::count;
use crate::measure::builds::{KernelBuild, StageBuild, VariantBuild};
use crate::measure::rows;
use crate::measure::select;
use crate::page::terminal::{WIDTH, terminal};
use crate::page::{Block, Document, Table, row};
use crate::pages::metrics;
use crate::record::{Claim, Row};
use crate::registry::Ladder;
use clap::Args;
use common::inputs::Family;
use common::limits::DeviceLimits;
use common::problem::{Dtype, NamedShape, named_shapes};
use common::verdict::GateId;
use serde_json::{Value, json};

/// The flags of `list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Stages, by id or number, with all that each claims and predicts [default: all stages, their claims counted]
    #[arg(long, value_delimiter = ',', value_name = "STAGE,..")]
    pub stages: Vec<String>,
    /// Leave out what a smaller device could not run: sm_89 [default: $ATTENTION_DEVICE, else the GPU, else no limit]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceLimits>,
    /// As JSON, with stages and rows as in a record
    #[arg(long)]
    pub json: bool,
}

pub fn list(args: &ListArgs) -> anyhow::Result<Answer> {
    let mut ladder = Ladder::open()?;
    ladder.limit(DeviceLimits::asked(args.device)?)?;
    let builds = ladder.builds();
    let stages = select::stages(&args.stages, &builds)?;
    Ok(Answer::pass(match args.json {
        true => json(&data(&stages)),
        false => terminal(&document(&stages, !args.stages.is_empty()), WIDTH),
    }))
}

/// The distinct values of a variant's instances.
fn each<T: ToString>(variant: &VariantBuild, fact: impl Fn(&KernelBuild) -> T) -> String {
    let values = variant
        .kernels
        .iter()
        .map(|kernel| fact(kernel).to_string());
    joined(distinct(values), ", ")
}

/// `sm_80: 96-128, sm_90a: 104`
fn registers(variant: &VariantBuild) -> String {
    let built = variant.kernels.iter().flat_map(|kernel| &kernel.built);
    let by_arch = grouped(built.map(|built| (&built.ptxas.arch, built.ptxas.resources.registers)));
    let range = |(arch, mut counts): (&String, Vec<u32>)| {
        counts.sort_unstable();
        match (counts[0], counts[counts.len() - 1]) {
            (least, most) if least == most => format!("{arch}: {least}"),
            (least, most) => format!("{arch}: {least}-{most}"),
        }
    };
    if by_arch.is_empty() {
        "NO DATA".to_string()
    } else {
        joined(by_arch.into_iter().map(range), ", ")
    }
}

/// The element types that have a family.
fn dtypes(family: &Family) -> Vec<&'static str> {
    let takes = Dtype::ALL
        .into_iter()
        .filter(|&dtype| Family::for_dtype(dtype).contains(family));
    takes.map(Dtype::name).collect()
}

/// What a stage claims and predicts: line by line, or counted.
fn claims(stage: &StageBuild, in_full: bool) -> Vec<String> {
    let claims = &stage.meta.claims;
    if in_full {
        let line = |claim: &Claim| match claim.is_of_speed() {
            true => format!("claims {claim}"),
            false => format!("predicts {claim}: {}", claim.why),
        };
        return claims.iter().map(line).collect();
    }
    let of_speed = claims.iter().filter(|claim| claim.is_of_speed()).count();
    let speed = count(of_speed, "claim of speed", "claims of speed");
    let others = count(claims.len() - of_speed, "prediction", "predictions");
    let id = &stage.id;
    vec![format!(
        "makes {speed} and {others}: `compare list --stages {id}`"
    )]
}

/// `in_full`: with every claim of the stages.
fn document(stages: &[&StageBuild], in_full: bool) -> Document {
    let mut blocks = Vec::new();
    for stage in stages {
        let before = stage.predecessor.iter().map(|id| format!("builds on {id}"));
        let claims = claims(stage, in_full);
        let refused = stage
            .refused
            .iter()
            .map(|refusal| format!("unsupported: {refusal}"));
        let row = |variant: &VariantBuild| {
            let default = match variant.name == stage.default_variant {
                true => " (default)",
                false => "",
            };
            let tile = |k: &KernelBuild| format!("{}x{}", k.facts.block_m, k.facts.block_n);
            row! {
                "variant" => format!("{}{default}", variant.name),
                "tile" => each(variant, tile),
                "threads" => each(variant, |k| k.facts.threads),
                "dynamic shared bytes" => each(variant, |k| k.facts.dynamic_shared_bytes),
                "registers" => registers(variant),
                "dtypes" => each(variant, |k| k.facts.dtype),
                "head dims" => each(variant, |k| k.facts.head_dim),
            }
        };
        blocks.extend([
            Block::section(format!("{}: {}", stage.id, stage.idea)),
            Block::bullets(before.chain(claims).chain(refused)),
            Block::Table(Table::of(stage.variants.iter().map(row))),
        ]);
    }
    let shapes = named_shapes().map(|NamedShape { name, shape }| {
        row! {
            "shape" => *name,
            "batch" => shape.batch.to_string(),
            "query heads" => shape.heads_q.to_string(),
            "key heads" => shape.heads_kv.to_string(),
            "queries" => shape.seq_q.to_string(),
            "keys" => shape.seq_kv.to_string(),
            "head dim" => shape.head_dim.to_string(),
        }
    });
    let families = Family::ALL.iter().map(|family| {
        row! { "family" => family.name(), "dtypes" => dtypes(family).join(", ") }
    });
    blocks.extend([
        Block::section("Shapes, input families and gates"),
        Block::Table(Table::of(shapes)),
        Block::Table(Table::of(families)),
        Block::Table(metrics::gates()),
    ]);
    Document::of(blocks)
}

fn data(stages: &[&StageBuild]) -> Value {
    let families = Family::ALL
        .iter()
        .map(|family| json!({ "name": family.name(), "dtypes": dtypes(family) }));
    let gates = GateId::ALL
        .iter()
        .map(|&gate| json!({ "gate": gate, "rule": metrics::rule(gate) }));
    json!({
        "stages": stages.iter().map(|stage| &stage.meta).collect::<Vec<_>>(),
        "rows": stages.iter().flat_map(|stage| rows::built(stage)).collect::<Vec<Row>>(),
        "shapes": named_shapes().map(|named| json!({ "name": named.name, "extents": named.shape })).collect::<Vec<_>>(),
        "families": families.collect::<Vec<_>>(),
        "gates": gates.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::builds;

    #[test]
    fn the_page_names_all_that_can_be_asked_for() {
        let builds = builds();
        let all: Vec<&StageBuild> = builds.iter().collect();
        let text = terminal(&document(&all, true), 300);
        for part in [
            "== stage1-cpasync: K and V copied one tile ahead ==\n\n- builds on stage0-scalar\n",
            "- claims cpasync >= 1.10x over stage0-scalar wmma-qk",
            "- predicts cpasync: global bytes read as in stage0-scalar wmma-qk: the same tiles are read",
            "wmma-qk-32x64 (default)",
            "32x64",
            "37376",
            "f16, e4m3",
            "| C1 ",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        for named in named_shapes() {
            assert!(text.contains(named.name), "{}", named.name);
        }
        for family in Family::ALL {
            assert!(text.contains(family.name()), "{family}");
        }
        let counted = terminal(&document(&all, false), 300);
        assert!(!counted.contains("predicts"), "{counted}");
        let of_stage1 =
            "makes 1 claim of speed and 1 prediction: compare list --stages stage1-cpasync";
        assert!(counted.contains(of_stage1), "{counted}");
    }

    #[test]
    fn the_json_says_the_same() {
        let builds = builds();
        let document = data(&builds.iter().collect::<Vec<_>>());
        assert_eq!(document["stages"][0]["default_variant"], "wmma-qk-32x64");
        assert_eq!(document["rows"][0]["subject"], "stage0-scalar/scalar-32x64");
        assert_eq!(document["rows"][0]["figures"]["tile_m"], 32);
        assert_eq!(document["shapes"][1]["extents"]["seq_kv"], 512);
        assert_eq!(
            document["stages"][1]["claims"][1]["metric"],
            "global_read_bytes"
        );
        assert_eq!(
            document["gates"].as_array().map(Vec::len),
            Some(GateId::ALL.len())
        );
    }

    #[test]
    fn the_real_ladder_can_be_listed() {
        let listed = |stages: &[&str], json| {
            let stages = stages.iter().map(|stage| stage.to_string()).collect();
            let device = None;
            list(&ListArgs {
                stages,
                device,
                json,
            })
        };
        let text = listed(&[], false).unwrap().text;
        let stages = crate::registry::STAGES;
        assert!(stages.iter().all(|stage| text.contains(stage.info().id)));
        let json = listed(&["5"], true).unwrap().text;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["stages"].as_array().map(Vec::len), Some(1));
        assert!(listed(&["stage5"], false).is_err());
    }
}
