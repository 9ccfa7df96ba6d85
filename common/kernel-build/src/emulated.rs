//! The emulated build: kernel.cu, compiled by the host's C++ compiler against the emulator's
//! headers.

use crate::depfile;
use crate::error::BuildError;
use crate::host::host_build;
use crate::parallel;
use crate::report::HostCompiler;
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A stage to compile.
pub(crate) struct Job<'a> {
    pub root: &'a Path,
    /// Cargo's `OUT_DIR`.
    pub out_dir: &'a Path,
    /// The name that symbols begin with: `stage0_scalar`.
    pub prefix: &'a str,
    pub kernel: &'a Path,
    /// Include folders, the emulator's before the device's.
    pub includes: &'a [&'a Path],
    /// Whether kernels are compiled; else the table of constants alone.
    pub has_kernels: bool,
}

/// A finished emulated build.
pub(crate) struct Done {
    pub compiler: HostCompiler,
    /// Every file that the compiler read.
    pub compiled: Vec<PathBuf>,
}

/// One of the ways to compile a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    Plain,
    /// Calls the emulator before every access: for hazards and counters.
    Traced,
    /// The table of constants without kernels, for programs that link no emulator.
    Table,
}

/// The flags of the traced build. With -O1 the first ones keep one access of the source one access
/// of the program. The linker links no sanitizer: the emulator has functions of its own in place of
/// their libraries, which learn from frame pointers what called the function that accesses. The last
/// flags switch off passes that come after the one that inserts the calls: they change no access,
/// and code that mostly calls is not faster by them.
pub const TRACED_FLAGS: [&str; 19] = [
    "-DEMULATOR_TRACED",
    "-fsanitize=thread",
    "-fsanitize=bounds",
    "-fno-omit-frame-pointer",
    "-fno-tree-sra",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
    "-Wno-deprecated-copy",
    "-fira-region=one",
    "-fno-cprop-registers",
    "-fno-dce",
    "-fno-dse",
    "-fno-forward-propagate",
    "-fno-if-conversion",
    "-fno-if-conversion2",
    "-fno-ivopts",
    "-fno-move-loop-invariants",
    "-fno-shrink-wrap",
    "-fno-tree-ter",
];

const TABLE_FLAG: &str = "-DATTN_TABLE_ALONE";

/// The prefix of every function and variable of the emulator.
const EMULATOR_PREFIX: &str = "emulator_";

/// Compiles, isolates and archives, plain and traced, or the table alone; cargo links the archives.
pub(crate) fn build(job: &Job) -> Result<Done, BuildError> {
    // The traced kernels first: they take the longest.
    let flavours: &[Flavour] = if job.has_kernels {
        &[Flavour::Traced, Flavour::Plain]
    } else {
        &[Flavour::Table]
    };
    let mut libraries = Vec::new();
    for &flavour in flavours {
        libraries.push(Library::new(job, flavour)?);
    }
    let tool = &libraries[0].tool;
    let compiler = describe(tool)?;
    if job.has_kernels && !tool.is_like_gnu() {
        return Err(BuildError::NotGcc(compiler.description));
    }

    let mut translations = Vec::new();
    for library in &libraries {
        for translation in &library.translations {
            translations.push((translation, &library.tool));
        }
    }
    parallel::try_map(&translations, |(translation, library_tool)| {
        translation.compile(job, library_tool)
    })?;

    let mut compiled = Vec::new();
    for library in &libraries {
        library.archive()?;
        for translation in &library.translations {
            compiled.extend(translation.prerequisites()?);
        }
    }
    Ok(Done { compiler, compiled })
}

/// Returns what is known without compiling anything.
pub(crate) fn not_built() -> Result<Done, BuildError> {
    Ok(Done {
        compiler: describe(&tool(Flavour::Plain)?)?,
        compiled: vec![],
    })
}

fn tool(flavour: Flavour) -> Result<cc::Tool, BuildError> {
    let mut build = host_build();
    build
        .std("c++17")
        .opt_level(1)
        // The profile would add -g; -g1 (lines, for hazard reports) is always wanted.
        .debug(false)
        .flag("-g1")
        .flag("-ffp-contract=off")
        .warnings(false);
    let own: &[&str] = match flavour {
        Flavour::Plain => &[],
        Flavour::Traced => &TRACED_FLAGS,
        Flavour::Table => &[TABLE_FLAG],
    };
    for flag in own {
        build.flag(flag);
    }
    Ok(build.try_get_compiler()?)
}

/// One flavour of a stage's kernels, as cargo links it.
struct Library {
    flavour: Flavour,
    tool: cc::Tool,
    name: String,
    /// The function that hands out the table: the one symbol that others see.
    exported: String,
    translations: Vec<Translation>,
}

