//! What the interpreter computes, compared bit for bit with what a card computes.
//!
//! Where there is a GPU, each experiment runs on it; elsewhere on what one computed, which
//! `outputs.txt` keeps. `UPDATE_CARD=1` writes that file on a GPU, and `UPDATE_CARD=folder` writes
//! it, all raw results and a list of differences to the folder. `CARD_RESULTS=folder` takes such
//! raw results for a GPU's.

mod examples;
mod experiment;
mod functions;
mod gpu;
mod interpreter;
mod operands;
mod record;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

use ptx::instructions::{OnACard, Seen, examples as rows, table};

use experiment::Experiment;
use record::{Record, Recorded};
use verdict::Verdict;

/// An experiment and what the interpreter makes of it.
struct Interpreted {
    experiment: Experiment,
    results: Vec<u64>,
}

static INTERPRETED: LazyLock<Vec<Interpreted>> = LazyLock::new(|| {
    let all = functions::experiments().into_iter();
    all.chain(examples::experiments())
        .map(|experiment| Interpreted {
            results: interpreter::run(&experiment),
            experiment,
        })
        .collect()
});

/// The crate's folder: cargo names it; elsewhere the current one is the repository's root.
fn crate_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| "common/ptx".into(), PathBuf::from)
}

fn data() -> PathBuf {
    crate_folder().join("tests/card/outputs.txt")
}

/// Returns what the committed data says of each experiment, in the order of all.
fn verdicts(record: &Record) -> Vec<Verdict> {
    INTERPRETED
        .iter()
        .map(|run| match record.of(&run.experiment) {
            Some(recorded) => verdict::of(&run.experiment, &run.results, recorded),
            None => Verdict::NotCompared,
        })
        .collect()
}

/// Joins the verdicts on each row.
fn on_a_card(record: &Record) -> OnACard {
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for (run, verdict) in INTERPRETED.iter().zip(verdicts(record)) {
        let Some(cell) = verdict.cell(&run.experiment) else {
            continue;
        };
        let is_equal = verdict == Verdict::Equal;
        let experiment = &run.experiment;
        let also = experiment.also.iter().map(|&row| row.to_owned());
        for row in also.chain([experiment.row.clone()]) {
            seen.entry(row)
                .and_modify(|known| {
                    known.cell = format!("{}; {cell}", known.cell);
                    known.is_equal &= is_equal;
                })
                .or_insert_with(|| Seen {
                    cell: cell.clone(),
                    is_equal,
                });
        }
    }
    OnACard {
        card: record.card.clone(),
        seen,
    }
}

/// Fails unless each experiment that a record has is equal or approximate.
fn assert_agreement(record: &Record) {
    let mut different = Vec::new();
    for (run, verdict) in INTERPRETED.iter().zip(verdicts(record)) {
        let experiment = &run.experiment;
        if !verdict.is_agreement() {
            different.push(format!(
                "{} {}: {verdict:?}",
                experiment.row, experiment.part
            ));
        }
    }
    assert!(
        different.is_empty(),
        "{} experiments are not as on the {}:\n{}",
        different.len(),
        record.card,
        different.join("\n")
    );
}

/// What a card computed.
struct CardRun {
    record: Record,
    raw: Vec<record::Raw>,
    /// How the interpreter's results differ, and what did not run.
    differences: String,
    failed: Vec<String>,
}

/// Runs all experiments on a card.
fn run_all(card: &mut dyn record::Card) -> CardRun {
    let mut all = CardRun {
        record: Record::new(card.name()),
        raw: Vec::new(),
        differences: String::new(),
        failed: Vec::new(),
    };
    for Interpreted {
        experiment,
        results,
    } in INTERPRETED.iter()
    {
        match card.run(experiment) {
            Ok(theirs) => {
                let recorded = Recorded::new(experiment, &theirs);
                all.record.add(experiment, recorded);
                all.differences += &verdict::differences(experiment, results, &theirs);
                all.raw.push(record::Raw {
                    experiment: experiment.digest(),
                    results: theirs,
                });
            }
            Err(error) => {
                let line = format!("{} {}: {error}\n", experiment.row, experiment.part);
                all.differences += &line;
                all.failed.push(line);
            }
        }
    }
    all
}

/// Runs all experiments on a card, writes what the environment asks for, and returns the record.
fn recorded_on(card: &mut dyn record::Card) -> Record {
    let run = run_all(card);
    match std::env::var("UPDATE_CARD") {
        Ok(folder) if folder != "1" => {
            record::write_all(
                &PathBuf::from(folder),
                &run.record,
                &run.raw,
                &run.differences,
            );
        }
        Ok(_) => std::fs::write(data(), run.record.to_string()).unwrap(),
        Err(_) => {}
    }
    print!("{}", run.differences);
    assert!(run.failed.is_empty(), "{}", run.failed.concat());
    run.record
}

/// Returns one module with every experiment's entry.
fn all_texts() -> String {
    let mut text = String::new();
    for (index, run) in INTERPRETED.iter().enumerate() {
        let entry = format!(".visible .entry experiment{index}(");
        let own = run
            .experiment
            .text
            .replace(".visible .entry experiment(", &entry);
        let body = own.find(".visible").expect("an entry");
        text += if index == 0 { &own } else { &own[body..] };
    }
    text
}

