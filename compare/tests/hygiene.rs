//! The repository's own rules, each as a test that says what to do when it fails. They hold for any
//! number of stages.
#![forbid(unsafe_code)]

#[path = "../src/git.rs"]
mod git;

use cargo_metadata::{Metadata, MetadataCommand};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the dependency rules are checked: what CI builds. Other systems add crates of their own.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Crates from outside that `compare` may link. Procedural macros are not linked and not counted.
/// Four are build scripts' own (cc, sha2 and what they bring): one set of features for runs and
/// tests links them. Three wait for Ctrl-C, which must lose nothing (signal-hook and what it
/// brings): without them it took unsafe code of our own.
const DEPENDENCY_BUDGET: usize = 60;

/// The same of the Python module: those of `common` without the emulator, and pyo3 with what it
/// brings.
const WHEEL_BUDGET: usize = 50;

/// A kernel is read in one sitting.
const KERNEL_LINES: usize = 320;

/// The folders of compare/src below the commands, and what each may import.
const ROOMS: [(&str, &str); 7] = [
    (
        "instrument",
        "answer interrupt judge measure document pages table stages",
    ),
    ("python", "instrument interrupt judge measure table"),
    ("measure", "table judge"),
    ("table", ""),
    ("judge", "table"),
    ("document", ""),
    ("pages", "table judge document"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("compare/ lies in the root")
        .to_path_buf()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `path` as people write it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

/// The folders `stage0-…` of a checkout, sorted.
fn stages(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let folders = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = folders.filter(|name| name.starts_with("stage")).collect();
    names.sort();
    assert!(!names.is_empty(), "no stage folder beside compare/");
    names
}

/// By path.
fn kernels() -> Vec<PathBuf> {
    let stages = stages(&root()).into_iter();
    stages
        .map(|stage| root().join(stage).join("kernel.cu"))
        .collect()
}

/// All files below `folder` for which `keep` holds.
fn files_below(folder: &Path, keep: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path, keep));
        } else if keep(&path) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Of things that are wrong there is none, or else what to do.
#[track_caller]
fn expect_none<T: Debug>(found: impl IntoIterator<Item = T>, advice: &str) {
    let found = Vec::from_iter(found);
    assert!(found.is_empty(), "{advice}\n{found:#?}");
}

/// `line` without its comments.
fn code_of(line: &str, in_comment: &mut bool) -> String {
    let (mut code, mut rest) = (String::new(), line);
    loop {
        if *in_comment {
            let Some((_, after)) = rest.split_once("*/") else {
                return code;
            };
            (*in_comment, rest) = (false, after);
        }
        let end = [rest.find("//"), rest.find("/*")]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(rest.len());
        code += &rest[..end];
        if !rest[end..].starts_with("/*") {
            return code;
        }
        (*in_comment, rest) = (true, &rest[end + 2..]);
    }
}

/// Lines of C++ on which a class gives a member its value, or declares a constructor or destructor.
/// A declaration ends at a brace or a semicolon.
fn initialising_members(text: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut in_comment, mut declaration) = (Vec::new(), false, String::new());
    let mut classes: Vec<Option<String>> = Vec::new(); // per open brace: the class whose body it opens
    for (index, line) in text.lines().enumerate() {
        for c in code_of(line, &mut in_comment).chars().chain(['\n']) {
            if !"{};".contains(c) {
                declaration.push(c);
                continue;
            }
            let mut code = std::mem::take(&mut declaration);
            while let Some((before, after)) = code.split_once("alignas(") {
                code = format!(
                    "{before}{}",
                    after.split_once(')').map_or("", |(_, rest)| rest)
                );
            }
            let words: Vec<&str> = code
                .split(|c| !is_word(c))
                .filter(|word| !word.is_empty())
                .collect();
            let has = |any: &[&str]| words.iter().any(|word| any.contains(word));
            let head = code.split(['(', '=']).next().unwrap_or_default().trim_end();
            let is_function = code[head.len()..].trim_start().starts_with('(');
            let keyword = words
                .iter()
                .rposition(|word| ["struct", "class", "union"].contains(word));
            let opened = keyword.filter(|_| c == '{' && !code.contains('('));
            if let Some(Some(class)) = classes.last().filter(|_| opened.is_none()) {
                let constructs =
                    is_function && head.rsplit(|c| !is_word(c)).next() == Some(class.as_str());
                let has_value = !is_function && (c == '{' || assigns(&code));
                if constructs || has_value && !has(&["static", "using", "enum"]) {
                    found.push(index + 1);
                }
            }
            match c {
                '{' => classes.push(opened.map(|at| words.get(at + 1).unwrap_or(&"").to_string())),
                '}' => _ = classes.pop(),
                _ => {}
            }
        }
    }
    found
}

