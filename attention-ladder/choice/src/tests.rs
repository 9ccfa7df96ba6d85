use super::cover::*;
use super::equations::*;
use super::fit::Fitted;
use super::least_squares::{dot, least_squares};
use super::testing::{LARGE, PLANTED, SMALL, SWIZZLE, drawn_on, drawn_run};
use super::*;
use common::choice::{Blocks, Cost, TERMS, modelled, retain_listed, terms};
use common::device::BackendKind;
use common::problem::{Dtype, Mask};
use common::timing::stats::percentile;
use common::verdict::{GateId, GateResult};
use results::judge::best::p50;
use results::judge::regret::Regret;
use results::table::{Kind, Run, session};
use results::testing::row;
use results::testing::{checked, samples as timing_samples, table};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A variant of a stage that the library does not have.
const NOT_OF_LIBRARY: &str = "stage3-wmma-pv/wmma-pv-32x64";

/// A library of all variants of the stages from 5 on, whatever the packaged one has.
static STAGES: LazyLock<Vec<LoadedStage>> = LazyLock::new(|| {
    let mut stages = stages::load().unwrap();
    let first = stages
        .iter()
        .position(|stage| stage.info().id == "stage5-swizzle");
    stages.drain(..first.unwrap());
    stages
});

fn run_on_random_problems(count: usize) -> Run {
    drawn_run(&STAGES, count)
}

/// Returns a row with a time at random problem 0, full mask.
fn time(variant: &str, shape: &str, dtype: Dtype, us: f64) -> Row {
    row(&format!(
        "{variant} | {shape} {dtype} full | draw | draw 0 | p50 {us}"
    ))
}

fn run_of(rows: impl IntoIterator<Item = Row>) -> Run {
    rows.into_iter()
        .fold(run_on_random_problems(0), Run::with_row)
}

fn wrong(row: Row) -> Row {
    row.verdict(&GateResult::judge(GateId::C2, false, "max error 1"))
}

fn random_rows(run: &Run) -> Vec<Row> {
    random_times(&run.table).cloned().collect()
}

fn is_variant(row: &Row, variant: &str) -> bool {
    row.subject.as_str() == variant
}

fn is_small(row: &Row) -> bool {
    is_variant(row, SMALL)
}

fn is_large(row: &Row) -> bool {
    is_variant(row, LARGE)
}

fn problem_of(row: &Row) -> Problem {
    row.problem().unwrap().problem().unwrap()
}

fn is_e4m3_d128(row: &Row) -> bool {
    let problem = problem_of(row);
    problem.dtype == Dtype::E4m3 && problem.shape.head_dim == 128
}

fn is_fastest(run: &Run, row: &Row) -> bool {
    random_times(&run.table)
        .filter(|other| other.kind == row.kind)
        .all(|other| p50(other) >= p50(row))
}

fn fitted(runs: &[&Run], unseen: Option<usize>) -> Fitted {
    let views: Vec<View<'_>> = runs.iter().map(|run| View::alone(run)).collect();
    fit(&views, &STAGES, unseen).unwrap()
}

fn model(runs: &[&Run]) -> Model {
    fitted(runs, None).model
}

fn costs(run: &Run) -> Vec<Cost> {
    model(&[run]).costs
}

fn has_variant(costs: &[Cost], variant: &str) -> bool {
    costs.iter().any(|cost| cost.variant == variant)
}

/// Returns the time that the row's instance costs.
fn modelled_us(costs: &[Cost], row: &Row) -> f64 {
    let problem = problem_of(row);
    let cost = costs
        .iter()
        .filter(|cost| is_variant(row, &cost.variant))
        .find(|cost| {
            cost.dtype == modelled(problem.dtype) && cost.head_dim == problem.shape.head_dim
        });
    let launch = launch(&STAGES, &row.subject, &problem).unwrap();
    let terms = terms(&problem, launch.kernel, Blocks::new(&launch, 1), 132);
    dot(&terms, &cost.unwrap().us)
}