#[test]
fn every_experiment_is_of_a_row_of_the_page() {
    let names = ptx::instructions::functions()
        .into_iter()
        .map(|function| function.name);
    let known: BTreeSet<&str> = rows().chain(names).collect();
    for run in INTERPRETED.iter() {
        let experiment = &run.experiment;
        for row in experiment.also.iter().chain([&experiment.row.as_str()]) {
            assert!(known.contains(row), "{row}");
        }
    }
}

#[test]
fn every_kernel_is_assembled_for_sm_90a() {
    let root = crate_folder().join("../..");
    let ptxas = root.join(".cuda/nvidia/cu13/bin/ptxas");
    if !ptxas.exists() {
        assert!(
            std::env::var_os("CI").is_none(),
            "there is no ptxas: run scripts/cuda-toolkit"
        );
        gpu::say("no ptxas: no kernel of the card's was assembled");
        return;
    }
    let folder = std::env::temp_dir().join(format!("ptx-card-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("all.ptx");
    std::fs::write(&path, all_texts()).unwrap();
    let ran = std::process::Command::new(ptxas)
        .args(["-arch=sm_90a", "-O0", "-o", "/dev/null"])
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {said}", path.display());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_interpreter_computes_what_the_card_did() {
    let record = match gpu::card() {
        Some(mut card) => recorded_on(card.as_mut()),
        None => {
            assert!(
                std::env::var_os("UPDATE_CARD").is_none(),
                "UPDATE_CARD is set, and there is no GPU of compute capability 9.0"
            );
            let record = Record::read(&data());
            if record.is_empty() {
                gpu::say("no GPU, and no card's results are kept: nothing was compared");
            }
            record
        }
    };
    assert_agreement(&record);
}

#[test]
fn the_page_is_what_the_code_and_the_card_have() {
    let path = crate_folder().join("INSTRUCTIONS.md");
    let page = table(&on_a_card(&Record::read(&data())));
    if std::env::var_os("UPDATE_INSTRUCTIONS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "INSTRUCTIONS.md is not what the code and the card have; write it by \
         UPDATE_INSTRUCTIONS=1 cargo test -p ptx"
    );
}

#[test]
fn the_readme_counts_what_the_page_does() {
    let path = crate_folder().join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let words: Vec<&str> = readme.split_whitespace().collect();
    let summary = on_a_card(&Record::read(&data())).summary();
    assert!(
        words.join(" ").contains(&summary),
        "README.md does not have the sentences: {summary}"
    );
}

/// Rows whose result is the same whatever the operands are.
const CONSTANT: [&str; 2] = ["ld.param.u64 %rd1, [argument]", "elect.sync _|%p1, -1"];

#[test]
fn every_other_experiment_has_results_that_differ() {
    for run in INTERPRETED.iter() {
        let Experiment { row, part, .. } = &run.experiment;
        let sets = run.results.chunks(run.experiment.results.len());
        let different = sets.collect::<BTreeSet<_>>().len();
        assert!(
            different > 1 || CONSTANT.contains(&row.as_str()),
            "{row} {part}"
        );
    }
}

/// A card that computes what the interpreter does.
struct Twin;

impl record::Card for Twin {
    fn name(&self) -> String {
        "Twin, driver 1".to_owned()
    }

    fn run(&mut self, experiment: &Experiment) -> Result<Vec<u64>, String> {
        let mut all = INTERPRETED.iter();
        let known = all.find(|run| {
            run.experiment.row == experiment.row && run.experiment.part == experiment.part
        });
        Ok(known.expect("an experiment").results.clone())
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let folder = std::env::temp_dir().join(format!("ptx-record-{}", std::process::id()));
    let run = run_all(&mut Twin);
    assert_eq!(run.differences, "");
    record::write_all(&folder, &run.record, &run.raw, &run.differences);
    let read = Record::read(&folder.join("outputs.txt"));
    let replayed = run_all(&mut record::Replay::open(&folder));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(read.to_string(), run.record.to_string());
    assert_eq!(replayed.record.to_string(), read.to_string());
    assert!(verdicts(&read).iter().all(|one| *one == Verdict::Equal));
}

#[test]
fn the_page_counts_what_was_compared() {
    let mut record = run_all(&mut Twin).record;
    let page = table(&on_a_card(&record));
    let all_equal = "instructions (Twin, driver 1). Of these, ";
    assert!(page.contains(all_equal), "{page}");
    assert!(page.contains("| `add.f32` | exact | equal, 2,048 operand sets |"));
    assert!(page.contains("| `trap` | control flow | specification |"));
    let known = on_a_card(&record);
    let sum = INTERPRETED
        .iter()
        .find(|run| run.experiment.row == "add.u32");
    let Interpreted {
        experiment,
        results,
    } = sum.expect("a sum");
    let mut theirs = results.clone();
    theirs[0] ^= 1;
    record.add(experiment, Recorded::new(experiment, &theirs));
    let one_less = on_a_card(&record);
    assert_eq!(known.seen.len(), one_less.seen.len());
    assert!(known.seen["add.u32"].is_equal && !one_less.seen["add.u32"].is_equal);
    assert!(one_less.seen["add.u32"].cell.starts_with("differs"));
}
