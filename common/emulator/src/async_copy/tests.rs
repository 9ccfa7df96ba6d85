use super::*;

#[test]
fn groups_land_in_order_and_only_when_waited_for() {
    let src = [1u8, 2, 3, 4, 5, 6, 7, 8];
    let mut dst = [0u8; 8];
    let mut copies = AsyncCopies::default();
    let at = dst.as_mut_ptr();
    // SAFETY: all ranges lie in the arrays above, which outlive the waits.
    unsafe {
        copies.issue(at, src.as_ptr(), 2, 2, 10);
        copies.commit();
        copies.issue(at.add(2), src.as_ptr().add(2), 2, 1, 11);
        copies.commit();
        copies.issue(at.add(4), src.as_ptr().add(4), 4, 4, 12);
    }
    let mut landed = Vec::new();
    copies.wait(2, |tag| landed.push(tag));
    assert_eq!(dst, [255; 8]);
    copies.wait(1, |tag| landed.push(tag));
    assert_eq!(dst, [1, 2, 255, 255, 255, 255, 255, 255]);
    copies.wait(0, |tag| landed.push(tag));
    assert_eq!(landed, [10, 11]);
    assert_eq!(
        dst,
        [1, 2, 3, 0, 255, 255, 255, 255],
        "what was never committed does not land"
    );
    copies.discard();
    copies.commit();
    copies.wait(0, |_| ());
    assert_eq!(dst[4..], [255; 4]);
}

#[test]
fn groups_whose_copies_have_landed_are_still_groups() {
    let src = [1u8, 2, 3, 4];
    let mut dst = [0u8; 4];
    let mut copies = AsyncCopies::default();
    let at = dst.as_mut_ptr();
    // SAFETY: all ranges lie in the arrays above, which outlive the waits.
    let issue = |queue: &mut AsyncCopies, i: usize| unsafe {
        queue.issue(at.add(i), src.as_ptr().add(i), 1, 1, i as u32);
    };
    issue(&mut copies, 0);
    issue(&mut copies, 1);
    copies.commit();
    issue(&mut copies, 2);
    let before_last = copies.issued();
    copies.commit();
    issue(&mut copies, 3);
    let mut landed = Vec::new();
    copies.land(1, |tag| landed.push(tag));
    copies.land(before_last, |tag| landed.push(tag));
    copies.land(before_last, |tag| landed.push(tag));
    assert_eq!(landed, [0, 1, 2]);
    copies.commit();
    assert_eq!(
        copies.wait(2, |tag| landed.push(tag)),
        Some(2),
        "only the first group is waited for"
    );
    assert_eq!(
        (
            copies.wait(0, |tag| landed.push(tag)),
            copies.wait(0, |_| ())
        ),
        (Some(4), None)
    );
    assert_eq!(landed, [0, 1, 2, 3]);
}
