//! The peers as a picture, for the README.

use super::report::kind;
use crate::judge::list::{grouped, joined};
use crate::judge::peers;
use crate::judge::verdict::{Report, count};
use common::metric::Metric;
use common::problem::{Dtype, Kind};

/// In light and dark. Legible at 400 pixels, too.
const STYLE: &str = "text{fill:#1f2328}rect{fill:#0969da}.note{fill:#59636e}.mark{fill:#cf222e}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#4493f8}.note{fill:#9198a1}.mark{fill:#f85149}}";

/// Of the picture, and of the longest bar.
const WIDTH: f64 = 480.0;

/// From one line to the next.
const STEP: usize = 30;

/// A name, a ratio, its range, and its bar below them.
struct Line {
    name: String,
    ratio: f64,
    range: String,
}

/// An SVG with a bar for each line; at 1 a red line crosses them.
fn picture(title: &str, gpu: &str, lines: &[Line]) -> String {
    let values = lines.iter().map(|line| line.ratio);
    let scale = WIDTH / values.fold(f64::MIN_POSITIVE, f64::max);
    let height = (lines.len() + 1) * STEP;
    let text = |[start, end]: [&str; 2], y: usize| {
        format!(
            "<text y=\"{y}\">{start}</text><text class=\"note\" x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{end}</text>"
        )
    };
    let line = |(index, line): (usize, &Line)| {
        let y = (index + 1) * STEP + 14;
        let texts = text([&line.name, &line.range], y);
        let (ratio, top) = (line.ratio, y + 5);
        let width = scale * ratio;
        format!(
            "{texts}<text x=\"125\" y=\"{y}\">{ratio:.2}x</text><rect y=\"{top}\" width=\"{width:.1}\" height=\"6\"/>\n"
        )
    };
    let bars = joined(lines.iter().enumerate().map(line), "");
    let mark = format!(
        "<rect class=\"mark\" x=\"{scale:.1}\" y=\"{STEP}\" width=\"1\" height=\"100%\"/>\n"
    );
    let head = text([&format!("{title}, {gpu}"), "range"], 14);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n{head}\n{bars}{mark}</svg>\n"
    )
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
    groups.sort_by_key(|((kind, _), _)| (kind.is_none(), *kind));
    let line = |((kind, dtype), mut ratios): ((Option<Kind>, Dtype), Vec<f64>)| {
        ratios.sort_by(f64::total_cmp);
        let problems = count(ratios.len(), "problem", "problems");
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let logarithms = ratios.iter().map(|ratio| ratio.ln());
        let mean = (logarithms.sum::<f64>() / ratios.len() as f64).exp();
        Line {
            name: format!("{} {dtype}", kind.map_or("Other", Kind::name)),
            ratio: mean,
            range: format!("{least:.2}x to {most:.2}x on {problems}"),
        }
    };
    let lines: Vec<Line> = groups.into_iter().map(line).collect();
    let title = "Time of the fastest peer / ours, geometric mean";
    picture(title, known.gpu().unwrap_or("no GPU"), &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::table::Run;
    use crate::testing::{US, timed};

    #[test]
    fn peers_are_drawn_by_kind_and_type_with_a_line_where_both_are_level() {
        let on = |run: Run, &(shape, us): &(&str, f64)| {
            run.peers(shape, 10.0, &[("torch-default", us, true)])
        };
        let shapes = [("mission", 40.0), ("wide", 10.0), ("big", 5.0)];
        let run = shapes.iter().fold(timed(US), on);
        let svg = against_peers(&verdict::report(Known::alone(&run)));
        for part in [
            ">Small grids f16<",
            ">2.00x<",
            ">1.00x to 4.00x on 2 problems<",
            ">Large grids f16<",
            "width=\"120.0\"",
            "class=\"mark\" x=\"240.0\"",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
