//! The repository's own rules, each as a test that says what to do when it fails. They hold for any
//! number of stages.
#![forbid(unsafe_code)]

#[path = "../src/git.rs"]
mod git;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The system that dependencies are counted for: CI builds for it. Others add crates of their own.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The number of crates from outside that `compare` may link. Procedural macros are not linked and
/// not counted. Four are build scripts' own (cc, sha2 and what they bring): one set of features for
/// runs and tests links them. Three wait for Ctrl-C, which must lose nothing (signal-hook and what
/// it brings): without them it took unsafe code of our own. Five read TOML (toml and what it
/// brings): launch files are written by hand, and errors in them need a whole parser. Four draw
/// pictures (plotters, its SVG and num-traits): axes and scales would be code of our own.
const DEPENDENCY_BUDGET: usize = 69;

/// The number of crates that the Python module may link: those of `common` without the emulator,
/// and pyo3 with what it brings.
const WHEEL_BUDGET: usize = 50;

/// The number of lines that a kernel may have: it is read in one sitting.
const KERNEL_LINES: usize = 320;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("compare/ lies in the root")
        .to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns `path` as people write it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// Returns the folders `stage0-…` of a checkout, sorted.
fn stages(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for item in std::fs::read_dir(root).unwrap() {
        let entry = item.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("stage") && entry.path().is_dir() {
            names.push(name);
        }
    }
    names.sort();
    assert!(!names.is_empty(), "no stage folder beside compare/");
    names
}

/// Returns the paths of all stages' kernels.
fn kernels() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for stage in stages(&root()) {
        paths.push(root().join(stage).join("kernel.cu"));
    }
    paths
}

/// Returns all files below `folder`, sorted.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns the files below `folder` that are Rust.
fn rust_files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = files_below(folder);
    files.retain(|path| has_extension(path, "rs"));
    files
}

fn has_extension(path: &Path, expected: &str) -> bool {
    path.extension()
        .is_some_and(|extension| extension == expected)
}

/// Fails if anything is wrong, with what to do.
#[track_caller]
fn expect_none<T: Debug>(wrong: impl IntoIterator<Item = T>, advice: &str) {
    let list = Vec::from_iter(wrong);
    assert!(list.is_empty(), "{advice}\n{list:#?}");
}

/// Returns `line` without its comments.
fn code_of(line: &str, is_in_comment: &mut bool) -> String {
    let mut code = String::new();
    let mut rest = line;
    loop {
        if *is_in_comment {
            let Some((_, after)) = rest.split_once("*/") else {
                return code;
            };
            *is_in_comment = false;
            rest = after;
        }
        let line_comment = rest.find("//").unwrap_or(rest.len());
        let block_comment = rest.find("/*").unwrap_or(rest.len());
        if line_comment <= block_comment {
            code += &rest[..line_comment];
            return code;
        }
        code += &rest[..block_comment];
        *is_in_comment = true;
        rest = &rest[block_comment + 2..];
    }
}

/// Returns the lines of C++ on which a class gives a member its value, or declares a constructor or
/// destructor. A declaration ends at a brace or a semicolon.
fn initialising_members(text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut is_in_comment = false;
    let mut declaration = String::new();
    // For each open brace, the class whose body it opens.
    let mut open_classes: Vec<Option<String>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for c in code_of(line, &mut is_in_comment).chars().chain(['\n']) {
            if !"{};".contains(c) {
                declaration.push(c);
                continue;
            }
            let code = without_alignment(&std::mem::take(&mut declaration));
            let opened_class = if c == '{' { class_head(&code) } else { None };
            let enclosing_class = open_classes.last().and_then(Option::as_ref);
            if let Some(class) = enclosing_class
                && opened_class.is_none()
                && initialises(&code, class, c == '{')
            {
                lines.push(index + 1);
            }
            match c {
                '{' => open_classes.push(opened_class),
                '}' => _ = open_classes.pop(),
                _ => {}
            }
        }
    }
    lines
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words_of(code: &str) -> Vec<&str> {
    let mut words: Vec<&str> = code.split(|c| !is_word_part(c)).collect();
    words.retain(|word| !word.is_empty());
    words
}

/// Returns a declaration without `alignas(…)`.
fn without_alignment(declaration: &str) -> String {
    let mut code = declaration.to_string();
    while let Some((before, after)) = code.split_once("alignas(") {
        let rest = after.split_once(')').map_or("", |(_, rest)| rest);
        code = format!("{before}{rest}");
    }
    code
}

/// Returns the name of the class whose body a brace after `code` opens; empty if it has none.
fn class_head(code: &str) -> Option<String> {
    if code.contains('(') {
        return None;
    }
    let words = words_of(code);
    let keyword = words
        .iter()
        .rposition(|word| ["struct", "class", "union"].contains(word))?;
    Some(words.get(keyword + 1).unwrap_or(&"").to_string())
}

