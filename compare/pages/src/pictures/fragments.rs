//! Who holds what: the accumulator of a product by tensor cores is, lane by lane, the first operand
//! of the next one. The layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with
//! floating point type" and "Register Fragments and Shared Memory Matrix Layouts" of wgmma.

use super::canvas::{
    Anchor, Area, DrawError, Drawn, Look, Paint, WIDTH, heading, heading_height, picture,
};
use plotters::prelude::*;

/// The threads of a warp.
pub const LANES: usize = 32;

/// The thread that the pictures single out.
const SHOWN_LANE: usize = 5;

/// The side of an element in the pictures.
const CELL: i32 = 15;

/// A place in a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    pub row: usize,
    pub column: usize,
}

/// Returns the element of D[16, 8] of an mma that a lane has in its register `index` of four.
pub fn mma_accumulator(lane: usize, index: usize) -> Element {
    Element {
        row: lane / 4 + index / 2 * 8,
        column: 2 * (lane % 4) + index % 2,
    }
}

/// Returns the element of A[16, 16] of an mma that a lane has in its register `index` of four, in
/// one of the halves of that.
pub fn mma_operand(lane: usize, index: usize, half: usize) -> Element {
    Element {
        row: lane / 4 + index % 2 * 8,
        column: 2 * (lane % 4) + half + index / 2 * 8,
    }
}

/// Returns the register of A in which value `index` of an accumulator becomes a half. The
/// accumulators of keys 0 to 7 and 8 to 15 are the halves of one operand of 16 keys.
pub fn packed_in(accumulator: usize, index: usize) -> usize {
    accumulator * 2 + index / 2
}

/// Returns the element of D[64, N] of a wgmma that a thread of the warpgroup has in its register
/// `index` of N / 2.
pub fn wgmma_accumulator(thread: usize, index: usize) -> Element {
    let Element { row, column } = mma_accumulator(thread % LANES, index % 4);
    Element {
        row: thread / LANES * 16 + row,
        column: index / 4 * 8 + column,
    }
}

/// The colours of the four registers of an operand.
const REGISTERS: [Paint; 4] = [Paint::Blue, Paint::Green, Paint::Amber, Paint::Violet];

const MMA_NOTE: &str = "\
    Numbers: the lane that holds the element. Colours: the registers a0, a1, a2 and a3 of the \
    operand, and the accumulators' values that become them by rounding. Framed: lane 5. Every \
    lane has its elements already: P never leaves registers.";

/// Returns the picture of two accumulators of mma.m16n8k16 and the operand that they become.
pub fn draw_mma() -> Result<String, DrawError> {
    let top = heading_height(MMA_NOTE, WIDTH as i32);
    let side = 16 * CELL;
    picture(
        "Accumulators and operand of mma.m16n8k16",
        top + side + 40,
        |area| {
            heading(area, "From scores to the operand of P·V", MMA_NOTE)?;
            let left = area.clone().shrink((0, top), (side, side + 40));
            let right = area
                .clone()
                .shrink((WIDTH as i32 - side - 1, top), (side + 1, side + 40));
            for (column, words) in [(0, "D: keys 0 to 7"), (8, "D: keys 8 to 15")] {
                Look::NOTE.write(&left, words, (CELL * column, 8))?;
            }
            Look::NOTE.write(&right, "A: 16 rows of 16 keys", (0, 8))?;
            Look::BODY.at(Anchor::Middle).write(
                area,
                "→",
                (WIDTH as i32 / 2, top + 20 + side / 2),
            )?;
            for lane in 0..LANES {
                draw_accumulators(&left, lane)?;
                draw_operand(&right, lane)?;
            }
            Look::NOTE.write(&left, "two products of Q·Kᵀ, 16 rows", (0, side + 30))?;
            Look::NOTE.write(&right, "first operand of P·V", (0, side + 30))
        },
    )
}

fn draw_accumulators(area: &Area<'_>, lane: usize) -> Drawn {
    for accumulator in 0..2 {
        for index in 0..4 {
            let Element { row, column } = mma_accumulator(lane, index);
            let place = Element {
                row,
                column: 8 * accumulator + column,
            };
            draw_element(area, place, lane, REGISTERS[packed_in(accumulator, index)])?;
        }
    }
    Ok(())
}

fn draw_operand(area: &Area<'_>, lane: usize) -> Drawn {
    for (index, paint) in REGISTERS.into_iter().enumerate() {
        for half in 0..2 {
            draw_element(area, mma_operand(lane, index, half), lane, paint)?;
        }
    }
    Ok(())
}

/// Draws an element with the lane that holds it, below a line of text.
fn draw_element(area: &Area<'_>, place: Element, lane: usize, paint: Paint) -> Drawn {
    let (left, top) = (CELL * place.column as i32, 20 + CELL * place.row as i32);
    let corners = [(left, top), (left + CELL - 1, top + CELL - 1)];
    let is_shown = lane == SHOWN_LANE;
    let strength = if is_shown { 0.6 } else { 0.2 };
    area.draw(&Rectangle::new(
        corners,
        paint.color().mix(strength).filled(),
    ))?;
    if is_shown {
        area.draw(&Rectangle::new(corners, Paint::Ink.color()))?;
    }
    let look = Look {
        size: 9.0,
        is_bold: is_shown,
        ..Look::BODY.at(Anchor::Middle)
    };
    look.write(area, &lane.to_string(), (left + CELL / 2, top + CELL / 2))
}

const WGMMA_NOTE: &str = "\
    The first 8 of N columns of D, 16 rows for each of the four warps; the next 8 columns lie in \
    the next four registers of the same threads. Numbers: the lane. Blue: d0 and d1, violet: d2 \
    and d3. Framed: lane 5. Each warp has the accumulator of mma.m16n8k16.";

/// Returns the picture of the accumulator of a wgmma.
pub fn draw_wgmma() -> Result<String, DrawError> {
    let top = heading_height(WGMMA_NOTE, WIDTH as i32);
    let height = 16 * CELL + 24;
    picture("D of wgmma.m64nNk16", top + height, |area| {
        heading(area, "D of wgmma", WGMMA_NOTE)?;
        for warp in 0..4 {
            let part = area
                .clone()
                .shrink((131 * warp as i32, top), (8 * CELL + 1, height));
            let words = format!("warp {warp}: rows {} to {}", 16 * warp, 16 * warp + 15);
            Look::NOTE.write(&part, &words, (0, 8))?;
            for lane in 0..LANES {
                draw_quarter(&part, warp, lane)?;
            }
        }
        Ok(())
    })
}

fn draw_quarter(area: &Area<'_>, warp: usize, lane: usize) -> Drawn {
    for index in 0..4 {
        let Element { row, column } = wgmma_accumulator(LANES * warp + lane, index);
        let place = Element {
            row: row - 16 * warp,
            column,
        };
        let paint = if index < 2 {
            Paint::Blue
        } else {
            Paint::Violet
        };
        draw_element(area, place, lane, paint)?;
    }
    Ok(())
}
