//! Rows and runs in words. `scalar`, `wmma` and `cpasync` are the variants of the literal ladder, stages are given by number.
//!
//! A row is `subject | place | source [against] | column value | …`. A run is a beginning and changes: `timed 32 20 15; clean;
//! wmma gpu all: C3 fail; - cpasync pair`. `WORDS: COLUMN VALUE` changes the rows that have all these words in their subject, stage,
//! source and place (`!word`: and not this one), `- WORDS` takes them away, and `+ ROW` adds one; [`edit`] has the rest.

use super::{CPASYNC, GPU, SCALAR, US, WMMA, emulated, table, timed};
use crate::judge::candidate::Candidate;
use crate::table::session::{DeviceCompiler, Git, Gpu, Progress, Tier};
use crate::table::{
    Figure, Judged, Key, Negative, Place, ProblemPlace, Relation, Row, Run, Source, StageMeta,
    Subject, Table,
};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, Verdict};
use serde::de::DeserializeOwned;

const SHORT: [(&str, &str); 3] = [("scalar", SCALAR), ("wmma", WMMA), ("cpasync", CPASYNC)];

/// What is asked of each line, below the line; `-` if that is nothing.
pub fn each(lines: &str, ask: impl Fn(&str) -> String) -> String {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let answers = lines.map(|line| {
        let answer = ask(line).trim_end().replace('\n', "\n    ");
        let answer = if answer.is_empty() { "-" } else { &answer };
        format!("{line}\n    {answer}\n")
    });
    answers.collect()
}

/// The two runs of `BASE => NEW`, of which the second may begin as `same`.
pub fn sides(line: &str) -> (Run, Run) {
    let (base, new) = line.split_once("=>").expect("BASE => NEW");
    let base = run(base);
    let new = after(new, &base);
    (base, new)
}

pub fn run(words: &str) -> Run {
    after(words, &emulated())
}

/// The run of these words, which may begin as `same`.
pub fn after(words: &str, same: &Run) -> Run {
    let (start, changes) = words.split_once(';').unwrap_or((words, ""));
    let start: Vec<&str> = start.split_whitespace().collect();
    let begun = match start[..] {
        ["emulated"] => emulated(),
        ["timed"] => timed(US),
        ["timed", a, b, c] => timed([a, b, c].map(|us| us.parse().unwrap())),
        ["same"] => same.clone(),
        _ => panic!("a run begins as emulated, timed or same: {words}"),
    };
    let changes = changes.split(';').map(str::trim);
    changes.filter(|one| !one.is_empty()).fold(begun, edit)
}

