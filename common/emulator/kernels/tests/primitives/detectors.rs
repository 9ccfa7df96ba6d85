//! Runs the table of `DETECTORS.md`: what each detector catches, and a near miss that it must not
//! flag.

use std::collections::BTreeSet;

use crate::launch::{SCHEDULES, assert_clean, faults, hazards, hazards_of, launch};

struct Detector {
    /// The hazard that the traced build reports under some schedule.
    kind: &'static str,
    /// The fault that stops the plain build under some schedule, where it sees it, too.
    fault: Option<&'static str>,
    catches: &'static str,
    spares: &'static str,
}

const PAGE: &str = include_str!("../../../DETECTORS.md");

fn launch_of(cell: &str) -> &str {
    let quoted = cell.strip_prefix('`');
    let Some((launch, _)) = quoted.and_then(|text| text.split_once("`: ")) else {
        panic!("DETECTORS.md: `launch`: words, expected: {cell}")
    };
    launch
}

fn detector(row: &'static str) -> Detector {
    let [_name, reported, catches, spares] = row.split(" | ").collect::<Vec<_>>()[..] else {
        panic!("DETECTORS.md: four cells expected: {row}")
    };
    let (kind, fault) = match reported.split_once(", `Fault::") {
        Some((kind, fault)) => (kind, fault.strip_suffix('`')),
        None => (reported, None),
    };
    Detector {
        kind,
        fault,
        catches: launch_of(catches),
        spares: launch_of(spares),
    }
}

fn detectors() -> Vec<Detector> {
    PAGE.lines()
        .filter_map(|line| line.strip_prefix("| "))
        .skip(1)
        .map(detector)
        .collect()
}

#[test]
fn each_detector_catches_its_program_and_spares_its_near_miss() {
    for Detector {
        kind,
        fault,
        catches,
        spares,
    } in detectors()
    {
        assert_clean([spares]);
        let reported = hazards(catches);
        let kinds: BTreeSet<&str> = reported
            .iter()
            .map(|(hazard, _)| hazard.kind.label())
            .collect();
        assert!(kinds.contains(kind), "{catches} gives {kinds:?}");
        if fault.is_none() {
            continue;
        }
        assert_eq!(faults(spares), [const { None }; 5], "{spares}");
        let stops = faults(catches);
        let mut names = stops.iter().flatten().map(|stop| format!("{stop:?}"));
        assert!(
            names.any(|name| name.split(' ').next() == fault),
            "{catches} gives {stops:?}"
        );
    }
}

#[test]
fn a_trace_that_ends_at_a_hazard_finds_one_where_a_whole_trace_does() {
    for Detector { catches, .. } in detectors() {
        for schedule in SCHEDULES {
            let run = launch(catches).schedule(schedule);
            let whole = run.trace([8192, 0]);
            let ended = run.ending_at_hazard().trace([8192, 0]);
            assert_eq!(
                ended.hazards.is_empty(),
                whole.hazards.is_empty(),
                "{catches} under {schedule:?}: {:?}",
                whole.hazards
            );
        }
    }
}

#[test]
fn a_trace_that_ends_at_a_hazard_does_not_go_on_to_the_end() {
    let consumers_do_not_wait = launch("ring<<<1, 96, 288>>>(6, 1)");
    let whole = consumers_do_not_wait.counted(8192);
    let ended = consumers_do_not_wait.ending_at_hazard().counted(8192);
    assert!(ended.shared_read.requests < whole.shared_read.requests);
}

#[test]
fn reports_name_both_places_and_what_is_missing() {
    let launches: BTreeSet<&str> = detectors().iter().map(|it| it.catches).collect();
    insta::assert_snapshot!(hazards_of(launches));
}

fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let (_, declaration) = source.split_once(&format!("pub enum {name} {{\n")).unwrap();
    let (body, _) = declaration.split_once("\n}").unwrap();
    let mut variants = BTreeSet::new();
    for line in body.lines().filter_map(|line| line.strip_prefix("    ")) {
        if line.starts_with(char::is_uppercase) {
            let end = line.find([' ', ',', '(']).unwrap_or(line.len());
            variants.insert(line[..end].to_owned());
        }
    }
    variants
}

#[test]
fn every_kind_of_hazard_and_every_fault_has_a_detector() {
    let hazards = include_str!("../../../src/judge/hazard.rs");
    let labels = hazards
        .lines()
        .filter_map(|line| line.split_once(" => \"")?.1.strip_suffix("\","));
    let kinds: BTreeSet<&str> = detectors().iter().map(|it| it.kind).collect();
    assert_eq!(kinds, labels.collect());
    assert_eq!(kinds.len(), variants(hazards, "HazardKind").len());
    let mut faults: BTreeSet<String> = detectors()
        .iter()
        .filter_map(|it| it.fault.map(String::from))
        .collect();
    // Launches that are refused as a whole, a machine without memory, a judge that may not remember
    // more, and the mark that a traced block's hazards hold the reason.
    let others = [
        "BadLaunch",
        "SharedTooLarge",
        "NoMemory",
        "Outgrown",
        "Hazard",
    ];
    faults.extend(others.map(String::from));
    assert_eq!(
        faults,
        variants(include_str!("../../../src/fault.rs"), "Fault")
    );
}

#[test]
fn the_page_quotes_the_report_of_the_last_tile() {
    let quoted: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .collect();
    let catches = detectors().into_iter().map(|it| it.catches);
    let mut of_tiles = catches.filter(|launch| launch.starts_with("copied_one_ahead"));
    let report = launch(of_tiles.next().unwrap()).trace([8192, 0]);
    assert_eq!(quoted.join(" "), report.hazards[0].to_string());
}
