use super::search::{End, Failure, Finding, Found, Instruments, Reporter};
use super::*;
use crate::commands::cli::{Cli, Command};
use clap::Parser;
use common::placement::Order;
use common::verdict::{GateId, GateResult};
use results::judge::verdict::Exit;
use std::cell::{Cell, RefCell};

const SWIZZLE: &str = "stage5-swizzle/swizzle-64x128-k2";
const FP8: &str = "stage10-fp8/fp8-scores-64x128";

/// A judge whose gate C2 fails where it is planted; takes E4M3 alone as stage 10 does.
struct Planted<F: Fn(&Trial) -> bool> {
    fails: F,
}

impl<F: Fn(&Trial) -> bool> Planted<F> {
    fn judge_one(&self, trial: &Trial) -> Tried {
        if *trial.subject.as_str() == *FP8 && trial.case.problem.dtype != Dtype::E4m3 {
            return Tried::Unsupported("not compiled for it".into());
        }
        let is_right = !(self.fails)(trial);
        Tried::judged(vec![GateResult::judge(GateId::C2, is_right, "max error 1")])
    }
}

impl<F: Fn(&Trial) -> bool> Judge for Planted<F> {
    fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
        trials
            .iter()
            .map(|trial| Ok(self.judge_one(trial)))
            .collect()
    }
}

/// Returns the judge that finds nothing wrong.
fn correct() -> impl Judge {
    Planted {
        fails: |_: &Trial| false,
    }
}

/// Returns the judge that finds every case of one variant wrong.
fn wrong_swizzle() -> impl Judge {
    Planted { fails: is_swizzle }
}

fn is_swizzle(trial: &Trial) -> bool {
    *trial.subject.as_str() == *SWIZZLE
}

/// The lines that a search reports.
#[derive(Default)]
struct Lines(RefCell<Vec<String>>);

impl Reporter for Lines {
    fn report(&self, line: &str) {
        self.0.borrow_mut().push(line.to_string());
    }
}

/// A clock on which a second passes with every question.
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

impl Ticking {
    fn interrupted_at(second: u64) -> Self {
        Self {
            interrupted_at: Some(second),
            ..Self::default()
        }
    }
}

fn contender(subject: &str) -> Contender {
    Contender {
        subject: subject.into(),
        dtypes: Dtype::ALL.to_vec(),
        serves: false,
        cache: None,
    }
}

fn search(cases: u64) -> Search {
    Search {
        seed: 20_261_128,
        contenders: vec![contender(SWIZZLE), contender(FP8)],
        cases: Some(cases),
        seconds: None,
        in_flight: 1,
    }
}

/// Runs a search on a clock, and reports to nobody.
fn run_on(clock: &Ticking, search: &Search, judge: &dyn Judge) -> Found {
    let instruments = Instruments {
        judge,
        clock,
        reporter: &Lines::default(),
    };
    search.run(instruments).unwrap()
}

fn run_search(search: &Search, judge: &dyn Judge) -> Found {
    run_on(&Ticking::default(), search, judge)
}

/// Returns what `compare fuzz` prints in the emulator.
fn emulated_page(search: &Search, found: &Found) -> Answer {
    page::of_search(search, found, "emulated", "in the emulator")
}

fn answer(search: &Search, judge: &dyn Judge) -> Answer {
    emulated_page(search, &run_search(search, judge))
}

/// Whether the planted kernel is wrong: for causal masks with more keys than queries where V is as
/// PyTorch's transpose has it.
fn is_wrong(trial: &Trial) -> bool {
    let Case {
        problem,
        placements,
        ..
    } = trial.case;
    is_swizzle(trial)
        && problem.mask == common::problem::Mask::Causal
        && problem.shape.seq_kv > problem.shape.seq_q
        && placements[2].order == Order::Bshd
}

const SMALLEST: &str = "1x1x1:2x64 f16 causal normal:0 v=bshd";

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let passed = answer(&search(200), &correct());
    assert_eq!(passed.exit, Exit::Pass);
    let verdict = "PASS: nothing was found: ";
    assert!(passed.text.contains(verdict), "{}", passed.text);
    assert!(passed.text.contains("seed 20261128"), "{}", passed.text);
}

#[test]
fn a_planted_fault_is_found_within_a_hundred_cases_and_shrunk() {
    let result = run_search(&search(200), &Planted { fails: is_wrong });
    let [finding] = &result.findings[..] else {
        panic!("{result:?}")
    };
    assert!(finding.index < 100, "{finding:?}");
    assert!(is_wrong(&finding.drawn) && finding.is_smallest);
    assert_eq!(finding.shrunk.to_string(), format!("{SWIZZLE} {SMALLEST}"));
    let tally = &result.tallies[0];
    assert!(
        tally.cases > 0 && tally.cases < 60,
        "not tried again: {tally:?}"
    );
    assert!(result.tallies[1].cases > 20 && result.tallies[1].unsupported > 40);
}

