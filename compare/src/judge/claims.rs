//! Claims of speed (L1) and of counters (E1): what the run or a committed record says of each, and whether a negative record
//! covers it. One path from a stage's constant to its verdict.

use super::best::best_of;
use super::{Known, Origin, peers};
use crate::record::meta;
use crate::record::{Claim, On, Record, Relation, Row, Source, StageMeta, Subject, VariantMeta};
use common::claim::Rival;
use common::metric::{self, Metric};
use common::timing::claim;
use common::timing::stats::{Interval, Ratio, Ratios};
use common::verdict::Verdict;
use serde::Serialize;

/// How far ncu may be off where a claim states an exact ratio: hardware counters include retries, and ncu adds them up over passes.
/// The emulator must be exact.
pub const NCU_TOLERANCE: f64 = 0.1;

/// What a record says of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// With the figures.
    pub reason: String,
    /// Of a claim of speed: the two arms and the speedup of p50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
}

/// Two arms that were interleaved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub new: Subject,
    pub base: Subject,
    /// Of p50.
    pub speedup: f64,
    pub interval: (f64, f64),
    /// The speedup over the same-preset baseline, if there is one.
    pub same_preset: Option<f64>,
}

impl Finding {
    /// Without a pair.
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            pair: None,
        }
    }
}

/// Whether its figures hold for one GPU only.
pub fn is_of_gpu(claim: &Claim) -> bool {
    claim.is_of_speed() || claim.metric.source() == metric::Source::Profile
}

/// What `record` says of a claim of `stage`; `None` if it has no rows for it.
pub fn judge(record: &Record, stage: &StageMeta, claim: &Claim) -> Option<Finding> {
    match &claim.relation {
        Relation::Faster { at_least, .. } => {
            let (new, old, same) = arms(record, stage, claim)?;
            let on = On::Problem(claim.on.clone());
            let pair = |base: &Subject| record.pair(&new, base, &on, Source::Gpu);
            let same = same.as_ref().and_then(pair);
            Some(of_speed(pair(&old)?, same, *at_least))
        }
        Relation::FasterThanPeer {
            rival, at_least, ..
        } => {
            let row = over_peer(record, stage, claim, *rival)?;
            Some(of_speed(row, None, *at_least))
        }
        _ => {
            let counted = evidence(record, stage, claim, Source::Emulator);
            let is_judged = claim.metric.is_judged_by_ncu();
            let by_ncu = is_judged.then(|| evidence(record, stage, claim, Source::Ncu));
            both(counted, by_ncu.flatten())
        }
    }
}

/// What a claim of speed over another family compares: the best variant of each family, and the same-preset baseline of ours.
pub fn arms(
    record: &Record,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<(Subject, Subject, Option<Subject>)> {
    let base = claim.relation.base()?;
    let base_stage = record.stage(&base.stage)?;
    let new = &best_of(record, stage, &claim.family, &claim.on)?.subject;
    let old = &best_of(record, base_stage, &base.family, &claim.on)?.subject;
    let preset = stage.variant(new.name()).map_or("", VariantMeta::preset);
    let same = base_stage.same_preset(&base.family, preset);
    let same = same.map(|variant| base_stage.subject(&variant.name));
    Some((new.clone(), old.clone(), same))
}

/// The pair of ours and the fastest peer of the rival's whose output is right.
fn over_peer<'a>(
    record: &'a Record,
    stage: &StageMeta,
    claim: &Claim,
    rival: Rival,
) -> Option<&'a Row> {
    let is_ours = |row: &&Row| {
        let mut family = stage.family(&claim.family);
        row.on.problem() == Some(&claim.on)
            && row.has(Metric::P50)
            && family.any(|variant| stage.subject(&variant.name) == row.subject)
    };
    let ours = peers::arms(record).find(is_ours)?;
    peers::fastest(record, ours, |peer| rival.is(peer.as_str())).map(|(_, over)| over)
}

/// A speedup of at least `at_least` on p50, p90 and mean, by the rule of [`claim::judge`]. A row that failed a gate fails the claim.
fn of_speed(row: &Row, same_preset: Option<&Row>, at_least: f64) -> Finding {
    let ratio = |metric: Metric| {
        let figure = row.estimate(metric);
        let (low, high) = figure.interval.unwrap_or((f64::NAN, f64::NAN));
        Ratio {
            value: figure.value,
            interval: Interval { low, high },
        }
    };
    let [p50, p90, mean] = [Metric::SpeedupP50, Metric::SpeedupP90, Metric::SpeedupMean].map(ratio);
    let pair = Pair {
        new: row.subject.clone(),
        base: row.against.clone().unwrap_or_else(|| "nothing".into()),
        speedup: p50.value,
        interval: (p50.interval.low, p50.interval.high),
        same_preset: same_preset.and_then(|row| row.value(Metric::SpeedupP50)),
    };
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
        pair: Some(pair),
    }
}

