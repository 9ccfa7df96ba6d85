use emulator::Fault;

use crate::launch::{Run, launch};
use crate::ptx::{Case, bytes};

/// Blocks of a cluster store to each other, and one that is its cluster to itself; all values differ, and 37 has an inverse modulo 128.
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
    let [input, output, own] =
        [input, output, own].map(|floats| bytes(floats.into_iter().map(f32::to_le_bytes)));
    [
        Case::new(
            format!("cluster_exchange<<<2, 128, 2056>>>(0, {ROUNDS})"),
            [input.clone()],
            output,
        ),
        Case::new("cluster_of_one<<<1, 128, 2056>>>(0)", [input], own),
    ]
}

#[test]
fn faults_know_the_block_of_the_cluster() {
    // Block 1 has not arrived; block 1 does not wait for what comes there.
    for breaks in [32, 128] {
        let fault =
            launch(&format!("cluster_exchange<<<2, 128, 2056>>>({breaks}, 1)")).output::<f32>(1024);
        assert_eq!(fault.unwrap_err().block(), Some([1, 0, 0]));
    }
}

#[test]
fn clusters_have_limits() {
    let reason = |run: Run| match run.output::<u8>(1).unwrap_err() {
        Fault::BadLaunch { reason } => reason,
        other => panic!("{other}"),
    };
    let run = |threads: u32, blocks: u32| {
        launch(&format!(
            "cluster_barrier_missed<<<{blocks}, {threads}, 0>>>(2)"
        ))
    };
    assert!(reason(run(128, 9)).starts_with("clusters of 9 blocks: 1 to 8 are possible"));
    assert!(reason(run(128, 2).dims([3, 1, 1], [128, 1, 1])).contains("a divisor of the grid's 3"));
    assert!(reason(run(640, 4)).contains("up to 2048 threads, not 4 blocks of 640"));
    assert!(reason(run(96, 2)).contains("whole warpgroups"));
    assert_eq!(run(256, 8).output::<u8>(1), Ok(vec![0]));
}
