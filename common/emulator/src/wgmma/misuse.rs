//! The misuse of wgmma, before it is a fault of a block.

use crate::warp::Collective;

use super::shape::ShapeError;

/// A call that wgmma does not allow.
pub(super) enum Misuse {
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
    pub(super) fn of_lane(lane: usize, reason: String) -> Self {
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
