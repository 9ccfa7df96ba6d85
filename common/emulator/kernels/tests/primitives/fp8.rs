use half::f16;

use crate::launch::{launch, random};

/// By the definition of E4M3FN.
fn value(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if code & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

#[test]
fn every_code_converts_exactly() {
    let output: Vec<u16> = launch("e4m3_to_half<<<1, 256, 0>>>()")
        .output(1024)
        .unwrap();
    for (code, row) in (0..=255u8).zip(output.chunks(4)) {
        for (&bits, code) in row.iter().zip([code, code, 255 - code, code]) {
            if value(code).is_nan() {
                assert_eq!(bits, 0x7fff);
            } else {
                assert_eq!(bits, f16::from_f64(value(code)).to_bits(), "code {code:#x}");
                assert_eq!(f16::from_bits(bits).to_f64(), value(code));
            }
        }
    }
}

/// The nearest code by search; at a tie the even one.
pub fn nearest(x: f32) -> u8 {
    let x64 = f64::from(x.abs()).min(448.0);
    let distance = |code: &u8| (value(*code) - x64).abs();
    let best = (0..=0x7e)
        .min_by(|a, b| {
            distance(a)
                .total_cmp(&distance(b))
                .then((a & 1).cmp(&(b & 1)))
        })
        .unwrap();
    best | if x.is_sign_negative() { 0x80 } else { 0 }
}

#[test]
fn floats_round_to_the_nearest_code() {
    let mut inputs: Vec<f32> = vec![
        0.0,
        -0.0,
        464.0,
        464.1,
        500.0,
        1e30,
        f32::MIN_POSITIVE,
        1e-40,
    ];
    for code in 0..0x7eu8 {
        let (low, high) = (value(code) as f32, value(code + 1) as f32);
        let middle = (low + high) / 2.0;
        inputs.extend([
            low,
            middle,
            middle.next_down(),
            middle.next_up(),
            low.next_up(),
            high.next_down(),
        ]);
    }
    inputs.extend(random(1).take(4000).map(|bits| {
        let share = (bits >> 40) as f32 / (1 << 24) as f32 - 0.5;
        share * 2f32.powi((bits % 24) as i32 - 12)
    }));
    let negative: Vec<f32> = inputs.iter().map(|x| -x).collect();
    inputs.extend(negative);
    let count = inputs.len();
    let mut with_specials = inputs.clone();
    with_specials.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    let len = with_specials.len();
    let run = launch(&format!(
        "float_to_e4m3<<<{}, 128, 0>>>({len})",
        len.div_ceil(128)
    ));
    let run = run.input(0, &with_specials);
    let (saturated, open, _) = run.outputs::<u8>(len, len).unwrap();
    for (i, &x) in inputs.iter().enumerate() {
        assert_eq!(saturated[i], nearest(x), "{x:e}");
        let sign = if x.is_sign_negative() { 0x80 } else { 0 };
        assert_eq!(
            open[i],
            if x.abs() > 464.0 {
                sign | 0x7f
            } else {
                nearest(x)
            },
            "{x:e}"
        );
    }
    assert_eq!(saturated[count..], [0x7f, 0x7e, 0xfe]);
    assert_eq!(open[count..], [0x7f, 0x7f, 0xff]);
}
