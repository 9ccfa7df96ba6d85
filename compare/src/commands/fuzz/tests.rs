use super::search::{End, Failure, Finding, Found};
use super::*;
use crate::commands::cli::{Cli, Command};
use clap::Parser;
use common::placement::Order;
use common::verdict::{GateId, GateResult};
use results::judge::verdict::Exit;
use std::cell::Cell;

const SWIZZLE: &str = "stage5-swizzle/swizzle-64x128-k2";
const FP8: &str = "stage10-fp8/fp8-scores-64x128";

/// Fails gate C2 where it is told to; takes E4M3 alone as stage 10 does.
struct Planted<F: Fn(&Trial) -> bool> {
    fails: F,
}

impl<F: Fn(&Trial) -> bool> Judge for Planted<F> {
    fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
        let judge = |trial: &Trial| {
            if *trial.subject.as_str() == *FP8 && trial.case.problem.dtype != Dtype::E4m3 {
                return Ok(Tried::Unsupported("not compiled for it".into()));
            }
            let gate = GateResult::judge(GateId::C2, !(self.fails)(trial), "max error 1");
            Ok(Tried::judged(vec![gate]))
        };
        trials.iter().map(judge).collect()
    }
}

/// A second passes with every question.
#[derive(Default)]
struct Ticking {
    seconds: Cell<u64>,
    interrupted_at: Option<u64>,
}

impl Clock for Ticking {
    fn elapsed(&self) -> Duration {
        self.seconds.set(self.seconds.get() + 1);
        Duration::from_secs(self.seconds.get())
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted_at
            .is_some_and(|at| self.seconds.get() >= at)
    }
}

fn search(cases: u64) -> Search {
    let contender = |subject: &str| Contender {
        subject: subject.into(),
        dtypes: Dtype::ALL.to_vec(),
    };
    Search {
        seed: 20_261_128,
        contenders: vec![contender(SWIZZLE), contender(FP8)],
        cases: Some(cases),
        seconds: None,
        in_flight: 1,
    }
}

fn found(search: &Search, judge: &dyn Judge) -> Found {
    search.run(judge, &Ticking::default(), &mut |_| ()).unwrap()
}

fn answer(search: &Search, judge: &dyn Judge) -> Answer {
    page::of_search(search, &found(search, judge), "emulated", "in the emulator")
}

/// Wrong for causal masks with more keys than queries where V is as PyTorch's transpose has it.
fn is_wrong(trial: &Trial) -> bool {
    let Case {
        problem,
        placements,
        ..
    } = trial.case;
    *trial.subject.as_str() == *SWIZZLE
        && problem.mask == common::problem::Mask::Causal
        && problem.shape.seq_kv > problem.shape.seq_q
        && placements[2].order == Order::Bshd
}

const SMALLEST: &str = "1x1x1:2x64 f16 causal normal:0 v=bshd";

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let passed = answer(&search(200), &Planted { fails: |_| false });
    assert_eq!(passed.exit, Exit::Pass);
    let says = "PASS: nothing was found: ";
    assert!(passed.text.contains(says), "{}", passed.text);
    assert!(passed.text.contains("seed 20261128"), "{}", passed.text);
}

#[test]
fn a_planted_fault_is_found_within_a_hundred_cases_and_shrunk() {
    let found = found(&search(200), &Planted { fails: is_wrong });
    let [finding] = &found.findings[..] else {
        panic!("{found:?}")
    };
    assert!(finding.index < 100, "{finding:?}");
    assert!(is_wrong(&finding.drawn) && finding.is_smallest);
    assert_eq!(finding.shrunk.to_string(), format!("{SWIZZLE} {SMALLEST}"));
    let tally = &found.tallies[0];
    assert!(
        tally.cases > 0 && tally.cases < 60,
        "not tried again: {tally:?}"
    );
    assert!(found.tallies[1].cases > 20 && found.tallies[1].unsupported > 40);
}

/// The words of a command as a shell splits it: single quotes, no escapes.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().map(String::from).collect(),
        _ => vec![part.to_string()],
    });
    words.collect()
}

