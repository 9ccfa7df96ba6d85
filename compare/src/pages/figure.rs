//! The ladder as a picture, for the README.

use super::ladder::{over, places, promise};
use crate::judge::best::{self, Latency, p50};
use crate::judge::list::joined;
use crate::judge::verdict::Report;
use crate::table::StageMeta;
use common::metric::{Metric, significant};
use common::problem::Dtype;

const STYLE: &str = "text{fill:#1f2328}rect{fill:#0969da}.gain{fill:#59636e}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#4493f8}.gain{fill:#9198a1}}";

/// From one bar to the next.
const STEP: usize = 24;

/// Of the slowest stage's bar.
const WIDTH: f64 = 330.0;

/// An SVG in light and dark: a bar for each stage's latency on the claims' problem; measured and claimed gain as its label.
pub fn ladder(report: &Report<'_>) -> String {
    let known = &report.known;
    let time = |stage: &StageMeta| {
        let [mission, _] = places(stage);
        match best::latency(known, &best::subject(known, stage), &mission) {
            Latency::Measured(row) => Some((p50(row), known.is_stale(row))),
            _ => None,
        }
    };
    let slowest = known.stages.iter().filter_map(time);
    let slowest = slowest.map(|(us, _)| us).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |(index, stage): (usize, &StageMeta)| {
        let (top, id) = ((index + 1) * STEP, &stage.id);
        let base = top + 14;
        let bar = time(stage).map_or(String::new(), |(us, is_stale)| {
            let width = WIDTH * us / slowest;
            let (end, us) = (146.0 + width, significant(us));
            let dtype = match stage.first_dtype() {
                Dtype::F16 => String::new(),
                other => format!(" {other}"),
            };
            let mark = if is_stale { " STALE" } else { "" };
            format!(
                "<rect x=\"140\" y=\"{top}\" width=\"{width:.1}\" height=\"18\" rx=\"2\"/>\
                 <text x=\"{end:.1}\" y=\"{base}\">{us} µs{dtype}{mark}</text>"
            )
        });
        let gain = promise(report, stage, &places(stage)[0]).map(|(of, at_least, row)| {
            let ratio = row.and_then(|row| row.value(Metric::SpeedupP50));
            let ratio = ratio.map_or("not measured".into(), |ratio| format!("{ratio:.2}x"));
            let over = over(stage, of);
            format!(
                "<text class=\"gain\" x=\"580\" y=\"{base}\">{ratio}{over}, claimed {at_least:.2}x</text>"
            )
        });
        let gain = gain.unwrap_or_default();
        format!("<text x=\"0\" y=\"{base}\">{id}</text>{bar}{gain}\n")
    };
    let bars = joined(known.stages.iter().enumerate().map(bar), "");
    let gpu = known.gpu().unwrap_or("no GPU");
    let height = (known.stages.len() + 1) * STEP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" font-family=\"system-ui,sans-serif\" font-size=\"13\">\n\
         <title>Latency of each stage at mission</title>\n<style>{STYLE}</style>\n\
         <text x=\"140\" y=\"14\" class=\"gain\">latency at mission, {gpu}</text>\
         <text x=\"580\" y=\"14\" class=\"gain\">gain over the stage before</text>\n{bars}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::table::Run;
    use crate::testing::{US, timed};

    #[test]
    fn bars_are_as_long_as_the_stages_take_and_say_what_was_claimed() {
        let run = timed(US);
        let figure = |run: &Run| ladder(&verdict::report(Known::alone(run)));
        let svg = figure(&run);
        for part in [
            "width=\"330.0\"",
            "width=\"247.4\"",
            ">15.01 µs<",
            ">1.33x, claimed 1.10x<",
            "@media(prefers-color-scheme:dark)",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let alone = figure(&run.without(|row| row.against.is_some()));
        assert!(alone.contains(">not measured, claimed 1.10x<"), "{alone}");
    }
}
