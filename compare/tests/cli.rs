//! The program as its users run it: exit codes, messages, and what it leaves behind. On the
//! emulator, small problems.

use half::f16;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const COMPARE: &str = env!("CARGO_BIN_EXE_compare");

/// Returns `compare` without a GPU.
fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(COMPARE);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env("CUDA_VISIBLE_DEVICES", "")
        .env_remove("ATTENTION_DEVICE");
    command
}

/// Runs a command, which must exit with this code and print these words, and returns what it prints
/// on both streams.
#[track_caller]
fn expect(mut command: Command, code: i32, words: &[&str]) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
    for expected in words {
        assert!(
            text.contains(expected),
            "{command:?} lacks {expected:?}: {text}"
        );
    }
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

    /// Makes a workspace without tables.
    fn workspace() -> Self {
        let folder = Self::new();
        folder.write("Cargo.toml", "");
        folder.write("compare/stages/src/lib.rs", "");
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

    /// Returns `compare` in this folder, and not in the workspace of which cargo knows.
    fn here(&self, arguments: &[&str]) -> Command {
        let mut command = compare(arguments);
        command
            .current_dir(self.0.path())
            .env_remove("CARGO_MANIFEST_DIR");
        command
    }

    /// Returns `compare` on the emulator, with the folder of its runs in this one.
    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = compare(&["--backend", "emulated"]);
        command.arg("--out").arg(self.path("runs")).args(arguments);
        command
    }

    /// Returns the only run below `folder`, beside what is hidden.
    fn only_run(&self, folder: &str) -> Run {
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(self.path(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if !name.as_encoded_bytes().starts_with(b".") {
                runs.push(path);
            }
        }
        assert_eq!(runs.len(), 1, "{runs:?}");
        Run(runs.remove(0))
    }
}

/// The folder of a run.
struct Run(PathBuf);

impl Run {
    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn session(&self) -> serde_json::Value {
        serde_json::from_str(&self.read("session.json")).unwrap()
    }

    /// Returns the rows of the self-test.
    fn self_test_rows(&self) -> Vec<String> {
        let rows = self.read("rows.jsonl");
        rows.lines()
            .filter(|row| row.contains("\"by\":\"self-test\""))
            .map(String::from)
            .collect()
    }

    fn remove(self) {
        std::fs::remove_dir_all(self.0).unwrap();
    }
}

const KEPT: &str = "# COMPARE\nkept";

#[test]
fn a_quick_run_leaves_rows_and_a_report_in_its_folder_and_nothing_elsewhere() {
    let folder = Folder::workspace();
    let command = folder.here(&["--quick", "--stages", "0"]);
    expect(command, 0, &["PASS: ", "/COMPARE.md"]);
    let run = folder.only_run("target/compare");
    assert_eq!(run.session()["progress"]["status"], "complete");
    let report = run.read("COMPARE.md");
    assert!(report.starts_with("# COMPARE\n\n**PASS: "), "{report}");
    assert_eq!(folder.read("COMPARE.md"), KEPT);
    let rows = run.read("rows.jsonl");
    assert!(rows.contains("\"C1\":\"pass\""), "{rows}");
    assert!(!rows.contains("\"p50\""), "no timer: {rows}");
    let show = compare(&["show", "gates", "--run", run.text()]);
    expect(show, 0, &["wmma-qk-32x64"]);
    // On its GPU alone it is completed.
    let nowhere = folder.text("nowhere");
    for tool in ["profile", "sanitize"] {
        expect(compare(&[tool, "--run", &nowhere]), 2, &["--run DIR"]);
        let on_run = compare(&[tool, "--run", run.text()]);
        expect(on_run, 3, &["not measured: there is no GPU to "]);
        assert_eq!(run.read("rows.jsonl"), rows, "{tool}");
    }
}

