use super::*;
use crate::stages;
use crate::table::{Run, session};
use crate::testing::{
    LARGE, PLANTED, SMALL, SWIZZLE, checked, drawn_on, drawn_run, samples as sampled, table,
};
use common::problem::Mask;
use common::verdict::{GateId, GateResult};

/// A variant's time at a random problem, full mask.
fn draw(subject: &str, shape: &str, dtype: Dtype, us: f64) -> Row {
    let on = On::Problem(Place::new(shape, dtype, Mask::Full));
    let row = Row::new(subject, on, Source::Draw);
    row.figure(Metric::Draw, 0.0).figure(Metric::P50, us)
}

fn wrong(row: Row) -> Row {
    row.verdict(&GateResult::judge(GateId::C2, false, "max error 1"))
}

fn model(run: &Run, stages: &[LoadedStage]) -> Model {
    fit(&[Known::alone(run)], stages, None).unwrap().model
}

/// What a cost says of a row's time.
fn predicted(stages: &[LoadedStage], cost: &Cost, row: &Row) -> f64 {
    let problem = row.on.problem().unwrap().problem().unwrap();
    let stage = loaded(stages, &row.subject).unwrap();
    let prepared = stage.prepare(row.subject.name(), &problem).unwrap();
    let terms = terms(&problem, prepared.kernel, prepared.grid, 1, 132);
    dot(&terms, &cost.us)
}

#[test]
fn a_fit_finds_what_was_planted_and_its_choice_costs_nothing() {
    let stages = stages::load().unwrap();
    let run = drawn_run(&stages, 240);
    let known = Known::alone(&run);
    let fitted = fit(std::slice::from_ref(&known), &stages, None).unwrap();
    let costs = &fitted.model.costs;
    let of = |variant: &str| costs.iter().filter(|cost| cost.variant == variant).count();
    // Two element types with two head sizes; what is nowhere the fastest has no part, but where the others do not run.
    assert_eq!((of(LARGE), of(SMALL)), (4, 4));
    for cost in costs.iter().filter(|cost| cost.variant != SWIZZLE) {
        let (_, us) = PLANTED
            .iter()
            .find(|(variant, _)| *variant == cost.variant)
            .unwrap();
        // One block per multiprocessor: rounds are its blocks.
        let [t, blocks, rounds, work, chain, bytes, mean, longest, rows] = cost.us;
        for (found, planted) in [
            (t, us[0]),
            (blocks + rounds, us[1]),
            (work + chain + mean + longest, us[3]),
            (bytes, us[5]),
            (rows, us[8]),
        ] {
            assert!(
                (found - planted).abs() < 0.1 * planted,
                "{cost:?}: {found} is {planted}"
            );
        }
    }
    assert!(
        fitted.residuals().all(|line| line.contains("off by 0.")),
        "{:?}",
        fitted.residuals().collect::<Vec<_>>()
    );
    let models: Model = serde_json::from_str(&fitted.file()).unwrap();
    assert_eq!(models, fitted.model);
    let found = regret(&known, &stages, &[models]).unwrap();
    assert!(found.is_kept() && found.worst < 1.02, "{found}");
    assert_eq!(found.problems, 240);
    assert!(found.to_string().starts_with("PASS: "));
    // What is chosen and was not timed, or is wrong, is no problem less.
    let is_large = |row: &Row| row.subject.to_string() == LARGE;
    let large = drawn(&run.table).filter(|row| is_large(row)).cloned();
    let is_wrong = large.map(wrong).fold(run.clone(), Run::with);
    for run in [run.without(is_large), is_wrong] {
        let models = std::slice::from_ref(&fitted.model);
        let untimed = regret(&Known::alone(&run), &stages, models).unwrap();
        assert!(
            !untimed.is_kept() && untimed.problems < 240 && untimed.worst < 1.02,
            "{untimed}"
        );
        let more = format!(
            "; on {} more what it chooses was not timed",
            240 - untimed.problems
        );
        assert!(untimed.to_string().contains(&more), "{untimed}");
    }
}

