//! `compare show` alone: the names that other commands take.

use super::show::Section;
use crate::document::Block;
use crate::judge::list::joined;
use crate::table::StageMeta;
use clap::ValueEnum;
use common::inputs::Family;
use common::problem::{Dtype, Mask, NamedShape, SHAPES};
use common::verdict::GateId;

pub fn document(stages: &[StageMeta]) -> Vec<Block> {
    let of_stage = |stage: &StageMeta| {
        let name = |name: &str| match name == stage.default_variant {
            true => format!("{name} (default)"),
            false => name.to_string(),
        };
        let variants = joined(
            stage.variants.iter().map(|variant| name(&variant.name)),
            ", ",
        );
        format!("{}: {}. {variants}", stage.id, stage.idea)
    };
    let shapes = SHAPES
        .iter()
        .map(|NamedShape { name, shape, .. }| format!("{name} {shape}"));
    let masks = joined(Mask::ALL, ", ");
    let parts = Section::value_variants()
        .iter()
        .filter_map(Section::to_possible_value);
    let parts = joined(parts.map(|part| part.get_name().to_string()), ", ");
    vec![
        Block::section("Stages and their variants"),
        Block::bullets(stages.iter().map(of_stage)),
        Block::section("Problems"),
        Block::bullets([
            format!(
                "shapes, batch x heads x length x head_dim: {}",
                joined(shapes, ", ")
            ),
            format!("element types: {}", joined(Dtype::ALL, ", ")),
            format!("masks: {masks}"),
            format!(
                "input families: {}",
                joined(Family::ALL.iter().map(|family| family.name()), ", ")
            ),
        ]),
        Block::section("What else can be shown"),
        Block::bullets([
            "a stage: `compare show --stage 5`".to_string(),
            format!("parts of the committed table, or of a run with `--run DIR`: {parts}"),
            format!(
                "what the gates {} demand, and every metric: docs/rows.md",
                joined(GateId::ALL, ", ")
            ),
        ]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::terminal::terminal;
    use crate::stages;

    #[test]
    fn the_page_names_all_that_can_be_asked_for_and_fits_a_screen() {
        let stages = stages::builds().unwrap();
        let text = terminal(&document(&stages));
        assert!(text.lines().count() <= 60, "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let variants = stages.iter().flat_map(|stage| &stage.variants);
        let variants = variants.map(|variant| variant.name.as_str());
        let ids = stages.iter().map(|stage| stage.id.as_str());
        let shapes = SHAPES.iter().map(|named| named.name);
        let families = Family::ALL.iter().map(|family| family.name());
        let names = ids.chain(variants).chain(shapes).chain(families);
        for name in names.chain(["f16", "causal", "C2", "latencies"]) {
            assert!(words.contains(name), "{name} is not in\n{text}");
        }
    }
}
