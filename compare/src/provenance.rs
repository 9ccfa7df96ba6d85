//! The commit of the sources. The build script asks for it, since the program may run without its
//! checkout.

use crate::git::git;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The commit of the sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    pub sha: String,
    /// Whether the sources differ from the commit, or git cannot tell.
    pub is_dirty: bool,
}

/// The reason why the commit is unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownCommit(String);

impl fmt::Display for UnknownCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Files that a repository around the sources tracks if it holds them.
const TRACKED: [&str; 2] = ["Cargo.toml", "compare/build.rs"];

/// The folders that cargo compiles.
const FOLDERS: [&str; 5] = [".cargo", "attention-ladder", "common", "compare", "stage*"];

/// The extensions of files that are compiled.
const COMPILED: [&str; 11] = [
    "c", "cc", "cpp", "cu", "cuh", "h", "hpp", "json", "ptx", "rs", "toml",
];

/// Returns the commit that holds the sources at `root`, or why there is none.
pub fn commit(root: &Path) -> Result<Commit, UnknownCommit> {
    let arguments = [&["ls-files", "--error-unmatch", "--"], &TRACKED[..]].concat();
    if let Err(error) = run(root, &arguments) {
        return Err(why_untracked(root, &error));
    }
    let sha = run(root, &["rev-parse", "--verify", "HEAD"])
        .map_err(|error| UnknownCommit(format!("git names no commit of its sources: {error}")))?;
    let is_dirty = is_dirty(root)
        .map_err(|error| UnknownCommit(format!("git does not compare its sources: {error}")))?;
    Ok(Commit {
        sha: sha.trim().to_string(),
        is_dirty,
    })
}

/// Returns why git does not track the sources.
fn why_untracked(root: &Path, error: &io::Error) -> UnknownCommit {
    let is_inside = run(root, &["rev-parse", "--is-inside-work-tree"]);
    let reason = if is_inside.is_ok_and(|answer| answer.trim() == "true") {
        "the git repository around its sources does not track them"
    } else if error.kind() == io::ErrorKind::NotFound {
        "it was built without git"
    } else {
        "it was built outside a git checkout"
    };
    UnknownCommit(reason.to_string())
}

fn is_dirty(root: &Path) -> io::Result<bool> {
    Ok(is_changed(root)? || hides_changes(root)? || has_untracked_sources(root)?)
}

/// Returns the files that change whenever HEAD names another commit. Each exists: cargo reruns a
/// build script on every build while one that it watches does not.
pub fn watched(root: &Path) -> Vec<PathBuf> {
    let path_of = |name: &str| {
        let path = run(root, &["rev-parse", "--git-path", name]).ok()?;
        Some(root.join(path.trim_end_matches('\n')))
    };
    // In a linked worktree `.git` is a file, and these lie elsewhere.
    let mut paths = Vec::new();
    for name in ["HEAD", "logs/HEAD", "reftable"] {
        paths.extend(path_of(name).filter(|path| path.exists()));
    }
    if let Ok(branch) = run(root, &["symbolic-ref", "--quiet", "HEAD"])
        && let Some(path) = path_of(branch.trim())
    {
        // A branch that is packed has no file yet; the next commit makes one below an existing
        // folder.
        let existing = path.ancestors().find(|folder| folder.exists());
        paths.extend(existing.map(PathBuf::from));
    }
    paths
}

/// Whether tracked files differ, or git lists an untracked one. The person's configuration may hide
/// both.
fn is_changed(root: &Path) -> io::Result<bool> {
    let status = [
        "status",
        "--porcelain=v1",
        "--untracked-files=normal",
        "--ignore-submodules=none",
        "--",
        ".",
    ];
    Ok(!run(root, &status)?.is_empty())
}

