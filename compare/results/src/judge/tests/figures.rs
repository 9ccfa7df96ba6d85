//! Figures that pages show: the best variant of a stage, and times that count.

use super::*;

/// Returns the subject that stands for the first of these sources' stages by a committed table.
fn best_variant(sources: &Run, sessions: &[Run]) -> String {
    let table = table_of_sessions(sessions);
    let view = View::committed(&sources.session.stages, &table);
    subject(&view, &view.stages[0]).name().to_string()
}

/// Returns a run in which the variant that is not the default is the fastest of its stage.
fn scalar_leads() -> Run {
    timed([19.0, 20.0, 15.0])
}

#[test]
fn the_default_stands_for_a_stage_without_times() {
    assert_eq!(best_variant(&emulated(), &[]), "wmma-qk-32x64");
}

#[test]
fn the_fastest_variant_stands_for_a_stage() {
    assert_eq!(best_variant(&emulated(), &[scalar_leads()]), "scalar-32x64");
}

#[test]
fn the_first_of_equally_fast_variants_stands_for_a_stage() {
    let even = timed([20.0, 20.0, 15.0]);
    assert_eq!(best_variant(&emulated(), &[even]), "scalar-32x64");
}

#[test]
fn the_fastest_variant_of_the_newest_session_stands_for_a_stage() {
    let sessions = [timed(US), scalar_leads()];
    assert_eq!(best_variant(&emulated(), &sessions), "scalar-32x64");
}

#[test]
fn a_newer_session_of_the_emulator_has_no_say_in_the_fastest() {
    let sessions = [scalar_leads(), emulated()];
    assert_eq!(best_variant(&emulated(), &sessions), "scalar-32x64");
}

#[test]
fn a_variant_that_fails_a_gate_does_not_stand_for_a_stage() {
    let red = scalar_leads().with_gate(SCALAR, ON_GPU, GateId::C3, Verdict::Fail);
    assert_eq!(best_variant(&emulated(), &[red]), "wmma-qk-32x64");
}

#[test]
fn the_fastest_of_former_kernels_stands_for_a_stage_that_was_not_timed_since() {
    let sources = emulated().rebuilt();
    assert_eq!(best_variant(&sources, &[scalar_leads()]), "scalar-32x64");
}

#[test]
fn the_fastest_of_the_kernels_as_they_are_stands_before_those_of_former_ones() {
    let newer = timed(US).rebuilt().without_subject(SCALAR);
    let sources = emulated().rebuilt();
    assert_eq!(
        best_variant(&sources, &[scalar_leads(), newer]),
        "wmma-qk-32x64"
    );
}

#[test]
fn a_variant_that_the_device_refuses_does_not_stand_for_a_stage() {
    let sources = emulated().without_variant(SCALAR);
    assert_eq!(best_variant(&sources, &[scalar_leads()]), "wmma-qk-32x64");
}

#[test]
fn the_best_of_a_family_is_one_of_its_variants() {
    let (stages, table) = (ladder(), table_of_sessions(&[scalar_leads()]));
    let view = View::committed(&stages, &table);
    let best = best_of(&view, &stages[0], "wmma-qk", &mission()).unwrap();
    assert_eq!(best.subject.as_str(), WMMA);
}

#[test]
fn a_family_has_no_best_where_it_was_not_timed() {
    let (stages, table) = (ladder(), table_of_sessions(&[scalar_leads()]));
    let view = View::committed(&stages, &table);
    let causal = ProblemPlace::new("mission", Dtype::F16, Mask::Causal);
    assert!(best_of(&view, &stages[0], "scalar", &causal).is_none());
}

#[test]
fn a_row_without_a_median_is_no_latency() {
    let untimed = timed(US).without_figure(WMMA, latency(), Metric::P50);
    assert_eq!(untimed.table.latency(&WMMA.into(), &mission()), None);
}

/// A pair has a time, too: that of its new side while it was interleaved.
#[test]
fn a_pair_is_no_latency() {
    let run = timed(US);
    let pair = run
        .table
        .rows()
        .find(|row| matches!(row.kind, Kind::Pair { .. }) && row.has(Metric::P50))
        .expect("timed has pairs");
    assert!(!pair.is_latency());
}