/// Returns whether a declaration in `class` constructs, or gives a member its value.
fn initialises(code: &str, class: &str, is_before_brace: bool) -> bool {
    let head = code.split(['(', '=']).next().unwrap_or_default().trim_end();
    let is_function = code[head.len()..].trim_start().starts_with('(');
    if is_function {
        let name = head.rsplit(|c| !is_word_part(c)).next();
        return name == Some(class);
    }
    let is_no_member = words_of(code)
        .iter()
        .any(|word| ["static", "using", "enum"].contains(word));
    !is_no_member && (is_before_brace || assigns(code))
}

/// Returns whether an = stands there that compares nothing.
fn assigns(code: &str) -> bool {
    let mut rest = code.to_string();
    for comparison in ["==", "!=", "<=", ">="] {
        rest = rest.replace(comparison, "");
    }
    rest.contains('=')
}

/// Returns the lines of a class with this member that initialise it.
fn initialising_lines(member: &str) -> Vec<usize> {
    initialising_members(&format!(
        "template <class T, template <int> class L>\nstruct S : B {{\n{member}\n}};\n"
    ))
}

#[test]
fn members_with_a_value_are_found() {
    for member in [
        "float a = -INFINITY;",
        "float a{3};",
        "float a[2] = {1, 2};",
        "alignas(16) float a[2] = {};",
        "S() : a(0) {}",
        "__device__ explicit S(int x);",
        "S() = default;",
        "~S();",
        "int b; private: int a = f(1);",
        "bool a = A == 2;",
    ] {
        assert_eq!(initialising_lines(member), [3], "{member}");
    }
}

#[test]
fn members_without_a_value_are_not_found() {
    for member in [
        "float a, b[2];",
        "std::conditional_t<A == 2, float, int> a[2];",
        "static constexpr int A = 3;",
        "using A = int;",
        "enum { A = 0 };",
        "static S empty() { return {0, 1}; }",
        "void f(int x = 3) { int y = x; float z[2] = {}; }",
        "union { int a; float b; };",
        "alignas(16) half q[B][P]; // float a = 3;",
        "static_assert(A == 3, \"S()\");",
    ] {
        assert_eq!(initialising_lines(member), [0; 0], "{member}");
    }
}

#[test]
fn device_types_initialise_nothing_by_themselves() {
    let mut sources = files_below(&root().join("common/cuda"));
    sources.retain(|path| path.extension().is_some() && !has_extension(path, "md"));
    sources.extend(kernels());
    let mut wrong = Vec::new();
    for path in sources {
        for line in initialising_members(&read(&path)) {
            wrong.push(format!("{}:{line}", shown(&path)));
        }
    }
    expect_none(
        wrong,
        "a member with a value, or a constructor, in device code: nvcc drops them from arrays of \
         arrays (common/docs/nvcc-array-initialisers.md). Give the type a named function that \
         says what it starts as",
    );
}

