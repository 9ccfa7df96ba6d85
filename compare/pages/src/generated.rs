//! The generated parts of pages that people write. What the tables or the sources say stands
//! between `<!-- generated: WHAT -->` and `<!-- end -->`.

use super::blocks::{or_sentence, table_block};
use super::cells::{measured_ratio, or_empty, ratio_cell};
use super::words::standing;
use super::{ladder, metrics};
use common::metric::Metric;
use common::problem::Dtype;
use document::markdown::markdown;
use document::{Block, Cell, Table, TableRow, row};
use results::judge::claims::Claimed;
use results::judge::list::distinct;
use results::judge::verdict::Report;
use results::table::{Relation, Row, StageMeta};
use std::path::Path;

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

/// The reason why a page cannot be generated.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TemplateError {
    #[error("it has no line '{BEGIN}… -->'; write one where the generated part is to stand")]
    Nothing,
    #[error("below '{BEGIN}{0}' there is no '{END}'")]
    Open(String),
    #[error(
        "'{0}' is none of: metrics, gates, headline, ladder, figures STAGE, measured STAGE, \
         gain STAGE, excerpt FILE \"FIRST\" \"LAST\""
    )]
    Unknown(String),
    #[error(
        "{file} has no lines from one with '{first}' to one with '{last}'; quote words that it has"
    )]
    NoExcerpt {
        file: String,
        first: String,
        last: String,
    },
}

/// Returns `page` with each of its parts generated anew.
pub fn fill(
    page: &str,
    generate: impl Fn(&str) -> Result<String, TemplateError>,
) -> Result<String, TemplateError> {
    let mut parts = page.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_string();
    let mut has_part = false;
    for part in parts {
        let Part { request, rest } = Part::split(part)?;
        let generated = generate(request)?;
        filled += &format!(
            "{BEGIN}{request} -->\n{}\n{END}{rest}",
            generated.trim_end()
        );
        has_part = true;
    }
    if has_part {
        Ok(filled)
    } else {
        Err(TemplateError::Nothing)
    }
}

/// A generated part of a page, and the text from there to the next one.
struct Part<'a> {
    /// The words that say what is generated, such as `gain stage7-wgmma`.
    request: &'a str,
    /// The text behind the part's end.
    rest: &'a str,
}

impl<'a> Part<'a> {
    /// Splits the text behind a [`BEGIN`]. Refuses a part that has no end.
    fn split(text: &'a str) -> Result<Self, TemplateError> {
        let (request, body) = text.split_once(" -->\n").ok_or_else(|| open_part(text))?;
        let (_, rest) = body.split_once(END).ok_or_else(|| open_part(text))?;
        Ok(Self { request, rest })
    }
}

fn open_part(text: &str) -> TemplateError {
    TemplateError::Open(text.lines().next().unwrap_or_default().into())
}

/// Returns the part that a page asks for; `reports` are those of the GPU models, that of COMPARE.md
/// first.
pub fn part(what: &str, root: &Path, reports: &[Report<'_>]) -> Result<String, TemplateError> {
    let Some((main, request)) = reports.first().zip(Request::parse(what)) else {
        return Err(TemplateError::Unknown(what.into()));
    };
    let blocks = match request {
        Request::Excerpt { file, first, last } => return excerpt(root, file, first, last),
        Request::Metrics => vec![Block::Table(metrics::metrics())],
        Request::Gates => vec![Block::Table(metrics::gates())],
        Request::Headline => ladder::headline(main),
        Request::Ladder => ladder::readme(main, reports),
        Request::OfStage { id, detail } => {
            let Some(stage) = main.view.stage(id) else {
                return Err(TemplateError::Unknown(what.into()));
            };
            match detail {
                StageDetail::Figures => {
                    or_sentence(ladder::figures(main, stage), &not_measured(main))
                }
                StageDetail::Gain => {
                    measured(reports, stage, |claimed| is_own_gain(stage, claimed))
                }
                StageDetail::Measured => all_measured(reports, main, stage),
            }
        }
    };
    Ok(markdown(&blocks))
}

/// The content that a page asks for.
enum Request<'a> {
    Metrics,
    Gates,
    Headline,
    Ladder,
    OfStage {
        id: &'a str,
        detail: StageDetail,
    },
    Excerpt {
        file: &'a str,
        first: &'a str,
        last: &'a str,
    },
}

