//! Tests of what the pages say about a small literal table, and that they stay small for the
//! committed one.

use super::cells::*;
use super::show::Section;
use super::*;
use clap::ValueEnum;
use common::claim::{Rival, Where};
use common::metric::Metric;
use common::problem::{Dtype, Mask, SHAPES};
use common::verdict::{GateId, GateResult, Verdict};
use document::markdown::markdown;
use document::terminal::terminal;
use document::{Block, row};
use results::judge::View;
use results::judge::diff;
use results::judge::main_gpu::main_gpu;
use results::judge::state;
use results::judge::verdict::{self, Report, of_differences};
use results::table::session::Progress;
use results::table::{
    self, Figure, Kind, Place, ProblemPlace, Relation, Role, Row, Run, Source, StageMeta, Subject,
};
use results::testing::{
    CPASYNC, ON_GPU, PeerArm, SCALAR, US, WMMA, emulated, instance, latency, mission, pair_with,
    row, table, time_beside_peers, timed,
};

/// Returns the literal run, 1.5x over a peer on mission and 0.8x on long. Kernels of one machine
/// code are the same, so that none has any.
fn literal() -> Run {
    let long = ProblemPlace::new("long", Dtype::F16, Mask::Full);
    timed(US)
        .built_throughout(128, 0)
        .for_each_variant(|run, subject| run.without_code(subject))
        .beside(CPASYNC, &mission(), 15.0, &[torch_default(22.5)])
        .beside(CPASYNC, &long, 30.0, &[torch_default(24.0)])
}

fn torch_default(us: f64) -> PeerArm<'static> {
    PeerArm::right("torch-default", us)
}

/// Returns the table of a session on other kernels.
fn before() -> table::Table {
    table(&[literal()
        .named("1")
        .with_identity(0, "before")
        .with_identity(1, "before")])
}

/// Returns a newer session, in which a variant is slower.
fn slower() -> Run {
    literal()
        .named("2")
        .with_figure(CPASYNC, latency(), Metric::P50, (16.5, 16.495, 16.505))
        .with_figure(CPASYNC, latency(), Metric::P90, 16.51)
}

fn report_on(run: &Run) -> Report<'_> {
    verdict::report(View::alone(run))
}

fn committed() -> (Vec<StageMeta>, table::Table) {
    let results = results::testing::results();
    let stages = stages::builds().unwrap();
    let table = results.of_gpu(main_gpu(&results, &stages).unwrap());
    (stages, table)
}

fn assert_fits_the_terminal(document: &[Block], max_lines: usize) {
    let text = terminal(document);
    assert!(text.lines().count() <= max_lines, "{text}");
    for line in text.lines() {
        // A command is not broken.
        let has_words = line.trim().contains(' ');
        assert!(!has_words || line.chars().count() <= 100, "{text}");
    }
}

/// Returns the page, which has at most 20 KB and 200 lines, and none of its sentences cut.
fn small_page(report: &Report<'_>) -> String {
    let document = report::document(report, &[]);
    let text = markdown(&document);
    assert!(text.len() <= 20_000, "{} bytes:\n{text}", text.len());
    let lines = text.lines().count();
    assert!(lines <= 200, "{lines} lines:\n{text}");
    for block in &document {
        match block {
            Block::Bullets(items) => {
                for item in items {
                    assert!(!item.to_string().contains('…'), "{item}");
                }
            }
            Block::Paragraph(paragraph) => {
                assert!(!paragraph.to_string().contains('…'), "{paragraph}");
            }
            Block::Heading { .. } | Block::Table(_) => {}
        }
    }
    assert_fits_the_terminal(&document, usize::MAX);
    text
}

#[test]
fn what_decides_stands_first_in_compare_md() {
    let run = slower()
        .with_figure(WMMA, latency(), Metric::P50, (23.0, 22.995, 23.005))
        .with_figure(WMMA, latency(), Metric::P90, 23.01);
    let committed = before();
    let report = verdict::report_of_run(&run, &committed);
    insta::assert_snapshot!(small_page(&report));
}

#[test]
fn a_run_shows_what_it_measured_alone() {
    let run = emulated()
        .without_subject(SCALAR)
        .without_subject(WMMA)
        .of_stages(&["stage1-cpasync"]);
    let page = small_page(&report_on(&run));
    let (_, after) = page.split_once("## The ladder\n\n").unwrap();
    let (ladder, _) = after.split_once("\n## ").unwrap();
    let rows = Vec::from_iter(ladder.lines().filter(|line| line.starts_with("| ")));
    assert_eq!(rows.len(), 2, "{page}");
    assert!(rows[1].starts_with("| 1 cpasync"), "{page}");
}

