//! The search for nvcc.

use crate::error::BuildError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The nvcc that `scripts/cuda-toolkit` installs, relative to the workspace root.
const IN_WORKSPACE: &str = ".cuda/nvidia/cu13/bin/nvcc";

pub(crate) const REMEDY: &str = "run scripts/cuda-toolkit, or set NVCC or CUDA_HOME";

/// Returns an environment variable's value; an empty one counts as unset.
type ReadVariable<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

/// Returns whether a path is a file.
type IsFile<'a> = dyn Fn(&Path) -> bool + 'a;

/// Everything the search looks at, so that tests can stand in for it.
struct Surroundings<'a> {
    variable: &'a ReadVariable<'a>,
    is_file: &'a IsFile<'a>,
    root: &'a Path,
}

/// Searches this machine for nvcc, as the environment and the workspace at `root` direct.
pub(crate) fn find_nvcc(root: &Path) -> Result<Option<PathBuf>, BuildError> {
    Surroundings {
        variable: &|name| std::env::var_os(name),
        is_file: &Path::is_file,
        root,
    }
    .find_nvcc()
}

impl Surroundings<'_> {
    /// Searches `NVCC`, `CUDA_HOME`, `CUDA_PATH`, `PATH`, then the workspace's own `.cuda/`. Only
    /// `NVCC` is a demand: if it names nothing, going on silently would build with another compiler
    /// than the one asked for.
    fn find_nvcc(&self) -> Result<Option<PathBuf>, BuildError> {
        if let Some(value) = set_variable(self.variable, "NVCC") {
            let nvcc = self.named_nvcc(Path::new(&value));
            return nvcc.map(Some).ok_or_else(|| BuildError::Variable {
                name: "NVCC",
                value: value.to_string_lossy().into_owned(),
                expected: "the path of nvcc, or its name on PATH; unset it to search",
            });
        }
        for home in homes(self.variable) {
            if (self.is_file)(&home.nvcc) {
                return Ok(Some(home.nvcc));
            }
        }
        if let Some(nvcc) = self.find_on_path(Path::new("nvcc")) {
            return Ok(Some(nvcc));
        }
        let installed = self.root.join(IN_WORKSPACE);
        Ok((self.is_file)(&installed).then_some(installed))
    }

    /// Returns the program that `NVCC` names, if it exists.
    fn named_nvcc(&self, name: &Path) -> Option<PathBuf> {
        let is_bare_name = name.components().count() == 1;
        if is_bare_name {
            self.find_on_path(name)
        } else {
            (self.is_file)(name).then(|| name.to_path_buf())
        }
    }

    fn find_on_path(&self, program: &Path) -> Option<PathBuf> {
        let folders = set_variable(self.variable, "PATH")?;
        std::env::split_paths(&folders)
            .map(|folder| folder.join(program))
            .find(|path| (self.is_file)(path))
    }
}

/// Returns the value of a variable that is set and not empty.
fn set_variable(variable: &ReadVariable<'_>, name: &str) -> Option<OsString> {
    variable(name).filter(|value| !value.is_empty())
}

/// A toolkit's folder, as a variable names it.
struct Home {
    variable: &'static str,
    /// The path where nvcc should be.
    nvcc: PathBuf,
}

/// Returns the folders of `CUDA_HOME` and `CUDA_PATH`, where set.
fn homes(variable: &ReadVariable<'_>) -> Vec<Home> {
    let mut homes = Vec::new();
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(folder) = set_variable(variable, name) {
            homes.push(Home {
                variable: name,
                nvcc: Path::new(&folder).join("bin/nvcc"),
            });
        }
    }
    homes
}

/// Returns `CUDA_HOME` and `CUDA_PATH` where they name no toolkit, each with the reason: the search
/// passes over them.
pub fn homes_without_nvcc() -> Vec<(&'static str, String)> {
    without_nvcc(&|name| std::env::var_os(name), &Path::is_file)
}

fn without_nvcc(variable: &ReadVariable<'_>, is_file: &IsFile<'_>) -> Vec<(&'static str, String)> {
    homes(variable)
        .into_iter()
        .filter(|home| !is_file(&home.nvcc))
        .map(|home| {
            let reason = format!("{} does not exist", home.nvcc.display());
            (home.variable, reason)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)], files: &[&str]) -> Result<Option<String>, String> {
        let variable = |name: &str| value_of(variables, name);
        let is_file = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        let around = Surroundings {
            variable: &variable,
            is_file: &is_file,
            root: Path::new("/w"),
        };
        match around.find_nvcc() {
            Ok(nvcc) => Ok(nvcc.map(|path| path.to_string_lossy().into_owned())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn value_of(variables: &[(&str, &str)], name: &str) -> Option<OsString> {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| OsString::from(value))
    }

    const ALL: [&str; 5] = [
        "/n/nvcc",
        "/opt/a/bin/nvcc",
        "/opt/b/bin/nvcc",
        "/b/nvcc",
        "/w/.cuda/nvidia/cu13/bin/nvcc",
    ];

    #[test]
    fn each_place_gives_way_to_the_one_before() {
        let variables = [
            ("NVCC", "/n/nvcc"),
            ("CUDA_HOME", "/opt/a"),
            ("CUDA_PATH", "/opt/b"),
            ("PATH", "/a:/b"),
        ];
        for (left_out, expected) in ALL.into_iter().enumerate() {
            assert_eq!(
                find(&variables[left_out..], &ALL),
                Ok(Some(expected.to_string()))
            );
        }
        assert_eq!(find(&variables[1..], &[]), Ok(None));
    }

    #[test]
    fn nvcc_may_be_a_name_on_path_and_must_exist() {
        assert_eq!(
            find(&[("NVCC", "nvcc"), ("PATH", "/a:/b")], &ALL),
            Ok(Some("/b/nvcc".to_string()))
        );
        assert_eq!(
            find(&[("NVCC", "cuda/nvcc"), ("PATH", "/a")], &["cuda/nvcc"]),
            Ok(Some("cuda/nvcc".to_string()))
        );
        assert!(
            find(&[("NVCC", "/gone/nvcc"), ("CUDA_HOME", "/opt/a")], &ALL)
                .unwrap_err()
                .contains("NVCC=/gone/nvcc")
        );
    }

    #[test]
    fn empty_variables_and_homes_without_nvcc_are_passed_over() {
        let variables = [
            ("NVCC", ""),
            ("CUDA_HOME", "/gone"),
            ("CUDA_PATH", "/opt/b"),
        ];
        assert_eq!(
            find(&variables, &ALL),
            Ok(Some("/opt/b/bin/nvcc".to_string()))
        );
        let reason = "/gone/bin/nvcc does not exist".to_string();
        assert_eq!(
            without_nvcc(&|name| value_of(&variables, name), &|path| path
                .starts_with("/opt/b")),
            [("CUDA_HOME", reason)]
        );
    }
}
