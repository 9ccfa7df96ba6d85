//! Which sources a stage's GPU code is made of, and their hash.
//!
//! The headers are found by following `#include` lines, not through a compiler: the emulated build sees its own version
//! of some device headers, and nvcc may be absent. Conditional compilation is ignored, so the set may be too large,
//! never too small; an include through a macro is refused (see [`hidden`]).

use crate::error::BuildError;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// The sources of one stage's GPU code.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Path relative to the workspace root, with forward slashes, and content.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Sources {
    /// Follows includes from `kernel` into its own folder and into `device_headers`, all under `root`.
    pub fn collect(root: &Path, kernel: &Path, device_headers: &Path) -> Result<Self, BuildError> {
        let mut files = BTreeMap::new();
        let mut queue = vec![normalised(kernel)];
        let mut seen = BTreeSet::new();
        while let Some(path) = queue.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let content = std::fs::read(&path).map_err(BuildError::io("read", &path))?;
            let folder = path.parent().unwrap_or(root);
            for include in includes(&String::from_utf8_lossy(&content)) {
                let candidates = [
                    include.quoted.then(|| folder.join(include.name)),
                    Some(device_headers.join(include.name)),
                ];
                // What is in neither place is the toolkit's or the C++ library's: their versions are recorded instead.
                queue.extend(
                    candidates
                        .into_iter()
                        .flatten()
                        .find(|path| path.is_file())
                        .map(|path| normalised(&path)),
                );
            }
            files.insert(relative(root, &path), content);
        }
        Ok(Self { files })
    }

    /// SHA-256 over flags, names and contents, less what no compiler looks at: a better comment does not make measured
    /// figures those of another kernel.
    pub fn identity(&self, flags: &[&str]) -> String {
        let mut hash = Sha256::new();
        // Every part goes with its length, or "ab"+"c" would hash like "a"+"bc".
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for flag in flags {
            part(flag.as_bytes());
        }
        part(b"files");
        for (name, content) in &self.files {
            part(name.as_bytes());
            part(code(&String::from_utf8_lossy(content)).as_bytes());
        }
        hex(&hash.finalize())
    }

    /// The first of `compiled` that lies under `folders` and yet is not among these sources.
    pub fn hidden<'a>(
        &self,
        root: &Path,
        folders: &[&Path],
        compiled: &'a [PathBuf],
    ) -> Option<&'a PathBuf> {
        compiled.iter().find(|path| {
            let path = normalised(path);
            folders.iter().any(|folder| path.starts_with(folder))
                && !self.files.contains_key(&relative(root, &path))
        })
    }
}

/// C++ without comments, indentation, trailing blanks and empty lines. Literals stay as they are; raw strings count as plain
/// ones, which at worst keeps a comment.
fn code(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            rest = &rest[end..];
            continue;
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |at| at + 2);
            rest = &rest[end..];
            kept.push(' ');
            continue;
        } else if first == '"' || first == '\'' && !kept.ends_with(|c: char| c.is_ascii_hexdigit())
        {
            literal(rest, first)
        } else {
            first.len_utf8()
        };
        kept.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    let lines = kept.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Bytes of the literal that `text` starts with, its quotes included; those of the line where it does not end in it.
fn literal(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            '\n' if !is_escaped => return at,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

struct Include<'a> {
    name: &'a str,
    quoted: bool,
}

fn includes(text: &str) -> impl Iterator<Item = Include<'_>> {
    text.lines().filter_map(|line| {
        let rest = line
            .trim_start()
            .strip_prefix('#')?
            .trim_start()
            .strip_prefix("include")?
            .trim_start();
        let (quoted, close) = match rest.chars().next()? {
            '"' => (true, '"'),
            '<' => (false, '>'),
            _ => return None,
        };
        Some(Include {
            name: rest[1..].split_once(close)?.0,
            quoted,
        })
    })
}

/// `path` without `.` and `..`, so that one file has one name.
pub(crate) fn normalised(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            other => clean.push(other),
        }
    }
    clean
}

/// `path` relative to `root`, with forward slashes.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

