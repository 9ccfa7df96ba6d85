//! What a session replaces in a table, by the rule of [`Table::merge`], what is dropped and what is
//! of the sources as they are.

use super::*;

/// Returns the rows of a source after these sessions, of nvcc's those of [`WMMA`] alone, and the
/// newest session on a GPU.
fn merged(source: Source, sessions: &[Run]) -> String {
    let table = table_of_sessions(sessions);
    let mut shown = Vec::new();
    for row in table.rows_by(source) {
        if source == Source::Ptxas && row.subject.as_str() != WMMA {
            continue;
        }
        let mut line = format!("{} of {}", row.key(), row.session);
        for metric in [Metric::P50, Metric::Registers, Metric::LoopInstructions] {
            if let Some(value) = row.value(metric) {
                line += &format!(" {value}");
            }
        }
        shown.push(line);
    }
    let newest = table.newest_on_gpu().map(|session| &*session.name);
    let count = table.sessions.len();
    format!("{}\nnewest {newest:?} of {count}", shown.join("\n"))
}

/// Returns a session in which nvcc gave each variant so many registers.
fn built(registers: u32) -> Run {
    timed(US).built_throughout(registers, 0)
}

/// Returns a session in which the code of [`WMMA`] was read.
fn read_throughout() -> Run {
    built(96)
        .with_code(WMMA, "a")
        .with_figure(WMMA, instance(), Metric::LoopInstructions, 64.0)
}