/// Whether an = stands there that compares nothing.
fn assigns(code: &str) -> bool {
    let comparisons = ["==", "!=", "<=", ">="];
    let without = comparisons
        .iter()
        .fold(code.to_string(), |code, comparison| {
            code.replace(comparison, "")
        });
    without.contains('=')
}

#[test]
fn members_with_a_value_are_found() {
    let in_class = |member: &str| {
        format!("template <class T, template <int> class L>\nstruct S : B {{\n{member}\n}};\n")
    };
    let with_a_value = r#"float a = -INFINITY;
        float a{3};
        float a[2] = {1, 2};
        alignas(16) float a[2] = {};
        S() : a(0) {}
        __device__ explicit S(int x);
        S() = default;
        ~S();
        int b; private: int a = f(1);
        bool a = A == 2;"#;
    let without = r#"float a, b[2];
        std::conditional_t<A == 2, float, int> a[2];
        static constexpr int A = 3;
        using A = int;
        enum { A = 0 };
        static S empty() { return {0, 1}; }
        void f(int x = 3) { int y = x; float z[2] = {}; }
        union { int a; float b; };
        alignas(16) half q[B][P]; // float a = 3;
        static_assert(A == 3, "S()");"#;
    for (members, lines) in [(with_a_value, &[3][..]), (without, &[])] {
        for member in members.lines() {
            assert_eq!(initialising_members(&in_class(member)), lines, "{member}");
        }
    }
}

#[test]
fn device_types_initialise_nothing_by_themselves() {
    let is_source = |path: &Path| path.extension().is_some_and(|extension| extension != "md");
    let headers = files_below(&root().join("common/cuda"), &is_source);
    let found = kernels().into_iter().chain(headers).flat_map(|path| {
        let lines = initialising_members(&read(&path)).into_iter();
        lines.map(move |line| format!("{}:{line}", shown(&path)))
    });
    expect_none(
        found,
        "a member with a value, or a constructor, in device code: nvcc drops them from arrays of arrays \
         (common/docs/nvcc-array-initialisers.md). Give the type a named function that says what it starts as",
    );
}

/// Of the members of a checkout.
fn metadata(root: &Path) -> Metadata {
    MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

/// Crates from outside in the build of `package` with default features, as "name version". `cargo
/// tree`, not `cargo metadata`: only it keeps apart what tests and build scripts switch on.
fn dependencies(package: &str) -> BTreeSet<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let options = "--edges normal,no-proc-macro --prefix none --format {p}";
    let tree = format!("tree --locked --package {package} --target {TARGET} {options}");
    command.args(tree.split(' ')).current_dir(root());
    let output = command.output().expect("cargo tree starts");
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    // Ours are followed by their folder.
    let outside = text.lines().filter(|line| !line.contains(" (/"));
    let names = outside.map(|line| line.trim_end_matches(" (*)").to_string());
    names.filter(|name| !name.is_empty()).collect()
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
            "{package} links {} crates from outside, {budget} are allowed: do without the new one, switch off its \
             default features, or raise the budget with a reason\n{linked:#?}",
            linked.len()
        );
    }
}

