//! `compare smem`: what lies where in the shared memory of an instance. The kernels' structs are compiled once more by the host's
//! C++ compiler, as the emulated build has them, and their layout is read from its debug information: no table is written twice.

mod layout;

use crate::answer::{Answer, NoData};
use crate::document::{Block, Cell, Document, Table, row};
use crate::instrument::find;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::machine;
use crate::measure::select::Chosen;
use crate::stages::Ladder;
use anyhow::bail;
use clap::Args;
use common::metric::Unit;
use layout::{Layout, Member, layouts};
use std::collections::BTreeMap;
use std::process::Command;

pub const EXAMPLES: &str = "\
Each line is a member of `Shared`, the struct by which kernel.cu divides its shared memory, as the C++ compiler lays it out; its size
is what a launch requests. Members of a union have one offset; what a kernel casts has no line. Of an array of structs the first is shown.
Needs the workspace and g++, but no GPU and no nvcc.

Example:
  compare smem --stages 8 --variants overlap-lazy-256x64

Exit codes:
  0  shown
  2  wrong usage, or a layout whose size is not what the launch requests
  3  NO DATA: no workspace, or no C++ compiler that compiles the kernels";

#[derive(Clone, Debug, Args)]
pub struct SmemArgs {
    /// Stages, by id or number [default: all], and their variants [default: the default of each]
    #[command(flatten)]
    pub chosen: Chosen,
}

pub fn smem(args: &SmemArgs) -> anyhow::Result<Answer> {
    let ladder = Ladder::without_gpu("structs are read, nothing runs")?;
    let builds = ladder.builds();
    let mut blocks = Vec::new();
    for picked in args.chosen.of(&builds)? {
        let mut kernels = Vec::new();
        for variant in picked.variants {
            if args.chosen.variants.is_empty() && variant.name != picked.stage.default_variant {
                continue;
            }
            let instances = variant.kernels.iter();
            kernels.extend(instances.map(|kernel| (&variant.name, &kernel.facts)));
        }
        if kernels.is_empty() {
            continue;
        }
        let layouts = of_stage(&picked.stage.id).map_err(NoData)?;
        for (variant, facts) in kernels {
            let layout = of_kernel(&layouts, &facts.symbol, facts.dynamic_shared_bytes)?;
            blocks.push(Block::section(format!(
                "{}/{variant} {} d{}",
                picked.stage.id, facts.dtype, facts.head_dim
            )));
            blocks.push(Block::Table(table(layout)));
        }
    }
    Ok(Answer::page(Exit::Pass, &Document::of(blocks)))
}

/// The layout of an instance, whose size must be what its launches request.
fn of_kernel<'a>(
    layouts: &'a BTreeMap<String, Layout>,
    symbol: &str,
    asked: usize,
) -> anyhow::Result<&'a Layout> {
    let found = layouts.get(symbol);
    let bytes = found.map_or(0, |layout| layout.bytes);
    match found.filter(|_| bytes == asked as u64) {
        Some(layout) => Ok(layout),
        None => bail!(
            "{symbol} requests {asked} bytes of shared memory, but its struct has {bytes} with this C++ compiler: CXX or the \
             sources have changed since this program was built; build again"
        ),
    }
}

/// The layouts of a stage's instances, by symbol, from the workspace's sources.
fn of_stage(id: &str) -> Result<BTreeMap<String, Layout>, String> {
    let root = machine::workspace().ok_or("the kernels' sources are in the workspace; go there")?;
    let work = root.join("target/smem").join(id);
    let [source, linked] = ["structs.cpp", "structs.so"].map(|name| work.join(name));
    std::fs::create_dir_all(&work)
        .and_then(|()| std::fs::write(&source, wrapper(id)))
        .map_err(|error| format!("cannot write {}: {error}", source.display()))?;
    let flags = "-std=c++17 -O0 -gdwarf-4 -gz=none -w -fPIC -shared -nostdlib -include emulator/prelude.h \
                 -I common/emulator/include -I common/cuda -I . -o";
    let compiled = Command::new(find::cxx())
        .current_dir(&root)
        .args(flags.split_whitespace())
        .args([&linked, &source])
        .output();
    let compiled = compiled.map_err(|error| format!("{} cannot be run: {error}", find::cxx()))?;
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr);
        return Err(format!("{} failed: {errors}", find::cxx()));
    }
    let bytes = std::fs::read(&linked).map_err(|error| format!("{}: {error}", linked.display()))?;
    layouts(&bytes)
}

