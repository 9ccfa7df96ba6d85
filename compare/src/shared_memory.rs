//! The buffers of a kernel's `Shared` struct, as the C++ compiler lays them out: it is asked by a
//! program that includes kernel.cu, whose kernels it does not compile.

use anyhow::Context;
use measure::instrument::process::Scratch;
use pages::shared::{Buffer, Layout};
use results::judge::list::distinct;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The reason why the layout of shared memory cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    #[error("cannot read {path}: {source}; shared memory is read from the sources")]
    Source {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot run {program}: {source}; install g++, or name a C++ compiler in CXX")]
    Compiler {
        program: String,
        source: std::io::Error,
    },
    #[error("{program} does not compile {stage}/kernel.cu: {message}")]
    Compile {
        program: String,
        stage: String,
        message: String,
    },
    #[error("the layout of {stage} was not understood: '{line}'")]
    Answer { stage: String, line: String },
}

/// Reads the layouts of a stage of the workspace at `root`.
pub fn layouts(root: &Path, stage: &str) -> anyhow::Result<Vec<Layout>> {
    let kernel = root.join(stage).join("kernel.cu");
    let text = std::fs::read_to_string(&kernel).map_err(|source| SharedError::Source {
        path: kernel.clone(),
        source,
    })?;
    let scratch = Scratch::new("shared")?;
    let source = scratch.write(
        "shared.cpp",
        probe_source(&members(&text), &kernel).as_bytes(),
    )?;
    let program = scratch.path("shared");
    compile(root, stage, &source, &program)?;
    let output = Command::new(&program).output().with_context(|| {
        format!(
            "cannot run {}; set TMPDIR to a folder for programs",
            program.display()
        )
    })?;
    Ok(parse(stage, &String::from_utf8_lossy(&output.stdout))?)
}

fn compile(root: &Path, stage: &str, source: &Path, program: &Path) -> Result<(), SharedError> {
    let variable = std::env::var("CXX").unwrap_or_default();
    let mut words = variable.split_whitespace();
    let compiler = words.next().unwrap_or("c++");
    let include = |folder: &str| format!("-I{}", root.join(folder).display());
    let output = Command::new(compiler)
        .args(words)
        .args(["-std=c++17", "-O0", "-w", "-include", "emulator/prelude.h"])
        .arg(include("common/emulator/include"))
        .arg(include("common/cuda"))
        .args(["-x", "c++"])
        .arg(source)
        .arg("-o")
        .arg(program)
        .output()
        .map_err(|error| SharedError::Compiler {
            program: compiler.to_string(),
            source: error,
        })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let first = message.lines().find(|line| line.contains("error"));
    Err(SharedError::Compile {
        program: compiler.to_string(),
        stage: stage.to_string(),
        message: first.unwrap_or_default().to_string(),
    })
}

/// The begin of the program. It replaces the record that the table of kernels has of an instance by
/// one that prints the buffers of its `Shared`.
const PROLOGUE: &str = r#"// Written by compare.
#define ATTN_STAGE shared
#define ATTN_TABLE_ALONE
#include <attn/variant.cuh>
#include <cstdio>
#include <type_traits>
#undef ATTN_RECORD
#define ATTN_RECORD(type, name, ...)
#undef ATTN_INSTANCE_RECORD
#define ATTN_INSTANCE_RECORD(family, name, suffix, dtype, dim, ...) \
    static const Instance<__VA_ARGS__::Shared> buffers_##name##suffix(#name #suffix);
#define PART(member) \
    template <class Whole, class = void> \
    struct Part_##member { static void print(const char *, const char *, size_t) {} }; \
    template <class Whole> \
    struct Part_##member<Whole, std::void_t<decltype(Whole::member)>> { \
        static void print(const char *instance, const char *whole, size_t count) { \
            std::printf("%s %s." #member " %zu\n", instance, whole, count * sizeof(Whole::member)); \
        } \
    };
