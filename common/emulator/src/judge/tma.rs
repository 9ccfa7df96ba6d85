use super::clocks::Agent;
use super::counters::{GlobalTraffic, SharedTraffic};
use super::operation::{Fetch, Fork, TmaBox};
use super::order::How;
use super::{Judge, Stop};
use std::ops::Range;

/// The rows of a box in global memory.
struct GlobalRows {
    traffic: GlobalTraffic,
    /// The place and bytes of the first one inside the tensor.
    first_row: Option<(u32, u32)>,
}

impl Judge {
    pub(crate) fn tma_load<Rows>(&mut self, fork: &Fork, load: TmaBox<Rows>) -> Result<(), Stop>
    where
        Rows: Iterator<Item = (usize, usize)>,
    {
        let GlobalRows { traffic, first_row } = self.rows(fork, How::TmaRead, load.rows)?;
        let range = load.offset..load.offset + load.bytes;
        self.fork_shared(fork, How::TmaWrite, range.clone());
        let fetch = Fetch {
            range,
            first_row,
            number: load.number,
        };
        self.deeds.names(fork.first, fetch.tile());
        self.fetches.push(fetch);
        // Whole rows of the banks, without conflicts.
        let wavefronts = load.bytes.div_ceil(128) as u64;
        let counters = &mut self.outcome.counters;
        counters.tma_read_bytes += traffic.bytes;
        counters.global_read += traffic;
        counters.shared_async_write += SharedTraffic {
            requests: 1,
            bytes: load.bytes as u64,
            wavefronts,
            ideal_wavefronts: wavefronts,
        };
        Ok(())
    }

    pub(crate) fn store_async(&mut self, fork: &Fork, range: Range<usize>) {
        self.outcome.counters.cluster_store_bytes += range.len() as u64;
        self.fork_shared(fork, How::StoreAsync, range.clone());
        self.fetches.push(Fetch {
            range,
            first_row: None,
            number: 0,
        });
    }

    /// Judges a store: its reads of shared memory and its writes of global memory belong to two
    /// agents, since the thread can only wait for the first. `inside`: the bytes of the box that lie
    /// in the tensor. Nothing becomes of the others, whatever they are.
    pub(crate) fn tma_store<Rows>(
        &mut self,
        thread: u32,
        [reads, writes]: [Agent; 2],
        clock: u32,
        site: u32,
        store: TmaBox<Rows>,
        inside: &[Range<usize>],
    ) -> Result<(), Stop>
    where
        Rows: Iterator<Item = (usize, usize)>,
    {
        let fork = |agent| Fork {
            agent,
            clock,
            first: thread,
            count: 1,
            site,
        };
        for part in inside {
            let range = store.offset + part.start..store.offset + part.end;
            self.fork_shared(&fork(reads), How::StoreRead, range);
        }
        let traffic = self
            .rows(&fork(writes), How::StoreWrite, store.rows)?
            .traffic;
        self.outcome.counters.tma_write_bytes += traffic.bytes;
        self.outcome.counters.global_write += traffic;
        Ok(())
    }

    /// Judges the global side of a box: one request, each sector once.
    fn rows(
        &mut self,
        fork: &Fork,
        how: How,
        rows: impl Iterator<Item = (usize, usize)>,
    ) -> Result<GlobalRows, Stop> {
        let mut traffic = GlobalTraffic {
            requests: 1,
            ..GlobalTraffic::default()
        };
        let (mut last_sector, mut first_row) = (None, None);
        for (address, bytes) in rows {
            let Some(place) = self.fork_global(fork, how, address, bytes)? else {
                continue;
            };
            first_row.get_or_insert((place, bytes as u32));
            traffic.bytes += bytes as u64;
            let first = place / 32;
            let last = (place + bytes as u32 - 1) / 32;
            traffic.sectors += u64::from(last - first + 1);
            // Rows ascend, or lie apart.
            if last_sector == Some(first) {
                traffic.sectors -= 1;
            }
            last_sector = Some(last);
        }
        Ok(GlobalRows { traffic, first_row })
    }
}