/// Fails unless a run is refused with these words before anything of it is written.
#[track_caller]
fn expect_no_run(arguments: &[&str], code: i32, words: &str) {
    let folder = Folder::new();
    let mut command = compare(arguments);
    command.arg("--out").arg(folder.path("runs"));
    expect(command, code, &[words]);
    assert!(!folder.path("runs").exists());
}

#[test]
fn a_misspelt_stage_is_refused_with_the_nearest() {
    expect_no_run(&["--stages", "stage0-scaler"], 2, "stage0-scalar");
}

#[test]
fn a_misspelt_shape_is_refused_with_the_nearest() {
    expect_no_run(&["--shapes", "misson"], 2, "mission");
}

#[test]
fn an_input_that_is_not_there_is_refused() {
    let input = ["--input", "no/such/file.safetensors"];
    expect_no_run(&input, 2, "cannot read it");
}

#[test]
fn an_unknown_flag_is_refused() {
    expect_no_run(&["--unknown-flag"], 2, "unexpected argument");
}

#[test]
fn a_folder_of_runs_that_cannot_be_written_is_refused() {
    let folder = Folder::new();
    folder.write("file", "");
    let inside = folder.text("file/runs");
    let command = compare(&["--quick", "--out", &inside]);
    expect(command, 2, &["cannot write"]);
}

#[test]
fn an_unknown_device_is_refused_with_those_that_are_known() {
    expect_no_run(
        &["--device", "sm_42"],
        2,
        "there is no device 'sm_42' (--device, ATTENTION_DEVICE); known: sm_80, sm_86",
    );
}

#[test]
fn a_variant_that_does_not_fit_the_device_is_refused() {
    expect_no_run(
        &["--device", "sm_89", "--variants", "cpasync-32x256-k2"],
        2,
        "cpasync-32x256-k2: f16 d64 needs 185344 bytes",
    );
}

#[test]
fn a_run_on_a_gpu_that_is_not_there_is_refused() {
    expect_no_run(&["--backend", "cuda", "--quick"], 2, "--backend cuda: ");
}

#[test]
fn random_problems_without_a_gpu_are_no_data() {
    expect_no_run(
        &[
            "--backend",
            "emulated",
            "--stages",
            "5",
            "--random-problems",
            "40",
        ],
        3,
        "not measured: there is no GPU to time random problems",
    );
}

/// Returns `compare` in a shell that sets a limit first.
fn limited(limit: &str, folder: &Folder, arguments: &[&str]) -> Command {
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
        // Not by this process: see `write_program`.
        let copied = Command::new("cp").arg(COMPARE).arg(&program).status();
        assert!(copied.unwrap().success());
    }
    shell.arg(program).args(arguments);
    shell
}

/// Fails unless a run and `doctor` name the limit that is too low for a run.
#[track_caller]
fn expect_limit(limit: &str, words: &str) {
    let folder = Folder::new();
    let run = limited(limit, &folder, &["--quick", "--backend", "emulated"]);
    expect(run, 2, &[words, ". Raise "]);
    expect(limited(limit, &folder, &["doctor"]), 3, &[words]);
}

#[test]
fn a_limit_of_address_space_is_named() {
    expect_limit(
        "ulimit -v 300000",
        "address space: ulimit -v: 0.3 GB are available",
    );
    expect_limit(
        "ulimit -v 64000000",
        "address space: ulimit -v: 65.5 GB are available",
    );
}

#[test]
fn a_limit_of_data_is_named() {
    expect_limit(
        "ulimit -d 300000",
        "address space: ulimit -d: 0.3 GB are available",
    );
}

#[test]
fn a_limit_of_threads_is_named() {
    expect_limit("ulimit -u 1", "threads: the system does not start them");
}

#[test]
fn a_case_that_no_memory_holds_is_refused() {
    let explain = compare(&[
        "explain",
        "--stage=0",
        "--problem=65535x65535x1x64 f16 full normal:0",
    ]);
    expect(explain, 2, &["memory for 65535x65535x1x64 f16 full: "]);
}

