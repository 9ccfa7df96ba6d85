//! `compare show` alone: the names that other commands take.

use common::inputs::Family;
use common::problem::{Dtype, Mask, NamedShape, SHAPES};
use document::Block;
use results::judge::list::joined;
use results::table::StageMeta;

/// Returns the page of all names that a command takes.
pub fn document(stages: &[StageMeta]) -> Vec<Block> {
    let shapes = SHAPES
        .iter()
        .map(|NamedShape { name, shape, .. }| format!("{name} {shape}"));
    let families = Family::ALL.iter().map(|family| family.name());
    vec![
        Block::section("Stages and their variants"),
        Block::bullets(stages.iter().map(stage_line)),
        Block::section("Problems"),
        Block::bullets([
            format!(
                "shapes, batch x heads x length x head_dim: {}",
                joined(shapes, ", ")
            ),
            format!(
                "element types: {}; masks: {}",
                joined(Dtype::ALL, ", "),
                joined(Mask::ALL, ", ")
            ),
            format!("input families: {}", joined(families, ", ")),
        ]),
        Block::paragraph(
            "`compare show --help` names what can be shown of a table or run; docs/rows.md has gates \
             and metrics.",
        ),
    ]
}

fn stage_line(stage: &StageMeta) -> String {
    let mut variants = Vec::new();
    for variant in &stage.variants {
        variants.push(if variant.name == stage.default_variant {
            format!("{} (default)", variant.name)
        } else {
            variant.name.clone()
        });
    }
    format!("{}: {}. {}", stage.id, stage.idea, variants.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use document::terminal::terminal;

    #[test]
    fn the_page_names_all_that_can_be_asked_for_and_fits_a_screen() {
        let stages = stages::builds().unwrap();
        let text = terminal(&document(&stages));
        assert!(text.lines().count() <= 60, "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut names = vec!["f16", "causal"];
        for stage in &stages {
            names.push(&stage.id);
            names.extend(stage.variants.iter().map(|variant| variant.name.as_str()));
        }
        names.extend(SHAPES.iter().map(|named| named.name));
        names.extend(Family::ALL.iter().map(|family| family.name()));
        for name in names {
            assert!(words.contains(name), "{name} is not in\n{text}");
        }
    }
}
