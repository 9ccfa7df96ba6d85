//! Declarations of variables and parameters.

use super::error::Refusal;
use super::literal::{float_literal, integer_literal};

/// The state space of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Parameter,
    Shared,
    Local,
    Global,
    Constant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) alignment: u32,
    pub(crate) element_bytes: u32,
    /// The number of elements; `None` for an array whose size the launch sets.
    pub(crate) count: Option<u32>,
    pub(crate) initial: Vec<u8>,
}

pub(crate) fn type_bytes(name: &str) -> Option<u32> {
    Some(match name {
        "pred" => 1,
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        _ => return None,
    })
}

impl Declaration {
    /// Reads `.shared .align 16 .b8 tile[1024]` and the like, without its `;`.
    pub(crate) fn read(line: u32, text: &str) -> Result<Self, Refusal> {
        let (declared, initialiser) = match text.split_once('=') {
            Some((before, after)) => (before.trim(), Some(after.trim())),
            None => (text.trim(), None),
        };
        let mut words = declared.split_whitespace();
        let mut read = Self {
            kind: Kind::Global,
            name: String::new(),
            alignment: 0,
            element_bytes: 0,
            count: Some(1),
            initial: Vec::new(),
        };
        let (mut kind, mut type_name, mut vector) = (None, "", 1);
        while let Some(word) = words.next() {
            match word {
                ".param" => kind = Some(Kind::Parameter),
                ".shared" => kind = kind.or(Some(Kind::Shared)),
                ".local" => kind = kind.or(Some(Kind::Local)),
                ".global" => kind = kind.or(Some(Kind::Global)),
                ".const" => kind = kind.or(Some(Kind::Constant)),
                ".extern" | ".visible" | ".weak" | ".common" | ".ptr" => {}
                ".align" => read.alignment = number(line, words.next().unwrap_or_default())?,
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                _ if word.starts_with('.') => match type_bytes(&word[1..]) {
                    Some(bytes) => {
                        read.element_bytes = bytes;
                        type_name = &word[1..];
                    }
                    None => return Err(Refusal::unknown(line, word)),
                },
                _ => read.read_name(line, &declared[offset_of(declared, word)..])?,
            }
            if !read.name.is_empty() {
                break;
            }
        }
        read.kind = kind.ok_or_else(|| Refusal::unknown(line, first_word(declared)))?;
        if read.name.is_empty() || read.element_bytes == 0 {
            return Err(Refusal::invalid(
                line,
                format!("`{declared}` declares nothing"),
            ));
        }
        // `.ptr .align` of a parameter is about what it points to.
        if read.kind == Kind::Parameter && declared.contains(".ptr") {
            read.alignment = 0;
        }
        read.element_bytes *= vector;
        read.alignment = read.alignment.max(read.element_bytes);
        if let Some(values) = initialiser {
            read.initial = initial_bytes(line, type_name, values)?;
        }
        Ok(read)
    }

    /// Reads a name and the extents behind it.
    fn read_name(&mut self, line: u32, text: &str) -> Result<(), Refusal> {
        let end = text.find('[').unwrap_or(text.len());
        text[..end].trim().clone_into(&mut self.name);
        for extent in text[end..].split('[').skip(1) {
            let size = extent.trim().trim_end_matches(']').trim();
            self.count = match (self.count, size) {
                (_, "") => None,
                (Some(count), _) => Some(count * number(line, size)?),
                (None, _) => None,
            };
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.count.unwrap_or(0) * self.element_bytes
    }
}

fn offset_of(text: &str, word: &str) -> usize {
    word.as_ptr() as usize - text.as_ptr() as usize
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

fn number(line: u32, text: &str) -> Result<u32, Refusal> {
    integer_literal(text)
        .and_then(|value| u32::try_from(value).ok())
        .ok_or_else(|| Refusal::invalid(line, format!("`{text}` is no size")))
}

/// Returns the bytes of `{1, 2, 3}` or of one value.
fn initial_bytes(line: u32, type_name: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    let bytes = type_bytes(type_name).unwrap_or(1) as usize;
    let mut image = Vec::new();
    for value in text.split([',', '{', '}']).map(str::trim) {
        if value.is_empty() {
            continue;
        }
        let bits = match (type_name, float_literal(value), integer_literal(value)) {
            ("f32", Some(float), _) => u128::from((float as f32).to_bits()),
            ("f64", Some(float), _) => u128::from(float.to_bits()),
            (_, None, Some(integer)) => integer as u128,
            (_, Some(float), None) => u128::from((float as f32).to_bits()),
            _ => return Err(Refusal::unknown(line, format!("initialiser {value}"))),
        };
        image.extend_from_slice(&bits.to_le_bytes()[..bytes]);
    }
    Ok(image)
}