#[test]
fn doctor_names_a_variable_that_names_no_toolkit() {
    let mut doctor = compare(&["doctor"]);
    doctor.envs([
        ("CUDA_HOME", "/gone"),
        ("CUDA_PATH", "/lost"),
        ("NVCC", "/none"),
    ]);
    let lines = [
        "CUDA_HOME: /gone/bin/nvcc does not exist. Unset it",
        "CUDA_PATH: /lost/bin/nvcc does not exist. Unset it",
        "nvcc: NVCC names /none, which is not a working nvcc",
    ];
    expect(doctor, 3, &lines);
}

/// An L4 gives a block 99 KB: stage 3's default does not fit.
#[test]
fn a_smaller_device_runs_its_own_defaults_and_nothing_of_it_is_kept() {
    let folder = Folder::new();
    let mut command = folder.run(&["--quick", "--stages", "stage3-wmma-pv"]);
    command.env("ATTENTION_DEVICE", "sm_89");
    let limit = "limited to what sm_89 offers";
    expect(command, 0, &["PASS: 1 variant passes every gate", limit]);
    let run = folder.only_run("runs");
    assert_eq!(run.session()["device"]["capability"], 89);
    let rows = run.read("rows.jsonl");
    let cases: Vec<&str> = rows.lines().filter(|row| row.contains(":0\",")).collect();
    assert!(
        cases.len() >= 8 && cases.iter().all(|row| row.contains("\"C1\":\"pass\"")),
        "the default takes every problem: {cases:#?}"
    );
    let report = run.read("COMPARE.md");
    let refusal = "stage3-wmma-pv/wmma-pv-32x128-k2: f16 d64 needs 105472 bytes";
    assert!(report.contains(limit), "{report}");
    assert!(report.contains(refusal), "{report}");
    let accept = compare(&["accept", run.text()]);
    expect(
        accept,
        2,
        &["is limited to what sm_89 offers and is not kept"],
    );
}

#[test]
fn outside_the_workspace_nothing_is_written_unasked() {
    let folder = Folder::new();
    let outside = "not inside the workspace";
    let run = folder.here(&["--quick"]);
    expect(run, 2, &[outside, "; go there, or give --out DIR"]);
    let render = folder.here(&["render"]);
    expect(render, 2, &[outside, "; go there, or clone it"]);
    let accept = folder.here(&["accept", "run"]);
    expect(accept, 2, &[outside, "; go there, or give --results DIR"]);
    // The advice helps: the run is looked for.
    let advised = folder.here(&["accept", "run", "--results", "tables"]);
    expect(
        advised,
        2,
        &["the run cannot be accepted", "run is not a run"],
    );
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0);
}

/// A workspace in which pages are rendered from one GPU's committed table.
struct RenderedWorkspace(Folder);

const CHOICE: &str = "attention-ladder/choice/nvidia-h200.json";
const TABLE: &str = "results/nvidia-h200/rows.jsonl";
const H200: &str = "NVIDIA H200";

impl RenderedWorkspace {
    /// Copies tables and choice; there is no README.md yet.
    fn with_tables() -> Self {
        let workspace = Self(Folder::workspace());
        for file in [
            "rows.jsonl",
            "draws.jsonl",
            "sessions.jsonl",
            "digests.jsonl",
            "sums.txt",
        ] {
            workspace.copy(&format!("results/nvidia-h200/{file}"));
            workspace.copy(&format!("results/build/{file}"));
        }
        workspace.copy(CHOICE);
        workspace
    }

    /// Renders every page.
    fn new() -> Self {
        let workspace = Self::with_tables();
        workspace.copy("README.md");
        workspace.render(&[], 0, &["written: "]);
        workspace
    }

    /// Copies a file of the repository.
    fn copy(&self, name: &str) {
        let target = self.0.path(name);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        std::fs::copy(root.join(name), target).unwrap();
    }

    #[track_caller]
    fn render(&self, flags: &[&str], code: i32, words: &[&str]) {
        let arguments = [&["render"], flags].concat();
        expect(self.0.here(&arguments), code, words);
    }

