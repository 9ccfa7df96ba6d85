//! Claims of counters, resources and declarations, judged by the instruments that have data.

use super::{Evidence, Finding};
use crate::judge::View;
use crate::table::session::by_id;
use crate::table::{
    Claim, Instance, Kind, ProblemPlace, Relation, StageMeta, Subject, Table, VariantMeta,
};
use common::metric;
use common::problem::Dtype;
use common::verdict::Verdict;

/// The share by which ncu may be off where a claim states an exact ratio: hardware counters include
/// retries, and ncu adds them up over passes. The emulator must be exact.
pub const NCU_TOLERANCE: f64 = 0.1;

/// An instrument that judges claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instrument {
    /// The emulator, with the compiler's report on what it counted.
    Emulator,
    Ncu,
}

impl Instrument {
    fn kind(self, problem: &ProblemPlace) -> Kind {
        match self {
            Self::Emulator => Kind::Counters(problem.clone()),
            Self::Ncu => Kind::Profile(problem.clone()),
        }
    }

    /// Returns how far it may be off from an exact ratio.
    fn tolerance(self) -> f64 {
        match self {
            Self::Emulator => 0.0,
            Self::Ncu => NCU_TOLERANCE,
        }
    }
}

/// Judges a claim by the instruments that have data: each of them refutes it.
pub(super) fn by_all_instruments<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
) -> Option<Evidence<'a>> {
    let by_emulator = evidence(view, stage, claim, Instrument::Emulator);
    let by_ncu = if claim.metric.spec().is_judged_by_ncu {
        evidence(view, stage, claim, Instrument::Ncu)
    } else {
        None
    };
    match (by_emulator, by_ncu) {
        (Some(first), Some(second)) => Some(combined(first, second)),
        (Some(only), None) | (None, Some(only)) => Some(only),
        (None, None) => None,
    }
}

/// Combines what two instruments found. One without data counts only where the other has none.
fn combined<'a>(first: Evidence<'a>, second: Evidence<'a>) -> Evidence<'a> {
    if second.finding.verdict == Verdict::NoData {
        return first;
    }
    if first.finding.verdict == Verdict::NoData {
        return second;
    }
    let Evidence { mut finding, row } = first;
    finding.reason += &format!("; {}", second.finding.reason);
    if second.finding.verdict == Verdict::Fail {
        finding.verdict = Verdict::Fail;
    }
    Evidence { finding, row }
}

/// A variant with its stage.
#[derive(Clone, Copy)]
pub struct StageVariant<'a> {
    pub stage: &'a StageMeta,
    pub variant: &'a VariantMeta,
}

impl StageVariant<'_> {
    pub fn subject(&self) -> Subject {
        self.stage.subject(&self.variant.name)
    }
}

/// A variant of a claim's family, and what it is compared with where the claim has a base.
pub struct Comparison<'a> {
    pub new: StageVariant<'a>,
    pub base: Option<StageVariant<'a>>,
}

/// The reason why a claim cannot be judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Lack {
    #[error("there is no stage {0}")]
    Stage(String),
    #[error("{stage} has no family {family}")]
    Family { stage: String, family: String },
    #[error("the claim compares no variant of {0} that was measured")]
    MeasuredVariant(String),
    #[error("{0} was not compiled for the same architecture as its base")]
    Architecture(String),
    #[error("{subject}: {reason}")]
    Figure { subject: Subject, reason: String },
    #[error("{subject}: it has no instance for {dtype} and head_dim {head_dim}")]
    Instance {
        subject: Subject,
        dtype: Dtype,
        head_dim: usize,
    },
    #[error("{0}: no GPU code was built, or its machine code could not be read")]
    MachineCode(Subject),
    #[error("{0}: only ncu measures it; `compare profile` on a GPU completes the run")]
    Profile(Subject),
}