/// Returns the time that the row's instance costs, over the row's own time.
fn ratio(costs: &[Cost], row: &Row) -> f64 {
    modelled_us(costs, row) / p50(row)
}

fn regret_by(run: &Run, model: &Model) -> Regret {
    regret(&View::alone(run), &STAGES, std::slice::from_ref(model)).unwrap()
}

#[test]
fn a_fit_finds_the_planted_coefficients() {
    let fitted = fitted(&[&run_on_random_problems(480)], None);
    let costs = &fitted.model.costs;
    let count = |variant| costs.iter().filter(|cost| cost.variant == variant).count();
    // Two element types with two head sizes; what is nowhere the fastest has no part, but where the
    // others do not run.
    assert_eq!(count(LARGE), 4);
    assert_eq!(count(SMALL), 4);
    for cost in costs.iter().filter(|cost| cost.variant != SWIZZLE) {
        let planted = PLANTED
            .into_iter()
            .find(|planted| planted.subject == cost.variant)
            .unwrap()
            .coefficients;
        // One block per multiprocessor: rounds are its blocks, but for those that see no key.
        let [
            launch,
            blocks,
            rounds,
            work,
            chain,
            bytes,
            mean,
            longest,
            rows,
        ] = cost.us;
        for (fitted_us, planted_us) in [
            (launch, planted[0]),
            (blocks + rounds, planted[1]),
            (work + chain + mean + longest, planted[3]),
            (bytes, planted[5]),
            (rows, planted[8]),
        ] {
            let error = (fitted_us - planted_us).abs();
            assert!(
                error < 0.1 * planted_us,
                "{cost:?}: {fitted_us} is {planted_us}"
            );
        }
    }
    for line in fitted.residuals() {
        assert!(line.contains("off by 0."), "{line}");
    }
}

#[test]
fn the_choice_by_planted_coefficients_costs_nothing() {
    let run = run_on_random_problems(240);
    let fitted = fitted(&[&run], None);
    let model: Model = serde_json::from_str(&fitted.file()).unwrap();
    assert_eq!(model, fitted.model);
    let regret = regret_by(&run, &model);
    assert!(regret.missed().is_empty(), "{regret}");
    assert!(regret.worst < 1.02, "{regret}");
    assert_eq!(regret.problems, 240);
    assert!(!regret.to_string().contains('✗'), "{regret}");
}

#[test]
fn what_is_chosen_and_was_not_timed_or_is_wrong_is_no_problem_less() {
    let run = run_on_random_problems(240);
    let model = model(&[&run]);
    let large = random_rows(&run).into_iter().filter(is_large);
    let with_wrong_rows = large.map(wrong).fold(run.clone(), Run::with_row);
    for incomplete in [run.without(is_large), with_wrong_rows] {
        let regret = regret_by(&incomplete, &model);
        assert!(!regret.missed().is_empty(), "{regret}");
        assert!(regret.problems < 240, "{regret}");
        assert!(regret.mean >= 1.0, "{regret}");
        assert!(regret.worst < 1.02, "{regret}");
        let lost = 240 - regret.problems;
        let remark = format!("on {lost} what it chooses was not timed");
        assert!(regret.to_string().contains(&remark), "{regret}");
    }
}

fn two_times_of_large() -> Run {
    let shapes = ["1x8x512x64", "1x8x1024x64"];
    run_of(shapes.map(|shape| time(LARGE, shape, Dtype::F16, 9.0)))
}

/// Adds a time at the problem "long", which has a name.
fn with_named_time(run: Run, cold: bool) -> Run {
    let place = ProblemPlace {
        cold,
        ..ProblemPlace::new("long", Dtype::F16, Mask::Full)
    };
    run.with_row(checked(LARGE, BackendKind::Cuda))
        .sampled(LARGE, place, &timing_samples(99.0))
}

