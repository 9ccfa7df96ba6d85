//! B2: both front ends agree.

use crate::device::Execution;
use crate::verdict::{GateId, GateResult};

/// Judges B2: what nvcc emits leaves, in the interpreter, the bits that the emulator's own build
/// leaves. Both round as the sources say, so that any difference is one of them misreading the
/// kernel.
pub fn b2(built: &Execution, interpreted: &Execution) -> GateResult {
    let mut reasons = Vec::new();
    let mut ok = true;
    let outputs = ("output", Some(&built.output), Some(&interpreted.output));
    let lses = ("log-sum-exps", built.lse.as_ref(), interpreted.lse.as_ref());
    for (name, by_gcc, by_nvcc) in [outputs, lses] {
        let (ours, theirs) = match (by_gcc, by_nvcc) {
            (Some(bytes), Some(other_bytes)) => (bytes, other_bytes),
            (None, None) => continue,
            _ => return GateResult::fail(GateId::B2, format!("one of the two writes no {name}")),
        };
        if ours == theirs {
            reasons.push(format!("{} bytes of {name} are equal", ours.len()));
        } else {
            ok = false;
            reasons.push(difference(name, ours, theirs));
        }
    }
    GateResult::judge(GateId::B2, ok, reasons.join(", "))
}

/// Describes where two tensors of different bytes differ.
fn difference(name: &str, ours: &[u8], theirs: &[u8]) -> String {
    if ours.len() != theirs.len() {
        let (built, interpreted) = (ours.len(), theirs.len());
        return format!("{built} bytes of {name} by g++, {interpreted} by nvcc");
    }
    let mut differing = Vec::new();
    for (index, (a, b)) in ours.iter().zip(theirs).enumerate() {
        if a != b {
            differing.push(index);
        }
    }
    format!(
        "{} of {} bytes of {name} differ, the first at byte {}",
        differing.len(),
        ours.len(),
        differing[0]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn execution(output: &[u8], lse: Option<&[u8]>) -> Execution {
        Execution {
            changed_inputs: Default::default(),
            output: output.to_vec(),
            lse: lse.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn equal_bits_pass_and_are_counted() {
        let both = execution(&[1, 2, 3, 4], Some(&[5, 6, 7, 8]));
        let judged = b2(&both, &both.clone());
        assert_eq!(judged.verdict, Verdict::Pass);
        let reason = "4 bytes of output are equal, 4 bytes of log-sum-exps are equal";
        assert_eq!(judged.reason, reason);
    }

    #[test]
    fn one_bit_of_the_output_fails() {
        let judged = b2(&execution(&[1, 2], None), &execution(&[1, 3], None));
        assert_eq!(judged.verdict, Verdict::Fail);
        assert_eq!(
            judged.reason,
            "1 of 2 bytes of output differ, the first at byte 1"
        );
    }

    #[test]
    fn one_bit_of_a_log_sum_exp_fails() {
        let judged = b2(
            &execution(&[1], Some(&[0, 4])),
            &execution(&[1], Some(&[0, 5])),
        );
        assert!(judged.is_fail(), "{}", judged.reason);
    }

    #[test]
    fn a_missing_tensor_fails() {
        let judged = b2(&execution(&[1], Some(&[0])), &execution(&[1], None));
        assert!(judged.is_fail(), "{}", judged.reason);
        let shorter = b2(&execution(&[1, 2], None), &execution(&[1], None));
        assert!(shorter.is_fail(), "{}", shorter.reason);
    }
}
