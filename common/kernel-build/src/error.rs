//! What can go wrong in a stage's build: each error says what was expected and what to do.

use std::path::PathBuf;

/// A failed build of a stage.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Not run by cargo.
    #[error("{0} is not set: stage() runs in a build script only")]
    NotABuildScript(&'static str),
    /// No workspace manifest above the crate.
    #[error("no Cargo.toml with [workspace] above {}: a stage lives in the workspace of the ladder", .0.display())]
    NoWorkspace(PathBuf),
    /// A file of the convention is missing.
    #[error("{} is missing: {remedy}", path.display())]
    Missing {
        /// What was expected.
        path: PathBuf,
        /// What to do.
        remedy: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// read, write, create
        action: &'static str,
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An environment variable holds something else.
    #[error("{name}={value}: expected {expected}")]
    Variable {
        name: &'static str,
        /// What it holds.
        value: String,
        /// What it may hold.
        expected: &'static str,
    },
    /// `ATTENTION_CUDA=require`, and no nvcc.
    #[error("ATTENTION_CUDA=require, but {reason}; {remedy}")]
    CudaRequired {
        /// Why there is no GPU code.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A tool could not be started.
    #[error("cannot start {tool}; {remedy}")]
    Start {
        /// Which.
        tool: String,
        /// What to do.
        remedy: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    #[error("{tool} failed ({status}) on {what}:\n{output}")]
    Tool {
        /// Which.
        tool: String,
        /// On what.
        what: String,
        status: String,
        /// All it said.
        output: String,
    },
    /// The `cc` crate found no C++ compiler, or could not write the archive.
    #[error(
        "the emulated build: {0}; install a C++17 compiler (g++ 12 or later) or name one in CXX"
    )]
    Cc(#[from] cc::Error),
    /// A compiler warning that means wrong code.
    #[error(
        "{what}: a warning that means a fault when run: keep WMMA operands in shared or global memory, never in a local \
         array.\n{warnings}"
    )]
    FatalWarning {
        /// Stage and architecture.
        what: String,
        /// The lines with the warning.
        warnings: String,
    },
    /// Symbols that another stage's code could be merged with.
    #[error(
        "the emulated build of {stage} defines symbols besides its table: {}. Stages are linked into one program, where \
         equal names become one function: two kernels would silently be one", symbols.join(", ")
    )]
    ForeignSymbols { stage: String, symbols: Vec<String> },
    /// A table without kernels that calls the emulator.
    #[error(
        "the table of {stage} is built without the feature 'emulated' and calls the emulator: {}; code that is compiled \
         whether or not a kernel is belongs behind EMULATOR_ENTRY or into a template", symbols.join(", ")
    )]
    EmulatedCode {
        /// The table.
        stage: String,
        /// The emulator's functions.
        symbols: Vec<String>,
    },
    /// An object file that does not read as one.
    #[error("{what} does not read as an object file")]
    Object {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: object::Error,
    },
    /// The assembler's report is not what the parser knows.
    #[error(
        "{what}: {problem} in the report of ptxas; the parser is written for nvcc 12.8 to 13.x\n{output}"
    )]
    Ptxas {
        /// Stage and architecture.
        what: String,
        /// What is wrong.
        problem: String,
        /// What ptxas said.
        output: String,
    },
    /// An include that the identity cannot follow.
    #[error(
        "{} is compiled into {stage}, but no plain #include leads to it, so the stage's identity would miss its changes; \
         include it by its literal name", path.display()
    )]
    HiddenInclude {
        stage: String,
        /// The header.
        path: PathBuf,
    },
    #[error("the build report does not serialise")]
    Report(#[from] serde_json::Error),
}

impl BuildError {
    /// For `map_err` on a file operation.
    pub(crate) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
