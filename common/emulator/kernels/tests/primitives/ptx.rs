//! The wrappers of `attn/ptx/`, exact, on data in which no two elements may be exchanged. The same
//! kernels must give the same bytes in the emulator and on a GPU.

use std::array::from_fn;
use std::collections::BTreeSet;
use std::path::Path;

use common::e4m3::E4m3;
use half::{bf16, f16};

use crate::gpu::Gpu;
use crate::launch::{Run, SCHEDULES, bytes_of, launch, numbers, source};
use crate::{cluster, tma, wgmma};

/// A launch with its inputs and expected output.
pub struct Case {
    text: String,
    pub run: Run,
    pub expected: Vec<u8>,
}

impl Case {
    pub fn new<const N: usize>(
        text: impl Into<String>,
        inputs: [Vec<u8>; N],
        expected: Vec<u8>,
    ) -> Self {
        let launched = text.into();
        let mut run = launch(&launched);
        for (index, input) in inputs.iter().enumerate() {
            run = run.input(index, input);
        }
        Self {
            text: launched,
            run,
            expected,
        }
    }

    fn name(&self) -> &str {
        self.text.split('<').next().unwrap()
    }

    /// Names the first byte that is not as expected.
    fn difference(&self, output: &[u8]) -> Option<String> {
        let mut bytes = output.iter().zip(&self.expected);
        let at = bytes.position(|(is, should)| is != should)?;
        Some(format!("{} differs at byte {at}", self.text))
    }
}

#[derive(Clone, Copy, PartialEq)]
pub enum Code {
    F16,
    Bf16,
    E4m3,
}

impl Code {
    pub fn bytes(self) -> usize {
        if self == Self::E4m3 { 1 } else { 2 }
    }

    pub fn encode(self, number: i32) -> u32 {
        let value = number as f32;
        match self {
            Self::F16 => f16::from_f32(value).to_bits().into(),
            Self::Bf16 => bf16::from_f32(value).to_bits().into(),
            Self::E4m3 => E4m3::from_f32(value).to_bits().into(),
        }
    }
}

pub fn halves(values: &[i32]) -> Vec<u16> {
    values
        .iter()
        .map(|&value| Code::F16.encode(value) as u16)
        .collect()
}

/// Returns the bytes at which 32 lanes find or leave their rows: multiples of 16, in no order that
/// a mistake could have.
pub fn row_starts() -> [i32; 32] {
    from_fn(|lane| (lane * 37 + lane / 8 * 5 + 3) as i32 % 128 * 16)
}

/// Returns a multiply-accumulate of 16 x K by K x 8, laid over the lanes as in the PTX ISA.
fn mma(text: &str, seed: u64, code: Code) -> Case {
    let per_register = 4 / code.bytes();
    let half = 4 * per_register; // of K
    // Exact as f16, bf16 and e4m3, and so is every sum of their products.
    let mut values = numbers(seed, 8);
    let mut matrix = |rows: usize, columns: usize| -> Vec<Vec<i32>> {
        (0..rows)
            .map(|_| values.by_ref().take(columns).collect())
            .collect()
    };
    let (a, b, c) = (matrix(16, 2 * half), matrix(2 * half, 8), matrix(16, 8));

    let packed = |element: &dyn Fn(usize) -> i32| {
        let bits = 8 * code.bytes();
        (0..per_register).fold(0, |register, j| {
            register | code.encode(element(j)) << (bits * j)
        })
    };
    let [mut a_registers, mut b_registers] = [vec![], vec![]];
    let [mut c_registers, mut d_registers] = [vec![], vec![]];
    for lane in 0..32 {
        let (across, first, pair) = (lane / 4, lane % 4 * per_register, lane % 4 * 2);
        for i in 0..4 {
            let (row, start) = (across + i % 2 * 8, first + i / 2 * half);
            a_registers.push(packed(&|j| a[row][start + j]));
        }
        for start in [first, first + half] {
            b_registers.push(packed(&|j| b[start + j][across]));
        }
        for i in 0..4 {
            let (row, col) = (across + i / 2 * 8, pair + i % 2);
            let product: i32 = (0..2 * half).map(|k| a[row][k] * b[k][col]).sum();
            let sum = 7 * c[row][col];
            c_registers.push(sum as f32);
            d_registers.push((sum + product) as f32);
        }
    }
    let inputs = [
        bytes_of(&a_registers),
        bytes_of(&b_registers),
        bytes_of(&c_registers),
    ];
    Case::new(text, inputs, bytes_of(&d_registers))
}