/// The emulator's finding and ncu's as one: either of them refutes a claim.
fn both(counted: Option<Finding>, by_ncu: Option<Finding>) -> Option<Finding> {
    let (Some(counted), Some(by_ncu)) = (&counted, &by_ncu) else {
        return counted.or(by_ncu);
    };
    Some(match (counted.verdict, by_ncu.verdict) {
        (Verdict::NoData, Verdict::NoData) => counted.clone(),
        (Verdict::NoData, _) => Finding {
            reason: format!("ncu: {}", by_ncu.reason),
            ..by_ncu.clone()
        },
        (here, there) => {
            let reason = format!("{}; ncu {there}: {}", counted.reason, by_ncu.reason);
            Finding::new(if there == Verdict::Fail { there } else { here }, reason)
        }
    })
}

/// A variant, and what it is compared with.
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
    let base_stage = meta::by_id(stages, &base.stage);
    let base_stage = base_stage.ok_or_else(|| format!("there is no stage {}", base.stage))?;
    let same_preset = |variant: &'a VariantMeta| {
        let same = base_stage.same_preset(&base.family, variant.preset())?;
        Some((variant, Some((base_stage, same))))
    };
    let pairs: Vec<Compared<'_>> = family.filter_map(same_preset).collect();
    let defaults = || {
        let new = stage.default_of(&claim.family)?;
        let old = base_stage.default_of(&base.family)?;
        Some(vec![(new, Some((base_stage, old)))])
    };
    let found = Some(pairs)
        .filter(|pairs| !pairs.is_empty())
        .or_else(defaults);
    found.ok_or_else(|| format!("{} has no family {}", base.stage, base.family))
}

