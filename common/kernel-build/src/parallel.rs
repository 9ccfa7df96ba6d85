//! A few compilers side by side in one build script.

use crate::error::BuildError;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The number of compilers that a build script runs at a time. Cargo runs a script per core; the
/// second compiler keeps the other cores busy while the last stage is built, which took a minute
/// and a half of one core alone.
const WORKERS: usize = 2;

/// Calls `work` for each item, in order, on [`WORKERS`] threads, and returns the results in the
/// order of the items. After an error no further item is begun; the error of the first item that
/// failed is returned.
pub(crate) fn try_map<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, BuildError> + Sync,
) -> Result<Vec<R>, BuildError> {
    let queue = Mutex::new(items.iter().enumerate());
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((index, item)) = take_next(&queue) {
                    let result = work(item);
                    if result.is_err() {
                        while take_next(&queue).is_some() {}
                    }
                    results.lock().unwrap().insert(index, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}

/// Returns the next item of a queue, which is free again when the item is worked on.
fn take_next<I: Iterator>(queue: &Mutex<I>) -> Option<I::Item> {
    queue.lock().unwrap().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn failure(name: &'static str) -> BuildError {
        BuildError::NotABuildScript(name)
    }

    #[test]
    fn every_item_is_worked_on_once() {
        let counts: Vec<AtomicUsize> = (0..9).map(|_| AtomicUsize::new(0)).collect();
        try_map(&counts, |count| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        for count in counts {
            assert_eq!(count.into_inner(), 1);
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let meeting = Barrier::new(2);
        let results = try_map(&[0, 1, 2, 3], |item| {
            meeting.wait();
            Ok(item * 10)
        });
        assert_eq!(results.unwrap(), [0, 10, 20, 30]);
    }

    #[test]
    fn as_many_items_as_workers_run_at_a_time() {
        let meeting = Barrier::new(WORKERS);
        try_map(&[(); WORKERS], |()| {
            meeting.wait();
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn the_error_of_the_first_item_that_failed_is_returned() {
        let meeting = Barrier::new(2);
        let error = try_map(&["first", "second"], |name| {
            meeting.wait();
            Err::<(), _>(failure(name))
        })
        .unwrap_err();
        assert_eq!(error.to_string(), failure("first").to_string());
    }

    #[test]
    fn no_item_is_begun_after_an_error() {
        let begun = AtomicUsize::new(0);
        let items = ["fails"; 100];
        try_map(&items, |name| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(failure(name))
        })
        .unwrap_err();
        assert!(begun.into_inner() <= WORKERS);
    }
}
