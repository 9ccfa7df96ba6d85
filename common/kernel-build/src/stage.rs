//! A stage's build script.

use crate::error::BuildError;
use crate::identity::{Sources, relative};
use crate::report::{BuildReport, GpuBuild};
use crate::toolkit::{self, find_nvcc};
use crate::{emulated, gpu};
use std::path::{Path, PathBuf};

/// The file that `scripts/cuda-toolkit` touches after it made `.cuda/`, which is not watched
/// itself: cargo reruns a build script on every build while a watched path does not exist.
const TOOLKIT_MARKER: &str = "scripts/cuda-toolkit.txt";

/// The variables read here; `cc` reports its own.
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

/// The variable that switches kernels off: what links nothing (`cargo check`, Clippy, an editor)
/// needs none. A program built so does not link.
const CHECK: &str = "ATTENTION_CHECK";

/// The variable that cargo sets with the stage's feature `emulated`.
const EMULATED_FEATURE: &str = "CARGO_FEATURE_EMULATED";

/// Builds a stage for every architecture. An error is printed and ends the build.
pub fn stage() {
    exit_on_error(build_stage(&[]));
}

/// Builds a stage whose instructions only these architectures have (`sm_90a`). Elsewhere it has no
/// GPU code.
pub fn stage_for(architectures: &[&str]) {
    exit_on_error(build_stage(architectures));
}

/// Warns once for all stages where the build has no GPU code, and of variables that name a toolkit
/// where there is none. The build script of a program calls it, since fourteen stages would say the
/// same.
pub fn warn_without_gpu_code(root: &Path) {
    watch_variables();
    let marker = root.join(TOOLKIT_MARKER);
    if marker.exists() {
        println!("cargo:rerun-if-changed={}", marker.display());
    }
    if text_variable(CHECK).is_some() {
        return;
    }
    for (name, reason) in toolkit::homes_without_nvcc() {
        println!("cargo:warning={name} names no CUDA toolkit: {reason}");
    }
    // An error of the search ends the build of the stages.
    let Ok(nvcc) = find_nvcc(root) else {
        return;
    };
    let mode = text_variable("ATTENTION_CUDA");
    if let Some(line) = without_gpu_code(mode.as_deref(), nvcc.is_some()) {
        println!("cargo:warning={line}");
    }
}

/// Returns why no stage has GPU code, and what to do; `None` where they have it.
fn without_gpu_code(mode: Option<&str>, has_nvcc: bool) -> Option<String> {
    if mode == Some("off") {
        return Some("no GPU code: ATTENTION_CUDA=off; unset it".to_string());
    }
    if has_nvcc {
        return None;
    }
    Some(format!(
        "no GPU code: nvcc was not found; {}",
        toolkit::REMEDY
    ))
}

/// Compiles a test's CUDA source, a path in the crate's folder, and writes `gpu.rs` to `OUT_DIR`:
/// one constant, `FATBIN: Option<&[u8]>`, with the image where nvcc was found. The environment is
/// that of [`stage`].
pub fn test_kernels(source: &str) {
    exit_on_error(build_test_kernels(source));
}

