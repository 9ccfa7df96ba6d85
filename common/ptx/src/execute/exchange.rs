//! What the lanes of a warp exchange: shuffles, votes, elections, reductions.

use std::ffi::{c_char, c_void};

use emulator::guest::{Exchange, Site, Thread, WarpCall};

use super::frame::{Election, Frame};
use crate::step::{Reduction, Shuffle, ShuffleMode, Slot, Vote, VoteMode};

#[derive(Clone, Copy)]
struct ShuffleOperand {
    /// In: this lane's value; out: that of the source lane.
    value: u32,
    lane: u32,
    clamp: u32,
    mode: ShuffleMode,
    is_in_range: bool,
}

impl ShuffleOperand {
    /// Returns the source lane by the rules of `shfl`; `None` outside of the segment.
    fn source(&self, own: u32) -> Option<u32> {
        let segment = self.clamp >> 8 & 0x1f;
        let (lane, clamp) = (self.lane & 0x1f, self.clamp & 0x1f);
        let most = own & segment | clamp & !segment;
        let least = own & segment;
        let (source, is_valid) = match self.mode {
            ShuffleMode::Up => {
                let source = own as i32 - lane as i32;
                (source, source >= most as i32)
            }
            ShuffleMode::Down => {
                let source = (own + lane) as i32;
                (source, source <= most as i32)
            }
            ShuffleMode::Butterfly => {
                let source = (own ^ lane) as i32;
                (source, source <= most as i32)
            }
            ShuffleMode::Index => {
                let source = (least | lane & !segment) as i32;
                (source, source <= most as i32)
            }
        };
        is_valid.then_some(source as u32)
    }
}

/// Returns the operand of each lane that takes part.
///
/// # Safety
/// Each such lane's operand is a `T` that nothing else refers to.
unsafe fn operands<'a, T: 'a>(
    all: *const *mut c_void,
    lanes: u32,
) -> impl Iterator<Item = (u32, &'a mut T)> {
    (0..32)
        .filter(move |lane| lanes >> lane & 1 == 1)
        // SAFETY: the caller's.
        .map(move |lane| (lane, unsafe { &mut *(*all.add(lane as usize)).cast::<T>() }))
}

unsafe extern "C" fn shuffle(
    all: *const *mut c_void,
    lanes: u32,
    at_fault: *mut u32,
) -> *const c_char {
    let mut values = [0; 32];
    // SAFETY: the operands of this function's calls are ShuffleOperands.
    for (lane, operand) in unsafe { operands::<ShuffleOperand>(all, lanes) } {
        values[lane as usize] = operand.value;
    }
    // SAFETY: likewise.
    for (lane, operand) in unsafe { operands::<ShuffleOperand>(all, lanes) } {
        let source = operand.source(lane);
        operand.is_in_range = source.is_some();
        let from = source.unwrap_or(lane);
        if lanes >> from & 1 == 0 {
            // SAFETY: the emulator passes a place for the lane.
            unsafe { *at_fault = lane };
            return c"it reads from a lane that takes no part in the shuffle (not in the mask, or exited)"
                .as_ptr();
        }
        operand.value = values[from as usize];
    }
    std::ptr::null()
}

struct VoteOperand {
    predicate: bool,
    lanes: u32,
    ballot: u32,
}

unsafe extern "C" fn vote(all: *const *mut c_void, lanes: u32, _: *mut u32) -> *const c_char {
    let mut ballot = 0;
    // SAFETY: the operands of this function's calls are VoteOperands.
    for (lane, operand) in unsafe { operands::<VoteOperand>(all, lanes) } {
        ballot |= u32::from(operand.predicate) << lane;
    }
    // SAFETY: likewise.
    for (_, operand) in unsafe { operands::<VoteOperand>(all, lanes) } {
        (operand.ballot, operand.lanes) = (ballot, lanes);
    }
    std::ptr::null()
}

#[derive(Clone, Copy)]
struct ElectOperand {
    election: Election,
    is_elected: bool,
    leader: u32,
}

unsafe extern "C" fn elect(all: *const *mut c_void, lanes: u32, _: *mut u32) -> *const c_char {
    // SAFETY: an execution runs while a thread of the block does.
    let preferred = unsafe { Thread::running() }.leader();
    // SAFETY: the operands of this function's calls are ElectOperands.
    for (lane, operand) in unsafe { operands::<ElectOperand>(all, lanes) } {
        operand.leader = match operand.election {
            Election::AsScheduled if lanes >> preferred & 1 == 1 => preferred,
            Election::AsScheduled | Election::Lowest => lanes.trailing_zeros(),
            Election::Highest => 31 - lanes.leading_zeros(),
        };
        operand.is_elected = operand.leader == lane;
    }
    std::ptr::null()
}

