//! The wrappers of `attn/ptx/`, exact, on data in which no two elements may be exchanged. The same kernels must give the
//! same bytes in the emulator and on a GPU.

use std::array::from_fn;
use std::collections::BTreeSet;
use std::path::Path;

use common::e4m3::E4m3;
use half::{bf16, f16};

use crate::gpu::Gpu;
use crate::launch::{Run, SCHEDULES, launch, numbers};
use crate::{cluster, tma, wgmma};

/// A launch with its inputs and expected output.
pub struct Case {
    text: String,
    pub run: Run,
    expected: Vec<u8>,
}

impl Case {
    pub fn new<const N: usize>(
        text: impl Into<String>,
        inputs: [Vec<u8>; N],
        expected: Vec<u8>,
    ) -> Self {
        let text = text.into();
        let run = (0..)
            .zip(&inputs)
            .fold(launch(&text), |run, (index, input)| run.input(index, input));
        Self {
            text,
            run,
            expected,
        }
    }

    fn name(&self) -> &str {
        self.text.split('<').next().unwrap()
    }

    /// The first byte that is not as expected.
    fn difference(&self, output: &[u8]) -> Option<String> {
        let mut bytes = output.iter().zip(&self.expected);
        let at = bytes.position(|(is, should)| is != should)?;
        Some(format!("{} differs at byte {at}", self.text))
    }
}

pub fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

fn half_code(value: i32) -> u16 {
    f16::from_f32(value as f32).to_bits()
}

/// A multiply-accumulate of 16 x K by K x 8, laid over the lanes as in the PTX ISA: `code` gives an element's bits,
/// `per_register` to a register.
fn mma(seed: u64, per_register: usize, code: impl Fn(i32) -> u32) -> ([Vec<u8>; 3], Vec<u8>) {
    let k_size = 8 * per_register;
    // Exact as f16, bf16 and e4m3, and so is every sum of their products.
    let mut numbers = numbers(seed, 8);
    let a: Vec<Vec<i32>> = (0..16)
        .map(|_| numbers.by_ref().take(k_size).collect())
        .collect();
    let b: Vec<[i32; 8]> = (0..k_size)
        .map(|_| from_fn(|_| numbers.next().unwrap()))
        .collect();
    let c: Vec<[i32; 8]> = (0..16)
        .map(|_| from_fn(|_| 7 * numbers.next().unwrap()))
        .collect();

    let packed = |element: &dyn Fn(usize) -> i32| {
        let bits = 32 / per_register;
        (0..per_register).fold(0, |register, j| register | code(element(j)) << (bits * j))
    };
    let (mut a_registers, mut b_registers, mut c_registers, mut d_registers) =
        (vec![], vec![], vec![], vec![]);
    for lane in 0..32 {
        let (row, first, pair) = (lane / 4, lane % 4 * per_register, lane % 4 * 2);
        for (row, first) in [
            (row, first),
            (row + 8, first),
            (row, first + k_size / 2),
            (row + 8, first + k_size / 2),
        ] {
            a_registers.push(packed(&|j| a[row][first + j]));
        }
        for first in [first, first + k_size / 2] {
            b_registers.push(packed(&|j| b[first + j][row]));
        }
        for (row, col) in [
            (row, pair),
            (row, pair + 1),
            (row + 8, pair),
            (row + 8, pair + 1),
        ] {
            let product: i32 = (0..k_size).map(|k| a[row][k] * b[k][col]).sum();
            c_registers.push(c[row][col] as f32);
            d_registers.push((c[row][col] + product) as f32);
        }
    }
    let registers = |values: Vec<u32>| bytes(values.into_iter().map(u32::to_le_bytes));
    let floats = |values: Vec<f32>| bytes(values.into_iter().map(f32::to_le_bytes));
    (
        [
            registers(a_registers),
            registers(b_registers),
            floats(c_registers),
        ],
        floats(d_registers),
    )
}