/// Files, what no line of their code may be, and what to do instead.
type Rule<'a> = (Vec<PathBuf>, &'a dyn Fn(&str) -> bool, &'a str);

#[test]
fn kernels_are_one_plain_text_for_both_backends() {
    let device = root().join("common/cuda/attn");
    let headers = files_below(&device, &|path| !path.starts_with(device.join("ptx")));
    let is_asm = |code: &str| {
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| ["asm", "__asm", "__asm__"].contains(&word))
    };
    let rules: [Rule<'_>; 3] = [
        (
            [kernels(), headers].concat(),
            &is_asm,
            "inline assembly outside common/cuda/attn/ptx: write a wrapper there, one per instruction, with its emulated counterpart \
             and one-warp test, and call that",
        ),
        (
            kernels(),
            &|code| code.trim_start().starts_with("#if"),
            "conditional compilation in kernel.cu: the gates would judge another text than the GPU runs. Put the difference behind \
             a header of common/cuda/attn with a counterpart in the emulator, or make it a preset's constant",
        ),
        (
            kernels(),
            &|code| code.contains("__shared__") && !code.contains("extern"),
            "static __shared__ in kernel.cu: carve it from the one dynamic buffer, which the emulator poisons and bounds",
        ),
    ];
    for (files, is_forbidden, advice) in rules {
        let mut found = Vec::new();
        for path in files {
            let mut in_comment = false;
            for (index, line) in read(&path).lines().enumerate() {
                if is_forbidden(&code_of(line, &mut in_comment)) {
                    found.push(format!("{}:{}", shown(&path), index + 1));
                }
            }
        }
        expect_none(found, advice);
    }
    for path in kernels() {
        let lines = read(&path).lines().count();
        assert!(
            lines <= KERNEL_LINES,
            "{} has {lines} lines, {KERNEL_LINES} are allowed: move what is not this stage's idea to common/cuda/attn",
            shown(&path)
        );
    }
}

/// Where the stages of the checkout `root` are not registered: a stage that compare does not know
/// is never gated.
fn unregistered(root: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    let (root_manifest, compare_manifest) = (
        read(&root.join("Cargo.toml")),
        read(&root.join("compare/Cargo.toml")),
    );
    let sources = files_below(&root.join("compare/src"), &|path| {
        path.extension().is_some_and(|extension| extension == "rs")
    });
    let compare_sources: String = sources.iter().map(|path| read(path)).collect();
    for stage in stages(root) {
        let module = stage.replace('-', "_");
        let text = |file: &str| std::fs::read_to_string(root.join(&stage).join(file));
        let [build, tests] =
            ["build.rs", "tests/stage.rs"].map(|file| text(file).unwrap_or_default());
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
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
                "[dependencies] of compare/Cargo.toml",
                compare_manifest.contains(&format!("\n{stage}.workspace = true\n")),
            ),
            (
                "the list of stages in compare/src",
                compare_sources.contains(&format!("{module}::")),
            ),
            (
                "build.rs, which is `fn main() { kernel_build::stage(); }`, or stage_for: what a build does stands in \
                 common/kernel-build, once",
                build.lines().filter(is_code).count() <= 3
                    && (build.contains("kernel_build::stage()")
                        || build.contains("kernel_build::stage_for(&[")),
            ),
            (
                "tests/stage.rs, whose `stage_tests::tests!` runs what every stage runs",
                tests.contains(&format!("\nstage_tests::tests!({module}::")),
            ),
        ] {
            if !is_there {
                missing.push(format!("{stage} is missing in {place}"));
            }
        }
    }
    missing
}

#[test]
fn every_stage_is_registered() {
    let advice = "a stage that compare does not know is never gated";
    expect_none(unregistered(&root()), advice);
}