    fn page(&self) -> String {
        self.0.read("COMPARE.md")
    }

    /// Fails unless nothing is rendered from a file that was edited.
    #[track_caller]
    fn refuses_edit(&self, file: &str, old: &str, new: &str, words: &str) {
        let before = self.0.read(file);
        let page = self.page();
        assert!(before.contains(old), "{file}");
        self.0.write(file, &before.replacen(old, new, 1));
        self.render(&["--check"], 2, &[words]);
        self.render(&[], 2, &[words]);
        assert_eq!(self.page(), page);
        self.0.write(file, &before);
    }
}

#[test]
fn pages_need_a_table_and_a_place_to_stand() {
    let workspace = RenderedWorkspace(Folder::workspace());
    std::fs::create_dir_all(workspace.0.path("results")).unwrap();
    workspace.render(&["--check"], 2, &["there is no table of a GPU in "]);

    let unmarked = RenderedWorkspace::with_tables();
    unmarked.0.write("README.md", "no ladder");
    unmarked.render(&[], 2, &["README.md: it has no line '<!-- generated: "]);
    assert_eq!(unmarked.page(), KEPT);
}

#[test]
fn what_is_rendered_is_checked_against_the_committed_tables() {
    let workspace = RenderedWorkspace::with_tables();
    workspace.copy("README.md");
    let stale = [
        "out of date with results/: ",
        "COMPARE.md",
        "run `compare render`",
    ];
    workspace.render(&["--check"], 1, &stale);
    assert_eq!(workspace.page(), KEPT);
    workspace.render(&[], 0, &["written: "]);
    workspace.render(&["--check"], 0, &["up to date with results/"]);
    assert!(workspace.page().contains("## The ladder"));
}

#[test]
fn a_page_about_another_gpu_is_printed_or_written_elsewhere() {
    let workspace = RenderedWorkspace::new();
    let page = workspace.page();
    let gpu = ["--gpu", "h200"];
    workspace.render(&gpu, 0, &["## The ladder", H200]);
    let elsewhere = workspace.0.text("elsewhere.md");
    workspace.render(&["--gpu", "h200", "--out", &elsewhere], 0, &["written: "]);
    assert!(workspace.0.read("elsewhere.md").contains(H200));
    workspace.render(&["--gpu", "b200"], 2, &["there are nvidia-h200"]);
    workspace.render(&["--gpu", "h200", "--check"], 2, &["cannot be used with"]);
    assert_eq!(workspace.page(), page);
}

#[test]
fn a_table_that_was_merged_by_hand_is_written_anew() {
    let workspace = RenderedWorkspace::new();
    let rows = workspace.0.read(TABLE);
    let mut lines: Vec<&str> = rows.lines().collect();
    lines.swap(0, 1);
    workspace.0.write(TABLE, &lines.join("\n"));
    workspace.render(&["--check"], 1, &[TABLE]);
    workspace.render(&[], 0, &["written: "]);
    assert_eq!(workspace.0.read(TABLE), rows);
}

#[test]
fn nothing_is_rendered_from_figures_that_were_edited_by_hand() {
    let workspace = RenderedWorkspace::new();
    workspace.refuses_edit(
        TABLE,
        "\":1",
        "\":2",
        "rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '",
    );
    workspace.refuses_edit(
        CHOICE,
        "\"us\":[",
        "\"us\":[1",
        "nvidia-h200.json is not what `compare accept` fitted to the table",
    );
}

/// Waits until the run that `child` is has a folder with so many cases, and returns how many it has
/// then.
fn wait_for_cases(child: &mut Child, folder: &Folder, least: u64) -> u64 {
    // A hang would end here; how fast the machine is does not matter.
    let deadline = Instant::now() + Duration::from_secs(900);
    loop {
        let status = child.try_wait().unwrap();
        assert_eq!(status, None, "it ended before it could be interrupted");
        assert!(Instant::now() < deadline, "no run in a quarter of an hour");
        std::thread::sleep(Duration::from_millis(100));
        let Some(bytes) = first_session(folder) else {
            continue;
        };
        let session: serde_json::Value =
            serde_json::from_slice(&bytes).expect("a run is whole at every moment");
        let finished = session["progress"]["finished"].as_u64().unwrap_or(0);
        if finished >= least {
            return finished;
        }
    }
}

