use super::*;
use crate::judge::list::joined;
use crate::stages;
use crate::table::{Run, session};
use crate::testing::scenario::row;
use crate::testing::{
    LARGE, PLANTED, SMALL, SWIZZLE, checked, drawn_on, drawn_run, samples as sampled, table,
};
use common::device::BackendKind;
use common::problem::Mask;
use common::verdict::{GateId, GateResult};
use std::sync::LazyLock;

/// Those of the library.
static STAGES: LazyLock<Vec<LoadedStage>> = LazyLock::new(|| stages::library().unwrap());

fn drawn_problems(count: usize) -> Run {
    drawn_run(&STAGES, count)
}

/// A run with one time at each random problem of `VARIANT SHAPE DTYPE US`, full mask.
fn timed(lines: impl IntoIterator<Item = String>) -> Run {
    let row = |line: String| {
        let words: Vec<&str> = line.split(' ').collect();
        let (of, shape, dtype, us) = (words[0], words[1], words[2], words[3]);
        row(&format!(
            "{of} | {shape} {dtype} full | draw | draw 0 | p50 {us}"
        ))
    };
    lines
        .into_iter()
        .map(row)
        .fold(drawn_problems(0), Run::with)
}

fn wrong(row: Row) -> Row {
    row.verdict(&GateResult::judge(GateId::C2, false, "max error 1"))
}

fn times(run: &Run) -> Vec<Row> {
    drawn(&run.table).cloned().collect()
}

fn is_of(row: &Row, variant: &str) -> bool {
    row.subject.as_str() == variant
}

fn fitted(runs: &[&Run], unseen: Option<usize>) -> Fitted {
    let view: Vec<View<'_>> = runs.iter().map(|run| View::alone(run)).collect();
    fit(&view, &STAGES, unseen).unwrap()
}

fn costs(run: &Run) -> Vec<Cost> {
    fitted(&[run], None).model.costs
}

/// Over that time: what the cost of its instance says.
fn ratio(costs: &[Cost], row: &Row) -> f64 {
    let problem = row.problem().unwrap().problem().unwrap();
    let stage = loaded(&STAGES, &row.subject).unwrap();
    let prepared = stage.prepare(row.subject.name(), &problem).unwrap();
    let size = (modelled(problem.dtype), problem.shape.head_dim);
    let is_its = |cost: &&Cost| is_of(row, &cost.variant) && (cost.dtype, cost.head_dim) == size;
    let terms = terms(&problem, prepared.kernel, prepared.grid, 1, 132);
    dot(&terms, &costs.iter().find(is_its).unwrap().us) / p50(row)
}

fn regret_by(run: &Run, model: &Model) -> Regret {
    regret(&View::alone(run), &STAGES, std::slice::from_ref(model)).unwrap()
}

#[test]
fn a_fit_finds_what_was_planted_and_its_choice_costs_nothing() {
    let run = drawn_problems(240);
    let fitted = fitted(&[&run], None);
    let costs = &fitted.model.costs;
    let of = |variant: &str| costs.iter().filter(|cost| cost.variant == variant).count();
    // Two element types with two head sizes; what is nowhere the fastest has no part, but where the others do not run.
    assert_eq!((of(LARGE), of(SMALL)), (4, 4));
    for cost in costs.iter().filter(|cost| cost.variant != SWIZZLE) {
        let mut planted = PLANTED.iter();
        let (_, us) = planted.find(|(of, _)| *of == cost.variant).unwrap();
        // One block per multiprocessor: rounds are its blocks.
        let [t, blocks, rounds, work, chain, bytes, mean, longest, rows] = cost.us;
        for (found, planted) in [
            (t, us[0]),
            (blocks + rounds, us[1]),
            (work + chain + mean + longest, us[3]),
            (bytes, us[5]),
            (rows, us[8]),
        ] {
            let off = (found - planted).abs();
            assert!(off < 0.1 * planted, "{cost:?}: {found} is {planted}");
        }
    }
    let residuals: Vec<String> = fitted.residuals().collect();
    assert!(
        residuals.iter().all(|line| line.contains("off by 0.")),
        "{residuals:?}"
    );
    let model: Model = serde_json::from_str(&fitted.file()).unwrap();
    assert_eq!(model, fitted.model);
    let found = regret_by(&run, &model);
    assert!(found.missed().is_empty() && found.worst < 1.02, "{found}");
    assert_eq!(found.problems, 240);
    assert!(!found.to_string().contains('✗'), "{found}");
    // What is chosen and was not timed, or is wrong, is no problem less.
    let is_large = |row: &Row| is_of(row, LARGE);
    let large = times(&run).into_iter().filter(is_large);
    let is_wrong = large.map(wrong).fold(run.clone(), Run::with);
    for run in [run.without(is_large), is_wrong] {
        let untimed = regret_by(&run, &model);
        assert!(
            !untimed.missed().is_empty()
                && untimed.problems < 240
                && untimed.mean >= 1.0
                && untimed.worst < 1.02,
            "{untimed}"
        );
        let lost = 240 - untimed.problems;
        let more = format!("on {lost} what it chooses was not timed");
        assert!(untimed.to_string().contains(&more), "{untimed}");
    }
}

