//! An arrival that the end of a block may not precede.

use crate::site::Site;

/// An arrival of a thread at an mbarrier of another block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteArrival {
    pub(crate) thread: u32,
    pub(crate) rank: u32,
    pub(crate) offset: usize,
    pub(crate) site: Site,
    pub(super) clock: u32,
}
