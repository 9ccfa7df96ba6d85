use super::kernels::{KernelInAll, changed_line, kernel_names};
use super::*;
use common::metric::Metric;
use common::verdict::{GateId, Verdict};
use document::markdown::markdown;
use results::judge::diff::KernelState;
use results::judge::verdict::of_differences;
use results::table::Run;
use results::table::Subject;
use results::testing::{
    CPASYNC, IN_EMULATOR, US, WMMA, counters, declared, emulated, instance, ladder, latency, row,
    timed,
};

fn compared(base: &Run, new: &Run) -> Comparison {
    let pair = diff::compare(&base.table, &new.table, true, &ladder());
    Comparison {
        base: "main".into(),
        new: "HEAD".into(),
        concessions: vec![],
        overall: of_differences(&pair.differences),
        pairs: vec![("nvidia-h200".into(), pair)],
        notes: vec![],
    }
}

/// A second variant of a family.
const WIDE: &str = "stage1-cpasync/cpasync-64x64";

fn with_second_variant() -> Run {
    emulated().with_variant(CPASYNC, "cpasync-64x64")
}

/// Returns the line on changed kernels, without its label.
fn changed_kernels(base: &Run, new: &Run) -> String {
    let text = changed_line(&compared(base, new)).to_string();
    text.replace("Changed by this request: ", "")
}

#[test]
fn equal_sides_have_no_changed_kernel() {
    assert_eq!(
        changed_kernels(&emulated(), &emulated()),
        "no kernel. 3 kernels are the same. No figure has moved."
    );
}

#[test]
fn a_kernel_of_another_identity_has_changed() {
    assert_eq!(
        changed_kernels(&emulated(), &emulated().with_identity(1, "new")),
        "stage1-cpasync (1 kernel). 2 kernels are the same. No figure has moved."
    );
}

#[test]
fn a_kernel_of_the_same_machine_code_has_changed_in_sources_alone() {
    let base = timed(US).built_throughout(96, 0);
    let new = base.clone().with_identity(1, "new").built_throughout(80, 0);
    assert_eq!(
        changed_kernels(&base, &new),
        "in sources alone, with the same machine code, stage1-cpasync (1 kernel). \
         2 kernels are the same. Moved: registers, occupancy (blocks)."
    );
}

#[test]
fn all_kernels_of_a_stage_are_counted() {
    let new = timed(US).with_identity(0, "new").with_identity(1, "new");
    assert_eq!(
        changed_kernels(&timed(US), &new),
        "stage0-scalar (2 kernels), stage1-cpasync (1 kernel). No figure has moved."
    );
}

#[test]
fn counters_that_moved_are_named() {
    let new = emulated()
        .with_identity(1, "new")
        .counted(CPASYNC, 1_048_576, 32);
    assert_eq!(
        changed_kernels(&emulated(), &new),
        "stage1-cpasync (1 kernel). 2 kernels are the same. \
         Moved: shared wavefronts, bank conflicts."
    );
}

#[test]
fn a_variant_that_is_no_longer_declared_is_gone() {
    let base = with_second_variant();
    let new = base.clone().without_subject(WIDE);
    assert_eq!(
        changed_kernels(&base, &new),
        "gone stage1/cpasync-64x64. 3 kernels are the same. No figure has moved."
    );
}

#[test]
fn a_variant_that_the_base_does_not_have_is_new() {
    let base = emulated().without_subject(CPASYNC);
    assert_eq!(
        changed_kernels(&base, &emulated()),
        "new stage1-cpasync (1 kernel). 2 kernels are the same. No figure has moved."
    );
}

#[test]
fn latencies_that_moved_are_named() {
    let base = timed(US)
        .with_identity(0, "a")
        .with_identity(1, "b")
        .named("1");
    assert_eq!(
        changed_kernels(&base, &timed([32.0, 20.0, 13.0])),
        "stage0-scalar (2 kernels), stage1-cpasync (1 kernel). Moved: p50."
    );
}

/// Returns the names of the first of all kernels.
fn names_of(changed: usize, all: &[&str]) -> String {
    let subjects: Vec<Subject> = all.iter().map(|name| Subject::from(*name)).collect();
    let kernels = subjects.iter().map(|subject| KernelInAll {
        subject,
        state: KernelState::Changed,
    });
    let changed_subjects: Vec<&Subject> = subjects.iter().take(changed).collect();
    kernel_names(&changed_subjects, &Vec::from_iter(kernels))
}

