//! Which sources a stage's GPU code is made of, and their hash.
//!
//! The headers are found by following `#include` lines, not through a compiler: the emulated build
//! sees its own version of some device headers, and nvcc may be absent. Conditional compilation is
//! ignored, so the set may be too large, never too small; an include through a macro is refused
//! (see [`Sources::hidden`]).

use crate::error::BuildError;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// The sources of a stage's GPU code.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The contents by path, which is relative to the workspace root and has forward slashes.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Sources {
    /// Follows includes from `kernel` into its own folder and into `device_headers`, all under
    /// `root`.
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
                if let Some(header) = include.find(folder, device_headers) {
                    queue.push(normalised(&header));
                }
            }
            files.insert(relative(root, &path), content);
        }
        Ok(Self { files })
    }

    /// Returns the SHA-256 over flags, names and tokens: a better comment or a line broken
    /// elsewhere does not make measured figures those of another kernel.
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

    /// Returns the first of `compiled` that lies under `folders` and yet is not among these
    /// sources.
    pub fn hidden<'a>(
        &self,
        root: &Path,
        folders: &[&Path],
        compiled: &'a [PathBuf],
    ) -> Option<&'a PathBuf> {
        compiled.iter().find(|path| {
            let clean = normalised(path);
            folders.iter().any(|folder| clean.starts_with(folder))
                && !self.files.contains_key(&relative(root, &clean))
        })
    }
}

/// Returns the tokens of C++ one a line, which is C++ without comments and white space as far as
/// neither counts. A directive ends with an empty line. Text in which lines or white space may
/// count as a value is left as it is.
fn code(text: &str) -> String {
    let joined = text.replace("\r\n", "\n").replace("\\\n", "");
    let tokens = tokens(&joined);
    if tokens.iter().any(|token| depends_on_lines(token)) {
        text.to_string()
    } else {
        tokens.join("\n")
    }
}

/// Returns whether a token's value depends on lines or on white space.
fn depends_on_lines(token: &str) -> bool {
    if let Some((prefix, _)) = token.split_once('"') {
        // A raw string.
        return prefix.ends_with('R');
    }
    ["assert", "source_location", "__LINE__"].contains(&token)
}

/// Punctuators of more than one character, longest first.
const PUNCTUATORS: [&str; 26] = [
    "<<=", ">>=", "...", "->*", "::", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&",
    "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", ".*",
];

/// Returns the tokens of text without continued lines, and an empty one behind every directive.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    // The number of tokens before the directive that is being read.
    let mut directive_start: Option<usize> = None;
    let mut is_line_start = true;
    while let Some(first) = rest.chars().next() {
        if first == '\n' {
            if directive_start.take().is_some() {
                tokens.push("");
            }
            is_line_start = true;
        }
        let skipped = comment_or_space_length(rest, first);
        if skipped > 0 {
            rest = &rest[skipped..];
            continue;
        }
        if first == '#' && is_line_start {
            directive_start = Some(tokens.len());
        }
        is_line_start = false;
        let directive = directive_start.map_or(&[][..], |start| &tokens[start..]);
        let length = if directive == ["#", "include"] && first == '<' {
            literal_length(rest, '>')
        } else if directive == ["#", "define"] && rest[word_length(rest)..].starts_with('(') {
            // A macro has parameters if no white space stands before them.
            word_length(rest) + 1
        } else {
            token_length(rest, first)
        };
        tokens.push(&rest[..length]);
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of the comment or white space that `text` starts with, in bytes.
fn comment_or_space_length(text: &str, first: char) -> usize {
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        text.find("*/").map_or(text.len(), |start| start + 2)
    } else if first.is_whitespace() {
        first.len_utf8()
    } else {
        0
    }
}

