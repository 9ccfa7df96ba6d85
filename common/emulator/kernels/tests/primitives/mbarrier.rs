use crate::launch::launch;

#[test]
fn arrivals_and_waits_are_counted_by_thread() {
    let counted = launch("ring<<<1, 96, 288>>>(4, 0)").counted(256);
    assert_eq!(
        (counted.mbarrier_arrivals, counted.mbarrier_waits),
        (4 * (32 + 64), 4 * (32 + 64))
    );
}
