//! The program as its users run it: exit codes, messages, and what it leaves behind. On the emulator, small problems.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const COMPARE: &str = env!("CARGO_BIN_EXE_compare");

/// `compare` without a GPU.
fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(COMPARE);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env("CUDA_VISIBLE_DEVICES", "")
        .env_remove("ATTENTION_DEVICE");
    command
}

/// What it prints, on both streams, if it exits with this code and prints these words.
#[track_caller]
fn expect(mut command: Command, code: i32, words: &[&str]) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
    let lacks = words.iter().find(|words| !text.contains(**words));
    assert_eq!(lacks, None, "{command:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// A folder whose path has a space, as anybody's TMPDIR may.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("of compare ").tempdir();
        Self(folder.unwrap())
    }

    /// A workspace without tables.
    fn workspace() -> Self {
        let folder = Self::new();
        folder.write("Cargo.toml", "");
        folder.write("compare/src/stages.rs", "");
        folder.write("COMPARE.md", KEPT);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// `compare` here, and not in the workspace of which cargo knows.
    fn here(&self, arguments: &[&str]) -> Command {
        let mut command = compare(arguments);
        command
            .current_dir(self.0.path())
            .env_remove("CARGO_MANIFEST_DIR");
        command
    }

    /// A run with its folder in this one.
    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = compare(&["--backend", "emulated"]);
        command.arg("--out").arg(self.path("runs")).args(arguments);
        command
    }

    /// The only run below `runs`, beside what is hidden.
    fn only(&self, runs: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.path(runs)).unwrap();
        let mut runs = Vec::from_iter(entries.map(|entry| entry.unwrap().path()));
        runs.retain(|path| {
            !path
                .file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".")
        });
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }
}

const KEPT: &str = "# COMPARE\nkept";

#[test]
fn a_quick_run_leaves_rows_and_a_report_in_its_folder_and_nothing_elsewhere() {
    let folder = Folder::workspace();
    let says = ["PASS: ", "/COMPARE.md"];
    expect(folder.here(&["--quick", "--stages", "0"]), 0, &says);
    let run = folder.only("target/compare");
    let read = |name: &str| std::fs::read_to_string(run.join(name)).unwrap();
    let session: serde_json::Value = serde_json::from_str(&read("session.json")).unwrap();
    assert_eq!(session["progress"]["status"], "complete");
    assert!(read("COMPARE.md").starts_with("# COMPARE\n\n**PASS: "));
    assert_eq!(folder.read("COMPARE.md"), KEPT);
    let rows = read("rows.jsonl");
    assert!(
        rows.contains("\"C1\":\"pass\"") && !rows.contains("\"p50\""),
        "no timer: {rows}"
    );
    let run = run.to_str().unwrap();
    let shown = compare(&["show", "gates", "--run", run]);
    expect(shown, 0, &["wmma-qk-32x64"]);
    // On its GPU alone it is completed.
    let nowhere = folder.text("nowhere");
    for command in ["profile", "sanitize"] {
        for (run, code, says) in [
            (&*nowhere, 2, "--run DIR"),
            (run, 3, "NO DATA: there is no GPU to "),
        ] {
            expect(compare(&[command, "--run", run]), code, &[says]);
        }
        assert_eq!(read("rows.jsonl"), rows, "{command}");
    }
}

#[test]
fn wrong_words_exit_with_2_name_the_nearest_and_run_nothing() {
    let folder = Folder::new();
    folder.write("file", "");
    let inside = folder.text("file/runs");
    for (arguments, says) in [
        (&["--stages", "stage0-scaler"][..], "stage0-scalar"),
        (&["--shapes", "misson"], "mission"),
        (&["--input", "no/such/file.safetensors"], "cannot read it"),
        (&["--unknown-flag"], "unexpected argument"),
        (&["--quick", "--out", &inside], "cannot write"),
        (
            &["--device", "sm_42"],
            "there is no device 'sm_42' (--device, ATTENTION_DEVICE); known: sm_80, sm_86",
        ),
        (
            &["--device", "sm_89", "--variants", "cpasync-32x256-k2"],
            "cpasync-32x256-k2: f16 d64 needs 185344 bytes",
        ),
        (&["--backend", "cuda", "--quick"], "--backend cuda: "),
    ] {
        let mut command = compare(arguments);
        if !arguments.contains(&"--out") {
            command.arg("--out").arg(folder.path("runs"));
        }
        expect(command, 2, &[says]);
    }
    let regret = folder.run(&["--stages", "5", "--regret", "40"]);
    let says = "NO DATA: there is no GPU to time random problems";
    expect(regret, 3, &[says]);
    assert!(!folder.path("runs").exists());
}

