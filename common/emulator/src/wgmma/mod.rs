//! wgmma: products of whole warpgroups that run asynchronously until a wait covers them.
//!
//! A product is one operation of four warps. Each issues it and goes on, but it can't run before
//! all four have issued it. Under some schedules it then runs at once, under others as late as the
//! first wait that covers it, on what shared memory holds by then. In between a thread's
//! accumulators are poison; it gets them back at its own wait that covers the product and names
//! them, since the compiler may read what a wait does not name before it.

mod accumulators;
mod misuse;
mod multiply;
mod operand;
mod shape;
mod warpgroup;

use std::ops::Range;

use crate::cluster::Cluster;
use crate::extent::BlockIndex;
use crate::fault::Fault;
use crate::judge::held::Held;
use crate::judge::operand_rule::OperandRule;
use crate::schedule::{Random, Schedule};
use crate::warp::{Collective, Group, LaneOperands, party};
pub(crate) use accumulators::{NAMED, Named};
use misuse::Misuse;
use multiply::Slabs;
use operand::{CHUNK, ROWS, WARPS};
pub(crate) use shape::Operands;
use shape::Shape;
use warpgroup::{HeldArray, Part, PendingWait, WarpState, Warpgroup};

#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) number: u64,
    shape: Shape,
    base: usize,
    pub(crate) macs: u64,
    pub(crate) woken: Vec<Woken>,
}

/// A warp whose wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Woken {
    pub(crate) warp: u32,
    /// The number of products that the wait covers.
    pub(crate) covered: u64,
}

impl Issued {
    /// Returns the shared memory that a warp reads.
    pub(crate) fn operands(&self, warp: u32, rule: OperandRule) -> Vec<Range<usize>> {
        const ROWS_OF_WARP: usize = ROWS / WARPS as usize;
        let rows = match rule {
            OperandRule::Whole => 0..ROWS,
            OperandRule::OwnRows => {
                let first = (warp % WARPS) as usize * ROWS_OF_WARP;
                first..first + ROWS_OF_WARP
            }
        };
        let mut chunks: Vec<usize> = self.shape.chunks(rows).collect();
        chunks.sort_unstable();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for chunk in chunks {
            let start = self.base + chunk;
            match ranges.last_mut() {
                Some(last) if last.end >= start => last.end = start + CHUNK,
                _ => ranges.push(start..start + CHUNK),
            }
        }
        ranges
    }

    /// Returns an address in shared memory that belongs to B.
    pub(crate) fn part_of_b(&self) -> usize {
        self.base + self.shape.part_of_b()
    }
}

#[derive(Debug)]
pub(crate) struct Products {
    block: BlockIndex,
    warps: u32,
    /// Shared memory, and what the launch declared of it.
    cluster: Cluster,
    schedule: Schedule,
    random: Random,
    groups: Vec<Warpgroup>,
    slabs: Slabs,
}

impl Products {
    pub(crate) fn new(
        block: BlockIndex,
        linear: u64,
        cluster: Cluster,
        schedule: Schedule,
    ) -> Self {
        Self {
            block,
            warps: cluster.all_threads() / 32,
            cluster,
            schedule,
            random: Random::new(schedule.layout_seed() ^ linear),
            groups: Vec::new(),
            slabs: Slabs::default(),
        }
    }

    /// Notes a warp's call, which the other warps of its warpgroup must make, too.
    fn start(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        let first = warp / WARPS * WARPS;
        if self.warps < first + WARPS {
            let reason = format!(
                "a warpgroup is four warps of which the first is a multiple of 4, here warps \
                 {first} to {}, and the block has only {} whole warps",
                first + WARPS - 1,
                self.warps
            );
            return Err(self.fault(warp, call, Misuse::of_lane(0, reason)));
        }
        if self.groups.is_empty() {
            self.groups
                .resize_with(self.warps.div_ceil(WARPS) as usize, Warpgroup::default);
        }
        self.groups[(warp / WARPS) as usize]
            .call(warp, call)
            .map_err(|misuse| self.fault(warp, call, misuse))
    }

    fn fault(&self, warp: u32, call: &Collective, misuse: Misuse) -> Fault {
        match misuse {
            Misuse::Lane { lane, reason } => Fault::InvalidCollective {
                block: self.block,
                party: party(warp * 32 + lane, call),
                reason,
            },
            Misuse::Warps {
                warp: first_warp,
                call: first_call,
                rule,
            } => Fault::CollectiveMismatch {
                block: self.block,
                first: party(first_warp * 32, &first_call),
                second: Some(party(warp * 32, call)),
                rule: rule.to_owned(),
            },
        }
    }

