//! The C interface from C: the header is what cbindgen makes of `src/lib.rs`, and a program that the C compiler builds against it
//! calls both libraries.
//!
//! `UPDATE_BINDINGS=1 cargo test -p attention-ladder --test c` rewrites the header.
#![forbid(unsafe_code)]

use common::device::cuda;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str = "\
// Attention forward on NVIDIA GPUs. Memory, workspace and stream are the caller's; every function may be called from any thread.
// Made by cbindgen from attention-ladder/src/lib.rs; `UPDATE_BINDINGS=1 cargo test -p attention-ladder --test c` rewrites it.";

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_current() {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(HEAD.into()),
        include_guard: Some("ATTENTION_LADDER_H".into()),
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        cpp_compat: true,
        documentation_style: cbindgen::DocumentationStyle::C99,
        usize_is_size_t: true,
        ..cbindgen::Config::default()
    };
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(folder().join("src/lib.rs"))
        .generate()
        .unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let path = folder().join("include/attention_ladder.h");
    if std::env::var_os("UPDATE_BINDINGS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        text,
        "include/attention_ladder.h is not what cbindgen makes of src/lib.rs; run \
         `UPDATE_BINDINGS=1 cargo test -p attention-ladder --test c`"
    );
}

/// What the program prints that is linked with `library`.
fn said(library: &[&str]) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("call");
    // Cargo builds the libraries beside the tests.
    let test = std::env::current_exe().unwrap();
    let libraries: PathBuf = test.parent().unwrap().into();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(folder().join("include"))
        .arg(folder().join("tests/call.c"))
        .arg("-L")
        .arg(&libraries)
        .args(library)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("the C compiler starts");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let ran = Command::new(&program)
        .env("LD_LIBRARY_PATH", &libraries)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{:?}: {}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn a_c_program_gets_a_variant_or_is_told_what_is_missing() {
    let shared = said(&["-lattention_ladder"]);
    let fixed = said(&[
        "-l:libattention_ladder.a",
        "-lstdc++",
        "-lm",
        "-ldl",
        "-lpthread",
        "-lgcc_s",
    ]);
    assert_eq!(shared, fixed);
    let expected = if stage5_swizzle::ARTIFACTS.fatbin.is_none() {
        "3 stage5-swizzle holds no GPU code: it was built without nvcc"
    } else if !cuda::is_present() {
        "3 no CUDA driver: libcuda.so.1 was not found"
    } else if let Err(error) = cuda::attach(0) {
        &format!("3 {error}")
    } else {
        "0 stage"
    };
    assert!(shared.starts_with(expected), "{shared} is not {expected}");
}
