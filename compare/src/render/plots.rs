//! Plots of a report as SVG: the ladder on the claims' problem, and the best variant of each stage over the shapes.
//! The same report gives the same bytes.

use crate::comparison::{ByShape, Figures, Latency, Origin, Report, Row};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const WIDTH: u32 = 1280;
/// The legend of [`shapes`] stands to the right of this.
const LEGEND_X: i32 = 1010;
const FONT: &str = "sans-serif";

/// Okabe and Ito's colours, which stay apart for colour-blind readers; yellow darkened for a white ground.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(165, 150, 20),
];

/// Lines behind the data.
const GRID: RGBColor = RGBColor(225, 225, 225);

/// For numbers that no longer hold.
const STALE: RGBColor = RGBColor(190, 190, 190);

/// Name and text of each plot that `report` has numbers for.
pub fn plots(report: &Report) -> Vec<(String, String)> {
    let timed: Vec<(&Row, &Figures, &Origin)> = report
        .rows
        .iter()
        .filter_map(|row| match &row.latency {
            Latency::Measured { figures, origin } if figures.p50.is_finite() => Some((row, figures, origin)),
            _ => None,
        })
        .collect();
    let stages: Vec<&str> = report.stages.iter().map(|stage| stage.id.as_str()).collect();
    let mut plots = Vec::new();
    if !timed.is_empty() {
        let height = 130 + 34 * timed.len() as u32;
        plots.push(("ladder.svg".to_string(), svg(height, |area| ladder(area, &stages, &timed))));
    }
    let times = || report.by_shape.iter().flat_map(|row| row.best.iter().flatten()).map(|(_, p50, _)| *p50);
    let least = times().fold(f64::INFINITY, f64::min);
    let most = times().fold(0.0, f64::max);
    if least > 0.0 && most.is_finite() && least <= most {
        let draw = |area: &Area<'_>| shapes(area, &stages, &report.by_shape, [least, most]);
        plots.push(("shapes.svg".to_string(), svg(760, draw)));
    }
    plots
}

fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area));
        drawn.and_then(|()| area.present().map_err(Into::into)).expect("drawing into a string does not fail");
    }
    text
}

/// A number of microseconds with three digits that count.
fn short(us: f64) -> String {
    let decimals = if us >= 100.0 {
        0
    } else if us >= 10.0 {
        1
    } else {
        2
    };
    format!("{us:.decimals$}")
}

fn is_stale(origin: &Origin) -> bool {
    matches!(origin, Origin::Stale { .. })
}

/// Text that starts, or with [`HPos::Right`] ends, at a point, centred on its line.
fn words(area: &Area<'_>, text: String, at: (i32, i32), from: HPos, turn: FontTransform) -> Drawn {
    let style = (FONT, 15).into_font().transform(turn).color(&BLACK).pos(Pos::new(from, VPos::Center));
    Ok(area.draw(&Text::new(text, at, style))?)
}

/// One horizontal bar per variant, the first stage on top; a colour per stage, grey where the number is stale.
fn ladder(area: &Area<'_>, stages: &[&str], timed: &[(&Row, &Figures, &Origin)]) -> Drawn {
    let mut caches: Vec<&str> = timed.iter().map(|(_, figures, _)| figures.cache).collect();
    caches.sort_unstable();
    caches.dedup();
    let title = format!("Device time on mission, f16, full mask, {}; less is better", caches.join(" or "));
    let most = timed.iter().map(|(_, figures, _)| figures.p50).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 22))
        .margin(12)
        .x_label_area_size(50)
        .y_label_area_size(330)
        .build_cartesian_2d(0.0..most * 1.2, timed.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .y_labels(0)
        .x_desc("device time p50, µs")
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 16))
        .draw()?;
    for (y, (row, figures, origin)) in timed.iter().enumerate() {
        let index = stages.iter().position(|stage| *stage == row.stage).unwrap_or(0);
        let colour = if is_stale(origin) { STALE } else { COLOURS[index % COLOURS.len()] };
        let y = y as f64;
        chart.draw_series([Rectangle::new([(0.0, y + 0.15), (figures.p50, y + 0.85)], colour.filled())])?;
        let (x, middle) = chart.backend_coord(&(0.0, y + 0.5));
        words(area, format!("{}/{}", row.stage, row.variant), (x - 10, middle), HPos::Right, FontTransform::None)?;
        let (end, _) = chart.backend_coord(&(figures.p50, y));
        let label = format!("{} µs{}", short(figures.p50), if is_stale(origin) { " STALE" } else { "" });
        words(area, label, (end + 6, middle), HPos::Left, FontTransform::None)?;
    }
    Ok(())
}

