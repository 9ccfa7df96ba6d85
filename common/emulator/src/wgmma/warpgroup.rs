//! The products of one warpgroup: what its four warps have issued, and what their waits cover.

use std::collections::VecDeque;
use std::ops::Range;

use crate::judge::held::{Held, Why};
use crate::site::Site;
use crate::warp::Collective;

use super::accumulators::{Chain, Holding, Named, held_chain, overlap};
use super::misuse::Misuse;
use super::multiply::Fragment;
use super::operand::WARPS;
use super::shape::{Operands, Shape};

#[derive(Debug)]
pub(super) struct Product {
    pub(super) shape: Shape,
    /// The first call of the product, and the warp that made it.
    pub(super) call: Collective,
    warp: u32,
    pub(super) chain: u64,
    complete: u32,
    pub(super) fragment: Option<Box<Fragment>>,
    sources: [*const [u32; 4]; 128],
    pub(super) is_early: bool,
}

impl Product {
    fn disagrees(&self, rule: &'static str) -> Misuse {
        Misuse::Warps {
            warp: self.warp,
            call: self.call,
            rule,
        }
    }

    /// Keeps a copy of the warp's registers of A.
    ///
    /// # Safety
    ///
    /// Each lane's `a` is an array of four registers if A is in registers.
    unsafe fn copy_fragment(&mut self, member: usize, lanes: &[Operands; 32]) {
        let Some(fragment) = &mut self.fragment else {
            return;
        };
        for (lane, operands) in lanes.iter().enumerate() {
            // SAFETY: the lane's array of four registers, as the caller vouches.
            fragment[32 * member + lane] = unsafe { operands.a.read() };
            self.sources[32 * member + lane] = operands.a;
        }
    }

    /// Refuses registers of A that have changed while the product was in flight.
    ///
    /// # Safety
    ///
    /// The arrays that the warp's lanes have passed live.
    unsafe fn check_fragment(&self, member: usize) -> Result<(), Misuse> {
        let Some(fragment) = &self.fragment else {
            return Ok(());
        };
        for lane in 0..32 {
            let thread = 32 * member + lane;
            // SAFETY: as for the accumulators.
            if unsafe { self.sources[thread].read() } != fragment[thread] {
                let reason = format!(
                    "the thread's registers of A were written, or their array has ended, while \
                     the {} at {} was in flight, which this wait covers",
                    self.call.name.text(),
                    self.call.site.place()
                );
                return Err(Misuse::of_lane(lane, reason));
            }
        }
        Ok(())
    }
}

/// A wait whose products not all warps have issued yet.
#[derive(Debug)]
pub(super) struct PendingWait {
    /// The number of products that it covers.
    pub(super) covered: u64,
    pub(super) named: Box<[Named; 32]>,
    pub(super) call: Collective,
}

#[derive(Debug, Default)]
pub(super) struct WarpState {
    pub(super) issued: u64,
    /// Incomplete groups, oldest first: products issued when each was closed.
    pub(super) groups: VecDeque<u64>,
    pub(super) called: usize,
    pub(super) complete: u64,
    pub(super) is_fenced: bool,
    /// The last wait, and the number of groups that it leaves in flight.
    pub(super) last_wait: Option<(Site, u32)>,
    pub(super) pending_wait: Option<PendingWait>,
}

impl WarpState {
    /// Returns why products up to number `last` still hold their registers.
    fn why_held(&self, last: u64) -> Why {
        if last <= self.complete {
            return Why::NotNamed;
        }
        if self.groups.back().is_none_or(|&issued| issued < last) {
            return Why::NotCommitted;
        }
        match self.last_wait {
            Some((wait, newest)) => Why::LeftInFlight {
                wait: wait.number(),
                newest,
            },
            None => Why::NotWaited,
        }
    }
}

/// Registers of one thread that a product holds.
pub(super) struct HeldArray {
    pub(super) bytes: Range<usize>,
    is_fragment: bool,
    /// The number of products up to the last one that holds them.
    last: u64,
    issued: Site,
}