/// Returns what cargo knows of the members of a checkout.
fn metadata(root: &Path) -> Metadata {
    MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

/// Returns the crates from outside in the build of `package` with default features, as "name
/// version". `cargo tree`, not `cargo metadata`: only it keeps apart what tests and build scripts
/// switch on.
fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--locked", "--package", package])
        .args(["--target", TARGET, "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo tree starts");
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names = BTreeSet::new();
    for line in text.lines() {
        // Ours are followed by their folder.
        if !line.is_empty() && !line.contains(" (/") {
            names.insert(line.trim_end_matches(" (*)").to_string());
        }
    }
    names
}

#[test]
fn programs_stay_within_their_dependency_budgets() {
    for (package, budget) in [
        ("compare", DEPENDENCY_BUDGET),
        ("attention-ladder-python", WHEEL_BUDGET),
    ] {
        let linked = dependencies(package);
        assert!(
            linked.len() > 10,
            "cargo tree's answer was not understood: {linked:?}"
        );
        assert!(
            linked.len() <= budget,
            "{package} links {} crates from outside, {budget} are allowed: do without the new one, \
             switch off its default features, or raise the budget with a reason\n{linked:#?}",
            linked.len()
        );
    }
}

/// Fails if a line of code in these files is forbidden.
#[track_caller]
fn expect_no_code(files: &[PathBuf], is_forbidden: fn(&str) -> bool, advice: &str) {
    let mut wrong = Vec::new();
    for path in files {
        let mut is_in_comment = false;
        for (index, line) in read(path).lines().enumerate() {
            if is_forbidden(&code_of(line, &mut is_in_comment)) {
                wrong.push(format!("{}:{}", shown(path), index + 1));
            }
        }
    }
    expect_none(wrong, advice);
}

fn is_assembly(code: &str) -> bool {
    words_of(code)
        .iter()
        .any(|word| ["asm", "__asm", "__asm__"].contains(word))
}

#[test]
fn kernels_are_one_plain_text_for_both_backends() {
    let device = root().join("common/cuda/attn");
    let mut files = files_below(&device);
    files.retain(|path| !path.starts_with(device.join("ptx")));
    files.extend(kernels());
    expect_no_code(
        &files,
        is_assembly,
        "inline assembly outside common/cuda/attn/ptx: write a wrapper there, one per \
         instruction, with its emulated counterpart and one-warp test, and call that",
    );
    expect_no_code(
        &kernels(),
        |code| code.trim_start().starts_with("#if"),
        "conditional compilation in kernel.cu: the gates would judge another text than the GPU \
         runs. Put the difference behind a header of common/cuda/attn with a counterpart in the \
         emulator, or make it a preset's constant",
    );
    expect_no_code(
        &kernels(),
        |code| code.contains("__shared__") && !code.contains("extern"),
        "static __shared__ in kernel.cu: carve it from the one dynamic buffer, which the emulator \
         poisons and bounds",
    );
}

#[test]
fn a_kernel_is_read_in_one_sitting() {
    for path in kernels() {
        let lines = read(&path).lines().count();
        assert!(
            lines <= KERNEL_LINES,
            "{} has {lines} lines, {KERNEL_LINES} are allowed: \
             move what is not this stage's idea to common/cuda/attn",
            shown(&path)
        );
    }
}

/// Returns where the stages of the checkout `root` are not registered: a stage that compare does
/// not know is never gated.
fn unregistered(root: &Path) -> Vec<String> {
    let root_manifest = read(&root.join("Cargo.toml"));
    let ladder_manifest = read(&root.join("compare/stages/Cargo.toml"));
    let ladder = read(&root.join("compare/stages/src/lib.rs"));
    let mut missing = Vec::new();
    for stage in stages(root) {
        let module = stage.replace('-', "_");
        let file = |name: &str| {
            let path = root.join(&stage).join(name);
            std::fs::read_to_string(path).unwrap_or_default()
        };
        for (place, is_there) in [
            (
                "the members of the root Cargo.toml",
                root_manifest.contains(&format!("    \"{stage}\",\n")),
            ),
            (
                "[workspace.dependencies] of the root Cargo.toml",
                root_manifest.contains(&format!("{stage} = {{ path = \"{stage}\" }}")),
            ),
            (
                "[dependencies] of compare/stages/Cargo.toml",
                ladder_manifest.contains(&format!("\n{stage}.workspace = true\n")),
            ),
            (
                "the list of stages in compare/stages/src/lib.rs",
                ladder.contains(&format!("    &{module}::")),
            ),
            (
                "build.rs, which is `fn main() { kernel_build::stage(); }`, or stage_for: \
                 what a build does stands in common/kernel-build, once",
                is_build_script(&file("build.rs")),
            ),
            (
                "tests/stage.rs, whose `stage_tests::tests!` runs what every stage runs",
                file("tests/stage.rs").contains(&format!("\nstage_tests::tests!({module}::")),
            ),
        ] {
            if !is_there {
                missing.push(format!("{stage} is missing in {place}"));
            }
        }
    }
    missing
}

/// Returns whether a build script does nothing but call that of stages.
fn is_build_script(text: &str) -> bool {
    let mut lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.retain(|line| !line.is_empty() && !line.starts_with("//"));
    let calls_build =
        text.contains("kernel_build::stage()") || text.contains("kernel_build::stage_for(&[");
    lines.len() <= 3 && calls_build
}

#[test]
fn every_stage_is_registered() {
    let advice = "a stage that compare does not know is never gated";
    expect_none(unregistered(&root()), advice);
}

/// The sections of a stage's README after its first.
const README_SECTIONS: [&str; 5] = [
    "Shape of the kernel",
    "Predicted",
    "Measured",
    "What bounds it",
    "Tried and lost",
];

/// A copy of the workspace to which stages are added.
struct StageCheckout {
    folder: tempfile::TempDir,
    /// The stages of the repository.
    committed: Vec<String>,
}

impl StageCheckout {
    fn new() -> Self {
        let checkout = Self {
            folder: tempfile::tempdir().unwrap(),
            committed: stages(&root()),
        };
        let parts = [
            "Cargo.toml",
            "Cargo.lock",
            "attention-ladder",
            "common",
            "compare",
            "docs",
            "scripts",
            "CONTRIBUTING.md",
            "README.md",
        ];
        for name in parts
            .into_iter()
            .chain(checkout.committed.iter().map(String::as_str))
        {
            let copied = Command::new("cp")
                .arg("-r")
                .args([root().join(name), checkout.root().join(name)])
                .status();
            assert!(copied.unwrap().success(), "{name}");
        }
        checkout
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `scripts/new-stage`, which must exit with this code and print these words.
    #[track_caller]
    fn new_stage(&self, name: &str, source: &str, code: i32, words: &str) {
        let output = Command::new(self.root().join("scripts/new-stage"))
            .args([name, source])
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{name} {source}: {message}"
        );
        assert!(message.contains(words), "{name} {source}: {message}");
    }
}

#[test]
fn a_new_stage_with_a_name_that_cannot_be_is_refused() {
    let checkout = StageCheckout::new();
    let next = checkout.committed.len();
    let numbered = |name: &str| format!("stage{next}-{name}");
    for (name, source, reason) in [
        ("mine".to_string(), "stage5-swizzle", "the next stage"),
        (numbered("Mine"), "stage5-swizzle", "in lower case"),
        (numbered("../x"), "stage5-swizzle", "the next stage"),
        (
            format!("stage{}-mine", next + 1),
            "stage5-swizzle",
            "the next stage",
        ),
        (
            "stage5-swizzle".to_string(),
            "stage5-swizzle",
            "the next stage",
        ),
        (numbered("mine"), "stage5-swizle", "there is no stage"),
        (numbered("attention"), "stage5-swizzle", "imports Attention"),
        (numbered("mma-linear"), "stage5-swizzle", "has a family"),
    ] {
        checkout.new_stage(&name, source, 2, reason);
    }
    let present = stages(checkout.root());
    assert_eq!(present, checkout.committed, "nothing is written");
}

/// Everything is judged but the build of a stage that `scripts/new-stage` makes; its tests are
/// those of the stage that it copies.
#[test]
fn a_new_stage_is_a_member_that_is_registered() {
    let checkout = StageCheckout::new();
    let mut names = Vec::new();
    for (index, source) in checkout.committed.iter().enumerate() {
        let name = format!("stage{}-mine", checkout.committed.len() + index);
        checkout.new_stage(&name, source, 0, "");
        only_names_differ(checkout.root(), &name, source);
        names.push(name);
    }
    expect_none(unregistered(checkout.root()), "");
    let next = format!("scripts/new-stage stage{}-mine ", 2 * names.len());
    for page in ["CONTRIBUTING.md", "docs/ladder.md", "docs/recipes.md"] {
        let text = read(&checkout.root().join(page));
        assert!(text.contains(&next), "{page} makes no '{next}'");
    }
    let ladder = read(&checkout.root().join("compare/stages/src/lib.rs"));
    assert!(!ladder.contains("-mine\""), "the library has not the stage");
    let metadata = metadata(checkout.root());
    for name in names {
        let mut packages = metadata.packages.iter();
        let package = packages
            .find(|package| package.name.as_str() == name)
            .unwrap();
        for expected in ["attention", "stage", "build-script-build"] {
            let mut targets = package.targets.iter();
            assert!(
                targets.any(|target| target.name == expected),
                "{name} lacks {expected}"
            );
        }
    }
}

/// Fails unless the stage `name` of `checkout` is `source` with other names, without claims and
/// without a trace of its source's.
fn only_names_differ(checkout: &Path, name: &str, source: &str) {
    let text = |stage: &str, file: &str| read(&checkout.join(stage).join(file));
    expect_renamed_kernel(&text(source, "kernel.cu"), &text(name, "kernel.cu"), source);

    let library = text(name, "src/lib.rs");
    assert!(library.contains("    claims: &[],\n"), "{library}");
    let source_library = text(source, "src/lib.rs");
    assert_eq!(
        library.matches("site: ").count(),
        source_library.matches("site: ").count()
    );
    expect_names(&source_library, &library);
    // The main path has one stage after another: only a copy of its last one is on it.
    let is_rung = library.contains("    role: Role::Rung,\n");
    let last_rung = stages(&root())
        .into_iter()
        .filter(|stage| text(stage, "src/lib.rs").contains("role: Role::Rung,"))
        .max_by_key(|stage| number_of(stage));
    assert_eq!(is_rung, last_rung.as_deref() == Some(source), "{library}");
    assert!(text(name, "caps.csv").contains("_mine_mine_"), "{name}");

    let page = text(name, "README.md");
    let sections: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let number = number_of(source).unwrap();
    assert_eq!(sections[0], format!("Diff against stage {number}"));
    assert_eq!(sections[1..], README_SECTIONS, "{page}");

    let resources = "tests/snapshots/stage__resources_are_within_their_caps_and_as_recorded.snap";
    expect_renamed_resources(&text(source, resources), &text(name, resources));
    for path in files_below(&checkout.join(name)) {
        expect_no_trace(&path, source);
    }
}

/// Returns 13 of `stage13-persistent`.
fn number_of(stage: &str) -> Option<usize> {
    let (name, _) = stage.split_once('-')?;
    name.strip_prefix("stage")?.parse().ok()
}

/// Fails unless the library of a copy imports or declares each name that it has from its source,
/// and imports nothing else.
fn expect_names(source: &str, library: &str) {
    let (mut uses, mut others) = (BTreeSet::new(), BTreeSet::new());
    for line in library.lines().map(str::trim) {
        if line.starts_with("use ") {
            uses.extend(capitalised(line));
        } else if !line.starts_with("//") {
            others.extend(capitalised(line));
        }
    }
    for name in others.intersection(&declared(source)) {
        assert!(declared(library).contains(name), "no {name}: {library}");
    }
    let unused = uses.difference(&others).next();
    assert_eq!(unused, None, "an import that nothing uses: {library}");
}

/// Returns the names that a library imports, and those of its constants.
fn declared(library: &str) -> BTreeSet<&str> {
    library
        .lines()
        .filter(|line| line.starts_with("use ") || line.starts_with("const "))
        .filter_map(|line| line.split(": ").next())
        .flat_map(capitalised)
        .collect()
}

/// Returns the words of a line that start with a capital: names of types and constants.
fn capitalised(line: &str) -> Vec<&str> {
    let mut words = words_of(line);
    words.retain(|word| word.starts_with(char::is_uppercase));
    words
}

/// Fails unless two kernels differ in the names of variants alone.
fn expect_renamed_kernel(old: &str, new: &str, source: &str) {
    let mut changed = 0;
    for (old_line, new_line) in old.lines().zip(new.lines()) {
        if old_line == new_line {
            continue;
        }
        // Macro, family, symbol and preset.
        let old_parts = Vec::from_iter(old_line.splitn(4, ['(', ',']));
        let new_parts = Vec::from_iter(new_line.splitn(4, ['(', ',']));
        assert_eq!(old_parts[0], new_parts[0]);
        assert_eq!(old_parts[3], new_parts[3]);
        assert_eq!(new_parts[1], "mine");
        assert!(new_parts[2].starts_with(" mine_"), "{new_parts:?}");
        changed += 1;
    }
    assert_ne!(changed, 0, "{source}: its default family has no variant");
}

/// Fails unless a snapshot of resources has the rows of its source, sorted and aligned.
fn expect_renamed_resources(old: &str, new: &str) {
    let rows: Vec<&str> = new.lines().skip(4).collect();
    assert!(rows.is_sorted(), "{new}");
    assert_eq!(rows.len(), old.lines().skip(4).count(), "{new}");
    for row in rows {
        let symbol = row.split_whitespace().nth(1).unwrap_or_default();
        let width = symbol.len().max(38) + "sm_90a   123".len();
        assert_eq!(row.find(" registers"), Some(width), "{row}");
    }
}

/// Fails if a file of a new stage names the stage that it was copied from, or belongs to it.
fn expect_no_trace(path: &Path, source: &str) {
    let module = source.replace('-', "_");
    for line in read(path).lines() {
        let is_reference = ["a copy of", "predecessor: ", "git diff --no-index "]
            .iter()
            .any(|words| line.to_lowercase().contains(words));
        assert!(
            !line.contains(&module) && (!line.contains(source) || is_reference),
            "{}: {line}",
            path.display()
        );
    }
    let folder = path.parent().unwrap();
    let is_own_test = folder.ends_with("tests") && !path.ends_with("stage.rs");
    assert!(
        !is_own_test && !path.ends_with("negatives.json"),
        "{}",
        path.display()
    );
}

#[test]
fn unsafe_code_is_forbidden_where_it_has_no_business() {
    for name in [
        "attention-ladder/choice/src/lib.rs",
        "compare/document/src/lib.rs",
        "compare/measure/src/lib.rs",
        "compare/pages/src/lib.rs",
        "compare/results/src/lib.rs",
        "compare/src/main.rs",
        "compare/stages/src/lib.rs",
        "common/kernel-build/src/lib.rs",
        "common/bench/src/lib.rs",
        "common/stage-tests/src/lib.rs",
    ] {
        assert!(
            read(&root().join(name)).contains("\n#![forbid(unsafe_code)]\n"),
            "{name}: add #![forbid(unsafe_code)]; \
             unsafe belongs to the driver wrapper, the emulator and generated bindings"
        );
    }
}

#[test]
fn members_inherit_from_the_root() {
    for package in metadata(&root()).packages {
        let path = package.manifest_path.as_std_path();
        let text = read(path);
        for line in [
            "version.workspace = true",
            "edition.workspace = true",
            "license.workspace = true",
            "[lints]\nworkspace = true",
        ] {
            assert!(
                text.contains(line),
                "{}: lacks `{}`",
                shown(path),
                line.replace('\n', " ")
            );
        }
        let own_versions = text.lines().filter(|line| line.contains("version = \""));
        let advice = "versions stand in the root manifest only";
        expect_none(own_versions, &format!("{}: {advice}", shown(path)));
    }
}

/// A tracked file that is text.
struct TrackedFile {
    name: String,
    text: String,
}

impl TrackedFile {
    fn is_markdown(&self) -> bool {
        self.name.ends_with(".md")
    }
}

/// Returns every tracked file that is text; none where this is no git checkout.
fn tracked() -> Vec<TrackedFile> {
    let output = match git::git(&root()).args(["ls-files", "-z"]).output() {
        Ok(output) if output.status.success() => output,
        _ => {
            assert!(
                std::env::var_os("CI").is_none(),
                "git ls-files failed: CI checks out with git"
            );
            println!("not checked: this is not a git checkout");
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for name in String::from_utf8_lossy(&output.stdout).split('\0') {
        // Files that are deleted but not yet committed, and binaries, do not read as text.
        if !name.is_empty()
            && let Ok(text) = std::fs::read_to_string(root().join(name))
        {
            files.push(TrackedFile {
                name: name.to_string(),
                text,
            });
        }
    }
    files
}

/// The attributes are read from the work tree, so that the test needs no commit.
#[test]
fn a_checkout_with_autocrlf_has_no_carriage_returns() {
    let copy = tempfile::tempdir().unwrap();
    let files = tracked();
    if files.is_empty() {
        return;
    }
    let status = git::git(&root())
        .args(["-c", "core.autocrlf=true"])
        .args(["checkout-index", "--all", "--quiet"])
        .arg(format!("--prefix={}/", copy.path().display()))
        .status();
    assert!(status.unwrap().success());
    let mut wrong = Vec::new();
    for TrackedFile { name, .. } in files {
        if std::fs::read(copy.path().join(&name))
            .unwrap()
            .contains(&b'\r')
        {
            wrong.push(name);
        }
    }
    expect_none(wrong, ".gitattributes lacks eol=lf");
}

/// A hook of a linked worktree names the person's repository in variables that outrank the folder:
/// tests that started git by themselves committed to the branch in it.
#[test]
fn one_place_starts_git_and_scripts_forget_the_callers_repository() {
    // Written in halves, or this file would be found.
    let start = "Command::new(\"g_it\")".replace('_', "");
    let starting = lines_of_tracked(|line| {
        line.file.ends_with(".rs")
            && line.file != "compare/src/git.rs"
            && line.text().contains(&start)
    });
    expect_none(
        starting,
        "start git by `git::git(folder)` (compare/src/git.rs)",
    );
    let mut scripts = tracked();
    scripts.retain(|file| {
        (file.name.starts_with("scripts/") || file.name.starts_with(".ci/"))
            && runs_git(&file.text)
            && !file.text.contains(FORGETTING)
    });
    expect_none(
        scripts.into_iter().map(|file| file.name),
        &format!("a script that runs git begins with\n{FORGETTING}"),
    );
}

/// Returns whether a text is a script in bash that runs git.
fn runs_git(text: &str) -> bool {
    let mut words = text.split(|c: char| c.is_whitespace() || "($|&;".contains(c));
    text.starts_with("#!/usr/bin/env bash") && words.any(|word| word == "git")
}

/// The lines with which a script in bash begins before it runs git.
const FORGETTING: &str = r#"for name in "${!GIT_@}"; do
    [[ "$name" == GIT_EXEC_PATH ]] || unset "$name"
done"#;

#[test]
fn nothing_is_skipped_silently() {
    // Written in halves, or this file would be found.
    let ignored = "#[_ignore".replace('_', "");
    let not_checked = "println!(\"not _checked: ".replace('_', "");
    let silent = lines_of_tracked(|line| {
        let is_ignored = line.text().trim_start().starts_with(&ignored);
        let is_silent = line.text().contains(&not_checked)
            && !line
                .before(4)
                .iter()
                .any(|before| before.contains("var_os(\"CI\")"));
        line.file.ends_with(".rs") && (is_ignored || is_silent)
    });
    expect_none(
        silent,
        "an ignored test, or one that says that it checks nothing and would pass so in CI: assert \
         that CI is not set in the statement before; a test of a GPU says that there is none, and \
         passes",
    );
}

#[test]
fn tracked_files_name_no_machine() {
    // Written in halves, or this file would be found.
    let homes = ["/ho_me/", "/Us_ers/", "/ro_ot/", "/wo_rk/", "C:_\\Users"]
        .map(|home| home.replace('_', ""));
    let named = lines_of_tracked(|line| {
        homes
            .iter()
            .any(|home| has_path_that_starts(line.text(), home))
    });
    expect_none(
        named,
        "absolute paths of one machine: write paths relative to the root",
    );
}

/// Returns whether a path in `line` starts with `start`.
fn has_path_that_starts(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(position, _)| {
        !line[..position].ends_with(|c: char| c.is_alphanumeric() || "._-})>/".contains(c))
    })
}

/// `scripts/explain-mutants` plants each for half a minute, and would stop at the first that it
/// cannot.
#[test]
fn every_mistake_that_explain_is_tried_on_can_be_planted() {
    let list = read(&root().join("compare/tests/explain/mutants.txt"));
    let mut lines: Vec<&str> = list.lines().collect();
    lines.retain(|line| line.starts_with(['=', '<', '>']));
    let entries = lines.chunks(3);
    assert_eq!(entries.len(), 48, "docs/explain.md says of how many");
    let mut wrong = Vec::new();
    for entry in entries {
        let (Some(head), Some(old), Some(new)) = (
            entry[0].strip_prefix("= "),
            entry.get(1).and_then(|line| line.strip_prefix("< ")),
            entry.get(2).and_then(|line| line.strip_prefix("> ")),
        ) else {
            panic!("an entry is '= ', '< ' and '> ': {entry:#?}");
        };
        if !can_be_planted(head, old, new) {
            wrong.push(entry);
        }
    }
    expect_none(
        wrong,
        "this text stands once in no file: write what the kernel has in its place",
    );
}

/// Returns whether the text of an entry stands once in the file that its head names last.
fn can_be_planted(head: &str, old: &str, new: &str) -> bool {
    let [stage, _, _, file] = head.split(' ').collect::<Vec<_>>()[..] else {
        return false;
    };
    let text = read(&root().join(file));
    old != new
        && text.matches(&old.replace("\\n", "\n")).count() == 1
        && root().join(stage).is_dir()
}

/// A line of a tracked file.
struct TrackedLine<'a> {
    file: &'a str,
    lines: &'a [&'a str],
    index: usize,
}

