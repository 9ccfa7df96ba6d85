//! Tier T0: what `cargo test` runs for every stage on the emulator. Few cases, chosen to be ragged, grouped and masked.

use crate::check::{Outcome, Source, Target, check};
use crate::inputs::{Family, Inputs};
use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::reference::reference;
use crate::stage::{Attention, LoadedStage};
use crate::verdict::Verdict;
use emulator::Schedule;

/// The schedules under which every output must have the same bits.
pub const SCHEDULES: [Schedule; 3] = [Schedule::InOrder, Schedule::Reversed, Schedule::Shuffled(1)];

/// `small` full, (113, 203) causal with grouped heads, and 17 rows causal at head_dim 128; both dtypes.
pub fn problems() -> Vec<Problem> {
    let ragged = Shape { batch: 1, heads_q: 2, heads_kv: 1, seq_q: 113, seq_kv: 203, head_dim: 64 };
    let shapes = [
        (Shape::bhsd(1, 1, 32, 64), Mask::Full),
        (ragged, Mask::Causal),
        (Shape::bhsd(1, 1, 17, 64), Mask::Full),
        (Shape::bhsd(2, 1, 17, 128), Mask::Causal),
    ];
    let problem = |(shape, mask), dtype| Problem::new(shape, dtype, mask).expect("tier 0 states valid problems");
    shapes.iter().flat_map(|&shape| Dtype::ALL.map(|dtype| problem(shape, dtype))).collect()
}

/// Extreme logits in rows of 5 keys, in every row of a block: run once, untraced.
pub fn extremes() -> Vec<(Problem, Family)> {
    let shape = Shape { seq_kv: 5, ..Shape::bhsd(1, 1, 131, 64) };
    let problem = |dtype| Problem::new(shape, dtype, Mask::Full).expect("tier 0 states valid problems");
    Dtype::ALL.into_iter().flat_map(|dtype| Family::EXTREME.map(|family| (problem(dtype), family))).collect()
}

/// Runs every case on `variant`. Returns one line per gate that failed or case that did not run; empty means green.
pub fn failures(attention: &'static dyn Attention, variant: &str) -> Vec<String> {
    let stage = match LoadedStage::load(attention) {
        Ok(stage) => stage,
        Err(error) => return vec![error.to_string()],
    };
    let mut failures = Vec::new();
    let traced = problems().into_iter().map(|problem| (problem, Family::Normal, &SCHEDULES[..], true));
    let plain = extremes().into_iter().map(|(problem, family)| (problem, family, &SCHEDULES[..1], false));
    for (problem, family, schedules, traced) in traced.chain(plain) {
        let case = format!("{variant} {} {} {} {family}", problem.shape, problem.dtype, problem.mask);
        let seed = 0;
        let inputs = Inputs::generate(&problem, family, seed);
        let probability = match stage.prepare(variant, &problem) {
            Ok(prepared) => prepared.kernel.probability,
            Err(unsupported) => {
                failures.push(format!("{case}: {unsupported}"));
                continue;
            }
        };
        let reference = reference(&inputs, probability).expect("generated inputs are finite");
        let source = Source::Seeded { family, seed };
        let target = Target::Emulated { schedules, traced };
        match check(&stage, variant, &inputs, &source, &reference, target).outcome {
            Outcome::Checked { gates, .. } => failures.extend(
                gates
                    .into_iter()
                    .filter(|result| result.verdict == Verdict::Fail)
                    .map(|result| format!("{case}: {} {}: {}", result.gate, result.verdict, result.reason)),
            ),
            Outcome::Unsupported { reason } | Outcome::Failed { reason } => failures.push(format!("{case}: {reason}")),
        }
    }
    failures
}