#[test]
fn whole_stages_are_counted_and_some_variants_of_one_are_named() {
    let whole = names_of(3, &["s3/a", "s3/b", "s4/a"]);
    assert_eq!(whole, "s3 (2 kernels), s4 (1 kernel)");
    let part = names_of(3, &["s3/a", "s3/b", "s4/a", "s3/c"]);
    assert_eq!(part, "s3/a, s3/b, s4 (1 kernel)");
}

#[test]
fn many_stages_are_counted() {
    let all = ["s0/a", "s1/a", "s2/a", "s3/a", "s4/a", "s5/a"];
    assert_eq!(names_of(6, &all), "6 kernels of 6 stages");
}

#[test]
fn many_of_more_variants_are_counted() {
    let all = ["s3/a", "s3/b", "s3/c", "s3/d", "s3/e", "s3/f"];
    assert_eq!(names_of(5, &all), "s3 (5 of its 6 kernels)");
}

/// The sides are as of a stage whose padding was taken away: registers, shared bytes, conflicts and
/// time, in one row per kernel and place.
#[test]
fn all_that_moved_of_a_kernel_is_shown_and_nothing_else() {
    let base = timed(US)
        .with_row(row(
            "cpasync | f16 d64 | kernel | threads 128 | dynamic_shared_bytes 55296",
        ))
        .with_row(row(
            "cpasync | f16 d64 sm_90a | ptxas | registers 96 | occupancy 0.25 | \
             loop_instructions 372 | loop_hmma 32 | loop_lds 15",
        ));
    let new = base
        .clone()
        .named("9")
        .with_identity(1, "new")
        .with_figure(CPASYNC, declared(), Metric::DynamicSharedBytes, 47_104.0)
        .with_figure(CPASYNC, instance(), Metric::Registers, 80.0)
        .with_figure(CPASYNC, instance(), Metric::Occupancy, 0.3125)
        .with_figure(CPASYNC, instance(), Metric::LoopInstructions, 360.0)
        .with_figure(CPASYNC, instance(), Metric::LoopLds, 12.0)
        .with_figure(CPASYNC, counters(), Metric::SharedReadConflicts, 196_608.0)
        .with_figure(CPASYNC, counters(), Metric::SharedReadWavefronts, 900_000.0)
        .with_figure(CPASYNC, latency(), Metric::P50, (18.0, 17.99, 18.01));
    let page = markdown(&document(&compared(&base, &new), true));
    for part in [
        "**Changed by this request:** stage1-cpasync (1 kernel). 2 kernels are the same. \
         Moved: p50, shared bytes, registers, main loop, occupancy (blocks), shared wavefronts, \
         bank conflicts.",
        "### Time\n\n| kernel | at | p50 | verdict |",
        "| stage1/cpasync-32x64 | mission f16 full | 15.01 µs → 18.00 µs | worse, 0.83x: beyond ",
        "| kernel | at | shared bytes | registers | main loop | occupancy (blocks) | verdict |",
        "| stage1/cpasync-32x64 | f16 d64 | 55,296 → 47,104 | – | – | – | changed |",
        "| f16 d64 sm_90a | – | 96 → 80 | instructions 372 → 360; LDS 15 → 12 | \
         25.0 % (4 per SM) → 31.2 % (5 per SM) (the measured",
        "| stage1/cpasync-32x64 | mission f16 full | loads 96 → 900,000 | \
         loads **0 → 196,608** | worse |",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let (_, tables) = page.split_once("###").unwrap();
    for same in ["HMMA", "threads", "stage0", "global"] {
        assert!(!tables.contains(same), "{same}: {page}");
    }
}

#[test]
fn a_kernel_whose_figures_are_the_same_has_no_row() {
    let comparison = compared(&emulated(), &emulated().with_identity(1, "new"));
    let page = markdown(&document(&comparison, true));
    assert!(!page.contains("###"), "{page}");
}

#[test]
fn a_variant_that_is_gone_is_named() {
    let base = with_second_variant();
    let new = base.clone().without_subject(WIDE);
    let page = markdown(&document(&compared(&base, &new), true));
    let row = "| stage1/cpasync-64x64 | variant | declared → – | \
               the new side does not declare it: removed or renamed |";
    assert!(page.contains(row), "{page}");
}

#[test]
fn a_variant_that_is_new_is_named() {
    let base = emulated().without_subject(CPASYNC);
    let page = markdown(&document(&compared(&base, &emulated()), true));
    let list = "### New\n\n- stage1-cpasync/cpasync-32x64";
    assert!(page.contains(list), "{page}");
}

/// Returns a term that was eased.
fn eased(kind: Eased, what: &str, change: &str, why: Option<&str>) -> Concession {
    Concession {
        stage: "stage1-cpasync".into(),
        kind,
        what: what.into(),
        change: change.into(),
        why: why.map(String::from),
    }
}

#[test]
fn what_a_change_eases_comes_before_what_has_moved() {
    let mut comparison = compared(&timed(US), &timed([32.0, 20.0, 25.0]));
    comparison.concessions = vec![
        eased(
            Eased::Negative,
            "cpasync p50 over stage0-scalar wmma-qk",
            "refuted",
            Some("memory bounds it"),
        ),
        eased(Eased::Cap, "cpasync_f16_d64", "registers 96 → 104", None),
    ];
    let page = markdown(&document(&comparison, false));
    let head: String = page.split("### Time").next().unwrap().to_string();
    for line in [
        "### New negatives and waivers",
        "| stage1 | cpasync p50 over stage0-scalar wmma-qk | refuted | memory bounds it |",
        "### Raised caps",
        "| stage1 | cpasync_f16_d64 | registers 96 → 104 |",
    ] {
        assert!(head.contains(line), "{line}: {page}");
    }
}

/// Returns a run without and one with other times, in which stage 1 has another kernel.
fn retimed(us: [f64; 3]) -> [Run; 2] {
    let new = timed(us).with_identity(1, "new").named("2");
    [timed(US).named("1"), new]
}

/// Returns a run in which the variant fails gate C2 in the emulator.
fn failing(run: Run, subject: &str) -> Run {
    run.with_gate(subject, IN_EMULATOR, GateId::C2, Verdict::Fail)
}

/// Returns a run in which stage 1 has another kernel, that nobody has timed.
fn untimed() -> Run {
    emulated().with_identity(1, "new")
}

/// Returns the line on what is worse.
fn worse(base: &Run, new: &Run) -> String {
    let line = headlines::worse_line(&compared(base, new));
    line.map(|text| text.to_string()).unwrap_or_default()
}

#[test]
fn what_is_worse_is_named_with_its_first_place() {
    let [base, slower] = retimed([32.0, 20.0, 18.0]);
    assert_eq!(
        worse(&base, &slower),
        "Worse: p50 15.01 µs → 18.02 µs, +20.1 % (stage1/cpasync-32x64 on mission f16 full)."
    );
}

#[test]
fn what_is_worse_in_many_places_is_named_once() {
    let new = failing(failing(emulated(), CPASYNC), WMMA);
    assert_eq!(
        worse(&emulated(), &new),
        "Worse: gate C2 (accuracy) PASS → FAIL (stage0/wmma-qk-32x64 and 1 more kernel)."
    );
}

#[test]
fn errors_of_a_kernel_that_fails_are_left_to_its_gates() {
    let with_error =
        |share| emulated().with_figure(CPASYNC, IN_EMULATOR, Metric::RowErrorOfBound, share);
    let [base, new] = [with_error(0.1), with_error(0.9)];
    assert!(worse(&base, &new).starts_with("Worse: row error of its bound"));
    assert_eq!(
        worse(&base, &failing(new, CPASYNC)),
        "Worse: gate C2 (accuracy) PASS → FAIL (stage1/cpasync-32x64)."
    );
}

#[test]
fn a_race_is_named_before_the_outputs_that_are_wrong_by_it() {
    let new = failing(emulated(), WMMA).with_gate(CPASYNC, IN_EMULATOR, GateId::H1, Verdict::Fail);
    assert_eq!(
        worse(&emulated(), &new),
        "Worse: gate H1 (races, missing waits) – → FAIL (stage1/cpasync-32x64); gate C2 \
         (accuracy) PASS → FAIL (stage0/wmma-qk-32x64)."
    );
}

#[test]
fn nothing_is_called_worse_where_nothing_moved() {
    assert_eq!(worse(&timed(US), &timed(US)), "");
}

#[test]
fn nothing_is_called_worse_where_a_kernel_is_faster() {
    let [base, faster] = retimed([32.0, 20.0, 13.0]);
    assert_eq!(worse(&base, &faster), "");
}

#[test]
fn what_is_better_is_named_with_its_factor() {
    let [base, faster] = retimed([32.0, 20.0, 7.0]);
    let line = headlines::improved_line(&compared(&base, &faster)).unwrap();
    assert_eq!(
        line.to_string(),
        "Improved: p50 15.01 µs → 7.007 µs, -53.3 % (stage1/cpasync-32x64 on mission f16 full)."
    );
}

/// Returns the line on what was checked.
fn checked(base: &Run, new: &Run) -> String {
    headlines::checked_line(&compared(base, new)).to_string()
}

#[test]
fn a_changed_kernel_that_nobody_timed_is_said_to_be_untimed() {
    let line = checked(&emulated(), &untimed());
    assert!(
        line.ends_with("none fails; no changed kernel was timed."),
        "{line}"
    );
}

#[test]
fn times_of_changed_kernels_are_counted() {
    let [base, new] = retimed(US);
    let line = checked(&base, &new);
    assert!(
        line.ends_with("none fails; 1 time of changed kernels."),
        "{line}"
    );
}

#[test]
fn nothing_is_said_of_times_where_no_kernel_has_changed() {
    let line = checked(&emulated(), &emulated());
    assert!(line.ends_with("none fails."), "{line}");
}

#[test]
fn gates_that_fail_are_counted() {
    let line = checked(&emulated(), &failing(emulated(), CPASYNC));
    assert!(line.contains(", 1 fail"), "{line}");
}

#[test]
fn gates_that_nobody_measured_are_no_verdicts() {
    let new = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C2, Verdict::NoData);
    let line = checked(&emulated(), &new);
    assert!(
        line.ends_with("none fails; 1 not measured (gate C2)."),
        "{line}"
    );
}

