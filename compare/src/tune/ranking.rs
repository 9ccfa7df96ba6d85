//! Rankings from a record, and what of a plan the tuning cache makes unnecessary. Pure.

use crate::judge::best::{time, timed, withheld};
use crate::judge::list::{grouped, joined};
use crate::judge::state::{gates, is_green, summary, with};
use crate::measure::builds::StageBuild;
use crate::measure::plan::{Plan, PlannedTiming, Request};
use crate::record::meta::TimingScope;
use crate::record::tuning_cache::{Entry, Known, Ranked, TuningCache};
use crate::record::{On, Place, Record, Row, Source, StageMeta, Subject};
use common::metric::Metric;
use common::problem::Problem;
use common::verdict::Verdict;

/// All variants of a stage on a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The green ones, fastest first: more than the tuning cache keeps.
    pub entry: Entry,
    pub refused: Vec<Refused>,
}

/// A variant without a place in a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub variant: String,
    pub reason: String,
    /// Whether a gate failed, and not only the problem does not fit.
    pub is_wrong: bool,
    /// Whether it could have had a place: without it a ranking is not of all variants.
    pub was_tried: bool,
}

impl Ranking {
    /// Whether every variant of the stage was timed, or cannot be.
    pub fn is_whole(&self) -> bool {
        self.entry.is_whole()
    }
}

/// Every variant of a stage on each problem on which `record` has a time of one of them.
pub fn of_record(record: &Record) -> Vec<PlannedTiming> {
    let timed = timed(record).filter_map(|row| {
        let (stage, place) = (record.stage(row.subject.stage())?, row.on.problem()?);
        let shape = record.meta.shape(&place.shape)?;
        let problem = Problem::new(shape, place.dtype, place.mask).ok()?;
        Some(((&stage.id, problem), (stage, place)))
    });
    let all = |((_, problem), of): ((_, Problem), Vec<(&'_ StageMeta, &'_ Place)>)| {
        let (stage, place) = of[0];
        let timing = move |subject| PlannedTiming {
            subject,
            place: place.clone(),
            problem,
        };
        stage.subjects().map(timing).collect::<Vec<_>>()
    };
    grouped(timed).into_iter().flat_map(all).collect()
}

/// Ranks what was planned to be timed by what `record` says of it.
pub fn rank(planned: &[PlannedTiming], record: &Record) -> Vec<Ranking> {
    let by_problem = planned
        .iter()
        .map(|timing| ((timing.subject.stage(), timing.problem), timing));
    let ranking = |((stage, problem), timings): ((&str, Problem), Vec<&PlannedTiming>)| {
        let build = record.stage(stage)?;
        let (mut best, mut refused) = (Vec::new(), Vec::new());
        for timing in &timings {
            match place(timing, record) {
                Ok(ranked) => best.push(ranked),
                Err(reason) => refused.push(reason),
            }
        }
        best.sort_by(|a: &Ranked, b| {
            a.p50_us
                .total_cmp(&b.p50_us)
                .then_with(|| a.variant.cmp(&b.variant))
        });
        let entry = Entry {
            stage: build.id.clone(),
            identity: build.identity.clone(),
            shape_name: timings[0].place.shape.clone(),
            shape: problem.shape,
            dtype: problem.dtype,
            mask: problem.mask,
            tuned: String::new(),
            timed: 0,
            untimed: refused
                .iter()
                .filter(|refused: &&Refused| !refused.was_tried)
                .count(),
            best,
        };
        Some(Ranking { entry, refused })
    };
    grouped(by_problem)
        .into_iter()
        .filter_map(ranking)
        .collect()
}