/// Returns what a claim compares: each variant of its family with the base of the same preset, or
/// the defaults of both families if no preset is in both. Different presets are never compared
/// because one of a pair was not run.
pub fn comparisons<'a>(
    stages: &'a [StageMeta],
    stage: &'a StageMeta,
    claim: &'a Claim,
) -> Result<Vec<Comparison<'a>>, Lack> {
    let family = stage
        .family(&claim.family)
        .map(|variant| StageVariant { stage, variant });
    let Some(base) = claim.relation.base() else {
        let alone = family.map(|new| Comparison { new, base: None });
        return Ok(alone.collect());
    };
    let base_stage =
        by_id(stages, base.stage).ok_or_else(|| Lack::Stage(base.stage.to_string()))?;
    let with_base = |new: StageVariant<'a>, variant: &'a VariantMeta| Comparison {
        new,
        base: Some(StageVariant {
            stage: base_stage,
            variant,
        }),
    };
    let mut comparisons = Vec::new();
    for new in family {
        if let Some(variant) = base_stage.same_preset(base.family, new.variant.preset()) {
            comparisons.push(with_base(new, variant));
        }
    }
    if !comparisons.is_empty() {
        return Ok(comparisons);
    }
    let defaults = stage
        .default_of(&claim.family)
        .zip(base_stage.default_of(base.family));
    let (variant, base_variant) = defaults.ok_or_else(|| Lack::Family {
        stage: base.stage.to_string(),
        family: base.family.to_string(),
    })?;
    Ok(vec![with_base(
        StageVariant { stage, variant },
        base_variant,
    )])
}

/// Judges a claim by one instrument: FAIL if any variant is not as predicted, whatever else is
/// missing; NO DATA if a figure is missing, with the first reason. `None` if the table has no
/// variant of the family.
fn evidence<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    instrument: Instrument,
) -> Option<Evidence<'a>> {
    let kind = instrument.kind(&claim.place);
    let mut rows = Vec::new();
    for subject in stage.family_subjects(&claim.family) {
        rows.extend(view.table.row(&subject, kind.clone()));
    }
    // A stale row makes the finding stale.
    let row = rows
        .into_iter()
        .min_by_key(|row| (!view.is_stale(row), !view.is_of_run(row)))?;
    let mut statements = Statements::default();
    match comparisons(view.stages, stage, claim) {
        Ok(comparisons) => statements.add(&view.table, comparisons, claim, instrument),
        Err(lack) => statements.missing.push(lack),
    }
    let finding = statements.finding(&claim.family, instrument);
    Some(Evidence { finding, row })
}

/// The statements of one instrument on the variants that a claim compares.
#[derive(Default)]
struct Statements {
    kept: Vec<String>,
    broken: Vec<String>,
    missing: Vec<Lack>,
}

impl Statements {
    /// Compares the variants that the instrument measured.
    fn add(
        &mut self,
        table: &Table,
        comparisons: Vec<Comparison<'_>>,
        claim: &Claim,
        instrument: Instrument,
    ) {
        let mut is_measured = false;
        for comparison in comparisons {
            let subject = comparison.new.subject();
            if table.row(&subject, instrument.kind(&claim.place)).is_none() {
                continue;
            }
            is_measured = true;
            if let Err(lack) = self.compare(table, &comparison, claim, instrument) {
                self.missing.push(lack);
            }
        }
        if !is_measured {
            self.missing
                .push(Lack::MeasuredVariant(claim.family.clone()));
        }
    }

    /// States whether a variant is as predicted, with the figures, for each architecture that both
    /// sides were compiled for.
    fn compare(
        &mut self,
        table: &Table,
        comparison: &Comparison<'_>,
        claim: &Claim,
        instrument: Instrument,
    ) -> Result<(), Lack> {
        let values = values_of(table, &comparison.new.subject(), claim, instrument)?;
        let Some(base) = comparison.base else {
            for value in values {
                let words = value.shown(comparison.new.variant, claim);
                let is_kept = holds(&claim.relation, value.value, None, instrument);
                self.state(is_kept, words);
            }
            return Ok(());
        };
        let base_values = values_of(table, &base.subject(), claim, instrument)?;
        for value in values {
            let Some(old) = base_values.iter().find(|old| old.arch == value.arch) else {
                continue;
            };
            let mut words = value.shown(comparison.new.variant, claim);
            words += &format!(" / {}", old.shown(base.variant, claim));
            if old.value != 0.0 {
                words += &format!(" = {:.3}x", value.value / old.value);
            }
            let is_kept = holds(&claim.relation, value.value, Some(old.value), instrument);
            self.state(is_kept, words);
        }
        Ok(())
    }

    fn state(&mut self, is_kept: bool, words: String) {
        let side = if is_kept {
            &mut self.kept
        } else {
            &mut self.broken
        };
        side.push(words);
    }

    fn finding(self, family: &str, instrument: Instrument) -> Finding {
        let (verdict, reason) = self.verdict(family);
        match instrument {
            Instrument::Emulator => Finding::new(verdict, reason),
            Instrument::Ncu => Finding::new(verdict, format!("ncu {verdict}: {reason}")),
        }
    }

