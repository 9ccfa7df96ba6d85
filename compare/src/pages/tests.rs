//! What the pages say of a small literal table, and that they stay small for the committed one.

use super::show::Section;
use super::*;
use crate::document::Block;
use crate::document::markdown::markdown;
use crate::document::terminal::terminal;
use crate::judge::View;
use crate::judge::diff;
use crate::judge::verdict::{self, Report, of_differences};
use crate::table::Role;
use crate::table::session::Progress;
use crate::table::{self, Kind, Place, ProblemPlace, Run, Source, StageMeta};
use crate::testing::scenario::{self, each};
use crate::testing::{CPASYNC, WMMA, table};
use clap::ValueEnum;
use common::claim::Where;
use common::problem::{Dtype, Mask, SHAPES};
use common::verdict::GateResult;

/// The literal run, 1.5x over a peer on mission and 0.8x on long, with these changes. Kernels of one machine code are the
/// same, so that none has any.
fn run(changes: &str) -> Run {
    scenario::run(&format!(
        "timed; built 128 0; ptxas: code none; beside cpasync mission 15 torch-default 22.5; \
         beside cpasync long 30 torch-default 24; {changes}"
    ))
}

/// Of other kernels.
fn before() -> table::Table {
    table(&[run("named 1; identity 0 before; identity 1 before")])
}

/// A newer session, in which a variant is slower.
const SLOW: &str = "named 2; cpasync mission gpu !pair: p50 16.5 16.495 16.505 | p90 16.51";

