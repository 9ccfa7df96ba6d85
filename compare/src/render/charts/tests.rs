use super::*;
use crate::comparison::history::{Point, Series};
use crate::comparison::{ByShape, Figures, Latency, Origin, Row, RowState, report};
use crate::testing::ladder;
use common::problem::{Dtype, Mask, NAMED_SHAPES};

/// A ladder of nine stages, timed on all shapes, the fourth stage only on the first ones.
pub fn timed() -> Report {
    let mut report = report(&ladder(), None, &[]);
    let (stage, row) = (report.stages[0].clone(), report.rows[0].clone());
    report.rows.clear();
    report.stages =
        (0..9).map(|n| common::record::StageBuild { id: format!("stage{n}-some-idea"), ..stage.clone() }).collect();
    let gpu = || "NVIDIA H200".to_string();
    let stale = Origin::Stale { record: "20260101T000000Z-gpu".into(), gpu: gpu(), why: "changed".into() };
    let committed = || Origin::Committed { record: "20260102T000000Z-gpu".into(), gpu: gpu() };
    for (n, stage) in report.stages.iter().enumerate() {
        for variant in 0..2 {
            let p50 = 90.0 / (n + 1) as f64 + f64::from(variant);
            let (p90, mean, single_p50) = (p50, p50, p50 + 4.0);
            let (vs_previous, vs_first) = (None, None);
            let figures = Figures { p50, p90, mean, std: 0.1, single_p50, cache: "warm L2", vs_previous, vs_first };
            let origin = if n == 8 { stale.clone() } else { Origin::Run };
            report.rows.push(Row {
                stage: stage.id.clone(),
                variant: format!("preset-32x256-k{variant}"),
                is_headline: variant == 0,
                state: RowState::Green,
                latency: Latency::Measured { figures, origin },
                ..row.clone()
            });
        }
    }
    for (index, named) in NAMED_SHAPES.iter().enumerate().skip(1) {
        for dtype in Dtype::ALL {
            for mask in Mask::ALL {
                let time = |n: usize| 90.0 * (index * index) as f64 / (n + 1) as f64;
                let best =
                    |n: usize| (n != 3 || index < 3).then(|| ("preset-32x256-k0".to_string(), time(n), committed()));
                let (shape_name, shape) = (named.name.to_string(), named.shape);
                report.by_shape.push(ByShape { shape_name, shape, dtype, mask, best: (0..9).map(best).collect() });
            }
        }
    }
    report
}

/// Two GPUs over twelve records; one lacks a number.
fn over_time() -> Vec<Series> {
    let point = |gpu: usize, at: usize| Point {
        index: 2 * at + gpu,
        record: format!("2026010{at}T000000Z-gpu"),
        commit: format!("0123456{at}-dirty"),
        variant: Some("mma-padded-32x256-k4".into()),
        p50_us: (at != 3).then_some(90.0 / (at + 1) as f64),
        registers: Some(128),
        conflicts: Some(1e6),
    };
    let line = |gpu: usize| Series {
        stage: "stage5-swizzle".into(),
        variant: Some("mma-padded-32x256-k4".into()),
        gpu: ["NVIDIA H200", "NVIDIA L4"][gpu].into(),
        points: (0..6).map(|at| point(gpu, at)).collect(),
    };
    vec![line(0), line(1)]
}