/// Returns a load from 1,024 different elements in shared memory, rows at odd places.
fn ldmatrix(text: &str, matrices: usize, is_transposed: bool) -> Case {
    // The last lanes' may be ignored.
    let starts = row_starts();
    let element = |matrix: usize, row: usize, col: usize| {
        1000 + starts[matrix * 8 + row] as u16 / 2 + col as u16
    };
    let mut registers = Vec::new();
    for lane in 0..32 {
        for matrix in 0..matrices {
            for j in 0..2 {
                let (across, along) = (lane / 4, lane % 4 * 2 + j);
                let value = if is_transposed {
                    element(matrix, along, across)
                } else {
                    element(matrix, across, along)
                };
                registers.push(value);
            }
        }
    }
    let memory: Vec<u16> = (1000..2024).collect();
    let inputs = [bytes_of(&memory), bytes_of(&starts)];
    Case::new(text, inputs, bytes_of(&registers))
}

fn cases() -> Vec<Case> {
    let mut cases = matrix_cases();
    cases.push(copy_case());
    cases.push(named_barrier_case());
    cases.push(pairs_case());

    let lanes: [i32; 32] = from_fn(|lane| lane as i32);
    cases.push(Case::new(
        "opaque_values<<<1, 32, 0>>>()",
        [],
        bytes_of(&lanes),
    ));

    let answers = bytes_of(&[0, 1, 1, 0, 0, 1, 1, 0].repeat(32));
    cases.push(Case::new("mbarrier_phases<<<1, 32, 8>>>()", [], answers));

    for tiles in [1, 2, 3, 9] {
        let sum: f32 = (0..32 * tiles).map(|word| word as f32).sum();
        cases.push(Case::new(
            format!("ring<<<1, 96, 288>>>({tiles}, 0)"),
            [],
            bytes_of(&[sum; 64]),
        ));
    }
    cases.extend(wgmma::cases());
    cases.extend(tma::cases());
    cases.extend(cluster::cases());
    cases
}

fn matrix_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for seed in 0..3 {
        for (text, code) in [
            ("mma_m16n8k16_f16_f32<<<1, 32, 0>>>()", Code::F16),
            ("mma_m16n8k16_bf16_f32<<<1, 32, 0>>>()", Code::Bf16),
            ("mma_m16n8k32_e4m3_f32<<<1, 32, 0>>>()", Code::E4m3),
        ] {
            cases.push(mma(text, seed, code));
        }
    }
    for (text, matrices, is_transposed) in [
        ("ldmatrix_x4<<<1, 32, 2048>>>()", 4, false),
        ("ldmatrix_x4_trans<<<1, 32, 2048>>>()", 4, true),
        ("ldmatrix_x2<<<1, 32, 2048>>>()", 2, false),
        ("ldmatrix_x2_trans<<<1, 32, 2048>>>()", 2, true),
    ] {
        cases.push(ldmatrix(text, matrices, is_transposed));
    }
    let a: Vec<i32> = numbers(7, 8).take(256).collect();
    let b: Vec<i32> = numbers(8, 8).take(128).collect();
    let d: [f32; 128] = from_fn(|i| {
        let products = (0..16).map(|k| a[i / 8 * 16 + k] * b[k * 8 + i % 8]);
        products.sum::<i32>() as f32
    });
    cases.push(Case::new(
        "ldmatrix_and_mma<<<1, 32, 2048>>>()",
        [a, b].map(|values| bytes_of(&halves(&values))),
        bytes_of(&[d, d].concat()),
    ));
    cases
}

fn copy_case() -> Case {
    let source: Vec<u8> = (1..=64).collect();
    let mut copied = source.clone();
    for byte in &mut copied {
        if !matches!(byte, 1..=29 | 33..=37) {
            *byte = 0;
        }
    }
    Case::new("cp_async_of_each_size<<<1, 32, 64>>>()", [source], copied)
}

fn named_barrier_case() -> Case {
    let mut row: [i32; 32] = from_fn(|lane| 7 * lane as i32 - 50);
    let input = bytes_of(&row);
    for _ in 0..5 {
        row = from_fn(|lane| 3 * row[(32 - lane) % 32] + lane as i32);
    }
    Case::new(
        "named_barriers_hand_over<<<1, 64, 128>>>(5)",
        [input],
        bytes_of(&row),
    )
}

