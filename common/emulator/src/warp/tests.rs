use super::*;

pub(crate) unsafe extern "C" fn shuffle(
    _: *const *mut c_void,
    _: u32,
    _: *mut u32,
) -> *const std::ffi::c_char {
    std::ptr::null()
}

pub(crate) fn sync_warp(mask: u32, line: u32) -> Collective {
    Collective {
        name: Literal::new(c"__syncwarp"),
        execute: None,
        operand: std::ptr::null_mut(),
        agree: [0; 2],
        work: 0,
        mask,
        rules: EXITED_LANES_DROP | PLACES_MAY_DIFFER,
        kind: 0,
        site: Site::new(c"kernel.cu", line),
    }
}

pub(crate) fn shuffle_sync(mask: u32, width: u64, line: u32) -> Collective {
    Collective {
        name: Literal::new(c"__shfl_sync"),
        execute: Some(shuffle),
        agree: [width, 0],
        rules: 0,
        kind: 1,
        ..sync_warp(mask, line)
    }
}

/// Returns the group of a call that all lanes of a warp have come to.
pub(crate) fn whole_warp(kind: u32, agree: [u64; 2], line: u32) -> Group {
    Group {
        collective: Collective {
            kind,
            agree,
            rules: 0,
            ..sync_warp(u32::MAX, line)
        },
        first_lane: 0,
        arrived: u32::MAX,
    }
}

/// Returns the lanes of the group that `lane` completes; none while it waits.
fn sync(warp: &mut Warp, lane: u32, mask: u32, line: u32) -> Option<u32> {
    let completed = warp.arrive(lane, &sync_warp(mask, line)).unwrap();
    completed.map(|group| group.arrived)
}

#[test]
fn the_last_lane_of_the_mask_completes_the_group() {
    let mut warp = Warp::new(32);
    assert_eq!(
        [1, 3].map(|lane| sync(&mut warp, lane, 0b1011, 1)),
        [None; 2]
    );
    assert_eq!(warp.group_of(3).unwrap().first_lane, 1);
    assert_eq!(sync(&mut warp, 0, 0b1011, 2), Some(0b1011));
    assert!(warp.groups().is_empty());
}

#[test]
fn disjoint_masks_do_not_meet_and_overlapping_ones_wait() {
    let mut warp = Warp::new(32);
    for (lane, mask, completes) in [
        (0, 0b0011, false),
        (2, 0b1100, false),
        (1, 0b10010, false), // it may come to lane 0 later
        (3, 0b1100, true),
        (4, 0b10010, true),
        (1, 0b0011, true),
    ] {
        let completed = sync(&mut warp, lane, mask, 1).is_some();
        assert_eq!(completed, completes, "lane {lane} with {mask:#b}");
    }
}

#[test]
fn lanes_must_agree_on_operation_arguments_and_place() {
    let mut warp = Warp::new(32);
    let (first_lane, right) = (0, shuffle_sync(0b11, 32, 5));
    warp.arrive(0, &right).unwrap();
    for (lane, wrong, mismatch) in [
        (1, sync_warp(0b11, 5), Mismatch::Operation { first_lane }),
        (
            1,
            shuffle_sync(0b11, 16, 5),
            Mismatch::Arguments { first_lane },
        ),
        (1, shuffle_sync(0b11, 32, 6), Mismatch::Place { first_lane }),
        (4, right, Mismatch::NotInMask),
    ] {
        assert_eq!(warp.arrive(lane, &wrong).unwrap_err(), mismatch);
    }
    assert!(warp.arrive(1, &right).unwrap().is_some());
}

#[test]
fn exited_lanes_are_dropped_only_where_the_operation_allows_it() {
    let mut warp = Warp::new(32);
    warp.arrive(0, &sync_warp(0b11, 1)).unwrap();
    warp.exit(1).unwrap();
    assert_eq!(warp.completed().unwrap().arrived, 1);
    assert!(warp.completed().is_none());
    assert!(
        sync(&mut warp, 0, 0b11, 2).is_some(),
        "a mask may name a lane that has left"
    );
    assert_eq!(
        warp.arrive(0, &shuffle_sync(0b11, 32, 3)).unwrap_err(),
        Mismatch::Exited { lane: 1 }
    );

    warp.arrive(0, &shuffle_sync(0b101, 32, 4)).unwrap();
    assert_eq!(warp.exit(2).unwrap_err().collective.mask, 0b101);
}

#[test]
fn a_short_warp_has_only_its_lanes() {
    assert_eq!(Warp::new(32).live, u32::MAX);
    let mut warp = Warp::new(2);
    let completed = [0, 1].map(|lane| sync(&mut warp, lane, u32::MAX, 1).is_some());
    assert_eq!(completed, [false, true]);
}
