//! The commands of docs/recipes.md and of the pages that newcomers read: parsed, and their names looked up.

use crate::cli::Cli;
use crate::measure::select::{self, Chosen};
use crate::stages;
use crate::table::StageMeta;
use clap::Parser;
use std::path::{Path, PathBuf};

const COMPARE: &str = "cargo run -p compare";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The words of a command line as a shell splits it, as far as the page goes: double quotes, no escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    for (index, part) in line.split('"').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.to_string()),
        }
    }
    words
}

/// Programs that are not of this repository: of their arguments only the stages are looked up.
const OTHERS: [&str; 4] = ["cargo", "cuobjdump", "gh", "git"];

/// The lines of the blocks without a language, without comments.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```").skip(1).step_by(2);
    let blocks = blocks.filter(|block| block.starts_with('\n'));
    let lines = blocks.flat_map(str::lines).map(|line| {
        let command = line.split(" # ").next().unwrap_or_default();
        command.trim_end()
    });
    lines.filter(|line| !line.is_empty()).collect()
}

/// What is wrong with a command of the page.
fn check(line: &str, stages: &[StageMeta]) -> Result<(), String> {
    let program = line.split_whitespace().next().unwrap_or_default();
    if OTHERS.contains(&program) && !line.starts_with(COMPARE) {
        let is_stage = |word: &&str| {
            let id = word.trim_end_matches("-*");
            !id.starts_with("stage") || stages.iter().any(|stage| stage.id == id)
        };
        return match line.split([' ', '/']).find(|word| !is_stage(word)) {
            Some(word) => Err(format!("{line}: there is no {word}")),
            None => Ok(()),
        };
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

/// What a query is made of besides columns, the names that it gives, and text in single quotes.
const SQL: &str = "AND AS BY DISTINCT FILTER FROM GROUP IS NOT NULL ORDER SELECT WHERE bar count max min read_json t true union_by_name";

/// Its columns are those of the committed table.
fn check_query(query: &str) -> Result<(), String> {
    let query = query
        .strip_prefix('"')
        .and_then(|query| query.strip_suffix('"'));
    let query = query.ok_or("a query stands between double quotes")?;
    let parts: Vec<&str> = query.split('\'').collect();
    if parts.len().is_multiple_of(2) {
        return Err("a single quote is not closed".into());
    }
    let words = parts.into_iter().step_by(2).flat_map(|part| {
        part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
    });
    let words: Vec<&str> = words.collect();
    let given = words
        .windows(2)
        .filter(|pair| pair[0] == "AS")
        .map(|pair| pair[1]);
    let given: Vec<&str> = given.collect();
    let table = root().join("results/nvidia-h200/rows.jsonl");
    let rows = std::fs::read_to_string(table).map_err(|error| error.to_string())?;
    let is_known = |word: &&str| {
        SQL.split(' ').any(|view| view == *word)
            || given.contains(word)
            || rows.contains(&format!("\"{word}\":"))
    };
    match words.iter().find(|word| !is_known(word)) {
        Some(word) => Err(format!("the table has no column {word}")),
        None => Ok(()),
    }
}

/// A script says in its own text which flags it has.
fn check_script(words: &[String]) -> Result<(), String> {
    let script = words.first().filter(|word| {
        ["scripts/", ".ci/", "examples/", "attention-ladder/python/"]
            .iter()
            .any(|folder| word.starts_with(folder))
    });
    let script = script.ok_or("neither compare nor a script of the repository")?;
    let text = std::fs::read_to_string(root().join(script)).map_err(|error| error.to_string())?;
    match words.iter().find(|word| {
        let has = |flag: String| text.contains(&flag);
        word.starts_with("--") && !has(format!("  {word} ")) && !has(format!("\"{word}\""))
    }) {
        Some(flag) => Err(format!("{script} has no {flag}")),
        None => Ok(()),
    }
}

fn ladder() -> Vec<StageMeta> {
    stages::builds().unwrap()
}

/// The stages with those that a page has `scripts/new-stage` make.
fn with_made(commands: &[&str], stages: &[StageMeta]) -> Vec<StageMeta> {
    let made = commands.iter().filter_map(|line| {
        let mut words = line.strip_prefix("scripts/new-stage ")?.split(' ');
        let (name, from) = (words.next()?, words.next()?);
        let from = stages.iter().find(|stage| stage.id == from)?;
        Some(StageMeta {
            id: name.to_string(),
            ..from.clone()
        })
    });
    stages.iter().cloned().chain(made).collect()
}

#[test]
fn every_recipe_is_a_command_with_its_exit_codes() {
    let stages = ladder();
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
        commands.iter().for_each(|line| {
            check(line, &stages).unwrap_or_else(|error| panic!("{title}: {error}"))
        });
    }
}

#[test]
fn pages_for_newcomers_give_commands_that_exist() {
    let stages = ladder();
    for page in ["README.md", "CONTRIBUTING.md", "docs/ladder.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let commands = commands(&text);
        assert!(!commands.is_empty(), "{page}: no command");
        let stages = with_made(&commands, &stages);
        for line in commands {
            check(line, &stages).unwrap_or_else(|error| panic!("{page}: {error}"));
        }
    }
}

#[test]
fn what_is_no_command_is_noticed() {
    let stages = ladder();
    for (line, says) in [
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
        assert!(error.contains(says), "{error}");
    }
}
