//! The emulated build: kernel.cu, compiled by the host's C++ compiler against the emulator's headers.

use crate::depfile;
use crate::error::BuildError;
use crate::report::HostCompiler;
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) struct Job<'a> {
    pub root: &'a Path,
    /// Cargo's `OUT_DIR`.
    pub out_dir: &'a Path,
    /// `stage0_scalar`.
    pub prefix: &'a str,
    pub kernel: &'a Path,
    /// Include folders, the emulator's before the device's.
    pub includes: &'a [&'a Path],
    /// Whether kernels are compiled; else the table of constants alone.
    pub runs: bool,
}

pub(crate) struct Done {
    pub compiler: HostCompiler,
    /// Every file that the compiler read.
    pub compiled: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    Plain,
    /// Calls the emulator before every access: for hazards and counters.
    Traced,
    /// The table of constants without kernels, for programs that link no emulator.
    Table,
}

/// With -O1 they keep one access of the source one access of the program. The linker is told of no sanitizer: the emulator
/// has functions of its own in place of their libraries.
pub const TRACED_FLAGS: [&str; 7] = [
    "-DEMULATOR_TRACED",
    "-fsanitize=thread",
    "-fsanitize=bounds",
    "-fno-tree-sra",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
    "-Wno-deprecated-copy",
];

const TABLE_FLAG: &str = "-DATTN_TABLE_ALONE";

/// Of every function and variable of the emulator.
const EMULATOR_PREFIX: &str = "emulator_";

/// Compiles, isolates and archives, plain and traced, or the table alone; cargo links the archives.
pub(crate) fn build(job: &Job) -> Result<Done, BuildError> {
    let plain = if job.runs {
        Flavour::Plain
    } else {
        Flavour::Table
    };
    let tool = tool(plain)?;
    let compiler = describe(&tool)?;
    if job.runs && !tool.is_like_gnu() {
        return Err(BuildError::NotGcc(compiler.description));
    }
    let mut compiled = build_flavour(job, &tool, plain)?;
    if job.runs {
        let traced = self::tool(Flavour::Traced)?;
        compiled.extend(build_flavour(job, &traced, Flavour::Traced)?);
    }
    Ok(Done { compiler, compiled })
}

/// What is known without compiling anything.
pub(crate) fn not_built() -> Result<Done, BuildError> {
    Ok(Done {
        compiler: describe(&tool(Flavour::Plain)?)?,
        compiled: vec![],
    })
}

fn tool(flavour: Flavour) -> Result<cc::Tool, BuildError> {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(if flavour == Flavour::Traced { 1 } else { 2 })
        .debug(false) // would add -g by the profile; -g1 (lines, for hazard reports) is always wanted
        .flag("-g1")
        .flag("-ffp-contract=off")
        .warnings(false);
    let own: &[&str] = match flavour {
        Flavour::Plain => &[],
        Flavour::Traced => &TRACED_FLAGS,
        Flavour::Table => &[TABLE_FLAG],
    };
    own.iter().for_each(|flag| _ = build.flag(flag));
    Ok(build.try_get_compiler()?)
}

/// Returns every file that the compiler read.
fn build_flavour(job: &Job, tool: &cc::Tool, flavour: Flavour) -> Result<Vec<PathBuf>, BuildError> {
    let library = match flavour {
        Flavour::Plain => format!("{}_emulated", job.prefix),
        Flavour::Traced => format!("{}_traced", job.prefix),
        Flavour::Table => format!("{}_table", job.prefix),
    };
    let exported = match flavour {
        Flavour::Plain | Flavour::Table => table_symbol(job.prefix),
        Flavour::Traced => traced_table_symbol(job.prefix),
    };
    let wrapper = job.out_dir.join(format!("{library}.cpp"));
    let source = wrapper_source(job.prefix, &exported, job.kernel);
    std::fs::write(&wrapper, source).map_err(BuildError::io("write", &wrapper))?;
    let (object, depfile) = (wrapper.with_extension("raw.o"), wrapper.with_extension("d"));

    let mut compile = tool.to_command();
    if tool.is_like_gnu() {
        // Without it, static locals of inline functions become unique symbols, which no tool makes local again.
        compile.arg("-fno-gnu-unique");
    }
    for folder in job.includes {
        compile.arg("-I").arg(folder);
    }
    compile
        .args(["-include", "emulator/prelude.h"])
        .arg(format!("-ffile-prefix-map={}=.", job.root.display()));
    compile
        .args(["-MD", "-MF"])
        .arg(&depfile)
        .args(["-x", "c++", "-c"])
        .arg(&wrapper)
        .arg("-o")
        .arg(&object);
    compile.current_dir(job.root);
    run(&mut compile, "the C++ compiler", "kernel.cu, emulated")?;

    let isolated = isolate(tool, &object, &exported)?;
    if flavour == Flavour::Table {
        holds_no_emulated_code(&isolated, &exported)?;
    }
    cc::Build::new()
        .cpp(true)
        .object(&isolated)
        .try_compile(&library)?;

    let text = std::fs::read_to_string(&depfile).map_err(BuildError::io("read", &depfile))?;
    Ok(depfile::prerequisites(&text))
}

