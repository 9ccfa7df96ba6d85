//! Each form of wgmma on one warpgroup, exact: whole numbers whose products and sums need no rounding. The same kernels
//! must give the same in the emulator and on a GPU of sm_90a.

use emulator::Entry;
use emulator_kernels::{entry, traced};
use half::f16;

use crate::fp8::nearest;
use crate::support::{Run, SCHEDULES};

/// A kernel of `cu/wgmma.cu` and the product that it computes.
struct Form {
    name: &'static str,
    plain: Entry,
    traced: Entry,
    is_e4m3: bool,
    n: usize,
    k: usize,
    /// B is given as [K][N].
    is_transposed: bool,
}

macro_rules! forms {
    ($($name:ident: $is_e4m3:expr, $n:expr, $k:expr, $is_transposed:expr;)*) => {
        [$(Form {
            name: stringify!($name),
            plain: entry::$name,
            traced: traced::$name,
            is_e4m3: $is_e4m3,
            n: $n,
            k: $k,
            is_transposed: $is_transposed,
        }),*]
    };
}

fn forms() -> [Form; 22] {
    forms! {
        wgmma_f16_64: false, 64, 64, false;
        wgmma_f16_96: false, 96, 64, false;
        wgmma_f16_128: false, 128, 64, false;
        wgmma_f16_192: false, 192, 64, false;
        wgmma_f16_narrow: false, 64, 32, false;
        wgmma_f16_slabs: false, 128, 128, false;
        wgmma_f16_narrow_slabs: false, 96, 64, false;
        wgmma_f16_trans_64: false, 64, 64, true;
        wgmma_f16_trans_96: false, 96, 64, true;
        wgmma_f16_trans_128: false, 128, 128, true;
        wgmma_f16_trans_192: false, 192, 64, true;
        wgmma_f16_trans_narrow: false, 64, 32, true;
        wgmma_f16_registers: false, 64, 64, false;
        wgmma_f16_registers_trans: false, 64, 128, true;
        wgmma_f16_registers_trans_128: false, 128, 192, true;
        wgmma_e4m3_64: true, 64, 128, false;
        wgmma_e4m3_128: true, 128, 128, false;
        wgmma_e4m3_192: true, 192, 128, false;
        wgmma_e4m3_narrow: true, 96, 64, false;
        wgmma_e4m3_slabs: true, 64, 256, false;
        wgmma_e4m3_registers: true, 64, 128, false;
        wgmma_e4m3_registers_128: true, 128, 256, false;
    }
}

/// Whole numbers from -4 to 4, in no order that a mistake in a layout would keep.
fn numbers(seed: u32, count: usize) -> Vec<i32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as i32 % 9 - 4
    };
    std::iter::repeat_with(next).take(count).collect()
}

impl Form {
    fn code(&self, values: &[i32]) -> Vec<u8> {
        let code = |&value: &i32| match self.is_e4m3 {
            true => vec![nearest(value as f32)],
            false => f16::from_f32(value as f32).to_bits().to_le_bytes().to_vec(),
        };
        values.iter().flat_map(code).collect()
    }

    fn shared(&self) -> usize {
        // Columns of a transposed B come in slabs of 64.
        let columns = if self.is_transposed { self.n.next_multiple_of(64) } else { self.n };
        (64 + columns) * self.k * if self.is_e4m3 { 1 } else { 2 }
    }

    /// Both operands, and D to begin with 0 or with 3 row - 2 col.
    fn case(&self, seed: u32) -> ([Vec<u8>; 2], [Vec<f32>; 2]) {
        let Self { n, k, .. } = *self;
        let (a, b) = (numbers(seed, 64 * k), numbers(seed + 1, n * k));
        let element =
            |depth: usize, col: usize| if self.is_transposed { b[depth * n + col] } else { b[col * k + depth] };
        let product =
            |row: usize, col: usize| (0..k).map(|depth| a[row * k + depth] * element(depth, col)).sum::<i32>();
        let d = [0, 1].map(|more| {
            let each = |i: usize| product(i / n, i % n) + more * (3 * (i / n) as i32 - 2 * (i % n) as i32);
            (0..64 * n).map(|i| each(i) as f32).collect()
        });
        ([self.code(&a), self.code(&b)], d)
    }

    fn run(&self, entry: Entry, [a, b]: &[Vec<u8>; 2], more: usize) -> Run {
        Run::new(entry, 128).shared(self.shared()).input(0, a).input(1, b).number(0, more as i32)
    }
}

#[test]
fn every_form_multiplies_exactly() {
    for (seed, form) in (0..).zip(forms()) {
        let (inputs, expected) = form.case(seed);
        for (more, expected) in expected.iter().enumerate() {
            for schedule in SCHEDULES {
                let run = form.run(form.plain, &inputs, more).schedule(schedule);
                let d: Vec<f32> = run.output(64 * form.n).unwrap_or_else(|fault| panic!("{}: {fault}", form.name));
                let wrong = d.iter().zip(expected).position(|(is, should)| is != should);
                let at = wrong.map(|i| (i / form.n, i % form.n, d[i], expected[i]));
                assert_eq!(at, None, "{}, {schedule:?}", form.name);
            }
        }
    }
}

#[test]
fn every_form_is_clean_and_counted() {
    for (seed, form) in (0..).zip(forms()) {
        let (inputs, _) = form.case(seed);
        let report = form.run(form.traced, &inputs, 1).trace([64 * form.n * 4, 0]);
        assert_eq!(report.hazards, [], "{}", form.name);
        let counted = report.counted.sum;
        let depth = if form.is_e4m3 { 32 } else { 16 };
        assert_eq!(counted.tensor_macs, (64 * form.n * form.k) as u64, "{}", form.name);
        assert_eq!(counted.tensor_ops, 4 * (form.k / depth) as u64, "one of each warp");
    }
}