/// Checks that the first screen has all of `parts`.
#[track_caller]
fn assert_on_first_screen(stages: &[StageMeta], table: &table::Table, parts: &[&str]) {
    let text = small_page(&verdict::report(View::committed(stages, table)));
    let screen: String = text.split_inclusive('\n').take(24).collect();
    for part in parts {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let last_stage = "| [11](stage11-spread/README.md) |";
    assert!(text.contains(last_stage), "{text}");
}

/// Returns the committed table without its random problems: a goal of the choice that is missed
/// would come first.
fn committed_without_random_problems() -> (Vec<StageMeta>, table::Table) {
    let (stages, table) = committed();
    let part = table.part(|row| row.source() != Source::Draw);
    (stages, part)
}

#[test]
fn a_stale_table_is_named_on_the_first_screen() {
    let (mut stages, table) = committed_without_random_problems();
    // What was never measured would come first.
    let mut unmeasured = Vec::from_iter(stages.iter().flat_map(StageMeta::subjects));
    let view = View::committed(&stages, &table);
    unmeasured.retain(|subject| state::cases(&view, subject).is_none());
    for stage in &mut stages {
        stage.identity = "changed".into();
        stage.claims.clear();
        for subject in &unmeasured {
            if subject.stage() == stage.id {
                stage
                    .variants
                    .retain(|variant| variant.name != subject.name());
            }
        }
    }
    assert_on_first_screen(
        &stages,
        &table,
        &[
            "**STALE: ",
            "- **old**: ",
            " are stale again: `compare --full --stages ",
        ],
    );
}

#[test]
fn missing_rows_are_named_on_the_first_screen() {
    let (stages, table) = committed_without_random_problems();
    let place = ProblemPlace::claims(stages.last().unwrap().first_dtype());
    let counters = Kind::Counters(place);
    let uncounted = table.part(|row| row.kind != counters);
    assert_on_first_screen(
        &stages,
        &uncounted,
        &[
            " required rows are missing, first ",
            "- Measure what is missing: `compare --full --stages ",
            "## Missing data that is required",
        ],
    );
}

#[test]
fn an_empty_table_is_named_on_the_first_screen() {
    let (stages, _) = committed();
    assert_on_first_screen(
        &stages,
        &table::Table::default(),
        &[
            "**NOT MEASURED: ",
            "every row: there is no run",
            " not measured\n",
        ],
    );
}

#[test]
fn compare_md_stays_small() {
    let (stages, table) = committed();
    small_page(&verdict::report(View::committed(&stages, &table)));
}

/// Returns the committed table with times beside peers on every problem, and its last three stages
/// again.
fn larger_ladder() -> (Vec<StageMeta>, table::Table) {
    let (mut stages, mut table) = committed();
    for row in against_peers_on_everything()
        .table
        .rows_by(Source::Peers)
        .filter(|row| row.problem().is_some())
    {
        if table.get(&row.key()).is_none() {
            table.append(row.clone());
        }
    }
    let last_three = stages[stages.len() - 3..].to_vec();
    for stage in last_three {
        stages.push(add_stage_again(stage, &mut table));
    }
    (stages, table)
}

/// Adds the rows of a stage under another name. Returns the other stage.
fn add_stage_again(stage: StageMeta, table: &mut table::Table) -> StageMeta {
    let again = format!("{}-again", stage.id);
    let renamed = |subject: &Subject| {
        if subject.stage() == stage.id {
            Subject::variant(&again, subject.name())
        } else {
            subject.clone()
        }
    };
    let rows: Vec<Row> = table
        .rows()
        .filter(|row| row.subject.stage() == stage.id)
        .cloned()
        .collect();
    for mut row in rows {
        row.subject = renamed(&row.subject);
        if let Kind::Pair { base, .. } | Kind::PeerPair { base, .. } = &mut row.kind {
            *base = renamed(base);
        }
        table.append(row);
    }
    StageMeta { id: again, ..stage }
}

#[test]
fn compare_md_stays_small_with_more_stages() {
    let (stages, table) = larger_ladder();
    let report = verdict::report(View::committed(&stages, &table));
    let mut columns = Vec::new();
    for block in ladder::tables(&report, Block::subsection) {
        if let Block::Table(shown) = block {
            columns.push(shown.columns.len());
        }
    }
    // SM clock, W and mJ per call are the last of both: each has a stage that is timed sustained.
    assert_eq!(columns, [10, 11]);
    small_page(&report);
}

#[test]
fn compare_md_stays_small_where_everything_fails() {
    let (mut stages, mut table) = larger_ladder();
    let failed: Vec<Row> = table
        .rows()
        .filter(|row| row.place() == Place::All)
        .cloned()
        .collect();
    let reason = "max error 3e-1 > 4e-4 ".repeat(20);
    let wrong = GateResult::judge(GateId::C2, false, reason);
    for mut row in failed {
        row.identity = table::kernels::identity(&stages, &row);
        row.judge(GateId::C2, (&wrong).into());
        table.append(row);
    }
    for stage in &mut stages {
        stage.negatives.clear();
    }
    for session in table.sessions.values_mut() {
        session.progress = Progress::Partial {
            finished: 1,
            planned: 2,
        };
    }
    let text = small_page(&verdict::report(View::committed(&stages, &table)));
    let verdict_line = text.lines().nth(2).unwrap();
    assert!(verdict_line.starts_with("**FAIL: "), "{text}");
}

fn shown(report: &Report<'_>, parts: &[Section], stages: &[&str]) -> Vec<Block> {
    let asked = show::Asked {
        parts,
        stages: &stages
            .iter()
            .map(|stage| stage.to_string())
            .collect::<Vec<_>>(),
        shared: vec![row! { "variant" => "stage0/scalar-32x64", "buffers" => "q 4,608" }],
        ..show::Asked::default()
    };
    show::document(report, &asked)
}

/// Returns the literal run, in which a variant fails a gate.
fn red() -> Run {
    literal().with_failure(WMMA, ON_GPU, GateId::C2, "max error 3e-1 > 4e-4")
}

#[test]
fn variants_that_fail_stand_first() {
    let run = red();
    let text = terminal(&shown(&report_on(&run), &[Section::Gates], &[]));
    let failed = text.find("stage0/wmma-qk-32x64").unwrap();
    let passed = text.find("stage0/scalar-32x64").unwrap();
    assert!(failed < passed, "{text}");
}

#[test]
fn parts_are_shown_as_asked_for() {
    let run = red();
    let parts = [Section::Gates, Section::Peers, Section::Counters];
    let page = shown(
        &report_on(&run),
        &parts,
        &["stage0-scalar", "stage1-cpasync"],
    );
    insta::assert_snapshot!("parts", terminal(&page));
}

#[test]
fn a_stage_is_shown_with_its_gates_latencies_and_claims() {
    let run = red();
    let text = terminal(&shown(&report_on(&run), &[], &["stage0-scalar"]));
    for part in [
        "== ladder ==",
        "== gates ==",
        "== latencies ==",
        "== claims ==",
        "stage0/wmma-qk-32x64",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("cpasync-32x64"), "{text}");
}

/// Returns the last stage with rows of a source: one that nobody has measured yet shows no
/// latencies, and one that nobody has profiled no profile.
fn last_stage_with(source: Source, stages: &[StageMeta], table: &table::Table) -> String {
    let mut last = None;
    for stage in stages {
        let mut rows = table.rows_by(source);
        if rows.any(|row| row.subject.stage() == stage.id) {
            last = Some(&stage.id);
        }
    }
    last.unwrap().clone()
}

#[test]
fn every_part_of_the_committed_table_fits_the_terminal() {
    let (stages, table) = committed();
    let report = verdict::report(View::committed(&stages, &table));
    for section in Section::value_variants() {
        let source = match section {
            Section::Profile => Source::Ncu,
            _ => Source::Gpu,
        };
        let stage = last_stage_with(source, &stages, &table);
        for wanted in [&[][..], &[&*stage]] {
            let page = shown(&report, &[*section], wanted);
            let text = terminal(&page);
            assert!(!text.contains("Not measured.\n"), "{section:?}: {text}");
            assert_fits_the_terminal(&page, usize::MAX);
        }
    }
}

/// Returns the time and the gain of the second stage, as the ladder has them.
fn time_and_gain(run: &Run) -> String {
    let report = report_on(run);
    let cells = ladder::stage_row(&report, &report.view.stages[1]);
    format!("{} µs, {}", cells[2].1.shown(), cells[3].1.shown())
}

#[test]
fn a_gain_is_shown_with_its_claim() {
    assert_eq!(time_and_gain(&timed(US)), "15.0 µs, 1.33x (1.10)");
}

#[test]
fn a_gain_is_shown_with_its_refuted_claim() {
    let refuted = timed([32.0, 20.0, 19.0]).with_refuted_claim(1, 0);
    assert_eq!(time_and_gain(&refuted), "19.0 µs, 1.05x (1.10 ✗)");
}

#[test]
fn a_gain_is_shown_with_its_undecided_claim() {
    let noisy = timed(US).with_figure(CPASYNC, pair_with(WMMA), Metric::Noise, 0.5);
    assert_eq!(time_and_gain(&noisy), "15.0 µs, 1.33x (1.10 ?)");
}

#[test]
fn a_gain_that_is_not_claimed_is_shown() {
    let unclaimed = timed(US).with_first_claims(1, 0);
    assert_eq!(time_and_gain(&unclaimed), "15.0 µs, 1.33x");
}

#[test]
fn a_loss_that_is_not_claimed_is_shown() {
    let slower = timed([32.0, 15.0, 20.0]).with_first_claims(1, 0);
    assert_eq!(time_and_gain(&slower), "20.0 µs, 0.750x");
}

/// Both medians are there, and no quotient is formed of them.
#[test]
fn a_gain_that_was_not_measured_is_its_claim_alone() {
    let alone = timed(US).without_pairs();
    assert_eq!(time_and_gain(&alone), "15.0 µs, (1.10)");
    let unclaimed = alone.with_first_claims(1, 0);
    assert_eq!(time_and_gain(&unclaimed), "15.0 µs, ");
}

#[test]
fn a_wrong_gain_is_not_shown() {
    let wrong = timed(US).with_gate(CPASYNC, pair_with(WMMA), GateId::C2, Verdict::Fail);
    assert_eq!(time_and_gain(&wrong), "15.0 µs, (1.10)");
}

#[test]
fn a_stale_gain_is_not_shown() {
    let stale = timed(US).with_later_identity(1, "changed");
    assert_eq!(time_and_gain(&stale), " µs, (1.10)");
}

/// Nor is a time beside peers one of a kernel alone.
#[test]
fn a_gain_is_not_taken_from_times_beside_peers() {
    let beside = timed(US).peers("mission", 10.0, &[torch_default(20.0)]);
    assert_eq!(time_and_gain(&beside), "15.0 µs, 1.33x (1.10)");
}

/// Returns the gain at big, which the second stage claims there, too.
fn gain_at_big(timed: Run) -> String {
    let run = timed.changed(|session| {
        let claims = &mut session.stages[1].claims;
        let place = ProblemPlace::new("big", Dtype::F16, Mask::Full);
        claims.push(table::Claim {
            place,
            ..claims[0].clone()
        });
    });
    let report = report_on(&run);
    let cells = ladder::stage_row(&report, &report.view.stages[1]);
    cells[6].1.shown().to_string()
}

#[test]
fn a_gain_at_big_is_shown_with_its_claim() {
    let pair = row("cpasync | big f16 full | gpu wmma | speedup_p50 1.333");
    assert_eq!(gain_at_big(timed(US).with_row(pair)), "1.33x (1.10 ?)");
}

#[test]
fn a_gain_at_big_that_was_not_measured_is_its_claim_alone() {
    assert_eq!(gain_at_big(timed(US)), "(1.10)");
}

#[test]
fn a_wrong_gain_at_big_is_not_shown() {
    let wrong = row("cpasync | big f16 full | gpu wmma | speedup_p50 1.333 | C2 fail");
    assert_eq!(gain_at_big(timed(US).with_row(wrong)), "(1.10)");
}

/// A branch is shown at its own problem alone, and not among the rungs.
#[test]
fn a_branch_has_its_own_table_and_problem() {
    let role = Role::Branch {
        purpose: "small grids",
        problem: Where::new("mission", Dtype::F16, Mask::Full),
    };
    let run = timed(US).changed(|session| session.stages[1].role = role);
    let page = markdown(&ladder::tables(&report_on(&run), Block::subsection));
    let (main, branches) = page.split_once("### Branches").unwrap();
    assert!(!main.contains("stage1-cpasync"), "{page}");
    let row = "| small grids | stage1-cpasync | K and V copied one tile ahead | \
               mission f16 full, 1x8x512x64 | 15.0 |";
    assert!(branches.contains(row), "{page}");
    assert!(branches.contains("| 1.33x over stage0 (1.10) |"), "{page}");
}

/// Whatever is printed as failed or missed is in the verdict, and something is to be done about it.
#[test]
fn a_missed_goal_of_the_choice_is_in_the_verdict_of_every_page() {
    let regret = row(
        "attention-ladder | : regret | draw | regret_mean 1.01 | regret_worst 1.275 | cases 240 | \
         draw 240 | note there",
    );
    let run = timed(US).clean().with_row(regret);
    let table = table(std::slice::from_ref(&run));
    let report = verdict::report(View::committed(&run.session.stages, &table));
    let page = markdown(&report::document(&report, &[]));
    let start = "# COMPARE\n\n**FAIL: 1 goal of the library's choice is missed, \
                 first 1.275x at worst";
    assert!(page.starts_with(start), "{page}");
    for part in [
        "1.275x at worst (goal 1.10 ✗; chosen, then fastest: there)",
        "`compare --random-problems 160 --backend cuda`",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("No action needed"), "{page}");
    let text = terminal(&summary::document(&report, None));
    let line = "\nFAIL: 1 goal of the library's choice";
    assert!(text.contains(line), "{text}");
}

/// Peers have columns, ours its rate, and a loss its interval; a time beside peers has the digits
/// that count.
#[test]
fn each_peer_is_a_column_and_the_choice_is_one_beside_ours() {
    let peers = [
        PeerArm::right("flash-attn-4", 20.04),
        PeerArm::right("flash-attn-3", 30.0),
        PeerArm::right("torch-cudnn", 12.346),
        torch_default(12.4),
    ];
    let math = [PeerArm::right("torch-math", 40.0)];
    let run =
        timed(US)
            .beside(CPASYNC, &mission(), 10.0, &peers)
            .beside(WMMA, &mission(), 11.0, &math);
    let mut report = report_on(&run);
    report.chosen = [(mission(), WMMA.into())].into();
    let page = markdown(&report::document(&report, &[]));
    let lines = page
        .lines()
        .filter(|line| line.starts_with("| problem") || line.starts_with("| mission"));
    insta::assert_snapshot!(Vec::from_iter(lines).join("\n"), @"
    | problem | size | ours (stage) | TFLOP/s | library | FA4 | FA3 | cuDNN | PyTorch | best peer / ours |
    | mission f16 full | 1x8x512x64 | 10.0 (1) | 53.6 | 11.0 | 20.1 | 30.0 | 12.4 | 12.4 | 1.24x |
    ");
}

/// The figures of the ladder at big.
struct AtBig {
    /// Time, clock, watts and millijoules of each stage.
    stages: Vec<String>,
    /// The sentence on the regime.
    regime: String,
}

/// Returns what the ladder shows at big of a run with these rows there.
fn at_big(rows: &[(&str, &str)]) -> AtBig {
    let mut run = timed(US);
    for (subject, figures) in rows {
        let time = format!("{subject} | big f16 full | gpu | sm_mhz 1560 | {figures}");
        run = run.with_row(row(&time));
    }
    let report = report_on(&run);
    let mut stages = Vec::new();
    for stage in report.view.stages {
        let cells = ladder::stage_row(&report, stage);
        let shown = [4, 7, 8, 9].map(|column: usize| cells[column].1.shown().to_string());
        stages.push(shown.join("|"));
    }
    let about = markdown(&Vec::from_iter(ladder::about(&report)));
    let mut sentences = about.split(". ");
    let regime = sentences.find(|sentence| sentence.starts_with("Times at big"));
    AtBig {
        stages,
        regime: regime.unwrap_or_default().to_string(),
    }
}

const AT_LIMIT: (&str, &str) = (
    "cpasync",
    "under warm L2, sustained | p50 500 | power_w 697 | power_limit_w 700 | energy_mj 348.2",
);
const UNKNOWN: (&str, &str) = ("scalar", "under warm L2 | p50 900 | power_w 650");
const BELOW: (&str, &str) = (
    "scalar",
    "under warm L2 | p50 950 | power_w 500 | power_limit_w 700",
);

#[test]
fn nothing_is_said_of_a_regime_where_nothing_was_timed_at_big() {
    let AtBig { stages, regime } = at_big(&[]);
    assert_eq!(stages, ["|||", "|||"]);
    assert_eq!(regime, "");
}

#[test]
fn bursts_at_big_are_named_and_their_power_at_one_moment_is_not_shown() {
    let AtBig { stages, regime } = at_big(&[UNKNOWN]);
    assert_eq!(stages, ["900|1560||", "|||"]);
    assert_eq!(regime, "Times at big are of bursts");
}

#[test]
fn a_burst_is_not_shown_among_sustained_times() {
    let AtBig { stages, regime } = at_big(&[UNKNOWN, AT_LIMIT]);
    assert_eq!(stages, ["|||", "500|1560|697|348"]);
    let start = "Times at big are sustained: ";
    assert!(regime.starts_with(start), "{regime}");
}

#[test]
fn a_burst_below_the_limit_is_shown_among_sustained_times() {
    let AtBig { stages, .. } = at_big(&[BELOW, AT_LIMIT]);
    assert_eq!(stages, ["950|1560||", "500|1560|697|348"]);
}

#[test]
fn a_problem_at_the_power_limit_shows_the_arms_that_were_timed_sustained() {
    let sustained = "warm L2, sustained";
    let peers = [
        PeerArm::right("flash-attn-3", 12.0),
        PeerArm::right("torch-cudnn", 13.0),
    ];
    let ratio = row(
        "cpasync | mission f16 full | peers flash-attn-3 | under warm L2, sustained | p50 15 | \
         speedup_p50 1.2 1.19 1.21",
    );
    let run = timed(US)
        .beside(CPASYNC, &mission(), 10.0, &peers)
        .with_conditions(CPASYNC, time_beside_peers(), sustained)
        .with_figure(CPASYNC, time_beside_peers(), Metric::P50, 15.0)
        .with_conditions("flash-attn-3", time_beside_peers(), sustained)
        .with_figure("flash-attn-3", time_beside_peers(), Metric::P50, 18.0)
        .with_row(ratio);
    let page = markdown(&report::document(&report_on(&run), &[]));
    let lines = page
        .lines()
        .filter(|line| line.starts_with("| problem") || line.starts_with("| mission"));
    insta::assert_snapshot!(Vec::from_iter(lines).join("\n"), @"
    | problem | size | regime | ours (stage) | TFLOP/s | FA3 | best peer / ours |
    | mission f16 full | 1x8x512x64 | sustained | 15.0 (1) | 35.8 | 18.0 | 1.20x |
    ");
    assert!(page.contains("take turns of a second"), "{page}");
}

/// Returns a run with ours at 10 µs against a peer on each named problem, and in each element type
/// where that is timed.
fn against_peers_on_everything() -> Run {
    let mut run = timed(US);
    for named in SHAPES.iter().filter(|named| named.name != "small") {
        let is_main = ["mission", "long", "big", "big_wide"].contains(&named.name);
        let has_all_dtypes = is_main || named.shape.is_decode();
        for mask in named.masks {
            for dtype in Dtype::ALL {
                if has_all_dtypes || dtype == Dtype::F16 {
                    let place = ProblemPlace::new(named.name, dtype, *mask);
                    run = run.beside(
                        CPASYNC,
                        &place,
                        10.0,
                        &[PeerArm::right("flash-attn-4", 11.0)],
                    );
                }
            }
        }
    }
    run
}

/// Of 24 problems 22 are won, by 1.1x to 3.2x, and two are not: the ten with the largest gain are
/// left out.
#[test]
fn of_many_problems_of_a_kind_those_that_are_won_by_the_most_are_left_out() {
    let mut run = timed(US);
    for number in 1..=24 {
        let place = ProblemPlace::new(&format!("1x{number}x64x64"), Dtype::F16, Mask::Full);
        let peer_us = if number <= 2 {
            9.0
        } else {
            9.0 + f64::from(number - 1)
        };
        let peer = PeerArm::right("flash-attn-4", peer_us);
        run = run.beside(CPASYNC, &place, 10.0, &[peer]);
    }
    let page = markdown(&report::document(&report_on(&run), &[]));
    let rows = page.lines().filter(|line| line.starts_with("| 1x"));
    assert_eq!(rows.count(), 14);
    for number in [1, 2, 14] {
        assert!(
            page.contains(&format!("| 1x{number}x64x64 f16 full ")),
            "{page}"
        );
    }
    assert!(!page.contains("| 1x15x64x64 f16 full "), "{page}");
    let line = "Ours is faster on 10 more, by 2.30x to 3.20x: `compare show peers`.";
    assert!(page.contains(line), "{page}");
}

#[test]
fn problems_are_shown_by_kind_and_of_another_gpu_model_what_is_lost() {
    let run = against_peers_on_everything();
    let other_run = timed(US)
        .peers("mission", 10.0, &[torch_default(15.0)])
        .peers("decode_8k", 10.0, &[PeerArm::right("flash-attn-3", 8.0)])
        .peers("1x1x64x64", 10.0, &[PeerArm::right("torch-math", 10.0)])
        .peers("long", 10.0, &[PeerArm::wrong("torch-math", 8.0)])
        .without_flash();
    let page = markdown(&report::document(
        &report_on(&run),
        &[report_on(&other_run)],
    ));
    let mut lines = Vec::new();
    for line in page.lines() {
        let is_section = line.starts_with("##") && line.contains(", NVIDIA");
        if is_section || line.starts_with("###") {
            lines.push(line);
        }
    }
    lines.extend(page.lines().rfind(|line| line.starts_with("**our")));
    insta::assert_snapshot!(lines.join("\n"), @"
    ## The ladder, NVIDIA H200
    ### Main path
    ## Against peers, NVIDIA H200
    ### Small grids
    ### Large grids
    ### Everyday
    ### Decode
    ### As served
    ## Against peers, NVIDIA H200
    **our fastest variant is faster than the fastest peer on 1 of 3 problems, from 0.800x to 1.50x; slower: decode_8k f16 full (0.800x flash-attn-3); undecided: 1x1x64x64 f16 full (1.00x torch-math)**; its report: [COMPARE-nvidia-h200.md](COMPARE-nvidia-h200.md)
    ");
}

/// Returns the comparison of two tables.
fn compared(
    stages: &[StageMeta],
    base: &table::Table,
    new: &table::Table,
) -> super::diff::Comparison {
    let comparison = diff::compare(base, new, true, stages);
    super::diff::Comparison {
        concessions: vec![],
        base: "main".into(),
        new: "HEAD".into(),
        overall: of_differences(&comparison.differences),
        pairs: vec![("nvidia-h200".into(), comparison)],
        notes: vec![],
    }
}

/// Returns the page of `compare diff` of two tables.
fn page_of_diff(base: &table::Table, new: &table::Table) -> String {
    let comparison = compared(&literal().session.stages, base, new);
    markdown(&super::diff::document(&comparison, false))
}

/// Checks that what is planted in a run is named on the first lines.
#[track_caller]
fn assert_planted_on_top(run: Run, row: &str) {
    let page = page_of_diff(&before(), &table(&[run]));
    let head: String = page.split_inclusive('\n').take(20).collect();
    let start = format!("| stage1/cpasync-32x64 | {row}");
    assert!(head.contains(&start), "{start}: {head}");
}

#[test]
fn a_slower_kernel_is_named_at_the_top_of_a_comparison() {
    assert_planted_on_top(
        slower(),
        "mission f16 full | 15.01 µs → 16.50 µs | worse, 0.91x: ",
    );
}

#[test]
fn spills_are_named_at_the_top_of_a_comparison() {
    assert_planted_on_top(
        literal().with_figure(CPASYNC, instance(), Metric::SpillBytes, 128.0),
        "f16 d64 sm_90a | bytes **0 → 128** | worse |",
    );
}

#[test]
fn a_gate_that_fails_is_named_at_the_top_of_a_comparison() {
    assert_planted_on_top(
        literal().with_row(row(
            "cpasync | all | compute-sanitizer | C7 fail memcheck: invalid write of 2 bytes",
        )),
        "gate C7 | FAIL | memcheck: invalid write of 2 bytes |",
    );
}

#[test]
fn a_comparison_says_what_is_worse_what_to_do_and_by_how_much() {
    let page = page_of_diff(&before(), &table(&[slower()]));
    for part in [
        "**REGRESSION: 1 worse, 39 unchanged**\n\n\
         **Changed by this request:** stage0-scalar (2 kernels), stage1-cpasync (1 kernel). \
         Moved: p50.\n\n\
         **Worse:** p50 15.01 µs → 16.50 µs, +9.9 % (stage1/cpasync-32x64 on mission f16 full).\n\n\
         **Checked:** 25 verdicts of gates, none fails; 3 times of changed kernels.\n\n\
         - Look at the regressions: undo them, or state in the change what they buy.\n\n\
         `HEAD` against `main` (base); a ratio is base / new, so that below 1x is slower; – did not \
         move; the main loop is counted without the loops in it.\n\n\
         ### Time\n\n| kernel | at | p50 | verdict |\n",
        "| 15.01 µs → 16.50 µs | worse, 0.91x: beyond 3.0 %, \
         the usual variation between sessions |",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("\n| ").count(), 2, "{page}");
}

#[test]
fn a_variant_is_new_if_the_base_has_nothing_of_it() {
    let new = "### New\n\n- stage1-cpasync/cpasync-32x64\n";
    let page = page_of_diff(&table(&[literal().without_subject(CPASYNC)]), &before());
    assert!(page.contains(new), "{page}");
    let page_of_known = page_of_diff(&table(&[literal().without_checks()]), &before());
    assert!(!page_of_known.contains(new), "{page_of_known}");
}

#[test]
fn a_variant_that_two_sources_know_is_new_once() {
    let sessions = [emulated().named("1"), timed(US).named("2")];
    let sessions_before = sessions.clone().map(|run| run.without_subject(CPASYNC));
    let page = page_of_diff(&table(&sessions_before), &table(&sessions));
    let line = format!("- {CPASYNC}\n");
    assert_eq!(page.matches(&line).count(), 1, "{page}");
}

/// Checks the verdict and the size of a comparison with the committed table.
#[track_caller]
fn assert_comparison_fits(comparison: &super::diff::Comparison, word: &str, is_cut: bool) {
    let remark = " more: `compare diff BASE NEW`";
    assert_eq!(comparison.overall.word, word);
    let document = super::diff::document(comparison, false);
    assert_fits_the_terminal(&document, 100);
    let page = markdown(&document);
    assert!(page.len() < 20_000);
    assert_eq!(page.contains(remark), is_cut);
    let whole = markdown(&super::diff::document(comparison, true));
    assert!(!whole.contains(remark));
}

#[test]
fn a_comparison_of_equal_tables_has_no_data() {
    let (stages, base) = committed();
    assert_comparison_fits(&compared(&stages, &base, &base), "NOT MEASURED", false);
}

#[test]
fn a_comparison_in_which_everything_is_slower_fits_on_a_screen_or_two() {
    let (stages, base) = committed();
    let mut slower = base.clone();
    for timed in base.latencies() {
        let mut row = timed.clone();
        let Figure { value, .. } = row.estimate(Metric::P50);
        let slow = (1.2 * value, 1.19 * value, 1.21 * value);
        row.figures.insert(Metric::P50, slow.into());
        row.session = "later".into();
        row.identity = Some("other".into());
        row.code = None;
        slower.append(row);
    }
    assert_comparison_fits(&compared(&stages, &base, &slower), "REGRESSION", true);
}

#[test]
fn a_time_has_three_digits_that_count() {
    for (value, expected) in [
        (4.4, "4.40"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (16.26, "16.3"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1938.2, "1938"),
    ] {
        assert_eq!(three_digits(value), expected);
    }
}

#[test]
fn a_ratio_below_1_has_three_decimals() {
    for (value, expected) in [(0.9994, "0.999x"), (0.9996, "1.00x"), (1.084, "1.08x")] {
        assert_eq!(short_ratio(value), expected);
    }
}

#[test]
fn refuted_claims_stand_before_open_ones() {
    // 1.21x of a claimed 1.50x, and 1.10x of 1.10x in a newer stage.
    let run = timed([20.0, 16.5, 15.0]);
    let text = markdown(&report::document(&report_on(&run), &[]));
    let (_, claims) = text.split_once("## Claims that do not hold").unwrap();
    let row = |claim: &str| claims.find(claim).expect(claim);
    let refuted = row("stage0 wmma-qk over stage0 scalar");
    let open = row("stage1 cpasync over stage0 wmma-qk");
    assert!(refuted < open, "{claims}");
}

/// Returns a run in which cpasync-32x64 takes 10 µs on `long`, where a peer takes so many, and its
/// stage claims to be faster than the fastest peer.
fn claiming_beside_a_peer(us: f64) -> Run {
    let mut run = timed(US).peers("long", 10.0, &[PeerArm::right("torch-flash", us)]);
    let claim = &mut run.session.stages[1].claims[2];
    claim.place.shape = "long".into();
    claim.relation = Relation::FasterThanPeer {
        rival: Rival::FastestPeer,
        at_least: 1.0,
    };
    run
}

/// Returns the row of COMPARE.md about that claim.
fn row_of_claim(run: &Run) -> String {
    let page = markdown(&report::document(&report_on(run), &[]));
    let row = page
        .lines()
        .rfind(|line| line.contains("fastest peer on long"));
    row.expect(&page).to_string()
}

#[test]
fn a_claim_over_the_fastest_peer_says_which_peer_was_not_there() {
    insta::assert_snapshot!(
        row_of_claim(&claiming_beside_a_peer(20.0)),
        @"| stage1 cpasync over the fastest peer on long f16 full | 1.00x | p50 2.00x [2.00, 2.00] ± 0.1 % | undecided | not timed beside flash-attn-3 and flash-attn-4 |"
    );
}

#[test]
fn a_claim_within_noise_says_so() {
    insta::assert_snapshot!(
        row_of_claim(&claiming_beside_a_peer(9.9995).without_flash()),
        @"| stage1 cpasync over the fastest peer on long f16 full | 1.00x | p50 1.00x [1.00, 1.00] ± 0.1 % | undecided | with its noise the interval spans the claim |"
    );
}

/// Returns what COMPARE.md says of the self-test of a run.
fn self_test_of(run: &Run) -> String {
    let page = markdown(&report::document(&report_on(run), &[]));
    let line = page.lines().find(|line| line.contains("self-test:"));
    line.expect(&page).to_string()
}

#[test]
fn mutants_of_these_kernels_are_counted() {
    let line = self_test_of(&timed(US));
    assert!(line.contains("1 of 2 mutants"), "{line}");
}

#[test]
fn mutants_of_former_kernels_are_not_counted() {
    let line = self_test_of(&timed(US).with_later_identity(0, "changed"));
    assert!(line.contains("1 of 1 planted faults killed"), "{line}");
    assert!(!line.contains("mutants"), "{line}");
}
