//! Matrix copies and products of a warp or a warpgroup.

use emulator::guest::Element;

use super::{Decoder, Result, Text};
use crate::program::Bank;
use crate::step::{
    Fragment, FragmentCopy, MatrixCopy, Mma, Narrow, Op, Part, Slot, Space, Wgmma, WgmmaA, Wmma,
};

impl Decoder<'_> {
    pub(super) fn warp_matrix(&mut self, text: &Text<'_>) -> Result<Op> {
        let parts: Vec<&str> = text.parts().collect();
        match parts.as_slice() {
            ["ldmatrix" | "stmatrix", "sync", "aligned", rest @ ..] => self.matrix_copy(text, rest),
            [
                "mma",
                "sync",
                "aligned",
                shape,
                "row",
                "col",
                "f32",
                a,
                b,
                "f32",
            ] if a == b => self.mma(text, shape, a),
            [
                "wmma",
                "load",
                part @ ("a" | "b" | "c"),
                "sync",
                "aligned",
                layout,
                shape,
                rest @ ..,
            ] => self.fragment_copy(text, part, layout, shape, rest),
            [
                "wmma",
                "store",
                "d",
                "sync",
                "aligned",
                layout,
                shape,
                rest @ ..,
            ] => self.fragment_copy(text, "d", layout, shape, rest),
            ["wmma", "mma", "sync", "aligned", _, _, shape, "f32", "f32"] => self.wmma(text, shape),
            _ => Err(text.unknown()),
        }
    }

    /// Decodes `ldmatrix` and `stmatrix`, whose shape stands before or, as CUTLASS has it, behind
    /// the number and `trans`.
    fn matrix_copy(&mut self, text: &Text<'_>, parts: &[&str]) -> Result<Op> {
        let mut modifiers = parts.to_vec();
        modifiers.retain(|&part| part != "m8n8");
        if modifiers.len() + 1 != parts.len() {
            return Err(text.unknown());
        }
        let (count, rest) = match modifiers.as_slice() {
            ["x1", rest @ ..] => (1, rest),
            ["x2", rest @ ..] => (2, rest),
            ["x4", rest @ ..] => (4, rest),
            _ => return Err(text.unknown()),
        };
        let (is_transposed, space) = match rest {
            ["trans", space, "b16"] => (true, space),
            [space, "b16"] => (false, space),
            ["b16"] => (false, &"generic"),
            _ => return Err(text.unknown()),
        };
        let memory_space = match *space {
            "shared" | "shared::cta" => Space::Shared,
            "generic" => Space::Generic,
            _ => return Err(text.unknown()),
        };
        let is_load = text.opcode.starts_with("ld");
        let (memory, registers) = if is_load { (1, 0) } else { (0, 1) };
        let copy = Box::new(MatrixCopy {
            address: self.address_at(text, memory)?,
            registers: self.exactly(text, registers, count)?,
            is_transposed,
            space: memory_space,
        });
        Ok(if is_load {
            Op::LoadMatrix(copy)
        } else {
            Op::StoreMatrix(copy)
        })
    }

    fn mma(&mut self, text: &Text<'_>, shape: &str, element: &str) -> Result<Op> {
        let (narrow, depth) = match (element, shape) {
            ("f16", "m16n8k16") => (Narrow::F16, 16),
            ("f16", "m16n8k8") => (Narrow::F16, 8),
            ("bf16", "m16n8k16") => (Narrow::Bf16, 16),
            ("bf16", "m16n8k8") => (Narrow::Bf16, 8),
            ("e4m3", "m16n8k32") => (Narrow::E4m3, 32),
            ("e5m2", "m16n8k32") => (Narrow::E5m2, 32),
            _ => return Err(text.unknown()),
        };
        let registers = match depth {
            8 => 1,
            _ => 2,
        };
        text.demand_operands(4, 4)?;
        let four = |slots: Box<[Slot]>| [slots[0], slots[1], slots[2], slots[3]];
        Ok(Op::Mma(Box::new(Mma {
            element: narrow,
            depth,
            d: four(self.exactly(text, 0, 4)?),
            a: self.exactly(text, 1, 2 * registers)?,
            b: self.exactly(text, 2, registers)?,
            c: four(self.floats(text, 3, 4)?),
        })))
    }

    fn floats(&mut self, text: &Text<'_>, index: usize, count: usize) -> Result<Box<[Slot]>> {
        let slots = self.sources(text, index, "f32")?;
        if slots.len() == count {
            return Ok(slots.into());
        }
        Err(text.invalid(format!(
            "operand {} has {} registers",
            index + 1,
            slots.len()
        )))
    }

    fn fragment_copy(
        &mut self,
        text: &Text<'_>,
        part: &str,
        layout: &str,
        shape: &str,
        rest: &[&str],
    ) -> Result<Op> {
        let Some([m, n, k]) = wmma_shape(shape) else {
            return Err(text.unknown());
        };
        let space = match rest.first() {
            Some(&("shared" | "shared::cta")) => Space::Shared,
            Some(&"global") => Space::Global,
            Some(&("f16" | "f32")) => Space::Generic,
            _ => return Err(text.unknown()),
        };
        let is_half = text.type_name() == "f16";
        let (kind, rows, columns) = match part {
            "a" => (Part::A, m, k),
            "b" => (Part::B, k, n),
            _ => (Part::Accumulator, m, n),
        };
        if is_half == (kind == Part::Accumulator) || !matches!(layout, "row" | "col") {
            return Err(text.unknown());
        }
        let fragment = Fragment {
            part: kind,
            rows,
            columns,
            is_half,
        };
        let is_store = part == "d";
        let (memory, registers) = if is_store { (0, 1) } else { (1, 0) };
        text.demand_operands(2, 3)?;
        let packed = if layout == "row" { columns } else { rows };
        let stride = match text.operands.len() {
            3 => self.integer(text, 2)?,
            _ => self.bits(packed.into()),
        };
        let copy = Box::new(FragmentCopy {
            fragment,
            is_row_major: layout == "row",
            address: self.address_at(text, memory)?,
            stride,
            registers: self.exactly(text, registers, 8)?,
            space,
        });
        Ok(if is_store {
            Op::StoreFragment(copy)
        } else {
            Op::LoadFragment(copy)
        })
    }

    fn wmma(&mut self, text: &Text<'_>, shape: &str) -> Result<Op> {
        let Some(sizes) = wmma_shape(shape) else {
            return Err(text.unknown());
        };
        text.demand_operands(4, 4)?;
        Ok(Op::Wmma(Box::new(Wmma {
            shape: sizes,
            d: self.exactly(text, 0, 8)?,
            a: self.exactly(text, 1, 8)?,
            b: self.exactly(text, 2, 8)?,
            c: self.floats(text, 3, 8)?,
        })))
    }

    pub(super) fn warpgroup(&mut self, text: &Text<'_>) -> Result<Op> {
        let parts: Vec<&str> = text.parts().collect();
        match parts.as_slice() {
            ["wgmma", "fence", "sync", "aligned"] => Ok(Op::WgmmaFence),
            ["wgmma", "commit_group", "sync", "aligned"] => Ok(Op::WgmmaCommit),
            ["wgmma", "wait_group", "sync", "aligned"] => Ok(Op::WgmmaWait(self.number(text, 0)?)),
            ["wgmma", "mma_async", "sync", "aligned", shape, "f32", a, b] if a == b => {
                self.wgmma(text, shape, a)
            }
            _ => Err(text.unknown()),
        }
    }

    /// Decodes `wgmma.mma_async d, a, b, scale-d, 1, 1[, transposed a][, transposed b]`.
    fn wgmma(&mut self, text: &Text<'_>, shape: &str, element: &str) -> Result<Op> {
        let (found, depth) = match element {
            "f16" => (Element::F16, "16"),
            "bf16" => (Element::Bf16, "16"),
            "e4m3" => (Element::E4m3, "32"),
            _ => return Err(text.unknown()),
        };
        let columns = shape
            .strip_prefix("m64n")
            .and_then(|rest| rest.split_once('k'))
            .filter(|(_, given)| *given == depth)
            .and_then(|(columns, _)| columns.parse::<u32>().ok())
            .filter(|columns| columns.is_multiple_of(8) && (8..=256).contains(columns))
            .ok_or_else(|| text.unknown())?;
        let in_registers = text.operand(1)?.starts_with('{');
        let flags = self.wgmma_flags(text)?;
        let expected = match (element, in_registers) {
            ("e4m3", _) => 0,
            (_, true) => 1,
            (_, false) => 2,
        };
        if flags.len() != expected {
            return Err(text.invalid(format!("{} flags of transposition", flags.len())));
        }
        if expected == 2 && flags[0] != 0 {
            return Err(text.invalid("a transposed A is not implemented"));
        }
        let d = self.exactly(text, 0, columns as usize / 2)?;
        let bank = self.bank(d);
        let a = if in_registers {
            let slots = self.exactly(text, 1, 4)?;
            self.fragments.extend(slots.iter().copied());
            WgmmaA::Registers([slots[0], slots[1], slots[2], slots[3]])
        } else {
            WgmmaA::Descriptor(self.integer(text, 1)?)
        };
        Ok(Op::Wgmma(Box::new(Wgmma {
            columns,
            element: found,
            is_transposed_b: flags.last().is_some_and(|&flag| flag == 1),
            bank,
            a,
            b: self.integer(text, 2)?,
            scale: self.value(text, text.operand(3)?, "pred")?,
        })))
    }

    /// Reads what follows the predicate: both scales, which are 1 here, and the transpositions.
    fn wgmma_flags(&mut self, text: &Text<'_>) -> Result<Vec<u32>> {
        text.demand_operands(6, 8)?;
        for index in [4, 5] {
            if text.operand(index)? != "1" {
                return Err(text.invalid("a negated operand is not implemented"));
            }
        }
        (6..text.operands.len())
            .map(|index| self.number(text, index))
            .collect()
    }

    /// Returns the number of the list of accumulators.
    fn bank(&mut self, registers: Box<[Slot]>) -> usize {
        let known = self.banks.iter().position(|it| it.registers == registers);
        known.unwrap_or_else(|| {
            let offset = self.bank_words;
            self.bank_words += registers.len() as u32;
            self.banks.push(Bank { registers, offset });
            self.banks.len() - 1
        })
    }
}

fn wmma_shape(shape: &str) -> Option<[u32; 3]> {
    Some(match shape {
        "m16n16k16" => [16, 16, 16],
        "m8n32k16" => [8, 32, 16],
        "m32n8k16" => [32, 8, 16],
        _ => return None,
    })
}
