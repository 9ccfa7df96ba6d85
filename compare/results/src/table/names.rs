//! The files of a table, by name.

/// The file of all rows but plain times at random problems.
pub const ROWS: &str = "rows.jsonl";
/// The file of plain times at random problems.
pub const DRAWS: &str = "draws.jsonl";
/// The file of sessions.
pub const SESSIONS: &str = "sessions.jsonl";

/// The files of what was measured, in the order in which they are read: whether a time is possible
/// depends on the GPU of its session.
pub const FILES: [&str; 3] = [SESSIONS, ROWS, DRAWS];

/// The files that show that a figure was edited.
pub const DIGESTS: &str = "digests.jsonl";
/// The file of a checksum for each line.
pub const SUMS: &str = "sums.txt";

/// All files of a table.
pub const ALL: [&str; 5] = [SESSIONS, ROWS, DRAWS, DIGESTS, SUMS];
