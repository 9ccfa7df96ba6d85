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
                ".align" => read.alignment = alignment(line, words.next().unwrap_or_default())?,
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
            read.initialise(line, type_name, values)?;
        }
        read.check_size(line)?;
        Ok(read)
    }

    /// Refuses what has more bytes than 32 bits can say, or more initial values than elements.
    fn check_size(&self, line: u32) -> Result<(), Refusal> {
        let Some(bytes) = self.count.unwrap_or(0).checked_mul(self.element_bytes) else {
            return Err(self.too_large(line));
        };
        if self.initial.len() > bytes as usize {
            let reason = format!(
                "`{}` has {bytes} bytes, and {} of initial values: leave the others away",
                self.name,
                self.initial.len()
            );
            return Err(Refusal::invalid(line, reason));
        }
        Ok(())
    }

    fn too_large(&self, line: u32) -> Refusal {
        let reason = format!("`{}` has 4 GiB or more: make it smaller", self.name);
        Refusal::invalid(line, reason)
    }

    /// Reads a name and the extents behind it.
    fn read_name(&mut self, line: u32, text: &str) -> Result<(), Refusal> {
        let end = text.find('[').unwrap_or(text.len());
        text[..end].trim().clone_into(&mut self.name);
        for extent in text[end..].split('[').skip(1) {
            let size = extent.trim().trim_end_matches(']').trim();
            self.count = match (self.count, size) {
                (_, "") | (None, _) => None,
                (Some(count), _) => {
                    let product = count.checked_mul(number(line, size)?);
                    Some(product.ok_or_else(|| self.too_large(line))?)
                }
            };
        }
        Ok(())
    }

    /// Reads `{1, 2, 3}` or one value. An array without a size has as many elements.
    fn initialise(&mut self, line: u32, type_name: &str, text: &str) -> Result<(), Refusal> {
        let bytes = type_bytes(type_name).unwrap_or(1) as usize;
        let plain = text.replace(['{', '}'], "");
        for value in plain.split(',').map(str::trim) {
            if value.is_empty() {
                let reason = format!("`{}` lacks an initial value behind `=` or `,`", self.name);
                return Err(Refusal::invalid(line, reason));
            }
            if value.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '$' | '%')) {
                return Err(Refusal::unknown(line, format!("initialiser {value}")));
            }
            let Some(bits) = initial_bits(type_name, value) else {
                let reason = format!(
                    "`{value}` is no initial value of `{}`: give one that fits `.{type_name}`",
                    self.name
                );
                return Err(Refusal::invalid(line, reason));
            };
            self.initial.extend_from_slice(&bits.to_le_bytes()[..bytes]);
        }
        if self.count.is_none() {
            let elements = self.initial.len().div_ceil(self.element_bytes as usize);
            self.count = u32::try_from(elements).ok();
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.count.unwrap_or(0) * self.element_bytes
    }

    /// Takes its memory behind what is used. Returns its offset; `None` if it ends beyond `most`.
    pub(crate) fn take(&self, used: &mut u32, most: u32) -> Option<u32> {
        let offset = used.checked_next_multiple_of(self.alignment)?;
        let end = offset.checked_add(self.bytes());
        *used = end.filter(|&it| it <= most)?;
        Some(offset)
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

/// Reads a boundary, which is a power of two.
fn alignment(line: u32, text: &str) -> Result<u32, Refusal> {
    let boundary = number(line, text)?;
    if boundary.is_power_of_two() {
        return Ok(boundary);
    }
    let reason = format!("`.align {text}`: give a power of two");
    Err(Refusal::invalid(line, reason))
}

/// Returns the bits of a value in memory; `None` if it does not fit the type.
fn initial_bits(type_name: &str, value: &str) -> Option<u64> {
    let bytes = type_bytes(type_name)?;
    if let Some(float) = float_literal(value) {
        let is_double =
            type_name == "f64" || bytes == 8 && value.trim_start_matches('-').starts_with("0d");
        return match bytes {
            8 if is_double => Some(float.to_bits()),
            4 => Some((float as f32).to_bits().into()),
            _ => None,
        };
    }
    let integer = integer_literal(value)?;
    let is_float = matches!(type_name, "f32" | "f64");
    let bits = 8 * bytes;
    let fits = -(1 << (bits - 1))..1i128 << bits;
    (fits.contains(&integer) && !(is_float && integer != 0)).then_some(integer as u64)
}
