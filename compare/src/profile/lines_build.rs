//! A second build of kernels with -lineinfo, which says where each instruction comes from. It is never measured and no part of any
//! identity; its machine code must be that of this program, instruction by instruction.

use super::lines::{self, Chains};
use crate::measure::machine_code::{Function, functions};
use crate::record::Subject;
use crate::registry;
use crate::sass;
use crate::tool::{self, CUOBJDUMP, NVCC, NVDISASM, Tool};
use common::limits::DeviceLimits;
use common::stage::LoadedStage;
use kernel_build::report::{GpuBuild, GpuCode};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A compiler or disassembler that takes longer has hung: a stage takes a minute.
const LIMIT: Duration = Duration::from_secs(900);

/// The chains of every instance of `places`, as built for `gpu`, by symbol; the error says why there are none.
pub fn chains(
    stages: &[LoadedStage],
    places: &[Subject],
    gpu: DeviceLimits,
    work: &Path,
) -> Result<BTreeMap<String, Chains>, String> {
    let tools = [NVCC.find()?, NVDISASM.find()?, CUOBJDUMP.find()?];
    let mut found = BTreeMap::new();
    for stage in stages {
        let its = places
            .iter()
            .filter(|place| place.stage() == stage.info().id);
        let variants: Vec<String> = its.map(|place| place.name().replace('-', "_")).collect();
        if !variants.is_empty() {
            found.extend(of_stage(
                stage,
                &variants,
                gpu,
                &tools,
                &work.join(stage.info().id),
            )?);
        }
    }
    Ok(found)
}

fn of_stage(
    stage: &LoadedStage,
    variants: &[String],
    gpu: DeviceLimits,
    [nvcc, nvdisasm, cuobjdump]: &[Tool; 3],
    work: &Path,
) -> Result<BTreeMap<String, Chains>, String> {
    let id = stage.info().id;
    let code = match &stage.report.gpu {
        GpuBuild::Built(code) => code,
        GpuBuild::Absent { reason, remedy } => {
            return Err(format!(
                "{id} was built without GPU code, {reason}; {remedy} and build again"
            ));
        }
    };
    let mut archs = code.architectures.iter().map(|arch| arch.name.as_str());
    let arch = archs.rfind(|arch| gpu.is(arch)).ok_or_else(|| {
        format!(
            "{id} has no machine code for this GPU; add it to ATTENTION_CUDA_ARCHS and build again"
        )
    })?;
    let cubin = work.join("lines.cubin");
    // With these variants alone in the table of kernel.cu. Every line keeps its number.
    registry::write_sources(stage, work, |text| of_variants(text, variants))
        .map_err(|error| format!("cannot write {}: {error}", work.display()))?;
    let command = compile(nvcc, code, (id, arch), work, &cubin);
    tool::printed(command, work, "nvcc.log", LIMIT)?;
    let with_lines = functions(&sass::listing_of(cuobjdump, &cubin, id)?, arch);
    let embedded = functions(&sass::listing(stage, cuobjdump)?, arch);
    for function in &with_lines {
        if !embedded.contains(function) {
            return Err(format!(
                "nvcc {} compiles {} to other code than nvcc {} did for this program, so its line numbers cannot be trusted; \
                 name that nvcc in NVCC, or build again with this one",
                nvcc.version, function.symbol, code.nvcc
            ));
        }
    }
    let mut disassemble = Command::new(&nvdisasm.path);
    disassemble.args(["-gi", "-c"]).arg(&cubin);
    let text = tool::printed(disassemble, work, "nvdisasm.txt", LIMIT)?;
    let chains = |function: Function| {
        let chains = lines::chains(&text, &function.symbol);
        (function.symbol, chains)
    };
    Ok(with_lines.into_iter().map(chains).collect())
}

/// kernel.cu without the entries of its table that are of other variants.
fn of_variants(text: &str, variants: &[String]) -> String {
    let is_other = |line: &str| {
        let entry = line
            .strip_prefix("ATTN_")
            .and_then(|entry| entry.split_once("VARIANT("));
        let variant = entry.and_then(|(_, arguments)| arguments.split(", ").nth(1));
        variant.is_some_and(|variant| !variants.iter().any(|wanted| wanted == variant))
    };
    let line = |line| {
        if is_other(line) {
            "\n".to_string()
        } else {
            format!("{line}\n")
        }
    };
    text.lines().map(line).collect()
}

