//! The page of `compare explain`: where a row first goes wrong.

use super::blocks::{Titled, bullets, sections};
use super::cells::text;
use common::explain::{Closest, Deviation, Explained, Investigated, Quantity, Suspect, Wrong};
use common::reference::Probability;
use common::verdict::GateResult;
use document::{Block, Table, TableRow, Text, row};
use emulator::{Place, TraceReport};

/// The most numbers, and ranges of numbers, that are shown.
const MAX_NUMBERS: usize = 8;

/// The most hazards that are shown.
const MAX_HAZARDS: usize = 3;

/// Returns the page on a kernel that holds P in `probability`; `about` names the kernel and the
/// row.
pub fn document(about: String, probability: Probability, found: &Investigated) -> Vec<Block> {
    let failed: Vec<&GateResult> = found.gates.iter().filter(|gate| gate.is_fail()).collect();
    let mut blocks = vec![Block::paragraph(about)];
    blocks.extend(bullets(
        failed
            .iter()
            .map(|gate| format!("FAIL {}: {}", gate.gate, gate.reason)),
    ));
    blocks.extend(bullets(
        found
            .fault
            .iter()
            .map(|fault| format!("The launch stopped: {fault}")),
    ));
    blocks.extend(hazards(&found.traced));
    let explained = &found.explained;
    match (&explained.deviation, &explained.closest) {
        (Some(deviation), _) => blocks.extend(deviation_blocks(deviation, explained)),
        (None, Some(closest)) if found.is_red() && !found.is_stopped() => {
            blocks.extend(within_bounds(closest, &failed));
        }
        _ => blocks.push(Block::paragraph(silence(probability, found))),
    }
    blocks
}

fn hazards(traced: &TraceReport) -> Vec<Block> {
    let mut lines = Vec::new();
    for hazard in traced.hazards.iter().take(MAX_HAZARDS) {
        lines.push(hazard.to_string());
    }
    let hidden = traced.hazards.len() - lines.len() + traced.more_hazards;
    if hidden > 0 {
        lines.push(format!("{hidden} more hazards"));
    }
    let title = "Hazards: fix these first, they may cause everything else.";
    sections(Block::strong, [Titled::new(title, bullets(lines))])
}

fn silence(probability: Probability, found: &Investigated) -> String {
    let precision = match probability {
        Probability::F32 => "f32".to_string(),
        other => format!("f32 with P in {}", other.name()),
    };
    let end = if found.is_stopped() {
        ", as far as the kernel ran."
    } else {
        ", and so is what was stored."
    };
    format!(
        "Nothing leaves what {precision} allows: \
         S, maximum, sum, P and O are right in every tile{end}"
    )
}

/// Returns the page on a row of which each number is within its own bound, though these gates fail.
fn within_bounds(closest: &Closest, failed: &[&GateResult]) -> Vec<Block> {
    let Closest {
        quantity,
        share,
        tile,
        look,
    } = closest;
    let tile_words = match tile {
        Some(key) => format!(", in the tile of keys from {key}"),
        None => String::new(),
    };
    let gates: Vec<String> = failed.iter().map(|gate| gate.gate.to_string()).collect();
    let finding = format!(
        "Each number of this row is within its own bound, though it fails {}.",
        gates.join(" and ")
    );
    let detail = format!(
        " Closest to its bound is {}, at {:.0} % of it{tile_words}: \
         most of the error enters there.",
        quantity.name().trim_end_matches(','),
        100.0 * share
    );
    vec![
        Block::Paragraph(Text::default().strong(finding).plain(detail)),
        places(look),
        Block::paragraph("Or try another --row, or a GPU."),
    ]
}

fn deviation_blocks(deviation: &Deviation, explained: &Explained) -> Vec<Block> {
    let quantity = deviation.quantity;
    let finding = format!(
        "{quantity} leaves what its precision allows{}.",
        first_place(deviation, explained)
    );
    let detail = format!("{}{}", wrong_numbers(deviation), as_shown(quantity));
    let shown = deviation.wrong.iter().take(MAX_NUMBERS);
    let rows = shown.map(|wrong| wrong_row(unit(quantity), wrong));
    vec![
        Block::Paragraph(Text::default().strong(finding).plain(detail)),
        Block::Table(Table::from_rows(rows)),
        places(&deviation.look),
        Block::paragraph("docs/symptoms.md leads from symptoms to causes."),
    ]
}

