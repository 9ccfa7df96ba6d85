//! Claims of speed (L1) and of counters (E1): what the table says of each, and whether it is recorded as refuted. One path from a
//! stage's constant to its verdict.

use super::best::{best_of, latency, p50, time};
use super::{View, peers};
use crate::table::session;
use crate::table::{
    Claim, Judged, Negative, Place, ProblemPlace, Relation, Row, Source, StageMeta, Subject, Table,
    VariantMeta,
};
use common::claim::Rival;
use common::metric::{self, Metric};
use common::timing::claim;
use common::timing::stats::Ratios;
use common::verdict::{GateId, Verdict};

/// How far ncu may be off where a claim states an exact ratio: hardware counters include retries, and ncu adds them up over passes.
/// The emulator must be exact.
pub const NCU_TOLERANCE: f64 = 0.1;

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub verdict: Verdict,
    pub reason: String,
    /// Speedup over the same-preset baseline.
    pub same_preset: Option<f64>,
}

impl Finding {
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            same_preset: None,
        }
    }
}

/// What the table says of a claim of `stage`, and a row that the finding rests on; `None` if it has no rows for it.
fn judge<'a>(view: &'a View<'_>, stage: &StageMeta, claim: &Claim) -> Option<(Finding, &'a Row)> {
    match &claim.relation {
        Relation::Faster { at_least, .. } => {
            let (row, same_preset) = interleaved(view, stage, claim)?;
            Some((of_speed(row, same_preset, *at_least), row))
        }
        Relation::FasterThanPeer {
            rival, at_least, ..
        } => {
            let row = over_peer(view, stage, claim, *rival)?;
            Some((of_speed(row, None, *at_least), row))
        }
        _ => of_figures(view, stage, claim),
    }
}

/// What a claim of speed over another family compares: the best variant of each family, and the same-preset baseline of ours. A run
/// times these against each other.
pub fn arms(
    view: &View<'_>,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<(Subject, Subject, Option<Subject>)> {
    let base = claim
        .relation
        .base()
        .filter(|_| claim.is_about(view.gpu()))?;
    let base_stage = view.stage(base.stage)?;
    let new = &best_of(view, stage, &claim.family, &claim.place)?.subject;
    let old = &best_of(view, base_stage, base.family, &claim.place)?.subject;
    let same = same_preset(view, stage, claim, new);
    Some((new.clone(), old.clone(), same))
}

/// The variant of the claim's base with the preset of ours.
fn same_preset(
    view: &View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    new: &Subject,
) -> Option<Subject> {
    let base = claim.relation.base()?;
    let base_stage = view.stage(base.stage)?;
    let preset = stage.variant(new.name()).map_or("", VariantMeta::preset);
    let same = base_stage.same_preset(base.family, preset)?;
    Some(base_stage.subject(&same.name))
}

/// The interleaved pair that decides a claim of speed over another family, and the pair with the same preset: of the newest session
/// with both families as they are now, the pair of the arms that were fastest.
fn interleaved<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<(&'a Row, Option<&'a Row>)> {
    let base = claim.relation.base()?;
    let base_stage = view.stage(base.stage)?;
    let ours = stage.family_subjects(&claim.family);
    let theirs = base_stage.family_subjects(base.family);
    let row = fastest_of(view, ours, theirs, &claim.place)?;
    let same = same_preset(view, stage, claim, &row.subject);
    let pair = |base| {
        let place = Place::Problem(claim.place.clone());
        view.table.pair(&row.subject, base, &place, Source::Gpu)
    };
    Some((row, same.as_ref().and_then(pair)))
}

/// Returns the pair of the fastest variants of two stages on a problem, whatever was claimed of it.
pub fn fastest_pair<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    base: &StageMeta,
    place: &ProblemPlace,
) -> Option<&'a Row> {
    fastest_of(view, stage.subjects(), base.subjects(), place)
}

