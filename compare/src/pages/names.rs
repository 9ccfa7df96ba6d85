//! `compare show` alone: the names that other commands take.

use crate::document::Block;
use crate::judge::list::joined;
use crate::table::StageMeta;
use common::inputs::Family;
use common::problem::{Dtype, Mask, NamedShape, SHAPES};

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
        Block::paragraph(
            "`compare show --help` names the parts of a table or run that can be shown; docs/rows.md has the gates and every metric.",
        ),
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
        for name in names.chain(["f16", "causal"]) {
            assert!(words.contains(name), "{name} is not in\n{text}");
        }
    }
}
