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
    /// Whether B is given as `[K][N]`.
    is_transposed: bool,
}

/// Returns the forms as `cu/wgmma.cu` declares them.
fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for line in source("wgmma.cu").lines() {
        let declaration = line.strip_prefix("MULTIPLY(");
        if let Some(arguments) = declaration.and_then(|rest| rest.strip_suffix(')')) {
            forms.push(Form::new(arguments));
        }
    }
    assert!(forms.len() > 20, "{} forms", forms.len());
    forms
}

fn whole(seed: u64, count: usize) -> Vec<i32> {
    numbers(seed, 4).take(count).collect()
}

/// A product in one form.
struct Product {
    operands: [Vec<u8>; 2],
    /// The results for a D that starts with 0 or with 3 row - 2 col.
    results: [Vec<f32>; 2],
}

impl Form {
    /// Reads name, element, swizzle, N, K, TRANS_B, and whether A is in registers.
    fn new(arguments: &str) -> Self {
        let [name, element, _, n, k, transposed, _] = arguments.split(", ").collect::<Vec<_>>()[..]
        else {
            panic!("MULTIPLY({arguments})")
        };
        Self {
            name: name.to_owned(),
            code: match element {
                "half" => Code::F16,
                "__nv_bfloat16" => Code::Bf16,
                _ => Code::E4m3,
            },
            n: n.parse().unwrap(),
            k: k.parse().unwrap(),
            is_transposed: transposed == "true",
        }
    }

    fn encoded(&self, values: &[i32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &value in values {
            let code = self.code.encode(value).to_le_bytes();
            bytes.extend(&code[..self.code.bytes()]);
        }
        bytes
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

    fn product(&self, seed: u64) -> Product {
        let Self { n, k, .. } = *self;
        let (a, b) = (whole(seed, 64 * k), whole(seed + 1, n * k));
        // Steps from one column of B to the next, and from one K to the next.
        let (across, along) = if self.is_transposed { (1, n) } else { (k, 1) };
        let dot_product = |row: usize, col: usize| {
            (0..k)
                .map(|depth| a[row * k + depth] * b[col * across + depth * along])
                .sum::<i32>()
        };
        let results = [0, 1].map(|more| {
            let mut d = Vec::new();
            for (row, col) in (0..64 * n).map(|i| (i / n, i % n)) {
                let start = more * (3 * row as i32 - 2 * col as i32);
                d.push((start + dot_product(row, col)) as f32);
            }
            d
        });
        Product {
            operands: [self.encoded(&a), self.encoded(&b)],
            results,
        }
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
        let run = form.run(&form.product(0).operands, 1);
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
        let Product { operands, results } = form.product(seed);
        for (more, d) in results.iter().enumerate() {
            cases.push(Case::new(form.launch(more), operands.clone(), bytes_of(d)));
        }
    }
    cases.push(two_groups());
    cases.push(stored_matrices());
    let marks: [i32; 384] = from_fn(|thread| if thread < 128 { 1 } else { 2 });
    cases.push(Case::new(
        "registers_change_hands<<<1, 384, 0>>>()",
        [],
        bytes_of(&marks),
    ));
    cases
}

/// Returns a launch that leaves each thread's registers.
fn two_groups() -> Case {
    let (a, b) = (whole(5, 4096), whole(6, 4096));
    let product = |row: usize, col: usize| {
        (0..64)
            .map(|k| a[row * 64 + k] * b[col * 64 + k])
            .sum::<i32>() as f32
    };
    let mut expected = Vec::new();
    for thread in 0..128 {
        let mut products = Vec::new();
        for i in 0..32 {
            let row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
            products.push(product(row, thread % 4 * 2 + i / 4 * 8 + i % 2));
        }
        expected.extend(&products);
        // (10 + p) / 2 + p + p / 2
        expected.extend(products.iter().map(|p| 5.0 + 2.0 * p));
    }
    Case::new(
        "wgmma_two_groups<<<1, 128, 16384>>>()",
        [a, b].map(|values| bytes_of(&halves(&values))),
        bytes_of(&expected),
    )
}

/// Returns a store of the registers of each lane, at the byte that it passes as its row; it leaves
/// shared memory.
fn stored_matrices() -> Case {
    let starts = row_starts();
    let code = |matrix: usize, row: usize, col: usize| (1000 + matrix * 64 + row * 8 + col) as u16;
    let registers: [u16; 256] = from_fn(|i| code(i / 2 % 4, i / 8 / 4, i / 8 % 4 * 2 + i % 2));
    let mut stored = [0u16; 1024];
    for (lane, start) in starts.into_iter().enumerate() {
        (0..8).for_each(|col| stored[start as usize / 2 + col] = code(lane / 8, lane % 8, col));
    }
    Case::new(
        "stmatrix_x4<<<1, 32, 2048>>>()",
        [bytes_of(&registers), bytes_of(&starts)],
        bytes_of(&stored),
    )
}

#[test]
fn attention_gives_the_same_under_every_schedule() {
    let sums: Vec<f32> = launch("wgmma_attention<<<1, 128, 24576>>>(0, 4)").same(128);
    assert!(sums.iter().all(|sum| sum.is_finite()));
}

/// Returns codes of every size, in no order; NaN left out.
fn codes(seed: u64, count: usize) -> Vec<u8> {
    random(seed)
        .map(|bits| bits as u8)
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

/// The rows of Q and of K that one run multiplies, and head_dim.
const TILE: [usize; 3] = [64, 128, 128];

/// Computes the attention of one head, exact but for its scores: each the sum of four products of
/// codes, one on top of the other.
fn attention_of_codes(inputs: &Inputs) -> Vec<f32> {
    let [rows, _, dim] = TILE;
    let values = inputs.v.dequantised();
    let mut output = Vec::new();
    for q in inputs.q.bytes.chunks(rows * dim) {
        for logits in logits_of_codes(inputs, q) {
            output.extend(attend(&logits, &values));
        }
    }
    output
}

/// Returns the logits of each row of `q`.
fn logits_of_codes(inputs: &Inputs, q: &[u8]) -> Vec<Vec<f64>> {
    let [rows, keys, dim] = TILE;
    let scale = f64::from(inputs.q.scale(0, 0) * inputs.k.scale(0, 0))
        * f64::from(inputs.problem.softmax_scale);
    let shared_bytes = (rows + keys) * dim;
    let mut logits = vec![Vec::new(); rows];
    for k in inputs.k.bytes.chunks(keys * dim) {
        let run = launch(&format!("wgmma_e4m3_128<<<1, 128, {shared_bytes}>>>()"));
        let scores: Vec<f32> = run.input(0, q).input(1, k).output(rows * keys).unwrap();
        for (row, row_scores) in logits.iter_mut().zip(scores.chunks(keys)) {
            row.extend(row_scores.iter().map(|&score| f64::from(score) * scale));
        }
    }
    logits
}

/// Computes one row of attention.
fn attend(logits: &[f64], values: &[f64]) -> Vec<f32> {
    let dim = TILE[2];
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|logit| (logit - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut output = Vec::new();
    for d in 0..dim {
        let weighted: f64 = weights
            .iter()
            .zip(values.chunks(dim))
            .map(|(weight, v)| weight * v[d])
            .sum();
        output.push(f16::from_f64(weighted / sum).to_f32());
    }
    output
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