/// A translation unit with a variable of each instance's struct under the instance's symbol, and no kernel.
fn wrapper(id: &str) -> String {
    format!(
        "#define ATTN_STAGE {}\n\
         #include <attn/cluster.cuh>\n\
         #undef ATTN_INSTANCE\n\
         #undef ATTN_MAPPED_INSTANCE\n\
         #undef ATTN_CLUSTER_INSTANCE\n\
         #define ATTN_INSTANCE(family, name, suffix, dtype, dim, ...) \\\n    \
             __attribute__((used)) __VA_ARGS__::Shared ATTN_CONCAT(ATTN_STAGE, name##suffix);\n\
         #define ATTN_MAPPED_INSTANCE ATTN_INSTANCE\n\
         #define ATTN_CLUSTER_INSTANCE ATTN_INSTANCE\n\
         #include <{id}/kernel.cu>\n",
        id.replace('-', "_")
    )
}

fn table(layout: &Layout) -> Table {
    let bytes = |bytes: u64| Cell::Figure(Unit::Count.show(bytes as f64));
    let member = |member: &Member| {
        row! {
            "member" => member.name.as_str(),
            "element" => member.element.as_str(),
            "shape" => joined(&member.extents, " x "),
            "offset" => bytes(member.offset),
            "bytes" => bytes(member.bytes),
        }
    };
    let launch = row! {
        "member" => "a launch requests",
        "element" => "",
        "shape" => "",
        "offset" => "",
        "bytes" => bytes(layout.bytes),
    };
    Table::of(layout.members.iter().map(member).chain([launch]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::terminal::{WIDTH, terminal};

    #[test]
    fn every_instance_has_the_size_that_its_launch_asks_for() {
        for stage in crate::stages::load().unwrap() {
            let layouts = of_stage(stage.info().id).unwrap();
            assert_eq!(layouts.len(), stage.kernels.len(), "{}", stage.info().id);
            for kernel in &stage.kernels {
                let layout =
                    of_kernel(&layouts, &kernel.symbol, kernel.dynamic_shared_bytes).unwrap();
                let ends = layout.members.iter().map(|of| of.offset + of.bytes);
                assert!(
                    ends.max() <= Some(layout.bytes),
                    "{}: {layout:?}",
                    kernel.symbol
                );
                // Q, unless threads keep it, is one tile of the block's rows, padded at most by 16 bytes a row.
                let Some(q) = layout.members.iter().find(|member| member.name == "q") else {
                    assert_eq!(stage.info().id, "stage12-decode");
                    continue;
                };
                let row = kernel.head_dim as u64 * if q.element.contains("E4M3") { 1 } else { 2 };
                let rows = kernel.block_m as u64 * u64::from(kernel.cluster);
                assert!(
                    [rows * row, rows * (row + 16)].contains(&q.bytes),
                    "{}: {q:?}",
                    kernel.symbol
                );
            }
        }
    }

    #[test]
    fn a_struct_of_another_size_is_refused() {
        let layout = |bytes| Layout {
            bytes,
            members: vec![],
        };
        let layouts = [("a".to_string(), layout(128))].into();
        assert_eq!(of_kernel(&layouts, "a", 128).unwrap().bytes, 128);
        let error = of_kernel(&layouts, "a", 256).unwrap_err().to_string();
        assert!(
            error.starts_with("a requests 256 bytes of shared memory, but its struct has 128"),
            "{error}"
        );
        assert!(of_kernel(&layouts, "b", 0).is_err());
    }

    #[test]
    fn a_table_says_where_each_lies_and_what_is_asked_for() {
        let member = |name: &str, element: &str, extents: &[u64], offset, bytes| Member {
            name: name.into(),
            element: element.into(),
            extents: extents.to_vec(),
            offset,
            bytes,
        };
        let layout = Layout {
            bytes: 2048,
            members: vec![
                member("ring", "Slot", &[2], 0, 2048),
                member("ring.k", "half", &[8, 32], 0, 512),
                member("ring.v", "half", &[8, 32], 512, 512),
            ],
        };
        let document = Document::of(vec![Block::Table(table(&layout))]);
        insta::assert_snapshot!(terminal(&document, WIDTH), @r"
        | member            | element | shape  | offset | bytes |
        |-------------------|---------|--------|--------|-------|
        | ring              | Slot    | 2      | 0      | 2,048 |
        | ring.k            | half    | 8 x 32 | 0      |   512 |
        | ring.v            | half    | 8 x 32 | 512    |   512 |
        | a launch requests |         |        |        | 2,048 |
        ");
    }
}
