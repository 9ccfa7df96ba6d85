use super::*;
use crate::warp::tests::whole_warp;

fn block_of(threads: u32) -> Block {
    Block::new(
        [1, 2, 0],
        9,
        Cluster::of_one_block(threads, 0..0),
        Schedule::InOrder,
    )
}

fn run_all(block: &mut Block) -> Vec<u32> {
    std::iter::from_fn(|| block.ready.take()).collect()
}

fn is_waiting(progress: Result<Progress, Fault>) -> bool {
    match progress.unwrap() {
        Progress::Wait => true,
        Progress::GoOn => false,
        Progress::Complete(_) => panic!("of a warp alone"),
    }
}

fn site(line: u32) -> Site {
    Site::new(c"stage/kernel.cu", line)
}

#[test]
fn a_barrier_releases_everyone_once_all_have_come() {
    let mut block = block_of(40);
    assert_eq!(run_all(&mut block).len(), 40);
    for thread in 0..39 {
        assert!(is_waiting(block.arrive_at_barrier(thread, site(3))));
    }
    assert!(!is_waiting(block.arrive_at_barrier(39, site(3))));
    let mut released = run_all(&mut block);
    assert_eq!(released[0], 32, "the running warp goes on first");
    released.sort_unstable();
    assert_eq!(released, (0..39).collect::<Vec<_>>());
    assert_eq!(block.barriers(), 1);
}

fn named(kind: u32, barrier: u64, threads: u64, line: u32) -> Group {
    whole_warp(kind, [barrier, threads], line)
}
const SYNC: u32 = 5;
const ARRIVE: u32 = 6;

fn pass(block: &mut Block, warp: u32, group: &Group) -> Result<Progress, Fault> {
    let released = block.arrive_at_named(warp, &group.collective)?.released;
    Ok(block.pass_named(warp, group, Some(warp * 32), released))
}

#[test]
fn a_named_barrier_releases_those_that_wait_and_is_there_again() {
    let mut block = block_of(96);
    run_all(&mut block);
    for _ in 0..2 {
        assert!(!is_waiting(pass(&mut block, 2, &named(ARRIVE, 1, 96, 3))));
        assert!(is_waiting(pass(&mut block, 0, &named(SYNC, 1, 96, 4))));
        assert_eq!(
            run_all(&mut block),
            (65..96).collect::<Vec<_>>(),
            "who only arrives goes on"
        );
        assert!(!is_waiting(pass(&mut block, 1, &named(SYNC, 1, 96, 5))));
        let mut released = run_all(&mut block);
        released.sort_unstable();
        assert_eq!(released, (0..32).chain(33..64).collect::<Vec<_>>());
    }
    pass(&mut block, 0, &named(SYNC, 1, 96, 4)).unwrap();
    assert!(
        pass(&mut block, 1, &named(SYNC, 1, 64, 5)).is_err(),
        "of other threads"
    );
    assert!(
        pass(&mut block, 0, &named(ARRIVE, 1, 96, 6)).is_err(),
        "a second time"
    );
}

#[test]
fn who_waits_may_have_given_the_first_signal_itself() {
    let mut block = block_of(64);
    run_all(&mut block);
    assert!(!is_waiting(pass(&mut block, 0, &named(ARRIVE, 1, 64, 3))));
    assert!(!is_waiting(pass(&mut block, 0, &named(SYNC, 1, 64, 4))));
    assert!(!is_waiting(pass(&mut block, 0, &named(ARRIVE, 1, 64, 5))));
    assert!(
        pass(&mut block, 0, &named(ARRIVE, 1, 64, 6)).is_err(),
        "a second signal counts in place of the other warp's"
    );
}

#[test]
fn who_asks_again_and_again_lets_others_run_and_gives_up_in_the_end() {
    let mut block = block_of(2);
    run_all(&mut block);
    block.mbarriers().init(0, 1, 0, site(2)).unwrap();
    block.poll_mbarrier(0, 0, "mbarrier_test_wait", site(3));
    block.ready.insert(0, 0b10);
    assert_eq!(block.next().unwrap(), Some(1), "the other one first");
    block.exit(1).unwrap();
    for _ in 0..FRUITLESS_ROUNDS {
        assert_eq!(block.next().unwrap(), Some(0));
        block.poll_mbarrier(0, 0, "mbarrier_test_wait", site(3));
    }
    assert_eq!(
        block.next().unwrap_err().to_string(),
        "block [1, 2, 0] can't go on: thread 0 waits at stage/kernel.cu:3 \
         (mbarrier_test_wait, again and again, the mbarrier at byte 0: phase 0, parity 0, has \
         0 of 1 arrivals), thread 1 has exited. Each phase of an mbarrier needs exactly as \
         many arrivals as mbarrier_init names, and a wait the parity of the phase whose end \
         it waits for (0 for the first)"
    );
}
