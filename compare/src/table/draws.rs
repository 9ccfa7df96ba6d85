//! Times at random problems as a table keeps them: a line of `draws.jsonl` has the problems of one session, element type and head size,
//! and what each variant takes there. As rows they would be most of a table, and name a kernel's code again at every problem.

use super::row::{Place, ProblemPlace, Row, Source, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A line. `shape`, `mask`, `draw` and each `p50` have one value for each problem.
#[derive(Clone, Deserialize, Serialize)]
pub struct Line {
    session: String,
    dtype: Dtype,
    shape: Vec<String>,
    mask: Vec<Mask>,
    /// Numbers of the random problems.
    draw: Vec<u64>,
    kernels: Vec<Kernel>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Kernel {
    #[serde(flatten)]
    build: Build,
    /// null where there is none.
    p50: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
struct Build {
    subject: Subject,
    identity: Option<String>,
    code: Option<String>,
}

type Problem<'a> = (u64, &'a ProblemPlace);

type Times<'a> = BTreeMap<Problem<'a>, f64>;

impl Build {
    fn of(row: &Row) -> Self {
        Self {
            subject: row.subject.clone(),
            identity: row.identity.clone(),
            code: row.code.clone(),
        }
    }

    fn row(&self, session: &str, place: ProblemPlace, draw: u64, p50: f64) -> Row {
        Row {
            session: session.to_string(),
            identity: self.identity.clone(),
            code: self.code.clone(),
            ..Row::new(self.subject.clone(), Place::Problem(place), Source::Draw)
                .figure(Metric::P50, p50)
                .figure(Metric::Draw, draw)
        }
    }
}

/// The random problem of a row, its head_dim, and the time there; `None` if that is not all that the row says.
fn time(row: &Row) -> Option<(Problem<'_>, usize, f64)> {
    let place = row.place.problem()?;
    let (draw, p50) = (row.value(Metric::Draw)? as u64, row.value(Metric::P50)?);
    let plain = ProblemPlace::new(&place.shape, place.dtype, place.mask);
    let is_all = Build::of(row).row(&row.session, plain, draw, p50) == *row;
    let head_dim = place.extents()?.head_dim;
    is_all.then_some(((draw, place), head_dim, p50))
}

/// The rows as lines, and those that have more to say.
pub fn split<'a>(rows: impl Iterator<Item = &'a Row>) -> (Vec<Line>, Vec<&'a Row>) {
    let mut lines: BTreeMap<_, BTreeMap<Build, Times<'_>>> = BTreeMap::new();
    let mut others = Vec::new();
    for row in rows {
        match time(row) {
            Some((problem, head_dim, p50)) => {
                let line = (&*row.session, problem.1.dtype, head_dim);
                let kernels = lines.entry(line).or_default();
                let times = kernels.entry(Build::of(row)).or_default();
                times.insert(problem, p50);
            }
            None => others.push(row),
        }
    }
    let lines = lines
        .into_iter()
        .map(|((session, dtype, _), kernels)| line(session, dtype, kernels));
    (lines.collect(), others)
}

fn line(session: &str, dtype: Dtype, kernels: BTreeMap<Build, Times<'_>>) -> Line {
    let problems: BTreeSet<&Problem<'_>> = kernels.values().flat_map(Times::keys).collect();
    Line {
        session: session.to_string(),
        dtype,
        shape: problems.iter().map(|(_, of)| of.shape.clone()).collect(),
        mask: problems.iter().map(|(_, of)| of.mask).collect(),
        draw: problems.iter().map(|(draw, _)| *draw).collect(),
        kernels: (kernels.iter())
            .map(|(build, times)| Kernel {
                build: build.clone(),
                p50: problems
                    .iter()
                    .map(|problem| times.get(problem).copied())
                    .collect(),
            })
            .collect(),
    }
}

/// The rows of a line, each of which can be.
#[derive(Deserialize)]
#[serde(try_from = "Line")]
pub struct Rows(pub Vec<Row>);

impl TryFrom<Line> for Rows {
    type Error = String;

    fn try_from(line: Line) -> Result<Self, String> {
        let problems = line.shape.len();
        let times = line.kernels.iter().map(|kernel| kernel.p50.len());
        let mut lengths = times.chain([line.mask.len(), line.draw.len()]);
        if let Some(other) = lengths.find(|length| *length != problems) {
            return Err(format!("a list of {other} values, of {problems} problems"));
        }
        let mut rows = Vec::new();
        for Kernel { build, p50 } in &line.kernels {
            for (at, p50) in p50.iter().enumerate() {
                let place = ProblemPlace::new(&line.shape[at], line.dtype, line.mask[at]);
                let row = p50.map(|p50| build.row(&line.session, place, line.draw[at], p50));
                rows.extend(row);
            }
        }
        let wrong = rows.iter().find_map(Row::impossible);
        wrong.map_or(Ok(Self(rows)), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::merge::Table;
    use crate::table::names::{DRAWS, ROWS};
    use crate::testing::scenario::each;
    use std::path::Path;

    fn row(line: &str) -> Row {
        serde_json::from_str(line).unwrap()
    }

    fn read(files: &[(&str, Vec<u8>)]) -> Result<Table, String> {
        let mut table = Table::default();
        for (file, text) in files {
            let parsed = table.parse(file, text, Path::new(file));
            parsed.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        }
        Ok(table)
    }

    /// A variant without a time at a problem, or of two machine codes; a row with a verdict, of other conditions, or of none of these.
    #[test]
    fn times_at_random_problems_are_lines_and_read_back() {
        let draw = |subject: &str, shape: &str, rest: &str| {
            row(&format!(
                r#"{{"subject":"{subject}","shape":"{shape}","dtype":"f16","mask":"causal","by":"draw","session":"1","identity":"i","code":"c",{rest}}}"#
            ))
        };
        let mut table = Table::default();
        table.extend([
            draw("s/v", "1x2x512x64", r#""p50":5.274,"draw":7"#),
            draw("s/w", "1x2x512x64", r#""p50":216,"draw":7"#),
            draw("s/w", "1x2:1x1:99x64", r#""p50":3.1,"draw":12"#),
            draw("s/v", "1x2x512x128", r#""p50":9,"draw":3"#),
            draw("s/v", "1x2x16x64", r#""p50":9,"draw":5,"C2":"fail","C2_reason":"max error 1""#),
            draw("s/v", "1x2x32x64", r#""p50":9,"draw":5,"cold":true"#),
            draw("s/v", "1x2x48x64", r#""draw":6,"note":"not supported""#),
            row(r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"gpu","p50":5}"#),
        ]);
        let mut other = draw("s/v", "1x2:1x1:99x64", r#""p50":3,"draw":12"#);
        other.code = None;
        table.append(other);
        let files = table.files();
        insta::assert_snapshot!(String::from_utf8_lossy(&files[1].1), @r#"
    {"session":"1","dtype":"f16","shape":["1x2x512x64","1x2:1x1:99x64"],"mask":["causal","causal"],"draw":[7,12],"kernels":[{"subject":"s/v","identity":"i","code":null,"p50":[null,3.0]},{"subject":"s/v","identity":"i","code":"c","p50":[5.274,null]},{"subject":"s/w","identity":"i","code":"c","p50":[216.0,3.1]}]}
    {"session":"1","dtype":"f16","shape":["1x2x512x128"],"mask":["causal"],"draw":[3],"kernels":[{"subject":"s/v","identity":"i","code":"c","p50":[9.0]}]}
    "#);
        assert_eq!(files[0].1.iter().filter(|byte| **byte == b'\n').count(), 4);
        assert_eq!(read(&files).unwrap(), table);
    }

    #[test]
    fn a_line_that_cannot_be_is_refused() {
        let line = r#"{"session":"1","dtype":"f16","shape":["1x2x512x64","1x2x16x64"],"mask":["full","full"],"draw":[7,8],"kernels":[{"subject":"s/v","identity":"i","code":"c","p50":[5,6.5]}]}"#;
        let times = |text: &str| (DRAWS, text.as_bytes().to_vec());
        assert_eq!(read(&[times(line)]).unwrap().rows().count(), 2);
        let found = each(
            r#"[5,6.5] [5]
            ["full","full"] ["full"]
            [7,8] [7,8,9]
            [5,6.5] [5,0]
            [5,6.5] [-5,6.5]
            [5,6.5] [5,"fast"]
            1x2x16x64 1x2x512x64
            "full","full" "full","most""#,
            |change| {
                let (from, to) = change.split_once(' ').unwrap();
                read(&[times(&line.replace(from, to))]).unwrap_err()
            },
        );
        insta::assert_snapshot!(found, @r#"
    [5,6.5] [5]
        draws.jsonl: line 1 is malformed: a list of 1 values, of 2 problems
    ["full","full"] ["full"]
        draws.jsonl: line 1 is malformed: a list of 1 values, of 2 problems
    [7,8] [7,8,9]
        draws.jsonl: line 1 is malformed: a list of 3 values, of 2 problems
    [5,6.5] [5,0]
        draws.jsonl: line 1 is malformed: s/v on 1x2x16x64 f16 full by draw: p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    [5,6.5] [-5,6.5]
        draws.jsonl: line 1 is malformed: s/v on 1x2x512x64 f16 full by draw: p50 is -5, which cannot be measured: it must be a positive number inside its interval; measure it again
    [5,6.5] [5,"fast"]
        draws.jsonl: line 1 is malformed: invalid type: string "fast", expected f64 at line 1 column 169
    1x2x16x64 1x2x512x64
        draws.jsonl: duplicate row of s/v on 1x2x512x64 f16 full by draw
    "full","full" "full","most"
        draws.jsonl: line 1 is malformed: unknown variant `most`, expected `full` or `causal` at line 1 column 85
    "#);
        let twice = serde_json::to_vec(read(&[times(line)]).unwrap().rows().next().unwrap());
        let error = read(&[times(line), (ROWS, twice.unwrap())]).unwrap_err();
        assert!(error.contains("duplicate row"), "{error}");
    }
}
