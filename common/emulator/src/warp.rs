//! The rendezvous of a warp's lanes: which arrivals belong together, and when they are complete.

use std::ffi::c_void;

use crate::fault::Party;
use crate::judge::Sync;
use crate::site::{Literal, Site};

/// `EmulatorExecute` of abi.h.
pub(crate) type Execute =
    unsafe extern "C" fn(*const *mut c_void, u32, *mut u32) -> *const std::ffi::c_char;

/// The operand of each lane in a warp-wide operation.
pub(crate) type LaneOperands = [*mut c_void; 32];

/// `EmulatorCollective` of abi.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective {
    pub(crate) name: Literal,
    pub(crate) execute: Option<Execute>,
    pub(crate) operand: *mut c_void,
    pub(crate) agree: [u64; 2],
    pub(crate) work: u64,
    pub(crate) mask: u32,
    pub(crate) rules: u32,
    pub(crate) kind: u32,
    pub(crate) site: Site,
}

/// `EmulatorRule` of abi.h.
pub(crate) const EXITED_LANES_DROP: u32 = 1;
/// `EmulatorRule` of abi.h.
pub(crate) const PLACES_MAY_DIFFER: u32 = 2;

/// `EmulatorKind` of abi.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SyncWarp,
    Shuffle,
    Vote,
    MatrixCopy,
    Mma,
    NamedSync,
    NamedArrive,
    Wgmma,
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait,
    GiveRegisters,
    TakeRegisters,
    ClusterArrive,
    ClusterArriveRelaxed,
    ClusterWait,
}

impl Kind {
    pub(crate) fn sync(self) -> Option<Sync> {
        match self {
            Self::SyncWarp => Some(Sync::WarpBarrier),
            Self::NamedSync => Some(Sync::NamedBarrier),
            Self::NamedArrive => Some(Sync::NamedArrive),
            Self::WgmmaFence => Some(Sync::WgmmaFence),
            Self::WgmmaCommit => Some(Sync::WgmmaCommit),
            Self::WgmmaWait => Some(Sync::WgmmaWait),
            Self::ClusterArrive => Some(Sync::ClusterArrive),
            Self::ClusterArriveRelaxed => Some(Sync::ClusterArriveRelaxed),
            Self::ClusterWait => Some(Sync::ClusterWait),
            Self::Shuffle | Self::Vote | Self::MatrixCopy | Self::Mma => None,
            Self::Wgmma | Self::GiveRegisters | Self::TakeRegisters => None,
        }
    }
}