#[test]
fn a_fit_goes_by_right_times_named_ones_too() {
    let shapes = ["1x8x512x64", "1x8x1024x64"];
    let run = timed(shapes.map(|shape| format!("{LARGE} {shape} f16 9")));
    let expected = costs(&run);
    assert_eq!(expected.len(), 1);
    let other = times(&timed([format!("{LARGE} 1x8x2048x64 f16 1")])).remove(0);
    assert_ne!(costs(&run.clone().with(other.clone())), expected);
    assert_eq!(costs(&run.clone().with(wrong(other))), expected);
    // At problems with a name, whose inputs are in the L2 cache, with random ones and where there are none.
    let named = |run: Run, shape: &str, cold: bool| {
        let place = ProblemPlace {
            cold,
            ..ProblemPlace::new(shape, Dtype::F16, Mask::Full)
        };
        let run = run.with(checked(LARGE, BackendKind::Cuda));
        run.sampled(LARGE, place, &sampled(99.0))
    };
    assert_eq!(costs(&named(run.clone(), "long", true)), expected);
    assert_ne!(costs(&named(run.clone(), "long", false)), expected);
    let long = ProblemPlace::new("long", Dtype::F16, Mask::Full);
    let undrawn = run.with(checked(SMALL, BackendKind::Cuda));
    assert_eq!(
        costs(&undrawn.sampled(SMALL, long, &sampled(9.0))),
        expected
    );
    let alone = shapes
        .iter()
        .fold(drawn_problems(0), |run, shape| named(run, shape, false));
    assert_eq!(costs(&alone).len(), 1);
}

#[test]
fn times_where_a_variant_may_be_chosen_weigh_more() {
    // f16 and bf16 have the same coefficients, and here other times.
    let run = timed(["1x8x512x64", "1x8x1024x64"].into_iter().flat_map(|shape| {
        [
            format!("{LARGE} {shape} f16 10"),
            format!("{LARGE} {shape} bf16 20"),
            format!("{SMALL} {shape} f16 20"),
            format!("{SMALL} {shape} bf16 10"),
        ]
    }));
    let fitted = costs(&run);
    assert_eq!(fitted.len(), 2);
    for row in times(&run) {
        let us = ratio(&fitted, &row) * p50(&row);
        assert!((10.0..12.0).contains(&us), "{}: {us}", row.key());
    }
    // Twice as long is as wrong as half: 10 and 20 of the only variant are 13.3.
    let run = run.without(|row| is_of(row, SMALL));
    let fitted = costs(&run);
    for row in times(&run) {
        let us = ratio(&fitted, &row) * p50(&row);
        assert!((13.0..13.7).contains(&us), "{}: {us}", row.key());
    }
}

#[test]
fn the_fastest_of_what_runs_everywhere_is_in_the_file() {
    let times = [
        (LARGE, 10),
        (SWIZZLE, 11),
        ("stage5-swizzle/swizzle-128x64", 12),
    ];
    let lines = times.map(|(subject, us)| format!("{subject} 1x8x512x64 f16 {us}"));
    let costs = costs(&timed(lines));
    let mut names = costs.iter().map(|cost| &*cost.variant);
    assert!(names.by_ref().eq([SWIZZLE, LARGE]), "{costs:?}");
}

