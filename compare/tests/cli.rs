//! The program as its users run it: exit codes, messages, and what it leaves behind. On the emulator, small problems.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `compare` on the emulator with its record and report in this folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        command
            .args(["--backend", "emulated", "--out"])
            .arg(self.path("records"))
            .arg("--report");
        command
            .arg(self.path("REPORT.md"))
            .args(arguments)
            .stdin(Stdio::null())
            .env_remove("ATTENTION_DEVICE");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn record(&self) -> PathBuf {
        let mut records: Vec<PathBuf> = std::fs::read_dir(self.path("records"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn exits(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
}

#[track_caller]
fn says(output: &Output, expected: &str) {
    let text = stderr(output);
    assert!(text.contains(expected), "{expected}: {text}");
}

fn path_of(folder: &Folder, name: &str) -> String {
    folder.path(name).to_str().unwrap().to_string()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_quick_run_leaves_a_record_a_report_and_complete_json() {
    let folder = Folder::new();
    let output = folder.run(&[
        "--quick",
        "--json",
        folder.path("all.json").to_str().unwrap(),
    ]);
    exits(&output, 0);
    let report = std::fs::read_to_string(folder.path("REPORT.md")).unwrap();
    assert!(report.starts_with("# COMPARE\n\n**PASS: "), "{report}");
    let session = json(&folder.record().join("session.json"));
    assert_eq!(session["progress"]["status"], "complete");
    let document = json(&folder.path("all.json"));
    let rows = document["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(
            ["subject", "by", "session"]
                .iter()
                .all(|field| row[field].is_string()),
            "{row}"
        );
        assert!(row["p50"].is_null(), "the emulator is no timer: {row}");
    }
    let missing = document["missing"].as_array().unwrap();
    assert!(
        missing
            .iter()
            .any(|missing| missing["what"] == "latency" && missing["required"] == false),
        "{missing:?}"
    );
    assert_eq!(
        (&document["verdict"]["word"], &document["verdict"]["exit"]),
        (&"PASS".into(), &0.into())
    );
    // The page lies beside the record, and nowhere else.
    let files = ["session.json", "rows.jsonl", "COMPARE.md", "report.html"];
    assert!(
        files
            .iter()
            .all(|name| folder.record().join(name).is_file())
            && !folder.path("REPORT.html").exists()
    );
    let beside = std::fs::read_to_string(folder.record().join("COMPARE.md")).unwrap();
    assert_eq!(beside, report);
    let shown = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["show", "gates", "--run"])
        .arg(folder.record())
        .output();
    let shown = shown.unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.status.success() && text.contains("wmma-qk-32x64"),
        "{text}"
    );
}

#[test]
fn wrong_words_exit_with_2_name_the_nearest_and_overwrite_nothing() {
    let folder = Folder::new();
    std::fs::write(folder.path("REPORT.md"), "# COMPARE\nkept").unwrap();
    let report = path_of(&folder, "REPORT.md");
    for (arguments, expected) in [
        (&["--stages", "stage0-scaler"][..], "stage0-scalar"),
        (&["--shapes", "misson"], "mission"),
        (&["--input", "no/such/file.safetensors"], "cannot read it"),
        (
            &["--quick", "--json", &report],
            "--json and --report are the same file",
        ),
        (&["--unknown-flag"], "unexpected argument"),
        (
            &["--device", "sm_42"],
            "there is no device 'sm_42' (--device, ATTENTION_DEVICE); known: sm_80, sm_86",
        ),
        (
            &["--device", "sm_89", "--variants", "cpasync-32x256-k2"],
            "cpasync-32x256-k2: f16 d64 needs 185344 bytes",
        ),
    ] {
        let output = folder.run(arguments);
        exits(&output, 2);
        says(&output, expected);
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
    assert_eq!(
        std::fs::read_to_string(folder.path("REPORT.md")).unwrap(),
        "# COMPARE\nkept"
    );
    assert!(
        !folder.path("records").exists(),
        "nothing was run, so nothing is recorded"
    );
}

/// `compare` under a shell's `limit`, where a user is bound by it: root is not by `ulimit -u`.
fn limited(limit: &str, arguments: &[&str]) -> Output {
    let folder = Folder::new();
    let mut compare = PathBuf::from(env!("CARGO_BIN_EXE_compare"));
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("{limit} && exec \"$@\""), "bash"]);
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout == b"0\n" && limit.contains("-u") {
        shell.args(["setpriv", "--reuid=65534", "--clear-groups"]);
        // Where that user may read it.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path("."), open).unwrap();
        compare = folder.path("compare");
        std::fs::copy(env!("CARGO_BIN_EXE_compare"), &compare).unwrap();
    }
    shell.arg(compare).args(arguments).output().unwrap()
}

