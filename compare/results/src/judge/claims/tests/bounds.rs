//! Claims about counters, resources and other figures.

use super::*;

/// Returns a run with the bytes that ncu says [`WMMA`] and [`CPASYNC`] read.
fn with_ncu(run: Run, base: f64, new: f64) -> Run {
    let profile = |subject, bytes: f64| {
        Row::new(subject, Kind::Profile(mission())).figure(Metric::GlobalReadBytes, bytes)
    };
    run.with_row(profile(WMMA, base))
        .with_row(profile(CPASYNC, new))
}

#[test]
fn a_claim_about_counters_holds_where_they_are_equal() {
    let run = emulated();
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x");
}

#[test]
fn a_claim_about_counters_fails_for_one_byte() {
    let run = emulated().counted(CPASYNC, 1_048_577, 0);
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 1,048,577 / wmma-qk-32x64 1,048,576 = 1.000x");
}

#[test]
fn a_figure_of_ncu_holds_within_a_tenth() {
    let run = with_ncu(timed(US), 1_048_576.0, 1_142_948.0);
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu PASS: cpasync-32x64 1,142,948 / wmma-qk-32x64 1,048,576 = 1.090x
    ");
}

#[test]
fn a_figure_of_ncu_fails_beyond_a_tenth() {
    let run = with_ncu(timed(US), 1_048_576.0, 1_163_919.0);
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,163,919 / wmma-qk-32x64 1,048,576 = 1.110x
    ");
}

#[test]
fn a_figure_of_ncu_holds_within_a_range() {
    let run = with_ncu(
        timed(US).with_bound(1, 1, Metric::GlobalReadBytes, ratio(0.5, 1.0)),
        1_048_576.0,
        1_048_576.0,
    );
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    ");
}

#[test]
fn a_figure_of_ncu_has_no_tolerance_at_the_end_of_a_range() {
    let run = with_ncu(
        timed(US).with_bound(1, 1, Metric::GlobalReadBytes, ratio(0.5, 1.0)),
        1_048_576.0,
        1_101_004.0,
    );
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,101,004 / wmma-qk-32x64 1,048,576 = 1.050x
    ");
}

#[test]
fn a_figure_of_ncu_does_not_save_a_claim_that_the_emulator_refutes() {
    let run = with_ncu(emulated().counted(CPASYNC, 9, 0), 1_048_576.0, 1_048_576.0);
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    FAIL: cpasync-32x64 9 / wmma-qk-32x64 1,048,576 = 0.000x; ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    ");
}

#[test]
fn a_figure_of_ncu_over_nothing_fails() {
    let run = with_ncu(emulated(), 0.0, 1_048_576.0);
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 0
    ");
}

#[test]
fn counters_of_a_variant_that_was_not_counted_are_not_judged() {
    let run = emulated().without_row(CPASYNC, counters());
    insta::assert_snapshot!(judged(&run, 1, 1), @"not measured");
}

#[test]
fn counters_without_those_of_their_base_are_no_data() {
    let run = emulated().without_row(WMMA, counters());
    insta::assert_snapshot!(judged(&run, 1, 1), @"NO DATA: stage0-scalar/wmma-qk-32x64: not measured by emulator");
}

#[test]
fn figures_of_ncu_decide_without_the_emulator() {
    let run = with_ncu(
        emulated().without_row(WMMA, counters()),
        1_048_576.0,
        1_048_576.0,
    );
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x");
}

#[test]
fn a_kernel_that_was_not_traced_is_no_data() {
    let run = emulated().without_row(CPASYNC, counters()).with_row(row(
        "cpasync | mission f16 full | emulator | note no traced build",
    ));
    insta::assert_snapshot!(judged(&run, 1, 1), @"NO DATA: stage1-cpasync/cpasync-32x64: no traced build");
}

#[test]
fn a_kernel_with_a_race_is_no_data() {
    let run = emulated().without_row(CPASYNC, counters()).with_row(row("cpasync | mission f16 full | emulator | H1 fail race at kernel.cu:88 | global_read_bytes 9"));
    insta::assert_snapshot!(judged(&run, 1, 1), @"NO DATA: stage1-cpasync/cpasync-32x64: race at kernel.cu:88");
}

