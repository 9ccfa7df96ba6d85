//! wgmma: products of whole warpgroups that run asynchronously until a wait covers them.
//!
//! A product is one operation of four warps. Each issues it and goes on, but it can't run before all four have issued it.
//! Under some schedules it then runs at once, under others as late as the first wait that covers it, on what shared memory
//! holds by then. In between a thread's accumulators are poison; it gets them back at its own wait that covers the product
//! and names them, since the compiler may read what a wait does not name before it.

mod multiply;
mod operand;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;

use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::judge::held::{Held, Why};
use crate::schedule::{Random, Schedule};
use crate::site::Site;
use crate::warp::{Collective, Group, party};
use multiply::{Fragment, Slabs};
use operand::{CHUNK, Descriptor, Element, Form, ROWS};

const WARPS: u32 = 4;

/// Content of accumulators in flight: a signalling NaN, which no operation leaves as it is.
const POISON: u32 = 0x7fa5_5a5a;

const NAMED: usize = 4;

/// `EmulatorWgmma` of emulator/wgmma.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    d: *mut f32,
    a: *const [u32; 4],
    a_descriptor: u64,
    b_descriptor: u64,
    columns: u32,
    /// `EmulatorElement`.
    element: u32,
    transposed_b: u32,
    accumulate: u32,
}

/// `EmulatorRegisters` of emulator/wgmma.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    address: [usize; NAMED],
    bytes: [usize; NAMED],
}

impl Named {
    fn holds(&self, range: &Range<usize>) -> bool {
        let within = |(&address, &bytes): (&usize, &usize)| {
            address <= range.start && range.end <= address + bytes
        };
        self.address.iter().zip(&self.bytes).any(within)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    a: Option<Descriptor>,
    b: Descriptor,
    element: Element,
    columns: usize,
    along_n: bool,
    accumulate: bool,
}

impl Shape {
    fn new(operands: &Operands) -> Result<Self, String> {
        let of = |name: char, bits| {
            Descriptor::decode(bits).map_err(|reason| format!("{name}: {reason}"))
        };
        Ok(Self {
            a: operands
                .a
                .is_null()
                .then(|| of('A', operands.a_descriptor))
                .transpose()?,
            b: of('B', operands.b_descriptor)?,
            element: match operands.element {
                0 => Element::F16,
                1 => Element::E4m3,
                2 => Element::Bf16,
                other => return Err(format!("element {other} is none of `EmulatorElement`")),
            },
            columns: operands.columns as usize,
            along_n: operands.transposed_b != 0,
            accumulate: operands.accumulate != 0,
        })
    }

    fn form_of_b(&self) -> Form {
        match self.along_n {
            true => Form::AlongN {
                columns: self.columns,
            },
            false => Form::AlongK { rows: self.columns },
        }
    }

    fn check(&self, declared: usize) -> Result<(), String> {
        if let Some(a) = self.a {
            a.check(Form::AlongK { rows: ROWS }, declared)
                .map_err(|reason| format!("A: {reason}"))?;
        }
        self.b
            .check(self.form_of_b(), declared)
            .map_err(|reason| format!("B: {reason}"))
    }

    /// The 16-byte chunks of the operands in shared memory.
    fn chunks(&self) -> impl Iterator<Item = usize> {
        let a = self
            .a
            .into_iter()
            .flat_map(|a| a.chunks(Form::AlongK { rows: ROWS }));
        a.chain(self.b.chunks(self.form_of_b()))
    }

    fn warp_macs(&self) -> u64 {
        (ROWS / 4 * self.columns * self.element.depth()) as u64
    }
}

#[derive(Debug)]
struct Product {
    shape: Shape,
    call: Collective,
    warp: u32,
    chain: u64,
    issued: u32,
    complete: u32,
    fragment: Option<Box<Fragment>>,
    sources: [*const [u32; 4]; 128],
    is_early: bool,
}

#[derive(Debug)]
struct Chain {
    number: u64,
    columns: usize,
    values: Vec<f32>,
    warps: [Holding; WARPS as usize],
}

#[derive(Debug)]
enum Holding {
    NotYet,
    /// Each lane's array, the number of products up to the last one on it, and its site.
    Held {
        lanes: Box<[*mut f32; 32]>,
        last: u64,
        issued: Site,
    },
    Released,
}

impl Chain {
    fn is_released(&self) -> bool {
        self.warps
            .iter()
            .all(|holding| matches!(holding, Holding::Released))
    }

