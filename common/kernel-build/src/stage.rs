//! A stage's build script.

use crate::error::BuildError;
use crate::identity::{Sources, relative};
use crate::report::{BuildReport, GpuBuild};
use crate::toolkit::{self, Surroundings, find_nvcc};
use crate::{emulated, gpu};
use std::path::{Path, PathBuf};

/// Touched by the script after it made `.cuda/`, which is not watched itself: cargo reruns a build script on every build
/// while a watched path does not exist.
const TOOLKIT_MARKER: &str = "scripts/cuda-toolkit.txt";

/// Read here; `cc` reports its own.
const VARIABLES: [&str; 8] = [
    CHECK,
    "ATTENTION_CUDA",
    "ATTENTION_CUDA_ARCHS",
    "NVCC",
    "CUDA_HOME",
    "CUDA_PATH",
    "NVCC_CCBIN",
    "OBJCOPY",
];

/// If set, no kernel is compiled: what links nothing (`cargo check`, Clippy, an editor) needs none. A program built so does not link.
const CHECK: &str = "ATTENTION_CHECK";

/// Set by cargo with the stage's feature `emulated`.
const EMULATED_FEATURE: &str = "CARGO_FEATURE_EMULATED";

/// For every architecture. An error is printed and ends the build.
pub fn stage() {
    exit_on_error(build_stage(&[]));
}

/// For a stage whose instructions only these architectures have (`sm_90a`). Elsewhere it has no GPU code.
pub fn stage_for(architectures: &[&str]) {
    exit_on_error(build_stage(architectures));
}

/// Warns once for all stages where the build has no GPU code, and of what names a toolkit that is none. For the build script of a
/// program, since fourteen stages would say the same.
pub fn warn_without_gpu_code(root: &Path) {
    for name in VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let marker = root.join(TOOLKIT_MARKER);
    if marker.exists() {
        println!("cargo:rerun-if-changed={}", marker.display());
    }
    if text_variable(CHECK).is_some() {
        return;
    }
    for (name, why) in toolkit::homes_without_nvcc() {
        println!("cargo:warning={name} names no CUDA toolkit: {why}");
    }
    let around = Surroundings {
        variable: &|name| std::env::var_os(name),
        is_file: &Path::is_file,
        root,
    };
    // What is wrong with either ends the build of the stages.
    let Ok(found) = find_nvcc(&around) else {
        return;
    };
    if let Some(line) =
        without_gpu_code(text_variable("ATTENTION_CUDA").as_deref(), found.is_some())
    {
        println!("cargo:warning={line}");
    }
}

/// Why no stage has GPU code, and what to do; nothing where they have it.
fn without_gpu_code(mode: Option<&str>, has_nvcc: bool) -> Option<String> {
    match (mode, has_nvcc) {
        (Some("off"), _) => Some("no GPU code: ATTENTION_CUDA=off; unset it".to_string()),
        (_, false) => Some(format!(
            "no GPU code: nvcc was not found; {}",
            toolkit::REMEDY
        )),
        (_, true) => None,
    }
}

/// Compiles a test's CUDA source, a path in the crate's folder, and writes `gpu.rs` to `OUT_DIR`: one constant, `FATBIN:
/// Option<&[u8]>`, with the image where nvcc was found. The environment is that of [`stage`].
pub fn test_kernels(source: &str) {
    exit_on_error(build_test_kernels(source));
}

fn build_test_kernels(source: &str) -> Result<(), BuildError> {
    let (manifest_dir, package) = (
        cargo_variable("CARGO_MANIFEST_DIR")?,
        cargo_variable("CARGO_PKG_NAME")?,
    );
    let out_dir = PathBuf::from(cargo_variable("OUT_DIR")?);
    let root = workspace_root(Path::new(&manifest_dir))?;
    let (kernel, device_headers) = (
        Path::new(&manifest_dir).join(source),
        root.join("common/cuda"),
    );
    let sources = Sources::collect(&root, &kernel, &device_headers)?;
    watch(&root, &sources);
    let (prefix, name) = (package.replace('-', "_"), relative(&root, &kernel));
    let gpu = gpu_build(
        &root,
        &out_dir,
        &prefix,
        &name,
        &device_headers,
        &sources.identity(&gpu::FLAGS),
        &[],
    )?;
    let text = format!(
        "/// The image of `{source}` for GPUs, where the build found nvcc.\n\
         pub const FATBIN: Option<&[u8]> = {};\n",
        fatbin_source(matches!(gpu, GpuBuild::Built(_)))
    );
    let path = out_dir.join("gpu.rs");
    std::fs::write(&path, text).map_err(BuildError::io("write", &path))
}

