use crate::launch::launch;

#[test]
fn pairs_of_warps_meet_without_the_others() {
    let mut values: Vec<i32> = (0..128).collect();
    for _ in 0..3 {
        let paired: Vec<i32> = (0..128).map(|i| values[i] + values[i ^ 32]).collect();
        values = (0..128).map(|i| paired[i] + paired[127 - i]).collect();
    }
    let run = launch("named_barriers_of_pairs<<<1, 128, 512>>>(3)");
    assert_eq!(run.same::<i32>(128), values);
    let counted = run.counted(512);
    assert_eq!(
        (counted.named_barriers, counted.barriers),
        (3 * 16, 0),
        "per warp that arrives"
    );
}
