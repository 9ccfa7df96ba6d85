//! Checks, before anything runs, that results can be written and would overwrite nothing of others.

use crate::measure::machine::{self, NoWorkspace};
use crate::record::files::{destination, folder_of, is_stream};
use crate::record::store::{FILES, META};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A flag and the file that it names, if it was given.
pub type Named<'a> = (&'static str, Option<&'a Path>);

/// How much of a file is looked at, in bytes.
const LOOKED_AT: u64 = 1 << 20;

/// What this program's own files for `flag` look like, if `file` does not. Empty files, and those of other flags, may be
/// overwritten.
fn unlike_ours(flag: &str, file: &Path) -> io::Result<Option<&'static str>> {
    let mut text = Vec::new();
    fs::File::open(file)?
        .take(LOOKED_AT)
        .read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    Ok(match flag {
        _ if text.is_empty() => None,
        "--report" if !text.starts_with("# COMPARE\n") => Some("its own begin with '# COMPARE'"),
        // Keys are in alphabetical order, so that `meta` is near the beginning.
        "--json" if !(text.starts_with('{') && text.contains("\"meta\"")) => {
            Some("its own are objects with `meta`")
        }
        _ => None,
    })
}

/// Where the report goes: as asked, or COMPARE.md of the workspace.
pub fn report_path(asked: Option<&Path>) -> Result<PathBuf, NoWorkspace> {
    match asked {
        Some(path) => Ok(path.to_path_buf()),
        None => Ok(machine::root("--report FILE")?.join("COMPARE.md")),
    }
}

/// Refuses outputs that cannot be written, that are the same file as another output or an input, or that would destroy a file that
/// this program did not write. Creates and changes nothing.
pub fn check(outputs: &[Named<'_>], inputs: &[Named<'_>]) -> anyhow::Result<()> {
    for (index, &(flag, path)) in outputs.iter().enumerate() {
        let Some(path) = path.filter(|path| !is_stream(path)) else {
            continue;
        };
        let shown = path.display();
        let is_folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        ensure!(!is_folder, "{flag} {shown}: this is a folder; give a file");
        ensure!(
            path.as_os_str() != "-",
            "{flag} -: give a file; standard output is for --json"
        );
        let mut others = outputs[..index].iter().chain(inputs);
        if let Some((other, _)) =
            others.find(|(_, other)| other.is_some_and(|other| is_same(path, other)))
        {
            bail!("{flag} and {other} are the same file, {shown}; give each its own");
        }
        let unwritable = || format!("{flag}: cannot write {shown}; choose another place");
        let place = destination(path).with_context(unwritable)?;
        ensure!(
            !is_part_of_a_record(&place),
            "{flag} {shown}: this file is part of a record, which would be destroyed; choose another place"
        );
        if place.exists()
            && let Some(ours) = unlike_ours(flag, &place).with_context(unwritable)?
        {
            bail!(
                "{flag} {shown}: this program did not write the file that is there ({ours}); remove it, or choose another place"
            );
        }
        probe(&place).with_context(unwritable)?;
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

fn is_part_of_a_record(path: &Path) -> bool {
    let is_record_file = path
        .file_name()
        .is_some_and(|name| FILES.iter().any(|file| name == *file));
    is_record_file && folder_of(path).join(META).is_file()
}

/// Checks that a file can be created in the folder of `path`, or in the nearest existing folder above it.
fn probe(path: &Path) -> io::Result<()> {
    let mut folder = folder_of(path);
    while !folder.exists() {
        folder = folder_of(folder);
    }
    let probe = folder.join(format!(".compare-{}.tmp", std::process::id()));
    fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::emulated;

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

    #[test]
    fn what_this_program_did_not_write_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let refused = |flag, text: &str| {
            fs::write(&path, text).unwrap();
            check(&[(flag, Some(&path))], &[])
                .is_err_and(|error| error.to_string().contains("this program did not write"))
        };
        for (flag, ours, foreign) in [
            ("--report", "# COMPARE\n\nFAIL", "[workspace]\n"),
            ("--json", "{\n  \"meta\": {}}", "{ \"name\": \"x\" }"),
        ] {
            assert!(
                !refused(flag, ours) && !refused(flag, "") && refused(flag, foreign),
                "{flag}"
            );
        }
        assert!(!refused("--out", "anything"));
        emulated().write(folder.path()).unwrap();
        let rows = folder.path().join("rows.jsonl");
        let error = check(&[("--out", Some(&rows))], &[]).unwrap_err();
        assert!(error.to_string().contains("is part of a record"), "{error}");
    }

    #[test]
    fn folders_and_places_below_files_are_refused_and_devices_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let check = |path: &Path| check(&[("--json", Some(path))], &[]);
        let refused = |path: &Path| check(path).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("is a folder"));
        assert!(refused(Path::new("no/such/")).contains("is a folder"));
        assert!(refused(Path::new("-")).contains("standard output is for --json"));
        assert!(refused(&file.join("below")).contains("cannot write"));
        // Below target/: the check tries the folder, and build scripts watch the crate's own.
        assert!(
            check(Path::new("/dev/null")).is_ok()
                && check(Path::new("../target/relative.json")).is_ok()
        );
    }
}
