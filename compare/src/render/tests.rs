use super::*;
use crate::comparison::{Committed, failed_claims, report};
use crate::testing::{case, emulated, ladder, profile, profiled, resummarise, sanitized, timed};
use common::device::BackendKind;
use common::record::{Negative, Record, SCHEMA};
use common::verdict::{GateId, Verdict};

fn markdown(run: &Record, committed: &[Committed]) -> String {
    markdown::report(&report(&ladder(), Some(("20261120T183000Z-test", run)), committed), &[])
}

#[test]
fn a_run_without_a_gpu() {
    insta::assert_snapshot!(markdown(&emulated(), &[]));
}

#[test]
fn a_run_without_a_gpu_beside_a_committed_one() {
    insta::assert_snapshot!(markdown(
        &emulated(),
        &[("20261119T120000Z-nvidia-h200".into(), timed([32.0, 20.0, 15.0]))]
    ));
}

#[test]
fn a_run_on_a_gpu_with_a_failed_gate_a_regression_and_a_refuted_claim() {
    let mut old = timed([24.0, 20.0, 15.0]);
    let claims = failed_claims(&old);
    assert_eq!(claims.len(), 1);
    let gpu = Some("NVIDIA H200".to_string());
    old.negative = Some(Negative { schema: SCHEMA, reason: "P·V dominates at this grid".into(), gpu, claims });
    let mut run = timed([24.0, 20.0, 16.0]);
    run.correctness.cases.push(case("stage0-scalar", "scalar-32x64", BackendKind::Cuda, Some(GateId::C2)));
    resummarise(&mut run);
    insta::assert_snapshot!(markdown(&run, &[("20261119T120000Z-nvidia-h200".into(), old)]));
}

#[test]
fn cells_cannot_break_a_table() {
    let mut run = emulated();
    run.correctness.cases[0].outcome = common::check::Outcome::Failed { reason: "a | b\nc".into() };
    resummarise(&mut run);
    let text = markdown(&run, &[]);
    assert!(text.contains("a \\| b c"), "{text}");
}

#[test]
fn the_readme_keeps_all_but_its_table() {
    let report = report(&ladder(), Some(("run", &emulated())), &[]);
    let text = readme("# Title\n\n<!-- ladder:begin -->\noutdated\n<!-- ladder:end -->\n\ntail\n", &report).unwrap();
    assert!(text.starts_with("# Title\n\n<!-- ladder:begin -->\n| stage |"), "{text}");
    assert!(text.ends_with("<!-- ladder:end -->\n\ntail\n") && !text.contains("outdated"));
    assert_eq!(readme(&text, &report).unwrap(), text, "rendering twice changes nothing");
    let [begin, end] = LADDER;
    for (text, found) in [
        ("no markers".to_string(), "it has 0 and 0"),
        (format!("{begin}\n17.13\n"), "it has 1 and 0"),
        (format!("17.13\n{end}"), "it has 0 and 1"),
        (format!("{begin}{end}{begin}{end}"), "it has 2 and 2"),
        (format!("{begin}{begin}{end}"), "it has 2 and 1"),
        (format!("{end}\n{begin}"), "it has 1 and 1, in the wrong order"),
    ] {
        let error = readme(&text, &report).unwrap_err().to_string();
        assert!(error.ends_with(found), "{text}: {error}");
    }
}

#[test]
fn json_has_a_row_per_case_with_resources_and_latency() {
    let run = timed([32.0, 20.0, 15.0]);
    let document = json::document(&report(&ladder(), Some(("run", &run)), &[]), "run", &run);
    assert_eq!(document["rows"].as_array().unwrap().len(), run.correctness.cases.len());
    let row = &document["rows"][1];
    assert_eq!((row["variant"].as_str(), row["dtype"].as_str()), (Some("wmma-qk-32x64"), Some("f16")));
    assert_eq!(row["gates"].as_array().unwrap().len(), 6);
    assert!(row["latency"]["device_us"]["p50"].as_f64().unwrap() > 19.0);
    assert_eq!(row["resources"]["register_cap"].as_u64(), Some(128));
    assert_eq!(document["verdict"]["exit_code"].as_u64(), Some(0));
}

#[test]
fn a_profile_stands_beside_predictions_and_counters() {
    let mut record = timed([3.0, 2.0, 1.0]);
    let base =
        [("time", 9000.0), ("loaded", 1_048_576.0), ("copied", 0.0), ("wavefronts", 12_400.0), ("conflicts", 12_300.0)];
    let new =
        [("time", 6000.0), ("loaded", 48_576.0), ("copied", 1_300_000.0), ("wavefronts", 96.0), ("conflicts", 0.0)];
    let launches = vec![
        profiled("stage0-scalar", "wmma-qk-32x64", &base),
        profiled("stage1-cpasync", "cpasync-32x64", &[&new[..], &[("barrier", 1.0), ("latency", 8.0)]].concat()),
    ];
    profile(&mut record, launches);
    let report = crate::comparison::report(&ladder(), Some(("now", &record)), &[]);
    insta::assert_snapshot!(markdown::profile(&report));
    let row = report.evidence_claims.iter().find(|row| row.stage == "stage1-cpasync").unwrap();
    assert!(row.standing().fails, "the emulator agrees with the claim, ncu does not: {:?}", row.state);
    assert!(markdown::report(&report, &[]).contains("= 1.000x; ncu FAIL: cpasync-32x64 1,348,576"));
    assert!(json::document(&report, "now", &record)["profile"]["launches"][1]["metrics"].is_object());
}

#[test]
fn the_sanitizers_table_says_what_was_found_and_what_was_not_looked_at() {
    let mut record = timed([32.0, 20.0, 15.0]);
    record.sanitizer = Some(sanitized("stage1-cpasync", "cpasync-32x64", [Verdict::Pass, Verdict::Fail]));
    let report = crate::comparison::report(&ladder(), Some(("now", &record)), &[]);
    insta::assert_snapshot!(markdown::sanitizer(&report));
}

#[test]
fn peers_are_shown_with_what_is_wrong_or_missing() {
    use crate::testing::peers::{claiming, completed, problem};
    use common::problem::Mask;
    let peers = [
        ("torch-default", 12.0, true),
        ("torch-flash", 12.0, true),
        ("torch-cudnn", 9.0, false),
        ("flash-attn-4", 8.0, true),
    ];
    let problems = vec![problem("mission", Mask::Full, 7.0, &peers), problem("mission", Mask::Causal, 7.0, &[])];
    let run = completed(timed([24.0, 20.0, 15.0]), problems);
    let report = report(&claiming(), Some(("20261120T183000Z-test", &run)), &[]);
    insta::assert_snapshot!(markdown::peers(&report));
    let claims = markdown::report(&report, &[]);
    assert!(claims.contains(
        "over the fastest of PyTorch on mission f16 full (goal 1.70x) | PASS | cpasync-32x64 against torch-"
    ));
}
