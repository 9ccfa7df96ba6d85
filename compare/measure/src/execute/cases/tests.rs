use super::*;
use common::inputs::Family;
use common::problem::{Dtype, Mask, parse_shape};
use results::table::Subject;

fn case(shape: &str, mode: Mode) -> PlannedCase {
    let problem = Problem::new(parse_shape(shape).unwrap(), Dtype::F16, Mask::Full).unwrap();
    PlannedCase {
        subject: Subject::variant("stage0-scalar", "scalar-32x64"),
        source: Source::Seeded {
            family: Family::Normal,
            seed: 0,
        },
        problem,
        mode,
        is_late: false,
        runs_ptx: false,
    }
}

/// Returns a case that fills a batch, with a reference by the host.
fn part(case: &PlannedCase) -> Part<'_> {
    Part {
        cases: vec![case],
        on_host: vec![Probability::F16],
        share: 1.0,
    }
}

/// Returns the number of parts in each batch, of these cases and the part of a batch that each fills.
fn parts_of_batches(cases: &[(PlannedCase, f64)]) -> Vec<usize> {
    let parts = cases.iter().map(|(case, share)| Part {
        share: *share,
        ..part(case)
    });
    let batches = batches(parts.collect());
    batches.iter().map(Vec::len).collect()
}

#[test]
fn a_batch_has_the_cases_of_several_inputs_up_to_its_size() {
    let small = case("1x1x64x64", Mode::Device);
    let shares = [0.5, 0.25, 0.25, 0.5, 0.75, 1.0];
    let cases = shares.map(|share| (small.clone(), share));
    assert_eq!(parts_of_batches(&cases), [3, 1, 1, 1]);
}

#[test]
fn inputs_that_fill_the_memory_of_a_batch_are_alone() {
    let small = case("1x1x64x64", Mode::Device);
    let large = case("4x32x16384x128", Mode::Device);
    assert!(large.problem.input_bytes() > MADE_BYTES);
    let cases = [small.clone(), large, small].map(|case| (case, 0.1));
    assert_eq!(parts_of_batches(&cases), [1, 1, 1]);
}

#[test]
fn a_batch_is_launched_on_one_backend() {
    let modes = [Mode::Device, Mode::Both, Mode::Plain, Mode::Traced];
    let cases = modes.map(|mode| (case("1x1x64x64", mode), 0.1));
    assert_eq!(parts_of_batches(&cases), [2, 2]);
}

#[test]
fn inputs_that_take_long_are_announced_unless_they_are_there() {
    let [small, large] = ["1x1x64x64", "1x8x16384x128"].map(|shape| case(shape, Mode::Plain));
    assert!(!is_long_made(&[part(&small)], None));
    assert!(is_long_made(&[part(&large)], None));
    let made = Arc::new(MadeInputs::new(None, &large).unwrap());
    assert!(!is_long_made(&[part(&large)], Some(&made)));
    assert!(is_long_made(&[part(&large), part(&small)], Some(&made)));
}

#[test]
fn inputs_are_made_once_for_cases_that_follow_each_other() {
    let [one, other] = ["1x1x64x64", "1x1x65x64"].map(|shape| case(shape, Mode::Plain));
    let first = make(None, &part(&one), None).unwrap();
    let again = make(None, &part(&one), Some(&first)).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let next = make(None, &part(&other), Some(&first)).unwrap();
    assert!(next.is_of(&other) && !next.is_of(&one));
    let mut reseeded = one.clone();
    reseeded.source = Source::Seeded {
        family: Family::Normal,
        seed: 1,
    };
    assert!(!first.is_of(&reseeded));
    let known: Vec<Probability> = next.references().keys().copied().collect();
    assert_eq!(known, [Probability::F16]);
}
