use emulator::Fault;

use crate::launch::{bytes_of, launch};
use crate::ptx::Case;

/// Returns launches in which the blocks of a cluster store to each other, and one that is its
/// cluster to itself. All values differ, and 37 has an inverse modulo 128.
pub fn cases() -> [Case; 2] {
    const ROUNDS: usize = 3;
    let start =
        |block: usize, round: usize, thread: usize| ((block * ROUNDS + round) * 128 + thread) * 4;
    let input: Vec<f32> = (0..start(2, 0, 0)).map(|i| i as f32).collect();
    let mut output = vec![0.0; input.len()];
    for (block, round) in (0..2).flat_map(|block| (0..ROUNDS).map(move |round| (block, round))) {
        for thread in 0..128 {
            let to = start(1 - block, round, (thread * 37 + round) % 128);
            output[to..to + 4].copy_from_slice(&input[start(block, round, thread)..][..4]);
        }
    }
    let mut own = vec![0.0; start(0, 1, 0)];
    for thread in 0..128 {
        own[thread * 37 % 128 * 4..][..4].copy_from_slice(&input[thread * 4..][..4]);
    }
    [
        Case::new(
            format!("cluster_exchange<<<2, 128, 2056>>>(0, {ROUNDS})"),
            [bytes_of(&input)],
            bytes_of(&output),
        ),
        Case::new(
            "cluster_of_one<<<1, 128, 2056>>>(0)",
            [bytes_of(&input)],
            bytes_of(&own),
        ),
    ]
}

#[test]
fn clusters_have_limits() {
    let run = |threads: u32, blocks: u32, grid: u32| {
        let text = format!("cluster_barrier_missed<<<{blocks}, {threads}, 0>>>(2)");
        let run = launch(&text).dims([grid, 1, 1], [threads, 1, 1]);
        run.output::<u8>(1)
    };
    for (threads, blocks, grid, words) in [
        (128, 9, 9, "clusters of 9 blocks: 1 to 8 are possible"),
        (128, 2, 3, "a divisor of the grid's 3"),
        (640, 4, 4, "up to 2048 threads, not 4 blocks of 640"),
        (96, 2, 2, "whole warpgroups"),
    ] {
        let Err(Fault::BadLaunch { reason }) = run(threads, blocks, grid) else {
            panic!("{words}")
        };
        assert!(reason.contains(words), "{reason}");
    }
    assert_eq!(run(256, 8, 8), Ok(vec![0]));
}
