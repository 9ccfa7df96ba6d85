//! Records counters of a plan's variants in the emulator, whatever its backend: the basis of
//! evidence claims (E1).

use super::execute::Executor;
use super::sink::{ExecuteError, Sink};
use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};
use results::table::{Row, Run};
use std::collections::HashMap;

impl Executor<'_> {
    pub fn evidence(&self, run: &mut Run, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let planned = &self.plan.counted;
        let mut staged_inputs: HashMap<Dtype, Staged> = HashMap::new();
        for (done, (subject, dtype)) in planned.iter().enumerate() {
            sink.on_start("counting", subject.as_str(), done, planned.len());
            let staged = staged_inputs.entry(*dtype).or_insert_with(|| {
                let inputs = Inputs::generate(&claims_problem(*dtype), Family::Normal, 0);
                Staged::new(&inputs, Layout::Packed)
            });
            let stage = self.stage(subject.stage());
            let counted = match stage.prepare(subject.name(), &staged.problem) {
                Ok(prepared) => count(&prepared, staged),
                Err(unsupported) => Err(unsupported.into()),
            };
            run.append(Row::counters(subject.clone(), *dtype, &counted));
            sink.on_rows_added(run)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::metric::{self, Metric};
    use common::verdict::Verdict;
    use results::builds::builds;
    use results::judge::View;
    use results::judge::claims::claims;
    use results::table::{Claim, Kind, ProblemPlace, Relation, StageMeta, Subject};
    use results::testing;

    #[test]
    fn true_predictions_of_a_real_stage_pass_and_planted_false_ones_fail() {
        let stages = stages::load().unwrap();
        assert!(stages[0].has_source_lines());
        let stage = builds(&stages[..1])[0].clone();
        let mut run = testing::emulated()
            .without(|_| true)
            .changed(|session| session.stages = vec![stage.clone()]);
        for variant in ["scalar-32x64", "wmma-qk-32x64"] {
            for dtype in [Dtype::F16, Dtype::E4m3] {
                let problem = claims_problem(dtype);
                let staged = Staged::new(
                    &Inputs::generate(&problem, Family::Normal, 0),
                    Layout::Packed,
                );
                let counting = count(&stages[0].prepare(variant, &problem).unwrap(), &staged);
                run.append(Row::counters(
                    Subject::variant(&stage.id, variant),
                    dtype,
                    &counting,
                ));
            }
        }
        let kind = Kind::Counters(ProblemPlace::claims(Dtype::F16));
        let subject = Subject::variant(&stage.id, "wmma-qk-32x64");
        let row = run.table.row(&subject, kind).unwrap();
        let blocks = [Metric::TracedBlocks, Metric::LaunchBlocks, Metric::Tiles]
            .map(|metric| row.value(metric));
        assert_eq!(blocks, [2.0, 128.0, 1024.0].map(Some));
        let judged = |claim: &Claim| {
            let claiming = [StageMeta {
                claims: vec![claim.clone()],
                ..stage.clone()
            }];
            let view = View {
                stages: &claiming,
                ..View::alone(&run)
            };
            claims(&view).remove(0).finding
        };
        let counted: Vec<&Claim> = stage
            .claims
            .iter()
            .filter(|claim| claim.metric.source() == metric::Source::Counters)
            .collect();
        for dtype in [Dtype::F16, Dtype::E4m3] {
            let claims = counted.iter().filter(|claim| claim.place.dtype == dtype);
            assert!(claims.count() >= 3, "{dtype}: {counted:?}");
        }
        for claim in counted {
            let correct = judged(claim);
            assert_eq!(
                correct.verdict,
                Verdict::Pass,
                "{claim}: {}",
                correct.reason
            );
            let mut lie = claim.clone();
            match &mut lie.relation {
                Relation::Ratio {
                    at_least, at_most, ..
                } => (*at_least, *at_most) = (*at_most + 0.5, *at_most + 1.0),
                Relation::AtLeast { bound } => *bound += 1.0,
                Relation::AtMost { bound } => *bound = -1.0,
                of_speed => unreachable!("{of_speed:?}"),
            }
            let lying = judged(&lie);
            assert_eq!(lying.verdict, Verdict::Fail, "{lie}: {}", lying.reason);
            let unknown = Claim {
                metric: Metric::BarrierStallShare,
                ..claim.clone()
            };
            assert_eq!(judged(&unknown).verdict, Verdict::NoData);
        }
    }
}
