//! The workspace, where COMPARE.md and the committed tables are.

use std::path::{Path, PathBuf};

/// The folder of the library's choices, by GPU model, in the workspace.
pub const CHOICE: &str = "attention-ladder/choice";

/// The current folder is in no workspace.
#[derive(Debug, thiserror::Error)]
#[error("the current folder is not inside the workspace; go there, or {instead}")]
pub struct OutsideWorkspace {
    /// The remedy, in the imperative.
    instead: String,
}

/// Returns the workspace: the one around the current folder, else the one that `cargo run` names;
/// none for a binary that was copied elsewhere.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let starts = [std::env::current_dir().ok(), named];
    starts
        .iter()
        .flatten()
        .flat_map(|start| start.ancestors())
        .find(|root| is_workspace(root))
        .map(Path::to_path_buf)
}

/// Returns the folder of the committed tables; without a workspace one that does not exist.
pub fn results() -> PathBuf {
    find().unwrap_or_default().join("results")
}

/// Returns the workspace, or an error that names what to do instead.
pub fn require(instead: &str) -> Result<PathBuf, OutsideWorkspace> {
    find().ok_or_else(|| OutsideWorkspace {
        instead: instead.to_string(),
    })
}

fn is_workspace(root: &Path) -> bool {
    root.join("Cargo.toml").is_file() && root.join("compare/stages/src/lib.rs").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found_from_a_folder_within() {
        let root = find().expect("tests run inside the workspace");
        assert!(is_workspace(&root) && !is_workspace(&root.join("compare")));
    }
}
