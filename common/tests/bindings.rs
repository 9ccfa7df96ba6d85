//! `common/src/params.rs` is what bindgen makes of `common/cuda/attn/params.h`, `launch.h` and
//! `served.h`: regenerated here and compared, so that a plain build needs no libclang and host and device still
//! cannot drift.
//!
//! `UPDATE_BINDINGS=1 cargo test -p common --test bindings` rewrites it.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

const ATTRIBUTES: &str = "\
//! The host's side of the contract with the kernels: `params.h`, `launch.h` and
//! `served.h` of `common/cuda/attn`, through bindgen. Not edited by hand:
//! `UPDATE_BINDINGS=1 cargo test -p common --test bindings` rewrites it, and the same test finds it
//! out of date.
#![allow(
    missing_docs,
    non_upper_case_globals,
    clippy::all,
    rustdoc::broken_intra_doc_links
)]
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("common/ lies in the root")
        .to_path_buf()
}

/// The folder of libclang: where the environment says, or where `scripts/cuda-toolkit` puts it.
fn libclang(root: &Path) -> Option<PathBuf> {
    let named = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    named.or_else(|| Some(root.join(".cuda/clang/native")).filter(|folder| folder.is_dir()))
}

/// A header as libclang reads it, after those that it includes: plain comments marked as
/// documentation (above an item `///`, behind a member `///<`), and the four integer types in place
/// of the system's header, which may be absent or another's.
fn prepared(header: &str) -> String {
    let mark = |line: &str| {
        if line == "#include <stdint.h>" {
            return ["INT32", "UINT32", "INT64", "UINT64"].map(typedef).concat();
        }
        if line.starts_with("#include") {
            return String::new();
        }
        let Some((code, comment)) = line.split_once("//") else {
            return line.to_string();
        };
        format!(
            "{code}{}{comment}",
            if code.trim().is_empty() {
                "///"
            } else {
                "///<"
            }
        )
    };
    header.lines().map(mark).collect::<Vec<_>>().join("\n")
}

fn typedef(name: &str) -> String {
    format!("typedef __{name}_TYPE__ {}_t;\n", name.to_lowercase())
}

/// Takes off the mark of a comment behind its member.
#[derive(Debug)]
struct Comments;

impl bindgen::callbacks::ParseCallbacks for Comments {
    fn process_comment(&self, comment: &str) -> Option<String> {
        Some(comment.strip_prefix('<').unwrap_or(comment).to_string())
    }
}

#[test]
fn params_rs_is_current() {
    let root = root();
    let Some(folder) = libclang(&root) else {
        let why = "libclang was not found: set LIBCLANG_PATH or run scripts/cuda-toolkit";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        println!("not checked: {why}");
        return;
    };
    let header = |name: &str| {
        prepared(&std::fs::read_to_string(root.join("common/cuda/attn").join(name)).unwrap())
    };
    // The whole test runs in a child that has LIBCLANG_PATH: setting a variable of this process
    // would be unsafe.
    if std::env::var_os("LIBCLANG_PATH").is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child
            .args(["params_rs_is_current", "--exact", "--nocapture"])
            .env("LIBCLANG_PATH", folder);
        assert!(child.status().unwrap().success(), "see above");
        return;
    }
    let generated = bindgen::Builder::default()
        .header_contents(
            "served.h",
            &["params.h", "launch.h", "served.h"].map(header).join("\n"),
        )
        // Fixed, so that every machine gets the same text.
        .clang_args(["--target=x86_64-unknown-linux-gnu", "-std=c11", "-nostdinc"])
        .parse_callbacks(Box::new(Comments))
        .allowlist_type("Attention.*")
        .derive_copy(true)
        .derive_debug(true)
        .generate_comments(true)
        .layout_tests(true)
        .formatter(bindgen::Formatter::Rustfmt)
        .disable_header_comment()
        .generate()
        .expect("params.h is plain C")
        .to_string();
    let expected = format!("{ATTRIBUTES}\n{generated}");
    let path = root.join("common/src/params.rs");
    if std::env::var_os("UPDATE_BINDINGS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == expected,
        "common/src/params.rs is not what bindgen makes of params.h, launch.h and served.h; \
         run UPDATE_BINDINGS=1 cargo test -p common --test bindings and commit it"
    );
}