/// Returns the stage's table.
pub(crate) fn table_symbol(prefix: &str) -> String {
    format!("{prefix}_kernels")
}

/// Returns that of the traced build.
pub(crate) fn traced_table_symbol(prefix: &str) -> String {
    format!("{prefix}_traced_kernels")
}

fn wrapper_source(prefix: &str, table: &str, kernel: &Path) -> String {
    format!(
        "// Written by kernel-build.\n\
         #define ATTN_STAGE {prefix}\n\
         #include \"{}\"\n\
         #ifdef ATTN_MAPPED_INSTANCE\n\
         #define ATTN_MAPS attention_maps\n\
         #else\n\
         #define ATTN_MAPS nullptr\n\
         #endif\n\
         #ifdef ATTN_CLUSTER_VARIANT\n\
         #define ATTN_CLUSTERS attention_clusters\n\
         #else\n\
         #define ATTN_CLUSTERS nullptr\n\
         #endif\n\
         extern \"C\" const AttentionKernel *{table}(int32_t *count, const struct AttentionMaps **maps, \
             const int32_t **clusters) {{\n    \
             *count = attention_table.count;\n    \
             *maps = ATTN_MAPS;\n    \
             *clusters = ATTN_CLUSTERS;\n    \
             return attention_table.kernels;\n\
         }}\n",
        kernel.display()
    )
}

/// Makes every symbol but `exported` local. All stages end up in one program, where the linker keeps one of equally named
/// inline functions and templates: two stages' kernels could silently become one. COMDAT groups are folded first, or their
/// symbols could not become local. All code goes into one section, by which the emulator knows kernels from the rest of the
/// program.
fn isolate(tool: &cc::Tool, object: &Path, exported: &str) -> Result<PathBuf, BuildError> {
    let isolated = object.with_file_name(format!("{exported}.o"));
    let script = object.with_extension("ld");
    std::fs::write(
        &script,
        "SECTIONS { attn_kernels : { *(.text .text.*) } }\n",
    )
    .map_err(BuildError::io("write", &script))?;
    let mut link = Command::new(tool.path());
    link.args(["-r", "-nostdlib", "-Wl,--force-group-allocation"])
        .arg("-T")
        .arg(&script)
        .arg(object)
        .arg("-o")
        .arg(&isolated);
    run(&mut link, "the linker (ld -r)", "the emulated object")?;
    let mut localise =
        Command::new(std::env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into()));
    localise
        .arg(format!("--keep-global-symbol={exported}"))
        .arg(&isolated);
    run(&mut localise, "objcopy", "the emulated object")?;

    let bytes = std::fs::read(&isolated).map_err(BuildError::io("read", &isolated))?;
    let symbols = foreign_symbols(&bytes, exported).map_err(|source| BuildError::Object {
        what: exported.into(),
        source,
    })?;
    if symbols.is_empty() {
        Ok(isolated)
    } else {
        Err(BuildError::ForeignSymbols {
            stage: exported.into(),
            symbols,
        })
    }
}

/// Defined for others by `object`, `exported` aside.
fn foreign_symbols(object: &[u8], exported: &str) -> Result<Vec<String>, object::Error> {
    let file = object::File::parse(object)?;
    let mut names = Vec::new();
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.is_definition() && !symbol.is_local())
    {
        names.push(symbol.name()?.to_string());
    }
    names.retain(|name| name != exported);
    Ok(names)
}

/// Refuses a table that calls the emulator: somewhere a kernel was compiled, and the program would not link.
fn holds_no_emulated_code(object: &Path, exported: &str) -> Result<(), BuildError> {
    let bytes = std::fs::read(object).map_err(BuildError::io("read", object))?;
    let unreadable = |source| BuildError::Object {
        what: exported.into(),
        source,
    };
    let file = object::File::parse(&*bytes).map_err(unreadable)?;
    let mut symbols = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_undefined()) {
        let name = symbol.name().map_err(unreadable)?;
        if name.contains(EMULATOR_PREFIX) {
            symbols.push(name.to_string());
        }
    }
    if symbols.is_empty() {
        Ok(())
    } else {
        Err(BuildError::EmulatedCode {
            stage: exported.into(),
            symbols,
        })
    }
}