impl<'a> TrackedLine<'a> {
    fn text(&self) -> &'a str {
        self.lines[self.index]
    }

    /// Returns up to `count` lines before it.
    fn before(&self, count: usize) -> &'a [&'a str] {
        &self.lines[self.index.saturating_sub(count)..self.index]
    }
}

/// Returns the lines of tracked files that are wrong, as "name:line".
fn lines_of_tracked(is_wrong: impl Fn(&TrackedLine<'_>) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for TrackedFile { name, text } in tracked() {
        let lines: Vec<&str> = text.lines().collect();
        for index in 0..lines.len() {
            let line = TrackedLine {
                file: &name,
                lines: &lines,
                index,
            };
            if is_wrong(&line) {
                wrong.push(format!("{name}:{}", index + 1));
            }
        }
    }
    wrong
}

/// Returns the names of sessions in a text: a time, such as 20261121T163113Z, and a machine.
fn sessions_in(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .collect();
    words.retain(|word| {
        let form = word.replace(|c: char| c.is_ascii_digit(), "0");
        form.starts_with("00000000T000000Z")
    });
    words
}

#[test]
fn names_of_sessions_are_found() {
    let words = "of `20261121T163113Z-nvidia-h200`, and 2026-11-21T163113Z.";
    assert_eq!(sessions_in(words), ["20261121T163113Z-nvidia-h200"]);
}