/// All but the build of a stage that `scripts/new-stage` makes; its tests are those of the stage
/// that it copies.
#[test]
fn a_new_stage_is_a_member_that_is_registered() {
    let checkout = tempfile::tempdir().unwrap();
    let others = "Cargo.toml Cargo.lock attention-ladder common compare scripts".split(' ');
    let committed = stages(&root());
    for name in others.chain(committed.iter().map(String::as_str)) {
        let copied = Command::new("cp")
            .arg("-r")
            .args([root().join(name), checkout.path().join(name)])
            .status();
        assert!(copied.unwrap().success(), "{name}");
    }
    let make = |name_and_source: &str, code: i32, says: &str| {
        let output = Command::new(checkout.path().join("scripts/new-stage"))
            .args(name_and_source.split(' '))
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{name_and_source}: {message}"
        );
        assert!(message.contains(says), "{name_and_source}: {message}");
    };
    let next = committed.len();
    let refused = format!(
        "mine stage5-swizzle: the next stage
        stage{next}-Mine stage5-swizzle: in lower case
        stage{next}-../x stage5-swizzle: the next stage
        stage{}-mine stage5-swizzle: the next stage
        stage5-swizzle stage5-swizzle: the next stage
        stage{next}-mine stage5-swizle: there is no stage
        stage{next}-attention stage5-swizzle: imports Attention
        stage{next}-mma-linear stage5-swizzle: has a family",
        next + 1
    );
    for line in refused.lines() {
        let (name_and_source, reason) = line.trim().split_once(": ").unwrap();
        make(name_and_source, 2, reason);
    }
    assert_eq!(stages(checkout.path()), committed, "nothing is written");

    let copies = Vec::from_iter((next..).zip(&committed));
    for (number, from) in &copies {
        let name = format!("stage{number}-mine");
        make(&format!("{name} {from}"), 0, "");
        only_names_differ(checkout.path(), &name, from);
    }
    expect_none(unregistered(checkout.path()), "");
    let metadata = metadata(checkout.path());
    for (number, _) in copies {
        let name = format!("stage{number}-mine");
        let mut packages = metadata.packages.iter();
        let package = packages.find(|package| package.name.as_str() == name);
        let targets = package.unwrap().targets.iter();
        let targets = Vec::from_iter(targets.map(|target| target.name.as_str()));
        for target in ["attention", "stage", "build-script-build"] {
            assert!(targets.contains(&target), "{targets:?}");
        }
    }
}

/// Whether the stage `name` of `checkout` is `from` with other names, without claims and without a
/// trace of its source's.
fn only_names_differ(checkout: &Path, name: &str, from: &str) {
    let text = |stage: &str, file: &str| read(&checkout.join(stage).join(file));
    let (old, new) = (text(from, "kernel.cu"), text(name, "kernel.cu"));
    let changed: Vec<(&str, &str)> = (old.lines().zip(new.lines()))
        .filter(|(old, new)| old != new)
        .collect();
    assert!(
        !changed.is_empty(),
        "{from}: its default family has no variant"
    );
    for (old, new) in changed {
        // Macro, family, symbol and preset.
        let [old, new] = [old, new].map(|line| Vec::from_iter(line.splitn(4, ['(', ','])));
        assert_eq!((old[0], old[3]), (new[0], new[3]));
        assert!(new[1] == "mine" && new[2].starts_with(" mine_"), "{new:?}");
    }
    let library = text(name, "src/lib.rs");
    assert!(library.contains("    claims: &[],\n"), "{library}");
    let redundant = |library: &str| library.matches("site: ").count();
    assert_eq!(redundant(&library), redundant(&text(from, "src/lib.rs")));
    let names = library.matches("Redundant").count();
    assert_ne!(names, 1, "an import that nothing uses: {library}");
    assert!(text(name, "caps.csv").contains("_mine_mine_"), "{name}");
    let resources = "tests/snapshots/stage__resources_are_within_their_caps_and_as_recorded.snap";
    let (old, new) = (text(from, resources), text(name, resources));
    let rows = |text: &str| text.lines().skip(4).map(String::from).collect::<Vec<_>>();
    assert!(
        rows(&new).is_sorted() && rows(&new).len() == rows(&old).len(),
        "{new}"
    );
    for row in rows(&new) {
        let (symbol, rest) = (row.split_whitespace().nth(1), row.find(" registers"));
        let width = symbol.map_or(0, str::len).max(38) + "sm_90a   123".len();
        assert_eq!(rest, Some(width), "{row}");
    }
    let module = from.replace('-', "_");
    for path in files_below(&checkout.join(name), &|_| true) {
        let text = read(&path);
        let names_its_source = text.lines().any(|line| {
            line.contains(&module)
                || line.contains(from)
                    && !line.to_lowercase().contains("a copy of")
                    && !line.contains("predecessor: ")
        });
        assert!(!names_its_source, "{}", path.display());
        let is_test = path
            .parent()
            .is_some_and(|folder| folder.ends_with("tests"));
        let is_of_source =
            path.ends_with("negatives.json") || is_test && !path.ends_with("stage.rs");
        assert!(!is_of_source, "{}", path.display());
    }
}

