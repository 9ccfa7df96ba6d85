use super::*;
use common::problem::{Dtype, Mask};
use common::verdict::GateResult;
use std::collections::BTreeSet;

fn read(line: &str) -> Result<Row, serde_json::Error> {
    serde_json::from_str(line)
}

#[test]
fn a_row_is_one_line_of_flat_columns_that_reads_back() {
    let mut row = Row::new(
        "stage5-swizzle/swizzle-32x256-k4",
        Kind::Latency(ProblemPlace::claims(Dtype::F16)),
    )
    .conditions("warm L2")
    .figure(Metric::P50, (5.2741, 5.2722, 5.2758))
    .figure(Metric::Samples, 500_usize)
    .verdict(&GateResult::judge(GateId::C1, false, "NaN left"))
    .rounded();
    row.session = "20261125T070721Z-nvidia-h200".into();
    (row.identity, row.code) = (Some("4fa9be5bc56bd684".into()), Some("0123".into()));
    let line = serde_json::to_string(&row).unwrap();
    insta::assert_snapshot!(line, @r#"{"subject":"stage5-swizzle/swizzle-32x256-k4","shape":"mission","dtype":"f16","mask":"full","by":"gpu","under":"warm L2","session":"20261125T070721Z-nvidia-h200","identity":"4fa9be5bc56bd684","code":"0123","p50":5.274,"p50_low":5.272,"p50_high":5.276,"samples":500,"C1":"fail","C1_reason":"NaN left"}"#);
    assert_eq!(read(&line).unwrap(), row);
    let unknown = line.replace("\"under\"", "\"until\"");
    assert_eq!(
        read(&unknown).unwrap(),
        Row {
            conditions: None,
            ..row
        }
    );
}

fn problem() -> ProblemPlace {
    ProblemPlace::new("1x2:1x113:203x64", Dtype::F16, Mask::Causal)
}

fn case() -> CasePlace {
    CasePlace {
        problem: problem(),
        input: "a b.safetensors".into(),
    }
}

/// Returns one row of each kind, in the order of the kinds.
fn row_of_each_kind() -> Vec<Row> {
    use BackendKind::{Cuda, Emulated};
    let instance = Instance {
        dtype: Dtype::E4m3,
        head_dim: 128,
    };
    let cold = ProblemPlace {
        cold: true,
        ..problem()
    };
    let site = "kernel.cu:166 __syncthreads: \"tile read\"";
    let kinds = [
        ("s/v", Kind::Declared(instance)),
        (
            "s/v",
            Kind::Compiled {
                instance,
                arch: "sm_90a".into(),
            },
        ),
        ("s/v", Kind::Checked(Emulated)),
        ("s/v", Kind::Checked(Cuda)),
        ("s/v", Kind::Case(Emulated, case())),
        ("s/v", Kind::Case(Cuda, case())),
        ("s/v", Kind::Counters(problem())),
        ("s/v", Kind::Latency(cold)),
        (
            "s/v",
            Kind::Pair {
                problem: problem(),
                base: "s/w".into(),
            },
        ),
        ("s/v", Kind::RandomTime(problem())),
        ("attention-ladder", Kind::Regret),
        ("ceiling", Kind::PeerSession),
        ("torch-flash", Kind::PeerTime(problem())),
        (
            "s/v",
            Kind::PeerPair {
                problem: problem(),
                base: "torch-flash".into(),
            },
        ),
        ("mine.py:attention", Kind::CandidateCase(case())),
        ("s/v", Kind::Profile(problem())),
        ("s/v", Kind::Sanitized),
        ("self-test", Kind::Fault("timers".into())),
        ("s/v", Kind::Site(site.into())),
        ("self-test", Kind::whole_timer()),
        ("self-test", Kind::timer("injected delay")),
        ("s/f", Kind::Claim("f p50 over x on mission".into())),
        ("a.safetensors", Kind::GivenOutput("out, full mask".into())),
    ];
    kinds.map(|(subject, kind)| Row::new(subject, kind)).into()
}

/// The number of kinds.
const KINDS: usize = 20;

/// Returns the number of a kind, below [`KINDS`]. A new kind gets the next, and a row in
/// [`row_of_each_kind`].
fn number_of(kind: &Kind) -> usize {
    match kind {
        Kind::Declared(_) => 0,
        Kind::Compiled { .. } => 1,
        Kind::Checked(_) => 2,
        Kind::Case(..) => 3,
        Kind::Counters(_) => 4,
        Kind::Latency(_) => 5,
        Kind::Pair { .. } => 6,
        Kind::RandomTime(_) => 7,
        Kind::Regret => 8,
        Kind::PeerSession => 9,
        Kind::PeerTime(_) => 10,
        Kind::PeerPair { .. } => 11,
        Kind::CandidateCase(_) => 12,
        Kind::Profile(_) => 13,
        Kind::Sanitized => 14,
        Kind::Fault(_) => 15,
        Kind::Site(_) => 16,
        Kind::Timer(_) => 17,
        Kind::Claim(_) => 18,
        Kind::GivenOutput(_) => KINDS - 1,
    }
}

#[test]
fn the_list_has_a_row_of_each_kind() {
    let mut numbers = BTreeSet::new();
    for row in row_of_each_kind() {
        numbers.insert(number_of(&row.kind));
    }
    assert_eq!(numbers, (0..KINDS).collect());
}

#[test]
fn a_row_of_each_kind_reads_back() {
    for row in row_of_each_kind() {
        let read = read(&serde_json::to_string(&row).unwrap()).unwrap();
        assert_eq!(read, row);
        // Two kinds with the same columns are equal, and still two.
        let (kind, before) = (format!("{:?}", read.kind), format!("{:?}", row.kind));
        assert_eq!(kind, before);
    }
}

#[test]
fn no_kind_comes_before_the_first() {
    for row in row_of_each_kind() {
        assert!(Kind::FIRST <= row.kind, "{:?}", row.kind);
    }
}

/// Returns why a line is no row.
#[track_caller]
fn refusal(line: &str) -> String {
    read(line).unwrap_err().to_string()
}

#[test]
fn a_list_is_no_row() {
    let refusal = refusal("[]");
    insta::assert_snapshot!(refusal, @"invalid type: sequence, expected columns at line 1 column 0");
}

#[test]
fn a_row_without_a_subject_is_refused() {
    let refusal = refusal(r#"{"by":"gpu"}"#);
    insta::assert_snapshot!(refusal, @"missing field `subject`");
}

#[test]
fn a_row_without_a_source_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v"}"#);
    insta::assert_snapshot!(refusal, @"missing field `by`");
}

#[test]
fn an_unknown_source_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"nobody"}"#);
    insta::assert_snapshot!(refusal, @"
    column `by`: unknown variant `nobody`, expected one of `kernel`, `ptxas`, `emulator`, `gpu`, `draw`, `peers`, `ncu`, `compute-sanitizer`, `self-test`, `claim`, `input`
    ");
}

