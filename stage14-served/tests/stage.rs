//! The tests that every stage runs, see `stage-tests`.

stage_tests::tests!(stage14_served::Served);