impl Collective {
    #[inline]
    fn is_same_operation(&self, other: &Self) -> bool {
        let execute = self.execute.map(|function| function as usize);
        let other_execute = other.execute.map(|function| function as usize);
        self.kind == other.kind && execute == other_execute
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.kind {
            0 => Kind::SyncWarp,
            1 => Kind::Shuffle,
            2 => Kind::Vote,
            3 => Kind::MatrixCopy,
            4 => Kind::Mma,
            5 => Kind::NamedSync,
            16 => Kind::Wgmma,
            17 => Kind::WgmmaFence,
            18 => Kind::WgmmaCommit,
            19 => Kind::WgmmaWait,
            20 => Kind::GiveRegisters,
            21 => Kind::TakeRegisters,
            22 => Kind::ClusterArrive,
            23 => Kind::ClusterWait,
            24 => Kind::ClusterArriveRelaxed,
            _ => Kind::NamedArrive,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The first lane's call; the others agreed with it.
    pub(crate) collective: Collective,
    pub(crate) first_lane: u32,
    pub(crate) arrived: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    NotInMask,
    Operation { first_lane: u32 },
    Arguments { first_lane: u32 },
    Place { first_lane: u32 },
    Exited { lane: u32 },
}

#[derive(Debug)]
pub(crate) struct Warp {
    pub(crate) live: u32,
    groups: Vec<Group>,
    /// The operand of each lane, which waits in one group at a time.
    operands: LaneOperands,
}

impl Warp {
    pub(crate) fn new(lanes: u32) -> Self {
        Self {
            live: u32::MAX >> (32 - lanes),
            groups: Vec::new(),
            operands: [std::ptr::null_mut(); 32],
        }
    }

    /// Tries what suffices for nearly all arrivals: the lane joins the one waiting group, agrees
    /// with it and does not complete it. Else nothing has happened, and [`Warp::arrive`] decides.
    #[inline]
    pub(crate) fn join(&mut self, lane: u32, collective: &Collective) -> bool {
        let [group] = &mut self.groups[..] else {
            return false;
        };
        let first = &group.collective;
        let joined = group.arrived | 1 << lane;
        let joins = first.mask == collective.mask
            && collective.mask >> lane & 1 == 1
            && joined != collective.mask & self.live
            && first.is_same_operation(collective)
            && first.agree == collective.agree
            && first.site.identical(collective.site)
            && (collective.rules & EXITED_LANES_DROP != 0 || collective.mask & !self.live == 0);
        if joins {
            group.arrived = joined;
            self.operands[lane as usize] = collective.operand;
        }
        joins
    }

    /// Returns the group if the lane completes it; it is then no longer pending.
    pub(crate) fn arrive(
        &mut self,
        lane: u32,
        collective: &Collective,
    ) -> Result<Option<Group>, Mismatch> {
        let mask = collective.mask;
        if mask >> lane & 1 == 0 {
            return Err(Mismatch::NotInMask);
        }
        if collective.rules & EXITED_LANES_DROP == 0 && mask & !self.live != 0 {
            return Err(Mismatch::Exited {
                lane: (mask & !self.live).trailing_zeros(),
            });
        }
        self.operands[lane as usize] = collective.operand;
        // Only lanes with the same mask wait for each other. A group whose mask merely overlaps may
        // still complete: its missing lane can come there after it has gone through here.
        let Some(index) = self
            .groups
            .iter()
            .position(|group| group.collective.mask == mask)
        else {
            let group = Group {
                collective: *collective,
                first_lane: lane,
                arrived: 1 << lane,
            };
            if group.arrived == mask & self.live {
                return Ok(Some(group));
            }
            self.groups.push(group);
            return Ok(None);
        };
        let known = &mut self.groups[index];
        let (first, first_lane) = (&known.collective, known.first_lane);
        if !first.is_same_operation(collective) {
            return Err(Mismatch::Operation { first_lane });
        }
        if first.agree != collective.agree {
            return Err(Mismatch::Arguments { first_lane });
        }
        if collective.rules & PLACES_MAY_DIFFER == 0 && !first.site.same(collective.site) {
            return Err(Mismatch::Place { first_lane });
        }
        known.arrived |= 1 << lane;
        if known.arrived != mask & self.live {
            return Ok(None);
        }
        Ok(Some(self.groups.swap_remove(index)))
    }

    /// Ends a lane, which returns from the kernel. [`Warp::completed`] then returns the groups that
    /// this completes.
    ///
    /// # Errors
    ///
    /// A group that needs the lane.
    pub(crate) fn exit(&mut self, lane: u32) -> Result<(), Group> {
        self.live &= !(1 << lane);
        for group in &self.groups {
            let call = &group.collective;
            if call.mask >> lane & 1 == 1 && call.rules & EXITED_LANES_DROP == 0 {
                return Err(group.clone());
            }
        }
        Ok(())
    }

    pub(crate) fn completed(&mut self) -> Option<Group> {
        let index = self
            .groups
            .iter()
            .position(|group| group.arrived == group.collective.mask & self.live)?;
        Some(self.groups.swap_remove(index))
    }

    pub(crate) fn group_of(&self, lane: u32) -> Option<&Group> {
        self.groups
            .iter()
            .find(|group| group.arrived >> lane & 1 == 1)
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the operands, which are valid for the lanes that have arrived in the group at hand.
    pub(crate) fn operands(&self) -> &LaneOperands {
        &self.operands
    }
}

pub(crate) fn party(thread: u32, collective: &Collective) -> Box<Party> {
    Box::new(Party {
        thread,
        operation: collective.name.text(),
        place: collective.site.place(),
    })
}

#[cfg(test)]
pub(crate) mod tests;
