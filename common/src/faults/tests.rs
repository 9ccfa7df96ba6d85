use super::*;
use crate::inputs::Operand;
use crate::problem::Shape;
use crate::serving::Serving;
use crate::verdict::Verdict;

#[test]
fn every_fault_is_killed_and_the_correct_model_is_not() {
    let caught = selftest();
    assert_eq!(caught.len(), 1 + Fault::ALL.len());
    for entry in &caught {
        let name = entry.fault.map_or("correct model", Fault::name);
        println!(
            "{name:20} {:3} of {:3} cases {:?}",
            entry.cases_failed, entry.cases, entry.gates_that_failed
        );
    }
    for entry in &caught {
        assert!(entry.is_as_expected(), "{entry:?}");
        assert!(entry.cases > 0, "{entry:?}");
    }
}

fn failed(dtype: Dtype, gates: &[GateId]) -> CaseVerdict {
    CaseVerdict {
        dtype,
        failed: gates.to_vec(),
    }
}

#[test]
fn a_fault_that_fails_somewhere_with_every_dtype_is_caught() {
    let cases = [
        failed(Dtype::F16, &[GateId::C2]),
        failed(Dtype::F16, &[]),
        failed(Dtype::E4m3, &[GateId::C3]),
    ];
    let caught = Caught::new(Some(Fault::DroppedTile), &cases);
    assert_eq!(caught.survived, []);
    assert_eq!(caught.cases_failed, 2);
    assert!(caught.is_as_expected());
}

#[test]
fn a_fault_that_survives_with_one_dtype_is_not_caught() {
    let cases = [
        failed(Dtype::F16, &[GateId::C2]),
        failed(Dtype::E4m3, &[]),
        failed(Dtype::E4m3, &[]),
    ];
    let caught = Caught::new(Some(Fault::DroppedTile), &cases);
    assert_eq!(caught.survived, [Dtype::E4m3]);
    assert_eq!(caught.cases_failed, 1);
    assert!(!caught.is_as_expected());
}

#[test]
fn a_fault_without_a_case_is_not_caught() {
    let caught = Caught::new(Some(Fault::DroppedTile), &[]);
    assert_eq!(caught.survived, []);
    assert_eq!(caught.cases_failed, 0);
    assert!(!caught.is_as_expected());
}

#[test]
fn the_correct_model_has_to_pass_every_gate() {
    let passed = [failed(Dtype::F16, &[]), failed(Dtype::E4m3, &[])];
    let caught = Caught::new(None, &passed);
    assert_eq!(caught.survived, [Dtype::F16, Dtype::E4m3]);
    assert_eq!(caught.cases_failed, 0);
    assert!(caught.is_as_expected());

    let broken = [failed(Dtype::F16, &[]), failed(Dtype::E4m3, &[GateId::C2])];
    let caught_by_c2 = Caught::new(None, &broken);
    assert_eq!(caught_by_c2.survived, [Dtype::F16]);
    assert_eq!(caught_by_c2.cases_failed, 1);
    assert!(!caught_by_c2.is_as_expected());
}

#[test]
fn c8_judges_the_correct_model_and_faults_of_log_sum_exps() {
    let problem = Problem::new(Shape::bhsd(1, 1, 5, 64), Dtype::F16, Mask::Full).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let exact = reference(&inputs, Probability::F16).unwrap();
    let is_judged_by_c8 = |fault| {
        let gates = judge(&inputs, Family::Normal, &exact, fault);
        gates.iter().any(|result| result.gate == GateId::C8)
    };
    assert!(is_judged_by_c8(None));
    assert!(is_judged_by_c8(Some(Fault::LseUnset)));
    assert!(!is_judged_by_c8(Some(Fault::DroppedTile)));
}

#[test]
fn tier_0_catches_states_that_start_or_end_elsewhere() {
    for fault in [Fault::MaximumFromZero, Fault::NeighbourState] {
        for dtype in Dtype::ALL {
            let is_caught = crate::tier0::extremes()
                .into_iter()
                .filter(|case| case.problem.dtype == dtype)
                .any(|case| fails_numeric_gates(&case, fault));
            assert!(is_caught, "{fault} on {dtype}");
        }
    }
}

fn fails_numeric_gates(case: &crate::tier0::Case, fault: Fault) -> bool {
    let inputs = Inputs::generate(&case.problem, case.family, 0);
    let exact = reference(&inputs, Probability::half(case.problem.dtype)).unwrap();
    let evidence = Evidence {
        problem: &case.problem,
        family: Some(case.family),
        reference: &exact,
        output: &model_output(&inputs, Some(fault)),
    };
    numeric_gates(&evidence).1.iter().any(GateResult::is_fail)
}

/// Returns inputs whose values are those of `drawn` times `scale`.
fn scaled(drawn: &Inputs, scale: f32) -> Inputs {
    let [q, k, v] = [&drawn.q, &drawn.k, &drawn.v].map(|operand| {
        let unquantised = operand.unquantised.iter().flatten();
        let values = unquantised.map(|value| value * scale).collect();
        Operand::rounded(operand.extents, Dtype::F16, values, None)
    });
    Inputs::from_parts(&drawn.problem, q, k, v).unwrap()
}

