//! The host memory that collections hold.

use std::collections::HashMap;

/// Returns the bytes that a list holds, used or not.
pub(crate) fn of_list<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// Returns the bytes that a hash table holds: it has a byte of its own for each entry, and an eighth
/// of the entries is never used.
pub(crate) fn of_table<K, V, S>(table: &HashMap<K, V, S>) -> usize {
    table.capacity().div_ceil(7) * 8 * (size_of::<(K, V)>() + 1)
}
