//! What each warp of one block does when: copies, products, exponentials, waits and what ended them.
//! A timeline comes from the notes that a kernel took on a GPU ([`notes`]), in clocks of its
//! multiprocessor, or from the emulator, in steps, which say in what order and not how long.

#[cfg(feature = "emulated")]
pub mod emulated;
pub mod notes;
mod share;
mod site;
mod what;

#[cfg(test)]
mod tests;

pub use share::{Category, Overlap, Role, RoleShare, overlaps, shares};
pub use site::{Site, Sources};
pub use what::{Kind, What};

use std::collections::HashMap;
use std::ops::Range;

/// The deed of a warp from one moment to another. Both are the same where it takes no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub warp: usize,
    pub what: What,
    /// Clocks or steps since the block's first.
    pub begin: u64,
    pub end: u64,
    /// The barrier's address in shared memory, of a named barrier its number, of a wait for groups
    /// how many may be in flight; 0 where there is none.
    pub argument: u32,
    pub site: Option<Site>,
    /// The tile that is copied or multiplied by, such as `K3`: tile 3 of K. Only the emulator says
    /// it, and only of TMA and of warpgroups' products.
    pub tile: Option<String>,
}

impl Span {
    pub fn kind(&self) -> Kind {
        self.what.kind()
    }

    pub fn length(&self) -> u64 {
        self.end - self.begin
    }

    /// Returns the barrier that the call is about, if it is about one.
    pub fn barrier(&self) -> Option<Barrier> {
        match self.what {
            What::TmaLoad
            | What::Arrive
            | What::ArriveAfterCopies
            | What::ArriveExpectTx
            | What::MbarrierWait => Some(Barrier::Shared(self.argument)),
            What::NamedArrive | What::NamedSync => Some(Barrier::Named(self.argument)),
            _ => None,
        }
    }
}

/// A barrier of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Barrier {
    /// An mbarrier, by its address in shared memory.
    Shared(u32),
    /// A named barrier; 0 is `__syncthreads`.
    Named(u32),
}

/// The unit of a timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// Clocks of the multiprocessor, at so many MHz if that is known.
    Clocks { mhz: Option<f64> },
    /// Steps: what comes first, not how long it takes.
    Steps,
}

/// A wait, and what ended it: indices of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub cause: usize,
    pub wait: usize,
}

/// A group of products by a warpgroup, from its first instruction to the end of the wait that
/// covers it: at most so long it took the tensor cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    pub warp: usize,
    pub begin: u64,
    pub end: u64,
    /// The tile that the first product multiplies by, if it is known.
    pub tile: Option<String>,
}

impl Flight {
    /// Returns whether the group may be running all the time of a span of its warp.
    pub fn covers(&self, span: &Span) -> bool {
        self.warp == span.warp && self.begin <= span.begin && span.end < self.end
    }
}

/// The deeds of the warps of one block.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    pub axis: Axis,
    pub warps: usize,
    /// The spans by warp, and within one by time.
    pub spans: Vec<Span>,
    /// The warps that had more to note than there was room for: their ends are missing.
    pub cut: Vec<usize>,
    /// The number of hazards that the emulator's judge has found: of a kernel that has some, the
    /// order is only what it asks for, and it may have been stopped.
    pub hazards: usize,
}

impl Timeline {
    /// Returns the last moment.
    pub fn end(&self) -> u64 {
        self.spans.iter().map(|span| span.end).max().unwrap_or(0)
    }

    /// Returns the warps by what they do: each one by itself where there is a clock; in steps,
    /// those next to each other that do the same at the same steps are together.
    pub fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for warp in 0..self.warps {
            match groups.last_mut() {
                Some(group) if self.axis == Axis::Steps && self.is_alike(group.start, warp) => {
                    group.end = warp + 1;
                }
                _ => groups.push(warp..warp + 1),
            }
        }
        groups
    }

    /// Returns whether two warps do the same at the same steps, but for arrivals, which one warp
    /// makes for others.
    fn is_alike(&self, a: usize, b: usize) -> bool {
        let shown = |warp| {
            let spans = self.of_warp(warp).filter(|span| span.end > span.begin);
            spans.map(|span| (span.what, span.begin, span.end, &span.tile))
        };
        shown(a).eq(shown(b))
    }

    /// Returns the spans of a warp.
    pub fn of_warp(&self, warp: usize) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.warp == warp)
    }

    /// Finds what ended each wait: at an mbarrier the copy or arrival, at a named barrier the warp
    /// that came last. Copies of a phase are issued before it ends and those of the next after all
    /// have seen the end, so that the last one before the end of a wait is of its phase.
    pub fn links(&self) -> Vec<Link> {
        let mut causes: HashMap<Barrier, Vec<usize>> = HashMap::new();
        for (index, span) in self.spans.iter().enumerate() {
            if let Some(barrier) = span.barrier()
                && span.what != What::MbarrierWait
            {
                causes.entry(barrier).or_default().push(index);
            }
        }
        let mut links = Vec::new();
        for (index, span) in self.spans.iter().enumerate() {
            if span.kind() != Kind::Wait {
                continue;
            }
            let Some(of_barrier) = span.barrier().and_then(|barrier| causes.get(&barrier)) else {
                continue;
            };
            let earlier = of_barrier
                .iter()
                .copied()
                .filter(|&cause| self.spans[cause].begin <= span.end);
            if let Some(cause) = earlier.max_by_key(|&cause| self.spans[cause].begin) {
                links.push(Link { cause, wait: index });
            }
        }
        links
    }

    /// Returns the groups of products of each warp, while they may have been running.
    pub fn flights(&self) -> Vec<Flight> {
        let mut flights = Vec::new();
        for warp in 0..self.warps {
            let mut first = None;
            let mut in_flight: Vec<&Span> = Vec::new();
            for span in self.of_warp(warp) {
                match span.what {
                    What::WarpgroupProduct => first = first.or(Some(span)),
                    What::ProductCommit => in_flight.extend(first.take()),
                    What::ProductWait => {
                        let ended = in_flight.len().saturating_sub(span.argument as usize);
                        for product in in_flight.drain(..ended) {
                            flights.push(Flight {
                                warp,
                                begin: product.begin,
                                end: span.end,
                                tile: product.tile.clone(),
                            });
                        }
                    }
                    _ => {}
                }
            }
        }
        flights
    }
}
