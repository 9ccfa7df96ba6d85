//! Rankings from a record, and what of a plan the tuning cache makes unnecessary. Pure.

use crate::judge::best::{time, timed, withheld};
use crate::judge::state::{gates, is_green, summary, with};
use crate::measure::builds::StageBuild;
use crate::measure::plan::{Plan, PlannedTiming, Request};
use crate::record::meta::TimingScope;
use crate::record::tuning_cache::{Entry, Known, Ranked, TuningCache};
use crate::record::{On, Place, Record, Row, Source, Subject};
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
    let mut planned: Vec<PlannedTiming> = Vec::new();
    for row in timed(record) {
        let (Some(stage), Some(place)) = (record.stage(row.subject.stage()), row.on.problem())
        else {
            continue;
        };
        let shape = record.meta.shape(&place.shape);
        let Some(Ok(problem)) = shape.map(|shape| Problem::new(shape, place.dtype, place.mask))
        else {
            continue;
        };
        if planned
            .iter()
            .any(|known| (known.subject.stage(), known.problem) == (&stage.id, problem))
        {
            continue;
        }
        planned.extend(stage.subjects().map(|subject| PlannedTiming {
            subject,
            place: place.clone(),
            problem,
        }));
    }
    planned
}

/// Ranks what was set out to be timed by what `record` says of it.
pub fn rank(planned: &[PlannedTiming], record: &Record) -> Vec<Ranking> {
    let mut rankings: Vec<Ranking> = Vec::new();
    for timing in planned {
        let Some(build) = record.stage(timing.subject.stage()) else {
            continue;
        };
        let same = |ranking: &Ranking| ranking.entry.is_of(&build.id, &timing.problem);
        let index = rankings.iter().position(same).unwrap_or_else(|| {
            let entry = Entry {
                stage: build.id.clone(),
                identity: build.identity.clone(),
                shape_name: timing.place.shape.clone(),
                shape: timing.problem.shape,
                dtype: timing.problem.dtype,
                mask: timing.problem.mask,
                tuned: String::new(),
                timed: 0,
                untimed: 0,
                best: vec![],
            };
            rankings.push(Ranking {
                entry,
                refused: vec![],
            });
            rankings.len() - 1
        });
        match place(timing, record) {
            Ok(ranked) => rankings[index].entry.best.push(ranked),
            Err(refused) => rankings[index].refused.push(refused),
        }
    }
    for ranking in &mut rankings {
        let untimed = ranking.refused.iter().filter(|refused| !refused.was_tried);
        ranking.entry.untimed = untimed.count();
        ranking.entry.best.sort_by(|a, b| {
            a.p50_us
                .total_cmp(&b.p50_us)
                .then_with(|| a.variant.cmp(&b.variant))
        });
    }
    rankings
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
    let built: Vec<(&str, &Row)> = record
        .instances(subject, Source::Ptxas, dtype, head_dim)
        .filter_map(|(arch, row)| Some((arch?, row)))
        .collect();
    if let Some(failure) = built.iter().find_map(|(_, row)| row.failures().next()) {
        return Err(refused(failure, true));
    }
    if summary(record, subject).is_some() && !is_green(record, subject) {
        let failed: Vec<String> = with(&gates(record, subject), Verdict::Fail)
            .map(|(gate, judged)| format!("{gate}: {}", judged.reason))
            .collect();
        let is_wrong = !failed.is_empty();
        return Err(
            match unsupported(subject, place, problem, record).filter(|_| !is_wrong) {
                Some(reason) => refused(reason, false),
                None => refused(
                    if is_wrong {
                        failed.join("; ")
                    } else {
                        "not green on C1-C6".into()
                    },
                    is_wrong,
                ),
            },
        );
    }
    let Some(row) = time(record, subject, place) else {
        let unsupported = unsupported(subject, place, problem, record);
        let was_tried = unsupported.is_some();
        let reason = unsupported.unwrap_or_else(|| "it was not timed".into());
        return Err(Refused {
            was_tried,
            ..refused(reason, false)
        });
    };
    if let Some(reason) = withheld(record, row) {
        return Err(refused(reason, true));
    }
    let us = |metric: Metric| row.value(metric).unwrap_or(f64::NAN);
    let runs = |(arch, _): &&(&str, &Row)| record.meta.machine.gpu.runs(arch);
    Ok(Ranked {
        variant: variant.clone(),
        p50_us: us(Metric::P50),
        p90_us: us(Metric::P90),
        sass_sha256: built
            .iter()
            .find(runs)
            .and_then(|(_, row)| row.sass.clone()),
    })
}

/// Why the preset does not take the problem, if that is so: by its cases, which a committed record is without, or because
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
