//! Rankings from a record, and the file that keeps their best: pure but for reading it.

use crate::judge::best::{timed, withheld};
use crate::judge::state::{gates, is_green, summary};
use crate::measure::builds::StageBuild;
use crate::measure::plan::{Plan, PlannedTiming, Request};
use crate::record::files::read;
use crate::record::meta::TimingScope;
use crate::record::{On, Place, Record, Row, Source, StoreError, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem, Shape, parse_shape};
use common::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// Variants that are kept of a stage on a problem.
pub const KEPT: usize = 3;

/// The version of the file.
const SCHEMA: u32 = 1;

/// `tune/<gpu>.json`: the best variants of the stages on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elites {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `NVIDIA H200`.
    pub gpu: String,
    /// One per stage and problem, sorted.
    pub entries: Vec<Entry>,
}

/// The best variants of a stage on a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The stage.
    pub stage: String,
    /// The stage's identity when it was tuned. The entry holds for no other.
    pub identity: String,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// When it was tuned, UTC.
    pub tuned: String,
    /// Green variants that were timed.
    pub timed: usize,
    /// The fastest of them, at most [`KEPT`], fastest first.
    pub best: Vec<Ranked>,
}

/// A green variant and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The variant.
    pub variant: String,
    /// Median of device time, in microseconds.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// Hash of the machine code that ran, which no other variant has; absent where the driver translated PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass_sha256: Option<String>,
}

/// All variants of a stage on a problem, fastest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The stage.
    pub stage: String,
    /// Its identity.
    pub identity: String,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// What is computed.
    pub problem: Problem,
    /// Green ones.
    pub ranked: Vec<Ranked>,
    /// The others.
    pub refused: Vec<Refused>,
}

/// A variant without a place in a ranking.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The variant.
    pub variant: String,
    /// Why.
    pub reason: String,
    /// Whether a gate failed, and not only the problem does not fit.
    pub is_wrong: bool,
    /// Whether it could have had a place: without it a ranking is not of all variants.
    pub was_tried: bool,
}

/// What a file says of a stage on a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Known<'a> {
    /// These are the best.
    Fresh(&'a [Ranked]),
    /// They were, of another version of the kernel.
    Stale,
    /// Nothing.
    Absent,
}

impl Elites {
    /// A file of `gpu` without entries.
    pub fn none(gpu: &str) -> Self {
        Self { schema: SCHEMA, gpu: gpu.to_string(), entries: vec![] }
    }

    /// The file at `path`, if there is one.
    pub fn read(path: &std::path::Path) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = read(path)? else { return Ok(None) };
        let malformed =
            |source: serde_json::Error| StoreError::Malformed { path: path.to_path_buf(), line: source.line(), source };
        let elites: Self = serde_json::from_slice(&bytes).map_err(malformed)?;
        match elites.schema {
            SCHEMA => Ok(Some(elites)),
            found => Err(StoreError::Schema { path: path.to_path_buf(), found: Some(found.into()), reads: SCHEMA }),
        }
    }

    /// What is known of `stage`, as it is built now, on a problem.
    pub fn of(&self, stage: &StageBuild, problem: &Problem) -> Known<'_> {
        match self.entries.iter().find(|entry| entry.is_of(&stage.id, problem)) {
            None => Known::Absent,
            Some(entry) if entry.identity != stage.identity => Known::Stale,
            Some(entry) => Known::Fresh(&entry.best),
        }
    }

    /// Whether `variant` of `stage`, as it is built now, is among the best on any problem; `None` where nothing is known.
    fn is_kept_anywhere(&self, stage: &StageBuild, variant: &str) -> Option<bool> {
        let mut entries =
            self.entries.iter().filter(|entry| entry.stage == stage.id && entry.identity == stage.identity).peekable();
        entries.peek()?;
        Some(entries.any(|entry| entry.best.iter().any(|ranked| ranked.variant == variant)))
    }

    /// Replaces what is known of the stages and problems of `rankings`, and keeps the rest. Where no variant is green
    /// any more, nothing is known.
    pub fn merge(&mut self, rankings: &[Ranking], tuned: &str) {
        for ranking in rankings {
            let Ranking { stage, identity, shape_name, problem, ranked, .. } = ranking;
            self.entries.retain(|entry| !entry.is_of(stage, problem));
            if ranked.is_empty() {
                continue;
            }
            self.entries.push(Entry {
                stage: stage.clone(),
                identity: identity.clone(),
                shape_name: shape_name.clone(),
                shape: problem.shape,
                dtype: problem.dtype,
                mask: problem.mask,
                tuned: tuned.to_string(),
                timed: ranked.len(),
                best: ranked.iter().take(KEPT).cloned().collect(),
            });
        }
        let place =
            |entry: &Entry| (entry.stage.clone(), entry.shape_name.clone(), entry.dtype.name(), entry.mask.name());
        self.entries.sort_by_key(place);
    }
}