#[test]
fn the_printed_command_runs_the_case_again() {
    let judge = Planted { fails: is_wrong };
    let failed = answer(&search(200), &judge);
    assert_eq!(failed.exit, Exit::Fail);
    let lines: Vec<&str> = failed.text.lines().map(str::trim).collect();
    let command = lines
        .iter()
        .find_map(|line| line.strip_prefix("cargo run -p compare -- "));
    let command = command.expect("a command on a line of its own");
    assert!(lines.contains(&"C2 FAIL: max error 1"), "{}", failed.text);
    assert!(!failed.text.contains("-- explain"), "it has no placements");
    let arguments = ["compare".to_string()].into_iter().chain(words(command));
    let Some(Command::Fuzz(again)) = Cli::parse_from(arguments).command else {
        panic!("{command}")
    };
    assert_eq!(again.backend, Backend::Emulated);
    let trial = again.case.unwrap();
    assert_eq!(trial.to_string(), format!("{SWIZZLE} {SMALLEST}"));
    let tried = judge.judge(std::slice::from_ref(&trial)).remove(0).unwrap();
    let one = page::of_trial(&trial, &tried);
    assert_eq!(one.exit, Exit::Fail);
    assert!(
        one.text.contains("C2 FAIL: max error 1\nFAIL"),
        "{}",
        one.text
    );
}

#[test]
fn a_plain_case_is_explained_by_a_command_that_is_one() {
    let fails = |trial: &Trial| trial.case.problem.shape.seq_q > 16;
    let failed = answer(&search(50), &Planted { fails });
    let command = failed.text.lines().find(|line| line.contains("-- explain"));
    let command = command
        .unwrap()
        .trim()
        .strip_prefix("cargo run -p compare -- ")
        .unwrap();
    let arguments = ["compare".to_string()].into_iter().chain(words(command));
    let parsed = Cli::try_parse_from(arguments).unwrap();
    assert!(
        matches!(parsed.command, Some(Command::Explain(_))),
        "{command}"
    );
}

#[test]
fn what_is_found_does_not_depend_on_how_many_run_at_once() {
    let judge = Planted { fails: is_wrong };
    let alone = found(&search(150), &judge);
    for in_flight in [2, 3, 16, 1_000] {
        let search = Search {
            in_flight,
            ..search(150)
        };
        let beside = found(&search, &judge);
        assert_eq!(beside.findings, alone.findings, "{in_flight}");
        assert_eq!(beside.tallies, alone.tallies, "{in_flight}");
    }
    let other = Search {
        seed: 7,
        ..search(150)
    };
    assert_ne!(found(&other, &judge).findings, alone.findings);
}

#[test]
fn another_seed_begins_with_another_variant() {
    let judge = Planted { fails: |_| false };
    let turns = |seed| {
        let search = Search { seed, ..search(1) };
        let tallies = found(&search, &judge).tallies;
        let turns = tallies.iter().map(|of| of.cases + of.unsupported);
        turns.collect::<Vec<_>>()
    };
    assert_eq!(turns(6), [1, 0]);
    assert_eq!(turns(7), [0, 1]);
}

#[test]
fn a_variant_without_a_case_is_named_and_is_no_data() {
    let mut unsupported = search(40);
    unsupported.contenders[1].dtypes = vec![Dtype::F16];
    let judge = Planted { fails: |_| false };
    let none = answer(&unsupported, &judge);
    assert_eq!(none.exit, Exit::Inconclusive);
    let says = format!("no case: {FP8}: Unsupported in 20 cases: not compiled for it");
    assert!(none.text.contains(&says), "{}", none.text);
    // It had no turn.
    let short = answer(&search(1), &judge);
    assert_eq!(short.exit, Exit::Inconclusive);
    assert!(
        short.text.contains("it had no turn; give more"),
        "{}",
        short.text
    );
    // What was found counts for more.
    let everything = Planted {
        fails: |trial: &Trial| *trial.subject.as_str() == *SWIZZLE,
    };
    let found = answer(&unsupported, &everything);
    assert_eq!(found.exit, Exit::Fail);
}

#[test]
fn the_search_ends_with_its_time() {
    let search = Search {
        cases: None,
        seconds: Some(30),
        ..search(0)
    };
    let clock = Ticking::default();
    let mut said = vec![];
    let judge = Planted { fails: |_| false };
    let found = search.run(&judge, &clock, &mut |line| said.push(line.to_string()));
    let cases = found.unwrap().cases();
    assert!((5..30).contains(&cases), "{cases}");
    assert!(said.len() >= 8 && said.len() <= 10, "{said:?}");
    assert!(said[1].contains("s to go"), "{said:?}");
}