#[test]
fn what_the_machine_limits_is_the_machines_fault() {
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
        let folder = Folder::new();
        let limited = |arguments: &[&str]| {
            let mut program = PathBuf::from(COMPARE);
            let mut shell = Command::new("bash");
            shell.args(["-c", &format!("{limit} && exec \"$@\""), "bash"]);
            // A user is bound by it: root is not by `ulimit -u`.
            let id = Command::new("id").arg("-u").output().unwrap();
            if id.stdout == b"0\n" && limit.contains("-u") {
                shell.args(["setpriv", "--reuid=65534", "--clear-groups"]);
                // Where that user may read it.
                let open = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(folder.path("."), open).unwrap();
                program = folder.path("compare");
                std::fs::copy(COMPARE, &program).unwrap();
            }
            shell.arg(program).args(arguments);
            shell
        };
        let run = limited(&["--quick", "--backend", "emulated"]);
        expect(run, 2, &[says, ". Raise "]);
        expect(limited(&["doctor"]), 3, &[says]);
    }
    let mut explain = compare(&["explain", "--stage=0"]);
    explain.arg("--problem=65535x65535x1x64 f16 full normal:0");
    let says = "memory for 65535x65535x1x64 f16 full: ";
    expect(explain, 2, &[says]);
}

#[test]
fn doctor_names_a_variable_that_names_no_toolkit() {
    let mut doctor = compare(&["doctor"]);
    doctor.envs([
        ("CUDA_HOME", "/gone"),
        ("CUDA_PATH", "/lost"),
        ("NVCC", "/none"),
    ]);
    let says = [
        "CUDA_HOME: /gone/bin/nvcc does not exist. Unset it",
        "CUDA_PATH: /lost/bin/nvcc does not exist. Unset it",
        "nvcc: NVCC names /none, which is not a working nvcc",
    ];
    expect(doctor, 3, &says);
}

/// An L4 gives a block 99 KB: stage 3's default does not fit.
#[test]
fn a_smaller_device_runs_its_own_defaults_and_nothing_of_it_is_kept() {
    let folder = Folder::new();
    let mut command = folder.run(&["--quick", "--stages", "stage3-wmma-pv"]);
    command.env("ATTENTION_DEVICE", "sm_89");
    let limited = "limited to what sm_89 offers";
    expect(command, 0, &["PASS: 1 variant passes every gate", limited]);
    let run = folder.only("runs");
    let read = |name: &str| std::fs::read_to_string(run.join(name)).unwrap();
    let session: serde_json::Value = serde_json::from_str(&read("session.json")).unwrap();
    assert_eq!(session["device"]["capability"], 89);
    let rows = read("rows.jsonl");
    let cases: Vec<&str> = rows.lines().filter(|row| row.contains(":0\",")).collect();
    assert!(
        cases.len() >= 8 && cases.iter().all(|row| row.contains("\"C1\":\"pass\"")),
        "the default takes every problem: {cases:#?}"
    );
    let report = read("COMPARE.md");
    let refused = "stage3-wmma-pv/wmma-pv-32x128-k2: f16 d64 needs 105472 bytes";
    assert!(
        report.contains(limited) && report.contains(refused),
        "{report}"
    );
    let accept = compare(&["accept", run.to_str().unwrap()]);
    let says = "is limited to what sm_89 offers and is not kept";
    expect(accept, 2, &[says]);
}

