use half::{bf16, f16};

use crate::launch::{Plain, Run, launch, random};

/// A thread for each of `count` elements.
fn each(kernel: &str, count: usize) -> Run {
    launch(&format!(
        "{kernel}<<<{}, 256, 0>>>({count})",
        count.div_ceil(256)
    ))
}

fn convert<I: Plain, O: Plain>(kernel: &str, input: &[I]) -> Vec<O> {
    let run = each(kernel, input.len()).input(0, input);
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

fn assert_is(actual: u16, expected: f16, what: impl std::fmt::Debug) {
    if expected.is_nan() {
        assert_eq!(actual & 0x7fff, 0x7fff, "{what:?}");
    } else {
        assert_eq!(actual, expected.to_bits(), "{what:?}");
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
    let halves: Vec<u16> = convert("float_to_half", &floats);
    for (&float, half) in floats.iter().zip(halves) {
        assert_is(half, f16::from_f32_const(float), float);
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
    let run = each("float_to_bfloat16", count).input(0, &floats);
    let rounded: Vec<u16> = run.output(3 * count).unwrap();
    for (float, codes) in floats.iter().zip(rounded.chunks(3)) {
        let expected = match float.is_nan() {
            true => 0x7fff,
            false => bf16::from_f32(*float).to_bits(),
        };
        assert_eq!(codes, [expected; 3], "{:#x}", float.to_bits());
    }
}

/// A half as a whole number of 2^-48: exact, and wide enough for products. Not for infinity and NaN.
fn fixed(bits: u16) -> i128 {
    if bits & 0x7c00 == 0x7c00 {
        return 0;
    }
    (f16::from_bits(bits).to_f64() * 2f64.powi(24)) as i128 * (1 << 24)
}

/// A whole number of 2^-48 rounded to half; `zero` is the result for 0.
fn round_fixed(exact: i128, zero: u16) -> u16 {
    if exact == 0 {
        return zero;
    }
    let (sign, magnitude) = (if exact < 0 { 0x8000 } else { 0 }, exact.unsigned_abs());
    let top = 127 - magnitude.leading_zeros();
    // The last bit of a half lies 10 below its first, but not below 2^-24.
    let shift = top.saturating_sub(10).max(24);
    let (kept, lost, tie) = (
        magnitude >> shift,
        magnitude & ((1 << shift) - 1),
        1u128 << (shift - 1),
    );
    let kept = kept + u128::from(lost > tie || (lost == tie && kept & 1 == 1));
    // Exponent and mantissa add up, carry included.
    let bits = if shift == 24 {
        kept
    } else {
        kept + u128::from(shift - 24) * 1024
    };
    sign | bits.min(0x7c00) as u16
}

#[test]
fn arithmetic_rounds_once() {
    let interesting = [
        0u16, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00,
        0xfc00, 0x7e00,
    ];
    let mut triples: Vec<[u16; 3]> = Vec::new();
    for a in interesting {
        for b in interesting {
            triples.extend(interesting.map(|c| [a, b, c]));
        }
    }
    triples.extend(
        random(2)
            .take(300_000)
            .map(|bits| [bits as u16, (bits >> 16) as u16, (bits >> 32) as u16]),
    );
    // Nearby exponents, where sums cancel and ties happen.
    triples.extend(random(2).take(300_000).map(|bits| {
        let near = |bits: u64| 0x3400 + (bits & 0x93ff) as u16;
        [near(bits), near(bits >> 16), near(bits >> 32)]
    }));
    let column = |i: usize| triples.iter().map(|triple| triple[i]).collect::<Vec<u16>>();
    let count = triples.len();
    let run = each("half_arithmetic", count)
        .input(0, &column(0))
        .input(1, &column(1))
        .input(2, &column(2));
    let output: Vec<u16> = run.output(count * 7).unwrap();
    for ([a, b, c], row) in triples.into_iter().zip(output.chunks(7)) {
        let [fa, fb, fc] = [a, b, c].map(|bits| f16::from_bits(bits).to_f64());
        let what = (fa, fb, fc);
        let check = |actual: u16, float: f64, exact: i128| {
            // Infinities and NaN by the float's rules, which need no rounding; zeros have the float's sign.
            let finite = [a, b, c].iter().all(|bits| bits & 0x7c00 != 0x7c00);
            if finite {
                let zero = if float.is_sign_negative() { 0x8000 } else { 0 };
                assert_eq!(actual, round_fixed(exact, zero), "{what:?}");
            } else if float.is_nan() || float.is_infinite() {
                assert_is(actual, f16::from_f64(float), what);
            }
        };
        check(row[0], fa + fb, fixed(a) + fixed(b));
        check(row[1], fa - fb, fixed(a) - fixed(b));
        // Units of 2^-48 times units of 2^-48 are units of 2^-96; both factors are multiples of 2^24 of them.
        let product = (fixed(a) >> 24) * (fixed(b) >> 24);
        check(row[2], fa * fb, product);
        check(row[3], fa * fb + fc, product + fixed(c));
        assert_is(row[4], f16::from_f64(fa / fb), what);
        if !fa.is_nan() && !fb.is_nan() && fa != fb {
            assert_eq!(
                [row[5], row[6]],
                [if fa > fb { a } else { b }, a ^ 0x8000],
                "{what:?}"
            );
        }
    }
}

#[test]
fn doubles_round_once() {
    let tie = 1.0 + 2f64.powi(-11);
    let mut doubles = vec![
        tie,
        tie.next_up(),
        tie.next_down(),
        tie + 2f64.powi(-11),
        -tie.next_up(),
        65519.999999999,
    ];
    for bits in 0..0x7bffu16 {
        let middle = (f16::from_bits(bits).to_f64() + f16::from_bits(bits + 1).to_f64()) / 2.0;
        doubles.extend([middle, middle.next_up(), middle.next_down()]);
    }
    let halves: Vec<u16> = convert("double_to_half", &doubles);
    for (&double, half) in doubles.iter().zip(halves) {
        // The nearest of three neighbours; these inputs' distances are exact in double.
        let near = f16::from_f64_const(double);
        let candidates = [
            near.to_bits().wrapping_sub(1),
            near.to_bits(),
            near.to_bits() + 1,
        ];
        let distance = |bits: u16| {
            let value = f16::from_bits(bits);
            if value.is_finite() {
                (value.to_f64() - double).abs()
            } else {
                f64::INFINITY
            }
        };
        let best = candidates.into_iter().min_by(|&a, &b| {
            distance(a)
                .total_cmp(&distance(b))
                .then((a & 1).cmp(&(b & 1)))
        });
        assert_eq!(Some(half), best, "{double:e}");
    }
}

#[test]
fn half2_keeps_its_halves_apart() {
    let output: Vec<f32> = launch("half2_operations<<<1, 1, 0>>>()")
        .output(21)
        .unwrap();
    assert_eq!(
        output,
        [
            4.0, 7.0, -2.0, -3.0, 3.0, 10.0, 3.5, 10.5, 1.0, 2.0, 5.0, 5.0, 3.0, 2.0, 2.0, 1.0,
            2.5, 4.5, 16384.0, 6.0, 4.5
        ]
    );
}
