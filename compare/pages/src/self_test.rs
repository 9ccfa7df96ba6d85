//! The self-test's kills (gate S1), of a run and of `compare selftest`.

use super::blocks::table_block;
use super::cells::row_cells;
use common::metric::Metric;
use document::{Block, Table};
use results::judge::state::{Tally, tally};
use results::table::Row;

/// Returns how many faults and mutants are killed or listed as redundant; `None` if nothing was
/// tried.
pub fn counts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<String> {
    let Tally {
        faults,
        faults_killed,
        sites,
        sites_killed,
        redundant,
    } = tally(rows);
    let mut parts = Vec::new();
    if faults > 0 {
        parts.push(format!("{faults_killed} of {faults} planted faults killed"));
    }
    if sites > 0 {
        let surviving = sites - sites_killed - redundant;
        parts.push(format!(
            "{sites_killed} of {sites} mutants (kernels without one synchronisation site) killed, \
             {redundant} listed as redundant, {surviving} surviving"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns the counts, and every fault, mutant and check, first those that are wrong.
pub fn blocks<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Block> {
    let mut sorted = Vec::from_iter(rows);
    sorted.sort_by_key(|row| row.failure().is_none());
    let mut blocks = Vec::new();
    if let Some(counts) = counts(sorted.iter().copied()) {
        blocks.push(Block::paragraph(format!(
            "Fault injection and mutation testing (S1): {counts}."
        )));
    }
    let table = Table::from_rows(sorted.iter().map(|row| row_cells(row, Metric::ALL)));
    blocks.extend(table_block(table.filled()));
    blocks
}