#[test]
fn an_instance_is_expected_to_be_like_its_variant() {
    let mut run = drawn_problems(120);
    // What other element types take says nothing of it.
    for row in times(&run) {
        if row.problem().unwrap().dtype != Dtype::E4m3 {
            let us = 10.0 * p50(&row);
            run.append(row.figure(Metric::P50, us));
        }
    }
    // Of one instance two times are known.
    let is_its = |row: &Row| {
        let problem = row.problem().unwrap().problem().unwrap();
        is_of(row, LARGE) && (problem.dtype, problem.shape.head_dim) == (Dtype::E4m3, 128)
    };
    let own: Vec<Row> = times(&run).into_iter().filter(is_its).collect();
    let is_fastest = |row: &&Row| {
        let mut rivals = drawn(&run.table).filter(|other| other.place() == row.place());
        rivals.all(|other| p50(other) >= p50(row))
    };
    let view = own.iter().filter(is_fastest).take(2).cloned();
    let costs = costs(&view.fold(run.clone().without(is_its), Run::with));
    for row in own {
        let off = ratio(&costs, &row) - 1.0;
        assert!(off.abs() < 0.1, "{}: {off}", row.key());
    }
}

#[test]
fn no_coefficient_is_negative() {
    let equations = [(1.0, 9.0), (2.0, 3.0)].map(|(work, us)| {
        let mut terms = [0.0; TERMS];
        terms[..2].copy_from_slice(&[1.0, work]);
        Equation {
            place: (0, 0),
            terms,
            us,
            slower: 1.0,
            scale: 1.0,
        }
    });
    let us = least_squares(equations.iter(), None);
    assert!(us.iter().all(|us| *us >= 0.0), "{us:?}");
    assert!((us[0] - 6.0).abs() < 0.1 && us[1] < 0.1, "{us:?}");
}

#[test]
fn a_multiprocessor_holds_as_many_blocks_as_the_machine_code_for_it_lets_it() {
    let subject = Subject::from(LARGE);
    let place = ProblemPlace::new("1x8x512x64", Dtype::F16, Mask::Full);
    let kernel = launch(&STAGES, &subject, &place.problem().unwrap());
    let kernel = kernel.unwrap().kernel;
    // As a table rounds it.
    let occupancy = |blocks: u32| 0.999 * f64::from(blocks * kernel.threads) / 2048.0;
    let built = [("sm_80", 1), ("sm_90a", 3)].map(|(arch, blocks)| {
        let share = occupancy(blocks);
        row(&format!(
            "{LARGE} | f16 d64 {arch} | ptxas | occupancy {share}"
        ))
    });
    let built = built
        .into_iter()
        .fold(drawn_problems(0).built(96, 0), Run::with);
    let blocks = |run: Run| {
        let merged = table(&[run]);
        resident(&View::committed(&[], &merged), &subject, kernel)
    };
    assert_eq!([drawn_problems(0), built.clone()].map(blocks), [1, 3]);
    let drawn = times(&timed([format!("{LARGE} 1x8x512x64 f16 9")])).remove(0);
    let merged = table(&[built.with(drawn).with(checked(LARGE, BackendKind::Cuda))]);
    let fitted = fit(&[View::committed(&[], &merged)], &STAGES, None).unwrap();
    assert_eq!(fitted.model.costs[0].resident, 3);
}

#[test]
fn a_kernel_of_uneven_times_is_not_thought_fast() {
    let mut run = drawn_problems(120).without(|row| !is_of(row, SMALL));
    let rows = times(&run);
    for row in &rows {
        let factor = [0.5, 2.0][row.value(Metric::Draw).unwrap() as usize % 2];
        run.append(row.clone().figure(Metric::P50, factor * p50(row)));
    }
    let costs = costs(&run);
    let mut ratios: Vec<f64> = rows.iter().map(|row| ratio(&costs, row)).collect();
    ratios.sort_by(f64::total_cmp);
    let median = percentile(&ratios, 0.5);
    // The least squares of relative errors are at 0.59.
    assert!((0.7..1.3).contains(&median), "{median}");
}

#[test]
fn each_part_is_judged_by_a_fit_that_has_not_seen_it() {
    let mut run = drawn_problems(120);
    let is_unseen = |row: &Row| part(row) == Some(3);
    // Times that would spoil a fit.
    for row in times(&run).into_iter().filter(is_unseen) {
        let us = 1000.0 / p50(&row);
        run.append(row.figure(Metric::P50, us));
    }
    let others = run.clone().without(is_unseen);
    let model = |run: &Run, unseen| fitted(&[run], unseen).model;
    assert_eq!(model(&run, Some(3)), model(&others, None));
    assert_ne!(model(&run, None), model(&others, None));
    // What is known of one kind of problems is known by those that are left out.
    let is_alone = |row: &Row| {
        let problem = row.problem().unwrap().problem().unwrap();
        (problem.dtype, problem.shape.head_dim) == (Dtype::E4m3, 128)
    };
    let mut alone = others;
    for row in times(&alone).into_iter().filter(is_alone) {
        alone.append(row.figure(Metric::Draw, 4.0));
    }
    let found = unseen_regret(&[View::alone(&alone)], &STAGES).unwrap();
    let kind: BTreeSet<&ProblemPlace> = (drawn(&alone.table).filter(|row| is_alone(row)))
        .filter_map(Row::problem)
        .collect();
    assert!(!kind.is_empty());
    assert_eq!(found.drawn - found.problems, kind.len(), "{found}");
    let seen = regret_by(&alone, &model(&alone, None));
    assert_eq!(seen.drawn, seen.problems, "{seen}");
}