    fn warp_mut(&mut self, warp: u32) -> &mut WarpState {
        &mut self.groups[(warp / WARPS) as usize].warps[(warp % WARPS) as usize]
    }

    pub(crate) fn fence(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        self.start(warp, call)?;
        self.warp_mut(warp).is_fenced = true;
        Ok(())
    }

    pub(crate) fn commit(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        self.start(warp, call)?;
        let state = self.warp_mut(warp);
        state.groups.push_back(state.issued);
        Ok(())
    }

    /// Issues a warp's part of its next product, and ends the waits that cover no later one.
    ///
    /// # Safety
    ///
    /// The operands are those of the warp's lanes, which stand in the call that passed them; their
    /// arrays live until the wait that gives them back, or until the block ends.
    pub(crate) unsafe fn issue(
        &mut self,
        warp: u32,
        group: &Group,
        operands: &LaneOperands,
    ) -> Result<Issued, Fault> {
        let call = &group.collective;
        self.start(warp, call)?;
        // SAFETY: see above.
        let lanes = operands.map(|operand| unsafe { operand.cast::<Operands>().read() });
        let part = self
            .part(warp, call, &lanes)
            .map_err(|misuse| self.fault(warp, call, misuse))?;
        let index = (warp / WARPS) as usize;
        // SAFETY: passed on.
        let number = unsafe { self.groups[index].add(&part, self.cluster.declared) }
            .map_err(|misuse| self.fault(warp, call, misuse))?;
        let issued_by_all = self.groups[index].issued_by_all();
        self.run_early(index, issued_by_all);
        // SAFETY: the lanes of a warp that waits stand at their wait.
        let woken = unsafe { self.finish_waits(index, issued_by_all) }?;
        Ok(Issued {
            number,
            shape: part.shape,
            base: self.cluster.base(warp * 32),
            macs: part.shape.warp_macs(),
            woken,
        })
    }