#[test]
fn a_changed_kernel_that_nobody_timed_needs_an_action() {
    let mut comparison = compared(&emulated(), &untimed());
    comparison.overall = Overall::same_table();
    let [action] = &headlines::actions(&comparison)[..] else {
        panic!("one action");
    };
    assert!(action.starts_with("Time it on a GPU"), "{action}");
}

#[test]
fn kernels_that_are_the_same_need_no_action() {
    let mut same = compared(&emulated(), &emulated());
    same.overall = Overall::same_table();
    assert_eq!(headlines::actions(&same), ["No action needed."]);
}

/// Returns a run whose counters of one variant are gone.
fn without_counters(run: Run) -> Run {
    run.without_row(CPASYNC, counters())
}

/// Returns a comparison whose new side lacks these figures of one variant.
fn lacking(metrics: &[Metric]) -> Comparison {
    let mut comparison = compared(&emulated(), &without_counters(emulated()));
    let differences = &mut comparison.pairs[0].1.differences;
    let mut one = differences.iter().find(|one| one.required).unwrap().clone();
    differences.clear();
    for metric in metrics {
        one.what = What::Metric(*metric);
        differences.push(one.clone());
    }
    comparison
}

#[test]
fn a_variant_that_lacks_much_is_one_line() {
    let metrics = [Metric::P50, Metric::P90, Metric::Registers];
    let page = markdown(&document(&lacking(&metrics), false));
    let line = "- stage1-cpasync/cpasync-32x64: p50 on mission f16 full, and 2 more: built or";
    assert!(page.contains(line), "{page}");
}