/// What one instrument says of a claim: FAIL if any variant is not as predicted, whatever else is missing; NO DATA if a figure is
/// missing, with the first reason. `None` if the record has no variant of the family.
pub fn evidence(record: &Record, stage: &StageMeta, claim: &Claim, by: Source) -> Option<Finding> {
    let on = On::Problem(claim.on.clone());
    let has = |variant: &VariantMeta| record.row(&stage.subject(&variant.name), &on, by).is_some();
    if !stage.family(&claim.family).any(has) {
        return None;
    }
    let mut pairs = match compared(&record.meta.stages, stage, claim) {
        Ok(pairs) => pairs,
        Err(reason) => return Some(Finding::new(Verdict::NoData, reason)),
    };
    pairs.retain(|(variant, _)| has(variant));
    let family = &claim.family;
    if pairs.is_empty() {
        let reason = format!("the claim compares no variant of {family} that is in this run");
        return Some(Finding::new(Verdict::NoData, reason));
    }
    let (mut kept, mut broken, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (variant, base) in pairs {
        match compare(record, (stage, variant), base, claim, by) {
            Err(reason) => missing.push(reason),
            Ok(found) => {
                for (is_kept, words) in found {
                    let side = if is_kept { &mut kept } else { &mut broken };
                    side.push(words);
                }
            }
        }
    }
    Some(match (&broken[..], &missing[..], &kept[..]) {
        ([_, ..], ..) => Finding::new(Verdict::Fail, broken.join("; ")),
        ([], [first, ..], _) => Finding::new(Verdict::NoData, first),
        ([], [], [only]) => Finding::new(Verdict::Pass, only),
        ([], [], [first, others @ ..]) => {
            let reason = format!("{first}; {} more as predicted", others.len());
            Finding::new(Verdict::Pass, reason)
        }
        ([], [], []) => {
            let reason = format!("{family} was not compiled for the same architecture as its base");
            Finding::new(Verdict::NoData, reason)
        }
    })
}

/// Whether a variant is as predicted, with the figures, for each architecture that both sides were compiled for.
fn compare(
    record: &Record,
    (stage, variant): (&StageMeta, &VariantMeta),
    base: Option<(&StageMeta, &VariantMeta)>,
    claim: &Claim,
    by: Source,
) -> Result<Vec<(bool, String)>, String> {
    let show = |arch: &Option<String>, name: &str, value: f64| {
        let arch: String = arch.iter().map(|arch| format!(" ({arch})")).collect();
        format!("{name}{arch} {}", claim.metric.show(value))
    };
    let values_of = |stage: &StageMeta, variant: &VariantMeta| {
        values(record, &stage.subject(&variant.name), claim, by)
    };
    let values = values_of(stage, variant)?;
    let bases = match base {
        Some((stage, base)) => Some((base, values_of(stage, base)?)),
        None => None,
    };
    let judge = |(arch, value): &(Option<String>, f64)| {
        let words = show(arch, &variant.name, *value);
        let Some((base, bases)) = &bases else {
            return Some((holds(&claim.relation, *value, None, by), words));
        };
        let (_, old) = bases.iter().find(|(other, _)| other == arch)?;
        let ratio = match *old {
            0.0 => String::new(),
            old => format!(" = {:.3}x", value / old),
        };
        let words = format!("{words} / {}{ratio}", show(arch, &base.name, *old));
        Some((holds(&claim.relation, *value, Some(*old), by), words))
    };
    Ok(values.iter().filter_map(judge).collect())
}

/// Whether `value` is as predicted, given the base's if there is one. NaN is not, nor is a ratio without a base. ncu may be off by
/// [`NCU_TOLERANCE`] from an exact ratio.
fn holds(relation: &Relation, value: f64, base: Option<f64>, by: Source) -> bool {
    match *relation {
        Relation::Ratio {
            at_least, at_most, ..
        } => {
            let is_exact = at_least == at_most;
            let slack = if by == Source::Ncu && is_exact {
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
fn values(
    record: &Record,
    subject: &Subject,
    claim: &Claim,
    by: Source,
) -> Result<Vec<(Option<String>, f64)>, String> {
    let Claim { metric, on, .. } = claim;
    let lacks = |what: &str| format!("{subject}: {what}");
    let launched = |by: Source, otherwise: &str| {
        let row = record.row(subject, &On::Problem(on.clone()), by);
        row.ok_or_else(|| lacks(otherwise))
    };
    let of_instances = |by: Source, otherwise: &str| {
        let instances = record.instances(subject, by, on.dtype, 64);
        let found: Vec<_> = instances
            .filter_map(|(arch, row)| Some((arch.map(String::from), row.value(*metric)?)))
            .collect();
        let found = Some(found).filter(|found| !found.is_empty());
        found.ok_or_else(|| lacks(otherwise))
    };
    if by == Source::Ncu && metric.is_judged_by_ncu() {
        let value = launched(by, "not launched under ncu")?.value(*metric);
        let value = value.ok_or_else(|| lacks(&format!("ncu has no value for {metric}")))?;
        return Ok(vec![(None, value)]);
    }
    match metric.source() {
        metric::Source::Counters => {
            let row = launched(Source::Emulator, "not counted in this run")?;
            if let Some(reason) = row.failure() {
                return Err(lacks(reason));
            }
            let value = row.value(*metric);
            let value = value.ok_or_else(|| lacks(row.note.as_deref().unwrap_or("not counted")))?;
            Ok(vec![(None, value)])
        }
        metric::Source::Declared => of_instances(
            Source::Kernel,
            &format!("it has no instance for {} and head_dim 64", on.dtype),
        ),
        metric::Source::Compiler => of_instances(
            Source::Ptxas,
            "no GPU code was built, or its machine code could not be read",
        ),
        metric::Source::Profile | metric::Source::Gpu => Err(lacks(
            "only ncu measures it; `compare profile` on a GPU completes this record",
        )),
    }
}

/// A claim of the ladder, and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claimed {
    pub stage: String,
    pub claim: Claim,
    /// NO DATA if no record says anything.
    pub finding: Finding,
    /// Where the finding is from.
    pub origin: Origin,
    /// The committed record that refutes the claim, if there is one. If the finding is PASS all the same, that record is out of date.
    pub refuted: Option<Refutation>,
}

/// A committed record that refutes a claim, with evidence: the stage is not promoted, and that is not an error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refutation {
    pub record: String,
    pub reason: String,
}

impl Claimed {
    /// `stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk`.
    pub fn title(&self) -> String {
        format!("{}: {}", self.stage, self.claim)
    }

    /// The verdict, unless a committed record refutes the claim.
    pub fn verdict(&self) -> Option<Verdict> {
        self.refuted.is_none().then_some(self.finding.verdict)
    }

    /// It fails, no committed record refutes it, and its kernels have not changed since.
    pub fn is_broken(&self) -> bool {
        self.verdict() == Some(Verdict::Fail) && !self.origin.is_stale()
    }

    /// This run does not decide it.
    pub fn is_ambiguous(&self) -> bool {
        self.verdict() == Some(Verdict::Ambiguous) && self.origin == Origin::Run
    }

    /// It passes although a committed record refutes it.
    pub fn is_unexpected(&self) -> Option<&Refutation> {
        let passes = self.finding.verdict == Verdict::Pass;
        self.refuted.as_ref().filter(|_| passes)
    }
}

/// The claims that fail in `record`.
pub fn failed(record: &Record) -> impl Iterator<Item = (&StageMeta, &Claim, Finding)> {
    judged(record).filter(|(.., finding)| finding.verdict == Verdict::Fail)
}

/// Every claim that `record` has rows for.
pub fn judged(record: &Record) -> impl Iterator<Item = (&StageMeta, &Claim, Finding)> {
    meta::claims(&record.meta.stages)
        .filter_map(|(stage, claim)| Some((stage, claim, judge(record, stage, claim)?)))
}

/// The stages whose kernels a claim is about: its own and its base's.
fn stages_of<'a>(stage: &'a StageMeta, claim: &'a Claim) -> impl Iterator<Item = &'a str> {
    let base = claim.relation.base().map(|base| base.stage.as_str());
    std::iter::once(stage.id.as_str()).chain(base.filter(|base| *base != stage.id))
}

/// The newest negative record that covers a claim, and its evidence: it must have the same words, the same kernels on both sides, and
/// the same GPU if the figures hold for one only.
fn refuted_by(
    known: &Known<'_>,
    stage: &StageMeta,
    claim: &Claim,
    gpu: Option<&str>,
) -> Option<(Refutation, String)> {
    let words = claim.to_string();
    known.committed.iter().rev().find_map(|(name, record)| {
        let same_gpu = !is_of_gpu(claim) || record.meta.gpu() == gpu;
        let has_kernel = |id: &str| known.stage(id).is_some_and(|stage| record.is_of(stage));
        let covers = same_gpu && stages_of(stage, claim).all(has_kernel);
        let evidence = record.meta.refuted(&stage.id, &words).filter(|_| covers)?;
        let refutation = Refutation {
            record: name.clone(),
            reason: record.meta.negative.as_ref()?.reason.clone(),
        };
        Some((refutation, evidence.evidence.clone()))
    })
}

/// Every claim of the ladder as built now: what the run says, else the newest committed record of the same kernels, else the newest.
pub fn claims(known: &Known<'_>) -> Vec<Claimed> {
    let claimed = |(stage, claim)| claimed(known, stage, claim);
    meta::claims(known.stages).map(claimed).collect()
}

fn claimed(known: &Known<'_>, stage: &StageMeta, claim: &Claim) -> Claimed {
    let find = |record: &Record| judge(record, record.stage(&stage.id)?, claim);
    let negative = |record: &Record| refuted_by(known, stage, claim, record.meta.gpu());
    let claimed = |finding, origin, refuted: Option<Refutation>| Claimed {
        stage: stage.id.clone(),
        claim: claim.clone(),
        finding,
        origin,
        refuted,
    };
    let lacking = "not measured in this run, and no committed record has it";
    let mut lacking = Finding::new(Verdict::NoData, lacking);
    if let Some((run, finding)) = known.run.and_then(|(_, run)| Some((run, find(run)?))) {
        match finding.verdict {
            Verdict::NoData => lacking = finding,
            verdict => {
                let refuted = negative(run).filter(|_| verdict != Verdict::Ambiguous);
                let refuted = refuted.map(|(refutation, _)| refutation);
                return claimed(finding, Origin::Run, refuted);
            }
        }
    }
    let mut stale = None;
    for (name, record) in known.committed.iter().rev() {
        let found = find(record).filter(|finding| finding.verdict != Verdict::NoData);
        let Some(mut finding) = found else { continue };
        let of_stage = |id: &str| known.origin(Some(name), record, id, is_of_gpu(claim));
        let is_stale = |id: &&str| of_stage(id).is_stale();
        let outdated = stages_of(stage, claim).find(is_stale);
        let origin = of_stage(outdated.unwrap_or(&stage.id));
        if origin.is_stale() {
            stale = stale.or(Some(claimed(finding, origin, None)));
            continue;
        }
        let negative = negative(record).filter(|_| finding.verdict != Verdict::Pass);
        let refuted = negative.map(|(refutation, evidence)| {
            finding.reason = evidence;
            refutation
        });
        return claimed(finding, origin, refuted);
    }
    stale.unwrap_or_else(|| claimed(lacking, Origin::Run, None))
}

#[cfg(test)]
mod tests;
