//! Warps over time as SVG: a row for each warp, spans coloured by kind, and lines from what ended a
//! wait to its end. In steps warps that do the same share a row, which has room for names of tiles.

use super::Drawn;
use common::timeline::{Axis, Flight, Kind, Link, Role, Span, Timeline};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// The colours in light and dark.
const STYLE: &str = "\
    text{fill:#1f2328}.title{font-weight:600}.note{fill:#59636e}.axis{stroke:#d1d9e0}\
    .grid{stroke:#d1d9e0;stroke-width:.5}.on{fill:#fff}.row{fill:#f6f8fa}.copy{fill:#1a7f37}\
    .product{fill:#0969da}.exponentials{fill:#bc4c00}\
    .store{fill:#8250df}.wait{fill:#d1d9e0}.flight{fill:#54aeff}\
    .link{stroke:#cf222e;stroke-width:.6;fill:none;opacity:.6}\
    @media(prefers-color-scheme:dark){\
    text{fill:#e6edf3}.note{fill:#9198a1}.axis{stroke:#3d444d}\
    .grid{stroke:#3d444d}.on{fill:#0d1117}.row{fill:#151b23}.copy{fill:#3fb950}\
    .product{fill:#4493f8}.exponentials{fill:#f0883e}\
    .store{fill:#ab7df8}.wait{fill:#3d444d}.flight{fill:#1f6feb}\
    .link{stroke:#f85149}}";

/// The place where time begins: right of the warps' names.
const LEFT: f64 = 210.0;

/// The width of the picture, and of its time axis.
const WIDTH: f64 = 1240.0;
const TIME_WIDTH: f64 = WIDTH - LEFT - 30.0;

/// The sizes of a row of warps.
struct Layout {
    /// The height of the spans.
    span: f64,
    /// The height of a bar of products in flight, below the spans, and how many there are at most.
    flight: f64,
    flights: usize,
    /// The space below.
    space: f64,
}

impl Layout {
    /// A warp among many, over time.
    const NARROW: Self = Self {
        span: 11.0,
        flight: 3.0,
        flights: 1,
        space: 2.0,
    };

    /// Several warps in one row, with names of tiles.
    const WIDE: Self = Self {
        span: 16.0,
        flight: 13.0,
        flights: 2,
        space: 8.0,
    };

    fn of(axis: Axis) -> &'static Self {
        match axis {
            Axis::Clocks { .. } => &Self::NARROW,
            Axis::Steps => &Self::WIDE,
        }
    }

    /// Returns the distance from one row to the next.
    fn row(&self) -> f64 {
        self.span + self.flight * self.flights as f64 + self.space
    }
}

/// The size of the text, and of the names of tiles.
const TEXT_SIZE: f64 = 12.0;
const NAME_SIZE: f64 = 10.0;

/// The height of a stage's title and note.
const TITLES: f64 = 36.0;

/// The distance from one stage to the next.
const GAP: f64 = 14.0;

/// The height of the legend and of the axis.
const LEGEND: f64 = 26.0;
const AXIS: f64 = 44.0;

/// The side of a colour in the legend.
const COLOUR: f64 = 11.0;

/// The least part of the axis that a wait takes whose cause is drawn, and the most of them in one
/// stage.
const LEAST_WAIT: f64 = 0.004;
const MOST_LINKS: usize = 80;

/// The most marks of time on the axis, and the least distance from one step's mark to the next.
const MOST_TICKS: f64 = 8.0;
const LEAST_STEP: f64 = 24.0;

/// Returns an SVG of the stages, below each other on one time axis.
pub fn picture(drawn: &[Drawn]) -> String {
    let ends = drawn.iter().map(|one| one.timeline.end());
    let end = ends.max().unwrap_or(0).max(1);
    let axis = TimeAxis {
        unit: drawn.first().map_or(Axis::Steps, |one| one.timeline.axis),
        end: end as f64,
        scale: TIME_WIDTH / end as f64,
    };
    let mut parts = legend(drawn);
    let mut top = LEGEND;
    for one in drawn {
        let panel = Panel::new(one, top, axis.scale);
        parts += &axis.grid(top + TITLES, top + panel.height());
        parts += &panel.svg();
        top += panel.height() + GAP;
    }
    parts += &axis.svg(top);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" viewBox=\"0 0 {WIDTH} \
         {:.0}\" font-family=\"system-ui,sans-serif\" font-size=\"{TEXT_SIZE}\">\n\
         <title>Timeline of {}</title>\n<style>{STYLE}</style>\n{parts}</svg>\n",
        top + AXIS,
        escaped(&names(drawn)),
    )
}

