//! setmaxnreg. The launch does not know what ptxas gave the threads: they start with the most that
//! `__launch_bounds__(THREADS, 1)` allows, and that is the pool.

use crate::extent::BlockIndex;
use crate::fault::Fault;
use crate::warp::{Collective, Kind, party};

/// The registers of a multiprocessor.
const MULTIPROCESSOR: u32 = 65_536;
/// The most registers of a thread at entry.
const ENTRY_LIMIT: u32 = 255;

const WARPS: u32 = 4;

#[derive(Clone, Debug)]
struct WarpState {
    registers: u32,
    changes: usize,
    takes: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    warp: u32,
    call: Collective,
}

#[derive(Debug)]
pub(crate) struct Registers {
    block: BlockIndex,
    entry: u32,
    pool: u32,
    warps: Vec<WarpState>,
    changes: Vec<Vec<Change>>,
}

impl Registers {
    pub(crate) fn new(block: BlockIndex, threads: u32) -> Self {
        let entry = (MULTIPROCESSOR / threads / 8 * 8).min(ENTRY_LIMIT);
        Self {
            block,
            entry,
            pool: 0,
            warps: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Carries out a warp's call. Returns false if the warp has to wait for registers.
    pub(crate) fn change(
        &mut self,
        warp: u32,
        warps: u32,
        call: &Collective,
    ) -> Result<bool, Fault> {
        if self.warps.is_empty() {
            let fresh = WarpState {
                registers: self.entry,
                changes: 0,
                takes: None,
            };
            self.warps = vec![fresh; warps as usize];
            self.changes = vec![Vec::new(); warps.div_ceil(WARPS) as usize];
        }
        if warps < warp / WARPS * WARPS + WARPS {
            let reason = "it concerns the four warps of a warpgroup, of which the first is a \
                          multiple of 4; the block lacks some of them";
            return Err(self.invalid(warp, call, reason.to_owned()));
        }
        self.check_direction(warp, call)?;
        self.note_change(warp, call)?;
        let wanted = call.agree[0] as u32;
        let state = &mut self.warps[warp as usize];
        if call.kind() == Kind::GiveRegisters {
            self.pool += (state.registers - wanted) * 32;
            state.registers = wanted;
            return Ok(true);
        }
        state.takes = Some(wanted);
        Ok(self.serve(warp))
    }

    fn invalid(&self, warp: u32, call: &Collective, reason: String) -> Fault {
        Fault::InvalidCollective {
            block: self.block,
            party: party(warp * 32, call),
            reason,
        }
    }

    /// Refuses to give back more registers than a thread has, and to take fewer.
    fn check_direction(&self, warp: u32, call: &Collective) -> Result<(), Fault> {
        let wanted = call.agree[0] as u32;
        let registers = self.warps[warp as usize].registers;
        let gives = call.kind() == Kind::GiveRegisters;
        let other = if gives && wanted > registers {
            "more: take_registers"
        } else if !gives && wanted < registers {
            "fewer: give_registers_back"
        } else {
            return Ok(());
        };
        let reason =
            format!("a thread of warp {warp} has {registers} registers, and {wanted} are {other}");
        Err(self.invalid(warp, call, reason))
    }

    /// Notes a warp's next change, which must be that of its warpgroup's other warps.
    fn note_change(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        let state = &mut self.warps[warp as usize];
        let number = state.changes;
        state.changes += 1;
        let changes = &mut self.changes[(warp / WARPS) as usize];
        let Some(first) = changes.get(number) else {
            changes.push(Change { warp, call: *call });
            return Ok(());
        };
        let is_same = first.call.agree == call.agree && first.call.kind == call.kind;
        if is_same && first.call.site.same(call.site) {
            return Ok(());
        }
        Err(Fault::CollectiveMismatch {
            block: self.block,
            first: party(first.warp * 32, &first.call),
            second: Some(party(warp * 32, call)),
            rule: "all warps of a warpgroup change their registers alike".to_owned(),
        })
    }

    fn serve(&mut self, warp: u32) -> bool {
        let state = &mut self.warps[warp as usize];
        let Some(wanted) = state.takes else {
            return false;
        };
        let more = (wanted - state.registers) * 32;
        if more > self.pool {
            return false;
        }
        self.pool -= more;
        (state.registers, state.takes) = (wanted, None);
        true
    }

    pub(crate) fn serve_all(&mut self) -> Vec<u32> {
        (0..self.warps.len() as u32)
            .filter(|&warp| self.serve(warp))
            .collect()
    }

    /// Refuses the end of a block, all of whose threads have returned, if a warp has not made the
    /// changes of its warpgroup.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        for (index, state) in self.warps.iter().enumerate() {
            let changes = &self.changes[index / WARPS as usize];
            let Some(missed) = changes.get(state.changes) else {
                continue;
            };
            let reason = format!(
                "warp {index} of the same warpgroup has exited without it: all four warps execute \
                 it"
            );
            return Err(self.invalid(missed.warp, &missed.call, reason));
        }
        Ok(())
    }

    pub(crate) fn describe(&self, warp: u32) -> String {
        let state = &self.warps[warp as usize];
        let wanted = state.takes.unwrap_or(state.registers);
        format!(
            "take_registers, {} for each thread instead of {}: {} for the warp, and the pool has \
             {}",
            wanted,
            state.registers,
            (wanted - state.registers) * 32,
            self.pool
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_start_with_what_the_launch_bounds_allow() {
        let entry =
            [128, 256, 384, 512, 640, 1024].map(|threads| Registers::new([0; 3], threads).entry);
        assert_eq!(entry, [255, 255, 168, 128, 96, 64]);
    }
}
