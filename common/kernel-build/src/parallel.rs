//! A few compilers side by side in one build script.

use crate::error::BuildError;
use std::sync::Mutex;

/// Compilers that a build script runs at a time. Cargo runs a script per core; the second compiler keeps the other cores busy
/// while the last stage is built, which took a minute and a half of one core alone.
const WORKERS: usize = 2;

/// Calls `work` for each item, in order, on [`WORKERS`] threads. After an error no further item is begun; the error of the
/// first item that failed is returned.
pub(crate) fn try_for_each<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), BuildError> + Sync,
) -> Result<(), BuildError> {
    let queue = Mutex::new(items.iter().enumerate());
    let next = || queue.lock().unwrap().next();
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((index, item)) = next() {
                    if let Err(error) = work(item) {
                        failures.lock().unwrap().push((index, error));
                        while next().is_some() {}
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_by_key(|&(index, _)| index);
    failures
        .into_iter()
        .next()
        .map_or(Ok(()), |(_, error)| Err(error))
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
        try_for_each(&counts, |count| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        let counts: Vec<usize> = counts.into_iter().map(AtomicUsize::into_inner).collect();
        assert_eq!(counts, [1; 9]);
    }

    #[test]
    fn as_many_items_as_workers_run_at_a_time() {
        let meeting = Barrier::new(WORKERS);
        try_for_each(&[(); WORKERS], |()| {
            meeting.wait();
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn the_error_of_the_first_item_that_failed_is_returned() {
        let meeting = Barrier::new(2);
        let error = try_for_each(&["first", "second"], |name| {
            meeting.wait();
            Err(failure(name))
        })
        .unwrap_err();
        assert_eq!(error.to_string(), failure("first").to_string());
    }

    #[test]
    fn no_item_is_begun_after_an_error() {
        let begun = AtomicUsize::new(0);
        let items = ["fails"; 100];
        try_for_each(&items, |name| {
            begun.fetch_add(1, Ordering::Relaxed);
            Err(failure(name))
        })
        .unwrap_err();
        assert!(begun.into_inner() <= WORKERS);
    }
}
