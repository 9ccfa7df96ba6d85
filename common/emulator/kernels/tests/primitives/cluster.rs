//! Clusters: the blocks of one store to each other and meet.

use emulator::{Entry, Fault};
use emulator_kernels::{entry, traced};

use crate::gpu::Gpu;
use crate::support::{Run, SCHEDULES};

/// Two blocks of 128 threads that exchange, of which `breaks` says what goes wrong, for `rounds` rounds.
pub fn exchange(entry: Entry, breaks: i32, rounds: i32) -> Run {
    Run::new(entry, 128)
        .cluster(2)
        .shared(2056)
        .number(0, breaks)
        .number(1, rounds)
}

/// Two blocks of 128 threads that meet.
pub fn missed(entry: Entry, mode: i32) -> Run {
    Run::new(entry, 128).cluster(2).number(0, mode)
}

const ROUNDS: usize = 3;

/// No value stands for another one.
fn input() -> Vec<f32> {
    (0..2 * ROUNDS * 128 * 4).map(|i| i as f32).collect()
}

/// What each thread stored, where the kernel says that it does: 37 has an inverse modulo 128.
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
        let run = exchange(entry::cluster_exchange, 0, ROUNDS as i32)
            .input(0, &input())
            .schedule(schedule);
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
    let run = exchange(entry::cluster_exchange, 0, ROUNDS as i32).input(0, &input());
    let output = gpu.launch("cluster_exchange", &run, input().len() * 4);
    let floats: Vec<f32> = output
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(floats, expected());
}

#[test]
fn faults_and_hazards_name_the_block_of_the_cluster() {
    let text = |fault: Fault| (fault.block(), fault.to_string());
    let run = |breaks| {
        exchange(entry::cluster_exchange, breaks, 1)
            .input(0, &input())
            .output::<f32>(1024)
            .unwrap_err()
    };
    let (block, text_of) = text(run(32));
    assert_eq!(block, Some([1, 0, 0]));
    assert!(
        text_of.starts_with("block [1, 0, 0]: thread 32 called cluster_wait"),
        "{text_of}"
    );
    let (block, text_of) = text(run(128));
    assert_eq!(
        block,
        Some([1, 0, 0]),
        "what comes to block 1 is not waited for"
    );
    assert!(text_of.contains("store_async"), "{text_of}");
    let (_, text_of) = text(
        missed(entry::cluster_barrier_missed, 1)
            .output::<u8>(1)
            .unwrap_err(),
    );
    assert!(
        text_of.contains("warps 0-2 of the cluster's block 1 wait at"),
        "{text_of}"
    );
    let report = exchange(traced::cluster_exchange, 256, 2)
        .input(0, &input())
        .trace([8192, 0]);
    let races: Vec<String> = report.hazards.iter().map(ToString::to_string).collect();
    let names =
        |race: &&String| race.contains("block [0, 0, 0]") && race.contains("block [1, 0, 0]");
    assert!(races.iter().any(|race| names(&race)), "{races:?}");
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
    assert!(reason(run(640, 2)).contains("up to 1024 threads, not 2 blocks of 640"));
    assert!(reason(run(96, 2)).contains("whole warpgroups"));
    assert_eq!(run(128, 8).output::<u8>(1), Ok(vec![0]));
}
