//! The ladder and the peers as pictures, for the README.

use super::ladder::{self, alone, gain, kind, rate_of};
use super::three_digits;
use crate::judge::best::p50;
use crate::judge::list::{count, grouped, joined};
use crate::judge::peers;
use crate::judge::verdict::Report;
use crate::table::{ProblemPlace, Role, StageMeta};
use common::metric::Metric;
use common::problem::{Dtype, Kind};

/// In light and dark. Legible at 400 pixels, too.
const STYLE: &str = "text{fill:#1f2328}rect{fill:#0969da}.title{font-weight:600}.note{fill:#59636e}.axis{fill:#59636e}.mark{fill:#cf222e}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#4493f8}.note{fill:#9198a1}.axis{fill:#9198a1}.mark{fill:#f85149}}";

/// Of the picture, and of the longest bar.
const WIDTH: f64 = 480.0;

/// From one line to the next.
const STEP: f64 = 30.0;

/// From one chart to the next, and the titles of one.
const GAP: f64 = 18.0;
const TITLES: f64 = 34.0;

/// Where values begin, right of the longest name.
const VALUE: f64 = 125.0;

/// A name, a value, what is said of it, and its bar below them.
struct Line {
    name: String,
    value: Option<f64>,
    text: String,
    note: String,
}

struct Chart {
    title: String,
    note: &'static str,
    lines: Vec<Line>,
    /// Writes the end of the axis.
    show: fn(f64) -> String,
    /// Where a line crosses the bars, and what it says.
    mark: Option<(f64, &'static str)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// Text at its place.
struct Label {
    x: f64,
    y: f64,
    anchor: Anchor,
    class: &'static str,
    text: String,
}

impl Label {
    fn new(x: f64, y: f64, anchor: Anchor, class: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            x,
            y,
            anchor,
            class,
            text,
        }
    }

    fn svg(&self) -> String {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        format!(
            "<text class=\"{}\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>\n",
            self.class, self.x, self.y, self.text
        )
    }
}

fn bar(class: &str, [x, y, width, height]: [f64; 4]) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{height:.0}\"/>\n"
    )
}

impl Chart {
    fn height(&self) -> f64 {
        TITLES + STEP * self.lines.len() as f64 + STEP
    }

    /// The value at the right end.
    fn most(&self) -> f64 {
        let values = self.lines.iter().filter_map(|line| line.value);
        let most = values.fold(f64::MIN_POSITIVE, f64::max);
        // So that what the mark says has room left of the end.
        self.mark.map_or(most, |(mark, _)| most.max(1.5 * mark))
    }

    fn labels(&self, top: f64) -> Vec<Label> {
        use Anchor::{End, Middle, Start};
        let mut labels = vec![
            Label::new(0.0, top + 13.0, Start, "title", &*self.title),
            Label::new(0.0, top + 29.0, Start, "note", self.note),
        ];
        for (index, line) in self.lines.iter().enumerate() {
            let y = top + TITLES + STEP * index as f64 + 14.0;
            labels.extend([
                Label::new(0.0, y, Start, "name", &*line.name),
                Label::new(VALUE, y, Start, "value", &*line.text),
                Label::new(WIDTH, y, End, "note", &*line.note),
            ]);
        }
        let y = top + self.height() - 8.0;
        labels.push(Label::new(0.0, y, Start, "note", "0"));
        labels.push(Label::new(WIDTH, y, End, "note", (self.show)(self.most())));
        let says = self
            .mark
            .map(|(mark, says)| Label::new(WIDTH * mark / self.most(), y, Middle, "mark", says));
        labels.extend(says);
        labels
    }

    fn bars(&self, top: f64) -> String {
        let scale = WIDTH / self.most();
        let bars = self.lines.iter().enumerate().filter_map(|(index, line)| {
            let y = top + TITLES + STEP * index as f64 + 19.0;
            Some(bar("bar", [0.0, y, scale * line.value?, 6.0]))
        });
        let bottom = top + self.height() - 24.0;
        let mark = self.mark.map(|(mark, _)| {
            bar(
                "mark",
                [scale * mark, top + TITLES, 1.0, bottom - top - TITLES],
            )
        });
        joined(
            bars.chain(mark)
                .chain([bar("axis", [0.0, bottom, WIDTH, 1.0])]),
            "",
        )
    }
}

/// An SVG of the charts that have lines, below each other.
fn picture(title: &str, charts: &[Chart]) -> String {
    let (mut top, mut parts) = (0.0, String::new());
    for chart in charts.iter().filter(|chart| !chart.lines.is_empty()) {
        parts += &joined(chart.labels(top).iter().map(Label::svg), "");
        parts += &chart.bars(top);
        top += chart.height() + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" viewBox=\"0 0 {WIDTH} {top}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n{parts}</svg>\n"
    )
}

/// The main path at its two problems, and the gain of each branch at its own.
pub fn ladder(report: &Report<'_>) -> String {
    picture("The ladder", &ladder_charts(report))
}