fn exit_on_error(result: Result<(), BuildError>) {
    if let Err(error) = result {
        let mut message = error.to_string();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            message += &format!(": {source}");
            cause = source;
        }
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

/// [`stage_for`] with the error returned; no architecture means all.
pub fn build_stage(only: &[&str]) -> Result<(), BuildError> {
    let manifest_dir = cargo_variable("CARGO_MANIFEST_DIR")?;
    let (package, out_dir) = (
        cargo_variable("CARGO_PKG_NAME")?,
        PathBuf::from(cargo_variable("OUT_DIR")?),
    );
    let folder = Path::new(&manifest_dir);
    let root = workspace_root(folder)?;
    let prefix = package.replace('-', "_");
    let kernel = folder.join("kernel.cu");
    let device_headers = root.join("common/cuda");
    let emulator_headers = root.join("common/emulator/include");
    let prelude = emulator_headers.join("emulator/prelude.h");
    for (path, remedy) in [
        (&kernel, "a stage's folder holds its kernel.cu"),
        (&device_headers, "check out the whole repository"),
        (&prelude, "check out the whole repository"),
    ] {
        if !path.exists() {
            return Err(BuildError::Missing {
                path: path.clone(),
                remedy,
            });
        }
    }
    // Whole header folders, not single files: a header that is added to the emulator may take the place of another.
    for path in [&device_headers, &emulator_headers] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    println!(
        "cargo:rerun-if-changed={}",
        folder.join("build.rs").display()
    );

    let sources = Sources::collect(&root, &kernel, &device_headers)?;
    watch(&root, &sources);
    let identity = sources.identity(&gpu::FLAGS);

    let checks = text_variable(CHECK).is_some();
    let runs = !checks && std::env::var_os(EMULATED_FEATURE).is_some();
    let emulated = if checks {
        emulated::not_built()?
    } else {
        emulated::build(&emulated::Job {
            root: &root,
            out_dir: &out_dir,
            prefix: &prefix,
            kernel: &kernel,
            includes: &[&emulator_headers, &device_headers],
            runs,
        })?
    };
    if let Some(path) = sources.hidden(&root, &[&device_headers, folder], &emulated.compiled) {
        return Err(BuildError::HiddenInclude {
            stage: package,
            path: path.clone(),
        });
    }

    let gpu = gpu_build(
        &root,
        &out_dir,
        &prefix,
        &relative(&root, &kernel),
        &device_headers,
        &identity,
        only,
    )?;
    let texts: Vec<(&str, PathBuf)> = (sources.files.keys())
        .map(|name| (name.as_str(), root.join(name)))
        .collect();
    let has_fatbin = matches!(gpu, GpuBuild::Built(_));
    let artifacts = artifacts_source(
        &prefix,
        runs,
        has_fatbin,
        &texts,
        &folder.join("caps.csv"),
        only,
    );
    let report = BuildReport {
        identity,
        compiler: emulated.compiler,
        gpu,
    };
    let write = |name: &str, text: String| {
        let path = out_dir.join(name);
        std::fs::write(&path, text).map_err(BuildError::io("write", &path))
    };
    write("report.json", serde_json::to_string_pretty(&report)?)?;
    write("artifacts.rs", artifacts)
}

fn watch(root: &Path, sources: &Sources) {
    for name in VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
    for name in sources.files.keys() {
        println!("cargo:rerun-if-changed={}", root.join(name).display());
    }
}

fn gpu_build(
    root: &Path,
    out_dir: &Path,
    prefix: &str,
    kernel: &str,
    include: &Path,
    identity: &str,
    only: &[&str],
) -> Result<GpuBuild, BuildError> {
    if text_variable(CHECK).is_some() {
        return Ok(GpuBuild::Absent {
            reason: format!("switched off by {CHECK}"),
            remedy: format!("unset {CHECK}"),
        });
    }
    let mode = text_variable("ATTENTION_CUDA").unwrap_or_else(|| "auto".to_string());
    let Some(required) = is_required(mode)? else {
        return Ok(GpuBuild::Absent {
            reason: "switched off by ATTENTION_CUDA=off".to_string(),
            remedy: "unset ATTENTION_CUDA".to_string(),
        });
    };
    let names = text_variable("ATTENTION_CUDA_ARCHS")
        .unwrap_or_else(|| gpu::DEFAULT_ARCHITECTURES.to_string());
    let Some(architectures) = gpu::Architectures::parse(&names)?.among(only) else {
        return Ok(GpuBuild::Absent {
            reason: format!(
                "it is written for {} and ATTENTION_CUDA_ARCHS asks for {names}",
                only.join(", ")
            ),
            remedy: format!("add {} to ATTENTION_CUDA_ARCHS", only[0]),
        });
    };
    let around = Surroundings {
        variable: &|name| std::env::var_os(name),
        is_file: &Path::is_file,
        root,
    };
    let found = find_nvcc(&around)?;
    // Watched only if it is there: see the marker.
    let marker = root.join(TOOLKIT_MARKER);
    let watched = [Some(&marker), found.as_ref()];
    for path in watched.into_iter().flatten().filter(|path| path.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let Some(nvcc) = found else {
        let (reason, remedy) = (
            "nvcc was not found".to_string(),
            toolkit::REMEDY.to_string(),
        );
        return if required {
            Err(BuildError::CudaRequired { reason, remedy })
        } else {
            Ok(GpuBuild::Absent { reason, remedy })
        };
    };
    gpu::build(&gpu::Job {
        root,
        out_dir,
        prefix,
        kernel,
        include,
        identity,
        nvcc: &nvcc,
        architectures: &architectures,
    })
    .map(GpuBuild::Built)
}

/// Of ATTENTION_CUDA: whether it is an error if there is no nvcc; none if it is not looked for.
fn is_required(mode: String) -> Result<Option<bool>, BuildError> {
    match mode.as_str() {
        "auto" => Ok(Some(false)),
        "require" => Ok(Some(true)),
        "off" => Ok(None),
        _ => Err(BuildError::Variable {
            name: "ATTENTION_CUDA",
            value: mode,
            expected: "auto, off or require",
        }),
    }
}

fn fatbin_source(has_fatbin: bool) -> String {
    match has_fatbin {
        true => format!(
            "Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{}\")))",
            gpu::FATBIN
        ),
        false => "None".to_string(),
    }
}

/// `caps` is read by rustc alone: a change compiles no kernel and alters no identity.
fn artifacts_source(
    prefix: &str,
    runs: bool,
    has_fatbin: bool,
    texts: &[(&str, PathBuf)],
    caps: &Path,
    only: &[&str],
) -> String {
    let table = emulated::table_symbol(prefix);
    let signature = "(count: *mut i32, maps: *mut *const common::params::AttentionMaps, clusters: *mut *const i32) -> \
                     *const common::params::AttentionKernel;\n";
    let mut declarations = format!("fn {table}{signature}");
    let mut traced = "None".to_string();
    if runs {
        let table = emulated::traced_table_symbol(prefix);
        declarations += &format!("    fn {table}{signature}");
        traced = format!("Some({table})");
    }
    let fatbin = fatbin_source(has_fatbin);
    let sources: String = texts
        .iter()
        .map(|(name, path)| format!("        ({name:?}, include_str!({path:?})),\n"))
        .collect();
    format!(
        "unsafe extern \"C\" {{\n    \
             {declarations}\
         }}\n\n\
         /// What the build script made of `kernel.cu`.\n\
         pub static ARTIFACTS: common::stage::Artifacts = common::stage::Artifacts {{\n    \
             kernels: {table},\n    \
             traced_kernels: {traced},\n    \
             fatbin: {fatbin},\n    \
             report_json: include_str!(concat!(env!(\"OUT_DIR\"), \"/report.json\")),\n    \
             caps: include_str!({caps:?}),\n    \
             architectures: &{only:?},\n    \
             sources: &[\n{sources}    ],\n\
         }};\n"
    )
}

/// With `[workspace]`, at or above `folder`.
fn workspace_root(folder: &Path) -> Result<PathBuf, BuildError> {
    let is_root = |path: &&Path| {
        let manifest = std::fs::read_to_string(path.join("Cargo.toml"));
        manifest.is_ok_and(|text| text.lines().any(|line| line.trim() == "[workspace]"))
    };
    let root = folder.ancestors().find(is_root).map(Path::to_path_buf);
    root.ok_or_else(|| BuildError::NoWorkspace(folder.to_path_buf()))
}

fn cargo_variable(name: &'static str) -> Result<String, BuildError> {
    std::env::var(name).map_err(|_| BuildError::NotABuildScript(name))
}

/// An empty variable counts as unset.
fn text_variable(name: &str) -> Option<String> {
    std::env::var_os(name)
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_name_the_stages_own_table() {
        let texts = [("stage0/kernel.cu", "/repo/stage0/kernel.cu".into())];
        let text = artifacts_source(
            "stage0_scalar",
            true,
            true,
            &texts,
            Path::new("/repo/stage0/caps.csv"),
            &["sm_90a"],
        );
        assert!(
            text.contains(
                "fn stage0_scalar_kernels(count: *mut i32, maps: *mut *const common::params::AttentionMaps, "
            )
        );
        assert!(text.contains(
            "fatbin: Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/attention.fatbin\"))),"
        ));
        assert!(text.contains("(\"stage0/kernel.cu\", include_str!(\"/repo/stage0/kernel.cu\")),"));
        assert!(text.contains("traced_kernels: Some(stage0_scalar_traced_kernels),"));
        assert!(text.contains("caps: include_str!(\"/repo/stage0/caps.csv\"),"));
        assert!(text.contains("architectures: &[\"sm_90a\"],"));
        let without = artifacts_source(
            "stage0_scalar",
            false,
            false,
            &[],
            Path::new("caps.csv"),
            &[],
        );
        assert!(without.contains("fatbin: None,") && without.contains("traced_kernels: None,"));
    }

    #[test]
    fn gpu_code_is_wanted_required_or_switched_off() {
        let required = ["auto", "require", "off"].map(|mode| is_required(mode.into()).unwrap());
        assert_eq!(required, [Some(false), Some(true), None]);
        let error = is_required("on".into()).unwrap_err().to_string();
        assert_eq!(error, "ATTENTION_CUDA=on: expected auto, off or require");
    }

    #[test]
    fn a_build_without_gpu_code_says_why_in_one_line() {
        let says = |mode, has_nvcc| without_gpu_code(mode, has_nvcc).unwrap_or_default();
        assert!(
            says(None, false)
                .starts_with("no GPU code: nvcc was not found; run scripts/cuda-toolkit")
        );
        assert_eq!(
            says(Some("off"), true),
            "no GPU code: ATTENTION_CUDA=off; unset it"
        );
        assert_eq!(without_gpu_code(Some("auto"), true), None);
    }

    #[test]
    fn the_root_is_the_manifest_with_a_workspace() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(
            workspace_root(here).unwrap(),
            here.ancestors().nth(2).unwrap()
        );
        assert!(matches!(
            workspace_root(Path::new("/")),
            Err(BuildError::NoWorkspace(_))
        ));
    }

    #[test]
    fn the_marker_is_committed() {
        let root = workspace_root(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(
            root.join(TOOLKIT_MARKER).is_file(),
            "{TOOLKIT_MARKER} is what build scripts watch for a new toolkit"
        );
    }
}