/// Returns the time of [`WMMA`] as it is shown, or why it is not.
fn shown(view: &View<'_>) -> String {
    match best::latency(view, &WMMA.into(), &mission()) {
        Some(Latency::Shown(row)) => {
            let stale = if view.is_stale(row) { " STALE" } else { "" };
            format!("{}{stale}", row.value(Metric::P50).unwrap())
        }
        Some(Latency::Withheld(why)) => why.to_string(),
        None => "none".into(),
    }
}

fn shown_of_table(sources: &Run, sessions: &[Run]) -> String {
    let table = table_of_sessions(sessions);
    shown(&View::committed(&sources.session.stages, &table))
}

#[test]
fn there_is_no_time_without_a_session() {
    assert_eq!(shown_of_table(&emulated(), &[]), "none");
}

#[test]
fn the_time_of_the_newest_session_is_shown() {
    let sessions = [timed(US), timed([32.0, 22.0, 15.0])];
    assert_eq!(shown_of_table(&emulated(), &sessions), "22.02");
}

#[test]
fn a_newer_session_of_the_emulator_leaves_a_time() {
    let sessions = [timed(US), emulated()];
    assert_eq!(shown_of_table(&emulated(), &sessions), "20.02");
}

#[test]
fn a_time_of_a_variant_that_fails_a_gate_is_withheld() {
    let red = timed(US).with_gate(WMMA, ON_GPU, GateId::B1, Verdict::Fail);
    assert_eq!(
        shown_of_table(&emulated(), &[red]),
        "stage0-scalar/wmma-qk-32x64 does not pass C1-C6 and B1"
    );
}

#[test]
fn a_time_of_buffers_that_fail_a_gate_is_withheld() {
    let wrong = timed(US).with_failure(WMMA, latency(), GateId::C5, "they differ");
    assert_eq!(
        shown_of_table(&emulated(), &[wrong]),
        "stage0-scalar/wmma-qk-32x64: C5 failed on the timed buffers: they differ"
    );
}

#[test]
fn a_time_of_a_former_kernel_is_marked() {
    let sources = emulated().rebuilt();
    assert_eq!(shown_of_table(&sources, &[timed(US)]), "20.02 STALE");
}

#[test]
fn a_time_of_a_former_kernel_is_marked_though_the_new_one_was_checked() {
    let sources = emulated().rebuilt();
    let checked = timed(US).rebuilt().without_times();
    assert_eq!(
        shown_of_table(&sources, &[timed(US), checked]),
        "20.02 STALE"
    );
}

#[test]
fn a_time_of_a_kernel_that_was_not_checked_is_withheld() {
    let sources = emulated().rebuilt();
    let unchecked = timed(US).rebuilt().without_checks();
    assert_eq!(
        shown_of_table(&sources, &[timed(US), unchecked]),
        "stage0-scalar/wmma-qk-32x64 was not checked on this kernel"
    );
}

/// Returns what a run on top of a timed session shows.
fn shown_of_run(run: Run) -> String {
    let named = run.named("9");
    let table = table_of_sessions(&[timed(US)]);
    shown(&report_of_run(&named, &table).view)
}

#[test]
fn a_run_shows_its_own_time() {
    assert_eq!(shown_of_run(timed([32.0, 21.0, 15.0])), "21.02");
}

#[test]
fn a_run_without_a_time_shows_that_of_the_table() {
    assert_eq!(shown_of_run(emulated()), "20.02");
}

#[test]
fn a_run_of_other_kernels_marks_the_time_of_the_table() {
    assert_eq!(shown_of_run(emulated().rebuilt()), "20.02 STALE");
}

#[test]
fn a_run_of_another_device_shows_no_time_of_the_table() {
    assert_eq!(shown_of_run(emulated().limited_to("sm_89")), "none");
}

#[test]
fn figures_are_of_the_tables_gpu_wherever_the_emulator_ran() {
    let emulated_beside_h100 = emulated().on_card("NVIDIA H100").named("2");
    let table = table(&[timed(US)]);
    let view = View::of_run(&emulated_beside_h100, &table);
    assert_eq!(view.gpu(), Some(GPU));
}

