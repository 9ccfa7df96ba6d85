//! What the emulator counts: a row per variant, and a line per variant that says what its idea changed.

use super::cells::{escape, folded, row, rule};
use crate::comparison::{CounterRow, Delta, Report};
use common::evidence::{Counting, Quantity};
use std::fmt::Write;

/// The columns of the tables, and their heads.
const COLUMNS: [(Quantity, &str); 13] = [
    (Quantity::GlobalReadBytes, "global B read"),
    (Quantity::GlobalReadSectors, "sectors"),
    (Quantity::AsyncCopyBytes, "by cp.async"),
    (Quantity::SharedReadRequests, "shared loads"),
    (Quantity::SharedReadWavefronts, "wavefronts"),
    (Quantity::SharedReadConflicts, "conflicts"),
    (Quantity::SharedReadConflictShare, "share"),
    (Quantity::SharedWriteWavefronts, "store wavefronts"),
    (Quantity::SharedWriteConflicts, "conflicts"),
    (Quantity::TensorMacs, "tensor MACs"),
    (Quantity::Shuffles, "shuffles"),
    (Quantity::BlockBarriers, "barriers"),
    (Quantity::Exps, "exps"),
];

/// Counters per launch and per tile, and the differences between variants and what they are compared with.
pub fn counters(report: &Report) -> String {
    if report.counters.is_empty() {
        return "NO DATA: this record has no counters.\n".to_string();
    }
    let mut out = String::from(
        "The emulator's counters of one launch on mission (1×8×512×64), f16, full mask, whatever the backend of the run; \
         `common/emulator/GLOSSARY.md` defines them. Full tiles without a mask make all blocks alike, so two traced \
         blocks speak for the launch; where they do not, all are traced.\n\n",
    );
    let (defaults, others): (Vec<_>, Vec<_>) = report.counters.iter().partition(|row| row.is_default);
    out.push_str(&table(&defaults, per_launch));
    out.push('\n');
    let (shown, of_others): (Vec<_>, Vec<_>) = report.deltas.iter().partition(|delta| delta.is_default);
    for delta in shown {
        out.push_str(&line(delta));
    }
    let mut more = String::new();
    if !others.is_empty() {
        let _ = writeln!(more, "{}", table(&others, per_launch));
        of_others.into_iter().for_each(|delta| more.push_str(&line(delta)));
        more.push('\n');
    }
    let all: Vec<&CounterRow> = report.counters.iter().collect();
    let _ = write!(more, "Per tile (one tile of queries with one tile of keys):\n\n{}", table(&all, per_tile));
    let _ = write!(out, "\nAll variants:\n\n{more}");
    folded(&format!("{} variants counted on mission by the emulator", report.counters.len()), &out)
}

fn table(rows: &[&CounterRow], cell: fn(Quantity, f64, u64) -> String) -> String {
    let mut head = vec!["variant", "blocks"];
    head.extend(COLUMNS.map(|(_, name)| name));
    let mut lines = vec![row(&head), rule(head.len())];
    for counters in rows {
        let stale = if counters.is_stale { " STALE" } else { "" };
        let mut cells = vec![format!("{}/{}{stale}", counters.stage, counters.variant)];
        match &counters.counting {
            Counting::Counted { launch, traced_blocks, launch_blocks, tiles } => {
                cells.push(format!("{traced_blocks} of {launch_blocks}"));
                let value = |quantity: Quantity| quantity.counted(launch).map(|value| cell(quantity, value, *tiles));
                cells.extend(COLUMNS.map(|(quantity, _)| value(quantity).unwrap_or_default()));
            }
            Counting::Hazardous { reason } | Counting::NotCounted { reason } => {
                cells.push(format!("NO DATA: {reason}"));
                cells.extend(COLUMNS.map(|_| String::new()));
            }
        }
        lines.push(row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    lines.concat()
}

fn per_launch(quantity: Quantity, value: f64, _tiles: u64) -> String {
    quantity.show(value)
}

/// Shares are the same per tile as per launch. What is done once per block has a fraction per tile.
fn per_tile(quantity: Quantity, value: f64, tiles: u64) -> String {
    match quantity.is_share() {
        true => quantity.show(value),
        false => {
            let text = format!("{:.2}", value / tiles as f64);
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

/// `- stage1-cpasync/cpasync-32x64 against stage0-scalar/wmma-qk-32x64: shared-load bank conflicts 12,288 → 0`
fn line(delta: &Delta) -> String {
    let change = |(quantity, from, to): &(Quantity, f64, f64)| {
        format!("{quantity} {} → {}", quantity.show(*from), quantity.show(*to))
    };
    let changes: Vec<String> = delta.differing.iter().map(change).collect();
    let words = match changes.is_empty() {
        true => "every counter equal".to_string(),
        false => format!("{}; the other counters equal", changes.join(", ")),
    };
    format!("- {} against {}: {}\n", escape(&delta.place), escape(&delta.base), escape(&words))
}