/// Returns the arguments of the printed command on the line that contains `mark`.
fn printed_command<'a>(page: &'a str, mark: &str) -> &'a str {
    let line = page.lines().find(|line| line.contains(mark)).unwrap();
    line.trim()
        .strip_prefix("cargo run -p compare -- ")
        .expect("a command on a line of its own")
}

/// Parses a printed command as a shell and the program do.
fn parse_command(arguments: &str) -> Command {
    let mut words = vec!["compare"];
    for (index, part) in arguments.split('\'').enumerate() {
        let is_quoted = index % 2 == 1;
        if is_quoted {
            words.push(part);
        } else {
            words.extend(part.split_whitespace());
        }
    }
    Cli::try_parse_from(words).unwrap().command.unwrap()
}

#[test]
fn the_printed_command_runs_the_case_again() {
    let judge = Planted { fails: is_wrong };
    let failed = answer(&search(200), &judge);
    assert_eq!(failed.exit, Exit::Fail);
    let has_line = |wanted: &str| failed.text.lines().any(|line| line.trim() == wanted);
    assert!(has_line("C2 FAIL: max error 1"), "{}", failed.text);
    assert!(!failed.text.contains("-- explain"), "it has no placements");
    let command = printed_command(&failed.text, "cargo run -p compare -- ");
    let Command::Fuzz(again) = parse_command(command) else {
        panic!("{command}")
    };
    assert_eq!(again.backend, Backend::Emulated);
    let trial = again.case.unwrap();
    assert_eq!(trial.to_string(), format!("{SWIZZLE} {SMALLEST}"));
    let tried = judge.judge(std::slice::from_ref(&trial)).remove(0).unwrap();
    let page = page::of_trial(&trial, &tried);
    assert_eq!(page.exit, Exit::Fail);
    assert!(
        page.text.contains("C2 FAIL: max error 1\nFAIL"),
        "{}",
        page.text
    );
}

#[test]
fn a_plain_case_is_explained_by_a_command_that_is_one() {
    let fails = |trial: &Trial| trial.case.problem.shape.seq_q > 16;
    let failed = answer(&search(50), &Planted { fails });
    let command = printed_command(&failed.text, "-- explain");
    assert!(
        matches!(parse_command(command), Command::Explain(_)),
        "{command}"
    );
}

#[test]
fn a_case_is_explained_at_its_scale() {
    let fails = |trial: &Trial| !trial.case.problem.has_default_scale();
    let failed = answer(&search(50), &Planted { fails });
    let Command::Explain(explain) = parse_command(printed_command(&failed.text, "-- explain"))
    else {
        panic!("{}", failed.text)
    };
    assert!(!explain.problem.unwrap().problem.has_default_scale());
}

#[test]
fn what_is_found_does_not_depend_on_how_many_run_at_once() {
    let judge = Planted { fails: is_wrong };
    let alone = run_search(&search(150), &judge);
    for in_flight in [2, 3, 16, 1_000] {
        let parallel = Search {
            in_flight,
            ..search(150)
        };
        let beside = run_search(&parallel, &judge);
        assert_eq!(beside.findings, alone.findings, "{in_flight}");
        assert_eq!(beside.tallies, alone.tallies, "{in_flight}");
    }
    let other = Search {
        seed: 7,
        ..search(150)
    };
    assert_ne!(run_search(&other, &judge).findings, alone.findings);
}

#[test]
fn another_seed_begins_with_another_variant() {
    assert_eq!(first_turn(6), [1, 0]);
    assert_eq!(first_turn(7), [0, 1]);
}

/// Returns how many cases each variant gets of a search for one case.
fn first_turn(seed: u64) -> Vec<usize> {
    let one_case = Search { seed, ..search(1) };
    let mut turns = Vec::new();
    for tally in run_search(&one_case, &correct()).tallies {
        turns.push(tally.cases + tally.unsupported);
    }
    turns
}

#[test]
fn a_variant_without_a_case_is_named_and_is_no_data() {
    let mut unsupported = search(40);
    unsupported.contenders[1].dtypes = vec![Dtype::F16];
    let without_case = answer(&unsupported, &correct());
    assert_eq!(without_case.exit, Exit::Inconclusive);
    let reason = format!("no case: {FP8}: Unsupported in 20 cases: not compiled for it");
    assert!(without_case.text.contains(&reason), "{}", without_case.text);
    // It had no turn.
    let short = answer(&search(1), &correct());
    assert_eq!(short.exit, Exit::Inconclusive);
    assert!(
        short.text.contains("it had no turn; give more"),
        "{}",
        short.text
    );
    // What was found counts for more.
    assert_eq!(answer(&unsupported, &wrong_swizzle()).exit, Exit::Fail);
}

