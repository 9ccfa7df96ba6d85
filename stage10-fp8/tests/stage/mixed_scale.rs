//! Rows whose every score is a large sum, of which FP8 tensor cores lose what the keys differ by: they
//! failed C2 before such scores were computed exactly.

#[test]
fn one_row_over_253_keys() {
    stage_tests::found_case(&stage10_fp8::Fp8, "1x3x1:253x64 e4m3 full mixed-scale:630");
}

#[test]
fn thirty_one_rows_over_4_keys() {
    stage_tests::found_case(
        &stage10_fp8::Fp8,
        "1x1x31:4x128 e4m3 full mixed-scale:0 scale=0.0078125",
    );
}

#[test]
fn twenty_rows_over_9_keys() {
    stage_tests::found_case(
        &stage10_fp8::Fp8,
        "1x1x20:9x128 e4m3 full mixed-scale:0 scale=0.0078125",
    );
}