#[test]
fn a_history_has_lines_per_gpu_that_stop_at_gaps() {
    let svg = history(&over_time()).standalone();
    assert_eq!(svg, history(&over_time()).standalone());
    for text in [
        "mma-padded-32x256-k4, NVIDIA H200",
        "mma-padded-32x256-k4, NVIDIA L4",
        "registers",
        "bank conflicts",
        "01234565-dirty",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    // Per GPU: two runs of times around the gap, a line in each other panel, one in the legend.
    assert_eq!(svg.matches(r#"<path class="s k"#).count(), 2 * 5);
    assert_eq!(svg.matches(r#"<path class="b k"#).count(), 2 * (5 + 6 + 6 + 1));
}

fn named(name: &str) -> String {
    let chart = all(&timed()).into_iter().find(|chart| chart.name == name);
    chart.unwrap_or_else(|| panic!("no chart {name}")).standalone()
}

#[test]
fn nothing_measured_means_no_chart() {
    assert_eq!(all(&report(&ladder(), None, &[])), []);
}

#[test]
fn charts_are_deterministic_and_carry_names_numbers_and_units() {
    assert_eq!(all(&timed()), all(&timed()));
    let holds = |name: &str, texts: &[&str]| {
        let svg = named(name);
        texts.iter().for_each(|text| assert!(svg.contains(text), "{name}: {text}"));
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{name}");
    };
    holds("ladder", &["stage0-some-idea/preset-32x256-k0", "90.0 µs", "10.0 µs STALE", "p50, µs", "warm L2"]);
    assert!(!named("ladder").contains("preset-32x256-k1"), "the ladder has one bar per stage");
    holds("variants", &["stage7-some-idea/preset-32x256-k1", "12.2 µs"]);
    holds("sweep", &[">512<", ">2048<", "S, queries and keys (log scale)", "device time p50, µs (log scale)"]);
    holds("shapes", &["stage3-some-idea", "mission_b2 e4m3 causal", "log scale"]);
    holds("roofline", &["989 TFLOP/s", "4.80 TB/s", "TFLOP/s (log scale)", "FLOP per byte", "long causal"]);
}

/// What is painted lies inside the picture, with 8 units per character, which is wide for text of 13 units.
#[test]
fn no_text_is_clipped() {
    for chart in all(&timed()).into_iter().chain([history(&over_time()), history(&[])]) {
        for text in chart.body.split("<text").skip(1) {
            let number = |name: &str| -> f64 {
                let from = text.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
                text[from..].split('"').next().unwrap().parse().unwrap()
            };
            let (words, _) = text.split_once("</text>").unwrap();
            let words = &words[words.find('>').unwrap() + 1..];
            let length = 8.0 * words.chars().count() as f64;
            let head = &text[..text.find('>').unwrap()];
            let before = match head {
                head if head.contains("\"m") => length / 2.0,
                head if head.contains("\"e") => length,
                _ => 0.0,
            };
            let (x, y) = (number("x"), number("y"));
            let (left, right, top, bottom) = match head.contains("rotate(-90") {
                true => (x - 7.0, x + 7.0, y - (length - before), y + before),
                false => (x - before, x + length - before, y - 7.0, y + 7.0),
            };
            let fits = left >= 0.0 && right <= WIDTH && top >= 0.0 && bottom <= chart.height;
            assert!(fits, "{}: '{words}' {left} {right} {top} {bottom} of {}", chart.name, chart.height);
        }
    }
}

#[test]
fn one_variant_on_one_shape_can_be_drawn() {
    let mut report = timed();
    report.rows.truncate(1);
    report.by_shape.truncate(1);
    let names: Vec<&str> = all(&report).iter().map(|chart| chart.name).collect();
    assert_eq!(names, ["ladder", "roofline", "shapes", "variants"]);
}

#[test]
fn what_is_achieved_is_seen_below_the_lower_ceiling() {
    let (gpu, _, points) = achieved(&timed()).unwrap();
    assert_eq!(gpu, "NVIDIA H200");
    // 4 x 64 x 8 x 512 x 512 FLOP, and four tensors of 8 x 512 x 64 values of two bytes.
    let mission = &points[0];
    assert_eq!((mission.stage, mission.problem.as_str()), (0, "mission full"));
    assert_eq!(mission.intensity, 256.0);
    assert!((mission.tflops - 0.536_870_912 / 90.0 * 1e3).abs() < 1e-9, "{}", mission.tflops);
    assert_eq!(mission.ceiling, 989.0);
    // Half of the scores, and one more per row: 4.8 TB/s is the lower one.
    let causal = points.iter().find(|point| point.problem == "mission causal").unwrap();
    assert!((causal.ceiling - 4.8 * causal.intensity).abs() < 1e-9);
    let mut other = timed();
    let unknown = |origin: &mut Origin| *origin = Origin::Committed { record: "r".into(), gpu: "Other GPU".into() };
    other.by_shape.iter_mut().flat_map(|row| row.best.iter_mut().flatten()).for_each(|(_, _, origin)| unknown(origin));
    assert_eq!(achieved(&other), None, "a GPU whose peaks are not known has no roofline");
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
    assert_eq!([tick(0.5), tick(20.0), tick(0.05), tick(0.0)], ["0.5", "20", "0.05", "0"]);
}
