//! What the emulator costs: switches between CUDA threads, accesses under the judge, and the arithmetic of a tile, also as
//! rates.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use emulator::{Entry, Schedule};
use emulator_kernels::support::Run;
use emulator_kernels::{entry, traced};

/// Threads of most blocks of the ladder.
const THREADS: u32 = 128;

fn rounds(kernel: Entry, blocks: u32, rounds: i32) -> Run {
    Run::new(kernel, THREADS)
        .blocks(blocks)
        .shared(4096)
        .input(0, &[0.5f32; THREADS as usize])
        .number(0, rounds)
}

fn switches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("switches");
    for (name, kernel) in [
        ("__syncthreads", entry::barriers_only as Entry),
        ("__shfl_xor_sync", entry::shuffles_only),
    ] {
        for schedule in [Schedule::InOrder, Schedule::Shuffled(1)] {
            let run = rounds(kernel, 1, 1000).schedule(schedule);
            let switches = run
                .outputs::<i32>(1, 0)
                .expect("the kernel has no fault")
                .2
                .switches;
            group.throughput(Throughput::Elements(switches));
            group.bench_function(BenchmarkId::new(name, format!("{schedule:?}")), |bencher| {
                bencher.iter(|| black_box(run.output::<i32>(1)))
            });
        }
    }
    group.finish();
}

fn traced_accesses(criterion: &mut Criterion) {
    const ROUNDS: i32 = 500;
    let mut group = criterion.benchmark_group("traced accesses");
    group.throughput(Throughput::Elements(u64::from(THREADS) * ROUNDS as u64 * 3));
    let run = rounds(traced::accesses_only, 1, ROUNDS);
    assert_eq!(run.trace([4, 0]).hazards, []);
    group.bench_function("shared and global", |bencher| {
        bencher.iter(|| black_box(run.trace([4, 0])))
    });
    group.finish();
}

/// A quarter of the multiply-adds of the mission shape (1, 8, 512, 64), over all cores.
fn tiles(criterion: &mut Criterion) {
    const MULTIPLY_ADDS: u64 = 2 * 8 * 512 * 512 * 64 / 4;
    const BLOCKS: u32 = 32;
    let warps = u64::from(BLOCKS * THREADS / 32);
    let mut group = criterion.benchmark_group("multiply-adds");
    group.throughput(Throughput::Elements(MULTIPLY_ADDS));
    for (name, kernel, each) in [
        ("plain, fma", entry::fma_only as Entry, 32 * 64),
        ("plain, wmma with two loads", entry::wmma_only, 16 * 16 * 16),
        (
            "plain, ldmatrix and two mma",
            entry::mma_only,
            2 * 16 * 8 * 16,
        ),
        (
            "traced, ldmatrix and two mma",
            traced::mma_only,
            2 * 16 * 8 * 16,
        ),
        ("plain, wgmma", entry::wgmma_only, 2 * 16 * 128 * 64),
        ("traced, wgmma", traced::wgmma_only, 2 * 16 * 128 * 64),
    ] {
        let run = rounds(kernel, BLOCKS, (MULTIPLY_ADDS / warps / each) as i32).shared(24576);
        group.bench_function(name, |bencher| match name.starts_with("traced") {
            true => bencher.iter(|| drop(black_box(run.trace([4, 0])))),
            false => bencher.iter(|| drop(black_box(run.output::<f32>(1)))),
        });
    }
    group.finish();
}

/// Tiles of 512 bytes from a producer warp to two consumer warps, through mbarriers.
fn rings(criterion: &mut Criterion) {
    const TILES: i32 = 200;
    let mut group = criterion.benchmark_group("tiles through a ring");
    group.throughput(Throughput::Elements(TILES as u64));
    let input = vec![1u32; TILES as usize * 128];
    for (name, kernel) in [
        ("plain", entry::mbarrier_ring as Entry),
        ("traced", traced::mbarrier_ring),
    ] {
        let run = Run::new(kernel, 96)
            .shared(1056)
            .input(0, &input)
            .number(0, TILES);
        group.bench_function(name, |bencher| match name {
            "traced" => bencher.iter(|| drop(black_box(run.trace([256, 0])))),
            _ => bencher.iter(|| drop(black_box(run.output::<u32>(64)))),
        });
    }
    group.finish();
}

criterion_group! {
    name = cost;
    config = Criterion::default().sample_size(10);
    targets = switches, traced_accesses, tiles, rings
}
criterion_main!(cost);