#[test]
fn unsafe_code_is_forbidden_where_it_has_no_business() {
    for name in [
        "compare/src/main.rs",
        "common/kernel-build/src/lib.rs",
        "common/bench/src/lib.rs",
        "common/stage-tests/src/lib.rs",
    ] {
        assert!(
            read(&root().join(name)).contains("\n#![forbid(unsafe_code)]\n"),
            "{name}: add #![forbid(unsafe_code)]; unsafe belongs to the driver wrapper, the emulator and generated bindings"
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
        let own = text.lines().filter(|line| line.contains("version = \""));
        let advice = "versions stand in the root manifest only";
        expect_none(own, &format!("{}: {advice}", shown(path)));
    }
}

/// Every tracked file that is text, by its path; none where this is no git checkout.
fn tracked() -> Vec<(String, String)> {
    let listed = git::git(&root()).args(["ls-files", "-z"]).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "git ls-files failed: CI checks out with git"
        );
        println!("not checked: this is not a git checkout");
        return Vec::new();
    };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = listed.split('\0').filter(|name| !name.is_empty());
    // Files that are deleted but not yet committed, and binaries, do not read as text.
    names
        .filter_map(|name| {
            Some((
                name.to_string(),
                std::fs::read_to_string(root().join(name)).ok()?,
            ))
        })
        .collect()
}

/// The attributes are read from the work tree, so that the test needs no commit.
#[test]
fn a_checkout_with_autocrlf_has_no_carriage_returns() {
    let copy = tempfile::tempdir().unwrap();
    let prefix = format!("--prefix={}/", copy.path().display());
    let names: Vec<String> = tracked().into_iter().map(|(name, _)| name).collect();
    if names.is_empty() {
        return;
    }
    let done = git::git(&root())
        .args("-c core.autocrlf=true checkout-index --all --quiet".split(' '))
        .arg(prefix)
        .status()
        .unwrap();
    assert!(done.success());
    let ends_in_cr = |name: &&String| {
        let text = std::fs::read(copy.path().join(name)).unwrap();
        text.contains(&b'\r')
    };
    expect_none(
        names.iter().filter(ends_in_cr),
        ".gitattributes lacks eol=lf",
    );
}

/// A hook of a linked worktree names the person's repository in variables that outrank the folder:
/// tests that started git by themselves committed to the branch in it.
#[test]
fn one_place_starts_git_and_scripts_forget_the_callers_repository() {
    // Written in halves, or this file would be found.
    let started = "Command::new(\"g_it\")".replace('_', "");
    let rust = lines_of_tracked(|name, lines, at| {
        name.ends_with(".rs") && name != "compare/src/git.rs" && lines[at].contains(&started)
    });
    expect_none(rust, "start git by `git::git(folder)` (compare/src/git.rs)");
    let scripts = tracked().into_iter().filter(|(name, text)| {
        let is_script = name.starts_with("scripts/") || name.starts_with(".ci/");
        let mut words = text.split(|c: char| c.is_whitespace() || "($|&;".contains(c));
        is_script
            && text.starts_with("#!/usr/bin/env bash")
            && words.any(|word| word == "git")
            && !text.contains(FORGETS)
    });
    expect_none(
        scripts.map(|(name, _)| name),
        &format!("a script that runs git begins with\n{FORGETS}"),
    );
}

