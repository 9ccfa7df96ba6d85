//! The host memory of the collections in which a judge remembers what threads have done. It grows
//! with the accesses of a cluster; what grows with the launch alone is in [`crate::footprint`].

use super::Judge;
use crate::heap::of_list;

/// The accesses from one look at the memory to the next, and one more for so many signals: a look
/// goes through all of these.
const ACCESSES_BETWEEN_LOOKS: usize = 64;
const SIGNALS_PER_ACCESS: usize = 8;

impl Judge {
    /// Returns whether what the judge remembers takes more memory than it may, and notes that. It
    /// looks every few accesses only.
    #[inline]
    pub(super) fn outgrows(&mut self) -> bool {
        let Some(left) = self.accesses_to_look.checked_sub(1) else {
            return self.is_beyond_history();
        };
        self.accesses_to_look = left;
        false
    }

    #[cold]
    fn is_beyond_history(&mut self) -> bool {
        self.accesses_to_look = ACCESSES_BETWEEN_LOOKS + self.published.len() / SIGNALS_PER_ACCESS;
        let most = self.setup().history;
        let is_beyond = most.is_some_and(|bytes| self.history_bytes() > bytes);
        self.outcome.has_outgrown |= is_beyond;
        is_beyond
    }

    /// Returns the bytes of what the judge remembers of accesses and synchronisation.
    pub(crate) fn history_bytes(&self) -> usize {
        let requests: usize = self.requests.iter().map(|it| it.history_bytes()).sum();
        let published: usize = self.published.values().map(|it| it.history_bytes()).sum();
        self.order.history_bytes()
            + self.copies.history_bytes()
            + self.outcome.hazards.history_bytes()
            + of_list(&self.under_way)
            + of_list(&self.remote_arrivals)
            + of_list(&self.fetches)
            + of_list(&self.races)
            + requests
            + published
    }
}