#[test]
fn outside_the_workspace_nothing_is_written_unasked() {
    let folder = Folder::new();
    for (arguments, says) in [
        (&["--quick"][..], "; go there, or give --out DIR"),
        (&["render"], "; go there, or clone it"),
        (&["accept", "run"], "; go there, or give --into DIR"),
    ] {
        expect(
            folder.here(arguments),
            2,
            &["not inside the workspace", says],
        );
    }
    // What it advises is taken: the run is looked for.
    let advised = folder.here(&["accept", "run", "--into", "tables"]);
    expect(
        advised,
        2,
        &["the run cannot be accepted", "run is not a run"],
    );
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0);
}

#[test]
fn what_is_rendered_is_checked_against_the_committed_tables() {
    let folder = Folder::workspace();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let copy = |name: &str| {
        let to = folder.path(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root.join(name), to).unwrap();
    };
    let render = |flags: &[&str], code: i32, says: &[&str]| {
        expect(folder.here(&[&["render"], flags].concat()), code, says);
    };
    std::fs::create_dir_all(folder.path("results")).unwrap();
    render(&["--check"], 2, &["there is no table of a GPU in "]);
    for file in [
        "rows.jsonl",
        "draws.jsonl",
        "sessions.jsonl",
        "digests.jsonl",
        "sums.txt",
    ] {
        copy(&format!("results/nvidia-h200/{file}"));
        copy(&format!("results/build/{file}"));
    }
    let choice = "attention-ladder/choice/nvidia-h200.json";
    copy(choice);
    folder.write("README.md", "no ladder");
    render(&[], 2, &["README.md: it has no line '<!-- generated: "]);
    assert_eq!(folder.read("COMPARE.md"), KEPT);

    copy("README.md");
    let stale = [
        "out of date with results/: ",
        "COMPARE.md",
        "run `compare render`",
    ];
    render(&["--check"], 1, &stale);
    assert_eq!(folder.read("COMPARE.md"), KEPT);
    render(&[], 0, &["written: "]);
    render(&["--check"], 0, &["up to date with results/"]);
    let rendered = folder.read("COMPARE.md");
    assert!(rendered.contains("## The ladder"));

    // About another GPU it is printed or written elsewhere.
    let h200 = "NVIDIA H200";
    render(&["--gpu", "h200"], 0, &["## The ladder", h200]);
    let elsewhere = folder.text("elsewhere.md");
    render(&["--gpu", "h200", "--out", &elsewhere], 0, &["written: "]);
    assert!(folder.read("elsewhere.md").contains(h200));
    render(&["--gpu", "b200"], 2, &["there are nvidia-h200"]);
    render(&["--gpu", "h200", "--check"], 2, &["cannot be used with"]);
    assert_eq!(folder.read("COMPARE.md"), rendered);

    // A table that was merged by hand.
    let table = "results/nvidia-h200/rows.jsonl";
    let rows = folder.read(table);
    let mut lines: Vec<&str> = rows.lines().collect();
    lines.swap(0, 1);
    folder.write(table, &lines.join("\n"));
    render(&["--check"], 1, &[table]);
    render(&[], 0, &["written: "]);
    assert_eq!(folder.read(table), rows);

    // Figures that were edited by hand: nothing is rendered from them.
    let edit = |file: &str, from: &str, to: &str, says: &[&str]| {
        let before = folder.read(file);
        let page = folder.read("COMPARE.md");
        assert!(before.contains(from), "{file}");
        folder.write(file, &before.replacen(from, to, 1));
        render(&["--check"], 2, says);
        render(&[], 2, says);
        assert_eq!(folder.read("COMPARE.md"), page);
        folder.write(file, &before);
    };
    let line = "rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '";
    edit(table, "\":1", "\":2", &[line]);
    let says = "nvidia-h200.json is not what `compare accept` fitted to the table";
    edit(choice, "\"us\":[", "\"us\":[1", &[says]);
}

