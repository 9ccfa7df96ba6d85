//! NVIDIA's tools: their paths and versions.

use results::workspace;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders where CUDA installs its tools, tried after PATH.
const DEFAULT_FOLDERS: [&str; 3] = [
    "/usr/local/cuda/bin",
    "/opt/cuda/bin",
    "/usr/local/cuda-13/bin",
];

/// A tool that was found and started.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub path: PathBuf,
    /// The version that it prints: `2025.3.1.0`.
    pub version: String,
}

/// A reason why a tool of CUDA's cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{name} was not found; install it with CUDA, put it on PATH, or name it in {variable}")]
    Missing {
        name: &'static str,
        variable: &'static str,
    },
    #[error("{variable} names {path}, which is not a working {name}: {reason}")]
    NotWorking {
        name: &'static str,
        variable: &'static str,
        path: String,
        reason: VersionError,
    },
}

/// A reason why the version of a program is not known.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    #[error("{program} cannot be started ({reason})")]
    NotStarted { program: String, reason: io::Error },
    #[error("{program} --version prints nothing")]
    NoOutput { program: String },
    #[error("it prints no version")]
    NoVersion,
}

/// One of CUDA's tools, and how to find it: by an environment variable, where scripts/cuda-toolkit
/// puts it, on PATH, or where CUDA is usually installed.
#[derive(Clone, Copy, Debug)]
pub struct ToolLocation {
    name: &'static str,
    variable: &'static str,
}

/// CUDA's compiler.
pub const NVCC: ToolLocation = ToolLocation::new("nvcc", "NVCC");
/// The disassembler of machine code.
pub const CUOBJDUMP: ToolLocation = ToolLocation::new("cuobjdump", "CUOBJDUMP");
/// The profiler of kernels, Nsight Compute.
pub const NCU: ToolLocation = ToolLocation::new("ncu", "NCU");
/// The checker of memory accesses and races on a GPU.
pub const COMPUTE_SANITIZER: ToolLocation = ToolLocation::new("compute-sanitizer", "SANITIZER");

impl Tool {
    fn at(path: PathBuf) -> Result<Self, VersionError> {
        let version = version(&path)?;
        Ok(Self { path, version })
    }
}

impl ToolLocation {
    const fn new(name: &'static str, variable: &'static str) -> Self {
        Self { name, variable }
    }

    /// Finds the tool. An error names what was tried and what to do.
    pub fn find(&self) -> Result<Tool, ToolError> {
        let Self { name, variable } = *self;
        if let Some(path) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            return Tool::at(PathBuf::from(&path)).map_err(|reason| ToolError::NotWorking {
                name,
                variable,
                path: path.to_string_lossy().into_owned(),
                reason,
            });
        }
        for path in self.candidates() {
            if let Ok(tool) = Tool::at(path) {
                return Ok(tool);
            }
        }
        Err(ToolError::Missing { name, variable })
    }

    /// Returns the files that may be the tool, the preferred first.
    fn candidates(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        if let Some(root) = workspace::find() {
            let installed = root.join(".cuda/nvidia/cu13");
            folders.push(installed.join("bin"));
            folders.push(installed.join(self.name));
        }
        for variable in ["CUDA_HOME", "CUDA_PATH"] {
            if let Some(home) = std::env::var_os(variable) {
                folders.push(Path::new(&home).join("bin"));
            }
        }
        let search_path = std::env::var_os("PATH").unwrap_or_default();
        folders.extend(std::env::split_paths(&search_path));
        folders.extend(DEFAULT_FOLDERS.map(PathBuf::from));
        let mut paths = Vec::new();
        for folder in folders {
            let path = folder.join(self.name);
            if path.is_file() {
                paths.push(path);
            }
        }
        paths
    }
}

/// Returns what a program prints for `--version`.
fn version_text(program: &Path) -> Result<String, VersionError> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|reason| VersionError::NotStarted {
            program: program.display().to_string(),
            reason,
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the first line that a program prints for `--version`.
pub fn first_line(program: &str) -> Result<String, VersionError> {
    let text = version_text(Path::new(program))?;
    match text.lines().next() {
        Some(line) => Ok(line.to_string()),
        None => Err(VersionError::NoOutput {
            program: program.to_string(),
        }),
    }
}

/// Returns the word that `--version` prints after "Version", or of CUDA's compilers after ", V".
fn version(path: &Path) -> Result<String, VersionError> {
    version_in(&version_text(path)?).ok_or(VersionError::NoVersion)
}

/// Reads `2025.3.1.0` as numbers, up to a part that is none.
pub fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

/// Returns the word after "Version", else after ", V", if it is a version.
fn version_in(text: &str) -> Option<String> {
    let rest = match text.split("Version").nth(1) {
        Some(rest) => rest,
        None => text.split(", V").nth(1)?,
    };
    let word = rest.split_whitespace().next()?;
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(word.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_tools_print_them() {
        let ncu = "NVIDIA (R) Nsight Compute Command Line Profiler\n\
                   Copyright (c) 2018-2025 NVIDIA Corporation\nVersion \
                   2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!(version_in(ncu).as_deref(), Some("2025.3.1.0"));
        let cuobjdump = "cuobjdump: NVIDIA (R) Cuda compiler\n\
                         Cuda compilation tools, release 13.2, V13.2.51\nBuild cuda_13.2\n";
        assert_eq!(version_in(cuobjdump).as_deref(), Some("13.2.51"));
        assert_eq!(version_in("Version unknown"), None);
        assert_eq!(version_in("usage: ls"), None);
    }

    #[test]
    fn a_tool_that_is_not_there_is_answered_with_what_to_do() {
        let nowhere = ToolLocation::new("no-such-tool", "NO_SUCH_TOOL");
        let reason = nowhere.find().unwrap_err().to_string();
        assert!(
            reason.contains("no-such-tool was not found") && reason.contains("NO_SUCH_TOOL"),
            "{reason}"
        );
    }
}
