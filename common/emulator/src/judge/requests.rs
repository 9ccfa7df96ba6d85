use super::counters::{Counters, GlobalTraffic, SharedTraffic};
use crate::heap::of_list;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    AsyncWrite,
}

#[derive(Clone, Debug)]
struct Request {
    lanes: u32,
    bytes: u32,
    /// The offset of each lane in `lanes`.
    address: [u32; 32],
}

impl Request {
    fn count(&self, space: Space, direction: Direction, counters: &mut Counters) {
        if space == Space::Shared {
            let traffic = shared(&self.address, self.lanes, self.bytes);
            *shared_counter(counters, direction) += traffic;
            return;
        }
        let lanes = (0..32).filter(|lane| self.lanes >> lane & 1 == 1);
        let traffic = global(lanes.map(|lane| self.address[lane]), self.bytes);
        if direction == Direction::Read {
            counters.global_read += traffic;
        } else {
            counters.global_write += traffic;
        }
    }
}

/// The requests of one place of the program since the warp last met.
#[derive(Clone, Debug)]
struct Place {
    space: Space,
    direction: Direction,
    /// The visits of each lane.
    times: [u32; 32],
    used: usize,
    requests: Vec<Request>,
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The index in `places` of each site and direction, plus 1; 0 if there is none.
    index: Vec<u32>,
    places: Vec<Place>,
    pending: Vec<usize>,
    /// The requests that all places keep.
    kept: usize,
}

pub(crate) const KINDS: usize = 5;

impl Requests {
    /// Returns the bytes of all requests that are kept, for the next ones to be written over.
    pub(super) fn history_bytes(&self) -> usize {
        // The lists of requests have at most twice as much room as there are requests.
        of_list(&self.places) + 2 * self.kept * size_of::<Request>()
    }

    /// Adds one lane's access. Copies of more than 16 bytes count as several accesses of the
    /// largest power of two, up to 16, that divides them.
    pub(crate) fn add(
        &mut self,
        lane: u32,
        site: u32,
        space: Space,
        direction: Direction,
        address: u32,
        bytes: u32,
    ) {
        let piece = 1 << (16 | address | bytes).trailing_zeros();
        for start in (0..bytes).step_by(piece) {
            self.add_piece(lane, site, space, direction, address + start, piece as u32);
        }
    }

    #[inline]
    fn add_piece(
        &mut self,
        lane: u32,
        site: u32,
        space: Space,
        direction: Direction,
        address: u32,
        bytes: u32,
    ) {
        let kind = match (space, direction) {
            (Space::Global, Direction::Read) => 0,
            (Space::Global, _) => 1,
            (Space::Shared, Direction::Read) => 2,
            (Space::Shared, Direction::Write) => 3,
            (Space::Shared, Direction::AsyncWrite) => 4,
        };
        let key = site as usize * KINDS + kind;
        if key >= self.index.len() {
            self.index.resize(key + 1, 0);
        }
        if self.index[key] == 0 {
            self.places.push(Place {
                space,
                direction,
                times: [0; 32],
                used: 0,
                requests: Vec::new(),
            });
            self.index[key] = self.places.len() as u32;
        }
        let number = self.index[key] as usize - 1;
        let place = &mut self.places[number];
        if place.used == 0 {
            self.pending.push(number);
        }
        let time = place.times[lane as usize] as usize;
        place.times[lane as usize] += 1;
        if time == place.used {
            place.used += 1;
            match place.requests.get_mut(time) {
                Some(request) => (request.lanes, request.bytes) = (0, 0),
                None => {
                    place.requests.push(Request {
                        lanes: 0,
                        bytes: 0,
                        address: [0; 32],
                    });
                    self.kept += 1;
                }
            }
        }
        let request = &mut place.requests[time];
        request.lanes |= 1 << lane;
        request.bytes = request.bytes.max(bytes);
        request.address[lane as usize] = address;
    }

    /// Counts the pending requests, which are complete since the warp has met.
    pub(crate) fn flush(&mut self, counters: &mut Counters) {
        for number in self.pending.drain(..) {
            let place = &mut self.places[number];
            for request in &place.requests[..place.used] {
                request.count(place.space, place.direction, counters);
            }
            place.used = 0;
            place.times = [0; 32];
        }
    }
}

fn shared_counter(counters: &mut Counters, direction: Direction) -> &mut SharedTraffic {
    match direction {
        Direction::Read => &mut counters.shared_read,
        Direction::Write => &mut counters.shared_write,
        Direction::AsyncWrite => &mut counters.shared_async_write,
    }
}