/// The figures of an arm, or why it has none.
fn place(timing: &PlannedTiming, record: &Record) -> Result<Ranked, Refused> {
    let PlannedTiming {
        subject,
        place,
        problem,
    } = timing;
    let variant = subject.name().to_string();
    let refused = |reason: String, is_wrong: bool| Refused {
        variant: variant.clone(),
        reason,
        is_wrong,
        was_tried: true,
    };
    let (dtype, head_dim) = (problem.dtype, problem.shape.head_dim);
    let built = || record.instances(subject, Source::Ptxas, dtype, head_dim);
    if let Some(failure) = built().find_map(|(_, row)| row.failures().next()) {
        return Err(refused(failure, true));
    }
    let unsupported = unsupported(subject, place, problem, record);
    if summary(record, subject).is_some() && !is_green(record, subject) {
        let gates = gates(record, subject);
        let failed = with(&gates, Verdict::Fail);
        let failed = failed.map(|(gate, judged)| format!("{gate}: {}", judged.reason));
        let failed = joined(failed, "; ");
        let is_wrong = !failed.is_empty();
        let not_green = || unsupported.unwrap_or_else(|| "not green on C1-C6".into());
        let reason = if is_wrong { failed } else { not_green() };
        return Err(refused(reason, is_wrong));
    }
    let Some(row) = time(record, subject, place) else {
        return Err(Refused {
            was_tried: unsupported.is_some(),
            ..refused(
                unsupported.unwrap_or_else(|| "it was not timed".into()),
                false,
            )
        });
    };
    if let Some(reason) = withheld(record, row) {
        return Err(refused(reason, true));
    }
    let us = |metric: Metric| row.value(metric).unwrap_or(f64::NAN);
    let runs = |arch: Option<&str>| arch.is_some_and(|arch| record.meta.machine.gpu.runs(arch));
    let code = built().find(|(arch, _)| runs(*arch));
    Ok(Ranked {
        variant,
        p50_us: us(Metric::P50),
        p90_us: us(Metric::P90),
        sass_sha256: code.and_then(|(_, row)| row.sass.clone()),
    })
}

/// Why the preset does not take the problem, if so: by its cases, which a committed record lacks, or because
/// the device refuses its instance, of which such a record declares nothing.
fn unsupported(
    subject: &Subject,
    place: &Place,
    problem: &Problem,
    record: &Record,
) -> Option<String> {
    let is_it =
        |row: &&Row| row.subject == *subject && matches!(&row.on, On::Case(of, _) if of == place);
    if let Some(case) = record
        .cases
        .iter()
        .filter(is_it)
        .find(|row| row.verdicts.is_empty())
    {
        return case.note.clone();
    }
    let mut refused = record.stage(subject.stage())?.refused.iter();
    let refusal = refused.find(|refusal| refusal.variant == subject.name())?;
    let (dtype, head_dim) = (problem.dtype, problem.shape.head_dim);
    let mut declared = record.instances(subject, Source::Kernel, dtype, head_dim);
    (declared.next().is_none()).then(|| refusal.reason.clone())
}

/// Takes out of `plan` what need not be timed: beside the problems of the claims, variants that `cache`, read from `file`,
/// does not keep for the problem, or, where it does not know the problem, for any. What it knows of another version of
/// the kernel stays, as does what `request` names. Says so in [`Plan::timing_scopes`].
pub fn keep_best(
    plan: &mut Plan,
    request: &Request,
    stages: &[StageBuild],
    cache: &TuningCache,
    file: &str,
) {
    if !request.problems.shapes.is_empty() || !request.chosen.variants.is_empty() {
        return;
    }
    for stage in stages {
        let is_its = |timing: &PlannedTiming| timing.subject.stage() == stage.id;
        let count = |plan: &Plan| plan.timings.iter().filter(|timing| is_its(timing)).count();
        let of = count(plan);
        let mut is_stale = false;
        plan.timings.retain(|timing| {
            if !is_its(timing) || timing.problem.has_claims() {
                return true; // claims are judged among all
            }
            match cache.of(&stage.id, &stage.identity, &timing.problem) {
                Known::Fresh(best) => best
                    .iter()
                    .any(|ranked| ranked.variant == timing.subject.name()),
                Known::Absent => cache
                    .is_kept_anywhere(&stage.id, &stage.identity, timing.subject.name())
                    .unwrap_or(true),
                Known::Stale => {
                    is_stale = true;
                    true
                }
            }
        });
        let left_out = of - count(plan);
        let why = match (left_out, is_stale) {
            (0, false) => continue,
            (_, false) => format!(
                "beside the problems of the claims, only the best variants in {file} were timed"
            ),
            (_, true) => format!(
                "entries of {file} are STALE, the kernel has changed since: all variants were timed on their problems; run \
                 `compare tune --stages {}`",
                stage.id
            ),
        };
        plan.timing_scopes.push(TimingScope {
            stage: stage.id.clone(),
            left_out,
            of,
            why,
        });
    }
}