    fn bytes_of(&self, array: *mut f32) -> Range<usize> {
        array as usize..array as usize + 2 * self.columns
    }
}

#[derive(Debug, Default)]
struct WarpState {
    issued: u64,
    /// Incomplete groups, oldest first: products issued when each was closed.
    groups: VecDeque<u64>,
    called: usize,
    complete: u64,
    is_fenced: bool,
    last_wait: Option<(Site, u32)>,
    /// The present wait: products that it covers, what its lanes name, and the call.
    waits: Option<(u64, Box<[Named; 32]>, Collective)>,
}

#[derive(Debug, Default)]
struct Warpgroup {
    first: u64,
    products: VecDeque<Product>,
    run: u64,
    /// What some warps have called and others have not yet, oldest first, each with the first warp that did.
    calls: VecDeque<(u32, Collective)>,
    chains: Vec<Chain>,
    next_chain: u64,
    warps: [WarpState; WARPS as usize],
}

impl Warpgroup {
    fn product(&mut self, number: u64) -> &mut Product {
        &mut self.products[(number - self.first) as usize]
    }

    fn issued_by_all(&self) -> u64 {
        self.warps.iter().map(|warp| warp.issued).min().unwrap_or(0)
    }
}

type Disagreement = (u32, Collective, String);

enum Misuse {
    Lane(u32, String),
    /// With what another warp did.
    Other(Disagreement),
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
        let mut chunks: Vec<usize> = self.shape.chunks().map(|chunk| self.base + chunk).collect();
        chunks.sort_unstable();
        let together = chunks.chunk_by(|&before, &after| before + CHUNK >= after);
        together
            .map(|chunks| chunks[0]..chunks[chunks.len() - 1] + CHUNK)
            .collect()
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
        let random = Random::new(schedule.layout_seed() ^ linear);
        let (warps, groups, slabs) = (cluster.all_threads() / 32, Vec::new(), Slabs::default());
        Self {
            block,
            warps,
            cluster,
            schedule,
            random,
            groups,
            slabs,
        }
    }

    fn start(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        let first = warp / WARPS * WARPS;
        if self.warps < first + WARPS {
            let of = format!("warps {first} to {}", first + WARPS - 1);
            let reason = format!(
                "a warpgroup is four warps of which the first is a multiple of 4, here {of}, and the block has only {} \
                 whole warps",
                self.warps
            );
            return Err(self.fault(warp, call, Misuse::Lane(0, reason)));
        }
        if self.groups.is_empty() {
            self.groups
                .resize_with(self.warps.div_ceil(WARPS) as usize, Warpgroup::default);
        }
        let group = &mut self.groups[(warp / WARPS) as usize];
        let member = &mut group.warps[(warp % WARPS) as usize];
        member.called += 1;
        let Some(&(other, first)) = group.calls.get(member.called - 1) else {
            group.calls.push_back((warp, *call));
            return Ok(());
        };
        if first.kind != call.kind || !first.site.same(call.site) {
            let rule = "the four warps of a warpgroup execute the same instructions of wgmma: one call, and not one in each \
                        branch";
            return Err(self.fault(warp, call, Misuse::Other((other, first, rule.to_owned()))));
        }
        if group.warps.iter().all(|member| member.called > 0) {
            group.calls.pop_front();
            group.warps.iter_mut().for_each(|member| member.called -= 1);
        }
        Ok(())
    }

    fn fault(&self, warp: u32, call: &Collective, misuse: Misuse) -> Fault {
        match misuse {
            Misuse::Lane(lane, reason) => Fault::InvalidCollective {
                block: self.block,
                party: party(warp * 32 + lane, call),
                reason,
            },
            Misuse::Other((other, first, rule)) => {
                let (first, second) = (party(other * 32, &first), Some(party(warp * 32, call)));
                Fault::CollectiveMismatch {
                    block: self.block,
                    first,
                    second,
                    rule,
                }
            }
        }
    }