#[test]
fn an_interrupted_search_prints_what_it_found() {
    let clock = |at| Ticking {
        interrupted_at: Some(at),
        ..Ticking::default()
    };
    let search = search(100_000);
    let everything = Planted {
        fails: |trial: &Trial| *trial.subject.as_str() == *SWIZZLE,
    };
    for (judge, word) in [
        (&everything as &dyn Judge, "FAIL: 1 variant fails"),
        (
            &Planted { fails: |_| false },
            "INTERRUPTED: nothing was found",
        ),
    ] {
        let found = search.run(judge, &clock(50), &mut |_| ()).unwrap();
        assert_eq!(found.end, End::Interrupted);
        let answer = page::of_search(&search, &found, "emulated", "in the emulator");
        assert_eq!(answer.exit, Exit::Interrupted);
        assert!(answer.text.contains(word), "{}", answer.text);
    }
    // While it shrinks.
    let found = search.run(&everything, &clock(0), &mut |_| ()).unwrap();
    assert!(found.findings.iter().all(|finding| !finding.is_smallest));
    let answer = page::of_search(&search, &found, "emulated", "in the emulator");
    assert!(
        answer.text.contains("shrinking ended early"),
        "{}",
        answer.text
    );
}

#[test]
fn a_lost_gpu_ends_the_search_with_what_lost_it() {
    struct Lost;
    impl Judge for Lost {
        fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
            let lost = |_: &Trial| Ok(Tried::without_output("an illegal address".into(), true));
            trials.iter().map(lost).collect()
        }
    }
    let search = search(100);
    let found = found(&search, &Lost);
    let [
        Finding {
            tries: 0,
            drawn,
            shrunk,
            ..
        },
    ] = &found.findings[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((found.end, drawn), (End::GpuLost, shrunk));
    let answer = page::of_search(&search, &found, "cuda", "on a GPU");
    assert_eq!(answer.exit, Exit::Fail);
    assert!(
        answer.text.contains("C1 FAIL: an illegal address"),
        "{}",
        answer.text
    );
    assert!(
        answer.text.contains("--backend cuda --case"),
        "{}",
        answer.text
    );
}

/// Shrinking keeps to the gate that failed: another fault is another finding.
#[test]
fn a_smaller_case_fails_the_same_gate() {
    struct Two;
    impl Judge for Two {
        fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
            let judge = |trial: &Trial| {
                let gate = match trial.case.problem.shape.seq_q {
                    ..=8 => GateId::C1,
                    _ => GateId::C3,
                };
                let gates = vec![GateResult::fail(gate, "wrong")];
                Ok(Tried::Failed(Failure {
                    gates,
                    is_gpu_lost: false,
                }))
            };
            trials.iter().map(judge).collect()
        }
    }
    let found = found(&search(2), &Two);
    for finding in &found.findings {
        let is_short = finding.drawn.case.problem.shape.seq_q <= 8;
        let expected = if is_short { 1 } else { 9 };
        assert_eq!(finding.shrunk.case.problem.shape.seq_q, expected);
    }
}

#[test]
fn a_case_names_its_variant_first() {
    let error = |text: &str| trial(text).unwrap_err().to_string();
    assert!(error("1x1x1x64 f16 full normal:0").contains("give STAGE/VARIANT before the case"));
    assert!(error(SWIZZLE).contains("is not a case"));
    assert!(error(&format!("{SWIZZLE} 1x1x1x64 f16 full")).contains("is not a case"));
    let text = format!("{SWIZZLE} 1x1x1x64 f16 full normal:0 q=bshd");
    assert_eq!(trial(&text).unwrap().to_string(), text);
}

#[test]
fn a_variant_that_failed_is_not_tried_again() {
    let asked = |cases| {
        let asked = Cell::new(0);
        let fails = |trial: &Trial| {
            let is_wrong = *trial.subject.as_str() == *SWIZZLE;
            asked.set(asked.get() + u64::from(is_wrong));
            is_wrong
        };
        found(&search(cases), &Planted { fails });
        asked.get()
    };
    assert_eq!(asked(200), asked(2));
}