fn edit(mut run: Run, words: &str) -> Run {
    let all: Vec<&str> = words.split_whitespace().collect();
    let rest = all[1..].join(" ");
    let list = || all[1..].iter().map(ToString::to_string).collect();
    let number = |at: usize| all[at].parse::<usize>().unwrap();
    let peers = |first: usize| -> Vec<(&str, f64, bool)> {
        let pair = |pair: &[&'_ str]| pair[1].trim_end_matches('!').parse().unwrap();
        let pairs = all[first..].chunks(2);
        pairs
            .map(|of| (of[0], pair(of), !of[1].ends_with('!')))
            .collect()
    };
    match all[0] {
        "-" => run.without(|row| has(row, &all[1..])),
        "+" => run.with(row(&words[1..])),
        "clean" => run.clean(),
        // Registers and spilled bytes, with the code in every row that is about it.
        "built" => (run.built(number(1) as u32, number(2) as u32)).changed(|_| ()),
        "named" => run.named(&rest),
        "card" => run.on_gpu(&rest).changed(|_| ()),
        "machine" => run.changed(|session| session.machine.name = rest),
        "driver" => run.changed(|session| match &mut session.machine.gpu {
            Gpu::Present { driver, .. } => *driver = rest,
            Gpu::Absent { .. } => panic!("no GPU"),
        }),
        "counted" => run.counted(
            &subject(all[1]).to_string(),
            number(2) as u64,
            number(3) as u64,
        ),
        // As if these kernels had been measured from the start.
        "rebuilt" => run.changed(|session| {
            for stage in &mut session.stages {
                stage.identity.insert_str(0, "new-");
            }
        }),
        "identity" => run.changed(|session| session.stages[number(1)].identity = all[2].into()),
        // The sources' since the run was made.
        "sources" => {
            run.session.stages[number(1)].identity = all[2].into();
            run
        }
        "tier" => run.changed(|session| {
            session.tier = [Tier::T0, Tier::T1, Tier::T2][number(1)];
        }),
        "device" => run.changed(|session| session.device = rest.parse().ok()),
        "host" => run.changed(|session| session.host_compiler = rest),
        "nvcc" => run.changed(|session| {
            session.device_compiler = DeviceCompiler::Built {
                nvcc: rest,
                flags: vec![],
                archs: vec!["sm_90a".into()],
            };
        }),
        "archs" => run.changed(|session| {
            if let DeviceCompiler::Built { archs, .. } = &mut session.device_compiler {
                *archs = list();
            }
        }),
        "dirty" => run.changed(|session| {
            session.git = Git::Commit {
                sha: "0123456789abcdef".into(),
                dirty: true,
            };
        }),
        "no-git" => run.changed(|session| session.git = Git::Unknown { reason: rest }),
        "stripped" => run.changed(|session| session.source_lines = false),
        "input" => run.changed(|session| session.input = Some(rest.into())),
        "stages" => run.changed(|session| session.scope.stages = list()),
        "variants" => run.changed(|session| session.scope.variants = list()),
        "partial" => run.changed(|session| {
            session.progress = Progress::Partial {
                finished: number(1),
                planned: number(2),
            };
        }),
        "measurable" => run.changed(|session| {
            session.unmeasurable.remove(&all[1].parse().unwrap());
        }),
        "unmeasurable" => run.changed(|session| {
            let reason = all[2..].join(" ");
            session.unmeasurable.insert(all[1].parse().unwrap(), reason);
        }),
        "without-stage" => run.changed(|session| drop(session.stages.remove(number(1)))),
        // A claim of the sources, on one GPU model or, without its name, on all.
        "refuted" => {
            let gpu = all[3..].join(" ");
            let stage = &mut run.session.stages[number(1)];
            stage.negatives.push(Negative {
                claim: stage.claims[number(2)].id(),
                gpu: Some(gpu).filter(|gpu| !gpu.is_empty()),
                measured: String::new(),
                why: "it waits".into(),
            });
            run
        }
        // What a claim promises of a metric: `ratio STAGE CLAIM METRIC LEAST MOST`, of its base.
        "at-most" | "at-least" | "ratio" => run.changed(|session| {
            let claim = &mut session.stages[number(1)].claims[number(2)];
            let bound = |at: usize| all[at].parse::<f64>().unwrap();
            claim.metric = metric(all[3]).unwrap();
            claim.relation = match all[0] {
                "at-most" => Relation::AtMost { bound: bound(4) },
                "at-least" => Relation::AtLeast { bound: bound(4) },
                _ => Relation::Ratio {
                    base: *claim.relation.base().unwrap(),
                    at_least: bound(4),
                    at_most: bound(5),
                },
            };
        }),
        // The first claims of a stage alone.
        "claims" => run.changed(|session| session.stages[number(1)].claims.truncate(number(2))),
        // Ours takes the first time, others the others; what has a `!` is wrong.
        "peers" => run.peers(all[1], all[2].parse().unwrap(), &peers(3)),
        "beside" => run.beside(
            &subject(all[1]).to_string(),
            &ProblemPlace::new(all[2], Dtype::F16, Mask::Full),
            all[3].parse().unwrap(),
            &peers(4),
        ),
        // A variant of that name too, with the rows of the first but its pairs.
        "variant" => {
            let like = subject(all[1]);
            let stages = run.session.stages.iter_mut();
            let stage = stages.into_iter().find(|of| of.id == like.stage()).unwrap();
            let mut variant = stage.variant(like.name()).unwrap().clone();
            variant.name = all[2].into();
            stage.variants.push(variant);
            let rows: Vec<Row> = run.table.about(&like).cloned().collect();
            let rows = rows.into_iter().filter(|row| row.paired_with.is_none());
            let subject = Subject::variant(like.stage(), all[2]);
            rows.fold(run, |run, row| {
                run.with(Row {
                    subject: subject.clone(),
                    ..row
                })
            })
        }
        // These support none of their one case, the others theirs.
        "unsupported" => SHORT.into_iter().fold(run, |run, (short, _)| {
            let case = format!("+ {short} | mission f16 full normal:0 | emulator");
            match all.contains(&short) {
                false => edit(run, &format!("{case} | C1 pass")),
                true => {
                    let run = edit(run, &format!("{case} | note too large"));
                    edit(run, &format!("{short} all: cases 0 | cases_unsupported 1"))
                }
            }
        }),
        // The device refuses the variant.
        "refused" => {
            let gone = subject(all[1]);
            let run = run.without(|row| row.subject == gone);
            run.changed(|session| {
                let mut stages = session.stages.iter_mut();
                let stage = stages.find(|of| of.id == gone.stage()).unwrap();
                stage.variants.retain(|of| of.name != gone.name());
                stage.refused.push((gone.name().into(), "too large".into()));
            })
        }
        _ => {
            let (of, changes) = words.split_once(": ").expect("WORDS: COLUMN VALUE");
            let of: Vec<&str> = of.split_whitespace().collect();
            let those = run.table.rows().filter(|row| has(row, &of));
            let keys: Vec<Key> = those.map(Row::key).collect();
            assert!(!keys.is_empty(), "no row has {of:?}");
            for key in keys {
                let row = run.table.get_mut(&key).unwrap();
                changes.split(" | ").for_each(|change| set(row, change));
            }
            // Other rows are about the code of what was compiled.
            match changes.starts_with("code ") {
                true => run.changed(|_| ()),
                false => run,
            }
        }
    }
}

/// What is known after the sessions of `SESSION & SESSION @ SOURCES`, oldest first; `none` is no session. The sources are those of a
/// run.
pub fn view(line: &str) -> (Vec<StageMeta>, Table) {
    let (sessions, sources) = line.split_once(" @ ").unwrap_or((line, "emulated"));
    let sessions = sessions.split(" & ").filter(|words| *words != "none");
    let sessions = sessions
        .zip(1..)
        .map(|(words, n)| run(words).named(&n.to_string()));
    let table = table(&sessions.collect::<Vec<_>>());
    (run(sources).session.stages, table)
}

fn metric(name: &str) -> Option<Metric> {
    let mut all = Metric::ALL.iter().copied();
    all.find(|metric| metric.name() == name)
}

fn subject(name: &str) -> Subject {
    let view = SHORT.iter().find(|(short, _)| *short == name);
    view.map_or(name, |(_, full)| full).into()
}

fn has(row: &Row, words: &[&str]) -> bool {
    let short = SHORT
        .iter()
        .filter(|(_, full)| *full == row.subject.as_str());
    let mut of = format!(
        "{} {} {} {}",
        row.subject.stage(),
        row.subject.name(),
        row.place,
        row.source
    );
    of.extend(short.map(|(short, _)| format!(" {short}")));
    of += if row.paired_with.is_some() {
        " pair"
    } else {
        ""
    };
    let is_in = |word: &str| of.split_whitespace().any(|other| other == word);
    let mut words = words.iter();
    words.all(|word| {
        word.strip_prefix('!')
            .map_or_else(|| is_in(word), |not| !is_in(not))
    })
}

pub fn row(text: &str) -> Row {
    let mut parts = text.split('|').map(str::trim);
    let mut part = || parts.next().expect("subject | place | source");
    let (name, words, measured_by) = (part(), part(), part());
    let mut measured_by = measured_by.split_whitespace();
    let source = value::<Source>(measured_by.next().unwrap()).expect("a source");
    let mut row = Row::new(subject(name), place(words), source);
    row.paired_with = measured_by.next().map(subject);
    parts.for_each(|change| set(&mut row, change));
    row
}

/// Of `GATES; ROW; …`: the gates over all cases, and what was timed.
pub fn candidate(line: &str) -> Candidate {
    let mut parts = line.split("; ");
    let gates = parts.next().unwrap();
    let mut candidate = Candidate {
        device: GPU.into(),
        summary: row(&format!("mine.py:attention | all | peers | {gates}")),
        cases: vec![],
        timed: Table::default(),
        is_interrupted: false,
    };
    parts.for_each(|timed| candidate.add(row(timed)));
    candidate
}

/// As it is shown.
pub fn place(text: &str) -> Place {
    let words: Vec<&str> = text.split_whitespace().collect();
    let problem = |shape, dtype: &str, mask: &str| {
        ProblemPlace::new(shape, dtype.parse().unwrap(), mask.parse().unwrap())
    };
    match words[..] {
        ["all"] => Place::All,
        [":", ..] => Place::Named(words[1..].join(" ")),
        [dtype, dim @ ("d64" | "d128"), ..] => Place::Instance {
            dtype: dtype.parse().unwrap(),
            head_dim: dim[1..].parse().unwrap(),
            arch: words.get(2).map(ToString::to_string),
        },
        [shape, dtype, mask] => Place::Problem(problem(shape, dtype, mask)),
        [shape, dtype, mask, input] => Place::Case(problem(shape, dtype, mask), input.into()),
        _ => panic!("no place: {text}"),
    }
}

fn value<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

/// `C3 fail too large`, `p50 5 4.9 5.1`, `note words`; `none` takes a column away.
pub fn set(row: &mut Row, change: &str) {
    let (column, text) = change.split_once(' ').expect("COLUMN VALUE");
    let words: Vec<&str> = text.split_whitespace().collect();
    let given = Some(text.to_string()).filter(|text| text != "none");
    if let Ok(gate) = column.parse::<GateId>() {
        row.verdicts.remove(&gate);
        let Some(verdict) = value::<Verdict>(words[0]) else {
            return;
        };
        let reason = match (verdict, words[1..].join(" ")) {
            (Verdict::Pass, _) => String::new(),
            (_, none) if none.is_empty() => "too large".into(),
            (_, reason) => reason,
        };
        let (passed, of) = (None, None);
        let judged = Judged {
            verdict,
            passed,
            of,
            reason,
        };
        row.verdicts.insert(gate, judged);
        return;
    }
    let figure = || {
        let number = |at: usize| words[at].parse::<f64>().unwrap();
        match words.len() {
            1 => Figure::from(number(0)),
            _ => (number(0), number(1), number(2)).into(),
        }
    };
    match (column, metric(column)) {
        ("under", _) => row.conditions = given,
        ("note", _) => row.note = given,
        ("code", _) => row.code = given,
        ("identity", _) => row.identity = given,
        ("session", _) => row.session = text.into(),
        (_, Some(metric)) => {
            row.figures.remove(&metric);
            row.figures.extend(given.map(|_| (metric, figure())));
        }
        _ => panic!("no column: {column}"),
    }
}