fn build_test_kernels(source: &str) -> Result<(), BuildError> {
    let package = Package::from_cargo()?;
    let kernel = package.folder.join(source);
    let sources = Sources::collect(&package.root, &kernel, &package.device_headers())?;
    watch(&package.root, &sources);
    let gpu = build_gpu(&package, &kernel, &sources.identity(&gpu::FLAGS), &[])?;
    let fatbin = fatbin_source(matches!(gpu, GpuBuild::Built(_)));
    let text = format!(
        "/// The image of `{source}` for GPUs, where the build found nvcc.\n\
         pub const FATBIN: Option<&[u8]> = {fatbin};\n"
    );
    package.write("gpu.rs", &text)
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

/// The crate whose build script runs.
struct Package {
    name: String,
    folder: PathBuf,
    /// The workspace.
    root: PathBuf,
    out_dir: PathBuf,
}

impl Package {
    fn from_cargo() -> Result<Self, BuildError> {
        let folder = PathBuf::from(cargo_variable("CARGO_MANIFEST_DIR")?);
        Ok(Self {
            name: cargo_variable("CARGO_PKG_NAME")?,
            root: workspace_root(&folder)?,
            out_dir: PathBuf::from(cargo_variable("OUT_DIR")?),
            folder,
        })
    }

    /// Returns the name that symbols begin with: `stage0_scalar`.
    fn prefix(&self) -> String {
        self.name.replace('-', "_")
    }

    fn device_headers(&self) -> PathBuf {
        self.root.join("common/cuda")
    }

    fn emulator_headers(&self) -> PathBuf {
        self.root.join("common/emulator/include")
    }

    /// Writes a file of `OUT_DIR`.
    fn write(&self, name: &str, text: &str) -> Result<(), BuildError> {
        let path = self.out_dir.join(name);
        std::fs::write(&path, text).map_err(BuildError::io("write", &path))
    }
}

/// Does what [`stage_for`] does, and returns the error; no architecture means all.
pub fn build_stage(only: &[&str]) -> Result<(), BuildError> {
    let package = Package::from_cargo()?;
    let kernel = package.folder.join("kernel.cu");
    refuse_missing_sources(&package, &kernel)?;
    watch_folders(&package);
    let sources = Sources::collect(&package.root, &kernel, &package.device_headers())?;
    watch(&package.root, &sources);

    let is_check = text_variable(CHECK).is_some();
    let is_emulated = !is_check && std::env::var_os(EMULATED_FEATURE).is_some();
    let emulated = if is_check {
        emulated::not_built()?
    } else {
        build_emulated(&package, &kernel, is_emulated)?
    };
    refuse_hidden_include(&package, &sources, &emulated.compiled)?;

    let identity = sources.identity(&gpu::FLAGS);
    let gpu = build_gpu(&package, &kernel, &identity, only)?;
    let artifacts = Artifacts {
        prefix: &package.prefix(),
        is_emulated,
        has_fatbin: matches!(gpu, GpuBuild::Built(_)),
        has_ptx: gpu.has_code_for(INTERPRETED),
        sources: sources
            .files
            .keys()
            .map(|name| (name.as_str(), package.root.join(name)))
            .collect(),
        caps: &package.folder.join("caps.csv"),
        architectures: only,
    };
    let report = BuildReport {
        identity,
        compiler: emulated.compiler,
        gpu,
    };
    package.write("report.json", &serde_json::to_string_pretty(&report)?)?;
    package.write("artifacts.rs", &artifacts.source())
}

fn refuse_missing_sources(package: &Package, kernel: &Path) -> Result<(), BuildError> {
    if !kernel.exists() {
        return Err(BuildError::Missing {
            path: kernel.to_path_buf(),
            remedy: "a stage's folder holds its kernel.cu",
        });
    }
    let prelude = package.emulator_headers().join("emulator/prelude.h");
    for path in [package.device_headers(), prelude] {
        if !path.exists() {
            return Err(BuildError::Missing {
                path,
                remedy: "check out the whole repository",
            });
        }
    }
    Ok(())
}

/// Refuses a header that is compiled but not hashed.
fn refuse_hidden_include(
    package: &Package,
    sources: &Sources,
    compiled: &[PathBuf],
) -> Result<(), BuildError> {
    let folders = [&*package.device_headers(), &*package.folder];
    match sources.hidden(&package.root, &folders, compiled) {
        None => Ok(()),
        Some(path) => Err(BuildError::HiddenInclude {
            stage: package.name.clone(),
            path: path.clone(),
        }),
    }
}

/// Watches whole header folders, not single files: a header that is added to the emulator may take
/// the place of another.
fn watch_folders(package: &Package) {
    let script = package.folder.join("build.rs");
    for path in [package.device_headers(), package.emulator_headers(), script] {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

fn watch_variables() {
    for name in VARIABLES {
        println!("cargo:rerun-if-env-changed={name}");
    }
}

fn watch(root: &Path, sources: &Sources) {
    watch_variables();
    for name in sources.files.keys() {
        println!("cargo:rerun-if-changed={}", root.join(name).display());
    }
}

fn build_emulated(
    package: &Package,
    kernel: &Path,
    is_emulated: bool,
) -> Result<emulated::Done, BuildError> {
    emulated::build(&emulated::Job {
        root: &package.root,
        out_dir: &package.out_dir,
        prefix: &package.prefix(),
        kernel,
        includes: &[&package.emulator_headers(), &package.device_headers()],
        has_kernels: is_emulated,
    })
}

fn build_gpu(
    package: &Package,
    kernel: &Path,
    identity: &str,
    only: &[&str],
) -> Result<GpuBuild, BuildError> {
    if text_variable(CHECK).is_some() {
        return Ok(GpuBuild::Absent {
            reason: format!("switched off by {CHECK}"),
            remedy: format!("unset {CHECK}"),
        });
    }
    let mode = GpuMode::from_environment()?;
    if mode == GpuMode::Off {
        return Ok(GpuBuild::Absent {
            reason: "switched off by ATTENTION_CUDA=off".to_string(),
            remedy: "unset ATTENTION_CUDA".to_string(),
        });
    }
    let names = match text_variable("ATTENTION_CUDA_ARCHS") {
        Some(names) => names,
        None => gpu::default_architectures(&cargo_variable("PROFILE")?).to_string(),
    };
    let Some(architectures) = gpu::Architectures::parse(&names)?.among(only) else {
        let needed = only.join(", ");
        return Ok(GpuBuild::Absent {
            reason: format!("it is written for {needed} and ATTENTION_CUDA_ARCHS asks for {names}"),
            remedy: format!("add {} to ATTENTION_CUDA_ARCHS", only[0]),
        });
    };
    let nvcc = find_nvcc(&package.root)?;
    watch_toolkit(&package.root, nvcc.as_deref());
    let Some(compiler) = nvcc else {
        return without_nvcc(mode);
    };
    gpu::build(&gpu::Job {
        root: &package.root,
        out_dir: &package.out_dir,
        prefix: &package.prefix(),
        kernel: &relative(&package.root, kernel),
        include: &package.device_headers(),
        identity,
        nvcc: &compiler,
        architectures: &architectures,
    })
    .map(GpuBuild::Built)
}

/// Watches nvcc and the marker, each only if it is there: see [`TOOLKIT_MARKER`].
fn watch_toolkit(root: &Path, nvcc: Option<&Path>) {
    let marker = root.join(TOOLKIT_MARKER);
    for path in [Some(&*marker), nvcc].into_iter().flatten() {
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

/// Returns what a build without nvcc amounts to.
fn without_nvcc(mode: GpuMode) -> Result<GpuBuild, BuildError> {
    let reason = "nvcc was not found".to_string();
    let remedy = toolkit::REMEDY.to_string();
    if mode == GpuMode::Require {
        Err(BuildError::CudaRequired { reason, remedy })
    } else {
        Ok(GpuBuild::Absent { reason, remedy })
    }
}

/// The values of ATTENTION_CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GpuMode {
    /// GPU code where nvcc is found.
    Auto,
    /// GPU code, or an error.
    Require,
    Off,
}

impl GpuMode {
    fn from_environment() -> Result<Self, BuildError> {
        match text_variable("ATTENTION_CUDA") {
            None => Ok(Self::Auto),
            Some(value) => Self::parse(&value),
        }
    }

    fn parse(value: &str) -> Result<Self, BuildError> {
        match value {
            "auto" => Ok(Self::Auto),
            "require" => Ok(Self::Require),
            "off" => Ok(Self::Off),
            _ => Err(BuildError::Variable {
                name: "ATTENTION_CUDA",
                value: value.to_string(),
                expected: "auto, off or require",
            }),
        }
    }
}

fn fatbin_source(has_fatbin: bool) -> String {
    if !has_fatbin {
        return "None".to_string();
    }
    format!(
        "Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{}\")))",
        gpu::FATBIN
    )
}

/// The architecture whose PTX is at hand where the emulator is: all stages are compiled for it.
const INTERPRETED: &str = "sm_90a";

fn ptx_source(has_ptx: bool) -> String {
    if !has_ptx {
        return "None".to_string();
    }
    format!(
        "Some(concat!(env!(\"OUT_DIR\"), \"/{}\"))",
        gpu::ptx_name(INTERPRETED)
    )
}

/// The contents of `artifacts.rs`, which a stage includes.
struct Artifacts<'a> {
    prefix: &'a str,
    is_emulated: bool,
    has_fatbin: bool,
    /// Whether there is PTX for [`INTERPRETED`].
    has_ptx: bool,
    /// The name and path of each source.
    sources: Vec<(&'a str, PathBuf)>,
    /// The caps of the stage's resources. They are read by rustc alone: a change compiles no kernel
    /// and alters no identity.
    caps: &'a Path,
    architectures: &'a [&'a str],
}

impl Artifacts<'_> {
    fn source(&self) -> String {
        let Self {
            caps,
            architectures,
            ..
        } = self;
        let table = emulated::table_symbol(self.prefix);
        let signature = "(count: *mut i32, maps: *mut *const common::params::AttentionMaps, \
                         clusters: *mut *const i32) -> *const common::params::AttentionKernel;\n";
        let mut declarations = format!("fn {table}{signature}");
        let mut traced = "None".to_string();
        if self.is_emulated {
            let traced_table = emulated::traced_table_symbol(self.prefix);
            declarations += &format!("    fn {traced_table}{signature}");
            traced = format!("Some({traced_table})");
        }
        let fatbin = fatbin_source(self.has_fatbin);
        let ptx = ptx_source(self.has_ptx && self.is_emulated);
        let mut sources = String::new();
        for (name, path) in &self.sources {
            sources += &format!("        ({name:?}, include_str!({path:?})),\n");
        }
        format!(
            "unsafe extern \"C\" {{\n    \
                 {declarations}\
             }}\n\n\
             /// The kernels that the build script compiled from `kernel.cu`.\n\
             pub static ARTIFACTS: common::stage::Artifacts = common::stage::Artifacts {{\n    \
                 kernels: {table},\n    \
                 traced_kernels: {traced},\n    \
                 fatbin: {fatbin},\n    \
                 ptx: {ptx},\n    \
                 report_json: include_str!(concat!(env!(\"OUT_DIR\"), \"/report.json\")),\n    \
                 caps: include_str!({caps:?}),\n    \
                 architectures: &{architectures:?},\n    \
                 sources: &[\n{sources}    ],\n\
             }};\n"
        )
    }
}

/// Returns the folder whose manifest has `[workspace]`, at or above `folder`.
fn workspace_root(folder: &Path) -> Result<PathBuf, BuildError> {
    for ancestor in folder.ancestors() {
        let Ok(manifest) = std::fs::read_to_string(ancestor.join("Cargo.toml")) else {
            continue;
        };
        if manifest.lines().any(|line| line.trim() == "[workspace]") {
            return Ok(ancestor.to_path_buf());
        }
    }
    Err(BuildError::NoWorkspace(folder.to_path_buf()))
}

fn cargo_variable(name: &'static str) -> Result<String, BuildError> {
    std::env::var(name).map_err(|_| BuildError::NotABuildScript(name))
}

/// Returns a variable's value; an empty one counts as unset.
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
        let text = Artifacts {
            prefix: "stage0_scalar",
            is_emulated: true,
            has_fatbin: true,
            has_ptx: true,
            sources: vec![("stage0/kernel.cu", "/repo/stage0/kernel.cu".into())],
            caps: Path::new("/repo/stage0/caps.csv"),
            architectures: &["sm_90a"],
        }
        .source();
        assert!(text.contains(
            "fn stage0_scalar_kernels(count: *mut i32, \
             maps: *mut *const common::params::AttentionMaps, "
        ));
        assert!(text.contains(
            "fatbin: Some(include_bytes!(concat!(env!(\"OUT_DIR\"), \"/attention.fatbin\"))),"
        ));
        assert!(text.contains("ptx: Some(concat!(env!(\"OUT_DIR\"), \"/sm_90a.ptx\")),"));
        assert!(text.contains("(\"stage0/kernel.cu\", include_str!(\"/repo/stage0/kernel.cu\")),"));
        assert!(text.contains("traced_kernels: Some(stage0_scalar_traced_kernels),"));
        assert!(text.contains("caps: include_str!(\"/repo/stage0/caps.csv\"),"));
        assert!(text.contains("architectures: &[\"sm_90a\"],"));
        let without = Artifacts {
            prefix: "stage0_scalar",
            is_emulated: false,
            has_fatbin: true,
            has_ptx: true,
            sources: vec![],
            caps: Path::new("caps.csv"),
            architectures: &[],
        }
        .source();
        assert!(without.contains("ptx: None,") && without.contains("traced_kernels: None,"));
    }

    #[test]
    fn gpu_code_is_wanted_required_or_switched_off() {
        let modes = ["auto", "require", "off"].map(|value| GpuMode::parse(value).unwrap());
        assert_eq!(modes, [GpuMode::Auto, GpuMode::Require, GpuMode::Off]);
        let error = GpuMode::parse("on").unwrap_err().to_string();
        assert_eq!(error, "ATTENTION_CUDA=on: expected auto, off or require");
    }

    #[test]
    fn a_build_without_gpu_code_says_why_in_one_line() {
        let missing = without_gpu_code(None, false).unwrap();
        assert!(
            missing.starts_with("no GPU code: nvcc was not found; run scripts/cuda-toolkit"),
            "{missing}"
        );
        assert_eq!(
            without_gpu_code(Some("off"), true).as_deref(),
            Some("no GPU code: ATTENTION_CUDA=off; unset it")
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