/// Returns the numeric gates that fail on inputs that were not drawn.
fn failed_gates(problem: &Problem, exact: &Reference, output: &[f32]) -> Vec<GateId> {
    let evidence = Evidence {
        problem,
        family: None,
        reference: exact,
        output,
    };
    let (_, gates) = numeric_gates(&evidence);
    gates
        .into_iter()
        .filter(|gate| gate.verdict == Verdict::Fail)
        .map(|gate| gate.gate)
        .collect()
}

/// C4's tolerance follows V: one element off fails it, and a row that is off a little everywhere is
/// left to C3.
#[test]
fn gates_mean_the_same_at_every_scale() {
    let shape = Shape {
        heads_kv: 1,
        ..Shape::bhsd(1, 2, 40, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    let drawn = Inputs::generate(&problem, Family::Normal, 5);
    for scale in [1e-3f32, 1.0, 100.0] {
        let inputs = scaled(&drawn, scale);
        let exact = reference(&inputs, Probability::F16).unwrap();
        let correct = model_output(&inputs, None);
        assert_eq!(failed_gates(&problem, &exact, &correct), [], "{scale}");

        let one_row_off = model_output(&inputs, Some(Fault::OneRowOff));
        let by_row = failed_gates(&problem, &exact, &one_row_off);
        assert!(by_row.contains(&GateId::C3), "{scale}: {by_row:?}");

        for element in [70, 64 * 50 + 9] {
            let mut one_element_off = correct.clone();
            let value = exact.output[element];
            one_element_off[element] =
                (value + 0.03 * exact.value_rms[element / 64] + 0.02 * value.abs()) as f32;
            let by_element = failed_gates(&problem, &exact, &one_element_off);
            assert!(by_element.contains(&GateId::C4), "{scale}: {by_element:?}");
        }
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_fault_changes_the_output_where_it_applies() {
    let shape = Shape {
        batch: 2,
        heads_q: 4,
        heads_kv: 2,
        seq_q: 75,
        seq_kv: 29,
        head_dim: 64,
        serving: Serving::DENSE,
    };
    for dtype in Dtype::ALL {
        let problem = Problem::new(shape, dtype, Mask::Causal).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 3);
        let correct_output = bits(&model_output(&inputs, None));
        let correct_lse = bits(&model_lse(&inputs, None));
        for fault in Fault::ALL {
            let is_changed = if fault.is_of_lse() {
                bits(&model_lse(&inputs, Some(fault))) != correct_lse
            } else {
                bits(&model_output(&inputs, Some(fault))) != correct_output
            };
            assert_eq!(is_changed, fault.applies_to(&problem), "{fault} on {dtype}");
        }
    }
}

#[test]
fn rows_of_the_model_are_those_of_its_whole_output() {
    let problem = Problem::new(Shape::bhsd(1, 2, 40, 64), Dtype::F16, Mask::Causal).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 3);
    let (whole, rows) = (model_output(&inputs, None), [0, 1, 7, 38, 39, 40, 77]);
    let part = Model::for_dtype(Dtype::F16).output(&inputs, &rows, None);
    for (values, row) in part.chunks(64).zip(rows) {
        assert_eq!(values, &whole[row * 64..][..64], "row {row}");
    }
}

#[test]
fn the_correct_model_passes_on_every_edge_shape() {
    let mut problems = Vec::new();
    for shape in crate::problem::edge_shapes() {
        for dtype in Dtype::ALL {
            for mask in Mask::ALL {
                problems.push(Problem::new(shape, dtype, mask).unwrap());
            }
        }
    }
    problems.into_par_iter().for_each(|problem| {
        let inputs = Inputs::generate(&problem, Family::Normal, 1);
        let half = Probability::half(problem.dtype);
        let exact = reference(&inputs, half).unwrap();
        for (block_n, probability) in [(32, half), (64, Probability::F32)] {
            let output = Model {
                block_n,
                probability,
            }
            .output(&inputs, &model::all_rows(&inputs), None);
            let evidence = Evidence {
                problem: &problem,
                family: Some(Family::Normal),
                reference: &exact,
                output: &output,
            };
            let (_, gates) = numeric_gates(&evidence);
            assert!(
                !gates.iter().any(GateResult::is_fail),
                "{problem:?} {block_n}: {gates:?}"
            );
        }
    });
}

#[test]
fn the_correct_model_has_margin_in_every_family() {
    for dtype in Dtype::ALL {
        for (family, mask) in Family::for_dtype(dtype)
            .iter()
            .flat_map(|&family| Mask::ALL.map(|mask| (family, mask)))
        {
            let problem = Problem::new(Shape::bhsd(1, 3, 130, 64), dtype, mask).unwrap();
            let inputs = Inputs::generate(&problem, family, 2);
            let probability = Probability::half(dtype);
            let exact = reference(&inputs, probability).unwrap();
            let model = Model {
                block_n: 64,
                probability,
            };
            let evidence = Evidence {
                problem: &problem,
                family: Some(family),
                reference: &exact,
                output: &model.output(&inputs, &model::all_rows(&inputs), None),
            };
            let (errors, _) = numeric_gates(&evidence);
            let case = format!("{family} {dtype} {mask}: {errors:?}");
            assert!(errors.max_abs <= 0.5 * errors.c2_bound(), "{case}");
            assert!(errors.max_row_rel <= 0.5 * errors.c3_bound(), "{case}");
            assert!(errors.allclose <= 0.5, "{case}");
        }
    }
}
