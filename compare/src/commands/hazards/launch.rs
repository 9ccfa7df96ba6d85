//! The launch file of `compare hazards`: what a kernel is given, in TOML.

use anyhow::{Context, anyhow, bail};
use ptx::case::{Argument, Buffer, Case, ElementType, Filling, MapOver, Part};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A launch file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LaunchFile {
    /// The entry; a module with one entry needs none.
    pub entry: Option<String>,
    grid: Extent,
    block: Extent,
    /// The blocks of a cluster; what the entry asks for if there is none.
    cluster: Option<u32>,
    #[serde(default)]
    dynamic_shared_bytes: usize,
    #[serde(default, rename = "buffer")]
    buffers: Vec<BufferEntry>,
    #[serde(default, rename = "argument")]
    arguments: Vec<ArgumentEntry>,
    #[serde(default, rename = "expect")]
    pub expected: Vec<Expected>,
    /// The folder of the files that it names.
    #[serde(skip)]
    folder: PathBuf,
}

/// One to three sizes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Extent {
    One(u32),
    Several(Vec<u32>),
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

/// A number, or a word: `unset`, `index`, `random`, `random:SEED`, `file:NAME`.
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
    /// The bytes before it in the argument that it is a part of.
    #[serde(default)]
    at: usize,
    buffer: Option<String>,
    /// The bytes of the buffer before the one whose address it is.
    #[serde(default)]
    offset: usize,
    #[serde(rename = "type")]
    element: Option<String>,
    value: Option<f64>,
    map: Option<MapEntry>,
    /// Two digits a byte.
    hex: Option<String>,
    /// The size of a structure.
    bytes: Option<usize>,
    #[serde(default)]
    parts: Vec<ArgumentEntry>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapEntry {
    buffer: String,
    #[serde(default)]
    offset: usize,
    extents: Vec<u64>,
    strides: Vec<u64>,
    /// Innermost first; 1 in each dimension that is left out.
    #[serde(rename = "box")]
    extent: Vec<u32>,
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

impl Expected {
    /// Returns the value that an element should have.
    pub fn value(&self, index: usize) -> f64 {
        self.values[index % self.values.len()]
    }

    /// Returns the first element that is not within the tolerance. A NaN never is.
    pub fn first_difference(&self, values: &[f64]) -> Option<usize> {
        let mut pairs = values.iter().enumerate();
        pairs.position(|(index, value)| {
            let wanted = self.value(index);
            // Infinities are equal, and their difference is a NaN.
            let is_close = *value == wanted || (value - wanted).abs() <= self.tolerance;
            !is_close
        })
    }
}

impl LaunchFile {
    /// Reads a launch file; an error begins with the path and the line.
    pub fn parse(path: &Path, text: &str) -> anyhow::Result<Self> {
        let read: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start].matches('\n').count() + 1;
            anyhow!("{}:{line}: {}", path.display(), error.message())
        })?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Ok(Self { folder, ..read })
    }

    /// Returns the launch of an entry that asks for clusters of so many blocks.
    pub fn case(&self, cluster: u32) -> anyhow::Result<Case> {
        let mut buffers = Vec::new();
        for entry in &self.buffers {
            let buffer = entry.buffer(&self.folder);
            buffers.push(buffer.with_context(|| format!("buffer `{}`", entry.name))?);
        }
        let mut arguments = Vec::new();
        for (index, entry) in self.arguments.iter().enumerate() {
            let argument = entry.argument();
            arguments.push(argument.with_context(|| format!("argument {}", index + 1))?);
        }
        for expected in &self.expected {
            let mut outputs = buffers.iter().filter(|buffer| buffer.is_output);
            let Some(output) = outputs.find(|buffer| buffer.name == expected.buffer) else {
                bail!("`expect` names `{}`, which is no output", expected.buffer);
            };
            let count = expected.values.len();
            if count != 1 && count != output.elements {
                bail!(
                    "`expect` has {count} values for `{}`: give one for all elements, or one for \
                     each of its {}",
                    expected.buffer,
                    output.elements
                );
            }
        }
        Ok(Case {
            grid: self.grid.sizes()?,
            block: self.block.sizes()?,
            cluster: self.cluster.unwrap_or(cluster),
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            buffers,
            arguments,
            history: None,
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
    fn buffer(&self, folder: &Path) -> anyhow::Result<Buffer> {
        let filling = match &self.fill {
            Fill::Default if self.output => Filling::Unset,
            Fill::Default => Filling::Random(0),
            Fill::Number(value) => Filling::Value(*value),
            Fill::Word(word) => match word.split_once(':') {
                None if word == "unset" => Filling::Unset,
                None if word == "index" => Filling::Index,
                None if word == "random" => Filling::Random(0),
                Some(("random", seed)) => Filling::Random(seed.parse()?),
                Some(("file", name)) => {
                    let path = folder.join(name);
                    let bytes = fs::read(&path);
                    Filling::Bytes(
                        bytes.with_context(|| format!("cannot read {}", path.display()))?,
                    )
                }
                _ => bail!(
                    "`{word}` fills nothing; take unset, index, random:SEED, file:NAME or a number"
                ),
            },
        };
        Ok(Buffer {
            name: self.name.clone(),
            element: element(&self.element)?,
            elements: self
                .shape
                .iter()
                .fold(1, |all, &size| all.saturating_mul(size)),
            filling,
            is_output: self.output,
        })
    }
}

impl ArgumentEntry {
    fn argument(&self) -> anyhow::Result<Argument> {
        let Self {
            buffer,
            element: type_name,
            value,
            map,
            hex,
            bytes,
            ..
        } = self;
        match (buffer, type_name, *value, map, hex, *bytes) {
            (Some(name), None, None, None, None, None) => Ok(Argument::Address {
                buffer: name.clone(),
                offset: self.offset,
            }),
            (None, Some(name), Some(number), None, None, None) => {
                Ok(Argument::Scalar(element(name)?, number))
            }
            (None, None, None, Some(entry), None, None) => Ok(Argument::Map(entry.map())),
            (None, None, None, None, Some(digits), None) => Ok(Argument::Bytes(bytes_of(digits)?)),
            (None, None, None, None, None, Some(size)) => Ok(Argument::Structure {
                bytes: size,
                parts: self.parts()?,
            }),
            _ => bail!(
                "it is one of `buffer`, `type` with `value`, `map`, `hex`, or `bytes` with `parts`"
            ),
        }
    }

    fn parts(&self) -> anyhow::Result<Vec<Part>> {
        let mut parts = Vec::new();
        for entry in &self.parts {
            let argument = entry.argument();
            parts.push(Part {
                at: entry.at,
                value: argument.with_context(|| format!("the part at {}", entry.at))?,
            });
        }
        Ok(parts)
    }
}

impl MapEntry {
    fn map(&self) -> MapOver {
        MapOver {
            buffer: self.buffer.clone(),
            offset: self.offset,
            extents: self.extents.clone(),
            strides: self.strides.clone(),
            box_extents: self.extent.clone(),
            swizzle: self.swizzle,
        }
    }
}

/// Reads bytes of two hexadecimal digits each.
fn bytes_of(digits: &str) -> anyhow::Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16)
                .ok()
                .filter(|_| pair.len() == 2)
        })
        .collect();
    bytes.with_context(|| format!("`{digits}` is not two hexadecimal digits a byte"))
}