#[test]
fn rows_of_a_variant_that_a_session_did_not_measure_stay() {
    let sessions = [timed(US), timed([31.0, 19.0, 14.0]).without_subject(SCALAR)];
    insta::assert_snapshot!(merged(Source::Gpu, &sessions), @r#"
    stage0-scalar/scalar-32x64 on all by gpu of 1
    stage0-scalar/scalar-32x64 on mission f16 full by gpu of 1 32.03
    stage0-scalar/wmma-qk-32x64 on all by gpu of 2
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu of 2 19.02
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64 of 2 19.02
    stage1-cpasync/cpasync-32x64 on all by gpu of 2
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu of 2 14.01
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64 of 2 14.01
    newest Some("2") of 2
    "#);
}

#[test]
fn a_session_with_peers_replaces_those_of_its_problem() {
    let flash = |us| PeerArm::right("torch-flash", us);
    let of_peers = timed(US)
        .peers(
            "mission",
            10.0,
            &[flash(20.0), PeerArm::right("torch-math", 90.0)],
        )
        .peers("long", 10.0, &[flash(20.0)])
        .beside(WMMA, &mission(), 30.0, &[flash(20.0)]);
    let newer = timed(US).peers("mission", 11.0, &[flash(21.0)]);
    let sessions = [of_peers, newer];
    insta::assert_snapshot!(merged(Source::Peers, &sessions), @r#"
    stage0-scalar/wmma-qk-32x64 on mission f16 full by peers of 1 30.03
    stage0-scalar/wmma-qk-32x64 on mission f16 full by peers against torch-flash of 1 30.03
    stage1-cpasync/cpasync-32x64 on long f16 full by peers of 1 10.01
    stage1-cpasync/cpasync-32x64 on long f16 full by peers against torch-flash of 1 10.01
    stage1-cpasync/cpasync-32x64 on mission f16 full by peers of 2 11.01
    stage1-cpasync/cpasync-32x64 on mission f16 full by peers against torch-flash of 2 11.01
    torch-flash on long f16 full by peers of 1 20.02
    torch-flash on mission f16 full by peers of 2 21.02
    newest Some("2") of 2
    "#);
}

#[test]
fn a_session_on_a_random_problem_replaces_those_of_all_variants() {
    let of_two = timed(US)
        .with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 9"))
        .with_row(row("wmma | 1x1x17x64 f16 full | draw | p50 8"))
        .with_row(row("wmma | 1x1x18x64 f16 full | draw | p50 8"));
    let newer = timed(US).with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 7"));
    let sessions = [of_two, newer];
    insta::assert_snapshot!(merged(Source::Draw, &sessions), @r#"
    stage0-scalar/scalar-32x64 on 1x1x17x64 f16 full by draw of 2 7
    stage0-scalar/wmma-qk-32x64 on 1x1x18x64 f16 full by draw of 1 8
    newest Some("2") of 2
    "#);
}

#[test]
fn a_session_without_the_self_test_leaves_it() {
    let sessions = [emulated(), emulated().without_source(Source::SelfTest)];
    insta::assert_snapshot!(merged(Source::SelfTest, &sessions), @"
    self-test on : correct model by self-test of 1
    self-test on : zeros by self-test of 1
    stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 1
    stage0-scalar/wmma-qk on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 1
    newest None of 2
    ");
}

#[test]
fn a_self_test_of_fewer_faults_takes_the_others_out() {
    let sessions = [
        emulated(),
        emulated().without_row("self-test", Kind::Fault("zeros".into())),
    ];
    insta::assert_snapshot!(merged(Source::SelfTest, &sessions), @"
    self-test on : correct model by self-test of 2
    stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
    stage0-scalar/wmma-qk on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
    newest None of 2
    ");
}

#[test]
fn a_self_test_of_the_same_items_replaces_them() {
    let sessions = [emulated(), emulated()];
    insta::assert_snapshot!(merged(Source::SelfTest, &sessions), @"
    self-test on : correct model by self-test of 2
    self-test on : zeros by self-test of 2
    stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
    stage0-scalar/wmma-qk on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
    newest None of 2
    ");
}

#[test]
fn code_that_is_the_same_stays_of_the_older_session() {
    let sessions = [read_throughout(), read_throughout()];
    insta::assert_snapshot!(merged(Source::Ptxas, &sessions), @r#"
    stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 1 96 64
    newest Some("2") of 2
    "#);
}

#[test]
fn code_of_which_less_is_read_keeps_what_was_read_before() {
    let sessions = [read_throughout(), built(88).with_code(WMMA, "a")];
    insta::assert_snapshot!(merged(Source::Ptxas, &sessions), @r#"
    stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 2 88 64
    newest Some("2") of 2
    "#);
}

#[test]
fn other_code_replaces_all_that_was_read() {
    let sessions = [read_throughout(), built(88).with_code(WMMA, "b")];
    insta::assert_snapshot!(merged(Source::Ptxas, &sessions), @r#"
    stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 2 88
    newest Some("2") of 2
    "#);
}

#[test]
fn unknown_code_replaces_all_that_was_read() {
    let sessions = [
        read_throughout().without_code(WMMA),
        built(88).without_code(WMMA),
    ];
    insta::assert_snapshot!(merged(Source::Ptxas, &sessions), @r#"
    stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 2 88
    newest Some("2") of 2
    "#);
}

#[test]
fn a_time_of_the_same_key_is_that_of_the_later_session() {
    let first = timed(US).named("1");
    let second = timed([31.0, 19.0, 14.0]).named("2");
    let table = table(&[first, second]);
    let row = table
        .latency(&WMMA.into(), &mission())
        .expect("both sessions timed it");
    assert_eq!(row.session, "2");
    assert_eq!(row.value(Metric::P50), Some(19.02));
}

#[test]
fn a_time_that_a_later_session_did_not_take_stays() {
    let first = timed(US).named("1");
    let second = timed([31.0, 19.0, 14.0]).without_subject(WMMA).named("2");
    let table = table(&[first, second]);
    let row = table
        .latency(&WMMA.into(), &mission())
        .expect("the first session timed it");
    assert_eq!(row.session, "1");
}

#[test]
fn a_pair_is_stale_where_its_base_alone_has_changed() {
    let stages = timed(US).with_identity(0, "new").session.stages;
    let table = table(&[timed(US)]);
    let (new, base) = (CPASYNC.into(), WMMA.into());
    let pair = table.pair(&new, &base, &mission()).unwrap();
    assert!(kernels::is_stale(&stages, pair));
    let alone = table.latency(&new, &mission()).unwrap();
    assert!(!kernels::is_stale(&stages, alone));
}

#[test]
fn a_pair_is_stale_where_its_subject_alone_has_changed() {
    let stages = timed(US).with_identity(1, "new").session.stages;
    let table = table(&[timed(US)]);
    let (new, base) = (CPASYNC.into(), WMMA.into());
    let pair = table.pair(&new, &base, &mission()).unwrap();
    assert!(kernels::is_stale(&stages, pair));
    let of_base = table.latency(&base, &mission()).unwrap();
    assert!(!kernels::is_stale(&stages, of_base));
}

/// Returns whether a table of nine cases of [`WMMA`] covers the row of a run over all its cases.
#[track_caller]
fn is_covered(run: &Run) -> bool {
    let nine = timed(US).with_figure(WMMA, ON_GPU, Metric::Cases, 9.0);
    let table = table_of_sessions(&[nine]);
    let covers = |kind| table.covers(run.table.row(&WMMA.into(), kind).unwrap());
    assert!(!covers(latency()), "a latency is of no cases");
    covers(ON_GPU)
}

/// Returns a run that checked so many cases of [`WMMA`].
fn with_cases(count: f64) -> Run {
    timed(US).with_figure(WMMA, ON_GPU, Metric::Cases, count)
}

#[test]
fn verdicts_over_more_cases_cover_those_over_fewer() {
    assert!(is_covered(&with_cases(2.0)));
}

#[test]
fn verdicts_over_as_many_or_fewer_cases_cover_nothing() {
    assert!(!is_covered(&with_cases(9.0)));
    assert!(!is_covered(&with_cases(10.0)));
}

#[test]
fn verdicts_over_more_cases_do_not_cover_a_failure() {
    let red = with_cases(2.0).with_gate(WMMA, ON_GPU, GateId::C2, Verdict::Fail);
    assert!(!is_covered(&red));
}

#[test]
fn verdicts_over_more_cases_do_not_cover_another_kernel() {
    assert!(!is_covered(&with_cases(2.0).with_identity(0, "new")));
}

/// Returns what is left of two sessions, with a row of a family that was alone in it, where the
/// sources are these.
fn pruned(sources: &Run) -> String {
    let emulated_stage1 = emulated().without(|row| row.subject.stage() != "stage1-cpasync");
    let beside_flash = timed(US)
        .peers("mission", 10.0, &[PeerArm::right("torch-flash", 20.0)])
        .with_row(row(
            "stage1-cpasync/cpasync | mission f16 full | gpu | p50 9",
        ));
    let mut table = table_of_sessions(&[emulated_stage1, beside_flash]);
    table.prune(&sources.session.stages);
    let mut subjects: Vec<&str> = table.rows().map(|row| row.subject.as_str()).collect();
    subjects.dedup();
    let pairs = table.rows().filter(|row| row.base().is_some()).count();
    let sessions = table.sessions.len();
    let tail = format!("{pairs} pairs of {sessions} sessions");
    format!("{}\n{tail}", subjects.join("\n"))
}

#[test]
fn rows_of_families_that_are_not_variants_go() {
    let sources = emulated();
    insta::assert_snapshot!(pruned(&sources), @"
    self-test
    stage0-scalar/scalar
    stage0-scalar/scalar-32x64
    stage0-scalar/wmma-qk
    stage0-scalar/wmma-qk-32x64
    stage1-cpasync/cpasync-32x64
    torch-flash
    3 pairs of 2 sessions
    ");
}

#[test]
fn rows_of_a_variant_that_is_refused_go_with_its_family_and_pairs() {
    let sources = emulated().without_variant(SCALAR);
    insta::assert_snapshot!(pruned(&sources), @"
    self-test
    stage0-scalar/wmma-qk
    stage0-scalar/wmma-qk-32x64
    stage1-cpasync/cpasync-32x64
    torch-flash
    2 pairs of 2 sessions
    ");
}

#[test]
fn rows_of_a_stage_that_is_gone_go_with_their_session() {
    let mut sources = emulated();
    sources.session.stages.pop();
    insta::assert_snapshot!(pruned(&sources), @"
    self-test
    stage0-scalar/scalar
    stage0-scalar/scalar-32x64
    stage0-scalar/wmma-qk
    stage0-scalar/wmma-qk-32x64
    torch-flash
    1 pairs of 1 sessions
    ");
}

#[test]
fn rows_of_all_stages_go() {
    let mut sources = emulated();
    sources.session.stages.clear();
    insta::assert_snapshot!(pruned(&sources), @"
    self-test
    torch-flash
    0 pairs of 1 sessions
    ");
}

#[test]
fn rows_of_an_element_type_that_a_variant_no_longer_has_go() {
    let mut stages = ladder();
    let run = timed(US).with_row(row("scalar | mission e4m3 full | gpu | p50 9"));
    let mut table = table_of_sessions(&[run]);
    let rows_of = |merged: &Table, dtype| {
        let rows = merged.rows();
        rows.filter(|row| row.kind.dtype() == Some(dtype)).count()
    };
    table.prune(&stages);
    assert_eq!(rows_of(&table, Dtype::E4m3), 1);
    let rows_of_f16 = rows_of(&table, Dtype::F16);

    for variant in stages.iter_mut().flat_map(|stage| &mut stage.variants) {
        variant
            .kernels
            .retain(|kernel| kernel.facts.dtype != Dtype::E4m3);
    }
    table.prune(&stages);
    assert_eq!(rows_of(&table, Dtype::E4m3), 0);
    assert_eq!(rows_of(&table, Dtype::F16), rows_of_f16);
}

/// Returns the identity and the machine code of all times, after sessions of these builds.
fn restamped(table: &mut Table, built: &Run) -> String {
    table.restamp(&built.session.stages, &built.table);
    let mut lines = Vec::new();
    for row in table.rows() {
        if matches!(row.kind, Kind::Latency(_) | Kind::Pair { .. }) {
            let [identity, code] =
                [&row.identity, &row.code].map(|hash| hash.as_deref().unwrap_or("none"));
            lines.push(format!("{}: {identity}, {code}", row.key()));
        }
    }
    lines.join("\n")
}

/// Returns a build whose first stage has a comment more than that of [`built`].
fn commented() -> Run {
    built(96).with_identity(0, "commented")
}

#[test]
fn rows_of_the_same_machine_code_are_of_the_sources_with_a_comment() {
    let mut table = table_of_sessions(&[built(96)]);
    insta::assert_snapshot!(restamped(&mut table, &commented()), @"
    stage0-scalar/scalar-32x64 on mission f16 full by gpu: commented, code of stage0-scalar/scalar-32x64
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu: commented, code of stage0-scalar/wmma-qk-32x64
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64: commented+commented, code of stage0-scalar/wmma-qk-32x64+code of stage0-scalar/scalar-32x64
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu: stage1-cpasync-i, code of stage1-cpasync/cpasync-32x64
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64: stage1-cpasync-i+commented, code of stage1-cpasync/cpasync-32x64+code of stage0-scalar/wmma-qk-32x64
    ");
}

#[test]
fn rows_of_the_same_machine_code_are_of_the_sources_again_after_a_revert() {
    let mut table = table_of_sessions(&[built(96)]);
    restamped(&mut table, &commented());
    insta::assert_snapshot!(restamped(&mut table, &built(96)), @"
    stage0-scalar/scalar-32x64 on mission f16 full by gpu: stage0-scalar-id, code of stage0-scalar/scalar-32x64
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu: stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64: stage0-scalar-id+stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64+code of stage0-scalar/scalar-32x64
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu: stage1-cpasync-i, code of stage1-cpasync/cpasync-32x64
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64: stage1-cpasync-i+stage0-scalar-id, code of stage1-cpasync/cpasync-32x64+code of stage0-scalar/wmma-qk-32x64
    ");
}

#[test]
fn rows_of_other_machine_code_stay_as_they_were() {
    let mut table = table_of_sessions(&[built(96)]);
    let changed = commented().with_code(WMMA, "other");
    insta::assert_snapshot!(restamped(&mut table, &changed), @"
    stage0-scalar/scalar-32x64 on mission f16 full by gpu: commented, code of stage0-scalar/scalar-32x64
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu: stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64
    stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64: stage0-scalar-id+stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64+code of stage0-scalar/scalar-32x64
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu: stage1-cpasync-i, code of stage1-cpasync/cpasync-32x64
    stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64: stage1-cpasync-i+stage0-scalar-id, code of stage1-cpasync/cpasync-32x64+code of stage0-scalar/wmma-qk-32x64
    ");
}

/// Returns the machine code that a row is about in a run of [`built`] kernels.
fn code_of(built: &Run, text: &str) -> Option<String> {
    kernels::code(&built.table, Some("sm_90a"), &row(text))
}

const MISSION: &str = "wmma | mission f16 full | gpu";

#[test]
fn the_machine_code_of_a_time_is_that_of_its_instance() {
    let code = code_of(&built(96), MISSION);
    assert_eq!(code.as_deref(), Some("code of stage0-scalar/wmma-qk-32x64"));
}

#[test]
fn the_machine_code_of_a_time_on_any_shape_is_that_of_its_instance() {
    let code = code_of(&built(96), "wmma | 1x2:1x113:203x64 f16 full | gpu");
    assert_eq!(code.as_deref(), Some("code of stage0-scalar/wmma-qk-32x64"));
}

#[test]
fn what_is_of_no_compiled_instance_has_no_machine_code() {
    for text in [
        "wmma | mission e4m3 full | gpu",
        "wmma | wide f16 full | gpu",
        "wmma | : x | self-test",
        "torch-flash | mission f16 full | peers",
    ] {
        assert_eq!(code_of(&built(96), text), None, "{text}");
    }
}

#[test]
fn code_for_an_older_gpu_is_not_that_of_a_row() {
    let older = built(96).with_row(row("wmma | f16 d64 sm_80 | ptxas | code x"));
    assert_eq!(code_of(&older, MISSION), code_of(&built(96), MISSION));
}

const ALL_CASES: &str = "wmma | all | gpu";

#[test]
fn the_machine_code_of_all_cases_is_one_hash_of_all_instances_on_the_gpu() {
    let code = code_of(&built(96), ALL_CASES);
    assert_eq!(code.as_deref().map(str::len), Some(16));
    let beside_ada = built(96).with_row(row("wmma | f16 d64 sm_89 | ptxas | code x"));
    assert_eq!(code_of(&beside_ada, ALL_CASES), code);
    let changed = built(96).with_code(WMMA, "other");
    assert_ne!(code_of(&changed, ALL_CASES), code);
}

#[test]
fn a_table_is_compiled_for_the_architecture_of_its_gpu() {
    let table = table_of_sessions(&[
        built(96).with_archs(&["sm_80", "sm_90a"]),
        emulated()
            .built_throughout(96, 0)
            .on_card("NVIDIA H200")
            .with_archs(&["sm_90"]),
    ]);
    assert_eq!(table.compiled_arch(), Some("sm_90a"));
}

/// Returns a run that was built and timed, on sources whose build says 96 registers.
fn on_current_sources(run: &Run) -> Rebased {
    run.on_current_sources(&built(96).table)
}

fn registers(run: &Run) -> Option<f64> {
    let row = run.table.row(&WMMA.into(), instance()).unwrap();
    row.value(Metric::Registers)
}

#[test]
fn a_run_of_other_sources_has_the_registers_of_these_where_the_code_is_the_same() {
    let rebased = on_current_sources(&built(104).with_later_identity(0, "new"));
    assert_eq!(registers(&rebased.run), Some(96.0));
}

#[test]
fn a_run_of_other_code_keeps_its_registers() {
    let rebased = on_current_sources(&built(104).with_code(WMMA, "other"));
    assert_eq!(registers(&rebased.run), Some(104.0));
}

/// Returns a run of other sources, with a case.
fn of_other_sources() -> Run {
    built(96)
        .with_row(row("wmma | mission f16 full normal:0 | gpu"))
        .with_later_identity(0, "new")
}

#[test]
fn a_run_of_other_sources_keeps_what_is_of_the_same_machine_code() {
    assert!(on_current_sources(&of_other_sources()).left_out.is_empty());
}

#[test]
fn a_variant_with_a_time_of_other_code_is_left_out_though_other_rows_stay() {
    let mut changed = of_other_sources();
    changed.row_mut(WMMA, latency()).code = Some("other".into());
    let Rebased { left_out, .. } = on_current_sources(&changed);
    assert!(left_out.iter().eq([&WMMA.into()]), "{left_out:?}");
}

#[test]
fn a_build_alone_is_no_evidence() {
    assert!(!built(96).of_source(Source::Ptxas).has_evidence());
}
