use half::f16;

use crate::launch::launch;

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
    let output: Vec<u16> = launch("e4m3_to_half<<<1, 256, 0>>>()").output(512).unwrap();
    for (code, row) in (0..=255u8).zip(output.chunks(2)) {
        for (&bits, code) in row.iter().zip([code, 255 - code]) {
            if value(code).is_nan() {
                assert_eq!(bits, 0x7fff);
            } else {
                assert_eq!(bits, f16::from_f64(value(code)).to_bits(), "code {code:#x}");
                assert_eq!(f16::from_bits(bits).to_f64(), value(code));
            }
        }
    }
}