fn names(drawn: &[Drawn]) -> String {
    let names: Vec<String> = drawn.iter().map(Drawn::name).collect();
    names.join("; ")
}

/// One stage.
struct Panel<'a> {
    one: &'a Drawn,
    top: f64,
    /// The width of a clock or step.
    scale: f64,
    layout: &'static Layout,
    /// The warps of each row.
    groups: Vec<Range<usize>>,
    /// The waits whose causes are drawn.
    links: Vec<Link>,
}

impl<'a> Panel<'a> {
    fn new(one: &'a Drawn, top: f64, scale: f64) -> Self {
        Self {
            one,
            top,
            scale,
            layout: Layout::of(one.timeline.axis),
            groups: one.timeline.groups(),
            links: one.timeline.links(),
        }
    }

    fn timeline(&self) -> &'a Timeline {
        &self.one.timeline
    }

    fn height(&self) -> f64 {
        TITLES + self.layout.row() * self.groups.len() as f64
    }

    /// Returns the number of a warp's row.
    fn number(&self, warp: usize) -> usize {
        let number = self.groups.iter().position(|group| group.contains(&warp));
        number.unwrap_or(0)
    }

    /// Returns the upper edge of a warp's row.
    fn row(&self, warp: usize) -> f64 {
        self.top + TITLES + self.layout.row() * self.number(warp) as f64
    }

    /// Returns the spans that are drawn, with their indices: those of the first warp of each row.
    fn drawn_spans(&self) -> impl Iterator<Item = (usize, &'a Span)> {
        let spans = self.timeline().spans.iter().enumerate();
        spans.filter(|(_, span)| self.is_first(span.warp))
    }

    fn is_first(&self, warp: usize) -> bool {
        self.groups.iter().any(|group| group.start == warp)
    }

    fn x(&self, time: u64) -> f64 {
        LEFT + self.scale * time as f64
    }

    fn svg(&self) -> String {
        let mut parts = text("title", 0.0, self.top + 14.0, &self.one.name());
        parts += &text("note", 0.0, self.top + 29.0, &self.one.note());
        for group in &self.groups {
            let y = self.row(group.start) + self.layout.span - 1.0;
            parts += &text("name", 0.0, y, &self.label(group));
        }
        parts += &self.rows();
        for kind in Kind::SHOWN {
            parts += &self.spans(kind);
        }
        parts += &self.flights();
        parts += &self.lines();
        for (index, span) in self.drawn_spans() {
            parts += &self.name_of(index, span);
        }
        parts
    }

    /// Returns which warps a row is of, and what they are there for.
    fn label(&self, group: &Range<usize>) -> String {
        let numbers = match group.len() {
            1 => format!("warp {}", group.start),
            _ => format!("warps {} to {}", group.start, group.end - 1),
        };
        match (self.timeline().role(group.start), group.len()) {
            (Role::Idle, _) => numbers,
            (Role::Loads, 2..) => format!("{numbers} load"),
            (Role::Computes, 2..) => format!("{numbers} compute"),
            (Role::Both, 2..) => format!("{numbers} load and compute"),
            (role, _) => format!("{numbers} {}", role.name()),
        }
    }

    /// Returns the ground that spans stand on.
    fn rows(&self) -> String {
        let mut path = String::new();
        for group in &self.groups {
            let bounds = bounds(self.timeline(), group.start);
            let width = self.scale * (bounds.1 - bounds.0) as f64;
            let (x, y) = (self.x(bounds.0), self.row(group.start));
            rectangle(&mut path, x, y, width, self.layout.span);
        }
        drawn_path("row", &path)
    }

    /// Returns all spans of a kind as one path: a block has thousands.
    fn spans(&self, kind: Kind) -> String {
        let mut path = String::new();
        for (_, span) in self.drawn_spans().filter(|(_, span)| span.kind() == kind) {
            let width = (self.scale * span.length() as f64 - self.space()).max(0.4);
            let (x, y) = (self.x(span.begin), self.row(span.warp));
            rectangle(&mut path, x, y, width, self.layout.span);
        }
        drawn_path(class(kind), &path)
    }

    /// Returns the space between two steps: without it equal ones after each other look like one.
    fn space(&self) -> f64 {
        match self.timeline().axis {
            Axis::Steps => 1.0,
            Axis::Clocks { .. } => 0.0,
        }
    }

    /// Returns the tile of a span, or that which it waits for, where there is room.
    fn name_of(&self, index: usize, span: &Span) -> String {
        let cause = self.links.iter().find(|link| link.wait == index);
        let awaited = cause.map(|link| &self.timeline().spans[link.cause]);
        let Some(name) = span
            .tile
            .as_ref()
            .or(awaited.and_then(|it| it.tile.as_ref()))
        else {
            return String::new();
        };
        let class = match span.kind() {
            Kind::Wait => "note",
            _ => "on",
        };
        self.name(
            class,
            span.begin,
            span.end,
            self.row(span.warp) + 12.0,
            name,
        )
    }

    /// Returns a name in the middle of a time, if it is no wider than that.
    fn name(&self, class: &str, begin: u64, end: u64, y: f64, name: &str) -> String {
        let (left, right) = (self.x(begin), self.x(end));
        if text_width(name, NAME_SIZE) > right - left {
            return String::new();
        }
        format!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" font-size=\"{NAME_SIZE}\" \
             text-anchor=\"middle\">{}</text>\n",
            (left + right) / 2.0,
            escaped(name)
        )
    }

    /// Returns bars of products in flight, below each other where they overlap and there is room.
    fn flights(&self) -> String {
        let Layout {
            span,
            flight,
            flights,
            ..
        } = *self.layout;
        let (mut path, mut labels) = (String::new(), String::new());
        let mut before: Option<Flight> = None;
        let mut lane = 0;
        let all = self.timeline().flights();
        for one in all.into_iter().filter(|one| self.is_first(one.warp)) {
            let overlaps = before.is_some_and(|last| last.warp == one.warp && one.begin < last.end);
            lane = if overlaps { (lane + 1) % flights } else { 0 };
            let y = self.row(one.warp) + span + flight * lane as f64;
            let width = self.scale * (one.end - one.begin) as f64 - self.space();
            rectangle(
                &mut path,
                self.x(one.begin),
                y,
                width,
                flight - self.space(),
            );
            if let Some(tile) = &one.tile {
                labels += &self.name("name", one.begin, one.end, y + flight - 3.5, tile);
            }
            before = Some(one);
        }
        drawn_path("flight", &path) + &labels
    }

    /// Returns lines from causes to the ends of the waits that they ended, the longest waits first.
    fn lines(&self) -> String {
        let spans = &self.timeline().spans;
        let least = (LEAST_WAIT * TIME_WIDTH / self.scale) as u64;
        let mut links = self.links.clone();
        links.retain(|link| {
            let (cause, wait) = (&spans[link.cause], &spans[link.wait]);
            self.number(cause.warp) != self.number(wait.warp) && wait.length() > least
        });
        links.sort_by_key(|link| std::cmp::Reverse(spans[link.wait].length()));
        links.truncate(MOST_LINKS);
        // Warps of one row have the same lines.
        let mut lines = BTreeSet::new();
        for Link { cause, wait } in links {
            let (from, to) = (&spans[cause], &spans[wait]);
            let middle = self.layout.span / 2.0;
            lines.insert(format!(
                "M{:.1} {:.1}L{:.1} {:.1}",
                self.x(from.begin),
                self.row(from.warp) + middle,
                self.x(to.end),
                self.row(to.warp) + middle
            ));
        }
        drawn_path("link", &lines.into_iter().collect::<String>())
    }
}