/// 1,024 different elements in shared memory, rows at odd places, and the registers that the lanes must receive.
fn ldmatrix(matrices: usize, is_transposed: bool) -> ([Vec<u8>; 3], Vec<u8>) {
    // Multiples of 16, in no order that a mistake could have; the last lanes' may be ignored.
    let rows: [usize; 32] = from_fn(|lane| (lane * 37 + lane / 8 * 5 + 3) % 128);
    let element =
        |matrix: usize, row: usize, col: usize| (1000 + rows[matrix * 8 + row] * 8 + col) as u16;
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
                registers.push(value.to_le_bytes());
            }
        }
    }
    let memory = (0..1024u16).map(|index| (1000 + index).to_le_bytes());
    (
        [
            bytes(memory),
            bytes(rows.map(|row| (row as u32 * 16).to_le_bytes())),
            vec![],
        ],
        bytes(registers),
    )
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for seed in 0..3 {
        let (inputs, expected) = mma(seed, 2, |value| half_code(value).into());
        cases.push(Case::new(
            "mma_m16n8k16_f16_f32<<<1, 32, 0>>>()",
            inputs,
            expected,
        ));
        let (inputs, expected) = mma(seed, 2, |value| {
            bf16::from_f32(value as f32).to_bits().into()
        });
        cases.push(Case::new(
            "mma_m16n8k16_bf16_f32<<<1, 32, 0>>>()",
            inputs,
            expected,
        ));
        let (inputs, expected) = mma(seed, 4, |value| {
            E4m3::from_f32(value as f32).to_bits().into()
        });
        cases.push(Case::new(
            "mma_m16n8k32_e4m3_f32<<<1, 32, 0>>>()",
            inputs,
            expected,
        ));
    }
    let (inputs, expected) = ldmatrix(4, false);
    cases.push(Case::new(
        "ldmatrix_x4<<<1, 32, 2048>>>()",
        inputs,
        expected,
    ));
    let (inputs, expected) = ldmatrix(4, true);
    cases.push(Case::new(
        "ldmatrix_x4_trans<<<1, 32, 2048>>>()",
        inputs,
        expected,
    ));
    let (inputs, expected) = ldmatrix(2, false);
    cases.push(Case::new(
        "ldmatrix_x2<<<1, 32, 2048>>>()",
        inputs,
        expected,
    ));
    let (inputs, expected) = ldmatrix(2, true);
    cases.push(Case::new(
        "ldmatrix_x2_trans<<<1, 32, 2048>>>()",
        inputs,
        expected,
    ));

    let (a, b): (Vec<i32>, Vec<i32>) = (
        numbers(7, 8).take(256).collect(),
        numbers(8, 8).take(128).collect(),
    );
    let product = |row: usize, col: usize| {
        (0..16)
            .map(|k| a[row * 16 + k] * b[k * 8 + col])
            .sum::<i32>() as f32
    };
    let d = (0..128).map(|i| product(i / 8, i % 8).to_le_bytes());
    let halves = |values: &[i32]| bytes(values.iter().map(|&value| half_code(value).to_le_bytes()));
    cases.push(Case::new(
        "ldmatrix_and_mma<<<1, 32, 2048>>>()",
        [halves(&a), halves(&b)],
        bytes(d.clone().chain(d)),
    ));

    let source: Vec<u8> = (1..=64).collect();
    let mut copied = vec![0; 64];
    [0..29, 32..37]
        .into_iter()
        .for_each(|range| copied[range.clone()].copy_from_slice(&source[range]));
    cases.push(Case::new(
        "cp_async_of_each_size<<<1, 32, 64>>>()",
        [source],
        copied,
    ));

    let mut row: [i32; 32] = from_fn(|lane| 7 * lane as i32 - 50);
    let input = bytes(row.map(i32::to_le_bytes));
    for _ in 0..5 {
        row = from_fn(|lane| 3 * row[(32 - lane) % 32] + lane as i32);
    }
    cases.push(Case::new(
        "named_barriers_hand_over<<<1, 64, 128>>>(5)",
        [input],
        bytes(row.map(i32::to_le_bytes)),
    ));

    let mut values: [i32; 128] = from_fn(|thread| 3 * thread as i32 - 100);
    let input = bytes(values.map(i32::to_le_bytes));
    for _ in 0..3 {
        values = from_fn(|thread| values[thread / 64 * 64 + 63 - thread % 64] + thread as i32 / 64);
    }
    cases.push(Case::new(
        "named_barrier_of_each_pair<<<1, 128, 512>>>(3)",
        [input],
        bytes(values.map(i32::to_le_bytes)),
    ));

    let answers = [0, 1, 1, 0, 0, 1, 1, 0].map(i32::to_le_bytes);
    let answers = bytes(std::iter::repeat_n(answers, 32).flatten());
    cases.push(Case::new("mbarrier_phases<<<1, 32, 8>>>()", [], answers));

    for tiles in [1, 2, 3, 9] {
        let sum: f32 = (0..32 * tiles).map(|word| word as f32).sum();
        cases.push(Case::new(
            format!("ring<<<1, 96, 288>>>({tiles}, 0)"),
            [],
            bytes([sum.to_le_bytes(); 64]),
        ));
    }
    cases.extend(wgmma::cases());
    cases.extend(tma::cases());
    cases.extend(cluster::cases());
    cases
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

#[test]
fn every_wrapper_has_a_counterpart_and_a_case() {
    let common = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap();
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let words = |text: &str| -> BTreeSet<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .map(String::from)
            .collect()
    };
    let cases = ["ptx.cu", "mbarrier.cu", "tma.cu", "wgmma.cu", "cluster.cu"]
        .map(|file| words(&read(&common.join("emulator/kernels/cu").join(file))));
    let mut wrappers = 0;
    for entry in std::fs::read_dir(common.join("cuda/attn/ptx")).unwrap() {
        let path = entry.unwrap().path();
        let text = read(&path);
        if !text.contains("asm volatile") {
            continue;
        }
        let counterpart = words(&read(
            &common
                .join("emulator/include/attn/ptx")
                .join(path.file_name().unwrap()),
        ));
        for declaration in text
            .lines()
            .filter(|line| line.starts_with("static __device__"))
        {
            let name = declaration
                .split('(')
                .next()
                .unwrap()
                .split(' ')
                .next_back()
                .unwrap();
            assert!(
                counterpart.contains(name),
                "{name}: the emulator has no counterpart"
            );
            // What another wrapper calls is run by that one's case.
            let is_part = text.matches(&format!("{name}(")).count() > 1;
            assert!(
                is_part || cases.iter().any(|words| words.contains(name)),
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
        let case = cases()
            .into_iter()
            .find(|case| case.name() == name)
            .unwrap();
        case.run.trace([case.expected.len(), 0]).counted.sum
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
        run.trace([128, 0]).counted.sum.shared_read.conflicts()
    };
    assert_eq!(
        [16, 80, 128].map(conflicts),
        [0, 0, 28],
        "8 rows 128 bytes apart lie in the same banks"
    );
}