#[test]
fn pages_name_sessions_that_the_tables_have() {
    let mut sessions = String::new();
    for path in files_below(&root().join("results")) {
        if path.ends_with("sessions.jsonl") {
            sessions += &read(&path);
        }
    }
    for page in tracked() {
        if !page.is_markdown() {
            continue;
        }
        for session in sessions_in(&page.text) {
            assert!(
                sessions.contains(&format!("{{\"session\":\"{session}\",")),
                "{} names {session}, of which results/ has no row: \
                 give figures of a session that it has",
                page.name
            );
        }
    }
}

#[test]
fn links_lead_to_files_of_the_repository() {
    let mut dead = Vec::new();
    for page in tracked() {
        if !page.is_markdown() {
            continue;
        }
        let folder = root().join(&page.name).parent().unwrap().to_path_buf();
        let prose: String = page.text.split("```").step_by(2).collect();
        for rest in prose.split("](").skip(1) {
            let Some((target, _)) = rest.split_once(')') else {
                continue;
            };
            let file = target.split('#').next().unwrap_or_default();
            if !file.contains("://") && !folder.join(file).exists() {
                dead.push(format!("{}: {file}", page.name));
            }
        }
    }
    expect_none(dead, "links to files that do not exist");
}

/// The compiler keeps everything else from importing a command, whose module is private.
#[test]
fn no_command_names_another() {
    let folder = root().join("compare/src/commands");
    let mut commands = BTreeSet::new();
    for path in rust_files_below(&folder) {
        commands.insert(command_of(&path, &folder));
    }
    for other in ["cli", "mod"] {
        commands.remove(other);
    }
    assert!(commands.contains("run"), "{commands:?}");
    let mut wrong = Vec::new();
    for path in rust_files_below(&folder) {
        let own = command_of(&path, &folder);
        if !commands.contains(&own) {
            continue;
        }
        // In a file of the folder `super` is the folder, and in one below it `super::super`.
        let depth = path.strip_prefix(&folder).unwrap().iter().count();
        let above = "super::".repeat(depth);
        let text = read(&path);
        for other in commands.iter().filter(|other| **other != own) {
            if text.contains(&format!("commands::{other}::"))
                || text.contains(&format!("use {above}{other}"))
            {
                wrong.push(format!("{} imports {other}", shown(&path)));
            }
        }
    }
    expect_none(
        wrong,
        "a command imports another: move what both need beside compare/src/commands or into a \
         crate below",
    );
}

