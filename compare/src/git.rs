//! The one place that starts git, for the program, its build script and its tests.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Returns git at work in `folder`, without what the caller's environment says to git. A hook of a
/// linked worktree, `git rebase --exec` and an alias name their repository, work tree and index in
/// variables that outrank the folder: git would write there.
pub fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_callers(name)) {
        git.env_remove(name);
    }
    git
}

/// Whether a variable tells git of a repository, configuration or output of its caller's. Where
/// git's own programs are is a fact of the machine.
pub fn is_callers(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"GIT_") && name != "GIT_EXEC_PATH"
}
