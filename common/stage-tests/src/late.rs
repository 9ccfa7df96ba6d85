//! Warps that come late, where rings of tiles are filled several times: who frees a slot must know that all that wait for it
//! have gone on, or a late one waits by parity for a phase that never ends.

use common::check::{Outcome, Source, Target, check};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::reference;
use common::stage::{Attention, LoadedStage};
use common::verdict::Verdict;
use emulator::Schedule;

/// In each block another warp is late.
const SCHEDULES: [Schedule; 1] = [Schedule::Starving(1)];

/// Few rows, so that most warps of a block have none, in several blocks; and more tiles than twice the slots of the longest ring
/// (6 of 64 keys or 4 of 128, and with E4M3 at head_dim 128 4 of 64).
fn problems(has_f16: bool) -> [(Problem, Family); 2] {
    let of = |heads, seq_kv, head_dim, dtype| {
        let shape = Shape {
            seq_kv,
            ..Shape::bhsd(1, heads, 17, head_dim)
        };
        Problem::new(shape, dtype, Mask::Full).expect("these are valid")
    };
    // A kernel of E4M3 alone may choose its way by the scales.
    let (dtype, family) = match has_f16 {
        true => (Dtype::F16, Family::Normal),
        false => (Dtype::E4m3, Family::Large),
    };
    [
        (of(4, 1100, 64, dtype), family),
        (of(4, 800, 128, Dtype::E4m3), Family::Normal),
    ]
}

/// Fails unless every variant is right where one warp of each block runs only when no other one can.
pub fn late_warps(attention: &'static dyn Attention) {
    let stage = LoadedStage::load(attention).expect("the stage loads");
    let mut failures = Vec::new();
    for (problem, family) in problems(stage.takes(Dtype::F16)) {
        let inputs = Inputs::generate(&problem, family, 0);
        for variant in stage.variants() {
            let Ok(prepared) = stage.prepare(variant, &problem) else {
                continue;
            };
            let reference = reference(&inputs, prepared.kernel.probability)
                .expect("generated inputs are finite");
            let source = Source::Seeded { family, seed: 0 };
            let target = Target::Emulated {
                schedules: &SCHEDULES,
                traced: &[],
            };
            let case = format!(
                "{variant} {} {} {}",
                problem.shape, problem.dtype, problem.mask
            );
            match check(&stage, variant, &inputs, &source, &reference, target).outcome {
                Outcome::Checked { gates, .. } => failures.extend(
                    gates
                        .into_iter()
                        .filter(|result| result.verdict == Verdict::Fail)
                        .map(|result| format!("{case}: {} {}", result.gate, result.reason)),
                ),
                Outcome::Unsupported { reason } | Outcome::Failed { reason } => {
                    failures.push(format!("{case}: {reason}"))
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
