//! What the self-test kills (gate S1), of a run and of `compare selftest`.

use super::{cells, some};
use crate::document::{Block, Table};
use crate::judge::list::joined;
use crate::judge::state::{Tally, tally};
use crate::table::Row;
use common::metric::Metric;

/// How many faults and mutants are killed or listed as redundant, and what is wrong; `None` if nothing was tried.
pub fn summary<'a>(rows: impl IntoIterator<Item = &'a Row> + Clone) -> Option<Block> {
    let Tally {
        faults,
        faults_killed,
        sites,
        sites_killed,
        redundant,
    } = tally(rows.clone());
    let faults = (faults > 0).then(|| format!("{faults_killed} of {faults} planted faults killed"));
    let sites = (sites > 0).then(|| {
        let survive = sites - sites_killed - redundant;
        format!(
            "{sites_killed} of {sites} mutants (kernels without one synchronisation site) killed, {redundant} listed as redundant, \
             {survive} surviving"
        )
    });
    let parts = joined(faults.into_iter().chain(sites), "; ");
    let wrong = rows.into_iter().filter(|row| row.failure().is_some());
    let wrong = wrong
        .take(8)
        .map(|row| format!(" WRONG: {}{}.", row.subject, row.on));
    let wrong: String = wrong.collect();
    let said = format!("Fault injection and mutation testing (S1): {parts}.{wrong}");
    (!parts.is_empty()).then(|| Block::paragraph(said))
}

/// The same, and every fault, mutant and check.
pub fn blocks<'a>(rows: impl IntoIterator<Item = &'a Row> + Clone) -> Vec<Block> {
    let table = rows.clone().into_iter();
    let table = Table::of(table.map(|row| cells(row, Metric::ALL))).filled();
    summary(rows).into_iter().chain(some(table)).collect()
}
