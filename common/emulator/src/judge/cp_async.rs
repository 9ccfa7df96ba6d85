use std::ops::Range;

use super::clocks::Signal;
use super::copies::Copy;
use super::operation::Written;
use super::order::Actor;
use super::{Content, Direction, HazardKind, Hint, How, Judge, Made, Side, Space, Stop};

impl Judge {
    pub(super) fn report_copy(&mut self, bytes: Range<usize>, copy: Copy, made: Made) {
        let (kind, hint) = match made.how.is_write() {
            true => (HazardKind::Race, Hint::BufferInUse),
            false => (
                HazardKind::ReadInFlight,
                self.copies.why_under_way(&copy, made.actor),
            ),
        };
        let first = Side {
            actor: Actor::Thread(copy.thread),
            how: How::CopyWrite,
            site: copy.site,
        };
        let both = bytes.end.min(copy.bytes().end) - bytes.start;
        self.found(
            kind,
            (first, Some(made.side())),
            Space::Shared,
            bytes.start as u32,
            both as u32,
            hint,
        );
    }

    pub(super) fn report_copy_source(&mut self, place: u32, copy: Copy, made: Made) {
        let first = Side {
            actor: Actor::Thread(copy.thread),
            how: How::CopyRead,
            site: copy.site,
        };
        let sides = (first, Some(made.side()));
        self.found(
            HazardKind::Race,
            sides,
            Space::Global,
            place,
            1,
            Hint::SourceInUse,
        );
    }

    /// Returns the copy's tag, for [`Judge::landed`].
    pub(crate) fn issue(
        &mut self,
        thread: u32,
        destination: usize,
        source: usize,
        bytes: usize,
        read_bytes: usize,
        site: u32,
    ) -> Result<u32, Stop> {
        let made = |how| Made::by(Actor::Thread(thread), how, site);
        let (warp, lane) = (thread as usize / 32, thread % 32);
        let source = match read_bytes {
            0 => None,
            _ => self.place(source, read_bytes, made(How::CopyRead))?,
        };
        let from = source
            .filter(|(space, _)| *space == Space::Global)
            .map_or(0..0, |(_, place)| place..place + read_bytes as u32);
        if let Some((space, place)) = source
            && self.touch(space, place, read_bytes, made(How::CopyRead))
        {
            self.outcome.counters.async_copy_bytes += read_bytes as u64;
            self.requests[warp].add(lane, site, space, Direction::Read, place, read_bytes as u32);
        }
        let offset = destination - self.setup().cluster.start;
        self.touch_shared(offset, bytes, made(How::CopyWrite));
        self.requests[warp].add(
            lane,
            site,
            Space::Shared,
            Direction::AsyncWrite,
            offset as u32,
            bytes as u32,
        );
        self.order.issue_copy(thread);
        Ok(self
            .copies
            .issue(Copy::new(thread, site, offset..offset + bytes, from)))
    }

    pub(crate) fn commit(&mut self, thread: u32) {
        self.copies.commit(thread);
    }

    /// All in-flight copies of a thread will arrive at the mbarrier of `signal`.
    pub(crate) fn arrive_after_copies(&mut self, thread: u32, site: u32, signal: &mut Signal) {
        self.outcome.counters.mbarrier_arrivals += 1;
        self.copies.arrive(thread, site);
        self.order.release_before_copies(thread, signal);
    }

    /// By the wait of its thread, or as the end of its phase is first observed.
    pub(crate) fn landed(&mut self, tag: u32) {
        let copy = self.copies.land(tag);
        let event = match copy.arrives {
            None => self.order.event(copy.thread, copy.site, How::CopyWrite),
            Some(_) => self.order.landing(copy.thread, copy.number, copy.site),
        };
        let written = Written::new(
            Actor::Thread(copy.thread),
            How::CopyWrite,
            self.order.fences(),
            copy.site,
        );
        for at in copy.bytes() {
            if self.copies.clear(at, tag) {
                self.order.land(&mut self.shared[at], event);
                self.content[at] = Content::Copied;
                self.written[at] = written;
            }
        }
    }

    pub(crate) fn release_copies(&mut self, thread: u32, issued: u64, signal: &mut Signal) {
        self.order.release_copies(thread, issued as u32, signal);
    }

    /// A thread's wait covers its first `covered` copies, which have landed.
    pub(crate) fn waited(&mut self, thread: u32, newest: u32, covered: Option<u64>, site: u32) {
        self.copies.waited(thread, newest, site);
        if let Some(covered) = covered {
            self.order.wait_for_copies(thread, covered as u32);
        }
    }
}
