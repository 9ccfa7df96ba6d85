//! Control flow, comparisons, moves, memory, and what the tables have.

use super::atomics::order_of;
use super::operands::{list, space};
use super::{Decoder, Result, Text};
use crate::isa::{self, Apply};
use crate::step::{Access, Combine, Combined, Compare, Op, Slot, Space};

impl Decoder<'_> {
    pub(super) fn basic(&mut self, text: &Text<'_>) -> Result<Op> {
        match text.opcode {
            "bra" | "bra.uni" => {
                let step = self.steps.len();
                self.labels.jump(text.line, text.operand(0)?, step);
                Ok(Op::Nothing)
            }
            "ret" | "ret.uni" => Ok(self.returns(text)),
            "exit" => Ok(Op::Exit),
            "trap" => Ok(Op::Trap("trap was executed")),
            "griddepcontrol.wait" | "griddepcontrol.launch_dependents" | "nanosleep.u32" => {
                Ok(Op::Nothing)
            }
            _ if text.opcode.starts_with("setp.") => self.comparison(text),
            _ if text.opcode.starts_with("mov.") => self.move_words(text),
            _ => Err(text.unknown()),
        }
    }

    /// Decodes an instruction of the tables.
    pub(super) fn pure(&mut self, text: &Text<'_>) -> Result<Op> {
        let Some(found) = isa::find(text.opcode) else {
            return Err(text.unknown());
        };
        let count = found.apply.operands();
        text.demand_operands(count + 1, count + 1)?;
        let to = self.target(text, 0)?;
        let mut from = [0; 4];
        for (index, slot) in from.iter_mut().take(count).enumerate() {
            *slot = self.source(text, index + 1)?;
        }
        let [a, b, c, _] = from;
        Ok(match found.apply {
            Apply::One(apply) if found.is_exponential => Op::Exponential(apply, to, a),
            Apply::One(apply) => Op::One(apply, to, a),
            Apply::Two(apply) => Op::Two(apply, to, [a, b]),
            Apply::Three(apply) => Op::Three(apply, to, [a, b, c]),
            Apply::Four(apply) => Op::Four(apply, to, from),
        })
    }

    /// Decodes `mov`, which also packs `{a, b}` into a word and unpacks one.
    fn move_words(&mut self, text: &Text<'_>) -> Result<Op> {
        text.demand_operands(2, 2)?;
        let (to, from) = (text.operand(0)?, text.operand(1)?);
        let width = match text.opcode {
            "mov.b16" => 16,
            "mov.b32" => 32,
            "mov.b64" => 64,
            _ => return self.pure(text),
        };
        if to.starts_with('{') {
            let parts = self.targets(text, 0)?.into_boxed_slice();
            return Ok(Op::Unpack {
                from: self.source(text, 1)?,
                bits: width / parts.len() as u32,
                parts,
            });
        }
        if from.starts_with('{') {
            let count = list(from).len() as u32;
            let parts = self.sources(text, 1, "b32")?.into_boxed_slice();
            return Ok(Op::Pack {
                to: self.target(text, 0)?,
                parts,
                bits: width / count,
            });
        }
        self.pure(text)
    }

    /// Decodes `setp.relation[.boolean][.ftz].type p[|q], a, b[, c]`.
    fn comparison(&mut self, text: &Text<'_>) -> Result<Op> {
        let mut parts: Vec<&str> = text.parts().skip(1).collect();
        let type_name = parts.pop().unwrap_or_default();
        let is_flushing = parts.last() == Some(&"ftz");
        if is_flushing {
            parts.pop();
        }
        let combination = match parts.get(1) {
            None => None,
            Some(&"and") => Some(Combine::And),
            Some(&"or") => Some(Combine::Or),
            Some(&"xor") => Some(Combine::Xor),
            Some(_) => return Err(text.unknown()),
        };
        if parts.is_empty() || parts.len() > 2 {
            return Err(text.unknown());
        }
        let relation =
            isa::comparison(parts[0], is_flushing, type_name).ok_or_else(|| text.unknown())?;
        let count = 3 + usize::from(combination.is_some());
        text.demand_operands(count, count)?;
        let [to, opposite] = self.target_pair(text, 0)?;
        let mut combined = None;
        if let Some(combine) = combination {
            let operand = text.operand(3)?;
            let name = operand.trim_start_matches('!');
            combined = Some(Combined {
                combine,
                predicate: self.names.register(text.line, name)?,
                is_negated: name.len() != operand.len(),
            });
        }
        Ok(Op::Compare(Box::new(Compare {
            relation,
            to: to.unwrap_or(self.sink()),
            opposite,
            left: self.source(text, 1)?,
            right: self.source(text, 2)?,
            combined,
        })))
    }

    pub(super) fn memory(&mut self, text: &Text<'_>) -> Result<Op> {
        match text.opcode {
            _ if text.opcode.starts_with("st.async") => self.store_async(text),
            _ if text.opcode.starts_with("cvta.") => self.convert_address(text),
            _ if text.opcode.starts_with("ld.") => self.access(text, true),
            _ if text.opcode.starts_with("st.") => self.access(text, false),
            "isspacep.shared" | "isspacep.shared::cta" => Ok(Op::IsShared {
                to: self.target(text, 0)?,
                from: self.integer(text, 1)?,
            }),
            "mapa.shared::cluster.u32" => Ok(Op::MapToRank {
                to: self.target(text, 0)?,
                from: self.integer(text, 1)?,
                rank: self.integer(text, 2)?,
            }),
            _ => Err(text.unknown()),
        }
    }

    /// Decodes a conversion between generic addresses and those of a space. Only shared memory has
    /// addresses of its own here.
    fn convert_address(&mut self, text: &Text<'_>) -> Result<Op> {
        let (to, from) = (self.target(text, 0)?, self.integer(text, 1)?);
        let keep: fn(u64) -> u64 = |address| address;
        Ok(match text.opcode {
            "cvta.to.shared.u64" | "cvta.to.shared::cta.u64" => Op::ToShared { to, from },
            "cvta.shared.u64" | "cvta.shared::cta.u64" => Op::FromShared { to, from },
            "cvta.to.global.u64" | "cvta.global.u64" | "cvta.to.local.u64" | "cvta.local.u64"
            | "cvta.to.const.u64" | "cvta.const.u64" | "cvta.param.u64" | "cvta.to.param.u64" => {
                Op::One(keep, to, from)
            }
            _ => return Err(text.unknown()),
        })
    }

    /// Decodes `ld` and `st` with what they may say about caches, strength and order.
    fn access(&mut self, text: &Text<'_>, is_load: bool) -> Result<Op> {
        let (mut found, mut vector, mut element) = (Space::Generic, 1, "");
        let mut order = None;
        for part in text.parts().skip(1) {
            if let Some(named) = space(part) {
                found = named;
                continue;
            }
            if let Some(named) = order_of(part) {
                order = Some(named);
                continue;
            }
            match part {
                "v2" => vector = 2,
                "v4" => vector = 4,
                "v8" => vector = 8,
                "weak" | "nc" | "cta" | "cluster" | "gpu" | "sys" => {}
                "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" => {}
                _ if part.starts_with("L1::") || part.starts_with("L2::") => {}
                _ if part.len() >= 2 && element.is_empty() => element = part,
                _ => return Err(text.unknown()),
            }
        }
        let Some(bytes) = element_bytes(element) else {
            return Err(text.unknown());
        };
        text.demand_operands(2, 3)?;
        let (address, slots) = if is_load {
            (self.address_at(text, 1)?, self.targets(text, 0)?)
        } else {
            (self.address_at(text, 0)?, self.sources(text, 1, element)?)
        };
        if slots.len() != vector {
            return Err(text.invalid(format!("{} registers for {vector} elements", slots.len())));
        }
        let access = Box::new(Access {
            space: found,
            bytes,
            is_signed: is_load && element.starts_with('s'),
            address,
            slots: slots.into(),
            order,
        });
        Ok(if is_load {
            Op::Load(access)
        } else {
            Op::Store(access)
        })
    }

    /// Decodes a store of 16 bytes to another block, which counts at an mbarrier there.
    fn store_async(&mut self, text: &Text<'_>) -> Result<Op> {
        let is_known = matches!(
            text.opcode,
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
                | "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32"
                | "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32"
                | "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
        );
        if !is_known {
            return Err(text.unknown());
        }
        let value: Box<[Slot]> = self.exactly(text, 1, 4)?;
        Ok(Op::StoreAsync {
            to: self.address_at(text, 0)?,
            value,
            object: self.address_at(text, 2)?,
        })
    }
}

fn element_bytes(element: &str) -> Option<u32> {
    Some(match element {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        _ => return None,
    })
}