#[test]
fn a_fit_goes_by_right_times_named_ones_too() {
    let stages = stages::load().unwrap();
    let shapes = ["1x8x512x64", "1x8x1024x64"];
    let drawn = |shape| draw(LARGE, shape, Dtype::F16, 9.0);
    let run = shapes
        .map(drawn)
        .into_iter()
        .fold(drawn_run(&stages, 0), Run::with);
    let expected = model(&run, &stages);
    assert_eq!(expected.costs.len(), 1);
    let other = draw(LARGE, "1x8x2048x64", Dtype::F16, 1.0);
    assert_ne!(model(&run.clone().with(other.clone()), &stages), expected);
    assert_eq!(model(&run.clone().with(wrong(other)), &stages), expected);
    // At problems with a name, whose inputs are in the L2 cache, with random ones and where there are none.
    let named = |run: Run, shape: &str, cold: bool| {
        let place = Place {
            cold,
            ..Place::new(shape, Dtype::F16, Mask::Full)
        };
        let run = run.with(checked(LARGE, Source::Gpu));
        run.sampled(LARGE, On::Problem(place), &sampled(99.0))
    };
    assert_eq!(model(&named(run.clone(), "long", true), &stages), expected);
    assert_ne!(model(&named(run, "long", false), &stages), expected);
    let alone = drawn_run(&stages, 0);
    let alone = shapes
        .iter()
        .fold(alone, |run, shape| named(run, shape, false));
    assert_eq!(model(&alone, &stages).costs.len(), 1);
}

#[test]
fn times_where_a_variant_may_be_chosen_weigh_more() {
    let stages = stages::load().unwrap();
    // f16 and bf16 have the same coefficients, and here other times.
    let mut run = drawn_run(&stages, 0);
    for shape in ["1x8x512x64", "1x8x1024x64"] {
        for (subject, us) in [(LARGE, [10.0, 20.0]), (SMALL, [20.0, 10.0])] {
            for (dtype, us) in [Dtype::F16, Dtype::Bf16].into_iter().zip(us) {
                run.append(draw(subject, shape, dtype, us));
            }
        }
    }
    let costs = model(&run, &stages).costs;
    assert_eq!(costs.len(), 2);
    for row in drawn(&run.table) {
        let its = costs
            .iter()
            .find(|cost| cost.variant == row.subject.as_str());
        let us = predicted(&stages, its.unwrap(), row);
        assert!((10.0..12.0).contains(&us), "{}: {us}", row.key());
    }
    // Twice as long is as wrong as half: 10 and 20 of the only variant are 13.3.
    let run = run.without(|row| row.subject.as_str() == SMALL);
    let costs = model(&run, &stages).costs;
    for row in drawn(&run.table) {
        let us = predicted(&stages, &costs[0], row);
        assert!((13.0..13.7).contains(&us), "{}: {us}", row.key());
    }
}

#[test]
fn the_fastest_of_what_runs_everywhere_is_in_the_file() {
    let stages = stages::load().unwrap();
    let slower = "stage5-swizzle/swizzle-128x64";
    let times = [(LARGE, 10.0), (SWIZZLE, 11.0), (slower, 12.0)];
    let rows = times.map(|(subject, us)| draw(subject, "1x8x512x64", Dtype::F16, us));
    let run = rows.into_iter().fold(drawn_run(&stages, 0), Run::with);
    let costs = model(&run, &stages).costs;
    let mut names = costs.iter().map(|cost| &*cost.variant);
    assert!(names.by_ref().eq([SWIZZLE, LARGE]), "{costs:?}");
}

