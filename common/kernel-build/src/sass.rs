//! The identity of machine code: a hash of each entry's own section; the whole file depends on
//! paths and on the other entries.

use crate::identity::hex_sha256;
use object::{Object, ObjectSection};
use std::collections::BTreeMap;

/// The SHA-256 of `.text.<symbol>`, by symbol.
pub(crate) type TextHashes = BTreeMap<String, String>;

/// Hashes the code of each entry.
pub(crate) fn text_hashes(cubin: &[u8]) -> Result<TextHashes, object::Error> {
    let file = object::File::parse(cubin)?;
    let mut hashes = BTreeMap::new();
    for section in file.sections() {
        if let Some(symbol) = section.name()?.strip_prefix(".text.") {
            hashes.insert(symbol.to_string(), hex_sha256(&[section.data()?]));
        }
    }
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_an_object_is_an_error() {
        assert!(text_hashes(b"not a cubin").is_err());
    }
}