fn judged<T>(run: &Run, look: impl Fn(&Report<'_>) -> T) -> T {
    look(&verdict::report(View::alone(run)))
}

fn report_of(stages: &[StageMeta], table: &table::Table, look: impl Fn(&Report<'_>)) {
    look(&verdict::report(View::committed(stages, table)));
}

fn committed() -> (Vec<StageMeta>, table::Table) {
    let results = crate::testing::results();
    let stages = crate::stages::builds().unwrap();
    let table = results.of_gpu(results.main(&stages).unwrap());
    (stages, table)
}

fn fits_the_terminal(document: &[Block], most: usize) {
    let text = terminal(document);
    // A command is not broken.
    let lines = text.lines().filter(|line| line.trim().contains(' '));
    let widest = lines.map(|line| line.chars().count()).max();
    assert!(
        widest <= Some(100) && text.lines().count() <= most,
        "{text}"
    );
}

/// At most 20 KB and 200 lines, none of its sentences cut.
fn can_go_with_a_pull_request(report: &Report<'_>) -> String {
    let document = report::document(report, &[]);
    let text = markdown(&document);
    let (bytes, lines) = (text.len(), text.lines().count());
    assert!(
        bytes <= 20_000 && lines <= 200,
        "{bytes} bytes, {lines} lines:\n{text}"
    );
    let texts = document.iter().flat_map(|block| match block {
        Block::Bullets(texts) => texts.clone(),
        Block::Paragraph(text) => vec![text.clone()],
        _ => vec![],
    });
    texts.for_each(|text| assert!(!text.to_string().contains('…'), "{text}"));
    fits_the_terminal(&document, usize::MAX);
    text
}

#[test]
fn what_decides_stands_first_in_compare_md() {
    let slow = "wmma mission gpu !pair: p50 23 22.995 23.005 | p90 23.01";
    let run = run(&format!("{SLOW}; {slow}"));
    let committed = before();
    let report = verdict::report_of_run(&run, &committed);
    insta::assert_snapshot!(can_go_with_a_pull_request(&report));
}

#[test]
fn a_run_shows_what_it_measured_alone() {
    let run = scenario::run("emulated; - scalar; - wmma; stages stage1-cpasync");
    let page = judged(&run, can_go_with_a_pull_request);
    let (_, ladder) = page.split_once("## The ladder\n\n").unwrap();
    let (ladder, _) = ladder.split_once("\n## ").unwrap();
    let rows = Vec::from_iter(ladder.lines().filter(|line| line.starts_with("| ")));
    assert!(
        rows[1].starts_with("| 1 cpasync") && rows.len() == 2,
        "{page}"
    );
}

#[test]
fn what_is_missing_or_stale_is_said_on_the_first_screen() {
    let (stages, table) = committed();
    // A goal of the choice that is missed would come first.
    let table = table.part(|row| row.source() != Source::Draw);
    let mut changed = stages.clone();
    for stage in &mut changed {
        stage.identity = "changed".into();
    }
    let one = Kind::Counters(ProblemPlace::claims(stages.last().unwrap().first_dtype()));
    let unmeasured = table.part(|row| row.kind != one);
    let nothing = table::Table::default();
    for (stages, table, says) in [
        (
            &changed,
            &table,
            [
                "**STALE: ",
                "- **old**: ",
                " are stale again: `compare --full --stages ",
            ],
        ),
        (
            &stages,
            &unmeasured,
            [
                " required rows are missing, first ",
                "- Measure what is missing: `compare --full --stages stage",
                "## Missing data that is required",
            ],
        ),
        (
            &stages,
            &nothing,
            [
                "**NOT MEASURED: ",
                "every row: there is no run",
                " not measured\n",
            ],
        ),
    ] {
        report_of(stages, table, |report| {
            let text = can_go_with_a_pull_request(report);
            let first: String = text.split_inclusive('\n').take(24).collect();
            for words in says {
                assert!(first.contains(words), "{words}: {first}");
            }
            assert!(
                text.contains("| [11](stage11-spread/README.md) |"),
                "{text}"
            );
        });
    }
}

#[test]
fn compare_md_stays_small_with_more_stages_and_where_everything_fails() {
    let (mut stages, mut table) = committed();
    report_of(&stages, &table, |report| {
        can_go_with_a_pull_request(report);
    });
    let timed = against_peers_on_everything().table;
    let of_peers = timed
        .rows_by(Source::Peers)
        .filter(|row| row.problem().is_some());
    for row in of_peers.cloned() {
        if table.get(&row.key()).is_none() {
            table.append(row);
        }
    }
    // The last three again.
    let last: Vec<StageMeta> = stages[stages.len() - 3..].to_vec();
    for stage in last {
        let again = format!("{}-again", stage.id);
        let renamed = |subject: &Subject| match subject.stage() == stage.id {
            true => Subject::variant(&again, subject.name()),
            false => subject.clone(),
        };
        let rows = table.rows().filter(|row| row.subject.stage() == stage.id);
        let rows: Vec<Row> = rows.cloned().collect();
        for mut row in rows {
            row.subject = renamed(&row.subject);
            if let Kind::Pair { base, .. } | Kind::PeerPair { base, .. } = &mut row.kind {
                *base = renamed(base);
            }
            table.append(row);
        }
        stages.push(StageMeta { id: again, ..stage });
    }
    report_of(&stages, &table, |report| {
        let tables = ladder::tables(report, |title| Block::subsection(title));
        let tables = tables.iter().filter_map(|block| match block {
            Block::Table(table) => Some(table.columns.len()),
            _ => None,
        });
        assert_eq!(Vec::from_iter(tables), [8, 8]);
        can_go_with_a_pull_request(report);
    });
    let failed: Vec<Row> = table
        .rows()
        .filter(|row| row.place() == Place::All)
        .cloned()
        .collect();
    table.extend(failed.into_iter().map(|mut row| {
        row.identity = table::kernels::identity(&stages, &row);
        let reason = "max error 3e-1 > 4e-4 ".repeat(20);
        row.judge(
            GateId::C2,
            (&GateResult::judge(GateId::C2, false, reason)).into(),
        );
        row
    }));
    stages.iter_mut().for_each(|stage| stage.negatives.clear());
    for session in table.sessions.values_mut() {
        session.progress = Progress::Partial {
            finished: 1,
            planned: 2,
        };
    }
    report_of(&stages, &table, |report| {
        let text = can_go_with_a_pull_request(report);
        assert!(
            text.lines().nth(2).unwrap().starts_with("**FAIL: "),
            "{text}"
        );
    });
}

fn shown(report: &Report<'_>, parts: &[Section], stages: &[String]) -> Vec<Block> {
    let asked = show::Asked {
        parts,
        stages,
        shared: vec![row! { "variant" => "stage0/scalar-32x64", "buffers" => "q 4,608" }],
        ..show::Asked::default()
    };
    show::document(report, &asked)
}

#[test]
fn parts_are_shown_as_asked_for_with_failures_first() {
    let [wmma, scalar] = ["stage0/wmma-qk-32x64", "stage0/scalar-32x64"];
    let is_first = |text: &str, one: &str, other: &str| {
        let place = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
        place(one) < place(other)
    };
    let run = run("wmma all: C2 fail max error 3e-1 > 4e-4");
    let report = &verdict::report(View::alone(&run));
    let all = terminal(&shown(report, &[Section::Gates], &[]));
    assert!(is_first(&all, wmma, scalar), "{all}");
    let parts = [Section::Gates, Section::Peers, Section::Counters];
    let of_one = shown(
        report,
        &parts,
        &["stage0-scalar".into(), "stage1-cpasync".into()],
    );
    insta::assert_snapshot!("parts", terminal(&of_one));
    let of_stage = terminal(&shown(report, &[], &["stage0-scalar".into()]));
    for says in ["== gates ==", "== latencies ==", "== claims ==", wmma] {
        assert!(of_stage.contains(says), "{says}: {of_stage}");
    }
    assert!(!of_stage.contains("cpasync-32x64"), "{of_stage}");
}

#[test]
fn every_part_of_the_committed_table_fits_the_terminal() {
    let (stages, table) = committed();
    report_of(&stages, &table, |report| {
        // A stage that nobody has measured yet shows no latencies, and one that nobody has profiled no profile.
        let last = |source| {
            let has = |id: &str| table.rows_by(source).any(|row| row.subject.stage() == id);
            let mut stages = stages.iter();
            stages.rfind(|stage| has(&stage.id)).unwrap().id.clone()
        };
        for &section in Section::value_variants() {
            let source = match section {
                Section::Profile => Source::Ncu,
                _ => Source::Gpu,
            };
            for of_stages in [vec![], vec![last(source)]] {
                let page = shown(report, &[section], &of_stages);
                let text = terminal(&page);
                assert!(!text.contains("NO DATA.\n"), "{section:?}: {text}");
                fits_the_terminal(&page, usize::MAX);
            }
        }
    });
}

#[test]
fn every_measured_gain_is_shown_claimed_or_not_and_a_wrong_or_stale_one_is_none() {
    let found = each(
        "timed
        timed 32 20 19; refuted 1 0
        timed; cpasync mission gpu pair: noise 0.5
        timed; claims 1 0
        timed 32 15 20; claims 1 0
        timed; - pair
        timed; - pair; claims 1 0
        timed; cpasync mission gpu pair: C2 fail
        timed; sources 1 changed
        timed; peers mission 10 torch-default 20",
        |words| {
            judged(&scenario::run(words), |report| {
                let stage = &report.view.stages[1];
                let cells = ladder::of_stage(report, stage);
                let [us, gain] = [2, 3].map(|column: usize| cells[column].1.shown());
                format!("{us} µs, {gain}")
            })
        },
    );
    // Both medians are there, and no quotient is formed of them; nor is a time beside peers one of a kernel alone.
    insta::assert_snapshot!(found, @"
    timed
        15.0 µs, 1.33x (1.10)
    timed 32 20 19; refuted 1 0
        19.0 µs, 1.05x (1.10 ✗)
    timed; cpasync mission gpu pair: noise 0.5
        15.0 µs, 1.33x (1.10 ?)
    timed; claims 1 0
        15.0 µs, 1.33x
    timed 32 15 20; claims 1 0
        20.0 µs, 0.750x
    timed; - pair
        15.0 µs, (1.10)
    timed; - pair; claims 1 0
        15.0 µs,
    timed; cpasync mission gpu pair: C2 fail
        15.0 µs, (1.10)
    timed; sources 1 changed
         µs, (1.10)
    timed; peers mission 10 torch-default 20
        15.0 µs, 1.33x (1.10)
    ");
}

#[test]
fn a_gain_at_big_is_shown_with_its_claim() {
    let gain = |words: &str| {
        let run = scenario::run(words).changed(|session| {
            let claims = &mut session.stages[1].claims;
            let place = ProblemPlace::new("big", Dtype::F16, Mask::Full);
            claims.push(table::Claim {
                place,
                ..claims[0].clone()
            });
        });
        judged(&run, |report| {
            let cells = ladder::of_stage(report, &report.view.stages[1]);
            cells.last().unwrap().1.shown().to_string()
        })
    };
    let gains = each(
        "timed
        timed; + cpasync | big f16 full | gpu wmma | speedup_p50 1.333
        timed; + cpasync | big f16 full | gpu wmma | speedup_p50 1.333 | C2 fail",
        gain,
    );
    insta::assert_snapshot!(gains, @"
    timed
        (1.10)
    timed; + cpasync | big f16 full | gpu wmma | speedup_p50 1.333
        1.33x (1.10 ?)
    timed; + cpasync | big f16 full | gpu wmma | speedup_p50 1.333 | C2 fail
        (1.10)
    ");
}

/// A branch is shown at its own problem alone, and not among the rungs.
#[test]
fn a_branch_has_its_own_table_and_problem() {
    let role = Role::Branch {
        purpose: "small grids",
        on: Where::new("mission", Dtype::F16, Mask::Full),
    };
    let run = scenario::run("timed").changed(|session| session.stages[1].role = role);
    let page = judged(&run, |report| {
        markdown(&ladder::tables(report, |title| Block::subsection(title)))
    });
    let (main, branches) = page.split_once("### Branches").unwrap();
    assert!(!main.contains("stage1-cpasync"), "{page}");
    let row = "| small grids | stage1-cpasync | K and V copied one tile ahead | mission f16 full, 1x8x512x64 | 15.0 |";
    assert!(branches.contains(row), "{page}");
}

const MISSED: &str = "+ attention-ladder | : regret | draw | regret_mean 1.01 | regret_worst 1.275 | cases 240 | draw 240 | note there";

/// Whatever is printed as failed or missed is in the verdict, and something is to be done about it.
#[test]
fn a_missed_goal_of_the_choice_is_in_the_verdict_of_every_page() {
    let run = scenario::run(&format!("timed; clean; {MISSED}"));
    let table = table(std::slice::from_ref(&run));
    report_of(&run.session.stages, &table, |report| {
        let page = markdown(&report::document(report, &[]));
        let says =
            "# COMPARE\n\n**FAIL: 1 goal of the library's choice is missed, first 1.275x at worst";
        assert!(page.starts_with(says), "{page}");
        assert!(
            page.contains("1.275x at worst (goal 1.10 ✗: there)"),
            "{page}"
        );
        assert!(!page.contains("No action needed"), "{page}");
        assert!(
            page.contains("`compare --random-problems 160 --backend cuda`"),
            "{page}"
        );
        let terminal = terminal(&summary::document(report, None));
        assert!(
            terminal.contains("\nFAIL: 1 goal of the library's choice"),
            "{terminal}"
        );
    });
}

/// Peers have columns, ours its rate, and a loss its interval; a time beside peers has the digits that count.
#[test]
fn each_peer_is_a_column_and_the_choice_is_one_beside_ours() {
    let run = scenario::run(
        "timed; beside cpasync mission 10 flash-attn-4 20.04 flash-attn-3 30 torch-cudnn 12.346 torch-default 12.4; \
         beside wmma mission 11 torch-math 40",
    );
    let page = judged(&run, |report| {
        let place = ProblemPlace::new("mission", Dtype::F16, Mask::Full);
        let mut report = verdict::report(report.view.clone());
        report.chosen = [(place, WMMA.into())].into();
        markdown(&report::document(&report, &[]))
    });
    let lines = page
        .lines()
        .filter(|line| line.starts_with("| problem") || line.starts_with("| mission"));
    insta::assert_snapshot!(Vec::from_iter(lines).join("\n"), @"
    | problem | size | ours (stage) | TFLOP/s | library | FA4 | FA3 | cuDNN | PyTorch | best peer / ours |
    | mission f16 full | 1x8x512x64 | 10.0 (1) | 53.6 | 11.0 | 20.1 | 30.0 | 12.4 | 12.4 | 1.24x |
    ");
}

/// Time, clock, watts and millijoules of both stages at big, and what is said of the regime.
fn at_big(rows: &[&str]) -> (Vec<String>, String) {
    let rows = rows.iter().map(|row| {
        let (subject, more) = row.split_once(": ").unwrap();
        format!("; + {subject} | big f16 full | gpu | sm_mhz 1560 | {more}")
    });
    let run = scenario::run(&format!("timed{}", rows.collect::<String>()));
    judged(&run, |report| {
        let cells = report.view.stages.iter().map(|stage| {
            let cells = ladder::of_stage(report, stage);
            let shown = [4, 6, 7, 8].map(|column: usize| cells[column].1.shown().to_string());
            shown.join("|")
        });
        let about = markdown(&Vec::from_iter(ladder::about(report)));
        let regime = about
            .split(". ")
            .find(|words| words.starts_with("Times at big"));
        (cells.collect(), regime.unwrap_or_default().to_string())
    })
}

const AT_LIMIT: &str = "cpasync: under warm L2, sustained | p50 500 | power_w 697 | power_limit_w 700 | energy_mj 348.2";
const UNKNOWN: &str = "scalar: under warm L2 | p50 900 | power_w 650";
const BELOW: &str = "scalar: under warm L2 | p50 950 | power_w 500 | power_limit_w 700";

#[test]
fn nothing_is_said_of_a_regime_where_nothing_was_timed_at_big() {
    assert_eq!(at_big(&[]), (vec!["|||".into(); 2], String::new()));
}

#[test]
fn bursts_at_big_are_named_and_their_power_at_one_moment_is_not_shown() {
    let (cells, regime) = at_big(&[UNKNOWN]);
    assert_eq!(cells, ["900|1560||", "|||"]);
    assert_eq!(regime, "Times at big are of bursts");
}

#[test]
fn a_burst_is_not_shown_among_sustained_times() {
    let (cells, regime) = at_big(&[UNKNOWN, AT_LIMIT]);
    assert_eq!(cells, ["|||", "500|1560|697|348"]);
    assert!(
        regime.starts_with("Times at big are sustained: "),
        "{regime}"
    );
}

#[test]
fn a_burst_below_the_limit_is_shown_among_sustained_times() {
    let (cells, _) = at_big(&[BELOW, AT_LIMIT]);
    assert_eq!(cells, ["950|1560||", "500|1560|697|348"]);
}

#[test]
fn a_problem_at_the_power_limit_shows_the_arms_that_were_timed_sustained() {
    let sustained = "under warm L2, sustained | p50";
    let run = scenario::run(&format!(
        "timed; beside cpasync mission 10 flash-attn-3 12 torch-cudnn 13; \
         cpasync peers mission !pair: {sustained} 15; flash-attn-3 peers mission: {sustained} 18; \
         + cpasync | mission f16 full | peers flash-attn-3 | {sustained} 15 | speedup_p50 1.2 1.19 1.21"
    ));
    let page = judged(&run, |report| markdown(&report::document(report, &[])));
    let lines = page
        .lines()
        .filter(|line| line.starts_with("| problem") || line.starts_with("| mission"));
    insta::assert_snapshot!(Vec::from_iter(lines).join("\n"), @"
    | problem | size | regime | ours (stage) | TFLOP/s | FA3 | best peer / ours |
    | mission f16 full | 1x8x512x64 | sustained | 15.0 (1) | 35.8 | 18.0 | 1.20x |
    ");
    assert!(page.contains("take turns of a second"), "{page}");
}

/// Ours at 10 µs against a peer on each named problem, and in each element type where that is timed.
fn against_peers_on_everything() -> Run {
    let named = SHAPES.iter().filter(|named| named.name != "small");
    let problems = named.flat_map(|named| named.masks.iter().map(move |mask| (named, *mask)));
    let problems = problems.flat_map(|(named, mask)| {
        let has_all =
            ["mission", "long", "big", "big_wide"].contains(&named.name) || named.shape.is_decode();
        let dtypes = Dtype::ALL
            .into_iter()
            .filter(move |dtype| has_all || *dtype == Dtype::F16);
        dtypes.map(move |dtype| ProblemPlace::new(named.name, dtype, mask))
    });
    problems.fold(scenario::run("timed"), |run, place| {
        run.beside(CPASYNC, &place, 10.0, &[("flash-attn-4", 11.0, true)])
    })
}

#[test]
fn problems_are_shown_by_kind_and_of_another_gpu_model_what_is_lost() {
    let run = against_peers_on_everything();
    let other = scenario::run(
        "timed; peers mission 10 torch-default 15; peers decode_8k 10 flash-attn-3 8; peers 1x1x64x64 10 torch-math 10; \
         peers long 10 torch-math 8!",
    );
    let page = judged(&run, |report| {
        let other = verdict::report(View::alone(&other));
        markdown(&report::document(report, &[other]))
    });
    let headings = page.lines().filter(|line| line.starts_with("##"));
    let headings = headings.filter(|line| line.contains(", NVIDIA") || line.starts_with("###"));
    let score = page.lines().rfind(|line| line.starts_with("**our"));
    let lines: Vec<&str> = headings.chain(score).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    ## The ladder, NVIDIA H200
    ### Main path
    ## Against peers, NVIDIA H200
    ### Small grids
    ### Large grids
    ### Everyday
    ### Decode
    ## Against peers, NVIDIA H200
    **our fastest variant is faster than the fastest peer on 1 of 3 problems, from 0.800x to 1.50x; slower: decode_8k f16 full (0.800x flash-attn-3); undecided: 1x1x64x64 f16 full (1.00x torch-math)**
    ");
}

/// The page of `compare diff` of tables.
fn compared(
    stages: &[StageMeta],
    base: &table::Table,
    new: &table::Table,
) -> super::diff::Comparison {
    let comparison = diff::compare(base, new, true, stages);
    super::diff::Comparison {
        base: "main".into(),
        new: "HEAD".into(),
        overall: of_differences(&comparison.differences),
        pairs: vec![("nvidia-h200".into(), comparison)],
        notes: vec![],
    }
}

#[test]
fn what_was_planted_is_named_at_the_top_of_a_comparison() {
    let (base, stages) = (before(), run("").session.stages);
    let page = |base: &table::Table, new: &table::Table| {
        markdown(&super::diff::document(&compared(&stages, base, new), false))
    };
    for (changes, says) in [
        (
            SLOW,
            "mission f16 full | 15.01 µs → 16.50 µs | worse, 0.91x: ",
        ),
        (
            "cpasync ptxas: spill_bytes 128",
            "f16 d64 sm_90a | bytes **0 → 128** | worse |",
        ),
        (
            "+ cpasync | all | compute-sanitizer | C7 fail memcheck: invalid write of 2 bytes",
            "gate C7 | FAIL | memcheck: invalid write of 2 bytes |",
        ),
    ] {
        let page = page(&base, &table(&[run(changes)]));
        let head: String = page.split_inclusive('\n').take(16).collect();
        let says = format!("| stage1/cpasync-32x64 | {says}");
        assert!(head.contains(&says), "{says}: {head}");
    }
    let page_of_slow = page(&base, &table(&[run(SLOW)]));
    for says in [
        "**REGRESSION: 1 worse, 39 unchanged**\n\n**Changed by this request:** stage0-scalar (2 kernels), stage1-cpasync (1 kernel). \
         Moved: p50.\n\n- Look at the regressions: undo them, or state in the change what they buy.\n\n`HEAD` against `main` (base).\n\n\
         ### Time\n\n| kernel | at | p50 | verdict |\n",
        "| 15.01 µs → 16.50 µs | worse, 0.91x: beyond 3.0 %, the usual variation between sessions |",
    ] {
        assert!(page_of_slow.contains(says), "{says}: {page_of_slow}");
    }
    assert_eq!(page_of_slow.matches("\n| ").count(), 2, "{page_of_slow}");
    // A variant is new if the base has nothing of it.
    for (lacks, is_new) in [("- cpasync", true), ("- all", false)] {
        let page = page(&table(&[run(lacks)]), &base);
        let says = "### New\n\n- stage1-cpasync/cpasync-32x64\n";
        assert_eq!(page.contains(says), is_new, "{page}");
    }
}

#[test]
fn a_variant_that_two_sources_know_is_new_once() {
    let tables = |changes: &str| {
        let emulated = scenario::run(&format!("emulated{changes}")).named("1");
        let timed = scenario::run(&format!("timed{changes}")).named("2");
        table(&[emulated, timed])
    };
    let stages = run("").session.stages;
    let comparison = compared(&stages, &tables("; - cpasync"), &tables(""));
    let page = markdown(&super::diff::document(&comparison, false));
    let line = format!("- {CPASYNC}\n");
    assert_eq!(page.matches(&line).count(), 1, "{page}");
}

#[test]
fn a_comparison_with_the_committed_table_fits_on_a_screen_or_two() {
    let (stages, base) = committed();
    let mut new = base.clone();
    let slow: Vec<Row> = base.latencies().cloned().collect();
    new.extend(slow.into_iter().map(|mut row| {
        let Figure { value, .. } = row.estimate(Metric::P50);
        row.figures.insert(
            Metric::P50,
            (1.2 * value, 1.19 * value, 1.21 * value).into(),
        );
        (row.session, row.identity, row.code) = ("later".into(), Some("other".into()), None);
        row
    }));
    for (new, word) in [(&base, "NO DATA"), (&new, "REGRESSION")] {
        let comparison = compared(&stages, &base, new);
        assert_eq!(comparison.overall.word, word);
        let document = super::diff::document(&comparison, false);
        fits_the_terminal(&document, 100);
        let has_more =
            |document: &[Block]| markdown(document).contains(" more: `compare diff BASE NEW`");
        assert_eq!(has_more(&document), word == "REGRESSION");
        assert!(!has_more(&super::diff::document(&comparison, true)));
        assert!(markdown(&document).len() < 20_000);
    }
}

#[test]
fn refuted_claims_stand_before_open_ones() {
    // 1.21x of a claimed 1.50x, and 1.10x of 1.10x in a newer stage.
    judged(&scenario::run("timed 20 16.5 15"), |report| {
        let text = markdown(&report::document(report, &[]));
        let (_, claims) = text.split_once("## Claims that do not hold").unwrap();
        let row = |claim: &str| claims.find(claim).expect(claim);
        let refuted = row("stage0 wmma-qk over stage0 scalar");
        let open = row("stage1 cpasync over stage0 wmma-qk");
        assert!(refuted < open, "{claims}");
    });
}
