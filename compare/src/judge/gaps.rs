//! What is not known and somebody could measure, each with the command that measures it.

use super::View;
use super::claims::Claimed;
use super::list::{count, distinct, joined};
use super::verdict::Report;
use crate::table::{ProblemPlace, Row, Source};
use common::metric::{self, Metric};
use common::verdict::Verdict;

/// Returns what closes each gap: of a run, what says what its machine lacks; of a table, what measures on its GPU what is stale,
/// undecided or absent.
pub fn actions(report: &Report<'_>) -> Vec<String> {
    match report.view.run {
        Some(_) => Vec::from_iter(elsewhere(report)),
        None => [
            stale_figures(report),
            undecided_pairs(report),
            open_peers(report),
            profiles(report),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

fn elsewhere(report: &Report<'_>) -> Option<String> {
    let optional = report.missing.iter().filter(|missing| !missing.required);
    let optional = optional.count();
    (optional > 0).then(|| {
        let what = count(optional, "thing was", "things were");
        format!("{what} not measured here: `compare show missing --run DIR` says what each takes.")
    })
}

fn stale_figures(report: &Report<'_>) -> Option<String> {
    let stale = stale(&report.view);
    let of = stale
        .iter()
        .filter_map(|row| Some((row.subject.stage(), row.place.problem()?)));
    let how = command("compare --full", of)?;
    let figures = count(stale.len(), "figure", "figures");
    Some(format!(
        "Measure the {figures} that are stale again: `{how}`, then `compare accept`."
    ))
}

fn undecided_pairs(report: &Report<'_>) -> Option<String> {
    let pairs = open(report).filter(|of| {
        of.verdict() == Some(Verdict::Ambiguous) && of.claim.relation.base().is_some()
    });
    let of = pairs.map(|of| (&*of.stage, &of.claim.place));
    let how = command("compare --full --iters 500", of)?;
    Some(format!(
        "Decide claims over other stages with more samples: `{how}`."
    ))
}

fn open_peers(report: &Report<'_>) -> Option<String> {
    let over_peers =
        open(report).filter(|of| of.claim.is_of_speed() && of.claim.relation.base().is_none());
    let of = over_peers.map(|of| (&*of.stage, &of.claim.place));
    let how = command("compare peers --iters 100", of)?;
    Some(format!(
        "Decide claims over peers, after a run of their stages: `{how}`."
    ))
}

fn profiles(report: &Report<'_>) -> Option<String> {
    let by_ncu = open(report).filter(|of| {
        !of.claim.is_of_speed() && of.claim.metric.source() == metric::Source::Profile
    });
    let stages = by_ncu.flat_map(|of| {
        let base = of.claim.relation.base().map(|base| base.stage);
        base.into_iter().chain([&*of.stage])
    });
    let stages = distinct(stages.map(number));
    (!stages.is_empty()).then(|| {
        let stages = joined(stages, ",");
        format!("Judge what only ncu measures, after a run on the GPU: `compare profile --stages {stages}`.")
    })
}

/// Claims about this GPU that neither hold nor are refuted.
fn open<'a>(report: &'a Report<'_>) -> impl Iterator<Item = &'a Claimed> {
    let gpu = report.view.gpu();
    report.claims.iter().filter(move |of| {
        let is_open = matches!(of.verdict(), Some(Verdict::Ambiguous | Verdict::NoData));
        is_open && !of.is_stale && of.claim.is_about(gpu)
    })
}

/// Returns the timed figures of kernels that have changed since: latencies, pairs, and times beside peers.
pub fn stale<'a>(view: &'a View<'_>) -> Vec<&'a Row> {
    figures(view).filter(|row| view.is_stale(row)).collect()
}

/// Returns the timed figures of a table.
pub fn figures<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Row> {
    view.table.rows().filter(|row| {
        let is_timed = row.has(Metric::P50) && row.place.problem().is_some();
        is_timed && matches!(row.source, Source::Gpu | Source::Peers)
    })
}

/// Returns the command that measures these stages on these problems; nothing where there is nothing.
pub fn command<'a>(
    program: &str,
    of: impl Iterator<Item = (&'a str, &'a ProblemPlace)>,
) -> Option<String> {
    let of = Vec::from_iter(of);
    let mut stages = distinct(of.iter().map(|(stage, _)| number(stage)));
    stages.sort_by_key(|number| (number.len(), *number));
    let mut places = Vec::from_iter(of.iter().map(|(_, place)| *place));
    places.sort_by_key(|place| (place.size(), *place));
    let shapes = distinct(places.iter().map(|place| &*place.shape));
    let (stages, shapes) = (joined(stages, ","), joined(shapes, ","));
    (!of.is_empty()).then(|| format!("{program} --stages {stages} --shapes {shapes}"))
}

/// `5` of `stage5-swizzle`, as `--stages` takes it.
pub fn number(stage: &str) -> &str {
    let (short, _) = stage.split_once('-').unwrap_or((stage, ""));
    let number = short.strip_prefix("stage");
    number
        .filter(|number| number.parse::<u32>().is_ok())
        .unwrap_or(stage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::report;
    use crate::testing::scenario::{self, each};

    #[test]
    fn each_gap_of_a_table_has_the_command_that_measures_it() {
        let actions = |line: &str| {
            let (stages, table) = scenario::view(line);
            joined(actions(&report(View::committed(&stages, &table))), "\n")
        };
        insta::assert_snapshot!(each(
            "timed; clean
            timed; clean @ emulated; identity 1 new
            timed; clean; wmma mission gpu pair: noise 0.5
            timed; clean; peers mission 10 torch-default 15",
            actions,
        ));
    }
}
