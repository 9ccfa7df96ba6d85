//! Cases that were launched together: judged while the next are launched, and kept in the record.

use crate::measure::builds::loaded;
use crate::measure::plan::{Mode, PlannedCase};
use crate::measure::rows;
use crate::measure::sink::{ExecuteError, Sink};
use crate::table::{Row, Run};
use common::check::{self, Launched, NoOutput, Outcome, StagedInputs};
use common::inputs::Inputs;
use common::reference::{Probability, Reference, ReferenceError, reference};
use common::stage::LoadedStage;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Launched cases of one problem that wait to be judged.
pub struct Batch<'p> {
    pub cases: Vec<&'p PlannedCase>,
    pub inputs: Arc<Inputs>,
    pub staged: Arc<StagedInputs>,
    /// The outcome of each; fewer than `cases` after a sticky CUDA error.
    pub launched: Vec<Result<Launched, NoOutput>>,
}

/// The references of one problem, for each type of P. Batches of a problem follow each other.
#[derive(Default)]
pub struct References {
    of: Option<Arc<Inputs>>,
    by_probability: HashMap<Probability, Reference>,
}

impl<'p> Batch<'p> {
    /// Applies the gates to each case.
    pub fn judge(
        self,
        stages: &[LoadedStage],
        references: &mut References,
    ) -> Result<Vec<(&'p PlannedCase, Outcome)>, ExecuteError> {
        if references
            .of
            .as_ref()
            .is_none_or(|of| !Arc::ptr_eq(of, &self.inputs))
        {
            *references = References {
                of: Some(Arc::clone(&self.inputs)),
                by_probability: HashMap::new(),
            };
        }
        for probability in self.launched.iter().flatten().map(Launched::probability) {
            if let Entry::Vacant(place) = references.by_probability.entry(probability) {
                place.insert(
                    reference(&self.inputs, probability)
                        .map_err(|source| no_reference(self.cases[0], source))?,
                );
            }
        }
        let judge = |case: &PlannedCase, launched: Launched| {
            let reference = &references.by_probability[&launched.probability()];
            let mut checked = launched.judge(reference);
            if case.mode == Mode::Both {
                let (stage, variant) = (loaded(stages, case.subject.stage()), case.subject.name());
                let (staged, output) = (&self.staged, &checked.output);
                let agree = check::both_backends(stage, variant, staged, output);
                checked.gates.push(agree);
            }
            checked
        };
        let launched = self.cases.into_par_iter().zip(self.launched);
        Ok(launched
            .map(|(case, launched)| (case, launched.map(|launched| judge(case, launched))))
            .collect())
    }
}

/// Records results in the order of the cases: all of them, even if the sink asks to stop after the first.
pub fn keep(
    judged: Vec<(&PlannedCase, Outcome)>,
    run: &mut Run,
    sink: &mut dyn Sink,
) -> Result<(), ExecuteError> {
    let mut wanted = Ok(());
    for (case, outcome) in judged {
        if let Ok(checked) = &outcome {
            sink.output(case, &checked.output)?;
        }
        let row = Row::new(&case.subject, case.on(), run.session.backend.into());
        let row = rows::of_outcome(row, &outcome);
        match row.failure() {
            // Passing cases are kept with the run, not in the committed rows.
            None => run.cases.push(row),
            Some(_) => run.append(row),
        }
        wanted = wanted.and(sink.grown(run));
        if let Err(NoOutput::Failed {
            reason,
            fatal: true,
        }) = outcome
        {
            return Err(ExecuteError::Sticky {
                case: label(case),
                reason,
            });
        }
    }
    wanted
}

/// `stage0-scalar/scalar-32x64 mission f16 full, normal, seed 0`.
pub fn label(case: &PlannedCase) -> String {
    format!("{} {}", case.subject, case.on())
}

/// `case` has no reference to compare with.
pub fn no_reference(case: &PlannedCase, source: ReferenceError) -> ExecuteError {
    ExecuteError::Reference {
        case: case.on().to_string(),
        source,
    }
}
