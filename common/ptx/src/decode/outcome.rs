//! What decoding returns.

use crate::parse::Refusal;

/// What was decoded, or why it was refused.
pub(super) type Result<T> = std::result::Result<T, Refusal>;
