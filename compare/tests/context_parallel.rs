//! `examples/context_parallel.py` on three CPU ranks, as it is and with faults planted into its
//! text; and how it reads its arguments. Needs a Python with PyTorch; without one, the test says so
//! and passes, and with CI set it fails.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

/// The answers to command lines: exit code and words, or the attention that is used.
const USAGE: [&str; 9] = [
    "usage two hosts: ladder",
    "usage two hosts on CPUs: reference",
    "usage too many on a host: 2 8 ranks on this host: it has 2 GPUs",
    "usage without torchrun: 2 start it with torchrun --nproc-per-node RANKS",
    "usage chunks: 2 --seq: give multiples of 4, two chunks for each rank",
    "usage ladder on CPUs: 2 --attend ladder runs on GPUs only",
    "usage --heads 0: 2 --seq, --heads and --head-dim are at least 1",
    "usage --head-dim x: 2 argument --head-dim: invalid int value: 'x'",
    "usage --seq -4: 2 --seq, --heads and --head-dim are at least 1",
];

#[test]
fn the_ranks_agree_with_fp64_and_every_planted_fault_is_killed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = here.join("../.python/bin/python");
    let python = std::env::var_os("PYTHON").map_or(installed, Into::into);
    let run = |arguments: &[&Path]| Command::new(&python).args(arguments).output();
    let import = run(&["-c".as_ref(), "import torch".as_ref()]);
    if !import.is_ok_and(|output| output.status.success()) {
        let missing = "there is no Python with PyTorch: run scripts/python";
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        eprintln!("{missing}");
        return;
    }
    let example = here.join("../examples/context_parallel.py");
    let output = run(&[&here.join("tests/context_parallel.py"), &example]).unwrap();
    let answers = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{answers}{errors}");
    let codes: Vec<&str> = answers
        .lines()
        .filter_map(|line| line.strip_prefix("fault "))
        .collect();
    assert_eq!(codes[0], "none: 0", "{answers}{errors}");
    assert!(codes.len() > 1, "{answers}");
    for code in &codes[1..] {
        assert!(code.ends_with(": 1"), "{code}\n{answers}{errors}");
    }
    let usage = answers.lines().filter(|line| line.starts_with("usage "));
    assert_eq!(usage.collect::<Vec<_>>(), USAGE, "{errors}");
    // A Python without torch.
    let without_torch = "import runpy, sys; sys.modules['torch'] = None; sys.argv = sys.argv[1:]; \
                         runpy.run_path(sys.argv[0], run_name='__main__')";
    let refused = run(&["-c".as_ref(), without_torch.as_ref(), &example]).unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("has no PyTorch"), "{message}");
    assert!(message.contains("run scripts/python"), "{message}");
}
