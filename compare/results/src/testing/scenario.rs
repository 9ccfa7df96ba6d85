//! Rows in words, and changes to runs: methods for single runs, and a line of words for each case
//! of a test that has many. `scalar`, `wmma` and `cpasync` are the variants of the literal ladder,
//! and stages have their numbers.
//!
//! A row is `subject | place | source [against] | column value | …`. The line of a run is a
//! beginning and changes: `timed 32 20 15; clean; wmma gpu all: C3 fail; - cpasync pair`.
//! `WORDS: COLUMN VALUE` is [`Run::with_columns`], `- WORDS` is [`Run::without_rows`], and `+ ROW`
//! adds a row; [`edit`] has the other changes.

use super::changes::refute;
use super::rows::{SHORT, metric, subject};
use super::{PeerArm, US, emulated, timed};
pub use super::{candidate, row, set, table_of_sessions};
use crate::table::session::{DeviceCompiler, Git, Gpu, Progress, Tier};
use crate::table::{Key, ProblemPlace, Relation, Row, Run, Session, StageMeta, Table};
use common::problem::{Dtype, Mask};
use common::verdict::GateId;
use std::fmt::Debug;
use std::str::FromStr;

/// Returns each line with the answer to it below; `-` if that is nothing.
pub fn each(cases: &str, ask: impl Fn(&str) -> String) -> String {
    let lines = cases.lines().map(str::trim);
    let named = lines
        .filter(|line| !line.is_empty())
        .map(|line| (line, line));
    each_case(named, |line| ask(line))
}

/// Returns the name of each case with the answer below it; `-` if that is nothing.
pub fn each_case<'a, T>(
    cases: impl IntoIterator<Item = (&'a str, T)>,
    ask: impl Fn(&T) -> String,
) -> String {
    let mut answers = String::new();
    for (name, case) in cases {
        let answer = ask(&case).trim_end().replace('\n', "\n    ");
        let shown = if answer.is_empty() { "-" } else { &answer };
        answers += &format!("{name}\n    {shown}\n");
    }
    answers
}

/// Returns the two runs of `BASE => NEW`, of which the second may begin as `same`.
pub fn sides(line: &str) -> (Run, Run) {
    let (words_of_base, words_of_new) = line.split_once("=>").expect("BASE => NEW");
    let base = run(words_of_base);
    let new = after(words_of_new, &base);
    (base, new)
}

/// Returns the run of these words.
pub fn run(words: &str) -> Run {
    after(words, &emulated())
}

/// Returns the run of these words, which may begin as `same`.
pub fn after(words: &str, same: &Run) -> Run {
    let (beginning, changes) = words.split_once(';').unwrap_or((words, ""));
    let words_of_beginning: Vec<&str> = beginning.split_whitespace().collect();
    let mut run = match words_of_beginning[..] {
        ["emulated"] => emulated(),
        ["timed"] => timed(US),
        ["timed", a, b, c] => timed([a, b, c].map(|us| us.parse().unwrap())),
        ["same"] => same.clone(),
        _ => panic!("a run begins as emulated, timed or same: {words}"),
    };
    for change in changes.split(';').map(str::trim) {
        if !change.is_empty() {
            run = edit(run, change);
        }
    }
    run
}

/// The words of one change.
struct Words<'a> {
    text: &'a str,
    all: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            all: text.split_whitespace().collect(),
        }
    }

    fn verb(&self) -> &'a str {
        self.all[0]
    }

    /// Returns the words from this one on, as a text.
    fn text_from(&self, first: usize) -> String {
        self.all[first..].join(" ")
    }

    fn list(&self) -> Vec<String> {
        self.all[1..].iter().map(ToString::to_string).collect()
    }

    fn number<T: FromStr<Err: Debug>>(&self, index: usize) -> T {
        let Some(word) = self.all.get(index) else {
            panic!("`{}` lacks word {index}", self.text);
        };
        match word.parse() {
            Ok(number) => number,
            Err(error) => panic!("`{}`: {word}: {error:?}", self.text),
        }
    }

    /// Returns peers by name and time; the time of a wrong one ends with `!`.
    fn peers(&self, first: usize) -> Vec<PeerArm<'a>> {
        let mut peers = Vec::new();
        for pair in self.all[first..].chunks(2) {
            let (name, time) = (pair[0], pair[1]);
            peers.push(match time.strip_suffix('!') {
                Some(us) => PeerArm::wrong(name, us.parse().unwrap()),
                None => PeerArm::right(name, time.parse().unwrap()),
            });
        }
        peers
    }
}