/// Reads the session of the first run, once there is one.
fn first_session(folder: &Folder) -> Option<Vec<u8>> {
    let run = std::fs::read_dir(folder.path("runs")).ok()?.next()?;
    std::fs::read(run.unwrap().path().join("session.json")).ok()
}

/// Interrupts a process as Ctrl-C does, which all that a shell runs in the background ignores.
fn interrupt(child: &Child) {
    let id = child.id().to_string();
    let status = Command::new("kill").args(["-TERM", &id]).status();
    assert!(status.unwrap().success());
}

/// Starts a run of minutes, and interrupts it once it has so many cases. Returns how many it had.
fn interrupted_run(folder: &Folder, least: u64) -> u64 {
    let mut child = folder
        .run(&["--stages", "stage0-scalar"])
        .args(["--shapes", "mission"])
        .args(["--seeds", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"])
        .spawn()
        .unwrap();
    let finished = wait_for_cases(&mut child, folder, least);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    finished
}

/// A folder is written before the first case begins.
#[test]
fn an_interrupt_before_the_first_case_leaves_a_session() {
    let folder = Folder::new();
    interrupted_run(&folder, 0);
    let run = folder.only_run("runs");
    assert!(run.0.join("session.json").is_file());
    assert!(!run.0.join("COMPARE.md").exists());
}

#[test]
fn an_interrupt_leaves_what_was_finished() {
    let folder = Folder::new();
    let finished = interrupted_run(&folder, 1);
    let run = folder.only_run("runs");
    assert!(run.0.join("session.json").is_file());
    assert!(!run.0.join("COMPARE.md").exists());
    let rows = run.read("rows.jsonl");
    assert!(rows.lines().count() as u64 >= finished);
    // Its rows are whole; in a folder of runs it is none.
    let kept = folder.text("kept");
    let accept = compare(&["accept", run.text(), "--results", &kept]);
    expect(accept, 2, &["was interrupted after"]);
    let with_itself = compare(&["diff", run.text(), run.text()]);
    expect(with_itself, 0, &["SAME"]);
    let runs = folder.text("runs");
    let with_folder = compare(&["diff", &runs, run.text()]);
    expect(with_folder, 3, &["has neither runs nor tables"]);
}

/// Returns the lines of a search that count cases by variant.
fn tallies(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with("| stage0-scalar/"))
        .map(String::from)
        .collect()
}

/// Returns a search for six cases of two variants.
fn six_cases() -> Command {
    let mut search = compare(&["fuzz", "--backend", "emulated"]);
    search
        .args(["--variants", "wmma-qk-32x64,scalar-32x64"])
        .args(["--cases", "6"])
        .args(["--seed", "3"]);
    search
}

#[test]
fn random_cases_are_the_same_for_a_seed() {
    let words = ["PASS: nothing was found: 6 cases of 2 variants", "seed 3"];
    let first = expect(six_cases(), 0, &words);
    let mut on_one_thread = six_cases();
    on_one_thread.env("RAYON_NUM_THREADS", "1");
    let second = expect(on_one_thread, 0, &words);
    assert_eq!(tallies(&first).len(), 2, "{first}");
    assert_eq!(tallies(&first), tallies(&second));
}

/// Runs one case of a search, which must exit with this code and print these words.
#[track_caller]
fn expect_case(case: &str, code: i32, words: &str) {
    let fuzz = compare(&["fuzz", "--backend", "emulated", "--case", case]);
    expect(fuzz, code, &[words]);
}

#[test]
fn a_random_case_runs_alone() {
    expect_case(
        "stage0-scalar/wmma-qk-32x64 2x4:2x3:17x64 f16 causal normal:7 scale=0.3 \
         q=bshd/s48@16 o=shbd",
        0,
        "PASS: it passes every gate",
    );
}

#[test]
fn a_case_that_the_variant_does_not_support_is_no_data() {
    expect_case(
        "stage10-fp8/fp8-scores-64x128 1x1x1x64 f16 full normal:0",
        3,
        "NOT MEASURED: stage10-fp8/fp8-scores-64x128 1x1x1x64 f16 full normal:0: Unsupported: ",
    );
}

#[test]
fn a_case_of_a_misspelt_variant_is_refused_with_the_nearest() {
    expect_case(
        "stage10-fp8/fp8-score-64x128 1x1x1x64 f16 full normal:0",
        2,
        "did you mean 'fp8-scores-64x128'?",
    );
}

#[test]
fn a_case_without_a_type_is_refused() {
    expect_case(
        "stage10-fp8/fp8-scores-64x128 1x1x1x64",
        2,
        "is not a case: expected SHAPE DTYPE",
    );
}

#[test]
fn a_case_with_a_stride_that_no_kernel_takes_is_refused() {
    expect_case(
        "stage0-scalar/scalar-32x64 1x1x1x64 f16 full normal:0 q=bhsd/s8",
        2,
        "multiples of 16",
    );
}

#[test]
fn a_random_case_that_no_memory_holds_is_refused() {
    expect_case(
        "stage0-scalar/scalar-32x64 65535x65535x1x64 f16 full normal:0",
        2,
        "memory for 65535x65535x1x64",
    );
}

#[test]
fn a_search_for_no_case_is_refused() {
    let search = compare(&["fuzz", "--cases", "0"]);
    expect(search, 2, &["give a whole number, 1 or more"]);
}

#[test]
fn a_search_in_a_misspelt_stage_is_refused_with_the_nearest() {
    let search = compare(&["fuzz", "--stages", "stage0-scaler"]);
    expect(search, 2, &["stage0-scalar"]);
}

#[test]
fn a_search_on_a_gpu_that_is_not_there_is_refused() {
    let search = compare(&["fuzz", "--backend", "cuda"]);
    expect(search, 2, &["--backend cuda: "]);
}

#[test]
fn a_search_without_a_case_that_is_supported_is_no_data() {
    let mut search = compare(&["fuzz", "--backend", "emulated", "--cases", "6"]);
    search.args(["--stages", "10", "--dtypes", "f16"]);
    let reason = "no case: stage10-fp8/fp8-scores-256x64: Unsupported in 2 cases: ";
    expect(search, 3, &[reason]);
}

#[test]
fn an_interrupted_search_prints_what_it_had() {
    let mut child = compare(&["fuzz", "--backend", "emulated"])
        .args(["--stages", "0"])
        .args(["--seconds", "3600"])
        .args(["--seed", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let first_line = errors.next().unwrap().unwrap();
    assert_eq!(first_line, "fuzz: seed 1, in the emulator");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("INTERRUPTED: nothing was found"), "{text}");
    assert!(text.contains("seed 1"), "{text}");
}

const Q: [usize; 4] = [1, 4, 19, 64];
const KV: [usize; 4] = [1, 2, 23, 64];

/// The elements of Q, K and V.
struct Tensors {
    q: Vec<f16>,
    k: Vec<f16>,
    v: Vec<f16>,
}

impl Tensors {
    fn new() -> Self {
        Self {
            q: waves(Q, 0.37),
            k: waves(KV, 0.71),
            v: waves(KV, 1.3),
        }
    }

    /// Returns the product of a query row of a head with a key that its head shares.
    fn score(&self, head: usize, row: usize, key: usize) -> f32 {
        let query_row = &self.q[(head * 19 + row) * 64..][..64];
        let key_row = &self.k[(head / 2 * 23 + key) * 64..][..64];
        let products = query_row.iter().zip(key_row);
        products.map(|(a, b)| a.to_f32() * b.to_f32()).sum()
    }

    fn value(&self, head: usize, key: usize, column: usize) -> f32 {
        self.v[(head / 2 * 23 + key) * 64 + column].to_f32()
    }

    /// Returns attention under a full mask.
    fn attention(&self) -> Vec<f16> {
        let mut out = Vec::new();
        for head in 0..4 {
            for row in 0..19 {
                let weights: Vec<f32> = (0..23)
                    .map(|key| (self.score(head, row, key) / 8.0).exp())
                    .collect();
                let weight_sum: f32 = weights.iter().sum();
                for column in 0..64 {
                    let mut sum = 0.0;
                    for (key, weight) in weights.iter().enumerate() {
                        sum += weight * self.value(head, key, column);
                    }
                    out.push(f16::from_f32(sum / weight_sum));
                }
            }
        }
        out
    }

    /// Writes the tensors, with the output that is to be judged, if there is one.
    fn save(&self, path: &Path, out: Option<&[f16]>) {
        let mut tensors = vec![
            ("q", Q, bytes(&self.q)),
            ("k", KV, bytes(&self.k)),
            ("v", KV, bytes(&self.v)),
        ];
        if let Some(output) = out {
            tensors.push(("out", Q, bytes(output)));
        }
        let views = tensors.iter().map(|(name, extents, bytes)| {
            let dtype = safetensors::Dtype::F16;
            let view = safetensors::tensor::TensorView::new(dtype, extents.to_vec(), bytes);
            (*name, view.unwrap())
        });
        std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
    }
}

/// Returns elements that follow a sine.
fn waves(extents: [usize; 4], step: f32) -> Vec<f16> {
    (0..extents.iter().product())
        .map(|index: usize| f16::from_f32((index as f32 * step).sin()))
        .collect()
}

fn bytes(values: &[f16]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Judges an output of these tensors, with this exit code.
#[track_caller]
fn expect_judged(folder: &Folder, tensors: &Tensors, out: &[f16], code: i32) {
    let input = folder.path("in.safetensors");
    tensors.save(&input, Some(out));
    let mut command = folder.run(&["--variants", "wmma-qk-32x64", "--masks", "full"]);
    command.arg("--input").arg(&input);
    let text = expect(command, code, &[]);
    assert!(!text.contains("claims"), "of no table: {text}");
    // The gates were tested, and no synchronisation, which takes a minute.
    let run = folder.only_run("runs");
    let rows = run.self_test_rows();
    assert_eq!(rows.len(), 34, "33 faults and the correct model: {rows:#?}");
    for row in rows {
        assert!(row.contains("\"subject\":\"self-test\""), "{row}");
    }
    run.remove();
}

#[test]
fn real_tensors_run_through_the_same_gates_and_so_does_their_output() {
    let folder = Folder::new();
    let tensors = Tensors::new();
    let right = tensors.attention();
    expect_judged(&folder, &tensors, &right, 0);
    let zeros = vec![f16::ZERO; right.len()];
    expect_judged(&folder, &tensors, &zeros, 1);
}

/// Returns whether the self-test removed the synchronisation of stage 2.
fn tests_sites(text: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with("self-test 2 of 2") && line.ends_with("stage2-simd-pv"))
}

/// Returns a run of five rows by one stage.
fn small_run(folder: &Folder) -> Command {
    let mut command = folder.here(&["--backend", "emulated", "--stages", "2"]);
    command
        .args(["--shapes", "1x1x5x64"])
        .args(["--dtypes", "f16"])
        .args(["--masks", "full"]);
    command
}

/// A program is tested once, and again where that is asked for.
#[test]
fn a_second_run_is_told_by_the_first_that_the_gates_can_fail() {
    let folder = Folder::workspace();
    let passed_before = "self-test: passed before by this program";
    let first = expect(small_run(&folder), 0, &[]);
    assert!(tests_sites(&first), "{first}");
    assert!(!first.contains(passed_before), "{first}");
    let first_run = folder.only_run("target/compare");
    let row_count = first_run.self_test_rows().len();
    first_run.remove();
    assert!(row_count > 34, "{row_count}");

    let second = expect(small_run(&folder), 0, &[passed_before]);
    assert!(!tests_sites(&second), "{second}");
    let second_run = folder.only_run("target/compare");
    assert_eq!(second_run.self_test_rows().len(), row_count);
    second_run.remove();

    let mut with_selftest = small_run(&folder);
    with_selftest.arg("--selftest");
    let third = expect(with_selftest, 0, &[]);
    assert!(tests_sites(&third), "{third}");
    assert!(!third.contains(passed_before), "{third}");
}

#[test]
fn a_row_of_a_window_is_explained() {
    let case = "1x2x300x64+window=20:* f16 causal normal:0";
    let explain = compare(&["explain", "--stage", "14", "--problem", case]);
    expect(
        explain,
        0,
        &[
            "window=20:*",
            "Nothing leaves what f32 with P in f16 allows",
        ],
    );
}

#[test]
fn a_query_that_its_sequence_has_not_is_refused() {
    let case = "4x2:1x150x64+packed=even:0:1 f16 full normal:0";
    let mut explain = compare(&["explain", "--stage", "14", "--problem", case]);
    explain.args(["--row", "1,0,7"]);
    expect(explain, 2, &["sequence 1 has 0 queries and no row 1,0,7"]);
}

/// Explains a row of real tensors, with this exit code and these words.
#[track_caller]
fn expect_explained(row: &str, code: i32, words: &[&str]) {
    let folder = Folder::new();
    let input = folder.path("in.safetensors");
    Tensors::new().save(&input, None);
    let mut explain = compare(&["explain", "--stage", "0", "--mask", "causal"]);
    explain.args(["--row", row]).arg("--input").arg(&input);
    expect(explain, code, words);
}

#[test]
fn a_row_of_real_tensors_is_explained_under_a_causal_mask() {
    expect_explained(
        "0,3,12",
        0,
        &["f16 causal", "row 0,3,12", "Nothing leaves what f32 allows"],
    );
}

#[test]
fn a_row_outside_of_the_tensors_is_refused() {
    expect_explained("0,4,0", 2, &["query heads 0 to 3"]);
    expect_explained("0,0,19", 2, &["query rows 0 to 18"]);
}

#[test]
fn selftest_kills_every_planted_fault_and_every_mutant() {
    let text = expect(compare(&["selftest", "--stages", "stage0-scalar"]), 0, &[]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "33 of 33 planted faults killed",
        "13 of 14 mutants (kernels without one synchronisation site) killed, \
         1 listed as redundant, 0 surviving",
    ] {
        assert!(words.contains(expected), "{text}");
    }
}

/// Opens a device that has no space.
fn full_device() -> std::fs::File {
    std::fs::File::create("/dev/full").unwrap()
}

#[test]
fn what_cannot_be_written_is_named_or_left_out_and_no_panic() {
    let folder = Folder::new();
    let show = compare(&["show"]).stdout(full_device()).output().unwrap();
    let errors = String::from_utf8_lossy(&show.stderr);
    assert_eq!(show.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("cannot write to standard output: No space left on device"),
        "{errors}"
    );
    let mut refused = compare(&["accept", "no/such/run"]);
    let status = refused.stderr(full_device()).status().unwrap();
    assert_eq!(status.code(), Some(2));
    let runs = folder.text("runs");
    let run = limited(
        "ulimit -f 0",
        &folder,
        &["--quick", "--backend", "emulated", "--out", &runs],
    );
    expect(run, 2, &["cannot write ", "File too large"]);
}

/// Fails unless a command ends well whose output nobody reads.
#[track_caller]
fn expect_unread(arguments: &[&str]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = compare(arguments).stdout(writer).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    expect_unread(&["show"]);
    expect_unread(&["show", "--stage", "0"]);
}