/// Whether git was told not to look at a tracked file that is there: `assume-unchanged` has a small
/// letter, `skip-worktree` an S.
fn hides_changes(root: &Path) -> io::Result<bool> {
    let listed = run(root, &["ls-files", "-v", "-z"])?;
    for line in listed.split_terminator('\0') {
        let (tag, path) = line.split_once(' ').unwrap_or((line, ""));
        let is_assumed = tag.starts_with(|letter: char| letter.is_ascii_lowercase());
        if is_assumed || tag == "S" && root.join(path).exists() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a file that cargo may compile is in no commit, whoever ignores it.
fn has_untracked_sources(root: &Path) -> io::Result<bool> {
    let others = run(
        root,
        &[&["ls-files", "--others", "-z", "--"], &FOLDERS[..]].concat(),
    )?;
    Ok(others.split_terminator('\0').map(Path::new).any(|path| {
        let extension = path.extension().unwrap_or_default();
        COMPILED.iter().any(|compiled| extension == *compiled)
            && !path.iter().any(|folder| folder == "target")
    }))
}

/// Returns what git prints in `root`. It takes no lock that a person's git may hold, asks no daemon
/// for changes, and compares modes.
fn run(root: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = git(root)
        .args(["--no-optional-locks", "-c", "core.fsmonitor=false"])
        .args(arguments)
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(message.trim().to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::git as testing;
    use std::fs;
    use tempfile::TempDir;

    const HEADER: &str = "common/cuda/attn/ours.cuh";

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes sources below `root`.
    fn sources(root: &Path) {
        for name in ["Cargo.toml", "compare/build.rs", HEADER] {
            write(root, name, "as committed");
        }
    }

    /// Makes a repository of sources with one commit.
    fn repository() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        testing::run(folder.path(), &["init", "--quiet", "-b", "main"]);
        sources(folder.path());
        testing::commit(folder.path(), "one");
        folder
    }

    #[track_caller]
    fn has_dirty_commit(root: &Path) -> bool {
        commit(root).unwrap().is_dirty
    }

    #[test]
    fn committed_sources_have_the_commit_of_head() {
        let folder = repository();
        let sha = testing::run(folder.path(), &["rev-parse", "HEAD"]);
        let clean = Commit {
            sha,
            is_dirty: false,
        };
        assert_eq!(commit(folder.path()), Ok(clean));
    }

    #[test]
    fn a_changed_source_is_dirty() {
        let folder = repository();
        write(folder.path(), HEADER, "changed");
        assert!(has_dirty_commit(folder.path()));
    }

    #[test]
    fn what_is_built_beside_the_sources_is_not_dirty() {
        let folder = repository();
        write(folder.path(), ".gitignore", "/target\n__pycache__\n");
        testing::commit(folder.path(), "ignore");
        write(folder.path(), "target/debug/build/generated.rs", "");
        write(folder.path(), "compare/src/__pycache__/peers.pyc", "");
        assert!(!has_dirty_commit(folder.path()));
    }

    #[test]
    fn what_a_crate_built_in_its_own_folder_is_not_dirty() {
        let folder = repository();
        write(folder.path(), ".gitignore", "target\n");
        testing::commit(folder.path(), "ignore");
        let generated = "common/emulator/target/debug/build/generated.rs";
        write(folder.path(), generated, "");
        assert!(!has_dirty_commit(folder.path()));
    }

    #[test]
    fn an_untracked_file_is_seen_although_status_is_told_to_show_none() {
        for name in ["common/cuda/attn/new.cuh", "rust-toolchain.toml"] {
            let folder = repository();
            let hide = ["config", "status.showUntrackedFiles", "no"];
            testing::run(folder.path(), &hide);
            write(folder.path(), name, "");
            assert!(has_dirty_commit(folder.path()), "{name}");
        }
    }

    #[test]
    fn an_untracked_header_is_seen_although_a_person_ignores_it() {
        let folder = repository();
        write(folder.path(), ".git/ignored", "*.cuh\n");
        let path = folder.path().join(".git/ignored");
        let ignored = path.to_str().unwrap();
        testing::run(folder.path(), &["config", "core.excludesFile", ignored]);
        write(folder.path(), "common/cuda/attn/new.cuh", "");
        assert!(has_dirty_commit(folder.path()));
    }

    #[test]
    fn a_change_that_git_is_told_not_to_look_at_is_dirty() {
        for flag in ["--assume-unchanged", "--skip-worktree"] {
            let folder = repository();
            testing::run(folder.path(), &["update-index", flag, HEADER]);
            write(folder.path(), HEADER, "changed");
            assert!(has_dirty_commit(folder.path()), "{flag}");
        }
    }

    #[test]
    fn a_file_that_a_sparse_checkout_leaves_out_is_not_dirty() {
        let folder = repository();
        testing::run(folder.path(), &["update-index", "--skip-worktree", HEADER]);
        std::fs::remove_file(folder.path().join(HEADER)).unwrap();
        assert!(!has_dirty_commit(folder.path()));
    }

    #[test]
    fn sources_in_no_repository_have_no_commit() {
        let folder = tempfile::tempdir().unwrap();
        sources(folder.path());
        let reason = commit(folder.path()).unwrap_err().to_string();
        assert_eq!(reason, "it was built outside a git checkout");
    }

    /// An archive that somebody unpacked in a repository of their own.
    #[test]
    fn sources_inside_a_repository_that_does_not_track_them_have_no_commit() {
        for ignored in ["", "unpacked\n"] {
            let folder = tempfile::tempdir().unwrap();
            testing::run(folder.path(), &["init", "--quiet"]);
            write(folder.path(), ".gitignore", ignored);
            testing::commit(folder.path(), "theirs");
            let root = folder.path().join("unpacked");
            sources(&root);
            let reason = commit(&root).unwrap_err().to_string();
            let expected = "the git repository around its sources does not track them";
            assert_eq!(reason, expected, "ignored: {ignored:?}");
        }
    }

    #[test]
    fn sources_that_a_larger_repository_tracks_have_its_commit() {
        let folder = tempfile::tempdir().unwrap();
        testing::run(folder.path(), &["init", "--quiet"]);
        let root = folder.path().join("third-party/ladder");
        sources(&root);
        testing::commit(folder.path(), "vendored");
        write(folder.path(), "elsewhere", "not ours");
        assert!(!has_dirty_commit(&root));
        write(&root, HEADER, "changed");
        assert!(has_dirty_commit(&root));
    }

    /// A watched file as it is now.
    #[derive(Debug, PartialEq)]
    struct Watched {
        path: PathBuf,
        /// The text of a file; the names in a folder.
        content: Vec<String>,
    }

    fn seen(root: &Path) -> Vec<Watched> {
        let mut files = Vec::new();
        for path in watched(root) {
            files.push(Watched {
                content: content(&path),
                path,
            });
        }
        files
    }

    fn content(path: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(path) else {
            return vec![fs::read_to_string(path).unwrap()];
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.unwrap().file_name().into_string().unwrap());
        }
        names.sort();
        names
    }

    #[track_caller]
    fn notices_a_commit(root: &Path) {
        let before = seen(root);
        assert_eq!(before, seen(root), "watching changes nothing");
        testing::commit(root, "two");
        assert_ne!(before, seen(root), "{root:?}");
    }

    #[test]
    fn a_commit_is_noticed() {
        notices_a_commit(repository().path());
    }

    #[test]
    fn a_commit_on_a_packed_branch_without_a_log_is_noticed() {
        let folder = repository();
        testing::run(folder.path(), &["config", "core.logAllRefUpdates", "false"]);
        fs::remove_dir_all(folder.path().join(".git/logs")).unwrap();
        testing::run(folder.path(), &["pack-refs", "--all"]);
        notices_a_commit(folder.path());
    }

    #[test]
    fn a_commit_in_a_linked_worktree_is_noticed() {
        let folder = repository();
        for (name, how) in [("branch", "-bside"), ("detached", "--detach")] {
            testing::run(folder.path(), &["worktree", "add", "--quiet", how, name]);
            notices_a_commit(&folder.path().join(name));
        }
    }

    #[test]
    fn another_branch_is_noticed() {
        let folder = repository();
        let before = seen(folder.path());
        testing::run(folder.path(), &["switch", "--quiet", "-c", "other"]);
        assert_ne!(before, seen(folder.path()));
    }
}