fn edit(mut run: Run, text: &str) -> Run {
    let words = Words::new(text);
    if change_session(&mut run.session, &words) || change_sources(&mut run.session, &words) {
        return run.changed(|_| ());
    }
    if change_sources_since(&mut run.session, &words) {
        return run;
    }
    match words.verb() {
        "-" => run.without_rows(&words.text_from(1)),
        "+" => run.with_row(row(&text[1..])),
        "clean" => run.clean(),
        "built" => run.built_throughout(words.number(1), words.number(2)),
        "card" => run.on_card(&words.text_from(1)),
        "counted" => {
            let subject = subject(words.all[1]);
            run.counted(subject.as_str(), words.number(2), words.number(3))
        }
        // Ours takes the first time, others the others; what has a `!` is wrong.
        "peers" => run.peers(words.all[1], words.number(2), &words.peers(3)),
        "beside" => run.beside(
            subject(words.all[1]).as_str(),
            &ProblemPlace::new(words.all[2], Dtype::F16, Mask::Full),
            words.number(3),
            &words.peers(4),
        ),
        "rebuilt" => run.rebuilt(),
        "variant" => run.with_variant(subject(words.all[1]).as_str(), words.all[2]),
        "unsupported" => unsupported(run, &words.all[1..]),
        "refused" => run.without_variant(subject(words.all[1]).as_str()),
        _ => {
            let (rows, columns) = text.split_once(": ").expect("WORDS: COLUMN VALUE");
            run.with_columns(rows, columns)
        }
    }
}

impl Run {
    /// Removes the rows that have all of these words in their subject, stage, source and place;
    /// `!word` is a word that they must not have.
    pub fn without_rows(self, words: &str) -> Self {
        let required: Vec<&str> = words.split_whitespace().collect();
        self.without(|row| has(row, &required))
    }

    /// Changes columns (`COLUMN VALUE | COLUMN VALUE`) of the rows that have these words, at least
    /// one row.
    pub fn with_columns(mut self, words: &str, columns: &str) -> Self {
        let required: Vec<&str> = words.split_whitespace().collect();
        let rows = self.table.rows().filter(|row| has(row, &required));
        let keys: Vec<Key> = rows.map(Row::key).collect();
        assert!(!keys.is_empty(), "no row has {required:?}");
        for key in keys {
            let row = self.table.get_mut(&key).unwrap();
            for change in columns.split(" | ") {
                set(row, change);
            }
        }
        // Other rows are about the code of what was compiled.
        if columns.starts_with("code ") {
            return self.changed(|_| ());
        }
        self
    }
}

/// Changes what a session was asked for and where it ran.
fn change_session(session: &mut Session, words: &Words<'_>) -> bool {
    let rest = words.text_from(1);
    match words.verb() {
        "named" => session.name = rest,
        "machine" => session.machine.name = rest,
        "driver" => match &mut session.machine.gpu {
            Gpu::Present { driver, .. } => *driver = rest,
            Gpu::Absent { .. } => panic!("no GPU"),
        },
        "tier" => session.tier = [Tier::T0, Tier::T1, Tier::T2][words.number::<usize>(1)],
        "device" => session.device = rest.parse().ok(),
        "host" => session.host_compiler = rest,
        "nvcc" => {
            session.device_compiler = DeviceCompiler::Built {
                nvcc: rest,
                flags: vec![],
                archs: vec!["sm_90a".into()],
            };
        }
        "archs" => {
            if let DeviceCompiler::Built { archs, .. } = &mut session.device_compiler {
                *archs = words.list();
            }
        }
        "dirty" => {
            session.git = Git::Commit {
                sha: "0123456789abcdef".into(),
                dirty: true,
            };
        }
        "no-git" => session.git = Git::Unknown { reason: rest },
        "stripped" => session.source_lines = false,
        "input" => session.input = Some(rest.into()),
        "stages" => session.scope.stages = words.list(),
        "variants" => session.scope.variants = words.list(),
        "partial" => {
            session.progress = Progress::Partial {
                finished: words.number(1),
                planned: words.number(2),
            };
        }
        "measurable" => drop(session.unmeasurable.remove(&words.number::<GateId>(1))),
        "unmeasurable" => {
            let reason = words.text_from(2);
            session.unmeasurable.insert(words.number(1), reason);
        }
        _ => return false,
    }
    true
}

