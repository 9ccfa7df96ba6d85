//! The arguments of a launch file.

use super::literal::{Written, named_element};
use anyhow::{Context, bail};
use ptx::case::{Argument, MapOver, Part};
use serde::Deserialize;

const KINDS: &str =
    "it is one of `buffer`, `type` with `value`, `map`, `hex`, or `bytes` with `parts`";

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentEntry {
    /// The bytes before it in the argument that it is a part of; 0 where it is left out.
    at: Option<usize>,
    buffer: Option<String>,
    /// The bytes of the buffer before the one whose address it is; 0 where it is left out.
    offset: Option<usize>,
    #[serde(rename = "type")]
    element: Option<String>,
    value: Option<Written>,
    map: Option<MapEntry>,
    /// Two digits a byte.
    hex: Option<String>,
    /// The size of a structure.
    bytes: Option<usize>,
    parts: Option<Vec<ArgumentEntry>>,
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

impl ArgumentEntry {
    /// Returns the argument; it is no part of another.
    pub fn argument(&self) -> anyhow::Result<Argument> {
        if self.at.is_some() {
            bail!("`at` places a part in an argument of `bytes` and `parts`: leave it out");
        }
        self.content()
    }

    fn content(&self) -> anyhow::Result<Argument> {
        if let Some(name) = &self.buffer {
            self.check_keys(&["buffer", "offset"])?;
            return Ok(Argument::Address {
                buffer: name.clone(),
                offset: self.offset.unwrap_or(0),
            });
        }
        if let Some(entry) = &self.map {
            self.check_keys(&["map"])?;
            return Ok(Argument::Map(entry.map()));
        }
        if let Some(digits) = &self.hex {
            self.check_keys(&["hex"])?;
            return Ok(Argument::Bytes(bytes_of(digits)?));
        }
        if let Some(size) = self.bytes {
            self.check_keys(&["bytes", "parts"])?;
            let parts = self.parts()?;
            return Ok(Argument::Structure { bytes: size, parts });
        }
        let (Some(name), Some(Written(number))) = (&self.element, self.value) else {
            bail!(KINDS);
        };
        self.check_keys(&["type", "value"])?;
        let element = named_element(name)?;
        element.encode(number, &mut Vec::new()).context("`value`")?;
        Ok(Argument::Scalar(element, number))
    }

    /// Refuses keys beside those of its kind, which the first of them names.
    fn check_keys(&self, taken: &[&str]) -> anyhow::Result<()> {
        let given = [
            ("buffer", self.buffer.is_some()),
            ("offset", self.offset.is_some()),
            ("type", self.element.is_some()),
            ("value", self.value.is_some()),
            ("map", self.map.is_some()),
            ("hex", self.hex.is_some()),
            ("bytes", self.bytes.is_some()),
            ("parts", self.parts.is_some()),
        ];
        for (key, is_given) in given {
            if is_given && !taken.contains(&key) {
                let kind = taken[0];
                bail!("`{key}` says nothing beside `{kind}`: leave one out; {KINDS}");
            }
        }
        Ok(())
    }

    fn parts(&self) -> anyhow::Result<Vec<Part>> {
        let mut parts = Vec::new();
        for entry in self.parts.iter().flatten() {
            let at = entry.at.unwrap_or(0);
            let content = entry.content();
            parts.push(Part {
                at,
                value: content.with_context(|| format!("the part at {at}"))?,
            });
        }
        check_overlaps(&parts)?;
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

/// Refuses parts of which one would overwrite another.
fn check_overlaps(parts: &[Part]) -> anyhow::Result<()> {
    let mut sorted: Vec<&Part> = parts.iter().collect();
    sorted.sort_by_key(|part| part.at);
    for pair in sorted.windows(2) {
        let end = pair[0].at.saturating_add(pair[0].value.bytes());
        if pair[1].at < end {
            bail!(
                "`parts`: the one at {} ends at byte {end}, behind the start of the one at {}: move \
                 one by `at`",
                pair[0].at,
                pair[1].at
            );
        }
    }
    Ok(())
}

/// Reads bytes of two hexadecimal digits each.
fn bytes_of(digits: &str) -> anyhow::Result<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| {
            // A sign is a digit to from_str_radix.
            let is_byte = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
            let text = std::str::from_utf8(pair).ok().filter(|_| is_byte)?;
            u8::from_str_radix(text, 16).ok()
        })
        .collect();
    bytes.with_context(|| format!("`hex`: `{digits}` is not two hexadecimal digits a byte"))
}
