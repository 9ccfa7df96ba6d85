//! The tests that every stage runs; see `stage-tests`.

stage_tests::tests!(stage10_fp8::Fp8);