#[test]
fn the_search_ends_with_its_time() {
    let half_a_minute = Search {
        cases: None,
        seconds: Some(30),
        ..search(0)
    };
    let reported = Lines::default();
    let result = half_a_minute.run(Instruments {
        judge: &correct(),
        clock: &Ticking::default(),
        reporter: &reported,
    });
    let cases = result.unwrap().cases();
    assert!((5..30).contains(&cases), "{cases}");
    let lines = reported.0.into_inner();
    assert!(lines.len() >= 8 && lines.len() <= 10, "{lines:?}");
    assert!(lines[1].contains("s to go"), "{lines:?}");
}

/// Checks what a search prints that is interrupted after 50 seconds.
#[track_caller]
fn assert_interrupted(judge: &dyn Judge, verdict: &str) {
    let long = search(100_000);
    let result = run_on(&Ticking::interrupted_at(50), &long, judge);
    assert_eq!(result.end, End::Interrupted);
    let page = emulated_page(&long, &result);
    assert_eq!(page.exit, Exit::Interrupted);
    assert!(page.text.contains(verdict), "{}", page.text);
}

#[test]
fn an_interrupted_search_prints_what_it_found() {
    assert_interrupted(&wrong_swizzle(), "FAIL: 1 variant fails");
}

#[test]
fn an_interrupted_search_that_found_nothing_is_no_pass() {
    assert_interrupted(&correct(), "INTERRUPTED: nothing was found");
}

#[test]
fn a_search_that_is_interrupted_while_it_shrinks_prints_the_case_as_it_is() {
    let long = search(100_000);
    let result = run_on(&Ticking::interrupted_at(0), &long, &wrong_swizzle());
    assert!(result.findings.iter().all(|finding| !finding.is_smallest));
    let page = emulated_page(&long, &result);
    assert!(page.text.contains("shrinking ended early"), "{}", page.text);
}

#[test]
fn a_lost_gpu_ends_the_search_with_what_lost_it() {
    struct Lost;
    impl Judge for Lost {
        fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
            let lost = Tried::without_output("an illegal address".into(), true);
            trials.iter().map(|_| Ok(lost.clone())).collect()
        }
    }
    let hundred = search(100);
    let result = run_search(&hundred, &Lost);
    let [
        Finding {
            tries: 0,
            drawn,
            shrunk,
            ..
        },
    ] = &result.findings[..]
    else {
        panic!("{result:?}")
    };
    assert_eq!((result.end, drawn), (End::GpuLost, shrunk));
    let answer = page::of_search(&hundred, &result, "cuda", "on a GPU");
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
    struct TwoFaults;
    impl Judge for TwoFaults {
        fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
            let mut outcomes = Vec::new();
            for trial in trials {
                let gate = match trial.case.problem.shape.seq_q {
                    ..=8 => GateId::C1,
                    _ => GateId::C3,
                };
                outcomes.push(Ok(Tried::Failed(Failure {
                    gates: vec![GateResult::fail(gate, "wrong")],
                    is_gpu_lost: false,
                })));
            }
            outcomes
        }
    }
    let result = run_search(&search(2), &TwoFaults);
    for finding in &result.findings {
        let is_short = finding.drawn.case.problem.shape.seq_q <= 8;
        let expected = if is_short { 1 } else { 9 };
        assert_eq!(finding.shrunk.case.problem.shape.seq_q, expected);
    }
}

fn refused_case(text: &str) -> String {
    trial(text).unwrap_err().to_string()
}

#[test]
fn a_case_names_its_variant_first() {
    let unnamed = refused_case("1x1x1x64 f16 full normal:0");
    assert!(unnamed.contains("give STAGE/VARIANT before the case"));
    assert!(refused_case(SWIZZLE).contains("is not a case"));
    let without_inputs = format!("{SWIZZLE} 1x1x1x64 f16 full");
    assert!(refused_case(&without_inputs).contains("is not a case"));
    let text = format!("{SWIZZLE} 1x1x1x64 f16 full normal:0 q=bshd");
    assert_eq!(trial(&text).unwrap().to_string(), text);
}

/// Returns how often a variant that always fails is judged in a search for so many cases.
fn times_judged(cases: u64) -> u64 {
    let judged = Cell::new(0);
    let fails = |trial: &Trial| {
        judged.set(judged.get() + u64::from(is_swizzle(trial)));
        is_swizzle(trial)
    };
    run_search(&search(cases), &Planted { fails });
    judged.get()
}

#[test]
fn a_variant_that_failed_is_not_tried_again() {
    assert_eq!(times_judged(200), times_judged(2));
}
