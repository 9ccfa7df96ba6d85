//! The GPU build: nvcc to PTX, and from that to cubins, fatbinary to one image, and ptxas' report.

use crate::emulated::{printed, run};
use crate::error::BuildError;
use crate::identity::hex_sha256;
use crate::parallel;
use crate::ptxas::ReportProblem;
use crate::report::{ArchitectureBuild, EntryBuild, GpuCode};
use crate::{ptxas, sass};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of every nvcc call; part of a stage's identity. No -lineinfo and no -G: both change what
/// is hashed. 177 is "declared but never referenced", which each constant of a preset would print
/// once per instance.
pub(crate) const FLAGS: [&str; 5] = ["-std=c++17", "-O3", "-Xptxas", "-v", "-diag-suppress=177"];

/// Warnings of code that faults when run.
const FATAL_WARNINGS: [&str; 1] = ["cannot perform wmma load or store on local memory"];

/// Returns the value of `ATTENTION_CUDA_ARCHS` when unset, for a profile of cargo (`PROFILE`).
/// PTX runs on every later GPU, but for that of compute_90a. A release build, which others run, has
/// it from compute_80 on. A development build has that of compute_89, from which its machine code
/// is assembled: compute_80 has no conversions of E4M3, so its PTX takes a tenth of the build (117
/// of 1,109 CPU seconds with nvcc 13.0, 84 of them in stage 5).
pub(crate) fn default_architectures(profile: &str) -> &'static str {
    if profile == "release" {
        "sm_89,sm_90a,compute_80"
    } else {
        "sm_89,sm_90a,compute_89"
    }
}

/// The architectures that GPU code is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Architectures {
    /// The architectures of machine code: `sm_90a`.
    pub machine: Vec<String>,
    /// The architectures of PTX: `compute_80`.
    pub ptx: Vec<String>,
}

impl Architectures {
    /// Reads the value of `ATTENTION_CUDA_ARCHS`.
    pub fn parse(text: &str) -> Result<Self, BuildError> {
        let unreadable = BuildError::Variable {
            name: "ATTENTION_CUDA_ARCHS",
            value: text.to_string(),
            expected: "distinct sm_NN (at least one: resources are read from machine code) and \
                       compute_NN, separated by commas, such as sm_89,sm_90a,compute_80",
        };
        let mut machine = Vec::new();
        let mut ptx = Vec::new();
        let mut seen = BTreeSet::new();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() {
                continue;
            }
            if is_version_of("sm_", item) {
                machine.push(item.to_string());
            } else if is_version_of("compute_", item) {
                ptx.push(item.to_string());
            } else {
                return Err(unreadable);
            }
            if !seen.insert(item) {
                return Err(unreadable);
            }
        }
        if machine.is_empty() {
            return Err(unreadable);
        }
        Ok(Self { machine, ptx })
    }

    /// Returns the architectures whose PTX is that of no machine code.
    fn further_ptx(&self) -> impl Iterator<Item = &String> {
        self.ptx
            .iter()
            .filter(|name| self.assembled(name).is_none())
    }

    /// Returns the architecture of the machine code that is assembled from this PTX: `sm_89` for
    /// `compute_89`.
    fn assembled(&self, ptx: &str) -> Option<&String> {
        let version = ptx.strip_prefix("compute_")?;
        let mut machine = self.machine.iter();
        machine.find(|name| name.strip_prefix("sm_") == Some(version))
    }

    /// Keeps the architectures of code that needs one of `only` (empty: any); returns `None` if no
    /// machine code is left.
    pub fn among(mut self, only: &[&str]) -> Option<Self> {
        if only.is_empty() {
            return Some(self);
        }
        self.machine.retain(|name| only.contains(&name.as_str()));
        self.ptx.clear();
        if self.machine.is_empty() {
            return None;
        }
        Some(self)
    }
}

