use super::*;
use common::verdict::Verdict;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

// What 2026.4 (and 2025.3, for the option that it does not know) printed of planted faults on an H200, shortened.
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
    Log::parse(text).judge(&ended, None, 120, [launched, 4])
}

#[test]
fn real_findings_fail_and_are_read_with_their_places() {
    let table = [
        (
            RACE,
            513,
            "Error: Potential RAW hazard detected at __shared__ 0x580 in block (0,0,0) : at \
             stage0_planted_race_f16_d64+0x1e0 in bugs.cu:4",
        ),
        (
            OUT_OF_BOUNDS,
            121,
            "Invalid __global__ write of size 4 bytes at stage0_planted_store_f16_d64+0x80 in bugs.cu:5",
        ),
        (
            UNSET,
            64,
            "Uninitialized __shared__ memory read of size 4 bytes at stage0_planted_unset_f16_d64+0xd0 in bugs.cu:6",
        ),
        (
            DIVERGENT,
            16,
            "Barrier error detected. Divergent thread(s) in warp. at stage0_planted_divergent_f16_d64+0x70 in bugs.cu:7",
        ),
        (
            TRAP,
            2,
            "Trace/breakpoint trap at stage0_planted_trap_f16_d64+0x60 in bugs.cu:8",
        ),
    ];
    for (text, counted, first) in table {
        let log = Log::parse(text);
        assert_eq!(
            (log.findings.len(), log.counted, &log.refused),
            (2, Some(counted), &None),
            "{first}"
        );
        let result = judged(text, exited(9), 4);
        assert_eq!((result.gate, result.verdict), (GateId::C7, Verdict::Fail));
        assert_eq!(result.reason, format!("2 shown, first: {first}"));
    }
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
    use Verdict::{Fail, NoData, Pass};
    let broken = "========= COMPUTE-SANITIZER\n";
    let unshown = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 3 errors\n";
    let unsupported = "========= Error: Device not supported. Please refer to the documentation\n";
    let table = [
        (
            CLEAN,
            exited(0),
            4,
            Pass,
            "no error, no warning in 4 of 4 launches",
        ),
        (CLEAN_RACE, exited(0), 4, Pass, "4 of 4"),
        (CLEAN, exited(0), 3, Fail, "in 3 of 4 launches"),
        (
            unshown,
            exited(9),
            4,
            Fail,
            "3 errors and warnings, none of them shown",
        ),
        (CRASH, exited(1), 4, Fail, "it ended with exit status: 1"),
        (broken, exited(11), 2, Fail, "without a summary"),
        (
            broken,
            Ended::TimedOut,
            2,
            NoData,
            "it did not finish within 120 s, after 2 of 4 launches",
        ),
        (
            UNKNOWN_OPTION,
            exited(255),
            0,
            NoData,
            "unrecognised option '--initcheck-address-space'",
        ),
        (unsupported, exited(1), 0, NoData, "not supported"),
    ];
    for (text, ended, launched, verdict, part) in table {
        let result = judged(text, ended.clone(), launched);
        assert_eq!(result.verdict, verdict, "{ended:?}: {}", result.reason);
        assert!(result.reason.contains(part), "{ended:?}: {}", result.reason);
    }
}

#[test]
fn a_launch_that_fails_or_hangs_by_the_programs_own_account_fails() {
    let failed = Some("the launch did not end within 60 s".to_string());
    for ended in [Ended::TimedOut, exited(1)] {
        let log = Log::parse("========= COMPUTE-SANITIZER\n");
        let result = log.judge(&ended, failed.clone(), 120, [1, 4]);
        assert_eq!(
            (result.verdict, &result.reason),
            (Verdict::Fail, failed.as_ref().unwrap())
        );
    }
}