/// A second variant of the claiming family.
const WIDE: &str = "stage1-cpasync/cpasync-64x64";

/// Returns a run of two variants, which claim to read at most one byte; each reads so many.
fn with_bytes(first: Option<f64>, second: Option<f64>) -> Run {
    let mut run = emulated()
        .with_variant(CPASYNC, "cpasync-64x64")
        .with_bound(
            1,
            1,
            Metric::GlobalReadBytes,
            Relation::AtMost { bound: 1.0 },
        );
    for (subject, bytes) in [(CPASYNC, first), (WIDE, second)] {
        run = match bytes {
            Some(count) => run.with_figure(subject, counters(), Metric::GlobalReadBytes, count),
            None => run.without_figure(subject, counters(), Metric::GlobalReadBytes),
        };
    }
    run
}

fn verdict(run: &Run) -> Verdict {
    finding(run, 1, 1).unwrap().verdict
}

#[test]
fn a_variant_that_breaks_a_claim_fails_it_though_the_next_was_not_counted() {
    assert_eq!(verdict(&with_bytes(Some(2.0), None)), Verdict::Fail);
}

#[test]
fn a_variant_that_breaks_a_claim_fails_it_though_the_one_before_was_not_counted() {
    assert_eq!(verdict(&with_bytes(None, Some(2.0))), Verdict::Fail);
}

#[test]
fn variants_that_were_not_counted_are_no_data() {
    assert_eq!(verdict(&with_bytes(None, None)), Verdict::NoData);
}

#[test]
fn one_variant_that_was_not_counted_is_no_data() {
    assert_eq!(verdict(&with_bytes(Some(1.0), None)), Verdict::NoData);
}

#[test]
fn a_variant_that_has_no_row_is_not_asked() {
    let run = with_bytes(Some(1.0), None).without_subject(WIDE);
    assert_eq!(verdict(&run), Verdict::Pass);
}

/// Returns a run whose second stage reads half the bytes, with conflicts.
fn counted_and_built() -> Run {
    timed(US)
        .counted(CPASYNC, 524_288, 32)
        .built_throughout(96, 0)
}

/// Returns the promise of at most this.
fn at_most(bound: f64) -> Relation {
    Relation::AtMost { bound }
}

/// Returns the promise of at least this.
fn at_least(bound: f64) -> Relation {
    Relation::AtLeast { bound }
}

/// Returns the promise of a ratio to the first stage between these.
fn ratio(at_least: f64, at_most: f64) -> Relation {
    Relation::Ratio {
        base: Base {
            stage: "stage0-scalar",
            family: "wmma-qk",
        },
        at_least,
        at_most,
    }
}

#[test]
fn a_ratio_at_both_ends_of_its_bounds_holds() {
    let run = counted_and_built().with_bound(1, 1, Metric::GlobalReadBytes, ratio(0.5, 0.5));
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x");
}

#[test]
fn a_ratio_below_its_bounds_fails() {
    let run = counted_and_built().with_bound(1, 1, Metric::GlobalReadBytes, ratio(0.51, 0.8));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x");
}

#[test]
fn a_ratio_above_its_bounds_fails() {
    let run = counted_and_built().with_bound(1, 1, Metric::GlobalReadBytes, ratio(0.3, 0.49));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x");
}

#[test]
fn a_ratio_to_no_number_fails() {
    let run = counted_and_built().with_bound(1, 1, Metric::GlobalReadBytes, ratio(0.3, f64::NAN));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 524,288 / wmma-qk-32x64 1,048,576 = 0.500x");
}

#[test]
fn nothing_over_nothing_is_as_predicted() {
    let run = counted_and_built().with_bound(1, 1, Metric::SpillBytes, ratio(1.0, 1.0));
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 (sm_90a) 0 / wmma-qk-32x64 (sm_90a) 0");
}

