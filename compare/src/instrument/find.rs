//! NVIDIA's tools: where they are, and which version.

use crate::measure::machine;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders where CUDA installs its tools, tried after PATH.
const USUAL: [&str; 3] = [
    "/usr/local/cuda/bin",
    "/opt/cuda/bin",
    "/usr/local/cuda-13/bin",
];

#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub path: PathBuf,
    /// The version that it prints: `2025.3.1.0`.
    pub version: String,
}

/// One of CUDA's tools, and how to find it: by an environment variable, where scripts/cuda-toolkit puts it, on PATH, or where
/// CUDA is usually installed.
#[derive(Clone, Copy, Debug)]
pub struct Places(&'static str, &'static str);

pub const NVCC: Places = Places("nvcc", "NVCC");
pub const CUOBJDUMP: Places = Places("cuobjdump", "CUOBJDUMP");
pub const NCU: Places = Places("ncu", "NCU");
pub const COMPUTE_SANITIZER: Places = Places("compute-sanitizer", "SANITIZER");

impl Places {
    /// An error says what was tried and what to do.
    pub fn find(&self) -> Result<Tool, String> {
        let Self(name, variable) = self;
        let tool = |path: PathBuf| {
            let version = version(&path)?;
            Ok(Tool { path, version })
        };
        if let Some(named) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            return tool(PathBuf::from(&named)).map_err(|why: String| {
                let named = named.to_string_lossy();
                format!("{variable} names {named}, which is not a working {name}: {why}")
            });
        }
        let found = self.candidates().find_map(|path| tool(path).ok());
        found.ok_or_else(|| {
            format!("{name} was not found; install it with CUDA, put it on PATH, or name it in {variable}")
        })
    }

    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        let installed = machine::workspace().map(|root| root.join(".cuda/nvidia/cu13"));
        let pinned = installed
            .into_iter()
            .flat_map(|cuda| [cuda.join("bin"), cuda.join(self.0)]);
        let homes = ["CUDA_HOME", "CUDA_PATH"]
            .into_iter()
            .filter_map(std::env::var_os);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        pinned
            .chain(homes.map(|home| Path::new(&home).join("bin")))
            .chain(on_path)
            .chain(USUAL.map(PathBuf::from))
            .map(|folder| folder.join(self.0))
            .filter(|path| path.is_file())
    }
}

fn output(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output =
        output.map_err(|error| format!("{} cannot be started ({error})", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line that a program prints for `--version`.
pub fn first_line(program: &str) -> Result<String, String> {
    let text = output(Path::new(program))?;
    let line = text.lines().next().map(String::from);
    line.ok_or_else(|| format!("{program} --version prints nothing"))
}

/// What `--version` prints after the word "Version", or of CUDA's compilers after ", V".
fn version(path: &Path) -> Result<String, String> {
    version_in(&output(path)?).ok_or_else(|| "it prints no version".to_string())
}

/// `2025.3.1.0` as numbers; what follows them is left out.
pub fn numbers(version: &str) -> Vec<u32> {
    let numbers = version.split('.').map_while(|part| part.parse().ok());
    numbers.collect()
}

fn version_in(text: &str) -> Option<String> {
    let word = text
        .split("Version")
        .nth(1)
        .or_else(|| text.split(", V").nth(1))?
        .split_whitespace()
        .next()?;
    word.starts_with(|c: char| c.is_ascii_digit())
        .then(|| word.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_tools_print_them() {
        let ncu = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\nVersion \
                   2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!(version_in(ncu).as_deref(), Some("2025.3.1.0"));
        let cuobjdump = "cuobjdump: NVIDIA (R) Cuda compiler\nCuda compilation tools, release 13.2, V13.2.51\nBuild cuda_13.2\n";
        assert_eq!(version_in(cuobjdump).as_deref(), Some("13.2.51"));
        assert_eq!(version_in("Version unknown"), None);
        assert_eq!(version_in("usage: ls"), None);
    }

    #[test]
    fn a_tool_that_is_not_there_is_answered_with_what_to_do() {
        let places = Places("no-such-tool", "NO_SUCH_TOOL");
        let reason = places.find().unwrap_err();
        assert!(
            reason.contains("no-such-tool was not found") && reason.contains("NO_SUCH_TOOL"),
            "{reason}"
        );
    }
}
