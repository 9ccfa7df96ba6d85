//! Rankings as text.

use super::ranking::Ranking;
use crate::record::tuning_cache::KEPT;
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::fmt::Write;

/// Digits of a code's hash that are shown.
const HASH_DIGITS: usize = 12;

/// A line per variant that a gate failed: `stage0-scalar/scalar-32x64: C3: ...`.
pub fn failures(rankings: &[Ranking]) -> Vec<String> {
    let of = |ranking: &Ranking| {
        let wrong = ranking.refused.iter().filter(|refused| refused.is_wrong);
        wrong.map(|refused| format!("{}/{}: {}", ranking.stage, refused.variant, refused.reason)).collect::<Vec<_>>()
    };
    let mut lines: Vec<String> = rankings.iter().flat_map(of).collect();
    // A variant that fails has no place on any problem.
    lines.sort();
    lines.dedup();
    lines
}

/// What a ranking lacks, in a line.
pub fn missing(ranking: &Ranking) -> String {
    let Ranking { stage, shape_name, problem, .. } = ranking;
    let untimed = ranking.refused.iter().filter(|refused| !refused.was_tried).count();
    let all = ranking.ranked.len() + ranking.refused.len();
    format!("{stage}, {shape_name} {} {}: {untimed} of {all} variants were not timed", problem.dtype, problem.mask)
}

/// A table per stage and problem, the kept variants marked, and why others have no place.
pub fn text(rankings: &[Ranking]) -> String {
    let mut out = String::new();
    for Ranking { stage, shape_name, problem, ranked, refused, .. } in rankings {
        let _ = writeln!(out, "{stage}, {shape_name} {} {}", problem.dtype, problem.mask);
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(["kept", "variant", "p50 µs", "p90 µs", "of the best", "machine code"]);
        for (index, row) in ranked.iter().enumerate() {
            let code = row.sass_sha256.as_ref().map_or("translated PTX", |hash| &hash[..hash.len().min(HASH_DIGITS)]);
            table.add_row([
                if index < KEPT { (index + 1).to_string() } else { String::new() },
                row.variant.clone(),
                format!("{:.2}", row.p50_us),
                format!("{:.2}", row.p90_us),
                format!("{:.2}x", row.p50_us / ranked[0].p50_us),
                code.to_string(),
            ]);
        }
        if !ranked.is_empty() {
            let _ = writeln!(out, "{table}");
        }
        for refused in refused {
            let word = if refused.is_wrong { "FAIL" } else { "NO DATA" };
            let _ = writeln!(out, "  {word} {}: {}", refused.variant, refused.reason);
        }
        out.push('\n');
    }
    out
}
