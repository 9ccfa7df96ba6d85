//! Blocks on the multiprocessors of a GPU: how many of these a grid reaches, and how full its last
//! round is.

use super::canvas::{Area, DrawError, Drawn, Look, Paint, WIDTH, heading, heading_height, picture};
use super::multiprocessors;
use crate::counted;
use crate::ladder;
use common::metric::Metric;
use common::problem::Shape;
use plotters::prelude::*;
use results::judge::View;
use results::judge::best;
use results::judge::blocks::per_sm;
use results::judge::verdict::Report;
use results::table::{Instance, Kind, ProblemPlace, Role, StageMeta, Subject};

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    pub blocks: u64,
    /// The blocks of the kernel that an SM holds at a time.
    pub per_sm: u64,
    pub sms: u64,
    /// Whether its blocks stay and take one tile of rows after the other.
    pub stays: bool,
}

impl Grid {
    /// Returns how often all places for a block are filled, if every block takes as long.
    pub fn rounds(&self) -> f64 {
        self.blocks as f64 / (self.per_sm * self.sms) as f64
    }

    /// Returns the blocks on each SM in the last round. Blocks go to the emptiest SM.
    pub fn last_round(&self) -> Vec<u64> {
        let places = self.per_sm * self.sms;
        let left = match self.blocks % places {
            0 => places.min(self.blocks),
            rest => rest,
        };
        (0..self.sms)
            .map(|sm| (left + self.sms - 1 - sm) / self.sms)
            .collect()
    }

    fn words(&self) -> String {
        let Self {
            blocks,
            per_sm,
            stays,
            ..
        } = self;
        let stay = if *stays { " stay" } else { "" };
        format!(
            "{blocks} blocks{stay}, {per_sm} an SM: {:.2} rounds",
            self.rounds()
        )
    }
}

/// Returns the launch of a stage's fastest variant on a problem; without a time of the one that is
/// fastest at its first problem. Nothing where its blocks per SM are not known.
pub fn grid(view: &View<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<Grid> {
    let subject = match best::best(view, stage, place, |_| true) {
        Some(row) => row.subject.clone(),
        None => best::subject(view, stage),
    };
    let shape = place.extents()?;
    let kernel = stage
        .variant(subject.name())?
        .instance(place.dtype, shape.head_dim)?;
    let tiles = row_tiles(&shape, kernel.facts.block_m);
    let items = tiles * u64::from(kernel.facts.cluster);
    let sms = u64::from(multiprocessors(view)?);
    let per_sm = blocks_per_sm(view, &subject, place.instance()?)?;
    let stays = stays(view, stage, &subject).unwrap_or_default();
    Some(Grid {
        blocks: if stays {
            items.min(per_sm * sms)
        } else {
            items
        },
        per_sm,
        sms,
        stays,
    })
}

/// Returns how many blocks an SM of the table's GPU holds, by what ptxas made of the instance.
fn blocks_per_sm(view: &View<'_>, subject: &Subject, instance: Instance) -> Option<u64> {
    let gpu = &view.on_gpu()?.machine.gpu;
    let compiled = view
        .table
        .compiled(subject)
        .find(|compiled| compiled.instance == instance && gpu.runs(compiled.arch))?;
    let blocks = per_sm(
        &view.table,
        compiled.row,
        compiled.row.value(Metric::Occupancy)?,
    )?;
    (blocks > 0).then_some(u64::from(blocks))
}

/// Returns the tiles of rows of a problem.
fn row_tiles(shape: &Shape, block_m: usize) -> u64 {
    (shape.seq_q.div_ceil(block_m) * shape.heads_q * shape.batch) as u64
}

/// Returns whether a kernel's blocks take several tiles: the emulator, which has fewer places for
/// them than a GPU, launched fewer blocks than there are tiles.
fn stays(view: &View<'_>, stage: &StageMeta, subject: &Subject) -> Option<bool> {
    let place = stage.first_place();
    let counters = view.table.row(subject, Kind::Counters(place.clone()))?;
    let launched = counters.value(Metric::LaunchBlocks)?;
    let kernel = stage.variant(subject.name())?.claims_kernel(place.dtype)?;
    let tiles = row_tiles(&place.extents()?, kernel.facts.block_m);
    Some(launched < tiles as f64)
}

/// The distance from one problem to the next.
const COLUMN: i32 = 217;

/// The width of the names, the SMs in a line, the width of an SM and the height of a line, and the
/// distance between stages.
const NAMES: i32 = 86;
const SMS: usize = 44;
const SIDE: i32 = 4;
const LINE: i32 = 5;
const STEP: i32 = 40;

const NOTE: &str = "\
    The SMs in the last round of the grid, 44 in a strip: the darker, the more of their places \
    have a block; pale ones have none. The variant of each stage that is fastest at the problem.";

/// Returns the picture.
pub fn draw(report: &Report<'_>) -> Result<String, DrawError> {
    let view = &report.view;
    let gpu = view.gpu().unwrap_or("no GPU");
    let note = format!("{NOTE} {gpu}.");
    let top = heading_height(&note, WIDTH as i32);
    let stages = view.stages.iter();
    let rungs: Vec<&StageMeta> = stages.filter(|stage| stage.role == Role::Rung).collect();
    let height = top + 20 + STEP * rungs.len() as i32;
    picture("Blocks on multiprocessors", height, |area| {
        heading(area, "Blocks on SMs, main path", &note)?;
        for (index, stage) in rungs.iter().enumerate() {
            let y = top + 20 + STEP * index as i32;
            Look::BODY.write(area, &counted::title(stage), (0, y + 8))?;
            for (column, place) in stage.places().iter().enumerate() {
                let x = NAMES + COLUMN * column as i32;
                let part = area.clone().shrink((x, y), (COLUMN - 7, STEP));
                draw_grid(&part, grid(view, stage, place).as_ref())?;
                if index == 0 {
                    let title = format!("{} {}", place.shape, ladder::extents(&place.shape));
                    Look::NAME.write(area, &title, (x, top + 8))?;
                }
            }
        }
        Ok(())
    })
}

fn draw_grid(area: &Area<'_>, launch: Option<&Grid>) -> Drawn {
    let Some(grid) = launch else {
        return Look::NOTE.write(area, "not compiled for this GPU", (0, 8));
    };
    for (line, sms) in grid.last_round().chunks(SMS).enumerate() {
        let top = LINE * line as i32;
        let mut left = 0;
        // SMs that have as many blocks as their neighbours are one piece.
        for alike in sms.chunk_by(|a, b| a == b) {
            let right = left + SIDE * alike.len() as i32;
            let share = alike[0] as f64 / grid.per_sm as f64;
            let colour = Paint::Blue.color().mix(0.15 + 0.85 * share);
            let corners = [(left, top), (right - 1, top + LINE - 1)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            left = right;
        }
    }
    Look::NOTE.write(area, &grid.words(), (0, 24))
}
