use emulator::Fault;
use emulator_kernels::entry;

use crate::gpu::Gpu;
use crate::launch::plain;
use crate::support::{Run, SCHEDULES};

const ROUNDS: usize = 3;
const EXCHANGE: &str = "cluster_exchange<<<2, 128, 2056>>>(0, 3)";

/// All values differ.
fn input() -> Vec<f32> {
    (0..2 * ROUNDS * 128 * 4).map(|i| i as f32).collect()
}

/// 37 has an inverse modulo 128.
fn expected() -> Vec<f32> {
    let input = input();
    let mut output = vec![0.0; input.len()];
    let start =
        |block: usize, round: usize, thread: usize| ((block * ROUNDS + round) * 128 + thread) * 4;
    for block in 0..2 {
        for (round, thread) in
            (0..ROUNDS).flat_map(|round| (0..128).map(move |thread| (round, thread)))
        {
            let to = start(1 - block, round, (thread * 37 + round) % 128);
            output[to..to + 4].copy_from_slice(&input[start(block, round, thread)..][..4]);
        }
    }
    output
}

#[test]
fn blocks_of_a_cluster_store_to_each_other() {
    for schedule in SCHEDULES {
        let run = plain(EXCHANGE).input(0, &input()).schedule(schedule);
        assert_eq!(
            run.output::<f32>(input().len()).unwrap(),
            expected(),
            "{schedule:?}"
        );
    }
}

#[test]
fn blocks_of_a_cluster_store_to_each_other_on_a_real_gpu() {
    let Some(gpu) = Gpu::open() else { return };
    if !gpu.has("cluster_exchange") {
        return;
    }
    let run = plain(EXCHANGE).input(0, &input());
    let output = gpu.launch("cluster_exchange", &run, input().len() * 4);
    let floats: Vec<f32> = output
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(floats, expected());
}

#[test]
fn faults_know_the_block_of_the_cluster() {
    // Block 1 has not arrived; block 1 does not wait for what comes there.
    for breaks in [32, 128] {
        let fault =
            plain(&format!("cluster_exchange<<<2, 128, 2056>>>({breaks}, 1)")).output::<f32>(1024);
        assert_eq!(fault.unwrap_err().block(), Some([1, 0, 0]));
    }
}

#[test]
fn clusters_have_limits() {
    let reason = |run: Run| match run.output::<u8>(1).unwrap_err() {
        Fault::BadLaunch { reason } => reason,
        other => panic!("{other}"),
    };
    let run = |threads, blocks| {
        Run::new(entry::cluster_barrier_missed, threads)
            .cluster(blocks)
            .number(0, 2)
    };
    assert!(reason(run(128, 9)).starts_with("clusters of 9 blocks: 1 to 8 are possible"));
    assert!(reason(run(128, 2).blocks(3)).contains("a divisor of the grid's 3"));
    assert!(reason(run(640, 4)).contains("up to 2048 threads, not 4 blocks of 640"));
    assert!(reason(run(96, 2)).contains("whole warpgroups"));
    assert_eq!(run(256, 8).output::<u8>(1), Ok(vec![0]));
}
