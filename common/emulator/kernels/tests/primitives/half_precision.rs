use half::{bf16, f16};

use crate::launch::{Plain, Run, launch, random};

/// Launches a thread for each of `count` elements.
fn run_for_each(kernel: &str, count: usize) -> Run {
    launch(&format!(
        "{kernel}<<<{}, 256, 0>>>({count})",
        count.div_ceil(256)
    ))
}

fn convert<I: Plain, O: Plain>(kernel: &str, input: &[I]) -> Vec<O> {
    let run = run_for_each(kernel, input.len()).input(0, input);
    run.output(input.len()).unwrap()
}

#[test]
fn all_halves_widen_exactly() {
    let halves: Vec<u16> = (0..=u16::MAX).collect();
    let floats: Vec<f32> = convert("half_to_float", &halves);
    for (&bits, float) in halves.iter().zip(floats) {
        let expected = f16::from_bits(bits);
        if expected.is_nan() {
            assert!(float.is_nan());
        } else {
            assert_eq!(float.to_bits(), expected.to_f32().to_bits(), "{bits:#x}");
        }
    }
}

#[test]
fn floats_round_to_nearest_even() {
    let mut floats = vec![
        0.0,
        f32::NAN,
        f32::INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        65519.996,
        65520.0,
    ];
    for bits in 0..0x7c00u16 {
        let (low, high) = (
            f16::from_bits(bits).to_f32(),
            f16::from_bits(bits + 1).to_f32(),
        );
        // The last step goes to infinity; its middle would have been 65520, above.
        let middle = if high.is_finite() {
            (low + high) / 2.0
        } else {
            65520.0
        };
        floats.extend([
            low,
            low.next_up(),
            middle.next_down(),
            middle,
            middle.next_up(),
        ]);
    }
    floats.extend(
        random(1)
            .take(300_000)
            .map(|bits| f32::from_bits(bits as u32)),
    );
    let negative: Vec<f32> = floats.iter().map(|x| -x).collect();
    floats.extend(negative);
    let count = floats.len();
    let run = run_for_each("float_to_half", count).input(0, &floats);
    let halves: Vec<u16> = run.output(3 * count).unwrap();
    for (&float, codes) in floats.iter().zip(halves.chunks(3)) {
        let expected = if float.is_nan() {
            0x7fff
        } else {
            f16::from_f32_const(float).to_bits()
        };
        assert_eq!(codes, [expected; 3], "{float}");
    }
}

#[test]
fn bfloats_are_the_upper_halves_of_floats() {
    let codes: Vec<u16> = (0..=u16::MAX).collect();
    let widened: Vec<f32> = convert("bfloat16_to_float", &codes);
    for (&code, float) in codes.iter().zip(widened) {
        assert_eq!(float.to_bits(), u32::from(code) << 16);
    }
    // Each with its neighbours and the middle to the next, a tie to even; the last is infinity.
    let mut floats = vec![f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)];
    for code in codes {
        let (low, middle) = (u32::from(code) << 16, u32::from(code) << 16 | 0x8000);
        floats.extend([low, low + 1, middle - 1, middle, middle + 1].map(f32::from_bits));
    }
    let count = floats.len();
    let run = run_for_each("float_to_bfloat16", count).input(0, &floats);
    let rounded: Vec<u16> = run.output(2 * count).unwrap();
    for (float, pair) in floats.iter().zip(rounded.chunks(2)) {
        let expected = if float.is_nan() {
            0x7fff
        } else {
            bf16::from_f32(*float).to_bits()
        };
        assert_eq!(pair, [expected; 2], "{:#x}", float.to_bits());
    }
}