impl Library {
    /// Writes the sources.
    fn new(job: &Job, flavour: Flavour) -> Result<Self, BuildError> {
        let (suffix, exported) = match flavour {
            Flavour::Plain => ("emulated", table_symbol(job.prefix)),
            Flavour::Traced => ("traced", traced_table_symbol(job.prefix)),
            Flavour::Table => ("table", table_symbol(job.prefix)),
        };
        let name = format!("{}_{suffix}", job.prefix);
        let units: &[Unit] = match flavour {
            Flavour::Plain | Flavour::Traced => &Unit::ALL,
            Flavour::Table => &[Unit::Table],
        };
        let mut translations = Vec::new();
        for &unit in units {
            translations.push(Translation::write(job, unit, &name, &exported)?);
        }
        Ok(Self {
            flavour,
            tool: tool(flavour)?,
            name,
            exported,
            translations,
        })
    }

    fn archive(&self) -> Result<(), BuildError> {
        let objects: Vec<PathBuf> = self.translations.iter().map(Translation::object).collect();
        let isolated = isolate(&self.tool, &objects, &self.exported)?;
        if self.flavour == Flavour::Table {
            holds_no_emulated_code(&isolated, &self.exported)?;
        }
        cc::Build::new()
            .cpp(true)
            .object(&isolated)
            .try_compile(&self.name)?;
        Ok(())
    }
}

/// The part of kernel.cu that one translation unit compiles: the kernels of one element type, or
/// the table that names them all. A stage's units are compiled side by side, so that a build keeps
/// its cores busy to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Table,
    F16,
    E4m3,
    Bf16,
}

impl Unit {
    /// The slowest first: the conversions of E4M3 are the most code.
    const ALL: [Unit; 4] = [Unit::E4m3, Unit::F16, Unit::Bf16, Unit::Table];

    /// Returns the macro that selects the unit in `attn/variant.cuh`.
    fn definition(self) -> &'static str {
        match self {
            Unit::Table => "ATTN_UNIT_TABLE",
            Unit::F16 => "ATTN_UNIT_F16",
            Unit::E4m3 => "ATTN_UNIT_E4M3",
            Unit::Bf16 => "ATTN_UNIT_BF16",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Table => "table",
            Unit::F16 => "f16",
            Unit::E4m3 => "e4m3",
            Unit::Bf16 => "bf16",
        }
    }
}

/// A generated source file and what becomes of it.
struct Translation {
    unit: Unit,
    source: PathBuf,
}

impl Translation {
    /// Writes the source that includes kernel.cu.
    fn write(job: &Job, unit: Unit, library: &str, table: &str) -> Result<Self, BuildError> {
        let source = job.out_dir.join(format!("{library}_{}.cpp", unit.name()));
        let text = unit_source(unit, job.prefix, table, job.kernel);
        std::fs::write(&source, text).map_err(BuildError::io("write", &source))?;
        Ok(Self { unit, source })
    }

    fn object(&self) -> PathBuf {
        self.source.with_extension("raw.o")
    }

    fn depfile(&self) -> PathBuf {
        self.source.with_extension("d")
    }

    fn compile(&self, job: &Job, tool: &cc::Tool) -> Result<(), BuildError> {
        let mut compile = tool.to_command();
        if tool.is_like_gnu() {
            // Without it, static locals of inline functions become unique symbols, which no tool
            // makes local again.
            compile.arg("-fno-gnu-unique");
        }
        for folder in job.includes {
            compile.arg("-I").arg(folder);
        }
        compile
            .args(["-include", "emulator/prelude.h"])
            .arg(format!("-ffile-prefix-map={}=.", job.root.display()))
            .args(["-MD", "-MF"])
            .arg(self.depfile())
            .args(["-x", "c++", "-c"])
            .arg(&self.source)
            .arg("-o")
            .arg(self.object())
            .current_dir(job.root);
        let what = format!("kernel.cu, emulated, {}", self.unit.name());
        run(&mut compile, "the C++ compiler", &what)?;
        Ok(())
    }

    /// Returns every file that the compiler read.
    fn prerequisites(&self) -> Result<Vec<PathBuf>, BuildError> {
        let depfile = self.depfile();
        let text = std::fs::read_to_string(&depfile).map_err(BuildError::io("read", &depfile))?;
        Ok(depfile::prerequisites(&text))
    }
}

/// Returns the function that hands out the stage's table.
pub(crate) fn table_symbol(prefix: &str) -> String {
    format!("{prefix}_kernels")
}

/// Returns the function that hands out the table of the traced build.
pub(crate) fn traced_table_symbol(prefix: &str) -> String {
    format!("{prefix}_traced_kernels")
}