#[test]
fn an_instance_is_expected_to_be_like_its_variant() {
    let stages = stages::load().unwrap();
    let run = drawn_run(&stages, 120);
    // Of one instance two times are known.
    let size = (Dtype::E4m3, 128);
    let is_its = |row: &Row| {
        let problem = row.on.problem().unwrap().problem().unwrap();
        row.subject.as_str() == LARGE && (problem.dtype, problem.shape.head_dim) == size
    };
    let own: Vec<Row> = drawn(&run.table)
        .filter(|row| is_its(row))
        .cloned()
        .collect();
    let is_fastest = |row: &&Row| {
        let mut rivals = drawn(&run.table).filter(|other| other.on == row.on);
        rivals.all(|other| p50(other) >= p50(row))
    };
    let known: Vec<Row> = own.iter().filter(is_fastest).take(2).cloned().collect();
    let few = known
        .into_iter()
        .fold(run.clone().without(is_its), Run::with);
    let costs = model(&few, &stages).costs;
    let mut its = costs.iter().filter(|cost| cost.variant == LARGE);
    let its = its
        .find(|cost| (cost.dtype, cost.head_dim) == size)
        .unwrap();
    for row in own {
        let off = predicted(&stages, its, &row) / p50(&row) - 1.0;
        assert!(off.abs() < 0.1, "{}: {off}", row.key());
    }
}

