//! Outputs in global memory: order within a block byte by byte, and what each block has touched, to
//! compare blocks. Reads of inputs are no race, and their writes are reported as such.

use std::collections::BTreeSet;
use std::ops::Range;

use super::between::Between;
use super::memory::PAGE_BYTES;
use super::order::{How, Order, Race, note};
use super::page::{Page, RunKind, Touch};

#[derive(Debug, Default)]
pub(crate) struct Global {
    /// The index of each page in `pages`, plus 1; 0 if it is untouched.
    index: Vec<u32>,
    pages: Vec<Page>,
    used: usize,
}

impl Global {
    pub(crate) fn start(&mut self, bytes: u64) {
        self.index.clear();
        self.index.resize((bytes as usize).div_ceil(PAGE_BYTES), 0);
        self.used = 0;
    }

    fn page(&mut self, number: usize) -> &mut Page {
        if self.index[number] == 0 {
            if self.used == self.pages.len() {
                self.pages.push(Page::new(0));
            }
            let page = &mut self.pages[self.used];
            page.number = number as u32;
            for kind in RunKind::ALL {
                page.touches_mut(kind).fill(Touch::NOBODY);
            }
            self.used += 1;
            self.index[number] = self.used as u32;
        }
        &mut self.pages[self.index[number] as usize - 1]
    }

    /// Enters an access. `races` gets the bytes for which it is not ordered with an event.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn touch(
        &mut self,
        order: &mut Order,
        place: u32,
        bytes: usize,
        event: u32,
        how: How,
        thread: u32,
        site: u32,
        races: &mut Vec<Race>,
    ) {
        let kind = RunKind::from(how);
        let (mut at, end) = (place as usize, place as usize + bytes);
        while at < end {
            let next = (at / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES).min(end);
            let touched = self.page(at / PAGE_BYTES);
            let range = at % PAGE_BYTES..at % PAGE_BYTES + (next - at);
            let skipped = at - place as usize;
            let race = |index, other| note(races, skipped + index, other);
            let cells = touched.cells[range.clone()].iter_mut();
            if kind == RunKind::Write {
                order.write(cells, event, race);
            } else {
                order.read(cells, event, race);
            }
            let touches = touched.touches_mut(kind)[range].iter_mut();
            for touch in touches.filter(|touch| touch.thread == 0) {
                *touch = Touch::new(thread, site);
            }
            at = next;
        }
    }

    pub(crate) fn survive(&mut self, order: &mut Order, place: u32, bytes: usize, event: u32) {
        let (mut at, end) = (place as usize, place as usize + bytes);
        while at < end {
            let next = (at / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES).min(end);
            let page = self.page(at / PAGE_BYTES);
            let cells = &mut page.cells[at % PAGE_BYTES..][..next - at];
            order.survive(cells.iter_mut(), event);
            at = next;
        }
    }

    /// Returns the sites that have written some of these bytes, by their places.
    pub(crate) fn writers(&self, bytes: Range<usize>) -> BTreeSet<u32> {
        let mut sites = BTreeSet::new();
        for page in &self.pages[..self.used] {
            let start = page.number as usize * PAGE_BYTES;
            let first = bytes.start.clamp(start, start + PAGE_BYTES);
            let end = bytes.end.clamp(start, start + PAGE_BYTES);
            sites.extend(page.writers(first - start..end - start));
        }
        sites
    }

    /// Enters what the cluster with this number in the launch has touched.
    pub(crate) fn tell(&self, cluster: u32, between: &mut Between) {
        for page in &self.pages[..self.used] {
            between.enter(cluster, page);
        }
    }
}
