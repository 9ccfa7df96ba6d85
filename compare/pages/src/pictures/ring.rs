//! A ring of tiles: what is in each slot when, and the phases of its two mbarriers.

use super::canvas::{
    Anchor, Area, DrawError, Drawn, Look, Paint, WIDTH, heading, heading_height, picture,
};
use plotters::prelude::*;

/// The slots of the ring in the picture, and the tiles that pass through it.
pub const SLOTS: usize = 3;
pub const TILES: usize = 8;

/// The time from a request to the last byte, from one request to the next, and for using a tile.
const LATENCY: usize = 3;
const ISSUE: usize = 1;
const USE: usize = 2;

/// A tile on its way: from its request to its last byte, and while it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub slot: usize,
    /// The parity of its phases of both mbarriers.
    pub parity: usize,
    pub requested: usize,
    pub landed: usize,
    pub used_from: usize,
    pub used_until: usize,
}

/// Returns what becomes of each tile. A request waits for empty of the tile that had the slot
/// before, a use for full of its own tile and for the use of the one before.
pub fn tiles(slots: usize, count: usize) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = Vec::new();
    for number in 0..count {
        let issued = tiles.last().map_or(0, |before| before.requested + ISSUE);
        let emptied = number
            .checked_sub(slots)
            .map_or(0, |before| tiles[before].used_until);
        let requested = issued.max(emptied);
        let landed = requested + LATENCY;
        let used_from = tiles
            .last()
            .map_or(0, |before| before.used_until)
            .max(landed);
        tiles.push(Tile {
            slot: number % slots,
            parity: number / slots % 2,
            requested,
            landed,
            used_from,
            used_until: used_from + USE,
        });
    }
    tiles
}

/// A phase of an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    pub parity: usize,
    pub from: usize,
    pub until: usize,
}

/// Returns the phases that end at these times, one after the other, and the one that does not end.
pub fn phases(ends: impl IntoIterator<Item = usize>, end: usize) -> Vec<Phase> {
    let mut phases = Vec::new();
    let mut from = 0;
    for until in ends.into_iter().chain([end]) {
        phases.push(Phase {
            parity: phases.len() % 2,
            from,
            until,
        });
        from = until;
    }
    phases.retain(|phase| phase.from < phase.until);
    phases
}

/// The width of the names, the height of a slot, and of its parts.
const NAMES: i32 = 62;
const SLOT: i32 = 74;
const BOX: i32 = 24;
const STRIP: i32 = 17;

/// Returns the picture.
pub fn draw() -> Result<String, DrawError> {
    let note = format!(
        "Tile t lies in slot t % {SLOTS}, and its phases of both mbarriers have parity \
         t / {SLOTS} % 2. Amber: under way, from its request on; blue: used. A phase of “full” \
         ends when all bytes are there, one of “empty” when everybody has read the tile: grey, \
         with its parity. The loader asks for the slot's next tile when “empty” has ended."
    );
    let top = heading_height(&note, WIDTH as i32);
    let tiles = tiles(SLOTS, TILES);
    let end = tiles
        .iter()
        .map(|tile| tile.used_until)
        .max()
        .unwrap_or_default();
    picture(
        "A ring and its phases",
        top + SLOT * SLOTS as i32 + 16,
        |area| {
            heading(area, "A ring of tiles and its phases", &note)?;
            let below = area
                .clone()
                .shrink((0, top), (WIDTH as i32, SLOT * SLOTS as i32 + 16));
            for slot in 0..SLOTS {
                draw_slot(&below, &tiles, slot, end)?;
            }
            let at = (WIDTH as i32 - 1, SLOT * SLOTS as i32 + 6);
            Look::NOTE.at(Anchor::End).write(&below, "time →", at)
        },
    )
}

/// Returns the column of a time.
fn x_of(time: usize, end: usize) -> i32 {
    NAMES + (WIDTH as i32 - 1 - NAMES) * time as i32 / end as i32
}

fn draw_slot(area: &Area<'_>, tiles: &[Tile], slot: usize, end: usize) -> Drawn {
    let top = SLOT * slot as i32;
    Look::NAME.write(area, &format!("slot {slot}"), (0, top + BOX / 2))?;
    for (number, tile) in tiles
        .iter()
        .enumerate()
        .filter(|(_, tile)| tile.slot == slot)
    {
        let spans = [
            (tile.requested, tile.landed, Paint::Amber),
            (tile.used_from, tile.used_until, Paint::Blue),
        ];
        for (from, until, paint) in spans {
            let corners = [
                (x_of(from, end) + 1, top),
                (x_of(until, end) - 1, top + BOX),
            ];
            area.draw(&Rectangle::new(corners, paint.color().mix(0.35).filled()))?;
            let middle = (corners[0].0 + corners[1].0) / 2;
            Look::BODY.at(Anchor::Middle).write(
                area,
                &number.to_string(),
                (middle, top + BOX / 2),
            )?;
        }
    }
    let own = tiles.iter().filter(|tile| tile.slot == slot);
    let full = phases(own.clone().map(|tile| tile.landed), end);
    let empty = phases(own.map(|tile| tile.used_until), end);
    draw_phases(area, "full", &full, top + BOX + 2, end)?;
    draw_phases(area, "empty", &empty, top + BOX + 2 + STRIP, end)
}

fn draw_phases(area: &Area<'_>, name: &str, phases: &[Phase], top: i32, end: usize) -> Drawn {
    Look::NOTE.write(area, name, (0, top + STRIP / 2))?;
    for phase in phases {
        let corners = [
            (x_of(phase.from, end) + 1, top + 1),
            (x_of(phase.until, end) - 1, top + STRIP - 1),
        ];
        let strength = if phase.parity == 0 { 0.12 } else { 0.4 };
        area.draw(&Rectangle::new(
            corners,
            Paint::Faint.color().mix(strength).filled(),
        ))?;
        let middle = (corners[0].0 + corners[1].0) / 2;
        let look = Look::NOTE.painted(Paint::Ink).at(Anchor::Middle);
        look.write(area, &phase.parity.to_string(), (middle, top + STRIP / 2))?;
    }
    Ok(())
}
