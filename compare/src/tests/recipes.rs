//! The commands of docs/recipes.md and of the pages that newcomers read: parsed, and their names
//! looked up.

use crate::commands::cli::Cli;
use clap::Parser;
use measure::select::{self, Chosen};
use results::table::StageMeta;
use std::path::{Path, PathBuf};

const COMPARE: &str = "cargo run -p compare";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the words of a command line as a shell splits it, as far as the page goes: double
/// quotes, no escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    for (index, part) in line.split('"').enumerate() {
        if index.is_multiple_of(2) {
            words.extend(part.split_whitespace().map(String::from));
        } else {
            words.push(part.to_string());
        }
    }
    words
}

/// Programs that are not of this repository: of their arguments only the stages are looked up.
const OTHERS: [&str; 4] = ["cargo", "cuobjdump", "gh", "git"];

/// Returns the lines of the blocks without a language, without comments.
fn commands(page: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        if block.starts_with('\n') {
            for line in block.lines() {
                let command = line.split(" # ").next().unwrap_or_default();
                commands.push(command.trim_end());
            }
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// Checks a command of a page.
fn check(line: &str, stages: &[StageMeta]) -> Result<(), String> {
    let program = line.split_whitespace().next().unwrap_or_default();
    if OTHERS.contains(&program) && !line.starts_with(COMPARE) {
        for word in line.split([' ', '/']) {
            let id = word.trim_end_matches("-*");
            if id.starts_with("stage") && !stages.iter().any(|stage| stage.id == id) {
                return Err(format!("{line}: there is no {word}"));
            }
        }
        return Ok(());
    }
    if let Some(query) = line.strip_prefix("duckdb -c ") {
        return check_query(query).map_err(|error| format!("{line}: {error}"));
    }
    match line.strip_prefix(COMPARE) {
        Some(rest) => check_compare(&words(rest), stages),
        // What follows `--` are flags of `compare run`.
        None => match line.split_once(" -- ") {
            Some((script, flags)) => check_script(&words(script))
                .and_then(|()| check_compare(&words(&format!("-- {flags}")), stages)),
            // What scripts/python installs.
            None => check_script(&words(
                line.trim_start_matches(".python/bin/python ")
                    .trim_start_matches(".python/bin/torchrun --nproc-per-node 2 "),
            )),
        },
    }
    .map_err(|error| format!("{line}: {error}"))
}

fn check_compare(words: &[String], stages: &[StageMeta]) -> Result<(), String> {
    let arguments = match words.split_first() {
        None => words,
        Some((dashes, arguments)) if dashes == "--" => arguments,
        Some(_) => return Err("cargo would take the flags; put -- before them".into()),
    };
    let command = std::iter::once("compare").chain(arguments.iter().map(String::as_str));
    match Cli::try_parse_from(command) {
        Err(error) if error.use_stderr() => return Err(error.to_string()),
        _ => {}
    }
    for pair in arguments.windows(2) {
        let [flag, value] = pair else { continue };
        let values: Vec<String> = value.split(',').map(String::from).collect();
        match flag.as_str() {
            "--stages" => select::stages(&values, stages).map(drop),
            "--stage" => select::stage(value, stages).map(drop),
            "--variants" => Chosen {
                variants: values,
                ..Chosen::default()
            }
            .pick(stages)
            .map(drop),
            _ => Ok(()),
        }
        .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The words of queries besides columns, the names that they define, and text in single quotes.
const SQL: &str = "AND AS BY DISTINCT FILTER FROM GROUP IS NOT NULL ORDER SELECT WHERE bar count \
                   max min read_json t true union_by_name";

/// Checks that the columns of a query are those of the committed table.
fn check_query(query: &str) -> Result<(), String> {
    let unquoted = query
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .ok_or("a query stands between double quotes")?;
    let parts: Vec<&str> = unquoted.split('\'').collect();
    if parts.len().is_multiple_of(2) {
        return Err("a single quote is not closed".into());
    }
    let mut words = Vec::new();
    for part in parts.into_iter().step_by(2) {
        words.extend(part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    }
    words.retain(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    let mut known: Vec<&str> = SQL.split(' ').collect();
    for pair in words.windows(2) {
        if pair[0] == "AS" {
            known.push(pair[1]);
        }
    }
    let table = root().join("results/nvidia-h200/rows.jsonl");
    let rows = std::fs::read_to_string(table).map_err(|error| error.to_string())?;
    for word in words {
        let is_column = rows.contains(&format!("\"{word}\":"));
        if !is_column && !known.contains(&word) {
            return Err(format!("the table has no column {word}"));
        }
    }
    Ok(())
}

/// Checks that a script names the flags in its own text.
fn check_script(words: &[String]) -> Result<(), String> {
    let folders = ["scripts/", ".ci/", "examples/", "attention-ladder/python/"];
    let script = words
        .first()
        .filter(|word| folders.iter().any(|folder| word.starts_with(folder)))
        .ok_or("neither compare nor a script of the repository")?;
    let text = std::fs::read_to_string(root().join(script)).map_err(|error| error.to_string())?;
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let is_in_help = text.contains(&format!("  {flag} "));
        if !is_in_help && !text.contains(&format!("\"{flag}\"")) {
            return Err(format!("{script} has no {flag}"));
        }
    }
    Ok(())
}

fn ladder() -> Vec<StageMeta> {
    stages::builds().unwrap()
}

/// The pages whose commands a visitor tries first.
const PAGES_FOR_NEWCOMERS: [&str; 5] = [
    "README.md",
    "CONTRIBUTING.md",
    "attention-ladder/README.md",
    "docs/ladder.md",
    "docs/trust.md",
];

/// The number of lines that README.md may have: a visitor reads it without scrolling far.
const README_LINES: usize = 100;

/// Returns the stage that a command of a page has `scripts/new-stage` make.
fn new_stage(command: &str, stages: &[StageMeta]) -> Option<StageMeta> {
    let arguments = command.strip_prefix("scripts/new-stage ")?;
    let (name, source) = arguments.split_once(' ')?;
    let source_stage = stages.iter().find(|stage| stage.id == source)?;
    Some(StageMeta {
        id: name.to_string(),
        ..source_stage.clone()
    })
}

/// Returns the ladder and the stages that these commands make.
fn ladder_after(commands: &[&str]) -> Vec<StageMeta> {
    let mut stages = ladder();
    for command in commands {
        let made = new_stage(command, &stages);
        stages.extend(made);
    }
    stages
}

#[test]
fn every_recipe_is_a_command_with_its_exit_codes() {
    let page = std::fs::read_to_string(root().join("docs/recipes.md")).unwrap();
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert!(
        sections.len() >= 9,
        "the page was not understood: {} sections",
        sections.len()
    );
    for section in sections {
        let title = section.lines().next().unwrap();
        let commands = commands(section);
        assert!(!commands.is_empty(), "{title}: no command");
        assert!(
            section.contains("Exit ") && section.contains("rint"),
            "{title}: what it prints, and its exit codes"
        );
        let stages = ladder_after(&commands);
        for line in commands {
            check(line, &stages).unwrap_or_else(|error| panic!("{title}: {error}"));
        }
    }
}

#[test]
fn pages_for_newcomers_give_commands_that_exist() {
    for page in PAGES_FOR_NEWCOMERS {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let commands = commands(&text);
        assert!(!commands.is_empty(), "{page}: no command");
        let stages = ladder_after(&commands);
        for line in commands {
            check(line, &stages).unwrap_or_else(|error| panic!("{page}: {error}"));
        }
    }
}

/// `scripts/new-stage` refuses any other number.
#[test]
fn a_stage_that_a_page_makes_is_the_next_one() {
    let stages = ladder();
    let next = format!("stage{}-", stages.len());
    let mut made = 0;
    for page in PAGES_FOR_NEWCOMERS.into_iter().chain(["docs/recipes.md"]) {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        for line in commands(&text) {
            if let Some(stage) = new_stage(line, &stages) {
                assert!(
                    stage.id.starts_with(&next),
                    "{page}: {line}: make {next}mine, the next stage, which scripts/new-stage \
                     writes into the pages when it makes the one before"
                );
                made += 1;
            }
        }
    }
    assert!(made >= 2, "the pages were not understood");
}

#[test]
fn the_readme_is_short() {
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    let lines = page.lines().count();
    assert!(
        lines <= README_LINES,
        "README.md has {lines} lines, {README_LINES} are allowed: move what is not a first screen"
    );
}

#[test]
fn what_is_no_command_is_noticed() {
    let stages = ladder();
    for (line, message) in [
        (
            "cargo run -p compare -- sanitize --stagez stage5-swizzle",
            "--stagez",
        ),
        ("cargo run -p compare -- sanitizes", "sanitizes"),
        ("cargo run -p compare --quick", "put -- before"),
        (
            "cargo run -p compare -- --stages stage5-swizle",
            "did you mean",
        ),
        (
            "cargo run -p compare -- show --stage 77",
            "there is no stage",
        ),
        (
            "cargo run -p compare -- --variants scalar-31x64",
            "did you mean",
        ),
        ("cargo run -p compare -- --shapes misson", "did you mean"),
        ("scripts/reviews main", "No such file"),
        ("scripts/review main --slow", "has no --slow"),
        (
            "duckdb -c \"SELECT p05 FROM read_json('x') AS t\"",
            "no column p05",
        ),
        ("duckdb -c \"SELECT p50 FROM read_json('x)\"", "not closed"),
        ("ls", "neither compare nor a script"),
        ("gits log", "neither compare nor a script"),
        ("cargo test -p stage1-cpasinc", "no stage1-cpasinc"),
    ] {
        let error = check(line, &stages).expect_err(line);
        assert!(error.contains(message), "{error}");
    }
}
