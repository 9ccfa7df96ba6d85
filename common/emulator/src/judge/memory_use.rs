//! The host memory of the collections in which a judge remembers what threads have done. It grows
//! with the accesses of a cluster; what grows with the launch alone is in [`crate::footprint`].

use std::collections::HashMap;

use super::Judge;

/// The accesses from one look at the memory to the next.
const ACCESSES_BETWEEN_LOOKS: u32 = 64;

/// Returns the bytes that a list holds, used or not.
pub(crate) fn of_list<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// Returns the bytes that a hash table holds: it has a byte of its own for each entry, and an eighth
/// of the entries is never used.
pub(crate) fn of_table<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    table.capacity().div_ceil(7) * 8 * (size_of::<(K, V)>() + 1)
}

impl Judge {
    /// Returns whether what the judge remembers takes more memory than it may, and notes that. It
    /// looks every few accesses only.
    #[inline]
    pub(super) fn outgrows(&mut self) -> bool {
        self.accesses = self.accesses.wrapping_add(1);
        self.accesses.is_multiple_of(ACCESSES_BETWEEN_LOOKS) && self.is_beyond_history()
    }

    #[cold]
    fn is_beyond_history(&mut self) -> bool {
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