#[test]
fn no_coefficient_is_negative() {
    let equations = [(1.0, 9.0), (2.0, 3.0)].map(|(work, us)| {
        let mut terms = [0.0; TERMS];
        terms[..2].copy_from_slice(&[1.0, work]);
        Equation {
            on: (0, 0),
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
    let stages = stages::load().unwrap();
    let subject = Subject::from(LARGE);
    let problem = Place::new("1x8x512x64", Dtype::F16, Mask::Full)
        .problem()
        .unwrap();
    let stage = loaded(&stages, &subject).unwrap();
    let kernel = stage.prepare(subject.name(), &problem).unwrap().kernel;
    let mut run = drawn_run(&stages, 0).built(96, 0);
    for (arch, blocks) in [("sm_80", 1), ("sm_90a", 3)] {
        let on = On::Instance {
            dtype: Dtype::F16,
            head_dim: 64,
            arch: Some(arch.into()),
        };
        let occupancy = f64::from(blocks * kernel.threads) / 2048.0;
        run.append(Row::new(LARGE, on, Source::Ptxas).figure(Metric::Occupancy, occupancy));
    }
    let blocks = |run: Run| {
        let merged = table(&[run]);
        resident(&Known::committed(&[], &merged), &subject, kernel)
    };
    assert_eq!(blocks(drawn_run(&stages, 0)), 1);
    assert_eq!(blocks(run), 3);
}

#[test]
fn a_kernel_of_uneven_times_is_not_thought_fast() {
    let stages = stages::load().unwrap();
    let mut run = drawn_run(&stages, 120).without(|row| row.subject.to_string() != SMALL);
    let rows: Vec<Row> = drawn(&run.table).cloned().collect();
    for row in &rows {
        let factor = [0.5, 2.0][row.value(Metric::Draw).unwrap() as usize % 2];
        run.append(row.clone().figure(Metric::P50, factor * p50(row)));
    }
    let model = fit(&[Known::alone(&run)], &stages, None).unwrap().model;
    let mut ratios = Vec::new();
    for row in &rows {
        let problem = row.on.problem().unwrap().problem().unwrap();
        let stage = loaded(&stages, &row.subject).unwrap();
        let prepared = stage.prepare(row.subject.name(), &problem).unwrap();
        let terms = terms(&problem, prepared.kernel, prepared.grid, 1, 132);
        let is_its = |cost: &&Cost| {
            (cost.dtype, cost.head_dim) == (modelled(problem.dtype), problem.shape.head_dim)
        };
        let cost = model.costs.iter().find(is_its).unwrap();
        ratios.push(dot(&terms, &cost.us) / p50(row));
    }
    ratios.sort_by(f64::total_cmp);
    let median = percentile(&ratios, 0.5);
    // The least squares of relative errors are at 0.59.
    assert!((0.7..1.3).contains(&median), "{median}");
}

#[test]
fn each_part_is_judged_by_a_fit_that_has_not_seen_it() {
    let stages = stages::load().unwrap();
    let mut run = drawn_run(&stages, 120);
    let is_unseen = |row: &Row| {
        row.value(Metric::Draw)
            .is_some_and(|number| number % 10.0 == 3.0)
    };
    // Times that would spoil a fit.
    let rows: Vec<Row> = drawn(&run.table).cloned().collect();
    for row in rows.into_iter().filter(is_unseen) {
        run.append(row.clone().figure(Metric::P50, 1000.0 / p50(&row)));
    }
    let model = |run: &Run, unseen| fit(&[Known::alone(run)], &stages, unseen).unwrap().model;
    let others = run.clone().without(is_unseen);
    assert_eq!(model(&run, Some(3)), model(&others, None));
    assert_ne!(model(&run, None), model(&others, None));
    // What is known of one kind of problems is known by those that are left out.
    let is_alone = |row: &Row| {
        let problem = row.on.problem().unwrap().problem().unwrap();
        (problem.dtype, problem.shape.head_dim) == (Dtype::E4m3, 128)
    };
    let mut alone = others;
    let rows: Vec<Row> = drawn(&alone.table).cloned().collect();
    for row in rows.into_iter().filter(is_alone) {
        alone.append(row.figure(Metric::Draw, 4.0));
    }
    let known = Known::alone(&alone);
    let found = unseen_regret(std::slice::from_ref(&known), &stages).unwrap();
    let kind: BTreeSet<&On> = (drawn(&alone.table).filter(|row| is_alone(row)))
        .map(|row| &row.on)
        .collect();
    assert!(!kind.is_empty());
    assert_eq!(found.drawn - found.problems, kind.len(), "{found}");
    let seen = regret(&known, &stages, &[model(&alone, None)]).unwrap();
    assert_eq!(seen.drawn, seen.problems, "{seen}");
}

#[test]
fn a_wrong_choice_is_named_and_fails() {
    let stages = stages::load().unwrap();
    let run = drawn_run(&stages, 60);
    let known = Known::alone(&run);
    let mut model = fit(std::slice::from_ref(&known), &stages, None)
        .unwrap()
        .model;
    for cost in &mut model.costs {
        let others = [(LARGE, SMALL), (SMALL, LARGE)];
        let other = others.iter().find(|(variant, _)| *variant == cost.variant);
        cost.variant = other.map_or(SWIZZLE, |(_, other)| other).into();
    }
    let found = regret(&known, &stages, &[model]).unwrap();
    assert!(!found.is_kept() && found.problems == 60, "{found}");
    assert!(found.worst > found.mean, "{found}");
    let words = found.to_string();
    assert!(
        words.starts_with("FAIL: ") && words.contains(" µs, stage7-wgmma/"),
        "{words}"
    );
    for (mean, worst, is_kept) in [(1.02, 1.1, true), (1.021, 1.1, false), (1.02, 1.11, false)] {
        let regret = Regret {
            mean,
            worst,
            ..found.clone()
        };
        assert_eq!(regret.is_kept(), is_kept, "{mean} {worst}");
    }
    // The row says what it was made of.
    let mut table = Table::default();
    table.append(found.row());
    let read = Regret::known(&table).unwrap();
    assert_eq!(
        (read.problems, read.at, read.mean),
        (
            60,
            found.at.clone(),
            found.row().rounded().value(Metric::RegretMean).unwrap()
        )
    );
}

#[test]
fn what_is_hardly_faster_is_not_in_the_file_and_what_is_much_faster_once_is() {
    let stages = stages::load().unwrap();
    let other = "stage7-wgmma/wgmma-192x128";
    let has = |faster: f64| {
        let mut run = drawn_run(&stages, 60);
        let rows = drawn(&run.table).map(|row| (p50(row), row.on.clone()));
        let (us, on) = rows.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        let row = Row::new(other, on, Source::Draw);
        let row = row.figure(Metric::Draw, 0.0);
        run.append(row.figure(Metric::P50, us / faster));
        let model = fit(&[Known::alone(&run)], &stages, None).unwrap().model;
        model.costs.iter().any(|cost| cost.variant == other)
    };
    assert_eq!([1.005, 1.5].map(has), [false, true]);
}

#[test]
fn times_of_another_gpu_of_the_same_capability_and_of_kernels_that_have_changed_are_in_the_fit() {
    let stages = stages::load().unwrap();
    let few = drawn_run(&stages, 6);
    let many = drawn_run(&stages, 120);
    let files = |tables: &[Known<'_>]| fit(tables, &stages, None).unwrap().model;
    let both = files(&[Known::alone(&few), Known::alone(&many)]);
    let alone = files(&[Known::alone(&few)]);
    assert!(alone.costs.len() < both.costs.len());
    assert_eq!(both.gpu, alone.gpu);
    // It has another number of multiprocessors; what is said of the fit is of the table's own times.
    let smaller = drawn_on(&stages, 120, 33);
    let fitted = fit(&[Known::alone(&few), Known::alone(&smaller)], &stages, None).unwrap();
    let errors: Vec<f64> = fitted.errors.values().flatten().copied().collect();
    assert_eq!(errors.len(), drawn(&few.table).count());
    assert!(errors.iter().all(|error| *error < 0.1), "{errors:?}");
    // Of most problems there are times of other kernels alone.
    let mut older = many.clone();
    let is_before = |row: &&Row| row.value(Metric::Draw) > Some(5.0);
    let rows: Vec<Row> = (drawn(&many.table).filter(is_before)).cloned().collect();
    for mut row in rows {
        row.identity = Some("before".into());
        older.table.append(row);
    }
    let stale = drawn(&older.table).filter(|row| Known::alone(&older).is_stale(row));
    assert!(stale.count() > 100);
    assert_eq!(
        files(&[Known::alone(&older)]),
        files(&[Known::alone(&many)])
    );
    let mut other = many;
    if let session::Gpu::Present { arch, .. } = &mut other.session.machine.gpu {
        *arch = "sm_89".into();
    }
    assert_eq!(files(&[Known::alone(&few), Known::alone(&other)]), alone);
}

#[test]
fn sessions_that_timed_all_variants_are_judged_and_others_are_not() {
    let stages = stages::load().unwrap();
    let sessions = |runs: &[Run]| {
        let table = table(runs);
        let judged = judged(&table).map(|row| row.session.clone());
        judged.collect::<BTreeSet<_>>().len()
    };
    let [first, second] = [("1", 4), ("2", 9)].map(|(name, number)| {
        let mut run = drawn_run(&stages, number).named(name);
        run.table
            .retain(|row| row.value(Metric::Draw) >= Some(number as f64 - 4.0));
        run
    });
    let is_small = |row: &Row| row.subject.to_string() == SMALL;
    let both = [first.clone(), second.clone()];
    assert_eq!(sessions(&both), 2);
    assert_eq!(
        sessions(&[first.clone().without(is_small), second.clone()]),
        1
    );
    // What is gone is asked of none.
    assert_eq!(sessions(&[first, second.without(is_small)]), 2);
}

#[test]
fn what_the_model_says_is_much_the_fastest_where_nothing_was_timed_is_in_the_file() {
    let stages = stages::load().unwrap();
    let run = drawn_run(&stages, 160);
    // Where it wins there is no time, and elsewhere it is told by enough.
    let best = |run: &Run, row: &Row| {
        let others = drawn(&run.table).filter(|other| other.on == row.on);
        others.map(p50).fold(f64::INFINITY, f64::min)
    };
    let wins: BTreeSet<On> = (drawn(&run.table))
        .filter(|row| row.subject.to_string() == SMALL && p50(row) <= best(&run, row))
        .map(|row| row.on.clone())
        .collect();
    let run = run.without(|row| wins.contains(&row.on));
    let model = fit(&[Known::alone(&run)], &stages, None).unwrap().model;
    assert!(!wins.is_empty() && model.costs.iter().any(|cost| cost.variant == SMALL));
}