/// SHA-256 of the concatenation, in hexadecimal.
pub(crate) fn hex_sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small workspace; `change` may alter it before it is read.
    fn identity_of(change: impl FnOnce(&Path)) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "stage/kernel.cu",
            "#include <attn/a.cuh>\n#include <mma.h>\n#  include \"local.h\"\n// #include <attn/d.cuh>\n",
        );
        write("stage/local.h", "int local;\n");
        write(
            "headers/attn/a.cuh",
            "#include \"ptx/b.cuh\"\n#include <attn/a.cuh>\n",
        );
        write("headers/attn/ptx/b.cuh", "#include \"../c.cuh\"\n");
        write("headers/attn/c.cuh", "int c;\n");
        write("headers/attn/d.cuh", "int unused;\n");
        change(root);
        let sources =
            Sources::collect(root, &root.join("stage/kernel.cu"), &root.join("headers")).unwrap();
        (
            sources.identity(&["-O3"]),
            sources.files.into_keys().collect(),
        )
    }

    #[test]
    fn includes_are_followed_and_listed_by_name() {
        let expected = [
            "headers/attn/a.cuh",
            "headers/attn/c.cuh",
            "headers/attn/ptx/b.cuh",
            "stage/kernel.cu",
            "stage/local.h",
        ];
        assert_eq!(identity_of(|_| ()).1, expected);
    }

    #[test]
    fn identity_does_not_depend_on_the_place() {
        assert_eq!(identity_of(|_| ()), identity_of(|_| ()));
    }

    #[test]
    fn identity_follows_every_file_and_only_those() {
        let plain = identity_of(|_| ()).0;
        for name in [
            "headers/attn/c.cuh",
            "headers/attn/ptx/b.cuh",
            "stage/local.h",
        ] {
            let changed =
                identity_of(|root| std::fs::write(root.join(name), "int changed;\n").unwrap()).0;
            assert_ne!(changed, plain, "{name}");
        }
        let unused = identity_of(|root| {
            std::fs::write(root.join("headers/attn/d.cuh"), "int changed;\n").unwrap()
        })
        .0;
        assert_eq!(unused, plain);
    }

    #[test]
    fn identity_is_of_what_a_compiler_sees() {
        let plain = identity_of(|_| ()).0;
        let of = |text: &str| {
            identity_of(|root| std::fs::write(root.join("stage/local.h"), text).unwrap()).0
        };
        for same in [
            "int local; // of the block\n",
            "/* of\n the block */\n\n  int local;\r\n",
            "int local;",
        ] {
            assert_eq!(of(same), plain, "{same:?}");
        }
        for other in [
            "int local2;\n",
            "int\nlocal;\n",
            "// int local;\n",
            "intlocal;\n",
        ] {
            assert_ne!(of(other), plain, "{other:?}");
        }
    }

    #[test]
    fn literals_are_code_whatever_they_hold() {
        for text in [
            "asm(\"// a \\\" /* b\"); f('\"', '\\'', '/');",
            "x = 1'000'000 / 2;",
        ] {
            assert_eq!(code(&format!("{text} // c")), format!("{text}\n"));
        }
        assert_eq!(code("a = \"open\nb; // c"), "a = \"open\nb;\n");
        assert_eq!(
            code("#define A(x) \\\n    f(x) /* g */ + 1"),
            "#define A(x) \\\nf(x)   + 1\n"
        );
        assert_eq!(code("a /* never closed"), "a\n");
    }

    #[test]
    fn identity_follows_flags_and_their_bounds() {
        let sources = Sources {
            files: BTreeMap::new(),
        };
        assert_ne!(sources.identity(&["-O3"]), sources.identity(&["-O2"]));
        assert_ne!(
            sources.identity(&["ab", "c"]),
            sources.identity(&["a", "bc"])
        );
    }

    #[test]
    fn a_header_reached_only_through_a_macro_is_hidden() {
        let sources = Sources {
            files: BTreeMap::from([("headers/a.cuh".to_string(), Vec::new())]),
        };
        let root = Path::new("/w");
        let compiled =
            ["/w/headers/./a.cuh", "/usr/include/x.h", "/w/headers/b.cuh"].map(PathBuf::from);
        let headers = root.join("headers");
        assert_eq!(
            sources.hidden(root, &[&headers], &compiled),
            Some(&compiled[2])
        );
        assert_eq!(sources.hidden(root, &[&headers], &compiled[..2]), None);
    }

    #[test]
    fn hash_is_sha256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex_sha256(&[b"a", b"bc"]), expected);
    }
}
