//! Bar charts: a name, a bar and a text behind it on each line, over a labelled axis.

use super::canvas::{Area, Drawn, Look, Paint, heading, heading_height, width_of};
use plotters::coord::ranged1d::{SegmentValue, SegmentedCoord};
use plotters::coord::types::{RangedCoordf64, RangedCoordusize};
use plotters::prelude::*;

/// The height of a line.
const STEP: i32 = 20;

/// The height of the axis, with the numbers and their unit below it.
const AXIS: i32 = 34;

/// The distance from a bar's end to the text behind it.
const TEXT_GAP: i32 = 5;

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
    /// The text behind the bar.
    pub text: String,
    /// The value that a tick across the bar marks.
    pub tick: Option<f64>,
}

impl Bar {
    fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.length).sum()
    }
}

/// A chart of horizontal bars.
pub struct Chart {
    pub title: String,
    pub note: String,
    pub bars: Vec<Bar>,
    /// What the axis shows, with its unit.
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
        let ends = self
            .bars
            .iter()
            .flat_map(|bar| [bar.length(), bar.tick.unwrap_or(0.0)]);
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

    /// Draws it into an area, its bars from `below` on; a chart without bars is its heading.
    pub fn draw(&self, area: &Area<'_>, below: i32) -> Drawn {
        heading(area, &self.title, &self.note)?;
        if self.bars.is_empty() {
            return Ok(());
        }
        let (_, plot) = area.split_vertically(below);
        let texts = Look::BODY.widest(self.bars.iter().map(|bar| &*bar.text));
        let mut chart = ChartBuilder::on(&plot)
            .margin_right(texts + TEXT_GAP + 1)
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
                bar.map(|bar| bar.name.clone()).unwrap_or_default()
            }
            _ => String::new(),
        }
    }

    fn draw_bars(&self, area: &Plot<'_>) -> Drawn {
        for (place, bar) in self.bars.iter().rev().enumerate() {
            let mut start = 0.0;
            for part in &bar.parts {
                let end = start + part.length;
                area.draw(&block(start, end, place, 4, part.paint))?;
                start = end;
            }
            if let Some(tick) = bar.tick {
                let across = Rectangle::new([(-1, -8), (1, 8)], Paint::Ink.color().filled());
                area.draw(&(EmptyElement::at((tick, SegmentValue::CenterOf(place))) + across))?;
            }
            let text = Text::new(bar.text.clone(), (TEXT_GAP, 0), Look::BODY.style());
            area.draw(&(EmptyElement::at((start, SegmentValue::CenterOf(place))) + text))?;
        }
        if let Some(value) = self.mark {
            let ends = vec![
                (value, SegmentValue::Exact(0)),
                (value, SegmentValue::Exact(self.bars.len())),
            ];
            area.draw(&PathElement::new(ends, Paint::Red.color()))?;
        }
        Ok(())
    }
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

/// Returns a piece of the bar at a place, which leaves a margin above and below itself.
fn block(
    start: f64,
    end: f64,
    place: usize,
    margin: u32,
    paint: Paint,
) -> Rectangle<(f64, Segment)> {
    let corners = [
        (start, SegmentValue::Exact(place)),
        (end, SegmentValue::Exact(place + 1)),
    ];
    let mut piece = Rectangle::new(corners, paint.color().filled());
    piece.set_margin(margin, margin, 0, 0);
    piece
}
