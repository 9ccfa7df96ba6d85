//! What the self-test kills (gate S1), of a record and of `compare selftest`.

use super::{of, short, some, verdict, words};
use crate::judge::list::joined;
use crate::judge::state::{Tally, tally};
use crate::page::{Block, Table, row};
use crate::record::Row;
use common::metric::Metric;

/// Faults and mutants killed, what is listed as redundant, and what is wrong; nothing where nothing was tried.
pub fn summary<'a>(rows: impl IntoIterator<Item = &'a Row> + Clone) -> Option<Block> {
    let Tally {
        faults,
        faults_killed,
        sites,
        sites_killed,
        redundant,
    } = tally(rows.clone());
    let mut parts = Vec::new();
    if faults > 0 {
        parts.push(format!(
            "{faults_killed} of {faults} planted faults are killed by a gate"
        ));
    }
    if sites > 0 {
        parts.push(format!(
            "of {sites} kernels without one of their synchronisation sites {sites_killed} are killed, {redundant} survive and are \
             listed as redundant, {} survive",
            sites - sites_killed - redundant
        ));
    }
    let wrong = rows
        .into_iter()
        .filter(|row| row.failure().is_some())
        .take(8);
    let wrong: String = wrong
        .map(|row| format!(" WRONG: {}{}.", row.subject, row.on))
        .collect();
    let said = format!(
        "Fault injection and mutation testing (S1): {}.{wrong}",
        parts.join("; ")
    );
    (!parts.is_empty()).then(|| Block::paragraph(said))
}

/// The same, and every fault, mutant and check.
pub fn blocks<'a>(rows: impl IntoIterator<Item = &'a Row> + Clone) -> Vec<Block> {
    let line = |row: &Row| {
        let note = row.note.as_deref().into_iter();
        let reasons = row
            .verdicts
            .values()
            .map(|judged| judged.reason.as_str())
            .filter(|reason| !reason.is_empty());
        row![
            short(&row.subject),
            row.on.to_string().trim_start_matches(": "),
            of(Some(row), Metric::Cases),
            of(Some(row), Metric::CasesFailed),
            row.verdicts
                .values()
                .next()
                .map_or("".into(), |judged| verdict(judged.verdict)),
            words(&joined(note.chain(reasons), ". ")),
        ]
    };
    let columns = ["where", "what", "cases", "failed", "S1", "outcome"];
    let table = Table::of(columns, rows.clone().into_iter().map(line));
    summary(rows).into_iter().chain(some(table)).collect()
}
