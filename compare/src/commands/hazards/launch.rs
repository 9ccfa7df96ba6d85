//! The launch file of `compare hazards`: what a kernel is given, in TOML.

use anyhow::{Context, anyhow, bail};
use ptx::case::{Argument, Buffer, Case, ElementType, Filling, MapOver};
use serde::Deserialize;
use std::path::Path;

/// A launch file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LaunchFile {
    /// The entry; a module with one entry needs none.
    pub entry: Option<String>,
    grid: Extent,
    block: Extent,
    #[serde(default = "single_block")]
    cluster: u32,
    #[serde(default)]
    dynamic_shared_bytes: usize,
    #[serde(default, rename = "buffer")]
    buffers: Vec<BufferEntry>,
    #[serde(default, rename = "argument")]
    arguments: Vec<ArgumentEntry>,
    #[serde(default, rename = "expect")]
    pub expected: Vec<Expected>,
}

/// One to three sizes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Extent {
    One(u32),
    Several(Vec<u32>),
}

fn single_block() -> u32 {
    1
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct BufferEntry {
    name: String,
    #[serde(rename = "type")]
    element: String,
    shape: Vec<usize>,
    #[serde(default)]
    fill: Fill,
    #[serde(default)]
    output: bool,
}

/// A number, or a word: `unset`, `index`, `random`, `random:SEED`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(untagged)]
enum Fill {
    #[default]
    Default,
    Number(f64),
    Word(String),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArgumentEntry {
    buffer: Option<String>,
    #[serde(rename = "type")]
    element: Option<String>,
    value: Option<f64>,
    map: Option<MapEntry>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapEntry {
    buffer: String,
    extents: Vec<u64>,
    strides: Vec<u64>,
    /// Columns and rows.
    #[serde(rename = "box")]
    extent: [u32; 2],
    swizzle: u32,
}

/// The content that an output should have.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub buffer: String,
    /// One for all elements, or one for each.
    pub values: Vec<f64>,
    #[serde(default)]
    pub tolerance: f64,
}

impl LaunchFile {
    /// Reads a launch file; an error begins with the path and the line.
    pub fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start].matches('\n').count() + 1;
            anyhow!("{}:{line}: {}", path.display(), error.message())
        })
    }

    /// Returns the launch.
    pub fn case(&self) -> anyhow::Result<Case> {
        let mut buffers = Vec::new();
        for entry in &self.buffers {
            let buffer = entry.buffer();
            buffers.push(buffer.with_context(|| format!("buffer `{}`", entry.name))?);
        }
        let mut arguments = Vec::new();
        for (index, entry) in self.arguments.iter().enumerate() {
            let argument = entry.argument();
            arguments.push(argument.with_context(|| format!("argument {}", index + 1))?);
        }
        for expected in &self.expected {
            let is_output = |buffer: &&Buffer| buffer.name == expected.buffer && buffer.is_output;
            if !buffers.iter().any(|buffer| is_output(&buffer)) {
                bail!("`expect` names `{}`, which is no output", expected.buffer);
            }
        }
        Ok(Case {
            grid: self.grid.sizes()?,
            block: self.block.sizes()?,
            cluster: self.cluster,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            buffers,
            arguments,
        })
    }
}

impl Extent {
    fn sizes(&self) -> anyhow::Result<[u32; 3]> {
        let list = match self {
            Self::One(size) => std::slice::from_ref(size),
            Self::Several(sizes) => sizes.as_slice(),
        };
        if list.is_empty() || list.len() > 3 {
            bail!("an extent has one to three sizes, not {}", list.len());
        }
        let mut sizes = [1; 3];
        sizes[..list.len()].copy_from_slice(list);
        Ok(sizes)
    }
}

fn element(name: &str) -> anyhow::Result<ElementType> {
    Ok(match name {
        "u8" => ElementType::U8,
        "e4m3" => ElementType::E4m3,
        "f16" => ElementType::F16,
        "bf16" => ElementType::Bf16,
        "f32" => ElementType::F32,
        "i32" => ElementType::I32,
        "i64" => ElementType::I64,
        _ => bail!("`{name}` is no type; take u8, e4m3, f16, bf16, f32, i32 or i64"),
    })
}

impl BufferEntry {
    fn buffer(&self) -> anyhow::Result<Buffer> {
        let filling = match &self.fill {
            Fill::Default if self.output => Filling::Unset,
            Fill::Default => Filling::Random(0),
            Fill::Number(value) => Filling::Value(*value),
            Fill::Word(word) => match word.split_once(':') {
                None if word == "unset" => Filling::Unset,
                None if word == "index" => Filling::Index,
                None if word == "random" => Filling::Random(0),
                Some(("random", seed)) => Filling::Random(seed.parse()?),
                _ => bail!("`{word}` fills nothing; take unset, index, random:SEED or a number"),
            },
        };
        Ok(Buffer {
            name: self.name.clone(),
            element: element(&self.element)?,
            elements: self.shape.iter().product(),
            filling,
            is_output: self.output,
        })
    }
}

impl ArgumentEntry {
    fn argument(&self) -> anyhow::Result<Argument> {
        match (&self.buffer, &self.element, self.value, &self.map) {
            (Some(buffer), None, None, None) => Ok(Argument::Address(buffer.clone())),
            (None, Some(name), Some(value), None) => Ok(Argument::Scalar(element(name)?, value)),
            (None, None, None, Some(map)) => Ok(Argument::Map(MapOver {
                buffer: map.buffer.clone(),
                extents: map.extents.clone(),
                strides: map.strides.clone(),
                box_columns: map.extent[0],
                box_rows: map.extent[1],
                swizzle: map.swizzle,
            })),
            _ => bail!("it is one of `buffer`, `type` with `value`, or `map`"),
        }
    }
}
