use crate::launch::launch;

/// Returns the source lane by the words of the programming guide.
fn source(kind: usize, lane: i32, argument: i32, width: i32) -> i32 {
    let segment = lane / width * width;
    match kind {
        0 => segment + argument % width,
        // A later segment is out of reach, an earlier one is not.
        _ if (lane ^ argument) < segment + width => lane ^ argument,
        _ => lane,
    }
}

#[test]
fn shuffles_of_every_kind_width_and_type() {
    for width in [2, 4, 8, 16, 32] {
        for argument in [0, 1, 2, 3, 7, 16, 31] {
            let run = launch(&format!("shuffles<<<1, 32, 0>>>({width}, {argument})"));
            for (lane, row) in (0..32).zip(run.same::<i32>(192).chunks(6)) {
                let expected =
                    [0, 1, 0, 1, 0, 1].map(|kind| 100 + source(kind, lane, argument, width));
                let what = format!("lane {lane}, argument {argument}, width {width}");
                assert_eq!(row, expected, "{what}");
            }
        }
    }
}

#[test]
fn a_butterfly_sums_the_warp() {
    let input: Vec<f32> = (0..160).map(|i| i as f32).collect();
    let run = launch("warp_sum<<<5, 32, 0>>>()");
    for (sums, values) in run.same::<f32>(160).chunks(32).zip(input.chunks(32)) {
        assert_eq!(sums, [values.iter().sum::<f32>(); 32]);
    }
    assert_eq!(run.counted(640).shuffles, 25);
}

#[test]
fn votes() {
    let thirds = (0..32)
        .filter(|lane| lane % 3 == 0)
        .fold(0u32, |mask, lane| mask | 1 << lane);
    let output: Vec<u32> = launch("votes<<<1, 64, 0>>>()").same(64 * 4);
    for (thread, row) in output.chunks(4).enumerate() {
        let high = u32::from(thread % 32 >= 16);
        let half = thirds & 0xffff << (16 * high);
        assert_eq!(row, [thirds, 1, half, high]);
    }
}

#[test]
fn sync_warp_with_partial_masks() {
    for first in [0, 1, 9, 31] {
        let run = launch(&format!("partial_sync_warp<<<1, 32, 128>>>({first})"));
        let expected = |lane| if lane < first { 0 } else { first + 31 - lane };
        assert_eq!(
            run.same::<i32>(32),
            (0..32).map(expected).collect::<Vec<_>>()
        );
    }
}

#[test]
fn exited_lanes_are_not_waited_for_by_sync_warp_and_votes() {
    let output: Vec<u32> = launch("sync_warp_after_exit<<<1, 32, 0>>>()").same(32);
    let mut expected = [!(1 << 5); 32];
    expected[5] = 0;
    assert_eq!(output, expected);
    for leaver in [0, 31] {
        let run = launch(&format!("exit_completes_sync_warp<<<1, 32, 0>>>({leaver})"));
        assert_eq!(run.same::<i32>(32).iter().sum::<i32>(), 31);
    }
}
