//! cp.async, and tensor copies by TMA.

use emulator::MAX_DIMENSIONS;

use super::operands::list;
use super::{Decoder, Result, Text};
use crate::step::{Address, CpAsync, Op, TensorCopy};

impl Decoder<'_> {
    pub(super) fn copy(&mut self, text: &Text<'_>) -> Result<Op> {
        match text.opcode {
            "cp.async.commit_group" => Ok(Op::CpAsyncCommit),
            "cp.async.wait_group" => Ok(Op::CpAsyncWait(self.number(text, 0)?)),
            "cp.async.wait_all" => Ok(Op::CpAsyncWaitAll),
            "cp.async.mbarrier.arrive.noinc.shared.b64"
            | "cp.async.mbarrier.arrive.noinc.shared::cta.b64" => {
                Ok(Op::MbarrierArriveAfterCopies(self.address_at(text, 0)?))
            }
            "cp.async.bulk.commit_group" => Ok(Op::TmaStoreCommit),
            "cp.async.bulk.wait_group.read" => Ok(Op::TmaStoreWaitRead(self.number(text, 0)?)),
            "cp.async.bulk.wait_group" => Ok(Op::TmaStoreWait(self.number(text, 0)?)),
            "prefetch.tensormap" | "prefetch.param.tensormap" => {
                Ok(Op::PrefetchMap(self.address_at(text, 0)?))
            }
            "prefetch.global.L2" | "prefetch.global.L1" => Ok(Op::Nothing),
            _ if text.opcode.starts_with("cp.async.bulk.prefetch.tensor.") => Ok(Op::Nothing),
            _ if text.opcode.starts_with("cp.async.bulk.tensor.") => self.tensor_copy(text),
            _ if text.opcode.starts_with("cp.async.ca.") => self.cp_async(text),
            _ if text.opcode.starts_with("cp.async.cg.") => self.cp_async(text),
            _ => Err(text.unknown()),
        }
    }

    /// Decodes `cp.async.cg.shared.global [to], [from], bytes[, read | ignored][, policy]`.
    fn cp_async(&mut self, text: &Text<'_>) -> Result<Op> {
        let mut parts = text.parts().skip(3);
        let is_to_shared = matches!(parts.next(), Some("shared" | "shared::cta"));
        let is_from_global = parts.next() == Some("global");
        let mut has_policy = false;
        for part in parts {
            match part {
                "L2::cache_hint" => has_policy = true,
                "L2::64B" | "L2::128B" | "L2::256B" => {}
                _ => return Err(text.unknown()),
            }
        }
        if !is_to_shared || !is_from_global {
            return Err(text.unknown());
        }
        let count = text.operands.len() - usize::from(has_policy);
        if !(3..=4).contains(&count) {
            return Err(text.invalid("it takes addresses, a size, and the bytes that it reads"));
        }
        let (mut read, mut ignored) = (None, None);
        if count == 4 {
            let operand = text.operand(3)?;
            let slot = self.value(text, operand, "b32")?;
            if self.is_predicate(operand) {
                ignored = Some(slot);
            } else {
                read = Some(slot);
            }
        }
        Ok(Op::CpAsync(Box::new(CpAsync {
            to: self.address_at(text, 0)?,
            from: self.address_at(text, 1)?,
            bytes: self.number(text, 2)?,
            read,
            ignored,
        })))
    }

    /// Returns whether an operand is a predicate: by convention of every compiler these are `%p…`.
    fn is_predicate(&self, operand: &str) -> bool {
        operand.starts_with("%p")
    }

    /// Decodes a copy of a box between a tensor and shared memory.
    fn tensor_copy(&mut self, text: &Text<'_>) -> Result<Op> {
        let plain = text
            .opcode
            .replace(".tile", "")
            .replace(".L2::cache_hint", "");
        let rest = plain
            .strip_prefix("cp.async.bulk.tensor.")
            .ok_or_else(|| text.unknown())?;
        let (dimensions, form) = rest.split_once('.').ok_or_else(|| text.unknown())?;
        if !matches!(dimensions, "1d" | "2d" | "3d" | "4d" | "5d") {
            return Err(text.unknown());
        }
        let count = usize::from(dimensions.as_bytes()[0] - b'0');
        match form {
            "shared::cluster.global.mbarrier::complete_tx::bytes"
            | "shared::cta.global.mbarrier::complete_tx::bytes" => {
                let load = self.tensor_load(text, count)?;
                Ok(Op::TmaLoad(Box::new(load)))
            }
            "shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster" => {
                let load = self.tensor_load(text, count)?;
                let blocks = Some(self.integer(text, 3)?);
                Ok(Op::TmaLoad(Box::new(TensorCopy { blocks, ..load })))
            }
            "global.shared::cta.bulk_group" => {
                let shared = self.address_at(text, 1)?;
                let tensor = self.tensor(text, 0, count)?;
                Ok(Op::TmaStore(Box::new(TensorCopy { shared, ..tensor })))
            }
            _ => Err(text.unknown()),
        }
    }

    /// Resolves `[to], [map, {coordinates}], [mbarrier]`.
    fn tensor_load(&mut self, text: &Text<'_>, count: usize) -> Result<TensorCopy> {
        let object = Some(self.address_at(text, 2)?);
        let shared = self.address_at(text, 0)?;
        let tensor = self.tensor(text, 1, count)?;
        Ok(TensorCopy {
            shared,
            object,
            ..tensor
        })
    }

    /// Resolves `[map, {coordinates}]`. A dimension that the tensor does not have is at 0.
    fn tensor(&mut self, text: &Text<'_>, index: usize, count: usize) -> Result<TensorCopy> {
        let operand = text.operand(index)?;
        let inner = operand.trim_start_matches('[').trim_end_matches(']');
        let Some((map, coordinates)) = inner.split_once(',') else {
            return Err(text.invalid(format!("`{operand}` has no coordinates")));
        };
        let named = list(coordinates.trim());
        if named.len() != count {
            let reason = format!("{} coordinates for {count} dimensions", named.len());
            return Err(text.invalid(reason));
        }
        let mut at = [self.bits(0); MAX_DIMENSIONS];
        for (slot, coordinate) in at.iter_mut().zip(named) {
            *slot = self.value(text, coordinate, "s32")?;
        }
        let address = format!("[{}]", map.trim());
        Ok(TensorCopy {
            map: self.address(text, &address)?,
            shared: Address { base: 0, offset: 0 },
            at,
            object: None,
            blocks: None,
        })
    }
}
