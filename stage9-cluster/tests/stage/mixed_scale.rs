//! Rows whose every score is a large sum, of which FP8 tensor cores lose what the keys differ by: they
//! failed C2 before such scores were computed exactly.

#[test]
fn three_heads_over_13_keys() {
    stage_tests::found_case(
        &stage9_cluster::Cluster,
        "2x3x1:13x128 e4m3 full mixed-scale:396",
    );
}
