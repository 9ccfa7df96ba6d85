//! The library's choice among its variants: the model by which it chooses, fitted to a table, and
//! the regret of a choice.

#![forbid(unsafe_code)]

mod cover;
pub mod draw;
mod equations;
mod fit;
mod least_squares;
mod regret;
pub mod testing;

pub use fit::fit;
pub use regret::{regret, unseen_regret};

use common::choice::{Chooser, Gpu, Model, Wanted};
use common::metric::Metric;
use common::problem::Problem;
use common::stage::{LoadedStage, Prepared};
use results::judge::View;
use results::judge::peers;
use results::table::{ProblemPlace, Row, Session, Subject, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The number of parts that random problems are divided into: a choice is judged on each part by a
/// fit to all others.
const FOLDS: usize = 10;

/// Returns the rows with a time at a random problem, of right outputs.
pub fn random_times(table: &Table) -> impl Iterator<Item = &Row> {
    table
        .random_times()
        .filter(|row| row.has(Metric::P50) && row.failure().is_none())
}

/// Returns the random times by which a choice is judged: those of sessions that were asked for all
/// variants and timed all that the library has: a session from before a variant existed knows
/// neither its time nor the fastest. If there is no such session, those of sessions that were asked
/// for all variants then; if there is none, all times.
pub fn judged_times<'a>(
    table: &'a Table,
    library: &[LoadedStage],
) -> impl Iterator<Item = &'a Row> + use<'a> {
    let whole = whole_sessions(table, library);
    random_times(table).filter(move |row| whole.is_empty() || whole.contains(&*row.session))
}

/// Returns the sessions that were asked for all variants: those that timed all that the library has
/// or, if none did, each.
fn whole_sessions<'a>(table: &'a Table, library: &[LoadedStage]) -> BTreeSet<&'a str> {
    let mut timed: BTreeMap<&str, BTreeSet<&Subject>> = BTreeMap::new();
    for row in random_times(table) {
        timed.entry(&row.session).or_default().insert(&row.subject);
    }
    timed.retain(|session, _| is_asked_for_all(table, session));
    let variants: Vec<Subject> = library.iter().flat_map(subjects).collect();
    let complete: BTreeSet<&str> = timed
        .iter()
        .filter(|(_, subjects)| variants.iter().all(|variant| subjects.contains(variant)))
        .map(|(session, _)| *session)
        .collect();
    if complete.is_empty() {
        timed.into_keys().collect()
    } else {
        complete
    }
}

fn is_asked_for_all(table: &Table, session: &str) -> bool {
    table
        .sessions
        .get(session)
        .is_some_and(|Session { scope, .. }| scope.stages.is_empty() && scope.variants.is_empty())
}

/// Returns the variants of a stage.
fn subjects(stage: &LoadedStage) -> impl Iterator<Item = Subject> {
    stage
        .variants()
        .into_iter()
        .map(|variant| Subject::variant(stage.info().id, variant))
}

/// Returns the part that the row's random problem belongs to; none for a problem with a name.
fn fold_of(row: &Row) -> Option<usize> {
    let number = row.value(Metric::Draw)?;
    Some(number as usize % FOLDS)
}

/// Returns the GPU of the view's newest session on one, as the model describes it.
pub fn gpu_of(view: &View<'_>) -> Option<Gpu> {
    use results::table::session::Gpu::Present;
    let Present {
        name,
        arch,
        multiprocessors,
        ..
    } = &view.on_gpu()?.machine.gpu
    else {
        return None;
    };
    Some(Gpu {
        name: name.clone(),
        capability: arch.trim_start_matches("sm_").parse().ok()?,
        multiprocessors: *multiprocessors,
    })
}

/// The variants that the library chooses among, and its models of GPUs' times.
#[derive(Clone, Copy)]
pub struct Library<'a> {
    pub stages: &'a [LoadedStage],
    pub models: &'a [Model],
}

/// Returns what the library chooses on each problem that was timed beside peers; nothing without a
/// model.
pub fn choices(view: &View<'_>, library: Library<'_>) -> BTreeMap<ProblemPlace, Subject> {
    let problems = peers::problems(view);
    choose(view, library, problems.iter().map(|problem| problem.place))
}

/// Returns what the library chooses on these problems; nothing without a model.
pub fn choose<'p>(
    view: &View<'_>,
    library: Library<'_>,
    places: impl Iterator<Item = &'p ProblemPlace>,
) -> BTreeMap<ProblemPlace, Subject> {
    let mut choices = BTreeMap::new();
    let Some(gpu) = gpu_of(view) else {
        return choices;
    };
    if library.models.is_empty() {
        return choices;
    }
    let chooser = Chooser::new(library.stages, library.models, &gpu);
    for place in places {
        if let Some(subject) = chosen(&chooser, library.stages, place) {
            choices.insert(place.clone(), subject);
        }
    }
    choices
}

/// Returns the variant that is chosen for a problem, if the place is one that a variant can run.
fn chosen(chooser: &Chooser, stages: &[LoadedStage], place: &ProblemPlace) -> Option<Subject> {
    let problem = place.problem()?;
    let choice = chooser.choose(stages, &problem, Wanted::default()).ok()?;
    let stage = choice.stage.info();
    let kernel = choice.prepared.kernel;
    Some(Subject::variant(stage.id, &kernel.variant))
}

fn loaded<'a>(stages: &'a [LoadedStage], subject: &Subject) -> Option<&'a LoadedStage> {
    stages
        .iter()
        .find(|stage| stage.info().id == subject.stage())
}

/// Returns the launch of a variant for a problem, if `stages` have the variant and it can run the
/// problem.
fn launch<'a>(
    stages: &'a [LoadedStage],
    subject: &Subject,
    problem: &Problem,
) -> Option<Prepared<'a>> {
    let stage = loaded(stages, subject)?;
    stage.prepare(subject.name(), problem).ok()
}

#[cfg(test)]
mod tests;