fn describe(tool: &cc::Tool) -> Result<HostCompiler, BuildError> {
    let ask = |flag: &str| {
        run(
            Command::new(tool.path()).arg(flag),
            "the C++ compiler",
            flag,
        )
    };
    let version = ask("-dumpversion")?;
    let major = String::from_utf8_lossy(&version.stdout)
        .trim()
        .split('.')
        .next()
        .and_then(|text| text.parse().ok());
    let description = ask("--version")?.stdout;
    let description = String::from_utf8_lossy(&description)
        .lines()
        .next()
        .unwrap_or_default()
        .to_string();
    Ok(HostCompiler { major, description })
}

/// An error carries all that `command` printed.
pub(crate) fn run(command: &mut Command, tool: &str, what: &str) -> Result<Output, BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| BuildError::Start {
        tool: format!("{tool} '{program}'"),
        remedy: "install it (Debian: g++ and binutils) or name it in CXX, OBJCOPY or NVCC",
        source,
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat();
    Err(BuildError::Tool {
        tool: tool.into(),
        what: what.into(),
        status: output.status.to_string(),
        output: said,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(folder: &Path, text: &str) -> PathBuf {
        let (source, object) = (folder.join("a.cpp"), folder.join("a.raw.o"));
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new(plain_tool().path());
        command
            .args(["-O0", "-std=c++17", "-fno-gnu-unique", "-c"])
            .arg(&source)
            .arg("-o")
            .arg(&object);
        run(&mut command, "c++", "test").unwrap();
        object
    }

    /// Without cargo's environment.
    fn plain_tool() -> cc::Tool {
        let target = "x86_64-unknown-linux-gnu";
        cc::Build::new()
            .cpp(true)
            .cargo_metadata(false)
            .target(target)
            .host(target)
            .opt_level(0)
            .get_compiler()
    }

    const KERNELS: &str = "template <class T> __attribute__((noinline)) int twice(T x) { return 2 * x + VALUE; }\n\
                           inline int &counter() { static int count = VALUE; return count; }\n\
                           inline int variable = VALUE;\n\
                           int offender(int x) { return x; }\n\
                           namespace { int hidden(int x) { return twice(x) + counter() + variable; } }\n\
                           extern \"C\" int table(int x) { return hidden(offender(x)); }\n";

    #[test]
    fn offending_globals_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(compile(folder.path(), &KERNELS.replace("VALUE", "1"))).unwrap();
        let mut foreign = foreign_symbols(&bytes, "table").unwrap();
        foreign.sort();
        assert_eq!(
            foreign,
            [
                "_Z5twiceIiEiT_",
                "_Z7counterv",
                "_Z8offenderi",
                "_ZZ7countervE5count",
                "variable"
            ]
        );
    }

    #[test]
    fn isolated_stages_keep_their_own_functions() {
        let folder = tempfile::tempdir().unwrap();
        let mut link = Command::new(plain_tool().path());
        for (value, name) in [("1", "one"), ("1000", "two")] {
            let object = compile(
                folder.path(),
                &KERNELS.replace("VALUE", value).replace("table", name),
            );
            link.arg(isolate(&plain_tool(), &object, name).unwrap());
        }
        let main = "extern \"C\" int one(int); extern \"C\" int two(int);\n\
                    int main() { return !(one(5) == 13 && two(5) == 3010); }\n";
        let program = folder.path().join("program");
        run(
            link.arg(compile(folder.path(), main))
                .arg("-o")
                .arg(&program),
            "c++",
            "linking",
        )
        .unwrap();
        run(&mut Command::new(program), "the program", "two stages").unwrap();
    }

    #[test]
    fn a_table_that_calls_the_emulator_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let calls = "extern \"C\" void emulator_barrier(); extern \"C\" void table() { emulator_barrier(); }\n";
        let error = holds_no_emulated_code(&compile(folder.path(), calls), "table").unwrap_err();
        let BuildError::EmulatedCode { symbols, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(symbols, ["emulator_barrier"]);
        let mangled =
            "void emulator_barrier(); extern \"C\" void table() { emulator_barrier(); }\n";
        holds_no_emulated_code(&compile(folder.path(), mangled), "table").unwrap_err();
        let plain = "extern \"C\" int table() { return 1; }\n";
        holds_no_emulated_code(&compile(folder.path(), plain), "table").unwrap();
    }

    #[test]
    fn a_failing_compiler_is_quoted() {
        let error = run(
            Command::new("sh").args(["-c", "echo told; echo why >&2; exit 3"]),
            "sh",
            "x",
        )
        .unwrap_err();
        let BuildError::Tool { output, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(output, "told\nwhy\n");
    }
}
