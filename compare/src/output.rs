//! Where results go: every place is checked before anything runs, and what is there already is not destroyed.

use crate::measure::machine::{self, NoWorkspace};
use crate::record::files::{destination, folder_of, is_stream};
use crate::record::store::{FILES, META};
use anyhow::{Context, bail, ensure};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What a file of this program is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// COMPARE.md.
    Report,
    /// What `--json` writes.
    Json,
    /// Text that nothing is known of: it may overwrite any file that is not a record's.
    Any,
}

impl Content {
    /// Whether `file` begins as this program's own do; an empty file is nobody's.
    fn is_ours(self, file: &Path) -> io::Result<bool> {
        let mut text = Vec::new();
        fs::File::open(file)?
            .take(Self::LONGEST)
            .read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.is_empty()
            || match self {
                Content::Report => text.starts_with("# COMPARE\n"),
                // The first names in alphabetical order, each with what is in it, and all of `meta`.
                Content::Json => text.starts_with('{') && text.contains("\"meta\""),
                Content::Any => true,
            })
    }

    /// So much of a file is looked at.
    const LONGEST: u64 = 1 << 20;

    fn expected(self) -> &'static str {
        match self {
            Content::Report => "its own begin with '# COMPARE'",
            Content::Json => "its own are objects with `meta`",
            Content::Any => "",
        }
    }
}

/// A file to be written.
#[derive(Clone, Debug)]
pub struct Output {
    /// The flag that names it.
    pub flag: &'static str,
    /// Where it goes.
    pub path: PathBuf,
    /// What goes there.
    pub content: Content,
}

impl Output {
    /// The report, at `path`.
    pub fn report(path: &Path) -> Vec<Self> {
        vec![Self {
            flag: "--report",
            path: path.to_path_buf(),
            content: Content::Report,
        }]
    }

    /// Text to `path`, if one is given.
    pub fn text(flag: &'static str, path: Option<&PathBuf>) -> Vec<Self> {
        path.map(|path| Self {
            flag,
            path: path.clone(),
            content: Content::Any,
        })
        .into_iter()
        .collect()
    }
}

/// What is read, if one is given, and the flag that names it.
pub fn input<'a>(flag: &'static str, path: &'a Option<PathBuf>) -> Vec<(&'static str, &'a Path)> {
    path.iter().map(|path| (flag, path.as_path())).collect()
}

/// Where the report goes: as asked, else COMPARE.md of the workspace.
pub fn report_path(asked: Option<&Path>) -> Result<PathBuf, NoWorkspace> {
    match asked {
        Some(path) => Ok(path.to_path_buf()),
        None => Ok(machine::root("--report FILE")?.join("COMPARE.md")),
    }
}

/// Refuses outputs that cannot be written, that are each other or one of `inputs`, or that would destroy what this program
/// did not write. Creates and changes nothing.
pub fn check(outputs: &[Output], inputs: &[(&'static str, &Path)]) -> anyhow::Result<()> {
    for (
        index,
        Output {
            flag,
            path,
            content,
        },
    ) in outputs.iter().enumerate()
    {
        if is_stream(path) {
            continue;
        }
        let shown = path.display();
        let is_folder = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
        ensure!(!is_folder, "{flag} {shown}: is a folder; give a file");
        ensure!(
            path.as_os_str() != "-",
            "{flag} -: give a file; standard output is for --json"
        );
        let others = outputs[..index]
            .iter()
            .map(|other| (other.flag, other.path.as_path()));
        if let Some((other, _)) = others
            .chain(inputs.iter().copied())
            .find(|(_, other)| is_same(path, other))
        {
            bail!("{flag} and {other} are one file, {shown}; give each its own");
        }
        let unwritable = || format!("{flag}: cannot write {shown}; choose another place");
        let place = destination(path).with_context(unwritable)?;
        ensure!(
            !is_part_of_a_record(&place),
            "{flag} {shown}: is part of a record, which it would destroy; choose another place"
        );
        ensure!(
            !place.exists() || content.is_ours(&place).with_context(unwritable)?,
            "{flag} {shown}: there is a file that this program did not write ({}); remove it, or choose another place",
            content.expected()
        );
        probe(&place).with_context(unwritable)?;
    }
    Ok(())
}

/// Whether a write to one path changes what is at the other.
fn is_same(a: &Path, b: &Path) -> bool {
    let is_one_file = || match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => is_one_inode(&a, &b),
        _ => false,
    };
    matches!((canonical(a), canonical(b)), (Ok(a), Ok(b)) if a == b) || is_one_file()
}

#[cfg(unix)]
fn is_one_inode(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_one_inode(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    false
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

/// Finds out whether a file can be created in the folder of `path`, or in the nearest one that exists and would hold it.
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

    fn output(flag: &'static str, path: &Path, content: Content) -> Output {
        Output {
            flag,
            path: path.to_path_buf(),
            content,
        }
    }

    #[test]
    fn an_output_is_no_input_and_no_other_output() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("in"), "# COMPARE\n").unwrap();
        fs::hard_link(at("in"), at("hard")).unwrap();
        fs::create_dir(at("sub")).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(at("in"), at("soft")).unwrap();
        for name in ["in", "hard", "soft", "sub/../in"] {
            let error = check(
                &[output("--report", &at(name), Content::Report)],
                &[("--input", &at("in"))],
            );
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains("--report and --input are one file"),
                "{name}: {error}"
            );
        }
        let both = [
            ("new", "sub/../new"),
            ("no/such/folder/x", "no/such/folder/x"),
        ]
        .map(|(a, b)| {
            [
                output("--report", &at(a), Content::Report),
                output("--json", &at(b), Content::Json),
            ]
        });
        for both in both {
            let error = check(&both, &[]).unwrap_err().to_string();
            assert!(
                error.contains("--json and --report are one file"),
                "{error}"
            );
        }
        assert!(
            check(
                &[output("--report", &at("new"), Content::Report)],
                &[("--input", &at("in"))]
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
        let refused = |content, text: &str| {
            fs::write(&path, text).unwrap();
            check(&[output("--report", &path, content)], &[])
                .is_err_and(|error| error.to_string().contains("this program did not write"))
        };
        for (content, ours, foreign) in [
            (Content::Report, "# COMPARE\n\nFAIL", "[workspace]\n"),
            (Content::Json, "{\n  \"meta\": {}}", "{ \"name\": \"x\" }"),
        ] {
            assert!(
                !refused(content, ours) && !refused(content, "") && refused(content, foreign),
                "{content:?}"
            );
        }
        assert!(!refused(Content::Any, "anything"));
        emulated().write(folder.path()).unwrap();
        let error = check(
            &[output(
                "--out",
                &folder.path().join("rows.jsonl"),
                Content::Any,
            )],
            &[],
        )
        .unwrap_err();
        assert!(error.to_string().contains("is part of a record"), "{error}");
    }

    #[test]
    fn folders_and_places_below_files_are_refused_and_devices_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let check = |path: &Path| check(&[output("--json", path, Content::Json)], &[]);
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
