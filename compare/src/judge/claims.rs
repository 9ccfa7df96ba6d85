//! Claims, of speed (L1) and of counters (E1): what a record says of each, what a committed record said, and whether a
//! negative record settles it. One path from a stage's constant to its verdict.

use super::best::best_of;
use super::{Known, Origin, peers};
use crate::record::meta;
use crate::record::{
    Claim, Negative, On, Record, Refuted, Relation, Row, Source, StageMeta, Subject, VariantMeta,
};
use common::claim::Rival;
use common::metric::{self, Metric};
use common::timing::claim;
use common::timing::stats::{Interval, Ratio, Ratios};
use common::verdict::Verdict;
use serde::Serialize;

/// On the GPU an exact ratio may be off by this much: hardware counters see retries that no definition has, and ncu adds
/// them up over passes. The plan of the ladder allows ncu 10 % where the emulator must be exact.
pub const NCU_TOLERANCE: f64 = 0.1;

/// A claim as a record judges it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// With the figures.
    pub reason: String,
    /// Of a claim of speed: both candidates and the speedup on p50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
}

/// Two candidates that were interleaved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    pub new: Subject,
    pub base: Subject,
    /// Of p50.
    pub speedup: f64,
    pub interval: (f64, f64),
    /// The speedup over the base's variant of the same preset, where there is one.
    pub same_preset: Option<f64>,
}

impl Finding {
    /// Of a claim that no pair decides.
    fn new(verdict: Verdict, reason: String) -> Self {
        Self {
            verdict,
            reason,
            pair: None,
        }
    }
}

/// Whether figures of the claim are of one GPU, and of no other.
pub fn is_of_gpu(claim: &Claim) -> bool {
    claim.is_of_speed() || claim.metric.source() == metric::Source::Profile
}

/// What the rows of `record` say of a claim of `stage`; `None` where they have nothing of it.
pub fn judge(record: &Record, stage: &StageMeta, claim: &Claim) -> Option<Finding> {
    match &claim.relation {
        Relation::Faster { at_least, .. } => {
            faster(record, stage, claim).map(|(row, same)| of_speed(row, same, *at_least))
        }
        Relation::FasterThanPeer {
            rival, at_least, ..
        } => faster_than(record, stage, claim, *rival).map(|row| of_speed(row, None, *at_least)),
        _ => {
            let counted = evidence(record, stage, claim, Source::Emulator);
            let by_ncu = claim
                .metric
                .is_judged_by_ncu()
                .then(|| evidence(record, stage, claim, Source::Ncu))
                .flatten();
            both(counted, by_ncu)
        }
    }
}

/// What a claim of speed over another family compares: the best variant of each, and the base's of the best's preset.
pub fn arms(
    record: &Record,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<(Subject, Subject, Option<Subject>)> {
    let base = claim.relation.base()?;
    let base_stage = record.stage(&base.stage)?;
    let [new, old] = [(stage, &*claim.family), (base_stage, &*base.family)]
        .map(|(stage, family)| Some(best_of(record, stage, family, &claim.on)?.subject.clone()));
    let (new, old) = (new?, old?);
    let preset = stage.variant(new.name()).map_or("", VariantMeta::preset);
    let same = base_stage
        .same_preset(&base.family, preset)
        .map(|variant| base_stage.subject(&variant.name));
    Some((new, old, same))
}

/// The pair of the best of both families, and the row of the best against the base's variant of the same preset.
fn faster<'a>(
    record: &'a Record,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<(&'a Row, Option<&'a Row>)> {
    let (new, old, same) = arms(record, stage, claim)?;
    let pair =
        |base: &Subject| record.pair(&new, base, &On::Problem(claim.on.clone()), Source::Gpu);
    Some((pair(&old)?, same.as_ref().and_then(pair)))
}

/// The pair of ours and the fastest of the rival's whose output is right.
fn faster_than<'a>(
    record: &'a Record,
    stage: &StageMeta,
    claim: &Claim,
    rival: Rival,
) -> Option<&'a Row> {
    let is_ours = |row: &&Row| {
        row.on.problem() == Some(&claim.on)
            && row.subject.stage() == stage.id
            && row.has(Metric::P50)
            && stage
                .family(&claim.family)
                .any(|variant| variant.name == row.subject.name())
    };
    let ours = peers::arms(record).find(is_ours)?;
    peers::fastest(record, ours, |peer| rival.is(peer.as_str())).map(|(_, over)| over)
}