/// Returns the text of a translation unit. The table's also defines the function `table`, which
/// hands it out.
fn unit_source(unit: Unit, prefix: &str, table: &str, kernel: &Path) -> String {
    let included = format!(
        "// Written by kernel-build.\n\
         #define ATTN_STAGE {prefix}\n\
         #define {}\n\
         #include \"{}\"\n",
        unit.definition(),
        kernel.display()
    );
    match unit {
        Unit::Table => format!("{included}{}", table_source(table)),
        Unit::F16 | Unit::E4m3 | Unit::Bf16 => included,
    }
}

fn table_source(table: &str) -> String {
    format!(
        "#ifdef ATTN_MAPPED_INSTANCE\n\
         #define ATTN_MAPS attention_maps\n\
         #else\n\
         #define ATTN_MAPS nullptr\n\
         #endif\n\
         #ifdef ATTN_CLUSTER_VARIANT\n\
         #define ATTN_CLUSTERS attention_clusters\n\
         #else\n\
         #define ATTN_CLUSTERS nullptr\n\
         #endif\n\
         extern \"C\" const AttentionKernel *{table}(int32_t *count, \
             const struct AttentionMaps **maps, const int32_t **clusters) {{\n    \
             *count = attention_table.count;\n    \
             *maps = ATTN_MAPS;\n    \
             *clusters = ATTN_CLUSTERS;\n    \
             return attention_table.kernels;\n\
         }}\n"
    )
}

/// Links the objects of a stage into one and makes every symbol but `exported` local. All stages
/// end up in one program, where the linker keeps one of equally named inline functions and
/// templates: two stages' kernels could silently become one. COMDAT groups are folded first, or
/// their symbols could not become local.
fn isolate(tool: &cc::Tool, objects: &[PathBuf], exported: &str) -> Result<PathBuf, BuildError> {
    let isolated = objects[0].with_file_name(format!("{exported}.o"));
    gather(tool, objects, &isolated)?;
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

/// Links objects into one, all code in one section: by it the emulator knows kernels from the rest
/// of the program.
///
/// # Errors
/// A linker that is missing or fails.
pub fn gather(tool: &cc::Tool, objects: &[PathBuf], gathered: &Path) -> Result<(), BuildError> {
    let script = gathered.with_extension("ld");
    std::fs::write(
        &script,
        "SECTIONS { attn_kernels : { *(.text .text.*) } }\n",
    )
    .map_err(BuildError::io("write", &script))?;
    let mut link = Command::new(tool.path());
    link.args(["-r", "-nostdlib", "-Wl,--force-group-allocation"])
        .arg("-T")
        .arg(&script)
        .args(objects)
        .arg("-o")
        .arg(gathered);
    run(&mut link, "the linker (ld -r)", "the emulated object")?;
    Ok(())
}

/// Returns the symbols that `object` defines for others, `exported` aside.
fn foreign_symbols(object: &[u8], exported: &str) -> Result<Vec<String>, object::Error> {
    let file = object::File::parse(object)?;
    let mut names = Vec::new();
    for symbol in file.symbols() {
        if !symbol.is_definition() || symbol.is_local() {
            continue;
        }
        let name = symbol.name()?;
        if name != exported {
            names.push(name.to_string());
        }
    }
    Ok(names)
}

/// Refuses a table that calls the emulator: somewhere a kernel was compiled, and the program would
/// not link.
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
    let version = ask(tool, "-dumpversion")?;
    let description = ask(tool, "--version")?;
    let major_digits = version.trim().split('.').next().unwrap_or_default();
    Ok(HostCompiler {
        major: major_digits.parse().ok(),
        description: description.lines().next().unwrap_or_default().to_string(),
    })
}

/// Returns what the compiler prints when called with `flag` alone.
fn ask(tool: &cc::Tool, flag: &str) -> Result<String, BuildError> {
    let mut command = Command::new(tool.path());
    command.arg(flag);
    let output = run(&mut command, "the C++ compiler", flag)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program to its end. An error carries all that it printed.
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
    Err(BuildError::Tool {
        tool: tool.into(),
        what: what.into(),
        status: output.status.to_string(),
        output: printed(&output),
    })
}

/// Returns the text of both streams.
pub(crate) fn printed(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text
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

    const KERNELS: &str = "\
template <class T> __attribute__((noinline)) int twice(T x) { return 2 * x + VALUE; }
inline int &counter() { static int count = VALUE; return count; }
inline int variable = VALUE;
int offender(int x) { return x; }
namespace { int hidden(int x) { return twice(x) + counter() + variable; } }
extern \"C\" int table(int x) { return hidden(offender(x)); }
";

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
            link.arg(isolate(&plain_tool(), &[object], name).unwrap());
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
        let calls = "extern \"C\" void emulator_barrier(); \
                     extern \"C\" void table() { emulator_barrier(); }\n";
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
