use super::*;
use crate::inputs::Family;
use crate::record::store::to_json;
use serde_json::{Value, json};

const WHY: &str = "not gated for the causal mask";

/// Checked, with numbers that no other `salt` has and more digits than are kept.
fn checked(dtype: Dtype, salt: usize) -> Outcome {
    let noise = |scale: f64| scale * (1.0 + (salt % 9973) as f64 / 9973.0);
    let (at, row) = ([salt % 8, salt % 16, salt % 4096, salt % 128], [salt % 8, salt % 16, salt % 4096]);
    let end = || EndToEnd {
        max_abs: noise(0.0123),
        max_abs_at: at,
        mean_abs: noise(0.00123),
        bad_share: noise(1e-6),
        meets_seeds: true,
    };
    let errors = Errors {
        rows: 4096,
        sampled: false,
        probability: Probability::F16,
        max_abs: noise(1.234e-4),
        max_abs_at: at,
        mean_abs: noise(1.2e-6),
        max_row_rel: noise(3.1e-4),
        max_row_rel_at: row,
        rms_row_rel: noise(2.1e-4),
        allclose: noise(0.0123),
        allclose_at: at,
        nonzero_in_zero_row: None,
        plain_max_abs: 1.25e-4,
        plain_rms_row_rel: 2e-4,
        plain_rows: 4000.0,
        largest_score: 10.0,
        reference_max_abs: 0.75,
        end_to_end: (dtype == Dtype::E4m3).then(end),
    };
    use GateId::{C1, C2, C3, C4, C5, C6};
    let judge = |gate| match (gate, dtype) {
        (C4, Dtype::E4m3) => GateResult::no_data(gate, WHY),
        _ => GateResult::judge(gate, true, format!("measured {} at {at:?}, bound 1", errors.max_abs)),
    };
    let gates = [C1, C2, C3, C4, C5, C6].map(judge).to_vec();
    Outcome::Checked { errors, gates }
}

fn case(variant: usize, seed: u64, dtype: Dtype, outcome: Outcome) -> CaseResult {
    let key = CaseKey {
        stage: format!("stage{}-warpspec", variant / 8),
        variant: format!("warpspec-{}x64-k2", 16 * variant),
        backend: BackendKind::Cuda,
        shape_name: "1x8:2x113:203x64".into(),
        shape: Shape { batch: 1, heads_q: 8, heads_kv: 2, seq_q: 113, seq_kv: 203, head_dim: 64 },
        dtype,
        mask: Mask::Causal,
        source: Source::Seeded { family: Family::Normal, seed },
    };
    CaseResult { key, outcome }
}

fn record(cases: Vec<CaseResult>) -> Correctness {
    let planted = Planted::NotTried { reason: "literal".into() };
    let synchronisation = Synchronisation::default();
    Correctness { schema: 1, variants: vec![], cases, omitted_cases: 0, planted, synchronisation }
}

/// What is meant to be left after writing and reading.
fn kept(mut case: CaseResult) -> CaseResult {
    if let Outcome::Checked { errors, gates } = &mut case.outcome {
        *errors = Numbers::of(errors).errors(Compared::of(errors));
        gates.iter_mut().filter(|gate| gate.verdict == Verdict::Pass).for_each(|gate| gate.reason.clear());
    }
    case
}

fn read(value: &Value) -> Result<Correctness, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

#[test]
fn errors_keep_five_digits() {
    let table = [
        (1.234_567e-4, 1.2346e-4),
        (0.0, 0.0),
        (0.999_999, 1.0),
        (-65_504.0, -65_504.0),
        (5e-324, 5e-324),
        (1.234_567e9, 1.2346e9),
    ];
    for (value, kept) in table {
        assert_eq!(rounded(value), kept);
    }
    assert!(rounded(f64::NAN).is_nan());
    assert_eq!(rounded(f64::INFINITY), f64::INFINITY);
}

