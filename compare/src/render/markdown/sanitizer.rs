//! What compute-sanitizer found: a row per variant, a column per tool, and what a clean one does not say.

use super::cells::{escape, row, rule};
use crate::comparison::Report;
use common::record::{Sanitizer, SanitizerCheck};
use common::verdict::Verdict;
use std::fmt::Write;

/// The table, or why there is none.
pub fn sanitizer(report: &Report) -> String {
    let Some(sanitizer) = &report.sanitizer else {
        return "NO DATA: compute-sanitizer has not looked at this record; `compare sanitize` on its GPU completes it.\n"
            .to_string();
    };
    let Sanitizer { tool, gpu, problems, blind_spots, checks, .. } = sanitizer;
    let mut out =
        format!("{tool}, {gpu}, gate C7. One launch per variant and tool of each of: {}.\n\n", problems.join(", "));
    let mut tools: Vec<&str> = Vec::new();
    let mut places: Vec<(&str, &str)> = Vec::new();
    for check in checks {
        if !tools.contains(&check.tool.as_str()) {
            tools.push(&check.tool);
        }
        if !places.contains(&(&check.stage, &check.variant)) {
            places.push((&check.stage, &check.variant));
        }
    }
    let mut head = vec!["stage", "variant"];
    head.extend(&tools);
    out.push_str(&row(&head));
    out.push_str(&rule(head.len()));
    for (stage, variant) in places {
        let cell = |tool: &&str| {
            let is_of =
                |c: &&SanitizerCheck| (c.stage.as_str(), c.variant.as_str(), c.tool.as_str()) == (stage, variant, tool);
            checks.iter().find(is_of).map_or("–".to_string(), |check| words(report, check))
        };
        let cells: Vec<String> = tools.iter().map(cell).collect();
        let mut line = vec![stage, variant];
        line.extend(cells.iter().map(String::as_str));
        out.push_str(&row(&line));
    }
    out.push_str("\nWhat a clean result does not say:\n\n");
    blind_spots.iter().for_each(|spot| writeln!(out, "- {}", escape(spot)).unwrap_or_default());
    out
}

fn words(report: &Report, check: &SanitizerCheck) -> String {
    let is_current = report.stages.iter().any(|stage| (&stage.id, &stage.identity) == (&check.stage, &check.identity));
    let stale = if is_current { "" } else { "STALE " };
    match check.result.verdict {
        Verdict::Pass => format!("{stale}{} launches clean", check.launches),
        verdict => format!("{stale}{verdict}: {}", check.result.reason),
    }
}