#[test]
fn something_over_nothing_fails_whatever_the_factor() {
    let run = counted_and_built().with_bound(1, 1, Metric::SharedReadConflicts, ratio(0.0, 9.0));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 32 / wmma-qk-32x64 0");
}

#[test]
fn a_share_at_its_most_holds() {
    let run = counted_and_built().with_bound(1, 1, Metric::SharedReadConflictShare, at_most(0.25));
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 25.0 %");
}

#[test]
fn a_share_above_its_most_fails() {
    let run = counted_and_built().with_bound(1, 1, Metric::SharedReadConflictShare, at_most(0.24));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 25.0 %");
}

#[test]
fn a_figure_that_ncu_does_not_judge_is_the_emulators() {
    let run = counted_and_built()
        .with_bound(1, 1, Metric::SharedReadConflicts, at_most(32.0))
        .with_row(row(
            "cpasync | mission f16 full | ncu | shared_read_conflicts 99",
        ));
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 32");
}

#[test]
fn registers_at_their_most_hold() {
    let run = counted_and_built().with_bound(1, 1, Metric::Registers, at_most(96.0));
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 (sm_90a) 96");
}

#[test]
fn registers_that_are_no_number_fail() {
    let run = counted_and_built()
        .with_bound(1, 1, Metric::Registers, at_most(96.0))
        .with_figure(CPASYNC, instance(), Metric::Registers, f64::NAN);
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 (sm_90a) NaN");
}

#[test]
fn registers_at_their_least_hold() {
    let run = counted_and_built().with_bound(1, 1, Metric::Registers, at_least(96.0));
    insta::assert_snapshot!(judged(&run, 1, 1), @"PASS: cpasync-32x64 (sm_90a) 96");
}

#[test]
fn registers_below_their_least_fail() {
    let run = counted_and_built().with_bound(1, 1, Metric::Registers, at_least(96.5));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 (sm_90a) 96");
}

#[test]
fn an_occupancy_below_its_least_fails() {
    let run = counted_and_built().with_bound(1, 1, Metric::Occupancy, at_least(0.32));
    insta::assert_snapshot!(judged(&run, 1, 1), @"FAIL: cpasync-32x64 (sm_90a) 31.2 %");
}

#[test]
fn a_declared_figure_of_no_instance_is_no_data() {
    let run = counted_and_built().with_bound(1, 1, Metric::DynamicSharedBytes, at_most(1.0));
    insta::assert_snapshot!(judged(&run, 1, 1), @"NO DATA: stage1-cpasync/cpasync-32x64: it has no instance for f16 and head_dim 64");
}

#[test]
fn a_figure_that_only_ncu_measures_is_no_data() {
    let run = counted_and_built().with_bound(1, 1, Metric::BarrierStallShare, at_most(0.1));
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    NO DATA: stage1-cpasync/cpasync-32x64: only ncu measures it; `compare profile` on a GPU completes the run
    ");
}

#[test]
fn code_of_another_architecture_than_its_base_is_no_data() {
    let run = counted_and_built()
        .with_bound(1, 1, Metric::Registers, ratio(1.0, 1.0))
        .without_row(CPASYNC, instance())
        .with_row(row("cpasync | f16 d64 sm_89 | ptxas | registers 96"));
    insta::assert_snapshot!(judged(&run, 1, 1), @"NO DATA: cpasync was not compiled for the same architecture as its base");
}

