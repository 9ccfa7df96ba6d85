//! The tests that every stage runs; see `stage-tests`.

stage_tests::tests!(stage13_shares::Shares);
