//! The limit that FP8 tensor cores have; see `stage-tests`.

#[test]
fn a_head_takes_their_sums_up_to_the_largest_scale_of_its_size() {
    stage_tests::largest_scale(&stage9_cluster::Cluster);
}
