use super::*;
use crate::format::Format;
use crate::problem::{Mask, Shape};
use crate::serving::{Cache, Serving};

fn problem(dtype: Dtype) -> Problem {
    let shape = Shape {
        batch: 2,
        heads_q: 4,
        heads_kv: 2,
        seq_q: 40,
        seq_kv: 50,
        head_dim: 64,
        serving: Serving::DENSE,
    };
    Problem::new(shape, dtype, Mask::Full).unwrap()
}

fn unrounded(operand: &Operand) -> &[f32] {
    operand.unquantised.as_deref().unwrap()
}

#[test]
fn all_dtypes_start_from_the_same_values_and_every_head_from_its_own() {
    for family in Family::ALL {
        let mut dtypes = Dtype::ALL.to_vec();
        dtypes.retain(|dtype| Family::for_dtype(*dtype).contains(&family));
        let all: Vec<Inputs> = dtypes
            .iter()
            .map(|&dtype| Inputs::generate(&problem(dtype), family, 7))
            .collect();
        let half = &all[0];
        for other in &all {
            for (a, b) in [
                (&half.q, &other.q),
                (&half.k, &other.k),
                (&half.v, &other.v),
            ] {
                assert_eq!(a.unquantised, b.unquantised, "{family}");
            }
            other.check().unwrap();
        }
        assert_eq!(
            *half,
            Inputs::generate(&problem(dtypes[0]), family, 7),
            "{family}"
        );
        assert_ne!(
            half.q.bytes,
            Inputs::generate(&problem(dtypes[0]), family, 8).q.bytes,
            "{family}"
        );
        assert_ne!(half.k.bytes, half.v.bytes, "{family}");
        let head_len = 40 * 64;
        let q = unrounded(&half.q);
        assert_ne!(
            q[head_len..2 * head_len],
            q[2 * head_len..3 * head_len],
            "{family}"
        );
    }
}

/// Pins the bits: a change of the generator would silently change every committed number.
#[test]
fn first_values_are_pinned() {
    let inputs = Inputs::generate(&problem(Dtype::F16), Family::Normal, 0);
    assert_eq!(
        unrounded(&inputs.q)[..4],
        [0.43191892, -0.09582235, 0.36995888, 1.4572963]
    );
    // FNV-1a over the bits of the families that are of the same age.
    let (extreme, usual): (Vec<_>, Vec<_>) = Family::for_dtype(Dtype::E4m3)
        .into_iter()
        .partition(|family| Family::EXTREME.contains(family));
    assert_eq!(hash_of_values(&usual), 17_100_836_497_426_930_431);
    assert_eq!(hash_of_values(&extreme), 1_469_648_253_468_071_088);
}