/// What a script in bash begins with before it runs git.
const FORGETS: &str = r#"for name in "${!GIT_@}"; do
    [[ "$name" == GIT_EXEC_PATH ]] || unset "$name"
done"#;

#[test]
fn nothing_is_skipped_silently() {
    // Written in halves, or this file would be found.
    let [ignored, said] =
        ["#[_ignore", "println!(\"not _checked: "].map(|text| text.replace('_', ""));
    let found = lines_of_tracked(|name, lines, at| {
        let asserts_no_ci = || {
            let mut before = lines[at.saturating_sub(4)..at].iter();
            before.any(|line| line.contains("var_os(\"CI\")"))
        };
        let is_ignored = lines[at].trim_start().starts_with(&ignored);
        name.ends_with(".rs") && (is_ignored || lines[at].contains(&said) && !asserts_no_ci())
    });
    expect_none(
        found,
        "an ignored test, or one that says that it checks nothing and would pass so in CI: assert that CI is not set in the \
         statement before; a test of a GPU says that there is none, and passes",
    );
}

#[test]
fn tracked_files_name_no_machine() {
    // Written in halves, or this file would be found.
    let homes = ["/ho_me/", "/Us_ers/", "/ro_ot/", "/wo_rk/", "C:_\\Users"]
        .map(|home| home.replace('_', ""));
    let found = lines_of_tracked(|_, lines, at| {
        let line = lines[at];
        let is_start = |at: usize| {
            !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-})>/".contains(c))
        };
        let mut starts = homes
            .iter()
            .flat_map(|home| line.match_indices(home.as_str()));
        starts.any(|(at, _)| is_start(at))
    });
    expect_none(
        found,
        "absolute paths of one machine: write paths relative to the root",
    );
}

/// `scripts/explain-mutants` plants each for half a minute, and would stop at the first that it
/// cannot.
#[test]
fn every_mistake_that_explain_is_tried_on_can_be_planted() {
    let list = read(&root().join("compare/tests/explain/mutants.txt"));
    let lines = Vec::from_iter(
        list.lines()
            .filter(|line| line.starts_with(['=', '<', '>'])),
    );
    let entries = lines.chunks(3).map(|entry| match entry {
        [head, old, new]
            if head.starts_with("= ") && old.starts_with("< ") && new.starts_with("> ") =>
        {
            (
                *head,
                old[2..].replace("\\n", "\n"),
                new[2..].replace("\\n", "\n"),
            )
        }
        _ => panic!("an entry is '= ', '< ' and '> ': {entry:#?}"),
    });
    let entries = Vec::from_iter(entries);
    assert_eq!(entries.len(), 48, "docs/explain.md says of how many");
    let cannot = entries.iter().filter(|(head, old, new)| {
        let [_, stage, _, _, file] = head.split(' ').collect::<Vec<_>>()[..] else {
            return true;
        };
        let text = read(&root().join(file));
        old == new || text.matches(old).count() != 1 || !root().join(stage).is_dir()
    });
    expect_none(
        cannot,
        "this text stands once in no file: write what the kernel has in its place",
    );
}

/// Lines of tracked files that are wrong, by the file's name, its lines and the number of one, from
/// 0: "name:line".
fn lines_of_tracked(is_wrong: impl Fn(&str, &[&str], usize) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in tracked() {
        let lines: Vec<&str> = text.lines().collect();
        let wrong = (0..lines.len()).filter(|at| is_wrong(&name, &lines, *at));
        found.extend(wrong.map(|at| format!("{name}:{}", at + 1)));
    }
    found
}