/// Returns whether `name` is `kind` with a version: `sm_90a`.
fn is_version_of(kind: &str, name: &str) -> bool {
    let Some(version) = name.strip_prefix(kind) else {
        return false;
    };
    let digits = version.trim_end_matches(['a', 'f']);
    version.len() - digits.len() <= 1
        && digits.len() >= 2
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A kernel to compile.
pub(crate) struct Job<'a> {
    pub root: &'a Path,
    /// Cargo's `OUT_DIR`.
    pub out_dir: &'a Path,
    /// The name that symbols begin with: `stage0_scalar`.
    pub prefix: &'a str,
    /// The source, relative to the root.
    pub kernel: &'a str,
    pub include: &'a Path,
    pub identity: &'a str,
    pub nvcc: &'a Path,
    pub architectures: &'a Architectures,
}

impl Job<'_> {
    /// Returns the hash of everything that a build depends on.
    fn key(&self, version: &str) -> String {
        let inputs = format!(
            "{} {} {:?} {} {:?} {:?}",
            self.identity,
            self.prefix,
            self.nvcc,
            version,
            self.architectures,
            std::env::var_os("NVCC_CCBIN")
        );
        hex_sha256(&[inputs.as_bytes()])
    }
}

/// The name of the image in `OUT_DIR`.
pub(crate) const FATBIN: &str = "attention.fatbin";

/// A finished build and its inputs.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    code: GpuCode,
}

/// Keeps the last fatbin if nothing that it depends on has changed: an edit of the emulator's
/// headers reruns the build script, too.
pub(crate) fn build(job: &Job) -> Result<GpuCode, BuildError> {
    let version = nvcc_version(job.nvcc)?;
    let fatbin = job.out_dir.join(FATBIN);
    let kept_path = job.out_dir.join("gpu.json");
    let key = job.key(&version);
    let mut machine = job.architectures.machine.iter();
    if let Some(code) = kept_code(&kept_path, &key)
        && fatbin.is_file()
        && machine.all(|architecture| ptx_path(job, architecture).is_file())
    {
        return Ok(code);
    }
    let code = compile(job, version, &fatbin)?;
    let kept = Kept { key, code };
    let text = serde_json::to_vec(&kept)?;
    std::fs::write(&kept_path, text).map_err(BuildError::io("write", &kept_path))?;
    Ok(kept.code)
}

/// Returns the code of the last build if its inputs were those of `key`.
fn kept_code(path: &Path, key: &str) -> Option<GpuCode> {
    let text = std::fs::read(path).ok()?;
    let kept: Kept = serde_json::from_slice(&text).ok()?;
    (kept.key == key).then_some(kept.code)
}

fn compile(job: &Job, nvcc: String, fatbin: &Path) -> Result<GpuCode, BuildError> {
    let Architectures { machine, ptx } = job.architectures;
    let compiled: Vec<&String> = machine
        .iter()
        .chain(job.architectures.further_ptx())
        .collect();
    let outputs = parallel::try_map(&compiled, |image| nvcc_call(job, image))?;
    let mut architectures = Vec::new();
    // Machine code comes first.
    for (name, output) in machine.iter().zip(&outputs) {
        architectures.push(read_architecture(job, name, output)?);
    }
    let images: Vec<&String> = machine.iter().chain(ptx).collect();
    join_images(job, &images, fatbin)?;
    Ok(GpuCode {
        nvcc,
        flags: FLAGS.map(String::from).to_vec(),
        architectures,
        ptx: ptx.clone(),
    })
}

/// Joins the images in one file. nvcc -fatbin would compile everything a second time.
fn join_images(job: &Job, images: &[&String], fatbin: &Path) -> Result<(), BuildError> {
    let real = job
        .nvcc
        .canonicalize()
        .map_err(BuildError::io("resolve", job.nvcc))?;
    let mut join = Command::new(real.with_file_name("fatbinary"));
    join.arg("-64")
        .arg(format!("--create={}", fatbin.display()));
    for image in images {
        let (kind, number) = match image.strip_prefix("sm_") {
            Some(number) => ("elf", number),
            None => ("ptx", image.trim_start_matches("compute_")),
        };
        join.arg(format!(
            "--image3=kind={kind},sm={number},file={}",
            image_path(job, image).display()
        ));
    }
    run(&mut join, "fatbinary", job.kernel)?;
    Ok(())
}

