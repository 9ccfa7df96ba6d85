//! What the pages say of a small literal table, and that they stay small for the committed one.

use super::insights::insights;
use super::ladder::{over_fastest, score};
use super::show::Section;
use super::*;
use crate::document::Document;
use crate::document::markdown::markdown;
use crate::document::terminal::{WIDTH, terminal};
use crate::judge::diff;
use crate::judge::verdict::{self, Report, of_differences};
use crate::judge::{Known, best};
use crate::table::session::{Progress, first_place};
use crate::table::{self, On, Place, Run, Source, StageMeta};
use crate::testing::{CPASYNC, US, VARIANTS, WMMA, instance, mission, table, timed};
use clap::ValueEnum;
use common::problem::{Dtype, Mask, SHAPES};
use common::verdict::GateResult;

const NEWER: &str = "2";

fn fails(reason: &str) -> table::Judged {
    table::Judged::from(&GateResult::judge(GateId::C2, false, reason))
}

/// 1.5x over a peer on mission, which is coarser, and 0.8x on long.
fn run() -> Run {
    let mut run = timed(US).built(128, 0);
    for (shape, ours, theirs) in [("mission", 15.0, 22.5), ("long", 30.0, 24.0)] {
        run = run.beside(CPASYNC, shape, ours, &[("torch-default", theirs, true)]);
    }
    // Else kernels of the same machine code have not changed.
    for subject in VARIANTS {
        run.row_mut(subject, &instance(), Source::Ptxas).code = None;
    }
    let peer = run.row_mut("torch-default", &mission(), Source::Peers);
    peer.figures.insert(Metric::MaxError, 2e-2.into());
    run
}

/// Of other kernels than [`run`].
fn before() -> Run {
    let run = run().named("1");
    run.changed(|session| {
        for stage in &mut session.stages {
            stage.identity = "before".into();
        }
    })
}

/// The literal run with these medians, and 10 ns of interval.
fn slower(times: &[(&str, f64)]) -> Run {
    let mut run = run().named(NEWER);
    for (subject, us) in times {
        let figures = &mut run.row_mut(subject, &mission(), Source::Gpu).figures;
        figures.insert(Metric::P50, (*us, us - 0.005, us + 0.005).into());
        figures.insert(Metric::P90, (us + 0.01).into());
    }
    run
}

