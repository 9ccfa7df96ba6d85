//! Outputs between blocks, which nothing orders: of each byte and each kind of access, the first
//! touches of the two blocks that come first in the grid. Two are enough to find every byte for
//! which blocks race, and the memory does not grow with the number of blocks.

use std::collections::BTreeMap;

use super::memory::PAGE_BYTES;
use super::page::{Page, Run, RunKind, Touch};

/// A touch of a block, which is given by its cluster's number in the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockTouch {
    cluster: u32,
    touch: Touch,
}

const NOBODY: BlockTouch = BlockTouch {
    cluster: u32::MAX,
    touch: Touch::NOBODY,
};

/// The touches of a byte by one kind of access, those of the cluster that comes first in front.
type Firsts = [BlockTouch; 2];

#[derive(Debug)]
struct SharedPage {
    kinds: [Vec<Firsts>; RunKind::ALL.len()],
}

/// A run of a cluster, which is given by its number in the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterRun {
    pub(crate) cluster: usize,
    pub(crate) run: Run,
}

#[derive(Debug, Default)]
pub(crate) struct Between {
    pages: BTreeMap<u32, SharedPage>,
}

impl Between {
    /// The bytes of host memory for each byte of an output.
    pub(crate) const BYTES_PER_BYTE: usize = RunKind::ALL.len() * size_of::<Firsts>();

    /// Enters what a cluster has touched of a page.
    pub(super) fn enter(&mut self, cluster: u32, page: &Page) {
        let shared = self.pages.entry(page.number).or_insert_with(|| SharedPage {
            kinds: std::array::from_fn(|_| vec![[NOBODY; 2]; PAGE_BYTES]),
        });
        for (kind, firsts) in RunKind::ALL.into_iter().zip(&mut shared.kinds) {
            for (&touch, known) in page.touches(kind).iter().zip(firsts) {
                if touch != Touch::NOBODY {
                    add(known, BlockTouch { cluster, touch });
                }
            }
        }
    }

    /// Takes the runs of each page, by start, cluster and kind. Runs end where pages do.
    pub(crate) fn take_pages(&mut self) -> impl Iterator<Item = Vec<ClusterRun>> {
        let pages = std::mem::take(&mut self.pages);
        pages.into_iter().map(|(number, page)| page.runs(number))
    }
}

/// Keeps the two touches whose clusters come first. No cluster enters a byte twice.
fn add(known: &mut Firsts, new: BlockTouch) {
    if new.cluster < known[0].cluster {
        *known = [new, known[0]];
    } else if new.cluster < known[1].cluster {
        known[1] = new;
    }
}

impl SharedPage {
    fn runs(&self, number: u32) -> Vec<ClusterRun> {
        let mut runs = Vec::new();
        for (kind, firsts) in RunKind::ALL.into_iter().zip(&self.kinds) {
            let mut of_kind = Vec::new();
            for rank in 0..2 {
                let mut start = number * PAGE_BYTES as u32;
                for same in firsts.chunk_by(|left, right| left[rank] == right[rank]) {
                    let first = same[0][rank];
                    let bytes = same.len() as u32;
                    if let Some(run) = first.touch.run(start, bytes, kind) {
                        let cluster = first.cluster as usize;
                        of_kind.push(ClusterRun { cluster, run });
                    }
                    start += bytes;
                }
            }
            runs.extend(joined(of_kind));
        }
        runs.sort_by_key(|it| (it.run.start, it.cluster, it.run.kind));
        runs
    }
}

/// Joins the runs of a cluster that follow one another: where another cluster's begin or end they
/// were two.
fn joined(mut runs: Vec<ClusterRun>) -> Vec<ClusterRun> {
    runs.sort_by_key(|it| (it.cluster, it.run.start));
    let mut whole: Vec<ClusterRun> = Vec::with_capacity(runs.len());
    for next in runs {
        match whole.last_mut() {
            Some(last) if last.cluster == next.cluster && last.run.continues(&next.run) => {
                last.run.bytes += next.run.bytes;
            }
            _ => whole.push(next),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a page that each of these touches: first byte, bytes, thread and site.
    fn page(kind: RunKind, touches: &[[u32; 4]]) -> Page {
        let mut page = Page::new(0);
        for &[start, bytes, thread, site] in touches {
            let range = start as usize..(start + bytes) as usize;
            page.touches_mut(kind)[range].fill(Touch::new(thread, site));
        }
        page
    }

    /// Returns cluster, start, bytes, thread and site of each run.
    fn numbers(between: &mut Between) -> Vec<[u32; 5]> {
        let runs = between.take_pages().flatten();
        runs.map(|ClusterRun { cluster, run }| {
            [cluster as u32, run.start, run.bytes, run.thread, run.site]
        })
        .collect()
    }

    #[test]
    fn the_two_first_clusters_of_a_byte_are_kept_in_whatever_order_they_come() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut between = Between::default();
            for cluster in order {
                between.enter(cluster, &page(RunKind::Write, &[[8, 4, cluster + 10, 7]]));
            }
            let kept = [[0, 8, 4, 10, 7], [1, 8, 4, 11, 7]];
            assert_eq!(numbers(&mut between), kept, "{order:?}");
        }
    }

    #[test]
    fn a_run_that_another_cluster_overlaps_in_part_stays_one() {
        let mut between = Between::default();
        between.enter(1, &page(RunKind::Write, &[[0, 8, 3, 7]]));
        between.enter(0, &page(RunKind::Write, &[[2, 4, 4, 7]]));
        assert_eq!(numbers(&mut between), [[1, 0, 8, 3, 7], [0, 2, 4, 4, 7]]);
    }

    #[test]
    fn kinds_of_access_are_kept_apart() {
        let mut between = Between::default();
        between.enter(0, &page(RunKind::Write, &[[0, 4, 1, 7]]));
        between.enter(1, &page(RunKind::Read, &[[0, 4, 2, 8]]));
        between.enter(2, &page(RunKind::Strong, &[[0, 4, 3, 9]]));
        let kept = [[0, 0, 4, 1, 7], [1, 0, 4, 2, 8], [2, 0, 4, 3, 9]];
        assert_eq!(numbers(&mut between), kept);
    }

    #[test]
    fn neighbours_of_one_thread_from_two_places_are_two_runs() {
        let mut between = Between::default();
        between.enter(0, &page(RunKind::Write, &[[0, 4, 1, 7], [4, 4, 1, 8]]));
        assert_eq!(numbers(&mut between), [[0, 0, 4, 1, 7], [0, 4, 4, 1, 8]]);
    }
}