impl Ranking {
    /// Whether every variant of the stage was timed, or cannot be.
    pub fn is_whole(&self) -> bool {
        self.refused.iter().all(|refused| refused.was_tried)
    }
}

impl Entry {
    fn is_of(&self, stage: &str, problem: &Problem) -> bool {
        (self.stage.as_str(), self.shape, self.dtype, self.mask) == (stage, problem.shape, problem.dtype, problem.mask)
    }
}

/// Every variant of a stage on each problem on which `record` has a time of one of them.
pub fn of_record(record: &Record) -> Vec<PlannedTiming> {
    let mut planned: Vec<PlannedTiming> = Vec::new();
    for row in timed(record) {
        let (Some(stage), Some(place)) = (record.stage(row.subject.stage()), row.on.problem()) else { continue };
        let shape =
            record.meta.shapes.get(&place.shape).copied().or_else(|| parse_shape(&place.shape).ok().map(|(_, s)| s));
        let Some(Ok(problem)) = shape.map(|shape| Problem::new(shape, place.dtype, place.mask)) else { continue };
        if planned.iter().any(|known| (&known.stage, &known.problem) == (&stage.id, &problem)) {
            continue;
        }
        planned.extend(stage.variants.iter().map(|variant| PlannedTiming {
            stage: stage.id.clone(),
            variant: variant.name.clone(),
            shape_name: place.shape.clone(),
            problem,
        }));
    }
    planned
}

/// Ranks what was set out to be timed by what `record` says of it.
pub fn rank(planned: &[PlannedTiming], record: &Record) -> Vec<Ranking> {
    let mut rankings: Vec<Ranking> = Vec::new();
    for timing in planned {
        let Some(build) = record.stage(&timing.stage) else { continue };
        let same = |ranking: &Ranking| (&ranking.stage, &ranking.problem) == (&timing.stage, &timing.problem);
        let index = rankings.iter().position(same).unwrap_or_else(|| {
            rankings.push(Ranking {
                stage: timing.stage.clone(),
                identity: build.identity.clone(),
                shape_name: timing.shape_name.clone(),
                problem: timing.problem,
                ranked: vec![],
                refused: vec![],
            });
            rankings.len() - 1
        });
        match place(timing, record) {
            Ok(ranked) => rankings[index].ranked.push(ranked),
            Err(refused) => rankings[index].refused.push(refused),
        }
    }
    for ranking in &mut rankings {
        ranking.ranked.sort_by(|a, b| a.p50_us.total_cmp(&b.p50_us).then_with(|| a.variant.cmp(&b.variant)));
    }
    rankings
}

