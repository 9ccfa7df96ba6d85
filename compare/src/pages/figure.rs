//! The ladder and the peers as pictures, for the README.

use super::ladder::gain;
use super::report::kind;
use crate::judge::best::{self, p50};
use crate::judge::list::{count, grouped, joined};
use crate::judge::peers;
use crate::judge::verdict::Report;
use crate::table::StageMeta;
use common::metric::{Metric, significant};
use common::problem::{Dtype, Kind};

/// In light and dark. Legible at 400 pixels, too.
const STYLE: &str = "text{fill:#1f2328}rect{fill:#0969da}.note{fill:#59636e}.mark{fill:#cf222e}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#4493f8}.note{fill:#9198a1}.mark{fill:#f85149}}";

/// Of the picture, and of the longest bar.
const WIDTH: f64 = 480.0;

/// From one line to the next.
const STEP: usize = 30;

/// A name, a value, what is said of it, and its bar below them.
struct Line {
    name: String,
    value: Option<f64>,
    text: String,
    note: String,
}

/// An SVG with a bar for each line, and above them the title, the GPU and what `notes` are; at `mark` a red line crosses the bars.
fn picture(
    report: &Report<'_>,
    title: &str,
    notes: &str,
    lines: &[Line],
    mark: Option<f64>,
) -> String {
    let values = lines.iter().filter_map(|line| line.value);
    let scale = WIDTH / values.fold(f64::MIN_POSITIVE, f64::max);
    let height = (lines.len() + 1) * STEP;
    let text = |[start, end]: [&str; 2], y: usize| {
        format!(
            "<text y=\"{y}\">{start}</text><text class=\"note\" x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{end}</text>"
        )
    };
    let line = |(index, line): (usize, &Line)| {
        let y = (index + 1) * STEP + 14;
        let texts = text([&line.name, &line.note], y);
        let (value, top) = (&line.text, y + 5);
        let width = line.value.map_or(0.0, |value| scale * value);
        format!(
            "{texts}<text x=\"125\" y=\"{y}\">{value}</text><rect y=\"{top}\" width=\"{width:.1}\" height=\"6\"/>\n"
        )
    };
    let bars = joined(lines.iter().enumerate().map(line), "");
    let mark = mark.map_or(String::new(), |mark| {
        let x = scale * mark;
        format!("<rect class=\"mark\" x=\"{x:.1}\" y=\"{STEP}\" width=\"1\" height=\"100%\"/>\n")
    });
    let gpu = report.known.gpu().unwrap_or("no GPU");
    let head = text([&format!("{title}, {gpu}"), notes], 14);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n{head}\n{bars}{mark}</svg>\n"
    )
}

/// The latency of each stage on the claims' problem, its measured and its claimed gain.
pub fn ladder(report: &Report<'_>) -> String {
    let known = &report.known;
    let line = |stage: &StageMeta| {
        let mission = stage.first_place();
        let dtype = match stage.first_dtype() {
            Dtype::F16 => String::new(),
            other => format!(" {other}"),
        };
        let (value, text) = match best::latency(known, &best::subject(known, stage), &mission) {
            Some(Ok(row)) => {
                let mark = if known.is_stale(row) { " STALE" } else { "" };
                let us = significant(p50(row));
                (Some(p50(row)), format!("{us} µs{dtype}{mark}"))
            }
            _ => (None, "not timed".into()),
        };
        Line {
            name: stage.id.clone(),
            value,
            text,
            note: gain(report, stage, &mission).shown().to_string(),
        }
    };
    let lines: Vec<Line> = known.stages.iter().map(line).collect();
    let notes = "gain over the stage before (claimed)";
    picture(report, "Latency at mission", notes, &lines, None)
}

/// How many times as long the fastest peer takes as our fastest stage, by kind of problem and element type.
pub fn against_peers(report: &Report<'_>) -> String {
    let known = &report.known;
    let problems = peers::problems(known);
    let groups = problems.iter().filter_map(|problem| {
        let (_, over) = problem.fastest?;
        let group = (kind(problem), problem.place.dtype);
        Some((group, over.value(Metric::SpeedupP50)?))
    });
    let mut groups = grouped(groups);
    groups.sort_by_key(|((kind, _), _)| *kind);
    let line = |((kind, dtype), mut ratios): ((Kind, Dtype), Vec<f64>)| {
        ratios.sort_by(f64::total_cmp);
        let problems = count(ratios.len(), "problem", "problems");
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let logarithms = ratios.iter().map(|ratio| ratio.ln());
        let mean = (logarithms.sum::<f64>() / ratios.len() as f64).exp();
        Line {
            name: format!("{kind} {dtype}"),
            value: Some(mean),
            text: format!("{mean:.2}x"),
            note: format!("{least:.2}x to {most:.2}x on {problems}"),
        }
    };
    let lines: Vec<Line> = groups.into_iter().map(line).collect();
    let title = "Time of the fastest peer / ours, geometric mean";
    picture(report, title, "range", &lines, Some(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::table::Run;
    use crate::testing::{US, timed};

    #[track_caller]
    fn shows(draw: fn(&Report<'_>) -> String, run: &Run, parts: &[&str]) {
        let svg = draw(&verdict::report(Known::alone(run)));
        for part in parts {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn bars_are_as_long_as_the_stages_take_and_say_what_was_claimed() {
        let run = timed(US);
        let bars = ["width=\"480.0\"", "width=\"359.9\""];
        shows(ladder, &run, &bars);
        let texts = [
            ">15.01 µs<",
            ">1.33x (1.10x)<",
            "@media(prefers-color-scheme:dark)",
        ];
        shows(ladder, &run, &texts);
        let alone = run.without(|row| row.against.is_some());
        shows(ladder, &alone, &[">– (1.10x)<"]);
    }

    #[test]
    fn peers_are_drawn_by_kind_and_type_with_a_line_where_both_are_level() {
        let on = |run: Run, &(shape, us): &(&str, f64)| {
            run.peers(shape, 10.0, &[("torch-default", us, true)])
        };
        let shapes = [("mission", 40.0), ("wide", 10.0), ("big", 5.0)];
        let run = shapes.iter().fold(timed(US), on);
        let small = [
            ">Small grids f16<",
            ">2.00x<",
            ">1.00x to 4.00x on 2 problems<",
        ];
        shows(against_peers, &run, &small);
        let large = [
            ">Large grids f16<",
            "width=\"120.0\"",
            "class=\"mark\" x=\"240.0\"",
        ];
        shows(against_peers, &run, &large);
    }
}