#[test]
fn a_table_of_the_emulator_has_no_gpu() {
    let stages = ladder();
    let table = table_of_sessions(&[emulated().on_card("NVIDIA H100")]);
    assert_eq!(View::committed(&stages, &table).gpu(), None);
}

/// Returns the verdict of a run without a variant on top of a session, the variant that stands for
/// the stage and the number of times that are shown.
#[track_caller]
fn limited(run: Run) -> String {
    let named = run
        .without_variant(SCALAR)
        .with_first_claims(0, 0)
        .named("9");
    let table = table_of_sessions(&[timed([12.0, 20.0, 15.0])]);
    let report = report_of_run(&named, &table);
    let view = &report.view;
    let best = subject(view, &view.stages[0]);
    let times = best::shown(view).count();
    assert_eq!(report.since.is_some(), times > 0);
    format!("{}\n{}, {times} latencies", report.overall(), best.name())
}

#[test]
fn a_ladder_without_a_variant_has_the_times_of_the_others() {
    insta::assert_snapshot!(limited(emulated()), @"
    PASS: 2 variants pass every gate
    wmma-qk-32x64, 3 latencies
    ");
}

#[test]
fn a_limited_ladder_has_no_figure_of_another_device() {
    insta::assert_snapshot!(limited(emulated().limited_to("sm_89")), @"
    PASS: 2 variants pass every gate (limited to what sm_89 offers)
    wmma-qk-32x64, 0 latencies
    ");
}

/// Returns the verdict on a committed table, its session and GPU, and what is to be done.
fn judged_table(sources: &Run, sessions: &[Run]) -> String {
    let table = table_of_sessions(sessions);
    let view = View::committed(&sources.session.stages, &table);
    let overall = report(view.clone()).overall();
    let session = &view.session().unwrap().name;
    format!(
        "{} {overall}\nof {session} on {}\n{}",
        overall.exit.code(),
        view.gpu().unwrap(),
        lines(&overall.actions)
    )
}

/// Returns a session in which the kernels were built, timed and checked, but for the sanitizer.
fn unsanitized() -> Run {
    timed(US)
        .built_throughout(96, 0)
        .for_each_variant(|run, subject| run.with_gate(subject, ON_GPU, GateId::B1, Verdict::Pass))
}

#[test]
fn a_whole_table_passes_beside_a_newer_session_of_the_emulator() {
    let sessions = [unsanitized().clean(), emulated()];
    insta::assert_snapshot!(judged_table(&emulated(), &sessions), @"
    0 PASS: 3 variants pass every gate
    of 1 on NVIDIA H200
    No action needed.
    ");
}

#[test]
fn a_newer_session_on_another_machine_adds_what_the_compiler_says() {
    let sessions = [unsanitized().clean(), emulated().built_throughout(96, 0)];
    insta::assert_snapshot!(judged_table(&emulated(), &sessions), @"
    0 PASS: 3 variants pass every gate
    of 1 on NVIDIA H200
    No action needed.
    ");
}

#[test]
fn a_table_without_the_sanitizer_is_not_measured() {
    let sessions = [unsanitized()];
    insta::assert_snapshot!(judged_table(&emulated(), &sessions), @"
    3 NOT MEASURED: 3 required rows are missing, first stage0-scalar/scalar-32x64: C7
    of 1 on NVIDIA H200
    Measure what is missing: `compare --full --stages 0,1`. `compare show missing` lists it with the reasons.
    ");
}

#[test]
fn a_table_of_former_kernels_is_stale() {
    let sessions = [unsanitized().clean(), emulated()];
    insta::assert_snapshot!(judged_table(&emulated().rebuilt(), &sessions), @"
    0 STALE: 3 variants were measured on other versions of their kernels, first stage0-scalar/scalar-32x64
    of 1 on NVIDIA H200
    Kernels have changed since they were measured: run `compare` again.
    Measure the 5 figures that are stale again: `compare --full --stages 0,1 --shapes mission`, then `compare accept`.
    ");
}