#[test]
fn a_fit_goes_by_right_times() {
    let run = two_times_of_large();
    let expected = costs(&run);
    assert_eq!(expected.len(), 1);
    let third = time(LARGE, "1x8x2048x64", Dtype::F16, 1.0);
    assert_ne!(costs(&run.clone().with_row(third.clone())), expected);
    assert_eq!(costs(&run.with_row(wrong(third))), expected);
}

/// Their inputs are in the L2 cache.
#[test]
fn a_fit_goes_by_warm_times_at_named_problems() {
    let run = two_times_of_large();
    let expected = costs(&run);
    assert_eq!(costs(&with_named_time(run.clone(), true)), expected);
    assert_ne!(costs(&with_named_time(run.clone(), false)), expected);
    // SMALL has no time at a random problem, and LARGE has.
    let long = ProblemPlace::new("long", Dtype::F16, Mask::Full);
    let with_small =
        run.with_row(checked(SMALL, BackendKind::Cuda))
            .sampled(SMALL, long, &timing_samples(9.0));
    assert_eq!(costs(&with_small), expected);
}

#[test]
fn named_problems_alone_are_enough_for_a_fit() {
    let mut run = run_on_random_problems(0);
    for shape in ["1x8x512x64", "1x8x1024x64"] {
        let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
        run = run.with_row(checked(LARGE, BackendKind::Cuda)).sampled(
            LARGE,
            place,
            &timing_samples(99.0),
        );
    }
    assert_eq!(costs(&run).len(), 1);
}

/// f16 and bf16 have the same coefficients, and here other times.
fn run_with_other_times_in_bf16() -> Run {
    run_of(["1x8x512x64", "1x8x1024x64"].into_iter().flat_map(|shape| {
        [
            time(LARGE, shape, Dtype::F16, 10.0),
            time(LARGE, shape, Dtype::Bf16, 20.0),
            time(SMALL, shape, Dtype::F16, 20.0),
            time(SMALL, shape, Dtype::Bf16, 10.0),
        ]
    }))
}

#[test]
fn times_where_a_variant_may_be_chosen_weigh_more() {
    let run = run_with_other_times_in_bf16();
    let costs = costs(&run);
    assert_eq!(costs.len(), 2);
    for row in random_rows(&run) {
        let us = modelled_us(&costs, &row);
        assert!((10.0..12.0).contains(&us), "{}: {us}", row.key());
    }
}

/// 10 and 20 of the only variant are 13.3.
#[test]
fn twice_as_long_is_as_wrong_as_half() {
    let run = run_with_other_times_in_bf16().without(is_small);
    let costs = costs(&run);
    for row in random_rows(&run) {
        let us = modelled_us(&costs, &row);
        assert!((13.0..13.7).contains(&us), "{}: {us}", row.key());
    }
}

#[test]
fn the_fastest_of_what_runs_everywhere_is_in_the_file() {
    let shape = "1x8x512x64";
    let costs = costs(&run_of([
        time(LARGE, shape, Dtype::F16, 10.0),
        time(SWIZZLE, shape, Dtype::F16, 11.0),
        time("stage5-swizzle/swizzle-128x64", shape, Dtype::F16, 12.0),
    ]));
    let names: Vec<&str> = costs.iter().map(|cost| &*cost.variant).collect();
    assert_eq!(names, [LARGE, SWIZZLE]);
}

#[test]
fn an_instance_is_expected_to_be_like_its_variant() {
    let mut run = run_on_random_problems(120);
    // Times of other element types say nothing about it.
    for row in random_rows(&run) {
        if row.problem().unwrap().dtype != Dtype::E4m3 {
            let us = 10.0 * p50(&row);
            run.append(row.figure(Metric::P50, us));
        }
    }
    let is_own = |row: &Row| is_large(row) && is_e4m3_d128(row);
    let own: Vec<Row> = random_rows(&run).into_iter().filter(is_own).collect();
    // Two times of the instance are known.
    let known = own.iter().filter(|row| is_fastest(&run, row)).take(2);
    let costs = costs(
        &known
            .cloned()
            .fold(run.clone().without(is_own), Run::with_row),
    );
    for row in own {
        let error = ratio(&costs, &row) - 1.0;
        assert!(error.abs() < 0.11, "{}: {error}", row.key());
    }
}

