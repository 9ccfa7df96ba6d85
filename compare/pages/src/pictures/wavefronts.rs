//! Shared memory per stage beside the time: how often its banks are passed over, how many of these
//! passes are bank conflicts, and how much of the time the passes alone would take.

use super::bars::{Bar, Chart, Part};
use super::canvas::{DrawError, Paint, WIDTH, picture};
use super::multiprocessors;
use crate::cells::three_digits;
use crate::counted::{self, CONFLICTS, WAVEFRONTS};
use common::metric::Metric;
use results::judge::View;
use results::judge::best::{self, Latency, p50};
use results::judge::verdict::Report;
use results::table::{Kind, ProblemPlace, Relation, Role, Row, StageMeta, Subject};

/// The width of the left chart, with the names.
const LEFT: i32 = 310;

/// A kernel of the main path at its first problem.
pub struct Kernel {
    pub name: String,
    /// The passes over shared memory as the emulator counts them; conflicts are among them.
    pub wavefronts: Option<f64>,
    pub conflicts: Option<f64>,
    /// The time alone, in microseconds.
    pub us: Option<f64>,
    /// The time that the wavefronts take if all SMs make one per cycle, in microseconds.
    pub least_us: Option<f64>,
}

/// Returns the kernels of each rung: of the families that it has for comparison, and of its own.
pub fn kernels(report: &Report<'_>) -> Vec<Kernel> {
    let view = &report.view;
    let mut kernels = Vec::new();
    for stage in view.stages.iter().filter(|stage| stage.role == Role::Rung) {
        let place = stage.first_place();
        let subject = best::subject(view, stage);
        let own = stage
            .variant(subject.name())
            .map(|variant| &*variant.family);
        let controls = control_families(stage, &place, own);
        for family in &controls {
            if let Some(control) = variant_of(view, stage, family, &place) {
                let name = format!("{} {family}", counted::number(stage));
                kernels.push(kernel(view, name, &control, &place));
            }
        }
        let name = match own {
            Some(family) if !controls.is_empty() => format!("{} {family}", counted::number(stage)),
            _ => counted::title(stage),
        };
        kernels.push(kernel(view, name, &subject, &place));
    }
    kernels
}

/// Returns the families of a stage that it claims a gain over, without its `own`: each is the same
/// kernel without one idea.
fn control_families<'a>(
    stage: &'a StageMeta,
    place: &ProblemPlace,
    own: Option<&str>,
) -> Vec<&'a str> {
    let mut families = Vec::new();
    for claim in &stage.claims {
        let Relation::Faster { base, .. } = &claim.relation else {
            continue;
        };
        // A base may be a variant, too.
        let is_family = stage
            .variants
            .iter()
            .any(|variant| variant.family == base.family);
        let is_control = base.stage == stage.id && is_family && Some(base.family) != own;
        if is_control && claim.place == *place && !families.contains(&base.family) {
            families.push(base.family);
        }
    }
    families
}

/// Returns the fastest variant of a family; without a time its default.
fn variant_of(
    view: &View<'_>,
    stage: &StageMeta,
    family: &str,
    place: &ProblemPlace,
) -> Option<Subject> {
    match best::best_of(view, stage, family, place) {
        Some(row) => Some(row.subject.clone()),
        None => stage
            .default_of(family)
            .map(|variant| stage.subject(&variant.name)),
    }
}

fn kernel(view: &View<'_>, name: String, subject: &Subject, place: &ProblemPlace) -> Kernel {
    let counters = view.table.row(subject, Kind::Counters(place.clone()));
    let counted_row = counters.filter(|row| !view.is_stale(row));
    let wavefronts = counted_row.and_then(|row| WAVEFRONTS.value(row));
    let time = match best::latency(view, subject, place) {
        Some(Latency::Shown(row)) if !view.is_stale(row) => Some(row),
        _ => None,
    };
    Kernel {
        name,
        wavefronts,
        conflicts: counted_row.and_then(|row| CONFLICTS.value(row)),
        us: time.map(p50),
        least_us: time
            .zip(wavefronts)
            .and_then(|(row, count)| least_us(view, row, count)),
    }
}

/// Returns the microseconds that so many wavefronts take where every SM of the row's GPU makes one
/// per cycle of the row's clock.
fn least_us(view: &View<'_>, row: &Row, wavefronts: f64) -> Option<f64> {
    Some(wavefronts / f64::from(multiprocessors(view)?) / row.value(Metric::SmMhz)?)
}

/// Returns the picture.
pub fn draw(report: &Report<'_>) -> Result<String, DrawError> {
    let kernels = kernels(report);
    let [counts, times] = charts(report, &kernels);
    let right_width = WIDTH as i32 - LEFT;
    let below = counts
        .heading_height(LEFT)
        .max(times.heading_height(right_width));
    let height = below + counts.plot_height();
    picture("Shared memory and time at mission", height, |area| {
        let (left, right) = area.split_horizontally(LEFT);
        counts.draw(&left, below)?;
        times.draw(&right, below)
    })
}

fn charts(report: &Report<'_>, kernels: &[Kernel]) -> [Chart; 2] {
    let gpu = report.view.gpu().unwrap_or("no GPU");
    [
        Chart {
            title: "Wavefronts of shared memory".into(),
            note: "at mission, counted by the emulator; red: bank conflicts. What wgmma \
                   reads by descriptor is not counted."
                .into(),
            bars: kernels.iter().map(count_bar).collect(),
            axis: "million".into(),
            mark: None,
            has_names: true,
        },
        Chart {
            title: "Time".into(),
            note: format!(
                "alone; {gpu}. Tick: what the wavefronts take if every SM makes one a cycle."
            ),
            bars: kernels.iter().map(time_bar).collect(),
            axis: "µs".into(),
            mark: None,
            has_names: false,
        },
    ]
}

fn count_bar(kernel: &Kernel) -> Bar {
    let mut bar = Bar {
        name: kernel.name.clone(),
        ..Bar::default()
    };
    match kernel.wavefronts.zip(kernel.conflicts) {
        Some((wavefronts, conflicts)) => {
            for (length, paint) in [
                (wavefronts - conflicts, Paint::Blue),
                (conflicts, Paint::Red),
            ] {
                bar.parts.push(Part {
                    length: length / 1e6,
                    paint,
                });
            }
            bar.text = three_digits(wavefronts / 1e6);
        }
        None => bar.text = "not counted".into(),
    }
    bar
}

fn time_bar(kernel: &Kernel) -> Bar {
    let text = kernel.us.map_or("not measured".into(), three_digits);
    Bar {
        tick: kernel.least_us,
        ..Bar::new("", kernel.us, text)
    }
}
