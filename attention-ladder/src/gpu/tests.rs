mod driver;

use super::*;

#[test]
fn a_name_is_kept_once_however_often_it_is_asked_for() {
    let first = interned("stage8-overlap/overlap-64x128");
    assert_eq!(first, c"stage8-overlap/overlap-64x128");
    let again = interned(&["stage8-overlap", "overlap-64x128"].join("/"));
    assert!(std::ptr::eq(first, again));
    assert_ne!(first, interned("stage8-overlap/overlap-128x128"));
}

#[test]
fn a_loop_with_a_new_shape_in_every_step_keeps_no_more_than_the_last() {
    let mut known = Known::new(8);
    for step in 0..1000_usize {
        known.insert(step, 10 * step);
        assert!(known.young.len() + known.old.len() <= 8);
        for last in step.saturating_sub(3)..=step {
            assert_eq!(known.get(&last), Some(10 * last), "{step}");
        }
    }
    assert_eq!((known.get(&0), known.get(&1000)), (None, None));
}
