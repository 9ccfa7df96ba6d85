//! The pages that people write about stages: they say only what the tables and the types say.

use common::stage::StageInfo;
use std::collections::BTreeMap;
use std::path::Path;

fn read(page: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns the parts of a StageInfo, in words. A field that comes or goes does not compile here.
fn parts_of_a_stage(info: &StageInfo) -> [&'static str; 7] {
    let StageInfo {
        id: _,
        idea: _,
        predecessor: _,
        role: _,
        default_variant: _,
        claims: _,
        redundant: _,
    } = info;
    [
        "id",
        "idea",
        "predecessor",
        "role",
        "default variant",
        "redundant sites",
        "`claims`",
    ]
}

#[test]
fn contributing_asks_for_what_a_stage_has() {
    let parts = parts_of_a_stage(stages::STAGES[0].info());
    let (last, others) = parts.split_last().unwrap();
    let request = format!("state {} and {last}:", others.join(", "));
    assert!(
        read("CONTRIBUTING.md").contains(&request),
        "CONTRIBUTING.md lacks '{request}'"
    );
}

/// A prediction that is not measured in COMPARE.md is not confirmed in the stage's README.
#[test]
fn no_readme_has_found_what_was_not_measured() {
    let compare = read("COMPARE.md");
    let missing = compare
        .lines()
        .filter(|line| line.starts_with("- stage") && line.contains("only ncu measures it"));
    for line in missing {
        let (stage, _) = line.trim_start_matches("- ").split_once(':').unwrap();
        let readme = read(&format!("{stage}/README.md"));
        for row in readme.lines() {
            let is_confirmed = row.contains("(ncu)") && row.contains("| yes");
            assert!(
                !is_confirmed,
                "{stage}/README.md has {row}, where COMPARE.md has {line}"
            );
        }
    }
}

#[test]
fn every_negative_has_a_reason_of_its_own() {
    let mut claims = BTreeMap::new();
    for stage in stages::builds().unwrap() {
        for negative in stage.negatives {
            let claim = format!("{}: {}, {:?}", stage.id, negative.claim, negative.gpu);
            if let Some(other) = claims.insert(negative.why, claim.clone()) {
                panic!("{claim} has the reason of {other}");
            }
        }
    }
}

/// The page ends by running the stage that it has just made.
#[test]
fn the_ladder_tests_the_stage_that_it_makes() {
    let page = read("docs/ladder.md");
    let (_, after) = page.split_once("scripts/new-stage ").unwrap();
    let stage = after.split_whitespace().next().unwrap();
    let run = format!("--stages {stage} --quick");
    assert!(after.contains(&run), "docs/ladder.md lacks '{run}'");
}