/// How much of a stage's figures a page shows.
enum StageDetail {
    /// One line: time, rate and gain at the problems that the stage is shown at.
    Figures,
    /// The gains over other stages.
    Gain,
    /// The row of the ladder's table, and all claims of speed.
    Measured,
}

impl<'a> Request<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let quoted: Vec<&str> = text.split('"').collect();
        let words: Vec<&str> = quoted[0].split_whitespace().collect();
        if let [_, first, _, last, _] = quoted[..] {
            let ["excerpt", file] = words[..] else {
                return None;
            };
            return Some(Self::Excerpt { file, first, last });
        }
        if quoted.len() > 1 {
            return None;
        }
        Some(match words[..] {
            ["metrics"] => Self::Metrics,
            ["gates"] => Self::Gates,
            ["headline"] => Self::Headline,
            ["ladder"] => Self::Ladder,
            [detail, id] => Self::OfStage {
                id,
                detail: StageDetail::parse(detail)?,
            },
            _ => return None,
        })
    }
}

impl StageDetail {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "figures" => Self::Figures,
            "gain" => Self::Gain,
            "measured" => Self::Measured,
            _ => return None,
        })
    }
}

/// Returns the sentence for a stage that the main GPU has no figure of.
fn not_measured(main: &Report<'_>) -> String {
    match main.view.gpu() {
        Some(gpu) => format!("Not measured on an {gpu} on this version of the kernel."),
        None => "Not measured on this version of the kernel.".to_string(),
    }
}

/// Returns the row of a stage, and all that it predicts about its speed.
fn all_measured(reports: &[Report<'_>], main: &Report<'_>, stage: &StageMeta) -> Vec<Block> {
    let row = ladder::stage_row(main, stage);
    let mut blocks = vec![Block::Table(Table::from_rows([row]).filled())];
    blocks.extend(measured(reports, stage, |_| true));
    blocks
}

/// Returns whether the claim is over another family, in the element type of most such claims of
/// the stage, the first of several.
fn is_own_gain(stage: &StageMeta, claimed: &Claimed) -> bool {
    let gains_with = |dtype: Dtype| {
        let claims = stage.claims.iter();
        let gains = claims.filter(|claim| is_gain(&claim.relation) && claim.place.dtype == dtype);
        gains.count()
    };
    let shown = Dtype::ALL
        .into_iter()
        .rev()
        .max_by_key(|dtype| gains_with(*dtype));
    is_gain(&claimed.claim.relation) && Some(claimed.claim.place.dtype) == shown
}

fn is_gain(relation: &Relation) -> bool {
    matches!(relation, Relation::Faster { .. })
}

/// Returns lines of a source file, without those that only `compare explain` needs.
fn excerpt(root: &Path, file: &str, first: &str, last: &str) -> Result<String, TemplateError> {
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let Some(lines) = lines_between(&text, first, last) else {
        return Err(TemplateError::NoExcerpt {
            file: file.into(),
            first: first.into(),
            last: last.into(),
        });
    };
    let indent = lines
        .iter()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.len() - line.trim_start().len())
        .min()
        .unwrap_or_default();
    let mut excerpt = String::from("```cuda\n");
    for line in lines {
        let is_directive = line.starts_with('#');
        let cut = line.get(indent..).filter(|_| !is_directive);
        excerpt += cut.unwrap_or(line);
        excerpt.push('\n');
    }
    Ok(excerpt + "```")
}

fn lines_between<'a>(text: &'a str, first: &str, last: &str) -> Option<Vec<&'a str>> {
    let mut lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains(first))
        .collect();
    let end = lines.iter().position(|line| line.contains(last))?;
    lines.truncate(end + 1);
    lines.retain(|line| !line.trim_start().starts_with("ATTN_"));
    Some(lines)
}