fn global(addresses: impl Iterator<Item = u32>, bytes: u32) -> GlobalTraffic {
    let mut traffic = GlobalTraffic {
        requests: 1,
        ..GlobalTraffic::default()
    };
    let mut sectors: [u32; 64] = [0; 64];
    let mut count = 0;
    for address in addresses {
        traffic.bytes += u64::from(bytes);
        // At most 16 bytes touch at most two sectors.
        for sector in [address / 32, (address + bytes - 1) / 32] {
            if !sectors[..count].contains(&sector) {
                sectors[count] = sector;
                count += 1;
            }
        }
    }
    traffic.sectors = count as u64;
    traffic
}

fn shared(address: &[u32; 32], lanes: u32, bytes: u32) -> SharedTraffic {
    let lanes_per_pass = match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    };
    let mut traffic = SharedTraffic {
        requests: 1,
        ..SharedTraffic::default()
    };
    traffic.bytes = u64::from(lanes.count_ones()) * u64::from(bytes);
    for first in (0..32).step_by(lanes_per_pass) {
        let pass = (first..first + lanes_per_pass).filter(|lane| lanes >> lane & 1 == 1);
        add_pass(&mut traffic, pass.map(|lane| (address[lane], bytes)));
    }
    traffic
}

fn add_pass(traffic: &mut SharedTraffic, pieces: impl Iterator<Item = (u32, u32)>) {
    let mut words: [u32; 64] = [0; 64];
    let mut in_bank = [0u32; 32];
    let mut count = 0;
    for (address, bytes) in pieces {
        for word in address / 4..=(address + bytes - 1) / 4 {
            if !words[..count].contains(&word) {
                words[count] = word;
                count += 1;
                in_bank[word as usize % 32] += 1;
            }
        }
    }
    if count > 0 {
        traffic.wavefronts += u64::from(in_bank.into_iter().max().unwrap_or(0));
        traffic.ideal_wavefronts += 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixCount {
    Ldmatrix,
    Accumulator,
    Transposed,
}

/// Counts a warp's accesses to a matrix whose rows start at `rows`, as lists of passes.
pub(crate) fn matrix_shared(
    rows: &[u32],
    row_bytes: u32,
    element_bytes: u32,
    count: MatrixCount,
) -> SharedTraffic {
    let mut traffic = SharedTraffic {
        bytes: rows.len() as u64 * u64::from(row_bytes),
        ..SharedTraffic::default()
    };
    for eight in rows.chunks(8) {
        match count {
            MatrixCount::Ldmatrix => {
                for start in (0..row_bytes).step_by(16) {
                    let bytes = 16.min(row_bytes - start);
                    add_pass(&mut traffic, eight.iter().map(|row| (row + start, bytes)));
                }
            }
            // Lane l holds row l / 4, columns 2 (l % 4) and the next.
            MatrixCount::Accumulator => {
                for start in (0..row_bytes).step_by(8 * element_bytes as usize) {
                    traffic += accumulator_request(eight, 2 * element_bytes, |lane| {
                        (lane / 4, start + lane % 4 * 2 * element_bytes)
                    });
                }
            }
            // The same lanes, but its two elements lie in two rows of memory.
            MatrixCount::Transposed => {
                for start in (0..row_bytes).step_by(8 * element_bytes as usize) {
                    for second in 0..2 {
                        traffic += accumulator_request(eight, element_bytes, |lane| {
                            (lane % 4 * 2 + second, start + lane / 4 * element_bytes)
                        });
                    }
                }
            }
        }
    }
    if count == MatrixCount::Ldmatrix {
        // One instruction reads up to four 8x8 matrices, one per pass.
        traffic.requests = traffic.ideal_wavefronts.div_ceil(4);
    }
    traffic
}

fn accumulator_request(rows: &[u32], bytes: u32, at: impl Fn(u32) -> (u32, u32)) -> SharedTraffic {
    let mut address = [0; 32];
    let mut lanes = 0;
    for lane in 0..32 {
        let (row, offset) = at(lane);
        if let Some(start) = rows.get(row as usize) {
            address[lane as usize] = start + offset;
            lanes |= 1 << lane;
        }
    }
    SharedTraffic {
        bytes: 0,
        ..shared(&address, lanes, bytes)
    }
}

/// Counts one request, each sector once.
pub(crate) fn matrix_global(rows: &[u32], row_bytes: u32) -> GlobalTraffic {
    let mut sectors: Vec<u32> = rows
        .iter()
        .flat_map(|row| row / 32..=(row + row_bytes - 1) / 32)
        .collect();
    sectors.sort_unstable();
    sectors.dedup();
    GlobalTraffic {
        requests: 1,
        bytes: rows.len() as u64 * u64::from(row_bytes),
        sectors: sectors.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared_of(bytes: u32, address: impl Fn(u32) -> u32) -> (u64, u64) {
        let mut requests = Requests::default();
        let mut counters = Counters::default();
        (0..32).for_each(|lane| {
            requests.add(
                lane,
                3,
                Space::Shared,
                Direction::Read,
                address(lane),
                bytes,
            )
        });
        requests.flush(&mut counters);
        assert_eq!(counters.shared_read.bytes, 32 * u64::from(bytes));
        (
            counters.shared_read.wavefronts,
            counters.shared_read.ideal_wavefronts,
        )
    }

    #[test]
    fn ideal_wavefronts_are_one_two_and_four() {
        for (bytes, ideal) in [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)] {
            assert_eq!(
                shared_of(bytes, |lane| lane * bytes),
                (ideal, ideal),
                "{bytes} bytes a lane, neighbours"
            );
            assert_eq!(
                shared_of(bytes, |_| 64),
                (ideal, ideal),
                "{bytes} bytes, the same for all lanes"
            );
        }
    }

    #[test]
    fn words_of_one_bank_take_one_wavefront_each() {
        // Each `sharers` lanes read at the same place, `apart` bytes from the next ones'.
        for (bytes, sharers, apart, expected, what) in [
            (4, 1, 128, (32, 1), "a column of a 32-word matrix"),
            (4, 1, 132, (1, 1), "the same, padded by a word"),
            (4, 1, 8, (2, 1), "every other word"),
            (2, 1, 2, (1, 1), "two lanes share a word"),
            (4, 4, 128, (8, 1), "lanes that share a word take it once"),
            (
                16,
                1,
                128,
                (32, 4),
                "8 lanes of a pass, all in the same four banks",
            ),
            (16, 1, 144, (4, 4), "the same, padded by 16 bytes"),
        ] {
            let wavefronts = shared_of(bytes, |lane| lane / sharers * apart);
            assert_eq!(wavefronts, expected, "{what}");
        }
    }

    #[test]
    fn accumulators_conflict_where_their_rows_share_banks() {
        use MatrixCount::{Accumulator, Transposed};
        // Eight rows of eight elements: wavefronts and ideal ones, by hand. Between the strides
        // without a conflict and the one where all rows start in bank 0, rows overlap by their last
        // words.
        for (count, element_bytes, stride, wavefronts, ideal) in [
            (Accumulator, 4, 32, 2, 2),
            (Accumulator, 4, 128, 8, 2),
            (Accumulator, 4, 160, 2, 2),
            (Accumulator, 4, 152, 4, 2),
            (Accumulator, 2, 16, 1, 1),
            (Accumulator, 2, 128, 8, 1),
            (Accumulator, 2, 140, 2, 1),
            (Transposed, 2, 16, 2, 2),
            (Transposed, 2, 128, 8, 2),
        ] {
            let rows: Vec<u32> = (0..8).map(|row| row * stride).collect();
            let traffic = matrix_shared(&rows, 8 * element_bytes, element_bytes, count);
            assert_eq!(
                (traffic.wavefronts, traffic.ideal_wavefronts),
                (wavefronts, ideal),
                "{count:?} of {element_bytes} bytes, rows {stride} bytes apart"
            );
        }
    }

    #[test]
    fn requests_are_put_together_by_place_and_time() {
        let mut requests = Requests::default();
        let mut counters = Counters::default();
        for lane in 0..32 {
            for time in 0..3 {
                requests.add(
                    lane,
                    1,
                    Space::Global,
                    Direction::Read,
                    time * 4096 + lane * 4,
                    4,
                );
            }
            requests.add(lane, 2, Space::Global, Direction::Write, lane * 64 + 16, 16);
        }
        requests.flush(&mut counters);
        assert_eq!(
            counters.global_read,
            GlobalTraffic {
                requests: 3,
                bytes: 384,
                sectors: 12
            }
        );
        assert_eq!(
            counters.global_write,
            GlobalTraffic {
                requests: 1,
                bytes: 512,
                sectors: 32
            }
        );
        requests.add(0, 1, Space::Global, Direction::Read, 30, 4);
        requests.flush(&mut counters);
        assert_eq!(
            counters.global_read.sectors,
            12 + 2,
            "a meeting starts anew; an access over a boundary takes two"
        );
    }
}
