use super::*;
use crate::e4m3::E4m3;
use crate::inputs::{Family, InputError};
use crate::problem::{Mask, Shape};
use crate::serving::Serving;
use std::collections::BTreeSet;

fn by_definition(problem: &Problem, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
    let s = problem.shape;
    let group = s.heads_q / s.heads_kv;
    let mut out = vec![0.0; q.len()];
    for b in 0..s.batch {
        for h in 0..s.heads_q {
            for i in 0..s.seq_q {
                let row = ((b * s.heads_q + h) * s.seq_q + i) * s.head_dim;
                let mut numerator = vec![0.0; s.head_dim];
                let mut denominator = 0.0;
                for j in 0..s.seq_kv {
                    let last_seen = i as i64 + s.seq_kv as i64 - s.seq_q as i64;
                    if problem.mask == Mask::Causal && j as i64 > last_seen {
                        continue;
                    }
                    let key = ((b * s.heads_kv + h / group) * s.seq_kv + j) * s.head_dim;
                    let dot: f64 = (0..s.head_dim).map(|d| q[row + d] * k[key + d]).sum();
                    let weight = (dot * f64::from(problem.softmax_scale)).exp();
                    denominator += weight;
                    for d in 0..s.head_dim {
                        numerator[d] += weight * v[key + d];
                    }
                }
                if denominator > 0.0 {
                    for d in 0..s.head_dim {
                        out[row + d] = numerator[d] / denominator;
                    }
                }
            }
        }
    }
    out
}

#[test]
fn fp64_agrees_with_the_definition_on_ragged_and_grouped_problems() {
    for (seq_q, seq_kv, head_dim) in [(1, 1, 64), (7, 19, 64), (19, 7, 128), (33, 31, 64)] {
        let shape = Shape {
            batch: 2,
            heads_q: 4,
            heads_kv: 2,
            seq_q,
            seq_kv,
            head_dim,
            serving: Serving::DENSE,
        };
        for dtype in Dtype::ALL {
            for mask in Mask::ALL {
                assert_agrees_with_the_definition(&Problem::new(shape, dtype, mask).unwrap());
            }
        }
    }
}

fn assert_agrees_with_the_definition(problem: &Problem) {
    let inputs = Inputs::generate(problem, Family::Shifted, 11);
    let computed = reference(&inputs, Probability::F32).unwrap();
    let [q, k, v] = [&inputs.q, &inputs.k, &inputs.v].map(Operand::dequantised);
    let defined = by_definition(problem, &q, &k, &v);
    for (i, (output, expected)) in computed.output.iter().zip(&defined).enumerate() {
        assert!(
            (output - expected).abs() <= 1e-13,
            "{problem:?} element {i}: {output} for {expected}"
        );
    }
    // Plain: f32 arithmetic and one rounding of values of at most 4 to the output's format.
    let bound = 4.2 * problem.dtype.output().unit();
    for (baseline, expected) in computed.baseline.iter().zip(&defined) {
        assert!(
            (f64::from(*baseline) - expected).abs() <= bound,
            "{baseline} for {expected}"
        );
    }
    assert_eq!(computed.unquantised.is_some(), problem.dtype == Dtype::E4m3);
    let unrounded = unquantised_rows(&inputs, &computed.rows).unwrap();
    assert!(
        unrounded.iter().zip(&defined).any(|(a, b)| a != b),
        "storage rounds something"
    );
}

#[test]
fn large_problems_are_sampled_with_both_ends_of_every_head() {
    let problem = Problem::new(Shape::bhsd(2, 3, 8192, 64), Dtype::F16, Mask::Full).unwrap();
    assert!(problem.scores() > MAX_FULL_SCORES);
    let rows = sample_rows(&problem);
    assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
    let size = SampleSize {
        judged: rows.len(),
        all: 6 * 8192,
    };
    assert_eq!(sample_size(&problem), Some(size));
    let scores = rows.len() as u64 * 8192;
    assert!(
        (SAMPLED_SCORES * 7 / 8..SAMPLED_SCORES * 9 / 8).contains(&scores),
        "{} rows",
        rows.len()
    );
    for head in 0..6 {
        assert!(rows.contains(&(head * 8192)) && rows.contains(&(head * 8192 + 8191)));
    }
    assert_eq!(rows, sample_rows(&problem));
}