    pub(crate) fn fence(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        self.start(warp, call)?;
        self.groups[(warp / WARPS) as usize].warps[(warp % WARPS) as usize].is_fenced = true;
        Ok(())
    }

    pub(crate) fn commit(&mut self, warp: u32, call: &Collective) -> Result<(), Fault> {
        self.start(warp, call)?;
        let state = &mut self.groups[(warp / WARPS) as usize].warps[(warp % WARPS) as usize];
        state.groups.push_back(state.issued);
        Ok(())
    }

    /// # Safety
    ///
    /// The operands are those of the warp's lanes, which stand in the call that passed them; their arrays live until the
    /// wait that gives them back, or until the block ends.
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
        // SAFETY: passed on.
        let issued = unsafe { self.add(warp, call, &lanes) };
        let (number, shape) = issued.map_err(|misuse| self.fault(warp, call, misuse))?;
        let index = (warp / WARPS) as usize;
        let all = self.groups[index].issued_by_all();
        while self.groups[index].run < all && {
            let run = self.groups[index].run;
            self.groups[index].product(run).is_early
        } {
            self.run_next(index);
        }
        let mut woken = Vec::new();
        for other in 0..WARPS {
            let waits = self.groups[index].warps[other as usize]
                .waits
                .take_if(|(covered, ..)| *covered <= all);
            if let Some((covered, named, call)) = waits {
                let other = warp / WARPS * WARPS + other;
                // SAFETY: the lanes of `other` stand at their wait.
                unsafe { self.finish(other, covered, &named) }
                    .map_err(|misuse| self.fault(other, &call, misuse))?;
                woken.push((other, covered));
            }
        }
        let base = self.cluster.base(warp * 32);
        Ok(Issued {
            number,
            shape,
            base,
            macs: shape.warp_macs(),
            woken,
        })
    }

    unsafe fn add(
        &mut self,
        warp: u32,
        call: &Collective,
        lanes: &[Operands; 32],
    ) -> Result<(u64, Shape), Misuse> {
        let first = &lanes[0];
        let same = |it: &Operands| {
            let key = |it: &Operands| {
                (
                    it.a.is_null(),
                    it.a_descriptor,
                    it.b_descriptor,
                    it.columns,
                    it.transposed_b,
                    it.accumulate,
                )
            };
            key(it) == key(first)
        };
        if let Some(lane) = lanes.iter().position(|it| !same(it)) {
            let reason =
                "its descriptors, shape and `accumulate` must be those of lane 0".to_owned();
            return Err(Misuse::Lane(lane as u32, reason));
        }
        let at_fault = |reason| Misuse::Lane(0, reason);
        let shape = Shape::new(first).map_err(at_fault)?;
        let is_early = match self.schedule {
            Schedule::InOrder | Schedule::Starving(_) => false,
            Schedule::Reversed => true,
            Schedule::Shuffled(_) => self.random.next() >> 63 == 1,
        };
        let (member, bit) = ((warp % WARPS) as usize, 1 << (warp % WARPS));
        let group = &mut self.groups[(warp / WARPS) as usize];
        let (number, is_fenced) = (group.warps[member].issued, group.warps[member].is_fenced);
        let arrays = lanes.map(|it| it.d);
        let held = held_chain(&mut group.chains, member, &arrays, shape.columns)?;
        if !is_fenced && (held.is_none() || shape.a.is_none()) {
            let what = match held {
                None => {
                    "it starts on accumulators that the thread could touch since its last wgmma_wait"
                }
                Some(_) => {
                    "it takes A from registers that the thread could touch since its last wgmma_wait"
                }
            };
            return Err(Misuse::Lane(
                0,
                format!("{what} (or its start): wgmma_fence() is missing before it"),
            ));
        }
        if number == group.first + group.products.len() as u64 {
            shape.check(self.cluster.declared).map_err(at_fault)?;
            let chain = held.unwrap_or_else(|| {
                group.next_chain += 1;
                let (number, columns) = (group.next_chain, shape.columns);
                let values = vec![0.0; ROWS * columns];
                group.chains.push(Chain {
                    number,
                    columns,
                    values,
                    warps: [const { Holding::NotYet }; WARPS as usize],
                });
                number
            });
            group.products.push_back(Product {
                shape,
                call: *call,
                warp,
                chain,
                issued: 0,
                complete: 0,
                fragment: shape.a.is_none().then(|| Box::new([[0; 4]; 128])),
                sources: [std::ptr::null(); 128],
                is_early,
            });
        }
        let product = &mut group.products[(number - group.first) as usize];
        let disagree =
            |rule: &str| Err(Misuse::Other((product.warp, product.call, rule.to_owned())));
        if product.shape != shape {
            return disagree(
                "the warps of a warpgroup issue the same products: descriptors, shape and `accumulate`",
            );
        }
        let chain = group
            .chains
            .iter_mut()
            .find(|it| it.number == product.chain)
            .expect("a product has its chain");
        let holding = &mut chain.warps[member];
        let joins = matches!(holding, Holding::NotYet) && held.is_none();
        if !joins && held != Some(product.chain) {
            return disagree(
                "the warps of a warpgroup add to the same accumulators: for one of them they are still in flight, for the \
                 other they are not",
            );
        }
        product.issued |= bit;
        *holding = Holding::Held {
            lanes: Box::new(arrays),
            last: number + 1,
            issued: call.site,
        };
        if let Some(fragment) = &mut product.fragment {
            for (lane, it) in lanes.iter().enumerate() {
                // SAFETY: the lane's array of four registers, see `issue`.
                fragment[32 * member + lane] = unsafe { it.a.read() };
                product.sources[32 * member + lane] = it.a;
            }
        }
        if joins {
            for (lane, &array) in arrays.iter().enumerate() {
                let mut index = 0;
                elements_of(member, lane, shape.columns, |at| {
                    // SAFETY: the lane's array of N / 2 accumulators, see `issue`.
                    let register = unsafe { &mut *array.add(index) };
                    chain.values[at] = *register;
                    *register = f32::from_bits(POISON);
                    index += 1;
                });
            }
        }
        group.warps[member].issued += 1;
        Ok((number, shape))
    }

    fn run_next(&mut self, index: usize) {
        let group = &mut self.groups[index];
        let product = &group.products[(group.run - group.first) as usize];
        let Shape {
            a,
            b,
            element,
            columns,
            along_n,
            accumulate,
        } = product.shape;
        let start = self.cluster.start + self.cluster.base(index as u32 * WARPS * 32);
        // SAFETY: that block's shared memory, whose threads are suspended or in this call.
        let shared =
            unsafe { std::slice::from_raw_parts(start as *const u8, self.cluster.declared) };
        match (a, &product.fragment) {
            (Some(a), _) => self.slabs.take_a(element, shared, a),
            (None, Some(fragment)) => self.slabs.take_fragment(element, fragment),
            (None, None) => unreachable!("A is in shared memory or in registers"),
        }
        self.slabs.take_b(element, shared, b, columns, along_n);
        let chain = group
            .chains
            .iter_mut()
            .find(|it| it.number == product.chain)
            .expect("a product has its chain");
        self.slabs
            .multiply(element, &mut chain.values, columns, accumulate);
        group.run += 1;
    }

    /// Waits until at most `newest` groups of a warp are in flight. If it goes on at once: the number of complete products.
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
        let group = &mut self.groups[(warp / WARPS) as usize];
        let state = &mut group.warps[(warp % WARPS) as usize];
        (state.is_fenced, state.last_wait) = (false, Some((call.site, newest as u32)));
        let older = state.groups.len().saturating_sub(newest);
        let covered = state
            .groups
            .drain(..older)
            .next_back()
            .unwrap_or(state.complete);
        if covered > group.issued_by_all() {
            group.warps[(warp % WARPS) as usize].waits = Some((covered, named, *call));
            return Ok(None);
        }
        // SAFETY: see above.
        unsafe { self.finish(warp, covered, &named) }
            .map_err(|misuse| self.fault(warp, call, misuse))?;
        Ok(Some(covered))
    }

    /// Runs what has not run yet, and gives the lanes back what is complete and named.
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
        let group = &mut self.groups[index];
        for number in std::mem::replace(&mut group.warps[member].complete, covered)..covered {
            let product = group.product(number);
            product.complete |= 1 << member;
            let Some(fragment) = &product.fragment else {
                continue;
            };
            for lane in 0..32 {
                let thread = 32 * member + lane;
                // SAFETY: as for the accumulators.
                if unsafe { product.sources[thread].read() } != fragment[thread] {
                    let reason = format!(
                        "the thread's registers of A were written, or their array has ended, while the {} at {} was in \
                         flight, which this wait covers",
                        product.call.name.text(),
                        product.call.site.place()
                    );
                    return Err(Misuse::Lane(lane as u32, reason));
                }
            }
        }
        for chain in &mut group.chains {
            let Holding::Held { lanes, last, .. } = &chain.warps[member] else {
                continue;
            };
            if *last > covered
                || !(0..32).all(|lane| named[lane].holds(&chain.bytes_of(lanes[lane])))
            {
                continue;
            }
            for (lane, array) in lanes.iter().enumerate() {
                let mut index = 0;
                let mut touched = None;
                elements_of(member, lane, chain.columns, |at| {
                    // SAFETY: the lane's array of N / 2 accumulators, which it has named just now.
                    let register = unsafe { &mut *array.add(index) };
                    if register.to_bits() != POISON {
                        touched.get_or_insert(index);
                    }
                    *register = chain.values[at];
                    index += 1;
                });
                if let Some(index) = touched {
                    let reason = format!(
                        "accumulator {index} of the thread was written while products on it were in flight: nobody reads or \
                         writes it from the first wgmma to the wgmma_wait that covers the last and names it"
                    );
                    return Err(Misuse::Lane(lane as u32, reason));
                }
            }
            chain.warps[member] = Holding::Released;
        }
        while group
            .products
            .front()
            .is_some_and(|product| product.complete == (1 << WARPS) - 1)
        {
            group.products.pop_front();
            group.first += 1;
        }
        group.chains.retain(|chain| !chain.is_released());
        Ok(())
    }

    pub(crate) fn held(&self, thread: u32) -> Range<usize> {
        let arrays = self.arrays(thread).map(|(bytes, ..)| bytes);
        arrays
            .reduce(|all, bytes| all.start.min(bytes.start)..all.end.max(bytes.end))
            .unwrap_or_default()
    }

    fn arrays(&self, thread: u32) -> impl Iterator<Item = (Range<usize>, bool, u64, Site)> {
        let (index, member, lane) = (
            (thread / 128) as usize,
            (thread / 32 % WARPS) as usize,
            thread as usize % 32,
        );
        let group = self.groups.get(index);
        let chains = group.into_iter().flat_map(move |group| {
            group
                .chains
                .iter()
                .filter_map(move |chain| match &chain.warps[member] {
                    Holding::Held {
                        lanes,
                        last,
                        issued,
                    } => Some((chain.bytes_of(lanes[lane]), false, *last, *issued)),
                    _ => None,
                })
        });
        let products = group.into_iter().flat_map(move |group| {
            (group.first..)
                .zip(&group.products)
                .filter_map(move |(number, product)| {
                    let source = product.sources[thread as usize % 128] as usize;
                    let is_held = source != 0 && product.complete >> member & 1 == 0;
                    is_held.then_some((source..source + 16, true, number + 1, product.call.site))
                })
        });
        chains.chain(products)
    }

    /// Which product holds these bytes of a thread; `write`: registers of A may be read.
    pub(crate) fn touched(&self, thread: u32, bytes: Range<usize>, write: bool) -> Option<Held> {
        let overlaps = |held: &Range<usize>| held.start < bytes.end && bytes.start < held.end;
        let mut arrays = self.arrays(thread);
        let (_, is_fragment, last, site) =
            arrays.find(|(held, is_fragment, ..)| overlaps(held) && (write || !is_fragment))?;
        let state = &self.groups[(thread / 128) as usize].warps[(thread / 32 % WARPS) as usize];
        let why = if last <= state.complete {
            Why::NotNamed
        } else if state.groups.back().is_none_or(|&issued| issued < last) {
            Why::NotCommitted
        } else {
            match state.last_wait {
                Some((wait, newest)) => Why::LeftInFlight {
                    wait: wait.number(),
                    newest,
                },
                None => Why::NotWaited,
            }
        };
        Some(Held {
            is_fragment,
            issued: site.access_number(),
            why,
        })
    }

    pub(crate) fn exit(&self, thread: u32) -> Result<(), Fault> {
        let (index, member) = ((thread / 128) as usize, (thread / 32 % WARPS) as usize);
        let Some(group) = self.groups.get(index) else {
            return Ok(());
        };
        let state = &group.warps[member];
        if state.issued == state.complete {
            return Ok(());
        }
        let product = &group.products[(state.complete - group.first) as usize];
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
            "thread {thread} has exited while the product is in flight: {missing} is missing behind it"
        );
        Err(Fault::InvalidCollective {
            block: self.block,
            party: party(thread, &product.call),
            reason,
        })
    }

    pub(crate) fn describe(&self, warp: u32) -> String {
        let group = &self.groups[(warp / WARPS) as usize];
        let Some((covered, ..)) = &group.warps[(warp % WARPS) as usize].waits else {
            return "wgmma_wait".into();
        };
        let late: Vec<String> = (warp / WARPS * WARPS..)
            .zip(&group.warps)
            .filter(|(_, state)| state.issued < *covered)
            .map(|(other, state)| format!("warp {other} has issued {}", state.issued))
            .collect();
        format!(
            "wgmma_wait, for {covered} products of the warpgroup, of which {}",
            late.join(", ")
        )
    }
}

