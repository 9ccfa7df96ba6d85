//! What the self-test kills (gate S1), of a run and of `compare selftest`.

use super::{cells, some};
use crate::document::{Block, Table};
use crate::judge::list::joined;
use crate::judge::state::{Tally, tally};
use crate::table::Row;
use common::metric::Metric;

/// How many faults and mutants are killed or listed as redundant; `None` if nothing was tried.
pub fn counts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<String> {
    let Tally {
        faults,
        faults_killed,
        sites,
        sites_killed,
        redundant,
    } = tally(rows);
    let faults = (faults > 0).then(|| format!("{faults_killed} of {faults} planted faults killed"));
    let sites = (sites > 0).then(|| {
        let survive = sites - sites_killed - redundant;
        format!(
            "{sites_killed} of {sites} mutants (kernels without one synchronisation site) killed, {redundant} listed as redundant, \
             {survive} surviving"
        )
    });
    let parts = joined(faults.into_iter().chain(sites), "; ");
    (!parts.is_empty()).then_some(parts)
}

fn summary<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<Block> {
    let counts = counts(rows)?;
    let said = format!("Fault injection and mutation testing (S1): {counts}.");
    Some(Block::paragraph(said))
}

/// The same, and every fault, mutant and check, first those that are wrong.
pub fn blocks<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Block> {
    let mut rows = Vec::from_iter(rows);
    rows.sort_by_key(|row| row.failure().is_none());
    let table = Table::of(rows.iter().map(|row| cells(row, Metric::ALL))).filled();
    summary(rows).into_iter().chain(some(table)).collect()
}