/// Changes stages as if they had been so from the start.
fn change_sources(session: &mut Session, words: &Words<'_>) -> bool {
    match words.verb() {
        "identity" => session.stages[words.number::<usize>(1)].identity = words.all[2].into(),
        "without-stage" => drop(session.stages.remove(words.number(1))),
        // The first claims of a stage alone.
        "claims" => {
            let stage = &mut session.stages[words.number::<usize>(1)];
            stage.claims.truncate(words.number(2));
        }
        // What a claim promises of a metric: `ratio STAGE CLAIM METRIC LEAST MOST`, of its base.
        verb @ ("at-most" | "at-least" | "ratio") => {
            let stage = &mut session.stages[words.number::<usize>(1)];
            let claim = &mut stage.claims[words.number::<usize>(2)];
            claim.metric = metric(words.all[3]).unwrap();
            let bound = words.number(4);
            claim.relation = match verb {
                "at-most" => Relation::AtMost { bound },
                "at-least" => Relation::AtLeast { bound },
                _ => Relation::Ratio {
                    base: *claim.relation.base().unwrap(),
                    at_least: bound,
                    at_most: words.number(5),
                },
            };
        }
        _ => return false,
    }
    true
}

/// Changes stages after the run was made.
fn change_sources_since(session: &mut Session, words: &Words<'_>) -> bool {
    match words.verb() {
        "sources" => session.stages[words.number::<usize>(1)].identity = words.all[2].into(),
        // A claim of the sources, on one GPU model or, without its name, on all.
        "refuted" => {
            let stage = &mut session.stages[words.number::<usize>(1)];
            let gpu = Some(words.text_from(3)).filter(|gpu| !gpu.is_empty());
            refute(stage, words.number(2), gpu);
        }
        _ => return false,
    }
    true
}

/// Adds a case of each variant, which these do not support.
fn unsupported(mut run: Run, variants: &[&str]) -> Run {
    for (short, _) in SHORT {
        let case = format!("{short} | mission f16 full normal:0 | emulator");
        if variants.contains(&short) {
            run.append(row(&format!("{case} | note too large")));
            run = run.with_columns(&format!("{short} all"), "cases 0 | cases_unsupported 1");
        } else {
            run.append(row(&format!("{case} | C1 pass")));
        }
    }
    run
}

/// Returns what is known after the sessions of `SESSION & SESSION @ SOURCES`, oldest first; `none`
/// is no session. The sources are those of a run.
pub fn view(line: &str) -> (Vec<StageMeta>, Table) {
    let (sessions, sources) = line.split_once(" @ ").unwrap_or((line, "emulated"));
    let mut runs = Vec::new();
    for words in sessions.split(" & ") {
        if words != "none" {
            runs.push(run(words));
        }
    }
    (run(sources).session.stages, table_of_sessions(&runs))
}

/// Returns whether a row has all of these words, and none of those with a `!` before them.
fn has(row: &Row, words: &[&str]) -> bool {
    let subject = &row.subject;
    let mut text = format!(
        "{} {} {} {}",
        subject.stage(),
        subject.name(),
        row.place(),
        row.source()
    );
    for (short, long) in SHORT {
        if long == subject.as_str() {
            text += &format!(" {short}");
        }
    }
    if row.base().is_some() {
        text += " pair";
    }
    let own: Vec<&str> = text.split_whitespace().collect();
    words.iter().all(|word| match word.strip_prefix('!') {
        Some(unwanted) => !own.contains(&unwanted),
        None => own.contains(word),
    })
}