/// One warp's call of a product.
pub(super) struct Part<'a> {
    pub(super) warp: u32,
    pub(super) call: &'a Collective,
    pub(super) lanes: &'a [Operands; 32],
    pub(super) shape: Shape,
    /// Whether the product runs as soon as all warps have issued it.
    pub(super) is_early: bool,
}

#[derive(Debug, Default)]
pub(super) struct Warpgroup {
    first: u64,
    products: VecDeque<Product>,
    pub(super) run: u64,
    /// The calls that not all warps have made yet, oldest first, each with the first warp that did.
    calls: VecDeque<(u32, Collective)>,
    pub(super) chains: Vec<Chain>,
    next_chain: u64,
    pub(super) warps: [WarpState; WARPS as usize],
}

impl Warpgroup {
    pub(super) fn product(&self, number: u64) -> &Product {
        &self.products[(number - self.first) as usize]
    }

    pub(super) fn issued_by_all(&self) -> u64 {
        self.warps.iter().map(|warp| warp.issued).min().unwrap_or(0)
    }

    /// Notes a warp's call, which must be the one that the other warps make.
    pub(super) fn call(&mut self, warp: u32, call: &Collective) -> Result<(), Misuse> {
        let member = &mut self.warps[(warp % WARPS) as usize];
        member.called += 1;
        let Some((first_warp, first)) = self.calls.get(member.called - 1) else {
            self.calls.push_back((warp, *call));
            return Ok(());
        };
        if first.kind != call.kind || !first.site.same(call.site) {
            return Err(Misuse::Warps {
                warp: *first_warp,
                call: *first,
                rule: "the four warps of a warpgroup execute the same instructions of wgmma: one \
                       call, and not one in each branch",
            });
        }
        if self.warps.iter().all(|state| state.called > 0) {
            self.calls.pop_front();
            for state in &mut self.warps {
                state.called -= 1;
            }
        }
        Ok(())
    }

    /// Adds a warp's part to its next product. Returns the number of the product.
    ///
    /// # Safety
    ///
    /// See [`super::Products::issue`].
    pub(super) unsafe fn add(&mut self, part: &Part<'_>, declared: usize) -> Result<u64, Misuse> {
        let member = (part.warp % WARPS) as usize;
        let arrays = part.lanes.map(|operands| operands.d);
        let held = held_chain(&self.chains, member, &arrays, part.shape.columns)?;
        let number = self.warps[member].issued;
        if !self.warps[member].is_fenced {
            check_unfenced(part.shape, held)?;
        }
        if number == self.first + self.products.len() as u64 {
            part.shape.check(declared)?;
            self.push_product(part, held);
        }
        let product = &mut self.products[(number - self.first) as usize];
        if product.shape != part.shape {
            return Err(product.disagrees(
                "the warps of a warpgroup issue the same products: descriptors, shape and \
                 `accumulate`",
            ));
        }
        let chain = chain_of(&mut self.chains, product.chain);
        let joins = matches!(chain.warps[member], Holding::NotYet) && held.is_none();
        if !joins && held != Some(product.chain) {
            return Err(product.disagrees(
                "the warps of a warpgroup add to the same accumulators: for one of them they are \
                 still in flight, for the other they are not",
            ));
        }
        // SAFETY: the caller's.
        unsafe { product.copy_fragment(member, part.lanes) };
        if joins {
            // SAFETY: the caller's.
            unsafe { chain.take(member, &arrays) };
        }
        chain.warps[member] = Holding::Held {
            lanes: Box::new(arrays),
            last: number + 1,
            issued: part.call.site,
        };
        self.warps[member].issued += 1;
        Ok(number)
    }

    /// Adds the product of which `part` is the first: to the chain that its warp holds, or to a new
    /// one.
    fn push_product(&mut self, part: &Part<'_>, held: Option<u64>) {
        let chain = held.unwrap_or_else(|| {
            self.next_chain += 1;
            self.chains
                .push(Chain::new(self.next_chain, part.shape.columns));
            self.next_chain
        });
        let mut fragment = None;
        if part.shape.a.is_none() {
            fragment = Some(Box::new([[0; 4]; 128]));
        }
        self.products.push_back(Product {
            shape: part.shape,
            call: *part.call,
            warp: part.warp,
            chain,
            complete: 0,
            fragment,
            sources: [std::ptr::null(); 128],
            is_early: part.is_early,
        });
    }

