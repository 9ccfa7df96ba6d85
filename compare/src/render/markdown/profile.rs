//! What ncu read: per stage, its fastest profiled variant beside its predecessor's, what the stage predicts of each
//! figure, and the emulator's counter; then one line per variant.

use super::cells::{escape, folded, or_dash, row, rule};
use crate::comparison::{FIGURES, Figure, Latency, Report};
use common::problem::{Dtype, claims_problem};
use common::record::{EvidenceResult, Profile, Profiled, StageBuild};

/// The tables, or why there are none.
pub fn profile(report: &Report) -> String {
    let Some(profile) = &report.profile else {
        return "NO DATA: ncu has not looked at this record; `compare profile` on its GPU completes it.\n".to_string();
    };
    let mut out = format!(
        "{}, {}: {}. Each figure stands beside the one of the stage before, the stage's own prediction (gate E1) and, where \
         the emulator counts the same, the emulator's figure; `common/emulator/GLOSSARY.md` says why a ratio is not 1.\n\n",
        profile.tool,
        profile.gpu,
        escape(&profile.method)
    );
    let mut before: Option<&Profiled> = None;
    let mut tables = String::new();
    for stage in &report.stages {
        let Some(launch) = spokesman(report, profile, stage) else { continue };
        tables.push_str(&of_stage(report, profile, stage, launch, before));
        before = Some(launch);
    }
    out.push_str(&folded("Stage by stage", &tables));
    out.push('\n');
    out.push_str(&folded("All profiled launches", &overview(profile)));
    out.push('\n');
    out.push_str(&folded("What the figures are", &meanings()));
    out
}

/// The launch that speaks for a stage: the headline on the first profiled problem, else the fastest that was profiled.
fn spokesman<'a>(report: &Report, profile: &'a Profile, stage: &StageBuild) -> Option<&'a Profiled> {
    let p50 = |launch: &Profiled| {
        let row = report.rows.iter().find(|row| (&row.stage, &row.variant) == (&launch.stage, &launch.variant));
        match row.map(|row| &row.latency) {
            Some(Latency::Measured { figures, .. }) => figures.p50,
            _ => f64::INFINITY,
        }
    };
    let first = profile.launches.first()?;
    let problem = |launch: &Profiled| (launch.shape, launch.dtype, launch.mask);
    let of_stage = profile.launches.iter().filter(|l| l.stage == stage.id && problem(l) == problem(first));
    of_stage.min_by(|a, b| p50(a).total_cmp(&p50(b)))
}

fn of_stage(
    report: &Report,
    profile: &Profile,
    stage: &StageBuild,
    launch: &Profiled,
    before: Option<&Profiled>,
) -> String {
    let stale = if launch.identity == stage.identity { "" } else { " STALE: the kernel has changed since." };
    let mut out = format!("**{}**{stale}\n\n", place(launch));
    let before_head = before.map_or("before".to_string(), place);
    out.push_str(&row(&["figure", &before_head, "here", "ratio", "predicted", "came", "emulated", "ncu / emulated"]));
    out.push_str(&rule(8));
    for figure in &FIGURES {
        let here = figure.value(&launch.metrics);
        let old = before.and_then(|before| figure.value(&before.metrics));
        let emulated = emulated(report, launch, figure);
        let (predicted, came) = predicted(profile, stage, launch, figure);
        let show = |value: Option<f64>| value.map_or("–".to_string(), |value| figure.show(value));
        out.push_str(&row(&[
            figure.label,
            &show(old),
            &show(here),
            &ratio(here, old),
            &predicted,
            &came,
            &show(emulated),
            &ratio(here, emulated),
        ]));
    }
    out.push('\n');
    out
}

/// `stage5-swizzle/swizzle-32x256-k4 mission f16 full`.
fn place(launch: &Profiled) -> String {
    let Profiled { stage, variant, shape_name, dtype, mask, .. } = launch;
    format!("{stage}/{variant} {shape_name} {dtype} {mask}")
}

fn ratio(new: Option<f64>, old: Option<f64>) -> String {
    match (new, old) {
        (Some(new), Some(old)) if old > 0.0 => format!("{:.3}", new / old),
        (Some(0.0), Some(0.0)) => "=".to_string(),
        _ => "–".to_string(),
    }
}

/// The emulator's figure, which is of the claims' problem.
fn emulated(report: &Report, launch: &Profiled, figure: &Figure) -> Option<f64> {
    let claims = claims_problem(Dtype::F16);
    if (launch.shape, launch.dtype, launch.mask) != (claims.shape, claims.dtype, claims.mask) {
        return None;
    }
    let of_variant =
        report.counters.iter().find(|row| (&row.stage, &row.variant) == (&launch.stage, &launch.variant))?;
    figure.quantity?.counted(of_variant.counting.launch().ok()?)
}

/// What the stage says of the figure for this family, and whether ncu agrees.
fn predicted(profile: &Profile, stage: &StageBuild, launch: &Profiled, figure: &Figure) -> (String, String) {
    let family = stage.variant(&launch.variant).map_or("", |variant| variant.family.as_str());
    let about = |claim: &&EvidenceResult| {
        figure.judges
            && claim.stage == stage.id
            && (claim.terms.family.as_str(), claim.terms.dtype) == (family, launch.dtype)
            && Some(claim.terms.quantity) == figure.quantity
    };
    let claims: Vec<&EvidenceResult> = profile.claims.iter().filter(about).collect();
    let words = claims.iter().map(|claim| claim.terms.prediction()).collect::<Vec<_>>().join("; ");
    let came = claims.iter().map(|claim| claim.result.verdict.to_string()).collect::<Vec<_>>().join("; ");
    (or_dash(words), or_dash(came))
}

/// A line per launch, with the figures that tell variants apart.
fn overview(profile: &Profile) -> String {
    let figures: Vec<&Figure> = FIGURES.iter().filter(|figure| figure.in_overview).collect();
    let mut head = vec!["launch"];
    head.extend(figures.iter().map(|figure| figure.label));
    let mut rows = vec![row(&head), rule(head.len())];
    for launch in &profile.launches {
        let mut cells = vec![place(launch)];
        cells.extend(figures.iter().map(|figure| figure.value(&launch.metrics).map_or("–".into(), |v| figure.show(v))));
        rows.push(row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    rows.concat()
}

/// What each figure is, and of which metrics.
fn meanings() -> String {
    let mut rows = vec![row(&["figure", "is", "ncu's metrics"]), rule(3)];
    rows.extend(FIGURES.iter().map(|figure| {
        let parts: Vec<&str> = figure.metrics.iter().map(|(name, _)| *name).collect();
        let whole = if figure.over.is_empty() { String::new() } else { format!(" over {}", figure.over.join(" + ")) };
        row(&[figure.label, figure.meaning, &format!("{}{whole}", parts.join(" + "))])
    }));
    rows.concat()
}