/// Returns the tile in which the quantity is wrong first.
fn first_place(deviation: &Deviation, explained: &Explained) -> String {
    let Some([chain_index, step]) = deviation.at else {
        return "; all that the warps computed is right".to_string();
    };
    let chain = &explained.chains[chain_index];
    let [x, y, z] = chain.block;
    format!(
        " first in tile {} of {} (keys from {}) of warp {} of block {x},{y},{z}; \
         all before it is right",
        step + 1,
        chain.steps.len(),
        chain.steps[step].tile,
        chain.warp
    )
}

/// Returns which numbers of the quantity are wrong, if it has several.
fn wrong_numbers(deviation: &Deviation) -> String {
    let unit = unit(deviation.quantity);
    if unit.is_empty() {
        return String::new();
    }
    let wrong = &deviation.wrong;
    format!(
        " {} of {} are wrong: {unit}s {}.",
        wrong.len(),
        deviation.compared,
        ranges(wrong)
    )
}

fn wrong_row(unit: &str, wrong: &Wrong) -> TableRow {
    row! {
        if unit.is_empty() { "row" } else { unit } => text(wrong.at),
        "kernel" => text(number(wrong.kernel)),
        "model" => text(number(wrong.model)),
        "apart" => text(number((wrong.kernel - wrong.model).abs())),
        "allowed" => text(number(wrong.bound)),
    }
}

fn places(look: &[Suspect]) -> Block {
    let mut lines = Vec::new();
    for suspect in look {
        let words = if lines.is_empty() { "Look at" } else { "or at" };
        lines.push(format!("{words} {}", suspect_line(suspect)));
    }
    Block::bullets(lines)
}

/// Returns how the kernel shows a quantity, if that could be misread.
fn as_shown(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Score => {
            " S is shown after the mask and before the scale: \
             -inf where the row does not see the key."
        }
        Quantity::Maximum => " It is the maximum of S times the scale, in base 2.",
        Quantity::Probability => " P is shown in f32, before it is rounded for P·V.",
        _ => "",
    }
}

/// Returns what the numbers of a quantity are indexed by.
fn unit(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Score | Quantity::Probability | Quantity::Keys => "key",
        Quantity::Rescaled | Quantity::Output | Quantity::Result => "column",
        Quantity::Maximum | Quantity::Sum => "",
    }
}

fn number(value: f64) -> String {
    if value == 0.0 {
        "0".to_string()
    } else if !value.is_finite() {
        value.to_string()
    } else if (1e-3..1e5).contains(&value.abs()) {
        format!("{value:.6}")
    } else {
        format!("{value:.5e}")
    }
}

/// Returns `0-7, 16-23`, at most [`MAX_NUMBERS`] ranges.
fn ranges(wrong: &[Wrong]) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for Wrong { at, .. } in wrong {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *at => *end = *at,
            _ => ranges.push((*at, *at)),
        }
    }
    let mut shown = Vec::new();
    for (start, end) in ranges.iter().take(MAX_NUMBERS) {
        shown.push(if start == end {
            start.to_string()
        } else {
            format!("{start}-{end}")
        });
    }
    if ranges.len() > MAX_NUMBERS {
        shown.push("...".to_string());
    }
    shown.join(", ")
}

/// Returns the kernel's own line, what happens there, and through which headers.
fn suspect_line(suspect: &Suspect) -> String {
    let places: Vec<String> = suspect.places.iter().rev().map(Place::to_string).collect();
    match places.split_first() {
        Some((own, [])) => format!("{own}, which {}", suspect.action),
        Some((own, headers)) => {
            format!("{own}, which {} at {}", suspect.action, headers.join(" > "))
        }
        None => suspect.action.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::verdict::GateId;
    use document::markdown::markdown;

    #[test]
    fn a_row_that_fails_a_gate_by_no_single_number_is_never_said_to_be_right() {
        let closest = Closest {
            quantity: Quantity::Rescaled,
            share: 0.93,
            tile: Some(128),
            look: Vec::new(),
        };
        let gates = [GateId::C2, GateId::C4].map(|gate| GateResult::judge(gate, false, "wrong"));
        let page = markdown(&within_bounds(&closest, &Vec::from_iter(&gates)));
        assert!(page.contains("it fails C2 and C4"), "{page}");
        assert!(page.contains("O, rescaled, at 93 % of it"), "{page}");
        assert!(page.contains("keys from 128"), "{page}");
        assert!(!page.contains("right"), "{page}");
    }

    #[test]
    fn neighbours_are_ranges() {
        let wrong = [0, 1, 2, 8, 10, 11].map(|at| Wrong {
            at,
            kernel: 0.0,
            model: 1.0,
            bound: 0.0,
        });
        assert_eq!(ranges(&wrong), "0-2, 8, 10-11");
    }
}