/// Returns the command that a file below the folder of the commands belongs to.
fn command_of(path: &Path, folder: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap();
    let first = below.iter().next().unwrap();
    let stem = Path::new(first).file_stem().unwrap();
    stem.to_string_lossy().into_owned()
}

/// Each crate of the program has a row in the page's table, which says what its manifest does.
#[test]
fn architecture_names_what_a_crate_imports() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let (_, table) = page.split_once("| crate | imports | what |\n").unwrap();
    let mut packages = metadata(&root()).packages;
    packages.retain(|package| is_of_program(package.manifest_path.as_std_path()));
    assert!(packages.len() >= 7, "cargo metadata was not understood");
    for package in &packages {
        let mut imports = Vec::new();
        for dependency in &package.dependencies {
            let is_ours = packages.iter().any(|other| *other.name == *dependency.name);
            if is_ours && dependency.kind == DependencyKind::Normal {
                imports.push(format!("`{}`", dependency.name));
            }
        }
        let folder = package.manifest_path.parent().unwrap().as_std_path();
        let start = format!("| `{}/` | ", shown(folder));
        let row = table
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap_or_else(|| panic!("ARCHITECTURE.md has no row of {}", shown(folder)));
        let (cell, _) = row.split_once(" | ").expect("three columns");
        let mut named: Vec<&str> = cell.split(", ").filter(|name| *name != "none").collect();
        named.sort_unstable();
        assert_eq!(
            named,
            imports,
            "ARCHITECTURE.md, what {} imports",
            shown(folder)
        );
    }
}