fn image_path(job: &Job, image: &str) -> PathBuf {
    if image.starts_with("sm_") {
        job.out_dir.join(format!("{image}.cubin"))
    } else {
        ptx_path(job, image)
    }
}

/// Returns the path of an image's PTX: of machine code, that which it is assembled from.
fn ptx_path(job: &Job, image: &str) -> PathBuf {
    let machine = job.architectures.assembled(image);
    job.out_dir
        .join(ptx_name(machine.map_or(image, String::as_str)))
}

/// Returns the name of an image's PTX in `OUT_DIR`.
pub(crate) fn ptx_name(image: &str) -> String {
    format!("{image}.ptx")
}

/// Compiles one image and returns what nvcc printed. Machine code is assembled from PTX that stays:
/// it is what gate B2 interprets.
fn nvcc_call(job: &Job, image: &str) -> Result<String, BuildError> {
    let text = nvcc_step(job, image, &Step::ptx(job, image))?;
    match image.strip_prefix("sm_") {
        Some(_) => Ok(text + &nvcc_step(job, image, &Step::machine_code(job, image))?),
        None => Ok(text),
    }
}

/// A call of nvcc.
struct Step {
    options: [String; 2],
    input: PathBuf,
    output: PathBuf,
}

impl Step {
    /// Translates the kernel to PTX.
    fn ptx(job: &Job, image: &str) -> Self {
        let architecture = image.replace("sm_", "compute_");
        Self {
            options: ["-ptx".to_string(), format!("-arch={architecture}")],
            input: job.kernel.into(),
            output: ptx_path(job, image),
        }
    }

    /// Assembles PTX.
    fn machine_code(job: &Job, image: &str) -> Self {
        Self {
            options: ["-cubin".to_string(), format!("-arch={image}")],
            input: ptx_path(job, image),
            output: image_path(job, image),
        }
    }
}

fn nvcc_step(job: &Job, image: &str, step: &Step) -> Result<String, BuildError> {
    let mut command = Command::new(job.nvcc);
    command
        .env_remove("NVCC_PREPEND_FLAGS")
        .env_remove("NVCC_APPEND_FLAGS")
        .current_dir(job.root);
    command
        .args(FLAGS)
        .arg(format!("-DATTN_STAGE={}", job.prefix))
        .arg("-I")
        .arg(job.include)
        .args(&step.options)
        .arg(&step.input)
        .arg("-o")
        .arg(&step.output);
    let what = format!("{} for {image}", job.kernel);
    let output = run(&mut command, "nvcc", &what)?;
    let text = printed(&output);
    let mut fatal = Vec::new();
    for line in text.lines() {
        if FATAL_WARNINGS.iter().any(|warning| line.contains(warning)) {
            fatal.push(line);
        }
    }
    if !fatal.is_empty() {
        return Err(BuildError::FatalWarning {
            what,
            warnings: fatal.join("\n"),
        });
    }
    Ok(text)
}

/// Reads the entries of a cubin and of the report `output`.
fn read_architecture(job: &Job, name: &str, output: &str) -> Result<ArchitectureBuild, BuildError> {
    let what = format!("{} for {name}", job.kernel);
    let fail = |problem| BuildError::Ptxas {
        what: what.clone(),
        problem,
        output: output.to_string(),
    };
    let path = image_path(job, name);
    let cubin = std::fs::read(&path).map_err(BuildError::io("read", &path))?;
    let mut hashes = sass::text_hashes(&cubin).map_err(|source| BuildError::Object {
        what: path.display().to_string(),
        source,
    })?;
    let mut entries = Vec::new();
    for ptxas::EntryResources { symbol, resources } in ptxas::parse(output).map_err(&fail)? {
        let Some(sass_sha256) = hashes.remove(&symbol) else {
            return Err(fail(ReportProblem::NoCode(symbol)));
        };
        let warnings = ptxas::warnings(output, &symbol);
        entries.push(EntryBuild {
            symbol,
            sass_sha256,
            resources,
            warnings,
        });
    }
    if entries.is_empty() {
        return Err(fail(ReportProblem::NoEntry));
    }
    entries.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    Ok(ArchitectureBuild {
        name: name.to_string(),
        entries,
    })
}

