//! A case of a candidate: several calls that a correct one answers alike, and signs of those that
//! cheat.

use common::check::{Launched, NoOutput, Run, StagedInputs};
use common::device::{Execution, Staged, changed};
use common::image::Image;
use common::problem::Mask;
use common::reference::Probability;
use common::stage::Unsupported;
use common::verdict::{GateId, GateResult};
use measure::instrument::process::Scratch;
use measure::python::bench::read_and_remove;
use measure::python::session::{Python, SessionError};
use serde_json::json;
use std::sync::Arc;

/// One call of a case.
struct Call {
    label: &'static str,
    /// The memory that the candidate's process keeps for these calls.
    place: &'static str,
    /// Whether V has the other sign, and so the output.
    is_negated: bool,
}

/// The calls of a case. The first has its tensors where those of the previous case were, so that
/// results kept by address are wrong; so does the second, with other values, whose output is that
/// of the first with the opposite sign; the third has the first's values at other addresses. C5 and
/// C6 judge all three. All outputs are kept until the last call.
const CALLS: [Call; 3] = [
    Call {
        label: "call 1",
        place: "here",
        is_negated: false,
    },
    Call {
        label: "call 2, V negated",
        place: "here",
        is_negated: true,
    },
    Call {
        label: "call 3, other addresses",
        place: "elsewhere",
        is_negated: false,
    },
];

/// Calls the candidate on the strided tensors of `staged`. The caller judges what it wrote, and
/// computes the reference only then.
pub fn launch(
    python: &mut Python,
    exchange: &Scratch,
    staged: &Arc<StagedInputs>,
) -> Result<Launched, NoOutput> {
    let tensors = staged.of_launch(0);
    let mut runs: Vec<Run> = Vec::new();
    let mut findings: Vec<GateResult> = Vec::new();
    for call in &CALLS {
        let mut called = call.make(python, exchange, tensors).map_err(no_output)?;
        for (gate, problem) in called.findings {
            let reason = format!("{}: {problem}", call.label);
            findings.push(GateResult::fail(gate, reason));
        }
        if call.is_negated {
            let first = &runs[0].execution.output;
            undo_negation_of_v(tensors, first, &mut called.execution);
        }
        runs.push(Run {
            label: call.label.to_string(),
            index: 0,
            execution: called.execution,
        });
    }
    findings.dedup_by_key(|finding| finding.gate);
    Ok(Launched {
        staged: Arc::clone(staged),
        probability: Probability::of_operands(tensors.problem.dtype),
        runs,
        findings,
    })
}

fn no_output(error: anyhow::Error) -> NoOutput {
    match error.downcast_ref() {
        Some(SessionError::Unsupported(reason)) => Unsupported::ByItself {
            reason: reason.clone(),
        }
        .into(),
        _ => NoOutput::Failed {
            reason: format!("{error:#}"),
            fatal: false,
        },
    }
}

/// A call that returned.
struct Called {
    /// The gates that fail where it was made, with the reasons.
    findings: Vec<(GateId, String)>,
    execution: Execution,
}

impl Call {
    fn make(
        &self,
        python: &mut Python,
        exchange: &Scratch,
        tensors: &Staged,
    ) -> anyhow::Result<Called> {
        let after = |name: &str| exchange.path(&format!("{name}-after"));
        let mut arguments = json!({
            "peer": python.candidate.as_ref().map(|candidate| &candidate.name),
            "place": self.place,
            "dtype": tensors.problem.dtype,
            "fresh": self.label == CALLS[0].label,
            "causal": tensors.problem.mask == Mask::Causal,
            "scale": tensors.problem.softmax_scale,
            "output": exchange.path("o"),
        });
        let given = tensors.inputs.each_ref().map(|operand| {
            let mut bytes = operand.image.bytes.clone();
            if self.is_negated && operand.name == "v" {
                negate(&operand.image, &mut bytes);
            }
            (operand.name, bytes)
        });
        for (operand, (_, bytes)) in tensors.inputs.iter().zip(&given) {
            let image = &operand.image;
            arguments[operand.name] = json!({
                "file": exchange.write(operand.name, bytes)?,
                "after": after(operand.name),
                "offset": image.offset,
                "extents": image.extents,
                "strides": image.strides,
                "scales": operand.scales,
            });
        }
        python.start()?;
        let findings = python.ask("call", arguments)?;
        let dense = read_and_remove(&exchange.path("o"));
        let execution = Execution {
            changed_inputs: given.map(|(name, bytes)| {
                // A file that cannot be read has no bytes, which gate C6 fails.
                changed(&bytes, &std::fs::read(after(name)).unwrap_or_default())
            }),
            output: tensors.output.with_elements(&dense),
            lse: None,
        };
        Ok(Called {
            findings,
            execution,
        })
    }
}

