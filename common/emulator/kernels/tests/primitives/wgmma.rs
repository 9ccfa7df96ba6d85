//! Each form of wgmma on one warpgroup, exact: whole numbers whose products and sums need no
//! rounding. The same kernels must give the same in the emulator and on a GPU of sm_90a.

use std::array::from_fn;

use common::gate::{Errors, Evidence, c2};
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::{Probability, reference};
use common::verdict::Verdict;
use half::f16;

use crate::gpu::Gpu;
use crate::launch::{Run, bytes_of, launch, numbers, random, source};
use crate::ptx::{Case, Code, halves, row_starts};

/// A kernel of `cu/wgmma.cu` and the product that it computes.
struct Form {
    name: String,
    code: Code,
    n: usize,
    k: usize,
    /// B is given as [K][N].
    is_transposed: bool,
}

/// As `cu/wgmma.cu` declares them: name, element, swizzle, N, K, TRANS_B, A in registers.
fn forms() -> Vec<Form> {
    let form = |line: &str| {
        let arguments = line.strip_prefix("MULTIPLY(")?.strip_suffix(')')?;
        let [name, element, _, n, k, transposed, _] = arguments.split(", ").collect::<Vec<_>>()[..]
        else {
            panic!("{line}")
        };
        Some(Form {
            name: name.to_owned(),
            code: match element {
                "half" => Code::F16,
                "__nv_bfloat16" => Code::Bf16,
                _ => Code::E4m3,
            },
            n: n.parse().unwrap(),
            k: k.parse().unwrap(),
            is_transposed: transposed == "true",
        })
    };
    let forms: Vec<Form> = source("wgmma.cu").lines().filter_map(form).collect();
    assert!(forms.len() > 20, "{} forms", forms.len());
    forms
}

fn whole(seed: u64, count: usize) -> Vec<i32> {
    numbers(seed, 4).take(count).collect()
}

impl Form {
    fn encoded(&self, values: &[i32]) -> Vec<u8> {
        let code = |&value| self.code.of(value).to_le_bytes();
        let bytes = values.iter().map(code);
        bytes
            .flat_map(|code| code.into_iter().take(self.code.bytes()))
            .collect()
    }

    fn shared(&self) -> usize {
        // Columns of a transposed B come in slabs of 64.
        let columns = if self.is_transposed {
            self.n.next_multiple_of(64)
        } else {
            self.n
        };
        (64 + columns) * self.k * self.code.bytes()
    }

    /// Both operands, and the results for a D that starts with 0 or with 3 row - 2 col.
    fn case(&self, seed: u64) -> ([Vec<u8>; 2], [Vec<f32>; 2]) {
        let Self { n, k, .. } = *self;
        let [a, b] = [(seed, 64 * k), (seed + 1, n * k)].map(|(seed, count)| whole(seed, count));
        let element = |depth: usize, col: usize| {
            if self.is_transposed {
                b[depth * n + col]
            } else {
                b[col * k + depth]
            }
        };
        let product = |row: usize, col: usize| {
            (0..k)
                .map(|depth| a[row * k + depth] * element(depth, col))
                .sum::<i32>()
        };
        let d = [0, 1].map(|more| {
            let each =
                |i: usize| product(i / n, i % n) + more * (3 * (i / n) as i32 - 2 * (i % n) as i32);
            (0..64 * n).map(|i| each(i) as f32).collect()
        });
        ([self.encoded(&a), self.encoded(&b)], d)
    }

    fn launch(&self, more: usize) -> String {
        format!("{}<<<1, 128, {}>>>({more})", self.name, self.shared())
    }

    fn run(&self, [a, b]: &[Vec<u8>; 2], more: usize) -> Run {
        launch(&self.launch(more)).input(0, a).input(1, b)
    }
}

