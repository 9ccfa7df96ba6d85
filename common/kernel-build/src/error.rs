//! What can go wrong in a stage's build: each error says what was expected and what to do.

use crate::ptxas::ReportProblem;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{0} is not set: stage() runs in a build script only")]
    NotABuildScript(&'static str),
    #[error(
        "no Cargo.toml with [workspace] above {}: a stage lives in the workspace of the ladder",
        .0.display()
    )]
    NoWorkspace(PathBuf),
    #[error("{} is missing: {remedy}", path.display())]
    Missing { path: PathBuf, remedy: &'static str },
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The failed operation: read, write, create.
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{name}={value}: expected {expected}")]
    Variable {
        name: &'static str,
        value: String,
        /// The values that the variable may hold.
        expected: &'static str,
    },
    #[error("ATTENTION_CUDA=require, but {reason}; {remedy}")]
    CudaRequired {
        /// The reason why there is no GPU code.
        reason: String,
        remedy: String,
    },
    #[error("cannot start {tool}; {remedy}")]
    Start {
        tool: String,
        remedy: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("{tool} failed ({status}) on {what}:\n{output}")]
    Tool {
        tool: String,
        what: String,
        status: String,
        output: String,
    },
    /// The `cc` crate found no C++ compiler, or could not write the archive.
    #[error(
        "the emulated build: {0}; install a C++17 compiler (g++ 12 or later) or name one in CXX"
    )]
    Cc(#[from] cc::Error),
    /// The compiler is not GCC; holds the first line of its `--version`.
    #[error(
        "the emulated build: {0} is not GCC, whose instrumentation shows every access; \
         install g++ 12 or later and set CXX=g++"
    )]
    NotGcc(String),
    #[error(
        "{what}: a warning that means a fault when run: \
         keep WMMA operands in shared or global memory, never in a local array.\n{warnings}"
    )]
    FatalWarning {
        /// The stage and architecture.
        what: String,
        warnings: String,
    },
    #[error(
        "the emulated build of {stage} defines symbols besides its table: {}. \
         Stages are linked into one program, where equal names become one function: \
         two kernels would silently be one",
        symbols.join(", ")
    )]
    ForeignSymbols { stage: String, symbols: Vec<String> },
    #[error(
        "the table of {stage} is built without the feature 'emulated' and calls the emulator: {}; \
         code that is compiled whether or not a kernel is \
         belongs into a template",
        symbols.join(", ")
    )]
    EmulatedCode {
        stage: String,
        /// The emulator's functions that the table calls.
        symbols: Vec<String>,
    },
    #[error("{what} does not read as an object file")]
    Object {
        what: String,
        #[source]
        source: object::Error,
    },
    #[error(
        "{what}: {problem} in the report of ptxas; \
         the parser is written for nvcc 12.8 to 13.x\n{output}"
    )]
    Ptxas {
        /// The stage and architecture.
        what: String,
        problem: ReportProblem,
        output: String,
    },
    #[error(
        "{} is compiled into {stage}, but no plain #include leads to it, \
         so the stage's identity would miss its changes; include it by its literal name",
        path.display()
    )]
    HiddenInclude {
        stage: String,
        /// The header that is compiled but not found.
        path: PathBuf,
    },
    #[error("the build report does not serialise")]
    Report(#[from] serde_json::Error),
}

impl BuildError {
    /// Returns a function for `map_err` on a file operation.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let owned = path.to_path_buf();
        move |source| Self::Io {
            action,
            path: owned,
            source,
        }
    }
}
