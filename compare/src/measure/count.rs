//! Records counters of a plan's variants in the emulator, whatever its backend: the basis of evidence claims (E1).

use super::execute::Executor;
use super::rows;
use super::sink::{ExecuteError, Sink};
use crate::judge::claims::compared;
use crate::table::session::{by_id, claims};
use crate::table::{Run, StageMeta, Subject, VariantMeta};
use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};

/// The element types with counters: BF16 moves, multiplies and waits as f16 does.
const COUNTED: [Dtype; 2] = [Dtype::F16, Dtype::E4m3];

impl Executor<'_> {
    pub fn evidence(&self, run: &mut Run, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let plan = self.plan;
        if plan.counted.is_empty() {
            return Ok(());
        }
        let problems = COUNTED.map(claims_problem);
        let staged = problems.map(|problem| {
            Staged::new(
                &Inputs::generate(&problem, Family::Normal, 0),
                Layout::Packed,
            )
        });
        for (done, subject) in plan.counted.iter().enumerate() {
            sink.starts("counting", subject.as_str(), done, plan.counted.len());
            let stage = self.stage(subject.stage());
            for (dtype, staged) in COUNTED.into_iter().zip(&staged) {
                let is_due =
                    by_id(&run.session.stages, subject.stage()).is_some_and(|stage| match dtype {
                        Dtype::E4m3 => {
                            plan.counts_e4m3()
                                && is_counted_with_e4m3(&run.session.stages, stage, subject)
                        }
                        _ => stage.first_dtype() == dtype,
                    });
                if !is_due {
                    continue;
                }
                let counted = match stage.prepare(subject.name(), &staged.problem) {
                    Ok(prepared) => count(&prepared, staged),
                    Err(unsupported) => Err(unsupported.into()),
                };
                run.append(rows::counters(subject.clone(), dtype, &counted));
            }
            sink.grown(run)?;
        }
        Ok(())
    }
}

/// Whether a variant is counted with E4M3. Where f16 is counted, too, only the default and the first of each family are, and what a
/// claim compares a counted variant with: presets share the code that the element type changes, and counting all would take as long
/// again.
fn is_counted_with_e4m3(stages: &[StageMeta], stage: &StageMeta, subject: &Subject) -> bool {
    let variant = stage.variant(subject.name());
    variant.is_some_and(|variant| stands_for_its_family(stage, variant))
        || claims(stages).any(|(stage, claim)| {
            let of_e4m3 = claim.on.dtype == Dtype::E4m3 && !claim.is_of_speed();
            let pairs = compared(stages, stage, claim).unwrap_or_default();
            let counted = pairs
                .iter()
                .filter(|(new, _)| stands_for_its_family(stage, new));
            let mut bases = counted.filter_map(|(_, base)| base.as_ref());
            (of_e4m3 || stage.first_dtype() == Dtype::E4m3)
                && bases.any(|(base, variant)| base.subject(&variant.name) == *subject)
        })
}

/// Whether a variant is counted with E4M3 whatever it is compared with.
fn stands_for_its_family(stage: &StageMeta, variant: &VariantMeta) -> bool {
    let family = &variant.family;
    let standing = [stage.default_of(family), stage.family(family).next()];
    stage.first_dtype() == Dtype::E4m3 || standing.contains(&Some(variant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Known;
    use crate::judge::claims::evidence;
    use crate::measure::builds::builds;
    use crate::table::{Claim, Relation};
    use crate::table::{On, Source};
    use crate::{stages, testing};
    use common::metric::{self, Metric};
    use common::verdict::Verdict;

    /// A kernel that cannot be traced is evidence of nothing.
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
                run.append(rows::counters(
                    Subject::variant(&stage.id, variant),
                    dtype,
                    &counting,
                ));
            }
        }
        let on = On::claims(Dtype::F16);
        let row = run
            .table
            .row(
                &Subject::variant(&stage.id, "wmma-qk-32x64"),
                &on,
                Source::Emulator,
            )
            .unwrap();
        if !stages[0].is_traced() {
            assert!(row.figures.is_empty() && row.note.is_some());
            return;
        }
        let blocks = [Metric::TracedBlocks, Metric::LaunchBlocks, Metric::Tiles]
            .map(|metric| row.value(metric));
        assert_eq!(blocks, [2.0, 128.0, 1024.0].map(Some));
        let judged = |stage: &StageMeta, claim: &Claim| {
            let known = Known::alone(&run);
            evidence(&known, stage, claim, Source::Emulator).unwrap().0
        };
        let counted: Vec<&Claim> = stage
            .claims
            .iter()
            .filter(|claim| claim.metric.source() == metric::Source::Counters)
            .collect();
        let with = |dtype| {
            counted
                .iter()
                .filter(|claim| claim.on.dtype == dtype)
                .count()
        };
        assert!(
            with(Dtype::F16) >= 3 && with(Dtype::E4m3) >= 3,
            "{counted:?}"
        );
        for claim in counted {
            let correct = judged(&stage, claim);
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
            let lying = judged(&stage, &lie);
            assert_eq!(lying.verdict, Verdict::Fail, "{lie}: {}", lying.reason);
            let unknown = Claim {
                metric: Metric::BarrierStallShare,
                ..claim.clone()
            };
            assert_eq!(judged(&stage, &unknown).verdict, Verdict::NoData);
        }
    }

    #[test]
    fn presets_of_a_stage_of_e4m3_alone_are_all_counted_with_it() {
        let counted = |id: &str| {
            let metas = stages::builds().unwrap();
            let stage = metas.iter().find(|stage| stage.id == id).unwrap();
            let all = stage.subjects();
            all.map(|subject| is_counted_with_e4m3(&metas, stage, &subject))
                .collect::<Vec<_>>()
        };
        assert_eq!(counted("stage10-fp8"), [true; 3]);
        let of_both = counted("stage7-wgmma");
        assert!(of_both.contains(&true) && of_both.contains(&false));
    }

    /// Else the claim would have no data, in every run of the whole ladder.
    #[test]
    fn what_is_counted_with_e4m3_is_compared_with_what_is_counted_too() {
        let metas = stages::builds().unwrap();
        let is_counted = |stage, variant: &VariantMeta| {
            is_counted_with_e4m3(&metas, stage, &stage.subject(&variant.name))
        };
        for (stage, claim) in claims(&metas) {
            if claim.on.dtype != Dtype::E4m3 || claim.is_of_speed() {
                continue;
            }
            for (new, base) in compared(&metas, stage, claim).unwrap() {
                let base = base.filter(|_| is_counted(stage, new));
                assert!(
                    base.is_none_or(|(stage, base)| is_counted(stage, base)),
                    "{claim}: {}",
                    new.name
                );
            }
        }
    }
}
