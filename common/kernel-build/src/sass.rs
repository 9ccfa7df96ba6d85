//! The identity of machine code: a hash of each entry's own section; the whole file depends on paths and on the other
//! entries.

use crate::identity::hex_sha256;
use object::{Object, ObjectSection};
use std::collections::BTreeMap;

/// SHA-256 and size of `.text.<symbol>`, by symbol.
pub(crate) fn text_hashes(cubin: &[u8]) -> Result<BTreeMap<String, (String, u64)>, object::Error> {
    let file = object::File::parse(cubin)?;
    let mut hashes = BTreeMap::new();
    for section in file.sections() {
        if let Some(symbol) = section.name()?.strip_prefix(".text.") {
            let code = section.data()?;
            hashes.insert(symbol.to_string(), (hex_sha256(&[code]), code.len() as u64));
        }
    }
    Ok(hashes)
}

/// With the same hash, each sorted.
pub(crate) fn identical<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Vec<String>> {
    let mut by_hash: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (symbol, hash) in entries {
        by_hash.entry(hash).or_default().push(symbol.to_string());
    }
    let mut groups: Vec<_> = by_hash
        .into_values()
        .filter(|group| group.len() > 1)
        .collect();
    groups.iter_mut().for_each(|group| group.sort());
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_entries_with_one_hash_are_named() {
        let entries = [("c", "1"), ("b", "2"), ("a", "1"), ("d", "3")];
        assert_eq!(identical(entries.into_iter()), [["a", "c"]]);
        assert!(
            identical(
                entries[1..]
                    .iter()
                    .copied()
                    .filter(|(symbol, _)| *symbol != "a")
            )
            .is_empty()
        );
    }

    #[test]
    fn what_is_not_an_object_is_an_error() {
        assert!(text_hashes(b"not a cubin").is_err());
    }
}