/// As the build script compiles, with line numbers.
fn compile(
    nvcc: &Tool,
    code: &GpuCode,
    (id, arch): (&str, &str),
    work: &Path,
    cubin: &Path,
) -> Command {
    let number = arch.trim_start_matches("sm_");
    let mut command = Command::new(&nvcc.path);
    command
        .env_remove("NVCC_PREPEND_FLAGS")
        .env_remove("NVCC_APPEND_FLAGS")
        .current_dir(work)
        .args(&code.flags)
        .args(["-lineinfo", "-I", "common/cuda", "-cubin"])
        .arg(format!("-DATTN_STAGE={}", id.replace('-', "_")))
        .arg(format!("-gencode=arch=compute_{number},code={arch}"))
        .arg(PathBuf::from(id).join("kernel.cu"))
        .arg("-o")
        .arg(cubin);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::stage::{Artifacts, Attention, StageInfo};
    use kernel_build::report::ArchitectureBuild;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::LazyLock;

    #[test]
    fn other_variants_leave_empty_lines() {
        let text =
            "// ATTN_VARIANT(a, b, C)\nATTN_VARIANT(a, a_1, A1)\nATTN_MAPPED_VARIANT(a, a_2, A2)\n";
        let left = |variant: &str| of_variants(text, &[variant.to_string()]);
        assert_eq!(
            left("a_1"),
            "// ATTN_VARIANT(a, b, C)\nATTN_VARIANT(a, a_1, A1)\n\n"
        );
        assert_eq!(
            left("a_2"),
            "// ATTN_VARIANT(a, b, C)\n\nATTN_MAPPED_VARIANT(a, a_2, A2)\n"
        );
    }

    /// Stage 0 as if it had GPU code.
    struct WithCode;

    impl Attention for WithCode {
        fn info(&self) -> &'static StageInfo {
            registry::STAGES[0].info()
        }

        fn artifacts(&self) -> &'static Artifacts {
            static ARTIFACTS: LazyLock<Artifacts> = LazyLock::new(|| Artifacts {
                fatbin: Some(b"code"),
                ..*registry::STAGES[0].artifacts()
            });
            &ARTIFACTS
        }
    }

    /// Programs in the place of nvcc, nvdisasm and cuobjdump, of which the last prints `embedded` of the program's code and
    /// `with_lines` of what nvcc has made.
    fn chains_of(embedded: &str, with_lines: &str) -> Result<BTreeMap<String, Chains>, String> {
        let work = tempfile::tempdir().unwrap();
        let at = |name: &str| work.path().join(name);
        let tool = |name: &str, script: &str| {
            std::fs::write(at(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o755)).unwrap();
            Tool {
                path: at(name),
                version: "13.0.1".into(),
            }
        };
        std::fs::write(at("embedded"), embedded).unwrap();
        std::fs::write(at("with-lines"), with_lines).unwrap();
        let tools = [
            tool("nvcc", "for last; do :; done; cp with-lines \"$last\""),
            tool(
                "nvdisasm",
                r#"printf '.text.tile:\n//## File "/x/kernel.cu", line 7\n/*0000*/ EXIT ;\n'"#,
            ),
            tool(
                "cuobjdump",
                r#"here=$(dirname "$0"); case "$2" in *.cubin) cat "$2" ;; *) cat "$here/embedded" ;; esac"#,
            ),
        ];
        let mut stage = registry::load().unwrap().remove(0);
        stage.attention = &WithCode;
        let arch = ArchitectureBuild {
            name: "sm_90a".into(),
            entries: vec![],
            identical: vec![],
        };
        stage.report.gpu = GpuBuild::Built(GpuCode {
            nvcc: "13.0.0".into(),
            nvcc_source: "PATH".into(),
            flags: vec![],
            architectures: vec![arch],
            ptx: vec![],
        });
        let gpu = "sm_90".parse().unwrap();
        of_stage(&stage, &[], gpu, &tools, work.path())
    }

    #[test]
    fn lines_of_other_machine_code_are_refused() {
        let code = |instruction: &str| {
            format!(
                "\tcode for sm_90a\n\t\tFunction : tile\n        /*0000*/    {instruction} ;    /* 0x0 */\n"
            )
        };
        let found = chains_of(&code("EXIT"), &code("EXIT")).unwrap();
        assert_eq!(found["tile"][&0][0].to_string(), "kernel.cu:7");
        let error = chains_of(&code("EXIT"), &code("NOP")).unwrap_err();
        assert_eq!(
            error,
            "nvcc 13.0.1 compiles tile to other code than nvcc 13.0.0 did for this program, so its line numbers cannot be trusted; \
             name that nvcc in NVCC, or build again with this one"
        );
    }

    /// On a machine without nvcc the first that is missing is nvcc, with it GPU code of the test's build may be.
    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let mut stages = registry::load().unwrap();
        stages.truncate(1);
        stages[0].report.gpu = GpuBuild::Absent {
            reason: "nvcc was not found".into(),
            remedy: "run scripts/cuda-toolkit".into(),
        };
        let work = tempfile::tempdir().unwrap();
        let gpu = "sm_90".parse().unwrap();
        let places = [Subject::variant(stages[0].info().id, "any")];
        let error = chains(&stages, &places, gpu, work.path()).unwrap_err();
        assert!(error.contains("nvcc was not found"), "{error}");
    }
}