/// Waits until the run that `child` is has a folder with so many cases, and returns how many it has then.
fn recorded(child: &mut Child, folder: &Folder, at_least: u64) -> u64 {
    // A hang would end here; how fast the machine is does not matter.
    let deadline = Instant::now() + Duration::from_secs(900);
    loop {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "it ended before it could be interrupted");
        assert!(Instant::now() < deadline, "no run in a quarter of an hour");
        std::thread::sleep(Duration::from_millis(100));
        let session = || {
            let run = std::fs::read_dir(folder.path("runs")).ok()?.next()?;
            std::fs::read(run.unwrap().path().join("session.json")).ok()
        };
        let Some(bytes) = session() else {
            continue;
        };
        let session: serde_json::Value =
            serde_json::from_slice(&bytes).expect("a run is whole at every moment");
        let finished = session["progress"]["finished"].as_u64().unwrap_or(0);
        if finished >= at_least {
            return finished;
        }
    }
}

/// A first interrupt comes before the first case: a folder is written before it begins.
#[test]
fn an_interrupt_leaves_what_was_finished() {
    for at_least in [0, 1] {
        let folder = Folder::new();
        // Long enough to be interrupted: minutes.
        let seeds = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15";
        let problems = ["--shapes", "mission", "--seeds", seeds];
        let mut run = folder.run(&[&["--stages", "stage0-scalar"], &problems[..]].concat());
        let mut child = run.spawn().unwrap();
        let finished = recorded(&mut child, &folder, at_least);
        // As Ctrl-C does, which all that a shell runs in the background ignores.
        let id = child.id().to_string();
        let kill = Command::new("kill").args(["-TERM", &id]).status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let run = folder.only("runs");
        assert!(run.join("session.json").is_file() && !run.join("COMPARE.md").exists());
        if at_least == 0 {
            continue;
        }
        let rows = std::fs::read_to_string(run.join("rows.jsonl")).unwrap();
        assert!(rows.lines().count() as u64 >= finished);
        // What it has is whole; in a folder of runs it is none.
        let run = run.to_str().unwrap();
        let (runs, kept) = (folder.text("runs"), folder.text("kept"));
        for (arguments, code, says) in [
            (
                &["accept", run, "--into", &kept][..],
                2,
                "was interrupted after",
            ),
            (&["diff", run, run], 0, "SAME"),
            (&["diff", &runs, run], 3, "has neither runs nor tables"),
        ] {
            expect(compare(arguments), code, &[says]);
        }
    }
}

#[test]
fn random_cases_are_the_same_for_a_seed_and_each_runs_alone() {
    let few = &[
        "fuzz",
        "--backend",
        "emulated",
        "--variants",
        "wmma-qk-32x64,scalar-32x64",
        "--cases",
        "6",
        "--seed",
        "3",
    ];
    let says = ["PASS: nothing was found: 6 cases of 2 variants", "seed 3"];
    let first = expect(compare(few), 0, &says);
    let mut alone = compare(few);
    alone.env("RAYON_NUM_THREADS", "1");
    let tallies = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("| stage0-scalar/"));
        lines.map(String::from).collect::<Vec<_>>()
    };
    let again = expect(alone, 0, &says);
    assert_eq!(
        (tallies(&first), tallies(&first).len()),
        (tallies(&again), 2)
    );
    for (case, code, says) in [
        (
            "stage0-scalar/wmma-qk-32x64 2x4:2x3:17x64 f16 causal normal:7 scale=0.3 q=bshd/s48@16 o=shbd",
            0,
            "PASS: it passes every gate",
        ),
        (
            "stage10-fp8/fp8-scores-64x128 1x1x1x64 f16 full normal:0",
            3,
            "NO DATA: stage10-fp8/fp8-scores-64x128 1x1x1x64 f16 full normal:0: Unsupported: ",
        ),
        (
            "stage10-fp8/fp8-score-64x128 1x1x1x64 f16 full normal:0",
            2,
            "did you mean 'fp8-scores-64x128'?",
        ),
        (
            "stage10-fp8/fp8-scores-64x128 1x1x1x64",
            2,
            "is not a case: expected SHAPE DTYPE",
        ),
        (
            "stage0-scalar/scalar-32x64 1x1x1x64 f16 full normal:0 q=bhsd/s8",
            2,
            "multiples of 16",
        ),
        (
            "stage0-scalar/scalar-32x64 65535x65535x1x64 f16 full normal:0",
            2,
            "memory for 65535x65535x1x64",
        ),
    ] {
        let mut command = compare(&["fuzz", "--backend", "emulated", "--case"]);
        command.arg(case);
        expect(command, code, &[says]);
    }
    for (arguments, code, says) in [
        (&["--cases", "0"][..], 2, "give a whole number, 1 or more"),
        (&["--stages", "stage0-scaler"], 2, "stage0-scalar"),
        (&["--backend", "cuda"], 2, "--backend cuda: "),
        (
            &[
                "--backend",
                "emulated",
                "--stages",
                "10",
                "--dtypes",
                "f16",
                "--cases",
                "6",
            ],
            3,
            "no case: stage10-fp8/fp8-scores-256x64: Unsupported in 2 cases: ",
        ),
    ] {
        expect(compare(&[&["fuzz"], arguments].concat()), code, &[says]);
    }
}