PART(k)
PART(v)
#define BUFFER(member) \
    template <class Shared, class = void> \
    struct Buffer_##member { static void print(const char *) {} }; \
    template <class Shared> \
    struct Buffer_##member<Shared, std::void_t<decltype(Shared::member)>> { \
        static void print(const char *instance) { \
            using Element = std::remove_all_extents_t<decltype(Shared::member)>; \
            const size_t bytes = sizeof(Shared::member), count = bytes / sizeof(Element); \
            std::printf("%s " #member " %zu\n", instance, bytes); \
            Part_k<Element>::print(instance, #member, count); \
            Part_v<Element>::print(instance, #member, count); \
        } \
    };
"#;

/// Returns the program that prints `INSTANCE BUFFER BYTES`, and of all buffers of an instance
/// `INSTANCE . BYTES`.
fn probe_source(members: &[String], kernel: &Path) -> String {
    let mut text = PROLOGUE.to_string();
    let mut prints = String::new();
    for member in members {
        let _ = writeln!(text, "BUFFER({member})");
        let _ = writeln!(prints, "        Buffer_{member}<Shared>::print(instance);");
    }
    let _ = writeln!(
        text,
        "template <class Shared>\nstruct Instance {{\n\
         \x20   explicit Instance(const char *instance) {{\n{prints}\
         \x20       std::printf(\"%s . %zu\\n\", instance, sizeof(Shared));\n    }}\n}};\n\
         #include \"{}\"\nint main() {{}}",
        kernel.display()
    );
    text
}

/// Returns the names of the members of each `struct Shared` of a kernel.cu.
fn members(text: &str) -> Vec<String> {
    let mut code = String::new();
    for line in text.lines() {
        code += line.split("//").next().unwrap_or_default();
        code.push('\n');
    }
    let mut names = Vec::new();
    for body in code.split("struct Shared {").skip(1) {
        let end = closing_brace(body).unwrap_or(body.len());
        for statement in body[..end].split([';', '{', '}']) {
            names.extend(declared_names(statement));
        }
    }
    distinct(names)
}

/// Returns the names that a statement declares; none if it has no type and name.
fn declared_names(statement: &str) -> Vec<String> {
    let declaration = strip_brackets(statement);
    if declaration.split_whitespace().count() < 2 {
        return vec![];
    }
    declaration
        .split(',')
        .filter_map(|declarator| declarator.split_whitespace().last())
        .map(String::from)
        .collect()
}

/// Returns the place where the brace closes that is open at the start.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (position, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(position);
        }
    }
    None
}

/// Returns a declaration without what stands in brackets of any kind.
fn strip_brackets(declaration: &str) -> String {
    let mut stripped = String::new();
    let mut depth = 0_usize;
    for character in declaration.chars() {
        match character {
            '<' | '[' | '(' => depth += 1,
            '>' | ']' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => stripped.push(character),
            _ => {}
        }
    }
    stripped
}

fn parse(stage: &str, printed: &str) -> Result<Vec<Layout>, SharedError> {
    let mut layouts = Vec::new();
    let mut buffers = Vec::new();
    for line in printed.lines() {
        let misread = || SharedError::Answer {
            stage: stage.to_string(),
            line: line.to_string(),
        };
        let [instance, name, size] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(misread());
        };
        let bytes = size.parse().map_err(|_| misread())?;
        if name == "." {
            layouts.push(Layout {
                instance: instance.to_string(),
                buffers: std::mem::take(&mut buffers),
                bytes,
            });
        } else {
            buffers.push(Buffer {
                name: name.to_string(),
                bytes,
            });
        }
    }
    Ok(layouts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_a_struct_are_its_declarators() {
        let text = "struct Shared {\n\
            alignas(128) half q[BLOCK_M][PITCH]; // [BLOCK_M, HEAD_DIM], x y;\n\
            KvRing k, v;\n\
            std::conditional_t<PARTS == 2, attn::KeyPart<HEAD_DIM / 2>, Empty> second[GROUPS];\n\
            union {\n Ring ring;\n Partial partial;\n };\n\
            attn::Mbarrier full[STAGES];\n};\nstruct Other { int other; };";
        let names = members(text);
        assert_eq!(names, ["q", "k", "v", "second", "ring", "partial", "full"]);
    }

    /// The sum is what kernel.cu declares, and what a launch asks for.
    #[test]
    fn every_instance_has_its_buffers_and_their_declared_sum() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .canonicalize()
            .unwrap();
        for stage in stages::builds().unwrap() {
            let layouts = layouts(&root, &stage.id).unwrap();
            let kernels = stage.variants.iter().flat_map(|variant| &variant.kernels);
            for facts in kernels.map(|kernel| &kernel.facts) {
                let symbol = &facts.symbol;
                let layout = layouts
                    .iter()
                    .find(|layout| symbol.ends_with(&format!("_{}", layout.instance)))
                    .unwrap_or_else(|| panic!("{symbol}"));
                assert_eq!(layout.bytes, facts.dynamic_shared_bytes, "{symbol}");
                let has_tiles = layout
                    .buffers
                    .iter()
                    .any(|buffer| ["q", "k", "ring", "rings", "parts"].contains(&&*buffer.name));
                assert!(has_tiles, "{layout:?}");
            }
        }
    }

    #[test]
    fn a_stage_without_sources_is_an_error_that_says_what_is_read() {
        let error = layouts(Path::new("/nowhere"), "stage0-scalar").unwrap_err();
        let start = "cannot read /nowhere/stage0-scalar/kernel.cu: ";
        assert!(error.to_string().starts_with(start), "{error}");
    }

    #[test]
    fn a_line_that_is_no_buffer_is_shown() {
        let error = parse("stage0-scalar", "a q\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the layout of stage0-scalar was not understood: 'a q'"
        );
    }
}
