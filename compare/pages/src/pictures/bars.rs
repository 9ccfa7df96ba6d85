//! Bar charts: a name, a bar and a text behind it on each line, over a labelled axis.

use super::canvas::{
    Area, DrawError, Drawn, Look, Paint, WIDTH, heading, heading_height, picture, width_of,
};
use plotters::coord::ranged1d::{SegmentValue, SegmentedCoord};
use plotters::coord::types::{RangedCoordf64, RangedCoordusize};
use plotters::prelude::*;
use std::ops::Range;

/// The height of a line.
const STEP: i32 = 20;

/// The height of the axis, with the numbers and their unit below it.
const AXIS: i32 = 34;

/// The distance from one chart to the next.
const GAP: i32 = 12;

/// The distance from a bar's end to the text behind it.
const TEXT_GAP: i32 = 5;

/// The distance from a value to its note.
const NOTE_GAP: i32 = 6;

/// A piece of a bar.
pub struct Part {
    pub length: f64,
    pub paint: Paint,
}

/// A line of a chart.
#[derive(Default)]
pub struct Bar {
    pub name: String,
    /// The pieces from left to right; none where nothing was measured.
    pub parts: Vec<Part>,
    /// The value behind the bar, and a note behind that.
    pub text: String,
    pub note: String,
    /// The least and the largest value of which the bar is a mean.
    pub range: Option<Range<f64>>,
    /// The value that a tick across the bar marks.
    pub tick: Option<f64>,
}

impl Bar {
    /// Makes a bar of one piece, or none where nothing was measured.
    pub fn new(name: impl Into<String>, length: Option<f64>, text: impl Into<String>) -> Self {
        let mut parts = Vec::new();
        if let Some(value) = length {
            parts.push(Part {
                length: value,
                paint: Paint::Blue,
            });
        }
        Self {
            name: name.into(),
            parts,
            text: text.into(),
            ..Self::default()
        }
    }

    /// Returns the value at the right end of everything that is drawn of it.
    fn end(&self) -> f64 {
        let length: f64 = self.parts.iter().map(|part| part.length).sum();
        let range = self.range.as_ref().map_or(0.0, |range| range.end);
        length.max(range).max(self.tick.unwrap_or_default())
    }

    /// Returns the width of the texts behind it.
    fn texts_width(&self) -> i32 {
        Look::BODY.width(&self.text) + NOTE_GAP + Look::NOTE.width(&self.note)
    }
}

/// A chart of horizontal bars.
pub struct Chart {
    pub title: String,
    pub note: String,
    pub bars: Vec<Bar>,
    /// The quantity of the axis, with its unit.
    pub axis: String,
    /// The value of a line across all bars, which the note explains.
    pub mark: Option<f64>,
    /// Whether the names stand left of the bars; else the chart beside it has them.
    pub has_names: bool,
}

impl Chart {
    /// Returns the height of its title and note, where it is `width` wide.
    pub fn heading_height(&self, width: i32) -> i32 {
        heading_height(&self.note, width)
    }

    /// Returns the height of what is below its heading.
    pub fn plot_height(&self) -> i32 {
        STEP * self.bars.len() as i32 + AXIS
    }

    /// Returns the value at the right end of the axis.
    fn largest(&self) -> f64 {
        let ends = self.bars.iter().map(Bar::end);
        ends.fold(self.mark.unwrap_or_default(), f64::max)
            .max(f64::MIN_POSITIVE)
    }

    /// Returns the width of the names, and of the gap behind them.
    fn names_width(&self) -> i32 {
        if self.has_names {
            Look::BODY.widest(self.bars.iter().map(|bar| &*bar.name)) + 8
        } else {
            2
        }
    }

    /// Returns the height of all of it.
    pub fn height(&self, width: i32) -> i32 {
        self.heading_height(width) + self.plot_height()
    }

    /// Draws it into an area, its bars from `below` on; a chart without bars is its heading.
    pub fn draw(&self, area: &Area<'_>, below: i32) -> Drawn {
        heading(area, &self.title, &self.note)?;
        if self.bars.is_empty() {
            return Ok(());
        }
        let (_, plot) = area.split_vertically(below);
        let texts = self.bars.iter().map(Bar::texts_width).max();
        let mut chart = ChartBuilder::on(&plot)
            .margin_right(texts.unwrap_or_default() + TEXT_GAP)
            .y_label_area_size(self.names_width())
            .x_label_area_size(AXIS)
            .build_cartesian_2d(
                0.0..self.largest(),
                (0..self.bars.len() - 1).into_segmented(),
            )?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .set_all_tick_mark_size(3)
            .axis_style(Paint::Faint.color())
            .bold_line_style(Paint::Faint.color().mix(0.25))
            .light_line_style(TRANSPARENT)
            .x_labels(if width_of(area) > 300 { 6 } else { 4 })
            .x_label_style(Look::NOTE.style())
            .x_label_formatter(&|value| tick_label(*value))
            .y_labels(self.bars.len())
            .y_label_style(Look::BODY.style())
            .y_label_formatter(&|segment| self.name(segment))
            .axis_desc_style(Look::NOTE.style())
            .x_desc(&*self.axis)
            .draw()?;
        self.draw_bars(chart.plotting_area())
    }

