use super::*;
use crate::format::Format;
use crate::problem::{Mask, Shape};

fn problem(dtype: Dtype) -> Problem {
    let shape = Shape {
        batch: 2,
        heads_q: 4,
        heads_kv: 2,
        seq_q: 40,
        seq_kv: 50,
        head_dim: 64,
    };
    Problem::new(shape, dtype, Mask::Full).unwrap()
}

fn unrounded(operand: &Operand) -> &[f32] {
    operand.unquantised.as_deref().unwrap()
}

#[test]
fn all_dtypes_start_from_the_same_values_and_every_head_from_its_own() {
    for family in Family::ALL {
        let takes = |dtype: &Dtype| Family::for_dtype(*dtype).contains(&family);
        let dtypes: Vec<Dtype> = Dtype::ALL.into_iter().filter(takes).collect();
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
    for (extreme, expected) in [
        (false, 17_100_836_497_426_930_431),
        (true, 1_469_648_253_468_071_088),
    ] {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for &family in Family::for_dtype(Dtype::E4m3)
            .iter()
            .filter(|family| Family::EXTREME.contains(family) == extreme)
        {
            let inputs = Inputs::generate(&problem(Dtype::E4m3), family, 0);
            for value in [&inputs.q, &inputs.k, &inputs.v]
                .into_iter()
                .flat_map(unrounded)
            {
                hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!(hash, expected, "extreme: {extreme}");
    }
}

#[test]
fn families_are_what_they_say() {
    let generate = |family| Inputs::generate(&problem(Dtype::E4m3), family, 3);
    let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;

    assert!((mean(unrounded(&generate(Family::Shifted).v)) - 0.5).abs() < 0.05);
    let negative = generate(Family::AllNegative);
    assert!(
        unrounded(&negative.q).iter().all(|&x| x >= 0.0)
            && unrounded(&negative.k).iter().all(|&x| x <= 0.0)
    );
    assert!(unrounded(&negative.v).iter().any(|&x| x > 0.0));
    let largest = |values: &[f32]| values.iter().fold(0f32, |most, x| most.max(x.abs()));
    assert!(largest(unrounded(&generate(Family::Large).q)) > 24.0);
    assert!(largest(unrounded(&generate(Family::Outliers).q)) > 8.0);

    let saturated = generate(Family::Saturated).v;
    let full = saturated
        .bytes
        .iter()
        .filter(|&&code| code & 0x7f == 0x7e)
        .count();
    assert!(
        full * 4 > saturated.bytes.len(),
        "{full} codes of {} at 448",
        saturated.bytes.len()
    );

    let scaled = generate(Family::RandomScales).q;
    assert!(
        scaled
            .scales
            .iter()
            .all(|scale| (2f32.powi(-6)..=2.0).contains(scale)),
        "{:?}",
        scaled.scales
    );
    assert!(scaled.scales.windows(2).all(|pair| pair[0] != pair[1]));

    let zero = generate(Family::ZeroHead);
    let live = |operand: &Operand| {
        let head_len = operand.extents[2] * operand.extents[3];
        operand
            .bytes
            .chunks(head_len)
            .map(|head| head.iter().any(|&code| code != 0))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        live(&zero.q),
        [false, true, true, true, false, true, true, true]
    );
    assert_eq!(live(&zero.k), [true, false, true, false]);
    assert_eq!(live(&zero.v), [false, true, false, true]);
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

#[test]
fn extreme_logits_are_where_their_families_say() {
    let most = |row: &Vec<f64>| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for dtype in Dtype::ALL {
        let deep = logits(Family::DeepNegative, dtype);
        assert!(
            deep.iter()
                .flatten()
                .all(|logit| (-2000.0..-20.0).contains(logit)),
            "{dtype}"
        );
        assert!(
            deep.iter().flatten().any(|&logit| logit < -800.0),
            "{dtype}"
        );
        assert!(
            deep.iter().filter(|row| most(row) < -104.0).count() > 5,
            "2^-149 is exp of -104: {dtype}"
        );

        let huge = logits(Family::Huge, dtype);
        assert!(huge.iter().all(|row| most(row) > 2000.0), "{dtype}");
        let ties =
            |row: &Vec<f64>| row.iter().filter(|&&logit| most(row) - logit < 3.0).count() > 1;
        let tied = huge.iter().filter(|row| ties(row)).count();
        assert!(
            (5..35).contains(&tied),
            "{dtype}: {tied} of 40 rows have ties"
        );

        let colossal = logits(Family::Colossal, dtype);
        let (largest, tied): (Vec<f64>, Vec<usize>) = colossal
            .iter()
            .map(|row| {
                (
                    most(row),
                    row.iter().filter(|&&logit| logit == most(row)).count(),
                )
            })
            .unzip();
        assert!(
            largest.iter().all(|most| (1e6..1e9).contains(&most.abs())),
            "{dtype}"
        );
        for (most, tied) in largest.iter().zip(tied) {
            assert_eq!(tied, if *most > 0.0 { 25 } else { 1 }, "{dtype}");
        }

        let mixed: Vec<f64> = logits(Family::MixedScale, dtype).iter().map(most).collect();
        for step in [1, 8] {
            let apart = (step..40)
                .filter(|&row| (mixed[row] - mixed[row - step]).abs() > 1000.0)
                .count();
            assert!(
                apart > 8,
                "{dtype}: {apart} rows far from the row {step} before"
            );
        }
    }
}

#[test]
fn wide_range_is_beyond_f16_and_has_plain_logits() {
    let inputs = Inputs::generate(&problem(Dtype::Bf16), Family::WideRange, 3);
    for operand in [&inputs.q, &inputs.k, &inputs.v] {
        let beyond = |value: &&f32| {
            let stored = Format::F16.round(**value);
            **value != 0.0 && (stored == 0.0 || stored.is_infinite())
        };
        let codes = operand.codes();
        assert!(codes.iter().filter(beyond).count() * 1000 > codes.len() * 995);
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
        let winner = |row: &[f32]| {
            let logit = |key: &[f32]| row.iter().zip(key).map(|(x, y)| x * y).sum::<f32>();
            (0..50)
                .max_by(|&a, &b| logit(&k[a * 64..][..64]).total_cmp(&logit(&k[b * 64..][..64])))
                .unwrap()
        };
        let winners: Vec<usize> = q[..40 * 64].chunks(64).map(winner).collect();
        let common = winners.iter().filter(|&&key| key == winners[0]).count();
        let least = if family == Family::Peaked { 39 } else { 24 };
        assert!(common >= least, "{family}: {winners:?}");
        if family == Family::Sink {
            assert_eq!(winners[0], 0);
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
    let stored = |values: &[f32]| {
        let bytes = Format::F16.encode_bytes(values);
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
    let of = |dtype, family| {
        let problem = Problem::new(Shape::bhsd(2, 3, 5, 64), dtype, Mask::Full).unwrap();
        Inputs::generate(&problem, family, 0)
    };
    let before = of(Dtype::E4m3, Family::RandomScales);
    let after = before.clone().with_one_scale();
    for (before, after) in [
        (before.q, after.q),
        (before.k, after.k),
        (before.v, after.v),
    ] {
        let largest = before.scales.iter().copied().reduce(f32::max);
        assert_eq!(after.scales, [largest.unwrap(); 6]);
        assert_eq!((after.bytes, after.unquantised), (before.bytes, None));
    }
    let without = of(Dtype::F16, Family::Normal);
    assert_eq!(without.clone().with_one_scale(), without);
}
