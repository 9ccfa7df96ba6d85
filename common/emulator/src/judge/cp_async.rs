use std::ops::Range;

use super::clocks::Signal;
use super::copies::Copy;
use super::hint::{CopyHint, Hint};
use super::operation::{Bytes, Written};
use super::order::Actor;
use super::{Content, Direction, HazardKind, How, Judge, Operation, Side, Space, Stop};

impl Judge {
    pub(super) fn report_copy(&mut self, bytes: Range<usize>, copy: Copy, operation: Operation) {
        let (kind, hint) = if operation.how.is_write() {
            (HazardKind::Race, CopyHint::BufferInUse)
        } else {
            let reason = self.copies.why_under_way(&copy, operation.actor);
            (HazardKind::ReadInFlight, reason)
        };
        let first = Side {
            actor: Actor::Thread(copy.thread),
            how: How::CopyWrite,
            site: copy.site,
        };
        let end = bytes.end.min(copy.bytes().end);
        let shared = Bytes::shared(bytes.start..end);
        self.report_pair(kind, first, operation.side(), shared, Hint::Copy(hint));
    }

    pub(super) fn report_copy_source(&mut self, place: u32, copy: Copy, operation: Operation) {
        let first = Side {
            actor: Actor::Thread(copy.thread),
            how: How::CopyRead,
            site: copy.site,
        };
        self.report_pair(
            HazardKind::Race,
            first,
            operation.side(),
            Bytes::global(place, 1),
            Hint::Copy(CopyHint::SourceInUse),
        );
    }

    /// Judges a copy as it is issued. Returns its tag, for [`Judge::landed`].
    pub(crate) fn issue(
        &mut self,
        thread: u32,
        destination: usize,
        source: usize,
        bytes: usize,
        read_bytes: usize,
        site: u32,
    ) -> Result<u32, Stop> {
        let (warp, lane) = (thread as usize / 32, thread % 32);
        let actor = Actor::Thread(thread);
        let read = Operation::new(actor, How::CopyRead, site);
        let write = Operation::new(actor, How::CopyWrite, site);
        let mut from = 0..0;
        if read_bytes > 0
            && let Some(accessed) = self.place(source, read_bytes, read)?
        {
            let Bytes {
                space,
                start: place,
                count,
            } = accessed;
            if space == Space::Global {
                from = place..place + count;
            }
            if self.touch(space, place, read_bytes, read) {
                self.outcome.counters.async_copy_bytes += u64::from(count);
                self.requests[warp].add(lane, site, space, Direction::Read, place, count);
            }
        }
        let offset = destination - self.setup().cluster.start;
        self.touch_shared(offset, bytes, write);
        self.requests[warp].add(
            lane,
            site,
            Space::Shared,
            Direction::AsyncWrite,
            offset as u32,
            bytes as u32,
        );
        self.order.issue_copy(thread);
        let copy = Copy::new(thread, site, offset..offset + bytes, from);
        Ok(self.copies.issue(copy))
    }

    pub(crate) fn commit(&mut self, thread: u32) {
        self.copies.commit(thread);
    }

    /// Makes all in-flight copies of a thread arrive at the mbarrier of `signal`.
    pub(crate) fn arrive_after_copies(&mut self, thread: u32, site: u32, signal: &mut Signal) {
        self.outcome.counters.mbarrier_arrivals += 1;
        self.copies.arrive(thread, site);
        signal.step = signal.step.max(self.deeds.step(thread));
        self.order.release_before_copies(thread, signal);
    }

    /// Lands a copy, by the wait of its thread or as the end of its phase is first observed.
    pub(crate) fn landed(&mut self, tag: u32) {
        let copy = self.copies.land(tag);
        let (actor, event, number) = match copy.arrives {
            None => {
                let event = self.order.event(copy.thread, copy.site, How::CopyWrite);
                (Actor::Thread(copy.thread), event, self.order.fences())
            }
            Some(_) => {
                let event = self.order.landing(copy.thread, copy.number, copy.site);
                (Actor::Copies(copy.thread), event, copy.number)
            }
        };
        let written = Written::new(actor, How::CopyWrite, number, copy.site);
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

    /// Notes a thread's wait, which covers its first `covered` copies; they have landed.
    pub(crate) fn waited(&mut self, thread: u32, newest: u32, covered: Option<u64>, site: u32) {
        self.copies.waited(thread, newest, site);
        if let Some(count) = covered {
            self.order.wait_for_copies(thread, count as u32);
        }
    }
}
