//! Operands: registers, literals, addresses, lists.

use super::names::Names;
use super::{Decoder, Result, Text};
use crate::parse::{float_literal, integer_literal};
use crate::step::{Address, Constant, Slot, Space};

impl Decoder<'_> {
    /// Resolves a destination.
    pub(super) fn target(&self, text: &Text<'_>, index: usize) -> Result<Slot> {
        self.names.register(text.line, text.operand(index)?)
    }

    /// Resolves a source of the instruction's own type.
    pub(super) fn source(&mut self, text: &Text<'_>, index: usize) -> Result<Slot> {
        self.value(text, text.operand(index)?, text.type_name())
    }

    /// Resolves a source whose literals are integers.
    pub(super) fn integer(&mut self, text: &Text<'_>, index: usize) -> Result<Slot> {
        self.value(text, text.operand(index)?, "b64")
    }

    /// Resolves a register, literal or symbol; a literal has the type `of`.
    pub(super) fn value(&mut self, text: &Text<'_>, operand: &str, of: &str) -> Result<Slot> {
        if let Some(bits) = literal_bits(operand, of) {
            return Ok(self.names.constant(Constant::Bits(bits)));
        }
        let Some((symbol, offset)) = split_offset(operand) else {
            return self.names.named(text.line, operand);
        };
        Err(text.invalid(format!(
            "`{symbol}` with an offset of {offset} is taken in an address only"
        )))
    }

    pub(super) fn bits(&mut self, bits: u64) -> Slot {
        self.names.constant(Constant::Bits(bits))
    }

    /// Reads a literal that the instruction needs when it is decoded.
    pub(super) fn number(&self, text: &Text<'_>, index: usize) -> Result<u32> {
        let operand = text.operand(index)?;
        integer_literal(operand)
            .and_then(|value| u32::try_from(value).ok())
            .ok_or_else(|| text.invalid(format!("`{operand}` is no literal")))
    }

    /// Resolves `[base]` or `[base+offset]`.
    pub(super) fn address(&mut self, text: &Text<'_>, operand: &str) -> Result<Address> {
        let inner = operand
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or_else(|| text.invalid(format!("`{operand}` is no address")))?
            .trim();
        let (base, offset) = split_offset(inner).unwrap_or((inner, 0));
        if let Some(absolute) = integer_literal(base) {
            return Ok(Address {
                base: self.bits(absolute as u64),
                offset,
            });
        }
        Ok(Address {
            base: self.names.named(text.line, base)?,
            offset,
        })
    }

    pub(super) fn address_at(&mut self, text: &Text<'_>, index: usize) -> Result<Address> {
        self.address(text, text.operand(index)?)
    }

    /// Resolves `{a, b}` or a single value as sources.
    pub(super) fn sources(&mut self, text: &Text<'_>, index: usize, of: &str) -> Result<Vec<Slot>> {
        let mut slots = Vec::new();
        for part in list(text.operand(index)?) {
            slots.push(self.value(text, part, of)?);
        }
        Ok(slots)
    }

    pub(super) fn targets(&mut self, text: &Text<'_>, index: usize) -> Result<Vec<Slot>> {
        list(text.operand(index)?)
            .into_iter()
            .map(|part| self.names.register(text.line, part))
            .collect()
    }

    /// Resolves a list whose length the instruction sets.
    pub(super) fn exactly(
        &mut self,
        text: &Text<'_>,
        index: usize,
        count: usize,
    ) -> Result<Box<[Slot]>> {
        let slots = self.sources(text, index, "b32")?;
        if slots.len() == count {
            return Ok(slots.into());
        }
        Err(text.invalid(format!(
            "operand {} has {} registers, and {count} are needed",
            index + 1,
            slots.len()
        )))
    }

    /// Resolves `p|q` to both destinations.
    pub(super) fn target_pair(
        &mut self,
        text: &Text<'_>,
        index: usize,
    ) -> Result<[Option<Slot>; 2]> {
        let operand = text.operand(index)?;
        let mut pair = [None; 2];
        for (slot, name) in pair.iter_mut().zip(operand.split('|')) {
            *slot = Some(self.names.register(text.line, name.trim())?);
        }
        Ok(pair)
    }

    pub(super) fn sink(&self) -> Slot {
        Names::SINK
    }
}

/// Returns the elements of `{a, b}`, or the operand itself.
pub(super) fn list(operand: &str) -> Vec<&str> {
    match operand
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
    {
        Some(inner) => inner.split(',').map(str::trim).collect(),
        None => vec![operand],
    }
}

/// Returns the elements of `(a, b)`.
pub(super) fn list_in(operand: &str) -> Vec<&str> {
    let inner = operand.trim_start_matches('(').trim_end_matches(')');
    let parts = inner.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

/// Splits `symbol+16` and `%r1+-8`.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    let plus = text.rfind('+')?;
    let offset = integer_literal(text[plus + 1..].trim())?;
    Some((text[..plus].trim(), i64::try_from(offset).ok()?))
}

/// Returns the bits of a literal, if the operand is one.
fn literal_bits(operand: &str, of: &str) -> Option<u64> {
    if let Some(value) = float_literal(operand) {
        return Some(match of {
            "f64" => value.to_bits(),
            "b64" | "u64" if operand.starts_with("0d") => value.to_bits(),
            _ => (value as f32).to_bits().into(),
        });
    }
    let value = integer_literal(operand)? as u64;
    Some(match of {
        "f32" | "b32" | "u32" | "s32" | "f16x2" | "bf16x2" => value & u64::from(u32::MAX),
        "b16" | "u16" | "s16" | "f16" | "bf16" => value & 0xffff,
        "pred" => u64::from(value != 0),
        _ => value,
    })
}

/// Returns the space that a part of an opcode names.
pub(super) fn space(part: &str) -> Option<Space> {
    Some(match part {
        "global" => Space::Global,
        "shared" | "shared::cta" => Space::Shared,
        "shared::cluster" => Space::Cluster,
        "local" | "param" | "param::entry" | "param::func" | "const" => Space::Private,
        _ => return None,
    })
}
