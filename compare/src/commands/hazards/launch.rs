//! The launch file of `compare hazards`: what a kernel is given, in TOML.

mod argument;
mod expected;
mod literal;
#[cfg(test)]
mod tests;

use anyhow::{Context, anyhow, bail, ensure};
use argument::ArgumentEntry;
pub use expected::Expected;
use literal::{Fill, named_element};
use ptx::case::{Buffer, Case, Filling};
use ptx::number::Number;
use serde::Deserialize;
use std::collections::BTreeSet;
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
#[serde(
    untagged,
    expecting = "`grid` and `block` have one to three sizes, which are whole numbers from 1 to \
                 4294967295, such as 64 or [8, 8]"
)]
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
        let mut names = BTreeSet::new();
        for entry in &self.buffers {
            let name = &entry.name;
            ensure!(
                names.insert(name),
                "two buffers have the `name` `{name}`: give one another name"
            );
            let buffer = entry.buffer(&self.folder);
            buffers.push(buffer.with_context(|| format!("buffer `{name}`"))?);
        }
        let mut arguments = Vec::new();
        for (index, entry) in self.arguments.iter().enumerate() {
            let argument = entry.argument();
            arguments.push(argument.with_context(|| format!("argument {}", index + 1))?);
        }
        for expected in &self.expected {
            expected.check(&buffers)?;
        }
        Ok(Case {
            grid: self.grid.sizes("grid")?,
            block: self.block.sizes("block")?,
            cluster: self.cluster.unwrap_or(cluster),
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            buffers,
            arguments,
            history: None,
        })
    }
}

impl Extent {
    fn sizes(&self, key: &str) -> anyhow::Result<[u32; 3]> {
        let list = match self {
            Self::One(size) => std::slice::from_ref(size),
            Self::Several(sizes) => sizes.as_slice(),
        };
        if list.is_empty() || list.len() > 3 {
            bail!("`{key}` has one to three sizes, not {}", list.len());
        }
        ensure!(
            !list.contains(&0),
            "`{key}` has a size of 0: give 1 or more"
        );
        let mut sizes = [1; 3];
        sizes[..list.len()].copy_from_slice(list);
        Ok(sizes)
    }
}

impl BufferEntry {
    fn buffer(&self, folder: &Path) -> anyhow::Result<Buffer> {
        let sizes = self.shape.iter();
        let unset = Buffer {
            name: self.name.clone(),
            element: named_element(&self.element)?,
            elements: sizes.fold(1, |all, &size| all.saturating_mul(size)),
            filling: Filling::Unset,
            is_output: self.output,
        };
        let filling = self.filling(&unset, folder).context("`fill`")?;
        Ok(Buffer { filling, ..unset })
    }

    fn filling(&self, buffer: &Buffer, folder: &Path) -> anyhow::Result<Filling> {
        let word = match &self.fill {
            Fill::Default if self.output => return Ok(Filling::Unset),
            Fill::Default => return Ok(Filling::Random(0)),
            Fill::Number(number) => {
                buffer.element.encode(*number, &mut Vec::new())?;
                return Ok(Filling::Value(*number));
            }
            Fill::Word(word) => word,
        };
        Ok(match word.split_once(':') {
            None if word == "unset" => Filling::Unset,
            None if word == "index" => {
                let last = buffer.elements.saturating_sub(1);
                let number = Number::Whole(last as i128);
                let encoded = buffer.element.encode(number, &mut Vec::new());
                encoded.context("the index of the last element")?;
                Filling::Index
            }
            None if word == "random" => Filling::Random(0),
            Some(("random", seed)) => Filling::Random(seed.parse().with_context(|| {
                format!("`{word}`: the seed is a whole number from 0 to 2^64 - 1, as in random:1")
            })?),
            Some(("file", name)) => Filling::Bytes(content(&folder.join(name), buffer)?),
            _ => bail!(
                "`{word}` fills nothing; take unset, index, random:SEED, file:NAME or a number"
            ),
        })
    }
}

/// Reads the content of a buffer. A file of another size is refused before it is read.
fn content(path: &Path, buffer: &Buffer) -> anyhow::Result<Vec<u8>> {
    let name = path.display();
    let unread = || format!("cannot read {name}");
    let metadata = fs::metadata(path).with_context(unread)?;
    ensure!(
        metadata.is_file(),
        "{name} is no regular file: write the buffer's bytes to one"
    );
    let (has, takes) = (metadata.len(), buffer.bytes());
    ensure!(
        has == takes,
        "{name} has {has} bytes, and the buffer takes {takes}: give as many, or another `shape`"
    );
    fs::read(path).with_context(unread)
}