fn equation(launch: f64, work: f64, us: f64) -> Equation {
    let mut terms = [0.0; TERMS];
    terms[0] = launch;
    terms[1] = work;
    Equation {
        problem: ProblemId {
            table: 0,
            number: 0,
        },
        terms,
        us,
        slowdown: 1.0,
        scale: 1.0,
    }
}

#[test]
fn no_coefficient_is_negative() {
    let equations = [equation(1.0, 1.0, 9.0), equation(1.0, 2.0, 3.0)];
    let us = least_squares(equations.iter(), None);
    assert!(us.iter().all(|term_us| *term_us >= 0.0), "{us:?}");
    assert!((us[0] - 6.0).abs() < 0.1, "{us:?}");
    assert!(us[1] < 0.1, "{us:?}");
}

#[test]
fn a_multiprocessor_holds_as_many_blocks_as_its_machine_code_allows() {
    let subject = Subject::from(LARGE);
    let place = ProblemPlace::new("1x8x512x64", Dtype::F16, Mask::Full);
    let prepared = launch(&STAGES, &subject, &place.problem().unwrap()).unwrap();
    let kernel = prepared.kernel;
    let mut built = run_on_random_problems(0).built(96, 0);
    for (arch, blocks) in [("sm_80", 1), ("sm_90a", 3)] {
        // As a table rounds it.
        let occupancy = 0.999 * f64::from(blocks * kernel.threads) / 2048.0;
        built = built.with_row(row(&format!(
            "{LARGE} | f16 d64 {arch} | ptxas | occupancy {occupancy}"
        )));
    }
    let blocks = |run: Run| {
        let table = table(&[run]);
        resident_blocks(&View::committed(&[], &table), &subject, kernel)
    };
    assert_eq!(blocks(run_on_random_problems(0)), 1);
    assert_eq!(blocks(built.clone()), 3);
    let timed = built
        .with_row(time(LARGE, "1x8x512x64", Dtype::F16, 9.0))
        .with_row(checked(LARGE, BackendKind::Cuda));
    let table = table(&[timed]);
    let fitted = fit(&[View::committed(&[], &table)], &STAGES, None).unwrap();
    assert_eq!(fitted.model.costs[0].resident, 3);
}

#[test]
fn a_kernel_of_uneven_times_is_not_taken_to_be_fast() {
    let mut run = run_on_random_problems(120).without(|row| !is_small(row));
    let rows = random_rows(&run);
    for row in &rows {
        let number = row.value(Metric::Draw).unwrap() as usize;
        let factor = if number.is_multiple_of(2) { 0.5 } else { 2.0 };
        run.append(row.clone().figure(Metric::P50, factor * p50(row)));
    }
    let costs = costs(&run);
    let mut ratios: Vec<f64> = rows.iter().map(|row| ratio(&costs, row)).collect();
    ratios.sort_by(f64::total_cmp);
    let median = percentile(&ratios, 0.5);
    // The least squares of relative errors are at 0.59.
    assert!((0.7..1.3).contains(&median), "{median}");
}

fn is_of_fold_3(row: &Row) -> bool {
    fold_of(row) == Some(3)
}

/// Returns a run whose times in one fold would spoil a fit.
fn run_with_spoilt_fold() -> Run {
    let mut run = run_on_random_problems(120);
    for row in random_rows(&run).into_iter().filter(is_of_fold_3) {
        let us = 1000.0 / p50(&row);
        run.append(row.figure(Metric::P50, us));
    }
    run
}