fn held_chain(
    chains: &mut [Chain],
    member: usize,
    arrays: &[*mut f32; 32],
    columns: usize,
) -> Result<Option<u64>, Misuse> {
    for chain in chains {
        let Holding::Held { lanes, .. } = &chain.warps[member] else {
            continue;
        };
        if **lanes == *arrays && chain.columns == columns {
            return Ok(Some(chain.number));
        }
        let bytes = |array: *mut f32, columns: usize| array as usize..array as usize + 2 * columns;
        let overlap = |(&held, &new): (&*mut f32, &*mut f32)| {
            let (held, new) = (bytes(held, chain.columns), bytes(new, columns));
            held.start < new.end && new.start < held.end
        };
        if let Some(lane) = lanes.iter().zip(arrays).position(overlap) {
            let reason = format!(
                "its accumulators overlap those of a product in flight, of {} columns: a product adds to exactly the same \
                 ones, or waits",
                chain.columns
            );
            return Err(Misuse::Lane(lane as u32, reason));
        }
    }
    Ok(None)
}

/// Indices in D of a lane's accumulators, in order.
fn elements_of(member: usize, lane: usize, columns: usize, mut take: impl FnMut(usize)) {
    let first = (16 * member + lane / 4) * columns + 2 * (lane % 4);
    for eighth in (0..columns).step_by(8) {
        for row in [0, 8 * columns] {
            take(first + row + eighth);
            take(first + row + eighth + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let cluster = Cluster::one(128, range.start as usize..range.end as usize);
            let products = Products::new([0; 3], 0, cluster, schedule);
            Self {
                shared,
                d: vec![[0.0; 4]; 128],
                products,
            }
        }

        fn issue(&mut self, warp: u32) -> Result<Issued, Fault> {
            let descriptor = |start: u64| start >> 4 | 512 >> 4 << 32 | 2 << 62;
            let d = self.d.as_mut_ptr();
            let operands: [Operands; 32] = std::array::from_fn(|lane| Operands {
                // SAFETY: `d` has an array for each of the 128 threads.
                d: unsafe { d.add(32 * warp as usize + lane) }.cast(),
                a: std::ptr::null(),
                a_descriptor: descriptor(0),
                b_descriptor: descriptor(4096),
                columns: 8,
                element: 0,
                transposed_b: 0,
                accumulate: 0,
            });
            let operands = operands
                .each_ref()
                .map(|it| std::ptr::from_ref(it).cast_mut().cast());
            // SAFETY: the operands are alive, and their arrays as long as the case.
            unsafe { self.products.issue(warp, &group(WGMMA), &operands) }
        }

        fn wait(&mut self, warp: u32) -> Option<u64> {
            let named: [Named; 32] = std::array::from_fn(|lane| {
                let address = &raw const self.d[32 * warp as usize + lane];
                Named {
                    address: [address as usize, 0, 0, 0],
                    bytes: [16, 0, 0, 0],
                }
            });
            let named = named
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
            case.shared[4096..].copy_from_slice(&[0, 0x40].repeat(8 * 32)); // B is overwritten too early
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