/// Of the newest session that has pairs of these variants as they are now, the pair of the arms that were fastest.
fn fastest_of<'a>(
    view: &'a View<'_>,
    ours: impl Iterator<Item = Subject>,
    theirs: impl Iterator<Item = Subject>,
    problem: &ProblemPlace,
) -> Option<&'a Row> {
    let place = Place::Problem(problem.clone());
    let theirs: Vec<Subject> = theirs.collect();
    let table = &view.table;
    let pair = |new: &Subject, base: &Subject| table.pair(new, base, &place, Source::Gpu);
    let pairs = ours.flat_map(|new| theirs.iter().filter_map(move |base| pair(&new, base)));
    let arms = |row: &'a Row| {
        [Some(&row.subject), row.paired_with.as_ref()]
            .into_iter()
            .flatten()
    };
    // What is wrong is not fast.
    let is_right = |subject: &Subject| !matches!(latency(view, subject, problem), Some(Err(_)));
    let pairs = pairs.filter(|row| arms(row).all(is_right));
    let newest = |row: &'a Row| (view.is_of_run(row), !view.is_stale(row), &row.session);
    let us = |subject: &Subject| time(table, subject, problem).map_or(f64::INFINITY, p50);
    pairs.max_by(|a, b| {
        let slower = arms(b).map(us).partial_cmp(arms(a).map(us));
        newest(a)
            .cmp(&newest(b))
            .then(slower.expect("times are numbers"))
    })
}

/// The pair of ours and the fastest peer of the rival's whose output is right.
fn over_peer<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    rival: Rival,
) -> Option<&'a Row> {
    let family: Vec<Subject> = stage.family_subjects(&claim.family).collect();
    let is_its = |row: &Row| family.contains(&row.subject);
    let ours = peers::ours(view, &claim.place, is_its)?;
    peers::fastest(&view.table, ours, |peer| rival.is(peer.as_str())).map(|(_, over)| over)
}

/// A speedup of at least `at_least` on p50, p90 and mean, by the rule of [`claim::judge`]. A row that failed a gate fails the claim.
fn of_speed(row: &Row, same_preset: Option<&Row>, at_least: f64) -> Finding {
    let [p50, p90, mean] = [Metric::SpeedupP50, Metric::SpeedupP90, Metric::SpeedupMean]
        .map(|metric| row.estimate(metric).ratio());
    // Faster than the speed of light, or the output was wrong while it was timed.
    let (verdict, reason) = match row.failure() {
        Some(reason) => (Verdict::Fail, reason.to_string()),
        None => {
            let noise = row.value(Metric::Noise).unwrap_or(f64::NAN);
            let result = claim::judge(&Ratios { p50, p90, mean }, noise, at_least);
            (result.verdict, result.reason)
        }
    };
    Finding {
        verdict,
        reason,
        same_preset: same_preset.and_then(|row| row.value(Metric::SpeedupP50)),
    }
}

/// What the instruments say that have data: the emulator or the compiler, and ncu; each of them refutes a claim.
fn of_figures<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<(Finding, &'a Row)> {
    let by_ncu = claim.metric.spec().is_judged_by_ncu;
    let instruments = [Some(Source::Emulator), by_ncu.then_some(Source::Ncu)];
    let found = instruments.into_iter().flatten();
    let found = found.filter_map(|source| evidence(view, stage, claim, source));
    let (none, found): (Vec<_>, Vec<_>) =
        found.partition(|(finding, _)| finding.verdict == Verdict::NoData);
    let mut found = found.into_iter().chain(none);
    let (mut finding, row) = found.next()?;
    for (other, _) in found.filter(|(finding, _)| finding.verdict != Verdict::NoData) {
        finding.reason += &format!("; {}", other.reason);
        if other.verdict == Verdict::Fail {
            finding.verdict = other.verdict;
        }
    }
    Some((finding, row))
}

pub type Compared<'a> = (&'a VariantMeta, Option<(&'a StageMeta, &'a VariantMeta)>);

