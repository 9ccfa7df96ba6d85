//! The files that a command line names to be written.

use crate::measure::machine::{self, NoWorkspace};
use crate::table::files::{destination, folder_of, is_stream};
use anyhow::bail;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A flag and the file that it names, if it was given.
pub type Named<'a> = (&'static str, Option<&'a Path>);

/// Where the report goes: as asked, or COMPARE.md of the workspace.
pub fn report_path(asked: Option<&Path>) -> Result<PathBuf, NoWorkspace> {
    match asked {
        Some(path) => Ok(path.to_path_buf()),
        None => Ok(machine::root("--report FILE")?.join("COMPARE.md")),
    }
}

/// Refuses an output that is the same file as an input or another output. Creates and changes nothing.
pub fn check(outputs: &[Named<'_>], inputs: &[Named<'_>]) -> anyhow::Result<()> {
    for (index, &(flag, path)) in outputs.iter().enumerate() {
        let Some(path) = path.filter(|path| !is_stream(path)) else {
            continue;
        };
        let mut others = outputs[..index].iter().chain(inputs);
        if let Some((other, _)) =
            others.find(|(_, other)| other.is_some_and(|other| is_same(path, other)))
        {
            bail!(
                "{flag} and {other} are the same file, {}; give each its own",
                path.display()
            );
        }
    }
    Ok(())
}

/// Whether a write to one path changes the file at the other, by any link.
fn is_same(a: &Path, b: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).map(|of| (of.dev(), of.ino()));
    match (inode(a), inode(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => matches!((canonical(a), canonical(b)), (Ok(a), Ok(b)) if a == b),
    }
}

/// `path` without links and dots, as far as it exists.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    let place = destination(path)?;
    match (place.canonicalize(), place.file_name()) {
        (Ok(whole), _) => Ok(whole),
        (Err(error), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            Ok(canonical(folder_of(&place))?.join(name))
        }
        (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_no_input_and_no_other_output() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("in"), "# COMPARE\n").unwrap();
        fs::hard_link(at("in"), at("hard")).unwrap();
        fs::create_dir(at("sub")).unwrap();
        std::os::unix::fs::symlink(at("in"), at("soft")).unwrap();
        for name in ["in", "hard", "soft", "sub/../in"] {
            let error = check(
                &[("--report", Some(&at(name)))],
                &[("--input", Some(&at("in")))],
            );
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains("--report and --input are the same file"),
                "{name}: {error}"
            );
        }
        let both = [
            ("new", "sub/../new"),
            ("no/such/folder/x", "no/such/folder/x"),
        ]
        .map(|(a, b)| (at(a), at(b)));
        for (report, json) in both {
            let both = [("--report", Some(&*report)), ("--json", Some(&*json))];
            let error = check(&both, &[]).unwrap_err().to_string();
            assert!(
                error.contains("--json and --report are the same file"),
                "{error}"
            );
        }
        assert!(
            check(
                &[("--report", Some(&at("new")))],
                &[("--input", Some(&at("in")))]
            )
            .is_ok()
        );
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            4,
            "checking leaves nothing behind"
        );
    }
}