/// The names of sessions in a text: a time, such as 20261121T163113Z, and a machine.
fn sessions_in(text: &str) -> impl Iterator<Item = &str> {
    let is_named = |word: &&str| {
        let form = word.replace(|c: char| c.is_ascii_digit(), "0");
        form.starts_with("00000000T000000Z")
    };
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(is_named)
}

#[test]
fn pages_name_sessions_that_the_tables_have() {
    let words = "of `20261121T163113Z-nvidia-h200`, and 2026-11-21T163113Z.";
    let found: Vec<&str> = sessions_in(words).collect();
    assert_eq!(found, ["20261121T163113Z-nvidia-h200"]);
    let tables = files_below(&root().join("results"), &|path| {
        path.ends_with("sessions.jsonl")
    });
    let tables: String = tables.iter().map(|path| read(path)).collect();
    for (name, text) in tracked().iter().filter(|(name, _)| name.ends_with(".md")) {
        for session in sessions_in(text) {
            assert!(
                tables.contains(&format!("{{\"session\":\"{session}\",")),
                "{name} names {session}, of which results/ has no row: give figures of a session that it has"
            );
        }
    }
}

#[test]
fn links_lead_to_files_of_the_repository() {
    let mut dead = Vec::new();
    for (name, text) in tracked().iter().filter(|(name, _)| name.ends_with(".md")) {
        let prose: String = text.split("```").step_by(2).collect();
        let targets = prose
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        let files = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
        let folder = root().join(name).parent().unwrap().to_path_buf();
        let is_dead = |file: &&str| !file.contains("://") && !folder.join(file).exists();
        dead.extend(files.filter(is_dead).map(|file| format!("{name}: {file}")));
    }
    expect_none(dead, "links to files that do not exist");
}

/// What a file of a crate imports from the crate's root, by path in `use` or in the code: the first
/// name of each path. Tests and comments are left out. `depth` is how many modules the file lies
/// below the root.
fn imports(text: &str, depth: usize) -> BTreeSet<String> {
    let program = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let mut in_comment = false;
    let code: String = program
        .lines()
        .flat_map(|line| code_of(line, &mut in_comment).chars().collect::<Vec<_>>())
        .collect();
    let code: String = code
        .replace(&"super::".repeat(depth), "crate::")
        .split_whitespace()
        .collect();
    let name = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(name(rest));
            continue;
        };
        let mut open = 0;
        let is_own = |c: char| {
            open += i32::from(c == '{') - i32::from(c == '}');
            open == 0 && c == ','
        };
        let end = group.find(';').unwrap_or(group.len());
        found.extend(
            group[..end]
                .split(is_own)
                .map(name)
                .filter(|name| !name.is_empty()),
        );
    }
    found
}

