//! The tests that every stage runs; see `stage-tests`.

stage_tests::tests!(stage2_simd_pv::SimdPv);
