//! How the warps of a block spend their time.

use super::{Barrier, Flight, Kind, Span, Timeline, What};
use std::collections::HashSet;

/// The kind of work that a warp spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Issuing products; those of a warpgroup run on by themselves.
    Products,
    Exponentials,
    /// Issuing copies.
    Copies,
    Stores,
    WaitForProducts,
    /// At an mbarrier that counts copies.
    WaitForCopies,
    /// At an mbarrier at which readers arrive, or others that count no copies.
    WaitForReaders,
    /// At a barrier of several warps, or of the cluster.
    WaitAtBarriers,
    WaitForStores,
    WaitForRegisters,
}

impl Category {
    pub const ALL: [Category; 10] = [
        Category::Products,
        Category::Exponentials,
        Category::Copies,
        Category::Stores,
        Category::WaitForProducts,
        Category::WaitForCopies,
        Category::WaitForReaders,
        Category::WaitAtBarriers,
        Category::WaitForStores,
        Category::WaitForRegisters,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Category::Products => "products",
            Category::Exponentials => "exponentials",
            Category::Copies => "copies",
            Category::Stores => "stores",
            Category::WaitForProducts => "wait: products",
            Category::WaitForCopies => "wait: copies",
            Category::WaitForReaders => "wait: readers",
            Category::WaitAtBarriers => "wait: warps",
            Category::WaitForStores => "wait: stores",
            Category::WaitForRegisters => "wait: registers",
        }
    }
}

/// The part that a warp has in its block, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    Loads,
    Computes,
    /// It computes, and issues copies, too.
    Both,
    /// Neither: it left, or only waits.
    Idle,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Loads, Role::Computes, Role::Both, Role::Idle];

    pub fn name(self) -> &'static str {
        match self {
            Role::Loads => "loads",
            Role::Computes => "computes",
            Role::Both => "loads and computes",
            Role::Idle => "idle",
        }
    }
}

/// How the warps of one role spend their time, as parts of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleShare {
    pub role: Role,
    pub warps: usize,
    /// The shares, in the order of [`Category::ALL`].
    pub parts: [f64; Category::ALL.len()],
    /// The part of the time in which a product of the warp's warpgroup may be running, at most.
    pub in_flight: f64,
}

impl RoleShare {
    pub fn of(&self, category: Category) -> f64 {
        let at = Category::ALL.iter().position(|other| *other == category);
        self.parts[at.expect("all are listed")]
    }

    /// Returns the part of the time for which there is no note: arithmetic, masks, maxima.
    pub fn rest(&self) -> f64 {
        (1.0 - self.parts.iter().sum::<f64>()).max(0.0)
    }
}

/// Returns how the warps of each role spend their time from entry to end.
pub fn shares(timeline: &Timeline) -> Vec<RoleShare> {
    let flights = timeline.flights();
    let counted = copies_barriers(timeline);
    let mut shares = Vec::new();
    for role in Role::ALL {
        let warps = timeline.warps_of(role);
        if !warps.is_empty() {
            shares.push(share(timeline, role, &warps, &flights, &counted));
        }
    }
    shares
}

/// The counted deeds of the warps of one role: all there is to say where there is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub role: Role,
    pub warps: usize,
    /// Runs of copies, of products and of exponentials.
    pub copies: usize,
    pub products: usize,
    pub exponentials: usize,
    /// The exponentials during which a product of the warp's warpgroup may be running.
    pub covered: usize,
}

