//! The map of the stages: the main path downwards, and the branches beside it, each joined to the
//! stage that it starts from.

use super::canvas::{
    Anchor, Area, DrawError, Drawn, Look, Paint, SMALL, WIDTH, heading, heading_height, picture,
};
use crate::cells::three_digits;
use crate::counted;
use crate::ladder;
use plotters::prelude::*;
use results::judge::best::p50;
use results::judge::verdict::Report;
use results::table::{ProblemPlace, Role, StageMeta};

/// The widths of a box of the main path, and of a branch.
const RUNG: i32 = 262;
const BRANCH: i32 = 222;

/// The height of a title in a box, of a line of its idea, and of the gap below it.
const TITLE: i32 = 24;
const LINE: i32 = 13;
const GAP: i32 = 13;

/// The most lines of an idea.
const LINES: usize = 4;

/// A stage on the map.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    pub id: String,
    pub title: String,
    pub idea: String,
    /// The time and rate at the problems that it is shown at, as far as they were measured.
    pub figures: String,
    /// The gain over its predecessor or the stage named, with the claim.
    pub gain: String,
    pub predecessor: Option<String>,
    pub is_rung: bool,
    /// Its row, from the top.
    pub row: usize,
}

/// Returns all stages with their places.
pub fn stations(report: &Report<'_>) -> Vec<Station> {
    let stages = report.view.stages;
    let mut stations = Vec::new();
    let rungs = stages.iter().filter(|stage| stage.role == Role::Rung);
    for (row, stage) in rungs.enumerate() {
        stations.push(station(report, stage, row));
    }
    let mut next = 0;
    for stage in branches_in_order(stages) {
        // Beside what it starts from or below, and below the branch before.
        let start = stage.predecessor.as_deref();
        let above = stations.iter().find(|station| Some(&*station.id) == start);
        let row = next.max(above.map_or(0, |station| station.row));
        next = row + 1;
        stations.push(station(report, stage, row));
    }
    stations
}

/// Returns the branches in the order of the rungs that they come from; a branch of a branch follows
/// that.
fn branches_in_order(stages: &[StageMeta]) -> Vec<&StageMeta> {
    let mut order = Vec::new();
    for stage in stages {
        if stage.role == Role::Rung {
            add_branches(stages, &stage.id, &mut order);
        }
    }
    order
}

fn add_branches<'a>(stages: &'a [StageMeta], start: &str, order: &mut Vec<&'a StageMeta>) {
    for stage in stages {
        if stage.role != Role::Rung && stage.predecessor.as_deref() == Some(start) {
            order.push(stage);
            add_branches(stages, &stage.id, order);
        }
    }
}

fn station(report: &Report<'_>, stage: &StageMeta, row: usize) -> Station {
    let places = stage.places();
    let figures = places
        .iter()
        .filter_map(|place| figure(report, stage, place));
    let mut gains = Vec::new();
    for place in &places {
        let words = ladder::gain(report, stage, place)
            .cell()
            .shown()
            .to_string();
        if !words.is_empty() {
            gains.push(format!("{} {words}", place.shape));
        }
    }
    Station {
        id: stage.id.clone(),
        title: counted::title(stage),
        idea: stage.idea.clone(),
        figures: figures.collect::<Vec<_>>().join(", "),
        gain: gains.join(", "),
        predecessor: stage.predecessor.clone(),
        is_rung: stage.role == Role::Rung,
        row,
    }
}

