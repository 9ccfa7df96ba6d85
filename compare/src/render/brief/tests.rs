use super::*;
use crate::comparison::{failed_claims, report};
use crate::render::document;
use crate::testing::{built, ladder, profile, profiled as launched, timed};
use crate::tune::Ranked;
use common::problem::{Dtype, Mask};
use common::record::{Negative, SCHEMA};

fn elites(identity: &str) -> Elites {
    let mut elites = Elites::none("NVIDIA H200");
    let best = vec![Ranked { variant: "scalar-32x64".into(), p50_us: 29.5, p90_us: 30.0, sass_sha256: None }];
    elites.entries.push(Entry {
        stage: "stage0-scalar".into(),
        identity: identity.into(),
        shape_name: "mission".into(),
        shape: claims_problem(Dtype::F16).shape,
        dtype: Dtype::F16,
        mask: Mask::Full,
        tuned: "2026-11-21T11:13:38Z".into(),
        timed: 2,
        best,
    });
    elites
}

#[test]
fn a_brief_holds_all_that_is_known() {
    let mut record = built(timed([24.0, 20.0, 15.0]), 104, 0);
    let claims = failed_claims(&record);
    let metrics = [("time", 32_384.0), ("loaded", 25.0), ("copied", 75.0), ("barrier", 3.0), ("latency", 10.0)];
    profile(&mut record, vec![launched("stage0-scalar", "wmma-qk-32x64", &metrics)]);
    record.negative = Some(Negative {
        schema: SCHEMA,
        reason: "P·V dominates at this grid".into(),
        gpu: Some("NVIDIA H200".into()),
        claims,
    });
    let committed = [("20261119T120000Z-nvidia-h200".to_string(), record)];
    let report = report(&ladder(), None, &committed);
    let text = document::markdown(&blocks(&report, "stage0-scalar", &[elites("stage0-scalar-identity")], &committed));
    insta::assert_snapshot!(text);
}

#[test]
fn what_is_not_known_is_said() {
    let report = report(&ladder(), None, &[]);
    let text = document::markdown(&blocks(&report, "stage0-scalar", &[elites("older")], &[]));
    for part in [
        "NO DATA: there is no committed record.",
        "NO DATA: no record of this kernel was built by nvcc.",
        "STALE: the kernel has changed",
        "NO DATA: no committed record counts it.",
        "NO DATA: the record has no profile of it;",
        "No committed record refutes a claim of it.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(blocks(&report, "stage9-none", &[], &[]), []);
}