#[test]
fn every_kind_of_case_is_read_back_in_the_order_in_which_it_ran() {
    let mut failing = checked(Dtype::F16, 5);
    if let Outcome::Checked { errors, gates } = &mut failing {
        errors.nonzero_in_zero_row = Some([0, 1, 2, 3]);
        gates[2] = GateResult::judge(GateId::C3, false, "row [0, 1, 2] is 6.1e-1 off, bound 2.0e-3");
    }
    let mut e4m3_p = checked(Dtype::F16, 6);
    if let Outcome::Checked { errors, .. } = &mut e4m3_p {
        errors.probability = Probability::E4m3;
    }
    let unsupported = || Outcome::Unsupported { reason: "head_dim 128".into() };
    let cases = vec![
        case(3, 0, Dtype::F16, unsupported()),
        case(5, 0, Dtype::F16, checked(Dtype::F16, 1)),
        case(6, 0, Dtype::F16, failing),
        case(7, 0, Dtype::F16, checked(Dtype::F16, 1)),
        case(8, 0, Dtype::F16, unsupported()),
        case(9, 0, Dtype::F16, Outcome::Failed { reason: "deadlock at kernel.cu:88".into() }),
        case(4, 0, Dtype::F16, checked(Dtype::F16, 2)),
        case(4, 0, Dtype::F16, checked(Dtype::F16, 2)),
        case(5, 0, Dtype::F16, checked(Dtype::F16, 2)),
        case(10, 0, Dtype::F16, e4m3_p),
        case(4, 1, Dtype::F16, checked(Dtype::F16, 3)),
        case(4, 1, Dtype::E4m3, checked(Dtype::E4m3, 4)),
    ];
    let written: Value = serde_json::from_slice(&to_json(&record(cases.clone()))).unwrap();
    // A new group begins with the case that ran again, the one out of order, the other reference and the other problems.
    let groups = written["cases"].as_array().unwrap();
    assert_eq!(
        groups.iter().map(|group| group["rows"].as_array().unwrap().len()).collect::<Vec<_>>(),
        [5, 1, 1, 1, 1, 1]
    );
    assert_eq!(groups[0]["rows"][1][0], json!([1, 3]), "the same errors share a row");
    assert_eq!(read(&written).unwrap().cases, cases.into_iter().map(kept).collect::<Vec<_>>());
}

#[test]
fn an_error_that_is_no_number_survives() {
    let mut outcome = checked(Dtype::F16, 1);
    if let Outcome::Checked { errors, .. } = &mut outcome {
        errors.max_abs = f64::NAN;
    }
    let written: Value = serde_json::from_slice(&to_json(&record(vec![case(0, 0, Dtype::F16, outcome)]))).unwrap();
    assert_eq!(written["cases"][0]["rows"][0][2][0], Value::Null);
    let Outcome::Checked { errors, .. } = &read(&written).unwrap().cases[0].outcome else { panic!("not checked") };
    assert!(errors.max_abs.is_nan());
}

#[test]
fn records_with_an_object_per_case_are_read() {
    let cases = vec![case(0, 0, Dtype::F16, checked(Dtype::F16, 1)), case(1, 0, Dtype::E4m3, checked(Dtype::E4m3, 2))];
    let mut older = serde_json::to_value(record(vec![])).unwrap();
    let fields = older.as_object_mut().unwrap();
    for name in ["case_variants", "case_gates", "synchronisation"] {
        fields.remove(name).unwrap();
    }
    fields["cases"] = serde_json::to_value(&cases).unwrap();
    assert_eq!(read(&older).unwrap(), record(cases));
}

#[test]
fn what_points_outside_a_table_is_refused() {
    let good = serde_json::to_value(record(vec![case(0, 0, Dtype::F16, checked(Dtype::F16, 1))])).unwrap();
    let broken = |at: &str, with: Value, error: &str| {
        let mut value = good.clone();
        *value.pointer_mut(at).unwrap() = with;
        let found = read(&value).unwrap_err();
        assert!(found.contains(error), "{at}: {found}");
    };
    broken("/cases/0/rows/0/0", json!([7]), "variant 7 of 1");
    broken("/cases/0/rows/0/1", json!(3), "gates 3 of 1");
    broken("/cases/0/reference", Value::Null, "without what they were compared with");
    broken("/cases/0/rows/0", json!([[0]]), "did not match any variant");
}

/// A full run has 582 cases of each of 47 variants. Here no two variants agree in a single error.
#[test]
fn a_full_run_takes_less_than_six_megabytes() {
    let mut cases = Vec::new();
    for problem in 0..582 {
        let dtype = Dtype::ALL[problem % 2];
        let of_variant = |variant| case(variant, problem as u64, dtype, checked(dtype, 47 * problem + variant));
        cases.extend((0..47).map(of_variant));
    }
    let bytes = to_json(&record(cases)).len();
    assert!(bytes < 6_000_000, "{bytes}");
}