/// Returns the length of the token that `text` starts with, in bytes.
fn token_length(text: &str, first: char) -> usize {
    if starts_with_digit(text) || first == '.' && starts_with_digit(&text[1..]) {
        return number_length(text);
    }
    // A literal with its prefix and suffix.
    let prefix = word_length(text);
    if let Some(quote @ ('"' | '\'')) = text[prefix..].chars().next() {
        let end = prefix + literal_length(&text[prefix..], quote);
        return end + word_length(&text[end..]);
    }
    if prefix > 0 {
        return prefix;
    }
    PUNCTUATORS
        .iter()
        .find(|punctuator| text.starts_with(**punctuator))
        .map_or(first.len_utf8(), |punctuator| punctuator.len())
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the length of the identifier or keyword that `text` starts with, in bytes.
fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}

/// Returns the length of the number that `text` starts with, in bytes, as the preprocessor sees it:
/// `1e-5f`, `0x1p+3`, `1'000`.
fn number_length(text: &str) -> usize {
    let mut before = ' ';
    for (position, c) in text.char_indices() {
        let is_exponent_sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E' | 'p' | 'P');
        if !c.is_alphanumeric() && !matches!(c, '_' | '.' | '\'') && !is_exponent_sign {
            return position;
        }
        before = c;
    }
    text.len()
}

/// Returns the length of the literal that `text` starts with, in bytes, its quotes included; that
/// of the line where it does not end in it.
fn literal_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (position, character) in text.char_indices().skip(1) {
        match character {
            '\n' => return position,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return position + 1,
            _ => {}
        }
    }
    text.len()
}

/// An `#include` line.
struct Include<'a> {
    name: &'a str,
    is_quoted: bool,
}

impl Include<'_> {
    /// Returns the header's path. A header in neither folder is the toolkit's or the C++ library's:
    /// their versions are recorded instead.
    fn find(&self, folder: &Path, device_headers: &Path) -> Option<PathBuf> {
        let beside = folder.join(self.name);
        if self.is_quoted && beside.is_file() {
            return Some(beside);
        }
        let device_header = device_headers.join(self.name);
        device_header.is_file().then_some(device_header)
    }
}

fn includes(text: &str) -> impl Iterator<Item = Include<'_>> {
    text.lines().filter_map(include)
}

/// Returns the header that a line includes.
fn include(line: &str) -> Option<Include<'_>> {
    let directive = line.trim_start().strip_prefix('#')?;
    let operand = directive.trim_start().strip_prefix("include")?.trim_start();
    let (is_quoted, rest, close) = if let Some(rest) = operand.strip_prefix('"') {
        (true, rest, '"')
    } else {
        (false, operand.strip_prefix('<')?, '>')
    };
    let (name, _) = rest.split_once(close)?;
    Some(Include { name, is_quoted })
}

/// Returns `path` without `.` and `..`, so that one file has one name.
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

/// Returns `path` relative to `root`, with forward slashes.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root)
        .unwrap_or(path)
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

