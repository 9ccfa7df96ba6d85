//! Cases that were launched together: judged, beside the launches of the next, and kept in the record.

use super::{ExecuteError, Sink};
use crate::comparison::describe;
use crate::plan::PlannedCase;
use common::check::{CaseResult, Checked, Launched, NoOutput, Outcome};
use common::inputs::Inputs;
use common::record::Record;
use common::reference::{Probability, Reference, ReferenceError, reference};
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Launched cases of one problem, which wait to be judged.
pub struct Batch<'p> {
    /// The cases.
    pub cases: Vec<&'p PlannedCase>,
    /// Their tensors.
    pub inputs: Arc<Inputs>,
    /// What came of each; fewer than `cases` where the GPU was lost.
    pub launched: Vec<Result<Launched, NoOutput>>,
}

/// What the outputs of one problem are compared with, for each type of P. Batches of a problem follow each other.
#[derive(Default)]
pub struct References {
    of: Option<Arc<Inputs>>,
    by_probability: HashMap<Probability, Reference>,
}

impl<'p> Batch<'p> {
    /// What the gates say of each.
    pub fn judge(self, references: &mut References) -> Result<Vec<(&'p PlannedCase, Checked)>, ExecuteError> {
        if references.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, &self.inputs)) {
            *references = References { of: Some(Arc::clone(&self.inputs)), by_probability: HashMap::new() };
        }
        for probability in self.launched.iter().flatten().map(Launched::probability) {
            if let Entry::Vacant(place) = references.by_probability.entry(probability) {
                place.insert(
                    reference(&self.inputs, probability).map_err(|source| no_reference(self.cases[0], source))?,
                );
            }
        }
        let judge = |launched: Result<Launched, NoOutput>| match launched {
            Ok(launched) => {
                let reference = &references.by_probability[&launched.probability()];
                launched.judge(reference)
            }
            Err(end) => end.into(),
        };
        let checked: Vec<Checked> = self.launched.into_par_iter().map(judge).collect();
        Ok(self.cases.into_iter().zip(checked).collect())
    }
}

/// Hands results on, in the order of the cases.
pub fn keep(
    judged: Vec<(&PlannedCase, Checked)>,
    record: &mut Record,
    sink: &mut dyn Sink,
) -> Result<(), ExecuteError> {
    for (case, checked) in judged {
        let result = CaseResult { key: case.key.clone(), outcome: checked.outcome };
        if let Some(output) = &checked.output {
            sink.output(&result, output)?;
        }
        let lost = match &result.outcome {
            Outcome::Failed { reason } if checked.fatal => Some(reason.clone()),
            _ => None,
        };
        record.correctness.cases.push(result);
        sink.grown(record)?;
        if let Some(reason) = lost {
            return Err(ExecuteError::Lost { case: label(case), reason });
        }
    }
    Ok(())
}

/// `stage0-scalar/scalar-32x64 mission f16 full, normal, seed 0`.
pub fn label(case: &PlannedCase) -> String {
    format!("{}/{} {}", case.key.stage, case.key.variant, describe(&case.key))
}

/// There is nothing to compare `case` with.
pub fn no_reference(case: &PlannedCase, source: ReferenceError) -> ExecuteError {
    ExecuteError::Reference { case: describe(&case.key), source }
}