/// Returns the time at a small problem, at any other the rate.
fn figure(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Option<String> {
    let us = p50(ladder::timed(report, stage, place)?);
    if *place == stage.first_place() {
        return Some(format!("{} µs", three_digits(us)));
    }
    let rate = ladder::rate_of(place, us)? / 1e12;
    Some(format!("{} {}", three_digits(rate), ladder::unit(place)))
}

/// Returns the picture.
pub fn draw(report: &Report<'_>) -> Result<String, DrawError> {
    let map = Map::new(stations(report));
    let note = format!(
        "Left the main path: time at mission, rate at big, and between two boxes the gain \
         (claimed). Right the branches, each at its own problem. {}.",
        report.view.gpu().unwrap_or("no GPU")
    );
    let top = heading_height(&note, WIDTH as i32);
    picture("Map of the stages", top + map.height(), |area| {
        heading(area, "Map of the stages", &note)?;
        let below = area.clone().shrink((0, top), (WIDTH as i32, map.height()));
        for station in &map.stations {
            map.draw_way(&below, station)?;
            map.draw_station(&below, station)?;
        }
        Ok(())
    })
}

/// The stages and the rows that they stand in.
struct Map {
    stations: Vec<Station>,
    rows: Vec<Span>,
}

/// The upper and the lower edge of the boxes of a row.
#[derive(Clone, Copy)]
struct Span {
    top: i32,
    bottom: i32,
}

impl Map {
    fn new(stations: Vec<Station>) -> Self {
        let count = stations.iter().map(|station| station.row + 1).max();
        let mut rows = Vec::new();
        let mut top = 0;
        for row in 0..count.unwrap_or_default() {
            let own = stations.iter().filter(|station| station.row == row);
            let lines = own.map(|station| idea_lines(station).len()).max();
            let bottom = top + TITLE + LINE * lines.unwrap_or_default() as i32;
            rows.push(Span { top, bottom });
            top = bottom + GAP;
        }
        Self { stations, rows }
    }

    fn height(&self) -> i32 {
        self.rows.last().map_or(0, |row| row.bottom + GAP)
    }

    fn draw_station(&self, area: &Area<'_>, station: &Station) -> Drawn {
        let Span { top, bottom } = self.rows[station.row];
        let (left, right) = (left_of(station), left_of(station) + width_of(station));
        let corners = [(left + 1, top), (right - 1, bottom)];
        let paint = if station.is_rung {
            Paint::Blue
        } else {
            Paint::Violet
        };
        area.draw(&Rectangle::new(corners, paint.color().mix(0.12).filled()))?;
        area.draw(&Rectangle::new(corners, paint.color()))?;
        Look::NAME.write(area, &station.title, (left + 8, top + 11))?;
        let figures = Look::NOTE.painted(Paint::Ink).at(Anchor::End);
        figures.write(area, &station.figures, (right - 8, top + 11))?;
        for (index, line) in idea_lines(station).iter().enumerate() {
            let y = top + TITLE + LINE * index as i32 + 3;
            Look::NOTE.write(area, line, (left + 8, y))?;
        }
        Ok(())
    }

    /// Draws the way from the predecessor, and writes the gain: of a rung above its box, of a
    /// branch below it.
    fn draw_way(&self, area: &Area<'_>, station: &Station) -> Drawn {
        let Span { top, bottom } = self.rows[station.row];
        let mut stations = self.stations.iter();
        if let Some(start) = stations.find(|other| Some(&other.id) == station.predecessor.as_ref())
        {
            let path = if station.is_rung {
                vec![(20, self.rows[start.row].bottom), (20, top)]
            } else {
                self.way_to_branch(start, station)
            };
            let stroke = Paint::Faint.color().stroke_width(2);
            area.draw(&PathElement::new(path, stroke))?;
        }
        let at = if station.is_rung {
            (28, top - GAP / 2)
        } else {
            (left_of(station), bottom + GAP / 2)
        };
        Look::NOTE.sized(SMALL - 1.0).write(area, &station.gain, at)
    }

    /// Returns the corners of the way to a branch: down from the branch above it, else in the gap
    /// between the columns.
    fn way_to_branch(&self, start: &Station, branch: &Station) -> Vec<(i32, i32)> {
        if !start.is_rung && start.row + 1 == branch.row {
            let x = left_of(branch) + width_of(branch) - 20;
            return vec![
                (x, self.rows[start.row].bottom),
                (x, self.rows[branch.row].top),
            ];
        }
        let start_y = self.middle(start);
        let end_y = self.middle(branch);
        let (left, right) = (RUNG, left_of(branch));
        // A branch of a branch that is not above it leaves to the left, too.
        let lane = if start.is_rung { left + 12 } else { right - 12 };
        let start_x = if start.is_rung { left } else { right };
        vec![
            (start_x, start_y),
            (lane, start_y),
            (lane, end_y),
            (right, end_y),
        ]
    }

    fn middle(&self, station: &Station) -> i32 {
        let Span { top, bottom } = self.rows[station.row];
        (top + bottom) / 2
    }
}

fn left_of(station: &Station) -> i32 {
    if station.is_rung {
        0
    } else {
        WIDTH as i32 - BRANCH
    }
}

fn width_of(station: &Station) -> i32 {
    if station.is_rung { RUNG } else { BRANCH }
}

/// Returns the idea in as many lines as a box has, the last one cut where it has more.
fn idea_lines(station: &Station) -> Vec<String> {
    let width = width_of(station) - 16;
    let mut lines = Look::NOTE.lines(&station.idea, width);
    if lines.len() > LINES {
        lines.truncate(LINES);
        let last = &mut lines[LINES - 1];
        while Look::NOTE.width(last) + Look::NOTE.width("…") > width {
            last.pop();
        }
        last.push('…');
    }
    lines
}
