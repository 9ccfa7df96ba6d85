use super::*;
use crate::inputs::Operand;
use crate::problem::Shape;
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
        assert!(entry.as_it_should(), "{entry:?}");
        assert!(entry.cases > 0, "{entry:?}");
    }
}

/// Which has to fail with every dtype; the correct model is judged like all, and by C8 too.
#[test]
fn a_fault_that_survives_with_one_dtype_is_seen() {
    use GateId::{C2, C3, C8};
    let (f16, e4m3) = (Dtype::F16, Dtype::E4m3);
    let fault = Some(Fault::DroppedTile);
    for (fault, failed, survived, is_right) in [
        (
            fault,
            vec![(f16, vec![C2]), (f16, vec![]), (e4m3, vec![C3])],
            vec![],
            true,
        ),
        (
            fault,
            vec![(f16, vec![C2]), (e4m3, vec![]), (e4m3, vec![])],
            vec![e4m3],
            false,
        ),
        (fault, vec![], vec![], false),
        (
            None,
            vec![(f16, vec![]), (e4m3, vec![])],
            vec![f16, e4m3],
            true,
        ),
        (
            None,
            vec![(f16, vec![]), (e4m3, vec![C2])],
            vec![f16],
            false,
        ),
    ] {
        let caught = Caught::of(fault, &failed);
        assert_eq!(
            (&caught.survived, caught.as_it_should()),
            (&survived, is_right),
            "{failed:?}"
        );
        let is_failed = !caught.gates_that_failed.is_empty();
        assert_eq!(caught.cases_failed > 0, is_failed, "{failed:?}");
    }
    let problem = Problem::new(Shape::bhsd(1, 1, 5, 64), f16, Mask::Full).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let reference = reference(&inputs, Probability::F16).unwrap();
    let judged_by_c8 = |fault| {
        let gates = judge(&inputs, Family::Normal, &reference, fault);
        gates.iter().any(|result| result.gate == C8)
    };
    assert!(judged_by_c8(None) && judged_by_c8(Some(Fault::LseUnset)) && !judged_by_c8(fault));
}

#[test]
fn tier_0_catches_states_that_start_or_end_elsewhere() {
    for fault in [Fault::MaximumFromZero, Fault::NeighbourState] {
        for dtype in Dtype::ALL {
            let fails = |&crate::tier0::Case {
                             ref problem,
                             family,
                             ..
                         }: &crate::tier0::Case| {
                let inputs = Inputs::generate(problem, family, 0);
                let reference = reference(&inputs, Probability::half(dtype)).unwrap();
                let output = model_output(&inputs, Some(fault));
                let evidence = Evidence {
                    problem,
                    family: Some(family),
                    reference: &reference,
                    output: &output,
                };
                numeric_gates(&evidence).1.iter().any(GateResult::is_fail)
            };
            let cases = crate::tier0::extremes()
                .into_iter()
                .filter(|case| case.problem.dtype == dtype);
            assert!(cases.filter(fails).count() > 0, "{fault} on {dtype}");
        }
    }
}

