//! A stage on a GPU, from the program's flags to its record: `cargo test --workspace real_gpu`.
//! Where there is none, the test says so and passes.
#![forbid(unsafe_code)]

use common::device::cuda::{CudaDevice, CudaError};
use std::io::Write;
use std::process::Command;

#[test]
fn a_stage_is_green_and_timed_on_a_real_gpu() {
    if let Err(
        error @ (CudaError::NoDriver | CudaError::NoDevice { .. } | CudaError::DriverTooOld { .. }),
    ) = CudaDevice::open(0)
    {
        // Past libtest, which shows no output of a test that passes.
        let mut terminal = std::io::stderr();
        writeln!(terminal, "no GPU for compare: {error}").unwrap();
        return;
    }
    let judged = rows_of_gpu(&["--quick"]);
    assert!(
        judged.iter().any(|row| row.contains("\"B1\":\"pass\"")),
        "{judged:#?}"
    );
    let timed = rows_of_gpu(&[
        "--shapes", "mission", "--dtypes", "f16", "--masks", "full", "--iters", "40",
    ]);
    assert!(
        timed.iter().any(|row| row.contains("\"p50\":")),
        "{timed:#?}"
    );
}

/// Runs stage 0's default variant and returns the rows of the GPU.
fn rows_of_gpu(flags: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["--backend", "cuda", "--stages", "stage0-scalar"])
        .args(["--variants", "wmma-qk-32x64"])
        .args(flags)
        .arg("--out")
        .arg(folder.path().join("records"))
        .env_remove("ATTENTION_DEVICE")
        .output()
        .unwrap();
    // 3: what such a run leaves out is not measured.
    assert!(
        matches!(output.status.code(), Some(0 | 3)),
        "{:?}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let record = std::fs::read_dir(folder.path().join("records"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let rows = std::fs::read_to_string(record.path().join("rows.jsonl")).unwrap();
    rows.lines()
        .filter(|row| row.contains("\"by\":\"gpu\""))
        .map(String::from)
        .collect()
}
