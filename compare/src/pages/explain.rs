//! The page of `compare explain`: where a row first goes wrong.

use crate::document::{Block, Table, Text, row};
use common::explain::{Closest, Deviation, Explained, Investigated, Quantity, Suspect, Wrong};
use common::reference::Probability;
use common::verdict::GateResult;
use emulator::{Place, TraceReport};

use super::{list, sections, text};
use crate::judge::list::joined;

/// The most numbers, and hazards, that are shown.
const MOST: usize = 8;
const MOST_HAZARDS: usize = 3;

/// Of a kernel that holds P in `probability`; `about` names it and the row.
pub fn document(about: String, probability: Probability, found: &Investigated) -> Vec<Block> {
    let mut blocks = vec![Block::paragraph(about)];
    let red = found.gates.iter().filter(|gate| gate.is_fail());
    let red: Vec<&GateResult> = red.collect();
    let fails = red
        .iter()
        .map(|gate| format!("FAIL {}: {}", gate.gate, gate.reason));
    let fault = found.fault.iter();
    let fault = fault.map(|fault| format!("The launch stopped: {fault}"));
    blocks.extend([list(fails), list(fault)].concat());
    blocks.extend(hazards(&found.traced));
    match &found.explained.deviation {
        Some(deviation) => blocks.extend(of(deviation, &found.explained)),
        None => match &found.explained.closest {
            Some(closest) if found.is_red() && !found.is_stopped() => {
                blocks.extend(within(
                    closest,
                    red.iter().map(|gate| gate.gate.to_string()),
                ));
            }
            _ => blocks.push(Block::paragraph(silence(probability, found))),
        },
    }
    blocks
}

fn hazards(traced: &TraceReport) -> Vec<Block> {
    let shown = traced.hazards.iter().take(MOST_HAZARDS);
    let more = traced.hazards.len().saturating_sub(MOST_HAZARDS) + traced.more_hazards;
    let more = (more > 0).then(|| format!("{more} more hazards"));
    let lines = list(shown.map(ToString::to_string).chain(more));
    let title = "Hazards: fix these first, they may cause everything else.";
    sections(Block::strong, [(title, lines)])
}

fn silence(probability: Probability, found: &Investigated) -> String {
    let p = match probability {
        Probability::F32 => "f32".to_string(),
        p => format!("f32 with P in {}", p.name()),
    };
    let silent =
        format!("Nothing leaves what {p} allows: S, maximum, sum, P and O are right in every tile");
    match found.is_stopped() {
        true => format!("{silent}, as far as the kernel ran."),
        false => format!("{silent}, and so is what was stored."),
    }
}

/// A row of which each number is within its own bound, though these gates fail.
fn within(closest: &Closest, gates: impl Iterator<Item = String>) -> Vec<Block> {
    let Closest {
        quantity,
        share,
        tile,
        look,
    } = closest;
    let tile = tile.map_or(String::new(), |key| {
        format!(", in the tile of keys from {key}")
    });
    let gates = joined(gates, " and ");
    let strong =
        format!("Each number of this row is within its own bound, though it fails {gates}.");
    let closest = format!(
        " Closest to its bound is {}, at {:.0} % of it{tile}: most of the error enters there.",
        quantity.name().trim_end_matches(','),
        100.0 * share
    );
    vec![
        Block::Paragraph(Text::default().strong(strong).plain(closest)),
        places(look),
        Block::paragraph("Or try another --row, or a GPU."),
    ]
}

