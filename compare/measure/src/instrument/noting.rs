//! Compiles a stage's kernel with the headers that take notes for a timeline, and keeps the code.

use super::find::{NVCC, ToolError};
use super::process::Scratch;
use common::limits::DeviceLimits;
use common::stage::LoadedStage;
use kernel_build::report::GpuBuild;
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

macro_rules! headers {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../../../../common/timeline/include/", $name)))),*]
    };
}

/// The headers of common/timeline/include, and their text.
pub const HEADERS: [(&str, &str); 22] = headers![
    "attn/cluster.cuh",
    "attn/mapped.cuh",
    "attn/observe.cuh",
    "attn/ptx/barrier.cuh",
    "attn/ptx/cluster.cuh",
    "attn/ptx/cp_async.cuh",
    "attn/ptx/ex2.cuh",
    "attn/ptx/ldmatrix.cuh",
    "attn/ptx/lg2.cuh",
    "attn/ptx/mbarrier.cuh",
    "attn/ptx/mbarrier_tx.cuh",
    "attn/ptx/mma.cuh",
    "attn/ptx/opaque.cuh",
    "attn/ptx/setmaxnreg.cuh",
    "attn/ptx/shared_address.cuh",
    "attn/ptx/stmatrix.cuh",
    "attn/ptx/tma.cuh",
    "attn/ptx/wgmma.cuh",
    "attn/served.cuh",
    "attn/timeline.cuh",
    "attn/variant.cuh",
    "mma.h",
];

/// The folder of [`HEADERS`] in the workspace.
pub const HEADERS_FOLDER: &str = "common/timeline/include";

/// nvcc's flags: those of the stage's build, so that the same code is between the notes.
const FLAGS: [&str; 4] = ["-std=c++17", "-O3", "-diag-suppress=177", "-cubin"];

/// A reason why there is no code that takes notes.
#[derive(Debug, thiserror::Error)]
pub enum NotingError {
    /// There is no compiler, and nobody compiled the kernel before.
    #[error(
        "{source}; the kernel is compiled with notes by it ({needed}), or {path} is there already"
    )]
    NoCompiler {
        source: Box<ToolError>,
        /// The version that compiled the stage.
        needed: String,
        path: String,
    },
    #[error("nvcc cannot compile {symbol} with notes:\n{output}")]
    Nvcc { symbol: String, output: String },
    #[error("cannot {doing} {path}: {source}")]
    File {
        doing: &'static str,
        path: String,
        source: io::Error,
    },
    #[error(transparent)]
    Scratch(#[from] anyhow::Error),
}

impl NotingError {
    fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let shown = path.display().to_string();
        move |source| NotingError::File {
            doing,
            path: shown,
            source,
        }
    }
}

/// An entry of a stage that is to take notes, on one architecture.
#[derive(Debug)]
pub struct NotingCode<'a> {
    stage: &'a LoadedStage,
    /// The entry's name in machine code.
    symbol: &'a str,
    /// `sm_90a`.
    architecture: String,
}

impl<'a> NotingCode<'a> {
    pub fn new(stage: &'a LoadedStage, symbol: &'a str, limits: DeviceLimits) -> Self {
        let own = stage.attention.artifacts().architectures;
        let architecture = match own.iter().find(|architecture| limits.is(architecture)) {
            Some(architecture) => architecture.to_string(),
            None if limits.is("sm_90a") => "sm_90a".to_string(),
            None => format!("sm_{}", limits.capability),
        };
        Self {
            stage,
            symbol,
            architecture,
        }
    }

    /// Returns the machine code: that of `folder` if it has been compiled from the same sources, else
    /// freshly compiled, and kept there.
    pub fn load(&self, folder: &Path) -> Result<Vec<u8>, NotingError> {
        let path = self.path(folder);
        if !path.is_file() {
            self.compile(&path)?;
        }
        fs::read(&path).map_err(NotingError::file("read", &path))
    }

    /// Returns the file of the code, whose name says what it was compiled from.
    pub fn path(&self, folder: &Path) -> PathBuf {
        let name = format!("{}-{}-{}.cubin", self.symbol, self.architecture, self.key());
        folder.join(name)
    }

    /// Returns the start of the hash of everything that the code depends on but for the compiler.
    fn key(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(&self.stage.report.identity);
        for (name, text) in HEADERS {
            hasher.update(name);
            hasher.update(text);
        }
        for flag in FLAGS {
            hasher.update(flag);
        }
        let mut key = String::new();
        for byte in &hasher.finalize()[..6] {
            key += &format!("{byte:02x}");
        }
        key
    }

    /// Compiles the sources that this program was built from, wherever it runs.
    fn compile(&self, to: &Path) -> Result<(), NotingError> {
        let nvcc = NVCC.find().map_err(|source| NotingError::NoCompiler {
            source: Box::new(source),
            needed: self.needed(),
            path: to.display().to_string(),
        })?;
        let scratch = Scratch::new("timeline")?;
        let sources = scratch.path("sources");
        for (name, text) in self.stage.attention.artifacts().sources {
            write(&sources.join(name), text)?;
        }
        for (name, text) in HEADERS {
            write(&sources.join(HEADERS_FOLDER).join(name), text)?;
        }
        let unfinished = scratch.path("code.cubin");
        let mut command = Command::new(&nvcc.path);
        command
            .env_remove("NVCC_PREPEND_FLAGS")
            .env_remove("NVCC_APPEND_FLAGS")
            .current_dir(&sources)
            .args(FLAGS)
            .arg(format!("-arch={}", self.architecture))
            .arg(format!("-DATTN_STAGE={}", self.prefix()))
            .arg(format!("-DATTN_TIMELINE_ENTRY={}", self.symbol))
            .args(["-I", HEADERS_FOLDER, "-I", "common/cuda"])
            .arg(format!("{}/kernel.cu", self.stage.info().id))
            .arg("-o")
            .arg(&unfinished);
        let output = command
            .output()
            .map_err(NotingError::file("start", &nvcc.path))?;
        if !output.status.success() {
            return Err(NotingError::Nvcc {
                symbol: self.symbol.to_string(),
                output: String::from_utf8_lossy(&output.stderr).trim().to_string(),
            });
        }
        let code = fs::read(&unfinished).map_err(NotingError::file("read", &unfinished))?;
        write(to, code)
    }

    /// Returns the name that the stage's symbols begin with: `stage0_scalar`.
    fn prefix(&self) -> String {
        self.stage.info().id.replace('-', "_")
    }

    /// Returns the compiler that built the stage.
    fn needed(&self) -> String {
        match &self.stage.report.gpu {
            GpuBuild::Built(code) => format!("version {}, as the stage was", code.nvcc),
            GpuBuild::Absent { .. } => "version 13.0 or later".to_string(),
        }
    }
}

/// Writes a file, in a folder that is made if need be.
fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), NotingError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(NotingError::file("make", folder))?;
    }
    fs::write(path, bytes).map_err(NotingError::file("write", path))
}

#[cfg(test)]
mod tests;
