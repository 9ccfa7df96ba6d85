use crate::launch::plain;
use crate::support::SCHEDULES;

#[test]
fn a_copy_is_poison_until_its_group_is_waited_for() {
    let input: Vec<u8> = (0..64 * 48).map(|i| (i % 251) as u8).collect();
    for waits in 0..=3 {
        for schedule in SCHEDULES {
            let run = plain(&format!("cp_async_groups<<<1, 64, 3072>>>({waits})")).input(0, &input);
            let (output, _, report) = run.schedule(schedule).outputs::<u8>(64 * 48, 0).unwrap();
            for (actual, source) in output.chunks(48).zip(input.chunks(48)) {
                let landed = 16 * waits as usize;
                assert_eq!(actual[..landed], source[..landed]);
                assert!(actual[landed..].iter().all(|&byte| byte == 0xff));
            }
            assert_eq!(report.unwaited_copies, 64 * (3 - waits as u64));
        }
    }
}

#[test]
fn sizes_and_zero_fill() {
    let input: Vec<u8> = (1..=80).collect();
    let output: Vec<u8> = plain("cp_async_sizes<<<1, 1, 80>>>()")
        .input(0, &input)
        .output(80)
        .unwrap();
    let mut expected = vec![0xff; 80];
    expected[..4].copy_from_slice(&input[..4]);
    expected[8..32].copy_from_slice(&input[8..32]);
    expected[32..48].fill(0);
    expected[32..37].copy_from_slice(&input[32..37]);
    expected[48..64].fill(0);
    expected[64..68].copy_from_slice(&input[64..68]);
    assert_eq!(output, expected);
}

#[test]
fn a_wait_covers_only_the_copies_of_its_own_thread() {
    for schedule in SCHEDULES {
        let run = |waiter| {
            plain(&format!("cp_async_waited_by<<<1, 64, 4>>>({waiter})")).schedule(schedule)
        };
        let output = |waiter| run(waiter).input(0, &[2.5f32]).output::<f32>(64).unwrap();
        assert_eq!(output(0), [2.5; 64]);
        assert!(output(1).iter().all(|x| x.is_nan()));
    }
}
