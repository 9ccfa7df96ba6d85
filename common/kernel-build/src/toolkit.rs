//! The search for nvcc.

use crate::error::BuildError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// By `scripts/cuda-toolkit`, relative to the workspace root.
const IN_WORKSPACE: &str = ".cuda/nvidia/cu13/bin/nvcc";

pub(crate) const REMEDY: &str = "run scripts/cuda-toolkit, or set NVCC or CUDA_HOME";

/// What the search looks at, for tests.
pub(crate) struct Surroundings<'a> {
    /// An environment variable's value; an empty one counts as unset.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub is_file: &'a dyn Fn(&Path) -> bool,
    pub root: &'a Path,
}

/// `NVCC`, `CUDA_HOME`, `CUDA_PATH`, `PATH`, then the workspace's own `.cuda/`. Only `NVCC` is a demand: if it names
/// nothing, going on silently would build with another compiler than the one asked for.
pub(crate) fn find_nvcc(around: &Surroundings) -> Result<Option<PathBuf>, BuildError> {
    let variable = |name: &str| (around.variable)(name).filter(|value| !value.is_empty());
    let on_path = |program: &Path| {
        let folders = variable("PATH")?;
        std::env::split_paths(&folders)
            .map(|folder| folder.join(program))
            .find(|path| (around.is_file)(path))
    };
    if let Some(value) = variable("NVCC") {
        let named = PathBuf::from(&value);
        let is_bare_name = named.components().count() == 1;
        let path = if is_bare_name {
            on_path(&named)
        } else {
            Some(named).filter(|path| (around.is_file)(path))
        };
        return match path {
            Some(path) => Ok(Some(path)),
            None => Err(BuildError::Variable {
                name: "NVCC",
                value: value.to_string_lossy().into_owned(),
                expected: "the path of nvcc, or its name on PATH; unset it to search",
            }),
        };
    }
    let homes = homes(around.variable).into_iter().map(|(_, path)| path);
    let last = [around.root.join(IN_WORKSPACE)];
    let mut places = homes.chain(on_path(Path::new("nvcc"))).chain(last);
    Ok(places.find(|path| (around.is_file)(path)))
}

/// `CUDA_HOME` and `CUDA_PATH`, where set, with where nvcc should be.
fn homes(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<(&'static str, PathBuf)> {
    let home = |name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some((name, Path::new(&value).join("bin/nvcc")))
    };
    ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(home)
        .collect()
}

/// `CUDA_HOME` and `CUDA_PATH` where they name no toolkit: the search passes over them.
pub fn homes_without_nvcc() -> Vec<(&'static str, String)> {
    without_nvcc(&|name| std::env::var_os(name), &Path::is_file)
}

fn without_nvcc(
    variable: &dyn Fn(&str) -> Option<OsString>,
    is_file: &dyn Fn(&Path) -> bool,
) -> Vec<(&'static str, String)> {
    let missing = homes(variable)
        .into_iter()
        .filter(|(_, path)| !is_file(path));
    missing
        .map(|(name, path)| (name, format!("{} does not exist", path.display())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)], files: &[&str]) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| OsString::from(value))
        };
        let is_file = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        let around = Surroundings {
            variable: &variable,
            is_file: &is_file,
            root: Path::new("/w"),
        };
        let found = find_nvcc(&around).map_err(|error| error.to_string())?;
        Ok(found.map(|nvcc| nvcc.to_string_lossy().into_owned()))
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
            let expected = Some(expected.to_string());
            assert_eq!(find(&variables[left_out..], &ALL), Ok(expected));
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
        let variable = |name: &str| {
            let of = |(known, value): &(&str, &str)| (*known == name).then(|| value.into());
            variables.iter().find_map(of)
        };
        let said = without_nvcc(&variable, &|path| path.starts_with("/opt/b"));
        let gone = "/gone/bin/nvcc does not exist".to_string();
        assert_eq!(said, [("CUDA_HOME", gone)]);
    }
}
