//! The GPU build: nvcc to cubins and PTX, fatbinary to one image, and ptxas' report.

use crate::emulated::run;
use crate::error::BuildError;
use crate::identity::hex_sha256;
use crate::report::{ArchitectureBuild, EntryBuild, GpuCode};
use crate::{ptxas, sass};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Flags of every nvcc call; part of a stage's identity. No -lineinfo and no -G: both change what is hashed. 177 is
/// "declared but never referenced", which each constant of a preset would print once per instance.
pub(crate) const FLAGS: [&str; 5] = ["-std=c++17", "-O3", "-Xptxas", "-v", "-diag-suppress=177"];

/// Code that faults when run.
const FATAL_WARNINGS: [&str; 1] = ["cannot perform wmma load or store on local memory"];

/// Of nvcc, per stage.
const PARALLEL: usize = 2;

/// What `ATTENTION_CUDA_ARCHS` means when unset. PTX is for compute_80: that of compute_90a runs on no later GPU.
pub(crate) const DEFAULT_ARCHITECTURES: &str = "sm_89,sm_90a,compute_80";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Architectures {
    /// `sm_90a`: machine code.
    pub machine: Vec<String>,
    /// `compute_80`: PTX.
    pub ptx: Vec<String>,
}

impl Architectures {
    /// Of `ATTENTION_CUDA_ARCHS`.
    pub fn parse(text: &str) -> Result<Self, BuildError> {
        let items: Vec<&str> = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .collect();
        let of_kind = |kind: &str| -> Vec<String> {
            items
                .iter()
                .filter(|item| item.strip_prefix(kind).is_some_and(is_version))
                .map(|item| item.to_string())
                .collect()
        };
        let (machine, ptx) = (of_kind("sm_"), of_kind("compute_"));
        let distinct: std::collections::BTreeSet<_> = items.iter().collect();
        if machine.is_empty()
            || machine.len() + ptx.len() != items.len()
            || distinct.len() != items.len()
        {
            return Err(BuildError::Variable {
                name: "ATTENTION_CUDA_ARCHS",
                value: text.to_string(),
                expected: "distinct sm_NN (at least one: resources are read from machine code) and compute_NN, separated by \
                           commas, such as sm_89,sm_90a,compute_80",
            });
        }
        Ok(Self { machine, ptx })
    }

    /// For code that needs one of `only` (empty: any); `None` if no machine code is left.
    pub fn among(self, only: &[&str]) -> Option<Self> {
        if only.is_empty() {
            return Some(self);
        }
        let machine: Vec<_> = self
            .machine
            .into_iter()
            .filter(|name| only.contains(&name.as_str()))
            .collect();
        (!machine.is_empty()).then_some(Self {
            machine,
            ptx: Vec::new(),
        })
    }
}

/// `90a` of `sm_90a`.
fn is_version(text: &str) -> bool {
    let digits = text.trim_end_matches(['a', 'f']);
    text.len() - digits.len() <= 1
        && digits.len() >= 2
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) struct Job<'a> {
    pub root: &'a Path,
    /// Cargo's `OUT_DIR`.
    pub out_dir: &'a Path,
    /// `stage0_scalar`.
    pub prefix: &'a str,
    /// Relative to the root.
    pub kernel: &'a str,
    pub include: &'a Path,
    pub identity: &'a str,
    pub nvcc: &'a Path,
    pub architectures: &'a Architectures,
}

/// In `OUT_DIR`.
pub(crate) const FATBIN: &str = "attention.fatbin";

/// A finished build and its inputs.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    code: GpuCode,
}

/// Keeps the last fatbin if nothing that it depends on has changed: an edit of the emulator's headers reruns the build
/// script, too.
pub(crate) fn build(job: &Job) -> Result<GpuCode, BuildError> {
    let version = nvcc_version(job.nvcc)?;
    let fatbin = job.out_dir.join(FATBIN);
    let kept_path = job.out_dir.join("gpu.json");
    let key = format!(
        "{} {} {:?} {} {:?} {:?}",
        job.identity,
        job.prefix,
        job.nvcc,
        version,
        job.architectures,
        std::env::var_os("NVCC_CCBIN")
    );
    let key = hex_sha256(&[key.as_bytes()]);
    let kept = std::fs::read(&kept_path)
        .ok()
        .and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
    if let Some(kept) = kept.filter(|kept| kept.key == key && fatbin.is_file()) {
        return Ok(kept.code);
    }
    let code = compile(job, version, &fatbin)?;
    let text = serde_json::to_vec(&Kept {
        key,
        code: code.clone(),
    })?;
    std::fs::write(&kept_path, text).map_err(BuildError::io("write", &kept_path))?;
    Ok(code)
}