fn report_of(stages: &[StageMeta], table: &table::Table, look: impl Fn(&Report<'_>)) {
    look(&verdict::report(Known::committed(stages, table)));
}

fn committed() -> (Vec<StageMeta>, table::Table) {
    let results = crate::testing::results();
    let table = results.of_gpu(results.main().unwrap());
    (crate::stages::builds().unwrap(), table)
}

fn fits_the_terminal(document: &Document, most: usize) {
    let text = terminal(document, WIDTH);
    let widest = text.lines().map(|line| line.chars().count()).max();
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
    let texts = document.blocks.iter().flat_map(|block| match block {
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
    let run = slower(&[(CPASYNC, 16.5), (WMMA, 23.0)]);
    let committed = table(&[before()]);
    let report = verdict::report_of_run(&run, &committed);
    insta::assert_snapshot!(can_go_with_a_pull_request(&report));
    let json = json::json(&report);
    assert_eq!(json["verdict"]["word"], "PASS");
    assert_eq!(json["since"]["counts"]["worse"], 2);
    assert_eq!(json["states"].as_array().unwrap().len(), 3);
    assert_eq!(
        json["rows"].as_array().unwrap().len(),
        run.table.rows().count()
    );
}

#[test]
fn what_is_missing_or_stale_is_said_on_the_first_screen() {
    let (stages, table) = committed();
    let mut changed = stages.clone();
    for stage in &mut changed {
        stage.identity = "changed".into();
    }
    let one = On::claims(first_place(stages.last()).dtype);
    let unmeasured = table.part(|row| row.by != Source::Emulator || row.on != one);
    let nothing = table::Table::default();
    for (stages, table, says) in [
        (
            &changed,
            &table,
            [
                "STALE",
                " stale\n",
                "- STALE, measured on kernels that have changed since: ",
            ],
        ),
        (
            &stages,
            &unmeasured,
            [
                "- required data that is missing: ",
                "- Measure what is missing: `compare --stages stage11-spread,stage12-decode,",
                "## Missing data that is required",
            ],
        ),
        (
            &stages,
            &nothing,
            [
                "**INCOMPLETE: ",
                "every row: there is no run",
                " without data\n",
            ],
        ),
    ] {
        report_of(stages, table, |report| {
            let text = can_go_with_a_pull_request(report);
            let first: String = text.split_inclusive('\n').take(20).collect();
            for words in says {
                assert!(first.contains(words), "{words}: {first}");
            }
            assert!(
                text.contains("| [stage11-spread](stage11-spread/README.md) |"),
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
    let timed = against_peers_on_everything(timed(US)).table;
    let of_peers = timed
        .by(Source::Peers)
        .filter(|row| row.on.problem().is_some());
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
        table.extend(rows.into_iter().map(|row| Row {
            subject: renamed(&row.subject),
            against: row.against.as_ref().map(renamed),
            ..row
        }));
        stages.push(StageMeta { id: again, ..stage });
    }
    report_of(&stages, &table, |report| {
        assert!(ladder::ladder(report).columns.len() <= 8);
        can_go_with_a_pull_request(report);
    });
    let failed: Vec<Row> = table
        .rows()
        .filter(|row| row.on == On::All)
        .cloned()
        .collect();
    table.extend(failed.into_iter().map(|mut row| {
        row.judge(GateId::C2, fails(&"max error 3e-1 > 4e-4 ".repeat(20)));
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

#[test]
fn parts_are_shown_as_asked_for_with_failures_first_and_a_stage_on_a_page() {
    let mut run = run();
    for (of, share) in [(WMMA, 0.02), (CPASYNC, 0.1)] {
        let profiled = Row::new(of, mission(), Source::Ncu);
        run.append(profiled.figure(Metric::TensorPipeActive, share));
    }
    let page = |run: &Run, stage: &str| {
        let report = &verdict::report(Known::alone(run));
        terminal(&show::document(report, &[], &[stage.into()]), WIDTH)
    };
    insta::assert_snapshot!("stage", page(&run, "stage1-cpasync"));
    let worst = run.row_mut(WMMA, &On::All, Source::Gpu);
    worst.judge(GateId::C2, fails("max error 3e-1 > 4e-4"));
    let failed = page(&run, "stage0-scalar");
    let says = "- gates: 1 of 2 variants green, wmma-qk-32x64 FAIL C2\n";
    assert!(failed.contains(says), "{failed}");
    let report = &verdict::report(Known::alone(&run));
    let all = terminal(&show::document(report, &[Section::Gates], &[]), 140);
    let place = |name: &str| all.find(name).unwrap_or_else(|| panic!("{name}: {all}"));
    let [failed, green] = ["wmma-qk", "scalar"].map(|family| format!("stage0/{family}-32x64"));
    assert!(place(&failed) < place(&green), "{all}");
    let parts = [Section::Gates, Section::Peers, Section::Counters];
    let of_one = show::document(
        report,
        &parts,
        &["stage0-scalar".into(), "stage1-cpasync".into()],
    );
    insta::assert_snapshot!("parts", terminal(&of_one, 140));
    assert!(stage::blocks(report, "stage9").is_empty());
}

#[test]
fn every_part_and_stage_of_the_committed_table_fits_the_terminal() {
    let (stages, table) = committed();
    report_of(&stages, &table, |report| {
        for stage in report.known.stages {
            let page = Document::of(stage::blocks(report, &stage.id));
            assert!(!page.blocks.is_empty());
            fits_the_terminal(&page, 60);
        }
        // A stage that nobody has measured yet shows no latencies.
        let is_measured = |id: &str| table.by(Source::Gpu).any(|row| row.subject.stage() == id);
        let last = stages.iter().rfind(|stage| is_measured(&stage.id)).unwrap();
        let last = last.id.clone();
        for &section in Section::value_variants() {
            for of_stages in [vec![], vec![last.clone()]] {
                let page = show::document(report, &[section], &of_stages);
                let text = terminal(&page, WIDTH);
                assert!(!text.contains("NO DATA.\n"), "{section:?}: {text}");
                fits_the_terminal(&page, usize::MAX);
            }
        }
    });
}

#[test]
fn each_insight_speaks_where_its_rule_holds() {
    let mut run = run();
    let figures = &mut run.row_mut(CPASYNC, &instance(), Source::Ptxas).figures;
    figures.insert(Metric::SpillBytes, 64.0.into());
    let counted = [
        (Metric::GlobalReadBytes, 1_048_576.0),
        (Metric::GlobalReadSectors, 65_536.0),
        (Metric::AsyncCopyBytes, 262_144.0),
        (Metric::SharedReadConflicts, 24.0),
        (Metric::LaunchBlocks, 128.0),
        (Metric::TensorMacs, 134_217_728.0),
    ];
    let figures = &mut run.row_mut(CPASYNC, &mission(), Source::Emulator).figures;
    figures.extend(counted.map(|(metric, value)| (metric, value.into())));
    let profiled = Row::new(CPASYNC, mission(), Source::Ncu).figure(Metric::BarrierStallShare, 0.3);
    let profiled = profiled.figure(Metric::DramThroughput, 0.81);
    run.append(profiled.figure(Metric::TensorPipeActive, 0.39));
    let declared = On::Instance {
        dtype: Dtype::F16,
        head_dim: 64,
        arch: None,
    };
    let declared = Row::new(CPASYNC, declared, Source::Kernel).figure(Metric::Threads, 128_u32);
    run.append(declared.figure(Metric::MinBlocks, 4_u32));
    insta::assert_snapshot!(insights(&Known::alone(&run), &CPASYNC.into()).join("\n"));

    // What TMA copies does not go through registers.
    let figures = &mut run.row_mut(CPASYNC, &mission(), Source::Emulator).figures;
    figures.extend([
        (Metric::AsyncCopyBytes, 0.0.into()),
        (Metric::TmaReadBytes, 1_048_576.0.into()),
    ]);
    let by_tma = insights(&Known::alone(&run), &CPASYNC.into()).join("\n");
    assert!(!by_tma.contains("through registers"), "{by_tma}");
    let none = insights(&Known::alone(&run), &"stage1-cpasync/none".into());
    assert_eq!(none, ["No rule applies to the figures."]);
}

#[test]
fn a_claimed_gain_at_big_is_shown_with_its_measured_pair() {
    let big = Place::new("big", Dtype::F16, Mask::Full);
    let run = timed(US).changed(|session| {
        let claims = &mut session.stages[1].claims;
        let on = big.clone();
        claims.push(table::Claim {
            on,
            ..claims[0].clone()
        });
    });
    let gain = |run: &Run| {
        let table = ladder::ladder(&verdict::report(Known::alone(run)));
        table.rows[1].last().unwrap().shown().to_string()
    };
    assert_eq!(gain(&run), "– (1.10x)");
    let mut rows = run.table.of(&CPASYNC.into(), Source::Gpu);
    let pair = rows.find(|row| row.against.is_some() && row.on == mission());
    let mut pair = pair.unwrap().clone();
    pair.on = On::Problem(big);
    assert_eq!(gain(&run.clone().with(pair.clone())), "1.33x (1.10x)");
    pair.judge(GateId::C2, fails("off"));
    assert_eq!(gain(&run.clone().with(pair)), "– (1.10x)");
}

#[test]
fn a_ratio_is_an_interleaved_row_and_a_wrong_output_has_none() {
    let session = || timed(US).peers("mission", 10.0, &[("torch-default", 20.0, true)]);
    let run = session();
    let place = Place::claims(Dtype::F16);
    let over = |run: &Run| {
        let known = Known::alone(run);
        over_fastest(&known, &known.stages[1], &place)
    };
    let previous = |run: &Run| {
        let table = ladder::ladder(&verdict::report(Known::alone(run)));
        [3, 4].map(|column| table.rows[1][column].shown().to_string())
    };
    assert_eq!(over(&run), Some((2.0, false)));
    assert_eq!(previous(&run), ["15.01", "1.33x (1.10x)"]);
    // Both medians are there, and no quotient is formed of them.
    let alone = session().without(|row| row.against.is_some());
    assert_eq!(previous(&alone), ["15.01", "– (1.10x)"]);
    assert_eq!(over(&alone), None);
    let mut wrong = session();
    let ours = wrong.row_mut(CPASYNC, &mission(), Source::Peers);
    ours.judge(GateId::C2, fails("off"));
    assert_eq!(over(&wrong), None);
    let mut stale = session();
    stale.session.stages[1].identity = "changed".into();
    assert_eq!(over(&stale), Some((2.0, true)));
    let stale = previous(&stale);
    assert_eq!(stale, ["15.01 (STALE)", "1.33x (STALE) (1.10x)"]);
}

/// Ours at 10 µs against a peer on each named problem, and in each element type where that is timed.
fn against_peers_on_everything(run: Run) -> Run {
    let named = SHAPES.iter().filter(|named| named.name != "small");
    let problems = named.flat_map(|named| named.masks.iter().map(move |mask| (named, *mask)));
    let problems = problems.flat_map(|(named, mask)| {
        let has_all =
            ["mission", "long", "big", "big_wide"].contains(&named.name) || named.shape.is_decode();
        let dtypes = Dtype::ALL
            .into_iter()
            .filter(move |dtype| has_all || *dtype == Dtype::F16);
        dtypes.map(move |dtype| Place::new(named.name, dtype, mask))
    });
    problems.fold(run, |run, place| {
        run.beside_on(CPASYNC, &place, 10.0, &[("flash-attn-4", 11.0, true)])
    })
}

#[test]
fn problems_are_shown_by_kind_and_of_another_gpu_model_what_is_lost() {
    let run = against_peers_on_everything(timed(US));
    let other = timed(US)
        .peers("mission", 10.0, &[("torch-default", 15.0, true)])
        .peers("decode_8k", 10.0, &[("flash-attn-3", 8.0, true)])
        .peers("1x1x64x64", 10.0, &[("torch-math", 10.0, true)])
        .peers("long", 10.0, &[("torch-math", 8.0, false)]);
    let of = |run: &Run, others: &[Report<'_>]| {
        let known = Known::alone(run);
        markdown(&report::document(&verdict::report(known), others))
    };
    let other = verdict::report(Known::alone(&other));
    let page = of(&run, &[other]);
    let headings = page.lines().filter(|line| line.starts_with("##"));
    let headings = headings.filter(|line| line.contains(", NVIDIA"));
    let score = page.lines().rfind(|line| line.starts_with("**Our"));
    let lines: Vec<&str> = headings.chain(score).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    ## The ladder, NVIDIA H200
    ## Against peers, NVIDIA H200
    ### Small grids, NVIDIA H200
    ### Large grids, NVIDIA H200
    ### Everyday, NVIDIA H200
    ### Decode, NVIDIA H200
    ## Against peers, NVIDIA H200
    ## Claims, NVIDIA H200
    **Our fastest stage is faster than the fastest peer on 1 of 3 problems, slower on 1 and inconclusive on 1**: from 0.80x (decode_8k f16 full) to 1.50x (mission f16 full).
    ");
}

#[test]
fn what_is_inconclusive_is_neither_won_nor_lost() {
    for (times, says) in [
        (
            &[("mission", 20.0), ("long", 10.0), ("wide", 5.0)][..],
            "than the fastest peer on 1 of 3 problems, slower on 1 and inconclusive on 1: from 0.50x",
        ),
        (
            &[("mission", 20.0), ("wide", 5.0)],
            "on 1 of 2 problems and slower on 1: from",
        ),
    ] {
        let on = |run: Run, &(shape, us): &(&str, f64)| {
            run.peers(shape, 10.0, &[("torch-default", us, true)])
        };
        let run = times.iter().fold(timed(US), on);
        let score = score(&Known::alone(&run)).unwrap().to_string();
        assert!(score.contains(says), "{score}");
    }
}

/// The page of `compare diff` of tables.
fn compared(
    stages: &[StageMeta],
    pairs: &[(&table::Table, &table::Table)],
) -> super::diff::Comparison {
    let pairs = pairs.iter().map(|(base, new)| super::diff::Pair {
        name: "nvidia-h200".into(),
        comparison: diff::compare(base, new, true, stages),
        new: (*new).clone(),
    });
    let pairs: Vec<_> = pairs.collect();
    let all = pairs
        .iter()
        .flat_map(|pair| pair.comparison.differences.clone());
    super::diff::Comparison {
        base: "main".into(),
        new: "HEAD".into(),
        overall: of_differences(&all.collect::<Vec<_>>()),
        pairs,
        unpaired: vec![],
        run: None,
        stages: stages.to_vec(),
    }
}

#[test]
fn what_was_planted_is_named_at_the_top_of_a_comparison() {
    let base = table(&[before()]);
    let stages = run().session.stages;
    let slow = slower(&[(CPASYNC, 16.5)]);
    let mut spilled = run();
    let figures = &mut spilled.row_mut(CPASYNC, &instance(), Source::Ptxas).figures;
    figures.insert(Metric::SpillBytes, 128.0.into());
    let finding = GateResult::judge(GateId::C7, false, "memcheck: invalid write of 2 bytes");
    let sanitized = Row::new(CPASYNC, On::All, Source::ComputeSanitizer).verdict(&finding);
    let found = run().with(sanitized);
    for (new, says) in [
        (
            &slow,
            "| stage1/cpasync-32x64 | p50 on mission f16 full | 15.01 µs → 16.50 µs | 0.91x; ",
        ),
        (
            &spilled,
            "| stage1/cpasync-32x64 | spilled bytes on f16 d64 sm_90a | 0 → 128 | ",
        ),
        (
            &found,
            "| stage1/cpasync-32x64 | gate C7 | FAIL | memcheck: invalid write of 2 bytes |",
        ),
    ] {
        let page = markdown(&super::diff::document(&compared(
            &stages,
            &[(&base, &table(std::slice::from_ref(new)))],
        )));
        let head: String = page.split_inclusive('\n').take(14).collect();
        assert!(head.contains(says), "{head}");
    }
    let comparison = compared(&stages, &[(&base, &table(&[slow]))]);
    insta::assert_snapshot!(markdown(&super::diff::document(&comparison)));
    let json = super::diff::json(&comparison);
    assert_eq!(json["verdict"]["word"], "REGRESSION");
    assert!(json["pairs"][0]["differences"].as_array().unwrap().len() > 4);
    // A variant is new if the base has nothing of it.
    for is_new in [true, false] {
        let mut less = base.clone();
        less.retain(|row| match is_new {
            true => row.subject.as_str() != CPASYNC,
            false => row.on != On::All,
        });
        let page = markdown(&super::diff::document(&compared(
            &stages,
            &[(&less, &base)],
        )));
        let says = "### New\n\n| variant | gates |";
        assert_eq!(page.contains(says), is_new, "{page}");
    }
}

#[test]
fn a_comparison_with_the_committed_table_fits_on_a_screen_or_two() {
    let (stages, base) = committed();
    let mut new = base.clone();
    let slow: Vec<Row> = best::timed(&base).cloned().collect();
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
        let comparison = compared(&stages, &[(&base, new)]);
        assert_eq!(comparison.overall.word, word);
        let document = super::diff::document(&comparison);
        fits_the_terminal(&document, 100);
        assert!(markdown(&document).len() < 20_000);
    }
}