    fn verdict(&self, family: &str) -> (Verdict, String) {
        if !self.broken.is_empty() {
            return (Verdict::Fail, self.broken.join("; "));
        }
        if let Some(first) = self.missing.first() {
            return (Verdict::NoData, first.to_string());
        }
        match &self.kept[..] {
            [] => {
                let lack = Lack::Architecture(family.to_string());
                (Verdict::NoData, lack.to_string())
            }
            [only] => (Verdict::Pass, only.clone()),
            [first, others @ ..] => {
                let reason = format!("{first}; {} more as predicted", others.len());
                (Verdict::Pass, reason)
            }
        }
    }
}

/// A value of a claim's metric, with its architecture if it depends on one.
struct ArchValue<'a> {
    arch: Option<&'a str>,
    value: f64,
}

impl ArchValue<'_> {
    fn shown(&self, variant: &VariantMeta, claim: &Claim) -> String {
        let value = claim.metric.show(self.value);
        match self.arch {
            Some(arch) => format!("{} ({arch}) {value}", variant.name),
            None => format!("{} {value}", variant.name),
        }
    }
}

/// Returns whether `value` is as predicted, given the base's if there is one. NaN is not, nor is a
/// ratio without a base.
fn holds(relation: &Relation, value: f64, base: Option<f64>, instrument: Instrument) -> bool {
    match *relation {
        Relation::Ratio {
            at_least, at_most, ..
        } => {
            let is_exact = at_least == at_most;
            let slack = if is_exact {
                instrument.tolerance()
            } else {
                0.0
            };
            let (least, most) = (at_least * (1.0 - slack), at_most * (1.0 + slack));
            base.is_some_and(|of_base| least * of_base <= value && value <= most * of_base)
        }
        Relation::AtLeast { bound } => value >= bound,
        Relation::AtMost { bound } => value <= bound,
        Relation::Faster { .. } | Relation::FasterThanPeer { .. } => false,
    }
}

/// Returns the values of a claim's metric, at least one.
fn values_of<'a>(
    table: &'a Table,
    subject: &Subject,
    claim: &Claim,
    instrument: Instrument,
) -> Result<Vec<ArchValue<'a>>, Lack> {
    if instrument == Instrument::Ncu {
        return value_measured(table, subject, claim, instrument);
    }
    match claim.metric.source() {
        metric::Source::Counters => value_measured(table, subject, claim, instrument),
        metric::Source::Declared => value_declared(table, subject, claim),
        metric::Source::Compiler | metric::Source::MachineCode => {
            values_compiled(table, subject, claim)
        }
        metric::Source::Profile | metric::Source::Gpu => Err(Lack::Profile(subject.clone())),
    }
}

fn value_measured<'a>(
    table: &Table,
    subject: &Subject,
    claim: &Claim,
    instrument: Instrument,
) -> Result<Vec<ArchValue<'a>>, Lack> {
    let kind = instrument.kind(&claim.place);
    let source = kind.source();
    let mut reason = format!("not measured by {source}");
    if let Some(row) = table.row(subject, kind) {
        match (row.failure(), row.value(claim.metric)) {
            (None, Some(value)) => return Ok(vec![ArchValue { arch: None, value }]),
            (failure, _) => {
                if let Some(why) = failure.or(row.note.as_deref()) {
                    reason = why.to_string();
                }
            }
        }
    }
    Err(Lack::Figure {
        subject: subject.clone(),
        reason,
    })
}

fn value_declared<'a>(
    table: &Table,
    subject: &Subject,
    claim: &Claim,
) -> Result<Vec<ArchValue<'a>>, Lack> {
    let instance = instance(claim);
    let declared = table.declared(subject, instance);
    match declared.and_then(|row| row.value(claim.metric)) {
        Some(value) => Ok(vec![ArchValue { arch: None, value }]),
        None => Err(Lack::Instance {
            subject: subject.clone(),
            dtype: instance.dtype,
            head_dim: instance.head_dim,
        }),
    }
}

fn values_compiled<'a>(
    table: &'a Table,
    subject: &Subject,
    claim: &Claim,
) -> Result<Vec<ArchValue<'a>>, Lack> {
    let mut values = Vec::new();
    for compiled in table.compiled_instance(subject, instance(claim)) {
        if let Some(value) = compiled.row.value(claim.metric) {
            values.push(ArchValue {
                arch: Some(compiled.arch),
                value,
            });
        }
    }
    if values.is_empty() {
        return Err(Lack::MachineCode(subject.clone()));
    }
    Ok(values)
}

/// Returns the instance that a claim is about; one of no kernel where its shape has no extents.
fn instance(claim: &Claim) -> Instance {
    claim.place.instance().unwrap_or(Instance {
        dtype: claim.place.dtype,
        head_dim: 0,
    })
}