/// Turns the sign of all elements; NaN stays NaN.
fn negate(image: &Image, bytes: &mut [u8]) {
    for element in bytes.chunks_exact_mut(image.element_bytes) {
        element[image.element_bytes - 1] ^= 0x80;
    }
}

/// Turns what a call wrote for V negated into what it would have written for V, for which it wrote
/// `first`: negating all products changes no rounding, so that a correct output has the same bits
/// but for the sign. Elements without a sign to turn become those of `first`: a sum that cancels is
/// +0 in both, and the sign of NaN means nothing.
fn undo_negation_of_v(tensors: &Staged, first: &[u8], execution: &mut Execution) {
    for (operand, after) in tensors.inputs.iter().zip(&mut execution.changed_inputs) {
        if let ("v", Some(bytes)) = (operand.name, after) {
            negate(&operand.image, bytes);
        }
    }
    let output = &mut execution.output;
    let values = tensors
        .values(first)
        .into_iter()
        .zip(tensors.values(output));
    // The bytes around the output's elements stay.
    let elements = tensors
        .output
        .element_ranges()
        .flat_map(|row| row.step_by(2));
    for (at, (first_value, value)) in elements.zip(values) {
        let is_unsigned =
            (first_value == 0.0 && value == 0.0) || (first_value.is_nan() && value.is_nan());
        if is_unsigned {
            output[at..at + 2].copy_from_slice(&first[at..at + 2]);
        } else {
            output[at + 1] ^= 0x80;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::image::Layout;
    use common::inputs::{Family, Inputs};
    use common::problem::{Dtype, Problem, Shape};

    #[test]
    fn an_output_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o");
        std::fs::write(&path, [7]).unwrap();
        assert_eq!(
            [read_and_remove(&path), read_and_remove(&path)],
            [vec![7], vec![]]
        );
    }

    #[test]
    fn negated_values_are_negated_and_nothing_else_is() {
        for dtype in Dtype::ALL {
            let problem = Problem::new(Shape::bhsd(1, 1, 3, 64), dtype, Mask::Full).unwrap();
            let inputs = Inputs::generate(&problem, Family::Normal, 0);
            let image = &Staged::new(&inputs, Layout::Strided).inputs[2].image;
            let mut bytes = image.bytes.clone();
            negate(image, &mut bytes);
            let differ = bytes.iter().zip(&image.bytes).map(|(a, b)| a ^ b);
            let expected = if dtype.bytes() == 2 { 0x80 } else { 0 };
            assert!(
                differ
                    .enumerate()
                    .all(|(at, source)| source == if at % 2 == 1 { 0x80 } else { 0x80 - expected })
            );
            negate(image, &mut bytes);
            assert_eq!(bytes, image.bytes);
        }
    }

    /// A right candidate leaves on V negated what it left on V, but for the sign; a wrong one does
    /// not.
    #[test]
    fn what_is_left_on_v_negated_is_turned_back_but_for_what_has_no_sign() {
        for dtype in Dtype::ALL {
            let problem = Problem::new(Shape::bhsd(1, 1, 1, 64), dtype, Mask::Full).unwrap();
            let tensors = Staged::new(
                &Inputs::generate(&problem, Family::Normal, 0),
                Layout::Strided,
            );
            let left = |values: [u16; 4], negated: bool| {
                let dense: Vec<u8> = values
                    .repeat(16)
                    .into_iter()
                    .flat_map(u16::to_le_bytes)
                    .collect();
                // Each was written to, in its last byte.
                let changed_inputs = [0, 1, 2].map(|i| {
                    let image = &tensors.inputs[i].image;
                    let mut bytes = image.bytes.clone();
                    *bytes.last_mut().unwrap() ^= 1;
                    if negated && i == 2 {
                        negate(image, &mut bytes);
                    }
                    Some(bytes)
                });
                let output = tensors.output.with_elements(&dense);
                let lse = None;
                Execution {
                    changed_inputs,
                    output,
                    lse,
                }
            };
            // 0, a NaN of both formats, and two numbers.
            let first = left([0x0000, 0x7FFF, 0x3C00, 0xBC01], false);
            let turned = |values| {
                let mut execution = left(values, true);
                undo_negation_of_v(&tensors, &first.output, &mut execution);
                assert_eq!(execution.changed_inputs, first.changed_inputs);
                execution.output == first.output
            };
            assert!(turned([0x8000, 0xFFFF, 0xBC00, 0x3C01]));
            assert!(turned([0x0000, 0x7FFF, 0xBC00, 0x3C01]));
            for wrong in [
                [0x0000, 0x7FFF, 0x3C00, 0xBC01],
                [0x0001, 0x7FFF, 0xBC00, 0x3C01],
                [0x0000, 0x0000, 0xBC00, 0x3C01],
                [0x0000, 0x7FFF, 0x7FFF, 0x3C01],
                [0x0000, 0x7FFF, 0xBC00, 0x0000],
                [0; 4],
            ] {
                assert!(!turned(wrong), "{wrong:04x?}");
            }
        }
    }
}