/// Times to label on a log axis that holds `least` to `most`, from one below to one above: 1, 2, 5, 10, …, or powers of
/// ten alone over more than four decades.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    let steps: &[f64] = if most / least > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = least.log10().floor() as i32 - 1;
    let last = most.log10().ceil() as i32 + 1;
    let all: Vec<f64> = (first..=last).flat_map(|e| steps.iter().map(move |step| step * 10f64.powi(e))).collect();
    let below = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let above = all.iter().position(|tick| *tick >= most).unwrap_or(all.len() - 1);
    // A single time on a tick still needs an axis with an extent.
    all[if below == above { below - 1 } else { below }..=above].to_vec()
}

/// One line per stage over the problems, log time.
fn shapes(area: &Area<'_>, stages: &[&str], rows: &[ByShape], [least, most]: [f64; 2]) -> Drawn {
    let (chart_area, _) = area.split_horizontally(LEGEND_X);
    let ticks = ticks(least, most);
    let (bottom, top) = (ticks[0], ticks[ticks.len() - 1]);
    let (left, right) = (-0.5, rows.len() as f64 - 0.5);
    let mut chart = ChartBuilder::on(&chart_area)
        .caption("Device time of each stage's fastest green variant; less is better", (FONT, 22))
        .margin(12)
        .x_label_area_size(190)
        .y_label_area_size(80)
        .build_cartesian_2d(left..right, (bottom..top).log_scale())?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(0)
        .y_label_formatter(&|_| String::new())
        .y_desc("device time p50, µs (log scale)")
        .axis_desc_style((FONT, 16))
        .draw()?;
    let grid = |from, to| area.draw(&PathElement::new([from, to], GRID));
    for tick in ticks {
        let (from, to) = (chart.backend_coord(&(left, tick)), chart.backend_coord(&(right, tick)));
        grid(from, to)?;
        let text = if tick < 1.0 { short(tick) } else { format!("{tick:.0}") };
        words(area, text, (from.0 - 8, from.1), HPos::Right, FontTransform::None)?;
    }
    for (x, row) in rows.iter().enumerate() {
        let (from, to) = (chart.backend_coord(&(x as f64, bottom)), chart.backend_coord(&(x as f64, top)));
        grid(from, to)?;
        let text = format!("{} {} {}", row.shape_name, row.dtype, row.mask);
        words(area, text, (from.0, from.1 + 8), HPos::Left, FontTransform::Rotate90)?;
    }
    let mut legend_y = 70;
    for (index, stage) in stages.iter().enumerate() {
        let best: Vec<Option<&(String, f64, Origin)>> =
            rows.iter().map(|row| row.best.get(index).and_then(Option::as_ref)).collect();
        if best.iter().all(Option::is_none) {
            continue;
        }
        let colour = COLOURS[index % COLOURS.len()];
        let point = |(x, best): (usize, &Option<&(String, f64, Origin)>)| {
            best.map(|(_, p50, _)| chart.backend_coord(&(x as f64, *p50)))
        };
        let points: Vec<Option<(i32, i32)>> = best.iter().enumerate().map(point).collect();
        // A gap stays a gap: no line runs over a problem without a number.
        for run in points.split(Option::is_none) {
            let run: Vec<(i32, i32)> = run.iter().flatten().copied().collect();
            if run.len() > 1 {
                line(area, index, colour, &run)?;
            }
            run.into_iter().try_for_each(|at| marker(area, index, colour, at))?;
        }
        line(area, index, colour, &[(LEGEND_X, legend_y), (LEGEND_X + 36, legend_y)])?;
        marker(area, index, colour, (LEGEND_X + 18, legend_y))?;
        let stale = best.iter().flatten().any(|(_, _, origin)| is_stale(origin));
        let text = format!("{stage}{}", if stale { " (STALE)" } else { "" });
        words(area, text, (LEGEND_X + 46, legend_y), HPos::Left, FontTransform::None)?;
        legend_y += 28;
    }
    Ok(())
}

/// Markers' shapes and lines' dashes, which tell stages apart without colour.
const STYLES: usize = 3;