#[test]
fn an_interrupted_search_prints_what_it_had() {
    let mut command = compare(&[
        "fuzz",
        "--backend",
        "emulated",
        "--stages",
        "0",
        "--seconds",
        "3600",
        "--seed",
        "1",
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let begins = said.next().unwrap().unwrap();
    assert_eq!(begins, "fuzz: seed 1, in the emulator");
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &id]).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("INTERRUPTED: nothing was found") && text.contains("seed 1"),
        "{text}"
    );
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

/// The product of a query row of a head with a key that its head shares.
fn score([q, k, _]: &[Vec<half::f16>; 3], head: usize, row: usize, key: usize) -> f32 {
    let (q, k) = (
        &q[(head * 19 + row) * 64..][..64],
        &k[(head / 2 * 23 + key) * 64..][..64],
    );
    q.iter().zip(k).map(|(a, b)| a.to_f32() * b.to_f32()).sum()
}

/// Attention under a full mask.
fn attention(tensors: &[Vec<half::f16>; 3]) -> Vec<half::f16> {
    let mut out = Vec::new();
    for (head, row) in (0..4).flat_map(|head| (0..19).map(move |row| (head, row))) {
        let weights = (0..23).map(|key| (score(tensors, head, row, key) / 8.0).exp());
        let weights = Vec::from_iter(weights);
        for column in 0..64 {
            let v = |key: usize| tensors[2][(head / 2 * 23 + key) * 64 + column].to_f32();
            let sum: f32 = (0..23).map(|key| weights[key] * v(key)).sum();
            out.push(half::f16::from_f32(sum / weights.iter().sum::<f32>()));
        }
    }
    out
}

