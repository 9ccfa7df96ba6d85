//! What `run` prints to the terminal: failures, a line per stage; then what is missing, what to do,
//! and the verdict. It is about what the run checked; the committed table has one line.

use super::blocks::table_block;
use super::{counted, ladder, report};
use common::device::BackendKind;
use document::{Block, Text};
use results::judge::View;
use results::judge::claims::claims;
use results::judge::verdict::Report;

/// Returns the line about a committed table, which the report of a run is not about: `the committed
/// table of NVIDIA H200 (speed claims: 113 of 145 hold)`.
pub fn committed(view: &View<'_>) -> Option<String> {
    let newest = view.session()?;
    let mut line = String::from("not checked by this run: the committed table");
    if let Some(gpu) = view.gpu() {
        line += &format!(" of {gpu}");
    }
    line += &format!(", newest session {}", newest.name);
    let claims = claims(view);
    let speed_claims = claims.iter().filter(|claimed| claimed.claim.is_of_speed());
    if let Some(standings) = report::standings(speed_claims) {
        line += &format!(" (speed claims: {standings})");
    }
    Some(line)
}

/// Returns the page of a run, with the line about the committed table.
pub fn document(report: &Report<'_>, committed: Option<String>) -> Vec<Block> {
    let mut blocks = report::failures(report);
    blocks.extend(match report.view.backend() {
        BackendKind::Emulated => counted::blocks(report),
        BackendKind::Cuda => table_block(ladder::ladder(report)),
    });
    blocks.extend(report::missing(report, true));
    let mut summary = report::summary(report);
    summary.extend(committed.map(Text::from));
    blocks.extend([
        Block::Bullets(summary),
        Block::bullets(report.overall().actions),
        Block::strong(report::verdict(report)),
    ]);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use document::terminal;
    use results::judge::verdict::{self, Exit, report_of_checks};
    use results::judge::{diff, state::State};
    use results::table::Table;
    use results::testing::scenario;

    fn page(words: &str) -> String {
        let run = scenario::run(words);
        let report = verdict::report(View::alone(&run));
        terminal::terminal(&document(&report, None))
    }

    /// The committed table has a variant that fails, a claim that does not hold and stale
    /// latencies; none is this run's.
    #[test]
    fn a_run_answers_for_what_it_checked_and_names_the_table_beside_it() {
        let before =
            scenario::run("timed 24 20 40; clean; scalar gpu all: C3 fail; identity 1 old");
        let table = diff::accepted(&before.named("1"), &Table::default());
        let checks = "emulated; stages stage0-scalar; tier 0; - scalar; - cpasync";
        let run = scenario::run(checks).named("2");
        let report = report_of_checks(&run, &table);
        assert_eq!(report.overall().exit, Exit::Pass, "{:?}", report.failures);
        let states = report.states.iter().map(|(_, state)| state);
        assert_eq!(states.filter(|state| **state == State::Green).count(), 1);
        let line = committed(&View::committed(&run.session.stages, &table));
        let page = terminal::terminal(&document(&report, line));
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let beside = "not checked by this run: the committed table of NVIDIA H200, \
                      newest session 1 (speed claims: ";
        assert!(words.contains(beside), "{page}");
        let (own, _) = words.split_once("not checked by this run").unwrap();
        for of_table in ["fail", "stale", "stage1-cpasync", "µs"] {
            assert!(!own.contains(of_table), "{of_table}: {page}");
        }
        assert!(
            words.ends_with("PASS: 1 variant passes every gate"),
            "{page}"
        );
        // On top of the table, as `accept` judges it, it fails.
        let on_table = verdict::report_of_run(&run, &table);
        assert_eq!(on_table.overall().exit, Exit::Fail);
    }

    #[test]
    fn green_is_a_line_a_stage_and_red_comes_first() {
        insta::assert_snapshot!(page("timed"), @"
        | stage          | variant       | gates | µs at mission | gain (claimed) |
        |----------------|---------------|-------|---------------|----------------|
        | stage0-scalar  | wmma-qk-32x64 | pass  |          20.0 |                |
        | stage1-cpasync | cpasync-32x64 | pass  |          15.0 | 1.33x (1.10)   |

        - correct: 3 of 3 variants pass every gate; self-test: 1 of 1 planted faults killed; 1 of 2 mutants
          (kernels without one synchronisation site) killed, 1 listed as redundant, 0 surviving
        - speed claims: 2 of 2 hold
        - counter claims: 2 of 2 hold

        - Complete this run with gate C7 before it is accepted: compare sanitize.
        - 6 things were not measured here: compare show missing --run DIR says what each takes.

        PASS: 3 variants pass every gate
        ");
        let page = page("timed; wmma gpu all: C2 fail max error 3e-1 > 4e-4");
        assert!(
            page.starts_with("- fail C2 of stage0-scalar/wmma-qk-32x64: max error 3e-1 > 4e-4"),
            "{page}"
        );
        assert!(
            page.trim_end()
                .ends_with("FAIL: 1 gate fails, first C2 of stage0-scalar/wmma-qk-32x64"),
            "{page}"
        );
    }

    #[test]
    fn a_problem_of_which_a_part_is_judged_is_named_with_how_large_it_is() {
        let page = page(
            "timed; + wmma | 1x32:8x32768x128 f16 full normal:0 | gpu | C2 pass; \
             + wmma | big f16 full | gpu | p50 9",
        );
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("rows sampled: a problem has more than 256 Mi scores"),
            "{words}"
        );
        for part in [
            "1x32:8x32768x128 f16 full (1",
            " of 1048576)",
            "big f16 full (",
            " of 262144)",
        ] {
            assert!(words.contains(part), "{words}");
        }
        assert!(!words.contains("mission f16 full ("), "{words}");
    }

    #[test]
    fn what_a_quick_run_leaves_out_takes_no_line() {
        let page = page("timed; claims 0 0; claims 1 0; tier 0; - wmma");
        assert!(
            !page.contains("wmma-qk-32x64") && page.contains("scalar-32x64"),
            "{page}"
        );
    }
}