#[test]
fn a_fit_does_not_see_the_fold_that_it_judges() {
    let run = run_with_spoilt_fold();
    let others = run.clone().without(is_of_fold_3);
    assert_eq!(fitted(&[&run], Some(3)).model, model(&[&others]));
    assert_ne!(model(&[&run]), model(&[&others]));
}

#[test]
fn a_kind_of_problems_in_one_fold_alone_is_unknown_there() {
    let mut run = run_with_spoilt_fold().without(is_of_fold_3);
    for row in random_rows(&run).into_iter().filter(is_e4m3_d128) {
        run.append(row.figure(Metric::Draw, 4.0));
    }
    let unseen = unseen_regret(&[View::alone(&run)], &STAGES).unwrap();
    let places: BTreeSet<Kind> = random_rows(&run)
        .into_iter()
        .filter(is_e4m3_d128)
        .map(|row| row.kind)
        .collect();
    assert!(!places.is_empty());
    assert_eq!(unseen.drawn - unseen.problems, places.len(), "{unseen}");
    let seen = regret_by(&run, &model(&[&run]));
    assert_eq!(seen.drawn, seen.problems, "{seen}");
}

/// Returns the regret of a model that has the costs of its variants exchanged.
fn regret_of_exchanged_costs() -> Regret {
    let run = run_on_random_problems(60);
    let mut model = model(&[&run]);
    for cost in &mut model.costs {
        let other = match &*cost.variant {
            LARGE => SMALL,
            SMALL => LARGE,
            _ => SWIZZLE,
        };
        cost.variant = other.into();
    }
    regret_by(&run, &model)
}

#[test]
fn a_wrong_choice_is_named_and_fails() {
    let regret = regret_of_exchanged_costs();
    assert!(!regret.missed().is_empty(), "{regret}");
    assert_eq!(regret.problems, 60, "{regret}");
    assert!(regret.worst > regret.mean, "{regret}");
    let text = regret.to_string();
    assert!(
        text.contains("(goal 1.10 ✗; chosen, then fastest: "),
        "{text}"
    );
    assert!(text.contains(&format!(" µs, {SMALL} ")), "{text}");
}

#[test]
fn a_choice_may_cost_2_percent_on_average_and_10_at_worst() {
    let regret = regret_of_exchanged_costs();
    for (mean, worst, is_kept) in [(1.02, 1.1, true), (1.021, 1.1, false), (1.02, 1.11, false)] {
        let bounded = Regret {
            mean,
            worst,
            ..regret.clone()
        };
        assert_eq!(bounded.missed().is_empty(), is_kept, "{mean} {worst}");
    }
}

#[test]
fn a_regret_is_read_from_the_row_that_it_is_written_to() {
    let regret = regret_of_exchanged_costs();
    let mut table = Table::default();
    table.append(regret.row());
    let read = Regret::of_table(&table).unwrap();
    assert_eq!(read.problems, 60);
    assert_eq!(read.at, regret.at);
    let rounded = regret.row().rounded();
    assert_eq!(Some(read.mean), rounded.value(Metric::RegretMean));
}

/// The model has one of three variants, which another of its stage, of another stage or of none
/// that the library has beats.
#[test]
fn a_choice_is_measured_by_the_fastest_variant_whatever_its_stage() {
    let large = time(LARGE, "1x8x512x64", Dtype::F16, 10.0);
    let timed = run_of([large.clone()]);
    let model = model(&[&timed]);
    assert_eq!(regret_by(&timed, &model).worst, 1.0);
    for (fastest, us, worst) in [
        (SMALL, 8.0, 1.25),
        (SWIZZLE, 5.0, 2.0),
        (NOT_OF_LIBRARY, 4.0, 2.5),
    ] {
        let rival = time(fastest, "1x8x512x64", Dtype::F16, us);
        let regret = regret_by(&run_of([large.clone(), rival]), &model);
        assert_eq!(regret.worst, worst, "{regret}");
        assert_eq!(regret.problems, 1, "{regret}");
        let description = format!("{LARGE} 10.0 µs, {fastest} {us:.1} µs");
        assert!(regret.at.ends_with(&description), "{regret}");
        assert!(!regret.missed().is_empty(), "{regret}");
    }
}

