use crate::launch::plain;
use crate::support::SCHEDULES;

/// The source lane by the words of the programming guide.
fn source(kind: usize, lane: i32, argument: i32, width: i32) -> i32 {
    let segment = lane / width * width;
    let position = lane % width;
    match kind {
        0 => segment + argument % width,
        1 if position >= argument => lane - argument,
        2 if position + argument < width => lane + argument,
        // A later segment is out of reach, an earlier one is not.
        3 if (lane ^ argument) < segment + width => lane ^ argument,
        _ => lane,
    }
}

#[test]
fn shuffles_of_every_kind_width_and_type() {
    for width in [2, 4, 8, 16, 32] {
        for argument in [0, 1, 2, 3, 7, 16, 31] {
            for schedule in SCHEDULES {
                let run = plain(&format!("shuffles<<<1, 32, 0>>>({width}, {argument})"))
                    .schedule(schedule);
                let output: Vec<i32> = run.output(256).unwrap();
                for (lane, row) in (0..32).zip(output.chunks(8)) {
                    let expected = [0, 1, 2, 3, 0, 1, 2, 3]
                        .map(|kind| 100 + source(kind, lane, argument, width));
                    assert_eq!(
                        row, expected,
                        "lane {lane}, argument {argument}, width {width}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_butterfly_sums_the_warp() {
    let input: Vec<f32> = (0..160).map(|i| i as f32).collect();
    for schedule in SCHEDULES {
        let run = plain("warp_sum<<<5, 32, 0>>>()").schedule(schedule);
        let (output, _, report) = run.outputs::<f32>(160, 0).unwrap();
        for (sums, values) in output.chunks(32).zip(input.chunks(32)) {
            assert_eq!(sums, [values.iter().sum::<f32>(); 32]);
        }
        assert_eq!(report.collectives, 25);
    }
}

#[test]
fn votes() {
    let thirds = (0..32)
        .filter(|lane| lane % 3 == 0)
        .fold(0u32, |mask, lane| mask | 1 << lane);
    for schedule in SCHEDULES {
        let output: Vec<u32> = plain("votes<<<1, 64, 0>>>()")
            .schedule(schedule)
            .output(64 * 6)
            .unwrap();
        for (thread, row) in output.chunks(6).enumerate() {
            let high = thread % 32 >= 16;
            let half = if high { 0xffff_0000 } else { 0x0000_ffff };
            assert_eq!(
                row,
                [
                    thirds,
                    1,
                    0,
                    thirds & half,
                    u32::from(high),
                    u32::from(!high)
                ]
            );
        }
    }
}

#[test]
fn sync_warp_with_partial_masks() {
    for first in [0, 1, 9, 31] {
        for schedule in SCHEDULES {
            let run =
                plain(&format!("partial_sync_warp<<<1, 32, 128>>>({first})")).schedule(schedule);
            let output: Vec<i32> = run.output(32).unwrap();
            for lane in 0..32 {
                let expected = if lane < first { 0 } else { first + 31 - lane };
                assert_eq!(output[lane as usize], expected);
            }
        }
    }
}

#[test]
fn exited_lanes_are_not_waited_for_by_sync_warp_and_votes() {
    for schedule in SCHEDULES {
        let output: Vec<u32> = plain("sync_warp_after_exit<<<1, 32, 0>>>()")
            .schedule(schedule)
            .output(32)
            .unwrap();
        let expected: Vec<u32> = (0..32)
            .map(|lane| if lane == 5 { 0 } else { !(1 << 5) })
            .collect();
        assert_eq!(output, expected);
        for leaver in [0, 31] {
            let run = plain(&format!("exit_completes_sync_warp<<<1, 32, 0>>>({leaver})"))
                .schedule(schedule);
            assert_eq!(run.output::<i32>(32).unwrap().iter().sum::<i32>(), 31);
        }
    }
}