fn compile(job: &Job, nvcc: String, fatbin: &Path) -> Result<GpuCode, BuildError> {
    let Architectures { machine, ptx } = job.architectures;
    let images: Vec<&String> = machine.iter().chain(ptx).collect();
    let results: Vec<Mutex<Option<Result<String, BuildError>>>> =
        images.iter().map(|_| Mutex::new(None)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(images.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(image) = images.get(index) else {
                        break;
                    };
                    *results[index].lock().expect("no panic under the lock") =
                        Some(nvcc_call(job, image));
                }
            });
        }
    });
    let mut outputs = Vec::new();
    for result in results {
        let result = result.into_inner().expect("no panic under the lock");
        outputs.push(result.expect("every index was taken")?);
    }
    let architectures = machine
        .iter()
        .zip(&outputs)
        .map(|(name, output)| read_architecture(job, name, output))
        .collect::<Result<_, _>>()?;

    // nvcc -fatbin would compile everything a second time.
    let real = job
        .nvcc
        .canonicalize()
        .map_err(BuildError::io("resolve", job.nvcc))?;
    let mut join = Command::new(real.with_file_name("fatbinary"));
    join.arg("-64")
        .arg(format!("--create={}", fatbin.display()));
    for image in &images {
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
    Ok(GpuCode {
        nvcc,
        flags: FLAGS.map(String::from).to_vec(),
        architectures,
        ptx: ptx.clone(),
    })
}

fn image_path(job: &Job, image: &str) -> PathBuf {
    job.out_dir.join(format!(
        "{image}.{}",
        if image.starts_with("sm_") {
            "cubin"
        } else {
            "ptx"
        }
    ))
}

/// One compilation; what nvcc printed.
fn nvcc_call(job: &Job, image: &str) -> Result<String, BuildError> {
    let mut command = Command::new(job.nvcc);
    command
        .env_remove("NVCC_PREPEND_FLAGS")
        .env_remove("NVCC_APPEND_FLAGS")
        .current_dir(job.root);
    command
        .args(FLAGS)
        .arg(format!("-DATTN_STAGE={}", job.prefix))
        .arg("-I")
        .arg(job.include);
    match image.strip_prefix("sm_") {
        Some(number) => command.args([
            "-cubin".to_string(),
            format!("-gencode=arch=compute_{number},code={image}"),
        ]),
        None => command.args(["-ptx".to_string(), format!("-arch={image}")]),
    };
    command
        .arg(job.kernel)
        .arg("-o")
        .arg(image_path(job, image));
    let what = format!("{} for {image}", job.kernel);
    let output = run(&mut command, "nvcc", &what)?;
    let said = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat();
    let is_fatal = |line: &&str| FATAL_WARNINGS.iter().any(|warning| line.contains(warning));
    let warnings: Vec<&str> = said.lines().filter(is_fatal).collect();
    if warnings.is_empty() {
        Ok(said)
    } else {
        Err(BuildError::FatalWarning {
            what,
            warnings: warnings.join("\n"),
        })
    }
}

