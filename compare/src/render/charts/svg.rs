//! Shapes and text of a chart as SVG. Colours are classes, so that one style sheet serves light and dark grounds.

use std::fmt::Write;

/// Width of every chart, in its own units; its text is 13 units high.
pub const WIDTH: f64 = 640.0;

/// A style sheet's variables on a light ground. Okabe and Ito's colours stay apart for colour-blind readers; yellow is
/// darkened.
pub const LIGHT: &str = "--ground:#fff;--text:#1c2128;--faint:#57606a;--line:#d8dee4;--stale:#b4bac1;--c0:#0072b2;\
                         --c1:#d55e00;--c2:#007f5c;--c3:#b5508c;--c4:#2a8fc4;--c5:#a86f00;--c6:#000;--c7:#7d7110";
/// The same on a dark ground.
pub const DARK: &str = "--ground:#12161b;--text:#e6edf3;--faint:#9aa4af;--line:#353c44;--stale:#5c646d;--c0:#5ab4ec;\
                        --c1:#f08a3c;--c2:#33c79b;--c3:#e59ac4;--c4:#9bd4f5;--c5:#f0b429;--c6:#fff;--c7:#d9cc55";
/// What the classes mean.
pub const CLASSES: &str = "svg text{font:13px system-ui,sans-serif;fill:var(--text)}svg .f{fill:var(--faint)}\
                           svg .m{text-anchor:middle}svg .e{text-anchor:end}svg .g{stroke:var(--line);stroke-width:1}\
                           svg .a{stroke:var(--faint);stroke-width:1.5;fill:none}\
                           svg .s{stroke:var(--c);stroke-width:2;fill:none}svg .b{fill:var(--c)}\
                           .k0{--c:var(--c0)}.k1{--c:var(--c1)}.k2{--c:var(--c2)}.k3{--c:var(--c3)}.k4{--c:var(--c4)}\
                           .k5{--c:var(--c5)}.k6{--c:var(--c6)}.k7{--c:var(--c7)}.old{--c:var(--stale)}";

/// Colours that there are.
const COLOURS: usize = 8;

/// Line ends, middles and starts of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// It starts at the point.
    Start,
    /// It is centred on the point.
    Middle,
    /// It ends at the point.
    End,
}

/// The class of a stage's colour; grey where its number is stale.
pub fn colour(stage: usize, is_stale: bool) -> String {
    if is_stale { "old".to_string() } else { format!("k{}", stage % COLOURS) }
}

/// What markup must not hold as it is.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Shapes in the order in which they are painted.
#[derive(Clone, Debug, Default)]
pub struct Drawing(pub String);

impl Drawing {
    /// A grid line, or with `axis` one of the axes.
    pub fn rule(&mut self, axis: bool, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let class = if axis { 'a' } else { 'g' };
        let _ = write!(self.0, r#"<path class="{class}" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"/>"#);
    }

    /// Text whose middle line is at `y`.
    pub fn text(&mut self, from: From, is_faint: bool, [x, y]: [f64; 2], text: &str) {
        self.turned_text(from, is_faint, [x, y], None, text);
    }

    /// The same, turned by degrees around its point.
    pub fn turned_text(&mut self, from: From, is_faint: bool, [x, y]: [f64; 2], turn: Option<i32>, text: &str) {
        let anchor = match from {
            From::Start => "",
            From::Middle => "m",
            From::End => "e",
        };
        let class = format!("{anchor}{}", if is_faint { " f" } else { "" });
        let class = if class.is_empty() { class } else { format!(r#" class="{}""#, class.trim()) };
        let turn = turn.map_or(String::new(), |turn| format!(r#" transform="rotate({turn} {x:.1} {y:.1})""#));
        let _ = write!(self.0, r#"<text{class} x="{x:.1}" y="{y:.1}" dy=".35em"{turn}>{}</text>"#, escape(text));
    }

    /// A filled bar.
    pub fn bar(&mut self, colour: &str, [x, y]: [f64; 2], [width, height]: [f64; 2]) {
        let _ = write!(
            self.0,
            r#"<rect class="b {colour}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        );
    }

    /// A line through points; solid, dashed and dotted by turns, so that stages differ without colour.
    pub fn series(&mut self, stage: usize, colour: &str, points: &[[f64; 2]]) {
        let dashes = match stage % 3 {
            0 => "",
            1 => r#" stroke-dasharray="9 5""#,
            _ => r#" stroke-dasharray="2 4""#,
        };
        let path: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1} {y:.1}")).collect();
        let _ = write!(self.0, r#"<path class="s {colour}"{dashes} d="M{}"/>"#, path.join("L"));
    }

    /// Circle, triangle, square and cross by turns.
    pub fn marker(&mut self, stage: usize, colour: &str, [x, y]: [f64; 2]) {
        let path = match stage % 4 {
            0 => format!("M{:.1} {y:.1}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", x - 5.0),
            1 => format!("M{x:.1} {:.1}l6 10h-12z", y - 6.0),
            2 => format!("M{:.1} {:.1}h9v9h-9z", x - 4.5, y - 4.5),
            _ => format!("M{:.1} {:.1}l10 10m0 -10l-10 10", x - 5.0, y - 5.0),
        };
        let class = if stage % 4 == 3 { 's' } else { 'b' };
        let _ = write!(self.0, r#"<path class="{class} {colour}" d="{path}"/>"#);
    }
}
