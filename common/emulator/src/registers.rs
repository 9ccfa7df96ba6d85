//! setmaxnreg. The launch does not know what ptxas gave the threads: they start with the most that `__launch_bounds__(THREADS,
//! 1)` allows, and that is the pool.

use crate::fault::Fault;
use crate::warp::{Collective, Kind, party};

/// Of a multiprocessor, and the most of one thread at entry.
const MULTIPROCESSOR: u32 = 65_536;
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
    block: [u32; 3],
    entry: u32,
    pool: u32,
    warps: Vec<WarpState>,
    changes: Vec<Vec<Change>>,
}

impl Registers {
    pub(crate) fn new(block: [u32; 3], threads: u32) -> Self {
        let entry = (MULTIPROCESSOR / threads / 8 * 8).min(ENTRY_LIMIT);
        Self {
            block,
            entry,
            pool: 0,
            warps: Vec::new(),
            changes: Vec::new(),
        }
    }

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
        let invalid = |reason| Fault::InvalidCollective {
            block: self.block,
            party: party(warp * 32, call),
            reason,
        };
        if warps < warp / WARPS * WARPS + WARPS {
            let reason = "it concerns the four warps of a warpgroup, of which the first is a multiple of 4; the block lacks \
                          some of them";
            return Err(invalid(reason.into()));
        }
        let (wanted, gives) = (call.agree[0] as u32, call.kind() == Kind::GiveRegisters);
        let state = &mut self.warps[warp as usize];
        if gives && wanted > state.registers || !gives && wanted < state.registers {
            let (has, other) = (
                state.registers,
                if gives {
                    "more: take_registers"
                } else {
                    "fewer: give_registers_back"
                },
            );
            return Err(invalid(format!(
                "a thread of warp {warp} has {has} registers, and {wanted} are {other}"
            )));
        }
        let number = state.changes;
        state.changes += 1;
        let changes = &mut self.changes[(warp / WARPS) as usize];
        match changes.get(number) {
            None => changes.push(Change { warp, call: *call }),
            Some(Change { call: first, .. })
                if (first.agree, first.kind) == (call.agree, call.kind)
                    && first.site.same(call.site) => {}
            Some(first) => {
                let (first, second) = (
                    party(first.warp * 32, &first.call),
                    Some(party(warp * 32, call)),
                );
                let rule = "all warps of a warpgroup change their registers alike".to_owned();
                return Err(Fault::CollectiveMismatch {
                    block: self.block,
                    first,
                    second,
                    rule,
                });
            }
        }
        if gives {
            self.pool += (state.registers - wanted) * 32;
            state.registers = wanted;
            return Ok(true);
        }
        state.takes = Some(wanted);
        Ok(self.serve(warp))
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

    /// All threads have returned: every warp must have made the changes of its warpgroup.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        for (index, changes) in self.changes.iter().enumerate() {
            let warps = index as u32 * WARPS..(index as u32 + 1) * WARPS;
            for warp in warps {
                let Some(missed) = self
                    .warps
                    .get(warp as usize)
                    .and_then(|state| changes.get(state.changes))
                else {
                    continue;
                };
                let reason = format!(
                    "warp {warp} of the same warpgroup has exited without it: all four warps execute it"
                );
                let party = party(missed.warp * 32, &missed.call);
                return Err(Fault::InvalidCollective {
                    block: self.block,
                    party,
                    reason,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn describe(&self, warp: u32) -> String {
        let state = &self.warps[warp as usize];
        let wanted = state.takes.unwrap_or(state.registers);
        format!(
            "take_registers, {} for each thread instead of {}: {} for the warp, and the pool has {}",
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
