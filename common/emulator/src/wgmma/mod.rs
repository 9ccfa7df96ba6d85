//! wgmma: products of whole warpgroups that run asynchronously until a wait covers them.
//!
//! A product is one operation of four warps. Each issues it and goes on, but it can't run before
//! all four have issued it. Under some schedules it then runs at once, under others as late as the
//! first wait that covers it, on what shared memory holds by then. In between a thread's
//! accumulators are poison; it gets them back at its own wait that covers the product and names
//! them, since the compiler may read what a wait does not name before it.

mod accumulators;
mod multiply;
mod operand;
mod shape;
mod warpgroup;

use std::ffi::c_void;
use std::ops::Range;

use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::judge::held::Held;
use crate::schedule::{Random, Schedule};
use crate::warp::{Collective, Group, party};
use accumulators::Named;
use multiply::Slabs;
use operand::CHUNK;
use shape::{Operands, Shape, ShapeError};
use warpgroup::{HeldArray, Part, PendingWait, WarpState, Warpgroup};

const WARPS: u32 = 4;

enum Misuse {
    Lane {
        lane: u32,
        reason: String,
    },
    /// The call disagrees with that of another warp.
    Warps {
        warp: u32,
        call: Collective,
        rule: &'static str,
    },
}

impl Misuse {
    fn of_lane(lane: usize, reason: String) -> Self {
        Self::Lane {
            lane: lane as u32,
            reason,
        }
    }
}

impl From<ShapeError> for Misuse {
    fn from(error: ShapeError) -> Self {
        Self::of_lane(0, error.to_string())
    }
}

#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) number: u64,
    shape: Shape,
    base: usize,
    pub(crate) macs: u64,
    /// Warps whose wait is over, and the number of products that it covers.
    pub(crate) woken: Vec<(u32, u64)>,
}