#[test]
fn a_wrong_choice_is_named_and_fails() {
    let run = drawn_problems(60);
    let mut model = fitted(&[&run], None).model;
    for cost in &mut model.costs {
        let others = [(LARGE, SMALL), (SMALL, LARGE)];
        let other = others.iter().find(|(variant, _)| *variant == cost.variant);
        cost.variant = other.map_or(SWIZZLE, |(_, other)| other).into();
    }
    let found = regret_by(&run, &model);
    assert!(
        !found.missed().is_empty() && found.problems == 60,
        "{found}"
    );
    assert!(found.worst > found.mean, "{found}");
    let words = found.to_string();
    assert!(
        words.contains("(goal 1.10 ✗: ") && words.contains(" µs, stage7-wgmma/"),
        "{words}"
    );
    for (mean, worst, is_kept) in [(1.02, 1.1, true), (1.021, 1.1, false), (1.02, 1.11, false)] {
        let regret = Regret {
            mean,
            worst,
            ..found.clone()
        };
        assert_eq!(regret.missed().is_empty(), is_kept, "{mean} {worst}");
    }
    // The row says what it was made of.
    let mut table = Table::default();
    table.append(found.row());
    let read = Regret::view(&table).unwrap();
    let mean = found.row().rounded().value(Metric::RegretMean);
    assert_eq!(
        (read.problems, read.at, Some(read.mean)),
        (60, found.at, mean)
    );
}

/// The model has one of three variants, which another of its stage, of another stage or of none that the library has beats.
#[test]
fn a_choice_is_measured_by_the_fastest_variant_whatever_its_stage() {
    let shape = "1x8x512x64 f16";
    let chosen = timed([format!("{LARGE} {shape} 10")]);
    let model = fitted(&[&chosen], None).model;
    assert_eq!(regret_by(&chosen, &model).worst, 1.0);
    for (fastest, us, worst) in [
        (SMALL, 8.0, 1.25),
        (SWIZZLE, 5.0, 2.0),
        ("stage3-wmma-pv/wmma-pv-32x64", 4.0, 2.5),
    ] {
        let run = timed([
            format!("{LARGE} {shape} 10"),
            format!("{fastest} {shape} {us}"),
        ]);
        let found = regret_by(&run, &model);
        assert_eq!((found.worst, found.problems), (worst, 1), "{found}");
        let at = format!("{LARGE} 10.0 µs, {fastest} {us:.1} µs");
        assert!(
            found.at.ends_with(&at) && !found.missed().is_empty(),
            "{found}"
        );
    }
}

#[test]
fn what_the_library_does_not_have_is_neither_in_the_fit_nor_in_its_weights() {
    let without = drawn_problems(120);
    let mut with = without.clone();
    for row in times(&without).into_iter().filter(|row| is_of(row, LARGE)) {
        let us = p50(&row) / 3.0;
        with.append(Row {
            subject: "stage3-wmma-pv/wmma-pv-32x64".into(),
            ..row.figure(Metric::P50, us)
        });
    }
    assert_eq!(costs(&with), costs(&without));
    let unseen = |run: &Run| unseen_regret(&[View::alone(run)], &STAGES).unwrap();
    let [before, after] = [&without, &with].map(unseen);
    assert!(
        before.missed().is_empty() && after.mean > 2.0 * before.mean,
        "{after}"
    );
    assert!(after.at.contains(", stage3-wmma-pv/"), "{after}");
}