#[test]
fn imports_are_found() {
    let found = |text: &str, depth| {
        imports(text, depth)
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (text, expected) in [
        ("use crate::judge::{best, cli};", "judge"),
        (
            "use crate::{\n    cli::{Cli, RunArgs},\n    record,\n};",
            "cli record",
        ),
        ("fn f(of: &crate::run::Finished) {}", "run"),
        ("use super::super::select;", "select"),
        ("use super::row; use common::metric; // crate::cli", ""),
        (
            "use crate::record;\n#[cfg(test)]\nmod tests {\n    use crate::cli;\n}",
            "record",
        ),
    ] {
        assert_eq!(found(text, 2), expected, "{text}");
    }
    assert_eq!(found("pub use super::cli;", 1), "cli");
}

/// The files of the program in `folder` of compare/src, without tests, and what each imports from
/// it.
fn program_imports(folder: &str) -> Vec<(PathBuf, BTreeSet<String>)> {
    let source = root().join("compare/src");
    let is_program = |path: &Path| {
        let is_test = |part: &str| ["tests", "tests.rs", "testing", "testing.rs"].contains(&part);
        path.extension().is_some_and(|extension| extension == "rs")
            && !path.iter().any(|part| is_test(&part.to_string_lossy()))
    };
    let files = files_below(&source.join(folder), &is_program).into_iter();
    let imported = files.map(|path| {
        let file = path.strip_prefix(&source).unwrap().to_path_buf();
        let depth = file.iter().count() - usize::from(file.ends_with("mod.rs"));
        (file, imports(&read(&path), depth))
    });
    imported.collect()
}

/// The modules of the commands: what `main` dispatches to, `run::run(&args)`.
fn commands(main: &str) -> BTreeSet<String> {
    let arms = main.lines().filter_map(|line| {
        let (_, call) = line.trim().strip_prefix("Command::")?.split_once(" => ")?;
        let (module, function) = call.strip_suffix("(&args),")?.split_once("::")?;
        (module == function).then(|| module.to_string())
    });
    arms.collect()
}

#[test]
fn no_command_is_imported() {
    let commands = commands(&read(&root().join("compare/src/main.rs")));
    assert!(
        commands.len() >= 10 && commands.contains("run"),
        "main.rs was not understood: {commands:?}"
    );
    let mut found = BTreeSet::new();
    for (file, imported) in program_imports("") {
        if file == Path::new("main.rs") || file == Path::new("cli.rs") {
            continue;
        }
        let own = file.iter().next().unwrap().to_string_lossy();
        let own = own.trim_end_matches(".rs");
        let others = imported.intersection(&commands).filter(|name| *name != own);
        found.extend(others.map(|name| (file.display().to_string(), name.clone())));
    }
    expect_none(
        found,
        "a command is imported: move what both need into a room below the commands",
    );
}

#[test]
fn no_room_imports_one_before_it() {
    let mut found = BTreeSet::new();
    for (room, may) in ROOMS {
        for (file, imported) in program_imports(room) {
            let back = imported
                .into_iter()
                .filter(|name| name != room && !may.split(' ').any(|other| other == name));
            found.extend(back.map(|name| (file.display().to_string(), name)));
        }
    }
    expect_none(
        found,
        "a room imports one that `ROOMS` does not allow it: hand over what is needed as data, or move what both need into a room that \
         both may import",
    );
}

/// Each row of the page's table: a room, and what it may import.
#[test]
fn architecture_names_what_a_room_may_import() {
    let page = read(&root().join("ARCHITECTURE.md"));
    for (room, may) in ROOMS {
        let start = format!("| `{room}/` | ");
        let row = page
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap_or_else(|| panic!("ARCHITECTURE.md has no row of {room}/"));
        let (imports, _) = row.split_once(" | ").expect("three columns");
        let expected = match may {
            "" => "none".to_string(),
            may => may
                .split(' ')
                .map(|other| format!("`{other}`"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        assert_eq!(imports, expected, "ARCHITECTURE.md, what {room}/ imports");
    }
}

/// The page is what `explain` and people look up: every planted fault and every kind of hazard has
/// its row.
#[test]
fn every_fault_and_hazard_has_a_row_among_the_symptoms() {
    let page = read(&root().join("docs/symptoms.md"));
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| ")?.split_once(" | ")?.0))
        .collect();
    let detectors = read(&root().join("common/emulator/DETECTORS.md"));
    let reported = detectors.lines().filter_map(|line| {
        let cell = line.strip_prefix("| ")?.split(" | ").nth(1)?;
        Some(cell.split(", `").next()?.to_string())
    });
    let kinds: BTreeSet<String> = reported.filter(|kind| kind != "reported as").collect();
    assert!(
        kinds.len() >= 11,
        "DETECTORS.md was not understood: {kinds:?}"
    );
    let faults = common::faults::Fault::ALL.map(|fault| fault.name().to_string());
    let names = kinds.into_iter().chain(faults);
    expect_none(
        names.filter(|name| !rows.contains(&name.as_str())),
        "docs/symptoms.md lacks a row for these",
    );
}