    fn part<'a>(
        &mut self,
        warp: u32,
        call: &'a Collective,
        lanes: &'a [Operands; 32],
    ) -> Result<Part<'a>, Misuse> {
        let first = &lanes[0];
        if let Some(lane) = lanes.iter().position(|it| !it.agree_with(first)) {
            let reason = "its descriptors, shape and `accumulate` must be those of lane 0";
            return Err(Misuse::of_lane(lane, reason.to_owned()));
        }
        let shape = Shape::new(first)?;
        let is_early = match self.schedule {
            Schedule::InOrder | Schedule::Starving(_) | Schedule::Delayed(_) => false,
            Schedule::Reversed => true,
            Schedule::Shuffled(_) => self.random.next() >> 63 == 1,
        };
        Ok(Part {
            warp,
            call,
            lanes,
            shape,
            is_early,
        })
    }

    /// Runs products that do not wait for a wait, of the first `issued` ones.
    fn run_early(&mut self, index: usize, issued: u64) {
        loop {
            let group = &self.groups[index];
            if group.run >= issued || !group.product(group.run).is_early {
                return;
            }
            self.run_next(index);
        }
    }

    /// Ends the waits that cover only some of the first `issued` products.
    ///
    /// # Safety
    ///
    /// The lanes of a warp that waits stand at their wait.
    unsafe fn finish_waits(&mut self, index: usize, issued: u64) -> Result<Vec<Woken>, Fault> {
        let mut woken = Vec::new();
        for member in 0..WARPS {
            let warp = index as u32 * WARPS + member;
            let pending = &mut self.warp_mut(warp).pending_wait;
            let Some(wait) = pending.take_if(|wait| wait.covered <= issued) else {
                continue;
            };
            // SAFETY: the caller's.
            unsafe { self.finish(warp, wait.covered, &wait.named) }
                .map_err(|misuse| self.fault(warp, &wait.call, misuse))?;
            woken.push(Woken {
                warp,
                covered: wait.covered,
            });
        }
        Ok(woken)
    }

    fn run_next(&mut self, index: usize) {
        let start = self.cluster.start + self.cluster.base(index as u32 * WARPS * 32);
        // SAFETY: that block's shared memory, whose threads are suspended or in this call.
        let shared =
            unsafe { std::slice::from_raw_parts(start as *const u8, self.cluster.declared) };
        let (product, chain) = self.groups[index].next_to_run();
        let shape = &product.shape;
        match (shape.a, &product.fragment) {
            (Some(a), _) => self.slabs.take_a(shape.element, shared, a),
            (None, Some(fragment)) => self.slabs.take_fragment(shape.element, fragment),
            (None, None) => unreachable!("A is in shared memory or in registers"),
        }
        self.slabs.take_b(shape, shared);
        self.slabs.multiply(shape, &mut chain.values);
        self.groups[index].run += 1;
    }

    /// Waits until at most `newest` groups of a warp are in flight. Returns the number of complete
    /// products if it goes on at once.
    ///
    /// # Safety
    ///
    /// As [`Products::issue`].
    pub(crate) unsafe fn wait(
        &mut self,
        warp: u32,
        group: &Group,
        operands: &LaneOperands,
    ) -> Result<Option<u64>, Fault> {
        let call = &group.collective;
        self.start(warp, call)?;
        let newest = call.agree[0] as usize;
        // SAFETY: see above.
        let named = Box::new(operands.map(|operand| unsafe { operand.cast::<Named>().read() }));
        let state = self.warp_mut(warp);
        state.is_fenced = false;
        state.last_wait = Some((call.site, newest as u32));
        let older = state.groups.len().saturating_sub(newest);
        let last_group = state.groups.drain(..older).next_back();
        let covered = last_group.unwrap_or(state.complete);
        if covered > self.groups[(warp / WARPS) as usize].issued_by_all() {
            self.warp_mut(warp).pending_wait = Some(PendingWait {
                covered,
                named,
                call: *call,
            });
            return Ok(None);
        }
        // SAFETY: see above.
        unsafe { self.finish(warp, covered, &named) }
            .map_err(|misuse| self.fault(warp, call, misuse))?;
        Ok(Some(covered))
    }

    /// Runs what has not run yet, and gives the lanes back what is complete and named.
    ///
    /// # Safety
    ///
    /// As [`Products::issue`].
    unsafe fn finish(
        &mut self,
        warp: u32,
        covered: u64,
        named: &[Named; 32],
    ) -> Result<(), Misuse> {
        let (index, member) = ((warp / WARPS) as usize, (warp % WARPS) as usize);
        while self.groups[index].run < covered {
            self.run_next(index);
        }
        // SAFETY: the caller's.
        unsafe { self.groups[index].complete(member, covered, named) }
    }

    /// Returns the smallest range around all registers of a thread that products hold.
    pub(crate) fn held(&self, thread: u32) -> Range<usize> {
        self.held_arrays(thread)
            .map(|array| array.bytes)
            .reduce(|all, bytes| {
                let start = all.start.min(bytes.start);
                start..all.end.max(bytes.end)
            })
            .unwrap_or_default()
    }

    fn held_arrays(&self, thread: u32) -> impl Iterator<Item = HeldArray> {
        self.groups
            .get((thread / 128) as usize)
            .into_iter()
            .flat_map(move |group| group.held_arrays(thread as usize % 128))
    }

    /// Returns the product that holds these bytes of a thread. Registers of A may be read.
    pub(crate) fn touched(&self, thread: u32, bytes: Range<usize>, is_write: bool) -> Option<Held> {
        self.groups
            .get((thread / 128) as usize)?
            .touched(thread as usize % 128, &bytes, is_write)
    }

    /// Refuses the exit of a thread whose products are in flight.
    pub(crate) fn exit(&self, thread: u32) -> Result<(), Fault> {
        let Some(group) = self.groups.get((thread / 128) as usize) else {
            return Ok(());
        };
        let state = &group.warps[(thread / 32 % WARPS) as usize];
        if state.issued == state.complete {
            return Ok(());
        }
        let product = group.product(state.complete);
        let is_committed = state
            .groups
            .back()
            .is_some_and(|&issued| issued > state.complete);
        let missing = if is_committed {
            "wgmma_wait"
        } else {
            "wgmma_commit, and a wgmma_wait behind it,"
        };
        let reason = format!(
            "thread {thread} has exited while the product is in flight: {missing} is missing \
             behind it"
        );
        Err(Fault::InvalidCollective {
            block: self.block,
            party: party(thread, &product.call),
            reason,
        })
    }

    pub(crate) fn describe(&self, warp: u32) -> String {
        let group = &self.groups[(warp / WARPS) as usize];
        let Some(wait) = &group.warps[(warp % WARPS) as usize].pending_wait else {
            return "wgmma_wait".into();
        };
        let mut late = Vec::new();
        for (other, state) in (warp / WARPS * WARPS..).zip(&group.warps) {
            if state.issued < wait.covered {
                late.push(format!("warp {other} has issued {}", state.issued));
            }
        }
        format!(
            "wgmma_wait, for {} products of the warpgroup, of which {}",
            wait.covered,
            late.join(", ")
        )
    }
}

#[cfg(test)]
mod tests;
