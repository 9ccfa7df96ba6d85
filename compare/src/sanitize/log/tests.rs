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

/// The verdict on a variant whose kernel is `own`, in a process that launched a kernel of each fault.
fn judged(text: &str, ended: Ended, without: Without, own: &str, launched: usize) -> GateResult {
    let log = parse(text);
    let symbol = |fault: &str| format!("stage0_planted_{fault}_f16_d64");
    let symbols = ["race", "store", "unset", "divergent", "trap", "innocent"].map(symbol);
    let failed = None;
    let run = Run {
        log: &log,
        ended,
        failed,
        limit: 120,
        without,
        symbols: &symbols,
    };
    run.judge(&[symbol(own)], launched, 4)
}

#[test]
fn real_findings_are_read_with_their_places() {
    let table = [
        (
            RACE,
            2,
            513,
            "Error: Potential RAW hazard detected at __shared__ 0x580",
            "stage0_planted_race_f16_d64+0x1e0 in bugs.cu:4",
        ),
        (
            OUT_OF_BOUNDS,
            2,
            121,
            "Invalid __global__ write of size 4 bytes",
            "stage0_planted_store_f16_d64+0x80 in bugs.cu:5",
        ),
        (
            UNSET,
            2,
            64,
            "Uninitialized __shared__ memory read",
            "stage0_planted_unset_f16_d64+0xd0 in bugs.cu:6",
        ),
        (
            DIVERGENT,
            2,
            16,
            "Barrier error detected. Divergent thread(s) in warp.",
            "stage0_planted_divergent_f16_d64+0x70 in bugs.cu:7",
        ),
        (
            TRAP,
            2,
            2,
            "Trace/breakpoint trap",
            "stage0_planted_trap_f16_d64+0x60 in bugs.cu:8",
        ),
    ];
    for (text, shown, counted, what, at) in table {
        let log = parse(text);
        assert_eq!(
            (log.findings.len(), log.counted),
            (shown, Some(counted)),
            "{what}"
        );
        assert!(
            log.findings[0].what.starts_with(what),
            "{:?}",
            log.findings[0]
        );
        assert_eq!(log.findings[0].at.as_deref(), Some(at));
        assert_eq!(log.refused, None);
    }
    for text in [CLEAN, CLEAN_RACE, CRASH] {
        assert_eq!(
            parse(text),
            Log {
                findings: vec![],
                counted: Some(0),
                refused: None
            }
        );
    }
    assert!(
        parse(UNKNOWN_OPTION)
            .refused
            .unwrap()
            .contains("--initcheck-address-space")
    );
    assert_eq!(
        total("RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)"),
        2,
        "warnings count"
    );
}

#[test]
fn planted_faults_fail_the_kernel_that_has_them_and_no_other() {
    for (text, own) in [
        (RACE, "race"),
        (OUT_OF_BOUNDS, "store"),
        (UNSET, "unset"),
        (DIVERGENT, "divergent"),
        (TRAP, "trap"),
    ] {
        let result = judged(text, exited(9), Without::NotTried, own, 4);
        assert_eq!(
            (result.gate, result.verdict),
            (GateId::C7, Verdict::Fail),
            "{own}: {}",
            result.reason
        );
        assert!(
            result
                .reason
                .contains(&format!("at stage0_planted_{own}_f16_d64+0x")),
            "{}",
            result.reason
        );
        // An API error names no kernel, so that it is everybody's.
        let innocent = judged(text, exited(9), Without::NotTried, "innocent", 4);
        assert_eq!(
            innocent.verdict == Verdict::Fail,
            own == "trap",
            "{own}: {}",
            innocent.reason
        );
    }
    let unshown = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 3 errors\n";
    assert_eq!(
        judged(unshown, exited(9), Without::NotTried, "innocent", 4).verdict,
        Verdict::Fail
    );
    let foreign = OUT_OF_BOUNDS.replace("stage0_planted_store", "memset");
    assert_eq!(
        judged(&foreign, exited(9), Without::NotTried, "innocent", 4).verdict,
        Verdict::Fail,
        "nobody else's"
    );
}