/// With the output that is to be judged, if there is one.
fn save(path: &Path, tensors: &[Vec<half::f16>; 3], out: Option<&[half::f16]>) {
    let bytes = |of: &[half::f16]| Vec::from_iter(of.iter().flat_map(|x| x.to_le_bytes()));
    let [q, k, v] = tensors.each_ref().map(|of| bytes(of));
    let mut all = vec![("q", Q, q), ("k", KV, k), ("v", KV, v)];
    all.extend(out.map(|out| ("out", Q, bytes(out))));
    let views = all.iter().map(|(name, extents, bytes)| {
        let dtype = safetensors::Dtype::F16;
        let view = safetensors::tensor::TensorView::new(dtype, extents.to_vec(), bytes);
        (*name, view.unwrap())
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn real_tensors_run_through_the_same_gates_and_so_does_their_output() {
    let (folder, all) = (Folder::new(), tensors());
    let right = attention(&all);
    let zeros = vec![half::f16::ZERO; right.len()];
    for (out, code) in [(right, 0), (zeros, 1)] {
        let input = folder.path("in.safetensors");
        save(&input, &all, Some(&out));
        let mut command = folder.run(&["--variants", "wmma-qk-32x64", "--masks", "full"]);
        command.arg("--input").arg(input);
        let text = expect(command, code, &[]);
        assert!(!text.contains("claims"), "of no table: {text}");
        // The gates were tested, and no synchronisation, which takes a minute.
        let run = folder.only("runs");
        let rows = std::fs::read_to_string(run.join("rows.jsonl")).unwrap();
        let tested = rows
            .lines()
            .filter(|row| row.contains("\"by\":\"self-test\""));
        let tested = Vec::from_iter(tested);
        assert_eq!(
            tested.len(),
            34,
            "33 faults and the correct model: {tested:#?}"
        );
        assert!(
            tested
                .iter()
                .all(|row| row.contains("\"subject\":\"self-test\""))
        );
        std::fs::remove_dir_all(run).unwrap();
    }
}

/// What a run tests of itself is tested once by one program, and again where that is asked for.
#[test]
fn a_second_run_is_told_by_the_first_that_the_gates_can_fail() {
    let folder = Folder::workspace();
    let flags: Vec<&str> =
        "--backend emulated --stages 2 --shapes 1x1x5x64 --dtypes f16 --masks full"
            .split(' ')
            .collect();
    let known = "self-test: passed before by this program";
    let sites = |text: &str| {
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("self-test 2 of 2") && line.ends_with("stage2-simd-pv"))
    };
    let rows = || {
        let run = folder.only("target/compare");
        let rows = std::fs::read_to_string(run.join("rows.jsonl")).unwrap();
        std::fs::remove_dir_all(run).unwrap();
        let tested = rows
            .lines()
            .filter(|row| row.contains("\"by\":\"self-test\""));
        tested.count()
    };
    let first = expect(folder.here(&flags), 0, &[]);
    assert!(sites(&first) && !first.contains(known), "{first}");
    let tested = rows();
    assert!(tested > 34, "{tested}");
    let second = expect(folder.here(&flags), 0, &[known]);
    assert!(!sites(&second), "{second}");
    assert_eq!(rows(), tested);
    let again = expect(folder.here(&[&flags[..], &["--selftest"]].concat()), 0, &[]);
    assert!(sites(&again) && !again.contains(known), "{again}");
}

#[test]
fn a_row_of_real_tensors_is_explained_under_a_causal_mask() {
    let folder = Folder::new();
    let input = folder.text("in.safetensors");
    save(Path::new(&input), &tensors(), None);
    let explain = |row: &str, code: i32, says: &[&str]| {
        let stage = ["explain", "--stage", "0", "--mask", "causal"];
        let flags = ["--row", row, "--input", &input];
        expect(compare(&[&stage[..], &flags].concat()), code, says);
    };
    let says = ["f16 causal", "row 0,3,12", "Nothing leaves what f32 allows"];
    explain("0,3,12", 0, &says);
    explain("0,4,0", 2, &["query heads 0 to 3"]);
    explain("0,0,19", 2, &["query rows 0 to 18"]);
}

#[test]
fn selftest_kills_every_planted_fault_and_every_mutant() {
    let text = expect(compare(&["selftest", "--stages", "stage0-scalar"]), 0, &[]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "33 of 33 planted faults killed",
        "13 of 14 mutants (kernels without one synchronisation site) killed, 1 listed as redundant, 0 surviving",
    ] {
        assert!(words.contains(says), "{text}");
    }
}

#[test]
fn what_cannot_be_written_is_named_or_left_out_and_no_panic() {
    let folder = Folder::new();
    let full = || std::fs::File::create("/dev/full").unwrap();
    let mut shown = compare(&["show"]);
    let shown = shown.stdout(full()).output().unwrap();
    let said = String::from_utf8_lossy(&shown.stderr);
    let says = "cannot write to standard output: No space left on device";
    assert!(
        shown.status.code() == Some(2) && said.contains(says),
        "{said}"
    );
    let mut refused = compare(&["accept", "no/such/run"]);
    assert_eq!(refused.stderr(full()).status().unwrap().code(), Some(2));
    let mut limited = Command::new("bash");
    let runs = folder.text("runs");
    limited.args(["-c", "ulimit -f 0 && exec \"$@\"", "bash", COMPARE]);
    limited.args(["--quick", "--backend", "emulated", "--out", &runs]);
    expect(limited, 2, &["cannot write ", "File too large"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in [&["show"][..], &["show", "--stage", "0"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = compare(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), &*said),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}