#[test]
fn what_the_machine_limits_is_the_machines_fault_and_doctor_says_so() {
    for (limit, says) in [
        (
            "ulimit -v 300000",
            "address space: ulimit -v: 0.3 GB are available",
        ),
        (
            "ulimit -v 64000000",
            "address space: ulimit -v: 65.5 GB are available",
        ),
        (
            "ulimit -d 300000",
            "address space: ulimit -d: 0.3 GB are available",
        ),
        ("ulimit -u 1", "threads: the system does not start them"),
    ] {
        let output = limited(limit, &["--quick", "--backend", "emulated"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{limit}: {said}");
        assert!(
            said.contains(says) && said.contains(". Raise "),
            "{limit}: {said}"
        );
        let output = limited(limit, &["doctor"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{limit}: {said}");
        assert!(said.contains(says), "{limit}: {said}");
    }
}

#[test]
fn doctor_names_a_variable_that_names_no_toolkit() {
    let doctor = Command::new(env!("CARGO_BIN_EXE_compare"))
        .arg("doctor")
        .envs([
            ("CUDA_HOME", "/gone"),
            ("CUDA_PATH", "/lost"),
            ("NVCC", "/none"),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "CUDA_HOME: /gone/bin/nvcc does not exist. Unset it",
        "CUDA_PATH: /lost/bin/nvcc does not exist. Unset it",
        "nvcc: NVCC names /none, which is not a working nvcc",
    ] {
        assert!(said.contains(says), "{says} is not in {said}");
    }
}

/// An L4 gives a block 99 KB: stage 3's default does not fit.
#[test]
fn a_smaller_device_runs_its_own_defaults_and_nothing_of_it_is_kept() {
    let folder = Folder::new();
    let mut command = folder.command(&["--quick", "--stages", "stage3-wmma-pv", "--json", "-"]);
    let output = command.env("ATTENTION_DEVICE", "sm_89").output().unwrap();
    exits(&output, 0);
    let summary = stderr(&output);
    assert!(
        summary.contains("PASS: 1 variant is green")
            && summary.contains("(limited to what sm_89 offers)"),
        "{summary}"
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["session"]["device"]["capability"], 89);
    let cases = std::fs::read_to_string(folder.record().join("rows.jsonl")).unwrap();
    let cases: Vec<&str> = cases.lines().filter(|row| row.contains(":0\",")).collect();
    assert!(
        cases.len() >= 8 && cases.iter().all(|row| row.contains("\"C1\":\"pass\"")),
        "the default takes every problem: {cases:#?}"
    );
    let report = std::fs::read_to_string(folder.path("REPORT.md")).unwrap();
    assert!(report.contains("limited to what sm_89 offers"), "{report}");
    assert!(
        report.contains("stage3-wmma-pv/wmma-pv-32x128-k2: f16 d64 needs 105472 bytes"),
        "{report}"
    );
    let record = folder.record();
    assert!(
        record.to_string_lossy().ends_with("-as-sm_89"),
        "{record:?}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    let output = command.arg("accept").arg(record).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    says(&output, "is limited to what sm_89 offers and is not kept");
}

#[test]
fn places_that_cannot_be_written_are_errors() {
    let folder = Folder::new();
    std::fs::write(folder.path("file"), "").unwrap();
    let inside = folder.path("file/report.md");
    for flag in ["--json", "--save-outputs"] {
        let output = folder.run(&[
            "--stages",
            "0",
            "--shapes",
            "1x1x17x64",
            flag,
            inside.to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(2), "{flag}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("cannot write"),
            "{flag}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn without_a_gpu_the_committed_report_stays_as_it_is() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| {
        let path = folder.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // A workspace.
    write("Cargo.toml", "");
    write("compare/src/stages.rs", "");
    write("COMPARE.md", "# COMPARE\nof a GPU");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    let output = command
        .args(["--stages", "0", "--shapes", "1x1x17x64", "--masks", "full"])
        .current_dir(folder.0.path())
        .env_remove("CARGO_MANIFEST_DIR")
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    exits(&output, 0);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let says = "/COMPARE.md; without a GPU the workspace's COMPARE.md stays as it is";
    assert!(text.contains(says), "{text}");
    let kept = std::fs::read_to_string(folder.path("COMPARE.md")).unwrap();
    assert_eq!(kept, "# COMPARE\nof a GPU");
    let mut runs = std::fs::read_dir(folder.path("target/compare")).unwrap();
    let run = runs.next().unwrap().unwrap().path();
    let own = std::fs::read_to_string(run.join("COMPARE.md")).unwrap();
    assert!(
        own.starts_with("# COMPARE\n") && run.join("report.html").is_file(),
        "{own}"
    );
}

#[test]
fn outside_the_workspace_nothing_is_written_unasked() {
    let folder = Folder::new();
    let place = path_of(&folder, "REPORT.md");
    for (arguments, expected) in [
        (&["--quick"][..], "--out DIR"),
        (&["--quick", "--report", &place], "--out DIR"),
        (&["render"], "a checkout of the workspace"),
        (&["accept", "run"], "--into DIR"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        command
            .args(arguments)
            .current_dir(folder.0.path())
            .env_remove("CARGO_MANIFEST_DIR");
        let output = command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
        exits(&output, 2);
        says(&output, "not inside the workspace");
        says(&output, expected);
    }
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0);
}

#[test]
fn what_is_rendered_is_checked_against_the_committed_tables() {
    let folder = Folder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["compare/src", "results/nvidia-h200", "results/build"] {
        std::fs::create_dir_all(folder.path(name)).unwrap();
    }
    for name in ["Cargo.toml", "compare/src/stages.rs"] {
        std::fs::write(folder.path(name), "").unwrap();
    }
    std::fs::write(folder.path("COMPARE.md"), "# COMPARE\nkept").unwrap();
    let render = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        command.arg("render").args(flags);
        let output = command.current_dir(folder.path("")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        (output.status.code(), text)
    };
    let expect = |flags: &[&str], code: i32, says: &[&str]| {
        let (found, text) = render(flags);
        assert_eq!(found, Some(code), "{text}");
        says.iter()
            .for_each(|words| assert!(text.contains(words), "{words}: {text}"));
    };
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    expect(&["--check"], 2, &["there is no table of a GPU in "]);
    for file in ["rows.jsonl", "sessions.jsonl"] {
        for gpu in ["nvidia-h200", "build"] {
            let name = format!("results/{gpu}/{file}");
            std::fs::copy(root.join(&name), folder.path(&name)).unwrap();
        }
    }
    std::fs::write(folder.path("README.md"), "no ladder").unwrap();
    expect(&[], 2, &["README.md: it has no line '<!-- generated: "]);
    assert_eq!(read("COMPARE.md"), "# COMPARE\nkept");

    std::fs::copy(root.join("README.md"), folder.path("README.md")).unwrap();
    expect(
        &["--check"],
        1,
        &[
            "out of date with results/: ",
            "COMPARE.md",
            "run `compare render`",
        ],
    );
    assert_eq!(read("COMPARE.md"), "# COMPARE\nkept");
    expect(&[], 0, &["written: "]);
    expect(&["--check"], 0, &["up to date with results/"]);
    assert!(read("COMPARE.md").contains("## The ladder"));

    // A table that was merged by hand.
    let rows = read("results/nvidia-h200/rows.jsonl");
    let mut lines: Vec<&str> = rows.lines().collect();
    lines.swap(0, 1);
    std::fs::write(
        folder.path("results/nvidia-h200/rows.jsonl"),
        lines.join("\n"),
    )
    .unwrap();
    expect(&["--check"], 1, &["results/nvidia-h200/rows.jsonl"]);
    expect(&[], 0, &["written: "]);
    assert_eq!(read("results/nvidia-h200/rows.jsonl"), rows);
}

#[test]
fn a_gpu_that_is_not_there_is_a_usage_error_only_when_asked_for() {
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["--backend", "cuda", "--quick"])
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    exits(&output, 2);
    says(&output, "--backend cuda: ");
    let folder = Folder::new();
    let output = folder.run(&["--stages", "5", "--regret", "40"]);
    exits(&output, 3);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with("NO DATA: there is no GPU to time random problems"),
        "{text}"
    );
    assert!(!folder.path("records").exists());
}

/// Waits until the run that `child` is has a record with so many cases, and returns how many it has then.
fn recorded(child: &mut Child, folder: &Folder, at_least: u64) -> u64 {
    // A hang would end here; how fast the machine is does not matter.
    let deadline = Instant::now() + Duration::from_secs(900);
    loop {
        assert!(
            child.try_wait().unwrap().is_none(),
            "the run ended before it could be interrupted"
        );
        assert!(
            Instant::now() < deadline,
            "no partial record in a quarter of an hour"
        );
        std::thread::sleep(Duration::from_millis(100));
        let Ok(mut records) = std::fs::read_dir(folder.path("records")) else {
            continue;
        };
        let Some(Ok(record)) = records.next() else {
            continue;
        };
        let Ok(bytes) = std::fs::read(record.path().join("session.json")) else {
            continue;
        };
        let session: serde_json::Value =
            serde_json::from_slice(&bytes).expect("a record is whole at every moment");
        let finished = session["progress"]["finished"].as_u64().unwrap_or(0);
        if finished >= at_least {
            return finished;
        }
    }
}

/// Ends a run as Ctrl-C does, which all that a shell runs in the background ignores; it exits as interrupted.
fn interrupt(mut child: Child) {
    let interrupted = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(interrupted.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupt_before_the_first_case_leaves_a_record() {
    let folder = Folder::new();
    let mut child = folder
        .command(&["--full", "--stages", "stage0-scalar", "--quiet"])
        .spawn()
        .unwrap();
    // It is written before the self-test begins.
    recorded(&mut child, &folder, 0);
    interrupt(child);
    assert!(folder.record().join("session.json").is_file());
}

#[test]
fn an_interrupt_keeps_the_old_report_and_what_was_finished() {
    let folder = Folder::new();
    std::fs::write(folder.path("REPORT.md"), "# COMPARE\nkept").unwrap();
    // Long enough to be interrupted: tier T2, which takes minutes after its first case.
    let mut child = folder
        .command(&["--full", "--stages", "stage0-scalar", "--quiet"])
        .spawn()
        .unwrap();
    let finished = recorded(&mut child, &folder, 1);
    interrupt(child);
    assert_eq!(
        std::fs::read_to_string(folder.path("REPORT.md")).unwrap(),
        "# COMPARE\nkept"
    );
    let path = folder.record();
    let rows = std::fs::read_to_string(path.join("rows.jsonl")).unwrap();
    assert!(rows.lines().count() as u64 >= finished);
    // What it has is whole; in a folder of runs it is none.
    let compare = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_compare"))
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output),
        )
    };
    let [path, records, kept] = [path, folder.path("records"), folder.path("kept")]
        .map(|path| path.to_str().unwrap().to_string());
    for (arguments, code, says) in [
        (
            ["accept", &path, "--into", &kept].as_slice(),
            2,
            "was interrupted after",
        ),
        (&["diff", &path, &path], 0, "SAME"),
        (&["diff", &records, &path], 3, "has neither runs nor tables"),
    ] {
        let (found, text) = compare(arguments);
        assert!(
            found == Some(code) && text.contains(says),
            "{arguments:?}: {found:?} {text}"
        );
    }
}

const Q: [usize; 4] = [1, 4, 19, 64];
const KV: [usize; 4] = [1, 2, 23, 64];

/// Q, K and V.
fn tensors() -> [Vec<half::f16>; 3] {
    [(Q, 0.37), (KV, 0.71), (KV, 1.3)].map(|(extents, step): (_, f32)| {
        let value = |i: usize| half::f16::from_f32((i as f32 * step).sin());
        (0..extents.iter().product()).map(value).collect()
    })
}

/// With the output that is to be judged, if there is one.
fn save(path: &Path, tensors: &[Vec<half::f16>; 3], out: Option<&[u8]>) {
    let bytes = |of: &Vec<half::f16>| of.iter().flat_map(|x| x.to_le_bytes()).collect();
    let [q, k, v]: [Vec<u8>; 3] = tensors.each_ref().map(bytes);
    let mut all = vec![("q", Q, &*q), ("k", KV, &*k), ("v", KV, &*v)];
    all.extend(out.map(|out| ("out", Q, out)));
    let views = all.into_iter().map(|(name, extents, bytes)| {
        let dtype = safetensors::Dtype::F16;
        let view = safetensors::tensor::TensorView::new(dtype, extents.to_vec(), bytes);
        (name, view.unwrap())
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn real_tensors_run_through_the_same_gates_and_outputs_can_be_saved() {
    let folder = Folder::new();
    let write = |name: &str, out: Option<&[u8]>| {
        let path = folder.path(name);
        save(&path, &tensors(), out);
        path
    };
    let variant = ["--variants", "wmma-qk-32x64", "--masks", "full", "--input"];
    let saved = folder.path("outputs");
    let input = write("in.safetensors", None);
    let mut arguments = variant.to_vec();
    arguments.extend([
        input.to_str().unwrap(),
        "--save-outputs",
        saved.to_str().unwrap(),
    ]);
    let output = folder.run(&arguments);
    exits(&output, 0);

    // The saved output is right, so it passes as the file's own `out`; a wrong one is called wrong.
    let file = std::fs::read_dir(&saved)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let bytes = std::fs::read(file).unwrap();
    let right = safetensors::SafeTensors::deserialize(&bytes)
        .unwrap()
        .tensor("out")
        .unwrap()
        .data()
        .to_vec();
    let zeros = vec![0; right.len()];
    for (out, code) in [(&right, 0), (&zeros, 1)] {
        let input = write("with_out.safetensors", Some(out));
        let mut arguments = variant.to_vec();
        arguments.push(input.to_str().unwrap());
        let output = folder.run(&arguments);
        exits(&output, code);
    }
}

/// Row 12 of 19 sees 17 of 23 keys: the mask is bottom-right. What is dumped is computed anew here.
#[test]
fn a_row_of_real_tensors_is_explained_under_a_causal_mask() {
    let folder = Folder::new();
    let all = tensors();
    let [queries, keys, _] = &all;
    let [input, dumped] = [
        folder.path("in.safetensors"),
        folder.path("row.safetensors"),
    ];
    save(&input, &all, None);
    let explain = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        command.args(["explain", "--stage", "0", "--mask", "causal", "--input"]);
        command
            .arg(&input)
            .arg("--dump")
            .arg(&dumped)
            .args(arguments);
        command.env("CUDA_VISIBLE_DEVICES", "").output().unwrap()
    };
    let output = explain(&["--row", "0,3,12"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(
        text.contains("f16 causal") && text.contains("row 0,3,12"),
        "{text}"
    );
    assert!(text.contains("Nothing leaves what f32 allows"), "{text}");

    let bytes = std::fs::read(&dumped).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let of = |what: &str| -> Vec<u8> {
        let name = tensors
            .names()
            .into_iter()
            .find(|name| name.ends_with(what));
        tensors.tensor(name.unwrap()).unwrap().data().to_vec()
    };
    let numbers = of(".keys");
    let numbers = numbers
        .chunks_exact(8)
        .map(|b| i64::from_le_bytes(b.try_into().unwrap()));
    let scores = of(".S");
    let scores = scores
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let mut seen = 0;
    for (key, score) in numbers.zip(scores).filter(|(key, _)| *key >= 0) {
        let key = key as usize;
        if key > 12 + (23 - 19) {
            assert_eq!(score, f32::NEG_INFINITY, "key {key}: after the mask");
            continue;
        }
        let row = |of: &[half::f16], at: usize| of[at * 64..][..64].to_vec();
        let (a, b) = (row(queries, 3 * 19 + 12), row(keys, 23 + key));
        let product: f32 = a.iter().zip(&b).map(|(a, b)| a.to_f32() * b.to_f32()).sum();
        assert!(
            (product - score).abs() < 1e-3,
            "key {key}: {score}, {product} before the scale"
        );
        seen += 1;
    }
    assert_eq!(seen, 17);

    for (row, says) in [
        ("0,4,0", "query heads 0 to 3"),
        ("0,0,19", "query rows 0 to 18"),
    ] {
        let output = explain(&["--row", row]);
        assert_eq!(output.status.code(), Some(2), "{row}");
        assert!(stderr(&output).contains(says), "{row}: {}", stderr(&output));
    }
}

#[test]
fn selftest_kills_every_planted_fault_and_every_mutant() {
    let arguments = ["selftest", "--stages", "stage0-scalar"];
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("33 of 33 planted faults killed"), "{text}");
    assert!(
        words.contains("13 of 14 mutants (kernels without one synchronisation site) killed, 1 listed as redundant, 0 surviving"),
        "{text}"
    );
}

#[test]
fn a_record_is_completed_on_its_gpu_alone() {
    let folder = Folder::new();
    let nowhere = folder.path("nowhere");
    let complete = |command: &str, record: &Path| {
        let arguments = [command, "--run", record.to_str().unwrap()];
        Command::new(env!("CARGO_BIN_EXE_compare"))
            .args(arguments)
            .env("CUDA_VISIBLE_DEVICES", "")
            .output()
            .unwrap()
    };
    assert_eq!(
        folder
            .run(&["--quick", "--stages", "stage0-scalar"])
            .status
            .code(),
        Some(0)
    );
    let rows = || std::fs::read(folder.record().join("rows.jsonl")).unwrap();
    let before = rows();
    for command in ["profile", "sanitize"] {
        let output = complete(command, &nowhere);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{command}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("--run DIR"),
            "{command}: {}",
            stderr(&output)
        );
        let output = complete(command, &folder.record());
        assert_eq!(
            output.status.code(),
            Some(3),
            "{command}: {}",
            stderr(&output)
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.starts_with("NO DATA: there is no GPU to "),
            "{command}: {text}"
        );
        assert_eq!(rows(), before, "{command}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in [&["show"][..], &["show", "--stage", "0"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        let output = command.args(arguments).stdout(writer).output().unwrap();
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}