/// A speedup of at least `at_least` on p50, p90 and mean, by the rule of [`claim::judge`]. A time below the speed of light has failed
/// whatever the ratio.
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
        base: row
            .against
            .clone()
            .unwrap_or_else(|| Subject::from("nothing")),
        speedup: p50.value,
        interval: (p50.interval.low, p50.interval.high),
        same_preset: same_preset.and_then(|row| row.value(Metric::SpeedupP50)),
    };
    // A time that no kernel can have, or an output that was wrong while it was timed.
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

/// The emulator's finding and ncu's as one: what either refutes is refuted.
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
        (here, there) => Finding::new(
            if there == Verdict::Fail {
                Verdict::Fail
            } else {
                here
            },
            format!("{}; ncu {there}: {}", counted.reason, by_ncu.reason),
        ),
    })
}

/// A variant, and what it is compared with.
pub type Compared<'a> = (&'a VariantMeta, Option<(&'a StageMeta, &'a VariantMeta)>);

/// What a claim compares over all variants of its family, or what is missing: one preset is never compared with another
/// because its own or its base's was left out.
pub fn compared<'a>(
    stages: &'a [StageMeta],
    stage: &'a StageMeta,
    claim: &'a Claim,
) -> Result<Vec<Compared<'a>>, String> {
    let Some(base) = claim.relation.base() else {
        return Ok(stage
            .family(&claim.family)
            .map(|variant| (variant, None))
            .collect());
    };
    let base_stage = meta::by_id(stages, &base.stage);
    let base_stage = base_stage.ok_or_else(|| format!("there is no stage {}", base.stage))?;
    let same_preset = |variant: &'a VariantMeta| {
        Some((
            variant,
            Some((
                base_stage,
                base_stage.same_preset(&base.family, variant.preset())?,
            )),
        ))
    };
    let pairs: Vec<Compared<'_>> = stage
        .family(&claim.family)
        .filter_map(same_preset)
        .collect();
    if !pairs.is_empty() {
        return Ok(pairs);
    }
    let (Some(new), Some(old)) = (
        stage.default_of(&claim.family),
        base_stage.default_of(&base.family),
    ) else {
        return Err(format!("{} has no family {}", base.stage, base.family));
    };
    Ok(vec![(new, Some((base_stage, old)))])
}