#[test]
fn where_the_tool_stopped_printing_the_others_are_not_clean() {
    let headline = OUT_OF_BOUNDS
        .lines()
        .find(|line| line.contains("Invalid"))
        .unwrap();
    let place = OUT_OF_BOUNDS
        .lines()
        .find(|line| line.contains("stage0_planted_store"))
        .unwrap();
    let findings = |count: usize| {
        let one = format!("{headline}\n{place}\n");
        format!(
            "{}========= ERROR SUMMARY: {count} errors\n",
            one.repeat(count)
        )
    };
    for (count, innocent) in [(PRINTED - 1, Verdict::Pass), (PRINTED, Verdict::NoData)] {
        let verdict =
            |own: &str| judged(&findings(count), exited(9), Without::NotTried, own, 4).verdict;
        assert_eq!(
            (verdict("store"), verdict("innocent")),
            (Verdict::Fail, innocent)
        );
    }
}

#[test]
fn how_the_process_ended_decides_where_nothing_is_found() {
    use Verdict::{Fail, NoData, Pass};
    let broken = "========= COMPUTE-SANITIZER\n";
    let fails = || Without::Fails("hangs there too".into());
    let table = [
        (
            CLEAN,
            exited(0),
            Without::NotTried,
            4,
            Pass,
            "no error, no warning in 4 of 4 launches",
        ),
        (CLEAN_RACE, exited(0), Without::NotTried, 4, Pass, "4 of 4"),
        (
            CLEAN,
            exited(0),
            Without::NotTried,
            3,
            Fail,
            "in 3 of 4 launches",
        ),
        (
            CRASH,
            exited(1),
            Without::Passes,
            2,
            Fail,
            "it passes without the tool",
        ),
        (
            CRASH,
            exited(1),
            fails(),
            2,
            Fail,
            "without the tool: hangs there too",
        ),
        (
            CRASH,
            exited(1),
            Without::Passes,
            4,
            NoData,
            "another launch ended the process",
        ),
        (
            broken,
            exited(11),
            Without::Passes,
            2,
            Fail,
            "without a summary; it passes without the tool",
        ),
        (
            broken,
            Ended::TimedOut,
            Without::Passes,
            2,
            NoData,
            "it did not finish within 120 s, after 2 of 4 launches",
        ),
        (broken, Ended::TimedOut, fails(), 2, Fail, "hangs there too"),
        (
            UNKNOWN_OPTION,
            exited(255),
            Without::NotTried,
            0,
            NoData,
            "unrecognised option",
        ),
        (
            "========= Error: Device not supported. Please refer to the documentation\n",
            exited(1),
            Without::NotTried,
            0,
            NoData,
            "not supported",
        ),
    ];
    for (text, ended, without, launched, verdict, part) in table {
        let result = judged(text, ended.clone(), without.clone(), "innocent", launched);
        assert_eq!(
            result.verdict, verdict,
            "{ended:?} {without:?}: {}",
            result.reason
        );
        assert!(
            result.reason.contains(part),
            "{ended:?} {without:?}: {}",
            result.reason
        );
    }
}

#[test]
fn a_launch_that_hangs_under_the_tool_alone_fails() {
    let log = parse("========= COMPUTE-SANITIZER\n");
    let symbols = ["k".to_string()];
    let failed = Some("the launch did not end within 60 s".to_string());
    let run = Run {
        log: &log,
        ended: Ended::TimedOut,
        failed,
        limit: 120,
        without: Without::Passes,
        symbols: &symbols,
    };
    let result = run.judge(&symbols, 1, 4);
    assert_eq!(result.verdict, Verdict::Fail, "{}", result.reason);
    assert!(
        result
            .reason
            .contains("did not end within 60 s; it passes without the tool"),
        "{}",
        result.reason
    );
}
