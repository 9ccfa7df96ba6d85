use super::*;

fn drain(schedule: Schedule) -> Vec<u32> {
    let mut ready = Ready::new(schedule, 7, 1, 4);
    ready.insert(0, 0b101);
    ready.insert(2, 0b11);
    std::iter::from_fn(|| ready.take()).collect()
}

#[test]
fn in_order_and_reversed_are_mirrored() {
    assert_eq!(drain(Schedule::InOrder), [0, 2, 64, 65]);
    assert_eq!(drain(Schedule::Reversed), [65, 64, 2, 0]);
}

#[test]
fn a_warp_runs_until_its_lanes_wait_and_the_next_follows_in_a_ring() {
    let mut ready = Ready::new(Schedule::InOrder, 0, 1, 4);
    ready.insert(1, 0b1);
    assert_eq!(ready.take(), Some(32));
    ready.insert(0, 0b1);
    ready.insert(1, 0b10);
    ready.insert(3, 0b1);
    assert_eq!(ready.take(), Some(33), "warp 1 is still current");
    assert_eq!(
        ready.take(),
        Some(96),
        "then warp 3, before the ring closes at warp 0"
    );
    assert_eq!(ready.take(), Some(0));

    let mut reversed = Ready::new(Schedule::Reversed, 0, 1, 4);
    reversed.insert(1, 0b1);
    assert_eq!(reversed.take(), Some(32));
    reversed.insert(0, 0b1);
    reversed.insert(3, 0b1);
    assert_eq!(reversed.take(), Some(0));
    assert_eq!(reversed.take(), Some(96));
}

#[test]
fn the_warp_that_starves_runs_when_no_other_can_and_each_but_the_first_may() {
    let mut starved = [0; 8];
    for block in 0..200 {
        // Two blocks of four warps run together.
        let mut ready = Ready::new(Schedule::Starving(1), block, 2, 4);
        (0..8).for_each(|warp| ready.insert(warp, 0b11));
        let order: Vec<u32> = std::iter::from_fn(|| ready.take()).collect();
        let last = order[14] / 32;
        assert_eq!(order[14..], [last * 32, last * 32 + 1]);
        let others: Vec<u32> = (0..8)
            .filter(|&warp| warp != last)
            .flat_map(|warp| [warp * 32, warp * 32 + 1])
            .collect();
        assert_eq!(order[..14], others);
        starved[last as usize] += 1;
        // It gives way again.
        ready.insert(last, 0b1);
        assert_eq!(ready.take(), Some(last * 32));
        ready.insert(last, 0b10);
        ready.insert(0, 0b1);
        assert_eq!(ready.take(), Some(0));
    }
    assert!(
        starved
            .iter()
            .zip(0..)
            .all(|(&times, warp)| (times == 0) == (warp % 4 == 0)),
        "{starved:?}"
    );
    let mut alone = Ready::new(Schedule::Starving(1), 0, 1, 1);
    alone.insert(0, 0b1);
    assert_eq!(alone.take(), Some(0));
}

#[test]
fn shuffled_takes_every_thread_once_and_repeats_itself() {
    let mut order = drain(Schedule::Shuffled(5));
    assert_eq!(order, drain(Schedule::Shuffled(5)));
    assert!((0..50).any(|seed| drain(Schedule::Shuffled(seed)) != order));
    order.sort_unstable();
    assert_eq!(order, [0, 2, 64, 65]);
}

/// Three warps of one lane each, of which each becomes ready again once.
fn delayed(delays: Delays) -> Vec<u32> {
    let mut ready = Ready::new(Schedule::Delayed(delays), 0, 1, 3);
    (0..3).for_each(|warp| ready.insert(warp, 1));
    let mut again = [true; 3];
    let mut order = Vec::new();
    while let Some(thread) = ready.take() {
        let warp = thread / 32;
        order.push(warp);
        if std::mem::take(&mut again[warp as usize]) {
            ready.insert(warp, 1);
        }
    }
    order
}

#[test]
fn a_warp_that_gives_way_runs_when_the_ring_comes_round() {
    let at = |points: &[u32]| {
        points.iter().fold(Delays::default(), |delays, &point| {
            delays.and(point).unwrap()
        })
    };
    assert_eq!(delayed(at(&[])), [0, 0, 1, 1, 2, 2]);
    assert_eq!(delayed(at(&[0])), [1, 1, 2, 2, 0, 0]);
    assert_eq!(delayed(at(&[0, 0])), [2, 2, 0, 0, 1, 1]);
    assert_eq!(delayed(at(&[1])), [0, 1, 1, 2, 2, 0]);
    assert_eq!(delayed(at(&[1, 2])), [0, 1, 2, 2, 0, 1]);
    assert_eq!(at(&[0, 1, 2, 3]).and(4), None, "four at most");
}

#[test]
fn a_choice_point_is_where_another_warp_could_run_too() {
    let mut ready = Ready::new(Schedule::Delayed(Delays::default()), 0, 1, 2);
    ready.insert(0, 0b11);
    assert_eq!(ready.take(), Some(0), "alone");
    assert_eq!(ready.choice_points(), 0);
    ready.insert(1, 0b1);
    assert_eq!(ready.take(), Some(1), "within its stretch");
    assert_eq!(ready.choice_points(), 0);
    ready.insert(0, 0b1);
    assert_eq!(ready.take(), Some(0), "it has met its lanes");
    assert_eq!(ready.choice_points(), 1);
    assert_eq!(ready.take(), Some(32));
    assert_eq!(ready.choice_points(), 1);
}
