//! What decoding returns.

use crate::parse::Refusal;

/// The decoded value, or why there is none.
pub(super) type Result<T> = std::result::Result<T, Refusal>;