fn hash_of_values(families: &[Family]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &family in families {
        let inputs = Inputs::generate(&problem(Dtype::E4m3), family, 0);
        for operand in [&inputs.q, &inputs.k, &inputs.v] {
            for value in unrounded(operand) {
                hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    hash
}

fn generate(family: Family) -> Inputs {
    Inputs::generate(&problem(Dtype::E4m3), family, 3)
}

#[test]
fn shifted_values_have_a_mean() {
    let inputs = generate(Family::Shifted);
    let values = unrounded(&inputs.v);
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    assert!((mean - 0.5).abs() < 0.05, "{mean}");
}

#[test]
fn all_negative_scores_come_from_signs_of_q_and_k() {
    let negative = generate(Family::AllNegative);
    assert!(unrounded(&negative.q).iter().all(|&x| x >= 0.0));
    assert!(unrounded(&negative.k).iter().all(|&x| x <= 0.0));
    assert!(unrounded(&negative.v).iter().any(|&x| x > 0.0));
}

#[test]
fn large_values_and_outliers_are_large() {
    let largest = |family| {
        let inputs = generate(family);
        let values = unrounded(&inputs.q).iter();
        values.fold(0f32, |most, value| most.max(value.abs()))
    };
    assert!(largest(Family::Large) > 24.0);
    assert!(largest(Family::Outliers) > 8.0);
}

#[test]
fn a_third_of_saturated_codes_are_the_largest() {
    let codes = generate(Family::Saturated).v.bytes;
    let largest = codes.iter().filter(|&&code| code & 0x7f == 0x7e).count();
    assert!(
        largest * 4 > codes.len(),
        "{largest} codes of {} at 448",
        codes.len()
    );
}

#[test]
fn random_scales_differ_within_their_bounds() {
    let scales = generate(Family::RandomScales).q.scales;
    for scale in &scales {
        assert!((2f32.powi(-6)..=2.0).contains(scale), "{scales:?}");
    }
    assert!(scales.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn scales_of_a_cache_hold_its_values_and_differ() {
    let cached = problem(Dtype::Bf16).in_cache(Some(Cache::E4m3)).unwrap();
    let Inputs { q, k, v, .. } = Inputs::generate(&cached, Family::Normal, 1);
    assert_eq!((q.dtype, q.scales.len()), (Dtype::Bf16, 0));
    for operand in [&k, &v] {
        assert_eq!((operand.dtype, operand.scales.len()), (Dtype::E4m3, 4));
        let least = operand.scales.iter().copied().fold(f32::INFINITY, f32::min);
        let most = operand.scales.iter().copied().fold(0.0, f32::max);
        assert!(most > 1.5 * least, "{:?}", operand.scales);
        let errors = operand.dequantised().into_iter().zip(unrounded(operand));
        let worst = errors.map(|(code, &value)| (code - f64::from(value)).abs());
        // Half of a step, which is at most an eighth of a value, and these are below 4.8.
        assert!(worst.fold(0.0, f64::max) <= 0.3);
    }
    assert_ne!(k.scales, v.scales);
}

#[test]
fn one_head_of_each_operand_is_zero() {
    let live_heads = |operand: &Operand| {
        let head_len = operand.extents[2] * operand.extents[3];
        let mut live = Vec::new();
        for head in operand.bytes.chunks(head_len) {
            live.push(head.iter().any(|&code| code != 0));
        }
        live
    };
    let zero = generate(Family::ZeroHead);
    assert_eq!(
        live_heads(&zero.q),
        [false, true, true, true, false, true, true, true]
    );
    assert_eq!(live_heads(&zero.k), [true, false, true, false]);
    assert_eq!(live_heads(&zero.v), [false, true, false, true]);
    assert_eq!(zero.q.scales[0], 1.0);
}

fn logits(family: Family, dtype: Dtype) -> Vec<Vec<f64>> {
    let problem = problem(dtype);
    let inputs = Inputs::generate(&problem, family, 3);
    let (q, k) = (inputs.q.dequantised(), inputs.k.dequantised());
    let logit =
        |row: &[f64], key: &[f64]| row.iter().zip(key).map(|(x, y)| x * y).sum::<f64>() / 8.0;
    q[..40 * 64]
        .chunks(64)
        .map(|row| k[..50 * 64].chunks(64).map(|key| logit(row, key)).collect())
        .collect()
}

fn largest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Returns the number of keys that are less than `margin` below a row's largest logit.
fn winners(row: &[f64], margin: f64) -> usize {
    let most = largest(row);
    row.iter().filter(|&&logit| most - logit < margin).count()
}

#[test]
fn deep_negative_logits_are_far_below_zero() {
    for dtype in Dtype::ALL {
        let deep = logits(Family::DeepNegative, dtype);
        for logit in deep.iter().flatten() {
            assert!((-2000.0..-20.0).contains(logit), "{dtype}: {logit}");
        }
        let is_far = deep.iter().flatten().any(|&logit| logit < -800.0);
        assert!(is_far, "{dtype}");
        let vanishing = deep.iter().filter(|row| largest(row) < -104.0);
        assert!(vanishing.count() > 5, "2^-149 is exp of -104: {dtype}");
    }
}

#[test]
fn huge_logits_have_ties() {
    for dtype in Dtype::ALL {
        let huge = logits(Family::Huge, dtype);
        assert!(huge.iter().all(|row| largest(row) > 2000.0), "{dtype}");
        let tied = huge.iter().filter(|row| winners(row, 3.0) > 1).count();
        assert!(
            (5..35).contains(&tied),
            "{dtype}: {tied} of 40 rows have ties"
        );
    }
}

#[test]
fn colossal_logits_have_one_winner_or_half_of_the_keys() {
    for dtype in Dtype::ALL {
        for row in logits(Family::Colossal, dtype) {
            let most = largest(&row);
            assert!((1e6..1e9).contains(&most.abs()), "{dtype}");
            let equal = row.iter().filter(|&&logit| logit == most).count();
            assert_eq!(equal, if most > 0.0 { 25 } else { 1 }, "{dtype}");
        }
    }
}

#[test]
fn mixed_scale_rows_are_far_from_their_neighbours() {
    for dtype in Dtype::ALL {
        let mixed: Vec<f64> = logits(Family::MixedScale, dtype)
            .iter()
            .map(|row| largest(row))
            .collect();
        for step in [1, 8] {
            let distant = (step..40)
                .filter(|&row| (mixed[row] - mixed[row - step]).abs() > 1000.0)
                .count();
            assert!(
                distant > 8,
                "{dtype}: {distant} rows far from the row {step} before"
            );
        }
    }
}

#[test]
fn wide_range_is_beyond_f16_and_has_plain_logits() {
    let inputs = Inputs::generate(&problem(Dtype::Bf16), Family::WideRange, 3);
    for operand in [&inputs.q, &inputs.k, &inputs.v] {
        let codes = operand.codes();
        let mut beyond = 0;
        for &value in &codes {
            let stored = Format::F16.round(value);
            if value != 0.0 && (stored == 0.0 || stored.is_infinite()) {
                beyond += 1;
            }
        }
        assert!(beyond * 1000 > codes.len() * 995, "{beyond}");
    }
    let wide = logits(Family::WideRange, Dtype::Bf16);
    assert!(wide.iter().flatten().all(|logit| logit.abs() < 6.0));
}

#[test]
fn one_key_wins_in_the_peaked_and_sink_families() {
    for family in [Family::Peaked, Family::Sink] {
        let inputs = Inputs::generate(&problem(Dtype::F16), family, 5);
        let (q, k) = (unrounded(&inputs.q), unrounded(&inputs.k));
        // Head 0 of batch 0: the same key has the largest logit in most rows.
        let mut winning_keys = Vec::new();
        for row in q[..40 * 64].chunks(64) {
            let logit = |key: usize| {
                let products = row.iter().zip(&k[key * 64..][..64]).map(|(x, y)| x * y);
                products.sum::<f32>()
            };
            let winner = (0..50).max_by(|&a, &b| logit(a).total_cmp(&logit(b)));
            winning_keys.push(winner.unwrap());
        }
        let first = winning_keys[0];
        let common = winning_keys.iter().filter(|&&key| key == first).count();
        let least = if family == Family::Peaked { 39 } else { 24 };
        assert!(common >= least, "{family}: {winning_keys:?}");
        if family == Family::Sink {
            assert_eq!(first, 0);
        }
    }
}

#[test]
fn dequantised_is_scale_times_code() {
    let operand = Inputs::generate(&problem(Dtype::E4m3), Family::RandomScales, 1).k;
    let values = operand.dequantised();
    let head_len = 50 * 64;
    let element = 3 * head_len + 17;
    let code = E4m3::from_bits(operand.bytes[element]).to_f32();
    assert_eq!(
        values[element],
        f64::from(operand.scale(1, 1)) * f64::from(code)
    );
    assert_eq!(index_of(operand.extents, element), [1, 1, 0, 17]);
}

#[test]
fn real_tensors_are_checked() {
    let p = problem(Dtype::F16);
    let inputs = Inputs::generate(&p, Family::Normal, 0);
    let with_q = |q| Inputs::from_parts(&p, q, inputs.k.clone(), inputs.v.clone());
    assert_eq!(with_q(inputs.q.clone()).unwrap().v, inputs.v);

    let wrong = with_q(inputs.k.clone()).unwrap_err();
    assert!(
        matches!(
            wrong,
            InputError::Extents {
                tensor: Tensor::Q,
                found: [2, 2, 50, 64],
                ..
            }
        ),
        "{wrong}"
    );

    let mut values = inputs.q.codes();
    let stored = |elements: &[f32]| {
        let bytes = Format::F16.encode_bytes(elements);
        Operand::from_parts(p.shape.q_extents(), Dtype::F16, bytes, Vec::new())
    };
    let element = ((4 + 2) * 40 + 9) * 64 + 5;
    for bad in [f32::NAN, f32::INFINITY] {
        values[element] = bad;
        let error = with_q(stored(&values).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("q[1, 2, 9, 5] is"), "{error}");
    }
    let quarter = Inputs::generate(&problem(Dtype::E4m3), Family::Normal, 0);
    assert!(matches!(
        with_q(quarter.q.clone()),
        Err(InputError::Dtype { .. })
    ));
    assert!(matches!(
        stored(&values[1..]),
        Err(InputError::Length { what: "bytes", .. })
    ));
    let mut k = quarter.k.clone();
    k.scales[3] = 0.0;
    let error = Inputs::from_parts(&quarter.problem, quarter.q, k, quarter.v)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("scale of k[1, 1] is 0"), "{error}");
}

#[test]
fn one_scale_is_the_largest_of_a_tensors_heads() {
    let small = |dtype, family| {
        let problem = Problem::new(Shape::bhsd(2, 3, 5, 64), dtype, Mask::Full).unwrap();
        Inputs::generate(&problem, family, 0)
    };
    let before = small(Dtype::E4m3, Family::RandomScales);
    let after = before.clone().with_one_scale();
    for (scaled, one_scale) in [
        (before.q, after.q),
        (before.k, after.k),
        (before.v, after.v),
    ] {
        let largest_scale = scaled.scales.iter().copied().reduce(f32::max);
        assert_eq!(one_scale.scales, [largest_scale.unwrap(); 6]);
        assert_eq!(one_scale.bytes, scaled.bytes);
        assert_eq!(one_scale.unquantised, None);
    }
    let without_scales = small(Dtype::F16, Family::Normal);
    assert_eq!(without_scales.clone().with_one_scale(), without_scales);
}
