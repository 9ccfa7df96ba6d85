//! `compare smem`: what lies where in the shared memory of an instance. The kernels' structs are compiled once more by the host's
//! C++ compiler, as the emulated build has them, and their layout is read from its debug information: no table is written twice.

mod layout;

use crate::answer::{Answer, Format, NoData};
use crate::document::{Block, Cell, Document, Table, row};
use crate::instrument::{find, process};
use crate::judge::list::joined;
use crate::measure::builds::loaded;
use crate::measure::machine;
use crate::measure::select::{Chosen, Instances};
use crate::registry::Ladder;
use anyhow::{bail, ensure};
use clap::Args;
use common::metric::Unit;
use common::stage::LoadedStage;
use layout::{Buffer, Layout, layouts};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

pub const EXAMPLES: &str = "\
Each line is an array of `Shared`, the struct by which kernel.cu divides its shared memory, as the C++ compiler lays it out; its size
is what a launch requests. Arrays that reuse the place of another show where they are members of a union, not where a kernel casts.
Needs the workspace and g++, but no GPU and no nvcc.

Example:
  compare smem --stages 8 --variants overlap-lazy-256x64 --dtypes f16 --head-dims 128

Exit codes:
  0  shown
  2  wrong usage, or a layout whose size is not what the launch requests
  3  NO DATA: no workspace, or no C++ compiler that compiles the kernels";

/// The flags of `smem`.
#[derive(Clone, Debug, Args)]
pub struct SmemArgs {
    /// Stages, by id or number [default: all], and their variants [default: the default of each]
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub instances: Instances,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// A stage takes a second.
const LIMIT: Duration = Duration::from_secs(300);

/// Prints the layouts of the chosen instances.
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
            let taken = variant.kernels.iter();
            let taken = taken.filter(|kernel| args.instances.takes(kernel));
            kernels.extend(taken.map(|kernel| (&variant.name, &kernel.facts)));
        }
        if kernels.is_empty() {
            continue;
        }
        let layouts = of_stage(loaded(&ladder.stages, &picked.stage.id)).map_err(NoData)?;
        for (variant, facts) in kernels {
            let layout = of_kernel(&layouts, &facts.symbol, facts.dynamic_shared_bytes)?;
            blocks.push(Block::section(format!(
                "{}/{variant} {} d{}",
                picked.stage.id, facts.dtype, facts.head_dim
            )));
            blocks.push(Block::Table(table(layout)));
        }
    }
    ensure!(!blocks.is_empty(), args.instances.absent());
    let document = Document::of(blocks);
    Ok(Answer::pass(args.format.print(&document, &document)))
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
            "{symbol} requests {asked} bytes of shared memory, but its struct has {bytes} with this C++ compiler: CXX or \
             common/emulator/include have changed since this program was built; build again"
        ),
    }
}

/// The layouts of a stage's instances, by symbol.
fn of_stage(stage: &LoadedStage) -> Result<BTreeMap<String, Layout>, String> {
    let id = stage.info().id;
    let root =
        machine::workspace().ok_or("the emulator's headers are in the workspace; go there")?;
    let work = root.join("target/smem").join(id);
    let write = |name: &str, text: &str| {
        let path = work.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&work))?;
        std::fs::write(path, text)
    };
    let sources = stage.attention.artifacts().sources;
    (sources
        .iter()
        .try_for_each(|(name, text)| write(name, text)))
    .and_then(|()| write("structs.cpp", &wrapper(id)))
    .map_err(|error| format!("cannot write {}: {error}", work.display()))?;
    let linked = work.join("structs.so");
    let mut command = Command::new(find::cxx());
    let flags =
        "-std=c++17 -O0 -gdwarf-4 -gz=none -w -fPIC -shared -nostdlib -include emulator/prelude.h";
    // The headers that this program was built from; those that the stage itself does not include are the workspace's.
    let headers = ["common/emulator/include", "common/cuda"].map(|path| root.join(path));
    command
        .current_dir(&work)
        .args(flags.split(' '))
        .arg("-I")
        .arg(&headers[0])
        .args(["-I", "common/cuda", "-I"])
        .arg(&headers[1])
        .args(["structs.cpp", "-o"])
        .arg(&linked);
    process::printed(command, &work, "structs.log", LIMIT)?;
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
         #include \"{id}/kernel.cu\"\n",
        id.replace('-', "_")
    )
}