/// Returns whether a manifest is of a crate that the program consists of.
fn is_of_program(manifest: &Path) -> bool {
    let folder = manifest.parent().unwrap();
    let root = root();
    folder.starts_with(root.join("compare")) || folder == root.join("attention-ladder/choice")
}

/// The page is what `explain` and people look up: every planted fault and every kind of hazard has
/// its row.
#[test]
fn every_fault_and_hazard_has_a_row_among_the_symptoms() {
    let page = read(&root().join("docs/symptoms.md"));
    let mut rows = BTreeSet::new();
    for line in page.lines() {
        if let Some(cell) = cells_of(line).next() {
            rows.insert(cell);
        }
    }
    let detectors = read(&root().join("common/emulator/DETECTORS.md"));
    let mut names = BTreeSet::new();
    for line in detectors.lines() {
        if let Some(cell) = cells_of(line).nth(1) {
            names.insert(cell.split(", `").next().unwrap_or_default());
        }
    }
    names.remove("reported as");
    assert!(
        names.len() >= 11,
        "DETECTORS.md was not understood: {names:?}"
    );
    for fault in common::faults::Fault::ALL {
        names.insert(fault.name());
    }
    expect_none(
        names.difference(&rows),
        "docs/symptoms.md lacks a row for these",
    );
}

/// Returns the cells of a row of a Markdown table; none for other lines.
fn cells_of(line: &str) -> impl Iterator<Item = &str> {
    let row = line
        .strip_prefix("| ")
        .filter(|cells| cells.contains(" | "));
    row.into_iter().flat_map(|cells| cells.split(" | "))
}