/// Returns what a stage predicts about its speed, and what each GPU model measured.
fn measured(
    reports: &[Report<'_>],
    stage: &StageMeta,
    is_shown: impl Fn(&Claimed) -> bool,
) -> Vec<Block> {
    let mut blocks = Vec::new();
    for report in reports {
        blocks.extend(measured_by(report, stage, &is_shown));
    }
    or_sentence(
        blocks,
        "No claim of its speed has been measured on this kernel.",
    )
}

fn measured_by(
    report: &Report<'_>,
    stage: &StageMeta,
    is_shown: impl Fn(&Claimed) -> bool,
) -> Vec<Block> {
    let mut rows = Vec::new();
    let mut sessions = Vec::new();
    for claimed in &report.claims {
        // What is stale teaches nothing.
        let is_measured = claimed.pair().is_some() && !claimed.is_stale;
        if claimed.stage == stage.id && is_measured && is_shown(claimed) {
            rows.extend(claim_row(claimed));
            sessions.extend(claimed.session());
        }
    }
    for gain in unclaimed_gains(report, stage) {
        rows.extend(gain_row(gain));
        sessions.push(&gain.session);
    }
    let table = table_block(Table::from_rows(rows).filled());
    if table.is_empty() {
        return table;
    }
    let gpu = report.view.gpu().unwrap_or("no GPU");
    let quoted = distinct(sessions.iter().map(|session| format!("`{session}`")));
    let mut blocks = vec![Block::paragraph(format!(
        "On an {gpu}, base / new, the two timed in turn (A B B A; {}):",
        quoted.join(", ")
    ))];
    blocks.extend(table);
    blocks
}

/// Returns what was measured over the predecessor and not claimed.
fn unclaimed_gains<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Vec<&'a Row> {
    let mut rows = Vec::new();
    for place in stage.places() {
        let gain = ladder::gain(report, stage, &place);
        if gain.claim.is_none() {
            rows.extend(gain.measured);
        }
    }
    rows
}

fn gain_row(row: &Row) -> Option<TableRow> {
    let base = row.base()?;
    Some(row! {
        "faster than" => format!("{} {}", ladder::short(base.stage()), base.name()),
        "on" => row.place().to_string(),
        "claimed" => Cell::Empty,
        "measured" => ratio_cell(row.value(Metric::SpeedupP50)?, 2),
        "same preset" => Cell::Empty,
        "verdict" => "not claimed",
    })
}