struct ReduxOperand {
    value: u32,
    reduction: Reduction,
}

unsafe extern "C" fn redux(all: *const *mut c_void, lanes: u32, _: *mut u32) -> *const c_char {
    let mut result: Option<u32> = None;
    // SAFETY: the operands of this function's calls are ReduxOperands.
    for (_, operand) in unsafe { operands::<ReduxOperand>(all, lanes) } {
        let value = operand.value;
        result = Some(match result {
            None => value,
            Some(sum) => reduce(operand.reduction, sum, value),
        });
    }
    // SAFETY: likewise.
    for (_, operand) in unsafe { operands::<ReduxOperand>(all, lanes) } {
        operand.value = result.unwrap_or_default();
    }
    std::ptr::null()
}

fn reduce(reduction: Reduction, a: u32, b: u32) -> u32 {
    match reduction {
        Reduction::Add => a.wrapping_add(b),
        Reduction::Min => a.min(b),
        Reduction::Max => a.max(b),
        Reduction::MinSigned => (a as i32).min(b as i32) as u32,
        Reduction::MaxSigned => (a as i32).max(b as i32) as u32,
        Reduction::And => a & b,
        Reduction::Or => a | b,
        Reduction::Xor => a ^ b,
    }
}

impl Frame<'_> {
    pub(super) fn shuffle(&self, call: &Shuffle, site: Site) {
        let mut operand = ShuffleOperand {
            value: self.get_u32(call.value),
            lane: self.get_u32(call.lane),
            clamp: self.get_u32(call.clamp),
            mode: call.mode,
            is_in_range: false,
        };
        let warp = WarpCall {
            name: c"shfl.sync",
            execute: shuffle,
            kind: Exchange::Shuffle,
            agree: [call.mode as u64, 0],
            mask: self.get_u32(call.mask),
            drops_exited: true,
        };
        // SAFETY: the operand is what `shuffle` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        self.set(call.to, operand.value.into());
        if let Some(slot) = call.is_in_range {
            self.set(slot, operand.is_in_range.into());
        }
    }

    pub(super) fn vote(&self, call: &Vote, site: Site) {
        let mut operand = VoteOperand {
            predicate: self.is_set(call.predicate) != call.is_negated,
            lanes: 0,
            ballot: 0,
        };
        let warp = WarpCall {
            name: c"vote.sync",
            execute: vote,
            kind: Exchange::Vote,
            agree: [call.mode as u64, 0],
            mask: self.get_u32(call.mask),
            drops_exited: true,
        };
        // SAFETY: the operand is what `vote` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        let VoteOperand { lanes, ballot, .. } = operand;
        let result = match call.mode {
            VoteMode::All => u64::from(ballot == lanes),
            VoteMode::Any => u64::from(ballot != 0),
            VoteMode::Uniform => u64::from(ballot == 0 || ballot == lanes),
            VoteMode::Ballot => ballot.into(),
        };
        self.set(call.to, result);
    }

    pub(super) fn elect(&self, [leader, to]: [Slot; 2], mask: Slot, site: Site) {
        let mut operand = ElectOperand {
            election: self.invocation.election,
            is_elected: false,
            leader: 0,
        };
        let warp = WarpCall {
            name: c"elect.sync",
            execute: elect,
            kind: Exchange::Vote,
            agree: [0; 2],
            mask: self.get_u32(mask),
            drops_exited: true,
        };
        // SAFETY: the operand is what `elect` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        self.set(leader, operand.leader.into());
        self.set(to, operand.is_elected.into());
    }

    pub(super) fn redux(
        &self,
        reduction: Reduction,
        to: Slot,
        [value, mask]: [Slot; 2],
        site: Site,
    ) {
        let mut operand = ReduxOperand {
            value: self.get_u32(value),
            reduction,
        };
        let warp = WarpCall {
            name: c"redux.sync",
            execute: redux,
            kind: Exchange::Shuffle,
            agree: [reduction as u64, 0],
            mask: self.get_u32(mask),
            drops_exited: true,
        };
        // SAFETY: the operand is what `redux` takes, and lives here.
        unsafe { self.thread.exchange(&warp, (&raw mut operand).cast(), site) };
        self.set(to, operand.value.into());
    }
}
