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
    use common::verdict::{GateId, Verdict};
    use document::terminal;
    use results::judge::verdict::{self, Exit, report_of_checks};
    use results::judge::{diff, state::State};
    use results::table::session::Tier;
    use results::table::{Run, Table};
    use results::testing::{CPASYNC, ON_GPU, SCALAR, US, WMMA, emulated, row, timed};

    fn page(run: &Run) -> String {
        let report = verdict::report(View::alone(run));
        terminal::terminal(&document(&report, None))
    }

    /// The committed table has a variant that fails, a claim that does not hold and stale
    /// latencies; none is this run's.
    #[test]
    fn a_run_answers_for_what_it_checked_and_names_the_table_beside_it() {
        let before = timed([24.0, 20.0, 40.0])
            .clean()
            .with_gate(SCALAR, ON_GPU, GateId::C3, Verdict::Fail)
            .with_identity(1, "old");
        let table = diff::accepted(&before.named("1"), &Table::default());
        let run = emulated()
            .of_stages(&["stage0-scalar"])
            .of_tier(Tier::T0)
            .without_subject(SCALAR)
            .without_subject(CPASYNC)
            .named("2");
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
    fn green_is_a_line_a_stage() {
        insta::assert_snapshot!(page(&timed(US)), @"
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
    }

    #[test]
    fn red_comes_first_and_last() {
        let red = timed(US).with_failure(WMMA, ON_GPU, GateId::C2, "max error 3e-1 > 4e-4");
        let page = page(&red);
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
        let run = timed(US)
            .with_row(row(
                "wmma | 1x32:8x32768x128 f16 full normal:0 | gpu | C2 pass",
            ))
            .with_row(row("wmma | big f16 full | gpu | p50 9"));
        let page = page(&run);
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
        let quick = timed(US)
            .without_claims()
            .of_tier(Tier::T0)
            .without_subject(WMMA);
        let page = page(&quick);
        assert!(
            !page.contains("wmma-qk-32x64") && page.contains("scalar-32x64"),
            "{page}"
        );
    }
}
