//! Computes the regret of a choice.

use super::fit::fit;
use super::{FOLDS, chosen, fold_of, gpu_of, judged_times};
use common::choice::{Chooser, Model};
use common::stage::LoadedStage;
use results::judge::View;
use results::judge::best::p50;
use results::judge::list::{Grouped, grouped};
use results::judge::regret::Regret;
use results::table::{ProblemPlace, Row};

/// Returns the regret of the models, on the random problems that are judged. `stages` are the
/// library's: it can choose no other, but is measured by the fastest of all.
pub fn regret(view: &View<'_>, stages: &[LoadedStage], models: &[Model]) -> Option<Regret> {
    let chooser = Chooser::new(stages, models, &gpu_of(view)?);
    regret_of(view, stages, |_| &chooser)
}

/// Returns the regret of the fit to `tables`: each part of the first table's problems is judged by
/// a fit that has not seen it.
pub fn unseen_regret(tables: &[View<'_>], stages: &[LoadedStage]) -> Option<Regret> {
    let view = tables.first()?;
    let gpu = gpu_of(view)?;
    let mut choosers = Vec::new();
    for fold in 0..FOLDS {
        let fitted = fit(tables, stages, Some(fold))?;
        choosers.push(Chooser::new(stages, &[fitted.model], &gpu));
    }
    regret_of(view, stages, |fold| &choosers[fold])
}

/// The cost of a choice on one problem.
struct Choice {
    ratio: f64,
    description: String,
}

/// Returns the regret of the choices, with the chooser of each part of the random problems.
fn regret_of<'a>(
    view: &View<'_>,
    stages: &[LoadedStage],
    chooser_of_fold: impl Fn(usize) -> &'a Chooser,
) -> Option<Regret> {
    let rows = judged_times(&view.table, stages);
    let by_place = grouped(rows.filter_map(|row| Some((row.problem()?, row))));
    let mut choices = Vec::new();
    for Grouped {
        key: place,
        values: times,
    } in &by_place
    {
        let Some(fold) = times.first().and_then(|row| fold_of(row)) else {
            continue;
        };
        choices.extend(judge_choice(chooser_of_fold(fold), stages, place, times));
    }
    let worst = choices.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let sum: f64 = choices.iter().map(|choice| choice.ratio).sum();
    Some(Regret {
        problems: choices.len(),
        drawn: by_place.len(),
        mean: sum / choices.len() as f64,
        worst: worst.ratio,
        at: worst.description.clone(),
    })
}

/// Returns what the choice costs on one problem; none if what is chosen was not timed.
fn judge_choice(
    chooser: &Chooser,
    stages: &[LoadedStage],
    place: &ProblemPlace,
    rows: &[&Row],
) -> Option<Choice> {
    let subject = chosen(chooser, stages, place)?;
    let own = rows.iter().find(|row| row.subject == subject)?;
    let fastest = rows.iter().min_by(|a, b| p50(a).total_cmp(&p50(b)))?;
    Some(Choice {
        ratio: p50(own) / p50(fastest),
        description: format!(
            "{place}: {subject} {:.1} µs, {} {:.1} µs",
            p50(own),
            fastest.subject,
            p50(fastest)
        ),
    })
}
