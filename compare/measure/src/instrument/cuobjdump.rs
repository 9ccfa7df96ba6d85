//! Runs cuobjdump on the machine code that this program has of the stages.

use super::find::{CUOBJDUMP, Tool, ToolError};
use super::process::Scratch;
use crate::machine_code;
use common::stage::LoadedStage;
use rayon::prelude::*;
use results::builds::loaded;
use results::table::StageMeta;
use std::ffi::OsString;
use std::io;
use std::process::Command;

/// A reason why machine code is not read.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(
        "{stage} was built without GPU code; install nvcc (scripts/cuda-toolkit) and build again"
    )]
    NoGpuCode { stage: &'static str },
    #[error("{0:#}")]
    NotWritten(anyhow::Error),
    #[error("{tool} cannot be run: {reason}")]
    NotRun { tool: String, reason: io::Error },
    #[error("{tool} cannot read the code of {stage}: {message}")]
    Unreadable {
        tool: String,
        stage: &'static str,
        message: String,
    },
}

/// Adds the figures of their machine code to `builds`, and returns the tool that read it. The error
/// is the reason why they are not known.
pub fn count_instructions<'a>(
    stages: &[LoadedStage],
    builds: impl IntoIterator<Item = &'a mut StageMeta>,
) -> Result<Tool, CodeError> {
    let tool = CUOBJDUMP.find()?;
    let builds_at_once = Vec::from_iter(builds).into_par_iter();
    builds_at_once.try_for_each(|build| {
        let mut kernels = build.variants.iter().flat_map(|variant| &variant.kernels);
        if kernels.any(|kernel| !kernel.built.is_empty()) {
            let listing = listing(loaded(stages, &build.id), &tool)?;
            machine_code::complete(build, &listing);
        }
        Ok::<(), CodeError>(())
    })?;
    Ok(tool)
}

/// Returns what cuobjdump prints of the code of a stage.
fn listing(stage: &LoadedStage, tool: &Tool) -> Result<String, CodeError> {
    let id = stage.info().id;
    let Some(fatbin) = stage.attention.artifacts().fatbin else {
        return Err(CodeError::NoGpuCode { stage: id });
    };
    let folder = Scratch::new(id).map_err(CodeError::NotWritten)?;
    let file = folder
        .write("fatbin", fatbin)
        .map_err(CodeError::NotWritten)?;
    let output = Command::new(&tool.path)
        .arg("-sass")
        .arg(&file)
        .env("PATH", search_path(tool))
        .output()
        .map_err(|reason| CodeError::NotRun {
            tool: tool.path.display().to_string(),
            reason,
        })?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        let message = printed.lines().next().unwrap_or("no message");
        return Err(CodeError::Unreadable {
            tool: tool.path.display().to_string(),
            stage: id,
            message: message.to_string(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the search path with the folder of a tool in front: it starts nvdisasm, which lies
/// beside it.
fn search_path(tool: &Tool) -> OsString {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = Vec::new();
    if let Some(folder) = tool.path.parent() {
        folders.push(folder.to_path_buf());
    }
    folders.extend(std::env::split_paths(&inherited));
    std::env::join_paths(folders).unwrap_or(inherited)
}

#[cfg(test)]
mod tests;
