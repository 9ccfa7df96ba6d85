//! The mbarrier objects of one block. A wait names a phase by its parity, so it can tell the
//! present phase from the one before and from no other. Two phases that end unobserved would be
//! taken for none at all; that is how an arrival too many shows.

use std::collections::VecDeque;
use std::fmt;

use crate::judge::clocks::{Agent, Signal};
use crate::site::Site;
use crate::tma::{Incoming, Origin};

/// The largest count of `mbarrier.init` (PTX ISA, "Contents of the mbarrier object": 1 to 2^20 -
/// 1).
const MAX_ARRIVALS: i32 = (1 << 20) - 1;

/// The largest count of bytes, expected or brought, of either sign ("Tx-count").
const MAX_BYTES: i64 = (1 << 20) - 1;

#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) signal: Signal,
    /// The threads whose copies arrived, and how many each had issued by then.
    pub(crate) copies: Vec<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct Mbarrier {
    offset: usize,
    init: Site,
    expected: u32,
    pending: u32,
    phase: u64,
    is_observed: bool,
    arriving: Arrivals,
    ended: Arrivals,
    bytes: Bytes,
    /// The initialising thread, and whether it has published the object to TMA.
    maker: u32,
    is_fenced: bool,
    /// The arrivals of the maker's warp at the cluster's barrier by then.
    fenced_after: u64,
    /// The judge's agents for what comes here, by [`Origin`].
    pub(crate) agents: [Option<Agent>; 2],
}

/// The bytes of the present phase. Boxes land in the order in which they were issued.
#[derive(Debug, Default)]
struct Bytes {
    expected: i64,
    brought: i64,
    /// The bytes expected, but not landed; negative where bytes have come before they were
    /// expected.
    pending: i64,
    under_way: VecDeque<Incoming>,
    /// The bytes of all that is under way.
    bytes_under_way: i64,
    /// The transfers issued, for each [`Origin`].
    issued: [u32; 2],
    /// The transfers landed when the last phase ended.
    ended: [u32; 2],
    /// The transfers of those that a thread knows of.
    observed: [u32; 2],
    last: Option<Incoming>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misuse(pub(crate) String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Ended,
    Present(u64),
}

impl Mbarrier {
    /// Returns the arrivals of the present phase, for those who add to it.
    pub(crate) fn arriving(&mut self) -> &mut Arrivals {
        &mut self.arriving
    }

    /// Returns the arrivals of the phase that has ended, for those who observe it; none before the
    /// first end.
    pub(crate) fn ended(&mut self) -> &mut Arrivals {
        &mut self.ended
    }

    pub(crate) fn arrive(&mut self) -> Result<bool, Misuse> {
        if self.pending == 0 {
            return Err(Misuse(format!(
                "all {} arrivals of phase {} have come, and it waits for bytes ({}): its end must \
                 be observed before who arrives in the next one does so",
                self.expected, self.phase, self.bytes
            )));
        }
        self.pending -= 1;
        self.try_end()
    }

    pub(crate) fn expect(&mut self, bytes: i32) -> Result<(), Misuse> {
        if bytes < 0 || self.bytes.expected + i64::from(bytes) > MAX_BYTES {
            let before = self.bytes.expected;
            return Err(Misuse(format!(
                "it expects {bytes} bytes after {before} in the same phase, and 0 to {MAX_BYTES} \
                 are possible in all"
            )));
        }
        self.bytes.expected += i64::from(bytes);
        self.bytes.pending += i64::from(bytes);
        Ok(())
    }

    pub(crate) fn issue(&mut self, transfer: Incoming) -> Result<(), Misuse> {
        self.bytes.brought += transfer.bytes() as i64;
        if self.bytes.brought - self.bytes.expected > MAX_BYTES {
            return Err(Misuse(format!(
                "more than {MAX_BYTES} bytes come to it that nobody has expected ({})",
                self.bytes
            )));
        }
        self.bytes.issued[transfer.origin() as usize] += 1;
        self.bytes.last = Some(transfer);
        self.bytes.under_way.push_back(transfer);
        self.bytes.bytes_under_way += transfer.bytes() as i64;
        Ok(())
    }

    /// Returns the number of the last transfer issued by `origin`, from 1.
    pub(crate) fn issued(&self, origin: Origin) -> u32 {
        self.bytes.issued[origin as usize]
    }

