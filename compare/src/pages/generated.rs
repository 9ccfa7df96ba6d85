//! Parts of pages that people write: between `<!-- generated: WHAT -->` and `<!-- end -->` stands what the tables or the sources say.

use super::{ladder, metrics, or_empty, or_line, some, standing, times};
use crate::document::markdown::markdown;
use crate::document::{Block, Cell, Table, TableRow, row};
use crate::judge::claims::Claimed;
use crate::judge::list::{distinct, joined};
use crate::judge::verdict::Report;
use crate::table::{Relation, Row, StageMeta};
use common::metric::Metric;
use std::path::Path;

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end -->";

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Unfilled {
    #[error("it has no line '{BEGIN}… -->'; write one where the generated part is to stand")]
    Nothing,
    #[error("below '{BEGIN}{0}' there is no '{END}'")]
    Open(String),
    #[error(
        "'{0}' is none of: metrics, gates, ladder, measured STAGE, gain STAGE, excerpt FILE \"FIRST\" \"LAST\""
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

/// `page` with each part as `generate` gives it.
pub fn fill(
    page: &str,
    generate: impl Fn(&str) -> Result<String, Unfilled>,
) -> Result<String, Unfilled> {
    let mut parts = page.split(BEGIN);
    let mut filled = parts.next().unwrap_or_default().to_string();
    let head = filled.len();
    for part in parts {
        let open = || Unfilled::Open(part.lines().next().unwrap_or_default().into());
        let (what, rest) = part.split_once(" -->\n").ok_or_else(open)?;
        let (_, rest) = rest.split_once(END).ok_or_else(open)?;
        filled += &format!(
            "{BEGIN}{what} -->\n{}\n{END}{rest}",
            generate(what)?.trim_end()
        );
    }
    (filled.len() > head)
        .then_some(filled)
        .ok_or(Unfilled::Nothing)
}

/// The part that a page asks for; `reports` are of the GPU models, that of COMPARE.md first.
pub fn part(what: &str, root: &Path, reports: &[Report<'_>]) -> Result<String, Unfilled> {
    let unknown = || Unfilled::Unknown(what.into());
    let quoted: Vec<&str> = what.split('"').collect();
    let words: Vec<&str> = quoted[0].split_whitespace().collect();
    let main = reports.first().ok_or_else(unknown)?;
    let stage = |id: &str| main.view.stage(id).ok_or_else(unknown);
    match (&words[..], &quoted[1..]) {
        (["metrics"], []) => Ok(markdown(&[Block::Table(metrics::metrics())])),
        (["gates"], []) => Ok(markdown(&[Block::Table(metrics::gates())])),
        (["ladder"], []) => Ok(markdown(&ladder::readme(main))),
        (["measured", id], []) => {
            let stage = stage(id)?;
            let row = Table::of([ladder::of_stage(main, stage)]).filled();
            let measured = measured(reports, stage, |_| true);
            Ok(markdown(&[vec![Block::Table(row)], measured].concat()))
        }
        (["gain", id], []) => {
            let stage = stage(id)?;
            let is_gain = |of: &Claimed| {
                matches!(of.claim.relation, Relation::Faster { .. })
                    && of.claim.place.dtype == stage.first_dtype()
            };
            Ok(markdown(&measured(reports, stage, is_gain)))
        }
        (["excerpt", file], [first, _, last, _]) => excerpt(root, file, first, last),
        _ => Err(unknown()),
    }
}

/// Lines of a source file, without those that only `compare explain` needs.
fn excerpt(root: &Path, file: &str, first: &str, last: &str) -> Result<String, Unfilled> {
    let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let lines = text.lines().skip_while(|line| !line.contains(first));
    let lines: Vec<&str> = lines.collect();
    let end = lines.iter().position(|line| line.contains(last));
    let end = end.ok_or_else(|| Unfilled::NoExcerpt {
        file: file.into(),
        first: first.into(),
        last: last.into(),
    })?;
    let is_shown = |line: &&&str| !line.trim_start().starts_with("ATTN_");
    let lines: Vec<&&str> = lines[..=end].iter().filter(is_shown).collect();
    let code = lines.iter().filter(|line| !line.starts_with('#'));
    let indents = code.map(|line| line.len() - line.trim_start().len());
    let indent = indents.min().unwrap_or(0);
    let shown = lines
        .iter()
        .map(|line| line.get(indent..).filter(|_| !line.starts_with('#')))
        .zip(&lines)
        .map(|(cut, whole)| cut.unwrap_or(whole));
    Ok(format!("```cuda\n{}\n```", joined(shown, "\n")))
}

/// What a stage predicts of its speed and what each GPU model measured.
fn measured(
    reports: &[Report<'_>],
    stage: &StageMeta,
    is_shown: impl Fn(&Claimed) -> bool,
) -> Vec<Block> {
    let found = reports.iter().flat_map(|report| {
        let claims = report.claims.iter();
        let claims = claims.filter(|of| of.stage == stage.id && is_shown(of));
        // What is stale teaches nothing.
        let claims = claims.filter(|of| of.pair().is_some() && !of.is_stale);
        let claims: Vec<&Claimed> = claims.collect();
        let others = unclaimed(report, stage);
        let rows = claims.iter().filter_map(|of| claim(of));
        let table = Table::of(rows.chain(others.iter().filter_map(|row| gain(row))));
        let table = some(table.filled());
        let sessions = claims.iter().filter_map(|of| of.session());
        let sessions = sessions.chain(others.iter().map(|row| &*row.session));
        let sessions = distinct(sessions).into_iter();
        let sessions = joined(sessions.map(|session| format!("`{session}`")), ", ");
        let gpu = report.view.gpu().unwrap_or("no GPU");
        let about =
            format!("On an {gpu}, base / new, the two timed in turn (A B B A): {sessions}.");
        let about = (!table.is_empty()).then(|| Block::paragraph(about));
        table.into_iter().chain(about)
    });
    or_line(
        found.collect(),
        "No claim of its speed has been measured on this kernel.",
    )
}

/// What was measured over the predecessor and not claimed.
fn unclaimed<'a>(report: &'a Report<'_>, stage: &StageMeta) -> Vec<&'a Row> {
    let places = ladder::places(stage).into_iter();
    let gains = places.map(|place| ladder::gain(report, stage, &place));
    let gains = gains.filter(|gain| gain.claim.is_none());
    gains.filter_map(|gain| gain.measured).collect()
}

fn gain(row: &Row) -> Option<TableRow> {
    let base = row.base()?;
    Some(row! {
        "faster than" => format!("{} {}", ladder::short(base.stage()), base.name()),
        "on" => row.place().to_string(),
        "claimed" => Cell::Empty,
        "measured" => times(row.value(Metric::SpeedupP50)?, 2),
        "same preset" => Cell::Empty,
        "verdict" => "not claimed",
    })
}

fn claim(of: &Claimed) -> Option<TableRow> {
    let pair = of.pair()?;
    let (base, predicted) = match &of.claim.relation {
        Relation::Faster { base, at_least } => {
            let own = base.stage == of.stage;
            let stage = if own { "" } else { ladder::short(base.stage) };
            (format!("{stage} {}", base.family), *at_least)
        }
        Relation::FasterThanPeer {
            rival, at_least, ..
        } => (rival.to_string(), *at_least),
        _ => return None,
    };
    let ratio = pair.value(Metric::SpeedupP50)?;
    let differs = |same: &f64| (same / ratio - 1.0).abs() > 0.005;
    let same = of.finding.same_preset.filter(differs);
    Some(row! {
        "faster than" => base.trim_start(),
        "on" => of.claim.place.to_string(),
        "claimed" => times(predicted, 2),
        "measured" => super::measured(of),
        "same preset" => or_empty(same.map(|ratio| times(ratio, 2))),
        "verdict" => standing(of),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{View, verdict};
    use crate::testing::{US, timed};

    #[test]
    fn parts_are_replaced_and_nothing_else_of_a_page_changes() {
        let generate = |what: &str| Ok(format!("<{what}>\n"));
        let page = "a\n<!-- generated: x y -->\nold\n<!-- end -->\nb\n<!-- generated: z -->\n<!-- end -->\n";
        let filled = fill(page, generate).unwrap();
        assert_eq!(
            filled,
            "a\n<!-- generated: x y -->\n<x y>\n<!-- end -->\nb\n<!-- generated: z -->\n<z>\n<!-- end -->\n"
        );
        assert_eq!(fill(&filled, generate).unwrap(), filled);
        assert_eq!(fill("a", generate), Err(Unfilled::Nothing));
        for open in [
            "<!-- generated: x -->\na",
            "<!-- generated: x",
            "<!-- generated: x -->\n<!-- generated: y -->\n<!-- end -->",
        ] {
            let error = fill(open, generate).unwrap_err().to_string();
            assert!(error.starts_with("below '<!-- generated: x"), "{error}");
        }
    }

    #[test]
    fn a_part_is_of_the_table_or_of_the_sources() {
        let run = timed(US);
        let reports = [verdict::report(View::alone(&run))];
        let root = tempfile::tempdir().unwrap();
        let kernel =
            "{\n    for (;;) {\n#pragma unroll\n        f();\n        ATTN_OBSERVE(x);\n    }\n}\n";
        std::fs::write(root.path().join("kernel.cu"), kernel).unwrap();
        let part =
            |what: &str| part(what, root.path(), &reports).map_err(|error| error.to_string());
        assert_eq!(
            part("excerpt kernel.cu \"for (\" \"    }\"").unwrap(),
            "```cuda\nfor (;;) {\n#pragma unroll\n    f();\n}\n```"
        );
        let ladder = part("ladder").unwrap();
        assert!(
            ladder.contains("\n| stage0-scalar | tiled softmax | 20.0 |"),
            "{ladder}"
        );
        let gain = "| faster than | on | claimed | measured | verdict |\n|---|---|---:|---:|---|\n\
            | stage0 wmma-qk | mission f16 full | 1.10x | 1.33x | holds |";
        let found = part("gain stage1-cpasync").unwrap();
        assert!(found.starts_with(gain), "{found}");
        assert!(part("measured stage1-cpasync").unwrap().contains(gain));
        for (wrong, says) in [
            ("ladders", "'ladders' is none of: metrics, gates, ladder, "),
            ("gain stage7", "none of"),
            ("excerpt kernel.cu \"for (\"", "none of"),
            (
                "excerpt kernel.cu \"g()\" \"}\"",
                "has no lines from one with 'g()'",
            ),
            ("excerpt none.cu \"f\" \"f\"", "none.cu has no lines"),
        ] {
            let error = part(wrong).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