fn table(layout: &Layout) -> Table {
    let bytes = |bytes: u64| Cell::figure(bytes as f64, whole(bytes));
    let row = |buffer: String, element: &str, shape: String, offset: String, bytes: Cell| {
        row! {
            "buffer" => buffer,
            "element" => element,
            "shape" => shape,
            "offset" => offset,
            "bytes" => bytes,
        }
    };
    let none = String::new;
    let sum = |name: &str, of: u64| row(name.into(), "", none(), none(), bytes(of));
    let buffers = layout.buffers.iter().map(|buffer| {
        let name = match &buffer.instead_of {
            Some(first) => format!("{} (where {first} was)", buffer.name),
            None => buffer.name.clone(),
        };
        let size = bytes(buffer.all_bytes());
        row(name, &buffer.element, shape(buffer), offset(buffer), size)
    });
    let padding = (layout.padding() > 0).then(|| sum("padding", layout.padding()));
    let launch = sum("a launch requests", layout.bytes);
    Table::of(buffers.chain(padding).chain([launch]))
}

/// `2 x 64 x 72`
fn shape(buffer: &Buffer) -> String {
    joined(&buffer.extents, " x ")
}

/// `9,216`, of several `9,216, each 18,432 on`.
fn offset(buffer: &Buffer) -> String {
    let apart = buffer
        .repeated
        .iter()
        .map(|(_, apart)| format!(", each {} on", whole(*apart)));
    whole(buffer.offset) + &apart.collect::<String>()
}

fn whole(bytes: u64) -> String {
    Unit::Count.show(bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::terminal::{WIDTH, terminal};

    #[test]
    fn every_instance_has_the_size_that_its_launch_asks_for() {
        for stage in crate::registry::load().unwrap() {
            let layouts = of_stage(&stage).unwrap();
            assert_eq!(layouts.len(), stage.kernels.len(), "{}", stage.info().id);
            for kernel in &stage.kernels {
                let layout =
                    of_kernel(&layouts, &kernel.symbol, kernel.dynamic_shared_bytes).unwrap();
                let own = |buffer: &&Buffer| buffer.instead_of.is_none();
                let sum: u64 = layout
                    .buffers
                    .iter()
                    .filter(own)
                    .map(Buffer::all_bytes)
                    .sum();
                // What takes another's place may be the larger.
                assert!(
                    sum + layout.padding() <= layout.bytes,
                    "{}: {layout:?}",
                    kernel.symbol
                );
                // Q is one tile of the block's rows, padded at most by 16 bytes a row.
                let q = layout
                    .buffers
                    .iter()
                    .find(|buffer| buffer.name == "q")
                    .unwrap();
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
            buffers: vec![],
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
        let buffer = |name: &str, offset, repeated: &[(u64, u64)]| Buffer {
            name: name.into(),
            element: "half".into(),
            extents: vec![8, 32],
            offset,
            repeated: repeated.to_vec(),
            bytes: 512,
            instead_of: (name == "o").then(|| "ring[2]".to_string()),
        };
        let layout = Layout {
            bytes: 2048,
            buffers: vec![
                buffer("ring[2].k", 0, &[(2, 1024)]),
                buffer("ring[2].v", 512, &[(2, 1024)]),
                buffer("o", 0, &[]),
            ],
        };
        let document = Document {
            blocks: vec![Block::Table(table(&layout))],
            ..Document::default()
        };
        insta::assert_snapshot!(terminal(&document, WIDTH), @r"
        | buffer                | element | shape  | offset             | bytes |
        |-----------------------|---------|--------|--------------------|-------|
        | ring[2].k             | half    | 8 x 32 | 0, each 1,024 on   | 1,024 |
        | ring[2].v             | half    | 8 x 32 | 512, each 1,024 on | 1,024 |
        | o (where ring[2] was) | half    | 8 x 32 | 0                  |   512 |
        | a launch requests     |         |        |                    | 2,048 |
        ");
    }
}