/// Returns when a warp's first span begins and its last ends.
fn bounds(timeline: &Timeline, warp: usize) -> (u64, u64) {
    let begin = timeline.of_warp(warp).map(|span| span.begin).min();
    let end = timeline.of_warp(warp).map(|span: &Span| span.end).max();
    (begin.unwrap_or(0), end.unwrap_or(0))
}

/// Returns what colours mean, in one line.
fn legend(drawn: &[Drawn]) -> String {
    let mut parts = String::new();
    let mut x = LEFT;
    let mut entries: Vec<(&str, &str)> = Kind::SHOWN
        .iter()
        .map(|kind| (class(*kind), kind.name()))
        .collect();
    if drawn.iter().any(|one| !one.timeline.flights().is_empty()) {
        entries.push(("flight", "wgmma in flight, at most"));
    }
    for (class, name) in entries {
        let mut path = String::new();
        rectangle(&mut path, x, 4.0, COLOUR, COLOUR);
        parts += &drawn_path(class, &path);
        parts += &text("note", x + 16.0, 14.0, name);
        x += 16.0 + text_width(name, TEXT_SIZE) + 18.0;
    }
    parts += &drawn_path("link", &format!("M{x:.1} 9L{:.1} 9", x + 18.0));
    parts += &text("note", x + 23.0, 14.0, "what ended a wait");
    parts
}