/// What one instrument says of a claim: NO DATA where a figure is missing, with the reason of the first; FAIL where any
/// variant is not as predicted, whatever else is missing. `None` where the record has no variant of the family.
pub fn evidence(record: &Record, stage: &StageMeta, claim: &Claim, by: Source) -> Option<Finding> {
    let on = On::Problem(claim.on.clone());
    let has = |variant: &VariantMeta| record.row(&stage.subject(&variant.name), &on, by).is_some();
    if !stage.family(&claim.family).any(has) {
        return None;
    }
    let pairs = match compared(&record.meta.stages, stage, claim) {
        Ok(pairs) => pairs
            .into_iter()
            .filter(|(variant, _)| has(variant))
            .collect::<Vec<_>>(),
        Err(reason) => return Some(Finding::new(Verdict::NoData, reason)),
    };
    if pairs.is_empty() {
        let reason = format!(
            "no variant of {} in this run is one that the claim compares",
            claim.family
        );
        return Some(Finding::new(Verdict::NoData, reason));
    }
    let (mut kept, mut broken, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (variant, base) in pairs {
        match compare(record, (stage, variant), base, claim, by) {
            Err(reason) => missing.push(reason),
            Ok(found) => {
                for (is_kept, words) in found {
                    if is_kept {
                        kept.push(words)
                    } else {
                        broken.push(words)
                    }
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
        ([], [], []) => {
            let family = &claim.family;
            (
                Verdict::NoData,
                format!("{family} was not compiled for the same architecture as its base"),
            )
        }
    };
    Some(Finding::new(verdict, reason))
}

/// Whether a variant is as predicted, in words, for each architecture that both sides were compiled for.
fn compare(
    record: &Record,
    (stage, variant): (&StageMeta, &VariantMeta),
    base: Option<(&StageMeta, &VariantMeta)>,
    claim: &Claim,
    by: Source,
) -> Result<Vec<(bool, String)>, String> {
    let show = |arch: &Option<String>, name: &str, value: f64| {
        let arch = arch
            .as_ref()
            .map(|arch| format!(" ({arch})"))
            .unwrap_or_default();
        format!("{name}{arch} {}", claim.metric.show(value))
    };
    let values = values(record, &stage.subject(&variant.name), claim, by)?;
    let Some((base_stage, base)) = base else {
        let judge = |(arch, value): &(_, f64)| {
            (
                holds(&claim.relation, *value, None, by),
                show(arch, &variant.name, *value),
            )
        };
        return Ok(values.iter().map(judge).collect());
    };
    let bases = self::values(record, &base_stage.subject(&base.name), claim, by)?;
    let judge = |(arch, value): &(Option<String>, f64)| {
        let (_, old) = bases.iter().find(|(other, _)| other == arch)?;
        let ratio = if *old == 0.0 {
            String::new()
        } else {
            format!(" = {:.3}x", value / old)
        };
        let words = format!(
            "{} / {}{ratio}",
            show(arch, &variant.name, *value),
            show(arch, &base.name, *old)
        );
        Some((holds(&claim.relation, *value, Some(*old), by), words))
    };
    Ok(values.iter().filter_map(judge).collect())
}

/// Whether `value` is as predicted, beside the base's where there is one. NaN never is, nor is a ratio without a base. A
/// ratio that was predicted exactly may be off by [`NCU_TOLERANCE`] on a GPU.
fn holds(relation: &Relation, value: f64, base: Option<f64>, by: Source) -> bool {
    match *relation {
        Relation::Ratio {
            at_least, at_most, ..
        } => {
            let slack = if by == Source::Ncu && at_least == at_most {
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

/// The values of a metric, each with the architecture where it depends on one; or why there is none.
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
        let found: Vec<_> = record
            .instances(subject, by, on.dtype, 64)
            .filter_map(|(arch, row)| Some((arch.map(String::from), row.value(*metric)?)))
            .collect();
        match found.is_empty() {
            true => Err(lacks(otherwise)),
            false => Ok(found),
        }
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
            match row.value(*metric) {
                Some(value) => Ok(vec![(None, value)]),
                None => Err(lacks(row.note.as_deref().unwrap_or("not counted"))),
            }
        }
        metric::Source::Declared => of_instances(
            Source::Kernel,
            &format!("it has no instance for {} and head_dim 64", on.dtype),
        ),
        metric::Source::Compiler => of_instances(
            Source::Ptxas,
            "no GPU code was built, or its machine code was not read",
        ),
        metric::Source::Profile | metric::Source::Gpu => Err(lacks(
            "only ncu measures it; `compare profile` on a GPU completes this record",
        )),
    }
}

/// What is known of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// This run judged it, or a committed record whose kernel is the same.
    Judged {
        origin: Origin,
        finding: Finding,
    },
    /// It fails, and a committed record says so, with evidence: not promoted, and not an error.
    Negative {
        record: String,
        reason: String,
        evidence: String,
    },
    /// It passes although a committed record refutes it: the record should go.
    UnexpectedPass {
        record: String,
        finding: Finding,
    },
    NoData {
        reason: String,
    },
}

/// A claim of the ladder, and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claimed {
    pub stage: String,
    pub claim: Claim,
    pub status: Status,
}

impl Claimed {
    /// `stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk`.
    pub fn title(&self) -> String {
        format!("{}: {}", self.stage, self.claim)
    }

    fn finds(&self, verdict: Verdict) -> Option<&Origin> {
        match &self.status {
            Status::Judged { origin, finding } if finding.verdict == verdict => Some(origin),
            _ => None,
        }
    }

    /// It fails, and no committed record refutes it. What a changed kernel measured before counts no more.
    pub fn is_broken(&self) -> bool {
        self.finds(Verdict::Fail)
            .is_some_and(|origin| !origin.is_stale())
    }

    /// This run does not decide it.
    pub fn is_ambiguous(&self) -> bool {
        self.finds(Verdict::Ambiguous) == Some(&Origin::Run)
    }
}

/// Claims that fail in `record`: stage, claim, and what was measured.
pub fn failed(record: &Record) -> impl Iterator<Item = (&StageMeta, &Claim, Finding)> {
    judged(record).filter(|(.., finding)| finding.verdict == Verdict::Fail)
}

/// Every claim that `record` has something of.
pub fn judged(record: &Record) -> impl Iterator<Item = (&StageMeta, &Claim, Finding)> {
    meta::claims(&record.meta.stages)
        .filter_map(|(stage, claim)| Some((stage, claim, judge(record, stage, claim)?)))
}

/// The stages whose kernels a claim is about: its own, and the one that it is compared with.
fn stages_of<'a>(stage: &'a StageMeta, claim: &'a Claim) -> impl Iterator<Item = &'a str> {
    let base = claim.relation.base().map(|base| base.stage.as_str());
    std::iter::once(stage.id.as_str()).chain(base.filter(|base| *base != stage.id))
}

/// The newest negative record that covers a claim, and what it says: the same words, the same kernels on both sides, and the
/// same GPU where its figures are of one.
fn refuted_by<'a>(
    known: &Known<'a>,
    stage: &StageMeta,
    claim: &Claim,
    gpu: Option<&str>,
) -> Option<(&'a str, &'a Negative, &'a Refuted)> {
    let words = claim.to_string();
    known.committed.iter().rev().find_map(|(name, record)| {
        let same_gpu = !is_of_gpu(claim) || record.meta.gpu() == gpu;
        let refuted = record.meta.refuted(&stage.id, &words)?;
        let negative = record.meta.negative.as_ref()?;
        let has_kernel = |id: &str| known.stage(id).is_some_and(|stage| record.is_of(stage));
        (same_gpu && stages_of(stage, claim).all(has_kernel)).then_some((
            name.as_str(),
            negative,
            refuted,
        ))
    })
}

/// What is known of every claim of the ladder as built now.
pub fn claims(known: &Known<'_>) -> Vec<Claimed> {
    let claimed = |(stage, claim): (&StageMeta, &Claim)| Claimed {
        stage: stage.id.clone(),
        claim: claim.clone(),
        status: status(known, stage, claim),
    };
    meta::claims(known.stages).map(claimed).collect()
}

fn status(known: &Known<'_>, stage: &StageMeta, claim: &Claim) -> Status {
    let find = |record: &Record| judge(record, record.stage(&stage.id)?, claim);
    let negative = |record: &Record| refuted_by(known, stage, claim, record.meta.gpu());
    let mut why = "not measured in this run, and no committed record has it".to_string();
    if let Some((run, finding)) = known.run.and_then(|(_, run)| Some((run, find(run)?))) {
        match (finding.verdict, negative(run)) {
            (Verdict::NoData, _) => why = finding.reason,
            (Verdict::Pass, Some((record, ..))) => {
                return Status::UnexpectedPass {
                    record: record.to_string(),
                    finding,
                };
            }
            (Verdict::Fail, Some((record, negative, _))) => {
                return Status::Negative {
                    record: record.to_string(),
                    reason: negative.reason.clone(),
                    evidence: finding.reason,
                };
            }
            _ => {
                return Status::Judged {
                    origin: Origin::Run,
                    finding,
                };
            }
        }
    }
    let mut stale = None;
    for (name, record) in known.committed.iter().rev() {
        let Some(finding) = find(record).filter(|finding| finding.verdict != Verdict::NoData)
        else {
            continue;
        };
        let of_stage = |id: &str| known.origin(Some(name), record, id, is_of_gpu(claim));
        let is_stale = |id: &&str| of_stage(id).is_stale();
        let oldest = stages_of(stage, claim).find(is_stale);
        let origin = of_stage(oldest.unwrap_or(&stage.id));
        if origin.is_stale() {
            stale = stale.or(Some(Status::Judged { origin, finding }));
            continue;
        }
        return match negative(record).filter(|_| finding.verdict != Verdict::Pass) {
            Some((record, negative, refuted)) => Status::Negative {
                record: record.to_string(),
                reason: negative.reason.clone(),
                evidence: refuted.evidence.clone(),
            },
            None => Status::Judged { origin, finding },
        };
    }
    stale.unwrap_or(Status::NoData { reason: why })
}

#[cfg(test)]
mod tests;