#[test]
fn a_problem_without_a_mask_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","shape":"mission","dtype":"f16"}"#);
    insta::assert_snapshot!(refusal, @"missing field `mask`");
}

#[test]
fn a_problem_without_an_element_type_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","shape":"mission","mask":"full"}"#);
    insta::assert_snapshot!(refusal, @"missing field `dtype`");
}

#[test]
fn an_instance_without_a_head_size_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","dtype":"f16"}"#);
    insta::assert_snapshot!(refusal, @"missing field `head_dim`");
}

#[test]
fn a_figure_in_words_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":"fast"}"#);
    insta::assert_snapshot!(refusal, @r#"column `p50`: invalid type: string "fast", expected f64"#);
}

#[test]
fn an_unknown_verdict_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","C1":"perhaps"}"#);
    insta::assert_snapshot!(refusal, @"
    column `C1`: unknown variant `perhaps`, expected one of `pass`, `fail`, `no_data`, `ambiguous`
    ");
}

#[test]
fn a_time_of_nothing_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":0}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_time_below_nothing_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":-5.2}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: p50 is -5.2, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_time_that_is_no_number_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":null}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: p50 is NaN, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_time_below_its_interval_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.3,"p50_high":5.4}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: p50 is 5.2 [5.3, 5.4], which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_time_above_its_interval_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.0,"p50_high":5.1}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: p50 is 5.2 [5, 5.1], which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn an_interval_that_ends_in_no_number_is_refused() {
    let refusal =
        refusal(r#"{"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.1,"p50_high":null}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: p50 is 5.2 [5.1, NaN], which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn an_interval_with_one_end_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":5.2,"p50_low":5.1}"#);
    insta::assert_snapshot!(refusal, @"an interval has two ends: `p50_low` and `p50_high`");
}

