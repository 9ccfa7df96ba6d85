//! Charts of a report as SVG, standing alone or inside a page. The same report gives the same bytes.

mod bars;
mod history;
mod lines;
mod roofline;
pub mod svg;

pub use history::history;
pub use roofline::{Achieved, achieved};

use crate::comparison::Report;
use svg::{CLASSES, DARK, Drawing, From, LIGHT, WIDTH, escape};

/// Each chart that `report` has numbers for.
pub fn all(report: &Report) -> Vec<Chart> {
    let charts =
        [bars::headlines, lines::sweep, roofline::roofline, lines::shapes, bars::variants].map(|chart| chart(report));
    charts.into_iter().flatten().collect()
}

/// A picture with its words.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The file's name without its ending, and what ids in a page begin with.
    pub name: &'static str,
    /// What is drawn, and which way is better.
    pub title: String,
    /// What a reader who does not see it should know.
    pub description: String,
    /// In the units of [`WIDTH`].
    pub height: f64,
    /// Shapes and text.
    pub body: String,
}

impl Chart {
    /// A file of its own, for light and dark grounds.
    pub fn standalone(&self) -> String {
        let style = format!("svg{{{LIGHT}}}@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}{CLASSES}");
        let ground = format!(r#"<rect width="{WIDTH}" height="{}" style="fill:var(--ground)"/>"#, self.height);
        self.markup(r#" xmlns="http://www.w3.org/2000/svg""#, &format!("<style>{style}</style>{ground}")) + "\n"
    }

    /// A part of a page that has the style sheet.
    pub fn inline(&self) -> String {
        self.markup("", "")
    }

    fn markup(&self, attributes: &str, before: &str) -> String {
        let Self { name, title, description, height, body } = self;
        let (title, description) = (escape(title), escape(description));
        format!(
            r#"<svg{attributes} viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{title}</title><desc id="{name}-desc">{description}</desc>{before}{body}</svg>"#
        )
    }
}

/// A number with three digits that count.
fn short(value: f64) -> String {
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Tick labels: `0.5`, `20`, `1000`.
fn tick(value: f64) -> String {
    if value < 1.0 {
        short(value).trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        format!("{value:.0}")
    }
}

/// Values to label on a log axis that holds `least` to `most`, from one below to one above: 1, 2, 5, 10, …, or powers of
/// ten alone over more than four decades.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    let steps: &[f64] = if most / least > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = least.log10().floor() as i32 - 1;
    let last = most.log10().ceil() as i32 + 1;
    let all: Vec<f64> = (first..=last).flat_map(|e| steps.iter().map(move |step| step * 10f64.powi(e))).collect();
    let below = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let above = all.iter().position(|tick| *tick >= most).unwrap_or(all.len() - 1);
    // A single value on a tick still needs an axis with an extent.
    all[if below == above { below - 1 } else { below }..=above].to_vec()
}

/// A log axis: values from the first to the last tick, and where they lie.
#[derive(Clone, Debug)]
struct Axis {
    ticks: Vec<f64>,
    span: [f64; 2],
}

impl Axis {
    fn new(ticks: Vec<f64>, span: [f64; 2]) -> Self {
        Self { ticks, span }
    }

    fn at(&self, value: f64) -> f64 {
        let [low, high] = [self.ticks[0], self.ticks[self.ticks.len() - 1]];
        self.span[0] + (self.span[1] - self.span[0]) * (value / low).ln() / (high / low).ln()
    }
}

/// Columns of a legend.
const LEGEND_COLUMNS: usize = 3;
/// Height of a legend's line.
const LEGEND_LINE: f64 = 24.0;

/// Height of a legend with this many entries.
fn legend_height(entries: usize) -> f64 {
    LEGEND_LINE * entries.div_ceil(LEGEND_COLUMNS) as f64
}

/// One entry per stage: line, marker and name, below `top`.
fn legend(drawing: &mut Drawing, top: f64, entries: &[(usize, String)], with_line: bool) {
    for (place, (stage, name)) in entries.iter().enumerate() {
        let x = 20.0 + (WIDTH - 20.0) / LEGEND_COLUMNS as f64 * (place % LEGEND_COLUMNS) as f64;
        let y = top + LEGEND_LINE * ((place / LEGEND_COLUMNS) as f64 + 0.5);
        let colour = svg::colour(*stage, name.ends_with(STALE));
        if with_line {
            drawing.series(*stage, &colour, &[[x, y], [x + 30.0, y]]);
        }
        drawing.marker(*stage, &colour, [x + 15.0, y]);
        drawing.text(From::Start, false, [x + 38.0, y], name);
    }
}

/// What follows the name of a stage whose numbers no longer hold.
const STALE: &str = " (STALE)";

#[cfg(test)]
pub mod tests;