    /// Returns the next product to run and its chain.
    pub(super) fn next_to_run(&mut self) -> (&Product, &mut Chain) {
        let product = &self.products[(self.run - self.first) as usize];
        let chain = chain_of(&mut self.chains, product.chain);
        (product, chain)
    }

    /// Makes the first `covered` products, which have run, complete for a warp: gives its lanes
    /// back the accumulators that they name.
    ///
    /// # Safety
    ///
    /// See [`super::Products::wait`].
    pub(super) unsafe fn complete(
        &mut self,
        member: usize,
        covered: u64,
        named: &[Named; 32],
    ) -> Result<(), Misuse> {
        let complete = std::mem::replace(&mut self.warps[member].complete, covered);
        for number in complete..covered {
            let product = &mut self.products[(number - self.first) as usize];
            product.complete |= 1 << member;
            // SAFETY: the caller's.
            unsafe { product.check_fragment(member) }?;
        }
        for chain in &mut self.chains {
            // SAFETY: the caller's.
            unsafe { chain.give_back(member, covered, named) }?;
        }
        while let Some(product) = self.products.front()
            && product.complete == (1 << WARPS) - 1
        {
            self.products.pop_front();
            self.first += 1;
        }
        self.chains.retain(|chain| !chain.is_released());
        Ok(())
    }

    /// Returns the registers that products hold of a thread, numbered within the warpgroup.
    pub(super) fn held_arrays(&self, thread: usize) -> impl Iterator<Item = HeldArray> {
        let (member, lane) = (thread / 32, thread % 32);
        let accumulators = self
            .chains
            .iter()
            .filter_map(move |chain| match &chain.warps[member] {
                Holding::Held {
                    lanes,
                    last,
                    issued,
                } => Some(HeldArray {
                    bytes: chain.bytes_of(lanes[lane]),
                    is_fragment: false,
                    last: *last,
                    issued: *issued,
                }),
                Holding::NotYet | Holding::Released => None,
            });
        let fragments = (self.first..)
            .zip(&self.products)
            .filter_map(move |(number, product)| {
                let start = product.sources[thread] as usize;
                let is_held = start != 0 && product.complete >> member & 1 == 0;
                is_held.then(|| HeldArray {
                    bytes: start..start + 16,
                    is_fragment: true,
                    last: number + 1,
                    issued: product.call.site,
                })
            });
        accumulators.chain(fragments)
    }

    /// Returns the product that holds `bytes` of a thread, numbered within the warpgroup. Registers
    /// of A may be read.
    pub(super) fn touched(
        &self,
        thread: usize,
        bytes: &Range<usize>,
        is_write: bool,
    ) -> Option<Held> {
        let array = self
            .held_arrays(thread)
            .find(|array| overlap(&array.bytes, bytes) && (is_write || !array.is_fragment))?;
        Some(Held {
            is_fragment: array.is_fragment,
            issued: array.issued.access_number(),
            why: self.warps[thread / 32].why_held(array.last),
        })
    }
}

fn chain_of(chains: &mut [Chain], number: u64) -> &mut Chain {
    chains
        .iter_mut()
        .find(|chain| chain.number == number)
        .expect("a product has its chain")
}

/// Refuses a product, by a warp that has not fenced, on registers that the thread could touch.
fn check_unfenced(shape: Shape, held: Option<u64>) -> Result<(), Misuse> {
    let registers = if held.is_none() {
        "it starts on accumulators"
    } else if shape.a.is_none() {
        "it takes A from registers"
    } else {
        return Ok(());
    };
    let reason = format!(
        "{registers} that the thread could touch since its last wgmma_wait (or its start): \
         wgmma_fence() is missing before it"
    );
    Err(Misuse::of_lane(0, reason))
}