impl Issued {
    pub(crate) fn operands(&self) -> Vec<Range<usize>> {
        let mut chunks: Vec<usize> = self.shape.chunks().collect();
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
}

#[derive(Debug)]
pub(crate) struct Products {
    block: [u32; 3],
    warps: u32,
    /// Shared memory, and what the launch declared of it.
    cluster: Cluster,
    schedule: Schedule,
    random: Random,
    groups: Vec<Warpgroup>,
    slabs: Slabs,
}

impl Products {
    pub(crate) fn new(block: [u32; 3], linear: u64, cluster: Cluster, schedule: Schedule) -> Self {
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
        operands: &[*mut c_void; 32],
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
            Schedule::InOrder | Schedule::Starving(_) => false,
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

    /// Ends the waits that cover only some of the first `issued` products. Returns the warps, and
    /// how many products each wait covers.
    ///
    /// # Safety
    ///
    /// The lanes of a warp that waits stand at their wait.
    unsafe fn finish_waits(&mut self, index: usize, issued: u64) -> Result<Vec<(u32, u64)>, Fault> {
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
            woken.push((warp, wait.covered));
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
        operands: &[*mut c_void; 32],
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
            .reduce(|all, bytes| all.start.min(bytes.start)..all.end.max(bytes.end))
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
mod tests {
    use super::*;
    use crate::judge::held::Why;
    use crate::warp::tests::whole_warp;

    const WGMMA: u32 = 16;
    const COMMIT: u32 = 18;
    const WAIT: u32 = 19;

    fn group(kind: u32) -> Group {
        whole_warp(kind, [0; 2], 7)
    }

    /// 64 x 8 x 16 of FP16, all alike, rows of 64 bytes: A in the first 4 KiB, B behind them.
    struct Case {
        shared: Vec<u8>,
        d: Vec<[f32; 4]>,
        products: Products,
    }

    impl Case {
        fn new(schedule: Schedule) -> Self {
            let mut shared: Vec<u8> = [0, 0x3c].repeat(64 * 32 + 8 * 32);
            let range = shared.as_mut_ptr_range();
            let cluster = Cluster::of_one_block(128, range.start as usize..range.end as usize);
            let products = Products::new([0; 3], 0, cluster, schedule);
            Self {
                shared,
                d: vec![[0.0; 4]; 128],
                products,
            }
        }

        fn issue(&mut self, warp: u32) -> Result<Issued, Fault> {
            let descriptor = |start: u64| start >> 4 | 512 >> 4 << 32 | 2 << 62;
            let arrays = self.d.as_mut_ptr();
            let lanes: [Operands; 32] = std::array::from_fn(|lane| Operands {
                // SAFETY: `d` has an array for each of the 128 threads.
                d: unsafe { arrays.add(32 * warp as usize + lane) }.cast(),
                a: std::ptr::null(),
                a_descriptor: descriptor(0),
                b_descriptor: descriptor(4096),
                columns: 8,
                element: 0,
                transposed_b: 0,
                accumulate: 0,
            });
            let operands = lanes
                .each_ref()
                .map(|it| std::ptr::from_ref(it).cast_mut().cast());
            // SAFETY: the operands are alive, and their arrays as long as the case.
            unsafe { self.products.issue(warp, &group(WGMMA), &operands) }
        }

        fn wait(&mut self, warp: u32) -> Option<u64> {
            let lanes: [Named; 32] = std::array::from_fn(|lane| {
                let address = &raw const self.d[32 * warp as usize + lane];
                Named {
                    address: [address as usize, 0, 0, 0],
                    bytes: [16, 0, 0, 0],
                }
            });
            let named = lanes
                .each_ref()
                .map(|it| std::ptr::from_ref(it).cast_mut().cast());
            self.products
                .commit(warp, &group(COMMIT).collective)
                .unwrap();
            // SAFETY: as above.
            unsafe { self.products.wait(warp, &group(WAIT), &named) }.unwrap()
        }
    }

    #[test]
    fn a_product_reads_its_operands_when_all_have_issued_it_or_when_the_first_waits() {
        for (schedule, expected) in [(Schedule::Reversed, 16.0), (Schedule::InOrder, 32.0)] {
            let mut case = Case::new(schedule);
            for warp in 0..4 {
                case.products.fence(warp, &group(WGMMA).collective).unwrap();
                assert_eq!(case.issue(warp).unwrap().woken, []);
            }
            assert!(case.d.iter().flatten().all(|d| d.is_nan()), "in flight");
            // B is overwritten too early.
            case.shared[4096..].copy_from_slice(&[0, 0x40].repeat(8 * 32));
            assert_eq!(case.wait(2), Some(1));
            assert_eq!(case.d[64..96], [[expected; 4]; 32], "{schedule:?}");
            assert!(
                case.d[..64].iter().flatten().all(|d| d.is_nan()),
                "each warp has its own wait"
            );
            assert_eq!([0, 1, 3].map(|warp| case.wait(warp)), [Some(1); 3]);
            assert_eq!(case.d, [[expected; 4]; 128]);
            assert_eq!(
                (0..128).try_for_each(|thread| case.products.exit(thread)),
                Ok(())
            );
        }
    }

    #[test]
    fn who_waits_goes_on_when_the_last_warp_has_issued() {
        let mut case = Case::new(Schedule::InOrder);
        (0..4).for_each(|warp| case.products.fence(warp, &group(WGMMA).collective).unwrap());
        case.issue(0).unwrap();
        assert_eq!(case.wait(0), None);
        assert_eq!(
            (case.issue(3).unwrap().woken, case.issue(1).unwrap().woken),
            (vec![], vec![])
        );
        assert_eq!(case.issue(2).unwrap().woken, [(0, 1)]);
        assert_eq!(case.d[..32], [[16.0; 4]; 32]);
        assert_eq!(case.products.held(0), 0..0);
        let held = case
            .products
            .touched(33, case.products.held(33), false)
            .unwrap();
        assert!(matches!(held.why, Why::NotCommitted) && !held.is_fragment);
        assert!(case.products.exit(33).is_err());
        assert!(case.issue(0).is_err(), "without a fence");
    }
}
