use super::*;
use common::metric::Threshold;
use document::Block;
use document::markdown::markdown;
use results::judge::diff::{Group, compare};
use results::table::Run;
use results::testing::{CPASYNC, US, WMMA, emulated, ladder, row, timed};
use std::collections::BTreeSet;

/// Returns the table of one group of differences.
fn shown(base: &Run, new: &Run, group: Group) -> String {
    let comparison = compare(&base.table, &new.table, true, &ladder());
    let mut moved = Vec::new();
    for difference in &comparison.differences {
        let has_moved = !matches!(difference.change, Change::Missing | Change::Unchanged);
        if difference.group == group && has_moved {
            moved.push(difference);
        }
    }
    let lines = match group {
        Group::Latency => times(&moved),
        _ => figures(&moved),
    };
    markdown(&[Block::Table(table(&lines))])
}

/// Returns a session of other kernels.
fn before() -> Run {
    timed(US)
        .with_identity(0, "a")
        .with_identity(1, "b")
        .named("1")
}

#[test]
fn every_figure_that_is_compared_has_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for metric in Metric::ALL {
        if metric.spec().threshold != Threshold::NotCompared {
            let Column { title, part } = column(*metric);
            assert!(names.insert((title, part)), "{title} {part}");
        }
    }
    assert!(!names.is_empty());
}

#[test]
fn a_variant_has_one_row_where_its_instances_moved_alike() {
    let base = emulated()
        .with_row(row("cpasync | f16 d64 sm_89 | ptxas | registers 96"))
        .with_row(row("cpasync | f16 d64 sm_90a | ptxas | registers 96"))
        .with_row(row("cpasync | f16 d128 sm_90a | ptxas | registers 120"));
    let new = emulated()
        .with_row(row("cpasync | f16 d64 sm_89 | ptxas | registers 80"))
        .with_row(row("cpasync | f16 d64 sm_90a | ptxas | registers 80"))
        .with_row(row("cpasync | f16 d128 sm_90a | ptxas | registers 128"));
    let page = shown(&base, &new, Group::Resources);
    for row in [
        "| kernel | at | registers | verdict |",
        "| stage1/cpasync-32x64 | f16 d64 sm_89, f16 d64 sm_90a | 96 → 80 | changed |",
        "| stage1/cpasync-32x64 | f16 d128 sm_90a | 120 → 128 | changed |",
    ] {
        assert!(page.contains(row), "{row}: {page}");
    }
    assert_eq!(page.lines().count(), 4, "{page}");
}

#[test]
fn conflicts_are_one_row_per_variant_and_what_is_worse_is_strong() {
    let new = emulated()
        .counted(WMMA, 1_048_576, 196_608)
        .counted(CPASYNC, 1_048_576, 196_608);
    let page = shown(&emulated(), &new, Group::Counters);
    for row in [
        "| kernel | at | shared wavefronts | bank conflicts | verdict |",
        "| stage0/wmma-qk-32x64 | mission f16 full | loads 96 → 196,704 | \
         loads **0 → 196,608** | worse |",
        "| stage1/cpasync-32x64 | mission f16 full | loads 96 → 196,704 | \
         loads **0 → 196,608** | worse |",
    ] {
        assert!(page.contains(row), "{row}: {page}");
    }
    assert_eq!(page.lines().count(), 4, "{page}");
}

#[test]
fn a_counter_that_the_latency_overrules_says_so() {
    let new = timed([32.0, 20.0, 13.0]).counted(CPASYNC, 1_048_576, 32);
    let page = shown(&before(), &new, Group::Counters);
    assert!(
        page.contains("0 → 32 (the measured latency says the opposite)"),
        "{page}"
    );
}

#[test]
fn a_latency_has_its_ratio_and_what_decides() {
    let page = shown(&before(), &timed([32.0, 20.0, 16.5]), Group::Latency);
    let figures = "| stage1/cpasync-32x64 | mission f16 full | 15.01 µs → 16.5";
    assert!(page.contains(figures), "{page}");
    assert!(page.contains(" | worse, 0.91x: beyond "), "{page}");
}
