use emulator::{Entry, Fault};
use emulator_kernels::entry;

use crate::support::{Run, SCHEDULES, line};

#[test]
fn a_copy_is_poison_until_its_group_is_waited_for() {
    let input: Vec<u8> = (0..64 * 48).map(|i| (i % 251) as u8).collect();
    for waits in 0..=3 {
        for schedule in SCHEDULES {
            let run = Run::new(entry::cp_async_groups, 64)
                .shared(64 * 48)
                .input(0, &input);
            let (output, _, report) = run
                .number(0, waits)
                .schedule(schedule)
                .outputs::<u8>(64 * 48, 0)
                .unwrap();
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
    let output: Vec<u8> = Run::new(entry::cp_async_sizes, 1)
        .shared(80)
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
        let run = Run::new(entry::cp_async_waited_by, 64)
            .shared(4)
            .input(0, &[2.5f32])
            .schedule(schedule);
        assert_eq!(
            run.clone().number(0, 0).output::<f32>(64).unwrap(),
            [2.5; 64]
        );
        assert!(
            run.number(0, 1)
                .output::<f32>(64)
                .unwrap()
                .iter()
                .all(|x| x.is_nan())
        );
    }
}

#[test]
fn misuse_is_a_fault_with_its_place() {
    let run = |dst, src, bytes| {
        let run = Run::new(entry::cp_async_misused, 1)
            .shared(64)
            .input(0, &[0u64; 8]);
        run.number(0, dst)
            .number(1, src)
            .number(2, bytes)
            .output::<u8>(0)
    };
    run(48, 0, 16).unwrap();
    let place_line = line("cp_async.cu", "params->n[2]");
    for (dst, src, operand) in [
        (8, 0, "the destination of cp.async"),
        (0, 4, "the source of cp.async"),
    ] {
        let fault = run(dst, src, 16).unwrap_err();
        assert!(
            matches!(&fault, Fault::Misaligned { operand: o, required: 16, place, .. } if o == operand && place.line == place_line),
            "{fault}"
        );
    }
    assert_eq!(
        run(64, 0, 16).unwrap_err().to_string(),
        format!(
            "block [0, 0, 0], thread 0: cp.async at cu/cp_async.cu:{place_line}: its destination is byte 64 of shared \
             memory, of which the launch declared 64"
        )
    );
    assert!(
        run(0, 0, 17)
            .unwrap_err()
            .to_string()
            .ends_with("reads 17 bytes to write 16")
    );
    let to_global = Run::new(entry::cp_async_to_global as Entry, 1)
        .input(0, &[0u64; 2])
        .output::<u64>(2);
    assert!(
        to_global
            .unwrap_err()
            .to_string()
            .ends_with("its destination is not in shared memory")
    );
}
