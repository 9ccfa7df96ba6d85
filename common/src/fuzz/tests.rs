use super::*;
use crate::placement::{DIMENSIONS, Order, STRIDE_ALIGN};
use crate::problem::HEAD_DIMS;
use crate::serving::{Cache, Lengths, Serving, Window};

const SEED: u64 = 20_261_128;

fn drawn(count: u64) -> Vec<Case> {
    (0..count)
        .map(|index| draw(SEED, index, &Dtype::ALL))
        .collect()
}

fn case(text: &str) -> Case {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_case_depends_on_its_seed_and_index_alone() {
    let cases = drawn(50);
    assert_eq!(cases[20..], drawn(50)[20..]);
    assert_eq!(cases[7], draw(SEED, 7, &Dtype::ALL));
    assert_ne!(cases[7], draw(SEED + 1, 7, &Dtype::ALL));
}

#[test]
fn a_case_has_one_of_the_types_asked_for() {
    for index in 0..50 {
        let case = draw(SEED, index, &[Dtype::Bf16]);
        assert_eq!(case.problem.dtype, Dtype::Bf16);
    }
}

/// Fails unless at least so many of the cases have a property.
#[track_caller]
fn occurs(cases: &[Case], least: usize, what: &str, has: impl Fn(&Case) -> bool) {
    let count = cases.iter().filter(|case| has(case)).count();
    assert!(count >= least, "{what}: {count} of {}", cases.len());
}

/// Fails unless at least so many of the cases have a shape with a property.
#[track_caller]
fn occurs_in_shapes(cases: &[Case], least: usize, what: &str, has: fn(&Shape) -> bool) {
    occurs(cases, least, what, |case| has(&case.problem.shape));
}

#[test]
fn every_kind_of_problem_is_drawn() {
    let cases = drawn(2_000);
    for dtype in Dtype::ALL {
        occurs(&cases, 400, dtype.name(), |case| {
            case.problem.dtype == dtype
        });
        for family in Family::for_dtype(dtype) {
            occurs(&cases, 20, &format!("{dtype} {family}"), |case| {
                (case.problem.dtype, case.family) == (dtype, family)
            });
        }
    }
    for mask in Mask::ALL {
        occurs(&cases, 800, mask.name(), |case| case.problem.mask == mask);
    }
    for head_dim in HEAD_DIMS {
        occurs(&cases, 800, "head_dim", |case| {
            case.problem.shape.head_dim == head_dim
        });
    }
    for group in [1, 2, 3, 4, 5, 7, 8] {
        occurs(&cases, 50, &format!("groups of {group}"), |case| {
            case.problem.shape.heads_q == group * case.problem.shape.heads_kv
        });
    }
    occurs(&cases, 800, "log-sum-exps", |case| case.lse);
    occurs(&cases, 800, "no log-sum-exps", |case| !case.lse);
    occurs(&cases, 800, "the default scale", |case| {
        case.with_default_scale() == *case
    });
    occurs(&cases, 100, "small scales", |case| {
        case.problem.softmax_scale < 0.05
    });
    occurs(&cases, 100, "large scales", |case| {
        case.problem.softmax_scale > 0.5
    });
    occurs(&cases, 300, "traced", Case::is_small);
    occurs(&cases, 300, "not traced", |case| !case.is_small());
    occurs(&cases, 100, "rows without a key", |case| {
        case.problem.visible_keys(0) == 0
    });
}

#[test]
fn every_kind_of_shape_is_drawn() {
    let cases = drawn(2_000);
    occurs_in_shapes(&cases, 100, "several key heads in groups", |shape| {
        shape.heads_kv > 1 && shape.heads_q > shape.heads_kv
    });
    occurs_in_shapes(&cases, 300, "several batches", |shape| shape.batch > 1);
    occurs_in_shapes(&cases, 100, "one query", |shape| shape.seq_q == 1);
    occurs_in_shapes(&cases, 100, "one key", |shape| shape.seq_kv == 1);
    occurs_in_shapes(&cases, 20, "one of each", |shape| {
        shape.seq_q == 1 && shape.seq_kv == 1
    });
    occurs_in_shapes(&cases, 300, "as many queries as keys", |shape| {
        shape.seq_q == shape.seq_kv
    });
    occurs_in_shapes(&cases, 300, "more queries", |shape| {
        shape.seq_q > shape.seq_kv
    });
    occurs_in_shapes(&cases, 300, "more keys", |shape| shape.seq_q < shape.seq_kv);
    occurs_in_shapes(&cases, 500, "ragged queries", |shape| {
        !shape.seq_q.is_multiple_of(16)
    });
    occurs_in_shapes(&cases, 500, "ragged keys", |shape| {
        !shape.seq_kv.is_multiple_of(16)
    });
    occurs_in_shapes(&cases, 30, "whole tiles", |shape| {
        shape.seq_q.is_multiple_of(64) && shape.seq_kv.is_multiple_of(64)
    });
    occurs_in_shapes(&cases, 20, "many keys", |shape| shape.seq_kv > 1_024);
}

/// The bounds of gates C4, C8 and B1 are for scores as large as theirs at the default scale.
#[test]
fn families_of_large_logits_have_at_most_the_default_scale() {
    use Family::{Colossal, DeepNegative, Huge, Large, MixedScale};
    let large = [Large, DeepNegative, Huge, MixedScale, Colossal];
    let cases = drawn(2_000);
    for case in cases.iter().filter(|case| large.contains(&case.family)) {
        let default = case.with_default_scale().problem.softmax_scale;
        assert!(case.problem.softmax_scale <= default, "{case}");
    }
}

type HasPlacement<'a> = dyn Fn(&Placement) -> bool + 'a;

#[test]
fn every_kind_of_placement_is_drawn_for_every_tensor() {
    let cases = drawn(2_000);
    for (tensor, name) in TENSORS.into_iter().enumerate() {
        let occurs_there = |what: &str, least, has: &HasPlacement<'_>| {
            occurs(&cases, least, &format!("{name} {what}"), |case| {
                has(&case.placements[tensor])
            });
        };
        occurs_there("packed", 200, &|placement| *placement == Placement::PACKED);
        for order in Order::ALL {
            occurs_there(order.name(), 50, &|placement| placement.order == order);
        }
        for dimension in 0..DIMENSIONS {
            occurs_there("gap", 300, &|placement| placement.gaps[dimension] > 0);
        }
        occurs_there("offset", 300, &|placement| placement.offset > 0);
        for remainder in (0..128).step_by(STRIDE_ALIGN) {
            occurs_there("offset of a sector", 20, &|placement| {
                placement.offset % 128 == remainder
            });
        }
        occurs_there("gap as tall as a tile", 50, &|placement| {
            placement.gaps[1] > 30_000
        });
    }
    occurs(&cases, 100, "all as PyTorch's transpose has them", |case| {
        case.placements
            .iter()
            .all(|placement| placement.to_string() == "bshd")
    });
    occurs(&cases, 100, "parts of one tensor", |case| {
        let [q, k, v, _] = case.placements;
        q.gaps[2] > 0 && k.gaps[2] == v.gaps[2] && k.offset < v.offset
    });
}