fn ladder_charts(report: &Report<'_>) -> [Chart; 3] {
    let gpu = report.view.gpu().unwrap_or("no GPU");
    let stages = report.view.stages.iter();
    let (rungs, branches): (Vec<&StageMeta>, Vec<&StageMeta>) =
        stages.partition(|stage| stage.role == Role::Rung);
    let small = rungs.iter().map(|stage| latency(report, stage));
    let large = rungs.iter().filter_map(|stage| rate(report, stage));
    [
        Chart {
            title: format!("Main path: latency at mission, {gpu}"),
            note: "µs at 1x8x512x64, alone; gain over the stage before (claimed)",
            lines: small.collect(),
            show: |most| format!("{} µs", three_digits(most)),
            mark: None,
        },
        Chart {
            title: "Main path: rate at big".into(),
            note: "TFLOP/s at 4x16x4096x64, alone; gain over the stage before",
            lines: large.collect(),
            show: |most| format!("{most:.0} TFLOP/s"),
            mark: None,
        },
        Chart {
            title: "Branches, each at its own problem".into(),
            note: "gain over the stage named (claimed), the two timed in turn",
            lines: branches
                .into_iter()
                .filter_map(|stage| branch(report, stage))
                .collect(),
            show: |most| format!("{most:.2}x"),
            mark: Some((1.0, "1.00x: no gain")),
        },
    ]
}

fn latency(report: &Report<'_>, stage: &StageMeta) -> Line {
    let place = stage.first_place();
    let us = alone(&report.view, stage, &place).map(p50);
    Line {
        name: stage.id.clone(),
        value: us,
        text: us.map_or("not measured".into(), |us| {
            format!("{} µs", three_digits(us))
        }),
        note: gain(report, stage, &place).cell().shown().to_string(),
    }
}

/// Of a stage that was timed on the large problem.
fn rate(report: &Report<'_>, stage: &StageMeta) -> Option<Line> {
    let places = ladder::places(stage);
    let place = places.last()?;
    let row = ladder::timed(report, stage, place)?;
    let rate = rate_of(place, p50(row))? / 1e12;
    Some(Line {
        name: stage.id.clone(),
        value: Some(rate),
        text: format!("{rate:.0} TFLOP/s"),
        note: gain(report, stage, place).cell().shown().to_string(),
    })
}

fn branch(report: &Report<'_>, stage: &StageMeta) -> Option<Line> {
    let places = ladder::places(stage);
    let place: &ProblemPlace = places.first()?;
    let gain = gain(report, stage, place);
    Some(Line {
        name: stage.id.clone(),
        value: gain.ratio(),
        text: place.to_string(),
        note: gain.cell().shown().to_string(),
    })
}

/// How many times as long the fastest peer takes as our fastest stage, by kind of problem and element type.
pub fn against_peers(report: &Report<'_>) -> String {
    picture("The fastest peer's time / ours", &[peers_chart(report)])
}

fn peers_chart(report: &Report<'_>) -> Chart {
    let view = &report.view;
    let problems = peers::problems(view);
    let current = problems
        .iter()
        .filter(|problem| !view.is_stale(problem.ours));
    let groups = current.filter_map(|problem| {
        let over = problem.fastest?.over;
        let group = (kind(problem.place), problem.place.dtype);
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
    Chart {
        title: format!(
            "Fastest peer's time / ours, {}",
            view.gpu().unwrap_or("no GPU")
        ),
        note: "geometric mean, and the range over the problems",
        lines: groups.into_iter().map(line).collect(),
        show: |most| format!("{most:.2}x"),
        mark: Some((1.0, "1.00x: level")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{View, verdict};
    use crate::table::Run;
    use crate::testing::{US, timed};

    /// No character of DejaVu Sans at 12 pixels is wider on average over a label of ours.
    const CHARACTER: f64 = 7.7;

    #[track_caller]
    fn shows(draw: fn(&Report<'_>) -> String, run: &Run, parts: &[&str]) {
        let svg = draw(&verdict::report(View::alone(run)));
        for part in parts {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn bars_are_as_long_as_the_stages_take_and_say_what_was_claimed() {
        let run = timed(US);
        shows(ladder, &run, &["width=\"480.0\"", "width=\"359.9\""]);
        let texts = [
            ">15.0 µs<",
            ">1.33x (1.10)<",
            "@media(prefers-color-scheme:dark)",
        ];
        shows(ladder, &run, &texts);
        let alone = run.without(|row| row.base().is_some());
        shows(ladder, &alone, &[">(1.10)<"]);
    }

    #[test]
    fn peers_are_drawn_by_kind_and_type_with_a_line_where_both_are_level() {
        let place = |run: Run, &(shape, us): &(&str, f64)| {
            run.peers(shape, 10.0, &[("torch-default", us, true)])
        };
        let shapes = [("mission", 40.0), ("wide", 10.0), ("big", 5.0)];
        let run = shapes.iter().fold(timed(US), place);
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
            ">1.00x: level<",
        ];
        shows(against_peers, &run, &large);
    }

    #[test]
    fn no_text_reaches_into_another_or_out_of_the_picture() {
        let results = crate::testing::results();
        let stages = crate::stages::builds().unwrap();
        let table = results.of_gpu(results.main(&stages).unwrap());
        let report = verdict::report(View::committed(&stages, &table));
        let charts = ladder_charts(&report)
            .into_iter()
            .chain([peers_chart(&report)]);
        for chart in charts {
            let labels = chart.labels(0.0);
            let span = |label: &Label| {
                let wide = CHARACTER * label.text.chars().count() as f64;
                match label.anchor {
                    Anchor::Start => (label.x, label.x + wide),
                    Anchor::Middle => (label.x - wide / 2.0, label.x + wide / 2.0),
                    Anchor::End => (label.x - wide, label.x),
                }
            };
            for (index, label) in labels.iter().enumerate() {
                let (from, to) = span(label);
                assert!(from >= 0.0 && to <= WIDTH, "{}: {from} to {to}", label.text);
                for other in labels[..index].iter().filter(|other| other.y == label.y) {
                    let (left, right) = span(other);
                    assert!(
                        to <= left || right <= from,
                        "{} and {}",
                        label.text,
                        other.text
                    );
                }
            }
        }
    }
}