/// Returns the SHA-256 of the concatenation, in hexadecimal.
pub(crate) fn hex_sha256(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string");
    }
    text
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
            "#include <attn/a.cuh>\n#include <mma.h>\n\
             #  include \"local.h\"\n// #include <attn/d.cuh>\n",
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

    const KERNEL: &str = "#define HALF(x) ((x) / 2) // of x\n\
                          #include <mma.h>\n\
                          /* one block\n    takes a tile */\n\
                          __device__ int row(int i) { return i < 16 ? HALF(i)+3 : a->b - -1; }\n\
                          asm(\"mov // %0; /* not a comment */\");\n";

    fn with_kernel(text: &str) -> String {
        identity_of(|root| std::fs::write(root.join("stage/local.h"), text).unwrap()).0
    }

    #[test]
    fn comments_and_layout_keep_the_identity() {
        let plain = with_kernel(KERNEL);
        for (from, to) in [
            (" // of x", ""),
            (" // of x", " /* of\n x */ "),
            ("takes a tile", "takes another tile"),
            ("/* one block\n    takes a tile */\n", "\n\n"),
            ("\n", "\r\n"),
            ("{ return", "{\n\n    return"),
            (" i < 16 ?", " i<16?"),
            ("HALF(i)+3", "HALF( i )\n\t + 3"),
            ("HALF(i)", "HA\\\nLF(i)"),
            ("a->b - -1", "a -> b-\n-1 /*-*/"),
            ("((x) / 2)", "\\\n    ( (x)/2 )"),
            ("#define HALF", "  #  define  HALF"),
            ("#include <mma.h>", "#include<mma.h>"),
            ("asm(", "// the \\\n move\nasm(\n"),
        ] {
            let changed = KERNEL.replace(from, to);
            assert!(changed != KERNEL, "{from:?}");
            assert_eq!(with_kernel(&changed), plain, "{changed}");
        }
    }

    #[test]
    fn constants_operators_literals_and_directives_are_the_identity() {
        let plain = with_kernel(KERNEL);
        for (from, to) in [
            ("16", "17"),
            ("16", "1 6"),
            ("16", "16u"),
            ("i < 16", "i <= 16"),
            ("i < 16", "i << 16"),
            ("+3", "-3"),
            ("- -1", "--1"),
            ("a->b", "a- >b"),
            ("int i", "inti"),
            ("int i", "int j"),
            ("row(", "column("),
            ("__device__", "// __device__"),
            ("mov //", "mov  //"),
            ("/* not", "/* no"),
            ("HALF(x) ((x)", "HALF (x) ((x)"),
            (" ((x) / 2) // of x\n", "\n((x) / 2)\n"),
            (" // of x\n#include <mma.h>", " #include <mma.h>"),
            ("<mma.h>", "<mma. h>"),
            ("<mma.h>", "\"mma.h\""),
        ] {
            let changed = KERNEL.replace(from, to);
            assert!(changed != KERNEL, "{from:?}");
            assert_ne!(with_kernel(&changed), plain, "{changed}");
        }
    }

    #[test]
    fn tokens_are_a_compilers() {
        for (text, expected) in [
            ("a+++b>>=c", "a|++|+|b|>>=|c"),
            (
                "x = .5e-3f+0x1p+3 - 1'000'000*2E-3;",
                "x|=|.5e-3f|+|0x1p+3|-|1'000'000|*|2E-3|;",
            ),
            ("f('\"', '\\'', '/') // c", "f|(|'\"'|,|'\\''|,|'/'|)"),
            ("L\"a \\\" //\"_s b", "L\"a \\\" //\"_s|b"),
            ("f(\"\"); // c", "f|(|\"\"|)|;"),
            ("a = \"open\nb; // c", "a|=|\"open|b|;"),
            (
                "#if A /* of\nb */ < 2\nint a;\n#endif",
                "#|if|A|<|2||int|a|;|#|endif",
            ),
            (
                "#define F(x) #x\n#define G (1)\n",
                "#|define|F(|x|)|#|x||#|define|G|(|1|)|",
            ),
            ("#pragma unroll 1\nfor", "#|pragma|unroll|1||for"),
            (
                "#include <never closed\nint",
                "#|include|<never closed||int",
            ),
            ("a /* never closed", "a"),
            ("a<::b>", "a|<|::|b|>"),
        ] {
            assert_eq!(tokens(text).join("|"), expected, "{text}");
        }
    }

    #[test]
    fn where_lines_or_white_space_may_be_values_all_of_a_file_counts() {
        for (text, changed) in [
            ("assert(a); // c", "assert(a);"),
            ("int a = __LINE__;", "int a =\n__LINE__;"),
            ("asm(R\"(a\n// b)\");", "asm(R\"(a\n// c)\");"),
            ("a = u8R\"(a\n// b)\";", "a = u8R\"(a\n// c)\";"),
            (
                "source_location::current(); // c",
                "source_location::current();",
            ),
        ] {
            assert_ne!(with_kernel(text), with_kernel(changed), "{text}");
        }
        assert_eq!(
            with_kernel("static_assert(a); // c"),
            with_kernel("static_assert(a);")
        );
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
        let named = |name: &str| {
            let files = BTreeMap::from([(name.to_string(), b"int a;".to_vec())]);
            Sources { files }.identity(&[])
        };
        assert_ne!(named("a.cuh"), named("b.cuh"));
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
            sources.hidden(root, &[Path::new("/w/stage"), &headers], &compiled),
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