/// The rows are those on both sides of the edges of tiles, and those where the causal diagonal
/// begins, ends and crosses an edge of keys.
#[test]
fn a_sample_has_the_rows_at_which_kernels_change_their_way() {
    let self_or_cross = |heads, seq_q, seq_kv| Shape {
        seq_kv,
        ..Shape::bhsd(1, heads, seq_q, 64)
    };
    for (shape, mask, edges) in [
        (
            self_or_cross(3, 20_000, 20_000),
            Mask::Full,
            &[
                0, 15, 16, 63, 64, 127, 128, 255, 256, 19_967, 19_968, 19_999,
            ][..],
        ),
        // 100 rows see no key; row 99 + n sees n.
        (
            self_or_cross(3, 20_100, 20_000),
            Mask::Causal,
            &[0, 99, 100, 163, 164, 227, 228, 20_067, 20_068, 20_099],
        ),
        // The first row sees 10,001 keys: 10,048 are a multiple of 64, 10,112 of 128.
        (
            self_or_cross(3, 20_000, 30_000),
            Mask::Causal,
            &[0, 47, 48, 111, 112, 19_967, 19_968, 19_999],
        ),
        // So many heads that each has its first row, its last row and two of the others.
        (
            self_or_cross(40_000, 300, 300),
            Mask::Causal,
            &[0, 15, 16, 63, 64, 127, 128, 255, 256, 299],
        ),
    ] {
        let problem = Problem::new(shape, Dtype::F16, mask).unwrap();
        assert!(problem.scores() > MAX_FULL_SCORES / 2, "{shape} {mask}");
        let rows = sample_rows(&problem);
        let sampled: BTreeSet<usize> = rows.iter().map(|row| row % shape.seq_q).collect();
        let lacking: Vec<_> = edges.iter().filter(|row| !sampled.contains(row)).collect();
        assert_eq!(lacking, [&0; 0], "{shape} {mask}");
        let scores = rows.len() as u64 * shape.seq_kv as u64;
        assert!(scores <= 2 * SAMPLED_SCORES, "{shape} {mask}: {scores}");
    }
}

#[test]
fn small_problems_are_judged_whole() {
    let problem = Problem::new(Shape::bhsd(1, 8, 512, 64), Dtype::F16, Mask::Full).unwrap();
    assert_eq!(sample_size(&problem), None);
}