#[test]
fn groups_in_flight_are_waited_for_one_after_the_other() {
    let (a, b) = (numbers(5, 4096), numbers(6, 4096));
    let halves = |values: &[i32]| values.iter().map(|&x| f16::from_f32(x as f32).to_bits()).collect::<Vec<u16>>();
    let product = |row: usize, col: usize| (0..64).map(|k| a[row * 64 + k] * b[col * 64 + k]).sum::<i32>() as f32;
    for schedule in SCHEDULES {
        let run =
            |entry| Run::new(entry, 128).shared(16384).input(0, &halves(&a)).input(1, &halves(&b)).schedule(schedule);
        let registers: Vec<f32> = run(entry::wgmma_two_groups).output(128 * 64).unwrap();
        for (thread, registers) in registers.chunks(64).enumerate() {
            for i in 0..32 {
                let row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
                let product = product(row, thread % 4 * 2 + i / 4 * 8 + i % 2);
                // (10 + p) / 2 + p + p / 2
                assert_eq!(
                    (registers[i], registers[32 + i]),
                    (product, 5.0 + 2.0 * product),
                    "{thread}, {i}, {schedule:?}"
                );
            }
        }
        assert_eq!(run(traced::wgmma_two_groups).trace([128 * 64 * 4, 0]).hazards, []);
    }
}

#[test]
fn stmatrix_is_the_way_back_of_ldmatrix() {
    // Rows of 16 bytes at multiples of 16, in no order that a mistake could have.
    let rows: [usize; 32] = std::array::from_fn(|lane| (lane * 37 + lane / 8 * 5 + 3) % 128);
    let code = |matrix: usize, row: usize, col: usize| (1000 + matrix * 64 + row * 8 + col) as u16;
    let registers: Vec<u16> = (0..256)
        .map(|i| (i / 8, i / 2 % 4, i % 2))
        .map(|(lane, matrix, part)| code(matrix, lane / 4, lane % 4 * 2 + part))
        .collect();
    let mut expected = vec![0u16; 1024];
    for (lane, row) in rows.into_iter().enumerate() {
        (0..8).for_each(|col| expected[row * 8 + col] = code(lane / 8, lane % 8, col));
    }
    let starts = rows.map(|row| row as i32 * 16);
    for schedule in SCHEDULES {
        let run = |entry| Run::new(entry, 32).shared(2048).input(0, &registers).input(1, &starts).schedule(schedule);
        assert_eq!(run(entry::stmatrix_x4).output::<u16>(1024).unwrap(), expected);
        assert_eq!(run(traced::stmatrix_x4).trace([2048, 0]).hazards, []);
    }
}

#[test]
fn registers_that_are_given_back_can_be_taken() {
    let expected: Vec<i32> = (0..384).map(|thread| if thread < 128 { 1 } else { 2 }).collect();
    for schedule in SCHEDULES {
        let run = |entry| Run::new(entry, 384).schedule(schedule);
        assert_eq!(run(entry::registers_change_hands).output::<i32>(384).unwrap(), expected);
        assert_eq!(run(traced::registers_change_hands).trace([2048, 0]).hazards, []);
    }
}

#[test]
fn debug_all() {
    use emulator::Schedule;
    let show = |name: &str, run: Run, plain: Run| {
        println!("=== {name}");
        for schedule in [Schedule::InOrder, Schedule::Reversed] {
            let report = run.clone().schedule(schedule).trace([32768, 0]);
            for h in &report.hazards {
                println!("  {schedule:?}: {h}");
            }
            if let Err(f) = plain.clone().schedule(schedule).output::<f32>(8192) {
                println!("  {schedule:?} plain: {f}");
            }
        }
    };
    let f: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    for bit in std::iter::once(0).chain((0..14).map(|b| 1 << b)) {
        let run = |e| Run::new(e, 128).shared(3 * 8192).input(0, &f).number(0, bit).number(1, 4);
        show(&format!("attention {bit}"), run(traced::wgmma_attention), run(entry::wgmma_attention));
    }
    for bit in 0..2 {
        let run = |e| Run::new(e, 160).shared(3 * 8192 + 32).input(0, &f).number(0, bit).number(1, 5);
        show(&format!("ring {bit}"), run(traced::wgmma_ring), run(entry::wgmma_ring));
    }
    for how in 0..15 {
        let run = |e| Run::new(e, 128).shared(2 * 8192).input(0, &f).number(0, how);
        show(&format!("misused {how}"), run(traced::wgmma_misused), run(entry::wgmma_misused));
    }
    for (t, first) in [(96, 0), (160, 1), (160, 0), (256, 4)] {
        let run = |e| Run::new(e, t).shared(2 * 8192).input(0, &f).number(1, first);
        show(&format!("misused {t} {first}"), run(traced::wgmma_misused), run(entry::wgmma_misused));
    }
    for (n0, n1, n2) in [(0, 16, 0), (1, 16, 0), (1, 16, 8)] {
        let run = |e| Run::new(e, 32).shared(1024).input(0, &f).number(0, n0).number(1, n1).number(2, n2);
        show(&format!("stmatrix {n0} {n1} {n2}"), run(traced::stmatrix_then_lanes), run(entry::stmatrix_then_lanes));
    }
    for how in 0..6 {
        let run = |e| Run::new(e, 384).number(0, how);
        show(&format!("registers {how}"), run(traced::registers_misused), run(entry::registers_misused));
    }
}
