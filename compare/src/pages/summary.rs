//! What `run` prints to the terminal: failures, a line per stage; then what is missing, what to do, and the verdict.

use super::{ladder, report, some};
use crate::document::Block;
use crate::judge::verdict::Report;

pub fn document(report: &Report<'_>) -> Vec<Block> {
    let end = vec![
        Block::Bullets(report::summary(report)),
        Block::bullets(report.overall().actions),
        Block::strong(report::verdict(report)),
    ];
    let ladder = some(ladder::ladder(report));
    let missing = report::missing(report, true);
    [report::failures(report), ladder, missing, end].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::terminal;
    use crate::judge::{Known, verdict};
    use crate::testing::scenario;

    fn page(words: &str) -> String {
        let run = scenario::run(words);
        terminal::terminal(&document(&verdict::report(Known::alone(&run))))
    }

    #[test]
    fn green_is_a_line_a_stage_and_red_comes_first() {
        insta::assert_snapshot!(page("timed"), @"
    | stage          | best variant at mission | gates |    µs | vs previous (claimed) |
    |----------------|-------------------------|-------|-------|-----------------------|
    | stage0-scalar  | wmma-qk-32x64           | GREEN | 20.02 | –                     |
    | stage1-cpasync | cpasync-32x64           | GREEN | 15.01 | 1.33x (1.10x)         |

    - variants: 3 GREEN
    - claims: 4 PASS

    - Complete this run with gate C7 before it is accepted: compare sanitize.

    PASS: 3 variants are green
    ");
        let page = page("timed; wmma gpu all: C2 fail max error 3e-1 > 4e-4");
        assert!(
            page.starts_with("- FAIL C2 of stage0-scalar/wmma-qk-32x64: max error 3e-1 > 4e-4"),
            "{page}"
        );
        assert!(
            page.trim_end()
                .ends_with("FAIL: 1 gate fails, first C2 of stage0-scalar/wmma-qk-32x64"),
            "{page}"
        );
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