#[test]
fn a_sample_of_single_rows_is_all_of_them() {
    let shape = Shape {
        seq_kv: 1 << 20,
        ..Shape::bhsd(8, 64, 1, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    assert!(problem.scores() > MAX_FULL_SCORES);
    assert_eq!(sample_rows(&problem), (0..512).collect::<Vec<_>>());
}

#[test]
fn a_sample_of_pairs_of_rows_is_all_of_them() {
    let shape = Shape {
        seq_kv: 1 << 20,
        ..Shape::bhsd(8, 64, 2, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    assert_eq!(sample_rows(&problem), (0..1024).collect::<Vec<_>>());
}

#[test]
fn sampled_rows_equal_those_of_the_whole() {
    let shape = Shape {
        batch: 1,
        heads_q: 4,
        heads_kv: 2,
        seq_q: 50,
        seq_kv: 70,
        head_dim: 64,
        serving: Serving::DENSE,
    };
    let problem = Problem::new(shape, Dtype::E4m3, Mask::Causal).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 4);
    let values = [&inputs.q, &inputs.k, &inputs.v].map(Operand::dequantised);
    let all_rows: Vec<usize> = (0..200).collect();
    let sampled_rows = [0, 3, 49, 50, 51, 120, 121, 122, 123, 124, 199];
    let whole = attend_f64(&problem, &all_rows, &values);
    let part = attend_f64(&problem, &sampled_rows, &values);
    for (i, row) in sampled_rows.into_iter().enumerate() {
        let expected = &whole.output[row * 64..][..64];
        assert_eq!(part.output[i * 64..][..64], *expected, "row {row}");
        assert_eq!(part.lse[i], whole.lse[row], "row {row}");
    }
    // Two query heads of 50 rows average one head of V.
    let sample = reference_of_rows(&inputs, Probability::F16, sampled_rows.to_vec()).unwrap();
    for (row, value_rms) in sampled_rows.into_iter().zip(sample.value_rms) {
        let head = &values[2][row / 100 * 70 * 64..][..70 * 64];
        let squares: f64 = head.iter().map(|v| v * v).sum();
        assert_eq!(value_rms, (squares / head.len() as f64).sqrt(), "row {row}");
    }
}

/// The log-sum-exp of scores that are all alike is their value and the logarithm of their number;
/// -inf where there are none.
#[test]
fn log_sum_exps_count_the_keys_of_equal_scores() {
    let shape = Shape {
        batch: 1,
        heads_q: 2,
        heads_kv: 1,
        seq_q: 9,
        seq_kv: 6,
        head_dim: 64,
        serving: Serving::DENSE,
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let operand = |heads: usize, rows: usize, value: f32| {
        let extents = [1, heads, rows, 64];
        Operand::rounded(extents, Dtype::F16, vec![value; heads * rows * 64], None)
    };
    let [q, k, v] = [operand(2, 9, 0.5), operand(1, 6, -0.25), operand(1, 6, 1.0)];
    let inputs = Inputs::from_parts(&problem, q, k, v).unwrap();
    let computed = reference(&inputs, Probability::F16).unwrap();
    let score = -0.125 * 64.0 * f64::from(problem.softmax_scale);
    for (row, lse) in computed.lse.into_iter().enumerate() {
        let expected = match problem.visible_keys(row % 9) {
            0 => f64::NEG_INFINITY,
            keys => score + (keys as f64).ln(),
        };
        assert!(
            lse == expected || (lse - expected).abs() < 1e-12,
            "row {row}: {lse} for {expected}"
        );
        let is_empty = expected == f64::NEG_INFINITY;
        assert_eq!(computed.output[row * 64] == 0.0, is_empty, "row {row}");
        assert_eq!(computed.baseline[row * 64] == 0.0, is_empty, "row {row}");
    }
}

#[test]
fn nan_is_an_error() {
    let problem = Problem::new(Shape::bhsd(1, 1, 4, 64), Dtype::F16, Mask::Full).unwrap();
    let mut inputs = Inputs::generate(&problem, Family::Normal, 0);
    inputs.v.bytes[2 * 70..][..2].copy_from_slice(&0x7e00_u16.to_le_bytes());
    let error = reference(&inputs, Probability::F16).unwrap_err();
    assert!(
        matches!(
            error,
            ReferenceError::Input(InputError::NotFinite {
                index: [0, 0, 1, 6],
                ..
            })
        ),
        "{error}"
    );
}

#[test]
fn overflow_is_an_error() {
    let problem = Problem::new(Shape::bhsd(1, 1, 4, 64), Dtype::F16, Mask::Full).unwrap();
    // Scores of 1e38 * 60000^2 overflow f32, not f64.
    let extents = problem.shape.q_extents();
    let huge = Operand::rounded(extents, Dtype::F16, vec![60000.0; 256], None);
    let steep = Problem::with_scale(problem.shape, Dtype::F16, Mask::Full, 1e38).unwrap();
    let inputs = Inputs::from_parts(&steep, huge.clone(), huge.clone(), huge).unwrap();
    let error = reference(&inputs, Probability::F16).unwrap_err();
    assert!(
        matches!(
            error,
            ReferenceError::NotFinite {
                which: "baseline",
                row: [0, 0, 0]
            }
        ),
        "{error}"
    );
}

#[test]
fn baseline_error_grows_as_the_probability_type_shrinks() {
    let problem = Problem::new(Shape::bhsd(1, 2, 256, 64), Dtype::F16, Mask::Full).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let largest_error = |p| {
        let Reference {
            baseline, output, ..
        } = reference(&inputs, p).unwrap();
        let pairs = baseline.iter().zip(&output);
        pairs
            .map(|(a, b)| (f64::from(*a) - b).abs())
            .fold(0.0, f64::max)
    };
    let in_f32 = largest_error(Probability::F32);
    let in_f16 = largest_error(Probability::F16);
    let in_e4m3 = largest_error(Probability::E4m3);
    assert!(in_f32 <= in_f16, "{in_f32:e} {in_f16:e}");
    assert!(in_f16 * 10.0 <= in_e4m3, "{in_f16:e} {in_e4m3:e}");
}

/// Weights of 8,192 keys with logits of N(0, 1) are about 2^-13, below half of E4M3's smallest
/// step.
#[test]
fn weights_normalised_before_rounding_to_e4m3_vanish() {
    let problem = Problem::new(Shape::bhsd(1, 1, 8192, 64), Dtype::F16, Mask::Full).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let values = [&inputs.q, &inputs.k].map(Operand::dequantised);
    let mut weights: Vec<f32> = Vec::new();
    for key in values[1].chunks(64) {
        let dot: f64 = values[0][..64].iter().zip(key).map(|(q, k)| q * k).sum();
        weights.push((dot / 8.0).exp() as f32);
    }
    let largest = weights.iter().copied().fold(0.0, f32::max);
    let total: f32 = weights.iter().sum();
    let kept_after_normalising: f32 = weights
        .iter()
        .map(|weight| E4m3::from_f32(weight / total).to_f32())
        .sum();
    let mut scaled: Vec<f32> = weights.iter().map(|weight| weight / largest).collect();
    Probability::E4m3.round(&mut scaled);
    let kept_scaled = scaled.iter().sum::<f32>() * largest / total;
    assert!(kept_after_normalising < 0.2, "{kept_after_normalising}");
    assert!((kept_scaled - 1.0).abs() < 0.01, "{kept_scaled}");
}

#[test]
fn p_is_declared_in_16_bits_at_least_and_as_bf16_only_where_inputs_have_no_more() {
    use Probability::{Bf16, E4m3, F16, F32};
    for (dtype, has_bf16) in [
        (Dtype::F16, false),
        (Dtype::E4m3, true),
        (Dtype::Bf16, true),
    ] {
        let declarable = Probability::declarable(dtype);
        assert_eq!(declarable.contains(&Bf16), has_bf16, "{dtype}");
        assert!(!declarable.contains(&E4m3) && declarable.contains(&F32));
        // Whatever is declared, 16 bits are those of the output.
        assert!(declarable.contains(&Probability::half(dtype)));
        for declared in [F16, Bf16] {
            assert_eq!(declared.held(dtype), Probability::half(dtype), "{dtype}");
        }
        assert_eq!(F32.held(dtype), F32);
        assert_eq!(E4m3.held(dtype), E4m3);
    }
}

/// Computes the output and log-sum-exp of one row of a problem as it is served.
fn served_row(inputs: &Inputs, [b, h, i]: [usize; 3]) -> (Vec<f64>, f64) {
    let problem = &inputs.problem;
    let shape = problem.shape;
    let serving = shape.serving;
    let sequence = shape.sequences()[b];
    let sinks = crate::sequences::sinks(&shape);
    let [q, k, v] = [&inputs.q, &inputs.k, &inputs.v].map(Operand::dequantised);
    let row = ((b * shape.heads_q + h) * shape.seq_q + i) * shape.head_dim;
    let mut numerator = vec![0.0; shape.head_dim];
    let mut denominator = sinks.get(h).map_or(0.0, |sink| f64::from(*sink).exp());
    for j in 0..sequence.keys {
        let distance = j as i64 - (i as i64 + sequence.keys as i64 - sequence.queries as i64);
        let is_hidden = problem.mask == Mask::Causal && distance > 0
            || serving
                .window
                .left
                .is_some_and(|left| distance < -i64::from(left))
            || serving
                .window
                .right
                .is_some_and(|right| distance > i64::from(right));
        if is_hidden {
            continue;
        }
        let head_kv = h / (shape.heads_q / shape.heads_kv);
        let key = ((b * shape.heads_kv + head_kv) * shape.seq_kv + j) * shape.head_dim;
        let dot: f64 = (0..shape.head_dim).map(|d| q[row + d] * k[key + d]).sum();
        let scaled = dot * f64::from(problem.softmax_scale);
        let score = match serving.softcap.map(f64::from) {
            Some(cap) => cap * (scaled / cap).tanh(),
            None => scaled,
        };
        denominator += score.exp();
        for d in 0..shape.head_dim {
            numerator[d] += score.exp() * v[key + d];
        }
    }
    if denominator > 0.0 {
        numerator.iter_mut().for_each(|value| *value /= denominator);
    }
    (numerator, denominator.ln())
}

#[test]
fn fp64_agrees_with_the_definition_on_problems_as_they_are_served() {
    for case in crate::tier0::served() {
        let problem = &case.problem;
        if problem.dtype != Dtype::F16 {
            continue;
        }
        let inputs = Inputs::generate(problem, Family::Normal, 3);
        let computed = reference(&inputs, Probability::F16).unwrap();
        assert_eq!(computed.rows, problem.existing_rows());
        let dim = problem.shape.head_dim;
        // Every row of small problems would take a minute.
        for (number, &row) in computed.rows.iter().enumerate().step_by(7) {
            let (output, lse) = served_row(&inputs, row_index(problem, row));
            for (d, expected) in output.iter().enumerate() {
                let actual = computed.output[number * dim + d];
                let baseline = f64::from(computed.baseline[number * dim + d]);
                assert!((actual - expected).abs() <= 1e-13, "{problem:?} row {row}");
                assert!((baseline - expected).abs() <= 4e-3, "{problem:?} row {row}");
            }
            let is_lse = computed.lse[number] == lse || (computed.lse[number] - lse).abs() <= 1e-12;
            assert!(is_lse, "{problem:?} row {row}");
        }
    }
}

#[test]
fn a_sample_of_packed_sequences_has_only_rows_that_exist() {
    let shape = crate::problem::parse_shape("9x4:2x3000x64+packed=tail:0:5").unwrap();
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    let sample = sample_rows(&problem);
    let existing: BTreeSet<usize> = problem.existing_rows().into_iter().collect();
    assert!(sample.iter().all(|row| existing.contains(row)));
    assert!(sample.is_sorted() && sample.len() < existing.len());
}