fn nvcc_version(nvcc: &Path) -> Result<String, BuildError> {
    let output = run(Command::new(nvcc).arg("--version"), "nvcc", "--version")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_version(&text).ok_or_else(|| BuildError::Tool {
        tool: nvcc.display().to_string(),
        what: "--version".to_string(),
        status: "no 'release N.N, VN.N.N' in its answer".to_string(),
        output: text.clone(),
    })
}

/// Reads `13.0.88` from "Cuda compilation tools, release 13.0, V13.0.88".
fn parse_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains(", release "))?;
    Some(line.rsplit_once(", V")?.1.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write_program;
    use crate::toolkit::{REMEDY, find_nvcc};
    use std::collections::BTreeMap;

    /// Returns the constants that `ptx` stores to global memory, in order; a register that holds no
    /// constant stands as it is.
    fn stored(ptx: &str) -> Vec<String> {
        let mut constants = BTreeMap::new();
        let mut values = Vec::new();
        for line in ptx.lines() {
            let Some(statement) = line.trim().strip_suffix(';') else {
                continue;
            };
            let (instruction, operand_text) = statement
                .split_once(char::is_whitespace)
                .unwrap_or((statement, ""));
            let operands: Vec<&str> = operand_text
                .split(',')
                .map(|operand| operand.trim_matches([' ', '\t', '{', '}']))
                .collect();
            if instruction.starts_with("mov.") && !operands[1].starts_with('%') {
                constants.insert(operands[0], bits(operands[1]));
            } else if instruction.starts_with("st.global") {
                for &operand in &operands[1..] {
                    let constant = constants.get(operand).cloned();
                    values.push(constant.unwrap_or_else(|| bits(operand)));
                }
            }
        }
        values
    }

    /// Returns `ff800000` for a constant of 32 bits, however PTX spells it: `0fFF800000`,
    /// `-8388608`.
    fn bits(constant: &str) -> String {
        if let Ok(value) = constant.parse::<i64>() {
            return format!("{:08x}", value as u32);
        }
        let float_bits = constant.strip_prefix("0f").unwrap_or_default();
        match u32::from_str_radix(float_bits, 16) {
            Ok(value) => format!("{value:08x}"),
            Err(_) => constant.to_string(),
        }
    }

    fn workspace_root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap()
    }

    /// Returns the pinned or installed nvcc. Without one it prints so and returns `None`, or fails
    /// where CI is set.
    fn nvcc(root: &Path) -> Option<PathBuf> {
        let nvcc = find_nvcc(root).unwrap();
        if nvcc.is_none() {
            assert!(
                std::env::var_os("CI").is_none(),
                "nvcc was not found: {REMEDY}"
            );
            println!("not checked: nvcc was not found: {REMEDY}");
        }
        nvcc
    }

    /// A driver would translate these kernels of the timer when it loads them: without a GPU only
    /// ptxas looks at them.
    #[test]
    fn the_timers_kernels_assemble_for_every_architecture() {
        let root = workspace_root();
        let Some(nvcc) = nvcc(root) else { return };
        let ptxas = nvcc.canonicalize().unwrap().with_file_name("ptxas");
        let source = root.join("common/src/device/cuda/helpers.ptx");
        let folder = tempfile::tempdir().unwrap();
        for arch in ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
            let mut command = Command::new(&ptxas);
            command
                .arg(format!("-arch={arch}"))
                .arg("-o")
                .arg(folder.path().join(arch))
                .arg(&source);
            run(&mut command, "ptxas", arch).unwrap();
        }
        let cubin = std::fs::read(folder.path().join("sm_80")).unwrap();
        for entry in ["attention_noop", "attention_spin"] {
            assert!(
                memchr::memmem::find(&cubin, entry.as_bytes()).is_some(),
                "{entry}"
            );
        }
    }

    /// It stands for a whole stage with its launch, for people who do not read Rust. Translated to
    /// PTX alone, which takes half as long.
    #[test]
    fn the_standalone_example_compiles_with_nvcc_alone() {
        let root = workspace_root();
        let Some(nvcc) = nvcc(root) else { return };
        let source = root.join("examples/standalone.cu");
        let lines = std::fs::read_to_string(&source).unwrap().lines().count();
        assert!(lines <= 100, "{lines} lines");
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&nvcc);
        command
            .args(["-std=c++17", "-diag-suppress=177", "-c"])
            .args(["-gencode", "arch=compute_90,code=compute_90"])
            .arg("-I")
            .arg(root.join("common/cuda"))
            .arg("-o")
            .arg(folder.path().join("standalone.o"))
            .arg(source);
        run(&mut command, "nvcc", "examples/standalone.cu").unwrap();
    }

    /// Returns what nvcc compiles of a stage's kernel with another text: the preprocessed lines,
    /// without white space and without those that only say where they come from.
    fn preprocessed(nvcc: &Path, kernel: &Path, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("kernel.cu");
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new(nvcc);
        command
            .args(["-E", "-std=c++17", "-arch=sm_90a", "-DATTN_STAGE=test"])
            .arg("-I")
            .arg(workspace_root().join("common/cuda"))
            // The stage's own headers.
            .arg("-I")
            .arg(kernel.parent().unwrap())
            .arg(source);
        let output = run(&mut command, "nvcc", &kernel.display().to_string()).unwrap();
        let printed_text = String::from_utf8(output.stdout).unwrap();
        let lines = printed_text.lines().filter(|line| !line.starts_with('#'));
        lines.flat_map(str::split_whitespace).collect()
    }

    /// Kernels show their values to `compare explain` in the emulator alone: nvcc sees an empty
    /// statement in place of each.
    #[test]
    fn observation_is_nothing_to_nvcc() {
        let root = workspace_root();
        let Some(nvcc) = nvcc(root) else { return };
        let mut kernels = Vec::new();
        for entry in std::fs::read_dir(root).unwrap() {
            let kernel = entry.unwrap().path().join("kernel.cu");
            if kernel.is_file() {
                kernels.push(kernel);
            }
        }
        assert!(kernels.len() >= 10, "{} stages", kernels.len());
        for kernel in kernels {
            let text = std::fs::read_to_string(&kernel).unwrap();
            let silent = without_calls(&without_calls(&text, "ATTN_PLACES("), "ATTN_OBSERVE(");
            assert_ne!(text, silent, "{}", kernel.display());
            let observed_code = preprocessed(&nvcc, &kernel, &text);
            let silent_code = preprocessed(&nvcc, &kernel, &silent);
            assert!(
                observed_code.contains("AttentionParams"),
                "{}",
                kernel.display()
            );
            assert!(observed_code == silent_code, "{}", kernel.display());
        }
    }

    /// Returns `text` with an empty statement for each that starts with `call`, which may go over
    /// several lines and be all that an `if` guards.
    fn without_calls(text: &str, call: &str) -> String {
        let mut parts = text.split(call);
        let mut rest = parts.next().unwrap().to_owned();
        for part in parts {
            rest.push(';');
            rest += part.split_once(");").unwrap().1;
        }
        rest
    }

    /// nvcc once started half of the rows of such an array at 0: see
    /// `common/docs/nvcc-array-initialisers.md`.
    #[test]
    fn every_row_starts_with_the_empty_state() {
        let root = workspace_root();
        let Some(nvcc) = nvcc(root) else { return };
        let folder = tempfile::tempdir().unwrap();
        let job = Job {
            root,
            out_dir: folder.path(),
            prefix: "test",
            kernel: "common/kernel-build/tests/row_state.cu",
            include: &root.join("common/cuda"),
            identity: "",
            nvcc: &nvcc,
            architectures: &Architectures::parse(default_architectures("release")).unwrap(),
        };
        for image in ["compute_80", "compute_90a"] {
            nvcc_call(&job, image).unwrap();
            let ptx = std::fs::read_to_string(image_path(&job, image)).unwrap();
            // Maximum and sum of each row: the least f32, and 0.
            assert_eq!(stored(&ptx), ["ff7fffff", "00000000"].repeat(4), "{image}");
        }
    }

    #[test]
    fn stored_constants_are_read_however_they_are_spelt() {
        let ptx = "\tmov.b32 \t%r1, 0fFF800000;\n\
                   \tst.global.v2.b32 \t[%rd2], {%r1, 0f00000000};\n\
                   \tst.global.b32 \t[%rd2+8], -8388608;\n\
                   \tst.global.b32 \t[%rd2+12], %r7;\n";
        assert_eq!(stored(ptx), ["ff800000", "00000000", "ff800000", "%r7"]);
    }

    #[test]
    fn architectures_are_machine_code_and_ptx() {
        let parsed = Architectures::parse(default_architectures("release")).unwrap();
        assert_eq!(
            (parsed.machine.join("+"), parsed.ptx.join("+")),
            ("sm_89+sm_90a".into(), "compute_80".into())
        );
        assert!(
            Architectures::parse(" sm_100f , sm_120")
                .unwrap()
                .ptx
                .is_empty()
        );
        assert_eq!(parsed.clone().among(&[]), Some(parsed.clone()));
        let hopper = parsed.clone().among(&["sm_90a"]).unwrap();
        assert_eq!(
            (hopper.machine.join("+"), hopper.ptx.len()),
            ("sm_90a".into(), 0),
            "its PTX runs nowhere else"
        );
        assert_eq!(parsed.clone().among(&["sm_100a", "sm_90a"]), Some(hopper));
        assert_eq!(parsed.among(&["sm_100a"]), None);
    }

    #[test]
    fn other_architectures_are_refused_with_an_example() {
        for text in [
            "",
            "compute_80",
            "sm_89,sm_89",
            "90a",
            "sm_",
            "sm_90aa",
            "sm_9",
            "native",
            "sm_89,native",
            "sm_90a;sm_89",
        ] {
            let error = Architectures::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("such as sm_89,sm_90a,compute_80"),
                "{text}: {error}"
            );
        }
    }

    /// A kernel for one architecture, with scripts for nvcc and fatbinary.
    struct FakeToolkit {
        folder: tempfile::TempDir,
        architectures: &'static str,
    }

    const REPORT: &str = "ptxas info    : Compiling entry function 'kernel' for 'sm_90a'\n\
                          ptxas info    : Used 14 registers\n";

    impl FakeToolkit {
        fn new() -> Self {
            let toolkit = Self {
                folder: tempfile::tempdir().unwrap(),
                architectures: "sm_90a",
            };
            let folder = toolkit.folder.path().display();
            toolkit.add_script(
                "nvcc",
                &format!(
                    "[ \"$1\" = --version ] && exec echo 'tools, release 13.0, V13.0.88'\n\
                     echo call >> {folder}/calls\n\
                     for out; do :; done\n\
                     echo 'extern \"C\" void kernel() {{}}' \
                     | c++ -ffunction-sections -x c++ -c - -o \"$out\"\n\
                     case \" $* \" in *\" -cubin \"*) cat {folder}/report;; esac\n"
                ),
            );
            toolkit.add_script(
                "fatbinary",
                &format!(
                    "echo \"$@\" > {folder}/images\n\
                     touch \"${{2#--create=}}\"\n"
                ),
            );
            toolkit
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn add_script(&self, name: &str, text: &str) {
            write_program(&self.path(name), &format!("#!/bin/sh\n{text}")).unwrap();
        }

        /// Builds sources of `identity` by an nvcc that prints `report`.
        fn build(&self, identity: &str, report: &str) -> Result<GpuCode, BuildError> {
            std::fs::write(self.path("report"), report).unwrap();
            build(&Job {
                root: self.folder.path(),
                out_dir: self.folder.path(),
                prefix: "test",
                kernel: "kernel.cu",
                include: self.folder.path(),
                identity,
                nvcc: &self.path("nvcc"),
                architectures: &Architectures::parse(self.architectures).unwrap(),
            })
        }

        /// Returns how often nvcc has been called: once for PTX and once for machine code.
        fn call_count(&self) -> usize {
            let calls = std::fs::read_to_string(self.path("calls")).unwrap();
            calls.lines().count()
        }
    }

    #[test]
    fn a_build_is_kept_while_its_inputs_are_the_same() {
        let toolkit = FakeToolkit::new();
        let code = toolkit.build("one", REPORT).unwrap();
        let entry = &code.architectures[0].entries[0];
        assert_eq!((&*entry.symbol, entry.resources.registers), ("kernel", 14));
        assert_eq!(toolkit.build("one", REPORT).unwrap(), code);
        assert_eq!(toolkit.call_count(), 2);
        std::fs::remove_file(toolkit.path(FATBIN)).unwrap();
        toolkit.build("one", REPORT).unwrap();
        assert_eq!(toolkit.call_count(), 4, "without its image");
        std::fs::remove_file(toolkit.path("sm_90a.ptx")).unwrap();
        toolkit.build("one", REPORT).unwrap();
        assert_eq!(toolkit.call_count(), 6, "without its PTX");
        toolkit.build("two", REPORT).unwrap();
        assert_eq!(toolkit.call_count(), 8, "of other sources");
    }

    #[test]
    fn ptx_that_machine_code_is_assembled_from_is_an_image_too() {
        let toolkit = FakeToolkit {
            architectures: "sm_89,compute_89",
            ..FakeToolkit::new()
        };
        let code = toolkit.build("one", REPORT).unwrap();
        assert_eq!(code.ptx, ["compute_89"]);
        assert_eq!(toolkit.call_count(), 2, "it is translated once");
        let images = std::fs::read_to_string(toolkit.path("images")).unwrap();
        let ptx = toolkit.path("sm_89.ptx");
        let image = format!("--image3=kind=ptx,sm=89,file={}", ptx.display());
        assert!(images.contains(&image), "{images}");
    }

    #[test]
    fn ptx_of_another_architecture_is_translated_too() {
        let toolkit = FakeToolkit {
            architectures: "sm_89,compute_80",
            ..FakeToolkit::new()
        };
        toolkit.build("one", REPORT).unwrap();
        assert_eq!(toolkit.call_count(), 3);
        assert!(toolkit.path("compute_80.ptx").is_file());
    }

    #[test]
    fn a_release_build_runs_from_compute_80_on_and_others_from_89() {
        let ptx_of = |profile| {
            Architectures::parse(default_architectures(profile))
                .unwrap()
                .ptx
        };
        assert_eq!(ptx_of("release"), ["compute_80"]);
        assert_eq!(ptx_of("debug"), ["compute_89"]);
    }

    #[test]
    fn code_that_faults_or_is_missing_is_refused() {
        let toolkit = FakeToolkit::new();
        let refusal = |report: &str| toolkit.build("one", report).unwrap_err().to_string();
        let fatal = format!("{REPORT}warning: {}", FATAL_WARNINGS[0]);
        assert!(refusal(&fatal).contains("a fault when run"));
        assert!(refusal("").contains("no entry"));
        let other = REPORT.replace("'kernel'", "'other'");
        assert!(refusal(&other).contains("other has no code in the cubin"));
    }

    #[test]
    fn version_is_read_from_nvccs_answer() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\n\
                    Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n\
                    Cuda compilation tools, release 13.0, V13.0.88\n\
                    Build cuda_13.0.r13.0/compiler.36424714_0\n";
        assert_eq!(parse_version(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_version("g++ 12"), None);
    }
}