fn pairs_case() -> Case {
    let mut values: [i32; 128] = from_fn(|thread| 3 * thread as i32 - 100);
    let input = bytes_of(&values);
    for _ in 0..3 {
        values = from_fn(|thread| values[thread / 64 * 64 + 63 - thread % 64] + thread as i32 / 64);
    }
    Case::new(
        "named_barrier_of_each_pair<<<1, 128, 512>>>(3)",
        [input],
        bytes_of(&values),
    )
}

#[test]
fn each_wrapper_gives_the_documented_registers() {
    for case in cases() {
        for schedule in SCHEDULES {
            let run = case.run.clone().schedule(schedule);
            let output: Vec<u8> = run.output(case.expected.len()).unwrap();
            assert_eq!(case.difference(&output), None, "{schedule:?}");
            let report = run.trace([case.expected.len(), 0]);
            assert_eq!(report.hazards, [], "{}, {schedule:?}", case.text);
        }
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .map(String::from)
        .collect()
}

#[test]
fn every_wrapper_has_a_counterpart_and_a_case() {
    let common = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let cases = ["ptx.cu", "mbarrier.cu", "tma.cu", "wgmma.cu", "cluster.cu"]
        .map(|file| words(&source(file)));
    let mut wrappers = 0;
    for file in std::fs::read_dir(common.join("cuda/attn/ptx")).unwrap() {
        let entry = file.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        if !text.contains("asm volatile") {
            continue;
        }
        let path = common
            .join("emulator/include/attn/ptx")
            .join(entry.file_name());
        let header = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let counterpart = words(&header);
        for declaration in text.lines() {
            if !declaration.starts_with("static __device__") {
                continue;
            }
            let (signature, _) = declaration.split_once('(').unwrap();
            let name = signature.split(' ').next_back().unwrap();
            assert!(
                counterpart.contains(name),
                "{name}: the emulator has no counterpart"
            );
            // What another wrapper calls is run by that one's case.
            let is_part = text.matches(&format!("{name}(")).count() > 1;
            assert!(
                is_part || cases.iter().any(|used| used.contains(name)),
                "{name}: no kernel of cu/ runs it"
            );
            wrappers += 1;
        }
    }
    assert!(
        wrappers >= 17,
        "{wrappers} wrappers were found: are they declared in another way now?"
    );
}

#[test]
fn each_wrapper_gives_the_same_on_a_real_gpu() {
    let Some(gpu) = Gpu::open() else { return };
    for case in cases() {
        if !gpu.has(case.name()) {
            continue;
        }
        let output = gpu.launch(case.name(), &case.run, case.expected.len());
        assert_eq!(case.difference(&output), None);
        println!("{}: {} bytes as expected", case.text, output.len());
    }
}

#[test]
fn matrix_instructions_are_counted_as_what_they_are() {
    let counted = |name: &str| {
        let mut all = cases().into_iter();
        let case = all.find(|case| case.name() == name).unwrap();
        case.run.counted(case.expected.len())
    };
    assert_eq!(counted("mma_m16n8k16_f16_f32").tensor_macs, 16 * 8 * 16);
    let e4m3 = counted("mma_m16n8k32_e4m3_f32");
    assert_eq!((e4m3.tensor_ops, e4m3.tensor_macs), (1, 16 * 8 * 32));
    for (name, passes) in [("ldmatrix_x4", 4), ("ldmatrix_x2_trans", 2)] {
        let read = counted(name).shared_read;
        assert_eq!(
            (read.requests, read.bytes, read.ideal_wavefronts),
            (1, passes * 128, passes),
            "{name}"
        );
    }
    let write = counted("stmatrix_x4").shared_write;
    assert_eq!(
        (write.bytes, write.ideal_wavefronts),
        (2048 + 512, 16 + 4),
        "zeros, and four matrices"
    );
    // Rows of 48 bytes: 8 of them lie in different banks.
    let together = counted("ldmatrix_and_mma");
    assert_eq!(
        (
            together.tensor_ops,
            together.shared_read.requests,
            together.shared_read.conflicts()
        ),
        (2, 3, 0)
    );
    let conflicts = |pitch: i32| {
        let run = launch(&format!("lanes_then_ldmatrix<<<1, 32, 4096>>>(1, {pitch})"));
        run.counted(128).shared_read.conflicts()
    };
    assert_eq!(
        [16, 80, 128].map(conflicts),
        [0, 0, 28],
        "8 rows 128 bytes apart lie in the same banks"
    );
}