#[test]
fn products_are_counted() {
    for form in forms() {
        let run = form.run(&form.case(0).0, 1);
        let counted = run.counted(64 * form.n * 4);
        let depth = 32 / form.code.bytes();
        let (macs, ops) = (64 * form.n * form.k, 4 * form.k / depth); // one of each warp
        let expected = (macs as u64, ops as u64);
        assert_eq!(
            (counted.tensor_macs, counted.tensor_ops),
            expected,
            "{}",
            form.name
        );
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (seed, form) in (0..).zip(forms()) {
        let (inputs, expected) = form.case(seed);
        for (more, expected) in expected.into_iter().enumerate() {
            let expected = bytes_of(&expected);
            cases.push(Case::new(form.launch(more), inputs.clone(), expected));
        }
    }
    let (inputs, expected) = two_groups();
    let text = "wgmma_two_groups<<<1, 128, 16384>>>()";
    cases.push(Case::new(text, inputs, bytes_of(&expected)));
    let (inputs, expected) = stored_matrices();
    let text = "stmatrix_x4<<<1, 32, 2048>>>()";
    cases.push(Case::new(text, inputs, expected));
    let marks: [i32; 384] = from_fn(|thread| if thread < 128 { 1 } else { 2 });
    let text = "registers_change_hands<<<1, 384, 0>>>()";
    cases.push(Case::new(text, [], bytes_of(&marks)));
    cases
}

/// The operands of `wgmma_two_groups`, and each thread's registers in the end.
fn two_groups() -> ([Vec<u8>; 2], Vec<f32>) {
    let (a, b) = (whole(5, 4096), whole(6, 4096));
    let product = |row: usize, col: usize| {
        (0..64)
            .map(|k| a[row * 64 + k] * b[col * 64 + k])
            .sum::<i32>() as f32
    };
    let registers = |thread: usize| {
        let element = move |i: usize| {
            let row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
            (row, thread % 4 * 2 + i / 4 * 8 + i % 2)
        };
        let products = (0..32).map(element).map(|(row, col)| product(row, col));
        // (10 + p) / 2 + p + p / 2
        products
            .clone()
            .chain(products.map(|product| 5.0 + 2.0 * product))
            .collect::<Vec<f32>>()
    };
    let expected = (0..128).flat_map(registers).collect();
    ([a, b].map(|values| bytes_of(&halves(&values))), expected)
}

/// Registers of each lane and the byte that it passes as its row; shared memory in the end.
fn stored_matrices() -> ([Vec<u8>; 2], Vec<u8>) {
    let starts = row_starts();
    let code = |matrix: usize, row: usize, col: usize| (1000 + matrix * 64 + row * 8 + col) as u16;
    let registers: [u16; 256] = from_fn(|i| code(i / 2 % 4, i / 8 / 4, i / 8 % 4 * 2 + i % 2));
    let mut stored = [0u16; 1024];
    for (lane, start) in starts.into_iter().enumerate() {
        (0..8).for_each(|col| stored[start as usize / 2 + col] = code(lane / 8, lane % 8, col));
    }
    ([bytes_of(&registers), bytes_of(&starts)], bytes_of(&stored))
}

#[test]
fn attention_gives_the_same_under_every_schedule() {
    let sums: Vec<f32> = launch("wgmma_attention<<<1, 128, 24576>>>(0, 4)").same(128);
    assert!(sums.iter().all(|sum| sum.is_finite()));
}

/// Codes of every size, in no order; NaN left out.
fn codes(seed: u64, count: usize) -> Vec<u8> {
    let codes = random(seed).map(|bits| bits as u8);
    codes
        .filter(|code| code & 0x7f != 0x7f)
        .take(count)
        .collect()
}

#[test]
fn sums_of_codes_are_cut_off_as_on_a_real_gpu() {
    let Some(gpu) = Gpu::open().filter(|gpu| gpu.has("wgmma_e4m3_64")) else {
        return;
    };
    for (seed, form) in (0..).zip(forms().into_iter().filter(|form| form.code == Code::E4m3)) {
        let inputs = [codes(seed, 64 * form.k), codes(seed + 100, form.n * form.k)];
        for more in [0, 1] {
            let run = form.run(&inputs, more);
            let emulated: Vec<u8> = run.output(256 * form.n).unwrap();
            assert_eq!(
                gpu.launch(&form.name, &run, 256 * form.n),
                emulated,
                "{}",
                form.name
            );
        }
        println!("{}: {} elements bit by bit", form.name, 64 * form.n);
    }
}

/// Rows of Q and of K that one run multiplies, and head_dim.
const TILE: [usize; 3] = [64, 128, 128];

/// Attention of one head, exact but for its scores: each the sum of four products of codes, one on
/// top of the other.
fn attention_of_codes(inputs: &Inputs) -> Vec<f32> {
    let [rows, keys, dim] = TILE;
    let scale = f64::from(inputs.q.scale(0, 0) * inputs.k.scale(0, 0))
        * f64::from(inputs.problem.softmax_scale);
    let values = inputs.v.dequantised();
    let attend = |logits: &[f64]| {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|logit| (logit - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let weighted = |d: usize| {
            weights
                .iter()
                .zip(values.chunks(dim))
                .map(|(weight, v)| weight * v[d])
                .sum::<f64>()
        };
        (0..dim)
            .map(|d| f16::from_f64(weighted(d) / sum).to_f32())
            .collect::<Vec<_>>()
    };
    let of_rows = |q: &[u8]| {
        let mut logits = vec![Vec::new(); rows];
        for k in inputs.k.bytes.chunks(keys * dim) {
            let run = launch(&format!(
                "wgmma_e4m3_128<<<1, 128, {}>>>()",
                (rows + keys) * dim
            ))
            .input(0, q)
            .input(1, k);
            let scores: Vec<f32> = run.output(rows * keys).unwrap();
            for (logits, scores) in logits.iter_mut().zip(scores.chunks(keys)) {
                logits.extend(scores.iter().map(|&score| f64::from(score) * scale));
            }
        }
        logits
            .iter()
            .flat_map(|logits| attend(logits))
            .collect::<Vec<_>>()
    };
    inputs
        .q
        .bytes
        .chunks(rows * dim)
        .flat_map(of_rows)
        .collect()
}

#[test]
fn scores_from_codes_alone_fail_c2_where_logits_are_large() {
    let problem = Problem::new(Shape::bhsd(1, 1, 512, TILE[2]), Dtype::E4m3, Mask::Full).unwrap();
    for (family, expected) in [
        (Family::Saturated, Verdict::Pass),
        (Family::Large, Verdict::Fail),
        (Family::Huge, Verdict::Fail),
    ] {
        let inputs = Inputs::generate(&problem, family, 0);
        let reference = reference(&inputs, Probability::F16).unwrap();
        let output = attention_of_codes(&inputs);
        let evidence = Evidence {
            problem: &problem,
            family: Some(family),
            reference: &reference,
            output: &output,
        };
        let result = c2(&Errors::measure(&evidence));
        println!("{family}: {}", result.reason);
        assert_eq!(result.verdict, expected, "{family}: {}", result.reason);
    }
}
