//! Every barrier, wait, arrive and commit is needed, or the stage says why it stands there.

use crate::load;
use common::stage::Attention;
use common::suppression::{Presets, suppress_each};

/// Fails unless a gate kills every mutant: one preset per family without one of its synchronisation
/// sites, but for those that the stage lists as redundant. (`compare selftest` asks the other
/// presets too.)
pub fn synchronisation(attention: &'static dyn Attention) {
    let suppressed = suppress_each(&load(attention), Presets::OnePerFamily);
    assert!(suppressed.broken.is_empty(), "{:#?}", suppressed.broken);
    let mut wrong: Vec<_> = suppressed.sites.iter().collect();
    wrong.retain(|site| site.remedy().is_some());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(suppressed.errors.is_empty(), "{:#?}", suppressed.errors);
}
