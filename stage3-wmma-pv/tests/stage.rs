//! The tests that every stage runs; see `stage-tests`.

stage_tests::tests!(stage3_wmma_pv::WmmaPv);
