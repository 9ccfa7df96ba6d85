//! The document for programs: figures as numbers with their unit, not as they are shown.

use super::{Block, Cell, Chart, Document};
use serde_json::{Value, json};

pub fn value(document: &Document) -> Value {
    let verdict = document
        .verdict
        .as_ref()
        .map(|verdict| json!({ "tone": verdict.tone.name(), "word": verdict.word, "why": verdict.why }));
    json!({ "title": document.title, "verdict": verdict, "blocks": blocks(&document.blocks) })
}

fn blocks(blocks: &[Block]) -> Vec<Value> {
    blocks.iter().map(block).collect()
}

fn block(block: &Block) -> Value {
    match block {
        Block::Heading { level, text } => json!({ "kind": "heading", "level": level, "text": text.to_string() }),
        Block::Paragraph(text) => json!({ "kind": "paragraph", "text": text.to_string() }),
        Block::Bullets(items) => {
            json!({ "kind": "bullets", "items": items.iter().map(|item| item.to_string()).collect::<Vec<_>>() })
        }
        Block::Table(table) => {
            let rows: Vec<Vec<Value>> = table.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
            json!({ "kind": "table", "columns": table.columns, "rows": rows })
        }
        Block::Chart(Chart { title, x_axis, y_axis, points, lines, .. }) => json!({
            "kind": "chart", "title": title, "x_axis": x_axis, "y_axis": y_axis, "points": points, "lines": lines
        }),
        Block::Folded { summary, blocks: inner } => {
            json!({ "kind": "folded", "summary": summary.to_string(), "blocks": blocks(inner) })
        }
    }
}

fn cell(of: &Cell) -> Value {
    match of {
        Cell::Text(text) => json!({ "kind": "text", "text": text.to_string() }),
        Cell::Count(count) => json!({ "kind": "count", "value": count }),
        Cell::Number { value, unit, .. } => json!({ "kind": "number", "value": number(*value), "unit": unit }),
        Cell::Interval { value, low, high, unit, .. } => json!({
            "kind": "interval", "value": number(*value), "low": number(*low), "high": number(*high), "unit": unit
        }),
        Cell::Ratio(ratio) => json!({ "kind": "ratio", "value": number(*ratio) }),
        Cell::Verdict(tone, word) => json!({ "kind": "verdict", "tone": tone.name(), "word": word }),
        Cell::Change { from, to } => json!({ "kind": "change", "from": cell(from), "to": cell(to) }),
        Cell::Noted { cell: inner, note } => {
            json!({ "kind": "noted", "cell": cell(inner), "note": note.to_string() })
        }
        Cell::Missing(reason) => json!({ "kind": "missing", "reason": reason }),
    }
}

/// JSON has no NaN and no infinity; they are the strings "NaN", "inf" and "-inf".
fn number(value: f64) -> Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Digits;

    #[test]
    fn values_come_back_as_they_were() {
        for value in [0.1 + 0.2, -0.0, 1e-300, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let text = cell(&Cell::number(value, Digits::Fixed(1), "µs")).to_string();
            let read = serde_json::from_str::<Value>(&text).unwrap()["value"].clone();
            let back = read.as_f64().or_else(|| read.as_str()?.parse().ok()).unwrap();
            assert!(back.to_bits() == value.to_bits() || back.is_nan() && value.is_nan(), "{value}: {text}");
        }
        assert_eq!(cell(&Cell::Count(u64::MAX))["value"].as_u64(), Some(u64::MAX));
    }
}
