use super::charts::{ladder_charts, peers_chart};
use super::svg::{Anchor, Label, WIDTH};
use super::*;
use results::judge::main_gpu::main_gpu;
use results::judge::verdict::Report;
use results::judge::{View, verdict};
use results::table::Run;
use results::testing::{PeerArm, US, timed};

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
    let mut run = timed(US);
    for (shape, us) in [("mission", 40.0), ("wide", 10.0), ("big", 5.0)] {
        run = run.peers(shape, 10.0, &[PeerArm::right("torch-default", us)]);
    }
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

/// How far the characters of that font reach below and above the line that they stand on.
const DESCENT: f64 = 3.0;
const ASCENT: f64 = 10.0;

/// The left and the right end of a label.
struct Span {
    left: f64,
    right: f64,
}

impl Span {
    fn new(label: &Label) -> Self {
        let width = CHARACTER * label.text.chars().count() as f64;
        let (left, right) = match label.anchor {
            Anchor::Start => (label.x, label.x + width),
            Anchor::Middle => (label.x - width / 2.0, label.x + width / 2.0),
            Anchor::End => (label.x - width, label.x),
        };
        Self { left, right }
    }
}

#[test]
fn no_text_reaches_into_another_or_out_of_the_picture() {
    let results = results::testing::results();
    let stages = stages::builds().unwrap();
    let table = results.of_gpu(main_gpu(&results, &stages).unwrap());
    let report = verdict::report(View::committed(&stages, &table));
    let mut charts = Vec::from(ladder_charts(&report));
    charts.push(peers_chart(&report));
    for chart in charts {
        let labels = chart.labels(0.0);
        for bar in chart.bars(0.0) {
            for label in &labels {
                let is_below = bar.y >= label.y + DESCENT;
                let is_above = bar.y + bar.height <= label.y - ASCENT;
                assert!(is_below || is_above, "{}: {}", label.text, bar.y);
            }
        }
        for (index, label) in labels.iter().enumerate() {
            let span = Span::new(label);
            assert!(span.left >= 0.0, "{}: {}", label.text, span.left);
            assert!(span.right <= WIDTH, "{}: {}", label.text, span.right);
            for other in labels[..index].iter().filter(|other| other.y == label.y) {
                let other_span = Span::new(other);
                let is_apart = span.right <= other_span.left || other_span.right <= span.left;
                assert!(is_apart, "{} and {}", label.text, other.text);
            }
        }
    }
}