/// The figures of an arm, or why it has none.
fn place(timing: &PlannedTiming, record: &Record) -> Result<Ranked, Refused> {
    let refused =
        |reason: String, is_wrong: bool| Refused { variant: timing.variant.clone(), reason, is_wrong, was_tried: true };
    let subject = Subject::variant(&timing.stage, &timing.variant);
    let problem = &timing.problem;
    let place = Place::of(&timing.shape_name, problem);
    let built: Vec<(&str, &Row)> = (record.by(Source::Ptxas).filter(|row| row.subject == subject))
        .filter_map(|row| match &row.on {
            On::Instance { dtype, head_dim, arch: Some(arch) } => {
                ((*dtype, *head_dim) == (problem.dtype, problem.shape.head_dim)).then_some((arch.as_str(), row))
            }
            _ => None,
        })
        .collect();
    if let Some((gate, judged)) = built.iter().find_map(|(_, row)| row.failed().next()) {
        return Err(refused(format!("{gate}: {}", judged.reason), true));
    }
    if summary(record, &subject).is_some() && !is_green(record, &subject) {
        let failed = gates(record, &subject).into_iter().filter(|(_, judged)| judged.verdict == Verdict::Fail);
        let failed: Vec<String> = failed.map(|(gate, judged)| format!("{gate}: {}", judged.reason)).collect();
        let is_wrong = !failed.is_empty();
        return Err(match unsupported(&subject, &place, problem, record).filter(|_| !is_wrong) {
            Some(reason) => refused(reason, false),
            None => refused(if is_wrong { failed.join("; ") } else { "not green on C1-C6".into() }, is_wrong),
        });
    }
    let Some(row) = timed(record).rfind(|row| row.subject == subject && row.on.problem() == Some(&place)) else {
        let unsupported = unsupported(&subject, &place, problem, record);
        let was_tried = unsupported.is_some();
        let reason = unsupported.unwrap_or_else(|| "it was not timed".into());
        return Err(Refused { was_tried, ..refused(reason, false) });
    };
    if let Some(reason) = withheld(record, row) {
        return Err(refused(reason, true));
    }
    let us = |metric: Metric| row.value(metric).unwrap_or(f64::NAN);
    let runs = |(arch, _): &&(&str, &Row)| record.meta.machine.gpu.runs(arch);
    Ok(Ranked {
        variant: timing.variant.clone(),
        p50_us: us(Metric::P50),
        p90_us: us(Metric::P90),
        sass_sha256: built.iter().find(runs).and_then(|(_, row)| row.sass.clone()),
    })
}

/// Why the preset does not take the problem, if that is so: by its cases, which a committed record is without, or because
/// the device refuses its instance, of which such a record declares nothing.
fn unsupported(subject: &Subject, place: &Place, problem: &Problem, record: &Record) -> Option<String> {
    let is_it = |row: &&Row| row.subject == *subject && matches!(&row.on, On::Case(of, _) if of == place);
    if let Some(case) = record.cases.iter().filter(is_it).find(|row| row.verdicts.is_empty()) {
        return case.note.clone();
    }
    let instance = On::Instance { dtype: problem.dtype, head_dim: problem.shape.head_dim, arch: None };
    let mut refused = record.stage(subject.stage())?.refused.iter();
    let refusal = refused.find(|refusal| refusal.variant == subject.name())?;
    record.row(subject, &instance, Source::Kernel).is_none().then(|| refusal.reason.clone())
}

/// Takes out of `plan` what need not be timed: beside the problems of the claims, variants that `elites`, read from `file`,
/// does not keep for the problem, or, where it does not know the problem, for any. What it knows of another version of
/// the kernel stays, as does what `request` names. Says so in [`Plan::timing_scopes`].
pub fn keep_elites(plan: &mut Plan, request: &Request, stages: &[StageBuild], elites: &Elites, file: &str) {
    if !request.problems.shapes.is_empty() || !request.chosen.variants.is_empty() {
        return;
    }
    for stage in stages {
        let of = plan.timings.iter().filter(|timing| timing.stage == stage.id).count();
        let mut is_stale = false;
        plan.timings.retain(|timing| {
            if timing.stage != stage.id || timing.problem.has_claims() {
                return true; // claims are judged among all
            }
            match elites.of(stage, &timing.problem) {
                Known::Fresh(best) => best.iter().any(|ranked| ranked.variant == timing.variant),
                Known::Absent => elites.is_kept_anywhere(stage, &timing.variant).unwrap_or(true),
                Known::Stale => {
                    is_stale = true;
                    true
                }
            }
        });
        let left_out = of - plan.timings.iter().filter(|timing| timing.stage == stage.id).count();
        let why = match (left_out, is_stale) {
            (0, false) => continue,
            (_, false) => format!("beside the problems of the claims, only the best variants in {file} were timed"),
            (_, true) => format!(
                "entries of {file} are STALE, the kernel has changed since: all variants were timed on their problems; run \
                 `compare tune --stages {}`",
                stage.id
            ),
        };
        plan.timing_scopes.push(TimingScope { stage: stage.id.clone(), left_out, of, why });
    }
}
