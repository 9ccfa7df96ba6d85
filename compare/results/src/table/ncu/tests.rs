use super::*;

/// The formula of a metric on a Hopper.
fn formula(metric: Metric) -> Option<&'static Formula> {
    formulas(Chips::Hopper).find(|formula| formula.metric == metric)
}
use crate::table::Kind;
use crate::testing::mission;
use common::metric::Unit;

#[test]
fn figures_are_sums_over_sums_and_absent_where_a_metric_is() {
    let values = |list: &[(&str, f64)]| {
        list.iter()
            .map(|(name, value)| (name.to_string(), *value))
            .collect()
    };
    let share = formula(Metric::AsyncCopyShare).unwrap();
    assert_eq!(
        share.value(&values(&[(LOADED_BYTES, 25.0), (COPIED_BYTES, 75.0)])),
        Some(0.75)
    );
    assert_eq!(
        share.value(&values(&[(LOADED_BYTES, 0.0), (COPIED_BYTES, 0.0)])),
        None,
        "a part of nothing"
    );
    assert_eq!(share.value(&values(&[(COPIED_BYTES, 75.0)])), None);
    let macs = formula(Metric::TensorMacs).unwrap();
    let mut values_of_parts = Vec::from_iter(macs.sum.iter().map(|name| (*name, 8.0)));
    assert_eq!(
        macs.value(&values(&values_of_parts)),
        Some(4.0 * values_of_parts.len() as f64)
    );
    values_of_parts.pop();
    assert_eq!(
        macs.value(&values(&values_of_parts)),
        None,
        "a part is missing"
    );
}

#[test]
fn what_ncu_does_not_see_is_absent_and_not_0() {
    let row = Row::new("stage6-tma/tma-32x256-k4", Kind::Profile(mission()))
        .figure(Metric::GlobalReadBytes, 0.0)
        .figure(Metric::TensorMacs, 8.0)
        .figure(Metric::L2HitRate, 0.5);
    let left = Vec::from_iter(without_unseen(row).figures.into_keys());
    assert_eq!(left, [Metric::TensorMacs, Metric::L2HitRate]);
}

/// Stages 7 to 13 multiply by wgmma on an H100 and H200.
#[test]
fn products_by_wgmma_are_counted_where_there_is_wgmma() {
    for (metric, word) in [
        (Metric::TensorMacs, "op_hgmma_src_fp16"),
        (Metric::TensorMacs, "op_hgmma_src_bf16"),
        (Metric::TensorOps, "op_gmma"),
    ] {
        let names = formula(metric).unwrap().sum;
        assert!(names.iter().any(|name| name.contains(word)), "{names:?}");
    }
}

#[test]
fn a_capability_has_the_names_of_its_chips() {
    let chips = [80, 86, 87, 89, 90, 100, 103, 120, 121].map(Chips::new);
    use Chips::{Ada, Ampere, Blackwell, BlackwellGraphics, Hopper};
    let expected = [
        Ampere,
        Ampere,
        Ampere,
        Ada,
        Hopper,
        Blackwell,
        Blackwell,
        BlackwellGraphics,
        BlackwellGraphics,
    ];
    assert_eq!(chips, expected);
}

/// The metrics of ours that NVIDIA's tables have, with the chips.
const TABLES: &str = include_str!("chips.txt");

#[test]
fn every_name_is_one_that_ncu_has_for_the_chip() {
    let has = |chip: &str, name: &str| {
        let (base, _) = name.split_once('.').unwrap();
        let mut lines = TABLES.lines().map(|line| line.split(' '));
        let mut chips = lines
            .find_map(|mut words| (words.next() == Some(base)).then_some(words))
            .unwrap_or_else(|| panic!("ncu/chips.txt has no line of {base}"));
        chips.any(|other| other == chip)
    };
    for (chip, capability) in [
        ("GA100", 80),
        ("GA102", 86),
        ("AD102", 89),
        ("AD104", 89),
        ("GH100", 90),
        ("GB100", 100),
        ("GB202", 120),
    ] {
        let names = names(Chips::new(capability));
        let unknown: Vec<&str> = names.into_iter().filter(|name| !has(chip, name)).collect();
        assert_eq!(unknown, [""; 0], "{chip}");
    }
}

/// So that a figure can be repeated by hand.
#[test]
fn each_metric_has_one_formula_of_its_unit_which_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rows.md");
    let page = std::fs::read_to_string(path).unwrap();
    for formula in &FORMULAS {
        let sum = |names: &[&str]| match names {
            [name] => name.to_string(),
            names => format!("({})", names.join(" + ")),
        };
        let factor = match formula.factor {
            1.0 => String::new(),
            factor => format!("{factor} × "),
        };
        let over = match formula.over {
            [] => String::new(),
            over => format!(" / {}", sum(over)),
        };
        let (name, parts) = (formula.metric.name(), sum(formula.sum));
        let line = format!("| `{name}` | `{factor}{parts}{over}` | ");
        assert!(page.contains(&line), "{line}");
        for chips in formula.chips {
            let same = formulas(*chips).filter(|other| other.metric == formula.metric);
            assert_eq!(same.count(), 1, "{} on {chips:?}", formula.metric);
        }
        let is_part = !formula.over.is_empty() || formula.factor == PERCENT;
        let unit = formula.metric.spec().unit;
        assert_eq!(
            is_part,
            matches!(unit, Unit::Share | Unit::Ratio),
            "{}",
            formula.metric
        );
    }
}
