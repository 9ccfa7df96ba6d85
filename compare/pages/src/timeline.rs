//! What `compare timeline` shows: how warps spend their time, on the terminal, as a picture and as a
//! file for Perfetto.

mod picture;
mod trace;

#[cfg(test)]
mod tests;

pub use picture::picture;
pub use trace::trace;

use crate::cells::text;
use common::timeline::{Axis, Category, Overlap, Role, RoleShare, Timeline, overlaps, shares};
use document::{Block, Table, TableRow, row};

/// The timeline of one block of a variant's launch.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The stage's id.
    pub stage: String,
    pub variant: String,
    /// Shape, element type and mask.
    pub problem: String,
    /// The number of the block: x, then y, then z.
    pub block: u32,
    pub timeline: Timeline,
    /// `None` without a GPU.
    pub times: Option<Times>,
}

/// The cost of notes: microseconds per launch, without and with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub plain_us: f64,
    pub noting_us: f64,
}

impl Times {
    /// Returns how many times as long a launch takes with notes.
    pub fn slowdown(self) -> f64 {
        self.noting_us / self.plain_us
    }
}

impl Drawn {
    /// Returns what is drawn: stage, variant, problem and block.
    fn name(&self) -> String {
        let Self {
            stage,
            variant,
            problem,
            block,
            ..
        } = self;
        format!("{stage}/{variant} {problem}, block {block}")
    }

    /// Returns what the picture can be trusted for.
    fn note(&self) -> String {
        match (self.timeline.axis, self.times) {
            (Axis::Steps, _) => match self.timeline.hazards {
                0 => "order alone, by the emulator: steps are not time".to_string(),
                count => format!(
                    "order alone, by the emulator, of a kernel with hazards ({count}): see H1"
                ),
            },
            (Axis::Clocks { .. }, Some(times)) => format!(
                "{:.1} µs a launch, {:.1} µs with notes ({:+.0} %)",
                times.plain_us,
                times.noting_us,
                100.0 * (times.slowdown() - 1.0)
            ),
            (Axis::Clocks { .. }, None) => "clocks of its multiprocessor".to_string(),
        }
    }
}

/// Returns the page of the terminal: the parts of time of each stage's kinds of warps.
pub fn page(drawn: &[Drawn]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rows = Vec::new();
    for one in drawn {
        blocks.push(Block::paragraph(format!("{}: {}", one.name(), one.note())));
        blocks.extend(cut(&one.timeline).map(Block::paragraph));
        match one.timeline.axis {
            Axis::Steps => {
                let counted = overlaps(&one.timeline);
                rows.extend(counted.iter().map(|overlap| overlap_row(one, overlap)));
            }
            Axis::Clocks { .. } => {
                let timed = shares(&one.timeline);
                rows.extend(timed.iter().map(|share| share_row(one, share)));
            }
        }
    }
    blocks.push(Block::Table(Table::from_rows(rows).filled()));
    blocks.push(Block::paragraph(legend(drawn)));
    blocks
}

/// Returns which warps noted more than there was room for.
fn cut(timeline: &Timeline) -> Option<String> {
    let warps: Vec<String> = timeline.cut.iter().map(ToString::to_string).collect();
    if warps.is_empty() {
        return None;
    }
    Some(format!(
        "The notes of warps {} are full: what they did afterwards is not shown. Take a smaller \
         problem.",
        warps.join(", ")
    ))
}

fn legend(drawn: &[Drawn]) -> &'static str {
    if drawn.iter().any(|one| one.timeline.axis == Axis::Steps) {
        "Runs of one kind, of all warps of the line. Under a product: a wgmma that was started before \
         is waited for only afterwards."
    } else {
        "Percent of the time from entry to end. In flight: a product may be running, at most. Rest: \
         all that is not noted, such as masks, maxima and conversions."
    }
}

/// Returns the cells that a line begins with.
fn first_cells(one: &Drawn, role: Role, warps: usize) -> TableRow {
    row! {
        "stage" => text(one.stage.split_once('-').map_or(&*one.stage, |(number, _)| number)),
        "warps" => text(format!("{warps} {}", role.name())),
    }
}

fn overlap_row(one: &Drawn, overlap: &Overlap) -> TableRow {
    let mut cells = first_cells(one, overlap.role, overlap.warps);
    for (name, count) in [
        ("copies", overlap.copies),
        ("products", overlap.products),
        ("exponentials", overlap.exponentials),
        ("of them under a product", overlap.covered),
    ] {
        cells.push((name.to_string(), counted(count)));
    }
    cells
}

/// Returns a count; an empty cell for nothing.
fn counted(count: usize) -> document::Cell {
    match count {
        0 => document::Cell::Empty,
        _ => document::Cell::Figure(count.to_string()),
    }
}

fn share_row(one: &Drawn, share: &RoleShare) -> TableRow {
    let mut cells = first_cells(one, share.role, share.warps);
    for category in Category::ALL {
        cells.push((category.name().to_string(), percent(share.of(category))));
    }
    cells.push(("rest".to_string(), percent(share.rest())));
    cells.push(("in flight".to_string(), percent(share.in_flight)));
    cells
}

/// Returns a part in percent; an empty cell for nothing.
fn percent(part: f64) -> document::Cell {
    if part == 0.0 {
        return document::Cell::Empty;
    }
    document::Cell::Figure(format!("{:.0}", 100.0 * part))
}