#[test]
fn what_the_library_does_not_have_is_neither_in_the_fit_nor_in_its_weights() {
    let run = run_on_random_problems(120);
    let mut with_foreign = run.clone();
    for row in random_rows(&run).into_iter().filter(is_large) {
        let us = p50(&row) / 3.0;
        with_foreign.append(Row {
            subject: NOT_OF_LIBRARY.into(),
            ..row.figure(Metric::P50, us)
        });
    }
    assert_eq!(costs(&with_foreign), costs(&run));
    let before = unseen_regret(&[View::alone(&run)], &STAGES).unwrap();
    let after = unseen_regret(&[View::alone(&with_foreign)], &STAGES).unwrap();
    assert!(before.missed().is_empty(), "{before}");
    assert!(after.mean > 2.0 * before.mean, "{after}");
    assert!(after.at.contains(", stage3-wmma-pv/"), "{after}");
}

/// Nor one of another GPU's table: its random problems have the same numbers.
#[test]
fn no_equation_of_the_fold_that_is_judged_is_in_its_fit() {
    let runs = [run_on_random_problems(60), drawn_on(&STAGES, 60, 33)];
    let views = runs.each_ref().map(View::alone);
    let count_by_table = |unseen| {
        let mut counts = [0, 0];
        for samples in collect_samples(&views, &STAGES, 90, unseen).values() {
            for equation in &samples.equations {
                counts[equation.problem.table] += 1;
            }
        }
        counts
    };
    let all = runs.each_ref().map(|run| random_rows(run).len());
    let seen = runs
        .clone()
        .map(|run| random_rows(&run.without(is_of_fold_3)).len());
    assert_eq!(count_by_table(None), all);
    assert_eq!(count_by_table(Some(3)), seen);
    assert!(seen[0] < all[0]);
    assert!(seen[1] < all[1]);
}

/// Whether a variant is in the file that beats the fastest of all at one problem, by this factor.
fn is_kept_when_faster_once(factor: f64) -> bool {
    let variant = "stage11-spread/spread-256x64";
    let run = run_on_random_problems(60);
    let fastest = random_rows(&run)
        .into_iter()
        .min_by(|a, b| p50(a).total_cmp(&p50(b)))
        .unwrap();
    let us = p50(&fastest) / factor;
    let row = Row {
        subject: variant.into(),
        ..fastest.figure(Metric::P50, us)
    };
    has_variant(&costs(&run.with_row(row)), variant)
}

#[test]
fn what_is_hardly_faster_is_not_in_the_file_and_what_is_much_faster_once_is() {
    assert!(!is_kept_when_faster_once(1.005));
    assert!(is_kept_when_faster_once(1.5));
}

#[test]
fn a_cover_takes_instances_until_none_gains_enough() {
    let instance = |name: &str| Instance {
        variant: name.into(),
        dtype: Dtype::F16,
        head_dim: 64,
    };
    let times = |us: [f64; 2]| {
        let time = |number: usize| Time {
            problem: ProblemId { table: 0, number },
            us: us[number],
        };
        vec![time(0), time(1)]
    };
    let all = Times::from([
        (instance("a/even"), times([10.0, 10.0])),
        (instance("b/first"), times([5.0, 40.0])),
        (instance("c/slow"), times([10.0, 11.0])),
    ]);
    let names = |kept: BTreeSet<Instance>| {
        let variants = kept
            .into_iter()
            .map(|Instance { variant, .. }| variant.to_string());
        variants.collect::<Vec<_>>()
    };
    assert_eq!(names(cover(&all, 0.01)), ["a/even", "b/first"]);
    assert_eq!(names(cover(&all, 0.5)), ["a/even"]);
}