/// Solid, dashed and dotted by turns.
fn line(area: &Area<'_>, index: usize, colour: RGBColor, points: &[(i32, i32)]) -> Drawn {
    let (points, style) = (points.iter().copied(), colour.stroke_width(2));
    match index % STYLES {
        0 => area.draw(&PathElement::new(points.collect::<Vec<_>>(), style))?,
        1 => area.draw(&DashedPathElement::new(points, 9, 5, style))?,
        _ => area.draw(&DashedPathElement::new(points, 2, 4, style))?,
    }
    Ok(())
}

/// Circle, triangle and cross by turns.
fn marker(area: &Area<'_>, index: usize, colour: RGBColor, at: (i32, i32)) -> Drawn {
    match index % STYLES {
        0 => area.draw(&Circle::new(at, 5, colour.filled()))?,
        1 => area.draw(&TriangleMarker::new(at, 7, colour.filled()))?,
        _ => area.draw(&Cross::new(at, 5, colour.stroke_width(2)))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{RowState, report};
    use crate::testing::ladder;
    use common::problem::{Dtype, Mask, NAMED_SHAPES};

    /// A ladder of nine stages, timed on all shapes, the fourth stage only on the first ones.
    fn timed() -> Report {
        let mut report = report(&ladder(), None, &[]);
        let (stage, row) = (report.stages[0].clone(), report.rows[0].clone());
        report.rows.clear();
        report.stages =
            (0..9).map(|n| common::record::StageBuild { id: format!("stage{n}-some-idea"), ..stage.clone() }).collect();
        let stale = Origin::Stale { record: "20260101T000000Z-gpu".into(), gpu: "GPU".into(), why: "changed".into() };
        for (n, stage) in report.stages.iter().enumerate() {
            for variant in 0..2 {
                let p50 = 90.0 / (n + 1) as f64 + f64::from(variant);
                let figures = Figures {
                    p50,
                    p90: p50,
                    mean: p50,
                    std: 0.1,
                    single_p50: p50 + 4.0,
                    cache: "warm L2",
                    vs_previous: None,
                    vs_first: None,
                };
                let origin = if n == 8 { stale.clone() } else { Origin::Run };
                report.rows.push(Row {
                    stage: stage.id.clone(),
                    variant: format!("preset-{variant}"),
                    state: RowState::Green,
                    latency: Latency::Measured { figures, origin },
                    ..row.clone()
                });
            }
        }
        for (shape, named) in NAMED_SHAPES.iter().enumerate().skip(1) {
            for dtype in Dtype::ALL {
                for mask in Mask::ALL {
                    let time = |n: usize| 900.0 * (shape * shape) as f64 / (n + 1) as f64;
                    let best = |n: usize| (n != 3 || shape < 3).then(|| ("preset-0".to_string(), time(n), Origin::Run));
                    let best = (0..9).map(best).collect();
                    report.by_shape.push(ByShape { shape_name: named.name.into(), dtype, mask, best });
                }
            }
        }
        report
    }

    #[test]
    fn nothing_measured_means_no_plot() {
        assert_eq!(plots(&report(&ladder(), None, &[])), []);
    }

    #[test]
    fn plots_are_deterministic_and_carry_names_and_numbers() {
        let drawn = plots(&timed());
        assert_eq!(drawn, plots(&timed()));
        let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ladder.svg", "shapes.svg"]);
        for text in ["stage8-some-idea/preset-1", "91.0 µs", "10.0 µs STALE", "device time p50, µs", "warm L2"] {
            assert!(drawn[0].1.contains(text), "{text}");
        }
        for text in ["stage3-some-idea", "mission_b2 e4m3 causal", "log scale"] {
            assert!(drawn[1].1.contains(text), "{text}");
        }
        assert!(
            drawn.iter().all(|(_, svg)| svg.starts_with("<svg width=\"1280\"") && svg.trim_end().ends_with("</svg>"))
        );
    }

    #[test]
    fn one_variant_on_one_shape_can_be_drawn() {
        let mut report = timed();
        report.rows.truncate(1);
        report.by_shape.truncate(1);
        assert_eq!(plots(&report).len(), 2);
    }

    #[test]
    fn ticks_enclose_the_times() {
        assert_eq!(ticks(21.0, 42.0), [20.0, 50.0]);
        assert_eq!(ticks(3.0, 180.0), [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(ticks(0.8, 9000.0), [0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0]);
        assert_eq!(ticks(10.0, 10.0), [5.0, 10.0]);
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([short(1234.5), short(23.44), short(7.891), short(0.5)], ["1234", "23.4", "7.89", "0.50"]);
    }
}