fn read_architecture(job: &Job, name: &str, output: &str) -> Result<ArchitectureBuild, BuildError> {
    let what = format!("{} for {name}", job.kernel);
    let fail = |problem: String| BuildError::Ptxas {
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
    for (symbol, resources) in ptxas::parse(output).map_err(&fail)? {
        let sass_sha256 = hashes
            .remove(&symbol)
            .ok_or_else(|| fail(format!("{symbol} has no code in the cubin")))?;
        let warnings = ptxas::warnings(output, &symbol);
        entries.push(EntryBuild {
            symbol,
            sass_sha256,
            resources,
            warnings,
        });
    }
    if entries.is_empty() {
        return Err(fail("no entry".to_string()));
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

/// `13.0.88` of "Cuda compilation tools, release 13.0, V13.0.88".
fn parse_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains(", release "))?;
    Some(line.rsplit_once(", V")?.1.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolkit::{REMEDY, Surroundings, find_nvcc};

    /// The constants that `ptx` stores to global memory, in order; a register that holds no constant stands as it is.
    fn stored(ptx: &str) -> Vec<String> {
        let mut constants = std::collections::BTreeMap::new();
        let mut values = Vec::new();
        for line in ptx.lines().filter_map(|line| line.trim().strip_suffix(';')) {
            let (instruction, operands) =
                line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let operands: Vec<&str> = operands
                .split(',')
                .map(|operand| operand.trim_matches([' ', '\t', '{', '}']))
                .collect();
            if instruction.starts_with("mov.") && !operands[1].starts_with('%') {
                constants.insert(operands[0], bits(operands[1]));
            } else if instruction.starts_with("st.global") {
                let known =
                    |value: &&str| constants.get(value).cloned().unwrap_or_else(|| bits(value));
                values.extend(operands[1..].iter().map(known));
            }
        }
        values
    }

    /// `ff800000` for a constant of 32 bits, however PTX spells it: `0fFF800000`, `-8388608`.
    fn bits(constant: &str) -> String {
        let value = constant
            .parse::<i64>()
            .ok()
            .or_else(|| i64::from_str_radix(constant.strip_prefix("0f")?, 16).ok());
        value.map_or(constant.to_string(), |value| {
            format!("{:08x}", value as u32)
        })
    }

    /// The pinned or installed nvcc; without one, `None` and a line that says so, or a failure where CI is set.
    fn nvcc(root: &Path) -> Option<PathBuf> {
        let around = Surroundings {
            variable: &|name| std::env::var_os(name),
            is_file: &Path::is_file,
            root,
        };
        let nvcc = find_nvcc(&around).unwrap();
        if nvcc.is_none() {
            assert!(
                std::env::var_os("CI").is_none(),
                "nvcc was not found: {REMEDY}"
            );
            println!("not checked: nvcc was not found: {REMEDY}");
        }
        nvcc
    }

    /// A driver would translate these kernels of the timer when it loads them: without a GPU only ptxas looks at them.
    #[test]
    fn the_timers_kernels_assemble_for_every_architecture() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
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

    /// What kernels show to `compare explain` they show in the emulator alone.
    #[test]
    fn observation_takes_no_machine_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        let Some(nvcc) = nvcc(root) else { return };
        let stages = std::fs::read_dir(root).unwrap();
        let kernels = stages.map(|entry| entry.unwrap().path().join("kernel.cu"));
        let mut seen = 0;
        for kernel in kernels.filter(|kernel| kernel.is_file()) {
            let text = std::fs::read_to_string(&kernel).unwrap();
            // The variant that is declared first stands for all.
            let is_variant = |line: &&str| line.starts_with("ATTN_") && line.contains("VARIANT(");
            let first = text.lines().find(is_variant);
            let shown: Vec<&str> = text
                .lines()
                .filter(|line| !is_variant(line) || Some(*line) == first)
                .collect();
            let shown = shown.join("\n");
            let silent = without_calls(&without_calls(&shown, "ATTN_PLACES("), "ATTN_OBSERVE(");
            assert_ne!(shown, silent, "{}", kernel.display());
            let machine_code = |text: &str| {
                let folder = tempfile::tempdir().unwrap();
                let source = folder.path().join("kernel.cu");
                std::fs::write(&source, text).unwrap();
                // The stage's own headers.
                for entry in std::fs::read_dir(kernel.parent().unwrap()).unwrap() {
                    let path = entry.unwrap().path();
                    if path.extension().is_some_and(|extension| extension == "cuh") {
                        std::fs::copy(&path, folder.path().join(path.file_name().unwrap()))
                            .unwrap();
                    }
                }
                let job = Job {
                    root,
                    out_dir: folder.path(),
                    prefix: "test",
                    kernel: source.to_str().unwrap(),
                    include: &root.join("common/cuda"),
                    identity: "",
                    nvcc: &nvcc,
                    architectures: &Architectures::parse("sm_90a").unwrap(),
                };
                nvcc_call(&job, "sm_90a").unwrap();
                sass::text_hashes(&std::fs::read(image_path(&job, "sm_90a")).unwrap()).unwrap()
            };
            let both = std::thread::scope(|scope| {
                [&shown, &silent]
                    .map(|text| scope.spawn(|| machine_code(text)))
                    .map(|thread| thread.join().unwrap())
            });
            assert_eq!(both[0], both[1], "{}", kernel.display());
            seen += 1;
        }
        assert!(seen >= 10, "{seen} stages");
    }

    /// `text` with an empty statement for each that starts with `call`, which may go over several lines and be all that an
    /// `if` guards.
    fn without_calls(text: &str, call: &str) -> String {
        let mut parts = text.split(call);
        let mut rest = parts.next().unwrap().to_owned();
        for part in parts {
            rest.push(';');
            rest += part.split_once(");").unwrap().1;
        }
        rest
    }

    /// nvcc once started half of the rows of such an array at 0: see `common/docs/nvcc-array-initialisers.md`.
    #[test]
    fn every_row_starts_with_the_empty_state() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
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
            architectures: &Architectures::parse(DEFAULT_ARCHITECTURES).unwrap(),
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
        let ptx = "\tmov.b32 \t%r1, 0fFF800000;\n\tst.global.v2.b32 \t[%rd2], {%r1, 0f00000000};\n\tst.global.b32 \t[%rd2+8], \
                   -8388608;\n\tst.global.b32 \t[%rd2+12], %r7;\n";
        assert_eq!(stored(ptx), ["ff800000", "00000000", "ff800000", "%r7"]);
    }

    #[test]
    fn architectures_are_machine_code_and_ptx() {
        let parsed = Architectures::parse(DEFAULT_ARCHITECTURES).unwrap();
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

    /// Of a kernel for one architecture; both programs are scripts.
    #[test]
    fn a_build_is_kept_while_its_inputs_are_the_same_and_refuses_code_that_faults_or_is_missing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let here = folder.path().display();
        let nvcc = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'tools, release 13.0, V13.0.88'\necho call >> {here}/calls\n\
             for out; do :; done\necho 'extern \"C\" void kernel() {{}}' | c++ -ffunction-sections -x c++ -c - -o \"$out\"\n\
             cat {here}/said\n"
        );
        for (name, text) in [
            ("nvcc", &*nvcc),
            ("fatbinary", "#!/bin/sh\ntouch \"${2#--create=}\"\n"),
        ] {
            std::fs::write(at(name), text).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let build_as = |identity: &str, said: &str| {
            std::fs::write(at("said"), said).unwrap();
            build(&Job {
                root: folder.path(),
                out_dir: folder.path(),
                prefix: "test",
                kernel: "kernel.cu",
                include: folder.path(),
                identity,
                nvcc: &at("nvcc"),
                architectures: &Architectures::parse("sm_90a").unwrap(),
            })
        };
        let calls = || {
            std::fs::read_to_string(at("calls"))
                .unwrap()
                .lines()
                .count()
        };
        let said = "ptxas info    : Compiling entry function 'kernel' for 'sm_90a'\nptxas info    : Used 14 registers\n";
        let code = build_as("one", said).unwrap();
        let entry = &code.architectures[0].entries[0];
        assert_eq!((&*entry.symbol, entry.resources.registers), ("kernel", 14));
        assert_eq!(build_as("one", said).unwrap(), code);
        assert_eq!(calls(), 1);
        std::fs::remove_file(at(FATBIN)).unwrap();
        build_as("one", said).unwrap();
        build_as("two", said).unwrap();
        assert_eq!(calls(), 3, "without its image, and of other sources");
        let refusal = |said: &str| build_as("three", said).unwrap_err().to_string();
        let fatal = format!("{said}warning: {}", FATAL_WARNINGS[0]);
        assert!(refusal(&fatal).contains("a fault when run"));
        assert!(refusal("").contains("no entry"));
        let other = said.replace("'kernel'", "'other'");
        assert!(refusal(&other).contains("other has no code in the cubin"));
    }

    #[test]
    fn version_is_read_from_nvccs_answer() {
        let text = "nvcc: NVIDIA (R) Cuda compiler driver\nBuilt on Wed_Aug_20_01:58:59_PM_PDT_2025\nCuda compilation tools, \
                    release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n";
        assert_eq!(parse_version(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_version("g++ 12"), None);
    }
}