/// Fails unless the constructors of problems and placements accept a case.
#[track_caller]
fn assert_legal(case: &Case) {
    let Problem {
        shape,
        dtype,
        mask,
        softmax_scale,
    } = case.problem;
    assert!(
        Problem::with_scale(shape, dtype, mask, softmax_scale).is_ok(),
        "{case}"
    );
    assert!(Family::for_dtype(dtype).contains(&case.family), "{case}");
    assert!(case.placements.iter().all(Placement::is_legal), "{case}");
}

#[test]
fn a_case_is_read_as_it_is_written() {
    for case in drawn(500) {
        assert_legal(&case);
        assert_eq!(case.to_string().parse(), Ok(case), "{case}");
    }
    let text = "2x6:2x17:203x64 f16 causal normal:7 scale=0.3 lse q=bshd/s256@16 o=shbd";
    assert_eq!(case(text).to_string(), text);
    let plain = "1x1x1x64 f16 full normal:0";
    assert_eq!(case(plain).to_string(), plain);
}

#[test]
fn a_malformed_case_is_refused_with_what_is_known() {
    for (text, part) in [
        ("", "is not a case"),
        ("1x1x1x64 f16 full", "is not a case"),
        ("1x1x1x64 f16 full normal", "is not a case"),
        ("1x1x1x64 f16 full normal:x", "is not a case"),
        ("1x1x1x64 f16 full normal:0 lsé", "is not a case"),
        ("1x1x1x64 f16 full normal:0 p=bhsd", "is not a case"),
        ("1x1x1x64 f16 full normal:0 q=bhsd/s8", "is not a placement"),
        ("1x1x1x64 f16 full normal:0 scale=-1", "positive finite"),
        ("1x1x1x36 f16 full normal:0", "head_dim = 36"),
        (
            "1x1x1x64 f61 full normal:0",
            "there is no dtype 'f61'; known: f16, e4m3, bf16",
        ),
        ("1x1x1x64 f16 half normal:0", "there is no mask 'half'"),
        ("1x1x1x64 f16 full norml:0", "there is no family 'norml'"),
        (
            "1x1x1x64 f16 full wide-range:0",
            "of another element type than f16",
        ),
    ] {
        let error = text.parse::<Case>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Shrinks the first drawn case that `fails` to the smallest.
fn smallest(fails: impl Fn(&Case) -> bool) -> String {
    let first = drawn(2_000)
        .into_iter()
        .find(|case| fails(case))
        .expect("one fails");
    let shrunk = shrink(first, 2_000, |case| answer(fails(case)));
    assert!(shrunk.is_smallest);
    assert!(fails(&shrunk.case));
    shrunk.case.to_string()
}

fn answer(fails: bool) -> Answer {
    if fails { Answer::Fails } else { Answer::Passes }
}

#[test]
fn a_fault_that_always_fails_shrinks_to_the_smallest_case_of_all() {
    assert_eq!(smallest(|_| true), "1x1x1x64 f16 full normal:0");
}

/// Shrinks the first drawn case with a shape that `fails`.
fn smallest_shape(fails: fn(&Shape) -> bool) -> String {
    smallest(|case| fails(&case.problem.shape))
}

#[test]
fn each_extent_is_shrunk_to_the_one_that_the_fault_needs() {
    assert_eq!(
        smallest_shape(|shape| shape.batch >= 2),
        "2x1x1x64 f16 full normal:0"
    );
    assert_eq!(
        smallest_shape(|shape| shape.heads_kv > 1),
        "1x2x1x64 f16 full normal:0"
    );
    assert_eq!(
        smallest_shape(|shape| shape.heads_q == 3 * shape.heads_kv),
        "1x3:1x1x64 f16 full normal:0"
    );
    assert_eq!(
        smallest_shape(|shape| shape.seq_q >= 77),
        "1x1x77:1x64 f16 full normal:0"
    );
    assert_eq!(
        smallest_shape(|shape| shape.seq_kv > 512),
        "1x1x1:513x64 f16 full normal:0"
    );
    assert_eq!(
        smallest_shape(|shape| shape.seq_q > 100 && shape.seq_q == shape.seq_kv),
        "1x1x101x64 f16 full normal:0"
    );
    assert_eq!(
        smallest_shape(|shape| shape.head_dim == 128),
        "1x1x1x128 f16 full normal:0"
    );
}

#[test]
fn mask_type_family_and_options_are_kept_where_the_fault_needs_them() {
    assert_eq!(
        smallest(|case| case.problem.mask == Mask::Causal && case.problem.visible_keys(0) == 0),
        "1x1x2:1x64 f16 causal normal:0"
    );
    assert_eq!(
        smallest(|case| case.problem.dtype == Dtype::E4m3),
        "1x1x1x64 e4m3 full normal:0"
    );
    assert_eq!(
        smallest(|case| case.family == Family::Sink),
        "1x1x1x64 f16 full sink:0"
    );
    assert_eq!(smallest(|case| case.lse), "1x1x1x64 f16 full normal:0 lse");
    assert_eq!(
        smallest(|case| case.problem.softmax_scale > 0.5 && case.problem.shape.seq_kv > 2),
        "1x1x1:3x64 f16 full normal:0 scale=1"
    );
}

#[test]
fn a_placement_is_kept_where_the_fault_needs_it() {
    assert_eq!(
        smallest(|case| case.placements[1].order == Order::Bshd),
        "1x1x1x64 f16 full normal:0 k=bshd"
    );
    assert_eq!(
        smallest(|case| case.placements[3].gaps[2] > 64),
        "1x1x1x64 f16 full normal:0 o=bhsd/s80"
    );
    assert_eq!(
        smallest(|case| case.placements[0].offset % 128 == 48),
        "1x1x1x64 f16 full normal:0 q=bhsd@48"
    );
}

#[test]
fn a_fault_of_the_default_scale_shrinks_to_the_smaller_head() {
    let first = case("1x1x1x128 f16 full normal:0");
    let shrunk = shrink(first, 100, |case| {
        answer(case.with_default_scale() == *case)
    });
    assert_eq!(shrunk.case, case("1x1x1x64 f16 full normal:0"));
}

/// The smallest case has every part of the fault and nothing else.
#[test]
fn a_fault_of_several_dimensions_keeps_them_all() {
    let kept = smallest(|case| {
        let Problem { shape, mask, .. } = case.problem;
        mask == Mask::Causal
            && shape.seq_kv > shape.seq_q + 16
            && shape.heads_q > shape.heads_kv
            && case.placements[2].order == Order::Bshd
    });
    assert_eq!(kept, "1x2:1x1:18x64 f16 causal normal:0 v=bshd");
}

#[test]
fn a_smaller_case_is_legal_and_another_one() {
    for first in drawn(300) {
        let mut number = 0;
        shrink(first, 100, |case| {
            assert_legal(case);
            assert_ne!(*case, first);
            number += 1;
            answer(number % 3 == 0)
        });
    }
}

#[test]
fn shrinking_ends_when_it_is_stopped_or_has_no_tries_left() {
    let first = case("5x6:2x600x128 bf16 causal huge:9 lse q=bshd/s16");
    let stopped = shrink(first, 100, |_| Answer::Stop);
    let expected = Shrunk {
        case: first,
        tries: 0,
        is_smallest: false,
    };
    assert_eq!(stopped, expected);
    let exhausted = shrink(first, 3, |_| Answer::Fails);
    assert_eq!((exhausted.tries, exhausted.is_smallest), (3, false));
    assert_ne!(exhausted.case, first);
}

#[test]
fn served_cases_have_every_property_and_are_read_back() {
    let cases: Vec<Case> = (0..400)
        .map(|index| draw_served(SEED, index, &[Dtype::F16], None))
        .collect();
    let count = |is: fn(&Serving) -> bool| {
        let servings = cases.iter().map(|case| &case.problem.shape.serving);
        servings.filter(|serving| is(serving)).count()
    };
    assert!(count(Serving::is_dense) > 40);
    let other_sizes = cases.iter().map(|case| case.problem.shape);
    assert!(other_sizes.filter(|shape| shape.head_dim % 64 != 0).count() > 120);
    assert!(count(|serving| matches!(serving.lengths, Lengths::Packed(_))) > 60);
    assert!(count(|serving| matches!(serving.lengths, Lengths::Used(_))) > 30);
    assert!(count(|serving| serving.window != Window::default()) > 60);
    assert!(count(|serving| serving.sinks) > 40);
    assert!(count(|serving| serving.softcap.is_some()) > 20);
    assert!(count(|serving| serving.page_rows.is_some()) > 40);
    for case in &cases {
        assert_eq!(case.to_string().parse::<Case>().unwrap(), *case);
    }
}

#[test]
fn cases_in_a_cache_have_every_property_and_are_read_back() {
    let dtypes = [Dtype::F16, Dtype::Bf16];
    let cases: Vec<Case> = (0..200)
        .map(|index| draw_served(SEED, index, &dtypes, Some(Cache::E4m3)))
        .collect();
    let servings = || cases.iter().map(|case| case.problem.shape.serving);
    assert!(servings().all(|serving| serving.cache == Some(Cache::E4m3)));
    let is_plain = |serving: Serving| {
        Serving {
            cache: None,
            ..serving
        }
        .is_dense()
    };
    assert!(servings().filter(|&serving| is_plain(serving)).count() > 20);
    assert!(
        servings()
            .filter(|serving| serving.page_rows.is_some())
            .count()
            > 20
    );
    for case in &cases {
        assert_eq!(case.to_string().parse::<Case>().unwrap(), *case);
    }
}

#[test]
fn a_fault_without_a_cache_is_shrunk_to_none() {
    let drawn = draw_served(SEED, 3, &[Dtype::F16], Some(Cache::E4m3));
    let shrunk = shrink(drawn, 1000, |_| Answer::Fails);
    assert_eq!(shrunk.case.problem.shape.to_string(), "1x1x1x64");
}

#[test]
fn a_fault_of_pages_is_shrunk_to_pages_alone() {
    let drawn = (0..1000)
        .map(|index| draw_served(SEED, index, &[Dtype::F16], None))
        .find(|case| {
            let serving = case.problem.shape.serving;
            serving.page_rows.is_some() && serving.sinks && serving.window.left.is_some()
        });
    let shrunk = shrink(drawn.unwrap(), 1000, |case| {
        match case.problem.shape.serving.page_rows {
            Some(_) => Answer::Fails,
            None => Answer::Passes,
        }
    });
    let rows = shrunk.case.problem.shape.serving.page_rows.unwrap();
    assert_eq!(
        shrunk.case.problem.shape.to_string(),
        format!("1x1x1x64+page={rows}")
    );
}
