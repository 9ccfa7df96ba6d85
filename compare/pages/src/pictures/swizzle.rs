//! Where the 16-byte chunks of a tile lie in shared memory, and how often ldmatrix has to go there.

use super::canvas::{
    Anchor, Area, DrawError, Drawn, Look, Paint, WIDTH, heading, heading_height, picture,
};
use plotters::prelude::*;

/// The bytes of a row of 64 halves.
pub const ROW_BYTES: usize = 128;

/// The rows of a matrix that ldmatrix reads at once, and the chunks in a row.
pub const ROWS: usize = 8;

/// The bytes of a chunk.
const CHUNK: usize = 16;

/// The chunk of each row that the picture singles out.
pub const READ: usize = 2;

/// A layout of tiles of `common/cuda/attn/layout.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Linear,
    Padded,
    Swizzled,
}

impl Layout {
    pub const ALL: [Self; 3] = [Self::Linear, Self::Padded, Self::Swizzled];

    /// Returns the family of stage 5 whose tiles are laid out so.
    pub fn family(self) -> &'static str {
        match self {
            Self::Linear => "mma-linear",
            Self::Padded => "mma-padded",
            Self::Swizzled => "swizzle",
        }
    }

    /// Returns its formula in the words of the header, for rows of [`ROW_BYTES`].
    fn formula(self) -> &'static str {
        match self {
            Self::Linear => "row * 128 + chunk * 16",
            Self::Padded => "row * 144 + chunk * 16",
            Self::Swizzled => "row * 128 + (chunk ^ row % 8) * 16",
        }
    }

    /// Returns the first byte of a chunk, where rows have `row_bytes`.
    pub fn offset(self, row_bytes: usize, row: usize, chunk: usize) -> usize {
        match self {
            Self::Linear => row * row_bytes + chunk * CHUNK,
            Self::Padded => row * (row_bytes + CHUNK) + chunk * CHUNK,
            Self::Swizzled => {
                let chunks = (row_bytes / CHUNK).min(8);
                let rows = 8 / chunks;
                row * row_bytes + (chunk ^ (row / rows % chunks)) * CHUNK
            }
        }
    }

    /// Returns the group of four banks that a chunk lies in.
    pub fn bank_group(self, row: usize, chunk: usize) -> usize {
        self.offset(ROW_BYTES, row, chunk) / CHUNK % 8
    }

    /// Returns the wavefronts in which ldmatrix reads one chunk of 8 rows: as many as there are
    /// chunks in one group of banks.
    pub fn wavefronts(self, chunk: usize) -> usize {
        let mut chunks_in = [0; 8];
        for row in 0..ROWS {
            chunks_in[self.bank_group(row, chunk)] += 1;
        }
        chunks_in.into_iter().max().unwrap_or_default()
    }
}

/// The side of a chunk in the picture.
const CELL: i32 = 18;

/// The distance from one layout to the next.
const STEP: i32 = 178;

const NOTE: &str = "\
    A tile of 8 rows of 128 bytes. Columns: the 32 banks in groups of four, below each its first \
    bank. Numbers: the 16-byte chunk of the row that lies there. Blue: chunk 2 of each row, which \
    one ldmatrix reads.";

/// Returns the picture.
pub fn draw() -> Result<String, DrawError> {
    let top = heading_height(NOTE, WIDTH as i32);
    picture("Chunks of a tile in shared memory", top + 232, |area| {
        heading(area, "Where ldmatrix finds a chunk", NOTE)?;
        for (place, layout) in Layout::ALL.into_iter().enumerate() {
            let part = area.clone().shrink((STEP * place as i32, top), (STEP, 232));
            draw_layout(&part, layout)?;
        }
        Ok(())
    })
}

fn draw_layout(area: &Area<'_>, layout: Layout) -> Drawn {
    Look::NAME.write(area, layout.family(), (0, 10))?;
    Look::NOTE
        .sized(8.5)
        .write(area, layout.formula(), (0, 26))?;
    for row in 0..ROWS {
        for chunk in 0..ROW_BYTES / CHUNK {
            draw_chunk(area, layout, row, chunk)?;
        }
    }
    for group in 0..8 {
        let banks = format!("{}", 4 * group);
        let at = (cell(group, 0).0 + CELL / 2, 40 + CELL * ROWS as i32 + 8);
        Look::NOTE.at(Anchor::Middle).write(area, &banks, at)?;
    }
    let wavefronts = layout.wavefronts(READ);
    let paint = if wavefronts == 1 {
        Paint::Green
    } else {
        Paint::Red
    };
    let plural = if wavefronts == 1 { "" } else { "s" };
    let words = format!("{wavefronts} wavefront{plural}");
    Look::NAME.painted(paint).write(area, &words, (0, 222))
}

/// Returns the upper left corner of a cell.
fn cell(group: usize, row: usize) -> (i32, i32) {
    (CELL * group as i32, 40 + CELL * row as i32)
}

fn draw_chunk(area: &Area<'_>, layout: Layout, row: usize, chunk: usize) -> Drawn {
    let (left, top) = cell(layout.bank_group(row, chunk), row);
    let corners = [(left, top), (left + CELL - 2, top + CELL - 2)];
    let strength = if chunk == READ { 0.55 } else { 0.12 };
    area.draw(&Rectangle::new(
        corners,
        Paint::Blue.color().mix(strength).filled(),
    ))?;
    let look = Look {
        paint: if chunk == READ {
            Paint::Ink
        } else {
            Paint::Faint
        },
        is_bold: chunk == READ,
        ..Look::NOTE.at(Anchor::Middle)
    };
    look.write(
        area,
        &chunk.to_string(),
        (left + CELL / 2 - 1, top + CELL / 2 - 1),
    )
}