    /// Returns the name that stands beside a segment of the vertical axis, which counts upwards.
    fn name(&self, segment: &Segment) -> String {
        match segment {
            SegmentValue::CenterOf(place) if self.has_names => {
                let bar = self.bars.iter().rev().nth(*place);
                bar.map_or(String::new(), |named| named.name.clone())
            }
            _ => String::new(),
        }
    }

    fn draw_bars(&self, area: &Plot<'_>) -> Drawn {
        for (place, bar) in self.bars.iter().rev().enumerate() {
            let mut start = 0.0;
            for part in &bar.parts {
                let end = start + part.length;
                area.draw(&block(start, end, place, part.paint))?;
                start = end;
            }
            draw_marks(area, place, bar)?;
            self.draw_texts(area, place, bar)?;
        }
        if let Some(value) = self.mark {
            let top = SegmentValue::Exact(self.bars.len());
            let ends = vec![(value, SegmentValue::Exact(0)), (value, top)];
            area.draw(&PathElement::new(ends, Paint::Red.color()))?;
        }
        Ok(())
    }

    /// Writes a bar's texts behind it, right of the mark, which crosses none.
    fn draw_texts(&self, area: &Plot<'_>, place: usize, bar: &Bar) -> Drawn {
        let end = bar.end().max(self.mark.unwrap_or_default());
        let mut x = TEXT_GAP;
        for (look, words) in [(Look::BODY, &bar.text), (Look::NOTE, &bar.note)] {
            if !words.is_empty() {
                let text = Text::new(words.clone(), (x, 0), look.style());
                let at = (end, SegmentValue::CenterOf(place));
                area.draw(&(EmptyElement::at(at) + text))?;
                x += look.width(words) + NOTE_GAP;
            }
        }
        Ok(())
    }
}

fn draw_marks(area: &Plot<'_>, place: usize, bar: &Bar) -> Drawn {
    if let Some(range) = &bar.range {
        let ends = [range.start, range.end].map(|value| (value, SegmentValue::CenterOf(place)));
        area.draw(&PathElement::new(ends.to_vec(), Paint::Ink.color()))?;
    }
    let ranges = bar.range.iter();
    let whiskers = ranges.flat_map(|range| [(range.start, 4), (range.end, 4)]);
    for (value, half_height) in whiskers.chain(bar.tick.map(|tick| (tick, 8))) {
        let corners = [(-1, -half_height), (1, half_height)];
        let across = Rectangle::new(corners, Paint::Ink.color().filled());
        area.draw(&(EmptyElement::at((value, SegmentValue::CenterOf(place))) + across))?;
    }
    Ok(())
}

/// Returns a number of an axis without digits that say nothing.
pub fn tick_label(value: f64) -> String {
    let digits = format!("{value:.3}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_string()
}

type Segment = SegmentValue<usize>;
type Plot<'a> =
    DrawingArea<SVGBackend<'a>, Cartesian2d<RangedCoordf64, SegmentedCoord<RangedCoordusize>>>;

/// The margin above and below a bar.
const MARGIN: u32 = 4;

/// Returns a piece of the bar at a place.
fn block(start: f64, end: f64, place: usize, paint: Paint) -> Rectangle<(f64, Segment)> {
    let corners = [
        (start, SegmentValue::Exact(place)),
        (end, SegmentValue::Exact(place + 1)),
    ];
    let mut piece = Rectangle::new(corners, paint.color().filled());
    piece.set_margin(MARGIN, MARGIN, 0, 0);
    piece
}

/// Returns a picture of the charts that have bars, below each other.
pub fn stacked(title: &str, charts: &[Chart]) -> Result<String, DrawError> {
    let width = WIDTH as i32;
    let shown: Vec<&Chart> = charts
        .iter()
        .filter(|chart| !chart.bars.is_empty())
        .collect();
    let heights = shown.iter().map(|chart| chart.height(width) + GAP);
    picture(title, heights.sum(), |area| {
        let mut top = 0;
        for chart in shown {
            let height = chart.height(width);
            let part = area.clone().shrink((0, top), (width, height));
            chart.draw(&part, chart.heading_height(width))?;
            top += height + GAP;
        }
        Ok(())
    })
}