/// What a claim compares: each variant of its family with the base of the same preset, or the defaults of both families if no preset
/// is in both. Different presets are never compared because one of a pair was not run. Else what is missing.
pub fn compared<'a>(
    stages: &'a [StageMeta],
    stage: &'a StageMeta,
    claim: &'a Claim,
) -> Result<Vec<Compared<'a>>, String> {
    let family = stage.family(&claim.family);
    let Some(base) = claim.relation.base() else {
        return Ok(family.map(|variant| (variant, None)).collect());
    };
    let base_stage = session::by_id(stages, base.stage);
    let base_stage = base_stage.ok_or_else(|| format!("there is no stage {}", base.stage))?;
    let same_preset = |variant: &'a VariantMeta| {
        let same = base_stage.same_preset(base.family, variant.preset())?;
        Some((variant, Some((base_stage, same))))
    };
    let pairs: Vec<Compared<'_>> = family.filter_map(same_preset).collect();
    let defaults = || {
        let new = stage.default_of(&claim.family)?;
        let old = base_stage.default_of(base.family)?;
        Some(vec![(new, Some((base_stage, old)))])
    };
    let found = Some(pairs)
        .filter(|pairs| !pairs.is_empty())
        .or_else(defaults);
    found.ok_or_else(|| format!("{} has no family {}", base.stage, base.family))
}

