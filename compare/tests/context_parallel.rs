//! `examples/context_parallel.py` on three CPU ranks, as it is and with faults planted into its text. Needs a Python with
//! PyTorch; without one, the test says so and passes, and with CI set it fails.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

#[test]
fn the_ranks_agree_with_fp64_and_every_planted_fault_is_killed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = here.join("../.python/bin/python");
    let python = std::env::var_os("PYTHON").map_or(installed, Into::into);
    let run = |arguments: &[&Path]| Command::new(&python).args(arguments).output();
    if !run(&["-c".as_ref(), "import torch".as_ref()]).is_ok_and(|found| found.status.success()) {
        let missing = "there is no Python with PyTorch: run scripts/python";
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        eprintln!("{missing}");
        return;
    }
    let output = run(&[
        &here.join("tests/context_parallel.py"),
        &here.join("../examples/context_parallel.py"),
    ])
    .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{words}");
    let codes: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("fault "))
        .collect();
    assert_eq!(codes[0], "none: 0", "{said}{words}");
    assert!(codes.len() > 1, "{said}");
    for code in &codes[1..] {
        assert!(code.ends_with(": 1"), "{code}\n{said}{words}");
    }
}