#[test]
fn a_figure_that_is_there_twice_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","p50":5.2,"p50":3.1}"#);
    insta::assert_snapshot!(refusal, @"duplicate field `p50` at line 1 column 48");
}

#[test]
fn a_count_below_nothing_is_refused() {
    let refusal = refusal(
        r#"{"subject":"s/v","dtype":"f16","head_dim":64,"arch":"sm_90a","by":"ptxas","spill_bytes":-8}"#,
    );
    insta::assert_snapshot!(refusal, @"
    s/v on f16 d64 sm_90a by ptxas: spilled bytes is -8, which cannot be measured: it must be 0 or a positive number; measure it again
    ");
}

#[test]
fn a_time_of_nothing_under_ncu_is_refused() {
    let refusal = refusal(
        r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"ncu","profiled_ns":0}"#,
    );
    insta::assert_snapshot!(refusal, @"
    s/v on mission f16 full by ncu: time under ncu is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_speedup_of_nothing_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","speedup_p50":0.0}"#);
    insta::assert_snapshot!(refusal, @"
    s/v on all by gpu: speedup p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn resources_of_no_instance_are_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"ptxas"}"#);
    insta::assert_snapshot!(refusal, @"no row by ptxas has these columns of a place and of another arm");
}

#[test]
fn resources_of_no_architecture_are_refused() {
    let refusal = refusal(r#"{"subject":"s/v","dtype":"f16","head_dim":64,"by":"ptxas"}"#);
    insta::assert_snapshot!(refusal, @"no row by ptxas has these columns of a place and of another arm");
}

#[test]
fn a_declaration_of_an_architecture_is_refused() {
    let refusal =
        refusal(r#"{"subject":"s/v","dtype":"f16","head_dim":64,"arch":"sm_90a","by":"kernel"}"#);
    insta::assert_snapshot!(refusal, @"no row by kernel has these columns of a place and of another arm");
}

#[test]
fn a_pair_on_no_problem_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","by":"gpu","against":"s/w"}"#);
    insta::assert_snapshot!(refusal, @"no row by gpu has these columns of a place and of another arm");
}

#[test]
fn a_pair_of_counters_is_refused() {
    let refusal = refusal(
        r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"emulator","against":"s/w"}"#,
    );
    insta::assert_snapshot!(refusal, @"no row by emulator has these columns of a place and of another arm");
}

#[test]
fn a_random_time_of_an_item_is_refused() {
    let refusal = refusal(r#"{"subject":"s/v","item":"x","by":"draw"}"#);
    insta::assert_snapshot!(refusal, @"no row by draw has these columns of a place and of another arm");
}

#[test]
fn an_error_that_is_no_number_is_a_finding() {
    let row = read(r#"{"subject":"s/v","by":"gpu","max_error":null}"#).unwrap();
    assert!(row.value(Metric::MaxError).unwrap().is_nan());
}