/// Returns the widest that a text of this size may be, so that none is written over another.
fn text_width(content: &str, size: f64) -> f64 {
    0.64 * size * content.chars().count() as f64
}

/// The axis below all stages.
struct TimeAxis {
    unit: Axis,
    /// The last clock or step.
    end: f64,
    /// The width of a clock or step.
    scale: f64,
}

impl TimeAxis {
    /// Returns clocks, and microseconds below them if the clock is known; or steps.
    fn svg(&self, top: f64) -> String {
        let mut parts = drawn_path("axis", &format!("M{LEFT} {top:.1}h{TIME_WIDTH:.1}"));
        let (name, mhz) = match self.unit {
            Axis::Steps => ("steps", None),
            Axis::Clocks { mhz } => ("clocks", mhz),
        };
        parts += &text("note", 0.0, top + 16.0, name);
        for tick in self.ticks() {
            parts += &tick_mark(LEFT + self.scale * tick, top, 16.0, &format!("{tick:.0}"));
        }
        if let Some(clock) = mhz {
            parts += &text("note", 0.0, top + 34.0, "µs");
            for tick in ticks(self.end / clock, MOST_TICKS) {
                let shown = format!("{}", (tick * 1e3).round() / 1e3);
                parts += &tick_mark(LEFT + self.scale * tick * clock, top, 34.0, &shown);
            }
        }
        parts
    }

    fn ticks(&self) -> Vec<f64> {
        match self.unit {
            Axis::Steps => ticks(self.end, self.end.min(TIME_WIDTH / LEAST_STEP)),
            Axis::Clocks { .. } => ticks(self.end, MOST_TICKS),
        }
    }

    /// Returns a line through the rows of a stage for each step that is marked.
    fn grid(&self, top: f64, bottom: f64) -> String {
        let mut path = String::new();
        if self.unit == Axis::Steps {
            for tick in self.ticks() {
                let x = LEFT + self.scale * tick;
                let _ = write!(path, "M{x:.1} {top:.1}V{bottom:.1}");
            }
        }
        drawn_path("grid", &path)
    }
}

fn tick_mark(x: f64, top: f64, below: f64, shown: &str) -> String {
    format!(
        "<path class=\"axis\" d=\"M{x:.1} {top:.1}v4\"/>\
         <text class=\"note\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{shown}</text>\n",
        top + below
    )
}

/// Returns round values from 0 to `end`, about `most` at most.
fn ticks(end: f64, most: f64) -> Vec<f64> {
    let rough = (end / most).max(1e-6);
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let mut values = Vec::new();
    while values.len() as f64 * step <= end {
        values.push(values.len() as f64 * step);
    }
    values
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Copy => "copy",
        Kind::Product => "product",
        Kind::Exponential => "exponentials",
        Kind::Store => "store",
        Kind::Wait | Kind::Arrival | Kind::Bound => "wait",
    }
}

fn rectangle(path: &mut String, x: f64, y: f64, width: f64, height: f64) {
    let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{height}h{:.1}z", -width);
}

/// Returns a path; nothing for an empty one.
fn drawn_path(class: &str, path: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    format!("<path class=\"{class}\" d=\"{path}\"/>\n")
}

fn text(class: &str, x: f64, y: f64, content: &str) -> String {
    format!(
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
        escaped(content)
    )
}

fn escaped(content: &str) -> String {
    content
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
