//! Bar charts as SVG.

use crate::cells::three_digits;

/// The colours in light and dark, legible at 400 pixels, too.
const STYLE: &str = "\
    text{fill:#1f2328}rect{fill:#0969da}.title{font-weight:600}\
    .note{fill:#59636e}.axis{fill:#59636e}.mark{fill:#cf222e}\
    @media(prefers-color-scheme:dark){\
    text{fill:#e6edf3}rect{fill:#4493f8}\
    .note{fill:#9198a1}.axis{fill:#9198a1}.mark{fill:#f85149}}";

/// The width of the picture, and of the longest bar.
pub const WIDTH: f64 = 480.0;

/// The distance from one line to the next.
const STEP: f64 = 30.0;

/// The distance from one chart to the next.
const GAP: f64 = 18.0;

/// The height of a chart's titles.
const TITLES: f64 = 34.0;

/// The place where values begin, right of the longest name.
const VALUE: f64 = 125.0;

/// A name, a value, a note on it, and its bar below them.
pub struct Line {
    pub name: String,
    pub value: Option<f64>,
    pub text: String,
    pub note: String,
}

/// A chart of horizontal bars, one a line.
pub struct Chart {
    pub title: String,
    pub note: &'static str,
    pub lines: Vec<Line>,
    pub unit: Unit,
    pub mark: Option<Mark>,
}

/// The unit of a chart's axis.
#[derive(Clone, Copy)]
pub enum Unit {
    Microseconds,
    Tflops,
    Ratio,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Microseconds => format!("{} µs", three_digits(value)),
            Unit::Tflops => format!("{value:.0} TFLOP/s"),
            Unit::Ratio => format!("{value:.2}x"),
        }
    }
}

/// A value that bars are compared with: a tick across each of them, where no text is.
pub struct Mark {
    pub value: f64,
    pub text: &'static str,
}

/// The point of a text that lies at its place.
#[derive(Clone, Copy, PartialEq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A text at its place.
pub struct Label {
    pub x: f64,
    pub y: f64,
    pub anchor: Anchor,
    class: &'static str,
    pub text: String,
}

impl Label {
    fn new(x: f64, y: f64, anchor: Anchor, class: &'static str, text: impl Into<String>) -> Self {
        Self {
            x,
            y,
            anchor,
            class,
            text: text.into(),
        }
    }

    fn svg(&self) -> String {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let Self {
            x, y, class, text, ..
        } = self;
        format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.0}\" \
             text-anchor=\"{anchor}\">{text}</text>\n"
        )
    }
}

/// A filled rectangle.
pub struct Bar {
    class: &'static str,
    x: f64,
    pub y: f64,
    width: f64,
    pub height: f64,
}

impl Bar {
    fn svg(&self) -> String {
        let Self {
            class,
            x,
            y,
            width,
            height,
        } = self;
        format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.0}\" \
             width=\"{width:.1}\" height=\"{height:.0}\"/>\n"
        )
    }
}

impl Chart {
    fn height(&self) -> f64 {
        TITLES + STEP * self.lines.len() as f64 + STEP
    }

    /// Returns the value at the right end.
    fn largest(&self) -> f64 {
        let mut largest = f64::MIN_POSITIVE;
        for line in &self.lines {
            largest = line.value.map_or(largest, |value| value.max(largest));
        }
        match &self.mark {
            // So that the text of the mark has room left of the end.
            Some(mark) => largest.max(1.5 * mark.value),
            None => largest,
        }
    }

    /// Returns the texts of the chart, whose upper edge is at `top`.
    pub fn labels(&self, top: f64) -> Vec<Label> {
        use Anchor::{End, Middle, Start};
        let mut labels = vec![
            Label::new(0.0, top + 13.0, Start, "title", &*self.title),
            Label::new(0.0, top + 29.0, Start, "note", self.note),
        ];
        for (index, line) in self.lines.iter().enumerate() {
            let y = top + TITLES + STEP * index as f64 + 14.0;
            labels.push(Label::new(0.0, y, Start, "name", &*line.name));
            labels.push(Label::new(VALUE, y, Start, "value", &*line.text));
            labels.push(Label::new(WIDTH, y, End, "note", &*line.note));
        }
        let axis_y = top + self.height() - 8.0;
        let end = self.unit.show(self.largest());
        labels.push(Label::new(0.0, axis_y, Start, "note", "0"));
        labels.push(Label::new(WIDTH, axis_y, End, "note", end));
        if let Some(mark) = &self.mark {
            let x = WIDTH * mark.value / self.largest();
            labels.push(Label::new(x, axis_y, Middle, "mark", mark.text));
        }
        labels
    }

    /// Returns the bars of the chart, whose upper edge is at `top`.
    pub fn bars(&self, top: f64) -> Vec<Bar> {
        let scale = WIDTH / self.largest();
        let bottom = top + self.height() - 24.0;
        let mut bars = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let y = top + TITLES + STEP * index as f64 + 19.0;
            if let Some(value) = line.value {
                bars.push(Bar {
                    class: "bar",
                    x: 0.0,
                    y,
                    width: scale * value,
                    height: 6.0,
                });
            }
            bars.extend(self.tick(scale, y - 2.0));
        }
        bars.push(Bar {
            class: "axis",
            x: 0.0,
            y: bottom,
            width: WIDTH,
            height: 1.0,
        });
        bars.extend(self.tick(scale, bottom - 5.0));
        bars
    }

    fn tick(&self, scale: f64, y: f64) -> Option<Bar> {
        let mark = self.mark.as_ref()?;
        Some(Bar {
            class: "mark",
            x: scale * mark.value,
            y,
            width: 2.0,
            height: 10.0,
        })
    }
}

/// Returns an SVG of the charts that have lines, below each other.
pub fn picture(title: &str, charts: &[Chart]) -> String {
    let mut top = 0.0;
    let mut parts = String::new();
    for chart in charts.iter().filter(|chart| !chart.lines.is_empty()) {
        for label in chart.labels(top) {
            parts += &label.svg();
        }
        for bar in chart.bars(top) {
            parts += &bar.svg();
        }
        top += chart.height() + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" viewBox=\"0 0 {WIDTH} {top}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n\
         <style>{STYLE}</style>\n\
         {parts}</svg>\n"
    )
}