#[test]
fn a_variant_that_lacks_two_figures_names_both() {
    let page = markdown(&document(&lacking(&[Metric::P50, Metric::P90]), false));
    let line = "p50 on mission f16 full, p90 on mission f16 full: built or";
    assert!(page.contains(line), "{page}");
}

#[test]
fn what_a_failing_kernel_lacks_is_not_asked_for() {
    let new = without_counters(failing(emulated(), CPASYNC));
    let page = markdown(&document(&compared(&emulated(), &new), false));
    assert!(
        page.contains(": not measured, since a gate fails"),
        "{page}"
    );
    assert!(!page.contains("Measure what the base has"), "{page}");
}

/// Returns how many rows of a comparison are of a gate that fails in all and in one problem.
fn rows_of_gate(is_whole: bool) -> usize {
    let new =
        failing(emulated(), CPASYNC).with_gate(CPASYNC, counters(), GateId::C2, Verdict::Fail);
    let page = markdown(&document(&compared(&emulated(), &new), is_whole));
    page.matches("| stage1/cpasync-32x64 | gate C2").count()
}

#[test]
fn a_gate_that_fails_in_many_cases_is_one_line() {
    assert_eq!(rows_of_gate(false), 1);
}

#[test]
fn each_case_of_a_gate_that_fails_is_shown_where_all_is() {
    assert_eq!(rows_of_gate(true), 2);
}
