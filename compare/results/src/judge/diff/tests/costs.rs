//! Figures that cost something only as far as the time shows it: counters and resources.

use super::*;

/// Returns what moved about [`SCALAR`].
fn moved_of_scalar(base: &Run, new: &Run) -> String {
    about_subject(&moved(base, new), SCALAR)
}

/// Returns an emulated run with these counters of [`SCALAR`], without the claim about them.
fn counted_alone(bytes: u64, conflicts: u64) -> Run {
    emulated()
        .with_first_claims(0, 1)
        .counted(SCALAR, bytes, conflicts)
}

/// Returns a run of other kernels that are faster and read more sectors.
fn faster_with_more_sectors() -> Run {
    timed([28.0, 18.0, 13.0])
        .with_first_claims(0, 1)
        .counted(SCALAR, 2_097_152, 0)
        .rebuilt()
}

#[test]
fn more_sectors_are_worse() {
    let base = counted_alone(1_048_576, 0);
    let new = counted_alone(2_097_152, 0);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 REGRESSION
    worse stage0-scalar/scalar-32x64 global sectors read on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
    ");
}

#[test]
fn fewer_bank_conflicts_are_better() {
    let base = counted_alone(1_048_576, 12_288);
    let new = counted_alone(1_048_576, 0);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    0 IMPROVED
    improved stage0-scalar/scalar-32x64 shared-load bank conflicts on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 shared-load wavefronts on mission f16 full
    ");
}

#[test]
fn more_sectors_in_less_time_are_better() {
    let base = timed(US).with_first_claims(0, 1);
    let new = faster_with_more_sectors();
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    0 IMPROVED
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global sectors read on mission f16 full
    ");
}

#[test]
fn more_sectors_are_informational_where_times_disagree() {
    let base = timed(US)
        .with_first_claims(0, 1)
        .with_row(row("scalar | long f16 full | gpu | p50 9"));
    let new = faster_with_more_sectors().with_row(row("scalar | long f16 full | gpu | p50 10"));
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 MIXED
    worse stage0-scalar/scalar-32x64 p50 on long f16 full
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global sectors read on mission f16 full
    ");
}

#[test]
fn counters_of_another_host_compiler_are_not_comparable() {
    let base = counted_alone(1_048_576, 0);
    let new =
        counted_alone(2_097_152, 0).changed(|session| session.host_compiler = "g++ 13".into());
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    0 SAME
    not comparable stage0-scalar/scalar-32x64 errors
    not comparable stage0-scalar/scalar-32x64 counters on mission f16 full
    ");
}

/// Returns a run of other kernels with 104 registers: 512 / 96 are five blocks, 512 / 104 four.
fn with_fewer_blocks(us: [f64; 3], spills: u32) -> Run {
    timed(us)
        .built_throughout(104, spills)
        .rebuilt()
        .for_each_variant(|run, subject| run.with_code(subject, "new"))
}

/// Returns a run of kernels with fewer blocks that are faster.
fn faster_with_fewer_blocks(spills: u32) -> Run {
    with_fewer_blocks([28.8, 18.0, 13.5], spills)
}

/// Returns a run of kernels with five blocks.
fn with_five_blocks() -> Run {
    timed(US).built_throughout(96, 0)
}

#[test]
fn more_registers_for_as_many_blocks_are_a_change_alone() {
    let base = timed(US).built_throughout(88, 0);
    let new = with_five_blocks();
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    0 SAME
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    ");
}

#[test]
fn fewer_blocks_are_worse() {
    let base = with_five_blocks();
    let new = timed(US).built_throughout(104, 0);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 REGRESSION
    worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    ");
}

#[test]
fn fewer_blocks_in_more_time_are_worse() {
    let base = with_five_blocks();
    let new = with_fewer_blocks([35.0, 18.0, 13.5], 0);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 MIXED
    worse stage0-scalar/scalar-32x64 p50 on mission f16 full
    worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    ");
}

#[test]
fn spilled_bytes_are_worse() {
    let base = with_five_blocks();
    let new = timed(US).built_throughout(96, 8);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 FAIL
    worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
    worse stage0-scalar/scalar-32x64 spilled bytes on f16 d64 sm_90a
    ");
}

#[test]
fn fewer_blocks_in_less_time_are_a_change_alone() {
    let base = with_five_blocks();
    let new = faster_with_fewer_blocks(0);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    0 IMPROVED
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    ");
}

#[test]
fn spilled_bytes_in_less_time_are_worse() {
    let base = with_five_blocks();
    let new = faster_with_fewer_blocks(8);
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 FAIL
    worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    worse stage0-scalar/scalar-32x64 spilled bytes on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    ");
}

#[test]
fn fewer_blocks_of_another_element_type_are_worse_whatever_f16_takes() {
    let base = with_five_blocks().with_row(row("scalar | e4m3 d64 sm_90a | ptxas | occupancy 0.3"));
    let new = faster_with_fewer_blocks(0)
        .with_row(row("scalar | e4m3 d64 sm_90a | ptxas | occupancy 0.2"));
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 MIXED
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    worse stage0-scalar/scalar-32x64 occupancy on e4m3 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    ");
}

#[test]
fn fewer_blocks_are_worse_where_times_of_the_instance_disagree() {
    let base = with_five_blocks().with_row(row("scalar | long f16 full | gpu | p50 9"));
    let new = faster_with_fewer_blocks(0).with_row(row("scalar | long f16 full | gpu | p50 10"));
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 MIXED
    worse stage0-scalar/scalar-32x64 p50 on long f16 full
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    ");
}

#[test]
fn a_time_of_another_element_type_says_nothing_of_the_blocks() {
    let base = with_five_blocks().with_row(row("scalar | long e4m3 full | gpu | p50 9"));
    let new = faster_with_fewer_blocks(0).with_row(row("scalar | long e4m3 full | gpu | p50 10"));
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 MIXED
    worse stage0-scalar/scalar-32x64 p50 on long e4m3 full
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    ");
}

#[test]
fn a_time_of_another_head_size_says_nothing_of_the_blocks() {
    let base = with_five_blocks().with_row(row("scalar | 1x8x512x128 f16 full | gpu | p50 9"));
    let new =
        faster_with_fewer_blocks(0).with_row(row("scalar | 1x8x512x128 f16 full | gpu | p50 10"));
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 MIXED
    worse stage0-scalar/scalar-32x64 p50 on 1x8x512x128 f16 full
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    ");
}

#[test]
fn resources_of_another_nvcc_are_not_comparable() {
    let base = with_five_blocks();
    let new = timed(US).built_throughout(104, 8).changed(|session| {
        session.device_compiler = DeviceCompiler::Built {
            nvcc: "13.1".into(),
            flags: vec![],
            archs: vec!["sm_90a".into()],
        };
    });
    insta::assert_snapshot!(moved_of_scalar(&base, &new), @"
    1 FAIL
    worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
    not comparable stage0-scalar/scalar-32x64 resources on f16 d64 sm_90a
    ");
}
