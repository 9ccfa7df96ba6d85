//! Runs cuobjdump on the machine code that this program has of the stages.

use super::find::{CUOBJDUMP, Tool};
use super::process::Scratch;
use crate::machine_code;
use common::stage::LoadedStage;
use rayon::prelude::*;
use results::builds::loaded;
use results::table::StageMeta;
use std::path::PathBuf;
use std::process::Command;

/// The error is why the counts are not known.
pub fn count_instructions<'a>(
    stages: &[LoadedStage],
    builds: impl IntoIterator<Item = &'a mut StageMeta>,
) -> Result<Tool, String> {
    let tool = CUOBJDUMP.find()?;
    let builds_at_once = Vec::from_iter(builds).into_par_iter();
    builds_at_once.try_for_each(|build| {
        let mut kernels = build.variants.iter().flat_map(|variant| &variant.kernels);
        if kernels.any(|kernel| !kernel.built.is_empty()) {
            let listing = listing(loaded(stages, &build.id), &tool)?;
            machine_code::complete(build, &listing);
        }
        Ok::<(), String>(())
    })?;
    Ok(tool)
}

fn listing(stage: &LoadedStage, tool: &Tool) -> Result<String, String> {
    let id = stage.info().id;
    let Some(fatbin) = stage.attention.artifacts().fatbin else {
        return Err(format!(
            "{id} was built without GPU code; install nvcc (scripts/cuda-toolkit) and build again"
        ));
    };
    let written = Scratch::new(id).and_then(|folder| Ok((folder.write("fatbin", fatbin)?, folder)));
    let (file, _folder) = written.map_err(|error| format!("{error:#}"))?;
    // It starts nvdisasm, which lies beside it.
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = tool.path.parent().map(PathBuf::from).into_iter().collect();
    folders.extend(std::env::split_paths(&search_path));
    let path = std::env::join_paths(folders).unwrap_or(search_path);
    let output = Command::new(&tool.path)
        .arg("-sass")
        .arg(&file)
        .env("PATH", path)
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", tool.path.display()))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        let message = printed.lines().next().unwrap_or("no message");
        return Err(format!(
            "{} cannot read the code of {id}: {message}",
            tool.path.display()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
