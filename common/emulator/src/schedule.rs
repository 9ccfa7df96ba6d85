use std::fmt;

use crate::cluster::MAX_TOGETHER;

/// The order in which threads run. A correct kernel gives the same bits under all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Lowest lane first; a warp runs until all its lanes wait, then the next warp.
    InOrder,
    /// Highest lane of the highest warp first, else as [`Schedule::InOrder`].
    Reversed,
    /// Any ready warp and lane, drawn anew at every switch; the same seed gives the same run.
    Shuffled(u64),
    /// Like [`Schedule::InOrder`], but one warp, chosen by the seed and the block and never the
    /// first of its block, runs only when no other one can.
    Starving(u64),
    /// Like [`Schedule::InOrder`], but at some choice points the warp whose turn it is gives way.
    Delayed(Delays),
}

/// Choice points at which the warp whose turn it is gives way to the next one: as often as the point
/// is named, once for each of the next ones.
///
/// A choice point is where a warp would go on that has waited or met its own lanes, and another one
/// could, too. They are numbered from 0 in each block, or cluster.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Delays {
    at: [u32; Self::MOST],
    count: usize,
}

impl Delays {
    pub const MOST: usize = 4;

    /// Returns these delays with one more, not before the last; none if there are as many as can be.
    #[must_use]
    pub fn and(self, point: u32) -> Option<Self> {
        let mut more = self;
        *more.at.get_mut(self.count)? = point;
        more.count += 1;
        Some(more)
    }

    pub fn points(&self) -> &[u32] {
        &self.at[..self.count]
    }

    fn at(&self, point: u32) -> usize {
        self.points().iter().filter(|&&it| it == point).count()
    }
}

impl fmt::Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.points()).finish()
    }
}

impl Schedule {
    pub(crate) fn acts_at_issue(self) -> bool {
        self == Self::Reversed
    }

    pub(crate) fn leader(self) -> u32 {
        match self {
            Self::InOrder | Self::Starving(_) | Self::Delayed(_) => 0,
            Self::Reversed => 31,
            Self::Shuffled(seed) => (Random::new(seed).next() & 1) as u32 * 31,
        }
    }

    pub(crate) fn layout_seed(self) -> u64 {
        match self {
            Self::InOrder | Self::Delayed(_) => 1,
            Self::Reversed => 2,
            Self::Shuffled(seed) => Random::new(seed).next().wrapping_add(3),
            Self::Starving(seed) => Random::new(!seed).next().wrapping_add(3),
        }
    }
}

/// SplitMix64: enough randomness for picking, and independent of a library's version.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Draws a set bit of `mask`, which is not 0. Bits behind a gap are likelier, so that of few
    /// warps the first runs far ahead of the others: that shows phases that end before a waiter
    /// looks again.
    fn bit(&mut self, mask: u64) -> u32 {
        let width = if mask >> 32 == 0 { 32 } else { 64 };
        let from = (self.next() >> 32) as u32 % width;
        match mask >> from {
            0 => mask.trailing_zeros(),
            rest => from + rest.trailing_zeros(),
        }
    }
}

const WARPS: u32 = MAX_TOGETHER / 32;

/// Returns the first warp of a set from `start` on, in a ring.
fn next_of(warps: u64, start: u32) -> u32 {
    (start + warps.rotate_right(start).trailing_zeros()) % WARPS
}

#[derive(Debug)]
pub(crate) struct Ready {
    schedule: Schedule,
    random: Random,
    lanes: [u32; WARPS as usize],
    warps: u64,
    current: u32,
    starved: u64,
    /// The warps that have become ready since they last ran.
    fresh: u64,
    choice_points: u32,
}

impl Ready {
    /// Starts with no thread ready. `block` varies shuffling and starving from block to block. Each
    /// of the `blocks` that run together has `warps` warps.
    pub(crate) fn new(schedule: Schedule, block: u64, blocks: u32, warps: u32) -> Self {
        let seed = match schedule {
            Schedule::Shuffled(seed) | Schedule::Starving(seed) => seed,
            Schedule::InOrder | Schedule::Reversed | Schedule::Delayed(_) => 0,
        };
        let mut random = Random::new(Random::new(seed).next() ^ block);
        let starved = match schedule {
            Schedule::Starving(_) if warps > 1 => {
                let mut draw = |below: u32| (random.next() % u64::from(below)) as u32;
                let rank = draw(blocks);
                1 << (rank * warps + 1 + draw(warps - 1))
            }
            _ => 0,
        };
        let current = if schedule == Schedule::Reversed {
            WARPS - 1
        } else {
            0
        };
        Self {
            schedule,
            random,
            lanes: [0; WARPS as usize],
            warps: 0,
            current,
            starved,
            fresh: 0,
            choice_points: 0,
        }
    }

    /// Returns the number of choice points so far; 0 unless warps may be delayed.
    pub(crate) fn choice_points(&self) -> u32 {
        self.choice_points
    }

    pub(crate) fn insert(&mut self, warp: u32, mask: u32) {
        if mask != 0 {
            if self.lanes[warp as usize] == 0 {
                self.fresh |= 1 << warp;
            }
            self.lanes[warp as usize] |= mask;
            self.warps |= 1 << warp;
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.warps == 0 {
            return None;
        }
        let (warp, lane) = match self.schedule {
            Schedule::InOrder | Schedule::Starving(_) => {
                let mut candidates = self.warps & !self.starved;
                if candidates == 0 {
                    candidates = self.starved;
                }
                self.current = next_of(candidates, self.current);
                let ready = self.lanes[self.current as usize];
                (self.current, ready.trailing_zeros())
            }
            Schedule::Delayed(delays) => {
                self.current = self.undelayed(delays);
                let ready = self.lanes[self.current as usize];
                (self.current, ready.trailing_zeros())
            }
            Schedule::Reversed => {
                if self.warps >> self.current & 1 == 0 {
                    let turn = WARPS - 1 - self.current;
                    let below = self.warps.rotate_left(turn).leading_zeros();
                    self.current = self.current.wrapping_sub(below) % WARPS;
                }
                let ready = self.lanes[self.current as usize];
                (self.current, 31 - ready.leading_zeros())
            }
            Schedule::Shuffled(_) => {
                let warp = self.random.bit(self.warps);
                let ready = self.lanes[warp as usize];
                (warp, self.random.bit(ready.into()))
            }
        };
        let lanes = &mut self.lanes[warp as usize];
        *lanes &= !(1 << lane);
        if *lanes == 0 {
            self.warps &= !(1 << warp);
        }
        Some(warp * 32 + lane)
    }

    /// Returns the warp that runs next: the one whose turn it is, or one behind it for each delay.
    fn undelayed(&mut self, delays: Delays) -> u32 {
        let mut warp = next_of(self.warps, self.current);
        if self.fresh >> warp & 1 == 1 && self.warps.count_ones() > 1 {
            for _ in 0..delays.at(self.choice_points) {
                warp = next_of(self.warps, (warp + 1) % WARPS);
            }
            self.choice_points += 1;
        }
        self.fresh &= !(1 << warp);
        warp
    }

    /// Returns whether the thread that completes a rendezvous goes on at once: not under the
    /// shuffled schedule, where it is one of many, nor where it may be starved.
    pub(crate) fn completer_goes_on(&self) -> bool {
        matches!(self.schedule, Schedule::InOrder | Schedule::Reversed)
    }
}

#[cfg(test)]
mod tests;
