//! Read-modify-writes: `atom`, which returns what was there, and `red`, which does not.

use emulator::guest::StrongOrder;

use super::operands::space;
use super::{Decoder, Result, Text};
use crate::isa::{self, Apply};
use crate::step::{Access, Atomic, Op, Space, Update};

/// The parts of `atom.acq_rel.gpu.global.add.u32`.
struct Parts<'a> {
    order: StrongOrder,
    space: Space,
    operation: &'a str,
    element: &'a str,
}

impl<'a> Parts<'a> {
    /// Reads the parts behind the name; `None` if one of them is not known.
    fn read(parts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut read = Self {
            order: StrongOrder::RELAXED,
            space: Space::Generic,
            operation: "",
            element: "",
        };
        for part in parts {
            if let Some(named) = space(part) {
                read.space = named;
            } else if let Some(order) = order_of(part) {
                read.order = order;
            } else {
                match part {
                    "cta" | "cluster" | "gpu" | "sys" | "noftz" => {}
                    _ if part.starts_with("L2::") => {}
                    _ if read.operation.is_empty() => read.operation = part,
                    _ if read.element.is_empty() => read.element = part,
                    _ => return None,
                }
            }
        }
        Some(read)
    }

    /// Returns the bytes of an element and its update, with `expected` for that of `cas`; `None` if
    /// there is no such operation of the type.
    fn update(&self) -> Option<(u32, Kind)> {
        let bytes = match self.element {
            "b16" | "f16" | "bf16" => 2,
            "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
            "b64" | "u64" | "s64" | "f64" => 8,
            _ => return None,
        };
        let kind = match (self.operation, self.element) {
            ("exch", "b32" | "b64") => Kind::Update(Update::Exchange),
            ("cas", "b16" | "b32" | "b64") => Kind::CompareAndSwap,
            ("inc", "u32") => Kind::Update(Update::Increment),
            ("dec", "u32") => Kind::Update(Update::Decrement),
            ("add" | "min" | "max" | "and" | "or" | "xor", element) => {
                Kind::Update(Update::Apply(self.function(element)?))
            }
            _ => return None,
        };
        Some((bytes, kind))
    }

    /// Returns the function of the tables. Subnormal numbers of FP32 become zero in global memory,
    /// and stay in shared memory; a NaN of FP64 is treated in another way there, too.
    fn function(&self, element: &str) -> Option<isa::Binary> {
        let is_shared = self.space == Space::Shared;
        if (self.operation, element, is_shared) == ("add", "f64", false) {
            return Some(isa::sum_in_global_memory);
        }
        let flush = if element == "f32" && !is_shared {
            ".ftz"
        } else {
            ""
        };
        let pure = isa::find(&format!("{}{flush}.{element}", self.operation))?;
        match pure.apply {
            Apply::Two(function) => Some(function),
            Apply::One(_) | Apply::Three(_) | Apply::Four(_) => None,
        }
    }
}

enum Kind {
    Update(Update),
    CompareAndSwap,
}

/// Returns the order that a part of an opcode names.
pub(super) fn order_of(part: &str) -> Option<StrongOrder> {
    Some(match part {
        "relaxed" | "volatile" => StrongOrder::RELAXED,
        "acquire" => StrongOrder {
            acquires: true,
            releases: false,
        },
        "release" => StrongOrder {
            acquires: false,
            releases: true,
        },
        "acq_rel" => StrongOrder {
            acquires: true,
            releases: true,
        },
        _ => return None,
    })
}

impl Decoder<'_> {
    /// Decodes `atom to, [address], value` and `red [address], value`; `cas` has the expected value
    /// before the new one.
    pub(super) fn atomic(&mut self, text: &Text<'_>) -> Result<Op> {
        let parts = Parts::read(text.parts().skip(1)).ok_or_else(|| text.unknown())?;
        let (bytes, kind) = parts.update().ok_or_else(|| text.unknown())?;
        let returns = text.opcode.starts_with("atom.");
        let first = usize::from(returns);
        let to = if returns {
            self.target(text, 0)?
        } else {
            self.sink()
        };
        let (update, last) = match kind {
            Kind::Update(update) => (update, first + 1),
            Kind::CompareAndSwap => {
                let expected = self.source(text, first + 1)?;
                (Update::CompareAndSwap { expected }, first + 2)
            }
        };
        Ok(Op::Atomic(Box::new(Atomic {
            access: Access {
                space: parts.space,
                bytes,
                is_signed: false,
                address: self.address_at(text, first)?,
                slots: [to].into(),
                order: Some(parts.order),
            },
            update,
            value: self.source(text, last)?,
        })))
    }
}
