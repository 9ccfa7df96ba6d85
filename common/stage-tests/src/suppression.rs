//! Every barrier, wait, arrive and commit is needed, or the stage says why it stands there.

use crate::{load, not_checked};
use common::stage::Attention;
use common::suppression::{Presets, Synchronisation, suppress_each};

/// Fails unless a gate kills every mutant: one preset per family without one of its synchronisation sites, but for
/// those that the stage lists as redundant. (`compare selftest` asks the other presets too.)
pub fn synchronisation(attention: &'static dyn Attention) {
    let synchronisation = suppress_each(&[&load(attention)], Presets::OnePerFamily, |_| ());
    let broken = synchronisation.broken();
    assert!(broken.is_empty(), "{broken:#?}");
    let wrong = synchronisation.wrong();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    match synchronisation {
        Synchronisation::Tried { suppressed, .. } => println!("{suppressed}"),
        Synchronisation::NotTried { reason } => not_checked(&reason),
    }
}