    pub(crate) fn observe_bytes(&mut self) -> [u32; 2] {
        self.bytes.observed = self.bytes.ended;
        self.bytes.ended
    }

    /// Returns whether only bytes under way keep the present phase from its end.
    pub(crate) fn can_end(&self) -> bool {
        self.pending == 0 && self.bytes.can_land()
    }

    /// Lands what keeps the phase from its end, or `all` under way. Returns whether the phase ends.
    pub(crate) fn land(
        &mut self,
        all: bool,
        mut landed: impl FnMut(&Incoming),
    ) -> Result<bool, Misuse> {
        while all || self.bytes.pending != 0 {
            let Some(next) = self.bytes.under_way.pop_front() else {
                break;
            };
            landed(&next);
            self.bytes.pending -= next.bytes() as i64;
            self.bytes.bytes_under_way -= next.bytes() as i64;
        }
        self.try_end()
    }

    pub(crate) fn fence(&mut self, thread: u32, arrivals: u64) {
        if self.maker == thread && !self.is_fenced {
            (self.is_fenced, self.fenced_after) = (true, arrivals);
        }
    }

    /// Returns whether who has waited so often for the cluster knows of it.
    pub(crate) fn is_known_after(&self, waits: u64) -> bool {
        self.is_fenced && waits > self.fenced_after
    }

    /// Ends the phase if nothing is missing. Returns whether it does.
    fn try_end(&mut self) -> Result<bool, Misuse> {
        if self.pending > 0 || self.bytes.pending != 0 {
            return Ok(false);
        }
        if self.phase > 0 && !self.is_observed {
            return Err(Misuse(format!(
                "it ends phase {}, while no thread has observed the end of phase {}: a wait takes \
                 one for the other by its parity. Either more threads arrive than the {} that \
                 mbarrier_init at {} expects, or nobody waits for each phase",
                self.phase,
                self.phase - 1,
                self.expected,
                self.init.place()
            )));
        }
        self.phase += 1;
        self.pending = self.expected;
        self.is_observed = false;
        self.ended = std::mem::take(&mut self.arriving);
        self.bytes.start_phase();
        Ok(true)
    }

    pub(crate) fn look(&mut self, parity: i32, since: Option<u64>) -> Result<Seen, Misuse> {
        if !(0..=1).contains(&parity) {
            return Err(Misuse(format!(
                "it waits for parity {parity}, and a phase has parity 0 or 1: pass phase & 1"
            )));
        }
        if let Some(awaited) = since
            && self.phase > awaited + 1
        {
            return Err(Misuse(format!(
                "phase {awaited}, for which it waits, has ended and phase {} as well, before this \
                 thread looked again: it can't tell them apart by parity. Whoever ends the next \
                 phase must first wait until all that wait for this one have gone on",
                awaited + 1
            )));
        }
        if self.phase & 1 == parity as u64 {
            return Ok(Seen::Present(self.phase));
        }
        self.is_observed = true;
        Ok(Seen::Ended)
    }
}

impl fmt::Display for Mbarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            phase,
            expected,
            pending,
            ..
        } = self;
        write!(
            f,
            "the mbarrier at byte {offset}: phase {phase}, parity {}, has {} of {expected} \
             arrivals",
            phase & 1,
            expected - pending
        )?;
        if self.bytes.expected == 0 && self.bytes.brought == 0 {
            return Ok(());
        }
        write!(f, ", {}", self.bytes)
    }
}

impl Bytes {
    /// Returns whether the first of what is under way brings just the bytes that are waited for. Of
    /// thousands of small stores most are known to bring too little without a look at each.
    fn can_land(&self) -> bool {
        if !(0..=self.bytes_under_way).contains(&self.pending) {
            return false;
        }
        let mut left = self.pending;
        for next in &self.under_way {
            if left <= 0 {
                break;
            }
            left -= next.bytes() as i64;
        }
        left == 0
    }

