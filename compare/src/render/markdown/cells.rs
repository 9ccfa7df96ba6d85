//! Cells and rows of Markdown tables.

use crate::comparison::Speedup;

/// A row of a table.
pub fn row(cells: &[&str]) -> String {
    let escaped: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    format!("| {} |\n", escaped.join(" | "))
}

/// The line under a table's head.
pub fn rule(columns: usize) -> String {
    format!("|{}\n", "---|".repeat(columns))
}

/// Pipes end a cell and line breaks end a row.
pub fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// `body` behind one line that is always seen.
pub fn folded(summary: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>\n\n{}\n\n</details>\n", escape(summary), body.trim_end())
}

/// A dash for nothing.
pub fn or_dash(text: String) -> String {
    if text.is_empty() { "–".to_string() } else { text }
}

/// `1.25x (−20 %)`: base / new, and how the time changes.
pub fn speedup(speedup: Option<&Speedup>) -> String {
    let change = |speedup: &Speedup| -speedup.reduction_percent();
    let sign = |percent: f64| if percent < 0.0 { "−" } else { "+" };
    speedup.map_or("–".to_string(), |speedup| {
        format!("{:.2}x ({}{:.0} %)", speedup.ratio, sign(change(speedup)), change(speedup).abs())
    })
}

/// Three digits after the point below 10, two below 100, one above.
pub fn microseconds(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 100.0 => format!("{us:.2}"),
        us => format!("{us:.1}"),
    }
}