#[test]
fn registers_that_nvcc_did_not_say_are_no_data() {
    let run = counted_and_built()
        .with_bound(1, 1, Metric::Registers, at_most(96.0))
        .without_source(Source::Ptxas);
    insta::assert_snapshot!(judged(&run, 1, 1), @"
    NO DATA: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    ");
}

#[test]
fn a_claim_is_about_the_instances_of_its_own_element_type() {
    let mut run = timed(US)
        .built_throughout(96, 0)
        .with_bound(1, 1, Metric::Registers, Relation::AtMost { bound: 96.0 })
        .with_row(row("cpasync | e4m3 d64 sm_90a | ptxas | registers 97"))
        .with_row(row("cpasync | mission e4m3 full | emulator | tiles 1"));
    run.session.stages[1].claims[1].place.dtype = Dtype::E4m3;
    assert!(judged(&run, 1, 1).starts_with("FAIL"));
}

#[test]
fn a_figures_claim_is_about_the_instances_of_its_own_head_size() {
    let mut run = timed(US)
        .built_throughout(96, 0)
        .with_bound(1, 1, Metric::Registers, Relation::AtMost { bound: 96.0 })
        .with_row(row("cpasync | f16 d128 sm_90a | ptxas | registers 97"))
        .with_row(row("cpasync | wide f16 full | emulator | tiles 1"));
    assert!(judged(&run, 1, 1).starts_with("PASS: cpasync-32x64 (sm_90a) 96"));
    run.session.stages[1].claims[1].place.shape = "wide".into();
    let wide = judged(&run, 1, 1);
    assert!(
        wide.starts_with("FAIL: cpasync-32x64 (sm_90a) 97"),
        "{wide}"
    );
    let run_of_declared = run.changed(|session| {
        session.stages[1].claims[1].metric = Metric::DynamicSharedBytes;
    });
    let declared = judged(&run_of_declared, 1, 1);
    assert!(
        declared.ends_with("no instance for f16 and head_dim 128"),
        "{declared}"
    );
}

/// Returns the variants of a family with these presets.
fn variants(family: &str, presets: &[&str]) -> Vec<VariantMeta> {
    presets
        .iter()
        .map(|preset| VariantMeta {
            name: format!("{family}-{preset}"),
            family: family.into(),
            serves: false,
            cache: None,
            kernels: instances(preset, &Dtype::ALL),
        })
        .collect()
}

/// Returns what is compared with what by a claim of `ours` over `base`, or what is lacking.
fn comparisons(base: Vec<VariantMeta>, ours: Vec<VariantMeta>) -> Vec<String> {
    let mut stages = ladder();
    stages[0].variants = base;
    stages[1].variants = ours;
    match figures::comparisons(&stages, &stages[1], &stages[1].claims[1]) {
        Ok(pairs) => pairs
            .iter()
            .map(|pair| {
                let beaten = pair.base.unwrap();
                format!("{} with {}", pair.new.variant.name, beaten.variant.name)
            })
            .collect(),
        Err(lack) => vec![lack.to_string()],
    }
}

#[test]
fn a_preset_that_both_families_have_is_compared() {
    let base = variants("wmma-qk", &["32x64", "64x64"]);
    let ours = variants("cpasync", &["64x64", "16x16"]);
    assert_eq!(
        comparisons(base, ours),
        ["cpasync-64x64 with wmma-qk-64x64"]
    );
}

#[test]
fn defaults_are_compared_without_a_preset_in_common() {
    let base = variants("wmma-qk", &["32x64", "64x64"]);
    let ours = variants("cpasync", &["16x16", "16x32"]);
    assert_eq!(
        comparisons(base, ours),
        ["cpasync-16x16 with wmma-qk-32x64"]
    );
}

#[test]
fn a_preset_that_its_problem_refuses_is_not_compared() {
    let mut base = variants("wmma-qk", &["16x16", "64x64"]);
    base[0].kernels.clear();
    let ours = variants("cpasync", &["16x16", "16x32"]);
    assert_eq!(
        comparisons(base, ours),
        ["cpasync-16x16 with wmma-qk-64x64"]
    );
}

#[test]
fn nothing_is_compared_with_a_family_that_is_not_there() {
    let ours = variants("cpasync", &["16x16", "16x32"]);
    assert_eq!(
        comparisons(vec![], ours),
        ["stage0-scalar has no family wmma-qk"]
    );
}

#[test]
fn a_variant_that_the_device_refuses_is_no_base() {
    let run = timed(US).without_variant(SCALAR);
    assert_eq!(judged(&run, 0, 0), "not measured");
    assert_eq!(
        judged(&run, 0, 1),
        "NO DATA: stage0-scalar has no family scalar"
    );
}