    /// Forgets what the last phase expected. Transfers that are still under way belong to the next
    /// one.
    fn start_phase(&mut self) {
        self.expected = 0;
        self.brought = 0;
        self.ended = self.issued;
        for transfer in &self.under_way {
            self.brought += transfer.bytes() as i64;
            self.ended[transfer.origin() as usize] -= 1;
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes expected by mbarrier_arrive_expect_tx, {} brought",
            self.expected, self.brought
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct Mbarriers(Vec<Mbarrier>);

impl Mbarriers {
    pub(crate) fn init(
        &mut self,
        offset: usize,
        arrivals: i32,
        maker: u32,
        init: Site,
    ) -> Result<(), Misuse> {
        if !(1..=MAX_ARRIVALS).contains(&arrivals) {
            return Err(Misuse(format!(
                "it asks for {arrivals} arrivals a phase, and 1 to {MAX_ARRIVALS} are possible"
            )));
        }
        if let Ok(known) = self.get(offset) {
            return Err(Misuse(format!(
                "it is initialised already, at {}: one thread does that, once",
                known.init.place()
            )));
        }
        let expected = arrivals as u32;
        self.0.push(Mbarrier {
            offset,
            init,
            expected,
            pending: expected,
            phase: 0,
            is_observed: false,
            arriving: Arrivals::default(),
            ended: Arrivals::default(),
            bytes: Bytes::default(),
            maker,
            is_fenced: false,
            fenced_after: 0,
            agents: [None; 2],
        });
        Ok(())
    }

    pub(crate) fn fence(&mut self, thread: u32, arrivals: u64) {
        for object in &mut self.0 {
            object.fence(thread, arrivals);
        }
    }

    pub(crate) fn get_for_tma(&mut self, offset: usize) -> Result<&mut Mbarrier, Misuse> {
        let object = self.get(offset)?;
        if !object.is_fenced {
            return Err(Misuse(format!(
                "TMA does not know of it: the thread that initialised it, at {}, calls \
                 fence_mbarrier_init() after that, and before the __syncthreads() that comes \
                 before the first tma_load",
                object.init.place()
            )));
        }
        Ok(object)
    }

    pub(crate) fn count_bytes(&self) -> bool {
        self.0
            .iter()
            .any(|object| object.bytes.issued != [0, 0] || object.bytes.expected > 0)
    }

    /// Returns a transfer whose phase's end nobody has observed, and the object's offset.
    pub(crate) fn unobserved(&self) -> Option<(usize, Incoming)> {
        let object = self
            .0
            .iter()
            .find(|object| object.bytes.issued != object.bytes.observed)?;
        Some((object.offset, object.bytes.last?))
    }

    pub(crate) fn get(&mut self, offset: usize) -> Result<&mut Mbarrier, Misuse> {
        let object = self.0.iter_mut().find(|object| object.offset == offset);
        object.ok_or_else(|| {
            let reason = "it is not initialised yet: one thread calls mbarrier_init, and a \
                          __syncthreads() stands between that and every use";
            Misuse(reason.to_owned())
        })
    }

    pub(crate) fn describe(&self, offset: usize) -> String {
        self.0
            .iter()
            .find(|object| object.offset == offset)
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbarrier(arrivals: i32) -> Mbarrier {
        let mut objects = Mbarriers::default();
        objects
            .init(64, arrivals, 0, Site::new(c"kernel.cu", 3))
            .unwrap();
        objects.0.pop().unwrap()
    }

    #[test]
    fn a_phase_ends_with_its_last_arrival_and_parities_alternate() {
        let mut object = mbarrier(2);
        assert_eq!(
            object.look(1, None),
            Ok(Seen::Ended),
            "the phase before the first counts as ended"
        );
        for phase in 0..4u64 {
            let parity = (phase & 1) as i32;
            assert_eq!(object.look(parity, None), Ok(Seen::Present(phase)));
            assert_eq!(object.arrive(), Ok(false));
            assert_eq!(object.arrive(), Ok(true));
            assert_eq!(object.look(parity, Some(phase)), Ok(Seen::Ended));
        }
    }

    #[test]
    fn its_maker_publishes_it_to_those_who_wait_for_the_cluster_afterwards() {
        let mut object = mbarrier(1);
        object.fence(1, 0);
        assert!(!object.is_known_after(9));
        object.fence(0, 2);
        object.fence(0, 5);
        assert_eq!(
            [2, 3].map(|waits| object.is_known_after(waits)),
            [false, true]
        );
    }

    #[test]
    fn phases_that_nobody_saw_are_a_misuse() {
        let mut object = mbarrier(1);
        assert_eq!(object.look(1, None), Ok(Seen::Ended));
        assert_eq!(
            object.arrive(),
            Ok(true),
            "the last phase of a kernel may stay unseen"
        );
        assert!(object.arrive().is_err());
    }
}