/// Of another GPU's table too: its random problems have the same numbers.
#[test]
fn no_equation_of_the_part_that_is_judged_is_in_its_fit() {
    let runs = [drawn_problems(60), drawn_on(&STAGES, 60, 33)];
    let is_unseen = |row: &Row| part(row) == Some(3);
    let view = runs.each_ref().map(View::alone);
    let count = |unseen| {
        let equations = equations(&view, &STAGES, 90, unseen);
        let all = equations.into_values().flat_map(|(_, of)| of);
        all.fold([0, 0], |mut counts, equation| {
            counts[equation.place.0] += 1;
            counts
        })
    };
    let [all, seen] = [
        runs.each_ref().map(|run| times(run).len()),
        runs.each_ref()
            .map(|run| times(&run.clone().without(is_unseen)).len()),
    ];
    assert_eq!((count(None), count(Some(3))), (all, seen));
    assert!(seen[0] < all[0] && seen[1] < all[1]);
}

#[test]
fn what_is_hardly_faster_is_not_in_the_file_and_what_is_much_faster_once_is() {
    let other = "stage7-wgmma/wgmma-192x128";
    let has = |faster: f64| {
        let run = drawn_problems(60);
        let rows = times(&run).into_iter();
        let fastest = rows.min_by(|a, b| p50(a).total_cmp(&p50(b))).unwrap();
        let row = Row {
            subject: other.into(),
            ..fastest.clone().figure(Metric::P50, p50(&fastest) / faster)
        };
        costs(&run.with(row))
            .iter()
            .any(|cost| cost.variant == other)
    };
    assert_eq!([1.005, 1.5].map(has), [false, true]);
}

#[test]
fn times_of_another_gpu_of_the_same_capability_and_of_kernels_that_have_changed_are_in_the_fit() {
    let [few, many] = [6, 120].map(drawn_problems);
    let model = |runs: &[&Run]| fitted(runs, None).model;
    let (both, alone) = (model(&[&few, &many]), model(&[&few]));
    assert!(alone.costs.len() < both.costs.len());
    assert_eq!(both.gpu, alone.gpu);
    // It has another number of multiprocessors; what is said of the fit is of the table's own times.
    let fitted = fitted(&[&few, &drawn_on(&STAGES, 120, 33)], None);
    let errors: Vec<f64> = fitted.errors.values().flatten().copied().collect();
    assert_eq!(errors.len(), times(&few).len());
    assert!(errors.iter().all(|error| *error < 0.1), "{errors:?}");
    // Of most problems there are times of other kernels alone.
    let mut older = many.clone();
    let is_before = |row: &Row| row.value(Metric::Draw) > Some(5.0);
    for mut row in times(&many).into_iter().filter(is_before) {
        row.identity = Some("before".into());
        older.table.append(row);
    }
    let stale = drawn(&older.table).filter(|row| View::alone(&older).is_stale(row));
    assert!(stale.count() > 100);
    assert_eq!(model(&[&older]), model(&[&many]));
    let mut other = many;
    if let session::Gpu::Present { arch, .. } = &mut other.session.machine.gpu {
        *arch = "sm_89".into();
    }
    assert_eq!(model(&[&few, &other]), alone);
}

#[test]
fn sessions_that_were_asked_for_all_variants_are_judged_and_others_where_there_is_none() {
    let sessions = |runs: &[Run]| {
        let table = table(runs);
        let judged = judged(&table).map(|row| row.session.clone());
        joined(judged.collect::<BTreeSet<_>>(), " ")
    };
    let runs = [("all", 4), ("a stage", 9), ("a variant", 14)].map(|(name, number)| {
        let least = Some(number as f64 - 4.0);
        let mut run = drawn_problems(number).named(name);
        let scope = &mut run.session.scope;
        scope.stages.extend((name == "a stage").then(String::new));
        scope
            .variants
            .extend((name == "a variant").then(String::new));
        // A variant that is new since does not count against a session.
        let is_new = |row: &Row| name == "all" && is_of(row, SMALL);
        run.without(|row| row.value(Metric::Draw) < least || is_new(row))
    });
    assert_eq!(sessions(&runs), "all");
    assert_eq!(sessions(&runs[1..]), "a stage a variant");
}

#[test]
fn what_the_model_says_is_much_the_fastest_where_nothing_was_timed_is_in_the_file() {
    let run = drawn_problems(160);
    // Where it wins there is no time, and elsewhere it is told by enough.
    let wins = |row: &Row| {
        let mut others = drawn(&run.table).filter(|other| other.place() == row.place());
        is_of(row, SMALL) && others.all(|other| p50(other) >= p50(row))
    };
    let won: BTreeSet<Kind> = (times(&run).into_iter().filter(wins))
        .map(|row| row.kind)
        .collect();
    let costs = costs(&run.clone().without(|row| won.contains(&row.kind)));
    assert!(!won.is_empty() && costs.iter().any(|cost| cost.variant == SMALL));
}