/// What one instrument says of a claim: FAIL if any variant is not as predicted, whatever else is missing; NO DATA if a figure is
/// missing, with the first reason. `None` if the table has no variant of the family.
pub fn evidence<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    source: Source,
) -> Option<(Finding, &'a Row)> {
    let place = Place::Problem(claim.place.clone());
    let row_of = |variant: &VariantMeta| {
        view.table
            .row(&stage.subject(&variant.name), &place, source)
    };
    let rows = stage.family(&claim.family).filter_map(row_of);
    // A stale row makes the finding stale.
    let row = rows.min_by_key(|row| (!view.is_stale(row), !view.is_of_run(row)))?;
    let family = &claim.family;
    let (mut kept, mut broken, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    let pairs = compared(view.stages, stage, claim).unwrap_or_else(|reason| {
        missing.push(reason);
        vec![]
    });
    let measured = pairs.into_iter().filter(|(new, _)| row_of(new).is_some());
    let measured: Vec<Compared<'_>> = measured.collect();
    if measured.is_empty() {
        missing.push(format!(
            "the claim compares no variant of {family} that was measured"
        ));
    }
    for (variant, base) in measured {
        match compare(&view.table, (stage, variant), base, claim, source) {
            Err(reason) => missing.push(reason),
            Ok(compared) => {
                for (is_kept, words) in compared {
                    let side = if is_kept { &mut kept } else { &mut broken };
                    side.push(words);
                }
            }
        }
    }
    let (verdict, reason) = match (&broken[..], &missing[..], &kept[..]) {
        ([_, ..], ..) => (Verdict::Fail, broken.join("; ")),
        ([], [first, ..], _) => (Verdict::NoData, first.clone()),
        ([], [], [only]) => (Verdict::Pass, only.clone()),
        ([], [], [first, others @ ..]) => (
            Verdict::Pass,
            format!("{first}; {} more as predicted", others.len()),
        ),
        ([], [], []) => (
            Verdict::NoData,
            format!("{family} was not compiled for the same architecture as its base"),
        ),
    };
    let reason = match source {
        Source::Ncu => format!("ncu {verdict}: {reason}"),
        _ => reason,
    };
    Some((Finding::new(verdict, reason), row))
}

/// Whether a variant is as predicted, with the figures, for each architecture that both sides were compiled for.
fn compare(
    table: &Table,
    (stage, variant): (&StageMeta, &VariantMeta),
    base: Option<(&StageMeta, &VariantMeta)>,
    claim: &Claim,
    source: Source,
) -> Result<Vec<(bool, String)>, String> {
    let values_of = |stage: &StageMeta, variant: &VariantMeta| {
        values(table, &stage.subject(&variant.name), claim, source)
    };
    let show = |variant: &VariantMeta, arch: Option<&str>, value: f64| {
        let arch = arch.map(|arch| format!(" ({arch})")).unwrap_or_default();
        format!("{}{arch} {}", variant.name, claim.metric.show(value))
    };
    let values = values_of(stage, variant)?;
    let base = match base {
        Some((stage, base)) => Some((base, values_of(stage, base)?)),
        None => None,
    };
    let judge = |(arch, value): (Option<&str>, f64)| {
        let words = show(variant, arch, value);
        let Some((base, bases)) = &base else {
            return Some((holds(&claim.relation, value, None, source), words));
        };
        let (_, old) = *bases.iter().find(|(other, _)| *other == arch)?;
        let ratio = match old {
            0.0 => String::new(),
            old => format!(" = {:.3}x", value / old),
        };
        let words = format!("{words} / {}{ratio}", show(base, arch, old));
        Some((holds(&claim.relation, value, Some(old), source), words))
    };
    Ok(values.into_iter().filter_map(judge).collect())
}

/// Whether `value` is as predicted, given the base's if there is one. NaN is not, nor is a ratio without a base. ncu may be off by
/// [`NCU_TOLERANCE`] from an exact ratio.
fn holds(relation: &Relation, value: f64, base: Option<f64>, source: Source) -> bool {
    match *relation {
        Relation::Ratio {
            at_least, at_most, ..
        } => {
            let is_exact = at_least == at_most;
            let slack = if source == Source::Ncu && is_exact {
                NCU_TOLERANCE
            } else {
                0.0
            };
            let (at_least, at_most) = (at_least * (1.0 - slack), at_most * (1.0 + slack));
            base.is_some_and(|base| at_least * base <= value && value <= at_most * base)
        }
        Relation::AtLeast { bound } => value >= bound,
        Relation::AtMost { bound } => value <= bound,
        Relation::Faster { .. } | Relation::FasterThanPeer { .. } => false,
    }
}

/// The values of a claim's metric, each with its architecture if it depends on one; else why there is none.
fn values<'a>(
    table: &'a Table,
    subject: &Subject,
    claim: &Claim,
    source: Source,
) -> Result<Vec<(Option<&'a str>, f64)>, String> {
    let Claim { metric, place, .. } = claim;
    let head_dim = place.extents().map_or(0, |shape| shape.head_dim);
    let of_instances = |source| {
        let instances = table.instances(subject, source, place.dtype, head_dim);
        let values = instances.filter_map(|(arch, row)| Some((arch, row.value(*metric)?)));
        values.collect::<Vec<_>>()
    };
    let (found, otherwise): (Vec<_>, String) = match (source, metric.source()) {
        (Source::Ncu, _) | (_, metric::Source::Counters) => {
            let row = table.row(subject, &Place::Problem(place.clone()), source);
            let right = row.filter(|row| row.failure().is_none());
            let value = right.and_then(|row| row.value(*metric));
            let reason = row.and_then(|row| row.failure().or(row.note.as_deref()));
            let reason = reason.map_or_else(|| format!("not measured by {source}"), String::from);
            (Vec::from_iter(value.map(|value| (None, value))), reason)
        }
        (_, metric::Source::Declared) => (
            of_instances(Source::Kernel),
            format!(
                "it has no instance for {} and head_dim {head_dim}",
                place.dtype
            ),
        ),
        (_, metric::Source::Compiler | metric::Source::MachineCode) => (
            of_instances(Source::Ptxas),
            "no GPU code was built, or its machine code could not be read".into(),
        ),
        (_, metric::Source::Profile | metric::Source::Gpu) => (
            vec![],
            "only ncu measures it; `compare profile` on a GPU completes the run".into(),
        ),
    };
    match found.is_empty() {
        true => Err(format!("{subject}: {otherwise}")),
        false => Ok(found),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub stage: String,
    pub claim: Claim,
    /// NO DATA if the table says nothing.
    pub finding: Finding,
    pub row: Option<Row>,
    /// Whether the finding is of this invocation's run.
    pub is_of_run: bool,
    pub is_stale: bool,
    /// The refutation beside the stage. If the finding is PASS all the same, it is out of date.
    pub negative: Option<Negative>,
}

impl Claimed {
    /// `stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk`.
    pub fn title(&self) -> String {
        format!("{}: {}", self.stage, self.claim)
    }

    /// Of a claim of speed, the two arms that were timed.
    pub fn pair(&self) -> Option<&Row> {
        self.row.as_ref().filter(|row| row.paired_with.is_some())
    }

    pub fn session(&self) -> Option<&str> {
        self.row.as_ref().map(|row| row.session.as_str())
    }

    pub fn verdict(&self) -> Option<Verdict> {
        self.negative.is_none().then_some(self.finding.verdict)
    }

    /// It fails, nothing refutes it, and its kernels have not changed since.
    pub fn is_broken(&self) -> bool {
        self.verdict() == Some(Verdict::Fail) && !self.is_stale
    }

    pub fn is_ambiguous(&self) -> bool {
        self.verdict() == Some(Verdict::Ambiguous) && self.is_of_run
    }

    pub fn is_unexpected(&self) -> Option<&Negative> {
        let passes = self.finding.verdict == Verdict::Pass && !self.is_stale;
        self.negative.as_ref().filter(|_| passes)
    }

    /// As it may be recorded, on the GPU of the report, once somebody has found out why.
    pub fn refutation(&self, gpu: Option<&str>) -> Negative {
        let arms = self.pair().and_then(|row| {
            let base = row.paired_with.as_ref()?;
            Some(format!("{} against {base}: ", row.subject.name()))
        });
        let is_of_gpu =
            self.claim.is_of_speed() || self.claim.metric.source() == metric::Source::Profile;
        Negative {
            claim: self.claim.id(),
            gpu: gpu.filter(|_| is_of_gpu).map(String::from),
            measured: format!(
                "{}{} ({})",
                arms.unwrap_or_default(),
                self.finding.reason,
                self.session().unwrap_or_default()
            ),
            why: String::new(),
        }
    }

    /// As a row of the table, so that two tables are compared by it.
    pub fn row(&self) -> Row {
        let gate = match self.claim.is_of_speed() {
            true => GateId::L1,
            false => GateId::E1,
        };
        let subject = Subject::variant(&self.stage, &self.claim.family);
        let mut row = Row::new(subject, Place::Named(self.claim.id()), Source::Claim);
        row.session = self.session().unwrap_or_default().to_string();
        // A claim that fails with a note is refuted, and no failure.
        row.note = self.negative.as_ref().map(|negative| negative.why.clone());
        let judged = Judged {
            verdict: self.finding.verdict,
            passed: None,
            of: None,
            reason: self.finding.reason.clone(),
        };
        row.judge(gate, judged);
        row
    }
}

/// The table with what it says of every claim now, in place of what it said before.
pub fn restate(table: &mut Table, stages: &[StageMeta]) {
    let claims = claims(&View::committed(stages, table));
    table.retain(|row| row.source != Source::Claim);
    table.extend(claims.iter().map(Claimed::row));
}

pub fn claims(view: &View<'_>) -> Vec<Claimed> {
    let claims = session::claims(view.stages);
    claims
        .map(|(stage, claim)| claimed(view, stage, claim))
        .collect()
}

fn claimed(view: &View<'_>, stage: &StageMeta, claim: &Claim) -> Claimed {
    let (id, gpu) = (claim.id(), view.gpu());
    let found = claim
        .is_about(gpu)
        .then(|| judge(view, stage, claim))
        .flatten();
    let row = found.as_ref().map(|(_, row)| *row);
    let negative = stage.negatives.iter().find(|negative| {
        let is_here = negative.gpu.is_none() || negative.gpu.as_deref() == gpu;
        negative.claim == id && is_here
    });
    let lacking = || {
        let reason = match &claim.gpu {
            Some(of) if !claim.is_about(gpu) => {
                format!("predicted for an {of} alone; `compare run` there measures it")
            }
            _ => "not measured".to_string(),
        };
        Finding::new(Verdict::NoData, reason)
    };
    Claimed {
        stage: stage.id.clone(),
        claim: claim.clone(),
        row: row.cloned(),
        is_of_run: row.is_some_and(|row| view.is_of_run(row)),
        is_stale: row.is_some_and(|row| view.is_stale(row)),
        finding: found.map_or_else(lacking, |(finding, _)| finding),
        negative: negative.cloned(),
    }
}

#[cfg(test)]
mod tests;