fn claim_row(claimed: &Claimed) -> Option<TableRow> {
    let base = match &claimed.claim.relation {
        Relation::Faster { base, .. } if base.stage == claimed.stage => base.family.to_string(),
        Relation::Faster { base, .. } => {
            format!("{} {}", ladder::short(base.stage), base.family)
        }
        Relation::FasterThanPeer { rival, .. } => rival.to_string(),
        _ => return None,
    };
    let ratio = claimed.pair()?.value(Metric::SpeedupP50)?;
    let same_preset = claimed
        .finding
        .same_preset
        .filter(|same| (same / ratio - 1.0).abs() > 0.005);
    Some(row! {
        "faster than" => base,
        "on" => claimed.claim.place.to_string(),
        "claimed" => ratio_cell(ladder::at_least(claimed), 2),
        "measured" => measured_ratio(claimed),
        "same preset" => or_empty(same_preset.map(|same| ratio_cell(same, 2))),
        "verdict" => standing(claimed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::judge::{View, verdict};
    use results::testing::{US, timed};

    fn in_brackets(what: &str) -> Result<String, TemplateError> {
        Ok(format!("<{what}>\n"))
    }

    #[test]
    fn parts_are_replaced_and_nothing_else_of_a_page_changes() {
        let page = "a\n<!-- generated: x y -->\nold\n<!-- end -->\nb\n\
                    <!-- generated: z -->\n<!-- end -->\n";
        let expected = "a\n<!-- generated: x y -->\n<x y>\n<!-- end -->\nb\n\
                        <!-- generated: z -->\n<z>\n<!-- end -->\n";
        assert_eq!(fill(page, in_brackets).unwrap(), expected);
        assert_eq!(fill(expected, in_brackets).unwrap(), expected);
    }

    #[test]
    fn a_page_without_parts_is_refused() {
        assert_eq!(fill("a", in_brackets), Err(TemplateError::Nothing));
    }

    #[test]
    fn a_part_without_its_end_is_refused() {
        for open in [
            "<!-- generated: x -->\na",
            "<!-- generated: x",
            "<!-- generated: x -->\n<!-- generated: y -->\n<!-- end -->",
        ] {
            let error = fill(open, in_brackets).unwrap_err().to_string();
            assert!(error.starts_with("below '<!-- generated: x"), "{error}");
        }
    }

    /// Returns the part about the literal run and a workspace that has `kernel.cu` alone.
    fn part_of(what: &str) -> Result<String, String> {
        let root = tempfile::tempdir().unwrap();
        let kernel = "{\n    for (;;) {\n#pragma unroll\n        f();\n\
                      \x20       ATTN_OBSERVE(x);\n    }\n}\n";
        std::fs::write(root.path().join("kernel.cu"), kernel).unwrap();
        let run = timed(US);
        let reports = [verdict::report(View::alone(&run))];
        part(what, root.path(), &reports).map_err(|error| error.to_string())
    }

    #[test]
    fn an_excerpt_is_code_without_observations() {
        let excerpt = part_of("excerpt kernel.cu \"for (\" \"    }\"").unwrap();
        assert_eq!(
            excerpt,
            "```cuda\nfor (;;) {\n#pragma unroll\n    f();\n}\n```"
        );
    }

    #[test]
    fn the_ladder_and_gains_are_those_of_the_table() {
        let ladder = part_of("ladder").unwrap();
        assert!(
            ladder.contains("\n| stage0-scalar | tiled softmax | 20.0 |"),
            "{ladder}"
        );
        let table = "| faster than | on | claimed | measured | verdict |\n\
                     |---|---|---:|---:|---|\n\
                     | stage0 wmma-qk | mission f16 full | 1.10x | 1.33x | holds |";
        let gain = part_of("gain stage1-cpasync").unwrap();
        let conditions = "On an NVIDIA H200, base / new, the two timed in turn (A B B A; \
                          `20261120T183000Z-linux`):";
        assert_eq!(gain.trim_end(), format!("{conditions}\n\n{table}"));
        let measured = part_of("measured stage1-cpasync").unwrap();
        assert!(measured.contains(table), "{measured}");
    }

    #[test]
    fn the_figures_of_a_stage_are_one_line() {
        assert_eq!(
            part_of("figures stage1-cpasync").unwrap().trim_end(),
            "**mission f16 full (1x8x512x64): 15.0 µs, 35.8 TFLOP/s, 1.33x over stage0, \
             claimed 1.10x: holds.**"
        );
    }

    #[test]
    fn a_stage_without_figures_has_those_of_another_gpu_model_below_the_tables() {
        let is_gone = |row: &Row| row.is_latency() && row.subject.stage() == "stage1-cpasync";
        let runs = [timed(US).without(is_gone), timed(US)];
        let reports = runs.each_ref().map(|run| verdict::report(View::alone(run)));
        let ladder = part("ladder", Path::new("."), &reports).unwrap();
        let line = "stage1 on an NVIDIA H200: mission f16 full (1x8x512x64): 15.0 µs, 35.8 TFLOP/s, \
                    1.33x over stage0, claimed 1.10x: holds.";
        assert_eq!(ladder.lines().last(), Some(line), "{ladder}");
    }

    #[test]
    fn the_headline_is_no_part_of_the_tables() {
        let headline = part_of("headline").unwrap();
        let ladder = part_of("ladder").unwrap();
        assert!(!headline.contains("| stage"), "{headline}");
        assert!(!ladder.contains("Against PyTorch"), "{ladder}");
    }

    #[test]
    fn a_part_that_does_not_exist_is_refused() {
        for (wrong, message) in [
            (
                "ladders",
                "'ladders' is none of: metrics, gates, headline, ladder, ",
            ),
            ("line stage1-cpasync", "none of"),
            ("gain stage7", "none of"),
            ("excerpt kernel.cu \"for (\"", "none of"),
            (
                "excerpt kernel.cu \"g()\" \"}\"",
                "has no lines from one with 'g()'",
            ),
            ("excerpt none.cu \"f\" \"f\"", "none.cu has no lines"),
        ] {
            let error = part_of(wrong).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