fn of(deviation: &Deviation, explained: &Explained) -> Vec<Block> {
    let Deviation {
        quantity, wrong, ..
    } = deviation;
    let place = match deviation.at {
        Some([chain, step]) => {
            let chain = &explained.chains[chain];
            let [x, y, z] = chain.block;
            format!(
                " first in tile {} of {} (keys from {}) of warp {} of block {x},{y},{z}; all before it is right",
                step + 1,
                chain.steps.len(),
                chain.steps[step].tile,
                chain.warp
            )
        }
        None => "; all that the warps computed is right".to_string(),
    };
    let what = unit(*quantity);
    let whose = match what {
        "" => String::new(),
        what => format!(
            " {} of {} are wrong: {what}s {}.",
            wrong.len(),
            deviation.of,
            ranges(wrong)
        ),
    };
    let strong = format!("{quantity} leaves what its precision allows{place}.");
    let row = |one: &Wrong| {
        row! {
            if what.is_empty() { "row" } else { what } => text(one.at),
            "kernel" => text(number(one.kernel)),
            "model" => text(number(one.model)),
            "apart" => text(number((one.kernel - one.model).abs())),
            "allowed" => text(number(one.bound)),
        }
    };
    let table = Table::of(wrong.iter().take(MOST).map(row));
    vec![
        Block::Paragraph(
            Text::default()
                .strong(strong)
                .plain(whose + as_shown(*quantity)),
        ),
        Block::Table(table),
        places(&deviation.look),
        Block::paragraph("docs/symptoms.md leads from symptoms to causes."),
    ]
}

fn places(look: &[Suspect]) -> Block {
    Block::bullets(look.iter().enumerate().map(|(at, suspect)| {
        let word = if at == 0 { "Look at" } else { "or at" };
        format!("{word} {}", line(suspect))
    }))
}

/// How the kernel shows a quantity, if that could be misread.
fn as_shown(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Score => {
            " S is shown after the mask and before the scale: -inf where the row does not see the key."
        }
        Quantity::Maximum => " It is the maximum of S times the scale, in base 2.",
        Quantity::Probability => " P is shown in f32, before it is rounded for P·V.",
        _ => "",
    }
}

/// What the numbers of a quantity are indexed by.
fn unit(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Score | Quantity::Probability | Quantity::Keys => "key",
        Quantity::Rescaled | Quantity::Output | Quantity::Result => "column",
        Quantity::Maximum | Quantity::Sum => "",
    }
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        value if !value.is_finite() => value.to_string(),
        value if (1e-3..1e5).contains(&value.abs()) => format!("{value:.6}"),
        value => format!("{value:.5e}"),
    }
}

/// `0-7, 16-23`, at most [`MOST`] ranges.
fn ranges(wrong: &[Wrong]) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for one in wrong {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == one.at => *end = one.at,
            _ => ranges.push((one.at, one.at)),
        }
    }
    let more = if ranges.len() > MOST { ", ..." } else { "" };
    let shown: Vec<String> = ranges
        .iter()
        .take(MOST)
        .map(|(start, end)| match start == end {
            true => start.to_string(),
            false => format!("{start}-{end}"),
        })
        .collect();
    shown.join(", ") + more
}

/// The kernel's own line, what happens there, and through which headers.
fn line(suspect: &Suspect) -> String {
    let places: Vec<String> = suspect.places.iter().rev().map(Place::to_string).collect();
    match places.split_first() {
        Some((own, [])) => format!("{own}, which {}", suspect.action),
        Some((own, through)) => {
            format!("{own}, which {} at {}", suspect.action, through.join(" > "))
        }
        None => suspect.action.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_row_that_fails_a_gate_by_no_single_number_is_never_said_to_be_right() {
        let closest = Closest {
            quantity: Quantity::Rescaled,
            share: 0.93,
            tile: Some(128),
            look: Vec::new(),
        };
        let gates = ["C2", "C4"].map(str::to_string).into_iter();
        let page = crate::document::markdown::markdown(&within(&closest, gates));
        let says = |words: &str| page.contains(words);
        assert!(
            says("it fails C2 and C4") && says("O, rescaled, at 93 % of it"),
            "{page}"
        );
        assert!(says("keys from 128") && !says("right"), "{page}");
    }

    #[test]
    fn neighbours_are_ranges() {
        let at = |at| Wrong {
            at,
            kernel: 0.0,
            model: 1.0,
            bound: 0.0,
        };
        assert_eq!(ranges(&[0, 1, 2, 8, 10, 11].map(at)), "0-2, 8, 10-11");
    }
}
