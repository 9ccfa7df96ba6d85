use super::*;
use common::verdict::Verdict;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

// What 2026.4 (and 2025.3, for the option that it does not know) printed of planted faults on an
// H200, shortened.
const CLEAN: &str = include_str!("samples/clean.txt");
const CLEAN_RACE: &str = include_str!("samples/clean-race.txt");
const RACE: &str = include_str!("samples/race.txt");
const OUT_OF_BOUNDS: &str = include_str!("samples/out-of-bounds.txt");
const UNSET: &str = include_str!("samples/unset.txt");
const DIVERGENT: &str = include_str!("samples/divergent.txt");
const TRAP: &str = include_str!("samples/trap.txt");
const CRASH: &str = include_str!("samples/crash.txt");
const UNKNOWN_OPTION: &str = include_str!("samples/unknown-option.txt");

fn exited(code: i32) -> Ended {
    Ended::Exited(ExitStatus::from_raw(code << 8))
}

fn judged(text: &str, ended: Ended, launched: usize) -> GateResult {
    judge(&Log::parse(text), &ended, None, launched)
}

fn judge(log: &Log, ended: &Ended, failure: Option<String>, launched: usize) -> GateResult {
    log.judge(&Process {
        ended,
        failure,
        timeout: 120,
        launched,
        planned: 4,
    })
}

#[test]
fn real_findings_fail_and_are_read_with_their_places() {
    let mut lines = Vec::new();
    for text in [RACE, OUT_OF_BOUNDS, UNSET, DIVERGENT, TRAP] {
        let log = Log::parse(text);
        assert_eq!(log.findings.len(), 2);
        assert_eq!(log.refused, None);
        let result = judged(text, exited(9), 4);
        assert_eq!(result.gate, GateId::C7);
        assert_eq!(result.verdict, Verdict::Fail);
        lines.push(format!("{}: {}", log.counted.unwrap(), result.reason));
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    513: 2 shown, first: Error: Potential RAW hazard detected at __shared__ 0x580 in block (0,0,0) : at stage0_planted_race_f16_d64+0x1e0 in bugs.cu:4
    121: 2 shown, first: Invalid __global__ write of size 4 bytes at stage0_planted_store_f16_d64+0x80 in bugs.cu:5
    64: 2 shown, first: Uninitialized __shared__ memory read of size 4 bytes at stage0_planted_unset_f16_d64+0xd0 in bugs.cu:6
    16: 2 shown, first: Barrier error detected. Divergent thread(s) in warp. at stage0_planted_divergent_f16_d64+0x70 in bugs.cu:7
    2: 2 shown, first: Trace/breakpoint trap at stage0_planted_trap_f16_d64+0x60 in bugs.cu:8
    ");
    for text in [CLEAN, CLEAN_RACE, CRASH] {
        let log = Log {
            counted: Some(0),
            ..Log::default()
        };
        assert_eq!(Log::parse(text), log);
    }
    assert_eq!(
        total("RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)"),
        2,
        "warnings count"
    );
}

#[test]
fn how_the_process_ended_decides_where_nothing_is_found() {
    let broken = "========= COMPUTE-SANITIZER\n";
    let unshown = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 3 errors\n";
    let unsupported = "========= Error: Device not supported. Please refer to the documentation\n";
    let ends = [
        (CLEAN, exited(0), 4),
        (CLEAN_RACE, exited(0), 4),
        (CLEAN, exited(0), 3),
        (unshown, exited(9), 4),
        (CRASH, exited(1), 4),
        (broken, exited(11), 2),
        (broken, Ended::TimedOut, 2),
        (UNKNOWN_OPTION, exited(255), 0),
        (unsupported, exited(1), 0),
    ];
    let results = ends.map(|(text, ended, launched)| {
        let result = judged(text, ended, launched);
        format!("{}: {}", result.verdict, result.reason)
    });
    insta::assert_snapshot!(results.join("\n"), @r"
    PASS: no error, no warning in 4 of 4 launches
    PASS: no error, no warning in 4 of 4 launches
    FAIL: no error, no warning in 3 of 4 launches
    FAIL: 3 errors and warnings, none of them shown
    FAIL: it ended with exit status: 1
    FAIL: it ended with exit status: 11, without a summary
    NO DATA: it did not finish within 120 s, after 2 of 4 launches
    NO DATA: this version does not know an option: unrecognised option '--initcheck-address-space'
    NO DATA: Error: Device not supported. Please refer to the documentation
    ");
}

#[test]
fn a_launch_that_fails_or_hangs_by_the_programs_own_account_fails() {
    let failed = Some("the launch did not end within 60 s".to_string());
    for ended in [Ended::TimedOut, exited(1)] {
        let log = Log::parse("========= COMPUTE-SANITIZER\n");
        let result = judge(&log, &ended, failed.clone(), 1);
        assert_eq!(
            (result.verdict, &result.reason),
            (Verdict::Fail, failed.as_ref().unwrap())
        );
    }
}
