use crate::launch::{SCHEDULES, launch};

#[test]
fn a_copy_is_poison_until_its_group_is_waited_for() {
    let input: Vec<u8> = (0..64 * 48).map(|i| (i % 251) as u8).collect();
    for waits in 0..=3 {
        for schedule in SCHEDULES {
            let run =
                launch(&format!("cp_async_groups<<<1, 64, 3072>>>({waits})")).input(0, &input);
            let output = run.schedule(schedule).output::<u8>(64 * 48).unwrap();
            for (actual, source) in output.chunks(48).zip(input.chunks(48)) {
                let landed = 16 * waits as usize;
                assert_eq!(actual[..landed], source[..landed]);
                assert!(actual[landed..].iter().all(|&byte| byte == 0xff));
            }
        }
    }
}