#[test]
fn times_of_another_gpu_of_the_same_capability_are_in_the_fit() {
    let few = run_on_random_problems(6);
    let many = run_on_random_problems(120);
    let alone = model(&[&few]);
    let together = model(&[&few, &many]);
    assert!(alone.costs.len() < together.costs.len());
    assert_eq!(together.gpu, alone.gpu);
    let mut of_other_capability = many;
    if let session::Gpu::Present { arch, .. } = &mut of_other_capability.session.machine.gpu {
        *arch = "sm_89".into();
    }
    assert_eq!(model(&[&few, &of_other_capability]), alone);
}

/// The other GPU has another number of multiprocessors.
#[test]
fn errors_are_those_at_the_first_tables_own_times() {
    let few = run_on_random_problems(6);
    let errors = fitted(&[&few, &drawn_on(&STAGES, 120, 33)], None).errors();
    assert_eq!(errors.len(), random_rows(&few).len());
    assert!(errors.iter().all(|error| *error < 0.1), "{errors:?}");
}

#[test]
fn times_of_kernels_that_have_changed_are_in_the_fit() {
    let run = run_on_random_problems(120);
    // At most problems there are times of other kernels alone.
    let mut older = run.clone();
    for mut row in random_rows(&run) {
        if row.value(Metric::Draw) > Some(5.0) {
            row.identity = Some("before".into());
            older.table.append(row);
        }
    }
    let view = View::alone(&older);
    let stale = random_times(&older.table).filter(|row| view.is_stale(row));
    assert!(stale.count() > 100);
    assert_eq!(model(&[&older]), model(&[&run]));
}

/// Returns a run with the random problems from `first` to `end`.
fn session_of(name: &str, first: usize, end: usize) -> Run {
    run_on_random_problems(end)
        .named(name)
        .without(|row| row.value(Metric::Draw) < Some(first as f64))
}

/// Returns the sessions whose times judge a choice among the planted kernels.
fn judged_sessions(runs: &[Run]) -> Vec<String> {
    let table = table(runs);
    let mut library = stages::load().unwrap();
    retain_listed(
        &mut library,
        &PLANTED.map(|planted| planted.subject).join("\n"),
    )
    .unwrap();
    let sessions = judged_times(&table, &library).map(|row| row.session.clone());
    Vec::from_iter(sessions.collect::<BTreeSet<_>>())
}

#[test]
fn sessions_that_timed_a_new_variant_are_judged_and_older_ones_where_there_is_none() {
    let before = session_of("before", 0, 4).without(is_small);
    let since = session_of("since", 5, 9);
    assert_eq!(judged_sessions(std::slice::from_ref(&before)), ["before"]);
    assert_eq!(judged_sessions(&[before, since]), ["since"]);
}

#[test]
fn sessions_that_were_asked_for_all_variants_are_judged_and_others_where_there_is_none() {
    let all = session_of("all", 0, 4);
    let mut of_stage = session_of("a stage", 5, 9);
    of_stage.session.scope.stages.push(String::new());
    let mut of_variant = session_of("a variant", 10, 14);
    of_variant.session.scope.variants.push(String::new());
    assert_eq!(
        judged_sessions(&[of_stage.clone(), of_variant.clone()]),
        ["a stage", "a variant"]
    );
    assert_eq!(judged_sessions(&[all, of_stage, of_variant]), ["all"]);
}

#[test]
fn what_the_model_predicts_to_be_much_the_fastest_is_in_the_file() {
    let run = run_on_random_problems(160);
    // Where it wins there is no time, and elsewhere there are enough times.
    let won: BTreeSet<Kind> = random_rows(&run)
        .into_iter()
        .filter(|row| is_small(row) && is_fastest(&run, row))
        .map(|row| row.kind)
        .collect();
    let costs = costs(&run.clone().without(|row| won.contains(&row.kind)));
    assert!(!won.is_empty());
    assert!(has_variant(&costs, SMALL));
}
