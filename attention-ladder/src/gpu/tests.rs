mod driver;

use super::*;

#[test]
fn a_name_is_kept_once_however_often_it_is_asked_for() {
    let first = leak_name("stage8-overlap/overlap-64x128");
    assert_eq!(first, c"stage8-overlap/overlap-64x128");
    let again = leak_name(&["stage8-overlap", "overlap-64x128"].join("/"));
    assert!(std::ptr::eq(first, again));
    assert_ne!(first, leak_name("stage8-overlap/overlap-128x128"));
}

#[test]
fn a_loop_of_new_shapes_keeps_no_more_than_the_last() {
    let mut cache = TwoGenerationCache::new(8);
    for step in 0..1000_usize {
        cache.insert(step, 10 * step);
        assert!(cache.young.len() + cache.old.len() <= 8);
        for last in step.saturating_sub(3)..=step {
            assert_eq!(cache.get(&last), Some(10 * last), "{step}");
        }
    }
    assert_eq!((cache.get(&0), cache.get(&1000)), (None, None));
}
