//! The files of a table, by name.

pub const ROWS: &str = "rows.jsonl";
pub const DRAWS: &str = "draws.jsonl";
pub const SESSIONS: &str = "sessions.jsonl";

/// What was measured, in the order in which it is read: what a time can be depends on the GPU of its session.
pub const FILES: [&str; 3] = [SESSIONS, ROWS, DRAWS];

/// What shows that a figure was edited.
pub const DIGESTS: &str = "digests.jsonl";
pub const SUMS: &str = "sums.txt";

/// All of them.
pub const ALL: [&str; 5] = [SESSIONS, ROWS, DRAWS, DIGESTS, SUMS];