/// C4's tolerance follows V: one element off fails it, and a row that is off a little everywhere is left to C3.
#[test]
fn gates_mean_the_same_at_every_scale() {
    let problem = Problem::new(
        Shape {
            heads_kv: 1,
            ..Shape::bhsd(1, 2, 40, 64)
        },
        Dtype::F16,
        Mask::Full,
    )
    .unwrap();
    let drawn = Inputs::generate(&problem, Family::Normal, 5);
    for scale in [1e-3f32, 1.0, 100.0] {
        let scaled = |operand: &Operand| {
            let values = operand
                .unquantised
                .iter()
                .flatten()
                .map(|value| value * scale)
                .collect();
            Operand::rounded(operand.extents, Dtype::F16, values, None)
        };
        let [q, k, v] = [&drawn.q, &drawn.k, &drawn.v].map(scaled);
        let inputs = Inputs::from_parts(&problem, q, k, v).unwrap();
        let reference = reference(&inputs, Probability::F16).unwrap();
        let failed = |output: &[f32]| {
            let evidence = Evidence {
                problem: &problem,
                family: None,
                reference: &reference,
                output,
            };
            let (_, gates) = numeric_gates(&evidence);
            gates
                .into_iter()
                .filter(|gate| gate.verdict == Verdict::Fail)
                .map(|gate| gate.gate)
                .collect::<Vec<_>>()
        };
        let correct = model_output(&inputs, None);
        assert_eq!(failed(&correct), [], "{scale}");
        let row = failed(&model_output(&inputs, Some(Fault::OneRowOff)));
        assert!(row.contains(&GateId::C3), "{scale}: {row:?}");
        for element in [70, 64 * 50 + 9] {
            let mut output = correct.clone();
            let exact = reference.output[element];
            output[element] =
                (exact + 0.03 * reference.value_rms[element / 64] + 0.02 * exact.abs()) as f32;
            let one = failed(&output);
            assert!(one.contains(&GateId::C4), "{scale}: {one:?}");
        }
    }
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
    };
    for dtype in Dtype::ALL {
        let problem = Problem::new(shape, dtype, Mask::Causal).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 3);
        let bits = |output: Vec<f32>| output.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let correct = bits(model_output(&inputs, None));
        let lse_bits = |fault| -> Vec<u32> {
            let lse = model_lse(&inputs, fault);
            lse.into_iter().map(f32::to_bits).collect()
        };
        for fault in Fault::ALL {
            let changed = match fault.is_of_lse() {
                true => lse_bits(Some(fault)) != lse_bits(None),
                false => bits(model_output(&inputs, Some(fault))) != correct,
            };
            assert_eq!(changed, fault.applies_to(&problem), "{fault} on {dtype}");
        }
    }
}

#[test]
fn rows_of_the_model_are_those_of_its_whole_output() {
    let problem = Problem::new(Shape::bhsd(1, 2, 40, 64), Dtype::F16, Mask::Causal).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 3);
    let (whole, rows) = (model_output(&inputs, None), [0, 1, 7, 38, 39, 40, 77]);
    let part = Model::of(Dtype::F16).output(&inputs, &rows, None);
    for (values, row) in part.chunks(64).zip(rows) {
        assert_eq!(values, &whole[row * 64..][..64], "row {row}");
    }
}

#[test]
fn the_correct_model_passes_on_every_edge_shape() {
    let cases: Vec<(Shape, Dtype, Mask)> = crate::problem::edge_shapes()
        .into_iter()
        .flat_map(|shape| {
            Dtype::ALL
                .into_iter()
                .flat_map(move |d| Mask::ALL.into_iter().map(move |m| (shape, d, m)))
        })
        .collect();
    cases.into_par_iter().for_each(|(shape, dtype, mask)| {
        let problem = Problem::new(shape, dtype, mask).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 1);
        let half = Probability::half(dtype);
        let reference = reference(&inputs, half).unwrap();
        for (block_n, probability) in [(32, half), (64, Probability::F32)] {
            let output = Model {
                block_n,
                probability,
            }
            .output(&inputs, &model::all_rows(&inputs), None);
            let evidence = Evidence {
                problem: &problem,
                family: Some(Family::Normal),
                reference: &reference,
                output: &output,
            };
            let (_, gates) = numeric_gates(&evidence);
            assert!(
                !gates.iter().any(GateResult::is_fail),
                "{shape} {dtype} {mask} {block_n}: {gates:?}"
            );
        }
    });
}

#[test]
fn the_correct_model_has_margin_in_every_family() {
    for dtype in Dtype::ALL {
        for (&family, mask) in Family::for_dtype(dtype)
            .iter()
            .flat_map(|f| Mask::ALL.map(|mask| (f, mask)))
        {
            let problem = Problem::new(Shape::bhsd(1, 3, 130, 64), dtype, mask).unwrap();
            let inputs = Inputs::generate(&problem, family, 2);
            let probability = Probability::half(dtype);
            let reference = reference(&inputs, probability).unwrap();
            let output = Model {
                block_n: 64,
                probability,
            }
            .output(&inputs, &model::all_rows(&inputs), None);
            let evidence = Evidence {
                problem: &problem,
                family: Some(family),
                reference: &reference,
                output: &output,
            };
            let (errors, _) = numeric_gates(&evidence);
            assert!(
                errors.max_abs <= 0.5 * errors.c2_bound(),
                "{family} {dtype} {mask}: {errors:?}"
            );
            assert!(
                errors.max_row_rel <= 0.5 * errors.c3_bound(),
                "{family} {dtype} {mask}: {errors:?}"
            );
            assert!(
                errors.allclose <= 0.5,
                "{family} {dtype} {mask}: {errors:?}"
            );
        }
    }
}