/// Counts what the warps of each role do.
pub fn overlaps(timeline: &Timeline) -> Vec<Overlap> {
    let flights = timeline.flights();
    let mut overlaps = Vec::new();
    for role in Role::ALL {
        let warps = timeline.warps_of(role);
        if warps.is_empty() {
            continue;
        }
        let of_role = |span: &&Span| warps.contains(&span.warp);
        let spans: Vec<&Span> = timeline.spans.iter().filter(of_role).collect();
        let count = |kind| spans.iter().filter(|span| span.kind() == kind).count();
        let is_covered = |span: &&&Span| {
            span.kind() == Kind::Exponential && flights.iter().any(|flight| flight.covers(span))
        };
        overlaps.push(Overlap {
            role,
            warps: warps.len(),
            copies: count(Kind::Copy),
            products: count(Kind::Product),
            exponentials: count(Kind::Exponential),
            covered: spans.iter().filter(is_covered).count(),
        });
    }
    overlaps
}

/// Adds up the time of these warps.
fn share(
    timeline: &Timeline,
    role: Role,
    warps: &[usize],
    flights: &[Flight],
    counted: &HashSet<Barrier>,
) -> RoleShare {
    let mut clocks = [0u64; Category::ALL.len()];
    let (mut whole, mut in_flight) = (0, 0);
    for &warp in warps {
        let mut bounds = (u64::MAX, 0);
        for span in timeline.of_warp(warp) {
            bounds = (bounds.0.min(span.begin), bounds.1.max(span.end));
            if let Some(category) = category(span, counted) {
                clocks[category as usize] += span.length();
            }
        }
        whole += bounds.1.saturating_sub(bounds.0);
        in_flight += union(flights.iter().filter(|flight| flight.warp == warp));
    }
    let part = |time: u64| time as f64 / whole.max(1) as f64;
    RoleShare {
        role,
        warps: warps.len(),
        parts: clocks.map(part),
        in_flight: part(in_flight),
    }
}

/// Returns the time in which at least one of a warp's groups is in flight.
fn union<'a>(flights: impl Iterator<Item = &'a Flight>) -> u64 {
    let (mut time, mut until) = (0, 0);
    for flight in flights {
        time += flight.end.saturating_sub(flight.begin.max(until));
        until = until.max(flight.end);
    }
    time
}

/// Returns the mbarriers that count copies.
fn copies_barriers(timeline: &Timeline) -> HashSet<Barrier> {
    let counts = |span: &&Span| {
        matches!(
            span.what,
            What::TmaLoad | What::ArriveExpectTx | What::ArriveAfterCopies
        )
    };
    let spans = timeline.spans.iter().filter(counts);
    spans.filter_map(Span::barrier).collect()
}

fn category(span: &Span, counted: &HashSet<Barrier>) -> Option<Category> {
    match span.what {
        What::MbarrierWait => {
            let is_counted = span
                .barrier()
                .is_some_and(|barrier| counted.contains(&barrier));
            Some(if is_counted {
                Category::WaitForCopies
            } else {
                Category::WaitForReaders
            })
        }
        What::NamedSync | What::ClusterWait => Some(Category::WaitAtBarriers),
        What::CpAsyncWait => Some(Category::WaitForCopies),
        What::ProductWait => Some(Category::WaitForProducts),
        What::StoreWait => Some(Category::WaitForStores),
        What::RegisterWait => Some(Category::WaitForRegisters),
        other => match other.kind() {
            Kind::Copy => Some(Category::Copies),
            Kind::Product => Some(Category::Products),
            Kind::Exponential => Some(Category::Exponentials),
            Kind::Store => Some(Category::Stores),
            Kind::Wait | Kind::Arrival | Kind::Bound => None,
        },
    }
}

impl Timeline {
    fn warps_of(&self, role: Role) -> Vec<usize> {
        let warps = 0..self.warps;
        warps.filter(|&warp| self.role(warp) == role).collect()
    }

    /// Returns what a warp is there for.
    pub fn role(&self, warp: usize) -> Role {
        let has = |kind| self.of_warp(warp).any(|span| span.kind() == kind);
        match (has(Kind::Copy), has(Kind::Product)) {
            (true, false) => Role::Loads,
            (false, true) => Role::Computes,
            (true, true) => Role::Both,
            (false, false) => Role::Idle,
        }
    }
}
